"""Arrays for random calls: edges of their dtypes, and memory around them that must not change."""

import numpy as np

from cupar import structs

from .numbers import BF16

REAL = [np.dtype(each) for each in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")]
REAL.append(BF16)
NUMBERS = [*REAL, np.dtype("c8"), np.dtype("c16")]
STRUCTS = [
    np.dtype([("x", "f4"), ("n", "i8")], align=True),
    np.dtype([("a", "i1"), ("b", "f8"), ("c", "u2")], align=True),
    np.dtype([("p", np.dtype([("u", "i4"), ("v", "i4")], align=True)), ("flag", "?")], align=True),
]
SIZES = [0, 1, 2, 3, 16, 17, 100, 257, 1000, 2047, 2049, 4200]
LARGE = [2**16 - 1, 2**16, 2**16 + 1, 2**17 - 1, 2**17 + 3, 3 * 2**16 + 5]
GUARD = 64  # bytes around an array


def is_float(dtype):
    return structs.kind_of(dtype) == "f"


def edges(dtype):
    """Return the values of a number's dtype that go wrong first."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        found = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, info.max // 2 + 1]
        return np.array([*found, *([-1, -2] if dtype.kind == "i" else [])], dtype)
    if dtype.kind == "c":
        parts = [0.0, -0.0, 1.0, -2.0, 0.5, 1e10]
        return np.array([complex(a, b) for a in parts for b in parts], dtype)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    found = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, np.inf, -np.inf, np.nan, 1000.25]
    with np.errstate(all="ignore"):
        more = [info.max, info.min, info.tiny, info.smallest_subnormal, info.eps]
        return np.array([*found, *map(float, more)]).astype(dtype)


def values(rng, n, dtype, style="any"):
    """Return items: `any` at edges and anywhere, `few` different ones, `exact` ones that sum exactly."""
    if dtype.names is not None:
        found = np.zeros(n, dtype)
        for name in dtype.names:
            found[name] = values(rng, n, dtype[name], style)
        return found
    if style == "few":
        pool = edges(dtype)
        pool = pool[[value == value for value in pool.tolist()]]
        return rng.choice(pool[rng.permutation(len(pool))[: int(rng.integers(1, 5))]], n)
    if style == "exact":
        found = rng.integers(0 if dtype.kind in "bu" else -3, 4, n)
        return found.astype(dtype) if dtype.kind != "c" else (found + 1j * found[::-1]).astype(dtype)
    some = edges(dtype)
    if style == "tame":
        some = some[np.isfinite(some.astype("f8" if dtype.kind != "c" else "c16"))]
    chosen = rng.choice(some, n)
    if dtype.kind == "b":
        return chosen
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        others = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        others = np.where(rng.random(n) < 0.5, others, rng.integers(0, 100, n).astype(dtype))
    else:
        others = 50 * rng.normal(size=n) + (50j * rng.normal(size=n) if dtype.kind == "c" else 0)
        others = np.round(others, 2).astype(dtype)
    return np.where(rng.random(n) < float(rng.choice([0.05, 0.3, 0.9])), chosen, others).astype(dtype)


class Memory:
    """Arrays that begin anywhere in memory, with bytes around them that must stay as they are."""

    def __init__(self, rng):
        self.rng, self.blocks = rng, []

    def array(self, items, read_only=False):
        """Return a copy of an array."""
        items = np.ascontiguousarray(items)
        start = GUARD + items.dtype.itemsize * int(self.rng.integers(8))
        block = self.rng.integers(0, 256, start + items.nbytes + GUARD, np.uint8)
        aligned = np.empty(len(block) + 64, np.uint8)
        shift = -aligned.ctypes.data % 64
        block, aligned = aligned[shift : shift + len(block)], block
        block[:] = aligned
        found = block[start : start + items.nbytes].view(items.dtype)
        found[:] = items
        self.blocks.append((block, start, items.nbytes, block.copy(), read_only))
        found.flags.writeable = not read_only
        return found

    def changed(self):
        """Return whether anything changed that no call may write."""
        for block, start, size, before, read_only in self.blocks:
            inside = slice(start, start + (0 if read_only else size))
            now = block.copy()
            now[inside] = before[inside]
            if not np.array_equal(now, before):
                return True
        return False
