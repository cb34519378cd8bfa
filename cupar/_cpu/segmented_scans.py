"""Scans of segments on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from .algorithms import Kit, Run, begin, bounds_of, end
from .values import inlined


def segmented_scan(kit: Kit) -> Run:
    open_in, read, _ = kit.argument("d_in")
    open_out, _, write = kit.argument("d_out")
    state, op = kit.operator("op")
    open_bounds, bounds = bounds_of(kit)
    open_start, start_of = _starts_out(kit)
    cast = kit.accumulator.cast
    initial: Any = kit.initial() if kit.spec.option("init") is not None else None
    if kit.spec.algorithm == "exclusive_segmented_scan":

        def exclusive(p: Any) -> None:
            items, out, own, segments, starts = (
                open_in(p),
                open_out(p),
                state(p),
                open_bounds(p),
                open_start(p),
            )
            for segment in range(begin(p), end(p)):
                low, high = bounds(segments, segment)
                shift, total = start_of(starts, segment, low) - low, initial(p)
                for i in range(low, high):
                    item = cast(read(items, i))
                    write(out, i + shift, total)
                    total = op(own, total, item)

        return exclusive

    def first(p: Any, own: Any, item: Any) -> Any:
        return op(own, initial(p), item)

    begun = inlined(first if initial is not None else lambda p, own, item: item)

    def inclusive(p: Any) -> None:
        items, out, own, segments, starts = open_in(p), open_out(p), state(p), open_bounds(p), open_start(p)
        for segment in range(begin(p), end(p)):
            low, high = bounds(segments, segment)
            if low < high:
                shift = start_of(starts, segment, low) - low
                total = begun(p, own, cast(read(items, low)))
                write(out, low + shift, total)
                for i in range(low + 1, high):
                    total = op(own, total, cast(read(items, i)))
                    write(out, i + shift, total)

    return inclusive


def _starts_out(kit: Kit) -> tuple[Any, Any]:
    """Return what tells where a segment is written that begins at some place of the input."""
    if "start_offsets_out" not in kit.arguments:
        return inlined(lambda p: p), inlined(lambda starts, segment, low: low)
    opened, read, _ = kit.argument("start_offsets_out")
    return opened, inlined(lambda starts, segment, low: np.int64(read(starts, segment)))
