"""A store that many machines share: entries under names, and one build among its clients.

The store is a mapping of str to bytes, such as fsspec makes of a bucket or a directory. In it::

    v1/<first 2 hex of the key>/<key>    a sealed entry
    v1/lease/<key>                       while the entry is being made: its maker

The client that makes an entry holds its lease, a random token and a number that goes up all the time. No
clock is compared between machines: those that wait watch the lease by their own clock, and take over when it
has stood still for `LEASE` seconds, because its holder is dead then. A free lease goes to exactly one where
the mapping's ``setdefault`` is atomic, as that of `RedisMapping` is. Where it is not, and when a dead
client's lease is taken over, two clients may in rare cases both believe they hold it, and then both make the
entry: work done twice, never a wrong entry.

A store is only as good as the network to it. So each operation runs in a daemon thread and has a
bounded time; one that fails is said once, and the store is left alone for `REST` seconds. So is one that
answers with something else than it was given: no bytes, leases that are not leases or not what was written,
one damaged entry after another. A client that waited in vain for a lease waits for no other one for so long.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from .._base.errors import RefusedError
from .._base.warnings import warn_once
from .._base.words import counted
from .entry import FORMAT, Entry, encode, is_key, meaning_of, seal, unseal
from .locks import Deadline
from .opened import REST, RecentFailures
from .remotes import LEASES

LEASE = 10.0  # seconds for which a lease must stand still before another client takes it over
_MOST_DAMAGED = 3  # entries, one after another, of a store that is used
_SETTLE_SECONDS = 0.02  # at least; see _Lease.take
_WAITING = "wait for other clients"
_FIRST_PAUSE, _LAST_PAUSE = 0.01, 0.25  # seconds between two looks at what another client makes
T = TypeVar("T")


# --- Operations that may fail --------------------------------------------------------------------------


class _UnavailableError(Exception):
    """An operation of the store failed; the message names it, and the cause."""


class _StoreErrors:
    """Lets operations through to a store, and none for a while after one failed here or at `outer`.

    `purpose` says what they do, as in ``read the store``.
    """

    def __init__(self, purpose: str, resting: RecentFailures, outer: _StoreErrors | None = None) -> None:
        self._purpose = purpose
        self._resting = resting
        self._outer = outer

    def ask(self, operation: Callable[[], T], timeout: float) -> T:
        """Return the result of an operation, unless it fails or takes longer than `timeout` seconds.

        It runs in a daemon thread: one that never ends must not keep the interpreter from ending.
        """
        for guard in (self, self._outer):
            why = None if guard is None else self._resting.get(guard._purpose)
            if why is not None:
                raise _UnavailableError(why)
        answers: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

        def run() -> None:
            try:
                answers.put((operation(),))
            except BaseException as error:
                answers.put(error)

        try:
            threading.Thread(target=run, name="cupar-shared", daemon=True).start()
            answer = answers.get(timeout=timeout)
        except Empty:
            why = f"it did not answer in {counted(timeout, 'second')} (CUPAR_SHARED_TIMEOUT)"
            raise self.failed(why) from None
        except RuntimeError as error:  # no more threads, or the interpreter is shutting down
            raise self.failed(str(error)) from error
        if isinstance(answer, BaseException):
            raise self.failed(_words(answer)) from answer
        return answer[0]

    def failed(self, why: str) -> _UnavailableError:
        """Let nothing through for a while; return the error that says why."""
        reason = f"{self._purpose}: {why}"
        self._resting[self._purpose] = reason
        return _UnavailableError(reason)


def _words(error: BaseException) -> str:
    """Return the text of a client's error, if it has one."""
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:
        return name


class _Store:
    """A client's operations on a mapping; each method answers in time or raises `_UnavailableError`.

    Entries are read under a guard of their own: a store that cannot be written is still read, and one that
    cannot be read is not written.
    """

    def __init__(
        self, mapping: MutableMapping[str, bytes], reads: _StoreErrors, writes: _StoreErrors, timeout: float
    ) -> None:
        self.mapping = mapping
        self.timeout = min(timeout, threading.TIMEOUT_MAX)
        self.reads = reads
        self._writes = writes

    def load(self, name: str) -> bytes | None:
        return self.reads.ask(lambda: _answered(self.mapping.get(name)), self.timeout)

    def put(self, name: str, value: bytes) -> None:
        self._writes.ask(lambda: self.mapping.__setitem__(name, value), self.timeout)

    def lease(self, name: str) -> bytes | None:
        return self._writes.ask(lambda: _answered(self.mapping.get(name)), self.timeout)

    def claim(self, name: str, value: bytes) -> bytes | None:
        """Put a lease there unless one exists, and return the one there."""
        return self._writes.ask(lambda: _answered(self.mapping.setdefault(name, value)), self.timeout)

    def names(self) -> list[str]:
        names = self.reads.ask(lambda: [*self.mapping], self.timeout)
        keys = [(each[-64:], each) for each in names if isinstance(each, str)]
        return sorted(key for key, name in keys if is_key(key) and name == _entry_name(key))

    def remove(self, name: str) -> None:
        def delete() -> None:
            with suppress(KeyError):
                del self.mapping[name]

        self._writes.ask(delete, self.timeout)


def _answered(value: object) -> bytes | None:
    """Return a value as the store has it; anything but bytes is unusable."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"the store should return bytes and returned {type(value).__name__}")


_LEASE_FORM = re.compile(rb"cupar-lease [!-~]{1,100} [0-9]{1,20}")


def _is_lease(value: bytes) -> bool:
    return _LEASE_FORM.fullmatch(value) is not None


# --- Leases --------------------------------------------------------------------------------------------


class _Lease:
    """One client's bid for the right to make the entry under a key."""

    def __init__(self, store: _Store, key: str) -> None:
        self._store = store
        self._name = LEASES + key
        self._token = b"cupar-lease %s " % os.urandom(16).hex().encode()
        self._count = 0
        self._pid = os.getpid()
        self._seen: bytes | None = None  # another client's lease, and since when it has stood still
        self._since = 0.0
        self._thread: threading.Thread | None = None
        self.held = False

    def take(self) -> bool:
        """Try to get the lease, free or a dead client's; return whether this client has it."""
        begin = time.monotonic()
        found = self._store.claim(self._name, self._value())
        takes_over = found is None or not _is_lease(found) or self._stands_still(found)
        if takes_over:
            self._store.put(self._name, self._value())
        elif not self._is_mine(found):
            return False
        # Others may have seen what this client saw, and be about to write. That takes them about what it took
        # here; then see whose lease is there.
        time.sleep(min(max(_SETTLE_SECONDS, 2 * (time.monotonic() - begin)), LEASE / 4))
        now = self._store.lease(self._name)
        self.held = now is None or self._is_mine(now)
        if now is not None and (not _is_lease(now) or (takes_over and now == found)):
            raise self._store.reads.failed("it returns something else than what was written to it")
        return self.held

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Keep the lease moving while the block runs, then give it back."""
        done = threading.Event()
        thread = threading.Thread(target=self._renew, args=(done,), name="cupar-lease", daemon=True)
        with suppress(RuntimeError):  # no more threads: others may take over
            thread.start()
            self._thread = thread
        try:
            yield
        finally:
            done.set()
            self.give_back()

    def give_back(self) -> None:
        """Remove the lease, if it is still there and this client's, and the store lets it."""
        with suppress(_UnavailableError):
            # A child that was forked meanwhile leaves its parent's lease alone.
            if os.getpid() == self._pid and self._is_mine(self._store.lease(self._name)):
                if self._thread is not None:
                    self._thread.join(self._store.timeout)  # it may be about to renew what goes here
                self._store.remove(self._name)

    def _renew(self, done: threading.Event) -> None:
        mapping = self._store.mapping  # not under the guard: this thread may hang and fail as it likes
        while not done.wait(LEASE / 4):
            with suppress(Exception):
                found = mapping.get(self._name)
                if done.is_set() or not (found is None or self._is_mine(found)):
                    return
                self._count += 1
                mapping[self._name] = self._value()

    def _value(self) -> bytes:
        return self._token + b"%d" % self._count

    def _is_mine(self, found: bytes | None) -> bool:
        return found is not None and found.startswith(self._token)

    def _stands_still(self, found: bytes) -> bool:
        now = time.monotonic()
        if found != self._seen:
            self._seen, self._since = found, now
        return now - self._since >= LEASE


# --- Shared --------------------------------------------------------------------------------------------


class Shared:
    """Entries in a store that other machines, and several threads, use at the same time.

    `name` is what warnings call it, `timer` what tells how long it is left alone.
    """

    def __init__(
        self, mapping: MutableMapping[str, bytes], name: str, timer: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._mapping = mapping
        self._resting = RecentFailures(timer, REST)
        self._reads = _StoreErrors(f"read the shared store {name}", self._resting)
        self._writes = _StoreErrors(f"write to the shared store {name}", self._resting, self._reads)
        self._damaged: set[str] = set()  # keys of damaged entries, since the last good one
        self._names: tuple[float, list[str]] | None = None  # until when they hold, and the keys of all

    def fetch(
        self,
        key: str,
        make: Callable[[], Entry],
        *,
        timeout: float,
        deadline: Deadline,
        secret: bytes | None,
        replace: bool = False,
    ) -> tuple[Entry, bool]:
        """Return the entry under `key`, or make it while other clients wait for it; and whether it was made.

        One operation of the store may take `timeout` seconds; another client that makes the entry has until
        the deadline. With a secret, entries are signed, and refused if they are not. With `replace`, the
        entry there is known to be unusable, and is made again. Exceptions of `make` leave no lease behind.
        """
        store = _Store(self._mapping, self._reads, self._writes, timeout)
        found, lease, start = None, None, time.perf_counter()
        if not replace:
            with self._failures_told():
                found, lease = self._entry_or_lease(store, key, secret, deadline.left)
        deadline.waited_since(start)
        if found is not None:
            return found, False
        with nullcontext() if lease is None else lease.renewed():
            entry = make()
            self.put(key, entry, timeout=timeout, secret=secret)
        return entry, True

    def put(self, key: str, entry: Entry, *, timeout: float, secret: bytes | None) -> None:
        """Write an entry under `key`, replacing the one there."""
        store = _Store(self._mapping, self._reads, self._writes, timeout)
        data = seal(encode(key, entry), key, secret)
        with self._failures_told():
            store.put(_entry_name(key), data)

    def find(self, key: str, *, timeout: float, secret: bytes | None) -> Entry | None:
        """Return a usable entry under `key`, None without one; this waits for no other client."""
        found: Entry | None = None
        with self._failures_told():
            found, _ = _look(_Store(self._mapping, self._reads, self._writes, timeout), key, secret)
        return found

    def alike(self, key: str, *, timeout: float) -> list[str]:
        """Return the keys of entries equivalent to one under `key`, made by any versions of the compilers.

        For that, all names in the store are listed, now and then.
        """
        keys: list[str] = []
        if self._names is not None and time.monotonic() <= self._names[0]:
            keys = self._names[1]
        else:
            store = _Store(self._mapping, self._reads, self._writes, timeout)
            with self._failures_told():
                keys = store.names()
                self._names = time.monotonic() + REST, keys
        wanted = meaning_of(key)
        return [each for each in keys if meaning_of(each) == wanted]

    def _entry_or_lease(
        self, store: _Store, key: str, secret: bytes | None, wait: float
    ) -> tuple[Entry | None, _Lease | None]:
        """Wait until there is the entry or this client may make it; neither if the time is up before."""
        lease = _Lease(store, key)
        deadline = time.monotonic() + (wait if self._resting.get(_WAITING) is None else 0)
        entry: Entry | None = None
        refusal: str | None = None

        def is_settled() -> bool:
            nonlocal entry, refusal
            while True:
                entry, refusal = _look(store, key, secret)
                if entry is not None or lease.held:
                    return True
                if not lease.take():
                    return False
                # The client that had it before may just have stored the entry: look again.

        def is_settled_in_time() -> bool:
            pause = _FIRST_PAUSE
            while (left := deadline - time.monotonic()) > 0:
                time.sleep(min(left, pause * random.uniform(0.5, 1)))
                pause = min(2 * pause, _LAST_PAUSE)
                if is_settled():
                    return True
            return False

        if not is_settled():
            from .._base import progress

            if not progress.waiting("another machine", is_settled_in_time):
                self._resting[_WAITING] = "in vain"
                warn_once(
                    "timeout",
                    f"Another client of the shared store {self.name} has been building what this one needs "
                    f"for {counted(wait, 'second')}. cupar builds it here without waiting any longer "
                    "(CUPAR_LOCK_TIMEOUT).",
                )
        if entry is not None:
            self._damaged.clear()
            if lease.held:
                lease.give_back()
            return entry, None
        if refusal is not None:
            # Not at the first look: while another client writes, half an entry may be there.
            warn_once(
                ("shared refused", self.name, refusal),
                f"cupar does not use the entry {key} of the shared store {self.name}: it {refusal}. A new "
                "build replaces it.",
            )
            self._count_damaged(store, key, lease, secret)
        return None, lease if lease.held else None

    def _count_damaged(self, store: _Store, key: str, lease: _Lease, secret: bytes | None) -> None:
        """Stop using a store that returns one damaged entry after another."""
        if secret is not None and _look(store, key, None)[0] is not None:
            return  # it is just not signed as it should be
        self._damaged.add(key)
        if len(self._damaged) >= _MOST_DAMAGED:
            self._damaged.clear()
            lease.give_back()
            raise store.reads.failed(f"{_MOST_DAMAGED} entries, one after another, are damaged")

    @contextmanager
    def _failures_told(self) -> Iterator[None]:
        """Warn once of operations in the block that fail; the caller goes on without the store."""
        try:
            yield
        except _UnavailableError as error:
            warn_once(
                ("shared unavailable", self.name),
                f"cupar cannot {error}. It tries again after {REST:g} seconds; until then builds are made "
                "here and not shared.",
            )


def _look(store: _Store, key: str, secret: bytes | None) -> tuple[Entry | None, str | None]:
    """Return the entry, or why it is refused; neither if none exists."""
    data = store.load(_entry_name(key))
    if data is None:
        return None, None
    try:
        return unseal(data, key, secret), None
    except RefusedError as error:
        return None, str(error)


def _entry_name(key: str) -> str:
    return f"v{FORMAT}/{key[:2]}/{key}"
