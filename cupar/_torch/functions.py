"""The functions of `cupar.arrays` as operators, made from one table of results and gradients."""

from __future__ import annotations

import inspect
import math
import operator as operators
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Any

import torch

from .. import arrays
from .._arguments.initial import on_host
from .._functions import quantiles
from .._functions.values import dtype_with
from ..operators import OpKind
from . import results
from .operators import (
    batched,
    below,
    differentiable,
    dimension,
    numpy_dtype,
    on_device,
    operator,
    records,
    torch_dtype,
)
from .scans import scan
from .schemas import FUNCTIONS, LAST, TENSORS, OperatorRow, functions_of, schema_of, signature
from .user_functions import OperatorFamily, UserFunction, families, guarded_operator, operator_of

# --- Their gradients --------------------------------------------------------------------------------------

# Each takes the operator and its arguments, and returns results that are made of what has gradients itself.


def _flat(x: Any, dim: Any) -> tuple[Any, int]:
    return (x.reshape(-1), 0) if dim is None else (x, dim % x.ndim)


def _picked(x: Any, at: Any, dim: Any, keepdims: bool) -> Any:
    """Return the items of indices along a dimension, which is kept or not."""
    along, axis = _flat(x, dim)
    if dim is None:
        # A tensor in brackets would be read back by the host.
        return torch.index_select(along, 0, at.reshape(1)).reshape([1] * x.ndim if keepdims else [])
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


def _of_sort(op: Any, x: Any, dim: Any, descending: bool, stable: bool, less: Any = None) -> Any:
    along, axis = _flat(x, dim)
    places = operator_of("argsort", less)(along.detach(), axis, descending, True)
    return torch.take_along_dim(along, places, axis)


def _of_top_k(op: Any, x: Any, k: int, dim: Any, largest: bool) -> Any:
    along, axis = _flat(x, dim)
    with below():
        _, at = op(x.detach(), k, dim, largest)
    return torch.take_along_dim(along, at, axis), at


def _of_quantile(op: Any, x: Any, q: Any, dim: Any, method: str, keepdims: bool) -> Any:
    along, axis = _flat(x, _one("quantile", dim))
    ordered = _of_sort(None, along, axis, False, True)
    last, found = ordered.select(axis, -1), []
    for each in q:
        low, part = quantiles._place(each, ordered.shape[axis], method)
        first, second = (ordered.select(axis, i) for i in (low, low + 1 if part else low))
        between = torch.where(first == second, first, first + (second - first) * part)
        found.append(torch.where(last.isnan(), last, between))
    return torch.stack(found).reshape([len(q), *results.reduced(x.shape, dim, keepdims)])


def _by_indices(op: Any, x: Any, how: Any, dim: Any) -> Any:
    """Return the items of those indices that the operator makes of all."""
    along, axis = _flat(x, dim)
    with below():
        at = op(torch.arange(along.shape[axis], device=x.device), how, 0)
    found = torch.index_select(along, axis, at.reshape(-1))
    shape = along.shape
    return found if at.ndim == 1 else found.reshape([*shape[:axis], *at.shape, *shape[axis + 1 :]])


def _sum_kept(ctx: Any, found: Any, x: Any) -> Any:
    ctx.shape = x.shape
    return ()


def _sum_backward(ctx: Any, grad: Any) -> Any:
    dim, keepdims = ctx.how
    return ((grad if keepdims else grad.reshape(results.reduced(ctx.shape, dim, True))).expand(ctx.shape),)


def _sum_asked(*given: Any) -> Any:
    return operator_of("sum")(*given)


_sum = differentiable(
    "Sum", _sum_asked, _sum_asked, _sum_kept, _sum_backward, lambda saved, how, dx: _sum_asked(dx, *how)
)


def _of_sum(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return _sum(False, (dim, keepdims), x)


def _of_reduction(own: Any, x: Any, dim: Any, keepdims: bool, op: Any, init: Any = None) -> Any:
    """Return a reduction with the gradient of the last item of a scan."""
    along, axis = _flat(x, _one("reduce", dim))
    if init is not None:
        shape = [*along.shape]
        shape[axis] = 1
        along = torch.cat([along.new_full(shape, init), along], axis)
    if not along.shape[axis]:  # the identity, whatever `x` is: their sum is 0, and has a gradient
        with below():
            found = own(x.detach(), dim, keepdims)
        return found + _of_sum(own, x, dim, keepdims)
    return scan(along, op, dim=axis).select(axis, -1).reshape(results.reduced(x.shape, dim, keepdims))


def _of_product(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return _of_reduction(op, x, dim, keepdims, operators.mul)


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


def _segments_kept(ctx: Any, found: Any, x: Any, ids: Any) -> Any:
    ctx.shape = x.shape
    return (ids,)


def _segments_backward(ctx: Any, grad: Any) -> Any:
    (ids,), (number, _) = ctx.saved_tensors, ctx.how
    ids = ids.reshape(-1).to(results.INT64)
    is_any = (ids >= 0) & (ids < number)
    if not number:
        return grad.new_zeros(ctx.shape), None
    found = grad.index_select(0, torch.where(is_any, ids, 0))
    is_any = is_any.reshape(-1, *[1] * (grad.ndim - 1))
    return torch.where(is_any, found, 0).to(grad.dtype).reshape(ctx.shape), None


def _segments_asked(x: Any, ids: Any, number: Any, init: Any) -> Any:
    return operator_of("segment_reduce", OpKind.PLUS)(x, ids, number, init=init)


_segments = differentiable(
    *("SegmentSum", _segments_asked, _segments_asked, _segments_kept, _segments_backward),
    lambda saved, how, dx, *_: _segments_asked(dx, saved[0], how[0], None),
)


def _of_segments(_: Any, x: Any, ids: Any, number: Any, op: Any, init: Any = None) -> Any:
    return _segments(False, (number, init), x, ids) if op in (OpKind.PLUS, operators.add) else None


def _each_quantile(op: Any, x: Any, q: Any, *more: Any, **named: Any) -> Any:
    return op(x, [q], *more, **named)[0] if isinstance(q, (int, float)) else op(x, q, *more, **named)


def _repeated(op: Any, x: Any, repeats: Any, *more: Any, **named: Any) -> Any:
    if isinstance(repeats, int):
        repeats = torch.full((1,), repeats, device=x.device)
    return op(x, repeats, *more, **named)


# --- The table --------------------------------------------------------------------------------------------


_ROWS: dict[str, OperatorRow] = {
    "sum": OperatorRow(results.reduction(results.summed), _of_sum, several=True, neutral=0),
    "prod": OperatorRow(results.reduction(results.summed), _of_product, several=True, neutral=1),
    "min": OperatorRow(results.reduction(), _of_extreme("min"), several=True, neutral=math.inf),
    "max": OperatorRow(results.reduction(), _of_extreme("max"), several=True, neutral=-math.inf),
    "minmax": OperatorRow(results.minmax, _of_minmax, several=True, cls=arrays.MinMax),
    "reduce": OperatorRow(results.reduction(), _of_reduction, several=True),
    "any": OperatorRow(results.reduction(torch.bool), several=True),
    "all": OperatorRow(results.reduction(torch.bool), several=True),
    "count_nonzero": OperatorRow(results.reduction(results.INT64), several=True),
    "argmin": OperatorRow(results.reduction(results.INT64)),
    "argmax": OperatorRow(results.reduction(results.INT64)),
    "cumulative_sum": OperatorRow(results.cumulative, _of_cumulative(operators.add)),
    "cumulative_prod": OperatorRow(results.cumulative, _of_cumulative(operators.mul)),
    "sort": OperatorRow(lambda x, dim, descending, stable: [(results.along(x, dim), x.dtype)], _of_sort),
    "argsort": OperatorRow(lambda x, dim, descending, stable: [(results.along(x, dim), results.INT64)]),
    "top_k": OperatorRow(results.top_k, _of_top_k, cls=arrays.TopK),
    "searchsorted": OperatorRow(lambda x1, x2, side, sorter: [(x2.shape, results.INT64)]),
    "segment_reduce": OperatorRow(results.segments, _of_segments),
    "take": OperatorRow(results.taken, _by_indices),
    "diff": OperatorRow(results.diff, lambda op, x, dim, n, *ends: torch.diff(x, n, dim, *ends)),
    "isin": OperatorRow(lambda x1, x2, invert: [(x1.shape, torch.bool)]),
    "merge": OperatorRow(lambda a, b: [([a.shape[0] + b.shape[0]], a.dtype)]),
    "unique_values": OperatorRow(lambda x: [([results.length()], x.dtype)]),
    "unique_counts": OperatorRow(results.counts, cls=arrays.UniqueCounts),
    "copy_if": OperatorRow(results.selected),
    "remove_if": OperatorRow(results.selected),
    "compress": OperatorRow(lambda x, flags: results.selected(x)),
    "all_of": OperatorRow(results.reduction(torch.bool), several=True),
    "any_of": OperatorRow(results.reduction(torch.bool), several=True),
    "none_of": OperatorRow(results.reduction(torch.bool), several=True),
    "count_if": OperatorRow(results.reduction(results.INT64), several=True),
    "find_first": OperatorRow(lambda x: [([], results.INT64)]),
    "partition_by": OperatorRow(
        lambda x: [([math.prod(x.shape)], x.dtype), ([], results.INT64)], cls=arrays.Counted
    ),
    "nonzero": OperatorRow(results.nonzero, is_list=True, around=lambda op, x: tuple(op(x))),
    "repeat": OperatorRow(results.repeated, _by_indices, around=_repeated),
    "quantile": OperatorRow(results.quantile, _of_quantile, several=True, around=_each_quantile),
    "median": OperatorRow(
        lambda x, dim, keepdims: [(results.reduced(x.shape, dim, keepdims), results.real(x.dtype))],
        lambda op, x, dim, keepdims: _of_quantile(op, x, [0.5], dim, "linear", keepdims)[0],
        several=True,
    ),
    "bincount": OperatorRow(results.bins, types={"size": "SymInt?"}),
    "histogram": OperatorRow(results.histogram, cls=arrays.Histogram, types={"range": "float[]?"}),
    "run_length_encode": OperatorRow(results.counts, cls=arrays.Runs),
    "reduce_by_key": OperatorRow(results.runs, cls=arrays.Runs),
    "unique_inverse": OperatorRow(results.inverse, cls=arrays.UniqueInverse),
    "unique_all": OperatorRow(results.unique, cls=arrays.UniqueAll),
    "union1d": OperatorRow(results.union),
    **dict.fromkeys(("intersect1d", "setxor1d"), OperatorRow(results.set_of)),
    "setdiff1d": OperatorRow(results.difference),
}
NAMES = list(_ROWS)

# --- The operators ----------------------------------------------------------------------------------------


def _operator(name: str, known: str, *given: UserFunction | None) -> Any:  # noqa: PLR0915 - kernels share all
    row, called = _ROWS[name], getattr(arrays, name)
    how = schema_of(name, row)
    names, defaults = how.names, how.defaults
    tensors = [i for i, each in enumerate(names) if each in TENSORS]
    functions = {each: fn for each, fn in zip(functions_of(name), given, strict=True) if fn is not None}
    gradient = row.gradient

    def split(given: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments, and apart from them what comes last: that is given."""
        every = [*zip(names, given, strict=True)]
        last = {each: value for each, value in every if each in LAST and value is not None}
        return [value for each, value in every if each not in LAST], last

    def filled(arguments: Any) -> list[Any]:
        """Return all arguments, including defaults, which the dispatcher leaves out."""
        return [*arguments, *defaults[len(arguments) :]]

    @on_device
    def computed(*arguments: Any) -> Any:
        given = dict(zip(names, arguments, strict=True))
        for i in tensors:
            given[names[i]] = arguments[i] if arguments[i] is None else arguments[i].detach()
        dims = given.get("axis")
        if dims is not None and (ndim := arguments[0].ndim):
            several = isinstance(dims, (list, tuple))
            found = tuple([dimension("dim", dim, ndim) for dim in (dims if several else (dims,))])
            given["axis"] = found if several else found[0]
        if given.get("dtype") is not None:
            given["dtype"] = numpy_dtype("dtype", given["dtype"])
        given |= {each: fn.unchanged() for each, fn in functions.items()}
        first = [given.pop(each) for each in how.positional if each in given]
        found = called(*first, **given)
        return tuple(found) if isinstance(found, tuple) else found

    def kernel(*arguments: Any) -> Any:
        return computed(*filled(arguments))

    def fake(*arguments: Any) -> Any:
        given, last = split(filled(arguments))
        shapes = [*row.returns(*given)]
        if "dtype" in last:
            shapes[-1] = shapes[-1][0], last["dtype"]
        made = [given[0].new_empty(tuple(shape), dtype=dtype) for shape, dtype in shapes]
        return made if row.is_list else made[0] if len(made) == 1 else tuple(made)

    def differentiated(arguments: list[Any]) -> Any:
        given, last = split(arguments)
        if not (given[0].is_floating_point() or given[0].is_complex()):
            return None
        if "dtype" in last:
            given[0] = given[0].to(last.pop("dtype"))
        if "where" in last:
            if row.neutral is None:
                raise RuntimeError(f"where: the gradient of {name} is known of all items alone")
            given[0] = torch.where(last.pop("where"), given[0], row.neutral)
        return gradient(op, *given, **last, **{each: fn.fn for each, fn in functions.items()})

    def recorded(is_plain: bool, *arguments: Any) -> Any:
        given = filled(arguments)
        some = [given[i] for i in tensors]
        if not records(*some):
            return None
        found = None if gradient is None else differentiated(given)
        if found is None and any(each is not None and each.requires_grad for each in some):
            with below():
                found = op(*arguments)
            every = found if isinstance(found, (tuple, list)) else (found,)
            if any(each.is_floating_point() or each.is_complex() for each in every):
                raise RuntimeError(f"{known}: it has no gradient; give it .detach() of what requires one")
        return found

    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        given, dims = filled(arguments), [*in_dims, *[None] * len(names)]
        rows = []
        for row_number in range(info.batch_size):
            one = [
                x if i not in tensors or dims[i] is None else x.select(dims[i], row_number)
                for i, x in enumerate(given)
            ]
            found = op(*one)
            rows.append(found if isinstance(found, (tuple, list)) else (found,))
        stacked = [torch.stack(each) for each in zip(*rows, strict=True)]
        if row.is_list:
            return stacked, [0] * len(stacked)
        return (stacked[0], 0) if len(stacked) == 1 else (tuple(stacked), (0,) * len(stacked))

    def vmap_along(info: Any, in_dims: Any, *arguments: Any) -> Any:
        """Take the batch for one more dimension, where there is one to count along."""
        given = filled(arguments)
        at = names.index("axis")
        dim = given[at]
        if dim is None or any(given[i] is not None and names[i] != "where" for i in tensors[1:]):
            return vmap(info, in_dims, *arguments)
        for i in tensors:
            if given[i] is not None:
                given[i] = batched(info, given[i], in_dims[i])
        several, ndim = isinstance(dim, (list, tuple)), given[0].ndim - 1
        dims = [dimension("dim", each, ndim) + 1 for each in (dim if several else (dim,))]
        given[at] = dims if several else dims[0]
        found = op(*given)
        return found, (0,) * len(found) if isinstance(found, tuple) else names.count("q")  # q comes first

    result = "Tensor[]" if row.is_list else "Tensor"
    if row.cls is not None:
        result = f"({', '.join(['Tensor'] * len(row.cls._fields))})"
    by_dim = vmap_along if "axis" in names else vmap
    op = operator(known, f"({how.schema}) -> {result}", kernel, fake, recorded, by_dim)
    return op


families |= {name: OperatorFamily(partial(_operator, name), functions_of(name)) for name in NAMES}


_HAVE_NO_DTYPE = (NoneType, bool, int, float, complex)  # initial values


def _explained(name: str, given: dict[str, Any]) -> None:
    """Raise TypeError if an argument is no tensor that kernels take; PyTorch's own error says less."""
    for each, x in given.items():
        if each in TENSORS and x is not None and each != "repeats":
            if not isinstance(x, torch.Tensor):
                raise TypeError(f"{each}: expected a tensor, got {type(x).__name__}") from None
            if x.layout is not torch.strided or x.is_nested or x.is_quantized:
                kind = "nested" if x.is_nested else "quantized" if x.is_quantized else x.layout
                raise TypeError(f"{each}: {name} takes dense tensors, got one that is {kind}") from None


def _with_dtype_of_init(
    names: list[str], arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments with an initial value as a number, beside the dtype that it has had."""
    at = names.index("init")
    named = {**dict(zip(names[at:], arguments[at:], strict=False)), **named}
    arguments = arguments[:at]
    init, x = named["init"], arguments[0] if arguments else named.get("x")
    if torch.compiler.is_compiling():
        raise TypeError(
            f"init: under torch.compile it is a number of Python's, got one of type {type(init).__name__}"
        )
    if isinstance(init, torch.Tensor) and init.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("init: it has no gradient; give it .detach()")
    if named.get("dtype") is None and isinstance(x, torch.Tensor):
        named["dtype"] = torch_dtype(dtype_with(init, numpy_dtype("x", x.dtype)))
    return arguments, {**named, "init": on_host(init, "init").item()}


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of `cupar.torch` of that name."""
    row, takes = _ROWS[name], inspect.signature(getattr(arrays, name)).parameters
    around, cls, shown = row.around, row.cls, signature(name, row)
    _, names, defaults, _ = schema_of(name, row)
    at = names.index("axis") if "axis" in names else len(names)
    init_at = names.index("init") if "init" in names else len(names)
    default_dim = None if at == len(names) else defaults[at]
    functions = [each for each in takes if each in FUNCTIONS]
    place = next((i for i, each in enumerate(takes) if each in FUNCTIONS[:2]), None)
    default = None if place is None else takes[functions[0]].default
    known = frozenset(shown.parameters)
    plain: Any = operator_of(name, *[None for _ in functions]) if place is None else None

    def function(*arguments: Any, **named: Any) -> Any:
        given, op, fns = arguments, plain, []
        for each in named:
            if each not in known:
                raise TypeError(f"{name}() got an unexpected keyword argument {each!r}: it takes {shown}")
        rest = dict(named)
        if place is not None:
            if len(arguments) > place:
                fns.append(arguments[place])
                arguments = (*arguments[:place], *arguments[place + 1 :])
            elif default is inspect.Parameter.empty:
                raise TypeError(f"{name}: expected a function as argument {place + 1}, got none")
            else:
                fns.append(default)
        fns += [rest.pop(each, None) for each in functions[len(fns) :]]
        if place is not None or (fns and fns[-1] is not None):
            op = guarded_operator(name, *fns)
        point = arguments[0] if at < len(names) and arguments else None
        if isinstance(point, torch.Tensor) and not point.ndim:
            dim = rest.get("dim", arguments[at] if len(arguments) > at else default_dim)
            if dim is not None:  # as PyTorch has it: a row of one item
                rows = {k: v.reshape(1) if k == "where" and v is not None else v for k, v in named.items()}
                found = function(point.reshape(1), *given[1:], **rows)
                if cls is not None:
                    return cls(*(each.reshape(()) for each in found))
                return found.reshape(()) if found.shape == (1,) else found
        if type(rest.get("init", *arguments[init_at : init_at + 1])) not in _HAVE_NO_DTYPE:
            arguments, rest = _with_dtype_of_init(names, arguments, rest)
        if torch.compiler.is_compiling():
            found = op(*arguments, **rest) if around is None else around(op, *arguments, **rest)
        else:
            try:
                found = op(*arguments, **rest) if around is None else around(op, *arguments, **rest)
            except RuntimeError:
                _explained(name, {**dict(zip(names, arguments, strict=False)), **rest})
                raise
        return cls(*found) if cls is not None else found

    function.__name__ = function.__qualname__ = name
    function.__module__ = "cupar.torch"
    said = (getattr(arrays, name).__doc__ or "").partition("\n")[0]
    function.__doc__ = (
        f"{said}\n\n    It is `cupar.arrays.{name}`, which says more, as an operator of PyTorch.\n    "
    )
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function
