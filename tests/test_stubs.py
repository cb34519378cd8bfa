"""What type checkers see of functions of arrays is what the functions' annotations say.

``python tests/test_stubs.py`` writes the stubs. Functions of any library's arrays have overloads: for NumPy's
arrays, whose items have known types; for those of any other class; for iterators, with an array that results
are to be like; and for iterators and tuples of arrays, whose class is not known. Those that read the length
of their result unless a `size` is given have two of each.
"""

import enum
import importlib
import inspect
import re
from pathlib import Path

import pytest

import cupar
from cupar import arrays

ROOT = Path(cupar.__file__).parent

HEAD = '''"""Types of the functions of `{module}`, for type checkers; tests/test_stubs.py writes this file."""

# fmt: off
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, overload

{library}
from {dots}_base.annotations import {names}
from {dots}_ir.iterator import Iterator
from {dots}operators import Op, OpKind
from {dots}reduce import Determinism
'''
NAMES = "AnyArray, Array, Arrays, ArraysT, ArrayT, Axes, DType, Floats, ItemsT, ItemT, Stream"
OF_NUMPY = "import numpy as np\nfrom numpy.typing import NDArray\n"

# What annotates operands of bodies, and arrays that users give.
TOKENS = ("Operand", "Numbers", "Integers", "Flags", "Array", "Arrays")
TOKEN = re.compile(rf"\b({'|'.join(TOKENS)})\b")


# --- Types ------------------------------------------------------------------------------------------------


class Kind:
    """A kind of arrays: of NumPy, of any class, of a library, or of a class that is not known.

    Parameters
    ----------
    given, items : str
        The type of the argument that the result's class is that of, and if results have its items.
    results : str
        That of results.
    **known : str
        That of results that are annotated so.
    """

    def __init__(self, given, results, items=None, **known):
        self.given, self.items, self.results = given, items or given, results
        self.known = {**dict.fromkeys(TOKENS, results), "Counted": f"Counted[{{}}, {results}]", **known}

    def of(self, text, first=""):
        """Return a type of results, from the annotation; `first` is that of those that a count is beside."""
        generic = {name: f"{name}[{self.results}]" for name in TUPLES if name != "Counted"}
        known = {**generic, **self.known}
        return re.sub(rf"\b({'|'.join(known)})\b", lambda match: known[match[0]].format(first), text)


TUPLES = [name for name in arrays.__all__ if isinstance(getattr(arrays, name), type)]
INTEGERS, ITEMS = "NDArray[np.int64]", "NDArray[ItemT]"
NUMPY = Kind(
    "NDArray[Any]", "NDArray[Any]", ITEMS, Operand=ITEMS, Integers=INTEGERS, Flags="NDArray[np.bool_]"
)
NUMPY.known["Counted"] = f"Counted[{{}}, {INTEGERS}]"
ANY_CLASS = Kind("ArrayT", "ArrayT")
ITSELF = Kind("ArraysT", "ArraysT")  # of tuples of arrays, tuples
OF_LIKE = Kind("Iterator", "ArrayT")
UNKNOWN = Kind("Iterator | tuple[Any, ...]", "AnyArray")
TORCH, DASK = Kind("", "Tensor"), Kind("", "da.Array", Array="Array")


def fields(cls):
    """Return a class of tuples with names, which is generic in the class of arrays."""
    given = {name: getattr(each, "__forward_arg__", each) for name, each in cls.__annotations__.items()}
    texts = {name: text.replace("Any", "ArrayT") for name, text in given.items()}
    of = "ArrayT"
    if cls.__name__ == "Counted":
        texts["items"], of = "ItemsT", "ItemsT, ArrayT"
    lines = [f"    {name}: {text}" for name, text in texts.items()]
    lines = [f"{line}  # type: ignore[assignment]" if " count:" in line else line for line in lines]
    return "\n".join([f"class {cls.__name__}(NamedTuple, Generic[{of}]):", *lines])


# --- Functions --------------------------------------------------------------------------------------------


def head(name, parameters, returns):
    """Return the head of a function."""
    kinds = {kind: [] for kind in range(5)}
    for each in parameters:
        value = each.default
        shown = f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)
        text = f"{each.name}: {each.annotation}" + (f" = {shown}" if value is not each.empty else "")
        kinds[each.kind].append(text)
    by_place, both, starred, by_name, _ = kinds.values()
    star = [f"*{each}" for each in starred] or ["*"] * bool(by_name)
    shown = ", ".join([*by_place, *["/"] * bool(by_place), *both, *star, *by_name])
    return f"def {name}({shown}) -> {returns}: ..."


def changed(parameters, defaults=True, **types):
    """Return parameters, some with other types; without their defaults if these are not to stay."""
    return [
        each.replace(annotation=types[each.name], default=each.default if defaults else each.empty)
        if each.name in types
        else each
        for each in parameters
    ]


def annotated(function):
    """Return a function's parameters, which of them has the first array, and its result."""
    of_body = inspect.unwrap(function).__annotations__.items()
    own = {**function.__annotations__, **{name: text for name, text in of_body if TOKEN.search(text)}}
    parameters, first = [], None
    for each in inspect.signature(function).parameters.values():
        text = own[each.name]
        if each.name == "out":
            text = "Arrays | None" if each.default is None else "Arrays"
        elif TOKEN.search(text) and each.name != "like":
            if first is None:
                first = each.name
            elif "Operand" in text:
                is_number = re.search(rf"^{each.name} : .*number", function.__doc__, re.M)
                text = re.sub("Operand", "Arrays | complex" if is_number else "Arrays", text)
        parameters.append(each.replace(annotation=text))
    return parameters, first, own["return"]


def of_any_library(name, function, returns=None):
    """Yield the overloads of a function."""
    parameters, first, own = annotated(function)
    returns = returns or own
    if any(each.name == "out" and each.default is each.empty for each in parameters):  # it is returned
        others = {first: "Arrays"} if first else {}
        yield head(name, changed(parameters, **others, out="ArraysT"), "ArraysT")
    elif returns == "None":
        yield head(name, changed(parameters, **{first: "Arrays"}), "None")
    elif first is None:  # of `like` or `out`
        for given, kind in (("like", "NDArray[Any]"), ("like", "ArrayT"), ("out", "ArraysT")):
            yield head(name, changed(parameters, defaults=False, **{given: kind}), kind)
    else:
        before = next(each.annotation for each in parameters if each.name == first)
        result, *counted = returns.split(" | ")
        of_like = [OF_LIKE] * ("like" in [each.name for each in parameters])
        for kind in (NUMPY, ITSELF if returns == "Operand" else ANY_CLASS, *of_like, UNKNOWN):
            given = TOKEN.sub(kind.items if "Operand" in result else kind.given, before)
            these = changed(parameters, **{first: given})
            if kind is OF_LIKE:
                these = changed(these, defaults=False, like="ArrayT")
            found = kind.of(result, kind.known["Operand"])
            if kind is UNKNOWN and counted:
                found, counted = "AnyArray", []
            yield head(name, changed(these, size="None") if counted else these, found)
            for each in counted:
                yield head(name, changed(these, defaults=False, size="int"), kind.of(each, found))


def of_shards(name, function):
    """Yield the overloads of a function of arrays in shards, whose result is that of the one of arrays."""
    parameters, first, _ = annotated(function)
    returns = annotated(getattr(arrays, name))[2].partition(" | ")[0]
    for kind in (NUMPY, ANY_CLASS):
        types = {first: kind.items if "Operand" in returns else kind.given}
        yield head(name, changed(parameters, **types), kind.of(returns))


def of_library(kind, name, function):
    """Yield the function of a library's arrays alone, which it is annotated with."""
    found = inspect.signature(function)
    yield head(name, found.parameters.values(), kind.of(found.return_annotation, kind.results))


def stub(module, dots, library, overloads, own=()):
    """Return the stub of a module of functions, but for unused imports; those of `own` are imported."""
    found = importlib.import_module(module)
    parts = [HEAD.format(module=module, dots=dots, library=library, names=NAMES)]
    for name in found.__all__:
        each = getattr(found, name)
        if isinstance(each, type):
            parts.append(fields(each))
        elif name not in own:
            heads = [*overloads(name, each)]
            if inspect.unwrap(each).__name__ != name or module == "cupar.torch":  # no editor finds its help
                said = inspect.getdoc(each).partition("\n\n")[0]
                heads[-1] = heads[-1].removesuffix(" ...") + f'\n    """{said}"""'
            parts += [f"@overload\n{text}" for text in heads] if len(heads) > 1 else heads
    return "\n".join(parts) + "\n"


def _torch():
    own = "linear_recurrence", "scan", "transform"
    files = "recurrence", "scans", "transforms"
    lines = ["import torch", "from torch import Tensor", ""]
    lines += [f"from ._torch.{file} import {name} as {name}" for file, name in zip(files, own, strict=True)]
    library = "\n".join([*lines, f"from .arrays import {', '.join(TUPLES)}"])
    return stub("cupar.torch", ".", library, lambda *given: of_library(TORCH, *given), own)


STUBS = {
    "arrays.pyi": lambda: stub("cupar.arrays", ".", OF_NUMPY, of_any_library),
    "distributed/arrays.pyi": lambda: stub(
        "cupar.distributed.arrays", "..", f"{OF_NUMPY}\nfrom ..arrays import {', '.join(TUPLES)}", of_shards
    ),
    "torch.pyi": _torch,
    "dask.pyi": lambda: stub(
        *("cupar.dask", ".", f"import dask.array as da\n\nfrom .arrays import {', '.join(TUPLES)}"),
        lambda *given: of_library(DASK, *given),
    ),
}


def without_unused(text):
    """Return a stub without the imports that it does not use."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith(("from ", "import ")))
    lines = []
    for line in text.splitlines():
        begin, mark, names = line.partition(" import ")
        if line.startswith("from ") and mark and " as " not in names:
            used = [each for each in names.split(", ") if re.search(rf"(?<![.\w]){each}\b", body)]
            line = f"{begin} import {', '.join(used)}" if used else None
        if line is not None:
            lines.append(line)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("file", STUBS)
def test_a_stub_is_what_the_functions_say(file):
    pytest.importorskip(file.split(".")[0].split("/")[0] if file in ("torch.pyi", "dask.pyi") else "numpy")
    expected = without_unused(STUBS[file]())
    assert (ROOT / file).read_text() == expected, "python tests/test_stubs.py writes it"


if __name__ == "__main__":
    for file, made in STUBS.items():
        (ROOT / file).write_text(without_unused(made()))
