"""Graphs of cupar's calls, kernels, copies, memsets and host functions; captures by other libraries."""

import gc
import sys
import weakref

import cupy as cp
import cupyx
import numpy as np
import pytest
from numba import cuda as numba_cuda
from support.operators import add, equal, large, less, small

import cupar
from cupar import SortOrder, graph

N = 10_000


@numba_cuda.jit
def scale(x, factor):
    i = numba_cuda.grid(1)
    if i < x.size:
        x[i] *= factor


@pytest.fixture
def stream():
    return cp.cuda.Stream(non_blocking=True)


@pytest.fixture
def launch(stream):
    """Launches a graph and waits until it has run."""

    def run(built):
        cp.cuda.Device().synchronize()  # CuPy filled the arrays on another stream
        built.launch(stream)
        stream.synchronize()

    return run


# --- Each kind of node -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, N, 1 << 22])
@pytest.mark.parametrize("pinned", [False, True])
def test_copies(n, pinned, launch, rng):
    h_in = cupyx.empty_pinned(n, "f4") if pinned else np.empty(n, "f4")
    h_out = cupyx.zeros_pinned(n, "f4") if pinned else np.zeros(n, "f4")
    d_one, d_two = cp.zeros(n, "f4"), cp.zeros(n, "f4")
    built = graph.Graph(graph.copy(d_one, h_in), graph.copy(d_two, d_one), graph.copy(h_out, d_two))
    for _ in range(3):
        h_in[:] = rng.random(n, "f4")
        launch(built)
        np.testing.assert_array_equal(h_out, h_in)
        np.testing.assert_array_equal(d_one.get(), h_in)


def test_copies_between_libraries(launch):
    torch = pytest.importorskip("torch")
    host = np.arange(12, dtype="f8").reshape(3, 4)
    tensor = torch.zeros((3, 4), dtype=torch.float64, device="cuda")
    d_numba = numba_cuda.device_array((3, 4), "f8")
    found = np.zeros((3, 4))
    launch(graph.Graph(graph.copy(tensor, host), graph.copy(d_numba, tensor), graph.copy(found, d_numba)))
    np.testing.assert_array_equal(found, host)
    np.testing.assert_array_equal(tensor.cpu().numpy(), host)


def test_copy_of_nothing(launch):
    launch(graph.Graph(graph.copy(cp.zeros(0, "i4"), np.zeros(0, "i4"))))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("u1", 7), ("?", True), ("i2", -2), ("f2", 1.5), ("f4", -2.5), ("i8", -1), ("f8", 0), ("c16", 0)],
)
def test_memset(dtype, value, launch):
    d = cp.ones(N + 1, dtype)
    launch(graph.Graph(graph.memset(d[:N], value)))
    np.testing.assert_array_equal(d.get()[:N], np.full(N, value, dtype))
    assert d.get()[N] == 1


def test_host_functions(launch):
    heard = []
    built = graph.Graph(graph.host(lambda: heard.append("a")), graph.host(lambda: heard.append("b")))
    launch(built)
    launch(built)
    assert heard == ["a", "b", "a", "b"]


def test_host_function_that_raises(launch, monkeypatch):
    heard = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: heard.append(str(info.exc_value)))
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    d = cp.zeros(10, "i4")
    launch(graph.Graph(graph.host(lambda: 1 / 0, name="bad"), graph.memset(d, 7)))
    assert heard == ["node 'bad': division by zero"]
    assert (d.get() == 7).all()


def test_kernels(stream, launch):
    with stream:
        d_cupy = cp.arange(N, dtype="f4")
    d_numba = numba_cuda.to_device(np.arange(N, dtype="f4"))
    built = graph.Graph(
        graph.kernel(scale, (N + 255) // 256, 256, d_cupy, 3.0),
        graph.kernel(scale, ((N + 127) // 128,), (128,), d_numba, np.float32(0.5)),
    )
    launch(built)
    launch(built)
    np.testing.assert_array_equal(d_cupy.get(), 9 * np.arange(N, dtype="f4"))
    np.testing.assert_array_equal(d_numba.copy_to_host(), np.arange(N, dtype="f4") / 4)


def test_kernel_of_a_given_signature_on_a_tensor(launch):
    torch = pytest.importorskip("torch")

    @numba_cuda.jit("void(float32[::1], float64)")
    def scale_floats(x, factor):
        i = numba_cuda.grid(1)
        if i < x.size:
            x[i] *= factor

    tensor = torch.ones(N, device="cuda")
    launch(graph.Graph(graph.kernel(scale_floats, (N + 255) // 256, 256, tensor, 3.0)))
    assert (tensor.cpu().numpy() == 3).all()


# --- Algorithms of every family --------------------------------------------------------------------------


def reduce_(rng):
    host = rng.integers(-9, 9, N)
    d_in, d_out = cp.asarray(host), cp.zeros(1, "i8")
    arguments = d_in, d_out, N, np.array([5])
    return cupar.reduce_into(d_in, d_out, add, arguments[-1]), arguments, [(d_out, [host.sum() + 5])]


def scan(rng):
    host = rng.integers(-9, 9, N)
    d_in, d_out = cp.asarray(host), cp.zeros(N, "i8")
    arguments = d_in, d_out, N, np.zeros(1, "i8")
    return cupar.inclusive_scan(d_in, d_out, add, arguments[-1]), arguments, [(d_out, np.cumsum(host))]


def segmented_reduce(rng):
    host = rng.integers(-9, 9, N)
    d_in, d_out, bounds = cp.asarray(host), cp.zeros(100, "i8"), cp.arange(0, N + 1, 100)
    arguments = d_in, d_out, 100, bounds[:-1], bounds[1:], np.zeros(1, "i8")
    algorithm = cupar.segmented_reduce(d_in, d_out, bounds, bounds, add, arguments[-1])
    return algorithm, arguments, [(d_out, host.reshape(100, 100).sum(axis=1))]


def unary_transform(rng):
    host = rng.integers(-9, 9, N)
    d_in, d_out = cp.asarray(host), cp.zeros(N, "i8")
    return cupar.unary_transform(d_in, d_out, lambda a: 2 * a), (d_in, d_out, N), [(d_out, 2 * host)]


def binary_transform(rng):
    host = rng.integers(-9, 9, N)
    d_in, d_out = cp.asarray(host), cp.zeros(N, "i8")
    algorithm = cupar.binary_transform(d_in, d_in, d_out, add)
    return algorithm, (d_in, d_in, d_out, N), [(d_out, 2 * host)]


def merge_sort(rng):
    host = rng.permutation(N)
    d_in, d_out = cp.asarray(host), cp.zeros(N, "i8")
    arguments = d_in, None, d_out, None
    return cupar.merge_sort(*arguments, less), (*arguments, N), [(d_out, np.arange(N))]


def radix_sort(rng):
    host = rng.permutation(N)
    d_in, d_out = cp.asarray(host), cp.zeros(N, "i8")
    arguments = d_in, d_out, None, None
    return cupar.radix_sort(*arguments, SortOrder.ASCENDING), (*arguments, N), [(d_out, np.arange(N))]


def segmented_sort(rng):
    host = rng.permutation(N).reshape(10, N // 10)
    d_in, d_out, bounds = cp.asarray(host.ravel()), cp.zeros(N, "i8"), cp.arange(0, N + 1, N // 10)
    algorithm = cupar.segmented_sort(d_in, d_out, None, None, bounds, bounds, SortOrder.ASCENDING)
    arguments = d_in, d_out, None, None, N, 10, bounds[:-1], bounds[1:]
    return algorithm, arguments, [(d_out, np.sort(host, axis=1).ravel())]


def unique_by_key(rng):
    keys = np.repeat(np.arange(N // 10), 10)
    d_keys, d_items = cp.asarray(keys), cp.arange(N)
    d_out_keys, d_out_items, d_count = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(1, "i8")
    arguments = d_keys, d_items, d_out_keys, d_out_items, d_count
    first = np.arange(N // 10)
    results = [(d_out_keys[: N // 10], first), (d_out_items[: N // 10], 10 * first), (d_count, [N // 10])]
    return cupar.unique_by_key(*arguments, equal), (*arguments, N), results


def select(rng):
    host = rng.integers(0, 100, N)
    expected = host[host < 30]
    d_in, d_out, d_count = cp.asarray(host), cp.zeros(len(expected), "i8"), cp.zeros(1, "i8")
    algorithm = cupar.select(d_in, d_out, d_count, small)
    return algorithm, (d_in, d_out, d_count, N), [(d_out, expected), (d_count, [len(expected)])]


def three_way_partition(rng):
    host = rng.integers(0, 100, N)
    parts = host[host < 30], host[host > 60], host[(host >= 30) & (host <= 60)]
    d_in, outputs, d_count = cp.asarray(host), [cp.zeros(N, "i8") for _ in parts], cp.zeros(2, "i8")
    algorithm = cupar.three_way_partition(d_in, *outputs, d_count, small, large)
    results = [(d_out[: len(part)], part) for d_out, part in zip(outputs, parts, strict=True)]
    return algorithm, (d_in, *outputs, d_count, N), [*results, (d_count, [len(parts[0]), len(parts[1])])]


def histogram_even(rng):
    host = rng.integers(0, 100, N).astype("i4")
    d_in, d_out = cp.asarray(host), cp.zeros(100, "i4")
    arguments = d_in, d_out, 101, 0, 100, N
    return cupar.histogram_even(*arguments), arguments, [(d_out, np.bincount(host, minlength=100))]


def lower_bound(rng):
    data, values = np.sort(rng.integers(0, 1000, N)), rng.integers(0, 1000, 100)
    d_data, d_values, d_out = cp.asarray(data), cp.asarray(values), cp.zeros(100, "i8")
    algorithm = cupar.lower_bound(d_data, d_values, d_out)
    return algorithm, (d_data, N, d_values, 100, d_out), [(d_out, np.searchsorted(data, values))]


FAMILIES = [
    reduce_,
    scan,
    segmented_reduce,
    unary_transform,
    binary_transform,
    merge_sort,
    radix_sort,
    segmented_sort,
    unique_by_key,
    select,
    three_way_partition,
    histogram_even,
    lower_bound,
]


def forget(results):
    for found, _ in results:
        found.fill(0)


def check(results):
    cp.cuda.Device().synchronize()
    for found, expected in results:
        np.testing.assert_array_equal(found.get(), expected)


def in_two_phases(algorithm, arguments):
    """What enqueues an algorithm on a stream, with temporary storage that is there already."""
    if algorithm.run.__func__ is type(algorithm).__call__:
        return lambda stream: algorithm(*arguments, stream=stream)
    storage = cp.empty(max(algorithm(None, *arguments), 1), "u1")
    return lambda stream: algorithm(storage, *arguments, stream=stream)


@pytest.mark.parametrize("family", FAMILIES)
def test_calls(family, launch, rng):
    algorithm, arguments, results = family(rng)
    built = graph.Graph(graph.call(algorithm, *arguments))
    for _ in range(2):
        forget(results)
        launch(built)
        check(results)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("phases", [1, 2])
def test_capture_by_cupy(family, phases, stream, rng):
    algorithm, arguments, results = family(rng)
    enqueue = in_two_phases(algorithm, arguments)
    if phases == 1:
        enqueue = lambda stream: algorithm.run(*arguments, stream=stream)
    enqueue(stream)  # so that its kernels are loaded
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        enqueue(stream)
        captured = stream.end_capture()
    for _ in range(2):
        forget(results)
        cp.cuda.Device().synchronize()
        captured.launch(stream)
        check(results)


@pytest.mark.parametrize("family", [reduce_, scan, unary_transform])
def test_capture_by_torch(family, rng):
    torch = pytest.importorskip("torch")
    algorithm, arguments, results = family(rng)
    enqueue = in_two_phases(algorithm, arguments)
    enqueue(None)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        enqueue(torch.cuda.current_stream())
    for _ in range(2):
        forget(results)
        torch.cuda.synchronize()
        captured.replay()
        check(results)


@pytest.mark.parametrize("family", [reduce_, scan, unary_transform])
def test_capture_by_cuda_core(family, rng):
    from cuda.core import Device

    device = Device()
    device.set_current()
    algorithm, arguments, results = family(rng)
    enqueue = in_two_phases(algorithm, arguments)
    builder = device.create_graph_builder().begin_building()
    enqueue(builder)
    algorithm.run(*arguments, stream=builder)
    captured = builder.end_building().complete()
    stream = device.create_stream()
    for _ in range(2):
        forget(results)
        cp.cuda.Device().synchronize()
        captured.launch(stream)
        check(results)
    captured.close()
    builder.close()


def test_capture_on_a_stream_of_numba():
    """numba.cuda captures nothing itself; cuda.core does, and numba's kernel and stream take part."""
    from cuda.core import Device

    device = Device()
    device.set_current()
    d_in, d_out = numba_cuda.to_device(np.arange(N, dtype="i8")), numba_cuda.device_array(1, "i8")
    total = cupar.reduce_into(d_in, d_out, add, 0)
    enqueue = in_two_phases(total, (d_in, d_out, N, 0))
    scale[(N + 255) // 256, 256](d_in, 1)
    enqueue(None)
    numba_cuda.synchronize()
    builder = device.create_graph_builder().begin_building()
    numba_stream = numba_cuda.external_stream(int(builder.stream.handle))
    scale[(N + 255) // 256, 256, numba_stream](d_in, 2)
    enqueue(numba_stream)
    captured = builder.end_building().complete()
    stream = device.create_stream()
    for factor in (2, 4):
        captured.launch(stream)
        stream.sync()
        assert d_out.copy_to_host()[0] == factor * N * (N - 1) // 2


# --- Whole graphs ----------------------------------------------------------------------------------------


def test_pipeline(launch, rng):
    h_in, h_out, h_init = np.zeros(N, "i8"), np.zeros(1, "i8"), np.zeros(1, "i8")
    d_in, d_scan, d_out = cp.zeros(N, "i8"), cp.zeros(N, "i8"), cp.zeros(1, "i8")
    sums = cupar.inclusive_scan(d_in, d_scan, add, h_init)
    total = cupar.reduce_into(d_scan, d_out, add, h_init)
    heard = []
    pipeline = graph.Graph(
        graph.copy(d_in, h_in),
        graph.call(sums, d_in, d_scan, N, h_init),
        graph.kernel(scale, (N + 255) // 256, 256, d_scan, 3),
        graph.call(total, d_scan, d_out, N, h_init),
        graph.copy(h_out, d_out),
        graph.host(lambda: heard.append(int(h_out[0]))),
    )
    expected = []
    for _ in range(5):
        h_in[:] = rng.integers(-100, 100, N)
        launch(pipeline)
        expected.append(3 * int(np.cumsum(h_in).sum()))
    assert heard == expected


def test_diamond(launch, rng):
    host, found = rng.integers(-100, 100, N), np.zeros(N, "i8")
    d_in, d_left, d_right, d_out = (cp.zeros(N, "i8") for _ in range(4))
    double = cupar.unary_transform(d_in, d_left, lambda a: 2 * a)
    square = cupar.unary_transform(d_in, d_right, lambda a: a * a)
    both = cupar.binary_transform(d_left, d_right, d_out, add)
    upload = graph.copy(d_in, host, name="upload", after=())
    left = graph.call(double, d_in, d_left, N, name="left", after=upload)
    right = graph.call(square, d_in, d_right, N, after="upload")
    join = graph.call(both, d_left, d_right, d_out, N, name="join", after=["left", right])
    download = graph.copy(found, d_out, after=join)
    for nodes in ((upload, left, right, join, download), (download, join, right, left, upload)):
        built = graph.Graph(*nodes)
        for _ in range(2):
            host[:] = rng.integers(-100, 100, N)
            launch(built)
            np.testing.assert_array_equal(found, 2 * host + host * host)


def test_cuda_core_has_the_graph():
    from cuda.core.graph import Graph, GraphDefinition

    built = graph.Graph(graph.host(lambda: None), graph.host(lambda: None))
    assert isinstance(built.definition, GraphDefinition)
    assert isinstance(built.executable, Graph)
    assert len(built.definition.nodes()) == 2
    assert len(built.definition.edges()) == 1


def test_launches_on_many_streams():
    from cuda.core import Device

    d = cp.zeros(N, "i4")
    count = cupar.unary_transform(d, d, lambda a: a + 1)
    built = graph.Graph(graph.call(count, d, d, N))
    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    streams = [first, second, first.ptr, numba_cuda.stream(), None, 0, cp.cuda.Stream.null]
    device = Device()
    device.set_current()
    streams.append(device.create_stream())
    cp.cuda.Device().synchronize()
    for stream in 3 * streams:  # one after another, wherever they are launched
        built.launch(stream)
    cp.cuda.Device().synchronize()
    assert (d.get() == 3 * len(streams)).all()
    with pytest.raises(TypeError, match="^stream: "):
        built.launch("0")


def test_launch_on_a_stream_of_torch():
    torch = pytest.importorskip("torch")
    tensor, stream = torch.ones(N, device="cuda"), torch.cuda.Stream()
    double = cupar.unary_transform(tensor, tensor, lambda a: 2 * a)
    built = graph.Graph(graph.call(double, tensor, tensor, N))
    torch.cuda.synchronize()
    built.launch(stream)
    built.launch(stream)
    stream.synchronize()
    assert (tensor.cpu().numpy() == 4).all()


def test_work_is_ordered_by_the_stream(stream):
    big, d_out = cp.zeros(1 << 24, "i4"), cp.zeros(1, "i8")
    h_out = np.zeros(1, "i8")
    total = cupar.reduce_into(big, d_out, add, np.zeros(1, "i8"))
    built = graph.Graph(graph.call(total, big, d_out, 1 << 24, np.zeros(1, "i8")), graph.copy(h_out, d_out))
    cp.cuda.Device().synchronize()
    with stream:
        for value in range(20):
            big.fill(value)
        built.launch(stream)
        big.fill(0)
    stream.synchronize()
    assert h_out[0] == 19 << 24


# --- Updates ---------------------------------------------------------------------------------------------


def test_update_with_other_arrays_is_in_place(launch, rng):
    hosts = [rng.integers(-100, 100, N) for _ in range(3)]
    d_in, d_out = cp.zeros(N, "i8"), cp.zeros(1, "i8")
    h_out = np.zeros(1, "i8")
    total = cupar.reduce_into(d_in, d_out, add, 0)
    built = graph.Graph(
        graph.copy(d_in, hosts[0], name="upload"),
        graph.kernel(scale, (N + 255) // 256, 256, d_in, 2, name="scale"),
        graph.call(total, d_in, d_out, N, 0, name="total"),
        graph.copy(h_out, d_out, name="download"),
    )
    launch(built)
    assert h_out[0] == 2 * hosts[0].sum()
    executable = built.executable

    assert built.update(graph.copy(d_in, hosts[1], name="upload")) is True
    launch(built)
    assert h_out[0] == 2 * hosts[1].sum()

    d_other, d_result, h_result = cp.zeros(N, "i8"), cp.zeros(1, "i8"), np.zeros(1, "i8")
    in_place = built.update(
        graph.copy(d_other, hosts[2], name="upload"),
        graph.kernel(scale, (N + 255) // 256, 256, d_other, 3, name="scale"),
        graph.call(total, d_other, d_result, N, 5, name="total"),
        graph.copy(h_result, d_result, name="download"),
    )
    assert in_place is True
    assert built.executable is executable
    launch(built)
    assert h_result[0] == 3 * hosts[2].sum() + 5
    assert h_out[0] == 2 * hosts[1].sum()


def test_update_with_other_numbers_of_items(launch, rng):
    host = rng.integers(-9, 9, 1 << 22)
    d_in, d_scan, d_out = cp.asarray(host), cp.zeros(len(host), "i8"), cp.zeros(1, "i8")
    sums = cupar.inclusive_scan(d_in, d_scan, add)
    total = cupar.reduce_into(d_in, d_out, add, 0)
    built = graph.Graph(
        graph.call(sums, d_in, d_scan, 100, name="sums"), graph.call(total, d_in, d_out, 100, 0, name="total")
    )
    for n in (100, 101, 1, len(host), 3000, len(host) - 1):
        built.update(
            graph.call(sums, d_in, d_scan, n, name="sums"), graph.call(total, d_in, d_out, n, 0, name="total")
        )
        d_scan.fill(0)
        launch(built)
        assert d_out.get()[0] == host[:n].sum()
        np.testing.assert_array_equal(d_scan.get()[:n], np.cumsum(host[:n]))
        assert not d_scan.get()[n:].any()


def test_no_items(launch, rng):
    """Of which a scan makes nothing at all, and a reduction the initial value."""
    d_in, d_scan, d_out = cp.ones(N, "i8"), cp.zeros(N, "i8"), cp.zeros(1, "i8")
    sums = cupar.inclusive_scan(d_in, d_scan, add)
    total = cupar.reduce_into(d_in, d_out, add, 7)
    built = graph.Graph(
        graph.call(sums, d_in, d_scan, 0, name="sums"), graph.call(total, d_in, d_out, 0, 7, name="total")
    )
    launch(built)
    assert d_out.get()[0] == 7
    assert not d_scan.any()
    built.update(
        graph.call(sums, d_in, d_scan, 9, name="sums"), graph.call(total, d_in, d_out, 9, 7, name="total")
    )
    launch(built)
    assert d_out.get()[0] == 16
    assert d_scan.get()[:10].tolist() == [*range(1, 10), 0]


def test_update_reads_the_host_anew(launch):
    d_in, d_out, h_init = cp.ones(N, "i8"), cp.zeros(1, "i8"), np.array([1])
    total = cupar.reduce_into(d_in, d_out, add, h_init)
    built = graph.Graph(graph.call(total, d_in, d_out, N, h_init))
    h_init[0] = 100
    launch(built)
    assert d_out.get()[0] == N + 1
    assert built.update() is True
    launch(built)
    assert d_out.get()[0] == N + 100


def test_update_of_memsets_and_host_functions(launch):
    heard, d_one, d_two = [], cp.ones(N, "i4"), cp.ones(2 * N, "i4")
    built = graph.Graph(graph.memset(d_one, 0, name="clear"), graph.host(lambda: heard.append(1), name="say"))
    built.update(graph.memset(d_two, 7, name="clear"), graph.host(lambda: heard.append(2), name="say"))
    gc.collect()
    launch(built)
    assert heard == [2]
    assert (d_one.get() == 1).all()
    assert (d_two.get() == 7).all()


def test_update_that_fails_leaves_the_graph_as_it_was(launch):
    d_in, d_out = cp.ones(N, "i8"), cp.zeros(1, "i8")
    total = cupar.reduce_into(d_in, d_out, add, 0)
    built = graph.Graph(graph.call(total, d_in, d_out, N, 0, name="total"))
    with pytest.raises(ValueError, match=f"^node 'total': d_in: needs at least {N + 1} items"):
        built.update(graph.call(total, d_in, d_out, N + 1, 0, name="total"))
    launch(built)
    assert d_out.get()[0] == N


# --- Lives -----------------------------------------------------------------------------------------------


class HostArray(np.ndarray):
    """Can be referred to weakly."""


def test_host_arrays_live_as_long_as_the_graph(launch):
    host = np.arange(N, dtype="f4").view(HostArray)
    is_there = weakref.ref(host)
    d = cp.zeros(N, "f4")
    built = graph.Graph(graph.copy(d, host))
    del host
    gc.collect()
    garbage = [np.full(N, -1, "f4") for _ in range(100)]
    launch(built)
    np.testing.assert_array_equal(d.get(), np.arange(N, dtype="f4"))
    assert is_there() is not None
    built.close()
    assert is_there() is None
    del garbage


def test_device_arrays_live_as_long_as_the_graph(launch):
    d_out, h_out = cp.zeros(1, "i8"), np.zeros(1, "i8")

    def build():
        d_in, d_scan = cp.ones(N, "i8"), cp.zeros(N, "i8")
        sums = cupar.inclusive_scan(d_in, d_scan, add)
        total = cupar.reduce_into(d_scan, d_out, add, 0)
        return graph.Graph(
            graph.call(sums, d_in, d_scan, N),
            graph.call(total, d_scan, d_out, N, 0),
            graph.copy(h_out, d_out),
        )

    built = build()
    gc.collect()
    cp.get_default_memory_pool().free_all_blocks()
    garbage = [cp.full(N, -1, "i8") for _ in range(100)]
    launch(built)
    assert h_out[0] == N * (N + 1) // 2
    del garbage


def test_arrays_outlive_the_graph(launch):
    d_in, d_out = cp.ones(N, "i8"), cp.zeros(1, "i8")
    total = cupar.reduce_into(d_in, d_out, add, 0)
    node = graph.call(total, d_in, d_out, N, 0)
    with graph.Graph(node) as built:
        launch(built)
    d_in.fill(2)
    total.run(d_in, d_out, N, 0)
    assert d_out.get()[0] == 2 * N
    d_in.fill(3)
    launch(graph.Graph(node))
    assert d_out.get()[0] == 3 * N
    with pytest.raises(RuntimeError, match="closed"):
        built.launch()


def test_graphs_may_go_away_while_they_run(stream):
    big, d_out = cp.ones(1 << 26, "i4"), cp.zeros(1, "i8")
    total = cupar.reduce_into(big, d_out, add, np.zeros(1, "i8"))
    for value in (1, 2):
        big.fill(value)
        cp.cuda.Device().synchronize()
        built = graph.Graph(graph.call(total, big, d_out, 1 << 26, np.zeros(1, "i8")))
        built.launch(stream)
        if value == 1:
            built.close()
        del built
        garbage = cp.full(1 << 24, -1, "i4")
        stream.synchronize()
        assert d_out.get()[0] == value << 26
        del garbage


# --- Errors ----------------------------------------------------------------------------------------------


def test_errors_name_the_node(launch):
    d, d_out = cp.ones(N, "i8"), cp.zeros(1, "i8")
    total = cupar.reduce_into(d, d_out, add, 0)
    double = cupar.unary_transform(d, d, lambda a: a + a)
    good = graph.call(total, d, d_out, N, 0, name="good")
    cases = [
        (graph.call(total, d, d_out, N + 1, 0, name="sum"), ValueError, "^node 'sum': d_in: needs at least"),
        (graph.call(total, d.astype("f4"), d_out, N, 0), TypeError, "^node 'reduce_into': d_in: .*float32"),
        (graph.call(total, d, d_out, name="sum"), TypeError, "^node 'sum': "),
        (graph.call(total, d, d_out, N, 0, stream=0, name="sum"), TypeError, "^node 'sum': .*stream"),
        (graph.call(double, d, d.astype("f4"), N, name="2x"), TypeError, "^node '2x': d_out: .*float32"),
        (graph.kernel(scale, 1, 32, d, "two", name="k"), RuntimeError, "^node 'k': "),
    ]
    for node, error, message in cases:
        with pytest.raises(error, match=message):
            graph.Graph(good, node)
    launch(graph.Graph(good))
    assert d_out.get()[0] == N
