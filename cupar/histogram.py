"""Histograms: how many items fall into each of a number of bins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ._call.algorithm import Algorithm
from ._call.native import Launch, NativeCall
from ._call.numbers import item_count
from ._call.signatures import two_phases
from ._compile import cccl
from ._compile.specialisation import Specialisation
from ._obtain.arguments import argument, integers
from ._obtain.call_sites import memoised
from ._obtain.obtain import obtain

_MOST_SAMPLES = 2**31 - 1  # the bindings take a C int
_SMALL_BINS = 256  # up to here, CUB has kernels with counters in shared memory


class Histogram(
    Algorithm,
    native="DeviceHistogramBuildResult",
    uses={"d_samples": "num_samples", "d_histogram": "num_bins"},
):
    """A histogram with bins of equal width; see `histogram_even`."""

    def run(
        self,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Any = None,
    ) -> None:
        """Count the first `num_samples` samples, from 0 to 2**31 - 1, in ``num_output_levels - 1`` bins.

        What `d_histogram` held before is overwritten. The levels are as for `histogram_even`; `stream` as in
        `Algorithm`.
        """
        levels = (h_num_output_levels, h_lower_level, h_upper_level)
        self._run(stream, (d_samples, d_histogram, *levels, num_samples))

    __call__ = two_phases(run)

    @staticmethod
    def _native_arguments(spec: Specialisation, b: Any, d_samples: Any, d_histogram: Any) -> tuple[Any, ...]:
        counts = spec.arguments[1].value
        # Atomic additions are there for unsigned 8-byte counters alone, and are the same for signed ones.
        counter = np.dtype(np.uint64) if counts.itemsize == 8 else counts
        num_levels = _SMALL_BINS + 1 if spec.option("small bins") else _SMALL_BINS + 2
        levels = cccl.type_info(np.dtype(spec.option("levels")))
        num_samples = _MOST_SAMPLES if spec.option("long offsets") else 1
        return 1, 1, d_samples, num_levels, cccl.pointer(counter, address=256), levels, 1, num_samples, True

    def _problem(
        self, d_samples: Any, d_histogram: Any, num_levels: Any, lower: Any, upper: Any, num_samples: Any
    ) -> _Problem:
        spec = self._spec
        samples, levels = spec.arguments[0].given.value, np.dtype(spec.option("levels"))
        problem = _Problem.of(samples, levels, num_levels, lower, upper, num_samples)
        if problem.small_bins != spec.option("small bins"):
            built = "at most 256" if spec.option("small bins") else "more than 256"
            raise ValueError(
                f"h_num_output_levels: this histogram was built for {built} bins, got {problem.num_bins}"
            )
        if problem.long_offsets and not spec.option("long offsets"):
            raise ValueError(
                f"num_samples: this histogram was built for less than 2**31 - 1 bytes of samples, got "
                f"{problem.num_samples} of {samples}: build it with that many"
            )
        return problem

    def _sizes(self) -> Sequence[Any]:
        small = self._spec.option("small bins")
        return [_Problem(11 if small else _SMALL_BINS + 2, 0, 1 << 20, n, small, False) for n in (1, 1 << 17)]

    def _launcher(self, call: NativeCall) -> Launch:
        compute, (d_samples, d_histogram) = call.native.compute_even, call.iterators
        levels = np.dtype(self._spec.option("levels"))

        def launch(address: int, nbytes: int, problem: _Problem, stream: int) -> int:
            n = problem.num_samples
            number = cccl.value(np.array([problem.num_levels], np.int32))
            lower, upper = (cccl.value(np.array([each], levels)) for each in (problem.lower, problem.upper))
            needed: int = compute(
                address, nbytes, d_samples, d_histogram, number, lower, upper, n, 1, n, stream
            )
            return needed

        return launch


@memoised
def histogram_even(
    d_samples: Any,
    d_histogram: Any,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    *,
    cc: Any = None,
    wait: bool = True,
) -> Histogram:
    """Build a histogram with bins of equal width, or fetch it from the cache.

    Bin i counts the samples from ``lower + i * width`` on and below ``lower + (i + 1) * width``, where
    ``width = (upper - lower) / (num_output_levels - 1)``. Samples outside of the levels are not counted, nor
    are NaNs.

    Parameters
    ----------
    d_samples : device array, iterator or dtype, num_samples items
        Real numbers. Only their dtype matters here.
    d_histogram : device array or dtype, num_output_levels - 1 items
        Where the counts go: integers of 4 or 8 bytes.
    h_num_output_levels : int or numpy.ndarray of one element
        How many levels bound the bins: one more than there are bins.
    h_lower_level, h_upper_level : numbers or numpy.ndarrays of one element
        The first level, which is in the first bin, and the last, which is in none. They are taken in float64
        if they or the samples are floats, else in uint64 if the samples are, else in int32 or int64.
    num_samples : int
        How many samples there will be at most, up to 2**31 - 1.
    cc, wait
        As for every factory: see `Algorithm`, which also lists what is raised.

    Returns
    -------
    Histogram
        It serves other levels too, of the same kind of number. These need another build: more than 256 bins,
        samples of 2**31 - 1 bytes or more, levels that int32 cannot hold or that are 2**31 or more apart.

    Examples
    --------
    >>> import cupar
    >>> tenths = cupar.histogram_even("f4", "i4", 11, 0.0, 1.0, 1_000_000, cc=90)
    >>> tenths.build.algorithm
    'histogram_even'

    Notes
    -----
    The algorithm is CUB's ``DeviceHistogram::HistogramEven``. It scales floats by a rounded reciprocal, so a
    sample that is within rounding of a level may be counted on its other side: never one of float16 or
    float32 that is the largest below the upper level, since levels are float64, which is why they are.
    """
    given = argument("d_samples", d_samples)
    samples = given.value
    if samples.kind in "cV":
        raise TypeError(f"d_samples: {samples} has no order; give the real or imaginary part, or magnitudes")
    histogram = integers("d_histogram", d_histogram, smallest=4, output=True, may_iterate=False)
    levels = _level_dtype(samples, h_lower_level, h_upper_level)
    problem = _Problem.of(samples, levels, h_num_output_levels, h_lower_level, h_upper_level, num_samples)
    options = {
        "levels": levels.str,
        "small bins": problem.small_bins,
        "long offsets": problem.long_offsets,
    }
    # CUB takes samples of one byte for numbers of bins, and so would skip the negative ones.
    converted = given.converted(np.dtype(np.int16)) if samples == np.int8 else given
    return obtain(Histogram, "histogram_even", (converted, histogram), {}, cc, wait, **options)


class _Problem(NamedTuple):
    """What a call counts, checked; and what of it a build depends on."""

    num_levels: int
    lower: Any
    upper: Any
    num_samples: int
    small_bins: bool
    long_offsets: bool

    @property
    def num_bins(self) -> int:
        return self.num_levels - 1

    @classmethod
    def of(
        cls, samples: np.dtype[Any], levels: np.dtype[Any], num_levels: Any, lower: Any, upper: Any, n: Any
    ) -> _Problem:
        count = item_count("h_num_output_levels", _scalar("h_num_output_levels", num_levels))
        if not 2 <= count < 2**31:
            raise ValueError(f"h_num_output_levels: expected from 2 to 2**31 - 1, got {count}")
        low, high = _level("h_lower_level", lower, levels), _level("h_upper_level", upper, levels)
        if not low < high:
            raise ValueError(f"h_upper_level: expected more than h_lower_level, {low}, got {high}")
        # CUB multiplies a sample's distance from the lower level by the number of bins, in 64 bits.
        if levels.kind != "f" and (high - low >= 2**63 or (high - low) * (count - 1) >= 2**64):
            raise ValueError(
                f"h_upper_level: {count - 1} bins from {low} to {high} overflow 64 bits; give floats"
            )
        if levels == np.int32 and high - low >= 2**31:
            raise ValueError(
                f"h_upper_level: this histogram was built for levels less than 2**31 apart, got {low}, {high}"
            )
        if levels.kind == "f" and not np.isfinite(high - low):
            raise ValueError(f"h_upper_level: {high} is too far from h_lower_level, {low}, for float64")
        n = item_count("num_samples", n)
        if n > _MOST_SAMPLES:
            raise ValueError(f"num_samples: expected at most {_MOST_SAMPLES}, got {n}")
        # Samples of one byte have 256 values, and so always their counters in shared memory.
        small = count - 1 <= _SMALL_BINS or (samples.itemsize == 1 and samples != np.int8)
        itemsize = 2 if samples == np.int8 else samples.itemsize
        return cls(count, low, high, n, small, n * itemsize >= 2**31 - 1)


def _scalar(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.size != 1:
            raise ValueError(f"{name}: expected a number or an array of one element, got {value.size}")
        value = value.reshape(-1)[0]
    if not isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        raise TypeError(
            f"{name}: expected a real number or a NumPy array of one element, got {type(value).__name__}"
        )
    return value


def _level_dtype(samples: np.dtype[Any], lower: Any, upper: Any) -> np.dtype[Any]:
    """Return the type to compute bins in, with the samples' own: one that C++ promotes both to rightly."""
    levels = (_scalar("h_lower_level", lower), _scalar("h_upper_level", upper))
    if samples.kind == "f" or any(isinstance(level, (float, np.floating)) for level in levels):
        return np.dtype(np.float64)
    if samples.itemsize == 8 or samples == np.uint32:
        return np.dtype(np.uint64 if samples == np.uint64 else np.int64)
    # Quicker by a twentieth, where nothing overflows.
    low, high = map(int, levels)
    return np.dtype(np.int32 if low >= -(2**31) and high < 2**31 and high - low < 2**31 else np.int64)


def _level(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    number = _scalar(name, value)
    if dtype.kind != "f":
        if isinstance(number, (float, np.floating)):
            raise TypeError(f"{name}: this histogram was built for levels of {dtype}, got {number!r}")
        info = np.iinfo(dtype)
        if not info.min <= int(number) <= info.max:
            raise ValueError(f"{name}: {dtype} cannot hold {number!r}")
        return int(number)
    if not np.isfinite(float(number)):
        raise ValueError(f"{name}: expected a finite number, got {number!r}")
    return float(number)
