"""Algorithms over several GPUs: cupar.distributed on torch.distributed, beside one GPU and PyTorch's own.

    python benchmarks/distributed.py [--ranks 2] [--exponent 30] [--device cuda|cpu] [--only reduce,scan]
                                     [--repeats 9] [--json FILE]

It needs PyTorch and, unless the device is the CPU, a GPU for each rank and CuPy. With ``--device cpu``, ranks
talk by gloo, and nothing is said of GPUs. Rank 0 does the whole by itself on one device; then all ranks do it
together, in shards of one size. A part of perfect is the time on one device, divided by the number of ranks,
over that of all. Times are medians, on the host's clock, from a start that ranks agree on to the end of the
last rank. ``CUPAR_TIER=fast`` is set, so that all is done with the fastest kernels.

Results are compared with what is right before they are timed. The last table is a model: what more ranks
would take, by what was measured here, and by what is assumed of networks.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any

import _common
import numpy as np

NETWORK = 45e9  # assumed: bytes a second and direction of a GPU's own adapter
HOP, FAR = 1.2e-6, 5e-6  # assumed: a step of a gather within a node, and between nodes
NODE = 8  # GPUs of a node

ROWS = ("reduce", "scan", "small", "histogram", "link", "runs", "sort")


def plus(a: Any, b: Any) -> Any:
    """Return a sum, by a function that says nothing else of it."""
    return a + b


def repeated(call: Callable[[], Any]) -> None:
    """Call it a hundred times."""
    for _ in range(100):
        call()


class Rank:
    """One rank: its arrays, its clock, and what it has found."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        import torch
        import torch.distributed as dist

        from cupar import distributed

        self.options, self.torch, self.dist, self.distributed = options, torch, dist, distributed
        self.on_cpu = options.device == "cpu"
        self.xp: Any = np
        if not self.on_cpu:
            import cupy

            torch.cuda.set_device(rank)
            cupy.cuda.Device(rank).use()
            self.xp = cupy
        else:
            torch.set_num_threads(1)
        self.group = distributed.group()
        self.rank, self.size = self.group.rank, self.group.size
        self.found: dict[str, float] = {}
        self.building: list[Any] = []

    def ahead(self) -> None:
        """Begin to build what takes longest, all at once."""
        import cupar

        f4, i4, i8, u1 = (np.dtype(each) for each in ("f4", "i4", "i8", "u1"))
        wanted: list[tuple[Any, ...]] = [
            (cupar.inclusive_scan, f4, f4, plus),
            (cupar.exclusive_scan, u1, i4, plus, np.zeros(1, "i4")),
            (cupar.histogram_even, f4, i4, 65537, 0.0, 1.0, 1),
            (cupar.reduce_by_key, i4, i4, f4, f4, i8, plus),
        ]
        for key in (np.dtype("u4"), np.dtype("u8")):
            wanted.append((cupar.radix_sort, key, key))
            wanted.append((cupar.merge, key, None, key, None, key, None, cupar.OpKind.LESS))
        with cupar.device(self.options.device):
            self.building = [make(*given, wait=False) for make, *given in wanted]

    def wait_for_builds(self) -> None:
        """Wait for what rank 0 builds: it would take the processor from what is timed."""
        for each in self.building:
            each.ready()
        self.dist.barrier()

    def random(self, n: int, dtype: str) -> Any:
        """Return random numbers: floats below 1, or integers of all bits."""
        rng = self.xp.random.default_rng(7 + self.rank)
        if dtype == "f4":
            return rng.random(n, dtype=np.float32)
        return rng.integers(0, 2**63, n, dtype=np.uint64).astype(dtype)

    def tensor(self, array: Any) -> Any:
        """Return an array as PyTorch's."""
        return self.torch.from_numpy(array) if self.on_cpu else self.torch.from_dlpack(array)

    def synchronize(self) -> None:
        """Wait for the device, by what takes the host least: PyTorch's function takes 20 us and more."""
        if not self.on_cpu:
            self.xp.cuda.runtime.deviceSynchronize()

    def timed(self, call: Callable[..., Any], *given: Any, alone: bool = False) -> float:
        """Return seconds from a start that all agree on to the end of the last rank; `alone`: of rank 0."""
        does = not alone or self.rank == 0

        def work() -> None:
            if does:
                call(*given)

        work()
        self.synchronize()
        device = "cpu" if self.on_cpu else "cuda"
        taken = []
        for _ in range(self.options.repeats):
            start = self.torch.tensor([time.perf_counter() + 1e-3], dtype=self.torch.float64, device=device)
            self.dist.all_reduce(start, op=self.dist.ReduceOp.MAX)
            begin = float(start)
            while time.perf_counter() < begin:
                pass
            work()
            self.synchronize()
            end = self.torch.tensor([time.perf_counter() - begin], dtype=self.torch.float64, device=device)
            self.dist.all_reduce(end, op=self.dist.ReduceOp.MAX)
            taken.append(float(end))
        return statistics.median(taken)

    def row(self, name: str, whole: float, parts: dict[str, float]) -> None:
        """Keep the times of a problem: on one device, and of ways to do it on all."""
        self.found[f"{name}: one device"] = whole
        for way, seconds in parts.items():
            self.found[f"{name}: {way}"] = seconds
            if self.rank == 0:
                part = whole / self.size / seconds
                print(f"{name:34}{way:28}{1e3 * whole:10.3f}{1e3 * seconds:10.3f}{part:8.3f}", flush=True)

    def check(self, is_right: Any, what: str) -> None:
        """Raise if something is wrong."""
        if not bool(is_right):
            raise AssertionError(f"{what} is wrong on rank {self.rank}")

    # --- Problems ----------------------------------------------------------------------------------------

    def reduce(self, n: int) -> None:
        """Sum, in any order and in the order of items."""
        import cupar

        x = self.random(n * (self.size if self.rank == 0 else 1), "f4")
        out, zero = self.xp.zeros(1, "f4"), np.zeros(1, "f4")
        with cupar.device(self.options.device):
            whole = cupar.reduce_into(x, out, plus, zero)
        alone = self.timed(whole.run, x, out, n * self.size, zero, alone=True)
        half = self.timed(whole.run, x, out, n, zero)
        self.found["reduce of a shard"] = half
        shard, parts = x[:n], {"a shard alone": half}
        expected = sum(self.gathered(float(shard.sum(dtype=np.float64))))
        for way, commutative in (("cupar", True), ("cupar, in order", False)):
            made = self.distributed.reduce_into(
                shard, out, plus, zero, commutative=commutative, group=self.group
            )
            made.run(shard, out, n, zero)
            self.check(abs(float(out[0]) / expected - 1) < 1e-3, "a sum")
            parts[way] = self.timed(made.run, shard, out, n, zero)
        given = self.tensor(shard)
        parts["torch.sum, all_reduce"] = self.timed(lambda: self.dist.all_reduce(given.sum()))
        self.row(f"reduce {n * self.size:.3g} float32", alone, parts)

    def gathered(self, value: float) -> list[float]:
        """Return the values of all ranks."""
        found: list[Any] = [None] * self.size
        self.dist.all_gather_object(found, value)
        return found

    def scan(self, n: int) -> None:
        """Scan floats, and count flags."""
        import cupar

        d = self.distributed
        x = (self.random(n * (self.size if self.rank == 0 else 1), "f4") < 0.25).astype("f4")
        out = self.xp.empty_like(x)
        with cupar.device(self.options.device):
            whole = cupar.inclusive_scan(x, out, plus)
        alone = self.timed(whole.run, x, out, n * self.size, alone=True)
        half = self.found["scan of a shard"] = self.timed(whole.run, x, out, n)
        shard, result, parts = x[:n], out[:n], {"a shard alone": half}
        for way in ("applied", "returned"):
            made = d.inclusive_scan(shard, result, plus, carry=way, group=self.group)
            made.run(shard, result, n)
            parts[f"cupar, carry {way}"] = self.timed(made.run, shard, result, n)
        given = self.tensor(shard)
        parts["torch.cumsum, all_gather, add"] = self.timed(self.torch_scan, given)
        self.row(f"scan {n * self.size:.3g} float32", alone, parts)
        flags = (x > 0).astype("u1")
        places, zero = self.xp.empty(len(x), "i4"), np.zeros(1, "i4")
        with cupar.device(self.options.device):
            counts = cupar.exclusive_scan(flags, places, plus, zero)
        alone = self.timed(counts.run, flags, places, n * self.size, zero, alone=True)
        made = d.exclusive_scan(flags[:n], places[:n], plus, zero, group=self.group)
        made.run(flags[:n], places[:n], n, zero)
        totals = self.gathered(int(flags[:n].sum(dtype=np.int64)))
        self.check(int(places[0]) == sum(totals[: self.rank]), "a scan")
        last = int(places[n - 1]) + int(flags[n - 1])
        self.check(last == sum(totals[: self.rank + 1]), "a scan")
        seconds = self.timed(made.run, flags[:n], places[:n], n, zero)
        self.row(f"scan {n * self.size:.3g} uint8 to int32", alone, {"cupar": seconds})

    def torch_scan(self, given: Any) -> Any:
        """Scan by what PyTorch has."""
        sums = given.cumsum(0)
        totals = [self.torch.empty_like(sums[-1:]) for _ in range(self.size)]
        self.dist.all_gather(totals, sums[-1:].contiguous())
        return sums.add_(self.torch.cat(totals)[: self.rank].sum())

    def sort(self, n: int) -> None:
        """Sort keys of 4 and of 8 bytes, and merge two halves of a shard."""
        import cupar

        for dtype, number in (("u4", n // 2), ("u8", n // 4)):
            x = self.random(number * (self.size if self.rank == 0 else 1), dtype)
            out = self.xp.empty_like(x)
            with cupar.device(self.options.device):
                whole = cupar.radix_sort(x, out)
            alone = self.timed(whole.run, x, out, None, None, number * self.size, alone=True)
            half = self.timed(whole.run, x, out, None, None, number)
            self.found[f"sort of a shard of {dtype}"] = half
            shard, result, parts = x[:number], out[:number], {"a shard alone": half}
            made = self.distributed.radix_sort(shard, result, group=self.group)
            made.run(shard, result, None, None, number)
            self.check((result[1:] >= result[:-1]).all(), "the order of a sort")
            ends = self.gathered((int(result[0]), int(result[-1]), int(result.sum()), int(shard.sum())))
            self.check(all(a[1] <= b[0] for a, b in pairwise(ends)), "a sort")
            self.check(sum(e[2] - e[3] for e in ends) % 2**64 == 0, "what was sorted")
            parts["cupar"] = self.timed(made.run, shard, result, None, None, number)
            same = self.xp.full_like(shard, 7)
            parts["cupar, all keys equal"] = self.timed(made.run, same, result, None, None, number)
            given = self.tensor(shard.view(f"i{shard.itemsize}"))
            parts["torch.sort of a shard alone"] = self.timed(
                given.sort,
            )
            self.row(f"sort {number * self.size:.3g} uint{8 * shard.itemsize}", alone, parts)
            pair = self.xp.sort(shard[: number // 2]), self.xp.sort(shard[number // 2 :])
            with cupar.device(self.options.device):
                merge = cupar.merge(pair[0], None, pair[1], None, out)
            counts = len(pair[0]), len(pair[1])
            self.found[f"merge of a shard of {dtype}"] = self.timed(
                merge.run, pair[0], None, counts[0], pair[1], None, counts[1], out
            )

    def runs(self, n: int) -> None:
        """Reduce runs of 10."""
        import cupar

        number = n // 2
        keys = (self.xp.arange(number * (self.size if self.rank == 0 else 1)) // 10).astype("i4")
        values, unique = self.random(len(keys), "f4"), self.xp.empty_like(keys)
        sums, counts = self.xp.empty_like(values), self.xp.zeros(3, "i8")
        with cupar.device(self.options.device):
            whole = cupar.reduce_by_key(keys, unique, values, sums, counts[:1], plus)
        arrays = keys, unique, values, sums, counts[:1]
        alone = self.timed(whole.run, *arrays, number * self.size, alone=True)
        keys = keys[:number] + self.rank * number // 10
        arrays = keys, unique, values[:number], sums, counts
        made = self.distributed.reduce_by_key(*arrays, plus, group=self.group)
        made.run(*arrays, number)
        all_keys = (
            len(
                np.unique(
                    np.concatenate([np.arange(number) // 10 + r * number // 10 for r in range(self.size)])
                )
            )
            if number <= 1 << 22
            else int(counts[2])
        )
        self.check(int(counts[2]) == all_keys, "the number of runs")
        seconds = self.timed(made.run, *arrays, number)
        self.row(f"reduce by key {number * self.size:.3g}, runs of 10", alone, {"cupar": seconds})

    def histogram(self, n: int) -> None:
        """Count in 65,536 bins."""
        import cupar

        x = self.random(n * (self.size if self.rank == 0 else 1), "f4")
        counts, bins = self.xp.zeros(65536, "i4"), 65536
        levels = bins + 1, 0.0, 1.0
        with cupar.device(self.options.device):
            whole = cupar.histogram_even(x, counts, *levels, n)
        alone = self.timed(whole.run, x, counts, *levels, n * self.size, alone=True)
        made = self.distributed.histogram_even(x[:n], counts, *levels, n, group=self.group)
        made.run(x[:n], counts, *levels, n)
        self.check(int(counts.sum(dtype=np.int64)) == n * self.size, "a histogram")
        seconds = self.timed(made.run, x[:n], counts, *levels, n)
        self.row(f"histogram {n * self.size:.3g}, 65,536 bins", alone, {"cupar": seconds})

    def small(self, n: int) -> None:
        """Reduce 1,000 items, once and a hundred times."""
        shard, out = self.random(1000, "f4"), self.xp.zeros(1, "f4")
        zero = np.zeros(1, "f4")
        made = self.distributed.reduce_into(shard, out, plus, zero, group=self.group)
        given = self.tensor(shard)
        ways = {
            "cupar": lambda: made.run(shard, out, 1000, zero),
            "torch.sum, all_reduce": lambda: self.dist.all_reduce(given.sum()),
        }
        if not self.on_cpu:
            empty = self.xp.RawKernel('extern "C" __global__ void empty() {}', "empty")
            ways["an empty kernel"] = lambda: empty((1,), (1,), ())
        for way, call in ways.items():
            one = self.timed(call)
            many = self.timed(repeated, call) / 100
            self.found[f"small reduce: {way}"], self.found[f"small reduce, of 100: {way}"] = one, many
            if self.rank == 0:
                print(f"{'reduce 1,000 float32':34}{way:28}{1e6 * one:8.1f} us{1e6 * many:8.1f} us, of 100")

    def link(self, n: int) -> None:
        """Exchange with neighbours."""
        size = n
        send, recv = self.xp.zeros(size, "u1"), self.xp.zeros(size, "u1")
        import cupar

        other = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        empty = send[:0]
        ways = [[empty] * self.size for _ in range(2)]
        ways[0][other[0]], ways[1][other[1]] = send, recv
        stream = None if self.on_cpu else 0
        if not self.on_cpu:
            ways = [[cupar.view(each) for each in way] for way in ways]
        seconds = self.timed(self.group.exchange, *ways, stream)
        self.found["link, bytes a second"] = size / seconds
        if self.rank == 0:
            print(f"{'exchange with a neighbour':34}{size / seconds / 1e9:20.1f} GB/s each way")


# --- The model --------------------------------------------------------------------------------------------


def modelled(found: dict[str, float], n: int) -> list[dict[str, float]]:
    """Return parts of perfect for more ranks of `n` float32, or half as many uint32, by what was measured."""
    read, scan = found["reduce of a shard"], found["scan of a shard"]
    sort, merge = found["sort of a shard of u4"], found["merge of a shard of u4"]
    launch, link = found["small reduce, of 100: cupar"], found["link, bytes a second"]
    rows = []
    for ranks in (2, 8, 64, 1000):
        nodes = ceil(ranks / NODE)
        gather = (min(ranks, NODE) - 1) * HOP + (2 * ceil(log2(nodes)) * FAR if nodes > 1 else 0) + launch
        sent = 2 * n * (ranks - 1) / ranks
        far = max(0, ranks - NODE) / ranks
        exchange = max(sent * (1 - far) / link, sent * far / NETWORK)
        rows.append(
            {
                "ranks": ranks,
                "reduce": read / (read + gather),
                "scan": scan / (scan + read + gather),
                "scan, carry returned": scan / (scan + gather),
                "sort": sort / (sort + exchange + ceil(log2(ranks)) * merge),
            }
        )
    return rows


def print_model(rows: list[dict[str, float]]) -> None:
    """Print a table of it."""
    print("\nA model, not measured, of parts of perfect: each rank has as much as here")
    print(f"{'':24}" + "".join(f"{row['ranks']:>10.0f}" for row in rows) + "  ranks")
    for name in list(rows[0])[1:]:
        print(f"{name:24}" + "".join(f"{row[name]:10.3f}" for row in rows))


# --- Processes --------------------------------------------------------------------------------------------


def work(rank: int, options: argparse.Namespace, port: int, results: Any) -> None:
    """Be one rank."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    os.environ["CUPAR_TIER"] = "fast"
    import torch
    import torch.distributed as dist

    backend = "gloo" if options.device == "cpu" else "nccl"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group(backend, init_method=address, rank=rank, world_size=options.ranks)
    mine = Rank(options, rank)
    if rank == 0:
        print(f"{options.ranks} ranks, {mine.group.transport}")
        print(f"{'':34}{'':28}{'one, ms':>10}{'all, ms':>10}{'part':>8}")
    if rank == 0 and not mine.on_cpu:
        mine.ahead()
    mine.wait_for_builds()
    for name in options.only:
        getattr(mine, name)(2**options.exponent // options.ranks)
    if rank == 0:
        results.put(mine.found)
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Start the ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--exponent", type=int, default=30, help="of two: items of all ranks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(ROWS))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    unknown = set(options.only) - set(ROWS)
    if unknown:
        parser.error(f"--only: expected some of {','.join(ROWS)}, got {','.join(sorted(unknown))}")
    from torch import multiprocessing

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    results = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(work, (options, port, results), nprocs=options.ranks)
    seconds = results.get()
    document: dict[str, Any] = {"ranks": options.ranks, "exponent": options.exponent, "seconds": seconds}
    if set(ROWS) <= set(options.only):
        document["model"] = modelled(seconds, 2**options.exponent // options.ranks)
        print_model(document["model"])
    if options.json:
        device = None if options.device == "cpu" else _common.gpu()
        document["environment"] = _common.environment(device)
        _common.write_json(options.json, document)


if __name__ == "__main__":
    sys.exit(main())
