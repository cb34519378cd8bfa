"""Which stream is captured, what becomes of the kernels, and memory for graphs: of a driver that is none."""

import gc
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from support.common import context, pretend

from cupar._call import algorithm as _algorithm
from cupar._call import code as _code
from cupar._call import replays as _replay
from cupar._device import driver, storage, stream_capture

GREEN, OWN, HOME, ELSEWHERE = 500, 600, 0xAAA, 0xBBB
KERNEL, MEMSET = 0, 2
# What the driver refuses while another thread captures, unless its caller is relaxed about that.
UNSAFE = {"cuGreenCtxCreate", "cuStreamBeginCapture_v2", "cuGraphExecDestroy"}
SPEC = SimpleNamespace(cc=90, kind=SimpleNamespace(_native="none"), algorithm="none")
# What is for one thread at a time.
EXCLUSIVE = {
    "cuGreenCtxCreate",
    "cuGreenCtxStreamCreate",
    "cuStreamBeginCapture_v2",
    "cuGraphInstantiateWithFlags",
}


class Library:
    """Captures two kernels and a memset, whatever is enqueued, and gives out numbers as handles."""

    green = ("cuDeviceGetDevResource", "cuDevResourceGenerateDesc", "cuGreenCtxCreate")

    def __init__(self, refuses=(), lacks=()):
        self.refuses, self.lacks, self.asked = refuses, lacks, []
        self.relaxed, self.streams, self.capturing, self.executables = 0, [], [], []
        self.nodes = {11: [KERNEL, ELSEWHERE], 12: [MEMSET, None], 13: [KERNEL, ELSEWHERE]}

    def __getattr__(self, name):
        if name in self.lacks or not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            assert self.relaxed or name not in UNSAFE, name
            assert stream_capture.lock._lock._is_owned() or name not in EXCLUSIVE, name
            self.asked.append(name)
            return 1 if name in self.refuses else getattr(self, f"do_{name}", self.nothing)(*arguments) or 0

        return call

    def nothing(self, *arguments):
        pass

    def do_cuGreenCtxStreamCreate(self, stream, context, flags, priority):
        stream._obj.value = GREEN + self.asked.count("cuGreenCtxStreamCreate")

    def do_cuStreamCreate(self, stream, flags):
        stream._obj.value = OWN

    def do_cuStreamBeginCapture_v2(self, stream, mode):
        is_captured = stream.value in self.capturing
        self.capturing.append(stream.value)
        return is_captured

    def do_cuStreamEndCapture(self, stream, graph):
        self.capturing.remove(stream.value)
        graph._obj.value = 7

    def do_cuCtxGetCurrent(self, context):
        context._obj.value = HOME

    def do_cuGraphGetNodes(self, graph, nodes, count):
        count._obj.value = len(self.nodes)
        if nodes is not None:
            nodes[:] = list(self.nodes)

    def do_cuGraphNodeGetType(self, node, kind):
        kind._obj.value = self.nodes[node.value][0]

    def do_cuGraphKernelNodeGetParams_v2(self, node, details):
        details._obj.context = self.nodes[node.value][1]

    def do_cuGraphKernelNodeSetParams_v2(self, node, details):
        self.nodes[node.value][1] = details._obj.context

    def do_cuGraphInstantiateWithFlags(self, executable, graph, flags):
        executable._obj.value = len(self.asked)
        self.executables.append(len(self.asked))

    def do_cuGraphExecDestroy(self, executable):
        self.executables.remove(executable.value)


@pytest.fixture
def have(monkeypatch):
    def have(library):
        @contextmanager
        def relaxed():
            library.relaxed += 1
            yield
            library.relaxed -= 1

        monkeypatch.setattr(driver, "library", lambda: library)
        pretend(monkeypatch, context())
        monkeypatch.setattr(driver, "relaxed_capture_mode", relaxed)
        monkeypatch.setattr(storage, "scratch", lambda nbytes: 1 << 20)
        monkeypatch.setattr(driver, "_parts", {})
        return library

    return have


@pytest.fixture
def library(have):
    return have(Library())


def contexts(library):
    return [context for kind, context in library.nodes.values() if kind == KERNEL]


# --- Captures ----------------------------------------------------------------------------------------------


def test_on_a_stream_of_a_green_context(library):
    for _ in range(2):
        with stream_capture.capture() as captured:
            assert captured.stream == GREEN + 1
        assert captured.graph.value == 7
    assert library.asked.count("cuGreenCtxCreate") == 1
    assert stream_capture.is_unnoticed()
    assert contexts(library) == [ELSEWHERE] * 2
    captured.to_primary_context()
    assert contexts(library) == [HOME] * 2
    captured.destroy()
    captured.destroy()
    assert library.asked.count("cuGraphDestroy") == 1


without = [{"refuses": [name]} for name in Library.green] + [{"lacks": ["cuGreenCtxStreamCreate"]}]


@pytest.mark.parametrize("without", without)
def test_without_green_contexts(have, without):
    library = have(Library(**without))
    assert not stream_capture.is_unnoticed()
    with stream_capture.capture() as captured:
        assert captured.stream == OWN
    assert library.asked[-1] == "cuStreamDestroy_v2"
    captured.to_primary_context()
    assert contexts(library) == [ELSEWHERE] * 2


def test_in_another_context_than_the_primary(library, monkeypatch):
    monkeypatch.setattr(driver, "current_context", lambda: context(number=5))
    assert not stream_capture.is_unnoticed()
    with stream_capture.capture() as captured:
        assert captured.stream == OWN
    captured.to_primary_context()
    assert contexts(library) == [ELSEWHERE] * 2


def test_what_fails_ends_the_capture(library):
    with pytest.raises(ZeroDivisionError), stream_capture.capture():
        1 / 0
    assert library.asked[-2:] == ["cuStreamEndCapture", "cuGraphDestroy"]
    assert not library.capturing
    assert stream_capture.lock.acquire(blocking=False)
    stream_capture.lock.release()


def test_an_interrupt_as_soon_as_it_has_begun(library, monkeypatch):
    def interrupted(status, call):
        if call == "cuStreamBeginCapture":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver, "check", interrupted)
        with pytest.raises(KeyboardInterrupt), stream_capture.capture():
            pass
    assert not library.capturing


def test_devices_have_their_own(library, monkeypatch):
    made = []
    library.do_cuGreenCtxCreate = lambda context, what, ordinal, flags: made.append(ordinal)
    for ordinal in (0, 1, 1, 0):
        monkeypatch.setattr(driver, "current_context", lambda ordinal=ordinal: context(ordinal))
        with stream_capture.capture() as captured:
            assert captured.stream == GREEN + 1 + ordinal
    assert made == [0, 1]


def test_within_another(library):
    """A finaliser or a signal handler may do anything within a capture."""
    with stream_capture.capture() as outer:
        with stream_capture.capture() as inner:
            assert inner.stream != outer.stream
            assert library.capturing == [outer.stream, inner.stream]
        assert library.capturing == [outer.stream]
    assert outer.graph.value == inner.graph.value == 7


def test_one_thread_at_a_time(library):
    inside, most = [], []

    def capture():
        for _ in range(5):
            with stream_capture.capture():
                inside.append(1)
                time.sleep(0.001)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=capture) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20


# --- Room for graphs ---------------------------------------------------------------------------------------


class Call:
    """Takes down what it launches."""

    native, name, context = None, "a call", context()

    def __init__(self):
        self.graph_pool, self.launched = _replay.GraphPool(self.context), []

    def set(self, bound):
        pass

    def launch(self, address, nbytes, work, stream):
        self.launched.append((work, stream))
        return 0

    def graph(self):
        return _replay._captured(self, (1000,), 0, 0)

    def fixed(self):
        return _replay.Fixed(self, self.graph(), self.graph_pool)

    def forget(self, key, replay):
        self.forgotten = key, replay
        return True


@pytest.fixture
def call(library):
    call = Call()
    fill(call.graph_pool, call)
    return call


def fill(pool, call):
    with stream_capture.lock:
        pool.fill(call.graph())


@pytest.mark.parametrize("refused", [False, True])
def test_graphs_are_brought_home(have, refused):
    """Or they run where they were captured."""
    library = have(Library(refuses=["cuGraphKernelNodeSetParams_v2"] * refused))
    fixed = _replay.fixed_graph(Call(), (1000,), 0, 0)
    assert library.executables == [fixed.executable.value]
    assert contexts(library) == [ELSEWHERE if refused else HOME] * 2


def test_loading_fills_the_graph_pool(library):
    call = Call()
    algorithm = SimpleNamespace(
        _spec=SimpleNamespace(arguments=[]), _needs_storage=False, _sizes=lambda: (1, 9)
    )
    call.iterators = []
    _algorithm.Algorithm._load_kernels(algorithm, call)
    assert call.launched == [(9, GREEN + 1), (1, GREEN + 1)]
    assert len(library.executables) == _replay._POOL_SIZE
    assert contexts(library) == [HOME] * 2
    assert library.asked.count("cuGraphDestroy") == 2


def takes(pool):
    return sum(pool.take() for _ in range(100))


def test_a_graph_is_made_in_the_place_of_another(library, call):
    before = list(library.executables)
    assert len(before) == _replay._POOL_SIZE
    fixed = call.fixed()
    assert library.asked[-2:] == ["cuGraphExecDestroy", "cuGraphInstantiateWithFlags"]
    assert library.executables == [*before[:-1], fixed.executable.value]
    more = [call.fixed() for _ in before[1:]]
    assert len(library.executables) == len(before)
    with pytest.raises(_replay.NotReplayableError, match="graph pool"):
        call.fixed()
    fixed.close()
    fixed.close()
    graphs = library.asked.count("cuGraphDestroy")
    del fixed
    assert library.asked.count("cuGraphDestroy") == graphs
    more.append(call.fixed())
    with pytest.raises(_replay.NotReplayableError, match="graph pool"):
        call.fixed()
    del more
    gc.collect()
    assert not library.executables
    assert takes(call.graph_pool) == _replay._POOL_SIZE


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_graph_that_cannot_be_made_gives_its_memory_back(library, call, monkeypatch, error):
    def fail(graph):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(_replay, "_instantiate", fail)
        with pytest.raises(error):
            call.fixed()
    gc.collect()
    assert takes(call.graph_pool) == _replay._POOL_SIZE


def test_what_is_given_back_is_taken_last(library, call):
    call.fixed().close()
    for left in range(_replay._POOL_SIZE - 1, 0, -1):
        assert len(library.executables) == left
        assert call.graph_pool.take()
    assert not library.executables
    assert call.graph_pool.take()
    assert not call.graph_pool.take()


def test_algorithms_that_are_not_called_take_up_no_more_than_a_few(library):
    """And each has memory all the same, whichever was loaded first."""
    calls = [Call() for _ in range(30)]
    for each in calls:
        fill(each.graph_pool, each)
    assert len(library.executables) == _replay._MOST_SPARE < 30 * _replay._POOL_SIZE
    assert [takes(each.graph_pool) for each in calls[-8:]] == [_replay._POOL_SIZE] * 8
    assert not library.executables
    assert not takes(calls[0].graph_pool)
    another = Call()
    fill(another.graph_pool, another)
    assert takes(calls[0].graph_pool) == _replay._POOL_SIZE
    other_context = Call()
    other_context.graph_pool = _replay.GraphPool(context(number=2))
    fill(other_context.graph_pool, other_context)
    assert not calls[1].graph_pool.take()


def test_memory_of_replays_that_were_given_up_does_not_add_up(library):
    for _ in range(40):
        call = Call()
        fill(call.graph_pool, call)
        call.fixed().close()
        call.graph_pool.close()
    assert not library.executables
    assert len(context().part(_replay._Spares)[3]) <= _replay._MOST_SPARE


def test_the_oldest_is_evicted_whosever_it_is(library, call):
    class Known:
        pass

    pool, owners, replays = call.graph_pool, [Call() for _ in range(4)], [Known() for _ in range(4)]
    for key, (owner, replay) in enumerate(zip(owners, replays, strict=True)):
        pool.note(replay, owner, key)
    del owner, replay
    replays[0] = owners[1] = None  # one that is gone, and one whose call is
    gc.collect()
    pool.evict()
    assert owners[2].forgotten == (2, replays[2])
    for _ in range(100):
        pool.note(Known(), owners[0], 0)
    assert len(pool._taken) <= 2  # or those that come and go would add up
    pool.evict()
    assert owners[3].forgotten == (3, replays[3])
    pool.evict()
    assert not pool._taken


@pytest.mark.parametrize("reason", ["switched off", "no green contexts", "an old driver", "another context"])
def test_no_graph_pool_where_nothing_is_replayed(have, monkeypatch, reason):
    lacks = {"no green contexts": ["cuGreenCtxStreamCreate"], "an old driver": ["cuFuncGetParamInfo"]}
    library = have(Library(lacks=lacks.get(reason, [])))
    if reason == "switched off":
        monkeypatch.setenv("CUPAR_REPLAY", "0")
        monkeypatch.setattr(_replay, "CALLS_BEFORE", _replay._calls_before())
    if reason == "another context":
        monkeypatch.setattr(driver, "current_context", lambda: context(number=5))
    call = Call()
    fill(call.graph_pool, call)
    assert not call.graph_pool.was_filled
    assert not library.executables


def test_the_graph_pool_is_emptied_before_the_code_is_unloaded(library, call, monkeypatch):
    code = _code.Code(SPEC, b"")
    pool = code.graph_pool(context())
    assert pool is code.graph_pool(context())
    assert pool is not code.graph_pool(context(number=2))
    fill(pool, call)
    fill(pool, call)
    assert len(library.executables) == 2 * _replay._POOL_SIZE

    class Unloading(list):
        def append(self, native):
            assert len(library.executables) == _replay._POOL_SIZE
            super().append(native)

    monkeypatch.setattr(_code, "_retired", Unloading())
    code._natives[context()] = "loaded"
    del code, pool
    gc.collect()
    assert _code._retired == ["loaded"]


def test_what_belongs_to_a_context_that_may_be_gone_is_not_touched(library, call, monkeypatch):
    code = _code.Code(SPEC, b"")
    fill(code.graph_pool(context()), call)
    code._natives[context()] = "loaded"
    fixed = call.fixed()
    executables = list(library.executables)
    monkeypatch.setattr(driver, "is_there", lambda context: False)
    monkeypatch.setattr(_code, "_retired", [])
    fixed.close()
    del code, fixed
    gc.collect()
    assert library.executables == executables
    assert not _code._retired


def test_a_forked_process_leaves_the_graph_pool_behind(library, call, monkeypatch):
    code = _code.Code(SPEC, b"")
    fill(code.graph_pool(context()), call)
    fixed = call.fixed()
    executables = list(library.executables)
    driver._parts.clear()  # as a fork does
    code.abandon()
    fixed.abandon()
    assert not code.graph_pool(context()).take()
    fixed.close()
    del code
    gc.collect()
    assert library.executables == executables
