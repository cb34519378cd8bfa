"""The side of `program` that runs inside the program which a command started.

It begins before the program does. What it imports then, beside what python does, the program could not have
in another form: no NumPy, whose threads a program may set first, and nothing that may have a file of its name
beside the program. So all else waits for the first question to a factory, and for the end.
"""

from __future__ import annotations

import atexit
import os
import sys
from types import TracebackType
from typing import Any

import cupar

from . import STARTED, STARTED_PATH


def begin() -> None:
    """Install the observer that the environment asks for, and restore the user's environment."""
    purpose, *words = os.environ.pop(STARTED).split()
    path = os.environ.pop(STARTED_PATH, None)
    if path is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = path
    if purpose == "run":
        _run(*words)
    else:
        _ask(*words)


# --- cupar run


def _run(told: str) -> None:
    """Put cupar.compute in the place of cuda.compute, and tell at the end what was asked for.

    The summary goes to standard error if `told` is ``said``, nowhere if it is ``quiet``, else as JSON to the
    file of that number.
    """
    from . import alias

    alias.replace()
    if told == "quiet":
        return
    watchers: list[Any] = []

    def observe() -> Any:
        from .._ahead import record, watch

        watchers.append(watch.Watcher(record.from_environment()))
        return watchers[-1]

    cupar._observing = observe
    if told != "said":
        os.set_inheritable(int(told), False)
    # The first function is the last that is called, when the program's threads and own functions are done.
    atexit.register(_tell, told, watchers, os.getpid())


def _tell(told: str, watchers: list[Any], process: int) -> None:
    if os.getpid() != process:  # one that was forked
        return
    if told != "said":
        import json

        if watchers:
            os.write(int(told), json.dumps(watchers[-1].summary().document()).encode())
        return
    from .._base.words import NOTHING_ASKED
    from .terminal import complain

    complain(str(watchers[-1].summary()) if watchers else NOTHING_ASKED)


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
