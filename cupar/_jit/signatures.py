"""Types of a kernel's parameters as users write them: signatures, types of numba's, dtypes, or arguments."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import structs
from .._device import arrays
from .._ir.parameters import Address, Array, Item, Member, Record, Scalar, Struct, Tuple, Type
from .._numba import TYPE_NAMES, Name
from .typeof import typeof

_NAMES = {**TYPE_NAMES, "float16": "f2", "f2": "f2", "bool": "?", "bfloat16": "bfloat16"}


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
        If it is none, or for another number of parameters.
    """
    given = _given(signature)
    if len(given) != len(names):
        raise TypeError(
            f"signature: has {len(given)} types, the kernel has {len(names)} parameters: {signature}"
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
        raise TypeError(f"signature: {error}: write it as in 'float32(float32, int64)'") from None


def _given(signature: Any) -> tuple[Any, ...]:
    if isinstance(signature, str):
        signature = _parsed(signature)
    if _is_numbas_signature(signature):
        _check_void(signature.return_type)
        signature = signature.args
    return tuple(signature) if isinstance(signature, (tuple, list)) else (signature,)


def _check_void(result: Any) -> None:
    if result is not None and str(result) not in ("none", "void"):
        raise TypeError(f"signature: a kernel returns nothing, got {result} as its result: write void(...)")


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
        found = _from_numba(given)
        if found is not None:
            return found
        if not arrays.is_device_array(given):
            raise TypeError(f"{name}: a kernel cannot have a parameter of numba's type {given}")
    return typeof(name, given)


def _from_numba(given: Any) -> Type | None:
    """Return one of numba's types; it is known by its class, so that nothing is imported."""
    bases = {cls.__name__ for cls in type(given).__mro__}
    if "Array" in bases and hasattr(given, "layout"):
        inner = _from_numba(given.dtype)
        if isinstance(inner, (Scalar, Record)):
            return Array(inner.item, given.ndim, given.layout, bool(given.mutable))
    if "Bfloat16" in bases:
        return Scalar(Item.of(structs.bfloat16()))
    if bases & {"Boolean", "Integer", "Float", "Complex"}:
        return Scalar(Item.of(np.dtype(str(given.name).replace("boolean", "bool"))))
    if bases & {"Record", "NPDatetime", "NPTimedelta", "CharSeq", "NestedArray"}:
        from .. import _numba

        item = Item.of(_numba.dtype_of(given))
        return Record(item) if "Record" in bases else Scalar(item)
    if "CPointer" in bases and isinstance(inner := _from_numba(given.dtype), Scalar):
        return Address(inner.item)
    if bases & {"EnumMember", "IntEnumMember"} and isinstance(inner := _from_numba(given.dtype), Scalar):
        return Member(given.instance_class, inner.item)
    if "BaseTuple" in bases:
        items = tuple(_from_numba(each) for each in given)
        cls = getattr(given, "instance_class", tuple)
        fields = tuple(getattr(cls, "_fields", ()))
        if None not in items:
            return Tuple(items, fields, cls.__name__ if fields else "")  # type: ignore[arg-type]
    return None


# --- Texts -------------------------------------------------------------------------------------------------


def _parsed(text: str) -> Any:
    """Return what a text says: a type, or the types of all parameters in a tuple."""
    try:
        return _evaluated(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        raise TypeError(f"signature: expected one as in 'void(float32[:], int64)', got {text!r}") from None
    except _UnknownError:
        pass
    from .. import _numba

    try:
        return _numba.parsed(text)  # which knows more
    except Exception as error:
        raise TypeError(f"signature: {text!r}: {error}") from None


class _UnknownError(Exception):
    """A text is none of those that are read here."""


def _evaluated(node: Any) -> Any:
    if isinstance(node, ast.Name) and node.id in _NAMES:
        try:
            return Scalar(Item.of(structs.as_dtype(_NAMES[node.id])))
        except structs.NoBfloat16Error as error:
            raise TypeError(f"signature: {error}") from None
    if isinstance(node, ast.Tuple):
        return tuple(map(_evaluated, node.elts))
    if isinstance(node, ast.Subscript) and isinstance(inner := _evaluated(node.value), Scalar):
        index = node.slice
        axes = index.elts if isinstance(index, ast.Tuple) else [index]
        if all(isinstance(each, ast.Slice) and not each.lower and not each.upper for each in axes):
            steps = [ast.unparse(each.step) if each.step else "" for each in axes]  # type: ignore[attr-defined]
            if set(steps) <= {"", "1"} and steps.count("1") <= 1:
                layout = "C" if steps[-1] else "F" if steps[0] else "A"
                if "1" not in steps[1:-1]:
                    return Array(inner.item, len(axes), layout)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        name, values = node.func.id, node.args
        if name in ("void", "none"):
            return tuple(map(_evaluated, values))
        if name == "UniTuple" and len(values) == 2 and isinstance(values[1], ast.Constant):
            return Tuple((_evaluated(values[0]),) * int(ast.unparse(values[1])))
        if name == "Tuple" and len(values) == 1 and isinstance(values[0], (ast.Tuple, ast.List)):
            return Tuple(tuple(map(_evaluated, values[0].elts)))
        if name == "CPointer" and len(values) == 1:
            return Address(_evaluated(values[0]).item)
        if name in _NAMES:
            _check_void(name)
    raise _UnknownError
