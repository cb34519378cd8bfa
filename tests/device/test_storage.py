"""Device memory that streams keep, and its release, with a fake driver."""

import gc
import threading
import weakref
from contextlib import suppress
from types import SimpleNamespace

import pytest
from support.common import context, pretend

import cupar
from cupar._call import bound as _bound
from cupar._call.algorithm import Algorithm
from cupar._device import driver, storage

MIB = 1 << 20
POOL, DEFAULT_POOL = 71, 72


class Library:
    """Allocates memory until it is exhausted, and checks that nothing is freed twice."""

    def __init__(self, size=1 << 40):
        self.size, self.cached, self.asked = size, 0, []
        self.memory = {}  # bytes by address
        self.frees = []  # address and stream; None: freed at once
        self.numbers = {0: 0, 7: 70, 8: 80, 9: 90}  # of streams, by handle
        self.capturing = set()
        self.next = 0

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.asked.append(name)
            return getattr(self, f"do_{name}", lambda *arguments: 0)(*arguments) or 0

        return call

    def do_cuMemPoolCreate(self, pool, properties):
        pool._obj.value = POOL

    def do_cuDeviceGetDefaultMemPool(self, pool, ordinal):
        pool._obj.value = DEFAULT_POOL

    def do_cuMemPoolTrimTo(self, pool, keep):
        assert pool.value == POOL, "this is not cupar's"
        self.cached = 0

    def do_cuMemAllocFromPoolAsync(self, address, nbytes, pool, stream):
        assert (stream.value or 0) not in self.capturing
        return self.allocate(address, nbytes.value)

    def do_cuMemAlloc_v2(self, address, nbytes):
        return self.allocate(address, nbytes.value)

    def allocate(self, address, nbytes):
        if sum(self.memory.values()) + self.cached + nbytes > self.size:
            return 2
        self.next += 1 << 30
        address._obj.value = self.next
        self.memory[self.next] = nbytes
        return 0

    def do_cuMemFreeAsync(self, address, stream):
        stream = stream.value or 0
        assert stream in self.numbers, "its stream is gone"
        assert stream not in self.capturing
        self.cached += self.memory.pop(address.value)
        self.frees.append((address.value, stream))

    def do_cuMemFree_v2(self, address):
        self.cached += self.memory.pop(address.value)
        self.frees.append((address.value, None))

    def do_cuStreamIsCapturing(self, stream, status):
        status._obj.value = stream.value in self.capturing
        return 0 if stream.value in self.numbers else 400

    def do_cuStreamGetId(self, stream, number):
        number._obj.value = self.numbers[stream.value]

    def do_cuStreamCreate(self, stream, flags):
        stream._obj.value = 99
        self.numbers[99] = 990

    def do_cuCtxSynchronize(self):
        return 900 if self.capturing else 0

    def do_cuGetErrorName(self, status, text):
        text._obj.value = b"CUDA_ERROR_%d" % status


@pytest.fixture
def library(monkeypatch):
    library = Library()
    monkeypatch.setattr(driver, "library", lambda: library)
    pretend(monkeypatch, context())
    monkeypatch.setattr(driver, "_parts", {})
    monkeypatch.setattr(driver.this_thread, "streams", {})
    return library


def used(stream, nbytes=MIB, place=None):
    """Return the workspace of a stream that was used a few times."""
    for _ in range(storage._USES_BEFORE_ONE_IS_KEPT + 1):
        found = (
            (place or context()).part(storage.ContextMemory).workspace(stream, driver.stream_number(stream))
        )
    if found is not None and nbytes > found.nbytes:
        assert found.grow(nbytes)
    return found


# --- Given back ----------------------------------------------------------------------------------------


def test_all_is_given_back(library):
    default = context().part(storage.ContextMemory).default
    default.grow(MIB)
    one = used(7)
    address = storage.allocate(MIB, 7)
    storage.retire(address, MIB)
    assert len(library.memory) == 3
    cupar.release_memory()
    assert not library.memory
    assert not library.cached
    assert (address, None) in library.frees
    assert (default.nbytes, one.nbytes) == (0, 0)
    assert used(7) is one
    assert one.nbytes == MIB


def test_nothing_is_given_back_before_the_gpu_is_done(library):
    used(7)
    cupar.release_memory()
    assert library.asked.index("cuCtxSynchronize") < library.asked.index("cuMemFree_v2")


def test_what_cannot_be_given_back_now_is_the_next_time(library):
    used(7)
    library.capturing.add(8)
    with pytest.raises(cupar.DriverError, match="cuCtxSynchronize"):
        cupar.release_memory()
    assert len(library.memory) == 1
    library.capturing.clear()
    cupar.release_memory()
    assert not library.memory


def test_what_is_enqueued_meanwhile_keeps_its_memory(library):
    """Another thread may use a workspace while this one waits for the GPU."""
    mine = used(7)
    library.do_cuCtxSynchronize = lambda: used(7) and 0
    cupar.release_memory()
    assert list(library.memory) == [mine.address]


def test_a_workspace_in_use_is_waited_for(library):
    mine = used(7)
    mine.lock.acquire()
    thread = threading.Thread(target=cupar.release_memory)
    thread.start()
    thread.join(0.05)
    assert mine.address in library.memory
    mine.lock.release()
    thread.join()
    assert not library.memory


# --- Out of memory ---------------------------------------------------------------------------------------


def test_an_allocation_that_fails_takes_what_the_pool_keeps(library):
    library.size = 10 * MIB
    with storage.temporary_storage(6 * MIB, 7):
        pass
    assert library.cached == 6 * MIB
    with storage.temporary_storage(8 * MIB, 7):
        assert library.cached == 0
    with pytest.raises(cupar.DriverError, match="of 11534336 bytes of temporary storage: CUDA_ERROR_2"):
        storage.allocate(11 * MIB, 7)


def test_a_workspace_that_grows_takes_what_it_had(library):
    library.size = 10 * MIB
    mine = used(7, 4 * MIB)
    assert mine.grow(8 * MIB)
    assert list(library.memory.values()) == [8 * MIB]
    with pytest.raises(cupar.DriverError):
        mine.grow(16 * MIB)
    assert (mine.address, mine.nbytes, library.memory) == (0, 0, {})


def test_another_library_may_allocate(library):
    """What a call needs, and the memory lives until all of the call is enqueued."""
    alive = weakref.WeakSet()
    enqueued = []
    state = SimpleNamespace(
        read=lambda arguments: (9, *arguments),
        problem=9,
        nbytes=MIB,
        numbers=(),
        enqueue=lambda read, address, numbers, stream: enqueued.append((address, stream, len(alive))),
    )

    def allocated(nbytes):
        assert nbytes == MIB
        kept = Library()
        alive.add(kept)
        return kept, 1 << 20

    algorithm = SimpleNamespace(_take=lambda stream: (state, []))
    token = storage.allocator.set(allocated)
    try:
        Algorithm._run(algorithm, 7, ())
        assert enqueued == [(1 << 20, 7, 1)]
        assert not alive
        assert not library.memory
        mine = used(7, 4096)
        state.memory, state.stream_number, state.nbytes = context().part(storage.ContextMemory), 70, 4096
        Algorithm._run(algorithm, 7, ())  # which takes no time
        assert enqueued[1:] == [(mine.address, 7, 0)]
    finally:
        storage.allocator.reset(token)


# --- Bounds ----------------------------------------------------------------------------------------------


def test_streams_that_are_gone_do_not_add_up(library):
    for number in range(1000, 1500):
        library.numbers[7] = number  # another stream of the same handle
        mine = used(7, 0)
        if mine is not None:
            mine.grow(32 * MIB)
    assert sum(library.memory.values()) == storage._MOST_BYTES
    assert not library.frees  # for what they ran may run still
    assert len(storage.memory().workspaces) <= 2
    default = context().part(storage.ContextMemory).default
    assert default.grow(MIB)  # whose stream is always there
    cupar.release_memory()
    assert not library.memory
    library.numbers[7] = 2000
    assert used(7).nbytes == MIB


def test_a_workspace_of_too_many_bytes_stays_as_it_is(library):
    library.numbers.update({handle: handle for handle in range(100, 104)})
    for handle in range(100, 104):
        used(handle, 64 * MIB)
    one = used(7, 0)
    assert not one.grow(64)
    assert (one.address, one.nbytes) == (0, 0)


# --- Contexts --------------------------------------------------------------------------------------------


def test_contexts_share_nothing(library, monkeypatch):
    one, other = context(), context(number=5)
    first = one.part(storage.ContextMemory).default
    assert one.part(storage.ContextMemory).default is first
    assert other.part(storage.ContextMemory).default is not first
    kept = storage.allocate(1, 0)
    storage.retire(kept, 1)
    pretend(monkeypatch, other)
    storage.allocate(1, 0)
    assert [each.part(storage.ContextMemory).pool().value for each in (one, other)] == [POOL, DEFAULT_POOL]
    library.frees.clear()
    cupar.release_memory()  # of this one alone
    assert kept in library.memory


# --- Bound calls -----------------------------------------------------------------------------------------


def test_what_is_freed_while_its_stream_is_captured_is_given_back(library):
    address, other = storage.allocate(MIB, 7), storage.allocate(MIB, 8)
    library.capturing.add(7)
    storage.free_or_retire(address, MIB, 7)
    storage.free_or_retire(other, MIB, 8)
    assert library.frees == [(other, 8)]
    assert address in library.memory
    library.capturing.clear()
    cupar.release_memory()
    assert address not in library.memory


class Graph:
    handle, nodes = 5, ()

    def __init__(self):
        self.error, self.is_destroyed = None, False

    def destroy(self):
        self.is_destroyed = True
        if self.error:
            raise self.error


@pytest.fixture
def graph(monkeypatch):
    """What the graphs of bound calls are."""
    found = Graph()
    monkeypatch.setattr(_bound, "executable_of", lambda chains: found)
    return found


@pytest.fixture
def algorithm(library, graph):
    """An algorithm without a GPU."""
    chain = SimpleNamespace(filler=lambda executable, nodes: lambda *arguments: None)
    call = SimpleNamespace(read=lambda arguments: arguments, prepare=lambda bound: None, nbytes=MIB)
    call.name, call.take_lent = "reduce_into", lambda: ()
    call.loaded, call.shape, call.numbers = SimpleNamespace(chains={"one": chain}, shape_names=["one"]), 0, ()
    algorithm = cupar.Reduce.__new__(cupar.Reduce)
    algorithm._states, algorithm._source = (), SimpleNamespace(refusal="")
    algorithm._new_state = lambda context, number, stream: call
    algorithm.completed = lambda arguments, named: arguments
    return algorithm


@pytest.fixture
def bound(algorithm):
    """A bound call of it, on stream 7."""
    return algorithm.bind(1000, stream=7)


def test_a_bound_call_frees_its_storage(library, bound, graph):
    assert list(library.memory.values()) == [MIB]
    bound.close()
    bound.close()
    assert graph.is_destroyed
    assert [stream for _, stream in library.frees] == [7]


@pytest.mark.parametrize("trouble", ["captured", "a graph that fails"])
def test_a_bound_call_frees_its_storage_whatever_happens(library, bound, graph, trouble):
    if trouble == "captured":
        library.capturing.add(7)
    else:
        graph.error = RuntimeError("of the driver")
    with suppress(RuntimeError):
        bound.close()
    library.capturing.clear()
    cupar.release_memory()
    assert not library.memory


@pytest.mark.usefixtures("older_are_frozen")
def test_a_bound_call_that_is_collected_asks_nothing_about_a_handle(library, algorithm, bound):
    """Its stream may be gone, and its handle be freed memory."""
    other = algorithm.bind(1000, stream=8)
    library.asked.clear()
    del other
    gc.collect()
    assert "cuStreamIsCapturing" not in library.asked
    assert list(library.memory.values()) == [MIB, MIB]
    cupar.release_memory()
    assert list(library.memory.values()) == [MIB]


class Stream:
    """A stream whose handle is none once it is collected."""

    def __init__(self, library, handle):
        self.ptr, self._library = handle, library

    def __del__(self):
        self._library.numbers.pop(self.ptr, None)
        self._library.asked.append("destroyed")


@pytest.mark.usefixtures("older_are_frozen")
def test_a_bound_call_outlives_its_stream_in_no_collection(library, algorithm):
    """Both in one circle: the storage goes before the stream, in the stream's order."""
    library.asked.clear()
    other = algorithm.bind(1000, stream=Stream(library, 8))
    other.circle = other
    del other
    gc.collect()
    assert [stream for _, stream in library.frees] == [8]
    assert library.asked.index("cuMemFreeAsync") < library.asked.index("destroyed")


def test_a_bound_call_of_a_context_that_may_be_gone_frees_nothing(library, bound, monkeypatch):
    monkeypatch.setattr(driver, "is_there", lambda context: False)
    bound.close()
    assert len(library.memory) == 1
    assert not library.frees


def test_a_call_is_not_bound_on_a_stream_that_is_captured(library, algorithm, bound):
    library.capturing.add(7)
    with pytest.raises(ValueError, match="^stream: it is being captured, and bound calls cannot be"):
        algorithm.bind(1000, stream=7)
    with pytest.raises(ValueError, match="^stream: it is being captured"):
        bound.rebind(2000)
