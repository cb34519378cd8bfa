"""Reduction: all items of an array combined into one."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from ._call.algorithm import Algorithm
from ._call.arguments import Accumulation, accumulation, choice
from ._call.call import Call, Launch
from ._compile import cccl
from ._compile.key import Specialisation
from ._obtain import obtain
from ._obtain.call_sites import remembered
from .operators import Op, OpKind


class Determinism(IntEnum):
    """How far the result of a reduction is repeatable. Values are CCCL's (``cccl_determinism_t``).

    `NOT_GUARANTEED` may be quicker, as blocks add their sums in whatever order they finish; CCCL 3.6 has it
    for `OpKind.PLUS` with an initial value and an output of the accumulator's dtype. `GPU_TO_GPU`, the same
    on all GPUs, its C interface does not have yet.
    """

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2


@remembered
def reduce_into(
    d_in: Any,
    d_out: Any,
    op: Op,
    h_init: Any = None,
    *,
    determinism: Determinism = Determinism.RUN_TO_RUN,
    cc: Any = None,
    wait: bool = True,
) -> Reduce:
    """Build a reduction, or fetch it from the cache.

    Parameters
    ----------
    d_in : device array, iterator or dtype, n items
        The input. Only its dtype matters here.
    d_out : device array, iterator or dtype, 1 item
        Where the result goes. Its dtype may differ from the accumulator's.
    op : callable or OpKind
        A binary operator on two values of the accumulator's dtype. It must be associative and commutative:
        in which order and groups items are combined is not specified, but by default is the same in every
        run on the same kind of GPU.
    h_init : numpy.ndarray of one element, number or None
        The initial value. An array's dtype is the accumulator's; a number is taken in `d_in`'s dtype. With
        None there is no initial value, the accumulator has `d_in`'s dtype, and a reduction of 0 items
        leaves `d_out` as it was.
    determinism : Determinism, optional
        Whether floats must give the same sum in every run.
    cc : int, pair of int or str, optional
        Compute capability to build for, as in 90, (9, 0), "9.0" or "sm_90"; by default the current
        device's. With it, no GPU is needed.
    wait : bool, optional
        False: build in the background and return at once; the first call, or `Algorithm.ready`, waits.

    Returns
    -------
    Reduce

    Raises
    ------
    TypeError, ValueError
        If an argument is none of the above, or the operator cannot be compiled for the types.
    NoDeviceError
        If there is no GPU and no `cc`.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> sum_into = cupar.reduce_into(np.int32, np.int32, lambda a, b: a + b, np.zeros(1, np.int32), cc=90)
    >>> sum_into.build.cc
    90

    Notes
    -----
    The algorithm is CUB's ``DeviceReduce``: D. Merrill, "CUB", https://nvidia.github.io/cccl/cub.
    """
    cc, device = obtain.target(cc)
    types = accumulation(d_in, d_out, op, h_init)
    accumulator = types.accumulator
    determinism = _supported(determinism, types)

    def native_arguments(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
        b = cccl.bindings()
        init_kind = b.InitKind.VALUE_INIT if types.init else b.InitKind.NO_INIT
        kind = b.Determinism(int(determinism))
        return (
            iterators["d_in"],
            iterators["d_out"],
            operators["op"],
            cccl.type_info(accumulator),
            init_kind,
            kind,
        )

    spec = Specialisation(
        algorithm="reduce_into",
        native="DeviceReduceBuildResult",
        arguments=(
            # CCCL converts what it reads between real types, and writes the accumulator's type whatever
            # the output's is.
            types.d_in.converted(accumulator) if accumulator.kind == "c" else types.d_in,
            types.d_out.converted(accumulator),
        ),
        operators=(("op", types.operator),),
        options=(("init", types.init), ("determinism", determinism.name)),
        cc=cc,
        native_arguments=native_arguments,
    )
    return obtain.obtain(Reduce, spec, device, wait)


def _supported(determinism: Any, types: Accumulation) -> Determinism:
    """Return a determinism, or raise unless CCCL has it for these types and operator."""
    wanted = choice("determinism", Determinism, determinism)
    if wanted is Determinism.GPU_TO_GPU:
        raise ValueError("determinism: CCCL's C interface has no GPU_TO_GPU; RUN_TO_RUN is the default")
    same = types.d_out.value == types.accumulator
    plus = types.operator.kind is OpKind.PLUS and types.init is not None and same
    if wanted is Determinism.NOT_GUARANTEED and not plus:
        raise ValueError(
            "determinism: CCCL has NOT_GUARANTEED for OpKind.PLUS of real numbers alone, with an initial "
            f"value and an output of the accumulator's dtype; got operator {types.operator.name} for "
            f"{types.operator.signature}, output {types.d_out.value}"
        )
    return wanted


class Reduce(Algorithm, uses={"d_in": "num_items", "d_out": 1}):
    """A reduction for given types, operator and device; see `reduce_into`."""

    def __call__(
        self, temp_storage: Any, d_in: Any, d_out: Any, num_items: int, h_init: Any = None, stream: Any = None
    ) -> int:
        """Ask for the temporary storage, or reduce with it.

        Parameters
        ----------
        temp_storage : None or device array
            None asks how much is needed. Otherwise at least that many bytes, of any dtype.
        d_in : device array, at least `num_items` items
        d_out : device array, at least 1 item
        num_items : int
            How many items to reduce, from 0 on; 2**32 and more are fine.
        h_init : numpy.ndarray of one element, number or None
            The initial value, of the kind that the reduction was built with.
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Returns
        -------
        int
            Bytes of temporary storage.

        Raises
        ------
        TypeError, ValueError
            If an argument is not what the reduction was built for, or is too small.
        NoDeviceError
            If there is no GPU.
        """
        return self._execute(temp_storage, stream, (d_in, d_out, num_items, h_init))

    def run(self, d_in: Any, d_out: Any, num_items: int, h_init: Any = None, stream: Any = None) -> None:
        """Reduce, with temporary storage of cupar's own.

        Parameters are those of the call.
        """
        self._run(stream, (d_in, d_out, num_items, h_init))

    def _launcher(self, call: Call) -> Launch:
        # The build knows best: CCCL may give more than it was asked for.
        free = call.native.determinism == Determinism.NOT_GUARANTEED
        compute = call.native.compute_nondeterministic if free else call.native.compute
        (d_in, d_out), (op,), init = call.iterators, call.operators, call.init
        return lambda address, nbytes, n, stream: compute(address, nbytes, d_in, d_out, n, op, init, stream)
