"""Transforms: an operator applied to each item of one array, or of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _factory
from ._algorithm import Algorithm, Call, argument, item_count
from ._key import Specialisation
from .operators import Op, resolve


def unary_transform(d_in: Any, d_out: Any, op: Op, *, cc: Any = None) -> Transform:
    """Build a transform of one array, or fetch it from the cache: ``d_out[i] = op(d_in[i])``.

    Parameters
    ----------
    d_in : device array or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array or dtype, n items
        Where the results go; it may be the input itself. What the operator returns is converted to its dtype.
    op : callable or OpKind
        An operator on one value of `d_in`'s dtype.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.

    Returns
    -------
    Transform

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
    return _transform("unary_transform", "DeviceUnaryTransform", {"d_in": d_in}, d_out, op, cc)


def binary_transform(d_in1: Any, d_in2: Any, d_out: Any, op: Op, *, cc: Any = None) -> Transform:
    """Build a transform of two arrays, or fetch it from the cache: ``d_out[i] = op(d_in1[i], d_in2[i])``.

    Parameters
    ----------
    d_in1, d_in2 : device arrays or dtypes, n items
        The inputs. Only their dtypes matter here, and may differ.
    d_out, cc
        As for `unary_transform`.
    op : callable or OpKind
        An operator on a value of `d_in1`'s dtype and one of `d_in2`'s.

    Returns
    -------
    Transform

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
    return _transform("binary_transform", "DeviceBinaryTransform", inputs, d_out, op, cc)


def _transform(
    algorithm: str, native: str, inputs: Mapping[str, Any], d_out: Any, op: Op, cc: Any
) -> Transform:
    cc, device = _factory.target(cc)
    sources = [argument(name, array) for name, array in inputs.items()]
    target = argument("d_out", d_out, output=True)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        return (*iterators.values(), operators["op"])

    spec = Specialisation(
        algorithm=algorithm,
        native=native,
        arguments=(*sources, target),
        operators=(("op", resolve(op, [source.value for source in sources], target.value)),),
        options=(),
        cc=cc,
        native_arguments=native_arguments,
    )
    return _factory.obtain(Transform, spec, device)


class Transform(Algorithm):
    """A transform for given types, operator and device; see `unary_transform` and `binary_transform`.

    It needs no temporary storage, so it is called in one phase: with its input or inputs, the output, the
    number of items, and the stream.
    """

    def __call__(self, *arrays_and_num_items: Any, stream: Any = None) -> None:
        """Transform: ``transform(d_in, d_out, num_items, stream=None)``, or with two inputs.

        Parameters
        ----------
        *arrays_and_num_items
            The input arrays, the output array, the number of items (from 0 on; 2**32 and more are fine), and
            perhaps the stream.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the transform was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        count = len(self._code.spec.arguments)
        arrays, rest = arrays_and_num_items[:count], arrays_and_num_items[count:]
        if len(rest) not in (1, 2) or (len(rest) == 2 and stream is not None):
            names = ", ".join(argument.name for argument in self._code.spec.arguments)
            raise TypeError(
                f"{self.build.algorithm}: expected ({names}, num_items, stream=None), "
                f"got {len(arrays_and_num_items)} positional arguments"
            )
        n = item_count("num_items", rest[0])
        self._enqueue([(array, n) for array in arrays], n, rest[1] if len(rest) == 2 else stream)

    run = __call__

    def _launch(self, call: Call, address: int, nbytes: int, work: Any, stream: int) -> int:
        call.native.compute(*call.iterators, work, *call.operators, stream)
        return 0
