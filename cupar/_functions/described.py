"""Functions described once: a signature, a line and an example; help and the call are made of these.

What a parameter means is said once for all functions of `cupar.arrays`, `cupar.distributed.arrays` and
`cupar.dask` that have it; the last two say in their `Surface` what differs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial, update_wrapper
from typing import Any, NamedTuple, TypeVar

from .._base.generated import Unquoted, define
from .calls import enter

R = TypeVar("R")

# What a parameter is, in all functions that have it.
_PARAMETERS = {
    "x": (
        "array, iterator or tuple of arrays",
        "Of NumPy, CuPy, PyTorch, Numba, or with DLPack. Operators take a tuple of its arrays' items.",
    ),
    "a": ("array", "Of numbers."),
    "b": ("array", "Of the shape of `a`."),
    "items": ("array", "Of numbers."),
    "reals": ("array", "Of real numbers."),
    "others": ("array", "Of numbers, as many as there are."),
    "multiset": (
        "array or tuple of arrays",
        "Of one dimension, sorted by `less`. Tuples need a `less`; one that compares only keys\n"
        "    in them takes along what goes with a key.",
    ),
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
    "guarded": (
        "array of integers",
        "Negative ones count from the end; beyond the items, where flags hold, they are an\n"
        "    IndexError on the CPU, and wrap around on a GPU.",
    ),
    "offsets": ("array of integers", "From 0 to the number of items, as on the CPU alone is checked."),
    "where": ("array of bool, optional", "Which items count, of the shape of `x`."),
    "flags": ("array", "Of the shape of `indices` or `x`; what is not 0 holds."),
    "seed": ("int, optional", "The same one gives the same order everywhere."),
    "axis": ("int or None, optional", "None: all items in C's order."),
    "axes": ("int, tuple of int or None, optional", "By default all."),
    "keepdims": ("bool, optional", "Whether reduced axes stay, with length 1."),
    "include_initial": (
        "bool, optional",
        "Whether the result begins with that of no items, and so is longer by one.",
    ),
    "init": (
        "number, array of one element or tuple, optional",
        "Comes before all items. It decides the dtype as for `reduce`.",
    ),
    "exclusive": ("bool, optional", "Whether each item combines those before it alone."),
    "reverse": ("bool, optional", "Whether it goes from the last item to the first."),
    "dtype": ("dtype, optional", "Of the result."),
    "summed": (
        "dtype, optional",
        "Of the result; by default that of `x`, but of 64 bits for bool and small integers.",
    ),
    "length": (
        "int, optional",
        "How many items the result has. By default their number is read back, which waits for the GPU.\n"
        "    With it nothing is read, and the count comes beside them, in a `Counted`; items beyond it are\n"
        "    unspecified, and if the count is larger, items are missing.",
    ),
    "sampled": ("int", "How many, at most as many as there are."),
    "places": ("int", "How many places; a negative number moves them to earlier ones."),
    "k": ("int", "How many."),
    "largest": ("bool, optional", "False: the least."),
    "q": ("number or sequence of numbers", "From 0 to 1, on the host."),
    "fraction": ("number, optional", "From 0 to 1, on the host; by default the median."),
    "method": (
        '{"linear", "lower", "higher", "nearest", "midpoint"}, optional',
        "What is between two items.",
    ),
    "bins": (
        "int or sequence of numbers, optional",
        "How many of equal width, or the edges of all, on the host.",
    ),
    "range": (
        "pair of numbers, optional",
        "The first and the last edge, if `bins` is a number. Items that are outside, and NaNs, are not\n"
        "    counted.",
    ),
    "side": ('{"left", "right"}, optional', "Whether before or behind equal items."),
    "filled": ("array", "What is written to."),
    "target": ("array", "What is written to; it is returned."),
    "sorted": ("array or tuple of arrays", "Of one dimension, sorted."),
    "keys": ("array or tuple of arrays", "As many items as `x` has."),
    "x1": ("array or number", ""),
    "x2": ("array or number", ""),
    "invert": ("bool, optional", "Whether the result says the opposite."),
    "assume_unique": ("bool, optional", "Whether no array has an item twice, which is not checked."),
    "descending": ("bool, optional", "Whether the greatest come first."),
    "stable": ("bool, optional", "Whether equal items stay in their order."),
    "n": ("int, optional", "How many times."),
    "prepend": ("array or number, optional", "Joined to the axis first; a number, in front of each row."),
    "append": ("array or number, optional", "Joined to the axis first; a number, behind each row."),
    "out": ("array, optional", "Where the result goes, of its shape; it is returned."),
    "num_items": (
        "int, optional",
        "How many items of an iterator are taken; by default as many as its arrays have.",
    ),
    "like": ("array, optional", "Where there are no arrays: one of the library that makes the result."),
    "stream": ("optional", "By default the library's current one."),
}


# What functions of one array return, by the names that NumPy and the Array API have for them; and an example:
# how its result is shown, of which items, and as what.
_NAMED = {
    "sum": ("the sum of the items", "", "int({})", "[3, -7, 5]", "1"),
    "prod": ("the product of the items", "", "int({})", "[3, -7, 5]", "-105"),
    "min": ("the least item", "NaN if there is one.", "int({})", "[3, -7, 5]", "-7"),
    "max": ("the greatest item", "NaN if there is one.", "int({})", "[3, -7, 5]", "5"),
    "any": ("whether an item is not 0", "NaN is not 0.", "bool({})", "[0, 5]", "True"),
    "all": ("whether no item is 0", "", "bool({})", "[0, 5]", "False"),
    "count_nonzero": ("how many items are not 0", "", "int({})", "[0, 5, 7]", "2"),
    "argmin": ("the index of the first least item", "A NaN is less.", "int({})", "[3, 1, 1]", "1"),
    "argmax": ("the index of the first greatest item", "A NaN is greater.", "int({})", "[3, 5, 5]", "1"),
    "cumulative_sum": ("the sums of all items up to each", "", "{}", "[1, 2, 3]", "array([1, 3, 6])"),
    "cumulative_prod": ("the products of all items up to each", "", "{}", "[1, 2, 3]", "array([1, 2, 6])"),
}
_OF_SOME = ("min", "max", "argmin", "argmax")  # which no items do not have


class Surface(NamedTuple):
    """A module of functions: how its examples begin, and what its parameters and errors are."""

    imports: str
    parameters: Mapping[str, tuple[str, str]] = {}
    raises: str = "TypeError, ValueError\n    If an argument is not one of these."
    example: str = ""  # a call of one of the named functions above
    empty: str = ""  # what no items are to those that need some

    def named(self, name: str, of: str, find: Callable[..., R]) -> partial[R]:
        """Return one of the named functions above: `find` of its name, with help that ends with `of`."""
        what, more, shown, items, result = _NAMED[name]
        notes = "".join(f"\n\n{each}" for each in (more, self.empty * (name in _OF_SOME)) if each)
        example = shown.format(self.example.format(name=name, items=f"np.array({items})"))
        made, doc = partial(find, name), f"Return {what}, {of}.{notes}\n\n>>> {example}\n{result}"
        vars(made).update(__name__=name, __qualname__=name, __module__=find.__module__, __doc__=doc)
        return made


ARRAYS = Surface("import numpy as np\n>>> from cupar import arrays")


_SECTION = re.compile(r"^(\w+)\n-{4,}\n", re.M)
_ENTRY = re.compile(r"(?m)^(\w+)\b.*\n(?: +.*\n?|\n)*")


def help_of(
    text: str | None,
    parameters: Iterable[inspect.Parameter],
    named: Mapping[str, str],
    surface: Surface = ARRAYS,
) -> str:
    """Return a docstring in NumPy's style: a text's own sections and parameters, and the other parameters."""
    known = {**_PARAMETERS, **surface.parameters}
    head, mark, example = inspect.cleandoc(text or "").partition(">>> ")
    head, *sections = _SECTION.split(head)
    said = dict(zip(sections[::2], sections[1::2], strict=True))
    own = {each[1]: each[0].rstrip() for each in _ENTRY.finditer(said.pop("Parameters", ""))}
    lines = []
    for each in parameters:
        if each.name in own:
            lines.append(own[each.name])
        else:
            kind, meaning = known[named.get(each.name, each.name)]
            lines += [f"{each.name} : {kind}", *([f"    {meaning}"] if meaning else [])]
    if mark:
        said["Examples"] = f">>> {surface.imports}\n{mark}{example}"
    returns = said.pop("Returns", "")
    parts = {"Parameters": "\n".join(lines), "Returns": returns, "Raises": surface.raises, **said}
    titled = [f"{title}\n{'-' * len(title)}\n{each.strip()}" for title, each in parts.items() if each]
    return "\n\n".join([head.rstrip(), *titled])


# How a function gets its operands. Its parameters are checked by Python, as those of any.
_TEMPLATE = """
def of_{name}({given}):
    return make(work, {arguments})

def {name}({parameters}):
    return enter(of_{name}, ({operands}), ({others}), stream, {like}, {num_items}, numbers, optional, make)
"""
_OPERAND = re.compile(r"\b(?:Operand|Integers|Flags|Numbers)\b")  # all of them operands
# Parameters of the call alone.
_OF_CALL = {"num_items": "int | None", "like": "Array | None", "stream": "Stream", "group": "Any"}


def described(*of_call: str, numbers: bool = False, **named: str) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a function of operands: the function that users call takes arrays in their place.

    Operands are the parameters that are annotated so. The call has a `stream`, too. Without operands, `out`
    or `like` say which library makes the result.

    Parameters
    ----------
    *of_call : str
        ``num_items`` or ``like``, if the call has it.
    numbers, optional
        As for `enter`.
    **named : str
        Parameters that another entry of the table above describes.
    """

    def decorate(make: Callable[..., Any]) -> Any:
        kinds = {each.name: str(each.annotation) for each in inspect.signature(make).parameters.values()}
        operands = [name for name, kind in kinds.items() if _OPERAND.search(kind)]
        others = [name for name in kinds if name not in ("work", *operands)]
        like = "like" if "like" in of_call else "None"
        return written(
            make,
            _TEMPLATE,
            {
                "enter": enter,
                "numbers": numbers,
                "optional": tuple([each for each in operands if kinds[each].endswith("| None")]),
            },
            named,
            of_call=(*of_call, "stream"),
            given=", ".join(["work", *operands, *others]),
            others="".join(f"{each}, " for each in others),
            operands="".join(f"{each}, " for each in operands),
            like=like if operands or "out" not in kinds else f"out if {like} is None else {like}",
            num_items="num_items" if "num_items" in of_call else "None",
        )

    return decorate


def written(
    make: Callable[..., Any],
    template: str,
    names: dict[str, Any],
    named: Mapping[str, str],
    surface: Surface = ARRAYS,
    own: int = 1,
    of_call: Collection[str] = (),
    **texts: str,
) -> Any:
    """Return the function that users call for one that takes a `Work` first: a filled template, and help.

    The template has ``{name}``, ``{parameters}`` and ``{arguments}``, beside `texts`, and calls ``make``. The
    first `own` parameters are not the user's; those `of_call` are not the function's.
    """
    signature = inspect.signature(make)
    taken = [
        each.replace(annotation=_OPERAND.sub("Array", each.annotation))
        for each in [*signature.parameters.values()][own:]
    ]
    by_name = inspect.Parameter.KEYWORD_ONLY
    parameters = taken + [
        inspect.Parameter(each, by_name, default=None, annotation=_OF_CALL[each]) for each in of_call
    ]
    result = _OPERAND.sub("Array", signature.return_annotation)
    defaults = {f"of_{each.name}": each.default for each in taken if each.default is not each.empty}
    plain = [
        each.replace(annotation=each.empty, default=Unquoted(f"of_{each.name}"))
        if f"of_{each.name}" in defaults
        else each.replace(annotation=each.empty)
        for each in parameters
    ]
    passed = [f"{each.name}={each.name}" if each.kind is by_name else each.name for each in taken]
    call = define(
        f"arrays-{make.__name__}",
        make.__name__,
        template,
        {"make": make, **names, **defaults},
        name=make.__name__,
        parameters=str(inspect.Signature(plain))[1:-1],
        arguments=", ".join(passed),
        **texts,
    )
    update_wrapper(call, make)
    call.__wrapped__ = getattr(make, "func", make)  # a function of the module, where doctest looks
    call.__signature__ = signature.replace(parameters=parameters, return_annotation=result)
    call.__annotations__ = {**{each.name: each.annotation for each in parameters}, "return": result}
    call.__doc__ = help_of(make.__doc__, parameters, named, surface)
    return call
