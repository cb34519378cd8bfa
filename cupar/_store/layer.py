"""What every layer of entries can do, be it a directory or a bundle: serve, list, describe, check, count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .._base.data import dataclass
from .._base.errors import RefusedError
from .._base.warnings import warn_once
from .entry import Entry, peek_meta
from .files import DistrustedError


class ListedEntry(NamedTuple):
    """An entry as a listing shows it: `used` in seconds since the epoch, None where that is not recorded."""

    key: str
    size: int
    used: float | None
    where: Any
    """What the layer's own `peek` and `read_at` take."""


@dataclass(frozen=True)
class Usage:
    """Number of entries in a directory, their size and the limit on it in bytes."""

    entries: int
    size: int
    limit: int

    def _repr_html_(self) -> str:
        from .._base import html
        from .._base.words import size_text

        sizes = [(name, size_text(getattr(self, name))) for name in ("size", "limit")]
        return html.fields("cache on disk", [("entries", str(self.entries)), *sizes])


class Layer(ABC):
    """Entries in one place. A new kind of layer defines the abstract methods; the rest follows from them."""

    path: Path
    limit_bytes = 0
    is_lost = False
    """Whether no entry can be served until the layer is opened anew."""

    @abstractmethod
    def trust(self) -> None:
        """Raise `DistrustedError` if others could have written it; an OSError if it cannot be looked at."""

    @abstractmethod
    def entries(self) -> Iterator[ListedEntry]:
        """Yield all entries, without opening any."""

    @abstractmethod
    def find(self, key: str) -> Any:
        """Return where the entry under `key` lies, if there is one; None if there surely is not."""

    @abstractmethod
    def alike(self, key: str) -> Iterator[str]:
        """Yield the keys of entries equivalent to one under `key`, made by any versions of the compilers."""

    @abstractmethod
    def peek(self, where: Any, offset: int, size: int) -> bytes:
        """Read part of an entry, unchecked; less if it ends before."""

    @abstractmethod
    def read_at(self, where: Any, key: str) -> Entry:
        """Read an entry; raise `RefusedError` if it must not be used, FileNotFoundError if it was removed."""

    def read(self, key: str) -> Entry | None:
        """Return the entry under `key`, or None.

        If there is one that is not served, raise an OSError, MemoryError or `RefusedError`; see `reason`.
        """
        with suppress(FileNotFoundError):
            self.trust()
            where = self.find(key)
            return None if where is None else self.read_at(where, key)
        return None

    def load(self, key: str) -> Entry | None:
        """Return the entry under `key`, or None. A refused entry is warned of once."""
        try:
            return self.read(key)
        except (OSError, MemoryError, RefusedError) as error:
            self.refuse(key, error)
            return None

    def refuse(self, key: str, error: Exception) -> None:
        """Warn, once for each layer, of an entry that is not served."""
        warn_once(
            ("unusable", self.path),
            f"cupar does not use the entry {key} of {self.path}: it {reason(error)}. It will be built again.",
        )

    def meta(self, key: str) -> dict[str, Any] | None:
        """Return the metadata of an entry, unchecked, for listings; None if unreadable."""
        with suppress(OSError, MemoryError, RefusedError):
            where = self.find(key)
            if where is not None:
                return peek_meta(partial(self.peek, where))
        return None

    def head(self, each: ListedEntry, size: int) -> bytes:
        """Return the first bytes of an entry, unchecked, for listings; empty if unreadable."""
        with suppress(OSError, MemoryError, RefusedError):
            return self.peek(each.where, 0, size)
        return b""

    def check(self, *, repair: bool = False) -> Iterator[tuple[str, str | None]]:
        """Read all entries; yield the key of each, with the fault of a refused one, else None.

        A fault of the whole layer has its path in place of a key. With `repair`, entries that
        are refused are removed.
        """
        try:
            self.trust()
        except DistrustedError as error:
            yield str(error.path), error.why
        except OSError:
            pass  # it does not exist, or its entries report the fault
        for each in self.entries():
            fault = None
            try:
                self.read_at(each.where, each.key)
            except FileNotFoundError:  # removed meanwhile
                continue
            except (OSError, MemoryError, RefusedError) as error:
                fault = reason(error)
                if repair and isinstance(error, RefusedError):  # an unreadable entry need not be damaged
                    self.drop(each.where, error)
            yield each.key, fault

    def drop(self, where: Any, error: RefusedError) -> None:  # noqa: B027 - not all layers can be written
        """Remove an entry that was refused, where that can be done."""

    def usage(self) -> Usage:
        """Count the entries."""
        sizes = [each.size for each in self.entries()]
        return Usage(len(sizes), sum(sizes), self.limit_bytes)


def reason(error: Exception) -> str:
    """Say why an entry is not served, as in ``cannot be read (Input/output error)``."""
    if isinstance(error, RefusedError):
        return str(error)
    return f"cannot be read ({getattr(error, 'strerror', None) or repr(error)})"
