"""Groups of ranks: their engine, and their agreement before anything runs."""

from __future__ import annotations

import json
import os
import struct
import sys
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _cache
from .._base.digests import sha256
from .comm import ASTRAY, WHOLE, Alone, Comm, GroupError, is_on_all, on_all, raw
from .replay import Replays

P = ParamSpec("P")
T = TypeVar("T")

_Exchange = tuple[Sequence[Any], Sequence[Any]]  # arrays to send to each rank, and arrays to receive into
_SIZE = "size"
_TEXT = 32  # bytes of an initial value's text, or of its digest
_SHOWN = 4  # ranks that a message names, of those that mean the same
_WAITING = struct.Struct("<cI")  # the message of a rank that waits for all: a sign, and its calls' checksum
_SIGN = b"="
_OF_COMM = (*Comm.__annotations__, *(name for name in vars(Comm) if name[0] != "_"))  # what a Comm has
_KNOWN = 256  # calls that are known since ranks last agreed


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
        self.made: int = 0  # the number of objects
        self._digest, self._gathers = bytes(8), 0  # of the last one: its description, and its gathers
        self._alike: Mapping[str, Any] = {}  # what all ranks give to the call that gathers next
        # Calls: a checksum, and since ranks last agreed, their number, and of each the object, and what was
        # given to it on devices, where the host would have to wait to compare that.
        self._noted, self._calls, self._notes = 0, 0, deque[bytes](maxlen=_KNOWN)

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

    def fail(self, error: BaseException) -> None:
        """End the group, as this rank has an error in a call of all; the others raise soon.

        Nothing ends if they all raise the error, know it, or there are none.
        """
        if self.size > 1 and not self._failure and not is_on_all(error) and self._process == os.getpid():
            self._end(f"rank {self.rank} raised {_text(error)}")

    def _end(self, why: str) -> None:
        self._failure = why
        abort = getattr(self.comm, "abort", None)
        if abort is not None:
            abort(why)

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
        prepare = getattr(self.comm, "prepare", None)
        if prepare is not None:
            self._ask(prepare)

    def gathering(self, record: Any, records: Any) -> Callable[[Any], None]:
        """Return what gathers records of these places, given a stream; prepared once, if that is possible."""
        given = raw(record), raw(records)
        if isinstance(record, np.ndarray) and self.size > 1:
            return self._tagged(*given)
        make = getattr(self.comm, "gathering", None)
        return partial(self.gather, *given) if make is None else partial(self._ask, make(*given))

    def begin(self, facts: Mapping[str, str]) -> None:
        """Begin to make an object that ranks agree on by some facts: its records differ from others'."""
        self._digest = sha256(json.dumps(facts, sort_keys=True).encode()).digest()[:8]
        self.made, self._gathers = self.made + 1, 0

    def _tagged(self, record: Any, records: Any) -> Callable[[Any], None]:
        """Return what gathers records on the host, and raises if they are of different objects."""
        self._gathers += 1
        tag = np.frombuffer(self._digest + struct.pack("<ii", self.made, self._gathers), np.uint8)
        begin, end = len(tag), len(tag) + _TEXT
        last = end + len(record)
        sent = np.zeros(-(-last // WHOLE) * WHOLE, np.uint8)
        sent[:begin] = tag
        found, all_records = np.zeros((self.size, len(sent)), np.uint8), records.reshape(self.size, -1)

        def gather(stream: Any) -> None:
            alike, self._alike = self._alike, {}
            sent[begin:end] = np.frombuffer(_fixed(", ".join(map(str, alike.values()))), np.uint8)
            sent[end:last] = record
            self.gather(sent, found.reshape(-1), stream)
            if (found[:, :begin] != tag).any():
                raise self._astray()
            if (found[:, begin:end] != sent[begin:end]).any():
                texts = [each[begin:end].tobytes().rstrip(b"\0").decode() for each in found]
                _check_same([{", ".join(alike) or "h_init": each} for each in texts])
            all_records[...] = found[:, end:last]

        return gather

    def begin_with(self, alike: Mapping[str, Any]) -> None:
        """Have the next gather of records on the host compare what its call was given, too."""
        self._alike = alike

    def note(self, call: bytes) -> None:
        """Have ranks compare a call when they agree the next time."""
        self._noted = zlib.crc32(call, self._noted)
        self._calls += 1
        self._notes.append(call)

    def replays(
        self, enqueue: Callable[..., Any], described: Callable[[Sequence[Any]], bytes]
    ) -> Replays | None:
        """Return what captures calls that repeat, where the transport's gathers can be captured."""
        capturing = getattr(self.comm, "capturing", lambda: None)()
        return None if capturing is None else Replays(capturing, enqueue, described)

    def replay(self, graph: Callable[[int], None], call: bytes, stream: int) -> None:
        """Enqueue a call that was captured."""
        self.note(call)
        self._ask(graph, stream)

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
        return lambda: None

    def total(self, array: Any, stream: Any = None) -> None:
        """Add numbers: `Comm.total`."""
        if array.size:
            self._ask(self.comm.total, array, stream)

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
        own = ({"algorithm": what} if what else {}) | facts | {_SIZE: int(number)}
        found = self.told(own, what, error)
        _check_same(found)
        return [each[_SIZE] for each in found]

    def synchronize(self) -> None:
        """Wait for all ranks.

        Raises
        ------
        GroupError
            If one of them has failed, or does not come in time.
        ValueError
            If ranks have given a call on GPUs another initial value, level or number of values.
        """
        answers = self.agree(_WAITING.pack(_SIGN, self._noted))
        if not all(map(_is_waiting, answers)):
            raise self._astray()
        self._check_calls([_WAITING.unpack(each)[1] for each in answers])

    def _check_calls(self, noted: Sequence[int]) -> None:
        """Raise on all ranks if they made other calls, or gave something else to those on devices."""
        calls, notes = self._calls, [each.decode() for each in self._notes]
        self._calls = 0
        self._notes.clear()
        if len({*noted}) == 1:
            return
        self._noted = 0
        found = [json.loads(each) for each in self.agree(json.dumps([calls, notes]).encode())]
        if len({number for number, _ in found}) > 1:
            raise self._astray()
        for same in zip(*(texts for _, texts in found), strict=True):
            objects, facts, waits = zip(*map(json.loads, same), strict=True)
            if len({*objects}) > 1:
                raise self._astray()
            try:
                _check_same(facts)
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
        _check_same(self.told({"algorithm": what, **facts}, what, error))

    def told(self, own: Any, what: str = "", error: Exception | None = None) -> list[Any]:
        """Return the messages of all ranks; if one has an error instead, raise on all."""
        said = "" if error is None else _text(error)
        answers = self.agree(json.dumps([own, said, self._noted]).encode())
        if any(map(_is_waiting, answers)):
            raise self._astray() from error
        found = [json.loads(each) for each in answers]
        if error is not None:
            raise on_all(error)
        for rank, (_, failure, _) in enumerate(found):
            if failure:
                raise on_all(GroupError(f"{what or self.transport}: rank {rank} raised {failure}"))
        self._check_calls([noted for *_, noted in found])
        return [each for each, *_ in found]

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

    @contextmanager
    def building(self) -> Iterator[None]:
        """Share builds within the block through the group's store, unless there is a shared store already."""
        found = getattr(self.comm, "store", lambda: None)() if self.size > 1 else None
        with _cache.lent(found):
            yield


def _is_waiting(said: bytes) -> bool:
    return len(said) == _WAITING.size and said[:1] == _SIGN


def _fixed(text: str) -> bytes:
    """Return a text of any length in as many bytes as all have."""
    found = text.encode()
    found = found if len(found) <= _TEXT else sha256(found).hexdigest()[:_TEXT].encode()
    return found.ljust(_TEXT, b"\0")


def _check_same(facts: Sequence[Mapping[str, str]]) -> None:
    """Raise ValueError if ranks differ in a fact, but for the sizes of shards."""
    names = dict.fromkeys(name for each in facts for name in each if name != _SIZE)
    # What all ranks mention comes first: those that are in different calls have some facts alone.
    for name in sorted(names, key=lambda name: any(name not in each for each in facts)):
        ranks: dict[str, list[int]] = {}
        for rank, each in enumerate(facts):
            ranks.setdefault(each.get(name, "none"), []).append(rank)
        if len(ranks) > 1:
            said = "; ".join(f"{_ranks_text(those)}: {value}" for value, those in ranks.items())
            raise on_all(ValueError(f"ranks differ in {name}: {said}"))


def _text(error: BaseException) -> str:
    """Return an error in one line, for other ranks."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")


def _ranks_text(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"


def _check_in(is_in: bool) -> None:
    if not is_in:
        raise ValueError("group: expected ranks of which this one is, got a process group that it is not in")


def threads(size: int, timeout: float = 300) -> list[Group]:
    """Return the ranks of a new group of threads of this process: each thread uses one of them.

    Parameters
    ----------
    size : int
        How many ranks there are.
    timeout : float, optional
        Seconds that a rank waits for the others.

    Returns
    -------
    list of Group

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np
    >>> from cupar import distributed
    >>> shards = [np.array([3, 1]), np.array([4]), np.array([1, 5])]
    >>> def largest(group):
    ...     shard, out = shards[group.rank], np.zeros(1, np.int64)
    ...     distributed.reduce_into(shard, out, max, 0, group=group).run(shard, out, len(shard), 0)
    ...     return int(out[0])
    >>> with ThreadPoolExecutor(3) as pool:
    ...     print(list(pool.map(largest, distributed.threads(3))))
    [5, 5, 5]
    """
    from .threads import comms

    if size < 1:
        raise ValueError(f"size: expected at least 1, got {size}")
    return [Group(comm, timeout) for comm in comms(size, timeout)]


def group(engine: Any = None, timeout: float = 300) -> Group:
    """Return the ranks that work together, as an engine has started them.

    Parameters
    ----------
    engine : ProcessGroup, mpi4py communicator, Comm or None
        None: PyTorch's default process group if there is one, else MPI's world if mpi4py has initialised it,
        else this process alone. A `Group` is returned as it is.
    timeout : float, optional
        Seconds that a rank waits for the others, before it raises `GroupError`.

    Returns
    -------
    Group

    Raises
    ------
    TypeError
        If it is not one of these.
    ValueError
        If the rank of a Comm is not below its size, this process is not in the process group, or the timeout
        is not positive.

    Notes
    -----
    With a process group of PyTorch, builds are shared through its store: one rank builds, the others fetch.
    Whoever reaches that store can write code that all ranks run; ``CUPAR_SIGNING_KEY`` has entries signed.

    Examples
    --------
    >>> from cupar import distributed
    >>> distributed.group()
    <cupar group: rank 0 of 1, one rank>
    """
    if isinstance(engine, Group):
        return engine
    if not timeout > 0:
        raise ValueError(f"timeout: expected more than 0 seconds, got {timeout}")
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available():
        if engine is None and dist.is_initialized():
            engine = dist.group.WORLD
        _check_in(engine is not dist.GroupMember.NON_GROUP_MEMBER)
        if isinstance(engine, dist.ProcessGroup):
            from .c10d import TorchComm

            return Group(TorchComm(engine, timeout), timeout)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None:
        if engine is None and mpi.Is_initialized() and not mpi.Is_finalized():
            engine = mpi.COMM_WORLD
        if isinstance(engine, mpi.Comm):
            _check_in(engine != mpi.COMM_NULL)
            from .mpi import MPIComm

            return Group(MPIComm(engine, timeout), timeout)
    if engine is None:
        return Group(Alone(), timeout)
    missing = [name for name in _OF_COMM if not hasattr(engine, name)]
    if not missing:
        rank, size = engine.rank, engine.size
        if not all(isinstance(each, (int, np.integer)) for each in (rank, size)) or not 0 <= rank < size:
            raise ValueError(
                f"group: expected a Comm with a rank from 0 to size - 1, got rank {rank!r} and size {size!r}"
            )
        return Group(engine, timeout)
    hint = f", which has no {', '.join(missing)}, as a Comm has" if hasattr(engine, "agree") else ""
    raise TypeError(
        "group: expected a process group of torch.distributed, a communicator of mpi4py, a Group, a Comm or "
        f"None, got {type(engine).__name__}{hint}"
    )


def collective(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that ranks call together: if one gives too few arguments, say, all are told."""

    @wraps(function)
    def called(*given: P.args, **named: P.kwargs) -> T:
        try:
            return function(*given, **named)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # it was not entered
                group(named.get("group")).compare(function.__name__, {}, error)
            raise

    return called
