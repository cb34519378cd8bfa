"""What ranks are told if one of them has an error in the midst of a call, whatever they are."""

import os
import signal
import threading
import time
from unittest import mock

import numpy as np
from support import ranks

from cupar import distributed
from cupar._functions.calls import Work
from cupar.distributed import arrays

VICTIM = 1
STEPS = ("run", "copy", "temporary", "empty", "host", "put")  # what a rank does by itself
AGREED = "sort", "arrays"  # have steps whose errors all ranks agree on, and go on
NAMES = ["reduce", "scan", "runs", "select", "top", "segments", "scanned", "sort", "search", "arrays"]


def call(group, name):
    """Return a call of an algorithm made for a group, which `ranks.Checks` has, too: it is built once."""
    x, out, count = np.arange(40) % 7, np.zeros(40, "i8"), np.zeros(9, "i8")
    k, starts, ends = (np.arange(40) // 9).astype("i4"), np.array([0, 30, 80]), np.array([30, 70, 90])
    n, d, named, one = len(x) - group.rank, distributed, {"group": group}, np.zeros(1, "i8")
    last, segments = ranks.last_nonzero, (starts, ends)
    if name == "arrays":
        return lambda: arrays.sort(x[:n], **named)
    factory, given, arguments = {
        "reduce": (d.reduce_into, (x, one, last, None), (x, one, n)),
        "scan": (d.inclusive_scan, (x, out, ranks.plus), (x, out, n)),
        "runs": (d.reduce_by_key, (k, k, x, out, count, last), (k, k.copy(), x, out, count, n)),
        "select": (d.select, (x, out, count, ranks.is_large), (x, out, count, n)),
        "top": (d.top_k, (x, out, x, out), (x, out, x, out.copy(), n, 5)),
        "segments": (d.segmented_reduce, (x, out, *segments, last, 0), (x, out, n, 3, *segments, 0)),
        "scanned": (d.inclusive_segmented_scan, (x, out, *segments, last), (x, out, n, 3, *segments)),
        "sort": (d.radix_sort, (x, out, x, out), (x, out, x, out.copy(), n)),
        "search": (d.lower_bound, (x, x, out), (np.sort(x), n, x, 3, out)),
    }[name]
    if name in ("reduce", "segments"):
        named["commutative"] = False
    made = factory(*given, **named)
    return lambda: made.run(*arguments)


class Stage:
    """The steps of one thread, of which one fails."""

    def __init__(self, fails_at, error):
        self.here, self.seen, self.fails_at, self.error = threading.get_ident(), 0, fails_at, error

    def step(self, plain):
        def step(*given, **named):
            if threading.get_ident() == self.here:
                self.seen += 1
                if self.seen - 1 == self.fails_at:
                    raise self.error("a step has failed")
            return plain(*given, **named)

        return step

    def __enter__(self):
        self._patches = [mock.patch.object(Work, each, self.step(getattr(Work, each))) for each in STEPS]
        for each in self._patches:
            each.start()
        return self

    def __exit__(self, *error):
        for each in reversed(self._patches):
            each.stop()


def told(group, call):
    """Return what a rank is told in a call, or when it waits for the others after it."""
    try:
        call()
        group.synchronize()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def check(new_group, names, stages, error=MemoryError):
    """Have each algorithm fail on one rank in each of some stages; return how many failed.

    Stages are numbers of steps; of a rank that makes fewer, none fails, and neither does the call.
    """
    failed, group = 0, new_group()
    said = f"rank {VICTIM} raised {error.__name__}: a step has failed"
    for name in names:
        made = call(group, name)
        for stage in stages:
            if group.rank == VICTIM:
                with Stage(stage, error):
                    found = told(group, made)
                assert found in (f"{error.__name__}: a step has failed", "nothing"), found
            else:
                found = told(group, made)
                assert found == "nothing" or (found.startswith("GroupError: ") and said in found), found
            if found == "nothing":
                break
            failed += 1
            again = told(group, made)
            goes_on = again == "nothing" and name in AGREED
            assert goes_on or f"this group has failed ({said}); make a new one" in again, again
            group = new_group()
            made = call(group, name)
    group.synchronize()
    return failed


def given_otherwise(group, kind=ranks.Host):
    """Return what ranks are told in pairs of calls: to one of these, the last rank gives another value."""
    put, one, h = kind.put, 1 + group.rank // (group.size - 1), 7
    x, starts, ends, out = (put(np.array(each)) for each in (range(6), [0, 3], [3, 6], [0] * 6))
    named, d = {"group": group}, distributed
    total = d.reduce_into(x, out, ranks.plus, 0, **named)
    scan = d.exclusive_scan(x, out, ranks.plus, 0, **named)
    sums = d.segmented_reduce(x, out, starts, ends, ranks.plus, 0, **named)
    counts = d.histogram_even(x, out, h, 0, 6, 6, **named)
    search = d.lower_bound(x, x, out, **named)
    calls = (
        lambda n: total.run(x, out, 6, n),
        lambda n: scan.run(x, out, 6, n),
        lambda n: sums.run(x, out, 6, n, starts, ends, 0),
        lambda n: sums.run(x, out, 6, 2, starts, ends, n),
        lambda n: counts.run(x, out, h, 0, 6 * n, 6),
        lambda n: search.run(x, 6, x, n, out),
    )
    return [told(group, lambda: call(n)) for call in calls for n in (one, 1)]


def check_given_otherwise(found, later):
    """Check what all ranks were told; `later`: of what they compare only when they agree the next time."""
    size = len(found)
    others = ", ".join(map(str, range(size - 1)))
    assert all(each == found[0] for each in found) and {*found[0][1::2]} == {"nothing"}
    known = {0: "reduce_into", 1: "exclusive_scan"}
    names = "h_init", "h_init", "num_segments", "h_init", "upper level", "num_values"
    for i, (text, name) in enumerate(zip(found[0][::2], names, strict=True)):
        one, other = (6, 12) if name == "upper level" else (1, 2)
        what = f"{name} of an earlier {known[i]}" if later and i in known else name
        ranks_ = f"rank{'s' * (size > 2)} {others}"
        assert text == f"ValueError: ranks differ in {what}: {ranks_}: {one}; rank {size - 1}: {other}"


def interrupted(group, others_wait):
    """Return what ranks are told if one is interrupted as it waits; the others wait for that elsewhere."""
    if group.rank == VICTIM:
        talked = group._talked

        def interrupt():
            while group._talked == talked:  # before it waits, there is nothing to tell
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        found = told(group, group.synchronize)
        others_wait()
        return found
    others_wait()
    return told(group, group.synchronize)
