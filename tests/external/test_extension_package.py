"""A package that registers types with numba-cuda through an entry point, installed beside cupar."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "support" / "extension_package"
HEAD = """
import numpy as np
import cupar

def build(op):
    return cupar.binary_transform("f4", "f4", "f4", op, cc=90).build.origin

"""
# As numba does before it compiles for a launch or call of its own.
INITIALISED = "from numba.cuda.core import entrypoints; entrypoints.init_all()"


@pytest.fixture
def run(tmp_path):
    def run(code, installed=True):
        path = os.pathsep.join([*([str(PACKAGE)] if installed else []), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", HEAD + textwrap.dedent(code)],
            capture_output=True,
            text=True,
            env={**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": path},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_what_does_not_use_it_is_the_same_with_and_without_it(run):
    one, other = (f"print(build(lambda a, b: a - {n} * b))" for n in (2, 3))
    assert run(one, installed=False) == ["built"]
    again = "cupar.cache.clear(disk=False)"
    assert run("\n".join([one, INITIALISED, again, one, other])) == ["disk", "registered", "disk", "linked"]
    assert run(other, installed=False) == ["disk"]


def test_its_types_are_refused_and_its_functions_are_linked(run):
    code = """
    from made_up_extension import Interval, clamp, width

    unit = Interval(0.0, 1.0)

    print(build(lambda a, b: clamp(a, b) + 1))
    for op in (lambda a, b: a + width(unit), lambda a, b: a + unit.low):
        try:
            build(op)
        except TypeError as error:
            assert "unit" in str(error) or "width" in str(error), error
            print("refused")
    """
    assert run(code) == ["built", "refused", "refused"]
    assert run(f"{INITIALISED}\n{textwrap.dedent(code)}") == ["registered", "disk", "refused", "refused"]
