"""The command line, ``cupar`` and ``python -m cupar``: see the cache, build ahead, carry builds elsewhere.

Each other file of this folder declares the commands that it runs, and is found here.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import signal
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .. import __version__
from .._base.warnings import CacheWarning
from .command import (
    COMMANDS,
    FAULT,
    OK,
    USAGE,
    Arguments,
    Command,
    FailedError,
    Result,
    Terminated,
    UsageError,
)
from .terminal import OutputError, complain, leave_output, open_closed_streams, print_json

_INTERRUPTED, _BROKEN_PIPE = 130, 141  # exit statuses that shells report after SIGINT and SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments; by default those of the process.

    Returns
    -------
    int
        The exit status: 0 if all is well, 1 if something was found wrong or failed, 2 if the command line is
        not understood, 130 if interrupted, 141 if the reader of its output went away.
    """
    open_closed_streams()
    try:
        status = _status(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status if status >= 0 else _end_by(-status)
    except BrokenPipeError:  # what reads the output, such as 'head', has seen enough
        leave_output()
        return _BROKEN_PIPE
    except OSError as error:
        leave_output()
        complain(f"error: standard output: {error.strerror or error}")
        return FAULT
    except Terminated:
        return _end_by(signal.SIGTERM)
    except KeyboardInterrupt:
        complain("interrupted")
        return _INTERRUPTED


def _end_by(number: int) -> int:
    """End by a signal, so that the process that started this one sees why it ended."""
    with suppress(OSError):  # of SIGKILL
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    return 128 + number


def _status(words: list[str]) -> int:
    parser = _parser()
    words, rest = _split(words)
    try:
        arguments = parser.parse_args(words)
    except SystemExit as end:  # after help, the version, or a usage error
        return int(end.code or 0)
    if arguments.run is None:  # of a group of commands, or of all
        arguments.parser.print_help(sys.stdout)
        return OK
    arguments.rest = rest
    with _warnings_as_lines(), _ending_cleanly():
        return _run(arguments)


def _run(arguments: Arguments) -> int:
    try:
        result: Result = arguments.run(arguments)
        if arguments.json:
            print_json(result.document)
        else:
            result.show()
        return result.status
    except (BrokenPipeError, OutputError):
        raise
    except UsageError as error:
        complain(f"error: {error}")
        return USAGE
    except OSError as error:
        named = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        complain(f"error: {named}{error.strerror or error}")
    except (FailedError, ValueError, ImportError) as error:
        complain(f"error: {error}")
    except RecursionError:
        complain("error: an entry's metadata is nested too deep")
    return FAULT


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Let SIGTERM end this process only after cleaning up processes, locks and files."""

    def end(*received: object) -> None:
        raise Terminated

    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Write a warning of the cache as one line, without its place in cupar's code."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        if issubclass(category, CacheWarning):
            complain(f"warning: {message}")
        else:
            usual(message, category, *place, **named)

    usual = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always", CacheWarning)
        warnings.showwarning = show
        yield


# --- The parser -----------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser that does not hide that its help cannot be written."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class _Formatter(argparse.HelpFormatter):
    """Wraps descriptions paragraph by paragraph, and leaves examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(_EXAMPLES):
            return text
        return "\n\n".join(textwrap.fill(each, width) for each in text.split("\n\n"))


_EXAMPLES = "examples:\n"

_ALL = Command(
    "",
    "See cupar's cache, build ahead of time, and carry builds to other machines.",
    "cupar info\ncupar cache list\ncupar build train.py --cc 80,90",
)


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands that the files of this folder declare."""
    for file in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{file.name}")
    parser = _Parser(prog="cupar", **_help(_ALL))
    parser.add_argument("--version", action="version", version=f"cupar {__version__}")
    folders = {"": _folder(parser)}
    for name, command in COMMANDS.items():
        folder, _, word = name.rpartition(" ")
        of_command = folders[folder].add_parser(word, help=command.summary, **_help(command))
        if command.run is None:
            folders[name] = _folder(of_command)
            continue
        of_command.set_defaults(run=command.run)
        of_command.add_argument("--json", action="store_true", help="print one JSON document")
        for names, keywords in command.arguments:
            of_command.add_argument(*names, **keywords)
    return parser


def _folder(parser: argparse.ArgumentParser) -> Any:
    parser.set_defaults(run=None, parser=parser)
    return parser.add_subparsers(title="commands", metavar="COMMAND")


def _help(command: Command) -> dict[str, Any]:
    return {
        "description": command.description,
        "epilog": _EXAMPLES + textwrap.indent(command.examples, "  "),
        "formatter_class": _Formatter,
    }


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Take off the arguments of a script: what stands behind ``--``, or where the command says."""
    runner = COMMANDS.get(words[0]) if words else None
    if runner is not None and runner.rest_after is not None:
        end = 1 + runner.rest_after(words[1:])
        return words[:end], words[end:]
    taking = (name.split() for name, command in COMMANDS.items() if command.takes_rest)
    if "--" not in words or not any(words[: len(name)] == name for name in taking):
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]
