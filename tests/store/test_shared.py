"""Shared stores: their entries, single builds among clients, and stores that fail in every way."""

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import MutableMapping
from pathlib import Path

import fsspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.common import isolated

import cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._base.warnings import CacheWarning
from cupar._cache import fetch
from cupar._store import entry as _entry
from cupar._store import remotes, shared
from cupar._store.entry import Entry
from cupar._store.locks import Deadline
from cupar._store.opened import REST, OpenByName
from cupar._store.shared import Shared

KEY = hashlib.sha256(b"a").hexdigest()
OTHER = hashlib.sha256(b"b").hexdigest()
NAME = f"v1/{KEY[:2]}/{KEY}"
LEASE_NAME = f"v1/lease/{KEY}"
ENTRY = Entry({"algorithm": "reduce"}, bytes(range(256)) * 4)
SECRET = b"secret"

PREAMBLE = f"""
import os, sys, threading, time, types
from collections.abc import MutableMapping
cupar = types.ModuleType("cupar")  # the package without what its __init__ imports
cupar.__path__ = [{str(Path(cupar.__file__).parent)!r}]
sys.modules["cupar"] = cupar
from cupar import _cache
from cupar._cache import fetch
from cupar._store.entry import Entry
KEY = {KEY!r}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    yield from isolated(monkeypatch, tmp_path)


@pytest.fixture
def short_lease(monkeypatch):
    monkeypatch.setattr(shared, "LEASE", 0.4)


def ask(store, make=lambda: ENTRY, key=KEY, *, timeout=5.0, patience=20.0, secret=None, replace=False):
    deadline = Deadline(patience)
    return store.fetch(key, make, timeout=timeout, deadline=deadline, secret=secret, replace=replace)


def never():
    raise AssertionError("made what was there")


def sealed(key=KEY, entry=ENTRY, secret=None):
    return _entry.seal(_entry.encode(key, entry), key, secret)


class Counting(MutableMapping):
    """A store that keeps account of what it was asked for."""

    def __init__(self, content=()):
        self.content = dict(content)
        self.asked = []

    def __getitem__(self, name):
        self.asked.append(("get", name))
        return self.content[name]

    def __setitem__(self, name, value):
        self.asked.append(("set", name))
        self.content[name] = value

    def __delitem__(self, name):
        self.asked.append(("delete", name))
        del self.content[name]

    def __iter__(self):
        raise AssertionError("listed a store")

    def __len__(self):
        raise AssertionError("counted a store")


# --- Stores that work


@pytest.fixture(params=["dict", "emulated", "memory", "file", "path"])
def mapping(request, tmp_path):
    if request.param == "dict":
        yield {}
    elif request.param == "emulated":
        yield Counting()
    elif request.param == "memory":
        url = f"memory://{tmp_path.name}/cupar"
        yield remotes.open_url(url)
        fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)
    else:
        path = tmp_path / "shared" / "cupar"
        yield remotes.open_url(f"file://{path}" if request.param == "file" else str(path))


class TestAnyStore:
    def test_an_entry_is_made_once_and_found_by_another_client(self, mapping):
        assert ask(Shared(mapping, "first")) == (ENTRY, True)
        assert ask(Shared(mapping, "second"), never) == (ENTRY, False)
        assert mapping[NAME] == sealed()
        assert LEASE_NAME not in mapping

    def test_other_keys_are_other_entries(self, mapping):
        store, other = Shared(mapping, "store"), Entry({}, b"other")
        ask(store)
        assert ask(store, lambda: other, OTHER) == (other, True)
        assert ask(store, never) == (ENTRY, False)

    def test_what_make_raises_passes_through_and_leaves_no_lease(self, mapping):
        store, error = Shared(mapping, "store"), ValueError("mine")

        def make():
            assert LEASE_NAME in mapping
            raise error

        with pytest.raises(ValueError) as caught:
            ask(store, make)
        assert caught.value is error
        assert LEASE_NAME not in mapping
        assert NAME not in mapping
        assert ask(store) == (ENTRY, True)

    def test_threads_make_an_entry_once(self, mapping, monkeypatch):
        # Where setdefault is not atomic, the pause must cover what other threads are delayed by.
        monkeypatch.setattr(shared, "_SETTLE_SECONDS", 0.2)
        makes, results = [], []
        barrier = threading.Barrier(8)

        def make():
            makes.append(threading.get_ident())
            time.sleep(0.2)
            return ENTRY

        def work():
            store = Shared(mapping, "store")
            barrier.wait()
            results.append(ask(store, make))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(makes) == 1
        assert sorted(made for _, made in results) == [False] * 7 + [True]
        assert all(entry == ENTRY for entry, _ in results)

    def test_an_entry_of_no_use_is_made_again_and_replaced(self, mapping):
        store, useful = Shared(mapping, "store"), Entry({}, b"useful")
        ask(store)
        assert ask(store, lambda: useful, replace=True) == (useful, True)
        assert ask(store, never) == (useful, False)

    def test_a_damaged_entry_is_replaced(self, mapping):
        mapping[NAME] = sealed()[:-1]
        store = Shared(mapping, "a store")
        with pytest.warns(CacheWarning, match=f"{KEY} of the shared store a store: it is damaged"):
            assert ask(store) == (ENTRY, True)
        assert ask(store, never) == (ENTRY, False)


def test_a_hit_asks_for_the_entry_and_nothing_else():
    mapping = Counting({NAME: sealed()})
    assert ask(Shared(mapping, "store"), never) == (ENTRY, False)
    assert mapping.asked == [("get", NAME)]


# --- What is not served


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "is damaged"),
        (b"not an entry", "is damaged"),
        (sealed(OTHER), "is damaged"),
        (sealed() + b"\n", "is damaged"),
        (sealed()[:200], "is damaged"),
        (sealed().replace(b"cupar-entry 1", b"cupar-entry 2"), "is damaged or of another format"),
    ],
    ids=range(6),
)
def test_what_is_no_entry_is_not_served(value, reason):
    mapping = {NAME: value}
    store = Shared(mapping, "store")
    with pytest.warns(CacheWarning, match=reason) as caught:
        assert ask(store) == (ENTRY, True)
    assert len(caught) == 1
    assert mapping == {NAME: sealed()}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_altered_entry_is_never_served(data, monkeypatch):
    monkeypatch.setattr(shared, "_SETTLE_SECONDS", 0)
    value = bytearray(sealed(secret=data.draw(st.sampled_from([None, SECRET]))))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    other = Entry({}, b"other")
    with contextlib.suppress(CacheWarning):
        entry, made = ask(Shared({NAME: bytes(value)}, "store"), lambda: other)
        assert made or entry == ENTRY  # an alteration of the signature alone is none without a secret


def test_each_reason_is_said_once():
    mapping = {f"v1/{key[:2]}/{key}": b"" for key in (KEY, OTHER)}
    store = Shared(mapping, "store")
    with pytest.warns(CacheWarning) as caught:
        ask(store)
        ask(store, key=OTHER)
    assert len(caught) == 1


@pytest.mark.parametrize("writer", [None, b"another"])
def test_a_client_with_a_secret_refuses_what_others_wrote(writer):
    mapping = {}
    ask(Shared(mapping, "store"), secret=writer)
    reason = "is not signed, and" if writer is None else "is not signed with"
    with pytest.warns(CacheWarning, match=f"{reason}.* CUPAR_SIGNING_KEY"):
        assert ask(Shared(mapping, "store"), secret=SECRET) == (ENTRY, True)
    assert ask(Shared(mapping, "store"), never, secret=SECRET) == (ENTRY, False)


def test_a_signed_entry_is_of_use_without_the_secret():
    mapping = {}
    ask(Shared(mapping, "store"), secret=SECRET)
    assert mapping[NAME].startswith(b"cupar-signature ")
    assert ask(Shared(mapping, "store"), never, secret=SECRET) == (ENTRY, False)
    assert ask(Shared(mapping, "store"), never) == (ENTRY, False)


def test_half_an_entry_of_a_client_that_still_writes_is_waited_for():
    mapping = {NAME: sealed()[:100], LEASE_NAME: b"cupar-lease other 0"}

    def finish():
        time.sleep(0.3)
        mapping[NAME] = sealed()
        del mapping[LEASE_NAME]

    thread = threading.Thread(target=finish)
    thread.start()
    assert ask(Shared(mapping, "store"), never) == (ENTRY, False)
    thread.join()


class Answering(Counting):
    """A store that answers with something of its own, and forgets what it is given."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def __getitem__(self, name):
        self.asked.append(("get", name))
        return self.answer(name)

    def __setitem__(self, name, value):
        self.asked.append(("set", name))


class Cutting(Counting):
    """A store that keeps no more of a value than fits in it."""

    def __setitem__(self, name, value):
        super().__setitem__(name, value[:100])

    def __getitem__(self, name):
        super().__getitem__(name) if "lease" in name else None
        self.asked.append(("get", name))
        return self.content[name] if "lease" in name else sealed()[:100]


GARBAGE = {
    "a page for everything": lambda: Answering(lambda name: b"<html>404</html>"),
    "nothing but empty values": lambda: Answering(lambda name: b""),
    "text": lambda: Answering(lambda name: "text"),
    "numbers": lambda: Answering(lambda name: 7),
    "an entry for everything": lambda: Answering(lambda name: sealed()),
    "random bytes": lambda: Answering(lambda name: os.urandom(100)),
    "a lease without a number": lambda: Answering(lambda name: b"cupar-lease other x"),
    "the beginnings of values": Cutting,
}


# --- Leases


class TestLease:
    def test_a_dead_client_is_succeeded(self, short_lease):
        mapping = {LEASE_NAME: b"cupar-lease dead 7"}
        begin = time.monotonic()
        assert ask(Shared(mapping, "store")) == (ENTRY, True)
        assert 0.4 <= time.monotonic() - begin < 10
        assert mapping == {NAME: sealed()}

    @pytest.mark.parametrize("value", [b"", b"\xff" * 1000])
    def test_a_lease_of_unknown_form_is_succeeded_too(self, short_lease, value):
        mapping = {LEASE_NAME: value}
        assert ask(Shared(mapping, "store")) == (ENTRY, True)
        assert mapping == {NAME: sealed()}

    def test_few_of_many_succeed_a_dead_client(self, short_lease, monkeypatch):
        monkeypatch.setattr(shared, "_SETTLE_SECONDS", 0.1)
        mapping = {LEASE_NAME: b"cupar-lease dead 7"}
        makes, results = [], []

        def make():
            makes.append(1)
            time.sleep(0.5)
            return ENTRY

        threads = [
            threading.Thread(target=lambda: results.append(ask(Shared(mapping, "store"), make)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(results) == 8
        # Most often one does; two may take over in the same moment, for a mapping cannot exchange a value.
        assert 1 <= len(makes) <= 3

    def test_a_living_client_is_not_succeeded(self, short_lease):
        mapping, making = {}, threading.Event()
        values = set()

        def make():
            making.set()
            end = time.monotonic() + 1.5
            while time.monotonic() < end:
                values.add(mapping[LEASE_NAME])
                time.sleep(0.01)
            return ENTRY

        thread = threading.Thread(target=ask, args=(Shared(mapping, "store"), make))
        thread.start()
        making.wait()
        assert ask(Shared(mapping, "store"), never) == (ENTRY, False)
        thread.join()
        assert len(values) > 3
        assert mapping == {NAME: sealed()}

    def test_patience_has_an_end(self):
        mapping = {LEASE_NAME: b"cupar-lease other 0"}
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="has been building what this one needs for 0.2 seconds"):
            assert ask(Shared(mapping, "store"), patience=0.2) == (ENTRY, True)
        assert 0.2 <= time.monotonic() - begin < 5
        assert mapping == {NAME: sealed(), LEASE_NAME: b"cupar-lease other 0"}

    @pytest.mark.slow
    def test_the_lock_timeout_is_the_patience(self, monkeypatch):
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", "0.2")
        _cache.use_shared({LEASE_NAME: b"cupar-lease other 0"})
        with pytest.warns(CacheWarning, match="CUPAR_LOCK_TIMEOUT"):
            assert fetch(KEY, lambda: ENTRY).origin == "built"

    def test_a_lease_that_was_taken_away_is_left_alone(self, short_lease):
        mapping = {}

        def make():
            mapping[LEASE_NAME] = b"cupar-lease other 0"
            time.sleep(0.3)
            return ENTRY

        ask(Shared(mapping, "store"), make)
        assert mapping[LEASE_NAME] == b"cupar-lease other 0"

    def test_a_lease_that_vanished_is_put_back(self, short_lease):
        mapping = {}

        def make():
            mapping.clear()
            end = time.monotonic() + 10
            while LEASE_NAME not in mapping:
                assert time.monotonic() < end
                time.sleep(0.01)
            return ENTRY

        assert ask(Shared(mapping, "store"), make) == (ENTRY, True)
        assert mapping == {NAME: sealed()}

    def test_an_entry_that_is_stored_while_the_lease_is_taken_is_not_made_again(self):
        class Late(dict):
            def setdefault(self, name, value):
                self[NAME] = sealed()
                return super().setdefault(name, value)

        mapping = Late()
        assert ask(Shared(mapping, "store"), never) == (ENTRY, False)
        assert mapping == {NAME: sealed()}

    def test_one_make_may_ask_for_another_key(self):
        store = Shared({}, "store")
        inner = Entry({}, b"template")

        def make():
            return Entry({}, ask(store, lambda: inner, OTHER)[0].payload + b" linked")

        assert ask(store, make)[0].payload == b"template linked"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_child_leaves_its_parents_lease_alone(self, tmp_path):
        mapping = remotes.open_url(str(tmp_path / "shared"))

        def make():
            pid = os.fork()
            if pid == 0:
                raise InterruptedError
            os.waitpid(pid, 0)
            assert LEASE_NAME in mapping
            return ENTRY

        parent = os.getpid()
        try:
            assert ask(Shared(mapping, "store"), make) == (ENTRY, True)
        except InterruptedError:
            assert os.getpid() != parent
            os._exit(0)
        assert LEASE_NAME not in mapping


# --- Stores that do not work


class Failing(Counting):
    """A store that does something else in place of some of its operations."""

    def __init__(self, fail, operations=("get", "set", "delete")):
        super().__init__()
        self.fail = fail
        self.operations = operations

    def __getitem__(self, name):
        if "get" in self.operations:
            self.asked.append(("get", name))
            return self.fail()
        return super().__getitem__(name)

    def __setitem__(self, name, value):
        if "set" in self.operations:
            self.asked.append(("set", name))
            self.fail()
        else:
            super().__setitem__(name, value)

    def __delitem__(self, name):
        if "delete" in self.operations:
            self.asked.append(("delete", name))
            self.fail()
        else:
            super().__delitem__(name)


def failure(error):
    def fail():
        raise error

    return fail


class TestFaults:
    @pytest.mark.parametrize(
        "error", [OSError("gone"), RuntimeError("bad"), SystemExit(3), AssertionError()], ids=repr
    )
    def test_a_store_that_raises_is_said_once_and_left_alone(self, error):
        mapping = Failing(failure(error))
        store = Shared(mapping, "far")
        text = f"cannot read the shared store far: {type(error).__name__}: {error}"
        with pytest.warns(CacheWarning) as caught:
            assert ask(store) == (ENTRY, True)
            assert ask(store, key=OTHER) == (ENTRY, True)
        assert [text in str(each.message) for each in caught] == [True]
        assert mapping.asked == [("get", NAME)]

    def test_a_store_that_hangs_is_waited_for_once(self):
        hang = threading.Event()
        mapping = Failing(hang.wait)
        store = Shared(mapping, "far")
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="did not answer in 0.2 seconds") as caught:
            for _ in range(5):
                assert ask(store, timeout=0.2) == (ENTRY, True)
        assert time.monotonic() - begin < 5
        assert len(caught) == 1
        assert len(mapping.asked) == 1
        hang.set()

    def test_threads_wait_for_a_store_that_hangs_side_by_side(self):
        hang = threading.Event()
        store, results = Shared(Failing(hang.wait), "far"), []
        _warnings.warned.add(("shared unavailable", "far"))
        begin = time.monotonic()
        threads = [
            threading.Thread(target=lambda: results.append(ask(store, timeout=0.5))) for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - begin < 5
        assert results == [(ENTRY, True)] * 16
        hang.set()

    def test_a_store_is_tried_again_after_a_rest(self):
        mapping, now = Failing(failure(OSError("gone"))), [1000.0]
        store = Shared(mapping, "far", lambda: now[0])
        with pytest.warns(CacheWarning) as caught:
            ask(store)
        mapping.operations = ()
        assert ask(store) == (ENTRY, True)
        assert NAME not in mapping.content
        now[0] += shared.REST + 1
        assert ask(store) == (ENTRY, True)
        assert mapping.content == {NAME: sealed()}
        mapping.operations = ("get",)
        assert ask(store) == (ENTRY, True)
        assert len(caught) == 1

    def test_a_slow_store_is_used_if_it_answers_in_time(self):
        class Slow(Counting):
            def __getitem__(self, name):
                time.sleep(0.1)
                return super().__getitem__(name)

        mapping = Slow()
        assert ask(Shared(mapping, "store"), timeout=5) == (ENTRY, True)
        assert ask(Shared(mapping, "store"), never, timeout=5) == (ENTRY, False)

    @pytest.mark.parametrize("error", [PermissionError("read-only"), NotImplementedError()], ids=repr)
    def test_a_store_that_cannot_be_written_is_read(self, error):
        mapping = Failing(failure(error), ("set", "delete"))
        store = Shared(mapping, "mirror")
        reason = f"cannot write to the shared store mirror: {type(error).__name__}"
        with pytest.warns(CacheWarning, match=reason) as caught:
            assert ask(store) == (ENTRY, True)
        mapping.content[f"v1/{OTHER[:2]}/{OTHER}"] = sealed(OTHER)
        assert ask(store, never, OTHER) == (ENTRY, False)
        assert len(caught) == 1

    def test_a_store_that_loses_what_is_written(self):
        class Forgetful(dict):
            def __setitem__(self, name, value):
                pass

            def setdefault(self, name, value):
                return value

        store = Shared(Forgetful(), "store")
        assert ask(store) == (ENTRY, True)
        assert ask(store) == (ENTRY, True)

    def test_a_store_that_returns_none_for_what_is_not_there(self):
        class Nothing(Counting):
            def __getitem__(self, name):
                return self.content.get(name)

        mapping = Nothing()
        assert ask(Shared(mapping, "store")) == (ENTRY, True)
        assert mapping.content == {NAME: sealed()}
        assert ask(Shared(mapping, "store"), never) == (ENTRY, False)

    def test_a_store_that_returns_text(self):
        class Text(Counting):
            def __setitem__(self, name, value):
                super().__setitem__(name, value.decode("latin-1"))

        store = Shared(Text(), "store")
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="should return bytes and returned str") as caught:
            assert ask(store) == (ENTRY, True)
            assert ask(store) == (ENTRY, True)
        assert len(caught) == 1
        assert time.monotonic() - begin < 5

    @pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
    def test_a_store_that_answers_garbage_is_left_alone(self, garbage):
        mapping = garbage()
        store = Shared(mapping, "store")
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="the shared store store") as caught:
            for number in range(20):
                name = hashlib.sha256(b"%d" % number).hexdigest()
                assert ask(store, key=name, patience=120.0) == (ENTRY, True)
        assert time.monotonic() - begin < 10  # and not 120 for each
        assert len([each for each in caught if "tries again after 60 seconds" in str(each.message)]) == 1
        asked = len(mapping.asked)
        assert asked < 60
        ask(store, key=KEY)
        assert len(mapping.asked) == asked

    def test_a_damaged_entry_now_and_then_is_replaced(self):
        mapping = {}
        store = Shared(mapping, "store")
        with pytest.warns(CacheWarning, match="is damaged") as caught:
            for number in range(12):
                name = hashlib.sha256(b"%d" % number).hexdigest()
                place = f"v1/{name[:2]}/{name}"
                mapping[place] = sealed(name) if number % 3 == 0 else b"damaged"
                ask(store, key=name)
                assert mapping[place] == sealed(name)
        assert len(caught) == 1

    def test_who_has_waited_in_vain_does_not_wait_for_the_next(self):
        keys = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(10)]
        stop = threading.Event()
        mapping = {f"v1/lease/{key}": b"cupar-lease other 0" for key in keys}

        def renew():  # as others do that live and never come to an end
            for count in range(1, 1_000_000):
                for key in keys:
                    mapping[f"v1/lease/{key}"] = b"cupar-lease other %d" % count
                if stop.wait(0.05):
                    return

        thread = threading.Thread(target=renew)
        thread.start()
        store = Shared(mapping, "store")
        begin = time.monotonic()
        try:
            with pytest.warns(CacheWarning, match="CUPAR_LOCK_TIMEOUT") as caught:
                for key in keys:
                    assert ask(store, key=key, patience=1.0) == (ENTRY, True)
        finally:
            stop.set()
            thread.join()
        assert 1 <= time.monotonic() - begin < 5  # and not 10
        assert len(caught) == 1
        assert all(f"v1/{key[:2]}/{key}" in mapping for key in keys)

    def test_a_store_whose_entries_are_text_is_said_to_have_no_bytes(self):
        class Text(dict):
            def get(self, name):
                return super().get(name) and "text"

        mapping = Text({NAME: sealed()})
        with pytest.warns(CacheWarning) as caught:
            assert ask(Shared(mapping, "store")) == (ENTRY, True)
        assert {type(each.message) for each in caught} == {CacheWarning}

    def test_a_store_that_fails_while_another_client_is_waited_for(self):
        mapping = Counting({LEASE_NAME: b"cupar-lease other 0"})

        def load(name):
            if len(mapping.asked) > 6:
                raise ConnectionResetError("killed")
            mapping.asked.append(name)
            return mapping.content.get(name)

        mapping.get = load
        begin = time.monotonic()
        with pytest.warns(CacheWarning, match="killed") as caught:
            assert ask(Shared(mapping, "store")) == (ENTRY, True)
        assert len(caught) == 1
        assert time.monotonic() - begin < 5

    def test_a_store_that_fails_during_make(self):
        mapping = Failing(failure(OSError("gone")), ())

        def make():
            mapping.operations = ("get", "set", "delete")
            return ENTRY

        with pytest.warns(CacheWarning, match="gone") as caught:
            assert ask(Shared(mapping, "store"), make) == (ENTRY, True)
        assert len(caught) == 1

    @pytest.mark.parametrize("seconds", ["inf", "1e300", "0"])
    def test_extreme_timeouts(self, monkeypatch, seconds):
        monkeypatch.setenv("CUPAR_SHARED_TIMEOUT", seconds)
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", seconds)
        _cache.use_shared({})
        with contextlib.suppress(CacheWarning) if seconds == "0" else contextlib.nullcontext():
            assert fetch(KEY, lambda: ENTRY).origin == "built"

    def test_no_more_threads(self, monkeypatch):
        def start(self):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", start)
        with pytest.warns(CacheWarning, match="can't start new thread"):
            assert ask(Shared({}, "store")) == (ENTRY, True)

    @pytest.mark.parametrize("operations", [("get",), ("set",)])
    def test_a_process_ends_although_its_store_hangs(self, tmp_path, operations):
        code = f"""
import warnings
warnings.simplefilter("ignore")

class Hanging(MutableMapping):
    def __getitem__(self, name):
        if "get" in {operations}:
            threading.Event().wait()
        raise KeyError(name)

    def __setitem__(self, name, value):
        threading.Event().wait()

    __delitem__ = __iter__ = __len__ = None

os.environ["CUPAR_SHARED_TIMEOUT"] = "0.2"
_cache.use_shared(Hanging())
print(fetch(KEY, lambda: Entry({{}}, b"made")).entry.payload.decode())
"""
        begin = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-c", PREAMBLE + code], cwd=tmp_path, capture_output=True, text=True, timeout=30
        )
        assert (run.returncode, run.stdout, run.stderr) == (0, "made\n", "")
        assert time.monotonic() - begin < 15


# --- As a layer of the cache


class TestLayer:
    def test_a_hit_is_copied_up(self):
        mapping = Counting({NAME: sealed()})
        _cache.use_shared(mapping)
        found = fetch(KEY, never)
        assert (found.entry, found.origin, found.source) == (ENTRY, "disk", "Counting")
        asked = list(mapping.asked)
        assert asked == [("get", NAME)]
        found = fetch(KEY, never)
        assert (found.entry, found.origin) == (ENTRY, "disk")
        assert found.source == str(_cache.disk().path)
        assert mapping.asked == asked

    def test_what_is_built_gets_into_both(self):
        mapping = {}
        _cache.use_shared(mapping)
        assert fetch(KEY, lambda: ENTRY).origin == "built"
        assert mapping == {NAME: sealed()}
        assert _cache.disk().load(KEY) == ENTRY

    def test_what_is_of_this_machine_alone_is_not_shared(self):
        mapping = Counting({NAME: sealed()})
        _cache.use_shared(mapping)
        other = Entry({}, b"local")
        assert fetch(KEY, lambda: other, portable=False).entry == other
        assert mapping.asked == []

    def test_what_was_discarded_is_replaced(self):
        mapping = {NAME: sealed()}
        _cache.use_shared(mapping)
        fetch(KEY, never)
        _cache.discard(KEY)
        useful = Entry({}, b"useful")
        assert fetch(KEY, lambda: useful).origin == "built"
        assert mapping == {NAME: sealed(entry=useful)}

    def test_without_a_users_directory(self, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        mapping, makes = {}, []
        _cache.use_shared(mapping)

        def make():
            makes.append(1)
            time.sleep(0.3)
            return ENTRY

        origins = []
        threads = [threading.Thread(target=lambda: origins.append(fetch(KEY, make).origin)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(makes) == 1
        assert sorted(origins) == ["built"] + ["disk"] * 5

    def test_the_signing_key_of_the_environment_is_used(self, monkeypatch):
        mapping = {}
        monkeypatch.setenv("CUPAR_CACHE", "0")
        monkeypatch.setenv("CUPAR_SIGNING_KEY", "secret")
        _cache.use_shared(mapping)
        fetch(KEY, lambda: ENTRY)
        assert mapping == {NAME: sealed(secret=SECRET)}
        monkeypatch.setenv("CUPAR_SIGNING_KEY", "another")
        with pytest.warns(CacheWarning, match="CUPAR_SIGNING_KEY"):
            assert fetch(KEY, lambda: ENTRY).origin == "built"

    def test_the_environment_names_a_directory(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CUPAR_SHARED", str(tmp_path / "shared"))
        assert fetch(KEY, lambda: ENTRY).origin == "built"
        monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
        found = fetch(KEY, never)
        assert (found.origin, found.source) == ("disk", str(tmp_path / "shared"))
        assert (tmp_path / "shared" / NAME).read_bytes() == sealed()

    def test_a_directory_that_cannot_be_made(self, monkeypatch, tmp_path):
        (tmp_path / "file").touch()
        monkeypatch.setenv("CUPAR_SHARED", str(tmp_path / "file" / "shared"))
        with pytest.warns(CacheWarning, match="cannot write to the shared store") as caught:
            assert fetch(KEY, lambda: ENTRY).origin == "built"
            assert fetch(OTHER, lambda: ENTRY).origin == "built"
        assert len(caught) == 1

    @pytest.mark.parametrize("url", ["nonsense://somewhere", "redis://host:port"])
    def test_a_url_of_nothing_is_said_once(self, monkeypatch, url):
        monkeypatch.setenv("CUPAR_SHARED", url)
        with pytest.warns(CacheWarning, match=f"does not use the shared store {url}: ") as caught:
            assert fetch(KEY, lambda: ENTRY).origin == "built"
            assert fetch(OTHER, lambda: ENTRY).origin == "built"
        assert len(caught) == 1

    @pytest.mark.parametrize(
        ("package", "url"), [("redis", "redis://localhost"), ("fsspec", "memory://cupar")]
    )
    def test_a_missing_package_is_named_with_the_mend(self, monkeypatch, package, url):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{package} is missing.*pip install 'cupar\[shared\]'"):
            remotes.open_url(url)
        monkeypatch.setenv("CUPAR_SHARED", url)
        with pytest.warns(CacheWarning, match=f"{package} is missing"):
            assert fetch(KEY, lambda: ENTRY).origin == "built"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_child_opens_the_store_anew(self, monkeypatch, tmp_path):
        monkeypatch.setenv("CUPAR_SHARED", str(tmp_path / "shared"))
        parents = _cache.shared()
        assert parents is _cache.shared()
        pid = os.fork()
        if pid == 0:
            os._exit(_cache.shared() is parents)
        assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:hidden@host:6379/0", "redis://***@host:6379/0"),
        ("rediss://user:hidden@host/0?password=hidden", "rediss://***@host/0"),
        ("unix://user@/run/redis.sock?db=1&password=hidden", "unix://***@/run/redis.sock"),
        ("s3://bucket/cupar", "s3://bucket/cupar"),
        ("/mnt/a@b/c?d", "/mnt/a@b/c?d"),
    ],
)
def test_messages_hide_secrets(url, name):
    assert remotes.name_of(url) == name


def test_no_store_costs_no_thread_and_no_import(tmp_path):
    code = "\nfetch(KEY, lambda: Entry({}, b''))\nprint(threading.active_count(), *sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", PREAMBLE + code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    threads, *modules = run.stdout.split()
    assert threads == "1"
    assert not {"cupar._store.shared", "fsspec", "redis"} & set(modules)


NO_URLS = [
    "redis:/host",
    "redis:host",
    "redis:/host:6379/0",
    "redis//host",
    "rediss:/:hidden@host",
    "rediss:hidden@host",
    "unix:/run/redis.sock",
    "s3:/bucket/cupar",
    "s3:bucket",
    "gs:/bucket",
    "simplecache::s3:/bucket",
    "localhost:6379",
    "10.0.0.1:6379",
    "://host",
    "redis://",
    "redis:///0",
    "redis://:hidden@",
    "redis://:hidden@/0",
    "redis://?db=1",
    "s3://",
    "s3:///cupar",
    "file://",
    "unix://",
]


@pytest.mark.parametrize("url", NO_URLS)
def test_what_is_nearly_a_url_is_no_directory(monkeypatch, tmp_path, url):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUPAR_SHARED", url)
    with pytest.warns(CacheWarning, match="does not use the shared store .*: expected ") as caught:
        assert fetch(KEY, lambda: ENTRY).origin == "built"
        assert fetch(OTHER, lambda: ENTRY).origin == "built"
    assert len(caught) == 1
    assert "hidden" not in str(caught[0].message)
    assert os.listdir(tmp_path) == ["cache"]


@pytest.mark.parametrize(
    "url",
    ["shared", "./redis:host", "a/b:c", "file:{}/shared", "file://{}/shared", "memory://a", "{}/a:b"],
)
def test_directories_may_have_colons(monkeypatch, tmp_path, url):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUPAR_SHARED", url.format(tmp_path))
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    assert remotes.open_url(url.format(tmp_path))[NAME] == sealed()


@pytest.mark.parametrize(
    ("arguments", "name"), [(("redis://host",), "client"), ((None,), "client"), (({}, 3), "client")]
)
def test_what_is_no_client_is_named(arguments, name):
    with pytest.raises(TypeError, match=f"{name}: expected a redis.Redis"):
        remotes.RedisMapping(*arguments)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis:/:hidden@host", "redis:/***@host"),
        ("redis::hidden@host", "redis:***@host"),
        ("redis://:pa/ss@host:1/0", "redis://***@host:1/0"),
        ("redis://user:p@ss@host/0", "redis://***@host/0"),
        ("s3://KEY:SEC?RET@bucket/x", "s3://***@bucket/x"),
        ("https://host/x?token=secret", "https://host/x"),
        ("https://host/x#token=secret", "https://host/x"),
        ("memory://cupar", "memory://cupar"),
        ("/mnt/shared", "/mnt/shared"),
    ],
)
def test_no_secret_of_a_url_is_shown(url, shown):
    assert remotes.name_of(url) == shown


def test_an_error_that_cannot_be_shown_fails_no_call():
    class UnspeakableError(Exception):
        def __str__(self):
            raise ValueError("no words")

    class Store(dict):
        def get(self, *_):
            raise UnspeakableError

        __getitem__ = get

    cupar.use_shared(Store())
    try:
        with pytest.warns(cupar.CacheWarning, match="UnspeakableError"):
            assert fetch("0" * 64, lambda: Entry({}, b"made")).entry.payload == b"made"
    finally:
        cupar.use_shared(None)


def test_a_store_that_could_not_be_opened_is_tried_again(monkeypatch, tmp_path):
    now, opens = [1000.0], []

    def open_url(url):
        opens.append(url)
        if len(opens) == 1:
            raise ConnectionError("the name cannot be resolved for now")
        return {}

    monkeypatch.setattr(_cache, "_stores", OpenByName(lambda: now[0]))
    monkeypatch.setattr(remotes, "open_url", open_url)
    monkeypatch.setenv("CUPAR_SHARED", "redis://there")
    with pytest.warns(CacheWarning, match="the name cannot be resolved"):
        assert fetch(KEY, lambda: ENTRY).origin == "built"
    now[0] += REST - 1
    assert fetch(OTHER, lambda: ENTRY).origin == "built"
    assert len(opens) == 1
    now[0] += 2
    assert _cache.find(hashlib.sha256(b"another").hexdigest()) is None
    assert len(opens) == 2
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "third"))
    assert fetch(KEY, never).source == "redis://there"
