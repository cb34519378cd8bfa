"""Signals, forks and the end of the process, at any moment of a build or a call on the CPU."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from support.common import in_threads
from support.faults import in_child
from support.interrupts import each_interrupt

import cupar
from cupar import OpKind

N = 1 << 17


pytestmark = pytest.mark.usefixtures("ctrl_c")


@pytest.mark.parametrize("n", [100, N])
def test_no_interrupt_of_a_call_is_lost_and_calls_go_on(n, monkeypatch):
    """By one thread, and by two, whose locks an interrupt must not leave taken."""
    monkeypatch.setattr("cupar._cpu.threads.cores", lambda: 2)
    items, total = np.ones(n), np.zeros(1)
    reduction = cupar.reduce_into(items, total, OpKind.PLUS, 0.0, cc="cpu")

    def call():
        reduction.run(items, total, n, 0.0)

    def check():
        total[0] = 0
        call()
        assert total[0] == n

    check()
    gc.collect()  # what other tests have left: one in a destructor of theirs is lost
    gc.disable()
    try:
        assert each_interrupt(call, check) > 50
    finally:
        gc.enable()


def copied():
    items, out = np.arange(9.0), np.zeros(5)
    places = np.array([4, 0]), np.array([7, 2]), np.array([2, 0])
    return (
        cupar.segmented_copy(items, out, *places, cc="cpu"),
        (items, out, 2, *places),
        [out],
        [0, 1, 4, 5, 6],
    )


def ranked():
    rows, out = np.array([[3, 9, 1], [7, 5, 6]]), np.zeros(2, int)
    search = cupar.segmented_nth_element(rows, out, cc="cpu")
    return search, (rows, out, None, 1, 6, 2, None, None, None), [out], [3, 6]


def counted_between_levels():
    samples, counts, levels = np.array([0.5, 2, 2, np.nan, 9]), np.zeros(2, int), np.array([0.0, 1, 3])
    histogram = cupar.histogram_range(samples, counts, 3, levels, 5, cc="cpu")
    return histogram, (samples, counts, 3, levels, 5), [counts], [1, 2]


def united():
    a, b, out, count = np.array([1, 2, 2, 5]), np.array([2, 3]), np.zeros(5, int), np.zeros(1, int)
    union = cupar.set_union(a, None, b, None, out, None, count, cc="cpu")
    return union, (a, None, 4, b, None, 2, out, None, count), [out, count], [1, 2, 2, 3, 5, 5]


def found():
    items, place = np.array([-1.0, 2, -3, 4]), np.zeros(1, int)
    search = cupar.find_if(items, place, lambda a: a > 1.5, cc="cpu")
    return search, (items, place, 4), [place], [1]


def summed_by_index():
    items, places, sums = np.arange(6.0), np.array([0, 1, 0, -1, 9, 1]), np.zeros(2)
    reduction = cupar.reduce_by_index(items, places, sums, OpKind.PLUS, 0.0, cc="cpu")
    return reduction, (items, places, sums, 6, 2, 0.0), [sums], [2, 6]


def damage(algorithm, cache, directory):
    """Copy an algorithm's entry to another cache with a bit changed, and forget what is in memory."""
    (file,) = cache.rglob(f"{algorithm.build.key}.cupar")
    entry = bytearray(file.read_bytes())
    entry[-len(entry) // 3] ^= 4
    copy = directory / file.relative_to(cache)
    copy.parent.mkdir(mode=0o700, parents=True)
    copy.write_bytes(entry)
    cupar.cache.clear(disk=False)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("made", [copied, ranked, counted_between_levels, united, found, summed_by_index])
def test_interrupts_forks_threads_and_damaged_entries_leave_algorithms_that_work(
    made, session_cache, tmp_path, monkeypatch
):
    algorithm, arguments, outputs, expected = made()
    named = {"segment_size": 3} if made is ranked else {}

    def call():
        algorithm.run(*arguments, **named)

    def check():
        for each in outputs:
            each[...] = 0
        call()
        assert np.concatenate(outputs).tolist() == expected

    check()
    damage(algorithm, session_cache, tmp_path / "cache")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.warns(cupar.CacheWarning, match="damaged"):
        algorithm, arguments, outputs, expected = made()
    assert algorithm.build.origin == "built"
    check()
    gc.collect()
    gc.disable()
    try:
        assert each_interrupt(call, check) > 5
    finally:
        gc.enable()
    assert in_child(check) == 0
    assert in_threads(4, call) == [None] * 4  # the same results, in the same arrays
    check()


def test_an_interrupt_of_a_build_is_not_lost(empty_cache, monkeypatch):
    """LLVM calls Python back, and what that raises gets lost: no interrupt arrives there."""
    from cupar._cpu import build

    usual, places = build._library, []

    def interrupted(*template):
        @ctypes.CFUNCTYPE(None)
        def called_back():
            places.append(threading.current_thread())
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # where Python would raise, were it this thread's
                pass

        called_back()
        return usual(*template)

    items, total = np.arange(10.0), np.zeros(1)

    def ask():
        return cupar.reduce_into(items, total, lambda a, b: a + b * 1.25 - b * 0.25, 0.0, cc="cpu")

    monkeypatch.setattr(build, "_library", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask()
    (thread,) = places
    thread.join()
    monkeypatch.setattr(build, "_library", usual)
    ask().run(items, total, 10, 0.0)
    assert total[0] == 45


def test_no_destructor_of_a_compiler_is_left_to_the_main_thread(empty_cache, monkeypatch):
    """Where an interrupt would be lost in it, at any time after the build."""
    from llvmlite.binding import ffi

    cupar.reduce_into("f8", "f8", lambda a, b: a * 0.25 + b * 0.75, 0.0, cc="cpu")  # what numba makes once
    usual, here = ffi.ObjectRef.__del__, []

    def noted(self):
        if self._owned and threading.current_thread() is threading.main_thread():
            here.append(self)
        usual(self)

    gc.collect()
    gc.disable()
    monkeypatch.setattr(ffi.ObjectRef, "__del__", noted)
    try:
        cupar.reduce_into("f8", "f8", lambda a, b: a * 0.5 + b * 0.5, 0.0, cc="cpu")
        gc.collect()
    finally:
        gc.enable()
    assert not here


def test_an_interrupt_of_a_build_ends_it_at_the_next_step(empty_cache, monkeypatch):
    from cupar._jobs import threads

    went_on, done = threading.Event(), []

    def work():
        os.kill(os.getpid(), signal.SIGINT)
        went_on.wait(60)
        try:
            with threads.step():
                done.append("step")
        except threads.AbandonedError:
            done.append("abandoned")
            raise

    before = {*threading.enumerate()}
    with pytest.raises(KeyboardInterrupt):
        threads.off_main_thread(work)
    (thread,) = {*threading.enumerate()} - before
    went_on.set()
    thread.join()
    assert done == ["abandoned"]


def test_a_module_that_is_imported_builds_in_its_own_thread(tmp_path, monkeypatch):
    """Another one, which imports the module, too, would wait for this one for ever."""
    (tmp_path / "building.py").write_text(
        "import threading\nfrom cupar._jobs import threads\n"
        "thread = threads.off_main_thread(threading.get_ident)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import building

    assert building.thread == threading.get_ident()
    from cupar._jobs.threads import off_main_thread

    assert off_main_thread(threading.get_ident) != threading.get_ident()


# --- Forks -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_child_of_a_process_that_compiles_loads_what_was_built():
    """LLVM has one lock, and another thread holds it when the process forks."""
    from llvmlite.binding import ffi

    items, total = np.arange(10.0), np.zeros(1)
    built = cupar.reduce_into(items, total, lambda a, b: a + b, 0.0, cc="cpu")
    built._built.code._function = None  # other tests may have called it
    ahead = cupar.reduce_into(items, total, OpKind.MAXIMUM, 0.0, cc="cpu", wait=False)
    assert ahead.ready()
    compiles = threading.Event()

    def acquired():
        if threading.current_thread() is thread:
            compiles.set()
            time.sleep(0.2)

    def released():
        pass

    thread = threading.Thread(target=ffi.lib.LLVMPY_GetVersionInfo)
    ffi.register_lock_callback(acquired, released)
    try:
        thread.start()
        compiles.wait()
        child = os.fork()
        if not child:
            signal.alarm(30)
            built.run(items, total, 10, 0.0)
            first = total[0]
            ahead.run(items, total, 10, 0.0)
            os._exit(0 if (first, total[0]) == (45, 9) else 1)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
    finally:
        ffi.unregister_lock_callback(acquired, released)


# --- The end of the process ------------------------------------------------------------------------------

END = """
import atexit, threading, time
import numpy as np
N = 1 << 18
items = np.ones(N)

def use(name, k, wait=True):
    import cupar
    total = np.zeros(1)
    reduction = cupar.reduce_into(items, total, lambda a, b: a + b * k, 0.0, cc="cpu", wait=wait)
    for _ in range(2):
        reduction.run(items, total, N, 0.0)
    print(name, total[0] == N, flush=True)

def outlive():
    threading.main_thread().join()
    use("thread", 1.0)

atexit.register(use, "first registered", 1.0, False)
import cupar
atexit.register(use, "last registered", 1.0)
use("program", 1.0)
threading.Thread(target=outlive).start()
"""


@pytest.mark.parametrize("cores", [1, 2])
def test_calls_and_builds_go_on_until_the_very_end(tmp_path, cores):
    """In threads that outlive the main one, and in what runs as the process ends."""
    pinned = f"import os\nos.sched_setaffinity(0, [*os.sched_getaffinity(0)][:{cores}])\n"
    done = subprocess.run(
        [sys.executable, "-c", pinned + END],
        env={**os.environ, "CUPAR_CACHE": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    said = ["program True", "thread True", "last registered True", "first registered True"]
    assert done.stdout.splitlines() == said


INTERRUPTED = """
import atexit, os, signal, threading
from cupar._jobs import threads

left = threading.Event()

def work():
    os.kill(os.getpid(), signal.SIGINT)
    left.wait()
    exec("0")  # as numba does

atexit.register(lambda: [left.set(), *(each.join() for each in threading.enumerate() if each.daemon)])
{interrupted}
"""
CAUGHT = """
try:
    threads.off_main_thread(work)
except KeyboardInterrupt:
    pass
"""


@pytest.mark.parametrize(
    "interrupted", ["threads.off_main_thread(work)", CAUGHT], ids=["not caught", "caught"]
)
def test_a_process_dies_by_the_interrupt_that_ends_it(interrupted):
    """Whatever its threads execute meanwhile: or a shell would begin the next command."""
    program = INTERRUPTED.format(interrupted=interrupted)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    is_caught = interrupted == CAUGHT
    assert done.returncode == (0 if is_caught else -signal.SIGINT)
    assert done.stderr.endswith("" if is_caught else "KeyboardInterrupt\n")
