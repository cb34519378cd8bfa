"""Bundles: what they hold, what they refuse, and what becomes of one that changes while it is in use."""

import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import operations
from support.common import failing, refuse

from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._base.warnings import CacheWarning
from cupar._cache import fetch
from cupar._store import bundle as _bundle
from cupar._store import entry as _entry
from cupar._store import opened
from cupar._store.bundle import Bundle, write
from cupar._store.disk import Disk
from cupar._store.entry import Entry
from cupar._store.layer import Usage

SECRET = b"a secret"


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def entry(number):
    return Entry(
        {"algorithm": "reduce", "number": number}, b"\x7fELF\n" + bytes(number % 256 for _ in range(300))
    )


def sealed(number, secret=None):
    return key(number), _entry.seal(_entry.encode(key(number), entry(number)), key(number), secret)


@contextmanager
def caught():
    """Collect all warnings, however often each is given."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


@contextmanager
def said(*parts):
    """Check that there is exactly one warning, with these parts in its text."""
    with caught() as found:
        yield
    (warning,) = found
    assert warning.category is CacheWarning
    for part in parts:
        assert part in str(warning.message)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Give each test an empty cache, no layers, and no warnings given yet."""
    for name in ("CUPAR_CACHE", "CUPAR_BUNDLES", "CUPAR_SHARED", "CUPAR_SIGNING_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setattr(_cache, "_used", [])
    monkeypatch.setattr(_cache, "unusable", set())
    _cache._layers.clear()
    yield
    _cache._layers.clear()


def clock(monkeypatch):
    """Give the layers a clock that the test sets; what fails rests by that."""
    now = [1000.0]
    monkeypatch.setattr(_cache, "_layers", opened.OpenByName(lambda: now[0]))
    return now


@pytest.fixture
def path(tmp_path):
    """A bundle of five entries, not signed."""
    write(tmp_path / "bundle", map(sealed, range(5)))
    return tmp_path / "bundle"


def records(path):
    """Return where the index begins, and its records as lists: key, offset, size, digest."""
    with_index = path.read_bytes()
    start = int(with_index.split()[3])
    return start, [list(fields) for fields in _bundle._RECORD.iter_unpack(with_index[start:])]


def with_records(path, start, changed):
    """Give a bundle another index, and the checksum that goes with it."""
    index = b"".join(_bundle._RECORD.pack(*record) for record in changed)
    whole = path.read_bytes()[:start] + index
    path.write_bytes(_bundle._header(len(changed), start, len(whole), index) + whole[128:])


def keys(bundle):
    return [each.key for each in bundle.entries()]


def faults(path, secret=None):
    """Return what is wrong with a bundle: key, None for the bundle as a whole, and why."""
    try:
        opened = Bundle(path, secret)
    except ValueError as error:
        return [(None, str(error))]
    with closing(opened):
        found = [(name, why) for name, why in opened.check() if why is not None]
    return [(None if name == str(path) else name, why) for name, why in found]


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# --- What is kept


class TestRoundTrip:
    @given(
        st.dictionaries(st.integers(0, 1000), st.binary(max_size=300), max_size=20),
        st.randoms(use_true_random=False),
        st.none() | st.binary(min_size=1, max_size=80),
    )
    @settings(deadline=None)
    def test_whatever_is_written_comes_back(self, payloads, random, secret):
        entries = {key(number): Entry({"n": number}, payload) for number, payload in payloads.items()}
        items = [
            (name, _entry.seal(_entry.encode(name, each), name, secret)) for name, each in entries.items()
        ]
        with tempfile.TemporaryDirectory() as root:
            first, second = Path(root, "first"), Path(root, "second")
            written = write(first, items)
            random.shuffle(items)
            write(second, iter(items))
            assert first.read_bytes() == second.read_bytes()
            assert written == (len(entries), first.stat().st_size)
            bundle = Bundle(first, secret)
            assert keys(bundle) == sorted(entries)
            assert {name: bundle.load(name) for name in entries} == entries
            assert bundle.usage() == Usage(len(entries), sum(len(frame) for _, frame in items), 0)
            assert {each.key: each.size for each in bundle.entries()} == {
                name: len(frame) for name, frame in items
            }
            assert {name: bundle.meta(name) for name in entries} == {n: e.meta for n, e in entries.items()}
            assert bundle.load(key("another")) is None
            assert faults(first, secret) == []

    def test_the_first_line_tells_what_it_is(self, path):
        with path.open("rb") as file:
            line = file.readline()
        assert len(line) == 128
        size = path.stat().st_size
        assert line.split()[:5] == [b"cupar-bundle", b"1", b"5", b"%d" % (size - 5 * 80), b"%d" % size]

    def test_of_several_under_a_key_the_first_counts(self, tmp_path):
        other = key(1), _entry.encode(key(1), entry(2))
        assert write(tmp_path / "b", [sealed(1), other, sealed(3)])[0] == 2
        assert Bundle(tmp_path / "b").load(key(1)) == entry(1)

    def test_what_is_no_key_is_in_no_bundle(self, path):
        bundle = Bundle(path)
        for name in ("", "x", key(1)[:-1], key(1).upper(), key(1) + "\n", "../" + key(1)):
            assert bundle.load(name) is None
            assert bundle.meta(name) is None

    def test_a_listing_reads_no_payload_and_nothing_of_other_entries(self, tmp_path, monkeypatch):
        entries = [Entry({"n": number}, b"x" * (number % 2 * 1_000_000)) for number in range(4)]
        write(tmp_path / "b", ((key(n), _entry.encode(key(n), each)) for n, each in enumerate(entries)))
        frames = {record[0].hex(): record[1:3] for record in records(tmp_path / "b")[1]}
        bundle, read = Bundle(tmp_path / "b"), []
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda *a: (read.append(a[1:]), pread(*a))[1])
        for number in range(4):
            read.clear()
            assert bundle.meta(key(number)) == {"n": number}
            offset, size = frames[key(number)]
            assert all(offset <= start and start + length <= offset + size for length, start in read)
            assert sum(length for length, _ in read) < 1000

    def test_metadata_of_any_size_and_its_absence(self, tmp_path):
        large = _entry.encode(key(0), Entry({"text": "x" * 100_000}, b"payload"))
        write(tmp_path / "b", [(key(0), large), (key(1), b"no entry"), (key(2), b"")])
        bundle = Bundle(tmp_path / "b")
        assert bundle.meta(key(0)) == {"text": "x" * 100_000}
        assert bundle.meta(key(1)) is None
        assert bundle.meta(key(2)) is None
        assert bundle.meta(key(3)) is None

    def test_a_closed_bundle_is_empty(self, path):
        bundle = Bundle(path)
        bundle.close()
        bundle.close()
        assert bundle.usage().entries == 0
        assert keys(bundle) == []
        assert bundle.load(key(1)) is None
        assert bundle.meta(key(1)) is None

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
    def test_no_file_is_left_open(self, path, tmp_path):
        (tmp_path / "no").write_bytes(b"cupar-bundle 1 no\n")
        before = os.listdir("/proc/self/fd")
        for _ in range(3):
            Bundle(path).load(key(1))
            Bundle(path).close()
            with pytest.raises(ValueError):
                Bundle(tmp_path / "no")
        assert len(os.listdir("/proc/self/fd")) == len(before)


class TestWriting:
    def test_everybody_may_read_it_whatever_the_umask(self, tmp_path):
        for umask in (0, 0o077, 0o277):
            before = os.umask(umask)
            try:
                write(tmp_path / "b", [sealed(1)])
            finally:
                os.umask(before)
            assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o644
            assert os.listdir(tmp_path) == ["b"]

    @pytest.mark.parametrize("name", ["", key(1).upper(), key(1)[1:], "x" * 64])
    def test_a_key_that_is_none(self, path, name):
        before = path.read_bytes()
        with pytest.raises(ValueError, match="items: expected keys"):
            write(path, [sealed(1), (name, b"")])
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == ["bundle"]

    @pytest.mark.parametrize(
        ("owner", "call"), [(Path, "replace"), (os, "fsync"), (_bundle, "_write_sorted")]
    )
    def test_a_failure_leaves_what_was_there(self, path, monkeypatch, owner, call):
        before = path.read_bytes()
        monkeypatch.setattr(owner, call, failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            write(path, [sealed(1)])
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == ["bundle"]

    def test_an_interrupt_leaves_what_was_there(self, path):
        def items():
            yield sealed(7)
            raise KeyboardInterrupt

        before = path.read_bytes()
        with pytest.raises(KeyboardInterrupt):
            write(path, items())
        assert path.read_bytes() == before
        assert os.listdir(path.parent) == ["bundle"]

    def test_it_is_on_the_device_before_it_has_its_name(self, path, monkeypatch):
        calls = []
        fsync, replace = os.fsync, Path.replace
        monkeypatch.setattr(os, "fsync", lambda *a: (calls.append("fsync"), fsync(*a)))
        monkeypatch.setattr(Path, "replace", lambda *a: (calls.append("replace"), replace(*a)))
        write(path, [sealed(1)])
        assert calls == ["fsync", "replace"]

    def test_entries_are_not_kept_in_memory(self, tmp_path):
        def items():
            for number in range(64):
                yield key(number), bytes(1 << 20)

        tracemalloc.start()
        try:
            write(tmp_path / "b", items())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert (tmp_path / "b").stat().st_size > 64 << 20
        assert peak < 8 << 20

    def test_nothing_is_left_of_a_writer_that_was_killed_as_it_took_entries(self, tmp_path):
        def items():
            yield sealed(1)
            os.kill(os.getpid(), signal.SIGKILL)

        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                write(tmp_path / "b", items())
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert os.listdir(tmp_path) == []

    def test_what_was_left_long_ago_goes_with_the_next_one(self, tmp_path):
        for name, seconds in {"old": 2 * 3600, "new": 60}.items():
            left = tmp_path / f".cupar-bundle.{name}"
            left.write_bytes(b"half")
            os.utime(left, (time.time() - seconds,) * 2)
        (tmp_path / ".cupar-bundle.directory").mkdir()
        os.utime(tmp_path / ".cupar-bundle.directory", (0, 0))
        write(tmp_path / "b", [sealed(1)])
        assert sorted(os.listdir(tmp_path)) == [".cupar-bundle.directory", ".cupar-bundle.new", "b"]

    def test_errors_name_the_file_that_was_asked_for(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space") as error:
            write(tmp_path / "b", [sealed(1)])
        assert error.value.filename == str(tmp_path / "b")

    def test_what_no_reader_would_open_is_not_written(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_bundle, "_MOST_ENTRIES", 2)
        write(tmp_path / "b", map(sealed, range(2)))
        assert len(keys(Bundle(tmp_path / "b"))) == 2
        with pytest.raises(ValueError, match="items: a bundle has room for 2 entries, got 3"):
            write(tmp_path / "more", map(sealed, range(3)))
        assert os.listdir(tmp_path) == ["b"]

    def test_a_bundle_may_be_written_from_itself(self, path):
        before = path.read_bytes()
        bundle = Bundle(path)
        names = keys(bundle)
        write(path, ((name, _entry.encode(name, bundle.load(name))) for name in names))
        assert path.read_bytes() == before


# --- What is refused


class TestOpening:
    def test_nothing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Bundle(tmp_path / "none")
        with pytest.raises(FileNotFoundError):
            faults(tmp_path / "none")

    @pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
    def test_what_is_not_a_file(self, tmp_path, make):
        make(tmp_path / "b")
        with pytest.raises(ValueError, match="is not a file"):
            Bundle(tmp_path / "b")

    @pytest.mark.parametrize("content", [b"", b"\n", b"cupar-entry 1", b"PK\x03\x04" * 1000])
    def test_what_is_no_bundle(self, tmp_path, content):
        (tmp_path / "b").write_bytes(content)
        with pytest.raises(ValueError, match="is no bundle"):
            Bundle(tmp_path / "b")

    def test_a_link_that_was_named_is_followed(self, path, tmp_path):
        (tmp_path / "link").symlink_to(path)
        assert Bundle(tmp_path / "link").load(key(1)) == entry(1)

    def test_another_version(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(_bundle, "_VERSION", 2)
            write(tmp_path / "b", [sealed(1)])
        with pytest.raises(ValueError, match="another version"):
            Bundle(tmp_path / "b")

    def test_each_byte_of_header_and_index(self, tmp_path):
        write(tmp_path / "b", map(sealed, range(2)))
        whole = (tmp_path / "b").read_bytes()
        for at in [*range(128), *range(len(whole) - 160, len(whole))]:
            (tmp_path / "b").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(ValueError):
                Bundle(tmp_path / "b")

    def test_each_truncation_and_an_extension(self, tmp_path):
        write(tmp_path / "b", [sealed(1)])
        whole = (tmp_path / "b").read_bytes()
        for content in [whole + b"\n", *(whole[:size] for size in range(len(whole)))]:
            (tmp_path / "b").write_bytes(content)
            with pytest.raises(ValueError):
                Bundle(tmp_path / "b")

    @pytest.mark.parametrize(
        "numbers",
        [
            (0, 0, 128),
            (5, 128, 128),
            (1, 48, 128),
            (10**14, 128, 128),
            (0, 999_999_999_999_999, 999_999_999_999_999),
            (0, 999_999_999_999_999, 128),
        ],
    )
    def test_numbers_that_a_checksum_does_not_make_right(self, tmp_path, numbers):
        (tmp_path / "b").write_bytes(_bundle._header(*numbers, b""))
        with pytest.raises(ValueError, match="damaged"):
            Bundle(tmp_path / "b")

    @pytest.mark.parametrize("count", [10**10, (1 << 22) + 1])
    def test_an_index_of_any_size_in_a_file_of_holes(self, tmp_path, count):
        size = 128 + 80 * count
        (tmp_path / "b").write_bytes(_bundle._header(count, 128, size, b""))
        os.truncate(tmp_path / "b", size)
        tracemalloc.start()
        try:
            with pytest.raises(ValueError, match=f"is too large: its index is of {count} entries"):
                Bundle(tmp_path / "b")
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        ((name, why),) = faults(tmp_path / "b")
        assert name is None and "is too large" in why

    def test_an_index_that_memory_has_no_room_for(self, path, monkeypatch):
        pread = os.pread

        def full(file, size, offset):
            if offset == 0:
                return pread(file, size, offset)
            raise MemoryError

        monkeypatch.setattr(os, "pread", full)
        with pytest.raises(ValueError, match="is too large"):
            Bundle(path)
        monkeypatch.setenv("CUPAR_BUNDLES", str(path))
        with said("does not use a bundle", "is too large"):
            assert fetch(key(1), lambda: entry(1)).origin == "built"

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
    def test_others_may_write(self, path, mode):
        path.chmod(mode)
        with pytest.raises(ValueError, match=f"can be written by others.*chmod go-w {path}"):
            Bundle(path)
        ((name, why),) = faults(path)
        assert name is None and "others" in why

    def owned_by(self, monkeypatch, uid):
        real = os.fstat

        def owned(descriptor):
            fields = list(real(descriptor))
            fields[4] = uid
            return os.stat_result(fields)

        monkeypatch.setattr(os, "fstat", owned)
        monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def test_another_owner(self, path, monkeypatch):
        self.owned_by(monkeypatch, 1001)
        with pytest.raises(ValueError, match="belongs to another user .uid 1001.*use a copy"):
            Bundle(path)

    @pytest.mark.parametrize("uid", [0, 1000])
    def test_root_or_the_user_may_have_made_it(self, path, monkeypatch, uid):
        self.owned_by(monkeypatch, uid)
        assert Bundle(path).load(key(1)) == entry(1)

    def test_opening_takes_as_much_for_ten_thousand_entries_as_for_few(self, tmp_path, monkeypatch):
        read, done, pread = [], [], os.pread
        monkeypatch.setattr(os, "pread", lambda *a: (read.append(a[1:]), pread(*a))[1])
        for count in (10, 10_000):
            path = tmp_path / f"{count}"
            write(path, ((key(number), b"frame %d" % number) for number in range(count)))
            start = int(path.read_bytes()[:128].split()[3])
            Bundle(path)
            read.clear()
            done.append(operations.counted(lambda: Bundle(path)))
            assert read == [(128, 0), (80 * count, start)], "entries are read before they are asked for"
        assert done[0] == done[1]
        assert len(keys(Bundle(path))) == 10_000


class TestDamagedEntries:
    """What is wrong with an entry is said once for each bundle, and concerns that entry alone."""

    def check(self, path, number, *why):
        bundle = Bundle(path)
        with said(str(path), key(number), "built again", *why):
            assert bundle.load(key(number)) is None
            assert bundle.load(key(number)) is None
        for other in set(range(5)) - {number}:
            assert bundle.load(key(other)) == entry(other)
        ((name, text),) = faults(path)
        assert name == key(number)
        assert all(part in text for part in why)

    def test_an_altered_frame(self, path):
        (offset,) = [record[1] for record in records(path)[1] if record[0].hex() == key(3)]
        overwrite(path, offset + 200, b"?")
        self.check(path, 3, "is damaged", "index")

    def test_an_altered_frame_with_the_right_checksum_in_the_index(self, path):
        start, changed = records(path)
        (record,) = [record for record in changed if record[0].hex() == key(3)]
        overwrite(path, record[1] + 200, b"?")
        record[3] = hashlib.sha256(path.read_bytes()[record[1] : record[1] + record[2]]).digest()
        with_records(path, start, changed)
        self.check(path, 3, "is damaged")

    def test_another_entrys_frame(self, path):
        start, changed = records(path)
        by_key = {record[0].hex(): record for record in changed}
        by_key[key(3)][1:] = by_key[key(2)][1:]
        with_records(path, start, changed)
        with said(key(3), "is damaged"):
            assert Bundle(path).load(key(3)) is None
        assert [name for name, _ in faults(path)] == [key(3), None]

    @pytest.mark.parametrize(
        ("offset", "size"),
        [
            (0, 128),
            (127, 10),
            (128, 1 << 40),
            (1 << 62, 1 << 62),
            ((1 << 64) - 1, (1 << 64) - 1),
            ((1 << 64) - 1, 2),
            (None, 1),
        ],
    )
    def test_a_frame_elsewhere(self, path, offset, size):
        start, changed = records(path)
        (record,) = [record for record in changed if record[0].hex() == key(3)]
        record[1:3] = (start if offset is None else offset), size
        with_records(path, start, changed)
        bundle = Bundle(path)
        with said(key(3), "does not lie between the bundle's header and index"):
            assert bundle.load(key(3)) is None
        assert bundle.meta(key(3)) is None
        assert bundle.load(key(2)) == entry(2)
        assert {name for name, _ in faults(path)} == {key(3), None}

    def test_an_index_out_of_order(self, path):
        start, changed = records(path)
        with_records(path, start, changed[::-1])
        bundle = Bundle(path)
        assert all(bundle.load(key(number)) in (None, entry(number)) for number in range(5))
        ((name, why),) = faults(path)
        assert name is None and "order" in why

    def test_each_bundle_has_its_warning(self, tmp_path):
        for name in ("a", "b"):
            write(tmp_path / name, [(key(1), b"no entry")])
        with caught() as found:
            for name in ("a", "b", "a", "b"):
                assert Bundle(tmp_path / name).load(key(1)) is None
        assert len(found) == 2

    @pytest.mark.parametrize(
        "error", [OSError(errno.EIO, "I/O"), OSError(errno.ESTALE, "stale"), MemoryError()]
    )
    def test_what_cannot_be_read(self, path, monkeypatch, error):
        bundle = Bundle(path)

        def fail(*_):
            raise error

        monkeypatch.setattr(os, "pread", fail)
        with said(str(path), key(1), "cannot be read"):
            assert bundle.load(key(1)) is None
            assert bundle.meta(key(1)) is None
        assert bundle.load(key("another")) is None


class TestSignatures:
    def load(self, path, secret):
        return Bundle(path, secret).load(key(1))

    def test_signed(self, tmp_path):
        write(tmp_path / "b", [sealed(1, SECRET)])
        assert self.load(tmp_path / "b", SECRET) == entry(1)
        assert self.load(tmp_path / "b", None) == entry(1)
        assert Bundle(tmp_path / "b").meta(key(1)) == entry(1).meta
        assert faults(tmp_path / "b", SECRET) == []

    def test_wrongly_signed(self, tmp_path):
        write(tmp_path / "b", [sealed(1, b"another"), sealed(2, SECRET)])
        with said(key(1), "is not signed with the key in CUPAR_SIGNING_KEY"):
            assert self.load(tmp_path / "b", SECRET) is None
        assert Bundle(tmp_path / "b", SECRET).load(key(2)) == entry(2)
        assert [name for name, _ in faults(tmp_path / "b", SECRET)] == [key(1)]
        assert faults(tmp_path / "b") == []

    def test_unsigned(self, path):
        with said("is not signed"):
            assert self.load(path, SECRET) is None
        assert len(faults(path, SECRET)) == 5

    def test_a_signature_of_another_entry(self, tmp_path):
        line = _entry.seal(_entry.encode(key(1), entry(2)), key(1), SECRET)[:81]
        write(tmp_path / "b", [(key(1), line + sealed(1)[1])])
        with said("is not signed with the key"):
            assert self.load(tmp_path / "b", SECRET) is None


# --- A bundle that changes while it is open


class TestInUse:
    def test_removed(self, path):
        bundle = Bundle(path)
        path.unlink()
        assert bundle.load(key(1)) == entry(1)

    def test_replaced(self, path):
        bundle = Bundle(path)
        write(path, [sealed(7)])
        assert bundle.load(key(1)) == entry(1)
        assert Bundle(path).load(key(7)) == entry(7)

    @pytest.mark.parametrize("size", [0, 1, 128, 500])
    def test_cut(self, path, size):
        bundle = Bundle(path)
        os.truncate(path, size)
        with said(str(path), "was written to while it was in use"):
            assert [bundle.load(key(number)) for number in range(5)] == [None] * 5
        assert bundle.meta(key(1)) is None
        assert keys(bundle) == []
        assert [name for name, _ in bundle.check()] == [str(path)] * 2

    def test_cut_between_the_last_look_at_its_size_and_the_reading(self, path, monkeypatch):
        bundle = Bundle(path)
        monkeypatch.setattr(Bundle, "trust", lambda self: None)
        os.truncate(path, 150)
        with said("is damaged"):
            assert bundle.load(key(1)) is None

    def test_a_longer_one_copied_onto_it(self, path, tmp_path):
        bundle = Bundle(path)
        write(tmp_path / "longer", map(sealed, range(50)))
        shutil.copyfile(tmp_path / "longer", path)
        with said("was written to"):
            assert bundle.load(key(1)) is None

    def test_one_of_the_same_size_copied_onto_it(self, path, tmp_path):
        bundle = Bundle(path)
        other = [(key(number), _entry.encode(key(number), entry(number + 1))) for number in range(4)]
        write(tmp_path / "other", [*other, sealed(4)])
        overwrite(path, 0, (tmp_path / "other").read_bytes())
        assert path.stat().st_size == (tmp_path / "other").stat().st_size
        with said("is damaged"):
            assert bundle.load(key(1)) is None
        assert Bundle(path).load(key(1)) == entry(2)

    def test_others_may_write_since(self, path):
        bundle = Bundle(path)
        path.chmod(0o666)
        with said("can be written by others"):
            assert bundle.load(key(1)) is None
        path.chmod(0o644)
        assert bundle.load(key(1)) == entry(1)

    def test_threads(self, tmp_path):
        write(tmp_path / "b", map(sealed, range(200)))
        bundle, gate = Bundle(tmp_path / "b"), threading.Barrier(8)

        def load(first):
            gate.wait()
            numbers = [(first * 25 + number) % 200 for number in range(200)]
            return all(bundle.load(key(number)) == entry(number) for number in numbers)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(load, range(8)))

    def test_closed_under_threads(self, path):
        for _ in range(20):
            bundle, gate = Bundle(path), threading.Barrier(5)

            def load(bundle=bundle, gate=gate):
                gate.wait()
                numbers = [number % 5 for number in range(100)]
                return all(bundle.load(key(number)) in (None, entry(number)) for number in numbers)

            with caught(), ThreadPoolExecutor(4) as pool:
                loads = [pool.submit(load) for _ in range(4)]
                gate.wait()
                bundle.close()
                assert all(each.result() for each in loads)

    def test_a_forked_child_reads_on_and_closes_its_own(self, path):
        script = """
import os, sys
from pathlib import Path
from cupar._store.bundle import Bundle
bundle = Bundle(Path(sys.argv[1]))
names = [each.key for each in bundle.entries()]
child = os.fork()
if not child:
    found = bundle.load(names[0]) is not None
    bundle.close()
    os._exit(0 if found else 1)
_, status = os.waitpid(child, 0)
print(status, sum(bundle.load(each) is not None for each in names))
"""
        run = [sys.executable, "-W", "error", "-c", script, str(path)]
        assert subprocess.run(run, check=True, capture_output=True, text=True).stdout == "0 5\n"


# --- As a layer of the cache


class TestLayer:
    @pytest.fixture(autouse=True)
    def named(self, path, monkeypatch):
        monkeypatch.setenv("CUPAR_BUNDLES", str(path))

    def test_a_hit_is_copied_up(self, path, tmp_path, monkeypatch):
        found = fetch(key(1), refuse)
        assert (found.entry, found.origin, found.source) == (entry(1), "disk", str(path))
        assert Disk(tmp_path / "cache", 1 << 30).load(key(1)) == entry(1)
        monkeypatch.delenv("CUPAR_BUNDLES")
        assert fetch(key(1), refuse).source == str(tmp_path / "cache")

    def test_a_miss_is_made_and_kept_above(self, tmp_path):
        assert fetch(key(9), lambda: entry(9)).origin == "built"
        assert fetch(key(9), refuse).source == str(tmp_path / "cache")

    def test_without_a_directory(self, path, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        assert fetch(key(1), refuse).source == str(path)
        assert fetch(key(1), refuse).source == str(path)
        assert not (tmp_path / "cache").exists()

    def test_with_a_directory_that_cannot_be_written(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(Path, "replace", failing(errno.EROFS))
        with said("cannot use its cache"):
            assert fetch(key(1), refuse).source == str(path)
            assert fetch(key(2), refuse).source == str(path)

    def test_what_is_of_this_machine_alone_does_not_come_from_it(self):
        assert fetch(key(1), lambda: entry(5), portable=False).entry == entry(5)

    def test_a_damaged_entry_is_made_again(self, path):
        overwrite(path, 128 + 200, b"?")
        with caught() as found:
            origins = [fetch(key(number), lambda number=number: entry(number)).origin for number in range(5)]
        assert sorted(origins) == ["built", "disk", "disk", "disk", "disk"]
        assert [warning.category for warning in found] == [CacheWarning]

    def test_the_secret_counts(self, path, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPAR_SIGNING_KEY", SECRET.decode())
        with said("is not signed"):
            assert fetch(key(1), lambda: entry(1)).origin == "built"
        write(tmp_path / "signed", [sealed(2, SECRET)])
        monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "signed"))
        assert fetch(key(2), refuse).entry == entry(2)

    def test_several_and_one_that_is_none(self, path, tmp_path, monkeypatch):
        (tmp_path / "no").write_text("no bundle")
        write(tmp_path / "second", [(key(1), _entry.encode(key(1), entry(2))), sealed(7)])
        names = [tmp_path / "gone", tmp_path / "no", path, tmp_path / "second"]
        monkeypatch.setenv("CUPAR_BUNDLES", os.pathsep.join(map(str, names)))
        with caught() as found:
            for _ in range(2):
                assert fetch(key(1), refuse).entry == entry(1)
                assert fetch(key(7), refuse).entry == entry(7)
        assert len(found) == 2
        for warning, name in zip(found, names, strict=False):
            assert str(name) in str(warning.message)

    def test_one_that_could_not_be_opened_is_tried_again(self, path, monkeypatch):
        """As on a network's file system, which is not there for a moment."""
        now = clock(monkeypatch)
        away = path.rename(path.with_name("away"))
        with said(str(path)):
            for _ in range(3):
                assert _cache.find(key(1)) is None
        away.rename(path)
        now[0] += opened.REST - 1
        assert _cache.find(key(1)) is None
        now[0] += 2
        assert fetch(key(1), refuse).source == str(path)

    def test_one_that_cannot_be_read_is_opened_anew(self, path, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        now = clock(monkeypatch)
        assert fetch(key(1), refuse).source == str(path)
        with said("Stale"), monkeypatch.context() as patch:
            patch.setattr(os, "pread", failing(errno.ESTALE))
            assert _cache.find(key(2)) is None
        assert _cache.find(key(1)) is None  # it rests
        write(path, map(sealed, range(9)))
        now[0] += opened.REST + 1
        assert fetch(key(8), refuse).source == str(path)

    def test_one_that_is_named_by_the_program_is_used_at_once(self, path, monkeypatch):
        clock(monkeypatch)
        away = path.rename(path.with_name("away"))
        with said(str(path)):
            assert _cache.find(key(1)) is None
        away.rename(path)
        _cache.use_bundle(path)
        assert fetch(key(1), refuse).source == str(path)

    def test_one_that_was_removed_while_in_use(self, path, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        assert fetch(key(1), refuse).origin == "disk"
        path.unlink()
        assert fetch(key(2), refuse).origin == "disk"


class TestUseBundle:
    def test_it_is_used(self, path, monkeypatch):
        _cache.use_bundle(path)
        monkeypatch.chdir(path.parent)
        _cache.use_bundle("bundle")
        assert [str(layer.path) for layer in _cache.bundles()] == [str(path)]
        assert fetch(key(1), refuse).source == str(path)

    def test_nothing(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            _cache.use_bundle(tmp_path / "none")
        assert _cache.bundles() == ()

    def test_what_is_no_bundle(self, tmp_path):
        (tmp_path / "no").write_text("no bundle")
        with pytest.raises(ValueError, match=f"{tmp_path / 'no'} is no bundle"):
            _cache.use_bundle(tmp_path / "no")
        assert _cache.bundles() == ()

    def test_what_others_could_have_written(self, path):
        path.chmod(0o666)
        with pytest.raises(ValueError, match="chmod go-w"):
            _cache.use_bundle(path)
        assert _cache.bundles() == ()
