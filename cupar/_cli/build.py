"""``cupar build``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._base.device import public, text
from .._base.words import counted
from .._inspect import listing
from . import program
from .command import FAULT, OK, Arguments, FailedError, Result, argument, ccs_of, command
from .terminal import complain, on_terminal, output_left_alone, print_table, progress_bar, say

if TYPE_CHECKING:
    from .._ahead.batch import BuildJob, Failure
    from .._ahead.make import Outcome

_RESULTS = ("built", "linked", "found", "failed")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


@command("build", "build ahead of time, without a GPU", takes_rest=True)
@argument("source", metavar="SCRIPT_OR_LIST", help="a script (.py), or a recorded list")
@argument(
    "--cc",
    metavar="CC",
    type=ccs_of,
    default=[],
    help="compute capabilities, as in 80,90; default: those that the script or list names, "
    "else that of this machine's GPU; builds for the CPU are for this CPU",
)
@argument("--jobs", metavar="N", type=_positive, help="how many at a time; default: one per core")
def build(arguments: Arguments) -> Result:
    """Build everything that a Python script or a recorded list asks for, for each compute capability.

    A script is run, and its factories build nothing unless it reads `build` of an algorithm; it must
    not call algorithms. A list is the output of a run under CUPAR_RECORD. Both run code: build only
    what you would run.

    Examples
    --------
    cupar build asked.jsonl --cc 80,90,100,120
    cupar build train.py --cc 90 --jobs 8 -- --arguments of the script
    """
    start = time.perf_counter()
    listing.own()  # or fail now
    with output_left_alone() if arguments.json else nullcontext():
        jobs, failures, outcomes = _requested(arguments)
        outcomes = _built(arguments, jobs, outcomes)
    for said in dict.fromkeys(said for each in outcomes.values() for said in each.warnings):
        complain(f"warning: {said}")
    seconds = time.perf_counter() - start

    counts = _counts(outcomes.values())

    def show() -> None:
        _print_counts(jobs, outcomes)
        found = counts["found"]
        more = f", {found} found in the cache" if found else ""
        say(f"{counted(len(jobs) - found, 'build')} in {seconds:.1f} s{more}")
        for job in jobs:
            if outcomes[job.key].result == "failed":
                complain(f"error: {job}: {outcomes[job.key].error}")
        for each in failures:
            complain(f"error: {each.place}: {each.error}")

    document = {
        "builds": [_described(job, outcomes[job.key]) for job in jobs],
        "not_asked": [{"place": each.place, "error": each.error} for each in failures],
        "counts": counts,
        "seconds": round(seconds, 4),
    }
    return Result(document, show, FAULT if failures or counts["failed"] else OK)


def _requested(arguments: Arguments) -> tuple[list[BuildJob], list[Failure], dict[str, Outcome]]:
    """Return the builds that a script or list asks for, the requests that failed, and finished builds."""
    from .._ahead import batch

    asked, failures, outcomes = program.requested(Path(arguments.source), arguments.rest, arguments.cc)
    jobs = batch.jobs(asked, arguments.cc)
    if not jobs and not failures:
        raise FailedError(f"{arguments.source}: nothing was asked for")
    return jobs, failures, outcomes


def _built(arguments: Arguments, jobs: list[BuildJob], made: dict[str, Outcome]) -> dict[str, Outcome]:
    """Build the missing jobs and report progress: on a terminal with a bar, elsewhere with lines.

    Return the outcome of each key.
    """
    from .._ahead import batch
    from .._jobs.threads import cores

    has_bar = on_terminal() and not arguments.json
    width = len(str(len(jobs)))
    outcomes: dict[str, Outcome] = {}
    there = [(job, made[job.key]) for job in jobs if job.key in made]
    todo = [job for job in jobs if job.key not in made]
    bar = progress_bar("building", "count", "time", "{task.description}", shown=has_bar)
    with bar, closing(batch.build(todo, arguments.jobs or cores(), bar.refresh)) as done:
        task = bar.add_task("", total=len(jobs))
        for number, (job, outcome) in enumerate(chain(there, done), start=1):
            outcomes[job.key] = outcome
            what = f"{job.spec.algorithm} for {text(job.spec.cc)}"
            bar.update(task, advance=1, description=what, refresh=True)
            if not has_bar and not arguments.json:
                result = f"{outcome.result:<6} {outcome.seconds:6.2f} s"
                say(f"[{number:{width}}/{len(jobs)}] {result}  {job}")
                sys.stdout.flush()
    return batch.kept(outcomes)


def _described(job: BuildJob, outcome: Outcome) -> dict[str, Any]:
    return {
        "key": job.key,
        "algorithm": job.spec.algorithm,
        "cc": public(job.spec.cc),
        "types": job.types,
        "operators": job.operators,
        "result": outcome.result,
        "seconds": round(outcome.seconds, 4),
        "cubin_size": outcome.cubin_size,
        "error": outcome.error or None,
    }


def _counts(outcomes: Iterable[Outcome]) -> dict[str, int]:
    counts: Counter[str] = Counter(each.result for each in outcomes)
    return {result: counts[result] for result in _RESULTS}


def _print_counts(jobs: list[BuildJob], outcomes: dict[str, Outcome]) -> None:
    rows = []
    for cc in dict.fromkeys(job.spec.cc for job in jobs):
        of_cc = [outcomes[job.key] for job in jobs if job.spec.cc == cc]
        seconds = f"{sum(each.seconds for each in of_cc):.1f}"
        rows.append((str(public(cc)), *map(str, _counts(of_cc).values()), seconds))
    numbers = (*_RESULTS, "seconds")
    print_table(("cc", *numbers), rows, numbers)
