"""Prefix scans: each item of the output combines all items of the input up to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._call.algorithm import Algorithm
from ._call.arguments import accumulation
from ._call.call import Call, Launch
from ._compile import cccl
from ._compile.key import Specialisation
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op


@remembered
def exclusive_scan(d_in: Any, d_out: Any, op: Op, h_init: Any, *, cc: Any = None, wait: bool = True) -> Scan:
    """Build an exclusive scan, or fetch it from the cache: item i combines `h_init` and items 0 to i - 1.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, n items
        Where the result goes; it may be `d_in` itself. Its dtype may differ from the accumulator's.
    op : callable or OpKind
        A binary operator on two values of the accumulator's dtype. It must be associative; it need not be
        commutative.
    h_init : numpy.ndarray or device array of one element, or number
        The initial value. An array's dtype is the accumulator's; a number is taken in `d_in`'s dtype.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    Scan

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> scan = cupar.exclusive_scan(np.float32, np.float32, cupar.OpKind.PLUS, 0.0, cc=90)
    >>> scan.build.algorithm
    'exclusive_scan'

    Notes
    -----
    The algorithm is CUB's ``DeviceScan``: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with
    Decoupled Look-back", NVIDIA Technical Report NVR-2016-002. The sums of floats may differ in their last
    bits from run to run, since the grouping of items depends on timing.
    """
    if h_init is None:
        raise TypeError(
            "h_init: an exclusive scan needs an initial value, its first item; inclusive_scan can go without"
        )
    return _scan("exclusive_scan", d_in, d_out, op, h_init, cc, wait)


@remembered
def inclusive_scan(
    d_in: Any, d_out: Any, op: Op, h_init: Any = None, *, cc: Any = None, wait: bool = True
) -> Scan:
    """Build an inclusive scan, or fetch it from the cache: item i combines `h_init` and items 0 to i.

    Parameters
    ----------
    d_in, d_out, op, cc, wait
        As for `exclusive_scan`.
    h_init : numpy.ndarray or device array of one element, number or None
        The initial value; that of a device array is read when the scan runs. An array's dtype is the
        accumulator's; a number is taken in `d_in`'s dtype. With None there is no initial value, and the
        accumulator has `d_in`'s dtype.

    Returns
    -------
    Scan

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> running_max = cupar.inclusive_scan(np.int64, np.int64, lambda a, b: a if a > b else b, cc="sm_90")
    >>> running_max.build.cc
    90
    """
    return _scan("inclusive_scan", d_in, d_out, op, h_init, cc, wait)


def _scan(algorithm: str, d_in: Any, d_out: Any, op: Op, h_init: Any, cc: Any, wait: bool) -> Scan:
    cc, device = obtain.target(cc)
    types = accumulation(d_in, d_out, op, h_init, is_scan=True)
    accumulator = types.accumulator

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        b = cccl.bindings()
        kinds = {None: "NO_INIT", "value": "VALUE_INIT", "device": "FUTURE_VALUE_INIT"}
        init_kind = b.InitKind[kinds[types.init]]
        inclusive = algorithm == "inclusive_scan"
        type_info = cccl.type_info(accumulator)
        return iterators["d_in"], iterators["d_out"], operators["op"], type_info, inclusive, init_kind

    # CCCL converts between real types itself, and knows complex ones only as opaque storage.
    opaque = accumulator.kind == "c" or types.d_out.value.kind == "c"
    spec = Specialisation(
        algorithm=algorithm,
        native="DeviceScanBuildResult",
        arguments=(
            types.d_in.converted(accumulator) if opaque else types.d_in,
            types.d_out.converted(accumulator) if opaque else types.d_out,
        ),
        operators=(("op", types.operator),),
        options=(("init", types.init),),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(Scan, spec, device, wait)


class Scan(Algorithm, uses={"d_in": "num_items", "d_out": "num_items"}):
    """A scan for given types, operator and device; see `exclusive_scan` and `inclusive_scan`."""

    def __call__(
        self, temp_storage: Any, d_in: Any, d_out: Any, num_items: int, h_init: Any = None, stream: Any = None
    ) -> int:
        """Ask for the temporary storage, or scan with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in, d_out : device arrays, at least `num_items` items
        num_items : int
            How many items to scan, from 0 on; 2**32 and more are fine.
        h_init : numpy.ndarray of one element, number or None
            The initial value, of the kind that the scan was built with.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the scan was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        return self._execute(temp_storage, stream, (d_in, d_out, num_items, h_init))

    def run(self, d_in: Any, d_out: Any, num_items: int, h_init: Any = None, stream: Any = None) -> None:
        """Scan, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        self._run(stream, (d_in, d_out, num_items, h_init))

    def _launcher(self, call: Call) -> Launch:
        inits = {None: "_no_init", "value": "", "device": "_future_value"}
        kind = "inclusive" if self.build.algorithm == "inclusive_scan" else "exclusive"
        compute = getattr(call.native, f"compute_{kind}{inits[dict(self._code.spec.options)['init']]}")
        (d_in, d_out), (op,), init = call.iterators, call.operators, call.init
        return lambda address, nbytes, n, stream: compute(address, nbytes, d_in, d_out, n, op, init, stream)
