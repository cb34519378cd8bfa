"""The line on builds that callers wait for: when it is there, what it says, and that it goes."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import types
from contextlib import contextmanager
from pathlib import Path

import pytest

import cupar
from cupar import _build
from cupar._base import progress
from cupar._compile import workers
from cupar._jobs import threads
from cupar._store import locks

ROOT = Path(cupar.__file__).parents[1]


class Place:
    """Keeps the drawn lines."""

    def __init__(self, columns=200):
        self.columns, self.lines, self.shown = columns, [], ""
        self.where = 2
        self.was_drawn = threading.Event()

    def width(self):
        return self.columns

    def draw(self, line):
        self.lines.append(line)
        self.shown = line
        self.was_drawn.set()

    def clear(self):
        self.shown = ""


@pytest.fixture
def place(monkeypatch):
    """Where the line is drawn, at once and all the time."""
    found = Place()
    monkeypatch.setattr(progress, "_line", None)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_TICK", 0.001)
    monkeypatch.setattr(progress, "_place", lambda context: found)
    yield found
    assert not progress._tasks
    assert not found.shown


def drawn(place, *texts, seconds=60):
    """Wait until a line has each of these texts."""
    end = time.monotonic() + seconds
    while not all(text in place.shown for text in texts):
        assert time.monotonic() < end, place.lines[-3:]
        time.sleep(0.001)
    return place.shown


# --- What it says


def test_a_build_is_named_with_its_stages(place):
    def make():
        with progress.stage("template"):
            assert "(template)" in drawn(place, "(template)")
            threads.begin(operator).result()
            assert "operator" not in drawn(place, "(template)")
        return 7

    def operator():  # in a thread that has the build's context
        with progress.stage("operator"):
            assert drawn(place, "template, operator").startswith(
                "cupar: building reduce_into for sm_90 (template, operator), "
            )

    assert progress.building("reduce_into for sm_90", make) == 7
    assert not place.shown


def test_stages_of_a_real_build(place, empty_cache, monkeypatch):
    link = _build._link

    def slow(*arguments):
        drawn(place, "building reduce_into for sm_89 (link)")
        return link(*arguments)

    monkeypatch.setattr(_build, "_link", slow)
    cupar.reduce_into("u2", "i8", lambda a, b: a ^ b, 0, cc=89)  # of which no test has compiled a template
    seen = " ".join(place.lines)
    assert "template" in seen
    assert "operator" in seen


def test_a_build_for_the_cpu_and_a_kernel(place, empty_cache):
    cupar.reduce_into("i4", "i4", lambda a, b: a ^ b, 0, cc="cpu")
    assert "building reduce_into for the CPU (compile)" in " ".join(place.lines)

    @cupar.jit
    def kernel(x):
        x[0] = 1

    kernel.compile("void(float32[::1])", cc=90)
    assert "building kernel kernel for sm_90 (compile)" in " ".join(place.lines)


def test_what_is_found_is_not_told(place, session_cache):
    for _ in range(2):
        cupar.cache.clear(disk=False)
        place.lines.clear()
        cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc="cpu")
    assert not place.lines


def test_one_line_for_several(place):
    go, builds = threading.Barrier(4), "abc"
    threads = [
        threading.Thread(target=progress.building, args=(each, lambda: go.wait(60) and None))
        for each in builds
    ]
    for thread in threads:
        thread.start()
    line = drawn(place, "a", "b,", ", c,")
    assert sorted(line.removeprefix("cupar: building ").split(", ")[:3]) == ["a", "b", "c"]
    go.wait(60)
    for thread in threads:
        thread.join()


@contextmanager
def going_on(*calls):
    """Have threads in calls that begin one after another, until the block ends."""
    end, threads = threading.Event(), []
    for call in calls:
        begun = threading.Event()

        def wait(begun=begun):
            begun.set()
            end.wait(60)

        threads.append(threading.Thread(target=call, args=(wait,)))
        threads[-1].start()
        begun.wait(60)
    try:
        yield
    finally:
        end.set()
        for each in threads:
            each.join()


def reduction(wait):
    def make():
        with progress.stage("template"):
            wait()

    progress.building("reduce_into for sm_90", make)


def sort(wait):
    progress.building("merge_sort for sm_90", wait)


def elsewhere(wait):
    progress.waiting("another process", wait)


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (
            200,
            "cupar: building reduce_into for sm_90 (template), merge_sort for sm_90, waiting for another "
            "process, ",
        ),
        (100, "cupar: building reduce_into for sm_90 (template) and 1 more, waiting for another process, "),
        (80, "cupar: building 2 more, waiting for another process, "),
        (10, "cupar: bu"),
    ],
)
def test_the_line_fits(place, columns, shown):
    place.columns = columns
    with going_on(reduction, sort, progress.waited_for, elsewhere):
        line = drawn(place, shown)
    assert line.startswith(shown) and len(line) < columns
    assert columns == 10 or re.fullmatch(r"\d\.\d s", line.removeprefix(shown))


def test_a_wait_alone(place):
    with going_on(elsewhere):
        assert drawn(place, "cupar: waiting for another process, ")
    place.lines.clear()
    with going_on(progress.waited_for):
        time.sleep(0.05)
    assert not place.lines


# --- When it is there


def test_not_before_callers_have_waited(place, monkeypatch):
    monkeypatch.setattr(progress, "_PATIENCE", 2.0)
    progress.building("a", lambda: time.sleep(0.05))
    assert not place.lines


def test_a_pause_begins_no_new_second_and_a_long_one_does(place, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 60.0)
    progress.building("a", lambda: drawn(place, "a"))
    progress.building("b", lambda: drawn(place, "b,", "1 done"))
    monkeypatch.setattr(progress, "_PAUSE", 0.0)
    assert "done" not in progress.building("c", lambda: drawn(place, "c"))


def test_what_nobody_waits_for_is_not_told(place, empty_cache, monkeypatch):
    go, begun, link = threading.Event(), threading.Event(), _build._link

    def slow(*arguments):
        begun.set()
        go.wait(60)
        return link(*arguments)

    monkeypatch.setattr(_build, "_link", slow)
    pending = cupar.reduce_into("i4", "i4", cupar.OpKind.BIT_XOR, 0, cc=90, wait=False)
    assert begun.wait(60)
    assert not place.lines
    assert not pending.ready(timeout=0.5)
    assert "building reduce_into for sm_90 (link)" in " ".join(place.lines)
    assert not place.shown
    place.lines.clear()
    place.was_drawn.clear()
    threading.Thread(target=lambda: place.was_drawn.wait(60) and go.set()).start()
    assert pending.build.origin == "built"
    assert place.lines


def test_another_process_that_is_waited_for(place, tmp_path):
    file = tmp_path / "lock"
    held = locks.acquire(file, 0)
    assert held is not None
    threading.Thread(target=lambda: place.was_drawn.wait(60) and locks.release(file, held)).start()
    found = locks.acquire(file, 60)
    assert found is not None
    locks.release(file, found)
    assert place.lines[0].startswith("cupar: waiting for another process, ")


def test_another_process_is_a_stage_of_a_build(place):
    def make():
        progress.waiting("another process", lambda: drawn(place, "a (waiting for another process)"))

    progress.building("a", make)


# --- That it goes


def test_it_goes_with_an_error(place):
    def fail():
        drawn(place, "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        progress.building("a", fail)
    assert not place.shown


@pytest.mark.parametrize("where", ["_settle", "_begin"])
def test_it_goes_although_an_interrupt_comes_anywhere(place, monkeypatch, where):
    """The line may be there for a moment, until its thread sees that nothing is built."""
    function, main = getattr(progress, where), threading.current_thread()

    def interrupted(*arguments):
        if threading.current_thread() is main:
            if where == "_begin":
                function(*arguments)
            raise KeyboardInterrupt
        return function(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(progress, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            progress.building("a", lambda: drawn(place, "a"))
        end = time.monotonic() + 60
        while place.shown or progress._tasks:
            assert time.monotonic() < end
            time.sleep(0.001)


def test_a_place_that_fails_fails_no_build(place, monkeypatch):
    def fail(*_):
        place.was_drawn.set()
        raise OSError("gone")

    monkeypatch.setattr(place, "draw", fail)
    monkeypatch.setattr(place, "clear", fail)
    assert progress.building("a", lambda: place.was_drawn.wait(60)) is True


def test_helpers_draw_nothing():
    assert workers.helper()._environment["CUPAR_PROGRESS"] == "0"


# --- Notebooks


class Publisher:
    def __init__(self):
        self.messages = []
        self.parent_header = {"msg_id": "cell 1"}

    def publish(self, data, metadata, *, transient, update):
        self.messages.append((data, transient["display_id"], update))


@pytest.fixture
def kernel(monkeypatch):
    """What a notebook's kernel has."""
    shell = types.SimpleNamespace(kernel=object(), display_pub=Publisher())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    for name in ("CI", "CUPAR_PROGRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(progress, "_line", None)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_TICK", 0.001)
    return shell


def drawn_by(publisher, count):
    end = time.monotonic() + 60
    while len(publisher.messages) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_notebook_has_one_display_that_is_empty_at_last(kernel):
    messages = kernel.display_pub.messages

    progress.building("a<b", lambda: drawn_by(kernel.display_pub, 3))
    assert len({identity for _, identity, _ in messages}) == 1
    assert [update for *_, update in messages] == [False] + [True] * (len(messages) - 1)
    assert "cupar: building a<b, " in messages[0][0]["text/plain"]
    assert "building a&lt;b, " in messages[0][0]["text/html"]
    assert messages[-1][0] == {"text/plain": "", "text/html": ""}


def test_each_cell_has_its_own(kernel, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", 60.0)
    messages = kernel.display_pub.messages
    for cell in ("cell 1", "cell 1", "cell 2"):
        kernel.display_pub.parent_header = {"msg_id": cell}
        before = len(messages)
        progress.building(cell, lambda: drawn_by(kernel.display_pub, before + 1))
    identities = [identity for _, identity, _ in messages]
    assert len(set(identities)) == 2
    texts = {identity: data["text/plain"] for data, identity, _ in messages if data["text/plain"]}
    assert "1 done" in texts[identities[0]]
    assert "building cell 2" in texts[identities[-1]]
    assert "done" not in texts[identities[-1]]


@pytest.mark.parametrize("value", ["0", "off", " False", "NO"])
def test_it_can_be_turned_off(kernel, monkeypatch, value):
    monkeypatch.setenv("CUPAR_PROGRESS", value)
    progress.building("a", lambda: time.sleep(0.02))
    assert not kernel.display_pub.messages


def test_ipython_without_a_kernel_is_a_terminal_or_nothing(kernel, monkeypatch):
    kernel.kernel = None
    monkeypatch.setattr(sys, "stderr", None)
    progress.building("a", lambda: time.sleep(0.02))
    assert not kernel.display_pub.messages


# --- Terminals

PROGRAM = """
import fcntl, os, sys, termios, threading, time
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from cupar._base import progress
progress._PATIENCE, progress._TICK = 0.0, 0.01
def until(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""


def on_terminal(tmp_path, program, until=b"cupar: building a", **environment):
    """Run a program on a terminal of its own until it has drawn, then let it go on; return its output."""
    ours, theirs = pty.openpty()
    usual = {key: value for key, value in os.environ.items() if key not in ("CI", "CUPAR_PROGRESS")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        start_new_session=True,
        env={**usual, "TERM": "xterm", "PYTHONPATH": str(ROOT), **environment},
    )
    os.close(theirs)
    output, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if until is not None and until in output:
            (tmp_path / "go").touch()
        if select.select([ours], [], [], 0.1)[0]:
            try:
                output += os.read(ours, 1 << 16)
            except OSError:  # it has ended
                break
    process.kill()
    os.close(ours)
    return output.decode(), process.wait()


def test_a_terminal(tmp_path):
    program = "print('x', end='', flush=True); progress.building('a', lambda: until('go')); print('y')"
    output, status = on_terminal(tmp_path, program)
    assert status == 0
    before, _, after = output.partition("\x1b")
    assert before == "x"
    *_, last = after.split("cupar: building a, ")
    # What it says, back to where the cursor was, all below erased, and what is printed next.
    assert last.partition("\x1b")[2] == "8\x1b[Jy\r\n"


def test_an_interrupt_on_a_terminal(tmp_path):
    program = """
import signal
signal.signal(signal.SIGUSR1, signal.default_int_handler)
def make():
    until('go')
    os.kill(os.getpid(), signal.SIGUSR1)
    time.sleep(60)
progress.building('a', make)
"""
    output, status = on_terminal(tmp_path, program)
    assert status == -signal.SIGINT
    *_, last = output.split("cupar: building a, ")
    assert "\x1b8\x1b[JTraceback" in last


def test_a_forked_child_draws_none(tmp_path):
    program = """
def make():
    until('go')
    if not os.fork():
        progress.building('b', lambda: time.sleep(0.1))
        os._exit(0)
    os.wait()
progress.building('a', make)
"""
    output, status = on_terminal(tmp_path, program)
    assert status == 0
    assert "building b" not in output


QUIET = "progress.building('a', lambda: time.sleep(0.1)); print('done')"


@pytest.mark.parametrize("environment", [{"CUPAR_PROGRESS": "0"}, {"CI": "true"}, {"TERM": "dumb"}])
def test_where_nobody_wants_it(tmp_path, environment):
    assert on_terminal(tmp_path, QUIET, None, **environment) == ("done\r\n", 0)


def test_not_where_standard_error_is_no_terminal(tmp_path):
    for before in ("import io; sys.stderr = io.StringIO()", "os.dup2(os.open('log', 65), 2)"):
        assert on_terminal(tmp_path, f"{before}\n{QUIET}", None) == ("done\r\n", 0)
    assert (tmp_path / "log").read_bytes() == b""


def test_not_in_a_shells_background(tmp_path):
    program = f"""
signal = __import__("signal")
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
if not os.fork():
    os.setpgid(0, 0)
    os.execv(sys.executable, [sys.executable, "-c", {PROGRAM.replace("fcntl.ioctl", "#")!r} + {QUIET!r}])
os.wait()
"""
    assert on_terminal(tmp_path, program, None) == ("done\r\n", 0)
