"""Arrays on the CPU, NumPy's and others': used as they are, or refused by name; threads, forks and Ctrl-C."""

import os
import signal
import threading

import numpy as np
import pytest
from support.results import DLPack

import cupar
from cupar import OpKind
from cupar._call import written

N = 1000
X = np.arange(N, dtype="f4")
SUMS = np.cumsum(X)


def add(a, b):
    return a + b


@pytest.fixture
def scan():
    return cupar.inclusive_scan("f4", "f4", add, cc="cpu")


class Interface:
    def __init__(self, array, **changed):
        self.__array_interface__ = {**array.__array_interface__, **changed}
        self.array = array


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def misaligned(array):
    raw = np.zeros(array.nbytes + 1, "u1")
    raw[1:] = array.view("u1")
    return raw[1:].view(array.dtype)


@pytest.mark.parametrize(
    "made",
    [
        Interface,
        DLPack,
        read_only,
        lambda array: DLPack(read_only(array)),
        lambda array: Interface(array, data=(array.ctypes.data, True)),
        lambda array: array.reshape(10, 10, 10),
        lambda array: array.reshape(10, 100).T,
    ],
)
def test_inputs(made, scan):
    out = np.zeros(N, "f4")
    given = made(X)
    scan.run(given, out, N)
    np.testing.assert_array_equal(out, SUMS)
    asked = cupar.inclusive_scan(given, out, add, cc="cpu")
    assert asked.build.key == scan.build.key


def test_outputs(scan):
    out = np.zeros(N, "f4")
    for made in (Interface, DLPack, lambda array: array.reshape(10, 100).T):
        out[:] = 0
        scan.run(X, made(out), N)
        np.testing.assert_array_equal(out, SUMS)
    total = np.zeros((), "f4")
    cupar.reduce_into(X, total, add, 0.0, cc="cpu").run(X, total, N, 0.0)
    assert total == SUMS[-1]


REFUSED = [
    (ValueError, "expected a contiguous array", X[::2]),
    (ValueError, "expected a contiguous array", X[::-1]),
    (ValueError, "expected a contiguous array", np.broadcast_to(np.float32(1), N)),
    (ValueError, "expected a contiguous array", DLPack(X[::2])),
    (ValueError, "expected a contiguous array", Interface(X, strides=(8,), shape=(N // 2,))),
    (ValueError, "aligned to 4 bytes", misaligned(X)),
    (ValueError, "aligned to 4 bytes", DLPack(misaligned(X))),
    (TypeError, "array of >f4", X.astype(">f4")),
    (TypeError, "masked arrays are not supported", np.ma.masked_array(X, X > 3)),
    (TypeError, "masked arrays are not supported", Interface(X, mask=X > 3)),
    (TypeError, "got a number of type float32", X[0]),  # which would be a copy
    (TypeError, "'data' is missing", Interface(X, data=None)),
    (TypeError, "data type '<q9' not understood", Interface(X, typestr="<q9")),
    (TypeError, "got list, which has neither", [1.0]),
    (TypeError, "got memoryview, which has neither", memoryview(X)),
    (TypeError, "got None", None),
]


@pytest.mark.parametrize(("error", "said", "given"), REFUSED)
def test_refused(error, said, given, scan):
    with pytest.raises(error, match=f"^d_in: .*{said}"):
        scan.run(given, np.zeros(N, "f4"), 1)
    with pytest.raises(error, match=f"^d_out: .*{said}"):
        scan.run(X, given, 1)


def test_refused_as_outputs(scan):
    for given in (read_only(X), DLPack(read_only(X)), Interface(X, data=(X.ctypes.data, True))):
        with pytest.raises(ValueError, match="^d_out: expected an array to write to, got a read-only one"):
            scan.run(X, given, N)


def test_captured_arrays_that_cannot_be_written():
    table, places, out = read_only(np.arange(N) * 3), np.arange(N)[::-1].copy(), np.zeros(N, "i8")

    def stored(a):
        table[a] = 1
        return a

    with cupar.device("cpu"):
        looked_up = cupar.unary_transform("i8", "i8", lambda a: table[a])
        looked_up(places, out, N)
        np.testing.assert_array_equal(out, table[::-1])
        with pytest.raises(TypeError, match=r"^op: .*readonly array"):
            cupar.unary_transform("i8", "i8", stored)
        table.flags.writeable = True
        looked_up(places, out, N)
        storing = cupar.unary_transform("i8", "i8", stored)
        storing(places, out, N)
        assert (table == 1).all()
        table.flags.writeable = False
        with pytest.raises(ValueError, match="^op: captured array 'table': expected an array to write to"):
            storing(places, out, N)


class Device:
    """An array in device memory, as far as it says."""

    def __init__(self, n):
        interface = {"shape": (n,), "typestr": "<f4", "data": (1 << 20, False), "version": 3}
        self.__cuda_array_interface__ = interface


def test_iterators_and_captured_arrays_of_the_other_device():
    """Each algorithm takes those of what it was built for, wherever it is called."""
    table, other = Device(N), [X]

    def scaled(a):
        return a * table[0]

    def negated(a):
        return -a

    on_gpu = cupar.TransformIterator(Device(N), negated, "f4")
    with cupar.device("cpu"):
        on_cpu = cupar.TransformIterator(X, negated, "f4")
    bind = written.binder(cupar.unary_transform(on_gpu, "f4", scaled, cc=90))
    negation = cupar.unary_transform(on_cpu, "f4", negated, cc="cpu")
    out = np.zeros(N, "f4")
    expected = bind((on_gpu, Device(N), N))
    for name in ("cuda", "cpu"):
        with cupar.device(name):
            assert bind((on_gpu, Device(N), N)) == expected
            with pytest.raises(TypeError, match="^d_in: expected a device array, got a NumPy array"):
                bind((on_cpu, Device(N), N))
            with pytest.raises(TypeError, match="^d_in: expected a host array, .* got a Device on a GPU"):
                negation.run(on_gpu, out, N)
            negation.run(on_cpu, out, N)
            np.testing.assert_array_equal(out, X)
            table, other[0] = other[0], table
            with pytest.raises(TypeError, match="^op: captured array 'table': expected a device array"):
                bind((on_gpu, Device(N), N))
            table, other[0] = other[0], table


# --- PyTorch ---------------------------------------------------------------------------------------------

TORCHS = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("name", TORCHS)
def test_tensors_of_every_dtype(name):
    torch = pytest.importorskip("torch")
    tensor = torch.ones(N, dtype=getattr(torch, name))
    largest, total = torch.zeros_like(tensor), tensor[:1].clone()
    with cupar.device("cpu"):
        cupar.inclusive_scan(tensor, largest, lambda a, b: b).run(tensor, largest, N)
        kind = OpKind.LOGICAL_OR if name == "bool" else OpKind.PLUS
        cupar.reduce_into(tensor, total, kind, None).run(tensor, total, 100)
    assert torch.equal(largest, tensor)
    assert total.item() == (True if name == "bool" else 100)


def test_tensors_of_torch(scan):
    torch = pytest.importorskip("torch")
    tensor, out = torch.arange(N, dtype=torch.float32), torch.zeros(N)
    for given in (tensor, torch.nn.Parameter(tensor.clone()), DLPack(tensor)):
        out.zero_()
        scan.run(given, out, N)
        np.testing.assert_array_equal(out.numpy(), SUMS)
    with cupar.device("cpu"):
        places, scale = torch.tensor([2, 0, 1]), torch.tensor([5.0])
        picked = cupar.PermutationIterator(tensor, places)
        cupar.unary_transform(picked, out, lambda a: a * scale[0])(picked, out, 3)
        assert out[:3].tolist() == [10, 0, 5]
        keys = cupar.DoubleBuffer(tensor.clone(), torch.zeros(N))
        cupar.radix_sort(keys, None, order=cupar.SortOrder.DESCENDING).run(keys, None, None, None, N)
        assert torch.equal(keys.current(), tensor.flip(0))
        z = torch.ones(4, dtype=torch.complex64)
        for lazy in (z.conj(), z.conj().imag):
            with pytest.raises(ValueError, match=r"^d_in: .*resolve_conj|^d_in: .*contiguous"):
                cupar.inclusive_scan(lazy, z, add)
        with pytest.raises(TypeError, match="^d_in: .*float8_e5m2"):
            cupar.inclusive_scan(z.real.contiguous().to(torch.float8_e5m2), z, add)
    for error, said, given in (
        (ValueError, "contiguous", tensor[::2]),
        (ValueError, "needs at least 1000 items", tensor[:5]),
        (TypeError, "array of float64", tensor.double()),
        (TypeError, "on 'meta'", tensor.to("meta")),
        (TypeError, "Sparse", tensor.to_sparse()),
    ):
        with pytest.raises(error, match=f"^d_in: .*{said}"):
            scan.run(given, out, N)


# --- Processes and threads -------------------------------------------------------------------------------


def test_threads_ask_and_call_at_once(empty_cache):
    outs, errors = [np.zeros(300_000, "i8") for _ in range(6)], []
    items = np.arange(300_000)

    def work(out):
        try:
            with cupar.device("cpu"):
                cupar.inclusive_scan(items, out, add).run(items, out, len(items))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(out,)) for out in outs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not errors
    for out in outs:
        np.testing.assert_array_equal(out, np.cumsum(items))
    assert len([each for each in cupar.cache.entries() if each.entry == "build"]) == 1


def test_children_use_several_threads_too():
    items, total = np.ones(3_000_000, "f8"), np.zeros(1)
    reduction = cupar.reduce_into(items, total, OpKind.PLUS, 0.0, cc="cpu")
    reduction.run(items, total, len(items), 0.0)
    child = os.fork()
    if not child:
        total[0] = 0
        reduction.run(items, total, len(items), 0.0)
        os._exit(0 if total[0] == len(items) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_after_an_interrupt_calls_go_on():
    items, total = np.ones(2_000_000, "f8"), np.zeros(1)
    reduction = cupar.reduce_into(items, total, OpKind.PLUS, 0.0, cc="cpu")
    timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        for _ in range(100_000):
            reduction.run(items, total, len(items), 0.0)
    timer.join()
    reduction.run(items, total, len(items), 0.0)
    assert total[0] == len(items)
