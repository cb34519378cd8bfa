"""The one door to numba-cuda opens where its .pth file was not read, and with a NumPy that lacks a name."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numpy as np
{before}
import cupar
made = cupar.unary_transform("f4", "f4", lambda a: a + 1, cc=90)
kernel = cupar.jit(lambda x: None).compile("void(float32[::1])", cc=90)
print(made.build.origin, kernel.build.origin, sys.modules["numba.cuda"].__file__, hasattr(np, "row_stack"))
"""
# As of NumPy 2.5 on.
WITHOUT_ROW_STACK = "vars(np).pop('row_stack', 0); np.__all__ = sorted(set(np.__all__) - {'row_stack'})"


@pytest.mark.parametrize(
    ("before", "options"),
    [(WITHOUT_ROW_STACK, []), ("assert '_numba_cuda_redirector' not in sys.modules", ["-S"])],
    ids=["NumPy without row_stack", "pip install --target"],
)
def test_numba_cuda_is_imported(before, options, empty_cache):
    """With -S no .pth file is read, as in any folder but site-packages."""
    path = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM.format(before=before)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    *origins, file, has_row_stack = done.stdout.split()
    assert origins == ["built", "built"]
    assert "numba_cuda" in file
    assert has_row_stack == str(not before.startswith("vars"))
