"""Summary of the requests of a run, for the line at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from .. import _cache, cache
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
    """Observes requests to factories and their answers, on top of another observer."""

    def __init__(self, beneath: Observer | None) -> None:
        self._beneath = beneath
        self.cc = None if beneath is None else beneath.cc
        self.is_ahead = beneath is not None and beneath.is_ahead
        self._builds: dict[str, Build] = {}
        self._pending: list[Pending] = []

    def observe(self, spec: Specialisation, answer: Callable[[], Launchable]) -> Launchable:
        """Answer a question, and note where the build came from."""
        algorithm = answer() if self._beneath is None else self._beneath.observe(spec, answer)
        if algorithm.is_built:
            self._note(algorithm.build)
        else:
            self._pending.append(algorithm._source)  # type: ignore[arg-type]
        return algorithm

    def _note(self, build: Build) -> None:
        if build.origin != "memory":
            self._builds[build.key] = build

    def summary(self) -> Summary:
        """Return what there was until now."""
        for each in self._pending:
            if each.is_done():
                with suppress(Exception):  # which the program had
                    self._note(each.result().build)
        seconds = saved = 0.0
        for build in self._builds.values():
            if build.origin == "disk":
                saved += _total(_kept_seconds(build.key))
            else:
                seconds += _total(build.seconds)
        return Summary(cache.stats(), seconds, saved)


def _total(seconds: Mapping[str, float]) -> float:
    return sum(seconds.values())


def _kept_seconds(key: str) -> Mapping[str, float]:
    """Return the seconds of each stage of a build, from its entry; empty if the entry is gone."""
    try:
        found: Mapping[str, float] = cache.info(key).meta["seconds"]
        return found
    except (OSError, ValueError, KeyError):
        return {}
