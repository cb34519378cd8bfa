"""Files and directories that many processes use at the same time, and that others must not have written."""

from __future__ import annotations

import _thread
import itertools
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .._base.errors import RefusedError

_LEFTOVER_SECONDS = 3600  # nothing is written, and nothing built, for that long

# O_NONBLOCK: opening a pipe that somebody left in place of an entry must not wait for a writer.
_READ_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


_moving = _thread.allocate_lock()


def read_at(file: int, size: int, offset: int) -> bytes:
    """Return at most `size` bytes of an open file, from `offset` on."""
    if hasattr(os, "pread"):
        return os.pread(file, size, offset)
    with _moving:  # a place of reading that all threads share
        os.lseek(file, offset, os.SEEK_SET)
        return os.read(file, size)


class DistrustedError(RefusedError):
    """Others could have written a file, or to its directory: `path` is which, and `why` how."""

    def __init__(self, path: Path, why: str, prefix: str, file: os.stat_result | None) -> None:
        super().__init__(prefix + why, file)
        self.path = path
        self.why = why


def fault(status: os.stat_result, *more_owners: int) -> str | None:
    """Say why others could have written a file or to a directory, None if they could not.

    Its owner may be this user, root, who could place code anywhere, and `more_owners`.
    """
    if sys.platform == "win32":  # it has no such modes, and a profile's directory is private
        return None
    if status.st_uid not in (0, os.geteuid(), *more_owners):
        return f"belongs to another user (uid {status.st_uid})"
    if stat.S_ISLNK(status.st_mode):
        return "is a symbolic link"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def check_is_file(status: os.stat_result) -> None:
    """Raise `RefusedError` for a link, a directory or a pipe."""
    if stat.S_ISLNK(status.st_mode):
        raise RefusedError("is a symbolic link", status)
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError("cannot be read (is not a file)", status)


@contextmanager
def opened(path: str | Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a file for reading, and nothing but a file; yield descriptor and status."""
    try:
        descriptor = os.open(path, _READ_FLAGS)
    except FileNotFoundError:
        raise
    except OSError:
        check_is_file(os.lstat(path))
        raise
    try:
        status = os.fstat(descriptor)
        check_is_file(status)
        yield descriptor, status
    finally:
        os.close(descriptor)


def listed(directory: str | Path) -> list[tuple[os.DirEntry[str], os.stat_result]]:
    """List a directory; one that cannot be listed is empty, and files gone meanwhile are left out."""
    found = []
    with suppress(OSError), os.scandir(directory) as listing:
        for item in listing:
            with suppress(OSError):
                found.append((item, item.stat(follow_symlinks=False)))
    return found


def make_private(directory: Path) -> None:
    """Make a directory and its missing parents, each for this user alone."""
    if os.path.lexists(directory):
        return
    missing = [directory]
    missing += itertools.takewhile(lambda parent: not os.path.lexists(parent), directory.parents)
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process makes it, too
            each.mkdir(0o700)
            each.chmod(0o700)  # a umask may have taken the owner's bits


@contextmanager
def replacing(path: Path, aside: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Write a file aside and move it into place when the block ends: readers never see half of it."""
    try:
        with os.fdopen(os.open(aside, _WRITE_FLAGS, mode), "wb") as file:
            with suppress(OSError, AttributeError):  # some file systems and platforms have no modes
                os.fchmod(file.fileno(), mode)  # a umask may have taken bits
            yield file
        aside.replace(path)
    except BaseException:
        remove(aside)
        raise


def remove(path: str | Path, status: os.stat_result | None = None) -> bool:
    """Remove a file if that can be done, and if it still is the one that has this status."""
    try:
        path = Path(path)
        if status is not None and not os.path.samestat(path.lstat(), status):
            return False
        path.unlink()
    except OSError:
        return False
    return True


def remove_leftovers(directory: Path, prefix: str = "") -> None:
    """Remove files that dead processes left; a living one may be about to move a new file into place."""
    now = time.time()
    for item, status in listed(directory):
        is_old = abs(now - status.st_mtime) > _LEFTOVER_SECONDS  # or a clock went back
        if is_old and item.name.startswith(prefix):
            remove(item.path)
