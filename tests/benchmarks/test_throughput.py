"""What throughput.py compares results with, and what it says of what it found."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
N = 1000


@pytest.fixture
def algorithms(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("_algorithms")


@pytest.fixture
def throughput(algorithms):
    return importlib.import_module("throughput")


class Mix:
    """The one kernel of the data, by NumPy."""

    def __init__(self, *source):
        pass

    def __call__(self, seed, found):
        z = (seed + np.arange(1, found.size + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found[:] = z ^ (z >> np.uint64(31))


def given(algorithms, name, dtype):
    """Return what a row works on, in host memory."""
    cupy = SimpleNamespace(**vars(np))
    cupy.ElementwiseKernel = Mix
    cupy.sort = lambda array: np.sort(array, kind="stable")
    cupy.argsort = lambda array: np.argsort(array, kind="stable")
    with np.errstate(over="ignore"):
        return algorithms.ROWS[name].data(algorithms.Data(cupy), np.dtype(dtype), N)


@pytest.mark.parametrize("dtype", ["float16", "int8", "float32", "int64", "complex64", "complex128"])
def test_sums_are_exact_in_any_order(algorithms, dtype):
    found = given(algorithms, "inclusive_scan", dtype)
    exact = found.inputs["d_in"].astype("c16").cumsum()
    assert np.array_equal(found.expected["d_out"], exact)
    assert exact.real.max() - exact.real.min() <= 127  # which is as large as the sum of neighbours gets
    assert found.inputs["d_in"].dtype == found.expected["d_out"].dtype == dtype
    assert given(algorithms, "reduce_into", dtype).expected["d_out"] == exact[-1]
    before = given(algorithms, "exclusive_scan", dtype).expected["d_out"]
    assert before[0] == 0
    assert np.array_equal(before[1:], exact[:-1])


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_partitions_have_thirds_and_selections_a_half(algorithms, dtype):
    found = given(algorithms, "three_way_partition", dtype)
    keys, (low, high, rest, counts) = found.inputs["d_in"], found.expected.values()
    assert np.array_equal(np.sort(np.concatenate([low, high, rest])), np.sort(keys))
    assert [*counts] == [low.size, high.size]
    assert low.max() < rest.min() <= rest.max() < high.min()
    assert all(0.28 * N < part.size < 0.39 * N for part in (low, high, rest))
    chosen, count = given(algorithms, "select", dtype).expected.values()
    assert count == chosen.size == (keys > 0).sum()
    assert 0.45 * N < chosen.size < 0.55 * N


@pytest.mark.parametrize("dtype", ["int32", "float32", "int64"])
def test_runs_have_four_keys(algorithms, dtype):
    keys = given(algorithms, "unique_by_key", dtype).inputs["d_in_keys"]
    starts = np.flatnonzero(np.diff(keys)) + 1
    assert [*starts] == [*range(4, N, 4)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("histogram_even", "int32"), ("histogram_even_uniform", "uint8"), ("histogram_even_skewed", "uint8")],
)
def test_histograms_are_numpys(algorithms, name, dtype):
    found = given(algorithms, name, dtype)
    levels = algorithms.ROWS[name].others(np.dtype(dtype))
    bounds = levels["h_lower_level"][0], levels["h_upper_level"][0]
    expected, _ = np.histogram(found.inputs["d_samples"], algorithms.BINS, bounds)
    assert np.array_equal(found.expected["d_histogram"], expected)
    assert expected.sum() == N


def test_bytes_are_those_read_and_written(algorithms):
    assert given(algorithms, "inclusive_scan", "float32").nbytes == 8 * N
    assert given(algorithms, "unique_by_key", "int32").nbytes == 8 * N + 8 * N // 4 + 8
    assert given(algorithms, "lower_bound", "float32").nbytes == 16 * N


def test_goals_are_of_rows(algorithms, throughput):
    for name, dtype, exponent, side, _ in throughput.GOALS:
        assert dtype in algorithms.ROWS[name].dtypes
        assert exponent in throughput.SIZES
        assert side in throughput.SIDES


@pytest.mark.parametrize("name", ["sum", "square", "positive", "low"])
def test_operators_are_written_for_each_dtype(algorithms, name):
    ops = {op.name: op for row in algorithms.ROWS.values() for op in row.operators(np.dtype("f4")).values()}
    text = ops[name].cpp(np.dtype("f4"))
    assert "using T = float;" in text
    assert re.search(rf"void bench_{name}\((void\* pointer_\w, )+void\* result\)", text)


@pytest.mark.slow
def test_operators_compile(algorithms):
    from cupar._compile import nvrtc

    made = {
        op.cpp(np.dtype(dtype))
        for row in algorithms.ROWS.values()
        for dtype in row.dtypes
        for op in row.operators(np.dtype(dtype)).values()
        if op.parameters
    }
    assert all(nvrtc.compile_cpp(text, 90) for text in made)


def case(throughput, name, dtype, exponent, **seconds):
    """Return what is told of a case in which each side took so many seconds."""
    sides = {side: {"error": "ImportError: none", "is_missing": True} for side in throughput.SIDES}
    for side, took in seconds.items():
        sides[side] = {"seconds": {"median": took}, "gb_per_second": 1 / took, "is_right": True}
    speeds = {
        side: seconds[side] / seconds["cupar"] if side in seconds and "cupar" in seconds else None
        for side in throughput.SIDES[1:]
    }
    told = {"name": name, "algorithm": name, "dtype": dtype, "exponent": exponent, "bytes": 1e9}
    return {**told, "sides": sides, "speed": speeds}


def test_slower_lines_and_missed_goals_are_told(throughput, capsys):
    names = {"cuda.compute": 1.0, "copy": 0.5}
    cases = [
        case(throughput, "inclusive_scan", "float32", 28, cupar=0.625, **names),
        case(throughput, "reduce_into", "float32", 14, cupar=1.03, **names),
        case(throughput, "select", "float32", 28, **names),
    ]
    throughput.summarize(cases)
    printed = capsys.readouterr().out
    assert throughput.below(cases) == ["reduce_into float32 2^14: 0.971"]
    assert throughput.reached(cases) == [
        ["inclusive_scan float32 2^28", "copy", "0.85", "0.800", "!"],
        ["select float32 2^28", "copy", "0.7", "-", "!"],
        ["reduce_into float32 2^14", "cuda.compute", "1.3", "0.971", "!"],
    ]
    assert "below 0.98 of stock CCCL: 1 of 3" in printed


def test_plots_have_sides_that_are_there(throughput):
    cases = [
        case(
            throughput, "inclusive_scan", "float32", exponent, cupar=1.0, **{"cuda.compute": 2.0, "copy": 0.5}
        )
        for exponent in (10, 28)
    ]
    content = {"cases": cases, "environment": {"gpu": {"name": "GPU"}}}
    title, (bars, lines) = throughput.panels(content)
    assert title.startswith("Throughput, GPU: 2^28")
    assert bars.texts == ["inclusive scan, float32", "2.00"]
    assert lines.curves["cupar"] == [(2.0**10, 0.5), (2.0**28, 0.5)]
    assert lines.curves["PyTorch"] == []


@pytest.mark.parametrize(
    "words", [["--sizes", "29"], ["--only", "sum"], ["--repeats", "3"], ["--dtypes", "uint64"]]
)
def test_arguments_that_ask_for_nothing_are_refused(throughput, words, capsys):
    with pytest.raises(SystemExit):
        throughput.arguments(words)
    assert words[0] in capsys.readouterr().err
