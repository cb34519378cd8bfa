"""What a forked child forgets, and in which order."""

import _thread
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest
from cachetools import LRUCache
from support.interrupts import each_interrupt

from cupar._base import fork
from cupar._base.bounded import Bounded

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


class Kept:
    def __init__(self, name, told):
        self.name, self.told = name, told
        fork.in_child(self.forget)

    def forget(self):
        self.told.append(self.name)


def in_child(check):
    """Whether a check is true in a child."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if check() else 1)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.usefixtures("older_are_frozen")
def test_objects_first_and_all_in_the_order_of_their_registration():
    told = []
    first, second, gone = (Kept(name, told) for name in ("first", "second", "gone"))
    fork.in_child(lambda: told.append("module"))
    del gone
    gc.collect()
    assert in_child(lambda: told == ["first", "second", "module"])
    assert not told
    assert in_child(lambda: in_child(lambda: told == ["first", "second", "module"] * 2))
    assert first.told is second.told


def test_a_lock_is_free_in_a_child():
    lock, taken, done = fork.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    assert not lock.acquire(blocking=False)
    assert in_child(lambda: lock.acquire(blocking=False))
    done.set()
    thread.join()


def test_an_interrupt_leaves_no_lock_taken(ctrl_c):
    lock = fork.Lock()

    def use():
        with lock:
            pass

    def check():
        free = []
        thread = threading.Thread(target=lambda: free.append(lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        assert free == [True]
        lock._renew()

    assert each_interrupt(use, check) > 0


def test_a_map_with_a_bound_is_empty_in_a_child():
    values = Bounded(partial(LRUCache, 2))
    for number in range(3):
        values[number] = str(number)
    assert [values.get(number) for number in range(3)] == [None, "1", "2"]
    assert in_child(lambda: len(values) == 0 and values.get(1, "none") == "none")
    assert len(values) == 2


def test_what_is_gone_is_not_kept_and_tells_nobody(ctrl_c, monkeypatch):
    """No callback runs as it goes, in which an interrupt would be lost."""
    monkeypatch.setattr(fork, "_many", 10)
    told, others = [], len(fork._methods)
    kept = Kept("kept", told)
    each_interrupt(lambda: Kept("gone", told), lambda: None)
    for _ in range(others + 100):
        Kept("gone", told)
    fork._drop_gone()
    assert len(fork._methods) <= others + 1
    assert in_child(lambda: told == ["kept"])
    assert kept.told is told


IMPORTED = """
import threading
threading.begun.set()
threading.may_go_on.wait()
whole = True
"""


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_fork_waits_for_what_builds_import_in_other_threads(is_waited_for, tmp_path, monkeypatch):
    """It would be locked in the child for ever; a program's own modules may take as long."""
    begun, may_go_on = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "begun", begun, raising=False)
    monkeypatch.setattr(threading, "may_go_on", may_go_on, raising=False)
    (tmp_path / "half_imported.py").write_text(IMPORTED)
    monkeypatch.syspath_prepend(tmp_path)
    if is_waited_for:
        monkeypatch.setattr(fork, "_IMPORTED", {"half_imported"})
    wait = fork._bootstrap._lock_unlock_module

    def waits(name):
        may_go_on.set()
        wait(name)

    thread = threading.Thread(target=importlib.import_module, args=["half_imported"])
    thread.start()
    begun.wait()
    monkeypatch.setattr(fork._bootstrap, "_lock_unlock_module", waits)

    def check():
        signal.alarm(30)
        if not is_waited_for:
            return not may_go_on.is_set()
        return importlib.import_module("half_imported").whole

    try:
        assert in_child(check)
    finally:
        may_go_on.set()
        thread.join()
        sys.modules.pop("half_imported", None)


LOGS = """
import os, signal, sys, threading

from cupar._base import fork

begun, forks = threading.Event(), threading.Event()
os.register_at_fork(before=forks.set)  # before `fork` waits, and after `logging` has taken its lock
threading.begun, threading.forks = begun, forks
assert "logging" not in sys.modules
import logging

fork._IMPORTED.add("logs")
thread = threading.Thread(target=__import__, args=["logs"])
thread.start()
begun.wait()
signal.alarm(30)
child = os.fork()
if not child:
    signal.alarm(30)
    import logs

    logging.getLogger("of a child")
    os._exit(7 if logs.whole else 1)
thread.join()
assert not logging._lock._is_owned()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
IMPORTED_WITH_LOGGER = """
import logging, threading
threading.begun.set()
threading.forks.wait()
logging.getLogger("of numba's")
whole = True
"""


def test_what_is_waited_for_may_log(tmp_path):
    """`logging` takes its lock before a fork, and first if it was imported after cupar."""
    (tmp_path / "logs.py").write_text(IMPORTED_WITH_LOGGER)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    assert subprocess.run([sys.executable, "-c", LOGS], env=environment, check=False).returncode == 7


LOCKS = (_thread.LockType, _thread.RLock, threading.Condition)
IN_NO_CHILD = {
    "cupar._jobs.helpers._working": "of a helper, which is a process of its own",
    "cupar._store.files._moving": "where there is no `pread`, and no fork",
}


def locks_of_the_process():
    """Return the locks that modules of cupar's have, or objects and containers in them, by name."""
    found, seen = {}, set()
    todo = [
        (f"{name}.{each}", value, 0)
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] == "cupar"
        for each, value in [*vars(module).items()]
        if not each.startswith("__")
    ]
    for name, value, depth in todo:
        if id(value) in seen or depth > 3:
            continue
        seen.add(id(value))
        if isinstance(value, LOCKS):
            found[name] = value
        elif isinstance(value, dict):
            todo += [(f"{name}[{i}]", each, depth + 1) for i, each in enumerate([*value.values()])]
        elif isinstance(value, (list, tuple, set)):
            todo += [(f"{name}[{i}]", each, depth + 1) for i, each in enumerate([*value])]
        elif type(value).__module__.partition(".")[0] == "cupar" and hasattr(value, "__dict__"):
            todo += [(f"{name}.{each}", one, depth + 1) for each, one in [*vars(value).items()]]
    return found


def test_locks_of_the_process_are_free_in_a_child():
    """All that there are: found, not listed. In the parent, another thread holds them."""
    for name in ("compute", "_fleet.sharded", "_compile.inference", "_compile.workers", "_cpu.compiling"):
        importlib.import_module(f"cupar.{name}")
    locks = {name: lock for name, lock in locks_of_the_process().items() if name not in IN_NO_CHILD}
    assert len(locks) > 15 and "cupar._jobs.queue.builds._lock" in locks
    held, done = threading.Event(), threading.Event()

    def hold():
        taken = [lock for lock in locks.values() if lock.acquire(timeout=5)]
        held.set()
        done.wait()
        for lock in reversed(taken):
            lock.release()

    def are_free():
        now = locks_of_the_process()
        taken = [name for name in locks if name in now and not now[name].acquire(blocking=False)]
        if taken:
            print(taken, file=sys.stderr, flush=True)
        return not taken

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(60)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if are_free() else 1)
        late = threading.Timer(60, os.kill, (pid, signal.SIGKILL))  # a child that waits for a lock
        late.start()
        assert os.waitpid(pid, 0)[1] == 0
        late.cancel()
    finally:
        done.set()
        thread.join()
