"""Device code from elsewhere: functions in C++ for operators and kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import Any, Final

import numpy as np

from . import structs
from ._base.errors import ArgumentTypeError, ArgumentValueError
from ._ir.cpp_function import CppFunction, function
from ._ir.signature import Signature, UnknownError, from_numba, parse
from ._ir.types import Address, Array, Item, Member, Record, Scalar, Struct, Tuple

__all__ = ["CppFunction", "cpp"]


def cpp(
    source: str | PathLike[str],
    signature: Any,
    *,
    name: str | None = None,
    include: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    options: str | Sequence[str] = (),
) -> CppFunction:
    """Make a device function from C++, for operators and kernels to call, or to be an operator itself.

    NVRTC compiles it once: the cache keeps it by the content of the source and of all that it includes,
    whatever the files are called and wherever they are.

    Parameters
    ----------
    source : str or path
        C++ that defines a ``__device__`` function, or the file of it. The headers of CUDA and CCCL are there
        to be included, and so do files beside it and absolute paths. A macro may not name the file
        that is included. The file is read when this is called.
    signature : str, numba signature or (result, list of arguments)
        As in ``"float32(float32, int64)"`` or, for dtypes and struct types, ``(np.float32, [np.float32,
        Pair])``. ``void`` (None among dtypes) is no result; ``float32[::1]`` is a C-contiguous array, of
        which the function gets a pointer to the first item, and ``float32*`` a pointer.
    name : str, optional
        Of the function, if the source defines several, or a template: ``"scale<3>"``.
    include : path or list of paths, optional
        Folders in which the source finds what it includes, before those of CUDA and CCCL.
    options : str or list of str, optional
        Of NVRTC: ``-D…``, ``-U…``, ``-std=…``, ``--use_fast_math`` and the like.

    Returns
    -------
    CppFunction
        Complex numbers and structs are in C++ any type of that size, such as ``float2``, or a struct with the
        same fields.

    Raises
    ------
    TypeError, ValueError
        If an argument is not one of these, a file is missing, or it is not clear which function is meant.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> hypot = cupar.cpp("__device__ float hyp(float a, float b) { return sqrtf(a * a + b * b); }",
    ...                   "float32(float32, float32)")
    >>> hypot
    <cupar.cpp hyp: float32(float32, float32)>
    >>> norm = cupar.reduce_into(np.float32, np.float32, lambda a, b: hypot(a, b), np.float32(0), cc=90)
    >>> norm.build.algorithm
    'reduce_into'
    """
    return function(source, _signature(signature), name, include, options)


_EXPECTED: Final = (
    "expected text as in 'float32(float32, int64)', where float32[::1] is a C-contiguous array "
    "and float32* a pointer, or a result and a list of dtypes, as in (np.float32, [np.float32, Pair])"
)


def _signature(given: Any) -> Signature:
    """Read the signature of a function in C++: text, one of numba's, or a result and a list of dtypes."""
    if isinstance(given, str):
        try:
            found = parse(given)
        except SyntaxError:
            found = None
        except UnknownError as error:
            raise _unknown(str(error)) from None
        if not isinstance(found, Signature):
            raise ArgumentValueError("signature", f"{_EXPECTED}; got {given!r}")
        result, parameters = found
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], (list, tuple)):
        result, parameters = given
    elif hasattr(given, "return_type") and hasattr(given, "args"):
        returned, parameters = given.return_type, given.args
        result = None if str(returned) in ("none", "void") else returned
    else:
        raise ArgumentTypeError("signature", f"{_EXPECTED}; got {given!r}")
    returned = None if result is None else _value(_parameter(result).item.dtype)
    return Signature(returned, tuple(map(_parameter, parameters)))


def _unknown(part: Any) -> Exception:
    text = str(part)
    if text.isidentifier():
        return ArgumentTypeError("signature", f"expected {structs.SUPPORTED}, got {text!r}")
    is_array = isinstance(part, Array) or "[" in text or "Array" in text
    hint = "; an array must be C-contiguous, as in float32[::1]" if is_array else ""
    return ArgumentValueError("signature", f"{text!r} is no type that is known here{hint}")


def _parameter(given: Any) -> Address | Array | Scalar | Struct:
    kind: Any = given
    if isinstance(given, str):
        try:
            kind = parse(given)
        except (SyntaxError, UnknownError):
            if re.search(r"[\[*(+ ]", given):
                raise _unknown(given) from None
    elif type(given).__module__.startswith("numba."):
        kind = from_numba(given)
    if isinstance(kind, Address) or (isinstance(kind, Array) and kind.layout == "C"):
        dtype = _dtype(kind.item.dtype)
        if dtype.names is not None:
            raise ArgumentValueError("signature", f"{given}: arrays and pointers are of numbers here")
        ndim = getattr(kind, "ndim", 0)
        return Array(Item.of(dtype), ndim, "C") if ndim else Address(Item.of(dtype))
    if isinstance(kind, Scalar):
        kind = kind.item.dtype
    elif kind is None or isinstance(kind, (Array, Member, Record, Tuple)):
        raise _unknown(kind or given)
    return _value(_dtype(kind))


def _value(dtype: np.dtype[Any]) -> Scalar | Struct:
    return (Scalar if dtype.names is None else Struct)(Item.of(dtype))


def _dtype(given: Any) -> np.dtype[Any]:
    try:
        return structs.normal("signature", structs.as_dtype(given))
    except structs.NoBfloat16Error as error:
        raise ArgumentTypeError("signature", str(error)) from None
    except TypeError:
        raise ArgumentTypeError("signature", f"expected {structs.SUPPORTED}, got {given!r}") from None
