"""Calls that repeat: what is taken for a value in a kernel's parameters, and which calls are replayed."""

import copy
import ctypes
import gc
import os
import struct
import sys
import threading
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import DeviceArray, context, pretend

import cupar
from cupar._call import algorithm, probe, replays
from cupar._call import code as _code
from cupar._call import written as _written
from cupar._compile import cccl
from cupar._device import driver, stream_capture
from cupar._device import storage as _storage

CC = 90

# --- Values in parameters ----------------------------------------------------------------------------------

addresses = st.integers(1, 1 << 40).map(lambda x: x * 8)
values = st.lists(st.one_of(addresses, st.binary(min_size=1, max_size=24)), min_size=1, max_size=6).map(tuple)


def parameters(layout, given):
    """What a kernel with such a layout gets: values, addresses near them, bytes that are always the same."""
    data = b""
    for kind, which, extra in layout:
        value = given[which % len(given)]
        if kind == "constant":
            data += extra
        elif isinstance(value, bytes):
            data += value
        else:
            data += bytes(-len(data) % 8) + struct.pack("=Q", value + which * 256)
    return data + bytes(-len(data) % 8)


layouts = st.lists(
    st.tuples(st.sampled_from(["value", "value", "constant"]), st.integers(0, 9), st.binary(max_size=12)),
    max_size=10,
)


def kernel(layout, given):
    """A kernel as `patcher` takes it, captured with probe values."""
    firsts, seconds = (probe.probe_values(given, which) for which in (0, 1))
    one, two = parameters(layout, firsts), parameters(layout, seconds)
    memory = (ctypes.c_char * len(one)).from_buffer_copy(one)
    relocations = probe.relocations(one, two, firsts, seconds)
    return SimpleNamespace(memory=memory, relocations=relocations, node="node", details="details")


@given(st.data(), layouts, values)
def test_other_values_are_put_where_they_belong(data, layout, given):
    found, calls = kernel(layout, given), []
    set_values = probe.patcher([found], given, lambda *arguments: calls.append(arguments) or 0)
    assert set_values((None,) * len(given), given)
    assert found.memory.raw == parameters(layout, given)
    other = tuple(
        value + 512 * data.draw(st.integers(0, 1 << 20))
        if isinstance(value, int)
        else data.draw(st.binary(min_size=len(value), max_size=len(value)))
        for value in given
    )
    calls.clear()
    assert set_values(given, other)
    assert found.memory.raw == parameters(layout, other)
    used = {place.source for place in found.relocations}
    changes = any(given[source] != other[source] for source in used)
    assert calls == [("node", "details")] * changes


@given(values, st.data())
def test_addresses_that_are_aligned_otherwise_are_refused(given, data):
    found = kernel([("value", i, b"") for i in range(len(given))], given)
    set_values = probe.patcher([found], given, lambda *arguments: 1 / 0)
    for i, value in enumerate(given):
        if isinstance(value, int):
            for other in (0, value + data.draw(st.integers(1, 511))):
                assert not set_values(given, (*given[:i], other, *given[i + 1 :]))
    assert not set_values(given, (*given, 8))
    assert not set_values(given, given[1:])


@pytest.mark.parametrize(
    "worked_out",
    [
        lambda a, b: a >> 4,
        lambda a, b: a * 2,
        lambda a, b: a & 0xFFFFFFFF,
        lambda a, b: a - b & (1 << 64) - 1,
        lambda a, b: a ^ b,
        min,
        lambda a, b: hash((a, b)) & (1 << 64) - 1,
        *(lambda a, b, size=size: a & -size for size in (1024, 4096, 1 << 20)),
        *(lambda a, b, size=size: a + size - 1 & -size for size in (1024, 4096, 1 << 20)),
        lambda a, b: a + (1 << 40),
    ],
)
def test_what_comes_of_an_address_in_another_way_is_refused(worked_out):
    given = (0x7F00_0000_1200, 0x7F00_1234_5600)
    firsts, seconds = (probe.probe_values(given, which) for which in (0, 1))
    one, two = (struct.pack("=QQ", 5, worked_out(*values)) for values in (firsts, seconds))
    with pytest.raises(probe.NotReplayableError):
        probe.relocations(one, two, firsts, seconds)


def test_what_comes_of_bytes_in_another_way_is_refused():
    given = (b"\x01\x02\x03\x04",)
    firsts, seconds = (probe.probe_values(given, which) for which in (0, 1))
    for change in (lambda x: x[::-1], lambda x: x[:2] + bytes(2), lambda x: x[1:] + x[:1]):
        one, two = (bytes(4) + change(values[0]) for values in (firsts, seconds))
        with pytest.raises(probe.NotReplayableError):
            probe.relocations(one, two, firsts, seconds)


@given(values)
def test_made_up_values(given):
    firsts, seconds = (probe.probe_values(given, which) for which in (0, 1))
    for value, first, second in zip(given, firsts, seconds, strict=True):
        if isinstance(value, bytes):
            assert len(first) == len(second) == len(value)
            assert all(a != b for a, b in zip(first, second, strict=True))
        else:
            assert first != second
            assert (first ^ value) & 511 == (second ^ value) & 511 == 0
            assert max(first, second) < 1 << 47  # what a GPU's address may be
    assert len({*firsts, *seconds}) == 2 * len(given)


# --- Which calls are replayed ------------------------------------------------------------------------------


class Replay(replays.Replay):
    """One without a GPU."""

    def __init__(self, bound, address, needed, stream, pool):
        self.first, self.needed, self.is_stale = (bound, address), needed, False
        self._pool = pool
        lock = threading.Lock()
        self._acquire, self._release = lock.acquire, lock.release
        self.error = 0
        self.number = driver.stream_number(stream)
        self.enqueued, self.fits = [], True
        self._bound, self._address = bound, address
        self.executable = self._stream = None

    def _launch(self, executable, stream):
        self.enqueued.append((self._bound, self._address))
        return self.error

    def set_values(self, bound, address):
        if self.fits:
            self._bound, self._address = bound, address
        return self.fits

    def close(self):
        if self._pool is not None:
            self._pool.give_back()
        self._pool = None


D_IN, D_OUT = DeviceArray(1 << 20), DeviceArray(1 << 21)


def fill_graph_pool(call):
    call.graph_pool._spares().extend([None] * 8)
    call.graph_pool.was_filled = True


@pytest.fixture
def native(monkeypatch):
    native = MagicMock(determinism=1)
    native.compute.return_value = 64
    pretend(monkeypatch, context(cc=CC))
    monkeypatch.setattr(driver, "_parts", {})
    monkeypatch.setattr(cccl, "deserialize", lambda name, blob: native)
    monkeypatch.setattr(cccl, "load", lambda native: 0)
    monkeypatch.setattr(algorithm.Algorithm, "_load_kernels", lambda self, call: fill_graph_pool(call))
    monkeypatch.setattr(replays, "CALLS_BEFORE", 3)
    cupar.cache.clear(disk=False)
    yield native
    cupar.cache.clear(disk=False)  # for it is loaded with what is no code


@pytest.fixture
def made(monkeypatch):
    """What was made to replay calls."""
    made = []

    def make(call, bound, address, needed, stream, pool):
        if not pool.take():
            pool.evict()
            return None
        made.append(Replay(bound, address, needed, stream, pool))
        return made[-1]

    monkeypatch.setattr(replays, "Replay", Replay)
    monkeypatch.setattr(replays, "replay_of", make)
    return made


def reduction():
    return cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc=CC)


STORAGE = DeviceArray(1 << 22, 64, "|u1")


def launches(native):
    """Calls of the bindings with temporary storage."""
    return [each for each in native.compute.call_args_list if each.args[0]]


def test_a_call_is_replayed_once_it_was_made_often(native, made):
    total = reduction()
    for _ in range(3):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert not made
    assert len(launches(native)) == 3
    for init in (7, 8):
        assert total(STORAGE, D_IN, D_OUT, 1000, init) == 64
    (replay,) = made
    assert len(launches(native)) == 3
    assert replay.needed == 64
    bound = (1000, 1 << 20, 1 << 21, b"\x07\0\0\0")
    assert replay.first == (bound, 1 << 22)
    assert replay.enqueued == [replay.first, ((*bound[:3], b"\x08\0\0\0"), 1 << 22)]


def test_the_arguments_of_a_replayed_call_are_checked(native, made):
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    wrong = [
        ((STORAGE, D_IN, D_OUT, 1001, 7), ValueError, "^d_in: needs at least 1001"),
        ((STORAGE, DeviceArray(1 << 20, typestr="<f4"), D_OUT, 1000, 7), TypeError, "^d_in: "),
        ((STORAGE, D_IN, D_OUT, 1000, 0.5), TypeError, "^h_init: "),
        ((STORAGE, D_IN, D_OUT, 1000, None), TypeError, "^h_init: "),
        ((STORAGE, DeviceArray((1 << 20) + 2), D_OUT, 1000, 7), ValueError, "^d_in: .*aligned"),
        ((DeviceArray(0, 0), D_IN, D_OUT, 1000, 7), ValueError, "^temp_storage: needs 64 bytes"),
    ]
    for arguments, error, message in wrong:
        with pytest.raises(error, match=message):
            total(*arguments)
    assert len(made[0].enqueued) == 1


@pytest.mark.parametrize("reason", ["other values", "less storage"])
def test_what_cannot_be_replayed_goes_through_the_bindings(native, made, reason):
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    made[0].fits = reason != "other values"
    storage = DeviceArray(1 << 22, 63, "|u1") if reason == "less storage" else STORAGE
    total(storage, DeviceArray(1 << 23), D_OUT, 1000, 7)
    assert len(made[0].enqueued) == 1
    assert len(launches(native)) == 4
    made[0].fits = True
    total(STORAGE, DeviceArray(1 << 24), D_OUT, 1000, 7)
    assert made[0].enqueued[-1][0][1] == 1 << 24


def test_sizes_in_turns_and_none_twice(native, made):
    total = reduction()
    for _ in range(4):
        for n in (10, 20):
            total(STORAGE, D_IN, D_OUT, n, 7)
    assert [each.first[0][0] for each in made] == [10, 20]
    for n in range(1, 900):
        total(STORAGE, D_IN, D_OUT, n, 7)
    (call,) = total._free[1]
    assert len(call.history) <= _written.MOST_COUNTED + 2
    assert call.replays() == made


def test_the_oldest_makes_room(native, made):
    total = reduction()

    def sizes():
        made.clear()  # so that a call alone has them
        gc.collect()
        return [replay.first[0][0] for replay in total._free[1][0].replays()]

    for n in range(30, 38):  # as many as there is room for
        for _ in range(4):
            total(STORAGE, D_IN, D_OUT, n, 7)
    assert sizes() == [*range(30, 38)]
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 38, 7)
    assert sizes() == [*range(31, 38)]
    for n in (30, 38) * 500:  # neither is tried again so soon
        total(STORAGE, D_IN, D_OUT, n, 7)
    assert sizes() == [*range(31, 38)]
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 39, 7)
    assert sizes() == [*range(31, 38), 39]
    for _ in range(600):
        total(STORAGE, D_IN, D_OUT, 30, 7)  # the pool is empty, and the next time there is
    assert sizes() == [*range(32, 38), 39]
    for _ in range(1100):
        total(STORAGE, D_IN, D_OUT, 30, 7)
    assert sizes() == [30, *range(32, 38), 39]
    other = type(total)(total._source, ())  # with the same code, and so the same graph pool
    for n in (50, 51) * 4:
        other(STORAGE, D_IN, D_OUT, n, 7)
    assert sizes() == [30, *range(33, 38), 39]
    made.clear()
    assert [replay.first[0][0] for replay in other._free[1][0].replays()] == [51]


def test_what_all_threads_know(native, made):
    """What one thread counts and replays, others do, but two never with the same graph at once."""
    total = reduction()
    for k in range(4):  # as if each was made while those before were still in it
        calls = [total._take()[0] for _ in range(k)]
        total(STORAGE, D_IN, D_OUT, 1000, 7)
        total._free[1].extend(calls)
    assert len({id(call) for call in total._free[1]}) == 4
    (replay,) = made
    assert [call.replays() for call in total._free[1]] == [made] * 4
    assert len(launches(native)) == 3
    assert replay._acquire(False)  # by another thread
    total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert len(launches(native)) == 4
    replay._release()
    replay.error = 1
    with pytest.raises(RuntimeError):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    replay.error = 0
    total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert len(replay.enqueued) == 3
    assert len(launches(native)) == 4


def test_only_what_is_known_is_forgotten(native, made):
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    (call,) = total._free[1]
    assert not call.forget(1000, object())
    assert not call.forget(1001, made[0])
    assert call.replays() == made
    assert call.forget(1000, made[0])
    assert not call.replays()


def test_with_an_empty_graph_pool_nothing_is_tried(native, made, monkeypatch):
    monkeypatch.setattr(algorithm.Algorithm, "_load_kernels", lambda self, call: None)
    total = reduction()
    for _ in range(2000):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert not made
    assert len(launches(native)) == 2000


def test_while_another_thread_captures_nothing_is_replayed_yet(native, made):
    total, taken, done = reduction(), threading.Event(), threading.Event()

    def capture():
        with stream_capture.lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=capture)
    thread.start()
    taken.wait()
    for _ in range(7):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    done.set()
    thread.join()
    assert not made
    assert len(launches(native)) == 7
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert len(made) == 1


def test_what_cannot_be_made_is_not_tried_again(native, monkeypatch):
    tried = []
    monkeypatch.setattr(replays, "replay_of", lambda *arguments: tried.append(arguments))
    total = reduction()
    for _ in range(20):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert len(tried) == 1
    assert len(launches(native)) == 20


def test_each_stream_has_its_own(native, made, monkeypatch):
    numbers = {0: 0, 5: 50, 6: 60}
    monkeypatch.setattr(driver, "stream_number", numbers.get)
    total = reduction()
    for _ in range(4):
        for stream in (None, 5, 6):
            total(STORAGE, D_IN, D_OUT, 1000, 7, stream=stream)
    assert [each.number for each in made] == [0, 50, 60]
    numbers[5] = None  # it is being captured
    total(STORAGE, D_IN, D_OUT, 1000, 7, stream=5)
    assert launches(native)[-1].args[-1] == 5
    numbers[5] = 50
    total(STORAGE, D_IN, D_OUT, 1000, 7, stream=5)
    assert len(made[1].enqueued) == 2
    numbers[5] = 51  # another stream, with the handle of one that is gone
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7, stream=5)
    assert len(made[1].enqueued) == 2
    assert len(made) == 3
    total(STORAGE, D_IN, D_OUT, 1000, 7, stream=5)
    assert [each.number for each in made[3:]] == [51]


@pytest.mark.slow
def test_double_buffers_are_neither_replayed_nor_kept(native, made):
    native.compute.return_value = 64, 1
    sort = cupar.radix_sort("i4", "i4", None, None, cupar.SortOrder.ASCENDING, cc=CC)
    for _ in range(6):
        keys = cupar.DoubleBuffer(DeviceArray(1 << 20), DeviceArray(1 << 21))
        sort(STORAGE, keys, None, None, None, 1000)
        assert keys.selector == 1
    (call,) = sort._free[1]
    assert not made
    assert not call.history
    for _ in range(4):
        sort(STORAGE, D_IN, D_OUT, None, None, 1000)
    assert len(made) == 1


def test_without_storage(native, made):
    double = cupar.unary_transform("i4", "i4", lambda a: a * 2, cc=CC)
    for address in (1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 23):
        double(DeviceArray(address), D_OUT, 1000)
    (replay,) = made
    assert replay.first == ((1000, 1 << 20, 1 << 21), 0)
    assert replay.enqueued[-1] == ((1000, 1 << 23, 1 << 21), 0)
    assert native.compute.call_count == 3


@pytest.mark.parametrize(("value", "off"), [("0", True), ("off", True), ("", False), ("1", False)])
def test_it_can_be_switched_off(value, off, monkeypatch):
    monkeypatch.setenv("CUPAR_REPLAY", value)
    assert (replays._calls_before() > 1 << 60) is off


# --- Graphs, of a driver that is none ----------------------------------------------------------------------


class Library:
    """Takes down what is asked of it; `parameters` is what the kernel of each graph was given at last."""

    def __init__(self):
        self.asked, self.graphs, self.parameters, self.fail = [], 0, {}, None

    def __getattr__(self, name):
        def call(*arguments):
            self.asked.append(name)
            if name == self.fail:
                raise KeyboardInterrupt
            if name == "cuGraphInstantiateWithFlags":
                self.graphs += 1
                arguments[0]._obj.value = self.graphs
            elif name == "cuGraphExecKernelNodeSetParams_v2":
                executable, node, _ = arguments
                self.parameters[executable.value] = node.memory.raw[:40]
            return 0

        return call


@pytest.fixture
def library(native, monkeypatch):
    """The bindings launch a kernel with the addresses, the initial value and the number of items."""
    library, launched = Library(), []

    def compute(address, nbytes, d_in, d_out, n, op, init, stream):
        launched.append(struct.pack("=4Q4sI", d_in.state, d_out.state, address, n, bytes(init.state), 0))
        return 64

    class Captured:
        stream, graph = 77, ctypes.c_void_p()

        def to_primary_context(self):
            library.asked.append("to_primary_context")

        def destroy(self):
            library.asked.append("destroy")

    @contextmanager
    def capture():
        captured = Captured()
        yield captured
        captured.graph = ctypes.c_void_p(len(launched))

    def chain(graph, layouts):
        # Behind what is launched: the byte of an object without members, and a number with padding.
        parameters = launched[graph.value - 1] + library.unset(graph.value) + bytes(7)
        parameters += struct.pack("=I", 5) + library.padding(graph.value)
        memory = (ctypes.c_char * len(parameters)).from_buffer_copy(parameters)
        kernel = SimpleNamespace(memory=memory, relocations=[], details=None, shape=library.shape())
        kernel.node, kernel.single_bytes = kernel, [len(launched[0])]
        return [kernel]

    library.shape = lambda: 1
    library.unset, library.padding = lambda graph: b"\0", lambda graph: bytes(4)
    native.compute.side_effect = compute
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(driver, "on", lambda context: nullcontext())
    monkeypatch.setattr(_storage, "allocate", lambda nbytes, stream: 1 << 30)
    monkeypatch.setattr(_storage, "free_or_retire", lambda *storage: library.asked.append("freed"))
    monkeypatch.setattr(driver, "stream_number", {0: 0}.get)
    monkeypatch.setattr(probe, "chain_of", chain)
    monkeypatch.setattr(replays, "_is_possible", lambda: True)
    monkeypatch.setattr(stream_capture, "capture", capture)
    return library


def given(d_in, d_out, address, n, init):
    """What the kernel is given for a call."""
    return struct.pack("=4Q4sI", d_in, d_out, address, n, struct.pack("=i", init), 0)


def test_a_replay_is_given_the_values_of_each_call(native, library):
    total = reduction()
    for k in range(3, 9):
        total(STORAGE, DeviceArray(k << 20), D_OUT, 1000, k)
        total(STORAGE, DeviceArray(k << 20), D_OUT, 1000, k)
    assert library.parameters == {1: given(8 << 20, 1 << 21, 1 << 22, 1000, 8)}
    changes = [name for name in library.asked if name == "cuGraphExecKernelNodeSetParams_v2"]
    assert len(changes) == 5  # once for each that is not like the one before
    assert library.asked.count("cuGraphLaunch") == 12 - 3


def test_other_kernels_for_other_values_are_not_replayed(native, library):
    shapes = iter(range(100))
    library.shape = lambda: next(shapes)
    total = reduction()
    for _ in range(10):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert "cuGraphLaunch" not in library.asked
    assert library.asked.count("destroy") == 4


@pytest.mark.parametrize(("unset", "is_replayed"), [(2, True), (50, True), (1, False)])
def test_bytes_that_nobody_sets(native, library, unset, is_replayed):
    """They are whatever was in memory; if that is 0 or 1, they may be flags."""
    library.unset = lambda graph: bytes([graph % 2 * unset])
    total = reduction()
    for _ in range(10):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert ("cuGraphLaunch" in library.asked) is is_replayed


@pytest.mark.parametrize("error", [RuntimeError("of the driver"), IndexError("of cupar itself")])
def test_whatever_fails_the_call_is_made(native, library, error, monkeypatch):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(probe, "chain_of", fail)
    total = reduction()
    for _ in range(10):
        assert total(STORAGE, D_IN, D_OUT, 1000, 7) == 64
    assert "cuGraphLaunch" not in library.asked
    assert library.asked.count("destroy") == 4


# In the order in which it is captured: with its own values, with others twice, with its own.
@pytest.mark.parametrize(
    ("paddings", "is_replayed"),
    [
        ([b"abcd", b"efgh", b"ijkl", b"mnop"], True),
        ([b"\0bcd", b"\0fgh", b"\0jkl", b"\0nop"], True),
        ([b"\0\0\0\0", b"\0\0\0\0", b"\0\0\0\0", b"mnop"], True),
        ([b"abcd", b"efgh", b"ijkl", b"abcd"], False),  # it may depend on the values
        ([b"abcd", b"ebcd", b"ibcd", b"mbcd"], True),
        ([b"abcd", b"efcd", b"ijcd", b"mbcd"], False),
    ],
)
def test_padding(native, library, paddings, is_replayed):
    captured = iter(paddings)
    library.padding = lambda graph: next(captured)
    total = reduction()
    for _ in range(5):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert ("cuGraphLaunch" in library.asked) is is_replayed


def test_words_that_are_others_each_time_are_no_padding(native, library):
    """They could be addresses of what is made for each call."""
    total = reduction()
    numbers = iter(range(100))
    library.padding = lambda graph: bytes(4) + struct.pack("=Q", 1 << 40 | next(numbers) << 12)
    for _ in range(10):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert "cuGraphLaunch" not in library.asked


def test_what_was_not_replayed_by_chance_is_later(native, library):
    library.unset = lambda graph: bytes([graph % 2])
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    library.unset = lambda graph: b"\1"
    for _ in range(1003):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert "cuGraphLaunch" not in library.asked
    total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert library.asked.count("cuGraphLaunch") == 1


def test_a_bound_call_is_rebound_in_place(native, library):
    total = reduction()
    bound = total.bind(D_IN, D_OUT, 1000, 7)
    assert library.parameters == {1: given(1 << 20, 1 << 21, 1 << 30, 1000, 7)}
    bound.rebind(DeviceArray(1 << 23), D_OUT, 1000, h_init=9)
    bound()
    assert library.parameters == {1: given(1 << 23, 1 << 21, 1 << 30, 1000, 9)}
    bound.rebind(D_IN, D_OUT, 999, 9)  # another graph
    assert library.parameters[2] == given(1 << 20, 1 << 21, 1 << 30, 999, 9)
    assert bound._executable.value == 2
    assert library.asked.count("cuGraphExecDestroy") == 1
    bound.rebind(DeviceArray((1 << 20) + 4), D_OUT, 999, 9)  # aligned otherwise
    assert bound._executable.value == 3
    with pytest.raises(TypeError, match="h_init"):
        bound.rebind(D_IN, D_OUT, 999, None)
    with pytest.raises(TypeError, match="copied"):
        copy.copy(bound)
    bound.close()
    assert library.asked.count("cuGraphExecDestroy") == 3
    with pytest.raises(ValueError, match="closed"):
        bound.rebind(D_IN, D_OUT, 999, 9)


def test_a_rebinding_that_is_interrupted_leaves_nothing_to_launch(native, library):
    total = reduction()
    bound = total.bind(D_IN, D_OUT, 1000, 7)
    library.fail = "cuGraphExecKernelNodeSetParams_v2"
    with pytest.raises(KeyboardInterrupt):
        bound.rebind(DeviceArray(1 << 23), D_OUT, 1000, 7)
    assert not bound._executable
    library.fail = None
    bound.rebind(D_IN, D_OUT, 1000, 7)
    assert bound._executable.value == 1
    assert library.parameters[1] == given(1 << 20, 1 << 21, 1 << 30, 1000, 7)


def test_a_replay_that_is_interrupted_is_given_all_values_again(native, library):
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    library.fail = "cuGraphExecKernelNodeSetParams_v2"
    with pytest.raises(KeyboardInterrupt):
        total(STORAGE, DeviceArray(1 << 23), D_OUT, 1000, 7)
    library.fail = None
    library.parameters.clear()
    total(STORAGE, D_IN, D_OUT, 1000, 7)
    assert library.parameters == {1: given(1 << 20, 1 << 21, 1 << 22, 1000, 7)}


def test_bound_double_buffers_know_where_the_result_is(native, library):
    native.compute.side_effect, native.compute.return_value = None, (64, 1)
    sort = cupar.radix_sort("i4", "i4", None, None, cupar.SortOrder.ASCENDING, cc=CC)
    keys = cupar.DoubleBuffer(DeviceArray(1 << 20), DeviceArray(1 << 21))
    bound = sort.bind(keys, None, None, None, 1000)
    assert keys.selector == 1
    bound.rebind(keys, None, None, None, 1000)  # from the second to the first
    assert keys.selector == 0
    assert type(bound._held.graph) is replays.Fixed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_graphs_of_a_parent_process_are_not_destroyed(native, library):
    total = reduction()
    closed, collected = (total.bind(D_IN, D_OUT, 1000, 7) for _ in range(2))
    asked = {"cuGraphExecDestroy", "destroy", "freed"}
    library.asked.clear()
    pid = os.fork()
    if pid == 0:
        closed.close()
        del collected, total
        cupar.cache.clear(disk=False)
        gc.collect()
        os._exit(len(asked.intersection(library.asked)))
    assert os.waitpid(pid, 0)[1] == 0
    closed.close()
    assert asked <= set(library.asked)


def test_replays_go_with_the_algorithm(native, library):
    total = reduction()
    for _ in range(4):
        total(STORAGE, D_IN, D_OUT, 1000, 7)
    cupar.cache.clear(disk=False)
    gc.collect()
    gc.disable()
    try:
        del total
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            gc.collect()  # without a GIL, functions that `exec` made go no sooner
        assert library.asked.count("cuGraphExecDestroy") == 1
    finally:
        gc.enable()


def test_parameters_that_the_driver_does_not_describe(library):
    for status in (1, 400):  # no such parameter; an invalid handle
        library.cuFuncGetParamInfo = lambda *arguments, status=status: status
        with pytest.raises(probe.NotReplayableError, match="describe"):
            probe._layout(5)
    answers = iter([0, 0, 1])
    library.cuFuncGetParamInfo = lambda *arguments: next(answers)
    assert probe._layout(5) == [(0, 0), (0, 0)]
    answers = iter([0, 700])
    with pytest.raises(probe.NotReplayableError, match="describe"):
        probe._layout(5)


# --- Code that is not needed any more ----------------------------------------------------------------------


def test_code_is_unloaded_where_that_disturbs_no_capture(monkeypatch):
    relaxed, unloaded = [], []

    class Native:
        def __del__(self):
            unloaded.append(bool(relaxed))

    @contextmanager
    def relax():
        relaxed.append(True)
        yield
        relaxed.pop()

    pretend(monkeypatch, context(cc=CC))
    monkeypatch.setattr(driver, "relaxed_capture_mode", relax)
    monkeypatch.setattr(cccl, "deserialize", lambda name, blob: Native())
    monkeypatch.setattr(cccl, "load", lambda native: 0)
    spec, place = SimpleNamespace(cc=CC, kind=SimpleNamespace(_native=""), algorithm=""), context(cc=CC)
    for _ in range(3):
        code = _code.Code(spec, b"")
        code.native(place)
        del code
    assert unloaded == [True, True]
    _code._retired.clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_code_of_a_parent_process_is_not_unloaded(monkeypatch):
    unloaded = []

    class Native:
        def __del__(self):
            unloaded.append(os.getpid())

    pretend(monkeypatch, context(cc=CC))
    monkeypatch.setattr(cccl, "deserialize", lambda name, blob: Native())
    monkeypatch.setattr(cccl, "load", lambda native: 0)
    spec, place = SimpleNamespace(cc=CC, kind=SimpleNamespace(_native=""), algorithm=""), context(cc=CC)
    dropped, kept = _code.Code(spec, b""), _code.Code(spec, b"")
    dropped.native(place)
    kept.native(place)
    del dropped
    pid = os.fork()
    if pid == 0:
        _code.Code(spec, b"").native(place)
        del kept
        gc.collect()
        os._exit(len(unloaded))
    assert os.waitpid(pid, 0)[1] == 0
    _code._retired.clear()
    assert unloaded == [os.getpid()]
    del kept
    _code._retired.clear()
