"""Iterators: inputs that are computed as they are read, and outputs that are computed as they are written.

They are given where an array is expected, to the factory and in each call, and nest in each other. Nothing is
stored in between. What a build depends on is an iterator's structure, which types and operators in which
nesting. Where it starts, its constants and its arrays are handed over in each call, so iterators of one
structure share a build. A dtype may stand for an array in them as elsewhere, to build without data.

The idea and most of the names are Thrust's: N. Bell and J. Hoberock, "Thrust: A Productivity-Oriented Library
for CUDA", GPU Computing Gems, 2011.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, NoneType
from typing import Any, get_type_hints

import numpy as np

from . import structs
from ._base.bounded import of_builds
from ._base.causes import brief
from ._base.data import Recent
from ._base.device import is_cpu
from ._base.errors import ArgumentTypeError, ArgumentValueError
from ._base.sizes import Size, index, is_size
from ._device import arrays
from ._fingerprint import walk
from ._ir import nodes
from ._ir.iterator import ArrayIterator, Iterator, Leaf, Packed, over, packed
from ._ir.operator import Operator
from ._ir.resolve import resolve
from .operators import Op, OpKind


class CountingIterator(Iterator):
    """Yields `start`, `start` + 1, `start` + 2 and so on.

    Parameters
    ----------
    start : number
        The first item; its type is that of the items (an ``int`` is int64, a ``float`` float64).

    Raises
    ------
    TypeError
        If `start` is not a real number.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> naturals = cupar.CountingIterator(np.int32(1))
    >>> sum_to = cupar.reduce_into(naturals, np.int32, cupar.OpKind.PLUS, np.int32(0), cc=90)
    >>> sum_to.build.algorithm
    'reduce_into'
    """

    def __init__(self, start: Any) -> None:
        value = np.asarray(_int_of_64_bits("start", start))
        known = structs.is_number(value.dtype) and structs.kind_of(value.dtype) in "iuf"
        if value.shape != () or not known:
            raise ArgumentTypeError("start", f"expected a real number, got {_short(start)}")
        dtype = value.dtype
        node = nodes.interned((nodes.Counting, dtype), lambda: nodes.Counting(dtype))
        super().__init__(node, [Leaf(value.tobytes()), Leaf()])

    def _given(self) -> str:
        first, index = self.leaves
        now = first.first(self.dtype) + index.start
        return f"({np.asarray(now).astype(self.dtype).item()!r})"


class ConstantIterator(Iterator):
    """Yields the same value everywhere.

    Parameters
    ----------
    value : number, NumPy scalar or struct
        Its type is that of the items (an ``int`` is int64, a ``float`` float64).

    Raises
    ------
    TypeError
        If `value` is of no supported type.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> ones = cupar.ConstantIterator(np.float32(1))
    >>> ones.dtype
    dtype('float32')
    """

    def __init__(self, value: Any) -> None:
        if is_size(value):
            self._pack(value, _DTYPES.get(type(value.value)) or value.value.dtype)
            return
        dtype = structs.dtype_of_value(_int_of_64_bits("value", value))
        try:
            given = np.array(tuple(value) if dtype else value, dtype)
        except (TypeError, ValueError):  # lists of lists of several lengths
            given = np.empty(0)
        if given.shape != ():
            raise ArgumentTypeError("value", f"expected one number or struct, got {_short(value)}")
        array = np.zeros((), structs.normal("value", given.dtype))  # with zeros for padding, too
        array[()] = given
        dtype = array.dtype
        super().__init__(_constant(dtype), [Leaf(array.tobytes())])

    def _pack(self, value: Size, dtype: np.dtype[Any]) -> None:
        """Take a number of a call that is traced."""
        pack = _PACK.get((type(value.value), dtype), partial(_packed, dtype))
        super().__init__(_constant(dtype), [Leaf(Packed(pack, (value,)))])

    @classmethod
    def of(cls, value: Any, dtype: np.dtype[Any]) -> ConstantIterator:
        """Return an iterator over a number in a dtype, or over an array of one as a size."""
        if not is_size(value):
            return cls(dtype.type(value))
        made = object.__new__(cls)
        made._pack(value, dtype)
        return made

    def _given(self) -> str:
        return f"({self.leaves[0].first(self.dtype)!r})"


_DTYPES = {int: np.dtype(np.int64), float: np.dtype(np.float64)}
_PACK = {(int, _DTYPES[int]): struct.Struct("=q").pack, (float, _DTYPES[float]): struct.Struct("=d").pack}


def _packed(dtype: np.dtype[Any], number: Any) -> bytes:
    return np.asarray(number, dtype).tobytes().ljust(nodes.rounded_up(dtype.itemsize), b"\0")


def _constant(dtype: np.dtype[Any]) -> nodes.Constant:
    return nodes.interned((nodes.Constant, dtype), lambda: nodes.Constant(dtype))


class ZipIterator(Iterator):
    """Yields structs of the items of several iterators, or takes structs apart.

    The fields are called ``field_0``, ``field_1``, and so on; operators may also index or unpack the struct,
    and return a tuple for one.

    Parameters
    ----------
    *iterators : device arrays, iterators or dtypes
        Or one list or tuple of them.

    Raises
    ------
    TypeError, ValueError
        If there is no iterator, or one of them is something else.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> pairs = cupar.ZipIterator(np.float32, cupar.CountingIterator(0))
    >>> pairs.dtype.itemsize
    16
    >>> least = lambda a, b: a if a[0] <= b[0] else b
    >>> argmin = cupar.reduce_into(pairs, pairs.dtype, least, None, cc=90)
    >>> argmin.build.algorithm
    'reduce_into'
    """

    def __init__(self, *iterators: Any) -> None:
        if len(iterators) == 1 and isinstance(iterators[0], (list, tuple)):
            iterators = tuple(iterators[0])
        if not iterators:
            raise ArgumentValueError("iterators", "expected at least one array or iterator, got none")
        parts = [over(f"iterators[{i}]", iterator) for i, iterator in enumerate(iterators)]
        self.node: nodes.IteratorNode = nodes.zipped(tuple([part.node for part in parts]))
        # Their slots are its own, too.
        self.leaves: tuple[Leaf, ...] = tuple([leaf for part in parts for leaf in part.leaves])


class PermutationIterator(Iterator):
    """Item i is ``values[indices[i]]``, read or written; not to an array that the call reads in order.

    Parameters
    ----------
    values : device array, iterator or dtype
    indices : device array, iterator or dtype
        Integers. That they lie within `values` is not checked, on the CPU neither.

    Raises
    ------
    TypeError
        If one of them is something else.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> gathered = cupar.PermutationIterator(np.float32, np.int32)
    >>> gathered.dtype
    dtype('float32')
    """

    def __init__(self, values: Any, indices: Any) -> None:
        items, places = over("values", values), over("indices", indices)
        if places.dtype.kind not in "iu" or not places.node.readable:
            raise ArgumentTypeError("indices", f"expected integers to read, got {places.dtype} of {places!r}")
        node = nodes.interned(
            (nodes.Permutation, id(items.node), id(places.node)),
            lambda: nodes.Permutation(items.dtype, items.node, places.node),
        )
        super().__init__(node, [*items.leaves, *places.leaves])


class ReverseIterator(Iterator):
    """Goes backwards, to read or to write: in an array from its end, in an iterator from where it begins.

    Parameters
    ----------
    underlying : device array, iterator or dtype

    Raises
    ------
    TypeError
        If it is something else.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> suffix_sums = cupar.inclusive_scan(
    ...     cupar.ReverseIterator(np.int32), cupar.ReverseIterator(np.int32), cupar.OpKind.PLUS, cc=90
    ... )
    >>> suffix_sums.build.algorithm
    'inclusive_scan'
    """

    def __init__(self, underlying: Any) -> None:
        items = over("underlying", underlying)
        if isinstance(items, ArrayIterator) and not isinstance(underlying, (type, np.dtype, str)):
            items = items + (arrays.view("underlying", underlying).size - 1)
        node = nodes.interned((nodes.Reverse, id(items.node)), lambda: nodes.Reverse(items.dtype, items.node))
        super().__init__(node, items.leaves)


class ReverseInputIterator(ReverseIterator):
    """A `ReverseIterator`, by the name that it has in ``cuda.parallel`` as an input."""


class ReverseOutputIterator(ReverseIterator):
    """A `ReverseIterator`, by the name that it has in ``cuda.parallel`` as an output."""


class CacheModifiedInputIterator(Iterator):
    """Reads an array with one of PTX's cache operators.

    Parameters
    ----------
    array : device array or dtype
    modifier : {"stream", "global", "volatile"}
        ``"stream"``: likely read once (``ld.global.cs``); ``"global"``: cached in L2 alone (``.cg``);
        ``"volatile"``: not cached (``.cv``).

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> cupar.CacheModifiedInputIterator(np.float32, "stream").dtype
    dtype('float32')
    """

    def __init__(self, array: Any, modifier: str = "stream") -> None:
        if not isinstance(modifier, str) or modifier not in nodes.CacheModified.LOADS:
            known = ", ".join(map(repr, nodes.CacheModified.LOADS))
            raise ArgumentValueError("modifier", f"expected one of {known}, got {modifier!r}")
        items = ArrayIterator("array", array)
        super().__init__(nodes.CacheModified(items.dtype, modifier), items.leaves)


class DiscardIterator(Iterator):
    """Takes items and keeps none of them.

    Parameters
    ----------
    reference : device array, iterator or dtype, optional
        Of the dtype of the items, where that must be that of another argument.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> counts_only = cupar.select(
    ...     np.int32, cupar.DiscardIterator(np.int32), np.int64, lambda a: a > 0, cc=90
    ... )
    >>> counts_only.build.algorithm
    'select'
    """

    def __init__(self, reference: Any = np.uint8) -> None:
        dtype = over("reference", reference).dtype
        super().__init__(nodes.Discard(dtype), [Leaf()])


class ShuffleIterator(Iterator):
    """Yields the numbers from 0 to `num_items` - 1 in an order that looks random, as int64.

    Parameters
    ----------
    num_items : int
        How many numbers, at least 1. A call that uses more raises a ValueError.
    seed : int, optional
        Another one gives another order; the same one gives the same order everywhere.

    Raises
    ------
    TypeError, ValueError
        If an argument is no integer or out of range.

    Notes
    -----
    The order is that of libcu++'s ``cuda::random_bijection``, a Feistel network: R. Mitchell et al.,
    "Bandwidth-Optimal Random Shuffling for GPUs", 2021, https://arxiv.org/abs/2106.06161.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> shuffled = cupar.PermutationIterator(np.float32, cupar.ShuffleIterator(1000, seed=7))
    >>> shuffled.dtype
    dtype('float32')
    """

    def __init__(self, num_items: int, seed: int = 0) -> None:
        items, chosen = _checked("num_items", num_items, 1, 2**63), _checked("seed", seed, -(2**63), 2**64)
        leaves = Leaf(items), Leaf(packed(_PAIR, items, chosen % 2**64))
        super().__init__(nodes.Shuffle(np.dtype(np.int64)), leaves)


def _int_of_64_bits(name: str, value: Any) -> Any:
    """Return a value as it is; raise ValueError if it is an integer that no dtype holds."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ArgumentValueError(name, f"expected an integer from -2**63 to 2**64 - 1, got {_short(value)}")
    return value


def _short(value: Any) -> str:
    """Return a value as text for messages."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


_PAIR = struct.Struct("=QQ").pack


def _checked(name: str, value: Any, low: int, end: int) -> int:
    try:
        number: int = index(value)
    except TypeError:
        raise ArgumentTypeError(name, f"expected an integer, got {type(value).__name__}") from None
    if not low <= number < end:
        raise ArgumentValueError(name, f"expected an integer from {low} to {end - 1}, got {number}")
    return number


class TransformIterator(Iterator):
    """Yields what an operator makes of another iterator's items.

    Parameters
    ----------
    underlying : device array, iterator or dtype
    transform_op : callable, OpKind or RawOp
        An operator on one item.
    value_type : dtype or struct, optional
        Of its result. By default it is taken from the operator's annotation of what it returns, or else from
        what numba makes of it, which the cache remembers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these, or the operator cannot be compiled for the items' type.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> squares = cupar.TransformIterator(np.float32, lambda a: a * a)
    >>> squares.dtype
    dtype('float32')
    """

    @brief
    def __init__(self, underlying: Any, transform_op: Op, value_type: Any = None) -> None:
        items = over("underlying", underlying)
        if not items.node.readable:
            raise ArgumentTypeError("underlying", f"expected something to read, got {items!r}")
        op, value = _operator(transform_op, value_type, items.dtype, False)
        node = nodes.interned(
            (nodes.Transform, id(items.node), id(op)),
            lambda: nodes.Transform(value, items.node, False, op),
        )
        super().__init__(node, _leaves(items, op))


class TransformOutputIterator(Iterator):
    """Writes what an operator makes of each item to another iterator.

    Parameters
    ----------
    underlying : device array, iterator or dtype
        Where the results go. What the operator returns is converted to its dtype.
    transform_op : callable, OpKind or RawOp
        An operator on one item.
    value_type : dtype or struct, optional
        Of the items. By default it is taken from the annotation of the operator's parameter, or else it is
        the dtype of `underlying`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these, or the operator cannot be compiled for the types.

    Examples
    --------
    >>> import math, numpy as np, cupar
    >>> root = cupar.TransformOutputIterator(np.float32, lambda a: math.sqrt(a))
    >>> squares = cupar.TransformIterator(np.float32, lambda a: a * a)
    >>> norm = cupar.reduce_into(squares, root, cupar.OpKind.PLUS, np.float32(0), cc=90)
    >>> norm.build.algorithm
    'reduce_into'
    """

    @brief
    def __init__(self, underlying: Any, transform_op: Op, value_type: Any = None) -> None:
        items = over("underlying", underlying)
        if not items.node.writable:
            raise ArgumentTypeError("underlying", f"expected something to write to, got {items!r}")
        op, taken = _operator(transform_op, value_type, items.dtype, True)
        node = nodes.interned(
            (nodes.Transform, id(items.node), id(op)),
            lambda: nodes.Transform(taken, items.node, True, op),
        )
        super().__init__(node, _leaves(items, op))


_Resolved = tuple[Operator, np.dtype[Any]]
# Operators of transforms, and what tells whether a function of the same code still means the same. None has
# captured arrays, which it would keep alive.
_operators: Recent[tuple[Any, ...], tuple[Callable[[Any], bool], _Resolved]] = of_builds(Recent(128))


def _operator(op: Op, value_type: Any, dtype: np.dtype[Any], is_output: bool) -> _Resolved:
    """Return the operator of a transform from a dtype, or to it, and the dtype of the transform's items."""
    token: Any = None
    if type(op) is FunctionType and (value_type is not None or not op.__annotations__):
        token = id(op.__code__)
    elif isinstance(op, (OpKind, np.ufunc, BuiltinFunctionType)):
        token = op
    if token is None or not isinstance(value_type, (NoneType, str, type, np.dtype)):
        return _resolved(op, value_type, dtype, is_output)
    key = token, value_type, dtype, is_output, is_cpu()
    known = _operators.find(key)
    if known is not None and known[0](op):
        return known[1]
    with walk.fingerprint_scope():
        found = _resolved(op, value_type, dtype, is_output)
        if found[0].state is None:
            _operators[key] = _check_of(op), found
    return found


def _check_of(op: Op) -> Callable[[Any], bool]:
    """Return what tells whether a function of the same code still means the same."""
    if type(op) is not FunctionType:
        return lambda other: True
    made = walk.fingerprint(op)
    check = made.guard.checker()
    return (lambda other: check(other) and not walk.is_traced()) if made.numbers else check


def _resolved(op: Op, value_type: Any, dtype: np.dtype[Any], is_output: bool) -> _Resolved:
    with walk.fingerprint_scope():
        value = _value_type(value_type, op, None if is_output else "return")
        if is_output:
            taken = dtype if value is None else value
            found = resolve(op, (taken,), dtype, "transform_op", "underlying", as_function=True)
            return found.of_output(taken) if value is None else found, taken
        if value is None:
            value = _inferred(op, dtype)
        return resolve(op, (dtype,), value, "transform_op", "value_type", as_function=True), value


def _leaves(items: Iterator, op: Operator) -> list[Leaf]:
    if op.state_alignment > 8:
        raise ArgumentValueError(
            "transform_op", f"in an iterator a state is aligned to 8 bytes, not to {op.state_alignment}"
        )
    return [*items.leaves] if op.state is None else [*items.leaves, Leaf(op.state)]


def _value_type(given: Any, op: Any, name: str | None) -> np.dtype[Any] | None:
    """Return the dtype that is given, or that of a function's annotation, None if neither says one.

    The annotation is that of its result if `name` is ``"return"``, and of its first parameter if it is None.
    """
    if given is not None:
        return arrays.dtype_of("value_type", given)
    hint = annotation(op, name)
    try:
        return None if hint in (None, Any, NoneType) else arrays.dtype_of("value_type", hint)
    except TypeError:
        return None


def annotation(op: Any, name: str | None) -> Any:
    """Return what a function says of its result, ``"return"``, or of its first parameter, if `name` is None.

    None if it says nothing, or is no function of some parameter.
    """
    function = getattr(op, "py_func", op)
    if not isinstance(function, FunctionType) or not function.__code__.co_argcount:
        return None
    try:
        hints = get_type_hints(function)
    except NameError:  # names that only a type checker knows
        return None
    return hints.get(function.__code__.co_varnames[0] if name is None else name)


def _inferred(op: Op, given: np.dtype[Any]) -> np.dtype[Any]:
    """Return the result type that numba infers for an operator."""
    from ._compile import inference

    return inference.result_dtype(resolve(op, (given,), given, "transform_op"))
