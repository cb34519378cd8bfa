"""What is compiled is what was fingerprinted, whatever changes meanwhile: compared as machine code."""

import builtins
import collections
import enum
import os
import subprocess
import sys
import threading
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compilers import AS_IN_THE_RUN

import cupar
from cupar import TransformIterator
from cupar._compile import python_to_ltoir
from cupar._fingerprint import values, walk
from cupar._ir.resolve import resolve

CC = 90
SCALE = 2
OFFSET = np.float32(0.5)


def scaled(a, b):
    return a * SCALE + b


def build(op, **options):
    return cupar.reduce_into("f4", "f4", op, np.zeros(1, "f4"), cc=CC, **options)


@pytest.fixture
def machine_code(optimised, tmp_path, monkeypatch):
    """Return what an empty cache builds."""
    numbers = iter(range(100))

    def code(op):
        with monkeypatch.context() as context:
            context.setenv("CUPAR_CACHE_DIR", str(tmp_path / f"empty {next(numbers)}"))
            cupar.cache.clear(disk=False)
            found = build(op).cubin()
        cupar.cache.clear(disk=False)
        return found

    return code


@pytest.fixture
def slow_compiler(monkeypatch):
    """Let each compile wait until the user has changed something; return how to let it go on."""
    compile_operator, changed, begun = python_to_ltoir.compile_operator, threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        assert changed.wait(60)
        return compile_operator(*arguments)

    monkeypatch.setattr(python_to_ltoir, "compile_operator", slow)
    return begun, changed


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_what_is_set_and_reset_while_it_compiles_is_not_seen(empty_cache, slow_compiler, machine_code):
    global SCALE
    begun, changed = slow_compiler
    SCALE = 2
    pending = build(scaled, wait=False)
    assert begun.wait(60)
    SCALE = 3
    changed.set()
    found = pending.cubin()
    SCALE = 2
    assert found == machine_code(scaled)
    assert build(scaled).build.origin == "disk"
    assert build(scaled).cubin() == found


@pytest.mark.usefixtures("constants")
@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_each_of_three_in_a_loop_has_the_value_of_when_it_was_asked_for(empty_cache, machine_code):
    global SCALE
    expected, asked = [], []
    for SCALE in (1, 2, 3):
        asked.append(build(scaled, wait=False))
    codes = [each.cubin() for each in asked]
    for SCALE in (1, 2, 3):
        expected.append(machine_code(scaled))
    SCALE = 2
    assert len({each.build.key for each in asked}) == 3
    assert codes == expected


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_another_thread_changes_it_during_a_build_in_the_foreground(empty_cache, slow_compiler, machine_code):
    global SCALE
    begun, changed = slow_compiler
    SCALE = 2

    def change():
        global SCALE
        begun.wait(60)
        SCALE = 7
        changed.set()

    thread = threading.Thread(target=change)
    thread.start()
    found = build(scaled).cubin()
    thread.join()
    SCALE = 2
    assert found == machine_code(scaled)


@pytest.mark.usefixtures("constants")
def test_what_is_remembered_in_memory_is_what_was_asked(empty_cache, monkeypatch):
    """Changed between the look for the memo and the factory's own, and back before it is remembered."""
    global SCALE
    SCALE = 2
    two, SCALE = build(scaled).build.key, 3
    three, SCALE = build(scaled).build.key, 2
    cupar.cache.clear(disk=False)
    fingerprint = walk._fingerprint
    looks = []

    def changing(operator):
        global SCALE
        found = fingerprint(operator)
        looks.append(SCALE)
        SCALE = 3
        return found

    monkeypatch.setattr(walk, "_fingerprint", changing)
    assert build(scaled).build.key == two
    assert looks == [2]
    monkeypatch.undo()
    SCALE = 3
    assert build(scaled).build.key == three
    SCALE = 2
    assert build(scaled).build.key == two


@pytest.mark.usefixtures("constants")
@pytest.mark.usefixtures("optimised")
def test_an_iterator_keeps_its_meaning(empty_cache):
    global SCALE
    SCALE = 2
    twice = TransformIterator("f4", lambda a: a * SCALE)
    SCALE = 3
    thrice = TransformIterator("f4", lambda a: a * SCALE)
    total = lambda items: cupar.reduce_into(items, "f4", cupar.OpKind.PLUS, np.zeros(1, "f4"), cc=CC)
    found = total(twice).cubin()
    SCALE = 2
    cupar.cache.clear(disk=False)
    assert total(TransformIterator("f4", lambda a: a * SCALE)).cubin() == found
    assert total(thrice).cubin() != found


class Shade(enum.IntEnum):
    LIGHT = 1
    DARK = 2


Pair = collections.namedtuple("Pair", "first second", defaults=(4,))


@cupar.gpu_struct
class Peak:
    height: np.float32
    index: np.int32


def helper(a, weight=2):
    return a * TABLE[0] + weight + config.offset


TABLE = np.array([2.0, 3.0], np.float32)
config = types.ModuleType("config")
config.offset = 1.5
config.inner = types.ModuleType("config.inner")
config.inner.table = (1, 2)
config.helper = helper
PAIR = Pair(1.0)
LIMITS = (Shade.DARK, (1.0, 2.0))


def everything(a, b, extra=0.25):
    peak = Peak(a, 1)
    low = min(a, b) + LIMITS[1][0]
    return (
        helper(low, weight=3) + config.helper(b) + config.inner.table[1] * PAIR.second + peak.height + extra
    )


def other_helper(a, weight=0):
    return a - weight


ORIGINAL = {name: globals()[name] for name in ("helper", "PAIR", "LIMITS")}


def set_everything(changed):
    TABLE[:] = [9, 9] if changed else [2, 3]
    config.offset, config.inner.table = (9.0, (9, 9)) if changed else (1.5, (1, 2))
    everything.__defaults__ = (9.0,) if changed else (0.25,)
    ORIGINAL["helper"].__defaults__ = (9,) if changed else (2,)
    others = {"helper": other_helper, "PAIR": Pair(9.0, 9), "LIMITS": (Shade.LIGHT, (9.0, 9.0))}
    globals().update(others if changed else ORIGINAL)
    config.helper = helper


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_all_kinds_of_values_are_frozen(empty_cache, slow_compiler, machine_code):
    begun, changed = slow_compiler
    before = walk.fingerprint(everything).digest
    pending = build(everything, wait=False)
    assert begun.wait(60)
    try:
        set_everything(changed=True)
        assert walk.fingerprint(everything).digest != before
        changed.set()
        found = pending.cubin()
        assert machine_code(everything) != found
    finally:
        set_everything(changed=False)
    assert walk.fingerprint(everything).digest == before
    assert machine_code(everything) == found


def test_a_users_own_functions_are_left_alone(empty_cache):
    """A dispatcher of the user's may be in use by a kernel that compiles at the same time."""
    from numba import cuda, njit

    @cuda.jit(device=True)
    def doubled(a):
        return a * 2

    @njit
    def halved(a):
        return a / 2

    doubled.overloads["of the user's"] = None
    before = dict(vars(halved))
    assert build(lambda a, b: doubled(a) + halved(b)).build.cubin_size
    assert doubled.overloads == {"of the user's": None}
    assert dict(vars(halved)) == before


def test_nothing_in_numba_stays_changed(empty_cache):
    from numba.cuda import dispatcher

    before = dispatcher.get_current_device
    assert build(lambda a, b: a * 3 + b).build.cubin_size
    assert dispatcher.get_current_device is before


def test_numbas_lock_is_held(empty_cache, monkeypatch):
    from numba import cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock

    tried = []
    compile_all = cuda.compile_all

    def others_wait(*arguments, **named):
        def take():
            lock = global_compiler_lock._numba_lock._lock
            tried.append(lock.acquire(timeout=0.05))
            if tried[0]:
                lock.release()

        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
        return compile_all(*arguments, **named)

    monkeypatch.setattr(cuda, "compile_all", others_wait)
    assert build(lambda a, b: a * 5 + b).build.cubin_size
    assert tried == [False]


# --- Helpers through modules -----------------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_helpers_without_a_decorator_are_read_through_modules(empty_cache, machine_code):
    tools = types.ModuleType("tools")
    exec("def twice(a):\n    return inner(a) * 2\ndef inner(a):\n    return a + 1\n", vars(tools))
    found = build(lambda a, b: tools.twice(a) + b).cubin()
    assert found == machine_code(lambda a, b: (a + 1) * 2 + b)
    exec("def inner(a):\n    return a + 2\n", vars(tools))
    assert build(lambda a, b: tools.twice(a) + b).cubin() != found


# --- Identity --------------------------------------------------------------------------------------------

CELL = "class Mode(enum.Enum):\n    FAST = 1\n    EXACT = 2"
NOTEBOOK = f"""
import enum, os, sys
import numpy as np
import cupar
{AS_IN_THE_RUN}
for how in sys.argv[1:]:
    how, os.environ["CUPAR_CACHE_DIR"] = how.split(":")
    cupar.cache.clear(disk=False)
    exec({CELL!r})
    CHOSEN = Mode.FAST
    if how == "again":
        exec({CELL!r})  # the cell is run again, and CHOSEN is of the class of before

    def op(a, b):
        return a + b if CHOSEN is Mode.FAST else a * b

    made = cupar.reduce_into("f4", "f4", op, np.zeros(1, "f4"), cc=90)
    print(made.build.origin, hash(made.cubin()))
"""


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_an_enum_defined_again_is_another(tmp_path):
    def run(*how):
        command = [sys.executable, "-c", NOTEBOOK, *how]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()]

    again, once, alone = run("again:shared", "once:shared", "once:alone")
    assert again[1] != once[1] == alone[1]
    assert run("again:shared") == [["disk", again[1]]]


def test_classes_are_told_apart_where_the_operator_can_tell():
    one, other = (enum.Enum("Mode", "A B") for _ in range(2))

    def digest(first, second):
        return walk.fingerprint(lambda a, b: a if first.A is second.A else b).digest

    assert digest(one, other) != digest(one, one)
    assert digest(one, one) == digest(other, other)
    assert digest(one, other) == digest(other, one)


def test_a_class_defined_again_is_noticed_in_memory():
    one, other = (enum.Enum("Mode", "A B") for _ in range(2))
    names = {"CHOSEN": one.A, "Mode": one}
    exec("def op(a, b): return a if CHOSEN is Mode.A else b", names)
    first = walk.fingerprint(names["op"])
    assert first.guard.check(names["op"])
    names["Mode"] = other
    assert not first.guard.check(names["op"])
    assert walk.fingerprint(names["op"]).digest != first.digest


# --- Recognised operators --------------------------------------------------------------------------------


def test_a_builtin_that_was_replaced_is_not_recognised(monkeypatch):
    dtype = np.dtype("i4")
    recognised = lambda: resolve(op, (dtype, dtype), dtype, recognise=True).kind
    op = lambda a, b: min(a, b)  # noqa: PLW0108
    assert recognised() is cupar.OpKind.MINIMUM
    with monkeypatch.context() as context:
        context.setattr(builtins, "min", lambda *a, **named: sorted(a if len(a) > 1 else a[0], **named)[0])
        with pytest.raises(TypeError, match=r"parameter \*\*named"):  # it is read as any other function
            recognised()
    assert recognised() is cupar.OpKind.MINIMUM


# --- Copies ----------------------------------------------------------------------------------------------

DTYPES = ["f4", "i8", "c8", "?", [("x", "f4"), ("y", "i8")], [("x", "f4", (2,)), ("n", [("m", "u2")])]]


@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3), st.data())
@settings(max_examples=200, deadline=None)
def test_a_held_array_has_the_encoding_of_the_array(dtype, shape, data):
    dtype = np.dtype(dtype, align=data.draw(st.booleans()))
    memory = np.arange(4096, dtype=np.uint8)[data.draw(st.integers(0, 8)) :]
    array = np.zeros(shape, dtype) if not data.draw(st.booleans()) else memory[: memory.size // 64 * 64]
    if array.dtype == np.uint8 and dtype.itemsize <= 64 and not dtype.names:
        array = array[: array.size // dtype.itemsize * dtype.itemsize].view(dtype)
        array = array % 2 == 0 if dtype.kind == "b" else array
        array = array[:: data.draw(st.sampled_from([1, -1, 2, -3]))]
    if data.draw(st.booleans()):
        array = array.T
    if data.draw(st.booleans()):
        array.flags.writeable = False
    copy = values.held(array, "it")
    assert copy is not array
    assert not np.shares_memory(copy, array)
    assert values.encode(copy) == values.encode(array)
    assert (copy.strides, copy.dtype) == (array.strides, array.dtype)


def test_what_is_held_does_not_change():
    numbers, table = [1, 2], np.ones(2)
    value = (numbers, {"a": table})
    held = values.held(value, "it")
    before = values.encode(held)
    numbers.append(3)
    table[0] = 5
    assert values.encode(held) == before != values.encode(value)
    assert values.held((1, "two"), "it") == (1, "two")
