"""Tuning one specialisation: candidates are built, measured in turns with the default, the best confirmed.

A candidate that is built is measured a few times, in turns with the default policy. When the time is up, the
best ones are measured for longer, at sizes that the search left out, too. One takes the place of the default
only if it is quicker by more than the noise of these measurements, and nowhere slower by more than that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .._base.data import dataclass, field, replace
from .._ir.specialisation import Specialisation
from .._kernels.tuning import write
from .policy_search import Policy, PolicySearch

SHORT, LONG = 7, 41  # turns
FINALISTS = 4
_LEAST_GAIN = 0.01  # of the time: what differs by less changes nothing, however quiet the measurements were
_NOISES = 3.0  # how many times the noise a difference has to be
_CONFIRMING = 0.15  # of the time, or `_CONFIRMING_SECONDS`, are left to confirm
_CONFIRMING_SECONDS = 8.0


class FailedPolicyError(Exception):
    """A policy that gives wrong results, does not launch, or is not built; the message says which."""


@dataclass(frozen=True)
class TurnTimes:
    """Seconds of one problem, in turns: with the default policy, and with another."""

    problem: str
    before: Sequence[float]
    after: Sequence[float]

    @property
    def ratio(self) -> float:
        """The ratio of the other's time to the default's."""
        return statistics.median(self.after) / statistics.median(self.before)

    @property
    def noise(self) -> float:
        """The standard error of the ratio: of the median of the turns' ratios."""
        ratios = [after / before for after, before in zip(self.after, self.before, strict=True)]
        middle = statistics.median(ratios)
        spread = 1.4826 * statistics.median(abs(each - middle) for each in ratios) / middle
        return spread * 1.2533 / math.sqrt(len(ratios))

    @property
    def least(self) -> float:
        """The least relative difference that counts."""
        return max(_LEAST_GAIN, _NOISES * self.noise)

    def as_measured(self) -> dict[str, Any]:
        """Return it as an entry has it."""
        before, after = statistics.median(self.before), statistics.median(self.after)
        return {"problem": self.problem, "before": before, "after": after}


class Bench(Protocol):
    """Measures policies of one specialisation."""

    def turns(self, policy: Policy, number: int, is_final: bool) -> list[TurnTimes]:
        """Measure a policy `number` times in turns with the default, with each problem.

        Unless it is final, problems that are there only to be no slower may be left out.

        Raises
        ------
        FailedPolicyError
            If its results are wrong, or it does not launch.
        """


class Builder(Protocol):
    """Builds candidates, several at a time."""

    @property
    def accepts(self) -> bool:
        """Whether another could be begun now."""

    @property
    def pending(self) -> int:
        """The number of builds whose results were not returned yet."""

    def submit(self, policy: Policy) -> None:
        """Begin to build a candidate."""

    def next(self, timeout: float) -> tuple[Policy, str] | None:
        """Return a finished one with its error, empty on success; None after some seconds."""


@dataclass(frozen=True)
class Trial:
    """The outcome of one candidate."""

    policy: Policy
    ratio: float | None  # of its time to the default's; None if it failed
    error: str = ""


@dataclass(frozen=True)
class TuningResult:
    """The result of tuning one specialisation.

    Attributes
    ----------
    spec : Specialisation
    default : named tuple or None
        None: CUB's.
    trials : list of Trial
    winner : named tuple or None
        None if nothing is better than the default.
    turns : list of TurnTimes
        The last measurements of the winner, or of the best of those that were not kept.
    why : str
        The reason if there is no winner.
    """

    spec: Specialisation
    default: Policy | None
    trials: list[Trial] = field(default_factory=list)
    winner: Policy | None = None
    turns: list[TurnTimes] = field(default_factory=list)
    why: str = ""

    @property
    def failed(self) -> list[Trial]:
        """Those that did not work."""
        return [each for each in self.trials if each.ratio is None]

    @property
    def gain(self) -> float:
        """The winner's speedup over all problems that were tuned for."""
        return math.exp(-_cost(self.turns)) if self.winner is not None else 1.0


def tune(
    spec: Specialisation,
    make_bench: Callable[[], Bench],
    builder: Builder,
    seconds: float,
    notify: Callable[[Trial | None], None] = lambda trial: None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningResult:
    """Find the best policy of a specialisation in a number of seconds.

    The first candidates are built while the bench is made. `notify` is called with each outcome, and
    with None several times a second.
    """
    tunable = spec.family.tunable
    default = tunable.of(spec)
    end = clock() + seconds
    search_end = end - min(_CONFIRMING_SECONDS, _CONFIRMING * seconds)
    search = PolicySearch([*tunable.policies(spec)], tunable.space(spec), default)
    outcome = TuningResult(spec, default)

    def note(trial: Trial) -> None:
        outcome.trials.append(trial)
        search.tell(trial.policy, None if trial.ratio is None else math.log(trial.ratio))
        notify(trial)

    def fill() -> None:
        while builder.accepts and (policy := search.propose()) is not None:
            builder.submit(policy)

    fill()
    bench = make_bench()
    while clock() < search_end:
        fill()
        if builder.pending == 0:
            break
        notify(None)
        built = builder.next(min(0.1, max(0.0, search_end - clock())))
        if built is not None:
            policy, error = built
            note(_tried(bench, policy, error))
    return _confirmed(outcome, bench, end, clock)


def _tried(bench: Bench, policy: Policy, error: str) -> Trial:
    if error:
        return Trial(policy, None, error)
    try:
        return Trial(policy, math.exp(_cost(bench.turns(policy, SHORT, False))))
    except FailedPolicyError as failed:
        return Trial(policy, None, str(failed))


def _cost(turns: Sequence[TurnTimes]) -> float:
    """Return the mean of the logarithms of the ratios."""
    return statistics.fmean(math.log(each.ratio) for each in turns)


def _confirmed(outcome: TuningResult, bench: Bench, end: float, clock: Callable[[], float]) -> TuningResult:
    """Measure the best candidates for longer, and return the result."""
    working = sorted(
        (each for each in outcome.trials if each.ratio is not None), key=lambda each: each.ratio or 0
    )
    if not working:
        count = len(outcome.trials)
        return replace(outcome, why=f"none of {count} policies works" if count else "no time for any policy")
    tested: list[tuple[Policy, list[TurnTimes]]] = []
    for trial in [each for each in working if (each.ratio or 1) < 1][:FINALISTS]:
        if tested and clock() > end:
            break
        try:
            tested.append((trial.policy, bench.turns(trial.policy, LONG, True)))
        except FailedPolicyError as failed:
            outcome.trials[outcome.trials.index(trial)] = Trial(trial.policy, None, str(failed))
    better = [(policy, turns) for policy, turns in tested if not _objection(turns)]
    if better:
        policy, turns = min(better, key=lambda each: _cost(each[1]))
        return replace(outcome, winner=policy, turns=turns)
    if not tested:
        return replace(outcome, why="nothing is quicker than the default")
    policy, turns = min(tested, key=lambda each: _cost(each[1]))
    return replace(outcome, turns=turns, why=f"{write(policy)} {_objection(turns)}")


def _objection(turns: Sequence[TurnTimes]) -> str:
    """Return why a policy does not take the default's place; empty if it does."""
    for each in turns:
        if each.ratio > 1 + each.least:
            return f"is slower with {each.problem}, by {each.ratio - 1:.1%}"
    if not any(each.ratio < 1 - each.least for each in turns):
        best = min(turns, key=lambda each: each.ratio)
        return f"is quicker by {1 - best.ratio:.1%}, within the noise of {best.least:.1%}"
    return ""
