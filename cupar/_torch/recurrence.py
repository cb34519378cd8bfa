"""The linear recurrence as an operator: its kernel, its gradient, which is one too, and its tangent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._functions import scans
from .._functions.calls import enter
from .._functions.recurrences import recurrence_gradients
from .._functions.values import flag
from .._pytorch import is_legacy_batchedtensor
from . import inductor
from .registration import (
    batched,
    differentiable,
    dimension,
    direct,
    is_eager,
    is_plain,
    numpy_dtype,
    on_device,
    operator,
    records,
    same_device,
    without_gradient,
)

_NEW = (None, None, None)  # arrays for results

# --- The kernel -------------------------------------------------------------------------------------------


@on_device
def _scanned(a: Any, b: Any, initial: Any, dim: int, reverse: bool) -> Any:
    given = without_gradient(a), without_gradient(b), without_gradient(initial)
    if numpy_dtype("b", b.dtype).kind == "b":
        raise TypeError("b: expected numbers, got torch.bool")
    return enter(scans._linear_recurrence, given, (None, dim, reverse, None))


def _check(a: Any, b: Any, initial: Any, dim: int) -> None:
    """Raise RuntimeError unless dtypes and shapes fit: the operator may be called directly."""
    ndim = b.ndim
    if a.shape != b.shape or a.dtype is not b.dtype or not -ndim <= dim < ndim:
        raise RuntimeError(
            f"b: expected the shape and dtype of `a`, {tuple(a.shape)} of {a.dtype}, with a dimension {dim}, "
            f"got {tuple(b.shape)} of {b.dtype}"
        )
    same_device(a=a, b=b, initial=initial)
    if initial is not None:
        dim %= ndim
        if initial.shape != (*b.shape[:dim], *b.shape[dim + 1 :]) or initial.dtype is not b.dtype:
            raise RuntimeError(f"initial: expected one item of {b.dtype} a row, got {tuple(initial.shape)}")


def _kernel(a: Any, b: Any, initial: Any = None, dim: int = -1, reverse: bool = False) -> Any:
    _check(a, b, initial, dim)
    return _scanned(a, b, initial, dim % b.ndim, reverse)


def _fake(a: Any, b: Any, initial: Any = None, dim: int = -1, reverse: bool = False) -> Any:
    torch._check(a.shape == b.shape, lambda: f"b: expected the shape of `a`, {a.shape}, got {b.shape}")
    same_device(a=a, b=b, initial=initial)
    return torch.empty_like(b, memory_format=torch.contiguous_format)


# --- Its gradient -----------------------------------------------------------------------------------------

# With v' for the complex conjugate: g[t] = dh[t] + a'[t + 1] g[t + 1] is the gradient of b[t], g[t] h'[t - 1]
# that of a[t], and a'[0] g[0] that of the initial value.


def neighbours(x: Any, dim: int, later: bool, edge: Any = None) -> Any:
    """Return the item before each, or after it; at the edge `edge`, which has no such dimension, or 0."""
    length = x.shape[dim]
    if length == 0:
        return x
    edge = torch.zeros_like(x.narrow(dim, 0, 1)) if edge is None else edge.unsqueeze(dim)
    if later:
        return torch.cat([x.narrow(dim, 1, length - 1), edge], dim)
    return torch.cat([edge, x.narrow(dim, 0, length - 1)], dim)


@on_device
def _backward_scanned(grad: Any, a: Any, h: Any, initial: Any, dim: int, reverse: bool) -> Any:
    """Return the gradients of `a`, `b` and the initial value, the last of which is None if there is none."""
    given = without_gradient(a), without_gradient(h), without_gradient(grad), without_gradient(initial)
    if grad.is_complex():
        a, h, grad, initial = given
        initial = None if initial is None else initial.conj().resolve_conj()
        given = a.conj().resolve_conj(), h.conj().resolve_conj(), grad, initial
    return enter(recurrence_gradients, given, (dim, reverse, _NEW))


def _backward_kernel(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    for name, each in (("a", a), ("h", h)):
        if each.shape != grad.shape or each.dtype is not grad.dtype:
            raise RuntimeError(f"{name}: expected the shape and dtype of `grad`, got {tuple(each.shape)}")
    return _backward_scanned(grad, a, h, initial, dim, reverse)[:2]


def _backward_composed(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    """Do the same by operators that have gradients, vectorised forms and tangents themselves."""
    g = recurrence(neighbours(a, dim, not reverse).conj(), grad, None, dim, not reverse)
    return g * neighbours(h, dim, reverse, initial).conj(), g


def _backward_fake(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    return tuple(torch.empty_like(each, memory_format=torch.contiguous_format) for each in (a, grad))


def _backward_recorded(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    if records(a, h, initial, grad):
        return _backward_composed(a, h, initial, grad, dim, reverse)
    return None


def _backward_vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
    a, h, initial, grad, dim, reverse = arguments
    a, h, grad = (batched(info, x, d) for x, d in zip((a, h, grad), (*in_dims[:2], in_dims[3]), strict=True))
    initial = None if initial is None else batched(info, initial, in_dims[2])
    return recurrence_backward(a, h, initial, grad, dim + 1, reverse), (0, 0)


# --- The operator -----------------------------------------------------------------------------------------


def _kept(ctx: Any, h: Any, a: Any, b: Any, initial: Any) -> Any:
    return a, h, initial


def _backward(ctx: Any, grad: Any) -> Any:
    a, h, initial = ctx.saved_tensors
    dim, reverse = ctx.how
    is_direct = ctx.is_direct and is_eager() and not torch.is_grad_enabled()
    is_batched = is_legacy_batchedtensor(grad)  # under `is_grads_batched=True`
    if is_direct and is_plain(grad) and not is_batched:
        return _backward_scanned(grad, a, h, initial, dim, reverse)
    da, db = recurrence_backward(a, h, initial, grad, dim, reverse)
    dinitial = None
    if ctx.needs_input_grad[4]:
        if a.shape[dim]:
            first = a.shape[dim] - 1 if reverse else 0
            dinitial = a.select(dim, first).conj() * db.select(dim, first)
        else:
            dinitial = torch.zeros_like(initial)
    return da, db, dinitial


def _jvp(saved: Any, how: Any, da: Any, db: Any, dinitial: Any) -> Any:
    (a, h, initial), (dim, reverse) = saved, how
    x = torch.zeros_like(h) if db is None else db
    if da is not None:
        x = x + da * neighbours(h, dim, reverse, initial)
    return recurrence(a, x, dinitial, dim, reverse)


def _recorded(a: Any, b: Any, initial: Any = None, dim: int = -1, reverse: bool = False) -> Any:
    if not records(a, b, initial):
        return None
    if is_plain(b):
        _check(a, b, initial, dim)
    return _applied((dim % b.ndim, reverse), a, b, initial)


def _vmap(
    info: Any, in_dims: Any, a: Any, b: Any, initial: Any = None, dim: int = -1, reverse: bool = False
) -> Any:
    given = [batched(info, x, d) for x, d in zip((a, b), in_dims, strict=False)]
    first = None if initial is None else batched(info, initial, in_dims[2])
    return recurrence(*given, first, dim if dim < 0 else dim + 1, reverse), 0


recurrence = operator(
    "linear_recurrence",
    "(Tensor a, Tensor b, Tensor? initial=None, int dim=-1, bool reverse=False) -> Tensor",
    *(_kernel, _fake, _recorded, _vmap, inductor.recurrence),
)
_applied = differentiable("LinearRecurrence", _scanned, recurrence, _kept, _backward, _jvp)
recurrence_backward = operator(
    "linear_recurrence_backward",
    "(Tensor a, Tensor h, Tensor? initial, Tensor grad, int dim, bool reverse) -> (Tensor, Tensor)",
    *(_backward_kernel, _backward_fake, _backward_recorded, _backward_vmap, inductor.gradient),
)


def linear_recurrence(
    a: Tensor, b: Tensor, *, dim: int = -1, initial: Tensor | complex | None = None, reverse: bool = False
) -> Tensor:
    """Return h with ``h[t] = a[t] * h[t - 1] + b[t]`` along a dimension; it has gradients.

    Parameters
    ----------
    a, b : torch.Tensor
        On the CPU or on a GPU; of shapes that broadcast, and of dtypes that are promoted, as in ``a * b``.
        float16 and bfloat16 are combined in float32, also under autocast.
    dim : int, optional
    initial : torch.Tensor or number, optional
        What comes before the first item of each row, of the shape of the result without the dimension, or
        of one that broadcasts to it. Without it, ``h[0]`` is ``b[0]``, whatever ``a[0]`` is.
    reverse : bool, optional
        Whether ``h[t] = a[t] * h[t + 1] + b[t]``.

    Returns
    -------
    torch.Tensor
        In C's order.

    Raises
    ------
    TypeError, IndexError, RuntimeError
        If an argument is not one of these.

    Notes
    -----
    The gradient is a recurrence, too, backwards: E. Martin and C. Cundy, "Parallelizing Linear Recurrent
    Neural Nets Over Sequence Length", 2018. As products of `a` are made first, these may overflow where a
    loop's numbers would not.

    Examples
    --------
    >>> import torch
    >>> from cupar.torch import linear_recurrence
    >>> a = torch.full((3,), 0.5, requires_grad=True)
    >>> h = linear_recurrence(a, torch.ones(3))
    >>> h.tolist()
    [1.0, 1.5, 1.75]
    >>> h[2].backward()
    >>> a.grad.tolist()
    [0.0, 0.5, 1.5]
    """
    if torch.compiler.is_compiling() or not is_eager():
        return _dispatched(a, b, dim, initial, reverse)
    if (
        initial is not None
        or not (is_plain(a) and is_plain(b))
        or a.dtype is not b.dtype
        or a.shape != b.shape
        or a.device != b.device
        or type(dim) is not int
        or type(reverse) is not bool
    ):
        return _dispatched(a, b, dim, initial, reverse)
    ndim = b.ndim
    if not -ndim <= dim < ndim:
        return _dispatched(a, b, dim, initial, reverse)  # which raises, unless there are no dimensions
    if (a.requires_grad or b.requires_grad) and torch.is_grad_enabled():
        return _applied((dim % ndim, reverse), a, b, None)
    return _scanned(a, b, None, dim % ndim, reverse)


def _dispatched(a: Any, b: Any, dim: int, initial: Any, reverse: bool) -> Any:
    """Ask the dispatcher for the operator, of tensors that are broadcast and promoted."""
    for name, each in (("a", a), ("b", b)):
        if not isinstance(each, torch.Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(each).__name__}")
        if each.layout is not torch.strided:
            raise TypeError(f"{name}: expected a dense tensor, got one of layout {each.layout}")
    dtype = torch.promote_types(a.dtype, b.dtype)
    # Shapes are compared item by item from the first, whatever their lengths: that would guard sizes.
    if a.ndim != b.ndim or a.shape != b.shape:
        a, b = torch.broadcast_tensors(a, b)
    dim, reverse = dimension("dim", dim, b.ndim), flag("reverse", reverse)
    if not b.ndim:  # as PyTorch has it: rows of one item
        return _dispatched(a.unsqueeze(0), b.unsqueeze(0), 0, initial, reverse).squeeze(0)
    if initial is not None:
        shape = (*b.shape[:dim], *b.shape[dim + 1 :])
        is_number = not isinstance(initial, torch.Tensor)
        try:
            given = torch.full((), initial).dtype if is_number else initial.dtype
        except TypeError:
            wrong = type(initial).__name__
            raise TypeError(f"initial: expected a tensor or a number, got {wrong}") from None
        if not torch.can_cast(given, dtype):
            raise TypeError(f"initial: expected what {dtype} holds, as `a` and `b` are, got {given}")
        if is_number:
            initial = torch.full((), initial, dtype=dtype, device=b.device)
        if initial.ndim != len(shape) or initial.shape != shape:
            try:
                initial = initial.expand(shape)
            except RuntimeError:
                got = tuple(initial.shape)
                raise RuntimeError(
                    f"initial: expected shape {shape}, or one that broadcasts to it, got {got}"
                ) from None
        initial = initial.to(dtype)
    a, b = a.to(dtype), b.to(dtype)
    return direct(recurrence, a, b, initial)(a, b, initial, dim, bool(reverse))


# torch.compile takes it as a whole: traced, all that it reads would be guarded, and checked in each call.
torch.compiler.allow_in_graph(linear_recurrence)
