"""The examples run as programs, and their functions give what NumPy gives at other sizes too.

What the pages of the docs say that they print, they print; and so does the tutorial, with each library.
"""

import functools
import importlib.util
import itertools
import re
import runpy
from pathlib import Path

import cupy as cp
import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCS = Path(__file__).parents[2] / "docs"
SIZES = [1, 2, 33, 2048, 100_003]
FOR = {"dask_arrays": "dask.array", "state_space": "torch"}  # examples for a library


@functools.cache
def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_program(path, capsys):
    if path.stem in FOR:
        pytest.importorskip(FOR[path.stem])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed
    page = (DOCS / "examples" / f"{path.stem}.md").read_text()
    if path.stem not in ("quickstart", "state_space"):  # which print times
        assert re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) == [printed]


@pytest.mark.parametrize(("module", "tab"), [("cupy", "CuPy"), ("torch", "PyTorch"), ("numba", "Numba")])
def test_tutorial(module, tab, capsys):
    pytest.importorskip(module)
    text = (DOCS / "tutorial.md").read_text().partition("## What the cache did")[0]
    for title, other in re.findall(r"^:::\{tab-item\} (\w+)\n(.*?)^:::$", text, re.MULTILINE | re.DOTALL):
        if title != tab:
            text = text.replace(other, "")
    namespace = {"__name__": "tutorial"}
    printed = 0
    for language, block in re.findall(r"^```(python|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), namespace)
        else:
            assert capsys.readouterr().out == block
            printed += 1
    assert printed == text.count("\n```text\n") > 0


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@pytest.mark.parametrize("n", SIZES)
def test_moving_average(rng, n, dtype):
    signal = (100 * rng.normal(size=n)).astype(dtype)
    for width in {1, min(7, n), n}:
        means = example("moving_average").moving_average(cp.asarray(signal), width)
        expected = np.convolve(signal, np.full(width, 1 / width), "valid")
        np.testing.assert_allclose(means.get(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [0, -1, 6])
def test_moving_average_of_no_window(width):
    with pytest.raises(ValueError, match=r"^width: expected from 1 to 5, "):
        example("moving_average").moving_average(cp.zeros(5), width)


@pytest.mark.parametrize("n", SIZES)
def test_argmin(rng, n):
    for values in (rng.normal(size=n), rng.integers(0, 3, n), np.full(n, np.inf), np.full(n, -np.inf)):
        values = values.astype(np.float32)
        index, value = example("argmin").argmin(cp.asarray(values))
        assert (index, value) == (np.argmin(values), values.min())


def test_argmin_of_nothing():
    with pytest.raises(ValueError, match="^values: "):
        example("argmin").argmin(cp.empty(0, np.float32))


@pytest.mark.parametrize("dtype", ["i1", "i4", "f8"])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_run_length_encoding(rng, n, dtype):
    for distinct in (1, 2, 100):
        items = rng.integers(0, distinct, n).astype(dtype)
        for items in (items, np.sort(items)):
            values, lengths = example("run_length_encoding").run_length_encode(cp.asarray(items))
            starts = [i for i, item in enumerate(items) if i == 0 or item != items[i - 1]]
            np.testing.assert_array_equal(values.get(), items[starts] if n else [])
            np.testing.assert_array_equal(lengths.get(), np.diff([*starts, n]))


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_top_k(rng, n, dtype):
    items = (50 + 10 * rng.normal(size=n)).astype(dtype)  # of which some are equal
    for k in {0, min(10, n), n}:
        largest, indices = example("top_k").top_k(cp.asarray(items), k)
        expected = np.argsort(-items.astype(np.float64), kind="stable")[:k]
        np.testing.assert_array_equal(indices.get(), expected)
        np.testing.assert_array_equal(largest.get(), items[expected])


def test_top_k_of_too_few():
    with pytest.raises(ValueError, match="^k: "):
        example("top_k").top_k(cp.zeros(3), 4)


@pytest.mark.parametrize("dtype", ["i8", "f8"])
@pytest.mark.parametrize("offset_dtype", ["i4", "i8"])
@pytest.mark.parametrize("segments", [0, 1, 100, 5000])
def test_segmented_sums(rng, segments, offset_dtype, dtype):
    items = rng.integers(-100, 100, 10_000).astype(dtype)
    offsets = np.sort(rng.integers(0, len(items), segments + 1, endpoint=True)).astype(offset_dtype)
    sums = example("segmented_sums").segmented_sums(cp.asarray(items), cp.asarray(offsets))
    expected = [items[start:end].sum() for start, end in itertools.pairwise(offsets)]
    np.testing.assert_array_equal(sums.get(), expected)


@pytest.mark.parametrize("shape", [(1, 1), (1, 1000), (1000, 1), (33, 65), (300, 2049), (5, 0), (0, 5)])
def test_row_sums(rng, shape):
    matrix = rng.integers(-100, 100, shape).astype(np.int32)
    sums = example("segmented_sums").row_sums(cp.asarray(matrix))
    np.testing.assert_array_equal(sums.get(), matrix.sum(axis=1))


@pytest.mark.parametrize("bins", [1, 256, 257, 1024])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_histogram(rng, n, bins):
    lower, upper = 0, 257 if bins == 257 else 256  # so that all levels are exact
    samples = (rng.integers(-20, 300, n) + 0.5).astype(np.float32)
    counts = example("histogram").histogram(cp.asarray(samples), bins, lower, upper)
    np.testing.assert_array_equal(counts.get(), np.histogram(samples, bins, (lower, upper))[0])


@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
@pytest.mark.parametrize("n", [0, *SIZES])
def test_filtering(rng, n, dtype):
    items = (2 * rng.normal(size=n)).astype(dtype)
    filtering, d_items = example("filtering"), cp.asarray(items)
    far = np.flatnonzero(np.abs(items) > filtering.LIMIT)
    np.testing.assert_array_equal(filtering.far_items(d_items).get(), items[far])
    kept, indices = filtering.far_items_with_indices(d_items)
    np.testing.assert_array_equal(kept.get(), items[far])
    np.testing.assert_array_equal(indices.get(), far)


@pytest.mark.parametrize("n", [0, *SIZES])
def test_peaks(rng, n):
    for signal in (rng.normal(size=n), rng.permutation(n).astype(np.float64), np.zeros(n)):
        found = example("filtering").peaks(cp.asarray(signal))
        middle = signal[1:-1]
        expected = 1 + np.flatnonzero((signal[:-2] < middle) & (middle > signal[2:]))
        np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("n", SIZES)
def test_heat(rng, n):
    cells = rng.uniform(1, 100, n)
    d_cells = cp.asarray(cells)
    history = example("heat").heat(d_cells, 5, 0.2).get()
    for largest in history:
        for _ in range(2):
            cells = cells + 0.2 * (np.roll(cells, 1) + np.roll(cells, -1) - 2 * cells)
        np.testing.assert_allclose(largest, cells.max(), rtol=1e-12)
    np.testing.assert_allclose(d_cells.get(), cells, rtol=1e-12)


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("f8", "f4"), ("i4", "u1")])
@pytest.mark.parametrize("n", SIZES)
def test_weighted_mean(rng, n, dtypes):
    values = (100 + 10 * rng.normal(size=n)).astype(dtypes[0])
    weights = rng.uniform(1, 100, n).astype(dtypes[1])
    mean = example("weighted_mean").weighted_mean(cp.asarray(values), cp.asarray(weights))
    expected = np.average(values.astype("f8"), weights=weights.astype("f8"))
    np.testing.assert_allclose(mean.get(), [expected], rtol=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_monte_carlo(n):
    module = example("monte_carlo")
    assert module.pi(n, seed=n) == module.expected(n, seed=n)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (3, 3), (33, 65), (300, 7)])
def test_stencil(rng, shape, dtype):
    plate = rng.integers(0, 100, shape).astype(dtype)
    expected = plate.astype("f8")
    for _ in range(5):
        inner = expected[1:-1, 1:-1]
        around = expected[:-2, 1:-1] + expected[2:, 1:-1] + expected[1:-1, :-2] + expected[1:-1, 2:]
        expected[1:-1, 1:-1] = inner + 0.1 * (around - 4 * inner)
    d_plate = cp.asarray(plate)
    found = example("stencil").heat(d_plate, 5, 0.1)
    np.testing.assert_allclose(found.get(), expected, rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal(d_plate.get(), plate)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 2, 2)])
def test_stencil_of_no_plate(shape):
    with pytest.raises(ValueError, match=r"^plate: expected two dimensions, got \("):
        example("stencil").heat(cp.zeros(shape), 1)
