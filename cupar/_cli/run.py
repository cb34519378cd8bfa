"""``cupar run``."""

from __future__ import annotations

import importlib.util
import runpy
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from types import TracebackType

from .command import FAULT, OK, Arguments, FailedError, Result, UsageError, argument, command
from .terminal import complain, output_left_alone


def _of_program(words: Sequence[str]) -> int:
    """Return how many words there are before the arguments of the program."""
    for place, word in enumerate(words, start=1):
        if word == "-m":
            return place + 1
        if not word.startswith("-") or word.startswith("-m"):
            return place
    return len(words)


@command("run", "run a program with cupar in place of cuda.compute", rest_after=_of_program)
@argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
@argument("script", nargs="?", help="a script, as python runs it")
@argument("--quiet", action="store_true", help="say nothing at the end")
def run(arguments: Arguments) -> Result:
    """Run a Python program that stays as it is, with cupar.compute in place of cuda.compute.

    What it, or a package that it uses, asks of cuda.compute is built once and kept in the cache. At the
    end, a line on standard error says what was built, what was found, and what that had cost. What
    follows the script or module are its arguments. Processes that it starts anew are left alone.

    Examples
    --------
    cupar run train.py --epochs 3
    cupar run -m pytest tests
    """
    from .._ahead import batch, watch
    from ..compute import _alias

    if (arguments.script is None) == (arguments.module is None):
        raise UsageError("run: name a script, or a module with -m")
    if arguments.script is not None and not Path(arguments.script).is_dir():
        Path(arguments.script).open("rb").close()  # to say now that it cannot be read
    _alias.replace()
    watcher = watch.Watcher()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as the program finds it
    with output_left_alone() if arguments.json else nullcontext(), batch.threads_waited_for():
        status = _run(arguments)
    summary = watcher.summary()

    def show() -> None:
        if not arguments.quiet:
            complain(str(summary))

    document = {
        "status": status,
        **vars(summary.stats),
        "seconds": round(summary.seconds, 4),
        "saved_seconds": round(summary.saved, 4),
    }
    return Result(document, show, status)


def _run(arguments: Arguments) -> int:
    """Run the program, and return its exit status; what ends it early is shown as Python does."""
    name, is_module = arguments.script or arguments.module, arguments.script is None
    sys.argv = [name, *arguments.rest]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path.cwd() if is_module else Path(name).absolute().parent)
    try:
        if not is_module:
            runpy.run_path(name, run_name="__main__")
        elif importlib.util.find_spec(name) is None:
            raise FailedError(f"no module named {name}")
        else:
            runpy.run_module(name, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or OK
        sys.stderr.write(f"{end.code}\n")
        return FAULT
    except FailedError:
        raise
    except Exception as error:
        error.__traceback__ = _from_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        return FAULT
    return OK


def _from_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without what runs the program."""
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    return trace
