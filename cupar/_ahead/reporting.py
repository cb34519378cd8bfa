"""Requests of a script, reported by its process to the command that builds.

The script is run by python, as a program; see `_cli.program`, which reads the answers. Its factories build
nothing. What they are asked for is written, a line each and at once, to a file that both processes have open:
so it is there however the script ends, and what processes ask for that it forks is there, too.

A script may set the environment and name bundles, which count for the builds as well. A store that it names
is an object of its process: there, builds are made in that process, when they are asked for.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _cache
from .._base.words import message
from .._call.algorithm import Launchable
from .._device.driver import NoDeviceError
from .._ir.specialisation import Specialisation
from . import batch, codec, record
from .batch import NOTHING_RUNS
from .make import make

_ABOUT_GPUS = re.compile(r"\bcuda|\bgpus?\b|nvidia", re.IGNORECASE)


class RequestReporter:
    """Tells what factories are asked for to a file, by its number, and has them build nothing.

    The first of `ccs` is for factories that name none. `environment` is that with which the script began.
    """

    is_ahead = True

    def __init__(self, file: int, ccs: Sequence[int], environment: Mapping[str, str]) -> None:
        self.cc = ccs[0] if ccs else None
        self._file, self._ccs, self._environment = file, ccs, environment
        self._seen: set[Specialisation] = set()

    def observe(self, spec: Specialisation, answer: Any) -> Launchable:
        """Report the request, and return an algorithm that is built on first attribute access.

        Builds for the CPU are made at once: the script may call them.
        """
        kept = spec.without_user()
        if kept not in self._seen:
            self._seen.add(kept)
            _tell(self._file, self._line(spec))
        algorithm: Launchable = answer() if spec.is_cpu else batch.unbuilt(spec)
        return algorithm

    def _line(self, spec: Specialisation) -> dict[str, Any]:
        now, before = os.environ, self._environment
        line: dict[str, Any] = {
            "environment": {
                name: now.get(name) for name in {*now, *before} if now.get(name) != before.get(name)
            },
            "bundles": list(map(str, _cache._used)),
        }
        try:
            line["spec"] = base64.b64encode(codec.dumps(spec)).decode()
        except Exception as error:  # pickling values that operators read may raise anything
            if spec.is_cpu:  # it is built here all the same
                return line
            names = ", ".join(record.operators(spec))
            return {**line, "failure": f"{spec.algorithm}: {names} cannot be pickled: {message(error)}"}
        if spec.is_cpu:
            (job,) = batch.jobs([spec])
            line["outcomes"] = {job.key: vars(make(spec))}
        elif _cache._shared is not None:
            made = batch.build(batch.jobs([spec], self._ccs), 1)
            line["outcomes"] = {job.key: vars(outcome) for job, outcome in made}
        return line


def tell_failure(file: int, script: str, error: Exception, *, has_cc: bool) -> None:
    """Report which error ended a script, and where."""
    why = message(error)
    if isinstance(error, NoDeviceError):
        unknown = not has_cc and str(error) != NOTHING_RUNS
        why = "there is no GPU here: name compute capabilities (--cc)" if unknown else NOTHING_RUNS
    elif _ABOUT_GPUS.search(why):  # any library may report that there is no GPU
        why = f"{why}\n{NOTHING_RUNS}"
    _tell(file, {"place": _place(script, error), "failure": why})


def _tell(file: int, line: dict[str, Any]) -> None:
    os.write(file, json.dumps(line).encode() + b"\n")  # one call, so that no two processes' lines mix


def _place(script: str, error: Exception) -> str:
    """Return where in a script an exception came from, as in ``train.py:12``."""
    path = getattr(sys.modules["__main__"], "__file__", script)
    lines = [error.lineno] if isinstance(error, SyntaxError) and error.filename == path else []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{script}:{lines[-1]}" if lines else script
