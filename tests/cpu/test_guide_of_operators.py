"""What the guide of operators says they may do, and may not, is so for GPUs and for the CPU."""

import cmath
import enum
import math
import types
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest

import cupar

GUIDE = (Path(__file__).parents[2] / "docs/guides/operators.md").read_text()
CONFIG = types.ModuleType("config")
CONFIG.SCALE = 2.0
SCALE, TABLE, PAIR = 3.0, np.arange(4.0), (1.5, 2)
BIG = 2**70
Pair = namedtuple("Pair", "x y", defaults=(7,))
Point = cupar.gpu_struct({"x": np.float32, "n": np.int64}, "Point")


class Colour(enum.Enum):
    RED = 1


def helper(a, b=2, *rest):
    return a * b + len(rest)


def arithmetic(a):
    b = a + 1 - 2 * a / 3
    while b > 10:
        b //= 2
    for i in range(3):
        b += i
        if i == 2:
            break
    for each in (1.0, 2.5):
        b += each
    match int(a):
        case 1:
            return b
        case _:
            return -b


def builtin(a):
    low, high = divmod(max(abs(a), 1.0), 2.0)
    return round(min(low, high)) + bool(a) + int(a) + float(a) + complex(a, 1).imag + np.float32(a)


def mathematics(a):
    return math.sqrt(abs(a)) + cmath.exp(complex(a, 0)).real + np.sin(a) + np.hypot(a, 2.0) + math.erf(a)


def tuples(a):
    def twice(b):
        return 2 * b

    x, y = Pair(a, 2)
    return x + y + twice(a) + (a, 1)[0] + Pair(a, 7).y


def constants(a):
    return a * SCALE + TABLE[2] + PAIR[1] + CONFIG.SCALE + (1 if Colour.RED is Colour.RED else 0)


def methods(a):
    return a + TABLE.sum() + TABLE.argmax() + np.prod(TABLE)


def others(a):
    return helper(a) + helper(a, 3) + helper(a, 3, 4, 5) + helper(a, b=1)


def default(a, k=SCALE, t=PAIR):
    return a * k + t[0]


def star(*a):
    return a[0] + len(a)


def both(a, k=SCALE, *rest):
    return a * k + len(rest)


def captures():
    table = TABLE

    def looked_up(a, k=2, *rest):
        return table[int(a)] * k + len(rest)

    return looked_up


TAKEN = {  # with words of the guide
    arithmetic: "`break`, `match` of numbers",
    builtin: "`abs`, `min`, `max`, `round`, `divmod`, `bool`, `int`, `float`, `complex`",
    mathematics: "Functions of `math`, and of `cmath`",
    tuples: "Tuples, named tuples, unpacking without `*`; nested functions",
    constants: "members of enumerations (to compare)",
    methods: "NumPy arrays (to read)",
    others: "Other functions, including those of other modules, but not itself",
    default: "Parameters with defaults, and `*args`",
    star: "Parameters with defaults, and `*args`",
    both: "Parameters with defaults, and `*args`",
    captures(): "Device arrays that are globals or closure variables",
}


def built(op, cc):
    with cupar.device("cpu" if cc == "cpu" else "cuda"):
        return cupar.unary_transform("f8", "f8", op, cc=cc)


@pytest.mark.parametrize("op", TAKEN, ids=lambda op: op.__name__)
def test_what_is_taken(op):
    assert TAKEN[op] in GUIDE
    x, out = np.array([1.0, 2.0, 3.0]), np.zeros(3)
    built(op, "cpu")(x, out, 3)
    np.testing.assert_allclose(out, [op(each) for each in x])
    built(op, 90)


def test_a_struct_is_taken():
    def higher(a, b):
        return Point(a.x, min(a.n, b.n)) if a[0] > b.x else b

    for cc in ("cpu", 90):
        cupar.reduce_into(Point, Point, higher, Point(0, 0), cc=cc)


def raises(a):
    if a > 1:
        raise ValueError
    return a


def tries(a):
    try:
        return a
    except ValueError:
        return 0.0


def generates(a):
    return sum(a for _ in range(3))


def lists(a):
    return [a, a][0]


def appends(a):
    x = []
    x.append(a)
    return x[0]


def comprehends(a):
    return sum([a for _ in range(3)])


def sets(a):
    return a if a in {1, 2} else 0


def allocates(a):
    return np.zeros(3)[0] + a


def copies(a):
    return TABLE.copy()[0] + a


def sorts(a):
    return np.sort(TABLE)[0] + a


def adds_arrays(a):
    return (TABLE + a)[0]


def strings(a):
    return len(str(int(a)))


def formats(a):
    return len(f"{a}")


def imports(a):
    import math

    return math.sqrt(a)


def by_keyword(a, *, b=1):
    return a


def unpacks(a):
    x, *_ = (a, 1, 2)
    return x


def deletes(a):
    b = a
    del b
    return a


def large(a):
    return a + BIG


def factorial(n):
    return 1.0 if n < 2 else n * factorial(n - 1)


def uses_factorial(a):
    return factorial(a)


def even(n):
    return 1.0 if n < 1 else odd(n - 1)


def odd(n):
    return 0.0 if n < 1 else even(n - 1)


def texts(a):
    return len(str(a))  # of "<object type:float64>", if numba has its way


def represents(a):
    return helper(a) + len(repr(a))


REFUSED = {  # with words of the guide, and of the message
    raises: ("`raise`, `assert`", "raises an exception"),
    tries: ("`try`, `with`", "uses `try`"),
    generates: ("generator expressions", "write a loop"),
    lists: ("lists, dicts, sets, `np.zeros`", "it makes a list"),
    appends: ("lists, dicts, sets, `np.zeros`", "it makes a list"),
    comprehends: ("lists, dicts, sets, `np.zeros`", "it makes a list"),
    sets: ("lists, dicts, sets, `np.zeros`", "looks something up in a set"),
    allocates: ("lists, dicts, sets, `np.zeros`", "it makes an array"),
    copies: ("lists, dicts, sets, `np.zeros`", "it makes an array"),
    sorts: ("lists, dicts, sets, `np.zeros`", "it makes an array"),
    adds_arrays: ("lists, dicts, sets, `np.zeros`", "it makes an array"),
    strings: ("strings, f-strings", "a kernel makes no strings"),
    texts: ("strings, f-strings", "it calls str, and a kernel makes no strings"),
    represents: ("strings, f-strings", "it calls repr, and a kernel makes no strings"),
    formats: ("strings, f-strings", "formats a string"),
    imports: ("`import` inside", "imports a module"),
    by_keyword: ("keyword-only parameters", "keyword-only"),
    unpacks: ("`x, *y = t`", "unpacks with *"),
    deletes: ("`del x`", "deletes a variable"),
    large: ("integers of more than 64 bits", "64 bits: use a float"),
    factorial: ("a function that calls itself", "factorial calls itself: write a loop"),
    uses_factorial: ("a function that calls itself", "factorial calls itself: write a loop"),
    even: ("two functions that call each other", "even and odd call each other in a circle: write a loop"),
}


@pytest.mark.parametrize("op", REFUSED, ids=lambda op: op.__name__)
def test_what_is_refused(op):
    words, why = REFUSED[op]
    assert words in GUIDE
    for cc in ("cpu", 90):
        with pytest.raises(TypeError) as refusal:
            built(op, cc)
        message = str(refusal.value)
        assert why in message
        assert len(message.split("\n")) <= 4
        if cc == "cpu":
            assert "numba.cuda" not in message


def prints(a):
    print(a)
    return a


def test_prints_on_gpus_alone():
    built(prints, 90)
    for op in (prints, lambda a: prints(a) + 1):
        with pytest.raises(
            TypeError, match=r"on the CPU: it prints, which code on the CPU does not"
        ) as refusal:
            built(op, "cpu")
        assert str(refusal.value).split("\n")[2] == "    print(a)"


def test_what_is_called_only_computes():
    """One of numba's functions that calls more than arithmetic, here BLAS through SciPy."""
    with pytest.raises(TypeError, match=r"^op: numba cannot compile operator \S+ .* on the CPU: ") as refusal:
        built(lambda a: np.dot(TABLE, TABLE) + a, "cpu")
    assert len(str(refusal.value).split("\n")) <= 4


def nested(value, make, times=400):
    for _ in range(times):
        value = make(value)
    return value


def structs(times):
    return nested(Point, lambda inner: cupar.gpu_struct({"x": inner}), times)


@pytest.mark.parametrize(
    "value",
    [nested(0, lambda x: (x,)), nested(0, lambda x: [x]), nested(0, Pair), nested(0, lambda x: Pair((x,)))],
    ids=["tuple", "list", "named tuple", "both"],
)
def test_values_in_values(value):
    for op in (lambda a: a if value == 0 else 1.0, lambda a, k=value: a):
        with pytest.raises(
            TypeError, match="^op: operator .* more than 50 values within each other: make it"
        ):
            built(op, "cpu")


def test_functions_in_each_other():
    def one_more(function):
        return lambda a: function(a) + 1.0

    with pytest.raises(TypeError, match="too many functions call each other in a row: write fewer"):
        built(nested(abs, one_more), "cpu")
    with pytest.raises(
        TypeError, match="too many functions call each other in a row: write fewer"
    ) as refusal:
        built(nested(abs, one_more, 80), "cpu")
    assert len(str(refusal.value).split("\n")) <= 4
    with pytest.raises(TypeError, match="expected at most 100 structs within each other"):
        structs(400)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: cupar.TransformIterator(x, cupar.OpKind.NEGATE),
        cupar.ReverseIterator,
        cupar.ZipIterator,
        lambda x: cupar.PermutationIterator(x, cupar.CountingIterator(0)),
    ],
    ids=["transform", "reverse", "zip", "permutation"],
)
def test_iterators_in_each_other(make):
    with pytest.raises(TypeError, match=r"^\w+Iterator: an argument has too many iterators") as refusal:
        nested(cupar.CountingIterator(0), make)
    assert len(str(refusal.value).split("\n")) <= 4


def test_iterators_that_numba_does_not_follow_on_the_cpu():
    iterator = nested(cupar.CountingIterator(0), cupar.ReverseIterator, 99)
    assert cupar.unary_transform(iterator, "i8", abs, cc=90).build
    with pytest.raises(TypeError, match="^unary_transform: an argument has too many iterators"):
        cupar.unary_transform(iterator, "i8", abs, cc="cpu")
