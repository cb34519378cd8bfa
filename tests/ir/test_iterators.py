"""Iterators: their part of keys, the state that a call passes, checks, and the code."""

import gc
import math
import operator
import pickle
import struct
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disassembly import spills_or_calls
from support.sources import iterators_source

import cupar
from cupar import (
    CacheModifiedInputIterator,
    ConstantIterator,
    CountingIterator,
    DiscardIterator,
    OpKind,
    PermutationIterator,
    ReverseInputIterator,
    ReverseIterator,
    ReverseOutputIterator,
    ShuffleIterator,
    SortOrder,
    TransformIterator,
    TransformOutputIterator,
    ZipIterator,
    _cache,
    iterators,
)
from cupar._base.data import Recent
from cupar._compile import key as _key
from cupar._compile import nvjitlink, nvrtc, python_to_ltoir
from cupar._ir import iterator as iterator_
from cupar._ir import nodes

CC = 90
BASE = 1 << 20  # where arrays are that nobody reads


class Device:
    """An array in device memory, as far as its owner says."""

    def __init__(self, dtype="f4", size=5, at=BASE, read_only=False):
        dtype = np.dtype(dtype)
        self._interface = dict(
            typestr=dtype.str, shape=(size,), strides=None, data=(at, read_only), version=3, descr=dtype.descr
        )

    @property
    def __cuda_array_interface__(self):
        return self._interface


Peak = cupar.gpu_struct({"height": "f4", "index": "i8"}, "Peak")


def double(a):
    return a + a


def same(a):
    return a


def add(a, b):
    return a + b


def add_pairs(a, b):
    return a[0] + b[0], a[1] + b[1]


def another(function):
    """Return another function object that does the same."""
    return type(function)(function.__code__, {})


@pytest.fixture
def nothing_is_compiled(monkeypatch):
    def compiled(*_):
        raise AssertionError("something was compiled")

    def forbid():
        for module, name in (
            (nvrtc, "compile_cpp"),
            (nvjitlink, "link"),
            (python_to_ltoir, "compile_operator"),
            (python_to_ltoir, "result_dtype"),
        ):
            monkeypatch.setattr(module, name, compiled)

    return forbid


# --- Structure and values --------------------------------------------------------------------------------

# Two of one structure and with other values: call them with 0 and 1.
READ = {
    "counting": lambda v: CountingIterator(np.int32(v)),
    "counting floats": lambda v: CountingIterator(np.float32(v)) + v,
    "constant": lambda v: ConstantIterator(np.uint64(v)),
    "constant struct": lambda v: ConstantIterator(Peak(v, -v)),
    "zip": lambda v: ZipIterator(Device(at=BASE << v), CountingIterator(v)),
    "permutation": lambda v: PermutationIterator(Device(at=BASE << v), Device("i4", at=BASE >> v)),
    "reverse": lambda v: ReverseIterator(Device(size=5 + v)),
    "reverse input": lambda v: ReverseInputIterator(Device(at=BASE << v)),
    "cache modified": lambda v: CacheModifiedInputIterator(Device(at=BASE << v), "global"),
    "shuffle": lambda v: ShuffleIterator(10 + v, seed=7 + v),
    "shuffle of another seed": lambda v: ShuffleIterator(10, seed=v),
    "transform": lambda v: TransformIterator(Device(at=BASE << v), another(double)),
    "transform, offset": lambda v: TransformIterator(Device(), double) + v,
}
WRITTEN = {
    "zip": READ["zip"],
    "permutation": READ["permutation"],
    "reverse": READ["reverse"],
    "reverse output": lambda v: ReverseOutputIterator(Device(at=BASE << v)),
    "transform output": lambda v: TransformOutputIterator(Device(at=BASE << v), another(double)),
}
WRITTEN["zip"] = lambda v: ZipIterator(Device(at=BASE << v), DiscardIterator("i4"))


def everything_read(v):
    return ZipIterator([make(v) for make in READ.values()])


def everything_written(v):
    return ZipIterator([make(v) for make in WRITTEN.values()])


@pytest.fixture
def transform_spec(specified):
    return lambda d_in, d_out="f4", op=same: specified(cupar.unary_transform, d_in, d_out, op)


def build_key(spec):
    return _key.digest(_key.build_parts(spec))


def template_key(spec):
    return _key.digest(_key.template_parts(spec))


def argument(name, array, output=False):
    """Return what an algorithm is built for."""
    node = iterator_.over(name, array).node
    return nodes.Argument(name, node, node, output)


def packed(iterator, items=0, output=False):
    return iterator.pack("d_x", items, output)


@pytest.mark.parametrize("name", READ)
def test_values_are_no_part_of_an_inputs_key(name, transform_spec):
    one, other = READ[name](0), READ[name](1)
    assert packed(one) != packed(other)
    assert one.dtype == other.dtype
    assert transform_spec(one) == transform_spec(other)
    assert build_key(transform_spec(one)) == build_key(transform_spec(other))
    assert build_key(transform_spec(one)) != build_key(transform_spec(one.dtype))


@pytest.mark.parametrize("name", WRITTEN)
def test_values_are_no_part_of_an_outputs_key(name, transform_spec):
    one, other = WRITTEN[name](0), WRITTEN[name](1)
    assert packed(one, output=True) != packed(other, output=True)
    keys = {build_key(transform_spec("f4", each)) for each in (one, other)}
    assert len(keys) == 1
    assert build_key(transform_spec("f4", one.dtype)) not in keys


def test_a_dtype_stands_for_an_array_in_them(transform_spec):
    for with_data, without in [
        (ZipIterator(Device("i2"), Device("f8")), ZipIterator(np.int16, "f8")),
        (PermutationIterator(Device(), Device("i4")), PermutationIterator("f4", "i4")),
        (ReverseIterator(Device()), ReverseIterator("f4")),
        (CacheModifiedInputIterator(Device()), CacheModifiedInputIterator("f4")),
        (TransformIterator(Device(), double), TransformIterator("f4", double)),
        (DiscardIterator(Device()), DiscardIterator("f4")),
    ]:
        if with_data.node.readable:
            assert build_key(transform_spec(with_data)) == build_key(transform_spec(without))
        else:
            assert build_key(transform_spec("f4", with_data)) == build_key(transform_spec("f4", without))


OTHERS = {
    "array": lambda: "f4",
    "counting i4": lambda: CountingIterator(np.int32(0)),
    "counting u4": lambda: CountingIterator(np.uint32(0)),
    "counting i8": lambda: CountingIterator(0),
    "counting f4": lambda: CountingIterator(np.float32(0)),
    "constant i4": lambda: ConstantIterator(np.int32(0)),
    "constant f4": lambda: ConstantIterator(np.float32(0)),
    "constant struct": lambda: ConstantIterator(Peak(0, 0)),
    "stream": lambda: CacheModifiedInputIterator("f4", "stream"),
    "global": lambda: CacheModifiedInputIterator("f4", "global"),
    "volatile": lambda: CacheModifiedInputIterator("f4", "volatile"),
    "global f8": lambda: CacheModifiedInputIterator("f8", "global"),
    "zip of one": lambda: ZipIterator("f4"),
    "zip": lambda: ZipIterator("f4", "i4"),
    "zip in another order": lambda: ZipIterator("i4", "f4"),
    "zip of three": lambda: ZipIterator("f4", "i4", "i4"),
    "zip in a zip": lambda: ZipIterator(ZipIterator("f4", "i4"), "i4"),
    "zip in a zip at the end": lambda: ZipIterator("f4", ZipIterator("i4", "i4")),
    "permutation": lambda: PermutationIterator("f4", "i4"),
    "permutation by i8": lambda: PermutationIterator("f4", "i8"),
    "permutation by a count": lambda: PermutationIterator("f4", CountingIterator(np.int32(0))),
    "permutation of the reverse": lambda: PermutationIterator(ReverseIterator("f4"), "i4"),
    "permutation by the reverse": lambda: PermutationIterator("f4", ReverseIterator("i4")),
    "permutation reversed": lambda: ReverseIterator(PermutationIterator("f4", "i4")),
    "shuffle": lambda: ShuffleIterator(5),
    "reverse": lambda: ReverseIterator("f4"),
    "reverse twice": lambda: ReverseIterator(ReverseIterator("f4")),
    "reverse of zip": lambda: ReverseIterator(ZipIterator("f4", "i4")),
    "zip of reverse": lambda: ZipIterator(ReverseIterator("f4"), ReverseIterator("i4")),
    "transform": lambda: TransformIterator("f4", double),
    "transform by a kind": lambda: TransformIterator("f4", OpKind.NEGATE),
    "transform to f8": lambda: TransformIterator("f4", double, "f8"),
    "transform of f8": lambda: TransformIterator("f8", double, "f4"),
    "transform of transform": lambda: TransformIterator(TransformIterator("f4", double), double),
    "transform of reverse": lambda: TransformIterator(ReverseIterator("f4"), double),
    "reverse of transform": lambda: ReverseIterator(TransformIterator("f4", double)),
}


def test_other_structures_have_other_keys(transform_spec):
    specs = {name: transform_spec(make()) for name, make in OTHERS.items()}
    for key in (build_key, template_key):
        names = {}
        for name, spec in specs.items():
            names.setdefault(key(spec), []).append(name)
        shared = [found for found in names.values() if len(found) > 1]
        # These two are the same kernel with another function.
        assert shared == ([] if key is build_key else [["transform", "transform by a kind"]])


def test_operators_of_iterators_are_part_of_the_build_alone(transform_spec):
    by = lambda op: transform_spec(TransformIterator("f4", op))
    to = lambda op: transform_spec("f4", TransformOutputIterator("f4", op))
    for spec in (by, to):
        assert template_key(spec(double)) == template_key(spec(lambda a: a * a))
        assert build_key(spec(double)) != build_key(spec(lambda a: a * a))
        assert build_key(spec(double)) == build_key(spec(lambda b: b + b))


def test_direction_is_part_of_the_key(transform_spec):
    keys = [
        build_key(transform_spec("f4", "f4")),
        build_key(transform_spec(ReverseIterator("f4"), "f4")),
        build_key(transform_spec("f4", ReverseIterator("f4"))),
        build_key(transform_spec(TransformIterator("f4", double), "f4")),
        build_key(transform_spec("f4", TransformOutputIterator("f4", double))),
        build_key(transform_spec(DiscardIterator("f4").dtype, DiscardIterator("f4"))),
    ]
    assert len(set(keys)) == len(keys)
    part = lambda iterator: iterator.node.part()
    assert part(TransformIterator("f4", double)) != part(TransformOutputIterator("f4", double))


def test_keys_do_not_tell_the_same_iterator_twice_from_two_equal_ones(transform_spec, monkeypatch):
    one = TransformIterator("f4", double)
    monkeypatch.setattr(nodes, "_made", Recent(512))  # what was made of it is remembered, or no longer
    other = TransformIterator("f4", double)
    assert one.node == other.node and one.node is not other.node
    specs = [transform_spec(ZipIterator(one, each), "f4") for each in (one, other)]
    assert build_key(specs[0]) == build_key(specs[1])


@pytest.mark.usefixtures("optimised")
def test_all_of_them_in_one_build(empty_cache, monkeypatch, nothing_is_compiled):
    functions = []
    compile_operator = python_to_ltoir.compile_operator
    monkeypatch.setattr(
        python_to_ltoir,
        "compile_operator",
        lambda op, symbol, cc: functions.append(symbol) or compile_operator(op, symbol, cc),
    )
    # Zip's fields are f4 and discarded i4, f4, f4, f4 and f4.
    op = lambda a: ((a[1], a[0]), a[2], a[4][0], a[5], a[11])
    make = lambda v: cupar.unary_transform(everything_read(v), everything_written(v), op, cc=CC)
    first = make(0)
    assert first.build.origin == "built"
    assert sorted(functions) == ["cupar_d_in_op0", "cupar_d_in_op1", "cupar_d_out_op0", "cupar_op"]

    first_key = first.build.key
    nothing_is_compiled()
    second = make(1)
    assert (second.build.origin, second.build.key) == ("memory", first_key)
    cupar.cache.clear(disk=False)
    third = make(1)
    assert (third.build.origin, third.build.key) == ("disk", first_key)
    assert third.cubin() == first.cubin()


# --- Code ------------------------------------------------------------------------------------------------


def with_zip(factory):
    pairs = lambda v: ZipIterator(Device("f4", 5 + v), CountingIterator(v))
    if factory == "unary_transform":
        return lambda v: cupar.unary_transform(pairs(v), "f8", lambda a: a[0] + a[1], cc=CC)
    return lambda v: getattr(cupar, factory)(pairs(v), pairs(0).dtype, add_pairs, None, cc=CC)


def with_one(make):
    def of(factory):
        op = same if factory == "unary_transform" else add
        more = () if factory == "unary_transform" else (None,)
        return lambda v: getattr(cupar, factory)(make(v), "f4", op, *more, cc=CC)

    return of


STRUCTURES = {
    "zip": with_zip,
    "transform": with_one(READ["transform"]),
    "permutation": with_one(READ["permutation"]),
    "reverse": with_one(READ["reverse"]),
}


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("factory", "structure"),
    [*zip(["reduce_into", "inclusive_scan", "unary_transform", "reduce_into"], STRUCTURES, strict=True)],
)
def test_they_are_inlined_and_shared(factory, structure, tmp_path, nothing_is_compiled):
    make = STRUCTURES[structure](factory)
    first = make(0)
    assert spills_or_calls(first, tmp_path) == []
    nothing_is_compiled()
    again = make(1)
    assert (again.build.origin, again.build.key) == ("memory", first.build.key)
    cupar.cache.clear(disk=False)
    found = make(1)
    assert (found.build.origin, found.build.key) == ("disk", first.build.key)


@pytest.mark.usefixtures("optimised")
def test_another_operator_in_an_iterator_is_linked(monkeypatch):
    make = lambda op: cupar.unary_transform(TransformIterator("f4", op), "f4", same, cc=CC)
    make(double)  # the build of the test above
    monkeypatch.setattr(nvrtc, "compile_cpp", None)
    other = make(lambda a: a * a - a)
    assert other.build.origin == "linked"
    assert set(other.build.seconds) == {"operator", "link"}
    assert other.cubin() != make(double).cubin()


DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
STRUCTS = [
    Peak.dtype,
    np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")]),
    np.dtype([("a", "i1"), ("b", "i2")], align=True),
    np.dtype([("a", Peak.dtype), ("b", "c16"), ("c", "?")], align=True),
]


def compiled(iterator, *, output=False):
    """Compile what makes an iterator of a node, with the size of its state asserted in C++."""
    return nvrtc.compile_cpp(iterators_source([argument("d_x", iterator, output)]), CC)


@pytest.mark.parametrize("dtype", [*DTYPES, *STRUCTS], ids=str)
def test_every_type_of_item(dtype):
    dtype = np.dtype(dtype)
    read = [
        ReverseIterator(dtype),
        PermutationIterator(dtype, "u2"),
        TransformIterator(dtype, same, dtype),
        *(CacheModifiedInputIterator(dtype, modifier) for modifier in ("stream", "global", "volatile")),
    ]
    if dtype.kind in "iuf":
        read.append(CountingIterator(dtype.type(1)))
    if dtype.kind in "iu":
        read.append(PermutationIterator("i1", dtype))
    assert compiled(ZipIterator(read))
    written = [
        ReverseIterator(dtype),
        PermutationIterator(dtype, "i8"),
        TransformOutputIterator(dtype, same),
        DiscardIterator(dtype),
    ]
    assert compiled(ZipIterator(written), output=True)


@pytest.mark.parametrize("dtype", [*DTYPES, *STRUCTS], ids=str)
def test_constants_of_every_type(dtype):
    dtype = np.dtype(dtype)
    assert compiled(ConstantIterator(np.ones(1, dtype)[0]))


# --- The type of a transform's items ---------------------------------------------------------------------


def to_double(a: np.float32) -> np.float64:
    return a * 2


def from_text(a: "np.int16") -> "np.float16":
    return a


def to_struct(a: Peak) -> Peak:
    return a.height, a.index + 1


ITEMS = [
    ("f4", lambda a: a * a, "f4"),
    ("f4", lambda a: a > 1, "?"),
    ("i4", lambda a: a / 2, "f8"),
    ("i1", lambda a: a + 1, "i8"),
    ("c8", lambda a: a.real, "f4"),
    ("f4", lambda a: a * 1j, "c16"),
    ("f2", lambda a: a + a, "f2"),
    ("f4", lambda a: (a, 1), [("field_0", "f4"), ("field_1", "i8")]),
    ("f4", lambda a: Peak(a, 1), Peak.dtype),
    ("f4", lambda a: (Peak(a, 1), a > 0), [("field_0", Peak.dtype), ("field_1", "?")]),
    (Peak, lambda a: a.index, "i8"),
    (Peak, lambda a: a, Peak.dtype),
    (ZipIterator("f4", CountingIterator(np.int16(0))), lambda a: a[1], "i2"),
    ("i2", OpKind.NEGATE, "i2"),
    ("f4", OpKind.LOGICAL_NOT, "?"),
    ("f8", OpKind.IDENTITY, "f8"),
    (Peak, OpKind.IDENTITY, Peak.dtype),
    ("f4", np.negative, "f4"),
    ("i2", np.logical_not, "?"),
    ("f4", np.sin, "f4"),
    ("i4", operator.neg, "i4"),
    ("f4", math.sqrt, "f4"),
    ("f4", to_double, "f8"),
    ("f4", from_text, "f2"),
    (Peak, to_struct, Peak.dtype),
]


@pytest.mark.parametrize(("given", "op", "expected"), ITEMS)
def test_type_of_a_transforms_items(given, op, expected):
    assert TransformIterator(given, op).dtype == np.dtype(expected, align=True)


def test_a_given_type_goes_before_all_others(monkeypatch):
    monkeypatch.setattr(python_to_ltoir, "result_dtype", None)
    assert TransformIterator("f4", to_double, "f4").dtype == np.dtype("f4")
    assert TransformIterator("f4", lambda a: a, Peak).dtype == Peak.dtype
    assert TransformIterator("f4", to_double).dtype == np.dtype("f8")  # of the annotation


def test_type_of_what_a_transform_takes():
    assert TransformOutputIterator("f8", to_double).dtype == np.dtype("f4")
    assert TransformOutputIterator("f2", from_text).dtype == np.dtype("i2")
    assert TransformOutputIterator("i8", lambda a: a.index, Peak).dtype == Peak.dtype
    assert TransformOutputIterator("i2", double).dtype == np.dtype("i2")
    assert TransformOutputIterator(Device("i2"), double, "i1").dtype == np.dtype("i1")


def test_inferred_types_are_remembered(empty_cache, monkeypatch):
    ops = [lambda a: a * a, lambda a: (a, a > 0)]
    infer = lambda: [TransformIterator("f4", op).dtype for op in ops]
    first = infer()
    assert cupar.cache.usage().entries == 2
    monkeypatch.setattr(python_to_ltoir, "result_dtype", None)
    with monkeypatch.context() as patch:
        patch.setattr(_cache, "fetch", None)  # this time, it is in memory
        assert infer() == first
    cupar.cache.clear(disk=False)
    assert infer() == first
    cupar.cache.clear()
    with pytest.raises(TypeError, match="NoneType"):  # now it is asked again
        infer()


def raw(symbol="twice", **more):
    source = f'extern "C" __device__ void {symbol}(void* a, void* r) {{ *(int*)r = *(int*)a * 2; }}'
    return cupar.RawOp(symbol, nvrtc.compile_cpp(source, CC), **more)


def test_type_of_a_raw_operators_result():
    assert TransformIterator("i4", raw(), "i4").dtype == np.dtype("i4")
    assert TransformOutputIterator("i4", raw(), "i8").dtype == np.dtype("i8")


def test_type_of_a_raw_operators_result_must_be_given():
    assert TransformOutputIterator("i4", raw()).dtype == np.dtype("i4")
    with pytest.raises(TypeError, match="^value_type: .*twice.*give its dtype"):
        TransformIterator("i4", raw())


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (lambda a: None, "^transform_op: operator .* returns None"),
        (lambda a: "text", "^transform_op: operator .* returns .*text"),
        (lambda a: a.nothing, "^transform_op: numba.cuda cannot compile"),
        (lambda a, b: a, "^transform_op: .*takes 2 positional arguments.*gives it 1"),
        (OpKind.PLUS, "^transform_op: OpKind.PLUS takes 2 arguments"),
        (OpKind.BIT_NOT, "^transform_op: OpKind.BIT_NOT is not defined for float32"),
        (np.add, "^transform_op: "),
        (3, "^transform_op: expected a function"),
    ],
)
def test_operators_that_transforms_refuse(op, message):
    with pytest.raises(TypeError, match=message):
        TransformIterator("f4", op)


def test_result_that_is_not_converted():
    with pytest.raises(TypeError, match=r"returns float64, which is not converted to int64"):
        cupar.unary_transform(TransformIterator("f4", lambda a: a * 1.5, "i8"), "i8", same, cc=CC)


# --- State -----------------------------------------------------------------------------------------------


def words(iterator, items=0, output=False):
    """Return the state as signed numbers of 8 bytes."""
    state = packed(iterator, items, output)
    assert len(state) == iterator.node.size
    return list(struct.unpack(f"={len(state) // 8}q", state))


def floats_as_word(value):
    return int.from_bytes(np.float32(value).tobytes(), "little")


def test_arrays():
    pair = ZipIterator(Device("f4"), Device("f8", at=2 * BASE))
    assert words(pair, 5) == [BASE, 2 * BASE]
    assert words(pair + 3, 2) == [BASE + 12, 2 * BASE + 24]
    assert words(3 + pair) == words(pair + 1 + 2) == words(pair + np.int8(3)) == words(pair + 3)
    assert words(np.int64(3) + pair) == words(pair + 3)
    assert words(pair + 3 + -2) == words(pair + 1)
    assert words(pair) == [BASE, 2 * BASE]  # it has not changed
    assert words(CacheModifiedInputIterator(Device("c16")) + 2, 3) == [BASE + 32]
    for wrong in (1.0, "1", None):
        with pytest.raises(TypeError):
            pair + wrong


def test_reverse():
    backwards = ReverseIterator(Device("f4", 5))
    assert words(backwards, 5) == [BASE + 16]
    assert words(backwards + 1, 4) == [BASE + 12]
    assert words(4 + backwards, 1) == [BASE]
    for cls in (ReverseInputIterator, ReverseOutputIterator):
        assert words(cls(Device("f4", 5)) + 1) == [BASE + 12]
    assert words(ReverseIterator(Device("f4", 0))) == [BASE - 4]
    # An iterator goes backwards from where it begins.
    assert words(ReverseIterator(ZipIterator(Device("f4", 5)) + 4) + 1, 4) == [BASE + 12]
    assert words(ReverseIterator(backwards), 1) == [BASE + 16]
    assert words(ReverseIterator(backwards + 3) + 1, 3) == [BASE + 8]


def test_counts_and_constants():
    assert words(CountingIterator(7) + 3) == [7, 3]
    assert words(CountingIterator(np.int16(-1)) + 3) == [0xFFFF, 3]
    assert words(CountingIterator(np.float32(2.5)) + -4) == [floats_as_word(2.5), -4]
    assert words(CountingIterator(2**64 - 1)) == [-1, 0]
    assert words(ReverseIterator(CountingIterator(7)) + 3) == [7, -3]
    assert words(ReverseIterator(ReverseIterator(CountingIterator(7))) + 3) == [7, 3]
    assert words(ConstantIterator(7) + 3) == [7]
    assert words(ConstantIterator(np.bool_(True))) == [1]
    assert packed(ConstantIterator(1.5 - 2j)) == struct.pack("=dd", 1.5, -2)
    assert packed(ConstantIterator(np.float32(1.5))) == struct.pack("=fi", 1.5, 0)
    assert words(ConstantIterator(np.array(9))) == [9]


def test_constant_structs():
    nested = cupar.gpu_struct({"peak": Peak, "c": "c8", "flag": "?"}, "Nested")
    for value in (nested(Peak(1.5, 3), 2j, True), np.array(((1.5, 3), 2j, True), nested.dtype)[()]):
        constant = ConstantIterator(value)
        assert constant.dtype == nested.dtype
        assert constant.node.size == 32
        found = np.frombuffer(packed(constant + 5), nested.dtype)[0]
        assert found.item() == ((1.5, 3), 2j, True)
    assert ConstantIterator(np.array((1, 2), "i4,i4")).node.size == 8


def test_shuffle():
    assert words(ShuffleIterator(1000, 7) + 3) == [3, 1000, 7]
    assert words(ShuffleIterator(np.int8(5), -1)) == [0, 5, -1]
    assert words(ShuffleIterator(5, 2**64 - 1)) == words(ShuffleIterator(5, -1))


@pytest.mark.parametrize(
    ("iterator", "items", "used"),
    [
        (ShuffleIterator(5), 6, "0 to 5"),
        (ShuffleIterator(5) + 3, 3, "3 to 5"),
        (ShuffleIterator(5) + -1, 1, "-1 to -1"),
        (ReverseIterator(ShuffleIterator(5) + 4), 6, "-1 to 4"),
        (PermutationIterator(CountingIterator(0), ShuffleIterator(5)), 6, "0 to 5"),
        (ZipIterator(CountingIterator(0), ShuffleIterator(5)), 6, "0 to 5"),
    ],
)
def test_a_shuffle_has_no_other_items(iterator, items, used):
    """The search for one of them would never end."""
    assert len(iterator.pack("d_in", items - 1, False)) == iterator.node.size
    with pytest.raises(ValueError, match=f"^d_in: uses the items from {used} of an iterator that has 5$"):
        iterator.pack("d_in", items, False)


def test_permutation():
    gathered = PermutationIterator(Device("f4"), Device("i2", at=2 * BASE))
    assert words(gathered + 3, 2) == [BASE, 2 * BASE + 6]
    assert words(ReverseIterator(gathered + 3) + 1) == [BASE, 2 * BASE + 4]
    # Where the values begin, they stay.
    assert words(PermutationIterator(ZipIterator(Device()) + 2, CountingIterator(1)) + 3) == [BASE + 8, 1, 3]
    assert words(PermutationIterator(ReverseIterator(Device()), CountingIterator(0)) + 3) == [
        BASE + 16,
        0,
        3,
    ]
    inner = PermutationIterator(CountingIterator(4) + 1, ReverseIterator(Device("i4")))
    assert words(PermutationIterator(inner + 1, CountingIterator(0)) + 2) == [4, 1, BASE + 12, 0, 2]
    assert words(PermutationIterator(Device(), ShuffleIterator(9, 8)) + 1) == [BASE, 1, 9, 8]


def test_nested():
    it = ZipIterator(
        ReverseIterator(ZipIterator(CountingIterator(5), Device("f8", 9)) + 8),
        TransformIterator(ReverseIterator(Device("f4", 9)), double, "f4"),
        ConstantIterator(6),
    )
    assert words(it, 9) == [5, 8, BASE + 64, BASE + 32, 6]
    assert words(it + 2, 7) == [5, 6, BASE + 48, BASE + 24, 6]
    assert words(ReverseIterator(it + 2) + 1) == words(it + 1)


def test_outputs():
    it = ZipIterator(DiscardIterator(), TransformOutputIterator(Device("f4"), double), Device("i2"))
    assert words(it + 2, 3, output=True) == [0, BASE + 8, BASE + 4]
    assert words(DiscardIterator("f8") + 5, 100, output=True) == [0]


def test_arrays_that_an_iterators_operator_has_captured():
    table = Device("f4", 3, at=3 * BASE)
    it = TransformIterator(Device("i4"), lambda a: table[a], "f4")
    assert words(it + 1) == [BASE + 4, 3 * BASE, 3]
    table = Device("f4", 8, at=4 * BASE)
    assert words(it) == [BASE, 4 * BASE, 8]  # as it is now
    table = Device("f8", 8)
    with pytest.raises(TypeError, match="^op: captured array 'table': .*float32.*float64"):
        packed(it)
    stateful = raw(state=b"\1\2\3", state_alignment=1)
    assert words(TransformIterator(Device("i4"), stateful, "i4")) == [BASE, 0x030201]


# What an iterator's state must be, worked out apart from it: for each leaf, what goes before it, where it is
# and how far it moves for an item of the whole iterator. All begin where they can move in both directions.
def counting_leaf(start):
    return CountingIterator(start), [(struct.pack("=q", start), 0, 1)]


def array_leaf(dtype, size, at):
    itemsize = np.dtype(dtype).itemsize
    return ZipIterator(Device(dtype, size, at)) + 500, [(b"", at + 500 * itemsize, itemsize)]


def reversed_array_leaf(dtype, size, at):
    itemsize = np.dtype(dtype).itemsize
    return ReverseIterator(Device(dtype, size, at)) + 500, [(b"", at + (size - 501) * itemsize, -itemsize)]


def reversed_node(inner):
    items, leaves = inner
    return ReverseIterator(items), [(prefix, at, -step) for prefix, at, step in leaves]


def zipped_node(inner):
    return ZipIterator([items for items, _ in inner]), [leaf for _, leaves in inner for leaf in leaves]


arrays = (st.sampled_from(["i1", "f4", "c16"]), st.integers(1000, 2000), st.sampled_from([BASE, 4096]))
nestings = st.recursive(
    st.one_of(
        st.builds(counting_leaf, st.integers(-1000, 1000)),
        st.builds(array_leaf, *arrays),
        st.builds(reversed_array_leaf, *arrays),
    ),
    lambda inner: st.one_of(
        inner.map(reversed_node), st.lists(inner, min_size=1, max_size=3).map(zipped_node)
    ),
    max_leaves=8,
)
offsets = st.integers(-100, 100)


@given(nestings, offsets, offsets)
def test_offsets_add_up(nesting, first, second):
    iterator, leaves = nesting
    moved = iterator + (first + second)
    assert packed((iterator + first) + second, 1) == packed(moved, 1)
    expected = [prefix + struct.pack("=q", at + step * (first + second)) for prefix, at, step in leaves]
    assert packed(moved, 1) == b"".join(expected)
    assert len(packed(moved, 1)) == iterator.node.size
    assert moved.node is iterator.node


# --- Checks of a call ------------------------------------------------------------------------------------


def state(built, array, items, name="d_in", output=False):
    return iterator_.state_of(argument(name, built, output), array, items)


def test_state_of_a_call():
    found = state(ZipIterator("f4", CountingIterator(0)), ZipIterator(Device(), CountingIterator(9)) + 1, 4)
    assert found == struct.pack("=qqq", BASE + 4, 9, 1)
    found = state(TransformIterator("f4", double), TransformIterator(Device(), another(double)), 5)
    assert found == struct.pack("=q", BASE)
    assert state(ReverseIterator("f4"), ReverseOutputIterator(Device()), 5) == struct.pack("=q", BASE + 16)


def test_arrays_that_are_too_small():
    forwards = ZipIterator("f4", CountingIterator(0))
    given = ZipIterator(Device(size=5), CountingIterator(0))
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got an array of 5$"):
        state(forwards, given, 6)
    state(forwards, given + 5, 0)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got an array of 5$"):
        state(forwards, given + 3, 3)
    backwards, given = ReverseIterator("f4"), ReverseIterator(Device(size=5))
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got 5 going backwards$"):
        state(backwards, given, 6)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 4 items, got 3 going backwards$"):
        state(backwards, given + 2, 4)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 2 items, got 1 going backwards$"):
        state(ReverseIterator(forwards), ReverseIterator(ZipIterator(Device(), CountingIterator(0))), 2)
    with pytest.raises(ValueError, match=r"^d_out: needs at least 6 items"):
        state(backwards, given, 6, "d_out", output=True)
    transform = TransformIterator(ReverseIterator("f4"), double)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got 5 going backwards$"):
        state(transform, TransformIterator(ReverseIterator(Device()), double), 6)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got an array of 5$"):
        state(CacheModifiedInputIterator("f4"), CacheModifiedInputIterator(Device()), 6)
    # Of a permutation's arrays, that of the indices alone is as long as the call.
    permutation = PermutationIterator("f4", "i4")
    state(permutation, PermutationIterator(Device(size=1), Device("i4", 6)), 6)
    with pytest.raises(ValueError, match=r"^d_in: needs at least 6 items, got an array of 5$"):
        state(permutation, PermutationIterator(Device(size=9), Device("i4", 5)), 6)
    state(CountingIterator(0), CountingIterator(0), 2**40)


@pytest.mark.parametrize(
    "given",
    [
        ReverseIterator(Device(size=5)) + -3,
        ReverseIterator(ReverseIterator(Device(size=5)) + 5),
        ReverseIterator(ZipIterator(Device(size=5)) + 100),
        ZipIterator(Device(size=5)) + -3,
    ],
)
def test_iterators_that_begin_outside_of_their_array(given):
    with pytest.raises(ValueError, match="^d_in: "):
        state(given, given, 2)


def test_outputs_that_are_read_only():
    frozen = Device(read_only=True)
    with pytest.raises(ValueError, match="^d_out: .*read-only"):
        state(ReverseIterator("f4"), ReverseIterator(frozen), 5, "d_out", output=True)
    state(ReverseIterator("f4"), ReverseIterator(frozen), 5)
    scattered = PermutationIterator("f4", "i4")
    indices = Device("i4", read_only=True)
    state(scattered, PermutationIterator(Device(), indices), 5, "d_out", output=True)
    with pytest.raises(ValueError, match="^d_out: .*read-only"):
        state(scattered, PermutationIterator(frozen, indices), 5, "d_out", output=True)


MISMATCHES = [
    (ReverseIterator("f4"), Device(), r"Reverse\(Pointer\(float32\)\), got Pointer\(float32\)"),
    ("f4", ReverseIterator(Device()), r"Pointer\(float32\), got Reverse\(Pointer\(float32\)\)"),
    (ReverseIterator("f4"), ReverseIterator(Device("f8")), r"float32.*got Reverse\(Pointer\(float64\)\)"),
    (ZipIterator("f4", "i4"), ZipIterator(Device("i4"), Device()), "built for Zip.*got Zip"),
    (ZipIterator("f4"), ZipIterator(Device(), Device()), "built for Zip.*got Zip"),
    (CountingIterator(0), CountingIterator(np.int32(0)), r"Counting\(int64\), got Counting\(int32\)"),
    (CountingIterator(0), ConstantIterator(0), r"Counting\(int64\), got Constant\(int64\)"),
    (
        CacheModifiedInputIterator("f4", "stream"),
        CacheModifiedInputIterator(Device(), "global"),
        r"built for CacheModified.*got CacheModified",
    ),
    (TransformIterator("f4", double), TransformIterator(Device(), same), r", double\), got .*, same\)"),
    (TransformIterator("f4", double), TransformIterator(Device(), OpKind.NEGATE), "double.*NEGATE"),
    (TransformIterator("f4", double), TransformIterator(Device(), double, "f8"), "double"),
    (ZipIterator("f4"), ZipIterator("f4"), "expected a device array, got str"),
    (ReverseIterator("f4"), None, "expected a device array, got None"),
    (ReverseIterator("f4"), np.zeros(5, "f4"), "NumPy array"),
]


@pytest.mark.parametrize(("built", "given", "message"), MISMATCHES)
def test_other_iterators_than_the_algorithm_was_built_for(built, given, message):
    with pytest.raises(TypeError, match=f"^d_in: .*{message}"):
        state(built, given, 5)


def test_an_iterator_for_an_array():
    """What the call itself checks: an array's address is taken without the iterators' help."""
    read = STRUCTURES["reverse"]("unary_transform")(0)._call_reader(None)
    with pytest.raises(TypeError, match="^d_out: .*Iterator"):
        read((ReverseIterator(Device()), ReverseIterator(Device()), 5))
    with pytest.raises(TypeError, match=r"^d_in: .*Reverse\(.*got Pointer"):
        read((Device(), Device(), 5))
    with pytest.raises(ValueError, match="^d_in: needs at least 6 items, got 5 going backwards"):
        read((ReverseIterator(Device()), Device(size=6), 6))
    assert read((ReverseIterator(Device()), Device(), 5)) == (5, struct.pack("=q", BASE + 16), BASE)


def test_names_of_fields_make_no_other_structure():
    one, other = np.dtype([("x", "f4"), ("y", "i4")]), np.dtype([("a", "f4"), ("b", "i4")])
    assert state(ReverseIterator(one), ReverseIterator(Device(other)), 5) == struct.pack("=q", BASE + 32)
    with pytest.raises(TypeError, match="^d_in: "):
        state(ReverseIterator(one), ReverseIterator(Device(np.dtype("f4,f4"))), 5)


def test_anything_may_be_discarded():
    for other in (DiscardIterator(), DiscardIterator("c16")):
        assert state(DiscardIterator("f4"), other, 5, "d_out", output=True) == bytes(8)
    with pytest.raises(TypeError, match="^d_out: "):
        state(DiscardIterator("f4"), Device(), 5, "d_out", output=True)


# --- Refusals --------------------------------------------------------------------------------------------

UP = SortOrder.ASCENDING
COUNT = CountingIterator(0)


def reduced(d_in, d_out):
    return cupar.reduce_into(d_in, d_out, OpKind.PLUS, None, cc=CC)


@pytest.mark.parametrize(
    "output",
    [
        COUNT,
        ConstantIterator(0),
        ShuffleIterator(5),
        TransformIterator("i8", double),
        CacheModifiedInputIterator("i8"),
        ReverseIterator(COUNT),
        PermutationIterator(COUNT, "i4"),
    ],
)
def test_what_cannot_be_written(output):
    with pytest.raises(TypeError, match="^d_out: expected something to write to, got "):
        reduced("i8", output)
    with pytest.raises(TypeError, match="^d_out: expected something to write to, got Zip"):
        cupar.unary_transform("i8", ZipIterator("i8", output), lambda a: (a, a), cc=CC)


@pytest.mark.parametrize("given", [DiscardIterator("i8"), TransformOutputIterator("i8", double)])
def test_what_cannot_be_read(given):
    for d_in in (given, ReverseIterator(given), ZipIterator(given), PermutationIterator(given, COUNT)):
        with pytest.raises(TypeError, match="^d_in: expected something to read, got "):
            reduced(d_in, d_in.dtype)
    with pytest.raises(TypeError, match="^underlying: expected something to read"):
        TransformIterator(given, double)


HOST = np.zeros(5, "i4")
REFUSED = [
    (lambda: CountingIterator("0"), TypeError, "^start: expected a real number"),
    (lambda: CountingIterator(1j), TypeError, "^start: expected a real number"),
    (lambda: CountingIterator(True), TypeError, "^start: expected a real number"),
    (lambda: CountingIterator(np.zeros(2)), TypeError, "^start: expected a real number"),
    (
        lambda: CountingIterator(2**64),
        ValueError,
        r"^start: expected an integer from -2\*\*63 to 2\*\*64 - 1",
    ),
    (lambda: CountingIterator(10**5000), ValueError, r"^start: .*got an integer of 16610 bits$"),
    (lambda: ConstantIterator(2**70), ValueError, r"^value: expected an integer from .*got 11805916207"),
    (lambda: ConstantIterator([[1], [1, 2]]), TypeError, "^value: expected one number or struct"),
    (lambda: ConstantIterator("0"), TypeError, "^value: dtype <U1 is not supported"),
    (lambda: ConstantIterator(None), TypeError, "^value: "),
    (lambda: ConstantIterator(np.zeros(2)), TypeError, "^value: expected one number or struct"),
    (ZipIterator, ValueError, "^iterators: expected at least one"),
    (lambda: ZipIterator([]), ValueError, "^iterators: expected at least one"),
    (lambda: ZipIterator("f4", 3), TypeError, r"^iterators\[1\]: expected a device array, got int"),
    (lambda: ZipIterator("f4", HOST), TypeError, r"^iterators\[1\]: .*NumPy array.*host memory"),
    (lambda: PermutationIterator("f4", "f4"), TypeError, "^indices: expected integers.*float32"),
    (lambda: PermutationIterator("f4", "?"), TypeError, "^indices: expected integers.*bool"),
    (lambda: PermutationIterator("f4", ZipIterator("i4")), TypeError, "^indices: expected integers"),
    (lambda: PermutationIterator("f4", DiscardIterator("i4")), TypeError, "^indices: .*to read"),
    (lambda: PermutationIterator("f4", HOST), TypeError, "^indices: .*NumPy array.*host memory"),
    (lambda: PermutationIterator(HOST, "i4"), TypeError, "^values: .*NumPy array.*host memory"),
    (lambda: ReverseIterator(HOST), TypeError, "^underlying: .*NumPy array.*host memory"),
    (lambda: CacheModifiedInputIterator("f4", "cs"), ValueError, "^modifier: .*'stream'.*got 'cs'"),
    (lambda: CacheModifiedInputIterator(HOST), TypeError, "^array: .*NumPy array.*host memory"),
    (lambda: CacheModifiedInputIterator(COUNT), TypeError, "^array: expected a device array"),
    (lambda: DiscardIterator(HOST), TypeError, "^reference: .*NumPy array.*host memory"),
    (lambda: ShuffleIterator(0), ValueError, "^num_items: expected an integer from 1"),
    (lambda: ShuffleIterator(-1), ValueError, "^num_items: expected an integer from 1"),
    (lambda: ShuffleIterator(5.0), TypeError, "^num_items: expected an integer, got float"),
    (lambda: ShuffleIterator(5, "7"), TypeError, "^seed: expected an integer, got str"),
    (lambda: ShuffleIterator(5, None), TypeError, "^seed: expected an integer, got None"),
    (lambda: ShuffleIterator(5, 2**64), ValueError, "^seed: expected an integer from"),
    (lambda: TransformIterator(HOST, double), TypeError, "^underlying: .*NumPy array.*host memory"),
    (lambda: TransformOutputIterator(HOST, double), TypeError, "^underlying: .*NumPy array.*host memory"),
    (lambda: TransformOutputIterator(COUNT, double), TypeError, "^underlying: .*to write to"),
    (lambda: TransformIterator("f4", double, "O"), TypeError, "^value_type: dtype object"),
    (lambda: ReverseIterator("O"), TypeError, "^underlying: dtype object"),
    # Where CCCL takes pointers alone.
    (
        lambda: cupar.radix_sort(COUNT, "i8", None, None, UP, cc=CC),
        TypeError,
        "^d_in_keys: expected an array",
    ),
    (
        lambda: cupar.radix_sort("i8", ReverseIterator("i8"), None, None, UP, cc=CC),
        TypeError,
        "^d_out_keys: expected an array",
    ),
    (
        lambda: cupar.radix_sort("i8", "i8", COUNT, "i8", UP, cc=CC),
        TypeError,
        "^d_in_values: expected an array",
    ),
    (
        lambda: cupar.radix_sort("i8", "i8", "i8", DiscardIterator("i8"), UP, cc=CC),
        TypeError,
        "^d_out_values: expected an array",
    ),
    (
        lambda: cupar.segmented_sort("i8", ReverseIterator("i8"), None, None, "i4", "i4", UP, cc=CC),
        TypeError,
        "^d_out_keys: expected an array",
    ),
    (
        lambda: cupar.segmented_sort("i8", "i8", "i8", ReverseIterator("i8"), "i4", "i4", UP, cc=CC),
        TypeError,
        "^d_out_values: expected an array",
    ),
    (
        lambda: cupar.segmented_sort("i8", "i8", None, None, COUNT, "i4", UP, cc=CC),
        TypeError,
        "^start_offsets_in: expected an array",
    ),
    (
        lambda: cupar.merge_sort(COUNT, None, ReverseIterator("i8"), None, OpKind.LESS, cc=CC),
        TypeError,
        "^d_out_keys: expected an array",
    ),
    (
        lambda: cupar.merge_sort("i8", COUNT, "i8", DiscardIterator("i8"), OpKind.LESS, cc=CC),
        TypeError,
        "^d_out_items: expected an array",
    ),
    (
        lambda: cupar.unique_by_key("i8", DiscardIterator(), "i8", "i4", "i4", OpKind.EQUAL_TO, cc=CC),
        TypeError,
        "^d_out_items: expected a DiscardIterator, since d_in_items is one",
    ),
    (
        lambda: cupar.unique_by_key(DiscardIterator(), "i4", "i8", "i4", "i4", OpKind.EQUAL_TO, cc=CC),
        TypeError,
        "^d_in_keys: expected something to read",
    ),
    (
        lambda: cupar.histogram_even("i8", ReverseIterator("i4"), 11, 0, 10, 9, cc=CC),
        TypeError,
        "^d_histogram: expected an array",
    ),
    (lambda: cupar.lower_bound(COUNT, "i8", "i8", cc=CC), TypeError, "^d_data: expected an array"),
    # Types that do not go together.
    (
        lambda: cupar.select(CountingIterator(0.5), "i4", "i4", lambda a: a > 0, cc=CC),
        TypeError,
        "^d_out: expected float64, the dtype of d_in, or one .*, got int32; a TransformOutputIterator",
    ),
    (
        lambda: cupar.segmented_reduce("f4", "f4", CountingIterator(0.5), "i4", add, 0.0, cc=CC),
        TypeError,
        "^start_offsets_in: expected integers.*float64",
    ),
    (
        lambda: cupar.histogram_even(ZipIterator("i4"), "i4", 11, 0, 10, 9, cc=CC),
        TypeError,
        "^d_samples: .*has no order",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("cc", [CC, "cpu"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda pairs, out, cc: cupar.unary_transform(pairs, out, lambda a: a, cc=cc),
        lambda pairs, out, cc: cupar.unary_transform(pairs, out, lambda a: a[1], cc=cc),
        lambda pairs, out, cc: cupar.reduce_into(pairs, out, lambda a, b: a, None, cc=cc),
        lambda pairs, out, cc: cupar.select(pairs, out, "i8", lambda a: a[0] > 0, cc=cc),
    ],
)
def test_outputs_of_structs_are_told_to_say_so(ask, cc):
    out = TransformOutputIterator("f4", lambda p: p[1])
    with pytest.raises(TypeError, match="takes float32, the dtype of `underlying`: .*annotate .*value_type"):
        ask(ZipIterator("i4", "f4"), out, cc)


# --- Structure, found once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*READ, *WRITTEN])
def test_a_structure_is_one_object(name):
    make = READ.get(name) or WRITTEN[name]
    one, other = make(0), make(1)
    assert one.node == other.node and hash(one.node) == hash(other.node)
    assert one.node.identity is other.node.identity
    again = pickle.loads(pickle.dumps(one.node.without_user()))
    assert again == one.node and again.layout is not one.node.layout
    assert one.node != nodes.Reverse(one.dtype, one.node)


def test_a_transforms_function_is_resolved_once_as_long_as_it_means_the_same(monkeypatch):
    factor, asked = 2, []
    own = iterators.resolve
    monkeypatch.setattr(iterators, "resolve", lambda *given, **named: asked.append(1) or own(*given, **named))

    def made():
        return TransformIterator(Device(), lambda a: a * factor, "f4")

    first, second = made(), made()
    assert first.node is second.node and len(asked) == 1
    factor = 3
    assert made().node != first.node and len(asked) == 2
    assert TransformIterator(Device("i4"), lambda a: a, "f4").node != first.node
    outputs = [TransformOutputIterator(Device(), abs) for _ in range(2)]
    assert outputs[0].node is outputs[1].node != TransformIterator(Device(), abs).node


@pytest.mark.usefixtures("older_are_frozen")
def test_what_transforms_keep_has_no_users_arrays():
    class Array(Device):
        pass

    def made():
        array = Array()
        captured = TransformIterator(Device(), lambda a: array[0] + a, "f4")
        assert ZipIterator(captured, captured).node == ZipIterator(captured, captured).node
        return weakref.ref(array)

    there = made()
    gc.collect()
    assert there() is None
