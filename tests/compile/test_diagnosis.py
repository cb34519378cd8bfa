"""Users' mistakes in operators, and their messages: parameter, operator, line, and reason."""

import inspect
import math

import numpy as np
import pytest

import cupar

Point = cupar.gpu_struct({"x": np.float32, "n": np.int32}, "Point")
TABLE = {1: 2}
NUMBERS = [1, 2]
CHOSEN = {1, 2}
LARGE = 2**70
HERE = __file__


def helper(a):
    return a.nothing


def second_helper(a):
    return helper(a)


def clipped(a):
    return np.clip(a, 0, 1)


def one_argument(a):
    return a


def forever(a):
    return forever(a - 1) if a > 0 else a


def there(a):
    return back(a)


def back(a):
    return there(a)


def without_end(a):
    return without_end(a - 1)


def global_set(a, b):
    return a if a in CHOSEN else b  # here


def returns_a_function(a, b):
    return math.sqrt


def too_large(a, b):
    return a + LARGE * b  # here


def index_of_a_struct(a, b):
    t = a.x
    for i in range(2):
        t += b[i]  # here
    return Point(t, b.n)


def attribute(a, b):
    c = a
    return c.nothing + b  # here


def method(a, b):
    return a.sum() + b  # here


def missing_function(a, b):
    return not_there(a, b)  # noqa: F821 # here


def missing_attribute_of_a_module(a, b):
    return math.nothere(a) + b  # here


def function_that_numba_lacks(a, b):
    return math.prod((a, b))  # here


def builtin_that_numba_lacks(a, b):
    return sorted((a, b))[0]  # here


def reads_input(a, b):
    return input() + b  # here


def norm(a, b):
    return np.linalg.norm(a) + b  # here


def numpy_array(a, b):
    x = np.zeros(3)  # here
    return x[0] + b


def list_display(a, b):
    x = [a, b]  # here
    return x[0]


def list_in_a_call(a, b):
    return sum([a, b])  # here


def list_comprehension(a, b):
    return sum([x for x in (a, b)])  # noqa: C416 # here


def global_dict(a, b):
    return TABLE[1] + b  # here


def global_list(a, b):
    return NUMBERS[0] + b  # here


def string(a, b):
    return a if str(a) == "1" else b  # here


def percent(a, b):
    return len("%d" % a) + b  # noqa: UP031 # here


def index_of_a_number(a, b):
    return a[0] + b  # here


def key_of_a_struct(a, b):
    return a if a["n"] > b["n"] else b  # here


def key_of_a_number(a, b):
    return a["n"] + b  # here


def stores_in_a_number(a, b):
    a[0] = b  # here
    return b


def index_of_a_mixed_tuple(a, b):
    return (a, 2.0)[b]  # here


def calls_a_number(a, b):
    return a(b)  # here


def two_types(a, b):
    x = a
    if b > 0:
        x = (a, b)
    return x  # here


def wrong_number_of_arguments(a, b):
    return one_argument(a, b)  # here


def by_name(a, b):
    return getattr(a, "real") + b  # here


def returns_two_types(a, b):
    if a > 0:
        return 1
    return (a, b)


def in_several_lines(a, b):
    return (
        a + b.nothing  # here
    )


def misspelt(a, b):
    return Point(a.x, b.m)  # here


def too_few_fields(a, b):
    return Point(a.x)  # here


def another_field(a, b):
    return Point(x=a.x, m=1)  # here


def sum_of_structs(a, b):
    return a + b  # here


def assigns_a_field(a, b):
    a.x = b.x  # here
    return a


def field_out_of_range(a, b):
    return Point(a[2], b[1])  # here


MISTAKES = {
    global_set: "it reads a set of numbers, which a kernel cannot: make it a tuple",
    too_large: "LARGE is an integer of more than 64 bits: use a float",
    index_of_a_struct: "cannot be indexed by a variable, as its items differ in type",
    attribute: "int64 has no attribute 'nothing'; ",
    method: "int64 has no attribute 'sum'; ",
    missing_function: "name 'not_there' is not defined",
    missing_attribute_of_a_module: "module math has no 'nothere'",
    function_that_numba_lacks: "numba.cuda has no math.prod; write it with operators",
    builtin_that_numba_lacks: "numba.cuda has no sorted((int64, int64)); write it with operators",
    reads_input: "numba.cuda does not know the built-in function input; write",
    norm: "norm",
    numpy_array: "it makes an array, for which a kernel has no memory: use a tuple, or variables",
    list_display: "it makes a list, for which a kernel has no memory: use a tuple, or variables",
    list_in_a_call: "it makes a list, for which a kernel has no memory: use a tuple, or variables",
    list_comprehension: "it makes a list, for which a kernel has no memory: use a tuple, or variables",
    global_dict: "TABLE is a dict, which a kernel cannot read: make it a tuple, or a NumPy array",
    global_list: "it reads a list of numbers, which a kernel cannot: make it a tuple",
    string: "a kernel makes no strings: return numbers",
    percent: "a kernel makes no strings: return numbers",
    index_of_a_number: "int64 cannot be indexed: it is one item",
    key_of_a_struct: "a struct is not indexed by a string: write `a.n` in place of `a['n']`",
    key_of_a_number: "int64 cannot be indexed by a string: it has no fields",
    stores_in_a_number: "int64 has no items to assign: return a new value",
    index_of_a_mixed_tuple: "(int64, float64) cannot be indexed by a variable, as its items differ in type",
    calls_a_number: "int64 is called, and is no function",
    two_types: "variable 'x' is int64 on one way and (int64, int64) on another; make it one type",
    wrong_number_of_arguments: "a function of (a) is called with (int64, int64): too many positional",
    by_name: "a kernel does not find attributes by name: write them out",
    in_several_lines: "int64 has no attribute 'nothing'; ",
    misspelt: "Struct(float32, int32) has no field 'm'; its fields are those given above",
    too_few_fields: "a function of (x, n) is called with (float32): missing a required argument: 'n'",
    another_field: "a function of (x, n) is called with (x=float32, m=1): missing a required argument: 'n'",
    sum_of_structs: "there is no `+` of Struct(float32, int32) and Struct(float32, int32); write it of",
    assigns_a_field: "field 'x' is assigned, and values in operators are constant: make a new struct",
    field_out_of_range: "an index is out of range",
}
OF_STRUCTS = (
    key_of_a_struct,
    index_of_a_struct,
    misspelt,
    too_few_fields,
    another_field,
    sum_of_structs,
    assigns_a_field,
    field_out_of_range,
)


def message_of(op, dtype="i8", h_init=0):
    with pytest.raises(TypeError) as caught:
        cupar.reduce_into(dtype, dtype, op, h_init, cc=90)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return str(caught.value)


@pytest.mark.parametrize(("op", "why"), MISTAKES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_a_mistake_is_explained(op, why):
    of_structs = (Point, Point(0, 0)) if op in OF_STRUCTS else ()
    lines = message_of(op, *of_structs).split("\n")
    assert len(lines) <= 4
    source, first = inspect.getsourcelines(op)
    types = "{x: float32, n: int32}" if of_structs else "int64"
    operator = f"{op.__name__} ({HERE}:{first})"
    subject = f"op: numba.cuda cannot compile operator {operator} for ({types}, {types}) on sm_90"
    assert lines[0].startswith(f"{subject}: ")
    assert why in lines[0]
    (here,) = (i for i, line in enumerate(source) if "# here" in line)
    assert lines[1:3] == [f"  {HERE}:{first + here}", f"    {source[here].strip()}"]
    assert lines[-1] == "CUPAR_DEBUG=1 shows all that numba says"


@pytest.mark.parametrize(
    ("op", "place", "why"),
    [
        (lambda a, b: second_helper(a) + b, helper, "int64 has no attribute 'nothing'"),
        (lambda a, b: clipped(a) + b, clipped, "numba.cuda has no clip(int64, 0, 1) of numbers"),
    ],
)
def test_a_mistake_in_a_helper_is_found_there(op, place, why):
    lines = message_of(op).split("\n")
    assert why in lines[0]
    source, first = inspect.getsourcelines(place)
    assert lines[1:3] == [f"  {HERE}:{first + 1}", f"    {source[1].strip()}"]


def test_results_of_two_types():
    lines = message_of(returns_two_types).split("\n")  # the line is that of either
    assert "it returns 1, (int64, int64); let all `return` give one type" in lines[0]


@pytest.mark.parametrize("op", [math.comb, int])
def test_builtins_that_numba_lacks(op):
    lines = message_of(op).split("\n")
    assert len(lines) == 2
    assert lines[0].startswith(
        f"op: numba.cuda cannot compile operator {op.__name__} for (int64, int64) on sm_90: "
    )


@pytest.mark.parametrize(
    ("op", "returned"),
    [
        (lambda a, b: None, "returns None, expected a number: a `return` is missing"),
        (
            lambda a, b: a if a > b else None,
            "returns int64 or None, expected a number: a `return` is missing",
        ),
        (lambda a, b: (a, b), "returns {field_0: int64, field_1: int64}, expected a number"),
        (lambda a, b: "x", "returns 'x', expected a number"),
        (lambda a, b: lambda x: x, "returns a function, expected a number"),
    ],
)
def test_results(op, returned):
    assert message_of(op).endswith(returned)


def test_numba_that_is_missing_is_no_fault_of_the_operator(monkeypatch):
    def missing(*arguments):
        raise ImportError("Numba needs another NumPy")

    monkeypatch.setattr("cupar._compile.python_to_ltoir._compiled", missing)
    with pytest.raises(ImportError, match="^Numba needs another NumPy$"):
        cupar.reduce_into("i8", "i8", lambda a, b: a * 3 + b, 0, cc=90)


def test_a_function_as_result():
    assert "it returns a function, expected a number" in message_of(returns_a_function)


def not_bound_yet():
    def op(a, b):
        return a + later(b)

    if False:
        later = None
    return op


@pytest.mark.parametrize(
    ("op", "why"),
    [
        (lambda a, b: without_end(a) + b, "without_end calls itself: write a loop"),
        (lambda a, b: there(a) + b, "the functions there and back call each other in a circle: write a loop"),
        (lambda a, b: forever(a) + b, "forever calls itself: write a loop"),
        (not_bound_yet(), "later has no value yet"),
    ],
)
def test_functions_without_end_or_value(op, why):
    assert f": {why}" in message_of(op, "f4").split("\n")[0]


def walrus(a, b):
    return (c := a + 1) * c


def test_assignments_in_expressions():
    try:
        cupar.reduce_into("i8", "i8", walrus, 0, cc=90)
    except TypeError as error:  # not with all Pythons
        assert "numba.cuda does not compile `:=` here; assign on a line of its own" in str(error)


def test_results_of_str():
    message = message_of(lambda a, b: str(a), "f4")
    assert "it calls str, and a kernel makes no strings" in message


@pytest.mark.parametrize(
    "op",
    [lambda a, b: np.int32, lambda a, b: a if a in CHOSEN else b, lambda a, b: forever, lambda a, b: type(a)],
)
def test_no_addresses_in_messages(op):
    message = message_of(op)
    assert " at 0x" not in message
    assert "object" not in message


def test_a_package_that_numba_needs_for_a_function_is_of_the_operator():
    message = message_of(np.linalg.norm, "f4", np.zeros(1, "f4"))
    assert "scipy" in message or "has no norm" in message  # where scipy is installed, numba's own refusal


def combined_by_helper(a, b):
    return helper(a) + b


def test_an_operator_within_one_of_cupars_is_named():
    x = np.arange(3.0)
    with pytest.raises(
        TypeError, match=r"operator combined_by_helper \(.*\.py:\d+\) within .* on the CPU: "
    ) as told:
        cupar.arrays.reduce(x, combined_by_helper, where=x > 1)
    assert "float64 has no attribute 'nothing'" in str(told.value)
