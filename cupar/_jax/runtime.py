"""The handler in this process: fetched or compiled, registered with JAX, and given its functions."""

from __future__ import annotations

import ctypes
import json
import pickle
import re
from contextlib import suppress
from ctypes import addressof, c_int32, c_int64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from .._base import fork, log
from .._base.versions import own_version
from .._compile import entries, toolchain
from .._compile.key import FORMAT
from .._cpu.code import CpuCode, packed
from .._device import driver
from .._device.kernels import PROGRAMMATIC
from .._jobs.threads import off_main_thread
from .._launch.words import address_of
from .._store.entry import Entry
from . import resolved
from .layout import (
    API,
    ATTRS,
    CURRENT,
    ERROR_CREATE,
    EXTENSION,
    FAIL,
    LAUNCH,
    MASK,
    OVERLAPS,
    OWN_VERSION,
    RESOLVE,
    SPREAD,
    TABLE,
    VERSION,
    identity,
)

TARGET = "cupar_jax"
_MASK64 = 2**64 - 1
_ENTRIES = 1 << 16
_INTERNAL, _NOT_FOUND, _INVALID = 13, 5, 3  # XLA_FFI_Error_Code_…
_STAGE = ctypes.CFUNCTYPE(c_void_p, c_int64)
_FOUR = ctypes.CFUNCTYPE(c_void_p, c_int64, c_int64, c_int64, c_int64)

_table = np.zeros((_ENTRIES, 2), np.int64)  # a key, and the address of functions
_state = np.zeros(8, np.int64)
_known: dict[int, Any] = {}  # functions by their key
_lock = fork.Lock()
_handler: list[Any] = []
_run: Any = None  # the handler's function, once there is one


# --- The handler's code ---------------------------------------------------------------------------------


def _parts() -> dict[str, Any]:
    own = own_version(("_jax.handler", "_jax.layout"))
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
        code = _code()
        function = code.function()
        callbacks = _STAGE(_instantiate), _FOUR(_resolve), _FOUR(_fail)
        _state[TABLE], _state[MASK] = _table.ctypes.data, _ENTRIES - 1
        _state[RESOLVE], _state[FAIL] = (address_of(each) for each in callbacks[1:])
        _state[OVERLAPS] = addressof(PROGRAMMATIC)
        _state[OWN_VERSION] = _version()
        begin = np.array([0, _state.ctypes.data], np.int64)
        function(begin.ctypes.data)
        _run = function
        stages = {
            "instantiate": jax.ffi.pycapsule(address_of(callbacks[0])),
            "execute": jax.ffi.pycapsule(address_of(function)),
        }
        for platform in ("cpu", "CUDA"):
            jax.ffi.register_ffi_target(TARGET, stages, platform=platform)
        _handler.append((code, function, callbacks, stages))


def _version() -> int:
    """Return the version of the interface that JAX's headers are of: major, and minor in the upper half."""
    text = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text()
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", text))
    return int(found["MAJOR"]) | int(found["MINOR"]) << 32


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
    table = _word(frame + ATTRS)
    text, program = _word(table), _word(table, 1)
    builds = ctypes.string_at(_word(text), _word(text, 1)).decode()
    return builds, bool(_word(_word(program, 2), 1))


def _error(frame: int, message: str, code: int) -> int:
    """Return an error of XLA's, which copies the message."""
    text = ctypes.create_string_buffer(f"cupar.jax: {message}".encode())
    words = (c_int64 * 4)(32, 0, addressof(text), code)
    create = _STAGE(_word(_word(frame + API) + ERROR_CREATE))
    return create(addressof(words)) or 0


def _answering(frame: int, work: Any) -> int:
    try:
        work()
    except resolved.MissingError as error:
        return _error(frame, str(error), _NOT_FOUND)
    except resolved.WrongDeviceError as error:
        return _error(frame, str(error), _INVALID)
    except BaseException as error:  # nothing may leave a callback
        return _error(frame, f"{type(error).__name__}: {error}", _INVALID)
    return 0


def _instantiate(frame: int) -> int:
    """Find the functions of a program before it is called, once an executable: its first stage."""
    extension = _word(frame + EXTENSION)
    if extension:
        if c_int32.from_address(extension + 8).value == 1:
            metadata, api = _word(extension, 3), _word(frame + API)
            version = api + VERSION if api else _state.ctypes.data + 8 * OWN_VERSION
            c_int64.from_address(metadata + 24).value = _word(version)
        return 0
    return _answering(frame, lambda: _find(*_attributes(frame)))


def _resolve(frame: int, key: int, _: int, __: int) -> int:
    """Find the functions of a program at its first call in a context."""

    def work() -> None:
        builds, _ = _attributes(frame)
        _put(key, resolved.functions(builds))

    return _answering(frame, work)


def _find(builds: str, on_gpu: bool) -> None:
    if not on_gpu:
        _put(identity(builds), resolved.functions(builds))
        return
    driver.current_context()  # so that there is one
    if not _state[LAUNCH]:
        library = driver.library()
        _state[CURRENT] = address_of(library.cuCtxGetCurrent)
        _state[LAUNCH] = address_of(library.cuLaunchKernelEx)
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
    mixed = (identity(builds) ^ handle * SPREAD) & _MASK64 | 1
    return mixed - 2**64 if mixed >= 2**63 else mixed


def _put(key: int, functions: list[int]) -> None:
    with _lock:
        if key in _known:
            return
        if len(_known) > _ENTRIES // 2:
            raise MemoryError(f"a process has programs of at most {_ENTRIES // 2} different sets of builds")
        _known[key] = made = np.array(
            [each - 2**64 if each >= 2**63 else each for each in functions] or [0], np.int64
        )
        at = key & _ENTRIES - 1
        while _table[at, 0]:
            at = at + 1 & _ENTRIES - 1
        _table[at, 1] = made.ctypes.data
        _publish(_table[at, :1], key)


def _publish(place: np.ndarray[Any, Any], word: int) -> None:
    """Store a word after all that was written before, for threads of XLA's that load it without a lock.

    Python has no store with release semantics, without which aarch64 may show them the word first.
    """
    frame = np.array([0, 0, place.ctypes.data, word], np.int64)
    _run(frame.ctypes.data)


def _fail(frame: int, number: int, status: int, given: int) -> int:
    """Return the error of a function that returned a status."""
    message = "a call failed"
    with suppress(Exception):
        kind, _, algorithm, *more = json.loads(_attributes(frame)[0])["functions"][number]
        if kind == "kernel":
            name = ctypes.c_char_p()
            driver.library().cuGetErrorName(status, ctypes.byref(name))
            message = f"{algorithm}: cuLaunchKernelEx of {more[0]} failed with {(name.value or b'').decode()}"
        elif kind == "code":
            by, said = more[0].get(str(status), "the code for the CPU"), "an exception"
            with suppress(Exception):
                cls, arguments, _ = pickle.loads(ctypes.string_at(_word(given), _word(given, 1)))
                said = ": ".join([cls.__name__, *map(str, arguments)])
            message = f"{algorithm}: {by} raised {said}"
        else:
            message = f"{algorithm}: {resolved.errors.pop(status, 'failed')}"
    return _error(frame, message, _INTERNAL)
