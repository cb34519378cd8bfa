"""Partial derivatives of functions of two numbers: traced or given, and as an operator."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from .._base.data import Recent
from .._base.digests import sha256
from .._functions.values import accumulated, cast, casting
from .._ir.iterator import over
from ..iterators import ZipIterator
from ..transform import binary_transform
from . import tracing
from .operators import (
    PLAIN_KEYS,
    batched,
    below_autograd,
    made_for,
    numpy_dtype,
    on_device,
    operator,
    records,
    stream_of,
)
from .templates import template
from .tracing import TracedNumber, UntraceableError
from .user_functions import UserFunction

_LEFT, _RIGHT = (TracedNumber(("argument", each)) for each in "lr")
_SELECT, SELECT_TENSORS = "({x} if {c} else {y})", "where({c}, {x}, {y})"
_IN_NUMBERS = {name: getattr(math, name) for name in tracing.DERIVATIVES}
IN_TENSORS = {name: getattr(torch, name) for name in tracing.DERIVATIVES} | {"where": torch.where}


class Partials(NamedTuple):
    """The partial derivatives of a function of two numbers."""

    of_numbers: Any  # for kernels: returns both; a `UserFunction` if it is the user's
    of_tensors: Any  # what gradients of gradients call; None if it is not known
    digest: str
    refused: str  # why there are none; else empty


def partials_of(fn: Any, derivative: Any) -> Partials:
    """Find the partial derivatives of a function: given ones, or else traced ones."""
    try:
        if derivative is not None:
            traced = tracing.trace(derivative, _LEFT, _RIGHT)
        else:
            value = tracing.trace(fn, _LEFT, _RIGHT)
            traced = tuple(tracing.derivative(value, each) for each in "lr")
        if not isinstance(traced, tuple) or len(traced) != 2 or isinstance(traced[0], str):
            raise TypeError("derivative: expected a function that returns the two partial derivatives")
        of_tensors = tracing.function_of(traced, "lr", IN_TENSORS, SELECT_TENSORS)
    except UntraceableError as error:
        if derivative is None:
            refused = (
                f"fn: it {error}, which has no derivative here; pass derivative=, a function of the same two "
                "numbers that returns both partial derivatives"
            )
            return Partials(None, None, "", refused)
        given = UserFunction(derivative, "derivative")
        return Partials(given, None, given.digest, "")
    if derivative is None:
        derivative = tracing.function_of(traced, "lr", _IN_NUMBERS, _SELECT)
    return Partials(derivative, of_tensors, sha256(repr(traced).encode()).hexdigest()[:16], "")


# --- Partial derivatives as an operator -------------------------------------------------------------------


def operator_of(partials: Partials) -> Any:
    """Return the operator of partial derivatives, item by item."""
    known: Recent[Any, Any] = Recent(32)

    def made(x: Any) -> Any:
        dtype = numpy_dtype("x", x.dtype)
        within, function = accumulated(dtype), partials.of_numbers
        function = function.unchanged() if isinstance(function, UserFunction) else function
        pair = ZipIterator(casting(over("l", dtype), within), casting(over("r", dtype), within))
        if within == dtype:  # arrays as they are
            algorithm, end = binary_transform(dtype, dtype, pair, function), None
        else:
            items = cast(over("l", dtype), within)
            algorithm, end = binary_transform(items, items, pair, function), template(items)
        return algorithm._run, end, template(pair)

    @on_device
    def computed(left: Any, right: Any) -> Any:
        left, right = left.contiguous(), right.contiguous()
        of_left, of_right = torch.empty_like(left), torch.empty_like(left)
        key, size = (left.dtype, left.device), left.numel()
        if not size:
            return of_left, of_right
        found = known.find(key)
        if found is None:
            found = known[key] = made_for(left, lambda: made(left))
        run, end, pair = found
        given = [each if end is None else end(each.data_ptr()) for each in (left, right)]
        run(stream_of(left), (*given, pair(of_left.data_ptr(), of_right.data_ptr()), size))
        return of_left, of_right

    def kernel(left: Any, right: Any) -> Any:
        return computed(left, right)

    def fake(left: Any, right: Any) -> Any:
        made = torch.empty_like(left, memory_format=torch.contiguous_format)
        return made, torch.empty_like(made)

    def autograd(op: Any) -> Any:
        def of_gradients(keys: Any, left: Any, right: Any) -> Any:
            if records(left, right):
                if partials.of_tensors is None:
                    raise RuntimeError(
                        "derivative: its own derivative is asked for, which needs one that only adds, "
                        "multiplies, divides, compares and calls exp, log, sqrt and their like"
                    )
                found = partials.of_tensors(left, right)
                return tuple(_as(each, left) for each in found)
            if keys.raw_repr() in PLAIN_KEYS:
                return computed(left, right)
            with below_autograd():
                return op(left, right)

        return of_gradients

    def vmap(info: Any, in_dims: Any, left: Any, right: Any) -> Any:
        given = [batched(info, x, d) for x, d in zip((left, right), in_dims, strict=True)]
        return op(*given), (0, 0)

    schema = "(Tensor l, Tensor r) -> (Tensor, Tensor)"
    op = operator(f"partials_{partials.digest}", schema, kernel, fake, autograd, vmap)
    return op


def _as(x: Any, like: Any) -> Any:
    """Return a tensor of the shape and dtype of another, of a tensor or a number."""
    if isinstance(x, torch.Tensor):
        return x.to(like.dtype).expand(like.shape)
    return torch.full_like(like, x)
