"""numba.cuda by the names that kernels use, without importing it: ``from cupar import cuda``.

A process that finds its kernels in the cache needs nothing of numba but these names, and importing numba.cuda
takes longer than all the rest of its start. So what kernels call (`grid`, `shared`, `atomic`, `libdevice`, …)
and types (`float32`) are placeholders here, which are looked up in numba.cuda when a kernel is compiled, or
when they are called from Python. Keys are the same as with ``from numba import cuda``. All other names, as
`to_device` or `stream`, import numba.cuda as soon as they are read, and are its own; where it is imported
already, all names are.

>>> import cupar
>>> from cupar import cuda
>>> @cuda.jit(device=True)
... def squared(x):
...     return x * x
>>> @cupar.jit
... def squares(x, out):
...     i = cuda.grid(1)
...     if i < x.size:
...         out[i] = squared(x[i])
>>> squares.compile("void(float32[::1], float32[::1])", cc=90).build.algorithm
'kernel'
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from types import FunctionType, ModuleType
from typing import Any, Final

from . import _numba

_HOME: Final = "numba.cuda"

# Modules of numba.cuda that define the names for kernels; a test compares this table with numba.cuda.
_DEFINED: Final = {
    "stubs": (
        "activemask atomic blockDim blockIdx brev cbrt clz const ffs fma gridDim laneid lanemask_lt local "
        "match_all_sync match_any_sync nanosleep popc selp shared syncwarp threadIdx threadfence "
        "threadfence_block threadfence_system warpsize"
    ),
    "intrinsics": (
        "all_sync any_sync ballot_sync eq_sync grid gridsize shfl_down_sync shfl_sync shfl_up_sync "
        "shfl_xor_sync syncthreads syncthreads_and syncthreads_count syncthreads_or"
    ),
    "cache_hints": "ldca ldcg ldcs ldcv ldlu stcg stcs stwb stwt",
    "misc.special": "literal_unroll",
}
_WITHIN: Final = {
    "atomic": "add and_ cas compare_and_swap dec exch inc max min nanmax nanmin or_ sub xor",
    "const": "array_like",
    "local": "array",
    "shared": "array",
}
_ITEMS: Final = {  # of vectors
    **{"char": "int8", "short": "int16", "int": "int32", "long": "int64", "longlong": "int64"},
    **{"uchar": "uint8", "ushort": "uint16", "uint": "uint32", "ulong": "uint64", "ulonglong": "uint64"},
    **{"float": "float32", "double": "float64"},
}
_IN_MODULES: Final = {
    "cg": "this_grid",
    "random": (
        "xoroshiro128p_jump xoroshiro128p_next xoroshiro128p_normal_float32 xoroshiro128p_normal_float64 "
        "xoroshiro128p_uniform_float32 xoroshiro128p_uniform_float64"
    ),
}


def _types() -> dict[str, _numba.Name]:
    found = {
        **_numba.TYPE_NAMES,
        **{f"np_{name}": name for name in _numba.TYPE_NAMES.values() if name != "bool"},
    }
    return {name: _numba.Name(f"numba.cuda.types:{name}", _kind(of)) for name, of in found.items()}


def _kind(name: str) -> str:
    """Return how a type's fingerprint names it."""
    kinds = {"i": "Integer", "u": "Integer", "f": "Float", "c": "Complex", "b": "Boolean"}
    return f"{kinds[name[0]]} {name}"


def _names() -> dict[str, Any]:
    found: dict[str, Any] = {name: each for name, each in _types().items() if not name.startswith("np_")}
    for module, defined in _DEFINED.items():
        for name in defined.split():
            within = {each: _numba.Name(f"numba.cuda.{module}:{name}.{each}") for each in _within(name)}
            found[name] = _numba.Name(f"numba.cuda.{module}:{name}", within=within)
    for short, item in _ITEMS.items():
        for count in "1234":
            made = _numba.Name(f"numba.cuda:{item}x{count}")
            found[f"{short}{count}"] = found[f"{item}x{count}"] = made
    return found


def _within(name: str) -> list[str]:
    return _WITHIN.get(name, "").split()


def _module(name: str, names: Mapping[str, Any]) -> ModuleType:
    """Return the stand-in of a module of numba.cuda's."""
    made = ModuleType(f"{__name__}.{name}", f"What kernels use of numba.cuda.{name}, without importing it.")
    made.__dict__["__getattr__"] = functools.partial(_found, f"numba.cuda.{name}", names)
    made.__dict__["__dir__"] = functools.partial(_listed, f"numba.cuda.{name}", names)
    return sys.modules.setdefault(made.__name__, made)


class _Libdevice(dict[str, Any]):
    """The functions of libdevice, some three hundred."""

    def __missing__(self, name: str) -> Any:
        if name.startswith("_"):
            raise KeyError(name)
        return self.setdefault(name, _numba.Name(f"numba.cuda.libdevice:{name}"))


def _found(home: str, names: Mapping[str, Any], name: str) -> Any:
    """Return the stand-in of a name, or numba.cuda's object."""
    if name.startswith("__"):
        raise AttributeError(f"module {home!r} has no attribute {name!r}")
    if name == "_numba_type_":
        return _numba.module_type(home)
    if not _numba.is_imported(_HOME):
        try:
            return names[name]
        except KeyError:
            pass
    return _numba.attribute(home, name)


def _listed(home: str, names: Mapping[str, Any]) -> Iterable[str]:
    theirs = vars(sys.modules[home]) if _numba.is_imported(home) else {}
    more = (name for name, each in theirs.items() if name[0] != "_" and not isinstance(each, ModuleType))
    return sorted({*names, *more})


def jit(func_or_sig: Any = None, *more: Any, **options: Any) -> Any:
    """Do what ``numba.cuda.jit`` does, as late as that can be.

    It makes device functions, for any kernel and operator to call, and kernels of numba.cuda's own: those of
    `cupar.jit` are cached. If it is given signatures, numba.cuda is imported.
    """
    if _numba.is_imported(_HOME) or more:
        return _numba.cuda.jit(func_or_sig, *more, **options)
    if func_or_sig is None:
        return lambda function: jit(function, **options)
    if type(func_or_sig) is FunctionType:
        return Jitted(func_or_sig, options)
    return _numba.cuda.jit(func_or_sig, **options)


class Jitted:
    """A function under ``cuda.jit`` that kernels and operators call, and numba.cuda has not seen yet.

    Attributes
    ----------
    py_func : function
    targetoptions : dict
        What it was given.
    """

    def __init__(self, function: FunctionType, options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.targetoptions: dict[str, Any] = dict(options)
        self.__defaults__: tuple[Any, ...] | None = function.__defaults__
        self._can_compile = True
        self._made: Any = None

    def _numbas(self) -> Any:
        """Return numba.cuda's own, for use from Python."""
        if self._made is None:
            self._made = _numba.cuda.jit(**self.targetoptions)(self.py_func)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        return self._numbas()._numba_type_

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._numbas(), name)

    def __getitem__(self, configuration: Any) -> Any:
        return self._numbas()[configuration]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Do what numba.cuda does with a call from Python."""
        return self._numbas()(*arguments, **named)

    def __repr__(self) -> str:
        return f"<{self.__name__} under cuda.jit>"


_LIBDEVICE: Final = _Libdevice()
_NAMES: Final = _names()
_NAMES.update(
    types=_module("types", _types()),
    libdevice=_module("libdevice", _LIBDEVICE),
    **{
        name: _module(name, {each: _numba.Name(f"numba.cuda.{name}:{each}") for each in inner.split()})
        for name, inner in _IN_MODULES.items()
    },
)


def __getattr__(name: str) -> Any:
    return _found(_HOME, _NAMES, name)


def __dir__() -> list[str]:
    return [*_listed(_HOME, _NAMES)]
