"""What one block tells another in 16 bytes is read by one load, whatever of it is used."""

import re

import numpy as np
import pytest
from support.fewer import every

import cupar
from cupar._functions.axes import AxisLayout
from cupar._functions.recurrences import gradient_scan

Pair = cupar.gpu_struct({"x": "f8", "y": "f8"})
Seven = cupar.gpu_struct(dict.fromkeys("abcdefg", "i4"))


def add(a, b):
    return a + b


def last(a, b):
    return b


def first_added(a, b):
    return Pair(a.x + b.x, b.y)


def shared_loads(build, kernel):
    """Return the loads in a kernel of what other blocks write."""
    code = re.split(r"\n\.text\.", build.sass())
    (own,) = (part for part in code if part.startswith(f"{kernel}:"))
    return set(re.findall(r"\bLDG\.[\w.]*STRONG\.GPU\b", own))


@every(2)
@pytest.mark.parametrize(
    ("dtype", "op", "cc"),
    [("c16", add, 80), ("c16", add, 90), (Pair, first_added, 90), (Seven, last, 90)],
)
def test_values_of_chunks(dtype, op, cc, only):
    only("cupar_segmented_scan_chunks")
    scan = cupar.inclusive_segmented_scan(dtype, dtype, "i8", "i8", op, cc=cc)
    assert shared_loads(scan.build, "cupar_segmented_scan_chunks") == {"LDG.E.128.STRONG.GPU"}


def gradients():
    items, written, op = gradient_scan("f4", "f4", "f4", "f4", "f4", AxisLayout(1, 16, 1), False)
    return cupar.inclusive_scan(items, written, op, None, cc=90)


def gradients_of_rows():
    items, written, op = gradient_scan("f4", "f4", "f4", "f4", "f4", AxisLayout(4, 4, 1), False)
    return cupar.inclusive_segmented_scan(items, written, op=op, cc=90)


def recurrence():
    pair = np.dtype([("field_0", "f4"), ("field_1", "f4")], align=True)
    step = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
    return cupar.inclusive_scan(cupar.ZipIterator("f4", "f4"), pair, step, None, cc=90)


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (recurrence, "cupar_scan_staged"),
        (gradients, "cupar_scan_staged"),
        (gradients_of_rows, "cupar_segmented_scan_staged"),  # whose states know whether a row begins
        (lambda: cupar.inclusive_column_scan(Pair, Pair, first_added, cc=90), "cupar_column_scan_split"),
    ],
)
def test_states_of_staged_tiles_and_columns(make, kernel, only):
    only(kernel)
    assert shared_loads(make().build, kernel) == {"LDG.E.128.STRONG.GPU"}


@every(2)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_states_of_runs(dtype, only):
    only("cupar_reduce_by_key")
    reduction = cupar.reduce_by_key("i4", dtype, "i4", dtype, "i8", add, lambda a, b: a == b, cc=90)
    assert shared_loads(reduction.build, "cupar_reduce_by_key") == {"LDG.E.128.STRONG.GPU"}
