"""Calls of `cupar.arrays` by their programs, with the same arrays and with others, against calls made anew.

Other arrays have other items, and other extents: each extent becomes another one, wherever it occurs. Then
numbers among the arguments become others.
"""

import sys
from functools import partial

import numpy as np

from cupar import arrays
from cupar._functions import calls
from cupar._program import known

ENTER, CALL = calls.enter, known.call
EXTENTS = (
    lambda n: n,
    lambda n: min(n, max(n - 1, 1)),
    lambda n: (n + 1) // 2,
    lambda n: min(n, 1),
    lambda n: 0,
)
INTEGERS = (lambda n: n + 1, lambda n: n - 1, lambda n: 2 * n, lambda n: -n, lambda n: 0, lambda n: 1)
FLOATS = (
    *(lambda v: v / 2, lambda v: 1 - v, lambda v: -v, lambda v: v + 1, lambda v: 1e300, lambda v: np.pi),
    *(lambda v: 0.0, lambda v: -0.0, lambda v: 1.0, lambda v: np.inf, lambda v: -np.inf, lambda v: np.nan),
)


class Repeated:
    """Makes each call several times.

    Attributes
    ----------
    made : int
        How many calls programs have made.
    """

    def __init__(self, monkeypatch):
        self._random, self._is_anew, self._is_within, self.made = np.random.default_rng(1), False, False, 0

        def counted(*given):
            # Calls come through `enter`.
            found = None if self._is_anew or not self._is_within else CALL(*given)
            self.made += found is not None and type(found) is not known.Miss
            return found

        monkeypatch.setattr(known, "call", counted)
        namespaces = [vars(module) for name, module in sys.modules.items() if name.startswith("cupar._func")]
        namespaces += [
            vars(arrays)[name].__globals__
            for name in arrays.__all__
            if hasattr(getattr(arrays, name), "__globals__")
        ]
        for names in namespaces:
            if names.get("enter") is ENTER:
                monkeypatch.setitem(names, "enter", self.enter)

    def enter(self, function, inputs, arguments=(), stream=None, like=None, num_items=None, *more, **named):
        def call(inputs, arguments):
            return ENTER(function, inputs, arguments, stream, like, num_items, *more, **named)

        if self._is_anew or self._is_within:  # a part has arrays of certain extents alone
            return call(inputs, arguments)
        self._is_within = True
        try:
            return self._entered(call, inputs, arguments, stream is like is num_items is None)
        finally:
            self._is_within = False

    def _entered(self, call, inputs, arguments, is_plain):
        first = self._anew(call, inputs, arguments)
        if not is_plain or any(each is first for each in inputs):
            return first
        # What a call writes to is the user's: others write to a copy.
        arguments = self._apart(arguments)
        before = self.made
        for _ in range(3):  # the first one is known, the second traced, the third made by the program
            same(call(inputs, arguments), first)
        if self.made == before:
            return first
        for extent in (EXTENTS[0], *self._random.choice(EXTENTS[1:], 2, replace=False)):
            other = tuple([self._other(each, extent) for each in inputs])
            self._check(call, other, self._apart(arguments, extent))
        for _ in range(4):
            other = self._renumbered(inputs)
            self._check(call, other, self._renumbered(arguments))
        return first

    def _check(self, call, inputs, arguments):
        """Compare a call by its program, if it has one, with one that is made anew."""
        expected = self._result(partial(self._anew, call, inputs, self._apart(arguments)))
        for _ in range(2):
            found = self._result(partial(call, inputs, self._apart(arguments)))
            if isinstance(expected, Exception):
                assert type(found) is type(expected), (found, expected)
                assert str(found) == str(expected)
            else:
                same(found, expected)

    def _renumbered(self, given):
        """Return an argument with other numbers."""
        if type(given) in (tuple, list):
            return type(given)(map(self._renumbered, given))
        if type(given) is int and abs(given) < 1000:
            return self._random.choice(INTEGERS)(given)
        if isinstance(given, (np.floating, np.integer)) and abs(given) < 100:
            with np.errstate(all="ignore"):
                return np.asarray(self._renumbered(given.item())).astype(given.dtype)[()]
        return self._random.choice(FLOATS)(given) if type(given) is float else given

    def _anew(self, call, inputs, arguments):
        self._is_anew = True
        try:
            return call(inputs, arguments)
        finally:
            self._is_anew = False

    @staticmethod
    def _result(call):
        try:
            return call()
        except Exception as error:
            return error

    @staticmethod
    def _apart(arguments, extent=EXTENTS[0]):
        """Return arguments with copies of arrays, of other extents."""
        return tuple(
            each[(..., *(slice(extent(n)) for n in each.shape))].copy() if type(each) is np.ndarray else each
            for each in arguments
        )

    def _other(self, given, extent):
        """Return an array with other extents, and the same items: all but places in another order."""
        if isinstance(given, tuple):
            return tuple(self._other(each, extent) for each in given)
        if type(given) is not np.ndarray:
            return given
        cut = given[tuple(slice(extent(n)) for n in given.shape)]
        if given.dtype.kind in "iu":  # places may have to be different, or in order
            return cut.copy()
        return self._random.permutation(cut.reshape(-1).copy()).reshape(cut.shape)


def same(one, other):
    """Check that two results have the same bits."""
    assert not isinstance(one, Exception), one
    if isinstance(one, tuple):
        assert type(one) is type(other) and len(one) == len(other)
        if "count" in getattr(one, "_fields", ()):  # items behind that many are unspecified
            length = int(np.ravel(one[-1])[0])
            one, other = ([each[:length] for each in found[:-1]] + [found[-1]] for found in (one, other))
        for each, its in zip(one, other, strict=True):
            same(each, its)
        return
    if one is None:
        assert other is None
        return
    assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
    np.testing.assert_array_equal(one, other, strict=True)
