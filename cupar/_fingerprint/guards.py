"""What must still hold for a fingerprint: checked at each call, which computes nothing then.

Identities are compared, and what can change in place is encoded again. That costs well under a microsecond
for most operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._base.data import dataclass
from .._device import arrays
from .._external.kinds import is_external
from . import registries
from .frozen import MISSING
from .names import compilers_name, is_dispatcher, numba_type_name
from .refusals import Unfingerprintable, refusal, refuse
from .values import ATOMS, Pair, ValueEncoder, encode, encode_atom, encode_device_array, frame, held

if TYPE_CHECKING:
    from .._external.files import FileGuard


class _ByValue:
    """Keeps the encoding of a value that can change in place, and not the value."""

    __slots__ = ("_classes", "_encoding")

    def __init__(self, value: object, where: str) -> None:
        encoder = ValueEncoder(_identity, identify=True)
        self._encoding, _ = encoder.read(value, where)
        self._classes = encoder.classes  # so that no other class gets their ids

    def matches(self, value: object) -> bool:
        try:
            return ValueEncoder(_identity, identify=True).read(held(value, ""), "")[0] == self._encoding
        except Unfingerprintable:
            return False


class CapturedArray:
    """Keeps the type of a captured host array: its items are no part of the code."""

    __slots__ = ("_encoding",)

    def __init__(self, value: object, where: str) -> None:
        self._encoding = encode_device_array(value, where)

    def matches(self, value: object) -> bool:
        return arrays.is_device_array(value) and encode_device_array(value, "") == self._encoding


def _identity(value: object, where: str) -> Pair:
    """Encode a function by identity, for this process: its dependencies have their own guards."""
    if isinstance(value, FunctionType) or is_dispatcher(value) or is_external(value):
        return frame("id", encode(id(value))), None
    if arrays.is_device_array(value):
        return encode_device_array(value, where), None
    return refuse(value, where)


def is_fixed(value: object) -> bool:
    """Whether the same object always has the same encoding, but for functions, which have own guards."""
    cls = type(value)
    if cls in ATOMS or cls is FunctionType or isinstance(value, ModuleType) or is_dispatcher(value):
        return True
    if cls is tuple or cls is frozenset:
        return all(map(is_fixed, value))  # type: ignore[call-overload]
    if isinstance(value, np.generic):
        return not isinstance(value, np.void)
    return compilers_name(value) is not None or numba_type_name(value) is not None or is_external(value)


def check_dispatcher(dispatcher: Any, where: str, options: Mapping[str, object]) -> None:
    """Refuse a jitted function if no guard could check whether its code would still be the same."""
    if not dispatcher._can_compile:
        advice = "It was compiled when decorated, with the globals of then; drop the signature from cuda.jit."
    elif dispatcher.__defaults__ is not dispatcher.py_func.__defaults__:
        advice = (
            "Its defaults changed after it was decorated, which numba does not notice; decorate it again."
        )
    elif not all(map(is_fixed, options.values())):
        advice = f"Its options must be plain values; {dict(options)!r} are not."
    else:
        return
    raise refusal(where, dispatcher, advice)


def seen(value: object, where: str) -> object:
    """Return the guard of a value that is `held`."""
    return value if is_fixed(value) else _ByValue(value, where)


class _Anything:
    """Keeps nothing: a number that is read at each call, and not guarded."""

    __slots__ = ()

    def matches(self, value: object) -> bool:
        return True


ANYTHING: Final = _Anything()
_OWN: Final = frozenset((_ByValue, CapturedArray, _Anything))


def _same(now: object, before: Any) -> bool:
    """Whether a value has the recorded encoding. False can also mean 'unknown'."""
    if now is before:
        return True
    if type(before) in _OWN:
        return before.matches(now)  # type: ignore[no-any-return]
    if type(now) is not type(before):
        return False
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_same, now, before))
    encoding = encode_atom(before)
    return encoding is not None and encode_atom(now) == encoding


# Slots, for a named tuple is a tenth slower to check.
@dataclass(frozen=True)
class FunctionGuard:
    """Code and values read of one function, at the time of its fingerprint."""

    code: CodeType
    globals: dict[str, Any]
    cells: tuple[object, ...]
    defaults: object
    keyword_defaults: object
    names: tuple[tuple[str, object], ...]

    def check(self, function: FunctionType) -> bool:
        """Whether another look at this function, or at another made of the same code, gives the same."""
        # The identities are compared here, and `_same` only called where they differ, because this is
        # on the path of each factory call.
        if function.__code__ is not self.code or function.__globals__ is not self.globals:
            return False
        now: object = function.__defaults__
        if now is not self.defaults and not _same(now, self.defaults):
            return False
        now = function.__kwdefaults__
        if now is not self.keyword_defaults and not _same(now, self.keyword_defaults):
            return False
        if function.__closure__ is not None:
            for cell, before in zip(function.__closure__, self.cells):  # noqa: B905 - one code, one length
                now = cell.cell_contents
                if now is not before and not _same(now, before):
                    return False
        for name, before in self.names:
            now = self.globals.get(name, MISSING)
            if now is not before and not _same(now, before):
                return False
        return True


@dataclass(frozen=True)
class Guard:
    """Tells whether an operator still has a fingerprint, without computing it again."""

    operator: object  # what the fingerprint is of, unless any function that `function` accepts will do
    function: FunctionGuard | None
    called: tuple[tuple[FunctionType, FunctionGuard], ...]
    dispatchers: tuple[tuple[Any, dict[str, object]], ...]  # with their options
    attributes: tuple[tuple[object, str, object], ...]
    epoch: int  # of registrations with numba
    linked: tuple[FileGuard, ...] = ()  # of functions that are not written in Python

    def check(self, operator: object) -> bool:
        """Whether the fingerprint is that of an operator; False means that it may be another one.

        The operator may be another function object than the one fingerprinted, as a lambda in a loop
        is, if both were made of the same code.
        """
        try:
            return self.epoch == registries.epoch() and self._check(operator)
        except (ValueError, RecursionError):  # an empty closure cell; what nothing can read to its end
            return False

    def _check(self, operator: object) -> bool:
        if self.function is None:
            if operator is not self.operator:
                return False
        elif type(operator) is not FunctionType or not self.function.check(operator):
            return False
        for owner, name, before in self.attributes:
            now = getattr(owner, name, MISSING)
            if now is not before and not _same(now, before):
                return False
        for function, guard in self.called:
            if not guard.check(function):
                return False
        for dispatcher, options in self.dispatchers:
            now = dispatcher.targetoptions
            if len(now) != len(options) or any(now.get(n, MISSING) is not o for n, o in options.items()):
                return False
        return not self.linked or all(each.holds() for each in self.linked)

    def checker(self) -> Callable[[Any], bool]:
        """Return the quickest `check` that the values read by functions of one code allow."""
        function, check = self.function, self.check
        others = self.attributes or self.called or self.dispatchers or self.linked  # in defaults, too
        if function is None or function.names or function.cells or others:
            return check
        defaults, keyword_defaults = function.defaults, function.keyword_defaults
        epoch, epoch_now = self.epoch, registries.epoch

        def quick_check(function: FunctionType) -> bool:
            return (
                function.__defaults__ is defaults
                and function.__kwdefaults__ is keyword_defaults
                and epoch_now() == epoch
            ) or check(function)

        return quick_check


NO_GUARD = Guard(None, None, (), (), (), -1)  # of an operator that is not there: never unchanged
