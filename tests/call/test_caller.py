"""Calls of values by name, as programs make them: nothing is read."""

import threading

import numpy as np
import pytest
from support import cupys
from support.gpu import pretended

import cupar
from cupar import OpKind
from cupar._call.joined import Joined


@pytest.fixture
def gpu(monkeypatch):
    cupar.cache.clear(disk=False)  # of objects that have loaded their code elsewhere
    pretended(monkeypatch)
    cupys.pretended(monkeypatch)
    yield cupys.Calls(monkeypatch)
    cupys.forget()


def scan_of(x, y):
    return cupar.inclusive_scan(x, y, OpKind.PLUS, np.float32(0), cc="cpu")


def test_a_caller_takes_what_reading_returns():
    x, y = np.arange(1, 4, dtype="f4"), np.zeros(3, "f4")
    scan = scan_of(x, y)
    call = scan.caller("problem", "d_in", "d_out", "init")
    call(None, scan.values_of((x, y, 3, np.float32(2))))
    assert y.tolist() == [3, 5, 8]
    other = np.full(2, 7, "f4")
    call(None, (2, other.ctypes.data, other.ctypes.data, np.float32(1).tobytes()))
    assert other.tolist() == [8, 15]


@pytest.mark.parametrize(
    "names", [(), ("problem",), ("d_in", "d_out", "init"), ("problem", "d_out", "d_in", "init")]
)
def test_other_names_are_refused(names):
    x = np.zeros(3, "f4")
    with pytest.raises(TypeError, match=r"names: inclusive_scan is called by \('problem', 'd_in', 'd_out'"):
        scan_of(x, x).caller(*names)


def test_the_names_of_an_algorithm_of_several_counts_are_of_its_values():
    x, out, ends = np.arange(4, dtype="i4"), np.zeros(2, "i4"), np.array([1, 3, 4])
    sums = cupar.segmented_reduce(x, out, ends, ends, OpKind.PLUS, np.int32(0), cc="cpu")
    arguments = x, out, 2, ends[:-1], ends[1:], np.int32(0)
    call = sums.caller("problem", "d_in", "d_out", "start_offsets_in", "end_offsets_in", "init")
    call(None, sums.values_of(sums.completed(arguments, {})))
    assert out.tolist() == [3, 3]


def test_arguments_are_checked_where_they_are_read():
    x = np.arange(3, dtype="f4")
    negate = cupar.unary_transform(x, x, OpKind.NEGATE, cc="cpu")
    assert negate.values_of((x, x, 3)) == (3, x.ctypes.data, x.ctypes.data)
    with pytest.raises(ValueError, match="d_in: needs at least 4 items"):
        negate.values_of((x, x, 4))


def test_threads_share_a_caller():
    size, number = 1000, 8
    x = np.arange(size, dtype="f4")
    results = [np.zeros(size, "f4") for _ in range(number)]
    call = scan_of(x, results[0]).caller("problem", "d_in", "d_out", "init")

    def called(out):
        for _ in range(50):
            out[:] = 0
            call(None, (size, x.ctypes.data, out.ctypes.data, np.float32(0).tobytes()))

    threads = [threading.Thread(target=called, args=(each,)) for each in results]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in results:
        assert np.array_equal(each, np.cumsum(x, dtype="f4"))


def test_on_a_gpu_the_kernels_get_these_values(gpu):
    x, y = cupys.ndarray((8,), np.dtype("f4")), cupys.ndarray((8,), np.dtype("f4"))
    negate = cupar.unary_transform(x, y, OpKind.NEGATE)
    read = negate.values_of((x, y, 8))
    gpu.taken()
    negate.run(x, y, 8)
    given = gpu.taken()
    negate.caller("problem", "d_in", "d_out")(0, read)
    assert gpu.taken() == given
    joined = Joined([(negate, 8), (negate, 8)])
    joined.caller()(0, (0, *read[1:], *read[1:]))
    values, places = gpu.taken()
    assert (values, places) == (given[0] * 2, given[1] * 2)
