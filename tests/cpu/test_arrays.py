"""Arrays on the CPU, NumPy's and others': used as they are, or refused by name; threads and forks."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest
from support.operators import add
from support.results import DLPack

import cupar
from cupar import OpKind

N = 1000
X = np.arange(N, dtype="f4")
SUMS = np.cumsum(X)


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
    for made in (Interface, DLPack, lambda array: array.reshape(10, 100)):
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
    read = cupar.unary_transform(on_gpu, "f4", scaled, cc=90)._call_reader(None)
    negation = cupar.unary_transform(on_cpu, "f4", negated, cc="cpu")
    out = np.zeros(N, "f4")
    expected = read((on_gpu, Device(N), N))
    for name in ("cuda", "cpu"):
        with cupar.device(name):
            assert read((on_gpu, Device(N), N)) == expected
            with pytest.raises(TypeError, match="^d_in: expected a device array, got a NumPy array"):
                read((on_cpu, Device(N), N))
            with pytest.raises(TypeError, match="^d_in: expected a host array, .* got a Device on a GPU"):
                negation.run(on_gpu, out, N)
            negation.run(on_cpu, out, N)
            np.testing.assert_array_equal(out, X)
            table, other[0] = other[0], table
            with pytest.raises(TypeError, match="^op: captured array 'table': expected a device array"):
                read((on_gpu, Device(N), N))
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
    found = torch.zeros_like(tensor)
    with cupar.device("cpu"):
        cupar.unary_transform(tensor, found, lambda a: a)(tensor, found, N)
    assert torch.equal(found, tensor)


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


# --- Memory that is only lent ----------------------------------------------------------------------------


class Image:
    """Exports bytes of its own each time, as Pillow's images do."""

    def __init__(self, array):
        self._array, self.exports = array, []

    @property
    def __array_interface__(self):
        taken = self._array.copy()
        self.exports.append(weakref.ref(taken))
        return {**self._array.__array_interface__, "data": taken, "strides": None}

    def there(self):
        gc.collect()
        return len([each for each in self.exports if each() is not None])


class Copied:
    """Exports a copy by DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self._array.copy().__dlpack__(**options)


MANY = 300_000  # whose memory goes back to the system once it is freed


@pytest.mark.parametrize("made", [Image, Copied])
def test_memory_that_is_only_lent(made):
    items, out = np.arange(MANY, dtype="f4"), np.zeros(MANY, "f4")
    table = made(np.arange(MANY, dtype="f4") * 2)
    with cupar.device("cpu"):
        add = cupar.binary_transform("f4", "f4", "f4", OpKind.PLUS)
        add(made(items), made(items), out, MANY)
        np.testing.assert_array_equal(out, 2 * items)
        look_up = cupar.TransformIterator(made(items), lambda a: table[int(a)] + a, "f4")
        cupar.unary_transform(look_up, out, lambda a: a)(look_up, out, MANY)
        np.testing.assert_array_equal(out, 3 * items)
        call = add.bind(made(items), made(items), out, MANY)
        for _ in range(2):
            out[:] = 0
            call()
            np.testing.assert_array_equal(out, 2 * items)


@pytest.mark.usefixtures("older_are_frozen")
def test_what_was_lent_is_let_go():
    items, out = Image(np.arange(8, dtype="f4")), np.zeros(8, "f4")
    negate = cupar.unary_transform("f4", "f4", OpKind.NEGATE, cc="cpu")
    negate(items, out, 8)
    assert (len(items.exports), items.there()) == (1, 0)
    call = negate.bind(items, out, 8)
    assert items.there() == 1
    call.rebind(items, out, 8)
    assert items.there() == 1
    call()
    np.testing.assert_array_equal(out, -np.arange(8))
    call.close()
    assert items.there() == 0


# --- Orders ----------------------------------------------------------------------------------------------

M = np.arange(16.0).reshape(4, 4)
F = np.asfortranarray(M)


def of(array):
    return np.zeros_like(array)  # in the same order


def test_orders_that_make_no_difference():
    with cupar.device("cpu"):
        add = cupar.binary_transform("f8", "f8", "f8", OpKind.PLUS)
        for given in (M, F, M.T, Interface(F)):
            out = of(np.asarray(given))
            add(given, given, out, 16)
            np.testing.assert_array_equal(out, 2 * np.asarray(given))
        out, total = of(F), np.zeros((1, 1))
        twice = cupar.ConstantIterator(2.0)
        cupar.binary_transform("f8", twice, "f8", lambda a, b: a * b)(F, twice, out, 16)
        np.testing.assert_array_equal(out, 2 * M)
        halved = cupar.TransformIterator(F, lambda a: a / 2, "f8")
        cupar.unary_transform(halved, "f8", lambda a: -a)(halved, out, 16)
        np.testing.assert_array_equal(out, -M / 2)
        both = cupar.ZipIterator(F, F)
        product = cupar.TransformIterator(both, lambda a: a[0] * a[1], "f8")
        cupar.reduce_into(product, total, OpKind.PLUS, 0.0).run(product, total, 16, 0.0)
        assert total == (M * M).sum()
        out = of(F).astype("i8", order="F")
        cupar.lower_bound("f8", "f8", "i8")(np.arange(16.0), 16, F, 16, out)
        np.testing.assert_array_equal(out, M)


def test_orders_that_do_are_refused():
    out, one, counts = of(F), np.zeros(1), np.zeros(4, "i8")
    with cupar.device("cpu"):
        counting = cupar.CountingIterator(0.0)
        add = cupar.binary_transform("f8", "f8", "f8", OpKind.PLUS)
        plus = cupar.binary_transform("f8", counting, "f8", OpKind.PLUS)
        total = cupar.reduce_into("f8", "f8", OpKind.PLUS, 0.0)
        rows = cupar.segmented_reduce("f8", "f8", op=OpKind.PLUS, h_init=0)
        running = cupar.inclusive_segmented_scan("f8", "f8", op=OpKind.PLUS)
        order = cupar.SortOrder.ASCENDING
        sort = cupar.segmented_sort("f8", "f8", order=order)
        kept = cupar.select("f8", "f8", "i8", lambda a: a > 3)
        zipped = cupar.ZipIterator(F, counting)
        argmin = cupar.reduce_into(zipped, zipped.dtype, lambda a, b: a if a[0] < b[0] else b, None)
        gathered = cupar.PermutationIterator(F, cupar.CountingIterator(0))
        picked = cupar.unary_transform(gathered, "f8", lambda a: a)
        later = cupar.TransformIterator(F, lambda a: a, "f8") + 1
        calls = {
            "transposed": (add, "d_in2", M, M.T, of(M), 16),
            "one of two": (add, "d_in1", F, M, out, 16),
            "to another": (add, "d_in1", F, F, of(M), 16),
            "from another": (add, "d_out", M, M, out, 16),
            "another shape": (add, "d_in1", F, F, np.zeros((2, 8), order="F"), 16),
            "not all": (add, "d_in1", F, F, out, 15),
            "not all of a sum": (total, "d_in", F, one, 15, 0.0),
            "with a counter": (plus, "d_in1", F, counting, out, 16),
            "argmin": (argmin, "d_in", zipped, np.zeros(1, zipped.dtype), 16),
            "gathered": (picked, "d_in", gathered, of(M), 16),
            "from the second": (
                cupar.reduce_into(later, "f8", OpKind.PLUS, 0.0),
                "d_in",
                later,
                one,
                15,
                0.0,
            ),
            "scan": (cupar.inclusive_scan("f8", "f8", OpKind.PLUS), "d_in", F, out, 16),
            "rows": (rows, "d_in", F, np.zeros(4), 4, None, None, 0.0),
            "scan of rows": (running, "d_in", F, of(M), 4),
            "sort of rows": (sort, "d_in_keys", F, of(M), None, None, 16, 4),
            "select": (kept, "d_in", F, np.zeros(16), counts, 16),
            "select to it": (kept, "d_out", M, out, counts, 16),
        }
        for what, (algorithm, name, *arguments) in calls.items():
            with pytest.raises(ValueError) as caught:
                algorithm.run(*arguments)
            assert str(caught.value).startswith(f"{name}: got an array in Fortran's order, "), what
            assert "ascontiguousarray" in str(caught.value)
        buffers = cupar.DoubleBuffer(F, of(F))
        with pytest.raises(ValueError, match="^d_in_keys: got an array in Fortran's order"):
            cupar.radix_sort(buffers, None, None, None, order).run(buffers, None, None, None, 16)


def test_storage_at_any_address():
    total, storage = np.zeros(1), np.zeros(9, "u1")
    reduction = cupar.reduce_into("f8", "f8", OpKind.PLUS, 0.0, cc="cpu")
    reduction(storage[1:], M, total, 16, 0.0)
    assert total == M.sum()


@pytest.mark.parametrize("cc", [90, "cpu"])
def test_what_is_pytorchs_is_named(cc):
    torch = pytest.importorskip("torch")
    for op in (torch.add, lambda a, b: torch.add(a, b) + 0):
        with pytest.raises(TypeError, match=r"PyTorch's functions take tensors, and an operator takes items"):
            cupar.reduce_into("f4", "f4", op, 0.0, cc=cc)
    with pytest.raises(TypeError, match=r"^d_in: expected .* array, got a dtype of PyTorch's; give NumPy's"):
        cupar.reduce_into(torch.float32, "f4", cupar.OpKind.PLUS, 0.0, cc=cc)
