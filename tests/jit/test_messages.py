"""What kernels say of bad input, and in how many ways a signature is written."""

import enum

import numpy as np
import pytest
from numba import cuda, types

import cupar
from cupar import _numba

CC = 90
F = "float32[::1]"


class Colour(enum.IntEnum):
    RED = 1


class Weight(enum.Enum):
    HEAVY = 2.5


def copied(x):
    y = x.copy()
    x[0] = y[0]


def summed(x):
    y = x + 1
    x[0] = y[0]


def member(x):
    x[0] = Colour.RED


def converted(x):
    x[0] = float(Colour.RED)


def pair(x):
    x[0] = (1, 2)


def nothing(x):
    x[0] = None


def weight(x):
    x[0] = Weight.HEAVY


def whole(x):
    x[0] = x


def deep(x):
    x[0, 1] = 1


def between(x):
    x[1.5] = 1


def of_an_item(x):
    a = x[0]
    a[0] = 1


@pytest.mark.parametrize(
    "function, message",
    [
        (copied, "makes an array, for which a kernel has no memory"),
        (summed, "makes an array, for which a kernel has no memory"),
        (member, "a member of the enum Colour is not converted to float32: take its `value`"),
        (converted, "no float of a member of the enum Colour: take its `value`"),
        (pair, r"\(1, 2\) cannot be stored in array\(float32, 1d, C\), whose items are float32"),
        (nothing, "None cannot be stored in array"),
        (weight, "the enum Weight cannot be stored in array"),
        (whole, r"array\(float32, 1d, C\) cannot be stored in array"),
        (deep, "is indexed by 2 indices, and has 1 dimension$"),
        (between, "is indexed by float64, expected an integer or a slice"),
        (of_an_item, "float32 has no items to assign"),
    ],
)
def test_what_numba_refuses_is_told_in_a_sentence(function, message):
    with pytest.raises(TypeError, match=f"(?m)cannot compile kernel {function.__name__} .*{message}"):
        cupar.jit(function).compile(F, cc=CC)


def set_item(items, x):
    items[0] = x[0]


def test_items_of_a_tuple_are_constant():
    with pytest.raises(TypeError, match=r"\(int64, int64\) is a tuple, whose items are constant"):
        cupar.jit(set_item).compile("UniTuple(int64, 2)", "int64[::1]", cc=CC)


def double(x):
    x[0] *= 2


def take(x):
    pass


@pytest.mark.parametrize(
    "given",
    [F, f"void({F})", f"({F},)", types.float32[::1], types.void(types.float32[::1]), (F,)]
    + [(types.float32[::1],)],
)
def test_a_signature_of_one_parameter_is_written_alike_everywhere(given):
    compiled = cupar.jit(given, cc=CC)(double)
    (overload,) = compiled.overloads.values()
    assert compiled.compile(given, cc=CC) is compiled.overloads[given] is overload
    assert cupar.jit([given], cc=CC)(double).signatures == compiled.signatures
    assert compiled.inspect_asm(given) == compiled.inspect_asm()[given] == overload.inspect_asm()
    assert given in compiled.overloads


@pytest.mark.parametrize("given", [np.int64, np.dtype("i8"), "int64", types.int64, int])
def test_so_is_that_of_a_number(given):
    (overload,) = cupar.jit(given, cc=CC)(take).overloads.values()
    assert cupar.jit(take).compile(given, cc=CC).types == overload.types


def test_what_was_not_compiled_is_said():
    kernel = cupar.jit(double)
    kernel.compile(F, cc=CC)
    message = (
        r"^double: is not compiled for \(array\(float64, 1d, C\)\); it is for \(array\(float32, 1d, C\)\)"
    )
    other = "void(float64[::1])"
    for ask in (kernel.inspect_llvm, kernel.inspect_asm, kernel.inspect_sass, kernel.overloads.__getitem__):
        with pytest.raises(KeyError) as caught:
            ask(other)
        assert caught.match(message)
    with pytest.raises(KeyError, match=message):
        kernel.inspect_asm()[other]
    with pytest.raises(KeyError, match=message):
        kernel.max_cooperative_grid_blocks(32, 0, other)
    with pytest.raises(KeyError, match="it is for nothing"):
        cupar.jit(double).inspect_llvm(other)
    assert kernel.overloads.get(other) is None and other not in kernel.overloads


@pytest.mark.parametrize("given", [{"contract"}, frozenset({"nnan"}), {"contract": True}, set()])
def test_parts_of_fastmath_are_refused(given):
    with pytest.raises(TypeError, match="^fastmath: expected True or False, got .*numba.cuda takes all"):
        cupar.jit(fastmath=given)(double)


def test_kernels_are_for_gpus_and_say_so_where_arrays_are_not_there():
    """And the hint that algorithms run on the CPU is theirs."""
    kernel, x = cupar.jit(double), np.zeros(3, "f4")
    only = "kernels run on GPUs alone, algorithms on the CPU, too$"
    with pytest.raises(
        TypeError, match=f"^x: expected a device array, got a NumPy array.* as with .*: {only}"
    ):
        kernel[1, 32](x)
    with (
        cupar.device("cpu"),
        pytest.raises(TypeError, match=f"^x: expected the device 'cuda', got 'cpu'.*{only}"),
    ):
        kernel[1, 32](x)
    with pytest.raises(
        TypeError, match="^d_in: expected a device array, .*, or run algorithms on the CPU, as in"
    ):
        cupar.reduce_into(x, x, cupar.OpKind.PLUS, 0, cc=CC)


def test_forall_takes_integers():
    kernel = cupar.jit(double)
    for name, given in (("ntasks", (3.5,)), ("ntasks", ("3",)), ("tpb", (3, 2.5))):
        with pytest.raises(TypeError, match=f"^{name}: expected an integer, got "):
            kernel.forall(*given)
    kernel.forall(np.int64(0), None)()  # which launches nothing


HARMFUL = ["__import__('os').abort()", "float32.__class__", "(lambda: float32)()", "eval('float32')"]


@pytest.mark.parametrize(
    "text", [*HARMFUL, "[float32 for i in (1,)]", "np.float32", "float32 if 1 else int8"]
)
def test_signatures_do_nothing_but_name_types(text):
    for make in (
        lambda: cupar.jit(take).compile(f"void({text})", cc=CC),
        lambda: cupar.jit(take).compile(text, cc=CC),
        lambda: _numba.compile_device(cuda.jit(device=True)(take), f"void({text})"),
        lambda: _numba.signature(f"float32({text})"),
        lambda: _numba.declare("f", f"float32({text})", "c", False),
    ):
        with pytest.raises(TypeError, match=r"is not one of numba's types|is no type"):
            make()


@pytest.mark.parametrize(
    "text, same",
    [
        (
            "Array(float32, 1, 'C', True, aligned=True)",
            types.Array(types.float32, 1, "C", True, aligned=True),
        ),
        ("Tuple((int64, UniTuple(int8, 2)))", types.Tuple((types.int64, types.UniTuple(types.int8, 2)))),
        ("CPointer(complex64)", types.CPointer(types.complex64)),
        ("void(float32[:, ::1], b1)", types.void(types.float32[:, ::1], types.boolean)),
        ("NPDatetime('ns')", types.NPDatetime("ns")),
        ("float32[::1](int64)", types.float32[::1](types.int64)),
    ],
)
def test_all_types_of_numba_can_be_written(text, same):
    assert _numba.parsed(text) == same


class Foreign:
    """An array of a library that cupar does not know."""

    def __init__(self, typestr, shape=(4,), **more):
        self.interface = {"shape": shape, "typestr": typestr, "data": (4096, False), "version": 3, **more}

    @property
    def __cuda_array_interface__(self):
        return self.interface


class Bare:
    """One that has its interface itself, as Numba's tests do."""

    def __init__(self, typestr):
        self.__cuda_array_interface__ = Foreign(typestr).interface


TABLE, BARE, TEXTS = Foreign("<f4"), Bare("<f4"), Foreign("<U4")


def reads(x):
    x[0] = TABLE[0] + BARE[0]


def through_a_function(x):
    x[0] = first_of_table()


def first_of_table():
    return TABLE[0]


def reads_texts(x):
    x[0] = len(TEXTS[0])


@pytest.mark.parametrize("make", [Foreign, Bare])
def test_arrays_that_have_an_interface_alone(make):
    kernel = cupar.jit(double)
    overload = kernel.compile(make("<f4"), cc=CC)
    assert overload is kernel.compile(F, cc=CC)
    assert kernel.types_for((make("<f4"),)) == overload.types


def test_they_can_be_captured_by_a_kernel_and_not_by_what_it_calls():
    assert cupar.jit(reads).compile(F, cc=CC).build.cubin_size
    with pytest.raises(TypeError, match="'TABLE' in 'first_of_table' .* must be a global or a closure var"):
        cupar.jit(through_a_function).compile(F, cc=CC)


@pytest.mark.parametrize("dtype", ["<U4", "|O8"])
def test_arrays_of_texts_and_objects_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match=rf"^x: items of dtype {np.dtype(dtype)} are not supported on a GPU"):
        cupar.jit(double).compile(Foreign(dtype), cc=CC)
    with pytest.raises(TypeError, match=r"^x\[1\]: items of dtype"):
        cupar.jit(double).types_for(((1, Foreign(dtype)),))


def test_a_captured_array_of_texts_is_refused_by_name():
    with pytest.raises(TypeError, match=r"^global 'TEXTS': dtype <U4 is not supported"):
        cupar.jit(reads_texts).compile(F, cc=CC)


@pytest.mark.parametrize(
    "value, got",
    [(None, "None$"), ([1, 2], "list: make it a tuple, or a device array$"), ("a", "str$"), ({}, "dict$")]
    + [(np.str_("a"), "str_$"), (b"a", "bytes$"), (Foreign, "type$")],
)
def test_what_is_neither_an_array_nor_a_number(value, got):
    kernel = cupar.jit(double)
    expected = f"expected a device array, a number, a tuple or a struct, got {got}"
    with pytest.raises(TypeError, match=f"^x: {expected}"):
        kernel.types_for((value,))
    with pytest.raises(TypeError, match=rf"^x\[1\]: {expected}"):
        kernel.types_for(((1, value),))
    with pytest.raises(TypeError, match=f"^x: {expected}"):
        cupar.jit(F)(double).types_for((value,))
