"""Schemas of operators, made from the signatures of the functions of `cupar.arrays`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import arrays


class OperatorRow(NamedTuple):
    """Properties of a function beside its signature."""

    returns: Callable[..., list[Any]]  # a `results.Result` each, given its arguments, tensors as operands
    gradient: Any = None  # takes the operator and its arguments, functions and `init` by name; None if none
    several: bool = False  # whether `dim` may be several
    cls: Any = None  # of what it returns, if that is a tuple with names
    is_list: bool = False  # whether the number of results depends on its arguments
    types: Mapping[str, str] = {}  # of parameters that others have not
    neutral: Any = None  # what the gradient takes in place of items that do not count
    around: Any = None  # takes the operator, or what calls it, and the arguments of the function


_MAY_LACK = ("weights", "where", "sorter", "prepend", "append")
TENSORS = ("x", "ids", "a", "b", "x1", "x2", "indices", "flags", "keys", "repeats", *_MAY_LACK)
FUNCTIONS = ("op", "predicate", "less", "equal")  # of which the last two are given by name
LAST = ("dtype", "where", "init")  # as PyTorch has them, behind `dim` and `keepdims`
_TYPES = {
    **dict.fromkeys(TENSORS, "Tensor"),
    **dict.fromkeys(
        [
            *("keepdims", "descending", "stable", "largest", "invert", "include_initial", "density"),
            "assume_unique",
        ],
        "bool",
    ),
    **dict.fromkeys(("k", "n", "bins"), "int"),
    **dict.fromkeys(("num_segments", "minlength"), "SymInt"),
    **dict.fromkeys(("side", "method"), "str"),
    **dict.fromkeys(_MAY_LACK, "Tensor?"),
    "init": "Scalar?",
    "dtype": "ScalarType?",
    "q": "float[]",
}


# How parameters are annotated for users, by what operators take, and those that functions take in other ways.
_SHOWN = {
    "Tensor": "Tensor",
    "Tensor?": "Tensor | None",
    "int?": "int | None",
    "int[1]?": "int | tuple[int, ...] | None",
    "SymInt": "int",
    "SymInt?": "int | None",
    "Scalar?": "complex | Tensor | None",
    "ScalarType?": "torch.dtype | None",
    "float[]": "float | Sequence[float]",
    "float[]?": "Sequence[float] | None",
}
_GIVEN = {"repeats": "Tensor | int", "num_segments": "int | None"}


class OperatorSchema(NamedTuple):
    """How an operator is called."""

    schema: str
    names: list[str]
    kinds: list[str]
    defaults: list[Any]
    positional: list[str]  # of the function in `cupar.arrays`, operators among them


def schema_of(name: str, row: OperatorRow) -> OperatorSchema:
    """Return how an operator is called, from the signature in `cupar.arrays`."""
    texts, names, kinds, defaults, positional = [], [], [], [], []
    types = {**_TYPES, **row.types}
    for each in _parameters(name):
        if each.kind is each.POSITIONAL_ONLY:
            positional.append(each.name)
        if each.name not in types and each.name != "axis":
            continue
        kind = types.get(each.name) or (
            "int[1]?" if row.several else "int?" if each.default is None else "int"
        )
        if each.name == "axis" and each.default == -1 and name != "diff":
            kind = "int?"
        text = f"{kind} {'dim' if each.name == 'axis' else each.name}"
        if each.default is not each.empty:
            shown = f'"{each.default}"' if isinstance(each.default, str) else each.default
            text += f"={shown}"
        texts.append(text)
        names.append(each.name)
        kinds.append(kind)
        defaults.append(each.default)
    return OperatorSchema(", ".join(texts), names, kinds, defaults, positional)


def _parameters(name: str) -> list[inspect.Parameter]:
    found = inspect.signature(getattr(arrays, name)).parameters.values()
    return sorted(found, key=lambda each: each.name in LAST)


def functions_of(name: str) -> tuple[str, ...]:
    """Return the parameters of a function that are functions."""
    known = inspect.signature(getattr(arrays, name)).parameters
    return tuple([each for each in FUNCTIONS if each in known])


def signature(name: str, row: OperatorRow) -> inspect.Signature:
    """Return that of the function in `cupar.arrays`, without what the operator does not take.

    Operators take all arguments by position, too, as PyTorch's own do.
    """
    positional, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    how = schema_of(name, row)
    kinds = {**dict(zip(how.names, how.kinds, strict=True)), **_GIVEN}
    shown = {each: _SHOWN.get(kind, kind) for each, kind in kinds.items()}
    taken = [
        each.replace(
            name="dim" if each.name == "axis" else each.name,
            annotation=shown.get(each.name, each.annotation),
            kind=by_name if each.name in FUNCTIONS[2:] else min(each.kind, positional),
        )
        for each in _parameters(name)
        if each.name in {*_TYPES, *row.types, *FUNCTIONS, "axis"}
    ]
    returns = inspect.signature(getattr(arrays, name)).return_annotation
    return inspect.Signature(
        sorted(taken, key=lambda each: each.kind),
        return_annotation=returns.partition(" | ")[0].replace("Array", "Tensor"),
    )
