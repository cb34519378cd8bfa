"""Random scans and reductions along columns; see `cases`."""

import numpy as np

from .cases import Case, Fold, copied, result_of
from .numbers import closed
from .sources import Sink

_SHAPE = ("outer", "length", "inner")


def _shape(rng, n):
    """Return a shape of n items at most, or of none."""
    inner = int(rng.integers(1, max(2, min(n, 40) + 1)))
    length = int(rng.integers(0, n // inner + 1))
    outer = int(rng.integers(0, n // (inner * length) + 1)) if length else int(rng.integers(0, 3))
    return dict(zip(_SHAPE, (outer, length, inner), strict=True))


def _columns(items, outer, length, inner):
    """Return the items of each column, and where these are."""
    places = np.arange(outer * length * inner).reshape(outer, length, inner).swapaxes(1, 2)
    found = places.reshape(outer * inner, length).tolist()
    return [([items[i] for i in each], each) for each in found]


def _case(rng, name, folded, sink, made):
    """Return a case: `made` has the items of the output for a shape, None if nothing is written."""

    def make(rng, n):
        shape = _shape(rng, n)
        arrays, items, init = folded.make(rng, int(np.prod([*shape.values()])))
        found, room = made(_columns(items, **shape), init, shape)
        arrays |= sink.make(rng, room)
        expected = copied(arrays)
        if found is not None:
            sink.put(expected, closed(found, sink.dtype))
        return arrays | shape, expected

    build = f"{folded.source.text}, {sink.text}, {folded.op.name}, {folded.text}"
    call = f"{folded.source.text}, {sink.text}, {', '.join(_SHAPE)}, {folded.text}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case(name, build, call, make, operators, most=min(folded.most, 5000))


def column_scan(kind, rng):
    folded = Fold(rng, "x", in_order=True, needs_init=kind == "exclusive")

    def made(columns, init, shape):
        n = int(np.prod([*shape.values()]))
        found = [None] * n
        for items, places in columns:
            for place, each in zip(places, folded.scanned(items, init, kind == "exclusive"), strict=True):
                found[place] = each
        return found if n else None, n

    return _case(rng, f"{kind}_column_scan", folded, Sink(rng, "out", result_of(rng, folded.acc)), made)


def column_reduce(rng):
    folded = Fold(rng, "x", in_order=True)

    def made(columns, init, shape):
        found = [folded.reduced(items, init) for items, _ in columns]
        return found if found and found[0] is not None else None, len(found)

    return _case(rng, "column_reduce", folded, Sink(rng, "out", result_of(rng, folded.acc)), made)
