"""Fingerprints: changes that must change them, changes that must not, refusals, and the guard's soundness."""

import builtins
import cmath
import collections
import copy
import ctypes
import enum
import functools
import gc
import importlib
import io
import itertools
import math
import operator
import os
import pathlib
import struct
import subprocess
import sys
import textwrap
import threading
import types
import typing

import numpy as np
import pytest
from cachetools import LRUCache
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.interrupts import each_interrupt

from cupar._base.bounded import Bounded
from cupar._fingerprint import walk
from cupar._fingerprint.walk import Fingerprint, Unfingerprintable, encode, fingerprint


def make(source, filename="<operators>", line=1, **names):
    """Execute source in a module of its own, which has `names`, and return what it calls `op`."""
    namespace = {"__name__": "operators", **names}
    exec(compile("\n" * (line - 1) + textwrap.dedent(source), filename, "exec"), namespace)
    return namespace["op"]


def digest(source_or_function, **names):
    function = (
        make(source_or_function, **names) if isinstance(source_or_function, str) else source_or_function
    )
    return fingerprint(function).digest


def module(name="config", **attributes):
    made = types.ModuleType(name)
    vars(made).update(attributes)
    return made


def fresh(function):
    """The fingerprint that a new process would compute."""
    return walk._Walk().fingerprint(function)[0]


# --------------------------------------------------------------------------------------------------
# encode


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    ALSO_RED = 1


class Number(enum.IntEnum):
    RED = 1
    GREEN = 2


Point = collections.namedtuple("Point", "x y")


class TypedPoint(typing.NamedTuple):
    x: float
    y: float = 2.0


class Float32(np.float32):
    pass


class Integer(int):
    pass


NAN_WITH_PAYLOAD = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]

DIFFERENT = [
    None,
    ...,
    0,
    1,
    -1,
    255,
    256,
    -256,
    2**70,
    -(2**70),
    True,
    False,
    0.0,
    -0.0,
    1.0,
    math.inf,
    math.nan,
    -math.nan,
    NAN_WITH_PAYLOAD,
    0j,
    complex(0.0, -0.0),
    complex(-0.0, 0.0),
    1 + 0j,
    "",
    "1",
    "a",
    "é",
    "e\u0301",
    "?",
    "\ud800",
    "\ud801",
    b"",
    b"1",
    b"a",
    (),
    (1,),
    (1, 2),
    ((1,), 2),
    ((1, 2),),
    (1, (2,)),
    ((),),
    ((), ()),
    [],
    [1],
    [1, 2],
    {},
    {1: 2},
    {2: 1},
    {1: 2, 3: 4},
    {3: 4, 1: 2},
    {(1, 2): ()},
    set(),
    {1},
    {1, 2},
    {(1, 2)},
    frozenset(),
    frozenset({1}),
    range(3),
    range(0, 3, 2),
    range(0, 4, 2),
    slice(3),
    slice(None, 3, 1),
    slice(0, 3),
    np.bool_(True),
    np.int8(1),
    np.uint8(1),
    np.int32(1),
    np.int64(1),
    np.uint64(1),
    np.float16(1),
    np.float32(1),
    np.float64(1),
    np.float64(-0.0),
    np.float64(0.0),
    np.complex64(1),
    np.complex128(1),
    np.str_("1"),
    np.bytes_(b"1"),
    np.datetime64("2020-01-01", "D"),
    np.datetime64("2020-01-01", "s"),
    np.timedelta64(1, "s"),
    np.timedelta64(1, "ms"),
    np.array(1),
    np.array([1]),
    np.array([[1]]),
    np.array([1], "i4"),
    np.array([1], ">i4"),
    np.array([1.0]),
    np.array([1, 2, 3, 4]),
    np.array([[1, 2], [3, 4]]),
    np.array([[1, 2], [3, 4]], order="F"),
    np.array([[1, 3], [2, 4]]),
    np.array([1, 2, 3]),
    np.array([], "f4"),
    np.array([], "f8"),
    np.zeros((0, 2)),
    np.zeros((2, 0)),
    np.array([(1, 2.0)], [("x", "i4"), ("y", "f4")]),
    np.array([(1, 2.0)], [("a", "i4"), ("y", "f4")]),
    np.array([(1, 2.0)], [("x", "i4"), ("y", "f4")])[0],
    np.array([(1, 2.0)], np.dtype([("x", "i2"), ("y", "f4")], align=True)),
    np.array([(1, 2.0)], np.dtype([("x", "i2"), ("y", "f4")])),
    np.array(["a"]),
    np.array([b"a"]),
    np.dtype("i4"),
    np.dtype(">i4"),
    np.dtype("f4"),
    np.dtype("U3"),
    np.dtype("S3"),
    np.dtype("V3"),
    np.dtype("M8[s]"),
    np.dtype("M8[ms]"),
    np.dtype([("x", "i4"), ("y", "f4")]),
    np.dtype([("y", "f4"), ("x", "i4")]),
    np.dtype([("x", "i4"), ("y", "f4")], align=True),
    np.dtype([("x", "i2"), ("y", "f4")], align=True),
    np.dtype([("x", "i2"), ("y", "f4")]),
    np.dtype([("x", "i4", (2,))]),
    np.dtype([("x", "i4", (2, 1))]),
    np.dtype([("x", "i4")]),
    np.dtype([(("title", "x"), "i4")]),
    np.dtype({"names": ["x"], "formats": ["i4"], "offsets": [4]}),
    np.dtype({"names": ["x"], "formats": ["i4"], "itemsize": 12}),
    np.dtype([("x", [("y", "i4")])]),
    np.float32,
    np.float64,
    np.int64,
    int,
    float,
    bool,
    Color,
    Number,
    Color.RED,
    Color.GREEN,
    Number.RED,
    Point,
    TypedPoint,
    Point(1, 2),
    Point(2, 1),
    Point(1.0, 2),
    TypedPoint(1, 2),
    math.sqrt,
    cmath.sqrt,
    np.sqrt,
    operator.add,
    operator.floordiv,
    np.sum,
    abs,
    ValueError,
]


def test_different_values_have_different_encodings():
    encodings = {}
    for index, value in enumerate(DIFFERENT):
        clash = encodings.setdefault(encode(value), index)
        assert clash == index, (value, DIFFERENT[clash])


def test_no_encoding_begins_with_another():
    encodings = sorted(map(encode, DIFFERENT))
    for one, next_one in itertools.pairwise(encodings):
        assert not next_one.startswith(one)


# Not by their repr, in which functions show where they are: that differs between pytest's workers.
@pytest.mark.parametrize("value", DIFFERENT, ids=lambda value: type(value).__name__)
def test_copies_have_the_same_encoding(value):
    assert encode(copy.deepcopy(value)) == encode(value)


def test_order_of_sets_does_not_count():
    words = [f"word {i}" for i in range(100)]
    forwards, backwards = set(), set()
    for word, other in zip(words, reversed(words)):
        forwards.add(word)
        backwards.add(other)
    assert encode(forwards) == encode(backwards)
    assert encode(frozenset(forwards)) == encode(frozenset(backwards))


def test_padding_of_records_does_not_count():
    dtype = np.dtype([("x", "i1"), ("y", "f8")], align=True)
    clean = np.zeros(2, dtype)
    dirty = np.frombuffer(bytearray(b"\xff" * clean.nbytes), dtype)
    dirty["x"] = dirty["y"] = 0
    assert clean.tobytes() != dirty.tobytes()
    assert encode(clean) == encode(dirty)
    assert encode(clean[0]) == encode(dirty[0])


def test_arrays_differ_by_what_numba_makes_of_them():
    array = np.arange(6.0).reshape(2, 3)
    same = np.arange(6.0).reshape(2, 3)
    assert encode(array) == encode(same)
    same.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + array.tobytes(), "f8", offset=1).reshape(2, 3).copy()
    assert encode(array) != encode(same)
    assert encode(array) != encode(np.asfortranarray(array))
    assert encode(array[::-1]) != encode(np.ascontiguousarray(array[::-1]))
    assert encode(array) == encode(unaligned)


def test_types_that_other_packages_add_to_numpy_differ_from_void_types():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    of_one_byte = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4, "V1", "i1"]
    of_two_bytes = [ml_dtypes.bfloat16, "V2", "f2", "i2"]
    assert len({encode(np.dtype(each)) for each in of_one_byte + of_two_bytes}) == 9


def test_the_same_type_under_two_names():
    assert encode(np.dtype("l")) == encode(np.dtype("q"))  # long and long long


def test_members_of_an_enum_are_encoded_with_its_kind_and_by_value():
    other = enum.Enum("Color", {"RED": 5})
    assert encode(other.RED) != encode(enum.Enum("Color", {"RED": 1}).RED)
    assert encode(Color.ALSO_RED) == encode(Color.RED)
    assert encode(enum.Enum("A", {"X": 1})) == encode(enum.Enum("B", {"X": 1}))
    assert encode(enum.Enum("A", {"X": 1})) != encode(enum.IntEnum("A", {"X": 1}))
    assert encode(enum.Enum("A", {"X": 1, "Y": 1})) != encode(enum.Enum("A", {"X": 1}))
    assert encode(enum.Flag("A", {"X": 1, "Y": 2}).X) == encode(enum.Flag("A", {"X": 1}).X)


def test_named_tuples_are_encoded_with_their_fields_and_defaults():
    def make_class(fields, **options):
        return collections.namedtuple("P", fields, **options)

    assert encode(make_class("x y")) == encode(make_class("x y"))
    assert encode(make_class("x y")) != encode(make_class("y x"))
    assert encode(make_class("x y")(1, 2)) != encode(make_class("y x")(1, 2))
    assert encode(make_class("x y", defaults=(1,))) != encode(make_class("x y"))
    assert encode(make_class("x y")(1, 2)) != encode((1, 2))
    changed = make_class("x y")
    changed.__new__.__defaults__ = (5,)
    assert encode(changed) != encode(make_class("x y"))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        types.SimpleNamespace(a=1),
        bytearray(b"a"),
        memoryview(b"a"),
        Integer(1),
        Float32(1),
        Float32,
        math,
        len.__call__,
        [].append,
        Point(1, 2)._replace,
        functools.partial(math.hypot, 1.0),
        np.vectorize(math.sqrt),
        np.frompyfunc(math.sqrt, 1, 1),
        np.array([1, "a"], object),
        np.dtype(object),
        np.longdouble(1),
        np.zeros(1, np.clongdouble),
        np.zeros(1).view(np.recarray),
        np.ma.array([1]),
        np.random.default_rng(0),
        np.random.rand,
        sys.version_info,
        type("SubPoint", (Point,), {"__new__": lambda cls: Point.__new__(cls, 1, 2)})(),
        type("SubPoint", (Point,), {"_fields": ("x",), "__new__": lambda cls, x: Point.__new__(cls, x, 2)})(
            1
        ),
        type("LikePoint", (tuple,), {"_fields": ("x",)})((1,)),
        type("LikePoint", (tuple,), {"_fields": ("y",), "__new__": lambda cls, x: tuple.__new__(cls, (x,))})(
            1
        ),
        type("LikePoint", (tuple,), {"_fields": ("x",), "__new__": lambda cls, *x: tuple.__new__(cls, x)})(1),
        (i for i in ()),
        ctypes.c_int(1),
        io.StringIO(),
        threading.Lock(),
        lambda: 1,
        fresh,
        test_different_values_have_different_encodings,
        Unfingerprintable,
        collections.OrderedDict(),
        (1, [object()]),
        {"a": object()},
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_exact_encoding_is_refused(value):
    with pytest.raises(Unfingerprintable, match="of type|is the class|is not for kernels"):
        encode(value)


def test_values_that_contain_themselves_are_refused():
    for loop, put in (([], list.append), ({}, lambda d, v: d.update(x=v))):
        put(loop, (1, loop))
        with pytest.raises(Unfingerprintable, match="contains itself"):
            encode(loop)
    shared = [1]
    assert encode([shared, shared]) == encode([[1], [1]])


def test_objects_are_not_the_compilers_because_they_say_so(monkeypatch):
    def sqrt(x):
        return x

    for liar in (sqrt, functools.partial(sqrt), types.SimpleNamespace()):
        liar.__module__, liar.__qualname__, liar.__name__ = "numpy", "sqrt", "sqrt"
        with pytest.raises(Unfingerprintable):
            encode(liar)
    monkeypatch.setattr(np, "sqrt_of_mine", sqrt, raising=False)
    sqrt.__qualname__ = "sqrt_of_mine"
    with pytest.raises(Unfingerprintable):
        encode(sqrt)
    wrapped = functools.wraps(np.isscalar)(lambda x: x)
    assert (wrapped.__module__, wrapped.__qualname__) == ("numpy", "isscalar")
    assert fingerprint(wrapped) != fingerprint(np.isscalar)


def shape_of(value):
    """What an encoding should tell, by another road: equal shapes if and only if equal encodings."""
    if isinstance(value, np.ndarray):
        return (
            "array",
            value.dtype.str,
            value.shape,
            value.strides,
            tuple(map(shape_of, value.ravel().tolist())),
        )
    if isinstance(value, np.generic):
        return ("scalar", value.dtype.str, value.tobytes())
    if isinstance(value, float):
        return ("float", struct.pack("<d", value))
    if isinstance(value, complex):
        return ("complex", struct.pack("<dd", value.real, value.imag))
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, tuple(map(shape_of, value)))
    if isinstance(value, dict):
        return ("dict", tuple((shape_of(k), shape_of(v)) for k, v in value.items()))
    if isinstance(value, frozenset):
        return ("frozenset", frozenset(map(shape_of, value)))
    return (type(value).__name__, value)


# Few different leaves, so that equal values and values that differ in one place turn up often.
SCALARS = st.one_of(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 0.0, -0.0, 1.0, math.nan, 0j, 1j, "", "1", b"", b"1", "11"]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.sampled_from([np.int32(1), np.int64(1), np.float32(1), np.float64(1), np.bool_(True), np.uint8(1)]),
)
KEYS = st.one_of(st.integers(-1, 1), st.sampled_from(["", "1", b"1", 0.5]))
VALUES = st.recursive(
    SCALARS
    | st.builds(lambda n, kind: np.arange(n).astype(kind), st.integers(0, 3), st.sampled_from(["i4", "f4"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.frozensets(KEYS, max_size=3),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
@settings(max_examples=400, deadline=None)
@example([0.0], [-0.0])
@example({1: 2, 3: 4}, {3: 4, 1: 2})
def test_encodings_are_equal_exactly_for_equal_values_of_equal_types(one, other):
    assert (encode(one) == encode(other)) == (shape_of(one) == shape_of(other))
    assert encode(one) == encode(copy.deepcopy(one))
    assert not encode(other).startswith(encode(one)) or encode(other) == encode(one)


# --------------------------------------------------------------------------------------------------
# What must not change a fingerprint


OPERATORS = {
    "lambda": "op = lambda a, b: a + 2.5 * b",
    "global": "SCALE = 2.0\nop = lambda a, b: a + SCALE * b",
    "closure": """
        def outer():
            scale = 2.0
            return lambda a, b: a + scale * b
        op = outer()
        """,
    "defaults": "def op(a, b, scale=2.0, *, bias=1.0): return a + scale * b + bias",
    "set constant": "op = lambda a, b: a if b in {1, 2, 3, 'x', (4, 5)} else b",
    "nested": """
        def op(a, b):
            def inner(x, y=3):
                return x * y + b
            return inner(a) + sum([inner(i) for i in (1, 2)])
        """,
    "helper": """
        K = (1, 2.0)
        def helper(x, n):
            return other(x, n - 1) if n else x
        def other(x, n):
            return helper(x, n) * K[0]
        op = lambda a, b: helper(a, 3) + b
        """,
    "try": """
        def op(a, b):
            try:
                return a / b
            except ZeroDivisionError:
                return a
        """,
}


@pytest.mark.parametrize("source", OPERATORS.values(), ids=OPERATORS)
def test_file_and_line_and_module_do_not_count(source):
    first = digest(source)
    assert digest(make(source, filename="/elsewhere/operators.py", line=500)) == first
    assert digest(make(source, __name__="another_module")) == first
    assert digest(make(source, __file__="/elsewhere.py", __doc__="another")) == first


@pytest.mark.parametrize("source", OPERATORS.values(), ids=OPERATORS)
def test_running_tracing_and_marshalling_do_not_count(source):
    import marshal

    function = make(source)
    first = fresh(function).digest
    for _ in range(2000):  # specialises its bytecode
        function(1, 2)
    assert fresh(function).digest == first
    previous = sys.gettrace()
    sys.settrace(lambda *_: lambda *_: None)  # instruments it
    try:
        function(1, 2)
        assert fresh(function).digest == first
    finally:
        sys.settrace(previous)
    loaded = marshal.loads(marshal.dumps(function.__code__))  # as from a .pyc
    again = types.FunctionType(
        loaded, function.__globals__, "again", function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__
    assert fresh(again).digest == first


def test_names_of_functions_do_not_count():
    assert digest("def op(a, b): return a + b") == digest("def f(a, b): return a + b\nop = f")
    assert digest("def op(a, b): return a + b") == digest("op = lambda a, b: a + b")
    nested = (
        "def {0}(a, b):\n  def inner(x): return [x + y for y in (1, 2)]\n  return inner(a)[0] + b\nop = {0}"
    )
    assert digest(nested.format("op")) == digest(nested.format("g"))
    function = make("def op(a, b): return a + b")
    first = fresh(function).digest
    function.__name__, function.__qualname__, function.__module__ = "x", "y.x", "z"
    assert fresh(function).digest == first


def test_names_of_local_variables_do_not_count():
    assert digest("def op(a, b): c = a; return c + b") == digest("def op(x, y): z = x; return z + y")
    assert digest("op = lambda a, b: a - b") != digest("op = lambda b, a: a - b")


def test_attributes_of_functions_do_not_count():
    """They are not in the copy that numba compiles."""
    assert digest("op = lambda a, b: a + b\nop.x = object()") == digest("op = lambda a, b: a + b")


def test_docstrings_do_not_count():
    body = "return a * 2.5 + b"
    plain = digest(f"def op(a, b):\n  {body}")
    assert digest(f"def op(a, b):\n  'Adds.'\n  {body}") == plain
    assert digest(f"def op(a, b):\n  'Adds in another way.'\n  {body}") == plain
    # With a string that is no docstring, and with a docstring that is also a constant.
    returns = "def op(a, b):\n  '{}'\n  return 'x'"
    assert digest(returns.format("x")) == digest(returns.format("y"))
    assert digest("def op(a, b): return None") == digest("def op(a, b):\n  'doc'\n  return None")


def test_annotations_and_future_imports_do_not_count():
    plain = digest("def op(a, b): return a + b")
    assert digest("def op(a: int, b: 'float') -> complex: return a + b") == plain
    assert digest("from __future__ import annotations\ndef op(a: X, b): return a + b") == plain


def test_identity_of_equal_values_does_not_count():
    source = "op = lambda a, b: a + BIG + FLOAT + len(TEXT) + TUPLE[0] + ARRAY[0]"

    def values():
        return dict(
            BIG=int("1" * 30),
            FLOAT=float("1.25"),
            TEXT="".join(["ab", "c"]),
            TUPLE=(*[1, 2],),
            ARRAY=np.array([1.0, 2.0]),
        )

    assert digest(source, **values()) == digest(source, **values())


def test_globals_that_are_not_read_do_not_count():
    config = module(SCALE=2.0, other=object())
    source = "op = lambda a, b: a.real + config.SCALE * b"
    first = digest(source, config=config)
    config.other = 3
    config.real = 7
    assert digest(source, config=config, real=5, SCALE=9, unread=object()) == first
    # Assigned in the function, so local to it.
    assert digest("def op(a, b): c = a; return c + b", c=1) == digest(
        "def op(a, b): c = a; return c + b", c=2
    )


def test_the_name_of_a_module_does_not_count():
    source = "op = lambda a, b: a + config.SCALE * b"
    assert digest(source, config=module("x", SCALE=2.0)) == digest(source, config=module("y", SCALE=2.0))


SEEDED = """
import sys, types
sys.modules["cupar"] = types.ModuleType("cupar")
sys.modules["cupar"].__path__ = [ROOT]
import numpy as np
from cupar._fingerprint.walk import encode, fingerprint
names = frozenset(["alpha", "beta", "gamma", (1, "delta"), 2.5])
table = {"a": 1, "b": (2, frozenset("xyz"))}
def helper(x): return x in {"p", "q", "r", ("s", "t")}
def op(a, b):
    def inner(x): return x in {"one", "two", "three"}
    return a if helper(a) or inner(b) or a in names or a in table else b
print(fingerprint(op).digest.hex(), encode(set("abcdefgh")).hex())
print(fingerprint(np.hypot).digest.hex(), fingerprint(lambda a, b: a + b).digest.hex())
"""


def test_processes_and_hash_seeds_do_not_count():
    root = str(pathlib.Path(walk.__file__).parent.parent)
    # Without cupar/__init__.py, which needs more than this test does.
    program = SEEDED.replace("ROOT", repr(root))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", "\n" * int(seed) + program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in "012"
    }
    assert len(outputs) == 1
    assert digest(lambda a, b: a + b).hex() in outputs.pop()


NAMES = st.sampled_from(["a", "b", "K", "config.S", "math.pi", "2", "2.0", "True", "-0.0", "(1, 2)[0]"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if a > {t[1]} else {t[2]})"),
        inner.map(lambda e: f"math.sqrt(abs({e}))"),
        inner.map(lambda e: f"(lambda x: x + {e})(b)"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, EXPRESSIONS, st.integers(1, 300), st.sampled_from([1.0, 2.0]))
@settings(max_examples=150, deadline=None)
def test_random_operators(source, other, line, constant):
    names = {"K": constant, "math": math, "config": module(S=constant)}
    first = make(f"op = lambda a, b: {source}", **names)
    again = make(f"op = lambda a, b: {source}", filename="other.py", line=line, **names)
    named = make(f"def op(a, b):\n  'Doc.'\n  return {source}", line=line, **names)
    assert digest(first) == digest(again) == digest(named)
    changed = make(f"op = lambda a, b: {source} + 77", **names)
    assert digest(changed) != digest(first)
    if "K" in source or "config.S" in source:
        assert digest(make(f"op = lambda a, b: {source}", K=3.0, math=math, config=module(S=3.0))) != digest(
            first
        )
    second = make(f"op = lambda a, b: {other}", **names)
    if digest(second) == digest(first):
        code, other_code = first.__code__, second.__code__
        assert code.co_code == other_code.co_code
        assert code.co_names == other_code.co_names


# --------------------------------------------------------------------------------------------------
# What must change a fingerprint


SOURCES_THAT_DIFFER = [
    # code
    "op = lambda a, b: a + b",
    "op = lambda a, b: b + a",
    "op = lambda a, b: a - b",
    "op = lambda a: a",
    "op = lambda a, b: a",
    "op = lambda a, b, c: a + b",
    "op = lambda *a: a",
    "op = lambda **a: a",
    "op = lambda a, /, b: a + b",
    "op = lambda a, *, b: a + b",
    "def op(a, b): yield a + b",
    "async def op(a, b): return a + b",
    "def op(a, b): b = 1; return a + b",
    "def op(a): b = 1; return a + b",
    "def op(a, *, b): b = 1; return a + b",
    # constants
    "op = lambda a, b: a + 1",
    "op = lambda a, b: a + 1.0",
    "op = lambda a, b: a + True",
    "op = lambda a, b: a + 2",
    "op = lambda a, b: a + 300",
    "op = lambda a, b: a + 301",
    "op = lambda a, b: a + 0.0",
    "op = lambda a, b: a + -0.0",
    "op = lambda a, b: a + 1j",
    "op = lambda a, b: a + '1'",
    "op = lambda a, b: a + b'1'",
    "op = lambda a, b: a + (1, 2)[b]",
    "op = lambda a, b: a + (1, 2.0)[b]",
    "op = lambda a, b: a in {1, 2}",
    "op = lambda a, b: a in {1, 3}",
    "op = lambda a, b: a in (1, 2)",
    "op = lambda a, b: a[1:2]",
    "op = lambda a, b: a[1:3]",
    "op = lambda a, b: a[...]",
    "op = lambda a, b: None",
    "op = lambda a, b: 'doc'",
    # names of attributes, keywords
    "op = lambda a, b: a.real",
    "op = lambda a, b: a.imag",
    "op = lambda a, b: a.real()",
    "op = lambda a, b: abs(a)",
    "op = lambda a, b: min(a, b)",
    "op = lambda a, b: max(a, b)",
    "op = lambda a, b: max(a, x=b)",
    "op = lambda a, b: max(a, y=b)",
    # nested code
    "op = lambda a, b: (lambda x: x + 1)(a)",
    "op = lambda a, b: (lambda x: x + 2)(a)",
    "op = lambda a, b: (lambda x=1: x + 2)(a)",
    "op = lambda a, b: (lambda x, y: x - y)(x=a, y=b)",
    "op = lambda a, b: (lambda y, x: y - x)(x=a, y=b)",
    "op = lambda a, b: (lambda: a)()",
    "op = lambda b, a: (lambda: a)()",
    "op = lambda a, b: (lambda: a)() - b",
    "op = lambda a, b: (lambda: b)() - b",
    "op = lambda a, b: (lambda: a)() - (lambda: b)()",
    "op = lambda a, b: (lambda: b)() - (lambda: a)()",
    "op = lambda a, b: sum([x + 1 for x in a])",
    "op = lambda a, b: sum([x + 2 for x in a])",
    # what only the exception table tells
    "def op(a, b):\n  try:\n    c = a / b\n  except ValueError:\n    return b\n  d = a / b\n  return c + d",
    "def op(a, b):\n  try:\n    c = a / b\n    d = a / b\n  except ValueError:\n    return b\n  return c + d",
    # defaults
    "op = lambda a, b=1: a + b",
    "op = lambda a, b=2: a + b",
    "op = lambda a, b=1.0: a + b",
    "op = lambda a=1, b=1: a + b",
    "op = lambda a, *, b=1: a + b",
    "op = lambda a, *, b=2: a + b",
    "def op(*, s=1, t=2): return s - t",
    "def op(*, t=2, s=1): return t - s",
    "def op(*, t=1, s=2): return s - t",
    "def op(*, s, t): return s - t\nop.__kwdefaults__ = {'s': 3, 't': 4}",
    "def op(*, t, s): return t - s\nop.__kwdefaults__ = {'s': 3, 't': 4}",
    # globals
    "K = 1\nop = lambda a, b: a + K",
    "K = 1.0\nop = lambda a, b: a + K",
    "K = 2\nop = lambda a, b: a + K",
    "op = lambda a, b: a + K",  # which does not exist
    "K = None\nop = lambda a, b: a + K",
    "L = 1\nop = lambda a, b: a + L",
    "abs = 3\nop = lambda a, b: abs(a)",  # hides a builtin
    "K = 1\nop = lambda a, b: [K + x for x in a]",
    "K = 2\nop = lambda a, b: [K + x for x in a]",
    "K = 1\nop = lambda a, b: (lambda x: (lambda y: y + K)(x))(a)",
    "K = 2\nop = lambda a, b: (lambda x: (lambda y: y + K)(x))(a)",
    "K = {'x': [1, (2, 3)]}\nop = lambda a, b: K['x'][b]",
    "K = {'x': [1, (2, 4)]}\nop = lambda a, b: K['x'][b]",
    "S = 3.0\nR = 2.0\nop = lambda a, b: S * a + R",
    "S = 2.0\nR = 3.0\nop = lambda a, b: S * a + R",
    # closures
    "def f(s):\n  return lambda a, b: a + s * b\nop = f(1)",
    "def f(s):\n  return lambda a, b: a + s * b\nop = f(2)",
    "def f(s):\n  return lambda a, b: a + s * b\nop = f(1.0)",
    "def f(s):\n  return lambda a, b: a + (lambda: s)() * b\nop = f(1.0)",
    "def f(s):\n  def g(a):\n    def h():\n      nonlocal s\n      s = 3\n    return a\n  return g\nop=f(1)",
    "def f(s):\n  def g(a):\n    def h():\n      nonlocal s\n      s = 3\n    return a\n  return g\nop=f(2)",
    "def f(s):\n  return lambda a, b: a + (lambda: s)() * b\nop = f(2.0)",
    "def f(s, t):\n  return lambda a, b: s * a + t * b\nop = f(1, 2)",
    "def f(s, t):\n  return lambda a, b: s * a + t * b\nop = f(2, 1)",
    "def f():\n  op = lambda a, b: a + s\n  return op\n  s = 1\nop = f()",  # an empty cell
    # functions it calls
    "def h(x): return x + 1\nop = lambda a, b: h(a)",
    "def h(x): return x + 2\nop = lambda a, b: h(a)",
    "def h(x, y=1): return x + y\nop = lambda a, b: h(a)",
    "def h(x, y=2): return x + y\nop = lambda a, b: h(a)",
    "def h(x, y): return x - y\nop = lambda a, b: h(x=a, y=b)",
    "def h(y, x): return y - x\nop = lambda a, b: h(x=a, y=b)",
    "K = 1\ndef h(x): return x + K\nop = lambda a, b: h(a)",
    "K = 2\ndef h(x): return x + K\nop = lambda a, b: h(a)",
    "def f(k):\n  return lambda x: x + k\nh = f(1)\nop = lambda a, b: h(a)",
    "def f(k):\n  return lambda x: x + k\nh = f(2)\nop = lambda a, b: h(a)",
    "def g(x): return x + 1\ndef h(x): return g(x)\nop = lambda a, b: h(a)",
    "def g(x): return x + 2\ndef h(x): return g(x)\nop = lambda a, b: h(a)",
    "hs = (lambda x: x + 1, lambda x: x + 2)\nop = lambda a, b: hs[0](a)",
    "hs = (lambda x: x + 2, lambda x: x + 1)\nop = lambda a, b: hs[0](a)",
    "hs = [lambda x: x + 1, {'k': lambda x: x + 2}]\nop = lambda a, b: hs[0](a)",
    "hs = [lambda x: x + 1, {'k': lambda x: x + 3}]\nop = lambda a, b: hs[0](a)",
    "op = lambda a, b, h=lambda x: x + 1: h(a)",
    "op = lambda a, b, h=lambda x: x + 2: h(a)",
    # recursion
    "def op(a, b): return op(a, b - 1) if b else a",
    "def op(a, b): return op(a, b - 2) if b else a",
    "def op(a, b): return op(a=b, b=a)",
    "def op(b, a): return op(a=a, b=b)",
    "def f(n): return g(n) + 1\ndef g(n): return f(n) + 2\nop = lambda a, b: f(a)",
    "def f(n): return g(n) + 2\ndef g(n): return f(n) + 1\nop = lambda a, b: f(a)",
    "def f(n): return g(n) + 1\ndef g(n): return f(n) + 2\nop = lambda a, b: g(a)",
    "def f(n): return g(n) + 1\ndef g(n): return g(n) + 2\nop = lambda a, b: f(a)",
    "def f(n): return f(n) + 1\ndef g(n): return f(n) + 2\nop = lambda a, b: g(a)",
    "def f(x): return g(x)\ndef g(x): return f(x)\nop = lambda a, b: f(g(a))",
    "def f(x): return f(x)\ndef g(x): return f(x)\nop = lambda a, b: f(g(a))",
    # values of other kinds
    "import math\nop = lambda a, b: math.sqrt(a)",
    "import math\nop = lambda a, b: math.exp(a)",
    "import cmath as math\nop = lambda a, b: math.sqrt(a)",
    "import numpy as math\nop = lambda a, b: math.sqrt(a)",
    "from math import sqrt\nop = lambda a, b: sqrt(a)",
    "from numpy import sqrt\nop = lambda a, b: sqrt(a)",
    "import numpy as np\nop = lambda a, b: np.float32(a)",
    "import numpy as np\nop = lambda a, b: np.float64(a)",
    "import numpy as np\nT = np.float32\nop = lambda a, b: T(a)",
    "import numpy as np\nT = np.float64\nop = lambda a, b: T(a)",
    "import numpy as np\nT = np.dtype('f4')\nop = lambda a, b: T(a)",
    "import enum\nclass E(enum.Enum):\n  A = 1\nop = lambda a, b: a * E.A.value",
    "import enum\nclass E(enum.Enum):\n  A = 2\nop = lambda a, b: a * E.A.value",
    "import enum\nclass E(enum.IntEnum):\n  A = 1\nop = lambda a, b: a * E.A.value",
    "import enum\nclass E(enum.Enum):\n  A = 1\nM = E.A\nop = lambda a, b: a * M.value",
    "import enum\nclass E(enum.Enum):\n  A = 2\nM = E.A\nop = lambda a, b: a * M.value",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(1, 2)\nop = lambda a, b: a * p.x",
    "from collections import namedtuple\nP = namedtuple('P', 'y x')\np = P(1, 2)\nop = lambda a, b: a * p.x",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\np = P(3, 2)\nop = lambda a, b: a * p.x",
    "from collections import namedtuple\nP = namedtuple('P', 'x y')\nop = lambda a, b: P(a, b).x",
    "from collections import namedtuple\nP = namedtuple('P', 'y x')\nop = lambda a, b: P(a, b).x",
    # wrapped: numba takes parameters and their defaults from the wrapped function
]


def test_each_of_these_operators_differs():
    digests = {}
    for source in SOURCES_THAT_DIFFER:
        clash = digests.setdefault(digest(source), source)
        assert clash is source, f"{clash}\n\nand\n\n{source}"


def test_who_is_called_again_counts():
    def operators(again):
        f = make("op = lambda x: g(x) + 1")
        g = make("op = lambda x: f(x) + 2", **({"f": f} if again == "f" else {}))
        f.__globals__["g"] = g
        if again == "g":
            g.__globals__["f"] = g
        return make("op = lambda a, b: f(a)", f=f)

    assert digest(operators("f")) == digest(operators("f"))
    assert digest(operators("f")) != digest(operators("g"))


def test_a_module_differs_from_a_value_with_the_same_attributes():
    pair = collections.namedtuple("Pair", "a b")(1, 2)
    like_pair = module(a=pair, b=pair)
    source = "op = lambda x: m.a + m.b + n.a + n.b"
    assert digest(source, m=like_pair, n=pair) != digest(source, m=pair, n=like_pair)


def test_the_code_of_a_nested_function_counts_beyond_255_constants():
    body = " + ".join(f"a[{i}.5]" for i in range(300))
    assert digest(f"op = lambda a, b: {body}") != digest(
        f"op = lambda a, b: {body.replace('[299.5]', '[299.25]')}"
    )
    names = "".join(f"x{i} = {i}\n" for i in range(300))
    source = names + "op = lambda a, b: " + " + ".join(f"x{i}" for i in range(300))
    assert digest(source) != digest(source.replace("x299 = 299", "x299 = 300"))


@pytest.mark.parametrize(
    "read",
    [
        "config.K",
        "(config\n  .K)",
        "config.K.real",
        "(config.K if a else b)",
        "[config.K for _ in (1,)][0]",
        "(lambda: config.K)()",
        "config.h(a)",
        "h(a)",
        "config.sub.K",
        "config.sub.sub.K",
        "pairs[0][1](a)",
    ],
)
def test_attributes_of_modules_count_through_chains(read):
    def variant(value):
        sub = module("sub", K=value if "sub" in read else 0)
        sub.sub = sub
        config = module(K=value, sub=sub)
        h = make("op = lambda x: x + config.K", config=config)
        return {"config": config, "h": h, "pairs": ((1, h),)} | (
            {"config": module(h=h)} if "config.h" in read else {}
        )

    source = f"op = lambda a, b: {read}"
    assert digest(source, **variant(1.0)) == digest(source, **variant(1.0))
    assert digest(source, **variant(1.0)) != digest(source, **variant(2.0))
    assert digest(source, **variant(1.0)) != digest(source, **variant(1))
    closure = f"def f(config, h, pairs):\n  return lambda a, b: {read}\nop = f(config, h, pairs)"
    assert digest(closure, **variant(1.0)) == digest(closure, **variant(1.0))
    assert digest(closure, **variant(1.0)) != digest(closure, **variant(2.0))


def test_attribute_reads_beyond_255_names():
    names = [f"x{i}" for i in range(300)]
    source = "op = lambda a, b: " + " + ".join([*names, "config.K"])
    one, two = (digest(source, config=module(K=k), **dict.fromkeys(names, 0)) for k in (1, 2))
    assert one != two


def test_attributes_that_a_module_computes_count():
    config = module()
    config.__getattr__ = lambda name: {"K": value}[name]
    source = "op = lambda a, b: config.K"
    value = 1
    first = digest(source, config=config)
    value = 2
    assert digest(source, config=config) != first


def test_a_missing_attribute_of_a_module_counts():
    source = "op = lambda a, b: config.K"
    assert digest(source, config=module()) != digest(source, config=module(K=None))
    assert digest(source, config=module()) == digest(source, config=module(L=1))


def test_arrays_count_by_value():
    source = "op = lambda a, b: TABLE[a] + b"
    table = np.arange(4.0)
    function = make(source, TABLE=table)
    first = digest(function)
    assert digest(source, TABLE=np.arange(4.0)) == first
    table[2] = 7
    assert digest(function) != first
    table[2] = 2
    assert digest(function) == first
    assert digest(source, TABLE=np.arange(4.0, dtype="f4")) != first
    assert digest(source, TABLE=np.arange(4.0).reshape(2, 2)) != first
    assert digest(source, TABLE=np.repeat(np.arange(4.0), 2)[::2]) != first


def test_a_user_registered_builtin_counts(monkeypatch):
    source = "op = lambda a, b: a + my_constant"
    missing = digest(source)
    monkeypatch.setattr(builtins, "my_constant", 1, raising=False)
    one = digest(source)
    monkeypatch.setattr(builtins, "my_constant", 2)
    assert len({missing, one, digest(source)}) == 3


def test_builtins_and_ufuncs():
    known = [math.hypot, operator.floordiv, operator.add, np.hypot, np.add, np.sum, max, np.float32, int]
    assert len({fingerprint(each).digest for each in known}) == len(known)
    assert fingerprint(math.hypot) is fingerprint(math.hypot)


# --------------------------------------------------------------------------------------------------
# What is refused, and how


class Config:
    K = 3

    def method(self, a, b):
        return a + b

    def __call__(self, a, b):
        return a + b


class DeviceArray:
    def __init__(self, shape=(3,), typestr="<f4", address=0):
        self.interface = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3}

    @property
    def __cuda_array_interface__(self):
        return self.interface


def refusal(source, **names):
    with pytest.raises(Unfingerprintable) as caught:
        fingerprint(make(source, filename="ops.py", line=7, **names))
    return str(caught.value)


def test_errors_name_the_operator_and_what_it_read():
    cfg = types.SimpleNamespace(a=1)
    readable = (
        "It has no exact encoding; numbers, strings, tuples, NumPy arrays and dtypes, enums, named tuples, "
        "functions, and attributes of modules have one."
    )
    assert refusal("def op(a, b): return a + cfg.a", cfg=cfg) == (
        "operator 'op' (ops.py:7): global 'cfg' is of type types.SimpleNamespace. " + readable
    )
    assert "'<lambda>' (ops.py:7): config.table is of type" in refusal(
        "op = lambda a, b: a + config.table", config=module(table=cfg)
    )
    assert "closure variable 'x' is of type tests" not in refusal(
        "def f(x):\n  return lambda a, b: x\nop = f(cfg)", cfg=cfg
    )
    assert "closure variable 'x' is of type types.SimpleNamespace" in refusal(
        "def f(x):\n  return lambda a, b: x\nop = f(cfg)", cfg=cfg
    )
    assert "global 'cfg' in 'helper' is of type" in refusal(
        "def helper(x): return cfg\nop = lambda a, b: helper(a)", cfg=cfg
    )
    assert "global 'pairs'[1]['k'] is of type" in refusal("op = lambda a, b: pairs", pairs=[1, {"k": cfg}])
    assert "an item of global 'items' is of type" in refusal("op = lambda a, b: items", items={cfg.__eq__})
    assert "defaults[1] is of type" in refusal("op = lambda a, b=1, c=cfg: a", cfg=cfg)
    # What a kernel cannot do is said before what cannot be told apart.
    assert "it has keyword-only parameters" in refusal("op = lambda a, *, c=cfg: a", cfg=cfg)


@pytest.mark.parametrize(
    "value",
    [
        Config,
        Config(),
        Config().method,
        functools.partial(max, 1),
        (i for i in ()),
        ctypes.CDLL(None).getpid,
        threading.Lock(),
        (math,),
        {"config": math},
        [object()],
        np.array([object()]),
        sys.stdout,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_an_exact_encoding(value):
    assert "global 'x'" in refusal("op = lambda a, b: x(a)", x=value)
    assert "closure variable 'x'" in refusal("def f(x):\n  return lambda a, b: x\nop = f(x)", x=value)


@pytest.mark.parametrize(
    "value", [Config, Config(), Config().method, functools.partial(max, 1), math, 3, (max, min)]
)
def test_operators_that_are_no_functions(value):
    with pytest.raises(TypeError, match=r"^expected a (Python )?function, (an OpKind|got)"):
        fingerprint(value)


@pytest.mark.parametrize(
    "source",
    [
        "op = lambda a, b: config",
        "op = lambda a, b: h(config, a)",  # numba passes modules to functions
        "def get(): return config\nop = lambda a, b: get().K",  # and returns them
        "def op(a, b):\n  m = config\n  return m.K",
        "op = lambda a, b: (m := config).K",
        "op = lambda a, b: getattr(config, 'K')",
        "op = lambda a, b: config.sub",
        "def op(a, b):\n  m = config\n  return (lambda: m.K)()",
        "def f(m):\n  return lambda a, b: m\nop = f(config)",
        "def f(m):\n  return lambda a, b: (lambda: m)()\nop = f(config)",
        "op = lambda a, b, m=config: m.K",
    ],
)
def test_modules_must_not_escape(source):
    text = refusal(source, config=module(K=1, sub=module("sub")), h=lambda m, a: m.K)
    assert "is of type module. Write `" in text
    assert ".name` wherever the operator reads a name of that module." in text


def test_a_module_that_is_one_of_two_values_is_refused_or_followed():
    # Which of them depends on where Python puts the read of the attribute.
    def digest_or_refuse(value):
        try:
            return digest("op = lambda a, b: (config if a else b).K + a", config=module(K=value))
        except Unfingerprintable:
            return value

    assert digest_or_refuse(1) != digest_or_refuse(2)


def test_device_arrays_are_encoded_by_type():
    def digest_of(x):
        return fingerprint(make("op = lambda a, b: x[0]", x=x)).digest

    same = digest_of(DeviceArray())
    assert same == digest_of(DeviceArray(address=4096, shape=(7,)))
    others = [DeviceArray(shape=(3, 1)), DeviceArray(typestr="<i4"), 1.0, np.zeros(3, "f4")]
    assert len({same, *map(digest_of, others)}) == 5


def test_captures_say_where_the_arrays_are():
    found = fingerprint(make("op = lambda a, b: x[0] + x[1]", x=DeviceArray()))
    assert [(each.name, each.in_closure, each.ndim) for each in found.captures] == [("x", False, 1)]

    def around(y):
        return lambda a, b: y[0]

    one, other = DeviceArray(), DeviceArray(address=4096)
    found = fingerprint(around(one))
    assert [(each.name, each.in_closure) for each in found.captures] == [("y", True)]
    assert found.captures[0].of(around(other)) is other
    assert found.guard.check(around(other))
    assert not found.guard.check(around(DeviceArray(typestr="<i4")))


MODULE = types.ModuleType("module")
MODULE.y = DeviceArray()


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("op = lambda a, b: x[0]", {"x": (DeviceArray(),)}),
        ("op = lambda a, b: x.y[0]", {"x": MODULE}),
        ("def helper(a): return x[0]\ndef op(a, b): return helper(a)", {"x": DeviceArray()}),
        ("def op(a, b, c=x): return a", {"x": DeviceArray()}),
    ],
)
def test_device_arrays_in_other_places_are_refused(source, names):
    assert "must be a global or a closure variable of the operator itself" in refusal(source, **names)


def test_a_globals_dict_that_computes_its_values_is_refused():
    class Computing(dict):
        def __missing__(self, name):
            return 1

    function = types.FunctionType((lambda a: K).__code__, Computing())  # noqa: F821
    with pytest.raises(Unfingerprintable, match="Computing"):
        fingerprint(function)


# --------------------------------------------------------------------------------------------------
# Checking again


def test_an_operator_that_was_seen_is_not_fingerprinted_again(monkeypatch):
    function = make("op = lambda a, b: a + config.K + math.pi + K", config=module(K=1), math=math, K=2)
    first = fingerprint(function)
    monkeypatch.setattr(walk, "_Walk", None)
    assert fingerprint(function) is first


def test_helpers_in_defaults_have_guards():
    names = {"SCALE": 2.0}
    exec("def helper(x): return x * SCALE\ndef op(a, b, h=helper): return h(a) + b", names)
    check = fingerprint(names["op"]).guard.checker()
    assert check(names["op"])
    names["SCALE"] = 3.0
    assert not check(names["op"])


def test_lambdas_made_again_are_known(monkeypatch):
    scale = 1.5

    def operators(offset):
        table = np.arange(3.0)
        return lambda a, b, bias=offset: a + scale * b + bias + table[0]

    first = fingerprint(operators(2.5))
    second = fingerprint(operators(3.5))
    assert first != second
    monkeypatch.setattr(walk, "_Walk", None)
    assert fingerprint(operators(float("2.5"))) is first
    assert fingerprint(operators(3.5)) is second


def test_functions_of_one_code_object_are_told_apart():
    source = "def f(s):\n  return lambda a, b: a + s * b\nop = f"
    closures = [make(source)(s) for s in (1, 1.0, True, "1", 2, None, (1,), (1.0,), np.int32(1), np.int64(1))]
    digests = [fingerprint(function).digest for function in closures * 2]
    assert len(set(digests)) == len(closures)
    made = make(source)
    same_code = [made(s) for s in (1, 1.0, True, 0.0, -0.0, (0.0,), (-0.0,), [1], [1.0])]
    assert len({fingerprint(function).digest for function in same_code * 2}) == len(same_code)


def test_the_same_code_with_other_globals_is_told_apart():
    code = make("op = lambda a, b: a + K", K=1).__code__
    one, two = (types.FunctionType(code, {"K": k}) for k in (1, 2))
    assert fingerprint(one).digest != fingerprint(two).digest
    assert not fingerprint(one).guard.check(two)


def test_recursive_functions_are_known_by_identity():
    source = "def op(a, b): return op(a, b - 1) if b else a"
    function = make(source)
    first = fingerprint(function)
    assert first.guard.check(function)
    twin = types.FunctionType(function.__code__, function.__globals__)  # calls `function`, not itself
    assert fresh(twin).digest != first.digest
    assert not first.guard.check(twin)


@pytest.mark.usefixtures("older_are_frozen")
def test_what_is_kept_is_bounded_and_does_not_hold_arrays(monkeypatch):
    for name in ("_recent", "_known_loads"):
        monkeypatch.setattr(walk, name, Bounded(functools.partial(LRUCache, 10)))
    array = np.zeros(3)
    alive = sys.getrefcount(array)
    function = make("def f(t):\n  return lambda a, b: t[0]\nop = f")(array)
    fingerprint(function)
    del function
    gc.collect()
    assert sys.getrefcount(array) == alive
    for i in range(50):
        fingerprint(make(f"op = lambda a, b: a + {i}"))
    assert len(walk._recent) <= 10
    assert len(walk._known_loads) <= 10
    made = make("def f(s):\n  return lambda a, b: a + s\nop = f")
    for i in range(50):
        fingerprint(made(i))
    assert max(map(len, walk._recent.values())) <= walk._VARIANTS


def test_threads_agree():
    made = make("def f(s):\n  return lambda a, b: a + s\nop = f")
    expected = [fresh(made(i)).digest for i in range(8)]
    results = []

    def work():
        results.extend(fingerprint(made(i % 8)).digest == expected[i % 8] for i in range(500))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2000
    assert all(results)


class World:
    """An operator that depends on something of each kind, and the ways to change it."""

    SOURCE = """
        def callee(x, extra=1):
            return x + K + extra

        def outer(captured, table):
            def op(a, b, bias=0.5, *, scale=2.0):
                return (
                    callee(a) + K + config.value + config.sub.value + captured + table[0] + array[0]
                    + member.value + point.x + abs(b) + settings["x"][0] + pairs[0](b) + missing
                    + mixed[1][0] + record.x
                )
            return op

        op = outer(captured, table)
        """

    def __init__(self):
        self.sub = module("sub", value=1)
        self.config = module(value=1, sub=self.sub)
        self.table = [1, 2]
        self.array = np.array([1.0, 2.0])
        self.settings = {"x": [1]}
        self.mixed = (1, [1])
        self.record = np.zeros(1, [("x", "f8")])[0]
        self.function = make(
            self.SOURCE,
            K=1,
            config=self.config,
            captured=1,
            table=self.table,
            array=self.array,
            member=Color.RED,
            point=Point(1, 2),
            settings=self.settings,
            mixed=self.mixed,
            record=self.record,
            pairs=(make("op = lambda x: x"),),
        )
        self.globals = self.function.__globals__

    @property
    def callee(self):
        return self.globals["callee"]

    def cell(self, name):
        return self.function.__closure__[self.function.__code__.co_freevars.index(name)]

    def set_cell(self, name, value):
        self.cell(name).cell_contents = value

    def set_global(self, name, value):
        self.globals[name] = value

    def delete_global(self, name):
        self.globals.pop(name, None)

    def set_default(self, value):
        self.function.__defaults__ = (value,)

    def set_keyword_default(self, value):
        self.function.__kwdefaults__ = {"scale": value}

    def edit_keyword_default(self, value):
        self.function.__kwdefaults__["scale"] = value

    def set_callee_default(self, value):
        self.callee.__defaults__ = (value,)

    def set_code(self, which):
        self.callee.__code__ = make(f"def op(x, extra=1): return x + {which}").__code__

    def set_callee(self, value):
        self.globals["callee"] = make("def op(x, extra=1): return x + K", K=value)

    def set_attribute(self, value):
        self.config.value = value

    def set_deep_attribute(self, value):
        self.sub.value = value

    def replace_module(self, value):
        self.globals["config"] = module(value=value, sub=self.sub)

    def delete_attribute(self):
        vars(self.config).pop("value", None)

    def edit_array(self, value):
        self.array[1] = value

    def reshape_array(self, shape):
        self.globals["array"] = np.zeros(shape)

    def edit_list(self, value):
        self.table[1] = value

    def edit_dict(self, value):
        self.settings["x"][0] = value

    def edit_tuple(self, value):
        self.mixed[1][0] = value

    def edit_record(self, value):
        self.record["x"] = value

    def set_pair(self, value):
        self.globals["pairs"] = (make("op = lambda x: x + K", K=value),)

    def edit_pair(self, value):
        self.globals["pairs"][0].__defaults__ = (value,)


SMALL = st.sampled_from([0, 1, 1.0, True, -0.0, 0.0, 2, None, "1", (1,), (1.0,), (1, 2), math.nan])
NUMBER = st.sampled_from([0.0, -0.0, 1.0, 2.0])
MUTATIONS = st.one_of(
    st.tuples(st.just("set_global"), st.sampled_from(["K", "missing", "abs", "point"]), SMALL),
    st.tuples(st.just("delete_global"), st.sampled_from(["K", "missing", "abs"])),
    st.tuples(st.just("set_global"), st.just("member"), st.sampled_from([*Color, *Number, 1])),
    st.tuples(
        st.just("set_global"),
        st.just("point"),
        st.sampled_from([Point(1, 2), Point(1.0, 2), TypedPoint(1, 2)]),
    ),
    st.tuples(st.just("set_cell"), st.sampled_from(["captured", "table"]), SMALL),
    st.tuples(
        st.sampled_from(
            [
                "set_default",
                "set_keyword_default",
                "edit_keyword_default",
                "set_callee_default",
                "set_callee",
                "set_attribute",
                "set_deep_attribute",
                "replace_module",
                "edit_list",
                "edit_dict",
                "edit_tuple",
                "set_pair",
                "edit_pair",
            ]
        ),
        SMALL,
    ),
    st.tuples(st.just("set_code"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["edit_array", "edit_record"]), NUMBER),
    st.tuples(st.just("reshape_array"), st.sampled_from([2, (2, 1), (1, 2)])),
    st.tuples(st.just("delete_attribute")),
)


@given(st.lists(MUTATIONS, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_the_check_never_overlooks_a_change(mutations):
    world = World()
    known = [fresh(world.function)]
    for name, *arguments in mutations:
        getattr(world, name)(*arguments)
        now = fresh(world.function)
        for each in known:
            if each.guard.check(world.function):
                assert each.digest == now.digest, (name, arguments)
        assert now.guard.check(world.function)
        assert fingerprint(world.function).digest == now.digest
        known.append(now)


@pytest.mark.parametrize(
    "mutation",
    [
        ("set_global", "K", 2),
        ("set_global", "K", 1.0),
        ("set_global", "missing", 1),
        ("set_global", "abs", max),
        ("set_global", "member", Color.GREEN),
        ("set_global", "member", Number.RED),
        ("set_global", "point", Point(3, 2)),
        ("delete_global", "K"),
        ("set_cell", "captured", 2),
        ("set_cell", "table", [2]),
        ("set_default", 0.25),
        ("set_keyword_default", 3.0),
        ("edit_keyword_default", 3.0),
        ("set_callee_default", 2),
        ("set_code", 1),
        ("set_callee", 1),
        ("set_attribute", 2),
        ("set_deep_attribute", 2),
        ("replace_module", 2),
        ("delete_attribute",),
        ("edit_array", 3.0),
        ("reshape_array", (2, 1)),
        ("edit_list", 3),
        ("edit_dict", 3),
        ("edit_tuple", 3),
        ("edit_record", 3.0),
        ("set_global", "point", (1, 2)),
        ("set_pair", 1),
        ("edit_pair", 1),
    ],
    ids=lambda mutation: " ".join(map(str, mutation)),
)
def test_each_of_these_changes_is_noticed(mutation):
    world = World()
    first = fingerprint(world.function)
    assert first.guard.check(world.function)
    name, *arguments = mutation
    getattr(world, name)(*arguments)
    assert not first.guard.check(world.function)
    assert fingerprint(world.function).digest != first.digest


def test_changed_code_and_emptied_cells_are_noticed():
    world = World()
    first = fingerprint(world.function)
    del world.cell("captured").cell_contents
    assert not first.guard.check(world.function)
    function = make("op = lambda a, b: a + b")
    first = fingerprint(function)
    function.__code__ = (lambda a, b: a - b).__code__
    assert not first.guard.check(function)
    assert fingerprint(function).digest != first.digest


def test_a_longer_tuple_is_noticed():
    made = make("def f(t):\n  return lambda a, b: a + t\nop = f")
    assert not fingerprint(made((1,))).guard.check(made((1, 2)))
    assert not fingerprint(made((1, 2))).guard.check(made((1,)))


def test_a_fingerprint_replaces_its_equals():
    made = make("def f(t):\n  return lambda a, b: a in t\nop = f")
    for _ in range(3):
        fingerprint(made(frozenset([1, 2])))  # another object each time, which the check does not look into
    assert len(walk._recent.get(id(made(1).__code__))) == 1


def test_an_edited_value_that_can_no_longer_be_encoded_is_noticed():
    world = World()
    first = fingerprint(world.function)
    world.settings["x"] = object()
    assert not first.guard.check(world.function)
    with pytest.raises(Unfingerprintable):
        fingerprint(world.function)


# --------------------------------------------------------------------------------------------------
# Explaining


def test_parts_name_what_was_read():
    function = make(
        """
        def helper(x): return x * K
        op = lambda a, b=2: helper(a) + config.K + math.sqrt(b) + TABLE[0] + nope
        """,
        K=3.0,
        config=module(K=4),
        math=math,
        TABLE=np.zeros(3, "f4"),
    )
    found = fingerprint(function)
    assert isinstance(found, Fingerprint)
    assert [name for name, _ in found.parts] == [
        "code",
        "defaults",
        "global 'helper'",
        "code in 'helper'",
        "global 'K' in 'helper'",
        "config.K",
        "math.sqrt",
        "global 'TABLE'",
        "global 'nope'",
    ]
    parts = dict(found.parts)
    assert parts["global 'K' in 'helper'"] == "float 3.0"
    assert parts["config.K"] == "int 4"
    assert parts["math.sqrt"] == "math.sqrt"
    assert parts["global 'nope'"] == "missing"
    assert parts["global 'TABLE'"].startswith("numpy.ndarray ")
    assert len(found.digest) == 32


# --------------------------------------------------------------------------------------------------
# With numba


@pytest.fixture
def cuda():
    pytest.importorskip("numba_cuda")
    return pytest.importorskip("numba.cuda")


def jit(source, decorator, **names):
    return digest(f"{source}\nop = lambda a, b: helper(a) + b", jit=decorator, **names)


def test_dispatchers_count_by_their_function_and_options(cuda):
    numba = pytest.importorskip("numba")
    source = "@jit\ndef helper(x): return x * K"
    device = functools.partial(cuda.jit, device=True)
    first = jit(source, device, K=1)
    assert jit(source, device, K=1) == first
    # What is compiled is the same, for none of this is heeded where an operator calls it.
    without_effect = [{"cache": False, "launch_bounds": 128}, {"opt": False}, {"lineinfo": True}]
    without_effect += [{"debug": True, "opt": False}, {"inline": "never"}, {"fastmath": False}]
    for options in without_effect:
        assert jit(source, functools.partial(device, **options), K=1) == first, options
    assert jit(source, numba.njit, K=1) == first
    variants = [
        jit(source, device, K=2),
        jit(source.replace("*", "+"), device, K=1),
        jit(source, functools.partial(device, fastmath=True), K=1),
        jit(source, functools.partial(device, forceinline=True), K=1),
        jit(source, functools.partial(device, inline="always"), K=1),
        jit(source, lambda function: function, K=1),
    ]
    assert len({first, *variants}) == 1 + len(variants)


def test_a_dispatcher_as_operator(cuda):
    source = "@jit\ndef op(a, b): return a * K + b"
    one, two = (make(source, jit=cuda.jit, K=k) for k in (1, 2))
    assert fingerprint(one).digest != fingerprint(two).digest
    assert fingerprint(one) is fingerprint(one)
    first = fingerprint(one)
    one.py_func.__globals__["K"] = 3
    assert not first.guard.check(one)
    assert not first.guard.check(two)


def test_changes_behind_dispatchers_are_noticed(cuda):
    def world():
        helper = cuda.jit(device=True)(make("def op(x, k=1): return x * K", K=1))
        return helper, make("op = lambda a, b: helper(a) + b", helper=helper)

    helper, function = world()
    first = fingerprint(function)
    assert first.guard.check(function)
    for change in (
        lambda h: h.py_func.__globals__.update(K=2),
        lambda h: h.targetoptions.update(fastmath=True),
        lambda h: h.targetoptions.update(another=1),
        lambda h: setattr(h, "_can_compile", False),
        lambda h: setattr(h, "py_func", make("op = lambda x, k=1: x")),
        lambda h: setattr(h.py_func, "__code__", (lambda x, k=1: x).__code__),
    ):
        helper, function = world()
        first = fingerprint(function)
        change(helper)
        assert not first.guard.check(function)
    helper.py_func.__defaults__ = (2,)
    with pytest.raises(Unfingerprintable, match="defaults changed after it was decorated"):
        fingerprint(function)


def test_dispatchers_compiled_for_signatures_are_refused(cuda):
    helper = cuda.jit(device=True)(make("op = lambda x: x"))
    helper._can_compile = False  # what cuda.jit("float32(float32)") does after compiling
    text = refusal("op = lambda a, b: helper(a)", helper=helper)
    assert "global 'helper' is of type numba.cuda.dispatcher.CUDADispatcher" in text
    assert "drop the signature" in text


def test_options_that_can_change_in_place_are_refused(cuda):
    helper = cuda.jit(device=True, fastmath={"nnan"})(make("op = lambda x: x"))
    assert "Its options must be plain values" in refusal("op = lambda a, b: helper(a)", helper=helper)


def test_numba_objects_are_encoded_by_name(cuda):
    numba = pytest.importorskip("numba")
    reads = [
        "numba.float32",
        "numba.float64",
        "numba.int32",
        "numba.boolean",
        "cuda.atomic.add",
        "cuda.threadIdx.x",
        "cuda.blockIdx.x",
        "cuda.local.array(4, numba.float32)",
        "cuda.shared.array(4, numba.float32)",
        "cuda.const.array_like(TABLE)",
        "cuda.grid(1)",
        "cuda.syncthreads()",
        "cuda.libdevice.fabsf(a)",
        "cuda.float32x4(a, b, a, b)",
        "cuda.float32x2(a, b)",
        "cuda.popc(a)",
        "cuda.random.xoroshiro128p_uniform_float32(a, b)",
        "numba.types.literal(3)",
        "literally(a)",
    ]
    importlib.import_module("numba.cuda.random")
    names = {"numba": numba, "cuda": cuda, "TABLE": np.zeros(3), "literally": numba.literally}
    digests = {digest(f"op = lambda a, b: {read}", **names) for read in reads}
    assert len(digests) == len(reads)
    assert encode(numba.float32) != encode(numba.float64) != encode(np.float64)
    assert encode(numba.types.literal(3)) != encode(numba.types.literal(4))


def test_modules_of_a_class_of_their_own_are_modules():
    class Redirect(types.ModuleType):
        pass

    config = Redirect("config")
    config.K = 1
    one = make("op = lambda a, b: a + config.K", config=config)
    before = fingerprint(one)
    assert before.guard.check(one)
    config.K = 2
    assert not before.guard.check(one)
    assert fingerprint(one) != before


def test_the_size_of_a_local_array_counts(cuda):
    source = "op = lambda a, b: cuda.local.array(N, T)"
    variants = [(4, np.float32), (5, np.float32), (4, np.float64), (4, np.dtype("f4")), ((4, 1), np.float32)]
    assert len({digest(source, cuda=cuda, N=n, T=t) for n, t in variants}) == len(variants)


def test_user_code_in_the_compilers_types_is_refused(cuda):
    numba = pytest.importorskip("numba")
    from numba.cuda.extending import intrinsic

    double = make("op = lambda x: x * 2")
    for value in (
        intrinsic(lambda typing_context, x: None),
        cuda.reduce(lambda a, b: a + b),
        numba.vectorize(["float64(float64)"])(double),
        numba.types.Array(numba.float32, 1, "C"),
        numba.typeof(cuda.jit(double)),
    ):
        assert "global 'x' is of type" in refusal("op = lambda a, b: x(a)", x=value)


def test_functions_from_elsewhere_count_by_what_they_are_and_link(cuda):
    def external(name="external", signature="float32(float32)", link=(), abi="c"):
        return cuda.declare_device(name, signature, link=link, abi=abi)

    variants = [
        external(),
        external("other"),
        external(signature="float32(float64)"),
        external(abi="numba"),
        external(link=[cuda.PTXSource("text")]),
        external(link=[cuda.PTXSource("text"), cuda.LTOIR(b"text")]),
        external(signature="float32(Array(float32, 1, 'C'))"),
        external(signature="float32(Array(float32, 1, 'A'))"),
        external(signature="float32(CPointer(float32))"),
    ]
    source = "op = lambda a, b: x(a)"
    assert len({digest(source, x=each) for each in variants}) == len(variants)
    again = external(link=[cuda.LTOIR(b"text"), cuda.PTXSource(b"text", name="another")])
    assert digest(source, x=again) == digest(source, x=variants[5])


def test_signatures_without_exact_text_are_refused(cuda):
    from numba.cuda import types as numba_types

    record = numba_types.Record([("a", {"type": numba_types.float32, "offset": 0})], 4, True)
    odd = cuda.declare_device("odd", numba_types.float32(record))
    assert "odd has a value of type Record" in refusal("op = lambda a, b: x(a)", x=odd)


def test_what_users_give_numba_another_body_for_is_refused(cuda):
    from numba.cuda.extending import overload

    def twice(x):
        pass

    assert fingerprint(make("op = lambda a, b: twice(a)", twice=twice))
    overload(twice)(lambda x: lambda x: x * 2)
    assert "global 'twice' is of type function. It is extended with numba's @overload" in refusal(
        "op = lambda a, b: twice(a)", twice=twice
    )


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_is_not_lost():
    op = make("def op(a): return a * (VALUES[0] + NAMES['b'])", VALUES=(1.0, 2.0), NAMES={"b": 3, 4: 5})
    expected = fresh(op)
    gc.collect()
    gc.disable()
    try:
        assert each_interrupt(lambda: fresh(op), lambda: None, "_fingerprint") > 20
    finally:
        gc.enable()
    assert fresh(op) == expected
