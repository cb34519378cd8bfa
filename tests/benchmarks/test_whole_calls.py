"""Rows of whole_calls.py on the CPU, and what it says of them."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from support.numpy_as_cupy import Device

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def whole_calls(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("whole_calls")


def measured(whole_calls, name, label, *words, row=None):
    library = whole_calls.library(name, False)
    options = whole_calls.arguments(["--rounds", "3", *words])
    inputs = whole_calls.Inputs(library, 1000)
    return whole_calls.measured(library, label, row or library.rows()[label], inputs, options)


@pytest.mark.parametrize("sizes", ["same", "other"])
@pytest.mark.parametrize("library", ["numpy", "cupy"])
def test_a_row_is_measured_and_told(whole_calls, library, sizes, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", Device())
    case = measured(whole_calls, library, "sum", "--sizes", sizes)
    assert case["errors"] == {} and case["ratio"] > 0 and set(case["first"]) == {"cupar", library}
    assert [len(each["samples"]) for each in case["seconds"].values()] == [3, 3]
    whole_calls.print_case(case)
    assert capsys.readouterr().out.split()[:1] == ["sum"]
    found = whole_calls.summaries([case, {"library": library, "exponent": 3, "name": "max", "failure": "no"}])
    assert [each["rows"] for each in found] == [1]
    assert found[0]["geometric_mean"] == pytest.approx(case["ratio"])
    _, panels = whole_calls.panels({"cases": [case], "environment": {"gpu": None}})
    assert [bar.name for panel in panels for bar in panel.bars] == ["sum"]


def test_a_wrong_result_and_an_exception_are_told(whole_calls, capsys):
    wrong = whole_calls.Row(lambda d: d.ids + 1, lambda d: d.ids)
    case = measured(whole_calls, "numpy", "ids", row=wrong)
    assert case["errors"] == {"cupar": math.inf}
    whole_calls.print_case(case)
    assert capsys.readouterr().out.endswith("cupar is off by inf\n")
    rounded = whole_calls.Row(lambda d: d.doubles, lambda d: d.floats, right=lambda d: d.double("doubles"))
    assert set(measured(whole_calls, "numpy", "floats", row=rounded)["errors"]) == {"numpy"}
    case = measured(whole_calls, "numpy", "key", row=whole_calls.Row(lambda d: {}["key"], lambda d: 0))
    assert case["failure"] == "KeyError: 'key'" and "ratio" not in case
    whole_calls.print_case(case)
    assert "KeyError" in capsys.readouterr().out


def test_shorter_inputs_are_prefixes(whole_calls):
    whole = whole_calls.Inputs(whole_calls.library("numpy", False), 1000)
    for number in (1, whole_calls.SIZES - 1):
        inputs = whole.shorter(number)
        assert len(inputs.floats) == inputs.n == 1000 - number
        assert np.shares_memory(inputs.floats, whole.floats)
        assert inputs.places.max() < inputs.n and inputs.keys.max() < inputs.groups
        assert inputs.square.shape != whole.square.shape and inputs.rows.shape != whole.rows.shape
        assert inputs.square.flags.c_contiguous and len(inputs.strided) == inputs.n


@pytest.mark.parametrize("words", [["--sizes", "none"], ["--exponents", "2"], ["--library", "pandas"]])
def test_wrong_arguments_are_refused(whole_calls, words, capsys):
    with pytest.raises(SystemExit):
        whole_calls.arguments(words)
    assert "invalid choice" in capsys.readouterr().err
