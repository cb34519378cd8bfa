"""Views of device arrays, in Python and in compiled code: the same."""

import gc
import weakref

import numpy as np
import pytest
from support.fewer import every
from support.host import Array

import cupar
from cupar._device import arrays

numba = pytest.importorskip("numba")

INDICES = [
    0,
    -1,
    slice(None),
    slice(2, 5),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(-3, None),
    slice(5, 2),
    slice(100, None),
    (1, 2),
    (slice(1, 4), 2),
    (2, slice(1, 4)),
    (slice(None), slice(None, None, 3)),
    (slice(3, 0, -2), slice(1, None)),
]


def of(array):
    """Return a view of what would be a device array, where a NumPy array is; that is not read."""
    return cupar.view(
        Array(array.ctypes.data, array.shape, array.dtype, not array.flags.writeable, array.strides)
    )


def told(view):
    return view.address, view.shape, view.strides, view.dtype, view.writable


@numba.njit
def part(view, index):
    return view[index]


@numba.njit
def asked(view):
    return view.address, view.shape, view.strides, view.ndim, view.size, view.itemsize, view.nbytes, len(view)


@every(2)
@pytest.mark.parametrize(("dtype", "order"), [("f4", "C"), ("u1", "F"), ("c16", "C")])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_parts_are_numpys(dtype, order, index):
    array = np.zeros((6, 7), dtype, order)
    expected = array[index] if isinstance(index, (slice, tuple)) and array[index].ndim else None
    for given in (of(array)[index], part(of(array), index)):
        if expected is None:  # an item, which NumPy copies
            continue
        assert (given.shape, given.strides) == (expected.shape, expected.strides)
        assert not given.size or given.address == expected.ctypes.data
        assert (given.dtype, given.writable) == (array.dtype, True)
    assert told(of(array)[index]) == told(part(of(array), index))


def test_an_item_is_a_view_without_dimensions():
    array = np.zeros((6, 7), "i4")
    item = part(of(array), (2, -1))
    assert told(item) == (array[2:, 6:].ctypes.data, (), (), np.dtype("i4"), True) == told(of(array)[2, -1])
    assert (item.size, item.nbytes, item.ndim) == (1, 4, 0)
    with pytest.raises(TypeError):
        len(item)


def test_what_compiled_code_sees():
    view = of(np.zeros((3, 5), "f8"))
    expected = view.address, (3, 5), (40, 8), 2, 15, 8, 120, 3
    assert asked(view) == asked.py_func(view) == expected


def test_a_view_comes_back_as_it_was():
    same = numba.njit(lambda view: view)
    for array in (np.zeros(4, "f4"), np.zeros((2, 3, 4), np.dtype("i4, f8", align=True))[:, ::2]):
        array.flags.writeable = array.ndim == 1
        assert told(same(of(array))) == told(of(array))


def test_types_tell_layouts():
    array = np.zeros((4, 5), "f4")
    typeof = lambda each: numba.typeof(of(each)).layout
    assert [typeof(each) for each in (array, array.T, array[:, :2], array[:2], array[:0, ::2])] == list(
        "CFACC"
    )
    inside = numba.njit(lambda view: view[1:3])
    assert numba.typeof(inside(of(array))).layout == "C"


def test_out_of_bounds():
    view = of(np.zeros((4, 5), "f4"))
    for index in (4, -5, (0, 5)):
        with pytest.raises(IndexError, match="out of bounds"):
            view[index]
        with pytest.raises(IndexError, match="out of bounds"):
            part(view, index)
    with pytest.raises(IndexError, match="2 dimensions was given 3 indices"):
        view[0, 0, 0]
    with pytest.raises(numba.TypingError, match="2 dimensions was given 3 indices"):
        part(view, (0, 0, 0))
    with pytest.raises(TypeError, match="integers and slices, got float"):
        view[1.0]
    with pytest.raises(numba.TypingError, match="integers and slices, got float"):
        part(view, 1.0)
    with pytest.raises(ValueError, match="step"):
        part(view, slice(None, None, 0))


def test_a_view_is_a_device_array_and_keeps_its_array():
    array = Array(0x1000, (4, 6), "f4")
    view = cupar.view(array)
    assert cupar.view(view) is view
    found = arrays.view("d_in", view[1:])
    assert found[:-1] == (0x1000 + 24, 18, np.dtype("f4"), True, True, True)
    assert not arrays.view("d_in", view[:, 1:]).contiguous
    assert not arrays.view("d_in", cupar.view(Array(0x1000, 4, "f4", read_only=True))).writable
    gone, part = weakref.ref(array), view[1:]
    del array, view, found
    gc.collect()
    assert gone() is not None
    del part
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("given", [np.zeros(4), [1, 2], None, 5])
def test_what_is_no_device_array(given):
    with pytest.raises(TypeError, match=r"^array: expected a device array"):
        cupar.view(given)


def test_a_dtype_that_cupar_has_no_code_for():
    with pytest.raises(TypeError, match=r"array: dtype datetime64\[s\] is not supported"):
        cupar.view(Array(0x1000, 4, "M8[s]"))


# --- Constants -------------------------------------------------------------------------------------------


def reading(constant):
    """Return functions of which one reads a constant, and another calls that."""

    @numba.njit
    def inner():
        return constant.address

    @numba.njit
    def outer():
        return inner() + 1

    return inner, outer


@pytest.mark.usefixtures("older_are_frozen")
def test_a_constant_lives_as_long_as_code_that_reads_it():
    array = Array(64 << 10, (4,), "f4")
    gone, address = weakref.ref(array), array.__cuda_array_interface__["data"][0]
    inner, outer = reading(cupar.view(array))
    assert (inner(), outer()) == (address, address + 1)
    del array, inner
    gc.collect()
    assert gone() is not None
    assert outer() == address + 1
    del outer
    gc.collect()
    assert gone() is None


@pytest.mark.usefixtures("older_are_frozen")
def test_iterators_that_are_constants_go_with_the_code():

    def shifted(iterator):
        return numba.njit(lambda: iterator + 1 is None)

    array = Array(64 << 10, (4,), "f4")
    gone, function = weakref.ref(array), shifted(cupar.ReverseIterator(array))
    function()
    del array
    gc.collect()
    assert gone() is not None
    del function
    gc.collect()
    assert gone() is None
