"""Launches kernels from Python and from compiled code, and compares what the driver was told."""

import enum
import sys
from collections import namedtuple

from support.host import Array, Driver

driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from numba import cuda  # noqa: E402
from support import compilers, templates  # noqa: E402

import cupar  # noqa: E402

compilers.as_in_the_run(many=False)
templates.empty_others(pytest.MonkeyPatch(), ())  # whose names and parameters the driver knows

Pair = namedtuple("Pair", "x y")


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


def view(place, shape, dtype, strides=None, read_only=False):
    return cupar.view(Array(0x700000000000 + place * 0x1000000000, shape, dtype, read_only, strides))


@cupar.jit
def one(x):
    x[0] = 1


@cupar.jit
def axpy(x, y, out, n, alpha):
    i = cuda.grid(1)
    if i < n:
        out[i] = alpha * x[i] + y[i]


@cupar.jit
def of_number(x, number):
    if number != number + number:
        x[0] = 1


@cupar.jit
def nothing():
    pass


@cupar.jit
def of_tuple(x, t):
    x[0] = t[0] + t[1][0] + t[1][1]


@cupar.jit
def of_pair(x, p):
    x[0] = p.x + p.y


@cupar.jit
def of_member(x, colour):
    if colour == Colour.RED:
        x[0] = 1


@cupar.jit("void(float32[:, :], int32, float64)")
def declared(x, n, factor):
    x[0, n] = factor


@cupar.jit
def whole_grid(x):
    x[0] = 1
    cuda.cg.this_grid().sync()
    x[1] = 1


@cupar.jit(launch_bounds=128)
def small(x):
    x[0] = 1


CONFIGURATIONS = [(4, 256), (1, 1, 77), (7, 32, 0, 1024), ((2, 3), (8, 8, 2)), ((1, 2, 3), (4,), 5, 0)]


def compare(kernel, *arguments, configurations=CONFIGURATIONS[:1]):
    given = ", ".join(f"a{k}" for k in range(len(arguments)))
    for each in configurations:
        names = {"kernel": kernel}
        exec(f"def launch({given}):\n    kernel[{each}]({given})", names)
        found = []
        for launch in (names["launch"], numba.njit(nogil=True, no_cfunc_wrapper=True)(names["launch"])):
            launch(*arguments)
            if not found:
                for overload in kernel.overloads.values():
                    driver.knows(overload)
                driver.taken()
                launch(*arguments)
            found.append(driver.taken())
        if found[0] != found[1] or len(found[0]) != 1:
            print("differs:", kernel, each, *found, sep="\n  ")
        print(kernel.__name__, len(found[1]))


def same():
    vector, matrix = view(0, 1000, "f4"), view(1, (30, 40), "f4")
    compare(one, vector, configurations=CONFIGURATIONS)
    compare(nothing)
    compare(axpy, vector, view(1, 1000, "f4", read_only=True), view(2, 1000, "f8"), 1000, 2.0)
    compare(axpy, vector, vector, vector, np.int32(7), np.float32(1.5))
    compare(axpy, vector[::-2], vector[:0], vector, True, 2.5)
    for dtype in ("i1", "u8", "f2", "c16", "?"):
        compare(one, view(0, 10, dtype))
    for number in (np.int8(-3), np.uint8(200), np.uint64(2**63 + 1), -5, False, np.complex64(1j), 2 - 3j):
        compare(of_number, vector, number)
    record = np.dtype([("a", "f8"), ("b", "i4")], align=True)
    compare(one_field, view(0, 10, record))
    compare(declared, matrix, 5, 2.5)
    compare(declared, matrix[::2, 3:], np.int64(5), 1)
    compare(of_tuple, vector, (1, (2.5, 3)))
    compare(of_pair, vector, Pair(1, 2.5))
    compare(of_member, vector, Colour.BLUE)
    compare(whole_grid, vector)
    for x in (matrix, view(1, (30, 40), "f4", (4, 120)), matrix[1:5, ::3], view(2, (3, 4, 5), "f4")):
        compare(shape, x, vector)


@cupar.jit
def one_field(x):
    x[0].a = x[0].b


@cupar.jit
def shape(x, out):
    n = 1
    for each in x.shape:
        n *= each
    for each in x.strides:
        n *= each
    out[0] = n


WORDS = (
    *("grid", "block", "stream", "shared", "x:", "one", "kernel"),
    *("TypingError: d_", "TypingError: num", "TypingError: h_", "TypingError: str", "Untyped global"),
    *("TypingError: temp", "iterator", "- argument", "d_", "num", "h_", "temp"),
)


def told(function, *arguments):
    """Print what is raised."""
    try:
        function(*arguments)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines()]
        own = [line for line in lines if line.startswith(WORDS)] or lines
        print(type(error).__name__, own[0].removeprefix("TypingError: "), sep=": ")
        return
    print("nothing was raised")


@numba.njit(nogil=True)
def launched(kernel, grid, block, stream, shared, x):
    kernel[grid, block, stream, shared](x)


def refused():
    x = view(0, 1000, "f4")
    given = {"grid": 4, "block": 256, "stream": 0, "shared": 0, "x": x}
    for name, value in [
        ("grid", 0), ("grid", 2**31), ("grid", (1, 65536)), ("block", 1025), ("block", (32, 33)),
        ("block", (1, 1, 65)), ("block", -1), ("shared", -1), ("shared", 300_000),
        ("grid", 1.5), ("block", (1, 2, 3, 4)), ("stream", 2.5), ("shared", None), ("x", np.zeros(5)),
        ("x", cupar.view(Array(0x700000000002, 10, "f4"))),
    ]:  # fmt: skip
        told(launched, one, *{**given, name: value}.values())
    told(numba.njit(lambda x: one[1](x=x)), x)
    told(numba.njit(lambda x: one[1, 1](x, x)), x)
    told(numba.njit(lambda x: one[1, 1](y=x)), x)
    captured = view(3, 10, "f4")

    @cupar.jit
    def captures(x):
        x[0] = captured[0]

    told(numba.njit(lambda x: captures[1, 1](x=x)), x)
    driver.set("most_threads", 128)
    told(launched, small, 4, 129, 0, 0, x)
    print(len(driver.taken()))


def algorithms_refused():
    """What algorithms cannot be given, or cannot do."""
    x, y = view(0, 1000, "f4"), view(1, 1000, "i8")
    counter = cupar.CountingIterator(np.int64(0))
    of_counter = cupar.reduce_into(counter, "i8", cupar.OpKind.PLUS, 0)
    for given in (y, counter, cupar.CountingIterator(np.int32(0)), cupar.ReverseIterator(y)):
        told(numba.njit(lambda x, y: of_counter.run(x, y, 5, 0)), given, y)
    of_array = cupar.reduce_into(cupar.ReverseIterator("i8"), "i8", cupar.OpKind.PLUS, 0)
    for given in (cupar.ReverseIterator(y), cupar.ReverseIterator(y[:4])):
        told(numba.njit(lambda x, y: of_array.run(x, y, 5, 0)), given, y)
    told(numba.njit(lambda x, y: of_array.run(x, y, 5, 0)), cupar.ReverseIterator("i8"), y)
    doubled = cupar.TransformOutputIterator(view(2, 10, "i8", read_only=True), cupar.OpKind.NEGATE)
    to_iterator = cupar.reduce_into("i8", doubled, cupar.OpKind.PLUS, 0)
    told(numba.njit(lambda x, y: to_iterator.run(x, y, 5, 0)), y, doubled)
    captured = view(3, 10, "i8")
    with_state = cupar.TransformIterator(y, lambda a: a + captured[0])
    told(numba.njit(lambda x, y: of_array.run(x, y, 5, 0)), with_state, y)
    count = cupar.histogram_even("i8", "i4", 5, 0, 4, 1)
    counts = view(4, 10, "i4")
    for levels in [(1, 0, 4), (5, 4, 4), (5, 0, 2.0), (2**20, 0, 2**62), (12, 0, 11), (5, None, 4)]:
        told(numba.njit(lambda y, counts, levels: count.run(y, counts, *levels, 10)), y, counts, levels)
    two_phases = numba.njit(lambda x, y, storage: of_array(storage, x, y, 10**3, 0))
    for storage in (5, y[:0], y[::2], view(5, 10**4, "u1", read_only=True)):
        told(two_phases, cupar.ReverseIterator(y), y, storage)
    sort = cupar.radix_sort("f4", "f4", None, None, cupar.SortOrder.ASCENDING)
    told(numba.njit(lambda keys: sort.run(keys, None, None, None, 10)), cupar.DoubleBuffer(x, x))
    double = cupar.DoubleBuffer(x, x)
    told(numba.njit(lambda: sort.run(double, None, None, None, 10)))
    total = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0.0)

    @numba.njit
    def run(d_in, d_out, num_items, h_init, stream):
        total.run(d_in, d_out, num_items, h_init, stream)

    given = {"d_in": x, "d_out": x, "num_items": 1000, "h_init": 0.0, "stream": 0}
    for name, value in [
        ("d_in", y), ("d_in", view(0, 4000, "f4")[::2]), ("d_in", None), ("num_items", 1001),
        ("num_items", -1), ("num_items", 2.0), ("h_init", 1j), ("h_init", None),
        ("h_init", np.zeros(2, "f4")), ("stream", 1.5), ("d_out", x[:0]),
        ("d_out", view(0, 10, "f4", read_only=True)),
    ]:  # fmt: skip
        told(run, *{**given, name: value}.values())
    driver.set("allocation_status", 2)
    given["d_in"], given["num_items"] = view(0, 10**8, "f4"), 10**8
    told(run, *given.values())
    driver.set("allocation_status", 0)
    driver.taken()
    driver.set("fail_with", 700)
    driver.set("fail_at", 1)
    told(run, *given.values())
    print(len(driver.taken()), driver.allocations[0] - driver.allocations[1])


def failing():
    x = view(0, 1000, "f4")
    launched(one, 1, 1, 0, 0, x)
    driver.set("fail_with", 719)
    driver.set("fail_at", 0)
    told(launched, one, 1, 1, 0, 0, x)
    driver.taken()
    launched(one, 1, 1, 0, 0, x)
    # A thread without context takes the one that the kernel was loaded in.
    driver.set("context_is_needed", 1)
    given = numba.njit(lambda x: one[1, 1](x=x))
    given(x)
    driver.set("current_context", 0)
    given(x)
    print(len(driver.taken()))


def forms():
    x, n = view(0, 1000, "f4"), 1000

    @numba.njit
    def every(x, n):
        one[1, 1](x=x)
        one.configure(2, (3, 4), shared=5)(x)
        one.forall(n)(x)
        one.forall(n, 128, 77)(x)
        one.forall(0)(x)
        for k in range(1, 3):
            launch = one[k, 32 * k]
            launch(x)
            launch(x[k:])

    every(x, n)
    taken = driver.taken()
    every.py_func(x, n)
    expected = driver.taken()
    print(len(taken), taken == expected)


def parallel():
    x, streams = view(0, 1000, "f4"), np.arange(3)
    twice = cupar.unary_transform("f4", "f4", lambda a: a * 2, cc=90)

    @numba.njit(parallel=True)
    def run(x, streams):
        for k in numba.prange(len(streams)):
            for _ in range(2):  # so that a method is found in a block, and called in another
                twice.run(x, x, len(x), streams[k])
            one[1, 1, streams[k]](x)

    run(x, streams)
    print(sorted(launch.stream for launch in driver.taken()))


globals()[sys.argv[2]]()
