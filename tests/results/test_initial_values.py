"""The dtype of an initial value decides the accumulator in all that takes one: against plain loops."""

import enum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.operators import add
from support.results import IS_CPU, cp

import cupar
from cupar import arrays, distributed

X = np.array([[200, 100, 7], [3, 250, 90]], "u1")  # sums of which wrap in their own dtype
KEYS = np.repeat(np.arange(2), 3)
ITEMS, ROWS = X.size, len(X)
OF_ROWS = {"d_in": X, "start_offsets_in": np.array([0, 3]), "end_offsets_in": np.array([3, 6])}
OF_KEYS = {"d_in_keys": KEYS, "d_in_values": X, "d_out_values": np.zeros(ITEMS)}
BY_KEY = {
    **{"d_in_keys": KEYS, "d_in_values": X, "d_out_unique": np.zeros(ROWS, "i8")},
    **{"d_out_aggregates": np.zeros(ROWS), "d_out_num_runs": np.zeros(1, "i8")},
}
BY_INDEX = {"d_in": X, "d_indices": KEYS, "d_out": np.zeros(ROWS)}
FLAT, SEGMENTS = {"num_items": ITEMS}, {"num_segments": ROWS}
COLUMNS = {"outer": ROWS, "length": X.shape[1], "inner": 1}
# By factory: its arrays, the numbers of a call, and the result for each row or item.
FACTORIES = {
    "reduce_into": ({"d_in": X, "d_out": np.zeros(1)}, FLAT, "whole"),
    "inclusive_scan": ({"d_in": X, "d_out": np.zeros(ITEMS)}, FLAT, "items of the whole"),
    "exclusive_scan": ({"d_in": X, "d_out": np.zeros(ITEMS)}, FLAT, "items of the whole"),
    "segmented_reduce": ({**OF_ROWS, "d_out": np.zeros(ROWS)}, SEGMENTS, "rows"),
    "inclusive_segmented_scan": ({**OF_ROWS, "d_out": np.zeros(ITEMS)}, SEGMENTS, "items"),
    "exclusive_segmented_scan": ({**OF_ROWS, "d_out": np.zeros(ITEMS)}, SEGMENTS, "items"),
    "column_reduce": ({"d_in": X, "d_out": np.zeros(ROWS)}, COLUMNS, "rows"),
    "inclusive_column_scan": ({"d_in": X, "d_out": np.zeros(ITEMS)}, COLUMNS, "items"),
    "exclusive_column_scan": ({"d_in": X, "d_out": np.zeros(ITEMS)}, COLUMNS, "items"),
    "reduce_by_index": (BY_INDEX, {"num_items": ITEMS, "num_bins": ROWS}, "rows"),
    "reduce_by_key": (BY_KEY, FLAT, "rows"),
    "inclusive_scan_by_key": (OF_KEYS, FLAT, "items"),
    "exclusive_scan_by_key": (OF_KEYS, FLAT, "items"),
}
SHARDED = (*[name for name in FACTORIES if hasattr(distributed, name) and "by_key" not in name],)


def host(array):
    return array.get() if hasattr(array, "get") else np.asarray(array)


def loop(rows, dtype, init, exclusive=False):
    """Return sums and prefix sums of rows, in a dtype, item by item."""
    sums, prefixes = [], []
    with np.errstate(over="ignore"):
        for row in rows:
            total = dtype.type(init)
            for item in row:
                before, total = total, dtype.type(total + dtype.type(item))
                prefixes.append(before if exclusive else total)
            sums.append(total)
    return np.array(sums, float), np.array(prefixes, float)


def expected(name, dtype, init):
    result = FACTORIES[name][2]
    sums, prefixes = loop([X.reshape(-1)] if "whole" in result else X, dtype, init, "exclusive" in name)
    return prefixes if "items" in result else sums


def typed(dtype, value):
    """Return initial values that have a dtype."""
    host = np.array(value, dtype)
    found = [dtype.type(value), host, host.reshape(1), cp.asarray(host), cp.asarray(host.reshape(1))]
    try:
        import torch
    except ImportError:
        return found
    found.append(torch.from_numpy(host))
    if not IS_CPU:
        found.append(torch.from_numpy(host).cuda())
    elif dtype == np.float32:
        jnp = pytest.importorskip("jax.numpy")
        found.append(jnp.float32(value))
    return found


def called(factory, name, h_init, **sharded):
    given, numbers, _ = FACTORIES[name]
    given = {each: cp.asarray(array) for each, array in given.items()}
    algorithm = factory(**given, op=add, h_init=h_init)
    algorithm.run(**given, **numbers, h_init=h_init, **sharded)
    out = [each for each in given if each in ("d_out", "d_out_values", "d_out_aggregates")]
    return given[out[0]].get()


def accumulators():
    """Return dtypes of accumulators, each with initial values of 5 that decide on it."""
    return [(X.dtype, [5]), *[(np.dtype(each), typed(np.dtype(each), 5)) for each in ("i8", "f4")]]


@pytest.mark.parametrize("name", FACTORIES)
def test_factories(name):
    for _ in range(2):  # the second time, from the tables of factories
        for dtype, values in accumulators():
            for h_init in values:
                found = called(getattr(cupar, name), name, h_init)
                np.testing.assert_array_equal(found, expected(name, dtype, 5), f"{h_init!r}")


@pytest.mark.parametrize("name", SHARDED)
def test_shards(name):
    more = {"num_items": ITEMS} if "segmented" in name else {}
    for dtype, values in accumulators()[:2]:
        for h_init in values:
            found = called(getattr(distributed, name), name, h_init, **more)
            np.testing.assert_array_equal(found, expected(name, dtype, 5), f"{h_init!r}")


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["u1", "i8", "f4"]), st.integers(0, 2**30), st.lists(st.integers(0, 255), max_size=30))
def test_any_value(dtype, init, items):
    dtype, items = np.dtype(dtype), np.array(items, "u1")
    h_init = init % 256 if dtype == np.uint8 else dtype.type(init)
    d_in, d_out = cp.asarray(items), cp.zeros(1, "f8")
    cupar.reduce_into(d_in, d_out, add, h_init).run(d_in, d_out, items.size, h_init)
    if dtype != np.float32:  # which rounds in another order
        assert d_out.get()[0] == loop([items], dtype, h_init)[0][0]
    else:
        np.testing.assert_allclose(d_out.get()[0], float(h_init) + items.sum(), rtol=1e-6)


def test_classes_made_of_numbers_are_numbers():
    class Level(enum.IntEnum):
        FIVE = 5

    class Whole(int):
        pass

    class Real(float):
        pass

    for h_init in Level.FIVE, Whole(5):
        assert called(cupar.reduce_into, "reduce_into", h_init) == expected("reduce_into", X.dtype, 5)
    with pytest.raises(TypeError, match="^h_init: 0.5 is not converted to uint8 silently"):
        called(cupar.reduce_into, "reduce_into", Real(0.5))


def test_bounds_of_other_dtypes():
    for dtype, h_init in (("?", 2**70), ("?", 2), ("f4", 10**400), ("c8", complex(1.7e308, 1.7e308))):
        with pytest.raises(ValueError, match=f"^h_init: {np.dtype(dtype)} cannot hold "):
            cupar.reduce_into(dtype, dtype, add, h_init)


ROW_SUMS = {
    "reduce": lambda x, init: arrays.reduce(x, add, axis=1, init=init),
    "scan": lambda x, init: arrays.scan(x, add, axis=1, init=init)[:, -1],
    "transform_reduce": lambda x, init: arrays.transform_reduce(x, lambda a: a, add, axis=1, init=init),
    "transform_scan": lambda x, init: arrays.transform_scan(x, lambda a: a, add, axis=1, init=init)[:, -1],
    "segment_reduce": lambda x, init: arrays.segment_reduce(x, cp.asarray(np.arange(2)), add, 2, init=init),
    "reduce_by_key": lambda x, init: (
        arrays.reduce_by_key(cp.asarray(KEYS), x.reshape(-1), add, init=init).values
    ),
}


@pytest.mark.parametrize("name", ROW_SUMS)
def test_functions(name):
    x = cp.asarray(X)
    for dtype, values in accumulators()[:2]:
        for init in values:
            for _ in range(3):  # later ones are recorded
                found = ROW_SUMS[name](x, init)
                rows = X.T if name == "segment_reduce" else X
                wanted = loop(rows, dtype, 5)[0].astype(dtype)
                if name == "segment_reduce":
                    wanted = np.array([loop([[a] for a in row], dtype, 5)[0] for row in X], dtype)
                assert found.dtype == dtype, repr(init)
                np.testing.assert_array_equal(host(found), wanted, repr(init))


def test_functions_of_all_items():
    x, other = cp.asarray(X), cp.asarray(np.ones_like(X))
    for init, dtype in (5, "u1"), (np.int64(5), "i8"), (np.float32(5), "f4"):
        wanted = loop([X.reshape(-1)], np.dtype(dtype), 5)[0].astype(dtype)[0]
        for found in (
            arrays.inner_product(x, other, init=init),
            distributed.arrays.reduce(x.reshape(-1), add, init=init),
            distributed.arrays.scan(x.reshape(-1), add, init=init)[-1],
        ):
            assert (found.dtype, host(found)) == (wanted.dtype, wanted)
    assert arrays.reduce(x[:0], add, init=np.int64(7)).dtype == np.int64
    assert arrays.reduce(x, add, init=np.int64(7), dtype="f4").dtype == np.float32
    with pytest.raises(TypeError, match="^init: expected float32 or a dtype of no lesser kind"):
        arrays.reduce(x.astype("f4"), add, init=np.int64(0))
    with pytest.raises(ValueError, match=r"^init: .* got an array of 2"):
        arrays.reduce(x, add, init=np.zeros(2))
    with pytest.raises(TypeError, match="^init: .*: it is no number"):
        arrays.reduce(x, add, init=np.zeros((), [("only", "u1")]))


def test_functions_of_dask():
    da, cdask = pytest.importorskip("dask.array"), pytest.importorskip("cupar.dask")
    x = da.from_array(X if IS_CPU else cp.asarray(X), chunks=2)
    for init, dtype in (5, "u1"), (np.int64(5), "i8"), (np.array(5, "f4"), "f4"):
        wanted = loop([X.reshape(-1)], np.dtype(dtype), 5)[0].astype(dtype)[0]
        total, last = cdask.reduce(x, add, init=init), cdask.scan(x, add, init=init)[-1]
        assert total.dtype == last.dtype == dtype
        assert [int(total.compute()), int(last.compute())] == [wanted, wanted]


def test_functions_of_torch():
    torch, ct = pytest.importorskip("torch"), pytest.importorskip("cupar.torch")
    x = torch.from_numpy(X)
    x = x if IS_CPU else x.cuda()
    for init, dtype in (5, "uint8"), (np.int64(5), "int64"), (torch.tensor(5.0), "float32"):
        dtype = getattr(torch, dtype)
        wanted = torch.full((2,), 5, dtype=dtype) + torch.from_numpy(X).to(dtype).sum(1, dtype=dtype)
        for found in ct.reduce(x, add, dim=1, init=init), ct.reduce(x, add, 1, False, init):
            assert found.dtype == dtype and found.cpu().equal(wanted)
        assert ct.segment_reduce(x, x[:, 0] * 0, add, 1, init=init).dtype == dtype
    ones = torch.ones(3, device=x.device, requires_grad=True)
    total = ct.reduce(ones, add, init=np.float64(0.5))
    total.backward()
    assert total.dtype == torch.float64 and ones.grad.tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="^init: expected float32 or a dtype of no lesser kind"):
        ct.reduce(ones, add, init=np.int64(0))
    with pytest.raises(RuntimeError, match="^init: it has no gradient"):
        ct.reduce(ones, add, init=torch.tensor(1.0, requires_grad=True))


def test_calls_of_jax():
    jax = pytest.importorskip("jax")
    from cupar.jax import call

    x = jax.numpy.asarray(X.reshape(-1))
    given = {"d_in": x, "op": add, "num_items": ITEMS}
    out = {"d_out": jax.ShapeDtypeStruct((1,), np.float32)}
    for h_init, dtype in (
        (5, "u1"),
        (np.int32(5), "i4"),
        (np.zeros(1, "i4") + 5, "i4"),
        (np.array(5, "f4"), "f4"),
    ):
        found = call(cupar.reduce_into, {**given, "h_init": h_init}, out)["d_out"]
        assert found == loop([X.reshape(-1)], np.dtype(dtype), 5)[0]


def test_what_is_no_initial_value():
    for h_init, error, said in (
        ([0], TypeError, "expected a number, an array of one element, a struct or None, got list"),
        (cp.zeros(2, "i8"), ValueError, "got an array of 2"),
        (0.5, TypeError, "0.5 is not converted to uint8 silently; given to the factory as a NumPy scalar"),
        (256, ValueError, "uint8 cannot hold 256"),
        (2**70, ValueError, "uint8 cannot hold 1180591620717411303424"),
        (np.timedelta64(3), TypeError, "dtype timedelta64 is not supported"),
    ):
        with pytest.raises(error, match=f"^h_init: .*{said}"):
            called(cupar.reduce_into, "reduce_into", h_init)
    for d_in, h_init, d_out, said in (
        (
            "f4",
            np.int64(0),
            "i8",
            "d_in: float32 .* int64 .*; h_init decides the accumulator: give one of d_in's",
        ),
        (
            "i4",
            np.float32(0),
            "i4",
            "the accumulator: .*; h_init decides the accumulator: give one of d_out's",
        ),
        ("f4", 0, "i4", "the accumulator: float32 .*; a TransformOutputIterator converts as you say"),
    ):
        with pytest.raises(TypeError, match=f"^{said}"):
            cupar.reduce_into(d_in, d_out, add, h_init)
