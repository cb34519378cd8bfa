"""The layers of the cache below memory: values under a key, without knowing what they mean.

A build costs seconds, so it is made once. `fetch` looks for it in the user's directory, then in the read-only
directories and bundles that were named, then in a shared store; or makes it while other processes wait for
it. What is found below is copied up into the user's directory. The environment says where all that is:

``CUPAR_CACHE_DIR``, ``CUPAR_CACHE_SIZE``
    The user's directory, and the limit on it in bytes, or with K, M, G, T; ``CUPAR_CACHE=0`` does without.
``CUPAR_BUNDLES``
    Bundles and read-only directories, with ``:`` between them.
``CUPAR_SHARED``, ``CUPAR_SHARED_TIMEOUT``
    URL of a shared store, and the seconds to wait for it.
``CUPAR_SIGNING_KEY``
    Secret that signs what bundles and the shared store hold; what is not signed with it is then refused.
``CUPAR_LOCK_TIMEOUT``
    Seconds that one call waits for other processes that build the same.

Whatever is wrong with a layer costs a build and a warning, never an error.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ._base import fork
from ._base.warnings import CacheWarning, warn_once
from ._base.words import counted
from ._store.disk import Disk, Usage
from ._store.entry import FORMAT, Entry
from ._store.memory import Memory
from ._store.patience import Patience, of_one_call

if TYPE_CHECKING:
    from ._store.bundle import Bundle
    from ._store.shared import Shared

__all__ = [
    "CacheWarning",
    "Disk",
    "Entry",
    "Found",
    "Memory",
    "Stats",
    "Usage",
    "bundles",
    "count",
    "discard",
    "disk",
    "fetch",
    "one_deadline",
    "reset_stats",
    "shared",
    "signing_key",
    "stats",
    "use_bundle",
    "use_shared",
]

DEFAULT_SIZE = 2 << 30
"""Limit on the disk cache in bytes, unless ``CUPAR_CACHE_SIZE`` says otherwise."""

LOCK_TIMEOUT = 120.0
"""Seconds to wait for another process's build, unless ``CUPAR_LOCK_TIMEOUT`` says otherwise."""

SHARED_TIMEOUT = 5.0
"""Seconds to wait for an answer of the shared store, unless ``CUPAR_SHARED_TIMEOUT`` says otherwise."""

_SIZE = re.compile(r"([0-9]{1,18})\s*([KMGT]?)(?:I?B)?", re.IGNORECASE | re.ASCII)

Origin = Literal["memory", "disk", "linked", "built"]


@dataclass(frozen=True)
class Found:
    """An entry, and how it was got.

    Attributes
    ----------
    entry : Entry
    origin : {"disk", "built"}
        ``"disk"`` if it was kept anywhere: in a directory, a bundle or the shared store.
    seconds : float
        That reading or making it took.
    source : str
        The layer that had it, as its path or URL; empty if it was made.
    """

    entry: Entry
    origin: Literal["disk", "built"]
    seconds: float
    source: str = ""


# --- The user's directory ------------------------------------------------------------------------------


def disk() -> Disk | None:
    """Return the disk cache that the environment asks for.

    Returns
    -------
    Disk or None
        None if ``CUPAR_CACHE`` switches it off, if there is no place for it, or if others can write there.
    """
    if os.environ.get("CUPAR_CACHE", "").strip().lower() in ("0", "off", "false", "no"):
        return None
    root = _root()
    if root is None:
        return None
    found = _disk_at(root, _limit_bytes())
    return found if found.is_usable() else None


_disk_at = lru_cache(Disk)


def _root() -> Path | None:
    """Return the directory to use; None, with a warning, if it depends on a home that there is not."""
    named = os.environ.get("CUPAR_CACHE_DIR")
    try:
        if named:
            return _absolute(Path(named).expanduser())
        from platformdirs import user_cache_dir  # 3 ms, spared where the directory is named

        root = Path(user_cache_dir("cupar", appauthor=False))
        if root.is_absolute():
            return root
    except RuntimeError:  # from expanduser
        pass
    warn_once(
        "no home",
        "cupar finds no home directory for its cache, so builds will not be kept for later processes. "
        "Name a directory in CUPAR_CACHE_DIR, or set CUPAR_CACHE=0.",
    )
    return None


def _absolute(path: Path) -> Path:
    """Return an absolute path; one in a working directory that is gone stays as it is, and is not found."""
    try:
        return path.absolute()
    except OSError:
        return path


def _limit_bytes() -> int:
    text = os.environ.get("CUPAR_CACHE_SIZE", "").strip()
    if not text:
        return DEFAULT_SIZE
    match = _SIZE.fullmatch(text)
    if match is None:
        _warn_invalid(
            "CUPAR_CACHE_SIZE", text, "a number of bytes such as 500M or 2G", counted(DEFAULT_SIZE, "byte")
        )
        return DEFAULT_SIZE
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def _seconds(name: str, default: float) -> float:
    """Return a number of seconds from the environment."""
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    with suppress(ValueError):
        seconds = float(text)
        if seconds >= 0 and not math.isnan(seconds):
            return seconds
    _warn_invalid(name, text, "a number of seconds such as 60", counted(default, "second"))
    return default


def _lock_timeout() -> float:
    return _seconds("CUPAR_LOCK_TIMEOUT", LOCK_TIMEOUT)


def _warn_invalid(name: str, text: str, expected: str, default: str) -> None:
    warn_once((name, text), f"{name} is {text!r} and should be {expected}. cupar uses {default}.")


# --- What is below -------------------------------------------------------------------------------------


def signing_key() -> bytes | None:
    """Return the secret with which entries that others could have written are signed, None without one.

    Raises
    ------
    ValueError
        If it is set and empty, as where a secret of CI did not arrive: anybody could sign with that.
    """
    text = os.environ.get("CUPAR_SIGNING_KEY")
    if text == "":
        raise ValueError(
            "CUPAR_SIGNING_KEY is empty; set it to a secret, or unset it to do without signatures"
        )
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _may_use_others() -> bool:
    """Tell whether entries can be used that others could have written."""
    try:
        signing_key()
    except ValueError as error:
        warn_once("empty key", f"cupar uses no bundles and no shared store: {error}")
        return False
    return True


def bundles() -> tuple[Disk | Bundle, ...]:
    """Return the read-only directories and bundles that were named, those of `use_bundle` first."""
    named = os.environ.get("CUPAR_BUNDLES", "")
    if not (named or _used) or not _may_use_others():
        return ()
    paths = [*_used, *(expanded(each) for each in named.split(os.pathsep) if each)]
    layers = (_layer(path, signing_key()) for path in dict.fromkeys(paths))
    return tuple(layer for layer in layers if layer is not None)


@cache
def _layer(path: Path, secret: bytes | None) -> Disk | Bundle | None:
    """Open a directory or bundle, once in a process; None, with a warning, if that cannot be."""
    try:
        return layer(path, secret)
    except (OSError, ValueError, MemoryError) as error:
        warn_once(("bundle", path), f"cupar does not use a bundle or directory (CUPAR_BUNDLES): {error}")
        return None


def layer(path: Path, secret: bytes | None) -> Disk | Bundle:
    """Open a directory of a cache, or a bundle, to be read only.

    Raises
    ------
    OSError, ValueError
        If there is none, or it cannot be used.
    """
    if path.is_dir():
        store = Disk(path, 0, read_only=True)
        if not store.is_cache():
            raise ValueError(f"{path} is no cache directory: there is no v{FORMAT} in it")
        return store
    from ._store.bundle import Bundle

    return Bundle(path, secret)


def path_named(parameter: str, path: str | os.PathLike[str]) -> Path:
    """Return the absolute path that a user has named.

    Raises
    ------
    TypeError
        If it is no path.
    ValueError
        If it is empty, or no file could have such a name.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise TypeError(f"{parameter}: expected a path, as str or os.PathLike, got {path!r}")
    if not text or "\0" in text:
        raise ValueError(f"{parameter}: expected the name of a file or directory, got {text!r}")
    return expanded(text)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path; ``~`` of a user that there is not stays as it is, and is not found."""
    found = Path(path)
    with suppress(RuntimeError):
        found = found.expanduser()
    return _absolute(found)


def use_bundle(path: str | os.PathLike[str]) -> None:
    """Look for builds in a bundle, or in another cache's directory, too: in place, without unpacking it.

    Parameters
    ----------
    path : str or path
        A file that ``cupar cache export`` made, or a directory like that of ``CUPAR_CACHE_DIR``. It is only
        read. It must not be writable by others; a bundle must be yours or root's.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    OSError
        If it cannot be read.
    TypeError
        If it is no path.
    ValueError
        If it is no bundle and no cache's directory, is damaged, or others could have written it.

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
        store = layer(found, signing_key())  # to say now what is wrong with it
        if isinstance(store, Disk):
            distrusted = store.distrusted()
            if distrusted is not None:
                raise ValueError(f"{distrusted[0]} {distrusted[1]}, so that others could place code in it")
        else:
            store.close()
    except OSError as error:
        raise type(error)(error.errno, f"path: {error.strerror}", os.fspath(found)) from None
    except ValueError as error:
        raise ValueError(f"path: {error}") from None
    if found not in _used:
        _used.append(found)


_used: list[Path] = []


def shared() -> Shared | None:
    """Return the shared store that was named, None without one."""
    url = os.environ.get("CUPAR_SHARED", "").strip()
    if not (_shared or url) or not _may_use_others():
        return None
    return _shared or _shared_at(url)


@lru_cache
def _shared_at(url: str) -> Shared | None:
    """Open a store, once in a process; None, with a warning, if that cannot be."""
    from ._store.remotes import name_of, open_url
    from ._store.shared import Shared

    name = name_of(url)
    try:
        return Shared(open_url(url), name)
    except Exception as error:  # whatever the client of a store raises
        warn_once(("shared", url), f"cupar does not use the shared store {name}: {error}")
        return None


_shared: Shared | None = None

if hasattr(os, "register_at_fork"):
    # Not every store's client works in a forked child (fsspec's asynchronous ones raise): it opens its own.
    os.register_at_fork(after_in_child=_shared_at.cache_clear)


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
        If it is no mapping that can be written.

    Examples
    --------
    >>> import cupar, fsspec  # doctest: +SKIP
    >>> cupar.use_shared(fsspec.get_mapper("s3://bucket/cupar"))  # doctest: +SKIP

    Notes
    -----
    Who can write to the store can run code on the GPUs of those who read it, unless entries are signed
    (``CUPAR_SIGNING_KEY``).
    """
    global _shared
    if mapping is None:
        _shared = None
        return
    if not isinstance(mapping, MutableMapping):
        raise TypeError(f"mapping: expected a MutableMapping of str to bytes, got {type(mapping).__name__}")
    from ._store.shared import Shared

    _shared = Shared(mapping, type(mapping).__name__)


# --- One build among processes -------------------------------------------------------------------------


def fetch(key: str, make: Callable[[], Entry], *, portable: bool = True) -> Found:
    """Return the entry under `key`, or make it while other processes wait for it.

    Parameters
    ----------
    key : str
        SHA-256 of all that the entry depends on, in lower-case hex.
    make : callable
        Makes the entry. It may fetch another key, if no make of that one fetches this. Its exceptions pass
        through and leave nothing behind.
    portable : bool, optional
        Whether other machines can use it: if not, it stays in the user's directory.

    Returns
    -------
    Found
        The entry, with origin ``"disk"`` or ``"built"``. It is not counted in `stats`: only the caller
        knows what a build that found its template should be called.
    """
    store = disk()
    found = _kept(store, key, portable)
    if found is not None:
        return found
    with one_deadline() as patience:
        return _locked(store, key, make, portable, patience)


def one_deadline() -> AbstractContextManager[Patience]:
    """Let all fetches in a block wait for others no longer than one may: ``CUPAR_LOCK_TIMEOUT`` seconds."""
    return of_one_call(_lock_timeout())


def _locked(
    store: Disk | None, key: str, make: Callable[[], Entry], portable: bool, patience: Patience
) -> Found:
    """Make an entry, or wait for another process that makes it."""
    start = time.perf_counter()
    with nullcontext(True) if store is None else store.lock(key, patience.left) as free:
        patience.waited_since(start)
        if not free:
            warn_once(
                "timeout",
                "Another process has been building what this one needs for "
                f"{counted(_lock_timeout(), 'second')}. cupar builds it here without waiting any longer "
                "(CUPAR_LOCK_TIMEOUT).",
            )
        entry = None if store is None else store.load(key)  # a process that we waited for has stored it
        if entry is not None:
            return Found(entry, "disk", time.perf_counter() - start, str(store and store.path))
        found = _shared_or_made(key, make, portable, patience)
        if store is not None:
            store.store(key, found.entry)
    return found


def _kept(store: Disk | None, key: str, portable: bool) -> Found | None:
    """Look in the directories and bundles; copy up what a lower one has."""
    start = time.perf_counter()
    entry = None if store is None else store.load(key)
    if entry is not None:
        return Found(entry, "disk", time.perf_counter() - start, str(store and store.path))
    if portable and key not in _distrusted:
        for layer in bundles():
            entry = layer.load(key)
            if entry is not None:
                if store is not None:
                    store.store(key, entry)
                return Found(entry, "disk", time.perf_counter() - start, str(layer.path))
    return None


def _shared_or_made(key: str, make: Callable[[], Entry], portable: bool, patience: Patience) -> Found:
    start = time.perf_counter()
    store = shared() if portable else None
    if store is None:
        return Found(make(), "built", time.perf_counter() - start)

    def made_after_waiting() -> Entry:
        patience.waited_since(start)
        return make()

    entry, made = store.fetch(
        key,
        made_after_waiting,
        timeout=_seconds("CUPAR_SHARED_TIMEOUT", SHARED_TIMEOUT),
        patience=patience.left,
        secret=signing_key(),
        replace=key in _distrusted,
    )
    if made:
        return Found(entry, "built", time.perf_counter() - start)
    patience.waited_since(start)
    return Found(entry, "disk", time.perf_counter() - start, store.name)


def discard(key: str) -> None:
    """Drop an entry that turned out to be of no use, although it is what was stored."""
    _distrusted.add(key)
    store = disk()
    if store is not None:
        store.discard(key)


_distrusted: set[str] = set()  # what lower layers have under these keys is not used


# --- Counts --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stats:
    """How many algorithm objects got their build from where."""

    memory: int = 0
    disk: int = 0
    linked: int = 0
    built: int = 0


class _Counter:
    """Counts without a lock, for that would be a good part of what a lookup in memory costs."""

    def __init__(self) -> None:
        self.add = itertools.count().__next__  # one step, whatever other threads do
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
    """Return the counts of this process since it started, was forked, or `reset_stats` was called."""
    return Stats(**{origin: counter.value() for origin, counter in _counters.items()})


def count(origin: Origin) -> None:
    """Count one build of this origin."""
    _counters[origin].add()


def counter(origin: Origin) -> Callable[[], object]:
    """Return what counts one build of this origin, for who counts often."""
    return _counters[origin].add


def reset_stats() -> None:
    """Start counting at zero."""
    for counter in _counters.values():
        counter.reset()


_lock = fork.Lock()
_counters = {origin: _Counter() for origin in get_args(Origin)}

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_stats)
