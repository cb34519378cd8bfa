"""Kernels launched by compiled host code, as a fake driver records them; and refusals."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.host import run

pytest.importorskip("numba")
PROCESS = Path(__file__).parent / "processes" / "kernels.py"
QUICKLY = {"NUMBA_OPT": "0"}  # where each function is called once; other tests have optimised ones


@pytest.fixture
def lines(tmp_path, session_cache):
    """Return the lines that a process prints."""

    def lines(which, **environment):
        done = run(tmp_path, PROCESS, session_cache, which, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return lines


@pytest.mark.slow
def test_compiled_code_launches_what_python_launches(lines):
    found = lines("same", **QUICKLY)
    assert not [line for line in found if line.startswith("differs")], found
    assert len(found) > 30 and all(line.endswith(" 1") for line in found)


def test_all_ways_to_launch(tmp_path, session_cache, lines):
    """And their code can be dumped, and the launches be traced."""
    folder = tmp_path / "dump"
    done = run(tmp_path, PROCESS, session_cache, "forms", CUPAR_DUMP=f"host:{folder}", CUPAR_TRACE="1")
    assert done.stdout == "8 True\n"
    (python,), (llvm,) = folder.glob("kernel-*.host.py"), folder.glob("kernel-*.host.ll")
    assert "def launch(launch, _a0, )" in python.read_text()
    code = llvm.read_text()
    assert "call i32 %" in code  # the driver, by its address
    assert re.search(r"load atomic i64, .* acquire, align 8", code)  # the number of an entry: see `publish`
    compiled, python = done.stderr.splitlines()[:8], done.stderr.splitlines()[8:]
    assert compiled[0] == "cupar: one grid=(1,1,1) block=(1,1,1) shared=0 stream=0x0 from compiled code"
    assert compiled == [line.replace("from Python", "from compiled code") for line in python]


def test_parallel_loops_launch(lines):
    assert lines("parallel", NUMBA_NUM_THREADS="1") == ["[0, 0, 0, 1, 1, 1, 2, 2, 2]"]


def test_what_is_refused_is_named(lines):
    beyond = "block: expected 1 to 1024 in x and y, and 1 to 64 in z"
    assert lines("refused", **QUICKLY) == [
        "ValueError: grid: expected 1 to 2147483647 in x",
        "ValueError: grid: expected 1 to 2147483647 in x",
        "ValueError: grid: expected 1 to 65535 in y and z",
        f"ValueError: {beyond}",
        "ValueError: block: has more than the 1024 threads that a block can have",
        f"ValueError: {beyond}",
        f"ValueError: {beyond}",
        "ValueError: shared: expected bytes of shared memory",
        "ValueError: shared: more shared memory than a block can have on this card",
        "TypingError: grid: expected one to three integers, got float64",
        "TypingError: block: expected one to three integers, got UniTuple(int64 x 4)",
        "TypingError: stream: compiled host code takes a handle, an integer, or None; got float64",
        "TypingError: shared: expected an integer, got none",
        "TypingError: x: from compiled host code a kernel takes cupar.view(array), numbers, members of enums "
        "and tuples of these, got array(float64, 1d, C)",
        "ValueError: x: expected an array aligned to 4 bytes",
        "TypingError: one: expected [grid, block], [grid, block, stream] or [grid, block, stream, shared], "
        "got Literal[int](1)",
        "TypingError: one: takes 1 arguments (x), got 2 by position",
        "TypingError: one: takes 1 arguments (x), got 0 by position, y",
        "TypingError: kernel captures has captured device arrays, which compiled host code cannot look up: "
        "give them as arguments",
        "ValueError: block: has more threads than kernel small can have: see its attributes",
        "0",
    ]


def test_what_algorithms_are_refused_is_named(lines):
    storage_expected = (
        "TypingError: temp_storage: expected None, or cupar.view(array) of one that can be written"
    )
    doubled = (
        "TypingError: a DoubleBuffer, which compiled host code cannot take: give cupar.view(array) in and "
        "out, or call the sort from Python"
    )
    complex_init = (
        "complex128 is not converted to float32 silently; given to the factory as a NumPy scalar, it decides "
        "the accumulator's dtype"
    )
    assert lines("algorithms_refused", **QUICKLY) == [
        "TypingError: d_in: this algorithm was built for Counting(int64), got cupar.view(int64, 1d, C)",
        "nothing was raised",
        "TypingError: d_in: this algorithm was built for Counting(int64), got Counting(int32)",
        "TypingError: d_in: this algorithm was built for Counting(int64), got Reverse(Pointer(int64))",
        "nothing was raised",
        "ValueError: d_in: an array of the iterator has too few items",
        "TypingError: iterator: expected a device array, got str, which has neither __cuda_array_interface__ "
        "nor DLPack",
        "TypingError: d_out: expected arrays to write to, got a read-only one",
        "TypingError: iterator: its operator has captured device arrays, which compiled host code cannot "
        "look up: call the algorithm from Python",
        "ValueError: h_num_output_levels: expected from 2 to 2**31 - 1",
        "ValueError: h_upper_level: expected more than h_lower_level",
        "TypingError: h_upper_level: expected an integer, or a NumPy array of one, got float64",
        "ValueError: h_upper_level: the bins overflow 64 bits; give floats",
        "ValueError: d_histogram: has fewer items than num_bins",
        "TypingError: h_lower_level: expected an integer, or a NumPy array of one, got none",
        f"{storage_expected}, got int64",
        "ValueError: temp_storage: needs more bytes for this call: give None to ask how many",
        "ValueError: temp_storage: got a strided array; copy it first",
        f"{storage_expected}, got cupar.view(uint8, 1d, C, read-only)",
        doubled,
        doubled.replace(": a", ": Untyped global name 'double': a"),
        "TypingError: d_in: this algorithm was built for float32, got a view of int64",
        "ValueError: d_in: got a strided array; copy it first",
        "TypingError: d_in: compiled host code takes cupar.view(array), got none",
        "ValueError: d_in: has fewer items than num_items",
        "ValueError: num_items: expected 0 or more",
        "TypingError: num_items: expected an integer, got float64",
        f"TypingError: h_init: {complex_init}",
        "TypingError: h_init: expected a number or a NumPy array of one element of float32, got none",
        "ValueError: h_init: expected one element",
        "TypingError: stream: compiled host code takes a handle, an integer, or None; got float64",
        "ValueError: d_out: has fewer items than 1",
        "TypingError: d_out: expected a view to write to, got one of a read-only array",
        "LaunchError: reduce_into, from compiled code: cuMemAllocFromPoolAsync: CUDA_ERROR_OUT_OF_MEMORY (2)",
        "LaunchError: reduce_into, from compiled code: cuLaunchKernelEx of cupar_reduce_partials: "
        "CUDA_ERROR_OF_THE_TEST (700)",
        "1 0",  # the first kernel was launched, and the memory is given back
    ]


def test_errors_of_the_driver_and_threads_without_context(lines):
    assert lines("failing", **QUICKLY) == [
        "LaunchError: kernel one, from compiled code: cuLaunchKernelEx: CUDA_ERROR_OF_THE_TEST (719)",
        "3",
    ]


def test_entries_are_published_to_threads_without_a_lock():
    """On aarch64, too, a thread that finds the number of an entry sees its words."""
    from cupar._host import launches

    words = np.zeros(2, np.int64)
    launches.publish(words[1:], -(2**62))
    assert words.tolist() == [0, -(2**62)]
    (code,) = [each.get_llvm_str() for each in launches._kept if "cupar_publish" in each.get_llvm_str()]
    assert re.search(r"store atomic i64 .* release, align 8", code)
