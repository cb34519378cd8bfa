"""What tuples.py and merges.py call, and compare results with: on the CPU, with NumPy for CuPy."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.numpy_as_cupy import Device

import cupar

ROOT = Path(__file__).resolve().parent.parent.parent
EXPONENT = 14


class NumPy(Device):
    """NumPy with what is used of CuPy."""

    def __init__(self):
        legacy = np.random.RandomState(5)
        self.random = SimpleNamespace(
            seed=legacy.seed,
            randint=legacy.randint,
            RandomState=lambda seed: SimpleNamespace(
                rand=lambda n, dtype: legacy.rand(n).astype(dtype), randint=legacy.randint
            ),
        )


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    with cupar.device("cpu"):
        yield importlib.import_module


@pytest.mark.parametrize("what", ["backward", "backward-rows", "minmax", "argmax-rows", "dot"])
def test_cases_of_tuples_are_right_and_found_wrong(benchmark, what):
    tuples = benchmark("tuples")
    shape = next(tuples.shapes([what], EXPONENT))
    case = tuples.Tuples(NumPy(), None, None, shape, tuples.of_cupar(what, shape.size, "cpu"))
    launch = case.prepare("cupar")
    assert case.check(launch)
    assert not case.check(lambda: (launch(), spoil(case)))


def spoil(case):
    """Change a result."""
    found = getattr(case, "found", case.out)
    if found.dtype.names:
        found["field_1"][-1] += 1
    else:
        found[0] += 1


@pytest.mark.parametrize(
    "what", ["merge", "merge-pairs", "in-order", "in-order-rows", "columns", "column-sums"]
)
def test_cases_of_merges_are_right_and_found_wrong(benchmark, what):
    merges = benchmark("merges")
    algorithms = {each: merges.of_cupar(each, "cpu") for each in merges.needed([what])}
    shape = next(merges.shapes([what], EXPONENT))
    case = merges.Merges(NumPy(), None, shape, algorithms, LookupError("no CUB"))
    for side in ("cupar", *["any"] * what.startswith("in-order")):
        launch = case.prepare(side)
        assert case.check(launch)
        assert not case.check(lambda launch=launch: (launch(), spoil(case)))


def test_each_case_has_a_goal(benchmark):
    for name in ("tuples", "merges"):
        module = benchmark(name)
        found = [*module.shapes(module.WHATS, 26)]
        assert {each.what for each in found} == set(module.WHATS) == set(module.GOALS)
