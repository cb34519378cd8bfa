"""Lines of the source in GPU code, including inlined functions."""

import re
import textwrap

import pytest
from numba import cuda

import cupar

I = "int32[::1]"  # noqa: E741


@cuda.jit(device=True)
def jitted(x):
    x[0] += 1


def plain(x):
    x[0] *= x[1]


def caller(x):
    jitted(x)
    plain(x)


def test_functions_that_are_called_have_lines():
    with_lines, without = (cupar.jit(I, cc=90, lineinfo=each)(caller) for each in (True, False))
    assert with_lines.inspect_llvm(I).count("distinct !DISubprogram") == 3
    assert without.inspect_llvm(I).count("distinct !DISubprogram") == 0
    lines = {
        int(line)
        for line in re.findall(
            r"\.loc\s+\d+ (\d+) \d+, function_name .*inlined_at", with_lines.inspect_asm(I)
        )
    }
    assert lines & {jitted.py_func.__code__.co_firstlineno + 2, plain.__code__.co_firstlineno + 1}
    assert ".loc" not in without.inspect_asm(I)


@pytest.mark.filterwarnings("ignore:Could not find source")
def test_the_key_knows_where_they_are():
    def key(before, lineinfo, name="mine.py"):
        source = "\n" * before + textwrap.dedent(
            """
            def called(x):
                x[0] += 1
            """
        )
        made = {}
        exec(compile(source, name, "exec"), made)
        called = made["called"]

        def kernel(x):
            called(x)

        return cupar.jit(kernel, lineinfo=lineinfo).compile(I, cc=90).build.key

    assert key(0, True) != key(5, True) != key(5, True, "other.py")
    assert key(0, True) == key(0, True)
    assert key(0, False) == key(5, False, "other.py")
