"""In which order policies are tried: near the best ones first, and now and then far from all tried ones.

What a policy is expected to cost is what those near it cost, and a little more for each step away, the
further ones on the same axis first: so a search goes down each axis from where it is at its best, as
coordinate descent does, but can be asked for any number of policies before it is told what became of the
first. Each few times, it asks for the one that is furthest from all that were tried. A field that has made no
difference so far is left for later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._kernels.tuning import Space

Policy = tuple[Any, ...]

_STEP = 0.03  # of the logarithm of the time, for one step away
_EXPLORE = 4  # each such question is for the one furthest from all others
_FAILED = 0.5  # what one that does not work adds to what those near it are expected to cost
_NO_DIFFERENCE, _LATER = 0.01, 4.0  # a field that changes the cost by less; how much further its steps are


class PolicySearch:
    """An order of policies that depends on what those tried before cost.

    Parameters
    ----------
    policies : sequence of named tuple
        What may be tried.
    space : mapping
        The values of each field, in order.
    default : named tuple or None
        The policy that all others are compared with, if it is one of these.
    """

    def __init__(self, policies: list[Policy], space: Space, default: Policy | None) -> None:
        self._policies = policies
        self._place = {policy: number for number, policy in enumerate(policies)}
        axes = [{value: at for at, value in enumerate(values)} for values in space.values()]
        fields = [*space]
        points = [[axes[k][getattr(policy, name)] for k, name in enumerate(fields)] for policy in policies]
        self._points = np.array(points, dtype=float).reshape(len(policies), len(fields))
        self._differences: list[list[float]] = [[] for _ in fields]  # of costs, by one field alone
        self._tried: list[tuple[int, float]] = []
        self._asked: list[int] = []
        self._penalty = np.zeros(len(policies))
        self._is_open = np.ones(len(policies), dtype=bool)
        self._questions = 0
        if default is not None and default in self._place:
            self._ask(self._place[default])
            self.tell(default, 0.0)

    @property
    def left(self) -> int:
        """The number of policies that were not proposed yet."""
        return int(self._is_open.sum())

    def propose(self) -> Policy | None:
        """Return the policy to be tried next; None if all were."""
        if self.left == 0:
            return None
        self._questions += 1
        if self._tried and self._questions % _EXPLORE:
            cost = self._expected() + self._penalty
        elif self._asked:
            # A field that makes no difference makes nothing new.
            cost = -self._distances(self._asked, 1 / self._weights() ** 2).min(axis=0)
        else:  # nothing is known: begin in the middle
            cost = np.abs(self._points - self._points.max(axis=0) / 2).sum(axis=1)
        place = int(np.argmin(np.where(self._is_open, cost, np.inf)))
        self._ask(place)
        return self._policies[place]

    def tell(self, policy: Policy, cost: float | None) -> None:
        """Say what a policy costs, the logarithm of its time by the default's; None if it does not work."""
        place = self._place[policy]
        if cost is None:
            self._penalty += _FAILED * (self._distances([place], 1)[0] <= 1)
            return
        for other, its in self._tried:
            differs = np.flatnonzero(self._points[other] != self._points[place])
            if len(differs) == 1:
                self._differences[differs[0]].append(abs(cost - its))
        self._tried.append((place, cost))

    def _ask(self, place: int) -> None:
        self._is_open[place] = False
        self._asked.append(place)

    def _expected(self) -> Any:
        """Return the expected cost of each."""
        places, costs = zip(*self._tried, strict=True)
        return (np.array(costs)[:, None] + _STEP * self._distances(places, self._weights())).min(axis=0)

    def _weights(self) -> Any:
        """Return for each field how far its steps are."""
        middle = (np.median(each) if each else np.inf for each in self._differences)
        return np.array([1.0 if each > _NO_DIFFERENCE else _LATER for each in middle])

    def _distances(self, places: Sequence[int], weights: Any) -> Any:
        """Return how far all are from some: along each axis, a second step costs less than the first."""
        between = np.abs(self._points[list(places)][:, None, :] - self._points[None, :, :])
        return (np.sqrt(between) * weights).sum(axis=2)
