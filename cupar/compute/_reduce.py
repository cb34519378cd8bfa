"""Reductions as ``cuda.compute`` has them: of all items, and of each segment's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..reduce import Determinism
from ..reduce import reduce_into as _reduce_into
from ..segmented import segmented_reduce as _segmented_reduce
from ._made import Made
from ._proxy import initial

__all__ = ["make_reduce_into", "make_segmented_reduce", "reduce_into", "segmented_reduce"]


class _Reduce(Made, factory=_reduce_into):
    """A reduction; see `make_reduce_into`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_items: int,
        op: Any,
        h_init: Any,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        if type(h_init) is not np.ndarray:
            h_init = initial(h_init)
        algorithm = self._for((d_in, d_out, op, h_init), op)
        return algorithm(temp_storage, d_in, d_out, num_items, h_init, stream)  # type: ignore[no-any-return]


def make_reduce_into(*, d_in: Any, d_out: Any, op: Any, h_init: Any = None, **kwargs: Any) -> _Reduce:
    """Return a reduction; see `cupar.reduce_into`.

    Beside those that are named it takes ``compute_capability=`` and ``determinism=``. Where there is nothing
    quicker for `Determinism.NOT_GUARANTEED`, results are the same in every run.
    """
    question = d_in, d_out, op, initial(h_init, may_be_proxy=True)
    wanted = kwargs.get("determinism", Determinism.RUN_TO_RUN)
    try:
        return _Reduce.make(question, op, **kwargs)  # type: ignore[no-any-return]
    except ValueError:
        if wanted != Determinism.NOT_GUARANTEED:
            raise
        kwargs["determinism"] = Determinism.RUN_TO_RUN
        return _Reduce.make(question, op, **kwargs)  # type: ignore[no-any-return]


def reduce_into(
    *,
    d_in: Any,
    d_out: Any,
    num_items: int,
    op: Any,
    h_init: Any = None,
    stream: Any = None,
    **kwargs: Any,
) -> None:
    """Reduce `num_items` items into ``d_out[0]``; see `make_reduce_into` and `cupar.reduce_into`."""
    if type(h_init) is not np.ndarray:
        h_init = initial(h_init)
    if kwargs:
        made = make_reduce_into(d_in=d_in, d_out=d_out, op=op, h_init=h_init, **kwargs)
        algorithm = made._for((d_in, d_out, op, h_init), op)
    else:
        algorithm = _reduce_into(d_in, d_out, op, h_init)
    algorithm.run(d_in, d_out, num_items, h_init, stream)


class _SegmentedReduce(Made, factory=_segmented_reduce):
    """A segmented reduction; see `make_segmented_reduce`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_in: Any,
        d_out: Any,
        num_segments: int,
        start_offsets_in: Any,
        end_offsets_in: Any,
        op: Any,
        h_init: Any,
        max_segment_size: int | None = None,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        if type(h_init) is not np.ndarray:
            h_init = initial(h_init)
        offsets = start_offsets_in, end_offsets_in
        algorithm = self._for((d_in, d_out, *offsets, op, h_init), op)
        return algorithm(  # type: ignore[no-any-return]
            temp_storage,
            d_in,
            d_out,
            num_segments,
            *offsets,
            h_init,
            stream,
            max_segment_size=max_segment_size,
        )


def make_segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    compute_capability: Any = None,
) -> _SegmentedReduce:
    """Return a segmented reduction; see `cupar.segmented_reduce`."""
    h_init = initial(h_init, may_be_proxy=True)
    question = d_in, d_out, start_offsets_in, end_offsets_in, op, h_init
    return _SegmentedReduce.make(question, op, compute_capability=compute_capability)  # type: ignore[no-any-return]


def segmented_reduce(
    *,
    d_in: Any,
    d_out: Any,
    num_segments: int,
    start_offsets_in: Any,
    end_offsets_in: Any,
    op: Any,
    h_init: Any,
    max_segment_size: int | None = None,
    stream: Any = None,
) -> None:
    """Reduce each of `num_segments` segments; see `cupar.segmented_reduce`."""
    if type(h_init) is not np.ndarray:
        h_init = initial(h_init)
    _segmented_reduce(d_in, d_out, start_offsets_in, end_offsets_in, op, h_init).run(
        d_in,
        d_out,
        num_segments,
        start_offsets_in,
        end_offsets_in,
        h_init,
        stream,
        max_segment_size=max_segment_size,
    )
