"""``cupar tune``."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.words import counted
from .._inspect import listing
from . import program
from .command import FAULT, OK, Arguments, FailedError, Result, UsageError, argument, ccs_of, command
from .terminal import complain, on_terminal, output_left_alone, print_table, progress_bar, say

if TYPE_CHECKING:
    from .._device.card import Card
    from .._ir.specialisation import Specialisation
    from .._tune.requests import Left
    from .._tune.session import Tuned
    from .._tune.tune import Trial

_SECONDS, _SECONDS_OF_ALL = 300.0, 600.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds from 1 on, got {text!r}")
    return seconds


def _count(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})(?:\^(\d{1,2})|([KMG]?))", text, re.IGNORECASE | re.ASCII)
    count = 0
    if match is not None:
        count = int(match[1]) ** int(match[2]) if match[2] else int(match[1]) * _UNITS[match[3].upper()]
    if not 1 <= count < 1 << 40:
        raise argparse.ArgumentTypeError(
            f"expected a number from 1 on, as in 1000000, 64M or 2^28, got {text!r}"
        )
    return count


@command("tune", "measure policies on this machine's GPU, and keep the best", takes_rest=True)
@argument(
    "what",
    metavar="WHAT",
    nargs="?",
    help="an algorithm, as in inclusive_scan; a recorded list; a script (.py)",
)
@argument(
    "types", metavar="TYPE", nargs="*", help="of an algorithm: dtypes of input and output, or keys and items"
)
@argument("--op", metavar="NAME", help="of an algorithm: an OpKind, as in plus, maximum or less")
@argument(
    "--offsets", action="store_true", help="of a segmented algorithm: segments by offsets; default: rows"
)
@argument("--all", action="store_true", help="tune all algorithms for the usual dtypes, without WHAT")
@argument(
    "--seconds",
    metavar="S",
    type=_seconds,
    help=f"in total; default: {_SECONDS:g}, or {_SECONDS_OF_ALL:g} with --all",
)
@argument("--items", metavar="N", type=_count, help="number of items, as in 2^28; default: many and few")
@argument("--segment-size", metavar="N", type=_count, help="items per segment; default: several sizes")
@argument("--cc", metavar="CC", type=ccs_of, help="also tune what a list has for other GPUs, for this one")
@argument("--dry-run", action="store_true", help="measure, but keep nothing")
@argument(
    "--export", action="store_true", help="print winners as rows of cupar's tables, with what measured them"
)
@argument(
    "--plot", metavar="FILE", type=Path, help="draw what was measured (.png, .svg, .pdf); needs matplotlib"
)
def tune(arguments: Arguments) -> Result:
    """Measure policies on this machine's GPU: threads per block, items per thread, and so on.

    Helper processes build candidates, which are measured in turns with the default policy; the
    results of each are compared with the default's. A policy that is faster by more than the noise,
    and nowhere slower, is kept as an entry of the cache. Later builds for this GPU model use it, and
    `build.policy` says so. Bundles and shared stores carry such entries, which are never used for
    another GPU model.

    Examples
    --------
    cupar tune inclusive_scan float32 --seconds 60
    cupar tune segmented_sort int32 --segment-size 1024 --plot sort.png
    cupar tune merge_sort float64 int32 --op greater --dry-run
    cupar tune asked.jsonl --seconds 600
    cupar tune --all --export > rows.py
    """
    from .._tune import session

    start = time.perf_counter()
    if (arguments.what is None) != arguments.all:
        got = f"{arguments.what} and --all" if arguments.all else "neither"
        raise UsageError(f"WHAT: expected either an algorithm, a list or a script, or --all, got {got}")
    total = arguments.seconds or (_SECONDS_OF_ALL if arguments.all else _SECONDS)
    if not arguments.dry_run:
        listing.own()  # or fail now
    if arguments.plot is not None:
        _check_plot(arguments.plot)
    with output_left_alone() if arguments.json else nullcontext():
        card = _card(arguments)
        specs, left = _requested(arguments, card)
        sizes = arguments.items, arguments.segment_size
        with _progress(arguments, len(specs)) as (begin, notify):
            results = session.run(specs, total, *sizes, not arguments.dry_run, begin, notify)
    seconds = time.perf_counter() - start
    if arguments.plot is not None:
        _plot(arguments.plot, card, results)
    lost = any("does not answer" in each.why for each in results)

    def show() -> None:
        rows = [row for row in (_row(each, card) for each in results) if row]
        if not arguments.export:
            say(str(card))
            _print_results(results, arguments.dry_run)
        elif rows:
            say("\n\n".join(rows))
        for each in results:
            _complain_of(each)
        for name, why in left:
            complain(f"{name}: not tuned: {why}")
        _complain_of_time(results)
        took = f"{counted(len(results), 'problem')} in {seconds:.0f} s"
        if arguments.export:  # rows alone are on standard output
            complain(f"{took}: {counted(len(rows), 'row')}")
        else:
            say(took)

    document = {
        "card": card.part(),
        "results": [{**_described(each), "row": _row(each, card) or None} for each in results],
        "not_tuned": [{"name": name, "why": why} for name, why in left],
        "is_kept": not arguments.dry_run,
        "seconds": round(seconds, 1),
    }
    return Result(document, show, FAULT if lost else OK)


# --- Requests -------------------------------------------------------------------------------------------


def _card(arguments: Arguments) -> Card:
    from .._device.driver import NoDeviceError
    from .._tune import session

    try:
        card = session.current_card()
    except NoDeviceError:
        raise FailedError(
            f"{'WHAT: ' if arguments.what else ''}{arguments.what or '--all'} cannot be tuned here, as there "
            "is no GPU: policies are measured on the kind of card that they are for"
        ) from None
    if arguments.cc and arguments.cc != [card.cc]:
        named = ", ".join(f"sm_{cc}" for cc in arguments.cc)
        raise UsageError(
            f"--cc: expected {card.cc}, as the GPU here is an {card}; tune for {named} on such a card"
        )
    return card


def _requested(arguments: Arguments, card: Card) -> tuple[list[Specialisation], Left]:
    """Return the requested specialisations that can be tuned, and the rest with reasons."""
    from .._tune import requests

    path = Path(arguments.what or "")
    left: Left = []
    if arguments.all:
        _check_alone(arguments, "--all has its own")
        specs = requests.usual(card.cc)
    elif path.suffix != ".py" and not path.exists():
        if path.suffix or len(path.parts) > 1:
            raise UsageError(f"WHAT: there is no list {arguments.what}")
        if arguments.rest:
            raise UsageError("--: an algorithm takes no arguments of a script")
        try:
            spec = requests.named(arguments.what, arguments.types, arguments.op, arguments.offsets, card.cc)
        except ValueError as error:
            raise UsageError(str(error)) from None
        specs = [spec]
    else:
        specs, left = _listed(arguments, path, card)
    found, more = requests.tunable(specs, card)
    if not found:
        reasons = "; ".join(f"{name}: {why}" for name, why in (*left, *more)) or "nothing was asked for"
        raise FailedError(f"WHAT: {arguments.what}: nothing to tune: {reasons}")
    return found, [*left, *more]


def _check_alone(arguments: Arguments, why: str) -> None:
    for name, given in (("TYPE", arguments.types), ("--op", arguments.op), ("--offsets", arguments.offsets)):
        if given:
            raise UsageError(f"{name}: {why}")


def _listed(arguments: Arguments, path: Path, card: Card) -> tuple[list[Specialisation], Left]:
    _check_alone(arguments, "a list or script says itself what it asks for")
    ccs = [card.cc] if path.suffix == ".py" else arguments.cc or ()
    specs, failures, _ = program.requested(path, arguments.rest, ccs)
    left = [(each.place, each.error) for each in failures]
    specs = [spec for spec in specs if not spec.is_cpu]  # where nothing is tuned
    others = sorted({spec.cc for spec in specs if spec.cc != card.cc})
    if others:
        named = ", ".join(f"sm_{cc}" for cc in others)
        why = (
            f"asked for on {named}; the GPU here is an {card}: tune it on such a card, or say --cc {card.cc}"
        )
        left.append((f"{sum(spec.cc != card.cc for spec in specs)} of {len(specs)}", why))
    return [spec for spec in specs if spec.cc == card.cc], left


# --- Tuning ---------------------------------------------------------------------------------------------


Begin = Callable[["Specialisation", float], None]
Notify = Callable[["Trial | None"], None]


@contextmanager
def _progress(arguments: Arguments, number: int) -> Iterator[tuple[Begin, Notify]]:
    """Show how far it is: on a terminal a bar of the time, and the best policy until then."""
    columns = "{task.description}", "time", "{task.fields[best]}"
    bar = progress_bar(*columns, shown=on_terminal() and not arguments.json)
    task: Any = None
    start, count, best, names = 0.0, 0, 1.0, iter(range(1, number + 1))

    def begin(spec: Specialisation, seconds: float) -> None:
        nonlocal task, start, count, best
        if task is not None:
            bar.remove_task(task)
        start, count, best = time.monotonic(), 0, 1.0
        task = bar.add_task(f"{spec.algorithm} ({next(names)}/{number})", total=seconds, best="")

    def notify(trial: Trial | None) -> None:
        nonlocal count, best
        if trial is not None:
            count += 1
            best = min(best, trial.ratio or best)
        text = f"{counted(count, 'policy')} tried, the best {1 / best:.2f} times as quick"
        bar.update(task, completed=time.monotonic() - start, best=text, refresh=True)

    with bar:
        yield begin, notify


# --- Results --------------------------------------------------------------------------------------------


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.3f} ms"


def _policy(policy: Any) -> str:
    from .._kernels.tuning import write

    return "CUB's" if policy is None else write(policy)


def _result(each: Tuned, is_dry: bool) -> str:
    outcome = each.outcome
    if outcome is None:
        return each.why
    if outcome.winner is None:
        return f"unchanged: {outcome.why}"
    if is_dry:
        return "not kept (--dry-run)"
    return f"kept, {each.key[:12]}" if each.key else f"not kept: {each.why}"


def _print_results(results: list[Tuned], is_dry: bool) -> None:
    rows = []
    for each in results:
        spec, outcome = each.spec, each.outcome
        turns = [] if outcome is None else [turn.as_measured() for turn in outcome.turns]
        before, after = (", ".join(_time(turn[name]) for turn in turns) for name in ("before", "after"))
        rows.append(
            (
                f"{spec.algorithm} {' '.join(str(arg.value) for arg in spec.arguments[:1])}",
                "" if outcome is None else str(len(outcome.trials)),
                ", ".join(turn["problem"] for turn in turns),
                "" if outcome is None else _policy(outcome.default),
                before,
                "" if outcome is None or outcome.winner is None else _policy(outcome.winner),
                after,
                _result(each, is_dry),
            )
        )
    names = ("problem", "tried", "measured with", "default", "time", "tuned", "its time", "result")
    print_table(names, rows, ("tried",))


def _row(each: Tuned, card: Card) -> str:
    """Return a winner as a row of its default's table; empty without a winner."""
    from .._kernels import policies

    spec, outcome = each.spec, each.outcome
    if outcome is None or outcome.winner is None:
        return ""
    with policies.lookups() as found:
        spec.family.tunable.default(spec)
    tables = {
        id(table): name for name, table in vars(policies).items() if isinstance(table, policies.PolicyTable)
    }
    table, key = found[0] if found else (None, (spec.cc,))
    types = ", ".join(dict.fromkeys(str(argument.value) for argument in spec.arguments))
    times = "; ".join(
        f"{turn['problem']}: {_time(turn['before'])} -> {_time(turn['after'])}"
        for turn in (turn.as_measured() for turn in outcome.turns)
    )
    measured = (
        card.name.removeprefix("NVIDIA "),
        time.strftime("%Y-%m-%d"),
        f"{spec.algorithm} of {types}; {times}",
    )
    told, row = ", ".join(f'"{text}"' for text in measured), {key: outcome.winner}
    return f"# {tables.get(id(table), 'no table has it')}\nMeasuredPolicies({told}, {row}),"


def _complain_of_time(results: list[Tuned]) -> None:
    """Report how many problems no time was left for, and which."""
    from .._tune.session import NO_TIME

    names = [each.spec.algorithm for each in results if each.why == NO_TIME]
    if names:
        which = ", ".join(f"{name} ({names.count(name)})" for name in dict.fromkeys(names))
        complain(f"{len(names)} of {counted(len(results), 'problem')}: {NO_TIME}; more --seconds do: {which}")


def _complain_of(each: Tuned) -> None:
    """Report policies that do not work: once for each reason, with one of them."""
    if each.outcome is None:
        return
    failed: dict[str, list[str]] = {}
    for trial in each.outcome.failed:
        failed.setdefault(trial.error.splitlines()[0], []).append(_policy(trial.policy))
    for why, policies in failed.items():
        more = f", and {len(policies) - 1} others" if len(policies) > 1 else ""
        complain(f"warning: {each.spec.algorithm}: {policies[0]}{more}: {why}")


def _described(each: Tuned) -> dict[str, Any]:
    from .._ahead import record

    spec, outcome = each.spec, each.outcome
    found: dict[str, Any] = {
        "algorithm": spec.algorithm,
        "cc": spec.cc,
        "types": record.types(spec),
        "operators": record.operators(spec),
        "key": each.key or None,
        "why": each.why or (outcome.why if outcome is not None else "") or None,
    }
    if outcome is None:
        return found
    return {
        **found,
        "default": None if outcome.default is None else outcome.default._asdict(),  # type: ignore[attr-defined]
        "policy": None if outcome.winner is None else outcome.winner._asdict(),  # type: ignore[attr-defined]
        "gain": round(outcome.gain, 4),
        "measured": [turn.as_measured() for turn in outcome.turns],
        "tried": [
            {"policy": _policy(trial.policy), "ratio": trial.ratio, "error": trial.error or None}
            for trial in outcome.trials
        ],
    }


# --- The plot -------------------------------------------------------------------------------------------


def _check_plot(path: Path) -> None:
    """Raise unless a plot can be drawn to a file."""
    from importlib.util import find_spec

    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot: expected a file that ends in .png, .svg or .pdf, got {str(path)!r}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--plot: there is no directory {path.absolute().parent}")
    if find_spec("matplotlib") is None:
        raise FailedError(
            "--plot: matplotlib is not installed; run 'pip install matplotlib', or leave --plot out"
        )


def _plot(path: Path, card: Card, results: list[Tuned]) -> None:
    """Draw how long each candidate took, by the default, in the order in which they were measured."""
    from matplotlib.figure import Figure

    shown = [each for each in results if each.outcome is not None and each.outcome.trials]
    figure = Figure(figsize=(7, 1 + 2.6 * max(len(shown), 1)), layout="constrained")
    figure.suptitle(str(card))
    for number, each in enumerate(shown, start=1):
        axes = figure.add_subplot(len(shown), 1, number)
        outcome: Any = each.outcome
        trials = outcome.trials
        works = [(at, trial) for at, trial in enumerate(trials, start=1) if trial.ratio is not None]
        fails = [at for at, trial in enumerate(trials, start=1) if trial.ratio is None]
        axes.axhline(1, color="0.6", linewidth=1, label=f"default: {_policy(outcome.default)}")
        axes.plot([at for at, _ in works], [trial.ratio for _, trial in works], ".", label="tried")
        axes.plot(fails, [1] * len(fails), "x", color="tab:red", label="does not work") if fails else None
        chosen = [(at, trial) for at, trial in works if trial.policy == outcome.winner]
        for at, trial in chosen:
            axes.plot(at, trial.ratio, "o", color="tab:green", label=_policy(trial.policy))
        axes.set_title(f"{each.spec.algorithm} {each.spec.arguments[0].value}", fontsize="medium")
        axes.set_xlabel("policy, in the order of measuring")
        axes.set_ylabel("time by the default's")
        axes.set_yscale("log")
        axes.legend(fontsize="small")
    figure.savefig(path)
