"""Plans of histograms, and the arithmetic of their kernels."""

import random
import struct
from collections import namedtuple

import numpy as np
import pytest
from support import plans
from support.disassembly import kernels, spills_or_calls

import cupar
from cupar._kernels import histogram, policies

CC, SMS, SHARED_MEMORY = 90, 132, 232_448
WORD = 2**64
HistogramProblem = namedtuple("HistogramProblem", "num_bins lower upper num_samples")


def facts(dtype, levels="i8", vector_items=None):
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    policy = policies.HISTOGRAM.get(90, size)
    numbers = {
        "threads": policy.threads,
        "vector_items": vector_items or 16 // size,
        "is_spread": policy.is_spread,
        "sample_size": size,
        "is_signed": dtype.kind in "if",
        "narrow_bits": 16 if size <= 2 else 32,
        "kind_of_levels": int(levels == "f8"),
        "level_size": 8,
        "sms": SMS,
        "shared_memory": SHARED_MEMORY,
    }
    return numbers, lambda kernel, threads, shared: min(2, SHARED_MEMORY // (shared + 1024)) or 1


def planned(dtype, bins, n, lower=0, upper=2**20, **given):
    found = plans.planned(histogram.HISTOGRAM, *facts(dtype, **given))(
        HistogramProblem(bins, lower, upper, n)
    )
    levels = histogram._FLOATS if given.get("levels") == "f8" else histogram._INTEGERS
    names = ("n", "grid", "zero_grid", "shared", "width", "step", *(each.name for each in levels))
    return found.shape, dict(zip(names, found.numbers, strict=True))


# --- Shapes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "bins", "n", "shape"),
    [
        ("i4", 256, 0, "block"),
        ("i4", 1, 1, "block"),
        ("i4", 4096, 2**14, "block"),
        ("i4", 4097, 2**14, "shared"),
        ("i4", 30_000, 2**14, "cached"),
        ("i4", 256, 2**14 + 1, "shared"),
        ("f4", 256, 2**40, "shared"),
        ("u1", 256, 2**28, "shared"),
        ("u1", 2**31 - 2, 5, "shared"),
        ("f8", 58_111, 2**28, "shared"),
        ("f8", 58_112, 2**28, "cached"),
        ("i4", 10_000, 2**16, "shared"),
        ("i4", 58_000, 2**18, "cached"),
        ("i8", 2**31 - 2, 2**33, "cached"),
    ],
)
def test_shapes(dtype, bins, n, shape):
    levels = "f8" if dtype.startswith("f") else "i8"
    found, numbers = planned(dtype, bins, n, levels=levels)
    assert found == shape
    assert (numbers["n"], numbers["bins"]) == (n, bins)
    assert 0 < numbers["shared"] <= SHARED_MEMORY and numbers["shared"] % 16 == 0
    assert 1 <= numbers["grid"] < 2**31
    assert (numbers["zero_grid"] == 0) == (shape == "block")
    if shape == "block":
        assert numbers["grid"] == 1


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8"])
@pytest.mark.parametrize("n", [2**14 + 1, 2**20 + 3, 2**31 - 1, 2**31, 2**32 + 5, 2**45, 2**62])
def test_grids(dtype, n):
    _, numbers = planned(dtype, 256, n, 0, 100)
    blocks, at_once = numbers["grid"], 1024 * 16 // np.dtype(dtype).itemsize
    assert 1 <= blocks < 2**31 and (blocks <= 2 * SMS or n // blocks > 2**30)
    # A block's counts fit into counters of 32 bits, with the remainders of vectors.
    assert n // blocks + at_once + 32 < 2**32
    rows = 256 if dtype == "u1" else 257
    assert numbers["shared"] == -(-rows * numbers["width"] // 4) * 16
    assert numbers["width"] == (32 if dtype in ("u1", "i2") and n > 2**23 else 1)


def test_caches():
    for n in (1, 10**4, 10**6, 2**28, 2**35):
        shape, numbers = planned("i4", 10**6, n)
        slots, blocks = numbers["width"], numbers["grid"]
        assert shape == "cached" and slots & (slots - 1) == 0 and 32 <= slots <= 2**13
        assert numbers["shared"] == 8 * slots
        # Probes are in the input, or are left out where there are fewer samples than slots.
        assert numbers["step"] == 1 or numbers["step"] * blocks * slots <= n


def test_no_sample_is_between_the_levels():
    for dtype, lower, upper in (
        ("u1", 256, 300),
        ("i2", -(2**40), -(2**15)),
        ("u4", -5, 0),
        ("i4", 2**31, 2**40),
    ):
        assert planned(dtype, 7, 2**20, lower, upper)[1]["n"] == 0
    assert planned("u1", 7, 2**20, 255, 300)[1]["n"] == 2**20


@pytest.mark.parametrize(
    ("bins", "n", "size", "parts"),
    [
        (64, 2**26, 4, 2**13),
        (8191, 2**26, 8, 2**13),
        (16_000, 2**26, 8, 2**13),
        (17_000, 2**26, 8, 0),  # for which there is no room
        (65_535, 2**26, 1, 0),
        (64, 2**18, 4, 2**13),
        (64, 2**18 - 1, 4, 0),
        (64, 2**26, 0, 0),  # of bytes
    ],
)
def test_levels_are_copied_to_shared_memory(bins, n, size, parts):
    given, occupancy = facts("f4")
    given |= {"kind_of_levels": 2, "level_size": size}
    problem = histogram.HistogramRangeProblem(bins, bins + 1, n)
    found = plans.planned(histogram.HISTOGRAM, given, occupancy)(problem)
    names = ("n", "grid", "zero_grid", "shared", "width", "step", "bins", "parts")
    numbers = dict(zip(names, found.numbers, strict=True))
    assert (numbers["bins"], numbers["parts"]) == (bins, parts)
    if found.shape == "shared":
        counted, staged = 16 * -(-(bins + 1) // 4), 16 * -(-(bins + 1) * size // 16) + 4 * parts
        assert numbers["shared"] == counted + (staged if parts else 0) <= SHARED_MEMORY


# --- Arithmetic ------------------------------------------------------------------------------------------


def binned(dtype, numbers, sample):
    """Compute what the kernels' scales do; return the number of bins for a sample in none."""
    bits = 64 if np.dtype(dtype).itemsize == 8 else 32
    narrow_bits = 16 if np.dtype(dtype).itemsize <= 2 else 32
    low = (1 << bits) - 1
    offset = (sample - numbers["first"]) & low
    if offset > numbers["last"] & low:
        return numbers["bins"]
    if numbers["shift"] == 0:
        distance = (offset + numbers["below"]) & 0xFFFF_FFFF
        fraction = distance * numbers["reciprocal"] >> 2 * narrow_bits
        assert numbers["reciprocal"] < 1 << 2 * narrow_bits
        return (fraction + distance * numbers["times"]) & 0xFFFF_FFFF
    product = (offset + numbers["below"]) * numbers["times"]
    assert product < WORD and numbers["reciprocal"] < WORD
    high = product * numbers["reciprocal"] >> 64
    return (high + (product - high >> 1)) >> numbers["shift"] & 0xFFFF_FFFF


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"])
def test_integers_are_in_the_bins_that_exact_division_gives(dtype):
    draw = random.Random(dtype)
    info = np.iinfo("u1" if dtype == "?" else dtype)
    smallest, largest = (0, 2**64 - 1) if dtype == "u8" else (-(2**63), 2**63 - 1)
    widths = [2**k + d for k in range(0, 63, 3) for d in (-1, 0, 1)] + [2**16, 2**32, 2**32 + 1, 2**63 - 1]
    for width in widths:
        if not 0 < width < 2**63:
            continue
        for bins in {1, 2, width, width - 1, 10, 257, 2**31 - 2, draw.randrange(1, 2**31 - 1)}:
            if not 0 < bins < 2**31 - 1 or bins * width >= WORD:
                continue
            for lower in (0, int(info.min), int(info.max) - 1, draw.randint(smallest, largest - width)):
                upper = lower + width
                if not (smallest <= lower and upper <= largest):
                    continue
                _, numbers = planned(dtype, bins, 2**20, lower, upper)
                samples = [lower - 1, lower, upper - 1, upper, int(info.min), int(info.max), 0]
                # Next to the bounds of bins.
                for _ in range(6):
                    bound = lower + draw.randrange(bins + 1) * width // bins
                    samples += [bound - 1, bound, bound + 1]
                for sample in samples:
                    if not info.min <= sample <= info.max:
                        continue
                    inside = lower <= sample < upper
                    expected = (sample - lower) * bins // width if inside else bins
                    if numbers["n"]:
                        assert binned(dtype, numbers, sample) == expected, (bins, lower, upper, sample)
                    else:
                        assert not inside


def test_floats_are_handed_over_as_their_bits():
    _, numbers = planned("f4", 10, 1000, -0.5, 2.0, levels="f8")
    read = [
        struct.unpack("<d", numbers[name].to_bytes(8, "little"))[0]
        for name in ("lower", "upper", "unit", "shift", "reciprocal")
    ]
    assert read == [-0.5, 2.0, 0.5, 0.25, 8.0]
    for lower, upper in ((0.0, 5e-324), (0.0, 1e308), (-8e307, 8e307), (1.0, 1 + 2**-52)):
        unit = histogram.unit_of(lower, upper)
        assert 2**-75 <= (upper - lower) * unit <= 2**25
        assert np.isfinite([lower * unit, upper * unit]).all() and np.frexp(unit)[0] == 0.5


# --- Code ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("cc", [75, 90])
def test_kernels(cc, tmp_path, empty_cache):
    of_ints = cupar.histogram_even("i4", "i8", 11, 0, 10, 1000, cc=cc)
    names = ["cupar_histogram_cached", "cupar_histogram_shared", "cupar_histogram_zero"]
    assert sorted(kernels(of_ints, tmp_path)) == names
    if cc == CC:
        assert spills_or_calls(of_ints, tmp_path) == []


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_an_iterator_of_another_function_is_linked(empty_cache, tmp_path):
    def ask(function):
        samples = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), function)
        return cupar.histogram_even(samples, "i4", 11, 0, 10, 1000, cc=CC)

    assert ask(lambda i: i * i % 10).build.origin == "built"
    other = ask(lambda i: i * i * i % 10)
    assert other.build.origin == "linked"
    assert spills_or_calls(other, tmp_path) == []
