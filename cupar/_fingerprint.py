"""What an operator's compiled code depends on, read from the function itself.

`fingerprint` gives a digest that is the same in every process and on every machine as long as numba
would compile the operator to the same code, and another one as soon as it would not. numba freezes what
a function reads when it compiles it: constants, closure variables, globals, and attributes of modules
become part of the code, as do the functions that it calls. So all of these are encoded by value, and
nothing else is: no file names or line numbers, no names of functions, no ``id()``, ``hash()`` or
``repr()``. What has no exact encoding is refused with an error that names it. There is no fallback,
because a digest that misses a dependency would fetch another operator's code.

A call with a known operator must not pay for that again. Each fingerprint therefore remembers the
objects that it saw, and `Fingerprint.unchanged` compares identities (and re-encodes what can change in
place), which costs well under a microsecond for most operators.

The compilers' own objects (``math.sqrt``, ``np.float32``, ``cuda.atomic``) are encoded by name: the
versions of the compilers are in the key elsewhere, and so is the version of the bytecode.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import hashlib
import inspect
import itertools
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, TypeVar

import numpy as np

from . import _arrays, _fork, _unsupported, structs

__all__ = ["Fingerprint", "Unfingerprintable", "encode", "fingerprint"]

_FORMAT: Final = b"cupar operator 1"
_OPERATOR: Final = "it"  # where the operator itself was found, in errors

# Objects defined in these packages are encoded by name.
_COMPILERS: Final = frozenset(
    ("builtins", "math", "cmath", "operator", "_operator", "numpy", "numba", "numba_cuda", "llvmlite")
)

_READABLE: Final = (
    "numbers, strings, tuples, NumPy arrays and dtypes, enums, named tuples, functions, "
    "and attributes of modules"
)


class _Missing:
    """Stands for a name that does not exist and for an empty closure cell."""


_MISSING: Final = _Missing()


class Unfingerprintable(TypeError):  # noqa: N818 - reads as what it says: the operator cannot be fingerprinted
    """Raised for an operator or value that depends on something without an exact encoding.

    The message names the operator, what it read (``closure variable 'x'``, ``global 'cfg'``,
    ``config.table``), the type that was found there, and what to do.
    """


def _refusal(where: str, value: object, advice: str) -> Unfingerprintable:
    return Unfingerprintable(f"{where} is of type {_type_name(type(value))}. {advice}")


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


# --------------------------------------------------------------------------------------------------
# Encoding values


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
    return _Encoder(_refuse_callee).encode(value, "the value")


def _frame(tag: str, *parts: bytes) -> bytes:
    """Join parts, each a frame itself or the only one, so that tag and length tell where they end."""
    payload = b"".join(parts)
    return b"%s(%d)%s" % (tag.encode(), len(payload), payload)


def _encode_int(value: int) -> bytes:
    return _frame("int", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _encode_str(value: str) -> bytes:
    return _frame("str", value.encode("utf-8", "surrogatepass"))


# Immutable types without parts that could be mutable. A subclass may hold more than its value does,
# so the type must match exactly.
_ATOMS: Final[Mapping[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: _frame("None"),
    type(...): lambda _: _frame("Ellipsis"),
    bool: lambda value: _frame("bool", b"1" if value else b"0"),
    int: _encode_int,
    float: lambda value: _frame("float", struct.pack("<d", value)),
    complex: lambda value: _frame("complex", struct.pack("<dd", value.real, value.imag)),
    str: _encode_str,
    bytes: lambda value: _frame("bytes", value),
    range: lambda value: _frame("range", *map(_encode_int, (value.start, value.stop, value.step))),
    _Missing: lambda _: _frame("missing"),
}


class _Encoder:
    """Encodes values; what is not plain data is given to `callee`, which encodes or refuses it."""

    def __init__(self, callee: Callable[[object, str], bytes]) -> None:
        self._callee = callee
        self._open: set[int] = set()

    def encode(self, value: object, where: str) -> bytes:
        """Encode a value; `where` says in errors where it was found."""
        atom = _ATOMS.get(type(value))
        if atom is not None:
            return atom(value)
        if type(value) in (tuple, list, dict, set, frozenset, slice):
            return self._container(value, where)
        if isinstance(value, np.dtype):
            return _encode_dtype(value, where)
        if type(value) is np.ndarray or isinstance(value, np.generic):
            return _encode_array(value, where)
        if isinstance(value, enum.Enum):
            kind = _encode_str(_enum_kind(type(value)))
            return _frame("member", kind, *self._items((value.name, value.value), where))
        if isinstance(value, enum.EnumMeta):
            members: list[object] = [(name, getattr(value, name).value) for name in value.__members__]
            return _frame("enum", _encode_str(_enum_kind(value)), *self._items(members, where))
        if structs.is_struct(value):
            # Not its name: operators that make the same struct compile to the same code.
            return _frame("struct", _encode_dtype(value.dtype, where))  # type: ignore[attr-defined]
        if structs.is_struct(type(value)):
            return _frame("made", self.encode(type(value), where), *self._items(tuple(value), where))  # type: ignore[arg-type]
        if isinstance(value, tuple) and _is_namedtuple_class(type(value)):
            return _frame("named", self.encode(type(value), where), *self._items(value, where))
        if isinstance(value, type) and _is_namedtuple_class(value):
            # numba takes defaults from here, where some assign them, and not from _field_defaults.
            signature = (value._fields, value.__new__.__defaults__)  # type: ignore[attr-defined]
            return _frame("namedtuple", *self._items(signature, where))
        return self._object(value, where)

    def _container(self, value: Any, where: str) -> bytes:
        if id(value) in self._open:
            raise _refusal(where, value, "It contains itself, which no constant in compiled code can.")
        self._open.add(id(value))
        try:
            return _frame(type(value).__name__, *self._contents(value, where))
        finally:
            self._open.discard(id(value))

    def _contents(self, value: Any, where: str) -> Iterable[bytes]:
        if isinstance(value, (set, frozenset)):
            # Their order depends on hashes, which differ between processes.
            return sorted(self.encode(item, f"an item of {where}") for item in value)
        if isinstance(value, dict):
            return self._entries(value, where)
        if isinstance(value, slice):
            return self._items((value.start, value.stop, value.step), where)
        return self._items(value, where)

    def _items(self, items: Iterable[object], where: str) -> Iterator[bytes]:
        return (self.encode(item, f"{where}[{index}]") for index, item in enumerate(items))

    def _entries(self, entries: Mapping[object, object], where: str) -> Iterator[bytes]:
        for key, value in entries.items():
            yield self.encode(key, f"a key of {where}")
            yield self.encode(
                value, f"{where}[{key!r}]" if isinstance(key, (str, int)) else f"a value of {where}"
            )

    def _object(self, value: object, where: str) -> bytes:
        _refuse_extended(value, where)
        name = _compilers_name(value) or _numba_type_name(value)
        if name is not None:
            return _frame("name", name.encode())
        return self._callee(value, where)


def _refuse_callee(value: object, where: str) -> bytes:
    if _arrays.is_device_array(value):
        advice = (
            "A device array must be a global or a closure variable of the operator itself, "
            "so that its pointer can be handed over in each call."
        )
    elif isinstance(value, type):
        raise Unfingerprintable(
            f"{where} is the class {_type_name(value)}, and a kernel has no objects: use a tuple, a struct "
            "of cupar.gpu_struct, or variables"
        )
    elif isinstance(value, ModuleType):
        advice = f"Write `{value.__name__}.name` wherever the operator reads a name of that module."
    else:
        advice = f"It has no exact encoding; {_READABLE} have one."
    raise _refusal(where, value, advice)


@dataclass(frozen=True, slots=True)
class Capture:
    """A device array that an operator reads or updates: what its code depends on, and where it is found.

    Attributes
    ----------
    name : str
        Of the variable.
    in_closure : bool
        Whether that is a closure variable; otherwise it is a global.
    dtype : numpy.dtype
    ndim : int
    """

    name: str
    in_closure: bool
    dtype: np.dtype[Any]
    ndim: int

    def of(self, function: FunctionType) -> object:
        """Return the array that a function has captured now."""
        if not self.in_closure:
            return function.__globals__[self.name]
        return (function.__closure__ or ())[function.__code__.co_freevars.index(self.name)].cell_contents


def _encode_device_array(value: object, where: str) -> bytes:
    """Encode what an operator's code depends on of a device array: its pointer and shape are arguments."""
    found = _arrays.view(where, value)
    return _frame("device array", _encode_dtype(found.dtype, where), _encode_int(len(_arrays.shape(value))))


def _encode_dtype(dtype: np.dtype[Any], where: str) -> bytes:
    if dtype.hasobject or dtype.char in "gG":
        # Objects have no value; long doubles have padding, which differs between equal numbers.
        raise _refusal(where, dtype, f"Items of dtype {dtype} have no exact encoding; use another dtype.")
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return _frame("subarray", _encode_dtype(base, where), *map(_encode_int, shape))
    if dtype.names is not None:
        layout = encode((dtype.itemsize, dtype.alignment, dtype.isalignedstruct))
        return _frame("record", layout, *(_encode_field(dtype, name, where) for name in dtype.names))
    # Types that other packages add to NumPy (bfloat16) share their str with void types.
    added = "" if dtype.type.__module__ == "numpy" else _type_name(dtype.type)
    return _frame("dtype", _encode_str(dtype.str), _encode_str(added))


def _encode_field(dtype: np.dtype[Any], name: str, where: str) -> bytes:
    assert dtype.fields is not None
    item, offset, *title = dtype.fields[name]
    return _frame("field", encode((name, offset, *title)), _encode_dtype(item, where))


def _encode_array(array: Any, where: str) -> bytes:
    """Encode a NumPy array or scalar with all that its numba type and its constant are made of."""
    dtype = _encode_dtype(array.dtype, where)
    if isinstance(array, np.ndarray):
        layout = f"{array.shape} {array.strides} {array.flags.writeable} {array.flags.aligned}"
        return _frame("array", dtype, _frame("layout", layout.encode()), _item_bytes(array))
    if array.dtype.type is not type(array):
        raise _refusal(where, array, "Subclasses of NumPy's scalars have no exact encoding; use NumPy's own.")
    return _frame("scalar", dtype, _item_bytes(np.asarray(array)))


def _item_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Return the items in C order, a record field by field: the padding between fields holds garbage."""
    if array.dtype.names is None:
        return _frame("items", array.tobytes())
    return _frame("fields", *(_item_bytes(array[name]) for name in array.dtype.names))


def _enum_kind(cls: type) -> str:
    """Return which of the standard library's enums and data types a class derives from."""
    bases = (_type_name(base) for base in cls.__mro__[1:] if base.__module__ in ("enum", "builtins"))
    return " ".join(bases)


def _is_namedtuple_class(cls: type) -> bool:
    """Whether a class is a named tuple as Python makes it, which its fields and defaults tell all of."""
    new = cls.__new__
    if cls.__bases__ != (tuple,) or not isinstance(new, FunctionType):
        return False
    parameters = _parameters(new.__code__)
    return len(parameters) == new.__code__.co_argcount and parameters[1:] == vars(cls).get("_fields")


# --------------------------------------------------------------------------------------------------
# The compilers' own objects


def _package(module: object) -> str:
    return module.partition(".")[0] if isinstance(module, str) else ""


def _compilers_name(value: object) -> str | None:
    """
    Return the qualified name of an object that one of the compilers defines, or None.

    The module and name that an object claims are not believed until the object is found there: ufuncs
    of the user's and wrapped functions claim the names of others.
    """
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if isinstance(value, np.ufunc):  # without both before NumPy 2.2
        module, name = "numpy", value.__name__
    if not isinstance(name, str) or _package(module) not in _COMPILERS:
        return None
    if isinstance(value, FunctionType) and _package(value.__globals__.get("__name__")) not in _COMPILERS:
        return None
    for home in (module, "numba.cuda"):  # numba.cuda's vector types can be found in it alone
        found: object = sys.modules.get(str(home))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is value:
            return f"{home}.{name}"
    return None


def is_compilers(value: object) -> bool:
    """Whether one of the compilers defines an object, so that it has no content of the user's."""
    return _compilers_name(value) is not None


def _numba_type_name(value: object) -> str | None:
    """Return the name of one of numba's scalar types, or None. Names of other types can hold addresses."""
    cls = type(value)
    if _package(cls.__module__) not in ("numba", "numba_cuda"):
        return None
    if not any(base.__name__ in ("Number", "Boolean") for base in cls.__mro__):
        return None
    return f"{cls.__name__} {value}"


_DISPATCHERS: Final = frozenset(
    (("numba.cuda.dispatcher", "CUDADispatcher"), ("numba.core.registry", "CPUDispatcher"))
)

# Options of cuda.jit and njit that only concern launching a kernel, or the CPU: calling the function
# from an operator compiles it the same without them.
_OPTIONS_WITHOUT_EFFECT: Final = frozenset(
    (
        "boundscheck",
        "cache",
        "device",
        "extensions",
        "launch_bounds",
        "link",
        "lto",
        "max_registers",
        "nogil",
        "nopython",
        "shared_memory_carveout",
    )
)


def _is_dispatcher(value: object) -> bool:
    cls = type(value)
    return (cls.__module__, cls.__name__) in _DISPATCHERS


def _refuse_extended(value: object, where: str) -> None:
    """Refuse what a user gave another body with numba's extension API, which the value does not tell."""
    if id(value) in _extensions().objects:
        raise _refusal(where, value, f"It is extended with numba's @overload. {_NO_EXTENSIONS}")


_NO_EXTENSIONS: Final = (
    "What such an extension compiles to cannot be seen; call a function under @cuda.jit(device=True) instead."
)


@dataclass(frozen=True, slots=True)
class _Extensions:
    """What the users of numba, and not numba itself, registered with its extension API."""

    objects: Mapping[int, object]
    attributes: frozenset[str]


def _registries() -> list[Any]:
    modules = map(sys.modules.get, ("numba.core.typing.templates", "numba.cuda.typing.templates"))
    registries = (getattr(module, "builtin_registry", None) for module in modules)
    return [registry for registry in registries if registry is not None]


def _extensions() -> _Extensions:
    return _read_extensions(tuple((len(each.functions), len(each.attributes)) for each in _registries()))


@functools.lru_cache(maxsize=1)
def _read_extensions(sizes: tuple[tuple[int, int], ...]) -> _Extensions:
    """Read numba's registries. They only grow, so that their sizes tell whether that is needed again."""
    objects: dict[int, object] = {}
    attributes: set[str] = set()
    for registry in _registries():
        for template in (*registry.functions, *registry.attributes):
            body = getattr(template, "_overload_func", None)
            if not isinstance(body, FunctionType) or _package(body.__globals__.get("__name__")) in _COMPILERS:
                continue
            if hasattr(template, "_attr"):
                attributes.add(template._attr)
            else:
                objects[id(template.key)] = template.key
    return _Extensions(objects, frozenset(attributes))


# --------------------------------------------------------------------------------------------------
# Reading bytecode

_Chain = tuple[str, ...]  # a name and the attributes read from it: ("config", "table", "shape")

# The other flags tell of docstrings, __future__ imports and how names are found, which the code tells too.
_FLAGS: Final = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)

# By exclusion: an instruction that a later Python adds counts as a read.
_LOADS_GLOBAL: Final = frozenset(
    opcode
    for opcode in dis.hasname
    if not dis.opname[opcode].startswith(
        ("STORE_", "DELETE_", "IMPORT_", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER")
    )
)
_LOADS_CLOSURE: Final = frozenset(
    opcode
    for opcode in dis.hasfree
    if not dis.opname[opcode].startswith(("STORE_", "DELETE_", "MAKE_CELL", "LOAD_CLOSURE"))
)
_LOADS_CONSTANT: Final = frozenset(dis.hasconst)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a code object is and which names it reads, which is the same for all functions that share it."""

    code: CodeType  # kept so that no other code gets its id
    encoding: bytes
    globals: tuple[_Chain, ...]
    closure: tuple[_Chain, ...]
    names: frozenset[str]


class _Scan:
    """Reads a code object and the ones nested in it."""

    def __init__(self, code: CodeType) -> None:
        self._globals: dict[_Chain, None] = {}
        self._closure: dict[_Chain, None] = {}
        self._names: set[str] = set()
        encoding = self._code(code, frozenset(code.co_freevars))
        loaded = {chain[0] for chain in self._closure}
        passed_on = [(name,) for name in code.co_freevars if name not in loaded]
        self.plan = _Plan(
            code, encoding, (*self._globals,), (*self._closure, *passed_on), frozenset(self._names)
        )

    def _code(self, code: CodeType, free: frozenset[str]) -> bytes:
        """Encode a code object; `free` names its variables that come from the operator's closure.

        Instructions refer to local variables by index, so their names do not matter, with two
        exceptions: parameters can be given by name, and cells may belong to a parameter.
        """
        instructions = list(dis.get_instructions(code))
        self._reads([each for each in instructions if each.opname != "EXTENDED_ARG"], free)
        self._names.update(code.co_names)
        stream, constants = _canonical(instructions)
        values = (self._constant(code.co_consts[i], free) for i in constants)
        return _frame("code", encode((stream, *_layout(code))), *values)

    def _constant(self, value: object, free: frozenset[str]) -> bytes:
        if isinstance(value, CodeType):
            nested = self._code(value, free.intersection(value.co_freevars))
            return _frame("nested", encode(_parameters(value)), nested)
        return encode(value)

    def _reads(self, instructions: list[dis.Instruction], free: frozenset[str]) -> None:
        for index, each in enumerate(instructions):
            if each.opcode in _LOADS_GLOBAL:
                self._globals.setdefault(_chain(instructions, index))
            elif each.opcode in _LOADS_CLOSURE and each.argval in free:
                self._closure.setdefault(_chain(instructions, index))


def _layout(code: CodeType) -> tuple[object, ...]:
    """Return what the instructions refer to, and how the code is called."""
    return (
        code.co_names,
        [
            (name, code.co_varnames.index(name) if name in code.co_varnames else None)
            for name in code.co_cellvars
        ],
        code.co_freevars,
        code.co_nlocals,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & _FLAGS,
        getattr(code, "co_exceptiontable", b""),  # from Python 3.11 on
    )


def _parameters(code: CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _chain(instructions: list[dis.Instruction], index: int) -> _Chain:
    """Return the name loaded at an index and the attributes loaded directly after it."""
    following = itertools.takewhile(_loads_attribute, instructions[index + 1 :])
    return (instructions[index].argval, *(each.argval for each in following))


def _loads_attribute(instruction: dis.Instruction) -> bool:
    return instruction.opname in ("LOAD_ATTR", "LOAD_METHOD")


def _canonical(instructions: list[dis.Instruction]) -> tuple[bytes, list[int]]:
    """
    Return the instructions with constants numbered in order of use, and the indices of these constants.

    Constants that nothing loads are left out. The docstring is one: it stands first, where it shifts the
    others in some versions of Python and not in others.
    """
    order: dict[int, int] = {}
    lines = []
    for index, each in enumerate(instructions):
        argument = each.arg
        if argument is not None and each.opcode in _LOADS_CONSTANT:
            named = _loads_function_name(instructions, index)
            argument = None if named else order.setdefault(argument, len(order))
        lines.append(f"{each.opcode} {argument}")
    return "\n".join(lines).encode(), list(order)


def _apart(code: CodeType) -> tuple[bytes, list[object]]:
    """Return the encoding of a code object without its constants, and these in the order they are loaded in.

    Code nested in it is part of both.
    """
    instructions = list(dis.get_instructions(code))
    lines: list[str] = []
    constants: list[object] = []
    nested: list[CodeType] = []
    for index, each in enumerate(instructions):
        # Python 3.14 has small integers in the instruction.
        if each.opcode not in _LOADS_CONSTANT and each.opname != "LOAD_SMALL_INT":
            lines.append(f"{each.opcode} {each.arg}")
            continue
        lines.append("constant")
        # Not `argval`, which Python 3.11 does not know of each instruction that loads one.
        value = each.argval if each.opcode not in _LOADS_CONSTANT else code.co_consts[each.arg or 0]
        if isinstance(value, CodeType):
            nested.append(value)
        elif not _loads_function_name(instructions, index):
            constants.append(value)
    encodings = [encode(("\n".join(lines).encode(), *_layout(code)))]
    for encoding, inner in map(_apart, nested):
        encodings.append(encoding)
        constants += inner
    return b"".join(encodings), constants


def _loads_function_name(instructions: list[dis.Instruction], index: int) -> bool:
    """Whether a constant is the qualified name of a nested function, which Python 3.10 loads."""
    return sys.version_info < (3, 11) and instructions[index + 1].opname == "MAKE_FUNCTION"


# --------------------------------------------------------------------------------------------------
# Checking again


class _ByValue:
    """What is remembered of a value that can change in place: its encoding, and not the value."""

    __slots__ = ("_encoding",)

    def __init__(self, value: object, where: str) -> None:
        self._encoding = _Encoder(_identity).encode(value, where)

    def matches(self, value: object) -> bool:
        try:
            return _Encoder(_identity).encode(value, "") == self._encoding
        except Unfingerprintable:
            return False


def _identity(value: object, where: str) -> bytes:
    """Encode a function as itself, for this process: what it depends on is watched on its own."""
    if isinstance(value, FunctionType) or _is_dispatcher(value):
        return _frame("id", encode(id(value)))
    if _arrays.is_device_array(value):
        return _encode_device_array(value, where)
    return _refuse_callee(value, where)


def _is_fixed(value: object) -> bool:
    """Whether the same object always has the same encoding, but for functions, which are watched."""
    cls = type(value)
    if cls in _ATOMS or cls is FunctionType or isinstance(value, ModuleType) or _is_dispatcher(value):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(_is_fixed, value))  # type: ignore[call-overload]
    if isinstance(value, np.generic):
        return not isinstance(value, np.void)
    if structs.is_struct(value):
        return True
    return _compilers_name(value) is not None or _numba_type_name(value) is not None


def _seen(value: object, where: str) -> object:
    """Return what to remember of a value, for `_same`."""
    return value if _is_fixed(value) else _ByValue(value, where)


def _same(now: object, seen: object) -> bool:
    """Whether a value has the encoding of the one that was seen. False can also mean 'not sure'."""
    if now is seen:
        return True
    if type(seen) is _ByValue:
        return seen.matches(now)
    if type(now) is not type(seen):
        return False
    if isinstance(now, tuple) and isinstance(seen, tuple):
        return len(now) == len(seen) and all(map(_same, now, seen))
    encode_atom = _ATOMS.get(type(seen))
    return encode_atom is not None and encode_atom(now) == encode_atom(seen)


@dataclass(frozen=True, slots=True)
class _State:
    """What one function was made of, and what it read, when it was fingerprinted."""

    code: CodeType
    globals: dict[str, Any]
    cells: tuple[object, ...]
    defaults: object
    keyword_defaults: object
    attributes: object
    names: tuple[tuple[str, object], ...]

    def holds(self, function: FunctionType) -> bool:
        """Whether another look at this function, or at another made of the same code, gives the same."""
        # The identities are compared here, and `_same` only called where they differ, because this is
        # what each call of an algorithm waits for.
        if function.__code__ is not self.code or function.__globals__ is not self.globals:
            return False
        now: object = function.__defaults__
        if now is not self.defaults and not _same(now, self.defaults):
            return False
        now = function.__kwdefaults__
        if now is not self.keyword_defaults and not _same(now, self.keyword_defaults):
            return False
        now = function.__dict__ or None
        if now is not self.attributes and not _same(now, self.attributes):
            return False
        if function.__closure__ is not None:
            for cell, seen in zip(function.__closure__, self.cells):  # noqa: B905 - one code, one length
                now = cell.cell_contents
                if now is not seen and not _same(now, seen):
                    return False
        for name, seen in self.names:
            now = self.globals.get(name, _MISSING)
            if now is not seen and not _same(now, seen):
                return False
        return True


@dataclass(frozen=True, slots=True)
class _Watch:
    """All that was seen while an operator was fingerprinted, for `Fingerprint.unchanged`."""

    operator: object  # what the fingerprint is of, unless any function with `state` will do
    state: _State | None
    functions: tuple[tuple[FunctionType, _State], ...]
    dispatchers: tuple[tuple[Any, dict[str, object]], ...]
    attributes: tuple[tuple[object, str, object], ...]

    def holds(self, operator: object) -> bool:
        if self.state is None:
            if operator is not self.operator:
                return False
        elif type(operator) is not FunctionType or not self.state.holds(operator):
            return False
        for owner, name, seen in self.attributes:
            now = getattr(owner, name, _MISSING)
            if now is not seen and not _same(now, seen):
                return False
        for function, state in self.functions:
            if not state.holds(function):
                return False
        for dispatcher, options in self.dispatchers:
            if not _same_options(dispatcher.targetoptions, options):
                return False
        return True


def _same_options(now: dict[str, object], seen: dict[str, object]) -> bool:
    return len(now) == len(seen) and all(now.get(name, _MISSING) is value for name, value in seen.items())


# --------------------------------------------------------------------------------------------------
# Fingerprints


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """
    What an operator compiles to, as far as the operator decides it.

    Attributes
    ----------
    digest
        SHA-256 of all that the operator depends on, the same in every process and on every machine.
    parts
        Each dependency with a short form of what it was, for explaining a cache miss:
        ``("global 'SCALE'", "float 3.0")``, ``("global 'helper'", "function 5ad2c0ffee12")``.
    dispatchers
        The numba dispatchers that the operator calls, directly or not, and itself if it is one. numba
        compiles such a function once in a process and keeps the result, whatever its globals become:
        they must be made to forget it before the operator is compiled (and one of ``njit`` the
        ``CUDADispatcher`` that numba.cuda made of it), or the build is not that of this fingerprint.
    captures
        The device arrays that the operator reads or updates.
    refused
        What it does, or a function that it calls, that a kernel cannot; empty if there is nothing.
    """

    digest: bytes
    parts: tuple[tuple[str, str], ...] = field(compare=False)
    dispatchers: tuple[object, ...] = field(compare=False, repr=False)
    captures: tuple[Capture, ...]
    _watch: _Watch = field(compare=False, repr=False)
    _codes: tuple[tuple[str, CodeType], ...] = field(compare=False, repr=False)
    refused: str = field(default="", compare=False)

    def reads(self) -> list[tuple[str, str]]:
        """
        Return `parts` with the constants apart from the code, to tell which of them changed.

        They are numbered in the order in which the code loads them: ``("constant 1", "int 2")``,
        ``("constant 2 in 'helper'", "float 0.5")``.
        """
        found = [part for part in self.parts if part[0] != "code" and not part[0].startswith("code in ")]
        for inside, code in self._codes:
            encoding, constants = _apart(code)
            found.append((f"code{inside}", _short_hash(encoding)))
            for number, value in enumerate(constants, start=1):
                found.append((f"constant {number}{inside}", _short(value, encode(value))))
        return found

    def unchanged(self, operator: object) -> bool:
        """
        Whether an operator still has this fingerprint, found without computing it again.

        The operator may be another function object than the one fingerprinted, as a lambda in a loop
        is, if both were made of the same code. False means that the fingerprint may have changed.
        """
        try:
            return self._watch.holds(operator)
        except ValueError:  # an empty closure cell
            return False

    def checker(self) -> Callable[[Any], bool]:
        """Return `unchanged` for functions of one code, the quickest that what they read allows."""
        watch, state, unchanged = self._watch, self._watch.state, self.unchanged
        if state is None or state.names or state.cells or watch.attributes:
            return unchanged
        defaults, keyword_defaults, attributes = state.defaults, state.keyword_defaults, state.attributes

        def check(function: FunctionType) -> bool:
            return (
                function.__defaults__ is defaults
                and function.__kwdefaults__ is keyword_defaults
                and (function.__dict__ or None) is attributes
            ) or unchanged(function)

        return check


class _Walk:
    """One computation of a fingerprint: goes through a function and all that it reads and calls."""

    def __init__(self) -> None:
        self._encoder = _Encoder(self._callee)
        self._operator: tuple[object, object] = (None, None)  # and the function that it wraps, if it does
        self._ordinals: dict[int, int] = {}
        self._inside = ""  # " in 'helper'" while the walk is in a function that the operator calls
        self.recursive = False
        self.parts: list[tuple[str, str]] = []
        self.codes: list[tuple[str, CodeType]] = []
        self.functions: list[tuple[FunctionType, _State]] = []
        self.dispatchers: list[tuple[Any, dict[str, object]]] = []
        self.attributes: list[tuple[object, str, object]] = []
        self.captures: list[Capture] = []
        self.refused = ""

    def encode(self, operator: object) -> bytes:
        if not (isinstance(operator, FunctionType) or _is_dispatcher(operator) or _compilers_name(operator)):
            raise _refusal(_OPERATOR, operator, "Give a Python function, or a function under @cuda.jit.")
        if _is_dispatcher(operator):
            self._operator = (operator, operator.py_func)  # type: ignore[attr-defined]
        else:
            self._operator = (operator, None)
        return self._encoder.encode(operator, _OPERATOR)

    def _callee(self, value: object, where: str) -> bytes:
        if not isinstance(value, FunctionType) and not _is_dispatcher(value):
            return _refuse_callee(value, where)
        ordinal = self._ordinals.get(id(value))
        if ordinal is not None:
            # Functions may call each other in circles: the second visit says which one it is.
            self.recursive |= value in self._operator
            return _frame("again", _encode_int(ordinal))
        self._ordinals[id(value)] = len(self._ordinals)
        if isinstance(value, FunctionType):
            return self._function(value)
        return self._dispatcher(value, where)

    def _dispatcher(self, dispatcher: Any, where: str) -> bytes:
        function, options = dispatcher.py_func, dispatcher.targetoptions
        compiled = {name: options[name] for name in sorted(options) if name not in _OPTIONS_WITHOUT_EFFECT}
        _check_dispatcher(dispatcher, where, compiled)
        self.dispatchers.append((dispatcher, dict(options)))
        self.attributes += [(dispatcher, "py_func", function), (dispatcher, "_can_compile", True)]
        return _frame("dispatcher", self._encoder.encode(compiled, where), self._callee(function, where))

    def _function(self, function: FunctionType) -> bytes:
        called = function not in self._operator
        self.refused = self.refused or _refused(function, called)
        outer, self._inside = self._inside, f" in {function.__name__!r}" if called else ""
        try:
            plan = _plan(function.__code__)
            self._refuse_extended_attributes(plan)
            self.parts.append((f"code{self._inside}", _short_hash(plan.encoding)))
            self.codes.append((self._inside, plan.code))
            state, encodings = self._look(function, plan)
        finally:
            self._inside = outer
        self.functions.append((function, state))
        # Algorithms give the operator's arguments by position. Its parameters may still be found by
        # name, by itself, in __kwdefaults__ and in the signature of a __wrapped__ function.
        by_name = called or self.recursive or function.__kwdefaults__ or function.__dict__
        parameters = encode(_parameters(plan.code) if by_name else None)
        return _frame("function", plan.encoding, parameters, *encodings)

    def _look(self, function: FunctionType, plan: _Plan) -> tuple[_State, list[bytes]]:
        """Read all that a function depends on, each object once, and remember it before encoding it."""
        if type(function.__globals__) is not dict:
            raise _refusal(f"__globals__{self._inside}", function.__globals__, "It must be a plain dict.")
        cells = dict(zip(plan.code.co_freevars, map(_contents, function.__closure__ or ()), strict=True))
        names = {chain[0]: function.__globals__.get(chain[0], _MISSING) for chain in plan.globals}
        own = {
            "defaults": function.__defaults__,
            "keyword defaults": function.__kwdefaults__,
            # numba reads __wrapped__, __signature__, __numba__ and _numba_type_.
            "attributes": function.__dict__ or None,
        }
        seen = {label: _seen(value, label + self._inside) for label, value in own.items()}
        state = _State(
            plan.code,
            function.__globals__,
            tuple(_seen(value, self._label("closure variable", (name,))) for name, value in cells.items()),
            seen["defaults"],
            seen["keyword defaults"],
            seen["attributes"],
            tuple((name, _seen(value, self._label("global", (name,)))) for name, value in names.items()),
        )
        names = {name: self._builtin(name) if value is _MISSING else value for name, value in names.items()}
        return state, [
            *(self._value(label + self._inside, value) for label, value in own.items()),
            *self._chains("closure variable", plan.closure, cells),
            *self._chains("global", plan.globals, names),
        ]

    def _chains(self, kind: str, chains: Iterable[_Chain], roots: Mapping[str, object]) -> Iterator[bytes]:
        done: set[_Chain] = set()
        for chain in chains:
            value, read = self._follow(roots[chain[0]], chain)
            if read not in done:
                done.add(read)
                label = self._label(kind, read)
                if _arrays.is_device_array(value) and len(read) == 1 and not self._inside:
                    encoding = self._capture(label, read[0], kind, value)
                else:
                    encoding = self._value(label, value)
                yield _frame("read", encode((kind, *read)), encoding)

    def _capture(self, where: str, name: str, kind: str, array: object) -> bytes:
        found, ndim = _arrays.view(where, array), len(_arrays.shape(array))
        dtype = structs.normal(where, found.dtype)
        self.captures.append(Capture(name, kind == "closure variable", dtype, ndim))
        self.parts.append((where, f"device array of {found.dtype}, {ndim} dimensions"))
        return _encode_device_array(array, where)

    def _follow(self, value: object, chain: _Chain) -> tuple[object, _Chain]:
        """Follow a chain as far as it goes through modules; return what is there, and how far that is."""
        for depth, name in enumerate(chain[1:], start=1):
            if not isinstance(value, ModuleType):
                return value, chain[:depth]
            value = self._attribute(value, name, ".".join(chain[: depth + 1]))
        return value, chain

    def _builtin(self, name: str) -> object:
        return self._attribute(builtins, name, f"global {name!r}")

    def _attribute(self, owner: object, name: str, where: str) -> object:
        value = getattr(owner, name, _MISSING)
        self.attributes.append((owner, name, _seen(value, where + self._inside)))
        return value

    def _value(self, where: str, value: object) -> bytes:
        place = len(self.parts)
        encoding = self._encoder.encode(value, where)
        if value is not None:
            self.parts.insert(place, (where, _short(value, encoding)))
        return encoding

    def _label(self, kind: str, read: _Chain) -> str:
        return (f"{kind} {read[0]!r}" if len(read) == 1 else ".".join(read)) + self._inside

    def _refuse_extended_attributes(self, plan: _Plan) -> None:
        for name in sorted(_extensions().attributes & plan.names):
            raise Unfingerprintable(
                f"attribute {name!r}{self._inside} is added with numba's @overload_attribute or "
                f"@overload_method. {_NO_EXTENSIONS}"
            )


def _refused(function: FunctionType, called: bool) -> str:
    """Return what a function does that a kernel cannot, and which one it is if not the operator itself."""
    sentence = _unsupported.refusal(function.__code__)
    if not sentence or not called:
        return sentence or ""
    code = function.__code__
    return f"in {function.__name__} ({code.co_filename}:{code.co_firstlineno}): {sentence}"


def _check_dispatcher(dispatcher: Any, where: str, options: Mapping[str, object]) -> None:
    if not dispatcher._can_compile:
        advice = "It was compiled when decorated, with the globals of then; drop the signature from cuda.jit."
    elif dispatcher.__defaults__ is not dispatcher.py_func.__defaults__:
        advice = (
            "Its defaults changed after it was decorated, which numba does not notice; decorate it again."
        )
    elif not all(map(_is_fixed, options.values())):
        advice = f"Its options must be plain values; {dict(options)!r} are not."
    else:
        return
    raise _refusal(where, dispatcher, advice)


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _short_hash(encoding: bytes) -> str:
    return hashlib.sha256(encoding).hexdigest()[:12]


def _short(value: object, encoding: bytes) -> str:
    name = _compilers_name(value)
    if name is not None:
        return name
    if value is _MISSING:
        return "missing"
    text = _text(value) if len(encoding) < 80 else None
    return f"{_type_name(type(value))} {text or _short_hash(encoding)}"


def _text(value: object) -> str | None:
    """Return a plain value as a person writes it, None for others."""
    if type(value) in _ATOMS or (type(value) is tuple and all(type(item) in _ATOMS for item in value)):
        return repr(value)
    return str(value) if isinstance(value, (np.number, np.bool_)) else None


def fingerprint(operator: object) -> Fingerprint:
    """
    Return the fingerprint of an operator.

    The last fingerprints of each code object are kept, so that a repeated call with an unchanged
    operator costs well under a microsecond and what `Fingerprint.unchanged` costs.

    Parameters
    ----------
    operator
        A Python function or lambda, a function under ``numba.cuda.jit`` or ``numba.njit``, a NumPy ufunc,
        or a function of ``operator`` or ``math``.

    Returns
    -------
    Fingerprint
        Equal digests mean equal code, if the compilers are the same.

    Raises
    ------
    Unfingerprintable
        If the operator depends on something that has no exact encoding.
    """
    key = id(operator.__code__ if isinstance(operator, FunctionType) else operator)
    recent = _recent.get(key, ())
    for known in recent:
        if known.unchanged(operator):
            return known
    found = _compute(operator)
    if found.captures and type(operator) is not FunctionType:
        return found  # to remember it would keep the operator alive, and so its arrays
    others = tuple(known for known in recent if known != found)
    _remember(_recent, key, (found, *others[: _VARIANTS - 1]))
    return found


def _compute(operator: object) -> Fingerprint:
    walk = _Walk()
    try:
        encoding = walk.encode(operator)
    except Unfingerprintable as problem:
        raise Unfingerprintable(f"{_describe(operator)}: {walk.refused or problem}") from None
    subject, state, functions = operator, None, walk.functions
    if isinstance(operator, FunctionType) and functions and not walk.recursive:
        *functions, (_, state) = functions
        subject = None
    watch = _Watch(subject, state, tuple(functions), tuple(walk.dispatchers), tuple(walk.attributes))
    digest = hashlib.sha256(_FORMAT + encoding).digest()
    dispatchers = tuple(each for each, _ in walk.dispatchers)
    captures, codes = tuple(walk.captures), tuple(walk.codes)
    return Fingerprint(digest, tuple(walk.parts), dispatchers, captures, watch, codes, walk.refused)


def _describe(operator: object) -> str:
    code = getattr(operator, "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if isinstance(code, CodeType) else ""
    return f"operator {getattr(operator, '__qualname__', type(operator).__qualname__)!r}{place}"


_Kept = TypeVar("_Kept")

# Bounded, for both keep objects of the user's alive. What they keep includes the object whose id is
# the key, so that no other object gets that id.
_KEPT: Final = 512
_VARIANTS: Final = 4  # fingerprints kept for one code object: closures made of it differ in what they hold
_plans: dict[int, _Plan] = {}
_recent: dict[int, tuple[Fingerprint, ...]] = {}
_lock = _fork.Lock()


def _remember(kept: dict[int, _Kept], key: int, value: _Kept) -> None:
    with _lock:
        kept[key] = value
        while len(kept) > _KEPT:
            del kept[next(iter(kept))]


def _plan(code: CodeType) -> _Plan:
    plan = _plans.get(id(code))
    if plan is None:
        plan = _Scan(code).plan
        _remember(_plans, id(code), plan)
    return plan
