"""The side of `program` that runs inside the program which a command started.

It begins before the program does. What it imports then, beside what python does, the program could not have
in another form: no NumPy, whose threads a program may set first, and nothing that may have a file of its name
beside the program. So all else waits for the first question to a factory, and for the end.
"""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

import cupar

from . import CHILDREN, STARTED, STARTED_PATH


def begin() -> None:
    """Install the observer that the environment asks for, and restore the user's environment.

    Where new processes of the program are to begin in this way, too, the environment stays.
    """
    _, purpose, *words = os.environ[STARTED].split("\n")
    path = os.environ.pop(STARTED_PATH, None)
    if CHILDREN not in words:
        del os.environ[STARTED]
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path
    if purpose == "run":
        _run(*words)
    else:
        _ask(*words)


# --- cupar run


def _run(first: str, _reach: str, folder: str) -> None:
    """Put cupar.compute in the place of cuda.compute, and count what is asked for, in a file of `folder`.

    At its end, the process of number `first` tells what all have asked for. Without a folder nothing is told.
    """
    from . import alias

    alias.replace()
    if not folder:
        return
    watchers: list[Any] = []

    def observe() -> Any:
        from .._ahead import record, watch

        watchers.append(watch.Watcher(record.from_environment(), folder))
        return watchers[-1]

    cupar._observing = observe
    # The first function is the last that is called, when the program's threads and own functions are done.
    atexit.register(_tell, watchers, folder, int(first))


def _tell(watchers: list[Any], folder: str, first: int) -> None:
    """Write what this process has asked for; in the first one, say what all have."""
    for each in watchers:
        each.tell()
    if os.getpid() != first:  # one that was started or forked
        return
    from .._base.words import NOTHING_ASKED
    from .terminal import complain

    try:
        names = os.listdir(folder)  # noqa: PTH208 - nothing else needs pathlib here
    except OSError:
        return
    said = NOTHING_ASKED
    if names:
        from .._ahead import watch

        said = str(watch.summed(folder))
    complain(said)
    for name in names:
        with suppress(OSError):
            os.unlink(f"{folder}/{name}")  # noqa: PTH108
    with suppress(OSError):  # a process that still runs has written to it
        os.rmdir(folder)  # noqa: PTH106


# --- cupar build and cupar tune


def _ask(file: str, ccs: str = "") -> None:
    """Have factories build nothing, and write their requests to the file with a descriptor."""
    number, script = int(file), sys.argv[0]
    os.set_inheritable(number, False)
    environment = dict(os.environ)

    def observe() -> Any:
        from .._ahead import record, reporting

        reporter = reporting.RequestReporter(
            number, [int(each) for each in ccs.split(",") if each], environment
        )
        return record.from_environment(reporter)

    def tell_error(cls: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, Exception):
            from .._ahead import reporting

            reporting.tell_failure(number, script, error, has_cc=bool(ccs))
        elif not isinstance(error, KeyboardInterrupt):  # which the command has had, too
            sys.__excepthook__(cls, error, trace)

    cupar._observing = observe
    sys.excepthook = tell_error
