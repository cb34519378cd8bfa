"""Makes a build: template, operators, link. It knows no cache; `_obtain` asks one first.

CCCL's kernels, compiled with functions that are named but not given, are LTO-IR that waits for the linker:
the template. It depends on types and options alone, if the functions' names are always the same. nvJitLink
joins it with the LTO-IR of the operators, so a new operator on known types costs a link (0.4 s) and not a
run of NVRTC on CUB's headers (2 s).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any

from ._base.errors import BuildError
from ._compile import cccl, limits, nvjitlink, nvrtc, python_to_ltoir, workers
from ._ir import cpp
from ._ir.operator import Operator
from ._ir.source import iterators_source
from ._ir.specialisation import Specialisation
from ._kernels import image, source

Seconds = dict[str, float]


@contextmanager
def timed(seconds: Seconds, stage: str) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


def template(spec: Specialisation, seconds: Seconds) -> bytes:
    """Compile the kernels of a specialisation, its operators left to the linker.

    `unpack` gives what `link` takes of it: head, LTO-IR and tail of the serialised build, then the LTO-IR of
    iterators.

    Raises
    ------
    UnknownFormatError
        If CCCL's serialised form is another than this version of cupar knows; `whole` needs none of it.
    BuildError
        If a compiler refuses.
    """
    with timed(seconds, "template"), limits.explained(spec):
        family = spec.kind._family
        if family is not None:
            return _pack([workers.compile_kernels(source.source(family, spec), spec.cc)])
        return _pack([*cccl.split(_compile(spec, {}, [])), *_iterator_code(spec)])


def operators(spec: Specialisation, seconds: Seconds) -> dict[str, list[bytes]]:
    """Compile the operators that are functions, in Python or C++, to LTO-IR by parameter.

    What several bring, such as one `RawOp` in two places, is there once: linked twice, its functions would be
    defined twice.

    Raises
    ------
    TypeError
        If numba cannot compile one for its types, or its result is not converted to the type needed.
    """
    with timed(seconds, "operator"):
        seen: set[bytes] = set()
        kept: dict[str, list[bytes]] = {}
        for name, op in spec.functions.items():
            codes = dict.fromkeys(_operator_ltoir(name, op, spec.cc))
            kept[name] = [code for code in codes if code not in seen]
            seen.update(codes)
        return kept


def llvm(spec: Specialisation) -> dict[str, str]:
    """Return the LLVM IR of the operators that are Python functions, by parameter; see `operators`."""
    return {
        name: python_to_ltoir.operator_llvm(op, cpp.symbol(name), spec.cc)
        for name, op in spec.functions.items()
        if op.cpp is None
    }


def _operator_ltoir(parameter: str, op: Operator, cc: int) -> list[bytes]:
    symbol = cpp.symbol(parameter)
    if op.cpp is None:
        return python_to_ltoir.compile_operator(op, symbol, cc)
    return [nvrtc.compile_cpp(op.cpp.replace("SYMBOL", symbol), cc), *op.ltoirs]


def link(
    spec: Specialisation, template: list[bytes], operators: Mapping[str, list[bytes]], seconds: Seconds
) -> tuple[bytes, int]:
    """Link operators with the parts of a template; return the serialised build, and the size of its cubin."""
    with timed(seconds, "link"), limits.explained(spec):
        family = spec.kind._family
        if family is not None:
            cubin = _link(spec, template, operators)
            facts = dict(zip(family.facts, image.facts_of(cubin), strict=False))
            return image.Image(facts, cubin).dumps(), len(cubin)
        head, kernels, tail, *iterators = template
        cubin = _link(spec, [kernels, *iterators], operators)
        return cccl.join(head, cubin, tail), len(cubin)


def whole(spec: Specialisation, operators: Mapping[str, list[bytes]], seconds: Seconds) -> tuple[bytes, int]:
    """Make a build in one piece, for specialisations with no template or none that can be used."""
    with timed(seconds, "compile"), limits.explained(spec):
        iterator_code = _iterator_code(spec)
        try:
            result = _compile(spec, operators, iterator_code)
        except BuildError:
            if operators:  # CCCL does not say what is wrong with how they link; this does
                _link(spec, iterator_code, operators)
            raise
        return result.serialize(), len(result._get_cubin())


def _link(spec: Specialisation, parts: list[bytes], operators: Mapping[str, list[bytes]]) -> bytes:
    """Link cupar's own parts with operators, which errors call by their parameters."""
    functions = spec.functions
    whose = [f"{name} ({_called(functions[name])})" for name, codes in operators.items() for _ in codes]
    names = [*(f"part {number}" for number in range(len(parts))), *whose]
    return nvjitlink.link([*parts, *chain(*operators.values())], spec.cc, names)


def _called(op: Operator) -> str:
    return f"RawOp {op.name!r}" if op.ltoirs else op.name


def _compile(spec: Specialisation, codes: Mapping[str, list[bytes]], iterator_code: list[bytes]) -> Any:
    """Run NVRTC on a specialisation's kernels; with no codes, all its functions are left to the linker."""
    # All this can be made in another process, too.
    operators = {
        name: partial(cccl.operator, name, op.kind, codes.get(name, ()), op.state_size, op.state_alignment)
        for name, op in spec.operators
    }
    # CCCL links what each function brings with it. One brings the code of all iterators, whose functions are
    # in one piece, and that of the operators in them.
    own = dict(spec.operators)
    carried = [*iterator_code, *chain(*(code for name, code in codes.items() if name not in own))]
    iterators = []
    for argument in spec.arguments:
        if argument.is_pointer:
            # Some algorithms take a null pointer for 'no array', so an array that will be there has another.
            iterators.append(partial(cccl.pointer, argument.value, address=256))
        else:
            state = bytearray(argument.node.size)
            iterators.append(partial(cccl.iterator, argument.name, argument.value, state, carried))
            carried = []
    arguments = spec.kind._native_arguments(spec, cccl.bindings(), *iterators, **operators)
    return workers.compile_native(spec.kind._native, arguments, spec.cc)


def _iterator_code(spec: Specialisation) -> list[bytes]:
    source = iterators_source(spec.arguments)
    return [nvrtc.compile_cpp(source, spec.cc)] if source else []


def _pack(parts: list[bytes]) -> bytes:
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return lengths + b"".join(parts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the parts of a template as `link` takes them, or raise ValueError."""
    (count,) = struct.unpack_from("<I", packed)
    lengths = struct.unpack_from(f"<{count}Q", packed, 4)
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(packed[at : at + length])
        at += length
    if not count or at != len(packed):
        raise ValueError(f"no template: {count} parts, {at} bytes of {len(packed)}")
    return parts
