"""Items that are too large for kernels, and what the compilers refuse."""

import numpy as np
import pytest
from support.templates import compiled

import cupar
from cupar import _build

ASCENDING = cupar.SortOrder.ASCENDING


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def radix_sort(values, keys="u4", cc=90):
    return cupar.radix_sort(keys, keys, values, values, ASCENDING, cc=cc)


def unique_by_key(items, keys="u4", cc=90):
    return cupar.unique_by_key(keys, items, keys, items, "i8", cupar.OpKind.EQUAL_TO, cc=cc)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: radix_sort(struct("u1", 200)),
        lambda: unique_by_key(struct("u8", 62), "c16"),
        lambda: cupar.select(struct("c16", 32), struct("c16", 32), "i8", lambda a: a.x0 != a.x31, cc=75),
    ],
)
def test_what_is_not_refused_builds(build):
    """The assembler says whether items are too large for shared memory: those that are as large as any."""
    assert build().build.cubin_size


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: radix_sort(struct("u1", 3)),
        lambda: radix_sort("c16", "i1"),
        lambda: unique_by_key(struct("f4", 3)),
        lambda: cupar.merge_sort("u4", "c16", "u4", "c16", cupar.OpKind.LESS, cc=90),
    ],
)
def test_what_is_smaller_compiles(build):
    compiled(build)


def test_what_is_too_large_is_said_before_it_is_compiled(empty_cache):
    with pytest.raises(cupar.BuildError) as caught:
        unique_by_key(struct("u8", 64))
    assert str(caught.value) == (
        "d_in_keys (items of 4 bytes), d_in_items (items of 512 bytes): too large for unique_by_key, which "
        "takes 512 bytes at most; make the struct smaller, or give indices in their place, and read the "
        "items through a cupar.PermutationIterator"
    )


def test_what_needs_too_much_shared_memory_says_what_to_do(empty_cache, monkeypatch):
    def refuse(*given):
        raise cupar.BuildError("ptxas: Entry function 'kernel' uses too much shared data (0x10000 bytes)")

    monkeypatch.setattr(_build, "_link", refuse)
    pair = struct("f8", 2)
    with pytest.raises(cupar.BuildError, match=r"^d_in \(items of 16 bytes\), .* does not build for"):
        cupar.unary_transform(pair, pair, lambda x: x, cc=90)
    with pytest.raises(cupar.BuildError, match="^ptxas: Entry function"):  # of which no struct is the cause
        cupar.unary_transform("f8", "f8", lambda x: x, cc=90)


def test_other_failures_of_the_compilers_are_shown(empty_cache):
    broken = cupar.RawOp("broken", b"no LTO-IR")
    pair = struct("f8", 2)
    with pytest.raises(cupar.BuildError, match="nvJitLink"):
        cupar.unary_transform(pair, pair, broken, cc=90)
