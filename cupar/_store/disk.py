"""Entries in a directory, which many processes use at the same time.

On disk an entry is one file, written aside and moved into place, so readers never lock and never see half of
one. The layout::

    <root>/v1/<first 2 hex of the key>/<key>.cupar    the entries; their mtime says when they were last used
    <root>/v1/journal                                 one line for each store: the bytes it wrote
    <root>/v1/locks/                                  a file for each key that is being built
    <root>/v1/tmp/                                    entries being written

An entry becomes code that runs. So the directory must belong to this user (or to root) and be writable by
no other, entries of other owners are not read, and symbolic links in it are not followed.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._base.data import dataclass
from .._base.errors import RefusedError
from .._base.warnings import warn_once
from .._base.words import counted
from . import files, locks
from .entry import DAMAGED, FORMAT, LARGEST, SUFFIX, Entry, decode, encode, is_key, meaning_of
from .files import DistrustedError
from .layer import Layer, ListedEntry

_USE_CLOCK_SECONDS = 3600  # how exactly mtime records the last use: a hit seldom has to write
_JOURNAL_BYTES = 4096  # about 500 stores between two counts of the entries
_APPEND_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Pruned:
    """Number of entries that were removed, and their size in bytes."""

    removed: int
    freed: int


class Disk(Layer):
    """Entries in one directory; beyond a limit, the least recently used are removed.

    But for `read` and `trust`, no method raises an OSError: what the system refuses is said once, in a
    `CacheWarning`, and the caller goes on without the cache. A lookup opens one file whatever the number of
    entries; only `store` counts.

    The directory need not exist yet; `store` makes it. If it is `read_only`, nothing in it is changed, and it
    may belong to another user: naming it is trusting its owner.
    """

    def __init__(self, path: Path, limit_bytes: int, *, read_only: bool = False) -> None:
        self.path = path
        self.limit_bytes = limit_bytes
        self.read_only = read_only
        self._base = path / f"v{FORMAT}"
        self._journal = self._base / "journal"
        self._trusted = False
        self._more_owners: tuple[int, ...] = ()

    # --- Trust

    def trust(self) -> None:
        """Raise `DistrustedError` unless the directory, which must exist, is this user's alone to write.

        An entry becomes code that runs, so a directory that others can fill is as good as theirs.
        """
        if not self._trusted:
            root = self.path.stat()  # may be a link, which the user named
            self._more_owners = (root.st_uid,) if self.read_only else ()
            self._check(self.path, root)
            self._check(self._base)
            self._trusted = True

    def is_usable(self) -> bool:
        """Tell whether entries found here can be trusted; warn once if others could have written them."""
        try:
            self.trust()
        except DistrustedError as error:
            self._warn_distrusted(error)
            return False
        except OSError:
            pass  # not there yet, or load() and store() meet the same error and say it
        return True

    def _check(self, path: Path, status: os.stat_result | None = None, prefix: str = "") -> None:
        why = files.fault(path.lstat() if status is None else status, *self._more_owners)
        if why is not None:
            raise DistrustedError(path, why, prefix, status)

    def _warn_distrusted(self, error: DistrustedError) -> None:
        path = error.path
        mend = f"Run 'chmod 700 {path}' if it is yours, or name a directory of your own in CUPAR_CACHE_DIR."
        if self.read_only:
            mend = "Its owner can mend that with 'chmod -R go-w'."
        warn_once(
            ("not private", self.path),
            f"cupar does not use its cache in {self.path}: {path} {error.why}, so that others could place "
            f"code in it. {mend} Until then its content is not used.",
        )

    def _warn_refused(self, error: OSError) -> None:
        advice = "Its entries are not used."
        if not self.read_only:
            advice = (
                "Builds will not be kept for later processes. CUPAR_CACHE_DIR names another directory, "
                "CUPAR_CACHE=0 does without one."
            )
        warn_once(("refused", self.path), f"cupar cannot use its cache in {self.path}: {error}. {advice}")

    # --- Reading

    def entries(self) -> Iterator[ListedEntry]:
        """Yield all entries, in no particular order."""
        for shard, its in files.listed(self._base):
            if len(shard.name) == 2 and stat.S_ISDIR(its.st_mode):  # and no link to one
                for file, status in files.listed(shard.path):
                    key = file.name.removesuffix(SUFFIX)
                    if key != file.name and is_key(key):
                        yield ListedEntry(key, status.st_size, status.st_mtime, file.path)

    def find(self, key: str) -> Path:
        """Return the path that an entry has, if there is one."""
        return self._base / key[:2] / f"{key}{SUFFIX}"

    def alike(self, key: str) -> Iterator[str]:
        """Yield the keys of entries equivalent to one under `key`, made by any versions of the compilers."""
        for file, _ in files.listed(self.find(key).parent):
            found = file.name.removesuffix(SUFFIX)
            if found != file.name and is_key(found) and meaning_of(found) == meaning_of(key):
                yield found

    def holds(self, key: str) -> bool:
        """Tell whether there is an entry under `key`, without reading it."""
        return os.path.lexists(self.find(key))

    def peek(self, where: str | Path, offset: int, size: int) -> bytes:
        """Read part of an entry, unchecked."""
        with files.opened(where) as (descriptor, _):
            if offset:
                os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size)

    def read_at(self, where: str | Path, key: str) -> Entry:
        """Read an entry; raise `RefusedError` if it is not to be served."""
        path = Path(where)
        shard = path.parent
        if shard.name != key[:2]:
            raise RefusedError("does not lie where entries do")
        with files.opened(path) as (descriptor, status):
            self._check(shard, prefix="lies in a directory that ")
            self._check(path, status)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                entry = decode(file.read(status.st_size), key) if status.st_size <= LARGEST else None
            if entry is None:
                raise RefusedError(DAMAGED, status)
            return entry

    def load(self, key: str) -> Entry | None:
        """Return the entry under `key`, or None; this counts as a use of it."""
        entry = super().load(key)
        if entry is not None and not self.read_only:
            with suppress(OSError):
                path = self.find(key)
                if abs(time.time() - path.stat().st_mtime) > _USE_CLOCK_SECONDS:
                    os.utime(path)
        return entry

    def refuse(self, key: str, error: Exception) -> None:
        """Warn of an entry that is not served, and remove it if it is damaged."""
        if isinstance(error, DistrustedError):
            self._warn_distrusted(error)
        elif isinstance(error, OSError):
            self._warn_refused(error)
        else:
            if isinstance(error, RefusedError):
                self.drop(self.find(key), error)
            super().refuse(key, error)

    def drop(self, where: str | Path, error: RefusedError) -> None:
        """Remove an entry that was refused, unless another process has put a good one there meanwhile."""
        if not self.read_only:
            files.remove(where, error.file)

    # --- Writing

    def store(self, key: str, entry: Entry) -> None:
        """Write an entry under `key`, replacing the one there, if the directory allows it."""
        data = encode(key, entry)
        if len(data) > self.limit_bytes:
            warn_once(
                ("too large", self.path),
                f"A build of {counted(len(data), 'byte')} is larger than cupar's whole cache may be "
                f"({counted(self.limit_bytes, 'byte')}) and is not kept. CUPAR_CACHE_SIZE sets the limit.",
            )
            return
        path = self.find(key)
        try:
            files.make_private(self._base)
            self.trust()
            files.make_private(path.parent)
            self._check(path.parent)
            self._replace(path, data)
            self._account(path, len(data))
        except DistrustedError as error:
            self._warn_distrusted(error)
        except OSError as error:
            self._warn_refused(error)

    @contextmanager
    def lock(self, name: str, timeout: float) -> Iterator[bool]:
        """Hold a lock among processes while the block runs; wait `timeout` seconds for another process.

        Yields False if another process still holds it. True if this one does, and also where there can be no
        lock (the file system has none, or the directory cannot be written): there, several processes at worst
        do the same work.
        """
        held, free = None, True
        try:
            path = self._inner("locks") / f"{name}{locks.SUFFIX}"
            held = locks.acquire(path, timeout)
            free = held is not None
        except OSError:
            pass
        try:
            yield free
        finally:
            if held is not None:
                locks.release(path, held)

    def _inner(self, name: str) -> Path:
        """Return a directory for files that are no entries; raise OSError if its place is taken."""
        path = self._base / name
        files.make_private(path)
        if not stat.S_ISDIR(path.lstat().st_mode):  # the target of a link does not belong to the cache
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return path

    def _replace(self, path: Path, data: bytes) -> None:
        """Write a file.

        Nothing is flushed to the device: an entry that a crash truncates fails its checksum and is built
        again.
        """
        aside = self._inner("tmp") / f"{path.name}.{os.getpid()}.{os.urandom(8).hex()}"
        with files.replacing(path, aside) as file:
            file.write(data)

    # --- Removing

    def discard(self, key: str) -> None:
        """Remove the entry under `key`, if there is one."""
        files.remove(self.find(key))

    def clear(self) -> None:
        """Remove all entries, and what dead processes left."""
        for each in self.entries():
            files.remove(each.where)
        files.remove(self._journal)
        self._remove_leftovers()

    def prune(self, *, size: int | None = None, unused_for: float | None = None) -> Pruned:
        """Remove entries, the least recently used first, and files of dead processes.

        `size` bytes may remain; by default the limit counts, as it does for `store`. Entries not used for
        more than `unused_for` seconds goes, too.
        """
        oldest = -math.inf if unused_for is None else time.time() - unused_for
        try:
            if self._base.is_dir():
                # Two at a time would do no harm but to the journal's sum: after waiting in vain, go on.
                with self.lock("sweep", timeout=10):
                    return self._sweep(size=size, oldest=oldest)
        except OSError as error:
            self._warn_refused(error)
        return Pruned(0, 0)

    def _account(self, path: Path, size: int) -> None:
        """Add written bytes to the journal; sweep if the limit is exceeded or the total is not known."""
        total = self._append_to_journal(size)
        if total is None or total > self.limit_bytes:
            # Without waiting: the holder of the lock does just this.
            with self.lock("sweep", timeout=0) as free:
                if free:
                    self._sweep(path)

    def _append_to_journal(self, size: int) -> int | None:
        """Add a line to the journal and return the sum, or None if it is unreadable.

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
        if len(text) > _JOURNAL_BYTES or not all(each.isdigit() and len(each) < 20 for each in sizes):
            return None
        return sum(map(int, sizes))

    def _sweep(
        self, keep: Path | None = None, *, size: int | None = None, oldest: float = -math.inf
    ) -> Pruned:
        """Remove leftovers, entries not used since `oldest`, and then the least recently used down to `size`.

        By default that is 90 % of the limit once it is exceeded, so that the next store need not sweep again.
        """
        # A time of use in the future is from before the clock went back: older than all uses since.
        latest = time.time() + _USE_CLOCK_SECONDS
        found = sorted(self.entries(), key=lambda each: (_used(each) <= latest, _used(each)))
        total = sum(each.size for each in found)
        if size is None:
            size = self.limit_bytes * 9 // 10 if total > self.limit_bytes else total
        removed = freed = 0
        for each in found:
            unwanted = _used(each) < oldest or total - freed > size
            if unwanted and each.where != str(keep) and files.remove(each.where):
                removed, freed = removed + 1, freed + each.size
        self._remove_leftovers()
        self._replace(self._journal, b"%d\n" % (total - freed))
        return Pruned(removed, freed)

    def _remove_leftovers(self) -> None:
        for name, remove in (("tmp", files.remove_leftovers), ("locks", locks.remove_leftovers)):
            path = self._base / name
            if not os.path.islink(path):  # noqa: PTH114 - which takes any name
                remove(path)


def _used(each: ListedEntry) -> float:
    return each.used or 0.0  # a directory records it
