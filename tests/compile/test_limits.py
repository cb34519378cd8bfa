"""Items that CCCL has no code for: what is refused at once, and what the compilers refuse."""

import numpy as np
import pytest

import cupar
from cupar._compile import limits

ASCENDING = cupar.SortOrder.ASCENDING


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def radix_sort(values, keys="u4", cc=90):
    return cupar.radix_sort(keys, keys, values, values, ASCENDING, cc=cc)


def unique_by_key(items, keys="u4", cc=90):
    return cupar.unique_by_key(keys, items, keys, items, "i8", cupar.OpKind.EQUAL_TO, cc=cc)


def size(dtype):
    return f"{dtype.itemsize} bytes"


@pytest.fixture
def no_compiler(monkeypatch):
    """Nothing may be compiled."""

    def compiled(*arguments, **named):
        raise AssertionError("compiled")

    monkeypatch.setattr("cupar._compile.workers.compile_native", compiled)


@pytest.mark.parametrize("items", [struct("f8", 2), struct("f4", 4), np.dtype("c16")], ids=size)
def test_items_of_unique_by_key_are_refused_at_once(items, no_compiler, empty_cache):
    with pytest.raises(
        TypeError, match="^d_in_items: CCCL's unique_by_key has no code for items of 16 bytes"
    ):
        unique_by_key(items)


def test_what_is_refused_does_not_build(monkeypatch, empty_cache):
    """If CCCL learns to, the refusals can go."""
    monkeypatch.setattr(limits, "check_unique_items", lambda keys, items, cc: None)
    with pytest.raises(cupar.BuildError, match="^d_in_items .items of 16 bytes"):
        unique_by_key(np.dtype("c16"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: radix_sort(struct("u1", 3)),
        lambda: radix_sort(struct("u1", 200)),
        lambda: radix_sort("c16", "i1"),
        lambda: unique_by_key(struct("f4", 3)),
        lambda: unique_by_key(struct("f8", 3)),
        lambda: cupar.merge_sort("u4", "c16", "u4", "c16", cupar.OpKind.LESS, cc=90),
    ],
)
def test_what_is_not_refused_builds(build):
    assert build().build.cubin_size


def test_what_is_too_large_is_said_without_cpp(empty_cache, monkeypatch):
    for debug in ("0", "1"):
        monkeypatch.setenv("CUPAR_DEBUG", debug)
        with pytest.raises(cupar.BuildError) as caught:
            unique_by_key(struct("u8", 16))
        message = str(caught.value)
        assert message.startswith("d_in_items (items of 128 bytes), d_out_items (items of 128 bytes): CCCL's")
        assert "indices" in message and "\n" not in message
        assert (caught.value.__cause__ is not None) == (debug == "1")


def test_other_failures_of_the_compilers_are_shown(empty_cache):
    broken = cupar.RawOp("broken", b"no LTO-IR")
    pair = struct("f8", 2)
    with pytest.raises(cupar.BuildError, match="nvJitLink"):
        cupar.unary_transform(pair, pair, broken, cc=90)
