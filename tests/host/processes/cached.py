"""Calls functions that numba keeps in its cache, and prints what was found there and what was launched."""

import sys

from support.host import Array, Driver

driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import compilers, templates  # noqa: E402

import cupar  # noqa: E402
from cupar import cuda  # noqa: E402

compilers.as_in_the_run(many=False)
templates.empty_others(pytest.MonkeyPatch(), ())  # whose names and parameters the driver knows

FACTOR = float(sys.argv[2])


@cupar.jit
def other(x):
    x[0] = 0


@cupar.jit
def fill(x, value):
    x[cuda.grid(1)] = FACTOR * value


@numba.njit(cache=True)
def launches(kernel, x):
    kernel[1, 32](x, 2)


@numba.njit(cache=True)
def launches_both(one, two, x):
    two[2, 32](x)
    one[3, 32](x, 2.5)


@numba.njit(cache=True)
def calls_launches(kernel, x):
    launches(kernel, x)


@numba.njit(cache=True)
def reduces(algorithm, x, n):
    algorithm.run(x, x, n, np.float32(0))


@numba.njit(cache=True)
def sums_what_is_counted(algorithm, counted, x, n):
    algorithm.run(counted, x, n, np.int32(0))


def scaled(a, b):
    return a + FACTOR * b


x, i = (cupar.view(Array(0x700000000000 + k * 0x1000000000, 4, kind)) for k, kind in enumerate(("f4", "i4")))
total = cupar.reduce_into("f4", "f4", scaled, np.zeros(1, "f4"), cc=90)
counting = cupar.CountingIterator(np.int32(0))
count = cupar.reduce_into(counting, "i4", cupar.OpKind.PLUS, np.zeros(1, "i4"), cc=90)
for algorithm in (total, count):
    driver.knows(algorithm)

if sys.argv[3] == "launched before":  # so that entries of the kernels' tables are elsewhere
    numba.njit(lambda k, x: k[1, 1](x, 3.5))(fill, i)
    driver.taken()

for function, arguments in (
    (launches_both, (fill, other, x)),
    (calls_launches, (fill, x)),
    (launches, (fill, x)),
    (reduces, (total, x, 4)),
    (sums_what_is_counted, (count, counting, i, 4)),
):
    function(*arguments)
    hits = sum(function.stats.cache_hits.values())
    launched = [
        (each.kernel.partition("_")[0], each.grid[0], len(each.parameters)) for each in driver.taken()
    ]
    print(function.__name__, hits, launched)
