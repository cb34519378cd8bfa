"""What the tests of faults share: entries, system calls, and what a directory does with them."""

import hashlib
import io
import os
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest
from support.common import refuse

from cupar import _cache, _store
from cupar._base import warnings as _warnings
from cupar._base.warnings import CacheWarning
from cupar._cache import disk, fetch
from cupar._store import entry as _entry
from cupar._store.disk import Disk
from cupar._store.entry import Entry

LIMIT = 1 << 30
HOUR = 3600
YEAR = 365 * 24 * HOUR


def key(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


def entry(name, size=200):
    """Return the only entry that is right under a key."""
    return Entry({"name": name}, hashlib.sha256(name.encode()).digest() * (size // 32))


KEY, OTHERS = key(0), [key(number) for number in (1, 2, 3)]
SIZE = len(_entry.encode(KEY, entry(KEY)))


def isolate(monkeypatch, tmp_path):
    """Give a test a cache directory and no warnings given yet."""
    for name in ("CUPAR_CACHE", "CUPAR_CACHE_SIZE", "CUPAR_LOCK_TIMEOUT", "CUPAR_BUNDLES", "CUPAR_SHARED"):
        monkeypatch.delenv(name, raising=False)
    use(monkeypatch, tmp_path / "cache")


def use(monkeypatch, root):
    """Let `fetch` work in a directory as a new process would."""
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(root))
    monkeypatch.setattr(_warnings, "warned", set())
    _cache._disk_at.cache_clear()


@contextmanager
def caught():
    """Collect all warnings; none but the cache's may be among them."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found
    assert {warning.category for warning in found} <= {CacheWarning}, [str(each) for each in found]


def get(name=KEY):
    """Fetch a key; nothing but its entry may come back."""
    found = fetch(name, lambda: entry(name))
    assert found.entry == entry(name)
    return found.origin


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def jump(monkeypatch, seconds):
    """Set the clock, as a program sees it."""
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + seconds)


def files(root):
    return [path for path in root.rglob("*") if not path.is_dir()]


def left(root):
    """Return what lies where entries are written and locks are held."""
    return [path for name in ("tmp", "locks") for path in files(root / "v1" / name)]


def descriptors():
    """Return what this process has open, where the system tells."""
    return set(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else set()


# --- System calls


REMOVALS = {"unlink", "remove"}
SYSTEM_CALLS = {
    *("open", "close", "read", "readline", "write", "seek", "__exit__", "fchmod", "chmod", "flock"),
    *("stat", "lstat", "fstat", "mkdir", "rename", "replace", "unlink", "remove", "scandir", "utime"),
}


def system_call(function):
    """Return the name of a built-in function that asks the system for something, None for others."""
    module = getattr(function, "__module__", None)
    its = getattr(function, "__self__", None)
    name = function.__name__
    if name in SYSTEM_CALLS and (module in ("posix", "fcntl") or isinstance(its, (io.IOBase, os.DirEntry))):
        return name
    return None


def never():
    raise AssertionError("there are not so many calls")


def nothing(frame):
    """Take no note of where a call or a line is."""


@contextmanager
def at_call(number=sys.maxsize, act=never, event="c_call", note=nothing):
    """Act at one of the system calls of a block: in place of it, or after it if the event is "c_return".

    If `act` returns, the call is made. Yields the names of the calls so far; `note` takes their frames.
    """
    names = []

    def look(frame, seen, function):
        name = system_call(function) if seen == event else None
        if name is not None:
            names.append(name)
            note(frame)
            if len(names) > number:
                sys.setprofile(None)
                act()

    sys.setprofile(look)
    try:
        yield names
    finally:
        sys.setprofile(None)


@contextmanager
def at_line(number=sys.maxsize, act=never, note=nothing):
    """Act before one of the lines of a block that are in the cache's own modules."""
    places, own = [], (_cache.__file__, str(Path(_store.__file__).parent))

    def look(frame, event, _):
        if not frame.f_code.co_filename.startswith(own):
            return None
        if event == "line":
            places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            note(frame)
            if len(places) > number:
                sys.settrace(None)
                act()
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield places
    finally:
        sys.settrace(before)


# --- What the directory does


@dataclass(frozen=True)
class Operation:
    """Something that is done with a directory which holds `OTHERS`, the last one used last.

    Attributes
    ----------
    run : callable
        Takes nothing and raises if it gets what is wrong.
    prepare : callable
        Takes the directory's `Disk`.
    loses : int
        How many of `OTHERS`, from the first, may be gone after it.
    calls : set of str
        System calls that it surely makes: if the hook missed them, the tests would prove nothing.
    """

    run: Callable[[], object]
    calls: set[str]
    prepare: Callable[[Disk], object] = lambda disk: None
    limit: int = LIMIT
    loses: int = 0


def put(disk):
    disk.store(KEY, entry(KEY))


def put_old(disk):
    put(disk)
    age(disk.find(KEY), 2 * HOUR)


def put_damaged(disk):
    put(disk)
    disk.find(KEY).write_bytes(b"damaged")


def vacate(disk):
    shutil.rmtree(disk.path)


def outgrow(disk):
    """Let the journal's sum pass the limit with the next store."""
    (disk.path / "v1" / "journal").write_bytes(b"%d\n" % disk.limit_bytes)


def on_disk(work):
    """Return an operation on the directory, if the environment's can be used at all."""

    def run():
        store = disk()
        return None if store is None else work(store)

    return run


def load(disk):
    assert disk.load(KEY) in (None, entry(KEY))


WRITES = {"open", "fchmod", "write", "replace"}
LOCKS = {"flock", "fstat", "unlink", "close"}
OPERATIONS = {
    "first build": Operation(get, WRITES | LOCKS | {"scandir", "mkdir", "chmod"}, prepare=vacate, loses=3),
    "build": Operation(get, WRITES | LOCKS | {"seek", "read"}),
    "hit": Operation(get, {"open", "fstat", "read", "close", "stat", "utime"}, prepare=put_old),
    "damaged": Operation(get, WRITES | LOCKS, prepare=put_damaged),
    "sweep": Operation(
        get, WRITES | LOCKS | {"scandir", "stat"}, prepare=outgrow, limit=7 * SIZE // 2, loses=2
    ),
    "store": Operation(on_disk(put), WRITES, prepare=put),
    "load": Operation(on_disk(load), {"open", "read"}, prepare=put),
    "prune": Operation(
        on_disk(lambda disk: disk.prune(size=3 * SIZE)),
        {"scandir", "stat", "unlink", "replace"},
        prepare=put,
        loses=2,
    ),
    "prune nothing": Operation(on_disk(lambda disk: disk.prune(unused_for=HOUR)), {"scandir", "stat"}),
    "clear": Operation(on_disk(lambda disk: disk.clear()), {"scandir", "unlink"}, loses=3),
    "check": Operation(on_disk(lambda disk: list(disk.check(repair=True))), {"scandir", "read"}, prepare=put),
    "usage": Operation(on_disk(lambda disk: disk.usage()), {"scandir", "stat"}),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@contextmanager
def prepared(operation, root, monkeypatch):
    """Have the directory at `root` be as an operation finds it."""
    monkeypatch.setenv("CUPAR_CACHE_SIZE", str(operation.limit))
    use(monkeypatch, root)
    store = Disk(root, LIMIT)
    for index, name in enumerate(OTHERS):
        store.store(name, entry(name))
        age(store.find(name), 1000 - 10 * index)
    operation.prepare(Disk(root, operation.limit))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def each_step(operation, event, tmp_path, monkeypatch, every=False, turn=0, turns=1):
    """Run a test again and again, for a fault at the first system call of an operation, its second, …

    Each time it is in a directory of its own. Yields that and the number of the call. Of calls that are made
    from the same place by the same functions, in whichever operation, there is only the first, unless `every`
    one is asked for; several faults may take turns.
    """
    if event not in _steps:
        _steps[event] = [*_first_of_each_place(event, tmp_path, monkeypatch)]
    number, first = _steps[event][[*OPERATIONS.values()].index(operation)]
    for step in range(number) if every else first[turn % turns :: turns]:
        with prepared(operation, tmp_path / f"cache{step}", monkeypatch) as root:
            yield root, step


_steps = {}


def _first_of_each_place(event, tmp_path, monkeypatch):
    """Yield for each operation how many steps it takes, and which are from places that were not seen yet."""
    seen = set()
    for operation in OPERATIONS.values():
        first = []

        def note(frame, first=first):
            # Between two calls of the system there are many lines, of which the caller's says enough.
            place = tuple(islice(_lines(frame), 2 if event == "line" else None))
            if place not in seen:
                first.append(len(names) - 1)
                seen.add(place)

        with prepared(operation, tmp_path / "steps", monkeypatch), warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            with at_line(note=note) if event == "line" else at_call(event=event, note=note) as names:
                operation.run()
        if event == "c_call":
            assert operation.calls <= set(names), names
        yield len(names), first


def _lines(frame):
    """Yield where a frame and those that called it are, up to the operation."""
    while frame.f_code is not _first_of_each_place.__code__:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def check_sound(monkeypatch, operation, root, kept=True):
    """Check that a directory serves what is in it, takes what is new, and gets rid of what a fault left."""
    use(monkeypatch, root)
    store = Disk(root, operation.limit)
    with caught() as said:
        before = {name for name, *_ in store.entries()}
        if kept:
            assert set(OTHERS[operation.loses :]) <= before
            assert KEY in before or operation.prepare not in (put, put_old)
        for name in before - ({KEY} if operation.prepare is put_damaged else set()):
            assert store.load(name) == entry(name)
        with store.lock(KEY, 0) as free:
            assert free
        get()
        assert fetch(KEY, refuse).entry == entry(KEY)
    assert len(said) <= (operation.prepare is put_damaged)
    found = left(root)
    assert len(found) <= 2
    for path in found:
        age(path, 2 * HOUR)
    store.prune()
    assert left(root) == []
    assert store.usage().size <= store.limit_bytes


# --- Processes


def in_child(work):
    """Run `work` in a forked child; return the signal that killed it, 0 if it was done."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code <= 0
    return -code


def die():
    os.kill(os.getpid(), signal.SIGKILL)
