"""Random calls of each algorithm: how it is built and called, on which arrays, and what these hold then.

What is expected is found by plain loops over items, one after another.
"""

import functools
import itertools

import numpy as np

from cupar import structs

from . import data
from .expressions import applied, random_operator
from .numbers import closed, code, kept, opened
from .operators import PAIR, Kind, equality, fold, kinds_of
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


def dtype_from(rng, pool=data.NUMBERS):
    return pool[int(rng.integers(len(pool)))]


def any_dtype(rng):
    return data.STRUCTS[int(rng.integers(3))] if rng.random() < 0.2 else dtype_from(rng)


def zipped_dtype(rng):
    """Return a dtype, of a zip or not."""
    if rng.random() < 0.2:
        fields = [(f"field_{i}", dtype_from(rng)) for i in range(int(rng.integers(1, 4)))]
        return np.dtype(fields, align=True)
    return any_dtype(rng)


def copied(arrays):
    return {name: np.array(each) for name, each in arrays.items()}


def _most(dtype, style):
    """Return how many items can be summed exactly."""
    halves = [each for each in leaves(dtype) if each.itemsize == 2 and structs.kind_of(each) == "f"]
    return 60 if halves and style == "exact" else 1 << 20


def leaves(dtype):
    if dtype.names is None:
        return [dtype]
    return [leaf for i in range(len(dtype.names)) for leaf in leaves(dtype[i])]


# --- Transforms ------------------------------------------------------------------------------------------


def unary_transform(rng):
    given, result = zipped_dtype(rng), zipped_dtype(rng)
    if given.names is None and rng.random() < 0.3:
        op = Kind(str(rng.choice(kinds_of(given, 1))), rng.random() < 0.3)
        result = np.dtype("?") if "LOGICAL" in op.kind else given
    else:
        if code(leaves(given)[0]) in ("c8", "c16") and given.names is None:
            result = dtype_from(rng, [given, np.dtype("f8"), np.dtype("?")])
            result = np.dtype("c16") if result.kind == "f" else result
        op = random_operator(rng, [given], result)
    in_place = given == result and rng.random() < 0.3
    source = Source(rng, "x", given, iterates=not in_place)
    sink = Sink(rng, "out", result, iterates=not in_place)
    if in_place:
        source.form = sink.form = "array"
        source.text = sink.text = "x"

    def make(rng, n):
        arrays, items = source.make(rng, n)
        if in_place:
            sink.name = "x"
        else:
            arrays |= sink.make(rng, n)
        expected = copied(arrays)
        sink.put(expected, mapped(op, result, items))
        return arrays, expected

    arguments = f"{source.text}, {sink.text}"
    operators = [op, *source.operators, *sink.operators]
    call = f"{arguments}, n"
    return Case("unary_transform", f"{arguments}, {op.name}", call, make, operators, is_one_phase=True)


def mapped(op, dtype, *columns):
    known, found = {}, np.zeros(len(columns[0]), dtype)
    for i, items in enumerate(zip(*columns, strict=True)):
        key = tuple(item.tobytes() for item in items)
        if key not in known:
            known[key] = applied(op, dtype, *items)
        found[i] = known[key]
    return found


def binary_transform(rng):
    one, other, result = any_dtype(rng), any_dtype(rng), any_dtype(rng)
    if rng.random() < 0.4:
        one = other = dtype_from(rng)
        op = Kind(str(rng.choice(kinds_of(one, 2))), rng.random() < 0.3)
        relations = "EQUAL", "NOT", "GREATER", "LESS", "LOGICAL"
        result = np.dtype("?") if op.kind.startswith(relations) else one
    else:
        if any(each.kind == "c" for each in (*leaves(one), *leaves(other))):
            result = np.dtype("c16")
        op = random_operator(rng, [one, other], result)
    sources = Source(rng, "x", one), Source(rng, "y", other)
    sink = Sink(rng, "out", result)

    def make(rng, n):
        arrays, items = sources[0].make(rng, n)
        more, others = sources[1].make(rng, n)
        arrays |= more | sink.make(rng, n)
        expected = copied(arrays)
        sink.put(expected, mapped(op, result, items, others))
        return arrays, expected

    arguments = f"{sources[0].text}, {sources[1].text}, {sink.text}"
    operators = [op, *sources[0].operators, *sources[1].operators, *sink.operators]
    call = f"{arguments}, n"
    return Case("binary_transform", f"{arguments}, {op.name}", call, make, operators, is_one_phase=True)


# --- Reductions and scans --------------------------------------------------------------------------------


class Fold:
    """A fold of items of a source in an accumulator: from an initial value, or the first item."""

    def __init__(self, rng, name, in_order, needs_init=False):
        acc = dtype_from(rng) if rng.random() < 0.75 else [PAIR, *data.STRUCTS][int(rng.integers(4))]
        self.acc = acc
        self.op, self.style = fold(rng, acc, in_order)
        self.has_init = needs_init or rng.random() < 0.5
        given = acc
        if self.has_init and acc.names is None and acc.kind != "b" and rng.random() < 0.3:
            given = dtype_from(rng, [each for each in data.NUMBERS if structs.convertible(each, acc)])
        only = (*Source.GIVEN, "permutation") if self.style == "exact" else None
        self.source = Source(rng, name, given, self.style, only=only)
        self.most = min(_most(acc, self.style), _most(given, self.style))
        self.init_style = "few" if self.style == "any" else self.style

    def make(self, rng, n):
        arrays, items = self.source.make(rng, n)
        items = [kept(item, self.acc) for item in opened(items)]
        init = data.values(rng, 1, self.acc, self.init_style)
        if not self.has_init:
            return arrays, items, None
        return arrays | {"init": init}, items, opened(init)[0]

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


def result_of(rng, acc):
    """Return the dtype of an output: that of the accumulator, or one that it is converted to."""
    if acc.names is not None or rng.random() < 0.6:
        return acc
    return dtype_from(rng, [each for each in data.NUMBERS if structs.convertible(acc, each)])


def reduce_into(rng):
    folded = Fold(rng, "x", in_order=False)
    sink = Sink(rng, "out", result_of(rng, folded.acc))

    def make(rng, n):
        arrays, items, init = folded.make(rng, n)
        arrays |= sink.make(rng, 1)
        expected, total = copied(arrays), folded.reduced(items, init)
        if total is not None:
            sink.put(expected, closed([total], sink.dtype))
        return arrays, expected

    build = f"{folded.source.text}, {sink.text}, {folded.op.name}, {folded.text}"
    call = f"{folded.source.text}, {sink.text}, n, {folded.text}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case("reduce_into", build, call, make, operators, most=folded.most)


def reduce_by_index(rng):
    folded = Fold(rng, "x", in_order=False, needs_init=True)
    sink = Sink(rng, "out", result_of(rng, folded.acc))
    places = Source(rng, "index", dtype_from(rng, data.REAL[1:9]), only=Source.GIVEN)

    def make(rng, n):
        arrays, items, init = folded.make(rng, n)
        bins = int(rng.integers(0, 12))
        indices = rng.integers(-2, bins + 2, n).astype(places.dtype)
        arrays |= places.make(rng, n, indices)[0] | sink.make(rng, bins)
        expected = copied(arrays)
        if bins:
            places_of = [np.flatnonzero(indices == each) for each in range(bins)]
            found = [folded.reduced([items[i] for i in each], init) for each in places_of]
            sink.put(expected, closed(found, sink.dtype))
        return arrays | {"m": bins}, expected

    given = f"{folded.source.text}, {places.text}, {sink.text}"
    build = f"{given}, {folded.op.name}, init, determinism=cupar.Determinism({int(rng.integers(2))})"
    operators = [folded.op, *folded.source.operators, *places.operators, *sink.operators]
    call, most = f"{given}, n, m, init", min(folded.most, 5000)
    return Case("reduce_by_index", build, call, make, operators, most=most)


def scan(kind, rng):
    folded = Fold(rng, "x", in_order=True, needs_init=kind == "exclusive")
    sink = Sink(rng, "out", result_of(rng, folded.acc))

    def make(rng, n):
        arrays, items, init = folded.make(rng, n)
        arrays |= sink.make(rng, n)
        expected = copied(arrays)
        sink.put(expected, closed(folded.scanned(items, init, kind == "exclusive"), sink.dtype))
        return arrays, expected

    build = f"{folded.source.text}, {sink.text}, {folded.op.name}, {folded.text}"
    call = f"{folded.source.text}, {sink.text}, n, {folded.text}"
    operators = [folded.op, *folded.source.operators, *sink.operators]
    return Case(f"{kind}_scan", build, call, make, operators, most=folded.most)


def keyed(rng, name="keys"):
    """Return a source of keys that come in runs, and when they are equal."""
    dtype = any_dtype(rng)
    source = Source(rng, name, dtype, "few", only=(*Source.GIVEN, "permutation", "zip"))
    return source, equality(rng, dtype, "equal")


def runs_of(rng, source, n):
    """Return the arrays of keys, and keys in runs."""
    items = data.values(rng, n, source.dtype, "few")
    if n and source.form in Source.GIVEN:
        items = np.repeat(items, rng.choice([1, 1, 2, 5, 100], n))[:n]
        return source.make(rng, n, items)
    return source.make(rng, n)


def begins_of(keys, equal):
    known = opened(keys)
    return [i for i in range(len(keys)) if i == 0 or not equal(known[i - 1], known[i])]


def scan_by_key(kind, rng):
    keys, equal = keyed(rng)
    folded = Fold(rng, "x", in_order=True, needs_init=kind == "exclusive")
    sink = Sink(rng, "out", result_of(rng, folded.acc))

    def make(rng, n):
        arrays, found = runs_of(rng, keys, n)
        more, items, init = folded.make(rng, n)
        arrays |= more | sink.make(rng, n)
        bounds = [*begins_of(found, equal), n]
        scans = [folded.scanned(items[a:b], init, kind == "exclusive") for a, b in itertools.pairwise(bounds)]
        expected = copied(arrays)
        if n:
            sink.put(expected, closed([each for scan in scans for each in scan], sink.dtype))
        return arrays, expected

    arguments = f"{keys.text}, {folded.source.text}, {sink.text}"
    build = f"{arguments}, {folded.op.name}, {folded.text}, {equal.name}"
    operators = [folded.op, equal, *keys.operators, *folded.source.operators, *sink.operators]
    return Case(
        f"{kind}_scan_by_key", build, f"{arguments}, n, {folded.text}", make, operators, most=folded.most
    )


def reduce_by_key(rng):
    keys, equal = keyed(rng)
    folded = Fold(rng, "x", in_order=True)
    unique = Sink(rng, "unique", keys.dtype)
    sink = Sink(rng, "out", result_of(rng, folded.acc))

    def make(rng, n):
        arrays, found = runs_of(rng, keys, n)
        more, items, init = folded.make(rng, n)
        begins = begins_of(found, equal)
        bounds = [*begins, n]
        arrays |= more | unique.make(rng, len(begins)) | sink.make(rng, len(begins)) | count_array(rng)
        expected, totals = copied(arrays), []
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


def count_array(rng, n=1):
    return {"count": rng.integers(-9, 9, n)}


def run_length_encode(rng):
    keys, equal = keyed(rng)
    unique = Sink(rng, "unique", keys.dtype)
    lengths = np.dtype(str(rng.choice(["i4", "i8", "u4", "u8"])))

    def make(rng, n):
        arrays, found = runs_of(rng, keys, n)
        begins = begins_of(found, equal)
        arrays |= (
            unique.make(rng, len(begins))
            | count_array(rng)
            | {"lengths": np.full(len(begins) + 1, 7, lengths)}
        )
        expected = copied(arrays)
        bounds = [*begins, n]
        unique.put(expected, found[[each - 1 for each in bounds[1:]]])
        expected["lengths"][: len(begins)] = np.diff(bounds)
        expected["count"][0] = len(begins)
        return arrays, expected

    arguments = f"{keys.text}, {unique.text}, lengths, count"
    operators = [equal, *keys.operators, *unique.operators]
    return Case("run_length_encode", f"{arguments}, {equal.name}", f"{arguments}, n", make, operators)
