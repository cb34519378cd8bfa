"""The user's directory under faults: death, errors, interrupts and vanishing at every system call of what it does.

Each fault may cost a build and a warning. It may not fail a call, serve what was not stored, lose an entry that
was there, block the next process, or leave something behind for good.
"""

import errno
import fcntl
import hashlib
import io
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from cupar import _cache, _disk, _entry, _warnings
from cupar._cache import CacheWarning, Disk, Entry, disk, fetch

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

LIMIT = 1 << 30
HOUR = 3600


def key(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


def entry(name, size=200):
    """Return the only entry that is right under a key."""
    return Entry({"name": name}, hashlib.sha256(name.encode()).digest() * (size // 32))


KEY, OTHERS = key(0), [key(number) for number in range(1, 6)]
SIZE = len(_entry.encode(KEY, entry(KEY)))


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Give each test a cache directory and no warnings given yet."""
    for name in ("CUPAR_CACHE", "CUPAR_CACHE_SIZE", "CUPAR_LOCK_TIMEOUT", "CUPAR_BUNDLES", "CUPAR_SHARED"):
        monkeypatch.delenv(name, raising=False)
    use(monkeypatch, tmp_path / "cache")


def use(monkeypatch, root):
    """Let `fetch` work in a directory as a new process would."""
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(root))
    monkeypatch.setattr(_warnings, "_warned", set())
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


def refuse(*_args, **_kwargs):
    raise AssertionError("this must not be called")


def failing(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


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
    if name in SYSTEM_CALLS and (
        module in ("posix", "fcntl", "_io", "io") or isinstance(its, (io.IOBase, os.DirEntry))
    ):
        return name
    return None


@contextmanager
def at_call(number, act, event="c_call"):
    """Act at one of the system calls of a block: in place of it, or after it if the event is "c_return".

    If `act` returns, the call is made. Yields the names of the calls so far.
    """
    names = []

    def look(frame, seen, function):
        name = system_call(function) if seen == event else None
        if name is not None:
            names.append(name)
            if len(names) > number:
                sys.setprofile(None)
                act()

    sys.setprofile(look)
    try:
        yield names
    finally:
        sys.setprofile(None)


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
    age(disk._path(KEY), 2 * HOUR)


def put_damaged(disk):
    put(disk)
    disk._path(KEY).write_bytes(b"damaged")


def vacate(disk):
    shutil.rmtree(disk.path)


def outgrow(disk):
    """Let the journal's sum pass the limit with the next store."""
    (disk.path / "v1" / "journal").write_bytes(b"%d\n" % disk.limit_bytes)


def is_right(found):
    assert found in (None, entry(KEY))


WRITES = {"open", "fchmod", "write", "replace", "mkdir"}
LOCKS = {"flock", "fstat", "unlink", "close"}
OPERATIONS = {
    "first build": Operation(get, WRITES | LOCKS | {"scandir", "chmod"}, prepare=vacate, loses=5),
    "build": Operation(get, WRITES | LOCKS | {"seek", "read"}),
    "hit": Operation(get, {"open", "fstat", "readline", "read", "close", "utime"}, prepare=put_old),
    "damaged": Operation(get, WRITES | LOCKS, prepare=put_damaged),
    "sweep": Operation(
        get, WRITES | LOCKS | {"scandir", "stat"}, prepare=outgrow, limit=5 * SIZE + 10, loses=4
    ),
    "store": Operation(lambda: disk().store(KEY, entry(KEY)), WRITES, prepare=put),
    "load": Operation(lambda: is_right(disk().load(KEY)), {"open", "read"}, prepare=put),
    "prune": Operation(
        lambda: disk().prune(size=3 * SIZE), {"scandir", "stat", "unlink", "replace"}, prepare=put, loses=4
    ),
    "prune nothing": Operation(lambda: disk().prune(unused_for=HOUR), {"scandir", "stat"}),
    "clear": Operation(lambda: disk().clear(), {"scandir", "unlink"}, loses=5),
    "check": Operation(lambda: list(disk().check(repair=True)), {"scandir", "read"}, prepare=put),
    "usage": Operation(lambda: disk().usage(), {"scandir", "stat"}),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@pytest.fixture
def steps(tmp_path, monkeypatch, capsys):
    """Return what runs an operation again and again, with a fault at its first system call, its second, …

    Each time it is in a directory of its own: yields that and the number of the call.
    """

    def run(operation):
        monkeypatch.setenv("CUPAR_CACHE_SIZE", str(operation.limit))
        for number in itertools.count():
            root = tmp_path / f"cache{number}"
            use(monkeypatch, root)
            store = Disk(root, LIMIT)
            for index, name in enumerate(OTHERS):
                store.store(name, entry(name))
                age(store._path(name), 1000 - 10 * index)
            operation.prepare(Disk(root, operation.limit))
            try:
                yield root, number
            finally:
                shutil.rmtree(root)

    return run


def check_sound(monkeypatch, operation, root, kept=True):
    """Check that a directory serves what is in it, takes what is new, and gets rid of what a fault left."""
    use(monkeypatch, root)
    store = Disk(root, operation.limit)
    with caught() as said:
        before = {name for name, _, _ in store.entries()}
        if kept:
            assert set(OTHERS[operation.loses :]) <= before
        for name in before - {KEY}:
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


# --- Death


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


@every_operation
def test_death_at_every_call(operation, steps, monkeypatch, record_property):
    for root, number in steps(operation):
        names = []

        def work():
            warnings.simplefilter("ignore", CacheWarning)
            with at_call(number, die) as names:
                operation.run()
            assert operation.calls <= set(names), names

        killed = in_child(work)
        assert killed in (0, signal.SIGKILL)
        check_sound(monkeypatch, operation, root)
        if not killed:
            break
    record_property("calls", number)
    print(f"killed at each of {number} calls")


def test_death_within_a_write(steps, monkeypatch):
    """The system kills who passes the limit on a file's size, after it has written up to there."""
    operation = OPERATIONS["build"]
    for root, number in steps(operation):

        def work():
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            operation.run()

        size = 7 * number
        killed = in_child(work)
        if not killed:
            break
        assert killed == signal.SIGXFSZ
        (half,) = files(root / "v1" / "tmp")
        assert half.stat().st_size == size
        check_sound(monkeypatch, operation, root)
    assert size >= SIZE


# --- Errors


NOT_AFTER = {"open", "scandir", "fstat", "stat", "lstat"}  # nothing is done that an error could follow


@every_operation
@pytest.mark.parametrize(
    ("event", "code"),
    [
        *(("c_call", code) for code in (errno.EIO, errno.ENOENT, errno.EEXIST, errno.ESTALE, errno.EAGAIN)),
        *(("c_return", code) for code in (errno.ENOENT, errno.EEXIST, errno.ESTALE)),
    ],
    ids=lambda value: value if isinstance(value, str) else errno.errorcode[value],
)
def test_an_error_at_every_call(operation, event, code, steps, monkeypatch):
    """One call is refused, or is done and says that it was not, as NFS does when a reply is lost."""

    def fail():
        failed.append(names[-1])
        print(number, names[-1])
        if names[-1] not in (NOT_AFTER if event == "c_return" else ("close", "__exit__")):
            raise OSError(code, os.strerror(code))

    for root, number in steps(operation):
        failed, before = [], descriptors()
        with caught() as said, at_call(number, fail, event) as names:
            operation.run()
        assert len(said) <= 1 + (operation.prepare is put_damaged)
        assert files(root / "v1" / "tmp") == [] or failed[0] in REMOVALS
        assert descriptors() == before
        check_sound(monkeypatch, operation, root)
        if not failed:
            break


def refuse_changes(monkeypatch, code):
    """Let the system refuse whatever would change a directory."""
    opens, makes = os.open, Path.mkdir

    def open_unchanged(path, flags, *args, **kwargs):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(code, os.strerror(code), str(path))
        return opens(path, flags, *args, **kwargs)

    def mkdir(path, *args, **kwargs):
        if not path.exists():
            raise OSError(code, os.strerror(code), str(path))
        makes(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", open_unchanged)
    monkeypatch.setattr(Path, "mkdir", mkdir)
    for owner, name in ((os, "fchmod"), (os, "utime"), (Path, "chmod"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, failing(code))


@pytest.fixture
def store(tmp_path):
    """Return a directory that holds `OTHERS`, none of them used for two hours."""
    found = Disk(tmp_path / "cache", LIMIT)
    for name in OTHERS:
        found.store(name, entry(name))
        age(found._path(name), 2 * HOUR)
    return found


def check_refused(store, code):
    """Check a directory that takes nothing any more: it serves what it has, and that is said once."""
    for _ in range(2):
        assert [get(key(number)) for number in range(50, 55)] == ["built"] * 5
        assert [get(name) for name in OTHERS] == ["disk"] * 5
    before = store.usage()
    store.prune(size=0)
    store.clear()
    store.discard(OTHERS[0])
    assert store.usage() == before
    return os.strerror(code)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.EPERM, errno.EDQUOT, errno.ESTALE])
@pytest.mark.parametrize("when", ["before", "during a build"])
def test_a_directory_that_turns_read_only(store, monkeypatch, code, when):
    def make():
        refuse_changes(monkeypatch, code)
        return entry(KEY)

    with caught() as said:
        if when == "before":
            make()
        assert fetch(KEY, make).origin == "built"
        why = check_refused(store, code)
    (warning,) = said
    assert why in str(warning.message)
    monkeypatch.undo()
    assert Disk(store.path, LIMIT).load(OTHERS[0]) == entry(OTHERS[0])


# --- File systems of a test's own


@pytest.fixture
def mounted(tmp_path):
    """Return what mounts an empty file system of some options, if this user may, and gives its place."""
    root = tmp_path / "mounted"
    root.mkdir()
    done = []

    def mount(options):
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", root], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("may not mount")
        done.append(root)
        return root

    yield mount
    for place in done:
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)


@pytest.mark.parametrize("options", ["size=1m,mode=700", "size=8m,nr_inodes=64,mode=700"])
def test_a_disk_that_fills(mounted, monkeypatch, options):
    """With room for about thirty entries of 30 kB, or for as many files."""
    root = mounted(options)
    use(monkeypatch, root)
    names = [key(number) for number in range(100)]
    with caught() as said:
        for name in names:
            assert fetch(name, lambda name=name: entry(name, 30_000)).entry == entry(name, 30_000)
            assert files(root / "v1" / "tmp") == []
        kept = {name for name, _, _ in disk().entries()}
        assert 10 <= len(kept) < 60
        for name in kept:
            assert fetch(name, refuse).entry == entry(name, 30_000)
        disk().prune()
        assert kept == {name for name, _, _ in disk().entries()}
    (warning,) = said
    assert os.strerror(errno.ENOSPC) in str(warning.message)
    with caught() as said:
        disk().clear()
        assert [get(), get()] == ["built", "disk"]
    assert said == []


def test_a_full_disk_is_of_use_again_when_there_is_room(mounted, monkeypatch):
    root = mounted("size=1m,mode=700")
    use(monkeypatch, root)
    get()
    with suppress(OSError), open(root / "other people's", "wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with caught() as said:
        assert [get(OTHERS[0]), get(OTHERS[0]), get()] == ["built", "built", "disk"]
    assert len(said) == 1
    (root / "other people's").unlink()
    with caught() as said:
        assert [get(OTHERS[0]), get(OTHERS[0]), get()] == ["built", "disk", "disk"]
    assert said == []


def test_a_file_system_that_turns_read_only(mounted, monkeypatch):
    root = mounted("size=1m,mode=700")
    use(monkeypatch, root)
    store = disk()
    for name in OTHERS:
        get(name)
        age(store._path(name), 2 * HOUR)
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    with caught() as said:
        why = check_refused(store, errno.EROFS)
    (warning,) = said
    assert why in str(warning.message)
    subprocess.run(["mount", "-o", "remount,rw", root], check=True)
    assert [get(), get()] == ["built", "disk"]


@pytest.mark.parametrize("during", ["a build", "nothing"])
def test_a_file_system_that_is_unmounted(mounted, monkeypatch, during):
    root = mounted("size=1m,mode=700")
    use(monkeypatch, root)
    get(OTHERS[0])

    def make():
        subprocess.run(["umount", "-l", root], check=True)
        return entry(KEY)

    if during == "nothing":
        make()
    with caught() as said:
        assert fetch(KEY, make if during == "a build" else lambda: entry(KEY)).origin == "built"
        assert [get(), get(OTHERS[0])] == ["disk", "built"]
    assert said == []


def test_files_that_may_not_grow(store):
    """A disk that fills without a file system of one's own; a write begins and does not end."""

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))
        with caught() as said:
            for number in range(50, 55):
                assert get(key(number)) == "built"
                assert files(store.path / "v1" / "tmp") == []
            assert [get(name) for name in OTHERS] == ["disk"] * 5
        (warning,) = said
        assert os.strerror(errno.EFBIG) in str(warning.message)

    assert in_child(work) == 0
    assert store.usage().entries == 5


@pytest.mark.usefixtures("store")
def test_a_process_that_may_open_no_more_files():
    def work():
        highest = max(map(int, descriptors()), default=64)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with caught() as said:
            assert [get(), get(OTHERS[0])] == ["built", "built"]
        (warning,) = said
        assert os.strerror(errno.EMFILE) in str(warning.message)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64,) * 2)
        assert [get(name) for name in (KEY, KEY, OTHERS[0])] == ["built", "disk", "disk"]

    assert in_child(work) == 0


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


@pytest.mark.parametrize("become", [vanish, become_a_file, become_a_loop, become_a_link, become_anothers])
@pytest.mark.parametrize("inner", ["", "v1", "v1/tmp", f"v1/{OTHERS[0][:2]}"])
@pytest.mark.parametrize("name", ["build", "hit", "store", "sweep", "prune", "check"])
def test_a_directory_that_vanishes_at_every_call(name, inner, become, steps, monkeypatch):
    """What was in it is whole when it comes back."""
    operation = OPERATIONS[name]

    def act():
        acted.append(names[-1])
        print(number, names[-1])
        become(root / inner)

    for root, number in steps(operation):
        acted = []
        with caught() as said, at_call(number, act) as names:
            operation.run()
        if not acted:
            break
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
            with caught() as said, at_call(number, lambda: acted.append(shutil.rmtree(root))):
                operation.run()
            assert len(said) <= 1 + (operation.prepare is put_damaged)
            check_sound(monkeypatch, operation, root, kept=False)
            if not acted:
                break


def test_a_working_directory_that_vanishes(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    use(monkeypatch, "kept")
    monkeypatch.setenv("CUPAR_BUNDLES", "some.bundle")
    assert get() == "built"
    shutil.rmtree(gone)
    with caught() as said:
        assert [get(), get()] == ["built", "built"]
    assert len(said) == 2


def test_threads_whose_directory_vanishes_again_and_again(tmp_path):
    over, wrong = threading.Event(), []

    def work(first):
        try:
            for number in itertools.count(first):
                if over.is_set():
                    break
                get(key(number % 20))
        except BaseException as error:
            wrong.append(error)
            raise

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for number in range(100):
            time.sleep(0.01)
            with suppress(OSError):
                (tmp_path / "cache").rename(tmp_path / f"gone{number}")
        over.set()
        for thread in threads:
            thread.join(timeout=60)
    assert wrong == []
    for path in tmp_path.iterdir():
        for name, _, _ in Disk(path, LIMIT).entries():
            assert Disk(path, LIMIT).load(name) == entry(name)


# --- Clocks


def jump(monkeypatch, seconds):
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + seconds)


YEAR = 365 * 24 * HOUR


@every_operation
@pytest.mark.parametrize("seconds", [-60, -2 * HOUR, -10 * YEAR])
def test_a_clock_that_goes_back(operation, seconds, steps, monkeypatch):
    for root, _ in steps(operation):
        with caught() as said, monkeypatch.context() as patch:
            jump(patch, seconds)
            operation.run()
            operation.run()
        assert len(said) == (operation.prepare is put_damaged)
        check_sound(monkeypatch, operation, root)
        break


def filled(tmp_path, ages):
    """Make a cache that has no room for more, whose entries were used so many seconds ago."""
    store = Disk(tmp_path / "cache", SIZE * len(ages))
    for number, seconds in enumerate(ages):
        store.store(key(number), entry(key(number)))
        age(store._path(key(number)), seconds)
    return store


def kept(store):
    names = {name for name, _, _ in store.entries()}
    return [number for number in range(100) if key(number) in names]


@pytest.mark.parametrize(
    ("ages", "left"),
    [
        # What was used before the clock went back is what was used longest ago.
        ([50, 40, 30, 20, -2 * HOUR - 10, -2 * HOUR - 20, 10, 8, 6, 4], [0, 1, 2, 3, 6, 7, 8, 9]),
        ([50, 40, 30, 20, -10 * YEAR - 20, -10 * YEAR - 10, -YEAR, 8, 6, 4], [0, 1, 2, 3, 4, 7, 8, 9]),
        # It may have gone back before all else: on a machine that believes it is 1970.
        ([-50 * YEAR - 10 * number for number in range(10)], [2, 3, 4, 5, 6, 7, 8, 9]),
        # Small steps, as when a clock is set by the network's, are not told from the clock of a server.
        ([50, 40, -10, -20, -30, 10, 8, 6, 4, 2], [2, 3, 4, 6, 7, 8, 9]),
    ],
)
def test_the_order_of_use_after_a_clock_went_back(tmp_path, ages, left):
    store = filled(tmp_path, ages)
    store.store(key(50), entry(key(50)))
    assert kept(store)[-1] == 50
    assert set(kept(store)) - {50} >= set(left[len(left) - 7 :])
    store.prune(size=0)
    assert kept(store) == []


def test_a_use_makes_a_time_to_come_the_present(tmp_path):
    store = filled(tmp_path, [-YEAR] * 5 + [100] * 5)
    assert store.load(key(0)) == entry(key(0))
    assert abs(store._path(key(0)).stat().st_mtime - time.time()) < 600
    store.store(key(50), entry(key(50)))
    assert {0, 5, 6, 7, 8, 9, 50} <= set(kept(store))


@pytest.mark.parametrize("seconds", [-2 * HOUR, -10 * YEAR])
def test_what_was_unused_is_pruned_whatever_stands_before_it(tmp_path, seconds):
    store = filled(tmp_path, [seconds, 3 * HOUR, 10])
    assert store.prune(unused_for=HOUR).removed == 1
    assert kept(store) == [0, 2]


@pytest.mark.parametrize("seconds", [2 * HOUR, -2 * HOUR, -10 * YEAR])
def test_leftovers_go_whatever_their_time(store, seconds):
    for name in ("tmp/dead", "locks/dead.lock", "tmp/living", "locks/living.lock"):
        path = store.path / "v1" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        age(path, seconds if "dead" in name else 100)
    store.prune()
    assert sorted(path.name for path in left(store.path)) == ["living", "living.lock"]


@pytest.mark.parametrize("seconds", [-10 * YEAR, 10 * YEAR])
def test_locks_do_not_look_at_that_clock(store, monkeypatch, seconds):
    jump(monkeypatch, seconds)
    begin = time.monotonic()
    with store.lock(KEY, 0), store.lock(KEY, 0.3) as free:
        assert not free
    assert 0.3 <= time.monotonic() - begin < 20

    held, freed = threading.Event(), []

    def hold():
        with store.lock(KEY, 0):
            held.set()
            time.sleep(0.3)
            freed.append(True)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with store.lock(KEY, 60) as free:
        assert free and freed
    thread.join()


# --- Network file systems


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.EBUSY, errno.EEXIST, errno.ENOENT])
def test_a_rename_that_was_done_and_says_that_it_was_not(monkeypatch, code):
    replace = Path.replace

    def done(path, target):
        replace(path, target)
        raise OSError(code, os.strerror(code))

    with caught() as said, monkeypatch.context() as patch:
        patch.setattr(Path, "replace", done)
        assert [get(), get()] == ["built", "disk"]
    assert len(said) == 1
    assert left(disk().path) == []


@pytest.mark.parametrize("name", ["build", "hit", "sweep"])
def test_an_open_that_meets_a_stale_handle_once_costs_no_build(name, steps):
    """The file is found when it is looked for again under the lock."""
    operation = OPERATIONS[name]
    for _, _ in steps(operation):
        disk().store(KEY, entry(KEY))

        def stale():
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

        with caught(), at_call(0, stale) as names:
            assert fetch(KEY, refuse).entry == entry(KEY)
        assert names
        break


def test_files_that_a_server_keeps_while_they_are_open(store):
    """What is removed and still open somewhere is renamed, and goes with who has it open."""
    usage = store.usage()
    shard = store._path(OTHERS[0]).parent
    (shard / ".nfs0000000000000001").write_bytes(b"an entry")
    store._path(OTHERS[1]).rename(shard / ".nfs0000000000000002")
    for place in ("tmp", "locks"):
        path = store.path / "v1" / place / ".nfs0000000000000003"
        path.write_text("")
        age(path, 2 * HOUR)
    with caught() as said:
        assert store.usage().entries == usage.entries - 1
        assert [get(name) for name in OTHERS] == ["disk", "built", "disk", "disk", "disk"]
        store.prune()
        assert left(store.path) == []
        store.clear()
        assert [get(), get()] == ["built", "disk"]
    assert said == []


class Listing:
    """A listing that is of earlier: it shows what is gone, and breaks off."""

    def __init__(self, directory, *, scandir=os.scandir):
        self.items, self.scandir = scandir(directory), scandir

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.items.close()

    def __iter__(self):
        for item in self.items:
            if item.name.endswith(_entry.SUFFIX):
                os.rename(item.path, f"{item.path}.gone")
            yield item
            if item.name.endswith(_entry.SUFFIX):
                os.rename(f"{item.path}.gone", item.path)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))


def test_a_listing_of_earlier(store, monkeypatch):
    monkeypatch.setattr(os, "scandir", Listing)
    with caught() as said:
        assert store.usage().entries == 0
        assert store.prune(size=0).removed == 0
        assert list(store.check(repair=True)) == []
        store.clear()
        assert [get(), get()] == ["built", "disk"]
    assert said == []
    monkeypatch.undo()
    assert store.usage().entries == 6
    assert Disk(store.path, LIMIT).load(OTHERS[0]) == entry(OTHERS[0])


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, errno.EBADF])
def test_a_server_without_locks(store, monkeypatch, code):
    monkeypatch.setattr(fcntl, "flock", failing(code))
    with caught() as said:
        assert [get(), get()] == ["built", "disk"]
        assert [found.origin for found in in_threads(4, lambda: fetch(key(50), lambda: entry(key(50))))]
        store.prune(size=3 * SIZE)
        assert store.usage().entries <= 3
        store.clear()
    assert said == []
    for path in left(store.path):
        age(path, 2 * HOUR)
    store.prune()
    assert left(store.path) == []


def test_a_file_whose_number_changes_is_no_lock_to_wait_for_for_ever(store, monkeypatch):
    """Some file systems give a file another inode each time that they are asked."""
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    begin = time.monotonic()
    with store.lock(KEY, 0.2) as free:
        assert not free
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("code", [errno.EROFS, errno.EPERM, errno.ESTALE])
def test_times_that_cannot_be_set(store, monkeypatch, code):
    monkeypatch.setattr(os, "utime", failing(code))
    with caught() as said:
        assert [get(name) for name in (*OTHERS, KEY, KEY)] == ["disk"] * 5 + ["built", "disk"]
        with store.lock(KEY, 0) as first, store.lock(KEY, 0) as second:
            assert (first, second) == (True, False)
    assert said == []


# --- Interrupts


@contextmanager
def at_line(number, act):
    """Act before one of the lines of a block that are in the cache's own modules."""
    places = []

    def look(frame, event, _):
        if frame.f_code.co_filename not in (_cache.__file__, _disk.__file__):
            return None
        if event == "line":
            places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
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


@every_operation
@pytest.mark.parametrize("event", ["c_call", "c_return", "line"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_an_interrupt_everywhere(operation, event, steps, monkeypatch):
    """This process goes on, as a notebook does, and so do others."""

    def interrupt():
        interrupted.append(places[-1])
        print(number, places[-1])
        raise KeyboardInterrupt

    for root, number in steps(operation):
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
                assert not interrupted
        check_sound(monkeypatch, operation, root)
        if not interrupted:
            break


def in_threads(number, work):
    """Run `work` in threads that start together; return results and exceptions."""
    start = threading.Barrier(number)
    results = []

    def run():
        start.wait()
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(results) == number
    return results


def test_threads_whose_builds_are_interrupted():
    """Who waited builds, one after the other, until one is done."""
    interrupts = itertools.count()

    def make():
        if next(interrupts) < 3:
            raise KeyboardInterrupt
        return entry(KEY)

    found = in_threads(8, lambda: fetch(KEY, make))
    assert sum(isinstance(each, KeyboardInterrupt) for each in found) == 3
    origins = sorted(each.origin for each in found if not isinstance(each, KeyboardInterrupt))
    assert origins == ["built"] + ["disk"] * 4
    assert left(disk().path) == []


# --- Forks


def is_locked(store, name=KEY):
    def work():
        with store.lock(name, 0) as free:
            os._exit(0 if free else 1)

    pid = os.fork()
    if pid == 0:
        work()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


@pytest.mark.parametrize("leave", ["return", "raise"])
def test_a_child_that_comes_out_of_its_parents_build(store, leave):
    """It does not unlock what its parent is still building."""

    def make():
        nonlocal pid
        pid = os.fork()
        if pid == 0:
            if leave == "raise":
                raise SystemExit
            return entry(KEY)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert is_locked(store)
        return entry(KEY)

    pid = None
    try:
        found = fetch(KEY, make)
        if pid == 0:
            os._exit(0 if found.entry == entry(KEY) else 3)
    except SystemExit:
        os._exit(0)
    finally:
        if pid == 0:
            os._exit(4)
    assert found.entry == entry(KEY)
    assert not is_locked(store)
    assert left(store.path) == []


def test_a_child_that_outlives_its_parents_build_blocks_nobody(store):
    """Such as a worker that was forked by another thread, when its parent is killed."""
    building, begun = os.pipe()
    waiting, over = os.pipe()

    def make():
        if os.fork() == 0:
            os.close(over)
            os.write(begun, b"!")
            os.read(waiting, 1)
            os._exit(0)
        os.read(building, 1)
        die()

    assert in_child(lambda: fetch(KEY, make)) == signal.SIGKILL
    with store.lock(KEY, 0) as free:
        assert free
    begin = time.monotonic()
    assert get() == "built"
    assert time.monotonic() - begin < 20
    for descriptor in (building, begun, waiting, over):
        os.close(descriptor)


def test_a_fork_at_every_call(steps, monkeypatch):
    """Parent and child both do the rest of a build."""
    operation = OPERATIONS["build"]
    for root, number in steps(operation):
        acted, pids = [], []

        def act():
            acted.append(names[-1])
            pids.append(os.fork())

        try:
            with at_call(number, act) as names:
                operation.run()
        except BaseException:
            traceback.print_exc()
            if pids == [0]:
                os._exit(1)
            raise
        if pids == [0]:
            os._exit(0)
        if not acted:
            break
        assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 0
        check_sound(monkeypatch, operation, root)


# --- Locks that dead processes left


def test_an_old_lock_that_is_in_use_again_is_no_leftover(store):
    path = store.path / "v1" / "locks" / f"{KEY}.lock"
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    age(path, 5 * HOUR)
    with store.lock(KEY, 0) as free:
        assert free
        store.prune()
        store.clear()
        with store.lock(KEY, 0) as again:
            assert not again
    assert left(store.path) == []


@pytest.mark.parametrize("torn", [b"", b"12", b"-", b"1\n2", b"\0\0\0\0", b"9" * 30])
def test_a_torn_journal_costs_a_count(tmp_path, torn):
    store = filled(tmp_path, [100 - number for number in range(10)])
    (store.path / "v1" / "journal").write_bytes(torn)
    for number in range(20, 30):
        get(key(number))
    bigger = Disk(store.path, LIMIT)
    assert bigger.usage().entries >= 10
    for number in range(30, 40):
        store.store(key(number), entry(key(number)))
    assert store.usage().size <= store.limit_bytes + SIZE
    assert kept(store)[-1] == 39
