"""Calls in `cuda.compute`'s forms: the build that runs, memoised requests, and errors."""

from contextlib import nullcontext

import numpy as np
import pytest
from support.gpu import pretended
from support.operators import add, less

import cupar
from cupar import compute
from cupar._compile import toolchain
from cupar._device import driver, storage


class DeviceArray:
    """An array at an address that nobody reads."""

    def __init__(self, address, size=1000, dtype="i4"):
        self.address, self.size, self.dtype = address, size, np.dtype(dtype)

    @property
    def __cuda_array_interface__(self):
        return {
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "shape": (self.size,),
            "data": (self.address, False),
            "version": 3,
        }


CC = 90
PLUS = compute.OpKind.PLUS
ZERO = np.zeros(1, "i4")
X, Y, Z = (DeviceArray(0x10000 * (i + 1)) for i in range(3))
BYTES = DeviceArray(0x90000, 1 << 20, "u1")
PAIR = compute.gpu_struct({"a": np.int32, "b": compute.types.float32}, "Pair")


def positive(a):
    return a > 0


def negative(a):
    return a < 0


def double(a):
    return 2 * a


@pytest.fixture
def gpu(monkeypatch):
    found = pretended(monkeypatch, CC)
    monkeypatch.setenv("CUPAR_TIER", "fast")
    monkeypatch.setattr(storage, "LARGEST_WORKSPACE", -1)
    monkeypatch.setattr(storage, "temporary_storage", lambda nbytes, stream: nullcontext(0x100000))
    cupar.cache.clear(disk=False)
    cupar.cache.reset_stats()
    yield found
    cupar.cache.clear(disk=False)


SORTED = {"d_in_keys": X, "d_out_keys": Y, "order": compute.SortOrder.ASCENDING}
LEVELS = {"h_num_output_levels": np.array([11]), "h_lower_level": np.zeros(1), "h_upper_level": np.ones(1)}
# For each algorithm, what `make_…` takes; what calls take beside that; and what only the one-call form takes.
CASES = {
    "reduce_into": ({"d_in": X, "d_out": Y, "op": add, "h_init": ZERO}, {"num_items": 100}),
    "exclusive_scan": ({"d_in": X, "d_out": Y, "op": add, "init_value": ZERO}, {"num_items": 100}),
    "inclusive_scan": ({"d_in": X, "d_out": Y, "op": add, "init_value": None}, {"num_items": 100}),
    "segmented_reduce": (
        {"d_in": X, "d_out": Y, "start_offsets_in": Z, "end_offsets_in": Z, "op": add, "h_init": ZERO},
        {"num_segments": 10, "max_segment_size": 8},
    ),
    "unary_transform": ({"d_in": X, "d_out": Y, "op": double}, {"num_items": 100}),
    "binary_transform": ({"d_in1": X, "d_in2": Y, "d_out": Z, "op": add}, {"num_items": 100}),
    "select": ({"d_in": X, "d_out": Y, "d_num_selected_out": Z, "cond": positive}, {"num_items": 100}),
    "three_way_partition": (
        {
            "d_in": X,
            "d_first_part_out": Y,
            "d_second_part_out": compute.DiscardIterator(Y),
            "d_unselected_out": compute.DiscardIterator(),
            "d_num_selected_out": Z,
            "select_first_part_op": positive,
            "select_second_part_op": negative,
        },
        {"num_items": 100},
    ),
    "unique_by_key": (
        {
            "d_in_keys": X,
            "d_in_items": X,
            "d_out_keys": Y,
            "d_out_items": DeviceArray(11 << 20),
            "d_out_num_selected": Z,
            "op": compute.OpKind.EQUAL_TO,
        },
        {"num_items": 100},
    ),
    "merge_sort": (
        {"d_in_keys": X, "d_in_values": X, "d_out_keys": Y, "d_out_values": Y, "op": less},
        {"num_items": 100},
    ),
    "radix_sort": ({**SORTED, "d_in_values": None, "d_out_values": None}, {"num_items": 100}),
    "segmented_sort": (
        {**SORTED, "d_in_values": X, "d_out_values": Y, "start_offsets_in": Z, "end_offsets_in": Z},
        {"num_items": 100, "num_segments": 10},
    ),
    "lower_bound": (
        {"d_data": X, "d_values": Y, "d_out": DeviceArray(0x70000, dtype="u8"), "comp": None},
        {"num_items": 100, "num_values": 10},
    ),
}
ONE_PHASE = ("unary_transform", "binary_transform", "lower_bound")


@pytest.mark.parametrize("name", CASES)
def test_all_forms_of_a_call(only, gpu, name):
    only()
    made_with, counts = CASES[name]
    call = {**made_with, **counts}
    run, make = getattr(compute, name), getattr(compute, f"make_{name}")
    assert run(**call) is None
    launched = len(gpu.launched)
    assert launched and run(**call) is None and len(gpu.launched) == 2 * launched

    made = make(**made_with)
    assert make(**made_with) is made and [*made.builds] == [CC]
    call.pop("order", None)  # which objects know
    if name in ONE_PHASE:
        assert made(**call) is None
    else:
        nbytes = made(temp_storage=None, **call)
        assert nbytes > 0 and len(gpu.launched) == 2 * launched
        assert made(temp_storage=BYTES, **call) >= nbytes
    assert len(gpu.launched) == 3 * launched
    assert len(set(gpu.loaded)) == 1  # one build serves all


def test_histogram(gpu):
    given = {"d_samples": X, "d_histogram": Y, "num_samples": 100}
    compute.histogram_even(**given, num_output_levels=11, lower_level=0.0, upper_level=1.0)
    made = compute.make_histogram_even(**given, **LEVELS)
    nbytes = made(temp_storage=None, **given, **LEVELS)
    assert made(temp_storage=BYTES, **given, **LEVELS) >= nbytes
    assert len(gpu.launched) and len(set(gpu.loaded)) == 1


def test_what_was_asked_is_remembered(only, gpu, monkeypatch):
    only()
    pairs = [DeviceArray(0x10000, 10, PAIR.dtype) for _ in range(2)]
    keys = compute.DoubleBuffer(X, Y)

    def ask():
        compute.reduce_into(d_in=X, d_out=Y, num_items=1, op=add, h_init=np.int32(1))
        compute.inclusive_scan(d_in=X, d_out=Y, op=add, num_items=1)
        compute.reduce_into(d_in=compute.CountingIterator(np.int32(1)), d_out=Y, num_items=1, op=PLUS)
        doubled = compute.TransformIterator(X, double)
        compute.reduce_into(d_in=doubled, d_out=Y, num_items=1, op=PLUS, h_init=np.zeros(1, doubled.dtype))
        compute.reduce_into(
            d_in=pairs[0],
            d_out=pairs[1],
            num_items=1,
            op=lambda p, q: p if p.a > q.a else q,
            h_init=PAIR(1, 2),
        )
        compute.radix_sort(
            d_in_keys=keys, d_out_keys=None, num_items=1, order=compute.SortOrder.ASCENDING, end_bit=8
        )

    ask(), ask()  # the second objects are those that are kept
    monkeypatch.setattr(cupar._obtain.obtain, "answer", None)
    before = cupar.cache.stats()
    ask()
    assert cupar.cache.stats().memory == before.memory + 6


def test_an_initial_value_has_its_own_type(gpu):
    compute.reduce_into(
        d_in=X, d_out=DeviceArray(0x10000, dtype="i8"), num_items=1, op=add, h_init=np.int64(0)
    )
    wide = compute.make_reduce_into(d_in=X, d_out=DeviceArray(0, dtype="i8"), op=add, h_init=np.int64(0))
    expected, narrow = (cupar.reduce_into("i4", "i8", add, np.zeros(1, t), cc=CC) for t in ("i8", "i4"))
    assert wide.builds[CC].key == expected.build.key != narrow.build.key


def test_operators_anew_in_each_call(gpu):
    made = compute.make_reduce_into(d_in=X, d_out=Y, op=add, h_init=ZERO)
    call = {"d_in": X, "d_out": Y, "num_items": 5, "h_init": ZERO}
    made(temp_storage=None, op=add, **call)
    assert len(set(gpu.loaded)) == 1
    made(temp_storage=BYTES, op=lambda a, b: a * b + 1, **call)
    assert len(set(gpu.loaded)) == 2 and gpu.launched[-1] == len(gpu.loaded) - 1
    made(temp_storage=BYTES, op=add, **call)
    assert gpu.loaded[gpu.launched[-1]] == gpu.loaded[0]


FACTOR = 2


def scaled(a):
    return a * FACTOR


@pytest.mark.usefixtures("constants")
def test_a_function_that_reads_something_else_runs_as_it_is_now(gpu, monkeypatch):
    call = {"d_in": X, "d_out": Y, "num_items": 5}
    made = compute.make_unary_transform(d_in=X, d_out=Y, op=scaled)
    ahead = compute.make_unary_transform(d_in=X, d_out=Y, op=scaled, compute_capability=CC)
    restored = compute.deserialize(ahead.serialize())

    def code(each, op=scaled):
        each(**call, op=op)
        return gpu.loaded[gpu.launched[-1]]

    before = code(made)
    assert code(ahead) == code(restored) == before
    monkeypatch.setitem(globals(), "FACTOR", 3)
    now = code(made)
    assert code(ahead) == now != before
    with pytest.raises(ValueError, match="^op: this algorithm was serialized .* got scaled as it is now"):
        restored(**call, op=scaled)
    assert code(made, double) != now == code(made)
    monkeypatch.setitem(globals(), "FACTOR", 2)
    assert code(made) == code(ahead) == code(restored) == before


def test_another_number_is_an_argument(gpu, monkeypatch):
    """Serialized with a constant, or with an argument, whatever the operator is in this process."""
    call = {"d_in": X, "d_out": Y, "num_items": 5}

    def made():
        return compute.make_unary_transform(d_in=X, d_out=Y, op=scaled, compute_capability=CC)

    monkeypatch.setitem(globals(), "FACTOR", 3)
    constant = compute.deserialize(made().serialize())
    monkeypatch.setitem(globals(), "FACTOR", 5)
    argument = compute.deserialize(made().serialize())
    for factor in (7, 3):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        argument(**call, op=scaled)
        algorithm = argument._known[CC].algorithm
        assert int.from_bytes(algorithm._states[0]()[:4], "little") == factor
    constant(**call, op=scaled)
    monkeypatch.setitem(globals(), "FACTOR", 5)
    with pytest.raises(ValueError, match="^op: this algorithm was serialized .* got scaled as it is now"):
        constant(**call, op=scaled)
    monkeypatch.setitem(globals(), "FACTOR", 2.5)
    with pytest.raises(ValueError, match="^op: this algorithm was serialized .* got scaled as it is now"):
        argument(**call, op=scaled)


def test_state_anew_in_each_call(gpu):
    def offset_by(array):
        return lambda a: a + array[0]

    first, second = offset_by(DeviceArray(0x70000)), offset_by(DeviceArray(0x80000))
    made = compute.make_unary_transform(d_in=X, d_out=Y, op=first)
    call = {"d_in": X, "d_out": Y, "num_items": 5}
    states = []
    for op in (first, second, first):
        made(op=op, **call)
        algorithm = made._known[CC].algorithm
        states.append(int.from_bytes(algorithm._states[0]()[:8], "little"))
    assert states == [0x70000, 0x80000, 0x70000] and len(set(gpu.loaded)) == 1


def test_determinism(gpu):
    given = {"d_in": X, "d_out": Y, "h_init": ZERO}
    free = compute.Determinism.NOT_GUARANTEED
    quick = compute.make_reduce_into(**given, op=PLUS, determinism=free)
    expected = cupar.reduce_into("i4", "i4", PLUS, ZERO, cc=CC, determinism=cupar.Determinism.NOT_GUARANTEED)
    assert quick.builds[CC].key == expected.build.key
    repeatable = compute.make_reduce_into(**given, op=lambda a, b: a * b + 1, determinism=free)
    expected = cupar.reduce_into("i4", "i4", lambda a, b: a * b + 1, ZERO, cc=CC)
    assert repeatable.builds[CC].key == expected.build.key
    compute.reduce_into(**given, op=PLUS, num_items=4, determinism=free)
    with pytest.raises(ValueError, match="^determinism: .* no GPU_TO_GPU"):
        compute.make_reduce_into(**given, op=PLUS, determinism=compute.Determinism.GPU_TO_GPU)
    with pytest.raises(TypeError, match="'speed'"):
        compute.reduce_into(**given, op=PLUS, num_items=4, speed=1)


def test_errors_name_parameters_as_they_are_called_here(gpu):
    with pytest.raises(TypeError, match="^init_value: an exclusive scan needs"):
        compute.exclusive_scan(d_in=X, d_out=Y, op=PLUS, init_value=None, num_items=1)
    with pytest.raises(TypeError, match="^init_value: an exclusive scan needs"):
        compute.make_exclusive_scan(d_in=X, d_out=Y, op=PLUS, init_value=None)
    made = compute.make_inclusive_scan(d_in=X, d_out=Y, op=PLUS)
    with pytest.raises(TypeError, match="^init_value: .*built without"):
        made(temp_storage=None, d_in=X, d_out=Y, op=PLUS, init_value=ZERO, num_items=1)
    with pytest.raises(TypeError, match="^d_in_values: .*there is d_out_values"):
        compute.merge_sort(d_in_keys=X, d_out_keys=Y, d_out_values=Y, num_items=1, op=less)
    sort = compute.make_merge_sort(d_in_keys=X, d_out_keys=Y, op=less)
    with pytest.raises(TypeError, match="^d_in_values: "):
        sort(
            temp_storage=None,
            d_in_keys=X,
            d_in_values=Y,
            d_out_keys=Y,
            d_out_values=None,
            num_items=1,
            op=less,
        )
    with pytest.raises(TypeError, match="^op: expected a function"):
        compute.op.make_op_adapter(3)
    assert compute.op.make_op_adapter(less) is less and isinstance(less, compute.op.OpAdapter)


def test_outputs_beside_double_buffers_do_not_count(only, gpu):
    only()
    keys = compute.DoubleBuffer(X, Y)
    compute.radix_sort(d_in_keys=keys, d_out_keys=Z, num_items=100, order=compute.SortOrder.DESCENDING)
    assert keys.selector in (0, 1) and gpu.launched


# --- Ahead of time ---


def test_several_compute_capabilities(gpu, monkeypatch):
    made = compute.make_reduce_into(
        d_in=compute.ProxyArray(np.int32),
        d_out=compute.ProxyArray("i4"),
        op=add,
        h_init=compute.ProxyValue(np.int32),
        compute_capability=["8.0", (9, 0), 90],
    )
    assert [*made.builds] == [80, 90] and made.builds[80].cc == 80
    call = {"d_in": X, "d_out": Y, "num_items": 5, "h_init": ZERO, "op": add}
    assert not gpu.loaded  # nothing needs a GPU yet
    made(temp_storage=BYTES, **call)
    assert gpu.loaded == [cupar.reduce_into("i4", "i4", add, ZERO, cc=90).cubin()]
    made(temp_storage=BYTES, **{**call, "op": lambda a, b: a * b})
    assert len(gpu.loaded) == 2 and [*made.builds] == [80, 90]
    monkeypatch.setattr(driver, "current_device", lambda: driver.Device(0, 75))
    with pytest.raises(RuntimeError, match=r"\[8.0, 9.0\], but .* 7.5"):
        made(temp_storage=BYTES, **call)


@pytest.mark.parametrize("wrong", [[], "ninety", [80, "x"], True, 3.5])
def test_wrong_compute_capabilities(wrong):
    with pytest.raises((TypeError, ValueError), match=r"compute_capability|not iterable"):
        compute.make_unary_transform(d_in="f4", d_out="f4", op=double, compute_capability=wrong)


def test_proxies_have_no_data(only, gpu):
    only()
    proxy = compute.ProxyArray(np.int32)
    assert repr(proxy) == "ProxyArray(dtype=int32)" and proxy.dtype == np.int32
    assert proxy.__cuda_array_interface__["typestr"] == "<i4"
    with pytest.raises(RuntimeError, match="^ProxyArray has no GPU data"):
        proxy.__cuda_array_interface__.get("data")
    with pytest.raises(KeyError):
        proxy.__cuda_array_interface__["mask"]
    given = {"d_in": proxy, "d_out": proxy, "op": PLUS}
    made = compute.make_reduce_into(**given, h_init=compute.ProxyValue(PAIR.dtype["a"]))
    with pytest.raises(RuntimeError, match="^ProxyArray has no GPU data"):
        made(temp_storage=None, **given, num_items=5, h_init=ZERO)
    with pytest.raises(RuntimeError, match="^ProxyValue has no data"):
        made(temp_storage=None, d_in=X, d_out=Y, op=PLUS, num_items=5, h_init=compute.ProxyValue("i4"))
    summed = compute.TransformIterator(proxy, double)
    ahead = compute.make_reduce_into(d_in=summed, d_out=proxy, op=PLUS, h_init=compute.ProxyValue("i4"))
    ahead(
        temp_storage=BYTES,
        d_in=compute.TransformIterator(X, double),
        d_out=Y,
        op=PLUS,
        num_items=5,
        h_init=ZERO,
    )
    buffers = compute.DoubleBuffer(proxy, proxy)
    order = compute.SortOrder.ASCENDING
    compute.make_radix_sort(
        d_in_keys=buffers,
        d_out_keys=None,
        d_in_values=None,
        d_out_values=None,
        order=order,
        compute_capability=80,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_serialized_and_back(only, gpu, name, tmp_path, monkeypatch):
    only()
    made_with, counts = CASES[name]
    several = [80, CC] if name in ("reduce_into", "lower_bound") else [CC]
    made = getattr(compute, f"make_{name}")(**made_with, compute_capability=several)
    blob = compute.serialize(made)
    assert blob == made.serialize()
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "another"))  # it holds all that it needs
    cupar.cache.clear(disk=False)
    restored = compute.deserialize(blob)
    assert type(restored) is type(made) and [*restored.builds] == several
    for cc in several:
        assert restored.builds[cc].key == made.builds[cc].key
    call = {key: value for key, value in {**made_with, **counts}.items() if key != "order"}
    storage = {} if name in ONE_PHASE else {"temp_storage": BYTES}
    restored(**storage, **call)
    assert gpu.launched
    made(**storage, **call)
    assert len(set(gpu.loaded)) == 1  # the same code
    assert compute.serialize(restored) == blob


def test_restored_algorithms_take_the_operators_they_were_built_for(gpu):
    def scaled_by(array):
        return lambda a: a * array[0]

    first = scaled_by(DeviceArray(0x70000))
    made = compute.make_unary_transform(d_in=X, d_out=Y, op=first, compute_capability=CC)
    restored = compute.deserialize(made.serialize())
    restored(d_in=X, d_out=Y, op=scaled_by(DeviceArray(0x80000)), num_items=5)
    state = restored._known[CC].algorithm._states[0]()
    assert int.from_bytes(state[:8], "little") == 0x80000
    with pytest.raises(
        ValueError, match=r"^op: this algorithm was serialized with .*another operator, double"
    ):
        restored(d_in=X, d_out=Y, op=double, num_items=5)
    assert len(gpu.loaded) == 1


def test_bfloat16_is_serialized(empty_cache):
    pytest.importorskip("ml_dtypes")
    pair = np.dtype([("a", "bfloat16"), ("b", "i4")], align=True)
    for dtype in ("bfloat16", pair):
        proxy = compute.ProxyArray(dtype)
        made = compute.make_reduce_into(
            d_in=proxy, d_out=proxy, op=lambda a, b: a, h_init=None, compute_capability=CC
        )
        restored = compute.deserialize(made.serialize())
        assert restored.serialize() == made.serialize()
        assert restored.builds[CC].key == cupar.reduce_into(dtype, dtype, lambda a, b: a, cc=CC).build.key


def test_structs_and_iterators_are_serialized():
    indices = compute.CountingIterator(np.int64(0))
    zipped = compute.ZipIterator(
        compute.ProxyArray("i4"), compute.TransformIterator(indices, lambda i: i + 1)
    )
    least = compute.make_reduce_into(
        d_in=zipped,
        d_out=compute.ProxyArray(zipped.dtype),
        op=lambda p, q: p if p[0] <= q[0] else q,
        h_init=compute.ProxyValue(zipped.dtype),
        compute_capability=CC,
    )
    restored = compute.deserialize(least.serialize())
    assert restored.serialize() == least.serialize() and restored.builds[CC].key == least.builds[CC].key


def damaged(blob):
    yield b"", "bad magic"
    yield b"CCCLPYS1" + blob[8:], "bad magic"
    yield blob[:12], "bad magic"
    yield blob[:100], "truncated"
    yield blob[:-1], "damaged"
    yield blob + b"x", "more or less"
    yield blob[:-1] + bytes([blob[-1] ^ 1]), "damaged"
    yield blob.replace(b'"format": 3', b'"format": 9'), "version mismatch"
    yield blob.replace(b'"class": "Pointer"', b'"class": "Painter"'), "header is not one"
    yield blob.replace(b'"kind": "UnaryTransform"', b'"kind": "UnaryTransfurm"'), "header is not one"
    yield blob.replace(b'"factory": "unary_transform"', b'"factory": "unary_transfurm"'), "wrong algorithm"
    at = blob.index(b'"kernels": "') + 12
    yield blob[:at] + b"0" * 64 + blob[at + 64 :], "of cupar .* serialize it again"


def test_what_is_no_blob():
    blob = compute.make_unary_transform(d_in="f4", d_out="f4", op=double, compute_capability=CC).serialize()
    for wrong, message in damaged(blob):
        assert wrong != blob
        with pytest.raises(ValueError, match=f"^blob: .*{message}"):
            compute.deserialize(wrong)
    with pytest.raises(TypeError, match="^blob: expected bytes, got str"):
        compute.deserialize("text")
    with pytest.raises(TypeError, match="is not a serializable algorithm"):
        compute.serialize(object())
    assert compute.deserialize(bytearray(blob)).builds[CC].source == "deserialize"
    other = type(
        compute.make_select(
            d_in="f4", d_out="f4", d_num_selected_out="i8", cond=positive, compute_capability=CC
        )
    )
    with pytest.raises(ValueError, match="wrong algorithm"):
        other.deserialize(blob)


def test_caches_are_emptied(gpu):
    given = {"d_in": X, "d_out": Y, "op": PLUS, "h_init": ZERO}
    made = compute.make_reduce_into(**given)
    compute.clear_all_caches()
    again = compute.make_reduce_into(**given)
    assert again is not made and again.builds[CC].origin == "disk"
    assert compute.pch_cache_dir() is None and compute.clear_pch_cache() == 0


# --- Structs and iterators ---


def test_structs_are_records():
    assert PAIR.__name__ == "Pair" and compute.gpu_struct({"a": "i4"}).__name__ == "AnonymousStruct"
    value = PAIR(1, 2.5)
    record = np.asarray(value)
    assert record.dtype == PAIR.dtype == value.dtype and record["b"] == 2.5 and record.shape == ()
    nested = compute.gpu_struct({"p": PAIR, "n": {"m": compute.types.int64}})((1, 2), (3,))
    assert np.asarray(nested)["p"]["b"] == 2 and np.asarray(nested)["n"]["m"] == 3

    @compute.gpu_struct
    class Point:
        x: np.float32
        y: np.float32

    assert Point(x=1, y=2) == Point({"x": 1, "y": 2})
    with pytest.raises(TypeError, match=r"^field_dict: data: .*got a pointer"):
        compute.gpu_struct({"data": compute.types.int32.pointer()})


def test_kinds_of_iterators():
    counting = compute.CountingIterator(np.int32(3))
    assert (
        counting.kind
        == compute.CountingIterator(np.array([4], "i4")).kind
        != compute.CountingIterator(4).kind
    )
    assert counting.value_type == compute.types.int32
    doubled = compute.TransformIterator(counting, double, compute.types.float32)
    assert doubled.dtype == np.float32 and (doubled + 3).kind == doubled.kind

    def typed(a: compute.types.int16) -> compute.types.int8:
        return a

    assert compute.TransformIterator(counting, typed).dtype == np.int8
    assert compute.TransformOutputIterator(Y, typed).dtype == np.int16
    written = compute.TransformIterator(Y, typed, is_input=False)
    assert written.kind == compute.TransformOutputIterator(Y, typed).kind
    assert isinstance(written, compute.iterators.IteratorBase)
    assert isinstance(cupar.CountingIterator(1), compute.iterators.IteratorBase)
    assert compute.ConstantIterator([7]).value_type == compute.types.int64


# --- On the CPU -------------------------------------------------------------------------------------------


def on_cpu(**named):
    host = np.arange(100, dtype="i4")
    return {"d_in": host, "d_out": np.zeros(1, "i4"), "op": add, "h_init": np.ones(1, "i4"), **named}


def reduced(made, **named):
    given = on_cpu(**named)
    storage = np.zeros(made(temp_storage=None, num_items=100, **given), "u1")
    made(temp_storage=storage, num_items=100, **given)
    return given["d_out"][0]


def test_objects_for_the_cpu_stay_for_it():
    with cupar.device("cpu"):
        made = compute.make_reduce_into(**on_cpu())
        assert compute.make_reduce_into(**on_cpu()) is made and [*made.builds] == ["cpu"]
    proxies = {"d_in": compute.ProxyArray("i4"), "d_out": compute.ProxyArray("i4")}
    ahead = compute.make_reduce_into(
        **proxies, op=add, h_init=compute.ProxyValue("i4"), compute_capability="cpu"
    )
    for each in (made, ahead):
        assert reduced(each) == 4951
        assert reduced(each, op=lambda a, b: a if a > b else b) == 99  # another operator, asked for anew
    with pytest.raises(RuntimeError, match="ProxyArray has no"):
        made(temp_storage=None, num_items=100, **on_cpu(d_in=proxies["d_in"]))
    with pytest.raises(ValueError, match="compute_capability: .*'tpu'"):
        compute.make_reduce_into(**on_cpu(), compute_capability="tpu")


def test_one_object_for_a_gpu_and_the_cpu(gpu):
    given = {"d_in": compute.ProxyArray("i4"), "d_out": compute.ProxyArray("i4"), "op": add, "h_init": ZERO}
    made = compute.make_reduce_into(**given, compute_capability=[CC, "cpu"])
    assert [*made.builds] == ["cpu", CC]
    for each in (made, compute.deserialize(made.serialize())):
        launched = len(gpu.launched)
        each(temp_storage=BYTES, d_in=X, d_out=Y, num_items=100, op=add, h_init=ZERO)
        assert len(gpu.launched) > launched
        with cupar.device("cpu"):
            launched = len(gpu.launched)
            assert reduced(each) == 4951 and len(gpu.launched) == launched


def test_restored_for_the_cpu(monkeypatch):
    scale = np.array([2], "i4")
    out = np.zeros(100, "i4")
    with cupar.device("cpu"):
        given = {"d_in": on_cpu()["d_in"], "d_out": out}
        made = compute.make_unary_transform(**given, op=lambda a: a * scale[0])
        blob = made.serialize()
        given["num_items"] = 100
        compute.deserialize(blob)(**given, op=lambda a: a * scale[0])
        np.testing.assert_array_equal(out, 2 * given["d_in"])
        with pytest.raises(ValueError, match="serialized"):
            compute.deserialize(blob)(**given, op=lambda a: a + scale[0])
    versions = {**toolchain.cpu_versions(), "the CPU": "another"}
    monkeypatch.setattr(toolchain, "cpu_versions", lambda: versions)
    with pytest.raises(ValueError, match="^blob: version mismatch: .*for another CPU"):
        compute.deserialize(blob)
