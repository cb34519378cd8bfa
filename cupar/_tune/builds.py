"""Builds of candidates, by helper processes and in a separate directory: the cache gets only winners."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from .. import _cache
from .._ahead.make import made_by
from .._base.words import message
from .._compile import workers
from .._compile.key import build_parts, digest, template_parts
from .._ir.specialisation import Specialisation
from .._jobs.helpers import Helper
from .._jobs.pool import Crew
from .._jobs.threads import cores
from .._kernels.tuning import write
from .._store.disk import Disk
from .policy_search import Policy

_MOST_HELPERS = 15  # since each takes 500 MB for NVRTC
_LIMIT_BYTES = 8 << 30
_GRACE_SECONDS = 1.0


class Scratch:
    """A directory for candidates, and the helpers that build into it. Close it: it removes both."""

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or max(1, min(cores() - 1, _MOST_HELPERS))
        self._folder = Path(tempfile.mkdtemp(prefix="cupar-tune-"))
        self.disk = Disk(self._folder, _LIMIT_BYTES)
        self._crew = Crew(self.processes, self._helper)

    def submit(self, spec: Specialisation, done: Callable[[str], None]) -> None:
        """Have a specialisation built, then `done` called with its error, empty on success."""

        def ask(helper: Helper) -> None:
            try:
                done(made_by(helper, spec, True).error)
            except Exception as error:  # a helper that crashed, or could not start
                done(message(error) or type(error).__name__)

        self._crew.submit(None, ask)

    def drop(self) -> None:
        """Cancel submitted builds that have not begun."""
        self._crew.drop()

    def found(self, spec: Specialisation) -> _cache.FetchedEntry:
        """Return the entry of a build."""
        key = digest(build_parts(spec))
        entry = self.disk.read(key)
        if entry is None:
            raise FileNotFoundError(f"the build of {spec.option('policy')} is not in {self._folder}")
        return _cache.FetchedEntry(key, entry, "disk", 0.0, str(self._folder))

    def keep(self, spec: Specialisation) -> None:
        """Copy a build and its template to the user's directory."""
        own = _cache.disk()
        for parts in (template_parts(spec), build_parts(spec)):
            key = digest(parts)
            entry = self.disk.read(key)
            if own is not None and entry is not None and not own.holds(key):
                own.store(key, entry)

    def _helper(self) -> Helper:
        environment = {"CUPAR_CACHE_DIR": str(self._folder), "CUPAR_CACHE": "1", "CUPAR_CACHE_SIZE": "8G"}
        nothing = dict.fromkeys(("CUPAR_BUNDLES", "CUPAR_SHARED", "CUPAR_TIER", "CUPAR_DUMP"), "")
        return workers.helper(environment={**environment, **nothing})

    def close(self) -> None:
        """End the helpers, also busy ones, and remove the directory."""
        self._crew.close(_GRACE_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Candidates:
    """Candidates of one specialisation that are built; see `tune.Builder`."""

    def __init__(self, spec: Specialisation, scratch: Scratch) -> None:
        self._spec, self._scratch = spec, scratch
        self._done: SimpleQueue[tuple[Policy, str]] = SimpleQueue()
        self.pending = 0

    @property
    def accepts(self) -> bool:
        """Whether another could be begun now: one waits, so that no helper does."""
        return self.pending < self._scratch.processes + 1

    def submit(self, policy: Policy) -> None:
        """Begin to build a candidate."""
        self.pending += 1
        spec = self._spec.with_policy(write(policy))
        self._scratch.submit(spec, lambda error: self._done.put((policy, error)))

    def next(self, timeout: float) -> tuple[Policy, str] | None:
        """Return a finished one with its error, empty on success; None after some seconds."""
        try:
            found = self._done.get(timeout=timeout)
        except Empty:
            return None
        self.pending -= 1
        return found
