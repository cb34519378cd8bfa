"""Makes mistakes, and prints how many lines each error has, as a program would show it."""

import sys
import traceback

from support.host import Array, Driver

HAS_DRIVER = sys.argv[2] == "driver"
if HAS_DRIVER:
    driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
from support import compilers  # noqa: E402

import cupar  # noqa: E402
import cupar.compute  # noqa: E402
from cupar import cuda  # noqa: E402

compilers.as_in_the_run(many=False)

d_x, x, h_init = Array(0x700000000000, 4, "f4"), np.zeros(4, "f4"), np.zeros(1, "f4")


@cupar.jit
def fill(x):
    x[cuda.grid(1)] = 1


@cupar.jit
def undefined(x):
    x[0] = unknown + 1  # noqa: F821


def no_method(a, b):
    return a.foo(b)


PLUS = cupar.OpKind.PLUS
SUM = cupar.reduce_into("f4", "f4", PLUS, h_init, cc=90)
WAITED = cupar.reduce_into("f4", "f4", no_method, h_init, cc=90, wait=False)
CPU_SUM = cupar.reduce_into("f4", "f4", PLUS, h_init, cc="cpu")
CPU_WAITED = cupar.reduce_into("f4", "f4", no_method, h_init, cc="cpu", wait=False)
UNBUILT = undefined.compile("void(float64[::1])", cc=90, wait=False)


def declared():
    cupar.jit("void(float32[::1])", cc=90)(undefined.py_func)


@numba.njit
def calls_a_kernel(x):
    fill(x)


@numba.njit
def launches_on_a_host_array(x):
    fill[1, 1](x)


@numba.njit
def launches_with_too_much(x):
    fill[1, 1](x, 3)


@numba.njit
def launches_what_does_not_compile(x):
    undefined[1, 1](x)


@numba.njit
def reduces_a_host_array(x):
    SUM.run(x, x, 4, np.float32(0))


@numba.njit
def reduces_without_init(x):
    SUM.run(x, x, 4)


@numba.njit
def binds(x):
    SUM.bind(x, x, 4, np.float32(0))


@numba.njit
def takes(algorithm, x):
    algorithm.run(x, x, 4, np.float32(0))


ANYWHERE = {
    "kernel": lambda: undefined.compile("void(float32[::1])", cc=90),
    "kernel in the background": UNBUILT.ready,
    "its build": lambda: UNBUILT.build,
    "declared kernel": declared,
    "called kernel": lambda: fill(d_x),
    "host array for a kernel": lambda: fill[1, 1](x),
    "host array for all": lambda: fill.forall(4)(x),
    "operator": lambda: cupar.reduce_into("f4", "f4", no_method, h_init, cc=90),
    "operator on the CPU": lambda: cupar.reduce_into("f4", "f4", no_method, h_init, cc="cpu"),
    "operator in the background": WAITED.ready,
    "its build again": lambda: WAITED.build,
    "its call": lambda: WAITED.run(d_x, d_x, 4, h_init),
    "operator of compute": lambda: cupar.compute.make_reduce_into(d_x, d_x, no_method, h_init),
    "host array": lambda: cupar.reduce_into(x, x, PLUS, h_init),
    "called with a number": lambda: SUM.run(d_x, 3, 4, h_init),
    "called with a host array": lambda: SUM.run(x, d_x, 4, h_init),
    "called with too much": lambda: SUM.run(d_x, d_x, 5, h_init),
    "bound": lambda: SUM.bind(d_x, 3, 4, h_init),
    "on the CPU, called with a number": lambda: CPU_SUM.run(x, 3, 4, h_init),
    "on the CPU, waited for by a call": lambda: CPU_WAITED.run(x, x, 4, h_init),
    "iterator": lambda: cupar.TransformIterator("f4", lambda a: a.foo),
    "output iterator": lambda: cupar.TransformOutputIterator(3, no_method),
    "iterator of cupar.compute": lambda: cupar.compute.TransformIterator(d_x, lambda a: a.foo),
    "njit calls a kernel": lambda: calls_a_kernel(x),
    "njit, host array for a kernel": lambda: launches_on_a_host_array(x),
    "njit, too many arguments": lambda: launches_with_too_much(x),
    "njit, host array": lambda: reduces_a_host_array(x),
    "njit, arguments": lambda: reduces_without_init(x),
    "njit, method": lambda: binds(x),
    "njit takes what is for the CPU": lambda: takes(CPU_SUM, x),
}
WITH_DRIVER = {
    "njit, kernel": lambda: launches_what_does_not_compile(cupar.view(d_x)),
}
WITHOUT = {
    "factory": lambda: cupar.reduce_into("f4", "f4", PLUS, h_init),
    "run": lambda: SUM.run(d_x, d_x, 4, h_init),
    "call": lambda: SUM(None, d_x, d_x, 4, h_init),
    "load": SUM.load,
    "bind": lambda: SUM.bind(d_x, d_x, 4, h_init),
    "launch": lambda: fill[1, 1](d_x),
    "bound launch": lambda: fill.bind(1, 1, d_x),
    "compile": lambda: fill.compile("void(float32[::1])"),
    "attributes": lambda: fill.compile("void(float32[::1])", cc=90).attributes,
    "njit takes": lambda: takes(SUM, x),
}

for name, mistake in {**ANYWHERE, **(WITH_DRIVER if HAS_DRIVER else WITHOUT)}.items():
    try:
        mistake()
    except Exception as error:  # noqa: PERF203
        # The two frames are one in a program: of the line that is wrong.
        lines = "".join(traceback.format_exception(error)).splitlines()
        print(len(lines) - 2, type(error).__name__, name, sep="|")
        if len(lines) - 2 > 20:
            print(*lines, sep="\n", file=sys.stderr)
    else:
        print(0, "nothing", name, sep="|")
