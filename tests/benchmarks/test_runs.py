"""What runs.py compares results with, how it calls, and what it says of it: with NumPy for CuPy."""

import importlib
import json
from ctypes import c_void_p
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.numpy_as_cupy import Device

ROOT = Path(__file__).resolve().parent.parent.parent
EXPONENT = 14
BY_KEY = ("reduce", "inclusive", "exclusive", "encode")


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("runs")


@pytest.fixture(params=[4, 64, 4096])
def data(runs, request):
    return runs.Runs(Device(), None, EXPONENT, request.param)


@pytest.fixture
def keys(runs):
    found = runs.Keys(Device(), None, EXPONENT)
    found.keys[:] = np.trunc(found.keys / 2**14)  # so that many are equal
    return found


def solve(data, what):
    """Write what is right, found run by run."""
    parts = np.split(np.arange(data.n), np.flatnonzero(np.diff(data.keys)) + 1)
    for number, part in enumerate(parts):
        data.unique[number] = data.keys[part[0]]
        sums = data.values[part].cumsum()
        if what == "reduce":
            data.out[number] = sums[-1]
        elif what == "encode":
            data.out.view("i4")[number] = len(part)
        else:
            data.out[part] = sums if what == "inclusive" else sums - data.values[part]
    data.counted[0] = len(parts)


def largest(keys, size, k):
    """Return the largest k of each row of so many, the first of equal ones, and where they are."""
    matrix = keys.keys.reshape(-1, size)
    inside = np.argsort(-matrix, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(matrix, inside, 1), inside + np.arange(len(matrix))[:, None] * size


def test_runs_have_about_the_length_that_is_asked_for(data):
    assert data.num_runs == len(np.unique(data.keys)) == data.keys[-1] + 1
    few = 4 * np.sqrt(data.n / data.mean)
    assert abs(data.num_runs - data.n / data.mean) < few + 1


@pytest.mark.parametrize("what", BY_KEY)
def test_what_is_wrong_of_runs_is_seen(data, what):
    solve(data, what)
    assert data.is_right(what)
    last = data.num_runs - 1
    outputs = {"out": (0, last if what in ("reduce", "encode") else data.n - 1)}
    if what in ("reduce", "encode"):
        outputs |= {"unique": (0, last), "counted": (0,)}
    for name, places in outputs.items():
        for place in places:
            getattr(data, name)[place] += 1 if name != "out" or what != "encode" else np.float32(1)
            assert not data.is_right(what), (name, place)
            solve(data, what)


@pytest.mark.parametrize(
    ("size", "k"), [(1 << EXPONENT, 1), (1 << EXPONENT, 1000), (64, 1), (64, 8), (64, 64)]
)
def test_what_is_wrong_of_the_largest_is_seen(keys, size, k):
    found, places = largest(keys, size, k)
    assert keys.is_right(size, found, places)
    for wrong in (size, -size, 1):  # of another row or none, or another item
        other = places.copy()
        other[-1, -1] += wrong
        assert not keys.is_right(size, found, other)
    other = found.copy()
    other[0, 0] += 1
    assert not keys.is_right(size, other, places)
    if k > 1:
        assert not keys.is_right(size, found[:, ::-1], places[:, ::-1])
        assert not keys.is_right(size, np.repeat(found[:, :1], k, 1), np.repeat(places[:, :1], k, 1))
    if k < size:  # all but the largest
        others = largest(keys, size, k + 1)
        assert not keys.is_right(size, others[0][:, 1:], others[1][:, 1:])


def test_of_equal_keys_the_first_are_right(keys):
    keys.keys[:] = 1
    assert keys.is_right(64, *largest(keys, 64, 3))
    found, places = largest(keys, 64, 4)
    assert not keys.is_right(64, found[:, 1:], places[:, 1:])


@pytest.mark.parametrize("what", BY_KEY)
def test_both_sides_get_the_same_arrays(runs, what, monkeypatch, capsys):
    data = runs.Runs(Device(), None, EXPONENT, 64)
    monkeypatch.setattr(data, "pointer", lambda array: c_void_p(array.ctypes.data))
    monkeypatch.setattr(data, "copy", lambda nbytes: lambda: None)
    called = []

    def algorithm(temp_storage, num_items, h_init=None, **arrays):
        assert num_items == data.n and (h_init is None) == (what != "exclusive")
        called.append([each.ctypes.data for each in arrays.values()])
        if temp_storage is not None:
            solve(data, what)
        return 10

    def function(temp, size, *given):
        *arrays, n, stream = given
        assert n.value == data.n and not stream.value
        called.append([each.value for each in arrays])
        size._obj.value = 10
        if temp is not None:
            data.out[:] = 0
        return 0

    cub = SimpleNamespace(**{f"cub_{runs.BY_KEY[what]}": function})
    case = runs.ByKey(data, what, algorithm, cub)
    told = runs.told(case, runs.measure(case, 3))
    assert len(told["sides"]["cupar"]["seconds"]["samples"]) == 3
    assert told["sides"]["cupar"]["is_right"] and told["sides"]["CUB"]["is_right"] is False
    assert all(each == called[0] for each in called) and len(set(called[0])) == len(called[0])
    assert told["sides"]["torch"]["is_missing"]
    assert told["goal"] == ("CUB", 0.98) and told["is_reached"]
    assert told["rate"] == pytest.approx(2**EXPONENT / 2e-3 * 1e-9)
    runs.print_told(told)
    line, problem = capsys.readouterr().out.splitlines()
    assert line.split()[:4] == [what, "runs", "of", "64"] and line.endswith("0.98 of CUB")
    assert problem.strip() == "CUB IS WRONG"


def test_cub_that_fails_or_is_not_there_is_told(runs, data, monkeypatch):
    monkeypatch.setattr(data, "pointer", lambda array: c_void_p(array.ctypes.data))
    monkeypatch.setattr(data, "copy", lambda nbytes: lambda: None)
    failing = SimpleNamespace(cub_run_length_encode=lambda *_: 2)
    for cub, is_missing in ((failing, False), (LookupError("there is no nvcc here"), True)):
        case = runs.ByKey(data, "encode", ValueError("no"), cub)
        told = runs.told(case, runs.measure(case, 1))
        assert told["sides"]["cupar"] == {"error": "ValueError: no", "is_missing": False}
        assert told["sides"]["CUB"]["is_missing"] is is_missing
        assert told["is_reached"] is False and told["speed"] == {}


@pytest.mark.parametrize(("what", "size", "k"), [("top", 1 << EXPONENT, 1000), ("top-rows", 1024, 64)])
def test_the_largest_are_asked_for(runs, keys, monkeypatch, what, size, k):
    monkeypatch.setattr(keys, "copy", lambda nbytes: lambda: None)
    asked = {"num_items": 1 << EXPONENT, "k": k}
    if what == "top-rows":
        asked |= {"num_segments": (1 << EXPONENT) // 1024, "segment_size": 1024}

    def algorithm(temp_storage, d_in_keys, d_in_values, d_out_keys, d_out_values, **numbers):
        assert d_in_keys is keys.keys and numbers == asked
        if temp_storage is not None:
            found, places = largest(keys, size, k)
            d_out_keys[:], d_out_values[:] = found.reshape(-1), places.reshape(-1)
        return 10

    case = runs.Cases(Device(), None, EXPONENT, {what: algorithm}, None).make(what, size, k)
    case.gpu = keys
    told = runs.told(case, runs.measure(case, 1))
    assert told["sides"]["cupar"]["is_right"] and told["goal"] is None and told["is_reached"] is None
    assert told["sides"]["CUB"]["is_missing"] and told["sides"]["torch"]["is_missing"]


def test_cases_share_their_data(runs):
    cases = runs.Cases(Device(), None, EXPONENT, dict.fromkeys(runs.WHATS), None)
    assert cases.make("reduce", 4, 0).gpu is (first := cases.make("encode", 4, 0).gpu)
    assert cases.make("reduce", 64, 0).gpu is not first
    assert cases.make("top", 1 << EXPONENT, 10).gpu is cases.make("top-rows", 1024, 8).gpu


def test_what_is_too_small_is_left_out(runs):
    assert len([*runs.names(runs.WHATS, 28)]) == 4 * 3 + 3 + 4
    assert [*runs.names(["top", "top-rows"], EXPONENT)] == [
        ("top", 1 << EXPONENT, 10),
        ("top", 1 << EXPONENT, 1000),
        ("top-rows", 1024, 8),
        ("top-rows", 1024, 64),
    ]


def test_goals_are_of_what_is_measured(runs):
    assert set(runs.GOALS) == set(BY_KEY) <= set(runs.WHATS)
    assert {side for side, _ in runs.GOALS.values()} <= set(runs.SIDES)


@pytest.mark.parametrize(
    "words", [["--only", "sum"], ["--only", ""], ["--exponent", "31"], ["--jobs", "0"], ["--repeats", "0"]]
)
def test_wrong_arguments_are_refused(runs, words, capsys):
    with pytest.raises(SystemExit):
        runs.arguments(words)
    assert "expected" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("what", ["reduce", "inclusive", "exclusive", "encode", "top", "top-rows"])
def test_algorithms_build(runs, what, only):
    if what in ("top", "top-rows"):  # which have most kernels; `tests/gpu` runs them
        only()
    assert runs.of_cupar(what, 90).build.cc == 90


def test_a_table_is_filled_and_written(runs, tmp_path, capsys):
    right, wrong = {"seconds": {"median": 1e-3}, "is_right": True}, {"error": "no", "is_missing": False}
    cases = {
        ("reduce", 4): {"sides": {"cupar": right}, "speed": {"CUB": 1.0}, "goal": ("CUB", 0.98)},
        ("encode", 4): {"sides": {"cupar": wrong}, "speed": {}, "goal": ("CUB", 0.98)},
    }

    def measured(what, size):
        case = {"what": what, "label": "", "rate": 1.0, **cases[what, size]}
        case["is_reached"] = case["speed"].get("CUB", 0) >= 0.98
        runs.print_told(case)
        return case

    options = runs.arguments(["--json", str(tmp_path / "runs.json")])
    start = runs.time.perf_counter()
    with pytest.raises(SystemExit, match="encode 4: cupar: no"):
        runs.TABLE.fill(cases, measured, options, start, {"gpu": None}, cub="none")
    said = capsys.readouterr().out
    assert "goals missed: 1 of 2\nof copy, of CUB, of torch: cupar's speed" in said
    found = json.loads((tmp_path / "runs.json").read_text())
    assert [each["what"] for each in found["cases"]] == ["reduce", "encode"] and found["cub"] == "none"
    runs.TABLE.fill(cases, None, options, start - 100, {"gpu": None})
    assert "skipped after 45 s: reduce 4, encode 4" in capsys.readouterr().out
