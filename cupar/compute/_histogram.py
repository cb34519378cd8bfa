"""Histograms as ``cuda.compute`` has them."""

from __future__ import annotations

from typing import Any

from ..histogram import histogram_even as _histogram_even
from ._made import Made

__all__ = ["histogram_even", "make_histogram_even"]


class _Histogram(Made, factory=_histogram_even):
    """A histogram with bins of equal width; see `make_histogram_even`."""

    def __call__(
        self,
        *,
        temp_storage: Any,
        d_samples: Any,
        d_histogram: Any,
        h_num_output_levels: Any,
        h_lower_level: Any,
        h_upper_level: Any,
        num_samples: int,
        stream: Any = None,
    ) -> int:
        """Return the bytes of temporary storage; run, unless `temp_storage` is None."""
        levels = h_num_output_levels, h_lower_level, h_upper_level
        return self._for(())(temp_storage, d_samples, d_histogram, *levels, num_samples, stream)  # type: ignore[no-any-return]


def make_histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    h_num_output_levels: Any,
    h_lower_level: Any,
    h_upper_level: Any,
    num_samples: int,
    compute_capability: Any = None,
) -> _Histogram:
    """Return a histogram with bins of equal width; see `cupar.histogram_even`."""
    question = d_samples, d_histogram, h_num_output_levels, h_lower_level, h_upper_level, num_samples
    return _Histogram.make(question, compute_capability=compute_capability)  # type: ignore[no-any-return]


def histogram_even(
    *,
    d_samples: Any,
    d_histogram: Any,
    num_output_levels: int,
    lower_level: Any,
    upper_level: Any,
    num_samples: int,
    stream: Any = None,
) -> None:
    """Count `num_samples` samples in ``num_output_levels - 1`` bins; see `cupar.histogram_even`."""
    given = d_samples, d_histogram, num_output_levels, lower_level, upper_level, num_samples
    _histogram_even(*given).run(*given, stream)
