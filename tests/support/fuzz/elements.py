"""Random calls of what `cupar.arrays` has of Thrust's names against NumPy; see `tests/functions`."""

import numpy as np
from support.fuzz.functions import DTYPES, same

from cupar import arrays


def is_large(a):
    return abs(a) > 1


def larger(a, b):
    return a if abs(a) > abs(b) else b


def alike(a, b):
    return np.float32(a == b)


def double(a):
    return a + a


def perhaps_out(draw, expected, like=None):
    """Return an array for a result, or the input itself where that may be written to."""
    if like is not None and like.flags.writeable and like.flags.c_contiguous and draw.perhaps(True):
        return like
    return draw.perhaps(np.empty(expected.shape, expected.dtype))


def moved(draw):
    x = draw.array()
    axis, number = draw.axis(x), draw.random.randint(-20, 20)
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    reversed_, rolled = np.flip(x, axis), np.roll(x, number, axis)
    same(arrays.reverse(x, axis=axis, out=perhaps_out(draw, reversed_)), reversed_)
    same(arrays.roll(x, number, axis=axis, out=perhaps_out(draw, rolled)), rolled)
    value = draw.one([0, 1])
    expected = np.full_like(flat, value, order="C", subok=False)
    source, target = np.moveaxis(flat, at, 0), np.moveaxis(expected, at, 0)
    length = len(source)
    if abs(number) < length:
        target[max(number, 0) : length + min(number, 0)] = source[max(-number, 0) : length - max(number, 0)]
    same(arrays.shift(x, number, value, axis=axis), expected.reshape(x.shape))


def differences(draw):
    x = draw.array(dtypes=[each for each in DTYPES if each not in ("?", "c8", "c16")])
    axis, backwards = draw.axis(x), draw.one([False, True])
    flat, at = (x.reshape(-1), 0) if axis is None else (x, axis)
    turned = np.moveaxis(np.flip(flat, at) if backwards else flat, at, 0)
    expected = np.concatenate([turned[:1], turned[1:] - turned[:-1]])
    expected = np.moveaxis(expected, 0, at)
    expected = (np.flip(expected, at) if backwards else expected).reshape(x.shape)
    out = perhaps_out(draw, expected, x)
    found = arrays.adjacent_difference(x, axis=axis, reverse=backwards, out=out)
    assert out is None or found is out
    same(found, expected)


def replaced(draw):
    x = draw.array()
    expected = np.where(np.abs(x) > 1, x.dtype.type(1), x)
    same(arrays.replace_if(x.copy(), is_large, 1, out=perhaps_out(draw, expected)), expected)
    expected = np.where(x == 1, x.dtype.type(0), x)
    same(arrays.replace(x, 1, 0, out=perhaps_out(draw, expected, x)), expected)


def computed(draw):
    dtype, size = np.dtype(draw.one(DTYPES)), draw.one([0, 1, 5, 40])
    like = np.empty(0)
    kind = np.dtype(np.int8) if dtype.kind == "b" else dtype
    start, step = draw.one([0, 1, 2]), draw.one([1, 2])
    expected = (np.arange(size) * step + start).astype(kind)
    same(arrays.sequence(size, start, step, dtype=kind, like=like), expected)
    same(arrays.tabulate(size, double, like=like), np.arange(size) * 2)
    whole = draw.items((size, 2), dtype, True)
    value = draw.items((), dtype, True)[()]
    same(arrays.fill(whole, value), np.full_like(whole, value))
    written = np.zeros(size, np.int64)

    def act(i):
        written[i] = i + 7
        return 0

    arrays.for_each(np.arange(size), act)
    same(written, np.arange(size) + 7)


def gathered(draw):
    x = draw.array(special=False)
    places = np.array([draw.random.randrange(-x.size, x.size) for _ in range(x.size and draw.one([0, 1, 9]))])
    places = places.astype(draw.one(["i4", "i8"]))
    flags = draw.items(places.shape, np.dtype(draw.one(["?", "i1", "f4"])), False)
    expected = x.reshape(-1)[places]
    same(arrays.gather(x, places, out=perhaps_out(draw, expected)), expected)
    before = draw.items(places.shape, x.dtype, False)
    same(arrays.gather_if(x, places, flags, before.copy()), np.where(flags != 0, expected, before))
    # Each place once, as the order of writes is none.
    order = draw.random.sample(range(x.size), x.size)
    order = np.array(order, np.int64).reshape(x.shape) - draw.one([0, x.size])
    target = draw.items((x.size,), x.dtype, False)
    expected = target.copy()
    expected[order] = x
    same(arrays.scatter(x, order, target.copy()), expected)
    flags = draw.mask(x)
    expected = target.copy()
    expected[order[flags]] = x[flags]
    same(arrays.scatter_if(x, order, flags, target.copy()), expected)


def shuffled(draw):
    x = draw.array(special=False)
    seed, number = draw.random.randrange(100), draw.random.randint(0, x.size)
    found = arrays.shuffle(x, seed=seed)
    assert found.shape == x.shape
    same(np.sort(found, None), np.sort(x, None), rounded=True)
    same(arrays.sample(x, number, seed=seed), found.reshape(-1)[:number])
    assert len(np.unique(arrays.sample(np.arange(x.size), number, seed=seed))) == number


def counted(draw):
    x = draw.array()
    named = {"axis": draw.axis(x), "keepdims": draw.one([False, True])}
    holds = np.abs(x) > 1
    same(arrays.count_if(x, is_large, **named), np.count_nonzero(holds, **named))
    same(arrays.count(x, 1, **named), np.count_nonzero(x == 1, **named))
    same(arrays.any_of(x, is_large, **named), np.any(holds, **named))
    same(arrays.all_of(x, is_large, **named), np.all(holds, **named))
    same(arrays.none_of(x, is_large, **named), ~np.any(holds, **named))
    places = np.flatnonzero(holds)
    same(arrays.find_first(x, is_large), np.int64(places[0] if len(places) else -1))


def is_true(flag):
    return flag


def goes_before(a, b):
    """Whether NumPy sorts one number before another."""
    return np.argsort(np.array([b, a]), kind="stable")[0] == 1


def is_less(one, two):
    for a, b in zip(one, two, strict=False):
        if goes_before(a, b) or goes_before(b, a):
            return goes_before(a, b)
    return len(one) < len(two)


def compared(draw):
    x = draw.array(low=1)
    other = x.copy()
    if x.size and draw.perhaps(True):
        other[tuple(draw.random.randrange(n) for n in x.shape)] = 2
    differ = np.flatnonzero(x != other)
    same(arrays.mismatch(x, other), np.int64(differ[0] if len(differ) else -1))
    same(arrays.equal(x, other), np.bool_(not len(differ)))
    whole = draw.one([x, np.sort(x, None)])
    order = np.argsort(whole, None, kind="stable")
    same(arrays.is_sorted(whole), np.bool_(np.array_equal(order, np.arange(x.size))))
    items = whole.reshape(-1)
    until = next((i for i in range(1, x.size) if goes_before(items[i], items[i - 1])), x.size)
    same(arrays.is_sorted_until(whole), np.int64(until))
    shorter = items[: draw.random.randint(0, x.size)]
    for one, two in ((items, shorter), (shorter, other.reshape(-1)), (items, other.reshape(-1))):
        same(arrays.lexicographical_compare(one, two), np.bool_(is_less(one, two)))
    large = np.abs(whole.reshape(-1)) > 1
    for flags in (large, np.sort(large)[::-1]):
        is_parted = not np.any(flags[1:] & ~flags[:-1])
        same(arrays.is_partitioned(flags, is_true), np.bool_(is_parted))
        if is_parted:
            same(arrays.partition_point(flags, is_true), np.int64(flags.sum()))


def products(draw):
    x = draw.array(special=False, dtypes=[each for each in DTYPES if each != "?"])
    y = draw.items(x.shape, x.dtype, False)
    same(arrays.inner_product(x, y), np.sum(x * y, dtype=x.dtype), rounded=True)
    if x.size and x.dtype.kind != "c":
        found = arrays.inner_product(x, y, larger, alike, init=-3)
        same(found, np.float32(-3), rounded=True)
    expected = np.sum(np.float64(3) * np.abs(x))
    found = arrays.transform_reduce(x, lambda a: np.float64(3) * abs(a))
    same(found, expected, rounded=True)
    expected = np.cumsum(np.float64(3) * np.abs(x))
    found = arrays.transform_scan(x, lambda a: np.float64(3) * abs(a), out=perhaps_out(draw, expected))
    same(found, expected, rounded=True)


def chosen(draw):
    x = draw.array()
    holds = np.abs(x) > 1
    same(arrays.remove_if(x, is_large), x[~holds])
    first, rest = arrays.partition_copy(x, is_large)
    same(first, x[holds])
    same(rest, x[~holds])
    flags = draw.items(x.shape, np.dtype(draw.one(["?", "u1", "f8"])), False)
    same(arrays.compress(x, flags), x[flags != 0])
    items, number = arrays.compress(x, flags, size=3)
    same(items[: int(number)], x[flags != 0][:3])


CASES = (
    moved,
    differences,
    replaced,
    computed,
    gathered,
    shuffled,
    counted,
    compared,
    products,
    chosen,
)
