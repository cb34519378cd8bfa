"""The user's handle on the cache: listing, checking, pruning and carrying entries."""

import hashlib
import json
import os
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import operations

import cupar
from cupar import _cache, cache
from cupar._base import warnings as _warnings
from cupar._base.warnings import CacheWarning
from cupar._inspect import listing
from cupar._store import entry as _entry
from cupar._store.disk import Disk
from cupar._store.entry import Entry

META = {"algorithm": "reduce_into", "cc": 90, "cubin_size": 7, "entry": "build", "operators": {"op": "f"}}
KINDS = [
    (META, ("reduce_into", 90, "build")),
    ({"algorithm": "select", "cc": 120, "entry": "template", "parts": {}}, ("select", 120, "template")),
    ({"entry": "result", "parts": {"entry": "result"}}, ("", 0, "result")),
    ({"entry": "search", "library": "libnvrtc.so.13"}, ("", 0, "search")),
    ({"algorithm": "new", "between": 1, "cc": 90, "entry": "build"}, ("new", 90, "build")),
    ({"cc": "new"}, ("", 0, "")),
]


@pytest.fixture(autouse=True)
def fresh(empty_cache, monkeypatch):
    """Give each test a cache directory, and no warnings given yet."""
    for name in ("CUPAR_BUNDLES", "CUPAR_SIGNING_KEY", "CUPAR_SHARED", "CUPAR_CACHE_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(_warnings, "warned", set())


@pytest.fixture
def own():
    return _cache.disk()


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def fill(store, count=5, meta=META):
    for number in range(count):
        store.store(key(number), Entry(meta, b"code %d" % number))
    return [key(number) for number in range(count)]


def file_of(store, name):
    return store.path / "v1" / name[:2] / f"{name}.cupar"


def age(path, seconds):
    then = time.time() - seconds
    os.utime(path, (then, then))


def there(path=None):
    return {each.key for each in cache.entries(path)}


# --- Listing


@pytest.mark.parametrize(("meta", "described"), KINDS)
@pytest.mark.parametrize("place", ["own", "directory", "bundle"])
def test_an_entry_is_listed_as_what_it_is(meta, described, place, own, tmp_path):
    fill(own, 1, meta)
    path = {"own": None, "directory": own.path, "bundle": tmp_path / "bundle"}[place]
    if place == "bundle":
        cache.export(path)
        if meta.get("entry") == "search":
            assert there(path) == set()
            return
    (found,) = cache.entries(path)
    assert (found.key, found.algorithm, found.cc, found.entry) == (key(0), *described)
    assert found.meta == meta
    assert found.size == file_of(own, key(0)).stat().st_size
    assert found.used == (None if place == "bundle" else file_of(own, key(0)).stat().st_mtime)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "algorithm": st.text() | st.sampled_from(["reduce_into", 'a", "cc": 80, "entry": "b']),
            "cc": st.integers() | st.text(),
            "cubin_size": st.integers(),
            "entry": st.text() | st.just("build"),
            "a": st.text(),
            "d": st.integers(),
        },
    )
)
@settings(deadline=None)
def test_the_beginning_of_a_file_tells_the_same_as_all_of_it(meta):
    with tempfile.TemporaryDirectory() as root:
        store = Disk(Path(root), 1 << 30)
        store.store(key(0), Entry(meta, b""))
        (found,) = listing.infos(store)
        assert (found.algorithm, found.cc, found.entry) == listing._described(store.meta(key(0)))


def test_damaged_and_strange_files_do_not_stop_a_listing(own):
    keys = fill(own, 3)
    file_of(own, keys[0]).write_bytes(b"")
    file_of(own, keys[1]).unlink()
    file_of(own, keys[1]).symlink_to("/etc/passwd")
    file_of(own, key("pipe")).parent.mkdir(exist_ok=True)
    os.mkfifo(file_of(own, key("pipe")))
    file_of(own, keys[2]).with_name("readme.cupar").touch()
    kinds = {each.key: (each.entry, each.meta) for each in cache.entries()}
    assert kinds.pop(keys[2]) == ("build", META)
    assert kinds == dict.fromkeys([keys[0], keys[1], key("pipe")], ("", {}))


def test_links_out_of_the_directory_are_not_followed(own, tmp_path):
    fill(own, 1)
    other = Disk(tmp_path / "other", 1 << 30)
    fill(other, 30)
    (own.path / "v1" / "zz").symlink_to(other.path / "v1" / key(7)[:2])
    assert there() == {key(0)}
    cache.clear()
    assert len(there(other.path)) == 30


def test_what_went_meanwhile_has_no_metadata(own):
    fill(own, 1)
    (found,) = cache.entries()
    cache.clear()
    assert found.meta == {}


def test_a_cache_that_is_off_holds_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    assert list(cache.entries()) == []
    assert cache.verify() == cache.Report(0, ())
    assert cache.prune(size=0) == cache.Pruned(0, 0)
    for call in (
        lambda: cache.info("0"),
        lambda: cache.export(tmp_path / "b"),
        lambda: cache.import_(tmp_path),
    ):
        with pytest.raises(ValueError, match="no cache directory: it is switched off"):
            call()


def test_nothing_at_a_path_is_an_error(tmp_path):
    for call in (cache.entries, cache.verify, cache.import_, lambda path: cache.info("0", path)):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "nothing")
    (tmp_path / "text").write_text("no bundle")
    with pytest.raises(ValueError, match="no bundle"):
        cache.entries(tmp_path / "text")


def test_the_beginning_of_a_key_is_enough(own, tmp_path):
    keys = fill(own, 20)
    cache.export(tmp_path / "bundle")
    for path in (None, own.path, tmp_path / "bundle"):
        assert cache.info(keys[3][:12], path).key == keys[3]
        assert cache.info(keys[3], path).meta == META
        with pytest.raises(ValueError, match=f"no entry in .* begins with '{'0' * 12}'; 'cupar cache list'"):
            cache.info("0" * 12, path)
        with pytest.raises(ValueError, match="entries in .* begin with .* give more of the key"):
            cache.info(max((key[0] for key in keys), key=[key[0] for key in keys].count), path)
        for text in ("", "xyz", keys[3].upper(), keys[3] + "0", None):
            with pytest.raises(ValueError, match="expected a key or the beginning of one"):
                cache.info(text, path)


def test_each_of_many_entries_takes_few_operations(own):
    """Of which 20,000 are listed within a second."""
    parts = {"arguments": [["d_in", "in", ["Pointer", ["<f4", 4, 4]]]] * 20}
    fill(own, 1, {**META, "parts": parts})
    done, numbers = [], [0, 100, 300]
    for first, last in pairwise([1, *numbers[1:]]):
        for number in range(first, last):
            path = file_of(own, key(number))
            path.parent.mkdir(exist_ok=True, mode=0o700)
            path.hardlink_to(file_of(own, key(0)))  # for a listing does not look at the checksum
        found = []
        done.append(operations.counted(lambda: found.extend(cache.entries())))
        assert len(found) == last
        assert {each.algorithm for each in found} == {"reduce_into"}
    assert (done[1] - done[0]) / 200 < 1.1 * done[0] / 100 < 300


# --- Checking


def damage(path):
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def test_what_is_damaged_is_found_and_removed_if_wanted(own):
    keys = fill(own)
    damage(file_of(own, keys[0]))
    file_of(own, keys[1]).write_bytes(b"")
    file_of(own, keys[2]).write_bytes(file_of(own, keys[3]).read_bytes())
    damaged = dict.fromkeys(keys[:3], "is damaged or of another format")
    for path in (None, own.path):
        report = cache.verify(path)
        assert report.checked == 5
        assert dict(report.faults) == damaged
    assert there() == set(keys)
    assert dict(cache.verify(repair=True).faults) == damaged
    assert there() == set(keys[3:])
    assert cache.verify() == cache.Report(2, ())


def test_what_is_never_served_is_a_fault(own, tmp_path):
    keys = fill(own)
    file_of(own, keys[0]).chmod(0o666)
    outside = tmp_path / "outside"
    file_of(own, keys[1]).rename(outside)
    file_of(own, keys[1]).symlink_to(outside)
    file_of(own, keys[2]).rename(file_of(own, keys[3]).with_name(f"{keys[2]}.cupar"))
    file_of(own, keys[4]).parent.chmod(0o777)
    why = dict(cache.verify().faults)
    assert why == {
        keys[0]: "can be written by others (mode 0666)",
        keys[1]: "is a symbolic link",
        keys[2]: "does not lie where entries do",
        keys[4]: "lies in a directory that can be written by others (mode 0777)",
    }
    cache.verify(repair=True)
    assert there() == {keys[3]}
    assert outside.exists()


def test_what_is_no_file_is_a_fault(own):
    fill(own, 1)
    for name in ("pipe", "directory"):
        file_of(own, key(name)).parent.mkdir(exist_ok=True, mode=0o700)
    os.mkfifo(file_of(own, key("pipe")))
    file_of(own, key("directory")).mkdir()
    assert dict(cache.verify(repair=True).faults) == dict.fromkeys(
        [key("pipe"), key("directory")], "cannot be read (is not a file)"
    )
    assert key(0) in there()


def test_a_repair_leaves_what_was_put_there_meanwhile(own, monkeypatch):
    fill(own, 1)
    damage(file_of(own, key(0)))
    drop = own.drop

    def slow(*refused):
        fill(own, 1)  # as another process may do
        drop(*refused)

    monkeypatch.setattr(own, "drop", slow)
    assert len(cache.verify(repair=True).faults) == 1
    assert own.load(key(0)) is not None


def test_a_bundle_is_verified(own, tmp_path):
    fill(own)
    cache.export(tmp_path / "bundle")
    assert cache.verify(tmp_path / "bundle") == cache.Report(5, ())
    data = bytearray((tmp_path / "bundle").read_bytes())
    data[data.index(b"code 3")] ^= 1
    (tmp_path / "bundle").write_bytes(data)
    ((name, why),) = cache.verify(tmp_path / "bundle").faults
    assert (name, why) == (key(3), "is damaged: its checksum differs from the index")
    (tmp_path / "bundle").write_bytes(data[:-1])
    ((name, why),) = cache.verify(tmp_path / "bundle").faults
    assert name == str(tmp_path / "bundle")
    with pytest.raises(ValueError, match="repair: only the user's own directory"):
        cache.verify(tmp_path / "bundle", repair=True)


# --- Emptying


def test_prune_removes_what_was_not_used_for_longest(own):
    keys = fill(own, 10)
    for number, name in enumerate(keys):
        age(file_of(own, name), 10_000 - 1000 * number)
    sizes = [file_of(own, name).stat().st_size for name in keys]
    assert cache.prune(size=sum(sizes[4:])) == cache.Pruned(4, sum(sizes[:4]))
    assert there() == set(keys[4:])
    assert cache.prune(unused_for=3500) == cache.Pruned(3, sum(sizes[4:7]))
    assert there() == set(keys[7:])
    assert cache.prune(size=sum(sizes[8:]), unused_for=1500) == cache.Pruned(2, sum(sizes[7:9]))
    assert there() == {keys[9]}
    assert (own.path / "v1" / "journal").read_text() == f"{sizes[9]}\n"
    assert cache.prune(size=0) == cache.Pruned(1, sizes[9])


def test_prune_without_a_goal_keeps_to_the_limit(own, monkeypatch):
    keys = fill(own, 10)
    assert cache.prune() == cache.Pruned(0, 0)
    size = file_of(own, keys[0]).stat().st_size
    for name in keys[4:6]:
        age(file_of(own, name), 1000)
    monkeypatch.setenv("CUPAR_CACHE_SIZE", str(size * 10 - 1))
    assert cache.prune() == cache.Pruned(2, 2 * size)  # down to 90 % of it
    assert there() == {*keys} - {*keys[4:6]}


def test_prune_of_nothing_makes_no_directory(empty_cache):
    assert cache.prune(size=0) == cache.Pruned(0, 0)
    assert not empty_cache.exists()


@pytest.mark.parametrize(("argument", "unit"), [("size", "bytes"), ("unused_for", "seconds")])
def test_prune_takes_no_text(argument, unit):
    with pytest.raises(TypeError, match=f"{argument}: expected a number of {unit}, got '5G'"):
        cache.prune(**{argument: "5G"})


@pytest.mark.parametrize("argument", ["size", "unused_for"])
@pytest.mark.parametrize("value", [-1, float("nan")])
def test_prune_takes_no_negative_numbers(argument, value):
    with pytest.raises(ValueError, match=f"{argument}: expected a number that is not negative"):
        cache.prune(**{argument: value})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_prune_of_a_directory_that_cannot_be_written_warns(own):
    fill(own)
    (own.path / "v1").chmod(0o500)
    try:
        with pytest.warns(CacheWarning, match="cannot use its cache"):
            cache.prune(size=0)
    finally:
        (own.path / "v1").chmod(0o700)


@pytest.mark.parametrize("call", [cache.clear, cache.prune])
def test_what_dead_processes_left_goes_and_what_living_ones_write_stays(call, own):
    fill(own, 1)
    tmp, locks = own.path / "v1" / "tmp", own.path / "v1" / "locks"
    locks.mkdir(exist_ok=True, mode=0o700)
    for directory in (tmp, locks):
        for name, seconds in {"old": 2 * 3600, "new": 60}.items():
            (directory / name).touch()
            age(directory / name, seconds)
    call()
    assert [path.name for path in tmp.iterdir()] == ["new"]
    assert "new" in os.listdir(locks)
    assert "old" not in os.listdir(locks)


def test_a_clear_does_not_disturb_who_is_storing(own, monkeypatch):
    replace = Path.replace

    def slow(path, target):
        if path.name.startswith(key(0)):
            cache.clear()  # between the write and the move
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", slow)
    fill(own, 1)
    assert own.load(key(0)) is not None


def test_threads_may_clear_prune_check_and_store_at_once(own):
    stop = time.monotonic() + 1
    failures = []

    def repeat(call):
        try:
            while time.monotonic() < stop:
                call()
        except BaseException as error:
            failures.append(error)

    calls = [
        lambda: fill(own),
        cache.clear,
        lambda: cache.prune(size=100),
        lambda: cache.verify(repair=True),
        lambda: [each.meta for each in cache.entries()],
    ]
    threads = [threading.Thread(target=repeat, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    fill(own)
    assert cache.verify() == cache.Report(5, ())


# --- Carrying


@pytest.mark.parametrize("secret", [None, "secret"])
def test_what_is_exported_can_be_imported(secret, own, tmp_path, monkeypatch):
    if secret:
        monkeypatch.setenv("CUPAR_SIGNING_KEY", secret)
    keys = fill(own)
    size = cache.usage().size
    done = cache.export(tmp_path / "bundle")
    assert done == cache.Transfer(5, (tmp_path / "bundle").stat().st_size, 0)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
    done = cache.import_(tmp_path / "bundle")
    assert (done.entries, done.skipped) == (5, 0)
    assert there() == set(keys)
    assert cache.usage().size == size
    assert _cache.disk().load(keys[2]) == Entry(META, b"code 2")
    assert cache.import_(tmp_path / "bundle") == cache.Transfer(0, 0, 5)


def test_what_is_not_signed_is_not_imported(own, tmp_path, monkeypatch):
    fill(own)
    cache.export(tmp_path / "bundle")
    cache.clear()
    monkeypatch.setenv("CUPAR_SIGNING_KEY", "secret")
    with pytest.warns(CacheWarning, match="is not signed"):
        assert cache.import_(tmp_path / "bundle") == cache.Transfer(0, 0, 0, refused=5)
    assert there() == set()


def test_a_directory_can_be_imported(own, tmp_path):
    other = Disk(tmp_path / "other", 1 << 30)
    keys = fill(other)
    own.store(keys[0], Entry(META, b"mine"))
    done = cache.import_(other.path)
    assert done == cache.Transfer(4, sum(file_of(own, name).stat().st_size for name in keys[1:]), 1)
    assert own.load(keys[0]).payload == b"mine"
    assert own.load(keys[1]).payload == b"code 1"


def test_what_is_of_this_machine_stays_here(own, tmp_path):
    fill(own, 1, {"entry": "search", "library": "libnvrtc.so.13"})
    own.store(key("build"), Entry(META, b""))
    assert cache.export(tmp_path / "bundle").skipped == 1
    assert there(tmp_path / "bundle") == {key("build")}
    directory = own.path.rename(tmp_path / "other")
    cache.import_(directory)
    assert there() == {key("build")}


def test_some_entries_can_be_exported(own, tmp_path):
    keys = fill(own)
    assert cache.export(tmp_path / "bundle", [keys[0], keys[3][:12], keys[3]]).entries == 2
    assert there(tmp_path / "bundle") == {keys[0], keys[3]}
    with pytest.raises(ValueError, match="no entry in .* begins with"):
        cache.export(tmp_path / "new", ["0" * 64])
    assert not (tmp_path / "new").exists()


def test_an_export_skips_what_is_damaged_and_counts_as_no_use(own, tmp_path):
    keys = fill(own)
    damage(file_of(own, keys[0]))
    for name in keys:
        age(file_of(own, name), 10 * 3600)
    before = {name: file_of(own, name).stat().st_mtime for name in keys}
    with pytest.warns(CacheWarning, match=f"{keys[0]} of .*: it is damaged"):
        done = cache.export(tmp_path / "bundle")
    assert (done.entries, done.skipped, done.refused) == (4, 0, 1)
    assert there(tmp_path / "bundle") == set(keys[1:])
    assert {name: file_of(own, name).stat().st_mtime for name in keys} == before


def test_an_import_that_cannot_be_kept_is_counted_as_such(own, tmp_path, monkeypatch):
    fill(own)
    cache.export(tmp_path / "bundle")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "small"))
    monkeypatch.setenv("CUPAR_CACHE_SIZE", "10")
    with pytest.warns(CacheWarning, match="larger than cupar's whole cache"):
        assert cache.import_(tmp_path / "bundle") == cache.Transfer(0, 0, 0, not_kept=5)


def test_an_import_counts_what_is_there_afterwards(own, tmp_path, monkeypatch):
    for number in range(9):
        own.store(key(number), Entry(META, bytes(1000)))
    size = cache.usage().size // 9
    cache.export(tmp_path / "bundle")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "small"))
    monkeypatch.setenv("CUPAR_CACHE_SIZE", str(size * 3))
    done = cache.import_(tmp_path / "bundle")
    assert 0 < done.entries < 9
    assert (done.entries, done.size) == (len(there()), cache.usage().size)
    assert (done.skipped, done.refused, done.not_kept) == (0, 0, 9 - done.entries)


def test_what_an_import_drives_out_is_not_kept(own, tmp_path, monkeypatch):
    for number in range(4):
        own.store(key(number), Entry(META, bytes(1000)))
    size = cache.usage().size // 4
    cache.export(tmp_path / "bundle")
    own.discard(key(3))
    for number in range(3):
        age(file_of(own, key(number)), 10_000)
    monkeypatch.setenv("CUPAR_CACHE_SIZE", str(size * 3))
    done = cache.import_(tmp_path / "bundle")
    assert done.not_kept == 4 - len(there()) > 0
    assert done.entries + done.skipped == len(there())


def test_an_import_mends_what_is_damaged(own, tmp_path):
    keys = fill(own)
    cache.export(tmp_path / "bundle")
    damage(file_of(own, keys[1]))
    file_of(own, keys[2]).unlink()
    os.mkfifo(file_of(own, keys[2]))
    age(file_of(own, keys[0]), 10_000)
    before = file_of(own, keys[0]).stat().st_mtime
    with pytest.warns(CacheWarning, match="is damaged"):
        done = cache.import_(tmp_path / "bundle")
    assert (done.entries, done.skipped, done.refused, done.not_kept) == (2, 3, 0, 0)
    assert own.load(keys[1]) == Entry(META, b"code 1")
    assert cache.verify() == cache.Report(5, ())
    assert file_of(own, keys[0]).stat().st_mtime == before  # this is no use of it


def test_what_is_refused_is_told_from_what_is_there(own, tmp_path, monkeypatch):
    keys = fill(own, 3)
    cache.export(tmp_path / "bundle")
    data = bytearray((tmp_path / "bundle").read_bytes())
    data[data.index(b"code 1")] ^= 1
    (tmp_path / "bundle").write_bytes(data)
    own.discard(keys[1])
    own.discard(keys[2])
    with pytest.warns(CacheWarning, match=f"does not copy the entry {keys[1]} of .*: it is damaged") as said:
        done = cache.import_(tmp_path / "bundle")
    assert "built again" not in str(said[0].message)
    assert (done.entries, done.skipped, done.refused, done.not_kept) == (1, 1, 1, 0)


def test_a_directory_that_others_can_write_is_refused(own, tmp_path):
    other = Disk(tmp_path / "other", 1 << 30)
    fill(other)
    other.path.chmod(0o777)
    with pytest.warns(CacheWarning, match="can be written by others"):
        assert cache.import_(other.path) == cache.Transfer(0, 0, 0, refused=5)


def test_a_directory_of_something_else_is_no_cache(tmp_path):
    (tmp_path / "text").write_text("nothing of the kind")
    for call in (cache.entries, cache.verify, cache.import_, lambda path: cache.info("0", path)):
        with pytest.raises(ValueError, match="is no cache directory: there is no v1 in it"):
            call(tmp_path)
        with pytest.raises(ValueError, match="path: expected the name of a file or directory, got ''"):
            call("")


NO_PATHS = [3, None, b"bytes", ["path"], True]


@pytest.mark.parametrize("path", NO_PATHS)
@pytest.mark.parametrize(
    "call",
    [
        cupar.use_bundle,
        cupar.cache.import_,
        cupar.cache.export,
        cupar.cache.verify,
        lambda path: list(cupar.cache.entries(path)),
        lambda path: cupar.cache.info("0" * 64, path),
    ],
)
def test_what_is_no_path_is_named(own, path, call):
    if path is None and call not in (cupar.use_bundle, cupar.cache.import_, cupar.cache.export):
        pytest.skip("None is the user's directory")
    with pytest.raises(TypeError, match="^path: expected a path, as str or os.PathLike, got "):
        call(path)


@pytest.mark.parametrize("path", ["", "a\0b"])
@pytest.mark.parametrize("call", [cupar.use_bundle, cache.import_, cache.export, cache.verify])
def test_what_no_file_can_be_called_is_named(own, path, call):
    with pytest.raises(ValueError, match="^path: expected the name of a file or directory, got "):
        call(path)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda value: cupar.cache.clear(disk=value), "disk"),
        (lambda value: cupar.cache.clear(memory=value), "memory"),
        (lambda value: cupar.cache.verify(repair=value), "repair"),
    ],
)
@pytest.mark.parametrize("value", ["no", "", 0, 1, None, []])
def test_what_is_neither_true_nor_false_is_refused_before_anything_is_done(own, call, name, value):
    fill(own)
    with pytest.raises(TypeError, match=f"^{name}: expected True or False, got "):
        call(value)
    assert len(there()) == 5


@pytest.mark.parametrize("value", [True, False])
def test_sizes_and_ages_are_no_truth_values(own, value):
    fill(own)
    for name in ("size", "unused_for"):
        with pytest.raises(TypeError, match=f"^{name}: expected a number of .*, got {value}"):
            cupar.cache.prune(**{name: value})
    assert len(there()) == 5


def test_keys_that_are_no_list_are_named(own, tmp_path):
    fill(own)
    for keys in (5, "abc", object()):
        with pytest.raises(TypeError, match="^keys: expected several keys"):
            cupar.cache.export(tmp_path / "file", keys)


class TestBundlesThatAreNone:
    """What `CUPAR_BUNDLES` names, and is neither a bundle nor a cache's directory."""

    @pytest.fixture(params=["missing", "directory", "file", "file in a file", "pipe"])
    def place(self, request, tmp_path):
        place = tmp_path / "place"
        if request.param == "directory":
            (place / "more").mkdir(parents=True)
        elif request.param == "pipe":
            os.mkfifo(place)
        elif request.param != "missing":
            place.write_text("no bundle")
        return place / "inner" if request.param == "file in a file" else place

    def test_it_is_said_once_and_left_out(self, own, place, monkeypatch):
        monkeypatch.setenv("CUPAR_BUNDLES", str(place))
        with pytest.warns(cupar.CacheWarning, match=rf"CUPAR_BUNDLES\).*{place}") as caught:
            assert _cache.bundles() == ()
            assert _cache.bundles() == ()
            assert _cache.fetch(key(1), lambda: _entry.Entry({}, b"")).origin == "built"
        assert len(caught) == 1

    def test_use_bundle_names_its_argument(self, own, place):
        with pytest.raises((OSError, ValueError), match=rf"path: .*{place}"):
            cupar.use_bundle(place)
        assert _cache.bundles() == ()


def test_an_empty_cache_named_is_a_cache(own):
    fill(own)
    cache.clear()
    assert list(cache.entries(own.path)) == []
    assert cache.verify(own.path) == cache.Report(0, ())


@pytest.mark.parametrize("call", [cache.entries, cache.verify, cache.import_, cache.export, cupar.use_bundle])
def test_a_home_that_there_is_not(call, own):
    with pytest.raises(FileNotFoundError, match="~nobody-of-this-name"):
        call("~nobody-of-this-name/x")


def test_an_export_says_what_is_wrong_with_its_path(own, tmp_path, monkeypatch):
    fill(own)
    monkeypatch.chdir(tmp_path)
    for path in (".", tmp_path, f"{tmp_path}/"):
        with pytest.raises(IsADirectoryError) as error:
            cache.export(path)
        assert error.value.filename == str(tmp_path)
    with pytest.raises(ValueError, match="path: expected the name of a file or directory, got ''"):
        cache.export("")
    with pytest.raises(FileNotFoundError) as error:
        cache.export(tmp_path / "nowhere" / "bundle")
    assert error.value.filename == str(tmp_path / "nowhere")
    with pytest.raises(OSError, match="is not a file") as error:
        cache.export("/dev/null")
    assert error.value.filename == "/dev/null"
    assert not [name for name in os.listdir(tmp_path) if "bundle" in name]


def test_an_export_takes_several_keys_and_not_one(own, tmp_path):
    (name, *_) = fill(own)
    with pytest.raises(TypeError, match="keys: expected several keys, such as a list of them, got '"):
        cache.export(tmp_path / "bundle", name)


def test_everything_counts_the_same(own):
    fill(own)
    file_of(own, key(0)).parent.parent.joinpath("ju").mkdir(mode=0o700)
    file_of(own, key(0)).parent.parent.joinpath("ju", "junk.cupar").write_bytes(b"junk")
    file_of(own, key(0)).with_name("readme.cupar").touch()
    counts = {len(list(cache.entries())), cache.verify().checked, cache.usage().entries}
    assert counts == {5} == {len(dict(listing.sizes(own)))}


def test_what_is_public_is_documented_and_there():
    for name in cache.__all__:
        assert getattr(cache, name).__doc__, name
    assert json.dumps(cupar.cache.stats().__dict__)
    assert _entry.is_key(key(0))
