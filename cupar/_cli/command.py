"""Declarations of commands, each at the function that runs it.

Files that declare commands are imported at each start. What one needs is imported when it runs: a listing
needs neither NumPy nor a compiler.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .._base.errors import ArgumentError, ArgumentValueError

OK, FAULT, USAGE = 0, 1, 2  # exit statuses

Arguments = argparse.Namespace
Argument = tuple[tuple[str, ...], dict[str, Any]]


class UsageError(Exception):
    """The command line is invalid."""


class FailedError(Exception):
    """The command cannot be carried out."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, raised like an interrupt."""


@dataclass(frozen=True)
class Result:
    """The result of a command: a document for ``--json``, its text for people, the exit status."""

    document: dict[str, Any]
    show: Callable[[], None]
    status: int = OK


Run = Callable[[Arguments], Result]


@dataclass(frozen=True)
class Command:
    """A command; or a group of commands, which has nothing to run.

    What stands behind ``--`` is not parsed if it takes the rest, and is handed on as ``arguments.rest``. Of
    one with `rest_after`, a function that returns the number of words to parse after the command.
    """

    summary: str
    description: str
    examples: str
    arguments: Sequence[Argument] = ()
    takes_rest: bool = False
    run: Run | None = None
    rest_after: Callable[[Sequence[str]], int] | None = None


COMMANDS: dict[str, Command] = {}  # as in "cache list"; a group before its commands

_EXAMPLES = "\nExamples\n--------\n"


def group(name: str, summary: str, description: str) -> None:
    """Declare a group of commands; see `command` for its description."""
    COMMANDS[name] = Command(summary, *_help(description))


def command(
    name: str,
    summary: str,
    *,
    takes_rest: bool = False,
    rest_after: Callable[[Sequence[str]], int] | None = None,
) -> Callable[[Run], Run]:
    """Declare the command that a function runs, whose docstring is its help: a description, and examples.

    What `argument` declares below is added; all have ``--json``. For the rest see `Command`.
    """

    def declare(run: Run) -> Run:
        arguments = _arguments.pop(run, [])[::-1]  # decorators apply from below
        COMMANDS[name] = Command(summary, *_help(run.__doc__ or ""), arguments, takes_rest, run, rest_after)
        return run

    return declare


_arguments: dict[Run, list[Argument]] = {}


def argument(*names: str, **keywords: Any) -> Callable[[Run], Run]:
    """Declare an argument, as for `argparse.ArgumentParser.add_argument`."""

    def declare(run: Run) -> Run:
        _arguments.setdefault(run, []).append((names, keywords))
        return run

    return declare


@contextmanager
def naming(**names: str) -> Iterator[None]:
    """Replace parameters' names in errors of the Python interface by the command's arguments."""
    try:
        yield
    except ArgumentValueError as error:
        if error.parameter not in names:
            raise
        raise FailedError(f"{names[error.parameter]}: {error.said}") from None


def _help(text: str) -> tuple[str, str]:
    description, _, examples = inspect.cleandoc(text).partition(_EXAMPLES)
    return description.strip(), examples


def ccs_of(text: str) -> list[int]:
    """Return compute capabilities as in ``80,90``, each once."""
    from .._obtain.target import parse_cc

    try:
        return list(dict.fromkeys(parse_cc(each.strip()) for each in text.split(",")))
    except ArgumentError as error:
        said = f"{error.said}; several are separated by commas, as in 80,90"
        raise argparse.ArgumentTypeError(said) from None
