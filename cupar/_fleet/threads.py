"""Ranks as threads of one process, each on the CPU or with its own GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from .comm import ASTRAY, GroupError, ThroughHost, copied, waited


class _Meeting:
    """A rendezvous of threads, with a slot for the value of each."""

    def __init__(self, size: int, timeout: float) -> None:
        self.slots: list[Any] = [None] * size
        self._here, self._met, self._timeout, self._why = set[int](), 0, timeout, ""
        self._changed = threading.Condition()

    def all(self, rank: int, what: str, given: Any) -> list[Any]:
        """Return the values of all threads, once all have arrived. They stay until the next `wait`."""
        self.slots[rank] = what, given
        self.wait(rank)
        found = list(self.slots)
        if any(each[0] != what for each in found):
            raise GroupError(ASTRAY)
        return [each[1] for each in found]

    def wait(self, rank: int) -> None:
        """Wait for all; raise `GroupError` if some do not come in time, or one has failed."""
        with self._changed:
            self._here.add(rank)
            if not self._why and len(self._here) == len(self.slots):
                self._here, self._met = set(), self._met + 1
                self._changed.notify_all()
                return
            met = self._met
            self._changed.wait_for(lambda: self._met > met or self._why, self._timeout)
            if self._met > met:
                return
            missing = sorted({*range(len(self.slots))} - self._here)
            late = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} did not call within "
            raise GroupError(self._why or f"{late}{self._timeout:g} seconds")

    def abort(self, why: str) -> None:
        """Have all raise that wait, or will."""
        with self._changed:
            self._why = self._why or why
            self._changed.notify_all()


class ThreadComm(ThroughHost):
    """One of the ranks that are threads of this process; made by `cupar.distributed.threads`."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self._meeting, self.rank, self.size = meeting, rank, len(meeting.slots)
        self.transport = "threads of one process"

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks."""
        found = self._meeting.all(self.rank, "agree", data)
        self._meeting.wait(self.rank)
        return found

    def _copies(self, what: str, given: Any, pairs: Any, stream: Any) -> None:
        """Copy parts of all ranks' arrays, which stay unchanged until all ranks have copied."""
        if stream is not None:
            waited(stream)
        for source, target in pairs(self._meeting.all(self.rank, what, given)):
            copied(source, target, stream)
        if stream is not None:
            waited(stream)
        self._meeting.wait(self.rank)

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Copy the records of all ranks."""
        n = record.nbytes
        parts = [records[r * n : (r + 1) * n] for r in range(self.size)]
        self._copies("gather", record, lambda found: zip(found, parts, strict=True), stream)

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Copy the arrays that other ranks have for this one."""

        def pairs(found: Any) -> Any:
            return zip([each[self.rank] for each in found], recv, strict=True)

        self._copies("exchange", send, pairs, stream)

    def _total(self, array: Any) -> None:
        """Add the numbers of all ranks, in rank order."""
        total = np.sum(self._meeting.all(self.rank, "total", array), axis=0, dtype=array.dtype)
        self._meeting.wait(self.rank)
        array[...] = total

    def abort(self, why: str) -> None:
        """Have the other ranks raise at once, as this one does not go on."""
        self._meeting.abort(why)


def comms(size: int, timeout: float) -> list[ThreadComm]:
    """Return the ranks of a new group of threads."""
    meeting = _Meeting(size, timeout)
    return [ThreadComm(meeting, rank) for rank in range(size)]
