"""What a build depends on, as a table of named parts; nothing else decides a key.

The idea of a key as named parts, each of which can be shown when a build was not found, is that of JAX's
``cache_key.py``. The table is plain JSON, so that it gives the same bytes in every process and on every
machine, and can be read in the metadata of a cache entry.

Parts describe themselves, so that `_inspect.differences` compares them without knowing what they are. A part
stands under what a person calls it, in a group that says how much it weighs. It is a text or a number; or a
list of its text, which need not tell all, and what tells the rest. What has no short form has an empty text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .. import structs
from .._base.words import counted
from .._ir import nodes
from .._ir.nodes import Argument
from ..operators import Operator
from . import toolchain, wrapper

FORMAT = 3  # of keys and of what is stored under them

_NO_TEXT = ""


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
    types: dict[str, Any] = {}
    for name, op in spec.operators:
        types[f"types of {name}"] = [_signature(op), *map(nodes.type_part, (*op.inputs, op.output))]
        if op.state_size:
            size = counted(op.state_size, "byte")
            types[f"state of {name}"] = [size, op.state_size, op.state_alignment]
    source = nodes.source(spec.arguments)
    return {
        "format": FORMAT,
        "entry": "template",
        "algorithm": spec.algorithm,
        "cc": spec.cc,
        "arguments": {each.name: [_node_text(each.node), *each.part()[1:]] for each in spec.arguments},
        "operators": {name: "function" if op.kind is None else op.name for name, op in spec.operators},
        "types": types,
        "options": {f"option {name}": value for name, value in dict(spec.options).items()},
        "generated": {"the C++ that cupar writes for iterators": _cpp_part(source)} if source else {},
        "versions": toolchain.template_versions(),
    }


def build_parts(spec: Specialisation) -> dict[str, Any]:
    """Return what a build depends on: its template, and the operators with what compiles them."""
    parts = {**template_parts(spec), "entry": "build"}
    versions, generated = {**parts["versions"]}, {**parts["generated"]}
    if spec.has_template:
        options = toolchain.link_options()
        versions["options of the linker"] = [" ".join(options), *options]
    functions = _functions(spec)
    for name, op in functions.items():
        wrapped = [_NO_TEXT, _hash(wrapper.source(op))] if op.cpp is None else _cpp_part(op.cpp)
        generated[f"the code that cupar puts around {name}"] = wrapped
    if any(op.cpp is None for op in functions.values()):
        versions.update(toolchain.operator_versions())
        versions.update((f"numba's option {name}", value) for name, value in wrapper.OPTIONS.items())
    described = _function_parts(functions)
    return {**parts, "functions": described, "versions": versions, "generated": generated}


def result_parts(op: Operator) -> dict[str, Any]:
    """Return what the type of an operator's result depends on."""
    inputs = f"({', '.join(map(_type_text, op.inputs))})"
    return {
        "format": FORMAT,
        "entry": "result",
        "types": {"types of the inputs": [inputs, *map(nodes.type_part, op.inputs)]},
        "functions": _function_parts({"the function": op}),
        "versions": toolchain.operator_versions(),
    }


def notes(spec: Specialisation) -> dict[str, Any]:
    """Return what an entry says of operators beside its key: names, and what fingerprints are made of."""
    functions = _functions(spec)
    sources = ((name, op.source) for name, op in functions.items())
    return {
        "operators": {name: op.name for name, op in (*spec.operators, *functions.items())},
        "reads": {name: source.reads() for name, source in sources if source is not None},
    }


def digest(parts: Mapping[str, Any]) -> str:
    """Return the key: the SHA-256 of the parts' canonical JSON, in hexadecimal."""
    return _hash(json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _functions(spec: Specialisation) -> dict[str, Operator]:
    """Return the operators that are device functions, iterators' among them, by what a person calls them."""
    found = {name: op for name, op in spec.operators if op.kind is None}
    for argument in spec.arguments:
        of_argument = enumerate(argument.operators.values(), start=1)
        found.update((f"operator {number} of {argument.name}", op) for number, op in of_argument)
    return found


def _function_parts(functions: Mapping[str, Operator]) -> dict[str, Any]:
    """Describe functions: what they do and, since those in Python may read fields by name, their names."""
    parts: dict[str, Any] = {name: [_NO_TEXT, op.fingerprint] for name, op in functions.items()}
    for name, op in functions.items():
        fields = [structs.names(dtype) for dtype in (*op.inputs, op.output)]
        if op.cpp is None and any(fields):
            parts[f"names of the fields that {name} reads"] = [_NO_TEXT, *fields]
    return parts


def _cpp_part(source: str) -> list[str]:
    return [_NO_TEXT, _hash(source), *toolchain.CPP_OPTIONS]


def _node_text(node: nodes.Node) -> str:
    """Return an array or iterator as text: a dtype, or as in ``Transform(Counting(int32)) of int64``."""
    name, value = type(node).__name__, _type_text(node.value)
    if isinstance(node, nodes.Pointer):
        return value
    inner = [*map(_node_text, node.children)]
    if node.operator is not None:
        inner.append("function" if node.operator.kind is None else node.operator.name)
    if inner:
        return f"{name}({', '.join(inner)}) of {value}"
    detail = (each for each in node.part()[2:] if isinstance(each, str))
    return f"{name}({', '.join([value, *detail])})"


def _signature(op: Operator) -> str:
    return f"({', '.join(map(_type_text, op.inputs))}) -> {_type_text(op.output)}"


def _type_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as text without the names of fields, which are no part of a layout."""
    if dtype.names is None:
        return str(dtype)
    return f"struct({', '.join(_type_text(dtype[name]) for name in dtype.names)})"
