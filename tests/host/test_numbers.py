"""Compiled host code passes the numbers that operators read."""

from pathlib import Path

import pytest
from support.host import run

pytest.importorskip("numba")


@pytest.mark.slow
def test_launches_have_the_numbers(tmp_path):
    (tmp_path / "cache").mkdir()
    done = run(tmp_path, Path(__file__).parent / "processes" / "captured.py", tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["3.5", "4.5", "5.5", "6.5"]
