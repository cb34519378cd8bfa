"""What find.py compares results with: with NumPy for CuPy."""

import importlib
from pathlib import Path

import pytest
from support.numpy_as_cupy import Device

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def find(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("find")


@pytest.mark.parametrize("what", ["none", "hundredth", "equal", "sorted", "bytes"])
def test_what_is_wrong_is_seen(find, what):
    case = find.Finding(Device(), None, what, 4096)
    assert case.check(case.prepare("cupar"))
    right = min(case.right)
    for found in (right, right + 1, right - 1, -7):

        def launch(found=found):
            case.found = case.x[:1].astype("i8")
            case.found[0] = found

        assert case.check(launch) == (found in case.right)


def test_sides_without_an_own_algorithm_are_missing(find):
    case = find.Finding(Device(), None, "equal", 4096)
    for side in ("CUB", "reduction"):
        with pytest.raises(LookupError, match="finds"):
            case.prepare(side)
