"""Algorithms of ranks that are processes, by torch.distributed's gloo and by MPI, against NumPy's."""

import shutil
import sys
from pathlib import Path

import pytest
from support import failing_ranks
from support.processes import said, start

MAIN = str(Path(__file__).parents[1] / "support" / "rank_main.py")


def is_told(found, size):
    same = ", ".join(map(str, range(min(size - 1, 4)))) + (" and 1 more" if size == 6 else "")
    tier = f"ValueError: ranks differ in CUPAR_TIER: ranks {same}: fast; rank {size - 1}: quick"
    assert {each["tier"] for each in found} == {tier}
    return all(f"ranks differ in operator: ranks {same}: " in each["differing"][0] for each in found)


def is_told_of_faults(found):
    """A step of one rank fails, and one rank is interrupted as it waits; what is given goes on."""
    for rank, failed, told in (each["faults"] for each in found):
        assert failed == found[0]["faults"][1] >= 1
        if rank == failing_ranks.VICTIM:
            assert told == "KeyboardInterrupt: "
        else:
            assert "GroupError: " in told and "rank 1 raised KeyboardInterrupt" in told
    return True


def test_gloo():
    pytest.importorskip("torch")
    size = 6
    found = said([start(sys.executable, MAIN, "gloo", str(size))], [0])
    assert [each["problems"] for each in found] == [4] * (size - 1)
    assert is_told(found, size) and is_told_of_faults(found)
    for each in found:
        assert each["beside"] == [f"rank {rank}" * (rank + 1) for rank in range(size)]
        built, fetched = each["builds"]
        assert built == fetched / (size - 1) > 0  # one rank built each, the others fetched it
        told, total = each["survivors"]
        assert len(told) == 2 and "torch.distributed (gloo): " in told[0]
        assert "this group has failed" in told[1]
        assert total == 10 * (size - 1)


def test_mpi():
    pytest.importorskip("mpi4py")
    mpirun = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is not installed")
    command = (mpirun, "-n", "4", "--oversubscribe", "--allow-run-as-root", sys.executable, MAIN, "mpi")
    found = said([start(*command)], [0])
    assert [each["problems"] for each in found] == [16] * 4
    assert is_told(found, 4) and is_told_of_faults(found)
