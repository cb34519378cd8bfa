"""The permutations of `ShuffleIterator`: libcu++'s ``cuda::random_bijection`` with keys of its ``pcg64``.

R. Mitchell et al., "Bandwidth-Optimal Random Shuffling for GPUs", 2021.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._base.generated import define
from .values import inlined, outlined

_ROUNDS = 24
_U, _W = np.uint64, np.uint32
_LOW, _HALF = _U(0xFFFFFFFF), _U(32)
_TIMES_HIGH, _TIMES_LOW = _U(2549297995355413924), _U(4865540595714422341)
_PLUS_HIGH, _PLUS_LOW = _U(6364136223846793005), _U(1442695040888963407)
_MULTIPLIER = _U(0xD2B74407B1CE6E93)


@inlined
def _high_product(a: Any, b: Any) -> Any:
    """Return the high 64 bits of a product."""
    a_high, a_low, b_high, b_low = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    middle = a_high * b_low + (a_low * b_low >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@inlined
def _added(high: Any, low: Any) -> Any:
    """Return a number of 128 bits and the generator's increment, added."""
    total = low + _PLUS_LOW
    return high + _PLUS_HIGH + _U(total < low), total


@inlined
def _next(state: Any) -> Any:
    """Return the generator's next state."""
    high, low = state
    return _added(_high_product(low, _TIMES_LOW) + high * _TIMES_LOW + low * _TIMES_HIGH, low * _TIMES_LOW)


@inlined
def _output(state: Any) -> Any:
    high, low = state
    turn, mixed = high >> _U(58), high ^ low
    return _W(((mixed >> turn) | (mixed << ((_U(64) - turn) & _U(63)))) & _LOW)


@inlined
def _seeded(seed: Any) -> Any:
    return _next(_added(_U(0), seed))


_KEYS = """
def keys(seed):
    s0 = seeded(seed)
    {steps}
    return ({keys})
"""


def _written() -> Any:
    steps = [f"s{i + 1} = step(s{i})" for i in range(_ROUNDS)]
    keys = ", ".join(f"output(s{i + 1})" for i in range(_ROUNDS))
    names: dict[str, Any] = {"seeded": _seeded, "step": _next, "output": _output}
    return inlined(define("keys of a shuffle", "keys", _KEYS, names, steps=steps, keys=keys))


keys_of = _written()


@outlined
def permuted(items: Any, keys: Any, index: Any) -> Any:
    """Return the number below `items` that has a place in the permutation."""
    bits = _U(8)
    while items > 1 and (items - 1) >> np.int64(bits):
        bits += _U(1)
    left_bits = bits // _U(2)
    right_bits = bits - left_bits
    left_mask, right_mask = _W((_U(1) << left_bits) - _U(1)), _W((_U(1) << right_bits) - _U(1))
    found = _U(index)
    while True:
        left, right = _W(found >> right_bits), _W(found & _U(right_mask))
        for key in keys:
            product = _MULTIPLIER * _U(left)
            front, back = _W(_W(product >> _HALF) ^ key), _W(product & _LOW)
            new = _W(front ^ right)
            right = _W(_W(_W(back << _W(right_bits - left_bits)) | _W(right >> _W(left_bits))) & right_mask)
            left = _W(new & left_mask)
        found = (_U(left) << right_bits) | _U(right)
        if found < _U(items):
            return np.int64(found)
