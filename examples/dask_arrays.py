"""Dask arrays: gaps in readings filled, and the highest of each day."""

import dask.array as da
import numpy as np

from cupar import dask as cdask


def last_known(a: float, b: float) -> float:
    """Return the later reading, if there is one."""
    return a if b != b else b  # noqa: PLR0124 - NaN


def main() -> None:
    """Fill what a sensor left out, block by block."""
    rng = np.random.default_rng(0)
    readings = rng.normal(20, 5, 500_000).round(1)
    readings[rng.random(len(readings)) < 0.9] = np.nan
    x = da.from_array(readings, chunks=60_000)
    days = da.arange(len(readings), chunks=x.chunks) // 86_400

    filled = cdask.scan(x, last_known)
    found = cdask.reduce_by_key(days, filled, np.fmax)
    print("highest by day:", *found.values.compute())

    known = np.where(np.isnan(readings), 0, np.arange(len(readings)))
    expected = readings[np.maximum.accumulate(known)]
    np.testing.assert_array_equal(filled.compute(), expected)


if __name__ == "__main__":
    main()
