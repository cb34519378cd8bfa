"""Summary of the requests of a run, for the line at its end."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import _cache, cache
from .._base import fork
from .._base.data import dataclass
from .._base.words import NOTHING_ASKED
from .._call.algorithm import Launchable
from .._call.built import Build, Pending
from .._ir.specialisation import Specialisation
from .._obtain.obtain import Observer


@dataclass(frozen=True)
class Summary:
    """Results of the requests to factories.

    Attributes
    ----------
    stats : Stats
        Number of requests by answer.
    seconds : float
        That building and linking took.
    saved : float
        That it took to make the builds that were found; 0 where the cache does not tell.
    """

    stats: _cache.Stats
    seconds: float
    saved: float

    def document(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            **vars(self.stats),
            "seconds": round(self.seconds, 4),
            "saved_seconds": round(self.saved, 4),
        }

    def __str__(self) -> str:
        """Return it as one line."""
        stats = self.stats
        if not any(vars(stats).values()):
            return NOTHING_ASKED
        made = f" in {self.seconds:.1f} s" if stats.built + stats.linked else ""
        found = f", which had taken {self.saved:.1f} s to build" if self.saved else ""
        return (
            f"{stats.built} built and {stats.linked} linked{made}; {stats.disk} found{found}; "
            f"{stats.memory} in memory"
        )


class Watcher:
    """Observes requests to factories and their answers, on top of another observer.

    It appends them to a file of this process in a folder, so that they are there however the process ends.
    """

    def __init__(self, beneath: Observer | None, folder: str) -> None:
        self._beneath = beneath
        self.cc = None if beneath is None else beneath.cc
        self.is_ahead = beneath is not None and beneath.is_ahead
        self._folder = folder
        self._begin()
        fork.in_child(self._begin)

    def _begin(self) -> None:
        self._file = f"{self._folder}/{os.getpid()}-{time.time_ns()}"  # numbers of processes are used again
        self._numbers = itertools.count(1)
        self._pending: list[Pending] = []

    def observe(self, spec: Specialisation, answer: Callable[[], Launchable]) -> Launchable:
        """Answer a question, and note where the build came from."""
        algorithm = answer() if self._beneath is None else self._beneath.observe(spec, answer)
        number = next(self._numbers)
        if not algorithm.is_built:
            self._pending.append(algorithm._source)  # type: ignore[arg-type]
        elif algorithm.build.origin != "memory":
            self._write(algorithm.build)
        elif number & (number - 1) == 0:  # memory answers often: a process that is killed loses half of these
            self._write()
        return algorithm

    def tell(self) -> None:
        """Write what there was until now."""
        for each in self._pending:
            if each.is_done():
                with suppress(Exception):  # which the program had
                    self._write(each.result().build)
        self._write()

    def _write(self, build: Build | None = None) -> None:
        line: dict[str, Any] = {"stats": vars(cache.stats())}
        if build is not None and build.origin != "memory":
            line |= {"key": build.key, "origin": build.origin, "seconds": sum(build.seconds.values())}
        with suppress(OSError), Path(self._file).open("a") as file:
            file.write(f"{json.dumps(line)}\n")


def summed(folder: str) -> Summary:
    """Return the sum of what the processes have written that watched in a folder."""
    counts: Counter[str] = Counter()
    seconds = saved = 0.0
    for path in Path(folder).iterdir():
        stats: dict[str, int] = {}
        builds: dict[str, dict[str, Any]] = {}  # by key
        for text in path.read_bytes().splitlines():
            with suppress(ValueError):  # the line of a process that was killed, or whose disk was full
                line = json.loads(text)
                stats = line["stats"]
                if "key" in line:
                    builds[line["key"]] = line
        counts.update(stats)
        for key, build in builds.items():
            if build["origin"] == "disk":
                saved += _kept_seconds(key)
            else:
                seconds += build["seconds"]
    return Summary(_cache.Stats(**counts), seconds, saved)


def _kept_seconds(key: str) -> float:
    """Return the seconds that a build took, from its entry; 0 if the entry is gone."""
    try:
        return float(sum(cache.info(key).meta["seconds"].values()))
    except (OSError, ValueError, KeyError):
        return 0.0
