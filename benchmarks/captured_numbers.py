"""The GPU's time of operators that read a number: as an argument of their code, and as a constant.

    python benchmarks/captured_numbers.py [--items N] [--rounds 41] [--only NAME...] [--json FILE]

It needs a GPU and CuPy. A call is bound, and its time is the GPU's between two events, behind a kernel that
keeps the GPU busy while the host enqueues. Constant and argument take turns, and begin in turns. Results of
both are compared bit for bit first, but for those that depend on how items are grouped. The goal is a ratio
of at most 1.02. (This file is not called numbers.py, as that is a module of the standard library.)
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import _common
import _turns
import numpy as np

sys.path.insert(0, str(_common.ROOT))

import cupar

GOAL = 1.02
WARM = 5  # rounds that are not counted
SIDES = ("constant", "argument")


def scaled(k: Any) -> Any:
    """Multiply by a number."""
    return lambda a: a * k


def clipped(k: Any) -> Any:
    """Clip between two numbers."""
    low = -k
    return lambda a: min(max(a, low), k)


def above(k: Any) -> Any:
    """Compare with a number."""
    return lambda a: a > k


def capped(k: Any) -> Any:
    """Return the larger of two, or a number if both are larger."""
    return lambda a, b: min(max(a, b), k)


def decayed(k: Any) -> Any:
    """Multiply what comes before by a number."""
    return lambda a, b: a * k + b


class Case(NamedTuple):
    """An algorithm, an operator that reads a number, and two numbers, of which the second one is timed."""

    name: str
    make: Callable[..., tuple[Any, tuple[Any, ...], list[Any]]]  # the algorithm, arguments, and outputs
    op: Callable[[Any], Any]
    dtype: str
    numbers: tuple[Any, Any]
    is_exact: bool = True  # whatever the grouping of items


def transform(cupy: Any, x: Any, op: Any, **named: Any) -> Any:
    """Return a transform, its arguments, and what it writes."""
    out = cupy.empty_like(x)
    return cupar.unary_transform(x, out, op, **named), (x, out, x.size), [out]


def select(cupy: Any, x: Any, op: Any, **named: Any) -> Any:
    """Return a selection, its arguments, and what it writes."""
    out, count = cupy.zeros_like(x), cupy.zeros(1, "i8")
    return cupar.select(x, out, count, op, **named), (x, out, count, x.size), [out, count]


def reduce(cupy: Any, x: Any, op: Any, **named: Any) -> Any:
    """Return a reduction, its arguments, and what it writes."""
    out, init = cupy.empty(1, x.dtype), np.zeros(1, x.dtype)
    return cupar.reduce_into(x, out, op, init, **named), (x, out, x.size, init), [out]


def scan(cupy: Any, x: Any, op: Any, **named: Any) -> Any:
    """Return a scan, its arguments, and what it writes."""
    out = cupy.empty_like(x)
    return cupar.inclusive_scan(x, out, op, None, **named), (x, out, x.size, None), [out]


def cases() -> list[Case]:
    """Return all cases: float32 with numbers that it has and others, and int32."""
    found = []
    for dtype, kind, numbers in (
        ("f4", "a number of float32", (0.75, 0.375)),
        ("f4", "another number", (0.7, 0.3)),
        ("i4", "an integer", (7, 3)),
    ):
        for make, op, is_exact in (
            (transform, scaled, True),
            (transform, clipped, True),
            (select, above, True),
            (reduce, capped, True),
            (reduce, decayed, False),
            (scan, capped, True),
            (scan, decayed, False),
        ):
            if dtype == "i4" and op is decayed:
                is_exact = False
            name = f"{make.__name__}, {op.__name__}, {np.dtype(dtype)}, {kind}"
            found.append(Case(name, make, op, dtype, numbers, is_exact))
    return found


def items(cupy: Any, dtype: str, count: int) -> Any:
    """Return items, of which operators treat some in each way."""
    generator = cupy.random.default_rng(20261129)
    if dtype == "f4":
        return generator.standard_normal(count, dtype=np.float32)
    return generator.integers(-10, 10, count).astype("i4")


def prepared(gpu: _turns.Gpu, case: Case, x: Any) -> dict[str, Any]:
    """Return the bound call of each side; raise RuntimeError if results differ, or it is another side."""
    before, number = case.numbers
    case.make(gpu.cupy, x, case.op(before))  # so that the next number is an argument
    calls, results = {}, {}
    for side in SIDES:
        named = {"numbers": "constant"} if side == "constant" else {}
        algorithm, arguments, outputs = case.make(gpu.cupy, x, case.op(number), **named)
        algorithm.ready(tier="fast")
        if bool(algorithm._spec.operators[0][1].numbers) != (side == "argument"):
            raise RuntimeError(f"{case.name}: it is no {side}")
        algorithm.run(*arguments)
        results[side] = [each.get().tobytes() for each in outputs]
        calls[side] = algorithm.bind(*arguments), outputs
    if case.is_exact and results["constant"] != results["argument"]:
        raise RuntimeError(f"{case.name}: constant and argument differ")
    return calls


def measured(gpu: _turns.Gpu, calls: dict[str, Any], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by side."""
    events = [gpu.cupy.cuda.Event() for _ in range(2)]
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    for turn in range(WARM + rounds):
        for side in SIDES if turn % 2 else SIDES[::-1]:
            gpu.cupy.cuda.Device().synchronize()
            gpu.busy()
            events[0].record()
            calls[side][0]()
            events[1].record()
            events[1].synchronize()
            if turn >= WARM:
                times[side].append(gpu.cupy.cuda.get_elapsed_time(*events) * 1e-3)
    return times


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--items", type=int, default=1 << 26)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    facts, _ = _common.needed_gpu()
    import cupy

    gpu, rows, found = _turns.Gpu(cupy, None), [], []
    given = {dtype: items(cupy, dtype, options.items) for dtype in ("f4", "i4")}
    for case in cases():
        if options.only and not any(each in case.name for each in options.only):
            continue
        times = measured(gpu, prepared(gpu, case, given[case.dtype]), options.rounds)
        medians = {side: statistics.median(each) for side, each in times.items()}
        ratio = medians["argument"] / medians["constant"]
        missed = " missed" * (ratio > GOAL)
        same = "yes" if case.is_exact else "not compared"
        rows.append([case.name, *map(_common.seconds, medians.values()), f"{ratio:.3f}{missed}", same])
        found.append({"case": case.name, "seconds": times, "ratio": ratio, "same": case.is_exact})
    heads = ["case", *SIDES, f"ratio (at most {GOAL})", "the same bits"]
    _common.print_table(heads, rows)
    if options.json:
        _common.write_json(options.json, {"environment": facts, "items": options.items, "cases": found})


if __name__ == "__main__":
    main()
