"""Random sorts, and work on segments; see `cases`."""

import numpy as np

from cupar import structs

from . import data
from .cases import (
    Case,
    Fold,
    any_dtype,
    copied,
    dtype_from,
    result_of,
)
from .numbers import closed
from .operators import order
from .selections import places_of, ranks_of
from .sources import Sink, Source


def merge_sort(rng):
    dtype = any_dtype(rng)
    before, style = order(rng, dtype)
    keys = Source(rng, "keys", dtype, style, only=Source.GIVEN)
    values = Source(rng, "x", any_dtype(rng)) if rng.random() < 0.5 else None
    in_place = keys.form == "array" and rng.random() < 0.3

    def make(rng, n):
        arrays, found = keys.make(rng, n, data.values(rng, n, dtype, style if n < 5000 else "few"))
        places = places_of(before, found)
        if not in_place:
            arrays["out_keys"] = data.values(rng, n, dtype, "few")
        items = None
        if values:
            more, items = values.make(rng, n)
            arrays |= more | {"out": data.values(rng, n, values.dtype, "few")}
        expected = copied(arrays)
        expected["keys" if in_place else "out_keys"][:] = found[places]
        if values:
            expected["out"][:] = items[places]
        return arrays, expected

    beside = (values.text, "out") if values else ("None", "None")
    arguments = f"{keys.text}, {beside[0]}, {'keys' if in_place else 'out_keys'}, {beside[1]}"
    operators = [before, *keys.operators, *(values.operators if values else [])]
    return Case("merge_sort", f"{arguments}, {before.name}", f"{arguments}, n", make, operators, most=70_000)


def two_ranges(rng, n, dtype, style, before, sources, items):
    """Return the arrays of two sorted ranges, their keys and the items that go with them."""
    arrays, found, others = {}, [], []
    for source in sources:
        keys = data.values(rng, n, dtype, style if n < 5000 else "few")
        more, read = source.make(rng, n, keys[places_of(before, keys)])
        arrays |= more
        found.append(read)
    for source in items:
        more, read = source.make(rng, n)
        arrays |= more
        others.append(read)
    return arrays, found, others


def merge(rng):
    dtype = any_dtype(rng)
    before, style = order(rng, dtype)
    sources = [Source(rng, name, dtype, style, only=Source.GIVEN) for name in ("keys", "more_keys")]
    item = any_dtype(rng)
    items = [Source(rng, name, item) for name in ("x", "y")] if rng.random() < 0.5 else []

    def make(rng, n):
        arrays, found, others = two_ranges(rng, n, dtype, style, before, sources, items)
        arrays["out_keys"] = data.values(rng, 2 * n, dtype, "few")
        if items:
            arrays["out"] = data.values(rng, 2 * n, item, "few")
        expected, keys = copied(arrays), np.concatenate(found)
        places = places_of(before, keys)
        expected["out_keys"][:] = keys[places]
        if items:
            expected["out"][:] = np.concatenate(others)[places]
        return arrays, expected

    (first, second), out = [each.text for each in sources], "out" if items else "None"
    x, y = [each.text for each in items] or ("None", "None")
    arguments = f"{first}, {x}, {second}, {y}, out_keys, {out}, {before.name}"
    call = f"{first}, {x}, n, {second}, {y}, n, out_keys, {out}"
    operators = [before, *(each for source in [*sources, *items] for each in source.operators)]
    return Case("merge", arguments, call, make, operators, most=35_000)


def sets(kind, rng):
    dtype = any_dtype(rng)
    before, style = order(rng, dtype)
    sources = [Source(rng, name, dtype, style, only=Source.GIVEN) for name in ("keys", "more_keys")]
    item, is_both = any_dtype(rng), kind in ("union", "symmetric_difference")
    items = [Source(rng, name, item) for name in ("x", "y")[: 1 + is_both]] if rng.random() < 0.5 else []

    def make(rng, n):
        arrays, found, others = two_ranges(rng, n, dtype, style, before, sources, items)
        arrays["out_keys"] = data.values(rng, 2 * n, dtype, "few")
        arrays["count"] = np.zeros(1, "i8")
        if items:
            arrays["out"] = data.values(rng, 2 * n, item, "few")
        expected, keys = copied(arrays), np.concatenate(found)
        places = kept(kind, ranks_of(before, keys), n)
        expected["count"][0] = len(places)
        expected["out_keys"][: len(places)] = keys[places]
        if items:
            expected["out"][: len(places)] = np.concatenate(others)[places]
        return arrays, expected

    (first, second), out = [each.text for each in sources], "out" if items else "None"
    x, y, *_ = *(each.text for each in items), "None", "None"
    arguments = f"{first}, {x}, {second}, {y}, out_keys, {out}, count, {before.name}"
    call = f"{first}, {x}, n, {second}, {y}, n, out_keys, {out}, count"
    operators = [before, *(each for source in [*sources, *items] for each in source.operators)]
    return Case(f"set_{kind}", arguments, call, make, operators, most=35_000)


def kept(kind, ranks, n):
    """Return which keys of two sorted ranges of n a set has, in order, by their ranks: which are equal."""
    one, other = ranks[:n], ranks[n:]
    size = max(ranks, default=0) + 1
    in_pairs = []
    for own, others in ((one, other), (other, one)):
        place_in_run = np.arange(len(own)) - np.searchsorted(own, own)
        in_pairs.append(place_in_run < np.bincount(others, minlength=size)[own])
    of_first = {"union": in_pairs[0] | True, "intersection": in_pairs[0]}.get(kind, ~in_pairs[0])
    of_second = ~in_pairs[1] if kind in ("union", "symmetric_difference") else in_pairs[1] & False
    places = np.flatnonzero(np.concatenate([of_first, of_second]))
    return places[np.argsort(ranks[places], kind="stable")]


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
    dtype, order = dtype_from(rng, data.REAL), str(rng.choice(["ASCENDING", "DESCENDING"]))
    values = any_dtype(rng) if with_values and rng.random() < 0.5 else None
    return dtype, order, values


def radix_sort(rng):
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
        expected = copied({key: each for key, each in arrays.items() if key != "bits"})
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


def segmented_reduce(rng):
    folded = Fold(rng, "x", in_order=False, needs_init=True)
    sink, offsets = Sink(rng, "out", result_of(rng, folded.acc)), _offsets(rng, True)
    has_rows = rng.random() < 0.25

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, has_rows, offsets, True)
        n = more.pop("n", n)
        read, items, init = folded.make(rng, n)
        arrays |= read | sink.make(rng, len(starts)) | more
        expected = copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
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


def segmented_scan(kind, rng):
    folded = Fold(rng, "x", in_order=True, needs_init=kind == "exclusive")
    sink = Sink(rng, "out", result_of(rng, folded.acc))
    offsets, has_rows, moves = _offsets(rng, True), rng.random() < 0.25, rng.random() < 0.3
    if sink.form not in ("array", "permutation"):
        sink = Sink(rng, "out", sink.dtype, iterates=False)
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
        before = copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
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


def segmented_copy(rng):
    source, sink = Source(rng, "x", any_dtype(rng)), None
    sink = Sink(rng, "out", source.dtype)
    if sink.form not in ("array", "permutation"):
        sink = Sink(rng, "out", source.dtype, iterates=False)
    offsets = _offsets(rng, True)

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, False, offsets, True)
        lengths = np.maximum(ends - starts, 0)
        order = rng.permutation(len(starts))
        to = np.zeros(len(starts), "i8")
        to[order] = np.cumsum(lengths[order]) - lengths[order]
        read, items = source.make(rng, n)
        arrays |= read | sink.make(rng, int(lengths.sum())) | more | {"to": to}
        expected = copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        target = expected["out"][expected["out_at"]] if sink.form == "permutation" else expected["out"]
        for a, b, at in zip(starts.tolist(), ends.tolist(), to.tolist(), strict=True):
            if a < b:
                target[at : at + b - a] = items[a:b]
        if sink.form == "permutation":
            expected["out"][expected["out_at"]] = target
        return arrays, expected

    given = ", ".join([*(each.text for each in offsets), "to"])
    arguments = f"{source.text}, {sink.text}"
    operators = [*source.operators, *sink.operators]
    return Case(
        "segmented_copy", f"{arguments}, {given}", f"{arguments}, m, {given}", make, operators, most=5000
    )


def _segmented_order(rng, by_bits, top=False):
    """Return a case of a sort of segments, or of a top-k."""
    if by_bits:
        dtype, direction, values = _by_bits(rng)
        before, style, operators, text = None, "any", [], f"SortOrder.{direction}"
    else:
        dtype, values = any_dtype(rng), any_dtype(rng) if rng.random() < 0.5 else None
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
        expected = copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            if a >= b:
                continue
            if before is None:
                ranked = [_rank(each, direction == "DESCENDING") for each in keys[a:b]]
                places = a + np.array(sorted(range(b - a), key=ranked.__getitem__), int)
            else:
                places = a + places_of(before, keys[a:b])
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


def segmented_sort(rng):
    return _segmented_order(rng, rng.random() < 0.4)


def segmented_top_k(rng):
    return _segmented_order(rng, True, top=True)


def segmented_nth_element(rng):
    dtype, _, _ = _by_bits(rng)
    offsets, has_rows, has_next = _offsets(rng, False), rng.random() < 0.4, rng.random() < 0.5
    nans = str(rng.choice(["last", "propagate"]))

    def make(rng, n):
        arrays, starts, ends, more = _found_segments(rng, n, has_rows, offsets, False)
        num = more.pop("n", n)
        keys, lengths = data.values(rng, num, dtype), np.maximum(ends - starts, 0)
        if has_rows:
            ranks = np.full(len(starts), int(rng.integers(0, max(more["size"], 1))))
            arrays["k"] = int(ranks[0]) if len(ranks) else 0
        else:
            ranks = rng.integers(-1, np.maximum(lengths, 1) + 1)
            arrays["ranks"] = ranks.astype("i4")
        outputs = ["out", "behind"] if has_next else ["out"]
        arrays |= {each: data.values(rng, len(starts), dtype, "few") for each in outputs}
        arrays |= {"keys": keys, **more, "num": num}
        expected = copied({key: each for key, each in arrays.items() if key not in _NO_ARRAYS})
        is_float = structs.kind_of(dtype) == "f"
        for i, (a, b, n_) in enumerate(zip(starts.tolist(), ends.tolist(), ranks.tolist(), strict=True)):
            if not 0 <= n_ < b - a:
                continue
            items = [each + 0 if is_float else each for each in keys[a:b]]
            unknown = [each for each in items if each != each]
            known = sorted(each for each in items if each == each)
            ordered = known + unknown
            if unknown and nans == "propagate":
                ordered = unknown[:1] * len(items)
            expected["out"][i] = ordered[n_]
            if has_next:
                expected["behind"][i] = ordered[min(n_ + 1, b - a - 1)]
        return arrays, expected

    beside = "behind" if has_next else "None"
    given = "None, None, None" if has_rows else "ranks, " + ", ".join(each.text for each in offsets)
    build = f"keys, out, {beside}, {given}, nans={nans!r}"
    call = f"keys, out, {beside}, {'k' if has_rows else 'None'}, num, m, {given}"
    call += ", segment_size=size" if has_rows else ""
    return Case("segmented_nth_element", build, call, make, [], most=5000)


def top_k(rng):
    dtype, order, values = _by_bits(rng)
    source = Source(rng, "x", values) if values is not None else None

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
        expected = copied({key: each for key, each in arrays.items() if key != "k"})
        expected["out_keys"][:] = keys[places]
        if source:
            expected["out"][:] = items[places]
        return arrays, expected

    beside = f"{source.text}, out" if source else "None, None"
    arguments = f"keys, out_keys, {beside}"
    operators = source.operators if source else []
    return Case("top_k", f"{arguments}, SortOrder.{order}", f"{arguments}, n, k", make, operators)
