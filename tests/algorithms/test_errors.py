"""What is refused, and what the message says: the argument, what it got, what was expected."""

import copy
import functools
import os
import pickle
import random
import re
import subprocess
import sys
import time
import traceback

import numpy as np
import pytest
from numba import cuda

import cupar
from cupar._compile import cccl, nvrtc, toolchain
from cupar._device import driver
from cupar._obtain.target import parse_cc

CC = 90
INT = np.zeros(1, np.int32)


def build(
    op=lambda a, b: a + b, h_init=INT, d_in=np.int32, d_out=np.int32, factory=cupar.reduce_into, **options
):
    return factory(d_in, d_out, op, h_init, **{"cc": CC, **options})


@pytest.fixture
def no_gpu(monkeypatch):
    """Pretend that there is no GPU, also where there is one."""

    def none():
        raise driver.NoDeviceError(f"There is no GPU here: {driver._NO_DEVICE_HINT}")

    monkeypatch.setattr(driver, "library", none)


def test_no_gpu_and_no_cc(no_gpu):
    with pytest.raises(cupar.NoDeviceError, match=r'no GPU.*cupar\.device\("cpu"\).*pass cc=.*cc=90'):
        build(cc=None)


def test_call_without_a_gpu(no_gpu):
    reduction = build(cupar.OpKind.PLUS)
    for call in (lambda: reduction(None, np.int32, np.int32, 3, INT), lambda: reduction.run(1, 2, 3, INT)):
        with pytest.raises(cupar.NoDeviceError, match="no GPU"):
            call()


@pytest.mark.parametrize("cc", [90, (9, 0), "9.0", "90", "sm_90"])
def test_cc(cc):
    assert parse_cc(cc) == 90
    assert parse_cc(np.int64(90)) == parse_cc([9, 0]) == 90
    assert parse_cc("sm_120") == parse_cc("12.0") == parse_cc((12, 0)) == 120


@pytest.mark.parametrize(
    "cc",
    [
        "",
        "1_00",
        " 90",
        "90 ",
        "\uff19\uff10",
        "9. 0",
        "+90",
        (True, 0),
        np.True_,
        "hopper",
        "9.10",
        "90.0",
        (9, 10),
        (9, None),
        [9],
        "sm_90a",
        (9,),
        (9, 0, 0),
        9,
        9.0,
        True,
        b"90",
        10**6,
        "-90",
        object(),
    ],
)
def test_wrong_cc(cc):
    with pytest.raises((TypeError, ValueError), match=r"^cc: expected a compute capability as in 90"):
        build(cc=cc)


@pytest.mark.parametrize("name", ["d_in", "d_out"])
@pytest.mark.parametrize(
    "array", [np.zeros(3, np.int32), [1, 2], None, 3, object(), "no dtype", ",", "(2,", print]
)
def test_not_a_device_array(name, array):
    with pytest.raises(TypeError, match=f"^{name}: expected a device array"):
        build(**{name: array})


@pytest.mark.parametrize("dtype", ["O", "U3", "S2", "M8[s]", "m8[s]", "V4", ">i4", "g", [("x", "O")]])
def test_unsupported_dtype(dtype):
    with pytest.raises(TypeError, match=r"^d_in: dtype .* is not supported; supported are bool"):
        build(d_in=np.dtype(dtype))


class Device:
    """An array in device memory, as far as its owner says."""

    def __init__(self, typestr="<i4", shape=(5,), strides=None, data=(1 << 20, False), **more):
        self.__cuda_array_interface__ = dict(
            typestr=typestr, shape=shape, strides=strides, data=data, version=3, **more
        )


def test_arrays_give_their_dtype():
    assert build(d_in=Device(), d_out=Device("<i8")).build.key == build(d_out=np.int64).build.key


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"typestr": ""},
        {"typestr": "<i4", "shape": (3,)},
        {"typestr": "<i4,", "shape": (1,), "data": (1, False)},
        {"typestr": "<i4", "shape": (-1,), "data": (1, False)},
        {"typestr": "<i4", "shape": (2.0,), "data": (1, False)},
        {"typestr": "<i4", "shape": ("2",), "data": (1, False)},
        {"typestr": "<i4", "shape": 2, "data": (1, False)},
        {"typestr": "<i4", "shape": (2,), "data": ("1", False)},
        {"typestr": "<i4", "shape": (2,), "data": (-1, False)},
        {"typestr": "<i4", "shape": (2,), "data": 1},
        {"typestr": "<i4", "shape": (2,), "data": (1, False), "strides": (4, 4)},
        {"typestr": "<i4", "shape": (2,), "data": (1, False), "version": 9},
        {"typestr": "<i4", "shape": (2,), "data": (1, False), "version": "3"},
        None,
        7,
    ],
)
def test_interfaces_without_meaning(broken):
    class Broken:
        __cuda_array_interface__ = broken

    with pytest.raises((TypeError, ValueError), match=r"^d_in: "):
        build(d_in=Broken())


def raising(self, *arguments, **named):
    raise ZeroDivisionError("broken")


@pytest.mark.parametrize(
    "members",
    [
        {"__cuda_array_interface__": property(raising)},
        {"__dlpack_device__": raising, "__dlpack__": raising},
        {"__dlpack_device__": lambda self: None},
        {"__dlpack_device__": lambda self: (2, 0)},
        {"__dlpack_device__": lambda self: (2, 0), "__dlpack__": raising},
        {"__dlpack_device__": lambda self: (2, 0), "__dlpack__": lambda self, **named: "no capsule"},
    ],
)
def test_arrays_that_raise_when_asked_what_they_are(members):
    with pytest.raises((TypeError, ValueError), match=r"^d_in: "):
        build(d_in=type("Broken", (), members)())


def test_array_refused():
    with pytest.raises(ValueError, match=r"^d_in: .*contiguous.*strided"):
        build(d_in=Device(strides=(8,)))
    with pytest.raises(TypeError, match=r"^d_out: masked"):
        build(d_out=Device(mask=Device()))


@pytest.mark.parametrize(
    ("h_init", "message"),
    [
        (np.zeros(2, np.int32), "got an array of 2"),
        (np.zeros(0, np.int32), "got an array of 0"),
        (0.5, "0.5 is not converted to int32"),
        (1j, "1j is not converted to int32"),
        (2**31, "int32 cannot hold 2147483648"),
        (2**70, "int32 cannot hold 1180591620717411303424"),
        (np.datetime64(0, "s"), r"dtype datetime64\[s\] is not supported"),
        (np.str_("0"), "dtype <U1 is not supported"),
        ("0", "got str"),
        ([0], "got list"),
        (np.zeros(1, "O"), "dtype object is not supported"),
    ],
)
def test_initial_value(h_init, message):
    with pytest.raises((TypeError, ValueError), match=rf"^h_init: .*{message}"):
        build(h_init=h_init)


def test_numbers_that_fit():
    assert build(h_init=np.int32(7)).build.key == build(h_init=7).build.key == build(h_init=True).build.key
    logical = lambda h_init: build(lambda a, b: a or b, h_init, "?", "?")
    assert logical(0).build.key == logical(np.False_).build.key
    for number, dtype in [(2, "?"), (1e5, "f2"), (10**50, "f4"), (1e300j, "c8"), (-1, "u1"), (10**400, "f8")]:
        with pytest.raises(ValueError, match=r"^h_init: "):
            build(cupar.OpKind.PLUS, number, dtype, dtype)
    assert build(cupar.OpKind.PLUS, float("inf"), "f2", "f2").build.cubin_size


def test_exclusive_scan_needs_an_initial_value():
    with pytest.raises(TypeError, match=r"^h_init: .*inclusive_scan"):
        build(h_init=None, factory=cupar.exclusive_scan)


@pytest.mark.parametrize(
    ("source", "accumulator", "target", "message"),
    [
        ("f4", "i4", "i4", "^d_in: float32 is not converted to int32 of the accumulator"),
        ("c8", "f4", "f4", "^d_in: complex64 is not converted to float32"),
        ("i4", "f4", "i4", "^the accumulator: float32 is not converted to int32 of d_out"),
        ("f4", "c8", "f4", "^the accumulator: complex64 is not converted to float32 of d_out"),
        ("c8", "c8", "?", "^the accumulator: complex64 is not converted to bool"),
    ],
)
def test_conversions_that_lose_a_kind(source, accumulator, target, message):
    for factory in (cupar.reduce_into, cupar.inclusive_scan):
        with pytest.raises(TypeError, match=message):
            build(cupar.OpKind.PLUS, np.zeros(1, accumulator), source, target, factory)


def one(a):
    return a


def three(a, b, c):
    return a


def keyword(a, b, *, c):
    return a


def default(a, b, c=1):
    return a + b + c


@pytest.mark.parametrize(
    ("op", "takes"),
    [
        (one, "1"),
        (three, "3"),
        (lambda: 0, "0"),
        (np.negative, "1"),
        (cupar.OpKind.NEGATE, "1"),
        (cuda.jit(device=True)(one), "1"),
    ],
)
def test_arity(op, takes):
    with pytest.raises(
        TypeError, match=rf"^op: .* takes {takes} (positional )?arguments?, this algorithm gives it 2"
    ):
        build(op)


def test_keyword_parameters():
    with pytest.raises(TypeError, match=r"^op: operator keyword \(.*:\d+\): it has keyword-only parameters"):
        build(keyword)


def test_arity_in_words_and_with_its_place():
    line = one.__code__.co_firstlineno
    with pytest.raises(TypeError, match=rf"operator one \(.*:{line}\) takes 1 positional argument, this"):
        build(one)
    with pytest.raises(TypeError, match=r"takes 2 to 3 positional arguments, this algorithm gives it 1$"):
        cupar.unary_transform("i4", "i4", default, cc=CC)


@pytest.mark.parametrize(("op", "kind"), [(sum, "PLUS"), (np.sum, "PLUS"), (np.prod, "MULTIPLIES")])
def test_functions_of_arrays(op, kind):
    with pytest.raises(TypeError, match=rf"^op: .* got {op.__name__}, .*; give OpKind.{kind}, np\."):
        build(op)


@pytest.mark.parametrize("wait", ["no", 3, 0, 1.0, None])
def test_wait_is_a_bool(wait):
    for _ in range(2):
        build(cupar.OpKind.PLUS)
        with pytest.raises(TypeError, match=rf"^wait: expected True or False, got {wait!r}$"):
            build(cupar.OpKind.PLUS, wait=wait)


def test_wait_may_be_numpys():
    assert build(cupar.OpKind.PLUS, wait=np.True_).build.cubin_size
    pending = build(cupar.OpKind.PLUS, wait=np.False_)
    assert pending.ready()
    assert pending.build.cubin_size


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (lambda a, b: a + random.random(), "random.random is not for kernels: draw the numbers before"),
        (lambda a, b: a + random.randint(0, b), "random.randint is not for kernels: draw the numbers before"),
        (lambda a, b: a + np.random.rand(), "np.random.rand is not for kernels: draw the numbers before"),
        (lambda a, b: a + time.time(), "time.time is not for kernels: read the clock before"),
        (lambda a, b: a + os.getpid(), "os.getpid is not for kernels: call it before"),
    ],
)
def test_functions_for_the_host(op, message):
    with pytest.raises(TypeError, match=rf"^op: .*: {message}"):
        build(op)


@pytest.mark.parametrize("op", [None, 3, "add", [1]])
def test_not_an_operator(op):
    with pytest.raises(TypeError, match=r"^op: expected a function"):
        build(op)


def float_result(a, b):
    return a / b


def test_result_that_loses_a_kind():
    with pytest.raises(
        TypeError, match=r"^op: operator float_result \(.*\) for \(int32, int32\) -> int32 returns float64"
    ):
        build(float_result)
    with pytest.raises(TypeError, match=r"^op: operator .*complex128.*float64"):
        build(lambda a, b: a * 1j, 0.0, "f8", "f8")
    with pytest.raises(TypeError, match=r"^op: operator divide"):
        build(np.true_divide)


@pytest.mark.parametrize(
    "op", [lambda a, b: None, lambda a, b: (a, b), lambda a, b: a if a > b else None, lambda a, b: "x"]
)
def test_result_that_is_no_number(op):
    with pytest.raises(TypeError, match=r"^op: operator .* returns .*, expected a number"):
        build(op)


def broken(a, b):
    return a.nothing + b


@pytest.mark.parametrize("debug", [None, "", "0", "1"])
def test_what_numba_said_is_shown_on_demand(debug, monkeypatch):
    monkeypatch.delenv("CUPAR_DEBUG", raising=False)
    if debug is not None:
        monkeypatch.setenv("CUPAR_DEBUG", debug)
    with pytest.raises(TypeError) as caught:
        build(broken)
    shown = "".join(traceback.format_exception(caught.value))
    assert ("Unknown attribute 'nothing' of type int32" in shown) == (debug == "1")
    assert (caught.value.__cause__ is not None) == (debug == "1")
    assert caught.value.__suppress_context__


def test_failed_builds_leave_nothing_of_theirs_and_can_be_tried_again(empty_cache):
    for _ in range(2):
        with pytest.raises(TypeError, match="broken"):
            build(broken)
    assert cupar.cache.usage().entries <= 1  # the kernels, which other operators are linked with
    assert len(list(empty_cache.rglob("*.lock"))) == 0


class Callable:
    def __call__(self, a, b):
        return a + b

    def method(self, a, b):
        return a + b


@functools.cache
def cached(a, b):
    return a + b


@pytest.mark.parametrize(
    ("op", "message"),
    [
        (functools.partial(three, 1), "got a functools.partial of three; write a lambda"),
        (Callable(), "got an object of Callable, which is callable; .*write a function"),
        (Callable().method, "got the method method bound to an instance of Callable; .*write a function"),
        (Callable, "got the class Callable; write a function"),
        (cupar.gpu_struct({"x": "f4"}), "got the class Struct; write a function"),
        (cached, "got one under functools.cache; give the function itself"),
        (np.vectorize(lambda a, b: a), "got one under vectorize; give the function itself"),
        (np.frompyfunc(lambda a, b: a, 2, 1), "got the ufunc .*not one of NumPy's own"),
        ({}.get, "got the built-in dict.get"),
    ],
)
def test_callables_that_are_no_functions(op, message):
    with pytest.raises(TypeError, match=rf"^op: expected a .*function, {message}"):
        build(op)


def test_conversions_are_operators():
    assert cupar.unary_transform("i4", "f8", float, cc=CC).build.cubin_size


def plain(a):
    return a / 2


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: cupar.unary_transform("i4", "i4", plain, cc=CC), "^op: .* or let d_out be float64$"),
        (lambda: build(float_result), r"^op: .* or let h_init \(and so the accumulator\) be float64$"),
        (
            lambda: build(d_in=cupar.TransformIterator("i4", plain, "i4")),
            "^transform_op: operator plain .* or let value_type be float64$",
        ),
        (
            lambda: build(d_out=cupar.TransformOutputIterator("i4", plain)),
            "^transform_op: operator plain .* or let underlying be float64; .* annotate the parameter",
        ),
        (
            lambda: cupar.select("i4", "i4", "i4", lambda a: a * 1j, cc=CC),
            "^cond: .*returns complex128, .*convert it in the operator$",
        ),
        (lambda: cupar.select("i4", "i4", "i4", broken, cc=CC), "^cond: operator broken .*takes 2"),
        (lambda: cupar.lower_bound("i4", "i4", "i4", broken, cc=CC), "^comp: numba.cuda cannot compile"),
        (lambda: cupar.TransformIterator("i4", lambda a: a.x), "^transform_op: numba.cuda cannot compile"),
        (
            lambda: build(d_in=cupar.TransformIterator("i4", lambda a: a.x, "i4")),
            "^transform_op: numba.cuda cannot compile",
        ),
    ],
)
def test_messages_name_the_parameter_and_what_decides_the_type(ask, message):
    with pytest.raises(TypeError) as caught:
        ask()
    assert re.search(message, str(caught.value), re.DOTALL)


@pytest.mark.parametrize(
    "send",
    [pickle.dumps, copy.copy, copy.deepcopy],
)
def test_algorithms_are_not_pickled(send):
    with pytest.raises(TypeError, match=r"^Reduce: an algorithm is not pickled or copied.*call the factory"):
        send(build(cupar.OpKind.PLUS))


@pytest.mark.parametrize("order", [True, False, np.True_, 1.0, 2, "ASCENDING"])
def test_order_is_no_bool(order):
    for ask in (
        lambda: cupar.radix_sort("i4", "i4", None, None, order, cc=CC),
        lambda: cupar.segmented_sort("i4", "i4", None, None, "i8", "i8", order, cc=CC),
    ):
        with pytest.raises(TypeError, match=r"^order: expected a SortOrder \(SortOrder.ASCENDING"):
            ask()


@pytest.mark.parametrize("determinism", [True, 1.0, 7, "RUN_TO_RUN"])
def test_determinism_is_no_bool(determinism):
    with pytest.raises(TypeError, match=r"^determinism: expected a Determinism \(Determinism"):
        build(cupar.OpKind.PLUS, determinism=determinism)
    assert build(cupar.OpKind.PLUS, determinism=np.int64(1)).build.cubin_size


@pytest.mark.parametrize(
    ("cc", "number"),
    [(70, 70), (72, 72), ("7.0", 70), (101, 101), (122, 122), ((13, 0), 130), ("sm_130", 130), (399, 399)],
)
def test_cc_that_the_compilers_do_not_know(cc, number):
    if number in nvrtc.supported():
        pytest.skip("these compilers know it")
    for op in (cupar.OpKind.PLUS, lambda a, b: a + b, broken):
        with pytest.raises(
            ValueError, match=r"^cc: the compilers of CUDA \d+ do not know sm_.*supported: .*80"
        ):
            build(op, cc=cc)


def test_cc_that_all_compilers_of_a_cuda_know():
    assert nvrtc.ALWAYS_SUPPORTED[toolchain.cuda_major()] <= set(nvrtc.supported())


def test_cc_is_not_checked_by_loading_a_compiler(tmp_path):
    code = (
        "import sys, cupar; from cupar._obtain.target import parse_cc; parse_cc(90); "
        "assert 'nvrtc' not in open('/proc/self/maps').read() and 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_compilers_that_cannot_be_asked_refuse_no_cc(monkeypatch):
    def missing(name):
        raise ImportError(name)

    nvrtc.supported.cache_clear()
    monkeypatch.setattr(toolchain, "load_library", missing)
    assert parse_cc(122) == 122


def test_capture_of_what_has_no_value():
    state = object()
    with pytest.raises(TypeError, match=r"^op: .*state.*object"):
        build(lambda a, b: a if state is None else b)


@pytest.mark.parametrize("kind", ["MODULUS", "BIT_AND", "BIT_OR", "BIT_XOR"])
def test_kinds_of_integers_only(kind):
    with pytest.raises(TypeError, match=rf"^op: OpKind.{kind} is not defined for float32"):
        build(cupar.OpKind[kind], 0.0, "f4", "f4")


@pytest.mark.parametrize("kind", ["LESS", "MINIMUM", "MAXIMUM"])
def test_kinds_that_need_an_order(kind):
    with pytest.raises(TypeError, match=rf"^op: OpKind.{kind} is not defined for complex64"):
        build(cupar.OpKind[kind], 0, "c8", "c8")


@pytest.mark.parametrize("version", ["1.2.0", "1.3.0", "2.0", "1.1.9", "absent", "1.2"])
def test_another_cuda_cccl(version, monkeypatch, empty_cache):
    monkeypatch.setattr(cccl, "package_version", lambda name: version)
    with pytest.raises(ValueError, match=rf"cupar needs cuda-cccl>=1.2.1,<1.3, found {version}"):
        cccl.folders()
    assert issubclass(cupar.VersionError, ImportError)


@pytest.mark.parametrize("version", ["1.2.1", "1.2.9"])
def test_supported_cuda_cccl(version, monkeypatch):
    monkeypatch.setattr(cccl, "package_version", lambda name: version)
    assert cccl.folders()


PLUS, UP = cupar.OpKind.PLUS, cupar.SortOrder.ASCENDING


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: cupar.segmented_reduce("f4", "f4", PLUS, 0, cc=90), "start_offsets_in"),
        (lambda: cupar.segmented_reduce("f4", "f4", "i8", PLUS, h_init=0, cc=90), "end_offsets_in"),
        (lambda: cupar.segmented_reduce("f4", "f4", PLUS, cc=90), "start_offsets_in"),
        (lambda: cupar.segmented_reduce("f4", "f4", "i8", PLUS, 0, cc=90), "end_offsets_in"),
        (lambda: cupar.segmented_sort("u4", "u4", UP, cc=90), "d_in_values"),
        (lambda: cupar.segmented_sort("u4", "u4", None, None, UP, cc=90), "start_offsets_in"),
        (lambda: cupar.segmented_sort("u4", "u4", None, None, "i8", UP, cc=90), "end_offsets_in"),
        (lambda: cupar.radix_sort("u4", UP, cc=90), "d_out_keys"),
        (lambda: cupar.radix_sort("u4", "u4", UP, cc=90), "d_in_values"),
        (lambda: cupar.merge_sort("u4", PLUS, "u4", cc=90), "d_in_items"),
        (lambda: cupar.reduce_into("u4", PLUS, 0, cc=90), "d_out"),
    ],
)
def test_an_operator_in_the_place_of_an_array_is_what_is_named(make, name):
    with pytest.raises(
        TypeError, match=rf"^{name}: expected .*, got (OpKind.PLUS|SortOrder.ASCENDING); if arg"
    ):
        make()
