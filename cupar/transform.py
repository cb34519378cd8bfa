"""Transforms: an operator applied to each item of one array, or of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._base.data import replace
from ._call.algorithm import Algorithm
from ._ir.nodes import Argument
from ._ir.operator import Operator
from ._ir.resolve import resolve
from ._kernels.transform import TRANSFORM
from ._obtain.arguments import argument
from ._obtain.factory_cache import memoised
from ._obtain.obtain import obtain
from .operators import Op

if TYPE_CHECKING:
    from ._base.annotations import Array, ArrayOrType, ComputeCapability, Stream


class UnaryTransform(
    Algorithm, family=TRANSFORM, uses={"d_in": "num_items", "d_out": "num_items"}, any_order=("d_in", "d_out")
):
    """A transform for given types, operator and device; see `unary_transform`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def run(self, d_in: Array, d_out: Array, num_items: int, stream: Stream = None) -> None:
        """Transform `num_items` items; `stream` as in `Algorithm`."""
        self._run(stream, (d_in, d_out, num_items))

    __call__ = run


class BinaryTransform(
    Algorithm,
    family=TRANSFORM,
    uses={"d_in1": "num_items", "d_in2": "num_items", "d_out": "num_items"},
    any_order=("d_in1", "d_in2", "d_out"),
):
    """A transform for given types, operator and device; see `binary_transform`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def run(self, d_in1: Array, d_in2: Array, d_out: Array, num_items: int, stream: Stream = None) -> None:
        """Transform `num_items` items; `stream` as in `Algorithm`."""
        self._run(stream, (d_in1, d_in2, d_out, num_items))

    __call__ = run


@memoised
def unary_transform(
    d_in: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> UnaryTransform:
    """Build a transform of one array, or fetch it from the cache.

    It does ``d_out[i] = op(d_in[i])``.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, n items
        Where the results go; it may be the input itself. What the operator
        returns is converted to its dtype.
    op : callable, OpKind or RawOp
        An operator on one value of `d_in`'s dtype.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    UnaryTransform

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, squares = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    >>> square = cupar.unary_transform(
    ...     items, squares, lambda a: a * a, cc="cpu"
    ... )
    >>> square.run(items, squares, 3)
    >>> print(squares)
    [1. 4. 9.]

    Notes
    -----
    The algorithm is CUB's ``DeviceTransform``.
    """
    source, result = argument("d_in", d_in), argument("d_out", d_out, output=True)
    operators = {"op": _operator(op, (source,), result)}
    return obtain(UnaryTransform, "unary_transform", (source, result), operators, cc, wait, link)


@memoised
def binary_transform(
    d_in1: ArrayOrType,
    d_in2: ArrayOrType,
    d_out: ArrayOrType,
    op: Op,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    link: Any = None,
    numbers: str | None = None,
) -> BinaryTransform:
    """Build a transform of two arrays, or fetch it from the cache.

    It does ``d_out[i] = op(d_in1[i], d_in2[i])``.

    Parameters
    ----------
    d_in1, d_in2 : device arrays, iterators or dtypes, n items
        The inputs. Only their dtypes matter here, and may differ.
    d_out : device array, iterator or dtype, n items
        Where the results go; it may be an input itself. What the operator
        returns is converted to its dtype.
    op : callable, OpKind or RawOp
        An operator on a value of `d_in1`'s dtype and one of `d_in2`'s.
    cc, wait, link, numbers : optional
        What to build for (90, "cpu"), whether to wait for that, code that
        operators call, and whether numbers that they read stay in it: see
        `Algorithm`, which also lists exceptions.

    Returns
    -------
    BinaryTransform

    Examples
    --------
    >>> import numpy as np, cupar
    >>> items, factors = np.array([1.5, 2.5]), np.array([2, -2], np.int8)
    >>> scaled = np.zeros(2)
    >>> scale = cupar.binary_transform(
    ...     items, factors, scaled, lambda a, b: a * b, cc="cpu"
    ... )
    >>> scale.run(items, factors, scaled, 2)
    >>> print(scaled)
    [ 3. -5.]
    """
    first, second = argument("d_in1", d_in1), argument("d_in2", d_in2)
    result = argument("d_out", d_out, output=True)
    operators = {"op": _operator(op, (first, second), result)}
    return obtain(BinaryTransform, "binary_transform", (first, second, result), operators, cc, wait, link)


def _operator(op: Op, inputs: tuple[Argument, ...], result: Argument) -> Operator:
    found = resolve(op, [each.value for each in inputs], result.value, "op", "d_out")
    return replace(found, advice=result.advice) if result.advice else found
