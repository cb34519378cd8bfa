"""Arrays in shards by the names of NumPy and the Array API: functions of `cupar.distributed.arrays`."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._functions.calls import Integers, Numbers, Operand, Work
from .._functions.extremes import first_extreme
from .._functions.named import NAMED
from .._functions.rows import check_kind, dtypes_of
from .._functions.values import cast, summed
from ..iterators import CountingIterator, ZipIterator
from ..operators import OpKind
from .comm import on_all
from .described import SHARDS, sharded
from .functions import call, reduced, scanned
from .group import Group
from .reduce import reduce_into

if TYPE_CHECKING:
    from .._base.annotations import DType

_BOOL = np.dtype(bool)


def _summed(name: str, work: Work, group: Group, x: Operand, /, *, dtype: DType = None) -> Numbers:
    named = NAMED[name]
    check_kind(name, x, named.kinds)
    result = named.dtype(x.dtype) if dtype is None else dtypes_of(x, dtype)[0]
    if named.of_bools:
        x = Operand(None, cast(x.items, _BOOL), x.shape)
    return reduced(work, x, group, named.op, None, result, needs_items=named.needs_items)


def _found(name: str, work: Work, group: Group, x: Operand, /) -> Numbers:
    return _summed(name, work, group, x)


def _cumulative(name: str, work: Work, group: Group, x: Operand, /, *, dtype: DType = None) -> Numbers:
    check_kind(name, x, "biufc")
    result = summed(x.dtype) if dtype is None else dtypes_of(x, dtype)[0]
    op = OpKind.PLUS if name == "cumulative_sum" else OpKind.MULTIPLIES
    return scanned(work, x, group, op, None, result)


def _first(name: str, work: Work, group: Group, x: Operand, /) -> Integers:
    check_kind(name, x, "biuf")
    sizes = group.sizes(x.size, name)
    before, every = (builtins.sum(each) for each in (sizes[: group.rank], sizes))
    if not every:
        raise on_all(ValueError("x: no shard has items"))
    pairs = ZipIterator(x.items, CountingIterator(np.int64(before)))
    op, h_init = first_extreme(pairs.dtype, name == "argmin")
    out = work.empty((), pairs.dtype)
    call(work, reduce_into, (pairs, out.items), (op, h_init), (x.size, h_init), group=group)
    return out.parts[1]


def _made(of: str, find: Callable[..., Any], *names: str) -> list[Any]:
    return [sharded(dtype="summed")(SHARDS.named(name, of, find)) for name in names]


_ALL = "of all shards, on every rank"
sum, prod = _made(_ALL, _summed, "sum", "prod")
min, max, any, all, count_nonzero = _made(_ALL, _found, "min", "max", "any", "all", "count_nonzero")
argmin, argmax = _made(_ALL, _first, "argmin", "argmax")
cumulative_sum, cumulative_prod = _made(
    "of all shards, of which each rank gets those of its own",
    _cumulative,
    "cumulative_sum",
    "cumulative_prod",
)
