"""Algorithms as bytes: their builds for one or several compute capabilities, and metadata for calls.

A header in JSON, and behind it the code. Reading it runs nothing. A call runs the code: read only what you
would run.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from .. import __version__, structs
from .._base.device import public
from .._base.digests import sha256
from .._call.algorithm import Algorithm
from .._call.built import Build, Built
from .._compile import alike, toolchain
from .._fingerprint.walk import Capture
from .._ir import nodes
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .._kernels import headers
from .._obtain.obtain import class_of
from .._obtain.produce import code_of
from ..operators import OpKind

FORMAT: Final = 3  # another one whenever what `_plain` writes changes
_MAGIC: Final = b"CUPARALG"
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_BUILD: Final = ("algorithm", "key", "cubin_size", "tier")
_SAME: Final = ("kind", "fingerprint", "state_size", "captures", "numbers")  # of operators that do the same
# Nothing else is made from a blob. Linked code is not, as no algorithm here has any.
_CLASSES: Final[dict[str, Any]] = {
    each.__name__: each
    for each in (Specialisation, Operator, Capture, nodes.Argument, *vars(nodes).values())
    if isinstance(each, type) and dataclasses.is_dataclass(each)
}


def dumps(name: str, options: Mapping[str, int], builds: Mapping[int, Built]) -> bytes:
    """Return an algorithm as bytes: its factory's name, its options, its builds by compute capability."""
    found = [builds[cc] for cc in sorted(builds)]
    header = {
        "format": FORMAT,
        "cupar": __version__,
        "python": _PYTHON,
        "factory": name,
        "options": {each: int(value) for each, value in options.items()},
        "builds": [
            {
                "spec": _plain(each.spec),
                "kernels": _kernels(each.spec),
                "build": {field: getattr(each.build, field) for field in _BUILD},
                "size": len(each.code.blob),
                "sha256": sha256(each.code.blob).hexdigest(),
            }
            for each in found
        ],
    }
    text = json.dumps(header, sort_keys=True).encode()
    return b"".join([_MAGIC, struct.pack("<Q", len(text)), text, *(each.code.blob for each in found)])


def loads(data: bytes) -> tuple[str, dict[str, int], dict[int, Algorithm]]:
    """Return what `dumps` was given, but algorithm objects for builds. Needs no GPU, and compiles nothing."""
    kinds = {each.__name__: each for each in Algorithm.__subclasses__()}
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"blob: expected bytes, got {type(data).__name__}") from None
    if bytes(view[:8]) != _MAGIC or len(view) < 16:
        raise ValueError("blob: bad magic: expected what serialize returned")
    (length,) = struct.unpack_from("<Q", view, 8)
    if length > len(view) - 16:
        raise ValueError("blob: truncated")
    try:
        header = json.loads(bytes(view[16 : 16 + length]))
        if header["format"] != FORMAT:
            raise ValueError(f"version mismatch: format {header['format']}, expected {FORMAT}")
        builds: dict[int, Algorithm] = {}
        at = 16 + length
        for each in header["builds"]:
            code = bytes(view[at : at + each["size"]])
            at += each["size"]
            if sha256(code).hexdigest() != each["sha256"]:
                raise ValueError("truncated or damaged")
            spec = _made(each["spec"], kinds)
            if not (alike.may_run(each["kernels"]) if spec.is_cpu else each["kernels"] == _kernels(spec)):
                of_cpu = "or for another CPU, or made by other compilers, " if spec.is_cpu else ""
                raise ValueError(
                    f"version mismatch: it is of cupar {header['cupar']}, {of_cpu}whose kernels are others "
                    f"than those of {__version__}; serialize it again"
                )
            builds[spec.cc] = _restored(spec, code, each["build"])
        if at != len(view) or not builds:
            raise ValueError("more or less is there than the header says")
        return header["factory"], header["options"], builds
    except ValueError as error:
        raise ValueError(f"blob: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"blob: its header is not one: {error!r}") from None


def same_numbers(built: Specialisation) -> dict[str, tuple[int, ...]]:
    """Return which numbers of operators are arguments: those of a call are resolved in the same way."""
    return {name: op.arguments for name, op in built.operators}


def check_operators(built: Specialisation, asked: Specialisation) -> None:
    """Raise ValueError if an algorithm was built for other operators than a call has."""
    for (name, mine), (_, given) in zip(built.operators, asked.operators, strict=True):
        if all(getattr(mine, each) == getattr(given, each) for each in _SAME):
            continue
        got = (
            f"got {given.name} as it is now, with other code or other values"
            if (mine.name, mine.signature) == (given.name, given.signature)
            else f"got another operator, {given.name} for {given.signature}"
        )
        raise ValueError(
            f"{name}: this algorithm was serialized with {mine.name} for {mine.signature}, and nothing is "
            f"compiled for it; {got}"
        )


def _kernels(spec: Specialisation) -> Any:
    """Return a digest of the kernels' sources; for the CPU, the compilers' versions."""
    if spec.is_cpu:
        return toolchain.cpu_versions()
    return headers.digest(spec.family.source_of(spec))


def _restored(spec: Specialisation, code: bytes, build: dict[str, Any]) -> Algorithm:
    found = code_of(spec, code)
    found.check()
    told = {"cc": public(spec.cc), **{field: build[field] for field in _BUILD}}
    built = Built(found, Build(**told, origin="disk", seconds={}, source="deserialize"))
    return class_of(spec)(built, ())  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """Return a specialisation, or a part of one, as JSON has it."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.dtype):
        return {"dtype": structs.descr(value)}
    if isinstance(value, OpKind):
        return {"OpKind": value.name}
    if isinstance(value, type):
        return {"kind": value.__name__}
    fields = [each.name for each in dataclasses.fields(value) if each.init]
    return {"class": type(value).__name__, **{each: _plain(getattr(value, each)) for each in fields}}


def _made(value: Any, kinds: Mapping[str, type[Algorithm]]) -> Any:
    """Return what `_plain` wrote."""
    if isinstance(value, list):
        return tuple(_made(each, kinds) for each in value)
    if not isinstance(value, dict):
        return value
    if "class" in value:
        cls = _CLASSES[value["class"]]
        return cls(**{name: _made(each, kinds) for name, each in value.items() if name != "class"})
    ((what, name),) = value.items()
    if what == "dtype":
        return structs.normal("dtype", structs.from_descr(name))
    return OpKind[name] if what == "OpKind" else kinds[name]
