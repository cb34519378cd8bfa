"""Structs in every algorithm that takes them, against NumPy. Results must be equal, not close."""

import numpy as np
import pytest
from numba import cuda as numba_cuda
from support.results import Structs, cp, needs_gpu

import cupar
from cupar import OpKind, SortOrder, arrays, gpu_struct

SIZES = [0, 1, 31, 1000, 100_003]
CODES = "?bBhHiIqQefdFD"


@gpu_struct
class Peak:
    height: np.float32
    place: np.int64


@gpu_struct
class Range:
    low: np.int16
    high: np.int16


@gpu_struct
class Pair:
    re: np.float64
    im: np.float64


@gpu_struct
class Affine:
    """x -> a x + b, modulo 2**32."""

    a: np.uint32
    b: np.uint32


@gpu_struct
class Key:
    letter: np.int8
    number: np.int32


# Fields with the names of methods of tuples.
Named = gpu_struct({"count": np.float64, "index": np.int32}, "Named")
# Names that begin as named tuples' fields cannot.
Hidden = gpu_struct({"_1": "f8", "_inner": {"_": "i4", "_z": "i8"}, "x": "i4"}, "Hidden")
Box = gpu_struct({"low": {"x": "i4", "y": "i8"}, "high": {"x": "i4", "y": "i8"}, "empty": bool}, "Box")
All = gpu_struct({f"v{i}": code for i, code in enumerate(CODES)}, "All")


def zeros(n, kind):
    return Structs(np.zeros(n, kind.dtype))


def check(found, expected):
    """Compare field by field: the padding between them may hold anything."""
    if expected.dtype.names is None:
        np.testing.assert_array_equal(found, expected)
    for name in expected.dtype.names or ():
        check(found[name], expected[name])


def one(value, dtype):
    """Return the one item of an array."""
    return np.array([tuple(value)], dtype)


def peaks(rng, n, place=Peak):
    """Peaks of few different heights, so that many are equal."""
    host = np.zeros(n, place.dtype)
    first, second = place.dtype.names
    host[first] = rng.integers(-100, 100, n)
    host[second] = np.arange(n)
    return host


def storage(nbytes):
    return cp.empty(max(nbytes, 1), "u1")


# --- Reductions ------------------------------------------------------------------------------------------


def highest(a, b):
    if a.height == b.height:
        return a if a.place < b.place else b
    return a if a.height > b.height else b


def lowest(a, b):
    if a.count == b.count:
        return a if a.index < b.index else b
    return a if a.count < b.count else b


def test_arg_max(rng):
    host = peaks(rng, SIZES[-1])
    d_in, d_out, h_init = Structs(host), zeros(3, Peak), Peak(-np.inf, -1)
    reduction = cupar.reduce_into(d_in, d_out, highest, h_init)
    for n in SIZES:
        place = int(np.argmax(host["height"][:n])) if n else -1
        expected = (host["height"][place], place) if n else h_init
        for init in (h_init, one(h_init, Peak.dtype), one(h_init, Peak.dtype)[0]):
            d_out = zeros(3, Peak)
            reduction.run(d_in, d_out[1:2], n, init)
            check(d_out.get(), np.array([(0, 0), tuple(expected), (0, 0)], Peak.dtype))
    nbytes = reduction(None, d_in, d_out, SIZES[-1], h_init)
    assert reduction(storage(nbytes), d_in, d_out, SIZES[-1], h_init) == nbytes
    check(d_out.get()[:1], one(expected, Peak.dtype))


def test_arg_max_without_initial_value_and_of_a_plain_dtype(rng):
    host = peaks(rng, SIZES[-1])
    dtype = np.dtype([("height", "f4"), ("place", "i8")], align=True)
    d_in, d_out = Structs(host.astype(dtype)), Structs(np.zeros(1, dtype))
    reduction = cupar.reduce_into(d_in, d_out, highest, None)
    for n in SIZES[1:]:
        place = int(np.argmax(host["height"][:n]))
        reduction.run(d_in, d_out, n)
        check(d_out.get(), one((host["height"][place], place), dtype))


def test_arg_min_by_fields_with_the_names_of_methods(rng):
    host = peaks(rng, SIZES[-1], Named)
    d_in, d_out, h_init = Structs(host), zeros(1, Named), Named(np.inf, -1)
    reduction = cupar.reduce_into(d_in, d_out, lowest, h_init)
    for n in SIZES:
        index = int(np.argmin(host["count"][:n])) if n else -1
        reduction.run(d_in, d_out, n, h_init)
        check(d_out.get(), one((host["count"][index], index) if n else h_init, Named.dtype))


def test_fields_that_begin_with_an_underscore(rng):
    n = 1000
    host = np.zeros(n, Hidden.dtype)
    host["_1"], host["x"] = rng.normal(size=n), rng.integers(-50, 50, n)
    host["_inner"]["_"], host["_inner"]["_z"] = np.arange(n), rng.integers(-50, 50, n)
    start = Hidden(1, (2, 3), 4)

    def changed(v):
        return Hidden(x=v._inner._ + start._inner._, _inner=(v.x, v._inner._z * start.x), _1=v._1 * 2)

    d_in, d_out = Structs(host), zeros(n, Hidden)
    cupar.unary_transform(d_in, d_out, changed).run(d_in, d_out, n)
    expected = host.copy()
    expected["_1"], expected["x"] = host["_1"] * 2, host["_inner"]["_"] + 2
    expected["_inner"]["_"], expected["_inner"]["_z"] = host["x"], host["_inner"]["_z"] * 4
    check(d_out.get(), expected)


def joined(a, b):
    return Range(min(a.low, b.low), max(a.high, b.high))


def test_least_and_greatest(rng):
    values = rng.integers(-30_000, 30_000, SIZES[-1]).astype("i2")
    host = np.zeros(SIZES[-1], Range.dtype)
    host["low"] = host["high"] = values
    d_in, d_out, h_init = Structs(host), zeros(1, Range), Range(32767, -32768)
    reduction = cupar.reduce_into(d_in, d_out, joined, h_init)
    for n in SIZES:
        reduction.run(d_in, d_out, n, h_init)
        expected = (values[:n].min(), values[:n].max()) if n else h_init
        check(d_out.get(), one(expected, Range.dtype))


def added(a, b):
    return a.re + b.re, a.im + b.im  # any tuple will do


def pairs(rng, n):
    """Items that are added exactly in any order."""
    host = np.zeros(n, Pair.dtype)
    host["re"], host["im"] = rng.integers(-1000, 1000, (2, n))
    return host


def test_sums(rng):
    host = pairs(rng, SIZES[-1])
    d_in, d_out, h_init = Structs(host), zeros(1, Pair), Pair(0.5, -0.25)
    reduction = cupar.reduce_into(d_in, d_out, added, h_init)
    for n in SIZES:
        reduction.run(d_in, d_out, n, h_init)
        expected = (0.5 + host["re"][:n].sum(), -0.25 + host["im"][:n].sum())
        check(d_out.get(), one(expected, Pair.dtype))


def enclosing(a, b):
    if a.empty or b.empty:
        return b if a.empty else a
    low = min(a.low.x, b.low.x), min(a.low.y, b.low.y)
    high = max(a.high.x, b.high.x), max(a.high.y, b.high.y)
    return Box(low, high, False)


def test_nested_structs(rng):
    host = np.zeros(SIZES[-1], Box.dtype)
    for name in "xy":
        corners = np.sort(rng.integers(-(2**30), 2**30, (2, SIZES[-1])), axis=0)
        host["low"][name], host["high"][name] = corners
    host["empty"] = rng.random(SIZES[-1]) < 0.3
    d_in, d_out, h_init = Structs(host), zeros(1, Box), Box((0, 0), (0, 0), True)
    reduction = cupar.reduce_into(d_in, d_out, enclosing, h_init)
    for n in SIZES[2:]:
        reduction.run(d_in, d_out, n, h_init)
        there = host[:n][~host["empty"][:n]]
        low, high = there["low"], there["high"]
        expected = (low["x"].min(), low["y"].min()), (high["x"].max(), high["y"].max()), False
        check(d_out.get(), one(expected, Box.dtype))
    reduction.run(d_in, d_out, 0, h_init)
    assert d_out.get()["empty"].tolist() == [True]


def test_segmented_reduce(rng):
    host = peaks(rng, 50_000)
    start = rng.integers(0, 50_000, 300)
    end = np.minimum(start + rng.integers(0, 3000, 300), 50_000)
    end[::7] = start[::7]  # some empty
    d_in, d_out, h_init = Structs(host), zeros(300, Peak), Peak(-1000, -1)
    d_start, d_end = cp.asarray(start), cp.asarray(end)
    reduction = cupar.segmented_reduce(d_in, d_out, d_start, d_end, highest, h_init)
    reduction.run(d_in, d_out, 300, d_start, d_end, h_init)
    expected = np.array([tuple(h_init)] * 300, Peak.dtype)
    for i, (s, e) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if e > s:
            expected[i] = host[s + int(np.argmax(host["height"][s:e]))]
    check(d_out.get(), expected)


# --- Scans -----------------------------------------------------------------------------------------------


def composed(first, second):
    """Not commutative."""
    return Affine(first.a * second.a, first.b * second.a + second.b)


def compositions(host, h_init):
    """All running compositions, from that of nothing on."""
    a, b = map(int, h_init)
    found = [(a, b)]
    for x, y in zip(host["a"].tolist(), host["b"].tolist(), strict=True):
        a, b = a * x % 2**32, (b * x + y) % 2**32
        found.append((a, b))
    return np.array(found, Affine.dtype)


@pytest.mark.parametrize("kind", ["exclusive", "inclusive without", "exclusive from device"])
def test_scans(kind, rng):
    host = np.zeros(SIZES[-1], Affine.dtype)
    host["a"], host["b"] = rng.integers(0, 2**32, (2, SIZES[-1]), "u4")
    d_in, start = Structs(host), Affine(3, 7)
    factory = cupar.exclusive_scan if kind.startswith("exclusive") else cupar.inclusive_scan
    h_init = None if "without" in kind else start
    if "device" in kind:
        h_init = Structs(one(start, Affine.dtype))
    expected = compositions(host, Affine(1, 0) if h_init is None else start)
    expected = expected[:-1] if factory is cupar.exclusive_scan else expected[1:]
    scan = factory(d_in, zeros(1, Affine), composed, h_init)
    for n in SIZES:
        d_out = zeros(n + 1, Affine)
        scan.run(d_in, d_out, n, h_init)
        check(d_out.get()[:n], expected[:n])
        check(d_out.get()[n:], np.zeros(1, Affine.dtype))


def test_a_scan_in_place_and_of_many_fields(rng):
    host = np.zeros(SIZES[-1], Box.dtype)
    host["low"]["x"] = rng.integers(-(2**30), 2**30, SIZES[-1])
    host["high"]["y"] = rng.integers(-(2**62), 2**62, SIZES[-1])
    d = Structs(host)
    cupar.inclusive_scan(d, d, enclosing).run(d, d, SIZES[-1])
    expected = np.zeros_like(host)
    expected["low"]["x"] = np.minimum.accumulate(host["low"]["x"])
    expected["high"]["y"] = np.maximum.accumulate(host["high"]["y"])
    check(d.get(), expected)


# --- Transforms ------------------------------------------------------------------------------------------


def by_attribute(x):
    return All(x.v0, x.v1, x.v2, x.v3, x.v4, x.v5, x.v6, x.v7, x.v8, x.v9, x.v10, x.v11, x.v12, x.v13)


def by_index(x):
    return (x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13])


def changed(x):
    b, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4, f8, c8, c16 = x
    return not b, ~i1, u1, -i2, u2 // 2, i4 * 2, u4, i8 - 1, u8, f2 + f2, -f4, f8 * 0.5, c8 * 2, c16 + 1


def everything(rng, n):
    host = np.zeros(n, All.dtype)
    for name in host.dtype.names:
        dtype = host.dtype[name]
        if dtype.kind == "b":
            host[name] = rng.random(n) < 0.5
        elif dtype.kind in "iu":
            info = np.iinfo(dtype)
            host[name] = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        else:
            host[name] = rng.integers(-900, 900, n) / 8
            if dtype.kind == "c":
                host[name] += 1j * rng.integers(-900, 900, n)
    return host


@pytest.mark.parametrize("op", [by_attribute, by_index, changed])
def test_every_dtype_in_one_struct(op, rng):
    host = everything(rng, SIZES[-1])
    expected = host.copy()
    if op is changed:
        with np.errstate(over="ignore"):
            expected["v0"] = ~host["v0"]
            expected["v1"] = ~host["v1"]
            expected["v3"] = -host["v3"]
            expected["v4"] = host["v4"] // 2
            expected["v5"] = host["v5"] * 2
            expected["v7"] = host["v7"] - 1
            expected["v9"] = host["v9"] + host["v9"]
            expected["v10"] = -host["v10"]
            expected["v11"] = host["v11"] * 0.5
            expected["v12"] = host["v12"] * 2
            expected["v13"] = host["v13"] + 1
    d_in = Structs(host)
    transform = cupar.unary_transform(d_in, d_in, op)
    for n in SIZES:
        d_out = zeros(n + 1, All)
        transform(d_in, d_out, n)
        check(d_out.get()[:n], expected[:n])
        check(d_out.get()[n:], np.zeros(1, All.dtype))


def test_each_dtype_beside_a_byte(rng):
    """Fields at other places than the first, and padding before and after them."""
    host = everything(rng, 1000)
    for name, code in zip(host.dtype.names, CODES, strict=True):
        if code in "?D":
            made = gpu_struct({"first": "i1", "value": code, "last": "i1"})
            d_value, d_struct, d_back = cp.asarray(host[name].copy()), zeros(1000, made), cp.zeros(1000, code)
            cupar.unary_transform(d_value, d_struct, lambda a: made(1, a, -1))(d_value, d_struct, 1000)
            check(d_struct.get()["value"], host[name])
            assert set(d_struct.get()["first"].tolist() + d_struct.get()["last"].tolist()) == {1, -1}
            cupar.unary_transform(d_struct, d_back, lambda a: a.value)(d_struct, d_back, 1000)
            np.testing.assert_array_equal(d_back.get(), host[name])


def test_binary_transforms(rng):
    one_host, two_host = pairs(rng, SIZES[-1]), pairs(rng, SIZES[-1])
    d_one, d_two = Structs(one_host), Structs(two_host)
    d_out, d_real = zeros(SIZES[-1], Pair), cp.zeros(SIZES[-1], "f8")
    times = lambda a, b: Pair(a.re * b.re - a.im * b.im, re_im(a, b))
    product = (one_host["re"] + 1j * one_host["im"]) * (two_host["re"] + 1j * two_host["im"])
    cupar.binary_transform(d_one, d_two, d_out, times)(d_one, d_two, d_out, SIZES[-1])
    np.testing.assert_array_equal(d_out.get()["re"], product.real)
    np.testing.assert_array_equal(d_out.get()["im"], product.imag)
    cupar.binary_transform(d_one, d_real, d_real, lambda a, b: a.re + b)(d_one, d_real, d_real, SIZES[-1])
    np.testing.assert_array_equal(d_real.get(), one_host["re"])


def re_im(a, b):
    return a.re * b.im + a.im * b.re


def test_captured_structs(rng):
    host, shift = pairs(rng, 1000), Pair(3, -4)
    d_in = Structs(host)
    for value in (shift, Pair(1, 2)):
        d_out = zeros(1000, Pair)
        cupar.unary_transform(d_in, d_out, lambda a: Pair(a.re + value.re, a.im * value[1]))(
            d_in, d_out, 1000
        )
        np.testing.assert_array_equal(d_out.get()["re"], host["re"] + value.re)
        np.testing.assert_array_equal(d_out.get()["im"], host["im"] * value.im)


# --- Sorts, runs and partitions --------------------------------------------------------------------------


def keys(rng, n):
    host = np.zeros(n, Key.dtype)
    host["letter"] = rng.integers(-5, 5, n)
    host["number"] = rng.integers(-20, 20, n)
    return host


def before(a, b):
    return a.letter < b.letter or (a.letter == b.letter and a.number < b.number)


def test_merge_sort(rng):
    host = keys(rng, SIZES[-1])
    payload = peaks(rng, SIZES[-1])
    d_keys, d_items = Structs(host), Structs(payload)
    sort = cupar.merge_sort(d_keys, d_items, d_keys, d_items, before)
    keys_alone = cupar.merge_sort(d_keys, None, d_keys, None, before)
    for n in SIZES:
        order = np.lexsort((host["number"][:n], host["letter"][:n]))
        d_out_keys, d_out_items = zeros(n + 1, Key), zeros(n + 1, Peak)
        sort.run(d_keys, d_items, d_out_keys, d_out_items, n)
        check(d_out_keys.get()[:n], host[:n][order])
        check(d_out_items.get()[:n], payload[:n][order])
        check(d_out_items.get()[n:], np.zeros(1, Peak.dtype))
        d_out_keys = zeros(n, Key)
        keys_alone.run(d_keys, None, d_out_keys, None, n)
        check(d_out_keys.get(), host[:n][order])


def test_radix_sort(rng):
    struct = gpu_struct({"letter": np.uint8, "number": np.float32})
    small = struct.dtype
    host = rng.integers(0, 1000, SIZES[-1]).astype("u4")
    payload = np.zeros(SIZES[-1], small)
    payload["letter"], payload["number"] = host % 251, np.arange(SIZES[-1])
    d_keys, d_values = cp.asarray(host), Structs(payload)
    d_out_keys = cp.zeros_like(d_keys)
    sort = cupar.radix_sort(d_keys, d_out_keys, d_values, d_values, SortOrder.ASCENDING)
    for n in SIZES:
        order = np.argsort(host[:n], kind="stable")
        d_out_values = zeros(n, struct)
        sort.run(d_keys, d_out_keys, d_values, d_out_values, n)
        np.testing.assert_array_equal(d_out_keys.get()[:n], host[:n][order])
        found = d_out_values.get()
        np.testing.assert_array_equal(found["letter"], payload["letter"][:n][order])
        np.testing.assert_array_equal(found["number"], payload["number"][:n][order])
    complex_values = cp.asarray(rng.random(1000).astype("c8"))
    d_out_complex = cp.zeros_like(complex_values)
    sort = cupar.radix_sort(d_keys, d_out_keys, complex_values, d_out_complex, SortOrder.DESCENDING)
    sort.run(d_keys, d_out_keys, complex_values, d_out_complex, 1000)
    order = np.argsort(-host[:1000].astype("i8"), kind="stable")
    np.testing.assert_array_equal(d_out_complex.get(), complex_values.get()[order])


@pytest.mark.parametrize(
    "fields", ["u1 u1 u1", "u1 " * 5, "f4 i4 f4", "f8 f8", "f8 i4 i2", "i8 " * 8, "f8 " * 25]
)
@pytest.mark.parametrize("keys", ["u1", "f8"])
def test_radix_sort_of_values_of_many_sizes(fields, keys, rng):
    dtype = np.dtype([(f"x{i}", kind) for i, kind in enumerate(fields.split())], align=True)
    for n in (100, 20_011):
        host = rng.integers(0, 200, n).astype(keys)
        payload = np.zeros(n, dtype)
        for name in dtype.names:
            payload[name] = rng.integers(0, 100, n)
        d_keys, d_values = cp.asarray(host), Structs(payload)
        out = cp.zeros_like(d_keys), Structs(np.zeros(n, dtype))
        sort = cupar.radix_sort(d_keys, out[0], d_values, out[1], SortOrder.ASCENDING)
        sort.run(d_keys, out[0], d_values, out[1], n)
        order = np.argsort(host, kind="stable")
        np.testing.assert_array_equal(out[0].get(), host[order])
        check(out[1].get(), payload[order])


def test_unique_by_key(rng):
    host = keys(rng, SIZES[-1])
    host["letter"] //= 5
    host["number"] //= 20  # so that there are runs
    payload = pairs(rng, SIZES[-1])
    d_keys, d_items, d_count = Structs(host), Structs(payload), cp.zeros(1, "i8")
    equal = lambda a, b: a.letter == b.letter and a.number == b.number
    unique = cupar.unique_by_key(d_keys, d_items, d_keys, d_items, d_count, equal)
    for n in SIZES:
        first = np.ones(n, bool)
        first[1:] = host[1:n] != host[: max(n - 1, 0)]
        d_out_keys, d_out_items = zeros(n, Key), zeros(n, Pair)
        unique.run(d_keys, d_items, d_out_keys, d_out_items, d_count, n)
        count = int(d_count.get()[0])
        assert count == first.sum()
        check(d_out_keys.get()[:count], host[:n][first])
        check(d_out_items.get()[:count], payload[:n][first])


def test_select(rng):
    host = peaks(rng, SIZES[-1])
    d_in, d_count = Structs(host), cp.zeros(1, "i8")
    selection = cupar.select(d_in, d_in, d_count, lambda a: a.height > 50 and a.place % 2 == 0)
    for n in SIZES:
        expected = host[:n][(host["height"][:n] > 50) & (host["place"][:n] % 2 == 0)]
        d_out = zeros(len(expected) + 1, Peak)
        selection.run(d_in, d_out, d_count, n)
        assert int(d_count.get()[0]) == len(expected)
        check(d_out.get()[:-1], expected)
        check(d_out.get()[-1:], np.zeros(1, Peak.dtype))


def test_three_way_partition(rng):
    host = peaks(rng, SIZES[-1])
    d_in, d_count = Structs(host), cp.zeros(2, "i4")
    low, high = lambda a: a.height < -50, lambda a: a.height > 50
    partition = cupar.three_way_partition(d_in, d_in, d_in, d_in, d_count, low, high)
    for n in SIZES:
        heights = host["height"][:n]
        parts = [heights < -50, heights > 50, np.abs(heights) <= 50]
        outputs = [zeros(n, Peak) for _ in parts]
        partition.run(d_in, *outputs, d_count, n)
        assert d_count.get().tolist() == [int(part.sum()) for part in parts[:2]]
        for output, part in zip(outputs, parts, strict=True):
            check(output.get()[: part.sum()], host[:n][part])


# --- Arrays and iterators --------------------------------------------------------------------------------


def numba_items(host):
    array = numba_cuda.to_device(host)
    return array, array.copy_to_host


def cupy_items(host):
    try:
        array = cp.asarray(host.view(np.uint8)).view(host.dtype)
    except (TypeError, ValueError, LookupError, NotImplementedError) as error:
        pytest.skip(f"CuPy has no structs: {error}")
    return array, lambda: array.view(np.uint8).get().view(host.dtype)


@pytest.mark.parametrize("place", [pytest.param(numba_items, marks=needs_gpu), cupy_items])
def test_arrays_of_other_libraries(place, rng):
    host = peaks(rng, 1000)
    d_in, _ = place(host)
    d_out, result = place(np.zeros(1, Peak.dtype))
    cupar.reduce_into(d_in, d_out, highest, None).run(d_in, d_out, 1000)
    index = int(np.argmax(host["height"]))
    check(result(), host[index : index + 1])
    d_all, everything_back = place(np.zeros(1000, All.dtype))
    source = everything(rng, 1000)
    cupar.unary_transform(Structs(source), d_all, by_attribute)(Structs(source), d_all, 1000)
    check(everything_back(), source)


def test_names_of_fields_of_the_arrays_in_a_call_do_not_matter(rng):
    host = peaks(rng, 1000)
    d_out = Structs(np.zeros(1, [("a", "f4"), ("", "V4"), ("b", "i8")]))
    d_in = Structs(host.view(np.dtype([("x", "f4"), ("y", "i8")], align=True)))
    reduction = cupar.reduce_into(Structs(host), zeros(1, Peak), highest, Peak(-1000, -1))
    reduction.run(d_in, d_out, 1000, np.array([(-1000, -1)], d_in.dtype))
    assert d_out.get()["b"].tolist() == [int(np.argmax(host["height"]))]
    with pytest.raises(TypeError, match="^d_in: this algorithm was built for"):
        reduction.run(zeros(1000, Pair), zeros(1, Peak), 1000, Peak(-1000, -1))
    with pytest.raises(ValueError, match="^d_in: needs at least 1001 items"):
        reduction.run(d_in, d_out, 1001, Peak(-1000, -1))


def test_arg_max_of_numbers(rng):
    host = rng.integers(-100, 100, SIZES[-1]).astype("f4")
    d_values, d_out = cp.asarray(host), zeros(1, Peak)
    numbered = cupar.ZipIterator(d_values, cupar.CountingIterator(np.int64(0)))
    d_in = cupar.TransformIterator(numbered, lambda pair: Peak(pair[0], pair[1]), Peak)
    reduction = cupar.reduce_into(d_in, d_out, highest, Peak(-1000, -1))
    for n in SIZES[1:]:
        reduction.run(d_in, d_out, n, Peak(-1000, -1))
        place = int(np.argmax(host[:n]))
        check(d_out.get(), one((host[place], place), Peak.dtype))


def in_the_middle(host):
    """Return an array of complex numbers that begins in the middle of a word.

    It is written in parts: CuPy's own kernels write whole numbers, which end there in a misaligned address.
    """
    parts = host.real.dtype
    array = cp.zeros(2 * len(host) + 1, parts)[1:]
    array[:] = cp.asarray(host.view(parts))
    return array.view(host.dtype)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_are_written_to_where_they_begin_in_the_middle_of_a_word(dtype, rng):
    selection = cupar.select(dtype, dtype, "i8", lambda a: a.real > 0)
    for n in (1, 31, 1000, 100_003):
        host = (rng.integers(-9, 9, n) + 1j * np.arange(n)).astype(dtype)
        d_in, d_out, d_count = in_the_middle(host), in_the_middle(np.zeros(n, dtype)), cp.zeros(1, "i8")
        selection.run(d_in, d_out, d_count, n)
        expected = host[host.real > 0]
        assert int(d_count.get()[0]) == len(expected)
        np.testing.assert_array_equal(d_out.get()[: len(expected)], expected)
        assert not d_out.get()[len(expected) :].any()


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_sums_of_what_is_made_of_complex_numbers_that_begin_in_the_middle_of_a_word(dtype, rng):
    h_init, d_out = np.ones(1, dtype), cp.zeros(1, dtype)
    for n in (1, 31, 1000, 100_003):
        host = (rng.integers(-9, 9, n) + 1j * rng.integers(-9, 9, n)).astype(dtype)
        d_in = in_the_middle(host)
        doubled = cupar.TransformIterator(d_in, lambda a: a + a)
        for source, expected in ((d_in, host.sum()), (doubled, 2 * host.sum())):
            cupar.reduce_into(source, d_out, OpKind.PLUS, h_init).run(source, d_out, n, h_init)
            assert d_out.get()[0] == expected + 1


GAPS = {
    "between": [("a", "f8"), ("b", "i8"), ("c", "f8")],
    "behind": [("a", "f8"), ("c", "f8"), ("b", "i4")],
    "nested": [
        ("a", "f8"),
        ("c", {"names": ["x", "y"], "formats": ["i4", "f8"], "offsets": [0, 16], "itemsize": 24}),
        ("b", "u1"),
        ("d", "i8"),
    ],
}


def on_host(array):
    return array.get() if hasattr(array, "get") else array


@pytest.mark.parametrize("kind", GAPS)
def test_some_fields_of_records(rng, kind):
    """As structs of these fields: a view of some fields has gaps, and results have none."""
    records = np.zeros(100, np.dtype(GAPS[kind], align=True))
    records["a"], inner = rng.permutation(100), records["c"]
    (inner if inner.dtype.names is None else inner["y"])[:] = np.arange(100)
    names = [name for name in records.dtype.names if name != "b"]
    x, expected = cp.asarray(records.view(np.uint8)).view(records[names].dtype), [records[n] for n in names]

    def check(found, places):
        for each, field in zip(found, expected, strict=True):
            fields = [field] if field.dtype.names is None else [field[name] for name in field.dtype.names]
            for one, wanted in zip(each if isinstance(each, tuple) else (each,), fields, strict=True):
                assert one.dtype == wanted.dtype and np.array_equal(on_host(one), wanted[places])

    a = records["a"]
    greatest, above = lambda p, q: p if p.a > q.a else q, lambda p: p.a > 70
    runs = np.array([np.argmax(a[: n + 1]) for n in range(100)])
    check(arrays.reduce(x, greatest), np.argmax(a))
    check(arrays.scan(x, greatest), runs)
    check(arrays.copy_if(x, above), a > 70)
    check(arrays.sort(x, less=lambda p, q: p.a < q.a), np.argsort(a))
    check(arrays.take(x, cp.asarray(np.array([5, 2]))), [5, 2])
    check(arrays.reduce_by_key(cp.asarray(np.arange(100) // 100), x, greatest).values, [np.argmax(a)])
    assert np.array_equal(on_host(arrays.transform(lambda p: p.a, x)), a)
