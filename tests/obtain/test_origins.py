"""Where builds come from: built once, linked for new operators, then found on disk and in memory."""

import fcntl
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest
from support.common import context, pretend
from support.gpu import pretended

import cupar
from cupar import _build, _cache
from cupar._base import versions
from cupar._base import warnings as _warnings
from cupar._compile import nvrtc
from cupar._device import storage
from cupar._kernels.image import Image
from cupar._store import locks

CC = 90
INT = np.zeros(1, np.int32)


def reduction(op, **options):
    return cupar.reduce_into(np.int32, np.int32, op, INT, **{"cc": CC, **options})


def child(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("optimised")
def test_built_then_linked_then_memory_then_disk(empty_cache, monkeypatch):
    cupar.cache.reset_stats()
    first = reduction(lambda a, b: a + b)
    assert first.build.origin == "built"
    assert set(first.build.seconds) == {"template", "operator", "link"}

    monkeypatch.setattr(nvrtc, "compile_kernels", None)  # what reads CUB's headers
    second = reduction(lambda a, b: a * b)
    assert second.build.origin == "linked"
    assert set(second.build.seconds) == {"operator", "link"}
    assert second.build.key != first.build.key

    monkeypatch.setattr(_build, "operators", None)  # nothing is compiled from here on
    again = reduction(lambda a, b: a + b)
    assert again.build.origin == "memory"
    assert again.build.key == first.build.key
    assert reduction(lambda a, b: a + b) is again

    cupar.cache.clear(disk=False)
    found = reduction(lambda a, b: a + b)
    assert found.build.origin == "disk"
    assert found.build.cubin_size == first.build.cubin_size
    assert found.cubin() == first.cubin()
    assert cupar.cache.stats() == cupar.cache.Stats(memory=2, disk=1, linked=1, built=1)


PROGRAM = """
    import json, sys
    import numpy as np, cupar
    SCALE = 3
    def scaled(a, b):
        return a + SCALE * b
    found = cupar.reduce_into(np.int32, np.int32, scaled, np.zeros(1, np.int32), cc=90)
    print(json.dumps([found.build.origin, found.build.key, sorted(sys.modules)]))
"""


def test_another_process_finds_it_and_imports_no_compiler(empty_cache):
    here = {"__name__": "__main__"}
    exec(textwrap.dedent(PROGRAM), here)
    origin, key = here["found"].build.origin, here["found"].build.key
    assert origin == "built"
    origin, again, modules = json.loads(child(PROGRAM, PYTHONHASHSEED="7"))
    assert (origin, again) == ("disk", key)
    heavy = {"numba", "cuda.core", "cuda.compute", "cuda.bindings", "cuda.pathfinder", "filelock", "dis"}
    assert not heavy - {"dis"} & set(modules)
    assert not [name for name in modules if name.startswith(("llvmlite", "cuda.bindings"))]


@pytest.mark.slow
def test_processes_that_start_together_build_once(empty_cache):
    code = textwrap.dedent("""
        import numpy as np, cupar
        cupar.unary_transform(np.int16, np.int16, cupar.OpKind.NEGATE, cc=90)
        stats = cupar.cache.stats()
        print(stats.built + stats.linked, stats.disk)
    """)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=300) for process in children]
    assert all(process.returncode == 0 for process in children), outputs
    assert sorted(out.strip() for out, _ in outputs) == ["0 1"] * 3 + ["1 0"]
    assert [err for _, err in outputs] == [""] * 4


def test_threads_that_ask_together_build_once(empty_cache, monkeypatch):
    calls = []
    compile_kernels = nvrtc.compile_kernels
    monkeypatch.setattr(nvrtc, "compile_kernels", lambda *a: calls.append(a) or compile_kernels(*a))
    barrier, found = threading.Barrier(8), []

    def work():
        barrier.wait()
        found.append(reduction(lambda a, b: a - b))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert sorted(algorithm.build.origin for algorithm in found) == ["built"] + ["memory"] * 7


def test_without_disk_the_template_still_serves_the_process(empty_cache, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    assert reduction(lambda a, b: a + b + 1).build.origin == "built"
    assert reduction(lambda a, b: a + b + 2).build.origin == "linked"
    assert reduction(lambda a, b: a + b + 1).build.origin == "memory"
    assert not empty_cache.exists()


@pytest.mark.usefixtures("optimised")
def test_a_damaged_entry_is_built_again(empty_cache, monkeypatch):
    first = reduction(lambda a, b: a + b)
    file = next(empty_cache.rglob(f"{first.build.key}.cupar"))
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    cupar.cache.clear(disk=False)
    with pytest.warns(cupar.CacheWarning, match="damaged"):
        again = reduction(lambda a, b: a + b)
    assert again.build.origin == "linked"
    assert again.cubin() == first.cubin()
    cupar.cache.clear(disk=False)
    assert reduction(lambda a, b: a + b).build.origin == "disk"


def test_a_cache_that_cannot_be_made_costs_one_warning(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cupar.cache.clear(disk=False)
    with pytest.warns(cupar.CacheWarning) as warnings:
        assert reduction(lambda a, b: a + b + 3).build.origin == "built"
        assert reduction(lambda a, b: a + b + 4).build.origin == "linked"
    assert len(warnings) == 1
    cupar.cache.clear(disk=False)


@pytest.mark.usefixtures("optimised")
@pytest.mark.usefixtures("constants")
@pytest.mark.slow
def test_a_changed_global_closure_or_default_is_noticed(empty_cache):
    offset = 1

    def with_closure(a, b):
        return a + b + offset

    def with_global(a, b):
        return a + b + GLOBAL

    def with_default(a, b, c=1):
        return a + b + c

    global GLOBAL
    for op in (with_closure, with_global, with_default):
        GLOBAL = offset = 1
        one = reduction(op)
        assert reduction(op).build.origin == "memory"
        GLOBAL = offset = 2
        with_default.__defaults__ = (2,)
        two = reduction(op)
        assert two.build.origin == "linked"
        assert two.build.key != one.build.key
        assert two.cubin() != one.cubin()
        GLOBAL = offset = 1
        with_default.__defaults__ = (1,)
        assert reduction(op).build.key == one.build.key


GLOBAL = 1


def test_entries_say_what_they_are(empty_cache):
    build = reduction(lambda a, b: a + b).build
    header, meta, *_ = next(empty_cache.rglob(f"{build.key}.cupar")).read_bytes().split(b"\n")
    meta = json.loads(meta)
    assert header.startswith(b"cupar-entry 1 ")
    assert (meta["algorithm"], meta["cc"]) == ("reduce_into", 90)
    assert meta["seconds"]["link"] == pytest.approx(build.seconds["link"], abs=1e-3)
    assert meta["parts"]["versions"]["cuda-cccl"] == versions.package_version("cuda-cccl")
    assert meta["operators"]["op"].endswith("<lambda>")
    assert str(empty_cache) not in json.dumps(meta)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that loads code; its status is what loading ends with."""
    monkeypatch.setattr(_warnings, "warned", set())
    return pretended(monkeypatch, CC)


def spoil(key):
    """Have an entry that is what was stored, and no build."""
    _cache.disk().store(key, _cache.Entry({"cubin_size": 4}, b"junk"))


@pytest.mark.usefixtures("optimised")
def test_a_build_that_cannot_be_deserialised_is_made_again(empty_cache, gpu):
    first = reduction(lambda a, b: a + b, cc=None)
    spoil(first.build.key)
    cupar.cache.clear(disk=False)
    with pytest.warns(cupar.CacheWarning, match="unusable"):
        again = reduction(lambda a, b: a + b, cc=None)
    assert again.build.origin == "linked"
    assert again.cubin() == first.cubin()
    cupar.cache.clear(disk=False)
    assert reduction(lambda a, b: a + b, cc=None).build.origin == "disk"


@pytest.mark.parametrize("status", [2, 200, 209, 222, 700])  # no memory, no image for it, a broken context
def test_a_build_that_the_driver_refuses_is_kept(empty_cache, gpu, recwarn, status):
    shared = {}
    cupar.use_shared(shared)
    try:
        first = reduction(lambda a, b: a + b, cc=None)
        kept = dict(shared), _cache.disk().load(first.build.key).payload
        cupar.cache.clear(disk=False)
        gpu.status = status
        with pytest.raises(cupar.DriverError, match=f"^loading the code of a reduce.*: {status}"):
            reduction(lambda a, b: a + b, cc=None)
        assert (dict(shared), _cache.disk().load(first.build.key).payload) == kept
        gpu.status = 0
        assert reduction(lambda a, b: a + b, cc=None).build.origin == "disk"
    finally:
        cupar.use_shared(None)
    assert not recwarn.list


def test_a_new_build_that_the_driver_refuses_is_kept(empty_cache, gpu):
    gpu.status = 2
    with pytest.raises(cupar.DriverError):
        reduction(lambda a, b: a + b, cc=None)
    gpu.status = 0
    assert reduction(lambda a, b: a + b, cc=None).build.origin == "disk"


def test_what_is_made_again_replaces_nothing_before_it_has_loaded(empty_cache, gpu, monkeypatch):
    shared = {}
    cupar.use_shared(shared)
    try:
        first = reduction(lambda a, b: a + b, cc=None)
        spoil(first.build.key)
        kept = dict(shared)
        cupar.cache.clear(disk=False)
        gpu.status = 700
        with pytest.warns(cupar.CacheWarning, match="unusable"), pytest.raises(cupar.DriverError):
            reduction(lambda a, b: a + b, cc=None)
        assert dict(shared) == kept
        assert _cache.disk().load(first.build.key) is None
    finally:
        cupar.use_shared(None)


@pytest.mark.parametrize("error", [MemoryError(), OSError("libnvrtc.so is gone")])
def test_what_this_process_lacks_is_not_the_builds_fault(empty_cache, gpu, monkeypatch, error):
    first = reduction(lambda a, b: a + b, cc=None)
    cupar.cache.clear(disk=False)

    def fail(blob):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Image, "loads", fail)
        with pytest.raises(type(error)):
            reduction(lambda a, b: a + b, cc=None)
    assert reduction(lambda a, b: a + b, cc=None).build.origin == "disk"
    assert _cache.disk().load(first.build.key) is not None


def test_memory_that_cupar_keeps_is_given_back_for_code(empty_cache, gpu, monkeypatch):
    def trim(self):
        gpu.status = 0

    gpu.status = 2
    monkeypatch.setattr(storage.ContextMemory, "trim", trim)
    assert reduction(lambda a, b: a + b, cc=None).build.origin == "built"
    assert len(gpu.loaded) == 1


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["template", "result"])
def test_an_entry_that_is_of_no_use_is_made_again(empty_cache, monkeypatch, kind):
    """Its checksum is right: whoever stored it stored something else."""
    from cupar import _cache
    from cupar._base import warnings as _warnings

    monkeypatch.setattr(_warnings, "warned", set())

    def ask():
        items = cupar.TransformIterator("i4", lambda a: a + 1.5)
        return cupar.reduce_into(items, "f8", lambda a, b: a + b, np.zeros(1), cc=CC)

    first = ask()
    disk = _cache.disk()
    for key, *_ in list(disk.entries()):
        entry = disk.load(key)
        if entry.meta["entry"] == kind:
            disk.store(key, _cache.Entry(entry.meta, b"garbage("))
        elif entry.meta["entry"] == "build":
            disk.discard(key)
    cupar.cache.clear(disk=False)
    with pytest.warns(cupar.CacheWarning, match="unusable and will be rebuilt"):
        again = ask()
    assert again.build.key == first.build.key
    assert again.cubin() == first.cubin()
    cupar.cache.clear(disk=False)
    assert ask().build.origin == "disk"


def test_one_object_serves_every_context_of_its_cc(empty_cache, gpu, monkeypatch):
    found = reduction(cupar.OpKind.PLUS)
    places = [context(0, CC), context(1, CC), context(0, CC, number=9)]  # the last one another of the first's
    for place, loaded in ((0, 1), (1, 2), (2, 3), (0, 3), (1, 3), (2, 3)):
        pretend(monkeypatch, places[place])
        found.load()
        assert len(gpu.loaded) == loaded
    pretend(monkeypatch, context(2, 80))
    with pytest.raises(ValueError, match=r"built for sm_90, the current device 2 is sm_80"):
        found.load()


def test_a_fork_while_other_threads_hold_locks():
    out = child("""
        import os, signal, threading
        import cupar
        from cupar._fingerprint import extensions as _extensions
        from cupar._fingerprint import walk as _fingerprint
        make = lambda k: cupar.reduce_into("i4", "i4", lambda a, b: a + b * k, 0, cc=90).build.cubin_size > 0
        make(1)
        held = threading.Event()
        def hold():
            with _fingerprint._known_loads._lock, _fingerprint._recent._lock, _extensions.lock:
                held.set()
                threading.Event().wait(20)
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        pid = os.fork()
        if pid == 0:
            signal.alarm(15)
            print(make(2), flush=True)
            os._exit(0)
        print(os.waitpid(pid, 0)[1], flush=True)
        os._exit(0)
    """)
    assert out.split() == ["True", "0"]


def test_one_template_for_all_operators(empty_cache):
    for op in (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a if a > b else b):
        reduction(op)
    kinds = [
        json.loads(file.read_bytes().split(b"\n")[1])["parts"]["entry"]
        for file in empty_cache.rglob("*.cupar")
    ]
    assert sorted(kinds) == ["build"] * 3 + ["template"]


def test_clear(empty_cache):
    reduction(lambda a, b: a + b)
    assert cupar.cache.usage().entries == 2
    assert cupar.cache.directory() == empty_cache
    cupar.cache.clear()
    assert cupar.cache.usage().entries == 0
    assert reduction(lambda a, b: a + b).build.origin == "built"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_with_an_empty_memory(empty_cache):
    out = child("""
        import os
        import cupar
        make = lambda: cupar.unary_transform("i4", "i4", cupar.OpKind.NEGATE, cc=90).build.origin
        make()
        pid = os.fork()
        if pid == 0:
            print(make(), make(), cupar.cache.stats().built, flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        print(make())
    """)
    assert out.split() == ["disk", "memory", "0", "memory"]


def test_a_call_waits_for_all_its_locks_no_longer_than_for_one(empty_cache, tmp_path, monkeypatch):
    def ask():
        return cupar.unary_transform("i4", "i4", lambda a: 3 * a, cc=90).build

    monkeypatch.setattr(_warnings, "warned", set())
    assert ask().origin == "built"
    keys = [each.key for each in cupar.cache.entries() if each.entry in ("build", "template")]
    assert len(keys) == 2
    # As other processes hold them that never come to an end.
    held = tmp_path / "another" / "v1" / "locks"
    held.mkdir(mode=0o700, parents=True)
    for folder in (*held.parents[:2], held):
        folder.chmod(0o700)
    waited = []
    lock = locks.acquire

    def timed(path, timeout):
        start = time.monotonic()
        try:
            return lock(path, timeout)
        finally:
            waited.append((path.stem, time.monotonic() - start))

    monkeypatch.setattr(locks, "acquire", timed)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))
    monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", "2")
    cupar.cache.clear(disk=False)
    with ExitStack() as stack:
        for key in keys:
            fcntl.flock(stack.enter_context(open(held / f"{key}.lock", "w")), fcntl.LOCK_EX)
        with pytest.warns(cupar.CacheWarning, match="for 2 seconds"):
            assert ask().origin == "built"
    assert {name for name, _ in waited} >= set(keys)
    # What earlier tests left to be built in the background may wait for locks of its own.
    assert 2 <= sum(seconds for name, seconds in waited if name in keys) < 3.9  # and not twice 2
    assert {each.key for each in cupar.cache.entries()} >= set(keys)
