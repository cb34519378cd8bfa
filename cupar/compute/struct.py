"""Structs, as ``cuda.compute.struct`` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_type_hints

import numpy as np

from .. import structs
from .types import PointerTypeDescriptor

__all__ = ["gpu_struct"]


def gpu_struct(field_dict: Any, name: str = "AnonymousStruct") -> Any:
    """Make a struct type from a dict, a structured dtype or an annotated class; see `cupar.gpu_struct`.

    Fields may be of the types in `cupar.compute.types`, too. A value is a NumPy record to NumPy.

    Raises
    ------
    TypeError, ValueError
        As `cupar.gpu_struct` does; and if a field is a pointer.
    """
    fields = field_dict
    if isinstance(fields, type):
        name, fields = fields.__name__, get_type_hints(fields)
    if isinstance(fields, Mapping):
        for field, kind in fields.items():
            if isinstance(kind, PointerTypeDescriptor):
                raise TypeError(
                    f"field_dict: {field}: expected a number or a struct, got a pointer: let the operator "
                    "capture the device array instead"
                )
    made = structs.gpu_struct(fields, name)
    return type(made.__name__, (made,), {"__slots__": (), "__array__": _array})


def _array(self: Any, dtype: Any = None, copy: Any = None) -> Any:
    """Return a value as NumPy's record, and not as an array of its fields."""
    return np.array(_plain(self), self.dtype if dtype is None else dtype)


def _plain(value: Any) -> Any:
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value
