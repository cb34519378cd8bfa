"""Random calls on the CPU against plain loops: all algorithms and dtypes, operators of a grammar.

``CUPAR_FUZZ_SECONDS`` says how long, ``CUPAR_FUZZ_SEED`` which calls. A failure is a program that shows it,
with the seed and the number of its case. `tests/support/fuzz` makes cases, and knows their results.
"""

import os

import pytest
from support.fuzz.algorithms import ALGORITHMS
from support.fuzz.play import Player

import cupar
from cupar._cpu import calls, schedules

SECONDS = float(os.environ.get("CUPAR_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("CUPAR_FUZZ_SEED", "25"))


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_random_calls(monkeypatch):
    monkeypatch.setattr(schedules, "_LEAST", schedules._LEAST)  # which the player changes
    monkeypatch.setattr(calls, "_SMALL", calls._SMALL)
    print(f"CUPAR_FUZZ_SEED={SEED} CUPAR_FUZZ_SECONDS={SECONDS:g}")
    player = Player(SEED)
    with cupar.device("cpu"):
        player.play(SECONDS)
        player.together()
    assert set(ALGORITHMS) == set(schedules.PHASE_SPECS) and all(player.played.values())
