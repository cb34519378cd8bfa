"""A store of torch.distributed as the shared store of builds, and waits of its ranks."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest import mock

import pytest
from support.common import KEY

from cupar import _cache, distributed
from cupar._base import warnings
from cupar._base.warnings import CacheWarning
from cupar._fleet.comm import awaited
from cupar._store import shared
from cupar._store.entry import Entry, encode, seal
from cupar._store.locks import Deadline

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

CLIENTS = 1000


@pytest.fixture(scope="module")
def store():
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def test_it_is_a_mapping(store):
    from cupar.distributed import StoreMapping

    mapping = StoreMapping(store, "a:")
    with pytest.raises(KeyError):
        mapping["x"]
    assert mapping.setdefault("x", b"1") == b"1"
    assert mapping.setdefault("x", b"2") == mapping["x"] == b"1"
    mapping["x"] = bytes(range(256))
    assert mapping["x"] == bytes(range(256))
    assert StoreMapping(store, "b:").get("x") is None
    del mapping["x"]
    assert "x" not in mapping
    with pytest.raises(KeyError):
        del mapping["x"]
    assert mapping.setdefault("x", b"3") == b"3"


def test_a_key_that_goes_while_it_is_read_is_not_waited_for():
    """A lease does: the store's own `get` would wait for it until the store's timeout."""
    from cupar.distributed import StoreMapping

    class Going:
        """A store whose key goes after each of its answers."""

        def __getattr__(self, name):
            def call(*given):
                found = getattr(store, name)(*given)
                store.delete_key("cupar:x")
                return found

            return call

    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=1))
    store.set("cupar:x", b"there")
    assert StoreMapping(Going()).get("x") == b"there"
    assert StoreMapping(Going()).get("x") is None


OTHER = KEY[::-1]
ENTRY = Entry({"algorithm": "reduce"}, b"made here")
SECRET = b"a secret"


def sealed(payload, key=KEY, secret=None):
    return seal(encode(key, Entry({}, payload)), key, secret)


@pytest.mark.parametrize(
    ("value", "secret", "reason"),
    [
        (b"", None, "is damaged"),
        (bytes(range(256)), None, "is damaged"),
        (sealed(b"short")[:-3], None, "is damaged"),
        (sealed(b"of another key", OTHER), None, "is damaged"),
        (sealed(b"not signed"), SECRET, "is not signed, and"),
        (sealed(b"signed by another", secret=b"another"), SECRET, "is not signed with"),
    ],
    ids=range(6),
)
def test_what_others_put_there_is_not_used(store, request, value, secret, reason):
    """An entry is made instead, and put in its place."""
    from cupar.distributed import StoreMapping

    mapping = StoreMapping(store, request.node.name)
    mapping[f"v1/{KEY[:2]}/{KEY}"] = value
    named = {"timeout": 60, "deadline": Deadline(120), "secret": secret}
    with pytest.warns(CacheWarning, match=reason):
        assert shared.Shared(mapping, request.node.name).fetch(KEY, lambda: ENTRY, **named) == (ENTRY, True)
    assert shared.Shared(mapping, "store").fetch(KEY, None, **named) == (ENTRY, False)


def test_a_store_that_has_gone_is_done_without(monkeypatch):
    """Those who would fetch from it, or wait for others, build; it is said once, and asked no more."""
    from cupar.distributed import StoreMapping

    monkeypatch.setattr(warnings, "warned", set())
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, is_master=False, timeout=timedelta(seconds=20))
    mine, asked, made = StoreMapping(client), [], []
    ask = mock.Mock(wraps=client)
    mine._store = ask
    store = shared.Shared(mine, "of ranks")

    def fetch(key):
        return store.fetch(
            key, lambda: made.append(1) or ENTRY, timeout=20, deadline=Deadline(120), secret=None
        )

    assert fetch(KEY) == (ENTRY, True) and fetch(KEY) == (ENTRY, False)
    mine["v1/lease/" + OTHER] = b"cupar-lease another 0"  # who has begun to build it
    with pytest.warns(CacheWarning, match="the shared store of ranks: ") as caught:
        waiting = ThreadPoolExecutor(1).submit(fetch, OTHER)
        asked = ask.compare_set.call_count
        while ask.compare_set.call_count < asked + 4:
            time.sleep(0.01)
        del server
        assert waiting.result(60) == (ENTRY, True)
        assert fetch(KEY) == (ENTRY, True)  # which reads, if it was a write that has failed
        asked = ask.compare_set.call_count
        assert fetch(KEY) == (ENTRY, True)
    assert len(caught) == 1 and len(made) == 4
    assert ask.compare_set.call_count == asked


def test_a_thousand_clients_make_one_build(store):
    """Each is a client of its own, as if with an empty directory of its own."""
    from cupar.distributed import StoreMapping

    made, found, errors = [], [], []
    begin = threading.Barrier(CLIENTS)

    def make():
        made.append(1)
        time.sleep(0.2)
        return Entry({}, b"made")

    def client():
        begin.wait()
        try:
            mine = shared.Shared(StoreMapping(store), "store")
            entry, _ = mine.fetch(KEY, make, timeout=600, deadline=Deadline(1200), secret=None)
            found.append(entry.payload)
        except Exception as error:
            errors.append(error)

    threading.stack_size(256 * 1024)
    try:
        threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        threading.stack_size(0)
    assert errors == []
    assert len(made) == 1
    assert found == [b"made"] * CLIENTS


def test_an_interrupt_arrives_while_others_are_waited_for(ctrl_c):
    def never():
        os.kill(os.getpid(), signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        awaited(never, 60, lambda: None)


def test_a_host_that_waits_for_nccl_is_watched(monkeypatch):
    """Another rank fails; a thread aborts the process group."""
    dist = pytest.importorskip("torch.distributed")
    from cupar._fleet import c10d

    class Aborted(threading.Event):
        abort = threading.Event.set

    monkeypatch.setattr(c10d, "_WATCH", 1e-3)
    store, group = dist.HashStore(), Aborted()
    monkeypatch.setattr(c10d, "_store", lambda dist: store)
    new_group = mock.Mock(new_group=lambda *given, **named: None)
    mine, other = (c10d._Line(new_group, [0, 1], timedelta(seconds=60)) for _ in range(2))
    for each in (mine, other):
        each.name("of both")
    mine.watch(group)
    mine.look()
    other.end("rank 1 raised MemoryError")
    assert group.wait(60)
    with pytest.raises(distributed.GroupError, match="^rank 1 raised MemoryError$"):
        mine.look()


def test_a_group_lends_its_store_unless_there_is_one(monkeypatch):
    monkeypatch.delenv("CUPAR_SHARED", raising=False)
    with _cache.lent({}):
        lent = _cache.shared()
        assert lent is not None and lent.name == "dict"
    assert _cache.shared() is None
    _cache.use_shared({})
    try:
        mine = _cache.shared()
        with _cache.lent({}):
            assert _cache.shared() is mine
        assert _cache.shared() is mine
    finally:
        _cache.use_shared(None)


def test_a_process_group_without_this_rank():
    with pytest.raises(ValueError, match="group: expected ranks of which this one is, got a process group"):
        distributed.group(dist.GroupMember.NON_GROUP_MEMBER)
