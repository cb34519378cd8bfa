"""The layers of the cache below memory: opaque values under keys.

A build costs seconds, so it is made once. `fetch` looks for it in the user's directory, then in the read-only
directories and bundles that were named, then in a shared store; or makes it while other processes wait for
it. Entries found below are copied up into the user's directory. The environment says where all that is:

``CUPAR_CACHE_DIR``, ``CUPAR_CACHE_SIZE``
    The user's directory, and the limit on it in bytes, or with K, M, G, T; ``CUPAR_CACHE=0`` does without.
``CUPAR_BUNDLES``
    Bundles and read-only directories, with ``:`` between them.
``CUPAR_SHARED``, ``CUPAR_SHARED_TIMEOUT``
    URL of a shared store, and the seconds to wait for it.
``CUPAR_SIGNING_KEY``
    Secret that signs entries of bundles and the shared store; entries not signed with it are refused.
``CUPAR_LOCK_TIMEOUT``
    Seconds that one call waits for other processes that build the same.

Whatever is wrong with a layer costs a build and a warning, never an error.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from ._base import fork
from ._base.data import dataclass
from ._base.errors import ArgumentTypeError, ArgumentValueError
from ._base.warnings import warn_once
from ._base.words import counted
from ._store import locks, settings
from ._store.disk import Disk
from ._store.entry import FORMAT, Entry
from ._store.files import DistrustedError
from ._store.layer import Layer
from ._store.locks import Deadline
from ._store.opened import OpenByName
from ._store.settings import expanded, path_named, signing_key

if TYPE_CHECKING:
    from ._store.shared import Shared


_T = TypeVar("_T")
Origin = Literal["memory", "disk", "linked", "built"]


@dataclass(frozen=True)
class FetchedEntry:
    """An entry, and its origin.

    It lies under `key`. The origin is ``"disk"`` if it was kept anywhere: in a directory, a bundle or the
    shared store. `seconds` says what reading or making it took; `source` is the path or URL of the layer that
    had it, empty if it was made.
    """

    key: str
    entry: Entry
    origin: Literal["disk", "built"]
    seconds: float
    source: str = ""


# --- Layers --------------------------------------------------------------------------------------------


def disk() -> Disk | None:
    """Return the user's directory; None if it is switched off, has no place, or others can write there."""
    root = settings.directory()
    if root is None:
        return None
    found = _disk_at(root, settings.limit_bytes())
    return found if found.is_usable() else None


_disk_at = lru_cache(Disk)


def _may_use_others() -> bool:
    """Tell whether entries can be used that others could have written."""
    try:
        signing_key()
    except ValueError as error:
        warn_once("empty key", f"cupar uses no bundles and no shared store: {error}")
        return False
    return True


def bundles() -> tuple[Layer, ...]:
    """Return the read-only directories and bundles that were named, those of `use_bundle` first."""
    named = os.environ.get("CUPAR_BUNDLES", "")
    if not (named or _used) or not _may_use_others():
        return ()
    paths = [*_used, *(expanded(each) for each in named.split(os.pathsep) if each)]
    layers = (_layer(path, signing_key()) for path in dict.fromkeys(paths))
    return tuple(layer for layer in layers if layer is not None)


def _layer(path: Path, secret: bytes | None) -> Layer | None:
    """Open a directory or bundle, and keep it open; None, with a warning, if that cannot be for now."""
    said = "cupar does not use a bundle or directory (CUPAR_BUNDLES)"
    return _layers.get((path, secret), lambda: layer(path, secret), ("bundle", path), said)


_layers = OpenByName[Layer]()


def layer(path: Path, secret: bytes | None) -> Layer:
    """Open a directory of a cache, or a bundle, to be read only.

    Raise an OSError or ValueError without one; `RefusedError` for a bundle that is not served.
    """
    if path.is_dir():
        if not (path / f"v{FORMAT}").is_dir():
            raise ValueError(f"{path} is no cache directory: there is no v{FORMAT} in it")
        return Disk(path, 0, read_only=True)
    from ._store.bundle import Bundle

    return Bundle(path, secret)


def use_bundle(path: str | os.PathLike[str]) -> None:
    """Look for builds in a bundle, or in another cache's directory, too: in place, without unpacking it.

    Parameters
    ----------
    path : str or path
        A file that ``cupar cache export`` made, or a directory like that of ``CUPAR_CACHE_DIR``, which is
        only read. It must not be writable by others; a bundle must be yours or root's.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    OSError
        If it cannot be read.
    TypeError
        If it is not a path.
    ValueError
        If it is neither a bundle nor a cache's directory, is damaged, or others could have written it.

    Examples
    --------
    >>> import cupar
    >>> cupar.use_bundle("builds.cupar-bundle")  # doctest: +SKIP

    Notes
    -----
    The environment variable ``CUPAR_BUNDLES`` names any number of them, with ``:`` between them.
    """
    found = path_named("path", path)
    try:
        layer(found, signing_key()).trust()  # to raise now
    except OSError as error:
        raise type(error)(error.errno, f"path: {error.strerror}", os.fspath(found)) from None
    except DistrustedError as error:
        raise ArgumentValueError(
            "path", f"{error.path} {error.why}, so that others could place code in it"
        ) from None
    except ValueError as error:
        raise ArgumentValueError("path", str(error)) from None
    if found not in _used:
        _used.append(found)
    _layers.try_again()


_used: list[Path] = []


def shared() -> Shared | None:
    """Return the shared store that was named, None without one."""
    url = os.environ.get("CUPAR_SHARED", "").strip()
    if not (_shared or url) or not _may_use_others():
        return None
    return _shared or _shared_at(url)


def _shared_at(url: str) -> Shared | None:
    """Open a store, and keep it; None, with a warning, if that cannot be for now."""
    from ._store.remotes import name_of, open_url
    from ._store.shared import Shared

    name = name_of(url)
    said = f"cupar does not use the shared store {name}"
    return _stores.get(url, lambda: Shared(open_url(url), name), ("shared", url), said)


_stores = OpenByName["Shared"]()
_shared: Shared | None = None

# Not every store's client works in a forked child (fsspec's asynchronous ones raise): it opens its own.
fork.in_child(_stores.clear)


def use_shared(mapping: MutableMapping[str, bytes] | None) -> None:
    """Share builds with other machines through a store.

    Parameters
    ----------
    mapping : MutableMapping of str to bytes, or None
        Such as an fsspec mapping, ``fsspec.get_mapper("s3://bucket/cupar")``, or a Redis client's,
        ``cupar.cache.RedisMapping(client)``. Several threads may use it at the same time. None goes back to
        what ``CUPAR_SHARED`` names.

    Raises
    ------
    TypeError
        If it is not a mapping that can be written.

    Examples
    --------
    >>> import cupar, fsspec  # doctest: +SKIP
    >>> cupar.use_shared(fsspec.get_mapper("s3://bucket/cupar"))  # doctest: +SKIP

    Notes
    -----
    Everybody who can write to the store can run code on the GPUs of those who read it, unless entries are
    signed (``CUPAR_SIGNING_KEY``).
    """
    global _shared
    if mapping is None:
        _shared = None
        return
    if not isinstance(mapping, MutableMapping):
        raise ArgumentTypeError(
            "mapping", f"expected a MutableMapping of str to bytes, got {type(mapping).__name__}"
        )
    from ._store.shared import Shared

    _shared = Shared(mapping, type(mapping).__name__)


@contextmanager
def lent(mapping: MutableMapping[str, bytes] | None) -> Iterator[None]:
    """Share builds through a store within the block, unless there is one already."""
    global _shared
    if mapping is None or shared() is not None or not _may_use_others():
        yield
        return
    from ._store.shared import Shared

    mine = _shared = Shared(mapping, type(mapping).__name__)
    try:
        yield
    finally:
        if _shared is mine:
            _shared = None


# --- One build among processes -------------------------------------------------------------------------


def fetch(key: str, make: Callable[[], Entry], *, portable: bool = True) -> FetchedEntry:
    """Return the entry under `key`, or make it while other processes wait for it.

    The key is a SHA-256 of all that the entry depends on, in lower-case hex. `make` may fetch another key, if
    no make of that one fetches this; its exceptions pass through and leave nothing behind. An entry that
    is not `portable`, as other machines cannot use it, stays in the user's directory.

    It is not counted in `stats`: only the caller knows which origin a build with a cached template has.
    """
    own = disk()
    found = _load_any(own, key, portable)
    if found is not None:
        return found
    return under_one_deadline(lambda deadline: _locked(own, key, make, portable, deadline))


def find(key: str, *, remote: bool = True) -> FetchedEntry | None:
    """Return the entry under `key`, or None; this waits for no other process and builds nothing.

    Unless it may be `remote`, the shared store is not asked.
    """
    start, own = time.perf_counter(), disk()
    found = _load_any(own, key, True)
    store = shared() if remote and found is None and key not in unusable else None
    if store is not None:
        entry = store.find(key, timeout=settings.shared_timeout(), secret=signing_key())
        if entry is not None:
            if own is not None:
                own.store(key, entry)
            return FetchedEntry(key, entry, "disk", time.perf_counter() - start, store.name)
    return found


def _load_any(own: Disk | None, key: str, portable: bool) -> FetchedEntry | None:
    """Look for an entry in the user's directory and in those that are read only."""
    start = time.perf_counter()
    found = load(own, key, start)
    if found is None and portable and key not in unusable:
        for layer in bundles():
            found = load(layer, key, start)
            if found is not None:
                if own is not None:
                    own.store(key, found.entry)
                break
    return found


def under_one_deadline(call: Callable[[Deadline], _T]) -> _T:
    """Call a function all of whose fetches wait for others as long as one may: ``CUPAR_LOCK_TIMEOUT``."""
    return locks.under_one_deadline(settings.lock_timeout(), call)


def load(layer: Layer | None, key: str, start: float) -> FetchedEntry | None:
    """Look for an entry in a directory or bundle."""
    entry = None if layer is None else layer.load(key)
    if layer is None or entry is None:
        if layer is not None and layer.is_lost:
            _layers.lose(layer)
        return None
    return FetchedEntry(key, entry, "disk", time.perf_counter() - start, str(layer.path))


def _locked(
    own: Disk | None, key: str, make: Callable[[], Entry], portable: bool, deadline: Deadline
) -> FetchedEntry:
    """Make an entry, or wait for another process that makes it."""
    start = time.perf_counter()
    with nullcontext(True) if own is None else own.lock(key, deadline.left) as free:
        deadline.waited_since(start)
        if not free:
            warn_once(
                "timeout",
                "Another process has been building what this one needs for "
                f"{counted(settings.lock_timeout(), 'second')}. cupar builds it here without waiting any "
                "longer (CUPAR_LOCK_TIMEOUT).",
            )
        found = load(own, key, start)  # a process that we waited for has stored it
        if found is None:
            found = _shared_or_made(key, make, portable, deadline)
            if own is not None:
                own.store(key, found.entry)
    return found


def _shared_or_made(key: str, make: Callable[[], Entry], portable: bool, deadline: Deadline) -> FetchedEntry:
    start = time.perf_counter()
    store = shared() if portable else None
    if store is None:
        return FetchedEntry(key, make(), "built", time.perf_counter() - start)
    entry, was_made = store.fetch(
        key,
        make,
        timeout=settings.shared_timeout(),
        deadline=deadline,
        secret=signing_key(),
        replace=key in unusable,
    )
    seconds = time.perf_counter() - start
    return (
        FetchedEntry(key, entry, "built", seconds)
        if was_made
        else FetchedEntry(key, entry, "disk", seconds, store.name)
    )


def discard(key: str) -> None:
    """Drop an entry that is unusable although it is intact."""
    unusable.add(key)
    store = disk()
    if store is not None:
        store.discard(key)


unusable: set[str] = set()  # what lower layers have under these keys is not used


# --- Counts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stats:
    """Counts of algorithm objects by the origin of their build."""

    memory: int = 0
    disk: int = 0
    linked: int = 0
    built: int = 0

    def _repr_html_(self) -> str:
        from ._base import html

        return html.table("algorithm objects", [*vars(self)], [[*map(str, vars(self).values())]])


class _Counter:
    """A counter without a lock, whose cost would be noticeable in a lookup in memory."""

    def __init__(self) -> None:
        self.add = itertools.count().__next__  # atomic: one step of the interpreter
        self._less = 0

    def value(self) -> int:
        with _lock:
            value = self.add() - self._less
            self._less += 1  # for this look counted, too
            return value

    def reset(self) -> None:
        with _lock:
            self._less = self.add() + 1


def stats() -> Stats:
    """Return counts of this process's algorithm objects by origin.

    Returns
    -------
    Stats
        Counts ``memory``, ``disk``, ``linked`` (template found, operator new) and ``built``, since the
        process started, was forked, or called `reset_stats`.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.reset_stats()
    >>> cupar.cache.stats()
    Stats(memory=0, disk=0, linked=0, built=0)
    """
    return Stats(**{origin: counter.value() for origin, counter in _counters.items()})


def count(origin: Origin) -> None:
    """Count one build of this origin."""
    _counters[origin].add()


def counter(origin: Origin) -> Callable[[], object]:
    """Return what counts one build of this origin, for callers that count often."""
    return _counters[origin].add


@fork.in_child
def reset_stats() -> None:
    """Start counting at zero."""
    for counter in _counters.values():
        counter.reset()


_lock = fork.Lock()
_counters = {origin: _Counter() for origin in get_args(Origin)}
