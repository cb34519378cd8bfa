"""Recordings that would be other calls than those that were made."""

import json

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("numba")

from cupar._jax import addresses, program, resolved
from cupar.iterators import PermutationIterator, ReverseIterator

F4 = np.dtype("f4")
ARRAY = ((6,), F4)


def other_shape(work, x):
    return [work.empty((5,), F4)]


def twice(work, x):
    return [work.empty((6,), F4)] * 2


def the_argument(work, x):
    return [x]


def a_constant(work, x):
    return [work.operand(work.put(np.ones(6, F4)))]


def a_part(work, x):
    return [work.first(work.empty((9,), F4), 6)]


def with_items(items):
    """Return a body that copies items, which a function makes of work and `x`."""

    def body(work, x):
        made = work.empty((6,), F4)
        work.copy(items(work, x), made.items, 6)
        return [made]

    return body


@with_items
def the_number_of_an_address(work, x):
    return x.items[int(x.items.address) % 2 :]


@with_items
def a_table_by_address(work, x):
    return {x.items.address: x.items}[x.items.address]


@with_items
def an_order(work, x):
    other = work.empty((6,), F4)
    return min((x.items, other.items), key=lambda items: items.address)


@with_items
def an_alignment(work, x):
    return x.items if x.items.address % 4096 else work.empty((6,), F4).items


@with_items
def the_bits_of_an_address(work, x):
    return x.items[: 6 + 0 * x.items.address.bit_length()]


@with_items
def an_array_of_the_process(work, x):
    return np.ones(6, F4)


@with_items
def an_iterator_over_one(work, x):
    return ReverseIterator(np.ones(6, F4))


def a_read(work, x):
    return [x, *work.lengths(x)]


def a_copy(work, x):
    made = work.empty((6,), F4)
    work._trace.copy(x.items.address, made.items.address, 24, None)
    return [made]


@pytest.mark.parametrize(
    ("body", "outputs", "why"),
    [
        (other_shape, 1, r"results are \[\(\(5,\), dtype\('float32'\)\)\], expected \[\(\(6,\)"),
        (twice, 2, "a result is an argument, or another one"),
        (the_argument, 1, "a result is an argument, or another one"),
        (a_constant, 1, "a result is an argument, or another one"),
        (a_part, 1, "a result is an argument, or another one, or a part of one"),
        (the_number_of_an_address, 1, "it depends on an address"),
        (a_table_by_address, 1, "it depends on an address"),
        (an_order, 1, "it depends on an address"),
        (
            an_alignment,
            1,
            "it depends on an address: a buffer is aligned to 64 bytes, and perhaps not to 4096",
        ),
        (the_bits_of_an_address, 1, "it depends on an address"),
        (an_iterator_over_one, 1, "an array from elsewhere"),
        (a_copy, 1, "a Copy is no launch"),
    ],
)
def test_what_is_no_program(body, outputs, why):
    with pytest.raises(RuntimeError, match=f"^cupar.jax: a call cannot be recorded: {why}"):
        program.words(body, (), [ARRAY], [ARRAY] * outputs, True)


def test_a_read_is_no_program():
    with pytest.raises(TypeError, match="^size: expected a number, as the shape of a result cannot depend"):
        program.words(a_read, (), [ARRAY], [ARRAY], True)


def test_addresses_before_and_behind_an_array():
    """They are relative to it, as an iterator may begin outside of its array."""

    def body(work, x, places):
        made, other = work.empty((6,), F4), work.empty((6,), F4)
        gathered = PermutationIterator(x.items, places.items)
        work.copy(gathered + 2, made.items, 4)
        work.copy(ReverseIterator(x.items), other.items, 6)
        return [made, other]

    found = program.words(body, (), [ARRAY, ((6,), np.dtype("i8"))], [ARRAY] * 2, True)
    words = found.program.view(np.uint8)
    shown = {
        (which, int(words[at : at + 8].view(np.int64)[0]))
        for at, which in found.relocations.reshape(-1, 2).tolist()
    }
    assert {(0, 0), (1, 16), (0, 20), (2, 0), (3, 0)} <= shown


# --- Addresses ------------------------------------------------------------------------------------------


def test_an_address_is_only_moved():
    here = addresses.Address(3, 64)
    for moved, offset in ((here + 8, 72), (8 + here, 72), (here - 100, -36), (here + -64, 0)):
        assert (moved.buffer, moved.offset) == (3, offset)
    assert (here + 8) % 16 == 8
    for wrong in (
        lambda: here % 128,
        lambda: here % 3,
        lambda: here < here + 1,
        lambda: here == here + 1,
        lambda: here != 0,
        lambda: bool(here),
        lambda: hash(here),
        lambda: here * 2,
        lambda: here // 8,
        lambda: -here,
        lambda: int(here),
        lambda: range(here),
        lambda: here - here,
    ):
        with pytest.raises(TypeError):
            wrong()


@pytest.mark.parametrize("form", ["=3x2Q0xI5x", "=Q", "=0s?7xQ3s5x", "=2H4xQ12x"])
def test_places_of_what_is_packed(form):
    import re
    import struct

    values, expected = [], []
    for k, (count, code) in enumerate(re.findall(r"(\d*)([QIHs?])", form)):
        number = 1 if code == "s" else int(count or 1)
        values += [b"a" * int(count or 1) if code == "s" else k % 2] * number
    plain = struct.pack(form, *values)
    assert addresses.packed(form, *values).data == plain
    for at, value in enumerate(values):
        if "Q" in form and isinstance(value, int):
            given = [*values]
            given[at] = addresses.Address(7, 1)
            found = addresses.packed(form, *given)
            given[at] = 1
            assert found.data == struct.pack(form, *given)
            expected.append(found.places[0][0])
    assert expected == sorted({*expected})


def test_a_block_in_a_block():
    inner = addresses.packed("=4xQ", addresses.Address(2, -1))
    outer = addresses.packed("=3x12sQ", inner, addresses.Address(1, 5))
    assert outer.places == [(7, 2), (15, 1)]
    assert outer.data == bytes(7) + b"\xff" * 8 + (5).to_bytes(8, "little")


def test_a_program_of_another_version_is_refused_by_name():
    """Such as those whose launches had another format: they named kernels otherwise."""
    other = json.dumps({"device": "cpu", "functions": [["kernel", "a" * 64, "reduce_into", "cupar_reduce"]]})
    with pytest.raises(
        resolved.MissingError, match=r"another version of cupar \(kernel\): trace and compile"
    ):
        resolved.functions(other)
