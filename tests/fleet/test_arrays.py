"""Functions of arrays in shards against NumPy's, on ranks that are threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support import ranks

from cupar import arrays as cupar_arrays
from cupar import distributed
from cupar.distributed import arrays

SIZES = [300, 0, 5, 95]


@pytest.fixture(scope="module")
def whole():
    return np.random.default_rng(5).integers(0, 50, sum(SIZES))


@pytest.fixture(scope="module")
def on_ranks(whole):
    """Return a function that calls another one with each rank's shard, and returns what they return."""
    groups = distributed.threads(len(SIZES), 60)
    ends = np.cumsum(SIZES)

    def call(function, given=whole):
        def of_rank(group):
            end = ends[group.rank]
            return function(given[end - SIZES[group.rank] : end].copy(), group)

        with ThreadPoolExecutor(len(SIZES)) as pool:
            return list(pool.map(of_rank, groups))

    return call


def test_what_is_on_every_rank(on_ranks, whole):
    total = on_ranks(lambda x, group: arrays.reduce(x, ranks.plus, init=7, group=group))
    assert [each.shape for each in total] == [()] * 4 and {*map(int, total)} == {whole.sum() + 7}
    ordered = on_ranks(lambda x, group: arrays.reduce(x, ranks.last_nonzero, commutative=False, group=group))
    assert {*map(int, ordered)} == {whole[whole != 0][-1]}
    assert {*map(int, on_ranks(lambda x, group: arrays.sum(x, group=group)))} == {whole.sum()}
    numbers = whole.astype("f8")
    numbers[[7, 310]] = np.nan, np.copysign(np.nan, -1)  # the greatest, with any sign
    first = np.argsort(np.nan_to_num(-numbers, nan=-99), kind="stable")[:9]
    for found in on_ranks(lambda x, group: arrays.top_k(x, 9, group=group), numbers):
        np.testing.assert_array_equal(found.indices, first)
        np.testing.assert_array_equal(found.values, np.sort(numbers)[::-1][:9])
    for found in on_ranks(lambda x, group: arrays.histogram(x, range=(0, 49), group=group)):
        hist, edges = np.histogram(whole, 10, (0, 49))
        np.testing.assert_array_equal(found.hist, hist)
        np.testing.assert_array_equal(found.edges, edges)
    values = np.array([0, 9, 25, 60])
    ordered = np.sort(whole)
    for found in on_ranks(lambda x, group: arrays.searchsorted(x, values, group=group), ordered):
        np.testing.assert_array_equal(found, np.searchsorted(ordered, values))


def test_places_in_orders_of_numpy(on_ranks, whole):
    """NaN is the last, and complex numbers have an order."""
    gaps = np.where(whole % 5 == 2, np.nan, whole)
    for given, values in ((np.sort(gaps), [np.nan, 7, 99]), (np.sort(gaps * (1 + 2j)), [1j, 9, 40 + 2j])):
        x2 = np.array(values, given.dtype)
        for side in ("left", "right"):
            found = on_ranks(
                lambda x, group, s=side, v=x2: arrays.searchsorted(x, v, side=s, group=group), given
            )
            for each in found:
                np.testing.assert_array_equal(each, np.searchsorted(given, x2, side))


def test_what_is_in_shards(on_ranks, whole):
    def same(function, expected, given=whole):
        found = on_ranks(function, given)
        np.testing.assert_array_equal(np.concatenate(found), expected)
        return [*map(len, found)]

    sums = np.cumsum(whole)
    assert same(lambda x, group: arrays.scan(x, ranks.plus, group=group), sums) == SIZES
    exclusive = same(lambda x, group: arrays.scan(x, init=5, exclusive=True, group=group), 5 + sums - whole)
    assert exclusive == SIZES
    assert same(lambda x, group: arrays.sort(x, group=group), np.sort(whole)) == SIZES
    order = np.argsort(whole & 15, kind="stable")
    assert same(lambda x, group: arrays.argsort(x, less=ranks.low_bits, group=group), order) == SIZES
    same(lambda x, group: arrays.copy_if(x, ranks.is_large, group=group), whole[whole > 25])


def test_names_of_reductions(on_ranks, whole):
    small = (whole - 20).astype("i1")
    for name in ("sum", "min", "all"):
        for found in on_ranks(lambda x, group, name=name: getattr(arrays, name)(x, group=group), small):
            expected = getattr(np, name)(small)
            assert found == expected and found.dtype == np.asarray(expected).dtype
    gap = np.where(whole == 7, np.nan, whole)
    assert all(np.isnan(each) for each in on_ranks(lambda x, group: arrays.max(x, group=group), gap))
    products = np.concatenate(on_ranks(lambda x, group: arrays.cumulative_prod(x, group=group), small))
    np.testing.assert_array_equal(products, np.cumprod(small))
    assert products.dtype == np.int64
    for name, given in (("min", small), ("argmin", whole)):
        told = on_ranks(
            lambda x, group, name=name: _told(lambda: getattr(arrays, name)(x[:0], group=group)), given
        )
        assert {*told} == {"ValueError: x: no shard has items"}


def test_where_extremes_are(on_ranks, whole):
    gap = np.where(np.arange(len(whole)) == 302, np.nan, whole)
    for name, given in [("argmin", whole), ("argmax", gap)]:
        found = on_ranks(lambda x, group, name=name: getattr(arrays, name)(x, group=group), given)
        assert {*map(int, found)} == {int(getattr(np, name)(given))}
        assert all(each.dtype == np.int64 for each in found)


def test_different_items_and_quantiles(on_ranks, whole):
    gaps = np.where(whole % 9 == 7, -np.nan, whole * 0.5)
    gaps[whole == 3] = -0.0
    for given in (gaps, np.zeros_like(gaps)):
        expected = cupar_arrays.unique_counts(given)
        found = np.concatenate(on_ranks(lambda x, group: arrays.unique_values(x, group=group), given))
        np.testing.assert_array_equal(found, expected.values)
        values, counts = zip(
            *on_ranks(lambda x, group: arrays.unique_counts(x, group=group), given), strict=True
        )
        np.testing.assert_array_equal(np.concatenate(values), expected.values)
        np.testing.assert_array_equal(np.concatenate(counts), expected.counts)
    order = np.concatenate(on_ranks(lambda x, group: arrays.argsort(x, group=group), gaps))
    np.testing.assert_array_equal(order, np.argsort(gaps, kind="stable"))
    q = [[0, 0.1], [0.5, 1]]
    for given, methods in ((whole, ["linear"]), (gaps, ["linear", "nearest"])):
        for method in methods:
            expected = cupar_arrays.quantile(given, q, method=method)
            for found in on_ranks(
                lambda x, group, m=method: arrays.quantile(x, q, method=m, group=group), given
            ):
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
    assert {*map(float, on_ranks(lambda x, group: arrays.median(x, group=group)))} == {np.median(whole)}
    told = on_ranks(lambda x, group: _told(lambda: arrays.quantile(x, group.rank / 4, group=group)))
    assert len({*told}) == 1 and told[0].startswith("ValueError: ranks differ in q: rank 0: 0.0")


def test_runs_in_shards(on_ranks):
    keys = (np.arange(sum(SIZES)) // 70).astype("i4")
    found = on_ranks(lambda x, group: arrays.run_length_encode(x, group=group), keys)
    assert [each.keys.tolist() for each in found] == [[0, 1, 2, 3], [], [], [4, 5]]
    assert np.concatenate([each.values for each in found]).tolist() == np.bincount(keys).tolist()
    found = on_ranks(
        lambda x, group: arrays.reduce_by_key(x, x.astype("i8"), ranks.last_nonzero, group=group), keys
    )
    assert np.concatenate([each.values for each in found]).tolist() == [0, 1, 2, 3, 4, 5]


def test_items_of_several_fields(on_ranks):
    on_ranks(lambda x, group: ranks.check_fields(group))


def _told(function, *given):
    try:
        return function(*given)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_an_error_of_one_rank_is_raised_on_all_and_the_next_call_works(on_ranks):
    """The reduction, the sort and the top-k talk first about sizes, types and places."""
    wrong = [
        (lambda x, group: arrays.reduce(x.tolist() if group.rank == 1 else x, ranks.plus, group=group), "x"),
        (lambda x, group: arrays.sum(x.reshape(1, -1) if group.rank == 1 else x, group=group), "x"),
        (lambda x, group: arrays.argsort([] if group.rank == 1 else x, group=group), "x"),
        (lambda x, group: arrays.histogram(x, range=(0, 1) if group.rank != 1 else 7, group=group), "range"),
        (
            lambda x, group: arrays.searchsorted(x, x, side="up" if group.rank == 1 else "left", group=group),
            "side",
        ),
        (
            lambda x, group: arrays.sort(x, **{"downwards": True} if group.rank == 1 else {}, group=group),
            "sort() got an unexpected keyword argument 'downwards'",
        ),
    ]
    for function, name in wrong:
        told = on_ranks(lambda x, group, function=function: _told(function, x, group))
        assert told[1].split(": ")[1] == name
        assert {each.split(": ")[0] for each in told[:1] + told[2:]} == {"GroupError"}
        assert f"rank 1 raised {told[1]}" in told[0]
    told = on_ranks(lambda x, group: _told(lambda: arrays.top_k(x * 1.0, 3 + (group.rank > 1), group=group)))
    assert {*told} == {"ValueError: ranks differ in k: ranks 0, 1: 3; ranks 2, 3: 4"}
    assert len({*map(int, on_ranks(lambda x, group: arrays.sum(x, group=group)))}) == 1


def test_zeros_that_are_given_keep_their_sign():
    x, nothing = np.array([-0.0, -0.0]), np.zeros(0)
    for init in (-0.0, 0.0):
        for found in (
            arrays.reduce(x, init=init),
            arrays.scan(x, init=init)[1],
            arrays.reduce(nothing, init=init),
        ):
            assert found == 0 and np.signbit(found) == np.signbit(init)
    assert not np.signbit(arrays.sum(nothing))


def test_what_has_no_result():
    nothing = np.zeros(0, "i8")
    with pytest.raises(ValueError, match="x: no shard has items"):
        arrays.reduce(nothing, ranks.plus)
    assert arrays.sum(nothing) == 0
    with pytest.raises(TypeError, match="init: an exclusive scan begins with it"):
        arrays.scan(nothing, ranks.plus, exclusive=True)
    with pytest.raises(ValueError, match=r"x: expected a shard of one dimension, got shape \(2, 2\)"):
        arrays.sort(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="side: expected 'left' or 'right', got 'up'"):
        arrays.searchsorted(nothing, nothing, side="up")


@pytest.mark.parametrize(
    "name, call",
    [
        ("descending", arrays.sort),
        ("descending", arrays.argsort),
        ("exclusive", arrays.scan),
        ("commutative", arrays.reduce),
        ("largest", lambda x, largest: arrays.top_k(x, 1, largest=largest)),
    ],
)
def test_flags(name, call):
    with pytest.raises(TypeError, match=f"^{name}: expected True or False, got 'no'"):
        call(np.arange(3), **{name: "no"})
