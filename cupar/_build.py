"""Makes a build: template, operators, link. `_obtain` has looked in the cache before.

CCCL's kernels, compiled with functions that are named but not given, are LTO-IR that waits for the linker:
the template. It depends on types and options alone, if the functions' names are always the same. nvJitLink
joins it with the LTO-IR of the operators, so a new operator on known types costs a link and not a run of
NVRTC.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final

from ._base import progress
from ._base.errors import BuildError
from ._compile import limits, nvjitlink, nvrtc, python_kernel, python_to_ltoir, toolchain, workers
from ._compile.nvjitlink import Code
from ._external.linkable import Linkable, linkable
from ._ir import cpp
from ._ir.operator import Operator
from ._ir.specialisation import Specialisation
from ._kernels import image, source

Seconds = dict[str, float]


@contextmanager
def timed(seconds: Seconds, stage: str) -> Iterator[None]:
    """Add the time that the block takes to a stage."""
    start = time.perf_counter()
    try:
        with progress.stage(stage):
            yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


def template(spec: Specialisation, seconds: Seconds) -> bytes:
    """Compile the kernels of a specialisation, its operators left to the linker.

    `unpack` gives what `link` takes of it.

    Raises
    ------
    BuildError
        If a compiler refuses.
    """
    with timed(seconds, "template"):
        family = spec.family
        assert family is not None
        return _pack([workers.compile_kernels(source.source(family, spec), spec.cc)])


LINK = "link"  # in place of a parameter: code linked beside operators


def operators(spec: Specialisation, seconds: Seconds) -> dict[str, list[Code]]:
    """Compile the operators that are functions to LTO-IR, by parameter, with what else is linked for them.

    What several bring, such as one `RawOp` in two places, is there once: linked twice, its functions would be
    defined twice.

    Raises
    ------
    TypeError
        If numba cannot compile one for its types, or its result is not converted to the type needed.
    """
    with timed(seconds, "operator"):
        seen: set[Code] = set()
        kept: dict[str, list[Code]] = {}

        def keep(name: str, codes: Iterable[Code]) -> None:
            kept[name] = []
            for code in codes:
                content = code.data if isinstance(code, Linkable) and code.kind != "cu" else code
                if content not in seen:
                    kept[name].append(code)
                seen.add(content)

        for name, op in spec.functions.items():
            keep(name, _operator_code(name, op, spec.cc))
        if spec.links:
            keep(LINK, spec.links)
        return kept


def llvm(spec: Specialisation) -> dict[str, str]:
    """Return the LLVM IR of the operators that are Python functions, by parameter; see `operators`."""
    if spec.is_kernel:
        return {"kernel": python_kernel.compile_kernel(spec).llvm}
    return {
        name: python_to_ltoir.operator_llvm(op, cpp.symbol(name), spec.cc)
        for name, op in spec.functions.items()
        if op.cpp is None
    }


def _operator_code(parameter: str, op: Operator, cc: int) -> list[Code]:
    symbol = cpp.symbol(parameter)
    if op.cpp is not None:
        return [nvrtc.compile_cpp(op.cpp.replace("SYMBOL", symbol), cc), *op.ltoirs]
    return [*python_to_ltoir.compile_operator(op, symbol, cc), *op.links]


def link(
    spec: Specialisation, template: list[bytes], operators: Mapping[str, list[Code]], seconds: Seconds
) -> tuple[bytes, int]:
    """Link operators with the parts of a template; return the serialised build, and the size of its cubin."""
    with timed(seconds, "link"), limits.explained(spec):
        family = spec.family
        assert family is not None
        cubin = _link(spec, template, operators)
        properties = dict(zip(family.properties, _properties(cubin, operators), strict=False))
        return image.Image(properties, cubin).dumps(), len(cubin)


def _properties(cubin: bytes, operators: Mapping[str, list[Code]]) -> tuple[int, ...]:
    try:
        return image.properties_of(cubin)
    except image.DamagedError as error:
        finished = [code.name for codes in operators.values() for code in codes if isinstance(code, Linkable)]
        if not finished:
            raise
        raise BuildError(
            f"nvJitLink left kernels out with {', '.join(finished)}: is a function defined in two of these?"
        ) from error


def kernel(spec: Specialisation, links: Sequence[Code], seconds: Seconds) -> tuple[bytes, int]:
    """Compile a kernel of the user's, and link it with code from elsewhere; return what `link` does."""
    ((_, op),) = spec.operators
    with timed(seconds, "compile"):
        made = python_kernel.compile_kernel(spec)
    with timed(seconds, "link"):
        parts, options = kernel_parts(spec, made, links)
        own = f"kernel {op.name}"
        names = [f"{own} ({each.name})" if isinstance(each, Linkable) else own for each in parts]
        callers = {each.symbol: [own] for each in op.externals}
        cubin = nvjitlink.link(parts, spec.cc, names, callers, options)
        properties = {"cooperative": int(made.is_cooperative or _waits_for_grid(parts, spec.cc, options))}
        return image.Image(properties, cubin).dumps(), len(cubin)


def kernel_parts(
    spec: Specialisation, made: python_kernel.Compiled, links: Sequence[Code]
) -> tuple[list[Code], list[str]]:
    """Return the code linked to a kernel of the user's, and the linker's options."""
    registers = spec.option("max_registers")
    options = [*toolchain.PLAIN_LINK_OPTIONS, *[f"-maxrregcount={registers}"] * bool(registers)]
    options += ["-lineinfo"] * bool(spec.option("lineinfo"))
    parts: list[Code] = [*made.ltoirs, *links]
    if made.is_cooperative:
        parts.append(linkable("archive", toolchain.device_runtime(), "libcudadevrt.a"))
    return parts, options


_WORKSPACE_OF_GRID: Final = re.compile(r"%envreg[12]\b")  # which CUDA's cooperative groups read


def _waits_for_grid(parts: Sequence[Code], cc: int, options: Sequence[str]) -> bool:
    """Whether a kernel waits for its grid in code from elsewhere: only in PTX that can be seen."""
    if not any(isinstance(each, Linkable) and each.kind == "ltoir" for each in parts):
        return False
    return _WORKSPACE_OF_GRID.search(nvjitlink.ptx(parts, cc, options)) is not None


def _link(spec: Specialisation, parts: list[bytes], operators: Mapping[str, list[Code]]) -> bytes:
    """Link cupar's own parts with operators, which errors call by their parameters."""
    functions = spec.functions
    whose = [
        f"{name} ({code.name if isinstance(code, Linkable) else _called(functions[name])})"
        for name, codes in operators.items()
        for code in codes
    ]
    names = [*(f"part {number}" for number in range(len(parts))), *whose]
    callers: dict[str, list[str]] = {}
    for name, op in functions.items():
        for function in op.externals:
            callers.setdefault(function.symbol, []).append(f"{name} ({_called(op)})")
    codes = [*parts, *chain(*operators.values())]
    is_finished = any(isinstance(code, Linkable) and code.kind != "ltoir" for code in codes)
    options = toolchain.PLAIN_LINK_OPTIONS if is_finished else None
    return nvjitlink.link(codes, spec.cc, names, callers, options)


def _called(op: Operator) -> str:
    return f"RawOp {op.name!r}" if op.ltoirs else op.name


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
