"""Builds in the background, preloading, and functions that are recognised as a kind."""

import builtins
import gc
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
from support.common import context, pretend

import cupar
from cupar import _build
from cupar._call import algorithm as _algorithm
from cupar._ir.resolve import resolve
from cupar._jobs import threads
from cupar._jobs.queue import Queue
from cupar._obtain import produce
from cupar._store.disk import Disk
from cupar.operators import OpKind

CC = 90
INT, FLOAT, BOOL = np.dtype("i4"), np.dtype("f4"), np.dtype(bool)


def reduction(op, **more):
    return cupar.reduce_into("i4", "i4", op, np.zeros(1, "i4"), cc=CC, **more)


def test_a_factory_need_not_wait(empty_cache, monkeypatch):
    go = threading.Event()
    link = _build.link

    def slow(*arguments):
        go.wait(60)
        return link(*arguments)

    monkeypatch.setattr(_build, "link", slow)
    pending = reduction(OpKind.BIT_XOR, wait=False)
    try:
        assert "is being built" in repr(pending)
        assert not pending.ready(timeout=0.05)
    finally:
        go.set()
    assert pending.ready()
    assert pending.build.origin == "built"
    assert pending.cubin().startswith(b"\x7fELF")
    assert "BIT_XOR" in repr(pending)
    assert reduction(OpKind.BIT_XOR).build.key == pending.build.key
    assert reduction(OpKind.BIT_XOR, wait=False).build.origin == "memory"


def test_many_are_built_at_once_and_each_once(empty_cache):
    kinds = [OpKind.PLUS, OpKind.MULTIPLIES, OpKind.PLUS, OpKind.MULTIPLIES]
    pending = [reduction(kind, wait=False) for kind in kinds]
    assert all(each.ready() for each in pending)
    origins = sorted(each.build.origin for each in pending)
    assert origins.count("built") == 2
    assert len({each.build.key for each in pending}) == 2


def test_what_the_factory_would_raise_is_raised_by_who_waits(empty_cache):
    pending = reduction(lambda a, b: a.nothing + b, wait=False)
    for wait in (pending.ready, lambda: pending.build, pending.cubin):
        with pytest.raises(TypeError, match="^op: numba.cuda cannot compile"):
            wait()
    with pytest.raises(TypeError, match="^d_in: "):
        cupar.reduce_into(object(), "i4", OpKind.PLUS, 0, cc=CC, wait=False)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pending.nothing


def test_preload_takes_algorithms(monkeypatch):
    loaded = []

    def load(self):
        loaded.append(self)

    monkeypatch.setattr(_algorithm.Algorithm, "load", load)
    pretend(monkeypatch, context(cc=CC))
    algorithm = reduction(OpKind.PLUS)
    cupar.preload(algorithm, algorithm)
    assert loaded == [algorithm, algorithm]
    with pytest.raises(TypeError, match="^what: expected algorithm objects and paths of recorded lists, got"):
        cupar.preload(algorithm, OpKind.PLUS)
    assert len(loaded) == 2


@pytest.mark.usefixtures("older_are_frozen")
def test_what_is_built_keeps_nothing_of_the_users(empty_cache):
    def ask():
        op = lambda a, b: a + b * 3
        return reduction(op, wait=False), weakref.ref(op)

    pending, op = ask()
    assert pending.ready()
    cupar.cache.clear(disk=False)
    gc.collect()
    assert op() is None
    assert pending.ready()
    assert pending.build.origin == "built"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pending.nothing


def test_many_threads_wait_for_one(empty_cache):
    pending = reduction(lambda a, b: a + b * 5, wait=False)
    barrier, found = threading.Barrier(8), []

    def work():
        barrier.wait()
        found.append((pending.ready(), pending.build.key))
        assert pending.cubin()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


END = """
import sys, threading
import numpy as np, cupar
from cupar import _build

began = threading.Event()
template = _build.template

def counted(*arguments):
    print("begun", flush=True)
    began.set()
    found = template(*arguments)
    print("ended", flush=True)
    return found

_build.template = counted
pending = [
    cupar.reduce_into(t, t, lambda a, b: a + b * k, np.zeros(1, t), cc=90, wait=False)
    for t in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8") for k in (2, 3)
]
began.wait()
sys.exit(3)
"""


def test_the_end_of_the_process_waits_for_no_build_but_for_the_step_at_work(tmp_path):
    """And does so without a crash: compilers at work when the process ends would bring one."""
    done = subprocess.run(
        [sys.executable, "-c", END],
        env={**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    begun = done.stdout.count("begun")  # of two threads, on one line perhaps
    assert 1 <= begun < 10  # of the templates; some may have ended before all were asked for
    disk = Disk(tmp_path / "cache", 1 << 30)
    assert all(disk.load(key) is not None for key, *_ in disk.entries())


def test_what_is_in_the_queue_at_the_end_says_so(monkeypatch):
    go = threading.Event()
    queue = Queue(1)

    def work():
        go.wait(60)
        with threads.step():
            return "made"

    futures = [queue.submit(number, work) for number in range(3)]
    monkeypatch.setattr(threads, "_is_ending", True)
    go.set()
    for future in futures:
        with pytest.raises(threads.AbandonedError, match="as the process ends"):
            future.result(60)
    with threads.step():  # of who waits for it
        pass


def test_without_threads_the_caller_does_the_work(monkeypatch):
    def fail(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads.Thread, "start", fail)
    queue = Queue()
    assert queue.submit("a", lambda: 1).result(0) == 1
    assert queue.submit("a", lambda: 2).result(0) == 2


# --- Functions that are a kind -----------------------------------------------------------------------------


def added(left, right):
    """Say what it does."""
    return right + left


def annotated(a: int, b: int) -> int:
    return a + b


K = 3


def recognised(op, dtype):
    """Return the kind that a scan takes a function for."""
    return resolve(op, (dtype, dtype), dtype, recognise=True).kind


@pytest.mark.parametrize(
    ("op", "dtype", "kind"),
    [
        (lambda x, y: x + y, FLOAT, OpKind.PLUS),
        (added, FLOAT, OpKind.PLUS),
        (annotated, INT, OpKind.PLUS),
        (lambda x, y: x * y, INT, OpKind.MULTIPLIES),
        (lambda x, y: y & x, INT, OpKind.BIT_AND),
        (lambda x, y: x if x < y else y, INT, OpKind.MINIMUM),
        (lambda x, y: y if x <= y else x, INT, OpKind.MAXIMUM),
        (lambda x, y: max(x, y), INT, OpKind.MAXIMUM),  # noqa: PLW0108
        (lambda x, y: y < x, FLOAT, OpKind.GREATER),
    ],
)
def test_what_is_exactly_a_kind(op, dtype, kind):
    assert recognised(op, dtype) is kind


@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        (lambda x, y: x - y, INT),
        (lambda x, y: x + x, INT),
        (lambda x, y: x + y + K, INT),
        (lambda x, y: x + y + 0, FLOAT),
        (lambda x, y, z=1: x + y, INT),
        (lambda x, y: x if x < y else y, FLOAT),  # what it makes of a NaN depends on where that stands
        (lambda x, y: min(x, y), FLOAT),  # noqa: PLW0108
        (lambda x, y: x & y, FLOAT),
        (lambda x, y: x + y, np.dtype("f2")),
        (lambda x, y: x + y, np.dtype("c8")),
        (lambda x, y: x < y, BOOL),
    ],
)
def test_what_is_not(op, dtype):
    assert recognised(op, dtype) is None


def test_a_min_of_the_users_is_not_the_builtin():
    namespace = {"min": builtins.max}
    exec("op = lambda a, b: min(a, b)", namespace)
    assert recognised(namespace["op"], INT) is None


@pytest.mark.slow
def test_scans_and_merge_sorts_use_it():
    scan = cupar.inclusive_scan("f4", "f4", lambda a, b: b + a, cc=CC)
    assert scan.build.key == cupar.inclusive_scan("f4", "f4", OpKind.PLUS, cc=CC).build.key
    sort = cupar.merge_sort("i4", None, "i4", None, lambda a, b: b > a, cc=CC)
    assert sort.build.key == cupar.merge_sort("i4", None, "i4", None, OpKind.LESS, cc=CC).build.key


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_forked_during_a_build_says_so_and_does_not_hang(empty_cache, monkeypatch):
    """It has the compilers' locks as the building thread held them."""

    def ask(dtype):
        return cupar.reduce_into(dtype, dtype, cupar.OpKind.PLUS, np.zeros(1, dtype), cc=90)

    started, goes_on = threading.Event(), threading.Event()
    compile_now = produce._parts

    def slowly(*args):
        started.set()
        goes_on.wait(60)
        return compile_now(*args)

    monkeypatch.setattr(produce, "_parts", slowly)
    builder = threading.Thread(target=ask, args=("i4",))
    builder.start()
    started.wait(60)
    child = os.fork()
    if child == 0:
        try:
            ask("i8")
            os._exit(1)
        except cupar.BuildError as error:
            os._exit(7 if "forked while another thread was building" in str(error) else 2)
        except BaseException:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    goes_on.set()
    builder.join()
    assert os.waitstatus_to_exitcode(status) == 7
