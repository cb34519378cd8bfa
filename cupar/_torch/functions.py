"""The functions of `cupar.arrays` as operators, made from one table of results and gradients."""

from __future__ import annotations

import inspect
import operator as operators
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .. import arrays
from ..operators import OpKind
from . import results
from .given import Function, as_it_compiles, guard
from .operators import (
    PLAIN_KEYS,
    batched,
    below,
    below_autograd,
    differentiable,
    dimension,
    on_device,
    operator,
    records,
)
from .scans import scan

# --- Their gradients --------------------------------------------------------------------------------------

# Each takes the operator and its arguments, and returns results that are made of what has gradients itself.


def _flat(x: Any, dim: Any) -> tuple[Any, int]:
    return (x.reshape(-1), 0) if dim is None else (x, dim % x.ndim)


def _picked(x: Any, at: Any, dim: Any, keepdims: bool) -> Any:
    """Return the items of indices along a dimension, which is kept or not."""
    along, axis = _flat(x, dim)
    if dim is None:
        found = along[at.reshape(())]
        return found.reshape([1] * x.ndim) if keepdims else found
    found = torch.take_along_dim(along, at if keepdims else at.unsqueeze(axis), axis)
    return found if keepdims else found.squeeze(axis)


def _one(name: str, dim: Any) -> Any:
    if isinstance(dim, (list, tuple)):
        if len(dim) != 1:
            raise RuntimeError(f"dim: the gradient of {name} is known along one dimension or all, got {dim}")
        return dim[0]
    return dim


def _of_extreme(name: str) -> Callable[..., Any]:
    def gradient(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
        dim = _one(name, dim)
        at = operator_of(f"arg{name}")(x.detach(), dim, keepdims)
        return _picked(x, at, dim, keepdims)

    return gradient


def _of_minmax(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return tuple(_of_extreme(name)(op, x, dim, keepdims) for name in ("min", "max"))


def _of_sort(op: Any, x: Any, dim: Any, descending: bool, stable: bool) -> Any:
    along, axis = _flat(x, dim)
    return torch.take_along_dim(along, operator_of("argsort")(along.detach(), axis, descending, True), axis)


def _of_top_k(op: Any, x: Any, k: int, dim: Any, largest: bool) -> Any:
    along, axis = _flat(x, dim)
    with below():
        _, at = op(x.detach(), k, dim, largest)
    return torch.take_along_dim(along, at, axis), at


def _of_take(op: Any, x: Any, indices: Any, dim: Any) -> Any:
    return torch.index_select(x, (dim or 0) % x.ndim, indices)


def _sum_forward(ctx: Any, x: Any, how: Any) -> Any:
    ctx.how = how
    dim, keepdims = how
    ctx.shape = x.shape
    with below():
        found = operator_of("sum")(x, dim, keepdims)
    ctx.save_for_backward()
    ctx.save_for_forward()
    return found


def _sum_backward(ctx: Any, grad: Any) -> Any:
    dim, keepdims = ctx.how
    kept = results.reduced(ctx.shape, dim, True)
    return (grad if keepdims else grad.reshape(kept)).expand(ctx.shape), None


def _sum_jvp(saved: Any, how: Any, dx: Any) -> Any:
    return operator_of("sum")(dx, *how)


_sum = differentiable("Sum", _sum_forward, _sum_backward, _sum_jvp)


def _of_sum(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return _sum(x, (dim, keepdims))


def _of_reduction(fn: Any) -> Callable[..., Any]:
    """Return the gradient of a reduction: that of the last item of a scan."""

    def gradient(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
        along, axis = _flat(x, _one("reduce", dim))
        if not along.shape[axis]:
            raise RuntimeError("x: a reduction of no items has no gradient")
        found = scan(along, fn, dim=axis).select(axis, -1)
        return found.reshape(results.reduced(x.shape, dim, keepdims))

    return gradient


def _of_cumulative(fn: Any) -> Callable[..., Any]:
    def gradient(op: Any, x: Any, dim: Any, include_initial: bool) -> Any:
        axis = (dim or 0) % x.ndim
        found = scan(x, fn, dim=axis)
        if not include_initial:
            return found
        shape = [*found.shape]
        shape[axis] = 1
        return torch.cat([found.new_full(shape, int(fn is operators.mul)), found], axis)

    return gradient


def _segments_forward(ctx: Any, x: Any, ids: Any, how: Any) -> Any:
    ctx.how = how
    with below():
        found = operator_of("segment_reduce", OpKind.PLUS)(x, ids, how[0])
    ctx.save_for_backward(ids)
    ctx.save_for_forward(ids)
    ctx.shape = x.shape
    return found


def _segments_backward(ctx: Any, grad: Any) -> Any:
    (ids,), (number,) = ctx.saved_tensors, ctx.how
    ids = ids.reshape(-1).to(results.INT64)
    is_any = (ids >= 0) & (ids < number)
    found = torch.where(is_any, grad.index_select(0, torch.where(is_any, ids, 0)), 0) if number else 0 * ids
    return found.to(grad.dtype).reshape(ctx.shape), None, None


def _segments_jvp(saved: Any, how: Any, dx: Any, *others: Any) -> Any:
    return operator_of("segment_reduce", OpKind.PLUS)(dx, saved[0], how[0])


_segments = differentiable("SegmentSum", _segments_forward, _segments_backward, _segments_jvp)


def _of_segments(fn: Any) -> Any:
    if fn is not OpKind.PLUS:
        return None
    return lambda op, x, ids, num_segments: _segments(x, ids, (num_segments,))


# --- The table --------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """What is known of a function beside its signature."""

    returns: Callable[..., results.Results]  # given its arguments
    gradient: Any = None  # or what makes one of the function of numbers that it is given
    several: bool = False  # whether `dim` may be several
    cls: Any = None  # of what it returns, if that is a tuple with names


_ROWS: dict[str, Row] = {
    "sum": Row(results.reduction(results.summed), _of_sum, several=True),
    "prod": Row(results.reduction(results.summed), _of_reduction(operators.mul), several=True),
    "min": Row(results.reduction(), _of_extreme("min"), several=True),
    "max": Row(results.reduction(), _of_extreme("max"), several=True),
    "minmax": Row(results.minmax, _of_minmax, several=True, cls=arrays.MinMax),
    "reduce": Row(results.reduction(), _of_reduction, several=True),
    "any": Row(results.reduction(torch.bool), several=True),
    "all": Row(results.reduction(torch.bool), several=True),
    "count_nonzero": Row(results.reduction(results.INT64), several=True),
    "argmin": Row(results.reduction(results.INT64)),
    "argmax": Row(results.reduction(results.INT64)),
    "cumulative_sum": Row(results.cumulative, _of_cumulative(operators.add)),
    "cumulative_prod": Row(results.cumulative, _of_cumulative(operators.mul)),
    "sort": Row(lambda x, dim, descending, stable: [(results.along(x, dim), x.dtype)], _of_sort),
    "argsort": Row(lambda x, dim, descending, stable: [(results.along(x, dim), results.INT64)]),
    "top_k": Row(results.top_k, _of_top_k, cls=arrays.TopK),
    "searchsorted": Row(lambda x1, x2, side: [(x2.shape, results.INT64)]),
    "segment_reduce": Row(lambda x, ids, num_segments: [([num_segments], x.dtype)], _of_segments),
    "take": Row(results.taken, _of_take),
    "diff": Row(results.diff, lambda op, x, dim, n: torch.diff(x, n, dim)),
    "isin": Row(lambda x1, x2, invert: [(x1.shape, torch.bool)]),
    "merge": Row(lambda a, b: [([a.shape[0] + b.shape[0]], a.dtype)]),
    "unique_values": Row(lambda x: [([results.length()], x.dtype)]),
    "unique_counts": Row(results.counts, cls=arrays.UniqueCounts),
    "copy_if": Row(lambda x: [([results.length()], x.dtype)]),
}
NAMES = list(_ROWS)

_TENSORS = ("x", "ids", "a", "b", "x1", "x2", "indices")
_OPERATORS = ("op", "predicate")
_TYPES = {
    **dict.fromkeys(_TENSORS, "Tensor"),
    **dict.fromkeys(("keepdims", "descending", "stable", "largest", "invert", "include_initial"), "bool"),
    **dict.fromkeys(("k", "n"), "int"),
    "num_segments": "SymInt",
    "side": "str",
}


class _Described(NamedTuple):
    schema: str
    names: list[str]
    defaults: list[Any]
    positional: list[str]  # of the function in `cupar.arrays`, operators among them


def _described(name: str, row: Row) -> _Described:
    """Return how an operator is called, from the signature in `cupar.arrays`."""
    texts, names, defaults, positional = [], [], [], []
    for each in inspect.signature(getattr(arrays, name)).parameters.values():
        if each.kind is each.POSITIONAL_ONLY:
            positional.append(each.name)
        if each.name not in _TYPES and each.name != "axis":
            continue
        kind = _TYPES.get(each.name) or (
            "int[1]?" if row.several else "int?" if each.default is None else "int"
        )
        if each.name == "axis" and each.default == -1 and name != "diff":
            kind = "int?"
        text = f"{kind} {'dim' if each.name == 'axis' else each.name}"
        if each.default is not each.empty:
            shown = f'"{each.default}"' if isinstance(each.default, str) else each.default
            text += f"={shown}"
        texts.append(text)
        names.append(each.name)
        defaults.append(each.default)
    return _Described(", ".join(texts), names, defaults, positional)


# --- The operators ----------------------------------------------------------------------------------------


def _operator(name: str, function: Function | None) -> Any:  # noqa: PLR0915 - its kernels share all of it
    row, known = _ROWS[name], name if function is None else f"{name}_{function.digest}"
    called, described = getattr(arrays, name), _described(name, row)
    names, defaults = described.names, described.defaults
    tensors = [i for i, each in enumerate(names) if each in _TENSORS]
    gradient = row.gradient
    if gradient is not None and function is not None:
        gradient = gradient(function.fn)

    def filled(arguments: Any) -> list[Any]:
        """Return all arguments, of which the dispatcher leaves out those that have their defaults."""
        return [*arguments, *defaults[len(arguments) :]]

    @on_device
    def computed(*arguments: Any) -> Any:
        given = dict(zip(names, arguments, strict=True))
        for i in tensors:
            given[names[i]] = arguments[i].detach()
        dims = given.get("axis")
        if dims is not None and (ndim := arguments[0].ndim):
            several = isinstance(dims, (list, tuple))
            found = tuple([dimension("dim", dim, ndim) for dim in (dims if several else (dims,))])
            given["axis"] = found if several else found[0]
        if function is not None:
            given |= dict.fromkeys(_OPERATORS, function.unchanged())
        first = [given.pop(each) for each in described.positional]
        found = called(*first, **{each: value for each, value in given.items() if each not in _OPERATORS})
        return tuple(found) if isinstance(found, tuple) else found

    def kernel(*arguments: Any) -> Any:
        return computed(*filled(arguments))

    def fake(*arguments: Any) -> Any:
        given = filled(arguments)
        made = [given[0].new_empty(tuple(shape), dtype=dtype) for shape, dtype in row.returns(*given)]
        return made[0] if len(made) == 1 else tuple(made)

    def autograd(op: Any) -> Any:
        def of_gradients(keys: Any, *arguments: Any) -> Any:
            given = filled(arguments)
            is_recorded = records(*(given[i] for i in tensors))
            if is_recorded and gradient is not None and given[0].dtype.is_floating_point:
                return gradient(op, *given)
            if keys.raw_repr() in PLAIN_KEYS:
                found = computed(*given)
            else:
                with below_autograd():
                    found = op(*arguments)
            if is_recorded and any(given[i].requires_grad for i in tensors):
                every = found if isinstance(found, tuple) else (found,)
                if any(each.is_floating_point() or each.is_complex() for each in every):
                    raise RuntimeError(f"{known}: it has no gradient; give it .detach() of what requires one")
            return found

        return of_gradients

    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        given, dims = filled(arguments), [*in_dims, *[None] * len(names)]
        rows = []
        for row_number in range(info.batch_size):
            one = [x if dims[i] is None else x.select(dims[i], row_number) for i, x in enumerate(given)]
            found = op(*one)
            rows.append(found if isinstance(found, tuple) else (found,))
        stacked = tuple(torch.stack(each) for each in zip(*rows, strict=True))
        return (stacked[0], 0) if len(stacked) == 1 else (stacked, (0,) * len(stacked))

    def vmap_along(info: Any, in_dims: Any, *arguments: Any) -> Any:
        """Take the batch for one more dimension, where there is one to count along."""
        given = filled(arguments)
        at = names.index("axis")
        dim = _one(name, given[at])
        if len(tensors) != 1 or dim is None:
            return vmap(info, in_dims, *arguments)
        given[0] = batched(info, given[0], in_dims[0])
        given[at] = dim % (given[0].ndim - 1) + 1
        found = op(*given)
        return found, (0,) * len(found) if isinstance(found, tuple) else 0

    number = len(row.returns.__defaults__ or ()) or (2 if row.cls is not None else 1)
    result = "Tensor" if number == 1 else f"({', '.join(['Tensor'] * number)})"
    by_dim = vmap_along if "axis" in names else vmap
    op = operator(known, f"({described.schema}) -> {result}", kernel, fake, autograd, by_dim)
    return op


_operators: dict[Any, tuple[Any, Function | None]] = {}


def operator_of(name: str, fn: Any = None) -> Any:
    """Return the operator of a function, and of what it is given as an operator."""
    function = None if fn is None else Function(fn)
    key = name, None if function is None else function.digest
    found = _operators.get(key)
    if found is None:
        found = _operators.setdefault(key, (_operator(name, function), function))
    if found[1] is not None:
        found[1].fn = fn
    return found[0]


@as_it_compiles
def _name_of(name: str, fn: Any, same: int) -> str:
    return str(operator_of(name, fn)._schema.name.partition("::")[2])


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of `cupar.torch` of that name."""
    row, takes = _ROWS[name], inspect.signature(getattr(arrays, name)).parameters
    cls, default = row.cls, next((takes[each].default for each in _OPERATORS if each in takes), None)
    has_operator = default is not None
    place = next((i for i, each in enumerate(takes) if each in _OPERATORS), 0)
    plain = None if has_operator else operator_of(name)

    def function(*arguments: Any, **named: Any) -> Any:
        op: Any = plain
        if has_operator:
            if len(arguments) > place:
                fn = arguments[place]
                arguments = (*arguments[:place], *arguments[place + 1 :])
            elif default is inspect.Parameter.empty:
                raise TypeError(f"{name}: expected a function as argument {place + 1}, got none")
            else:
                fn = default
            if torch.compiler.is_compiling():
                op = getattr(torch.ops.cupar, _name_of(name, fn, guard(fn))).default
            else:
                op = operator_of(name, fn)
        found = op(*arguments, **named)
        return cls(*found) if cls is not None else found

    function.__name__ = function.__qualname__ = name
    function.__module__ = "cupar.torch"
    said = (getattr(arrays, name).__doc__ or "").partition("\n")[0]
    function.__doc__ = (
        f"{said}\n\n    It is `cupar.arrays.{name}`, which says more, as an operator of PyTorch.\n    "
    )
    function.__signature__ = _signature(name)  # type: ignore[attr-defined]
    return function


def _signature(name: str) -> inspect.Signature:
    """Return that of the function in `cupar.arrays`, without what the operator does not take.

    Operators take all arguments by position, too, as PyTorch's own do.
    """
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    taken = [
        each.replace(
            name="dim" if each.name == "axis" else each.name,
            annotation=each.empty,
            kind=min(each.kind, positional),
        )
        for each in inspect.signature(getattr(arrays, name)).parameters.values()
        if each.name in _TYPES or each.name in _OPERATORS or each.name == "axis"
    ]
    return inspect.Signature(taken)
