"""Files that were read, and whether they are still as they were."""

from __future__ import annotations

import functools
import stat
from pathlib import Path


class FileGuard:
    """Tells whether files are as they were read, by size and time of change, and objects still the same."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._files)

    def read(self, path: str | Path) -> bytes:
        """Read a file, and watch it; raise OSError if it cannot be read."""
        path = str(path)
        state = _state(path)
        found = _content(path, state) if state else Path(path).read_bytes()
        self._files[path] = state
        return found

    def absent(self, path: str | Path) -> None:
        """Watch a file that is not there."""
        self._files[str(path)] = ()

    def holds(self) -> bool:
        """Whether all files are unchanged."""
        return all(_state(path) == state for path, state in self._files.items())


def _state(path: str) -> tuple[int, ...]:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # ValueError: of a name that no file can have
        return ()
    if not stat.S_ISREG(found.st_mode):  # a folder, which is no file that is read
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


@functools.lru_cache(64)
def _content(path: str, state: tuple[int, ...]) -> bytes:
    return Path(path).read_bytes()
