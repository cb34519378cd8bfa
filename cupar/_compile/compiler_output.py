"""Keeps what CCCL's C library prints out of the user's output, and takes the reason of an error from it.

When a program does not compile, that library prints: NVRTC's log on C++'s ``cerr``, the end of it with C's
``printf``. So the numbers of the files behind C's own streams, ``stdout`` and ``stderr``, are changed while
it compiles (``cerr`` goes through ``stderr``). They are fields of glibc's FILE, at a place that its ABI fixes
and that is checked before each use; where it is not as expected, nothing is changed, and the library prints.

That is less than to exchange file descriptors 1 and 2, which is the usual way: for the seconds of a compile,
that would catch what other threads print, through Python's own streams, too, and processes that they start
would write to nowhere for as long as they live. This catches what other threads print through C's streams
alone, and hands it on when the compile is over. Other ways do more harm or cost more:

- A thread can have a table of descriptors of its own (``CLOSE_RANGE_UNSHARE``). But nvJitLink, which the
  library calls, starts the driver, and what the driver opens must be open for all threads.
- A helper process takes some tenths of a second to start, before each first build.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from .._base import fork, log
from .._base.causes import is_debugging

__all__ = ["Printed", "flush", "held"]

_NUMBER_AT = 112  # bytes into a FILE of glibc, where pointers have 64 bits

_END = re.compile(r"\nEXCEPTION in (?:cccl_\w+)\(\): (.*)\n")
_ERROR = re.compile(r"\b(?:fatal )?error\s*:\s*(.+)", re.IGNORECASE)
_REASON = 200  # characters


class _Stream(NamedTuple):
    """One of C's streams, while a file of ours is behind it."""

    number: ctypes.c_int  # in the FILE itself
    usual: int
    file: int

    def read(self) -> bytes:
        """Return what was printed."""
        return os.pread(self.file, os.fstat(self.file).st_size, 0)

    def text(self) -> str:
        """Return what was printed as text, of any encoding."""
        return self.read().decode(errors="surrogateescape")

    def rewrite(self, text: str) -> None:
        """Have something else printed."""
        os.ftruncate(self.file, 0)
        os.lseek(self.file, 0, os.SEEK_SET)
        os.write(self.file, text.encode(errors="surrogateescape"))


class Printed:
    """What native code has printed since a block began."""

    def __init__(self, out: _Stream | None, err: _Stream | None) -> None:
        self._out, self._err = out, err

    def reason(self) -> str:
        """Return why a compile failed, to be put behind a message: in short, or all if ``CUPAR_DEBUG=1``.

        All of it is logged. Returns nothing where nothing was caught.
        """
        flush()
        out = self._out.text() if self._out else ""
        end = _END.search(out)
        if self._out and end:
            self._out.rewrite(out[: end.start()] + out[end.end() :])  # the rest is not the library's
        if self._err is None:
            return f": {end[1]}" if end else ""
        said = self._err.text().strip()
        self._err.rewrite("")
        if said:
            log.debug("a compiler printed:\n%s", said)
        if said and is_debugging():
            return f"\n{said}"
        errors = _ERROR.findall(said) or ([end[1]] if end else [])
        if not errors:
            return ""
        error = errors[0].strip()
        return f": {error}" if len(error) <= _REASON else f": {error[: _REASON - 1]}…"


@contextmanager
def held() -> Iterator[Printed]:
    """Keep back what native code prints while the block runs, and print what `Printed.reason` left of it."""
    with _lock, _behind("stdout") as out, _behind("stderr") as err:
        yield Printed(out, err)


_lock = fork.Lock()
_active: list[_Stream] = []


@contextmanager
def _behind(name: str) -> Iterator[_Stream | None]:
    """Put a file of ours behind a stream; do nothing, and yield None, where that cannot be done."""
    stream = None
    with suppress(OSError, AttributeError, ValueError):  # not glibc, or not Linux
        if (number := _number(name)) is not None:
            stream = _Stream(number, number.value, os.memfd_create(f"cupar {name}"))
    if stream is None:
        yield None
        return
    _active.append(stream)
    try:
        stream.number.value = stream.file
        yield stream
    finally:
        stream.number.value = stream.usual
        with suppress(ValueError):  # in a child that was forked meanwhile
            _active.remove(stream)
        with suppress(OSError):
            left = stream.read()
            while left:
                left = left[os.write(stream.usual, left) :]
        os.close(stream.file)


def _number(name: str) -> ctypes.c_int | None:
    """Return the field of a FILE that holds its file's number; None if it is not where glibc has it."""
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    libc = ctypes.CDLL(None)
    libc.gnu_get_libc_version  # noqa: B018 - no other C library has it
    stream = ctypes.c_void_p.in_dll(libc, name)
    if not stream:
        return None
    number = ctypes.c_int.from_address(stream.value + _NUMBER_AT)  # type: ignore[operator]
    expected = libc.fileno(stream)
    return number if number.value == expected >= 0 else None


def flush() -> None:
    """Let C write what it has in the buffer of its standard output, if it has one of that name."""
    with suppress(OSError, AttributeError, ValueError):
        libc = ctypes.CDLL(None)
        libc.fflush(ctypes.c_void_p.in_dll(libc, "stdout"))


@fork.in_child
def _forget() -> None:
    """Give the streams their files back: a child that was forked meanwhile compiles nothing."""
    for stream in _active:
        stream.number.value = stream.usual
    _active.clear()
