"""Templates: what numba compiles of an algorithm once in a process, for all dtypes and operators."""

import numpy as np
import pytest

import cupar


@pytest.fixture
def compiled(empty_cache, monkeypatch):
    """The names of functions that numba compiles."""
    from numba.core import compiler

    names, usual = [], compiler.compile_extra

    def noted(typing, target, function, *args, **named):
        names.append(function.__name__)
        return usual(typing, target, function, *args, **named)

    monkeypatch.setattr(compiler, "compile_extra", noted)
    return names


def _sum(dtype, op):
    items, total = np.arange(1, 5000, dtype=dtype), np.zeros(1, dtype)
    cupar.reduce_into(items, total, op, 0, cc="cpu").run(items, total, len(items), 0)
    assert total[0] == items.sum()


def test_an_algorithm_is_compiled_once(compiled, real_compilers):
    from cupar._cpu.values import forget_functions

    forget_functions()
    _sum(np.int64, lambda a, b: a + b)
    assert {"run", "fold"} < {*compiled}
    compiled.clear()
    _sum(np.float64, lambda a, b: b + a)
    assert compiled == ["<lambda>"]  # the user's
    compiled.clear()
    _sum(np.complex128, cupar.OpKind.PLUS)
    assert compiled == ["operator"]


def test_functions_are_one_only_if_they_do_the_same():
    from cupar._cpu.values import inlined

    def made(value):
        return inlined(lambda p: value)

    assert made(1) is made(1)
    assert len({id(made(value)) for value in (1, 2, 1.0, True, np.dtype("i4"))}) == 5


def test_structs_of_one_layout_may_have_fields_of_other_names():
    """Whose values are in one role, or come to an operator that was compiled for the others."""
    one, other = ([(name, np.int32), (f"{name}2", np.float32)] for name in "ab")
    first, second = np.array([(1, 0), (3, 1)], one), np.array([(2, 2), (3, 3)], other)

    def less(a, b):
        return a[0] < b[0]

    out, count = np.zeros(4, one), np.zeros(1, np.int64)
    given = first, None, second, None, out, None, count
    union = cupar.set_union(*given, less, cc="cpu")
    union.run(first, None, 2, second, None, 2, out, None, count)
    assert out[: count[0]].tolist() == [(1, 0), (2, 2), (3, 1)]
    places = np.zeros(2, np.int64)
    cupar.lower_bound(first, second, places, less, cc="cpu").run(first, 2, second, 2, places)
    assert places.tolist() == [1, 1]
