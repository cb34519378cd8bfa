"""Errors of arguments carry the parameter: of each factory and function, renamed, pickled and copied."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import cupar
from cupar import arrays, compute
from cupar._base.errors import ArgumentError, of_parameter
from cupar._functions.axes import axis_of

ERRORS = (cupar.ArgumentTypeError, cupar.ArgumentValueError)
OpKind = cupar.OpKind
X = np.arange(6, dtype="f4")
FUNCTIONS = [getattr(arrays, name) for name in arrays.__all__]
FACTORIES = [getattr(cupar, name) for name in cupar.__all__ if name != "jit"]


def parameters(function):
    return inspect.signature(function).parameters


class Wrong:
    """What no parameter takes."""


# --- Of each parameter -----------------------------------------------------------------------------------

RIGHT = {
    **dict.fromkeys(("select_first_part_op", "select_second_part_op", "cond"), lambda a: a > 0),
    **dict.fromkeys(("h_init", "h_lower_level"), np.float32(0)),
    **dict.fromkeys(("d_indices", "d_ranks", "d_histogram", "d_out_counts"), np.int64),
    **{"h_upper_level": np.float32(1), "h_num_output_levels": 3, "num_samples": 3, "d_in_items2": None},
}
OPERATORS = {
    **dict.fromkeys(("merge_sort", "merge", "set_difference", "set_intersection"), OpKind.LESS),
    **dict.fromkeys(("set_symmetric_difference", "set_union"), OpKind.LESS),
    **{"unique_by_key": OpKind.EQUAL_TO, "unary_transform": OpKind.NEGATE},
}
TWO_ITEMS = ("merge", "set_symmetric_difference", "set_union")


@pytest.mark.parametrize(
    "factory", [each for each in FACTORIES if inspect.isfunction(each) and "cc" in parameters(each)]
)
def test_each_parameter_of_a_factory(factory):
    given = {"cc": "cpu", **{name: each for name, each in RIGHT.items() if name in parameters(factory)}}
    if "op" in parameters(factory):
        given["op"] = OPERATORS.get(factory.__name__, OpKind.PLUS)
    for name in parameters(factory):
        if name.startswith("d_") and name not in given:
            given[name] = np.int64 if "num" in name else np.float32
        elif "offsets" in name:
            given[name] = np.int64
    if factory.__name__ in TWO_ITEMS:
        given["d_in_items2"] = np.float32
    if "none" in parameters(factory) or "comp" in parameters(factory):
        given["d_out"] = np.int64  # places
    for name in parameters(factory):
        with pytest.raises(ERRORS) as caught:
            factory(**{**given, name: Wrong()})
        error = caught.value
        assert error.parameter.partition("[")[0] == name, error
        assert str(error) == f"{error.parameter}: {error.said}"


NUMBERS = dict.fromkeys(("k", "n", "number", "size", "num_segments", "repeats", "bins"), 3)
GIVEN = {
    **dict.fromkeys(("keys", "ids", "indices", "starts", "ends"), np.arange(6)),
    **dict.fromkeys(("old", "new", "value", "q"), 0.5),
    **{"op": OpKind.PLUS, "predicate": OpKind.LOGICAL_NOT, "transform": OpKind.NEGATE, **NUMBERS},
}


@pytest.mark.parametrize("function", [each for each in FUNCTIONS if inspect.isfunction(each)])
def test_each_parameter_of_a_function(function):
    """Another argument may be refused first, as they are the same for all; `fill` has no `like`."""
    found = set()
    for wrong in {*parameters(function)} - {"stream", "arrays"}:
        places, named = [], {}
        for name, each in parameters(function).items():
            value = Wrong() if name == wrong else GIVEN.get(name, X)
            if each.kind in (each.POSITIONAL_ONLY, each.VAR_POSITIONAL):
                places.append(value)
            elif name == wrong or each.default is each.empty:
                named[name] = value
        with pytest.raises(ERRORS) as caught:
            function(*places, **named)
        found.add(caught.value.parameter.partition("[")[0])
    assert found and found <= {*parameters(function), "like"}


# --- Renamed ---------------------------------------------------------------------------------------------


def test_parts_of_arguments():
    with pytest.raises(ERRORS, match=r"^x\[1\]: expected the shape of x\[0\]") as caught:
        arrays.sort((X, X[:3]))
    assert caught.value.parameter == "x[1]"


def test_names_of_functions_made_of_others():
    with pytest.raises(ERRORS, match="^equal: expected a function") as caught:
        arrays.run_length_encode(X, equal=3)
    assert caught.value.parameter == "equal"
    with pytest.raises(ERRORS, match="^init_value: .*init_value=None") as caught:
        scan = compute.make_inclusive_scan(d_in=X, d_out=X, op=OpKind.PLUS, compute_capability="cpu")
        scan(temp_storage=None, d_in=X, d_out=X, op=OpKind.PLUS, init_value=X[:1], num_items=6)
    assert caught.value.parameter == "init_value"
    with pytest.raises(ERRORS, match="^compute_capability: expected a compute") as caught:
        compute.make_unary_transform(d_in=X, d_out=X, op=OpKind.NEGATE, compute_capability="new")
    assert caught.value.parameter == "compute_capability"


def test_an_axis_is_numpys_error_too():
    with pytest.raises(np.exceptions.AxisError, match="^axis: expected from -1 to 0") as caught:
        arrays.sum(X, axis=3)
    assert type(caught.value) is cupar.AxisError and caught.value.parameter == "axis"
    with pytest.raises(np.exceptions.AxisError, match="^axis: 1 is out of bounds"):
        axis_of(1, 0)  # which no function renames


def test_rename():
    error = cupar.ArgumentValueError("op[1]", "op is of h_init")
    error.rename({"op": "fn", "h_init": "init"})
    assert str(error) == "fn[1]: op is of h_init" and error.args == (str(error),)
    error.rename({"h_init": "init"}, everywhere=True)
    assert str(error) == "fn[1]: op is of init"


@pytest.mark.parametrize("error", [KeyError("k"), RuntimeError("r"), TypeError("t"), ValueError("v: w")])
def test_errors_without_a_parameter_get_one(error):
    found = of_parameter("x", error)
    assert str(found) == f"x: {error}" and found.parameter == "x"
    assert isinstance(found, ValueError) == isinstance(error, ValueError)
    refused = of_parameter("op", cupar.Unfingerprintable("it reads a list"))
    assert type(refused) is cupar.Unfingerprintable and refused.parameter == "op"


# --- Carried ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [*ERRORS, cupar.AxisError, cupar.Unfingerprintable])
def test_errors_are_pickled_and_copied(cls):
    error = cls("xs[1]", "expected: less")
    assert str(error) == "xs[1]: expected: less" and error.args == (str(error),)
    error.rename({"xs": "x"})
    error.add_note("a note")
    carried = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(6)]
    for each in (*carried, copy.copy(error), copy.deepcopy(error)):
        assert type(each) is cls and str(each) == str(error) == "x[1]: expected: less"
        assert (each.parameter, each.said) == ("x[1]", "expected: less") and each.__notes__ == ["a note"]


@pytest.mark.parametrize("cls", [*ERRORS, cupar.AxisError, cupar.Unfingerprintable])
def test_errors_are_made_of_a_text_alone(cls):
    """As PyTorch's data loaders do with errors of their workers."""
    error = cls("x: wrong\nTraceback: …")
    assert str(error) == "x: wrong\nTraceback: …" and error.parameter == ""
    error.rename({"": "y", "x": "y"})
    assert str(error) == "x: wrong\nTraceback: …"
    assert isinstance(error, ArgumentError) and cls.__module__ == "cupar"
