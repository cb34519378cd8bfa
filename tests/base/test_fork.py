"""What a forked child forgets, and in which order."""

import gc
import os
import threading

import pytest

from cupar._base import fork

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
