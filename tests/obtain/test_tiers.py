"""Two tiers: the quick code runs at once, and the fast one takes its place."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import groupby

import numpy as np
import pytest
from support.common import DeviceArray
from support.gpu import pretended
from support.two_tiers import twofold

import cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._jobs.queue import Queue
from cupar._obtain import produce

CC = 90
MANY = 60  # seconds
A, B = DeviceArray(1 << 20, 1 << 30), DeviceArray(1 << 16, 1)
SMALL, LARGE = 100, 1 << 24  # items, in one block and in many


def plus(a, b):
    return a + b


def ask(op=plus, **more):
    return twofold("i4", "i4", op, np.zeros(1, "i4"), **more)


def run(algorithm, items=SMALL):
    algorithm.run(A, B, items, 0)


@pytest.fixture
def gpu(monkeypatch, empty_cache):
    begun, submit = [], Queue.submit
    monkeypatch.setattr(Queue, "submit", lambda *given: begun.append(submit(*given)) or begun[-1])
    monkeypatch.delenv("CUPAR_TIER", raising=False)
    monkeypatch.setattr(_warnings, "warned", set())
    yield pretended(monkeypatch, CC)
    assert not wait(begun, MANY).not_done  # or another test would meet it


@pytest.fixture
def held(gpu, monkeypatch):
    """An event that the fast builds wait for, which are made here."""
    go = threading.Event()

    def build(*given, **named):
        assert go.wait(MANY)
        return produce.build_here(*given, **named)

    monkeypatch.setattr(produce, "build_with_helper", build)
    yield go
    go.set()


def test_the_quick_one_runs_until_the_fast_one_is_there(gpu, held):
    found = ask()
    assert (found.build.tier, found.build.origin, len(gpu.loaded)) == ("quick", "built", 1)
    assert found.ready()
    assert found.ready(tier="quick")
    assert not found.ready(timeout=0.01, tier="fast")
    run(found)
    assert gpu.launched == [0]
    held.set()
    assert found.ready(tier="fast")
    assert (found.build.tier, found.build.origin, len(gpu.loaded)) == ("fast", "built", 2)
    assert found.cubin() == gpu.loaded[1]
    run(found)
    assert gpu.launched == [0, 1]


def test_it_is_what_is_found_from_then_on(gpu):
    found = ask()
    assert found.ready(tier="fast")
    again = ask()
    assert (again.build.tier, again.build.origin) == ("fast", "memory")
    assert len(gpu.loaded) == 2
    cupar.cache.clear(disk=False)  # as in another process
    later = ask()
    assert (later.build.tier, later.build.origin, later.build.key) == ("fast", "disk", found.build.key)
    assert len(gpu.loaded) == 3
    assert ask(cc=CC).build.key == found.build.key


def test_a_helper_process_links_it(gpu, monkeypatch):
    here = []
    build = produce.build_here

    def noted(spec, *given, **named):
        here.append(spec.option("tier"))
        return build(spec, *given, **named)

    monkeypatch.setattr(produce, "build_here", noted)
    found = ask()
    assert found.ready(tier="fast")
    assert here == ["quick"]
    assert "link" in found.build.seconds


def test_all_objects_get_it(gpu, held):
    first, second = ask(), ask()
    assert first is not second
    third = ask(lambda a, b: a + b)  # another function that does the same
    assert {each.build.tier for each in (first, second, third)} == {"quick"}
    held.set()
    assert third.ready(tier="fast")
    assert [each.build.tier for each in (first, second, third)] == ["fast"] * 3
    assert [each.build.origin for each in (first, second, third)] == ["built", "memory", "memory"]


def test_a_call_that_is_being_made_goes_on(gpu, held):
    found = ask()
    call, free = found._take(0)
    read = call.read((A, B, SMALL, 0))
    call.prepare(read)
    held.set()
    assert found.ready(tier="fast")
    call.enqueue(read, 0, call.numbers, 0)
    free.append(call)
    del call
    run(found)
    run(found)
    assert gpu.launched == [0, 1, 1]


def test_calls_from_many_threads_meanwhile(gpu, held):
    found, end = ask(), threading.Event()

    def work():
        count = 0
        while not end.is_set() or count < 100:
            run(found)
            count += 1
        return count

    with ThreadPoolExecutor(4) as threads:
        counts = [threads.submit(work) for _ in range(4)]
        time.sleep(0.05)
        held.set()
        assert found.ready(tier="fast")
        before = len(gpu.launched)
        time.sleep(0.05)
        end.set()
        total = sum(each.result(MANY) for each in counts)
    assert len(gpu.launched) == total
    assert {0, 1} == set(gpu.launched)
    assert gpu.launched[before:].count(0) <= 4  # which had begun


def test_storage_that_was_enough_still_is(gpu, held):
    found = ask()
    nbytes = found(None, A, B, LARGE, 0)
    held.set()
    assert found.ready(tier="fast")
    assert found(None, A, B, LARGE, 0) > nbytes
    found(DeviceArray(1 << 12, nbytes, "|u1"), A, B, LARGE, 0)
    found(DeviceArray(1 << 12, 2 * nbytes, "|u1"), A, B, LARGE, 0)
    assert [place for place, _ in groupby(gpu.launched)] == [0, 1]
    with pytest.raises(ValueError, match="temp_storage: needs"):
        found(DeviceArray(1 << 12, nbytes - 1, "|u1"), A, B, LARGE, 0)


def test_a_bound_call_goes_on_with_what_it_has(gpu, held):
    found = ask()
    bound = found.bind(A, B, SMALL, 0)
    held.set()
    assert found.ready(tier="fast")
    bound()
    bound.rebind(A, B, SMALL + 1, 0)
    bound()
    assert gpu.launched == [0, 0]
    found.bind(A, B, SMALL, 0)()
    assert gpu.launched == [0, 0, 1]


def test_executables_of_the_quick_one_are_given_back(gpu, held):
    found = ask()
    run(found)
    assert 0 in gpu.graphs
    held.set()
    assert found.ready(tier="fast")
    assert 0 not in gpu.graphs and 1 in gpu.graphs


# --- Which is built ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["quick", "fast"])
def test_one_can_be_pinned(gpu, monkeypatch, tier):
    monkeypatch.setenv("CUPAR_TIER", tier)
    found = ask()
    assert found.build.tier == tier
    assert found.build.origin == "built"
    assert found.ready(tier="fast") == (tier == "fast")
    assert len(gpu.loaded) == 1


def test_a_tier_that_there_is_not(gpu, monkeypatch):
    monkeypatch.setenv("CUPAR_TIER", "faster")
    with pytest.warns(cupar.CacheWarning, match=r"CUPAR_TIER is 'faster' and should be quick or fast"):
        assert ask().build.tier == "quick"
    with pytest.raises(ValueError, match="tier: expected 'quick', 'fast' or None, got 'faster'"):
        ask().ready(tier="faster")


@pytest.mark.parametrize("wait", [True, False])
def test_what_is_built_ahead_is_the_fast_one(gpu, wait, monkeypatch):
    assert ask(cc=CC, wait=wait).build.tier == "fast"
    assert gpu.loaded == []
    monkeypatch.setenv("CUPAR_TIER", "quick")
    cupar.cache.clear(disk=False)
    assert ask(cc=CC, wait=wait).build.tier == "quick"


def test_without_waiting_the_quick_one_comes_first(gpu, held):
    found = ask(wait=False)
    assert not found.ready(timeout=0, tier="fast")
    assert found.ready()
    assert found.build.tier == "quick"
    run(found)
    held.set()
    assert found.ready(tier="fast")
    run(found)
    assert gpu.launched == [0, 1]


def test_preloading_waits_for_the_fast_one(gpu, tmp_path):
    found = ask()
    cupar.preload(found)
    assert found.build.tier == "fast"
    assert (ask().build.tier, ask().build.origin) == ("fast", "memory")


def test_a_list_asks_for_the_fast_one(gpu, held, tmp_path):
    path = tmp_path / "asked.jsonl"
    with cupar.record(path):
        found = ask()
    held.set()
    assert found.ready(tier="fast")
    assert found.build.key in path.read_text()
    cupar.cache.clear()
    cupar.preload(path)
    assert (ask().build.tier, ask().build.key) == ("fast", found.build.key)


def test_algorithms_of_one_tier(empty_cache):
    found = cupar.reduce_into("i4", "i4", plus, 0, cc=CC)
    assert found.build.tier == "fast"
    assert found.ready(tier="fast")
    assert found.ready(tier="quick")


# --- What may go wrong ---------------------------------------------------------------------------------


def test_what_cannot_be_linked_stays_as_it_is(gpu, monkeypatch):
    def build(*given, **named):
        raise cupar.BuildError("no registers left")

    monkeypatch.setattr(produce, "build_with_helper", build)
    found = ask()
    for _ in range(2):
        with pytest.raises(cupar.BuildError, match="no registers left"):
            found.ready(tier="fast")
    assert found.build.tier == "quick"
    cupar.preload(found)
    run(found)
    assert gpu.launched == [0]


def test_what_cannot_be_loaded_does_not_take_its_place(gpu, held):
    found = ask()
    gpu.status = 2
    held.set()
    with pytest.raises(cupar.DriverError, match="loading the code"):
        found.ready(tier="fast")
    run(found)
    assert (found.build.tier, gpu.launched) == ("quick", [0])
    gpu.status = 0
    cupar.cache.clear(disk=False)
    assert ask().build.tier == "fast"


def test_a_helper_that_cannot_be_had_is_not_needed(gpu, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    found = ask()
    assert found.ready(tier="fast")
    assert found.build.tier == "fast"


def test_without_a_directory_it_serves_this_process(gpu, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    found = ask()
    assert found.ready(tier="fast")
    assert found.build.tier == "fast"
    assert found.build.origin != "disk"


def test_it_is_found_in_a_shared_store(gpu, monkeypatch, tmp_path):
    store = {}
    cupar.use_shared(store)
    try:
        assert ask(cc=CC).build.origin == "built"  # as cupar build does it
        cupar.cache.clear()
        found = ask()
        assert (found.build.tier, found.build.origin) == ("fast", "disk")
        assert _cache.disk().holds(found.build.key)
    finally:
        cupar.use_shared(None)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Another process:cupar.CacheWarning")
def test_a_forked_process_can_do_it_itself(gpu, held, monkeypatch):
    monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", "0")  # the parent is at it
    found = ask()
    child = os.fork()
    if not child:
        signal.alarm(MANY)
        held.set()
        try:
            done = found.build.tier == "quick" and found.ready(tier="fast") and found.build.tier == "fast"
        finally:
            os._exit(0 if done else 1)
    assert os.waitpid(child, 0)[1] == 0
    held.set()
    assert found.ready(tier="fast")


# --- Processes -----------------------------------------------------------------------------------------

PREAMBLE = """
    import sys, time, numpy as np, pytest, cupar
    from support import compilers
    from support.gpu import pretended
    from support.two_tiers import twofold
    patch = pytest.MonkeyPatch()
    compilers.as_in_the_run(many=False)
    pretended(patch, 90)
    ask = lambda **more: twofold("i4", "i4", lambda a, b: a + b, np.zeros(1, "i4"), **more)
"""


def script(code, **environment):
    path = os.pathsep.join(each for each in sys.path if each)
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PREAMBLE + code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def test_one_of_several_processes_links_it(empty_cache):
    code = """
    found = ask()
    found.ready(tier="fast")
    print(found.build.tier, found.build.origin)
    """
    started = [script(code) for _ in range(3)]
    outputs = [each.communicate(timeout=MANY) for each in started]
    assert [err for _, err in outputs] == [""] * 3
    origins = sorted(out.split()[1] for out, _ in outputs)
    assert [out.split()[0] for out, _ in outputs] == ["fast"] * 3
    assert origins == ["built", "disk", "disk"]


def test_what_was_begun_is_finished_when_the_program_ends(empty_cache):
    code = """
    found = ask()
    from cupar._compile import workers
    while not any(each.has_started for each in list(workers._finishing_pool.helpers)):
        time.sleep(0.001)
    print(found.build.tier)
    """
    before = time.monotonic()
    with script(code) as process:
        out, err = process.communicate(timeout=MANY)
    assert (out, err, process.returncode) == ("quick\n", "", 0)
    fast = ask(cc=CC, wait=False)  # waits for it, or finds it
    assert fast.ready(MANY)
    assert time.monotonic() - before < MANY
    assert fast.build.tier == "fast"


def test_and_nothing_is_where_nothing_is_kept(empty_cache):
    code = """
    found = ask()
    from cupar._compile import workers
    while not any(each.has_started for each in list(workers._finishing_pool.helpers)):
        time.sleep(0.001)
    print(*[each.process.pid for each in workers._finishing_pool.helpers])
    """
    with script(code, CUPAR_CACHE="0") as process:
        out, err = process.communicate(timeout=MANY)
    assert (err, process.returncode) == ("", 0)
    assert not os.path.exists(f"/proc/{out.strip()}")
