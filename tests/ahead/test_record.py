"""Recorded lists: requests to factories are restored unchanged, in any process."""

import base64
import collections
import enum
import functools
import inspect
import io
import json
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import types
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.common import NO_CODE
from support.compilers import AS_IN_THE_RUN

import cupar
from cupar import OpKind, RawOp
from cupar._ahead import batch, codec, record
from cupar._base import warnings as _warnings
from cupar._compile import key as _key
from cupar._device import driver
from cupar._fingerprint import frozen as _frozen
from cupar._fingerprint import names, values, walk
from cupar._obtain import factory_cache, obtain, produce

CC = 90
ZERO = np.zeros(1, np.float32)
SCALE = 3


@cupar.gpu_struct
class Peak:
    height: np.float32
    place: np.int64


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


@pytest.fixture(autouse=True)
def nothing_is_recorded(monkeypatch):
    """Each test begins as a process does that records nothing, and has warned of nothing."""
    monkeypatch.setattr(obtain, "observer", None)
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setenv("CUPAR_TUNED", "0")  # a GPU that a test pretends is of no kind of card
    factory_cache.forget()


@pytest.fixture
def nothing_is_built(monkeypatch):
    """Factories return objects that are being built for ever."""
    monkeypatch.setattr(obtain, "answer", being_built)


class Pending:
    """What is being built for ever."""

    refusal = ""

    def __init__(self, spec):
        self.spec = spec


def being_built(spec, device, wait=True, tier="", used_on=None):
    return spec.algorithm_class(Pending(spec), spec.states)


@pytest.fixture
def nothing_is_compiled(empty_cache, monkeypatch):
    """Builds are stored and found as ever, but there is nothing in them."""
    monkeypatch.setattr(produce, "build_here", lambda spec, seconds: (NO_CODE, 4, "built"))


def key(asked):
    spec = asked._spec if isinstance(asked, cupar.Algorithm) else asked
    return _key.digest(_key.build_parts(spec))


class DeviceArray:
    """What another library says of an array in device memory."""

    def __init__(self, dtype="f4", shape=(8,)):
        self.dtype, self.shape = np.dtype(dtype), shape

    @property
    def __cuda_array_interface__(self):
        return {"typestr": self.dtype.str, "shape": self.shape, "data": (4096, False), "version": 3}

    def __reduce__(self):
        raise AssertionError("a device array must not be pickled: that copies what is in it")


def defined(source, **names):
    """Execute source in a module of its own, which has `names`, and return what it calls `op`."""
    namespace = {"__name__": "somewhere", **names}
    exec(textwrap.dedent(source), namespace)
    return namespace["op"]


# --- What is asked comes back ------------------------------------------------------------------------------

ARRAY = DeviceArray()
RAW = RawOp("add", b"code", extra_ltoirs=(b"more", b"code"))
STATE = RawOp("look_up", b"code", state=b"addresses of arrays.....", state_alignment=8)
UP, PLUS = cupar.SortOrder.ASCENDING, OpKind.PLUS

CASES = {
    "dtypes": lambda: cupar.reduce_into("f4", np.dtype("f8"), PLUS, ZERO, cc=CC),
    "types": lambda: cupar.reduce_into(np.float32, float, PLUS, 0, cc=(9, 0)),
    "arrays": lambda: cupar.reduce_into(ARRAY, d_out=ARRAY, op=PLUS, h_init=0.5, cc="sm_90"),
    "no initial value": lambda: cupar.reduce_into("f4", "f4", PLUS, None, cc=80),
    "an option": lambda: cupar.reduce_into(
        "f4", "f4", PLUS, ZERO, determinism=cupar.Determinism.NOT_GUARANTEED, cc=CC
    ),
    "a function": lambda: cupar.reduce_into("f4", "f4", lambda a, b: a + b * SCALE, ZERO, cc=CC),
    "a struct": lambda: cupar.reduce_into(Peak, Peak, highest, Peak(-np.inf, -1), cc=CC),
    "a struct's dtype": lambda: cupar.reduce_into(Peak.dtype, Peak, highest, np.zeros(1, Peak.dtype), cc=CC),
    "not to be waited for": lambda: cupar.reduce_into("i4", "i4", PLUS, 0, cc=CC, wait=False),
    "exclusive_scan": lambda: cupar.exclusive_scan("f4", "f4", lambda a, b: a * b, ZERO, cc=CC),
    "initial value on the device": lambda: cupar.exclusive_scan("f4", "f4", PLUS, ARRAY, cc=CC),
    "a struct on the device": lambda: cupar.exclusive_scan(
        Peak, Peak, highest, DeviceArray(Peak.dtype), cc=CC
    ),
    "inclusive_scan": lambda: cupar.inclusive_scan("f4", "f4", np.maximum, cc=CC),
    "segmented_reduce": lambda: cupar.segmented_reduce("f4", "f4", "i4", "i4", max, ZERO, cc=CC),
    "reduce_by_key": lambda: cupar.reduce_by_key("i4", "i4", "f4", "f4", "i8", max, cc=CC),
    "inclusive_scan_by_key": lambda: cupar.inclusive_scan_by_key("i4", "f4", "f4", np.maximum, 0.5, cc=CC),
    "exclusive_scan_by_key": lambda: cupar.exclusive_scan_by_key(
        "i4", "f4", "f4", PLUS, ARRAY, lambda a, b: a % 10 == b % 10, cc=CC
    ),
    "run_length_encode": lambda: cupar.run_length_encode("u1", "u1", "i4", "i8", cc=CC),
    "inclusive_segmented_scan": lambda: cupar.inclusive_segmented_scan(
        "f4", "f4", "i4", "i4", max, start_offsets_out="i8", cc=CC
    ),
    "exclusive_segmented_scan": lambda: cupar.exclusive_segmented_scan(
        "f4", "f4", op=max, h_init=ARRAY, cc=CC
    ),
    "segmented_copy": lambda: cupar.segmented_copy("f4", "f8", "i4", "i8", "u4", cc=CC),
    "unary_transform": lambda: cupar.unary_transform("f4", "f4", np.sqrt, cc=CC),
    "a type as operator": lambda: cupar.unary_transform("i4", "f4", np.float32, cc=CC),
    "binary_transform": lambda: cupar.binary_transform("f4", "c8", "c16", np.add, cc=CC),
    "LTO-IR": lambda: cupar.binary_transform("f4", "f4", "f4", RAW, cc=CC),
    "LTO-IR with state": lambda: cupar.unary_transform("f4", "f4", STATE, cc=CC),
    "a device array in an operator": lambda: cupar.unary_transform("i4", "f4", lambda a: ARRAY[a], cc=CC),
    "select": lambda: cupar.select("f4", cupar.DiscardIterator("f4"), "i8", lambda a: a > 0, cc=CC),
    "items that do not matter": lambda: cupar.unique_by_key(
        "i4", cupar.DiscardIterator(), "i4", cupar.DiscardIterator(), "i8", cupar.OpKind.EQUAL_TO, cc=CC
    ),
    "no items": lambda: cupar.unique_by_key(
        "i4", d_out_keys="i8", d_out_num_selected="i8", op=cupar.OpKind.EQUAL_TO, cc=CC
    ),
    "three_way_partition": lambda: cupar.three_way_partition(
        "f4", "f4", "f4", "f4", "i4", lambda a: a < 0, lambda a: a > 9, cc=CC
    ),
    "unique_by_key": lambda: cupar.unique_by_key("f4", "i4", "f4", "i4", "i4", OpKind.EQUAL_TO, cc=CC),
    "find_if": lambda: cupar.find_if("f4", "i8", lambda a: a > 0, none=-1, cc=CC),
    "merge": lambda: cupar.merge("f4", "i4", "f4", "i4", "f4", "i4", lambda a, b: abs(a) < abs(b), cc=CC),
    "set_union": lambda: cupar.set_union("f4", "i4", "f4", "i4", "f4", "i4", "i8", lambda a, b: a > b, cc=CC),
    "set_difference": lambda: cupar.set_difference("i2", None, "i2", None, "i2", None, "i8", cc=CC),
    "set_intersection": lambda: cupar.set_intersection("i2", None, "i2", None, "i2", None, "i8", cc=CC),
    "set_symmetric_difference": lambda: cupar.set_symmetric_difference(
        "u4", None, "u4", None, "u4", None, "i4", cc=CC
    ),
    "in order": lambda: cupar.reduce_into("f4", "f4", lambda a, b: b, ZERO, commutative=False, cc=CC),
    "merge_sort": lambda: cupar.merge_sort("f4", None, "f4", None, lambda a, b: abs(a) < abs(b), cc=CC),
    "radix_sort": lambda: cupar.radix_sort("u4", "u4", "f4", "f4", cupar.SortOrder.DESCENDING, cc=CC),
    "an order as a number": lambda: cupar.radix_sort("u4", "u4", None, None, 1, cc=CC),
    "double buffers": lambda: cupar.radix_sort(
        cupar.DoubleBuffer("u4", "u4"), None, cupar.DoubleBuffer(ARRAY, ARRAY), None, UP, cc=CC
    ),
    "segmented_sort": lambda: cupar.segmented_sort("u4", "u4", None, None, "i4", "i8", UP, cc=CC),
    "segmented_sort by a comparison": lambda: cupar.segmented_sort(
        "f4", "f4", op=lambda a, b: abs(a) < abs(b), cc=CC
    ),
    "top_k": lambda: cupar.top_k("u4", "u4", cupar.CountingIterator(np.int64(0)), "i8", UP, cc=CC),
    "segmented_top_k": lambda: cupar.segmented_top_k("f2", "f2", None, None, "i4", "i8", cc=CC),
    "segmented_nth_element": lambda: cupar.segmented_nth_element("f2", "f2", nans="propagate", cc=CC),
    "histogram_even": lambda: cupar.histogram_even(
        "i4", "i4", np.array([1001]), np.int16(-3), np.array([2**40]), 10**9, cc=CC
    ),
    "levels of floats": lambda: cupar.histogram_even("i4", "i4", 11, -0.25, np.float32(1), 100, cc=CC),
    "histogram_range": lambda: cupar.histogram_range("f4", "i4", 11, "f8", 100, cc=CC),
    "reduce_by_index": lambda: cupar.reduce_by_index(
        "f4", "i8", "f4", PLUS, ZERO, determinism=cupar.Determinism.NOT_GUARANTEED, cc=CC
    ),
    "lower_bound": lambda: cupar.lower_bound("f4", "f4", "i8", cc=CC),
    "column_reduce": lambda: cupar.column_reduce("f4", "f4", PLUS, cc=CC),
    "inclusive_column_scan": lambda: cupar.inclusive_column_scan("f4", "f4", max, cc=CC),
    "exclusive_column_scan": lambda: cupar.exclusive_column_scan("f4", "f4", PLUS, ZERO, cc=CC),
    "upper_bound": lambda: cupar.upper_bound("i4", "i4", "u4", lambda a, b: a > b, cc=CC),
    "iterators": lambda: cupar.reduce_into(
        cupar.TransformIterator(
            cupar.ZipIterator(
                ARRAY,
                cupar.PermutationIterator("f8", cupar.ShuffleIterator(100)),
                cupar.ConstantIterator(Peak(1, 2)),
                cupar.ReverseIterator(cupar.CacheModifiedInputIterator("i2", "global")),
            ),
            lambda a: a[0] * a[2].height * SCALE,
            np.float32,
        )
        + 5,
        cupar.TransformOutputIterator("f4", OpKind.NEGATE),
        PLUS,
        np.float32(0),
        cc=CC,
    ),
    "LTO-IR in an iterator": lambda: cupar.reduce_into(
        cupar.TransformIterator(cupar.CountingIterator(0), STATE, "f4"), "f4", PLUS, 0.0, cc=CC
    ),
    "a device array in an iterator": lambda: cupar.reduce_into(
        cupar.TransformIterator("i4", lambda a: ARRAY[a], "f4"), "f4", PLUS, 0.0, cc=CC
    ),
}


def highest(a, b):
    return a if a.height >= b.height else Peak(b.height, b.place)


def recorded(path, ask):
    with cupar.record(path):
        answer = ask()
    (request,) = record.read(path)
    return answer, request


@pytest.mark.parametrize("ask", CASES.values(), ids=CASES)
def test_what_is_asked_comes_back(ask, nothing_is_built, tmp_path):
    answer, request = recorded(tmp_path / "list", ask)
    (spec,) = batch.collected(ask, 90)
    assert (request.algorithm, request.key, request.cc) == (spec.algorithm, key(answer), spec.cc)
    assert not request.skipped
    again = request.load()
    assert again.algorithm_class is type(answer)
    assert key(again) == key(answer)
    # What is asked for again is found by the same question in memory, too.
    assert again.without_user() == spec.without_user()
    assert key(codec.loads(codec.dumps(again))) == key(answer)
    assert key(request.load(75)) != key(answer)


def test_every_factory_is_among_the_cases(nothing_is_built):
    public = [getattr(cupar, name) for name in cupar.__all__]
    factories = [
        each for each in public if inspect.isfunction(each) and "cc" in inspect.signature(each).parameters
    ]
    kernels = {"jit"}  # which tests/jit has cases of
    assert {spec.algorithm for ask in CASES.values() for spec in batch.collected(ask, 90)} == {
        each.__name__ for each in factories
    } - kernels


def test_a_list_holds_types_and_no_data(nothing_is_built, tmp_path):
    path = tmp_path / "list"
    recorded(path, CASES["arrays"])
    (line,) = path.read_text().splitlines()
    value = json.loads(line)
    assert value["algorithm"] == "reduce_into"
    assert value["types"] == ["d_in: Pointer(float32)", "d_out: Pointer(float32)"]
    assert value["operators"] == ["op: OpKind.PLUS"]
    assert path.stat().st_mode & 0o777 == 0o600
    (spec,) = batch.collected(CASES["LTO-IR with state"], 90)
    assert b"addresses" not in zlib.decompress(codec.dumps(spec))


numbers = st.sampled_from("?bBhHiIqQefdFD").map(np.dtype)


def struct_of(fields):
    return cupar.gpu_struct({f"field{i}": kind for i, kind in enumerate(fields)}).dtype


dtypes = st.recursive(
    numbers, lambda inner: st.lists(inner, min_size=1, max_size=4).map(struct_of), max_leaves=8
)


def back(value):
    """Return a value of a specialisation as it comes back."""
    buffer = io.BytesIO()
    codec._Pickler(buffer).dump(value)
    return pickle.loads(buffer.getvalue())


@given(dtypes)
def test_dtypes_come_back(dtype):
    other = back(dtype)
    assert (other, other.alignment, other.isalignedstruct) == (dtype, dtype.alignment, dtype.isalignedstruct)


def test_a_dtype_with_gaps_comes_back():
    dtype = np.dtype(
        {"names": ["b", "a"], "formats": ["u1", "f8"], "offsets": [0, 16], "itemsize": 32}, align=True
    )
    assert back(dtype) == dtype


sources = st.one_of(
    dtypes,
    numbers.filter(lambda dtype: dtype.kind in "iuf").map(
        lambda dtype: cupar.CountingIterator(dtype.type(1))
    ),
    dtypes.map(lambda dtype: cupar.ConstantIterator(np.zeros((), dtype)[()])),
    st.just(cupar.ShuffleIterator(7)),
    numbers.map(lambda dtype: cupar.CacheModifiedInputIterator(dtype, "volatile")),
)


def nested(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(cupar.ZipIterator),
        inner.map(cupar.ReverseIterator),
        inner.map(lambda it: cupar.PermutationIterator(it, cupar.CountingIterator(0))),
        st.builds(cupar.TransformIterator, inner, st.sampled_from([first, lambda a: a]), st.just("i4")),
        st.builds(lambda it, n: cupar.ZipIterator(it) + n, inner, st.integers(-5, 5)),
    )


def first(items):
    return SCALE


@given(st.recursive(sources, nested, max_leaves=6))
def test_iterators_come_back(iterator):
    if not isinstance(iterator, cupar.CountingIterator.__base__):
        iterator = cupar.ReverseIterator(iterator)
    assert back(iterator.node) == iterator.node


# --- Functions ---------------------------------------------------------------------------------------------


def adder(step):
    def add(a):
        return a + step

    return add


def jitted():
    from numba import cuda

    @cuda.jit(device=True, inline="always")
    def scaled(a):
        return a * SCALE

    return lambda a: scaled(a) + 1


def jitted_for_both():
    from numba import njit

    @njit(fastmath=True)
    def scaled(a):
        return a * SCALE

    return scaled


def read_only():
    table = np.arange(4)
    table.flags.writeable = False
    return table


def with_modules():
    inner = types.ModuleType("package.inner")
    inner.LIMIT, inner.lock = 7, threading.Lock()  # which no pickle can hold, and nothing reads
    package = types.ModuleType("package")
    package.inner, package.array = inner, ARRAY
    return defined("def op(a): return a if a < package.inner.LIMIT else package.inner.LIMIT", package=package)


def by_keyword(a, *, twice=2):
    return a * twice


def nested_function(a):
    def inner(b):
        return b + SCALE

    return inner(a)


Pair = collections.namedtuple("Pair", "x y", defaults=(4,))

FUNCTIONS = {
    "a module's": first,
    "of a closure": adder(np.float32(2)),
    "calls a module's": lambda a: first(a) + by_keyword(a, twice=3),
    "defaults": lambda a, b=(1, 2.5, "x"): a + b[0],
    "an array": lambda a, table=np.arange(12).reshape(3, 4)[::-1, ::2]: a + table[0, 1],
    "a Fortran array": lambda a, table=np.ones((3, 4), order="F"): a + table[0, 1],
    "a read-only array": lambda a, table=read_only(): a + table[0],
    "a broadcast array": lambda a, table=np.broadcast_to(np.int8(3), (5, 2)): a + table[0, 0],
    "an empty array": lambda a, table=np.zeros((0, 3)): a + table.size,
    "an unaligned array": lambda a, table=np.zeros(17, "u1")[1:].view("f8"): a + table[0],
    "an array of structs": lambda a, table=np.zeros(3, Peak.dtype): a + table[0].height,
    "a struct": lambda a: Peak(a, 1).height,
    "a value of a struct": functools.partial(lambda p: lambda a: a + p.height, Peak(1, 2))(),
    "an enum": lambda a: a + Colour.BLUE,
    "a named tuple": lambda a: a + Pair(1).y,
    "a dtype": lambda a, kind=Peak.dtype: a,
    "modules": with_modules(),
    "numpy": lambda a: np.float32(np.maximum(a, np.pi)),
    "a global device array": defined("def op(a): return array[a]", array=DeviceArray("f4", (8,))),
    "a device array of three dimensions": functools.partial(
        lambda array: lambda a: array[a, 0, 0], DeviceArray(Peak.dtype, (2, 2, 2))
    )(),
    "nested": nested_function,
    "circles": defined(
        "def op(a): return f(a)\ndef f(a): return a if a < 1 else g(a)\ndef g(a): return f(a - 1)"
    ),
}


class Thawed:
    """Makes functions of frozen copies, to take their fingerprints."""

    def __init__(self, captures):
        self._made, self._arrays = {}, {each.name: each for each in captures}

    def __call__(self, value):
        if id(value) not in self._made:
            make = getattr(self, type(value).__name__, None)
            self._made[id(value)] = make(value) if make else value
        return self._made[id(value)]

    def FrozenFunction(self, frozen):
        cells = tuple(types.CellType() for _ in frozen.cells)
        function = types.FunctionType(frozen.code, {"__builtins__": {}}, frozen.name, None, cells)
        self._made[id(frozen)] = function
        function.__defaults__, function.__kwdefaults__ = map(self, (frozen.defaults, frozen.keyword_defaults))
        function.__globals__.update((name, self(each)) for name, each in frozen.globals.items())
        for name, cell, content in zip(frozen.code.co_freevars, cells, frozen.cells, strict=True):
            if content is not _frozen.MISSING:
                cell.cell_contents = self(content)
            elif name in self._arrays:
                cell.cell_contents = self._array(name)
        function.__globals__.update(
            (name, self._array(name)) for name, each in self._arrays.items() if not each.in_closure
        )
        return function

    def _array(self, name):
        found = self._arrays[name]
        return DeviceArray(found.dtype, (2,) * found.ndim)

    def FrozenJitted(self, frozen):
        from numba import cuda

        return cuda.jit(**frozen.options)(self(frozen.function))

    def FrozenModule(self, frozen):
        made = types.ModuleType(frozen.module.__name__)
        vars(made).update((name, self(each)) for name, each in frozen.attributes.items())
        return made

    def StructClass(self, frozen):
        return cupar.gpu_struct(frozen.dtype)

    def NamedTupleClass(self, frozen):
        return collections.namedtuple(frozen.name, frozen.fields, defaults=frozen.defaults)

    def Instance(self, frozen):
        return self(frozen.cls)(*map(self, frozen.fields))

    def tuple(self, value):
        return tuple(map(self, value))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_go_by_value(function):
    found = walk.fingerprint(function)
    other = back(found)
    assert other == found
    assert other.reads() == found.reads()
    assert not other.guard.check(function)
    thawed = Thawed(found.captures)(other.frozen)
    assert thawed is not function
    assert walk.fingerprint(thawed) == found


@pytest.mark.parametrize("make", [jitted, jitted_for_both])
def test_functions_under_numba_go_by_value(make):
    function = make()
    found = walk.fingerprint(function)
    other = back(found)
    assert other == found
    if names.is_dispatcher(function):
        assert other.frozen.options == found.frozen.options == {"fastmath": True}
        assert walk.fingerprint(Thawed(())(other.frozen.function)) == walk.fingerprint(function.py_func)
    else:
        assert walk.fingerprint(Thawed(())(other.frozen)) == found


def test_only_what_is_read_is_carried():
    source = "def op(a): return a + READ"
    op = defined(source, READ=4, SECRET="xyzzy", lock=threading.Lock())
    assert back(walk.fingerprint(op)).frozen.globals == {"READ": 4}


class Locked(enum.IntEnum):
    """A class has methods, which kernels cannot call, and which read what no pickle can hold."""

    ONE = 1

    def hold(self):
        return LOCK


LOCK = threading.Lock()


class Size(float, enum.Enum):
    SMALL, NONE = 0.5, float("nan")


class Mode(enum.IntFlag):
    A, B = 1, 2


@pytest.mark.parametrize("member", [Locked.ONE, Size.SMALL, Size.NONE, Mode.A | Mode.B, Colour.BLUE])
def test_enums_come_without_their_methods(member):
    assert values.encode(back(member)) == values.encode(member)
    assert values.encode(back(back(member))) == values.encode(member)
    cls = back((member, type(member)))[1]
    assert cls is not type(member)
    assert list(cls.__members__) == list(type(member).__members__)
    assert not hasattr(cls, "hold")


def test_what_cannot_be_pickled_is_left_out_and_said_once(nothing_is_built, tmp_path, monkeypatch):
    dumps = codec.dumps

    def refuse(spec):
        if spec.operators[0][1].kind is None:
            raise pickle.PicklingError("it is not to be pickled")
        return dumps(spec)

    monkeypatch.setattr(codec, "dumps", refuse)
    path = tmp_path / "list"
    with cupar.record(path):
        with pytest.warns(_warnings.CacheWarning, match="left out: an operator .*lambda.* cannot be pickled"):
            answer = cupar.unary_transform("i4", "i4", lambda a: a + Locked.ONE, cc=CC)
        for _ in range(2):
            cupar.unary_transform("i4", "i4", lambda a: a + Locked.ONE, cc=CC)
        cupar.unary_transform("i4", "i4", np.negative, cc=CC)
    skipped, other = record.read(path)
    assert (skipped.algorithm, skipped.key) == ("unary_transform", key(answer))
    assert "cannot be pickled" in skipped.skipped
    with pytest.raises(
        record.RecordError, match=r"list:1: unary_transform was left out when recorded: an op"
    ):
        skipped.load()
    assert not other.skipped


def test_what_an_operator_reads_is_as_it_was_when_its_iterator_was_made(nothing_is_built, tmp_path):
    op = defined("def op(a): return a * SCALE", SCALE=2)
    iterator = cupar.TransformIterator("i4", op, "i4")
    before = key(cupar.reduce_into(iterator, "i4", PLUS, 0, cc=CC))
    op.__globals__["SCALE"] = 3
    _, request = recorded(tmp_path / "list", lambda: cupar.reduce_into(iterator, "i4", PLUS, 0, cc=CC))
    assert key(request.load()) == before


# --- When is recorded --------------------------------------------------------------------------------------


def asked(path):
    return [request.algorithm for request in record.read(path)]


def reduction(dtype="i4"):
    return cupar.reduce_into(dtype, dtype, PLUS, 0, cc=CC)


def test_each_question_is_recorded_once(nothing_is_built, tmp_path):
    path = tmp_path / "list"
    with cupar.record(path):
        for _ in range(3):
            reduction()
            cupar.reduce_into(cupar.CountingIterator(np.int32(0)), "i4", PLUS, 0, cc=CC)
    assert len(path.read_bytes().splitlines()) == 2
    with cupar.record(path):  # again, as another run does
        reduction()
    assert len(path.read_bytes().splitlines()) == 3
    assert len(record.read(path)) == 2


def test_what_is_in_memory_already_is_recorded_too(nothing_is_compiled, tmp_path):
    for _ in range(3):
        reduction()
    with cupar.record(tmp_path / "one"):
        assert reduction().build.origin == "memory"
        with cupar.record(tmp_path / "two"):
            reduction("i2")
        reduction("i2")
    reduction("i8")
    assert len(asked(tmp_path / "one")) == 2
    assert len(asked(tmp_path / "two")) == 1


def test_recording_begins_and_ends(nothing_is_built, tmp_path):
    cupar.record(tmp_path / "one")
    reduction("i4")
    with cupar.record(None):
        reduction("i8")
    reduction("i2")
    cupar.record(None)
    reduction("i1")
    assert len(asked(tmp_path / "one")) == 2
    with pytest.raises(TypeError, match="^path: expected a path or None, got int"):
        cupar.record(1)


def test_the_environment_is_read_at_the_first_question(nothing_is_built, tmp_path, monkeypatch):
    monkeypatch.setattr(obtain, "observer", obtain._unasked)
    monkeypatch.setenv("CUPAR_RECORD", str(tmp_path / "list"))
    reduction("i4")
    reduction("i8")
    assert len(asked(tmp_path / "list")) == 2
    monkeypatch.setattr(obtain, "observer", obtain._unasked)
    monkeypatch.delenv("CUPAR_RECORD")
    reduction("i2")
    assert obtain.observer is None


def test_what_is_being_built_is_not_waited_for(empty_cache, monkeypatch, tmp_path):
    go = threading.Event()

    def slow(spec, seconds):
        go.wait(60)
        return NO_CODE, 4, "built"

    monkeypatch.setattr(produce, "build_here", slow)
    try:
        with cupar.record(tmp_path / "list"):
            pending = cupar.reduce_into("i4", "i4", PLUS, 0, cc=CC, wait=False)
        (request,) = record.read(tmp_path / "list")
        assert not pending.ready(timeout=0)
    finally:
        go.set()
    assert request.key == pending.build.key


def test_to_ask_again_is_not_recorded(nothing_is_built, tmp_path):
    _, request = recorded(tmp_path / "one", reduction)
    with cupar.record(tmp_path / "two"):
        obtain.answer(request.load(), None)
    assert asked(tmp_path / "two") == []


# --- Faults ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [("/dev/full", "No space left"), ("missing/list", "No such file"), (".", "Is a directory")],
)
def test_what_cannot_be_written_is_said_once_and_fails_no_call(
    path, why, nothing_is_built, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(_warnings.CacheWarning, match=f"{why}") as warned, cupar.record(path):
        reduction("i4")
        reduction("i8")
    assert len(warned) == 1
    assert str(os.path.abspath(path)) in str(warned[0].message)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file(nothing_is_built, tmp_path):
    path = tmp_path / "list"
    path.touch(mode=0o400)
    with pytest.warns(_warnings.CacheWarning, match="list: .*Permission denied"), cupar.record(path):
        reduction()


def test_a_disk_that_fills_within_a_line(nothing_is_built, tmp_path, monkeypatch):
    path = tmp_path / "list"
    write = os.write
    with cupar.record(path):
        reduction("i4")
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
            with pytest.warns(_warnings.CacheWarning, match="list: .*no space left"):
                reduction("i8")
        reduction("i2")
    with pytest.warns(_warnings.CacheWarning, match="list:2: the line is incomplete, and is ignored"):
        found = record.read(path)
    assert [each.types[0] for each in found] == ["d_in: Pointer(int32)", "d_in: Pointer(int16)"]


def test_a_torn_last_line_is_ignored_wherever_it_is_torn(nothing_is_built, tmp_path):
    path = tmp_path / "list"
    with cupar.record(path):
        reduction("i4")
        reduction("i8")
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for end in range(start + 1, len(whole) - 1):
        path.write_bytes(whole[:end])
        _warnings.warned.clear()
        with pytest.warns(_warnings.CacheWarning, match="list:2: the line is incomplete"):
            assert len(record.read(path)) == 1
    with cupar.record(path):
        reduction("i2")
    _warnings.warned.clear()
    with pytest.warns(_warnings.CacheWarning, match="list:2: "):
        assert len(record.read(path)) == 2


def packed(spec):
    return base64.b64encode(codec.dumps(spec)).decode()


GOOD = {
    "cupar": 4,
    "algorithm": "reduce_into",
    "cc": 90,
    "types": ["d_in: Pointer(int32)", "d_out: Pointer(int32)"],
    "operators": ["op: OpKind.PLUS"],
    "key": "0" * 64,
    "python": "3.12",
    "version": "0.1.0",
}


@pytest.fixture
def good(monkeypatch):
    """Return a line of a list."""
    with monkeypatch.context() as patch:
        patch.setattr(obtain, "answer", being_built)
        return GOOD | {"spec": packed(reduction()._spec)}


def listed(tmp_path, *lines):
    path = tmp_path / "list"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not a list", r"expected a line of cupar.record, got b'not a list'"),
        ("[1, 2]", r"expected a line of cupar.record, got \[1, 2\]"),
        ({"other": 1}, r"expected a line of cupar.record, got \{'other': 1\}"),
        (GOOD | {"cupar": 1}, "expected format 4, got 1; record again with this cupar"),
        (GOOD | {"algorithm": None}, "algorithm: expected a string, got None"),
        (GOOD | {"types": {}}, r"types: expected a list, got \{\}"),
        (GOOD | {"cc": "90"}, "cc: expected an integer, got '90'"),
        (GOOD | {"cc": True}, "cc: expected an integer, got True"),
        (
            {name: value for name, value in GOOD.items() if name != "key"},
            "key: expected a string, got 'nothing'",
        ),
        (GOOD, "spec: expected a string, got 'nothing'"),
        (GOOD | {"skipped": 3}, "skipped: expected a string, got 3"),
        ("[" * 100_000, "expected a line of cupar.record"),
    ],
)
def test_what_is_no_list_is_said_with_its_line(line, message, good, tmp_path):
    with pytest.raises(record.RecordError, match=rf"list:2: {message}"):
        record.read(listed(tmp_path, good, line))


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        record.read(tmp_path / "nowhere")
    assert record.read(listed(tmp_path)) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("?", "Only base64 data|Incorrect padding|Invalid base64"),
        (base64.b64encode(b"nothing").decode(), "incorrect header check"),
        (base64.b64encode(zlib.compress(b"nothing")).decode(), "Unpickling|unpickl|pickle"),
        (base64.b64encode(zlib.compress(pickle.dumps([1]))).decode(), "expected a specialisation, got list"),
        (
            base64.b64encode(zlib.compress(b"cnot_there\nnothing\n.")).decode(),
            "ModuleNotFoundError: No module named 'not_there'",
        ),
    ],
)
def test_a_line_that_means_nothing_is_said_with_its_place(value, message, tmp_path):
    (request,) = record.read(listed(tmp_path, GOOD | {"spec": value}))
    expected = (
        rf"list:1: reduce_into: .*({message}).*\. It was recorded by cupar 0.1.0 under Python 3.12; record"
    )
    with pytest.raises(record.RecordError, match=expected):
        request.load()


def test_a_line_that_was_changed_is_refused(good, tmp_path):
    data = bytearray(base64.b64decode(good["spec"]))
    data[len(data) // 2] ^= 1
    line = good | {"spec": base64.b64encode(data).decode()}
    (request,) = record.read(listed(tmp_path, line))
    with pytest.raises(record.RecordError, match="list:1: reduce_into: .*record it again"):
        request.load()


def test_a_compute_capability_that_there_is_not_is_refused(good, tmp_path):
    (request,) = record.read(listed(tmp_path, good | {"cc": 31}))
    with pytest.raises(ValueError, match="^cc: "):
        request.load()
    assert request.load(80).cc == 80


def test_bytecode_of_another_python_is_not_run(nothing_is_built, good, tmp_path, monkeypatch):
    with monkeypatch.context() as other:
        other.setattr(codec, "PYTHON", "3.9")
        other.setattr(codec.marshal, "dumps", lambda code: b"it is not even looked at")
        recorded(tmp_path / "list", CASES["a function"])
    value = json.loads((tmp_path / "list").read_bytes()) | {"version": "0.0.9"}
    (request,) = record.read(listed(tmp_path, value))
    expected = (
        r"list:1: reduce_into: an operator is in bytecode of Python 3.9, expected [0-9.]+. It was "
        r"recorded by cupar 0.0.9 under Python 3.9; record it again$"
    )
    with pytest.raises(record.RecordError, match=expected):
        request.load()
    (request,) = record.read(listed(tmp_path, good | {"python": "3.9"}))
    assert key(request.load()) == key(reduction())


def test_nothing_is_unpickled_before_it_is_asked_for(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    trap = base64.b64encode(zlib.compress(pickle.dumps(Trap()))).decode()
    (request,) = record.read(listed(tmp_path, GOOD | {"spec": trap}))
    assert not (tmp_path / "trapped").exists()
    with pytest.raises(record.RecordError, match="expected a specialisation"):
        request.load()
    assert (tmp_path / "trapped").exists()


# --- Processes ---------------------------------------------------------------------------------------------

NOTHING_IS_BUILT = """
    import cupar
    from cupar._obtain import obtain as _factory

    class Pending:
        refusal = ""
        def __init__(self, spec):
            self.spec = spec

    _factory.answer = lambda spec, *others, **named: spec.algorithm_class(Pending(spec), spec.states)
"""

MANY = """
    import sys, time
    first = int(sys.argv[1])
    time.sleep(max(0, float(sys.argv[2]) - time.time()))
    for i in range(first, first + 50):
        cupar.unary_transform("i4", "i4", eval(f"lambda a: a + {i}" + " * a" * 400), cc=90)
"""


def started(source, *args, cwd=None, **environment):
    code = textwrap.dedent(source)
    command = [sys.executable, "-c", code, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env={**os.environ, **environment}, cwd=cwd, stdout=pipe, stderr=pipe, text=True
    )


def output(process):
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def test_processes_share_a_list(tmp_path):
    path = tmp_path / "list"
    begin = time.time() + 2
    processes = [
        started(NOTHING_IS_BUILT + MANY, first, begin, CUPAR_RECORD=str(path)) for first in (0, 25, 50)
    ]
    for process in processes:
        output(process)
    assert sum(map(bool, path.read_bytes().splitlines())) == 150
    found = record.read(path)  # each line of which is whole
    assert len(found) == len({request.key for request in found}) == 100


FORKS = """
    import os

    def ask(dtype):
        cupar.reduce_into(dtype, dtype, cupar.OpKind.PLUS, 0, cc=90)

    ask("i4")
    child = os.fork()
    ask("i4")
    if not child:
        ask("i8")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    ask("i2")
"""


def test_a_forked_child_goes_on_with_the_list(tmp_path):
    path = tmp_path / "list"
    output(started(NOTHING_IS_BUILT + FORKS, CUPAR_RECORD=str(path)))
    assert len(path.read_bytes().splitlines()) == 3
    found = [each.types[0].partition(": ")[2] for each in record.read(path)]
    assert found == ["Pointer(int32)", "Pointer(int64)", "Pointer(int16)"]


SCRIPT = """
    import enum, threading

    LOCK = threading.Lock()

    class Locked(enum.IntEnum):
        ONE = 1

        def hold(self):
            return LOCK

    def op(a, b):
        return a + b + Locked.ONE

    cupar.reduce_into("i4", "i4", op, 0, cc=90)
"""


def test_a_function_of_a_script_needs_no_script(tmp_path):
    path = tmp_path / "list"
    output(started(NOTHING_IS_BUILT + SCRIPT, CUPAR_RECORD=str(path)))
    (request,) = record.read(path)
    assert key(request.load()) == request.key


PACKAGE = {
    "config.py": "SCALE, BIAS = 3, 1.5",
    "helpers.py": "from . import config\ndef scaled(a):\n    return a * config.SCALE\n",
    "__init__.py": """
        from numba import cuda
        from . import config
        from .helpers import scaled

        @cuda.jit(device=True)
        def jitted(a):
            return scaled(a) + config.SCALE

        def op(a, b):
            return jitted(a) + config.BIAS + b
    """,
}

ASK = textwrap.dedent("""
    import hashlib
    import cupar, userpackage
    import numpy as np

    class Array:
        __cuda_array_interface__ = {"typestr": "<f4", "shape": (8,), "data": (4096, False), "version": 3}

    array, h_init = Array(), np.zeros(1, np.float32)
    items = cupar.TransformIterator("i4", lambda a: array[a] * userpackage.config.SCALE, np.float32)
    pending = cupar.reduce_into(items, "f4", userpackage.op, h_init, cc=90, wait=False)
    found = pending.build.key, hashlib.sha256(pending.cubin()).hexdigest(), pending.build.origin
""")

ASK_AGAIN = AS_IN_THE_RUN + textwrap.dedent("""
    import hashlib, importlib.util, sys
    from cupar._obtain import obtain
    from cupar._ahead import record as _record

    assert importlib.util.find_spec("userpackage") is None
    (request,) = _record.read(sys.argv[1])
    again = obtain.answer(request.load(), None)
    print(again.build.key, hashlib.sha256(again.cubin()).hexdigest(), again.build.origin)
""")


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_another_machine_builds_the_same_without_the_users_package(tmp_path, empty_cache, monkeypatch):
    """The operator is of a package, calls functions of it, one of numba's among them, and reads a module.

    That of the iterator captures a device array.
    """
    for name, source in PACKAGE.items():
        file = tmp_path / "here" / "userpackage" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(source))
    (tmp_path / "there").mkdir()
    path = tmp_path / "list"
    monkeypatch.syspath_prepend(tmp_path / "here")

    def ask():
        names = {"__name__": "__main__"}
        for name in [name for name in sys.modules if name.partition(".")[0] == "userpackage"]:
            monkeypatch.delitem(sys.modules, name)
        exec(ASK, names)
        return names["found"]

    with cupar.record(path):
        built = ask()
    (request,) = record.read(path)
    assert (built[0], built[2]) == (request.key, "built")
    elsewhere = str(tmp_path / "elsewhere")
    again = output(started(ASK_AGAIN, path, cwd=tmp_path / "there", CUPAR_CACHE_DIR=elsewhere))
    assert again.split() == [*built]
    # And what the other machine has built, a run here finds.
    monkeypatch.setenv("CUPAR_CACHE_DIR", elsewhere)
    cupar.cache.clear(disk=False)
    assert ask() == (*built[:2], "disk")


# --- Preloading --------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(nothing_is_compiled, monkeypatch):
    """A GPU as the factories see it; returns what was loaded onto it."""
    loaded = []
    device = driver.Device(0, CC)
    monkeypatch.setattr(driver, "current_device", lambda: device)
    monkeypatch.setattr(cupar.Algorithm, "load", lambda self: loaded.append(self.build.key))
    return loaded


def program():
    scan = cupar.exclusive_scan("f4", "f4", lambda a, b: a * b + SCALE, ZERO)
    reduction = cupar.reduce_into(cupar.TransformIterator("f4", adder(2.5), "f4"), "f4", PLUS, 0.0)
    return scan, reduction, cupar.unary_transform("i4", "f4", lambda a: ARRAY[a])


def earlier_run(path, monkeypatch, cc):
    with monkeypatch.context() as patch:
        patch.setattr(obtain, "answer", being_built)
        patch.setattr(driver, "current_device", lambda: driver.Device(0, cc))
        with cupar.record(path):
            program()


@pytest.mark.parametrize("recorded_for", [(90,), (80,), (80, 90)])
def test_after_preloading_a_list_its_questions_are_answered_from_memory(
    gpu, monkeypatch, tmp_path, recorded_for
):
    path = tmp_path / "list"
    for cc in recorded_for:
        earlier_run(path, monkeypatch, cc)
    cupar.preload(path, str(path))
    assert len(gpu) == len(set(gpu)) == 3
    for answer in program():
        assert (answer.build.origin, answer.build.cc) == ("memory", CC)
    assert len(gpu) == 3


def test_an_algorithm_that_was_preloaded_is_found_in_memory(gpu):
    pending = cupar.reduce_into("i4", "i4", PLUS, 0, wait=False)
    cupar.preload(pending)
    assert gpu == [pending.build.key]
    assert cupar.reduce_into("i4", "i4", PLUS, 0).build.origin == "memory"


def test_a_line_that_cannot_be_built_costs_a_warning(gpu, good, tmp_path):
    bad = good | {"key": "1" * 64, "spec": ""}
    skipped = GOOD | {"key": "2" * 64, "skipped": "it cannot be pickled"}
    path = listed(tmp_path, bad, skipped, good)
    with pytest.warns(_warnings.CacheWarning) as warned:
        cupar.preload(path)
    messages = sorted(str(each.message) for each in warned)
    assert len(messages) == 2
    assert f"{path}:1: not preloaded, but built when asked for: reduce_into: " in messages[0]
    assert f"{path}:2: not preloaded, but built when asked for: reduce_into was left out" in messages[1]
    assert len(gpu) == 1


def test_a_build_that_fails_in_the_background_costs_a_warning(gpu, good, monkeypatch, tmp_path):
    def fails(spec, seconds):
        raise cupar.BuildError("the compiler has a bad day")

    monkeypatch.setattr(produce, "build_here", fails)
    monkeypatch.setattr(cupar.Algorithm, "load", lambda self: self.build)
    with pytest.warns(_warnings.CacheWarning, match="list:1: not preloaded, .*: the compiler has a bad day"):
        cupar.preload(listed(tmp_path, good))


def test_preloading_refuses_what_is_no_list(gpu, tmp_path):
    with pytest.raises(
        TypeError, match="^what: expected algorithm objects and paths of recorded lists, got int"
    ):
        cupar.preload(3)
    with pytest.raises(FileNotFoundError):
        cupar.preload(tmp_path / "nowhere")
    with pytest.raises(record.RecordError, match="list:1: expected a line"):
        cupar.preload(listed(tmp_path, "nothing"))


def test_a_hit_imports_nothing_of_it():
    code = """
    import sys
    cupar.reduce_into("i4", "i4", lambda a, b: a + b, 0, cc=90)
    assert "cupar.reduce" in sys.modules
    names = "cupar._ahead.record", "cupar._ahead.codec", "cupar._compile.workers"
    print([name for name in names if name in sys.modules])
    """
    assert output(started(NOTHING_IS_BUILT + code, CUPAR_RECORD="")) == "[]\n"


def test_a_relative_list_in_a_directory_that_is_gone_fails_no_call(tmp_path):
    script = """
import os, sys, numpy as np, warnings
warnings.simplefilter("ignore")
os.mkdir("gone"); os.chdir("gone"); os.rmdir("../gone")
import cupar
print(cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, np.zeros(1, "i4"), cc=90).build.cc)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "CUPAR_RECORD": "asked.jsonl"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "90\n", done.stderr
