"""Arrays that are sharded among devices: each calls the program of its part, where rows are whole.

A program is for the shapes that it was made for, so it is made anew for those of a part, when XLA has decided
how arrays are sharded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec


class Factors(NamedTuple):
    """How dimensions of arguments and results go together: those of one name are sharded alike.

    Attributes
    ----------
    inputs, results : sequence of tuple of str
        A name for each dimension.
    whole : tuple of str
        Those that are not sharded.
    """

    inputs: Sequence[tuple[str, ...]]
    results: Sequence[tuple[str, ...]]
    whole: tuple[str, ...]


def rows(axis: int, inputs: Sequence[int], results: Sequence[int]) -> Factors:
    """Return the factors of functions along an axis; an array with a dimension less lacks that one."""
    most = max(inputs)
    every = tuple("t" if i == axis else f"d{i}" for i in range(most))
    lacking = every[:axis] + every[axis + 1 :]
    longer = tuple("k" if each == "t" else each for each in every)  # as results may have another length
    return Factors(
        [every if ndim == most else lacking for ndim in inputs],
        [longer if ndim == most else lacking for ndim in results],
        ("t", "k"),
    )


def partitioned(bind: Callable[..., Any], outputs: Sequence[Any], factors: Factors) -> Any:
    """Return a function of arrays that XLA partitions.

    Parameters
    ----------
    bind : callable
        Takes arrays, and `outputs`.
    outputs : sequence
        The shape and dtype of each result.
    factors : Factors
    """

    def whole(*arrays: Any) -> Any:
        return tuple(bind(*arrays, outputs=outputs))

    def spec_of(sharding: Any, names: Sequence[str]) -> PartitionSpec:
        known = [*getattr(sharding, "spec", ())]
        known += [None] * (len(names) - len(known))
        return PartitionSpec(
            *[None if name in factors.whole else each for name, each in zip(names, known, strict=True)]
        )

    def chosen(mesh: Any, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return how arguments and results are sharded: as the first argument is that has a dimension."""
        found: dict[str, Any] = dict.fromkeys(factors.whole)
        for names, each in zip(factors.inputs, given, strict=True):
            for name, part in zip(names, spec_of(each.sharding, names), strict=True):
                found[name] = found.get(name) or part
        inputs, results = (
            [NamedSharding(mesh, PartitionSpec(*[found[name] for name in names])) for names in group]
            for group in (factors.inputs, factors.results)
        )
        return inputs, results

    def infer(mesh: Any, given: Any, results: Any) -> Any:
        return tuple(chosen(mesh, jax.tree.leaves(given))[1])

    def partition(mesh: Any, given: Any, results: Any) -> Any:
        inputs, made = chosen(mesh, jax.tree.leaves(given))
        local = tuple(
            (tuple(each.shard_shape(shape)), dtype)
            for each, (shape, dtype) in zip(made, outputs, strict=True)
        )
        return mesh, lambda *arrays: tuple(bind(*arrays, outputs=local)), tuple(made), tuple(inputs)

    sides = (", ".join(" ".join(names) for names in group) for group in (factors.inputs, factors.results))
    used = {name for group in (*factors.inputs, *factors.results) for name in group}
    made = custom_partitioning(whole)
    more: dict[str, Any] = {}
    if "need_replication_factors" in inspect.signature(made.def_partition).parameters:  # not in JAX 0.7
        more["need_replication_factors"] = tuple(name for name in factors.whole if name in used)
    made.def_partition(
        partition=partition,
        infer_sharding_from_operands=infer,
        sharding_rule=" -> ".join(sides),
        **more,
    )
    return made
