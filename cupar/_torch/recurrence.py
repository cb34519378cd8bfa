"""The linear recurrence as an operator: its kernel, its gradient, which is one too, and its tangent."""

from __future__ import annotations

from typing import Any

import torch

from .._base.bounded import of_builds
from .._base.data import Recent
from .._functions import scans
from .._functions.axes import AxisLayout
from .._functions.recurrences import gradient_scan
from .._functions.values import accumulated, cast, flag
from .._ir.iterator import over
from ..iterators import ReverseIterator
from . import inductor, plans
from .operators import (
    batched,
    differentiable,
    dimension,
    is_batched,
    is_eager,
    is_plain,
    made_for,
    numpy_dtype,
    on_device,
    operator,
    records,
    same_device,
    stream_of,
)
from .templates import template

# --- The kernel -------------------------------------------------------------------------------------------

# By what the code depends on; and by all that a call depends on but addresses.
_plans: Recent[Any, Any] = of_builds(Recent(128))
_calls: Recent[Any, Any] = of_builds(Recent(512))


def _plan(key: Any, b: Any, layout: AxisLayout, reverse: bool, has_initial: bool) -> Any:
    """Return the shared state of calls with a key: a scan, and templates of its input and output."""
    found = _plans.find(key)
    if found is not None:
        return found
    dtype = numpy_dtype("b", b.dtype)
    if dtype.kind == "b":
        raise TypeError("b: expected numbers, got torch.bool")
    within = accumulated(dtype)

    def made() -> Any:
        # Backwards, addresses are those of the last items.
        a, items, h = (over(name, dtype) for name in ("a", "b", "h"))
        pairs, written = scans.recurrence_ends(a, items, h, within)
        if reverse:
            pairs, written = ReverseIterator(pairs), ReverseIterator(written)
        if has_initial:
            first = ReverseIterator(dtype) if reverse else over("initial", dtype)
            before = scans.of_rows(cast(first, within), layout)
            pairs = scans.with_initial(pairs, before, layout)
        scan = plans.scan_of(plans.kind_of(layout), pairs, written, scans.combined)
        return scan, template(pairs), template(written)

    found = _plans[key] = made_for(b, made)
    return found


def _call(b: Any, dim: int, reverse: bool, has_initial: bool) -> Any:
    """Return how to do calls with tensors like one: a plan, the layout, and how far the last items are."""
    layout = plans.layout_along(b.shape, dim)
    # Only the initial values are found by numbers that are part of a template.
    rows = layout if has_initial else plans.kind_of(layout)
    plan = _plan((b.dtype, rows, reverse, b.device), b, layout, reverse, has_initial)
    itemsize = b.dtype.itemsize
    steps = ((layout.size - 1) * itemsize, (layout.rows - 1) * itemsize) if reverse else (0, 0)
    return *plan, layout, *steps


@on_device
def _scanned(a: Any, b: Any, initial: Any, dim: int, reverse: bool) -> Any:
    a, b = a.contiguous(), b.contiguous()
    h = torch.empty_like(b)
    key = b.dtype, b.shape, dim, reverse, initial is None, b.device
    try:
        scan, source, target, layout, last, last_row = _calls[key]
    except KeyError:
        if not b.numel():
            return h
        _calls[key] = scan, source, target, layout, last, last_row = _call(
            b, dim, reverse, initial is not None
        )
    if initial is None:
        pairs = source(a.data_ptr() + last, b.data_ptr() + last)
    else:
        initial = initial.contiguous()
        pairs = source(a.data_ptr() + last, b.data_ptr() + last, initial.data_ptr() + last_row)
    scan(stream_of(b), pairs, target(h.data_ptr() + last), layout)
    return h


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


_gradients: Recent[Any, Any] = of_builds(Recent(512))


def _gradient_call(b: Any, dim: int, reverse: bool) -> Any:
    layout, dtype = plans.layout_along(b.shape, dim), numpy_dtype("grad", b.dtype)

    def made() -> Any:
        items, written, op = gradient_scan(dtype, dtype, dtype, dtype, dtype, layout, reverse)
        scan = plans.scan_of(plans.kind_of(layout), items, written, op)
        return scan, template(items), template(written), layout

    return made_for(b, made)


@on_device
def _backward_scanned(grad: Any, a: Any, h: Any, initial: Any, dim: int, reverse: bool) -> Any:
    if grad.is_complex():
        a, h = a.conj().resolve_conj(), h.conj().resolve_conj()
    a, h, grad = a.contiguous(), h.contiguous(), grad.contiguous()
    da, db = torch.empty_like(grad), torch.empty_like(grad)
    key = grad.dtype, grad.shape, dim, reverse, grad.device
    try:
        scan, source, target, layout = _gradients[key]
    except KeyError:
        if not grad.numel():
            return da, db
        _gradients[key] = scan, source, target, layout = _gradient_call(grad, dim, reverse)
    items = source(a.data_ptr(), grad.data_ptr(), h.data_ptr())
    scan(stream_of(grad), items, target(da.data_ptr(), db.data_ptr()), layout)
    first = (
        layout.length - 1 if reverse else 0
    )  # of each row: what the scan writes there is of the row before
    if initial is not None:
        torch.mul(db.select(dim, first), initial.conj(), out=da.select(dim, first))
    elif layout.rows > 1:
        da.select(dim, first).zero_()
    return da, db


def _backward_kernel(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    for name, each in (("a", a), ("h", h)):
        if each.shape != grad.shape or each.dtype is not grad.dtype:
            raise RuntimeError(f"{name}: expected the shape and dtype of `grad`, got {tuple(each.shape)}")
    return _backward_scanned(grad, a, h, initial, dim, reverse)


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
    if is_direct and is_plain(grad) and not is_batched(grad):
        da, db = _backward_scanned(grad, a, h, initial, dim, reverse)
    else:
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


def linear_recurrence(a: Any, b: Any, *, dim: int = -1, initial: Any = None, reverse: bool = False) -> Any:
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
    return recurrence(a.to(dtype), b.to(dtype), initial, dim, bool(reverse))


# torch.compile takes it as a whole: traced, all that it reads would be guarded, and checked in each call.
torch.compiler.allow_in_graph(linear_recurrence)
