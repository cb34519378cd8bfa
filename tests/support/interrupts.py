"""Ctrl-C wherever Python looks for signals: as a function begins, and as one of C's has returned."""

import signal
import sys
from itertools import count


def each_interrupt(work, check, within=""):
    """Interrupt `work` at the first such place, at the next, …, until it gets through.

    Each time it must raise KeyboardInterrupt, and `check` is called after that. Return how many there were.
    Only places in files are taken whose path contains `within`: other packages lose interrupts of their own.
    """
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    for place in count():
        if not _is_interrupted(work, place, within):
            return place
        check()
    raise AssertionError


def _is_interrupted(work, place, within):
    passed, where, before = 0, "", sys.getprofile()

    # By profiling and not by tracing: what that raises after a call is of the call, as a signal's is, and not
    # of the next instruction, which may be behind the block of a `with`.
    def look(frame, event, _):
        nonlocal passed, where
        if event in ("call", "c_return") and within in frame.f_code.co_filename:
            passed += 1
            if passed > place:
                where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(look)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    assert not where, f"lost at {where}"
    return False
