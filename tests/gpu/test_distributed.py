"""Algorithms of ranks on GPUs, against NumPy's: threads that share one, and a GPU each by NCCL."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cupy as cp
import pytest
from support import ranks
from support.processes import free_port, said, start

from cupar import distributed

MAIN = str(Path(__file__).parents[1] / "support" / "rank_main.py")


def test_threads_on_one_gpu():
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda group: ranks.check_all(group, ranks.Device), distributed.threads(3, 120))
        assert list(found) == [16] * 3


def test_one_rank_on_a_gpu():
    assert ranks.check_all(distributed.group(), ranks.Device) == 16


@pytest.mark.skipif(cp.cuda.runtime.getDeviceCount() < 2, reason="it needs two GPUs")
def test_nccl():
    pytest.importorskip("torch")
    size, port = cp.cuda.runtime.getDeviceCount(), free_port()
    processes = [start(sys.executable, MAIN, "nccl", str(rank), str(size), port) for rank in range(size)]
    found = said(processes, [0] * size)
    assert [each["problems"] for each in found] == [16] * size
    assert all("ranks differ in operator" in each["differing"][0] for each in found)
