"""What a build depends on, as a table of named parts; nothing else decides a key.

The idea of a key as named parts, each of which can be shown when a build was not found, is that of JAX's
``cache_key.py``. Parts are strings, numbers and lists of them, so that the same table gives the same bytes
in every process and on every machine, and can be read in the metadata of a cache entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import structs
from .._ir.nodes import Argument
from .._ir.operator import Operator
from .._ir.source import iterators_source
from . import toolchain, wrapper

FORMAT = 2  # of keys and of what is stored under them


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
        """The operators that are device functions, and not CCCL's own; those of iterators among them."""
        found = {name: op for name, op in self.operators if op.kind is None}
        for argument in self.arguments:
            found.update(argument.operators)
        return found

    @property
    def has_template(self) -> bool:
        """Whether an operator is left to the linker, so that the kernels can serve others too.

        CCCL links what uses none but its own operators itself, and leaves nothing open, not even the
        functions of iterators (tried with CCCL 3.6.0: nvJitLink finds them missing).
        """
        return any(op.kind is None for _, op in self.operators)

    def without_user(self) -> Specialisation:
        """Return it without what keeps the user's functions alive; it is equal, and cannot be built."""
        return replace(
            self,
            arguments=tuple(argument.without_user() for argument in self.arguments),
            operators=tuple((name, op.without_user()) for name, op in self.operators),
            native_arguments=_built,
        )


def _built(iterators: Mapping[str, Any], operators: Mapping[str, Any]) -> tuple[Any, ...]:
    raise RuntimeError("this specialisation was built, and cannot be built again")


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
    source = iterators_source(spec.arguments)
    return [_hash(source), *toolchain.CPP_OPTIONS] if source else []


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
