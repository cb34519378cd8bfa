"""What more.py compares results with: with NumPy for CuPy."""

import importlib
from pathlib import Path

import pytest
from support.numpy_as_cupy import Device

import cupar

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    "what",
    ["symmetric", "difference-pairs", "few-ids", "edges", "expand", "setxor1d", "ranges-64", "join-16"],
)
def test_cases_are_right_and_found_wrong(what, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    more = importlib.import_module("more")
    case = more.More(Device(), None, what, 4096)
    with cupar.device("cpu"):
        launch = case.prepare("cupar")
    assert case.check(launch)
    assert case.nbytes > 0

    def wrong():
        launch()
        found = case.found
        while isinstance(found, tuple):
            found = found[0]
        found.reshape(-1)[0] += 1

    assert not case.check(wrong)
