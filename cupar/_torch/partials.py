"""Partial derivatives of functions of numbers: traced or given, and as an operator of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from .._base import device
from .._base.digests import sha256
from .._functions.calls import Operand, Work, enter
from .._functions.operators import spread
from .._functions.values import accumulated, cast, casting
from ..iterators import ZipIterator
from ..transform import binary_transform
from . import tracing
from .registration import batched, named, on_device, operator, records
from .tracing import TracedNumber, UntraceableError
from .user_functions import UserFunction

_IN_NUMBERS = {name: getattr(math, name) for name in tracing.DERIVATIVES}
_IN_TENSORS = {name: getattr(torch, name) for name in tracing.DERIVATIVES} | {"where": torch.where}


class Partials(NamedTuple):
    """The partial derivatives of a function of some numbers."""

    of_numbers: Any  # what kernels call: returns all of them; a `UserFunction` if it is the user's
    of_tensors: Any  # what gradients of gradients call; None if it is not known
    digest: str
    refused: str  # why there are none; else empty


def partials_of(fn: UserFunction, derivative: UserFunction | None, number: int) -> Partials:
    """Find the partial derivatives of a function: given ones, or else traced ones."""
    names = [f"x{i}" for i in range(number)]
    arguments = [TracedNumber(("argument", each)) for each in names]
    try:
        if derivative is None:
            value = tracing.trace(fn.fn, *arguments)
            if isinstance(value[0], tuple):
                raise TypeError("fn: expected a function that returns a number, got one that returns a tuple")
            traced = tuple(tracing.derivative(value, each) for each in names)
        else:
            traced = tracing.trace(derivative.fn, *arguments)
            if number == 1 and isinstance(traced[0], str):
                traced = (traced,)
            if len(traced) != number or not isinstance(traced[0], tuple):
                raise TypeError(f"derivative: expected a function that returns {number} partial derivatives")
        of_tensors = tracing.function_of(traced, names, _IN_TENSORS, "where({c}, {x}, {y})", True)
    except UntraceableError as error:
        if derivative is None:
            refused = (
                f"fn: it {error}, of which no derivative is known; pass derivative=, a function of the same "
                "numbers that returns all partial derivatives"
            )
            return Partials(None, None, "", refused)
        return Partials(derivative, None, derivative.digest, "")
    of_numbers = tracing.function_of(traced, names, _IN_NUMBERS, "({x} if {c} else {y})", number > 1)
    return Partials(of_numbers, of_tensors, sha256(repr(traced).encode()).hexdigest()[:16], "")


# --- Partial derivatives as an operator -------------------------------------------------------------------


def _body(work: Work, *given: Any) -> Sequence[Operand]:
    *xs, fn = given
    within = accumulated(xs[0].dtype)
    found = [work.empty(each.shape, each.dtype) for each in xs]
    read: list[Any] = [cast(each.items, within) for each in xs]
    written = [casting(each.items, within) for each in found]
    out: Any = written[0] if len(xs) == 1 else ZipIterator(*written)
    size = xs[0].size
    if len(xs) == 2:
        work.run(binary_transform(read[0], read[1], out, fn), *read, out, size)
    elif len(xs) == 1:
        work.copy(read[0], out, size, fn)
    else:
        work.copy(ZipIterator(*read), out, size, spread(fn, len(xs)))
    return tuple(found)


def operator_of(partials: Partials, number: int) -> Any:
    """Return the operator of partial derivatives, of tensors of one shape and dtype."""

    @on_device
    def computed(_: Any, xs: Sequence[Any]) -> Any:
        function = partials.of_numbers
        function = function.unchanged() if isinstance(function, UserFunction) else function
        given = tuple([each.detach().resolve_conj() for each in xs])
        with named("derivative"):
            call = partial(enter, _body, given, (function,), prefix="xs")
            return [*device.using(not xs[0].is_cuda, call)]

    def kernel(xs: Sequence[Any]) -> Any:
        return computed(xs[0], xs)

    def fake(xs: Sequence[Any]) -> Any:
        return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in xs]

    def recorded(xs: Sequence[Any]) -> Any:
        if not records(*xs):
            return None
        if partials.of_tensors is None:
            raise RuntimeError(
                "derivative: its own derivative is asked for, which needs one that only adds, multiplies, "
                "divides, compares and calls exp, log, sqrt and their like"
            )
        return [_as(each, xs[0]) for each in partials.of_tensors(*xs)]

    def vmap(info: Any, in_dims: Any, xs: Sequence[Any]) -> Any:
        found = op([batched(info, x, d) for x, d in zip(xs, in_dims[0], strict=True)])
        return found, [0] * len(found)

    schema = "(Tensor[] xs) -> Tensor[]"
    op = operator(f"partials_{number}_{partials.digest}", schema, kernel, fake, recorded, vmap)
    return op


def _as(x: Any, like: Any) -> Any:
    """Return a tensor of the shape and dtype of another, of a tensor or a number."""
    if isinstance(x, torch.Tensor):
        return x.to(like.dtype).expand(like.shape)
    return torch.full_like(like, x)
