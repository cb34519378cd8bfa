"""Exact splitters against a sort of everything."""

from itertools import pairwise

import numpy as np
import pytest

from cupar._fleet import splitters


def shards_of(sizes, keys):
    cuts = np.cumsum([0, *sizes])
    return [np.sort(keys[begin:end]) for begin, end in pairwise(cuts)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 20])
@pytest.mark.parametrize("highest", [1, 5, 10**6])
def test_each_range_has_what_it_should(rng, ranks, highest):
    for n in (0, 1, ranks + 1, 50, 5000, 100_000):
        sizes = rng.multinomial(n, rng.dirichlet(np.full(ranks, 0.5))).tolist()
        shards = shards_of(sizes, rng.integers(0, highest, n))
        rounds = []

        def sampler(places, shards=shards, rounds=rounds):
            rounds.append(sum(map(len, places)))
            keys = np.concatenate([shard[each] for shard, each in zip(shards, places, strict=True)])
            ids = np.repeat(np.arange(len(places)), [*map(len, places)])
            order = np.lexsort((np.concatenate(places), ids, keys))
            return ids[order], np.concatenate(places)[order]

        found = splitters.cuts(sizes, np.cumsum(sizes)[:-1], sampler)
        ids = np.repeat(np.arange(ranks), sizes)
        order = np.lexsort((np.concatenate([np.arange(each) for each in sizes]), ids, np.concatenate(shards)))
        for cut, end in zip(found, np.cumsum([0, *sizes]), strict=True):
            np.testing.assert_array_equal(cut, np.bincount(ids[order[:end]], minlength=ranks))
        assert len(rounds) <= 3 and sum(rounds) < 250_000


@pytest.mark.parametrize("step", [0, 1, 3])
def test_shards_of_billions_of_items(step):
    """Which are not there: item i of a shard is (2 + rank * step) * i, or all are equal."""
    sizes = [2**33 + 5, 0, 2**32 - 1, 1, 2**31 + 7, 2**34]
    slopes = np.array([2 + rank * step for rank in range(len(sizes))]) * (step != 0)

    def sampler(places):
        ids = np.repeat(np.arange(len(places)), [*map(len, places)])
        every = np.concatenate(places)
        order = np.lexsort((every, ids, slopes[ids] * every))
        return ids[order], every[order]

    ends = np.cumsum(sizes)[:-1]
    found = splitters.cuts(sizes, ends, sampler)
    np.testing.assert_array_equal(found.sum(1), [0, *ends, sum(sizes)])
    for cut in found[1:-1]:
        last = [(slopes[r] * (at - 1), r, at - 1) for r, at in enumerate(cut.tolist()) if at]
        first = [(slopes[r] * at, r, at) for r, at in enumerate(cut.tolist()) if at < sizes[r]]
        assert max(last) < min(first)


def test_samples_in_no_order_are_an_error():
    """No cut is returned that is none, whatever a comparison says; samples that tell nothing are an error."""
    shuffled = np.random.default_rng(0)

    def sampler(places):
        ids, all_places = np.repeat(np.arange(3), [*map(len, places)]), np.concatenate(places)
        order = shuffled.permutation(len(ids))
        return ids[order], all_places[order]

    def refused(size):
        try:
            found = splitters.cuts([size, size, size], [size, 2 * size], sampler)
        except ValueError as error:
            return "op: expected a strict weak order" in str(error)
        assert (np.diff(found, axis=0) >= 0).all() and (found.sum(1) == np.arange(4) * size).all()
        return False

    assert any(refused(size) for size in range(50, 90))
    with pytest.raises(ValueError, match="op: expected a strict weak order"):
        splitters.cuts([10, 10], [10], lambda places: (np.zeros(0, "i8"), np.zeros(0, "i8")))
