"""Transforms: an operator applied to each item of one array, or of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ._call.algorithm import Algorithm
from ._call.arguments import argument
from ._call.call import Call, Launch
from ._compile.key import Specialisation
from ._ir.nodes import Argument
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, resolve


@remembered
def unary_transform(d_in: Any, d_out: Any, op: Op, *, cc: Any = None, wait: bool = True) -> UnaryTransform:
    """Build a transform of one array, or fetch it from the cache: ``d_out[i] = op(d_in[i])``.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, n items
        Where the results go; it may be the input itself. What the operator returns is converted to its dtype.
    op : callable or OpKind
        An operator on one value of `d_in`'s dtype.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    UnaryTransform

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> square = cupar.unary_transform(np.float32, np.float32, lambda a: a * a, cc=90)
    >>> square.build.algorithm
    'unary_transform'

    Notes
    -----
    The algorithm is CUB's ``DeviceTransform``.
    """
    return _transform(
        UnaryTransform, "unary_transform", "DeviceUnaryTransform", {"d_in": d_in}, d_out, op, cc, wait
    )


@remembered
def binary_transform(
    d_in1: Any, d_in2: Any, d_out: Any, op: Op, *, cc: Any = None, wait: bool = True
) -> BinaryTransform:
    """Build a transform of two arrays, or fetch it from the cache: ``d_out[i] = op(d_in1[i], d_in2[i])``.

    Parameters
    ----------
    d_in1, d_in2 : device arrays, iterators or dtypes, n items
        The inputs. Only their dtypes matter here, and may differ.
    d_out, cc, wait
        As for `unary_transform`.
    op : callable or OpKind
        An operator on a value of `d_in1`'s dtype and one of `d_in2`'s.

    Returns
    -------
    BinaryTransform

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> scale = cupar.binary_transform(np.float32, np.int8, np.float64, lambda a, b: a * b, cc=90)
    >>> scale.build.algorithm
    'binary_transform'
    """
    inputs = {"d_in1": d_in1, "d_in2": d_in2}
    return _transform(
        BinaryTransform, "binary_transform", "DeviceBinaryTransform", inputs, d_out, op, cc, wait
    )


class UnaryTransform(Algorithm, uses={"d_in": "num_items", "d_out": "num_items"}):
    """A transform for given types, operator and device; see `unary_transform`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def __call__(self, d_in: Any, d_out: Any, num_items: int, stream: Any = None) -> None:
        """Transform.

        Parameters
        ----------
        d_in, d_out : device arrays, at least `num_items` items
        num_items : int
            How many items to transform, from 0 on; 2**32 and more are fine.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the transform was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        self._enqueue(stream, (d_in, d_out, num_items))

    run = __call__

    def _launcher(self, call: Call) -> Launch:
        compute, (d_in, d_out), (op,) = call.native.compute, call.iterators, call.operators
        return lambda address, nbytes, n, stream: compute(d_in, d_out, n, op, stream) or 0


class BinaryTransform(Algorithm, uses={"d_in1": "num_items", "d_in2": "num_items", "d_out": "num_items"}):
    """A transform for given types, operator and device; see `binary_transform`.

    It needs no temporary storage, so it is called in one phase.
    """

    _needs_storage = False

    def __call__(self, d_in1: Any, d_in2: Any, d_out: Any, num_items: int, stream: Any = None) -> None:
        """Transform.

        Parameters
        ----------
        d_in1, d_in2, d_out : device arrays, at least `num_items` items
        num_items : int
            How many items to transform, from 0 on; 2**32 and more are fine.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the transform was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        self._enqueue(stream, (d_in1, d_in2, d_out, num_items))

    run = __call__

    def _launcher(self, call: Call) -> Launch:
        compute, (d_in1, d_in2, d_out), (op,) = call.native.compute, call.iterators, call.operators
        return lambda address, nbytes, n, stream: compute(d_in1, d_in2, d_out, n, op, stream) or 0


T = TypeVar("T", UnaryTransform, BinaryTransform)


def _transform(
    cls: type[T],
    algorithm: str,
    native: str,
    inputs: Mapping[str, Any],
    d_out: Any,
    op: Op,
    cc: Any,
    wait: bool,
) -> T:
    cc, device = obtain.target(cc)
    sources: list[Argument] = [argument(name, array) for name, array in inputs.items()]
    target = argument("d_out", d_out, output=True)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*iterators.values(), operators["op"])

    spec = Specialisation(
        algorithm=algorithm,
        native=native,
        arguments=(*sources, target),
        operators=(("op", resolve(op, [source.value for source in sources], target.value, "op", "d_out")),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(cls, spec, device, wait)
