"""What segments.py compares results with, and what it says of what it found: with NumPy for CuPy."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from support.numpy_as_cupy import Device

ROOT = Path(__file__).resolve().parent.parent.parent
EXPONENT = 14
MEANS = {"rows": [1, 16, 64], "equal": [2, 1000], "random": [1, 16, 1000], "power": [0]}
LAYOUTS = [(kind, mean) for kind, means in MEANS.items() for mean in means]


@pytest.fixture
def segments(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("segments")


@pytest.fixture
def data(segments):
    return segments.Data(Device(), None, EXPONENT)


def sort(data, given):
    for start, end in zip(given.starts, given.ends, strict=True):
        where = start + np.argsort(data.keys[start:end], kind="stable")
        data.out[start:end], data.out_values[start:end] = data.keys[where], where


@pytest.mark.parametrize(("kind", "mean"), LAYOUTS)
def test_segments_follow_one_another(segments, kind, mean):
    given = segments.layout(np, kind, mean, EXPONENT)
    lengths = given.ends - given.starts
    assert given.starts[0] == 0
    np.testing.assert_array_equal(given.starts[1:], given.ends[:-1])
    assert given.ends[-1] == given.num_items <= 1 << EXPONENT
    assert given.num_segments == len(lengths)
    assert (
        given.longest == lengths.max() <= {"random": 2 * mean, "power": 1 << (EXPONENT - 5)}.get(kind, mean)
    )
    assert kind in ("random", "power") or (lengths == mean).all()


@pytest.mark.parametrize(("kind", "mean"), LAYOUTS)
def test_what_is_wrong_is_seen(segments, data, kind, mean):
    given = segments.layout(np, kind, mean, EXPONENT)
    sums = np.array([data.summed[s:e].sum() for s, e in zip(given.starts, given.ends, strict=True)], "f4")
    assert data.is_right("sum", given, sums)
    sums[-1] += 1
    assert not data.is_right("sum", given, sums)
    for start, end in zip(given.starts, given.ends, strict=True):
        data.out[start:end].view("f4")[:] = data.summed[start:end].cumsum()
    assert data.is_right("scan", given, None)
    data.out[given.num_items - 1] ^= 1
    assert not data.is_right("scan", given, None)
    sort(data, given)
    assert data.is_right("keys", given, None) and data.is_right("pairs", given, None)
    right = data.out.copy(), data.out_values.copy()
    for at in (0, given.num_items - 1):
        data.out[at] ^= 1
        assert not data.is_right("keys", given, None) and not data.is_right("pairs", given, None)
        data.out[:] = right[0]
        data.out_values[at] ^= 1
        assert not data.is_right("pairs", given, None)
        data.out_values[:] = right[1]
    longest = int(np.argmax(given.ends - given.starts))
    if given.longest > 1:  # sorted, but not what it was
        data.out[given.starts[longest] : given.ends[longest]] = data.out[given.starts[longest]]
        assert not data.is_right("keys", given, None)


def test_a_case_is_measured_and_told(segments, data, capsys):
    given = segments.layout(np, "equal", 256, EXPONENT)

    def algorithm(temp_storage, **named):
        assert named["d_in_keys"] is data.keys and named["num_segments"] == given.num_segments
        if temp_storage is not None:
            sort(data, given)
        return 10

    def wrong(temp_storage, **named):
        data.out[:] = 0
        return 10

    found = {("cupar", "keys", True): algorithm, ("cuda.compute", "keys", True): wrong}
    case = segments.Case(data, "keys", given, found)
    case.copy = lambda: lambda: None
    told = segments.told(case, segments.measure(case, 5))
    assert len(told["sides"]["cupar"]["seconds"]["samples"]) == 5
    assert told["sides"]["cupar"]["is_right"] and told["sides"]["cuda.compute"]["is_right"] is False
    assert told["sides"]["torch"]["is_missing"]
    assert told["rate"] == pytest.approx(2**EXPONENT / 2e-3 * 1e-9)
    assert told["speed"] == {"cuda.compute": 1.0, "copy": 1.0}
    assert told["goal"] == ("rate", 65) and told["is_reached"] is False
    segments.print_told(told)
    line, problem = capsys.readouterr().out.splitlines()
    assert line.split() == [
        "keys",
        "equal",
        "256",
        "2.000",
        "0.0",
        "1.000",
        "1.00",
        "-",
        "65",
        "G/s",
        "missed",
    ]
    assert problem.strip() == "cuda.compute IS WRONG"


def test_one_that_fails_does_not_stop_others(segments, data):
    given = segments.layout(np, "random", 64, EXPONENT)
    case = segments.Case(data, "keys", given, {("cupar", "keys", True): ValueError("no")})
    case.copy = lambda: lambda: None
    told = segments.told(case, segments.measure(case, 1))
    assert told["sides"]["cupar"] == {"error": "ValueError: no", "is_missing": False}
    assert told["goal"] == ("cuda.compute", 3.5) and told["is_reached"] is False and told["speed"] == {}


@pytest.mark.parametrize("kind", ["rows", "equal", "random"])
def test_scans_and_sorts_by_op_are_called(segments, data, kind):
    given = segments.layout(np, kind, 256, EXPONENT)
    bounds = {"start_offsets_in": given.starts, "end_offsets_in": given.ends}
    if kind == "rows":
        bounds = {"start_offsets_in": None, "end_offsets_in": None, "segment_size": 256}

    def scan(temp_storage, d_in, d_out, num_segments, **named):
        assert d_in is data.summed and num_segments == given.num_segments
        assert named == bounds
        if temp_storage is not None:
            for start, end in zip(given.starts, given.ends, strict=True):
                d_out[start:end] = d_in[start:end].cumsum()
        return 10

    def by_op(temp_storage, d_in_values, **named):
        if temp_storage is not None:
            sort(data, given)
        return 10

    for what, algorithm in (("scan", scan), ("keys-by-op", by_op)):
        case = segments.Case(data, what, given, {("cupar", what, kind != "rows"): algorithm})
        case.copy = lambda: lambda: None
        told = segments.told(case, segments.measure(case, 1))
        assert told["sides"]["cupar"]["is_right"], told["sides"]["cupar"]
        assert told["sides"]["cuda.compute"]["is_missing"] and told["sides"]["torch"]["is_missing"]
    goals = {"rows": 0.85, "equal": 0.75, "random": 0.75}
    assert segments.GOALS["scan", kind] == {1024: ("copy", goals[kind])}


def test_sorts_by_op_are_of_rows_and_equal_segments(segments):
    found = [*segments.cases(segments.arguments(["--only", "keys-by-op,scan"]))]
    assert {kind for kind, _, what in found if what == "keys-by-op"} == {"rows", "equal"}
    assert {kind for kind, _, what in found if what == "scan"} == set(segments.LAYOUTS)


@pytest.mark.parametrize(
    "words", [["--only", "sums"], ["--layouts", ""], ["--exponent", "31"], ["--jobs", "0"]]
)
def test_wrong_arguments_are_refused(segments, words, capsys):
    with pytest.raises(SystemExit):
        segments.arguments(words)
    assert "expected" in capsys.readouterr().err
