"""Values that an operator reads: what they are, as bytes, and a copy of them that nobody changes.

The bytes are the same in every process and on every machine, and equal only for equal values of the same
type. There are no file names in them, no ``id()``, ``hash()`` or ``repr()``. What has no exact encoding is
refused with an error that names it. There is no fallback, because a digest that misses a dependency would
fetch another operator's code.

The compilers' own objects (``math.sqrt``, ``np.float32``, ``cuda.atomic``) are encoded by name: the versions
of the compilers are in the key elsewhere.
"""

from __future__ import annotations

import enum
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from .. import structs
from .._device import arrays

__all__ = [
    "COMPILERS",
    "MISSING",
    "Function",
    "Jitted",
    "Module",
    "NamedTuple",
    "NamedTupleClass",
    "Reader",
    "Struct",
    "StructClass",
    "Unfingerprintable",
    "compilers_name",
    "encode",
    "frame",
    "held",
    "is_device_array",
    "package",
    "refusal",
    "type_name",
]

# Objects defined in these packages are encoded by name.
COMPILERS: Final = frozenset(
    ("builtins", "math", "cmath", "operator", "_operator", "numpy", "numba", "numba_cuda", "llvmlite")
)

_READABLE: Final = (
    "numbers, strings, tuples, NumPy arrays and dtypes, enums, named tuples, functions, "
    "and attributes of modules"
)

Pair = tuple[bytes, Any]
"""A value's encoding, and its frozen copy."""


class _Missing:
    """Stands for a name that does not exist and for an empty closure cell."""


MISSING: Final = _Missing()


class Unfingerprintable(TypeError):  # noqa: N818 - reads as what it says: the operator cannot be fingerprinted
    """Raised for an operator or value that depends on something without an exact encoding.

    The message names the operator, what it read (``closure variable 'x'``, ``global 'cfg'``,
    ``config.table``), the type that was found there, and what to do.
    """


def refusal(where: str, value: object, advice: str) -> Unfingerprintable:
    """Return the error for a value that cannot be encoded."""
    return Unfingerprintable(f"{where} is of type {type_name(type(value))}. {advice}")


def type_name(cls: type) -> str:
    """Return the name of a class, with its module unless that is `builtins`."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# --------------------------------------------------------------------------------------------------
# Frozen copies: what is no plain value, as data


@dataclass(slots=True, eq=False)
class Function:
    """A Python function as it was, with all that it read.

    Attributes
    ----------
    code : code
    name : str
    globals : dict
        The globals that it reads, builtins among them.
    cells : list
        What its closure held, in the order of the code's free variables; `MISSING` for an empty cell.
    defaults : tuple or None
    keyword_defaults : dict or None
    """

    code: CodeType
    name: str
    globals: dict[str, Any] = field(default_factory=dict)
    cells: list[Any] = field(default_factory=list)
    defaults: Any = None
    keyword_defaults: Any = None


@dataclass(slots=True, eq=False)
class Jitted:
    """A function under ``cuda.jit`` or ``njit``, with its options."""

    function: Function
    options: dict[str, Any]


@dataclass(slots=True, eq=False)
class Module:
    """The attributes of a module that an operator reads."""

    module: ModuleType
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StructClass:
    """A class that `gpu_struct` made."""

    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Struct:
    """A value of a class that `gpu_struct` made."""

    dtype: np.dtype[Any]
    fields: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class NamedTupleClass:
    """A class of named tuples."""

    name: str
    fields: tuple[str, ...]
    defaults: Any


@dataclass(frozen=True, slots=True, eq=False)
class NamedTuple:
    """A named tuple."""

    cls: NamedTupleClass
    fields: tuple[Any, ...]


# --------------------------------------------------------------------------------------------------
# Copies of what can change in place


def held(value: Any, where: str) -> Any:
    """Return a value whose contents nobody else can change: containers and arrays are copied.

    What cannot change is returned itself, as are functions and classes, which are read on their own.
    """
    return _held(value, where, set())


def _held(value: Any, where: str, around: set[int]) -> Any:
    cls = type(value)
    if cls is np.ndarray:
        return _array_copy(value, where)
    if cls is np.void:
        return value.copy()
    if cls not in (tuple, list, dict, set, frozenset):
        return value
    if id(value) in around:
        raise refusal(where, value, "It contains itself, which no constant in compiled code can.")
    around.add(id(value))
    try:
        if cls is dict:
            return {key: _held(item, where, around) for key, item in value.copy().items()}
        items = tuple(value.copy() if cls in (list, set) else value)
        copies = tuple(_held(item, where, around) for item in items)
        if cls in (tuple, frozenset) and all(map(_is, items, copies)):
            return value
        return cls(copies)
    finally:
        around.discard(id(value))


def _is(one: object, other: object) -> bool:
    return one is other


def _array_copy(array: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """Copy an array with its strides and flags: numba's type of it is made of these."""
    dtype, strides = _dtype_copy(array.dtype, where), array.strides
    steps = [(extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    size = first + sum(step for step in steps if step > 0) + dtype.itemsize if array.size else 0
    memory = np.zeros(size + 1, np.uint8)
    is_odd = bool(size) and not array.flags.aligned
    copy: np.ndarray[Any, Any] = np.ndarray(
        array.shape, dtype, memory.data, (first if size else 0) + is_odd, strides
    )
    copy[...] = array
    copy.flags.writeable = array.flags.writeable
    return copy


def _dtype_copy(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return a dtype equal to this one, whose fields nobody else can rename."""
    if dtype.names is None or dtype.hasobject:
        return dtype
    fields: Any = dtype.fields
    described: Any = {
        "names": list(dtype.names),
        "formats": [_dtype_copy(fields[name][0], where) for name in dtype.names],
        "offsets": [fields[name][1] for name in dtype.names],
        "titles": [fields[name][2] if len(fields[name]) > 2 else None for name in dtype.names],
        "itemsize": dtype.itemsize,
    }
    copy: np.dtype[Any] = np.dtype(described, align=dtype.isalignedstruct)
    return copy


# --------------------------------------------------------------------------------------------------
# Encoding


def encode(value: object) -> bytes:
    """
    Encode a plain value so that two encodings are equal only for equal values of the same type.

    The encoding is the same in every process, on every machine and under every hash seed. ``1``,
    ``1.0``, ``True``, ``np.int32(1)`` and ``np.int64(1)`` all differ, as do ``0.0`` and ``-0.0``, NaNs
    with different payloads, and arrays with equal items and other strides.

    Parameters
    ----------
    value
        ``None``, a ``bool``, ``int``, ``float``, ``complex``, ``str``, ``bytes``, ``range``, ``slice`` or
        ``Ellipsis``; a NumPy scalar, array or dtype; an enum or one of its members; a named tuple; one
        of the compilers' own functions or types; or a ``tuple``, ``list``, ``dict`` (in insertion order),
        ``set`` or ``frozenset`` of these.

    Returns
    -------
    bytes
        The encoding, which no other encoding begins with.

    Raises
    ------
    Unfingerprintable
        If the value, or something in it, is of another type.
    """
    atom = _ATOMS.get(type(value))
    return Reader(refuse).read(held(value, "the value"), "the value")[0] if atom is None else atom(value)


def frame(tag: str, *parts: bytes) -> bytes:
    """Join parts, each a frame itself or the only one, so that tag and length tell where they end."""
    payload = b"".join(parts)
    return b"%s(%d)%s" % (tag.encode(), len(payload), payload)


def encode_int(value: int) -> bytes:
    """Encode an integer."""
    return frame("int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _encode_str(value: str) -> bytes:
    return frame("str", value.encode("utf-8", "surrogatepass"))


# Immutable types without parts that could be mutable. A subclass may hold more than its value does,
# so the type must match exactly.
_ATOMS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: frame("None"),
    type(...): lambda _: frame("Ellipsis"),
    bool: lambda value: frame("bool", b"1" if value else b"0"),
    int: encode_int,
    float: lambda value: frame("float", struct.pack("<d", value)),
    complex: lambda value: frame("complex", struct.pack("<dd", value.real, value.imag)),
    str: _encode_str,
    bytes: lambda value: frame("bytes", value),
    range: lambda value: frame("range", *map(encode_int, (value.start, value.stop, value.step))),
    _Missing: lambda _: frame("missing"),
}


def encode_atom(value: object) -> bytes | None:
    """Encode a value that cannot change and has no parts; return None for others."""
    atom = _ATOMS.get(type(value))
    return None if atom is None else atom(value)


def is_atom(cls: type) -> bool:
    """Whether values of a class cannot change and have no parts that could."""
    return cls in _ATOMS


class Reader:
    """Reads values that are `held`: returns of each its encoding and its frozen copy.

    Classes are numbered in the order in which they are met, since numba tells two classes of equal contents
    apart, by identity.

    Parameters
    ----------
    other : callable
        ``other(value, where)`` reads what is no plain data, or refuses it.
    check : callable, optional
        ``check(value, where)`` refuses functions and classes for other reasons than their contents.
    identify : bool, optional
        Encode classes as themselves, for this process alone; they are kept alive in `classes`.
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

    def read(self, value: Any, where: str) -> Pair:
        """Read a value; `where` says in errors where it was found."""
        cls = type(value)
        atom = _ATOMS.get(cls)
        if atom is not None:
            return atom(value), value
        if cls in (tuple, list, dict, set, frozenset, slice):
            return self._container(value, where)
        if isinstance(value, np.dtype):
            return encode_dtype(value, where), _dtype_copy(value, where)
        if cls is np.ndarray or isinstance(value, np.generic):
            return _encode_array(value, where), value
        if isinstance(value, enum.Enum):
            if self._check is not None:
                self._check(cls, where)
            contents = (self._number(cls), _enum_kind(cls), value.name, value.value)
            return frame("member", *self._items(contents, where)[0]), value
        if structs.is_struct(cls):
            encoding, made = self._class(cls, where)
            encodings, fields = self._items(tuple(value), where)
            return frame("made", encoding, *encodings), Struct(made.dtype, tuple(fields))
        if isinstance(value, tuple) and _is_namedtuple_class(cls):
            encoding, made = self._class(cls, where)
            encodings, fields = self._items(tuple(value), where)
            return frame("named", encoding, *encodings), NamedTuple(made, tuple(fields))
        if isinstance(value, type) and (
            isinstance(value, enum.EnumMeta) or structs.is_struct(value) or _is_namedtuple_class(value)
        ):
            return self._class(value, where)
        name = compilers_name(value) or numba_type_name(value)
        if name is None and self._check is not None:
            self._check(value, where)
        return self._other(value, where) if name is None else (frame("name", name.encode()), value)

    def _number(self, cls: type) -> int:
        known = self.classes.setdefault(id(cls), (cls, len(self.classes)))
        return id(cls) if self._identify else known[1]

    def _class(self, cls: Any, where: str) -> Pair:
        if self._check is not None:
            self._check(cls, where)
        number = encode_int(self._number(cls))
        if isinstance(cls, enum.EnumMeta):
            members = [(name, getattr(cls, name).value) for name in cls.__members__]
            return frame("enum", number, *self._items((_enum_kind(cls), *members), where)[0]), cls
        if structs.is_struct(cls):
            # Not its name: operators that make the same struct compile to the same code.
            dtype: np.dtype[Any] = _dtype_copy(cls.dtype, where)
            return frame("struct", number, encode_dtype(dtype, where)), StructClass(dtype)
        # numba takes defaults from here, where some assign them, and not from _field_defaults.
        encodings, (fields, defaults) = self._items((cls._fields, cls.__new__.__defaults__), where)
        frozen = self._frozen.setdefault(id(cls), NamedTupleClass(cls.__name__, fields, defaults))
        return frame("namedtuple", number, *encodings), frozen

    def _container(self, value: Any, where: str) -> Pair:
        cls, tag = type(value), type(value).__name__
        if cls is dict:
            keys, copies = self._read_all(value, f"a key of {where}")
            wheres = [
                f"{where}[{key!r}]" if isinstance(key, (str, int)) else f"a value of {where}" for key in value
            ]
            read = [self.read(item, place) for item, place in zip(value.values(), wheres, strict=True)]
            entries = (part for key, (item, _) in zip(keys, read, strict=True) for part in (key, item))
            return frame(tag, *entries), dict(zip(copies, (copy for _, copy in read), strict=True))
        if cls in (set, frozenset):
            encodings, copies = self._read_all(value, f"an item of {where}")
            # Their order depends on hashes, which differ between processes.
            return frame(tag, *sorted(encodings)), cls(copies)
        parts = (value.start, value.stop, value.step) if cls is slice else value
        encodings, copies = self._items(parts, where)
        return frame(tag, *encodings), slice(*copies) if cls is slice else cls(copies)

    def _read_all(self, items: Iterable[object], where: str) -> tuple[list[bytes], list[Any]]:
        read = [self.read(item, where) for item in items]
        return [encoding for encoding, _ in read], [copy for _, copy in read]

    def _items(self, items: Iterable[object], where: str) -> tuple[list[bytes], list[Any]]:
        read = [self.read(item, f"{where}[{index}]") for index, item in enumerate(items)]
        return [encoding for encoding, _ in read], [copy for _, copy in read]


def refuse(value: object, where: str) -> Pair:
    """Refuse a value that is no plain data."""
    if is_device_array(value):
        advice = (
            "A device array must be a global or a closure variable of the operator itself, "
            "so that its pointer can be handed over in each call."
        )
    elif isinstance(value, type):
        raise Unfingerprintable(
            f"{where} is the class {type_name(value)}, and a kernel has no objects: use a tuple, a struct "
            "of cupar.gpu_struct, or variables"
        )
    elif isinstance(value, ModuleType):
        advice = f"Write `{value.__name__}.name` wherever the operator reads a name of that module."
    elif (instead := _before_the_call(value)) is not None:
        raise Unfingerprintable(f"{where} is not for kernels: {instead}")
    else:
        advice = f"It has no exact encoding; {_READABLE} have one."
    raise refusal(where, value, advice)


def _before_the_call(value: object) -> str | None:
    """Say what to do instead of calling a function of Python's or NumPy's; None if it is no such function."""
    if not isinstance(value, (BuiltinFunctionType, MethodType)):
        return None
    home = getattr(value, "__module__", None) or type(getattr(value, "__self__", None)).__module__
    owner = type(getattr(value, "__self__", None)).__module__
    if "random" in f"{home}.{owner}".split("."):
        return "draw the numbers before, and give them as an input"
    if home == "time":
        return "read the clock before, and put the time into a variable"
    if home.partition(".")[0] in (*sys.stdlib_module_names, "numpy"):
        return "call it before, and put what it returns into a variable, or give it as an input"
    return None


is_device_array = arrays.is_device_array


def encode_device_array(value: object, where: str) -> bytes:
    """Encode what an operator's code depends on of a device array: its pointer and shape are arguments."""
    found = arrays.view(where, value)
    return frame("device array", encode_dtype(found.dtype, where), encode_int(len(arrays.shape(value))))


def encode_dtype(dtype: np.dtype[Any], where: str) -> bytes:
    """Encode a dtype with all of its layout."""
    if dtype.hasobject or dtype.char in "gG":
        # Objects have no value; long doubles have padding, which differs between equal numbers.
        raise refusal(where, dtype, f"Items of dtype {dtype} have no exact encoding; use another dtype.")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return frame("subarray", encode_dtype(base, where), *map(encode_int, shape))
    if dtype.names is not None:
        layout = encode((dtype.itemsize, dtype.alignment, dtype.isalignedstruct))
        return frame("record", layout, *(_encode_field(dtype, name, where) for name in dtype.names))
    # Types that other packages add to NumPy (bfloat16) share their str with void types.
    added = "" if dtype.type.__module__ == "numpy" else type_name(dtype.type)
    return frame("dtype", _encode_str(dtype.str), _encode_str(added))


def _encode_field(dtype: np.dtype[Any], name: str, where: str) -> bytes:
    assert dtype.fields is not None
    item, offset, *title = dtype.fields[name]
    return frame("field", encode((name, offset, *title)), encode_dtype(item, where))


def _encode_array(array: Any, where: str) -> bytes:
    """Encode a NumPy array or scalar with all that its numba type and its constant are made of."""
    dtype = encode_dtype(array.dtype, where)
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


def _is_namedtuple_class(cls: type) -> bool:
    """Whether a class is a named tuple as Python makes it, which its fields and defaults tell all of."""
    new = cls.__new__
    if cls.__bases__ != (tuple,) or not isinstance(new, FunctionType):
        return False
    code = new.__code__
    names = code.co_varnames[: code.co_argcount]
    flags = code.co_kwonlyargcount or code.co_flags & 0x0C  # *args, **kwargs
    return not flags and names[1:] == vars(cls).get("_fields")


# --------------------------------------------------------------------------------------------------
# The compilers' own objects


def package(module: object) -> str:
    """Return the top-level package of a module's name, empty for what is no name."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def compilers_name(value: object) -> str | None:
    """
    Return the qualified name of an object that one of the compilers defines, or None.

    The module and name that an object claims are not believed until the object is found there: ufuncs
    of the user's and wrapped functions claim the names of others.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):  # without both before NumPy 2.2
        module, name = "numpy", value.__name__
    if not isinstance(name, str) or package(module) not in COMPILERS:
        return None
    if isinstance(value, FunctionType) and package(value.__globals__.get("__name__")) not in COMPILERS:
        return None
    for home in (module, "numba.cuda"):  # numba.cuda's vector types can be found in it alone
        found: object = sys.modules.get(str(home))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value:
            return f"{home}.{name}"
    return None


def numba_type_name(value: object) -> str | None:
    """Return the name of one of numba's scalar types, or None. Names of other types can hold addresses."""
    cls = type(value)
    if package(cls.__module__) not in ("numba", "numba_cuda"):
        return None
    if not any(base.__name__ in ("Number", "Boolean") for base in cls.__mro__):
        return None
    return f"{cls.__name__} {value}"
