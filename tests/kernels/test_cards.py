"""Resources of kernels on cards without measurements, read from their machine code."""

import numpy as np
import pytest

import cupar
from cupar import OpKind

REGISTERS, STATIC_SHARED = 65536, 48 << 10  # of a multiprocessor; of a block


def sum_and_greatest(a, b):
    return a[0] + b[0], max(a[1], b[1])


def first_greatest(a, b):
    return a if a[0] > b[0] or (a[0] == b[0] and a[1] < b[1]) else b


def is_odd(a):
    return a % 2 == 1


def unique(cc):
    return cupar.unique_by_key("i4", "f4", "i4", "f4", "i8", OpKind.EQUAL_TO, cc=cc)


def search(cc):
    return cupar.lower_bound("f4", "f4", "i8", cc=cc)


def argmax(cc):
    items = cupar.ZipIterator("f4", cupar.CountingIterator(np.int64(0)))
    return cupar.reduce_into(items, cupar.ZipIterator("f4", "i8"), first_greatest, None, cc=cc)


def scan_of_pairs(cc):
    pairs = cupar.ZipIterator("f4", "f4")
    return cupar.inclusive_scan(pairs, pairs, sum_and_greatest, None, cc=cc)


def select(cc):
    return cupar.select("i4", "i4", "i8", is_odd, cc=cc)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("cc", "make"), [(80, unique), (86, search), (89, argmax), (100, scan_of_pairs), (120, select)]
)
def test_kernels_fit_each_card_without_spills(cc, make):
    found = make(cc).build.resources()
    assert found
    for name, taken in found.items():
        assert taken.local == 0, name
        assert taken.shared <= STATIC_SHARED, name
        assert taken.max_threads is None or taken.registers * taken.max_threads <= REGISTERS, name
