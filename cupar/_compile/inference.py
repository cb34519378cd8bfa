"""What numba tells of an operator without a build: what it returns, and whether it can be fingerprinted."""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

import numpy as np
from cachetools import LRUCache

from .. import _cache, structs
from .._base.bounded import Bounded
from .._fingerprint import extensions
from .._fingerprint.refusals import Unfingerprintable
from .._ir import cpp, kinds
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from . import entries
from .key import digest, result_parts

_CC = 75  # types, and what others have registered with numba, are the same on all GPUs

_results: _cache.Memory[np.dtype[Any]] = _cache.Memory(maxsize=1024)
# Operators and kernels that use no extension, and the epoch in which that was so.
_unextended: Bounded[int] = Bounded(partial(LRUCache, 1024))


def result_dtype(op: Operator) -> np.dtype[Any]:
    """Return the dtype of what an operator returns, whatever its output is; the cache keeps what numba found.

    Raises
    ------
    TypeError
        If it cannot be compiled for its inputs, or returns something that arrays cannot hold.
    """
    if op.kind is not None:
        return np.dtype(bool) if kinds.gives_bool(op.kind.name) else op.output
    if op.source is None:
        raise TypeError(f"value_type: the result of {op.name} is not known: give its dtype")
    parts = result_parts(op)

    def make() -> _cache.Entry:
        from . import python_to_ltoir

        described = structs.descr(python_to_ltoir.result_dtype(op, _CC))
        return _cache.Entry({"entry": parts["entry"], "parts": parts}, repr(described).encode())

    def use(entry: _cache.Entry) -> np.dtype[Any]:
        try:
            described = ast.literal_eval(entry.payload.decode())
            return structs.normal(op.parameter, structs.from_descr(described))
        except MemoryError as error:  # as Python's parser says of nesting that is too deep
            raise ValueError("it is nested too deeply") from error

    return _results.get_or_make(op.without_user(), lambda: entries.fetch(digest(parts), make, use)[1])


def forget() -> None:
    """Forget what operators return, as far as this process has it in memory."""
    _results.clear()


def refuse_extended_kernel(spec: Specialisation) -> None:
    """Do what `refuse_extended` does for a kernel of the user's."""
    if not extensions.foreign().may_be_used:
        return
    from . import python_kernel

    now, kept = extensions.epoch(), spec.without_user()
    if _unextended.get(kept) == now:
        return
    try:
        python_kernel.compile_kernel(spec)
    except Unfingerprintable:
        raise
    except Exception:
        return
    _unextended[kept] = now


def refuse_extended(op: Operator) -> None:
    """Raise Unfingerprintable if an operator's code uses what others than numba have registered with it.

    To find out, it is compiled; what else is wrong with it, its build will tell.
    """
    if op.source is None or not extensions.foreign().may_be_used:
        return
    from . import python_to_ltoir

    now, kept = extensions.epoch(), op.without_user()
    if _unextended.get(kept) == now:
        return
    try:
        python_to_ltoir.compile_operator(op, cpp.symbol("op"), _CC)
    except Unfingerprintable:
        raise
    except Exception:
        return
    _unextended[kept] = now
