"""Launches of programs of `cupar.arrays`, on a fake GPU."""

import gc

import numpy as np
import pytest
from support import cupys
from support.gpu import pretended

import cupar
from cupar import arrays
from cupar._call.joined import JoinedLoaded
from cupar._device import driver, storage
from cupar._program import known as programs

F4 = np.dtype("f4")


@pytest.fixture
def gpu(monkeypatch):
    cupar.cache.clear(disk=False)  # of objects that have loaded their code elsewhere
    found = pretended(monkeypatch)
    monkeypatch.setitem(driver._parts, driver.current_context().number, {})
    found.stream = cupys.pretended(monkeypatch)
    monkeypatch.setattr(driver, "is_plain", lambda stream: True)
    monkeypatch.setattr(storage.Workspace, "grow", lambda self, nbytes: True)
    driver.library().cuMemcpyDtoDAsync_v2 = lambda *_: 0
    driver.library().cuMemcpyHtoDAsync_v2 = lambda *_: 0
    yield found
    programs._KNOWN.clear()
    programs._RECENT.clear()
    cupys.forget()


@pytest.fixture
def calls(gpu, monkeypatch):
    return cupys.Calls(monkeypatch)


def new(*shape, dtype=F4):
    return cupys.ndarray(shape, dtype)


def scaled(a):
    return a * 2


FUNCTIONS = {
    "median": (lambda x: arrays.median(x, keepdims=True), [(1000,)]),
    "quantiles": (lambda x: arrays.quantile(x, [0.1, 0.25, 0.5, 0.9]), [(1000,)]),
    "transform": (lambda x: arrays.transform(scaled, x), [(8, 9)]),
    "concatenate": (lambda *x: arrays.concatenate(x), [(1 + i, 3) for i in range(16)]),
    "columns": (lambda *x: arrays.concatenate(x, axis=1), [(8, 9), (8, 2)]),
}


def made():
    return [each for entry in programs._KNOWN.all().values() for each in entry.programs]


def known(call, given):
    """Make a call until a program makes it, of kernels that are joined: they repeat in the fourth one."""
    for _ in range(4):
        call(*given)
    assert made()


def due(function, inputs, arguments):
    """Have a call traced."""
    for entry in programs._KNOWN.all().values():
        entry.programs = ()
    return call(function, inputs, arguments)


call = programs.call


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_the_traced_call(name, calls, monkeypatch):
    """Addresses are in the same arguments and results, and as far apart in temporaries, or farther."""
    call, shapes = FUNCTIONS[name]
    first, other = ([new(*shape) for shape in shapes] for _ in range(2))
    known(call, first)
    calls.taken()
    with monkeypatch.context() as patched:  # traced again
        patched.setattr(programs, "call", due)
        result = call(*first)
    values, places = calls.taken()
    again = call(*other)
    found, others = calls.taken()
    assert found == values and len(places) == len(others)
    temporaries = {}
    for (one, offset), (its, its_offset) in zip(places, others, strict=True):
        if one is result:
            assert (its is again, its_offset) == (True, offset)
        elif one in first:
            assert (its, its_offset) == (other[first.index(one)], offset)
        else:
            assert its not in (*other, *first, again, result)
            temporaries.setdefault(id(one), (one, its_offset - offset))
            assert temporaries[id(one)][1] == its_offset - offset
    ends = 0
    for one, begin in sorted(temporaries.values(), key=lambda each: each[1]):
        assert begin % 256 == 0 and begin >= ends
        ends = begin + one.nbytes
    assert (again.shape, again.dtype) == (result.shape, result.dtype) and again is not result


def test_several_algorithms_are_one_launch(gpu):
    x, q = new(1000), [0.1, 0.25, 0.5, 0.9]
    known(lambda x: arrays.quantile(x, q), [x])
    for _ in range(3):
        gpu.launched.clear()
        arrays.quantile(x, q)
        assert len(gpu.launched) == 1
    gpu.stream.ptr = 7  # a second executable
    for _ in range(3):
        gpu.launched.clear()
        arrays.quantile(x, q)
        assert len(gpu.launched) == 1


def test_a_captured_stream_gets_kernel_by_kernel(gpu, monkeypatch):
    x = new(1000)
    known(arrays.median, [x])
    gpu.launched.clear()
    monkeypatch.setattr(driver, "stream_number", lambda stream: None if stream in gpu.captured else stream)
    gpu.stream.ptr = 7
    gpu.captured.add(7)
    arrays.median(x)
    assert len(gpu.launched) == 2
    gpu.captured.clear()
    gpu.launched.clear()
    arrays.median(x)
    assert len(gpu.launched) == 1


def test_threads_that_find_no_executable_launch_kernel_by_kernel(gpu):
    x = new(1000)
    known(arrays.median, [x])
    for stream, launches in ((0, 1), (0, 1), (7, 1), (8, 1), (9, 2), (0, 1), (9, 2)):
        gpu.stream.ptr = stream
        gpu.launched.clear()
        arrays.median(x)
        assert len(gpu.launched) == launches


def test_graphs_go_with_the_program(gpu):
    x = new(1000)
    before = len(gpu.graphs)
    arrays.median(x)
    made = len(gpu.graphs) - before
    known(arrays.median, [x])
    arrays.median(x)
    assert any(isinstance(each, JoinedLoaded) for each in gc.get_objects())
    assert len(gpu.graphs) - before == made + 4
    gc.disable()
    try:
        programs._KNOWN.clear()
        programs._RECENT.clear()
        assert len(gpu.graphs) - before == made
    finally:
        gc.enable()


def test_each_current_device_has_programs_of_its_own(gpu, monkeypatch):
    monkeypatch.setattr(driver, "has_several_devices", True)
    monkeypatch.setattr("cupar._device.peers.check_memory", lambda name, address: None)
    x, current = new(1000), driver.current_device()
    known(arrays.median, [x])
    monkeypatch.setattr(driver, "current_device", lambda: driver.Device(1, current.cc))
    for number in (1, 2, 2):
        assert arrays.median(x) is not None
        assert len(made()) == number


def test_an_array_that_is_not_aligned_takes_the_general_path(gpu):
    x, y = new(1000), new(1000)
    known(arrays.median, [x])
    (program,) = made()
    y.data.ptr += 2
    assert program([x], []) not in (None, programs.MISS)
    assert program([y], []) is programs.MISS


def test_one_program_serves_all_sizes(gpu, calls):
    known(arrays.argmax, [new(1000)])
    for n in (1, 7, 999, 100_000):
        calls.taken()
        assert arrays.argmax(new(n)).shape == ()
        assert len(calls.taken()[0]) > 0
    assert len(made()) == 1
