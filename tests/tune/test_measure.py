"""Measurements on a fake GPU: its memory is the host's, and its kernels only take time."""

import ctypes

import numpy as np
import pytest
from support.timed_gpu import timed_gpu

import cupar
from cupar._ahead.batch import collected
from cupar._device import driver
from cupar._kernels.tuning import write
from cupar._tune import measure, requests, workloads
from cupar._tune.builds import Candidates, Scratch
from cupar._tune.measure import GPU, DeviceError
from cupar._tune.tune import FailedPolicyError


@pytest.fixture
def gpu(monkeypatch):
    cupar.cache.clear(disk=False)
    yield timed_gpu(monkeypatch)
    cupar.cache.clear(disk=False)


ITEMS = 1 << 12
WORDS = [
    ("reduce_into", "float32"),
    ("inclusive_scan", "float32"),
    ("exclusive_scan", "int16", "int64"),
    ("segmented_reduce", "complex64"),
    ("inclusive_segmented_scan", "int16", "int64"),
    ("segmented_nth_element", "float32"),
    ("segmented_top_k", "int32", "float64"),
    ("top_k", "float32"),
    ("reduce_by_key", "int32", "float32"),
    ("inclusive_scan_by_key", "int64"),
    ("run_length_encode", "float32"),
    ("segmented_sort", "int32"),
    ("radix_sort", "int32", "float64"),
    ("merge_sort", "float16", "int8"),
    ("unary_transform", "float64"),
    ("binary_transform", "int32"),
    ("unique_by_key", "int32", "float32"),
    ("histogram_even", "uint8"),
    ("histogram_even", "float32"),
    ("reduce_by_index", "float32"),
    ("lower_bound", "float32"),
    ("select", "int32"),
    ("find_if", "float32"),
    ("merge", "int32"),
    ("merge", "float32", "int64"),
    ("set_union", "int32"),
    ("set_difference", "float32", "int64"),
    ("inclusive_column_scan", "float32"),
    ("column_reduce", "int16", "int64"),
]


def spec_of(words, has_offsets=False):
    return requests.named(words[0], words[1:], None, has_offsets, 90)


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize("has_offsets", [False, True])
def test_each_algorithm_has_problems_that_it_takes(only, gpu, words, has_offsets):
    """What is bound is what its `run` takes: names, types and sizes are checked there."""
    only()
    if has_offsets and "segmented" not in words[0]:
        pytest.skip("it has no segments")
    spec = spec_of(words, has_offsets)
    with Scratch(1) as scratch:
        bench = GPU(spec, scratch.found, ITEMS, None)
    assert len(bench._sets) == (
        len(workloads.SEGMENTS) if "segmented" in words[0] or "column" in words[0] else 1
    )
    arrays = bench._sets[0].arrays
    assert all(
        np.frombuffer(arrays[name].host().tobytes(), "u1").any()
        for name in arrays
        if "out" not in name and "histogram" not in name
    )


def first_greatest(a, b):
    return a if a[0] >= b[0] else b


def combine(a, b):
    return a[0] * b[0], b[0] * a[1] + b[1]


@pytest.mark.parametrize("name", ["recurrence", "backwards", "argmax"])
def test_iterators_over_arrays_are_made(only, gpu, name):
    """Of scans of tuples, whichever way they go, and of reductions with indices."""
    only()
    f4, pair = np.dtype("f4"), cupar.ZipIterator("f4", "f4")
    indexed = cupar.ZipIterator("f4", cupar.CountingIterator(np.int64(0)))
    backwards = cupar.ReverseIterator(pair)
    (spec,) = collected(
        {
            "recurrence": lambda: cupar.inclusive_scan(
                pair, cupar.TransformOutputIterator(f4, lambda s: s[1], pair.dtype), combine, None
            ),
            "backwards": lambda: cupar.inclusive_scan(backwards, backwards, combine, None),
            "argmax": lambda: cupar.reduce_into(indexed, indexed.dtype, first_greatest, None),
        }[name],
        90,
    )
    with Scratch(1) as scratch:
        bench = GPU(spec, scratch.found, ITEMS, None)
    (own,) = bench._sets
    assert {*own.arrays} == {
        "recurrence": {"d_in.0", "d_in.1", "d_out.0"},
        "backwards": {"d_in.0", "d_in.1", "d_out.0", "d_out.1"},
        "argmax": {"d_in.0", "d_out"},
    }[name]
    assert {*own.outputs} == {each for each in own.arrays if each.startswith("d_out")}


@pytest.fixture(scope="module")
def built():
    """Two candidates, which a process has built: the specialisation, where they are, and their policies."""
    spec = spec_of(("unary_transform", "float32"))
    tunable = spec.family.tunable
    found = [tunable.made(128, 32, 4), tunable.made(512, 64, 4)]
    with Scratch(1) as scratch:
        builder = Candidates(spec, scratch)
        for policy in found:
            builder.submit(policy)
        assert [builder.next(60) for _ in found] == [(policy, "") for policy in found]
        yield spec, scratch, found


@pytest.fixture
def bench(gpu, built):
    """A bench with the two candidates, of which the second one is quicker."""
    spec, scratch, found = built
    made = GPU(spec, scratch.found, ITEMS, None)
    loaded = len(gpu.loaded)  # what comes next is the first candidate
    gpu.seconds.update({loaded: 2e-3, loaded + 1: 5e-4})
    return made, found


def test_turns_are_taken_with_the_default(gpu, bench):
    made, found = bench
    before = len(gpu.launched)
    (slower,) = made.turns(found[0], 5, False)
    assert (slower.before, slower.after) == (pytest.approx([1e-3] * 5), pytest.approx([2e-3] * 5))
    last = gpu.launched[before:][-10:]
    assert last[::2] == [last[0]] * 5 and last[1::2] == [last[1]] * 5 and last[0] != last[1]
    (quicker,) = made.turns(found[1], 3, True)
    assert (quicker.ratio, quicker.noise) == (pytest.approx(0.5), pytest.approx(0, abs=1e-9))
    assert len(gpu.memory.events) <= 1  # that of arrays that are lent to calls


def test_short_calls_are_measured_in_batches(gpu, bench):
    made, found = bench
    made._sets[0].seconds = 1e-5
    before = len(gpu.launched)
    made.turns(found[0], 3, False)
    assert len(gpu.launched) - before > 3 * 2 * 30


def test_wrong_results_are_found(gpu, bench, monkeypatch):
    made, (first, second) = bench
    wrong = made._sets[0].right["d_out"]
    monkeypatch.setattr(made, "_differs", lambda found, right: True)  # kernels of its own, which do nothing
    made.turns(first, 1, False)  # they are the same to a person, as floats that were rounded may be
    ctypes.memmove(wrong.address + 8, np.float32(7).tobytes(), 4)
    with pytest.raises(
        FailedPolicyError, match="wrong results: 1 items of d_out differ with 2\\^12 items, the first 2"
    ):
        made.turns(second, 1, False)


def test_what_the_driver_refuses_does_not_run(gpu, bench, monkeypatch):
    made, (first, second) = bench
    monkeypatch.setattr(driver.library(), "cuGraphLaunch", lambda *given: 701)
    with pytest.raises(FailedPolicyError, match="does not run: cuGraphLaunch: 701"):
        made.turns(first, 1, False)
    gpu.memory.status = 700  # as after an illegal address: no call of this context works any more
    with pytest.raises(DeviceError, match=write(second)):
        made.turns(second, 1, False)


def test_a_gpu_that_hangs_is_not_waited_for(gpu, bench, monkeypatch):
    made, (first, _) = bench
    monkeypatch.setattr(measure, "_HUNG_SECONDS", 0.05)
    gpu.memory.query = 600
    with pytest.raises(DeviceError, match="has not ended"):
        made.turns(first, 1, False)


def test_what_was_not_built_does_not_work(gpu, bench):
    made, (first, _) = bench
    with pytest.raises(FailedPolicyError, match="is not in"):
        made.turns(first._replace(threads=1024), 1, False)


# --- Problems --------------------------------------------------------------------------------------------


def test_sums_of_what_is_made_are_exact():
    for kind in ("f2", "f4", "f8", "c8"):
        found = workloads._values(np.dtype(kind), 1 << 20)
        sums = np.cumsum(found.astype("c16"))
        assert np.abs(sums).max() <= 3
        assert len(np.unique(found)) > 1


def test_problems_fit_into_memory():
    spec = spec_of(("inclusive_scan", "float32"))
    large, guard = workloads.workloads(spec, None, None, 1 << 40)
    assert (large.name, guard.name, large.is_guard, guard.is_guard) == (
        "2^28 items",
        "2^20 items",
        False,
        True,
    )
    assert large.nbytes == 3 * 4 * 2**28
    small, _ = workloads.workloads(spec, None, None, 1 << 30)
    assert small.name == "2^26 items"
    with pytest.raises(workloads.UnsuitableError, match="268435456 items take 3221225472 bytes"):
        workloads.workloads(spec, 1 << 28, None, 1 << 30)


def test_what_cannot_be_measured():
    def refused(factory):
        (spec,) = collected(factory, 90)
        with pytest.raises(workloads.UnsuitableError) as error:
            workloads.workloads(spec, None, None, 1 << 40)
        return str(error.value)

    counting = cupar.CountingIterator(np.int32(0))
    plus = cupar.OpKind.PLUS
    assert refused(lambda: cupar.inclusive_scan(counting, "i4", plus)).startswith("d_in: it is an iterator")
    constant = cupar.ZipIterator("i4", cupar.ConstantIterator(np.int32(1)))
    message = refused(lambda: cupar.inclusive_scan(constant, constant.dtype, first_greatest, None))
    assert message.startswith("d_in: it is an iterator")
    offsets = spec_of(("segmented_sort", "int32"), has_offsets=True)
    assert len(workloads.workloads(offsets, 1 << 20, 100, 1 << 40)) == 1
    assert workloads.workloads(offsets, 1 << 20, 100, 1 << 40)[0].name == "1048500 items, 100 a segment"


def test_structs_are_made_field_by_field():
    dtype = np.dtype([("a", "f4"), ("b", "i8", (2,))], align=True)
    found = workloads._fields(dtype, workloads._values)(100)
    assert set(np.unique(found["a"])) == {-1, 1}
    assert len(np.unique(found["b"])) == 200
