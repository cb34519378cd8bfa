"""A group of ranks: they talk by its transport, and agree before anything runs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from .. import _cache
from .agreement import FACTS, HEAD, RECORD, SIZE, WAITING, Calls, check_same, text_of
from .comm import ASTRAY, WHOLE, Comm, GroupError, attempted, is_on_all, on_all, raw

T = TypeVar("T")

_Exchange = tuple[Sequence[Any], Sequence[Any]]  # arrays to send to each rank, and arrays to receive into


class _InUse:
    """A context in which a rank makes a call; GroupError if another thread of it does so already."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise GroupError(
                "group: expected calls one after another, in the order of other ranks, got one while another "
                "thread of this rank is in one"
            )

    def __exit__(self, *error: Any) -> None:
        self._lock.release()


class Group:
    """Ranks that work on one array together; made by `group` and `threads`.

    Attributes
    ----------
    rank, size : int
        This rank's number, and the number of ranks.
    transport : str
        The engine, as in ``"torch.distributed (gloo)"``.
    timeout : float
        Seconds that a rank waits for the others.
    comm : Comm
    """

    __module__ = "cupar.distributed"

    def __init__(self, comm: Comm, timeout: float = 300) -> None:
        self.comm: Comm = comm
        self.timeout: float = timeout
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.transport: str = comm.transport
        self.in_use: _InUse = _InUse()
        self._failure, self._process = "", os.getpid()
        self._talked = 0  # how often
        self._calls = Calls()
        self.made: int = 0  # the number of objects

    def __repr__(self) -> str:
        return f"<cupar group: rank {self.rank} of {self.size}, {self.transport}>"

    # --- Talk --------------------------------------------------------------------------------------------

    def _ask(self, method: Callable[..., T], *arguments: Any) -> T:
        """Have the ranks talk; after a failure, or an interrupt, they do not know where the others are."""
        if self._process != os.getpid():
            raise GroupError(f"{self.transport}: this process was forked from the one that is in the group")
        failure = self._failure or getattr(self.comm, "failure", "")
        if failure:
            raise GroupError(f"{self.transport}: this group has failed ({failure}); make a new one")
        try:
            self._talked += 1
            return method(*arguments)
        except Exception as error:
            why = (str(error).splitlines() or [type(error).__name__])[0]
            if is_on_all(error):  # the transport goes on: the next group of these ranks has it, too
                self._failure = why
            else:
                self._end(why)
            raise GroupError(f"{self.transport}: {self._failure}") from error
        except BaseException as interrupt:
            self.fail(interrupt)
            raise

    def optional(self, method: str, *arguments: Any) -> Any:
        """Call a method that a transport may have; return None if it has not."""
        return getattr(self.comm, method, _nothing)(*arguments)

    def fail(self, error: BaseException) -> None:
        """End the group, as this rank has an error in a call of all; the others raise soon.

        Nothing ends if they all raise the error, know it, or there are none.
        """
        if self.size > 1 and not self._failure and not is_on_all(error) and self._process == os.getpid():
            self._end(f"rank {self.rank} raised {text_of(error)}")

    def _end(self, why: str) -> None:
        self._failure = why
        self.optional("abort", why)

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in rank order."""
        found = self._ask(self.comm.agree, data)
        if not isinstance(found, (list, tuple)) or len(found) != self.size:  # of a Comm of the user's
            raise GroupError(
                f"{self.transport}: agree: expected a list of {self.size} messages, got {found!r:.80}"
            )
        return found

    def gather(self, record: Any, records: Any, stream: Any = None) -> None:
        """Gather a small record of each rank: `Comm.gather`."""
        self._ask(self.comm.gather, record, records, stream)

    def prepare(self) -> None:
        """Have the transport prepare what records on devices are gathered by, if it has to; all ranks do."""
        self._ask(self.optional, "prepare")

    def gathering(self, record: Any, records: Any) -> Callable[[Any], None]:
        """Return a function of a stream that gathers records of these addresses, prepared if possible."""
        given = raw(record), raw(records)
        if isinstance(record, np.ndarray) and self.size > 1:
            return self._gathering_on_host(*given)
        make = getattr(self.comm, "gathering", None)
        return partial(self.gather, *given) if make is None else partial(self._ask, make(*given))

    def _gathering_on_host(self, record: Any, records: Any) -> Callable[[Any], None]:
        """Return a function that gathers records, and raises unless all ranks are in the same call."""
        begin, end = HEAD.size, HEAD.size + len(record)
        sent = np.zeros(-(-end // WHOLE) * WHOLE, np.uint8)
        found, all_records = np.zeros((self.size, len(sent)), np.uint8), records.reshape(self.size, -1)

        def gather(stream: Any) -> None:
            sent[:begin] = np.frombuffer(HEAD.pack(RECORD, self._calls.checksum), np.uint8)
            sent[begin:end] = record
            self.gather(sent, found.reshape(-1), stream)
            self._check_calls(self._checksums(RECORD, found), has_begun=True)
            all_records[...] = found[:, begin:end]

        return gather

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any = None) -> None:
        """Exchange arrays: `Comm.exchange`."""
        self._ask(self.comm.exchange, send, recv, stream)

    def exchanging(self, columns: Sequence[_Exchange], stream: Any = None) -> Callable[[], Any]:
        """Exchange arrays with each rank; return a function to call before the received ones are used."""
        begin = getattr(self.comm, "exchanging", None)
        if begin is not None:
            return partial(self._ask, self._ask(begin, columns, stream))
        for send, recv in columns:
            self.exchange(send, recv, stream)
        return _nothing

    def total(self, array: Any, stream: Any = None) -> None:
        """Add numbers: `Comm.total`."""
        if array.size:
            self._ask(self.comm.total, array, stream)

    # --- Calls -------------------------------------------------------------------------------------------

    def note(self, call: bytes) -> None:
        """Have ranks compare a call when they agree the next time; see `Calls.note`."""
        self._calls.note(call)

    def replay(self, graph: Callable[[int], None], call: bytes, stream: int) -> None:
        """Enqueue a call that was captured."""
        self.note(call)
        self._ask(graph, stream)

    def _checksums(
        self, kind: bytes, messages: Iterable[Any], error: Exception | None = None
    ) -> Sequence[int]:
        """Return the checksums of all ranks' calls; raise on all unless all messages are of one kind."""
        kinds, checksums = zip(*(HEAD.unpack_from(each) for each in messages), strict=True)
        if {*kinds} != {kind}:
            raise self._astray() from error
        return checksums

    def _check_calls(self, checksums: Sequence[int], has_begun: bool = False) -> None:
        """Raise on all ranks if they made other calls, or gave something else to one.

        `has_begun`: the last one is not over.
        """
        own = self._calls.taken()
        if len({*checksums}) == 1:
            return
        self._calls.checksum = 0
        found = [json.loads(each) for each in self.agree(json.dumps(own, default=bytes.decode).encode())]
        if len({number for number, _ in found}) > 1:
            raise self._astray()
        calls = [*zip(*(map(json.loads, notes) for _, notes in found), strict=True)]
        for i, same in enumerate(calls, 1):
            objects, algorithms, given, waits = zip(*same, strict=True)
            if len({*objects}) > 1:
                raise self._astray()
            behind = "" if has_begun and i == len(calls) else f" of an earlier {algorithms[0]}"
            try:
                check_same([{name + behind: value for name, value in each.items()} for each in given])
            except ValueError as error:
                if any(waits):
                    self._end(str(error))
                raise
        raise on_all(ValueError("ranks differ in what they gave to an earlier call"))

    def _astray(self) -> GroupError:
        """Return an error of all ranks, as some wait for all, and others are in a call: no more is known."""
        self._failure = ASTRAY
        return on_all(GroupError(f"{self.transport}: {self._failure}"))

    # --- Agree -------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait for all ranks.

        Raises
        ------
        GroupError
            If one of them has failed, or does not come in time.
        ValueError
            If ranks have given a call on GPUs another initial value, level or number of values.
        """
        answers = self.agree(HEAD.pack(WAITING, self._calls.checksum))
        self._check_calls(self._checksums(WAITING, answers))

    def sizes(self, number: int, what: str = "", error: Exception | None = None, **same: Any) -> list[int]:
        """Return a number of each rank, once they agree on others; if one has an error instead, all raise.

        Raises
        ------
        Exception
            `error` itself on the rank that has it.
        GroupError
            If another rank has one, here or in `compare`.
        ValueError
            If ranks differ in one of `same`.
        """
        facts = {name: str(each) for name, each in same.items()}
        own = ({"algorithm": what} if what else {}) | facts | {SIZE: int(number)}
        found = self.told(own, what, error)
        check_same(found)
        return [each[SIZE] for each in found]

    def compare(self, what: str, facts: Mapping[str, str], error: Exception | None = None) -> None:
        """Raise the same error on all ranks if one of them has an error, or they differ in a fact.

        Raises
        ------
        Exception
            `error` itself on the rank that has it.
        GroupError
            If another rank has one.
        ValueError
            If ranks differ; the message says which of them mean what.
        """
        if self.size == 1:
            if error is not None:
                raise error
            return
        check_same(self.told({"algorithm": what, **facts}, what, error))

    def told(self, own: Any, what: str = "", error: Exception | None = None) -> list[Any]:
        """Return the messages of all ranks; if one has an error instead, raise on all."""
        said = "" if error is None else text_of(error)
        head = HEAD.pack(FACTS, self._calls.checksum)
        answers = self.agree(head + json.dumps([own, said]).encode())
        checksums = self._checksums(FACTS, answers, error)
        found = [json.loads(each[len(head) :]) for each in answers]
        if error is not None:
            raise on_all(error)
        for rank, (_, failure) in enumerate(found):
            if failure:
                raise on_all(GroupError(f"{what or self.transport}: rank {rank} raised {failure}"))
        self._check_calls(checksums)
        return [each for each, _ in found]

    def together(self, what: str, call: Callable[[], T]) -> T:
        """Return the result of a collective call: if it fails on one rank, all raise.

        If they fail before they communicate, the group remains usable.
        """
        talked = self._talked
        try:
            with self.in_use:
                return call()
        except BaseException as error:
            if isinstance(error, Exception) and self._talked == talked and not self._failure:
                self.compare(what, {}, error)
            self.fail(error)
            raise

    def built(self, what: str, build: Callable[[], T]) -> T:
        """Build on all ranks; if that fails on one, all raise.

        Builds are shared through the group's store, unless there is a shared store already.
        """
        with _cache.lent(self.optional("store") if self.size > 1 else None):
            found, error = attempted(build)
        self.compare(what, {}, error)
        return found  # type: ignore[return-value]


def _nothing(*arguments: Any) -> None:
    """Do nothing."""
