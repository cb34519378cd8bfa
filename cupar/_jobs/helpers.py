"""Helper processes, each of which runs one job after another.

A helper is a fresh interpreter that knows nothing of the user's program: not its modules, its threads or its
GPU. It is sent the name of a function and an argument, both as bytes, and sends back what the function
returns. Its caller says how to prepare it, as by loading libraries.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .._base.words import counted

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from subprocess import Popen

__all__ = ["Helper", "HelperError", "is_orphan", "serve"]

_START_SECONDS = 60.0
_FINISH_SECONDS = 300.0
_ORPHAN_SECONDS = 1.0


# --- In the process that asks --------------------------------------------------------------------------


class HelperError(RuntimeError):
    """A helper process ended without an answer."""


class Helper:
    """A helper process, as this process sees it. It starts when it is first used.

    `setup` is called then, and returns the name of a function that makes the helper ready, and its argument.
    Its output goes to a descriptor, or nowhere: compilers whose work is done again here print again what is
    wrong. Once `is_lost`, it is of no more use; unless it `has_started`, it was never able to work. If it
    `finishes`, it completes its job also if this process has ended, and then exits.
    """

    def __init__(
        self,
        setup: Callable[[], tuple[str, object]],
        output: int | None = None,
        environment: Mapping[str, str] | None = None,
        finishes: bool = False,
    ) -> None:
        self._setup = setup
        self.has_started = False
        self._finishes = finishes
        self.is_lost = False
        self._output = output
        self._environment = {"CUDA_VISIBLE_DEVICES": "", "CUPAR_PROGRESS": "0", **(environment or {})}
        self.process: Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._starting = threading.Lock()

    def call(self, function: str, argument: bytes, seconds: float | None = None) -> bytes:
        """Have it call a function, as in ``"package.module:function"``, that takes and returns bytes.

        Raises
        ------
        HelperError
            If the process ends, as when a compiler crashes.
        Exception
            Whatever else goes wrong. In any case the helper is lost.
        """
        try:
            pipe = self._pipe or self._start()
            # Also before it has started, so that it has this to finish if this process ends meanwhile.
            pipe.send_bytes(b"%s\n%s" % (function.encode(), argument))
            if not self.has_started:
                _received(pipe, _START_SECONDS)
                self.has_started = True
            return _received(pipe, seconds)
        except BaseException as error:  # an interrupt, too: its answer would be to an abandoned job
            self.is_lost = True
            if isinstance(error, (EOFError, ConnectionError)) and self.process is not None:
                how = self._end_of_process()
                if self.has_started:
                    raise HelperError(
                        f"the process that built it ended with {how}: a compiler crashed, or memory ran out"
                    ) from error
                raise RuntimeError(f"a helper process ended with {how} before it could work") from error
            raise

    def _start(self) -> Connection:
        """Start it, as a process of its own session: what a terminal sends is for this process."""
        import subprocess
        from multiprocessing.connection import Pipe

        interpreter = _interpreter()
        output = subprocess.DEVNULL if self._output is None else self._output
        ours, theirs = Pipe()
        with self._starting, theirs:
            if self.is_lost:
                raise RuntimeError("it was ended before it began")
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [interpreter, "-I", "-c", _PROGRAM, str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )
        self._pipe = ours
        ours.send([*(each for each in sys.path if isinstance(each, str)), str(Path(__file__).parents[2])])
        ours.send((os.getpid(), self._finishes, *self._setup()))
        return ours

    def _end_of_process(self) -> str:
        """Return how the process ended that closed its end of the pipe, as text."""
        import signal
        import subprocess

        assert self.process is not None
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.returncode or 0
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def terminate(self) -> None:
        """Let the process end as soon as it can: locks are released, half-written files removed."""
        with self._starting:
            self.is_lost = True
        if self.process is not None:
            self.process.terminate()

    def kill(self, grace: float = 0.0) -> None:
        """End the process after some seconds, whatever it does then."""
        import subprocess

        with self._starting:
            self.is_lost = True
        if self.process is not None:
            if grace:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(grace)
            self.process.kill()
            self.process.wait()

    def leave(self) -> bool:
        """Return whether this process may end without it: it finishes its job alone."""
        if self._finishes and self.process is not None:
            self.process.returncode = 0  # it is not waited for
        return self._finishes


def _received(pipe: Connection, seconds: float | None) -> bytes:
    if not pipe.poll(seconds):
        raise TimeoutError(f"it has not answered for {counted(seconds or 0, 'second')}")
    return pipe.recv_bytes()


def _interpreter() -> str:
    """Return the path of Python's interpreter; where Python is embedded, it may be that of any program."""
    path = sys.executable or ""
    if hasattr(sys, "frozen") or not Path(path).name.startswith("python"):
        raise FileNotFoundError(f"sys.executable is {path!r}, which is no Python interpreter")
    return path


# --- In a helper ---------------------------------------------------------------------------------------

# Isolated, and without the user's script: no user's module is imported, but `sys.path` is
# found as it is in the process that asks.
_PROGRAM = """
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
sys.path[:] = pipe.recv()
from cupar._jobs import helpers as _helpers
_helpers.serve(pipe)
"""


def serve(pipe: Connection) -> None:
    """Do the jobs that arrive, until the asking process has ended."""
    import pkgutil
    import signal

    global _parent
    _parent, finishes, ready, given = pipe.recv()
    _working.acquire()  # for the first job, which is on its way
    threading.Thread(target=_end_with, args=(_parent, finishes), daemon=True).start()
    pkgutil.resolve_name(ready)(given)
    signal.signal(signal.SIGTERM, _leave)
    pipe.send_bytes(b"ready")
    with suppress(EOFError, OSError, SystemExit):
        while True:
            function, _, argument = pipe.recv_bytes().partition(b"\n")
            if not _working.locked():
                _working.acquire()
            answer = pkgutil.resolve_name(function.decode())(argument)
            _working.release()
            pipe.send_bytes(answer)
    os._exit(0)


_parent: int | None = None
_working = threading.Lock()  # held while something that was asked for is done


def is_orphan() -> bool:
    """Whether the process for which this one works has ended."""
    return _parent is not None and os.getppid() != _parent


def _leave(*received: object) -> None:
    """Unwind, so that locks are released and half-written files removed."""
    sys.exit()


def _end_with(parent: int, finishes: bool) -> None:
    """End this process when its parent has ended, even during a build, unless it finishes builds.

    The pipe might not tell: processes that were forked from the parent have its end of it open. Nor would
    Linux's parent-death signal do: it is sent when the thread ends that started this process.
    """
    while os.getppid() == parent:
        time.sleep(_ORPHAN_SECONDS)
    if finishes:
        _working.acquire(timeout=_FINISH_SECONDS)
    os._exit(1)
