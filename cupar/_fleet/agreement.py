"""The agreement of ranks: on the calls that they have made, and on facts that must be equal."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .comm import on_all

SIZE = "size"  # of a shard, which may differ
_SHOWN = 4  # ranks that a message names, of those that mean the same
_KNOWN = 256  # calls that are known since ranks last agreed

# A message begins with its kind, and the checksum of the rank's calls.
HEAD = struct.Struct("<cI")
WAITING, FACTS, RECORD = b"=", b"[", b"#"


class Calls:
    """The calls of a rank, which the other ranks make, too.

    Attributes
    ----------
    checksum : int
        Of all calls.
    """

    def __init__(self) -> None:
        self.checksum = 0
        self._number, self._notes = 0, deque[bytes](maxlen=_KNOWN)  # since ranks last agreed

    def note(self, call: bytes) -> None:
        """Add a call, in JSON: the object, its algorithm, what ranks give alike, and whether they wait."""
        self.checksum = zlib.crc32(call, self.checksum)
        self._number += 1
        self._notes.append(call)

    def taken(self) -> tuple[int, list[bytes]]:
        """Return the number of calls since the last time, and the last ones."""
        found = self._number, [*self._notes]
        self._number = 0
        self._notes.clear()
        return found


def check_same(facts: Sequence[Mapping[str, Any]]) -> None:
    """Raise ValueError if ranks differ in a fact, but for the sizes of shards."""
    names = dict.fromkeys(name for each in facts for name in each if name != SIZE)
    # What all ranks mention comes first: those that are in different calls have some facts alone.
    for name in sorted(names, key=lambda name: any(name not in each for each in facts)):
        ranks: dict[str, list[int]] = {}
        for rank, each in enumerate(facts):
            ranks.setdefault(each.get(name, "none"), []).append(rank)
        if len(ranks) > 1:
            said = "; ".join(f"{_ranks_text(those)}: {value}" for value, those in ranks.items())
            raise on_all(ValueError(f"ranks differ in {name}: {said}"))


def text_of(error: BaseException) -> str:
    """Return an error in one line, for other ranks."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"
