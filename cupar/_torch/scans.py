"""Scans by a function of the user's as operators, one for each function, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .. import arrays
from .._functions.values import flag
from ..operators import Op
from . import partials, tracing
from .partials import partials_of
from .recurrence import linear_recurrence, neighbours, recurrence
from .registration import (
    batched,
    differentiable,
    dimension,
    direct,
    named,
    on_device,
    operator,
    records,
    without_gradient,
)
from .tracing import TracedNumber, UntraceableError
from .user_functions import OperatorFamily, UserFunction, as_it_compiles, families, guarded_operator

T = TypeVar("T", Tensor, tuple[Tensor, Tensor])

# --- Pairs of recurrences ---------------------------------------------------------------------------------

_PAIRS = tuple(tuple(TracedNumber(("argument", f"{side}{i}")) for i in range(2)) for side in "lr")
_AFFINE = (
    ("mul", ("argument", "l0"), ("argument", "r0")),
    ("add", ("mul", ("argument", "l1"), ("argument", "r0")), ("argument", "r1")),
)


def _is_affine(fn: Any) -> bool:
    """Whether a function combines pairs as those of linear recurrences are."""
    try:
        found = tracing.trace(fn, *_PAIRS)
    except UntraceableError:
        return False
    expected = tuple(map(tracing.ordered, _AFFINE))
    return isinstance(found, tuple) and tuple(map(tracing.ordered, found)) == expected


# --- The scan ---------------------------------------------------------------------------------------------


def _slopes(of_partials: Any, x: Any, y: Any, dim: int, reverse: bool) -> tuple[Any, Any]:
    """Return the partial derivatives of ``y[t] = f(y[t - 1], x[t])``, where ``y[0] = x[0]``."""
    length = x.shape[dim]
    first = x.narrow(dim, length - 1 if reverse else 0, 1)
    of_left, of_right = of_partials([neighbours(y, dim, reverse, first.squeeze(dim)), x])
    one = torch.ones_like(first)
    rest = of_right.narrow(dim, 0 if reverse else 1, length - 1)
    return of_left, torch.cat([rest, one] if reverse else [one, rest], dim)


def _kernel(function: UserFunction) -> Any:
    """Return the scan by a function."""

    @on_device
    def scanned(x: Any, dim: int, reverse: bool) -> Any:
        with named("fn"):
            return arrays.scan(without_gradient(x), function.unchanged(), axis=dim, reverse=reverse)

    return scanned


def _operator(name: str, function: UserFunction, derivative: UserFunction | None) -> Any:
    """Return the operator of a function, registered when it is first asked for."""
    kernel, known = _kernel(function), partials_of(function, derivative, 2)

    def fake(x: Any, dim: int, reverse: bool) -> Any:
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def backward(ctx: Any, grad: Any) -> Any:
        (x, y), (dim, reverse) = ctx.saved_tensors, ctx.how
        if x.shape[dim] == 0:
            return (torch.zeros_like(x),)
        of_left, of_right = _slopes(of_partials, x, y, dim, reverse)
        # g[t] = dy[t] + dl[t + 1] g[t + 1], and dx[t] = dr[t] g[t]
        g = recurrence(neighbours(of_left, dim, not reverse).conj(), grad, None, dim, not reverse)
        return (of_right.conj() * g,)

    def jvp(saved: Any, how: Any, dx: Any) -> Any:
        (x, y), (dim, reverse) = saved, how
        if x.shape[dim] == 0:
            return torch.zeros_like(x)
        of_left, of_right = _slopes(of_partials, x, y, dim, reverse)
        return recurrence(of_left, of_right * dx, None, dim, reverse)

    def recorded(x: Any, dim: int, reverse: bool) -> Any:
        if not (records(x) and (x.is_floating_point() or x.is_complex())):
            return None
        if known.refused:
            raise TypeError(known.refused)
        return applied((dim, reverse), x)

    def vmap(info: Any, in_dims: Any, x: Any, dim: int, reverse: bool) -> Any:
        return op(batched(info, x, in_dims[0]), dim + 1, reverse), 0

    of_partials = None if known.refused else partials.operator_of(known, 2)
    op = operator(name, "(Tensor x, int dim, bool reverse) -> Tensor", kernel, fake, recorded, vmap)
    applied = differentiable(name, kernel, op, lambda ctx, y, x: (x, y), backward, jvp)
    return op


families["scan"] = OperatorFamily(_operator, ("fn", "derivative"))


@as_it_compiles
def _check_affine(fn: Any, number: int) -> None:
    with named("fn"):
        is_affine = _is_affine(fn)
    if number != 2 or not is_affine:
        raise TypeError(
            f"x: expected a tensor, or the pairs of a linear recurrence with fn((a, b), (c, d)) -> (a * c, "
            f"c * b + d), got a tuple of {number}: cupar.arrays.scan takes any, without gradients"
        )


def scan(x: T, fn: Op, *, dim: int, reverse: bool = False, derivative: Callable[..., Any] | None = None) -> T:
    """Return the prefix scan of a tensor by a function, along a dimension; it has gradients.

    Parameters
    ----------
    x : torch.Tensor, or tuple of two
        Tensors of one shape are the pairs of a linear recurrence, if `fn` combines these.
    fn : callable or OpKind
        Combines two numbers, the first of which is that of earlier items. It must be associative. It is
        compiled as operators of `cupar.arrays` are.
    dim : int
    reverse : bool, optional
        Whether the scan goes from the last item to the first; `fn` has that of later items first then.
    derivative : callable, optional
        Takes the two numbers and returns the partial derivatives with respect to each. By default these are
        found by calling `fn` with numbers that record, if it adds, multiplies, divides, takes powers,
        compares, and calls `exp`, `log`, `sqrt`, `sin`, `tanh` and their like, `abs`, `min` or `max`.

    Returns
    -------
    torch.Tensor, or tuple of two
        Of the shape and dtype of `x`. float16 and bfloat16 are combined in float32.

    Raises
    ------
    TypeError, IndexError, ValueError
        If an argument is not one of these, or a gradient is asked for that is not known.

    Examples
    --------
    >>> import torch
    >>> from cupar.torch import scan
    >>> x = torch.tensor([1.0, 3.0, 2.0, 5.0], requires_grad=True)
    >>> y = scan(x, lambda a, b: a if a > b else b, dim=0)
    >>> y.tolist()
    [1.0, 3.0, 3.0, 5.0]
    >>> y.sum().backward()
    >>> x.grad.tolist()
    [1.0, 2.0, 0.0, 1.0]
    """
    if isinstance(x, tuple):
        _check_affine(fn, len(x))
        a, b = x
        for each in x:
            if not isinstance(each, torch.Tensor):
                raise TypeError(f"x: expected two tensors, got a {type(each).__name__}")
        if a.shape != b.shape:
            raise ValueError(f"x: expected tensors of one shape, got {tuple(a.shape)} and {tuple(b.shape)}")
        dim = dimension("dim", dim, b.ndim)
        if not b.ndim:
            pair = scan((a.unsqueeze(0), b.unsqueeze(0)), fn, dim=0)
            return pair[0].squeeze(0), pair[1].squeeze(0)
        h = linear_recurrence(a, b, dim=dim, reverse=reverse)
        length = a.shape[dim]
        if not length:
            return a.clone(), h
        edges = [torch.zeros_like(a.narrow(dim, 0, length - 1)), a.narrow(dim, length - 1, 1)]
        if not reverse:
            edges = [a.narrow(dim, 0, 1), torch.zeros_like(a.narrow(dim, 1, length - 1))]
        return linear_recurrence(a, torch.cat(edges, dim), dim=dim, reverse=reverse), h
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x: expected a tensor, got {type(x).__name__}")
    op = guarded_operator("scan", fn, derivative)
    dim, reverse = dimension("dim", dim, x.ndim), flag("reverse", reverse)
    if not x.ndim:  # as PyTorch has it: a row of one item
        return op(x.unsqueeze(0), dim, reverse).squeeze(0)
    return direct(op, x)(x, dim, reverse)
