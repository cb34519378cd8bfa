"""The cache in one process: what it keeps, what it refuses, what it drops and what it says."""

import errno
import fcntl
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.common import failing, fresh_cache, in_threads, refuse
from support.interrupts import each_interrupt

from cupar import _cache
from cupar._base.warnings import CacheWarning
from cupar._cache import Stats, disk, fetch
from cupar._store import disk as _disk
from cupar._store import entry as _entry
from cupar._store import settings as _settings
from cupar._store.disk import Disk
from cupar._store.entry import Entry
from cupar._store.layer import Usage
from cupar._store.memory import SingleFlightCache

KEY = hashlib.sha256(b"a").hexdigest()
OTHER = hashlib.sha256(b"b").hexdigest()
ENTRY = Entry({"algorithm": "reduce", "cc": 90}, b"\x7fELF\n" + bytes(range(256)))
LIMIT = 1 << 30

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
metas = st.dictionaries(st.text(), json_values, max_size=5)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    fresh_cache(monkeypatch, tmp_path)


@pytest.fixture
def store(tmp_path):
    return Disk(tmp_path / "cache", LIMIT)


@contextmanager
def caught():
    """Collect all warnings, however often each is given."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def stored(store, name=KEY):
    (path,) = [each.where for each in store.entries() if each.key == name]
    return Path(path)


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


# --- What is kept


class TestRoundTrip:
    @given(metas, st.binary())
    @example({}, b"")
    @example({"line": "a\nb"}, b"\n\n")
    @settings(max_examples=50, deadline=None)
    def test_whatever_is_stored_comes_back(self, meta, payload):
        with tempfile.TemporaryDirectory() as root:
            store = Disk(Path(root), LIMIT)
            store.store(KEY, Entry(meta, payload))
            assert store.load(KEY) == Entry(meta, payload)

    def test_nothing_is_none(self, store):
        assert store.load(KEY) is None
        store.store(KEY, ENTRY)
        assert store.load(OTHER) is None

    def test_another_object_reads_it(self, store, tmp_path):
        store.store(KEY, ENTRY)
        assert Disk(tmp_path / "cache", LIMIT).load(KEY) == ENTRY

    def test_the_last_store_counts(self, store):
        store.store(KEY, Entry({}, b"first"))
        store.store(KEY, ENTRY)
        assert store.load(KEY) == ENTRY
        assert store.usage().entries == 1

    def test_two_lines_tell_a_person_what_it_is(self, store, tmp_path):
        store.store(KEY, ENTRY)
        path = stored(store)
        assert path == tmp_path / "cache" / "v1" / KEY[:2] / f"{KEY}.cupar"
        head, meta, payload = path.read_bytes().split(b"\n", 2)
        assert head.split()[:2] == [b"cupar-entry", b"1"]
        assert json.loads(meta) == ENTRY.meta
        assert payload == ENTRY.payload

    def test_metadata_that_is_no_json_is_the_callers_mistake(self, store):
        with pytest.raises(TypeError):
            store.store(KEY, Entry({"cc": object()}, b""))

    def test_nothing_is_left_aside(self, store):
        store.store(KEY, ENTRY)
        assert list((store.path / "v1" / "tmp").iterdir()) == []

    def test_entries_usage_clear(self, store):
        assert store.usage() == Usage(0, 0, LIMIT)
        store.store(KEY, ENTRY)
        store.store(OTHER, ENTRY)
        assert {name for name, *_ in store.entries()} == {KEY, OTHER}
        assert all(Path(each.where).stat().st_size == each.size for each in store.entries())
        assert store.usage() == Usage(2, sum(each.size for each in store.entries()), LIMIT)
        store.clear()
        assert store.usage().entries == 0
        assert store.load(KEY) is None
        store.store(KEY, ENTRY)
        assert store.load(KEY) == ENTRY


@pytest.mark.parametrize("umask", [0, 0o022, 0o277])
def test_directories_and_files_are_private_whatever_the_umask(tmp_path, umask):
    store = Disk(tmp_path / "made" / "too" / "cache", LIMIT)
    before = os.umask(umask)
    try:
        store.store(KEY, ENTRY)
        with store.lock(KEY, 0):
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "made").rglob("*")}
    finally:
        os.umask(before)
    assert store.load(KEY) == ENTRY
    assert {path.suffix for path in modes} >= {".cupar", ".lock"}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


# --- What is refused


class TestDamage:
    """Files that are not what was stored: never served, removed, said once."""

    def gone(self, store, path):
        """Check that an entry is not served and is removed, and return what was said."""
        with caught() as said:
            assert store.load(KEY) is None
        assert not os.path.lexists(path)
        assert [warning.category for warning in said] == [CacheWarning] * len(said)
        return [str(warning.message) for warning in said]

    @given(st.data())
    @settings(deadline=None, max_examples=300)
    def test_any_altered_byte(self, data):
        self.altered(
            lambda whole: flip(
                whole, data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
            )
        )

    def test_each_byte_of_the_header(self):
        for index in range(110):
            self.altered(lambda whole, index=index: flip(whole, index, 1))

    @given(st.data())
    @settings(deadline=None)
    def test_any_truncation(self, data):
        self.altered(lambda whole: whole[: data.draw(st.integers(0, len(whole) - 1))])

    @given(st.binary(min_size=1))
    @settings(deadline=None)
    def test_any_extension(self, more):
        self.altered(lambda whole: whole + more)

    def altered(self, alter):
        with tempfile.TemporaryDirectory() as root:
            store = Disk(Path(root), LIMIT)
            store.store(KEY, ENTRY)
            path = stored(store)
            path.write_bytes(alter(path.read_bytes()))
            self.gone(store, path)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\n",
            b"cupar-entry 1",
            b"x" * 100_000,
            b"cupar-entry 1 " + b"0" * 64 + b" 999999999999999 999999999999999\n",
            b"cupar-entry 1 " + b"0" * 64 + b" -1 1\n",
            b"cupar-entry 1 " + b"0" * 64 + b" " + b"9" * 5000 + b" 1\n",
        ],
    )
    def test_foreign_content(self, store, content):
        store.store(KEY, ENTRY)
        path = stored(store)
        path.write_bytes(content)
        self.gone(store, path)

    def test_a_checksum_does_not_make_nonsense_an_entry(self, store):
        store.store(KEY, ENTRY)
        path = stored(store)
        for meta in (b"[1]\n", b"{\n", b"\xff\n"):
            path.write_bytes(_entry._header(KEY, meta, b"") + meta)
            self.gone(store, path)

    def test_an_entry_under_another_key(self, store):
        store.store(OTHER, ENTRY)
        path = store.path / "v1" / KEY[:2] / f"{KEY}.cupar"
        path.parent.mkdir(exist_ok=True)
        stored(store, OTHER).rename(path)
        self.gone(store, path)

    def test_another_format(self, store, monkeypatch):
        store.store(KEY, ENTRY)
        with monkeypatch.context() as patch:
            patch.setattr(_entry, "FORMAT", 2)
            later = _entry.encode(KEY, ENTRY)
        stored(store).write_bytes(later)
        self.gone(store, stored(store))

    def test_a_symbolic_link(self, store, tmp_path):
        store.store(KEY, ENTRY)
        path = stored(store)
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
        self.gone(store, path)
        assert (tmp_path / "elsewhere").exists()

    def test_a_pipe(self, store):
        store.store(KEY, ENTRY)
        path = stored(store)
        path.unlink()
        os.mkfifo(path)
        self.gone(store, path)

    def test_a_directory(self, store):
        store.store(KEY, ENTRY)
        path = stored(store)
        path.unlink()
        path.mkdir()
        with pytest.warns(CacheWarning, match="is not a file"):
            assert store.load(KEY) is None

    def test_it_is_said_once_and_rebuilt(self, store):
        for name in (KEY, OTHER):
            store.store(name, ENTRY)
            stored(store, name).write_bytes(b"")
        path = stored(store)
        (said,) = self.gone(store, path)
        assert KEY in said and str(store.path) in said and "built again" in said
        with caught() as again:
            assert store.load(OTHER) is None
            store.store(KEY, ENTRY)
            assert store.load(KEY) == ENTRY
        assert not again


def flip(whole, index, mask):
    return whole[:index] + bytes([whole[index] ^ mask]) + whole[index + 1 :]


class TestRefusals:
    """Whatever the system refuses: a build each, one warning, no exception."""

    def check(self, root, said="Builds will not be kept"):
        store = Disk(root, LIMIT)
        with caught() as found:
            for number in range(5):
                with store.lock(key(number), 0) as free:
                    assert free
                    assert store.load(key(number)) is None
                    store.store(key(number), Entry({}, bytes(100_000)))
            store.clear()
            assert store.usage() == Usage(0, 0, LIMIT)
        (warning,) = found
        assert warning.category is CacheWarning
        assert str(root) in str(warning.message) and said in str(warning.message)

    def test_a_file_in_place_of_the_directory(self, tmp_path):
        (tmp_path / "cache").write_text("")
        self.check(tmp_path / "cache")

    def test_a_file_in_place_of_a_parent(self, tmp_path):
        (tmp_path / "parent").write_text("")
        self.check(tmp_path / "parent" / "cache")

    @pytest.mark.parametrize("inner", ["v1", "v1/tmp", f"v1/{key(0)[:2]}"])
    def test_a_file_in_place_of_an_inner_directory(self, tmp_path, inner):
        path = tmp_path / "cache" / inner
        path.parent.mkdir(0o700, parents=True)
        path.write_text("")
        with caught() as found:
            assert fetch(key(0), lambda: ENTRY).origin == "built"
        assert [warning.category for warning in found] == [CacheWarning]

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
    def test_a_place_where_nothing_can_be_made(self):
        self.check(Path("/proc/cupar/cache"))

    def test_a_name_too_long(self, tmp_path):
        self.check(tmp_path / ("x" * 300))

    def test_a_loop_of_links(self, tmp_path):
        (tmp_path / "cache").symlink_to(tmp_path / "cache")
        self.check(tmp_path / "cache")

    @pytest.mark.parametrize(("owner", "call"), [(Path, "replace"), (Path, "mkdir"), (os, "fdopen")])
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
    def test_a_call_that_fails(self, tmp_path, monkeypatch, owner, call, code):
        monkeypatch.setattr(owner, call, failing(code))
        self.check(tmp_path / "cache", os.strerror(code))

    def test_a_failed_store_leaves_nothing_aside(self, store, monkeypatch):
        monkeypatch.setattr(Path, "replace", failing(errno.ENOSPC))
        with pytest.warns(CacheWarning):
            store.store(KEY, ENTRY)
        assert list((store.path / "v1" / "tmp").iterdir()) == []

    def test_it_still_reads(self, store, monkeypatch):
        store.store(KEY, ENTRY)
        monkeypatch.setattr(Path, "replace", failing(errno.EROFS))
        with caught() as found:
            store.store(OTHER, ENTRY)
            assert store.load(KEY) == ENTRY
        assert len(found) == 1

    @pytest.mark.parametrize("options", ["size=64k,mode=700", "ro,mode=700"])
    def test_a_full_or_read_only_file_system(self, tmp_path, options):
        root = tmp_path / "mounted"
        root.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(root)]
        try:
            subprocess.run(mount, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("may not mount")
        try:
            self.check(root)
        finally:
            subprocess.run(["umount", str(root)], check=True)

    def test_a_vanished_directory_is_made_again(self, store):
        store.store(KEY, ENTRY)
        store.path.rename(store.path.with_name("gone"))
        assert store.load(KEY) is None
        store.store(KEY, ENTRY)
        assert store.load(KEY) == ENTRY

    def test_each_directory_has_its_warning(self, tmp_path):
        (tmp_path / "file").write_text("")
        with caught() as found:
            for name in ("a", "b", "a", "b"):
                Disk(tmp_path / "file" / name, LIMIT).store(KEY, ENTRY)
        assert len(found) == 2


def test_an_interrupt_of_one_thread_is_not_for_the_others():
    memory, started, calls = SingleFlightCache(4), threading.Event(), []

    def make():
        calls.append(threading.get_ident())
        if len(calls) == 1:
            started.set()
            time.sleep(0.2)
            raise KeyboardInterrupt
        return "made"

    def interrupted():
        with suppress(KeyboardInterrupt):
            memory.get_or_make("key", make)

    first = threading.Thread(target=interrupted)
    first.start()
    started.wait()
    assert memory.get_or_make("key", make) == "made"
    first.join()
    assert len(calls) == 2


class TestForeignDirectories:
    @pytest.mark.parametrize("inner", ["cache", "cache/v1"])
    @pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
    def test_others_may_write(self, store, tmp_path, inner, mode):
        store.store(KEY, ENTRY)
        (tmp_path / inner).chmod(mode)
        self.check_unused(f"chmod 700 {tmp_path / inner}")
        (tmp_path / inner).chmod(0o755)
        assert disk().load(KEY) == ENTRY

    def owned_by(self, monkeypatch, uid):
        real = os.stat_result

        def owned(status):
            fields = list(status)
            fields[4] = uid
            return real(fields)

        for owner, call in ((Path, "stat"), (Path, "lstat"), (os, "fstat")):
            before = getattr(owner, call)
            monkeypatch.setattr(owner, call, lambda *a, _before=before, **k: owned(_before(*a, **k)))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def test_another_owner(self, store, monkeypatch):
        store.store(KEY, ENTRY)
        self.owned_by(monkeypatch, 1001)
        self.check_unused("another user (uid 1001)")

    def test_root_may_have_made_it(self, store, monkeypatch):
        """An image made by root and run as another user."""
        store.store(KEY, ENTRY)
        self.owned_by(monkeypatch, 0)
        _cache._disk_at.cache_clear()
        assert disk().load(KEY) == ENTRY

    def check_unused(self, said):
        _cache._disk_at.cache_clear()
        with caught() as found:
            for _ in range(3):
                assert disk() is None
                assert fetch(KEY, lambda: Entry({}, b"new")).entry.payload == b"new"
            direct = Disk(Path(os.environ["CUPAR_CACHE_DIR"]), LIMIT)
            assert direct.load(KEY) is None
            direct.store(OTHER, ENTRY)
            assert direct.usage().entries == 1
        (warning,) = found
        assert said in str(warning.message) and "CUPAR_CACHE_DIR" in str(warning.message)


class TestInnerDirectories:
    """The target of a link in the cache does not belong to the cache."""

    @pytest.mark.parametrize("name", ["tmp", "locks"])
    def test_links_are_not_followed(self, store, tmp_path, name):
        store.store(OTHER, ENTRY)
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "old").write_text("")
        age(precious / "old", 10_000)
        inner = store.path / "v1" / name
        if inner.exists():
            inner.rmdir()
        inner.symlink_to(precious)
        with caught():
            store.prune()
            store.store(KEY, ENTRY)
            with store.lock(KEY, 0) as free:
                assert free
                assert [path.name for path in precious.iterdir()] == ["old"]
            store.clear()
        assert [path.name for path in precious.iterdir()] == ["old"]

    def test_checking_a_directory_that_is_not_used_says_so(self, store):
        store.store(KEY, ENTRY)
        store.path.chmod(0o777)
        found = dict(Disk(store.path, LIMIT).check())
        assert "can be written by others" in found[str(store.path)]

    def test_what_is_no_entry_is_not_counted(self, store):
        store.store(KEY, ENTRY)
        (store.path / "v1" / "ju").mkdir()
        (store.path / "v1" / "ju" / "junk.cupar").write_bytes(b"x")
        assert store.usage().entries == 1

    def test_a_file_that_says_it_is_huge_is_not_read(self, store):
        store.store(KEY, ENTRY)
        path, size = stored(store), 1 << 42
        header = b"cupar-entry 1 " + b"0" * 64 + b" 3 "
        length = size - len(header) - len(str(size)) - 1 - 3
        path.write_bytes(header + b"%d\n" % length)
        os.truncate(path, len(header) + len(str(length)) + 1 + 3 + length)
        with pytest.warns(CacheWarning, match="damaged"):
            assert store.load(KEY) is None


# --- What is dropped


class TestEviction:
    SIZE = len(_entry.encode(KEY, ENTRY))

    def filled(self, tmp_path, number, limit):
        """Make a cache with entries 0, 1, …, the first used longest ago."""
        store = Disk(tmp_path / "cache", limit)
        for index in range(number):
            store.store(key(index), ENTRY)
        for index in range(number):
            age(stored(store, key(index)), 3000 - index)
        return store

    def kept(self, store):
        names = {name for name, *_ in store.entries()}
        return [index for index in range(100) if key(index) in names]

    def test_nothing_goes_below_the_limit(self, tmp_path):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        assert self.kept(store) == list(range(10))

    def test_the_least_recently_used_go(self, tmp_path):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        age(stored(store, key(0)), 10)
        store.store(key(10), ENTRY)
        assert self.kept(store) == [0, 3, 4, 5, 6, 7, 8, 9, 10]
        assert store.usage().size <= 0.9 * 10 * self.SIZE

    def test_what_was_just_written_stays(self, tmp_path):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        for name, _, _, path in store.entries():
            age(path, -10_000 - int(name[:2], 16))  # a clock that is ahead
        big = Entry({}, bytes(10 * self.SIZE - 200))
        store.store(key(50), big)
        assert self.kept(store) == [50]
        assert store.load(key(50)) == big

    def test_what_exceeds_the_limit_alone_is_not_stored(self, tmp_path):
        store = self.filled(tmp_path, 3, 10 * self.SIZE)
        with caught() as found:
            for index in (50, 51):
                store.store(key(index), Entry({}, bytes(10 * self.SIZE)))
        assert self.kept(store) == [0, 1, 2]
        (warning,) = found
        assert "CUPAR_CACHE_SIZE" in str(warning.message)

    def test_a_hit_is_a_use(self, tmp_path):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        for index in range(10):
            age(stored(store, key(index)), 20_000 - index)
        assert store.load(key(0)) == ENTRY
        store.store(key(10), ENTRY)
        assert 0 in self.kept(store)

    def test_a_hit_writes_once_an_hour(self, store, monkeypatch):
        store.store(KEY, ENTRY)
        with monkeypatch.context() as patch:
            patch.setattr(os, "utime", refuse)
            store.load(KEY)
        age(stored(store), 4000)
        store.load(KEY)
        assert time.time() - stored(store).stat().st_mtime < 100

    def test_a_hit_that_cannot_write_is_a_hit(self, store, monkeypatch):
        store.store(KEY, ENTRY)
        age(stored(store), 4000)
        monkeypatch.setattr(os, "utime", failing(errno.EROFS))
        assert store.load(KEY) == ENTRY

    def test_a_smaller_limit_takes_effect(self, tmp_path):
        self.filled(tmp_path, 10, LIMIT)
        Disk(tmp_path / "cache", 5 * self.SIZE).store(key(10), ENTRY)
        assert self.kept(Disk(tmp_path / "cache", LIMIT)) == [7, 8, 9, 10]

    @pytest.mark.parametrize("content", [None, b"garbage\n", b"12\n-5\n", b"\xff\x00", b"1\n" * 3000])
    def test_a_journal_that_is_no_good_is_made_anew(self, tmp_path, content):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        journal = tmp_path / "cache" / "v1" / "journal"
        journal.unlink() if content is None else journal.write_bytes(content)
        store.store(key(10), ENTRY)
        assert self.kept(store) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
        assert journal.read_bytes() == b"%d\n" % (9 * self.SIZE)

    def test_a_journal_that_is_a_link_is_replaced(self, tmp_path):
        store = self.filled(tmp_path, 1, LIMIT)
        journal = tmp_path / "cache" / "v1" / "journal"
        (tmp_path / "precious").write_bytes(b"1\n")
        journal.unlink()
        journal.symlink_to(tmp_path / "precious")
        store.store(key(1), ENTRY)
        assert not journal.is_symlink()
        assert (tmp_path / "precious").read_bytes() == b"1\n"

    def test_the_journal_stays_short(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_disk, "_JOURNAL_BYTES", 100)
        store = self.filled(tmp_path, 60, LIMIT)
        assert (tmp_path / "cache" / "v1" / "journal").stat().st_size <= 110
        assert store.usage().entries == 60

    def test_what_dead_processes_left_goes(self, tmp_path):
        store = self.filled(tmp_path, 1, LIMIT)
        for name in ("tmp/old", "tmp/new", "locks/old.lock", "locks/new.lock"):
            path = tmp_path / "cache" / "v1" / name
            path.write_text("")
            if "old" in name:
                age(path, 4000)
        (tmp_path / "cache" / "v1" / "journal").unlink()
        with store.lock("held", 0):
            store.store(KEY, ENTRY)
            left = [
                path.name
                for name in ("tmp", "locks")
                for path in (tmp_path / "cache" / "v1" / name).iterdir()
            ]
        assert left == ["new", "held.lock"]

    def test_who_finds_a_sweep_under_way_goes_on(self, tmp_path):
        store = self.filled(tmp_path, 10, 10 * self.SIZE)
        with store.lock("sweep", 0):
            store.store(key(10), ENTRY)
        assert len(self.kept(store)) == 11
        store.store(key(11), ENTRY)
        assert len(self.kept(store)) == 9


class TestScale:
    """Neither a lookup nor, as a rule, a store looks at what else there is."""

    @pytest.fixture
    def no_listing(self, store, monkeypatch):
        store.store(OTHER, ENTRY)
        for name in ("scandir", "listdir", "walk"):
            monkeypatch.setattr(os, name, refuse)

    @pytest.mark.usefixtures("no_listing")
    def test_loading_lists_nothing(self, tmp_path):
        fresh = Disk(tmp_path / "cache", 1)
        assert fresh.load(OTHER) == ENTRY
        assert fresh.load(KEY) is None

    @pytest.mark.usefixtures("no_listing")
    def test_storing_lists_nothing_below_the_limit(self, store):
        store.store(KEY, ENTRY)
        assert store.load(KEY) == ENTRY

    @pytest.mark.usefixtures("no_listing")
    def test_a_hit_takes_no_lock(self, store, monkeypatch):
        monkeypatch.setattr(Disk, "lock", refuse)
        assert fetch(OTHER, refuse).entry == ENTRY


# --- The environment


class TestEnvironment:
    @pytest.mark.parametrize("value", ["0", "off", "OFF", "false", "No", " 0 "])
    def test_switched_off(self, monkeypatch, tmp_path, value):
        monkeypatch.setenv("CUPAR_CACHE", value)
        assert disk() is None
        assert fetch(KEY, lambda: ENTRY).origin == "built"
        assert not (tmp_path / "cache").exists()

    @pytest.mark.parametrize("value", ["", "1", "on"])
    def test_not_switched_off(self, monkeypatch, value):
        monkeypatch.setenv("CUPAR_CACHE", value)
        assert disk() is not None

    def test_the_same_object_until_it_changes(self, monkeypatch, tmp_path):
        first = disk()
        assert first.path == tmp_path / "cache"
        assert disk() is first
        monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
        assert disk().path == tmp_path / "other"

    def test_home(self, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("CUPAR_CACHE_DIR", "~/kept")
        assert disk().path == tmp_path / "kept"

    def test_relative(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CUPAR_CACHE_DIR", "kept")
        assert disk().path == tmp_path / "kept"

    @pytest.mark.parametrize("value", [None, ""])
    def test_the_platforms_place(self, monkeypatch, tmp_path, value):
        monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, appauthor: str(tmp_path / name))
        if value is None:
            monkeypatch.delenv("CUPAR_CACHE_DIR")
        else:
            monkeypatch.setenv("CUPAR_CACHE_DIR", value)
        assert disk().path == tmp_path / "cupar"

    @pytest.mark.parametrize("value", ["", "~nobody-of-this-name/cache"])
    def test_no_home(self, monkeypatch, value):
        monkeypatch.setattr("platformdirs.user_cache_dir", lambda name, appauthor: "~/.cache/cupar")
        monkeypatch.setenv("CUPAR_CACHE_DIR", value)
        with caught() as found:
            assert [disk(), disk()] == [None, None]
        (warning,) = found
        assert "no home" in str(warning.message)

    @pytest.mark.parametrize(
        ("text", "size"),
        [
            ("", 2 << 30),
            ("0", 0),
            ("1000", 1000),
            ("10B", 10),
            ("5k", 5 << 10),
            ("5M", 5 << 20),
            ("5MB", 5 << 20),
            (" 5 GiB ", 5 << 30),
            ("1tib", 1 << 40),
        ],
    )
    def test_size(self, monkeypatch, text, size):
        monkeypatch.setenv("CUPAR_CACHE_SIZE", text)
        assert disk().limit_bytes == size

    @pytest.mark.parametrize("text", ["-1", "many", "1.5G", "5X", "G", "٣", "5\N{KELVIN SIGN}", "9" * 5000])
    def test_invalid_size(self, monkeypatch, text):
        monkeypatch.setenv("CUPAR_CACHE_SIZE", text)
        with caught() as found:
            assert [disk().limit_bytes, disk().limit_bytes] == [2 << 30, 2 << 30]
        (warning,) = found
        assert warning.category is CacheWarning and "CUPAR_CACHE_SIZE" in str(warning.message)

    @pytest.mark.parametrize(("text", "seconds"), [("", 120), ("0", 0), ("0.5", 0.5), ("inf", float("inf"))])
    def test_lock_timeout(self, monkeypatch, text, seconds):
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", text)
        assert _settings.lock_timeout() == seconds

    @pytest.mark.parametrize("text", ["-1", "nan", "soon"])
    def test_invalid_lock_timeout(self, monkeypatch, text):
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", text)
        with pytest.warns(CacheWarning, match="CUPAR_LOCK_TIMEOUT"):
            assert _settings.lock_timeout() == 120


# --- fetch


class TestFetch:
    def test_built_then_disk(self):
        made = fetch(KEY, lambda: ENTRY)
        assert (made.entry, made.origin) == (ENTRY, "built")
        start = time.perf_counter()
        found = fetch(KEY, refuse)
        assert (found.entry, found.origin) == (ENTRY, "disk")
        assert 0 < found.seconds < time.perf_counter() - start

    def test_seconds_are_those_of_make(self):
        start = time.perf_counter()
        found = fetch(KEY, lambda: time.sleep(0.05) or ENTRY)
        assert 0.05 <= found.seconds < time.perf_counter() - start

    @pytest.mark.parametrize("error", [ValueError("no"), OSError("no"), StopIteration(), KeyboardInterrupt()])
    def test_exceptions_pass_unchanged_and_leave_nothing(self, tmp_path, error):
        def fail():
            raise error

        handled = sys.exc_info()[1]  # interrupts that a trace function raised may have left one
        with pytest.raises(type(error)) as caught:
            fetch(KEY, fail)
        assert caught.value is error
        assert error.__context__ is handled and error.__cause__ is None
        assert [path for path in (tmp_path / "cache").rglob("*") if not path.is_dir()] == []
        assert fetch(KEY, lambda: ENTRY).origin == "built"

    def test_the_lock_is_gone_after_a_build(self, tmp_path):
        fetch(KEY, lambda: ENTRY)
        assert list((tmp_path / "cache" / "v1" / "locks").iterdir()) == []

    def test_a_build_may_fetch_its_template(self):
        def build():
            return Entry({}, fetch(OTHER, lambda: ENTRY).entry.payload + b"linked")

        assert fetch(KEY, build).entry.payload == ENTRY.payload + b"linked"
        assert fetch(OTHER, refuse).origin == "disk"

    def test_threads_build_once(self):
        made = []

        def make():
            made.append(1)
            time.sleep(0.1)
            return ENTRY

        found = in_threads(4, lambda: fetch(KEY, make))
        assert made == [1]
        assert sorted(one.origin for one in found) == ["built", "disk", "disk", "disk"]

    def test_threads_with_different_keys_do_not_wait(self):
        both = threading.Barrier(2, timeout=20)
        keys = iter([KEY, OTHER])
        found = in_threads(2, lambda: fetch(next(keys), lambda: Entry({}, b"%d" % both.wait())))
        assert {one.entry.payload for one in found} == {b"0", b"1"}

    def test_a_lock_held_too_long(self, monkeypatch, store):
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", "0.1")
        with store.lock(KEY, 0) as free, store.lock(OTHER, 0), caught() as found:
            assert free
            assert fetch(KEY, lambda: ENTRY).origin == "built"
            assert fetch(OTHER, lambda: ENTRY).origin == "built"
            assert fetch(KEY, refuse).origin == "disk"
        (warning,) = found
        assert warning.category is CacheWarning and "CUPAR_LOCK_TIMEOUT" in str(warning.message)

    def test_a_warning_made_an_error_leaves_no_lock(self, monkeypatch, store):
        monkeypatch.setattr(Path, "replace", failing(errno.ENOSPC))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(CacheWarning):
                fetch(KEY, lambda: ENTRY)
        with store.lock(KEY, 0) as free:
            assert free

    @pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
    def test_a_file_system_without_locks(self, monkeypatch, code):
        monkeypatch.setattr(fcntl, "flock", failing(code))
        assert fetch(KEY, lambda: ENTRY).origin == "built"
        assert fetch(KEY, refuse).origin == "disk"

    def test_a_directory_that_vanishes_during_a_build(self, tmp_path):
        def make():
            (tmp_path / "cache").rename(tmp_path / "gone")
            return ENTRY

        assert fetch(KEY, make).origin == "built"
        assert fetch(KEY, refuse).origin == "disk"


# --- Memory


class TestMemory:
    def test_get(self):
        memory = SingleFlightCache(2)
        assert memory.get("a") is None
        assert memory.get_or_make("a", lambda: 1) == 1
        assert memory.get("a") == 1
        assert memory.get_or_make("a", refuse) == 1
        assert len(memory) == 1
        memory.clear()
        assert len(memory) == 0
        assert memory.get("a") is None

    def test_none_is_a_value(self):
        memory = SingleFlightCache(2)
        assert memory.get_or_make(("any", 1), lambda: None) is None
        assert memory.get_or_make(("any", 1), refuse) is None

    def test_the_least_recently_used_goes(self):
        memory = SingleFlightCache(2)
        for name in "ab":
            memory.get_or_make(name, lambda: 1)
        memory.get("a")
        memory.get_or_make("c", lambda: 1)
        assert [memory.get(name) for name in "abc"] == [1, None, 1]
        assert len(memory) == 2

    @pytest.mark.parametrize("maxsize", [0, -1])
    def test_maxsize(self, maxsize):
        with pytest.raises(ValueError, match="maxsize"):
            SingleFlightCache(maxsize)

    def test_an_interrupt_at_any_place_leaves_it_whole(self, ctrl_c):
        memory = SingleFlightCache(2)

        def ask():
            nonlocal memory
            memory = SingleFlightCache(2)
            for name in "aabc":
                memory.get_or_make(name, lambda name=name: name)

        def check():
            found = in_threads(
                3, lambda: [memory.get_or_make(name, lambda name=name: name) for name in "abcd"]
            )
            assert found == [[*"abcd"]] * 3
            assert len(memory) == 2

        assert each_interrupt(ask, check) > 50

    def test_what_goes_is_destroyed_outside_of_the_lock(self):
        memory, seen = SingleFlightCache(1), []

        class Value:
            def __del__(self):
                seen.append(in_threads(1, lambda: memory.get("b")))

        memory.get_or_make("a", Value)
        memory.get_or_make("b", lambda: "second")
        memory.get_or_make("c", Value)
        memory.clear()
        assert seen == [["second"], [None]]

    def test_sixty_four_threads_make_one_value(self):
        memory, made = SingleFlightCache(4), []

        def make():
            made.append(1)
            time.sleep(0.1)
            return object()

        values = in_threads(64, lambda: memory.get_or_make("a", make))
        assert made == [1]
        assert len(set(map(id, values))) == 1

    def test_keys_do_not_wait_for_each_other(self):
        memory, both = SingleFlightCache(4), threading.Barrier(2, timeout=20)
        keys = iter("ab")
        assert sorted(in_threads(2, lambda: memory.get_or_make(next(keys), both.wait))) == [0, 1]

    def test_an_exception_reaches_all_and_the_next_tries_again(self):
        memory, error, made = SingleFlightCache(4), ValueError("no"), []

        def make():
            made.append(1)
            time.sleep(0.2)
            raise error

        assert in_threads(8, lambda: memory.get_or_make("a", make)) == [error] * 8
        assert made == [1]
        assert memory.get_or_make("a", lambda: 5) == 5

    def test_a_value_that_needs_itself(self):
        memory = SingleFlightCache(4)
        with pytest.raises(RuntimeError, match="itself"):
            memory.get_or_make("a", lambda: memory.get_or_make("a", refuse))
        assert memory.get_or_make("a", lambda: 5) == 5

    def test_a_value_that_needs_another(self):
        memory = SingleFlightCache(4)
        assert memory.get_or_make("a", lambda: memory.get_or_make("b", lambda: 5) + 1) == 6

    @pytest.mark.parametrize(
        "drop", [lambda memory: memory.clear(), lambda memory: memory.get_or_make("b", int)]
    )
    def test_values_are_destroyed_outside_of_the_lock(self, drop):
        memory, lengths = SingleFlightCache(1), []

        class Value:
            def __del__(self):
                lengths.extend(in_threads(1, lambda: len(memory)))

        memory.get_or_make("a", Value)
        drop(memory)
        assert lengths in ([0], [1])

    def test_clearing_during_a_build(self):
        memory = SingleFlightCache(4)
        assert memory.get_or_make("a", lambda: memory.clear() or 5) == 5
        assert memory.get("a") == 5


class TestStats:
    def test_counts(self):
        for origin in ("memory", "disk", "linked", "built", "memory"):
            _cache.count(origin)
        assert _cache.stats() == Stats(memory=2, disk=1, linked=1, built=1)
        _cache.reset_stats()
        assert _cache.stats() == Stats()

    def test_another_origin_is_a_mistake(self):
        with pytest.raises(KeyError):
            _cache.count("elsewhere")

    def test_threads(self):
        in_threads(8, lambda: [_cache.count("memory") for _ in range(1000)])
        assert _cache.stats().memory == 8000


class TestOthers:
    """Bundles and shared stores, as far as they are named."""

    def test_an_empty_signing_key_trusts_nothing(self, monkeypatch, tmp_path):
        Disk(tmp_path / "lower", LIMIT).store(KEY, ENTRY)
        monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "lower"))
        monkeypatch.setenv("CUPAR_SHARED", "memory://cupar-empty-key")
        monkeypatch.setenv("CUPAR_SIGNING_KEY", "")
        with caught() as said:
            assert _cache.bundles() == ()
            assert _cache.shared() is None
            assert fetch(KEY, lambda: Entry({}, b"made")).entry.payload == b"made"
        (warning,) = said
        assert "CUPAR_SIGNING_KEY is empty" in str(warning.message)
        monkeypatch.delenv("CUPAR_SIGNING_KEY")
        assert len(_cache.bundles()) == 1

    @pytest.mark.parametrize("path", ["", "/", "nothing-here"])
    def test_what_is_no_cache_is_not_used(self, monkeypatch, tmp_path, path):
        monkeypatch.chdir(tmp_path)
        with pytest.raises((ValueError, FileNotFoundError)):
            _cache.use_bundle(path)

    def test_a_directory_that_others_can_write_is_not_used(self, tmp_path):
        Disk(tmp_path / "lower", LIMIT).store(KEY, ENTRY)
        (tmp_path / "lower").chmod(0o777)
        with pytest.raises(ValueError, match="can be written by others"):
            _cache.use_bundle(tmp_path / "lower")

    def test_a_warning_tells_the_users_line(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "none"))
        with caught() as said:
            fetch(KEY, lambda: ENTRY)
        assert [warning.filename for warning in said] == [__file__]
