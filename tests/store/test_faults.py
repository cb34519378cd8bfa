"""The user's directory under faults: death, errors, interrupts and vanishing at every system call it makes.

Each fault may cost a build and a warning. It may not fail a call, serve what was not stored, lose an entry
that was there, block the next process, or leave something behind for good.
"""

import errno
import os
import resource
import shutil
import signal
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.faults import (
    HOUR,
    OPERATIONS,
    OTHERS,
    REMOVALS,
    SIZE,
    YEAR,
    at_call,
    at_line,
    caught,
    check_sound,
    descriptors,
    die,
    each_step,
    every_operation,
    files,
    get,
    in_child,
    isolate,
    jump,
    prepared,
    put_damaged,
)

from cupar._base.warnings import CacheWarning
from cupar._store import locks

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def steps(monkeypatch, tmp_path, request):
    every = request.config.getoption("all")

    def steps(operation, event="c_call", **turns):
        return each_step(operation, event, tmp_path, monkeypatch, every, **turns)

    return steps


# --- Death


@pytest.mark.slow
@every_operation
def test_death_at_every_call(operation, steps, monkeypatch):
    for root, number in steps(operation):

        def work():
            warnings.simplefilter("ignore", CacheWarning)
            with at_call(number, die):
                operation.run()

        assert in_child(work) == signal.SIGKILL
        check_sound(monkeypatch, operation, root)


@pytest.mark.slow
def test_death_within_a_write(monkeypatch, tmp_path):
    """The system kills who passes the limit on a file's size, after it has written up to there."""
    operation = OPERATIONS["build"]
    for size in range(0, SIZE, 23):

        def work(size=size):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            operation.run()

        with prepared(operation, tmp_path / "cache", monkeypatch) as root:
            assert in_child(work) == signal.SIGXFSZ
            (half,) = files(root / "v1" / "tmp")
            assert half.stat().st_size == size
            check_sound(monkeypatch, operation, root)


# --- Errors


NOT_AFTER = {"open", "scandir", "fstat", "stat", "lstat"}  # nothing is done that an error could follow


REFUSED = [
    *(("c_call", code) for code in (errno.ESTALE, errno.ENOENT, errno.EEXIST, errno.EAGAIN)),
    *(("c_return", code) for code in (errno.EIO, errno.ENOENT, errno.EEXIST)),
]


@every_operation
@pytest.mark.parametrize(
    ("event", "code"),
    REFUSED,
    ids=lambda value: value if isinstance(value, str) else errno.errorcode[value],
)
def test_an_error_at_every_call(operation, event, code, steps, monkeypatch):
    """One call is refused, or is done and says that it was not, as NFS does when a reply is lost."""

    def fail():
        failed.append(names[-1])
        print(number, names[-1])
        if names[-1] not in (NOT_AFTER if event == "c_return" else ("close", "__exit__")):
            raise OSError(code, os.strerror(code))

    for root, number in steps(operation, event, turn=REFUSED.index((event, code)), turns=2):
        failed, before = [], descriptors()
        with caught() as said, at_call(number, fail, event) as names:
            operation.run()
        assert len(said) <= 1 + (operation.prepare is put_damaged)
        assert failed
        assert files(root / "v1" / "tmp") == [] or failed[0] in REMOVALS
        assert descriptors() == before
        check_sound(monkeypatch, operation, root)


# --- Directories that vanish


def vanish(path):
    path.rename(path.with_name(f"{path.name}.away"))


def become_a_file(path):
    vanish(path)
    path.write_text("")


def become_a_loop(path):
    vanish(path)
    path.symlink_to(path)


def become_a_link(path):
    vanish(path)
    other = path.with_name(f"{path.name}.other")
    other.mkdir(mode=0o700)
    path.symlink_to(other)


def become_anothers(path):
    vanish(path)
    path.mkdir()
    path.chmod(0o777)


def come_back(path):
    """Put the directory back that went away."""
    if os.path.islink(path) or path.is_file():
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)
    path.with_name(f"{path.name}.away").rename(path)


SHARD = f"v1/{OTHERS[0][:2]}"
GOING = [
    *((vanish, inner) for inner in ("", "v1", "v1/tmp", SHARD)),
    *((become_a_file, inner) for inner in ("v1", "", SHARD, "v1/tmp")),
    *((become_a_link, inner) for inner in ("", "v1", SHARD)),
    (become_a_loop, ""),
    (become_anothers, "v1"),
]


@pytest.mark.parametrize(("become", "inner"), GOING)
@pytest.mark.parametrize("name", ["build", "hit", "sweep", "prune", "check"])
def test_a_directory_that_vanishes_at_every_call(name, inner, become, steps, monkeypatch):
    """What was in it is whole when it comes back."""
    operation = OPERATIONS[name]

    def act():
        acted.append(names[-1])
        print(number, names[-1])
        become(root / inner)

    for root, number in steps(operation, turn=GOING.index((become, inner)), turns=2):
        acted = []
        with caught() as said, at_call(number, act) as names:
            operation.run()
        assert acted
        assert len(said) <= 2
        with caught():
            assert get() in ("built", "disk")
        come_back(root / inner)
        shutil.rmtree(root / f"{inner}.other", ignore_errors=True)
        check_sound(monkeypatch, operation, root)


def test_a_directory_that_vanishes_for_good_at_every_call(steps, monkeypatch):
    for operation in OPERATIONS.values():
        for root, number in steps(operation):
            acted = []

            def act(root=root, acted=acted):
                acted.append(root)
                shutil.rmtree(root, ignore_errors=True)

            with caught() as said, at_call(number, act):
                operation.run()
            assert len(said) <= 1 + (operation.prepare is put_damaged)
            assert acted
            check_sound(monkeypatch, operation, root, kept=False)


# --- Clocks


@every_operation
@pytest.mark.parametrize("seconds", [-60, -2 * HOUR, -10 * YEAR])
def test_a_clock_that_goes_back(operation, seconds, monkeypatch, tmp_path):
    with prepared(operation, tmp_path / "cache", monkeypatch) as root:
        with caught() as said, monkeypatch.context() as patch:
            jump(patch, seconds)
            operation.run()
            operation.run()
        assert len(said) == (operation.prepare is put_damaged)
        check_sound(monkeypatch, operation, root)


# --- Interrupts


@every_operation
@pytest.mark.parametrize("event", ["c_call", "c_return", "line"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_interrupt_everywhere(operation, event, steps, monkeypatch):
    """This process goes on, as a notebook does, and so do others."""

    def all_steps():
        def interrupt():
            interrupted.append(places[-1])
            print(number, places[-1])
            raise KeyboardInterrupt

        for root, number in steps(operation, event):
            interrupted = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CacheWarning)
                try:
                    with (
                        at_line(number, interrupt)
                        if event == "line"
                        else at_call(number, interrupt, event) as places
                    ):
                        operation.run()
                except KeyboardInterrupt:
                    assert interrupted
                else:
                    pytest.fail(f"an interrupt at {number} was lost")
            assert locks._current.get() is None  # or later fetches would have the rest of that deadline
            check_sound(monkeypatch, operation, root)

    # In a thread, with which what an interrupt leaves in the interpreter goes: one at the end of an `except`
    # clause has its exception be the context of all that this thread raises from then on.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(all_steps).result()
