"""The handler in this process: fetched or compiled, registered with JAX, and given its functions."""

from __future__ import annotations

import ctypes
import functools
import json
import pickle
import re
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from ctypes import addressof, c_int64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from .._base import fork, log
from .._base.errors import VersionError
from .._base.versions import own_version
from .._compile import entries, toolchain
from .._compile.key import FORMAT
from .._cpu.code import CpuCode, packed
from .._device import driver
from .._jobs.threads import off_main_thread
from .._launch.words import address_of
from .._store.entry import Entry
from . import layout, resolved

TARGET = "cupar_jax"
_MASK64 = 2**64 - 1
_ENTRIES = 1 << 16
_CREATE = ctypes.CFUNCTYPE(c_void_p, c_int64)
# The modules that the handler's code is made of, beside those of any code for the CPU.
OWN = ("_jax.handler", "_jax.layout", "_host.launches", "_host.native", "_launch.words", "_device.kernels")

_table = np.zeros((_ENTRIES, 2), np.int64)  # a key, and the address of functions
_state = np.zeros(layout.STATE, np.int64)
_kept: list[Any] = []  # functions that the table has, for ever: programs may call them
_interrupted = ctypes.create_string_buffer(b"cupar.jax: a signal's handler raised an exception in a call")
_lock = fork.Lock()
_handler: list[Any] = []
_run: Any = None  # the handler's function, once there is one


# --- The handler's code ---------------------------------------------------------------------------------


def _parts() -> dict[str, Any]:
    own = own_version(OWN)
    versions = {**toolchain.cpu_versions(), "cupar's handler": own}
    return {"format": FORMAT, "entry": "build", "algorithm": "jax_handler", "cc": "cpu", "versions": versions}


def _made() -> Entry:
    with toolchain.compilers():
        from .._cpu import compiling
        from . import handler

        with compiling.compiling("the handler of cupar.jax"):
            code = bytes(handler.library().emit_native_object())
        parts = _parts()
        return Entry(
            {**{each: parts[each] for each in ("algorithm", "cc", "entry")}, "parts": parts},
            packed(compiling.called(code), code),
        )


@functools.cache
def _code() -> CpuCode:
    def use(entry: Entry) -> CpuCode:
        spec: Any = SimpleNamespace(algorithm="the handler of cupar.jax", functions={})
        code = CpuCode(spec, entry.payload)
        code.check()
        return code

    return entries.fetch(_parts(), lambda: off_main_thread(_made), use)[1]


def register() -> None:
    """Register the handler with JAX, once in a process."""
    global _run
    if _handler:
        return
    with _lock:
        if _handler:
            return
        _state[layout.VERSION] = _version()
        function = _code().function()
        _state[layout.TABLE], _state[layout.MASK] = _table.ctypes.data, _ENTRIES - 1
        _state[[layout.FIND, layout.RESOLVE, layout.FAIL]] = [*map(id, (_instantiate, _resolve, _fail))]
        for place, name in layout.PYTHON.items():
            _state[place] = address_of(getattr(ctypes.pythonapi, name))
        _state[layout.INTERRUPTED] = addressof(_interrupted)
        begin = np.array([0, _state.ctypes.data], np.int64)
        function(begin.ctypes.data)
        _run = function
        capsule = jax.ffi.pycapsule(address_of(function))
        stages = {"instantiate": capsule, "execute": capsule}
        for platform in ("cpu", "CUDA"):
            jax.ffi.register_ffi_target(TARGET, stages, platform=platform)
        _handler.append((function, stages))


def _version() -> int:
    """Return the version of XLA's interface that the handler has: major, and minor in the upper half.

    That is the version of JAX's headers, or the last one that is known here if theirs is newer: XLA keeps
    what older minor versions have, or refuses them.
    """
    text = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    found = {name: int(each) for name, each in re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text)}
    major, minor = found["MAJOR"], found["MINOR"]
    least, most = (f"{layout.MAJOR}.{each}" for each in (layout.MINORS[0], layout.MINORS[-1]))
    if major != layout.MAJOR or minor < layout.MINORS[0]:
        raise VersionError(
            f"cupar.jax: expected JAX with version {least} to {most} of XLA's FFI, "
            f"got JAX {jax.__version__} with {major}.{minor}: pip install 'cupar[jax]'"
        )
    return major | min(minor, layout.MINORS[-1]) << 32


def begin() -> None:
    """Register the handler if possible; otherwise, compiling a program raises the reason."""
    try:
        register()
    except Exception as error:
        log.debug("cupar.jax has no handler yet: %s: %s", type(error).__name__, error)


# --- Functions of the handler ---------------------------------------------------------------------------


def _word(address: int, k: int = 0) -> int:
    return c_int64.from_address(address + 8 * k).value


def _attributes(frame: int) -> tuple[str, bool]:
    """Return the builds of a program, and whether it is for a GPU."""
    table = _word(frame + layout.ATTRS)
    text, program = _word(table), _word(table, 1)
    builds = ctypes.string_at(_word(text), _word(text, 1)).decode()
    return builds, bool(_word(_word(program, 2), 1))


def _error(frame: int, message: str, code: int) -> int:
    """Return an error of XLA's, which copies the message."""
    text = ctypes.create_string_buffer(f"cupar.jax: {message}".encode())
    words = (c_int64 * 4)(32, 0, addressof(text), code)
    create = _CREATE(_word(_word(frame + layout.API) + layout.ERROR_CREATE))
    return create(addressof(words)) or 0


# Each one is given the address of words: a call frame, a number, a status, a call's words, and `BEGUN`. An
# exception that leaves one comes from a signal's handler.


def _instantiate(address: int) -> int:
    """Find the functions of a program before it is called, once an executable: its first stage."""
    frame = _word(address)
    return _answering(frame, lambda: _find(*_attributes(frame)))


def _resolve(address: int) -> int:
    """Find the functions of a program at its first call in a context."""
    frame, key = _word(address), _word(address, 1)
    return _answering(frame, lambda: _put(key, resolved.functions(_attributes(frame)[0])))


def _answering(frame: int, work: Callable[[], None]) -> int:
    try:
        work()
    except resolved.MissingError as error:
        return _error(frame, str(error), layout.NOT_FOUND)
    except resolved.WrongDeviceError as error:
        return _error(frame, str(error), layout.INVALID)
    except Exception as error:
        if _is_of_a_signal(error):
            raise
        return _error(frame, f"{type(error).__name__}: {error}", layout.INVALID)
    return 0


def _is_of_a_signal(error: Exception) -> bool:
    """Whether a signal's handler has raised an exception."""
    codes = {getattr(signal.getsignal(each), "__code__", None) for each in signal.valid_signals()}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _pythons(function: resolved.Python) -> Callable[[int], int]:
    """Return a function that is called as a program calls those of Python's."""

    def call(address: int) -> int:
        frame, number, given = (_word(address, k) for k in (0, 1, 3))
        words = (c_int64 * (1 << 20)).from_address(given)
        c_int64.from_address(address + 8 * layout.BEGUN).value = 1
        try:
            function(words)
        except Exception as error:
            if _is_of_a_signal(error):
                raise
            return _error(
                frame, f"{_described(frame, number)[1]}: {type(error).__name__}: {error}", layout.INTERNAL
            )
        return 0

    return call


def _described(frame: int, number: int) -> tuple[str, str, list[Any]]:
    """Return the kind of a program's function, its algorithm, and more."""
    kind, _, algorithm, *more = json.loads(_attributes(frame)[0])["functions"][number]
    return kind, algorithm, more


def _find(builds: str, on_gpu: bool) -> None:
    if not on_gpu:
        _put(layout.identity(builds), resolved.functions(builds))
        return
    driver.current_context()  # so that there is one
    if not _state[layout.LAUNCH]:
        library = driver.library()
        _state[layout.CURRENT] = address_of(library.cuCtxGetCurrent)
        _state[layout.LAUNCH] = address_of(library.cuLaunchKernelEx)
    wrong: list[resolved.WrongDeviceError] = []  # of GPUs on which it may never be called
    count = 0
    for handle in driver.primaries():
        count += 1
        _found_on(builds, handle, wrong)
    if wrong and len(wrong) == count:
        raise wrong[0]


def _found_on(builds: str, handle: int, wrong: list[resolved.WrongDeviceError]) -> None:
    try:
        _put(_key(builds, handle), resolved.functions(builds))
    except resolved.WrongDeviceError as error:
        wrong.append(error)


def _key(builds: str, handle: int) -> int:
    """Return by which word the functions of a program are found in a context: see the handler."""
    mixed = (layout.identity(builds) ^ handle * layout.SPREAD) & _MASK64 | 1
    return mixed - 2**64 if mixed >= 2**63 else mixed


def _put(key: int, functions: list[int | resolved.Python]) -> None:
    found = [each if isinstance(each, int) else _pythons(each) for each in functions] or [0]
    words = [each if isinstance(each, int) else id(each) | 1 for each in found]
    made = np.array([each - 2**64 if each >= 2**63 else each for each in words], np.int64)
    address = made.ctypes.data
    with _lock:
        at = key & _ENTRIES - 1
        while _table[at, 0]:
            if _table[at, 0] == key:
                return
            at = at + 1 & _ENTRIES - 1
        if len(_kept) > _ENTRIES // 2:
            raise MemoryError(f"a process has programs of at most {_ENTRIES // 2} different sets of builds")
        _kept.append((made, found))
        _table[at, 1] = address
        _publish(_table[at, :1], key)


def _publish(place: np.ndarray[Any, Any], word: int) -> None:
    """Store a word after all that was written before, for threads of XLA's that load it without a lock.

    Python has no store with release semantics, without which aarch64 may show them the word first.
    """
    frame = np.array([0, 0, place.ctypes.data, word], np.int64)
    _run(frame.ctypes.data)


def _fail(address: int) -> int:
    """Return the error of a function that returned a status."""
    frame, number, status, given = (_word(address, k) for k in range(4))
    message = "a call failed"
    with suppress(Exception):
        kind, algorithm, more = _described(frame, number)
        if kind == "launch":
            name = ctypes.c_char_p()
            driver.library().cuGetErrorName(status, ctypes.byref(name))
            message = f"{algorithm}: cuLaunchKernelEx of {more[0]} failed with {(name.value or b'').decode()}"
        else:
            by, said = more[0].get(str(status), "the code for the CPU"), "an exception"
            with suppress(Exception):
                cls, arguments, _ = pickle.loads(ctypes.string_at(_word(given), _word(given, 1)))
                said = ": ".join([cls.__name__, *map(str, arguments)])
            message = f"{algorithm}: {by} raised {said}"
    return _error(frame, message, layout.INTERNAL)
