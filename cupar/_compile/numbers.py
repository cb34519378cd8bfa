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
from .._fingerprint.numbers import Number
from .._ir.operator import Operator
from .._ir.resolve import with_arguments
from .._store.entry import Entry
from . import entries, key

_RULES: Final = ("_compile.numbers", "_compile.typed")
_TYPED_FOR: Final = 75  # types are the same on all GPUs
_ARGUMENT, _DIVISOR, _CONSTANT = "argument", "argument unless a power of two", "constant"

Verdict = tuple[tuple[str, str], ...]
"""Of each number of a form, one of the three words above, and why it is a constant."""

_verdicts: Bounded[Verdict] = of_builds(Bounded(functools.partial(LRUCache, 1024)))
# By a form without its numbers' types: encodings of the first values, and whether another one has come.
_first: Bounded[tuple[tuple[bytes, ...], bool]] = of_builds(Bounded(functools.partial(LRUCache, 1024)))


class _UndecidedError(Exception):
    """The code does not compile with constants: the build says why."""


def which_are_arguments(op: Operator) -> dict[int, bool]:
    """Return the indices of the numbers of an operator that are arguments, and whether they are divisors."""
    source: Any = op.source
    given: tuple[Number, ...] = source.numbers
    types = [numbers.type_of(each.value) for each in given]
    on_cpu = is_cpu()
    form = source.form, op.inputs, on_cpu
    # Constants by their values, for they decide the types of the code.
    classes = (*[each.encoding if kind is None else kind for each, kind in zip(given, types, strict=True)],)
    verdict = _verdicts.get((form, classes))
    if verdict is None:
        varies = _vary(form, tuple([each.encoding for each in given]))
        if not any(types):
            return {}
        verdict = _found(op, classes, on_cpu, varies)
        if verdict is None:
            return {}
        _verdicts[form, classes] = verdict
    return {
        i: word == _DIVISOR
        for i, (word, _) in enumerate(verdict)
        if word == _ARGUMENT or (word == _DIVISOR and not numbers.is_power_of_two(given[i].value))
    }


def _vary(form: Any, values: tuple[bytes, ...]) -> bool:
    """Whether a form has come with other numbers in this process."""
    first, varies = _first.get(form) or (values, False)
    if first is values or (first != values and not varies):
        varies = first != values
        _first[form] = first, varies
    return varies


def _found(op: Operator, classes: tuple[Any, ...], on_cpu: bool, varies: bool) -> Verdict | None:
    """Return the verdict that the cache has, or reach it if numbers vary; None if there is none yet."""
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
            make = functools.partial(_reached, op, on_cpu, parts)
            return entries.fetch(parts, make, use)[1]
        known = entries.find(parts)
        return None if known is None else use(known.entry)
    except Exception:  # of numba's, of damaged entries; or a compiler is missing
        return None


def _reached(op: Operator, on_cpu: bool, parts: dict[str, Any]) -> Entry:
    verdict = _verdict(op, _Typing(on_cpu))
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


def _verdict(op: Operator, typing: _Typing) -> Verdict:
    """Reach a verdict: with all numbers as arguments, and if the code differs then, with each one alone."""
    given = op.source.numbers  # type: ignore[union-attr]
    words = [(_CONSTANT, "its value is one for which code has instructions of its own")] * len(given)
    asked = [i for i, each in enumerate(given) if numbers.type_of(each.value) is not None]
    try:
        reference = typing.constant(op)
    except Exception as error:
        raise _UndecidedError from error

    def tried(those: Sequence[int]) -> list[int]:
        """Return those that may be arguments together; note why others may not."""
        try:
            lines, uses = typing.arguments(op, [given[i] for i in those])
        except Exception as error:
            lines, uses, why = None, None, f"the code does not compile: {_first_line(error)}"
        else:
            why = "the code has other types" if lines != reference else ""
        good = []
        for place, i in enumerate(those):
            said = why or uses.refused.get(place, "")
            if said:
                words[i] = _CONSTANT, said
            else:
                words[i] = (_DIVISOR if place in uses.divisors else _ARGUMENT), ""
                good.append(i)
        return good

    before, found = asked, tried(asked)
    if not found and len(asked) > 1:
        found = [i for each in asked for i in tried([each])]
    while found and found != before:  # others are constants now, which numba may type otherwise
        before, found = found, tried(found)
    return tuple(words)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
