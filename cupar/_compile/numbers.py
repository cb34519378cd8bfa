"""Which numbers an operator gets as arguments: a verdict for each form of an operator, which the cache keeps.

The first value of a number is a constant of the code. Once the same code comes with another one, in this
process or in an earlier one, its numbers become arguments, of which calls pass the values: no later value
builds anything. Which of them may be arguments is decided by the typed code (see `typed`), for a form: all
that an operator reads but its numbers' values, and their types.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any, Final

from cachetools import LRUCache

from .._base.bounded import Bounded, of_builds
from .._base.data import replace
from .._base.device import is_cpu
from .._base.digests import sha256
from .._base.versions import own_version
from .._fingerprint import numbers
from .._fingerprint.numbers import Number, NumberType
from .._ir.operator import Operator
from .._ir.resolve import with_arguments
from .._store.entry import Entry
from . import entries, key

_RULES: Final = ("_compile.numbers", "_compile.typed")
_TYPED_FOR: Final = 75  # types are the same on all GPUs
_ARGUMENT, _DIVISOR, _CONSTANT = "argument", "argument unless a power of two", "constant"

Verdict = tuple[tuple[str, str], ...]
"""Of each number of a form, one of the three words above, and why it is a constant."""

Classes = tuple[NumberType | bytes, ...]
"""The types of numbers; of those that are constants, the encodings of their values, as these decide types."""

_verdicts: Bounded[Verdict] = of_builds(Bounded(functools.partial(LRUCache, 1024)))
# Those that are not there, and whether numbers varied when they were looked for.
_missing: Bounded[bool] = of_builds(Bounded(functools.partial(LRUCache, 1024)))
# By a form without its numbers' types: encodings of the first values, and whether another one has come.
_first: Bounded[tuple[tuple[bytes, ...], bool]] = of_builds(Bounded(functools.partial(LRUCache, 1024)))


class _UndecidedError(Exception):
    """The code does not compile with constants: the build says why."""


def which_are_arguments(op: Operator) -> dict[int, bool]:
    """Return the indices of the numbers of an operator that are arguments, and whether they are divisors.

    A verdict that makes some of them constants says nothing of the others: there is another one of these, for
    the constants' values.
    """
    source: Any = op.source
    given: tuple[Number, ...] = source.numbers
    classes: list[Any] = [numbers.type_of(each.value) or each.encoding for each in given]
    form = source.form, op.inputs, is_cpu()
    varies = _vary(form, tuple([each.encoding for each in given]))
    while True:
        asked = [i for i, each in enumerate(classes) if type(each) is NumberType]
        verdict = _known(op, form, tuple(classes), varies) if asked else None
        if verdict is None:
            return {}
        varies = True  # as somebody has found out before
        constants = [i for i in asked if _is_constant(verdict[i][0], given[i].value)]
        if not constants:
            return {i: verdict[i][0] == _DIVISOR for i in asked}
        for i in constants:
            classes[i] = given[i].encoding


def _is_constant(word: str, value: Any) -> bool:
    return word == _CONSTANT or (word == _DIVISOR and numbers.is_power_of_two(value))


def _vary(form: Any, values: tuple[bytes, ...]) -> bool:
    """Whether a form has come with other numbers in this process."""
    first, varies = _first.get(form) or (values, False)
    if first is values or (first != values and not varies):
        varies = first != values
        _first[form] = first, varies
    return varies


def _known(op: Operator, form: Any, classes: Classes, varies: bool) -> Verdict | None:
    """Return the verdict of a form, from memory or else from the cache; None if there is none yet."""
    found = _verdicts.get((form, classes))
    if found is None and _missing.get((form, classes)) is not varies:
        found = _found(op, classes, form[-1], varies)
        if found is None:
            _missing[form, classes] = varies
        else:
            _verdicts[form, classes] = found
    return found


def _found(op: Operator, classes: Classes, on_cpu: bool, varies: bool) -> Verdict | None:
    """Return the verdict that the cache has, or reach it if numbers vary."""
    digest = sha256(repr((op.source.form, classes)).encode()).hexdigest()  # type: ignore[union-attr]
    parts = key.result_parts(replace(op, fingerprint=digest), on_cpu)
    parts["entry"] = "numbers"
    parts["versions"]["cupar's rules for numbers"] = own_version(_RULES)

    def use(entry: Entry) -> Verdict:
        found = tuple([(str(word), str(why)) for word, why in json.loads(entry.payload)])
        if len(found) != len(classes) or not {word for word, _ in found} <= {_ARGUMENT, _DIVISOR, _CONSTANT}:
            raise ValueError("it is no verdict")
        return found

    try:
        if varies:
            make = functools.partial(_reached, op, classes, on_cpu, parts)
            return entries.fetch(parts, make, use)[1]
        known = entries.find(parts)
        return None if known is None else use(known.entry)
    except Exception:  # of numba's, of damaged entries; or a compiler is missing
        return None


def _reached(op: Operator, classes: Classes, on_cpu: bool, parts: dict[str, Any]) -> Entry:
    verdict = _verdict(op, classes, _Typing(on_cpu))
    return Entry({"entry": parts["entry"], "parts": parts}, json.dumps(verdict).encode())


class _Typing:
    """Types operators for a target, and compares them."""

    def __init__(self, on_cpu: bool) -> None:
        if on_cpu:
            from .. import _typed_on_cpu as typed  # of the package itself: it is in a room above
        else:
            from .python_to_ltoir import typed_code

            typed = functools.partial(typed_code, cc=_TYPED_FOR)
        self._typed = typed

    def constant(self, op: Operator) -> Any:
        """Return the lines of an operator with constants."""
        from .typed import lines_of

        return self._typed(with_arguments(op, ()), lines_of)

    def arguments(self, op: Operator, those: Sequence[Number]) -> tuple[Any, Any]:
        """Return the lines of an operator with some numbers as arguments, and what it does with these."""
        from .typed import Uses, lines_of

        made = with_arguments(op, those)
        arguments = [None] * len(op.captures) + [frozenset((i,)) for i in range(len(those))]
        given = (*arguments, *[None] * len(op.inputs))
        found: tuple[Any, Any] = self._typed(made, lambda each: (lines_of(each), Uses(each, given)))
        return found


def _verdict(op: Operator, classes: Classes, typing: _Typing) -> Verdict:
    """Reach a verdict: with all numbers as arguments, and if the code differs then, with each one alone."""
    given = op.source.numbers  # type: ignore[union-attr]
    words = [(_CONSTANT, "by its value, or as others are arguments")] * len(given)
    try:
        reference = typing.constant(op)
    except Exception as error:
        raise _UndecidedError from error

    def tried(those: Sequence[int]) -> str:
        """Note which ones may be arguments, and why others may not; return why none may."""
        try:
            lines, uses = typing.arguments(op, [given[i] for i in those])
        except Exception as error:
            return f"the code does not compile: {_first_line(error)}"
        if lines != reference:
            return "the code has other types"
        for place, i in enumerate(those):
            why = uses.refused.get(place)
            words[i] = (
                (_DIVISOR if place in uses.divisors else _ARGUMENT, "") if why is None else (_CONSTANT, why)
            )
        return ""

    asked = [i for i, each in enumerate(classes) if isinstance(each, NumberType)]
    why = tried(asked)
    if not why:
        return tuple(words)
    alone = [tried([i]) for i in asked] if len(asked) > 1 else [why]
    for i, said in zip(asked, alone, strict=True):
        if said:
            words[i] = _CONSTANT, said
    if _CONSTANT not in [words[i][0] for i in asked]:  # each may be one, but not together
        for i in asked:
            words[i] = _CONSTANT, why
    return tuple(words)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
