"""The order in which policies are tried, with costs that are made up."""

import math
from itertools import product
from typing import NamedTuple

import pytest

from cupar._tune import policy_search
from cupar._tune.policy_search import PolicySearch


class Tile(NamedTuple):
    threads: int
    items: int
    states: int


SPACE = {"threads": (32, 64, 96, 128, 192, 256), "items": tuple(range(15, 255, 15)), "states": (2, 4, 8)}
ALL = [Tile(*each) for each in product(*SPACE.values())]


def bowl(policy):
    """Cost of a policy: the best are 128 threads with 120 items; states make no difference."""
    threads = math.log(policy.threads / 128) ** 2 / 4
    return threads + abs(policy.items - 120) / 400 - 0.3


def ridge(policy):
    """What is best of one field depends on the other, and little else is as good."""
    return min(abs(policy.threads * policy.items - 12_000) / 12_000, 0.5) + 0.04 * (policy.states != 8) - 0.3


def tried(cost, number, default, at_once=8, works=lambda policy: True):
    """Try a number of policies, several at a time; return them in order."""
    of_default = 0.0 if default is None else cost(default)
    order, found, begun = PolicySearch(ALL, SPACE, default), [], []
    while len(found) < number:
        while len(begun) < at_once and (policy := order.propose()) is not None:
            begun.append(policy)
        if not begun:
            break
        found.append(begun.pop(0))
        order.tell(found[-1], cost(found[-1]) - of_default if works(found[-1]) else None)
    return found


@pytest.mark.parametrize("default", [None, Tile(32, 15, 2), Tile(256, 240, 8)])
@pytest.mark.parametrize("cost", [bowl, ridge])
def test_it_finds_what_is_nearly_the_best(cost, default):
    best = min(map(cost, ALL))
    found = min(map(cost, tried(cost, 60, default)))
    assert len(ALL) == 288
    assert found <= best + 0.03


def test_each_is_tried_once_until_all_were():
    found = tried(bowl, 1000, Tile(32, 15, 2))
    assert len(found) == len(set(found)) == len(ALL) - 1  # the default is measured with each
    assert Tile(32, 15, 2) not in found
    order = PolicySearch(
        [Tile(32, 15, 2)], {"threads": (32,), "items": (15,), "states": (2,)}, Tile(32, 15, 2)
    )
    assert order.propose() is None


def test_a_field_that_makes_no_difference_is_left_for_later(monkeypatch):
    def kinds():
        return len({(policy.threads, policy.items) for policy in tried(bowl, 60, Tile(32, 15, 2))})

    found = kinds()
    monkeypatch.setattr(policy_search, "_LATER", 1.0)
    assert found > 1.2 * kinds()


def test_those_near_one_that_does_not_work_are_left_for_later():
    works = lambda policy: policy.threads * policy.items < 20_000
    found = tried(bowl, 60, Tile(32, 15, 2), works=works)
    assert sum(map(works, found)) > 45


def test_what_is_asked_depends_on_nothing_else():
    assert tried(ridge, 50, None) == tried(ridge, 50, None)
