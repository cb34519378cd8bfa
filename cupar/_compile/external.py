"""C++ from elsewhere, compiled for the linker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from .._base.causes import cause
from .._base.errors import BuildError
from .._base.words import split
from .._external.linkable import Linkable
from .._external.sources import (
    ABSENT,
    ASKED_BY_MACRO,
    FLAT,
    NOWHERE,
    SHOWN,
    SOURCE,
    TELL,
    WHY_NOT_ASKED,
)
from . import nvrtc


def compile_cpp(code: Linkable, cc: int) -> bytes:
    """Compile C++ to LTO-IR; raise BuildError with NVRTC's message."""
    source = code.data.decode(errors="surrogateescape")
    is_called = f"#ifndef {FLAT}" in source
    if is_called:
        with suppress(BuildError):
            return _compiled(code, cc)
    try:
        return _compiled(code, cc, *[_FLATLY] * is_called)
    except BuildError as error:
        text = _refused(str(error), code).rstrip(" \n\0")
        why = _mismatch(code, cc, source, text) if is_called else None
        raise BuildError(f"{code.name}: {why or _users_own(text)}") from cause(error)


_FLATLY: Final = f"-D{FLAT}"  # the source is not wrapped in a namespace


def _compiled(code: Linkable, cc: int, *more: str) -> bytes:
    return nvrtc.compile_source(code.data, cc, code.headers, (*code.options, *more))


_ASKED: Final = re.compile(
    rf'function call is not allowed in a constant expression|identifier "{ASKED_BY_MACRO}" is undefined'
)


def _refused(said: str, code: Linkable) -> str:
    """Translate a compiler's error for C++ that cupar refuses on purpose.

    Files have the names that the user knows, as far as they have them.
    """
    said = said.replace(SOURCE, "source").replace(ABSENT, "").replace(NOWHERE, "")
    said = said.replace("catastrophic error: #error directive: cupar: ", "catastrophic error: ")
    if any(ASKED_BY_MACRO.encode() in text for text in (code.data, *dict(code.headers).values())):
        said = _ASKED.sub(WHY_NOT_ASKED, said).replace(ASKED_BY_MACRO, "__has_include")
    return said


# ---------------------------------------------------------------------------------------------------------
# Functions in C++ that are not what their signature says
# ---------------------------------------------------------------------------------------------------------

_FAILED = re.compile(r'static assertion failed with "cupar: (\w+) ?(\d*)"')
_TOLD = re.compile(r"\[with F=(.*?)\]", re.DOTALL)
_OURS = re.compile(r"^cupar\(\d+\): error", re.MULTILINE)
_USERS = re.compile(r"^(?!cupar\()[^\s(][^\n]*\(\d+\): (?:catastrophic )?error", re.MULTILINE)
_NOT_THERE = re.compile(r'(?:identifier|name followed by "::"|has no member) "?([^"\n]*)"?')


def _users_own(said: str) -> str:
    """Leave out what follows from errors in the user's C++, in C++ of cupar's."""
    if not _USERS.search(said):
        return said
    pieces = re.split(r"\n(?=\S)", said)
    return "\n".join(
        piece for piece in pieces if not re.match(r"cupar\(|\d+ errors? detected", piece)
    ).rstrip()


def _mismatch(code: Linkable, cc: int, source: str, said: str) -> str | None:
    """Return how a function differs from its signature; None if it is the user's C++ that is wrong."""
    if _USERS.search(said) or not _OURS.search(said):
        return None
    shown = re.findall(rf"^// {SHOWN}(.*)$", source, re.MULTILINE)
    name, signature = shown[-2:]
    result, _, arguments = signature.partition("(")
    takes = f"({arguments}"
    failed = _FAILED.findall(said)
    kinds = {kind for kind, _ in failed}
    places = [int(number) for kind, number in failed if number]
    told = _told(code, cc)
    if "call" in kinds:
        missing = _NOT_THERE.search(said)
        if missing is not None and missing[1].rpartition("::")[2] in name:
            return f"the source has no function {name}: check name="
        if told is None and "function template" in said:
            advice = f"give its arguments, as in name='{name}<3>'"
            return f"{name} is a template that does not follow from {takes}: {advice}"
        return f"{name} cannot be called with {takes}, which its signature says{_in_cpp(told)}"
    if len(places) == 1:
        wanted, (at,) = split(arguments.removesuffix(")"))[places[0] - 1], places
        of_cpp = told[1][at - 1] if told is not None and at <= len(told[1]) else "another type"
        return (
            f"parameter {at} of {name} is {wanted} in its signature, and {of_cpp} in C++: {_advice([of_cpp])}"
        )
    if kinds & {"parameter", "parameters"}:
        advice = _advice(told[1] if told else ())
        return f"{name} takes {takes} in its signature, and other types in C++{_in_cpp(told)}: {advice}"
    if "result" in kinds or 'deduce "auto" type' in said:
        of_cpp = told[0] if told else "another type"
        return f"the result of {name} is {result} in its signature, and {of_cpp} in C++: write the same"
    return None


def _advice(types: Sequence[str]) -> str:
    if any(each.endswith("&") and not each.startswith("const ") for each in types):
        return "writes to a reference would be lost; take a value, or a pointer to memory"
    return "write the same, for C++ would convert it silently"


def _in_cpp(told: tuple[str, list[str]] | None) -> str:
    return "" if told is None else f"; in C++ it is {told[0]}({', '.join(told[1])})"


def _told(code: Linkable, cc: int) -> tuple[str, list[str]] | None:
    """Return the types of a function's result and parameters in C++; None of templates and overloads."""
    try:
        _compiled(code, cc, _FLATLY, f"-D{TELL}")
    except BuildError as error:
        match = _TOLD.search(str(error))
        told = " ".join(match[1].replace("__nv_bool", "bool").split()) if match else ""
        function = re.fullmatch(r"(.*?) ?\(\*\)\((.*)\)(?: noexcept)?", told)
        if function is not None:
            return function[1], [] if function[2] in ("", "void") else split(function[2])
    return None
