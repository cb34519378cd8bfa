"""Ranks that are tasks on the workers of a Dask cluster.

They talk by the connections that workers have among each other: no other library, and no other port. They
leave their worker's threads to other tasks while they work, so all of a group run at once, wherever they are.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from cachetools import LRUCache
from dask.base import get_scheduler

from .._base.bounded import Bounded
from .._fleet.comm import GroupError, ThroughHost, awaited
from .._fleet.group import Group

T = TypeVar("T")

_GONE = "has gone"  # is said of a worker that has died
_TRIES = 3
_SOON = 10.0  # seconds in which ranks are told why another one has failed, at most

Place = tuple[str, str]  # the address of a worker, and a name there


class _Meeting:
    """A rendezvous of ranks, which exchange their addresses: on one worker, in its event loop.

    A rank may come again, as its worker has died; and all may, as tasks that failed are tried again.
    """

    def __init__(self) -> None:
        self._places: dict[int, Place] = {}
        self._all: asyncio.Future[list[Place]] = asyncio.get_running_loop().create_future()

    async def join(self, rank: int, size: int, place: Place, timeout: float) -> list[Place]:
        """Return the addresses of all ranks, once they have come."""
        found = self._all
        self._places[rank] = place
        if len(self._places) == size:
            found.set_result([self._places[rank] for rank in range(size)])
            self._places, self._all = {}, asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(asyncio.shield(found), timeout)
        finally:
            if self._places.get(rank) == place:
                del self._places[rank]


class _Mail:
    """A rank's mailbox: messages received, and its failure."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.found: dict[tuple[int, int], Any] = {}  # by the number of the call, and the rank
        self.failure, self.is_over = "", False
        # Of rank 0: its connections to others, each for as long as both live, and the records there.
        self.others: dict[int, Any] = {}
        self.telling: list[Any] = []

    def put(self, call: int, rank: int, data: Any) -> None:
        with self.changed:
            self.found[call, rank] = data
            self.changed.notify_all()

    def fail(self, why: str) -> None:
        with self.changed:
            self.failure = self.failure or why
            self.changed.notify_all()


_meetings: Bounded[_Meeting] = Bounded(partial(LRUCache, 256))
_mails: dict[str, _Mail] = {}
_failures: Bounded[str] = Bounded(partial(LRUCache, 256))  # by the name of a rank that has left, why


def threads() -> list[int] | None:
    """Return the numbers of threads of the workers of the current cluster; None if there is none."""
    try:
        client: Any = getattr(get_scheduler(), "__self__", None)  # whose method `get` it is
    except RuntimeError:  # an asynchronous Client
        from distributed import get_client

        client = get_client()
    if not hasattr(client, "scheduler_info"):
        return None
    every = {"n_workers": -1} if "n_workers" in signature(client.scheduler_info).parameters else {}
    return [int(each["nthreads"]) for each in client.scheduler_info(**every)["workers"].values()]


# --- What workers are asked -------------------------------------------------------------------------------


async def _join(meeting: str, rank: int, size: int, at: str, name: str, timeout: float) -> Any:
    found = _meetings.get(meeting)
    if found is None:
        found = _meetings[meeting] = _Meeting()
    return await found.join(rank, size, (at, name), timeout)


async def _put(name: str, call: int, rank: int, data: Any) -> None:
    mail = _mails.get(name)
    if mail is None:
        raise OSError("another rank has left")
    mail.put(call, rank, data)


async def _watch(comm: Any, name: str, rank: int) -> Any:
    """Keep a connection of rank 0 to another rank, until one of them has ended."""
    from distributed.core import Status

    mail = _mails.get(name)
    known = _failures.get(name) if mail is None else mail.failure
    if mail is None or known:  # it comes too late to be told with the others
        await _said(comm, known or f"the worker of rank 0 {_GONE}")
        return Status.dont_reply
    mail.others[rank] = comm
    why = await _heard(comm)
    if not mail.is_over and why is not None:
        _tell(mail, why or f"the worker of rank {rank} {_GONE}")
    return Status.dont_reply


async def _heard(comm: Any) -> str | None:
    """Return why the other end of a connection has failed, None if it has ended without a fault."""
    try:
        found = await comm.read()
    except OSError:
        return ""
    return found["why"] or None


def _tell(mail: _Mail, why: str) -> None:
    """Have rank 0 tell all others why one has failed."""
    mail.fail(why)
    mail.telling = [asyncio.ensure_future(_said(each, why)) for each in mail.others.values()]


async def _said(comm: Any, why: str) -> None:
    with suppress(OSError):
        await comm.write({"why": why})


def _listening() -> Any:
    """Return the worker that this task runs on, which answers to what ranks ask from now on."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:
        raise RuntimeError(
            "method: expected tasks of a Dask cluster, as 'workers' says, got another scheduler"
        ) from None
    for each in (_join, _put, _watch):
        worker.handlers.setdefault(f"cupar{each.__name__}", each)
    return worker


def met(sizes: Sequence[int]) -> tuple[Place, Sequence[int]]:
    """Return the place where ranks meet, and the sizes of all blocks, which are there."""
    return (_listening().address, uuid.uuid4().hex), sizes


# --- Ranks --------------------------------------------------------------------------------------------------


class WorkerComm(ThroughHost):
    """A rank that is a task of a worker: they meet at a place.

    Arrays of GPUs go through the host.
    """

    transport = "workers of a Dask cluster"

    def __init__(self, meeting: Place, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self._timeout = rank, size, timeout
        self._worker = worker = _listening()
        self._name, self._calls, self._mail = uuid.uuid4().hex, 0, _Mail()
        _mails[self._name] = self._mail
        own = {"rank": rank, "size": size, "at": worker.address, "name": self._name, "timeout": timeout}
        where, name = meeting
        found = self._wait(self._ask(where, "cupar_join", meeting=name, **own))
        self._places: list[Place] = [(address, name) for address, name in found]
        self._watched = None if rank == 0 else self._wait(self._watch())

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Do something in the worker's event loop; raise GroupError if it is not done in time."""
        future = asyncio.run_coroutine_threadsafe(work, self._worker.loop.asyncio_loop)
        try:
            if not awaited(future.done, self._timeout, self._look):
                raise GroupError(f"other ranks did not answer within {self._timeout:g} seconds")
            return future.result()
        except (OSError, asyncio.TimeoutError) as error:
            with self._mail.changed:  # why that is may be on its way
                self._mail.changed.wait_for(lambda: self._mail.failure, _SOON)
            self._look()
            raise GroupError(f"other ranks do not answer: {error or 'in time'}") from error
        finally:
            future.cancel()

    def _look(self) -> None:
        if self._mail.failure:
            raise GroupError(self._mail.failure)

    async def _ask(self, address: str, op: str, **what: Any) -> Any:
        return await getattr(self._worker.rpc(address), op)(**what)

    async def _watch(self) -> Any:
        """Have a connection to rank 0, which tells if another rank fails, and that it is alive itself."""
        address, name = self._places[0]
        comm = await self._worker.rpc.connect(address)
        await comm.write({"op": "cupar_watch", "name": name, "rank": self.rank, "reply": False})
        mail = self._mail

        async def watch() -> None:
            why = await _heard(comm)
            if not mail.is_over:
                mail.fail(why or f"the worker of rank 0 {_GONE}")

        self._watching = asyncio.ensure_future(watch())
        return comm

    @property
    def failure(self) -> str:
        """Why ranks do not talk any more."""
        return self._mail.failure

    def abort(self, why: str) -> None:
        """Have the other ranks raise soon, as this one does not go on."""
        mail = self._mail
        if mail.failure:
            return
        mail.fail(why)
        if self.rank == 0:
            self._worker.loop.add_callback(_tell, mail, why)
        else:
            self._leave(why)

    def close(self) -> None:
        """Have done with the others."""
        self._mail.is_over = True
        if self._mail.failure:
            _failures[self._name] = self._mail.failure
        _mails.pop(self._name, None)
        self._leave("")

    def _leave(self, why: str) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            self._worker.loop.add_callback(_left, watched, why)

    # --- Talk --------------------------------------------------------------------------------------------

    def _send(self, call: int, rank: int, data: Any) -> Coroutine[Any, Any, Any]:
        from distributed.protocol import to_serialize

        address, name = self._places[rank]
        if isinstance(data, np.ndarray):  # workers of one process hand over the memory itself
            data = to_serialize(data.copy() if address.startswith("inproc:") else data)
        what = {"name": name, "call": call, "rank": self.rank, "data": data}
        return self._ask(address, "cupar_put", **what)

    def _all(
        self, call: int, sent: dict[int, Any], ranks: set[int], take: Callable[[int, Any], None]
    ) -> None:
        """Send arrays to some ranks, and take what comes from some."""

        async def send() -> None:
            await asyncio.gather(*(self._send(call, rank, data) for rank, data in sent.items()))

        self._wait(send())
        mail, left = self._mail, {*ranks}
        deadline = time.monotonic() + self._timeout
        while left:
            with mail.changed:
                here = [rank for rank in left if (call, rank) in mail.found]
                if not here:
                    self._look()
                    if time.monotonic() > deadline:
                        missing = ", ".join(map(str, sorted(left)[:4]))
                        raise GroupError(f"rank {missing} did not answer within {self._timeout:g} seconds")
                    mail.changed.wait(1)
                    continue
                found = {rank: mail.found.pop((call, rank)) for rank in here}
            for rank, data in found.items():
                take(rank, data)
            left.difference_update(found)

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks: rank 0 collects them, and sends all to all."""
        found = [data] * self.size
        self._calls += 1
        call, others = 2 * self._calls, {*range(1, self.size)}
        if self.rank == 0:
            self._all(call, {}, others, found.__setitem__)
            self._all(call + 1, dict.fromkeys(others, found), set(), found.__setitem__)
            return found
        every: list[Any] = []
        self._all(call, {0: data}, set(), found.__setitem__)
        self._all(call + 1, {}, {0}, lambda rank, data: every.extend(data))
        return every

    def _gather(self, record: Any, records: Any) -> None:
        found = b"".join(self.agree(record.tobytes()))
        records[...] = np.frombuffer(found, np.uint8)

    def _exchange(self, send: Sequence[Any], recv: Sequence[Any]) -> None:
        self._calls += 1
        sent = {rank: each for rank, each in enumerate(send) if rank != self.rank and each.size}
        awaited = {rank for rank, each in enumerate(recv) if rank != self.rank and each.size}

        def take(rank: int, data: Any) -> None:
            recv[rank][...] = data

        self._all(2 * self._calls, sent, awaited, take)

    def _total(self, array: Any) -> None:
        parts = [np.frombuffer(each, array.dtype) for each in self.agree(array.tobytes())]
        array[...] = np.sum(parts, axis=0, dtype=array.dtype)


async def _left(comm: Any, why: str) -> None:
    await _said(comm, why)
    await comm.close()


def as_rank(meeting: Place, rank: int, size: int, timeout: float, work: Callable[[Group], T]) -> T:
    """Do what a rank does in a group of tasks; if it fails, so do the others.

    If the worker of one has died, which has its task run elsewhere, all begin again.
    """
    from distributed import secede

    _listening()
    secede()
    left = _TRIES
    while True:
        left -= 1
        comm = WorkerComm(meeting, rank, size, timeout)
        group = Group(comm, timeout)
        try:
            return work(group)
        except BaseException as error:
            group.fail(error)
            if not left or _GONE not in comm.failure:
                raise
        finally:
            comm.close()
