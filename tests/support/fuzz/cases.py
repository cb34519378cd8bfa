"""Random calls of each algorithm: how it is built and called, on which arrays, and what these hold then.

What is expected is found by plain loops over items, one after another.
"""

import functools
import itertools
from fractions import Fraction

import numpy as np

from cupar import structs

from . import data
from .expressions import applied, random_operator
from .numbers import closed, code, kept, opened
from .operators import PAIR, Kind, equality, fold, kinds_of, order
from .sources import Sink, Source


class Case:
    """A build, and any number of calls.

    Attributes
    ----------
    factory, build, call : str
        The factory, what it is given, and what its object is; of arrays by their names.
    make : callable
        Given a generator and a number of items, returns the arrays and what they are to be after the call.
    operators : list
    is_one_phase : bool
    most : int
        Items, at most.
    """

    def __init__(self, factory, build, call, make, operators=(), *, is_one_phase=False, most=1 << 20):
        self.factory, self.build, self.call, self.make = factory, build, call, make
        self.operators, self.is_one_phase, self.most = list(operators), is_one_phase, most


def _dtype(rng, pool=data.NUMBERS):
    return pool[int(rng.integers(len(pool)))]


def _any(rng):
    return data.STRUCTS[int(rng.integers(3))] if rng.random() < 0.2 else _dtype(rng)


def _zipped(rng):
    """Return a dtype, of a zip or not."""
    if rng.random() < 0.2:
        fields = [(f"field_{i}", _dtype(rng)) for i in range(int(rng.integers(1, 4)))]
        return np.dtype(fields, align=True)
    return _any(rng)


def _copied(arrays):
    return {name: np.array(each) for name, each in arrays.items()}


def _most(dtype, style):
    """Return how many items can be summed exactly."""
    halves = [each for each in _leaves(dtype) if each.itemsize == 2 and structs.kind_of(each) == "f"]
    return 60 if halves and style == "exact" else 1 << 20


def _leaves(dtype):
    if dtype.names is None:
        return [dtype]
    return [leaf for i in range(len(dtype.names)) for leaf in _leaves(dtype[i])]


# --- Transforms ------------------------------------------------------------------------------------------


def unary_transform(rng, divides):
    given, result = _zipped(rng), _zipped(rng)
    if given.names is None and rng.random() < 0.3:
        op = Kind(str(rng.choice(kinds_of(given, 1, divides))), rng.random() < 0.3)
        result = np.dtype("?") if "LOGICAL" in op.kind else given
    else:
        if code(_leaves(given)[0]) in ("c8", "c16") and given.names is None:
            result = _dtype(rng, [given, np.dtype("f8"), np.dtype("?")])
            result = np.dtype("c16") if result.kind == "f" else result
        op = random_operator(rng, [given], result, divides=divides)
    in_place = given == result and rng.random() < 0.3
    source = Source(rng, "x", given, iterates=not in_place, divides=divides)
    sink = Sink(rng, "out", result, iterates=not in_place, divides=divides)
    if in_place:
        source.form = sink.form = "array"
        source.text = sink.text = "x"

    def make(rng, n):
        arrays, items = source.make(rng, n)
        if in_place:
            sink.name = "x"
        else:
            arrays |= sink.make(rng, n)
        expected = _copied(arrays)
        sink.put(expected, _mapped(op, result, items))
        return arrays, expected

    arguments = f"{source.text}, {sink.text}"
    operators = [op, *source.operators, *sink.operators]
    call = f"{arguments}, n"
    return Case("unary_transform", f"{arguments}, {op.name}", call, make, operators, is_one_phase=True)


def _mapped(op, dtype, *columns):
    known, found = {}, np.zeros(len(columns[0]), dtype)
    for i, items in enumerate(zip(*columns, strict=True)):
        key = tuple(item.tobytes() for item in items)
        if key not in known:
            known[key] = applied(op, dtype, *items)
        found[i] = known[key]
    return found


def binary_transform(rng, divides):
    one, other, result = _any(rng), _any(rng), _any(rng)
    if rng.random() < 0.4:
        one = other = _dtype(rng)
        op = Kind(str(rng.choice(kinds_of(one, 2, divides))), rng.random() < 0.3)
        relations = "EQUAL", "NOT", "GREATER", "LESS", "LOGICAL"
        result = np.dtype("?") if op.kind.startswith(relations) else one
    else:
        if any(each.kind == "c" for each in (*_leaves(one), *_leaves(other))):
            result = np.dtype("c16")
        op = random_operator(rng, [one, other], result, divides=divides)
    sources = Source(rng, "x", one, divides=divides), Source(rng, "y", other, divides=divides)
    sink = Sink(rng, "out", result, divides=divides)

    def make(rng, n):
        arrays, items = sources[0].make(rng, n)
        more, others = sources[1].make(rng, n)
        arrays |= more | sink.make(rng, n)
        expected = _copied(arrays)
        sink.put(expected, _mapped(op, result, items, others))
        return arrays, expected

    arguments = f"{sources[0].text}, {sources[1].text}, {sink.text}"
    operators = [op, *sources[0].operators, *sources[1].operators, *sink.operators]
    call = f"{arguments}, n"
    return Case("binary_transform", f"{arguments}, {op.name}", call, make, operators, is_one_phase=True)


# --- Reductions and scans --------------------------------------------------------------------------------


class _Fold:
    """A fold of items of a source in an accumulator: from an initial value, or the first item."""

    def __init__(self, rng, name, in_order, needs_init=False, divides=True, scans=False):
        acc = _dtype(rng) if rng.random() < 0.75 else [PAIR, *data.STRUCTS][int(rng.integers(4))]
        self.acc = acc
        self.op, self.style = fold(rng, acc, in_order)
        self.has_init = needs_init or rng.random() < 0.5
        given = acc
        if self.has_init and acc.names is None and acc.kind != "b" and rng.random() < 0.3:
            given = _dtype(rng, [each for each in data.NUMBERS if structs.convertible(each, acc)])
        self.source = Source(
            rng, name, given, "exact" if self.style == "exact" else self.style, divides=divides
        )
        if self.source.form == "transform" and self.style == "exact":
            self.source.form, self.source.text, self.source.operators = "array", name, []
        self.most = min(_most(acc, self.style), _most(given, self.style))
        self.init_style = "few" if self.style == "any" else self.style

    def make(self, rng, n):
        arrays, items = self.source.make(rng, n)
        items = [kept(item, self.acc) for item in opened(items)]
        init = data.values(rng, 1, self.acc, self.init_style)
        return (
            arrays | ({"init": init} if self.has_init else {}),
            items,
            opened(init)[0] if self.has_init else None,
        )

    def step(self, total, item):
        return kept(self.op(total, item), self.acc)

    def scanned(self, items, init, is_exclusive):
        """Return the scan of items."""
        found, total = [], init
        for item in items:
            before, total = total, item if total is None else self.step(total, item)
            found.append(before if is_exclusive else total)
        return found

    def reduced(self, items, init):
        """Return items combined, None if there are none."""
        return (
            functools.reduce(self.step, items, init)
            if init is not None
            else (functools.reduce(self.step, items) if len(items) else None)
        )

    @property
    def text(self):
        return "init" if self.has_init else "None"


def _result(rng, acc):
    """Return the dtype of an output: that of the accumulator, or one that it is converted to."""
    if acc.names is not None or rng.random() < 0.6:
        return acc
    return _dtype(rng, [each for each in data.NUMBERS if structs.convertible(acc, each)])


def reduce_into(rng, divides):
    folded = _Fold(rng, "x", in_order=False, divides=divides)
    sink = Sink(rng, "out", _result(rng, folded.acc), divides=divides)

    def make(rng, n):
        arrays, items, init = folded.make(rng, n)
        arrays |= sink.make(rng, 1)
        expected, total = _copied(arrays), folded.reduced(items, init)
        if total is not None:
            sink.put(expected, closed([total], sink.dtype))
        return arrays, expected

    build = f"{folded.source.text}, {sink.text}, {folded.op.name}, {folded.text}"
    call = f"{folded.source.text}, {sink.text}, n, {folded.text}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case("reduce_into", build, call, make, operators, most=folded.most)


def _scan(kind, rng, divides):
    folded = _Fold(rng, "x", in_order=True, needs_init=kind == "exclusive", divides=divides)
    sink = Sink(rng, "out", _result(rng, folded.acc), divides=divides)

    def make(rng, n):
        arrays, items, init = folded.make(rng, n)
        arrays |= sink.make(rng, n)
        expected = _copied(arrays)
        sink.put(expected, closed(folded.scanned(items, init, kind == "exclusive"), sink.dtype))
        return arrays, expected

    build = f"{folded.source.text}, {sink.text}, {folded.op.name}, {folded.text}"
    call = f"{folded.source.text}, {sink.text}, n, {folded.text}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case(f"{kind}_scan", build, call, make, operators, most=folded.most)


def _keys(rng, name="keys", divides=True):
    """Return a source of keys that come in runs, and when they are equal."""
    dtype = _any(rng)
    source = Source(rng, name, dtype, "few", divides=divides, only=(*Source.GIVEN, "permutation", "zip"))
    return source, equality(rng, dtype, "equal")


def _runs(rng, source, n):
    """Return the arrays of keys, and keys in runs."""
    items = data.values(rng, n, source.dtype, "few")
    if n and source.form in ("array", "reverse", "later"):
        items = np.repeat(items, rng.choice([1, 1, 2, 5, 100], n))[:n]
        return source.make(rng, n, items)
    return source.make(rng, n)


def _begins(keys, equal):
    known = opened(keys)
    return [i for i in range(len(keys)) if i == 0 or not equal(known[i - 1], known[i])]


def _scan_by_key(kind, rng, divides):
    keys, equal = _keys(rng, divides=divides)
    folded = _Fold(rng, "x", in_order=True, needs_init=kind == "exclusive", divides=divides)
    sink = Sink(rng, "out", _result(rng, folded.acc), divides=divides)

    def make(rng, n):
        arrays, found = _runs(rng, keys, n)
        more, items, init = folded.make(rng, n)
        arrays |= more | sink.make(rng, n)
        bounds = [*_begins(found, equal), n]
        scans = [folded.scanned(items[a:b], init, kind == "exclusive") for a, b in itertools.pairwise(bounds)]
        expected = _copied(arrays)
        if n:
            sink.put(expected, closed([each for scan in scans for each in scan], sink.dtype))
        return arrays, expected

    arguments = f"{keys.text}, {folded.source.text}, {sink.text}"
    build = f"{arguments}, {folded.op.name}, {folded.text}, {equal.name}"
    operators = [folded.op, equal, *keys.operators, *folded.source.operators, *sink.operators]
    return Case(
        f"{kind}_scan_by_key", build, f"{arguments}, n, {folded.text}", make, operators, most=folded.most
    )


def reduce_by_key(rng, divides):
    keys, equal = _keys(rng, divides=divides)
    folded = _Fold(rng, "x", in_order=True, divides=divides)
    unique = Sink(rng, "unique", keys.dtype, divides=divides)
    sink = Sink(rng, "out", _result(rng, folded.acc), divides=divides)

    def make(rng, n):
        arrays, found = _runs(rng, keys, n)
        more, items, init = folded.make(rng, n)
        begins = _begins(found, equal)
        bounds = [*begins, n]
        arrays |= more | unique.make(rng, len(begins)) | sink.make(rng, len(begins)) | _count(rng)
        expected, totals = _copied(arrays), []
        for a, b in itertools.pairwise(bounds):
            totals.append(folded.reduced(items[a:b], init))
        unique.put(expected, found[[each - 1 for each in bounds[1:]]])
        sink.put(expected, closed(totals, sink.dtype))
        expected["count"][0] = len(begins)
        return arrays, expected

    arguments = f"{keys.text}, {unique.text}, {folded.source.text}, {sink.text}, count"
    build = f"{arguments}, {folded.op.name}, {equal.name}, {folded.text}"
    sinks = [*unique.operators, *sink.operators]
    operators = [folded.op, equal, *keys.operators, *folded.source.operators, *sinks]
    return Case("reduce_by_key", build, f"{arguments}, n, {folded.text}", make, operators, most=folded.most)


def _count(rng, n=1):
    return {"count": rng.integers(-9, 9, n)}


def run_length_encode(rng, divides):
    keys, equal = _keys(rng, divides=divides)
    unique = Sink(rng, "unique", keys.dtype, divides=divides)
    lengths = np.dtype(str(rng.choice(["i4", "i8", "u4", "u8"])))

    def make(rng, n):
        arrays, found = _runs(rng, keys, n)
        begins = _begins(found, equal)
        arrays |= (
            unique.make(rng, len(begins)) | _count(rng) | {"lengths": np.full(len(begins) + 1, 7, lengths)}
        )
        expected = _copied(arrays)
        bounds = [*begins, n]
        unique.put(expected, found[[each - 1 for each in bounds[1:]]])
        expected["lengths"][: len(begins)] = np.diff(bounds)
        expected["count"][0] = len(begins)
        return arrays, expected

    arguments = f"{keys.text}, {unique.text}, lengths, count"
    operators = [equal, *keys.operators, *unique.operators]
    return Case("run_length_encode", f"{arguments}, {equal.name}", f"{arguments}, n", make, operators)


# --- Selections ------------------------------------------------------------------------------------------


def select(rng, divides):
    given = _zipped(rng)
    source, sink = Source(rng, "x", given, divides=divides), Sink(rng, "out", given, divides=divides)
    op = random_operator(rng, [given], np.dtype("?"), divides=divides)

    def make(rng, n):
        arrays, items = source.make(rng, n)
        kept = items[_mapped(op, np.dtype("?"), items)]
        arrays |= sink.make(rng, len(kept)) | _count(rng)
        expected = _copied(arrays)
        sink.put(expected, kept)
        expected["count"][0] = len(kept)
        return arrays, expected

    arguments = f"{source.text}, {sink.text}, count"
    operators = [op, *source.operators, *sink.operators]
    return Case("select", f"{arguments}, {op.name}", f"{arguments}, n", make, operators)


def three_way_partition(rng, divides):
    given = _any(rng)
    source = Source(rng, "x", given, divides=divides)
    sinks = [Sink(rng, f"out{i}", given, divides=divides) for i in range(3)]
    first, second = (random_operator(rng, [given], np.dtype("?"), name, divides) for name in ("op", "other"))

    def make(rng, n):
        arrays, items = source.make(rng, n)
        one = _mapped(first, np.dtype("?"), items)
        two = ~one & _mapped(second, np.dtype("?"), items)
        arrays |= _count(rng, 2)
        parts = [items[one], items[two], items[~one & ~two]]
        for sink, part in zip(sinks, parts, strict=True):
            arrays |= sink.make(rng, len(part))
        expected = _copied(arrays)
        for sink, part in zip(sinks, parts, strict=True):
            sink.put(expected, part)
        expected["count"][:] = one.sum(), two.sum()
        return arrays, expected

    arguments = f"{source.text}, {', '.join(each.text for each in sinks)}, count"
    operators = [first, second, *source.operators, *(op for each in sinks for op in each.operators)]
    build = f"{arguments}, {first.name}, {second.name}"
    return Case("three_way_partition", build, f"{arguments}, n", make, operators)


def unique_by_key(rng, divides):
    keys, equal = _keys(rng, divides=divides)
    unique = Sink(rng, "unique", keys.dtype, divides=divides)
    values = Source(rng, "x", _any(rng), divides=divides) if rng.random() < 0.6 else None
    sink = Sink(rng, "out", values.dtype, divides=divides) if values else None

    def make(rng, n):
        arrays, found = _runs(rng, keys, n)
        begins = _begins(found, equal)
        arrays |= unique.make(rng, len(begins)) | _count(rng)
        items = None
        if values:
            more, items = values.make(rng, n)
            arrays |= more | sink.make(rng, len(begins))
        expected = _copied(arrays)
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


def histogram_even(rng, divides):
    given = _dtype(rng, data.REAL)
    source = Source(rng, "x", given, divides=divides)
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
        expected = _copied({key: each for key, each in arrays.items() if key != "levels"})
        expected["counts"][:bins] = np.bincount(places, minlength=bins) if places else 0
        return arrays, expected

    levels = "10, 0, 9" if of_integers else "10, 0.0, 9.0"
    build = f"{source.text}, counts, {levels}, 1"
    return Case("histogram_even", build, f"{source.text}, counts, *levels, n", make, source.operators)


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


def _search(name, rng, divides):
    dtype = _dtype(rng)
    before, style = order(rng, dtype)
    source = Source(rng, "x", dtype, style, iterates=False)
    values, out = (
        Source(rng, "y", dtype, style, divides=divides),
        np.dtype(str(rng.choice(["i8", "u4", "i4"]))),
    )
    if values.form == "transform":
        values.form, values.text, values.operators = "array", "y", []
    sink = Sink(rng, "out", out, divides=divides)

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
        expected = _copied({key: each for key, each in arrays.items() if key != "m"})
        sink.put(expected, np.array(found, out))
        return arrays, expected

    build = f"{source.text}, {values.text}, {sink.text}, {before.name}"
    call = f"{source.text}, n, {values.text}, m, {sink.text}"
    operators = [before, *values.operators, *sink.operators]
    return Case(name, build, call, make, operators, is_one_phase=True, most=5000)


def _sorted(before, items):
    return items[_order(before, items)]


def _order(before, items):
    """Return where items go in a stable order."""
    texts = [item.tobytes() for item in items]
    known = dict(zip(texts, opened(items), strict=True))

    def compared(a, b):
        return -1 if before(known[a], known[b]) else 1 if before(known[b], known[a]) else 0

    ranks, rank, last = {}, 0, None
    for text in sorted(known, key=functools.cmp_to_key(compared)):
        rank += last is not None and compared(last, text) != 0
        ranks[text], last = rank, text
    return np.argsort([ranks[text] for text in texts], kind="stable") if texts else np.zeros(0, int)


# --- Sorts -----------------------------------------------------------------------------------------------


def merge_sort(rng, divides):
    dtype = _any(rng)
    before, style = order(rng, dtype)
    keys = Source(rng, "keys", dtype, style, only=Source.GIVEN)
    values = Source(rng, "x", _any(rng), divides=divides) if rng.random() < 0.5 else None
    in_place = keys.form == "array" and rng.random() < 0.3

    def make(rng, n):
        arrays, found = keys.make(rng, n, data.values(rng, n, dtype, style if n < 5000 else "few"))
        places = _order(before, found)
        if not in_place:
            arrays["out_keys"] = data.values(rng, n, dtype, "few")
        items = None
        if values:
            more, items = values.make(rng, n)
            arrays |= more | {"out": data.values(rng, n, values.dtype, "few")}
        expected = _copied(arrays)
        expected["keys" if in_place else "out_keys"][:] = found[places]
        if values:
            expected["out"][:] = items[places]
        return arrays, expected

    beside = (values.text, "out") if values else ("None", "None")
    arguments = f"{keys.text}, {beside[0]}, {'keys' if in_place else 'out_keys'}, {beside[1]}"
    operators = [before, *keys.operators, *(values.operators if values else [])]
    return Case("merge_sort", f"{arguments}, {before.name}", f"{arguments}, n", make, operators, most=70_000)


def _rank(item, descends):
    """Return what orders keys by their bits: NaNs go to the ends, -0.0 and 0.0 are equal."""
    kind = structs.kind_of(item.dtype)
    if kind != "f":
        return -int(item) if descends else int(item)
    word = int.from_bytes(item.tobytes(), "little")
    top = 1 << (8 * item.dtype.itemsize - 1)
    number = -(word - top) if word & top else word
    return -number if descends else number


def _by_bits(rng, with_values=True):
    dtype, order = _dtype(rng, data.REAL), str(rng.choice(["ASCENDING", "DESCENDING"]))
    values = _any(rng) if with_values and rng.random() < 0.5 else None
    return dtype, order, values


def radix_sort(rng, divides):
    dtype, order, values = _by_bits(rng)
    bits, in_bits = 8 * dtype.itemsize, rng.random() < 0.4 and structs.kind_of(dtype) in "iu"

    def make(rng, n):
        keys = data.values(rng, n, dtype, str(rng.choice(["any", "few"])))
        arrays = {"keys": keys, "out_keys": keys[::-1].copy(), "bits": (None, None)}
        ranked = [_rank(each, order == "DESCENDING") for each in keys]
        if in_bits:
            low = int(rng.integers(0, bits + 1))
            high = int(rng.integers(low, bits + 1))
            arrays["bits"] = low, high
            signed = 1 << (bits - 1) if dtype.kind == "i" else 0
            words = [((int(each) + signed) >> low) & ((1 << (high - low)) - 1) for each in keys]
            ranked = [-each for each in words] if order == "DESCENDING" else words
        places = np.array(sorted(range(n), key=ranked.__getitem__), int)
        if values is not None:
            arrays |= {"x": data.values(rng, n, values), "out": data.values(rng, n, values, "few")}
        expected = _copied({key: each for key, each in arrays.items() if key != "bits"})
        expected["out_keys"][:] = keys[places]
        if values is not None:
            expected["out"][:] = arrays["x"][places]
        return arrays, expected

    beside = "x, out" if values is not None else "None, None"
    arguments = f"keys, out_keys, {beside}"
    return Case("radix_sort", f"{arguments}, SortOrder.{order}", f"{arguments}, n, *bits", make)


def _segments(rng, n, in_order, overlap):
    """Return starts and ends of segments, some of which are empty in odd ways."""
    count = int(rng.choice([0, 1, 2, 7, 40]))
    if overlap:
        bounds = np.sort(rng.integers(0, n + 1, (2, count)), axis=0)
        starts, ends = bounds
    else:
        cuts = np.sort(rng.integers(0, n + 1, count + 1))
        starts, ends = cuts[:-1].copy(), cuts[1:].copy()
        shorter = rng.random(count) < 0.2
        ends = np.where(shorter, (starts + ends) // 2, ends)
        if not in_order:
            mixed = rng.permutation(count)
            starts, ends = starts[mixed], ends[mixed]
    odd = rng.random(count) < 0.1
    return np.where(odd & (starts >= ends), starts + 1000, starts), np.where(odd & (starts >= ends), -5, ends)


def _offsets(rng, iterates):
    """Return two sources of offsets, in the dtype that they have."""
    dtype = np.dtype(str(rng.choice(["i4", "i8"])))
    return [Source(rng, name, dtype, "few", iterates, only=Source.GIVEN) for name in ("starts", "ends")]


def segmented_reduce(rng, divides):
    folded = _Fold(rng, "x", in_order=False, needs_init=True, divides=divides)
    sink, offsets = Sink(rng, "out", _result(rng, folded.acc), divides=divides), _offsets(rng, True)
    has_rows = rng.random() < 0.25

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, has_rows, offsets, True)
        n = more.pop("n", n)
        read, items, init = folded.make(rng, n)
        arrays |= read | sink.make(rng, len(starts)) | more
        expected = _copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        totals = [folded.reduced(items[a : max(a, b)], init) for a, b in zip(starts, ends, strict=True)]
        sink.put(expected, closed(totals, sink.dtype))
        return arrays, expected

    given = "None, None" if has_rows else ", ".join(each.text for each in offsets)
    build = f"{folded.source.text}, {sink.text}, {given}, {folded.op.name}, init"
    call = f"{folded.source.text}, {sink.text}, m, {given}, init{', segment_size=size' if has_rows else ''}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case("segmented_reduce", build, call, make, operators, most=min(folded.most, 5000))


_NO_ARRAYS = {"m", "k", "size", "levels", "bits", "num"}


def _found_segments(rng, n, has_rows, offsets, overlap, in_order=False):
    """Return arrays of offsets, the segments, and numbers of the call."""
    if has_rows:
        size = int(rng.integers(1, max(2, n // 3)))
        count = n // size
        starts = np.arange(count) * size
        return {}, starts, starts + size, {"m": count, "size": size, "n": count * size}
    starts, ends = _segments(rng, n, in_order, overlap)
    arrays = {}
    for source, found in zip(offsets, (starts, ends), strict=True):
        arrays |= source.make(rng, len(found), found.astype(source.dtype))[0]
    return arrays, starts, ends, {"m": len(starts)}


def _segmented_scan(kind, rng, divides):
    folded = _Fold(rng, "x", in_order=True, needs_init=kind == "exclusive", divides=divides)
    sink = Sink(rng, "out", _result(rng, folded.acc), divides=divides)
    offsets, has_rows, moves = _offsets(rng, True), rng.random() < 0.25, rng.random() < 0.3
    if sink.form not in ("array", "permutation"):
        sink = Sink(rng, "out", sink.dtype, iterates=False, divides=divides)
    moves = moves and not has_rows

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, has_rows, offsets, False)
        n = more.pop("n", n)
        read, items, init = folded.make(rng, n)
        arrays |= read | sink.make(rng, n) | more
        to = starts
        if moves:
            lengths = np.maximum(ends - starts, 0)
            to = (np.cumsum(lengths[::-1]) - lengths[::-1])[::-1] + np.zeros(len(starts), "i8")
            arrays["to"] = to.astype("i8")
        before = _copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        expected = before
        target = expected["out"][expected["out_at"]] if sink.form == "permutation" else expected["out"]
        for a, b, at in zip(starts.tolist(), ends.tolist(), to.tolist(), strict=True):
            if a < b:
                target[at : at + b - a] = closed(
                    folded.scanned(items[a:b], init, kind == "exclusive"), sink.kept
                )
        if sink.form == "permutation":
            expected["out"][expected["out_at"]] = target
        return arrays, expected

    given = "None, None" if has_rows else ", ".join(each.text for each in offsets)
    more = ", start_offsets_out=to" if moves else ""
    build = f"{folded.source.text}, {sink.text}, {given}, {folded.op.name}, {folded.text}{more}"
    more += ", segment_size=size" if has_rows else ""
    call = f"{folded.source.text}, {sink.text}, m, {given}, {folded.text}{more}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case(f"{kind}_segmented_scan", build, call, make, operators, most=min(folded.most, 5000))


def _segmented_order(rng, by_bits, divides, top=False):
    """Return a case of a sort of segments, or of a top-k."""
    if by_bits:
        dtype, direction, values = _by_bits(rng)
        before, style, operators, text = None, "any", [], f"SortOrder.{direction}"
    else:
        dtype, values = _any(rng), _any(rng) if rng.random() < 0.5 else None
        before, style = order(rng, dtype)
        operators, text = [before], f"None, op={before.name}"
    offsets, has_rows = _offsets(rng, False), rng.random() < 0.25

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, has_rows, offsets, False)
        num = more.pop("n", n)
        keys = data.values(rng, num, dtype, style)
        k = int(rng.choice([0, 1, 3, 10])) if top else 0
        k = min(k, more["size"]) if has_rows else k
        room = k * len(starts) if top else num
        arrays |= {"keys": keys, "out_keys": data.values(rng, room, dtype, "few"), **more, "num": num, "k": k}
        if values is not None:
            arrays |= {"x": data.values(rng, num, values), "out": data.values(rng, room, values, "few")}
        expected = _copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if a >= b:
                continue
            if before is None:
                ranked = [_rank(each, direction == "DESCENDING") for each in keys[a:b]]
                places = a + np.array(sorted(range(b - a), key=ranked.__getitem__), int)
            else:
                places = a + _order(before, keys[a:b])
            places = places[:k] if top else places
            at = i * k if top else a
            expected["out_keys"][at : at + len(places)] = keys[places]
            if values is not None:
                expected["out"][at : at + len(places)] = arrays["x"][places]
        return arrays, expected

    beside = "x, out" if values is not None else "None, None"
    given = "None, None" if has_rows else ", ".join(each.text for each in offsets)
    build = f"keys, out_keys, {beside}, {given}, {text}"
    numbers = "num, m, k" if top else "num, m"
    call = f"keys, out_keys, {beside}, {numbers}, {given}{', segment_size=size' if has_rows else ''}"
    return Case("segmented_top_k" if top else "segmented_sort", build, call, make, operators, most=5000)


def segmented_sort(rng, divides):
    return _segmented_order(rng, rng.random() < 0.4, divides)


def segmented_top_k(rng, divides):
    return _segmented_order(rng, True, divides, top=True)


def top_k(rng, divides):
    dtype, order, values = _by_bits(rng)
    source = Source(rng, "x", values, divides=divides) if values is not None else None

    def make(rng, n):
        keys = data.values(rng, n, dtype)
        k = int(rng.integers(0, n + 1)) if rng.random() < 0.5 else min(n, 5)
        arrays = {"keys": keys, "out_keys": data.values(rng, k, dtype, "few"), "k": k}
        ranked = [_rank(each, order == "DESCENDING") for each in keys]
        places = np.array(sorted(range(n), key=ranked.__getitem__), int)[:k]
        items = None
        if source:
            more, items = source.make(rng, n)
            arrays |= more | {"out": data.values(rng, k, values, "few")}
        expected = _copied({key: each for key, each in arrays.items() if key != "k"})
        expected["out_keys"][:] = keys[places]
        if source:
            expected["out"][:] = items[places]
        return arrays, expected

    beside = f"{source.text}, out" if source else "None, None"
    arguments = f"keys, out_keys, {beside}"
    operators = source.operators if source else []
    return Case("top_k", f"{arguments}, SortOrder.{order}", f"{arguments}, n, k", make, operators)


ALGORITHMS = {
    each.__name__: each
    for each in (
        unary_transform,
        binary_transform,
        reduce_into,
        reduce_by_key,
        run_length_encode,
        select,
        three_way_partition,
        unique_by_key,
        histogram_even,
        merge_sort,
        radix_sort,
        segmented_reduce,
        segmented_sort,
        segmented_top_k,
        top_k,
    )
}
for _kind in ("inclusive", "exclusive"):
    ALGORITHMS[f"{_kind}_scan"] = functools.partial(_scan, _kind)
    ALGORITHMS[f"{_kind}_scan_by_key"] = functools.partial(_scan_by_key, _kind)
    ALGORITHMS[f"{_kind}_segmented_scan"] = functools.partial(_segmented_scan, _kind)
for _name in ("lower_bound", "upper_bound"):
    ALGORITHMS[_name] = functools.partial(_search, _name)
