"""The user's directory in bad places: full, read-only or vanished, with clocks that go back, on a network.

See `test_faults` for what a fault may cost and what it may not.
"""

import errno
import fcntl
import itertools
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

import pytest
from support.common import failing, in_threads, refuse
from support.faults import (
    HOUR,
    KEY,
    LIMIT,
    OTHERS,
    SIZE,
    YEAR,
    age,
    at_call,
    caught,
    descriptors,
    die,
    entry,
    files,
    get,
    in_child,
    isolate,
    jump,
    key,
    left,
    use,
)

from cupar._base.warnings import CacheWarning
from cupar._cache import disk, fetch
from cupar._store import entry as _entry
from cupar._store.disk import Disk

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path)


@pytest.fixture
def store(tmp_path):
    """Return a directory that holds `OTHERS`, none of them used for two hours."""
    found = Disk(tmp_path / "cache", LIMIT)
    for name in OTHERS:
        found.store(name, entry(name))
        age(found.find(name), 2 * HOUR)
    return found


# --- Directories that take nothing


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


def check_refused(store):
    """Check a directory that takes nothing any more: it serves what it has, and that is said once."""
    for _ in range(2):
        assert [get(key(number)) for number in range(50, 55)] == ["built"] * 5
        assert [get(name) for name in OTHERS] == ["disk"] * 3
    before = store.usage()
    store.prune(size=0)
    store.clear()
    store.discard(OTHERS[0])
    assert store.usage() == before


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
        check_refused(store)
    (warning,) = said
    assert os.strerror(code) in str(warning.message)
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
        subprocess.run(["umount", "-l", place], check=False, capture_output=True)  # if it is there


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
        kept = {name for name, *_ in disk().entries()}
        assert 10 <= len(kept) < 60
        for name in kept:
            assert fetch(name, refuse).entry == entry(name, 30_000)
        disk().prune()
        assert kept == {name for name, *_ in disk().entries()}
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
        age(store.find(name), 2 * HOUR)
    subprocess.run(["mount", "-o", "remount,ro", root], check=True)
    with caught() as said:
        check_refused(store)
    (warning,) = said
    assert os.strerror(errno.EROFS) in str(warning.message)
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


# --- Limits on a process


def test_files_that_may_not_grow(store):
    """A disk that fills without a file system of one's own; a write begins and does not end."""

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))
        with caught() as said:
            for number in range(50, 55):
                assert get(key(number)) == "built"
                assert files(store.path / "v1" / "tmp") == []
            assert [get(name) for name in OTHERS] == ["disk"] * 3
        (warning,) = said
        assert os.strerror(errno.EFBIG) in str(warning.message)

    assert in_child(work) == 0
    assert store.usage().entries == 3


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


def test_a_working_directory_that_vanishes(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    use(monkeypatch, "kept")
    assert [get(), get()] == ["built", "disk"]
    shutil.rmtree(gone)
    monkeypatch.setenv("CUPAR_BUNDLES", "some.bundle")
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
        for name, *_ in Disk(path, LIMIT).entries():
            assert Disk(path, LIMIT).load(name) == entry(name)


# --- Clocks


def filled(tmp_path, ages):
    """Make a cache that has no room for more, whose entries were used so many seconds ago."""
    store = Disk(tmp_path / "cache", SIZE * len(ages))
    for number, seconds in enumerate(ages):
        store.store(key(number), entry(key(number)))
        age(store.find(key(number)), seconds)
    return store


def kept(store):
    names = {name for name, *_ in store.entries()}
    return [number for number in range(100) if key(number) in names]


@pytest.mark.parametrize(
    ("ages", "expected"),
    [
        # What was used before the clock went back is what was used longest ago.
        ([50, 40, 30, 20, -2 * HOUR - 10, -2 * HOUR - 20, 10, 8, 6, 4], [0, 1, 2, 3, 6, 7, 8, 9]),
        ([50, 40, 30, 20, -10 * YEAR - 20, -10 * YEAR - 10, -YEAR, 8, 6, 4], [0, 1, 2, 3, 4, 7, 8, 9]),
        # It may have gone back before all else: on a machine that believes it is 1970.
        ([-50 * YEAR - 10 * number for number in range(10)], [2, 3, 4, 5, 6, 7, 8, 9]),
        # Small steps, as when a clock is set by the network's, are not told from the clock of a server.
        ([50, 40, -10, -20, -30, 10, 8, 6, 4, 2], [2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_the_order_of_use_after_a_clock_went_back(tmp_path, ages, expected):
    store = filled(tmp_path, ages)
    store.store(key(50), entry(key(50)))
    assert kept(store) == [*expected, 50]
    store.prune(size=0)
    assert kept(store) == []


def test_a_use_makes_a_time_to_come_the_present(tmp_path):
    store = filled(tmp_path, [-YEAR] * 5 + [100] * 5)
    assert store.load(key(0)) == entry(key(0))
    assert abs(store.find(key(0)).stat().st_mtime - time.time()) < 600
    store.store(key(50), entry(key(50)))
    assert {0, 5, 6, 7, 8, 9, 50} <= set(kept(store))


@pytest.mark.parametrize("seconds", [-2 * HOUR, -10 * YEAR])
def test_what_was_unused_is_pruned_whatever_stands_before_it(tmp_path, seconds):
    store = filled(tmp_path, [seconds, 3 * HOUR, 10])
    assert store.prune(unused_for=HOUR).removed == 1
    assert kept(store) == [0, 2]


@pytest.mark.parametrize("seconds", [2 * HOUR, -2 * HOUR, -10 * YEAR])
def test_leftovers_go_whatever_their_time(store, seconds):
    for name in ("tmp/dead", "locks/dead.lock", "tmp/living"):
        path = store.path / "v1" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        age(path, seconds if "dead" in name else 100)
    with store.lock("living", 0):
        store.prune()
        assert sorted(path.name for path in left(store.path)) == ["living", "living.lock"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_where_there_are_no_locks_leftovers_go_by_their_time(store, monkeypatch, code):
    def refuse(*args):
        raise OSError(code, os.strerror(code))

    for name, seconds in {"old.lock": 2 * HOUR, "new.lock": 100}.items():
        path = store.path / "v1" / "locks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        age(path, seconds)
    monkeypatch.setattr(fcntl, "flock", refuse)
    store.clear()
    assert [path.name for path in left(store.path)] == ["new.lock"]


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


@pytest.mark.parametrize("number", range(10))
def test_a_stale_handle_once_costs_no_build(store, number):
    """The file is found when it is looked for again under the lock."""

    def stale():
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with caught() as said, at_call(number, stale) as names:
        assert fetch(OTHERS[0], refuse).entry == entry(OTHERS[0])
    assert len(names) > number and len(said) <= 1


def test_files_that_a_server_keeps_while_they_are_open(store):
    """What is removed and still open somewhere is renamed, and goes with who has it open."""
    usage = store.usage()
    shard = store.find(OTHERS[0]).parent
    (shard / ".nfs0000000000000001").write_bytes(b"an entry")
    store.find(OTHERS[1]).rename(shard / ".nfs0000000000000002")
    for place in ("tmp", "locks"):
        path = store.path / "v1" / place / ".nfs0000000000000003"
        path.write_text("")
        age(path, 2 * HOUR)
    with caught() as said:
        assert store.usage().entries == usage.entries - 1
        assert [get(name) for name in OTHERS] == ["disk", "built", "disk"]
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
    assert store.usage().entries == 4
    assert Disk(store.path, LIMIT).load(OTHERS[0]) == entry(OTHERS[0])


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO, errno.EBADF])
def test_a_server_without_locks(store, monkeypatch, code):
    monkeypatch.setattr(fcntl, "flock", failing(code))
    with caught() as said:
        assert [get(), get()] == ["built", "disk"]
        assert [found.origin for found in in_threads(4, lambda: fetch(key(50), lambda: entry(key(50))))]
        store.prune(size=2 * SIZE)
        assert store.usage().entries <= 2
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
        assert [get(name) for name in (*OTHERS, KEY, KEY)] == ["disk"] * 3 + ["built", "disk"]
        with store.lock(KEY, 0) as first, store.lock(KEY, 0) as second:
            assert (first, second) == (True, False)
    assert said == []


# --- Threads and forks


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


def is_locked(store):
    """Tell whether another process could not lock what this one builds."""

    def work():
        with store.lock(KEY, 0) as free:
            if not free:
                die()

    return in_child(work) == signal.SIGKILL


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


# --- What dead processes left


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
