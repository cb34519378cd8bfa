"""Sides that take turns on a GPU, sample by sample, for segments.py and runs.py.

What is measured is the GPU's time between two events, behind a kernel that keeps the GPU busy while the host
enqueues. Who takes longer than 20 ms takes part in every third round, and than 150 ms once.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any, Protocol

import _common
import numpy as np

SLOW = 0.02  # seconds of a call: whoever takes longer takes part in every third round
MOST = 0.15  # seconds of a call: whoever takes longer is not asked again
BUSY = 3e-4  # seconds that the GPU is kept busy while calls are enqueued
CLOCK = 2e9  # cycles in a second, about

_SPIN = """
extern "C" __global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
"""

Launch = Callable[[], Any]


class Gpu:
    """What all sides need of a GPU.

    Parameters
    ----------
    cupy, torch : modules
        PyTorch's may be None.
    """

    def __init__(self, cupy: Any, torch: Any) -> None:
        self.cupy, self.torch = cupy, torch
        self._spin = cupy.RawKernel(_SPIN, "spin")

    def busy(self) -> None:
        """Keep the GPU busy for some time."""
        self._spin((1,), (1,), (np.int64(BUSY * CLOCK),))

    def tensor(self, array: Any) -> Any:
        """Return an array as PyTorch's."""
        if self.torch is None:
            raise ImportError("PyTorch is not installed")
        return self.torch.from_dlpack(array)

    def pointer(self, array: Any) -> c_void_p:
        """Return where an array is, for code in C."""
        return c_void_p(array.data.ptr)

    def stored(self, algorithm: Any, named: dict[str, Any]) -> Launch:
        """Return a call of an algorithm of two phases, with temporary storage."""
        storage = self.cupy.empty(max(algorithm(temp_storage=None, **named), 1), np.uint8)
        return lambda: algorithm(temp_storage=storage, **named)

    def copy(self, nbytes: int) -> Launch:
        """Return a copy that reads and writes so many bytes, both together."""
        half, empty, runtime = nbytes // 2, self.cupy.empty, self.cupy.cuda.runtime
        source, target = empty(half, np.uint8), empty(half, np.uint8)
        kind, stream = runtime.memcpyDeviceToDevice, self.cupy.cuda.get_current_stream().ptr

        def launch() -> None:  # which keeps both arrays
            runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, kind, stream)

        return launch


class Case(Protocol):
    """What is done, and how each side is called."""

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""

    @property
    def sides(self) -> Sequence[str]:
        """Who takes part."""

    @property
    def checked(self) -> Sequence[str]:
        """Those of them whose results are compared with what is right."""

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; LookupError or ImportError if there is no such thing."""

    def check(self, launch: Launch) -> bool:
        """Call a side, and compare what it wrote with what is right."""


class Side:
    """One who takes part in a case, until it fails.

    Attributes
    ----------
    name : str
    error : str
        Why it failed; "" if it did not.
    is_missing : bool
        Whether there is no such thing.
    is_right : bool or None
        Whether it wrote what is right; None if that was not found out.
    samples : list of float
        Seconds of a call.
    """

    def __init__(self, case: Case, name: str) -> None:
        self.name = name
        self.error, self.is_missing = "", False
        self.is_right: bool | None = None
        self.samples: list[float] = []
        self._case = case
        self._launch: Launch | None = None
        self._attempt(self._prepare)

    def _attempt(self, step: Callable[[], None]) -> None:
        if self.error:
            return
        try:
            step()
        except Exception as error:  # whatever it is, others are to be measured
            self.is_missing = isinstance(error, (LookupError, ImportError)) and self.name != "cupar"
            self.error = f"{type(error).__name__}: {error}"

    def _prepare(self) -> None:
        self._launch = self._case.prepare(self.name)
        if self.name in self._case.checked:
            self.is_right = self._case.check(self._launch)
        self._sample()
        self._case.gpu.cupy.cuda.Device().synchronize()  # an error of a kernel is this side's
        self.samples.clear()

    def sample(self) -> None:
        """Take a sample."""
        self._attempt(self._sample)

    def _sample(self) -> None:
        assert self._launch is not None
        cuda = self._case.gpu.cupy.cuda
        start, end = cuda.Event(), cuda.Event()
        self._case.gpu.busy()
        start.record()
        self._launch()
        end.record()
        end.synchronize()
        self.samples.append(cuda.get_elapsed_time(start, end) * 1e-3)

    @property
    def median(self) -> float | None:
        """Seconds; None if it failed."""
        return statistics.median(self.samples) if self.samples and not self.error else None

    def as_json(self) -> dict[str, Any]:
        """Return what there is to tell."""
        if self.median is None:
            return {"error": self.error, "is_missing": self.is_missing}
        return {"seconds": _common.summary(self.samples), "is_right": self.is_right}


def measure(case: Case, repeats: int) -> list[Side]:
    """Let all take turns."""
    sides = [Side(case, name) for name in case.sides]
    for side in sides:
        side.sample()
    slow = {side.name for side in sides if (side.median or 0) > SLOW}
    done = {side.name for side in sides if (side.median or 0) > MOST}
    for number in range(1, repeats):
        for side in sides:
            if side.name not in done and (number % 3 == 0 or side.name not in slow):
                side.sample()
    return sides


def speeds(sides: Sequence[Side]) -> dict[str, float]:
    """Return the first side's speed as multiples of the others', of those that were measured."""
    mine = sides[0].median
    return {side.name: side.median / mine for side in sides[1:] if side.median and mine}


def print_row(cells: Sequence[str], widths: Sequence[int]) -> None:
    """Print a line of the table at once, so that a run that is cut short has shown what it knew."""
    line = "  ".join(text.rjust(width) for text, width in zip(cells, widths, strict=True))
    print(line.rstrip(), flush=True)


def print_problems(sides: dict[str, dict[str, Any]]) -> None:
    """Print what failed and what is wrong, given all sides as JSON."""
    for name, side in sides.items():
        if side.get("error") and not side["is_missing"]:
            print(f"    {name} failed: {side['error'][:200]}", flush=True)
        if side.get("is_right") is False:
            print(f"    {name} IS WRONG", flush=True)


def some(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what reads some of these words from the command line, with commas between them."""

    def read(text: str) -> list[str]:
        found = text.split(",")
        for each in found:
            if each not in known:
                raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {each!r}")
        return found

    return read
