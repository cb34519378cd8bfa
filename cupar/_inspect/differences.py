"""Why a build was not found: which parts of its key differ from those of the nearest entry.

Everything here reads metadata, which is unchecked and may be of another version of cupar, so nothing is taken
to be where it should be.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import listing

__all__ = [
    "Difference",
    "Explanation",
    "difference",
    "explain",
    "explanation",
    "nearest",
    "subject",
    "summary",
]

Meta = Mapping[str, Any]

# How much each kind of difference counts in finding the nearest entry. What a person expects to be found is
# the same program's build: other versions of the compilers count less than another GPU, that less than
# another value in an operator, that less than other code; types make it another program.
_VERSION = 1
_CC = 3
_VALUE = 4
_CODE = 8
_OPTION = 10
_FUNCTION = 12  # another operator, not only another version of one
_TYPE = 16
_FURTHER = 1 / 8  # of that for each further difference of a kind: several versions, or types, change together

_SHORT_KEY = 12
_TEXT = 80
_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
_DTYPE = re.compile(r"[<>|=]([iufc])([0-9]{1,2})")
_OF_ARGUMENT = re.compile(r"(.+)_op([0-9]{1,4})")
_CALLED = re.compile(r"(function|\S+Dispatcher) [0-9a-f]{12}")
_INSIDE = re.compile(r" in '[^']*'$")
_DEEP = "nested too deep"  # which nobody does but to do harm


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
        What it is in the other.

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
        was = "was not there" if self.before is None else f"was {self.before}"
        return f"{self.part}: {'not there' if self.now is None else self.now}, {was}"


@dataclass(frozen=True)
class Explanation:
    """In what an entry differs from the nearest one; as a string, a few lines.

    Attributes
    ----------
    key : str
    nearest : str or None
        Key of the entry that it is compared with; None if there is none of its algorithm and kind.
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


_Found = Iterator[tuple[int, Difference]]  # with how much it counts


# --- Comparing ------------------------------------------------------------------------------------------


def difference(now: Meta, before: Meta) -> tuple[Difference, ...]:
    """Return the parts in which two entries differ.

    Parameters
    ----------
    now, before : mapping
        Their metadata.
    """
    try:
        return tuple(found for _, found in _compare(now, before))
    except RecursionError:
        return (Difference(f"metadata, which is {_DEEP},", "", ""),)


def nearest(meta: Meta, candidates: Iterable[tuple[str, Meta]]) -> tuple[str, Meta] | None:
    """Return the entry that differs least, with its key.

    Parameters
    ----------
    meta : mapping
        Metadata of the entry that others are compared with.
    candidates : iterable of (str, mapping)
        Keys and metadata. Only those of the same algorithm and kind count; of several that differ by as much,
        the first.
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
    return sum(weight * (1 + _FURTHER * (count - 1)) for weight, count in counts.items())


def _kind(meta: Meta) -> tuple[Any, Any]:
    return meta.get("algorithm"), meta.get("entry")


def _compare(now: Meta, before: Meta) -> _Found:
    mine, its = _table(now.get("parts")), _table(before.get("parts"))
    if mine == its:
        return
    yield from _said(_TYPE, _only(mine, "algorithm", "entry"), _only(its, "algorithm", "entry"))
    yield from _said(_CC, _only(mine, "cc"), _only(its, "cc"))
    yield from _said(_TYPE, _arguments(mine), _arguments(its), text=_argument)
    yield from _said(_TYPE, _only(mine, "inputs"), _only(its, "inputs"), "types of the {}", _types)
    yield from _operators(now, before, mine, its)
    yield from _functions(now, before, mine, its)
    yield from _said(_OPTION, mine.get("options"), its.get("options"), "option {}")
    if ("functions" in mine) != ("functions" in its):
        # Then only one depends on numba, which the operators tell in a better way.
        mine, its = _shared(mine, its), _shared(its, mine)
    yield from _said(_VERSION, mine.get("versions"), its.get("versions"))
    yield from _said(_VERSION, mine.get("numba"), its.get("numba"), "numba's option {}")
    yield from _generated(mine, its)
    yield from _said(_VERSION, _undescribed(mine), _undescribed(its))


def _undescribed(parts: Meta) -> Meta:
    return {name: value for name, value in parts.items() if name not in _DESCRIBED}


def _only(parts: Meta, *names: str) -> Meta:
    return {name: parts[name] for name in names if name in parts}


def _shared(parts: Meta, other: Meta) -> Meta:
    """Return the parts that the other has, too, and of the versions those that it has."""
    versions = {
        name: text
        for name, text in _table(parts.get("versions")).items()
        if name in _table(other.get("versions"))
    }
    return {name: value for name, value in parts.items() if name in other} | {"versions": versions}


# Parts with words of their own. Of others the JSON is shown.
_DESCRIBED = {
    "algorithm", "arguments", "cc", "entry", "function", "functions", "inputs", "iterators", "numba",
    "operators", "options", "versions", "wrappers",
}  # fmt: skip


def _operators(now: Meta, before: Meta, mine: Meta, its: Meta) -> _Found:
    """Compare kinds and types of operators."""
    parts = _table(mine.get("operators")), _table(its.get("operators"))
    if parts[0] == parts[1]:
        return
    for name in _names(*parts):
        one, other = (_operator(each[name]) if name in each else None for each in parts)
        if one is None or other is None or one["kind"] != other["kind"]:
            texts = (_operator_name(each, name, meta) for each, meta in ((one, now), (other, before)))
            yield _FUNCTION, Difference(name, *texts)
        else:
            yield from _said(_TYPE, _only(one, "types"), _only(other, "types"), f"{{}} of {name}", _signature)
            yield from _said(_TYPE, _only(one, "state"), _only(other, "state"), f"{{}} of {name}", _state)


def _operator(part: Any) -> dict[str, Any]:
    """Return the kind of an operator, its types, and size and alignment of its state."""
    items = _list(part)
    types = [each for each in items[1:] if _list(each) and isinstance(each[0], str)]
    state = [each for each in items[1:] if each not in types]
    return {"kind": _text(items[0] if items else part), "types": types, "state": state}


def _operator_name(operator: Mapping[str, Any] | None, name: str, meta: Meta) -> str | None:
    if operator is None:
        return None
    if operator["kind"] != "function":
        return f"OpKind.{operator['kind']}"
    return f"function {_text(_table(meta.get('operators')).get(name, ''))}".rstrip()


def _functions(now: Meta, before: Meta, mine: Meta, its: Meta) -> _Found:
    """Compare what operators do, where both entries have one."""
    if mine.get("function") != its.get("function"):  # of the result of type inference
        yield _CODE, Difference("function", "", "")
    parts = _table(mine.get("functions")), _table(its.get("functions"))
    if parts[0] == parts[1]:
        return
    arguments = _arguments(mine)
    reads = _table(now.get("reads")), _table(before.get("reads"))
    names = _table(now.get("operators")), _table(before.get("operators"))
    for name in sorted(parts[0].keys() & parts[1].keys()):
        one, other = (_list(each[name]) for each in parts)
        who = _whose(name, arguments)
        renamed = names[0].get(name) != names[1].get(name)
        code = _FUNCTION if renamed else _CODE
        if one[:1] != other[:1]:
            found = list(_reads(code, who, *(_list(each.get(name)) for each in reads)))
            texts = [_text(each.get(name, "")) if renamed else "" for each in names]
            yield from found or [(code, Difference(who, *texts))]
        if one[1:] != other[1:]:
            yield _CODE, Difference(f"names of the fields that {who} reads", "", "")


def _whose(name: str, arguments: Mapping[str, Any]) -> str:
    """Return what to call a function: those of iterators have a name of cupar's."""
    match = _OF_ARGUMENT.fullmatch(name)
    if match is None or match[1] not in arguments:
        return name
    return f"operator {int(match[2]) + 1} of {match[1]}"


def _reads(code: int, who: str, now: Sequence[Any], before: Sequence[Any]) -> _Found:
    """Compare what operators' fingerprints are made of, if both are known.

    A function that the operator calls is among that with a hash, and again with all that it reads: the hash
    is left out if that tells more. And constants are numbered, which says nothing once other code loads them.
    """
    mine, its = _by_label(now), _by_label(before)
    if not mine or not its:
        return
    labels = [label for label in _names(mine, its) if mine.get(label) != its.get(label)]
    other_code = {_inside(label) for label in labels if _base(label) == "code"}
    calls = []
    told = False
    for label in labels:
        texts = [", ".join(each[label]) if label in each else None for each in (mine, its)]
        base, where = _base(label), f"{_inside(label)} of {who}"
        if base == "code":
            told = True
            yield code, Difference(f"code{where}", "", "")
        elif base.startswith("constant "):
            if _inside(label) not in other_code:
                told = True
                yield _VALUE, Difference(f"{base}{where}", *texts)
        elif base in ("defaults", "keyword defaults", "attributes"):
            told = True
            yield _VALUE, Difference(f"{base}{where}", *texts)
        elif all(text is not None and _CALLED.fullmatch(text) for text in texts):
            calls.append((_VALUE, Difference(f"{label} that {who} calls", "", "")))
        else:
            told = True
            yield _VALUE, Difference(f"{who} reads {label}", *texts)
    if not told:
        yield from calls


def _by_label(reads: Sequence[Any]) -> dict[str, list[str]]:
    """Return what was read by its label: functions of one name share theirs."""
    found = defaultdict(list)
    for each in reads:
        if len(_list(each)) == 2:
            found[_text(each[0])].append(_text(each[1]))
    return dict(found)


def _inside(label: str) -> str:
    match = _INSIDE.search(label)
    return "" if match is None else match[0]


def _base(label: str) -> str:
    return _INSIDE.sub("", label)


def _generated(mine: Meta, its: Meta) -> _Found:
    """Compare the C++ that cupar writes, where what it is written for is the same."""
    if mine.get("arguments") != its.get("arguments"):
        return
    if mine.get("iterators") != its.get("iterators"):
        yield _VERSION, Difference("the C++ that cupar writes for iterators", "", "")
    names = ("operators", "functions", "wrappers")
    operators, functions, wrappers = ((_table(mine.get(n)), _table(its.get(n))) for n in names)
    for name in sorted(wrappers[0].keys() & wrappers[1].keys()):
        same = all(each[0].get(name) == each[1].get(name) for each in (operators, functions))
        if same and wrappers[0][name] != wrappers[1][name]:
            yield _VERSION, Difference(f"the code that cupar puts around {name}", "", "")


def _said(
    weight: int, mine: Any, its: Any, label: str = "{}", text: Callable[[Any], str] | None = None
) -> _Found:
    """Compare two tables; `label` says what to call what stands under a name, and `text` what that is."""
    if mine == its:
        return
    text = text or _text
    one, other = _table(mine), _table(its)
    for name in _names(one, other):
        if name in one and name in other and one[name] == other[name]:
            continue
        texts = [text(each[name]) if name in each else None for each in (one, other)]
        if texts[0] == texts[1]:  # they need not tell all
            texts = ["", ""]
        yield weight, Difference(label.replace("{}", name), *texts)


# --- Parts as text --------------------------------------------------------------------------------------


def subject(meta: Meta) -> str:
    """Return what an entry is, as in ``reduce_into for sm_90``."""
    algorithm, entry = _text(meta.get("algorithm", "")), _text(meta.get("entry", ""))
    what = f"kernels of {algorithm}" if entry == "template" else algorithm
    return f"{what} for sm_{_text(meta.get('cc', ''))}" if algorithm else entry


def summary(meta: Meta) -> str:
    """Return arguments and operators of an entry, as in ``d_in: float32, op: OpKind.PLUS``."""
    try:
        arguments = {name: _argument(part) for name, part in _arguments(_table(meta.get("parts"))).items()}
        operators = {_whose(name, arguments): _text(op) for name, op in _table(meta.get("operators")).items()}
    except RecursionError:
        return _DEEP
    return ", ".join(f"{name}: {text}" for name, text in {**arguments, **operators}.items())


def _arguments(parts: Meta) -> dict[str, Any]:
    """Return the arguments of an algorithm by name: whether it is read or written, and how it is reached."""
    found = (_list(each) for each in _list(parts.get("arguments")))
    return {_text(each[0]): each[1:] for each in found if each}


def _argument(part: Any) -> str:
    return _node(part[1]) if len(part) == 2 else _text(part)


def _node(part: Any) -> str:
    """Return an array or iterator as text: a dtype, or as in ``Transform(Counting(int32)) of int64``."""
    items = _list(part)
    if len(items) < 2:
        return _text(part)
    name, value, rest = _text(items[0]), _type(items[1]), items[2:]
    if name == "Pointer":
        return value
    inner = [_node(each) if _is_node(each) else _operator(each)["kind"] for each in map(_list, rest) if each]
    detail = [each for each in rest if isinstance(each, str)]
    if not inner:
        return f"{name}({', '.join([value, *detail])})"
    return f"{name}({', '.join(inner)}) of {value}"


def _is_node(items: list[Any]) -> bool:
    """Tell a node from an operator: the name of a class from that of a kind, or ``function``."""
    return isinstance(items[0], str) and items[0] not in ("function", items[0].upper())


def _types(part: Any) -> str:
    return f"({', '.join(map(_type, _list(part)))})"


def _signature(part: Any) -> str:
    *inputs, output = map(_type, _list(part)) if part else ("none",)
    return f"({', '.join(inputs)}) -> {output}"


def _state(part: Any) -> str:
    """Return size and alignment of an operator's state."""
    sizes = _list(part[0]) if part else []
    return f"{_text(sizes[0])} {'byte' if sizes[0] == 1 else 'bytes'}" if sizes else "none"


def _type(part: Any) -> str:
    """Return a dtype as text: its NumPy name, or a struct's fields."""
    items = _list(part)
    text = _text(items[0]) if items else _text(part)
    if text == "|b1":
        return "bool"
    match = _DTYPE.fullmatch(text)
    if match is not None:
        return f"{_KINDS[match[1]]}{8 * int(match[2])}"
    fields = _list(items[3]) if len(items) > 3 else []
    if fields:
        return f"struct({', '.join(_type(_list(each)[-1:][0]) for each in fields if _list(each))})"
    return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return "none"
    text = " ".join(value) if _strings(value) else json.dumps(value, sort_keys=True, default=str)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _names(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names in either, in the order of the first."""
    return list(dict.fromkeys([*one, *other]))


# --- What is kept ---------------------------------------------------------------------------------------


def explain(key: str, other: str | None = None) -> Explanation:
    """Say in what an entry differs from another one, or from the nearest; see `cupar.cache.explain`."""
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
        raise ValueError(f"{name}: the entry {info.key} cannot be read; run 'cupar cache verify --repair'")
    return meta


def explanation(key: str, meta: Meta, kept: Iterable[listing.Info] | None = None) -> Explanation:
    """Compare an entry, which need not be kept itself, with the nearest of those that are."""
    infos = listing.kept() if kept is None else kept
    kind = meta.get("algorithm", ""), meta.get("entry", "")
    others = (each for each in infos if each.key != key and (each.algorithm, each.entry) == kind)
    found = nearest(meta, ((each.key, each.meta) for each in others))
    if found is None:
        return Explanation(key, None, ())
    other, before = found
    return Explanation(key, other, difference(meta, before))
