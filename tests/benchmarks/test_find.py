"""What find.py compares results with, and that its kernel is built: with NumPy for CuPy."""

import importlib
from pathlib import Path

import pytest
from support.numpy_as_cupy import Device

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def find(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("find")


@pytest.mark.parametrize("what", ["none", "half", "hundredth", "thousandth"])
def test_what_is_wrong_is_seen(find, what):
    case = find.Finding(Device(), None, what, 4096)
    assert case.check(case.prepare("cupar"))
    right = 4096 if case.place < 0 else case.place
    for found in (right, right + 1, right - 1, -7):

        def launch(found=found):
            case.out[0] = found

        assert case.check(launch) == (found == right)


def test_its_kernel_is_built(find):
    kernel = find.kernel_of(find.is_one)
    assert kernel.compile("void(float32[::1], int64[::1])", cc=90).build.algorithm == "kernel"
