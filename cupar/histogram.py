"""Histograms: how many items fall into each of a number of bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ._call.algorithm import Algorithm
from ._call.arguments import argument, integers, item_count
from ._call.call import Call, Launch, Request
from ._compile import cccl
from ._compile.key import Specialisation
from ._obtain import obtain
from ._obtain.call_sites import remembered

_MOST_SAMPLES = 2**31 - 1  # the bindings take a C int
_SMALL_BINS = 256  # up to here, CUB has kernels with counters in shared memory


@remembered
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
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    Histogram
        It serves other levels too, of the same kind of number. These need another build: more than 256 bins,
        samples of 2**31 - 1 bytes or more, levels that int32 cannot hold or that are 2**31 or more apart.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above.
    NoDeviceError
        If there is no GPU and no `cc`.

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
    cc, device = obtain.target(cc)
    given = argument("d_samples", d_samples)
    samples = given.value
    if samples.kind in "cV":
        raise TypeError(f"d_samples: {samples} has no order; give the real or imaginary part, or magnitudes")
    histogram = integers("d_histogram", d_histogram, smallest=4, output=True, may_iterate=False)
    counts = histogram.value
    levels = _level_dtype(samples, h_lower_level, h_upper_level)
    work = _Work.of(samples, levels, h_num_output_levels, h_lower_level, h_upper_level, num_samples)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        # Atomic additions are there for unsigned 8-byte counters alone, and are the same for signed ones.
        counter = np.dtype(np.uint64) if counts.itemsize == 8 else counts
        num_levels = _SMALL_BINS + 1 if work.small_bins else _SMALL_BINS + 2
        return (
            1,
            1,
            iterators["d_samples"],
            num_levels,
            cccl.pointer(counter, address=256),
            cccl.type_info(levels),
            1,
            _MOST_SAMPLES if work.long_offsets else 1,
            True,
        )

    spec = Specialisation(
        algorithm="histogram_even",
        native="DeviceHistogramBuildResult",
        arguments=(
            # CUB takes samples of one byte for numbers of bins, and so would skip the negative ones.
            given.converted(np.dtype(np.int16)) if samples == np.int8 else given,
            histogram,
        ),
        operators=(),
        options=(
            ("levels", levels.str),
            ("small bins", work.small_bins),
            ("long offsets", work.long_offsets),
        ),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(Histogram, spec, device, wait)


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


class _Work(NamedTuple):
    """What a call is to do, checked; and what of it a build depends on."""

    num_levels: int
    lower: Any
    upper: Any
    num_samples: int
    small_bins: bool
    long_offsets: bool

    @classmethod
    def of(
        cls, samples: np.dtype[Any], levels: np.dtype[Any], num_levels: Any, lower: Any, upper: Any, n: Any
    ) -> _Work:
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


class Histogram(Algorithm):
    """A histogram with bins of equal width; see `histogram_even`."""

    def __call__(
        self,
        temp_storage: Any,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Any = None,
    ) -> int:
        """Ask for the temporary storage, or count with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_samples : device array, at least `num_samples` items
        d_histogram : device array, at least ``num_output_levels - 1`` items
            What it held before is overwritten.
        h_num_output_levels, h_lower_level, h_upper_level : numbers or numpy.ndarrays of one element
            As for `histogram_even`.
        num_samples : int
            From 0 to 2**31 - 1.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the histogram was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        levels = (h_num_output_levels, h_lower_level, h_upper_level)
        return self._execute(temp_storage, stream, (d_samples, d_histogram, *levels, num_samples))

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
        """Count, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        levels = (h_num_output_levels, h_lower_level, h_upper_level)
        self._run(stream, (d_samples, d_histogram, *levels, num_samples))

    def _request(
        self,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: Any,
    ) -> Request:
        work = self._work(h_num_output_levels, h_lower_level, h_upper_level, num_samples)
        return ((d_samples, work.num_samples), (d_histogram, work.num_levels - 1)), work, None

    def _work(self, num_levels: Any, lower: Any, upper: Any, num_samples: Any) -> _Work:
        options = dict(self._code.spec.options)
        samples, levels = self._code.spec.arguments[0].given.value, np.dtype(options["levels"])
        work = _Work.of(samples, levels, num_levels, lower, upper, num_samples)
        if work.small_bins != options["small bins"]:
            built = "at most 256" if options["small bins"] else "more than 256"
            raise ValueError(
                f"h_num_output_levels: this histogram was built for {built} bins, got {work.num_levels - 1}"
            )
        if work.long_offsets and not options["long offsets"]:
            raise ValueError(
                f"num_samples: this histogram was built for less than 2**31 - 1 bytes of samples, got "
                f"{work.num_samples} of {samples}: build it with that many"
            )
        return work

    def _sizes(self) -> Sequence[Any]:
        options = dict(self._code.spec.options)
        levels = 11 if options["small bins"] else _SMALL_BINS + 2
        return [_Work(levels, 0, 1 << 20, n, options["small bins"], False) for n in (1, 1 << 17)]

    def _launcher(self, call: Call) -> Launch:
        compute, (d_samples, d_histogram) = call.native.compute_even, call.iterators
        levels = np.dtype(dict(self._code.spec.options)["levels"])

        def launch(address: int, nbytes: int, work: _Work, stream: int) -> int:
            n = work.num_samples
            needed: int = compute(
                address,
                nbytes,
                d_samples,
                d_histogram,
                cccl.value(np.array([work.num_levels], np.int32)),
                cccl.value(np.array([work.lower], levels)),
                cccl.value(np.array([work.upper], levels)),
                n,
                1,
                n,
                stream,
            )
            return needed

        return launch
