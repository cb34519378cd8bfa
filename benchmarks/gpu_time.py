"""The GPU's time of calls of `cupar.arrays`, beside PyTorch's and CuPy's: rows of whole_calls.py, and more.

    python benchmarks/gpu_time.py [--library torch cupy] [--items N] [--only NAME...] [--seconds 300]
                                  [--json FILE]

A call's time is the end of its last kernel or copy minus the start of its first, by CUPTI (PyTorch's
profiler): kernels that overlap count once, and so do gaps between them. It is the median of several calls,
before each of which the device has finished. Below the table are the kernels of rows in which cupar is
behind. A row without a peer is compared with a copy that moves the bytes that it must read and write.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _common
import whole_calls
from whole_calls import LIBRARIES, Inputs, Row

from cupar import arrays as ca

CALLS = 5  # that are measured
WARM = 3  # calls before these: the second one is traced
BEHIND = 0.95  # rows with a lower ratio are listed


class Event(NamedTuple):
    """A kernel or a copy: its name, start and duration in µs."""

    name: str
    start: float
    duration: float


class Timed(NamedTuple):
    """The GPU's time of each call in seconds, and the kernels of the last one with their µs."""

    seconds: list[float]
    kernels: list[tuple[str, float]]


def timed(call: Callable[[], Any], torch: Any) -> Timed:
    """Return the GPU's time of some calls."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as found:
        for _ in range(CALLS):
            call()
            torch.cuda.synchronize()
    on_gpu = [each for each in found.events() if each.device_type == torch.autograd.DeviceType.CUDA]
    events = [
        Event(each.name, each.time_range.start, each.time_range.elapsed_us())
        for each in sorted(on_gpu, key=lambda each: each.time_range.start)
    ]
    spans = calls_of(events, CALLS)
    return Timed(
        [1e-6 * (max(each.start + each.duration for each in span) - span[0].start) for span in spans],
        [(each.name, each.duration) for each in spans[-1]],
    )


def calls_of(events: Sequence[Event], number: int) -> list[list[Event]]:
    """Return the events of each call: all have equally many; else the widest gaps are between calls."""
    if not events:
        raise RuntimeError("no kernel ran")
    count, rest = divmod(len(events), number)
    if not rest:
        return [list(events[i : i + count]) for i in range(0, len(events), count)]
    gaps = sorted(range(1, len(events)), key=lambda i: events[i - 1].start - events[i].start)[: number - 1]
    ends = [*sorted(gaps), len(events)]
    return [list(events[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


# --- Further rows -----------------------------------------------------------------------------------------


def more_rows(torch: Any, items: int) -> dict[str, Row]:
    """Return rows of shapes and dtypes that are common in training and serving."""
    import cupar.torch as ct

    generator = torch.Generator("cuda").manual_seed(items)

    def floats(*shape: int, dtype: Any = torch.float32) -> Any:
        return torch.rand(shape, device="cuda", generator=generator).to(dtype)

    def integers(most: int, size: int, dtype: Any = torch.int64) -> Any:
        return torch.randint(most, (size,), device="cuda", generator=generator, dtype=dtype)

    found: dict[str, Row] = {}

    def copy_of(nbytes: int) -> Callable[[Inputs], Any]:
        source = torch.zeros(nbytes // 2, dtype=torch.uint8, device="cuda")  # half is read, half is written
        target = torch.empty_like(source)
        return lambda d: target.copy_(source)

    def top(logits: Any) -> Row:
        return Row(lambda d: ca.top_k(logits, 50, axis=1), lambda d: logits.topk(50, dim=1))

    def forwards(a: Any, b: Any) -> Row:
        copy = copy_of(3 * a.numel() * a.element_size())
        return Row(lambda d: ca.linear_recurrence(a, b, axis=1), copy)

    def both_ways(a: Any, b: Any) -> Row:
        p, q, slope = a.clone().requires_grad_(), b.clone().requires_grad_(), torch.ones_like(a)

        def call(d: Inputs) -> Any:
            return torch.autograd.grad(ct.linear_recurrence(p, q, dim=1), (p, q), slope)

        return Row(call, copy_of(8 * a.numel() * a.element_size()))

    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        found[f"top 50 of 64 x 128256, {name}"] = top(floats(64, 128_256, dtype=dtype))
        for shape in ((8, 4096, 1024), (2, 65536, 256)):
            a, b = floats(*shape, dtype=dtype), floats(*shape, dtype=dtype)
            label = f"recurrence {shape[0]}x{shape[1]}x{shape[2]}, {name}"
            found[label], found[f"{label}, with gradients"] = forwards(a, b), both_ways(a, b)
    experts = floats(32_768, 256)
    found["top 8 of 32768 x 256"] = Row(
        lambda d: ca.top_k(experts, 8, axis=1), lambda d: experts.topk(8, dim=1)
    )
    few = integers(1 << 20, 1 << 20, torch.int32)
    found["argsort 2^20 int32"] = Row(lambda d: ca.argsort(few), lambda d: few.argsort(stable=True))
    places = integers(items, items)
    values = floats(items)
    found["take, random"] = Row(lambda d: ca.take(values, places), lambda d: values[places])
    ordered, queries = values.sort()[0], values[: items // 10].sort()[0]
    found["searchsorted, sorted"] = Row(
        lambda d: ca.searchsorted(ordered, queries), lambda d: torch.searchsorted(ordered, queries)
    )
    ids, groups = integers(max(items // 10, 1), items), max(items // 10, 1)
    found["segment max, any operator"] = Row(
        lambda d: ca.segment_reduce(values, ids, whole_calls.larger, groups, init=0.0),
        lambda d: torch.zeros(groups, device="cuda").scatter_reduce(0, ids, values, "amax"),
    )
    wide = floats(4096, 4096)
    found["sort 4096 x 4096, axis 0"] = Row(lambda d: ca.sort(wide, axis=0), lambda d: wide.sort(dim=0))
    return found


# --- Command line -----------------------------------------------------------------------------------------


def measured(library: str, name: str, row: Row, inputs: Inputs, torch: Any) -> dict[str, Any]:
    """Return what there is to tell of a row, or why it failed."""
    case: dict[str, Any] = {"library": library, "name": name, "seconds": {}, "kernels": {}}
    try:
        for side, call in (("cupar", row.ours), (library, row.theirs)):
            found = timed(lambda call=call: call(inputs), torch)  # type: ignore[misc]
            case["seconds"][side] = _common.summary(found.seconds)
            case["kernels"][side] = found.kernels
    except Exception as error:  # whatever a library raises, other rows are measured
        return {**case, "failure": f"{type(error).__name__}: {error}"[:300]}
    case["ratio"] = case["seconds"][library]["median"] / case["seconds"]["cupar"]["median"]
    return case


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--library", nargs="+", choices=("torch", "cupy"), default=["torch", "cupy"])
    add("--items", type=int, default=1 << 24, help="default 2^24")
    add("--only", nargs="+", metavar="NAME", help="of rows; default all")
    add("--seconds", type=float, default=300, help="after them, skip the rest; default 300")
    add("--json", type=Path, help="default: benchmarks/results/gpu_time-<gpu>.json")
    return parser.parse_args(words)


def shown(kernels: Sequence[tuple[str, float]]) -> str:
    """Return the kernels of a call, shortly."""
    return ", ".join(f"{name.removeprefix('void ')[:48]} {duration:.1f}" for name, duration in kernels[:16])


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = arguments()
    device, facts = _common.needed_gpu()
    os.environ.setdefault("CUPAR_TIER", "fast")
    import torch

    _common.print_environment(facts)
    found: list[dict[str, Any]] = []
    skipped = []
    for library in options.library:
        of = whole_calls.library(library, True)
        inputs, rows = Inputs(of, options.items), of.rows()
        if library == "torch":
            rows = {**more_rows(torch, options.items), **rows}
        print(f"\n{LIBRARIES[library]}, {options.items} items, µs of the GPU")
        for name, row in rows.items():
            if options.only and name not in options.only:
                continue
            if time.perf_counter() - start > options.seconds:
                skipped.append(f"{library} {name}")
                continue
            case = measured(library, name, row, inputs, torch)
            found.append(case)
            if "failure" in case:
                print(f"{name:40s} {case['failure'][:100]}", flush=True)
                continue
            ours, theirs = (1e6 * case["seconds"][side]["median"] for side in ("cupar", library))
            print(f"{name:40s} {ours:9.1f} {theirs:9.1f} {case['ratio']:7.2f}", flush=True)
    told = [case for case in found if "ratio" in case]
    for library in options.library:
        ratios = [case["ratio"] for case in told if case["library"] == library]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            print(f"{LIBRARIES[library]}: {mean:.2f} in the geometric mean of {len(ratios)} rows")
    for case in sorted(told, key=lambda case: case["ratio"]):
        if case["ratio"] < BEHIND:
            print(f"\n{case['library']} {case['name']}: {case['ratio']:.2f}")
            for side, kernels in case["kernels"].items():
                print(f"  {side}: {shown(kernels)}")
    if skipped:
        print(f"skipped after {options.seconds:g} s: {', '.join(skipped)}")
    path = options.json or _common.RESULTS / f"gpu_time-{_common.slug(device)}.json"
    content = {"benchmark": "gpu_time", "environment": facts, "items": options.items}
    _common.write_json(path, {**content, "cases": found, "skipped": skipped})


if __name__ == "__main__":
    main()
