"""NumPy's sorts, which are not stable and know one NaN, give the same order as keys' bits on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cupar
from cupar._cpu import bit_sorts
from cupar.sort import SortOrder

DTYPES = [np.dtype(each) for each in ("b1", "i1", "u2", "f2", "i4", "u4", "f4", "i8", "u8", "f8")]


def keys_of(dtype: np.dtype[Any], size: int, kind: str, rng: np.random.Generator) -> Any:
    """Return keys of any bits, few different ones, or some that differ in their last bits alone."""
    if dtype.kind == "b":
        return rng.random(size) < 0.5
    words = rng.integers(0, 256, (size, dtype.itemsize), np.uint8).view(f"u{dtype.itemsize}")[:, 0]
    if kind == "few":
        words = words[rng.integers(0, min(5, size), size)]
    elif kind == "near":
        words = words[0] ^ (words & words.dtype.type(0x3F))
    keys = words.view(dtype)
    if dtype.kind == "f" and kind != "any":
        keys = np.concatenate((keys[2:], keys[:2]))
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype)
        at = rng.random(size) < 0.3
        keys[at] = special[rng.integers(0, 2 if kind == "near" else 6, np.count_nonzero(at))]
    return keys


def order_of(keys: Any, descends: bool) -> Any:
    """Return the order that the general way has: a stable sort of ranks."""
    return np.argsort(bit_sorts.ranks(keys, descends), kind="stable")


def bits(keys: Any) -> Any:
    return keys.view(f"u{keys.dtype.itemsize}")


@pytest.mark.parametrize("kind", ["any", "few", "near"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descends", [False, True])
def test_sorts(dtype: np.dtype[Any], kind: str, descends: bool) -> None:
    rng = np.random.default_rng(5)
    order = SortOrder.DESCENDING if descends else SortOrder.ASCENDING
    with cupar.device("cpu"):
        for size in (1, 2, 255, 3000):
            keys = keys_of(dtype, size, kind, rng)
            wanted, values = order_of(keys, descends), np.arange(size, dtype=np.int32)
            out, moved = np.empty_like(keys), np.empty_like(values)
            cupar.radix_sort(keys, out, None, None, order).run(keys, out, None, None, size)
            assert (bits(out) == bits(keys[wanted])).all(), (size, keys.tolist())
            cupar.radix_sort(keys, out, values, moved, order).run(keys, out, values, moved, size)
            assert (moved == wanted).all() and (bits(out) == bits(keys[wanted])).all(), size


@pytest.mark.parametrize("kind", ["any", "few", "near"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("descends", [False, True])
def test_first_keys(dtype: np.dtype[Any], kind: str, descends: bool) -> None:
    rng = np.random.default_rng(6)
    for size, k in ((1, 1), (300, 300), (300, 7), (40_000, 1), (40_000, 300), (100_000, 2000)):
        keys = keys_of(dtype, size, kind, rng)
        found = bit_sorts._first(keys, k, descends)
        assert (found == order_of(keys, descends)[:k]).all(), (size, k)


def test_many_items_of_one_key() -> None:
    keys = np.zeros(70_000, np.float32)
    keys[1::2] = -0.0
    assert (bit_sorts._first(keys, 1000, True) == np.arange(1000)).all()
    assert (bit_sorts.stable_order(bit_sorts.ranks(keys, False)) == np.arange(70_000)).all()


def test_words_that_their_last_bits_tell_apart() -> None:
    words = np.arange(1 << 12, dtype=np.uint64)[::-1].copy()
    words[0] = 1 << 63  # so that places take bits that the others differ in
    assert (bit_sorts.stable_order(words) == np.argsort(words, kind="stable")).all()
