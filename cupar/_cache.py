"""Memory and disk: values and bytes under a key, without knowing what they mean.

A build costs seconds, so it is made once. `Memory` keeps what this process has loaded; `fetch` finds a
build on disk, or makes it while other processes wait for it, and keeps it there. On disk an entry is one
file, written aside and moved into place, so readers never lock and never see half of one. The layout::

    <root>/v1/<first 2 hex of the key>/<key>.cupar    the entries; their mtime says when they were last used
    <root>/v1/journal                                 one line for each store: the bytes it wrote
    <root>/v1/locks/                                  a file for each key that is being built
    <root>/v1/tmp/                                    entries being written

The environment says where and how much: ``CUPAR_CACHE`` (0 switches the disk off), ``CUPAR_CACHE_DIR``,
``CUPAR_CACHE_SIZE`` (bytes, or with K, M, G, T) and ``CUPAR_LOCK_TIMEOUT`` (seconds).

Whatever is wrong with the disk costs a build and a warning, never an error.
"""

import errno
import hashlib
import json
import math
import os
import re
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from weakref import WeakSet

from cachetools import LRUCache

from . import _fork

__all__ = [
    "FORMAT",
    "CacheWarning",
    "Disk",
    "Entry",
    "Found",
    "Memory",
    "Stats",
    "Usage",
    "count",
    "discard",
    "disk",
    "fetch",
    "reset_stats",
    "stats",
]

FORMAT = 1
"""Version of what is on disk; entries of another version are left alone, in a directory of their own."""

DEFAULT_SIZE = 2 << 30
"""Limit on the disk cache in bytes, unless ``CUPAR_CACHE_SIZE`` says otherwise."""

LOCK_TIMEOUT = 120.0
"""Seconds to wait for another process's build, unless ``CUPAR_LOCK_TIMEOUT`` says otherwise."""

_POLL_SECONDS = 0.01
_USE_CLOCK_SECONDS = 3600  # how exactly mtime records the last use: a hit seldom has to write
_LEFTOVER_SECONDS = 3600  # nothing is written, and nothing built, for that long
_JOURNAL_BYTES = 4096  # about 500 stores between two counts of what is really there
_HEADER_BYTES = 128
_HEADER = re.compile(rb"cupar-entry [0-9]+ [0-9a-f]{64} ([0-9]{1,15}) ([0-9]{1,15})\n")
_SIZE = re.compile(r"([0-9]{1,18})\s*([KMGT]?)(?:I?B)?", re.IGNORECASE | re.ASCII)

# O_NONBLOCK: opening a pipe that somebody left in place of an entry must not wait for a writer.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

V = TypeVar("V")
Origin = Literal["memory", "disk", "linked", "built"]


class CacheWarning(UserWarning):
    """The cache cannot do what it is for; results are right, but builds are made again."""


# --- Entries -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What the cache keeps under a key.

    Attributes
    ----------
    meta : Mapping[str, Any]
        What a person wants to know about the entry, as JSON has it.
    payload : bytes
        The thing itself.
    """

    meta: Mapping[str, Any]
    payload: bytes


@dataclass(frozen=True)
class Found:
    """An entry, where it came from, and the seconds that reading or making it took."""

    entry: Entry
    origin: Literal["disk", "built"]
    seconds: float


def _header(key: str, meta: bytes, payload: bytes) -> bytes:
    """Return the only first line that a file with this content, stored under this key, may have.

    The checksum covers the line itself, with the key in its own place, so a file moved to another key is
    as wrong as one that was altered.
    """
    line = f"cupar-entry {FORMAT} %s {len(meta)} {len(payload)}\n"
    digest = hashlib.sha256((line % key).encode())
    digest.update(meta)
    digest.update(payload)
    return (line % digest.hexdigest()).encode()


def _encode(key: str, entry: Entry) -> bytes:
    """Lay an entry out as a file: header, metadata, each one line, then the payload."""
    meta = json.dumps(dict(entry.meta), sort_keys=True).encode() + b"\n"
    return _header(key, meta, entry.payload) + meta + entry.payload


def _decode(descriptor: int, size: int, key: str) -> Entry | None:
    """Read an entry from an open file of `size` bytes; None if it is not what was stored under `key`."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        header = file.readline(_HEADER_BYTES)
        match = _HEADER.fullmatch(header)
        if match is None:
            return None
        meta_size, payload_size = int(match[1]), int(match[2])
        if len(header) + meta_size + payload_size != size:
            return None
        meta, payload = file.read(meta_size), file.read(payload_size)
    if header != _header(key, meta, payload):
        return None
    try:
        fields = json.loads(meta)
    except ValueError:
        return None
    return Entry(fields, payload) if isinstance(fields, dict) else None


def _read(path: Path, key: str) -> Entry | None:
    """Read the entry at `path`; None if something else lies there."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # what O_NOFOLLOW says of a symbolic link
            return None
        raise
    try:
        status = os.fstat(descriptor)
        entry = _decode(descriptor, status.st_size, key) if stat.S_ISREG(status.st_mode) else None
    finally:
        os.close(descriptor)
    if entry is not None and time.time() - status.st_mtime > _USE_CLOCK_SECONDS:
        with suppress(OSError):
            os.utime(path)
    return entry


# --- Files ---------------------------------------------------------------------------------------------


class _File(NamedTuple):
    """A file as a listing shows it."""

    path: Path
    mtime: float
    size: int


def _files(directory: Path) -> list[_File]:
    """List what is in a directory; one that cannot be listed, or a file gone meanwhile, is not there."""
    files = []
    with suppress(OSError), os.scandir(directory) as listing:
        for item in listing:
            with suppress(OSError):
                status = item.stat(follow_symlinks=False)
                files.append(_File(Path(item.path), status.st_mtime, status.st_size))
    return files


def _remove(path: Path) -> bool:
    """Remove a file if that can be done."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _make_private(directory: Path) -> None:
    """Make a directory and its missing parents, each for this user alone."""
    try:
        directory.mkdir(0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        if directory == directory.parent:
            raise
        _make_private(directory.parent)
        # Not by calling this again: some parents exist and have no room for anything, such as /proc.
        directory.mkdir(0o700, exist_ok=True)
    directory.chmod(0o700)  # a umask may have taken the owner's bits


def _fault(directory: Path) -> str | None:
    """Say why others could have written to an existing directory, None if they could not."""
    if sys.platform == "win32":  # it has no such modes, and a profile's directory is private
        return None
    status = directory.stat()
    if status.st_uid not in (0, os.geteuid()):  # root could place code anywhere
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, for this user alone."""
    with os.fdopen(os.open(path, _WRITE_FLAGS, 0o600), "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o600)  # a umask may have taken the owner's bits
        file.write(data)


# --- Disk ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Number of entries in a directory, their size and the limit on it in bytes."""

    entries: int
    size: int
    limit: int


class Disk:
    """Entries in one directory, the least recently used of which go when they exceed a limit.

    No method raises an OSError: what the system refuses is said once, in a `CacheWarning`, and the caller
    goes on without the cache. A lookup opens one file whatever the number of entries; only `store` counts.

    Parameters
    ----------
    path : Path
        The directory. It need not exist yet; `store` makes it.
    limit_bytes : int
        Limit on the size of all entries together.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self._base = path / f"v{FORMAT}"
        self._journal = self._base / "journal"
        self._known_private = False

    def load(self, key: str) -> Entry | None:
        """Return the entry under `key`, None if there is none.

        A file that is not the entry as it was stored is removed, and counts as none.
        """
        path = self._path(key)
        try:
            if not self._is_private():
                return None
            entry = _read(path, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn_refused(error)
            return None
        if entry is None:
            _remove(path)
            _warn_once(
                "damaged",
                f"cupar's cache entry {path} is damaged or of another format. "
                "It is not used and will be rebuilt.",
            )
        return entry

    def store(self, key: str, entry: Entry) -> None:
        """Keep an entry under `key`, in place of the one there, if the directory allows it."""
        data = _encode(key, entry)
        if len(data) > self.limit_bytes:
            _warn_once(
                ("too large", self.path),
                f"A build of {len(data)} bytes is larger than cupar's whole cache may be ({self.limit_bytes} "
                "bytes) and is not kept. CUPAR_CACHE_SIZE sets the limit.",
            )
            return
        path = self._path(key)
        try:
            _make_private(self._base)
            if self._is_private():
                _make_private(path.parent)
                self._replace(path, data)
                self._account(path, len(data))
        except OSError as error:
            self._warn_refused(error)

    @contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[bool]:
        """Hold a lock among processes while the block runs.

        Parameters
        ----------
        name : str
            What to lock, as a file name.
        timeout : float
            Seconds to wait for another process.

        Yields
        ------
        bool
            False if another process still holds the lock. True if this one does, and also where there can
            be no lock (the file system has none, or the directory cannot be written): there, several
            processes at worst do the same work.
        """
        from filelock import FileLock, Timeout  # 17 ms, which a hit does not pay

        path = self._base / "locks" / f"{name}.lock"
        # A new object each time: threads must exclude each other, and filelock's singletons are reentrant.
        lock = FileLock(path, timeout, mode=0o600, fallback_to_soft=False)
        free = True
        try:
            _make_private(path.parent)
            lock.acquire(poll_interval=_POLL_SECONDS)
        except Timeout:
            free = False
        except (OSError, NotImplementedError):
            pass
        try:
            yield free
        finally:
            if lock.is_locked:
                # Who waits on the file that goes here, and who makes a new one, may both run now. That is
                # safe because everybody looks at the cache again before doing what the lock is for.
                _remove(path)
                with suppress(OSError):
                    lock.release()

    def entries(self) -> Iterator[tuple[str, Path, int]]:
        """Yield key, path and size in bytes of each entry, in no particular order."""
        for file in self._entry_files():
            yield file.path.stem, file.path, file.size

    def usage(self) -> Usage:
        """Count the entries."""
        sizes = [size for _, _, size in self.entries()]
        return Usage(len(sizes), sum(sizes), self.limit_bytes)

    def discard(self, key: str) -> None:
        """Remove the entry under `key`, if there is one."""
        _remove(self._path(key))

    def clear(self) -> None:
        """Remove all entries."""
        for _, path, _ in self.entries():
            _remove(path)
        _remove(self._journal)

    def is_usable(self) -> bool:
        """Tell whether entries found here can be trusted; warn once if others could have written them."""
        try:
            return self._is_private()
        except OSError:
            return True  # not there yet, or load() and store() meet the same error and say it

    def _path(self, key: str) -> Path:
        return self._base / key[:2] / f"{key}.cupar"

    def _is_private(self) -> bool:
        """Tell whether the directory, which must exist, is this user's and no other may write to it.

        An entry becomes code that runs, so a directory that others can fill is as good as theirs.
        """
        if not self._known_private:
            for directory in (self.path, self._base):
                fault = _fault(directory)
                if fault is not None:
                    _warn_once(
                        ("not private", self.path),
                        f"cupar does not use its cache in {self.path}: {directory} {fault}, who could place "
                        f"code in it. Run 'chmod 700 {directory}' if it is yours, or name one of your own in "
                        "CUPAR_CACHE_DIR. Until then builds are not kept.",
                    )
                    return False
        self._known_private = True
        return True

    def _warn_refused(self, error: OSError) -> None:
        _warn_once(
            ("refused", self.path),
            f"cupar cannot use its cache in {self.path}: {error}. Builds will not be kept for later "
            "processes. CUPAR_CACHE_DIR names another directory, CUPAR_CACHE=0 does without one.",
        )

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file aside and move it into place, so that nobody sees half of it.

        Nothing is flushed to the device: what a crash tears fails its checksum and is built again.
        """
        aside = self._base / "tmp" / f"{path.name}.{os.getpid()}.{os.urandom(8).hex()}"
        _make_private(aside.parent)
        try:
            _write_new(aside, data)
            aside.replace(path)
        except BaseException:
            _remove(aside)
            raise

    def _account(self, path: Path, size: int) -> None:
        """Add what was written to the journal; sweep if that passes the limit or the total is not known."""
        total = self._append_to_journal(size)
        if total is None or total > self.limit_bytes:
            # Not to wait: whoever holds the lock is doing just this.
            with self.lock("sweep", timeout=0) as free:
                if free:
                    self._sweep(path)

    def _append_to_journal(self, size: int) -> int | None:
        """Add a line to the journal and return the sum, or None if there is none to be had.

        The sum is an estimate: entries that are replaced or found damaged count on, and a line that is
        added during a sweep may be lost. Each sweep starts a new journal with the true one.
        """
        try:
            descriptor = os.open(self._journal, _APPEND_FLAGS)
        except OSError:
            return None
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            file.write(b"%d\n" % size)  # one write in append mode: lines of several processes do not mix
            file.seek(0)
            text = file.read(_JOURNAL_BYTES + 1)
        sizes = text.split()
        if len(text) > _JOURNAL_BYTES or not all(map(bytes.isdigit, sizes)):
            return None
        return sum(map(int, sizes))

    def _sweep(self, keep: Path) -> None:
        """Remove what was not used for longest, down to 90 % of the limit, and what dead processes left."""
        files = sorted(self._entry_files(), key=lambda file: file.mtime)
        total = sum(file.size for file in files)
        if total > self.limit_bytes:
            for file in files:
                if total <= self.limit_bytes * 9 // 10:
                    break
                if file.path != keep and _remove(file.path):
                    total -= file.size
        oldest = time.time() - _LEFTOVER_SECONDS
        for name in ("tmp", "locks"):
            for file in _files(self._base / name):
                if file.mtime < oldest:
                    _remove(file.path)
        self._replace(self._journal, b"%d\n" % total)

    def _entry_files(self) -> Iterator[_File]:
        for shard in _files(self._base):
            if len(shard.path.name) == 2:
                for file in _files(shard.path):
                    if file.path.suffix == ".cupar":
                        yield file


# --- Environment ---------------------------------------------------------------------------------------


def disk() -> Disk | None:
    """Return the disk cache that the environment asks for.

    Returns
    -------
    Disk or None
        None if ``CUPAR_CACHE`` switches it off, if there is no place for it, or if others can write there.
    """
    if os.environ.get("CUPAR_CACHE", "").strip().lower() in ("0", "off", "false", "no"):
        return None
    root = _root()
    if root is None:
        return None
    found = _disk_at(root, _limit_bytes())
    return found if found.is_usable() else None


_disk_at = lru_cache(Disk)


def _root() -> Path | None:
    """Return the directory to use; None, with a warning, if it depends on a home that there is not."""
    named = os.environ.get("CUPAR_CACHE_DIR")
    try:
        if named:
            return Path(named).expanduser().absolute()
        from platformdirs import user_cache_dir  # 3 ms, spared where the directory is named

        root = Path(user_cache_dir("cupar", appauthor=False))
        if root.is_absolute():
            return root
    except RuntimeError:  # from expanduser
        pass
    _warn_once(
        "no home",
        "cupar finds no home directory for its cache, so builds will not be kept for later processes. "
        "Name a directory in CUPAR_CACHE_DIR, or set CUPAR_CACHE=0.",
    )
    return None


def _limit_bytes() -> int:
    text = os.environ.get("CUPAR_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_SIZE
    match = _SIZE.fullmatch(text)
    if match is None:
        _warn_invalid(
            "CUPAR_CACHE_SIZE", text, "a number of bytes such as 500M or 2G", f"{DEFAULT_SIZE} bytes"
        )
        return DEFAULT_SIZE
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def _lock_timeout() -> float:
    text = os.environ.get("CUPAR_LOCK_TIMEOUT", "").strip()
    if not text:
        return LOCK_TIMEOUT
    with suppress(ValueError):
        seconds = float(text)
        if seconds >= 0 and not math.isnan(seconds):
            return seconds
    _warn_invalid("CUPAR_LOCK_TIMEOUT", text, "a number of seconds such as 60", f"{LOCK_TIMEOUT:g} seconds")
    return LOCK_TIMEOUT


def _warn_invalid(name: str, text: str, expected: str, default: str) -> None:
    _warn_once((name, text), f"{name} is {text!r} and should be {expected}. cupar uses {default}.")


# --- One build among processes -------------------------------------------------------------------------


def fetch(key: str, make: Callable[[], Entry]) -> Found:
    """Return the entry under `key` from disk, or make it there while other processes wait for it.

    Parameters
    ----------
    key : str
        SHA-256 of all that the entry depends on, in lower-case hex.
    make : callable
        Makes the entry. It may fetch another key, if no make of that one fetches this. Its exceptions pass
        through and leave nothing behind.

    Returns
    -------
    Found
        The entry, with origin ``"disk"`` or ``"built"``. It is not counted in `stats`: only the caller
        knows what a build that found its template should be called.
    """
    store = disk()
    if store is None:
        return _make(make)
    found = _load(store, key)
    if found is not None:
        return found
    timeout = _lock_timeout()
    with store.lock(key, timeout) as free:
        if not free:
            _warn_once(
                "timeout",
                f"Another process has been building what this one needs for {timeout:g} seconds. cupar "
                "builds it here without waiting any longer (CUPAR_LOCK_TIMEOUT).",
            )
        found = _load(store, key)  # the process that we waited for has stored it
        if found is None:
            found = _make(make)
            store.store(key, found.entry)
    return found


def discard(key: str) -> None:
    """Drop an entry that turned out to be of no use, although it is what was stored."""
    store = disk()
    if store is not None:
        store.discard(key)


def _load(store: Disk, key: str) -> Found | None:
    start = time.perf_counter()
    entry = store.load(key)
    return None if entry is None else Found(entry, "disk", time.perf_counter() - start)


def _make(make: Callable[[], Entry]) -> Found:
    start = time.perf_counter()
    entry = make()
    return Found(entry, "built", time.perf_counter() - start)


# --- Memory --------------------------------------------------------------------------------------------

_MISSING: Any = object()


class _Flight(Generic[V]):
    """One make() under way, and what the threads that wait for it get."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.value: V = _MISSING
        self.error: BaseException | None = None

    def run(self, make: Callable[[], V]) -> V:
        try:
            self.value = make()
        except BaseException as error:
            self.error = error
            raise
        return self.value

    def wait(self) -> V:
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.value


class Memory(Generic[V]):
    """The most recently used values of this process, each made once however many threads ask for it.

    Nothing is shared across a fork: the child starts empty.

    Parameters
    ----------
    maxsize : int
        Number of values to keep, at least 1.
    """

    def __init__(self, maxsize: int) -> None:
        if maxsize < 1:
            raise ValueError(f"maxsize is {maxsize!r} and should be at least 1")
        self._maxsize = maxsize
        self._reset()
        _MEMORIES.add(self)

    def _reset(self) -> None:
        # Reentrant: the garbage collector may run a destructor under it that asks the cache for something.
        self._lock = threading.RLock()
        self._values: LRUCache[Hashable, V] = LRUCache(self._maxsize)
        self._flights: dict[Hashable, _Flight[V]] = {}

    def get(self, key: Hashable) -> V | None:
        """Return the value under `key`, None if there is none."""
        with self._lock:
            return self._values.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value under `key`, or make it.

        Of several threads that ask at the same time one makes the value, and the others wait for it. If
        that fails all of them get the exception, and who asks later tries again.

        Raises
        ------
        RuntimeError
            If `make` asks for the key that it is making.
        """
        with self._lock:
            value: V = self._values.get(key, _MISSING)
            if value is not _MISSING:
                return value
            flight = self._flights.get(key)
            ours = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight()
        if ours:
            return self._fly(key, flight, make)
        if flight.thread == threading.get_ident():
            raise RuntimeError(f"the function that makes {key!r} asked the cache for {key!r} itself")
        try:
            return flight.wait()
        except Exception:
            raise
        except BaseException:  # what interrupted the other thread is not for this one
            if flight.error is None:
                raise
            return self.get_or_make(key, make)

    def clear(self) -> None:
        """Forget all values."""
        with self._lock:
            old, self._values = self._values, LRUCache(self._maxsize)
        del old  # outside of the lock, as destroying values may take long, or come back here

    def __len__(self) -> int:
        with self._lock:
            return len(self._values)

    def _fly(self, key: Hashable, flight: _Flight[V], make: Callable[[], V]) -> V:
        evicted = []  # kept until the lock is released, for the same reason as in clear()
        try:
            value = flight.run(make)
            with self._lock:
                while len(self._values) >= self._maxsize:
                    evicted.append(self._values.popitem())
                self._values[key] = value
        finally:
            with self._lock:
                self._flights.pop(key, None)
            flight.done.set()
        return value


# --- Counts and warnings -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stats:
    """How many algorithm objects got their build from where."""

    memory: int = 0
    disk: int = 0
    linked: int = 0
    built: int = 0


def stats() -> Stats:
    """Return the counts of this process since it started, was forked, or `reset_stats` was called."""
    with _lock:
        return Stats(**_counts)


def count(origin: Origin) -> None:
    """Count one build of this origin."""
    with _lock:
        _counts[origin] += 1


def reset_stats() -> None:
    """Start counting at zero."""
    with _lock:
        _counts.update(dict.fromkeys(_counts, 0))


def _warn_once(topic: Hashable, message: str) -> None:
    """Warn of a topic the first time it comes up in this process."""
    with _lock:
        known = topic in _warned
        _warned.add(topic)
    if not known:
        warnings.warn(message, CacheWarning, stacklevel=3)


_lock = threading.RLock()  # reentrant for the same reason as that of Memory
_counts: dict[str, int] = {"memory": 0, "disk": 0, "linked": 0, "built": 0}
_warned: set[Hashable] = set()


# --- Fork ----------------------------------------------------------------------------------------------

_MEMORIES: WeakSet[Memory[Any]] = WeakSet()


def _after_fork_in_child() -> None:
    """Start the child with nothing of its parent's, and with locks that no lost thread holds."""
    global _lock
    _lock = threading.RLock()
    reset_stats()
    for memory in _MEMORIES:
        if memory._values or memory._flights:
            _fork.keep_for_ever((memory._values, memory._flights))
        memory._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
