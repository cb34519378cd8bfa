"""Where kernels are compiled: here, and in helper processes if several builds are made at the same time.

NVRTC releases the GIL but serialises compilations in a process: 16 reductions on two cores take 28 s in one
thread, 22 s in two, and 14 s in two processes. So the first thread that needs NVRTC uses it here, and those
that come meanwhile have a helper use it, which keeps their headers precompiled. nvJitLink needs none of this:
it links in as many threads as there are.

A helper must have this process's versions of all that builds depend on. It is sent no function of the user's
but as LTO-IR, except for `cupar build` (`_ahead.make`). Whatever goes wrong, from an interpreter that cannot
be started to a program that does not compile, the thread that asked then does itself what it asked for, and
so gets the true error.
"""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from .. import _cache
from .._base import fork, log
from .._jobs import threads
from .._jobs.helpers import Helper
from .._jobs.pool import Pool
from . import precompiled, toolchain

_MOST = 8  # helpers, since each takes 500 MB for NVRTC
_MOST_FINISHING = 4  # for work in the background
_COMPILE_SECONDS = 300.0  # the longest takes 16 on a machine that has nothing else to do
_LIBRARIES = ("nvrtc", "nvJitLink")


def compile_kernels(source: str, cc: int) -> bytes:
    """Compile the C++ of kernels to LTO-IR, here or in a helper process."""
    with _pool.seat() as helper:
        try:
            request = b"%d\n%s" % (cc, source.encode())
            if helper is not None and (
                ltoir := helper.call(f"{__name__}:kernels", request, _COMPILE_SECONDS)
            ):
                return ltoir
        except Exception as error:  # it may still work in this process
            log.debug("compiled without a helper process: %s: %s", type(error).__name__, error)
        if threads.is_abandoned():
            raise threads.AbandonedError("not compiled, as the process ends")
        return precompiled.compile_kernels(source, cc)


# --- Helpers -------------------------------------------------------------------------------------------


def helper(
    output: int | None = None, environment: Mapping[str, str] | None = None, finishes: bool = False
) -> Helper:
    """Return a helper process that can compile, not started; see `Helper`."""
    return Helper(_setup, output, environment, finishes)


def _setup() -> tuple[str, object]:
    libraries: list[str] = []
    with suppress(ImportError):  # a helper finds builds where there is nothing to compile with, too
        libraries = [str(toolchain.library_path(name)) for name in _LIBRARIES]
    return f"{__name__}:ready", (libraries, _surroundings())


def _pool_for_this_machine() -> Pool:
    return Pool(min(threads.cores() - 1, _MOST), helper, here=True)


def _finishing_pool_for_this_machine() -> Pool:
    """Return the pool of helpers that finish when this process ends, if there is a place to keep entries."""
    return Pool(
        min(max(1, threads.cores() // 2), _MOST_FINISHING), lambda: helper(finishes=_cache.disk() is not None)
    )


_pool = _pool_for_this_machine()
_finishing_pool = _finishing_pool_for_this_machine()


def helper_of_own() -> AbstractContextManager[Helper | None]:
    """Wait for a helper of the block's own; None if no process can be started."""
    return _finishing_pool.seat()


@fork.in_child
def _after_fork() -> None:
    global _pool, _finishing_pool
    fork.leak((_pool, _finishing_pool))  # the helpers are the parent's, as are the threads that they work for
    _pool, _finishing_pool = _pool_for_this_machine(), _finishing_pool_for_this_machine()


@atexit.register
def _close() -> None:
    threads.abandon()  # or what helpers compiled in the background would be compiled here
    for pool in (_pool, _finishing_pool):  # those of this process, which may have been forked from another
        pool.close()


# --- In a helper ---------------------------------------------------------------------------------------


def ready(given: tuple[list[str], dict[str, Any]]) -> None:
    """Load the libraries of the process that asks, and raise RuntimeError if any version is another."""
    libraries, expected = given
    for path in libraries:
        toolchain.load_file(Path(path))  # this very one, which PyTorch may have brought
    found = _surroundings()
    if found != expected:
        raise RuntimeError(f"a helper process has {found}, expected {expected}")
    precompiled.keep_headers()


def kernels(request: bytes) -> bytes:
    """Return LTO-IR for a compute capability and the C++ of kernels, nothing if NVRTC makes nothing of it."""
    with suppress(Exception):
        cc, _, source = request.partition(b"\n")
        return precompiled.compile_kernels(source.decode(), int(cc))
    return b""


def _surroundings() -> dict[str, Any]:
    """Return all that kernels depend on and that is not sent with a request."""
    from .. import __version__

    folders: list[str] = []
    with suppress(ImportError):  # as above
        folders = [str(folder) for folder in toolchain.include_folders()]
    return {"cupar": __version__, "include": folders, **toolchain.template_versions()}
