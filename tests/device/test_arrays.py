"""Reading arrays of any library: by interface, contiguity as NumPy sees it, DLPack's devices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import cupar
from cupar._base.device import within_cpu_call
from cupar._device import arrays as _arrays
from cupar._device import graphs


class Device:
    def __init__(self, **interface):
        self.__cuda_array_interface__ = interface


def interface(array, strides=True):
    found = dict(array.__array_interface__, version=3)
    found["strides"] = array.strides if strides else None
    return Device(**found)


@given(
    arrays.arrays(np.int16, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)),
    st.data(),
)
def test_contiguity_is_numpys(array, data):
    index = data.draw(arrays.basic_indices(array.shape, allow_ellipsis=False))
    view = np.asarray(array[index])
    if data.draw(st.booleans()):
        view = view.T
    found = _arrays.view("d_in", interface(view))
    assert found.size == view.size
    assert found.contiguous == (view.flags.c_contiguous or view.flags.f_contiguous or view.size <= 1)
    assert found.c_order == (view.flags.c_contiguous or view.size <= 1)


def test_no_strides_means_contiguous():
    assert _arrays.view("d_in", interface(np.zeros((3, 4)), strides=False)).contiguous


def test_address_dtype_and_access():
    found = _arrays.view("x", Device(typestr="<f2", shape=(2, 3), data=(4096, True), version=3, strides=None))
    assert found[:-1] == _arrays.ArrayView(4096, 6, np.dtype("f2"), True, False)[:-1]


def test_null_pointer_of_an_empty_array():
    assert _arrays.view("x", Device(typestr="<f2", shape=(0,), data=(None, False), version=3)).address == 0


class Packed:
    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        raise BufferError


def test_dlpack_in_host_memory():
    with pytest.raises(TypeError, match=r"^d_in: expected a device array, got a Packed"):
        _arrays.view("d_in", Packed(1))


class Tensor:
    """As much of a PyTorch tensor as cupar reads."""

    __module__ = "torch"
    is_cuda = True
    dtype = "torch.complex64"
    device = "cuda:0"

    def __init__(self, conj=False, neg=False, **attributes):
        self.is_conj, self.is_neg = lambda: conj, lambda: neg
        self.data_ptr, self.numel, self.is_contiguous = lambda: 64, lambda: 3, lambda: True
        self.shape, self.stride = (3,), lambda: (1,)
        self.__dict__.update(attributes)


def test_torch_tensors():
    assert _arrays.view("x", Tensor()) == _arrays.ArrayView(64, 3, np.dtype("c8"), True, True)
    assert _arrays.view("x", Tensor(dtype="torch.bool")).dtype == np.dtype(bool)
    for lazy in (Tensor(conj=True), Tensor(neg=True), Tensor(neg=True, dtype="torch.float32")):
        with pytest.raises(ValueError, match=r"^x: .*resolve_conj"):
            _arrays.view("x", lazy)
    with pytest.raises(TypeError, match=r"^x: .*torch.qint8"):
        _arrays.view("x", Tensor(dtype="torch.qint8"))
    with pytest.raises(TypeError, match=r"^x: .*cpu"):
        _arrays.view("x", Tensor(is_cuda=False, device="cpu"))


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((2, 3), (3, 1), (True, True)),
        ((2, 3), (1, 2), (True, False)),
        ((2, 1, 3), (1, 7, 2), (True, False)),
        ((2, 3, 4), (1, 2, 6), (True, False)),
        ((2, 3, 4), (12, 1, 3), (False, False)),
        ((2, 3), (4, 1), (False, False)),
        ((2, 3), (1, 3), (False, False)),
        ((5,), (2,), (False, False)),
    ],
)
def test_orders_of_torch_tensors(shape, strides, expected):
    c_order = np.lib.stride_tricks.as_strided(np.zeros(99, "i1"), shape, strides).flags.c_contiguous
    tensor = Tensor(shape=shape, stride=lambda: strides, is_contiguous=lambda: c_order)
    found = _arrays.view("x", tensor)
    assert (found.contiguous, found.c_order) == expected


def test_another_order_than_cs():
    fortran = {"shape": (2, 3), "strides": (4, 8)}
    assert call(1, **fortran) == 64
    assert call(1, output=True, **fortran) == 64
    for items in (6, 2):
        with pytest.raises(ValueError, match=r"^d_x: got an array in Fortran's order, .*ascontiguousarray"):
            call(items, **fortran)
    device = Device(typestr="|u1", data=(64, False), version=3, shape=(2, 3), strides=(1, 2))
    assert _arrays.storage(device) == (64, 6)
    reduction = cupar.reduce_into(device, device, cupar.OpKind.PLUS, np.uint8(0), cc=90)
    assert (
        reduction.build.key == cupar.reduce_into("u1", "u1", cupar.OpKind.PLUS, np.uint8(0), cc=90).build.key
    )
    for strides in ((4, 12), (8, 16), (16, 4)):
        with pytest.raises(ValueError, match=r"^d_x: expected a contiguous array, got a strided one"):
            call(6, shape=(2, 3), strides=strides)


def test_what_is_indexed_must_be_in_cs_order():
    device = Device(typestr="<i4", data=(64, False), version=3, shape=(2, 3), strides=(4, 8))
    with pytest.raises(ValueError, match=r"^op: captured array 'x': expected a C-contiguous array"):
        _arrays.address("op: captured array 'x'", device, np.dtype("i4"), 0, False, c_order=True)
    with pytest.raises(ValueError, match=r"^dst: expected a C-contiguous array"):
        graphs.view("dst", device)


def call(items=5, output=False, **change):
    array = Device(
        **{"typestr": "<i4", "shape": (5,), "strides": None, "data": (64, False), "version": 3, **change}
    )
    return _arrays.address("d_x", array, np.dtype("i4"), items, output)


def test_arrays_of_a_call():
    assert call() == 64
    assert call(data=(64, True)) == 64
    with pytest.raises(ValueError, match=r"^d_x: .*read-only"):
        call(data=(64, True), output=True)
    with pytest.raises(ValueError, match=r"^d_x: needs at least 6 items, got an array of 5"):
        call(6)
    with pytest.raises(TypeError, match=r"^d_x: this algorithm was built for int32, got an array of uint32"):
        call(typestr="<u4")
    with pytest.raises(ValueError, match=r"^d_x: .*contiguous"):
        call(strides=(8,))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (None, "its __cuda_array_interface__ is None, expected a dict"),
        ("x", "its __cuda_array_interface__ is 'x', expected a dict"),
        ({"shape": "x"}, "'shape' of its __cuda_array_interface__ is 'x', expected a tuple of integers"),
        ({"shape": 3}, "'shape' of its __cuda_array_interface__ is 3, expected a tuple of integers"),
        (
            {"typestr": "<q9"},
            "'typestr' of its __cuda_array_interface__ is '<q9', expected a dtype as in '<f4'",
        ),
        ({"typestr": 3}, "'typestr' of its __cuda_array_interface__ is 3, expected a dtype as in '<f4'"),
    ],
)
def test_broken_interfaces_name_the_entry(broken, message):
    array = Device(typestr="<i4", shape=(5,), data=(64, False), version=3)
    if isinstance(broken, dict):
        array.__cuda_array_interface__.update(broken)
    else:
        array.__cuda_array_interface__ = broken
    with pytest.raises(TypeError) as caught:
        _arrays.view("d_in", array)
    assert str(caught.value) == f"d_in: {message}"


def test_none_is_called_none():
    with pytest.raises(TypeError, match=r"^d_in: expected a device array, got None$"):
        _arrays.view("d_in", None)


class NoCapsule(Packed):
    def __dlpack__(self, **options):
        return 3


class Raising:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError


@pytest.mark.parametrize("debug", ["0", "1"])
@pytest.mark.parametrize("array", [NoCapsule(2), Raising()])
def test_what_broken_arrays_raise_is_shown_on_demand(array, debug, monkeypatch):
    monkeypatch.setenv("CUPAR_DEBUG", debug)
    with pytest.raises(TypeError, match=r"^d_in: expected a device array, got .* is broken: \w+$") as caught:
        _arrays.view("d_in", array)
    assert (caught.value.__cause__ is not None) == (debug == "1")
    assert caught.value.__suppress_context__


def test_a_call_takes_arrays_of_what_it_was_built_for():
    array, dtype = np.zeros(3, np.float32), np.dtype(np.float32)
    address = within_cpu_call(_arrays.address, "d_in", array, dtype, 3, False)
    assert address == array.ctypes.data
    with cupar.device("cpu"):
        for on_cpu in (False, None):
            with pytest.raises(TypeError, match=r"d_in: .*host memory"):
                _arrays.address("d_in", array, dtype, 3, False, on_cpu)
    assert _arrays.address("d_in", array, dtype, 3, False, True) == array.ctypes.data
