"""The one primitive of JAX's that calls programs: lowered for each platform, and batched as rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from .. import structs
from .._base.bounded import of_builds
from .partition import Factors, partitioned, rows
from .program import Body, words

Static = tuple[Any, ...]
Outputs = tuple[tuple[tuple[int, ...], Any], ...]  # shape and dtype of each


class Dim(int):
    """A number of dimensions, or one of them, among static arguments: under ``vmap`` there is one more."""


class Function(NamedTuple):
    """The definition of a program.

    Attributes
    ----------
    name : str
    body : callable or None
        Takes a recorder, operands and static arguments; returns operands of new arrays.
    factors : callable or None
        Returns how sharded arrays are partitioned, given the numbers of dimensions of arguments and results,
        and static arguments; None: each device has all of them.
    composed : callable or None
        Takes arrays and static arguments, and returns the same arrays, made by differentiable functions of
        JAX. Without a body, it is compiled itself.
    jvp : callable or None
        Takes arrays, their tangents (None: zero) and static arguments; returns results and their
        tangents. None: that of `composed`, if there is one.
    transpose : callable or None
        Takes cotangents of results, arrays (None for those that it is linear in), and static arguments;
        returns cotangents of these, in a list with something for each array. None: that of `composed`.
    under_batch : callable or None
        Takes the size of a batch and static arguments; returns those for arrays with a dimension more in
        front, or None if they go one by one. None: static arguments have a `Dim`.
    """

    name: str
    body: Body | None
    factors: Callable[..., Factors] | None = None
    composed: Callable[..., Sequence[Any]] | None = None
    jvp: Callable[..., tuple[Sequence[Any], Sequence[Any]]] | None = None
    transpose: Callable[..., Sequence[Any]] | None = None
    under_batch: Callable[..., Static | None] | None = None


def along(inputs: Sequence[int], results: Sequence[int], *static: Any) -> Factors:
    """Return the factors of a function along an axis, the `Dim` among static arguments."""
    return rows(next(each for each in static if type(each) is Dim), inputs, results)


def numbers(name: str, x: Any, kinds: str = "biufc") -> jax.Array:
    """Return an array of JAX's; raise TypeError, which begins with `name`, if it is not of such dtypes."""
    found = jnp.asarray(x)
    is_extended = jax.dtypes.issubdtype(found.dtype, jax.dtypes.extended)
    if is_extended or structs.kind_of(np.dtype(found.dtype)) not in kinds:
        wanted = {"biuf": "real numbers", "iu": "integers"}.get(kinds, "numbers")
        raise TypeError(f"{name}: expected {wanted}, got {found.dtype}")
    return found


call_p = Primitive("cupar")
call_p.multiple_results = True
# As custom_partitioning's own, which stands for it where there are several devices: no public name tells JAX.
# Where there is no such name either, XLA gathers sharded arrays.
_MAY_BE_PARTITIONED = True
try:
    from jax._src.dispatch import prim_requires_devices_during_lowering

    prim_requires_devices_during_lowering.add(call_p)
except ImportError:
    _MAY_BE_PARTITIONED = False


def call(function: Function, arrays: Sequence[Any], static: Static, outputs: Outputs) -> list[Any]:
    """Return the arrays that a function makes of others."""
    given = {"function": function, "static": static, "outputs": outputs, "is_part": False}
    found: list[Any] = call_p.bind(*arrays, **given)
    return found


@of_builds
@functools.lru_cache(512)
def _jitted(function: Function, static: Static, outputs: Outputs) -> Any:
    return jax.jit(lambda *arrays: call(function, arrays, static, outputs))


@call_p.def_impl
def _call(*arrays: Any, function: Function, static: Static, outputs: Outputs, is_part: bool) -> Any:
    if jax.config.jax_disable_jit:  # one primitive is a program, as those of JAX's own are
        with jax.disable_jit(False):
            return _jitted(function, static, outputs)(*arrays)
    return _jitted(function, static, outputs)(*arrays)


@call_p.def_abstract_eval
def _abstract(*given: Any, outputs: Outputs, **_: Any) -> Any:
    return [_result(shape, dtype, given) for shape, dtype in outputs]


def _count(axes: Any) -> int:
    return len(getattr(axes, "varying", axes))


def _result(shape: tuple[int, ...], dtype: Any, given: Sequence[Any]) -> Any:
    """Return the type of a result: it varies over axes of a mesh, under ``shard_map``, as arguments do."""
    known: dict[str, Any] = {}
    sharding = getattr(given[0], "sharding", None) if given else None
    if sharding is not None and not sharding.mesh.empty:
        alike = next((each.sharding for each in given if each.shape == shape), None)
        known["sharding"] = alike or NamedSharding(sharding.mesh, PartitionSpec(*[None] * len(shape)))
        for name in ("manual_axis_type", "vma"):  # from JAX 0.10 on, and before
            found = [getattr(each, name) for each in given if getattr(each, name, None) is not None]
            if found:
                known[name] = max(found, key=_count)
                break
    return jax.core.ShapedArray(shape, dtype, **known)


def _lowered(
    on_cpu: bool,
    ctx: Any,
    *operands: Any,
    function: Function,
    static: Static,
    outputs: Outputs,
    is_part: bool,
) -> Sequence[Any]:
    if function.body is None:
        assert function.composed is not None
        composed = functools.partial(_composed, function, static)
        whole: Sequence[Any] = mlir.lower_fun(composed, multiple_results=True)(ctx, *operands)
        return whole
    from . import runtime

    runtime.register()
    devices = getattr(ctx.module_context.axis_context, "num_devices", 1)
    may_be = _MAY_BE_PARTITIONED and not is_part and (devices or 1) > 1
    if may_be and function.factors is not None:
        ndims = [each.ndim for each in ctx.avals_in], [each.ndim for each in ctx.avals_out]
        bind = functools.partial(call_p.bind, function=function, static=static, is_part=True)
        made = partitioned(bind, outputs, function.factors(*ndims, *static))
        found: Sequence[Any] = mlir.lower_fun(made, multiple_results=True)(ctx, *operands)
        return found
    inputs = [(tuple(each.shape), np.dtype(each.dtype)) for each in ctx.avals_in]
    for shape, _ in inputs:
        if not all(isinstance(each, int) for each in shape):
            known = f"({', '.join(map(str, shape))})"
            raise TypeError(f"{function.name}: expected shapes that are known when compiled, got {known}")
    made = words(function.body, static, inputs, outputs, on_cpu)
    # As bytes, whatever JAX makes of numbers of 64 bits.
    raw = [np.frombuffer(each.tobytes(), np.uint8) for each in made.constants]
    constants = [mlir.ir_constant(each) for each in raw]
    storage = jax.core.ShapedArray((made.nbytes,), jnp.uint8)
    of_constants = [jax.core.ShapedArray(each.shape, each.dtype) for each in raw]
    extended = ctx.replace(avals_in=[*ctx.avals_in, *of_constants], avals_out=[*ctx.avals_out, storage])
    attributes = {"builds": made.builds, "program": made.program, "relocations": made.relocations}
    lowered: Sequence[Any] = jax.ffi.ffi_lowering(runtime.TARGET)(
        extended, *operands, *constants, **attributes
    )
    return lowered[:-1]


for _platform, _on_cpu in (("cpu", True), ("cuda", False)):
    mlir.register_lowering(call_p, functools.partial(_lowered, _on_cpu), platform=_platform)


# --- Transformations ------------------------------------------------------------------------------------


def _batched(
    arrays: Sequence[Any],
    dims: Sequence[int | None],
    *,
    function: Function,
    static: Static,
    outputs: Outputs,
    is_part: bool,
) -> tuple[list[Any], list[int]]:
    size = next(each.shape[at] for each, at in zip(arrays, dims, strict=True) if at is not None)
    first = [each if at is None else jnp.moveaxis(each, at, 0) for each, at in zip(arrays, dims, strict=True)]
    if function.under_batch is None:
        more: Static | None = tuple([Dim(each + 1) if type(each) is Dim else each for each in static])
    else:
        more = function.under_batch(size, *static)
    if more is None:

        def one(batched: Sequence[Any]) -> list[Any]:
            rest = iter(batched)
            given = [each if at is None else next(rest) for each, at in zip(first, dims, strict=True)]
            return call(function, given, static, outputs)

        found = jax.lax.map(one, [each for each, at in zip(first, dims, strict=True) if at is not None])
    else:
        whole = [
            jnp.broadcast_to(each, (size, *each.shape)) if at is None else each
            for each, at in zip(first, dims, strict=True)
        ]
        results = tuple(((size, *shape), dtype) for shape, dtype in outputs)
        found = call(function, whole, more, results)
    return found, [0] * len(found)


batching.primitive_batchers[call_p] = _batched


# --- Derivatives ----------------------------------------------------------------------------------------


def _composed(function: Function, static: Static, *arrays: Any) -> list[Any]:
    assert function.composed is not None
    return list(function.composed(*arrays, *static))


def _no_derivative(function: Function) -> TypeError:
    return TypeError(
        f"{function.name} has no derivative: use jax.lax.stop_gradient, or a jax.custom_jvp or "
        "jax.custom_vjp of yours"
    )


def _jvp(
    arrays: Sequence[Any],
    tangents: Sequence[Any],
    *,
    function: Function,
    static: Static,
    outputs: Outputs,
    is_part: bool,
) -> tuple[Sequence[Any], Sequence[Any]]:
    if function.jvp is not None:
        given = [None if type(each) is ad.Zero else each for each in tangents]
        found, slopes = function.jvp(arrays, given, *static)
    elif function.composed is not None:
        found = call(function, arrays, static, outputs)
        given = [ad.instantiate_zeros(each) for each in tangents]
        slopes = jax.jvp(functools.partial(_composed, function, static), tuple(arrays), tuple(given))[1]
    else:
        raise _no_derivative(function)
    return found, [
        ad.Zero(jax.typeof(result).to_tangent_aval()) if slope is None else slope
        for result, slope in zip(found, slopes, strict=True)
    ]


def _transposed(
    slopes: Sequence[Any], *arrays: Any, function: Function, static: Static, outputs: Outputs, is_part: bool
) -> Sequence[Any]:
    linear = [ad.is_undefined_primal(each) for each in arrays]
    given = [ad.instantiate_zeros(each) for each in slopes]
    known = [None if is_linear else each for each, is_linear in zip(arrays, linear, strict=True)]
    if function.transpose is not None:
        found = function.transpose(given, known, *static)
    elif function.composed is not None:

        def of_linear(*values: Any) -> list[Any]:
            rest = iter(values)
            whole = [next(rest) if is_linear else each for each, is_linear in zip(known, linear, strict=True)]
            return _composed(function, static, *whole)

        shapes = [each.aval for each in arrays if ad.is_undefined_primal(each)]
        rest = iter(jax.linear_transpose(of_linear, *shapes)(given))
        found = [next(rest) if is_linear else None for is_linear in linear]
    else:
        raise _no_derivative(function)
    return [each if is_linear else None for each, is_linear in zip(found, linear, strict=True)]


ad.primitive_jvps[call_p] = _jvp
ad.primitive_transposes[call_p] = _transposed
