"""Algorithms of ranks on GPUs, against NumPy's: threads that share one, and a GPU each by NCCL."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cupy as cp
import numpy as np
import pytest
from support import failing_ranks, ranks
from support.processes import free_port, said, start

from cupar import distributed
from cupar.distributed import arrays

MAIN = str(Path(__file__).parents[1] / "support" / "rank_main.py")
GPUS = cp.cuda.runtime.getDeviceCount()


def test_threads_on_one_gpu():
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda group: ranks.check_all(group, ranks.Device), distributed.threads(3, 120))
        assert list(found) == [16] * 3


@pytest.mark.parametrize("size", [2, 3])
def test_structs_of_threads_on_one_gpu(size):
    """They go through the host; of two ranks in slices, of more after rounds of samples."""
    with ThreadPoolExecutor(size) as pool:
        list(pool.map(lambda group: ranks.check_fields(group, ranks.Device), distributed.threads(size, 60)))


def test_ranks_compare_what_they_gave_to_calls_when_they_agree():
    with ThreadPoolExecutor(3) as pool:
        told = pool.map(
            lambda group: failing_ranks.given_otherwise(group, ranks.Device), distributed.threads(3, 60)
        )
        failing_ranks.check_given_otherwise([*told], later=True)


def test_prefixes_of_scans_in_place_and_nan():
    """What is in the same memory, and calls that repeat; and a NaN of any sign is the greatest item."""

    def of_rank(group):
        x, found = cp.arange(1, 6), []
        scan = distributed.exclusive_scan(x, x[:], ranks.plus, 0, carry="returned", group=group)
        for _ in range(3):
            x[:] = cp.arange(1, 6)
            found.append(int(cp.asarray(scan.run(x, x[:], 5, 0).value)[0]))
        assert found == [15 * group.rank] * 3 and x.tolist() == [0, 1, 3, 6, 10]
        with pytest.raises(TypeError, match="h_init: 1.5 is not converted to int64 silently"):
            scan.run(x, x[:], 5, 1.5)
        numbers = cp.array([1.0, -np.nan, np.inf, np.nan])
        top = arrays.top_k(numbers, 3)
        assert top.indices.tolist() == [1, 3, 2]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(of_rank, distributed.threads(3, 60)))


def test_ranks_use_the_fast_kernels_at_once(monkeypatch):
    """They would change to them at different calls."""
    monkeypatch.delenv("CUPAR_TIER", raising=False)
    x = cp.arange(100, dtype=cp.float64)
    scan = distributed.inclusive_scan(x, x, lambda a, b: a + 2 * b)
    assert scan._scan.build.tier == "fast"


def test_one_rank_on_a_gpu():
    assert ranks.check_all(distributed.group(), ranks.Device) == 16


def by_nccl(engine, size):
    """Return what ranks that have a GPU each, and talk by NCCL, print."""
    dist = pytest.importorskip("torch.distributed")
    if not dist.is_nccl_available():
        pytest.skip("this PyTorch has no NCCL")
    ports = free_port(), free_port()
    processes = [start(sys.executable, MAIN, engine, str(rank), str(size), *ports) for rank in range(size)]
    return said(processes, [0] * size)


def test_nccl_of_one_rank():
    """What algorithms give NCCL, records and counts, goes through it; there is nobody to exchange with."""
    assert [each["problems"] for each in by_nccl("nccl", 1)] == [16]


def test_an_aborted_group_of_nccl_has_a_successor():
    told, total = by_nccl("aborted", 1)[0]["aborted"]
    assert "torch.distributed (nccl): this group has failed (rank 0 has had enough)" in told
    assert total == 10


@pytest.mark.skipif(GPUS < 2, reason="it needs two GPUs")
def test_threads_with_a_gpu_each():
    def of_rank(group):
        with cp.cuda.Device(group.rank):
            ranks.check_fields(group, ranks.Device)

    with ThreadPoolExecutor(GPUS) as pool:
        list(pool.map(of_rank, distributed.threads(GPUS, 60)))


@pytest.mark.skipif(GPUS < 2, reason="it needs two GPUs")
def test_shards_of_jax():
    jax = pytest.importorskip("jax")
    if len(jax.devices()) != GPUS:
        pytest.skip("JAX does not see the GPUs")
    sharding = jax.sharding
    mesh = sharding.Mesh(jax.devices(), "rows")
    x = jax.device_put(
        jax.numpy.arange(1024 * GPUS)[::-1], sharding.NamedSharding(mesh, sharding.PartitionSpec("rows"))
    )
    shards = [each.data for each in x.addressable_shards]

    def of_rank(group):
        with cp.cuda.Device(group.rank):
            return arrays.sort(shards[group.rank], group=group).get()

    with ThreadPoolExecutor(GPUS) as pool:
        parts = pool.map(of_rank, distributed.threads(GPUS, 60))
        np.testing.assert_array_equal(np.concatenate([*parts]), np.arange(1024 * GPUS))


@pytest.mark.skipif(GPUS < 2, reason="it needs two GPUs")
def test_nccl():
    found = by_nccl("nccl", GPUS)
    assert [each["problems"] for each in found] == [16] * GPUS
    assert all("ranks differ in operator" in each["differing"][0] for each in found)


@pytest.mark.skipif(GPUS < 2, reason="it needs two GPUs")
def test_what_nccl_has_enqueued_is_aborted():
    for told, total in (each["aborted"] for each in by_nccl("aborted", GPUS)):
        assert "rank 0 has had enough" in told
        assert total == 10 * GPUS
