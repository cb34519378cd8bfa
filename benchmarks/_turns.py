"""Sides that take turns on a GPU, sample by sample, for segments.py and runs.py.

What is measured is the GPU's time between two events, behind a kernel that keeps the GPU busy while the host
enqueues. Who takes longer than 20 ms takes part in every third round, and than 150 ms once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import c_void_p
from pathlib import Path
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
    def nbytes(self) -> int:
        """What must at least be read and written."""

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


# --- Table and file --------------------------------------------------------------------------------------

_GOALS = {"rate": "G/s", "cuda.compute": "of stock"}  # how a goal is told, where it is not "of" a side


def told(
    case: Case, sides: Sequence[Side], goal: tuple[str, float] | None, *, items: int, **named: Any
) -> dict[str, Any]:
    """Return what there is to tell of a case of so many items: cupar's speed is a multiple of the others'.

    A goal is a side and the multiple of its speed, or ``"rate"`` and 1e9 items in a second.
    """
    mine, others = sides[0].median, speeds(sides)
    rate = items / mine * 1e-9 if mine else 0.0
    return {
        **named,
        "items": items,
        "bytes": case.nbytes,
        "sides": {side.name: side.as_json() for side in sides},
        "rate": rate,
        "speed": others,
        "goal": goal,
        "is_reached": None if goal is None else {"rate": rate, **others}.get(goal[0], 0.0) >= goal[1],
    }


class Table:
    """A table that is printed line by line, and written to a file at the end.

    `labels` are the headings of what tells cases apart, and their widths; `others` those that cupar is
    compared with: how they are called here, and the decimals of the multiple.
    """

    def __init__(
        self, name: str, labels: Mapping[str, int], others: Mapping[str, tuple[str, int]], goal_width: int
    ) -> None:
        self._name, self._others = name, others
        self._called = [f"of {called}" for called, _ in others.values()]
        self._headings = (*labels, "ms", "G items/s", *self._called, "goal", "")
        self._widths = (*labels.values(), 8, 9, *(8 for _ in others), goal_width, 6)

    def print(self, labels: Sequence[str], case: Mapping[str, Any]) -> None:
        """Print a line, and what failed."""
        seconds = case["sides"]["cupar"].get("seconds", {}).get("median")
        speed, goal = case["speed"], case["goal"]
        self._row(
            *labels,
            f"{seconds * 1e3:.3f}" if seconds else "-",
            f"{case['rate']:.1f}" if case["rate"] else "-",
            *(
                f"{speed[side]:.{places}f}" if side in speed else "-"
                for side, (_, places) in self._others.items()
            ),
            f"{goal[1]:g} {_GOALS.get(goal[0], f'of {goal[0]}')}" if goal else "",
            "missed" if goal and not case["is_reached"] else "",
        )
        for name, side in case["sides"].items():
            if side.get("error") and not side["is_missing"]:
                print(f"    {name} failed: {side['error'][:200]}", flush=True)
            if side.get("is_right") is False:
                print(f"    {name} IS WRONG", flush=True)

    def measured(
        self, case: Case, labels: Sequence[str], repeats: int, goal: tuple[str, float] | None, **named: Any
    ) -> dict[str, Any]:
        """Let all of a case take turns, print its line, and return what there is to tell of it."""
        found = told(case, measure(case, repeats), goal, **named)
        self.print(labels, found)
        return found

    def _row(self, *cells: str) -> None:
        """Print a line at once, so that a run that is cut short has shown what it knew."""
        line = "  ".join(text.rjust(width) for text, width in zip(cells, self._widths, strict=True))
        print(line.rstrip(), flush=True)

    def fill(
        self,
        cases: Iterable[tuple[Any, ...]],
        measured: Callable[..., dict[str, Any]],
        options: argparse.Namespace,
        start: float,
        facts: Mapping[str, Any],
        **content: Any,
    ) -> None:
        """Measure and print each case, given what `measured` takes; print what that comes to, and write it.

        After ``options.seconds`` from the start on, those that are left are skipped.
        """
        found: list[dict[str, Any]] = []
        skipped: list[str] = []
        failures: list[str] = []
        self._row(*self._headings)
        self._row(*("-" * width for width in self._widths))
        for case in cases:
            name = " ".join(map(str, case))
            if time.perf_counter() - start > options.seconds:
                skipped.append(name)
                continue
            found.append(measured(*case))
            _free()
            failures += [
                f"{name}: {side}: {each.get('error') or 'the result is wrong'}"[:300]
                for side, each in found[-1]["sides"].items()
                if each.get("is_right") is False or (side == "cupar" and each.get("error"))
            ]
        path = options.json or _common.RESULTS / f"{self._name}-{_common.slug(facts['gpu'])}.json"
        content = {"benchmark": self._name, "environment": facts, "exponent": options.exponent, **content}
        _common.write_json(path, {**content, "cases": found, "skipped": skipped, "failures": failures})
        goals = [each["is_reached"] for each in found if each["goal"]]
        print(f"goals missed: {goals.count(False)} of {len(goals)}")
        print(f"{', '.join(self._called)}: cupar's speed as a multiple of theirs")
        if skipped:
            print(f"skipped after {options.seconds:g} s: {', '.join(skipped)}")
        print(f"{time.perf_counter() - start:.0f} s in all")
        if failures:
            raise SystemExit("\n".join(["", f"failed: {len(failures)}", *failures[:20]]))


def _free() -> None:
    """Give back what the libraries keep of the arrays of a case, which is gone."""
    cupy, torch = (sys.modules.get(name) for name in ("cupy", "torch"))
    if cupy is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None:
        torch.cuda.empty_cache()


# --- Command line ----------------------------------------------------------------------------------------


def parser(
    doc: str | None, name: str, whats: Sequence[str], seconds: int, jobs: int
) -> argparse.ArgumentParser:
    """Return what reads the command line of a benchmark, with these defaults."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    made = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    add = made.add_argument
    add("--exponent", type=within(12, 30), default=28, help="2 to this many items, 12 to 30; default 28")
    add("--only", type=some(whats), default=list(whats), help=f"of {','.join(whats)}")
    add("--repeats", type=within(1, 1000), default=9, help="samples of each side; default 9")
    add("--seconds", type=float, default=seconds, help=f"after them, skip the rest; default {seconds}")
    add("--jobs", type=within(1, 1000), default=min(jobs, max(1, cores - 1)), help="processes that build")
    add("--json", type=Path, help=f"default: benchmarks/results/{name}-<gpu>.json")
    return made


def within(least: int, most: int) -> Callable[[str], int]:
    """Return what reads such an integer from the command line."""

    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected {least} to {most}, got {text!r}")
        return int(text)

    return read


def some(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Return what reads some of these words from the command line, with commas between them."""

    def read(text: str) -> list[str]:
        found = text.split(",")
        for each in found:
            if each not in known:
                raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {each!r}")
        return found

    return read
