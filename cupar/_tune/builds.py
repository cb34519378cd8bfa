"""Candidates are built by helper processes, in a directory of their own: the cache gets the winners alone."""

from __future__ import annotations

import pickle
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from .. import _cache
from .._ahead import make
from .._base.background import cores
from .._base.words import message
from .._compile import workers
from .._compile.key import build_parts, digest, template_parts
from .._ir.specialisation import Specialisation
from .._kernels.tuning import write
from .._store.disk import Disk
from .search import Policy

_MOST_HELPERS = 15  # since each takes 500 MB for NVRTC
_LIMIT_BYTES = 8 << 30
_GRACE_SECONDS = 1.0


class Scratch:
    """A directory for candidates, and the helpers that build into it. Close it: it removes both."""

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or max(1, min(cores() - 1, _MOST_HELPERS))
        self._folder = Path(tempfile.mkdtemp(prefix="cupar-tune-"))
        self.disk = Disk(self._folder, _LIMIT_BYTES)
        self._todo: SimpleQueue[tuple[Specialisation, Callable[[str], None]] | None] = SimpleQueue()
        self._helpers: set[workers.Helper] = set()
        self._lock = threading.Lock()
        self._is_ending = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.processes)]
        for each in self._threads:
            each.start()

    def submit(self, spec: Specialisation, done: Callable[[str], None]) -> None:
        """Have a specialisation built, and then `done` called with what is wrong, empty if nothing is."""
        self._todo.put((spec, done))

    def drop(self) -> None:
        """Build nothing more of what was submitted and has not begun."""
        with suppress(Empty):
            while True:
                self._todo.get_nowait()

    def found(self, spec: Specialisation) -> _cache.Found:
        """Return the entry of what was built."""
        key = digest(build_parts(spec))
        entry = self.disk.read(key)
        if entry is None:
            raise FileNotFoundError(f"the build of {spec.option('policy')} is not in {self._folder}")
        return _cache.Found(key, entry, "disk", 0.0, str(self._folder))

    def keep(self, spec: Specialisation) -> None:
        """Copy a build and its template to the user's directory."""
        own = _cache.disk()
        for parts in (template_parts(spec), build_parts(spec)):
            key = digest(parts)
            entry = self.disk.read(key)
            if own is not None and entry is not None and not own.holds(key):
                own.store(key, entry)

    def _helper(self) -> workers.Helper:
        environment = {"CUPAR_CACHE_DIR": str(self._folder), "CUPAR_CACHE": "1", "CUPAR_CACHE_SIZE": "8G"}
        nothing = dict.fromkeys(("CUPAR_BUNDLES", "CUPAR_SHARED", "CUPAR_TIER", "CUPAR_DUMP"), "")
        helper = workers.Helper(environment={**environment, **nothing})
        with self._lock:
            self._helpers.add(helper)
            if self._is_ending:
                helper.terminate()
        return helper

    def _work(self) -> None:
        helper = None
        while (asked := self._todo.get()) is not None and not self._is_ending:
            if helper is None or helper.is_lost:
                helper = self._helper()
            spec, done = asked
            try:
                answer = helper.ask(f"{make.__name__}:make_in_helper", make.request(spec, True))
                outcome: make.Outcome = pickle.loads(answer)
                done(outcome.error)
            except Exception as error:  # a helper that crashed, or could not start
                done(message(error) or type(error).__name__)

    def close(self) -> None:
        """End the helpers, whatever they do, and remove the directory."""
        with self._lock:
            self._is_ending = True
        for _ in self._threads:
            self._todo.put(None)
        for helper in self._helpers:
            helper.terminate()
        for helper in self._helpers:
            helper.kill(_GRACE_SECONDS)
        for each in self._threads:
            each.join(_GRACE_SECONDS)
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
    def has_room(self) -> bool:
        """Whether another could be begun now: one waits, so that no helper does."""
        return self.pending < self._scratch.processes + 1

    def submit(self, policy: Policy) -> None:
        """Begin to build a candidate."""
        self.pending += 1
        spec = self._spec.with_policy(write(policy))
        self._scratch.submit(spec, lambda error: self._done.put((policy, error)))

    def next(self, timeout: float) -> tuple[Policy, str] | None:
        """Return one that is built, with what is wrong with it; None after some seconds."""
        try:
            found = self._done.get(timeout=timeout)
        except Empty:
            return None
        self.pending -= 1
        return found
