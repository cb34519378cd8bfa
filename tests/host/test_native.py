"""Compiled host code as a driver sees it that has no GPU: kernels, grids, parameters, memory and errors."""

from pathlib import Path

import pytest
from support.host import run

pytest.importorskip("numba")
PROCESSES = Path(__file__).parent / "processes"


# Those of a line run in one process, where numba compiles once what they have in common.
TOGETHER = [
    ("reductions", "scans", "transforms", "choices", "finds", "searches"),
    ("sorts", "merges", "sets", "radix_sorts", "segmented_sorts", "top_ks", "nth_elements"),
    ("segments", "segmented_scans", "columns", "histograms", "indexed", "runs", "iterators"),
]


@pytest.mark.slow
@pytest.mark.parametrize("which", TOGETHER, ids=" ".join)
def test_compiled_code_launches_what_python_launches(which, tmp_path, session_cache):
    # Without numba's optimiser, as each function is called a few times; on a GPU they are optimised.
    done = run(tmp_path, PROCESSES / "same_launches.py", session_cache, *which, NUMBA_OPT="0")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines and not [line for line in lines if line.startswith("differs")], done.stdout
    assert all(int(line.split()[-1]) > 0 for line in lines)
