"""Operators as users give them: an `OpKind`, LTO-IR, or a Python function.

`_ir.resolve` resolves them for given types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from ._base.data import dataclass, field
from ._base.digests import sha256
from ._base.errors import ArgumentTypeError, ArgumentValueError


class OpKind(IntEnum):
    """Operators that CCCL has, for some of them with faster code.

    Values are those of CCCL's C interface (``cccl_op_kind_t``). `MINIMUM` and `MAXIMUM` follow C++
    (``b < a ? b : a`` and ``a < b ? b : a``), so what they make of a NaN depends on where it stands;
    ``np.minimum`` and ``np.maximum`` propagate it. `DIVIDES` and `MODULUS` of integers truncate towards
    zero, as in C; by 0 both give 0, and the least integer divided by -1 is itself.
    """

    PLUS = 2
    MINUS = 3
    MULTIPLIES = 4
    DIVIDES = 5
    MODULUS = 6
    EQUAL_TO = 7
    NOT_EQUAL_TO = 8
    GREATER = 9
    LESS = 10
    GREATER_EQUAL = 11
    LESS_EQUAL = 12
    LOGICAL_AND = 13
    LOGICAL_OR = 14
    LOGICAL_NOT = 15
    BIT_AND = 16
    BIT_OR = 17
    BIT_XOR = 18
    BIT_NOT = 19
    IDENTITY = 20
    NEGATE = 21
    MINIMUM = 22
    MAXIMUM = 23


@dataclass(frozen=True)
class RawOp:
    """Your own operator as LTO-IR, made by nvcc or NVRTC with ``-dlto``, or by another compiler.

    Parameters
    ----------
    name : str
        Of its function, as the linker sees it (``extern "C"`` in C++). The function takes a ``void*`` to each
        argument and then one to the result, and returns nothing. With a state, its first argument is a
        ``void*`` to that.
    ltoir : bytes
        LTO-IR, for the compute capability that is built for or an earlier one.
    state : bytes, optional
        Handed to the kernel in each call, such as the addresses of arrays. What it holds is no part of the
        build: operators that differ in it alone share one.
    state_alignment : int, optional
        In bytes: a power of two.
    extra_ltoirs : sequence of bytes, optional
        Further LTO-IR to link, with what the function calls.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of the above.

    Examples
    --------
    In C++, for float32::

        extern "C" __device__ void add(void* a, void* b, void* result) {
          *static_cast<float*>(result) = *static_cast<float*>(a) + *static_cast<float*>(b);
        }
    """

    name: str
    ltoir: bytes = field(repr=False)
    state: bytes = field(default=b"", kw_only=True)
    state_alignment: int = field(default=1, kw_only=True)
    extra_ltoirs: Sequence[bytes] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isascii() or not self.name.isidentifier():
            raise ArgumentValueError("name", f"expected the name of a C function, got {self.name!r}")
        if self.name.startswith("cupar_"):
            raise ArgumentValueError(
                "name", f"{self.name!r} begins as cupar's own functions do; call it something else"
            )
        if not isinstance(self.state, bytes):
            raise ArgumentTypeError("state", f"expected bytes, got {type(self.state).__name__}")
        alignment = self.state_alignment
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ArgumentValueError("state_alignment", f"expected a power of two, got {alignment!r}")
        extra_ltoirs: Any = self.extra_ltoirs
        if isinstance(extra_ltoirs, bytes):  # a sequence, too, but of numbers
            raise ArgumentTypeError(
                "extra_ltoirs", "expected a sequence of bytes, got bytes; put them into a list"
            )
        object.__setattr__(self, "extra_ltoirs", tuple(extra_ltoirs or ()))
        extra = ((f"extra_ltoirs[{i}]", code) for i, code in enumerate(self.extra_ltoirs))
        for name, code in (("ltoir", self.ltoir), *extra):
            if not isinstance(code, bytes):
                raise ArgumentTypeError(name, f"expected LTO-IR as bytes, got {type(code).__name__}")
            if not code:
                raise ArgumentValueError(name, "is empty, expected LTO-IR")

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of its code."""
        digest = sha256(self.name.encode())
        for code in (self.ltoir, *self.extra_ltoirs):
            digest.update(sha256(code).digest())
        return digest.hexdigest()


Op = OpKind | RawOp | Callable[..., Any]
