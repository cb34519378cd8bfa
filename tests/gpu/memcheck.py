"""A short run of every kernel for compute-sanitizer, with arrays that end where their last item ends.

    python tests/gpu/memcheck.py && compute-sanitizer --tool memcheck python tests/gpu/memcheck.py [WHAT...]

The first run fills the cache, so that the second has no compilers to slow down. `--tool racecheck` looks for
races in shared memory, `--tool synccheck` for barriers that not all threads reach. CUPAR_TIER picks the
kernels of scans. WHAT picks functions below, types (i1, u2, i4, f8) and sizes by their names, as in
`memcheck.py tuples u2 100003`; where it has none of a kind, all of that kind run.
"""

import sys

import cupy as cp
import numpy as np

import cupar
from cupar._functions.calls import enter
from cupar._functions.recurrences import recurrence_gradients
from cupar._kernels import nth_element as plans_of_nth_element
from cupar._kernels import policies
from cupar._kernels import segmented_reduce as plans_of_segmented_reduce
from cupar._kernels import top_k as plans_of_top_k

SIZES = (0, 1, 33, 5001, 100_003)
TYPES = [(code,) * 3 for code in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")]
TYPES += [("f4", "f4", "f2"), ("i4", "i8", "i2"), ("f4", "c16", "c8"), ("i8", "f8", "c16")]
KEYS = ("i1", "u2", "i4", "f8")


def either(a, b):
    return a or b


def add(a, b):
    return a + b


def less(a, b):
    return a < b


def not_greater(a, b):
    return a <= b


def equal(a, b):
    return a == b


def is_odd(a):
    return int(a) % 2 == 1


def is_four(a):
    return a == 4


def last(a, b):
    return b


def sum_and_greatest(a, b):
    return a[0] + b[0], max(a[1], b[1])


def first_greatest(a, b):
    return a if a[0] > b[0] or (a[0] == b[0] and a[1] < b[1]) else b


def random(dtype, n):
    """Keys from 0 to 99: all dtypes hold these."""
    return cp.asarray(np.random.default_rng(n).integers(0, 100, n).astype(dtype))


def reductions_and_scans():
    for source, accumulator, target in TYPES:
        op = either if accumulator == "?" else add
        h_init = np.ones(1, accumulator)
        for n in SIZES:
            d_in, d_one, d_all = cp.ones(n, source), cp.zeros(1, target), cp.zeros(n, target)
            reduction = cupar.reduce_into(d_in, d_one, op, h_init)
            storage = cp.empty(reduction(None, d_in, d_one, n, h_init), "u1")
            reduction(storage, d_in, d_one, n, h_init)
            expected = np.ones(1, target)[0] if accumulator == "?" else np.array(n + 1).astype(target)
            if target != "f2" or n < 2048:
                assert d_one.get()[0] == expected, (source, accumulator, target, n)
            for factory in (cupar.exclusive_scan, cupar.inclusive_scan):
                scan = factory(d_in, d_all, op, h_init)
                storage = cp.empty(scan(None, d_in, d_all, n, h_init), "u1")
                scan(storage, d_in, d_all, n, h_init)
                scan.run(d_in, d_all, n, h_init)


def segmented_reductions(dtype, n):
    """Segments beside each other of several means, in any order, and rows."""
    d_in, rng, op = random(dtype, n), np.random.default_rng(n), either if dtype == "?" else add
    host, h_init = d_in.get(), np.ones(1, dtype)
    for mean in (3, 16, 64, 300, 20_000):
        bounds = np.concatenate([[0], np.sort(rng.integers(0, n + 1, n // mean)), [n]])
        for order in (np.arange(len(bounds) - 1), rng.permutation(len(bounds) - 1)):
            start, end = bounds[:-1][order], bounds[1:][order]
            offsets, d_out = (cp.asarray(start), cp.asarray(end)), cp.zeros(len(order), dtype)
            reduction = cupar.segmented_reduce(d_in, d_out, *offsets, op, h_init)
            storage = cp.empty(reduction(None, d_in, d_out, len(order), *offsets, h_init), "u1")
            reduction(storage, d_in, d_out, len(order), *offsets, h_init)
            if dtype in ("i4", "u8", "f8"):
                expected = [host[s:e].sum(dtype=dtype) + 1 for s, e in zip(start, end, strict=True)]
                assert np.array_equal(d_out.get(), expected), (dtype, n, mean)
    for size in (1, 7, 16, 100, 1000, 50_000):
        rows = cupar.segmented_reduce(d_in, d_in, op=op, h_init=h_init)
        rows.run(d_in, cp.zeros(n // size, dtype), n // size, h_init=h_init, segment_size=size)


def segmented_scans(dtype, n):
    """Short segments in each order, rows, and one long segment."""
    d_in, rng = random(dtype, n), np.random.default_rng(n)
    host, ends = d_in.get(), np.sort(rng.integers(0, n + 1, n // 20 + 1))
    bounds = np.concatenate([[0], ends[: len(ends) // 2], [n]])
    for order in (np.arange(len(bounds) - 1), rng.permutation(len(bounds) - 1)):
        start, end = bounds[:-1][order], bounds[1:][order]
        offsets = cp.asarray(start), cp.asarray(end)
        for factory, first in ((cupar.inclusive_segmented_scan, 0), (cupar.exclusive_segmented_scan, 1)):
            d_out, h_init = cp.zeros(n, dtype), np.ones(1, dtype)
            scan = factory(d_in, d_out, *offsets, add, h_init)
            storage = cp.empty(scan(None, d_in, d_out, len(start), *offsets, h_init), "u1")
            scan(storage, d_in, d_out, len(start), *offsets, h_init)
            found = d_out.get()
            for s, e in zip(start, end, strict=True):
                sums = np.cumsum(np.concatenate([h_init, host[s:e]]), dtype=dtype)
                expected = sums[: e - s] if first else sums[1:]
                assert np.array_equal(found[s:e], expected), (dtype, n, s, e)
    for size in (1, 7, 1000, 50_000):
        rows = cupar.inclusive_segmented_scan(d_in, d_in, op=add)
        d_out = cp.zeros(n, dtype)
        rows.run(d_in, d_out, n // size, segment_size=size)
        expected = np.cumsum(host[: n // size * size].reshape(-1, size), 1, dtype=dtype)
        assert np.array_equal(d_out.get()[: n // size * size], expected.ravel()), (dtype, n, size)


def copies_of_segments(dtype, n):
    """Of segments of several means, in any order, to another one; of arrays that begin anywhere."""
    for mean in (1, 3, 40, 700, 20_000):
        for shift in (0, 1):
            rng, d_in = np.random.default_rng(n + mean), random(dtype, n + shift)[shift:]
            starts = rng.integers(0, n + 1, n // mean)
            ends = np.minimum(starts + rng.integers(-1, 2 * mean + 1, len(starts)), n)
            lengths, order = np.maximum(ends - starts, 0), rng.permutation(len(starts))
            outputs = np.zeros(len(starts), "i8")
            outputs[order] = np.cumsum(lengths[order]) - lengths[order]
            d_out, offsets = (
                cp.zeros(lengths.sum(), dtype),
                [cp.asarray(each) for each in (starts, ends, outputs)],
            )
            copy = cupar.segmented_copy(d_in, d_out, *offsets)
            storage = cp.empty(copy(None, d_in, d_out, len(starts), *offsets), "u1")
            copy(storage, d_in, d_out, len(starts), *offsets)
            host = d_in.get()
            expected = [host[s : max(s, e)] for s, e in zip(starts[order], ends[order], strict=True)]
            assert np.array_equal(d_out.get(), np.concatenate([host[:0], *expected])), (dtype, n, mean)
            given = *(cp.asarray(each[order]) for each in (starts, ends)), cp.zeros(1, "i8")
            packed = cupar.segmented_copy(d_in, d_out, *given[:2], d_out_num_items=given[2])
            d_out[...] = 0
            named = {"d_out_num_items": given[2], "max_items": d_out.size}
            storage = cp.empty(packed(None, d_in, d_out, len(starts), *given[:2], **named), "u1")
            packed(storage, d_in, d_out, len(starts), *given[:2], **named)
            assert np.array_equal(d_out.get(), np.concatenate([host[:0], *expected])), (dtype, n, mean)


class Structs:
    """An array of structs of integers, 288 bytes each."""

    dtype = np.dtype([(f"x{i}", "u4") for i in range(72)])

    def __init__(self, words):
        self.words = words.reshape(-1, 72)
        self.__cuda_array_interface__ = {
            "shape": (len(self.words),),
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.words.data.ptr, False),
            "version": 3,
        }


def large_values(dtype, n):
    """Scans of structs, whatever the type: the last of all."""
    size = n // 10 + 1
    words = cp.asarray(np.random.default_rng(n).integers(0, 1000, 72 * size, "u4"))
    given, found = Structs(words), Structs(cp.zeros_like(words))
    cupar.inclusive_scan(given, found, last).run(given, found, size)
    assert (found.words == given.words).all()


def columns(dtype, n):
    """Columns of any number and length, which threads, blocks of two sizes, and several blocks scan."""
    h_init = np.ones(1, dtype)
    for width in (1, 2, 5, 16, 33, 1000, 4001, 30_000):
        shape = length, inner = n // width, width
        d_in, d_out, d_one = (
            random(dtype, length * inner),
            cp.zeros(length * inner, dtype),
            cp.zeros(inner, dtype),
        )
        host = d_in.get().reshape(shape)
        for factory, first in ((cupar.inclusive_column_scan, 1), (cupar.exclusive_column_scan, 0)):
            scan = factory(d_in, d_out, add, h_init)
            storage = cp.empty(scan(None, d_in, d_out, 1, length, inner, h_init), "u1")
            scan(storage, d_in, d_out, 1, length, inner, h_init)
            sums = np.cumsum(np.concatenate([np.ones((1, inner), dtype), host]), 0, dtype=dtype)
            assert np.array_equal(d_out.get().reshape(shape), sums[first : first + length]), (dtype, shape)
        total = cupar.column_reduce(d_in, d_one, add, h_init)
        storage = cp.empty(total(None, d_in, d_one, 1, length, inner, h_init), "u1")
        total(storage, d_in, d_one, 1, length, inner, h_init)
        assert np.array_equal(d_one.get(), sums[-1]), (dtype, shape)


def searches_for_the_first(dtype, n):
    """Of an item anywhere, in arrays that begin anywhere; also of pairs of arrays."""
    d_out = cp.zeros(1, "i8")
    for place in {0, n // 2, max(n - 1, 0), n}:
        for offset in (0, 1):
            host = np.zeros(n + offset, dtype)
            host[offset + place :] = 4
            d_in = cp.asarray(host)[offset:]
            find = cupar.find_if(d_in, d_out, is_four)
            storage = cp.empty(find(None, d_in, d_out, n), "u1")
            find(storage, d_in, d_out, n)
            assert d_out.get()[0] == place, (dtype, n, place)
            pairs = cupar.ZipIterator(d_in, cp.zeros(n, dtype))
            differ = cupar.find_if(pairs, d_out, lambda s: s[0] != s[1])
            storage = cp.empty(differ(None, pairs, d_out, n), "u1")
            differ(storage, pairs, d_out, n)
            assert d_out.get()[0] == place, (dtype, n, place)


def merges(dtype, n):
    """Of ranges of any lengths, with and without items that go with their keys."""
    for m in {0, n // 3, n // 2, n}:
        host = [np.sort(each) for each in np.split(random(dtype, n).get(), [m])]
        keys, places = [cp.asarray(each) for each in host], [cp.arange(m), cp.arange(m, n)]
        order = np.argsort(np.concatenate(host), kind="stable")
        d_keys, d_places = cp.zeros(n, dtype), cp.zeros(n, "i8")
        for items, d_out in ((places, d_places), ((None, None), None)):
            ranges = keys[0], items[0], m, keys[1], items[1], n - m
            merge = cupar.merge(*ranges[:2], *ranges[3:5], d_keys, d_out, less)
            storage = cp.empty(merge(None, *ranges, d_keys, d_out), "u1")
            merge(storage, *ranges, d_keys, d_out)
            assert np.array_equal(d_keys.get(), np.concatenate(host)[order]), (dtype, n, m)
        assert np.array_equal(d_places.get(), order), (dtype, n, m)


def in_set(kind, one, other):
    """Return which items of two arrays a set of both has, in order; the second's come behind the first's."""
    places = []
    for key in np.unique(np.concatenate([one, other])):
        a, b = np.flatnonzero(one == key), len(one) + np.flatnonzero(other == key)
        m, n = len(a), len(b)
        places += {
            "union": [a, b[m:]],
            "intersection": [a[:n]],
            "difference": [a[n:]],
            "symmetric_difference": [a[n:], b[m:]],
        }[kind]
    return np.concatenate(places) if places else np.zeros(0, int)


def sets(dtype, n):
    """Of ranges of any lengths, of which one begins anywhere, with and without items beside their keys."""
    for m, top in ((0, 9), (n // 3, 3), (n // 2, 100), (n, 9)):
        keys = np.random.default_rng(n).integers(0, top, n).astype(dtype)
        host = [np.sort(each) for each in np.split(keys, [m])]
        d_keys = [cp.asarray(np.append(host[0][:1], host[0]))[min(m, 1) :], cp.asarray(host[1])]
        places = [cp.arange(m), cp.arange(m, n)]
        for kind in ("union", "intersection", "difference", "symmetric_difference"):
            wanted = in_set(kind, *host)
            d_out, d_places, d_count = cp.zeros(n, dtype), cp.zeros(n, "i8"), cp.zeros(1, "i8")
            second = places[1] if kind in ("union", "symmetric_difference") else None
            for items in ((places[0], second, d_places), (None, None, None)):
                ranges = d_keys[0], items[0], m, d_keys[1], items[1], n - m
                outputs = d_out, items[2], d_count
                found = getattr(cupar, f"set_{kind}")(*ranges[:2], *ranges[3:5], *outputs, less)
                storage = cp.empty(found(None, *ranges, *outputs), "u1")
                found(storage, *ranges, *outputs)
                assert d_count.get()[0] == len(wanted), (kind, dtype, n, m)
                count = len(wanted)
                assert np.array_equal(d_out.get()[:count], np.concatenate(host)[wanted]), (kind, dtype, n, m)
            assert np.array_equal(d_places.get()[:count], wanted), (kind, dtype, n, m)


def nan_among(keys):
    """Put NaNs among keys, or others where there is none of them."""
    keys[np.random.default_rng(len(keys)).integers(0, max(len(keys), 1), len(keys) // 50)] = (
        np.nan if keys.dtype.kind == "f" else 7
    )
    return keys


def not_sorted(dtype, n):
    """Merges, sets and sorts of keys that are not sorted, or not by an order: they stay in their outputs."""
    rng = np.random.default_rng(n)
    for m, top in ((n // 3, 5), (n // 2, 100), (n - min(n, 9), 100)):
        for host in (rng.integers(0, top, n), np.sort(rng.integers(0, top, n))):
            host = nan_among(host.astype(dtype))
            one, other, places = cp.asarray(host[:m]), cp.asarray(host[m:]), cp.arange(n)
            for op in (less, not_greater):
                for kind in ("union", "intersection", "difference", "symmetric_difference"):
                    both = kind in ("union", "symmetric_difference")
                    room = {"intersection": min(m, n - m), "difference": m}.get(kind, n)
                    for items in (None, places):
                        d_keys, d_items, d_count = (
                            cp.zeros(room, dtype),
                            cp.zeros(room, "i8"),
                            cp.zeros(1, "i8"),
                        )
                        first = one, items if items is None else items[:m], m
                        second = other, items[m:] if both and items is not None else None, n - m
                        outputs = d_keys, items if items is None else d_items, d_count
                        found = getattr(cupar, f"set_{kind}")(*first[:2], *second[:2], *outputs, op)
                        found.run(*first, *second, *outputs)
                        assert 0 <= d_count.get()[0] <= room, (kind, dtype, n, m)
                for items in (None, places):
                    d_keys, d_items = cp.zeros(n, dtype), items if items is None else cp.zeros(n, "i8")
                    first = one, items if items is None else items[:m], m
                    second = other, items if items is None else items[m:], n - m
                    merge = cupar.merge(*first[:2], *second[:2], d_keys, d_items, op)
                    merge.run(*first, *second, d_keys, d_items)
                    all_keys = cp.asarray(host)
                    sort = cupar.merge_sort(all_keys, items, d_keys, d_items, op)
                    sort.run(all_keys, items, d_keys, d_items, n)
                    starts, ends = cp.asarray([0, m]), cp.asarray([m, n])
                    sort = cupar.segmented_sort(all_keys, d_keys, items, d_items, starts, ends, op=op)
                    sort.run(all_keys, d_keys, items, d_items, n, 2, starts, ends)


def reductions_in_order(dtype, n):
    """Of all, of segments of any lengths, and of rows."""
    d_in, d_one, h_init = random(dtype, n), cp.zeros(1, dtype), np.ones(1, dtype)
    reduction = cupar.reduce_into(d_in, d_one, last, h_init, commutative=False)
    storage = cp.empty(reduction(None, d_in, d_one, n, h_init), "u1")
    reduction(storage, d_in, d_one, n, h_init)
    host = np.append(h_init, d_in.get())
    assert d_one.get()[0] == host[-1], (dtype, n)
    bounds = np.sort(np.random.default_rng(n).integers(0, n + 1, n // 50 + 2))
    offsets, d_out = (cp.asarray(bounds[:-1]), cp.asarray(bounds[1:])), cp.zeros(len(bounds) - 1, dtype)
    reduction = cupar.segmented_reduce(d_in, d_out, *offsets, last, h_init, commutative=False)
    reduction.run(d_in, d_out, len(d_out), *offsets, h_init)
    assert np.array_equal(d_out.get(), np.where(bounds[1:] > bounds[:-1], host[bounds[1:]], 1)), (dtype, n)
    for size in (7, 300, 50_000):
        rows, d_out = n // size, cp.zeros(n // size, dtype)
        reduction = cupar.segmented_reduce(d_in, d_out, None, None, last, h_init, commutative=False)
        reduction.run(d_in, d_out, rows, h_init=h_init, segment_size=size)
        assert np.array_equal(d_out.get(), host[size::size][:rows]), (dtype, n, size)


def tuples(dtype, n):
    """Scans of two arrays, forwards and backwards, of all and of rows that warps and blocks have or stage."""
    d_in, d_more = random(dtype, n), random(dtype, n)[::-1].copy()
    d_sums, d_greatest = cp.zeros(n, dtype), cp.zeros(n, dtype)
    for size in (n, 7, 1000, 1024, 2048, 3001, 8192, 20_000):
        rows = n // size if size else 0
        for step in (1, -1):
            items, out = cupar.ZipIterator(d_in, d_more), cupar.ZipIterator(d_sums, d_greatest)
            used = rows * size
            if step < 0:
                items, out = (cupar.ReverseIterator(each + (used - 1)) for each in (items, out))
            if size == n:
                scan = cupar.inclusive_scan(items, out, sum_and_greatest, None)
                scan.run(items, out, n)
            else:
                scan = cupar.inclusive_segmented_scan(items, out, op=sum_and_greatest)
                scan.run(items, out, rows, segment_size=size)
            if rows:
                one, other = (each.get()[:used].reshape(rows, size)[:, ::step] for each in (d_in, d_more))
                found, most = (
                    each.get()[:used].reshape(rows, size)[:, ::step] for each in (d_sums, d_greatest)
                )
                assert np.array_equal(found, np.cumsum(one, 1, dtype=dtype)), (dtype, n, size, step)
                assert np.array_equal(most, np.maximum.accumulate(other, 1)), (dtype, n, size, step)


def indexed(dtype, n):
    """The greatest item and where it is, of all and of rows, at each alignment."""
    pairs = cupar.ZipIterator(dtype, cupar.CountingIterator(np.int64(0))).dtype
    h_init = np.array([(0, np.iinfo("i8").max)], pairs)
    for begin in (0, 1, 3):
        d_in, m = random(dtype, n)[begin:], max(n - begin, 0)
        items = cupar.ZipIterator(d_in, cupar.CountingIterator(np.int64(0)))
        for size in {size for size in (m, 7, 129, 5000) if 0 < size <= m}:
            rows = m // size
            d_out = cp.zeros(rows * pairs.itemsize, "u1").view(pairs)
            if size == m:
                cupar.reduce_into(items, d_out, first_greatest, None).run(items, d_out, m)
            else:
                reduction = cupar.segmented_reduce(items, d_out, None, None, first_greatest, h_init)
                reduction.run(items, d_out, rows, h_init=h_init, segment_size=size)
            places = d_in.get()[: rows * size].reshape(rows, size).argmax(1) + np.arange(rows) * size
            assert np.array_equal(d_out.get()["field_1"], places), (dtype, n, begin, size)


def gradients(dtype, n):
    """Those of recurrences, of one row and of several, with arrays that end where their last items end."""
    if dtype != "f8":
        return
    for rows in {rows for rows in (1, 3, 40) if rows <= n}:
        shape = rows, n // rows
        used = shape[0] * shape[1]
        a, h, grad = ((random("f4", n)[:used] * scale).reshape(shape) for scale in (0.005, 1, 0.1))
        for reverse in (False, True):
            arguments = -1, reverse, (None, None, None)
            of_a, of_b, _ = enter(recurrence_gradients, (a, h, grad, None), arguments)
            step = -1 if reverse else 1
            a_, h_, grad_, of_a, of_b = (
                cp.asarray(each).get()[:, ::step] for each in (a, h, grad, of_a, of_b)
            )
            later = np.concatenate([a_[:, 1:] * of_b[:, 1:], np.zeros((rows, 1))], 1)
            before = np.concatenate([np.zeros((rows, 1)), h_[:, :-1]], 1)
            assert np.allclose(of_b, grad_ + later, atol=1e-5) and np.allclose(of_a, of_b * before, atol=1e-5)


def transforms(dtype, n):
    d_in, d_out = random(dtype, n), cp.zeros(n, dtype)
    cupar.unary_transform(d_in, d_out, cupar.OpKind.NEGATE).run(d_in, d_out, n)
    assert cp.array_equal(d_out, -d_in)
    cupar.binary_transform(d_in, d_in, d_out, add).run(d_in, d_in, d_out, n)
    assert cp.array_equal(d_out, d_in + d_in)


def compactions(dtype, n):
    d_in, d_count = random(dtype, n), cp.zeros(2, "i8")
    keys, odd, four = d_in.get(), d_in.get() % 2 == 1, d_in.get() == 4
    d_kept = cp.zeros(int(odd.sum()), dtype)
    cupar.select(d_in, d_kept, d_count, is_odd).run(d_in, d_kept, d_count, n)
    assert np.array_equal(d_kept.get(), keys[odd])
    for given, kept in ((d_in, keys[odd]), (cupar.CountingIterator(np.int64(0)), np.flatnonzero(odd))):
        d_flags, d_kept = cp.asarray(odd), cp.zeros(int(odd.sum()), kept.dtype)
        by_flags = cupar.select(given, d_kept, d_count, is_odd, d_flags=d_flags)
        by_flags.run(given, d_kept, d_count, n, d_flags=d_flags)
        assert np.array_equal(d_kept.get(), kept)
    parts = [keys[four], keys[odd & ~four], keys[~odd & ~four]]
    d_parts = [cp.zeros(len(part), dtype) for part in parts]
    partition = cupar.three_way_partition(d_in, *d_parts, d_count, is_four, is_odd)
    partition.run(d_in, *d_parts, d_count, n)
    assert all(np.array_equal(d_part.get(), part) for d_part, part in zip(d_parts, parts, strict=True))
    first = np.concatenate([np.ones(min(n, 1), bool), keys[1:] != keys[:-1]])
    d_items, d_keys, d_firsts = (
        cp.arange(n),
        cp.zeros(int(first.sum()), dtype),
        cp.zeros(int(first.sum()), "i8"),
    )
    unique = cupar.unique_by_key(d_in, d_items, d_keys, d_firsts, d_count, equal)
    unique.run(d_in, d_items, d_keys, d_firsts, d_count, n)
    assert np.array_equal(d_firsts.get(), np.flatnonzero(first)) and np.array_equal(d_keys.get(), keys[first])


def runs(dtype, n):
    host = np.sort(np.random.default_rng(n).integers(0, 100, n)).astype(dtype)
    begins = np.append(np.ones(min(n, 1), bool), host[1:] != host[:-1])
    first, places = np.flatnonzero(begins), np.arange(n)
    lengths = np.diff(np.append(first, n))
    d_in, d_ones, d_count = cp.asarray(host), cp.ones(n, "i4"), cp.zeros(1, "i8")
    d_keys, d_lengths, d_scanned = cp.zeros(len(first), dtype), cp.zeros(len(first), "i4"), cp.zeros(n, "i4")
    reduction = cupar.reduce_by_key(d_in, d_keys, d_ones, d_lengths, d_count, add)
    encoding = cupar.run_length_encode(d_in, d_keys, d_lengths, d_count)
    for call in (
        lambda: reduction.run(d_in, d_keys, d_ones, d_lengths, d_count, n),
        lambda: encoding.run(d_in, d_keys, d_lengths, d_count, n),
    ):
        call()
        assert np.array_equal(d_keys.get(), host[first]) and np.array_equal(d_lengths.get(), lengths)
        d_lengths.fill(0)
    scan = cupar.exclusive_scan_by_key(d_in, d_ones, d_scanned, add, 0)
    scan.run(d_in, d_ones, d_scanned, n, 0)
    assert np.array_equal(d_scanned.get(), places - np.repeat(first, lengths))
    scan = cupar.inclusive_scan_by_key(d_in, d_ones, d_ones, add)
    scan.run(d_in, d_ones, d_ones, n)
    assert np.array_equal(d_ones.get(), places - np.repeat(first, lengths) + 1)


def histograms(dtype, n):
    for levels in (11, 257, 20_001):
        d_in, d_bins = random(dtype, n), cp.zeros(levels - 1, "i4")
        histogram = cupar.histogram_even(d_in, d_bins, levels, 0.0, 100.0, n)
        histogram.run(d_in, d_bins, levels, 0.0, 100.0, n)
        assert int(d_bins.sum()) == n


def histograms_of_ranges(dtype, n):
    """Of levels that are searched in shared memory, in copies of many samples, and where they are."""
    for m in (n, 1_200_007) if n == 5001 else (n,):
        d_in = random(dtype, m)
        for levels in (11, 257, 3001, 20_001, 60_001):
            d_bins, d_levels = cp.zeros(levels - 1, "i4"), cp.asarray(np.linspace(0, 100, levels))
            histogram = cupar.histogram_range(d_in, d_bins, levels, d_levels, m)
            storage = cp.empty(histogram(None, d_in, d_bins, levels, d_levels, m), "u1")
            histogram(storage, d_in, d_bins, levels, d_levels, m)
            behind = np.searchsorted(d_levels.get(), d_in.get(), "right")
            assert np.array_equal(d_bins.get(), np.bincount(behind - 1, minlength=levels - 1)), (
                dtype,
                m,
                levels,
            )


def reductions_by_index(dtype, n):
    """In tables of threads, of warps and in ranges, and in the output; indices are also beyond the bins."""
    rng = np.random.default_rng(n)
    for bins in (1, 40, 300, 2000, 9000, 100_000):
        host = rng.integers(-2, bins + 2, n + 1)
        for offset in (0, 1):
            d_in, d_indices, d_out = random(dtype, n), cp.asarray(host)[offset:][:n], cp.zeros(bins, dtype)
            index = host[offset:][:n]
            fits = (index >= 0) & (index < bins)
            expected = np.ones(bins, dtype)
            np.add.at(expected, index[fits], d_in.get()[fits])
            for op in (cupar.OpKind.PLUS, add):
                reduction = cupar.reduce_by_index(
                    *(d_in, d_indices, d_out, op, np.ones(1, dtype)),
                    determinism=cupar.Determinism.NOT_GUARANTEED,
                )
                given = d_in, d_indices, d_out, n, bins, np.ones(1, dtype)
                storage = cp.empty(reduction(None, *given), "u1")
                reduction(storage, *given)
                assert np.array_equal(d_out.get(), expected), (dtype, n, bins, offset)


def searches(dtype, n):
    d_data = cp.sort(random(dtype, n))
    for m in (33, 2**17 + 5):
        d_values, d_found = random(dtype, m), cp.zeros(m, "u8")
        for factory, side in ((cupar.lower_bound, "left"), (cupar.upper_bound, "right")):
            for values, are_sorted in ((d_values, False), (cp.sort(d_values), True)):
                search = factory(d_data, values, d_found, less, values_sorted=are_sorted)
                search.run(d_data, n, values, m, d_found)
                assert np.array_equal(d_found.get(), np.searchsorted(d_data.get(), values.get(), side))


def sorts(dtype, n):
    d_in, d_items = random(dtype, n), cp.arange(n)
    d_keys, d_order = cp.zeros(n, dtype), cp.zeros(n, "i8")
    order = np.argsort(d_in.get(), kind="stable")
    merge = cupar.merge_sort(d_in, d_items, d_keys, d_order, less)
    merge.run(d_in, d_items, d_keys, d_order, n)
    assert np.array_equal(d_order.get(), order)
    radix = cupar.radix_sort(d_in, d_keys, d_items, d_order, cupar.SortOrder.ASCENDING)
    radix.run(d_in, d_keys, d_items, d_order, n)
    assert np.array_equal(d_order.get(), order)
    keys = cupar.radix_sort(d_in, d_keys, None, None, cupar.SortOrder.DESCENDING)
    keys.run(d_in, d_keys, None, None, n)
    assert np.array_equal(d_keys.get(), d_in.get()[order][::-1])


def segmented_sorts(dtype, n):
    """Of segments of all sizes, the largest of which some blocks share; and of rows."""
    ends = np.unique(np.concatenate([[0, n], np.geomspace(1, max(n, 1), 20).astype(int).clip(0, n)]))
    starts, ends = ends[:-1], ends[1:]
    d_in, d_items = random(dtype, n), cp.arange(n)
    d_keys, d_order = cp.zeros(n, dtype), cp.zeros(n, "i8")
    d_starts, d_ends = cp.asarray(starts), cp.asarray(ends)
    order = np.lexsort((d_in.get(), np.repeat(np.arange(len(ends)), ends - starts)))
    for how in ({"order": cupar.SortOrder.ASCENDING}, {"op": less}):
        sort = cupar.segmented_sort(d_in, d_keys, d_items, d_order, d_starts, d_ends, **how)
        sort.run(d_in, d_keys, d_items, d_order, n, len(ends), d_starts, d_ends)
        assert np.array_equal(d_order.get(), order) and np.array_equal(d_keys.get(), d_in.get()[order])
        for size in (3, 700, n):
            if 0 < size <= n:
                rows = d_in.get()[: n // size * size].reshape(-1, size)
                sort = cupar.segmented_sort(d_in, d_keys, **how)
                sort.run(d_in, d_keys, num_items=n, num_segments=len(rows), segment_size=size)
                assert np.array_equal(d_keys.get()[: rows.size], np.sort(rows, axis=1).ravel())


def top_k(dtype, n):
    """Of arrays, of segments of all sizes, and of rows: some items, and so many that all kernels have to."""
    keys = random(dtype, n).get()
    d_in, places = cp.asarray(keys), cupar.CountingIterator(np.int64(0))
    for k in {min(k, n) for k in (7, 3000)}:
        expected = np.argsort(keys, kind="stable")
        d_keys, d_places = cp.zeros(k, dtype), cp.zeros(k, "i8")
        find = cupar.top_k(d_in, d_keys, places, d_places, cupar.SortOrder.ASCENDING)
        find.run(d_in, d_keys, places, d_places, n, k)
        assert np.array_equal(d_places.get(), expected[:k]) and np.array_equal(
            d_keys.get(), keys[expected[:k]]
        )
        ends = np.unique(np.concatenate([[0, n], np.geomspace(1, max(n, 1), 20).astype(int).clip(0, n)]))
        d_starts, d_ends = cp.asarray(ends[:-1]), cp.asarray(ends[1:])
        m = len(ends) - 1
        d_keys = cp.zeros((m, k), dtype)
        find = cupar.segmented_top_k(d_in, d_keys, None, None, d_starts, d_ends)
        find.run(d_in, d_keys, None, None, n, m, k, d_starts, d_ends)
        for row, start, end in zip(d_keys.get(), ends, ends[1:], strict=False):
            assert np.array_equal(row[: end - start], np.sort(keys[start:end])[::-1][:k])
        for size in (3, 700, 5000, 8200, n):
            if size > 0 and k <= size <= n:
                many = np.tile(keys, 15) if size == 8200 else keys  # so many that a block has each
                rows = many[: len(many) // size * size].reshape(-1, size)
                d_keys = cp.zeros((len(rows), k), dtype)
                d_rows = cp.asarray(many)
                find = cupar.segmented_top_k(d_rows, d_keys)
                find.run(d_rows, d_keys, num_items=len(many), num_segments=len(rows), k=k, segment_size=size)
                assert np.array_equal(d_keys.get(), np.sort(rows, axis=1)[:, ::-1][:, :k])


def nth_elements(dtype, n):
    """Of rows and segments of all sizes, with the items behind, which may differ in their first digit."""
    keys = random(dtype, n).get()
    d_in = cp.asarray(keys)
    for size in (3, 700, 5000, n):
        for each in (
            (keys, np.tile(keys, 140 * size // n)) if size == 5000 <= n else (keys,)
        ):  # a block has each
            rows = each[: len(each) // size * size].reshape(-1, size) if 0 < size <= len(each) else []
            if not len(rows):
                continue
            d_rows, d_out, d_next = cp.asarray(rows), cp.zeros(len(rows), dtype), cp.zeros(len(rows), dtype)
            for rank in {0, size // 2, size - 1}:
                find = cupar.segmented_nth_element(d_rows, d_out, d_next, nans="propagate")
                find.run(d_rows, d_out, d_next, rank, num_segments=len(rows), segment_size=size)
                ordered = np.sort(rows, axis=1)
                assert np.array_equal(d_out.get(), ordered[:, rank])
                assert np.array_equal(d_next.get(), ordered[:, min(rank + 1, size - 1)])
    ends = np.unique(np.concatenate([[0, n], np.geomspace(1, max(n, 1), 20).astype(int).clip(0, n)]))
    m = len(ends) - 1
    d_ranks, d_starts, d_ends = cp.asarray(np.diff(ends) // 2), cp.asarray(ends[:-1]), cp.asarray(ends[1:])
    d_out = cp.zeros(m, dtype)
    find = cupar.segmented_nth_element(d_in, d_out, None, d_ranks, d_starts, d_ends)
    find.run(d_in, d_out, None, None, n, m, d_ranks, d_starts, d_ends)
    for found, start, end in zip(d_out.get(), ends, ends[1:], strict=False):
        assert found == np.sort(keys[start:end])[(end - start) // 2]


CHECKED = (
    transforms,
    compactions,
    runs,
    histograms,
    histograms_of_ranges,
    reductions_by_index,
    searches,
    sorts,
    searches_for_the_first,
    merges,
    sets,
    not_sorted,
    reductions_in_order,
    indexed,
    tuples,
    gradients,
    segmented_reductions,
    segmented_scans,
    copies_of_segments,
    large_values,
    columns,
    segmented_sorts,
    top_k,
    nth_elements,
)


def named(what):
    return getattr(what, "__name__", str(what))


def main():
    # All kernels, however few items there are.
    policies.SCAN_STAGED_BYTES = policies.PolicyTable()
    plans_of_top_k._LEAST_GROUPED = 1
    plans_of_nth_element._ALONE = 1  # longer rows are shared
    plans_of_segmented_reduce._FEW_SHARE = 1
    cp.cuda.set_allocator(None)  # one cudaMalloc for each array, and no pool around it
    np.seterr(over="ignore")
    wanted = set(sys.argv[1:])

    def picked(kind):
        return [each for each in kind if named(each) in wanted] or kind

    for checked in picked((reductions_and_scans, *CHECKED)):
        if checked is reductions_and_scans:
            reductions_and_scans()
            continue
        for dtype in picked(KEYS):
            for n in picked(SIZES):
                checked(dtype, n)
    cp.cuda.Device().synchronize()
    print("all finished")


if __name__ == "__main__":
    main()
