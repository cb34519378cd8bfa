"""Plays random cases: builds each once, calls it on many arrays in several ways, and compares."""

import itertools
import math
import threading
import time

import numpy as np

import cupar
from cupar import OpKind, SortOrder
from cupar._cpu import calls as host_calls
from cupar._cpu import schedules

from . import data
from .algorithms import ALGORITHMS
from .sources import text_of

NAMES = {"cupar": cupar, "np": np, "math": math, "OpKind": OpKind, "SortOrder": SortOrder}
CALLS = {
    "run": "algorithm.run({call})",
    "bound": "with algorithm.bind({call}) as bound: bound()",
    "two phases": 'algorithm(np.empty(algorithm(None, {call}), "u1"), {call})',
    "one phase": "algorithm({call})",
}


# The least items of a part, and of a call that several threads do: as they are, and few.
PARTS = [(schedules._LEAST, host_calls._SMALL), (7, 1), (100, 500), (64, 1 << 17)]


class Failure(AssertionError):
    """A call that gave something else than expected, as a program."""


class Built:
    """A case's algorithm object, and its operators as they are for numba."""

    def __init__(self, case, rng):
        self.case, self.names = case, dict(NAMES)
        for op in case.operators:
            own = {**NAMES, **op.captured}
            exec(op.source, own)
            if op.source:
                self.names[op.name] = own[op.name]
        arrays, _ = case.make(rng, 5)
        names = {**self.names, **arrays, "n": 5}
        self.algorithm = eval(f"cupar.{case.factory}({case.build})", names)

    def check(self, rng, n, way):
        """Make a call and compare; raise Failure."""
        memory = data.Memory(rng)
        with np.errstate(all="ignore"):
            given, expected = self.case.make(rng, n)
            arrays = {}
            for name, each in given.items():
                if not isinstance(each, np.ndarray) or name == "init":
                    arrays[name] = each
                    continue
                is_input = name.startswith(("x", "y")) and each.tobytes() == expected[name].tobytes()
                arrays[name] = memory.array(each, read_only=is_input and rng.random() < 0.3)
            names = {**self.names, **arrays, "n": n, "algorithm": self.algorithm}
            try:
                exec(CALLS[way].format(call=self.case.call), names)
            except Exception as error:
                program = self.program(given, n, way, {})
                raise Failure(f"{program}# raised {type(error).__name__}: {error}\n") from error
        wrong = [name for name in expected if not same(arrays[name], expected[name])]
        if wrong:
            raise Failure(
                self.program(given, n, way, {name: (arrays[name], expected[name]) for name in wrong})
            )
        if memory.changed():
            raise Failure(
                self.program(given, n, way, {}) + "# memory around an array, or of an input, was written\n"
            )

    def program(self, given, n, way, wrong):
        """Return a program that makes a call, and what it is to print."""
        lines = ["import math, ml_dtypes, numpy as np, cupar", "from cupar import OpKind, SortOrder"]
        for op in self.case.operators:
            lines += [f"{name} = {_text(value)}" for name, value in op.captured.items()]
            lines += op.source.splitlines()
        lines += [f"{name} = {_text(value)}" for name, value in given.items()]
        lines.append(f"n = {n}")
        lines.append('with cupar.device("cpu"):')
        lines.append(f"    algorithm = cupar.{self.case.factory}({self.case.build})")
        lines.append(f"    {CALLS[way].format(call=self.case.call)}")
        for name, (found, expected) in wrong.items():
            places = [i for i in range(len(expected)) if not same(found[i : i + 1], expected[i : i + 1])]
            lines.append(f"print({name}[{places[:5]}])  # expected {expected[places[:5]].tolist()}")
            lines.append(f"# was {found[places[:5]].tolist()}, {len(places)} of {len(expected)} are wrong")
        return "\n".join(lines) + "\n"


def _text(value):
    if isinstance(value, np.ndarray):
        dtype = text_of(value.dtype)
        if value.dtype.names is None and value.size < 20 and value.dtype.kind in "biu":
            return f"np.array({value.tolist()}, {dtype})"
        return f'np.frombuffer(bytes.fromhex("{value.tobytes().hex()}"), {dtype}).copy()'
    if isinstance(value, np.generic):
        return f"{_text(np.array([value], value.dtype))}[0]"
    return repr(value)


def same(found, expected):
    """Whether arrays hold the same: NaNs are one value, and so are zeros of both signs."""
    if found.dtype.names is not None:
        return all(same(found[name], expected[name]) for name in found.dtype.names)
    if found.dtype.kind in "biu":
        return np.array_equal(found, expected)
    if found.dtype.kind == "c":
        return same(found.real, expected.real) and same(found.imag, expected.imag)
    a, b = found.astype("f8"), expected.astype("f8")
    return bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())


def smaller(built, failure, way, seed):
    """Return a failure of fewer items, if one is found."""
    for n, attempt in itertools.product((1, 2, 3, 5, 9, 17, 100, 1000), range(40)):
        try:
            built.check(np.random.default_rng([seed, n, attempt]), min(n, built.case.most), way)
        except Failure as error:  # noqa: PERF203
            return error
    return failure


class Player:
    """Plays cases until the time is up; all follows from the seed and each case's number.

    It changes how problems are split into parts, in `schedules` and `calls`: restore that afterwards.

    Attributes
    ----------
    played : dict
        How many cases of each algorithm there were, and how many calls.
    """

    def __init__(self, seed):
        self.seed = seed
        self.played, self.calls, self.kept = dict.fromkeys(ALGORITHMS, 0), 0, []

    def case(self, number, calls=6, large=False):
        """Play a case; raise Failure."""
        rng = np.random.default_rng([self.seed, number])
        names = list(ALGORITHMS)
        name = names[number % len(names)]
        schedules._LEAST, host_calls._SMALL = PARTS[int(rng.integers(len(PARTS)))]
        with np.errstate(all="ignore"):
            case = ALGORITHMS[name](rng)
            try:
                built = Built(case, rng)
            except Exception as error:
                source = "".join(op.source for op in case.operators)
                said = f"cupar.{case.factory}({case.build})\n{type(error).__name__}: {error}"
                raise Failure(f"# CUPAR_FUZZ_SEED={self.seed}, case {number}\n{source}{said}") from error
        ways = ["run", "bound", "one phase" if case.is_one_phase else "two phases"]
        self.played[name] += 1
        for i in range(calls):
            sizes = data.SIZES if i or not large else data.LARGE
            n = min(int(rng.choice(sizes)), case.most)
            way = str(rng.choice(ways))
            try:
                built.check(rng, n, way)
            except Failure as error:
                found = smaller(built, error, way, self.seed)
                raise Failure(
                    f"# CUPAR_FUZZ_SEED={self.seed}, case {number}, {n} items, {way}\n{found}"
                ) from error
            self.calls += 1
        self.kept = [*self.kept[-7:], built]

    def play(self, seconds, first=0):
        """Play each algorithm once, and go on until so many seconds are over."""
        end, number = time.monotonic() + seconds, first
        while number < first + len(ALGORITHMS) or time.monotonic() < end:
            self.case(number, large=number % 8 == 4)
            number += 1
        return number

    def together(self, threads=4, calls=12):
        """Call the last builds from several threads at once, each with arrays of its own."""
        failures = []

        def some(number):
            rng = np.random.default_rng([self.seed, 1 << 20, number])
            with cupar.device("cpu"), np.errstate(all="ignore"):
                try:
                    for _ in range(calls):
                        built = self.kept[int(rng.integers(len(self.kept)))]
                        way = str(rng.choice(["run", "bound"]))
                        built.check(rng, min(int(rng.choice(data.SIZES)), built.case.most), way)
                except Failure as error:
                    failures.append(error)

        running = [threading.Thread(target=some, args=(i,)) for i in range(threads)]
        for each in running:
            each.start()
        for each in running:
            each.join()
        if failures:
            raise failures[0]
