"""What a build depends on, as a table of named parts; nothing else decides a key.

The idea of a key as named parts, each of which can be shown when a build was not found, is that of JAX's
``cache_key.py``. Parts are strings, numbers and lists of them, so that the same table gives the same bytes
in every process and on every machine, and can be read in the metadata of a cache entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _toolchain
from .operators import Operator

FORMAT = 1  # of keys and of what is stored under them


@dataclass(frozen=True)
class Argument:
    """An array of an algorithm, as its build sees it.

    Attributes
    ----------
    name : str
        Of the parameter, as in ``"d_in"``.
    dtype : numpy.dtype
        Of the array.
    value : numpy.dtype
        What the algorithm reads or writes; a converting iterator is put between if it is another.
    output : bool
        Whether it is written.
    """

    name: str
    dtype: np.dtype[Any]
    value: np.dtype[Any]
    output: bool = False

    @property
    def converts(self) -> bool:
        """Whether a converting iterator stands between array and algorithm."""
        return self.dtype != self.value

    def part(self) -> list[Any]:
        """Describe it for a key."""
        kind = "converting" if self.converts else "pointer"
        return [self.name, kind, _type(self.dtype), _type(self.value), "out" if self.output else "in"]


@dataclass(frozen=True)
class Specialisation:
    """An algorithm for given types, operators and device.

    Attributes
    ----------
    algorithm : str
        As in ``"reduce_into"``.
    native : str
        The class of CCCL's bindings that builds it.
    arguments : tuple of Argument
    operators : tuple of (str, Operator)
        By parameter.
    options : tuple of (str, value)
        All else that changes the code: kind of initial value, determinism, …
    cc : int
        Compute capability, as in 90.
    native_arguments : callable
        ``native_arguments(iterators, operators)`` returns what the bindings' ``compile`` takes, from
        bindings' objects by parameter. It follows from the other fields and is no part of the key.
    """

    algorithm: str
    native: str
    arguments: tuple[Argument, ...]
    operators: tuple[tuple[str, Operator], ...]
    options: tuple[tuple[str, Any], ...]
    cc: int
    native_arguments: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Any, ...]] = field(compare=False)

    @property
    def functions(self) -> dict[str, Operator]:
        """The operators that are device functions, and not CCCL's own."""
        return {name: op for name, op in self.operators if op.kind is None}

    @property
    def has_template(self) -> bool:
        """Whether an operator is left to the linker, so that the kernels can serve others too.

        CCCL links what uses none but its own operators itself, and leaves nothing open.
        """
        return bool(self.functions)


def _type(dtype: np.dtype[Any]) -> list[Any]:
    return [dtype.str, dtype.itemsize, dtype.alignment]


def template_parts(spec: Specialisation) -> dict[str, Any]:
    """Return what the kernels depend on: types and options, but no function of the user's."""
    return {
        "format": FORMAT,
        "entry": "template",
        "algorithm": spec.algorithm,
        "cc": spec.cc,
        "arguments": [argument.part() for argument in spec.arguments],
        "operators": {
            name: [
                "function" if op.kind is None else op.kind.name,
                *(_type(dtype) for dtype in (*op.inputs, op.output)),
            ]
            for name, op in spec.operators
        },
        "options": dict(spec.options),
        "converters": _converters(spec),
        "versions": _toolchain.template_versions(),
    }


def _converters(spec: Specialisation) -> list[str]:
    """Return a hash of the converting iterators' C++ and how it is compiled, nothing if there are none."""
    converting = [argument for argument in spec.arguments if argument.converts]
    if not converting:
        return []
    from . import _convert

    return [_hash(_convert.source(converting)), *_toolchain.CPP_OPTIONS]


def build_parts(spec: Specialisation) -> dict[str, Any]:
    """Return what a build depends on: its template, and the operators with what compiles them."""
    parts = {**template_parts(spec), "entry": "build"}
    if spec.has_template:
        parts["linker"] = _toolchain.link_options()
    functions = spec.functions
    if functions:
        parts["functions"] = {name: op.fingerprint for name, op in functions.items()}
        parts["wrappers"] = {name: _wrapper(name, op) for name, op in functions.items()}
        if any(op.raw is None for op in functions.values()):
            parts["numba"] = _toolchain.NUMBA_OPTIONS
            parts["versions"] = {**parts["versions"], **_toolchain.operator_versions()}
    return parts


def _wrapper(name: str, op: Operator) -> list[str]:
    """Return a hash of what stands between CCCL's call and the user's function, and how it is compiled."""
    if op.raw is None:
        return [_hash(_toolchain.wrapper_source(op))]
    from . import _convert

    return [_hash(_convert.forwarder_source(name, op.raw.name, len(op.inputs))), *_toolchain.CPP_OPTIONS]


def digest(parts: Mapping[str, Any]) -> str:
    """Return the key: the SHA-256 of the parts' canonical JSON, in hexadecimal."""
    return _hash(json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
