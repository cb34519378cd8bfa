"""Kernels under compute-sanitizer, where it is installed: the shortest run that once found a race."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SANITIZER = shutil.which("compute-sanitizer")
CHECKED = Path(__file__).parent / "memcheck.py"


@pytest.mark.skipif(SANITIZER is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize("what", [("tuples", "u2", "100003")], ids="-".join)
def test_races(what, tmp_path):
    """Once, a scan backwards wrote its last, shorter tile where other warps still stored from."""
    env = os.environ | {"CUPAR_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, str(CHECKED), *what]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=300)
    found = subprocess.run(
        [SANITIZER, "--tool", "racecheck", "--error-exitcode", "9", *command],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-2000:]
