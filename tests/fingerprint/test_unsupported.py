"""What operators do that kernels cannot, read from bytecode.

Run as a script it needs nothing but the standard library, so that each Python can be tried.
"""

import importlib.util
import sys
from pathlib import Path

PATH = Path(__file__).parents[2] / "cupar" / "_fingerprint" / "unsupported.py"


def load():
    spec = importlib.util.spec_from_file_location("unsupported", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


refusal = load().refusal

# Source, message, and line
REFUSED = [
    ("def f(a, b):\n assert a\n return b", "asserts something", 2),
    ("def f(a, b):\n x = a\n assert a > b, f'{a}'\n return b", "asserts something", 3),
    ("def f(a, b):\n if a:\n  raise ValueError(f'{a}')\n return b", "raises an exception", 3),
    ("def f(a, b):\n raise", "raises an exception", 2),
    ("def f(a, b):\n try:\n  return a\n except ValueError:\n  return b", "uses `try`", None),
    ("def f(a, b):\n try:\n  return a\n finally:\n  b", "uses `try`", None),
    ("def f(a, b):\n with a:\n  return b", "uses `with`", None),
    ("def f(a, b):\n yield a", "yields values", 1),
    ("def f(a, b):\n return (yield from a)", "yields values", 1),
    ("def f(a, b):\n return sum(x for x in (a, b))", "has a generator expression", 2),
    ("async def f(a, b):\n return a", "is declared with `async def`", 1),
    ("async def f(a, b):\n yield a", "is declared with `async def`", 1),
    ("def f(a, b):\n import math\n return a", "imports a module", 2),
    ("def f(a, b):\n from math import sqrt\n return a", "imports a module", 2),
    ("def f(a, b):\n class X:\n  pass\n return a", "defines a class", 2),
    ("def f(a, b):\n global x\n x = a\n return a", "assigns a global variable", 3),
    ("def f(a, b):\n global x\n x += a\n return a", "assigns a global variable", 3),
    ("def f(a, b):\n return g(a, **{'b': b})", "passes keyword arguments by **", 2),
    ("def f(a, b):\n return {1: a}[1]", "makes a dict", 2),
    ("def f(a, b):\n return {'x': a, 'y': b}", "makes a dict", 2),
    ("def f(a, b):\n return {x: 1 for x in (a, b)}", "makes a dict", 2),
    ("def f(a, b):\n x = {a, b}\n return a", "makes a set", 2),
    ("def f(a, b):\n return len({x for x in (a, b)})", "makes a set", 2),
    ("def f(a, b):\n return a if a in {1, 2} else b", "looks something up in a set", 2),
    ("def f(a, b):\n s = f'{a}'\n return b", "formats a string", 2),
    ("def f(a, b):\n s = f'{a:3}x'\n return b", "formats a string", 2),
    ("def f(a, b):\n x, *y = a\n return x", "unpacks with *", 2),
    ("def f(a, b):\n c = a\n del c\n return b", "deletes a variable", 3),
    ("def f(a, *, b):\n return a", "has keyword-only parameters", 1),
    ("def f(a, **b):\n return a", "has a parameter **b", 1),
    ("def f(a, *c, b=1, **d):\n return a", "has keyword-only parameters", 1),
    ("def f(a, b):\n return a + 18446744073709551616", "has the number 18446744073709551616", 2),
    ("def f(a, b):\n def g(x):\n  raise ValueError\n return g(a)", "raises an exception", 3),
    ("def f(a, b):\n def g(x, *, y=2):\n  return x\n return g(a)", "has keyword-only parameters", 2),
    ("f = lambda a, b: (lambda x: {x: 1})(a)", "makes a dict", 1),
]
ALLOWED = [
    "f = lambda a, b: a if a > b else b",
    "def f(a, b):\n 'doc'\n c: int = a\n return c",
    "def f(a, b, *c):\n return a + g(*c)",
    "def f(a, b):\n t = 0\n for i in range(a):\n  if i == 3:\n   break\n  t += i\n else:\n  t = 1\n return t",
    "def f(a, b):\n while a:\n  a -= 1\n return a",
    "def f(a, b):\n for i in [1, 2]:\n  a += i\n return a",
    "def f(a, b):\n return a if a in (1, 2) else max([x for x in (a, b)])",  # lists: numba is asked
    "def f(a, b):\n x, y = a, b\n (x, y), z = (y, x), a\n return x",
    "def f(a, b):\n match a:\n  case 1:\n   return b\n  case _:\n   return a",
    "def f(a, b):\n c = 0\n def g(x):\n  nonlocal c\n  c += x\n  return c\n return g(a)",
    "def f(a, b):\n return g(a, b=b)",
    "def f(a, b):\n print(a, 'x')\n return b",
    "def f(a, b=18446744073709551615):\n return a - 9223372036854775808",
    "def f(a, b):\n return a.x and -a.y or (a, b)[0]",
]


def function(source):
    namespace = {}
    exec(compile(source, "ops.py", "exec"), namespace)
    return namespace["f"]


def check_refused(source, does, line):
    sentence = refusal(function(source).__code__)
    assert sentence is not None, source
    assert sentence.startswith(f"it {does} (line {line if line else ''}"), sentence
    assert "; " in sentence and not sentence.endswith(".")


def check_allowed(source):
    assert refusal(function(source).__code__) is None, source


if __name__ == "__main__":
    for case in REFUSED:
        check_refused(*case)
    for case in ALLOWED:
        check_allowed(case)
    print(sys.version_info[:2], len(REFUSED), len(ALLOWED))
else:
    import numpy as np
    import pytest

    import cupar

    @pytest.mark.parametrize(("source", "does", "line"), REFUSED)
    def test_refused(source, does, line):
        check_refused(source, does, line)

    @pytest.mark.parametrize("source", ALLOWED)
    def test_allowed(source):
        check_allowed(source)

    @pytest.mark.parametrize(("source", "does", "line"), REFUSED[:28])
    def test_factories_refuse_before_anything_is_compiled(source, does, line, monkeypatch):
        monkeypatch.setattr("cupar._compile.python_to_ltoir.compile_operator", None)
        with pytest.raises(TypeError) as caught:
            cupar.reduce_into("i4", "i4", function(source), 0, cc=90)
        message = str(caught.value)
        assert message.startswith("op: operator f (ops.py:1): it ") or "'f' (ops.py:1): it " in message
        assert f"it {does} (line" in message

    def asserts(a, b):
        assert a > 0, "rewritten by pytest"
        return a + b

    def calls_one_that_asserts(a, b):
        return asserts(a, b) + b

    def test_assertions_that_pytest_wrote_anew():
        assert "@pytest_ar" in asserts.__code__.co_names
        line = asserts.__code__.co_firstlineno
        place = rf"\(.*test_unsupported.py:{line}\)"
        with pytest.raises(
            TypeError, match=rf"^op: operator 'asserts' {place}: it asserts .*line {line + 1}\)"
        ):
            cupar.reduce_into("i4", "i4", asserts, 0, cc=90)
        with pytest.raises(
            TypeError,
            match=rf"^op: operator 'calls_one_that_asserts' \(.*\): in asserts {place}: it asserts something",
        ):
            cupar.reduce_into("i4", "i4", calls_one_that_asserts, 0, cc=90)

    def test_iterators_and_predicates_are_looked_at_too():
        def op(a):
            raise ValueError

        with pytest.raises(TypeError, match=r"^transform_op: operator .*op \(.*: it raises an exception"):
            cupar.TransformIterator("i4", op)
        with pytest.raises(TypeError, match=r"^cond: operator .*op \(.*: it raises an exception"):
            cupar.select("i4", "i4", "i4", op, cc=90)

    def test_a_class_that_is_read():
        class Config:
            scale = 2

        with pytest.raises(
            TypeError, match=r"closure variable 'Config' is the class .*kernel has no objects"
        ):
            cupar.reduce_into("i4", "i4", lambda a, b: a * Config.scale + b, 0, cc=90)

    @pytest.mark.slow
    def test_what_numba_makes_of_the_allowed():
        """The refusals must not refuse what works: numba compiles these."""
        for source in ALLOWED[:1] + ALLOWED[3:6] + ALLOWED[8:9] + ALLOWED[11:12]:
            assert cupar.reduce_into("i8", "i8", function(source), np.int64(0), cc=90).build.cubin_size
