"""Arrays of each library for tests of `cupar.arrays`: on a GPU where there is one, else on the CPU."""

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from support.results import IS_CPU, DLPack, cp

NUMBERS = {
    "f": [-0.0, 0.0, 1.0, -2.5, 3.0, 7.0],
    "i": [0, 1, -2, 3, 100, -128],
    "u": [0, 1, 2, 3, 100, 255],
    "b": [False, True],
    "c": [0.0, 1.0, -2j, 3 + 1j, 1 - 1j],
}
SPECIAL = [np.nan, float(np.copysign(np.nan, -1)), np.inf, -np.inf]


class Library:
    """How tests make arrays of a library, and read them."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

    def array(self, host):
        """Return an array of the library's with the strides of one of NumPy's, if it can have these."""
        host = np.asarray(host)
        if self.name == "numpy":
            return host
        if self.name == "torch":
            import torch

            if any(stride < 0 for stride in host.strides):
                host = host.copy()
            if not host.flags.writeable:
                host = host.copy(order="K")
            made = torch.from_numpy(host)
            return made if IS_CPU else _torch_on_gpu(torch, made)
        if self.name == "numba":
            from numba import cuda

            return cuda.to_device(host.copy())  # whose strides are usual, also of one item
        made = host if IS_CPU else _strided(cp, host)
        return DLPack(made) if self.name == "dlpack" else made

    def host(self, array):
        """Return what an array holds, having checked of which library it is."""
        if isinstance(array, tuple):
            return tuple(self.host(each) for each in array)
        kind = type(array).__module__.partition(".")[0]
        name = {"dlpack": "numpy" if IS_CPU else "cupy"}.get(self.name, self.name)
        assert kind == name, (kind, name)
        if name == "torch":
            return array.cpu().numpy()
        if name == "numba":
            return array.copy_to_host()
        return array if name == "numpy" else array.get()


def _strided(module, host):
    whole = module.asarray(np.ascontiguousarray(host))
    if host.flags.c_contiguous:
        return whole.reshape(host.shape)
    spread = module.empty(tuple(2 * n for n in host.shape), host.dtype)
    view = spread[tuple(slice(None, None, 2) for _ in host.shape)]
    view[...] = whole
    return view


def _torch_on_gpu(torch, tensor):
    found = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
    return found.copy_(tensor)


def _available():
    names = ["numpy", "dlpack"] if IS_CPU else ["cupy", "numba", "dlpack"]
    try:
        import torch  # noqa: F401

        names.insert(1, "torch")
    except ImportError:
        pass
    return [Library(name) for name in names]


LIBRARIES = _available()
each_library = pytest.mark.parametrize("lib", LIBRARIES, ids=str)

few_examples = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def host_arrays(draw, dtypes=("f4", "i4"), *, least=0, ndim=(0, 3), special=True, most=4):
    """Draw an array of NumPy's: a shape with sides of 0 and 1 too, any strides, NaNs and -0.0."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.lists(st.integers(least, most), min_size=ndim[0], max_size=ndim[1]))
    values = NUMBERS[dtype.kind] + (SPECIAL if special and dtype.kind == "f" else [])
    steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in shape]
    whole = [n * abs(step) for n, step in zip(shape, steps, strict=True)]
    size = int(np.prod(whole))
    items = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    array = np.array(items, dtype).reshape(whole)
    array = array[tuple(slice(None, None, step) for step in steps)]
    if draw(st.booleans()):
        array = array.T
    return array


def axes(array, *, none=True):
    """Return a strategy for an axis of an array."""
    every = st.integers(-array.ndim, array.ndim - 1) if array.ndim else st.none()
    return st.one_of(st.none(), every) if none else every


def same(found, expected, *, rtol=0.0, dtype=True):
    """Compare an array with NumPy's: dtype, shape and values, within rounding if `rtol` says so."""
    expected = np.asarray(expected)
    if dtype:
        assert found.dtype == expected.dtype, (found.dtype, expected.dtype)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if rtol and expected.dtype.kind in "fc":
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(found, expected)
