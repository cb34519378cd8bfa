"""Entries in a directory, which many processes use at the same time.

On disk an entry is one file, written aside and moved into place, so readers never lock and never see half of
one. The layout::

    <root>/v1/<first 2 hex of the key>/<key>.cupar    the entries; their mtime says when they were last used
    <root>/v1/journal                                 one line for each store: the bytes it wrote
    <root>/v1/locks/                                  a file for each key that is being built
    <root>/v1/tmp/                                    entries being written

An entry becomes code that runs. So the directory must belong to this user (or to root) and be writable by
nobody else, entries of other owners are not read, and symbolic links in it are not followed.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from weakref import WeakSet

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from .._base.warnings import warn_once
from .._base.words import counted
from .entry import FORMAT, SUFFIX, Entry, encode, is_key, read, read_meta

__all__ = ["Disk", "File", "Pruned", "Usage", "fault"]

_POLL_SECONDS = 0.01
_USE_CLOCK_SECONDS = 3600  # how exactly mtime records the last use: a hit seldom has to write
_LEFTOVER_SECONDS = 3600  # nothing is written, and nothing built, for that long
_JOURNAL_BYTES = 4096  # about 500 stores between two counts of what is really there

# O_NONBLOCK: opening a pipe that somebody left in place of an entry must not wait for a writer.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


# --- Files ---------------------------------------------------------------------------------------------


class File(NamedTuple):
    """A file as a listing shows it, as text: a listing may be of many."""

    name: str
    place: str
    mode: int
    mtime: float
    size: int

    @property
    def path(self) -> Path:
        return Path(self.place)

    @property
    def key(self) -> str:
        return self.name.removesuffix(SUFFIX)


def _files(directory: str | Path) -> list[File]:
    """List what is in a directory; one that cannot be listed, or a file gone meanwhile, is not there."""
    files = []
    with suppress(OSError), os.scandir(directory) as listing:
        for item in listing:
            with suppress(OSError):
                status = item.stat(follow_symlinks=False)
                files.append(File(item.name, item.path, status.st_mode, status.st_mtime, status.st_size))
    return files


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Open a file for reading, and nothing but a file."""
    descriptor = os.open(path, _READ_FLAGS)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is not a file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file, status
    finally:
        os.close(descriptor)


def _remove(path: Path) -> bool:
    """Remove a file if that can be done."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _remove_if_same(path: Path, status: os.stat_result | None) -> None:
    """Remove a file if it still is the one that has this status: another process may have put a good one."""
    with suppress(OSError):
        if status is None or os.path.samestat(path.lstat(), status):
            path.unlink()


def _make_private(directory: Path) -> None:
    """Make a directory and its missing parents, each for this user alone."""
    if os.path.lexists(directory):
        return
    missing = [directory]
    missing += itertools.takewhile(lambda parent: not os.path.lexists(parent), directory.parents)
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process makes it, too
            each.mkdir(0o700)
            each.chmod(0o700)  # a umask may have taken the owner's bits


def fault(status: os.stat_result, *more_owners: int) -> str | None:
    """Say why others could have written a file or to a directory, None if they could not.

    Its owner may be this user, root, who could place code anywhere, and whoever else is named.
    """
    if sys.platform == "win32":  # it has no such modes, and a profile's directory is private
        return None
    if status.st_uid not in (0, os.geteuid(), *more_owners):
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not stat.S_ISLNK(status.st_mode):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that does not exist yet, for this user alone."""
    with os.fdopen(os.open(path, _WRITE_FLAGS, 0o600), "wb") as file:
        if hasattr(os, "fchmod"):
            os.fchmod(file.fileno(), 0o600)  # a umask may have taken the owner's bits
        file.write(data)


def _lock(path: Path, timeout: float) -> FileIO | None:
    """Lock a file that need not exist, and return it open; None if another one holds it for too long.

    Not with the package filelock: importing it gives the process an audit hook (4.2), which makes every read
    of a function's code or defaults 20 times slower, and a lookup of an operator in memory reads both.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, "no locks")
    end = time.monotonic() + timeout
    while True:
        # An object, which closes itself: an interrupt may come wherever this would be done otherwise.
        file = FileIO(path, "r+", opener=lambda path, _flags: os.open(path, _LOCK_FLAGS, 0o600))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                os.fchmod(file.fileno(), 0o600)  # a umask may have taken the owner's bits
                with suppress(OSError):
                    os.utime(file.fileno())  # a dead process may have left it, and it is in use again
                _held.add(file)
                return file
        except (BlockingIOError, FileNotFoundError):
            pass  # another one holds it, or has just removed it, so that others may lock a new one
        except BaseException:
            file.close()
            raise
        file.close()
        if time.monotonic() >= end:
            return None
        time.sleep(_POLL_SECONDS)


def _unlock(path: Path, file: FileIO) -> None:
    """Remove and unlock a file that this process has locked."""
    if file.closed:  # in a forked child, that has come out of what its parent was doing
        return
    _remove(path)
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)  # a child that did not fork through Python has the file open, too
    with suppress(OSError):
        file.close()


_held: WeakSet[FileIO] = WeakSet()


def _leave_to_parent() -> None:
    """Close the files that a parent has locked: its locks end with it, however long its children live."""
    for file in _held:
        with suppress(OSError):
            file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


# --- Disk ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Number of entries in a directory, their size and the limit on it in bytes."""

    entries: int
    size: int
    limit: int


@dataclass(frozen=True)
class Pruned:
    """Number of entries that were removed, and their size in bytes."""

    removed: int
    freed: int


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
    read_only : bool, optional
        Nothing in it is changed, and it may belong to another user: who names it, trusts its owner.
    """

    def __init__(self, path: Path, limit_bytes: int, *, read_only: bool = False) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self.read_only = read_only
        self._base = path / f"v{FORMAT}"
        self._journal = self._base / "journal"
        self._known_private = False
        self._more_owners: tuple[int, ...] = ()

    def load(self, key: str) -> Entry | None:
        """Return the entry under `key`, None if there is none.

        A file that is not the entry as it was stored is removed, and counts as none.
        """
        path = self._path(key)
        try:
            if not self._is_private() or not self._may_use(path.parent):
                return None
            return self._read(path, key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn_refused(error)
            return None

    def store(self, key: str, entry: Entry) -> None:
        """Keep an entry under `key`, in place of the one there, if the directory allows it."""
        data = encode(key, entry)
        if len(data) > self.limit_bytes:
            warn_once(
                ("too large", self.path),
                f"A build of {counted(len(data), 'byte')} is larger than cupar's whole cache may be "
                f"({counted(self.limit_bytes, 'byte')}) and is not kept. CUPAR_CACHE_SIZE sets the limit.",
            )
            return
        path = self._path(key)
        try:
            _make_private(self._base)
            if self._is_private():
                _make_private(path.parent)
                if self._may_use(path.parent):
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
        held, free = None, True
        try:
            path = self._inner("locks") / f"{name}.lock"
            held = _lock(path, timeout)
            free = held is not None
        except OSError:
            pass
        try:
            yield free
        finally:
            if held is not None:
                _unlock(path, held)

    def entries(self) -> Iterator[tuple[str, Path, int]]:
        """Yield key, path and size in bytes of each entry, in no particular order."""
        for file in self.files():
            yield file.key, file.path, file.size

    def files(self) -> Iterator[File]:
        """Yield the file of each entry, in no particular order; its mtime is when it was last used."""
        for shard in _files(self._base):
            if len(shard.name) == 2 and stat.S_ISDIR(shard.mode):  # and no link to one
                for file in _files(shard.place):
                    if file.name.endswith(SUFFIX) and is_key(file.key):
                        yield file

    def meta(self, key: str) -> dict[str, Any] | None:
        """Return the metadata of an entry, unchecked, for listings; None if there is none to be had."""
        with suppress(OSError), _opened(self._path(key)) as (file, status):
            return read_meta(file, status.st_size)
        return None

    def holds(self, key: str) -> bool:
        """Tell whether there is an entry under `key`, without reading it."""
        return os.path.lexists(self._path(key))

    def usage(self) -> Usage:
        """Count the entries."""
        sizes = [size for _, _, size in self.entries()]
        return Usage(len(sizes), sum(sizes), self.limit_bytes)

    def discard(self, key: str) -> None:
        """Remove the entry under `key`, if there is one."""
        _remove(self._path(key))

    def clear(self) -> None:
        """Remove all entries, and what dead processes left."""
        for _, path, _ in self.entries():
            _remove(path)
        _remove(self._journal)
        self._remove_leftovers()

    def prune(self, *, size: int | None = None, unused_for: float | None = None) -> Pruned:
        """Remove entries, those that were not used for longest first, and what dead processes left.

        Parameters
        ----------
        size : int, optional
            Bytes that may remain. By default the limit counts, as it does for `store`.
        unused_for : float, optional
            Seconds; what was not used for longer goes, too. Uses are recorded to the hour.
        """
        oldest = -math.inf if unused_for is None else time.time() - unused_for
        try:
            if self._base.is_dir():
                # Two at a time would do no harm but to the journal's sum, so who has waited goes on.
                with self.lock("sweep", timeout=10):
                    return self._sweep(size=size, oldest=oldest)
        except OSError as error:
            self._warn_refused(error)
        return Pruned(0, 0)

    def check(self, *, repair: bool = False) -> Iterator[tuple[str, str | None]]:
        """Read all entries; yield the key of each, and what is wrong with those that are not served.

        If none is, since others could have written them, yield that with the directory in place of a key.

        Parameters
        ----------
        repair : bool, optional
            Remove these.
        """
        with suppress(OSError):
            distrusted = self.distrusted()
            if distrusted is not None:
                yield str(distrusted[0]), distrusted[1]
        for key, path, _ in self.entries():
            try:
                why, status = self._examine(path, key)
            except FileNotFoundError:  # it went meanwhile
                continue
            except OSError as error:  # which may pass: what cannot be read need not be damaged
                yield key, f"cannot be read ({error.strerror})"
                continue
            if why is not None and repair:
                _remove_if_same(path, status)
            yield key, why

    def is_cache(self) -> bool:
        """Tell whether this is a directory of a cache, empty as it may be."""
        return self._base.is_dir()

    def is_usable(self) -> bool:
        """Tell whether entries found here can be trusted; warn once if others could have written them."""
        try:
            return self._is_private()
        except OSError:
            return True  # not there yet, or load() and store() meet the same error and say it

    def _path(self, key: str) -> Path:
        return self._base / key[:2] / f"{key}{SUFFIX}"

    def _is_private(self) -> bool:
        """Tell whether the directory, which must exist, is this user's and no other may write to it.

        An entry becomes code that runs, so a directory that others can fill is as good as theirs.
        """
        if not self._known_private:
            distrusted = self.distrusted()
            if distrusted is None:
                self._known_private = True
            else:
                self._warn_distrusted(*distrusted)
        return self._known_private

    def distrusted(self) -> tuple[Path, str] | None:
        """Return what others could have written of the directory, and why, None if nothing."""
        root = self.path.stat()  # which may be a link: it is what the user named
        self._more_owners = (root.st_uid,) if self.read_only else ()
        found = self._fault(root)
        if found is not None:
            return self.path, found
        found = self._fault(self._base.lstat())
        return None if found is None else (self._base, found)

    def _inner(self, name: str) -> Path:
        """Return a directory for what is no entry; raise OSError if something else is in its place."""
        path = self._base / name
        _make_private(path)
        if not stat.S_ISDIR(path.lstat().st_mode):  # what a link leads to is none of the cache's
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return path

    def _may_use(self, directory: Path) -> bool:
        """Tell whether a directory within this one is a directory, and no other may write to it."""
        return self._is_trusted(directory, directory.lstat())

    def _fault(self, status: os.stat_result) -> str | None:
        """Say why others could have written this, None if they could not."""
        link = "is a symbolic link" if stat.S_ISLNK(status.st_mode) else None
        return fault(status, *self._more_owners) or link

    def _is_trusted(self, path: Path, status: os.stat_result) -> bool:
        """Tell whether nobody else could have written this; warn once if others could."""
        found = self._fault(status)
        if found is not None:
            self._warn_distrusted(path, found)
        return found is None

    def _warn_distrusted(self, path: Path, found: str) -> None:
        mend = f"Run 'chmod 700 {path}' if it is yours, or name a directory of your own in CUPAR_CACHE_DIR."
        if self.read_only:
            mend = "Its owner can mend that with 'chmod -R go-w'."
        warn_once(
            ("not private", self.path),
            f"cupar does not use its cache in {self.path}: {path} {found}, so that others could place code "
            f"in it. {mend} Until then what is in it is not used.",
        )

    def _read(self, path: Path, key: str) -> Entry | None:
        """Read the entry at `path`; drop it if something else lies there."""
        try:
            descriptor = os.open(path, _READ_FLAGS)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EMLINK):  # what O_NOFOLLOW says of a symbolic link
                raise
            self._drop_damaged(path, None)
            return None
        entry = None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                if not self._is_trusted(path, status):
                    return None
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    entry = read(file, status.st_size, key)
        finally:
            os.close(descriptor)
        if entry is None:
            self._drop_damaged(path, status)
        elif not self.read_only and abs(time.time() - status.st_mtime) > _USE_CLOCK_SECONDS:
            with suppress(OSError):
                os.utime(path)
        return entry

    def _examine(self, path: Path, key: str) -> tuple[str | None, os.stat_result]:
        """Return what is wrong with an entry, None if nothing is, and the status of the file that says so."""
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return "is a symbolic link", status
        if not stat.S_ISREG(status.st_mode):
            return "cannot be read (is not a file)", status
        if path != self._path(key):
            return "does not lie where entries do", status
        with _opened(path) as (file, status):
            why = fault(status, *self._more_owners)
            if why is None:
                why = fault(path.parent.lstat(), *self._more_owners)
                why = None if why is None else f"lies in a directory that {why}"
            if why is None and read(file, status.st_size, key) is None:
                why = "is damaged or of another format"
        return why, status

    def _drop_damaged(self, path: Path, status: os.stat_result | None) -> None:
        """Remove what is no entry, unless another process has put one there meanwhile."""
        if not self.read_only:
            _remove_if_same(path, status)
        warn_once(
            "damaged",
            f"cupar's cache entry {path} is damaged or of another format. "
            "It is not used and will be rebuilt.",
        )

    def _warn_refused(self, error: OSError) -> None:
        advice = "What is in it is not used."
        if not self.read_only:
            advice = (
                "Builds will not be kept for later processes. CUPAR_CACHE_DIR names another directory, "
                "CUPAR_CACHE=0 does without one."
            )
        warn_once(("refused", self.path), f"cupar cannot use its cache in {self.path}: {error}. {advice}")

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file aside and move it into place, so that nobody sees half of it.

        Nothing is flushed to the device: what a crash tears fails its checksum and is built again.
        """
        aside = self._inner("tmp") / f"{path.name}.{os.getpid()}.{os.urandom(8).hex()}"
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

    def _sweep(
        self, keep: Path | None = None, *, size: int | None = None, oldest: float = -math.inf
    ) -> Pruned:
        """Remove what was not used since `oldest`, or for longest until `size` is left, and leftovers.

        By default that is 90 % of the limit once it is exceeded, so that the next store need not sweep again.
        """
        # What was used at a time to come was so before a clock went back, and before all that was used since.
        latest = time.time() + _USE_CLOCK_SECONDS
        files = sorted(self.files(), key=lambda file: (file.mtime <= latest, file.mtime))
        total = sum(file.size for file in files)
        if size is None:
            size = self.limit_bytes * 9 // 10 if total > self.limit_bytes else total
        removed = freed = 0
        for file in files:
            unwanted = file.mtime < oldest or total - freed > size
            if unwanted and file.path != keep and _remove(file.path):
                removed, freed = removed + 1, freed + file.size
        self._remove_leftovers()
        self._replace(self._journal, b"%d\n" % (total - freed))
        return Pruned(removed, freed)

    def _remove_leftovers(self) -> None:
        """Remove what dead processes left. What is new, a living one may be about to move into place."""
        now = time.time()
        for name in ("tmp", "locks"):
            path = self._base / name
            for file in [] if os.path.islink(path) else _files(path):  # noqa: PTH114 - takes any name
                if abs(now - file.mtime) > _LEFTOVER_SECONDS:  # it is old, or a clock went back
                    _remove(file.path)
