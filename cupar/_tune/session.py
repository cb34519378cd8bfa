"""Tuning of all requests in a time that they share; winners are kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from .._base.data import dataclass
from .._device import driver
from .._device.card import Card, card_of
from .._ir.specialisation import Specialisation
from .._kernels.tuning import write
from .._obtain import tuned
from .builds import Candidates, Scratch
from .measure import GPU, DeviceError
from .tune import Trial, TuningResult, tune
from .workloads import UnsuitableError

NO_TIME = "no time was left for it"
_LEAST_SECONDS = 3.8  # for one specialisation; `--all` has some 154 of them in ten minutes


@dataclass(frozen=True)
class Tuned:
    """Result of one specialisation: an outcome, or a reason without one; and the key of a kept policy."""

    spec: Specialisation
    outcome: TuningResult | None
    why: str = ""
    key: str = ""


def current_card() -> Card:
    """Return the kind of the current device; raise NoDeviceError without one."""
    return card_of(driver.current_device())


def run(
    specs: Sequence[Specialisation],
    seconds: float,
    items: int | None,
    segment_size: int | None,
    is_kept: bool,
    begin: Callable[[Specialisation, float], None] = lambda spec, seconds: None,
    notify: Callable[[Trial | None], None] = lambda trial: None,
) -> list[Tuned]:
    """Tune specialisations one after another, in a number of seconds.

    Parameters
    ----------
    specs : sequence of Specialisation
        Those that matter most come first: where time is short, the last ones have none.
    seconds : float
        For all of them; each has its share of the rest.
    items, segment_size : int or None
        Of the problem that is measured; by default of several.
    is_kept : bool
        Whether winners are kept.
    begin : callable, optional
        Called with each specialisation, and its seconds.
    notify : callable, optional
        Called with what became of each candidate, and with None several times a second.
    """
    end = time.monotonic() + seconds
    card = current_card()
    found: list[Tuned] = []
    with Scratch() as scratch:
        for number, spec in enumerate(specs):
            rest = end - time.monotonic()
            fitting = min(len(specs) - number, int(rest / _LEAST_SECONDS))
            if fitting < 1 and number:
                found.append(Tuned(spec, None, NO_TIME))
                continue
            share = rest / max(fitting, 1)
            begin(spec, share)
            bench = partial(GPU, spec, scratch.found, items, segment_size)
            try:
                outcome = tune(spec, bench, Candidates(spec, scratch), share, notify)
            except UnsuitableError as error:
                found.append(Tuned(spec, None, str(error)))
                continue
            except DeviceError as error:  # nothing else can be measured in this process
                why = "the GPU does not answer any more"
                found.append(Tuned(spec, None, f"{why}: {error}"))
                found += [Tuned(each, None, why) for each in specs[number + 1 :]]
                break
            finally:
                scratch.drop()
            found.append(_kept(outcome, card, scratch) if is_kept else Tuned(spec, outcome))
    return found


def _kept(outcome: TuningResult, card: Card, scratch: Scratch) -> Tuned:
    """Keep the winner, if there is one, with its build."""
    if outcome.winner is None:
        return Tuned(outcome.spec, outcome)
    measured = [each.as_measured() for each in outcome.turns]
    key, entry = tuned.entry(outcome.spec, card, outcome.winner, measured)
    if not tuned.keep(key, entry):
        return Tuned(outcome.spec, outcome, "the cache did not keep it")
    scratch.keep(outcome.spec.with_policy(write(outcome.winner)))
    return Tuned(outcome.spec, outcome, key=key)
