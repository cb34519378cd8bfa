"""Tuning with fake measurements and builds: winners, rejected candidates, and the end of the search."""

import math
import random
from itertools import count

import pytest

import cupar
from cupar._ahead.batch import collected
from cupar._kernels import policies
from cupar._kernels.policies import TransformPolicy
from cupar._tune.tune import LONG, SHORT, FailedPolicyError, TurnTimes, tune

DEFAULT = policies.TRANSFORM.get(90)
BEST = TransformPolicy(512, 64, 4)


@pytest.fixture(scope="module")
def spec():
    (found,) = collected(lambda: cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE), 90)
    return found


class Clock:
    """Time that passes only when something is done."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Builder:
    """Builds at once, so many at a time; each takes a second."""

    def __init__(self, clock, at_once=4, wrong=lambda policy: ""):
        self.clock, self.at_once, self.wrong = clock, at_once, wrong
        self.begun, self.built = [], []

    @property
    def accepts(self):
        return len(self.begun) < self.at_once

    @property
    def pending(self):
        return len(self.begun)

    def submit(self, policy):
        assert self.accepts
        self.begun.append(policy)

    def next(self, timeout):
        self.clock.now += 1 / self.at_once
        policy = self.begun.pop(0)
        self.built.append(policy)
        return policy, self.wrong(policy)


class Bench:
    """Takes seconds from a function, with noise; the default takes 1."""

    def __init__(self, clock, seconds, noise=0.001, guard=None, wrong=lambda policy: ""):
        self.clock, self.seconds, self.noise, self.guard, self.wrong = clock, seconds, noise, guard, wrong
        self.random, self.measured = random.Random(7), []

    def turns(self, policy, number, is_final):
        self.measured.append((policy, number, is_final))
        self.clock.now += number / 1000
        if self.wrong(policy):
            raise FailedPolicyError(self.wrong(policy))
        problems = {"2^28 items": self.seconds}
        if is_final and self.guard:
            problems["2^20 items"] = self.guard
        return [
            TurnTimes(name, self.times(1.0, number), self.times(seconds(policy), number))
            for name, seconds in problems.items()
        ]

    def times(self, seconds, number):
        return [seconds * math.exp(self.random.gauss(0, self.noise)) for _ in range(number)]


def bowl(policy):
    threads, nbytes, _ = policy
    return 0.7 + 0.1 * abs(math.log2(threads / 512)) + 0.1 * abs(math.log2(nbytes / 64))


def tuned(spec, seconds=bowl, time=100.0, builds=None, **bench):
    clock = Clock()
    builder, measured = Builder(clock, **(builds or {})), Bench(clock, seconds, **bench)
    outcome = tune(spec, lambda: measured, builder, time, clock=clock)
    return outcome, builder, measured, clock


def test_the_best_is_kept_with_what_was_measured(spec):
    outcome, builder, bench, clock = tuned(spec)
    assert (outcome.default, outcome.winner, outcome.why) == (DEFAULT, BEST, "")
    assert DEFAULT not in builder.built
    assert len(outcome.trials) == len(builder.built) == 19  # all but the default
    (turns,) = outcome.turns
    assert (turns.problem, len(turns.before)) == ("2^28 items", LONG)
    assert turns.as_measured()["after"] == pytest.approx(0.7, rel=0.01)
    assert outcome.gain == pytest.approx(1 / 0.7, rel=0.01)
    assert bench.measured[-1][1:] == (LONG, True)
    assert clock.now < 100  # it ends when all were tried


def test_it_ends_in_time(spec):
    outcome, builder, _, clock = tuned(spec, time=2.0)
    assert clock.now < 2.2
    assert 2 < len(builder.built) < 9
    assert outcome.winner is not None


def test_no_time_for_anything(spec):
    outcome, *_ = tuned(spec, time=0.0)
    assert (outcome.winner, outcome.trials, outcome.why) == (None, [], "no time for any policy")


@pytest.mark.parametrize("noise", [0.001, 0.02, 0.2])
def test_what_is_within_the_noise_changes_nothing(spec, noise):
    for seed in range(5):
        clock = Clock()
        bench = Bench(clock, lambda policy: 1.0, noise)
        bench.random.seed(seed)
        outcome = tune(spec, lambda bench=bench: bench, Builder(clock), 100.0, clock=clock)
        assert outcome.winner is None
        assert "within the noise" in outcome.why or "quicker than the default" in outcome.why


def test_a_little_is_within_the_noise_however_quiet_it_is(spec):
    outcome, *_ = tuned(spec, lambda policy: 0.995, noise=1e-5)
    assert outcome.winner is None
    assert "by 0.5%, within the noise of 1.0%" in outcome.why


def test_what_is_slower_elsewhere_is_not_kept(spec):
    slow = lambda policy: 1.2 if policy == BEST else 1.0
    outcome, *_ = tuned(spec, guard=slow)
    assert outcome.winner not in (None, BEST)
    nothing, *_ = tuned(spec, guard=lambda policy: 1.2)
    assert nothing.winner is None
    assert nothing.why.endswith("is slower with 2^20 items, by 20.0%") or "is slower with" in nothing.why


def test_wrong_results_are_reported_and_never_kept(spec):
    wrong = lambda policy: "gives wrong results" if policy == BEST else ""
    outcome, *_ = tuned(spec, wrong=wrong)
    assert outcome.winner not in (None, BEST)
    assert [(each.policy, each.error) for each in outcome.failed] == [(BEST, "gives wrong results")]


def test_results_that_get_wrong_later_are_never_kept(spec):
    """As with a race: right in the search, wrong when it is confirmed."""
    times = count()
    wrong = lambda policy: "gives wrong results" if policy == BEST and next(times) > 0 else ""
    outcome, *_ = tuned(spec, wrong=wrong)
    assert outcome.winner not in (None, BEST)
    assert [each.policy for each in outcome.failed] == [BEST]


def test_what_cannot_be_built_is_reported(spec):
    outcome, _, bench, _ = tuned(spec, builds={"wrong": lambda policy: "too many registers"})
    assert outcome.winner is None
    assert outcome.why == "none of 19 policies works"
    assert bench.measured == []
    assert {each.error for each in outcome.failed} == {"too many registers"}


def test_it_tells_of_each(spec):
    clock, told = Clock(), []
    tune(spec, lambda: Bench(clock, bowl), Builder(clock), 100.0, told.append, clock)
    assert len([each for each in told if each is not None]) == 19
    assert None in told


def test_candidates_are_measured_in_short_and_the_best_for_longer(spec):
    _, _, bench, _ = tuned(spec)
    numbers = [number for _, number, is_final in bench.measured if not is_final]
    finals = [policy for policy, _, is_final in bench.measured if is_final]
    assert {*numbers} == {SHORT}
    assert finals[0] == BEST
    assert 1 < len(finals) <= 4


def test_noise_is_that_of_ratios_of_turns():
    """What makes both slower for a while, as another program on the GPU, is no noise of the ratio."""
    drift = [1 + k / 10 for k in range(21)]
    turns = TurnTimes("x", drift, [0.9 * each for each in drift])
    assert turns.ratio == pytest.approx(0.9)
    assert turns.noise == pytest.approx(0, abs=1e-9)
    shaking = TurnTimes("x", [1, 2] * 10, [2, 1] * 10)
    assert shaking.noise > 0.1
