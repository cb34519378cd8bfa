"""Times of cupar in PyTorch and JAX beside what these have: recurrences, gradients, memory, calls.

    python benchmarks/frameworks.py [--library torch,jax] [--only forward,gradient,…] [--exponent 24]
                                    [--repeats 9] [--seconds 240] [--json FILE]

With a GPU, of 2^24 float32; without one the same on the CPU with 2^10, to see that it works. Peers take turns
in one run, after what each computes is compared with the first one's; those that are not installed, or fail,
are named. Each library is a module of its own, such as `_frameworks_torch.py`, which says what its parts are.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _common

sys.path.insert(0, str(_common.ROOT))

LIBRARIES = ("torch", "jax")


@dataclass
class Case:
    """Something to measure, and who does it; the first one's result is what others' are compared with.

    Attributes
    ----------
    part, label : str
    sides : mapping
        By name: returns a call, which returns what is compared, or raises if there is no such thing.
    time : callable
        Takes a call, and returns seconds, or bytes.
    unit : float
        What a sample is divided by in the table, as in 1e-6 for microseconds.
    goal : tuple, optional
        A side, and the most that cupar may take of what that takes.
    close : callable
        Whether two results are close.
    uncompared : collection of str
        Sides that compute something else, of as many bytes.
    judge : callable, optional
        Whether a result is right, whoever computed it, in place of a comparison with the first one's.
    """

    part: str
    label: str
    sides: Mapping[str, Callable[[], Callable[[], Any]]]
    time: Callable[[Callable[[], Any]], float]
    unit: float
    goal: tuple[str, float] | None
    close: Callable[[Any, Any], bool]
    uncompared: Collection[str] = ()
    judge: Callable[[Any], bool] | None = None
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def measure(self, repeats: int) -> None:
        """Let all sides take turns."""
        samples: dict[str, list[float]] = {}
        calls, right = {}, None
        for name, prepare in self.sides.items():
            try:
                begin = time.perf_counter()
                calls[name] = call = prepare()
                result = call()
                self.found[name] = {"prepared": time.perf_counter() - begin}
                if name not in self.uncompared and result is not None:
                    right = result if right is None else right
                    is_right = self.judge(result) if self.judge else self.close(result, right)
                    if not is_right:
                        self.found[name]["is_right"] = False
                del result
                self.time(call)
                samples[name] = []
            except Exception as error:  # noqa: PERF203 - whatever a library raises, others are measured
                self.found[name] = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        for _ in range(repeats):
            for name, values in samples.items():
                values.append(self.time(calls[name]))
        for name, values in samples.items():
            self.found[name] |= _common.summary(values)

    def ratio(self, other: str) -> float | None:
        """Return what cupar takes of what another takes."""
        mine, its = (self.found.get(each, {}).get("median") for each in ("cupar", other))
        return mine / its if mine and its else None

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is; None without one, or if a side is missing."""
        if self.goal is None or (ratio := self.ratio(self.goal[0])) is None:
            return None
        return ratio <= self.goal[1]

    def rows(self) -> Iterator[list[str]]:
        """Yield the lines of a table."""
        for name, each in self.found.items():
            ratio = self.ratio(name) if name != "cupar" else None
            goal = f"<= {self.goal[1]:g}" if self.goal and self.goal[0] == name else ""
            if "error" in each:
                yield [self.part, self.label, name, "-", "", goal, each["error"][:60]]
                continue
            said = "" if each.get("is_right", True) else "WRONG"
            if goal and self.is_reached is False:
                said = f"{said} missed".strip()
            shown = f"{each['median'] / self.unit:.2f}"
            yield [self.part, self.label, name, shown, f"{ratio:.2f}" if ratio else "", goal, said]

    def as_json(self) -> dict[str, Any]:
        """Return what there is to tell."""
        goal = {"goal": self.goal, "is_reached": self.is_reached, "is_judged": self.judge is not None}
        return {"part": self.part, "label": self.label, "unit": self.unit, "sides": self.found, **goal}


def host_time(synchronize: Callable[[], Any], calls: int) -> Callable[[Callable[[], Any]], float]:
    """Return what measures the host's seconds of a call, of many in a row that the GPU is not waited for."""

    def measured(call: Callable[[], Any]) -> float:
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        taken = (time.perf_counter() - begin) / calls
        synchronize()
        return taken

    return measured


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--library", default=",".join(LIBRARIES), help="of torch,jax; default both")
    made.add_argument("--only", default="", help="parts, with commas; default all")
    made.add_argument("--exponent", type=int, help="2 to this many items; default 24, 10 without a GPU")
    made.add_argument("--repeats", type=int, default=9)
    made.add_argument("--seconds", type=float, default=240.0, help="after them, skip the rest")
    made.add_argument("--json", type=Path)
    options = made.parse_args()
    device = _common.gpu()
    if device is not None:
        os.environ.setdefault("CUPAR_TIER", "fast")  # nothing is linked while calls are timed
    facts = _common.environment(device)
    _common.print_environment(facts)
    exponent = options.exponent or (24 if device else 10)
    wanted, done, skipped, missing = options.only.split(",") if options.only else [], [], [], []
    for library in options.library.split(","):
        try:
            importlib.import_module(library)
            module = importlib.import_module(f"_frameworks_{library}")
        except ImportError as error:
            missing.append(f"{library}: {error}")
            continue
        for case in module.cases(exponent, device is not None):
            if wanted and case.part not in wanted:
                continue
            if time.perf_counter() - start > options.seconds:
                skipped.append(f"{library} {case.part} {case.label}")
                continue
            case.measure(options.repeats)
            print("\n".join("  ".join(row) for row in case.rows()), flush=True)
            done.append({"library": library, **case.as_json()})
            done[-1]["table"] = list(case.rows())
    print()
    rows = [[each["library"], *row] for each in done for row in each.pop("table")]
    _common.print_table(["library", "what", "of", "side", "us or ratio", "cupar / it", "goal", ""], rows)
    late = [f"skipped, after {options.seconds:g} s: {each}" for each in skipped]
    for text in (*late, *(f"not there: {each}" for each in missing)):
        print(text)
    path = options.json or _common.RESULTS / f"frameworks-{_common.slug(device)}.json"
    content = {"benchmark": "frameworks", "environment": facts, "exponent": exponent}
    _common.write_json(path, {**content, "cases": done, "skipped": skipped, "missing": missing})
    peers: list[str] = []
    wrong: list[str] = []
    for each in done:
        for name, side in each["sides"].items():
            if "error" in side or side.get("is_right") is False:
                is_peers = name != "cupar" and ("error" in side or each["is_judged"])
                of = f"{each['library']} {each['part']} {each['label']} {name}"
                (peers if is_peers else wrong).append(of)
    if peers:
        print("\n".join(["peers that failed, or are wrong:", *peers]))
    if wrong:
        raise SystemExit("\n".join(["failed or wrong:", *wrong]))


if __name__ == "__main__":
    main()
