"""Random calls of `cupar.arrays` against NumPy, on the CPU; `support.fuzz.functions` makes them.

CUPAR_FUZZ_EXAMPLES says how many of each, CUPAR_FUZZ_DTYPES of which dtypes, as in "? i1 u8 f2 f8 c16": by
default few of float32, as other tests are, since each dtype takes builds. With it ranks, bins, sums by id,
ranges and sorted sets are played, too, of which other tests have examples. Each call is made again, as
`support.repeated` says. CUPAR_FUZZ_SECONDS says how long each case at the ends of dtypes is played, and
CUPAR_FUZZ_SEED which calls it makes.
"""

import os
import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzz import elements, extremes, functions
from support.repeated import Repeated

from cupar._cpu import calls, schedules

pytestmark = pytest.mark.slow
EXAMPLES = int(os.environ.get("CUPAR_FUZZ_EXAMPLES", "2"))
CASES = *functions.CASES, *elements.CASES, *(functions.ASKED if "CUPAR_FUZZ_EXAMPLES" in os.environ else ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_random_calls(case, monkeypatch):
    monkeypatch.setattr(schedules, "_LEAST", 7)  # several parts and threads for few items
    monkeypatch.setattr(calls, "_SMALL", 1)
    Repeated(monkeypatch)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=EXAMPLES == 2,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.randoms(use_true_random=False))
    def run(random):
        with np.errstate(all="ignore"):
            case(functions.Draw(random))

    run()


SECONDS, SEED = float(os.environ.get("CUPAR_FUZZ_SECONDS", "0")), os.environ.get("CUPAR_FUZZ_SEED", "25")


@pytest.mark.parametrize(
    "case", extremes.CASES if SECONDS else extremes.QUICK, ids=lambda case: case.__name__
)
def test_random_calls_at_the_ends_of_dtypes(case, monkeypatch):
    Repeated(monkeypatch)
    end, number, least = time.monotonic() + SECONDS, 0, 300 if case is extremes.refused else 2
    while number < least or time.monotonic() < end:
        seed, number = f"{case.__name__} {SEED} {number}", number + 1
        try:
            with np.errstate(all="ignore"):
                case(extremes.Far(random.Random(seed)))
        except BaseException:
            print(f"extremes.{case.__name__}(extremes.Far(random.Random({seed!r})))")
            raise
