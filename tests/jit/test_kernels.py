"""Users' kernels without a GPU: builds, keys, and hits."""

import enum
import math
import os
import struct
import subprocess
import sys
import textwrap
from collections import namedtuple

import numba
import numpy as np
import pytest
from numba import cuda, types
from numba.cuda.random import xoroshiro128p_dtype, xoroshiro128p_uniform_float32
from support import cubins

import cupar
from cupar._ahead import codec
from cupar._ahead import record as _record
from cupar._compile.key import build_parts, digest
from cupar._ir.cpp import kernel_symbol
from cupar._ir.types import Array, Item, slots
from cupar._jit.overload import all_types
from cupar._jit.signatures import type_of

CC = 90
F = "float32[::1]"
RECORD = np.dtype([("a", "f8"), ("b", "i4"), ("c", "c8"), ("d", ("u1", 5))], align=True)
NUMBA_RECORD = numba.from_dtype(RECORD)
STATES = types.Array(numba.from_dtype(xoroshiro128p_dtype), 1, "C")
TABLE = np.arange(10, dtype="f4")
SCALE = 5
Pair = namedtuple("Pair", "x y")


@cupar.gpu_struct
class Peak:
    height: np.float32
    index: np.int64
    valid: bool


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


@cuda.jit(device=True)
def twice(a):
    return 2 * a


def more(a):
    return twice(a) + SCALE


@cupar.jit(device=True, inline="always")
def inlined(a):
    return a + 3


def functions(x):
    x[0] = more(x[1]) + inlined(x[2]) + math.sin(x[0])


def shared(x):
    here, rest = cuda.shared.array((8, 8), numba.float32), cuda.shared.array(0, dtype=np.int32)
    here[0, cuda.threadIdx.x] = x[0] + rest[1]
    cuda.syncthreads()
    x[1] = here[0, 7 - cuda.threadIdx.x]


def records_in_shared_memory(x):
    here = cuda.shared.array(4, NUMBA_RECORD)
    here[0].a = 1
    cuda.syncthreads()
    x[0] = here[0].a


def local_and_constant(x):
    own, table = cuda.local.array(10, types.int32), cuda.const.array_like(TABLE)
    own[3] = 1
    x[cuda.grid(1)] = own[int(x[1]) % 10] + table[cuda.laneid % 10]


def atomics(x, y):
    cuda.atomic.add(x, 0, 1.0)
    cuda.atomic.cas(y, 0, 1, 2)


def records(r, i):
    r[i].a = r[i].b + 1
    r[i]["c"] = 1j
    r[i].d[0] = 3


def one_record(r, x):
    x[0] = r.a


def a_tuple(x, t):
    x[0] = t[0] + t[1][0] + t[1][1]


def a_named_tuple(x, p):
    x[0] = p.x + p.y


def a_struct(x, p):
    x[0] = p.height + p.index + p.valid


def numbers(x, z, h, b, u):
    x[0] = (z * z).real + h + b + u


def a_member(x, colour):
    if colour == Colour.RED:
        x[0] = 1


def two(x):
    i, j = cuda.grid(2)
    x[i, j] = i + j


def three(x):
    x[cuda.blockIdx.x, cuda.threadIdx.y, cuda.blockDim.z] = cuda.gridDim.x + cuda.warpsize


def whole_grid(x):
    grid = cuda.cg.this_grid()
    x[0] = 1
    grid.sync()
    x[1] = x[0]


def reshaped(x, y):
    y[0] = x.reshape(4, 2)[1, 1]


def halves(x):
    x[0] = cuda.fp16.hsin(x[1]) + x[2] * np.float16(2)


def warps(x):
    x[cuda.grid(1)] = cuda.shfl_down_sync(0xFFFFFFFF, x[cuda.grid(1)], 1) + cuda.popc(3)


def prints(x):
    print("x is", x[0])


def vectors(x):
    v = cuda.float32x4(1.0, 2.0, 3.0, 4.0)
    x[0] = v.x + v.w


def dates(x, d):
    x[0] = d


def reads(x, y):
    x[0] = y[0]


def raises(x):
    if x[0] < 0:
        raise ValueError
    x[0] = 1


def nothing():
    pass


def strided(x):
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        x[i] += 1


def random(states, x):
    x[0] = xoroshiro128p_uniform_float32(states, 0)


def no_items(x, t):
    x[0] = len(t)


def closure(k):
    def inner(x):
        x[0] = k + SCALE

    return inner


KERNELS = [
    (functions, (F,)),
    (shared, (F,)),
    (records_in_shared_memory, (F,)),
    (local_and_constant, (F,)),
    (atomics, (F, "int32[:]")),
    (records, (types.Array(NUMBA_RECORD, 1, "C"), "int64")),
    (one_record, (NUMBA_RECORD, F)),
    (a_tuple, (F, "Tuple((int64, UniTuple(float32, 2)))")),
    (a_named_tuple, (F, numba.typeof(Pair(1, 2.0)))),
    (a_struct, (F, Peak)),
    (numbers, (F, np.complex64, np.float16, bool, np.uint8)),
    (numbers, (F, np.complex128, np.float64, np.int16, np.uint64)),
    (a_member, (F, numba.typeof(Colour.RED))),
    (two, ("int32[:, :]",)),
    (two, ("bool_[:, ::1]",)),
    (three, ("int64[::1, :, :]",)),
    (three, ("float64[:, :, ::1]",)),
    (whole_grid, (F,)),
    (reshaped, (F, F)),
    (halves, ("float16[:]",)),
    (warps, ("int32[:]",)),
    (prints, (F,)),
    (vectors, (F,)),
    (dates, (types.Array(types.NPDatetime("D"), 1, "C"), types.NPDatetime("D"))),
    (reads, (F, types.Array(types.float32, 1, "C", readonly=True))),
    (raises, (F,)),
    (nothing, ()),
    (strided, ("complex128[:]",)),
    (random, (STATES, F)),
    (no_items, (F, "Tuple(())")),
    (closure(3), (F,)),
]


@pytest.mark.parametrize("function, signature", KERNELS, ids=lambda each: getattr(each, "__name__", ""))
def test_the_code_has_the_parameters_that_are_packed(function, signature):
    kernel = cupar.jit(function)
    overload = kernel.compile(*signature, cc=CC) if signature else kernel.compile((), cc=CC)
    name = kernel_symbol(function.__name__)
    cubin = overload.cubin()
    packed = [slot for i, kind in enumerate(all_types(overload._spec)) for slot in slots(kind, f"{i}_")]
    assert cubins.parameters(cubin, name) == [struct.calcsize(f"={slot.code}") for slot in packed]
    assert [each for each in cubins.kernels(cubin) if "cupar" in each] == [name]
    again = codec.loads(codec.dumps(overload._spec)) if overload.build.origin == "built" else None
    if again is not None:
        assert digest(build_parts(again)) == overload.build.key


def test_a_kernel_is_named_in_profilers():
    assert kernel_symbol("add") == "_ZN5cupar3addEv"
    assert kernel_symbol("<lambda>") == "_ZN5cupar6lambdaEv"
    assert kernel_symbol("größe") == "_ZN5cupar5gr__eEv"


def axpy(x, y, alpha):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += alpha * x[i]


SIGNATURE = "void(float32[::1], float32[::1], float64)"


def key(function=axpy, signature=SIGNATURE, cc=CC, **options):
    return cupar.jit(**options)(function).compile(signature, cc=cc).build.key


def test_what_a_key_depends_on(empty_cache):
    def other(x, y, alpha):
        i = cuda.grid(1)
        if i < x.size:
            y[i] -= alpha * x[i]

    other.__name__ = "axpy"
    keys = [
        key(),
        key(other),
        key(signature="void(float32[:], float32[::1], float64)"),
        key(signature="void(float64[::1], float32[::1], float64)"),
        key(signature="void(float32[::1], float32[::1], int64)"),
        key(cc=80),
        key(fastmath=True),
        key(max_registers=32),
        key(launch_bounds=256),
        key(lineinfo=True),
        key(opt=False),
    ]
    assert len(set(keys)) == len(keys)
    same = [key(fastmath=False), key(cache=True), key(shared_memory_carveout="maxl1"), key(opt=True)]
    assert set(same) == {keys[0]}


@pytest.mark.parametrize(
    "given",
    [
        ("float32[::1]", "float32[::1]", "float64"),
        ("float32[::1], float32[::1], float64",),
        ("void(f4[::1], f4[::1], f8)",),
        (types.void(types.float32[::1], types.float32[::1], types.float64),),
        ((types.float32[::1], types.float32[::1], types.float64),),
        (types.float32[::1], "float32[::1]", np.float64),
        ("float32[::1]", "float32[::1]", float),
        ("float32[::1]", "float32[::1]", 1.5),
    ],
)
def test_signatures_are_written_in_many_ways(given, specified):
    want = specified(cupar.jit(axpy).compile, SIGNATURE)
    assert specified(cupar.jit(axpy).compile, *given) == want


NESTED = np.dtype([("a", "i1"), ("b", RECORD, 2), ("c", [("x", "f4"), ("y", "i8")])], align=True)


@pytest.mark.parametrize("dtype", [RECORD, NESTED, np.dtype([("a", "i1"), ("b", "f8")])])
def test_records_are_as_aligned_as_they_are_in_numba(dtype):
    kind = type_of("x", types.Array(numba.from_dtype(dtype), 1, "C"))
    assert kind == Array(Item.of(dtype), 1, "C")
    assert kind.item.dtype.isalignedstruct == dtype.isalignedstruct


@pytest.mark.parametrize(
    "given, message",
    [
        (("void(float32[::1])",), "^signature: has 1 types, the kernel has 3 parameters"),
        (("float64(float32[:], float32[:], float64)",), "^signature: a kernel returns nothing"),
        (("void(float32[:], float33[:], float64)",), "^signature: .*float33"),
        (("void(float32[:]",), "^signature: expected one as in"),
        ((3.0,), "^signature: has 1 types"),
        ((np.zeros(3), F, "float64"), "^x: expected a device array, got a NumPy array"),
        ((types.unicode_type, F, "float64"), "^x: a kernel cannot have a parameter of numba's type"),
    ],
)
def test_what_is_no_signature(given, message):
    with pytest.raises(TypeError, match=message):
        cupar.jit(axpy).compile(*given, cc=CC)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"debug": True}, TypeError, "^debug: "),
        ({"boundscheck": True}, TypeError, "^boundscheck: "),
        ({"extensions": [1]}, TypeError, "^extensions: "),
        ({"argtypes": "f4"}, TypeError, "^argtypes: "),
        ({"lto": False}, TypeError, "^lto: "),
        ({"speed": 3}, TypeError, "^speed: unknown"),
        ({"fastmath": "yes"}, TypeError, "^fastmath: expected True or False"),
        ({"max_registers": 0}, ValueError, "^max_registers: expected an integer from 1 to 255"),
        ({"launch_bounds": (1, 2, 3, 4)}, ValueError, "^launch_bounds: expected up to three"),
        ({"shared_memory_carveout": "all"}, ValueError, "^shared_memory_carveout: expected one of"),
        ({"cc": "9"}, ValueError, "^cc: "),
    ],
)
def test_options_that_cannot_be_had(options, error, message):
    with pytest.raises(error, match=message) as caught:
        cupar.jit(**options)(axpy)
    assert "cc" in options or [caught.value.parameter] == [*options]


def test_what_cannot_be_decorated():
    with pytest.raises(TypeError, match="^function: expected a Python function, got int"):
        cupar.jit(3)
    with pytest.raises(TypeError, match="^function: parameter \\*args"):
        cupar.jit(lambda *args: None)
    with pytest.raises(TypeError, match="not pickled"):
        import pickle

        pickle.dumps(cupar.jit(axpy))


def test_what_cannot_be_compiled():
    def returns(x):
        return x[0]

    def unknown(x):
        x[0] = input("file")

    def formats(x):
        x[0] = len(f"{x}")

    with pytest.raises(TypeError, match="cannot compile kernel returns .*void return type"):
        cupar.jit(returns).compile(F, cc=CC)
    with pytest.raises(TypeError, match="kernel unknown .*does not know the built-in function input"):
        cupar.jit(unknown).compile(F, cc=CC)
    with pytest.raises(TypeError, match="kernel formats .*formats a string"):
        cupar.jit(formats).compile(F, cc=CC)


def test_overloads():
    kernel = cupar.jit(axpy)
    with pytest.raises(ValueError, match="compiled for nothing yet"):
        kernel.build
    first = kernel.compile(SIGNATURE, cc=CC)
    assert kernel.compile(SIGNATURE, cc=CC) is first
    assert kernel.build == first.build
    assert kernel.overloads[SIGNATURE] is first
    assert kernel.overloads[types.float32[::1], types.float32[::1], types.float64] is first
    assert len(kernel.overloads) == 1
    second = kernel.compile("void(float64[:], float32[:], int64)", cc=CC)
    assert len(kernel.signatures) == len(kernel.overloads) == 2
    assert second.build.key != first.build.key
    with pytest.raises(ValueError, match="2 signatures"):
        kernel.build
    with pytest.raises(KeyError):
        kernel.overloads["void(float64[:], float64[:], int64)"]


def test_signatures_of_the_decorator_are_compiled_at_once(empty_cache):
    kernel = cupar.jit([SIGNATURE, "void(float64[:], float64[:], float64)"], cc=CC)(axpy)
    assert [each.build.origin for each in kernel.overloads.values()] == ["built", "built"]
    with pytest.raises(TypeError, match="none of its signatures takes"):
        kernel.compile("void(int8[:], int8[:], float64)", cc=CC)


def test_in_the_background(empty_cache):
    kernel = cupar.jit(axpy)
    overload = kernel.compile(SIGNATURE, cc=CC, wait=False)
    assert overload.ready(60)
    assert overload.build.origin == "built"
    assert overload.build.key == key()


SCRIPT = """
import sys
import cupar
from numba import cuda
SCALE = {scale}

@cupar.jit
def scale(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= SCALE

build = scale.compile("void(float32[::1])", cc=90).build
print(build.origin, build.key, "numba.cuda.compiler" in sys.modules, build.source)
"""


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def cupar_(words, **environment):
    words = [sys.executable, "-m", "cupar", *words]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_process_finds_it(empty_cache, tmp_path):
    """A list of what one run asked for is built by another, and put into a bundle that a third one reads."""
    asked, bundle = tmp_path / "asked.jsonl", tmp_path / "all.cupar"
    origin, built, *_ = run(SCRIPT.format(scale=2), CUPAR_RECORD=str(asked))
    assert origin == "built"
    assert run(SCRIPT.format(scale=2))[:2] == ["disk", built]
    origin, other, *_ = run(SCRIPT.format(scale=3))
    assert origin == "built" and other != built
    (request,) = _record.read(asked)
    assert request.algorithm == "kernel"
    assert request.types == ["x: array(float32, 1d, C)"]
    assert request.operators == ["kernel: scale"]
    assert request.key == built
    elsewhere = {"CUPAR_CACHE_DIR": str(tmp_path / "elsewhere")}
    cupar_(("build", str(asked), "--cc", "90"), **elsewhere)
    cupar_(("cache", "export", str(bundle)), **elsewhere)
    third = {"CUPAR_CACHE_DIR": str(tmp_path / "third"), "CUPAR_BUNDLES": str(bundle)}
    origin, found, _, source = run(SCRIPT.format(scale=2), **third)
    assert (origin, found, source) == ("disk", built, str(bundle))


def test_a_script_is_built_ahead(empty_cache, tmp_path):
    """What it declares and compiles is built for each compute capability, in helper processes."""
    script = tmp_path / "script.py"
    text = textwrap.dedent(SCRIPT.format(scale=4)).replace(", cc=90).build", ")").splitlines()[:-1]
    script.write_text("\n".join(text))
    cupar_(("build", str(script), "--cc", "80,90"))
    both = [SCRIPT.format(scale=4), "print(scale.compile('void(float32[::1])', cc=80).build.origin)"]
    origin, *_, other = run("\n".join(both))
    assert (origin, other) == ("disk", "disk")


def test_what_differs_is_explained(empty_cache):
    one = key()
    other = key(signature="void(float64[::1], float32[::1], float64)")
    (difference,) = cupar.cache.explain(other, one).differences
    assert str(difference) == "x: array(float64, 1d, C), was array(float32, 1d, C)"
    (difference,) = cupar.cache.explain(key(fastmath=True), one).differences
    assert str(difference) == "option fastmath: true, was not there"


def test_what_is_told_as_numba_does():
    kernel = cupar.jit(axpy)
    assert kernel.inspect_llvm() == {}
    kernel.compile(SIGNATURE, cc=CC)
    (shown,) = kernel.inspect_llvm().values()
    assert "define" in shown
    assert "define" in kernel.inspect_llvm(SIGNATURE)
    assert ".entry _ZN5cupar4axpyEv" in kernel.inspect_asm(SIGNATURE)
    assert list(kernel.inspect_lto_ptx()) == kernel.signatures
    overload = kernel.overloads[SIGNATURE]
    assert overload.inspect_asm((9, 0)) == overload.build.ptx()
    with pytest.raises(ValueError, match="^cc: this was compiled for 90, got 80"):
        overload.inspect_asm(80)
    for name, message in (
        ("stats", "cupar.cache.stats"),
        ("inspect_types", "how it types"),
        ("gone", "gone"),
    ):
        with pytest.raises(AttributeError, match=message):
            getattr(kernel, name)
    assert not hasattr(kernel, "extensions")


def test_sass_is_shown():
    pytest.importorskip("support.disassembly").tool("nvdisasm")
    kernel = cupar.jit(SIGNATURE, cc=CC)(axpy)
    (shown,) = kernel.inspect_sass().values()
    assert "EXIT" in shown
    assert kernel.specialized
    assert not cupar.jit([SIGNATURE], cc=CC)(axpy).specialized


def test_compiling_can_be_disabled():
    kernel = cupar.jit(axpy)
    first = kernel.compile(SIGNATURE, cc=CC)
    kernel.disable_compile()
    assert kernel.compile(SIGNATURE, cc=CC) is first
    with pytest.raises(TypeError, match=r"axpy: is not compiled for \(array\(float32, 1d, A\), .*disabled"):
        kernel.compile("void(float32[:], float32[::1], float64)", cc=CC)
    kernel.recompile()
    kernel.disable_compile(False)
    assert kernel.compile("void(float32[:], float32[::1], float64)", cc=CC).build.key != first.build.key


@cupar.jit("float32(float32)", device=True)
def third(x):
    return x / 3


@cupar.jit([types.int64(types.int64, types.int64), "(f4, f4)"], device=True)
def added(a, b):
    return a + b


def test_device_functions_with_signatures_convert(empty_cache):
    """As numba.cuda does it: what they are called with is converted to the types that were declared."""

    @cupar.jit
    def kernel(x, y):
        y[0] = third(x[0]) + added(1, x[1]) + added(np.int8(1), np.int8(2))

    overload = kernel.compile("float64[::1]", "float64[::1]", cc=CC)
    assert "div.rn.f32" in overload.build.ptx()
    assert "div.rn.f64" not in overload.build.ptx()
    assert cupar.unary_transform("f8", "f4", third, cc=CC).build.origin == "built"
    again = cupar.jit("float64(float64)", device=True)(third)

    @cupar.jit
    def other(x, y):
        y[0] = again(x[0])

    assert "div.rn.f64" in other.compile("float64[::1]", "float64[::1]", cc=CC).build.ptx()
    with pytest.raises(TypeError, match="^signature: .*write it as in"):
        cupar.jit([3], device=True)(lambda x: x)


@pytest.mark.parametrize("align", [True, False])
def test_items_of_a_recarray_are_those_of_an_array(align):
    dtype = np.dtype([("a", "i4"), ("b", "f8")], align=align)
    found = Item.of(np.recarray(3, dtype=dtype).dtype)
    assert found == Item.of(dtype)
    assert found.dtype.alignment == dtype.alignment
