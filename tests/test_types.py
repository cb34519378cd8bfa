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
from numpy.typing import NDArray
from typing_extensions import assert_type

import cupar
from cupar import OpKind, SortOrder, arrays
from cupar.distributed import arrays as shards


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

class Tensor:
    def __dlpack__(self, *args: Any, **named: Any) -> Any: ...


Floats = NDArray[np.float64]
x = Tensor()
assert_type(arrays.sort(items), Floats)
assert_type(arrays.argsort(items, axis=None), NDArray[np.int64])
assert_type(arrays.any_of(items, lambda a: a > 0), NDArray[np.bool_])
assert_type(arrays.copy_if(items, lambda a: a > 0), Floats)
assert_type(arrays.copy_if(items, np.abs, size=5), arrays.Counted[Floats, NDArray[np.int64]])
assert_type(arrays.sort((x, x), less=lambda a, b: a[0] < b[0]), tuple[Tensor, Tensor])
assert_type(arrays.fill((x, x), (1, 2)), tuple[Tensor, Tensor])
assert_type(arrays.fill(x, 2), Tensor)
assert_type(arrays.tabulate(3, lambda i: i, like=x), Tensor)
assert_type(arrays.tabulate(3, lambda i: i, out=x), Tensor)
assert_type(arrays.reduce(x, np.maximum, axis=(0, 1), dtype=np.float64, out=x, stream=OfPyTorch()), Tensor)
assert_type(arrays.top_k(x, 2).indices, Tensor)
assert_type(arrays.concatenate([x, x]), Tensor)
assert_type(arrays.transform(lambda a, b: a + b, x, 3), Tensor)
assert_type(arrays.linear_recurrence(x, x, initial=1.5), Tensor)
assert_type(arrays.unique_all(x, size=3), arrays.Counted[arrays.UniqueAll[Tensor], Tensor])
assert_type(shards.sum(x), Tensor)
assert_type(shards.unique_counts(items).counts, NDArray[Any])
arrays.reduce(cupar.CountingIterator(3), num_items=4).shape
assert_type(arrays.reduce(cupar.CountingIterator(3), num_items=4, like=x), Tensor)
assert_type(arrays.copy_if(cupar.CountingIterator(3), np.abs, size=3, like=x), arrays.Counted[Tensor, Tensor])
arrays.searchsorted(items, 3)
arrays.quantile(items, items)
arrays.histogram(x, bins=items)
shards.histogram(x, bins=[1, 2.5], range=(0, 1))
arrays.isin(items, x)

arrays.sort(3)  # wrong
arrays.sort([3, 1])  # wrong
arrays.sort(items, axis="0")  # wrong
arrays.sort(items, keepdims=True)  # wrong
arrays.sorted  # wrong
arrays.count_if(items, 3)  # wrong
shards.sort()  # wrong
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
LIBRARIES = """
from typing import Any

import dask.array as da
import jax
import jax.numpy as jnp
import torch
from typing_extensions import assert_type

import cupar.torch as ct
from cupar import dask as cd
from cupar import jax as cj

x = torch.zeros(3)
assert_type(ct.sort(x, 0, less=lambda a, b: a < b), torch.Tensor)
assert_type(ct.nonzero(x), tuple[torch.Tensor, ...])
assert_type(ct.top_k(x, 2).values, torch.Tensor)
assert_type(ct.linear_recurrence(x, x, initial=3), torch.Tensor)
assert_type(ct.scan(x, lambda a, b: a + b, dim=0), torch.Tensor)
assert_type(ct.scan((x, x), lambda a, b: a, dim=0), tuple[torch.Tensor, torch.Tensor])
assert_type(cj.sort(jnp.zeros(3)), jax.Array)
assert_type(cj.associative_scan(lambda a, b: a, (jnp.zeros(3),)), tuple[jax.Array])
assert_type(cd.sum(da.zeros(3)), da.Array)
assert_type(cd.top_k(da.zeros(3), 1).indices, da.Array)
ct.sort(x, axis=0)  # wrong
cj.top_k(jnp.zeros(3), "1")  # wrong
cd.sort()  # wrong
"""


def _check(command, file, text):
    """Assert that a type checker finds what is wrong in a text, and nothing else."""
    file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", *command, str(file)],
        capture_output=True,
        text=True,
        cwd=file.parent,
        env={**os.environ, "PYTHONPATH": str(Path(cupar.__file__).parents[1])},
    )
    if command[0] == "pyright":
        each = json.loads(done.stdout)["generalDiagnostics"]
        found = {at["range"]["start"]["line"] + 1 for at in each if at["severity"] == "error"}
    else:
        found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}
    wrong = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, done.stdout + done.stderr


@pytest.mark.parametrize(
    "command",
    [["pyright", "--outputjson"], ["mypy", "--strict", "--no-error-summary", "--no-incremental"]],
    ids=["pyright", "mypy"],
)
def test_what_is_wrong_with_a_call_is_found(command, tmp_path):
    """Right calls are accepted: arrays, dtypes, iterators, orders, streams, structs and kernels."""
    _check(command, tmp_path / "user.py", USER)


def test_functions_of_a_library_return_its_arrays(tmp_path):
    for library in ("dask.array", "jax", "torch"):
        pytest.importorskip(library)
    _check(["pyright", "--outputjson"], tmp_path / "user.py", LIBRARIES)
