"""The protocol of an engine: the rank, the number of ranks, and four ways to communicate."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from ctypes import c_size_t, c_ubyte, c_uint64, c_void_p
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from .._device import driver
from ..host import View


class GroupError(RuntimeError):
    """Ranks of a group could not talk: one has died, has not called in time, or raised an error."""

    __module__ = "cupar.distributed"


@runtime_checkable
class Comm(Protocol):
    """The transport between the ranks of a group, for engines of your own.

    Arrays have one dimension and lie in one piece: NumPy's on the CPU, otherwise objects with
    ``__cuda_array_interface__``. Those of `gather` and `exchange` are of bytes (uint8), at any address. All
    ranks call the same methods in the same order. On a device, methods enqueue their work on `stream`, a
    handle, or done when it returns; `stream` is None on the CPU.

    A method raises if the other ranks do not answer, in time or at all.

    A transport may have a fifth method, ``abort(why)``. It is called when this rank cannot go on; the methods
    of the other ranks then raise `GroupError` with that text, soon. Without it they wait for their timeout.

    Attributes
    ----------
    rank, size : int
        This rank's number, and the number of ranks.
    transport : str
        Its name, as in ``"torch.distributed (gloo)"``.
    """

    rank: int
    size: int
    transport: str

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in rank order. Used to set up, and for sizes."""

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Write the records of all ranks, which have one size, to `records`, in rank order."""

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Send an array to each rank, and receive one from each; some are empty, and always the own one."""

    def total(self, array: Any, stream: Any) -> None:
        """Replace numbers by their sums over all ranks."""


E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

# Messages of gathers on the host have a multiple of this as their size. Ranks in different calls would send
# ones of different sizes, with which gloo ends the process; as it is, they read what the others' begin with.
WHOLE = 256
ASTRAY = "ranks are not in the same call: some have left it, or not called"
_AGREES, _LENGTH = b"cupar-agrees-001", 8

_PAUSES = 1e-5, 1e-3  # seconds between polls, the first and the longest
_LOOKS = 0.02, 1.0  # seconds between two looks at whether another rank has failed


def on_all(error: E) -> E:
    """Mark an error that all ranks raise: no other has to be told."""
    error.__dict__["_on_all"] = True
    return error


def is_on_all(error: BaseException) -> bool:
    """Whether all ranks raise an error."""
    return bool(error.__dict__.get("_on_all"))


def attempted(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return the result of a call, or its error, which other ranks are to be told."""
    try:
        return call(), None
    except Exception as error:
        return None, error


def awaited(is_done: Callable[[], Any], timeout: float, look: Callable[[], None]) -> bool:
    """Wait on the host, where an interrupt arrives; return whether it is done in time.

    `look` raises if another rank has failed. The longer it has taken, the rarer are looks.
    """
    begin, pause, waited_for, next_look = time.monotonic(), _PAUSES[0], 0.0, _LOOKS[0]
    while not is_done():
        if waited_for >= next_look:
            look()
            next_look = waited_for + min(max(waited_for / 4, _LOOKS[0]), _LOOKS[1])
        if waited_for > timeout:
            return False
        time.sleep(pause)
        pause = min(2 * pause, _PAUSES[1])
        waited_for = time.monotonic() - begin
    return True


def agreed(data: bytes, size: int, gather: Callable[[_Bytes, _Bytes], None]) -> list[bytes]:
    """Return the bytes of all ranks, by gathers of arrays of one size; the first one is often enough.

    Raises
    ------
    GroupError
        If another rank gathers something else.
    """
    sent, found = np.zeros(WHOLE, np.uint8), np.zeros((size, WHOLE), np.uint8)
    begin = len(_AGREES) + _LENGTH
    sent[:begin] = np.frombuffer(_AGREES + len(data).to_bytes(_LENGTH, "little"), np.uint8)
    here = np.frombuffer(data[: WHOLE - begin], np.uint8)
    sent[begin : begin + len(here)] = here
    gather(sent, found.reshape(-1))
    if (found[:, : len(_AGREES)] != sent[: len(_AGREES)]).any():
        raise on_all(GroupError(ASTRAY))
    lengths = [int.from_bytes(each[len(_AGREES) : begin].tobytes(), "little") for each in found]
    most = max(lengths)
    if most > WHOLE - begin:
        sent = np.zeros(most, np.uint8)
        sent[: len(data)] = np.frombuffer(data, np.uint8)
        found, begin = np.zeros((size, most), np.uint8), 0
        gather(sent, found.reshape(-1))
    return [each[begin : begin + length].tobytes() for each, length in zip(found, lengths, strict=True)]


class Alone:
    """A group of one rank."""

    rank, size, transport = 0, 1, "one rank"

    def agree(self, data: bytes) -> list[bytes]:
        """Return this rank's own message."""
        return [data]

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Copy the record."""
        copied(record, records, stream)

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Do nothing: this is the only rank."""

    def total(self, array: Any, stream: Any) -> None:
        """Leave numbers as they are."""


class ThroughHost:
    """A transport of memory of the host, by which arrays of devices go, too: they are copied.

    Its `_gather`, `_exchange` and `_total` take arrays as a `Comm` does, and are done when they return.
    """

    _takes_devices = False  # nothing has to be copied
    _gather: Callable[[Any, Any], None]
    _exchange: Callable[[Sequence[Any], Sequence[Any]], None]
    _total: Callable[[Any], None]

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Gather the records of all ranks."""
        self._copied([record], [records], stream, lambda sent, found: self._gather(sent[0], found[0]))

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Send to and receive from each rank."""
        self._copied(send, recv, stream, self._exchange)

    def total(self, array: Any, stream: Any) -> None:
        """Add the numbers of all ranks."""
        given = [array if stream is None or self._takes_devices else raw(array)]

        def talk(_: Any, found: Any) -> None:
            self._total(array if found is given else found[0].view(array.dtype))

        self._copied(given, given, stream, talk)

    def _copied(
        self, read: Sequence[Any], written: Sequence[Any], stream: Any, talk: Callable[[Any, Any], None]
    ) -> None:
        """Talk of arrays on the host. One that is read and written has one copy."""
        if stream is None or self._takes_devices:
            if stream is not None:
                waited(stream)
            talk(read, written)
            return
        hosts = {id(each): np.empty(each.nbytes, np.uint8) for each in (*read, *written)}
        for each in read:
            copied(each, hosts[id(each)], stream)
        waited(stream)
        talk(*([hosts[id(each)] for each in those] for those in (read, written)))
        for each in written:
            copied(hosts[id(each)], each, stream)
        waited(stream)  # before the host's memory goes


def raw(array: Any) -> Any:
    """Return the bytes of an array, in the same memory."""
    return viewed(array.reshape(-1) if isinstance(array, np.ndarray) else array, np.dtype(np.uint8))


def viewed(array: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array of one dimension as one of another dtype, in the same memory."""
    if isinstance(array, np.ndarray):
        return array.view(dtype)
    size = dtype.itemsize
    return View(array.address, dtype, (array.nbytes // size,), (size,), array.writable, array)


def copied(source: Any, target: Any, stream: Any) -> None:
    """Copy bytes, of the host or of any device; on devices, enqueue that."""
    if isinstance(source, np.ndarray) and isinstance(target, np.ndarray):
        target[...] = source
    elif source.nbytes:
        places = c_void_p(_address(target)), c_void_p(_address(source))
        driver.call("cuMemcpyAsync", *places, c_size_t(source.nbytes), c_void_p(stream or 0))


def cleared(array: Any, stream: Any) -> None:
    """Set bytes to zero; on devices, enqueue that."""
    if isinstance(array, np.ndarray):
        raw(array)[...] = 0
    else:
        place, size = c_uint64(array.address), c_size_t(array.nbytes)
        driver.call("cuMemsetD8Async", place, c_ubyte(0), size, c_void_p(stream or 0))


def waited(stream: Any) -> None:
    """Wait for a stream; None: for nothing, on the CPU."""
    driver.call("cuStreamSynchronize", c_void_p(stream or 0))


def _address(array: Any) -> int:
    found: int = array.ctypes.data if isinstance(array, np.ndarray) else array.address
    return found
