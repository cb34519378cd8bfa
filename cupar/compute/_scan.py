"""Scans as ``cuda.compute`` has them: what `cupar` calls `h_init` is `init_value`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..scan import exclusive_scan as _exclusive_scan
from ..scan import inclusive_scan as _inclusive_scan
from ._made import Made, rename
from ._proxy import initial

__all__ = ["exclusive_scan", "inclusive_scan", "make_exclusive_scan", "make_inclusive_scan"]

_NAMES = {"h_init": "init_value"}


class _Scan(Made):
    """A scan; see `make_exclusive_scan` and `make_inclusive_scan`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        op: Any,
        init_value: Any,
        num_items: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        if type(init_value) is not np.ndarray:
            init_value = initial(init_value)
        algorithm = self._for((d_in, d_out, op, init_value), op)
        try:
            return algorithm(temp_storage, d_in, d_out, num_items, init_value, stream)  # type: ignore[no-any-return]
        except (TypeError, ValueError) as error:
            rename(error, _NAMES)
            raise


class _ExclusiveScan(_Scan, factory=_exclusive_scan, names=_NAMES):
    pass


class _InclusiveScan(_Scan, factory=_inclusive_scan, names=_NAMES):
    pass


def make_exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, compute_capability: Any = None
) -> _Scan:
    """Return an exclusive scan; see `cupar.exclusive_scan`."""
    question = d_in, d_out, op, initial(init_value, may_be_proxy=True)
    return _ExclusiveScan.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def exclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any, num_items: int, stream: Any = None
) -> None:
    """Scan `num_items` items, item i of the result from those before it; see `cupar.exclusive_scan`."""
    if type(init_value) is not np.ndarray:
        init_value = initial(init_value)
    try:
        algorithm = _exclusive_scan(d_in, d_out, op, init_value)
        algorithm.run(d_in, d_out, num_items, init_value, stream)
    except (TypeError, ValueError) as error:
        rename(error, _NAMES)
        raise


def make_inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, compute_capability: Any = None
) -> _Scan:
    """Return an inclusive scan; see `cupar.inclusive_scan`."""
    question = d_in, d_out, op, initial(init_value, may_be_proxy=True)
    return _InclusiveScan.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def inclusive_scan(
    *, d_in: Any, d_out: Any, op: Any, init_value: Any = None, num_items: int, stream: Any = None
) -> None:
    """Scan `num_items` items, item i of the result from it and those before; see `cupar.inclusive_scan`."""
    if type(init_value) is not np.ndarray:
        init_value = initial(init_value)
    try:
        algorithm = _inclusive_scan(d_in, d_out, op, init_value)
        algorithm.run(d_in, d_out, num_items, init_value, stream)
    except (TypeError, ValueError) as error:
        rename(error, _NAMES)
        raise
