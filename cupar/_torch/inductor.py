"""What torch.compile's inductor makes of operators: recurrences of short rows fused, others called directly.

Inductor is imported when something is compiled, so its lowerings are registered as it asks for shapes. It has
no public interface for them: where a name of it is missing, operators are called as any other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import getitem
from typing import Any

import torch

# Rows up to this length are scanned in the kernel that surrounding code is fused into: inductor's scans have
# a program for each row, which read and write less, and one launch is left of three. Of many rows, these may
# be longer.
LONGEST_FUSED, LONGEST_OF_MANY, _MANY = 8192, 1 << 16, 512
# But large ones with nothing around them are quicker by cupar's kernels, if rows are longer than a block has
# threads.
_LARGE, _BLOCK = 1 << 20, 1024

_waiting: list[tuple[Any, str, Callable[..., Any] | None]] = []


def waits(op: Any, called: str, fused: Callable[..., Any] | None) -> None:
    """Have an operator lowered once inductor is there.

    Parameters
    ----------
    op : OpOverload
    called : str
        What compiled code calls in its place: the same, without the dispatcher.
    fused : callable, optional
        Given its arguments, returns expressions for inductor's kernels, or None.
    """
    _waiting.append((op, called, fused))


def hand_over() -> None:
    """Register lowerings, if something is compiled by inductor."""
    module = sys.modules.get("torch._inductor.lowering")
    with suppress(IndexError):
        while module is not None and _waiting:
            op, called, fused = _waiting.pop()
            with suppress(AttributeError, ImportError):
                module.register_lowering(op, type_promotion_kind=None)(_lowering(op, called, fused))


def _lowering(op: Any, called: str, fused: Callable[..., Any] | None) -> Callable[..., Any]:
    from .._pytorch import V, ir, lowering

    fallback, contiguous = lowering.fallback_handler(op, False), ir.ExternKernel.require_contiguous

    def lowered(*arguments: Any) -> Any:
        if fused is not None:
            with suppress(AttributeError, ImportError):
                if (found := fused(*arguments)) is not None:
                    return found
        before = len(V.graph.operations)
        made = fallback(*(contiguous(x) if isinstance(x, ir.TensorBox) else x for x in arguments))
        for each in V.graph.operations[before:]:
            if isinstance(each, ir.FallbackKernel) and not V.graph.cpp_wrapper:
                each.python_kernel_name = called
        return made

    return lowered


# --- Recurrences ------------------------------------------------------------------------------------------


def recurrence(a: Any, b: Any, initial: Any = None, dim: int = -1, reverse: bool = False) -> Any:
    """Return a recurrence as a scan of inductor's, or None if its rows are long."""
    from .._pytorch import ops

    found = _scan([a, b], dim)
    if found is None:
        return None
    at, within, scanned, pointwise, dim = found
    coefficient, item = a.make_loader(), b.make_loader()
    before = None if initial is None else initial.make_loader()
    size = b.get_size()

    def flipped(index: Any) -> Any:
        return at(index, size[dim] - 1 - index[dim]) if reverse else index

    def coefficients(index: Any) -> Any:
        return within(coefficient(flipped(index)))

    def items(index: Any) -> Any:
        x = within(item(flipped(index)))
        if before is None:
            return x
        is_first = ops.eq(ops.index_expr(index[dim], torch.int64), ops.constant(0, torch.int64))
        first = ops.add(ops.mul(coefficients(index), within(before([*index[:dim], *index[dim + 1 :]]))), x)
        return ops.where(is_first, first, x)

    h = scanned(coefficients, items)
    if h is None or (not reverse and h.get_dtype() is b.get_dtype()):
        return h
    load = h.make_loader()
    return pointwise(lambda index: load(flipped(index)))


def gradient(a: Any, h: Any, initial: Any, grad: Any, dim: int, reverse: bool) -> Any:
    """Return the gradients of a recurrence in the same way."""
    from .._pytorch import ops

    found = _scan([a, h, grad], dim)
    if found is None:
        return None
    at, within, scanned, pointwise, dim = found
    coefficient, state, slope = (each.make_loader() for each in (a, h, grad))
    before = None if initial is None else initial.make_loader()
    last = a.get_size()[dim] - 1

    def flipped(index: Any) -> Any:
        return index if reverse else at(index, last - index[dim])

    def coefficients(index: Any) -> Any:
        """Return that of the item behind."""
        is_any = ops.gt(ops.index_expr(index[dim], torch.int64), ops.constant(0, torch.int64))
        return within(ops.masked(is_any, lambda: coefficient(flipped(at(index, index[dim] - 1))), 1.0))

    scan = scanned(coefficients, lambda index: within(slope(flipped(index))))
    if scan is None:
        return None
    g = scan.make_loader()

    def of_a(index: Any) -> Any:
        where = ops.index_expr(index[dim], torch.int64)
        edge = ops.index_expr(last if reverse else 0, torch.int64)
        previous = at(index, index[dim] + 1 if reverse else index[dim] - 1)
        is_inside = ops.ne(where, edge)
        x = within(ops.masked(is_inside, lambda: state(previous), 0.0))
        if before is not None:
            x = ops.where(is_inside, x, within(before([*index[:dim], *index[dim + 1 :]])))
        return ops.mul(g(flipped(index)), x)

    return pointwise(of_a), pointwise(lambda index: g(flipped(index)))


def _scan(tensors: Sequence[Any], dim: int) -> Any:
    """Return what scans are made of; None if inductor is not to scan such rows."""
    from .._pytorch import V, ir, ops

    like, known = tensors[0], V.graph.sizevars
    size, dtype, device = like.get_size(), like.get_dtype(), like.get_device()
    dim %= len(size)
    rows = math.prod([*size[:dim], *size[dim + 1 :]])
    longest = LONGEST_OF_MANY if known.statically_known_geq(rows, _MANY) else LONGEST_FUSED
    if (
        device.type != "cuda"
        or dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        or not known.statically_known_leq(size[dim], longest)
        or not known.statically_known_geq(size[dim], 1)
    ):
        return None
    node = V.graph.current_node
    users = [user for each in (node, *node.users) for user in each.users if user.target is not getitem]
    is_read = all(
        isinstance(each.data, ir.StorageBox) and isinstance(each.data.data, ir.Buffer) for each in tensors
    )
    is_alone = is_read and all(each.op == "output" for each in users)
    if is_alone and not (
        known.statically_known_lt(rows * size[dim], _LARGE) or known.statically_known_leq(size[dim], _BLOCK)
    ):
        return None
    wide = torch.float32 if dtype.itemsize == 2 else dtype

    def at(index: Any, place: Any) -> Any:
        return [*index[:dim], place, *index[dim + 1 :]]

    def within(x: Any) -> Any:
        return x if wide is dtype else ops.to_dtype(x, wide)

    def combined(left: Any, right: Any) -> Any:
        return ops.mul(left[0], right[0]), ops.add(ops.mul(right[0], left[1]), right[1])

    def scanned(coefficients: Any, items: Any) -> Any:
        return ir.Scan.create(
            device=device,
            dtypes=(wide, wide),
            inner_fns=(coefficients, items),
            size=size,
            axis=dim,
            combine_fn=combined,
        )[1]

    def pointwise(inner: Any) -> Any:
        made = inner if wide is dtype else lambda index: ops.to_dtype(inner(index), dtype)
        return ir.Pointwise.create(device=device, dtype=dtype, inner_fn=made, ranges=size)

    return at, within, scanned, pointwise, dim
