"""Scans of tensors along a dimension: the state that similar calls share, to which each adds addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._functions.axes import AxisLayout
from ..columns import inclusive_column_scan
from ..scan import inclusive_scan
from ..segmented_scan import inclusive_segmented_scan

# Takes a stream, the input, the output, and the layout.
Scan = Callable[[Any, Any, Any, AxisLayout], None]


def layout_along(shape: Any, dim: int) -> AxisLayout:
    """Return the layout of a dimension of a tensor in C's order."""
    outer = inner = 1
    for extent in shape[:dim]:
        outer *= extent
    for extent in shape[dim + 1 :]:
        inner *= extent
    return AxisLayout(outer, shape[dim], inner)


def kind_of(layout: AxisLayout) -> int:
    """Return which algorithm scans such rows, as a number."""
    return 2 if layout.inner > 1 else 0 if layout.outer == 1 else 1


def scan_of(kind: int, source: Any, target: Any, op: Any) -> Scan:
    """Return what scans rows of a kind, which is built or fetched for an input, an output and an operator."""
    if kind == 2:
        run_columns = inclusive_column_scan(source, target, op, None)._run
        return lambda stream, x, out, layout: run_columns(stream, (x, out, *layout, None))
    if kind == 0:
        run_whole = inclusive_scan(source, target, op, None)._run
        return lambda stream, x, out, layout: run_whole(stream, (x, out, layout.length, None))
    run_rows = inclusive_segmented_scan(source, target, op=op)._run
    return lambda stream, x, out, layout: run_rows(
        stream, (x, out, layout.outer, None, None, None, None, None, layout.length)
    )
