"""Sixteen processes at one directory for some time: builds, hits, prunes and clears, all at the same time.

The builds are fake, the cache is real. ``CUPAR_FAULT_SECONDS`` is how long it takes, 10 by default. The
processes are nice: beside other tests they take what these leave.
"""

import hashlib
import inspect
import json
import os
import subprocess
import sys
import time
from collections import Counter

import pytest
from support.common import PREAMBLE

from cupar._store.disk import Disk
from cupar._store.entry import Entry

PROCESSES = 16
SECONDS = float(os.environ.get("CUPAR_FAULT_SECONDS", "10"))
PATIENCE = 300  # for processes that get little of a busy machine


def key(number):
    return hashlib.sha256(b"%d" % number).hexdigest()


def entry(number):
    """Return the only entry that is right under the key of this number."""
    return Entry({"number": number}, hashlib.sha256(b"payload %d" % number).digest() * (number % 97))


HAMMER = """
import json, random
from collections import Counter

os.nice(19)
seed, seconds = int(sys.argv[1]), float(sys.argv[2])
draw, done = random.Random(seed), Counter()

def make(number):
    mark = os.open(f"building {number}", os.O_CREAT | os.O_EXCL)  # nobody else may build it now
    os.close(mark)
    time.sleep(draw.random() * 0.002)
    os.unlink(f"building {number}")
    if failing and draw.random() < 0.05:
        raise ZeroDivisionError
    return entry(number)

def get(number):
    found = fetch(key(number), lambda: make(number))
    assert found.entry == entry(number), number
    done[{"built": "builds", "disk": "hits"}[found.origin]] += 1
    return found.origin

def text(name):
    with suppress(FileNotFoundError), open(name) as file:
        return file.read()

def everything():
    chance, number = draw.random(), draw.randrange(300)
    disk = _cache.disk()
    if chance < 0.92:
        with suppress(ZeroDivisionError):
            get(number)
    elif chance < 0.97:
        with disk.lock("turn", 60) as free:
            assert free
            turns = int(text("turns") or 0)
            time.sleep(0.001)
            with open("turns", "w") as file:
                file.write(str(turns + 1))
        done["turns"] += 1
    elif chance < 0.98:
        done["prunes"] += 1
        done["pruned"] += disk.prune(size=draw.randrange(disk.limit_bytes)).removed
    elif chance < 0.985:
        done["clears"] += 1
        disk.clear()
    elif chance < 0.99:
        disk.discard(key(number))
    elif chance < 0.995:
        done["checks"] += 1
        assert [why for _, why in disk.check(repair=True) if why] == []
    else:
        done["listings"] += 1
        for name, *_ in disk.entries():
            meta = disk.meta(name)
            assert meta is None or key(meta["number"]) == name

def builds_and_hits():
    '''Nothing is removed: what all want at the same time is built once, and nothing is lost.'''
    newest = 1000 + int((time.monotonic() - begin) * 50)
    number = newest if draw.random() < 0.3 else draw.randrange(1000, newest + 1)
    if get(number) == "built":
        built.append(number)
    if draw.random() < 0.001:
        done["prunes"] += 1
        assert _cache.disk().prune(unused_for=3600).removed == 0

def repeat(work, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work()

built = []
log("ready\\n")
until("first")
os.environ["CUPAR_CACHE_SIZE"] = "300k"  # a part of the entries: stores sweep
failing = True
repeat(everything, seconds * 0.6)
failing = False
log("ready\\n")
until("second")
del os.environ["CUPAR_CACHE_SIZE"]
begin = float(text("second"))
repeat(builds_and_hits, seconds * 0.4)
assert not _warnings.warned, _warnings.warned
print(json.dumps([done, built]))
"""


@pytest.fixture
def hammers(tmp_path, monkeypatch):
    """Start the processes, and end them with the test."""
    for name in [name for name in os.environ if name.startswith("CUPAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                PREAMBLE + inspect.getsource(key) + inspect.getsource(entry) + HAMMER,
                str(seed),
                str(SECONDS),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in range(PROCESSES)
    ]
    yield running
    for process in running:
        process.kill()
        process.communicate()


def wait_for(tmp_path, hammers, times):
    """Wait until all processes have come to a point for the nth time."""
    end = time.monotonic() + SECONDS + PATIENCE
    log = tmp_path / "log"
    while not log.exists() or log.read_text().count("ready") < PROCESSES * times:
        assert [process.poll() for process in hammers] == [None] * PROCESSES
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_sixteen_processes_hammer_one_directory(hammers, tmp_path, record_property):
    store = Disk(tmp_path / "cache", 1 << 30)
    wait_for(tmp_path, hammers, times=1)
    begin = time.monotonic()
    (tmp_path / "first").touch()

    wait_for(tmp_path, hammers, times=2)
    small = store.usage().size
    before = {name for name, *_ in store.entries()}
    (tmp_path / "second.new").write_text(str(time.monotonic()))
    (tmp_path / "second.new").rename(tmp_path / "second")
    outputs = [process.communicate(timeout=SECONDS + PATIENCE)[0] for process in hammers]
    seconds = time.monotonic() - begin
    assert [process.returncode for process in hammers] == [0] * PROCESSES

    counts, builds = Counter(), Counter()
    for output in outputs:
        done, built = json.loads(output)
        counts.update(done)
        builds.update(built)
    counts["seconds"] = round(seconds)
    for name, count in counts.items():
        record_property(name, count)
    print(dict(counts))
    assert {"builds", "hits", "prunes", "pruned", "clears", "checks", "listings"} <= set(counts)
    assert (tmp_path / "turns").read_text() == str(counts["turns"])  # nobody had it with another

    # The limit held, but for what the others stored while one swept.
    largest = 97 * 32 + 300
    assert small <= (300 << 10) + PROCESSES * largest
    # Without removals each was built once, and what was built is there, as is what was there before.
    assert set(builds.values()) == {1}
    there = {name for name, *_ in store.entries()}
    assert there == before | {key(number) for number in builds}
    for number in builds:
        assert store.load(key(number)) == entry(number)
    assert list((tmp_path / "cache" / "v1" / "tmp").iterdir()) == []
    assert list((tmp_path / "cache" / "v1" / "locks").iterdir()) == []
    assert list(tmp_path.glob("building *")) == []
