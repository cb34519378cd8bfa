"""Types of a kernel's parameters as users write them: signatures, types of numba's, dtypes, or arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError
from .._device import arrays
from .._ir.signature import Signature, UnknownError, from_numba, parse
from .._ir.types import Address, Array, Item, Member, Record, Scalar, Struct, Tuple, Type
from .._numba import Name
from .typeof import typeof


def types_of(signature: Any, names: Sequence[str]) -> tuple[Type, ...]:
    """Return the types of a kernel's parameters, which have these names.

    Parameters
    ----------
    signature : str, numba signature, or tuple
        ``"void(float32[:], int64)"``, or of each parameter a type of numba's, a dtype or struct class for a
        number or struct, a text such as ``"float32[:, ::1]"``, or an argument. Of a kernel with one
        parameter, that alone will do.

    Raises
    ------
    TypeError
        If it is not a signature, or for another number of parameters.
    """
    given = _given(signature)
    if len(given) != len(names):
        raise ArgumentTypeError(
            "signature", f"has {len(given)} types, the kernel has {len(names)} parameters: {signature}"
        )
    return tuple(type_of(name, each) for name, each in zip(names, given, strict=True))


def is_signature(value: Any) -> bool:
    """Whether a value may be one signature: a text, a tuple, one of numba's, or the type of a parameter."""
    return isinstance(value, (str, tuple)) or _is_numbas_signature(value) or _is_type(value)


def _is_numbas_signature(value: Any) -> bool:
    return hasattr(value, "args") and hasattr(value, "return_type")


def _is_type(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, (np.generic, int, float, complex)) or structs.is_struct(value)
    if isinstance(value, Name):
        return value.kind is not None
    bases = {cls.__name__ for cls in type(value).__mro__ if str(cls.__module__).startswith("numba.")}
    return isinstance(value, np.dtype) or "Type" in bases


def text_of(signature: Any) -> str:
    """Return a device function's signature as text, from which numba makes it again."""
    if isinstance(signature, str):
        return signature.strip()
    from .. import _numba

    try:
        return _numba.signature_text(signature)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError("signature", f"{error}: write it as in 'float32(float32, int64)'") from None


def _given(signature: Any) -> tuple[Any, ...]:
    if isinstance(signature, str):
        signature = _parsed(signature)
    if _is_numbas_signature(signature):
        _check_void(signature.return_type)
        signature = signature.args
    return tuple(signature) if isinstance(signature, (tuple, list)) else (signature,)


def _check_void(result: Any) -> None:
    if result is not None and str(result) not in ("none", "void"):
        raise ArgumentTypeError(
            "signature", f"a kernel returns nothing, got {result} as its result: write void(...)"
        )


def type_of(name: str, given: Any) -> Type:
    """Return the type that is written in one of the ways in which a parameter's may be."""
    if isinstance(given, (Scalar, Array, Record, Address, Tuple, Struct, Member)):
        return given
    if isinstance(given, Name) and given.kind:  # of a type: its dtype is the last word
        return Scalar(Item.of(np.dtype(given.kind.split()[-1])))
    if isinstance(given, str):
        parsed = _parsed(given)
        return type_of(name, parsed)
    if structs.is_struct(given):
        return Struct(Item.of(given.dtype))
    if isinstance(given, np.dtype) or (
        isinstance(given, type) and issubclass(given, (np.generic, int, float, complex))
    ):
        dtype = np.dtype(given)
        return Struct(Item.of(structs.normal(name, dtype))) if dtype.names else Scalar(Item.of(dtype))
    if type(given).__module__.startswith("numba."):
        found = from_numba(given)
        if found is not None:
            return found
        if not arrays.is_device_array(given):
            raise ArgumentTypeError(name, f"a kernel cannot have a parameter of numba's type {given}")
    return typeof(name, given)


def _parsed(text: str) -> Any:
    """Parse a text: a type, or the types of all parameters in a tuple."""
    try:
        found = parse(text)
    except SyntaxError:
        raise ArgumentTypeError(
            "signature", f"expected one as in 'void(float32[:], int64)', got {text!r}"
        ) from None
    except UnknownError:
        from .. import _numba

        try:
            return _numba.parsed(text)  # which knows more
        except Exception as error:
            raise ArgumentTypeError("signature", f"{text!r}: {error}") from None
    if isinstance(found, Signature):
        _check_void(found.result)
        return found.parameters
    return found
