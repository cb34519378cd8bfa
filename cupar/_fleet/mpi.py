"""Ranks of a communicator of mpi4py. Arrays on devices go through the host, unless MPI takes them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from .comm import GroupError, ThroughHost, agreed, awaited

_LARGEST = 2**30  # bytes of a message, or numbers that are added: MPI's counts have 31 bits
_DATA, _FAILED = 0, 1  # tags: of data, and of the message of a rank that fails
_TOLD = 500  # bytes of that, at most


_abandoned: list[Any] = []  # requests whose memory MPI may still use


class _Line:
    """A communicator of the same ranks for cupar alone: what fails there leaves the given one as it is."""

    def __init__(self, mpi: Any, comm: Any, timeout: float) -> None:
        self._mpi, self._beside, self.failure = mpi, comm, ""
        self.comm, request = comm.Idup()
        if not awaited(request.Test, timeout, lambda: None):
            _abandoned.append(request)
            raise GroupError(f"MPI: other ranks did not make a group within {timeout:g} seconds")
        comm.Set_attr(_key(mpi), self)

    def done(self, requests: Sequence[Any], timeout: float) -> None:
        """Wait for requests; raise `GroupError` if another rank has failed, or does not answer in time."""
        try:
            if not awaited(lambda: self._mpi.Request.Testall(requests), timeout, self._look):
                raise GroupError(f"other ranks did not answer within {timeout:g} seconds")
        except BaseException:
            _abandoned.extend(requests)
            raise

    def _look(self) -> None:
        status = self._mpi.Status()
        if self.comm.Iprobe(self._mpi.ANY_SOURCE, _FAILED, status):
            told = bytearray(status.Get_count(self._mpi.BYTE))
            self.comm.Recv([told, self._mpi.BYTE], status.Get_source(), _FAILED)
            self._end(told.decode(errors="replace"))
            raise GroupError(self.failure)

    def _end(self, why: str) -> None:
        self.failure = why
        if self._beside.Get_attr(_key(self._mpi)) is self:
            self._beside.Delete_attr(_key(self._mpi))

    def abort(self, why: str) -> None:
        """Tell the others, unless one of them has told this rank."""
        if self.failure:
            return
        self._end(why)
        told = why.encode()[:_TOLD]
        others = (rank for rank in range(self.comm.size) if rank != self.comm.rank)
        _abandoned.extend(self.comm.Isend([told, self._mpi.BYTE], rank, _FAILED) for rank in others)


@cache
def _key(mpi: Any) -> int:
    """Return the key by which communicators keep their lines."""
    found: int = mpi.Comm.Create_keyval()
    return found


class MPIComm(ThroughHost):
    """A duplicate of a communicator of mpi4py: all ranks make it together.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
    timeout : float, optional
        Seconds to wait for other ranks.
    device_memory : bool, optional
        Whether MPI takes addresses on devices. By default arrays on devices are copied to the host first.

    Raises
    ------
    GroupError
        In each method, if other ranks do not answer in time. MPI itself ends all ranks if one dies, unless
        it was built and started otherwise.
    """

    __module__ = "cupar.distributed"

    def __init__(self, comm: Any, timeout: float = 300, device_memory: bool = False) -> None:
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._timeout, self._takes_devices = timeout, device_memory
        self._line: _Line = comm.Get_attr(_key(self._mpi)) or _Line(self._mpi, comm, timeout)
        self._comm = self._line.comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.transport: str = f"MPI ({self._mpi.get_vendor()[0]})"

    @property
    def failure(self) -> str:
        """Why ranks of this communicator do not talk any more."""
        return self._line.failure

    def abort(self, why: str) -> None:
        """Have the other ranks raise soon, as this one does not go on."""
        self._line.abort(why)

    def _done(self, requests: Sequence[Any]) -> None:
        self._line.done(requests, self._timeout)

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks."""
        return agreed(data, self.size, self._gather)

    def _gather(self, record: Any, records: Any) -> None:
        size = record.nbytes
        if size > _LARGEST:
            parts = [records[r * size : (r + 1) * size] for r in range(self.size)]
            self._exchange([record] * self.size, parts, with_own=True)
            return
        byte = self._mpi.BYTE
        self._done([self._comm.Iallgather([record, byte], [records, size, byte])])

    def _exchange(self, send: Sequence[Any], recv: Sequence[Any], with_own: bool = False) -> None:
        """Send and receive messages that MPI can count."""
        requests = []
        for r in range(self.size):
            for way, array in ((self._comm.Irecv, recv[r]), (self._comm.Isend, send[r])):
                places = range(0, array.size if with_own or r != self.rank else 0, _LARGEST)
                requests += [way([array[at : at + _LARGEST], self._mpi.BYTE], r, _DATA) for at in places]
        self._done(requests)

    def _total(self, array: Any) -> None:
        for at in range(0, array.size, _LARGEST):
            self._done([self._comm.Iallreduce(self._mpi.IN_PLACE, array[at : at + _LARGEST])])
