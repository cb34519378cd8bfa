"""Functions of the items of tensors as operators, one for each function, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import arrays
from .._base.data import Recent
from .._functions import operators as own
from .._ir.iterator import over
from ..iterators import TransformIterator, ZipIterator
from ..operators import Op
from .partials import operator_of, partials_of
from .registration import (
    differentiable,
    direct,
    made_for,
    numpy_dtype,
    on_device,
    operator,
    records,
    torch_dtype,
    without_gradient,
)
from .user_functions import OperatorFamily, UserFunction, families, guarded_operator, with_own_builtins

_MOST = 6  # tensors


def _operator(known: str, function: UserFunction, derivative: UserFunction | None, number: int) -> Any:  # noqa: PLR0915
    """Return the operator of a function of some numbers, registered when it is first asked for."""
    partials = partials_of(function, derivative, number)
    dtypes: Recent[Any, Any] = Recent(64)

    @with_own_builtins
    def result(xs: Sequence[Any]) -> Any:
        """Return the dtype of the result for tensors: with numbers it reads, it may return wider floats."""
        given = tuple(each.dtype for each in xs)
        found = dtypes.find(given)
        if found is None:

            def made() -> np.dtype[Any]:
                sources = [over("x", numpy_dtype("xs", each)) for each in given]
                fn = function.unchanged()
                if len(sources) == 1:
                    return TransformIterator(sources[0], fn, None).dtype
                return TransformIterator(ZipIterator(*sources), own.spread(fn, len(sources)), None).dtype

            dtype = made_for(xs[0], made)
            if dtype.names is not None:
                raise TypeError("fn: expected a function that returns a number, got one that returns a tuple")
            found, own_dtype = torch_dtype(dtype), functools.reduce(torch.promote_types, given)
            if found.is_floating_point and own_dtype.is_floating_point:
                found = own_dtype
            elif found.is_complex and (own_dtype.is_floating_point or own_dtype.is_complex):
                found = own_dtype.to_complex()
            dtypes[given] = found
        return found

    @on_device
    def computed(x: Any, others: Sequence[Any], dtype: Any) -> Any:
        wanted = numpy_dtype("dtype", result([x, *others]) if dtype is None else dtype)
        return arrays.transform(function.unchanged(), x, *others, dtype=wanted)

    def kernel(xs: Sequence[Any], dtype: Any = None) -> Any:
        first, *others = [without_gradient(each) for each in xs]
        return computed(first, others, dtype)

    def fake(xs: Sequence[Any], dtype: Any = None) -> Any:
        shape = torch.broadcast_shapes(*(each.shape for each in xs))
        return xs[0].new_empty(shape, dtype=result(xs) if dtype is None else dtype)

    def slopes(xs: Sequence[Any]) -> Any:
        """Return the partial derivatives; of a function that is not traced by a kernel."""
        if partials.of_tensors is not None:
            return partials.of_tensors(*xs)
        dtype = functools.reduce(torch.promote_types, (each.dtype for each in xs))
        return of_partials([each.to(dtype) for each in torch.broadcast_tensors(*xs)])

    def backward(ctx: Any, grad: Any) -> Any:
        xs = ctx.saved_tensors
        found: list[Any] = [None] * len(xs)
        for i, (x, slope) in enumerate(zip(xs, slopes(xs), strict=True)):
            if ctx.needs_input_grad[2 + i]:
                slope = slope.conj() if isinstance(slope, torch.Tensor) else slope
                of_x = (grad * slope).sum_to_size(x.shape)
                found[i] = (of_x if x.is_complex() or not of_x.is_complex() else of_x.real).to(x.dtype)
        return tuple(found)

    def jvp(xs: Any, how: Any, *tangents: Any) -> Any:
        each, (dtype,) = zip(tangents, slopes(xs), strict=True), how
        total: Any = sum(tangent * slope for tangent, slope in each if tangent is not None)
        shape = torch.broadcast_shapes(*(x.shape for x in xs))
        return total.to(result(xs) if dtype is None else dtype).expand(shape)

    def recorded(xs: Sequence[Any], dtype: Any = None) -> Any:
        if not records(*xs):
            return None
        wanted = result(xs) if dtype is None else dtype
        if not (wanted.is_floating_point or wanted.is_complex):
            return None
        if partials.refused:
            raise TypeError(partials.refused)
        return applied((dtype,), *xs)

    def vmap(info: Any, in_dims: Any, xs: Sequence[Any], dtype: Any = None) -> Any:
        dims = in_dims[0]
        most = max(x.ndim - (d is not None) for x, d in zip(xs, dims, strict=True))
        given = []
        for x, d in zip(xs, dims, strict=True):
            if d is not None:
                x = x.movedim(d, 0)
                x = x.reshape(x.shape[0], *[1] * (most + 1 - x.ndim), *x.shape[1:])
            given.append(x)
        return op(given, dtype), 0

    def flat(called: Any) -> Any:
        return lambda *given: called(given[:-1], given[-1])

    op = operator(known, "(Tensor[] xs, ScalarType? dtype=None) -> Tensor", kernel, fake, recorded, vmap)
    applied = differentiable(known, flat(kernel), flat(op), lambda ctx, y, *xs: xs, backward, jvp)
    of_partials: Any = None if partials.refused or partials.of_tensors else operator_of(partials, number)
    return op


families["transform"] = OperatorFamily(_operator, ("fn", "derivative", ""))


def transform(
    fn: Op, *xs: Tensor, dtype: torch.dtype | None = None, derivative: Callable[..., Any] | None = None
) -> Tensor:
    """Return a function's results for the items of tensors, one by one, by one kernel; it has gradients.

    Parameters
    ----------
    fn : callable or OpKind
        Takes a number of each tensor, and returns one. It is compiled as operators of `cupar.arrays` are.
    *xs : torch.Tensor
        Of shapes that broadcast. A number belongs in the function, which may read it.
    dtype : torch.dtype, optional
        Of the result; by default that of `xs`, promoted, where these and what the function returns are floats
        (or complex); else what it returns.
    derivative : callable, optional
        Takes the same numbers and returns the partial derivatives with respect to each; by default they are
        found as those of `scan` are.

    Returns
    -------
    torch.Tensor

    Raises
    ------
    TypeError, RuntimeError
        If an argument is not one of these, or a gradient is asked for that is not known.

    Examples
    --------
    >>> import math
    >>> import torch
    >>> from cupar.torch import transform
    >>> x = torch.tensor([0.0, 1.0], dtype=torch.float64, requires_grad=True)
    >>> y = transform(lambda a, b: math.exp(a) * b, x, torch.tensor([[2.0], [3.0]], dtype=torch.float64))
    >>> y.sum().backward()
    >>> x.grad
    tensor([ 5.0000, 13.5914], dtype=torch.float64)
    """
    if not 0 < len(xs) <= _MOST:
        raise TypeError(f"xs: expected from 1 to {_MOST} tensors, got {len(xs)}")
    for i, each in enumerate(xs):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"xs[{i}]: expected a tensor, got {type(each).__name__}: `fn` may read a number")
    op = guarded_operator("transform", fn, derivative, len(xs))
    return direct(op, *xs)([*xs], dtype)
