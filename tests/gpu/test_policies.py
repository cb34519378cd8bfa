"""Policies that `cupar tune` may try give the results of the default."""

import random

import pytest

from cupar._device import driver
from cupar._kernels.tuning import write
from cupar._tune import requests
from cupar._tune.builds import Candidates, Scratch
from cupar._tune.measure import GPU

ITEMS, LENGTH = 300_007, 3000  # of a segment
WORDS = [
    ("segmented_reduce", "float32"),
    ("segmented_reduce", "int16", "int64", "--offsets"),
    ("inclusive_segmented_scan", "float32", "--offsets"),
    ("inclusive_segmented_scan", "float64"),
    ("segmented_nth_element", "int64"),
    ("segmented_nth_element", "float32", "--offsets"),
    ("segmented_top_k", "float32", "int32", "--offsets"),
    ("top_k", "int64"),
    ("reduce_by_key", "int32", "float32"),
    ("inclusive_scan_by_key", "float64"),
    ("run_length_encode", "int32"),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_least_the_largest_and_any_others(words):
    has_offsets = words[-1] == "--offsets"
    types = words[1 : len(words) - has_offsets]
    spec = requests.named(words[0], types, None, has_offsets, driver.current_device().cc)
    every = [*spec.family.tunable.policies(spec)]
    tried = [min(every), max(every), *random.Random(2026).sample(every, 2)]
    with Scratch(1) as scratch:
        bench, builder = GPU(spec, scratch.found, ITEMS, LENGTH), Candidates(spec, scratch)
        for policy in dict.fromkeys(tried):
            builder.submit(policy)
            built, error = builder.next(300)
            assert (built, error) == (policy, ""), write(policy)
            bench.turns(policy, 1, True)  # which raises an error if results differ
