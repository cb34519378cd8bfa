"""Launches of programs of `cupar.arrays`, on a fake GPU."""

import contextlib
import ctypes
import gc
import struct

import numpy as np
import pytest
from support import cupys
from support.gpu import pretended

import cupar
from cupar import arrays
from cupar._call.joined import JoinedLoaded
from cupar._device import driver, storage
from cupar._functions import libraries
from cupar._program import known as programs
from cupar._program import reads

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
    "strided": (lambda x: arrays.sum(x.every(3)), [(1000,)]),
    "backwards": (lambda x: arrays.argmax(x.every(-2)), [(1000,)]),
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


@pytest.mark.parametrize("call", [arrays.sum, arrays.cumulative_sum, arrays.sort])
def test_a_strided_array_is_copied_in_the_same_launch(call, gpu, calls):
    x = new(1000)
    known(call, [x.every(2)])
    for step in (2, 3, 3, 7, -1, -1, -5, 2, 2):
        calls.taken()
        gpu.launched.clear()
        call(x.every(step))
        values, places = calls.taken()
        assert any(step in words for words in values if isinstance(words, list))
        begin = 0 if step > 0 else x.nbytes - 4
        assert any(array is x and offset == begin for array, offset in places)
    assert len(gpu.launched) == 1
    assert len(made()) <= 2  # strides below 0 have one of their own


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
    assert program.run([x], []) not in (None, programs.GUARD_FAILED)
    assert program.run([y], []) is programs.GUARD_FAILED


def test_one_program_serves_all_sizes(gpu, calls):
    known(arrays.argmax, [new(1000)])
    for n in (1, 7, 999, 100_000):
        calls.taken()
        assert arrays.argmax(new(n)).shape == ()
        assert len(calls.taken()[0]) > 0
    assert len(made()) == 1


@pytest.fixture
def lengths(gpu, monkeypatch):
    """Pinned memory, in which each wait leaves a length of 5, and how many lengths were copied."""
    library, places, copied = driver.library(), [], []

    def allocate(found, size, flags):
        places.append((ctypes.c_int64 * (size.value // 8))())
        found._obj.value = ctypes.addressof(places[-1])
        return 0

    def copy(target, source, size, stream):
        ctypes.c_int64.from_address(target.value).value = 5
        copied.append(source.value)
        return 0

    def wait(stream):
        for each in places:
            each[0] = 5
        return 0

    library.cuMemHostAlloc, library.cuMemcpyDtoHAsync_v2, library.cuStreamSynchronize = allocate, copy, wait
    monkeypatch.setattr(libraries._Cupy, "on", lambda library, stream: contextlib.nullcontext())
    monkeypatch.setattr(cupys.ndarray, "get", lambda array: np.full(array.shape, 5, array.dtype))
    of_first = lambda array, first: cupys.ndarray((first.stop,), array.dtype)
    monkeypatch.setattr(cupys.ndarray, "__getitem__", of_first, raising=False)
    reads._this_thread.__dict__.clear()
    yield places, copied
    reads._this_thread.__dict__.clear()


def test_kernels_write_a_length_to_pinned_memory(gpu, lengths, calls):
    places, copied = lengths
    x = new(1000)
    for _ in range(5):
        copied.clear()
        assert arrays.unique_values(x).shape == (5,)
    assert not copied
    assert len(places) == 1
    address = ctypes.addressof(places[0])
    assert any(struct.pack("Q", address) in each for each in map(as_bytes, calls.values))


def as_bytes(value):
    return struct.pack("Q", value) if isinstance(value, int) else value


def test_a_place_that_may_be_written_to_still_is_not_used_again(gpu, lengths):
    places, _ = lengths
    x = new(1000)
    for _ in range(3):
        arrays.unique_values(x)
    wait = driver.library().cuStreamSynchronize

    def interrupted(stream):
        raise KeyboardInterrupt

    driver.library().cuStreamSynchronize = interrupted
    with pytest.raises(KeyboardInterrupt):
        arrays.unique_values(x)
    driver.library().cuStreamSynchronize = wait
    assert arrays.unique_values(x).shape == (5,)
    assert len(places) == 2
