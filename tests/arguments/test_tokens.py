"""Tokens: equal for arguments that are the same to a call, and for no others."""

import enum
import math

import ml_dtypes
import numpy as np
import pytest

from cupar._arguments import tokens
from cupar._device import arrays, readers
from cupar.operators import OpKind, RawOp


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


def token(value):
    """Return a value's class and token, as keys have them."""
    makers = token.__dict__.setdefault("makers", {})
    cls = type(value)
    if cls not in makers:
        makers[cls] = tokens.key_maker([tokens.of_value(cls)], {})
    return makers[cls]((value,))


QUIET, OTHER_NAN = np.array([0x7FF8 << 48, 0x7FF80001 << 32], "u8").view("f8").tolist()
VALUES = [
    *(0, 1, -1, 2**63, True, False, None, "", "a", 0.0, -0.0, 1.0, math.inf, QUIET, OTHER_NAN),
    *(0j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(QUIET, 0.0), 1 + 0j),
    *(np.float32(0), np.float32(-0.0), np.float64(0), np.int32(0), np.uint32(0), np.bool_(False)),
    *(ml_dtypes.bfloat16(0), ml_dtypes.bfloat16(-0.0), np.complex64(0), np.complex64(-0.0)),
    *(np.timedelta64(1, "s"), np.timedelta64(1), np.datetime64(1, "s"), np.str_("a"), np.bytes_(b"a")),
    *(Colour.RED, Colour.BLUE, OpKind.PLUS, np.dtype("f4"), np.dtype("f8"), np.float32, float, np.add, max),
    *(np.zeros(2, "f4"), np.array([-0.0, 0], "f4"), np.zeros(2), np.zeros((2, 1), "f4"), np.zeros(0)),
    *(np.void(b"a"), np.void(b"b"), np.array([(1, -0.0)], "i4, f4")[0], np.array([(1, 0.0)], "i4, f4")[0]),
    *(RawOp("f", b"code"), RawOp("f", b"code", state=b"s")),
]


def test_values_are_told_apart():
    assert len({token(each) for each in VALUES}) == len(VALUES)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_equal_values_have_equal_tokens(value):
    again = value
    if isinstance(value, (np.ndarray, np.number)) or type(value) in (float, complex):
        again = type(value)(value) if type(value) in (float, complex) else value.copy()
    assert token(value) == token(again)


@pytest.mark.parametrize("bits", ["u1", "u2", "u4"])
def test_floats_are_told_by_bytes(bits):
    """Random ones: of two bytes, all."""
    kind = {"u1": ml_dtypes.float8_e5m2, "u2": np.float16, "u4": np.float32}[bits]
    size = 8 * np.dtype(bits).itemsize
    rng = np.random.default_rng(0)
    raw = (
        np.arange(2**size, dtype=bits) if size < 32 else np.unique(rng.integers(0, 2**32, 5000).astype(bits))
    )
    assert len({token(each) for each in raw.view(kind)}) == len(raw)


def test_functions_are_told_by_code():
    def make(k):
        return lambda x: x + k

    assert token(make(1)) == token(make(2)) != token(lambda x: x)


class Unknown:
    pass


@pytest.mark.parametrize(
    "value",
    [
        *(
            Unknown(),
            object(),
            b"",
            [1],
            (1,),
            {},
            np.array([(None,)], [("o", "O")])[0],
            np.zeros(1, "f4").view(np.recarray),
        ),
        *(np.array([None]), np.zeros(65), type("Int", (int,), {})(1), type("Float", (float,), {})(1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_token(value):
    with pytest.raises(tokens.NoTokenError):
        token(value)


def test_keys_have_classes_and_lists():
    def add(x, out):
        out.append(x)
        return x

    def make():
        return tokens.key_maker(["{v}", "_add({v}, rest)"], {"_add": add}, firsts=[0], rest=[0], none=[])

    key, firsts, rest, none = make()((1, 2))
    assert (firsts, rest, none) == ([1], [1, 2], [])
    assert make()((1, 2))[0] != key  # as a maker is of some classes
    with pytest.raises(ValueError, match="unpack"):
        make()((1,))


def test_arrays_are_told_by_layout_or_place():
    torch = pytest.importorskip("torch")
    x = np.zeros((3, 4), "f4")
    for made in (x, torch.tensor(x)):
        found = arrays.syntax_of(type(made))
        by_layout, by_place = (tokens.key_maker([text], {}) for text in (found.layout, found.place))
        assert by_layout((made,)) == by_layout((made[1:],)) != by_layout((made[0],))
        assert by_layout((made,)) != by_layout((made.T,))
        assert by_place((made,)) == by_place((made[:],)) != by_place((made[1:],))
    tensor = torch.zeros(3, dtype=torch.complex64)
    by_place = tokens.key_maker([readers.TORCH.place], {})
    assert by_place((tensor,)) != by_place((tensor.conj(),))
    assert by_place((tensor.conj().imag,)) != by_place((tensor.imag,))  # negated as it is read
    assert arrays.syntax_of(list) is None
