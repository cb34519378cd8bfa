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


ODD = [struct("u1", 5), struct("u2", 3), struct("u1", 7)]
LARGE = [struct("f4", 3), struct("u1", 16), struct("f8", 3), struct("u8", 8), np.dtype("c16")]
NO_RADIX = [struct("u1", 3), *ODD, *LARGE]


@pytest.fixture
def no_compiler(monkeypatch):
    """Nothing may be compiled."""

    def compiled(*arguments, **named):
        raise AssertionError("compiled")

    monkeypatch.setattr("cupar._compile.workers.compile_native", compiled)


@pytest.mark.parametrize("cc", [75, 80, 90, 100, 120])
@pytest.mark.parametrize("values", NO_RADIX, ids=size)
def test_values_of_radix_sorts_are_refused_at_once(values, cc, no_compiler, empty_cache):
    with pytest.raises(TypeError) as caught:
        radix_sort(values, cc=cc)
    message = str(caught.value)
    assert message.startswith(
        f"d_in_values: CCCL's radix sort has no code for items of {values.itemsize} bytes"
    )
    assert "sort indices in their place" in message


@pytest.mark.parametrize("items", [struct("f8", 2), struct("f4", 4), np.dtype("c16")], ids=size)
def test_items_of_unique_by_key_are_refused_at_once(items, no_compiler, empty_cache):
    with pytest.raises(
        TypeError, match="^d_in_items: CCCL's unique_by_key has no code for items of 16 bytes"
    ):
        unique_by_key(items)


@pytest.mark.parametrize("values", [*ODD, LARGE[0], LARGE[-1]], ids=size)
def test_what_is_refused_does_not_build(values, monkeypatch, empty_cache):
    """If CCCL learns to, the refusals can go."""
    monkeypatch.setattr(limits, "check_radix_values", lambda values: None)
    monkeypatch.setattr(limits, "check_unique_items", lambda keys, items, cc: None)
    with pytest.raises(cupar.BuildError, match="^d_in_values .items of .* does not build for these on sm_90"):
        radix_sort(values)
    if values.itemsize == 16:
        with pytest.raises(cupar.BuildError, match="^d_in_items .items of 16 bytes"):
            unique_by_key(values)


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: radix_sort(struct("u2", 2)),
        lambda: radix_sort("c8"),
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
