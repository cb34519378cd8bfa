"""Functions of items in PyTorch: values, gradients that are traced or given, batches, compiled functions."""

import math
import operator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from cupar import torch as ct  # noqa: E402

F64 = torch.float64
X = torch.tensor([[0.5, -1.0, 2.0], [1.5, 3.0, -0.25]], dtype=F64)
Y = torch.tensor([2.0, 0.5, 1.0], dtype=F64)


def gated(a, b, c):
    return math.exp(a * 0.1) * b if a > 0 else c - a / b


def wrapped(a):
    return a % 1.0


def test_values_are_broadcast():
    column = torch.ones(2, 1, dtype=F64)
    found = ct.transform(gated, X, Y, column)
    torch.testing.assert_close(found, torch.where(X > 0, torch.exp(X * 0.1) * Y, column - X / Y))
    assert ct.transform(operator.gt, X.T, Y[:, None]).dtype is torch.bool
    assert ct.transform(lambda a: a + 1, torch.tensor(2), dtype=torch.float32).tolist() == 3
    assert ct.transform(wrapped, X[:, :0]).shape == (2, 0)


def test_dtypes():
    """Numbers in a function make no wider floats, as numbers beside tensors do not."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64):
        found = ct.transform(lambda a: a * 2 + 1.5, X.to(dtype))
        assert found.dtype is dtype
        torch.testing.assert_close(found, X.to(dtype) * 2 + 1.5)
    assert ct.transform(lambda a, b: a * b, X.float(), X.bfloat16()).dtype is torch.float32
    assert ct.transform(lambda a: a / 2, torch.tensor([1])).dtype is F64
    assert ct.transform(lambda a: a.real, X.to(torch.complex64)).dtype is torch.float32
    assert ct.transform(lambda a: a * 2, X, dtype=torch.float16).dtype is torch.float16
    with pytest.raises(TypeError, match="^dtype: expected float64 or a dtype of no lesser kind"):
        ct.transform(lambda a: a * 2, X, dtype=torch.int16)


def test_gradients():
    given = [each.clone().requires_grad_() for each in (X, Y, torch.ones(2, 1, dtype=F64))]

    def function(*given):
        return ct.transform(gated, *given)

    assert torch.autograd.gradcheck(function, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, given)
    x = X.clone().requires_grad_()
    with pytest.raises(TypeError, match="fn: it .*pass derivative="):
        ct.transform(wrapped, x)
    found = ct.transform(wrapped, x, derivative=lambda a: 1.0)
    assert torch.autograd.grad(found.sum(), x)[0].eq(1).all()
    # A derivative that is not traced is compiled; a function of `math` is what its name says.
    opaque = ct.transform(lambda a, b: a * b, x, x, derivative=lambda a, b: (math.floor(2.5 + b * 0), b - b))
    assert torch.autograd.grad(opaque.sum(), x)[0].eq(2).all()
    single = ct.transform(wrapped, x, derivative=lambda a: math.floor(1.5 + a * 0))
    assert torch.autograd.grad(single.sum(), x)[0].eq(1).all()
    torch.testing.assert_close(torch.autograd.grad(ct.transform(math.sin, x).sum(), x)[0], X.cos())
    z = (X + 1j * X.flip(1)).requires_grad_()
    found = ct.transform(lambda a, b: a * a * b, z, x)
    expected = z * z * x
    weights = torch.full_like(z, 1 + 2j)
    for one, other in zip(
        *(torch.autograd.grad(each, (z, x), weights) for each in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other)
    with pytest.raises(TypeError, match="derivative: expected a function that returns 2 partial derivatives"):
        ct.transform(operator.add, x, x, derivative=lambda a, b: (1.0, 1.0, 1.0))


def test_a_batch_is_one_more_dimension():
    found = torch.func.vmap(lambda x, y: ct.transform(gated, x, Y, y), in_dims=(0, None))(X, Y[:1])
    torch.testing.assert_close(found, ct.transform(gated, X, Y, Y[:1]))
    each = torch.func.vmap(torch.func.grad(lambda x: ct.transform(operator.mul, x, x).sum()))(X)
    torch.testing.assert_close(each, 2 * X)


def test_operators():
    op = ct.transform(operator.add, X, X) is not None and torch.ops.cupar
    name = next(each for each in dir(op) if each.startswith("transform_") and each.endswith("_2"))
    torch.library.opcheck(getattr(op, name).default, ([X, Y], torch.float32))
    compiled = torch.compile(lambda x: ct.transform(gated, x, Y, x) * 2, fullgraph=True, backend="aot_eager")
    x = X.clone().requires_grad_()
    pairs = [
        torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, lambda x: ct.transform(gated, x, Y, x) * 2)
    ]
    torch.testing.assert_close(*pairs)


def test_what_it_refuses():
    with pytest.raises(TypeError, match="xs: expected from 1 to 6 tensors, got 7"):
        ct.transform(operator.add, *[X] * 7)
    with pytest.raises(TypeError, match=r"xs\[1\]: expected a tensor, got int"):
        ct.transform(operator.add, X, 1)
    for fn in (lambda a: (a, a), lambda a: (a % 1.0, a)):
        with pytest.raises(TypeError, match="fn: expected a function that returns a number"):
            ct.transform(fn, X)
