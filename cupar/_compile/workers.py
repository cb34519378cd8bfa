"""Helper processes that compile CCCL's kernels, so that several are compiled at the same time.

NVRTC lets go of the interpreter's lock, and yet compiles one program at a time in a process, whatever the
number of threads. So the first thread that needs it uses it here, and those that come meanwhile have a helper
process use it. nvJitLink needs none of this: it links in as many threads as there are.

A helper is a fresh interpreter that knows nothing of the user's program: not its modules, its threads or its
GPU. It is sent what the kernels depend on, types and names and no function of the user's but as LTO-IR, and
sends back what NVRTC made of it, as if it had been made here. It must have this process's versions of all
that the kernels depend on. Whatever goes wrong, from an interpreter that cannot be started to a program that
does not compile, the thread that asked then does itself what it asked for, and so gets the true error.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base import background, fork, log
from .._base.background import cores
from .._base.words import counted
from . import cccl, toolchain

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from subprocess import Popen

__all__ = ["Pool", "compile_native", "serve"]

_MOST = 8  # helpers, since each takes 500 MB for NVRTC
_START_SECONDS = 60.0
_COMPILE_SECONDS = 300.0  # the longest takes 16 on a machine that has nothing else to do
_IDLE_SECONDS = 10.0
_ORPHAN_SECONDS = 1.0


def compile_native(native: str, arguments: Sequence[Any], cc: int) -> Any:
    """Run NVRTC on an algorithm's kernels as `_cccl.compile_native` does, here or in a helper process."""
    with _pool.seat() as helper:
        blob = None if helper is None else helper.compile(native, arguments, cc)
        if blob is not None:
            try:
                return cccl.deserialize(native, blob)
            except Exception as error:  # whatever the bindings raise
                _explain(f"{type(error).__name__}: {error}")
        if background.is_abandoned():
            raise background.AbandonedError("not compiled, as the process ends")
        return cccl.compile_native(native, arguments, cc)


# --- In this process -----------------------------------------------------------------------------------


class Pool:
    """Places to compile in: one in this process, the others in helpers, which start when there is work.

    Parameters
    ----------
    limit : int
        How many helpers there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._is_used_here = False
        self._helpers: set[_Helper] = set()
        self._idle: list[_Helper] = []
        self._timer: threading.Timer | None = None

    @contextmanager
    def seat(self) -> Iterator[_Helper | None]:
        """Wait for a place for the block: a helper, None for this process."""
        helper = self._take()
        try:
            yield helper
        finally:
            self._give_back(helper)

    def _take(self) -> _Helper | None:
        with self._changed:
            while True:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if not self._is_used_here:
                    self._is_used_here = True
                    return None
                if self._idle:
                    return self._idle.pop()
                if len(self._helpers) < self._limit:
                    helper = _Helper()
                    self._helpers.add(helper)
                    return helper
                self._changed.wait()

    def _give_back(self, helper: _Helper | None) -> None:
        with self._changed:
            if helper is None:
                self._is_used_here = False
            elif helper.is_lost:
                self._helpers.discard(helper)
                # Its place goes with it, so that what goes wrong each time does so a few times only. Where
                # one did not even start, no other would.
                self._limit = self._limit - 1 if helper.has_started else 0
            else:
                self._idle.append(helper)
            if not self._is_used_here and len(self._idle) == len(self._helpers):
                self._wait_for_work()
            self._changed.notify()
        if helper is not None and helper.is_lost:
            helper.end()

    def _wait_for_work(self) -> None:
        """End the helpers if there is nothing to do for some seconds."""
        if not self._idle:
            return
        self._timer = threading.Timer(_IDLE_SECONDS, self._rest)
        self._timer.daemon = True
        with suppress(RuntimeError):  # when the interpreter ends, which ends them, too
            self._timer.start()

    def _rest(self) -> None:
        with self._changed:
            if self._is_used_here or len(self._idle) < len(self._helpers):
                return
            idle, self._idle = self._idle, []
            self._helpers.clear()
        for helper in idle:
            helper.end()

    def close(self) -> None:
        """End all helpers, whatever they do; there will be no others."""
        with self._changed:
            self._limit = 0
            helpers = list(self._helpers)
        for helper in helpers:
            helper.kill()


class _Helper:
    """A helper process, as this process sees it. It starts when it is first used."""

    def __init__(self) -> None:
        self.has_started = False
        self.is_lost = False
        self._process: Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def compile(self, native: str, arguments: Sequence[Any], cc: int) -> bytes | None:
        """Return what NVRTC makes, serialised; None if it has to be made here."""
        answer = b""
        try:
            request = cccl.pack(native, arguments, cc)
            try:
                pipe = self._pipe or self._start()
                pipe.send_bytes(request)
                answer = _received(pipe, _COMPILE_SECONDS)
            except BaseException:  # an interrupt, too: it would answer what nobody asks any more
                self.is_lost = True
                raise
        except Exception as error:  # whatever it is, here it may work
            _explain(f"{type(error).__name__}: {error}")
        return answer or None

    def _start(self) -> Connection:
        """Start it, as a process of its own session: what a terminal sends is for this process."""
        import subprocess
        from multiprocessing.connection import Pipe

        interpreter = _interpreter()
        ours, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [interpreter, "-I", "-c", _PROGRAM, str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # compilers print what is wrong; they will again, here
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            )
        self._pipe = ours
        libraries = [str(toolchain.library_path(name)) for name in _LIBRARIES]
        ours.send([*(each for each in sys.path if isinstance(each, str)), str(Path(__file__).parents[2])])
        ours.send((os.getpid(), libraries, _surroundings()))
        _received(ours, _START_SECONDS)
        self.has_started = True
        return ours

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """End the process, which no thread is using."""
        self.kill()
        if self._pipe is not None:
            self._pipe.close()


def _received(pipe: Connection, seconds: float) -> bytes:
    if not pipe.poll(seconds):
        raise TimeoutError(f"it has not answered for {counted(seconds, 'second')}")
    return pipe.recv_bytes()


def _interpreter() -> str:
    """Return the path of Python's interpreter; where Python is embedded, it may be that of any program."""
    path = sys.executable or ""
    if hasattr(sys, "frozen") or not Path(path).name.startswith("python"):
        raise FileNotFoundError(f"sys.executable is {path!r}, which is no Python interpreter")
    return path


def _explain(why: str) -> None:
    log.debug("compiled without a helper process: %s", why)


def _pool_for_this_machine() -> Pool:
    return Pool(min(cores() - 1, _MOST))


_pool = _pool_for_this_machine()


def _after_fork() -> None:
    global _pool
    fork.leak(_pool)  # the helpers are the parent's, as are the threads that they work for
    _pool = _pool_for_this_machine()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _close() -> None:
    background.abandon()  # or what helpers compiled in the background would be compiled here
    _pool.close()  # that of this process, which may have been forked from the one that registered this


# --- In a helper ---------------------------------------------------------------------------------------

_LIBRARIES = ("nvrtc", "nvJitLink")

# Isolated, and without the user's script: nothing of the user's is imported, but what is in `sys.path` is
# found as it is in the process that asks.
_PROGRAM = """
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from cupar._compile import workers as _workers
_workers.serve(pipe)
"""


def serve(pipe: Connection) -> None:
    """Compile what is asked for, until the process that asks is gone."""
    parent, libraries, expected = pipe.recv()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    for path in libraries:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)  # this very one, which PyTorch may have brought
    found = _surroundings()
    if found != expected:
        raise RuntimeError(f"a helper process has {found}, expected {expected}")
    cccl.bindings()
    pipe.send_bytes(b"ready")
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_compiled(pipe.recv_bytes()))
    os._exit(0)


def _compiled(request: bytes) -> bytes:
    """Return what NVRTC makes, nothing if it makes nothing of it."""
    with suppress(Exception):
        result: bytes = cccl.compile_native(*cccl.unpack(request)).serialize()
        return result
    return b""


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, even in the middle of a build.

    The pipe might not tell: processes that were forked from the parent have its end of it open. Nor would
    Linux's parent-death signal do: it is sent when the thread ends that started this process.
    """
    while os.getppid() == parent:
        time.sleep(_ORPHAN_SECONDS)
    os._exit(1)


def _surroundings() -> dict[str, Any]:
    """Return all that kernels depend on and that is not sent with a request."""
    from .. import __version__

    folders = [str(folder) for folder in toolchain.include_folders()]
    return {"cupar": __version__, "include": folders, **toolchain.template_versions()}
