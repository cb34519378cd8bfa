"""Functions on dask arrays, in turns with dask's own, on the processes of a LocalCluster; without a GPU.

    python benchmarks/dask_arrays.py [--items 40000000] [--blocks 16] [--workers 2] [--repeat 5] [--json FILE]

The array is in the workers' memory before. A call is timed from the making of its graph until all blocks of
the result are there; the first call of each does not count, as it builds or fetches builds. Sorts are of a
tenth of the items; dask has none. Ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _common
import numpy as np

# The folder comes last in the path: distributed.py, which is here, is not Dask's package of that name.
_CHILD = """
import json, sys
sys.path.append({folder!r})
import dask_arrays
print(json.dumps(dask_arrays.measured(*map(int, sys.argv[1:]))))
"""
GOAL = 0.6  # of dask's cumsum's time


def plus(a: Any, b: Any) -> Any:
    """Add."""
    return a + b


def farthest(a: Any, b: Any) -> Any:
    """Return the value of the greatest magnitude, which dask has no scan of."""
    return a if abs(a) > abs(b) else b


def calls(x: Any, few: Any) -> dict[str, tuple[Callable[[], Any], str]]:
    """Return calls by their names, and what each is compared with."""
    import dask.array as da

    from cupar import dask as cdask

    return {
        "dask cumsum, sequential": (lambda: x.cumsum(0), ""),
        "dask cumsum, Blelloch": (lambda: da.cumsum(x, 0, method="blelloch"), "dask cumsum, sequential"),
        "scan": (lambda: cdask.scan(x, plus), "dask cumsum, sequential"),
        "scan, sequential": (
            lambda: cdask.scan(x, plus, method="sequential"),
            "dask cumsum, sequential",
        ),
        "scan by magnitude": (lambda: cdask.scan(x, farthest), "dask cumsum, sequential"),
        "dask sum": (x.sum, ""),
        "reduce": (lambda: cdask.reduce(x, plus), "dask sum"),
        "reduce by magnitude": (lambda: cdask.reduce(x, farthest), "dask sum"),
        "sort, of a tenth": (lambda: cdask.sort(few), ""),
    }


def known_tasks(dask_scheduler: Any) -> int:
    """Return how many tasks a scheduler knows."""
    return len(dask_scheduler.tasks)


def measured(items: int, blocks: int, workers: int, repeat: int) -> dict[str, dict[str, Any]]:
    """Return times of all calls, which take turns."""
    import dask.array as da
    from dask.distributed import Client, LocalCluster, wait

    processes = LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0")
    times: dict[str, list[float]] = {}
    with processes as cluster, Client(cluster) as client:
        random = da.random.default_rng(1)
        x, few = (random.random(n, chunks=-(-n // blocks)).persist() for n in (items, items // 10))
        wait([x, few])
        before = client.run_on_scheduler(known_tasks)
        found = calls(x, few)
        small = np.random.default_rng(2).random(1000)
        known = calls(*[da.from_array(small, chunks=300)] * 2)
        np.testing.assert_allclose(known["scan"][0]().compute(), small.cumsum())
        np.testing.assert_array_equal(known["sort, of a tenth"][0]().compute(), np.sort(small))
        for turn in range(repeat + 1):
            for name, (call, _) in found.items():
                start = time.perf_counter()
                result = call().persist()
                wait(result)
                if turn:
                    times.setdefault(name, []).append(time.perf_counter() - start)
                del result
                while client.run_on_scheduler(known_tasks) > before:
                    time.sleep(0.05)  # until the result is forgotten
        against = {name: other for name, (_, other) in found.items()}
    return {name: {"against": against[name], **_common.summary(each)} for name, each in times.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=_common.RESULTS / "dask_arrays-cpu.json")
    parser.add_argument("--items", type=int, default=40_000_000, help="float64; default 4 * 10^7")
    parser.add_argument("--blocks", type=int, default=16, help="default 16")
    parser.add_argument("--workers", type=int, default=2, help="processes of a thread; default 2")
    parser.add_argument("--repeat", type=int, default=5, help="calls of each; default 5")
    options = parser.parse_args()

    facts = _common.environment(None)
    facts["load before"] = os.getloadavg()[0]
    _common.print_environment(facts)
    size = {name: getattr(options, name) for name in ("items", "blocks", "workers", "repeat")}
    command = [sys.executable, "-c", _CHILD.format(folder=str(Path(__file__).resolve().parent))]
    done = subprocess.run([*command, *map(str, size.values())], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    facts["load after"] = os.getloadavg()[0]
    rows = []
    for name, of in found.items():
        other = found.get(of["against"])
        ratio = "" if other is None else f"{of['median'] / other['median']:.2f}"
        goal = f"{GOAL:g}" if name == "scan" else ""
        rows.append([name, _common.seconds(of["median"]), of["against"], ratio, goal])
    _common.print_table(["", "median", "compared with", "ratio", "goal"], rows)
    print(f"load: {facts['load before']:.1f} before, {facts['load after']:.1f} after")
    _common.write_json(options.json, {"environment": facts, **size, "calls": found})


if __name__ == "__main__":
    main()
