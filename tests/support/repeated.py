"""Calls of `cupar.arrays` made again, with the same arrays and with other items, against calls made anew."""

import sys
from functools import partial

import numpy as np
import pytest

from cupar import arrays
from cupar._functions import calls, replay

ENTER, REQUEST = calls.enter, replay.request


class Repeated:
    """Makes each call several times."""

    def __init__(self, monkeypatch):
        self._random, self._is_anew = np.random.default_rng(1), False
        monkeypatch.setattr(replay, "request", lambda *asked: None if self._is_anew else REQUEST(*asked))
        namespaces = [vars(module) for name, module in sys.modules.items() if name.startswith("cupar._func")]
        namespaces += [
            vars(arrays)[name].__globals__
            for name in arrays.__all__
            if hasattr(getattr(arrays, name), "__globals__")
        ]
        for names in namespaces:
            if names.get("enter") is ENTER:
                monkeypatch.setitem(names, "enter", self.enter)

    def enter(self, function, inputs, *arguments, **named):
        call = partial(ENTER, function, **named)
        first = call(inputs, *arguments)
        asked = REQUEST(function, inputs.values(), arguments) if self._is_plain(named) else None
        if asked is None or any(each is first for each in inputs.values()):
            return first
        second = call(inputs, *arguments)  # which is recorded
        known = replay._KNOWN[asked[0]]
        if not callable(known):
            return first
        same(second, first)
        if (third := known(asked[1], asked[2])) is not None:  # as its operators read the same values
            same(third, first)
        other = {name: self._other(each) for name, each in inputs.items()}
        self._is_anew = True
        try:
            expected = call(other, *arguments)
        except Exception as error:
            expected = error
        self._is_anew = False
        if isinstance(expected, Exception):
            with pytest.raises(type(expected)):
                call(other, *arguments)
        else:
            same(call(other, *arguments), expected)
        return first

    @staticmethod
    def _is_plain(named):
        return all(named.get(name) is None for name in ("stream", "like", "num_items"))

    def _other(self, given):
        """Return an array with the same items in another order."""
        if isinstance(given, tuple):
            return tuple(map(self._other, given))
        if type(given) is not np.ndarray:
            return given
        return self._random.permutation(given.reshape(-1)).reshape(given.shape)


def same(one, other):
    """Check that two results have the same bits."""
    if isinstance(one, tuple):
        assert type(one) is type(other) and len(one) == len(other)
        if "count" in getattr(one, "_fields", ()):  # items behind that many are unspecified
            length = int(np.ravel(one[-1])[0])
            one, other = ([each[:length] for each in found[:-1]] + [found[-1]] for found in (one, other))
        for each, its in zip(one, other, strict=True):
            same(each, its)
        return
    assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
    np.testing.assert_array_equal(one, other, strict=True)
