"""Types of the public interface are complete, by pyright, and reject wrong calls."""

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


USER = """
from typing import Any, ClassVar

import numpy as np

import cupar
from cupar import OpKind, SortOrder


@cupar.gpu_struct
class Peak:
    height: np.float32
    index: np.int64
    dtype: ClassVar[np.dtype[Any]]


@cupar.jit
def kernel(x: Any) -> None: ...


@cupar.jit(device=True)
def device_function(x: Any) -> Any:
    return x


class OfPyTorch:
    cuda_stream = 5


items, out = np.zeros(3), np.zeros(1)
best = Peak(np.float32(1), np.int64(2))
peaks = cupar.reduce_into(Peak, np.zeros(1, Peak.dtype), lambda a, b: a, best, cc=(9, 0))
peaks.run(items, out, 3, best, OfPyTorch())
cupar.reduce_into(cupar.CountingIterator(3), out, np.add, None, cc="cpu")
cupar.radix_sort("f4", np.float32, order=SortOrder.ASCENDING)
cupar.radix_sort(cupar.DoubleBuffer(items, out), None)
kernel[1, 2](items)
height: np.float32 = best.height

cupar.reduce_into(3, out, OpKind.PLUS)  # wrong
cupar.reduce_into(items, 4, OpKind.PLUS)  # wrong
cupar.reduce_into(items, out, 5)  # wrong
cupar.reduce_into(items, out, OpKind.PLUS).run(items, out, 3, None, "a stream")  # wrong
cupar.reduce_into(items, out, OpKind.PLUS)(None, "f4", out, 3)  # wrong
cupar.radix_sort(items, out, order="ascending")  # wrong
cupar.inclusive_scan(items, out, OpKind.PLUS, cc=9.0)  # wrong
number: int = kernel  # wrong
Peak(1, 2, 3)  # wrong
best.width  # wrong
"""
WRONG = {number for number, line in enumerate(USER.splitlines(), 1) if line.endswith("# wrong")}


@pytest.mark.parametrize(
    "command",
    [["pyright", "--outputjson"], ["mypy", "--strict", "--no-error-summary", "--no-incremental"]],
    ids=["pyright", "mypy"],
)
def test_what_is_wrong_with_a_call_is_found(command, tmp_path):
    """Right calls are accepted: arrays, dtypes, iterators, orders, streams, structs and kernels."""
    file = tmp_path / "user.py"
    file.write_text(USER)
    done = subprocess.run(
        [sys.executable, "-m", *command, str(file)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(cupar.__file__).parents[1])},
    )
    if command[0] == "pyright":
        each = json.loads(done.stdout)["generalDiagnostics"]
        found = {at["range"]["start"]["line"] + 1 for at in each if at["severity"] == "error"}
    else:
        found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    assert found == WRONG, done.stdout + done.stderr
