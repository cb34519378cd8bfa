"""Structs: items of several fields, in arrays, in operators and on the host.

On the host a struct is a NumPy structured dtype. In an operator it is a named tuple, which numba.cuda knows
how to make, read and return, so that cupar needs no types of its own in numba. CCCL sees bytes of a size and
an alignment.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from keyword import iskeyword
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, get_origin, get_type_hints, overload

import numpy as np

from ._base.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**told):  # noqa: D103 - for type checkers, which know the name
        return lambda function: function


T = TypeVar("T")

NUMBERS = frozenset(map(np.dtype, "?bBhHiIqQefdFD"))
SUPPORTED = (
    "bool, int8 to int64, uint8 to uint64, bfloat16, float16 to float64, complex64, complex128, and structs "
    "of these"
)
# Numbers by `code_of`: what NumPy and C++ call each, and by which other names numba knows it.
_SPELLINGS: Final = {
    "b1": ("bool", "bool", "boolean bool_"),
    "i1": ("int8", "signed char", "char"),
    "i2": ("int16", "short", "short"),
    "i4": ("int32", "int", "intc"),
    "i8": ("int64", "long long", "int int_ intp long_ longlong ssize_t"),
    "u1": ("uint8", "unsigned char", "byte uchar"),
    "u2": ("uint16", "unsigned short", "ushort"),
    "u4": ("uint32", "unsigned int", "uintc"),
    "u8": ("uint64", "unsigned long long", "uint uintp size_t ulong ulonglong"),
    "f2": ("float16", "__half", ""),
    "bf2": ("bfloat16", "__nv_bfloat16", ""),
    "f4": ("float32", "float", "float_"),
    "f8": ("float64", "double", "float double"),
    "c8": ("complex64", "Complex<float>", ""),
    "c16": ("complex128", "Complex<double>", ""),
}
CPP_NAMES: Final = {code: cpp for code, (_, cpp, _) in _SPELLINGS.items()}
NAMES: Final = {  # NumPy's names by all names in signatures
    each: name for code, (name, _, more) in _SPELLINGS.items() for each in (name, code, *more.split())
}


class NoBfloat16Error(TypeError):
    """bfloat16 was asked for, and the package whose dtype that is is not there."""


def as_dtype(given: Any) -> np.dtype[Any]:
    """Return a dtype of whatever stands for one: a struct type, or what `numpy.dtype` takes.

    NumPy knows the name ``"bfloat16"`` once ml_dtypes is imported, which is done here.

    Raises
    ------
    TypeError, ValueError, SyntaxError
        If NumPy knows no such dtype. NoBfloat16Error if ml_dtypes is needed and not installed.
    """
    if isinstance(given, str) and given == "bfloat16":
        return bfloat16()
    dtype: np.dtype[Any] = np.dtype(given.dtype if is_struct(given) else given)
    return dtype


def bfloat16() -> np.dtype[Any]:
    """Return NumPy's dtype of bfloat16, which is ml_dtypes'; NoBfloat16Error if that is not installed."""
    try:
        import ml_dtypes
    except ImportError:
        raise NoBfloat16Error(
            "bfloat16 is a dtype of the package ml_dtypes, which is not installed: pip install ml_dtypes"
        ) from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is bfloat16. NumPy has its kind and `str` as those of two bytes of nothing known."""
    if dtype.kind != "V" or dtype.names is not None:
        return False
    kind = dtype.type
    return kind.__name__ == "bfloat16" and kind.__module__ == "ml_dtypes" and dtype.isnative


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether cupar has code for a number of this dtype."""
    return dtype in NUMBERS or is_bfloat16(dtype)


def kind_of(dtype: np.dtype[Any]) -> str:
    """Return NumPy's letter of a dtype's kind; bfloat16 is a float."""
    return "f" if dtype.kind == "V" and is_bfloat16(dtype) else dtype.kind


def code_of(dtype: np.dtype[Any]) -> str:
    """Return a dtype's kind and bytes, as in ``"f4"``; of bfloat16 ``"bf2"``."""
    return "bf2" if dtype.kind == "V" and is_bfloat16(dtype) else dtype.str[1:]


def has_parts(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is of complex numbers or a struct."""
    return kind_of(dtype) in "cV"


def is_half(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float of 16 bits."""
    return dtype.itemsize == 2 and kind_of(dtype) == "f"


def has_half(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is a float of 16 bits, or a struct with such a field."""
    return is_half(dtype) or any(has_half(each) for _, each, _ in members(dtype))


def has_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is bfloat16, or a struct with such a field."""
    return is_bfloat16(dtype) or any(has_bfloat16(each) for _, each, _ in members(dtype))


def descr(dtype: np.dtype[Any]) -> Any:
    """Return a dtype as plain data: NumPy's `descr`, except for bfloat16, which that loses."""
    if is_bfloat16(dtype):
        return "bfloat16"
    if not has_bfloat16(dtype):
        return np.lib.format.dtype_to_descr(dtype)
    fields = [(name, offset, descr(each)) for name, each, offset in members(dtype)]
    return {"fields": fields, "itemsize": dtype.itemsize}


def from_descr(given: Any) -> np.dtype[Any]:
    """Return the dtype from the plain data of `descr`."""
    if given == "bfloat16":
        return bfloat16()
    if not isinstance(given, Mapping):
        return np.lib.format.descr_to_dtype(given)
    fields = [(name, from_descr(each), offset) for name, offset, each in given["fields"]]
    return of_members(fields, given["itemsize"])


@overload
@dataclass_transform(frozen_default=True)
def gpu_struct(fields: type[T]) -> type[T]: ...
@overload
def gpu_struct(fields: np.dtype[Any] | Mapping[str, Any], name: str = "Struct") -> Any: ...
def gpu_struct(fields: Any, name: str = "Struct") -> Any:
    """Make a struct type from an annotated class, a structured dtype or a dict.

    Parameters
    ----------
    fields : class, numpy.dtype or dict
        The names and types of the fields, in order: a class with annotations, as when this is used as a
        decorator; a structured dtype, whose layout is kept; or a dict from names to types. A type is a NumPy
        dtype or scalar type, ``bool``, ``int`` (int64), ``float`` (float64), another struct type, or a dict
        for a nested one. But for those of a structured dtype, fields are aligned as in C.
    name : str, optional
        Of the new class, if `fields` is not a class.

    Returns
    -------
    type
        A named tuple. Its class attribute ``dtype`` is the structured dtype of arrays of it; where cupar
        expects a dtype, the class will do. Values are made of the fields' values in order or by name, or of a
        dict, and converted to the fields' types, on the host (where they may be initial values) and in
        operators. Operators read fields by name, by index or by unpacking, and may return any tuple of as
        many values.

        Type checkers see a decorated class as a frozen dataclass, with the attribute ``dtype`` if the class
        declares it: ``dtype: ClassVar[np.dtype[Any]]``, which is no field.

    Raises
    ------
    TypeError, ValueError
        If a field has no supported type, or a name that is no attribute's, or one of the class's own:
        ``dtype``, those of named tuples (``_fields``, ``_make``, …), and all like ``__x__``.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> @cupar.gpu_struct
    ... class Peak:
    ...     height: np.float32
    ...     index: np.int64
    >>> Peak.dtype.itemsize
    16
    >>> highest = lambda a, b: a if a.height >= b.height else b
    >>> find = cupar.reduce_into(Peak, Peak, highest, Peak(-np.inf, -1), cc=90)
    >>> find.build.algorithm
    'reduce_into'
    """
    if isinstance(fields, type):
        hints = get_type_hints(fields)
        name, fields = fields.__name__, {each: kind for each, kind in hints.items() if not _is_of_class(kind)}
    if isinstance(fields, np.dtype):
        dtype = fields
    elif isinstance(fields, Mapping):
        _check_names(list(fields))
        dtype = np.dtype([(field, _field_dtype(field, kind)) for field, kind in fields.items()], align=True)
    else:
        raise ArgumentTypeError(
            "fields",
            f"expected an annotated class, a structured dtype or a dict, got {type(fields).__name__}",
        )
    if not dtype.names:
        raise ArgumentTypeError("fields", f"expected at least one field, got {fields!r}")
    checked = normal("fields", dtype)
    if "dtype" in (checked.names or ()):
        raise ArgumentValueError("fields", "'dtype' is the class's own attribute; name that field otherwise")
    base = _named_tuple(name, checked.names or ())
    methods: dict[str, Any] = {
        "__new__": _new,
        "__repr__": _repr,
        "_replace": _replace,
        "__replace__": _replace,
    }
    return type(name, (base,), {"__slots__": (), **methods, "dtype": checked})


def _is_of_class(hint: Any) -> bool:
    """Whether an annotation is that of an attribute of the class, not of a field."""
    return hint is ClassVar or get_origin(hint) is ClassVar


_OWN_NAMES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def _check_names(names: Sequence[Any]) -> None:
    """Raise TypeError or ValueError if fields cannot have these names."""
    for name in names:
        if not isinstance(name, str):
            raise ArgumentTypeError("fields", f"expected names as keys, got {name!r}")
        if not name.isidentifier() or iskeyword(name):
            raise ArgumentValueError(
                "fields", f"{name!r} cannot be an attribute's name; name that field otherwise"
            )
        if name in _OWN_NAMES or (name.startswith("__") and name.endswith("__")):
            raise ArgumentValueError(
                "fields", f"{name!r} is the class's own attribute; name that field otherwise"
            )


# Its fields are known only when it is called, which is not what type checkers expect of the function.
_namedtuple: Any = namedtuple


def _named_tuple(name: str, fields: Sequence[str]) -> Any:
    """Return a class of named tuples, some of whose fields may begin with an underscore."""
    _check_names(fields)
    cls = _namedtuple(name, fields, rename=True)  # which gives those other names
    for place, (field, given) in enumerate(zip(fields, cls._fields, strict=True)):
        if field != given:
            setattr(cls, field, property(itemgetter(place)))
            if given not in fields:
                delattr(cls, given)
    cls._fields = cls.__match_args__ = tuple(fields)  # type: ignore[misc]
    return cls


def _field_dtype(field: str, kind: Any) -> np.dtype[Any]:
    if isinstance(kind, Mapping):
        kind = gpu_struct(kind, field)
    try:
        return as_dtype(kind)
    except NoBfloat16Error as error:
        raise ArgumentTypeError("fields", f"{field}: {error}") from None
    except TypeError as error:
        raise ArgumentTypeError(
            "fields", f"{field}: expected a type of number or a struct, got {kind!r}"
        ) from error


def _new(cls: Any, /, *values: Any, **named: Any) -> Any:
    names: tuple[str, ...] = cls.dtype.names
    if not named and [isinstance(value, Mapping) for value in values] == [True]:
        return _new(cls, **values[0])
    given = dict(zip(names, values, strict=False))
    if len(values) > len(names) or given.keys() & named.keys() or {*given, *named} != {*names}:
        raise TypeError(f"{cls.__name__} has the fields {', '.join(names)}; got {values}, {named}")
    fields = {**given, **named}
    return tuple.__new__(cls, (_converted(cls.dtype[field], fields[field]) for field in names))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{field}={value!r}" for field, value in self._asdict().items())
    return f"{type(self).__name__}({fields})"


def _replace(self: Any, /, **changes: Any) -> Any:
    return type(self)(**{**self._asdict(), **changes})


def _converted(dtype: np.dtype[Any], value: Any) -> Any:
    if dtype.names is None:
        return dtype.type(value)
    if isinstance(value, Mapping):
        return gpu_struct(dtype)(value)
    return gpu_struct(dtype)(*value)


def is_struct(value: object) -> bool:
    """Whether a value is a class that `gpu_struct` made."""
    return isinstance(value, type) and value.__new__ is _new


def dtype_of_value(value: object) -> np.dtype[Any] | None:
    """Return the dtype of a value of a struct type, None if it is something else."""
    return type(value).dtype if is_struct(type(value)) else None  # type: ignore[attr-defined]


@functools.lru_cache(maxsize=256)
def plain_class(dtype: np.dtype[Any]) -> Any:
    """Return the named tuple that stands for a struct in operators; the same one for the same dtype."""
    return _named_tuple("Struct", list(dtype.names or ()))


def plain_value(value: Any) -> Any:
    """Return a value of a struct type as it is in operators."""
    dtype = dtype_of_value(value)
    return value if dtype is None else plain_class(dtype)(*map(plain_value, value))


_DEEPEST = 100  # structs within each other, below what Python's recursion allows


@functools.lru_cache(maxsize=256)
def normal(name: str, dtype: np.dtype[Any], *within: str) -> np.dtype[Any]:
    """Return a dtype in the one form that cupar uses for its layout.

    ``__cuda_array_interface__`` and files write the padding of structs as fields without a name, which are
    left out, and lose the alignment. Raise TypeError, which names the parameter and the fields that the dtype
    is `within`, if cupar has no code for it, or a field is not aligned.
    """
    if is_number(dtype):
        return dtype
    where = "".join([f"field {each!r}: " for each in within])
    if not dtype.names or dtype.hasobject:
        raise ArgumentTypeError(name, f"{where}dtype {dtype} is not supported; supported are {SUPPORTED}")
    if len(within) > _DEEPEST:
        raise ArgumentTypeError(name, f"expected at most {_DEEPEST} structs within each other")
    given = members(dtype)
    padding = {field: kind for field, kind, _ in given if _may_be_padding(field, kind)}
    fields = {
        field: (normal(name, kind, *within, field), offset)
        for field, kind, offset in given
        if field not in padding
    }
    alignment = max((kind.alignment for kind, _ in fields.values()), default=1)
    for field, kind in padding.items():
        if kind.itemsize >= alignment:  # more than there can be of padding
            normal(name, kind, *within, field)
    for field, (kind, offset) in fields.items():
        whole = dtype.itemsize % alignment and kind.alignment == alignment
        if offset % kind.alignment or whole:
            raise ArgumentTypeError(
                name,
                f"{where}field {field!r}, a {kind} at byte {offset} of {dtype.itemsize}, is not aligned, "
                "and GPUs cannot load it: make the dtype with align=True",
            )
    return of_members([(field, *its) for field, its in fields.items()], dtype.itemsize)


def members(dtype: np.dtype[Any]) -> list[tuple[str, np.dtype[Any], int]]:
    """Return name, dtype and offset of each field of a struct; nothing for a number."""
    fields: Any = dtype.fields
    return [(name, *fields[name][:2]) for name in dtype.names or ()]


def of_members(
    fields: Iterable[tuple[str, np.dtype[Any], int]], itemsize: int, is_aligned: bool = True
) -> np.dtype[Any]:
    """Return the dtype of a struct with these `members`."""
    names, formats, offsets = map(list, zip(*fields, strict=True))
    described: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": itemsize}
    result: np.dtype[Any] = np.dtype(described, align=is_aligned)
    return result


@functools.lru_cache(maxsize=256)
def closed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a struct of the same fields without gaps, but for what their alignment needs."""
    if dtype.names is None:
        return dtype
    fields = [(name, closed(kind)) for name, kind, _ in members(dtype)]
    found = np.dtype(fields, align=True)
    return dtype if layout(found) == layout(dtype) else found


def _may_be_padding(field: str, kind: np.dtype[Any]) -> bool:
    """Whether a field looks as a struct's `descr` has padding."""
    # np.dtype names fields without a name f0, f1, … by their place.
    unnamed = field == "" or (field[0] == "f" and field[1:].isdigit())
    return unnamed and kind.type is np.void and kind.names is None and kind.subdtype is None


@functools.lru_cache(maxsize=256)
def layout(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype with the fields of a struct named by their places: equal for equal layouts."""
    if dtype.names is None:
        return dtype
    fields = enumerate(members(dtype))
    return of_members([(f"f{i}", layout(kind), offset) for i, (_, kind, offset) in fields], dtype.itemsize)


def text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as text for messages, as in ``{x: float32, n: int64}``."""
    if dtype.names is None:
        return str(dtype)
    return "{" + ", ".join(f"{name}: {text(dtype[name])}" for name in dtype.names) + "}"


def names(dtype: np.dtype[Any]) -> list[Any]:
    """Return the names of a struct's fields, each with those nested in it; nothing for a number."""
    return [[name, names(dtype[name])] for name in dtype.names or ()]


def type_part(dtype: np.dtype[Any]) -> list[Any]:
    """Describe a dtype for a key: size, alignment and, of a struct, the layout without the names."""
    written = "bfloat16" if is_bfloat16(dtype) else dtype.str
    part: list[Any] = [written, dtype.itemsize, dtype.alignment]
    if dtype.names is not None:
        part.append([[offset, type_part(kind)] for _, kind, offset in members(dtype)])
    return part


_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def convertible(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Tell whether values are converted silently: within a kind of number or to a larger kind, or to bool.

    As with NumPy's ``"same_kind"`` casting, float to integer and complex to real are not; as in C, any
    number that is not complex becomes a bool by asking whether it is zero. A struct is taken for another one
    of the same layout.
    """
    if source.names is not None or target.names is not None:
        return layout(source) == layout(target)
    return source.kind != "c" if target.kind == "b" else same_kind(source, target)


def same_kind(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Tell whether numbers stay of their kind or become of a larger one: bool, integer, float, complex."""
    return _RANK[kind_of(source)] <= _RANK[kind_of(target)]


def returned_as(result: np.dtype[Any], output: np.dtype[Any]) -> bool:
    """Tell whether an operator's result is converted silently: a struct or tuple field by field."""
    if result.names is None or output.names is None:
        return convertible(result, output)
    fields = range(len(output.names))
    return len(result.names) == len(fields) and all(returned_as(result[i], output[i]) for i in fields)
