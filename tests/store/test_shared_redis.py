"""A shared store in a real Redis server: many clients, one build, and killed processes."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import redis
from support.common import LIGHT, isolated

from cupar import _cache
from cupar._base.warnings import CacheWarning
from cupar._cache import fetch
from cupar._store import entry as _entry
from cupar._store import shared
from cupar._store.entry import Entry
from cupar._store.remotes import RedisMapping

KEY = hashlib.sha256(b"a").hexdigest()
OTHER = hashlib.sha256(b"b").hexdigest()
NAME = f"v1/{KEY[:2]}/{KEY}"
LEASE_NAME = f"v1/lease/{KEY}"
ENTRY = Entry({"algorithm": "reduce"}, bytes(1000))

pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="needs redis-server; Debian: apt-get install redis-server"
)

PREAMBLE = LIGHT + f"KEY, OTHER = {KEY!r}, {OTHER!r}\n"


class Server:
    """A Redis server on a loopback port and a socket file, which keeps nothing on disk."""

    def __init__(self, directory):
        self.directory = directory
        self.process = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.socket_url = f"unix://{directory}/redis.sock"

    def start(self):
        options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "unixsocket": f"{self.directory}/redis.sock",
            "dir": self.directory,
            "logfile": f"{self.directory}/redis.log",
            "save": "",
            "appendonly": "no",
        }
        command = ["redis-server"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while not self.answers():
            assert self.process.poll() is None, Path(self.directory, "redis.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def answers(self):
        try:
            with self.client() as client:
                return client.ping()
        except redis.ConnectionError:
            return False

    def client(self):
        return redis.Redis.from_url(self.url)

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def session_server():
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory)
        server.start()
        yield server
        server.kill()


@pytest.fixture
def server(session_server):
    """The server that all tests share, empty."""
    with session_server.client() as client:
        client.flushall()
    return session_server


@pytest.fixture
def mortal():
    """A server that the test may kill."""
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory)
        server.start()
        yield server
        server.kill()


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    yield from isolated(monkeypatch, tmp_path)


@pytest.fixture
def start(tmp_path):
    """Start Python processes that are ended with the test, each with the environment it is given."""
    running = []

    def run(script, *args, **environment):
        command = [sys.executable, "-W", "error", "-c", PREAMBLE + script, *map(str, args)]
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def finish(processes, timeout=60):
    outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def wait_for_lines(path, text, number):
    deadline = time.monotonic() + 60
    while not path.exists() or path.read_text().count(text) < number:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def never():
    raise AssertionError("made what was there")


# --- The mapping


class TestMapping:
    def test_it_is_a_mapping(self, server):
        with server.client() as client:
            mapping = RedisMapping(client)
            assert (dict(mapping), len(mapping), mapping.get("a"), "a" in mapping) == ({}, 0, None, False)
            mapping["a"] = b"1"
            mapping["b"] = b""
            assert dict(mapping) == {"a": b"1", "b": b""}
            assert len(mapping) == 2
            assert mapping.setdefault("a", b"2") == b"1"
            assert mapping.setdefault("c", b"2") == b"2"
            del mapping["c"]
            assert mapping.pop("c", None) is None
            with pytest.raises(KeyError, match="c"):
                mapping["c"]
            with pytest.raises(KeyError, match="c"):
                del mapping["c"]

    def test_it_keeps_to_its_prefix(self, server):
        with server.client() as client:
            client.set("starx:a", b"another's")
            mapping, other = RedisMapping(client, "sta*[x]?:"), RedisMapping(client, "other:")
            mapping["a"] = b"1"
            other["b"] = b"2"
            assert (list(mapping), list(other)) == (["a"], ["b"])
            assert client.get("sta*[x]?:a") == b"1"

    def test_leases_expire_and_entries_stay(self, server):
        with server.client() as client:
            mapping = RedisMapping(client)
            mapping[NAME] = b"entry"
            mapping[LEASE_NAME] = b"lease"
            mapping.setdefault(f"v1/lease/{OTHER}", b"lease")
            assert client.ttl("cupar:" + NAME) == -1
            for name in (LEASE_NAME, f"v1/lease/{OTHER}"):
                assert shared.LEASE < client.ttl("cupar:" + name) <= 60

    def test_setdefault_has_one_winner(self, server):
        with server.client() as client:
            mapping, results, barrier = RedisMapping(client), [], threading.Barrier(8)

            def work(number):
                barrier.wait()
                mine = b"%d" % number
                results.extend((turn, mapping.setdefault(f"turn {turn}", mine)) for turn in range(50))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert len(results) == 400
            assert len(set(results)) == 50


@pytest.mark.parametrize("kind", ["url", "socket_url"])
def test_the_environment_names_a_server(server, monkeypatch, tmp_path, kind):
    url = getattr(server, kind)
    monkeypatch.setenv("CUPAR_SHARED", url)
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    found = fetch(KEY, never)
    assert (found.entry, found.origin, found.source) == (ENTRY, "disk", url)
    with server.client() as client:
        assert client.get("cupar:" + NAME) == _entry.encode(KEY, ENTRY)
        assert client.keys() == [b"cupar:" + NAME.encode()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_children_use_their_parents_client(server, tmp_path, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    with server.client() as client:
        _cache.use_shared(RedisMapping(client))
        fetch(KEY, lambda: ENTRY)  # has a connection now
        keys = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(20)]
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                right = all(
                    fetch(key, lambda: Entry({}, key.encode())).entry.payload == key.encode() for key in keys
                )
                os._exit(0 if right and fetch(KEY, never).entry == ENTRY else 1)
            children.append(pid)
        for key in keys:
            assert fetch(key, lambda: Entry({}, key.encode())).entry.payload == key.encode()
        assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4


# --- Many clients


@pytest.mark.slow
@pytest.mark.parametrize("keep", [True, False], ids=["3 machines", "no directories"])
def test_six_clients_build_once(server, start, tmp_path, keep):
    script = """
def make():
    log("built")
    time.sleep(0.5)
    return Entry({}, b"payload")

_cache.shared()  # connects nothing, but imports
log("ready")
until("go")
found = fetch(KEY, make)
print(found.origin, found.entry.payload.decode())
"""
    processes = []
    for number in range(6):
        home = {"CUPAR_CACHE_DIR": str(tmp_path / f"machine-{number % 3}")} if keep else {"CUPAR_CACHE": "0"}
        processes.append(start(script, CUPAR_SHARED=server.url, **home))
    wait_for_lines(tmp_path / "log", "ready", 6)
    (tmp_path / "go").touch()
    assert sorted(finish(processes)) == ["built payload\n"] + ["disk payload\n"] * 5
    assert (tmp_path / "log").read_text().count("built") == 1
    with server.client() as client:
        assert client.keys() == [b"cupar:" + NAME.encode()]
    if keep:
        assert len(list(tmp_path.glob(f"machine-*/v1/*/{KEY}.cupar"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("number", "keep"), [(12, True), (6, False)], ids=["one directory", "none"])
def test_many_processes_with_a_warm_store_build_nothing(server, start, tmp_path, number, keep):
    keys = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(5)]
    with server.client() as client:
        mapping = RedisMapping(client)
        for key in keys:
            mapping[f"v1/{key[:2]}/{key}"] = _entry.encode(key, Entry({}, key.encode() * 1000))
        client.config_resetstat()
    script = """
until("go")
for number in range(5):
    key = hashlib.sha256(b"%d" % number).hexdigest()
    found = fetch(key, lambda: log("built") or Entry({}, b""))
    assert found.origin == "disk", found
    assert found.entry.payload == key.encode() * 1000
"""
    home = {} if keep else {"CUPAR_CACHE": "0"}
    # A machine with more processes than cores answers late.
    home["CUPAR_SHARED_TIMEOUT"] = "60"
    processes = [start(script, CUPAR_SHARED=server.url, **home) for _ in range(number)]
    (tmp_path / "go").touch()
    finish(processes, timeout=120)
    assert not (tmp_path / "log").exists()
    with server.client() as client:
        gets = client.info("commandstats")["cmdstat_get"]["calls"]
    # With a directory, one process gets an entry and the others find it there.
    assert gets == (5 if keep else 5 * number)
    if keep:
        assert _cache.disk().usage().entries == 5


# --- What is killed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
def test_a_server_lost_while_clients_build_and_wait(mortal, start, tmp_path, number):
    script = """
def make():
    log("building")
    until("lost")
    time.sleep(0.5)
    return Entry({}, b"payload")

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    log("asking")
    first = fetch(KEY, make)
    second = fetch(OTHER, lambda: Entry({}, b"other"))
assert (first.entry.payload, second.entry.payload) == (b"payload", b"other")
print(*[str(each.message) for each in caught], sep="\\n")
"""
    processes = [
        start(
            script,
            CUPAR_SHARED=mortal.url,
            CUPAR_SHARED_TIMEOUT="1",
            CUPAR_CACHE_DIR=str(tmp_path / f"machine-{machine}"),
        )
        for machine in range(3)
    ]
    wait_for_lines(tmp_path / "log", "asking", 3)
    wait_for_lines(tmp_path / "log", "building", 1)
    time.sleep(0.3)
    mortal.send(number)
    (tmp_path / "lost").touch()
    for output in finish(processes):
        assert output.count("\n") == 1
        assert output == "\n" or f"the shared store {mortal.url}: " in output


def test_a_server_that_is_started_again_is_used_again(mortal, monkeypatch, tmp_path):
    monkeypatch.setattr(shared, "REST", 0.5)
    monkeypatch.setenv("CUPAR_SHARED", mortal.url)
    assert fetch(OTHER, lambda: ENTRY).origin == "built"
    mortal.kill()
    with pytest.warns(CacheWarning, match="cannot read the shared store") as caught:
        for number in range(3):
            assert fetch(hashlib.sha256(b"%d" % number).hexdigest(), lambda: ENTRY).origin == "built"
    assert len(caught) == 1
    mortal.start()
    time.sleep(0.6)
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    assert fetch(KEY, never).source == mortal.url


def test_a_server_restarted_between_two_calls_is_not_missed(mortal, monkeypatch):
    monkeypatch.setenv("CUPAR_SHARED", mortal.url)
    assert fetch(OTHER, lambda: ENTRY).origin == "built"
    mortal.kill()
    mortal.start()
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    with mortal.client() as client:
        assert client.keys() == [b"cupar:" + NAME.encode()]


@pytest.mark.slow
def test_a_client_killed_while_it_builds_is_succeeded(server, start, tmp_path):
    script = """
from cupar._store import shared as _shared
_shared.LEASE = 1

def make():
    log("building")
    time.sleep(60 if sys.argv[1] == "killed" else 0.5)
    return Entry({}, b"payload")

log("asking")
print(fetch(KEY, make).entry.payload.decode())
"""

    def client(name):
        return start(script, name, CUPAR_SHARED=server.url, CUPAR_CACHE_DIR=str(tmp_path / f"machine-{name}"))

    killed = client("killed")
    wait_for_lines(tmp_path / "log", "building", 1)
    others = [client(number) for number in range(3)]
    wait_for_lines(tmp_path / "log", "asking", 4)
    time.sleep(1.5)  # longer than the lease: who lives keeps it
    assert (tmp_path / "log").read_text().count("building") == 1
    killed.kill()
    killed.wait()
    begin = time.monotonic()
    assert finish(others) == ["payload\n"] * 3
    assert time.monotonic() - begin < 15
    assert (tmp_path / "log").read_text().count("building") in (2, 3)  # one successor, in a rare race two
    with server.client() as client:
        assert client.keys() == [b"cupar:" + NAME.encode()]


# --- What the server refuses


def test_a_server_without_room_is_read(server, monkeypatch, tmp_path):
    monkeypatch.setenv("CUPAR_SHARED", server.url)
    fetch(KEY, lambda: ENTRY)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    with server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            with pytest.warns(CacheWarning, match="OutOfMemoryError") as caught:
                assert fetch(OTHER, lambda: ENTRY).origin == "built"
            assert fetch(KEY, never).source == server.url
        finally:
            client.config_set("maxmemory", 0)
    assert len(caught) == 1


def test_a_wrong_password_is_said_and_not_shown(server, monkeypatch):
    monkeypatch.setenv("CUPAR_SHARED", server.url.replace("//", "//somebody:hidden@"))
    with pytest.warns(CacheWarning, match="Authentication") as caught:
        assert fetch(KEY, lambda: ENTRY).origin == "built"
    assert "hidden" not in str(caught[0].message)


def test_a_client_that_decodes_is_said_to_return_text(server, monkeypatch):
    monkeypatch.setenv("CUPAR_SHARED", server.url + "?decode_responses=True")
    with pytest.warns(CacheWarning, match="should return bytes and returned str"):
        assert fetch(KEY, lambda: ENTRY).origin == "built"
