"""Histograms: how many items fall into each of a number of bins."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from . import structs
from ._arguments.numbers import item_count, level, refuse, scalar
from ._arguments.order import two_phases
from ._base.errors import ArgumentTypeError
from ._base.sizes import value_of
from ._call.algorithm import Algorithm
from ._kernels.family import helper
from ._kernels.histogram import HISTOGRAM, HistogramProblem, HistogramRangeProblem, overflows, word
from ._obtain.arguments import argument, integers
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain

if TYPE_CHECKING:
    from collections.abc import Callable

    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream
    from ._ir.specialisation import Specialisation


class Histogram(
    Algorithm,
    family=HISTOGRAM,
    uses={"d_samples": "num_samples", "d_histogram": "num_bins"},
    any_order=("d_samples",),
):
    """A histogram with bins of equal width; see `histogram_even`."""

    def run(
        self,
        d_samples: Array,
        d_histogram: Array,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Stream = None,
    ) -> None:
        """Count the first `num_samples` samples, 0 or more, in bins.

        There are ``num_output_levels - 1`` of them.

        2**32 samples and beyond are included; counts that `d_histogram` cannot
        hold wrap around. What it held before is overwritten. The levels are as
        for `histogram_even`; `stream` as in `Algorithm`.
        """
        levels = (h_num_output_levels, h_lower_level, h_upper_level)
        self._run(stream, (d_samples, d_histogram, *levels, num_samples))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., HistogramProblem]:
        return _problem_of(np.dtype(spec.option("levels")))


@memoised
def histogram_even(
    d_samples: ArrayOrType,
    d_histogram: ArrayOrType,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> Histogram:
    """Build a histogram with bins of equal width, or fetch it from the cache.

    Bin i counts the samples from ``lower + i * width`` on and below
    ``lower + (i + 1) * width``, where
    ``width = (upper - lower) / (num_output_levels - 1)``. Samples outside of
    the levels are not counted, nor are NaNs.

    Parameters
    ----------
    d_samples : device array, iterator or dtype, num_samples items
        Real numbers. Only their dtype matters here.
    d_histogram : device array or dtype, num_output_levels - 1 items
        Where the counts go: integers of 4 or 8 bytes.
    h_num_output_levels : int or numpy.ndarray of one element
        Number of levels that bound the bins: one more than bins.
    h_lower_level, h_upper_level : numbers or numpy.ndarrays of one element
        The first level, which is in the first bin, and the last, which is in
        none. They are taken in float64 if they or the samples are floats, else
        in uint64 if the samples are, else in int64.
    num_samples : int
        Number of samples. Only checked here.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    Histogram
        It serves any number of bins and samples, and all levels of the same
        kind of number.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> samples = np.array([0.05, 0.5, 0.55, 0.95], np.float32)
    >>> counts = np.zeros(10, np.int32)
    >>> arguments = samples, counts, 11, 0.0, 1.0, 4
    >>> tenths = cupar.histogram_even(*arguments, cc="cpu")
    >>> tenths.run(*arguments)
    >>> print(counts)
    [1 0 0 0 0 2 0 0 0 1]

    Notes
    -----
    Samples are put into bins as CUB's ``DeviceHistogram::HistogramEven`` does
    it, and counted in shared memory if the bins fit there. Floats are scaled by
    a rounded reciprocal, so a sample that is within rounding of a level may be
    counted on its other side: never one of float16 or float32 that is the
    largest below the upper level, since levels are float64, which is why they
    are.
    """
    given = argument("d_samples", d_samples)
    samples = given.value
    if structs.kind_of(samples) in "cV":
        raise ArgumentTypeError(
            "d_samples", f"{samples} has no order; give the real or imaginary part, or magnitudes"
        )
    histogram = integers("d_histogram", d_histogram, smallest=4, output=True, may_iterate=False)
    # Of a call that is traced, the problem of each later one is checked, too.
    number, lower, upper = map(value_of, (h_num_output_levels, h_lower_level, h_upper_level))
    levels = _level_dtype(samples, lower, upper)
    _problem_of(levels)(number, lower, upper, item_count("num_samples", value_of(num_samples)))
    return obtain(Histogram, "histogram_even", (given, histogram), {}, cc, wait, link, levels=levels.str)


class HistogramRange(
    Algorithm,
    family=HISTOGRAM,
    uses={"d_samples": "num_items", "d_histogram": "num_bins", "d_levels": "num_levels"},
    any_order=("d_samples",),
):
    """A histogram with bins between given levels; see `histogram_range`."""

    def run(
        self,
        d_samples: Array,
        d_histogram: Array,
        h_num_output_levels: Any,
        d_levels: Array,
        num_samples: int,
        stream: Stream = None,
    ) -> None:
        """Count the first `num_samples` samples, 0 or more, in bins.

        There are ``num_output_levels - 1`` of them. Samples and counts are as for
        `Histogram.run`; `stream` as in `Algorithm`.
        """
        self._run(stream, (d_samples, d_histogram, h_num_output_levels, d_levels, num_samples))

    @two_phases(run)
    def __call__(self) -> None:
        """Query the size of the temporary storage, or run with it."""

    @staticmethod
    def _problem_maker(spec: Specialisation) -> Callable[..., HistogramRangeProblem]:
        return _ranges


@memoised
def histogram_range(
    d_samples: ArrayOrType,
    d_histogram: ArrayOrType,
    h_num_output_levels: Any,
    d_levels: ArrayOrType,
    num_samples: int,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> HistogramRange:
    """Build a histogram between given levels, or fetch it from the cache.

    Bin i counts the samples from ``levels[i]`` on and below ``levels[i + 1]``.
    Samples outside of the levels are not counted, nor are NaNs.

    Parameters
    ----------
    d_samples : device array, iterator or dtype, num_samples items
        Real numbers. Only their dtype matters here.
    d_histogram : device array or dtype, num_output_levels - 1 items
        Where the counts go: integers of 4 or 8 bytes.
    h_num_output_levels : int or numpy.ndarray of one element
        How many levels bound the bins: one more than there are bins.
    d_levels : device array or dtype, num_output_levels items
        Real numbers that rise, which is not checked, of a dtype that holds the
        samples; theirs is the quickest. NaN as the last one is above all
        samples.
    num_samples : int
        How many samples there will be. Only checked here.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    HistogramRange
        It serves any number of bins and samples.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> samples = np.array([0.5, 1.0, 3.0, 9.0, 10.0])
    >>> counts, levels = np.zeros(2, np.int32), np.array([0.0, 1.0, 10.0])
    >>> arguments = samples, counts, 3, levels, 5
    >>> by_levels = cupar.histogram_range(*arguments, cc="cpu")
    >>> by_levels.run(*arguments)
    >>> print(counts)
    [1 3]

    Notes
    -----
    It does what CUB's ``DeviceHistogram::HistogramRange`` does. Of many
    samples, a table in shared memory says which levels are in the part of the
    range that a sample is in, of 8,192 parts of equal width.
    """
    given = argument("d_samples", d_samples)
    histogram = integers("d_histogram", d_histogram, smallest=4, output=True, may_iterate=False)
    levels = argument("d_levels", d_levels, may_iterate=False)
    for each in (given, levels):
        if structs.kind_of(each.value) in "cV":
            raise ArgumentTypeError(each.name, f"{each.value} has no order; give the real or imaginary part")
    if not np.can_cast(given.value, levels.value):
        wanted = f"a dtype that holds samples of {given.value}"
        raise ArgumentTypeError("d_levels", f"expected {wanted}, got {levels.value}")
    _ranges(h_num_output_levels, item_count("num_samples", num_samples))
    return obtain(HistogramRange, "histogram_range", (given, histogram, levels), {}, cc, wait, link)


def _ranges(h_num_output_levels: Any, num_samples: int) -> HistogramRangeProblem:
    count = _level_count(h_num_output_levels)
    return HistogramRangeProblem(count - 1, count, item_count("num_samples", num_samples))


@helper
def _level_count(h_num_output_levels: Any) -> int:
    """Return a number of levels as an int; raise ValueError if it is invalid."""
    count = item_count("h_num_output_levels", scalar("h_num_output_levels", h_num_output_levels))
    if count < 2 or count >= 2**31:
        refuse("h_num_output_levels", "expected from 2 to 2**31 - 1", ", got {}", count)
    return count


def _problem_of(levels: np.dtype[Any]) -> Callable[..., HistogramProblem]:
    """Return the function that makes the problem of a call, with levels of a dtype."""

    def problem(
        h_num_output_levels: Any, h_lower_level: Any, h_upper_level: Any, num_samples: int
    ) -> HistogramProblem:
        count = _level_count(h_num_output_levels)
        low, high = (
            level("h_lower_level", h_lower_level, levels),
            level("h_upper_level", h_upper_level, levels),
        )
        check(low, high, count - 1)
        return HistogramProblem(count - 1, word(low), word(high), num_samples)

    check = _check_floats if levels.kind == "f" else _check_integers
    return problem


@helper
def _check_floats(low: float, high: float, bins: int) -> None:
    if not isfinite(low):
        refuse("h_lower_level", "expected a finite number", ", got {}", low)
    if not isfinite(high):
        refuse("h_upper_level", "expected a finite number", ", got {}", high)
    if not low < high:
        refuse("h_upper_level", "expected more than h_lower_level", ", {}, got {}", low, high)
    if not isfinite(high - low):
        refuse("h_upper_level", "is too far from h_lower_level for float64", ": {} from {}", high, low)


@helper
def _check_integers(low: int, high: int, bins: int) -> None:
    if not low < high:
        refuse("h_upper_level", "expected more than h_lower_level", ", {}, got {}", low, high)
    if overflows(low, high, bins):
        refuse(
            "h_upper_level", "the bins overflow 64 bits; give floats", ": {} from {} to {}", bins, low, high
        )


def _level_dtype(samples: np.dtype[Any], lower: Any, upper: Any) -> np.dtype[Any]:
    """Return the type to compute bins in, with the samples' own: one that C++ promotes both to rightly."""
    levels = (scalar("h_lower_level", lower), scalar("h_upper_level", upper))
    if structs.kind_of(samples) == "f" or any(isinstance(level, (float, np.floating)) for level in levels):
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if samples == np.uint64 else np.int64)
