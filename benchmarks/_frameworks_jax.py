"""What frameworks.py measures of JAX: whole calls of compiled functions, with what XLA and JAX add.

* forward and gradient: linear recurrences of three shapes, and value and gradients with respect to both
  inputs, beside `jax.lax.associative_scan` and an elementwise kernel of XLA's, of 12 and 24 bytes an item;
* memory: arguments, results and temporaries of value and gradients, as XLA has planned them, over inputs,
  output and gradients;
* call: 8 x 128 items, beside `a * b`; and a chain of 8 recurrences and sines;
* more: an operator that is written with jnp, sums of segments, sorts of rows and top-k, beside JAX's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

os.environ.setdefault(
    "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
)  # other libraries are measured in this process

import time

import jax
import jax.numpy as jnp
import numpy as np
from frameworks import Case

from cupar.jax import associative_scan, linear_recurrence, segment_sum, sort, top_k

Call = Callable[[], Any]


def shapes(exponent: int) -> list[tuple[int, int]]:
    """Return rows and their length: one, some, and as many as they are long."""
    half = exponent // 2
    return [
        (1, 1 << exponent),
        (1 << exponent // 4, 1 << exponent - exponent // 4),
        (1 << half, 1 << exponent - half),
    ]


def close(one: Any, other: Any) -> bool:
    """Whether arrays are close, in proportion to the largest item."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(bool(jnp.abs(x - y).max() <= 1e-3 * jnp.abs(y).max()) for x, y in pairs)


def wall(calls: int) -> Callable[[Call], float]:
    """Return what measures the seconds of a call, of some in a row until the last one is done."""

    def measured(call: Call) -> float:
        jax.block_until_ready(call())
        begin = time.perf_counter()
        for _ in range(calls):
            found = call()
        jax.block_until_ready(found)
        return (time.perf_counter() - begin) / calls

    return measured


def of_lax(a: Any, b: Any) -> Any:
    """Return the recurrence by JAX's own."""
    return jax.lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b), axis=1)[1]


def slopes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what computes a recurrence, and gradients with respect to both inputs, of a weighted sum."""

    def computed(a: Any, b: Any, w: Any) -> Any:
        h, back = jax.vjp(function, a, b)
        return h, *back(w)

    return computed


def fourfold(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return four recurrences, one of another: what they take beyond four times one is each program's."""

    def computed(a: Any, b: Any) -> Any:
        for _ in range(4):
            b = function(a, b)
        return b

    return computed


def side(function: Callable[..., Any], *arrays: Any) -> Callable[[], Call]:
    """Return what compiles a function for arrays."""

    def prepare() -> Call:
        compiled = jax.jit(function).lower(*arrays).compile()
        return partial(compiled, *arrays)

    return prepare


def planned(function: Callable[..., Any], *arrays: Any) -> Callable[[], Call]:
    """Return what compiles a function, and says how many bytes it takes."""

    def prepare() -> Call:
        found = jax.jit(function).lower(*arrays).compile().memory_analysis()
        total = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
        return lambda: float(total)

    return prepare


def arrays_of(shape: tuple[int, ...], count: int) -> list[Any]:
    """Return random numbers, below 1 for coefficients."""
    rng = np.random.default_rng(7)
    return [jnp.asarray(rng.random(shape, np.float32) * 0.2 + 0.8 * (k == 0)) for k in range(count)]


def cases(exponent: int, on_gpu: bool) -> Iterator[Case]:
    """Yield what is measured."""
    timed = wall(10 if on_gpu else 2)
    for shape in shapes(exponent):
        label = f"{shape[0]} x {shape[1]}"
        a, b, w = arrays_of(shape, 3)
        both = {"cupar": side(linear_recurrence, a, b), "lax.associative_scan": side(of_lax, a, b)}
        of_xla = "XLA, 12 B an item"
        both[of_xla] = side(lambda a, b: a * 1.5 + b, a, b)
        goal = "lax.associative_scan", 1.0
        yield Case("forward", label, both, timed, 1e-6, goal, close, uncompared=[of_xla])
        of_xla = "XLA, 24 B an item"
        both = {
            "cupar": side(slopes(linear_recurrence), a, b, w),
            "lax.associative_scan": side(slopes(of_lax), a, b, w),
            of_xla: side(lambda a, b, w: (a * b, a + w, b - w), a, b, w),
        }
        yield Case("gradient", label, both, timed, 1e-6, goal, close, uncompared=[of_xla])
        sizes = {
            "cupar": planned(slopes(linear_recurrence), a, b, w),
            "lax.associative_scan": planned(slopes(of_lax), a, b, w),
            "inputs, output, gradients": lambda a=a: lambda: 6.0 * a.nbytes,
        }
        most = "inputs, output, gradients", 1.1
        yield Case("memory", label, sizes, lambda call: call(), 1e6, most, lambda *_: True)
    a, b = arrays_of(shapes(exponent)[0], 2)
    both = {
        "cupar": side(fourfold(linear_recurrence), a, b),
        "lax.associative_scan": side(fourfold(of_lax), a, b),
    }
    label = f"4 in a program, 1 x {1 << exponent}"
    yield Case("forward", label, both, timed, 1e-6, goal, close)
    yield from small(wall(100 if on_gpu else 20))
    yield from more(exponent, timed)


def small(timed: Callable[[Call], float]) -> Iterator[Case]:
    """Yield calls that take no time but the host's."""
    a, b = arrays_of((8, 128), 2)
    sides = {
        "cupar": side(linear_recurrence, a, b),
        "lax.associative_scan": side(of_lax, a, b),
        "a * b": side(lambda a, b: a * b, a, b),
    }
    yield Case("call", "8 x 128, jitted", sides, timed, 1e-6, ("a * b", 1.0), close, uncompared=["a * b"])

    def chain(function: Callable[..., Any], a: Any, b: Any) -> Any:
        for k in range(8):
            b = jnp.sin(function(a, b) * 0.5) + 1.0 / (k + 1)
        return b

    both = {"cupar": side(partial(chain, linear_recurrence), a, b)}
    both["lax.associative_scan"] = side(partial(chain, of_lax), a, b)
    yield Case("call", "8 recurrences and sines", both, timed, 1e-6, ("lax.associative_scan", 1.0), close)


def more(exponent: int, timed: Callable[[Call], float]) -> Iterator[Case]:
    """Yield functions beside recurrences."""
    half = exponent // 2
    (x,) = arrays_of((1 << half, 1 << exponent - half), 1)
    flat, number = x.reshape(-1), 1 << half
    ids = jnp.asarray(np.random.default_rng(8).integers(0, number, flat.size, np.int32))

    def logaddexp(function: Callable[..., Any], x: Any) -> Any:
        return function(jnp.logaddexp, x, axis=1)

    pairs: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
        "logaddexp, rows": (
            partial(logaddexp, associative_scan),
            partial(logaddexp, jax.lax.associative_scan),
            (x,),
        ),
        f"segment_sum, {number} segments": (
            lambda x, i: segment_sum(x, i, number),
            lambda x, i: jax.ops.segment_sum(x, i, number),
            (flat, ids),
        ),
        "sort, rows": (partial(sort, stable=False), jnp.sort, (x,)),
        "top_k of 8, rows": (lambda x: top_k(x, 8)[0], lambda x: jax.lax.top_k(x, 8)[0], (x,)),
    }
    for label, (mine, its, given) in pairs.items():
        sides = {"cupar": side(mine, *given), "JAX": side(its, *given)}
        yield Case("more", label, sides, timed, 1e-6, None, close)
