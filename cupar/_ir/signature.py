"""Types and signatures as users write them, as text or as numba's."""

from __future__ import annotations

import ast
import re
from typing import Any, NamedTuple

import numpy as np

from .. import structs
from .._base.errors import ArgumentTypeError
from .types import Address, Array, Item, Member, Record, Scalar, Tuple, Type


class Signature(NamedTuple):
    """Result and parameters of a function."""

    result: Type | None
    parameters: tuple[Type, ...]

    def __str__(self) -> str:
        result = "void" if self.result is None else text(self.result)
        return f"{result}({', '.join(map(text, self.parameters))})"

    @property
    def takes(self) -> list[tuple[np.dtype[Any], int | None]]:
        """The dtype of each parameter, and the dimensions of an array; 0: a pointer, None: a value."""
        return [(_dtype(each), _ndim(each)) for each in self.parameters]

    @property
    def returns(self) -> np.dtype[Any] | None:
        """The dtype of the result."""
        return None if self.result is None else _dtype(self.result)

    @property
    def returned(self) -> Array | None:
        """The array that a function in C++ writes its result to, its first argument; None: it returns it."""
        dtype = self.returns
        return None if dtype is None or not structs.has_parts(dtype) else Array(Item.of(dtype), 1, "C")

    def dtypes(self) -> list[np.dtype[Any]]:
        """Return the dtypes of the parameters, and of the result if there is one."""
        return [*map(_dtype, self.parameters), *([] if self.returns is None else [self.returns])]


def _dtype(kind: Type) -> np.dtype[Any]:
    if isinstance(kind, Tuple):
        raise TypeError(f"{kind} has several dtypes")
    return kind.item.dtype


def _ndim(kind: Type) -> int | None:
    return kind.ndim if isinstance(kind, Array) else 0 if isinstance(kind, Address) else None


def text(kind: Type) -> str:
    """Return a type as `parse` reads it; of arrays, those that are C-contiguous."""
    return f"{kind.item}[{':, ' * (kind.ndim - 1)}::1]" if isinstance(kind, Array) else str(kind)


class UnknownError(ValueError):
    """A text that this parser does not know: numba may still know it."""


def parse(text: str) -> Any:
    """Parse a text into a type, a tuple of types or a `Signature`.

    Raises
    ------
    SyntaxError
        If it is no expression.
    UnknownError
        If it has something else than numbers, arrays, pointers and tuples. The message is that part.
    TypeError
        If a dtype's package is missing.
    """
    pointers = re.sub(r"(\w+)\s*\*", r"CPointer(\1)", text.strip())
    node: Any = ast.parse(pointers, mode="eval").body
    if not isinstance(node, ast.Call) or node.keywords or getattr(node.func, "id", "") in _COMPOUND:
        return _read(node)
    returns_nothing = getattr(node.func, "id", "") in ("void", "none")
    return Signature(None if returns_nothing else _read(node.func), tuple(map(_read, node.args)))


_COMPOUND = ("CPointer", "Tuple", "UniTuple")


def _read(node: Any) -> Any:
    found: Any = None
    if isinstance(node, ast.Tuple):
        return tuple(map(_read, node.elts))
    if isinstance(node, ast.Name):
        found = _number(node.id)
    elif isinstance(node, ast.Subscript):
        found = _array(_read(node.value), node.slice)
    elif isinstance(node, ast.Call) and not node.keywords:
        found = _compound(getattr(node.func, "id", ""), node.args)
    if found is None:
        raise UnknownError(ast.unparse(node))
    return found


def _number(name: str) -> Scalar | None:
    """Return the type of a number by its name: numba's, or else NumPy's."""
    try:
        dtype = structs.as_dtype(structs.NAMES.get(name, name))
    except structs.NoBfloat16Error as error:
        raise ArgumentTypeError("signature", str(error)) from None
    except TypeError:
        return None
    return Scalar(Item.of(dtype)) if structs.is_number(dtype) else None


def _array(inner: Any, index: Any) -> Array | None:
    """Return the type of an array whose layout is written as in ``float32[:, ::1]``."""
    axes: list[Any] = index.elts if isinstance(index, ast.Tuple) else [index]
    if not all(isinstance(each, ast.Slice) and not each.lower and not each.upper for each in axes):
        return None
    steps = [ast.unparse(each.step) if each.step else "" for each in axes]
    is_known = set(steps) <= {"", "1"} and steps.count("1") <= 1 and "1" not in steps[1:-1]
    if not is_known or not isinstance(inner, Scalar):
        return None
    return Array(inner.item, len(axes), "C" if steps[-1] else "F" if steps[0] else "A")


def _compound(name: str, values: list[Any]) -> Type | None:
    """Return the type that is made of others."""
    if name == "UniTuple":
        if len(values) == 2 and isinstance(values[1], ast.Constant):
            return Tuple((_read(values[0]),) * int(ast.unparse(values[1])))
    elif name == "Tuple":
        if len(values) == 1 and isinstance(values[0], (ast.Tuple, ast.List)):
            return Tuple(tuple(map(_read, values[0].elts)))
    elif name == "CPointer" and len(values) == 1 and isinstance(pointed := _read(values[0]), Scalar):
        return Address(pointed.item)
    return None


def from_numba(given: Any) -> Type | None:
    """Return one of numba's types, known by its class so that nothing is imported; None for any other."""
    bases = {cls.__name__ for cls in type(given).__mro__}
    if "Array" in bases and hasattr(given, "layout"):
        inner = from_numba(given.dtype)
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
    if "CPointer" in bases and isinstance(inner := from_numba(given.dtype), Scalar):
        return Address(inner.item)
    if bases & {"EnumMember", "IntEnumMember"} and isinstance(inner := from_numba(given.dtype), Scalar):
        return Member(given.instance_class, inner.item)
    if "BaseTuple" in bases:
        items = tuple(from_numba(each) for each in given)
        cls = getattr(given, "instance_class", tuple)
        fields = tuple(getattr(cls, "_fields", ()))
        if None not in items:
            return Tuple(items, fields, cls.__name__ if fields else "")  # type: ignore[arg-type]
    return None
