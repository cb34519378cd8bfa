"""Why a build was not found: which parts of its key differ from those of the nearest entry.

Parts describe themselves (see `_compile.key`): here they are compared, weighed by group, and printed. All of
it is metadata, which is unchecked and may be of another version of cupar, so nothing is taken to be where it
should be.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from .._base.data import dataclass
from .._base.errors import ArgumentValueError
from . import listing

Meta = Mapping[str, Any]

# How much a difference in a group of parts counts in finding the nearest entry. What a person expects to be
# found is the same program's build: other versions of the compilers count less than another GPU, that less
# than another value in an operator, that less than other code; types make it another program.
_VERSION = 1  # and of all that is not named here
_VALUE = 4
_CODE = 8
_WEIGHTS = {
    "algorithm": 16,
    "arguments": 16,
    "types": 16,
    "operators": 12,
    "options": 10,
    "functions": 6,  # another one, beside what differs in its code; not only another version of one
    "cc": 3,
}
_FURTHER = 1 / 8  # of that for each further difference of a weight: several versions change together

# Groups whose parts depend on the operators: a part that only one entry has is no separate reason.
_OF_OPERATORS = ("functions", "generated", "versions")

_FORMAT = ("format", "format")
_ABSENT = object()
_SHORT_KEY = 12
_TEXT = 80
# Values that an operator reads from itself.
_OWN = ("constant ", "defaults", "keyword defaults", "attributes")
_CONSTANT = re.compile(r"constant [0-9]+")
_CALLED = re.compile(r"(function|\S+Dispatcher) [0-9a-f]{12}")
_DEEP = "nested too deep"  # which only an attacker does


@dataclass(frozen=True)
class Difference:
    """A part in which two entries differ; as a string, a sentence.

    Attributes
    ----------
    part : str
        As in ``"d_in"``, ``"cc"``, ``"op reads global 'SCALE'"``.
    now : str or None
        What it is in the one entry. None where there is no such part; empty where it has no short form.
    before : str or None
        Its value in the other.

    Examples
    --------
    >>> print(Difference("d_in", "float32", "int32"))
    d_in: float32, was int32
    >>> print(Difference("code of op", "", ""))
    code of op changed
    """

    part: str
    now: str | None
    before: str | None

    def __str__(self) -> str:
        if self.now == self.before:
            return f"{self.part} changed"
        now, before = self._texts()
        return f"{self.part}: {now}, was {before}"

    def _texts(self) -> tuple[str, str]:
        """Return the new and the old value, as text."""
        if self.now == self.before:
            return "changed", ""
        now, before = ("not there" if each is None else each or "there" for each in (self.now, self.before))
        return now, before


@dataclass(frozen=True)
class Explanation:
    """The differences of an entry from the nearest one; as a string, a few lines.

    Attributes
    ----------
    key : str
    nearest : str or None
        Key of the entry that it is compared with; None without one of its algorithm and kind.
    differences : tuple of Difference
    """

    key: str
    nearest: str | None
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        key = self.key[:_SHORT_KEY]
        if self.nearest is None:
            return f"{key}: no other entry of its algorithm and kind is kept"
        other = self.nearest[:_SHORT_KEY]
        if not self.differences:
            return f"{key} differs from {other} in nothing that their metadata tells"
        return "\n  ".join([f"{key} differs from {other} in", *map(str, self.differences)])

    def _repr_html_(self) -> str:
        from .._base import html

        title = str(self).partition("\n")[0]
        rows = [(each.part, *each._texts()) for each in self.differences]
        return html.table(title, ("part", "now", "before"), rows)


_Found = list[tuple[int, Difference]]  # with their weights


# --- Comparing ------------------------------------------------------------------------------------------


def difference(now: Meta, before: Meta) -> tuple[Difference, ...]:
    """Return the parts in which two entries differ, by their metadata; the weightiest first."""
    try:
        return tuple(found for _, found in _compare(now, before))
    except RecursionError:
        return (Difference(f"metadata, which is {_DEEP},", "", ""),)


def nearest(meta: Meta, candidates: Iterable[tuple[str, Meta]]) -> tuple[str, Meta] | None:
    """Return the entry that differs least, with its key.

    Only those of the same algorithm and kind count; of several that differ by as much, the first.
    """
    kind = _kind(meta)
    alike = (pair for pair in candidates if _kind(pair[1]) == kind)
    ranked = ((_distance(meta, pair[1]), pair) for pair in alike)
    distance, pair = min(ranked, key=lambda each: each[0], default=(math.inf, ("", {})))
    return None if distance == math.inf else pair


def _distance(now: Meta, before: Meta) -> float:
    try:
        counts = Counter(weight for weight, _ in _compare(now, before))
    except RecursionError:
        return math.inf
    same_names = _table(now.get("operators")) == _table(before.get("operators"))
    return (
        sum(weight * (1 + _FURTHER * (count - 1)) for weight, count in counts.items()) + (not same_names) / 2
    )


def _kind(meta: Meta) -> tuple[Any, Any]:
    return meta.get("algorithm"), meta.get("entry")


def _compare(now: Meta, before: Meta) -> _Found:
    mine, its = _parts(now), _parts(before)
    same_format = mine.get(_FORMAT) == its.get(_FORMAT)
    found: _Found = []
    implied: _Found = []
    for place in sorted(mine.keys() | its.keys()):
        parts = [table.get(place, _ABSENT) for table in (mine, its)]
        if parts[0] == parts[1]:
            continue
        of_a_format = any(part is _ABSENT or isinstance(part, list) for part in parts) and place != _FORMAT
        if of_a_format and not same_format:
            continue  # lists, and what parts are called
        group, name = place
        texts = [_printed(name, part, meta) for part, meta in zip(parts, (now, before), strict=True)]
        reads = _reads(name, now, before) if group == "functions" else []
        found += reads
        if reads and _text(parts[0]) == _text(parts[1]):
            continue  # the name of another function, whose code differs anyway
        if texts[0] == texts[1]:  # texts may be incomplete
            texts = ["", ""]
        is_implied = group == "generated" or (group in _OF_OPERATORS and None in texts)
        is_implied |= name.startswith("state of ")  # of numbers and arrays that an operator reads
        (implied if is_implied else found).append((_WEIGHTS.get(group, _VERSION), Difference(name, *texts)))
    if all(weight == _VERSION for weight, _ in found):
        found += implied
    return sorted(found, key=lambda each: -each[0])


def _parts(meta: Meta) -> dict[tuple[str, str], Any]:
    """Return the parts by group and name; a part without a group forms its own group."""
    found = {}
    for group, part in _table(meta.get("parts")).items():
        for name, each in part.items() if isinstance(part, Mapping) else [(group, part)]:
            found[group, name] = each
    return found


def _printed(name: str, part: Any, meta: Meta) -> str | None:
    """Return a part as text; of an operator also its name, which is in no key."""
    if part is _ABSENT:
        return None
    texts = _text(part), _text(_table(meta.get("operators")).get(name, ""))
    return " ".join(each for each in dict.fromkeys(texts) if each)


def _reads(operator: str, now: Meta, before: Meta) -> _Found:
    """Compare the dependencies in two fingerprints of an operator, if both are known.

    A function that the operator calls is among that with a hash, and again with all that it reads: the hash
    is left out if that tells more. And constants are numbered, which says nothing once other code loads them.
    """
    mine, its = (_by_label(_table(meta.get("reads")).get(operator)) for meta in (now, before))
    if not mine or not its:
        return []
    labels = [label for label in dict.fromkeys([*mine, *its]) if mine.get(label) != its.get(label)]
    recoded = {label.removeprefix("code") for label in labels if label.startswith("code")}
    found: _Found = []
    calls: _Found = []
    for label in labels:
        texts = [each.get(label) for each in (mine, its)]
        if label.startswith("code"):
            found.append((_CODE, Difference(f"{label} of {operator}", "", "")))
        elif all(each is not None and _CALLED.fullmatch(each) for each in texts):
            calls.append((_VALUE, Difference(f"{label} that {operator} calls", "", "")))
        elif not label.startswith(_OWN):
            found.append((_VALUE, Difference(f"{operator} reads {label}", *texts)))
        elif _CONSTANT.sub("", label) not in recoded:
            found.append((_VALUE, Difference(f"{label} of {operator}", *texts)))
    return found or calls


def _by_label(reads: Any) -> dict[str, str]:
    """Return the values read, by label: functions of one name share theirs."""
    found = defaultdict(list)
    for each in reads if isinstance(reads, (list, tuple)) else ():
        if isinstance(each, (list, tuple)) and len(each) == 2:
            found[_text(each[0])].append(_text(each[1]))
    return {label: ", ".join(texts) for label, texts in found.items()}


# --- Metadata as text -----------------------------------------------------------------------------------


def subject(meta: Meta) -> str:
    """Describe an entry, as in ``reduce_into for sm_90``, or ``quick inclusive_scan for sm_90``."""
    algorithm, entry = _text(meta.get("algorithm", "")), _text(meta.get("entry", ""))
    what = f"kernels of {algorithm}" if entry == "template" else algorithm
    tier = _table(_table(meta.get("parts")).get("options")).get("option tier")
    if isinstance(tier, str):
        what = f"{_text(tier)} {what}"
    cc = _text(meta.get("cc", ""))
    where = "the CPU" if cc == "cpu" else f"sm_{cc}"
    return f"{what} for {where}" if algorithm else entry


def summary(meta: Meta) -> str:
    """Return arguments and operators of an entry, as in ``d_in: float32, op: OpKind.PLUS``."""
    return ", ".join(chain(*types_and_operators(meta)))


def types_and_operators(meta: Meta) -> tuple[list[str], list[str]]:
    """Return arguments of an entry, as in ``d_in: float32``, and operators, as in ``op: OpKind.PLUS``."""
    tables = _table(meta.get("parts")).get("arguments"), meta.get("operators")
    try:
        types, operators = ([f"{name}: {_text(of)}" for name, of in _table(each).items()] for each in tables)
    except RecursionError:
        return [_DEEP], []
    return types, operators


def _text(part: Any) -> str:
    """Return metadata as text; a part of a key describes itself."""
    if isinstance(part, list) and part and isinstance(part[0], str):
        part = part[0]
    if part is None:
        return "none"
    found = part if isinstance(part, str) else json.dumps(part, sort_keys=True, default=str)
    return found if len(found) <= _TEXT else f"{found[: _TEXT - 1]}…"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# --- Entries --------------------------------------------------------------------------------------------


def explain(key: str, other: str | None = None) -> Explanation:
    """Explain how an entry differs from another one, or from the nearest; see `cupar.cache.explain`."""
    kept = {info.key: info for info in listing.kept()}
    info = kept[listing.resolve(key, kept, "the cache", "algorithm")]
    second = None if other is None else kept[listing.resolve(other, kept, "the cache", "other")]
    now = _meta(info, "algorithm")
    if second is None:
        return explanation(info.key, now, kept.values())
    return Explanation(info.key, second.key, difference(now, _meta(second, "other")))


def _meta(info: listing.Info, name: str) -> Meta:
    meta = info.meta
    if not meta:
        raise ArgumentValueError(
            name, f"the entry {info.key} cannot be read; run 'cupar cache verify --repair'"
        )
    return meta


def explanation(key: str, meta: Meta, kept: Iterable[listing.Info] | None = None) -> Explanation:
    """Compare an entry, which need not be kept itself, with the nearest of those that are."""
    infos = listing.kept() if kept is None else kept
    kind = meta.get("algorithm", ""), meta.get("entry", "")
    others = (each for each in infos if each.key != key and (each.algorithm, each.entry) == kind)
    other, its = nearest(meta, ((each.key, each.meta) for each in others)) or (None, {})
    return Explanation(key, other, difference(meta, its) if other else ())
