"""Records of shards against plain loops: what they reduce to, and what a shard is handed."""

import numpy as np
import pytest
from support.ranks import Affine, composed, last_nonzero

import cupar
from cupar._fleet.carry import Carry, KeyedCarry
from cupar._fleet.counts import three_of
from cupar._functions import libraries
from cupar._functions.calls import Work

M = 1_000_003


def same_ten(a, b):
    return a // 10 == b // 10


@pytest.fixture(autouse=True)
def on_the_cpu():
    with cupar.device("cpu"):
        yield


@pytest.fixture(scope="module")
def work():
    return Work(libraries.NUMPY, None)


def shards(rng, n, number):
    """Return the ranges of shards, of which some are empty."""
    sizes = rng.multinomial(n, rng.dirichlet(np.full(number, 0.4)))
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for end, size in zip(ends.tolist(), sizes.tolist(), strict=True)]


def maps(rng, n):
    found = np.zeros(n, Affine.dtype)
    found["a"], found["b"] = rng.integers(1, 9, n), rng.integers(0, 9, n)
    return found


CASES = {
    "maps": (maps, composed, lambda p, q: (p[0] * q[0] % M, (p[1] * q[0] + q[1]) % M)),
    "filled": (lambda rng, n: rng.integers(0, 3, n), last_nonzero, last_nonzero),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_init", [False, True])
def test_prefixes_are_what_comes_before(work, rng, name, has_init):
    items_of, op, plain_op = CASES[name]
    for n in (0, 1, 3, 40):
        items = items_of(rng, n)
        carry = Carry(op, items.dtype)
        init = carry.initial(items_of(rng, 1)) if has_init else carry.absent()
        records = np.zeros(6, carry.record)
        parts = shards(rng, n, 6)
        for r, part in enumerate(parts):
            if part.start < part.stop:
                shard = np.ascontiguousarray(items[part])
                total = carry.total(shard)
                work.run(total, carry.read(shard), carry.written(records[r : r + 1]), len(shard))
        expected = init["value"].tolist()[0] if has_init else None
        seen = iter(items.tolist())
        for r, part in enumerate(parts):
            out = carry.absent()
            carry.fold(work, records, r, out, init)
            assert bool(out["there"][0]) == (expected is not None)
            if expected is not None:
                assert carry.value_of(out).tolist() == [expected]
            for _ in range(part.stop - part.start):
                item = next(seen)
                expected = item if expected is None else plain_op(expected, item)


def test_runs_that_cross_shards(work, rng):
    for n in (0, 1, 4, 60, 200):
        for equality in (None, same_ten):
            keys = np.sort(rng.integers(0, 40, n))
            if n > 100:
                keys[20:150] = 7  # over many shards
            values = rng.integers(0, 4, n)
            carry = KeyedCarry(last_nonzero, values.dtype, keys.dtype, equality)
            parts = shards(rng, n, 7)
            records, runs = np.zeros(7, carry.record), []
            for r, part in enumerate(parts):
                k, v = keys[part].copy(), values[part].copy()
                unique, aggregates, count = np.zeros_like(k), np.zeros_like(v), np.zeros(1, np.int64)
                if len(k):
                    local = cupar.reduce_by_key(k, unique, v, aggregates, count, last_nonzero, equality)
                    local.run(k, unique, v, aggregates, count, len(k))
                    carry.border(work, k, k[-1:], aggregates, count, records[r : r + 1])
                runs.append((unique, aggregates, count))
            found = []
            for r, (unique, aggregates, count) in enumerate(runs):
                before, after = carry.absent(), carry.absent()
                carry.fold(work, records, r, before)
                carry.fold(work, records[r + 1 :], 6 - r, after)
                if count[0]:
                    counts = np.zeros(3, np.int64)
                    carry.mend(work, before, records[r : r + 1], after, aggregates, three_of(counts))
                    assert counts[1] == len(found)
                    count = counts
                found += zip(unique[: count[0]].tolist(), aggregates[: count[0]].tolist(), strict=True)
            assert found == plain_runs(keys, values, equality or (lambda a, b: a == b))


def plain_runs(keys, values, equal):
    found = []
    for i, (key, value) in enumerate(zip(keys.tolist(), values.tolist(), strict=True)):
        if i and equal(keys[i - 1], keys[i]):
            found[-1] = key, last_nonzero(found[-1][1], value)
        else:
            found.append((key, value))
    return found


def test_structs_of_many_fields_are_refused():
    wide = np.dtype([(f"x{i}", "i4") for i in range(9)])
    with pytest.raises(TypeError, match="at most 8 fields"):
        Carry(lambda a, b: a, wide)
