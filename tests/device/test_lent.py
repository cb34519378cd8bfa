"""Memory that arrays only lend, temporary storage at any address, and arrays like CuPy's, on a fake GPU."""

import gc
import weakref

import numpy as np
import pytest
from support.common import DeviceArray
from support.gpu import pretended

import cupar
from cupar._device import arrays, driver
from cupar._device.lent import Lent
from cupar._launch.state import LaunchState

pytestmark = pytest.mark.usefixtures("older_are_frozen")  # each test collects

N = 1000


class Export(dict):
    """An export, which has memory of its own."""


class Lends:
    """A device array that exports other memory each time it is asked."""

    def __init__(self):
        self.exports = []

    @property
    def __cuda_array_interface__(self):
        data = (1 << 20) + (len(self.exports) << 16), False
        made = Export(typestr="<i4", shape=(N,), strides=None, data=data, version=3)
        self.exports.append(weakref.ref(made))
        return made

    def there(self):
        gc.collect()
        return len([each for each in self.exports if each() is not None])


@pytest.fixture
def gpu(monkeypatch):
    cupar.cache.clear(disk=False)  # of objects that have loaded their code elsewhere
    found = pretended(monkeypatch)
    monkeypatch.setitem(driver._parts, driver.current_context().number, {})
    return found


@pytest.fixture
def transform(gpu):
    return cupar.unary_transform("i4", "i4", cupar.OpKind.NEGATE, cc=90)


OUT = DeviceArray(1 << 26, N)


def test_a_stream_holds_what_a_call_was_lent_until_it_has_passed(gpu, transform):
    gpu.busy.add(7)
    given = Lends()
    transform(given, OUT, N, stream=7)
    transform(given, OUT, N, stream=7)
    assert given.there() == 2
    array = weakref.ref(given)
    others, there = Lends(), given.there
    del given
    transform(others, OUT, N, stream=8)
    assert array() is not None and there() == 2
    gpu.busy.clear()
    transform(others, OUT, N, stream=8)
    del there
    gc.collect()
    assert array() is None
    assert others.there() == 1  # until more is lent, or `release_memory`
    assert len(gpu.launched) == 4


def test_iterators_and_storage_are_held_too(gpu):
    items = cupar.TransformIterator("i4", lambda a: a, "i4")
    total = cupar.reduce_into(items, "i4", cupar.OpKind.PLUS, np.zeros(1, "i4"), cc=90)
    gpu.busy.add(7)
    lent, storage = Lends(), Lends()
    arguments = cupar.TransformIterator(lent, lambda a: a, "i4"), OUT, N, 0
    asked = total(None, *arguments)
    assert (asked, lent.there()) == (1, 0)  # nothing was enqueued
    total(storage, *arguments, stream=7)
    assert (lent.there(), storage.there()) == (1, 1)


def test_plain_arrays_are_not_touched(gpu, transform):
    class Plain:
        size, dtype, _c_contiguous, _f_contiguous = N, np.dtype("i4"), True, True
        nbytes, ndim, shape, strides = 4 * N, 1, (N,), (4,)
        flags = type("flags", (), {"c_contiguous": True, "f_contiguous": True})
        data = type("data", (), {"ptr": 1 << 20})

    Plain.__name__, Plain.__module__ = "ndarray", "cupy"
    a, b = Plain(), Plain()
    for _ in range(3):
        transform(a, b, N, stream=7)
    assert type(a) in arrays.CUPY
    assert not gpu._recorded and Lent not in driver._parts[driver.current_context().number]
    there = weakref.ref(a)
    del a
    gc.collect()
    assert there() is None
    arrays.CUPY.discard(Plain)


def test_what_only_looks_like_cupys_is_read_as_others_are(gpu, transform):
    class Like:
        size, dtype = N, np.dtype("i4")

        @property
        def __cuda_array_interface__(self):
            return OUT.__cuda_array_interface__

    class Flags(Like):
        flags = type("flags", (), {"c_contiguous": True, "f_contiguous": True})
        data = type("data", (), {"ptr": 1 << 20})

    for cls in (Like, Flags):
        cls.__name__, cls.__module__ = "ndarray", "cupy"
        for _ in range(2):
            transform(cls(), OUT, N)
        assert cupar.unary_transform(cls(), OUT, cupar.OpKind.NEGATE, cc=90).build.key == transform.build.key
        assert cls not in arrays.CUPY
    assert len(gpu.launched) == 4


def test_a_bound_call_holds_it_as_long_as_it_may_run(gpu, transform):
    first, second = Lends(), Lends()
    bound = transform.bind(first, OUT, N, stream=7)
    bound()
    assert first.there() == 1
    gpu.busy.add(7)
    bound.rebind(second, OUT, N)
    assert (first.there(), second.there()) == (1, 1)
    gpu.busy.clear()
    bound.rebind(second, OUT, N)
    assert (first.there(), second.there()) == (0, 2)
    bound.close()
    context = driver.current_context()
    assert second.there() == 1
    context.part(Lent).sweep()
    assert second.there() == 0
    other = transform.bind(first, OUT, N, stream=7)
    del other  # of a stream that may be gone
    assert first.there() == 1
    assert context.part(Lent).retired


def test_a_graph_holds_what_was_lent_in_its_capture(gpu, transform, monkeypatch):
    monkeypatch.setattr(driver, "stream_number", lambda stream: None if stream in gpu.captured else stream)
    gpu.captured.add(7)
    given, other = Lends(), Lends()
    transform(given, OUT, N, stream=7)
    gpu.captured.clear()
    transform(other, OUT, N, stream=8)
    assert given.there() == 1
    (destroy,) = gpu.graphs_gone
    destroy()
    transform(other, OUT, N, stream=8)
    assert given.there() == 0


def test_storage_at_any_address(gpu, monkeypatch):
    """As in CUB: more is asked for, and what is given is aligned."""
    total = cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, np.zeros(1, "i4"), cc=90)
    taken, given = [], (OUT, OUT, N, 0)

    def prepare(call, bound):
        call.nbytes, call.enqueue = 5000, lambda bound, address, numbers, stream: taken.append(address)

    monkeypatch.setattr(LaunchState, "prepare", prepare)
    nbytes = total(None, *given)
    assert nbytes == 5255
    for offset in (0, 1, 4, 255, 256):
        total(DeviceArray((1 << 20) + offset, nbytes, "|u1"), *given)
    assert taken == [1 << 20, *[(1 << 20) + 256] * 4]
    with pytest.raises(ValueError, match="^temp_storage: needs 5255 bytes for this call, got 5254"):
        total(DeviceArray(1 << 20, nbytes - 1, "|u1"), *given)


# --- Orders ----------------------------------------------------------------------------------------------


class Matrix:
    """A device array of some order."""

    def __init__(self, order="C", shape=(20, 50)):
        strides = arrays.contiguous_strides(shape, 4, order)
        self.__cuda_array_interface__ = {
            **OUT.__cuda_array_interface__,
            "shape": shape,
            "strides": strides,
        }


def test_orders_of_the_arrays_of_a_call(gpu, transform):
    c, f = Matrix(), Matrix("F")
    transform(c, c, N)
    transform(f, f, N)
    transform(f, OUT, 1)
    for arguments, name in (
        ((f, c, N), "d_in"),
        ((c, f, N), "d_out"),
        ((f, OUT, N), "d_in"),
        ((f, f, N - 1), "d_in"),
        ((f, Matrix("F", (50, 20)), N), "d_in"),
    ):
        with pytest.raises(ValueError, match=f"^{name}: got an array in Fortran's order, .*transpose"):
            transform(*arguments)
    assert len(gpu.launched) == 3
