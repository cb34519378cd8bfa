"""Calls algorithms whose operators read numbers, and prints those that their launches have."""

import struct
import sys

from support.host import Array, Driver

driver = Driver(sys.argv[1])

import numba  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support import compilers, templates  # noqa: E402

import cupar  # noqa: E402

compilers.as_in_the_run(many=False)
templates.empty_others(pytest.MonkeyPatch(), ())  # whose names and parameters the driver knows


@numba.njit
def reduces(algorithm, x, n):
    algorithm.run(x, x, n, np.float32(0))


@numba.njit
def reduces_items(algorithm, items, x, n):
    algorithm.run(items, x, n, np.float32(0))


def added(k):
    return lambda a, b: a + k * b


def scaled(k):
    return lambda a: a * k


def said(place):
    for launch in driver.taken():
        print(struct.unpack_from("<f", launch.parameters[place[0]], place[1])[0])


x, init = cupar.view(Array(0x700000000000, 4, "f4")), np.zeros(1, "f4")
made = [cupar.reduce_into("f4", "f4", added(k), init, cc=90) for k in (2.5, 3.5, 4.5)]
for each in made[1:]:
    driver.knows(each)
    reduces(each, x, 4)
    said((5, 0))
counted = cupar.CountingIterator(np.float32(0))
items = [cupar.TransformIterator(counted, scaled(k), "f4") for k in (2.5, 5.5, 6.5)]
total = cupar.reduce_into(items[1], "f4", cupar.OpKind.PLUS, init, cc=90)
driver.knows(total)
for each in items[1:]:
    reduces_items(total, each, x, 4)
    said((0, 16))
