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
from torch.compiler import is_compiling

from .. import arrays
from .._arguments.initial import on_host
from .._base.data import Recent
from .._base.errors import ArgumentError
from .._functions import quantiles
from .._functions.axes import INT64
from .._functions.values import dtype_with
from ..operators import OpKind
from . import results
from .eager import NO_CALL, eager_of
from .registration import (
    batched,
    below,
    differentiable,
    dimensions,
    direct,
    is_eager,
    numpy_dtype,
    on_device,
    operator,
    records,
    torch_dtype,
    without_gradient,
)
from .scans import scan
from .schemas import FUNCTIONS, LAST, TENSORS, OperatorRow, functions_of, schema_of, signature
from .user_functions import OperatorFamily, UserFunction, families, guarded_operator, operator_of

# --- Their gradients --------------------------------------------------------------------------------------

# Each takes the operator and its arguments, and returns results that are made of what has gradients itself.


def _flat(x: Any, dim: Any) -> tuple[Any, int]:
    """Return a tensor with several dimensions, or all, joined into one, and which one that is."""
    if dim is None:
        return x.reshape(-1), 0
    if not isinstance(dim, tuple):
        return x, dim
    if len(dim) == 1:
        return x, dim[0]
    rest, joined = [i for i in range(x.ndim) if i not in dim], sorted(dim)
    shape = [*(x.shape[i] for i in rest), math.prod(x.shape[i] for i in joined)]
    return x.permute(*rest, *joined).reshape(shape), len(rest)


def asked(name: str, x: Any, *given: Any) -> Any:
    """Call the operator of a function."""
    return direct(operator_of(name), x)(x, *given)


def _of_extreme(name: str) -> Callable[..., Any]:
    def gradient(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
        along, axis = _flat(x, dim)
        at = asked(f"arg{name}", along.detach(), axis, True)
        found = torch.gather(along, axis, at)
        return found if keepdims and along is x else found.reshape(results.reduced(x.shape, dim, keepdims))

    return gradient


def _of_minmax(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return tuple(_of_extreme(name)(op, x, dim, keepdims) for name in ("min", "max"))


def _of_sort(op: Any, x: Any, dim: Any, descending: bool, stable: bool, less: Any = None) -> Any:
    along, axis = _flat(x, dim)
    along_alone = along.detach()
    places = direct(operator_of("argsort", less), along_alone)(along_alone, axis, descending, True)
    return torch.gather(along, axis, places)


def _of_top_k(op: Any, x: Any, k: int, dim: Any, largest: bool) -> Any:
    along, axis = _flat(x, dim)
    alone = x.detach()
    with below():
        _, at = direct(op, alone)(alone, k, dim, largest)
    return torch.gather(along, axis, at), at


# The values are the operator's own, and the gradient is that of weighted means of the items beside them: the
# means themselves may overflow, or be NaN beside infinities.
def _quantiles_asked(x: Any, means: Any, name: str, *given: Any) -> Any:
    return asked(name, x, *given)


_quantiles = differentiable(
    *("Quantile", _quantiles_asked, _quantiles_asked, lambda ctx, found, x, means: ()),
    *(lambda ctx, grad: (None, grad), lambda saved, how, dx, dmeans: dmeans),
)


def _means(x: Any, q: Any, dim: Any, method: str) -> Any:
    """Return weighted means of the items beside quantiles, each in a row."""
    along, axis = _flat(x, dim)
    places = asked("argsort", along.detach(), axis, False, True)
    found = [along.narrow(axis, 0, 0)]
    for each in q:
        low, part = quantiles.rank_of(each, along.shape[axis], method)
        two = [
            torch.take_along_dim(along, places.narrow(axis, low + i, 1), axis)
            for i in range(2 if part else 1)
        ]
        found.append(two[0] * (1 - part) + two[1] * part if part else two[0])
    return torch.cat(found, axis).movedim(axis, 0)


def _of_quantile(op: Any, x: Any, q: Any, dim: Any, method: str, keepdims: bool) -> Any:
    means = _means(x, q, dim, method).reshape([len(q), *results.reduced(x.shape, dim, keepdims)])
    return _quantiles(("quantile", q, dim, method, keepdims), x.detach(), means)


def _of_median(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    means = _means(x, [0.5], dim, "linear").reshape(results.reduced(x.shape, dim, keepdims))
    return _quantiles(("median", dim, keepdims), x.detach(), means)


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
    if isinstance(dim, int) and not keepdims:
        grad = grad.unsqueeze(dim)
    elif dim is not None and not keepdims:
        grad = grad.reshape(results.reduced(ctx.shape, dim, True))
    return (grad.expand(ctx.shape),)


def _sum_asked(*given: Any) -> Any:
    return asked("sum", *given)


_sum = differentiable(
    "Sum", _sum_asked, _sum_asked, _sum_kept, _sum_backward, lambda saved, how, dx: _sum_asked(dx, *how)
)


def _of_sum(op: Any, x: Any, dim: Any, keepdims: bool) -> Any:
    return _sum((dim, keepdims), x)


def _of_reduction(own: Any, x: Any, dim: Any, keepdims: bool, op: Any, init: Any = None) -> Any:
    """Return a reduction with the gradient of the last item of a scan."""
    along, axis = _flat(x, dim)
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
        along, axis = _flat(x, dim)
        found = scan(along, fn, dim=axis)
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
    ids = ids.reshape(-1).to(torch.int64)
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
    return _segments((number, init), x, ids) if op in (OpKind.PLUS, operators.add) else None


def _each_quantile(op: Any, x: Any, q: Any, *more: Any, **named: Any) -> Any:
    return op(x, [q], *more, **named)[0] if isinstance(q, (int, float)) else op(x, q, *more, **named)


def _repeated(op: Any, x: Any, repeats: Any, *more: Any, **named: Any) -> Any:
    if isinstance(repeats, int):
        repeats = torch.full((1,), repeats, device=x.device)
    return op(x, repeats, *more, **named)


def _of_differences(op: Any, x: Any, dim: int, n: int, *ends: Any) -> Any:
    if n and any(each is not None for each in ends):
        prepend, append = (
            each.expand([1 if i == dim else m for i, m in enumerate(x.shape)])
            if each is not None and not each.ndim
            else each
            for each in ends
        )
        x = torch.cat([each for each in (prepend, x, append) if each is not None], dim)
    return torch.diff(x, n, dim)


# --- The table --------------------------------------------------------------------------------------------


_ROWS: dict[str, OperatorRow] = {
    "sum": OperatorRow(results.named("sum"), _of_sum, several=True, neutral=0),
    "prod": OperatorRow(results.named("prod"), _of_product, several=True, neutral=1),
    "min": OperatorRow(results.named("min"), _of_extreme("min"), several=True, neutral=math.inf),
    "max": OperatorRow(results.named("max"), _of_extreme("max"), several=True, neutral=-math.inf),
    "minmax": OperatorRow(results.extreme("minmax", 2), _of_minmax, several=True, cls=arrays.MinMax),
    "reduce": OperatorRow(results.reduction(), _of_reduction, several=True),
    "any": OperatorRow(results.named("any"), several=True),
    "all": OperatorRow(results.named("all"), several=True),
    "count_nonzero": OperatorRow(results.named("count_nonzero"), several=True),
    "argmin": OperatorRow(results.extreme("argmin", dtype=INT64)),
    "argmax": OperatorRow(results.extreme("argmax", dtype=INT64)),
    "cumulative_sum": OperatorRow(results.cumulative, _of_cumulative(operators.add)),
    "cumulative_prod": OperatorRow(results.cumulative, _of_cumulative(operators.mul)),
    "sort": OperatorRow(results.sorted_, _of_sort),
    "argsort": OperatorRow(results.argsort),
    "top_k": OperatorRow(results.top_k, _of_top_k, cls=arrays.TopK),
    "searchsorted": OperatorRow(results.ranks),
    "segment_reduce": OperatorRow(results.segments, _of_segments),
    "take": OperatorRow(results.taken, _by_indices),
    "diff": OperatorRow(results.diff, _of_differences),
    "isin": OperatorRow(results.members),
    "merge": OperatorRow(results.merged),
    "unique_values": OperatorRow(results.selected),
    "unique_counts": OperatorRow(results.counts, cls=arrays.UniqueCounts),
    "copy_if": OperatorRow(results.selected),
    "remove_if": OperatorRow(results.selected),
    "compress": OperatorRow(results.selected),
    "all_of": OperatorRow(results.reduction(results.BOOL), several=True),
    "any_of": OperatorRow(results.reduction(results.BOOL), several=True),
    "none_of": OperatorRow(results.reduction(results.BOOL), several=True),
    "count_if": OperatorRow(results.reduction(INT64), several=True),
    "find_first": OperatorRow(lambda x: [([], INT64)]),
    "partition_by": OperatorRow(results.partitioned, cls=arrays.Counted),
    "nonzero": OperatorRow(results.nonzero, is_list=True, around=lambda op, x: tuple(op(x))),
    "repeat": OperatorRow(results.repeated, _by_indices, around=_repeated),
    "quantile": OperatorRow(results.quantile, _of_quantile, several=True, around=_each_quantile),
    "median": OperatorRow(results.median, _of_median, several=True),
    "bincount": OperatorRow(results.bins, types={"size": "SymInt?"}),
    "histogram": OperatorRow(results.histogram, cls=arrays.Histogram, types={"range": "float[]?"}),
    "run_length_encode": OperatorRow(results.counts, cls=arrays.Runs),
    "reduce_by_key": OperatorRow(results.runs, cls=arrays.Runs),
    "unique_inverse": OperatorRow(results.inverse, cls=arrays.UniqueInverse),
    "unique_all": OperatorRow(results.unique, cls=arrays.UniqueAll),
    **dict.fromkeys(("union1d", "intersect1d", "setxor1d"), OperatorRow(results.set_of)),
    "setdiff1d": OperatorRow(results.difference),
}
NAMES = list(_ROWS)

# --- The operators ----------------------------------------------------------------------------------------


def _key(given: Any) -> Any:
    """Return of an argument what checks of it depend on."""
    if isinstance(given, torch.Tensor):
        return given.shape, given.dtype
    return tuple(given) if isinstance(given, list) else given


def _operator(name: str, known: str, *given: UserFunction | None) -> Any:  # noqa: PLR0915 - kernels share all
    row, called = _ROWS[name], getattr(arrays, name)
    how = schema_of(name, row)
    names, defaults = how.names, how.defaults
    tensors = [i for i, each in enumerate(names) if each in TENSORS]
    axis: Any = names.index("axis") if "axis" in names else None
    functions = {each: fn for each, fn in zip(functions_of(name), given, strict=True) if fn is not None}
    gradient = row.gradient
    checked: Recent[Any, bool] = Recent(64)

    def split(given: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments, and apart from them what comes last: that is given."""
        every = [*zip(names, given, strict=True)]
        last = {each: value for each, value in every if each in LAST and value is not None}
        return [value for each, value in every if each not in LAST], last

    def filled(arguments: Any) -> list[Any]:
        """Return all arguments, including defaults, which the dispatcher leaves out; dimensions from 0 on."""
        given = [*arguments, *defaults[len(arguments) :]]
        if axis is not None and given[axis] is not None and (ndim := given[0].ndim):
            given[axis] = dimensions(given[axis], ndim)
        return given

    def foretold(given: list[Any]) -> list[results.Result]:
        """Return shapes and dtypes of the results; raise what the function raises of such arguments."""
        with_operands = [
            results.operand(names[i], x) if i in tensors and x is not None else x for i, x in enumerate(given)
        ]
        first, last = split(with_operands)
        rule = row.returns(*first)
        return results.checked(first[-1 if name == "reduce_by_key" else 0], rule, **last) if last else rule

    @on_device
    def computed(*arguments: Any) -> Any:
        given = dict(zip(names, arguments, strict=True))
        for i in tensors:
            given[names[i]] = without_gradient(arguments[i])
        if given.get("dtype") is not None:
            given["dtype"] = numpy_dtype("dtype", given["dtype"])
        given |= {each: fn.unchanged() for each, fn in functions.items()}
        first = [given.pop(each) for each in how.positional if each in given]
        found = called(*first, **given)
        return tuple(found) if isinstance(found, tuple) else found

    def kernel(*arguments: Any) -> Any:
        return computed(*filled(arguments))

    def fake(*arguments: Any) -> Any:
        shapes, length = foretold(filled(arguments)), None
        if any(None in shape for shape, _ in shapes):
            length = torch.library.get_ctx().new_dynamic_size()
        made = [
            arguments[0].new_empty([length if n is None else n for n in shape], dtype=torch_dtype(dtype))
            for shape, dtype in shapes
        ]
        return made if row.is_list else made[0] if len(made) == 1 else tuple(made)

    def differentiated(arguments: list[Any]) -> Any:
        given, last = split(arguments)
        if not (given[0].is_floating_point() or given[0].is_complex()):
            return None
        key: Any = tuple([_key(each) for each in arguments])
        try:
            is_checked = checked.find(key)
        except TypeError:  # sizes that are symbols have no hash
            is_checked = key = None
        if not is_checked:
            foretold(arguments)
            if key is not None:
                checked[key] = True
        if "dtype" in last:
            given[0] = given[0].to(last.pop("dtype"))
        if "where" in last:
            if row.neutral is None:
                raise RuntimeError(f"where: the gradient of {name} is known of all items alone")
            given[0] = torch.where(last.pop("where") != 0, given[0], row.neutral)
        return gradient(op, *given, **last, **{each: fn.fn for each, fn in functions.items()})

    def recorded(*arguments: Any) -> Any:
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
        given = [*arguments, *defaults[len(arguments) :]]
        dim = given[axis]
        if dim is None or any(given[i] is not None and names[i] != "where" for i in tensors[1:]):
            return vmap(info, in_dims, *arguments)
        for i in tensors:
            if given[i] is not None:
                given[i] = batched(info, given[i], in_dims[i])
        dims = dimensions(dim, given[0].ndim - 1)
        given[axis] = tuple([each + 1 for each in dims]) if isinstance(dims, tuple) else dims + 1
        found = op(*given)
        return found, (0,) * len(found) if isinstance(found, tuple) else names.count("q")  # q comes first

    result = "Tensor[]" if row.is_list else "Tensor"
    if row.cls is not None:
        result = f"({', '.join(['Tensor'] * len(row.cls._fields))})"
    by_dim = vmap if axis is None else vmap_along
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
    if is_compiling():
        raise TypeError(
            f"init: under torch.compile it is a number of Python's, got one of type {type(init).__name__}"
        )
    if isinstance(init, torch.Tensor) and init.requires_grad and torch.is_grad_enabled():
        raise RuntimeError("init: it has no gradient; give it .detach()")
    if named.get("dtype") is None and isinstance(x, torch.Tensor):
        named["dtype"] = torch_dtype(dtype_with(init, numpy_dtype("x", x.dtype)))
    return arguments, {**named, "init": on_host(init, "init").item()}


def _of_point(function: Any, given: Any, named: dict[str, Any], has_row: bool) -> list[Any]:
    """Call a function with a row of one item in place of a tensor without dimensions, as PyTorch does.

    Results that have the row, too, are without it.
    """
    rows = {k: v.reshape(1) if k == "where" and v is not None else v for k, v in named.items()}
    found = function(given[0].reshape(1), *given[1:], **rows)
    every = found if isinstance(found, tuple) else (found,)
    return [x.squeeze(-1) if has_row and x.shape[-1] == 1 else x for x in every]


def _described(function: Any, name: str, shown: inspect.Signature) -> Callable[..., Any]:
    """Return a function with the name, the signature and the help that users see."""
    function.__name__ = function.__qualname__ = name
    function.__module__ = "cupar.torch"
    function.__doc__ = (
        f"{str(getattr(arrays, name).__doc__).splitlines()[0]}\n\n    "
        f"It is `cupar.arrays.{name}`, which says more, as an operator of PyTorch.\n    "
    )
    function.__signature__ = shown
    function.__annotations__ = {
        **{each.name: each.annotation for each in shown.parameters.values()},
        "return": shown.return_annotation,
    }
    return function  # type: ignore[no-any-return]


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of `cupar.torch` of that name."""
    row, takes = _ROWS[name], inspect.signature(getattr(arrays, name)).parameters
    around, cls, shown = row.around, row.cls, signature(name, row)
    _, names, _, defaults, _ = schema_of(name, row)
    by_place = {each: i for i, each in enumerate(names)}
    init_at = by_place.get("init", len(names))
    functions = [each for each in takes if each in FUNCTIONS]
    place = next((i for i, each in enumerate(takes) if each in FUNCTIONS[:2]), None)
    default = None if place is None else takes[functions[0]].default
    known = shown.parameters
    plain: Any = operator_of(name, *[None for _ in functions]) if place is None else None

    def function(*arguments: Any, **named: Any) -> Any:
        given, op, fns = arguments, plain, []
        for each in named:
            if each not in known:
                raise TypeError(
                    f"{name}() got an unexpected keyword argument {each!r}: it takes ({', '.join(known)})"
                )
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
        point = arguments[0] if "axis" in by_place and arguments else None
        if isinstance(point, torch.Tensor) and not point.ndim:

            def value_of(each: str, shown: str) -> Any:
                i = by_place[each]
                return rest.get(shown, arguments[i] if len(arguments) > i else defaults[i])

            if value_of("axis", "dim") is not None:
                has_row = value_of("keepdims", "keepdims") if "keepdims" in by_place else name != "repeat"
                found = _of_point(function, given, named, has_row)
                return cls(*found) if cls is not None else found[0]
        if type(rest.get("init", *arguments[init_at : init_at + 1])) not in _HAVE_NO_DTYPE:
            arguments, rest = _with_dtype_of_init(names, arguments, rest)
        if is_compiling():
            found = op(*arguments, **rest) if around is None else around(op, *arguments, **rest)
        else:
            try:
                found = op(*arguments, **rest) if around is None else around(op, *arguments, **rest)
            except RuntimeError:
                _explained(name, {**dict(zip(names, arguments, strict=False)), **rest})
                raise
            except ArgumentError as error:
                error.rename({"axis": "dim"})
                raise
        return cls(*found) if cls is not None else found

    return _described(_eagerly(eager_of(name, row), function), name, shown)


def _eagerly(eager: Callable[..., Any], general: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes eager calls where it can."""

    def function(*arguments: Any, **named: Any) -> Any:
        if not is_compiling() and is_eager():
            try:
                found = eager(*arguments, **named)
            except (TypeError, ValueError):  # which the other one raises, with the names of parameters here
                found = NO_CALL
            if found is not NO_CALL:
                return found
        return general(*arguments, **named)

    return function
