"""The quickest way through calls of the plainest form: by class, dtype and operator to an algorithm object.

Such a call costs a look into a table, the library's `empty`, and the object's `run`. Whatever does not fit
goes the long way, which knows all forms and all errors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from types import BuiltinFunctionType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from .._base import device
from .._base.data import Recent
from .._device import driver
from .._fingerprint import walk
from .._obtain import factory_cache
from ..iterators import ConstantIterator, ZipIterator
from ..operators import OpKind
from ..reduce import reduce_into
from ..transform import BinaryTransform
from . import libraries, operators
from .values import accumulated, initial

# What does a call, or returns None if it is not of this form. It keeps the operator, whose id is in the key.
Entry = Callable[[Any, Any], Any]
Table = Recent[tuple[type, Any, int], Entry]

table: Callable[[], Table] = factory_cache.new_table


def token(op: Any) -> int:
    """Return the key of an operator; values that it reads are checked separately."""
    return id(op.__code__ if type(op) is FunctionType else op)


class _Learned(NamedTuple):
    """What such a call needs, found out once."""

    library: libraries.ArrayLibrary
    algorithm: Any
    unchanged: Any  # whether an operator of the same code reads the same values; None: it reads none
    device: Any  # a tensor's; None: the array is not PyTorch's


def _learned(x: Any, op: Any, made: Callable[[], Any]) -> _Learned | None:
    """Return what calls with such an array and operator need; None if they go the long way."""
    cls = type(x)
    if cls.__module__.partition(".")[0] not in ("numpy", "cupy", "torch") or not hasattr(x, "ndim"):
        return None
    unchanged: Any = None
    library = libraries.of("x", x)
    with walk.fingerprint_scope():  # the fingerprint below is the one that the call has made
        if type(op) is FunctionType:
            try:
                unchanged = walk.fingerprint(op).guard.checker()
            except walk.Unfingerprintable:
                return None
        elif not isinstance(op, (OpKind, np.ufunc, BuiltinFunctionType)):
            return None
        algorithm = device.using(library.on_cpu, made)
    if algorithm.has_state or not algorithm.is_built:
        return None
    return _Learned(library, algorithm, unchanged, x.device if cls.__module__.startswith("torch") else None)


def learn(
    known: Table,
    x: Any,
    op: Any,
    made: Callable[[], Any],
    dtype: np.dtype[Any],
    h_init: Any,
    is_scan: bool,
    name: Any = None,
) -> None:
    """Keep how to do a call again. `made` makes the algorithm; `dtype` is that of the result."""
    learned = _learned(x, op, made)
    if learned is not None:
        key = type(x), x.dtype, token(op if name is None else name)
        known[key] = _entry(learned, dtype, h_init, is_scan, op)


def learn_reduction(known: Table, x: Any, op: Any, result: Any, name: Any = None) -> None:
    """Keep how to reduce all items of such an array."""
    if not libraries.is_array(x) or not libraries.is_array(result):
        return
    library = libraries.of("x", x)
    given, dtype = library.memory(x).dtype, library.memory(result).dtype
    within = accumulated(dtype)
    identity = operators.identity_of(op, within)
    if (within != given and identity is None) or op in _CONVERTING:
        return
    h_init = None if within == given else initial("init", identity, within)
    learn(known, x, op, lambda: reduce_into(given, dtype, op, h_init), dtype, h_init, False, name)


# These convert items to bool: the result for a single item is not the item.
_CONVERTING = (OpKind.LOGICAL_AND, OpKind.LOGICAL_OR, np.logical_and, np.logical_or)


def learn_ranks(
    known: Recent[Any, Any],
    key: Any,
    x: Any,
    made: Callable[[], tuple[Any, ...]],
    rank: Callable[[float, int], tuple[int, float]],
    dtype: np.dtype[Any],
) -> None:
    """Keep how to find a quantile of all items of such an array again; `dtype` is that of the result.

    `made` makes a search for an item, one for it and the next one, and what makes the result of both: of two
    arrays, or of an iterator over both and a number. `rank` returns the index of the item, and that number.
    """
    found: list[Any] = []

    def first() -> Any:
        found.extend(made())
        return found[0]

    learned = _learned(x, OpKind.IDENTITY, first)
    if learned is None or not all(each.is_built for each in found):
        return
    library, stream, size_of = learned.library, learned.library.stream, _sizer(learned)
    item, pair, between = (each._run for each in found)
    own = library.memory(x).dtype
    new, empty, is_same = library.maker(own), library.maker(dtype), own == dtype
    is_of_arrays = isinstance(found[2], BinaryTransform)
    zipped = partial(device.using, True, ZipIterator) if library.on_cpu else ZipIterator

    def call(x: Any, q: float) -> Any:
        size = size_of(x)
        if not size:
            return None
        n, part = rank(q, size)
        out, queue = empty(()), stream()
        try:
            if is_same and not part:
                item(queue, (x, out, None, n, size, 1, None, None, None, size))
                return out
            low, high = new(1), new(1)
            pair(queue, (x, low, high, n, size, 1, None, None, None, size))
            if is_of_arrays:
                between(queue, (low, high if part else low, out, 1))
            else:
                parts = zipped(low, high, _number(dtype, part))
                between(queue, (parts, out, 1))
        except (TypeError, ValueError, RuntimeError):  # the general path raises the error, if there is one
            return None
        return out

    known[key] = call


@lru_cache(256)
def _number(dtype: np.dtype[Any], value: float) -> ConstantIterator:
    return ConstantIterator(dtype.type(value))


def _entry(learned: _Learned, dtype: np.dtype[Any], h_init: Any, is_scan: bool, op: Any) -> Entry:
    library, algorithm, unchanged, _ = learned
    run, stream, size_of = algorithm._run, library.stream, _sizer(learned)
    empty, ndim = library.maker(dtype), 1 if is_scan else None

    def call(x: Any, op: Any) -> Any:
        if (unchanged is not None and not unchanged(op)) or (ndim is not None and x.ndim != ndim):
            return None
        size = size_of(x)
        if not size:
            return None
        out = empty(size) if is_scan else empty(())
        try:
            run(stream(), (x, out, size, h_init))
        except (TypeError, ValueError, RuntimeError):  # the general path raises the error, if there is one
            return None
        return out

    call.kept = op.__code__ if type(op) is FunctionType else op  # type: ignore[attr-defined]
    return call


def _sizer(learned: _Learned) -> Callable[[Any], int]:
    """Return what tells the number of items of an array like the one learned of; 0: not here, or not so."""
    on_cpu, where = learned.library.on_cpu, learned.device
    refused = device.refuses_host if on_cpu else device.is_cpu
    its_device = None if on_cpu else driver.current_device()

    def size_of(x: Any) -> int:
        if refused():
            return 0
        if where is not None:  # a tensor
            if x.requires_grad or x.device != where:
                return 0
            try:
                size: int = x.numel()
            except RuntimeError:  # of a tensor that has no memory of its own, as within torch.vmap
                return 0
        else:
            size = x.size
        if not on_cpu and driver.has_several_devices and driver.current_device() != its_device:
            return 0
        return size

    return size_of


# --- Items of each id -------------------------------------------------------------------------------------


def learn_segments(
    known: Recent[Any, Any], key: Any, x: Any, op: Any, made: Callable[[], Any], h_init: np.ndarray[Any, Any]
) -> None:
    """Keep how to combine the items of each id again; the key has all but the arrays' memory."""
    learned = _learned(x, op, made)
    if learned is None:
        return
    library, algorithm, unchanged, _ = learned
    run, stream, size_of = algorithm._run, library.stream, _sizer(learned)
    empty = library.maker(h_init.dtype)

    def call(x: Any, ids: Any, op: Any, number: int) -> Any:
        if (unchanged is not None and not unchanged(op)) or x.ndim != 1 or x.shape != ids.shape:
            return None
        size = size_of(x)
        if not size:
            return None
        out = empty(number)
        try:
            run(stream(), (x, ids, out, size, number, h_init))
        except (TypeError, ValueError, RuntimeError):  # the general path raises the error, if there is one
            return None
        return out

    call.kept = op.__code__ if type(op) is FunctionType else op  # type: ignore[attr-defined]
    known[key] = call
