"""PyTorch's own check of tensors, as launches of kernels use it."""

import pytest

from cupar._jit import tensors

torch = pytest.importorskip("torch")


def zeros(*shape, **named):
    return torch.zeros(shape, **named)


def test_what_is_like_the_tensors_and_what_is_not():
    x, plane, scalar = zeros(9), zeros(3, 4), zeros(dtype=torch.int64)
    positions, check = tensors.guarded((x, 7, plane, scalar, x, None), (0, 2, 3, 4))
    assert positions == (4, 2, 3)
    for like in ((x, plane, scalar), (zeros(1), zeros(5, 1), scalar), (zeros(0), zeros(0, 3), scalar)):
        assert check(*like)
    for unlike in (
        *(x[::2], zeros(9, 1), zeros(9, dtype=torch.int32), zeros(9, device="meta"), torch._neg_view(x)),
        *(zeros(9, dtype=torch.complex64).conj().imag, None, 3, x.numpy(), plane),
    ):
        assert not check(unlike, plane, scalar)
    assert not check(x, plane, plane)


def test_there_is_no_check():
    x = zeros(9)
    assert tensors.guarded((x[::2], 3), (0,)) == ((), None)
    assert tensors.guarded((x, 3), (1,)) == ((), None)
    assert tensors.guarded((x, 3), ()) == ((), None)


def test_tensors_are_not_kept_alive():
    import weakref

    x = zeros(9)
    seen = weakref.ref(x)
    _, check = tensors.guarded((x,), (0,))
    del x
    assert seen() is None
    assert check(zeros(3))
