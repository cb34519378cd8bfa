"""Calls algorithms from Python and from compiled code, and compares what the driver was told."""

import inspect
import sys
from itertools import zip_longest

from support.host import Array, Driver

driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import compilers, templates  # noqa: E402

import cupar  # noqa: E402

compilers.as_in_the_run()
templates.empty_others(pytest.MonkeyPatch(), ())  # whose names and parameters the driver knows

A = [0x700000000000 + k * 0x1000000000 for k in range(16)]


def view(place, size, dtype):
    return cupar.view(Array(A[place], size, dtype))


STORAGE = view(15, 2**36, "u1")[3:]  # which CUB and cupar align


def compare(name, algorithm, *calls, streams=(0, 77), names="", in_phases=False):
    """Compare calls, each of which is a tuple of arguments; the last of them has a name, if one is given.

    The two phases, which are compiled twice, take from a class what `run` takes: they are compared for a
    count, a problem of several numbers, rows, and a named argument. How much storage each plan wants,
    `test_plans` compares.
    """
    algorithm.ready(tier="fast")  # whose kernels have parameters of their own
    driver.knows(algorithm)
    each = [f"a{k}" for k in range(len(calls[0]))]
    # Without names where that can be, as numba compiles a method twice that is called with some.
    is_next = [*inspect.signature(algorithm.run).parameters].index("stream") == len(each)
    given = [*each[:-1], f"{names}={each[-1]}"] if names else each
    given = [*given, "stream" if is_next and not names else "stream=stream"]
    arguments, given = ", ".join(each), ", ".join(given)
    names = {"algorithm": algorithm}
    exec(f"def call({arguments}, stream):\n    algorithm.run({given})", names)
    compiled = numba.njit(nogil=True, no_cfunc_wrapper=True)(names["call"])
    if in_phases:
        text = f"def phases({arguments}, storage, stream):\n"
        text += f"    return algorithm(None, {given}), algorithm(storage, {given})"
        exec(text, names)
        phases = numba.njit(nogil=True, no_cfunc_wrapper=True)(names["phases"])
    launches = 0
    for arguments in calls:
        for stream in streams:
            expected = call(names["call"], (*arguments, stream))
            before = list(driver.allocations[:2])
            found = call(compiled, (*arguments, stream))
            taken, freed = (now - then for now, then in zip(driver.allocations, before, strict=False))
            if expected != found or taken != freed:
                pairs = [pair for pair in zip_longest(expected, found) if pair[0] != pair[1]]
                print("differs:", name, arguments, stream, *pairs[:2], taken, freed, sep="\n  ")
            launches += len(found)
            if in_phases:
                own = (*arguments, STORAGE, stream)
                expected, found = call(names["phases"], own), call(phases, own)
                if expected != found:
                    print("differs:", name, arguments, stream, expected[:3], found[:3], sep="\n  ")
    print(name, launches)


def call(function, arguments):
    """Return what was launched, or what was raised."""
    try:
        returned = function(*arguments)
    except (TypeError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else type(error)  # compiled code has Python's own
        return kind.__name__, str(error).partition(":")[0]
    launches = without_padding(driver.taken())
    return launches if returned is None else [returned, *launches]


def fortran(place, shape):
    """Return a view of items in Fortran's order."""
    return cupar.view(Array(A[place], shape, "f4", strides=(4, 4 * shape[0])))


def without_padding(launches):
    """Return launches without objects that have no members: their byte is whatever it is."""
    return [
        each._replace(parameters=tuple(data for data in each.parameters if len(data) > 1))
        for each in launches
    ]


SIZES = [0, 1, 1000, 50_000, 10**6, 2**31 + 5]


def reductions():
    d_in, d_out, init = view(0, 2**32, "f4"), view(1, 1, "f4"), np.full(1, 7, "f4")
    add = cupar.reduce_into(d_in, d_out, lambda a, b: a + b, init)
    compare("reduce", add, *[(d_in, d_out, n, init) for n in SIZES], in_phases=True)
    converted = cupar.reduce_into("i4", "c16", cupar.OpKind.PLUS, np.zeros(1, "f8"))
    one = np.ones(1, "f8")
    compare("converted", converted, *[(view(0, 2**32, "i4"), view(1, 1, "c16"), n, one) for n in SIZES])


def scans():
    d_in, d_out, init = view(0, 2**32, "f4"), view(1, 2**32, "f4"), np.full(1, 7, "f4")
    scan = cupar.exclusive_scan(d_in, d_out, lambda a, b: a + b, init)
    compare("exclusive_scan", scan, *[(d_in, d_out, n, init) for n in [*SIZES, 10**7, 10**8]])
    scan = cupar.inclusive_scan("i2", "i2", cupar.OpKind.MAXIMUM, None)
    arrays = view(0, 2**32, "i2"), view(1, 2**32, "i2")
    compare("inclusive_scan", scan, *[(*arrays, n, None) for n in SIZES])
    first = view(2, 1, "f4")
    scan = cupar.inclusive_scan("f4", "f4", cupar.OpKind.PLUS, first)
    compare("scan with a device's init", scan, *[(d_in, d_out, n, first) for n in SIZES])


def transforms():
    d_in, other, d_out = (view(k, 2**32, "f4") for k in range(3))
    double = cupar.unary_transform("f4", "f4", lambda a: a + a)
    compare("unary_transform", double, *[(d_in, d_out, n) for n in SIZES])
    add = cupar.binary_transform("f4", "f4", "f4", cupar.OpKind.PLUS)
    compare("binary_transform", add, *[(d_in, other, d_out, n) for n in SIZES])
    f, c, n = fortran(0, (40, 50)), view(1, (40, 50), "f4"), 2000
    compare("of one order", double, (f, f, n), (f, f, n - 1), (f, fortran(1, (50, 40)), n))
    compare("of two orders", double, (f, c, n), (fortran(0, (1, 2000)), c, n))


def choices():
    keys, items, out_keys, out_items = (view(k, 2**31, "i4") for k in range(4))
    count = view(4, 2, "i8")
    sizes = [0, 1, 5000, 20_000, 10**6, 2**31]
    chosen = cupar.select("i4", "i4", "i8", lambda a: a > 3)
    compare("select", chosen, *[(keys, out_keys, count, n) for n in sizes])
    parts = cupar.three_way_partition("i4", "i4", "i4", "i4", "i8", lambda a: a > 3, lambda a: a < 1)
    compare("partition", parts, *[(keys, out_keys, out_items, items, count, n) for n in sizes])
    unique = cupar.unique_by_key("i4", "i4", "i4", "i4", "i8", cupar.OpKind.EQUAL_TO)
    compare("unique_by_key", unique, *[(keys, items, out_keys, out_items, count, n) for n in sizes])


def finds():
    items, out = view(0, 2**32, "f4"), view(1, 1, "i8")
    find = cupar.find_if("f4", "i8", lambda a: a > 3)
    compare("find_if", find, *[(items, out, n) for n in SIZES])


def sorts():
    keys, items, out_keys, out_items = (view(k, 2**32, "i4") for k in range(4))
    pairs = cupar.merge_sort("i4", "i4", "i4", "i4", cupar.OpKind.LESS)
    compare("merge_sort", pairs, *[(keys, items, out_keys, out_items, n) for n in SIZES])


def merges():
    keys, items, more_keys, more_items = (view(k, 2**31, "i4") for k in range(4))
    out_keys, out_items = (view(k, 2**32, "i4") for k in (4, 5))
    sizes = [(0, 0), (0, 5), (5, 0), (5000, 20_000), (2**31, 2**31)]
    pairs = cupar.merge("i4", "i4", "i4", "i4", "i4", "i4")
    given = [(keys, items, n, more_keys, more_items, m, out_keys, out_items) for n, m in sizes]
    compare("merge", pairs, *given)


def sets():
    keys, items, more_keys, more_items = (view(k, 2**31, "i4") for k in range(4))
    out_keys, out_items, count = (view(k, 2**32, "i4") for k in (4, 5, 6))
    sizes = [(0, 0), (0, 5), (5, 0), (5000, 20_000), (2**31, 2**31)]
    pairs = cupar.set_union("i4", "i4", "i4", "i4", "i4", "i4", "i4")
    given = [(keys, items, n, more_keys, more_items, m, out_keys, out_items, count) for n, m in sizes]
    compare("set_union", pairs, *given)
    alone = cupar.set_difference("i4", None, "i4", None, "i4", None, "i4")
    given = [(keys, None, n, more_keys, None, m, out_keys, None, count) for n, m in sizes]
    compare("set_difference of keys", alone, *given)


def radix_sorts():
    keys, items, out_keys, out_items = (view(k, 2**32, "i4") for k in range(4))
    order = cupar.SortOrder.ASCENDING
    pairs = cupar.radix_sort("i4", "i4", "i4", "i4", order)
    bits = [(None, None), (0, 32), (3, 17), (5, 5)]
    arguments = [(keys, out_keys, items, out_items, n, *each) for n in SIZES for each in bits]
    for types in {tuple(map(type, each)) for each in bits}:
        own = [each for each in arguments if tuple(map(type, each[5:])) == types]
        name = f"radix_sort {' '.join(each.__name__ for each in types)}"
        compare(name, pairs, *own, in_phases=int in types)
    wrong = [(keys, out_keys, items, out_items, 5, *each) for each in [(-1, 3), (4, 3), (0, 33)]]
    compare("radix_sort of wrong bits", pairs, *wrong)
    small = view(0, 2**32, "u1"), view(1, 2**32, "u1"), None, None
    alone = cupar.radix_sort("u1", "u1", None, None, cupar.SortOrder.DESCENDING)
    compare("radix_sort of keys", alone, *[(*small, n, None, None) for n in SIZES])


def searches():
    data, values, out = view(0, 2**32, "f4"), view(1, 2**32, "f4"), view(2, 2**32, "i4")
    problems = [(n, m) for n in (0, 100, 10**5, 2**28) for m in (0, 100, 1 << 20)]
    search = cupar.lower_bound("f4", "f4", "i4")
    compare("search", search, *[(data, n, values, m, out) for n, m in problems])
    compare("search too far", search, (data, 2**31, values, 100, out))


def segments():
    d_in, d_out, zero = view(0, 2**32, "f4"), view(1, 2**32, "f4"), np.zeros(1, "f4")
    starts, ends = view(2, 2**32, "i8"), view(3, 2**32, "i8")
    sizes = [0, 1, 1000, 10**6, 2**32]
    total = cupar.segmented_reduce("f4", "f4", "i8", "i8", cupar.OpKind.PLUS, 0)
    compare("segmented_reduce", total, *[(d_in, d_out, n, starts, ends, zero) for n in sizes])
    arguments = d_in, d_out, 10**5, starts, ends, 1.5
    limited = [(*arguments, most) for most in (0, 10, 10**5)]
    compare("segmented_reduce of limited size", total, *limited, names="max_segment_size", in_phases=True)
    rows = cupar.segmented_reduce("f4", "f4", op=cupar.OpKind.PLUS, h_init=0)
    matrix = view(0, (5000, 300), "f4")
    compare("segmented_reduce of rows", rows, *[(matrix, d_out, n, None, None, 0.0) for n in (0, 1, 5000)])
    compare("segmented_reduce of all rows", rows, (matrix, d_out, None, None, None, 0.0))
    compare("of no whole rows", rows, (matrix, d_out, None, None, None, 0.0, 299), names="segment_size")
    arguments = [(d_in, d_out, 2000, None, None, 0.0, size) for size in (1, 30, 10**6)]
    compare("segmented_reduce of equal size", rows, *arguments, names="segment_size")
    compare("segmented_reduce of too many", rows, (matrix, d_out, 5001, None, None, 0.0))
    arguments = fortran(0, (1, 300)), d_out, 1, None, None, 0.0
    compare("segmented_reduce of columns", rows, arguments, (fortran(0, (50, 30)), *arguments[1:]))


def runs():
    keys, values, unique, out, count = (view(k, 2**32, "i4") for k in range(5))
    sizes = [0, 1, 5000, 10**6, 2**31 + 5]
    arrays = keys, unique, values, out, count
    sums = cupar.reduce_by_key("i4", "i4", "i4", "i4", "i4", cupar.OpKind.PLUS, h_init=5)
    compare("reduce_by_key", sums, *[(*arrays, n, 7) for n in sizes])
    scan = cupar.inclusive_scan_by_key("i4", "i4", "i4", cupar.OpKind.PLUS)
    compare("inclusive_scan_by_key", scan, *[(keys, values, out, n) for n in sizes])
    scan = cupar.exclusive_scan_by_key("i4", "i4", "i4", lambda a, b: b - a, 0, lambda a, b: a < b)
    compare("exclusive_scan_by_key", scan, *[(keys, values, out, n, 3) for n in sizes])
    encode = cupar.run_length_encode("i4", "i4", "i4", "i4")
    compare("run_length_encode", encode, *[(keys, unique, out, count, n) for n in sizes])


def segmented_scans():
    d_in, d_out = view(0, 2**32, "f4"), view(1, 2**32, "f4")
    starts, ends = view(2, 2**32, "i8"), view(3, 2**32, "i8")
    sizes = [0, 1, 1000, 10**6, 2**32]
    scan = cupar.inclusive_segmented_scan("f4", "f4", "i8", "i8", cupar.OpKind.PLUS)
    compare("segmented scan", scan, *[(d_in, d_out, n, starts, ends, None) for n in sizes])
    scan = cupar.exclusive_segmented_scan("f4", "f4", op=lambda a, b: a + b, h_init=0)
    copy = cupar.segmented_copy("f4", "f4", "i8", "i8", "i8")
    sizes = [0, 1, 1024, 1025, 10**6, 2**32]
    compare("segmented copy", copy, *[(d_in, d_out, n, starts, ends, view(4, 2**32, "i8")) for n in sizes])
    copy = cupar.segmented_copy("f4", "f4", "i8", "i8", d_out_num_items="i4")
    count = view(5, 1, "i4")
    given = [(d_in, d_out, n, starts, ends, None, count) for n in sizes]
    compare("segments one after another", copy, *given, names="d_out_num_items")
    matrix = view(0, (5000, 300), "f4")
    compare("segmented scan of rows", scan, *[(matrix, d_out, n, None, None, 0.0) for n in (0, 1, 5000)])
    compare("segmented scan of too many", scan, (matrix, d_out, 5001, None, None, 0.0))


def columns():
    d_in, d_out = view(0, 2**36, "f4"), view(1, 2**36, "f4")
    shapes = [
        (0, 3, 4),
        (2, 0, 3),
        (1, 2**20, 3),
        (3, 5000, 40),
        (4, 1000, 1000),
        (7, 100, 10_000),
        (1, -1, 3),
    ]
    scan = cupar.inclusive_column_scan("f4", "f4", cupar.OpKind.PLUS)
    compare("inclusive_column_scan", scan, *[(d_in, d_out, *each, None) for each in shapes])
    total = cupar.column_reduce("f4", "f4", cupar.OpKind.PLUS, 0)
    compare("column_reduce", total, *[(d_in, d_out, *each, 0.0) for each in shapes])
    compare("too many columns", total, (d_in, d_out, 2**20, 0, 2**20, 0.0))


def segmented_sorts():
    keys, out_keys, items, out_items = (view(k, 2**32, "i4") for k in range(4))
    starts, ends, order = view(4, 2**32, "i8"), view(5, 2**32, "i8"), cupar.SortOrder.ASCENDING
    sizes = [(n, m) for n in (0, 1, 5000, 10**6, 2**31 + 5) for m in (0, 1, 300, 10**6)]
    sort = cupar.segmented_sort("i4", "i4", "i4", "i4", "i8", "i8", cupar.SortOrder.DESCENDING)
    arrays = keys, out_keys, items, out_items
    compare("sort of pairs", sort, *[(*arrays, *size, starts, ends) for size in sizes])
    sort = cupar.segmented_sort("i4", "i4", None, None, "i8", "i8", op=lambda a, b: a > b)
    compare("sort by op", sort, *[(*arrays[:2], None, None, *size, starts, ends) for size in sizes])
    rows = cupar.segmented_sort("i4", "i4", "i4", "i4", order=order)
    sizes = [(n * size, n, size) for n in (0, 1, 5000) for size in (1, 20, 100, 600, 3000, 20_000, 10**5)]
    arguments = [(*arrays, n, m, None, None, size) for n, m, size in [*sizes, (99, 10, 10), (0, 0, 0)]]
    compare("sort of rows", rows, *arguments, names="segment_size")
    matrix = view(0, (5000, 300), "i4")
    compare("sort of a matrix", rows, (matrix, *arrays[1:], 5000 * 300, 5000, None, None), in_phases=True)
    compare("sort of all of a matrix", rows, (matrix, *arrays[1:], None, None, None, None))
    compare("sort of some items", rows, (matrix, *arrays[1:], 3000, None, None, None))


def histograms():
    out = view(1, 2**20, "i4")
    levels = [(257, 0, 256), (2, 0, 1), (4097, -5, 100_000), (2**17, 0, 2**31 - 1), (11, 500, 5)]
    sizes = [0, 1000, 10**5, 10**7, 2**32]
    for dtype in ("i4", "u8"):
        samples = view(0, 2**32, dtype)
        count = cupar.histogram_even(dtype, "i4", 5, np.int64(0), np.int64(4), 1)
        compare(f"histogram {dtype}", count, *[(samples, out, *each, n) for each in levels for n in sizes])
    levels = [(257, 0.0, 1.0), (2, -1e30, 1e30), (70_000, 0.5, 0.75), (11, 3.0, 3.0), (11, 0.0, float("inf"))]
    samples = view(0, 2**32, "f4")
    count = cupar.histogram_even("f4", "i4", 5, np.float64(0), np.float64(4), 1)
    compare("histogram of floats", count, *[(samples, out, *each, n) for each in levels for n in sizes])

    samples, levels = view(0, 2**32, "f4"), view(2, 2**20, "f4")
    count = cupar.histogram_range("f4", "i4", 5, "f4", 1)
    compare(
        "histogram of ranges", count, *[(samples, out, m, levels, n) for m in (2, 257, 2**17) for n in sizes]
    )


def indexed():
    items, indices, out, init = (
        view(0, 2**32, "f4"),
        view(1, 2**32, "i4"),
        view(2, 2**31, "f4"),
        np.zeros(1, "f4"),
    )
    reduction = cupar.reduce_by_index("f4", "i4", "f4", lambda a, b: a + b, init)
    sizes = [(n, m) for n in (0, 1000, 10**6, 2**32) for m in (0, 1, 50, 200, 3000, 10**5, 2**31)]
    compare("reduce by index", reduction, *[(items, indices, out, *each, init) for each in sizes])


def iterators():
    x, y, out, init = view(0, 10**6, "f4"), view(1, 10**6, "i4"), view(2, 10**6, "f4"), np.zeros(1, "f4")
    pairs = cupar.TransformIterator(
        cupar.ZipIterator(x, cupar.CountingIterator(np.int16(5)), cupar.ConstantIterator(np.float64(2.5))),
        lambda each: each[0] + each[1] * each[2],
        "f4",
    )
    gathered = cupar.PermutationIterator(x, cupar.ShuffleIterator(1000, 3))
    sizes = [0, 1, 5000, 10**6, 10**6 + 1]
    for given in (pairs, cupar.ReverseIterator(gathered + 1000)):
        name = str(given.node).partition("(")[0]
        total = cupar.reduce_into(given, "f4", cupar.OpKind.PLUS, init)
        starts = 0, 1, -1, 10**6, -(10**6) - 5
        compare(f"reduce of {name}", total, *[(given + k, out, n, init) for k in starts for n in sizes])
    written = cupar.TransformOutputIterator(out, lambda a: a * 2)
    scan = cupar.inclusive_scan("f4", written, cupar.OpKind.PLUS, None)
    compare("scan to an iterator", scan, *[(x, written, n, None) for n in sizes])
    scan = cupar.inclusive_scan("f4", cupar.ReverseIterator("f4"), cupar.OpKind.PLUS, None)
    backwards = cupar.ReverseIterator(out[:5000])
    compare("scan to a reversed array", scan, *[(x, backwards, n, None) for n in sizes])
    keys, counts = cupar.CountingIterator(np.int32(0)), view(3, 1, "i8")
    chosen = cupar.select(keys, "i4", "i8", lambda a: a > 3)
    compare("select from a counter", chosen, *[(keys + 7, y, counts, n) for n in sizes])
    chosen = cupar.select("i4", cupar.DiscardIterator("i4"), "i8", lambda a: a > 3)
    compare("select to nowhere", chosen, *[(y, cupar.DiscardIterator("i4"), counts, n) for n in sizes])
    sums = cupar.segmented_reduce(pairs, "f4", keys, keys, cupar.OpKind.PLUS, 0)
    compare("segmented_reduce", sums, *[(pairs, out, n, keys, keys + 1, 0.0) for n in sizes])


def top_ks():
    keys, out_keys, items, out_items = (view(k, 2**34, "i4") for k in range(4))
    starts, ends, order = view(4, 2**32, "i8"), view(5, 2**32, "i8"), cupar.SortOrder.ASCENDING
    find = cupar.segmented_top_k("i4", "i4", "i4", "i4", "i8", "i8", order)
    sizes = [(n, m) for n in (0, 1, 5000, 10**6, 2**31 + 5) for m in (0, 1, 300, 10**5)]
    arguments = [(*each, k) for each in sizes for k in (0, 1, 100, 1500, 10**5)]
    arrays = keys, out_keys, items, out_items
    compare("top-k of segments", find, *[(*arrays, *each, starts, ends) for each in arguments])
    rows = cupar.segmented_top_k("f4", "f4")
    matrix = view(0, 2**36, "f4"), view(1, 2**32, "f4"), None, None
    sizes = [(n, size) for n in (0, 1, 5000) for size in (1, 20, 100, 600, 3000, 20_000, 10**6)]
    given = [(n * size, n, k, None, None, size) for n, size in sizes for k in (0, 1, 100, 1500, 10**5)]
    compare("top-k of rows", rows, *[(*matrix, *each) for each in given], names="segment_size")
    places = cupar.CountingIterator(np.int64(0))
    find = cupar.top_k("f4", "f4", places, "i8")
    arrays = *matrix[:2], places, view(3, 2**32, "i8")
    sizes = [(n, k) for n in (0, 1, 300, 5000, 10**6, 2**31 + 5) for k in (0, 1, 100, 1500, 10**5)]
    compare("top-k", find, *[(*arrays, *each) for each in sizes])


def nth_elements():
    keys, out, behind = view(0, 2**36, "f4"), view(1, 2**32, "f4"), view(2, 2**32, "f4")
    ranks, starts, ends = (view(k, 2**32, "i8") for k in (3, 4, 5))
    find = cupar.segmented_nth_element("f4", "f4", "f4", "i8", "i8", "i8")
    sizes = [(n, m) for n in (0, 1, 5000, 10**6, 2**31 + 5) for m in (0, 1, 300, 10**5)]
    given = [(keys, out, behind, None, *each, ranks, starts, ends) for each in sizes]
    compare("n-th of segments", find, *given)


for each in sys.argv[2:]:
    globals()[each]()
