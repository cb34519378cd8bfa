"""Random calls of `cupar.dask` against `cupar.arrays`, on the CPU; `support.fuzz.blocks` makes them.

``CUPAR_FUZZ_SECONDS`` says how long, ``CUPAR_FUZZ_SEED`` which calls, ``CUPAR_FUZZ_DTYPES`` of which dtypes,
as in "? u1 i4 f2 f4 c16". By default there are two of each kind.
"""

import os
import random
import time

import numpy as np
import pytest

dask = pytest.importorskip("dask")
blocks = pytest.importorskip("support.fuzz.blocks")

SECONDS = float(os.environ.get("CUPAR_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("CUPAR_FUZZ_SEED", "43"))


@pytest.mark.slow
@pytest.mark.parametrize("case", blocks.CASES, ids=lambda case: case.__name__)
def test_random_calls(case):
    end, number = time.monotonic() + SECONDS / len(blocks.CASES), 0
    with dask.config.set(scheduler="sync"), np.errstate(all="ignore"):
        while number < 2 or time.monotonic() < end:
            play(case, f"{SEED} {case.__name__} {number}")
            number += 1


def play(case, seed):
    try:
        case(blocks.Draw(random.Random(seed)))
    except Exception as error:
        error.add_note(f"blocks.{case.__name__}(blocks.Draw(random.Random({seed!r})))")
        raise
