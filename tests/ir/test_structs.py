"""Structs: their layout, their values on the host, what operators may do with them, and their keys."""

import copy
import ctypes
import json
import re
import textwrap
import types
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.disassembly import instructions, kernels, spills_or_calls

import cupar
from cupar import OpKind, RawOp, _build, gpu_struct, structs
from cupar._arguments import initial
from cupar._compile import key as _key
from cupar._device import arrays
from cupar._fingerprint import walk
from cupar._ir.resolve import resolve

CC = 90
CODES = "?bBhHiIqQefdFD"


@gpu_struct
class Peak:
    height: np.float32
    place: np.int64


@gpu_struct
class Written:
    height: "np.float32"
    place: "int"
    peak: "Peak"


Outer = gpu_struct({"peak": Peak, "flags": {"seen": bool, "level": np.int8}, "scale": float}, "Outer")
All = gpu_struct({f"v{i}": code for i, code in enumerate(CODES)}, "All")
Named = gpu_struct({"index": np.int64, "count": np.float32}, "Named")

# The same layout as Peak, by another name.
Other = gpu_struct({"left": "f4", "right": "i8"}, "Other")


# Names that begin as named tuples' fields cannot, among them those that `namedtuple` gives such fields.
Hidden = gpu_struct({"_1": "f4", "__inner": {"_": "i8", "_z": "f4"}, "_2": "i4", "x": "i4"}, "Hidden")
Shown = gpu_struct({"a": "f4", "inner": {"p": "i8", "z": "f4"}, "b": "i4", "x": "i4"}, "Shown")


def dtype_of(kind):
    return kind.dtype if structs.is_struct(kind) else np.dtype(kind)


def compiled(op, inputs, output):
    """Compile an operator alone: a link of kernels costs twenty times as much."""
    found = resolve(op, [dtype_of(kind) for kind in inputs], dtype_of(output))
    code = _build._operator_code("op", found, CC)
    assert all(code)
    return code


class DeviceArray:
    """What another library says of an array in device memory."""

    def __init__(self, dtype, shape=(8,), address=4096, **more):
        dtype = np.dtype(dtype)
        self._interface = {
            "typestr": dtype.str,
            "shape": shape,
            "data": (address, False),
            "version": 3,
            **more,
        }
        if dtype.names:
            self._interface.setdefault("descr", dtype.descr)

    @property
    def __cuda_array_interface__(self):
        return self._interface


def key(spec):
    return _key.digest(_key.build_parts(spec))


# --- Making them -----------------------------------------------------------------------------------------


def test_from_an_annotated_class():
    assert Peak.__name__ == "Peak"
    assert Peak.dtype == np.dtype([("height", "f4"), ("place", "i8")], align=True)
    assert Peak.dtype.isalignedstruct
    assert [Peak.dtype.fields[name][1] for name in Peak.dtype.names] == [0, 8]


def test_from_string_annotations():
    assert Written.dtype == np.dtype([("height", "f4"), ("place", "i8"), ("peak", Peak.dtype)], align=True)


def test_from_a_class_within_a_class():
    @gpu_struct
    class Line:
        @gpu_struct
        class Point:
            x: np.int16
            y: np.float64

        start: Point
        end: Point
        closed: bool

    assert Line.dtype.names == ("start", "end", "closed")
    assert Line.dtype["end"] == np.dtype([("x", "i2"), ("y", "f8")], align=True)
    assert Line.dtype.itemsize == 40


def test_from_dicts_and_types_of_all_sorts():
    made = gpu_struct(
        {"a": int, "b": float, "c": bool, "d": np.dtype("u2"), "e": "c8", "f": Peak, "g": {"h": "i1"}}
    )
    assert [str(made.dtype[name]) for name in "abcde"] == ["int64", "float64", "bool", "uint16", "complex64"]
    assert made.dtype["f"] == Peak.dtype
    assert made.dtype["g"] == np.dtype([("h", "i1")])
    assert made.__name__ == "Struct"
    assert Outer.__name__ == "Outer"


def test_from_structured_dtypes():
    aligned = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    packed = np.dtype([("a", "f8"), ("b", "i4"), ("c", "i2"), ("d", "i1"), ("e", "i1")])
    wide = np.dtype({"names": ["b", "a"], "formats": ["i4", "f8"], "offsets": [24, 8], "itemsize": 64})
    for dtype in (aligned, packed, wide):
        found = gpu_struct(dtype).dtype
        assert found == dtype
        assert found.isalignedstruct
    assert gpu_struct(packed).dtype.alignment == 8


@pytest.mark.parametrize(
    ("dtype", "field"),
    [
        (np.dtype([("a", "i1"), ("b", "f4")]), "b"),
        (np.dtype([("b", "f8"), ("a", "i4")]), "b"),  # in an array, every other one
        (np.dtype([("n", [("a", "i1"), ("b", "f4")])]), "b"),
        (np.dtype([("a", "i2"), ("n", np.dtype([("b", "f8")], align=True))]), "n"),
        (np.dtype({"names": ["a"], "formats": ["i8"], "offsets": [4], "itemsize": 16}), "a"),
    ],
)
def test_what_is_not_aligned_is_refused(dtype, field):
    for use in (gpu_struct, lambda dtype: cupar.reduce_into(dtype, dtype, min, None, cc=CC)):
        with pytest.raises(TypeError, match=rf"field '{field}', .* not aligned.*align=True"):
            use(dtype)


ALIGNED = {"?": "bool", "b": "byte", "B": "ubyte", "h": "short", "H": "ushort", "i": "int", "I": "uint"}
ALIGNED |= {"q": "longlong", "Q": "ulonglong", "f": "float", "d": "double"}
layouts = st.recursive(
    st.sampled_from([*ALIGNED]), lambda inner: st.lists(inner, min_size=1, max_size=5), max_leaves=12
)


def of_numpy(tree):
    return {f"m{i}": of_numpy(each) for i, each in enumerate(tree)} if isinstance(tree, list) else tree


def of_c(tree):
    if not isinstance(tree, list):
        return getattr(ctypes, f"c_{ALIGNED[tree]}")
    return type(
        "C", (ctypes.Structure,), {"_fields_": [(f"m{i}", of_c(each)) for i, each in enumerate(tree)]}
    )


@given(layouts.filter(lambda tree: isinstance(tree, list)))
def test_the_layout_is_that_of_c(tree):
    dtype, c = gpu_struct(of_numpy(tree)).dtype, of_c(tree)
    assert (dtype.itemsize, dtype.alignment) == (ctypes.sizeof(c), ctypes.alignment(c))
    assert [dtype.fields[name][1] for name in dtype.names] == [
        getattr(c, name).offset for name in dtype.names
    ]


NAMES = ["a", "b", "f", "fa", "f_1", "F0", "x1", "index", "count", "padding", "dtype", "cls"]
numbers = st.sampled_from(CODES).map(np.dtype)


def records(fields, align):
    dtypes = st.lists(
        st.tuples(st.sampled_from(NAMES), fields), min_size=1, max_size=5, unique_by=lambda f: f[0]
    )
    return dtypes.map(lambda chosen: np.dtype(chosen, align=align))


structured = st.recursive(numbers, lambda inner: records(inner, True), max_leaves=10).filter(
    lambda d: d.names
)


def leaves(dtype, at=0):
    """Yield the place and type of each number in a struct."""
    if dtype.names is None:
        yield at, dtype
    for name in dtype.names or ():
        inner, offset, *_ = dtype.fields[name]
        yield from leaves(inner, at + offset)


@given(structured)
def test_interfaces_and_files_write_padding_as_fields_and_lose_none(dtype):
    for written in (
        np.dtype(dtype.descr),
        np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(dtype)),
        arrays.dtype_of("x", DeviceArray(dtype)),
        dtype,
    ):
        found = structs.normal("x", written)
        assert found == dtype
        assert [*leaves(found)] == [*leaves(dtype)]
        assert (found.itemsize, found.alignment, found.names) == (
            dtype.itemsize,
            dtype.alignment,
            dtype.names,
        )
        assert structs.normal("x", found) == found


@given(records(numbers, False))
def test_packed_structs_are_taken_if_they_are_aligned_all_the_same(dtype):
    places = [(item * dtype.itemsize + at, leaf) for item in range(16) for at, leaf in leaves(dtype)]
    if all(place % leaf.alignment == 0 for place, leaf in places):
        assert structs.normal("x", dtype) == dtype
        assert structs.normal("x", dtype).isalignedstruct
    else:
        with pytest.raises(TypeError, match=r"^x: field '\w+', .* is not aligned"):
            structs.normal("x", dtype)


@given(structured)
def test_layouts_forget_names_and_nothing_else(dtype):
    found = structs.layout(dtype)
    assert [*leaves(found)] == [*leaves(dtype)]
    assert (found.itemsize, found.alignment) == (dtype.itemsize, dtype.alignment)
    renamed = np.dtype([(f"other_{name}", dtype[name]) for name in dtype.names], align=True)
    assert structs.layout(renamed) == found
    assert json.dumps(structs.type_part(renamed)) == json.dumps(structs.type_part(dtype))


def test_fields_named_as_numpy_names_padding():
    """np.dtype calls a field without a name f1 if it is the second."""
    dtype = np.dtype([("f1", "i1"), ("x", "f4"), ("f0", "i1")], align=True)
    assert arrays.dtype_of("x", DeviceArray(dtype)) == dtype


def test_arrays_of_numba_do_not_describe_their_fields():
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    pointer = ctypes.c_uint64(4096)
    memory = types.SimpleNamespace(device_pointer=pointer, device_ctypes_pointer=pointer, size=1 << 20)
    array = DeviceNDArray((3,), (Outer.dtype.itemsize,), Outer.dtype, gpu_data=memory)
    assert array.__cuda_array_interface__["typestr"] == f"|V{Outer.dtype.itemsize}"
    assert arrays.dtype_of("x", array) == Outer.dtype
    assert arrays.address("x", array, Outer.dtype, 3, True) == 4096


def test_arrays_of_the_same_layout_by_other_names():
    assert arrays.address("x", DeviceArray(Other.dtype), Peak.dtype, 8, False) == 4096
    with pytest.raises(TypeError, match="^x: this algorithm was built for .*height.*array of .*index"):
        arrays.address("x", DeviceArray(Named.dtype), Peak.dtype, 8, False)
    with pytest.raises(ValueError, match="^x: expected an array aligned to 8 bytes"):
        arrays.address("x", DeviceArray(Peak.dtype, address=4100), Peak.dtype, 8, False)


OWN = ["_asdict", "_field_defaults", "_fields", "_make", "_replace", "__len__", "__x__", "____", "dtype"]


@pytest.mark.parametrize("name", ["", "class", "lambda", "two words", "1st", "a-b", *OWN])
def test_wrong_names_of_fields(name):
    for fields in ({name: "f4"}, {"inner": {name: "f4"}}):
        with pytest.raises(
            ValueError, match=rf"^fields: {re.escape(repr(name))} .*; name that field otherwise"
        ):
            gpu_struct(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"a": {}},
        {"a": object},
        {"a": str},
        {"a": "S4"},
        {"a": "nonsense"},
        {"a": "M8[s]"},
        {"a": np.longdouble},
        {"a": ">f4"},
        {"a": ("f4", 3)},
        {"a": [1]},
        {1: "f4"},
        np.dtype("f4"),
        np.dtype([("a", "f4", 3)]),
        np.dtype([("a", "O")]),
        [("a", "f4")],
        "f4",
        None,
        type("Empty", (), {}),
    ],
)
def test_wrong_fields(fields):
    with pytest.raises(TypeError, match="^fields: "):
        gpu_struct(fields)


# --- Values ----------------------------------------------------------------------------------------------


def test_values_by_place_by_name_and_of_a_dict():
    one = Peak(1.5, 7)
    assert one == Peak(height=1.5, place=7) == Peak(1.5, place=7) == Peak({"place": 7, "height": 1.5})
    assert one == (1.5, 7)
    assert one != Peak(1.5, 8)
    assert (one.height, one.place) == (one[0], one[1]) == (1.5, 7)
    height, place = one
    assert (height, place) == (1.5, 7)
    assert repr(one) == "Peak(height=np.float32(1.5), place=np.int64(7))"


def test_values_are_converted():
    found = Peak(0.1, np.uint8(3))
    assert type(found.height) is np.float32
    assert type(found.place) is np.int64
    assert float(found.height) == float(np.float32(0.1)) != 0.1
    everything = All(*[1] * len(CODES))
    assert [np.dtype(type(value)).char for value in everything] == [np.dtype(code).char for code in CODES]
    assert Peak(-np.inf, -1).height == -np.inf
    with pytest.raises(OverflowError):
        gpu_struct({"a": np.int8})(300)


def test_nested_values():
    peak, flags = Peak(1, 2), {"seen": 1, "level": 3}
    found = Outer(peak, flags, 4)
    for same in (
        Outer((1, 2), (True, 3), 4),
        Outer({"height": 1, "place": 2}, flags, scale=4),
        Outer({"peak": peak, "flags": (1, 3), "scale": 4}),
        Outer(found.peak, found.flags, found.scale),
    ):
        assert same == found
    assert (found.peak.place, found.flags.seen, found.scale) == (2, True, 4.0)
    assert type(found.flags.level) is np.int8
    with pytest.raises(TypeError, match="has the fields height, place"):
        Outer((1, 2, 3), flags, 4)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1,), {"z": 2}), ((1, 2), {"height": 1}), ((1, 2), {"z": 1})],
)
def test_wrong_values(values, named):
    with pytest.raises(TypeError, match="^Peak has the fields height, place; got "):
        Peak(*values, **named)


def test_fields_of_any_name_on_the_host():
    for name in ("index", "count", "self", "cls", "name", "fields", "values", "bool"):
        made = gpu_struct({name: np.float32, "other": bool})
        assert made.dtype.names == (name, "other")
        found = made(**{name: 2, "other": 0})
        assert getattr(found, name) == found[0] == 2.0, name
    for name in OWN:
        with pytest.raises(ValueError, match=f"^fields: '{name}' is the class's own attribute"):
            gpu_struct({name: np.float32})


def test_fields_that_begin_with_an_underscore():
    found = Hidden(1, {"_": 2, "_z": 3}, _2=4, x=5)
    assert Hidden._fields == Hidden.dtype.names == ("_1", "__inner", "_2", "x")
    assert (found._1, found.__inner._z, found._2, found.x) == (1, 3, 4, 5)
    assert not {"_0", "_3"} & {*dir(Hidden)}
    assert repr(found).startswith("Hidden(_1=np.float32(1.0), __inner=Struct(_=")
    assert found._replace(_2=6) == Hidden(1, (2, 3), 6, 5)
    assert type(found._replace(_1=6)._1) is np.float32
    assert copy.copy(found) == found
    assert getattr(copy, "replace", Hidden._replace)(found, _2=6) == Hidden(1, (2, 3), 6, 5)
    assert np.array([found], Hidden.dtype)["__inner"]["_z"].tolist() == [3]
    match found:
        case Hidden(first, (_, z)):
            assert (first, z) == (1, 3)
    with pytest.raises(TypeError, match="^Hidden has the fields _1, __inner, _2, x; got "):
        found._replace(_3=1)


def test_arrays_of_values():
    found = np.array([Outer((1, 2), (True, 3), 4), Outer((5, 6), (False, -7), 8)], dtype=Outer.dtype)
    assert found["peak"]["place"].tolist() == [2, 6]
    assert found["flags"]["level"].tolist() == [3, -7]
    assert Outer(*found[1].item()) == Outer((5, 6), (False, -7), 8)
    assert np.array([Peak(1, 2)], dtype=Other.dtype)["right"].tolist() == [2]


def test_struct_classes_are_told_from_other_classes():
    assert structs.is_struct(Peak)
    assert structs.dtype_of_value(Peak(1, 2)) == Peak.dtype
    for other in (Peak(1, 2), namedtuple("Plain", "a b"), np.float32, int, None, Peak.dtype):
        assert not structs.is_struct(other)
    assert structs.dtype_of_value((1, 2)) is None


# --- Operators -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CODES)
def test_a_field_of_each_dtype(code):
    one = gpu_struct({"a": code})
    two = gpu_struct({"a": np.int8, "b": code})
    compiled(lambda a: a, [one], one)
    compiled(lambda a: (a.a,), [one], one)
    compiled(lambda a: one(a=a), [code], one)
    compiled(lambda a: a.a, [one], code)
    compiled(lambda a, b: two(b, a[1]), [two, "i1"], two)


def by_attribute(x):
    v = (x.v0, x.v1, x.v2, x.v3, x.v4, x.v5, x.v6, x.v7, x.v8, x.v9, x.v10, x.v11, x.v12, x.v13)
    return All(not v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13])


def by_index(x):
    return All(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], -x[10], x[11], x[12], x[13])


def by_unpacking(x):
    b, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4, f8, c8, c16 = x
    return (b, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4 * 2, f8, c8, c16)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("op", [by_attribute, by_index, by_unpacking], ids=lambda op: op.__name__)
def test_fields_of_every_dtype_in_one_struct(op, tmp_path):
    transform = cupar.unary_transform(All, All, op, cc=CC)
    assert [name for name in kernels(transform, tmp_path) if "transform" in name.lower()]
    found = instructions(transform, tmp_path)
    assert len(found) > 100, "the disassembly was not understood"
    assert not {name.split(".")[0] for name in found} & {"CALL", "LDL", "STL"}


def highest(a, b):
    if a.height == b.height:
        return a if a.place < b.place else b
    return a if a.height > b.height else b


def added(a, b):
    return Peak(a.height + b.height, place=a.place + b.place)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("op", [highest, added])
def test_reductions_and_scans_of_structs(op, tmp_path):
    reduction = cupar.reduce_into(Peak, Peak, op, Peak(-np.inf, -1), cc=CC)
    assert spills_or_calls(reduction, tmp_path) == []
    if op is added:
        scan = cupar.inclusive_scan(Peak, Peak, op, cc=CC)
        assert [name for name in kernels(scan, tmp_path) if "cupar_scan" in name]
        assert spills_or_calls(scan, tmp_path) == []


def test_a_plain_structured_dtype_will_do():
    dtype = np.dtype([("height", "f4"), ("place", "i8")], align=True)
    plain = cupar.reduce_into(dtype, dtype, highest, None, cc=CC)
    assert plain.build.cubin_size > 1000
    assert cupar.reduce_into(Peak, Peak, highest, None, cc=CC).build.key == plain.build.key
    pixel = np.dtype([("red", "u1"), ("green", "u1")])
    compiled(lambda a: (a.green, a.red), [pixel], pixel)
    compiled(lambda a: a.red / a.green, [pixel], "f4")


def scale(x):
    return x.height * 2


def loop(a):
    best = Peak(0, 0)
    for i in range(5):
        if i * a.height > best.height:
            best = Peak(i * a.height, best.place + 1)
    return best


def with_default(a, other=Peak(3, 4)):
    return Peak(a.height + other.height, other.place)


START = Peak(1, 2)


@pytest.mark.parametrize(
    "op",
    [
        lambda a: (a.height, a.place),
        lambda a: Peak(a.height, a.place),
        lambda a: Peak(place=a.place, height=a.height),
        lambda a: Peak(a.place, a.height),  # each converted to its field's type
        lambda a: Peak(*a),
        lambda a: (scale(a), a.place),
        lambda a: START if a.height < START.height else a,
        lambda a: Other(a.height, a.place),
        loop,
        with_default,
    ],
)
def test_what_operators_may_do(op):
    compiled(op, [Peak], Peak)


def test_nested_structs_in_operators():
    compiled(lambda a: a, [Outer], Outer)
    compiled(lambda a: Outer((a.peak.height, 3), a.flags, a.scale * 2), [Outer], Outer)
    compiled(lambda a: Outer(scale=a[2], peak=Peak(1, 2), flags=(True, a.flags[1])), [Outer], Outer)
    compiled(lambda a: ((a.peak.height, a.peak.place), (not a.flags.seen, 1), a.scale), [Outer], Outer)
    compiled(lambda a: a.peak, [Outer], Peak)
    compiled(lambda a: a.flags.level, [Outer], "i4")


def place_of(x):
    return x.index + 1


def count_of(x):
    return x.count


@pytest.mark.parametrize(
    ("op", "inputs", "output"),
    [
        (lambda a, b: a if a.count > b.count else b, [Named, Named], Named),
        (lambda a: Named(a.index + 1, a.count * 2), [Named], Named),
        (lambda a: Named(count=a.count, index=a.index), [Named], Named),
        (lambda a: (place_of(a), count_of(a)), [Named], Named),
        (lambda a: a.index, [Named], "i8"),
        (lambda a: Named(index=a, count=1), ["i8"], Named),
        (lambda a: a.inner.count, [gpu_struct({"inner": Named})], "f4"),
        (lambda a: Named(a, 1).index, ["i8"], "i8"),
    ],
    ids=["choice", "make", "make by name", "helper", "read", "make of number", "nested", "within"],
)
def test_fields_with_the_names_of_methods_of_tuples(op, inputs, output):
    compiled(op, inputs, output)


HIDDEN, SHOWN = Hidden(1, (2, 3), 4, 5), Shown(1, (2, 3), 4, 5)


@pytest.mark.usefixtures("optimised")
def test_fields_that_begin_with_an_underscore_in_operators(tmp_path):
    def hidden(v, other=HIDDEN):
        inner = v[1]
        return Hidden(x=v._2, _2=HIDDEN._2 + v.x, __inner=(v[1]._, inner._z * other._1), _1=v._1 * 2)

    def shown(v, other=SHOWN):
        inner = v[1]
        return Shown(x=v.b, b=SHOWN.b + v.x, inner=(v[1].p, inner.z * other.a), a=v.a * 2)

    transforms = [cupar.unary_transform(s, s, op, cc=CC) for s, op in ((Hidden, hidden), (Shown, shown))]
    assert instructions(transforms[0], tmp_path) == instructions(transforms[1], tmp_path)
    # Those that begin with two are not to be read by name within a class, as everywhere in Python.
    compiled(eval("lambda v: v.__inner._z"), [Hidden], "f4")
    same = gpu_struct({"_a": "f4", "_b": "f4"})
    compiled(lambda a, b: same(a._a + b[1], *b[1:]), [same, same], same)
    compiled(lambda a: (a._b, a._a), [np.dtype([("_a", "u1"), ("_b", "u1")])], same)


FIRST = Named(3, 4)


def test_captured_values_with_the_names_of_methods_of_tuples():
    compiled(lambda a: a + FIRST.index, ["i8"], "i8")
    compiled(lambda a: (a.index + FIRST.index, FIRST.count), [Named], Named)


def test_such_names_elsewhere_keep_their_meaning():
    config = types.ModuleType("config")
    config.count, config.index = 2.0, 3
    count = 5.0
    compiled(lambda a: Named(a.index, a.count * count), [Named], Named)
    compiled(lambda a: Named(a.index + config.index, a.count * config.count), [Named], Named)


def test_jitted_functions_of_structs():
    from numba import cuda

    jitted = cuda.jit(device=True)(scale)
    compiled(lambda a: jitted(a) + 1, [Peak], "f4")
    compiled(cuda.jit(device=True)(lambda a: (a.height * 2, a.place)), [Peak], Peak)


def test_jitted_functions_that_make_structs():
    from numba import cuda

    jitted = cuda.jit(device=True)(lambda a: Peak(a, 1))
    compiled(lambda a: jitted(a * 2), ["f4"], Peak)
    compiled(jitted, ["f4"], Peak)


def test_jitted_functions_with_the_names_of_methods_of_tuples():
    from numba import cuda

    jitted = cuda.jit(device=True)(place_of)
    compiled(lambda a: jitted(a) + 1, [Named], "i8")
    compiled(jitted, [Named], "i8")


def test_names_that_the_wrapper_uses():
    names = [
        "operator",
        "call",
        "state",
        "in0",
        "out",
        "result",
        "struct_0",
        "array_0",
        "bool",
        "Struct",
        "cls",
    ]
    made = gpu_struct(dict.fromkeys(names, np.int16))
    assert compiled(lambda a: made(*a), [made], made)
    assert compiled(lambda a: (a.call, a.state, a.in0, a.out, a.result, *a[5:]), [made], made)


@pytest.mark.parametrize(
    ("op", "output", "message"),
    [
        (lambda a: (a.height,), Peak, r"returns \{\w+: float32\}, .*\{height: float32, place: int64\}"),
        (lambda a: (1.0, 2, 3), Peak, r"returns \{.*: float64, .*: int64, .*: int64\}, .*place: int64\}"),
        (lambda a: (a.place, a.height), Peak, r"returns \{\w+: int64, \w+: float32\}, .*not converted"),
        (lambda a: a.height, Peak, "returns float32, expected a struct"),
        (lambda a: None, Peak, "returns None, expected a struct"),
        (lambda a: (), Peak, r"returns \(\), expected a struct"),
        (lambda a: ("a", 1), Peak, "returns .*, expected a struct"),
        (lambda a: Outer(a, (True, 1), 2.0), Peak, r"returns \{peak: \{.*\}, flags: .*not converted"),
        (lambda a: (a, a), Peak, r"returns \{\w+: \{.*\}, \w+: \{.*\}\}, .*not converted"),
        (lambda a: a, "f4", r"returns \{height: float32, place: int64\}, expected a number"),
        (lambda a: (a.height,), "f4", r"returns \{\w+: float32\}, expected a number"),
    ],
)
def test_results_that_do_not_fit(op, output, message):
    with pytest.raises(TypeError, match=rf"^op: operator .* for \(\{{height: .*{message}"):
        compiled(op, [Peak], output)


def test_results_that_do_not_fit_are_refused_by_factories():
    with pytest.raises(TypeError, match="returns float32, expected a struct"):
        cupar.reduce_into(Peak, Peak, lambda a, b: a.height, None, cc=CC)
    with pytest.raises(TypeError, match=r"returns \{.*\}, expected a number") as caught:
        cupar.merge_sort(Peak, None, Peak, None, lambda a, b: (a, b), cc=CC)
    assert caught.type is cupar.ArgumentTypeError  # users can name it
    assert caught.value.parameter == "op"


def test_kinds_are_not_defined_for_structs():
    for kind in (OpKind.PLUS, OpKind.LESS, OpKind.MINIMUM, OpKind.LOGICAL_AND):
        with pytest.raises(TypeError, match=f"^op: OpKind.{kind.name} is not defined for structs; write a"):
            cupar.reduce_into(Peak, Peak, kind, None, cc=CC)
    with pytest.raises(TypeError, match="^op: OpKind.NEGATE is not defined for structs"):
        cupar.unary_transform(Peak, Peak, OpKind.NEGATE, cc=CC)
    with pytest.raises(TypeError, match=r"^d_in_keys: .* has no order; use merge_sort"):
        cupar.radix_sort(Peak, Peak, None, None, cupar.SortOrder.ASCENDING, cc=CC)


# --- Initial values --------------------------------------------------------------------------------------


def stored(h_init, dtype):
    """Return what a call hands to the kernel."""
    array = np.zeros(1, dtype)
    array[0] = initial.converted(h_init, dtype)
    return array[0].item()


def test_initial_values(specified):
    one = np.array([(1.5, 7)], Peak.dtype)
    for h_init in (
        Peak(1.5, 7),
        one,
        one[0],
        one.reshape(1, 1),
        Other(1.5, 7),
        one.view(Other.dtype),
    ):
        spec = specified(cupar.reduce_into, Peak, Peak, lambda a, b: (a[0], b[1]), h_init)
        assert structs.layout(spec.operators[0][1].output) == structs.layout(Peak.dtype)
        assert stored(h_init, Peak.dtype) == (1.5, 7)
    nested = Outer((1, 2), (True, 3), 4)
    for h_init in (nested, np.array([nested], Outer.dtype), np.array([nested], Outer.dtype)[0]):
        assert stored(h_init, Outer.dtype) == ((1, 2), (True, 3), 4)


def test_an_initial_value_whose_padding_is_a_field(specified):
    padded = np.array([(1.5, b"", 7)], np.dtype(Peak.dtype.descr))
    assert padded.dtype.names == ("height", "f1", "place")
    spec = specified(cupar.reduce_into, Peak, Peak, highest, padded)
    assert spec.operators[0][1].output == Peak.dtype
    assert stored(padded, Peak.dtype) == stored(padded[0], Peak.dtype) == (1.5, 7)


def test_a_struct_for_the_initial_value_is_the_accumulator(specified):
    spec = specified(cupar.exclusive_scan, Peak, Other, highest, Peak(1, 2))
    assert spec.operators[0][1].output == Peak.dtype
    assert not any(argument.operators for argument in spec.arguments)


@pytest.mark.parametrize(
    ("d_in", "d_out", "h_init", "error", "message"),
    [
        (Peak, Peak, Named(1, 2), TypeError, r"^d_in: \{height: .*\} is not converted to \{index: "),
        (
            Peak,
            Named,
            None,
            TypeError,
            r"^the accumulator: \{height: .*\} is not converted to \{index: .*d_out",
        ),
        (Peak, Peak, np.zeros(1, Named.dtype), TypeError, "^d_in: .*index"),
        (Peak, Peak, np.zeros(1, "f4"), TypeError, r"^d_in: \{height: .*\} is not converted to float32"),
        (Peak, "f4", None, TypeError, r"^the accumulator: \{height: .* is not converted to float32 of d_out"),
        ("f4", Peak, None, TypeError, r"^the accumulator: float32 is not converted to \{height: "),
        (Peak, Peak, 0, TypeError, "^h_init: 0 is not converted"),
        (Peak, Peak, (1.0, 2), TypeError, "^h_init: expected .* got tuple"),
        (Peak, Peak, {"height": 1, "place": 2}, TypeError, "^h_init: expected .* got dict"),
        (Peak, Peak, Peak, TypeError, "^h_init: expected .* got type"),
        (Peak, Peak, np.zeros(2, Peak.dtype), ValueError, "^h_init: .*an array of 2"),
    ],
)
def test_wrong_initial_values_and_outputs(d_in, d_out, h_init, error, message):
    for factory in (cupar.reduce_into, cupar.inclusive_scan):
        with pytest.raises(error, match=message):
            factory(d_in, d_out, lambda a, b: a, h_init, cc=CC)


def test_wrong_initial_values_of_calls():
    for wrong in (
        Named(1, 2),
        np.zeros(1, Named.dtype),
        np.zeros(1, Named.dtype)[0],
        np.zeros(1, "f4"),
        1.0,
        None,
    ):
        with pytest.raises(TypeError, match="^h_init: "):
            initial.converted(wrong, Peak.dtype)


def test_outputs_of_another_layout():
    with pytest.raises(TypeError, match=r"^d_out_keys: expected \{height: .*of d_in_keys, got \{index: "):
        cupar.merge_sort(Peak, None, Named, None, lambda a, b: a[0] < b[0], cc=CC)


# --- Keys ------------------------------------------------------------------------------------------------


def first(a, b):
    return a if a[0] < b[0] else b


RAW = RawOp("least", b"code")


@pytest.mark.parametrize(
    ("op", "same_build"), [(first, False), (RAW, True), (RawOp("least", b"code", state=b"12345678"), True)]
)
def test_names_of_fields_are_no_part_of_kernels(op, same_build, specified):
    one = specified(cupar.reduce_into, Peak, Peak, op, None)
    two = specified(cupar.reduce_into, Other, Other, op, None)
    assert _key.template_parts(one) == _key.template_parts(two)
    assert (key(one) == key(two)) == same_build


@pytest.mark.parametrize(
    "other",
    [
        gpu_struct({"height": "f4", "place": "u8"}),
        gpu_struct({"height": "i4", "place": "i8"}),
        gpu_struct({"height": "f4", "place": {"place": "i8"}}),
        gpu_struct({"height": "f4", "place": "i8", "more": "i1"}),
        gpu_struct(np.dtype({"names": ["height", "place"], "formats": ["f4", "i8"], "offsets": [4, 8]})),
        gpu_struct(
            np.dtype(
                {"names": ["height", "place"], "formats": ["f4", "i8"], "offsets": [0, 8], "itemsize": 24}
            )
        ),
    ],
    ids=lambda struct: structs.text(struct.dtype),
)
def test_layouts_are_part_of_kernels(other, specified):
    for op in (first, RAW):
        one = specified(cupar.reduce_into, Peak, Peak, op, None)
        two = specified(cupar.reduce_into, other, other, op, None)
        assert _key.digest(_key.template_parts(one)) != _key.digest(_key.template_parts(two))
        assert key(one) != key(two)


def test_names_within_structs_are_part_of_builds(specified):
    inner = [gpu_struct({"inner": {"x": "f4", name: "i8"}}) for name in ("y", "z")]
    one, two = (specified(cupar.unary_transform, kind, "f4", lambda a: a.inner[0]) for kind in inner)
    assert _key.template_parts(one) == _key.template_parts(two)
    assert key(one) != key(two)


def test_classes_of_equal_fields_share_a_build():
    again = gpu_struct({"height": np.float32, "place": np.int64}, "Again")
    one = cupar.reduce_into(Peak, Peak, highest, Peak(0, 0), cc=CC)
    two = cupar.reduce_into(again, again.dtype, highest, again(0, 0), cc=CC)
    assert two.build.origin == "memory"
    assert two.build.key == one.build.key
    assert two is cupar.reduce_into(again, Peak, highest, np.zeros(1, Peak.dtype), cc=CC)


def test_a_template_is_used_for_other_names(empty_cache):
    one = cupar.unary_transform(Peak, "f4", lambda a: a[0], cc=CC)
    two = cupar.unary_transform(Other, "f4", lambda a: a.left, cc=CC)
    assert (one.build.origin, two.build.origin) == ("built", "linked")


def capturing(value):
    """Return operators that read a value as a global, as a closure variable, and as a default argument."""
    source = """
        def read(a): return captured, a
        def around(captured):
            def op(a): return captured, a
            return op
        def default(a, b=captured): return b, a
        """
    namespace = {"captured": value}
    exec(textwrap.dedent(source), namespace)
    return namespace["read"], namespace["around"](value), namespace["default"]


def digests(value):
    return [walk.fingerprint(op).digest for op in capturing(value)]


def test_fingerprints_of_operators_that_capture_structs():
    same = digests(gpu_struct({"a": "f4", "b": "i8"}))
    assert digests(gpu_struct({"a": np.float32, "b": int}, "Renamed")) == same
    assert len(set(same)) == 3
    for fields in ({"a": "f8", "b": "i8"}, {"a": "f4", "c": "i8"}, {"b": "f4", "a": "i8"}, {"a": "f4"}):
        assert not set(digests(gpu_struct(fields))) & set(same), fields
    wide = np.dtype({"names": ["a", "b"], "formats": ["f4", "i8"], "offsets": [0, 16], "itemsize": 24})
    assert not set(digests(gpu_struct(wide))) & set(same)


def test_fingerprints_of_operators_that_capture_values():
    one = gpu_struct({"a": "f4", "b": "i8"})
    same = digests(one(1, 2))
    assert digests(gpu_struct({"a": np.float32, "b": int}, "Renamed")(1, 2)) == same
    others = [
        one(1, 3),
        one(-1, 2),
        gpu_struct({"a": "f8", "b": "i8"})(1, 2),
        gpu_struct({"x": "f4", "b": "i8"})(1, 2),
    ]
    others += [one, (np.float32(1), np.int64(2)), namedtuple("Plain", "a b")(np.float32(1), np.int64(2))]
    assert len({digest for other in [one(1, 2), *others] for digest in digests(other)}) == 3 * (
        1 + len(others)
    )


def test_a_struct_that_changes_is_noticed():
    op, *_ = capturing(Peak)
    before = walk.fingerprint(op)
    assert before.guard.check(op)
    for other in (gpu_struct({"height": "f8", "place": "i8"}), Peak(1, 2), Peak(1, 3)):
        op.__globals__["captured"] = other
        assert not before.guard.check(op)
        now = walk.fingerprint(op)
        assert now.digest != before.digest
        before = now


def test_captured_structs_change_builds(empty_cache):
    def maker(kind, start):
        return lambda a: kind(a[0], start.place).height

    double = gpu_struct({"height": "f8", "place": "i8"})
    one = cupar.unary_transform(Peak, "f8", maker(Peak, START), cc=CC)
    for kind, start in ((double, START), (Peak, Peak(1, 3))):
        other = cupar.unary_transform(Peak, "f8", maker(kind, start), cc=CC)
        assert other.build.origin == "linked"
        assert other.build.key != one.build.key
    assert cupar.unary_transform(Peak, "f8", maker(Peak, Peak(1, 2)), cc=CC).build.origin == "memory"


@pytest.mark.parametrize("dtype", [np.dtype("3f4,i4"), np.dtype([("f0", "V8"), ("f1", "i4")])])
def test_no_field_is_taken_for_padding(dtype):
    with pytest.raises(TypeError, match="^fields: field 'f0': dtype .* is not supported"):
        gpu_struct(dtype)
