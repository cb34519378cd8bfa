"""What the command line prints: tables, fields, JSON and progress; plain where there is no terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._ahead.batch import Job, Outcome

__all__ = [
    "Bar",
    "Lines",
    "OutputError",
    "Progress",
    "complain",
    "date_text",
    "is_narrow",
    "iso_text",
    "leave_output",
    "on_terminal",
    "open_closed_streams",
    "output_left_alone",
    "print_fields",
    "print_json",
    "print_table",
    "say",
    "size_text",
]

_MANY_ROWS = 500  # rich takes 0.1 ms and more for each
_SHORT, _FOLDED = 10, 8  # characters of text that is not folded, and in which other text can be read


def _printable(text: str) -> str:
    """Return text without what a terminal acts on: metadata of a foreign bundle may hold anything."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def open_closed_streams() -> None:
    """Open standard streams that are closed, on nothing: else the next file would be taken for one.

    What is written to a closed standard output fails as it would in any program: it cannot be written.
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
    """Send to standard error what is written to standard output while the block runs, by whatever means.

    Scripts print, as do processes that they start and libraries in C: none of that is part of a document.
    """
    from .._compile.compiler_output import flush

    sys.stdout.flush()
    usual = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        flush()
        os.dup2(usual, 1)
        os.close(usual)


def complain(text: str) -> None:
    with suppress(OSError):  # there is no other place to say it
        sys.stderr.write(_printable(f"cupar: {text}\n"))
        sys.stderr.flush()


def on_terminal() -> bool:
    return sys.stdout.isatty()


def is_narrow() -> bool:
    return shutil.get_terminal_size().columns < 80


class OutputError(OSError):
    """Standard output cannot be written."""


def say(text: str = "") -> None:
    try:
        sys.stdout.write(f"{text if text.isprintable() else _printable(text)}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror) from None


def print_json(document: Any, *, rows: int = 0) -> None:
    # With an indent, json is an order of magnitude slower.
    say(json.dumps(document, indent=None if rows > _MANY_ROWS else 2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = ()) -> None:
    """Print rows under the names of their columns; `numbers` are aligned to the right.

    On a narrow terminal text is folded, and keys and numbers are not.
    """
    if not on_terminal() or len(rows) > _MANY_ROWS:
        _print_aligned(columns, rows, numbers)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    least = 0
    for name, cells in zip(columns, zip(columns, *rows, strict=True), strict=True):
        width = max(map(len, cells))
        whole = name == "key" or name in numbers or width <= _SHORT
        least += (width if whole else _FOLDED) + 2
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold", no_wrap=whole)
    if least - 2 > console.width:  # then the terminal folds whole lines
        _print_aligned(columns, rows, numbers)
        return
    for row in rows:
        table.add_row(*map(Text, map(_printable, row)))
    console.print(table)


def _print_aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str]) -> None:
    for line in _aligned([columns, *rows], [name in numbers for name in columns]):
        say(line)


def print_fields(title: str, fields: Iterable[tuple[str, str]]) -> None:
    """Print a title, and names with values under it; on a terminal values are folded between words."""
    pairs = [(f"  {name}", value) for name, value in fields]
    if not on_terminal():
        for line in ([title] if title else []) + list(_aligned(pairs, [False, False])):
            say(line)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False)
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    width = max((len(name) for name, _ in pairs), default=0)
    room = max(console.width - width - 2, _FOLDED)
    for name, value in pairs:
        # Words that are longer than the line, such as keys, stay whole: so they can be copied.
        lines = textwrap.wrap(_printable(value), room, break_long_words=False, break_on_hyphens=False)
        text = Text(_printable(name).ljust(width + 2), style="cyan")
        text.append(f"\n{' ' * (width + 2)}".join(lines), style="default")
        console.print(text, soft_wrap=True)


def _aligned(rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """Yield each row as a line, its cells as wide as their columns; an empty one is ``-``."""
    cells = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    pattern = "  ".join(
        f"{{:{'>' if right else '<'}{width}}}" for right, width in zip(to_the_right, widths, strict=True)
    )
    return (pattern.format(*row).rstrip() for row in cells)


def size_text(size: float) -> str:
    """Return a number of bytes for a person, as in ``2.1 MiB``."""
    if size == 1:
        return "1 byte"
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    place = 0
    while size >= 1024 and place < len(units) - 1:
        size, place = size / 1024, place + 1
    return f"{size:.{min(place, 1)}f} {units[place]}"


def date_text(seconds: float | None) -> str:
    """Return a time for a person, in local time; empty if it is not known."""
    return "" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def iso_text(seconds: float | None) -> str | None:
    """Return a time for a program, in UTC; None if it is not known."""
    return None if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


# --- Progress ---


class Progress:
    """Shows nothing of what is being built."""

    @contextmanager
    def showing(self, total: int) -> Iterator[None]:
        """Show what is done while the block runs."""
        yield

    def idle(self) -> None:
        """Show that time passes."""

    def done(self, job: Job, outcome: Outcome) -> None:
        """Show that a build is done."""


class Lines(Progress):
    """A line for each build."""

    @contextmanager
    def showing(self, total: int) -> Iterator[None]:
        self._total, self._count = total, 0
        yield

    def done(self, job: Job, outcome: Outcome) -> None:
        self._count += 1
        width = len(str(self._total))
        result = "already there" if outcome.result == "there" else outcome.result
        say(f"[{self._count:{width}}/{self._total}] {result:<13} {outcome.seconds:6.2f} s  {job}")
        sys.stdout.flush()


class Bar(Progress):
    """A bar on a terminal."""

    @contextmanager
    def showing(self, total: int) -> Iterator[None]:
        from rich import progress
        from rich.console import Console

        # No thread that refreshes: processes are forked while it is shown.
        self._bar = progress.Progress(
            progress.TextColumn("building"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.description}", markup=False),
            console=Console(file=sys.stdout, highlight=False),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)
        with self._bar:
            yield

    def idle(self) -> None:
        self._bar.refresh()

    def done(self, job: Job, outcome: Outcome) -> None:
        self._bar.update(self._task, advance=1, description=f"{job.spec.algorithm} for sm_{job.spec.cc}")
        self._bar.refresh()
