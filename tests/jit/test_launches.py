"""Launches of kernels as a driver sees them that has no GPU: parameters, grids, streams and attributes."""

from pathlib import Path

import pytest
from support.host import run

FILE = Path(__file__).parent / "processes" / "launches.py"
WHICH = ("arguments", "conversions", "libraries", "tensors", "configurations", "errors")


@pytest.mark.parametrize("graphs", ["0", "1"])
def test_what_the_driver_is_told(graphs, tmp_path, session_cache):
    done = run(tmp_path, FILE, session_cache, *WHICH, CUPAR_GRAPHS=graphs)
    assert done.returncode == 0, done.stdout + done.stderr
    *differences, last = done.stdout.splitlines()
    assert not differences, done.stdout
    assert int(last.removeprefix("checks ")) >= 5 * len(WHICH)
