"""Output of the command line: tables, fields and JSON; plain text where there is no terminal."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_MANY_ROWS = 500  # rich takes 0.1 ms and more for each
_SHORT, _FOLDED = 10, 8  # characters of text that is not folded, and in which other text can be read


# --- Streams --------------------------------------------------------------------------------------------


class OutputError(OSError):
    """Standard output cannot be written."""


def open_closed_streams() -> None:
    """Open standard streams that are closed, on nothing: else the next file would be taken for one.

    Writing to a closed standard output fails as it would in any program.
    """
    for number, flags in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        if not _is_open(number):
            os.open(os.devnull, flags)  # the lowest number that is free is this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def leave_output() -> None:
    """Write no more to standard output. Python would try once more at exit, and complain."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def output_left_alone() -> Iterator[None]:
    """Redirect standard output to standard error while the block runs, for C code and child processes too.

    Scripts print, as do processes that they start and libraries in C: none of that is part of a document.
    """
    import ctypes

    sys.stdout.flush()
    usual = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        with suppress(OSError, AttributeError, ValueError):  # what C has in a buffer of that name
            libc = ctypes.CDLL(None)
            libc.fflush(ctypes.c_void_p.in_dll(libc, "stdout"))
        os.dup2(usual, 1)
        os.close(usual)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def progress_bar(*columns: str, shown: bool) -> Progress:
    """Return a progress bar: ``"count"``, ``"time"`` and rich's templates are shown beside the bar."""
    from rich import progress

    known = {"count": progress.MofNCompleteColumn, "time": progress.TimeElapsedColumn}
    first, *others = [
        known[each]() if each in known else progress.TextColumn(each, markup=False) for each in columns
    ]
    # No thread that refreshes: processes are forked while it is shown.
    options: Any = {"console": console(), "auto_refresh": False, "transient": True, "disable": not shown}
    return progress.Progress(first, progress.BarColumn(), *others, **options)


# --- Printing -------------------------------------------------------------------------------------------


def _printable(text: str) -> str:
    """Return text without control characters: metadata of a foreign bundle may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def say(text: str = "") -> None:
    try:
        sys.stdout.write(f"{text if text.isprintable() else _printable(text)}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from None


def complain(text: str) -> None:
    with suppress(OSError):  # there is no other place to say it
        sys.stderr.write(_printable(f"cupar: {text}\n"))
        sys.stderr.flush()


def print_json(document: dict[str, Any]) -> None:
    # With an indent, json is an order of magnitude slower.
    many = any(isinstance(each, list) and len(each) > _MANY_ROWS for each in document.values())
    say(json.dumps(document, indent=None if many else 2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> None:
    """Print rows under the names of their columns; `numbers` are aligned to the right.

    On a narrow terminal text is folded, and keys and numbers are not.
    """
    if not (on_terminal() and len(rows) <= _MANY_ROWS and _print_folded(columns, rows, numbers)):
        for line in _aligned([columns, *rows], [name in numbers for name in columns]):
            say(line)


def _print_folded(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str]) -> bool:
    """Print a table on a terminal; return whether that is wide enough."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    to = console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    least = -2
    for name, cells in zip(columns, zip(columns, *rows, strict=True), strict=True):
        width = max(map(len, cells))
        whole = name == "key" or name in numbers or width <= _SHORT
        least += (width if whole else _FOLDED) + 2
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        table.add_row(*map(Text, map(_printable, row)))
    if least <= to.width:  # else the terminal folds whole lines
        to.print(table)
    return least <= to.width


def print_fields(title: str, fields: Iterable[tuple[str, str]]) -> None:
    """Print a title, and names with values under it; on a terminal values are folded between words."""
    pairs = [(f"  {name}", value) for name, value in fields]
    if not on_terminal():
        for line in (*([title] if title else []), *_aligned(pairs, [False, False])):
            say(line)
        return
    from rich.text import Text

    to = console()
    if title:
        to.print(Text(title, style="bold"), soft_wrap=True)
    width = max((len(name) for name, _ in pairs), default=0)
    columns = max(to.width - width - 2, _FOLDED)
    for name, value in pairs:
        # Words that are longer than the line, such as keys, stay whole: so they can be copied.
        lines = textwrap.wrap(_printable(value), columns, break_long_words=False, break_on_hyphens=False)
        text = Text(_printable(name).ljust(width + 2), style="cyan")
        text.append(f"\n{' ' * (width + 2)}".join(lines), style="default")
        to.print(text, soft_wrap=True)


def _aligned(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """Yield each row as a line, its cells as wide as their columns; an empty one is ``-``."""
    cells = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = zip(to_the_right, widths, strict=True)
    pattern = "  ".join(f"{{:{'>' if right else '<'}{width}}}" for right, width in columns)
    return (pattern.format(*row).rstrip() for row in cells)


# --- Values as text -------------------------------------------------------------------------------------


def iso_text(seconds: float | None) -> str | None:
    """Return a time for a program, in UTC; None if it is not known."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
