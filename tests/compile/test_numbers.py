"""Numbers that operators capture: which are arguments of the code, and that another value builds nothing."""

import json
import math
import subprocess
import sys
import textwrap
import threading
import types

import numpy as np
import pytest

import cupar
from cupar import arrays
from cupar._ahead import codec
from cupar._base import device
from cupar._base import warnings as _warnings
from cupar._compile import entries, numbers
from cupar._compile.key import build_parts, digest
from cupar._fingerprint import walk
from cupar._fingerprint.numbers import NumberType, packed, type_of
from cupar._obtain.obtain import specification

SCALE = 0
config = types.ModuleType("config")
helpers = types.ModuleType("helpers")
exec("def shifted(a): return a * SHIFT + 0.5", vars(helpers))


def is_set(value):
    global SCALE
    SCALE = config.scale = helpers.SHIFT = value


def with_global(a):
    return a * SCALE


def with_helper(a):
    return max(with_global(a), with_global(2.5 + a))


def with_two_products(a):
    return with_global(a) + with_global(2.5 + a)


def in_closure(k):
    return lambda a: a * k


def helped(k):
    def helper(x, y):
        return x * k + y

    return lambda a: helper(a, a) + k


def with_default(k):
    def helper(x, y=2.5):
        return x * k + y

    return lambda a: helper(a) + helper(a, 3.5)


def everywhere(k):
    """Numbers of each kind, some read twice."""
    j = k + 2

    def helper(x):
        return x * k + SCALE

    return lambda a, d=k * 2: helper(a) + j * a - config.scale + d + helpers.shifted(a)


def with_module(module):
    return lambda a: a * module.scale


def nested(k):
    def op(a):
        inner = lambda x: x * k
        return inner(a)

    return op


def times(x, y):
    return x * y


def twice(x, y, z=2.0):
    return x * y * z


def second_of(*given):
    return given[0] + given[1]


def raised(x, y):
    return x**y


def first_of(pair):
    return lambda a: a * pair[0]


def divided(k):
    return lambda a: a / k


def power(k):
    return lambda a: a**k


OF_ARGUMENTS = {
    "closure": in_closure,
    "global": lambda k: with_global,
    "attribute": lambda k: lambda a: a * config.scale,
    "module in a closure": lambda k: with_module(config),
    "default": lambda k: lambda a, b=k: a * b,
    "helper's global": lambda k: with_helper,
    "helper's closure": helped,
    "helper with a default": with_default,
    "helper in a module": lambda k: lambda a: helpers.shifted(a) + helpers.shifted(a + 1),
    "nested function": nested,
    "given to a helper": lambda k: lambda a: times(a, k),
    "given by name": lambda k: lambda a: times(y=k, x=a),
    "given beside a default": lambda k: lambda a: twice(a, k),
    "everywhere": everywhere,
    "clip": lambda k: lambda a: min(max(a, k), k + 3),
    "division": divided,
    "comparison": lambda k: lambda a: 1.5 if a > k else a,
}
OF_CONSTANTS = {
    "exponent": power,
    "remainder": lambda k: lambda a: a % k,
    "quotient": lambda k: lambda a: a // k,
    "index": lambda k: lambda a: (a, -a)[int(k)],
    "branch": lambda k: lambda a: a * 2 if k > 0.3 else a * 0.5,
    "function": lambda k: lambda a: a * math.exp(k),
    "product": lambda k: lambda a: a + k * 3.0,
    "computed dividend": lambda k: lambda a: (k - 1) / a,
    "computed divisor": lambda k: lambda a: a / (k + 3),
    "exponent in a helper": lambda k: lambda a: raised(a, k),
    "exponent by name": lambda k: lambda a: raised(y=k, x=a),
    "any number of arguments": lambda k: lambda a: second_of(a, k),
    "pair": lambda k: first_of((k, k + 1)),
    "two products": lambda k: lambda a: a * k + a * a,
    "two products of helpers": lambda k: with_two_products,
    "two products, one negative": lambda k: lambda a: -(a * k) - a * a,
}


def operator(made, k):
    is_set(k)
    return made(k)


def key_of(op, cc):
    """The key of a transform, which is not built."""
    spec = device.using(cc == "cpu", specification, cupar.unary_transform, "f4", "f4", op, cc=cc)
    return digest(build_parts(spec))


def transformed(op, where, x):
    """The results of a transform, and its key; of a build for a GPU, the key alone."""
    if where == "gpu":
        return b"", key_of(op, 90)
    y = np.zeros_like(x)
    made = cupar.unary_transform(x, y, op, cc="cpu")
    made.run(x, y, x.size)
    return y.tobytes(), made.build.key


X = np.linspace(-3, 3, 101).astype("f4")


@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("made", OF_ARGUMENTS.values(), ids=OF_ARGUMENTS)
def test_arguments(made, where, empty_cache, monkeypatch):
    results = [transformed(operator(made, k), where, X) for k in (0.3, 0.7, 0.9)]
    assert len({key for _, key in results}) == 2
    if where == "cpu":
        built = cupar.unary_transform(X, X, operator(made, 0.9), cc="cpu").build
        assert built.arguments["op"] and f"{built.arguments['op'][0]} of op" in repr(built)
    cupar.cache.clear(disk=False)
    before = cupar.cache.stats().built
    assert transformed(operator(made, 0.9), where, X) == results[-1]
    assert transformed(operator(made, 1.1), where, X)[1] == results[-1][1]
    assert cupar.cache.stats().built == before
    monkeypatch.setenv("CUPAR_NUMBERS", "constant")
    constants = [transformed(operator(made, k), where, X) for k in (0.3, 0.7, 0.9)]
    assert [found for found, _ in constants] == [found for found, _ in results]
    assert len({key for _, key in constants}) == 3


@pytest.mark.parametrize("where", ["cpu", 90])
@pytest.mark.parametrize("made", OF_CONSTANTS.values(), ids=OF_CONSTANTS)
def test_constants(made, where, empty_cache):
    keys = {key_of(operator(made, k), where) for k in (0.3, 0.7, 0.9)}
    assert len(keys) == 3


def test_builds_name_the_arguments(empty_cache):
    is_set(0.3)
    cupar.unary_transform("f4", "f4", everywhere(0.3), cc="cpu")
    is_set(0.7)
    built = cupar.unary_transform("f4", "f4", everywhere(0.7), cc="cpu").build
    labels = ("closure variable 'j'", "closure variable 'k' in 'helper'", "global 'SCALE' in 'helper'")
    assert {*labels, "config.scale", "default of 'd'"} <= {*built.arguments["op"]}
    assert cupar.unary_transform("f4", "f4", lambda a: a * 2.5, cc="cpu").build.arguments == {}


def test_the_argument_of_factories(empty_cache):
    def keys(**named):
        built = [
            cupar.unary_transform("f4", "f4", in_closure(k), cc="cpu", **named).build for k in (0.3, 0.7, 0.9)
        ]
        return [each.key for each in built]

    as_arguments = keys()
    constants = keys(numbers="constant")
    assert len({*as_arguments}) == 2
    assert len({*constants}) == 3
    assert keys(numbers="constant") == constants
    assert as_arguments[0] == constants[0] != keys()[0] == as_arguments[1] == keys(numbers=None)[2]
    for wrong in ("argument", 3, True, ""):
        with pytest.raises(ValueError, match="^numbers: expected 'constant' or None, got"):
            cupar.unary_transform("f4", "f4", in_closure(0.3), cc="cpu", numbers=wrong)


def test_the_variable_of_the_environment(empty_cache, monkeypatch):
    monkeypatch.setenv("CUPAR_NUMBERS", " Constant ")
    assert len({key_of(in_closure(k), "cpu") for k in (0.3, 0.7, 0.9)}) == 3
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setenv("CUPAR_NUMBERS", "variable")
    with pytest.warns(UserWarning, match="CUPAR_NUMBERS is 'variable' and should be 'constant'"):
        assert len({key_of(in_closure(k), "cpu") for k in (0.3, 0.7, 0.9)}) == 2


def test_a_divisor_that_is_a_power_of_two_is_a_constant(empty_cache):
    keys = [transformed(divided(k), "gpu", X)[1] for k in (3.0, 5.0, 4.0, 8.0, 6.0)]
    assert len({*keys}) == 4
    assert keys[1] == keys[4]


def test_numbers_are_typed_with_those_that_stay_constants(empty_cache):
    """A constant decides a branch, without which the code does not compile."""

    def made(k, j):
        return lambda a, b, k=k, j=j: (a in (k, j)) in (k, (a if k else 0.5))

    x = np.arange(5)
    for k, j in ((0.1, 1e-40), (0.3, 2.5), (0.7, 3.5)):
        out = np.zeros(5, bool)
        cupar.binary_transform(x, x, out, made(k, j), cc="cpu").run(x, x, out, 5)
        assert out.tolist() == [True, *[False] * 4]


def test_a_verdict_is_of_the_values_of_constants(empty_cache):
    """One number decides which code reads the other, whose types are others there as an argument."""

    def made(k, j):
        return lambda a: (a + j) if k > 0.5 else (j or a)

    x = np.arange(2**54 + 1, 2**54 + 6)
    for k, j in ((0.7, 3), (0.8, 5), (0.9, 7), (0.3, 3), (0.2, 5), (0.1, 0), (0.1, 9)):
        results = []
        for named in ({}, {"numbers": "constant"}):
            out = np.zeros(5, np.int64)
            cupar.unary_transform(x, out, made(k, j), cc="cpu", **named).run(x, out, 5)
            results.append(out.tolist())
        assert results[0] == results[1]


def test_code_that_may_be_inexact_has_constants(empty_cache):
    from numba import cuda

    def made(k):
        fast = cuda.jit(device=True, fastmath=True)(lambda x, y: x * y * 0.1)
        return lambda a: fast(a, k)

    assert len({transformed(made(k), "gpu", X)[1] for k in (0.3, 0.7, 0.9)}) == 3


def test_functions_in_containers_have_constants(empty_cache):
    def made(k):
        both = (lambda x: x * k), (lambda x: x + k)
        return lambda a: both[0](a) + both[1](a)

    for k in (0.3, 0.7, 0.9):
        found, _ = transformed(made(k), "cpu", X)
        assert found == (X * np.float64(k) + (X + np.float64(k))).astype("f4").tobytes()


@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_thirty_values_of_two_functions(where, empty_cache):
    def calls(values):
        for t in values:
            if where == "cpu":
                assert np.array_equal(arrays.copy_if(X, lambda v: v > t), X[np.float64(t) < X])
                arrays.scan(X, lambda a, b: a * t + b)
            else:
                cupar.select("f4", "f4", "i8", lambda v: v > t, cc=90)
                cupar.inclusive_scan("f4", "f4", lambda a, b: a * t + b, np.zeros(1, "f4"), cc=90)

    def links():
        found = cupar.cache.stats()
        return found.built + found.linked

    before = links()
    calls(np.arange(0.1, 0.9, 0.8 / 30).tolist())
    assert links() - before <= 4
    cupar.cache.clear(disk=False)
    before = links()
    calls(np.arange(1.13, 1.9, 0.7 / 30).tolist())
    assert links() == before


def test_a_thousand_lengths(empty_cache):
    x = np.arange(10)
    before = cupar.cache.stats().built
    for length in range(2, 1002):
        found = arrays.transform(lambda i: i + length, x)
        assert found[3] == 3 + length
    assert cupar.cache.stats().built - before == 2


# --- Values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, ("f8", "f4")),
        (0.1, ("f8", "f8")),
        (1e300, ("f8", "f8")),
        (1e-40, ("f8", "f8")),
        (7, ("i8", "i4")),
        (-(2**31), ("i8", "i4")),
        (2**31, ("i8", "i8")),
        (2**63 - 1, ("i8", "i8")),
        (-(2**63) + 1, ("i8", "i8")),
        (np.float32(0.1), ("f4", "f4")),
        (np.float64(0.5), ("f8", "f4")),
        (np.int8(-3), ("i1", "i1")),
        (np.uint64(2**63 + 5), ("u8", "u8")),
        *[(each, None) for each in (0, 1, -1, 0.0, -0.0, 1.0, -1.0, 2.0, 2**63, -(2**63), 2**64)],
        *[(each, None) for each in (math.inf, -math.inf, math.nan, np.float32(1), np.uint8(0))],
    ],
)
def test_types(value, expected):
    found = type_of(value)
    assert found == (expected and NumberType(*map(np.dtype, expected)))
    if found is not None:
        (back,) = np.frombuffer(packed(value, found), found.stored, 1)
        assert back == value
        assert len(packed(value, found)) == 8


def test_the_form_has_all_but_the_numbers():
    def form(op):
        return walk.fingerprint(op).form

    def made(k, flag, pair):
        return lambda a: a * k if flag else pair[0]

    same = form(made(0.5, True, (1, 2)))
    assert form(made(7, True, (1, 2))) == same
    assert form(made(np.uint8(3), True, (1, 2))) == same
    assert form(made(0.5, False, (1, 2))) != same
    assert form(made(0.5, True, (1, 3))) != same
    assert form(made(True, True, (1, 2))) != same
    assert form(lambda a: a * 0.5) == b""


def test_fingerprints_are_those_of_values():
    first, second = (walk.fingerprint(in_closure(k)) for k in (0.25, 0.75))
    assert first.digest != second.digest
    assert first.form == second.form


@pytest.mark.parametrize(
    "values", [(2, 2.5), (3, 2**40), (True, 3), (2.5, np.float32(2.5)), (7, np.uint64(7))]
)
def test_values_that_change_their_class(values, empty_cache):
    x = np.arange(-3, 4)
    for k in (*values, *values[::-1]):
        found = arrays.transform(in_closure(k), x)
        y = np.zeros(7, found.dtype)
        expected = cupar.unary_transform(x, y, in_closure(k), cc="cpu")
        expected.run(x, y, 7)
        assert np.array_equal(found, y)
        assert np.array_equal(found, x * k)


# --- Objects keep their values ---------------------------------------------------------------------------


def test_objects_keep_the_values_of_when_they_were_made(empty_cache):
    x, made = np.arange(8.0), []
    for k in (1.0, 2.5, 3.5, 0.1, 0.2, 2, np.float32(0.5), np.float32(0.25), True, 2**40, 7):
        is_set(k)
        y = np.zeros(8)
        made.append((k, y, cupar.unary_transform(x, y, with_global, cc="cpu")))
    is_set(99.5)
    for k, y, transform in made[::-1]:
        transform.run(x, y, 8)
        assert np.array_equal(y, x * k)


def test_iterators_keep_the_values_of_when_they_were_made(empty_cache):
    x = np.arange(8.0)
    with cupar.device("cpu"):
        made = [(k, cupar.TransformIterator(x, in_closure(k), "f8")) for k in (0.3, 0.7, 0.9, 1.1)]
        y, zero = np.zeros(1), np.zeros(1)
        total = cupar.reduce_into(made[1][1], y, cupar.OpKind.PLUS, zero)
        for k, iterator in made[1:]:
            total.run(iterator, y, 8, zero)
            assert y[0] == sum((x * k).tolist())


def test_with_captured_arrays(empty_cache):
    table, x, y = np.arange(8.0), np.arange(8), np.zeros(8)

    def made(k):
        return lambda i: table[i] * k

    keys = set()
    for k in (0.3, 0.7, 0.9):
        transform = cupar.unary_transform(x, y, made(k), cc="cpu")
        transform.run(x, y, 8)
        assert np.array_equal(y, np.arange(8) * k)
        table[0] = 5
        transform.run(x, y, 8)
        assert y[0] == 5 * k
        table[0] = 0
        keys.add(transform.build.key)
    assert len(keys) == 2


def test_threads_with_values_of_their_own(empty_cache):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            k = float(np.float32(rng.normal())) if rng.random() < 0.5 else float(rng.normal())
            found = arrays.transform(in_closure(k), X64)
            if not np.array_equal(found, X64 * k):
                wrong.append((k, found))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


X64 = np.arange(8.0)


# --- Verdicts on disk ------------------------------------------------------------------------------------

PROGRAM = """
import sys, numpy as np, cupar
from cupar import arrays
x = np.arange(8.0)
for text in sys.argv[1:]:
    k = float(text)
    assert np.array_equal(arrays.transform(lambda a: a * k, x), x * k)
print(cupar.cache.stats().built, "numba" in sys.modules)
"""


def process(*values):
    program = textwrap.dedent(PROGRAM)
    found = subprocess.run([sys.executable, "-c", program, *map(str, values)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout.split()


def test_processes(empty_cache):
    assert process(0.3) == ["1", "True"]
    assert process(0.7) == ["1", "True"]  # the first value of its process
    assert process(0.3, 0.7) == ["1", "True"]
    assert process(0.11, 0.12, 0.13) == ["0", "False"]


def verdicts(directory):
    return [
        path for path in directory.rglob("*") if path.is_file() and b'"entry": "numbers"' in path.read_bytes()
    ]


def test_a_damaged_verdict_is_reached_again(empty_cache):
    keys = [transformed(in_closure(k), "cpu", X)[1] for k in (0.3, 0.7)]
    (path,) = verdicts(empty_cache)
    for damage in (b"", path.read_bytes()[:-3], b"x" * 100):
        path.write_bytes(damage)
        cupar.cache.clear(disk=False)
        found = [transformed(in_closure(k), "cpu", X)[1] for k in (0.3, 0.7)]
        assert found[1] == keys[1]


@pytest.mark.parametrize("payload", [b"[]", b"{}", b"3", b'[["argument"]]', b'[["perhaps", ""]]', b"\xff"])
def test_a_verdict_that_is_none(payload, empty_cache, monkeypatch):
    """Written by something else under its key: it is reached again."""
    keys = [transformed(in_closure(k), "cpu", X)[1] for k in (0.3, 0.7)]
    own = entries.find

    def find(parts, **named):
        found = own(parts, **named)
        if parts["entry"] == "numbers" and found is not None:
            found = found._replace(entry=type(found.entry)(found.entry.meta, payload))
        return found

    monkeypatch.setattr(entries, "find", find)
    cupar.cache.clear(disk=False)
    found = [transformed(in_closure(k), "cpu", X)[1] for k in (0.3, 0.7)]
    assert found == keys


def test_a_verdict_of_other_rules_is_not_found(empty_cache, monkeypatch):
    for k in (0.3, 0.7):
        transformed(in_closure(k), "cpu", X)
    monkeypatch.setattr(numbers, "_RULES", ("_compile.numbers",))
    cupar.cache.clear(disk=False)
    transformed(in_closure(0.9), "cpu", X)
    assert len(verdicts(empty_cache)) == 1
    transformed(in_closure(1.1), "cpu", X)
    assert len(verdicts(empty_cache)) == 2


def test_verdicts_say_why(empty_cache):
    for k in (0.3, 0.7):
        transformed(power(k), "cpu", X)
    (path,) = verdicts(empty_cache)
    assert json.dumps([["constant", "it is an operand of pow"]]).encode() in path.read_bytes()


def wrong(k):
    return lambda a: a.nothing * k


def test_an_operator_that_does_not_compile_says_so(empty_cache):
    for k in (0.3, 0.7, 0.9):
        with pytest.raises(TypeError, match="cannot compile"):
            cupar.unary_transform("f4", "f4", wrong(k), cc="cpu")


def test_clearing_in_the_middle(empty_cache):
    for i, k in enumerate((0.3, 0.7, 0.9, 1.1, 1.3, 1.7)):
        assert np.array_equal(arrays.transform(in_closure(k), X64), X64 * k)
        cupar.cache.clear(disk=i % 2 == 1)


# --- Elsewhere -------------------------------------------------------------------------------------------


def test_lists_have_the_numbers(empty_cache):
    """Of recorded requests: what is built of one can be called."""
    key_of(in_closure(0.3), "cpu")
    spec = device.using(True, specification, cupar.unary_transform, "f4", "f4", in_closure(0.7), cc="cpu")
    ((_, op),) = spec.operators
    assert op.numbers and op.state == packed(0.7, op.numbers[0])
    ((_, restored),) = codec.loads(codec.dumps(spec)).operators
    assert restored == op and restored.state == op.state and type(restored.state) is type(op.state)


def test_kernels_have_constants(empty_cache):
    def kernel(k):
        @cupar.jit
        def write(x):
            x[0] = k

        return write.compile("void(float32[::1])", cc=90).build.key

    assert len({*map(kernel, (0.3, 0.7, 0.9))}) == 3
