"""What random calls read from and write to: arrays, and iterators over them."""

import numpy as np

from . import data
from .expressions import applied, random_operator
from .numbers import BF16, Num, code, stored, wrapped


def text_of(dtype):
    """Return a dtype as it is written."""
    return '"bfloat16"' if dtype == BF16 else repr(dtype.str) if dtype.names is None else f"np.{dtype!r}"


class Source:
    """An input.

    Attributes
    ----------
    text : str
        What is given for it, of arrays of some names.
    dtype : numpy.dtype
        Of its items.
    operators : list of Operator
    """

    GIVEN = "array", "reverse", "later"  # forms of which the items may be given

    def __init__(self, rng, name, dtype, style="any", iterates=True, only=None):
        self.name, self.dtype, self.style, self.operators, self.parts = name, dtype, style, [], []
        forms = ["array"] * 4
        if iterates:
            forms += ["reverse", "permutation", "later"]
            if dtype.names is None:
                forms += ["transform", "transform"] if style in ("any", "few") else []
                if dtype.kind in "iuf" and dtype.itemsize > 2 and style == "any":
                    forms += ["counting", "constant"]
            elif set(dtype.names) == {f"field_{i}" for i in range(len(dtype.names))}:
                forms = ["zip"] * 3 + ["array"]
        forms = [each for each in forms if only is None or each in only] or ["array"]
        self.form = form = str(rng.choice(forms))
        self.text = name
        if form == "reverse":
            self.text = f"cupar.ReverseIterator({name})"
        if form == "later":
            self.text = f"(cupar.TransformIterator({name}, lambda a: a, {text_of(dtype)}) + 3)"
            if dtype.names is not None:
                self.text, self.form = name, "array"
        if form == "permutation":
            self.at = np.dtype(str(rng.choice(["i4", "u4", "i8", "u2"])))
            self.text = f"cupar.PermutationIterator({name}, {name}_at)"
        if form == "transform":
            self.given = data.NUMBERS[int(rng.integers(len(data.REAL)))]
            op = random_operator(rng, [self.given], dtype, f"of_{name}")
            self.operators.append(op)
            self.text = f"cupar.TransformIterator({name}, {op.name}, {text_of(dtype)})"
        if form == "zip":
            for i in range(len(dtype.names)):
                self.parts.append(Source(rng, f"{name}{i}", dtype[i], style))
                self.operators += self.parts[-1].operators
            self.text = f"cupar.ZipIterator({', '.join(each.text for each in self.parts)})"
        if form in ("counting", "constant"):
            self.text = f"cupar.{form.capitalize()}Iterator({name}_0)"

    def make(self, rng, n, items=None):
        """Return arrays of what it reads, and its items; they may be given if it is an array."""
        name, dtype = self.name, self.dtype
        if items is None:
            items = data.values(rng, n, dtype, self.style)
        if self.form == "array":
            return {name: items}, items
        if self.form == "reverse":
            return {name: np.ascontiguousarray(items[::-1])}, items
        if self.form == "later":
            return {name: np.concatenate([data.values(rng, 3, dtype, self.style), items])}, items
        if self.form == "permutation":
            pool = data.values(rng, max(1, min(n, 50)), dtype, self.style)
            at = rng.integers(0, len(pool), n).astype(self.at)
            return {name: pool, f"{name}_at": at}, pool[at]
        if self.form == "transform":
            given = data.values(rng, n, self.given, "any" if n < 5000 else "few")
            known = {}
            for item in given:
                if item.tobytes() not in known:
                    known[item.tobytes()] = applied(self.operators[0], dtype, item)
            return {name: given}, np.array([known[item.tobytes()] for item in given], dtype)
        if self.form == "zip":
            arrays, items = {}, np.zeros(n, dtype)
            for i, part in enumerate(self.parts):
                more, items[f"field_{i}"] = part.make(rng, n)
                arrays |= more
            return arrays, items
        value = data.values(rng, 1, dtype, "few")[0]
        if self.form == "constant":
            return {f"{name}_0": value}, np.full(n, value)
        kind = code(dtype)
        if kind[0] == "f":
            with np.errstate(all="ignore"):
                return {f"{name}_0": value}, value + np.arange(n).astype(dtype)
        counted = [stored(Num(kind, wrapped(int(value) + i, kind)), dtype) for i in range(n)]
        return {f"{name}_0": value}, np.array(counted, dtype)


class Sink:
    """An output."""

    def __init__(self, rng, name, dtype, iterates=True):
        self.name, self.dtype, self.operators, self.parts = name, dtype, [], []
        forms = ["array"] * 4
        if iterates:
            forms += ["reverse", "permutation"]
            if dtype.names is None:
                forms += ["transform"]
            elif set(dtype.names) == {f"field_{i}" for i in range(len(dtype.names))}:
                forms = ["zip"] * 3
        self.form = form = str(rng.choice(forms))
        self.text, self.kept = name, dtype
        if form == "reverse":
            self.text = f"cupar.ReverseIterator({name})"
        if form == "permutation":
            self.text = f"cupar.PermutationIterator({name}, {name}_at)"
        if form == "transform":
            self.kept = data.NUMBERS[int(rng.integers(len(data.REAL)))]
            if dtype.kind == "c" and self.kept.kind != "b":
                self.kept = dtype
            op = random_operator(rng, [dtype], self.kept, f"to_{name}")
            self.operators.append(op)
            self.text = f"cupar.TransformOutputIterator({name}, {op.name}, {text_of(dtype)})"
        if form == "zip":
            self.parts = [Sink(rng, f"{name}{i}", dtype[i]) for i in range(len(dtype.names))]
            self.operators = [op for each in self.parts for op in each.operators]
            self.text = f"cupar.ZipIterator({', '.join(each.text for each in self.parts)})"

    def make(self, rng, n):
        """Return arrays of what it writes to and reads, which have room for more items."""
        if self.form == "zip":
            return {key: each for part in self.parts for key, each in part.make(rng, n).items()}
        room = n + int(rng.integers(0, 3)) if self.form in ("array", "transform") else n
        arrays = {self.name: data.values(rng, room, self.kept, "few")}
        if self.form == "permutation":
            arrays[f"{self.name}_at"] = rng.permutation(n).astype("i8")
        return arrays

    def put(self, arrays, items):
        """Store items, as a dtype has them, where the iterator would."""
        if self.form == "zip":
            for i, part in enumerate(self.parts):
                part.put(arrays, items[f"field_{i}"])
            return
        to, n = arrays[self.name], len(items)
        if self.form == "transform":
            known = {}
            for item in items:
                if item.tobytes() not in known:
                    known[item.tobytes()] = applied(self.operators[0], self.kept, item)
            items = np.array([known[item.tobytes()] for item in items], self.kept)
        if self.form == "reverse":
            to[::-1][:n] = items
        elif self.form == "permutation":
            to[arrays[f"{self.name}_at"][:n]] = items
        else:
            to[:n] = items
