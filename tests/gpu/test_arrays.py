"""Functions of arrays on streams: current, given and captured ones."""

import warnings

import cupy as cp
import numpy as np
import pytest

from cupar import arrays

X = np.array([3, -1, 4, -2, 0], np.float32)


def is_positive(a):
    return a > 0


def test_a_length_is_not_read_while_its_stream_is_captured():
    x = cp.asarray(X)
    arrays.copy_if(x, is_positive, size=4)  # kernels are loaded before the capture
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        try:
            with pytest.raises(
                ValueError, match="size: expected a number while the stream is being captured"
            ):
                arrays.copy_if(x, is_positive)
            with pytest.raises(ValueError, match="range: expected a number while the stream"):
                arrays.histogram(x)
            items, count = arrays.copy_if(x, is_positive, size=4)
            total = arrays.sum(x)
        finally:
            graph = stream.end_capture()
    x[3] = 7
    cp.cuda.Device().synchronize()
    graph.launch(stream)
    stream.synchronize()
    assert (int(count.get()), float(total.get())) == (3, 13)
    assert items.get()[:3].tolist() == [3, 4, 7]


def test_a_stream_of_ones_own_is_that_of_the_allocations_too():
    x = cp.asarray(X)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.Device().synchronize()
    for given in (stream, stream.ptr, None):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert arrays.copy_if(x, is_positive, stream=given).get().tolist() == [3, 4]
            found = arrays.sort(x, stream=given)
        cp.cuda.Device().synchronize()  # `get` waits for CuPy's current stream alone
        assert found.get().tolist() == sorted(X.tolist())
    assert cp.cuda.get_current_stream().ptr == 0


def test_streams_of_pytorch():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).cuda()
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    for given in (stream, stream.cuda_stream, 0, None):
        assert arrays.copy_if(x, is_positive, stream=given).tolist() == [3, 4]
    with torch.cuda.stream(stream):
        found = arrays.scan(x)
    stream.synchronize()
    assert found.tolist() == np.cumsum(X).tolist()
    x.requires_grad_()
    with pytest.raises(TypeError, match="x: got a tensor that requires grad"):
        arrays.scan(x)


def test_rows_of_floats_keep_the_order_of_zeros_unless_they_need_not():
    rows = np.tile(np.array([0.0, -0.0, 1.0, -0.0, 0.0], np.float32), (3, 40))
    x = cp.asarray(rows)
    for descending in (False, True):
        found = arrays.sort(x, descending=descending).get()
        zeros = found[:, :160] if not descending else found[:, 40:]
        assert np.array_equal(np.signbit(zeros), np.signbit(rows[rows == 0].reshape(3, 160)))
        assert np.array_equal(arrays.sort(x, descending=descending, stable=False).get(), found)
