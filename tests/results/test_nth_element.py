"""The n-th elements of arrays and segments, and quantiles, against sorts and quantiles by NumPy."""

import numpy as np
import pytest
from support.results import IS_CPU, cp

import cupar
from cupar import arrays

MANY = 40_000 if IS_CPU else 3_000_000  # items: on the CPU, no other code has many
DTYPES = ["?", "i1", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
# Around where another kernel finds them.
LENGTHS = [*(1, 2, 31, 128, 129, 512, 513, 1024, 1025, 4096, 4097, 8193, 16_384, 16_385), MANY]


def some(rng, n, dtype, kind="any"):
    dtype = np.dtype(dtype)
    if kind == "equal":
        return np.ones(n, dtype)
    if kind == "few" or dtype.kind == "b":
        return rng.integers(0, 3, n).astype(dtype)
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, n, dtype, endpoint=True)
    found = rng.normal(size=n).astype(dtype)
    if kind == "nans":
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype)
        where = rng.random(n) < 0.2
        found[where] = special[rng.integers(0, len(special), where.sum())]
    return found


def expected(rows, n, nans="last"):
    """Return the items at an index of each sorted row, and those behind."""
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        ordered = np.sort(rows, axis=-1) + np.zeros((), rows.dtype)  # NaNs are last
    first, second = (ordered[:, each] for each in (n, min(n + 1, rows.shape[1] - 1)))
    if nans == "propagate" and rows.dtype.kind == "f":
        first, second = (np.where(np.isnan(ordered[:, -1]), np.nan, each) for each in (first, second))
    return first, second


def same(found, wanted):
    """Whether items are the same; 0.0 is not -0.0."""
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    if found.dtype.kind == "f":
        assert not np.signbit(found[found == 0]).any()


def check_rows(host, n, nans="last", has_next=True):
    rows, length = host.shape
    d_in, d_out, d_next = cp.asarray(host), cp.zeros(rows, host.dtype), cp.zeros(rows, host.dtype)
    given = d_in, d_out, d_next if has_next else None
    search = cupar.segmented_nth_element(*given, nans=nans)
    named = {"n": n, "num_segments": rows, "segment_size": length}
    nbytes = search(None, *given, **named)
    search(cp.full(nbytes, 0xAB, "u1"), *given, **named)
    wanted = expected(host, n, nans)
    same(d_out.get(), wanted[0])
    if has_next:
        same(d_next.get(), wanted[1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_every_dtype(dtype, rng):
    for rows, length in ((7, 100), (5, 700), (150, 5000), (3, 5000), (1, MANY)):
        for kind in ("any", "few", "nans"):
            host = some(rng, rows * length, dtype, kind).reshape(rows, length)
            check_rows(host, int(rng.integers(length)), "propagate" if kind == "any" else "last")


@pytest.mark.parametrize("length", LENGTHS)
def test_of_every_length(length, rng):
    """At all ends, of items that differ, of some that are alike, and of some that are NaN."""
    for kind in ("any", "few", "equal", "nans"):
        host = some(rng, 3 * length, "f4", kind).reshape(3, length)
        ranks = {0, 1, length // 2, length - 2, length - 1}
        for n in sorted(each for each in ranks if 0 <= each < length):
            check_rows(host, n, "last", n % 2 == 0)
    host = some(rng, 3 * length, "f4").reshape(3, length)
    host[1, length // 2] = -np.nan
    check_rows(host, length // 2, "propagate")


def test_the_item_behind_may_differ_in_its_first_digit():
    """Digits of 11 bits: the item behind the last with some digits is looked for anew."""
    for dtype in ("u4", "u8"):
        for length in (100, 700, 20_000):
            high = np.dtype(dtype).type(1 << (8 * np.dtype(dtype).itemsize - 1))
            host = np.full((2, length), high + 5, dtype)
            host[:, : length // 2] = np.arange(length // 2) % 7
            check_rows(host, length // 2 - 1)
            host[:, -1] = np.iinfo(dtype).max
            check_rows(host, length - 2)
            check_rows(host, length - 1)


@pytest.mark.parametrize("nans", ["last", "propagate"])
@pytest.mark.parametrize("longest", [100, 700, 5000, 200_000])
def test_of_segments(longest, nans, rng):
    """Of all lengths, with gaps; those that have no item of their rank are left as they are."""
    lengths = rng.integers(0, longest, 40)
    lengths[[3, 17]] = 0, longest
    starts = np.cumsum(lengths + 3) - lengths
    ends, n = starts + lengths, int(starts[-1] + longest + 9)
    ranks = np.where(lengths > 0, rng.integers(0, 1 << 30, 40) % np.maximum(lengths, 1), 0)
    ranks[5], ranks[6], ranks[7] = -1, lengths[6], lengths[7] - 1
    host = some(rng, n, "f8", "nans" if nans == "last" else "any")
    host[starts[9]] = np.nan
    d_in, d_ranks = cp.asarray(host), cp.asarray(ranks)
    d_starts, d_ends = cp.asarray(starts), cp.asarray(ends.astype("i4"))
    d_out, d_next = cp.full(40, -7.0, "f8"), cp.full(40, -7.0, "f8")
    given = d_in, d_out, d_next
    behind = d_ranks, d_starts, d_ends
    search = cupar.segmented_nth_element(*given, *behind, nans=nans)
    search.run(*given, None, n, 40, *behind)
    wanted = np.full((2, 40), -7.0)
    for i, (begin, end, rank) in enumerate(zip(starts, ends, ranks, strict=True)):
        if 0 <= rank < end - begin:
            wanted[:, i] = np.ravel(expected(host[None, begin:end], rank, nans))
    same(d_out.get(), wanted[0])
    same(d_next.get(), wanted[1])


def test_of_bfloat16(rng):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for length in (100, 700, 5000, MANY):
        for nans in ("last", "propagate"):
            host = some(rng, 2 * length, "f4", "nans").reshape(2, length)
            host[0] = np.where(np.isnan(host[0]), 1, host[0])
            host = host.astype(bfloat16)
            d_in, d_out = cp.asarray(host.view("u2")).view(bfloat16), cp.zeros(2, "u2")
            search = cupar.segmented_nth_element("bfloat16", "bfloat16", nans=nans)
            search.run(d_in, d_out.view(bfloat16), n=length // 3, num_segments=2, segment_size=length)
            wanted, _ = expected(host.astype("f4"), length // 3, nans)
            np.testing.assert_array_equal(d_out.get().view(bfloat16).astype("f4"), wanted)


def on_host(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
@pytest.mark.parametrize("dtype", ["i4", "f2", "f4"])
def test_quantiles_are_numpys(dtype, axis, rng):
    host = some(rng, 7 * 90 * 4, dtype).reshape(7, 90, 4)
    if host.dtype.kind == "f":
        host[3, 40, 1] = np.nan
    x = cp.asarray(host)
    wide = host if dtype == "f4" else host.astype("f8")  # NumPy interpolates integers in their dtype
    rough = {"rtol": 2e-3, "atol": 2e-3} if dtype == "f2" else {"rtol": 1e-6, "atol": 1e-6}
    for q in (0.5, [0.0, 0.25, 1.0], [0.1, 0.2, 0.4, 0.6, 0.9]):
        found = on_host(arrays.quantile(x, q, axis=axis))
        np.testing.assert_allclose(found.astype("f8"), np.quantile(wide, q, axis=axis), **rough)
    for method in ("lower", "higher", "nearest"):
        found = on_host(arrays.quantile(x, 0.3, axis=axis, method=method, keepdims=True))
        wanted = np.quantile(host, 0.3, axis=axis, method=method, keepdims=True)
        np.testing.assert_array_equal(found, wanted)
    found = on_host(arrays.median(x, axis=axis))
    np.testing.assert_allclose(found.astype("f8"), np.median(wide, axis=axis), **rough)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_nth_elements_along_axes(axis, rng):
    host = some(rng, 7 * 90 * 4, "f4", "nans").reshape(7, 90, 4)
    moved = host.transpose(1, 0, 2).reshape(90, 28) if axis == (0, 2) else host
    ordered = np.sort(moved, axis=1 if axis == (0, 2) else axis)
    along = ordered.ndim - 1 if axis is None or axis == -1 or axis == (0, 2) else axis
    for n in (0, 2, -1):
        found = on_host(arrays.nth_element(cp.asarray(host), n, axis=axis))
        np.testing.assert_array_equal(found, np.take(ordered, n, axis=along))


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_quantiles_of_ranges_are_numpys(dtype, rng):
    for longest in (3, 700, 9000):
        lengths, gaps = rng.integers(0, longest, 30), rng.integers(0, 3, 30)
        ends = np.cumsum(lengths + gaps)
        order = rng.permutation(30)
        starts, ends = (ends - lengths)[order], ends[order]
        host = rng.integers(-99, 99, ends.max() + 5).astype(dtype)
        if dtype == "f4":
            host[starts[lengths[order] > 1][0]] = np.nan
        x, first, last = cp.asarray(host), cp.asarray(starts.astype("i4")), cp.asarray(ends)
        for q in (0.5, 0, 1, 0.3):
            found = on_host(arrays.segment_quantile(x, first, last, q))
            pairs = zip(starts, ends, strict=True)
            wanted = [np.quantile(host[i:j].astype("f8"), q) if i < j else np.nan for i, j in pairs]
            assert found.dtype == (np.float32 if dtype == "f4" else np.float64)
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert arrays.segment_quantile(x, first[:0], last[:0]).shape == (0,)
    with pytest.raises(ValueError, match="q: expected one number"):
        arrays.segment_quantile(x, first, last, [0.5])
    with pytest.raises(ValueError, match="ends: expected the shape of `starts`"):
        arrays.segment_quantile(x, first, last[:3])


@pytest.mark.parametrize("dtype", ["f4", "i4"])
def test_quantiles_of_ranges_of_no_items(dtype):
    """On a GPU ranges are not checked; a call reads nothing, all the same."""
    x, zeros, ends = cp.zeros(9, dtype), cp.zeros(3, "i8"), cp.asarray(np.array([0, 7, 9]))
    for _ in range(3):
        assert np.isnan(on_host(arrays.segment_quantile(x[:0], zeros, zeros, 0.5))).all()
        if IS_CPU:
            with pytest.raises(ValueError, match=r"^ends\[1\]: expected at most 0"):
                arrays.segment_quantile(x[:0], zeros, ends, 0.5)
        else:
            assert np.isnan(on_host(arrays.segment_quantile(x[:0], zeros, ends, 0.5))).all()
        assert on_host(arrays.segment_quantile(x, zeros, ends, 0.5)).tolist()[1:] == [0, 0]
