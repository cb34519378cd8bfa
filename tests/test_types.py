"""The types of the public interface are complete, by pyright, and say what is wrong with a call."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import cupar

pytest.importorskip("pyright", reason="pip install pyright[nodejs], as in the extra dev")


def test_all_types_are_known(tmp_path):
    """Other type checkers do not infer what is not annotated as mypy does."""
    folder = str(Path(cupar.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--verifytypes", "cupar", "--ignoreexternal", "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": folder},
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    unknown = [each["name"] for each in found["symbols"] if not each["isTypeKnown"] and each["isExported"]]
    assert found["symbols"], done.stdout
    assert found["completenessScore"] == 1, unknown
