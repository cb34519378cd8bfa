"""Errors on a GPU: refused arguments, and accepted ones."""

import copy
import pickle

import cupy as cp
import numpy as np
import pytest

import cupar


def test_the_device_is_one_that_the_compilers_know():
    d_in, d_out = cp.arange(10, dtype=np.int32), cp.zeros(1, np.int32)
    cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, 0).run(d_in, d_out, 10, 0)
    assert d_out.get()[0] == 45


def test_streams_of_all_kinds():
    d_in, d_out = cp.arange(10, dtype=np.int32), cp.zeros(10, np.int32)
    double = cupar.unary_transform(d_in, d_out, lambda a: a + a)
    stream = cp.cuda.Stream(non_blocking=True)
    for each in (stream, stream.ptr, type("Other", (), {"__cuda_stream__": lambda self: (0, stream.ptr)})()):
        d_out[:] = 0
        cp.cuda.runtime.deviceSynchronize()
        double(d_in, d_out, 10, stream=each)
        stream.synchronize()
        assert d_out.get().tolist() == list(range(0, 20, 2))
    for broken in ("0", 1.5, True, type("Broken", (), {"ptr": "0"})()):
        with pytest.raises(TypeError, match="^stream: expected"):
            double(d_in, d_out, 10, stream=broken)


def test_broken_arrays_are_named_in_calls():
    class Broken:
        @property
        def __cuda_array_interface__(self):
            raise ZeroDivisionError("broken")

    d_in, d_out = cp.arange(10, dtype=np.int32), cp.zeros(10, np.int32)
    double = cupar.unary_transform(d_in, d_out, lambda a: a + a)
    with pytest.raises(TypeError, match="^d_out: .*ZeroDivisionError: broken"):
        double(d_in, Broken(), 10)


def test_loaded_algorithms_are_not_pickled():
    d_in, d_out = cp.arange(10, dtype=np.int32), cp.zeros(1, np.int32)
    reduction = cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, 0)
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="call the factory"):
            send(reduction)
    reduction.run(d_in, d_out, 10, 0)
    assert d_out.get()[0] == 45


@pytest.mark.parametrize("fields", [3, 5])
def test_items_of_odd_sizes_that_build_are_moved_rightly(fields):
    """Structs of 24 and 40 bytes as items of runs."""
    rng = np.random.default_rng(7)
    n = 10_007
    items = np.dtype([(f"x{i}", "u8") for i in range(fields)], align=True)
    keys, host = (
        np.sort(rng.integers(0, 99, n)).astype("u4"),
        rng.integers(0, 99, fields * n, "u8").view(items),
    )
    d_keys, d_items = cp.asarray(keys), cp.asarray(host.view("u8")).view(items)
    out_keys, out_items = cp.empty_like(d_keys), cp.zeros(fields * n, "u8").view(items)
    count = cp.zeros(1, "i8")
    runs = cupar.unique_by_key(d_keys, d_items, out_keys, out_items, count, cupar.OpKind.EQUAL_TO)
    runs.run(d_keys, d_items, out_keys, out_items, count, n)
    _, first = np.unique(keys, return_index=True)
    assert count.get()[0] == len(first)
    assert (out_items.view("u8").get().view(items)[: len(first)] == host[first]).all()


def test_operators_may_print(capfd):
    """A print in an operator is neither refused nor lost: it comes when the GPU is waited for."""
    d_in, d_out = cp.arange(3, dtype=np.int32), cp.zeros(3, np.int32)

    def shows(a):
        print("item", a)
        return a

    cupar.unary_transform(d_in, d_out, shows)(d_in, d_out, 3)
    cp.cuda.runtime.deviceSynchronize()
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "item 0", "item 1", "item 2"]
