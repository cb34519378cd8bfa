"""Programs that commands run: by python itself, with what `started` does in them before they begin."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from . import ALONE, CHILDREN, PYTHON, STARTED, STARTED_PATH
from .command import FailedError, Terminated, UsageError
from .terminal import complain

if TYPE_CHECKING:
    from .._ahead.batch import Failure
    from .._ahead.make import Outcome
    from .._ir.specialisation import Specialisation

_FOLDER = Path(__file__).parent / "start"
_PREFIX = "cupar-run-"  # of folders of temporary files


class ProgramResult(NamedTuple):
    """The requests of a script, those that failed, and the builds of its process, by key."""

    specs: list[Specialisation]
    failures: list[Failure]
    outcomes: dict[str, Outcome]


def become(words: Sequence[str], *, is_quiet: bool, reaches_children: bool) -> NoReturn:
    """Become a program: `words` are a command line of python's, which is what runs from here on."""
    folder = "" if is_quiet else _folder()
    try:
        command, environment = _start(words, *_to_run(os.getpid(), reaches_children, folder))
        sys.stdout.flush()
        os.execve(command[0], command, environment)
    finally:  # nothing was run
        if folder:
            Path(folder).rmdir()


def _folder() -> str:
    """Make the folder in which processes count their requests; an empty text if there is no place for it."""
    try:
        return tempfile.mkdtemp(prefix=_PREFIX)
    except OSError as error:
        complain(f"requests are not counted: {error}")
        return ""


def watched(words: Sequence[str], *, reaches_children: bool) -> tuple[int, dict[str, Any]]:
    """Run a program; return its exit status, negative for a signal, and its and its processes' requests."""
    from .._ahead import watch

    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        status = _run(words, _to_run(0, reaches_children, folder))
        return status, watch.summed(folder).document()


def _to_run(first: int, reaches_children: bool, folder: str) -> list[str]:
    return ["run", str(first), CHILDREN if reaches_children else ALONE, folder]


def requested(path: Path, arguments: Sequence[str], ccs: Sequence[int]) -> ProgramResult:
    """Return the requests of a script (.py) or a recorded list; `arguments` are the script's."""
    from .._ahead import batch, record

    if path.suffix == ".py":
        path.open("rb").close()  # to say now that it cannot be read
        return asked_by(path, arguments, ccs)
    if arguments:
        raise UsageError("--: a recorded list takes no arguments; a script has a name that ends in .py")
    return ProgramResult(*batch.ask_list(record.read(path), ccs), {})


def asked_by(script: Path, arguments: Sequence[str], ccs: Sequence[int]) -> ProgramResult:
    """Run a script whose factories build nothing; return its requests.

    Parameters
    ----------
    script : Path
    arguments : sequence of str
        Those of the script: ``sys.argv[1:]``.
    ccs : sequence of int
        The compute capabilities to build for, of which the first is for factories that name none; empty: that
        of the current device.
    """
    with closing(_file()) as file:
        what = ["ask", str(file.fileno()), ",".join(map(str, ccs))]
        status = _run([str(script), *arguments], what, file.fileno())
        return _received(_text(file), str(script), status)


def _received(text: bytes, script: str, status: int) -> ProgramResult:
    """Return the requests that a script reported before it ended; its settings are adopted here."""
    from .. import _cache
    from .._ahead import batch, codec, make

    asked = ProgramResult([], [], {})
    for line in map(json.loads, text.splitlines()):
        if "failure" in line:
            asked.failures.append(batch.Failure(line.get("place", script), line["failure"]))
        if "spec" in line:
            asked.specs.append(codec.loads(base64.b64decode(line["spec"])))
        for key, outcome in line.get("outcomes", {}).items():
            asked.outcomes[key] = make.Outcome(**{**outcome, "warnings": tuple(outcome["warnings"])})
        for name, value in line.get("environment", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for bundle in map(Path, line.get("bundles", ())):
            if bundle not in _cache._used:
                _cache._used.append(bundle)  # which the script has checked, and may have removed
    if status and not asked.failures:
        how = f"by {signal.strsignal(-status)}" if status < 0 else f"with exit status {status}"
        asked.failures.append(batch.Failure(script, f"ended {how}"))
    return asked


def _file() -> FileIO:
    return FileIO(os.memfd_create("cupar"), "r+")  # in memory: there may be no directory to write to


def _text(file: FileIO) -> bytes:
    file.seek(0)
    return file.readall()


def _run(words: Sequence[str], what: Sequence[str], *descriptors: int) -> int:
    command, environment = _start(words, *what)
    with subprocess.Popen(command, env=environment, pass_fds=descriptors) as process:
        try:
            return process.wait()
        except KeyboardInterrupt as received:
            if process.poll() is None:  # a terminal has told the program, too
                process.send_signal(signal.SIGTERM if isinstance(received, Terminated) else signal.SIGINT)
            try:
                process.wait()
            except KeyboardInterrupt:
                process.kill()
            raise


def _start(words: Sequence[str], *what: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of a program, and in it what `started` is to do."""
    if not sys.executable:
        raise FailedError("there is no Python interpreter to run a program with: sys.executable is empty")
    options = _options(sys.orig_argv[1:])
    for refused in ("-E", "-I", "-S"):
        if refused in (*options, *_options(words)):
            raise UsageError(
                f"{refused}: python would not import the sitecustomize that starts cupar; leave it out"
            )
    environment = {**os.environ, STARTED: "\n".join([PYTHON, *what]), "PYTHONPATH": str(_FOLDER)}
    path = os.environ.get("PYTHONPATH")
    if path is not None:
        environment[STARTED_PATH] = path
    if path:
        environment["PYTHONPATH"] += os.pathsep + path
    return [sys.executable, *options, *words], environment


def _options(words: Sequence[str]) -> list[str]:
    """Return the leading options of a python command line, each a word, without the program it runs."""
    found: list[str] = []
    left = iter(words)
    for word in left:
        if word == "--check-hash-based-pycs":
            found += [word, *islice(left, 1)]
            continue
        if not word.startswith("-") or word[:2] in ("-", "--"):
            break
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            if letter in "cm":
                return found
            if letter in "WX":
                found.append(f"-{letter}{letters or next(left, '')}")
                break
            found.append(f"-{letter}")
    return found
