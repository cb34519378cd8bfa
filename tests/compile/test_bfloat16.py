"""bfloat16: told from void types and float16, known by name, built in every algorithm, and in operators."""

import json
import math
import pickle
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.templates import compiled

import cupar
from cupar import OpKind, SortOrder, gpu_struct, structs
from cupar._ahead import codec
from cupar._arguments.initial import packed
from cupar._compile import inference, key
from cupar._compile.bfloat16 import _bits
from cupar._device import arrays, readers
from cupar._ir import cpp, kinds, types
from cupar._ir.resolve import resolve

ml_dtypes = pytest.importorskip("ml_dtypes")

BF16 = np.dtype(ml_dtypes.bfloat16)
CC = 90
NUMBERS = [*map(np.dtype, "?bBhHiIqQefdFD"), BF16]
PLUS = OpKind.PLUS
THREE = ml_dtypes.bfloat16(3)
TABLE = np.array([1, 2, 4], BF16)


# --- Dtypes -------------------------------------------------------------------------------------------------


def test_it_is_no_void_type():
    assert structs.normal("x", BF16) is BF16
    assert [structs.kind_of(BF16), structs.kind_of(np.dtype("V2")), structs.kind_of(np.dtype("f2"))] == [
        *"fVf"
    ]
    assert cpp.type_name(BF16) == "__nv_bfloat16"
    parts = {json.dumps(structs.type_part(each)) for each in (BF16, *map(np.dtype, ("V2", "f2", "i2", "u2")))}
    assert len(parts) == 5
    for other in ("V2", BF16.newbyteorder("S"), ml_dtypes.float8_e5m2, ml_dtypes.int4):
        with pytest.raises(TypeError, match=r"^d_in: dtype .* is not supported; .*bfloat16"):
            cupar.reduce_into(other, "f4", PLUS, None, cc=CC)


def test_its_name_is_enough():
    assert structs.as_dtype("bfloat16") is BF16
    assert arrays.dtype_of("x", "bfloat16") is BF16
    assert gpu_struct({"x": "bfloat16"}).dtype["x"] is BF16
    code = """
        import sys, cupar
        assert "ml_dtypes" not in sys.modules
        print(cupar.TransformIterator("bfloat16", cupar.OpKind.NEGATE).dtype)
        assert "numba" not in sys.modules
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout == "bfloat16\n", done.stderr


def test_without_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    missing = r"ml_dtypes, which is not installed: pip install ml_dtypes$"

    class Tensor:
        __module__ = "torch"
        is_cuda = True
        dtype = "torch.bfloat16"
        is_neg = shape = stride = data_ptr = None  # which are read of tensors

    monkeypatch.setattr(readers, "torch_dtypes", {})
    with pytest.raises(TypeError, match=rf"^d_in: .*{missing}"):
        cupar.reduce_into("bfloat16", "f4", PLUS, None, cc=CC)
    with pytest.raises(TypeError, match=rf"^d_in: .*{missing}"):
        arrays.view("d_in", Tensor())
    with pytest.raises(TypeError, match=rf"^fields: x: .*{missing}"):
        gpu_struct({"x": "bfloat16"})
    with pytest.raises(TypeError, match=rf"^signature: .*{missing}"):
        cupar.cpp("float f(float x) { return x; }", "bfloat16(float32)")
    with pytest.raises(TypeError, match=rf"^signature: .*{missing}"):
        cupar.jit(lambda x: None).compile("void(bfloat16[:])", cc=CC)


def test_cupar_imports_no_ml_dtypes():
    asks = "cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, None, cc=90)"
    code = f"import sys, cupar; {asks}; print('ml_dtypes' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


fields = st.recursive(
    st.sampled_from(NUMBERS),
    lambda inner: st.lists(inner, min_size=1, max_size=4).map(
        lambda found: np.dtype([(f"f{i}", each) for i, each in enumerate(found)], align=True)
    ),
    max_leaves=8,
)


@given(fields)
def test_dtypes_as_plain_data(dtype):
    dtype = structs.normal("x", dtype)
    again = structs.from_descr(json.loads(json.dumps(structs.descr(dtype))))
    again = structs.normal("x", again)
    assert again == dtype
    assert structs.type_part(again) == structs.type_part(dtype)
    assert structs.normal("x", pickle.loads(pickle.dumps(dtype))) == dtype


@given(fields, fields)
def test_different_dtypes_have_different_keys(one, other):
    one, other = structs.normal("x", one), structs.normal("x", other)
    same = structs.layout(one) == structs.layout(other)
    assert (structs.type_part(one) == structs.type_part(other)) == same
    assert (types.Item.of(one) == types.Item.of(other)) == (one == other)


def test_a_field_of_it_is_no_padding():
    # NumPy's names of what has none, and the kind of what pads.
    dtype = np.dtype([("f0", BF16), ("f1", "f4")], align=True)
    assert structs.normal("x", dtype).names == ("f0", "f1")
    assert arrays.dtype_of("x", dtype) == dtype


@pytest.mark.parametrize("other", ["f2", "i2", "u2"])
def test_keys_of_builds(other, specified):
    def keys(dtype):
        spec = specified(cupar.radix_sort, "i4", "i4", dtype, dtype, SortOrder.ASCENDING)
        pair = np.dtype([("a", dtype), ("b", "i4")], align=True)
        struct = specified(cupar.reduce_into, pair, pair, lambda a, b: a, None)
        return [key.digest(key.build_parts(each)) for each in (spec, struct)]

    assert not {*keys(BF16)} & {*keys(other)}


def test_in_recorded_lists(specified):
    spec = specified(cupar.reduce_into, BF16, BF16, lambda a, b: a * THREE + b, THREE)
    again = codec.loads(codec.dumps(spec))
    assert again == spec
    assert again.arguments[0].value is BF16
    assert key.build_parts(again) == key.build_parts(spec)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1), (1.5, 1.5), (True, 1), (np.int64(-3), -3), (np.float16(2), 2), (THREE, 3), (2**100, 2.0**100)],
)
def test_initial_values(value, expected):
    assert packed(value, BF16) == np.array(expected, BF16).tobytes()
    assert packed(THREE, np.dtype("f4")) == np.float32(3).tobytes()


@pytest.mark.parametrize("value", [1e39, 2**200, 2**2000, -(2**200)])
def test_initial_values_that_it_cannot_hold(value):
    with pytest.raises(ValueError, match=r"^h_init: "):
        packed(value, BF16)


@pytest.mark.parametrize("value", [np.zeros(1, "V2"), np.zeros(1, "f2"), 1j])
def test_initial_values_of_another_type(value):
    with pytest.raises(TypeError, match=r"^h_init: .*bfloat16"):
        packed(value, BF16)


def test_conversions():
    for wider in ("f2", "f4", "f8", "c8", "?"):
        assert structs.convertible(BF16, np.dtype(wider))
    for narrower in ("f2", "f4", "f8", "i8", "?"):
        assert structs.convertible(np.dtype(narrower), BF16)
    assert not structs.convertible(BF16, np.dtype("i4"))
    assert not structs.convertible(np.dtype("c8"), BF16)


# --- Arrays -------------------------------------------------------------------------------------------------


class Interface:
    """An array that says of its type what ``__cuda_array_interface__`` can: NumPy's `str` and `descr`."""

    def __init__(self, dtype, **more):
        self.dtype = dtype
        self.__cuda_array_interface__ = {
            "shape": (3,),
            "typestr": dtype.str,
            "descr": dtype.descr,
            "data": (64, False),
            "version": 3,
            **more,
        }


def test_arrays_whose_interface_has_void():
    pair = np.dtype([("a", BF16), ("b", "f4")], align=True)
    assert arrays.view("x", Interface(BF16)).dtype is BF16
    assert arrays.dtype_of("x", Interface(pair)) == pair
    assert not structs.is_bfloat16(arrays.view("x", Interface(np.dtype("V2"))).dtype)
    misleading = Interface(BF16, typestr="<f4")  # the interface decides
    assert arrays.view("x", misleading).dtype == np.dtype("f4")


def test_torch_tensors():
    class Tensor:
        __module__ = "torch"
        is_cuda = True
        dtype = "torch.bfloat16"
        shape = (3,)

        def __init__(self, neg=False):
            self.is_neg, self.is_contiguous = lambda: neg, lambda: True
            self.data_ptr, self.numel = lambda: 64, lambda: 3

    assert arrays.view("x", Tensor()) == arrays.ArrayView(64, 3, BF16, True, True)
    with pytest.raises(ValueError, match=r"^x: .*resolve_neg"):
        arrays.view("x", Tensor(neg=True))


# --- What is built ------------------------------------------------------------------------------------------

BUILDS = {
    "reduce": lambda t: cupar.reduce_into(t, t, PLUS, 0, cc=CC),
    "reduce, any order": lambda t: cupar.reduce_into(
        t, t, PLUS, 0, determinism=cupar.Determinism.NOT_GUARANTEED, cc=CC
    ),
    "reduce to float32": lambda t: cupar.reduce_into(t, "f4", PLUS, np.zeros(1, "f4"), cc=CC),
    "scan": lambda t: cupar.inclusive_scan(t, t, OpKind.MAXIMUM, cc=CC),
    "segmented reduce": lambda t: cupar.segmented_reduce(t, t, "i4", "i4", PLUS, 0, cc=CC),
    "transform": lambda t: cupar.binary_transform(t, t, t, OpKind.DIVIDES, cc=CC),
    "select": lambda t: cupar.select(t, t, "i8", lambda a: a > 0, cc=CC),
    "merge sort": lambda t: cupar.merge_sort(t, t, t, t, OpKind.LESS, cc=CC),
    "radix sort": lambda t: cupar.radix_sort(t, t, t, t, order=SortOrder.ASCENDING, cc=CC),
    "histogram": lambda t: cupar.histogram_even(t, "i4", 11, 0.0, 1.0, 100, cc=CC),
    "search": lambda t: cupar.lower_bound(t, t, "i8", cc=CC),
    "counting": lambda t: cupar.reduce_into(cupar.CountingIterator(THREE), t, PLUS, 0, cc=CC),
    "constant": lambda t: cupar.reduce_into(cupar.ConstantIterator(THREE), t, PLUS, 0, cc=CC),
}


# Of others, C++ has what is asked of the type; its instructions are the same.
LINKED = ("reduce", "reduce, any order", "reduce to float32", "transform", "select", "counting", "constant")


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_builds(name):
    if name in LINKED:
        assert BUILDS[name](BF16).build.cubin_size
    else:
        compiled(lambda: BUILDS[name](BF16))


@pytest.mark.slow
@pytest.mark.parametrize("cc", [75, 80])
def test_builds_for_gpus_without_its_instructions(cc):
    for determinism in ("RUN_TO_RUN", "NOT_GUARANTEED"):
        made = cupar.reduce_into(BF16, BF16, PLUS, 0, determinism=cupar.Determinism[determinism], cc=cc)
        assert made.build.cubin_size
    assert cupar.unary_transform(BF16, BF16, lambda x: math.sqrt(x + THREE), cc=cc).build.cubin_size


def test_sums_of_it_are_not_taken_for_a_kind():
    assert resolve(lambda a, b: a + b, (BF16, BF16), BF16, recognise=True).kind is None
    assert kinds.expression(cupar.OpKind.PLUS, (BF16, BF16), BF16) is None


# --- Operators ----------------------------------------------------------------------------------------------


def result(op, *inputs):
    inputs = [BF16, *map(np.dtype, inputs)]
    return inference.result_dtype(resolve(op, inputs, inputs[0]))


def total(x):
    result = 0
    for _ in range(3):
        result += x
    return result


# What float16 gives, with one name for the other, but for what is commented.
RESULTS = {
    "bfloat16": [
        lambda x: x + x,
        lambda x: x / x,
        lambda x: -x,
        abs,
        lambda x: min(x, x),
        lambda x: x if x > 0 else -x,
        math.sqrt,
        math.exp,
        math.tanh,
        math.floor,
        lambda x: x * THREE,
        lambda x: ml_dtypes.bfloat16(x * 2),
        lambda x: x + TABLE[1],
        lambda x: x and x,
    ],
    "float32": [
        lambda x: x * np.float32(2),
        lambda x: x + np.float16(1),  # which holds no bfloat16, as bfloat16 holds no float16
        np.float32,
        float,  # float16 stays itself
        math.log1p,
        lambda x: x // x,
        lambda x: x if x > 0 else np.float32(0),
    ],
    "float64": [
        lambda x: x * 2,
        lambda x: 1.5 - x,
        lambda x: max(x, 0),
        lambda x: x if x > 0 else 0,
        lambda x: x if x > 0 else 0.5,
        total,
    ],
    "bool": [lambda x: x < 1, lambda x: x == x, bool, lambda x: not x, math.isnan],
    "int64": [int, lambda x: 1 if x else 0, round],
    "complex64": [complex],
    "complex128": [lambda x: x + 1j],
}


@pytest.mark.parametrize("expected", RESULTS)
def test_results_of_operators(expected):
    for op in RESULTS[expected]:
        assert result(op) == np.dtype(structs.as_dtype(expected)), getattr(op, "__code__", op)


@pytest.mark.parametrize("other", NUMBERS, ids=str)
def test_kinds_compute_in_the_type_that_numba_computes_in(other):
    found = result(lambda a, b: a + b, other)
    for inputs in ((BF16, other), (other, BF16)):
        code = kinds.expression(cupar.OpKind.PLUS, inputs, found)
        assert code is None if found == BF16 else cpp.type_name(found) in code


def test_results_that_are_structs_with_it(empty_cache):
    pair = gpu_struct({"x": BF16, "n": np.int64})
    op = resolve(lambda x: pair(x, 1), (BF16,), BF16)
    found = inference.result_dtype(op)
    inference._results.clear()  # what follows is read from the cache
    assert inference.result_dtype(op) == found
    assert [found[i] for i in range(2)] == [BF16, np.dtype("i8")]


@pytest.mark.parametrize("value", [1, -3, 257, 2**40 + 1, True, np.int8(-7), np.uint8(200), THREE], ids=repr)
def test_constants_that_kernels_store(value):
    def store(out):
        out[0] = value

    asm = cupar.jit(store).compile("void(bfloat16[::1])", cc=CC).inspect_asm()
    if isinstance(value, int) and value is not True:
        assert f"mov.u64 \t%rd1, {value};" in asm
        assert "cvt.rn.bf16.s64 %rs1, %rd1;" in asm
    else:
        found = re.findall(r"mov.u16 \s*%rs\d+, (-?\d+);", asm)
        assert [int(each) % 2**16 for each in found] == [int(np.array(value, BF16).view(np.uint16))]


@settings(deadline=None)
@given(st.floats(width=32))
def test_bits_in_compiled_host_code(value):
    from numba import njit

    from cupar._host.calls import _bfloat16_bits

    bits = _bfloat16_bits()
    compiled = _compiled.setdefault("bits", njit(lambda number: bits(number)))  # noqa: PLW0108
    found, expected = np.uint16(compiled(value)), np.array(value, BF16)
    if math.isnan(value):
        assert np.isnan(found.view(BF16).astype("f4"))
    else:
        assert found == expected.view(np.uint16)


_compiled = {}


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**17), 2**17))
def test_literals_are_rounded_as_conversions_are(value):
    exact = np.array(float(value), np.float32)
    if float(exact) == value:
        assert _bits(value) == int(exact.astype(BF16).view(np.uint16))
    near = np.array([_bits(value) + step for step in (-1, 0, 1)], np.int64).astype(np.uint16).view(BF16)
    below, found, above = near.astype("f8")
    assert value == 0 or abs(int(found) - value) <= min(abs(int(below) - value), abs(int(above) - value))
