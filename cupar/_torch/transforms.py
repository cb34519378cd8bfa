"""Functions of the items of tensors as operators, one for each function, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .. import arrays
from .._base import fork
from .._base.data import Recent
from .._functions import operators as own
from .._ir.iterator import over
from ..iterators import TransformIterator, ZipIterator
from . import tracing
from .operators import (
    PLAIN_KEYS,
    below,
    below_autograd,
    differentiable,
    made_for,
    numpy_dtype,
    on_device,
    operator,
    records,
    torch_dtype,
)
from .partials import IN_TENSORS, SELECT_TENSORS
from .tracing import TracedNumber, UntraceableError
from .user_functions import UserFunction, as_it_compiles, digest_of, guard, with_own_builtins

_MOST = 6  # tensors
_A_TUPLE = "fn: expected a function that returns a number, got one that returns a tuple"


class _Slopes:
    """The partial derivatives of a function of some numbers, or the reason why it has none."""

    def __init__(self, fn: Any, derivative: Any, number: int) -> None:
        names = [f"x{i}" for i in range(number)]
        arguments: list[Any] = [TracedNumber(("argument", each)) for each in names]
        self.refused = ""
        self.of_tensors: Any = None
        try:
            if derivative is None:
                value: Any = tracing.trace(fn, *arguments)
                if isinstance(value[0], tuple):
                    raise TypeError(_A_TUPLE)
                traced = tuple(tracing.derivative(value, each) for each in names)
            else:
                traced = tracing.trace(derivative, *arguments)
                if number == 1 and isinstance(traced[0], str):
                    traced = (traced,)
            if len(traced) != number or not isinstance(traced[0], tuple):
                raise TypeError(f"derivative: expected a function that returns {number} partial derivatives")
            self.of_tensors = tracing.function_of(traced, names, IN_TENSORS, SELECT_TENSORS)
        except UntraceableError as error:
            name = "fn" if derivative is None else "derivative"
            self.refused = (
                f"{name}: it {error}, of which no derivative is known; pass derivative=, a function of the "
                "same numbers that returns all partial derivatives by arithmetic, exp, log, sqrt and the like"
            )


def _operator(function: UserFunction, slopes: _Slopes, known: str) -> Any:  # noqa: PLR0915 - as in functions.py
    """Return the operator of a function, registered when it is first asked for."""
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
                raise TypeError(_A_TUPLE)
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
        first, *others = [each.detach() for each in xs]
        return computed(first, others, dtype)

    def fake(xs: Sequence[Any], dtype: Any = None) -> Any:
        shape = torch.broadcast_shapes(*(each.shape for each in xs))
        return xs[0].new_empty(shape, dtype=result(xs) if dtype is None else dtype)

    def forward(ctx: Any, *given: Any) -> Any:
        *xs, ctx.how = given
        with below():
            y = op(xs, ctx.how)
        ctx.save_for_backward(*xs)
        ctx.save_for_forward(*xs)
        return y

    def backward(ctx: Any, grad: Any) -> Any:
        xs = ctx.saved_tensors
        found = [None] * (len(xs) + 1)  # type: list[Any]
        for i, (x, slope) in enumerate(zip(xs, slopes.of_tensors(*xs), strict=True)):
            if ctx.needs_input_grad[i]:
                slope = slope.conj() if isinstance(slope, torch.Tensor) else slope
                found[i] = (grad * slope).sum_to_size(x.shape).to(x.dtype)
        return tuple(found)

    def jvp(xs: Any, dtype: Any, *tangents: Any) -> Any:
        each = zip(tangents, slopes.of_tensors(*xs), strict=True)
        total: Any = sum(tangent * slope for tangent, slope in each if tangent is not None)
        shape = torch.broadcast_shapes(*(x.shape for x in xs))
        return total.to(result(xs) if dtype is None else dtype).expand(shape)

    applied = differentiable(f"Transform{function.digest}", forward, backward, jvp)

    def autograd(op: Any) -> Any:
        def of_gradients(keys: Any, xs: Sequence[Any], dtype: Any = None) -> Any:
            if records(*xs) and (result(xs) if dtype is None else dtype).is_floating_point:
                if slopes.refused:
                    raise TypeError(slopes.refused)
                return applied(*xs, dtype)
            if keys.raw_repr() in PLAIN_KEYS:
                return kernel(xs, dtype)
            with below_autograd():
                return op(xs, dtype)

        return of_gradients

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

    op = operator(known, "(Tensor[] xs, ScalarType? dtype=None) -> Tensor", kernel, fake, autograd, vmap)
    return op


_operators: dict[Any, Any] = {}  # as long as the process: they are registered
_lock = fork.Lock()


@with_own_builtins
def operator_of(fn: Any, derivative: Any, number: int) -> Any:
    """Return the operator of a function of some numbers as it is now."""
    key = digest_of(fn), None if derivative is None else digest_of(derivative), number
    found = _operators.get(key)
    if found is None:
        with _lock:
            if key not in _operators:
                function, slopes = UserFunction(fn), _Slopes(fn, derivative, number)
                known = "_".join(["transform", *(str(each) for each in key if each is not None)])
                _operators[key] = _operator(function, slopes, known), function
            found = _operators[key]
    found[1].fn = fn
    return found[0]


@as_it_compiles
def _name_of(fn: Any, derivative: Any, number: int, same: int) -> str:
    return str(operator_of(fn, derivative, number)._schema.name.partition("::")[2])


def transform(fn: Callable[..., Any], *xs: Any, dtype: Any = None, derivative: Any = None) -> Any:
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
    if torch.compiler.is_compiling():
        op = getattr(torch.ops.cupar, _name_of(fn, derivative, len(xs), guard(fn))).default
    else:
        op = operator_of(fn, derivative, len(xs))
    return op([*xs], dtype)
