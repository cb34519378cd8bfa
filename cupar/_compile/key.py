"""Keys: a table of named parts that a build depends on; nothing else decides a key.

The idea of a key as named parts, each of which can be shown when a build was not found, is that of JAX's
``cache_key.py``. The table is as plain as JSON, so that it gives the same bytes in every process and on every
machine, and can be read in the metadata of a cache entry.

Parts describe themselves, so that `_inspect.differences` compares them without knowing their kinds. A part
stands under what a person calls it, in a group that says how much it weighs. It is a text or a number; or a
list of a text, which may be incomplete, and the exact value. A part without a short form has an empty text.
"""

from __future__ import annotations

import opcode
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _numba, structs
from .._base.digests import sha256
from .._base.words import counted
from .._fingerprint.fingerprint import AN_ARGUMENT
from .._ir.nodes import IteratorNode, Pointer
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .._kernels import headers, source
from ..operators import OpKind
from . import toolchain, wrapper

if TYPE_CHECKING:
    from .._device.card import Card
    from .._external.linkable import Linkable

FORMAT = 7  # of keys and of the entries under them

_NO_TEXT = ""

digest = toolchain.digest


def template_parts(spec: Specialisation) -> dict[str, Any]:
    """Return the parts of a template's key: types and options, but no function of the user's."""
    family = spec.family
    assert family is not None
    versions = {
        **toolchain.template_versions(),
        "cupar's kernels": headers.digest(family.source_of(spec)),
        "options of NVRTC": " ".join(toolchain.KERNEL_OPTIONS),
    }
    return {
        "format": FORMAT,
        "entry": "template",
        **_spec_parts(spec),
        "cc": spec.cc,
        "generated": {
            "the C++ that cupar writes for its kernels": [_NO_TEXT, _hash(source.source(family, spec))]
        },
        "versions": versions,
    }


def _spec_parts(spec: Specialisation) -> dict[str, Any]:
    """Describe the specialisation, but for functions of the user's and the target."""
    types: dict[str, Any] = {}
    for name, op in spec.operators:
        types[f"types of {name}"] = _types_part(op.inputs, op.output)
        if op.state_size:
            size = counted(op.state_size, "byte")
            types[f"state of {name}"] = [size, op.state_size, op.state_alignment]
    return {
        "algorithm": spec.algorithm,
        "arguments": {each.name: [_node_text(each.node), *each.part()[1:]] for each in spec.arguments},
        "operators": {name: _kind(op) for name, op in spec.operators},
        "types": types,
        "options": {f"option {name}": value for name, value in spec.options},
    }


def build_parts(spec: Specialisation) -> dict[str, Any]:
    """Return the parts of a build's key: its template's, and the operators with what compiles them."""
    if spec.is_kernel:
        return _kernel_parts(spec)
    if spec.is_cpu:
        return _cpu_parts(spec)
    parts = {**template_parts(spec), "entry": "build"}
    versions, generated = {**parts["versions"]}, {**parts["generated"]}
    linker = *toolchain.LINK_OPTIONS, "and with CUDA 13", *toolchain.LINK_OPTIONS_OF_13
    versions["options of the linker"] = " ".join(linker)
    functions = _functions(spec)
    for name, op in functions.items():
        wrapped = [wrapper.written(op)[0]] if op.cpp is None else [op.cpp, *toolchain.CPP_OPTIONS]
        generated[f"the code that cupar puts around {name}"] = [_NO_TEXT, _hash(wrapped[0]), *wrapped[1:]]
    if None in [op.cpp for op in functions.values()]:
        versions.update(toolchain.operator_versions(), **_integers(functions.values()))
        versions.update((f"numba's option {name}", value) for name, value in _numba.OPTIONS.items())
    if spec.links or True in [bool(op.links) for op in functions.values()]:
        versions["options of NVRTC for linked C++"] = " ".join(toolchain.CPP_OPTIONS)
    linked = {"linked": links_part(spec.links)} if spec.links else {}
    return {
        **parts,
        "functions": _function_parts(functions),
        **linked,
        "versions": versions,
        "generated": generated,
    }


def policy_parts(spec: Specialisation, card: Card) -> dict[str, Any]:
    """Return the parts of the key of a policy that was measured on a kind of card; see `_obtain.tuned`."""
    family = spec.family
    assert family is not None
    assert family.tunable is not None
    used = ("cuda-cccl", "cuda-major")
    versions = {name: value for name, value in toolchain.template_versions().items() if name in used}
    return {
        "format": FORMAT,
        "entry": "policy",
        "algorithm": family.tunable.name,
        "card": card.part(),
        "types": dict(family.tunable.scope(spec)),
        "versions": {**versions, "cupar's kernels": headers.digest(family.source_of(spec.with_policy("")))},
    }


def _cpu_parts(spec: Specialisation) -> dict[str, Any]:
    """Return the parts of the key of a build for the CPU, which has no template."""
    functions = _functions(spec)
    return {
        "format": FORMAT,
        "entry": "build",
        **_spec_parts(spec),
        "cc": "cpu",
        "functions": _function_parts(functions),
        "versions": {
            **toolchain.cpu_versions(),
            **_integers([*functions.values(), *(op for _, op in spec.operators)]),
        },
    }


def links_part(links: Sequence[Linkable]) -> dict[str, Any]:
    """Describe code that is linked: by content, as if it had no other name."""
    return {f"linked code {number}": each.part() for number, each in enumerate(links, start=1)}


def source_parts(code: Linkable, cc: int) -> dict[str, Any]:
    """Return the parts of the key of C++ compiled to LTO-IR."""
    versions = toolchain.template_versions()
    used = {
        name: versions[name]
        for name in ("cuda-cccl", "cuda-major", "nvrtc", "cuda-headers", "cupar's code for kernels")
    }
    return {
        "format": FORMAT,
        "entry": "cpp",
        "algorithm": "cpp",
        "cc": cc,
        "linked": links_part([code]),
        "versions": {**used, "options of NVRTC": " ".join(toolchain.CPP_OPTIONS)},
    }


def _kernel_parts(spec: Specialisation) -> dict[str, Any]:
    """Return the parts of the key of a user's kernel, which has no template."""
    ((name, op),) = spec.operators
    versions = {**toolchain.operator_versions(), **toolchain.template_versions(), **_WRAPPING}
    del versions["cuda-cccl"]
    versions["options of the linker"] = " ".join(toolchain.PLAIN_LINK_OPTIONS)
    versions.update((f"numba's option {each}", str(value)) for each, value in _numba.OPTIONS.items())
    places = enumerate(spec.arguments)
    parts: dict[str, Any] = {
        "format": FORMAT,
        "entry": "build",
        "algorithm": spec.algorithm,
        "cc": spec.cc,
        "arguments": {each.name: [each.part()[0], place, *each.part()[1:]] for place, each in places},
        # The carveout among these affects loading, not code.
        "options": {f"option {each}": value for each, value in spec.options if "carveout" not in each},
        "functions": {name: [_NO_TEXT, op.fingerprint]},
        "versions": versions,
    }
    if spec.links:
        parts["linked"] = links_part(spec.links)
    if spec.links or op.links:
        versions["options of NVRTC for linked C++"] = " ".join(toolchain.CPP_OPTIONS)
    return parts


def result_parts(op: Operator, on_cpu: bool = False) -> dict[str, Any]:
    """Return the parts of the key of an operator's result type, inferred for the CPU or for GPUs."""
    versions = toolchain.cpu_versions() if on_cpu else toolchain.operator_versions()
    of_machine = ("the CPU", "features of the CPU", "platform")
    return {
        "format": FORMAT,
        "entry": "result",
        "types": {"types of the inputs": _types_part(op.inputs)},
        "functions": _function_parts({"the function": op}),
        "versions": {name: of for name, of in versions.items() if name not in of_machine},
    }


# Builds whose sums of signed integers LLVM took to be in range, as numba does, are not found any more.
_WRAPPING = {"integers out of range": "wrap around"}
_SUMS: Final = (OpKind.PLUS, OpKind.MINUS, OpKind.MULTIPLIES, OpKind.NEGATE)
_ARITHMETIC: Final = frozenset(
    code
    for name, code in opcode.opmap.items()
    if name.startswith(("BINARY_", "INPLACE_", "CALL", "UNARY_NEGATIVE")) and name != "BINARY_SUBSCR"
)
_WITHOUT_INTEGERS: Final = ("float ", "complex ", "function ", "math.", "cmath.")  # values that code reads
_TO_INTEGERS: Final = frozenset(f"math.{name}" for name in ("ceil", "floor", "frexp", "gcd", "trunc"))


def _integers(operators: Iterable[Operator]) -> dict[str, str]:
    """Return the part of builds in which numba may have code for arithmetic of signed integers."""
    return _WRAPPING if any(map(_may_overflow, operators)) else {}


def _may_overflow(op: Operator) -> bool:
    # No generators, at whose end Ctrl-C would be lost.
    has_integers = any(map(_holds_integers, (*op.inputs, *[each.dtype for each in op.captures])))
    if op.source is None:
        return has_integers and op.kind in _SUMS  # which numba compiles for the CPU
    codes = [code for _, code in op.source.codes]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, CodeType)]
    has_arithmetic = not codes or True in [not _ARITHMETIC.isdisjoint(code.co_code[::2]) for code in codes]
    constants = [type(each) for code in codes for each in code.co_consts]
    reads = [text for label, text in op.source.parts if not label.startswith("code")]
    return has_arithmetic and (
        has_integers
        or not {int, tuple}.isdisjoint(constants)
        or True in [text in _TO_INTEGERS or not text.startswith(_WITHOUT_INTEGERS) for text in reads]
    )


def _holds_integers(dtype: np.dtype[Any]) -> bool:
    if dtype.names is None:
        return dtype.kind in "biu"
    return True in [_holds_integers(dtype[name]) for name in dtype.names]


def notes(spec: Specialisation) -> dict[str, Any]:
    """Return metadata of an entry that is not in its key: operators' names, and the parts of fingerprints."""
    functions = _functions(spec)
    sources = ((name, op.source) for name, op in functions.items())
    return {
        "operators": {name: op.name for name, op in (*spec.operators, *functions.items())},
        "reads": {name: source.reads() for name, source in sources if source is not None},
    }


def arguments(spec: Specialisation) -> dict[str, tuple[str, ...]]:
    """Return the numbers that operators read and that are arguments of the code, by operator."""
    found: dict[str, tuple[str, ...]] = {}
    for name, op in _functions(spec).items():
        if op.numbers and op.source is not None:
            found[name] = tuple([label for label, text in op.source.parts if text.endswith(AN_ARGUMENT)])
    return found


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _functions(spec: Specialisation) -> dict[str, Operator]:
    """Return the operators that are device functions, including those of iterators, by readable name."""
    found = {name: op for name, op in spec.operators if op.kind is None}
    for argument in spec.arguments:
        of_argument = enumerate(argument.operators.values(), start=1)
        found.update((f"operator {number} of {argument.name}", op) for number, op in of_argument)
    return found


def _function_parts(functions: Mapping[str, Operator]) -> dict[str, Any]:
    """Describe functions: fingerprints and, since those in Python may read fields by name, their names."""
    parts: dict[str, Any] = {name: [_NO_TEXT, op.fingerprint] for name, op in functions.items()}
    for name, op in functions.items():
        fields = [structs.names(dtype) for dtype in (*op.inputs, op.output)]
        if op.cpp is None and any(fields):
            parts[f"names of the fields that {name} reads"] = [_NO_TEXT, *fields]
    return parts


def _types_part(inputs: tuple[np.dtype[Any], ...], *output: np.dtype[Any]) -> list[Any]:
    text = f"({', '.join(map(_type_text, inputs))})" + "".join(f" -> {_type_text(each)}" for each in output)
    return [text, *map(structs.type_part, (*inputs, *output))]


def _kind(op: Operator) -> str:
    return "function" if op.kind is None else f"OpKind.{op.kind.name}"


def _node_text(node: IteratorNode) -> str:
    """Return an array or iterator as text: a dtype, or as in ``Transform(Counting(int32)) of int64``."""
    name, value = type(node).__name__, _type_text(node.value)
    if isinstance(node, Pointer):
        return value
    inner = [*map(_node_text, node.children)]
    if node.operator is not None:
        inner.append(_kind(node.operator))
    if inner:
        return f"{name}({', '.join(inner)}) of {value}"
    detail = (each for each in node.part()[2:] if isinstance(each, str))
    return f"{name}({', '.join([value, *detail])})"


def _type_text(dtype: np.dtype[Any]) -> str:
    """Return a dtype as text without the names of fields, which are no part of a layout."""
    if dtype.names is None:
        return str(dtype)
    return f"struct({', '.join(_type_text(dtype[name]) for name in dtype.names)})"
