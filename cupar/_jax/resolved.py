"""The functions of a program in this process: of builds that it has made, or of those that the cache has.

A program names builds by their keys, so that it means the same in any process: one that was compiled in
another, exported, or read from JAX's cache of executables.
"""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import _cache, structs
from .._base import fork
from .._cpu import bit_sorts, offsets
from .._cpu.calls import run
from .._cpu.code import CpuCode
from .._cpu.schedules import Part, Schedule
from .._device import driver
from .._device.kernels import PROGRAMMATIC, Library, device_properties
from .._kernels.image import Image
from .._launch.code import Code
from .._store import settings
from .layout import PART

_codes: dict[str, Any] = {}  # of builds, by key: entries are never replaced, since programs call them
_libraries: dict[tuple[int, str], Library] = {}  # by the context's number, of builds of the cache

Python = Callable[[Any], None]  # takes the words of a call; they begin with its `Part`


class MissingError(LookupError):
    """A build that is not there."""


class WrongDeviceError(ValueError):
    """A program that was planned for another kind of GPU."""


def remember(algorithm: Any) -> None:
    """Keep the code of an algorithm for programs, unless they call such code already: that lives for ever."""
    _codes.setdefault(algorithm.build.key, algorithm._built.code)


def functions(builds: str) -> list[int | Python]:
    """Return the functions that a program names: addresses, the driver's handles, or Python's own.

    Raises
    ------
    MissingError
        If a build is neither of this process nor in the cache.
    WrongDeviceError
        If the program is for another GPU than the current one.
    """
    found = json.loads(builds)
    if found["device"] != "cpu" and found["functions"]:
        device = driver.current_device()
        here = {"cc": device.cc, **device_properties(device)}
        if here != found["device"]:
            raise WrongDeviceError(
                f"it was compiled for a GPU with {_shown(found['device'])}, and this one has {_shown(here)}: "
                "trace and compile it again here"
            )
    if unknown := {kind for kind, *_ in found["functions"]} - {*_MAKERS}:
        raise MissingError(
            f"it is of another version of cupar ({', '.join(unknown)}): trace and compile it again"
        )
    return [_MAKERS[kind](*described) for kind, *described in found["functions"]]


def _shown(properties: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in properties.items())


def _payload(key: str, algorithm: str) -> bytes:
    found = _cache.find(key)
    if found is None:
        where = settings.directory()
        raise MissingError(
            f"it calls a build of {algorithm} with the key {key}, which is not in cupar's cache "
            f"({where or 'switched off'}): set CUPAR_CACHE_DIR, CUPAR_BUNDLES or CUPAR_SHARED to where it "
            "is, or trace and compile the program again in this process"
        )
    return found.entry.payload


# --- On a GPU -------------------------------------------------------------------------------------------


def _kernel(key: str, algorithm: str, symbol: str) -> int:
    context, code = driver.current_context(), _codes.get(key)
    if isinstance(code, Code):
        return code.loaded(context)._library.functions[symbol].value or 0
    library = _libraries.get((context.number, key))
    if library is None:
        image = Image.loads(_payload(key, algorithm))
        subject = f"loading the code of {algorithm} for a program of cupar.jax"
        with driver.relaxed_capture_mode():
            library = _libraries[context.number, key] = Library(image.cubin, [], subject)
    if symbol not in library.functions:
        optin = device_properties(context.device)["shared_memory"]
        with driver.relaxed_capture_mode():
            library.functions[symbol] = library._prepared(symbol, optin)
    return library.functions[symbol].value or 0


# --- On the CPU -----------------------------------------------------------------------------------------


def _host_code(key: str, algorithm: str) -> CpuCode:
    code = _codes.get(key)
    if not isinstance(code, CpuCode):
        spec: Any = SimpleNamespace(algorithm=algorithm, functions={})
        code = CpuCode(spec, _payload(key, algorithm))
        code.check()
        code = _codes.setdefault(key, code)
    return code


def _code(key: str, algorithm: str, raising: dict[str, str]) -> int:
    return ctypes.cast(_host_code(key, algorithm).function(), ctypes.c_void_p).value or 0  # type: ignore[arg-type]


def _numpy(
    key: str | None, algorithm: str, order: str, arguments: Sequence[Any], numbers: dict[str, Any]
) -> Python:
    """Return a function that sorts with NumPy."""
    shown = [
        SimpleNamespace(name=name, value=structs.normal(name, structs.as_dtype(dtype)), is_pointer=is_pointer)
        for name, dtype, is_pointer in arguments
    ]
    spec: Any = SimpleNamespace(algorithm=algorithm, arguments=shown, option={"order": order}.get)
    problem = SimpleNamespace(**numbers)
    gather = None if key is None else functools.partial(_gather, _host_code(key, algorithm))
    return lambda words: bit_sorts.sort(spec, problem, words[PART : PART + len(shown)], gather)


def _gather(code: CpuCode, values: Sequence[Any], places: Any, targets: Any) -> None:
    given = places.ctypes.data, targets.ctypes.data
    run(code, Schedule([[Part(0, 0, len(places), 0)]], numbers=given), values)


def _check(key: None, algorithm: str, numbers: dict[str, Any]) -> Python:
    """Return a function that raises if a check has found a wrong offset."""
    is_listed = "capacity" in numbers
    problem: Any = offsets.SegmentOffsets(**numbers) if is_listed else SimpleNamespace(**numbers)

    def call(words: Any) -> None:
        parts = words[3]
        found = (ctypes.c_int64 * (offsets.WORDS * parts)).from_address(words[PART])
        offsets.check(problem, np.frombuffer(found, np.int64), parts)

    return call


_MAKERS: dict[str, Callable[..., Any]] = {
    "launch": _kernel,
    "overlaps": lambda: ctypes.addressof(PROGRAMMATIC),
    "code": _code,
    "numpy": _numpy,
    "check": _check,
}


@fork.in_child
def _forget() -> None:
    fork.leak((_libraries.copy(), _codes.copy()))
    _libraries.clear()
