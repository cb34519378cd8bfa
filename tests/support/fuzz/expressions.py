"""Random operators: the source of functions, and the types of what they give."""

import numpy as np

from .numbers import COMPLEX, FLOATS, INTS, NAMES, Table, joined, stored, typed, unified

KIND = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
INTEGERS = [0, 1, 2, 3, 7, -1, -2, 100, 255, 2**15, 2**31 - 1, -(2**31), 2**40 + 1]
REALS = [0.0, 1.0, -1.0, 0.5, 3.0, -2.25, 1e-3, 1e30, 1e300]


def kind_of(kind):
    """Return the kind of numbers that a type is of."""
    return KIND[kind[0]]


class Writer:
    """Writes expressions of some variables; each is a text and a type.

    `exact` leaves out what is not the same everywhere: functions whose last bits are the library's.
    """

    def __init__(self, rng, variables, scalars=(), tables=()):
        self.rng, self.variables, self.scalars, self.tables = (
            rng,
            list(variables),
            list(scalars),
            list(tables),
        )

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    def kinds(self):
        """Return the kinds of numbers that expressions can be of."""
        found = {kind_of(kind) for _, kind in self.variables}
        return (
            ["complex"] if found == {"complex"} else [*(["int"] if found & {"bool", "int"} else []), "float"]
        )

    def write(self, kind, depth):
        """Return an expression of a kind of numbers."""
        return getattr(self, f"_{kind}")(depth)

    def _leaf(self, kind):
        found = [each for each in (*self.variables, *self.scalars) if kind_of(each[1]) == kind]
        if found and self.rng.random() < 0.8:
            return self.pick(found)
        if self.tables and kind in ("int", "float") and self.rng.random() < 0.5:
            tables = [(name, each) for name, each in self.tables if kind_of(each) == kind]
            places = [name for name, each in self.variables if kind_of(each) == "int"]
            if tables and places:
                name, each = self.pick(tables)
                return f"{name}[{self.pick(places)} & 3]", each
        if found:
            return self.pick(found)
        return self._other(kind)

    def _other(self, kind):
        """Return a variable that is converted to a kind."""
        name, own = self.pick(self.variables)
        if kind == "int":
            if own[0] == "b":
                return f"int({name})", "i8"
            return f"int({name}.real > 0)" if own[0] == "c" else f"int({name} > 1)", "i8"
        if kind == "float":
            if own[0] == "c":
                return f"{name}.{self.pick(['real', 'imag'])}", COMPLEX[own][1]
            cast = self.pick(["float64", "float32"]) if own[0] != "f" else "float64"
            return f"np.{cast}({name})", "f8" if cast == "float64" else "f4"
        return f"np.complex128({name})", "c16"

    def _int(self, depth):
        if depth <= 0:
            return self._leaf("int")
        form = self.pick("abcdefghijkl")
        text, own = self._int(depth - 1)
        if form in "abcd":
            other, kind = self._operand("int", depth)
            return f"({text} {self.pick('+-*&|^')} {other})", joined(own, kind)
        if form == "e":
            other, _ = self._int(depth - 2)
            by = other if self.rng.random() < 0.3 else f"({other} & 31)"
            return f"({text} {self.pick(['<<', '>>'])} {by})", "u8" if own[0] == "u" else "i8"
        if form == "f":
            divisor, kind = self._operand("int", depth)
            return f"({text} {self.pick(['//', '%'])} {divisor})", joined(own, kind)
        if form == "g":
            other, kind = self._int(depth - 1)
            if unified(own, kind) != "f8":
                return f"{self.pick(['min', 'max'])}({text}, {other})", unified(own, kind)
        if form == "h":
            return f"{self.pick('-~')}{text}", "u8" if own[0] == "u" else "i8"
        if form == "i":
            return f"abs({text})", own
        if form == "j":
            cast = self.pick(["int8", "uint8", "int16", "uint32", "int32", "int64", "uint64"])
            return f"np.{cast}({text})", np.dtype(cast).str[1:]
        if form == "k":
            other, _ = self._int(depth - 1)
            return f"(np.int64({text}) if {self.condition(depth - 1)} else np.int64({other}))", "i8"
        if form == "l":
            return f"int({self.condition(depth - 1)})", "i8"
        return f"({text} ** 2)", "i8"

    def _float(self, depth):
        if depth <= 0:
            return self._leaf("float")
        form = self.pick("abcdefghij")
        text, own = self._float(depth - 1)
        if form in "abcd":
            kind = "int" if self.rng.random() < 0.2 and "int" in self.kinds() else "float"
            other, kind = self._operand(kind, depth)
            return f"({text} {self.pick('+-*/')} {other})", joined(own, kind)
        if form == "e":
            other, kind = self._float(depth - 1)
            return f"{self.pick(['min', 'max'])}({text}, {other})", unified(own, kind)
        if form == "f":
            function = self.pick(["abs", "math.fabs", "math.sqrt", "np.sqrt", "-", "np.floor", "np.trunc"])
            return f"{function}({text})", own
        if form == "g":
            other, kind = self._float(depth - 1)
            own = joined(own, kind)
            name = "float64" if own == "f8" else "float32"
            return f"np.{name}({text} if {self.condition(depth - 1)} else {other})", own
        if form == "h":
            name = self.pick(["float32", "float64", "float16"])
            return f"np.{name}({text})", "f8" if name == "float64" else "f4"
        if form == "i":
            if "int" in self.kinds() and self.rng.random() < 0.5:
                return f"({self._int(depth - 1)[0]} / {self._operand('int', depth)[0]})", "f8"
            return f"({text} {self.pick(['//', '%'])} {self.pick([0.5, 3.0, -2.25])})", joined(own, "f8")
        return f"({text} ** {self.pick([2, 3])})", own

    def _complex(self, depth):
        if depth <= 0:
            return self._leaf("complex")
        text, own = self._complex(depth - 1)
        other, kind = self._operand("complex", depth)
        if self.rng.random() < 0.2:
            return f"(-{text})", own
        return f"({text} {self.pick('+-*/')} {other})", joined(own, kind)

    def _operand(self, kind, depth):
        if kind != "complex" and self.rng.random() < 0.3:
            value = self.pick(INTEGERS if kind == "int" else REALS)
            return (f"({value})" if value < 0 else str(value)), typed(value).kind
        return self.write(kind, depth - 1)

    def condition(self, depth):
        """Return an expression that is a bool."""
        kinds = self.kinds()
        form = self.rng.random()
        bools = [name for name, kind in self.variables if kind == "b1"]
        if bools and form < 0.3:
            return self.pick(bools)
        if kinds == ["complex"]:
            name, _ = self.pick(self.variables)
            return f"({name}.real {self.pick(['<', '>='])} {name}.imag)"
        if form < 0.5 and depth > 0:
            joint = self.pick([" and ", " or "])
            return f"({self.condition(depth - 1)}{joint}{self.condition(depth - 1)})"
        if form < 0.6:
            return f"(not {self.condition(depth - 1)})"
        kind = self.pick(kinds)
        if form < 0.7 and kind == "float":
            return f"math.{self.pick(['isnan', 'isinf', 'isfinite'])}({self._float(depth - 1)[0]})"
        one, other = self.write(kind, depth - 1)[0], self._operand(kind, depth - 1)[0]
        return f"({one} {self.pick(['<', '<=', '>', '>=', '==', '!='])} {other})"


def variables_of(name, dtype):
    """Return the numbers that a parameter has: itself, or its fields."""
    from .numbers import code

    if dtype.names is None:
        return [(name, code(dtype))]
    found = []
    for i, field in enumerate(dtype.names):
        found += variables_of(f"{name}.{field}" if i % 2 else f"{name}[{i}]", dtype[field])
    return found


def convertible(kind, dtype):
    """Whether a type is converted to a dtype silently."""
    from .numbers import code

    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    own = code(dtype)
    return kind[0] != "c" if own == "b1" else ranks[kind[0]] <= ranks[own[0]]


class Operator:
    """A function: its source, and itself in CPython with numbers that compute as on a GPU."""

    def __init__(self, name, source, captured=None):
        self.name, self.source, self.captured = name, source, dict(captured or {})
        names = dict(NAMES)
        for each, value in self.captured.items():
            names[each] = Table(value) if isinstance(value, np.ndarray) else typed(value)
        names["np"] = NAMES["np"]
        exec(source, names)
        self._function = names[name]

    def __call__(self, *given):
        return self._function(*given)


def scalars_and_tables(rng, of):
    """Return what an operator may capture."""
    scalars = [
        ("K", np.int16(rng.integers(-300, 300))),
        ("L", int(rng.integers(-5, 2**33))),
        ("M", float(rng.normal())),
        ("Q", np.float32(rng.normal())),
        ("U", np.uint64(2**63 + int(rng.integers(9)))),
    ]
    tables = [
        ("T", rng.integers(-9, 9, 4).astype(rng.choice(["i1", "u2", "i8"]))),
        ("V", rng.normal(size=4).astype(rng.choice(["f4", "f8"]))),
    ]
    return [(f"{name}_{of}", each) for name, each in scalars], [
        (f"{name}_{of}", each) for name, each in tables
    ]


def random_operator(rng, inputs, outputs, name="op"):
    """Return an operator on items of dtypes, which gives what is converted to another; `outputs`: that dtype.

    Of a struct it gives a tuple.
    """
    from .numbers import code

    parameters = "ab"[: len(inputs)]
    variables = [each for p, dtype in zip(parameters, inputs, strict=True) for each in variables_of(p, dtype)]
    scalars, tables = scalars_and_tables(rng, name) if rng.random() < 0.5 else ([], [])
    writer = Writer(
        rng,
        variables,
        [(each, typed(value).kind) for each, value in scalars],
        [(each, code(value.dtype)) for each, value in tables],
    )
    fields = [outputs] if outputs.names is None else [outputs[each] for each in outputs.names]
    body, results, before = [], [], ""
    numbers = [each for each in variables if kind_of(each[1]) in ("int", "float")]
    if numbers and rng.random() < 0.3:  # a function that it calls
        text, own = numbers[int(rng.integers(len(numbers)))]
        called, kind = Writer(rng, [("v", own)]), kind_of(own)
        inside, result = called.write(kind, 1)
        before = f"def called_{name}(v):\n    return {inside}\n"
        writer.variables.append((f"called_{name}({text})", result))
    for i, dtype in enumerate(fields):
        depth = int(rng.integers(1, 4 if len(fields) == 1 else 2))
        text = _to(writer, dtype, depth)
        kind = code(dtype)
        if rng.random() < 0.25 and (kind in INTS or kind in FLOATS):  # a loop, or a branch
            full = np.dtype("i8" if kind in INTS else "f8").name
            body.append(f"    x{i} = np.{full}({text})\n")
            form = rng.random()
            if form < 0.4:
                body.append(f"    for i{i} in range({int(rng.integers(0, 4))}):\n")
                step = f"x{i} * 3 + i{i}" if kind in INTS else f"x{i} * 0.5 + i{i}"
            elif form < 0.6:
                body.append(f"    i{i} = 0\n    while i{i} < 5 and x{i} > -9:\n        i{i} += 2\n")
                step = f"x{i} - i{i}"
            else:
                body.append(f"    if {writer.condition(1)}:\n")
                step = f"x{i} - 1"
            body.append(f"        x{i} = np.{full}({step})\n")
            text = f"x{i}"
        results.append(text)
    result = results[0] if outputs.names is None else f"({', '.join(results)},)"
    source = f"{before}def {name}({', '.join(parameters)}):\n{''.join(body)}    return {result}\n"
    used = {each: value for each, value in (*scalars, *tables) if _reads(source, each)}
    return Operator(name, source, used)


def _reads(source, name):
    import re

    return re.search(rf"\b{name}\b", source) is not None


def _to(writer, dtype, depth):
    """Return an expression that is converted to a dtype."""
    if dtype.names is not None:
        return f"({', '.join(_to(writer, dtype[i], 1) for i in range(len(dtype.names)))},)"
    from .numbers import code

    kind = code(dtype)
    if kind == "b1":
        return writer.condition(depth)
    kinds = writer.kinds()
    if kind in INTS:
        return writer.write("int", depth)[0]
    if kind in FLOATS:
        return writer.write(
            writer.pick([each for each in ("int", "float") if each in kinds] or ["float"]), depth
        )[0]
    return writer.write(writer.pick(kinds), depth)[0]


def applied(function, dtype, *given):
    """Return what an operator makes of items of arrays, as a dtype has it."""
    from .numbers import loaded

    return stored(function(*map(loaded, given)), dtype)
