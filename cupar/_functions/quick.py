"""The quickest way through calls of the plainest form: by class, dtype and operator to an algorithm object.

Such a call costs a look into a table, the library's `empty`, and the object's `run`. Whatever does not fit
goes the long way, which knows all forms and all errors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from .._base import device
from .._base.data import Recent
from .._device import driver
from .._fingerprint import walk
from .._obtain import factory_cache
from ..operators import OpKind
from ..reduce import reduce_into
from . import libraries, operators
from .values import accumulated, initial

# What does a call, or returns None if it is not of this form. It keeps the operator, whose id is in the key.
Entry = Callable[[Any, Any], Any]
Table = Recent[tuple[type, Any, int], Entry]

_MOST = 512


def table() -> Table:
    """Return a new table, forgotten with those of factories."""
    made: Table = Recent(_MOST)
    factory_cache.tables.append(made)
    return made


def token(op: Any) -> int:
    """Return the key of an operator; values that it reads are checked separately."""
    return id(op.__code__ if type(op) is FunctionType else op)


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
    cls = type(x)
    if cls.__module__.partition(".")[0] not in ("numpy", "cupy", "torch") or not hasattr(x, "ndim"):
        return
    unchanged: Any = None
    library = libraries.of("x", x)
    with walk.FingerprintScope():  # the fingerprint below is the one that the call has made
        if type(op) is FunctionType:
            try:
                unchanged = walk.fingerprint(op).guard.checker()
            except walk.Unfingerprintable:
                return
        elif not isinstance(op, (OpKind, np.ufunc, BuiltinFunctionType)):
            return
        algorithm = device.using(library.on_cpu, made)
    if algorithm.has_state or not algorithm.is_built:
        return
    is_torch = cls.__module__.startswith("torch")
    place = (x.dtype, x.device) if is_torch else None
    key = cls, x.dtype, token(op if name is None else name)
    known[key] = _entry(library, algorithm, dtype, h_init, is_scan, unchanged, place, op)


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


def _entry(
    library: Any,
    algorithm: Any,
    dtype: np.dtype[Any],
    h_init: Any,
    is_scan: bool,
    unchanged: Any,
    place: Any,
    op: Any,
) -> Entry:
    run, stream, on_cpu = algorithm._run, library.stream, library.on_cpu
    empty, ndim = library.maker(dtype), 1 if is_scan else None
    kept = op.__code__ if type(op) is FunctionType else op
    refused = device.refuses_host if on_cpu else device.is_cpu
    its_device = None if on_cpu else driver.current_device()
    where = None if place is None else place[1]

    def call(x: Any, op: Any) -> Any:
        if unchanged is not None and not unchanged(op):
            return None
        if refused() or (ndim is not None and x.ndim != ndim):
            return None
        if where is not None:  # a tensor
            if x.requires_grad or x.device != where:
                return None
            try:
                size = x.numel()
            except RuntimeError:  # of a tensor that has no memory of its own, as within torch.vmap
                return None
        else:
            size = x.size
        if not size or (not on_cpu and driver.has_several_devices and driver.current_device() != its_device):
            return None
        out = empty(size) if is_scan else empty(())
        try:
            run(stream(), (x, out, size, h_init))
        except (TypeError, ValueError, RuntimeError):  # the general path raises the error, if there is one
            return None
        return out

    call.kept = kept  # type: ignore[attr-defined]
    return call
