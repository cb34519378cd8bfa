"""The only access to numba-cuda: everything that cupar uses of it is imported from here.

numba is imported when it is first needed: a hit does not need it. So this is imported
from within functions. Another compiler of the same source would have to offer the functions here.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from . import structs
from ._base.versions import check_version, package_version

# Where each name is: a module, or a module and a name in it.
_PLACES: Final = {
    "AbstractTemplate": "numba.cuda.typing.templates:AbstractTemplate",
    "CUDACABICallConv": "numba.cuda.core.callconv:CUDACABICallConv",
    "Conversion": "numba.cuda.typeconv:Conversion",
    "LinkableCode": "numba.cuda.cudadrv.linkable_code:LinkableCode",
    "LoweringRegistry": "numba.cuda.core.imputils:Registry",
    "NamedTupleAttribute": "numba.cuda.typing.collections:NamedTupleAttribute",
    "NumbaError": "numba.core.errors:NumbaError",
    "as_dtype": "numba.cuda.np.numpy_support:as_dtype",
    "cgutils": "numba.cuda.cgutils",
    "compiler": "numba.cuda.compiler",
    "config": "numba:config",
    "cuda": "numba.cuda",
    "cuda_arrays": "numba.cuda.np.arrayobj",
    "cuda_codegen": "numba.cuda.codegen",
    "cuda_data_manager": "numba.cuda.models:cuda_data_manager",
    "cuda_target": "numba.cuda.descriptor:cuda_target",
    "default_manager": "numba.cuda.datamodel:default_manager",
    "dispatcher": "numba.cuda.dispatcher",
    "from_dtype": "numba.cuda.np.numpy_support:from_dtype",
    "global_compiler_lock": "numba.cuda.core.compiler_lock:global_compiler_lock",
    "ir": "llvmlite.ir",
    "intrinsic": "numba.cuda.extending:intrinsic",
    "llvm": "llvmlite.binding",
    "make_array": "numba.cuda.np.arrayobj:make_array",
    "nvrtc": "numba.cuda.cudadrv.nvrtc",
    "numpy_support": "numba.np.numpy_support",
    "numpy_support_of_cuda": "numba.cuda.np.numpy_support",
    "populate_array": "numba.cuda.np.arrayobj:populate_array",
    "rewrite_registry": "numba.cuda.core.rewrites:rewrite_registry",
    "signature_of": "numba.cuda.typing:signature",
    "ufunc_db": "numba.cuda.np.ufunc_db",
    "typeinfer": "numba.cuda.core.typeinfer",
    "typeof_impl": "numba.cuda.typing.typeof:typeof_impl",
    "types": "numba.cuda.types",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._base.versions import looked_up

    place = _PLACES[name]
    return looked_up(place, "numba-cuda" if place.startswith("numba.cuda") else "numba", _module)


def _module(place: str) -> Any:
    """Import a module of numba's or numba-cuda's."""
    if place.startswith("numba.cuda"):
        _import_numba_cuda()
    return importlib.import_module(place)


def _import_numba_cuda() -> None:
    """Import numba.cuda so that all of its modules can be imported.

    Raises
    ------
    VersionError
        If numba-cuda, or cuda-bindings that it calls, is of a version for which cupar was not written.
    """
    for project in ("numba-cuda", "cuda-bindings"):
        check_version(project, package_version(project))
    if "numba.cuda" not in sys.modules:
        # It is numba-cuda that defines numba.cuda, by a .pth file, which Python reads in site-packages alone:
        # not in a folder of `pip install --target`, or in an application that carries its packages.
        with suppress(ImportError):
            importlib.import_module("_numba_cuda_redirector")
    importlib.import_module("numba.cuda")  # all of it first, as in `looked_up`
    arrays = "numba.cuda.np.arrayobj"
    if not (arrays in sys.modules or hasattr(np, "row_stack")):
        # NumPy 2.5 removed the name, which this module of numba-cuda 0.30 defines for kernels.
        vars(np)["row_stack"] = lambda tup: np.vstack(tup)  # noqa: PLW0108 - another than vstack
        try:
            importlib.import_module(arrays)
        finally:
            vars(np).pop("row_stack", None)


# --- Names of numba.cuda's, before it is imported ----------------------------------------------------------

# Its types, with NumPy's names for the same.
_NOT_THERE: Final = {"bool", "float16", "f2", "bfloat16", "bf2", "int", "float", "float_"}
TYPE_NAMES: Final = {name: of for name, of in structs.NAMES.items() if name not in _NOT_THERE}


def is_imported(module: str) -> bool:
    """Whether a module is imported, and not being imported just now."""
    found = sys.modules.get(module)
    return found is not None and not getattr(found.__spec__, "_initializing", False)


def attribute(module: str, name: str) -> Any:
    """Import a module of numba-cuda, and return an object in it; raise AttributeError."""
    return getattr(_module(module), name)


def own_module(module: Any) -> Any:
    """Return the module of numba.cuda's that one of `cupar.cuda` stands for; other modules unchanged."""
    name = str(module.__name__)
    if name == "cupar.cuda" or name.startswith("cupar.cuda."):
        return _module("numba" + name.removeprefix("cupar"))
    return module


def module_type(home: str) -> Any:
    """Return a module's numba type, for functions that cupar does not compile."""
    return _module("numba.cuda.types").Module(_module(home))


class Name:
    """The stand-in of an object of numba.cuda's, which is looked up when it is first used.

    `place` is where it is defined, as in ``"numba.cuda.stubs:atomic.add"``, since others may assign to names
    of numba.cuda. `kind` is the name of a type in fingerprints.
    """

    __slots__ = ("_found", "_place", "_within", "kind")

    def __init__(self, place: str, kind: str | None = None, within: Mapping[str, Name] | None = None) -> None:
        self._place = place
        self._within = within or {}
        self._found: Any = None
        self.kind = kind

    @property
    def name(self) -> str:
        """Its qualified name."""
        return self._place.replace(":", ".")

    def real(self) -> Any:
        """Import numba, and return the object of this name."""
        if self._found is None:
            import pkgutil

            if self._place.startswith("numba.cuda"):
                _import_numba_cuda()
            self._found = pkgutil.resolve_name(self._place)
        return self._found

    @property
    def _numba_type_(self) -> Any:
        """Its numba type, in functions that cupar does not compile."""
        cuda_target = _module("numba.cuda.descriptor").cuda_target
        return cuda_target.typing_context.resolve_value_type(self.real())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked for of any object, as __cuda_array_interface__ is
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        return self._within[name] if name in self._within else getattr(self.real(), name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the object of this name."""
        return self.real()(*arguments, **named)

    def __getitem__(self, index: Any) -> Any:
        return self.real()[index]

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.real())

    def __reduce__(self) -> Any:
        return Name, (self._place, self.kind)

    def __repr__(self) -> str:
        return f"<{self.name}>"


# All that NUMBA_… variables could change, so that those need not be in a key.
OPTIONS: Final[dict[str, bool]] = {"opt": True, "debug": False, "lineinfo": False}


def parsed(text: str) -> Any:
    """Parse a text in numba's notation: a type, or a signature.

    It is evaluated, as numba does, but has nothing in it that could do anything else.
    """
    import ast

    types = _module("numba.cuda.types")
    known = vars(types)
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            value = known.get(node.id)
            if not issubclass(value if isinstance(value, type) else type(value), types.Type):
                raise TypeError(f"name {node.id!r} is not one of numba's types")
        elif not isinstance(node, _within_types()):
            raise TypeError(f"{ast.unparse(node)!r} is no type")
    return eval(compile(tree, "<signature>", "eval"), {"__builtins__": {}}, dict(known))


@functools.cache
def _within_types() -> tuple[type, ...]:
    """Evaluate a text with types: ``CPointer(float32)``, ``void(Array(int8, 1, "C"))``."""
    from ast import Call, Constant, Expression, List, Load, Slice, Subscript, Tuple, keyword

    return Call, Constant, Expression, List, Load, Slice, Subscript, Tuple, keyword


def _normalized(given: Any) -> tuple[tuple[Any, ...], Any]:
    """Return arguments and result of a signature, numba's own or a text; None if it has no result."""
    sigutils = _module("numba.cuda.core.sigutils")
    arguments, result = sigutils.normalize_signature(parsed(given) if isinstance(given, str) else given)
    return tuple(arguments), result


def signature(given: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return result and arguments of a signature, numba's own or the text of one, as numba's types."""
    arguments, result = _normalized(given)
    if result is None:
        raise TypeError(f"{given!r} has no result, as in 'float32(float32, float32)'")
    return result, arguments


def signature_text(given: Any) -> str:
    """Return a signature as text that `parsed` reads; raise ValueError if it has no exact text."""
    arguments, result = _normalized(given)
    text = "".join(f"{type_text(each)}, " for each in arguments)
    return f"({text})" if result is None else f"{type_text(result)}({text})"


def compile_device(function: Any, text: str) -> None:
    """Compile a device function for a signature, and for no other from then on."""
    typeinfer = _module("numba.cuda.core.typeinfer")
    arguments, result = _normalized(text)
    with typeinfer.register_dispatcher(function):
        function.compile_device(arguments, result)


def declared(function: Any) -> tuple[str, Any, tuple[Any, ...], str, bool, tuple[Any, ...]]:
    """Return what ``cuda.declare_device`` was told.

    That is symbol, result, arguments, ABI, whether it waits for the grid, and linked code.
    """
    c_abi = _module("numba.cuda.core.callconv").CUDACABICallConv
    cuda_target = _module("numba.cuda.descriptor").cuda_target
    ((_, implementation),) = cuda_target.target_context._defns[function].versions
    (description,) = implementation.__defaults__
    abi = "c" if isinstance(description.call_conv, c_abi) else "numba"
    items = tuple(item for library in implementation.libs for item in library._linking_files)
    waits = any(item.use_cooperative for item in implementation.libs)
    return description.llvm_func_name, description.restype, tuple(description.argtypes), abi, waits, items


@functools.lru_cache(1024)
def declare(name: str, text: str, abi: str, waits_for_grid: bool) -> Any:
    """Declare a function of elsewhere by its signature as text; return what compiled code calls it by."""
    cuda = _module("numba.cuda")
    made: Any = cuda.declare_device(name, parsed(text), use_cooperative=waits_for_grid, abi=abi)
    made.__name__ = name  # for numba's messages
    return made


def dtype_of(kind: Any) -> Any:
    """Return the dtype of a numba type; that of a record is aligned if the record is."""
    as_dtype = _module("numba.cuda.np.numpy_support").as_dtype
    if type(kind).__name__ == "Bfloat16":
        return structs.bfloat16()
    if type(kind).__name__ != "Record":
        return as_dtype(kind)
    fields = [(name, dtype_of(each.type), each.offset) for name, each in kind.fields.items()]
    return structs.of_members(fields, kind.size, bool(kind.aligned))


def type_text(kind: Any) -> str:
    """Return a type as text that `parsed` reads; raise ValueError for one that has no exact text."""
    name = type(kind).__name__
    if str(type(kind).__module__).partition(".")[0] == "numba":
        if name in ("Integer", "Float", "Complex"):
            return str(kind.name)
        if name in ("Boolean", "NoneType", "Bfloat16"):
            return {"Boolean": "boolean", "NoneType": "void"}.get(name, "bfloat16")
        if name == "CPointer":
            return f"CPointer({type_text(kind.dtype)})"
        if name == "Array":
            more = "" if kind.mutable and kind.aligned else f", {not kind.mutable}, aligned={kind.aligned}"
            return f"Array({type_text(kind.dtype)}, {kind.ndim}, {kind.layout!r}{more})"
        if name in ("Tuple", "UniTuple"):
            return f"Tuple(({''.join(f'{type_text(each)}, ' for each in kind)}))"
    raise ValueError(f"{kind}, which has no exact text")
