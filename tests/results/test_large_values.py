"""Scans and reductions of values that registers do not hold several of, against NumPy.

The operator does not commute, and its sums wrap around, so that any grouping gives the same.
"""

import itertools

import numpy as np
import pytest
from support.results import Structs, cp, needs_gpu

import cupar

pytestmark = needs_gpu  # where the kernels are others than for small values

SIZES = [1, 31, 33, 127, 128, 129, 4096, 4129, 20_001, 150_001]
SUMS = 70
LARGE = np.dtype([("first", "i4"), ("last", "i4"), *((f"sum_{i}", "u4") for i in range(SUMS))], align=True)


def _joined():
    sums = ", ".join(f"a[{i}] + b[{i}]" for i in range(2, SUMS + 2))
    made = {}
    exec(f"def joined(a, b):\n    return a[0], b[1], {sums}", made)
    return made["joined"]


joined = _joined()


def values(rng, n):
    host = np.zeros(n, LARGE)
    host["first"] = host["last"] = np.arange(n)
    for i in range(SUMS):
        host[f"sum_{i}"] = rng.integers(0, 1 << 32, n, "u4")
    return host


def scanned(host):
    """Return what the items up to each come to."""
    found = np.zeros_like(host)
    if len(host):
        found["first"], found["last"] = host["first"][0], host["last"]
    for i in range(SUMS):
        found[f"sum_{i}"] = np.cumsum(host[f"sum_{i}"], dtype="u4")
    return found


@pytest.fixture(scope="module")
def host():
    return values(np.random.default_rng(20261127), max(SIZES))


@pytest.fixture
def start():
    found = values(np.random.default_rng(1), 1)
    found["first"] = found["last"] = -1
    return found


def test_inclusive_scans(host):
    scan = cupar.inclusive_scan(LARGE, LARGE, joined)
    wanted = scanned(host)
    for n in SIZES:
        given, out = Structs(host), Structs(np.zeros_like(host))
        scan.run(given, out, n)
        np.testing.assert_array_equal(out.get()[:n], wanted[:n])
        assert not out.get()[n:].view("u1").any()
        scan.run(given, given, n)  # in place
        np.testing.assert_array_equal(given.get()[:n], wanted[:n])


@pytest.mark.parametrize("name", ["exclusive_scan", "inclusive_scan"])
@pytest.mark.parametrize("is_on_device", [False, True])
def test_scans_with_an_initial_value(name, is_on_device, host, start):
    init = Structs(start) if is_on_device else start
    scan = getattr(cupar, name)(LARGE, LARGE, joined, init)
    wanted = scanned(np.concatenate([start, host]))
    behind = name == "inclusive_scan"
    for n in SIZES:
        out = Structs(np.zeros_like(host))
        scan.run(Structs(host), out, n, init)
        np.testing.assert_array_equal(out.get()[:n], wanted[behind : n + behind])


def test_many_tiles_again_and_again(host):
    """Blocks look back on others in whatever order these come."""
    scan = cupar.inclusive_scan(LARGE, LARGE, joined)
    given, out, wanted = Structs(host), Structs(np.zeros_like(host)), scanned(host)
    for _ in range(10):
        out.data[...] = 0xFF
        scan.run(given, out, len(host))
        np.testing.assert_array_equal(out.get(), wanted)


def test_segments(host, start):
    scan = cupar.inclusive_segmented_scan(LARGE, LARGE, "i8", "i8", op=joined)
    reduction = cupar.segmented_reduce(LARGE, LARGE, "i8", "i8", joined, start, commutative=False)
    given = Structs(host)
    for lengths in ([1] * 70, [0, 3, 40, 0, 129, 1000, 17], [5, 100_000, 5, 40_000], [7] * 3000):
        bounds = np.concatenate([[0], np.cumsum(lengths)])
        starts, ends = cp.asarray(bounds[:-1]), cp.asarray(bounds[1:])
        out, sums = Structs(np.zeros_like(host)), Structs(np.zeros(len(lengths), LARGE))
        scan.run(given, out, len(lengths), starts, ends)
        reduction.run(given, sums, len(lengths), starts, ends, start)
        found, reduced = out.get(), sums.get()
        for i, (low, high) in enumerate(itertools.pairwise(bounds)):
            np.testing.assert_array_equal(found[low:high], scanned(host[low:high]))
            assert reduced[i] == scanned(np.concatenate([start, host[low:high]]))[-1]
