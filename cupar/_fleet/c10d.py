"""Ranks of a process group of torch.distributed: gloo for tensors on the CPU, NCCL for those on GPUs."""

from __future__ import annotations

import atexit
import ctypes
import datetime
import importlib
import itertools
import os
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, finalize, ref

import numpy as np

from .._functions import libraries
from . import nccl
from .comm import GroupError, agreed, awaited, viewed

_WATCH = 1.0  # seconds between two looks at whether a rank has failed, where the host may wait for NCCL
_POLL = 1e-3  # seconds
_NOW = datetime.timedelta(milliseconds=1)
_MISSING = b"cupar: there is no such key"


class TorchComm:
    """A process group of torch.distributed; made by `cupar.distributed.group`."""

    def __init__(self, group: Any, timeout: float) -> None:
        self._torch = importlib.import_module("torch")
        self._dist = dist = importlib.import_module("torch.distributed")
        self._timeout = datetime.timedelta(seconds=timeout)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        backend = dist.get_backend(group)
        self.transport = f"torch.distributed ({backend})"
        self._peers = [dist.get_global_rank(group, r) for r in range(self.size)]
        # PyTorch 2.13 gave it another name.
        self._all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        found = _lines.get(group)
        self._line = _Line(dist, self._peers, self._timeout) if found is None else found
        self._given = ref(group)
        self._nccl = group if backend == "nccl" else None
        if found is None:
            self._line.name(self.agree(os.urandom(8))[0].hex())
            _lines[group] = self._line

    @property
    def _talk(self) -> Any:
        """The process group by which ranks agree, on the host, which NCCL does not serve."""
        if self._line.group is None:  # which would be all ranks to PyTorch
            raise GroupError(self._line.failure)
        return self._line.group

    @property
    def _group(self) -> Any:
        """The process group that carries arrays."""
        return self._talk if self._nccl is None else self._nccl

    def _tensor(self, array: Any) -> Any:
        if isinstance(array, np.ndarray):
            return self._torch.from_numpy(array)
        found = self._torch.as_tensor(array, device="cuda")
        address = array.__cuda_array_interface__["data"][0]
        if array.size and found.data_ptr() != address:  # a copy
            raise ValueError(
                f"torch.cuda.set_device: expected the device of this rank's arrays, got {found.device}"
            )
        return found

    def _on(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context in which PyTorch enqueues on a stream."""
        if stream is None:
            return nullcontext()
        self._line.watch(self._group)
        return libraries.of("tensor", self._torch.empty(0, device="cuda")).on(stream)

    @property
    def failure(self) -> str:
        """Why ranks of this process group do not talk any more."""
        return self._line.failure

    def _done(self, works: Sequence[Any], stream: Any, timeout: Any) -> None:
        """Wait for operations: on the CPU the host, on a GPU the stream, for which there is no timeout."""
        given = (timeout,) if stream is None else ()
        try:
            for each in works:
                if each is not None:
                    each.wait(*given)
        except RuntimeError as error:
            raise GroupError(str(error).splitlines()[0]) from error

    def _waited(self, is_done: Callable[[], Any]) -> None:
        """Wait on the host, where an interrupt arrives: PyTorch's own wait lets none through."""
        seconds = self._timeout.total_seconds()
        if not awaited(is_done, seconds, self._line.look):
            raise GroupError(f"other ranks did not answer within {seconds:g} seconds")

    def _together(self, work: Any, stream: Any = None) -> None:
        """Wait for a collective operation."""
        try:
            if stream is None:
                self._waited(work.is_completed)
            self._done([work], stream, _NOW)
        except BaseException as error:
            if stream is None:
                self._line.unfinished.append(work)
            if isinstance(error, GroupError):
                self._line.look()  # a rank that has failed has said why
            raise

    def agree(self, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks."""
        torch = self._torch

        def gather(sent: Any, found: Any) -> None:
            given = torch.from_numpy(found), torch.from_numpy(sent)
            self._together(self._all_gather(*given, group=self._talk, async_op=True))

        return agreed(data, self.size, gather)

    def prepare(self) -> None:
        """Join what gathers records of GPUs, where ranks talk by NCCL; all ranks do that at once."""
        if self._nccl is not None:
            self._line.join(self)

    def gathering(self, record: Any, records: Any) -> Callable[[Any], None]:
        """Return a function of a stream that gathers records of these addresses."""
        direct = self._line.direct
        if direct is None or isinstance(record, np.ndarray):
            return partial(self.gather, record, records)
        self._line.watch(self._group)
        return direct.gathering(record, records)

    def capturing(self) -> Callable[[Callable[[int], Any]], Callable[[int], None]] | None:
        """Return a function that captures calls with gathers of records of GPUs, if that is possible."""
        direct = self._line.direct
        return None if direct is None else direct.captured

    def gather(self, record: Any, records: Any, stream: Any) -> None:
        """Gather the records of all ranks."""
        direct = self._line.direct
        if direct is not None and stream is not None:
            self._line.watch(self._group)
            direct.gather(record, records, stream)
            return
        with self._on(stream):
            given = self._tensor(records), self._tensor(record)
            self._together(self._all_gather(*given, group=self._group, async_op=True), stream)

    def exchange(self, send: Sequence[Any], recv: Sequence[Any], stream: Any) -> None:
        """Send to and receive from each rank, all at once."""
        self.exchanging([(send, recv)], stream)()

    def exchanging(
        self, columns: Sequence[tuple[Sequence[Any], Sequence[Any]]], stream: Any
    ) -> Callable[[], None]:
        """Begin to exchange several arrays with each rank, all at once; return what waits for them."""
        dist, ops = self._dist, []
        for send, recv in columns:
            for r, peer in enumerate(self._peers):
                for way, array in ((dist.isend, send[r]), (dist.irecv, recv[r])):
                    if r != self.rank and array.size:
                        ops.append(dist.P2POp(way, self._tensor(array), peer, self._group))
        if not ops:
            return lambda: None
        with self._on(stream):
            works = dist.batch_isend_irecv(ops)
        return partial(self._exchanged, works, stream)

    def _exchanged(self, works: Sequence[Any], stream: Any) -> None:
        if stream is not None:
            with self._on(stream):
                self._done(works, stream, None)
            return
        # PyTorch reports the completion of these operations only to those who wait for them.
        failed: list[GroupError] = []

        def wait() -> None:
            try:
                self._done(works, None, self._timeout)
            except GroupError as error:
                failed.append(error)

        waiter = threading.Thread(target=wait, daemon=True)
        waiter.start()
        try:
            self._waited(lambda: not waiter.is_alive())
        except BaseException:
            # A thread that comes back from PyTorch while Python ends has the process aborted. Gloo ends the
            # waits of a group, which has failed, where one of them is out of time.
            with suppress(GroupError):
                self._done(works, None, _NOW)
            waiter.join(_WATCH)
            raise
        if failed:
            self._line.look()
            raise failed[0]

    def total(self, array: Any, stream: Any) -> None:
        """Add the numbers of all ranks; of unsigned integers, which PyTorch does not add, the bits."""
        if array.dtype.kind == "u" and array.dtype.itemsize > 1:
            array = viewed(array, np.dtype(f"i{array.dtype.itemsize}"))
        with self._on(stream):
            self._together(
                self._dist.all_reduce(self._tensor(array), group=self._group, async_op=True), stream
            )

    def abort(self, why: str) -> None:
        """Have the other ranks raise soon. What NCCL has enqueued, which would wait for ever, is aborted.

        PyTorch can do that from 2.7 on.
        """
        self._line.end(why)
        self._line.leave()
        given = self._given()
        if given is not None and _lines.get(given) is self._line:
            del _lines[given]  # the next group begins anew
        if self._nccl is not None:
            with suppress(Exception):
                self._nccl.abort()

    def store(self) -> MutableMapping[str, bytes] | None:
        """Return the group's store as one for builds, None if it is unavailable."""
        found = _store(self._dist)
        return None if found is None else StoreMapping(found)


class _Line:
    """A group of gloo of the same ranks for cupar alone: what fails there leaves the given one as it is.

    A rank that fails writes the reason to PyTorch's store, which waiting ranks poll.
    """

    def __init__(self, dist: Any, ranks: list[int], timeout: datetime.timedelta) -> None:
        try:
            self.group: Any = dist.new_group(
                ranks, backend="gloo", use_local_synchronization=True, timeout=timeout
            )
        except RuntimeError as error:
            raise GroupError(f"torch.distributed: no group: {str(error).splitlines()[0]}") from error
        self._store, self._key, self.failure, self._is_watched = _store(dist), "", "", False
        self._timeout = timeout.total_seconds()
        self.direct: nccl.Communicator | None = None
        self._has_joined = False
        self.unfinished: list[Any] = []

    def join(self, comm: TorchComm) -> None:
        """Make a communicator of NCCL for records."""
        if not self._has_joined:
            self._has_joined = True
            self.direct = nccl.joined(comm.rank, comm.size, comm.agree, comm._waited)

    def name(self, name: str) -> None:
        """Set the name that ranks have agreed on."""
        self._key = f"cupar-failed:{name}"

    def leave(self) -> None:
        """Leave the process group: its connections end when PyTorch's user has it destroyed."""
        if self.group is not None:
            _unfinished.append(self.unfinished)
            finalize(self.group, _finish, self.unfinished).atexit = False
            self.group = None

    def look(self) -> None:
        """Raise `GroupError` if a rank has failed."""
        with suppress(RuntimeError):  # the store's process may be the one that has died
            self._read()
        if self.failure:
            raise GroupError(self.failure)

    def _read(self) -> None:
        if self._key and self._store is not None and self._store.check([self._key]):
            self.failure = self._store.get(self._key).decode(errors="replace")

    def watch(self, group: Any) -> None:
        """Look from now on, in a thread, if a rank has failed, and abort what NCCL has enqueued then.

        The host may be waiting for that, and cannot look itself.
        """
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(target=_watch, args=(ref(self), ref(group)), daemon=True).start()

    def is_over(self) -> bool:
        """Whether there is nothing to watch for: a rank has failed, or the store's process has ended."""
        why = "" if self.direct is None else self.direct.failed(self._timeout)
        if why:
            self.end(why)
        try:
            self._read()
        except RuntimeError:
            return self.direct is None
        return bool(self.failure)

    def end(self, why: str) -> None:
        """Publish why this rank fails, unless another one has failed before."""
        if not self.failure:
            self.failure = why
            with suppress(RuntimeError):
                if self._key and self._store is not None:
                    self._store.compare_set(self._key, "", why)
        if self.direct is not None:
            self.direct.abort()


def _watch(line: ref[_Line], group: ref[Any]) -> None:
    while True:
        time.sleep(_WATCH)
        watched, given = line(), group()
        if watched is None or given is None:
            return
        if watched.is_over():
            if watched.failure:
                watched.end(watched.failure)
                with suppress(Exception):
                    given.abort()
            return


# By the lines that ranks have left, operations that others had yet to join. If the thread of gloo that ends
# one is the last to know it, it takes Python's lock to free the tensors, and has an ending process aborted.
_unfinished: list[list[Any]] = []


def _finish(works: list[Any]) -> None:
    """Wait for operations, as PyTorch is about to do, and free their connections, for which others wait."""
    for each in works:
        while not each.is_completed():
            time.sleep(_POLL)
    works.clear()
    _unfinished[:] = [each for each in _unfinished if each is not works]


@atexit.register
def _keep_unfinished() -> None:
    for work in itertools.chain(*_unfinished):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(work))


# By the process group, its companions.
_lines: WeakKeyDictionary[Any, _Line] = WeakKeyDictionary()


def _store(dist: Any) -> Any:
    try:
        return dist.distributed_c10d._get_default_store()
    except (AttributeError, ValueError, RuntimeError):
        return None


class StoreMapping(MutableMapping[str, bytes]):
    """A store of torch.distributed, such as a TCPStore, as a mapping for `cupar.use_shared`.

    Whoever reaches the store can write code that others run, unless entries are signed
    (``CUPAR_SIGNING_KEY``). Its names cannot be listed.

    Parameters
    ----------
    store : torch.distributed.Store
    prefix : str, optional
        Prefix of its keys.
    """

    __module__ = "cupar.distributed"

    def __init__(self, store: Any, prefix: str = "cupar:") -> None:
        self._store, self._prefix = store, prefix

    def __getitem__(self, key: str) -> bytes:
        # `get` waits for a key that another client has deleted since it was seen.
        found: bytes = self._store.compare_set(self._prefix + key, _MISSING, _MISSING)
        if found == _MISSING:
            raise KeyError(key)
        return found

    def __setitem__(self, key: str, value: bytes) -> None:
        self._store.set(self._prefix + key, bytes(value))

    def __delitem__(self, key: str) -> None:
        if not self._store.delete_key(self._prefix + key):
            raise KeyError(key)

    def setdefault(self, key: str, default: Any = None) -> bytes:
        """Set a key unless it exists, and return its value, atomically."""
        found: bytes = self._store.compare_set(self._prefix + key, "", bytes(default))
        return found

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0
