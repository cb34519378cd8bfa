"""What one run records, a later one preloads: all its questions are answered from memory, and rightly."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import cupy as cp
import numpy as np
import cupar

SCALE = 3


@cupar.gpu_struct
class Peak:
    height: np.float32
    place: np.int64


if len(sys.argv) > 1:
    cupar.preload(sys.argv[1])

n = 1000
items = cp.arange(n, dtype=cp.int32)
table = cp.arange(n, dtype=cp.int32) * 2
total, sums, looked_up, peak = cp.zeros(1, "i4"), cp.zeros(n, "i4"), cp.zeros(n, "i4"), cp.zeros(16, "u1")
keys = cp.arange(n, dtype=cp.uint32)[::-1].copy()
sorted_keys = cp.zeros_like(keys)

init, least = np.zeros(1, np.int32), Peak(-1, -1)
scaled = cupar.TransformIterator(items, lambda a: a * SCALE)
pairs = cupar.ZipIterator(cp.asarray([1, 5, 3], cp.float32), cupar.CountingIterator(np.int64(0)))
peaks = peak.view(Peak.dtype)


def higher(a, b):
    return a if a[0] >= b[0] else b


reduction = cupar.reduce_into(scaled, total, lambda a, b: a + b, init)
scan = cupar.inclusive_scan(items, sums, lambda a, b: a if a > b else b, None)
transform = cupar.unary_transform(items, looked_up, lambda a: table[a])
argmax = cupar.reduce_into(pairs, peaks, higher, least)
sort = cupar.radix_sort(keys, sorted_keys, None, None, cupar.SortOrder.ASCENDING)

reduction.run(scaled, total, n, init)
scan.run(items, sums, n, None)
transform.run(items, looked_up, n)
argmax.run(pairs, peaks, 3, least)
sort.run(keys, sorted_keys, None, None, n)

host = np.arange(n)
assert total.get()[0] == SCALE * host.sum()
assert (sums.get() == host).all()
assert (looked_up.get() == 2 * host).all()
assert peak.get().view(Peak.dtype)[0].tolist() == (5, 1)
assert (sorted_keys.get() == host).all()
print(*[each.build.origin for each in (reduction, scan, transform, argmax, sort)])
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))

    def run(*arguments):
        command = [sys.executable, str(script), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "CacheWarning" not in done.stderr
        return done.stdout.split()

    return run


def test_a_run_preloads_what_an_earlier_one_recorded(run, tmp_path, monkeypatch):
    path = str(tmp_path / "asked.jsonl")
    with monkeypatch.context() as recording:
        recording.setenv("CUPAR_RECORD", path)
        first = run()
    assert len(first) == 5
    assert not {"memory", "disk"} & set(first)
    assert run() == ["disk"] * 5
    assert run(path) == ["memory"] * 5


def test_it_builds_what_is_not_in_the_cache(run, tmp_path, monkeypatch):
    path = str(tmp_path / "asked.jsonl")
    monkeypatch.setenv("CUPAR_RECORD", path)
    run()
    monkeypatch.delenv("CUPAR_RECORD")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    assert run(path) == ["memory"] * 5
