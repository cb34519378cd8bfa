"""What algorithms of two sorted ranges have in common: problem, help, and what goes in and out."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from .._base.errors import ArgumentTypeError
from .._call.algorithm import Algorithm
from .._ir.resolve import resolve
from .._kernels.merge import MergeProblem
from ..operators import OpKind
from .arguments import argument, converting, same_dtype

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._ir.nodes import Argument
    from .._ir.operator import Operator
    from .._ir.specialisation import Specialisation
    from ..operators import Op

P = ParamSpec("P")
A = TypeVar("A", bound=Algorithm)

RANGES = {
    **{"d_in_keys1": "num_items1", "d_in_items1": "num_items1"},
    **{"d_in_keys2": "num_items2", "d_in_items2": "num_items2"},
}
_IN_CALLS = (*RANGES, "d_out_keys", "d_out_items")


def of_ranges(spec: Specialisation) -> Callable[..., MergeProblem]:
    """Return what makes the problem of two ranges."""
    return lambda num_items1, num_items2: MergeProblem(num_items1, num_items2, num_items1 + num_items2)


_HELP = """{head}

Parameters
----------
d_in_keys1, d_in_keys2 : device arrays, iterators or dtypes, n and m items
    The keys of both ranges, each sorted by `op`: of one dtype. Only that
    matters here.
{items}
d_out_keys, d_out_items : device arrays, iterators or dtypes
    Where keys and their items go, {capacity}:
    of the same dtypes or ones that they are converted to. They may not
    overlap the inputs. `d_out_items` is None if the keys have no items.
{count}op : callable, OpKind, RawOp or None
    Whether its first key goes before its second: a strict weak order, the
    one that both ranges are sorted by. None: ``<``.
cc, wait, link, numbers : optional
    What to build for (90, "cpu"), whether to wait for that, code that
    operators call, and whether numbers that they read stay in it: see
    `Algorithm`, which also lists exceptions.

Returns
-------
{returns}

Examples
--------
>>> import numpy as np, cupar
{example}"""
_ITEMS = """d_in_items1, d_in_items2 : device arrays, iterators, dtypes or None
    What goes with them, n and m items, if anything: of one dtype."""
_ITEMS_OF_FIRST = """d_in_items1 : device array, iterator, dtype or None, n items
    What goes with the keys of the first range, if anything.
d_in_items2 : None
    Nothing comes from the second range."""
_COUNT = """d_out_num_selected : device array, iterator or dtype, 1 item
    Where goes how many they are: an integer of 4 or 8 bytes.
"""


def documented(capacity: str) -> Callable[[Callable[P, A]], Callable[P, A]]:
    """Decorate a factory of two ranges, whose docstring has what is its own: the first lines, and examples.

    Parameters
    ----------
    capacity : str
        How many items the outputs have.
    """

    def decorate(factory: Callable[P, A]) -> Callable[P, A]:
        if factory.__doc__ is None:  # by `python -OO`
            return factory
        types = factory.__annotations__
        head, _, example = cleandoc(factory.__doc__).partition(">>> ")
        factory.__doc__ = _HELP.format(
            head=head.rstrip(),
            items=_ITEMS_OF_FIRST if types["d_in_items2"] == "None" else _ITEMS,
            capacity=capacity,
            count=_COUNT if "d_out_num_selected" in types else "",
            returns=types["return"],
            example=f">>> {example}",
        )
        return factory

    return decorate


def described(
    keys: tuple[Any, Any, Any], items: tuple[Any, Any, Any], op: Op | None, takes_second: bool = True
) -> tuple[tuple[Argument, ...], dict[str, Operator]]:
    """Return what goes in and out, in the order of calls, and the comparison.

    Parameters
    ----------
    keys, items : tuple
        Those of both ranges, and of the output.
    takes_second : bool
        Whether items of the second range may go out.
    """
    given = dict(zip(("d_in_items1", "d_in_items2", "d_out_items"), items, strict=True))
    if not takes_second:
        del given["d_in_items2"]
    found = _alike(dict(zip(("d_in_keys1", "d_in_keys2", "d_out_keys"), keys, strict=True)))
    dtype = found["d_in_keys1"].value
    if any(each is not None for each in given.values()):
        found |= _alike(given)
    compare = resolve(OpKind.LESS if op is None else op, (dtype, dtype), np.dtype(bool), recognise=True)
    return tuple(found[name] for name in _IN_CALLS if name in found), {"op": compare}


def _alike(given: dict[str, Any]) -> dict[str, Argument]:
    """Describe inputs of one dtype and what they are written to; raise TypeError if some are missing."""
    there = next((name for name, each in given.items() if each is not None), None)
    for name, each in given.items():
        if each is None:
            since = f", since there is {there}" if there else ""
            raise ArgumentTypeError(name, f"expected a device array or a dtype{since}, got None")
    first, *others, last = given
    one = argument(first, given[first])
    same = {name: same_dtype(name, given[name], one) for name in others}
    return {first: one, **same, last: converting(last, given[last], one)}
