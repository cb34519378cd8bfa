"""Any algorithm of cupar's as a function of JAX's arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import tokens
from .._arguments.tokens import NoTokenError
from .._fingerprint import registries, walk
from .._functions.calls import Operand, Work
from .._functions.libraries import is_array
from .._ir.iterator import Iterator
from ..nth_element import segmented_nth_element
from ..reduce import reduce_into
from ..scan import exclusive_scan, inclusive_scan
from ..segmented import segmented_reduce, segmented_sort
from ..segmented_scan import exclusive_segmented_scan, inclusive_segmented_scan
from ..sort import radix_sort
from ..topk import segmented_top_k, top_k
from ..transform import binary_transform, unary_transform
from .primitive import Function
from .primitive import call as bind

# Tokens of arguments that are no arrays of JAX's. Those of operators have what they read by now, too.
_FUNCTION = f"{tokens.FUNCTION}, _digest({{v}})"
_ITERATOR = '{v}.node, _epoch(), {v}.capacity(""), {v}.pack("", 0, False)'
_BYTES = "{v}.dtype, {v}.shape, {v}.tobytes()"
_OTHER = "_of_other({v})"


def _digest(value: Any) -> bytes:
    return walk.fingerprint(value).digest


def _of_other(value: Any) -> Hashable:
    """Return the token of a value by its own equality, and by what it reads if it is an operator."""
    try:
        hash(value)
    except TypeError:
        return object()  # equal to no other
    try:
        return value, _digest(value)
    except walk.Unfingerprintable:
        raise
    except TypeError:
        return value  # type: ignore[no-any-return]


def _token(value: Any) -> str:
    """Return the expression for the token of a value, by its class."""
    cls = type(value)
    if issubclass(cls, Iterator):
        return _ITERATOR
    if cls is tuple or cls is list:
        return "_key((*{v},))"
    if issubclass(cls, (np.ndarray, np.void)):
        return _BYTES
    try:
        found = tokens.of_value(cls)
    except NoTokenError:
        return _OTHER
    return _FUNCTION if found == tokens.FUNCTION else found


_NAMES: dict[str, Any] = {"_digest": _digest, "_epoch": registries.epoch, "_of_other": _of_other}
_key = _NAMES["_key"] = tokens.Keys(_token, _NAMES)


class _Given:
    """An argument that is no array of JAX's: equal to one with the same token."""

    def __init__(self, name: str, value: Any) -> None:
        self.value = value
        # The files that `link` names may change.
        self._key = object() if name == "link" and value is not None else _key((value,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Given) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(inspect.unwrap(function)).parameters
    return {name: each for name, each in found.items() if name not in ("self", "stream", "cc", "wait")}


def _chosen(given: Mapping[str, Any], function: Any) -> dict[str, Any]:
    return {name: given[name] for name in _parameters(function) if name in given}


def _body(work: Work, *given: Any) -> Sequence[Operand]:
    *operands, factory, names, fixed, outputs = given
    made = [work.empty(shape, dtype) for _, shape, dtype in outputs]
    known = {name: each.value for name, each in fixed}
    known.update((name, each.items) for (name, _), each in zip(names, operands, strict=True))
    known.update((name, each.items) for (name, *_), each in zip(outputs, made, strict=True))
    chosen, required = _chosen(known, factory), _parameters(factory)
    lacking = [name for name, each in required.items() if each.default is each.empty and name not in chosen]
    if lacking:
        others = ", ".join(sorted({*known} - {*required})) or "no others"
        raise TypeError(f"arguments: {factory.__name__} takes {', '.join(lacking)}, too; got {others}")
    algorithm = factory(**chosen)
    if "h_init" in dict(names) and algorithm._spec.option("init") == "value":
        raise TypeError(
            f"h_init: expected a number, or an array of NumPy's with one item, as {factory.__name__} has it "
            "in its launches, got an array of JAX's"
        )
    run = type(algorithm).run
    if unknown := {*known} - {*required, *_parameters(run)}:
        expected = ", ".join({**required, **_parameters(run)})
        raise TypeError(f"arguments: {factory.__name__} takes {expected}; got {', '.join(sorted(unknown))}")
    work.run(algorithm, **_chosen(known, run))
    return made


# By factory: that of rows, and the number that says how many items are written for each.
_OF_ROWS: dict[Any, tuple[Any, str]] = {
    inclusive_scan: (inclusive_segmented_scan, "num_items"),
    exclusive_scan: (exclusive_segmented_scan, "num_items"),
    reduce_into: (segmented_reduce, ""),
    radix_sort: (segmented_sort, "num_items"),
    top_k: (segmented_top_k, "k"),
    segmented_nth_element: (segmented_nth_element, ""),
    unary_transform: (unary_transform, "num_items"),
    binary_transform: (binary_transform, "num_items"),
}
_OF_ROWS |= {of_rows: (of_rows, written) for of_rows, written in _OF_ROWS.values()}
_OF_ALL = {"determinism", "begin_bit", "end_bit"}  # what functions of rows do not take


def _under_batch(batch: int, factory: Any, names: Any, fixed: Any, outputs: Any) -> Any:
    """Return the call for a batch as rows, where the algorithm has them and each row is a whole array."""
    given = {name: each.value for name, each in fixed}
    of_rows, written = _OF_ROWS.get(factory, (None, ""))
    items = given.pop("num_items", None)
    rows, length = given.pop("num_segments", 1), given.pop("segment_size", items)
    each = given.get(written, length) if written else 1
    if (
        of_rows is None
        or length is None
        or (of_rows is segmented_reduce and given.get("h_init") is None)
        or not _OF_ALL.isdisjoint(given)
        or any(name == "d_ranks" for name, _ in names)  # segments by offsets
        or any(isinstance(value, Iterator) for value in given.values())
        or any(size != rows * length for _, size in names)
        or any(math.prod(shape) != rows * each for _, shape, _ in outputs)
    ):
        return None
    of_batch = {"num_segments": batch * rows, "segment_size": length}
    is_flat = of_rows in (unary_transform, binary_transform)
    given |= {"num_items": batch * length} if is_flat else of_batch
    return (
        of_rows,
        tuple([(name, batch * size) for name, size in names]),
        tuple([(name, _Given(name, value)) for name, value in given.items()]),
        tuple([(name, (batch, *shape), dtype) for name, shape, dtype in outputs]),
    )


_CALL = Function("call", _body, under_batch=_under_batch)


def call(
    factory: Callable[..., Any], arguments: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, jax.Array]:
    """Return the outputs of one of cupar's algorithms, for those that have no function here.

    Parameters
    ----------
    factory : callable
        As in ``cupar.unique_by_key``.
    arguments : mapping
        By name, what the factory and `run` of its algorithm take: arrays of JAX's, and whatever is no array
        (operators, numbers, an initial value, None). Arrays are seen as their items in C's order.
    outputs : mapping
        By their names, the arrays that are written: anything with a shape and a dtype, as a
        ``jax.ShapeDtypeStruct``. Items that the algorithm does not write hold anything.

    Returns
    -------
    dict of array
        The outputs, by their names.

    Raises
    ------
    TypeError, ValueError
        Whatever the factory or the algorithm raises; when the program is compiled.

    Notes
    -----
    It has no derivative. Under ``vmap``, a batch is rows for scans, reductions with an initial value, radix
    sorts, `top_k`, n-th elements and transforms of whole arrays; others are called one by one.

    Examples
    --------
    >>> import cupar, jax, jax.numpy as jnp
    >>> from cupar.jax import call
    >>> x = jnp.array([3, 1, 2])
    >>> given = {"d_in": x, "op": cupar.OpKind.MAXIMUM, "h_init": None, "num_items": 3}
    >>> call(cupar.inclusive_scan, given, {"d_out": x})["d_out"]
    Array([3, 3, 3], dtype=int32)
    """
    if not getattr(factory, "__module__", "").startswith("cupar."):
        raise TypeError(f"factory: expected one of cupar's, as cupar.unique_by_key, got {factory!r}")
    for name, each in outputs.items():
        if not hasattr(each, "shape") or not hasattr(each, "dtype"):
            kind = type(each).__name__
            raise TypeError(f"outputs: expected an array or a jax.ShapeDtypeStruct as {name}, got {kind}")
    if not outputs:
        raise ValueError("outputs: expected the arrays that the algorithm writes, got none")
    names, arrays, fixed = [], [], []
    for name, each in arguments.items():
        if isinstance(each, jax.Array) or (isinstance(each, np.ndarray) and name != "h_init"):
            arrays.append(jnp.asarray(each))
            names.append((name, arrays[-1].size))
        else:
            leaves = each.leaves if isinstance(each, Iterator) else ()
            if True in [leaf.is_array for leaf in leaves] or (name != "h_init" and is_array(each)):
                raise TypeError(f"{name}: expected one of the arrays that `call` was given, got another one")
            # On the CPU, an array of NumPy's would be one that holds the initial value when it is called.
            is_number = isinstance(each, np.ndarray) and each.size == 1
            fixed.append((name, _Given(name, each.reshape(())[()] if is_number else each)))
    if both := {*arguments} & {*outputs}:
        raise ValueError(f"outputs: expected names that are not in arguments, got {', '.join(sorted(both))}")
    results = tuple((name, tuple(each.shape), np.dtype(each.dtype)) for name, each in outputs.items())
    static = factory, tuple(names), tuple(fixed), results
    found = bind(_CALL, arrays, static, tuple(each[1:] for each in results))
    return dict(zip(outputs, found, strict=True))
