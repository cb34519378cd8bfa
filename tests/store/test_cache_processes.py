"""The cache among processes: one build, killed builders, forks, and what an import costs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.common import KEY, PREAMBLE, fresh_cache

import cupar
from cupar import _cache
from cupar._cache import Stats, fetch
from cupar._store.disk import Disk
from cupar._store.entry import Entry
from cupar._store.memory import SingleFlightCache

ENTRY = Entry({"algorithm": "reduce"}, bytes(1000))
SOURCE = str(Path(cupar.__file__).parents[1])

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    fresh_cache(monkeypatch, tmp_path)


@pytest.fixture
def start(tmp_path):
    """Start Python processes that are ended with the test."""
    running = []

    def run(script, *args):
        command = [sys.executable, "-W", "error", "-c", PREAMBLE + script, *map(str, args)]
        running.append(subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def finish(processes):
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def wait_for(path):
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_six_processes_build_once(start, tmp_path):
    script = """
def make():
    log("built")
    time.sleep(0.5)
    return Entry({}, b"payload")

log("ready")
until("go")
found = fetch(KEY, make)
print(found.origin, found.entry.payload.decode())
"""
    processes = [start(script) for _ in range(6)]
    wait_for(tmp_path / "log")
    while (tmp_path / "log").read_text().count("ready") < 6:
        time.sleep(0.01)
    (tmp_path / "go").touch()
    assert sorted(finish(processes)) == ["built payload\n"] + ["disk payload\n"] * 5
    assert (tmp_path / "log").read_text().count("built") == 1
    assert list((tmp_path / "cache" / "v1" / "locks").iterdir()) == []


def test_builds_share_a_template_without_deadlock(start, tmp_path):
    script = """
def template():
    log("template")
    time.sleep(0.2)
    return Entry({}, b"template")

until("go")
key = hashlib.sha256(sys.argv[1].encode()).hexdigest()
fetch(key, lambda: Entry({}, fetch(OTHER, template).entry.payload))
"""
    processes = [start(script, number % 3) for number in range(6)]
    (tmp_path / "go").touch()
    finish(processes)
    assert (tmp_path / "log").read_text().count("template") == 1


def test_a_killed_builder_blocks_nobody(start, tmp_path):
    process = start("""
def make():
    open("building", "w").close()
    time.sleep(60)

fetch(KEY, make)
""")
    wait_for(tmp_path / "building")
    with Disk(tmp_path / "cache", 1 << 20).lock(KEY, 0) as free:
        assert not free
    process.send_signal(signal.SIGKILL)
    process.wait()
    locks = tmp_path / "cache" / "v1" / "locks"
    assert len(list(locks.iterdir())) == 1
    Disk(tmp_path / "cache", 1 << 20).clear()  # as prune does
    assert list(locks.iterdir()) == []
    begin = time.monotonic()
    assert fetch(KEY, lambda: ENTRY).origin == "built"
    assert time.monotonic() - begin < 30  # and not the 60 of who was killed


def test_processes_that_crowd_a_small_cache(start, tmp_path):
    """Store, evict, damage and read in several processes at once: right or nothing."""
    script = """
import random, warnings
from cupar._base.warnings import CacheWarning
warnings.simplefilter("ignore", CacheWarning)  # of damaged entries
draw = random.Random(int(sys.argv[1]))
until("go")
disk = _cache.disk()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    number = draw.randrange(30)
    key = hashlib.sha256(b"%d" % number).hexdigest()
    found = fetch(key, lambda: Entry({"number": number}, b"%d " % number * 500))
    assert found.entry == Entry({"number": number}, b"%d " % number * 500)
    if draw.random() < 0.05:
        with suppress(OSError), open(disk.find(key), "r+b") as file:
            file.seek(draw.randrange(200))
            file.write(b"?")
assert {topic[0] for topic in _warnings.warned} <= {"unusable"}, _warnings.warned
"""
    os.environ["CUPAR_CACHE_SIZE"] = "10k"
    try:
        processes = [start(script, seed) for seed in range(4)]
    finally:
        del os.environ["CUPAR_CACHE_SIZE"]
    (tmp_path / "go").touch()
    finish(processes)
    disk = Disk(tmp_path / "cache", 10 << 10)
    # While one sweeps, which can take a while on a busy machine, the others store. All are over 40,000 bytes.
    assert 0 < disk.usage().size < 35_000
    disk.prune()
    assert 0 < disk.usage().size <= 10 << 10
    assert list((tmp_path / "cache" / "v1" / "tmp").iterdir()) == []


# --- Fork


def in_child(work):
    """Run `work` in a forked child and return what it returns, as text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(work()).encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
class TestFork:
    def test_the_child_starts_empty(self):
        memory = SingleFlightCache(4)
        memory.get_or_make("a", lambda: "parent's")
        _cache.count("built")

        def work():
            return len(memory), memory.get_or_make("a", lambda: "child's"), _cache.stats() == Stats()

        assert in_child(work) == '(0, "child\'s", True)'
        assert memory.get("a") == "parent's"
        assert _cache.stats() == Stats(built=1)

    def test_locks_that_other_threads_hold_are_free_in_the_child(self):
        import threading

        memory, held, done = SingleFlightCache(4), threading.Event(), threading.Event()

        def hold():
            with memory._lock, _cache._lock:
                held.set()
                done.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:
            assert in_child(lambda: (memory.get_or_make("a", lambda: 1), _cache.count("disk"))) == "(1, None)"
        finally:
            done.set()
            thread.join()

    def test_a_flight_of_another_thread_is_not_waited_for(self):
        import threading

        memory, flying, done = SingleFlightCache(4), threading.Event(), threading.Event()
        thread = threading.Thread(
            target=lambda: memory.get_or_make("a", lambda: flying.set() or (done.wait() and "parent's"))
        )
        thread.start()
        flying.wait()
        try:
            assert in_child(lambda: memory.get_or_make("a", lambda: "child's")) == "child's"
        finally:
            done.set()
            thread.join()
        assert memory.get("a") == "parent's"

    def test_a_fork_during_a_build(self):
        memory = SingleFlightCache(4)
        assert memory.get_or_make("a", lambda: in_child(lambda: memory.get_or_make("a", lambda: 5))) == "5"

    @pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit()"])
    def test_the_child_destroys_none_of_the_parents_values(self, start, tmp_path, leave):
        script = f"""
class Handle:
    def __del__(self):
        log("destroyed in " + ("parent" if os.getpid() == parent else "child"))

parent = os.getpid()
from cupar._store.memory import SingleFlightCache

memory = SingleFlightCache(1)
memory.get_or_make("a", Handle)
pid = os.fork()
if pid == 0:
    memory.get_or_make("b", int)
    memory.clear()
    del memory
    {leave}
os.waitpid(pid, 0)
log("waited")
memory.clear()
"""
        finish([start(script)])
        assert (tmp_path / "log").read_text() == "waited\ndestroyed in parent\n"

    def test_the_child_leaves_the_parents_lock_alone(self, tmp_path):
        disk = Disk(tmp_path / "cache", 1 << 20)

        def work():
            with disk.lock(KEY, 0) as free:
                return free

        with disk.lock(KEY, 0):
            assert in_child(work) == "False"
            assert in_child(work) == "False"
        assert in_child(work) == "True"


# --- Cost


def fresh_modules(script, tmp_path):
    """Return the modules that a script loads in a new interpreter without site packages' startup code."""
    path = os.pathsep.join([SOURCE, *sys.path])
    code = PREAMBLE + script + "\nprint(*sys.modules, sep='\\n')"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.partition(".")[0] for name in run.stdout.split()}


def test_a_hit_imports_little(tmp_path):
    fetch(KEY, lambda: ENTRY)
    loaded = fresh_modules("assert fetch(KEY, None).origin == 'disk'", tmp_path)
    assert loaded - set(sys.stdlib_module_names) - {"__main__", "cupar"} <= {"__mp_main__", "cachetools"}
    heavy = {
        "asyncio",
        "concurrent",
        "ctypes",
        "logging",
        "multiprocessing",
        "socket",
        "sqlite3",
        "subprocess",
        "tempfile",
    }
    assert not loaded & heavy


def test_the_default_directory_costs_only_platformdirs(tmp_path, monkeypatch):
    monkeypatch.delenv("CUPAR_CACHE_DIR")
    loaded = fresh_modules("_cache.disk()", tmp_path)
    assert "platformdirs" in loaded
    assert not loaded & {"filelock", "logging"}
