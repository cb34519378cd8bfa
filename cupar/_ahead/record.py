"""Recorded lists: requests of one run, which another run or machine can repeat.

A list is a text file with one JSON object a line. Each is one question: what was asked for as a person reads
it, the compute capability, the key of the build that answered it, and the specialisation as bytes (see
`codec`), with operators in Python by value. Of arrays there are the types, of iterators the structure.

**A list is a program.** Its bytes hold pickles, and to ask for a line again runs whatever is in it. Read only
lists that you would run as a script.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .._base import fork
from .._base.data import dataclass, field, fields, replace
from .._base.warnings import warn_once
from .._base.words import message
from .._call.algorithm import Launchable
from .._compile.key import build_parts, digest
from .._ir import nodes
from .._ir.specialisation import Specialisation
from .._obtain import factory_cache, obtain
from .._obtain.target import parse_cc
from .._store.files import read_at
from .._store.settings import expanded

FORMAT: Final = 4  # raised whenever pickled names or members of cupar's classes change
_START: Final = b'{"cupar": '  # of every line

AnyPath = str | os.PathLike[str]


class RecordError(ValueError):
    """A recorded list, or a line of one, is invalid. The message begins with its place."""

    __module__ = "cupar"


def types(spec: Specialisation) -> list[str]:
    """Return each array or iterator of a specialisation, as in ``d_in: Pointer(int32)``."""
    return [f"{each.name}: {nodes.description(each.given)}" for each in spec.arguments]


def operators(spec: Specialisation) -> list[str]:
    """Return each operator of a specialisation, as in ``op: <lambda>``."""
    return [f"{name}: {op.name}" for name, op in spec.operators]


# --- Recording -----------------------------------------------------------------------------------------


def record(path: AnyPath | None) -> Recording:
    """Record all requests to factories, from now on and in all threads.

    ``cupar.preload(path)`` brings the builds of a list to the device before a program's work starts, and
    ``cupar build path`` makes them, for other compute capabilities too and without a GPU. The environment
    variable ``CUPAR_RECORD`` names a list for a program, and for the processes that it starts, without a
    change to it; processes may share one (by an absolute path, if they run in several directories).

    Parameters
    ----------
    path : path or None
        The list; what it has stays, and what it has not is added. None: record nothing from now on.

    Returns
    -------
    Recording
        At the end of a ``with`` block with it, things are as they were before.

    Raises
    ------
    TypeError
        If `path` is something else.

    Warns
    -----
    CacheWarning
        Once each, if the list cannot be written or an operator cannot be recorded. No call fails for that.

    Examples
    --------
    >>> import tempfile, numpy as np, cupar
    >>> path = tempfile.mkdtemp() + "/asked.jsonl"
    >>> with cupar.record(path):
    ...     _ = cupar.reduce_into("i4", "i4", lambda a, b: a + b, np.zeros(1, "i4"), cc=90)
    >>> open(path).read().count("reduce_into")
    1

    Notes
    -----
    A list is a program: it holds the operators, as pickles. Ask for nothing of a list that you would not run
    as a script.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected a path or None, got {type(path).__name__}")
    before = obtain.observed()
    beneath = before if before is not None and before.is_ahead else None
    if isinstance(beneath, Recorder):
        beneath = beneath.beneath
    _observe_with(beneath if path is None else Recorder(expanded(path), beneath))
    return Recording(before)


def from_environment(beneath: obtain.Observer | None = None) -> obtain.Observer | None:
    """Return what records to the list that ``CUPAR_RECORD`` names, and else `beneath`."""
    path = os.environ.get("CUPAR_RECORD")
    return Recorder(expanded(path), beneath) if path else beneath


def _observe_with(observer: obtain.Observer | None) -> None:
    obtain.observer = observer
    factory_cache.forget()  # so that repeated requests are recorded, too


class Recording:
    """What `record` has begun; a context manager that ends it."""

    def __init__(self, before: obtain.Observer | None) -> None:
        self._before, self._now = before, obtain.observer

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        if obtain.observer is self._now:
            _observe_with(self._before)


class Recorder:
    """Writes questions to a list, each once, and has them answered by the observer beneath, if there is one.

    The list is opened for each, which costs little beside a build, and then a fork, or the removal of the
    file, needs no thought.
    """

    def __init__(self, path: Path, beneath: obtain.Observer | None = None) -> None:
        self.beneath = beneath
        self.cc = None if beneath is None else beneath.cc
        self.is_ahead = beneath is not None and beneath.is_ahead
        self._path = path
        self._seen: set[Specialisation] = set()
        self._lock = fork.Lock()
        self._append(b"")

    def observe(self, spec: Specialisation, answer: Callable[[], Launchable]) -> Launchable:
        """Answer a request, and record it unless that was done; failures are not recorded."""
        algorithm = answer() if self.beneath is None else self.beneath.observe(spec, answer)
        kept = spec.without_user()
        with self._lock:
            if kept in self._seen:
                return algorithm
            self._seen.add(kept)
        try:
            self._append(json.dumps(self._line(spec, algorithm)).encode() + b"\n")
        except Exception as error:  # recording fails no call
            name = spec.algorithm
            warn_once(("record", name, str(error)), f"{self._path}: {name} is not recorded: {error}")
        return algorithm

    def _line(self, spec: Specialisation, algorithm: Launchable) -> dict[str, Any]:
        from .. import __version__
        from . import codec

        # Without waiting for a build under way. Of two tiers, the fast one is built ahead.
        is_it = algorithm.is_built and algorithm.build.tier == "fast"
        key = algorithm.build.key if is_it else digest(build_parts(spec))
        line: dict[str, Any] = {
            "cupar": FORMAT,
            "algorithm": spec.algorithm,
            "cc": spec.cc,
            "types": types(spec),
            "operators": operators(spec),
            "key": key,
            "python": codec.PYTHON,
            "version": __version__,
        }
        try:
            return {**line, "spec": base64.b64encode(codec.dumps(spec)).decode()}
        except Exception as error:  # pickling values that operators read may raise anything
            why = f"an operator ({', '.join(line['operators'])}) cannot be pickled: {message(error)}"
            topic = ("record", spec.algorithm, why)
            warn_once(topic, f"{self._path}: {spec.algorithm} is left out: {why}")
            return {**line, "skipped": why}

    def _append(self, line: bytes) -> None:
        try:
            # Readable by its owner alone, as it may hold secrets; and written by others, it would be theirs.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
            file = os.open(self._path, flags, 0o600)
            try:
                size = os.fstat(file).st_size
                if line and size and read_at(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # ends the partial line of a process that was killed
                if os.write(file, line) != len(line):  # one call, so that no two processes' lines mix
                    raise OSError("no space left for a whole line")
            finally:
                os.close(file)
        except OSError as error:
            why = error.strerror or str(error)
            warn_once(("record", self._path), f"{self._path}: requests are not recorded: {why}")


# --- Reading -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One question of a recorded list."""

    algorithm: str
    cc: int  # that it was asked for, as in 90; 0: the CPU
    types: list[str] = field(hash=False)  # for people, as are the operators
    operators: list[str] = field(hash=False)
    key: str  # of the build then and there
    python: str  # its version then, as that of cupar
    version: str
    path: str  # where it is, with the line
    line: int
    spec: str = ""  # the specialisation, in base64; only `load` unpickles it
    skipped: str = ""  # why it could not be recorded; empty if it was

    @property
    def place(self) -> str:
        """Where it is, as in ``asked.jsonl:3``."""
        return f"{self.path}:{self.line}"

    def load(self, cc: int | None = None) -> Specialisation:
        """Return the specialisation, by default for the list's compute capability; one for the CPU as it is.

        This unpickles it, and so runs code of the list.

        Raises
        ------
        RecordError
            If it was not recorded, or cannot be made again.
        ValueError
            If the compilers do not know the compute capability.
        """
        if self.skipped:
            raise RecordError(f"{self.place}: {self.algorithm} was left out when recorded: {self.skipped}")
        from . import codec

        try:
            found = codec.loads(base64.b64decode(self.spec, validate=True))
        except Exception as error:  # a list may hold anything
            raise RecordError(
                f"{self.place}: {self.algorithm}: {message(error)}. It was recorded by cupar {self.version} "
                f"under Python {self.python}; record it again"
            ) from error
        if found.is_cpu:
            return found
        return replace(found, cc=parse_cc(self.cc if cc is None else cc))


def read(path: AnyPath) -> list[Request]:
    """Read a recorded list. Nothing in it is run by that, but by `Request.load`.

    Parameters
    ----------
    path : path

    Returns
    -------
    list of Request
        In order, each build once; also those that could not be recorded, with the reason.

    Raises
    ------
    RecordError
        If it is something else than a list, or written by another version of cupar in another form.
    OSError
        If it cannot be read.

    Warns
    -----
    CacheWarning
        If a line was cut short, as that of a process that was killed.
    """
    found: dict[str, Request] = {}
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{os.fspath(path)}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if not line.startswith(_START) and not _START.startswith(line):
                raise RecordError(f"{place}: expected a line of cupar.record, got {_short(line)}") from None
            warn_once(("torn", place), f"{place}: the line is incomplete, and is ignored")
            continue
        request = _request(value, os.fspath(path), number)
        known = found.get(request.key)
        if known is None or (known.skipped and not request.skipped):
            found[request.key] = request
    return list(found.values())


# By the annotations of `Request`: the type that JSON has, and its name in messages.
_JSON: Final = {"int": (int, "an integer"), "str": (str, "a string"), "list[str]": (list, "a list")}


def _request(value: Any, path: str, number: int) -> Request:
    place = f"{path}:{number}"
    if not isinstance(value, dict) or "cupar" not in value:
        raise RecordError(f"{place}: expected a line of cupar.record, got {_short(value)}")
    if value["cupar"] != FORMAT:
        raise RecordError(
            f"{place}: expected format {FORMAT}, got {_short(value['cupar'])}; record again with this cupar"
        )
    others = {"path", "line", "spec" if "skipped" in value else "skipped"}
    members = {each.name: _JSON[str(each.type)] for each in fields(Request) if each.name not in others}
    for name, (kind, expected) in members.items():
        if type(value.get(name)) is not kind:
            raise RecordError(
                f"{place}: {name}: expected {expected}, got {_short(value.get(name, 'nothing'))}"
            )
    return Request(**{name: value[name] for name in members}, path=path, line=number)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
