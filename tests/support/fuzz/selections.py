"""Random selections, histograms and searches; see `cases`."""

import functools
from fractions import Fraction

import numpy as np

from cupar import structs

from . import data
from .cases import (
    Case,
    any_dtype,
    begins_of,
    copied,
    count_array,
    dtype_from,
    keyed,
    mapped,
    runs_of,
    zipped_dtype,
)
from .expressions import random_operator
from .numbers import opened
from .operators import order
from .sources import Sink, Source

# --- Selections ------------------------------------------------------------------------------------------


def select(rng):
    given = zipped_dtype(rng)
    source, sink = Source(rng, "x", given), Sink(rng, "out", given)
    op = random_operator(rng, [given], np.dtype("?"))

    def make(rng, n):
        arrays, items = source.make(rng, n)
        kept = items[mapped(op, np.dtype("?"), items)]
        arrays |= sink.make(rng, len(kept)) | count_array(rng)
        expected = copied(arrays)
        sink.put(expected, kept)
        expected["count"][0] = len(kept)
        return arrays, expected

    arguments = f"{source.text}, {sink.text}, count"
    operators = [op, *source.operators, *sink.operators]
    return Case("select", f"{arguments}, {op.name}", f"{arguments}, n", make, operators)


def find_if(rng):
    given = zipped_dtype(rng)
    source, op = Source(rng, "x", given), random_operator(rng, [given], np.dtype("?"))
    is_minus_one = rng.random() < 0.5

    def make(rng, n):
        arrays, items = source.make(rng, n)
        places = np.flatnonzero(mapped(op, np.dtype("?"), items))
        arrays |= count_array(rng)
        expected = copied(arrays)
        expected["count"][0] = places[0] if len(places) else -1 if is_minus_one else n
        return arrays, expected

    build = f"{source.text}, count, {op.name}{', none=-1' * is_minus_one}"
    return Case("find_if", build, f"{source.text}, count, n", make, [op, *source.operators])


def three_way_partition(rng):
    given = any_dtype(rng)
    source = Source(rng, "x", given)
    sinks = [Sink(rng, f"out{i}", given) for i in range(3)]
    first, second = (random_operator(rng, [given], np.dtype("?"), name) for name in ("op", "other"))

    def make(rng, n):
        arrays, items = source.make(rng, n)
        one = mapped(first, np.dtype("?"), items)
        two = ~one & mapped(second, np.dtype("?"), items)
        arrays |= count_array(rng, 2)
        parts = [items[one], items[two], items[~one & ~two]]
        for sink, part in zip(sinks, parts, strict=True):
            arrays |= sink.make(rng, len(part))
        expected = copied(arrays)
        for sink, part in zip(sinks, parts, strict=True):
            sink.put(expected, part)
        expected["count"][:] = one.sum(), two.sum()
        return arrays, expected

    arguments = f"{source.text}, {', '.join(each.text for each in sinks)}, count"
    operators = [first, second, *source.operators, *(op for each in sinks for op in each.operators)]
    build = f"{arguments}, {first.name}, {second.name}"
    return Case("three_way_partition", build, f"{arguments}, n", make, operators)


def unique_by_key(rng):
    keys, equal = keyed(rng)
    unique = Sink(rng, "unique", keys.dtype)
    values = Source(rng, "x", any_dtype(rng)) if rng.random() < 0.6 else None
    sink = Sink(rng, "out", values.dtype) if values else None

    def make(rng, n):
        arrays, found = runs_of(rng, keys, n)
        begins = begins_of(found, equal)
        arrays |= unique.make(rng, len(begins)) | count_array(rng)
        items = None
        if values:
            more, items = values.make(rng, n)
            arrays |= more | sink.make(rng, len(begins))
        expected = copied(arrays)
        unique.put(expected, found[begins])
        if values:
            sink.put(expected, items[begins])
        expected["count"][0] = len(begins)
        return arrays, expected

    beside = (values.text, sink.text) if values else ("None", "None")
    arguments = f"{keys.text}, {beside[0]}, {unique.text}, {beside[1]}, count"
    operators = [equal, *keys.operators, *unique.operators]
    operators += [*values.operators, *sink.operators] if values else []
    return Case("unique_by_key", f"{arguments}, {equal.name}", f"{arguments}, n", make, operators)


# --- Histograms and searches -----------------------------------------------------------------------------


def histogram_even(rng):
    given = dtype_from(rng, data.REAL)
    source = Source(rng, "x", given)
    counts = np.dtype(str(rng.choice(["i4", "i8", "u4", "u8"])))
    of_integers = structs.kind_of(given) in "biu" and rng.random() < 0.7

    def make(rng, n):
        arrays, items = source.make(rng, n)
        numbers = [int(item) if structs.kind_of(given) in "biu" else float(item) for item in items]
        places = None
        for attempt in range(9):
            bins, low, high = _levels(rng, given, of_integers, is_exact=attempt == 8)
            places = _places(numbers, bins, low, high, of_integers or attempt == 8)
            if places is not None:
                break
        arrays |= {"counts": np.full(bins + 1, 5, counts), "levels": [bins + 1, low, high]}
        expected = copied({key: each for key, each in arrays.items() if key != "levels"})
        expected["counts"][:bins] = np.bincount(places, minlength=bins) if places else 0
        return arrays, expected

    levels = "10, 0, 9" if of_integers else "10, 0.0, 9.0"
    build = f"{source.text}, counts, {levels}, 1"
    return Case("histogram_even", build, f"{source.text}, counts, *levels, n", make, source.operators)


def histogram_range(rng):
    given = dtype_from(rng, data.REAL)
    source = Source(rng, "x", given)
    counts = np.dtype(str(rng.choice(["i4", "i8", "u4", "u8"])))
    levels = dtype_from(rng, [each for each in data.REAL if np.can_cast(given, each)])

    def make(rng, n):
        arrays, items = source.make(rng, n)
        bins = int(rng.integers(1, 12))
        edges = data.values(rng, bins + 1, levels, "few")
        edges[edges != edges] = 0
        edges.sort()
        behind = [int(sum(edges <= item)) for item in items.astype(levels)]
        arrays |= {"counts": np.full(bins + 1, 5, counts), "edges": edges}
        expected = copied(arrays)
        expected["counts"][:bins] = [behind.count(i + 1) for i in range(bins)]
        return arrays | {"m": bins + 1}, expected

    given = f"{source.text}, counts"
    build, call = f"{given}, 5, edges, 1", f"{given}, m, edges, n"
    return Case("histogram_range", build, call, make, source.operators, most=5000)


def _levels(rng, given, of_integers, is_exact):
    """Return a number of bins and two levels."""
    bins = int(rng.choice([1, 2, 3, 10, 255, 300]))
    if of_integers:
        low, high = sorted(int(each) for each in rng.choice(data.edges(given), 2))
        low, high = (low, high) if low < high else (low - (low > 0), low + 10 - (low > 0))
        return bins, max(low, high - (2**63 - 1) // bins), high
    if is_exact:
        return 1 << int(rng.integers(9)), 0.0, 1024.0
    width = float(rng.choice([1e-310, 2.0**-1060, 1e-5, 1.0, 3.7, 1e9, 1e300]))
    low = float(rng.choice([0.0, -width / 2, 1.0, -3.0]))
    return bins, low, low + width if low + width > low else float(np.nextafter(low, np.inf))


def _places(numbers, bins, low, high, is_exact):
    """Return the bins of numbers; None if one is within rounding of a level."""
    start, width, found = Fraction(low), Fraction(high) - Fraction(low), []
    for number in numbers if isinstance(low, int) else map(float, numbers):
        if low <= number < high:
            place = (Fraction(number) - start) * bins / width
            if not is_exact and place != 0 and abs(place - round(place)) < Fraction(1, 10**9):
                return None
            found.append(int(place))
    return found


def search(name, rng):
    dtype = dtype_from(rng)
    before, style = order(rng, dtype)
    source = Source(rng, "x", dtype, style, iterates=False)
    values = Source(rng, "y", dtype, style, only=(*Source.GIVEN, "permutation"))
    out = np.dtype(str(rng.choice(["i8", "u4", "i4"])))
    sink = Sink(rng, "out", out)

    def make(rng, n):
        arrays, items = source.make(rng, n, _sorted(before, data.values(rng, n, dtype, style)))
        m = int(rng.choice([0, 1, 5, 60]))
        more, wanted = values.make(rng, m)
        arrays |= more | sink.make(rng, m) | {"m": m}
        known, found = opened(items), []
        for value in opened(wanted):
            if name == "lower_bound":
                found.append(sum(bool(before(item, value)) for item in known))
            else:
                found.append(sum(not before(value, item) for item in known))
        expected = copied({key: each for key, each in arrays.items() if key != "m"})
        sink.put(expected, np.array(found, out))
        return arrays, expected

    build = f"{source.text}, {values.text}, {sink.text}, {before.name}"
    call = f"{source.text}, n, {values.text}, m, {sink.text}"
    operators = [before, *values.operators, *sink.operators]
    return Case(name, build, call, make, operators, is_one_phase=True, most=5000)


def _sorted(before, items):
    return items[places_of(before, items)]


def places_of(before, items):
    """Return where items go in a stable order."""
    return np.argsort(ranks_of(before, items), kind="stable")


def ranks_of(before, items):
    """Return how many different items go before each."""
    texts = [item.tobytes() for item in items]
    known = dict(zip(texts, opened(items), strict=True))

    def compared(a, b):
        return -1 if before(known[a], known[b]) else 1 if before(known[b], known[a]) else 0

    ranks, rank, last = {}, 0, None
    for text in sorted(known, key=functools.cmp_to_key(compared)):
        rank += last is not None and compared(last, text) != 0
        ranks[text], last = rank, text
    return np.array([ranks[text] for text in texts], int)
