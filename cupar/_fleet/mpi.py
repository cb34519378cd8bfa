"""Ranks of a communicator of mpi4py. Arrays on devices go through the host, unless MPI takes them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .comm import GroupError, copied, raw, waited

_LARGEST = 2**30  # bytes of a message: MPI's counts have 31 bits
_PAUSES = 1e-5, 1e-3  # seconds between two looks, the first and the longest


class MPIComm:
    """A communicator of mpi4py.

    Parameters
    ----------
    comm : mpi4py.MPI.Comm
    timeout : float, optional
        Seconds to wait for other ranks.
    device_memory : bool, optional
        Whether MPI takes addresses on devices. By default what is there is copied to the host first.

    Raises
    ------
    GroupError
        In each method, if other ranks do not answer in time. MPI itself ends all ranks if one dies, unless
        it was built and started otherwise.
    """

    __module__ = "cupar.distributed"

    def __init__(self, comm: Any, timeout: float = 300, device_memory: bool = False) -> None:
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._comm, self._timeout, self._takes_devices = comm, timeout, device_memory
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self.transport: str = f"MPI ({self._mpi.get_vendor()[0]})"

    def _done(self, requests: Sequence[Any]) -> None:
        """Wait for requests, where an interrupt arrives."""
        begin, pause = time.monotonic(), _PAUSES[0]
        while not self._mpi.Request.Testall(requests):
            if time.monotonic() - begin > self._timeout:
                raise GroupError(f"other ranks did not answer within {self._timeout:g} seconds")
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks."""
        sizes = np.zeros(self.size, np.int64)
        self._done([self._comm.Iallgather(np.array([len(data)]), sizes)])
        found = bytearray(int(sizes.sum()))
        self._done([self._comm.Iallgatherv(data, [found, sizes.tolist(), None, self._mpi.BYTE])])
        ends = np.cumsum(sizes).tolist()
        return [bytes(found[end - size : end]) for end, size in zip(ends, sizes.tolist(), strict=True)]

    def _host(self, array: Any, stream: Any, *, is_read: bool) -> Any:
        """Return what MPI takes in place of an array."""
        if stream is None or self._takes_devices:
            return array
        host = np.empty(array.nbytes, np.uint8)
        if is_read:
            copied(array, host, stream)
        return host

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Gather the records of all ranks."""
        given, found = (self._host(each, stream, is_read=each is record) for each in (record, records))
        if stream is not None:
            waited(stream)
        byte = self._mpi.BYTE
        self._done([self._comm.Iallgather([given, byte], [found, record.nbytes, byte])])
        self._back([(found, records)], stream)

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Send to and receive from each rank, in messages that MPI can count."""
        given = [self._host(each, stream, is_read=True) for each in send]
        found = [self._host(each, stream, is_read=False) for each in recv]
        if stream is not None:
            waited(stream)
        requests = []
        for r in range(self.size):
            for way, array in ((self._comm.Irecv, found[r]), (self._comm.Isend, given[r])):
                places = range(0, array.size if r != self.rank else 0, _LARGEST)
                requests += [way([array[at : at + _LARGEST], self._mpi.BYTE], r) for at in places]
        self._done(requests)
        self._back(zip(found, recv, strict=True), stream)

    def total(self, array: Any, stream: Any) -> None:
        """Add the numbers of all ranks."""
        host = self._host(raw(array), stream, is_read=True)
        host = array if stream is None or self._takes_devices else host.view(array.dtype)
        if stream is not None:
            waited(stream)
        self._done([self._comm.Iallreduce(self._mpi.IN_PLACE, host)])
        self._back([(host, array)], stream)

    def _back(self, pairs: Any, stream: Any) -> None:
        if stream is None or self._takes_devices:
            return
        for host, array in pairs:
            copied(raw(host), raw(array), stream)
        waited(stream)  # before the host's memory goes
