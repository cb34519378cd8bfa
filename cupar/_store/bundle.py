"""Bundles: many entries in one file, which is read where it lies.

A bundle is made once, carried in a package or an image, and read by many processes at the same time. The
layout, numbers little-endian::

    header    one line of 128 bytes: version, number of entries, where the index begins, size of the file,
              SHA-256 of these numbers and the index
    frames    the sealed entries, one behind the other, in the order of their keys
    index     80 bytes for each entry, in the same order: key, offset and size of the frame, its SHA-256

So one checksum stands for the whole file: opening a bundle checks it against the index, and reading an entry
checks the frame against the index. No entry is read before it is asked for. The same entries make the same
bytes.

An entry becomes code that runs. So the file must belong to this user (or to root) and be writable by no
other, and entries may be signed (see `cupar._store.entry.seal`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
import weakref
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .._base.digests import sha256
from .._base.errors import RefusedError
from .._base.words import counted
from .entry import Entry, is_key, meaning_of, unseal
from .files import DistrustedError, fault, read_at, remove_leftovers, replacing
from .layer import Layer, ListedEntry

_VERSION = 1
_HEADER_BYTES = 128
_MOST_ENTRIES = 1 << 22  # an index of 320 MiB, which every reader has in memory
_HEADER = re.compile(rb"cupar-bundle [0-9]+ ([0-9]{1,15}) ([0-9]{1,15}) ([0-9]{1,15}) [0-9a-f]{64} *\n")

# O_NONBLOCK: opening a pipe must not wait for a writer. Links are followed: the user named this path.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_BINARY"))


class _Record(NamedTuple):
    """The index record of an entry."""

    key: bytes
    offset: int
    size: int
    digest: bytes

    @property
    def end(self) -> int:
        return self.offset + self.size


_RECORD = struct.Struct("<32sQQ32s")


def _header(count: int, start: int, size: int, index: bytes) -> bytes:
    """Return the only header that a bundle with this index, which begins at `start`, may have."""
    line = f"cupar-bundle {_VERSION} {count} {start} {size} "
    digest = sha256(line.encode())
    digest.update(index)
    return (line + digest.hexdigest()).ljust(_HEADER_BYTES - 1).encode() + b"\n"


# --- Reading -------------------------------------------------------------------------------------------


class Bundle(Layer):
    """The entries of a bundle. Threads and forked processes may share it.

    With a secret, entries that are not signed with it are not served. Opening it raises an OSError, or
    `RefusedError` if it is not a bundle, is damaged, or others could have written it.
    """

    # Read in place with pread and not through a memory map: a reader that looks at a mapped file while it is
    # cut, as 'cp' onto it does, dies of SIGBUS (12 of 12 processes that did nothing else). There, a cut is
    # just damage. The index, 80 bytes for an entry, is read at once, for its checksum is taken anyway. It is
    # no memoryview: threads without a GIL that slice the same one release it under each other (Python 3.13t).

    def __init__(self, path: Path, secret: bytes | None = None) -> None:
        self.path = path
        self._secret = secret
        self._file = os.open(path, _READ_FLAGS)
        self._close = weakref.finalize(self, os.close, self._file)
        try:
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError(f"{path} is not a file")
            self._size = status.st_size
            self._start, self._index = self._open()
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """Close the file; the bundle is empty then."""
        self._index = b""
        self._close()

    def _open(self) -> tuple[int, bytes]:
        """Check the file as a whole; return where the index begins, and the index."""
        changed = self._changed()
        if changed is not None:
            raise RefusedError(
                f"{self.path} {changed}. Run 'chmod go-w {self.path}' if it is yours, or use a copy that is."
            )
        header = read_at(self._file, _HEADER_BYTES, 0)
        if not header.startswith(b"cupar-bundle "):
            raise RefusedError(f"{self.path} is no bundle, which 'cupar cache export' makes")
        match = _HEADER.fullmatch(header)
        if match is not None:
            count, start, size = map(int, match.groups())
            if size == self._size and start >= _HEADER_BYTES and start + count * _RECORD.size == size:
                index = self._read_index(start, count)
                if header == _header(count, start, size, index):
                    return start, index
        raise RefusedError(
            f"{self.path} is damaged, was cut short, or is a bundle of another version of cupar"
        )

    def _read_index(self, start: int, count: int) -> bytes:
        """Read the index; a file with holes in it may claim to be of any size."""
        if count <= _MOST_ENTRIES:
            with suppress(MemoryError):
                return read_at(self._file, count * _RECORD.size, start)
        raise RefusedError(f"{self.path} is too large: its index is of {counted(count, 'entry')}")

    def _changed(self) -> str | None:
        """Say why the file, as it is now, must not be used."""
        status = os.fstat(self._file)
        found = fault(status)
        if found is not None:
            return f"{found}, so that others could place code in it"
        return None if status.st_size == self._size else "was written to while it was in use"

    def trust(self) -> None:
        """Raise `DistrustedError` if others could have written the file, or have since it was opened."""
        changed = self._changed() if self._index else None
        if changed is not None:
            raise DistrustedError(self.path, changed, "lies in a file that ", None)

    def refuse(self, key: str, error: Exception) -> None:
        """Warn of an entry that is not served; without the file, or with another in its place, none is."""
        self.is_lost = isinstance(error, (OSError, DistrustedError))
        super().refuse(key, error)

    def _records(self) -> Iterator[_Record]:
        index = self._index
        if index and self._changed() is None:
            yield from map(_Record._make, _RECORD.iter_unpack(index))

    def entries(self) -> Iterator[ListedEntry]:
        """Yield all entries, in the order of the keys."""
        for record in self._records():
            yield ListedEntry(record.key.hex(), record.size, None, record)

    def find(self, key: str) -> _Record | None:
        """Look a key up in the index."""
        index = self._index
        if not index or not is_key(key):
            return None
        wanted = bytes.fromhex(key)
        position = self._position(wanted)
        if self._key_at(position) != wanted:
            return None
        return _Record._make(_RECORD.unpack_from(index, position * _RECORD.size))

    def alike(self, key: str) -> Iterator[str]:
        """Yield the keys of entries equivalent to one under `key`, made by any versions of the compilers."""
        first = bytes.fromhex(key[:8])
        position = self._position(first)
        while (found := self._key_at(position)).startswith(first):
            if meaning_of(found.hex()) == meaning_of(key):
                yield found.hex()
            position += 1

    def _key_at(self, position: int) -> bytes:
        """Return a key of the index; at its end, one of no length."""
        start = position * _RECORD.size
        return self._index[start : start + 32]

    def _position(self, wanted: bytes) -> int:
        """Return where the first key stands that is not less than this."""
        return bisect_left(range(len(self._index) // _RECORD.size), wanted, key=self._key_at)

    def peek(self, where: _Record, offset: int, size: int) -> bytes:
        """Read part of an entry, unchecked but for what concerns the file as a whole."""
        self.trust()
        if where.offset < _HEADER_BYTES or where.end > self._start:
            raise RefusedError("is damaged: it does not lie between the bundle's header and index")
        return read_at(self._file, min(size, max(0, where.size - offset)), where.offset + offset)

    def read_at(self, where: _Record, key: str) -> Entry:
        """Read an entry; raise `RefusedError` if it is not to be served."""
        frame = self.peek(where, 0, where.size)
        if sha256(frame).digest() != where.digest:
            raise RefusedError("is damaged: its checksum differs from the index")
        return unseal(frame, key, self._secret)

    def check(self, *, repair: bool = False) -> Iterator[tuple[str, str | None]]:
        """Read all entries, and look at their order; see `Layer.check`."""
        yield from super().check(repair=repair)
        end, last = _HEADER_BYTES, b""
        in_order = True
        for record in self._records():
            in_order &= record.offset == end and record.key > last
            end, last = record.end, record.key
        if not in_order or end != self._start:
            yield str(self.path), "its entries do not lie one behind the other in the order of their keys"


# --- Writing -------------------------------------------------------------------------------------------


def write(path: Path, items: Iterable[tuple[str, bytes]]) -> tuple[int, int]:
    """Write keys and sealed entries, in any order, to a bundle; return how many it has, and its size.

    They are taken one at a time and not kept in memory. Of several under the same key the first counts.
    Readers never see half of the file. If it cannot be written (OSError), or a key is not one (ValueError),
    an existing file is left alone.
    """
    from tempfile import TemporaryFile  # 5 ms, which readers do not pay

    _check_target(path)
    remove_leftovers(path.parent, _ASIDE)
    aside = path.with_name(f"{_ASIDE}{os.getpid()}.{os.urandom(8).hex()}")
    # Kept aside until all keys are known, for bytes that do not depend on the order of arrival; in a file
    # that has no name, so that nothing is left of it when this process is killed.
    with _named(path), TemporaryFile(dir=path.parent) as spool:
        records = _spooled(spool, items)
        # Readable with any umask: bundles are made to be shared.
        with replacing(path, aside, 0o644) as file:
            size = _write_sorted(file, spool, records)
            file.flush()
            os.fsync(file.fileno())  # a bundle is copied to machines that could not rebuild it
    return len(records), size


_ASIDE = ".cupar-bundle."


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Let errors of the system name the file that was asked for, and none that is made on the way to it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _check_target(path: Path) -> None:
    """Raise an OSError if something is there that must not be replaced by a file, or no place for one."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):  # such as /dev/null
            raise OSError(errno.EINVAL, "is not a file", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))


def _spooled(spool: BinaryIO, items: Iterable[tuple[str, bytes]]) -> list[_Record]:
    """Write frames as they come, and return where they lie, in the order of their keys."""
    records: dict[bytes, _Record] = {}
    offset = 0
    for key, frame in items:
        if not is_key(key):
            raise ValueError(f"items: expected keys, a SHA-256 in lower-case hexadecimal each, got {key!r}")
        raw = bytes.fromhex(key)
        if raw not in records:
            records[raw] = _Record(raw, offset, len(frame), sha256(frame).digest())
            offset += spool.write(frame)
    if len(records) > _MOST_ENTRIES:
        raise ValueError(f"items: a bundle has room for {_MOST_ENTRIES} entries, got {len(records)}")
    return [records[raw] for raw in sorted(records)]


def _write_sorted(file: BinaryIO, spool: BinaryIO, records: list[_Record]) -> int:
    """Write header, frames and index; return the size of all."""
    starts = list(accumulate((record.size for record in records), initial=_HEADER_BYTES))
    index = b"".join(
        _RECORD.pack(record.key, start, record.size, record.digest)
        for record, start in zip(records, starts, strict=False)
    )
    size = starts[-1] + len(index)
    file.write(_header(len(records), starts[-1], size, index))
    for record in records:
        spool.seek(record.offset)
        file.write(spool.read(record.size))
    file.write(index)
    return size
