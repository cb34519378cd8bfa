"""Host time of `cupar.arrays` beside the library's `empty` and the object's `run`, and beside a bound call.

    python benchmarks/arrays.py [--items 1000] [--rounds 51] [--calls 100] [--json FILE]

On a GPU with CuPy's arrays, and PyTorch's if it is there; without a GPU with NumPy's, on the CPU. Statements
take turns, batch by batch, and the GPU is idle before each batch. The tables have medians of host times of a
call: for each form the ratio to `empty` and `run` of the same operator, and for functions that are made of
several algorithms the ratio to `sum`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from timeit import Timer
from typing import Any

import _common
import numpy as np

sys.path.insert(0, str(_common.ROOT))  # this checkout's cupar, whatever else is installed

import cupar
from cupar import OpKind, arrays

scale = 2


def larger(a: Any, b: Any) -> Any:
    """Return the larger one."""
    return a if a > b else b


def with_global(a: Any, b: Any) -> Any:
    """Return the larger one, scaled."""
    return a * scale if a > b else b * scale


OPERATORS = {"PLUS": OpKind.PLUS, "lambda": larger, "lambda with a global": with_global}


def libraries() -> dict[str, tuple[Any, Callable[..., Any], Callable[[], None]]]:
    """Return an array of 32-bit floats, what makes others, and what waits, by the name of a library."""
    items = _items
    found: dict[str, tuple[Any, Callable[..., Any], Callable[[], None]]] = {}
    try:
        import cupy

        found["cupy"] = (
            cupy.ones(items, np.float32),
            lambda shape: cupy.ndarray(shape, np.float32),
            cupy.cuda.Device().synchronize,
        )
        import torch

        x = torch.ones(items, device="cuda")
        made = {"dtype": torch.float32, "device": x.device}
        found["torch"] = x, lambda shape: torch.empty(shape, **made), torch.cuda.synchronize
    except Exception as error:
        print(f"without {'PyTorch' if found else 'a GPU'}: {error}", file=sys.stderr)
    return found or {
        "numpy": (np.ones(items, np.float32), lambda shape: np.empty(shape, np.float32), _nothing)
    }


def _nothing() -> None:
    pass


def statements(x: Any, empty: Callable[..., Any]) -> dict[str, dict[str, Callable[[], Any]]]:
    """Return what is timed: by function and operator, by form."""
    found: dict[str, dict[str, Callable[[], Any]]] = {}
    n = _items
    for name, op in OPERATORS.items():
        with cupar.device("cpu" if isinstance(x, np.ndarray) else "cuda"):
            reduction = cupar.reduce_into(np.float32, np.float32, op, None)
            scan = cupar.inclusive_scan(np.float32, np.float32, op, None)
            one, all_ = empty(()), empty(n)
            bound = reduction.bind(x, one, n, None), scan.bind(x, all_, n, None)
        found[f"reduce, {name}"] = {
            "empty and run": lambda run=reduction.run: run(x, empty(()), n, None),
            "array": lambda op=op: arrays.reduce(x, op),
            "run": lambda run=reduction.run, one=one: run(x, one, n, None),
            "bound": bound[0],
        }
        found[f"scan, {name}"] = {
            "empty and run": lambda run=scan.run: run(x, empty(n), n, None),
            "array": lambda op=op: arrays.scan(x, op),
            "run": lambda run=scan.run, all_=all_: run(x, all_, n, None),
            "bound": bound[1],
        }
    return found


def functions(x: Any, empty: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Return calls of functions of 1,000 items, or of 64 rows of 100, and of `sum`."""
    rows, parts = empty((64, 100)), [empty(_items) for _ in range(8)]
    for each in (rows, *parts):
        each[...] = 1
    return {
        "sum": lambda: arrays.sum(x),
        "median": lambda: arrays.median(x),
        "quantile": lambda: arrays.quantile(x, 0.3),
        "four quantiles": lambda: arrays.quantile(x, [0.1, 0.25, 0.5, 0.9]),
        "medians of rows": lambda: arrays.median(rows, axis=1),
        "sums of rows": lambda: arrays.sum(rows, axis=1),
        "scans of rows": lambda: arrays.cumulative_sum(rows, axis=1),
        **{f"concatenate {n}": lambda n=n: arrays.concatenate(parts[:n]) for n in (2, 4, 8)},
        "sort": lambda: arrays.sort(x),
        "argmax": lambda: arrays.argmax(x),
        "histogram, range given": lambda: arrays.histogram(x, range=(0.0, 2.0)),
        "histogram": lambda: arrays.histogram(x),
    }


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    global _items
    _items = options.items
    device = _common.gpu()
    result: dict[str, Any] = {"environment": _common.environment(device), "items": _items, "microseconds": {}}
    for library, (x, empty, wait) in libraries().items():
        rows = statements(x, empty)
        timed = [(row, form, Timer(call)) for row, forms in rows.items() for form, call in forms.items()]
        made = functions(x, empty)
        timed += [(row, "function", Timer(call)) for row, call in made.items()]
        samples: dict[tuple[str, str], list[float]] = {(row, form): [] for row, form, _ in timed}
        for each in range(options.rounds + 3):  # of which the first do not count
            for row, form, timer in timed:
                wait()
                seconds = timer.timeit(options.calls)
                if each >= 3:
                    samples[row, form].append(seconds / options.calls * 1e6)
        wait()
        medians = {key: statistics.median(values) for key, values in samples.items()}
        forms = ("empty and run", "array", "run", "bound")
        table = [
            [
                f"{library}, {row}",
                *(f"{medians[row, form]:.2f}" for form in forms),
                f"{medians[row, 'array'] / medians[row, 'empty and run']:.2f}",
            ]
            for row in rows
        ]
        _common.print_table(["µs a call", *forms, "ratio"], table)
        table = [
            [
                f"{library}, {row}",
                f"{medians[row, 'function']:.2f}",
                f"{medians[row, 'function'] / medians['sum', 'function']:.2f}",
            ]
            for row in made
        ]
        _common.print_table(["µs a call", "function", "of sum"], table)
        result["microseconds"][library] = {row: {form: medians[row, form] for form in forms} for row in rows}
        result["microseconds"][library] |= {row: medians[row, "function"] for row in made}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


_items = 1000

if __name__ == "__main__":
    main()
