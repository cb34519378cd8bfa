"""Many GPUs: an array that several ranks hold, sorted and counted.

Run it by itself, or on several ranks:

    torchrun --nproc-per-node 4 examples/many_gpus.py
    mpirun -n 4 python examples/many_gpus.py
"""

import os

import numpy as np

from cupar import distributed


def started_group() -> distributed.Group:
    """Return the group of whatever has started this program."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        import torch.distributed as dist

        dist.init_process_group("gloo")
    elif "OMPI_COMM_WORLD_SIZE" in os.environ:
        from mpi4py import MPI  # noqa: F401
    return distributed.group()


def sorted_shard(shard: np.ndarray, group: distributed.Group) -> np.ndarray:
    """Return this rank's part of the sorted array, as long as its shard."""
    out = np.empty_like(shard)
    sort = distributed.radix_sort(shard, out, group=group)
    sort.run(shard, out, None, None, len(shard))
    return out


def counted(shard: np.ndarray, group: distributed.Group) -> tuple[int, int]:
    """Return how many distinct items a sorted array has, and the longest run.

    A run may begin on one rank and end on another.
    """
    items, lengths = np.empty_like(shard), np.zeros(len(shard), np.int64)
    counts = np.zeros(3, np.int64)
    arrays = shard, items, lengths, counts
    distributed.run_length_encode(*arrays, group=group).run(
        *arrays, len(shard)
    )
    own, _, distinct = counts
    longest = np.zeros(1, np.int64)
    largest = distributed.reduce_into(lengths, longest, max, 0, group=group)
    largest.run(lengths, longest, own, 0)
    return int(distinct), int(longest[0])


def main() -> None:
    """Sort 100,000 items in shards of different sizes, and count them."""
    group = started_group()
    items = np.random.default_rng(0).geometric(0.01, 100_000)
    weights = np.arange(group.size + 1) ** 2
    cuts = len(items) * weights // weights[-1]
    begin, end = cuts[group.rank], cuts[group.rank + 1]

    shard = sorted_shard(items[begin:end].copy(), group)
    np.testing.assert_array_equal(shard, np.sort(items)[begin:end])

    distinct, longest = counted(shard, group)
    unique, lengths = np.unique(items, return_counts=True)
    assert (distinct, longest) == (len(unique), lengths.max())
    if group.rank == 0:
        print(f"{len(items)} items, {distinct} distinct, {longest} times one")


if __name__ == "__main__":
    main()
