"""Random calls of `cupar.torch`; `support.fuzz.tensors` makes and checks them.

A few of each function, of float32, as each dtype takes builds; for ``CUPAR_FUZZ_SECONDS`` then of all dtypes.
``CUPAR_FUZZ_SEED`` says which calls. A failure shows the call, and its seed.
"""

import os
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from support.fuzz import tensors  # noqa: E402

from cupar._torch import of_arrays  # noqa: E402

SECONDS = float(os.environ.get("CUPAR_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("CUPAR_FUZZ_SEED", "43"))
FEW, FEWER = 6, 2  # calls of functions with a gradient, and of others


def play(name, number, dtypes):
    seed = f"{SEED} {name} {number}"
    try:
        tensors.check(name, tensors.Draw(seed, dtypes))
    except Exception as error:
        raise AssertionError(f"support.fuzz.tensors.check({name!r}, Draw({seed!r}, {dtypes}))") from error


@pytest.mark.parametrize("name", tensors.CASES)
def test_random_calls(name):
    for number in range(FEWER if of_arrays._ROWS[name].gradient is None else FEW):
        play(name, number, [torch.float32])


def test_every_function_is_played():
    assert set(tensors.CASES) == set(of_arrays.NAMES)


@pytest.mark.skipif(not SECONDS, reason="CUPAR_FUZZ_SECONDS is not set")
def test_random_calls_of_all_dtypes():
    end, number = time.monotonic() + SECONDS, FEW
    every = [*tensors.FLOATS, *tensors.INTEGERS, *tensors.COMPLEX]
    while time.monotonic() < end:
        for name in tensors.CASES:
            play(name, number, every)
        number += 1
