"""Functions described once: a signature, a line and an example; help and the call are made of these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec

from .calls import Work, enter

P = ParamSpec("P")

# What a parameter is, in all functions that have it.
_PARAMETERS = {
    "x": (
        "array, iterator or tuple of arrays",
        "Of NumPy, CuPy, PyTorch, Numba, or with DLPack. Operators take a tuple of its arrays' items.",
    ),
    "a": ("array", "Of numbers."),
    "b": ("array", "Of the shape of `a`."),
    "size": ("int", "How many items the result has."),
    "op": ("callable, OpKind or RawOp", ""),
    "transform": ("callable or OpKind", "Takes an item; what it returns is combined."),
    "predicate": ("callable or OpKind", "Takes an item."),
    "less": (
        "callable or OpKind, optional",
        "Whether one item comes before another; by default NumPy's order.",
    ),
    "equal": ("callable, OpKind or RawOp, optional", "Whether two items are equal; by default ``==``."),
    "value": ("number", "Of the dtype of the items."),
    "indices": (
        "array of integers",
        "Negative ones count from the end; beyond the items, they are an\n"
        "    IndexError on the CPU, and wrap around on a GPU.",
    ),
    "flags": ("array", "Of the shape of `indices` or `x`; what is not 0 holds."),
    "seed": ("int, optional", "The same one gives the same order everywhere."),
    "axis": ("int or None, optional", "None: all items in C's order."),
    "axes": ("int, tuple of int or None, optional", "By default all."),
    "keepdims": ("bool, optional", "Whether reduced axes stay, with length 1."),
    "init": ("number or tuple, optional", "Comes before all items."),
    "exclusive": ("bool, optional", "Whether each item combines those before it alone."),
    "reverse": ("bool, optional", "Whether it goes from the last item to the first."),
    "dtype": ("dtype, optional", "Of the result."),
    "length": (
        "int, optional",
        "How many items the result has. By default their number is read back, which waits for the GPU.\n"
        "    With it nothing is read, and the count comes beside them, in a `Counted`.",
    ),
    "sampled": ("int", "How many, at most as many as there are."),
    "places": ("int", "How many places; a negative number moves them to earlier ones."),
    "filled": ("array", "What is written to."),
    "target": ("array", "What is written to; it is returned."),
    "out": ("array, optional", "Where the result goes, of its shape; it is returned."),
    "num_items": (
        "int, optional",
        "How many items of an iterator are taken; by default as many as its arrays have.",
    ),
    "like": ("array, optional", "Where there are no arrays: one of the library that makes the result."),
    "stream": ("optional", "By default the library's current one."),
}


def _help(text: str, parameters: list[inspect.Parameter], named: dict[str, str]) -> str:
    """Return a docstring in NumPy's style: the first lines, what is known of parameters, an example."""
    head, mark, example = inspect.cleandoc(text).partition(">>> ")
    lines = [head.rstrip(), "", "Parameters", "----------"]
    for each in parameters:
        kind, said = _PARAMETERS[named.get(each.name, each.name)]
        lines += [f"{each.name} : {kind}", *([f"    {said}"] if said else [])]
    lines += ["", "Raises", "------", "TypeError, ValueError", "    If an argument is none of these."]
    if mark:
        lines += ["", "Examples", "--------", ">>> import numpy as np", ">>> from cupar import arrays"]
        lines.append(mark + example)
    return "\n".join(lines)


def described(
    *reads: str, numbers: bool = False, optional: tuple[str, ...] = (), **named: str
) -> Callable[[Callable[Concatenate[Work, P], Any]], Callable[P, Any]]:
    """Decorate what makes a result of operands: the function that users call takes arrays in their place.

    Parameters
    ----------
    *reads : str
        The parameters that are operands; of none, `out` or `like` say which library makes the result.
    numbers, optional
        As for `enter`.
    **named : str
        Parameters that another entry of the table above describes.
    """

    def decorate(make: Callable[Concatenate[Work, P], Any]) -> Callable[P, Any]:
        signature = inspect.signature(make)
        parameters = list(signature.parameters.values())[1:]
        public = signature.replace(parameters=parameters)
        name = make.__name__

        @wraps(make)
        def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            try:
                bound = public.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{name}(): {error}") from None
            bound.apply_defaults()
            given = bound.arguments
            like = given.get("like")
            if not reads and like is None:
                like = given.get("out")
            inputs = {each: given[each] for each in reads}
            if not reads and like is None:
                raise TypeError("like: expected an array of the library that makes the result, got None")

            def made(work: Work, *operands: Any) -> Any:
                given.update(zip(reads, operands, strict=True))
                return make(work, *bound.args, **bound.kwargs)

            return enter(
                made,
                inputs,
                stream=given["stream"],
                like=like,
                num_items=given.get("num_items"),
                numbers=numbers,
                optional=optional,
            )

        call.__signature__ = public  # type: ignore[attr-defined]
        call.__doc__ = _help(make.__doc__ or "", parameters, named)
        return call

    return decorate
