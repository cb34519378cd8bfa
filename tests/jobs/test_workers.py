"""Builds at the same time: the queue, the helper processes, and what may go wrong with these."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import cupar
from cupar._base.errors import AbandonedError
from cupar._compile import nvrtc, precompiled, python_to_ltoir, workers
from cupar._jobs import helpers
from cupar._jobs import pool as pools
from cupar._jobs.queue import Queue
from cupar.operators import OpKind

CC = 90
MANY = 60  # seconds: far more than anything here takes


def until(condition):
    """Wait for something that another thread or process does."""
    end = time.monotonic() + MANY
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.fixture(autouse=True)
def real_helpers(compilers, monkeypatch):
    """Helpers that compile by themselves, which takes as long as it does."""
    monkeypatch.setattr(helpers, "_PROGRAM", compilers.real[helpers, "_PROGRAM"])


# --- The queue -----------------------------------------------------------------------------------------


@pytest.fixture
def queue():
    return Queue(2)


def test_what_waits_for_others_keeps_no_thread(queue):
    go, begun = threading.Event(), []

    def first():
        go.wait(MANY)
        return "first"

    same = [queue.submit("a", first), *(queue.submit("a", lambda: begun.append("a")) for _ in range(5))]
    assert queue.submit("b", lambda: "other").result(MANY) == "other"  # in the other one of two threads
    assert begun == []
    go.set()
    assert same[0].result(MANY) == "first"
    assert [each.result(MANY) for each in same[1:]] == [None] * 5
    assert begun == ["a"] * 5


def test_those_that_waited_work_at_the_same_time(queue):
    meeting = threading.Barrier(2)
    queue.submit("a", lambda: None).result(MANY)
    both = [queue.submit("a", lambda: meeting.wait(MANY)) for _ in range(2)]
    assert sorted(each.result(MANY) for each in both) == [0, 1]


def test_a_failure_is_for_who_waits_and_stops_nobody_else(queue):
    go = threading.Event()

    def fails():
        go.wait(MANY)
        raise KeyError("its own")

    failing, other = queue.submit("a", fails), queue.submit("a", lambda: 1)
    go.set()
    with pytest.raises(KeyError, match="its own"):
        failing.result(MANY)
    assert other.result(MANY) == 1


def test_what_has_nothing_in_common_begins_at_once(queue):
    meeting = threading.Barrier(2)
    both = [queue.submit(None, lambda: meeting.wait(MANY)) for _ in range(2)]
    assert sorted(each.result(MANY) for each in both) == [0, 1]


def test_what_is_dropped_is_cancelled_and_what_has_begun_is_not(queue):
    begun, go = threading.Barrier(3), threading.Event()

    def work():
        begun.wait(MANY)
        assert go.wait(MANY)
        return "done"

    futures = [queue.submit(None, work) for _ in range(5)]
    begun.wait(MANY)
    queue.drop()
    go.set()
    assert [each.cancelled() for each in futures] == [False, False, True, True, True]
    assert [each.result(MANY) for each in futures[:2]] == ["done", "done"]
    assert queue.submit(None, lambda: "more").result(MANY) == "more"


# --- Places to compile in ------------------------------------------------------------------------------


@pytest.fixture
def pool(monkeypatch):
    """Return a function that sets the number of helpers; all end with the test."""
    made = []

    def limited(limit):
        made.append(pools.Pool(limit, workers.helper, here=True))
        monkeypatch.setattr(workers, "_pool", made[-1])
        return made[-1]

    yield limited
    for each in made:
        each.close()


def test_the_first_compiles_here_the_next_in_helpers_and_the_others_wait(pool):
    places = pool(2)
    first, second, third, fourth = (places.seat() for _ in range(4))
    assert first.__enter__() is None
    helper, other = second.__enter__(), third.__enter__()
    assert None not in (helper, other)
    assert helper is not other
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(fourth.__enter__)
        assert not found.done()
        second.__exit__(None, None, None)
        assert found.result(MANY) is helper
    first.__exit__(None, None, None)
    with places.seat() as here:
        assert here is None


def test_one_core_means_no_helper(pool):
    places = pool(0)
    first, second = places.seat(), places.seat()
    with ThreadPoolExecutor(1) as threads:
        assert first.__enter__() is None
        found = threads.submit(second.__enter__)
        assert not found.done()
        first.__exit__(None, None, None)
        assert found.result(MANY) is None


# --- What is sent --------------------------------------------------------------------------------------


def twice(a):
    return a + a


def less(a, b):
    return a % 7 < b % 7


# All that the algorithms give to the bindings; operators in Python, CCCL's own, those in iterators, and none.
ASKED = {
    "reduction": lambda: cupar.reduce_into("i4", "i8", less, np.zeros(1, "i8"), cc=CC),
    "reduction without an initial value": lambda: cupar.reduce_into("f4", "f4", OpKind.PLUS, None, cc=CC),
    "scan of complex numbers": lambda: cupar.inclusive_scan("c8", "c16", lambda a, b: a * b, cc=CC),
    "segments": lambda: cupar.segmented_reduce("f8", "f8", "i4", "i8", less, 0, cc=CC),
    "transform": lambda: cupar.unary_transform(cupar.TransformIterator("f2", twice), "f2", twice, cc=CC),
    "iterator with an operator, and CCCL's own": lambda: cupar.reduce_into(
        cupar.TransformIterator("f2", twice), "f2", OpKind.MAXIMUM, 0, cc=CC
    ),
    "segmented sort": lambda: cupar.segmented_sort(
        "i4", "i4", None, None, "i4", "i4", cupar.SortOrder.ASCENDING, cc=CC
    ),
    "unique": lambda: cupar.unique_by_key("i4", "f4", "i4", "f4", "i4", less, cc=CC),
    "histogram": lambda: cupar.histogram_even("f4", "i4", 11, 0.0, 1.0, 1000, cc=CC),
    "search": lambda: cupar.lower_bound("i4", "i4", "i8", cc=CC),
    "partition": lambda: cupar.three_way_partition("f4", "f4", "f4", "f4", "i8", twice, twice, cc=CC),
}


class CompiledError(Exception):
    """Ends a build where NVRTC would begin."""


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_what_is_compiled_can_be_sent(ask, empty_cache, monkeypatch):
    sources = []

    def compile_kernels(source, cc):
        sources.append((source, cc))
        raise CompiledError

    monkeypatch.setattr(precompiled, "compile_kernels", compile_kernels)
    monkeypatch.setattr(nvrtc, "compile_cpp", lambda *_: b"C++")
    monkeypatch.setattr(python_to_ltoir, "compile_operator", lambda *_: [b"code", b"more"])
    with pytest.raises(CompiledError):
        ask()
    asked = sources[0]
    assert workers.kernels(b"%d\n%s" % (asked[1], asked[0].encode())) == b""  # as it makes nothing of it
    assert sources == [asked, asked]


# --- What may go wrong ---------------------------------------------------------------------------------

HERE = b"here"
SOURCE = "// C++\n"
STARTS = helpers._PROGRAM.partition("from cupar")[0]
READY = STARTS + "pipe.recv(); pipe.send_bytes(b'ready'); import os, time, signal\n"


@pytest.fixture
def started(monkeypatch):
    """Return the processes that are started."""
    found = []
    start = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda *a, **named: found.append(start(*a, **named)) or found[-1]
    )
    return found


@pytest.fixture
def helped(pool, monkeypatch):
    """Return a function that compiles in a helper, which runs some program, while this process compiles."""
    places = pool(3)
    monkeypatch.setattr(precompiled, "compile_kernels", lambda *_: HERE)

    def compile_with(program, compile=workers.compile_kernels, arguments=(SOURCE, CC)):
        monkeypatch.setattr(helpers, "_PROGRAM", program)
        with places.seat() as here:
            assert here is None
            return compile(*arguments), places

    return compile_with


ECHO = READY + "while True: pipe.send_bytes(pipe.recv_bytes() + str(os.getpid()).encode())"


def test_what_a_helper_made_is_used(helped):
    code, places = helped(ECHO)
    assert code.startswith(b"cupar._compile.workers:kernels\n90\n// C++\n")
    assert helped(ECHO)[0] == code  # by the same process
    (helper,) = places.helpers
    assert os.getsid(helper.process.pid) == helper.process.pid  # what a terminal sends is not for it


@pytest.mark.parametrize(
    ("program", "left"),
    [
        ("syntax error", 0),
        ("import os; os._exit(3)", 0),
        (STARTS + "import time; time.sleep(1000)", 0),  # which is not waited for so long
        (READY + "os.kill(os.getpid(), signal.SIGKILL)", 2),
        (READY + "pipe.recv_bytes(); os.kill(os.getpid(), signal.SIGKILL)", 2),
        (READY + "pipe.recv_bytes(); os.kill(os.getpid(), signal.SIGSTOP)", 2),
    ],
)
def test_who_gets_nothing_from_a_helper_compiles_here(helped, started, monkeypatch, program, left):
    monkeypatch.setattr(helpers, "_START_SECONDS", 3)
    monkeypatch.setattr(workers, "_COMPILE_SECONDS", 3)
    made, places = helped(program)
    assert made is HERE
    assert places.limit == left
    assert not places.helpers
    assert [process.returncode is None for process in started] == [False]  # nor is it left as a zombie


def test_what_does_not_compile_costs_no_helper_and_prints_nothing(helped, capfd):
    made, places = helped(
        READY + "while pipe.recv_bytes(): print('out'); os.write(2, b'err'); pipe.send_bytes(b'')"
    )
    assert made is HERE
    assert (places.limit, len(places.idle)) == (3, 1)
    assert capfd.readouterr() == ("", "")


def test_a_helper_with_other_versions_is_not_used(helped, monkeypatch):
    found = workers._surroundings()
    monkeypatch.setattr(workers, "_surroundings", lambda: {**found, "nvrtc": "another"})
    made, places = helped(helpers._PROGRAM)
    assert made is HERE
    assert places.limit == 0


@pytest.mark.parametrize("executable", ["", None, "/usr/bin/photo-editor"])
def test_a_program_that_embeds_python_is_not_started(helped, monkeypatch, executable):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert helped("")[0] is HERE


def test_an_interrupt_ends_the_helper_that_was_asked(helped, monkeypatch):
    def interrupted(pipe, seconds):
        if seconds == workers._COMPILE_SECONDS:
            raise KeyboardInterrupt
        return pipe.recv_bytes()

    monkeypatch.setattr(helpers, "_received", interrupted)
    with pytest.raises(KeyboardInterrupt):
        helped(READY + "pipe.recv_bytes(); pipe.send_bytes(b'late'); time.sleep(1000)")
    assert not workers._pool.helpers


def test_helpers_end_when_there_is_nothing_to_do(helped, started, monkeypatch):
    monkeypatch.setattr(pools, "_IDLE_SECONDS", 0.05)
    made, places = helped(READY + "pipe.send_bytes(pipe.recv_bytes()); pipe.recv_bytes()")
    assert made is not HERE
    until(lambda: started[0].returncode is not None)
    assert not places.helpers


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_leaves_its_parents_helpers_alone(helped):
    _, places = helped(READY + "while True: pipe.send_bytes(pipe.recv_bytes())")
    (helper,) = places.helpers
    child = os.fork()
    if not child:
        mine = workers._pool is not places and not workers._pool.helpers
        workers._close()
        os._exit(0 if mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert helper.process.poll() is None
    assert helped("")[0] is not HERE  # which did not start another


# --- Crews ---------------------------------------------------------------------------------------------


@pytest.fixture
def crew(monkeypatch):
    """Return a function that makes a crew of so many helpers, which run some program."""
    made = []

    def of(size, program):
        monkeypatch.setattr(helpers, "_PROGRAM", program)
        made.append(pools.Crew(size, workers.helper))
        return made[-1]

    yield of
    for each in made:
        each.close(0)


def asked(helper):
    return helper.call("any:function", b"")


def test_a_crew_replaces_each_helper_that_is_lost(crew, started):
    few = crew(1, READY + "pipe.recv_bytes(); os.kill(os.getpid(), signal.SIGKILL)")
    for future in [few.submit(None, asked) for _ in range(3)]:
        with pytest.raises(helpers.HelperError, match="SIGKILL"):
            future.result(MANY)
    assert len(started) == 3
    few.close(MANY)
    assert [each.returncode for each in started] == [-signal.SIGKILL] * 3


def test_a_crew_that_is_closed_begins_nothing_and_waits_for_what_it_asked(crew, started):
    few, after = crew(2, READY + "pipe.recv_bytes(); time.sleep(1000)"), []

    def ask(helper):
        try:
            return asked(helper)
        finally:
            after.append("unlocked")

    futures = [few.submit(None, ask) for _ in range(4)]
    until(lambda: [each.has_started for each in few._pool.helpers] == [True, True])
    few.close(MANY)
    assert after == ["unlocked"] * 2
    assert [each.cancelled() for each in futures] == [False, False, True, True]
    assert [each.returncode for each in started] == [-signal.SIGTERM] * 2
    with pytest.raises(AbandonedError, match="no caller waits"):
        few.submit(None, ask).result(MANY)


# --- Real builds ---------------------------------------------------------------------------------------


def add(a, b):
    return a + 2 * b


def transforms(**more):
    """Ask for builds of three templates, which are quick to compile, two for one of them."""
    return [
        cupar.unary_transform("i4", "i4", twice, cc=CC, **more),
        cupar.unary_transform("i4", "i4", lambda a: 3 * a, cc=CC, **more),
        cupar.unary_transform("f4", "f4", twice, cc=CC, **more),
        cupar.binary_transform("i4", "i4", "i4", add, cc=CC, **more),
    ]


def reductions(**more):
    return [
        cupar.reduce_into("i4", "i4", add, 0, cc=CC, **more),
        cupar.reduce_into("i4", "i4", lambda a, b: a * b, 0, cc=CC, **more),
        *(cupar.reduce_into(dtype, dtype, add, 0, cc=CC, **more) for dtype in ("i8", "f4", "f2")),
    ]


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_kernels_compiled_in_helpers_are_the_same(empty_cache, pool, monkeypatch):
    places = pool(1)
    with (
        places.seat()
    ):  # so that the helper compiles all of them, the third and fourth with headers that it kept
        at_once = reductions(wait=False)
        assert all(each.ready(MANY) for each in at_once)
    assert [helper.has_started for helper in places.helpers] == [True]
    assert places.limit == 1
    origins = [each.build.origin for each in at_once]
    assert (origins.count("built"), origins.count("linked")) == (4, 1)

    pool(0)
    monkeypatch.setenv("CUPAR_CACHE_DIR", f"{empty_cache} of another")
    cupar.cache.clear(disk=False)
    one_by_one = reductions()
    assert [each.build.key for each in one_by_one] == [each.build.key for each in at_once]
    assert [each.cubin() for each in one_by_one] == [each.cubin() for each in at_once]


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_builds_in_helpers_are_the_same(empty_cache, pool, monkeypatch):
    there = []
    call = helpers.Helper.call
    monkeypatch.setattr(helpers.Helper, "call", lambda *given: there.append(given) or call(*given))
    places = pool(2)
    with places.seat():
        at_once = transforms(wait=False)
        assert all(each.ready(MANY) for each in at_once)
    assert len(there) == 3
    assert all(helper.has_started for helper in places.helpers)
    origins = [each.build.origin for each in at_once]
    assert (origins.count("built"), origins.count("linked")) == (3, 1)

    pool(0)
    monkeypatch.setenv("CUPAR_CACHE_DIR", f"{empty_cache} of another")
    cupar.cache.clear(disk=False)
    one_by_one = transforms()
    assert [each.build.key for each in one_by_one] == [each.build.key for each in at_once]
    assert [each.cubin() for each in one_by_one] == [each.cubin() for each in at_once]


def test_without_a_directory_too(empty_cache, pool, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    places = pool(1)
    with places.seat():
        built = cupar.unary_transform("i8", "i8", twice, cc=CC, wait=False)
        assert built.ready(MANY)
    assert built.build.origin == "built"
    assert [helper.has_started for helper in places.helpers] == [True]
    assert places.limit == 1


def test_a_helper_that_is_killed_costs_time_alone(empty_cache, pool):
    places = pool(1)
    with places.seat():
        built = cupar.unary_transform("i8", "i8", twice, cc=CC, wait=False)
        until(lambda: any(helper.has_started for helper in list(places.helpers)))
        (helper,) = places.helpers
        os.kill(helper.process.pid, signal.SIGKILL)
        assert built.ready(MANY)
    assert built.build.origin == "built"
    assert (places.limit, places.helpers) == (0, set())


# Compiles here for so long as it takes a helper to start and to compile.
SCRIPT = """
    import sys, time
    with open(sys.argv[1], "a") as file:
        print("ran", file=file)
    import cupar
    from cupar._compile import workers as _workers
    from cupar._jobs.pool import Pool
    _workers._pool = places = Pool(1, _workers.helper, here=True)
    seat = places.seat()
    seat.__enter__()
    built = cupar.unary_transform("i8", "i8", lambda a: a + a, cc=90, wait=False)
    while not any(helper.has_started for helper in list(places.helpers)):
        time.sleep(0.01)
    print("has started", flush=True)
"""


def processes(mark):
    """Return the processes that have this in their environment, zombies not among them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_no_process_is_left_when_the_one_that_asked(how, empty_cache, tmp_path):
    mark = uuid.uuid4().hex
    wait = "time.sleep(1000)" if how == "is killed" else "input()"
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT) + wait)
    with subprocess.Popen(
        [sys.executable, path, tmp_path / "ran"],
        env={**os.environ, "MARK": mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout.readline() == "has started\n"
        assert len(processes(mark.encode())) == 2
        if how == "is killed":
            script.kill()
        out, err = script.communicate("\n", timeout=MANY)
    assert (out, err) == ("", "")
    assert script.returncode == (-signal.SIGKILL if how == "is killed" else 0)
    until(lambda: not processes(mark.encode()))
    assert (tmp_path / "ran").read_text() == "ran\n"  # no helper imports the user's script
