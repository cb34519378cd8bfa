"""Python operators: numba compiles frozen copies of them to LTO-IR, under CCCL's calling convention.

What is compiled is the copy that the fingerprint was taken of (see `_fingerprint`), and never the user's own
functions: they may change meanwhile, or be compiled by another thread. numba's compiler lock is held all the
time, and nothing of what is changed in numba for it outlasts that.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any, Final, TypeVar

import numpy as np

from .. import structs
from .._base.versions import package_folder
from .._fingerprint import extensions
from .._fingerprint.frozen import (
    MISSING,
    Function,
    Instance,
    Jitted,
    Module,
    NamedTupleClass,
    StructClass,
)
from .._fingerprint.names import package
from . import captured_arrays, wrapper
from .toolchain import BuildError, compilers
from .wrapper import OPTIONS, Operator, made

__all__ = ["compile_operator", "result_dtype", "warm_up"]

# --------------------------------------------------------------------------------------------------
# Types


def _struct_makers(op: Operator) -> dict[str, Any]:
    """Return the classes that an operator's wrapper names."""
    classes: list[np.dtype[Any]] = []
    for dtype in op.inputs:
        made("", dtype, classes)
    return {f"struct_{i}": structs.plain_class(dtype) for i, dtype in enumerate(classes)}


def _parameter_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type under which a wrapper gets the address of a value."""
    from numba.cuda import types

    if dtype.names is not None:
        return _numba_type(structs.layout(dtype))
    return types.CPointer(types.uint8 if dtype.kind == "b" else _numba_type(dtype))


def _value_type(dtype: np.dtype[Any]) -> Any:
    """Return the numba type of a value in an operator."""
    from numba.cuda import types

    if dtype.names is None:
        return _numba_type(dtype)
    fields = [_value_type(dtype[i]) for i in range(len(dtype.names))]
    struct = types.BaseTuple.from_types(fields, structs.plain_class(dtype))
    if {"count", "index"} & {*dtype.names}:
        _prefer_fields(struct)
    return struct


def _prefer_fields(struct: Any) -> None:
    """Let the attributes of a named tuple be its fields, even where tuples have methods of these names."""
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.typing.collections import NamedTupleAttribute

    typing, target = cuda_target.typing_context, cuda_target.target_context
    if struct in typing._attributes:
        return

    class FieldAttribute(NamedTupleAttribute):  # type: ignore[misc]
        key = struct

    def get(context: Any, builder: Any, kind: Any, value: Any, field: str) -> Any:
        return builder.extract_value(value, kind.fields.index(field))

    typing.insert_attributes(FieldAttribute(typing))
    target._insert_getattr_defn([(get, field, (struct,)) for field in struct.fields])


def _struct_maker(dtype: np.dtype[Any]) -> Any:
    """Return a device function that makes a struct of its fields, each converted to its type."""
    from numba import cuda

    # The parameters have the names of the fields, for they may be given by name; all other names are longer.
    names = dtype.names or ()
    own = "_" * max(map(len, names)) + "_"
    namespace: dict[str, Any] = {f"{own}plain": structs.plain_class(dtype)}
    converted = []
    for i, name in enumerate(names):
        kind = dtype[i]
        if kind.names is None:
            namespace[f"{own}{i}"] = bool if kind.kind == "b" else kind.type
            converted.append(f"{own}{i}({name})")
        else:
            namespace[f"{own}{i}"] = _struct_maker(kind)
            converted.append(f"{own}{i}({', '.join(f'{name}[{j}]' for j in range(len(kind.names)))})")
    _value_type(dtype)  # so that numba knows its fields
    source = f"def _make({', '.join(names)}):\n    return {own}plain({', '.join(converted)})\n"
    exec(source, namespace)
    return cuda.jit(device=True, **OPTIONS)(namespace["_make"])


def _numba_type(dtype: np.dtype[Any]) -> Any:
    from numba.cuda.np.numpy_support import from_dtype

    return from_dtype(dtype)


def _dtype_of(numba_type: Any) -> np.dtype[Any] | None:
    """Return the dtype of a value in an operator, None if arrays cannot hold it."""
    from numba.core.errors import NumbaError
    from numba.cuda import types
    from numba.cuda.np.numpy_support import as_dtype

    if isinstance(numba_type, types.BaseTuple):
        fields = [_dtype_of(field) for field in numba_type]
        if not fields or any(field is None for field in fields):  # a dtype equals None if it is float64
            return None
        names = getattr(numba_type, "fields", [f"field_{i}" for i in range(len(fields))])
        return structs.normal("op", np.dtype(list(zip(names, fields, strict=True)), align=True))
    try:
        dtype: np.dtype[Any] = as_dtype(getattr(numba_type, "literal_type", numba_type))
    except (NumbaError, NotImplementedError):
        return None
    return dtype if dtype in structs.NUMBERS else None


# --------------------------------------------------------------------------------------------------
# From frozen copies to what numba compiles


class _Thaw:
    """Makes what numba compiles of one operator's frozen copy.

    Each function becomes a device function, decorated by the user or not: numba compiles calls of jitted
    functions only, and that users decorate each helper of an operator is more than they would expect.
    """

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}  # by the id of the copy, which the operator keeps alive

    def function(self, frozen: Function) -> FunctionType:
        """Make a Python function that numba has not seen yet."""
        names: dict[str, Any] = {"__name__": __name__}
        cells = tuple(CellType() for _ in frozen.cells)
        defaults = self.value(frozen.defaults)
        function = FunctionType(frozen.code, names, frozen.name, defaults, cells or None)
        function.__kwdefaults__ = self.value(frozen.keyword_defaults)
        return function

    def fill(self, function: FunctionType, frozen: Function) -> None:
        """Let a function find what it reads, itself perhaps."""
        function.__globals__.update((name, self.value(each)) for name, each in frozen.globals.items())
        for cell, content in zip(function.__closure__ or (), frozen.cells, strict=True):
            if content is not MISSING:
                cell.cell_contents = self.value(content)

    def device_function(self, frozen: Function | Jitted, captures: Any = ()) -> Any:
        """Make a device function; captured arrays become its first arguments."""
        from numba import cuda

        if id(frozen) in self._made:
            return self._made[id(frozen)]
        body = frozen.function if isinstance(frozen, Jitted) else frozen
        given = frozen.options if isinstance(frozen, Jitted) else {}
        options = {name: given[name] for name in ("fastmath", "forceinline", "inline") if given.get(name)}
        function = self.function(body)
        around = captured_arrays.parametrised(function, captures) if captures else function
        made = self._made[id(frozen)] = cuda.jit(device=True, **{**OPTIONS, **options})(around)
        self.fill(function, body)
        return made

    def value(self, value: Any) -> Any:
        """Make what numba reads where an operator has a value."""
        if isinstance(value, (Function, Jitted)):
            return self.device_function(value)
        if isinstance(value, StructClass):
            return _struct_maker(value.dtype)
        if isinstance(value, Instance):
            cls = value.cls
            if isinstance(cls, StructClass):
                _value_type(cls.dtype)
            made = structs.plain_class(cls.dtype) if isinstance(cls, StructClass) else self.value(cls)
            return made(*map(self.value, value.fields))
        if isinstance(value, (NamedTupleClass, Module)):
            if id(value) not in self._made:
                make: Any = self._module if isinstance(value, Module) else self._named_tuple
                self._made[id(value)] = make(value)
            return self._made[id(value)]
        if type(value) in (tuple, list):
            return type(value)(map(self.value, value))
        if type(value) is dict:
            return {self.value(key): self.value(each) for key, each in value.items()}
        return value

    def _named_tuple(self, cls: NamedTupleClass) -> Any:
        made: Any = namedtuple(cls.name, cls.fields, rename=True)  # type: ignore[misc]
        made.__new__.__defaults__ = self.value(cls.defaults)
        return made

    def _module(self, frozen: Module) -> ModuleType:
        """Make a module with nothing but what is read of it."""
        attributes = {name: self.value(each) for name, each in frozen.attributes.items()}
        own = frozen.module
        # numba knows its own modules by identity, and what is read of them is its own, too.
        if package(own.__name__) in ("numba", "numba_cuda") and all(
            getattr(own, name, MISSING) is value for name, value in attributes.items()
        ):
            return own
        made = ModuleType(own.__name__)
        vars(made).update(attributes)
        return made


# --------------------------------------------------------------------------------------------------
# Compiling

T = TypeVar("T")
_MOST_TRIES: Final = 10
_target_cc: ContextVar[tuple[int, int] | None] = ContextVar("cupar_target_cc", default=None)


@dataclass(frozen=True)
class _TargetDevice:
    compute_capability: tuple[int, int]


@contextmanager
def _compiling(cc: int) -> Iterator[None]:
    """Have numba.cuda compile for a compute capability, while no other thread compiles.

    A device function that calls another one asks numba for the current device, only to learn its compute
    capability (`CUDADispatcher.compile_device`). Without a GPU that fails; with one it would build for
    the wrong card, and touch it. So within the block that question has another answer.

    Raises
    ------
    Unfingerprintable
        If what others have registered with numba was used.
    """
    from numba import config, cuda

    if config.ENABLE_CUDASIM:
        raise BuildError("numba.cuda is a simulator here, which compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from numba.cuda import dispatcher
    from numba.cuda.core.compiler_lock import global_compiler_lock

    located = package_folder("numba_cuda")
    if located is None or located.resolve() not in Path(cuda.__file__).resolve().parents:
        raise BuildError(
            f"numba.cuda was imported from {cuda.__file__}, but numba-cuda is found at {located}: sys.path "
            "changed, or another package is called 'numba_cuda'"
        )

    def get_current_device() -> Any:
        target = _target_cc.get()
        return ask_driver() if target is None else _TargetDevice(target)

    with compilers(), global_compiler_lock, extensions.refuse_foreign():
        token, ask_driver = _target_cc.set(divmod(cc, 10)), dispatcher.get_current_device
        dispatcher.get_current_device = get_current_device
        try:
            yield
        finally:
            dispatcher.get_current_device = ask_driver
            _target_cc.reset(token)


def _compiled(cc: int, work: Callable[[], T]) -> T:
    """Have numba compile; again, if others registered something with it meanwhile."""
    for _ in range(_MOST_TRIES):
        with _compiling(cc):
            before = extensions.foreign()
            result = work()
            if extensions.foreign() == before:
                return result
    raise BuildError("something is registered with numba all the time, so what it compiles to cannot be told")


def _typed(op: Operator) -> tuple[Any, Any]:
    """Compile an operator's function for its types; return it and the numba type of its result."""
    frozen = op.function
    if not isinstance(frozen, (Function, Jitted)):
        frozen = _calling(frozen, len(op.inputs))
    function = _Thaw().device_function(frozen, op.captures)
    arguments = [*map(_array_type, op.captures), *map(_value_type, op.inputs)]
    _, _, folded, _ = function.get_call_template(arguments, {})
    return function, function.overloads[tuple(folded)].signature.return_type


def result_dtype(op: Operator, cc: int) -> np.dtype[Any]:
    """Return the dtype of what an operator returns for its types, whatever its output is.

    Raises
    ------
    Exception
        Whatever numba raises if it cannot compile it.
    """

    def work() -> np.dtype[Any]:
        _, result = _typed(op)
        dtype = _dtype_of(result)
        if dtype is None:
            op.check_result(result)
        assert dtype is not None
        return dtype

    return _compiled(cc, work)


def compile_operator(op: Operator, symbol: str, cc: int) -> list[bytes]:
    """Compile a Python operator to LTO-IR under CCCL's calling convention.

    CCCL calls ``void symbol(void* in..., void* out)``: each argument is a pointer to a value. An operator
    with captured arrays has a pointer to their addresses and shapes for its first argument.

    Parameters
    ----------
    op : Operator
        Its frozen function, their types, and what checks the type of its result before that is converted.
    symbol : str
        The name of the device function to define.
    cc : int
        Compute capability, as in 90.

    Returns
    -------
    list of bytes
        LTO-IR of the operator and of what numba has it call (arithmetic of float16 is in C++ there).

    Raises
    ------
    Exception
        Whatever numba raises if it cannot compile it.
    """

    def work() -> list[bytes]:
        from numba import cuda
        from numba.cuda import types

        function, result = _typed(op)
        dtype = _dtype_of(result)
        op.check_result(result if dtype is None else dtype)
        namespace = {"call": function, **_struct_makers(op), **_array_loaders(op)}
        exec(wrapper.source(op), namespace)
        state = [types.CPointer(types.uint64)] * bool(op.captures)
        codes, _ = cuda.compile_all(
            namespace["operator"],
            types.void(*state, *map(_parameter_type, (*op.inputs, op.output))),
            device=True,
            abi="c",
            abi_info={"abi_name": symbol},
            output="ltoir",
            cc=divmod(cc, 10),
            **OPTIONS,
        )
        return list(map(_ltoir, codes))

    return _compiled(cc, work)


def warm_up() -> None:
    """Import numba.cuda and have it compile something, for it takes its time with the first."""
    with _compiling(90):
        from numba import cuda

        cuda.compile(lambda: None, "void()", device=True, abi="c", output="ltoir", cc=(9, 0))


def _array_type(capture: Any) -> Any:
    from numba.cuda import types

    return types.Array(_numba_type(capture.dtype), capture.ndim, "C")


def _array_loaders(op: Operator) -> dict[str, Any]:
    """Return the functions that make numba's arrays of the addresses and shapes in an operator's state."""
    loaders, at = {}, 0
    for i, capture in enumerate(op.captures):
        loaders[f"array_{i}"] = captured_arrays.loader(_array_type(capture), at)
        at += 1 + capture.ndim
    return loaders


def _ltoir(code: Any) -> bytes:
    """Return LTO-IR from one of the kinds of object that numba has for it."""
    kind = getattr(code, "kind", None)
    if kind not in (None, "ltoir"):
        raise BuildError(f"an operator calls code of kind {kind!r}; cupar can link LTO-IR alone")
    return bytes(getattr(code, "data", None) or getattr(code, "code", None) or code)


def _calling(function: Any, arity: int) -> Function:
    """Return a function that calls a built-in function or ufunc, which numba cannot jit itself."""
    call: Any = (lambda a: function(a)) if arity == 1 else (lambda a, b: function(a, b))  # noqa: PLW0108
    return Function(call.__code__, "call", cells=[function])
