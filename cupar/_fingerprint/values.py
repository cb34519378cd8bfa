"""Values that an operator reads: their encoding as bytes, and a frozen copy.

The bytes are the same in every process and on every machine, and equal only for equal values of the same
type. There are no file names in them, no ``id()``, ``hash()`` or ``repr()``. What has no exact encoding is
refused with an error that names it.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from operator import is_
from types import FunctionType
from typing import Any, Final

import numpy as np

from .. import structs
from .._base.device import is_cpu
from .._device import arrays
from .frozen import Instance, Missing, NamedTupleClass, StructClass
from .names import compilers_name, numba_type_name, type_name
from .refusals import Unfingerprintable, refusal, refuse

Pair = tuple[bytes, Any]
"""A value's encoding, and its frozen copy."""


DEEPEST: Final = 50  # constants in constants: enough for all, and for each recursion over them
_TOO_DEEP: Final = f"It has more than {DEEPEST} values within each other: make it flatter, as an array is."


def encode(value: object) -> bytes:
    """Encode plain data of types that `ValueEncoder` knows, without functions; no other encoding begins so.

    ``1``, ``1.0``, ``True``, ``np.int32(1)`` and ``np.int64(1)`` all differ, as do ``0.0`` and ``-0.0``, NaNs
    with different payloads, arrays with equal items and other strides, and dicts in another order.

    Raises
    ------
    Unfingerprintable
        If the value, or something in it, is of another type.
    """
    atom = encode_atom(value)
    return ValueEncoder(refuse).read(held(value, "the value"), "the value")[0] if atom is None else atom


def frame(tag: str, *parts: bytes) -> bytes:
    """Join parts, each a frame itself or the only one; tag and length mark where they end."""
    payload = b"".join(parts)
    return b"%s(%d)%s" % (tag.encode(), len(payload), payload)


def encode_int(value: int) -> bytes:
    """Encode an integer."""
    return frame("int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _encode_str(value: str) -> bytes:
    return frame("str", value.encode("utf-8", "surrogatepass"))


# Immutable types without parts that could be mutable. A subclass may hold more than its value does,
# so the type must match exactly.
ATOMS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: frame("None"),
    type(...): lambda _: frame("Ellipsis"),
    bool: lambda value: frame("bool", b"1" if value else b"0"),
    int: encode_int,
    float: lambda value: frame("float", struct.pack("<d", value)),
    complex: lambda value: frame("complex", struct.pack("<dd", value.real, value.imag)),
    str: _encode_str,
    bytes: lambda value: frame("bytes", value),
    range: lambda value: frame("range", *map(encode_int, (value.start, value.stop, value.step))),
    Missing: lambda _: frame("missing"),
}


def encode_atom(value: object) -> bytes | None:
    """Encode a value that cannot change and has no parts; return None for others."""
    atom = ATOMS.get(type(value))
    return None if atom is None else atom(value)


def held(value: Any, where: str, around: frozenset[int] = frozenset()) -> Any:
    """Return a value whose contents no other code can change: containers and arrays are copied.

    Immutable values are returned themselves, as are functions and classes, which are read separately.
    `around` has the ids of the containers that this one is in.
    """
    cls = type(value)
    if cls is np.ndarray:
        return _copy_array(value)
    if cls is np.void:
        return value.copy()
    if cls not in (tuple, list, dict, set, frozenset):
        return value
    if id(value) in around:
        raise refusal(where, value, "It contains itself, which no constant in compiled code can.")
    if len(around) == DEEPEST:
        raise refusal(where, value, _TOO_DEEP)
    around |= {id(value)}
    if cls is dict:
        return {key: held(item, where, around) for key, item in value.copy().items()}
    items = tuple(value.copy() if cls in (list, set) else value)
    copies = tuple(held(item, where, around) for item in items)
    if cls in (tuple, frozenset) and all(map(is_, items, copies)):
        return value
    return cls(copies)


def _copy_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array with its strides and flags: numba's type of it is made of these."""
    copy = zeros(array.shape, _copy_dtype(array.dtype), array.strides, array.flags.aligned)
    copy[...] = array
    copy.flags.writeable = array.flags.writeable
    return copy


def zeros(
    shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...], aligned: bool
) -> np.ndarray[Any, Any]:
    """Return an array of zeros in new memory, with any strides."""
    steps = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    size = first + sum(step for step in steps if step > 0) + dtype.itemsize if all(shape) else 0
    memory = np.zeros(size + 1, np.uint8)
    offset = first + (not aligned) if size else 0
    array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory.data, offset, strides)
    return array


def _copy_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype equal to this one, whose fields no other code can rename."""
    if dtype.names is None or dtype.hasobject:
        return dtype
    fields: Any = dtype.fields
    described: Any = {
        "names": list(dtype.names),
        "formats": [_copy_dtype(fields[name][0]) for name in dtype.names],
        "offsets": [fields[name][1] for name in dtype.names],
        "titles": [fields[name][2] if len(fields[name]) > 2 else None for name in dtype.names],
        "itemsize": dtype.itemsize,
    }
    copy: np.dtype[Any] = np.dtype(described, align=dtype.isalignedstruct)
    return copy


class ValueEncoder:
    """Reads values that are `held`: returns of each its encoding and its frozen copy.

    Classes are numbered in the order of their first use, since numba distinguishes classes of equal contents
    by identity.

    ``other(value, where)`` reads or refuses values that are not plain data. ``check(value, where)`` refuses
    functions and classes for other reasons than their contents. With `identify`, classes are encoded as
    themselves, for this process alone, and kept alive in `classes`.
    """

    def __init__(
        self,
        other: Callable[[Any, str], Pair],
        check: Callable[[Any, str], None] | None = None,
        identify: bool = False,
    ) -> None:
        self._other = other
        self._check = check
        self._identify = identify
        self.classes: dict[int, tuple[type, int]] = {}  # with their numbers, by id
        self._frozen: dict[int, NamedTupleClass] = {}
        self._depth = 0  # of the value that is read, within others

    def read(self, value: Any, where: str) -> Pair:
        """Read a value; `where` says in errors where it was found."""
        cls = type(value)
        atom = ATOMS.get(cls)
        if atom is not None:
            return atom(value), value
        if cls in (tuple, list, dict, set, frozenset, slice):
            return self._container(value, where)
        if isinstance(value, np.dtype):
            return _encode_dtype(value, where), _copy_dtype(value)
        if cls is np.ndarray or isinstance(value, np.generic):
            return _encode_array(value, where), value
        if isinstance(value, enum.Enum):
            if self._check is not None:
                self._check(cls, where)
            contents = (self._number(cls), _enum_kind(cls), value.name, value.value)
            return frame("member", *self._items(contents, where)[0]), value
        if _is_tuple_class(cls):
            encoding, frozen = self._class(cls, where)
            encodings, fields = self._items(tuple(value), where)
            tag = "made" if structs.is_struct(cls) else "named"
            return frame(tag, encoding, *encodings), Instance(frozen, tuple(fields))
        if isinstance(value, enum.EnumMeta) or (isinstance(value, type) and _is_tuple_class(value)):
            return self._class(value, where)
        name = compilers_name(value) or numba_type_name(value)
        if name is None and self._check is not None:
            self._check(value, where)
        return self._other(value, where) if name is None else (frame("name", name.encode()), value)

    def _number(self, cls: type) -> int:
        _, number = self.classes.setdefault(id(cls), (cls, len(self.classes)))
        return id(cls) if self._identify else number

    def _class(self, cls: Any, where: str) -> Pair:
        if self._check is not None:
            self._check(cls, where)
        number = encode_int(self._number(cls))
        if isinstance(cls, enum.EnumMeta):
            members = [(name, getattr(cls, name).value) for name in cls.__members__]
            return frame("enum", number, *self._items((_enum_kind(cls), *members), where)[0]), cls
        if structs.is_struct(cls):
            # Not its name: operators that make the same struct compile to the same code.
            dtype: np.dtype[Any] = _copy_dtype(cls.dtype)
            return frame("struct", number, _encode_dtype(dtype, where)), StructClass(dtype)
        # numba takes defaults from here, where some assign them, and not from _field_defaults.
        encodings, (fields, defaults) = self._items((cls._fields, cls.__new__.__defaults__), where)
        frozen = self._frozen.setdefault(id(cls), NamedTupleClass(cls.__name__, fields, defaults))
        return frame("namedtuple", number, *encodings), frozen

    def _container(self, value: Any, where: str) -> Pair:
        cls, tag = type(value), type(value).__name__
        if cls is dict:
            encodings, keys = self._all(value, repeat(f"a key of {where}"))
            of_items, items = self._all(
                value.values(),
                [f"{where}[{k!r}]" if isinstance(k, (str, int)) else f"a value of {where}" for k in value],
            )
            entries = chain.from_iterable(zip(encodings, of_items, strict=True))
            return frame(tag, *entries), dict(zip(keys, items, strict=True))
        if cls in (set, frozenset):
            encodings, copies = self._all(value, repeat(f"an item of {where}"))
            # Their order depends on hashes, which differ between processes.
            return frame(tag, *sorted(encodings)), cls(copies)
        parts = (value.start, value.stop, value.step) if cls is slice else value
        encodings, copies = self._items(parts, where)
        return frame(tag, *encodings), slice(*copies) if cls is slice else cls(copies)

    def _items(self, items: Sequence[object], where: str) -> tuple[list[bytes], list[Any]]:
        # No generator, at whose end Ctrl-C would be lost.
        return self._all(items, [f"{where}[{index}]" for index in range(len(items))])

    def _all(self, items: Iterable[object], wheres: Iterable[str]) -> tuple[list[bytes], list[Any]]:
        self._depth += 1
        if self._depth > DEEPEST:
            raise Unfingerprintable(f"{next(iter(wheres))[:80]}… is within too many others. {_TOO_DEEP}")
        read = [self.read(item, where) for item, where in zip(items, wheres, strict=False)]
        self._depth -= 1
        return [encoding for encoding, _ in read], [copy for _, copy in read]


def encode_device_array(array: object, where: str) -> bytes:
    """Encode the parts of a device array that code depends on: pointer and shape are arguments."""
    found = arrays.view(where, array)
    read_only = [] if found.writable or not is_cpu() else [b"read-only"]
    ndim = encode_int(len(arrays.shape(array)))
    return frame("device array", _encode_dtype(found.dtype, where), ndim, *read_only)


def _encode_dtype(dtype: np.dtype[Any], where: str) -> bytes:
    """Encode a dtype with all of its layout."""
    if dtype.hasobject or dtype.char in "gG":
        # Objects have no value; long doubles have padding, which differs between equal numbers.
        raise refusal(where, dtype, f"Items of dtype {dtype} have no exact encoding; use another dtype.")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return frame("subarray", _encode_dtype(base, where), *map(encode_int, shape))
    if dtype.names is not None:
        layout = encode((dtype.itemsize, dtype.alignment, dtype.isalignedstruct))
        return frame("record", layout, *(_encode_field(dtype, name, where) for name in dtype.names))
    # Types that other packages add to NumPy (bfloat16) share their str with void types.
    added = "" if dtype.type.__module__ == "numpy" else type_name(dtype.type)
    return frame("dtype", _encode_str(dtype.str), _encode_str(added))


def _encode_field(dtype: np.dtype[Any], name: str, where: str) -> bytes:
    assert dtype.fields is not None
    item, offset, *title = dtype.fields[name]
    return frame("field", encode((name, offset, *title)), _encode_dtype(item, where))


def _encode_array(array: Any, where: str) -> bytes:
    """Encode a NumPy array or scalar with all that its numba type and its constant are made of."""
    dtype = _encode_dtype(array.dtype, where)
    if isinstance(array, np.ndarray):
        layout = f"{array.shape} {array.strides} {array.flags.writeable} {array.flags.aligned}"
        return frame("array", dtype, frame("layout", layout.encode()), _item_bytes(array))
    if array.dtype.type is not type(array):
        raise refusal(where, array, "Subclasses of NumPy's scalars have no exact encoding; use NumPy's own.")
    return frame("scalar", dtype, _item_bytes(np.asarray(array)))


def _item_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Return the items in C order, a record field by field: the padding between fields holds garbage."""
    if array.dtype.names is None:
        return frame("items", array.tobytes())
    return frame("fields", *(_item_bytes(array[name]) for name in array.dtype.names))


def _enum_kind(cls: type) -> str:
    """Return which of the standard library's enums and data types a class derives from."""
    bases = (type_name(base) for base in cls.__mro__[1:] if base.__module__ in ("enum", "builtins"))
    return " ".join(bases)


def _is_tuple_class(cls: type) -> bool:
    """Whether a class is a struct, or a plain named tuple without further attributes."""
    if structs.is_struct(cls):
        return True
    new = cls.__new__
    if cls.__bases__ != (tuple,) or not isinstance(new, FunctionType):
        return False
    code = new.__code__
    names = code.co_varnames[: code.co_argcount]
    flags = code.co_kwonlyargcount or code.co_flags & 0x0C  # *args, **kwargs
    return not flags and names[1:] == vars(cls).get("_fields")
