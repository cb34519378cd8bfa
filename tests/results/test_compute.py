"""`cupar.compute` in each of its forms, against NumPy.

NVIDIA's own tests of ``cuda.compute`` are in no wheel; these follow its docstrings: each function in one
call, and as an object in two phases, with operators and iterators anew, and restored from bytes.
"""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from support.operators import add, equal
from support.results import IS_CPU, cp, every, needs_gpu

import cupar.compute as cc
from cupar._device import driver

N = 100_003
DTYPES = ["i1", "u2", "i4", "u8", "f4", "f8"]


class Stream:
    """A stream by CUDA's protocol alone."""

    def __init__(self, stream):
        self.stream = stream

    def __cuda_stream__(self):
        return 0, self.stream.ptr


def items(rng, dtype, n=N, most=100):
    return rng.integers(0, most, n).astype(dtype)


def storage(nbytes):
    return cp.empty(nbytes, np.uint8)


def in_two_phases(made, **call):
    """Call an object for the size of the temporary storage, and with it."""
    nbytes = made(temp_storage=None, **call)
    assert nbytes > 0
    made(temp_storage=storage(nbytes), **call)


def forms(name, made_with, counts, one_call=None):
    """Yield what makes a call: the one-call form, an object, one made ahead of time, one restored."""
    run, make = getattr(cc, name), getattr(cc, f"make_{name}")
    call = {key: value for key, value in {**made_with, **counts}.items() if key != "order"}
    yield lambda: run(**{**made_with, **counts} if one_call is None else one_call)
    two_phases = "transform" not in name and "bound" not in name
    several = "cpu" if IS_CPU else sorted({80, driver.current_device().cc})
    ahead = make(**made_with, compute_capability=several)
    for made in (make(**made_with), ahead, cc.deserialize(cc.serialize(ahead))):
        yield lambda made=made: in_two_phases(made, **call) if two_phases else made(**call)


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reduce(dtype, rng):
    host = items(rng, dtype)
    d_in, d_out, h_init = cp.asarray(host), cp.empty(1, "i8"), np.array([7], "i8")
    if np.dtype(dtype).kind == "f":
        d_out, h_init = cp.empty(1, "f8"), np.array([7], "f8")
    for op in (add, cc.OpKind.PLUS):
        given = {"d_in": d_in, "d_out": d_out, "op": op, "h_init": h_init}
        for call in forms("reduce_into", given, {"num_items": N}):
            d_out.fill(0)
            call()
            assert d_out.get()[0] == host.astype(h_init.dtype).sum() + 7


def test_reduce_of_no_items_and_without_initial_value(rng):
    host = items(rng, "i4")
    d_in, d_out = cp.asarray(host), cp.full(1, 5, "i4")
    cc.reduce_into(d_in=d_in, d_out=d_out, num_items=0, op=add)
    assert d_out.get()[0] == 5
    cc.reduce_into(d_in=d_in, d_out=d_out, num_items=N, op=cc.OpKind.MAXIMUM, h_init=None)
    assert d_out.get()[0] == host.max()


def test_determinism(rng):
    host = items(rng, "f4")
    d_in, d_out, h_init = cp.asarray(host), cp.empty(1, "f4"), np.zeros(1, "f4")
    for op in (cc.OpKind.PLUS, lambda a, b: a + 1 * b):
        free = cc.Determinism.NOT_GUARANTEED
        cc.reduce_into(d_in=d_in, d_out=d_out, num_items=N, op=op, h_init=h_init, determinism=free)
        assert d_out.get()[0] == host.astype("f8").sum()


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_scans(dtype, rng):
    host = items(rng, dtype, most=2)
    d_in, d_out = cp.asarray(host), cp.empty(N, dtype)
    sums = np.cumsum(host, dtype=dtype)
    for init in (np.array([3], dtype), cp.array([3], dtype)):
        given = {"d_in": d_in, "d_out": d_out, "op": add, "init_value": init}
        for name in ("inclusive_scan", "exclusive_scan"):
            wanted = sums + np.dtype(dtype).type(3)
            if name == "exclusive_scan":
                wanted = np.concatenate([np.array([3], dtype), wanted[:-1]])
            for call in forms(name, given, {"num_items": N}):
                d_out.fill(0)
                call()
                assert (d_out.get() == wanted).all()
    cc.inclusive_scan(d_in=d_in, d_out=d_out, op=cc.OpKind.PLUS, num_items=N)
    assert (d_out.get() == sums).all()


def test_segmented_reduce(rng):
    host = items(rng, "i4")
    bounds = np.sort(rng.integers(0, N, 1001))
    start, end = cp.asarray(bounds[:-1]), cp.asarray(bounds[1:])
    d_in, d_out = cp.asarray(host), cp.empty(1000, "i4")
    h_init = np.array([2], "i4")
    wanted = [host[a:b].sum() + 2 for a, b in pairwise(bounds)]
    given = {
        "d_in": d_in,
        "d_out": d_out,
        "start_offsets_in": start,
        "end_offsets_in": end,
        "op": add,
        "h_init": h_init,
    }
    for more in ({}, {"max_segment_size": int(np.diff(bounds).max())}):
        for call in forms("segmented_reduce", given, {"num_segments": 1000, **more}):
            d_out.fill(0)
            call()
            assert (d_out.get() == wanted).all()


@every(4)
@pytest.mark.parametrize("dtype", DTYPES)
def test_transforms(dtype, rng):
    host = items(rng, dtype, most=50)
    d_in, d_out = cp.asarray(host), cp.empty(N, dtype)
    for call in forms(
        "unary_transform", {"d_in": d_in, "d_out": d_out, "op": lambda a: a + 1}, {"num_items": N}
    ):
        d_out.fill(0)
        call()
        assert (d_out.get() == host + 1).all()
    given = {"d_in1": d_in, "d_in2": d_in, "d_out": d_out, "op": add}
    for call in forms("binary_transform", given, {"num_items": N}):
        d_out.fill(0)
        call()
        assert (d_out.get() == host + host).all()


def test_state_is_looked_up_in_each_call(rng):
    host = items(rng, "i4")
    d_in, d_out = cp.asarray(host), cp.empty(N, "i4")

    def offset_by(array):
        return lambda a: a + array[0]

    ops = [(offset_by(cp.array([k], "i4")), k) for k in (1, 2, 3)]
    made = cc.make_unary_transform(d_in=d_in, d_out=d_out, op=ops[0][0])
    restored = cc.deserialize(made.serialize())
    for op, k in ops:
        for call in (made, restored, cc.unary_transform):
            d_out.fill(0)
            call(d_in=d_in, d_out=d_out, op=op, num_items=N)
            assert (d_out.get() == host + k).all()
    made(d_in=d_in, d_out=d_out, op=lambda a: a * 3, num_items=N)  # another operator is another operator
    assert (d_out.get() == host * 3).all()
    with pytest.raises(ValueError, match="serialized"):
        restored(d_in=d_in, d_out=d_out, op=lambda a: a * 3, num_items=N)


@needs_gpu
def test_captured_arrays_are_updated(rng):
    from numba import cuda as numba_cuda

    host = items(rng, "i4")
    counter = cp.zeros(1, "i4")

    def counted(a):
        if a > 50:
            numba_cuda.atomic.add(counter, 0, 1)
        return a

    cc.unary_transform(d_in=cp.asarray(host), d_out=cp.empty(N, "i4"), op=counted, num_items=N)
    assert counter.get()[0] == (host > 50).sum()


def test_select_and_partition(rng):
    host = items(rng, "i4")
    d_in, outs, count = cp.asarray(host), [cp.empty(N, "i4") for _ in range(3)], cp.empty(2, "i8")
    given = {"d_in": d_in, "d_out": outs[0], "d_num_selected_out": count, "cond": lambda a: a % 2 == 0}
    for call in forms("select", given, {"num_items": N}):
        outs[0].fill(0)
        call()
        wanted = host[host % 2 == 0]
        assert count.get()[0] == len(wanted) and (outs[0].get()[: len(wanted)] == wanted).all()
    parts = {
        "d_in": d_in,
        "d_first_part_out": outs[0],
        "d_second_part_out": outs[1],
        "d_unselected_out": outs[2],
        "d_num_selected_out": count,
        "select_first_part_op": lambda a: a < 30,
        "select_second_part_op": lambda a: a > 60,
    }
    for call in forms("three_way_partition", parts, {"num_items": N}):
        for each in outs:
            each.fill(0)
        call()
        wanted = host[host < 30], host[host > 60], host[(host >= 30) & (host <= 60)]
        assert [*count.get()] == [len(wanted[0]), len(wanted[1])]
        for out, part in zip(outs, wanted, strict=True):
            assert (out.get()[: len(part)] == part).all()


def test_unique_by_key(rng):
    keys = np.repeat(rng.integers(0, 1000, N // 4 + 1), 4)[:N].astype("i4")
    values = np.arange(N, dtype="f4")
    first = np.concatenate([[True], keys[1:] != keys[:-1]])
    out_keys, out_items, count = cp.empty(N, "i4"), cp.empty(N, "f4"), cp.empty(1, "i8")
    given = {
        "d_in_keys": cp.asarray(keys),
        "d_in_items": cp.asarray(values),
        "d_out_keys": out_keys,
        "d_out_items": out_items,
        "d_out_num_selected": count,
        "op": equal,
    }
    for call in forms("unique_by_key", given, {"num_items": N}):
        count.fill(0)
        call()
        n = int(count.get()[0])
        assert n == first.sum()
        assert (out_keys.get()[:n] == keys[first]).all() and (out_items.get()[:n] == values[first]).all()


@pytest.mark.parametrize("with_values", [False, True])
def test_merge_sort(with_values, rng):
    keys, values = items(rng, "f4"), np.arange(N, dtype="i4")
    out_keys, out_values = cp.empty(N, "f4"), cp.empty(N, "i4") if with_values else None
    given = {
        "d_in_keys": cp.asarray(keys),
        "d_in_values": cp.asarray(values) if with_values else None,
        "d_out_keys": out_keys,
        "d_out_values": out_values,
        "op": lambda a, b: a > b,
    }
    order = np.argsort(-keys, kind="stable")
    for call in forms("merge_sort", given, {"num_items": N}):
        out_keys.fill(0)
        call()
        assert (out_keys.get() == keys[order]).all()
        assert not with_values or (out_values.get() == order).all()


@pytest.mark.parametrize("order", cc.SortOrder)
def test_radix_sort(order, rng):
    keys, values = items(rng, "i4", most=1000), np.arange(N, dtype="f8")
    sign = 1 if order is cc.SortOrder.ASCENDING else -1
    wanted = np.argsort(sign * keys, kind="stable")
    out_keys, out_values = cp.empty(N, "i4"), cp.empty(N, "f8")
    given = {
        "d_in_keys": cp.asarray(keys),
        "d_out_keys": out_keys,
        "d_in_values": cp.asarray(values),
        "d_out_values": out_values,
        "order": order,
    }
    for call in forms("radix_sort", given, {"num_items": N}):
        out_keys.fill(0)
        call()
        assert (out_keys.get() == keys[wanted]).all() and (out_values.get() == values[wanted]).all()
    buffers = cc.DoubleBuffer(cp.asarray(keys), cp.empty(N, "i4"))
    items_in = cc.DoubleBuffer(cp.asarray(values), cp.empty(N, "f8"))
    cc.radix_sort(
        d_in_keys=buffers, d_out_keys=None, d_in_values=items_in, d_out_values=None, num_items=N, order=order
    )
    assert (buffers.current().get() == keys[wanted]).all()
    assert (items_in.current().get() == values[wanted]).all()
    cc.radix_sort(
        d_in_keys=cp.asarray(keys), d_out_keys=out_keys, num_items=N, order=order, begin_bit=0, end_bit=4
    )
    low = np.argsort(sign * (keys & 15), kind="stable")
    assert (out_keys.get() == keys[low]).all()


def test_segmented_sort(rng):
    keys, values = items(rng, "i4", most=1000), np.arange(N, dtype="i8")
    bounds = np.concatenate([[0], np.sort(rng.integers(0, N, 999)), [N]])
    out_keys, out_values = cp.empty(N, "i4"), cp.empty(N, "i8")
    given = {
        "d_in_keys": cp.asarray(keys),
        "d_out_keys": out_keys,
        "d_in_values": cp.asarray(values),
        "d_out_values": out_values,
        "start_offsets_in": cp.asarray(bounds[:-1]),
        "end_offsets_in": cp.asarray(bounds[1:]),
        "order": cc.SortOrder.ASCENDING,
    }
    wanted = np.concatenate([a + np.argsort(keys[a:b], kind="stable") for a, b in pairwise(bounds)])
    for call in forms("segmented_sort", given, {"num_items": N, "num_segments": 1000}):
        out_keys.fill(0)
        call()
        assert (out_keys.get() == keys[wanted]).all() and (out_values.get() == wanted).all()


def test_histogram(rng):
    host = rng.normal(size=N).astype("f4")
    d_in, out = cp.asarray(host), cp.empty(10, "i4")
    wanted = np.histogram(host[(host >= -2) & (host < 2)], 10, (-2, 2))[0]
    levels = {
        "h_num_output_levels": np.array([11], "i4"),
        "h_lower_level": np.array([-2.0]),
        "h_upper_level": np.array([2.0]),
    }
    one_call = {"num_output_levels": 11, "lower_level": np.float64(-2), "upper_level": np.float64(2)}
    given = {"d_samples": d_in, "d_histogram": out, "num_samples": N}
    for call in forms("histogram_even", {**given, **levels}, {}, {**given, **one_call}):
        out.fill(0)
        call()
        assert abs(out.get() - wanted).sum() <= 2  # float32 within rounding of a level


def test_binary_search(rng):
    data, values = np.sort(items(rng, "i4", most=5000)), items(rng, "i4", most=5000)
    out = cp.empty(N, np.uintp)
    for name, side in (("lower_bound", "left"), ("upper_bound", "right")):
        for comp in (None, lambda a, b: a < b):
            given = {"d_data": cp.asarray(data), "d_values": cp.asarray(values), "d_out": out, "comp": comp}
            for call in forms(name, given, {"num_items": N, "num_values": N}):
                out.fill(0)
                call()
                assert (out.get() == np.searchsorted(data, values, side)).all()


# --- Iterators and structs ---


def test_iterators_anew_in_each_call(rng):
    d_out, h_init = cp.empty(1, "i8"), np.zeros(1, "i8")
    counts = cc.CountingIterator(np.int64(1))
    made = cc.make_reduce_into(d_in=counts, d_out=d_out, op=add, h_init=h_init)
    for start in (1, 10, 1000):
        in_two_phases(
            made, d_in=cc.CountingIterator(np.int64(start)), d_out=d_out, num_items=10, op=add, h_init=h_init
        )
        assert d_out.get()[0] == sum(range(start, start + 10))


def test_iterators(rng):
    host = items(rng, "i4")
    d_in, out, total = cp.asarray(host), cp.empty(N, "i8"), cp.empty(1, "i8")
    h_init = np.zeros(1, "i8")

    def total_of(iterator, n=N):
        cc.unary_transform(d_in=iterator, d_out=out, num_items=n, op=lambda a: a)  # the quickest to build
        return int(out.get()[:n].sum())

    def squared(a: cc.types.int32) -> cc.types.int64:
        return a * a

    assert total_of(cc.ConstantIterator(np.int32(7))) == 7 * N
    assert total_of(cc.TransformIterator(d_in, squared)) == (host.astype("i8") ** 2).sum()
    assert total_of(cc.CacheModifiedInputIterator(d_in, modifier="stream")) == host.sum()
    assert total_of(cc.PermutationIterator(d_in, cc.ShuffleIterator(N, seed=3))) == host.sum()
    assert total_of(cc.PermutationIterator(d_in, indices=cp.arange(0, 10)), 10) == host[:10].sum()
    assert total_of(cc.CountingIterator(np.int32(0)) + 5, 10) == sum(range(5, 15))
    cc.inclusive_scan(
        d_in=cc.ReverseIterator(d_in),
        d_out=cc.ReverseIterator(out),
        op=cc.OpKind.PLUS,
        init_value=h_init,
        num_items=N,
    )
    assert (out.get() == np.cumsum(host[::-1])[::-1]).all()
    negated = cc.TransformOutputIterator(total, lambda a: -a)
    cc.reduce_into(d_in=d_in, d_out=negated, num_items=N, op=cc.OpKind.PLUS, h_init=h_init)
    assert total.get()[0] == -host.sum()
    written = cc.TransformIterator(total, lambda a: a + 1, is_input=False)
    cc.reduce_into(d_in=d_in, d_out=written, num_items=N, op=cc.OpKind.PLUS, h_init=h_init)
    assert total.get()[0] == host.sum() + 1


def test_zip_and_structs(rng):
    host = rng.permutation(N).astype("f4")
    pairs = cc.ZipIterator(cp.asarray(host), cc.CountingIterator(np.int32(0)))
    Best = cc.gpu_struct({"value": np.float32, "at": np.int32}, "Best")
    out = cp.empty(1, Best.dtype)

    def larger(a, b):
        return a if a[0] > b[0] else b

    cc.reduce_into(d_in=pairs, d_out=out, num_items=N, op=larger, h_init=Best(-1, -1))
    assert out.get()[0]["at"] == host.argmax() and out.get()[0]["value"] == host.max()

    @cc.gpu_struct
    class Point:
        x: np.int32
        y: np.int32

    points = np.zeros(N, Point.dtype)
    points["x"], points["y"] = items(rng, "i4"), items(rng, "i4")
    total = cp.empty(1, Point.dtype)
    given = {"d_in": cp.asarray(points.view("u1")).view(Point.dtype), "d_out": total, "h_init": Point(1, 2)}
    given["op"] = lambda p, q: Point(p.x + q.x, p.y + q.y)
    for call in forms("reduce_into", given, {"num_items": N}):
        total.view("u1").fill(0)
        call()
        assert (total.get()[0]["x"], total.get()[0]["y"]) == (points["x"].sum() + 1, points["y"].sum() + 2)


# --- What surrounds calls ---


def test_streams(rng):
    host = items(rng, "i4")
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        d_in, d_out = cp.asarray(host), cp.zeros(1, "i4")
        cc.reduce_into(
            d_in=d_in, d_out=d_out, num_items=N, op=add, h_init=np.zeros(1, "i4"), stream=Stream(stream)
        )
        stream.synchronize()
        assert d_out.get()[0] == host.sum()


def test_torch_tensors(rng):
    torch = pytest.importorskip("torch")
    host, device = items(rng, "i4"), "cpu" if IS_CPU else "cuda"
    d_in, d_out = torch.from_numpy(host).to(device), torch.zeros(1, dtype=torch.int32, device=device)
    cc.reduce_into(d_in=d_in, d_out=d_out, num_items=N, op=add, h_init=np.zeros(1, "i4"))
    assert int(d_out) == host.sum()


@needs_gpu
def test_raw_operators(rng):
    from cupar._compile import nvrtc

    source = """extern "C" __device__ void scaled(void* state, int* a, int* result) {
        *result = *a * *static_cast<int*>(state);
    }"""
    code = nvrtc.compile_cpp(source, driver.current_device().cc)
    host = items(rng, "i4")
    d_in, d_out = cp.asarray(host), cp.empty(N, "i4")
    made = None
    for k in (3, 5):
        op = cc.op.RawOp(ltoir=code, name="scaled", state=np.int32(k).tobytes(), state_alignment=4)
        made = made or cc.make_unary_transform(d_in=d_in, d_out=d_out, op=op)
        made(d_in=d_in, d_out=d_out, op=op, num_items=N)
        assert (d_out.get() == host * k).all()


def test_a_program_that_nobody_changes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        f"import numpy as np, {'numpy' if IS_CPU else 'cupy'} as cp, cuda.compute\n"
        "x, out = cp.arange(1000, dtype=np.int32), cp.empty(1, np.int32)\n"
        "for _ in range(3):\n"
        "    cuda.compute.reduce_into(d_in=x, d_out=out, num_items=1000, op=lambda a, b: a + b,"
        " h_init=np.zeros(1, np.int32))\n"
        "print(out[0], cuda.compute.__name__)\n"
    )
    command = [sys.executable, "-m", "cupar", "run", program]
    environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache")}
    if IS_CPU:
        environment["CUPAR_DEVICE"] = "cpu"
    for said in ("1 built and 0 linked in ", "0 built and 0 linked; 1 found, which had taken "):
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout == "499500 cupar.compute\n" and done.stderr.startswith(f"cupar: {said}")
        assert done.stderr.endswith("; 2 in memory\n")
