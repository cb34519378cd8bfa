"""The user's handle on the cache: its statistics and entries, and how to check, empty and carry it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _cache
from ._base import bounded
from ._base.data import dataclass
from ._base.errors import ArgumentTypeError, ArgumentValueError, RefusedError
from ._base.warnings import CacheWarning, warn_once
from ._cache import Stats, reset_stats, stats
from ._inspect import differences, listing
from ._inspect.differences import Difference, Explanation
from ._inspect.listing import Info
from ._store.disk import Pruned
from ._store.entry import Entry, encode, is_key, seal
from ._store.layer import Layer, Usage, reason
from ._store.remotes import RedisMapping
from ._store.settings import path_named, signing_key

if TYPE_CHECKING:
    from ._call.algorithm import Algorithm

__all__ = [
    "CacheWarning",
    "Difference",
    "Explanation",
    "Info",
    "Pruned",
    "RedisMapping",
    "Report",
    "Stats",
    "Transfer",
    "Usage",
    "clear",
    "directory",
    "entries",
    "explain",
    "export",
    "import_",
    "info",
    "prune",
    "reset_stats",
    "stats",
    "usage",
    "verify",
]


def __dir__() -> list[str]:
    return __all__


def directory() -> Path | None:
    """Return the directory of the disk cache, None if it is switched off or cannot be used."""
    disk = _cache.disk()
    return None if disk is None else disk.path


def usage() -> Usage:
    """Count the entries on disk, their size and the limit on it in bytes."""
    disk = _cache.disk()
    return Usage(0, 0, 0) if disk is None else disk.usage()


# --- Looking -------------------------------------------------------------------------------------------


def entries(path: str | os.PathLike[str] | None = None) -> Iterator[Info]:
    """Yield the entries of the cache, in no particular order: an `Info` for each.

    Parameters
    ----------
    path : str or path, optional
        A bundle, or another cache's directory. By default the user's directory; if that is switched off or
        cannot be used, nothing is in it.

    Raises
    ------
    OSError, ValueError
        If there is nothing at `path`, or it cannot be used.

    Examples
    --------
    Bytes by algorithm:

    >>> import collections, cupar
    >>> sizes = collections.Counter()
    >>> for each in cupar.cache.entries():
    ...     sizes[each.algorithm] += each.size
    """
    store = _cache.disk() if path is None else listing.layer(path)
    return iter(()) if store is None else listing.infos(store)


def info(key: str, path: str | os.PathLike[str] | None = None) -> Info:
    """Return one entry.

    Parameters
    ----------
    key : str
        Its key, or as much of the beginning as no other has.
    path : str or path, optional
        A bundle, or another cache's directory; by default the user's directory.

    Raises
    ------
    OSError, ValueError
        If no entry has such a key, or more than one, or there is nothing at `path`.

    Examples
    --------
    >>> import cupar
    >>> build = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0, cc=90).build
    >>> found = cupar.cache.info(build.key[:16])
    >>> found.algorithm, found.cc, found.entry
    ('reduce_into', 90, 'build')
    >>> found.meta["operators"]
    {'op': 'OpKind.PLUS'}
    """
    return listing.find(key, listing.own() if path is None else listing.layer(path))


def explain(algorithm: Algorithm | str, other: Algorithm | str | None = None) -> Explanation:
    """Say how a build differs from the nearest one in the cache: why it was built, not found.

    Parameters
    ----------
    algorithm : algorithm object or str
        Or the key of its build, or the beginning of that.
    other : algorithm object or str, optional
        What to compare it with, instead of the nearest.

    Returns
    -------
    Explanation
        Printed, it is a few lines of text. Its ``differences`` are the parts that differ: types, options,
        compute capability, the versions of the compilers, and of operators the constants in the code and all
        that they read.

    Raises
    ------
    TypeError
        If one of them is something else.
    ValueError
        If an entry is not kept, or cannot be read, or several have keys that begin so.

    Notes
    -----
    The user's directory, the bundles and the read-only directories are looked through, and of a shared store
    what was copied from it. The nearest is the entry of the same algorithm and kind whose differences weigh
    least: versions less than another compute capability, that less than a value that an operator reads, that
    less than its code, that less than types and options.

    Keys as tables of named parts, so that a miss can be explained, are JAX's idea (``cache_key.py``).

    Examples
    --------
    >>> import cupar
    >>> before = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0, cc=80)
    >>> now = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0, cc=90)
    >>> why = cupar.cache.explain(now, before)
    >>> for each in why.differences:
    ...     print(each)
    cc: 90, was 80
    """
    return differences.explain(_key("algorithm", algorithm), None if other is None else _key("other", other))


def _key(name: str, algorithm: Algorithm | str) -> str:
    if isinstance(algorithm, str):
        return algorithm
    key = getattr(getattr(algorithm, "build", None), "key", None)
    if not isinstance(key, str):
        raise ArgumentTypeError(
            name, f"expected an algorithm object or a key, got {type(algorithm).__name__}"
        )
    return key


# --- Checking and emptying -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What `verify` found.

    Attributes
    ----------
    checked : int
        Number of entries.
    faults : tuple of (str, str)
        Key, or the path of a file that concerns more than one entry, and the fault.
    """

    checked: int
    faults: tuple[tuple[str, str], ...]


def verify(path: str | os.PathLike[str] | None = None, *, repair: bool = False) -> Report:
    """Read all entries and check that each is what was stored.

    Parameters
    ----------
    path : str or path, optional
        A bundle, or another cache's directory; by default the user's directory. A bundle's signatures are
        checked if ``CUPAR_SIGNING_KEY`` is set.
    repair : bool, optional
        Remove damaged entries from the user's directory.

    Raises
    ------
    OSError, TypeError, ValueError
        If there is nothing at `path`, or it is not a path, or is to be repaired.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.verify().faults
    ()
    """
    _check_bool("repair", repair)
    if repair and path is not None:
        raise ArgumentValueError("repair", f"only the user's own directory is repaired, not {path!r}")
    try:
        store: Layer | None = _cache.disk() if path is None else listing.layer(path)
    except RefusedError as error:  # a bundle that is damaged as a whole
        return Report(0, ((str(path_named("path", path or "")), str(error)),))
    found = [] if store is None else list(store.check(repair=repair))
    checked = sum(is_key(key) for key, _ in found)
    return Report(checked, tuple((key, why) for key, why in found if why is not None))


def prune(*, size: int | None = None, unused_for: float | None = None) -> Pruned:
    """Remove the least recently used entries from the user's directory.

    Leftovers of processes that died are removed in any case. Returns the number of entries, and their bytes.

    Parameters
    ----------
    size : int, optional
        Bytes that may remain; by default the limit, `CUPAR_CACHE_SIZE`.
    unused_for : float, optional
        Seconds; entries unused for longer are removed, too. Uses are recorded to the hour.

    Raises
    ------
    TypeError, ValueError
        If something is not a number, or negative.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.prune(size=10 << 30, unused_for=90 * 24 * 3600)
    Pruned(removed=0, freed=0)
    """
    _check_number("size", size, "bytes")
    _check_number("unused_for", unused_for, "seconds")
    disk = _cache.disk()
    return Pruned(0, 0) if disk is None else disk.prune(size=size, unused_for=unused_for)


def _check_number(name: str, value: Any, unit: str) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if value is not None and not is_number:
        raise ArgumentTypeError(name, f"expected a number of {unit}, got {value!r}")
    if value is not None and not value >= 0:
        raise ArgumentValueError(name, f"expected a number that is not negative, got {value!r}")


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentTypeError(name, f"expected True or False, got {value!r}")


def clear(*, memory: bool = True, disk: bool = True) -> None:
    """Forget all builds: those of this process, those on disk, or both.

    Algorithm objects that a program holds go on working, and so do processes that are storing a build. What
    the process has kept of functions that were given as operators is forgotten with its builds.

    Parameters
    ----------
    memory, disk : bool, optional
        Which.

    Raises
    ------
    TypeError
        If something is neither True nor False.
    """
    _check_bool("memory", memory)
    _check_bool("disk", disk)
    if memory:
        bounded.clear()
    if disk:
        found = _cache.disk()
        if found is not None:
            found.clear()


# --- Carrying ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transfer:
    """What `export` or `import_` did.

    Attributes
    ----------
    entries : int
        Number of entries that were copied.
    size : int
        Their size in bytes; with `export`, that of the bundle.
    skipped : int
        Number of entries that need not be: those already there, and those of one machine alone.
    refused : int
        Number of entries that must not be: those that are damaged, not signed as they must be, or in a place
        where others could have written them. A `CacheWarning` says more.
    not_kept : int
        Number of entries that are not in the user's directory afterwards, although they should be: they do
        not fit in it (``CUPAR_CACHE_SIZE``), or it cannot be written.
    """

    entries: int
    size: int
    skipped: int
    refused: int = 0
    not_kept: int = 0


def export(path: str | os.PathLike[str], keys: Iterable[str] | None = None) -> Transfer:
    """Write a bundle of entries of the user's directory: one file, for other machines.

    It is signed if ``CUPAR_SIGNING_KEY`` is set. It holds the names of operators and, in short, the values of
    the globals and closure variables that they read, as the code itself does.

    Parameters
    ----------
    path : str or path
        The file to write, in place of the one that is there.
    keys : iterable of str, optional
        Of the entries to take, or the beginnings of their keys; by default all.

    Raises
    ------
    OSError
        If the file cannot be written.
    TypeError
        If `keys` is one string instead of several, or `path` is not one.
    ValueError
        If there is no cache directory, or no entry of such a key in it, or `path` names no file.

    See Also
    --------
    cupar.use_bundle : Read it in place.
    import_ : Copy its entries into a directory.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.export("builds.cupar-bundle")  # doctest: +SKIP
    Transfer(entries=12, size=2719316, skipped=1, refused=0, not_kept=0)
    """
    from ._store import bundle as _bundle

    if isinstance(keys, (str, bytes)) or not (keys is None or isinstance(keys, Iterable)):
        raise ArgumentTypeError("keys", f"expected several keys, such as a list of them, got {keys!r}")
    own, target = listing.own(), path_named("path", path)
    there = {key for key, _ in listing.sizes(own)}
    wanted = there if keys is None else {listing.resolve(key, there, str(own.path), "keys") for key in keys}
    secret, refused = signing_key(), 0

    def sealed() -> Iterator[tuple[str, bytes]]:
        nonlocal refused
        for key in sorted(wanted):
            entry = _read(key, own)
            if entry is None:
                refused += 1
            elif _is_portable(entry):
                yield key, seal(encode(key, entry), key, secret)

    entries, size = _bundle.write(target, sealed())
    return Transfer(entries, size, len(wanted) - entries - refused, refused)


def import_(path: str | os.PathLike[str]) -> Transfer:
    """Copy the entries of a bundle, or of another cache's directory, into the user's directory.

    Each entry is checked. Those that are there already, and not damaged, are left alone.

    Raises
    ------
    OSError, ValueError
        If there is nothing, or it cannot be used, or there is no directory to copy into.

    Examples
    --------
    >>> import cupar
    >>> cupar.cache.import_("builds.cupar-bundle")  # doctest: +SKIP
    Transfer(entries=12, size=2718080, skipped=0, refused=0, not_kept=0)
    """
    own, source = listing.own(), listing.layer(path)
    sizes = dict(listing.sizes(source))
    there, copied, refused = set(), set(), 0
    for key in sizes:
        if own.holds(key) and _read(key, own) is not None:
            there.add(key)
            continue
        entry = _read(key, source)
        if entry is None:
            refused += 1
        elif _is_portable(entry):
            own.discard(key)  # a damaged one
            own.store(key, entry)
            copied.add(key)
    # Now, since those that come last may have taken the place of the others.
    kept = {key for key in there | copied if own.holds(key)}
    not_kept = len(there | copied) - len(kept)
    return Transfer(
        entries=len(copied & kept),
        size=sum(sizes[key] for key in copied & kept),
        skipped=len(sizes) - len(copied & kept) - refused - not_kept,
        refused=refused,
        not_kept=not_kept,
    )


def _read(key: str, layer: Layer) -> Entry | None:
    """Return an entry without counting that as a use; None, with a warning, if it must not be copied."""
    try:
        return layer.read(key)
    except (OSError, MemoryError, RefusedError) as error:
        warn_once(
            ("copy", layer.path),
            f"cupar does not copy the entry {key} of {layer.path}: it {reason(error)}. "
            "Others may be like it.",
        )
        return None


def _is_portable(entry: Entry) -> bool:
    """Tell whether other machines can use it: where libraries were found is of this one."""
    return entry.meta.get("entry") != "search"
