"""The CPU: selection of the device, stored builds, and refusals."""

import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from numba import TypingError
from support.operators import add

import cupar
from cupar import OpKind
from cupar._compile import toolchain
from cupar._cpu import calls, schedules
from cupar._obtain import obtain

X = np.arange(10, dtype="f4")
TWO = np.float16(2)


def summed(**named):
    out = np.zeros(1, "f4")
    reduction = cupar.reduce_into(X, out, add, 0.0, **named)
    reduction.run(X, out, len(X), 0.0)
    return out[0]


def test_never_by_accident(monkeypatch):
    for _ in range(2):
        with pytest.raises(TypeError, match="^d_in: expected a device array, got a NumPy array") as caught:
            cupar.reduce_into(X, X, add, 0.0)
        assert 'cupar.device("cpu")' in str(caught.value)
        with cupar.device("cpu"):
            assert summed() == 45
            with cupar.device("cuda"), pytest.raises(TypeError, match="expected a device array"):
                cupar.reduce_into(X, X, add, 0.0)
            assert cupar.reduce_into("f4", "f4", add, 0.0, cc=90).build.cc == 90
        assert summed(cc="cpu") == 45
    assert cupar.reduce_into("f4", "f4", add, 0.0, cc="cpu").build.cc == "cpu"
    for name in ("tpu", "gpu", "CPU", None):
        with pytest.raises(ValueError, match="^device: expected 'cpu' or 'cuda', got "), cupar.device(name):
            pass


def test_of_the_environment():
    code = "import numpy as np, cupar; x = np.ones(3); cupar.inclusive_scan(x, x, max).run(x, x, 3); print(x)"
    for name, said in (("cpu", "[1. 1. 1.]"), ("gpu", "CUPAR_DEVICE: expected cpu or cuda, got 'gpu'")):
        environment = {**os.environ, "CUPAR_DEVICE": name}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert said in done.stdout + done.stderr


HIT = """
import sys, numpy as np, cupar
table = np.arange(300_000.0)
every_other = table[::2]
def looked_up(i):
    return table[i] + every_other[1]
x, keys, out = np.arange(1000, dtype="i4"), np.arange(1000)[::-1].copy(), np.zeros(1000, "i8")
with cupar.device("cpu"):
    scan = cupar.inclusive_scan(x, out, lambda a, b: a + b)
    scan.run(x, out, 1000)
    assert (out == np.cumsum(x)).all()
    sort = cupar.merge_sort(keys, None, out, None, lambda a, b: a % 10 < b % 10)
    sort.run(keys, None, out, None, 1000)
    assert (out == keys[np.argsort(keys % 10, kind="stable")]).all()
    double = np.zeros(1000)
    look = cupar.unary_transform(x, double, lambda i: looked_up(i))
    table[:] = 0
    look(x, double, 1000)
    assert (double == x + 2).all()
    raising = cupar.unary_transform(x, out, lambda a: (1, 2, 3)[a])
try:
    raising.run(x, out, 1000)
except RuntimeError as error:
    assert str(error) == "unary_transform: operator <lambda> raised IndexError: tuple index out of range"
else:
    raise AssertionError
print(scan.build.origin, sort.build.origin, look.build.origin, "numba" in sys.modules)
"""


def test_the_next_process_imports_no_numba(tmp_path):
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("CUPAR_RECORD", None)
    for said in ("built built built True", "disk disk disk False"):
        done = subprocess.run(
            [sys.executable, "-c", HIT], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == said


def test_another_cpu_has_builds_of_its_own(monkeypatch, specified):
    from cupar._compile.key import build_parts, digest

    with cupar.device("cpu"):
        specification = cupar._obtain.obtain.specification(cupar.reduce_into, "f4", "f4", add, 0.0)
    here = digest(build_parts(specification))
    versions = toolchain.cpu_versions()
    for name in versions:
        monkeypatch.setattr(toolchain, "cpu_versions", lambda name=name: {**versions, name: "another"})
        assert digest(build_parts(specification)) != here


def test_a_damaged_entry_is_made_again(empty_cache):
    """LLVM crashes on bytes that are no object file, or half of one."""
    assert summed(cc="cpu") == 45
    (entry,) = [each for each in cupar.cache.entries() if each.meta.get("entry", "build") == "build"][:1]
    store = cupar._cache.disk()
    found = store.load(entry.key)
    assert found is not None
    head, _, code = found.payload.partition(b"\n")
    contents = [b"no code", head + b"\n", head + b"\n\x7fELF", head + b"\n" + code[:-1]]
    contents += [
        head + b"\n" + code[:64] + bytes(len(code) - 64),
        found.payload.replace(b"cupar_run", b"cupar_xyz"),
    ]
    for content in contents:
        store.store(entry.key, cupar._cache.Entry(found.meta, content))
        cupar.cache.clear(disk=False)
        cupar._base.warnings.warned.discard("useless")
        with pytest.warns(cupar.CacheWarning, match="unusable"):
            assert summed(cc="cpu") == 45


def test_what_is_for_gpus_is_refused_by_name():
    from numba import cuda

    def threads(a, b):
        return a + b + cuda.threadIdx.x

    with cupar.device("cpu"):
        with pytest.raises(TypeError, match="^op: RawOp 'f' is GPU code"):
            cupar.reduce_into(X, X, cupar.RawOp("f", b"code"), 0.0)
        with pytest.raises(TypeError, match=r"it reads numba.cuda.*threadIdx, which is for GPUs"):
            cupar.reduce_into(X, X, threads, 0.0)
        with pytest.raises(TypeError, match="^array: a view is for compiled host code"):
            cupar.view(X)
        algorithm = cupar.reduce_into(X, X, add, 0.0)
        with pytest.raises(ValueError, match="was built for the CPU"):
            algorithm.cubin()
        with pytest.raises(TypingError, match="is for the CPU"):
            algorithm._numba_type_
        table = np.ones(3, "f2")
        with pytest.raises(TypeError, match="captures 'table', an array of float16"):
            cupar.unary_transform("i4", "f4", lambda a: table[a])


def test_a_device_array_is_refused():
    class Device:
        def __init__(self):
            array = {"shape": (10,), "typestr": "<f4", "data": (64, False), "version": 3}
            self.__cuda_array_interface__ = array

    with pytest.raises(TypeError, match="^d_in: expected a host array, as this is for the CPU, got a Device"):
        cupar.reduce_into("f4", "f4", add, 0.0, cc="cpu").run(Device(), X, 10, 0.0)


def test_captured_arrays_are_read_in_each_call():
    table, out = np.arange(10, dtype="i8"), np.zeros(10, "i8")
    with cupar.device("cpu"):
        looked_up = cupar.unary_transform("i8", "i8", lambda a: table[a])
        places = np.arange(10)[::-1].copy()
        looked_up(places, out, 10)
        np.testing.assert_array_equal(out, table[::-1])
        table *= 3
        looked_up(places, out, 10)
        np.testing.assert_array_equal(out, table[::-1])

        def count(a):
            table[0] += a
            return a

        cupar.unary_transform("i8", "i8", count)(places, out, 10)
        assert table[0] == 45


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1", "?"])
def test_integers_are_cs(dtype):
    a = np.array([7, -7, 7, -7, 100], "i8").astype(dtype)
    b = np.array([2, 2, -2, -2, 3], "i8").astype(dtype)
    out = np.zeros(5, dtype)
    quotients = [int(x / y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    with cupar.device("cpu"):
        for kind, expected in (
            (cupar.OpKind.DIVIDES, quotients),
            (cupar.OpKind.MODULUS, np.fmod(a.astype("i8"), b.astype("i8"))),
            (cupar.OpKind.PLUS, a.astype("i8") + b.astype("i8")),
            (cupar.OpKind.MULTIPLIES, a.astype("i8") * b.astype("i8")),
        ):
            cupar.binary_transform(a, b, out, kind)(a, b, out, 5)
            np.testing.assert_array_equal(out, np.array(expected).astype(dtype))
        if dtype == "i4":
            cupar.binary_transform(a, b, out, lambda x, y: x // (y - y))(a, b, out, 5)  # no exception


def test_halves_are_rounded_as_numpy_does():
    words = np.arange(65536, dtype="u2").view("f2")
    wide = np.concatenate([words.astype("f4"), np.random.default_rng(0).normal(size=50_000).astype("f4")])
    with np.errstate(invalid="ignore"):
        wide = np.concatenate([wide, wide * np.float32(1.0003), wide * np.float32(2.0**-15)])
    out = np.zeros(len(wide), "f2")
    with cupar.device("cpu"), np.errstate(over="ignore"):
        cupar.unary_transform(words, out, cupar.OpKind.IDENTITY)(words, out, len(words))
        np.testing.assert_array_equal(out[: len(words)], words)
        cupar.unary_transform(wide, out, lambda a: a)(wide, out, len(wide))
        np.testing.assert_array_equal(out, wide.astype("f2"))
        halves = np.arange(0x7C00, dtype="u2").view("f2").astype("f8")
        given = np.nextafter((halves[1:] + halves[:-1]) / 2, np.inf)  # in float32, in the middle of two
        cupar.unary_transform(given, out, lambda a: np.float16(a) * TWO)(given, out, len(given))
        np.testing.assert_array_equal(out[: len(given)], given.astype("f2") * TWO)


N = 300_000  # several parts


def in_parts(x, keys):
    """Yield algorithms that are done in parts: arguments, outputs, and what these are to begin with."""
    n, counts = len(x), np.zeros(2, "i8")

    def empty(*dtypes):
        return [np.zeros(n, dtype) for dtype in dtypes]

    def first(a, b):
        return a

    total = np.zeros(1, "f4")
    yield cupar.reduce_into(x, total, add, 1.5), (x, total, n, 1.5), (total,), [[x.sum(dtype="f8") + 1.5]]
    (out,) = empty("f4")
    yield cupar.inclusive_scan(x, out, add), (x, out, n), (out,), [np.cumsum(x, dtype="f8")]
    (out,) = empty("i8")
    yield cupar.exclusive_scan(keys, out, add, 7), (keys, out, n, 7), (out,), [np.cumsum(keys) - keys + 7]
    (out,) = empty("i8")
    yield cupar.inclusive_scan(keys, out, first), (keys, out, n), (out,), [np.full(n, keys[0])]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    lengths = np.diff(begins, append=n)
    of_run = np.repeat(np.arange(len(begins)), lengths)
    within = np.arange(n) - begins[of_run]
    (out,) = empty("i8")
    scan = cupar.exclusive_scan_by_key(keys, cupar.ConstantIterator(np.int64(2)), out, add, 5)
    yield scan, (keys, cupar.ConstantIterator(np.int64(2)), out, n, 5), (out,), [5 + 2 * within]
    unique, out = empty("i8", "i8")
    runs = cupar.run_length_encode(keys, unique, out, counts)
    yield runs, (keys, unique, out, counts, n), (unique, out, counts), [keys[begins], lengths, [len(begins)]]
    unique, out = empty("i8", "i8")
    reduction = cupar.reduce_by_key(keys, unique, cupar.CountingIterator(np.int64(0)), out, counts, first)
    given = keys, unique, cupar.CountingIterator(np.int64(0)), out, counts, n
    yield reduction, given, (unique, out, counts), [keys[begins], begins, [len(begins)]]
    unique, out = empty("i8", "f4")
    uniques = cupar.unique_by_key(keys, x, unique, out, counts, lambda a, b: a == b)
    yield uniques, (keys, x, unique, out, counts, n), (unique, out, counts), [keys[begins], x[begins]]
    (out,) = empty("f4")
    chosen = cupar.select(x, out, counts, lambda a: a > 0)
    yield chosen, (x, out, counts, n), (out, counts), [x[x > 0], [(x > 0).sum()]]
    outs = empty("f4", "f4", "f4")
    low, middle = x < -0.5, (x >= -0.5) & (x < 0.5)
    partition = cupar.three_way_partition(x, *outs, counts, lambda a: a < -0.5, lambda a: a < 0.5)
    parts = [x[low], x[middle], x[~(low | middle)], [low.sum(), middle.sum()]]
    yield partition, (x, *outs, counts, n), (*outs, counts), parts
    bins = np.zeros(64, "i4")
    histogram = cupar.histogram_even(x, bins, 65, -2.0, 2.0, n)
    yield histogram, (x, bins, 65, -2.0, 2.0, n), (bins,), [np.histogram(x, 64, (-2, 2))[0]]
    (out,) = empty("f4")
    sort = cupar.merge_sort(x, None, out, None, lambda a, b: a > b)
    yield sort, (x, None, out, None, n), (out,), [np.sort(x)[::-1]]


def test_results_do_not_depend_on_the_cores(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=N).astype("f4")
    # Runs of all lengths: some go over several parts, and some end where one does.
    lengths = [1, 70_000, 1, 1, 65_533, 100_000, 3, *[7] * 4000]
    keys = np.repeat(np.arange(len(lengths)), lengths)[:N]
    keys = np.concatenate([keys, np.arange(len(lengths), len(lengths) + N - len(keys))])
    with cupar.device("cpu"):
        for algorithm, given, outs, expected in in_parts(x, keys):
            found = []
            for threads in (1, 2, 7):
                monkeypatch.setattr("cupar._cpu.threads.cores", lambda threads=threads: threads)
                for out in outs:
                    out[:] = 0
                algorithm.run(*given)
                found.append(b"".join(out.tobytes() for out in outs))
            assert len(set(found)) == 1, algorithm
            for out, wanted in zip(outs, expected, strict=False):
                np.testing.assert_allclose(out[: len(wanted)], wanted, rtol=1e-4, atol=1e-2)


def test_many_values_are_searched_for_by_several_threads():
    spec = obtain.specification(cupar.lower_bound, "f4", "f4", "i8", add, cc="cpu")
    for num_values, by_several in ((1_000_000, True), (4096, False)):
        problem = SimpleNamespace(num_items=1000, num_values=num_values)
        schedule = schedules.schedule(spec, problem)
        assert (schedule.size >= calls._SMALL and len(schedule.steps[0]) > 1) is by_several


def test_what_is_not_commutative_is_scanned_in_order():
    """2 x 2 matrices modulo 251, many parts."""
    n = 200_000
    matrix = cupar.gpu_struct({"a": "i8", "b": "i8", "c": "i8", "d": "i8"})
    rng = np.random.default_rng(1)
    x, out = np.zeros(n, matrix.dtype), np.zeros(n, matrix.dtype)
    for name in "abcd":
        x[name] = rng.integers(0, 251, n)

    def times(s, t):
        return matrix(
            (s.a * t.a + s.b * t.c) % 251,
            (s.a * t.b + s.b * t.d) % 251,
            (s.c * t.a + s.d * t.c) % 251,
            (s.c * t.b + s.d * t.d) % 251,
        )

    cupar.inclusive_scan(x, out, times, cc="cpu").run(x, out, n)
    row = [tuple(map(int, x[0]))]
    for i in range(1, n):
        (a, b, c, d), (e, f, g, h) = row[-1], map(int, x[i])
        row.append(
            ((a * e + b * g) % 251, (a * f + b * h) % 251, (c * e + d * g) % 251, (c * f + d * h) % 251)
        )
    np.testing.assert_array_equal(out, np.array(row, x.dtype))


def test_an_error_in_a_part_waits_for_the_others(monkeypatch):
    """As Ctrl-C does: arrays are not let go while a thread still writes."""
    host, out = np.arange(2_000_000), np.zeros(2_000_000, "i8")
    running, another = [], threading.Event()

    class Stopped(Exception):
        pass

    def slow(function):
        def call(address):
            running.append(1)
            try:
                if threading.current_thread() is threading.main_thread() and another.wait(10):
                    raise Stopped
                another.set()
                time.sleep(0.2)
                function(address)
            finally:
                running.remove(1)

        return call

    with cupar.device("cpu"):
        doubled = cupar.unary_transform(host, out, lambda a: 2 * a)
        monkeypatch.setattr("cupar._cpu.threads.cores", lambda: 3)
        code = doubled._built.code
        function = code.function()
        monkeypatch.setattr(code, "_function", slow(function))
        with pytest.raises(Stopped):
            for _ in range(20):  # this thread may get no part
                another.clear()
                doubled(host, out, len(host))
        assert not running


def test_one_object_from_many_threads():
    host = np.arange(300_000)
    scan = cupar.inclusive_scan("i8", "i8", add, cc="cpu")
    outs = [np.zeros_like(host) for _ in range(6)]
    threads = [threading.Thread(target=scan.run, args=(host, out, len(host))) for out in outs]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for out in outs:
        np.testing.assert_array_equal(out, np.cumsum(host))


def test_in_a_forked_child():
    assert summed(cc="cpu") == 45
    child = os.fork()
    if not child:
        os._exit(0 if summed(cc="cpu") == 45 else 1)
    assert os.waitpid(child, 0)[1] == 0


# --- What a factory is asked again -----------------------------------------------------------------------


def test_what_was_asked_before_is_answered_at_once(monkeypatch):
    calls = []
    obtain = cupar._obtain.obtain.obtain
    for module in (cupar.reduce, cupar.scan, cupar.transform):
        monkeypatch.setattr(module, "obtain", lambda *a, **n: (calls.append(a), obtain(*a, **n))[1])
    out, table, init = np.zeros(10, "f4"), np.arange(10.0, dtype="f4"), np.zeros(1, "f4")
    questions = (
        lambda: cupar.reduce_into(X, out, add, init),
        lambda: cupar.reduce_into(X, out, add, init, determinism=cupar.Determinism.RUN_TO_RUN),
        lambda: cupar.inclusive_scan(X.reshape(2, 5).T, out, OpKind.PLUS, np.float32(0)),
        lambda: cupar.unary_transform(cupar.CountingIterator(np.int32(0)), out, OpKind.NEGATE),
    )
    with cupar.device("cpu"):
        for ask in questions:
            first = [ask() for _ in range(3)][-1]
            calls.clear()
            assert ask() is first and not calls
        calls.clear()
        for _ in range(3):  # its arrays are its own
            cupar.unary_transform(X, out, lambda a: a + table[0])
        assert len(calls) == 3
    first = [cupar.reduce_into(X, out, add, init, cc="cpu") for _ in range(3)][-1]
    calls.clear()
    assert cupar.reduce_into(X, out, add, init, cc="cpu") is first and not calls


def test_other_questions_are_told_apart():
    out = np.zeros(10, "f4")
    with cupar.device("cpu"):

        def ask(d_in, h_init, op=add, d_out=out):
            return [cupar.exclusive_scan(d_in, d_out, op, h_init) for _ in range(3)][-1]

        of_one = ask(X, np.zeros(1, "f4"))
        assert ask(X, np.ones(1, "f4")) is of_one
        of_value = ask(X, np.zeros((), "f4"))
        assert of_value is not of_one and ask(X, 0.0) is not of_one
        with pytest.raises(TypeError, match="^d_in: "):
            ask(X.astype(">f4"), np.zeros(1, "f4"))
        with pytest.raises(ValueError, match="contiguous"):
            ask(X[::2], np.zeros(1, "f4"))
        with pytest.raises(TypeError, match="masked"):
            ask(np.ma.masked_array(X), np.zeros(1, "f4"))
        scale = 2

        def scaled(a, b):
            return a + scale * b

        before = ask(X, 0.0, scaled)
        scale = 3
        assert ask(X, 0.0, scaled) is not before
        levels = [np.array([n], "i4") for n in (5, 11)]
        counts = np.zeros(10, "i4")
        for number in levels * 3:
            made = cupar.histogram_even(X, counts, number, 0.0, 10.0, 10)
            made.run(X, counts, number, 0.0, 10.0, 10)
            assert counts[: number[0] - 1].sum() == 10
    with pytest.raises(TypeError, match="expected a device array"):
        cupar.exclusive_scan(X, out, add, np.zeros(1, "f4"))


RESULTS = {
    "half": lambda a: a / 2,
    "whole": lambda a: a // 2,
    "scaled": lambda a: a * np.int16(3),
    "either": lambda a: a if a > 0 else 1.5,
    "pair": lambda a: (a, a > 0),
    "floor": lambda a: -math.floor(a),
    "fmod": lambda a: math.fmod(a, a),
    "modf": lambda a: math.modf(a)[0],
    "cast": lambda a: -np.float32(a),
}


@pytest.mark.parametrize("name", RESULTS)
def test_types_of_results_are_those_of_a_gpu(name):
    for dtype in ("u1", "u2", "i4", "u8", "f2", "f4"):
        counting = cupar.CountingIterator(np.dtype(dtype).type(1))
        on_gpu = cupar.TransformIterator(counting, RESULTS[name]).dtype
        with cupar.device("cpu"):
            assert cupar.TransformIterator(counting, RESULTS[name]).dtype == on_gpu, dtype
