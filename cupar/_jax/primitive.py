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

from .program import Body, words

Static = tuple[Any, ...]
Outputs = tuple[tuple[tuple[int, ...], Any], ...]  # shape and dtype of each


class Function(NamedTuple):
    """What a program does.

    Attributes
    ----------
    name : str
    body : callable
        Takes a recorder, operands and what is static; returns operands of new arrays.
    under_batch : callable or None
        Returns what is static if all arrays have one more dimension in front; None: they go one by one.
    """

    name: str
    body: Body
    under_batch: Callable[..., Static] | None = None


call_p = Primitive("cupar")
call_p.multiple_results = True


def call(function: Function, arrays: Sequence[Any], static: Static, outputs: Outputs) -> list[Any]:
    """Return the arrays that a function makes of others."""
    found: list[Any] = call_p.bind(*arrays, function=function, static=static, outputs=outputs)
    return found


@functools.lru_cache(512)
def _jitted(function: Function, static: Static, outputs: Outputs) -> Any:
    return jax.jit(lambda *arrays: call(function, arrays, static, outputs))


@call_p.def_impl
def _call(*arrays: Any, function: Function, static: Static, outputs: Outputs) -> Any:
    return _jitted(function, static, outputs)(*arrays)


@call_p.def_abstract_eval
def _abstract(*given: Any, function: Function, static: Static, outputs: Outputs) -> Any:
    return [jax.core.ShapedArray(shape, dtype, **_varying(given)) for shape, dtype in outputs]


def _axes(kind: Any) -> Any:
    return getattr(kind, "varying", kind)


def _varying(given: Sequence[Any]) -> dict[str, Any]:
    """Return over which axes of a mesh, under ``shard_map``, results vary: those of the arguments."""
    for name in ("manual_axis_type", "vma"):  # from JAX 0.10 on, and before
        found = [getattr(each, name) for each in given if getattr(each, name, None) is not None]
        if found:
            return {name: max(found, key=lambda each: len(_axes(each)))}
    return {}


def _lowered(
    on_cpu: bool, ctx: Any, *operands: Any, function: Function, static: Static, outputs: Outputs
) -> Sequence[Any]:
    from . import runtime

    runtime.register()
    inputs = [(tuple(each.shape), np.dtype(each.dtype)) for each in ctx.avals_in]
    made = words(function.body, static, inputs, outputs, on_cpu)
    raw = [
        np.frombuffer(each.tobytes(), np.uint8) for each in made.constants
    ]  # whatever JAX makes of 64 bits
    constants = [mlir.ir_constant(each) for each in raw]
    storage = jax.core.ShapedArray((made.nbytes,), jnp.uint8)
    of_constants = [jax.core.ShapedArray(each.shape, each.dtype) for each in raw]
    whole = ctx.replace(avals_in=[*ctx.avals_in, *of_constants], avals_out=[*ctx.avals_out, storage])
    attributes = {"builds": made.builds, "program": made.program, "relocations": made.relocations}
    lowered: Sequence[Any] = jax.ffi.ffi_lowering(runtime.TARGET)(whole, *operands, *constants, **attributes)
    return lowered[:-1]


for _platform, _on_cpu in (("cpu", True), ("cuda", False)):
    mlir.register_lowering(call_p, functools.partial(_lowered, _on_cpu), platform=_platform)


# --- Transformations ------------------------------------------------------------------------------------


def _batched(
    arrays: Sequence[Any], dims: Sequence[int | None], *, function: Function, static: Static, outputs: Outputs
) -> tuple[list[Any], list[int]]:
    size = next(each.shape[at] for each, at in zip(arrays, dims, strict=True) if at is not None)
    first = [each if at is None else jnp.moveaxis(each, at, 0) for each, at in zip(arrays, dims, strict=True)]
    if function.under_batch is None:

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
        found = call(function, whole, function.under_batch(*static), results)
    return found, [0] * len(found)


batching.primitive_batchers[call_p] = _batched


def _no_derivative(*given: Any, function: Function, **_: Any) -> Any:
    raise TypeError(
        f"{function.name} has no derivative, or none in forward mode: use jax.grad or jax.vjp for those of "
        "cupar.jax that have one, jax.lax.stop_gradient, or a jax.custom_vjp of yours"
    )


ad.primitive_jvps[call_p] = _no_derivative
ad.primitive_transposes[call_p] = _no_derivative
