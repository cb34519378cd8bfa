"""Iterators over arrays load and store them by vectors, as single arrays are."""

import re

import numpy as np
import pytest

import cupar

F4 = np.dtype("f4")
PAIR = np.dtype([("field_0", "f4"), ("field_1", "f4")], align=True)
INDEXED = np.dtype([("field_0", "f4"), ("field_1", "i8")], align=True)


def indexed():
    return cupar.ZipIterator(F4, cupar.CountingIterator(np.int64(0)))


def larger(a, b):
    return a if a[0] >= b[0] else b


def combine(a, b):
    return a[0] * b[0], b[0] * a[1] + b[1]


def second(pair):
    return pair[1]


BUILDS = {
    "reduce": lambda: cupar.reduce_into(indexed(), INDEXED, larger, None, cc=90),
    "segmented reduce": lambda: cupar.segmented_reduce(
        indexed(), INDEXED, op=larger, h_init=np.zeros(1, INDEXED), cc=90
    ),
    "segmented reduce in order": lambda: cupar.segmented_reduce(
        indexed(), INDEXED, op=larger, h_init=np.zeros(1, INDEXED), commutative=False, cc=90
    ),
    "transform": lambda: cupar.unary_transform(cupar.ZipIterator(F4, F4), F4, second, cc=90),
    "transform to several": lambda: cupar.unary_transform(
        F4, cupar.ZipIterator(F4, F4), lambda x: (x, x + x), cc=90
    ),
}


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", BUILDS)
def test_items_of_several_arrays_are_loaded_together(name):
    """Where they have indices, four vectors of a thread at once: nothing waits for one of them in between."""
    build = BUILDS[name]().build
    sass = build.sass()
    assert re.search(r"\bLDG\.E\.128\b", sass)
    assert not re.search(r"\bLDL\b|\bSTL\b", sass)  # nothing takes the way over memory
    if name == "transform to several":
        assert len(re.findall(r"\bSTG\.E\.128\b", sass)) >= 2
    if "reduce" in name:
        lines = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?) ;", sass, re.MULTILINE)
        vectors = [i for i, line in enumerate(lines) if line.startswith("LDG.E.128")]
        assert any(fourth - first <= 24 for first, fourth in zip(vectors, vectors[3:], strict=False))
        found = build.resources()[f"cupar_{name.removesuffix(' in order').replace(' ', '_')}"]
        assert found.registers <= 64 and found.local == 0  # or few blocks fit at once


@pytest.mark.usefixtures("optimised")
def test_items_that_are_anywhere_are_not():
    there = cupar.PermutationIterator(F4, np.dtype("i4"))
    sass = cupar.reduce_into(there, F4, larger_of_two, None, cc=90).build.sass()
    assert not re.search(r"\bLDG\.E\.128\b", sass)


def larger_of_two(a, b):
    return max(a, b)
