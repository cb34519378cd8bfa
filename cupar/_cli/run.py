"""``cupar run``."""

from __future__ import annotations

from collections.abc import Sequence

from . import program
from .command import Arguments, Result, UsageError, argument, command
from .terminal import output_left_alone


def _of_cupar(words: Sequence[str]) -> int:
    """Return the number of words before python's own."""
    own = (place for place, word in enumerate(words) if word == "--" or not word.startswith(("--", "-h")))
    return next(own, len(words))


@command("run", "run a program with cupar in place of cuda.compute", rest_after=_of_cupar)
@argument("program", nargs="?", metavar="PROGRAM", help="a Python command line: SCRIPT, -m MODULE, …")
@argument("--no-children", action="store_true", help="leave new processes of the program as they are")
@argument("--quiet", action="store_true", help="print nothing at the end")
def run(arguments: Arguments) -> Result:
    """Run an unchanged Python program with cupar.compute in place of cuda.compute.

    Whatever the program, or a package that it uses, asks of cuda.compute is built once and kept in the
    cache. At the end, a line on standard error says what was built, what was found, and how long that
    once took to build, in the program and in all processes that it starts. The arguments are those of
    python: options, a script, -m MODULE, -c CODE or -, and the program's arguments. Python replaces this
    process. New Python processes of the program have cupar.compute, too, unless --no-children is given.

    Examples
    --------
    cupar run train.py --epochs 3
    cupar run -m pytest -n 8 tests
    cupar run -X dev train.py
    """
    if not arguments.rest:
        raise UsageError("run: name a script, or a module with -m")
    reaches_children = not arguments.no_children
    if not arguments.json:
        program.become(arguments.rest, is_quiet=arguments.quiet, reaches_children=reaches_children)
    with output_left_alone():
        status, told = program.watched(arguments.rest, reaches_children=reaches_children)
    return Result({"status": status, **told}, lambda: None, status)
