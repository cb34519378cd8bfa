"""Random operators that read numbers: as arguments they give the same bits as constants.

For two seconds, or CUPAR_FUZZ_SECONDS; CUPAR_FUZZ_SEED sets the seed. A failure shows the operator.
"""

import math
import os
import random
import re
import time
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cupar
from cupar._compile import numbers
from cupar._fingerprint import walk
from cupar._fingerprint.numbers import CLASSES, packed, type_of

VALUES = [
    *(0, 1, -1, 2, 3, 7, 2**31 - 1, -(2**31), 2**31, 2**40 + 1, 2**62, 2**63, 2**64 - 1, -(2**63), 100),
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 0.1, 1 / 3, 1e-40, 1e-310, 1e300, math.inf, -math.inf, math.nan),
    *(
        2.5,
        -0.25,
        1e10,
        True,
        False,
        np.float32(0.1),
        np.float64(0.1),
        np.int32(5),
        np.int8(-3),
        np.uint8(200),
    ),
    *(np.uint64(3), np.uint64(2**63 + 5), np.float32(math.nan), np.bool_(True), np.int64(2**62)),
]
FORMS = [
    *("({} + {})", "({} - {})", "({} * {})", "({} / {})", "min({}, {})", "max({}, {})", "({} > {})"),
    *(
        "({0} if {0} > {1} else {1})",
        "({} == {})",
        "abs({})",
        "-({})",
        "({} // {})",
        "({} % {})",
        "({} <= {})",
    ),
    *("(({}) if k else ({}))", "(({}) if ({}) > k else a)", "np.float32({})", "float({})", "int({})"),
    *(
        "math.sqrt(abs({}))",
        "({} and {})",
        "({} or {})",
        "math.exp({})",
        "(not {})",
        "({} & {})",
        "({} << {})",
    ),
    *("({} in (k, {}))", "round({})", "np.int8({})", "({}).real", "(lambda q: q * k + {})({})", "({} ** 2)"),
]
PLACES = ("closure", "global", "attribute", "default", "helper")


def expression(r, depth):
    if depth == 0 or r.random() < 0.15:
        return r.choice(["a", "b", "k", "j", "a", "b", "k", "2", "0.5", "1"])
    return r.choice(FORMS).format(expression(r, depth - 1), expression(r, depth - 1))


def operator(r, place, body, k, j):
    """An operator that reads the numbers at some place."""
    names = {"np": np, "math": math}
    if place == "closure":
        return eval(f"lambda k, j: lambda a, b: {body}", names)(k, j)
    if place == "default":
        return eval(f"lambda k, j: lambda a, b, k=k, j=j: {body}", names)(k, j)
    if place == "global":
        return eval(f"lambda a, b: {body}", {**names, "k": k, "j": j})
    if place == "helper":
        inner = eval(f"lambda k, j: lambda a, b: {expression(r, 1)}", names)(
            r.choice(VALUES), r.choice(VALUES)
        )
        return eval(f"lambda k, j, h: lambda a, b: h(a, {body})", names)(k, j, inner)
    module = types.ModuleType("config")
    module.k, module.j = k, j
    body = re.sub(r"\b([kj])\b", r"m.\1", body)
    return eval(f"lambda a, b: {body}", {**names, "m": module})


def items(dtype):
    rng = np.random.default_rng(1)
    if np.dtype(dtype).kind == "f":
        most = float(np.finfo(dtype).max)
        special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e-40, most, 0.5, 2.0]
        return np.concatenate([rng.normal(0, 3, 40), special]).astype(dtype)
    limits = np.iinfo(dtype)
    found = rng.integers(max(limits.min, -9), 9, 40).astype(dtype)
    return np.concatenate([found, np.array([limits.max, limits.min, limits.max // 2, 1], dtype)])


def results(op, x, out, **named):
    y, w = np.zeros(x.size, out), x[::-1].copy()
    with np.errstate(all="ignore"):
        made = cupar.binary_transform(x, w, y, op, cc="cpu", **named)
        made.run(x, w, y, x.size)
    return y, bool(dict(made._spec.operators)["op"].numbers)


@pytest.mark.usefixtures("optimised")
def test_random_operators(monkeypatch):
    monkeypatch.setattr(numbers, "_vary", lambda *_: True)
    seed = int(os.environ.get("CUPAR_FUZZ_SEED", "20261129"))
    end = time.monotonic() + float(os.environ.get("CUPAR_FUZZ_SECONDS", "2"))
    r = random.Random(seed)
    for _ in range(10**6):
        if time.monotonic() > end:
            break
        body, dtype = expression(r, r.choice([2, 2, 3])), r.choice(["f4", "f8", "i4", "i8", "u1", "u8"])
        k, j, out = r.choice(VALUES), r.choice(VALUES), r.choice(["f4", "f8", "i8", "?", dtype])
        place, x = r.choice(PLACES), items(dtype)
        if 0 in (k, j):  # numba takes defaults of 0.0 and -0.0 for one
            place = place.replace("default", "closure")
        op = operator(r, place, body, k, j)
        try:
            expected, _ = results(op, x, out, numbers="constant")
        except (TypeError, RuntimeError):  # it does not compile, or raises
            continue
        found, has_arguments = results(op, x, out)
        # But for a NaN's sign, which LLVM does not keep where it computes.
        is_nan = (found != found) & (expected != expected)
        differ = [i for i in range(x.size) if found[i].tobytes() != expected[i].tobytes() and not is_nan[i]]
        told = f"{body} of {dtype} to {out}, k = {k!r}, j = {j!r}, in {place}, arguments: {has_arguments}"
        assert not differ, (
            f"{told}: {x[differ]}, {x[::-1][differ]} give {found[differ]}, not {expected[differ]}"
        )


NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66),
    st.floats(),
    st.floats(width=32),
    *[st.integers(np.iinfo(each).min, np.iinfo(each).max).map(np.dtype(each).type) for each in "bBhHiIqQ"],
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
)


@given(value=NUMBERS, other=NUMBERS)
def test_numbers_and_their_forms(value, other):
    found = type_of(value)
    if found is not None:
        assert len(packed(value, found)) == 8
        (back,) = np.frombuffer(packed(value, found), found.stored, 1)
        assert found.dtype.type(back) == value and type(value) in CLASSES
        assert np.can_cast(found.stored, found.dtype)

    def made(k):
        return lambda a: a * k

    prints = [walk.fingerprint(made(each)) for each in (value, other)]
    assert prints[0].form == prints[1].form != b""
    (one,), (two,) = (each.numbers for each in prints)
    assert (one.encoding == two.encoding) is (prints[0].digest == prints[1].digest)
    if found is not None and type_of(other) is not None:
        arguments = [each.with_arguments(each.numbers).digest for each in prints]
        assert (arguments[0] == arguments[1]) is (found == type_of(other))
        assert not {*arguments} & {each.digest for each in prints}
