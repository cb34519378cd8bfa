"""What ranks do in tests, whatever they are: each algorithm on shards of all kinds, against NumPy's."""

import numpy as np

import cupar
from cupar import distributed
from cupar.distributed import arrays

Affine = cupar.gpu_struct({"a": np.int64, "b": np.int64}, "Affine")
SHAPES = ("even", "uneven", "holes", "one")


class Host:
    """Arrays of NumPy."""

    @staticmethod
    def put(array):
        return array.copy()

    get = staticmethod(np.asarray)


class Tensors:
    """Tensors of PyTorch in host memory, and arrays of NumPy where it has no such dtype."""

    @staticmethod
    def put(array):
        import torch

        return array.copy() if array.dtype.names else torch.from_numpy(array.copy())

    get = staticmethod(np.asarray)


class Device:
    """Arrays of CuPy, and views of its memory where items are structs, which CuPy has no arrays of."""

    @staticmethod
    def put(array):
        import cupy

        if array.dtype.names is None:
            return cupy.asarray(array)
        raw = cupy.zeros(max(array.nbytes, 1), "u1")
        raw[: array.nbytes] = cupy.asarray(np.frombuffer(array.tobytes(), "u1"))
        itemsize = array.dtype.itemsize
        return cupar.View(raw.data.ptr, array.dtype, array.shape, (itemsize,), True, raw)

    @staticmethod
    def get(array):
        if isinstance(array, cupar.View):
            return np.frombuffer(array._owner.get()[: array.nbytes].tobytes(), array.dtype)
        return array.get()


def sizes_of(shape, n, ranks, rng):
    """Return the sizes of shards that make n items together."""
    if shape == "even":
        return np.full(ranks, n // ranks) + (np.arange(ranks) < n % ranks)
    if shape == "one":
        return n * (np.arange(ranks) == ranks - 1)
    weights = rng.dirichlet(np.ones(ranks)) * (np.arange(ranks) % 2 if shape == "holes" else 1)
    if not weights.sum():
        return sizes_of("one", n, ranks, rng)
    return rng.multinomial(n, weights / weights.sum())


def plus(a, b):
    return a + b


def last_nonzero(a, b):
    return b if b != 0 else a


def composed(f, g):
    """Return the map that is f, and then g: not commutative."""
    return Affine(f.a * g.a % 1_000_003, (f.b * g.a + g.b) % 1_000_003)


def low_bits(a, b):
    return (a & 15) < (b & 15)


def equal(a, b):
    return a == b


def is_large(a):
    return a > 25


def is_small(a):
    return a < 5


class Checks:
    """Algorithms of one group, made once, and what they must return."""

    def __init__(self, group, kind=Host):
        self.group, self.kind = group, kind
        self.problems = 0
        put = kind.put
        x, k, f, maps = (put(np.zeros(0, each)) for each in ("i8", "i4", "f4", Affine.dtype))
        d, named = distributed, {"group": group}
        self.sum = d.reduce_into(x, x, plus, 7, **named)
        self.last = d.reduce_into(x, x, last_nonzero, None, commutative=False, **named)
        self.running = d.inclusive_scan(x, x, plus, **named)
        self.maps = d.inclusive_scan(maps, maps, composed, **named)
        self.starts = d.exclusive_scan(x, x, plus, 5, **named)
        self.handed = d.inclusive_scan(x, x, plus, 5, carry="returned", **named)
        self.begun = d.exclusive_scan(x, x, plus, 0, carry="returned", **named)
        self.by_key = d.reduce_by_key(k, k, x, x, x, last_nonzero, **named)
        self.encode = d.run_length_encode(k, k, x, x, **named)
        self.unique = d.unique_by_key(k, x, k, x, x, equal, **named)
        self.select = d.select(x, x, x, is_large, **named)
        self.parts = d.three_way_partition(x, x, x, x, x, is_large, is_small, **named)
        self.histogram = d.histogram_even(x, x, 11, 0, 50, 0, **named)
        self.top = d.top_k(x, x, x, x, **named)
        self.segments = d.segmented_reduce(x, x, x, x, last_nonzero, 0, commutative=False, **named)
        self.in_segments = d.inclusive_segmented_scan(x, x, x, x, last_nonzero, **named)
        self.of_segments = d.exclusive_segmented_scan(x, x, x, x, plus, 3, **named)
        self.sort = d.radix_sort(x, x, x, x, **named)
        self.floats = d.radix_sort(f, f, order=cupar.SortOrder.DESCENDING, **named)
        self.by_low = d.merge_sort(x, x, x, x, low_bits, **named)
        self.lower = d.lower_bound(x, x, x, **named)

    def shard(self, array):
        return self.kind.put(array[self.part])

    def same(self, found, expected):
        """Compare the shard of what is expected."""
        np.testing.assert_array_equal(self.kind.get(found), expected[self.part])

    def problem(self, shape, n, rng):
        """Do all with n items in shards of a shape; every rank knows the whole."""
        group, get = self.group, self.kind.get
        sizes = sizes_of(shape, n, group.size, rng)
        cuts = np.cumsum([0, *sizes]).tolist()
        self.part, self.n = slice(cuts[group.rank], cuts[group.rank + 1]), int(sizes[group.rank])
        self.whole = n
        x = rng.integers(0, 50, n)
        d_x, out = self.shard(x), self.shard(np.zeros_like(x))
        for each in ("reductions", "scans", "runs", "kept", "in_segments_", "sorts"):
            getattr(self, f"check_{each}")(x, d_x, out, rng)
        self.problems += 1
        np.testing.assert_array_equal(get(d_x), x[self.part])  # inputs are as they were

    def check_reductions(self, x, d_x, out, rng):
        one, get = self.kind.put(np.array([-1])), self.kind.get
        self.sum.run(d_x, one, self.n, 7)
        assert get(one)[0] == x.sum() + 7
        one = self.kind.put(np.array([-1]))
        self.last.run(d_x, one, self.n)
        kept = x[x != 0]
        assert get(one)[0] == (kept[-1] if len(kept) else 0 if len(x) else -1)
        counts = self.kind.put(np.zeros(10, "i8"))
        self.histogram.run(d_x, counts, 11, 0, 50, self.n)
        np.testing.assert_array_equal(get(counts), np.histogram(x, 10, (0, 50))[0])

    def check_scans(self, x, d_x, out, rng):
        total = np.cumsum(x)
        self.running.run(d_x, out, self.n)
        self.same(out, total)
        in_place = self.shard(x)
        self.running.run(in_place, in_place, self.n)
        self.same(in_place, total)
        self.starts.run(d_x, out, self.n, 5)
        self.same(out, 5 + total - x)
        for scan, init, expected in ((self.handed, 5, total + 5), (self.begun, 0, total - x)):
            prefix = scan.run(d_x, out, self.n, init)
            if self.n:
                items, result = prefix.applied(out), self.shard(np.zeros_like(x))
                with cupar.device("cuda" if self.kind is Device else "cpu"):
                    copy = cupar.unary_transform(items, result, cupar.OpKind.IDENTITY)
                    copy.run(items, result, self.n)
                self.same(result, expected)
        maps = np.zeros(len(x), Affine.dtype)
        maps["a"], maps["b"] = rng.integers(1, 9, len(x)), x
        d_maps, results = self.shard(maps), self.shard(maps)
        self.maps.run(d_maps, results, self.n)
        expected, before = [], None
        for a, b in maps.tolist():
            p, q = (1, 0) if before is None else before
            before = (p * a % 1_000_003, (q * a + b) % 1_000_003)
            expected.append(before)
        assert self.kind.get(results).tolist() == expected[self.part]

    def kept(self, count, *arrays):
        """Return what all ranks have kept of arrays, one after another."""
        own, before, all_ = self.kind.get(count)[:3].tolist()
        found = []
        for each in arrays:
            parts = self.group.agree(self.kind.get(each)[:own].astype("i8").tobytes())
            found.append(np.frombuffer(b"".join(parts), "i8"))
            assert before == sum(map(len, parts[: self.group.rank])) // 8
        assert len(found[0]) == all_
        return found

    def check_runs(self, x, d_x, out, rng):
        # Runs go over several ranks.
        keys = np.sort(rng.integers(0, max(len(x) // 400, 2), len(x))).astype("i4")
        d_keys, unique = self.shard(keys), self.shard(np.zeros_like(keys))
        count = self.kind.put(np.zeros(3, "i8"))
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        values = np.where(x > 30, x, 0)
        d_values = self.shard(values)
        self.by_key.run(d_keys, unique, d_values, out, count, self.n)
        found = self.kept(count, unique, out)
        last = [[0, *part[part != 0]][-1] for part in np.split(values, begins[1:])]
        np.testing.assert_array_equal(found[0], keys[begins])
        np.testing.assert_array_equal(found[1], last if len(x) else [])
        self.encode.run(d_keys, unique, out, count, self.n)
        np.testing.assert_array_equal(self.kept(count, unique, out)[1], np.diff(np.append(begins, len(x))))
        self.unique.run(d_keys, d_x, unique, out, count, self.n)
        found = self.kept(count, unique, out)
        np.testing.assert_array_equal(found, [keys[begins], x[begins]])

    def check_kept(self, x, d_x, out, rng):
        count = self.kind.put(np.zeros(3, "i8"))
        self.select.run(d_x, out, count, self.n)
        np.testing.assert_array_equal(self.kept(count, out)[0], x[x > 25])
        counts, parts = self.kind.put(np.zeros(9, "i8")), [self.shard(x) for _ in range(3)]
        self.parts.run(d_x, *parts, counts, self.n)
        kinds = (x > 25), (x < 5), (x <= 25) & (x >= 5)
        for i, (part, kind) in enumerate(zip(parts, kinds, strict=True)):
            numbers = self.kind.get(counts)[i::3].copy()
            np.testing.assert_array_equal(self.kept(self.kind.put(numbers), part)[0], x[kind])

    def check_in_segments_(self, x, d_x, out, rng):
        n = len(x)
        bounds = np.sort(rng.integers(0, n + 1, 12))
        starts, ends = bounds[:-1].copy(), bounds[1:].copy()
        ends[3] = starts[3]  # leaves items out
        order = rng.permutation(11)
        starts, ends = starts[order], ends[order]
        d_starts, d_ends = self.kind.put(starts), self.kind.put(ends)
        result = self.kind.put(np.zeros(11, "i8"))
        self.segments.run(d_x, result, self.n, 11, d_starts, d_ends, 0)
        last, running, sums = np.zeros(11, "i8"), np.full(n, -1), np.full(n, -1)
        for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
            before, total = 0, 3
            for j in range(start, end):
                before = last_nonzero(before, x[j])
                running[j], sums[j] = before, total
                total += x[j]
            last[i] = before
        np.testing.assert_array_equal(self.kind.get(result), last)
        for scan, init, expected in (
            (self.in_segments, (), running),
            (self.of_segments, (3,), sums),
        ):
            scanned = self.shard(np.full(n, -1))
            scan.run(d_x, scanned, self.n, 11, d_starts, d_ends, *init)
            self.same(scanned, expected)

    def check_sorts(self, x, d_x, out, rng):
        places = np.arange(len(x))
        d_places, moved = self.shard(places), self.shard(places)
        for keys in (x, np.full_like(x, 3)):
            self.sort.run(self.shard(keys), out, d_places, moved, self.n)
            order = np.argsort(keys, kind="stable")
            self.same(out, keys[order])
            self.same(moved, order)
        values = np.array([0, 9, 25, 60])
        found = self.kind.put(np.zeros(4, "i8"))
        self.sort.run(d_x, out, d_places, moved, self.n)
        self.lower.run(out, self.n, self.kind.put(values), 4, found)
        np.testing.assert_array_equal(self.kind.get(found), np.searchsorted(np.sort(x), values))
        self.by_low.run(d_x, d_places, out, moved, self.n)
        self.same(moved, np.argsort(x & 15, kind="stable"))
        floats = np.where(x > 45, np.nan, x - 20).astype("f4")
        floats[x == 3] = -0.0
        result = self.shard(floats)
        self.floats.run(self.shard(floats), result, None, None, self.n)
        order = np.argsort(-floats, kind="stable")  # the largest first, NaNs before all
        nan = np.isnan(floats)[order]
        self.same(result, np.concatenate([floats[order][nan], floats[order][~nan]]))
        k = min(8, len(x))
        best, where = self.kind.put(np.zeros(k, "i8")), self.kind.put(np.zeros(k, "i8"))
        self.top.run(d_x, best, d_places, where, self.n, k)
        order = np.argsort(-x, kind="stable")[:k]
        np.testing.assert_array_equal(self.kind.get(best), x[order])
        np.testing.assert_array_equal(self.kind.get(where), order)


def check_all(group, kind=Host, shapes=SHAPES):
    """Do all problems; return how many there were."""
    checks, rng = Checks(group, kind), np.random.default_rng(7)
    for shape in shapes:
        for n in (0, 1, group.size + 1, 5000):
            checks.problem(shape, n, rng)
    return checks.problems


def by_a(p, q):
    return p.a < q.a


def a_is_large(p):
    return p.a > 25


def check_fields(group, kind=Host):
    """Sort and keep structs, of which each field is an array of its own; every rank knows the whole."""
    rng = np.random.default_rng(5)
    ends = [0, 300, 300, *(305 + 95 * i for i in range(group.size - 2))][: group.size + 1]
    items = np.zeros(ends[-1], Affine.dtype)
    items["a"], items["b"] = rng.integers(0, 50, len(items)), np.arange(len(items))
    part = slice(ends[group.rank], ends[group.rank + 1])
    order = np.argsort(items["a"], kind="stable")
    x, get = kind.put(items[part]), kind.get
    for found, expected in (
        (arrays.sort(x, less=by_a, group=group), items[order][part]),
        (arrays.copy_if(x, a_is_large, group=group), items[part][items["a"][part] > 25]),
    ):
        for field, name in zip(found, ("a", "b"), strict=True):
            np.testing.assert_array_equal(get(field), expected[name])
    sort = distributed.merge_sort(x, x, x, x, by_a, group=group)
    out, moved = kind.put(np.zeros_like(items[part])), kind.put(np.zeros_like(items[part]))
    sort.run(x, x, out, moved, len(items[part]))
    for found in (out, moved):
        assert get(found).tolist() == items[order][part].tolist()


def differing(group, kind=Host):
    """Return what a rank is told if the last one means another operator, another dtype or another order."""
    is_last = group.rank == group.size - 1
    x = kind.put(np.zeros(3, "i4" if is_last else "i8"))
    y = kind.put(np.zeros(3, "i8"))
    asked = (
        lambda: distributed.reduce_into(y, y, last_nonzero if is_last else plus, group=group),
        lambda: distributed.inclusive_scan(x, x, plus, group=group),
        lambda: distributed.radix_sort(y, y, order=int(is_last), group=group),
        lambda: distributed.select(y, y, "no array" if is_last else y, is_large, group=group),
    )
    return [told(each) for each in asked]


def told(ask):
    """Return the error of a call as text."""
    try:
        ask()
    except (TypeError, ValueError, distributed.GroupError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
