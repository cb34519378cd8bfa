"""Type inference by numba, without a build: results of operators, and foreign registrations they use."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from cachetools import LRUCache

from .. import structs
from .._base.bounded import Bounded, of_builds
from .._base.device import has_gpus, is_cpu
from .._base.errors import ArgumentTypeError
from .._fingerprint import extensions
from .._fingerprint.refusals import Unfingerprintable
from .._ir import cpp, kinds
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .._store.entry import Entry
from .._store.memory import SingleFlightCache
from . import entries
from .key import result_parts

_CC = 75  # types and registrations with numba are the same on all GPUs

_results: SingleFlightCache[np.dtype[Any]] = of_builds(SingleFlightCache(maxsize=1024))
# What uses nothing of others', and what of theirs was registered when that was so.
_unextended: Bounded[object] = Bounded(functools.partial(LRUCache, 1024))


def result_dtype(op: Operator) -> np.dtype[Any]:
    """Return the dtype of an operator's result before conversion to its output; the cache keeps it.

    Raises
    ------
    TypeError
        If it cannot be compiled for its inputs, or returns something that arrays cannot hold.
    """
    if op.kind is not None:
        return np.dtype(bool) if kinds.gives_bool(op.kind) else op.output
    if op.source is None:
        raise ArgumentTypeError("value_type", f"the result of {op.name} is not known: give its dtype")
    on_cpu = _on_cpu(op)
    parts = result_parts(op, on_cpu)

    def make() -> Entry:
        described = structs.descr(_inferred_on_cpu(op) if on_cpu else _inferred(op))
        return Entry({"entry": parts["entry"], "parts": parts}, repr(described).encode())

    def use(entry: Entry) -> np.dtype[Any]:
        try:
            described = ast.literal_eval(entry.payload.decode())
            return structs.normal(op.parameter, structs.from_descr(described))
        except MemoryError as error:  # as Python's parser says of nesting that is too deep
            raise ValueError("it is nested too deeply") from error

    key = op.without_user(), on_cpu
    return _results.get_or_make(key, lambda: entries.fetch(parts, make, use)[1])


def _on_cpu(op: Operator) -> bool:
    """Whether numba infers types for the CPU; floats of 16 bits are among those of numba.cuda alone."""
    return not has_gpus() or (is_cpu() and not any(map(structs.has_half, op.inputs)))


def _inferred(op: Operator) -> np.dtype[Any]:
    from . import python_to_ltoir

    return python_to_ltoir.result_dtype(op, _CC)


def _inferred_on_cpu(op: Operator) -> np.dtype[Any]:
    from .._jobs.threads import collecting, off_main_thread

    def infer() -> np.dtype[Any]:
        from .. import _result_on_cpu  # of the package itself, since the CPU's types are in a room above

        with collecting():
            found: np.dtype[Any] = _result_on_cpu(op)
        return found

    return off_main_thread(infer)


def refuse_extended(spec: Specialisation, build: Callable[[Specialisation], object]) -> None:
    """Raise Unfingerprintable if a build would use registrations that are not numba's own.

    To find out, what numba compiles of it is compiled; on the CPU that is all, by `build`. What else is wrong
    with it, its build will tell.
    """
    found = extensions.foreign(spec.is_cpu)
    if not found.may_be_used:
        return
    if spec.is_cpu:
        _try(spec.without_user(), found, lambda: build(spec))
    elif spec.is_kernel:
        from . import python_kernel

        _try(spec.without_user(), found, lambda: python_kernel.compile_kernel(spec))
    else:
        recognised = (op.plain for _, op in spec.operators if op.plain is not None)
        for op in (*spec.functions.values(), *recognised):
            if op.source is not None:
                _try(op.without_user(), found, functools.partial(_compile, op))


def _compile(op: Operator) -> None:
    from . import python_to_ltoir

    python_to_ltoir.compile_operator(op, cpp.symbol("op"), _CC)


def _try(kept: Specialisation | Operator, found: object, compiled: Callable[[], object]) -> None:
    if _unextended.get(kept) == found:
        return
    try:
        compiled()
    except Unfingerprintable:
        raise
    except Exception:
        return
    _unextended[kept] = found
