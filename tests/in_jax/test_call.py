"""Any algorithm in JAX's programs."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import cupar  # noqa: E402
from cupar._jax import called, primitive  # noqa: E402
from cupar.jax import call  # noqa: E402


def scanned(x, op=cupar.OpKind.PLUS, **more):
    given = {"d_in": x, "op": op, "h_init": None, "num_items": x.size, **more}
    return call(cupar.inclusive_scan, given, {"d_out": x})["d_out"]


def test_a_scan_under_jit_and_vmap(rng):
    x = rng.integers(0, 9, (3, 50)).astype(np.int32)
    assert jax.jit(scanned)(x[0]).tolist() == np.cumsum(x[0]).tolist()
    assert jax.vmap(scanned)(x).tolist() == np.cumsum(x, 1).tolist()


OF_WHOLE_ARRAYS = {
    cupar.inclusive_scan: (
        {"op": cupar.OpKind.PLUS, "h_init": None},
        "d_in",
        "d_out",
        lambda x: x.cumsum(-1),
    ),
    cupar.exclusive_scan: (
        {"op": cupar.OpKind.PLUS, "h_init": np.ones(1, np.int32)},
        *("d_in", "d_out", lambda x: 1 + x.cumsum(-1) - x),
    ),
    cupar.reduce_into: (
        {"op": cupar.OpKind.PLUS, "h_init": np.full(1, 2, np.int32)},
        *("d_in", "d_out", lambda x: 2 + x.sum(-1, keepdims=True)),
    ),
    cupar.radix_sort: ({}, "d_in_keys", "d_out_keys", lambda x: np.sort(x, -1)),
    cupar.top_k: ({"k": 3}, "d_in_keys", "d_out_keys", lambda x: -np.sort(-x, -1)[..., :3]),
    cupar.segmented_nth_element: (
        {"n": 2, "segment_size": 7},
        "d_in",
        "d_out",
        lambda x: np.sort(x, -1)[..., 2:3],
    ),
    cupar.unary_transform: ({"op": cupar.OpKind.NEGATE}, "d_in", "d_out", lambda x: -x),
}


@pytest.mark.parametrize("factory", OF_WHOLE_ARRAYS, ids=lambda each: each.__name__)
def test_a_batch_is_rows(factory, rng):
    given, name, out, expected = OF_WHOLE_ARRAYS[factory]
    x = rng.integers(0, 99, (2, 3, 7)).astype(np.int32)
    result = jax.ShapeDtypeStruct(expected(x[0, 0]).shape, np.int32)

    def called(x):
        return call(factory, {**given, name: x, "num_items": 7}, {out: result})[out]

    nested = jax.jit(jax.vmap(jax.vmap(called)))
    assert "while" not in nested.lower(x).as_text()  # one call, not one for each
    np.testing.assert_array_equal(nested(x), expected(x))
    np.testing.assert_array_equal(called(x[0, 0]), expected(x[0, 0]))


def test_a_batch_that_has_no_rows(rng):
    """Iterators, and calls of a part of an array, go one by one."""
    x = rng.integers(0, 99, (3, 7)).astype(np.int32)

    def first(x):
        given = {"d_in": x, "op": cupar.OpKind.PLUS, "h_init": None, "num_items": 4}
        return call(cupar.inclusive_scan, given, {"d_out": x[:4]})["d_out"]

    np.testing.assert_array_equal(jax.vmap(first)(x), x[:, :4].cumsum(1))


def test_more_items_than_a_part_has(rng):
    x = rng.integers(0, 9, 200_000).astype(np.int32)
    np.testing.assert_array_equal(jax.jit(scanned)(x), np.cumsum(x))


def test_what_numpy_sorts(rng):
    x = jnp.asarray(rng.permutation(1000).astype(np.float32))
    given = {
        "d_in_keys": x,
        "d_in_values": jnp.arange(1000),
        "order": cupar.SortOrder.DESCENDING,
        "num_items": 1000,
    }
    found = jax.jit(
        lambda x: call(cupar.radix_sort, given, {"d_out_keys": x, "d_out_values": jnp.arange(1000)})
    )(x)
    assert found["d_out_keys"].tolist() == [*range(1000)][::-1]
    assert x[found["d_out_values"]].tolist() == [*range(1000)][::-1]


def segments(x, start, end):
    given = {"d_in": x, "start_offsets_in": start, "end_offsets_in": end, "num_segments": start.size}
    given |= {"op": cupar.OpKind.PLUS, "h_init": np.float32(0)}
    return call(cupar.segmented_reduce, given, {"d_out": jax.ShapeDtypeStruct(start.shape, x.dtype)})["d_out"]


def test_offsets_are_checked_when_it_is_called():
    x = jnp.arange(10, dtype=np.float32)
    good = jnp.array([0, 3, 3]), jnp.array([3, 3, 10])
    assert segments(x, *good).tolist() == [3, 0, 42]
    with pytest.raises(
        Exception, match=r"segmented_reduce: ArgumentValueError: end_offsets_in\[1\]: expected at most 10"
    ):
        jax.block_until_ready(segments(x, good[0], jnp.array([3, 11, 10])))


SCALE = 1


def test_an_operator_that_changes_is_never_stale(monkeypatch):
    for scale in (1, 2):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert scanned(jnp.ones(3, np.int32), lambda_of_scale).tolist() == [1, 1 + scale, 1 + 2 * scale]


def test_a_jitted_operator_that_changes_is_never_stale(monkeypatch):
    numba = pytest.importorskip("numba")
    op = numba.njit(lambda a, b: a + b * SCALE)
    for scale in (1, 2):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert scanned(jnp.ones(3, np.int32), op).tolist() == [1, 1 + scale, 1 + 2 * scale]


@pytest.fixture
def recorded(monkeypatch):
    """A list with an item for each program that is written."""
    found, words = [], primitive.words
    monkeypatch.setattr(primitive, "words", lambda *given: found.append(given) or words(*given))
    return found


def test_arguments_that_mean_the_same_are_one_program(recorded):
    for scale in (2, 3, 4, 5, 4, 5):  # the first two may load what registers code with numba
        x = jnp.ones(3, np.int32)
        given = {
            "op": lambda a, b: a + b * scale,
            "h_init": np.full(1, 7, np.int32),
            "d_in": cupar.CountingIterator(np.int32(scale)),
        }
        found = scanned(x, **given).tolist()
        assert found[0] == 7 + scale * scale
    assert len(recorded) == 4


def test_tables_that_are_emptied_while_threads_call():
    x = jnp.arange(5, dtype=np.int32)

    def once(k):
        if k % 4 == 3:
            cupar.cache.clear(disk=False)
        return scanned(x, lambda a, b: a + b * 3).tolist()

    expected = np.cumsum([0, 3, 6, 9, 12]).tolist()
    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(once, range(12))] == [expected] * 12


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("h_init", 0.0, -0.0),
        ("h_init", np.float32(0), np.float32(-0.0)),
        ("h_init", np.float32(1), np.float64(1)),
        ("h_init", 1, True),
        ("h_init", np.zeros((), "i4,i4"), np.zeros((), "i8")),
        ("op", cupar.OpKind.PLUS, int(cupar.OpKind.PLUS)),
        ("d_in", cupar.CountingIterator(np.int32(3)), cupar.CountingIterator(np.int32(4))),
        ("d_in", cupar.CountingIterator(np.int32(3)), cupar.ConstantIterator(np.int32(3))),
        ("h_init", (0.0, [1]), (-0.0, [1])),
        ("h_init", {}, {}),  # which have no hash
        ("link", "a.ltoir", "a.ltoir"),  # which may be another file by now
    ],
)
def test_arguments_that_are_told_apart(name, one, other):
    assert called._Given(name, one) != called._Given(name, other)
    hash(called._Given(name, one))


def test_zeros_of_both_signs_are_two_initial_values():
    given = {"d_in": jnp.ones(0, np.float32), "op": cupar.OpKind.PLUS, "num_items": 0}
    out = {"d_out": jax.ShapeDtypeStruct((1,), np.float32)}
    found = [call(cupar.reduce_into, {**given, "h_init": zero}, out)["d_out"] for zero in (0.0, -0.0)]
    assert np.signbit(found).tolist() == [[False], [True]]


def lambda_of_scale(a, b):
    return a + b * SCALE


def test_an_operator_that_raises():
    def picky(a, b):
        return a + (b, b)[1 + (b > 5)]

    assert scanned(jnp.arange(5), picky).tolist() == [0, 1, 3, 6, 10]
    with pytest.raises(
        Exception, match="inclusive_scan: operator .*picky.* raised IndexError: tuple index out"
    ):
        jax.block_until_ready(scanned(jnp.arange(9), picky))


def test_what_it_refuses():
    x = jnp.arange(4)
    with pytest.raises(TypeError, match="arguments: inclusive_scan takes d_in, d_out, op, .*; got d_inn"):
        scanned(x, d_inn=x)
    with pytest.raises(TypeError, match="call has no derivative"):
        jax.grad(lambda x: scanned(x).sum())(x.astype(np.float32))
    for factory, outputs, said in (
        (
            len,
            {"d_out": x},
            "factory: expected one of cupar's, as cupar.unique_by_key, got <built",
        ),
        (cupar.inclusive_scan, {"d_out": 3}, "outputs: expected an array or a jax.ShapeDtypeStruct as d_out"),
        (cupar.inclusive_scan, {}, "outputs: expected the arrays that the algorithm writes, got none"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            call(factory, {"d_in": x}, outputs)
    given = {"d_in": HostArray(), "op": cupar.OpKind.PLUS, "h_init": None, "num_items": 3}
    with pytest.raises(TypeError, match="d_in: expected one of the arrays that `call` was given"):
        call(cupar.inclusive_scan, given, {"d_out": x})


class HostArray:
    """An array of this process that is no NumPy's."""

    __array_interface__ = np.arange(3, dtype=np.int32).__array_interface__


@pytest.mark.parametrize("make", [HostArray, lambda: cupar.ReverseIterator(np.arange(3, dtype=np.int32))])
def test_arrays_of_this_process(make):
    with cupar.device("cpu"):
        array = make()
    given = {"d_in": array, "op": cupar.OpKind.PLUS, "h_init": None, "num_items": 3}
    with pytest.raises(TypeError, match="^d_in: expected one of the arrays that `call` was given, got ano"):
        call(cupar.inclusive_scan, given, {"d_out": jnp.arange(3)})


def test_an_initial_value_in_an_array(rng):
    """Scans read it when they are called; others have it in their launches, which knows no array then."""
    x, init = jnp.asarray(rng.integers(0, 9, 50).astype(np.int32)), jnp.full(1, 5, np.int32)
    found = jax.jit(lambda x, init: scanned(x, h_init=init))(x, init)
    assert found.tolist() == (5 + np.cumsum(x)).tolist()
    given = {"d_in": x, "op": cupar.OpKind.PLUS, "h_init": init, "num_items": 50}
    with pytest.raises(TypeError, match="^h_init: expected a number, or an array of NumPy's with one item"):
        call(cupar.reduce_into, given, {"d_out": init})


def test_rows_that_are_not_counted(rng):
    x = jnp.asarray(rng.integers(0, 9, 50).astype(np.int32))
    given = {"d_in": x, "op": cupar.OpKind.PLUS, "h_init": np.int32(0), "segment_size": 5}
    out = {"d_out": jax.ShapeDtypeStruct((10,), np.int32)}
    found = call(cupar.segmented_reduce, {**given, "num_segments": None}, out)["d_out"]
    assert found.tolist() == x.reshape(10, 5).sum(1).tolist()


def test_names_that_are_wrong():
    x = jnp.arange(3)
    given = {"d_inn": x, "op": cupar.OpKind.PLUS, "h_init": None, "num_items": 3}
    with pytest.raises(TypeError, match="^arguments: inclusive_scan takes d_in, too; got d_inn, num_items"):
        call(cupar.inclusive_scan, given, {"d_out": x})
