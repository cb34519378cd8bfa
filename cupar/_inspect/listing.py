"""Listings: the entries of a directory or bundle, without reading them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from .. import _cache
from .._base.data import dataclass, field
from .._base.errors import ArgumentValueError
from .._store.disk import Disk
from .._store.layer import Layer
from .._store.settings import path_named, signing_key

_HEAD_BYTES = 512
# As `_store.entry.encode` lays them out, keys in order. What does not look like this is read as a whole.
_HEAD = re.compile(
    rb"(?:cupar-signature [0-9a-f]{64}\n)?cupar-entry [0-9]+ [0-9a-f]{64} [0-9]+ [0-9]+\n"
    rb'\{(?:"algorithm": "(\w{0,80})", )?(?:"cc": ([0-9]{1,4}|"cpu"), )?(?:"cubin_size": [0-9]+, )?'
    rb'"entry": "(\w{0,40})"'
)
_PREFIX = re.compile("[0-9a-f]{1,64}")


@dataclass(frozen=True)
class Info:
    """An entry as a listing shows it.

    Attributes
    ----------
    key : str
    algorithm : str
        As in ``"reduce_into"``; empty for what belongs to no algorithm.
    cc : int or str
        Compute capability, as in 90; ``"cpu"``; 0 for what belongs to none.
    entry : str
        Its kind: ``"build"``, ``"template"`` (kernels for any operator), ``"result"`` (of type inference),
        ``"numbers"`` (which ones of an operator are arguments), ``"cpp"`` (C++ of the user's, compiled),
        ``"policy"`` (what `cupar tune` found), ``"search"`` (where a library is); empty if the file is
        damaged.
    size : int
        Bytes that it takes.
    used : float or None
        When it was last used, in seconds since the epoch, to the hour; None in a bundle, which does not
        record that.
    """

    key: str
    algorithm: str
    cc: int | str
    entry: str
    size: int
    used: float | None
    _read_meta: Callable[[str], dict[str, Any] | None] = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        from .._base import html
        from .._base.words import date_text, size_text

        pairs = {"key": self.key, "algorithm": self.algorithm, "cc": str(self.cc or ""), "entry": self.entry}
        pairs["size"] = size_text(self.size)
        if self.used is not None:
            pairs["used"] = date_text(self.used)
        return html.fields("entry of the cache", pairs.items())

    @property
    def meta(self) -> dict[str, Any]:
        """All metadata of the entry, read from its file each time; empty if it was removed."""
        return self._read_meta(self.key) or {}


def sizes(store: Layer) -> Iterator[tuple[str, int]]:
    """Yield key and size in bytes of each entry, without opening any."""
    for each in store.entries():
        yield each.key, each.size


def infos(store: Layer, prefix: str = "") -> Iterator[Info]:
    """Yield the entries of a directory or bundle whose keys begin with `prefix`."""
    for each in store.entries():
        if each.key.startswith(prefix):
            head = _head(store.head(each, _HEAD_BYTES)) or _described(store.meta(each.key))
            yield Info(each.key, *head, each.size, each.used, store.meta)


def _head(data: bytes) -> tuple[str, int | str, str] | None:
    """Read algorithm, compute capability and kind from the beginning of an entry; JSON would take longer."""
    match = _HEAD.match(data)
    if match is None:
        return None
    algorithm, cc, entry = match.groups()
    where = "cpu" if cc == b'"cpu"' else int(cc or 0)
    return (algorithm or b"").decode(), where, entry.decode()


def _described(meta: dict[str, Any] | None) -> tuple[str, int | str, str]:
    meta = meta or {}
    algorithm, cc, entry = (meta.get(name) for name in ("algorithm", "cc", "entry"))
    return (
        algorithm if isinstance(algorithm, str) else "",
        cc if isinstance(cc, int) or cc == "cpu" else 0,
        entry if isinstance(entry, str) else "",
    )


def own() -> Disk:
    """Return the user's directory.

    Raises
    ------
    ValueError
        If it cannot be used.
    """
    disk = _cache.disk()
    if disk is None:
        raise ValueError(
            "there is no cache directory: it is switched off (CUPAR_CACHE=0), has no place, or others can "
            "write to it"
        )
    return disk


def layer(path: str | os.PathLike[str]) -> Layer:
    """Return the directory or bundle at `path`, to be read only.

    Raises
    ------
    OSError, TypeError, ValueError
        If it does not exist, or cannot be used.
    """
    return _cache.layer(path_named("path", path), signing_key())


def kept() -> list[Info]:
    """Return the entries that this process finds without a shared store, each key once, last used first."""
    own = _cache.disk()
    stores = _cache.bundles() if own is None else (own, *_cache.bundles())
    found: dict[str, Info] = {}
    for store in stores:
        for info in infos(store):
            found.setdefault(info.key, info)
    return sorted(found.values(), key=lambda info: -(info.used or 0))


def find(text: str, store: Layer) -> Info:
    """Return the one entry in a directory or bundle whose key begins with `text`.

    Raises
    ------
    ValueError
        If none does, or more than one.
    """
    key = resolve(text, {key for key, _ in sizes(store)}, str(store.path))
    for info in infos(store, key):
        return info
    raise ArgumentValueError("key", f"the entry {key} has just been removed from {store.path}")


def resolve(text: str, keys: Collection[str], place: str, name: str = "key") -> str:
    """Return the one key that begins with `text`; `name` stands for it in errors.

    Raises
    ------
    ValueError
        If none does, or more than one.
    """
    if not isinstance(text, str) or not _PREFIX.fullmatch(text):
        raise ArgumentValueError(
            name, f"expected a key or the beginning of one, in lower-case hexadecimal, got {text!r}"
        )
    if text in keys:
        return text
    found = sorted(key for key in keys if key.startswith(text))
    if not found:
        raise ArgumentValueError(
            name, f"no entry in {place} begins with {text!r}; 'cupar cache list' shows what there is"
        )
    if len(found) > 1:
        raise ArgumentValueError(
            name,
            f"{len(found)} entries in {place} begin with {text!r}, such as {found[0]} and "
            f"{found[1]}: give more of the key",
        )
    return found[0]
