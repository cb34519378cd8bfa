"""Algorithms on the CPU, in turns with what NumPy has for the same.

    python benchmarks/cpu.py [--items 10000000] [--repeat 15] [--json FILE]

Three processes measure, one after the other, with a cache of their own: the first builds, the second finds
what that built, and the third does, too, with one core alone. In each, cupar and NumPy take turns, after one
call of each that does not count and is checked. A ratio is that of the medians of one process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import _common
import numpy as np

SMALLER = 10  # sorts are of as many items fewer

_CHILD = """
import json, os, sys
sys.path.insert(0, {folder!r})
import cpu
items, repeat, cores = map(int, sys.argv[1:])
if cores:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
print(json.dumps(cpu.measured(items, repeat)))
"""


class Case(NamedTuple):
    """What is measured.

    Attributes
    ----------
    name : str
    goal : float or None
        How many times as long as NumPy it may take.
    make : callable
        Returns the algorithm.
    call : callable
        Takes that, and calls it.
    numpy : callable
        Does the same with NumPy, and returns what it comes to.
    result : callable
        Returns what cupar's call came to.
    """

    name: str
    goal: float | None
    make: Callable[[], Any]
    call: Callable[[Any], None]
    numpy: Callable[[], Any]
    result: Callable[[], Any]


def cases(n: int) -> Iterator[Case]:
    """Yield the cases, for the device in use."""
    import cupar

    random = np.random.default_rng(20261122)
    x, out = random.integers(0, 4, n).astype("f4"), np.zeros(n, "f4")  # whose sums are exact
    total, counts, chosen = np.zeros(1, "f4"), np.zeros(2, "i8"), np.zeros(1, "i8")

    def add(a: Any, b: Any) -> Any:
        return a + b

    def equal(a: Any, b: Any) -> Any:
        return a == b

    def less(a: Any, b: Any) -> Any:
        return a < b

    yield Case(
        "sum",
        2,
        lambda: cupar.reduce_into(x, total, add, 0.0),
        lambda made: made.run(x, total, n, 0.0),
        lambda: np.sum(x),
        lambda: total[0],
    )
    y = x.astype("f8")
    sums, other = np.zeros(n), np.zeros(n)
    yield Case(
        "inclusive scan",
        3,
        lambda: cupar.inclusive_scan(y, sums, add),
        lambda made: made.run(y, sums, n),
        lambda: np.cumsum(y, out=other),
        lambda: sums,
    )
    yield Case(
        "transform",
        None,
        lambda: cupar.unary_transform(x, out, lambda a: a * a + 1),
        lambda made: made(x, out, n),
        lambda: x * x + 1,
        lambda: out,
    )
    yield Case(
        "select, half of all",
        None,
        lambda: cupar.select(x, out, chosen, lambda a: a > 1),
        lambda made: made.run(x, out, chosen, n),
        lambda: x[x > 1],
        lambda: out[: chosen[0]],
    )
    second, rest = np.zeros(n, "f4"), np.zeros(n, "f4")
    yield Case(
        "three-way partition",
        None,
        lambda: cupar.three_way_partition(x, out, second, rest, counts, lambda a: a == 0, lambda a: a == 1),
        lambda made: made.run(x, out, second, rest, counts, n),
        lambda: np.concatenate([x[x == 0], x[x == 1], x[x > 1]]),
        lambda: np.concatenate([out[: counts[0]], second[: counts[1]], rest[: n - counts.sum()]]),
    )
    keys, unique = np.sort(random.integers(0, n // 10 + 1, n)).astype("i4"), np.zeros(n, "i4")
    yield Case(
        "unique, of 10 each",
        None,
        lambda: cupar.unique_by_key(keys, None, unique, None, chosen, equal),
        lambda made: made.run(keys, None, unique, None, chosen, n),
        lambda: keys[np.flatnonzero(np.diff(keys, prepend=-1))],
        lambda: unique[: chosen[0]],
    )
    yield Case(
        "reduce by key, runs of 10",
        None,
        lambda: cupar.reduce_by_key(keys, unique, x, out, chosen, add),
        lambda made: made.run(keys, unique, x, out, chosen, n),
        lambda: np.add.reduceat(x, np.flatnonzero(np.diff(keys, prepend=-1))),
        lambda: out[: chosen[0]],
    )
    bins = np.zeros(256, "i4")
    z = random.random(n, "f4")
    yield Case(
        "histogram, 256 bins",
        None,
        lambda: cupar.histogram_even(z, bins, 257, 0.0, 1.0, n),
        lambda made: made.run(z, bins, 257, 0.0, 1.0, n),
        lambda: np.histogram(z, 256, (0, 1))[0],
        lambda: bins,
    )
    offsets = np.arange(0, n + 1, 100)
    segments = len(offsets) - 1
    yield Case(
        "sums of segments of 100",
        None,
        lambda: cupar.segmented_reduce(x, out, offsets[:-1], offsets[1:], add, 0.0),
        lambda made: made.run(x, out, segments, offsets[:-1], offsets[1:], 0.0),
        lambda: np.add.reduceat(x[: offsets[-1]], offsets[:-1]),
        lambda: out[:segments],
    )
    m = n // SMALLER
    for dtype in ("i4", "f8"):
        mixed = random.integers(0, 2**30, m).astype(dtype)
        ordered = np.zeros(m, dtype)
        yield Case(
            f"sort of {dtype} by a comparison",
            6,
            lambda mixed=mixed, ordered=ordered: cupar.merge_sort(mixed, None, ordered, None, less),
            lambda made, mixed=mixed, ordered=ordered: made.run(mixed, None, ordered, None, m),
            lambda mixed=mixed: np.sort(mixed),
            lambda ordered=ordered: ordered,
        )


def measured(n: int, repeat: int) -> dict[str, Any]:
    """Measure all cases in this process; return the seconds of each, by name."""
    import cupar

    found = {}
    with cupar.device("cpu"):
        for case in cases(n):
            start = time.perf_counter()
            made = case.make()
            obtained = time.perf_counter() - start
            case.call(made)
            first = time.perf_counter() - start
            np.testing.assert_allclose(case.result(), case.numpy(), rtol=1e-6)
            sides: dict[str, list[float]] = {"cupar": [], "numpy": []}
            for _ in range(repeat):
                for name, call in (("cupar", partial(case.call, made)), ("numpy", case.numpy)):
                    start = time.perf_counter()
                    call()
                    sides[name].append(time.perf_counter() - start)
            times = {name: _common.summary(samples) for name, samples in sides.items()}
            origin = made.build.origin
            found[case.name] = {
                "goal": case.goal,
                "origin": origin,
                "obtained": obtained,
                "first": first,
                **times,
            }
    return found


def ratio(of: dict[str, Any]) -> float:
    """Return how many times as long as NumPy cupar takes."""
    return float(of["cupar"]["median"] / of["numpy"]["median"])


def report(found: dict[str, dict[str, Any]]) -> list[str]:
    """Print the table; return the names of the cases that miss their goal."""
    built, warm, one = (found[name] for name in ("built", "found", "one core"))
    rows, missed = [], []
    for name, of in warm.items():
        goal = of["goal"]
        ratios = [ratio(process[name]) for process in (built, warm, one)]
        is_met = goal is None or max(ratios[:2]) <= goal
        if not is_met:
            missed.append(name)
        times = [
            _common.seconds(value) for value in (of["numpy"]["median"], of["cupar"]["median"], of["first"])
        ]
        verdict = "" if goal is None else f"{goal:g}: {'met' if is_met else 'missed'}"
        rows.append([name, *times, *(f"{each:.2f}" for each in ratios), verdict])
    headings = [
        "",
        "NumPy",
        "cupar",
        "from the disk",
        "ratio, built",
        "ratio, found",
        "ratio, one core",
        "goal",
    ]
    _common.print_table(headings, rows)
    return missed


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=_common.RESULTS / "cpu.json")
    parser.add_argument("--items", type=int, default=10**7, help="items, of sorts a tenth; default 10^7")
    parser.add_argument("--repeat", type=int, default=15, help="calls of each side; default 15")
    options = parser.parse_args()

    facts = _common.environment(None)
    _common.print_environment(facts)
    print()
    script = _CHILD.format(folder=str(Path(__file__).parent))
    with tempfile.TemporaryDirectory(prefix="cupar-cpu-") as folder:
        place = _common.Workplace(Path(folder), {"cpu": script})
        cache = {"CUPAR_CACHE_DIR": str(place.new_folder())}
        found = {
            name: place.run("cpu", options.items, options.repeat, cores, env=cache).result
            for name, cores in (("built", 0), ("found", 0), ("one core", 1))
        }
    missed = report(found)
    content = {"benchmark": "cpu", "environment": facts, "items": options.items, "processes": found}
    _common.write_json(options.json, {**content, "missed": missed})
    if missed:
        raise SystemExit(f"goals missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
