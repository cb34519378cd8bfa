"""One line on builds that a caller waits for: in a terminal, or below a notebook's cell.

It appears once callers have waited for a second, shows all builds of the process, and goes with the last
caller. A thread draws it, which there is only while something is built; a process that finds its
builds does not import this file. ``CUPAR_PROGRESS=0`` does without.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeAlias, TypeVar

from . import fork
from .words import OFF

T = TypeVar("T")

_PATIENCE = 1.0  # seconds
_PAUSE = 0.5  # between two builds, or two that are waited for, which does not begin a new second
_TICK = 0.2


# --- Tasks in progress ----------------------------------------------------------------------------------


class _Task:
    """A task, in progress as long as its lock is held.

    Locks are released by a ``with`` whatever happens; an interrupt in a ``finally`` would leave a task in a
    list for ever.
    """

    def __init__(self, builds: str = "", waits_for: str = "") -> None:
        self.builds, self.waits_for = builds, waits_for
        self.stages: list[str] = []  # of a build: template and operator go on at the same time
        self.context = copy_context()
        is_waited_for = getattr(threading.current_thread(), "is_waited_for", True)
        self.place = _place(self.context) if is_waited_for else None  # None: the line would not be seen
        self._active = threading.Lock()

    def is_active(self) -> bool:
        return self._active.locked()

    def do(self, call: Callable[[], T]) -> T:
        """Call a function, and show it in the progress line until it returns."""
        try:
            with self._active:
                _begin(self)
                if self.builds:
                    self.context.run(_current.set, self)
                return self.context.run(call)
        finally:
            _settle()


_current: ContextVar[_Task | None] = ContextVar("cupar_progress", default=None)


def building(what: str, call: Callable[[], T]) -> T:
    """Call a function that builds something; the line names it, as in ``reduce_into for sm_90``."""
    return _Task(builds=what).do(call)


def waited_for(call: Callable[[], T]) -> T:
    """Call a function that waits for builds in the background, and show these in the progress line."""
    return _Task().do(call)


def waiting(whom: str, call: Callable[[], T]) -> T:
    """Call a function that waits for someone else, as in ``another process``."""
    if _current.get() is None:
        return _Task(waits_for=whom).do(call)
    with stage(f"waiting for {whom}"):
        return call()


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Show the stage of the build in the progress line during the block."""
    task = _current.get()
    if task is None:
        yield
        return
    task.stages.append(name)
    try:
        yield
    finally:
        task.stages.remove(name)


# --- The line -------------------------------------------------------------------------------------------


class _Line:
    """Where it is, and since when callers wait."""

    def __init__(self, place: _Place) -> None:
        self.place = place
        self.since = time.monotonic()
        self.until: float | None = None  # when the last caller has returned
        self.done = 0  # builds
        self._is_drawn = False

    def is_over(self, place: _Place) -> bool:
        """Whether a caller that begins to wait now gets another line."""
        if self.until is None:
            return False
        return time.monotonic() - self.until > _PAUSE or place.where != self.place.where

    def left(self) -> float:
        """Return the seconds until it should be drawn."""
        return max(0.0, self.since + _PATIENCE - time.monotonic())

    def draw(self, tasks: Sequence[_Task]) -> None:
        with suppress(Exception):  # the terminal may be gone, and a notebook may raise anything
            text = _text(tasks, self.done, time.monotonic() - self.since, self.place.width())
            if text:
                self._is_drawn = True
                self.place.draw(text)

    def clear(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            with suppress(Exception):
                self.place.clear()


_lock = fork.Lock()
_tasks: list[_Task] = []
_line: _Line | None = None
_painter: threading.Thread | None = None


def _begin(task: _Task) -> None:
    global _line, _painter
    with _lock:
        _tasks.append(task)
        if task.place is None:
            return
        if _line is None or _line.is_over(task.place):
            _line = _Line(task.place)
        _line.until = None
        if _painter is None or not _painter.is_alive():
            _painter = threading.Thread(target=_paint, name="cupar progress", daemon=True)
            with suppress(RuntimeError):  # as the interpreter ends
                _painter.start()


def _settle() -> _Line | None:
    """Forget finished tasks; return the line, None if no caller waits any more."""
    with _lock:
        done = sum(bool(each.builds) for each in _tasks if not each.is_active())
        _tasks[:] = [each for each in _tasks if each.is_active()]
        if _line is None:
            return None
        _line.done += done
        if any(each.place for each in _tasks):
            return _line
        _line.until = _line.until or time.monotonic()
        _line.clear()
        return None


def _paint() -> None:
    global _painter
    while True:
        with _lock:
            line = _settle()
            if line is None:
                _painter = None
                return
            left = line.left()
            if not left:
                line.draw(_tasks)
        time.sleep(left or _TICK)


def _text(tasks: Sequence[_Task], done: int, seconds: float, width: int) -> str:
    """Return the line's text: as many builds as there is space for."""
    told = [each for each in tasks if each.builds or each.waits_for]
    if not told:
        return ""
    builds = [f"{t.builds} ({', '.join(t.stages)})" if t.stages else t.builds for t in told if t.builds]
    others = [f"waiting for {whom}" for whom in dict.fromkeys(t.waits_for for t in told) if whom]
    end = f", {seconds:.1f} s" + (f", {done} done" if done else "")
    line = ""
    for shown in range(len(builds), -1, -1):
        more = [f"{len(builds) - shown} more"] * (shown < len(builds))
        some = ["building " + " and ".join([*filter(None, [", ".join(builds[:shown])]), *more])]
        line = f"cupar: {', '.join([*some * bool(builds), *others])}{end}"
        if len(line) < width:
            break
    return line[: width - 1]


@fork.in_child
def _after_fork() -> None:
    """Forget the parent's builds and line. A child draws none: it would be drawn over its parent's."""
    global _painter, _line, _is_child
    _tasks.clear()
    _painter, _line, _is_child = None, None, True


_is_child = False


# --- Where it is drawn ----------------------------------------------------------------------------------


class _Terminal:
    """The row below the cursor, which stays where it is, so that others' output continues there."""

    def __init__(self, file: int) -> None:
        self.where = self._file = file

    def width(self) -> int:
        return os.get_terminal_size(self._file).columns or 80

    def draw(self, line: str) -> None:
        if _is_in_foreground(self._file):  # a shell's prompt may be there by now
            # A row below, for which the screen may scroll; then erase below the cursor, write there, return.
            self._write(f"\x1bD\x1b[A\x1b7\x1b[J\x1b[B\r{line}\x1b8")

    def clear(self) -> None:
        if _is_in_foreground(self._file):
            self._write("\x1b[J")

    def _write(self, text: str) -> None:
        # Not by `sys.stderr`, whose lock would stay taken if the process ended meanwhile.
        os.write(self._file, text.encode(errors="replace"))


class _Notebook:
    """A display below the cell in whose context a build was asked for."""

    def __init__(self, shell: Any, context: Context) -> None:
        self._publisher = shell.display_pub
        self.where = getattr(self._publisher, "parent_header", {}).get("msg_id")
        self._context = context.copy()  # by which the kernel tells the cell
        self._identity = {"display_id": f"cupar-{id(self):x}-{time.monotonic_ns():x}"}
        self._is_there = False

    def width(self) -> int:
        return 100

    def draw(self, line: str) -> None:
        from html import escape

        shown = f'<span style="opacity: 0.7">{escape(line)}</span>'
        self._publish({"text/plain": line, "text/html": shown})
        self._is_there = True

    def clear(self) -> None:
        if self._is_there:
            self._publish({"text/plain": "", "text/html": ""})

    def _publish(self, data: dict[str, str]) -> None:
        publish = self._publisher.publish
        self._context.run(publish, data, {}, transient=self._identity, update=self._is_there)


_Place: TypeAlias = _Terminal | _Notebook  # `where` tells two of them apart


def _place(context: Context) -> _Place | None:
    """Return where a person sees the line; None where it would not be seen, or is not wanted."""
    environment = os.environ
    if environment.get("CUPAR_PROGRESS", "").strip().lower() in OFF or _is_child or environment.get("CI"):
        return None
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:
        return _Notebook(shell, context)
    try:
        file = sys.stderr.fileno()
        is_terminal = os.isatty(file) and environment.get("TERM", "dumb") != "dumb"
    except (AttributeError, OSError, ValueError):  # it is missing, or replaced by the program
        return None
    return _Terminal(file) if is_terminal else None


def _is_in_foreground(terminal: int) -> bool:
    return os.tcgetpgrp(terminal) == os.getpgrp()
