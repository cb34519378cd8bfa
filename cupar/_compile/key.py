"""What a build depends on, as a table of named parts; nothing else decides a key.

The idea of a key as named parts, each of which can be shown when a build was not found, is that of JAX's
``cache_key.py``. Parts are strings, numbers and lists of them, so that the same table gives the same bytes
in every process and on every machine, and can be read in the metadata of a cache entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .. import structs
from .._ir.operator import Operator
from . import toolchain, wrapper
from .specialisation import Specialisation

FORMAT = 2  # of keys and of what is stored under them


def template_parts(spec: Specialisation) -> dict[str, Any]:
    """Return what the kernels depend on: types and options, but no function of the user's."""
    return {
        "format": FORMAT,
        "entry": "template",
        "algorithm": spec.algorithm,
        "cc": spec.cc,
        "arguments": [argument.part() for argument in spec.arguments],
        "operators": {name: op.part() for name, op in spec.operators},
        "options": dict(spec.options),
        "iterators": _iterators(spec),
        "versions": toolchain.template_versions(),
    }


def _iterators(spec: Specialisation) -> list[str]:
    """Return a hash of the iterators' C++ and how it is compiled, nothing if there are none."""
    if all(argument.is_pointer for argument in spec.arguments):
        return []
    from .._ir.source import iterators_source

    return [_hash(iterators_source(spec.arguments)), *toolchain.CPP_OPTIONS]


def build_parts(spec: Specialisation) -> dict[str, Any]:
    """Return what a build depends on: its template, and the operators with what compiles them."""
    parts = {**template_parts(spec), "entry": "build"}
    if spec.has_template:
        parts["linker"] = toolchain.link_options()
    functions = spec.functions
    if functions:
        parts["functions"] = {name: function_part(op) for name, op in functions.items()}
        parts["wrappers"] = {name: _wrapper_part(op) for name, op in functions.items()}
        if any(op.cpp is None for op in functions.values()):
            parts["numba"] = wrapper.OPTIONS
            parts["versions"] = {**parts["versions"], **toolchain.operator_versions()}
    return parts


def function_part(op: Operator) -> list[Any]:
    """Describe a function: what it does and, since one in Python may read fields by name, their names."""
    if op.cpp is not None:
        return [op.fingerprint]
    names = [structs.names(dtype) for dtype in (*op.inputs, op.output)]
    return [op.fingerprint, *(names if any(names) else [])]


def _wrapper_part(op: Operator) -> list[str]:
    """Return a hash of what stands between CCCL's call and the user's function, and how it is compiled."""
    if op.cpp is None:
        return [_hash(wrapper.source(op))]
    return [_hash(op.cpp), *toolchain.CPP_OPTIONS]


def digest(parts: Mapping[str, Any]) -> str:
    """Return the key: the SHA-256 of the parts' canonical JSON, in hexadecimal."""
    return _hash(json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
