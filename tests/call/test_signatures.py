"""Calls are declared once: what follows from `run` is what a hand-written `__call__` would say."""

import importlib
import inspect
import re
import typing

import pytest

import cupar
from cupar._arguments.double_buffer import DoubleBuffer, buffers
from cupar._arguments.order import completed, signature, two_phases
from cupar._base import annotations
from cupar.search import BinarySearch

TWO_PHASES = [
    each
    for each in (getattr(cupar, name) for name in cupar.__all__)
    if inspect.isclass(each) and issubclass(each, cupar.Algorithm)
    if each is not cupar.Algorithm and each.__call__ is not each.run
]


@pytest.mark.parametrize("cls", TWO_PHASES)
def test_a_call_takes_the_storage_in_front_of_what_run_takes(cls):
    run, call = inspect.signature(cls.run), inspect.signature(cls.__call__)
    own, storage, *rest = call.parameters.values()
    assert (own.name, storage.name, storage.default) == ("self", "temp_storage", inspect.Parameter.empty)
    assert rest == list(run.parameters.values())[1:]
    assert (call.return_annotation, run.return_annotation) == ("int", "None")
    assert typing.get_type_hints(cls.__call__, localns=vars(annotations))["return"] is int
    assert "temp_storage : None or device array" in inspect.getdoc(cls.__call__)
    assert cls.__call__.__qualname__ == f"{cls.__name__}.__call__"


def test_graphs_give_searches_storage_as_a_call_in_two_phases_does():
    call = BinarySearch._in_two_phases
    assert list(inspect.signature(call).parameters)[:3] == ["self", "temp_storage", "d_data"]


class Sum:
    def run(self, a, n=2, stream=None, *, most=None):
        raise NotImplementedError

    @two_phases(run)
    def __call__(self) -> None: ...

    def _execute(self, *arguments):
        return arguments


def test_a_call_hands_on_all_but_the_stream_in_order():
    assert Sum()("storage", 1, stream="s", most=3) == ("storage", "s", (1, 2, 3))
    assert Sum()(temp_storage=None, a=1) == (None, None, (1, 2, None))
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Sum()(None)


def test_arguments_are_completed_with_defaults():
    assert list(signature(Sum.run).parameters) == ["a", "n", "most"]
    assert completed(Sum.run, (1,), {"most": 5}) == (1, 2, 5)


def test_double_buffers_are_both_or_none():
    class Mine(DoubleBuffer):
        """Of the user's own."""

    keys, values = DoubleBuffer(1, 2), Mine(3, 4)
    assert buffers(keys, values) == (keys, values)
    assert buffers(values, None) == (values,)
    assert buffers(1, 2) == ()
    for one, other in ((keys, 2), (1, values)):
        with pytest.raises(TypeError, match="^d_in_values: expected a DoubleBuffer if d_in_keys is one"):
            buffers(one, other)


# --- What editors show ------------------------------------------------------------------------------------

# Whatever these take goes to others.
ANY_ARGUMENTS = {"xs", "what", "options", "arguments", "named"}


def public(module):
    """Yield the public functions of a module, and `run` of its algorithms, by name."""
    pytest.importorskip(module.removeprefix("cupar.").partition(".")[0] if module in LIBRARIES else "numpy")
    found = importlib.import_module(module)
    for name in found.__all__:
        each = getattr(found, name)
        if inspect.isfunction(each):
            yield name, each
        elif inspect.isclass(each) and hasattr(each, "run"):
            yield f"{name}.run", each.run


LIBRARIES = ["cupar.torch", "cupar.jax", "cupar.dask"]
MODULES = [
    "cupar",
    "cupar.arrays",
    "cupar.cache",
    "cupar.distributed",
    "cupar.distributed.arrays",
    "cupar.graph",
]


@pytest.mark.parametrize("module", [*MODULES, *LIBRARIES])
def test_public_functions_show_their_parameters_types_and_help(module):
    for name, function in public(module):
        shown = inspect.signature(function)
        assert inspect.getdoc(function), name
        for each in shown.parameters.values():
            assert each.name == "self" or each.annotation is not each.empty, f"{name}: {each}"
            assert each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.name in ANY_ARGUMENTS, (
                name
            )
        returns = str(shown.return_annotation)
        has_overloads = name in ("gpu_struct", "jit")
        assert has_overloads or not re.search(r"\bAny$|_empty", returns), f"{name}: {returns}"
