"""Transforms: an operator applied to the items of arrays, one by one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .._base.errors import ArgumentTypeError, ArgumentValueError
from .._base.sizes import is_size
from ..iterators import TransformIterator, ZipIterator
from ..operators import Op
from ..transform import binary_transform
from . import operators
from .axes import broadcast, collapsed, constant, strided
from .calls import Operand, Work, enter, output_of
from .values import casting, dtype_of, naming_dtype

if TYPE_CHECKING:
    from .._base.annotations import Array, Arrays, DType, Stream


def _transform(work: Work, *given: Any) -> Operand:
    *xs, op, numbers, dtype, out = given
    numbers = (None,) * len(xs) if numbers is None else numbers
    shapes = [each.shape for each in xs if each is not None]
    try:
        shape = broadcast(shapes)
    except ValueError:
        raise ArgumentValueError(
            "xs", f"expected shapes that can be broadcast, got {', '.join(map(str, shapes))}"
        ) from None
    sources = [
        _spread(each, shape) if each is not None else constant(_number(f"xs[{i}]", number))
        for i, (each, number) in enumerate(zip(xs, numbers, strict=True))
    ]
    source = sources[0] if len(sources) == 1 else ZipIterator(*sources)
    one = op if len(sources) == 1 else operators.spread(op, len(sources))
    wanted = dtype_of("dtype", dtype)
    found = TransformIterator(source, one, wanted)
    target = output_of(work, out, shape, found.dtype, [each for each in xs if each is not None])
    written = casting(target.items, found.dtype)
    if not target.size:
        return target
    with naming_dtype(source, one, wanted):
        if len(sources) == 2 and not target.parts:
            first, second = sources
            work.run(binary_transform(first, second, written, op), first, second, written, target.size)
        else:
            work.copy(source, written, target.size, one)
    return target


_transform.out_is_last = True  # type: ignore[attr-defined]  # as of `_program.known.output_of`


def _number(name: str, given: Any) -> Any:
    if is_size(given):
        return given
    number = np.asarray(given)
    if number.dtype.kind not in "biufc":
        raise ArgumentTypeError(name, f"expected a number of at most 64 bits, got {given!r}")
    return number[()]


def _spread(x: Operand, shape: tuple[int, ...]) -> Any:
    """Return the items of an array as of one of a larger shape."""
    if x.shape == shape:
        return x.items
    padded = (1,) * (len(shape) - x.ndim) + x.shape
    steps = [math.prod(padded[i + 1 :]) if n > 1 else 0 for i, n in enumerate(padded)]
    extents, strides = collapsed(shape, tuple(steps))
    if len(extents) > 4:
        raise ArgumentValueError(
            "xs", f"shape {x.shape} is broadcast to {shape} along too many axes; expand it first"
        )
    return strided(x.items, extents, strides)


def transform(
    op: Op,
    /,
    *xs: Arrays | complex,
    dtype: DType = None,
    out: Arrays | None = None,
    num_items: int | None = None,
    like: Array | None = None,
    stream: Stream = None,
) -> Array:
    """Return an operator's results for the items of arrays, one by one.

    Parameters
    ----------
    op : callable, OpKind or RawOp
        Takes an item of each of `xs`. If it returns a tuple, so does this.
    *xs : arrays, iterators, tuples of arrays or numbers
        As for `reduce`; at most 6. Shapes are broadcast as in NumPy. A number has NumPy's dtype for it.
    dtype : dtype, optional
        Of the result; by default what the operator returns.
    out : array, optional
        Where the result goes, of its shape: it may be one of `xs`.
    num_items, like, stream
        As for `reduce`.

    Returns
    -------
    array

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these.

    Examples
    --------
    >>> import numpy as np
    >>> from cupar import arrays
    >>> arrays.transform(lambda a, b: a * a + b, np.array([1, 2, 3]), 10)
    array([11, 14, 19])
    """
    if not xs:
        raise ArgumentTypeError("xs", "expected at least one array, got none")
    given: tuple[Any, ...] = xs
    numbers, optional = None, list[str]()
    for i, each in enumerate(xs):
        if isinstance(each, _NUMBERS):
            optional.append(f"xs[{i}]")
    if optional:
        numbers = tuple([each if isinstance(each, _NUMBERS) else None for each in xs])
        given = tuple([each if number is None else None for each, number in zip(xs, numbers, strict=True)])
    arguments = op, numbers, dtype, out
    found: Array = enter(
        _transform, given, arguments, stream, like, num_items, optional=optional, of=transform, prefix="xs"
    )
    return found


_NUMBERS = (bool, int, float, complex, np.generic)
