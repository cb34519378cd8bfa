"""Functions on dask arrays against plain loops and NumPy: chunks of all kinds, on each scheduler."""

import asyncio
import itertools
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from support.ranks import Affine, by_a, composed

import cupar
from cupar import arrays
from cupar import dask as cdask
from cupar._cpu import threads
from cupar._obtain import obtain
from cupar.distributed import Group, GroupError

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
steps = pytest.importorskip("cupar._dask.steps")
from dask.array.utils import assert_eq  # noqa: E402
from dask.highlevelgraph import HighLevelGraph  # noqa: E402

CHUNKS = [(10,) * 4, (0, 1, 25, 0, 9, 5, 0), (0, 40), (2,) * 20]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="sync"):
        yield


def filled(a, b):
    return b if b == b else a


def low_bits(a, b):
    return (a & 3) < (b & 3)


def same_ten(a, b):
    return a // 10 == b // 10


def maps(rng, n):
    found = np.zeros(n, Affine.dtype)
    found["a"], found["b"] = rng.integers(1, 9, n), rng.integers(0, 9, n)
    return found


def gaps(rng, shape):
    return np.where(rng.random(shape) < 0.7, np.nan, rng.integers(0, 99, shape))


def one_by_one(items, op, init=None):
    """Return the scan of a loop: of plain values, or of the fields of structs."""
    if items.dtype.names is None:
        return np.array([*itertools.accumulate(items, op)], items.dtype)
    first = [] if init is None else [init]
    steps = itertools.accumulate(
        [*first, *items.tolist()], lambda p, q: tuple(composed(Affine(*p), Affine(*q)))
    )
    return np.array([*steps][len(first) :], items.dtype)


def unknown(x):
    """Return the same array with chunks that are not known."""
    return x[da.ones(x.shape, chunks=x.chunks, dtype=bool)]


def chunked(items, chunks):
    return da.from_array(items, chunks=(chunks,))


# --- Records ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", CHUNKS, ids=["even", "holes", "one", "many"])
def test_operators_that_do_not_commute(rng, chunks):
    items, numbers = maps(rng, 40), gaps(rng, 40)
    expected, after = one_by_one(items, composed), one_by_one(items, composed, (3, 4))
    x, y = chunked(items, chunks), unknown(chunked(numbers, chunks))
    assert cdask.reduce(x, composed, commutative=False).compute() == expected[-1]
    assert cdask.reduce(x, composed, commutative=False, init=(3, 4)).compute() == after[-1]
    for method in ("parallel", "sequential"):
        scan = partial(cdask.scan, method=method)
        assert scan(x, composed).compute().tolist() == expected.tolist()
        assert scan(x, composed, init=(3, 4)).compute().tolist() == after.tolist()
        before = scan(x, composed, init=(3, 4), exclusive=True).compute()
        assert before.tolist() == [(3, 4), *after.tolist()[:-1]]
        found = scan(y, filled)
        assert np.isnan(found.chunks[0]).all()
        np.testing.assert_array_equal(found.compute(), one_by_one(numbers, filled))


@pytest.mark.parametrize("axis", [0, 1])
def test_axes(rng, axis):
    items = gaps(rng, (12, 9))
    x = da.from_array(items, chunks=((5, 0, 7), (2, 3, 4)))
    expected = np.apply_along_axis(one_by_one, axis, items, filled)
    last = expected.take(-1, axis)
    for method in ("parallel", "sequential"):
        found = cdask.scan(x, filled, axis=axis, method=method)
        assert found.chunks == x.chunks
        np.testing.assert_array_equal(found.compute(), expected)
    after = np.where(np.isnan(expected), 7, expected)
    whole = np.concatenate([np.full_like(after.take([0], axis), 7), after], axis)
    found = cdask.scan(x, filled, axis=axis, exclusive=True, init=7)
    np.testing.assert_array_equal(found.compute(), whole.take(range(items.shape[axis]), axis))
    found = cdask.reduce(x, filled, axis=axis, commutative=False)
    np.testing.assert_array_equal(found.compute(), last)
    kept = cdask.reduce(x, filled, axis=axis, commutative=False, keepdims=True)
    assert kept.compute().shape == kept.shape == (*items.shape[:axis], 1, *items.shape[axis + 1 :])


def test_all_axes_in_order(rng):
    items = gaps(rng, (6, 7))
    x = da.from_array(items, chunks=(4, 3))
    expected = one_by_one(items.reshape(-1), filled)
    np.testing.assert_array_equal(cdask.scan(x, filled).compute(), expected)
    assert cdask.reduce(x, filled, commutative=False).compute() == expected[-1]
    counts = rng.integers(0, 9, (4, 5, 6))
    y = da.from_array(counts, chunks=2)
    for axis in (None, (0, 2), (1,), (0, 1)):
        for keepdims in (False, True):
            found = cdask.reduce(y, axis=axis, keepdims=keepdims)
            assert np.array_equal(found.compute(), counts.sum(axis, keepdims=keepdims))
            assert found.shape == counts.sum(axis, keepdims=keepdims).shape


def test_masked_arrays_are_refused():
    x = da.ma.masked_equal(da.from_array(np.arange(6), chunks=2), 3)
    for call in (cdask.sum, cdask.scan, cdask.sort, cdask.unique):
        with pytest.raises(TypeError, match="x: expected blocks of NumPy's .*, got MaskedArray"):
            call(x)


def test_dtypes_and_no_items():
    halves = np.full(3000, 0.25, np.float16)
    x = da.from_array(halves, chunks=1000)
    total = cdask.reduce(x)
    assert (total.dtype, total.compute()) == (np.float16, 750)
    empty = da.from_array(np.zeros(0), chunks=1)
    assert cdask.reduce(empty).compute() == 0
    assert cdask.reduce(empty, filled, init=3, commutative=False).compute() == 3
    assert cdask.scan(empty, filled).compute().shape == (0,)
    with pytest.raises(ValueError, match="no items has no result"):
        cdask.reduce(empty, filled).compute()


def sums_of_nothing(shape, chunks, **named):
    return cdask.sum(da.from_array(np.zeros(shape), chunks=chunks), **named).compute()


def test_a_sum_of_nothing_is_zero_and_one_of_negative_zeros_is_not():
    for found in (
        sums_of_nothing(0, 1),
        sums_of_nothing((2, 0), (1, 1), axis=1),
        cdask.reduce(da.zeros(0, chunks=1)).compute(),
    ):
        assert not np.signbit(found).any() and not np.any(found)
    negative = chunked(np.array([-0.0, -0.0]), (1, 0, 1))
    assert np.signbit(cdask.sum(negative).compute())
    assert np.signbit(cdask.cumulative_sum(negative).compute()).all()
    greatest = cdask.scan(chunked(np.array([3.0, 5.0]), (1, 1)), np.maximum, exclusive=True)
    assert greatest.compute().tolist() == [-np.inf, 3.0]


def test_names_of_reductions(rng):
    items = rng.integers(-3, 4, (12, 9)).astype("i1")
    x = da.from_array(items, chunks=((5, 0, 7), (2, 7)))
    for name, axis in (("sum", None), ("max", 1), ("any", None), ("count_nonzero", None)):
        found = getattr(cdask, name)(x, axis=axis, keepdims=True)
        expected = np.asarray(getattr(np, name)(items, axis=axis, keepdims=True))
        assert found.dtype == expected.dtype and np.array_equal(found.compute(), expected)
    assert np.array_equal(cdask.cumulative_sum(x, axis=0).compute(), np.cumsum(items, 0))
    values, counts = dask.compute(*cdask.unique_counts(x.astype(np.int64)))
    assert np.array_equal([values, counts], np.unique(items, return_counts=True))
    with pytest.raises(ValueError, match="no items has no result"):
        cdask.min(x[:0]).compute()
    with pytest.raises(TypeError, match="x: max takes real numbers, got complex128"):
        cdask.max(x.astype(complex))
    assert cdask.min(x).name != cdask.reduce(x, np.minimum).name


# --- Counts, and the first k --------------------------------------------------------------------------------


def test_histograms(rng):
    items = np.append(rng.normal(size=97), [np.nan, -3, 3])
    for chunks in ((50, 0, 50), (5,) * 20):
        x = unknown(chunked(items, chunks))
        for bins in (dict(bins=7, range=(-3, 3)), dict(bins=[-1, 0, 0.5, 4])):
            found, expected = cdask.histogram(x, **bins), np.histogram(items, **bins)
            assert np.array_equal(found.hist.compute(), expected[0])
            assert np.array_equal(found.edges, expected[1])
    with pytest.raises(TypeError, match="range: expected two numbers"):
        cdask.histogram(x, bins=5)


def test_top_k_has_the_first_of_equal_items(rng):
    items = rng.integers(0, 5, 40)
    first = np.argsort(-items, kind="stable")
    for chunks in CHUNKS:
        for x in (chunked(items, chunks), unknown(chunked(items, chunks))):
            found = cdask.top_k(x, 12)
            assert np.array_equal(found.indices.compute(), first[:12])
            assert np.array_equal(found.values.compute(), items[first[:12]])
    with pytest.raises(ValueError, match="k: expected at most 40, the length of the axis, got 41"):
        cdask.top_k(x, 41).values.compute()
    rows = gaps(rng, (7, 8))
    for axis in (0, 1, None):
        found = cdask.top_k(da.from_array(rows, chunks=(3, 3)), 4, axis=axis, largest=False)
        expected = arrays.top_k(rows, 4, axis=axis, largest=False)
        np.testing.assert_array_equal(found.values.compute(), expected.values)
        assert np.array_equal(found.indices.compute(), expected.indices)


def test_where_extremes_are(rng):
    items = gaps(rng, (7, 8))
    known = np.nan_to_num(items, nan=7)
    for given, chunks in ((items, (3, 3)), (known, (7, 3)), (known, ((0, 4, 3), (5, 0, 3)))):
        x = da.from_array(given, chunks=chunks)
        for name in ("argmin", "argmax"):
            for axis, keepdims in ((None, False), (0, True), (1, False), (None, True)):
                found = getattr(cdask, name)(x, axis=axis, keepdims=keepdims)
                expected = getattr(np, name)(given, axis=axis, keepdims=keepdims)
                assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
                assert np.array_equal(found.compute(), expected)
    assert cdask.argmax(unknown(chunked(known[0], (0, 3, 5)))).compute() == np.argmax(known[0])
    assert cdask.argmin(da.from_array(np.array(3.0)), keepdims=True).compute().shape == ()
    with pytest.raises(ValueError, match="x: argmin of no items has no result"):
        cdask.argmin(x[:0], axis=0).compute()
    with pytest.raises(TypeError, match="x: argmax takes real numbers, got complex128"):
        cdask.argmax(x.astype(complex))


# --- Sorts, sets and runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", CHUNKS, ids=["even", "holes", "one", "many"])
def test_sorts(rng, chunks):
    items = rng.integers(0, 60, 40)
    x = unknown(chunked(items, chunks))
    assert np.array_equal(cdask.sort(x).compute(), np.sort(items))
    assert np.array_equal(cdask.sort(x, descending=True, npartitions=3).compute(), np.sort(items)[::-1])
    stable = items[np.argsort(items & 3, kind="stable")]
    assert np.array_equal(cdask.sort(x, less=low_bits).compute(), stable)
    numbers = gaps(rng, 40)
    np.testing.assert_array_equal(cdask.sort(chunked(numbers, chunks)).compute(), np.sort(numbers))


@pytest.mark.parametrize("kind", ["random", "equal", "sorted"])
def test_sorted_blocks_are_alike(rng, kind):
    items = {"random": rng.integers(0, 999, 9000), "equal": np.zeros(9000, int), "sorted": np.arange(9000)}
    found = cdask.sort(chunked(items[kind], (100, 8000, 900)), npartitions=10)
    sizes = [len(each) for each in dask.compute(*found.to_delayed().ravel())]
    assert sum(sizes) == 9000 and 800 <= min(sizes) <= max(sizes) <= 1000


def test_many_blocks_are_sorted_in_few_tasks(rng):
    items = rng.integers(0, 60, 3000)
    x = da.from_array(items, chunks=10)
    found = cdask.sort(x, less=low_bits)
    assert found.npartitions == 300 and len(dict(found.__dask_graph__())) < 64**2 + 6 * 300
    sizes = [len(each) for each in dask.compute(*found.to_delayed().ravel())]
    assert sum(sizes) == 3000 and max(sizes) <= 20
    assert np.array_equal(found.compute(), items[np.argsort(items & 3, kind="stable")])
    assert np.array_equal(cdask.sort(x, npartitions=2).compute(), np.sort(items))


def test_quantiles(rng):
    items = rng.integers(0, 60, (9, 7))
    x = da.from_array(items, chunks=(4, 3))
    for method in ("linear", "nearest"):
        found = cdask.quantile(x, [[0, 0.1], [0.55, 1]], method=method)
        expected = arrays.quantile(items, [[0, 0.1], [0.55, 1]], method=method)
        assert found.dtype == expected.dtype and np.array_equal(found.compute(), expected)
    assert float(cdask.median(x).compute()) == np.median(items)
    assert np.isnan(float(cdask.median(chunked(gaps(rng, 40), (9, 31))).compute()))
    assert np.array_equal(cdask.cumulative_prod(x % 3, axis=0).compute(), np.cumprod(items % 3, 0))


def test_sorts_along_axes(rng):
    items = rng.integers(0, 60, (12, 9))
    x = da.from_array(items, chunks=(5, 4))
    for axis in (0, 1, -1, None):
        assert np.array_equal(cdask.sort(x, axis=axis).compute(), np.sort(items, axis))
    rows = x[da.ones(len(x), chunks=(x.chunks[0],), dtype=bool)]
    assert np.array_equal(cdask.sort(rows, axis=0).compute(), np.sort(items, 0))


@pytest.mark.parametrize("chunks", CHUNKS, ids=["even", "holes", "one", "many"])
def test_runs_across_blocks(rng, chunks):
    keys, numbers = np.sort(rng.integers(0, 30, 40)), gaps(rng, 40)
    keys[10:36] = keys[10]  # over several blocks
    found = cdask.reduce_by_key(chunked(keys, chunks), chunked(numbers, chunks), filled, equal=same_ten)
    expected = arrays.reduce_by_key(keys, numbers, filled, equal=same_ten)
    assert np.array_equal(found.keys.compute(), expected.keys)
    np.testing.assert_array_equal(found.values.compute(), expected.values)
    items = rng.integers(0, 8, 40)
    assert np.array_equal(cdask.unique(chunked(items, chunks)).compute(), np.unique(items))


def test_unique_of_any_shape_and_of_nan(rng):
    items = gaps(rng, (6, 7))
    found = cdask.unique(da.from_array(items, chunks=(2, 3))).compute()
    np.testing.assert_array_equal(found, arrays.unique_values(items))
    assert np.isnan(found).sum() == np.isnan(items).sum()


def test_keys_of_structs_and_other_chunks():
    keys = np.array([(1, 1), (1, 1), (1, 2), (1, 2)], Affine.dtype)
    found = cdask.reduce_by_key(chunked(keys, (3, 1)), chunked(np.arange(4), (1, 2, 1)))
    assert found.keys.compute().tolist() == [(1, 1), (1, 2)]
    assert found.values.compute().tolist() == [1, 5]
    known, other = chunked(np.arange(4), (3, 1)), chunked(np.arange(4), (2, 2))
    with pytest.raises(ValueError, match="x: expected as many items as `keys` has, 4, got 5"):
        cdask.reduce_by_key(known, chunked(np.arange(5), (5,)))
    with pytest.raises(ValueError, match="x: expected as many blocks as `keys` has, 2"):
        cdask.reduce_by_key(known, unknown(chunked(np.arange(4), (1, 1, 2))))
    with pytest.raises(ValueError, match="as many items in each block"):
        cdask.reduce_by_key(unknown(known), unknown(other)).values.compute()


def test_blocks_without_items():
    x = da.arange(10, chunks=3)
    none = x[x > 100]  # four blocks of unknown sizes
    holes = da.zeros((3, 0), chunks=(2, 1)).astype(int)
    for items in (none, holes):
        for found in (cdask.sort(items, axis=None), cdask.unique(items), *cdask.unique_counts(items)):
            assert found.compute().shape == (0,)
        for find in (cdask.median, lambda x: cdask.quantile(x, [0.5])):
            with pytest.raises(ValueError, match="x: expected at least one item for quantiles, got none"):
                find(items).compute()
    keys, sums = cdask.reduce_by_key(chunked(np.zeros(0, int), (0, 0, 0)), chunked(np.zeros(0, int), (0, 0)))
    assert keys.compute().shape == sums.compute().shape == (0,)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((1, 1), ((1, 0), (0, 1))), ((2, 3), ((1, 0, 1), (0, 2, 1))), ((3, 0), ((1, 2), (0, 0))), ((0, 2), 1)],
)
def test_axes_of_which_some_blocks_have_no_items(shape, chunks):
    """All items in C's order, which Dask's own `reshape` gets wrong."""
    items = np.arange(np.prod(shape)).reshape(shape)
    x = da.from_array(items, chunks=chunks)
    assert_eq(cdask.scan(x), items.cumsum())
    assert_eq(cdask.sort(x, axis=None, descending=True), items.reshape(-1)[::-1])


@settings(max_examples=10, deadline=None)
@drawn(data=st.data(), chunks=st.lists(st.integers(0, 9), min_size=1, max_size=20))
def test_whatever_the_chunks(data, chunks):
    """As NumPy has it, for sums of whatever is in blocks."""
    n = sum(chunks)
    items = np.array(data.draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), np.int64)
    x = chunked(items, tuple(chunks))
    k = data.draw(st.integers(0, n))
    keys, heads = np.array([], int), np.flatnonzero(np.diff(items, prepend=np.nan))
    sums = np.add.reduceat(items, heads) if n else items
    found = cdask.reduce_by_key(x, x)
    keys, values, total, sums_to, ordered, top, different = dask.compute(
        *found, cdask.reduce(x), cdask.scan(x), cdask.sort(x), cdask.top_k(x, k).indices, cdask.unique(x)
    )
    assert np.array_equal(keys, items[heads]) and np.array_equal(values, sums)
    assert total == items.sum() and np.array_equal(sums_to, items.cumsum())
    assert np.array_equal(ordered, np.sort(items)) and np.array_equal(different, np.unique(items))
    assert np.array_equal(top, np.argsort(-items, kind="stable")[:k])


CALLS = {
    **{name: getattr(cdask, name) for name in ("all", "any", "count_nonzero", "max", "min", "prod", "sum")},
    **{name: getattr(cdask, name) for name in ("argmax", "argmin", "median", "unique", "unique_counts")},
    **{name: partial(getattr(cdask, name), axis=-1) for name in ("cumulative_prod", "cumulative_sum")},
    "histogram": lambda x: cdask.histogram(x, bins=3, range=(0, 9)).hist,
    "quantile": lambda x: cdask.quantile(x, [0.2, 0.5]),
    "reduce": lambda x: cdask.reduce(x, axis=-1),
    "reduce_by_key": lambda x: cdask.reduce_by_key(x.reshape(-1), x.reshape(-1)),
    "scan": lambda x: cdask.scan(x, method="sequential"),
    "sort": lambda x: (cdask.sort(x), cdask.sort(x, axis=None, npartitions=2)),
    "top_k": lambda x: cdask.top_k(x, 2),
}


@pytest.mark.parametrize("name", cdask.__all__)
def test_graphs_are_what_dask_expects_of_them(rng, name):
    """Layers name the layers that they take keys of; chunks, dtypes and types of arrays are true."""
    items = rng.integers(0, 9, (4, 5))
    for x in (da.from_array(items, chunks=(3, 2)), da.from_array(items[0], chunks=2)):
        found = CALLS[name](x)
        found = found if isinstance(found, tuple) else (found,)
        for each in found:
            assert_eq(each, np.asarray(each.compute()), check_type=False)
        HighLevelGraph.merge(*(each.dask for each in found)).validate()


# --- Graphs -------------------------------------------------------------------------------------------------


def all_of(x, keys, op, less):
    found = cdask.reduce_by_key(keys, x, op)
    histogram = cdask.histogram(x, bins=4, range=(0, 1)).hist
    some = cdask.reduce(x, op), cdask.scan(x, op, init=1), cdask.sort(x, less=less), cdask.unique(x)
    return *found, *cdask.top_k(x, 3), histogram, *some


def plus_one(a, b):
    return a + b + 1


def sample(chunks=(3, 4)):
    return chunked(np.arange(7.0), chunks), chunked(np.arange(7) // 3, chunks)


def test_nothing_is_built_while_a_graph_is_made(monkeypatch):
    def ask(spec, answer):
        raise AssertionError(f"{spec.algorithm} is built")

    cupar.cache.clear(disk=False)
    monkeypatch.setattr(
        obtain, "observer", type("Never", (), {"cc": None, "is_ahead": False, "observe": ask})
    )
    found = all_of(*sample(), plus_one, low_bits)
    with pytest.raises(AssertionError, match="is built"):
        found[-3].compute()


_NAMES = """
import sys
sys.path[:0] = {path!r}
import test_dask
print(*[each.name for each in test_dask.all_of(*test_dask.sample(), test_dask.plus_one, test_dask.low_bits)])
"""


def test_names_of_tasks_follow_from_what_is_done():
    found = all_of(*sample(), plus_one, low_bits)
    names = [each.name for each in found]
    assert len({*names}) == len(names)
    assert [each.name for each in all_of(*sample(), lambda a, b: a + b + 1, low_bits)] == names
    program = _NAMES.format(path=[str(each) for each in Path(__file__).parents[:2]])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.split() == names, done.stderr
    others = all_of(*sample(), lambda a, b: a + b + 2, by_a)
    assert not {each.name for each in others[:2]} & {*names}
    x = sample()[0]
    scans = [
        cdask.scan(x, *given, **named).name
        for given, named in (
            ((plus_one,), {}),
            ((plus_one,), {"init": 2}),
            ((plus_one,), {"dtype": "f4"}),
            ((plus_one,), {"method": "sequential"}),
            ((), {}),
            ((max,), {}),
            ((cupar.OpKind.MAXIMUM,), {}),
            ((np.maximum,), {}),
        )
    ]
    assert len({*scans}) == len(scans)


SCALE = 2


def scaled(a, b):
    return a * SCALE + b


def test_an_operator_that_changes_is_never_stale(monkeypatch):
    x = chunked(np.ones(2, int), (1, 1))
    before = cdask.reduce(x, scaled, commutative=False)
    assert before.compute() == 3
    import numba  # not above: workers' threads would import it at once, of which one sees half of it

    by_numba = cdask.reduce(x, numba.njit(scaled), commutative=False)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 5)
    after = cdask.reduce(x, scaled, commutative=False)
    assert after.name != before.name
    assert after.compute() == 6
    for stale in (before, by_numba):
        with pytest.raises(RuntimeError, match="op: expected scaled as it was when the graph was made"):
            stale.compute()
    table = np.array([1, 2])
    weighed = lambda a, b: a + b * table[1]
    first = cdask.reduce(x, weighed)
    table[1] = 3
    assert cdask.reduce(x, weighed).name != first.name


def test_an_operator_that_was_an_error_is_none_afterwards(monkeypatch):
    """What a worker gets is pickled: first an operator that has changed, and then as it was."""
    from cupar._dask.shipped import ShippedOperator, shipped

    def of(scale):
        return lambda a, b: a + b * scale

    real = np.dtype(float)
    token = shipped("op", of(3.25), (real, real), real, True).token
    stale, good = ShippedOperator(of(2.25), True, token), ShippedOperator(of(3.25), True, token)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="as it was when the graph was made"):
            stale.op()
    assert good.op() is stale.op() and good.op()(1, 1) == 4.25


def test_operators_arrive_as_one_object():
    cloudpickle = pytest.importorskip("cloudpickle")
    from cupar._dask.shipped import shipped

    real = np.dtype(float)
    for op in (lambda a, b: a + b + SCALE, plus_one, max, np.add, cupar.OpKind.PLUS):
        sent = shipped("op", op, (real, real), real, True)
        one, other = (pickle.loads(cloudpickle.dumps(sent)) for _ in range(2))
        assert one.op() is other.op() and one.token == sent.token
        assert callable(one.op()) or one.op() is op


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: cdask.reduce(np.ones(3)), TypeError, "x: expected a dask array, got ndarray"),
        (lambda x: cdask.scan(x.astype(object)), TypeError, "x: "),
        (lambda x: cdask.scan(x, lambda a: a), TypeError, "op: .*takes 1 positional argument"),
        (lambda x: cdask.scan(x, plus_one, exclusive=True), TypeError, "init: an exclusive scan begins"),
        (lambda x: cdask.scan(x, method="blelloch"), ValueError, "method: expected 'parallel' or"),
        (lambda x: cdask.reduce(x, axis=1), ValueError, "axis: expected from -1 to 0"),
        (lambda x: cdask.reduce(x, axis=(0,), commutative=False), TypeError, "axis: expected an integer"),
        (lambda x: cdask.sort(x, npartitions=0), ValueError, "npartitions: expected 1 or more, got 0"),
        (lambda x: cdask.sort(x.astype(Affine.dtype)), TypeError, "less: expected a comparison"),
        (lambda x: cdask.unique(x.astype(Affine.dtype)), TypeError, "x: expected an array of numbers"),
        (lambda x: cdask.top_k(x, 1.5), TypeError, "k: expected an integer, got float"),
        (lambda x: cdask.top_k(x, 1, largest="no"), TypeError, "largest: expected True or False, got 'no'"),
        (lambda x: cdask.sort(x, descending="no"), TypeError, "descending: expected True or False"),
        (lambda x: cdask.scan(x, exclusive="no"), TypeError, "exclusive: expected True or False"),
        (lambda x: cdask.reduce(x, commutative=None), TypeError, "commutative: expected True or False"),
        (lambda x: cdask.sum(x, keepdims="no"), TypeError, "keepdims: expected True or False"),
        (lambda x: cdask.argmax(x, keepdims="no"), TypeError, "keepdims: expected True or False"),
        (lambda x: cdask.reduce(x, cupar.RawOp("f", b"BC")), TypeError, "op: .*got a RawOp"),
    ],
)
def test_refusals(call, error, text):
    with pytest.raises(error, match=text):
        call(da.ones(3, chunks=2))


# --- Schedulers ---------------------------------------------------------------------------------------------


def check_all(rng):
    items, numbers = maps(rng, 40), gaps(rng, 40)
    for chunks in CHUNKS[:2]:
        x, y = chunked(items, chunks), chunked(numbers, chunks)
        keys = chunked(np.arange(40) // 15, chunks)
        found = dask.compute(
            cdask.scan(x, composed),
            cdask.scan(y, filled, method="sequential"),
            cdask.reduce(x, composed, commutative=False),
            cdask.reduce_by_key(keys, keys).values,
            cdask.sort(y),
            cdask.sort(x, less=by_a),
            cdask.unique(keys),
        )
        expected = one_by_one(items, composed), one_by_one(numbers, filled)
        assert found[0].tolist() == expected[0].tolist() and found[2] == expected[0][-1]
        np.testing.assert_array_equal(found[1], expected[1])
        assert found[3].tolist() == [0, 15, 20]
        np.testing.assert_array_equal(found[4], np.sort(numbers))
        assert found[5].tolist() == sorted(items.tolist(), key=lambda each: each[0])
        assert found[6].tolist() == [0, 1, 2]


def test_a_task_uses_one_core(monkeypatch):
    asked = []
    monkeypatch.setattr(threads, "cores", lambda: 8)
    monkeypatch.setattr(threads, "_ask", asked.append)

    def step(work=None, block=None):
        threads.in_threads(lambda part: None, range(9), 9)

    steps.on_blocks(step)(np.zeros(1))
    assert asked == []
    step()
    assert len(asked) == 7


def test_threads(rng):
    with dask.config.set(scheduler="threads", num_workers=3):
        check_all(rng)


@pytest.fixture
def in_process():
    """Have a cluster whose workers are threads of this process."""
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with dask.config.set(scheduler=None), cluster, distributed.Client(cluster) as client:
        yield client


def test_workers_sort_together(rng, in_process, monkeypatch):
    def exchange(group, send, recv, stream=None, plain=Group.exchange):
        assert not send[group.rank].size and not recv[group.rank].size  # it is copied to and from the host
        plain(group, send, recv, stream)

    monkeypatch.setattr(Group, "exchange", exchange)
    for chunks in ((10,) * 70, (0, 1, 90, 0, 300, 7, 0), (0, 0, 0, 30)):
        numbers, pairs = gaps(rng, sum(chunks)), maps(rng, sum(chunks))
        found = cdask.sort(chunked(numbers, chunks), descending=True, method="workers")
        blocks = dask.compute(*found.to_delayed().ravel())
        np.testing.assert_array_equal(np.concatenate(blocks), np.sort(numbers)[::-1])
        assert tuple(map(len, blocks)) == found.chunks[0]
        assert max(map(len, blocks)) <= len(numbers) // len(chunks) + 1
        np.testing.assert_array_equal(found[-3:].compute(), np.sort(numbers)[::-1][-3:])  # of one rank
        found = cdask.sort(unknown(chunked(pairs, chunks)), less=by_a, npartitions=2, method="workers")
        assert found.npartitions == 2
        assert found.compute().tolist() == sorted(pairs.tolist(), key=lambda each: each[0])


def test_workers_sort_what_has_many_blocks(in_process):
    many, few = (chunked(np.arange(10.0 * n)[::-1], (10,) * n) for n in (65, 64))
    sorts = {
        name: cdask.sort(many, **given)
        for name, given in (("own", {}), ("workers", {"method": "workers"}), ("tasks", {"method": "tasks"}))
    }
    assert sorts["own"].name == sorts["workers"].name != sorts["tasks"].name
    assert len(dict(sorts["own"].__dask_graph__())) < 4 * 65 and np.isnan(cdask.sort(few).size)
    assert cdask.median(many).compute() == 324.5
    with dask.config.set(scheduler="threads"):
        assert cdask.sort(many).name == sorts["tasks"].name
        with pytest.raises(
            ValueError, match="method: expected a Client of a Dask cluster, as 'workers' says"
        ):
            cdask.sort(many, method="workers")
        with pytest.raises(RuntimeError, match="method: expected tasks of a Dask cluster"):
            sorts["own"].compute()


def test_a_sort_of_workers_of_which_one_fails_or_goes(rng, in_process, monkeypatch):
    """An error is told to all, who can be tried again; if a worker has gone, all begin again.

    Rank 2 comes late to where ranks are told that.
    """
    from cupar._dask import pieces, workers

    async def _watch(comm, name, rank, plain=workers._watch):
        await asyncio.sleep(0.3 * (rank == 2))
        return await plain(comm, name, rank)

    monkeypatch.setattr(workers, "_watch", _watch)
    plain, faults = pieces.in_order, []

    def in_order(*given):
        group = given[5]
        if group.rank == 1 and faults:
            if faults.pop() == "raises":
                raise MemoryError("too little")
            group.comm._watched.abort()
        return plain(*given)

    monkeypatch.setattr(pieces, "in_order", in_order)
    items = gaps(rng, 300)
    x = chunked(items, (10,) * 30)
    found, again, at_once = (cdask.sort(x, method="workers", timeout=60 + i) for i in range(3))
    faults.append("raises")
    with pytest.raises((MemoryError, GroupError), match="^too little$|rank 1 raised MemoryError: too little"):
        found.compute()
    for fault, sort, given in (("raises", again, {"retries": 3}), ("goes", at_once, {})):
        faults.append(fault)
        np.testing.assert_array_equal(sort.compute(**given), np.sort(items))
        assert not faults


def test_processes_of_a_cluster_find_builds_by_fingerprints(rng, session_cache):
    distributed = pytest.importorskip("distributed")
    check_all(rng)  # builds
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with dask.config.set(scheduler=None), cluster, distributed.Client(cluster) as client:
        check_all(rng)
        stats = client.run(cupar.cache.stats)
    assert [each.built for each in stats.values()] == [0, 0]
    assert all(each.disk for each in stats.values())
