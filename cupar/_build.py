"""Makes a build: template, operators, link. Knows no cache.

CCCL's kernels, compiled with functions that are named but not given, are LTO-IR that waits for the linker:
the template. It depends on types and options alone, if the functions' names are always the same. nvJitLink
joins it with the LTO-IR of the operators, so a new operator on known types costs a link (0.4 s) and not a
run of NVRTC on CUB's headers (2 s).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from . import _cccl, _convert, _toolchain
from ._key import Argument, Specialisation
from .operators import Operator, ResultError

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

    Returns
    -------
    bytes
        For `link`: head, LTO-IR and tail of the serialised build, then the LTO-IR of converting iterators.

    Raises
    ------
    UnknownFormatError
        If CCCL's serialised form is another than this version of cupar knows; `whole` needs none of it.
    BuildError
        If a compiler refuses.
    """
    with timed(seconds, "template"):
        iterators = {argument.name: _iterator(argument) for argument in spec.arguments}
        parts = _cccl.split(_compile(spec, iterators, {}))
        return _pack([parts.head, parts.kernels, parts.tail, *_converting_code(spec)])


def operators(spec: Specialisation, seconds: Seconds) -> dict[str, list[bytes]]:
    """Compile the operators that are Python functions.

    Returns
    -------
    dict of str to list of bytes
        LTO-IR by parameter, for `link` and `whole`.

    Raises
    ------
    TypeError
        If numba cannot compile one for its types, or its result is not converted to the type needed.
    """
    with timed(seconds, "operator"):
        return {name: _operator_ltoir(name, op, spec.cc) for name, op in spec.functions.items()}


def link(
    spec: Specialisation, template: bytes, operators: Mapping[str, list[bytes]], seconds: Seconds
) -> tuple[bytes, int]:
    """Link operators with a template.

    Returns
    -------
    bytes
        The serialised build, with a cubin, as `_cccl.load` takes it.
    int
        Bytes of the cubin.
    """
    with timed(seconds, "link"):
        head, kernels, tail, *converting = _unpack(template)
        cubin = _toolchain.link([kernels, *converting, *chain(*operators.values())], spec.cc)
        return _cccl.Template(head, kernels, tail).with_cubin(cubin), len(cubin)


def whole(spec: Specialisation, operators: Mapping[str, list[bytes]], seconds: Seconds) -> tuple[bytes, int]:
    """Make a build in one piece, for specialisations with no template or none that can be used.

    Returns
    -------
    bytes, int
        As for `link`.
    """
    with timed(seconds, "compile"):
        iterators = {a.name: _iterator(a, _iterator_codes(a, spec.cc)) for a in spec.arguments}
        result = _compile(spec, iterators, operators)
        return result.serialize(), len(result._get_cubin())


def _compile(spec: Specialisation, iterators: Mapping[str, Any], codes: Mapping[str, list[bytes]]) -> Any:
    operators = {name: _cccl.operator(name, op.kind, codes.get(name, ())) for name, op in spec.operators}
    return _cccl.compile_native(spec.native, spec.native_arguments(iterators, operators), spec.cc)


def _iterator(argument: Argument, codes: Sequence[bytes] = (b"", b"")) -> Any:
    if not argument.converts:
        # Some algorithms take a null pointer for 'no array', so an array that will be there needs another.
        return _cccl.pointer(argument.dtype, address=256)
    return _cccl.iterator(argument.name, argument.value, bytearray(8), codes)


def _iterator_codes(argument: Argument, cc: int) -> Sequence[bytes]:
    if not argument.converts:
        return ()
    return [
        _toolchain.compile_cpp(_convert.source([argument], [function]), cc)
        for function in ("advance", "dereference")
    ]


def _converting_code(spec: Specialisation) -> list[bytes]:
    converting = [argument for argument in spec.arguments if argument.converts]
    return [_toolchain.compile_cpp(_convert.source(converting), spec.cc)] if converting else []


def _operator_ltoir(parameter: str, op: Operator, cc: int) -> list[bytes]:
    if op.raw is not None:
        forwarder = _convert.forwarder_source(parameter, op.raw.name, len(op.inputs))
        return [_toolchain.compile_cpp(forwarder, cc), op.raw.ltoir, *op.raw.extra_ltoirs]
    assert op.source is not None
    try:
        code = _toolchain.compile_operator(op, _cccl.symbol(parameter), cc)
    except (ResultError, _toolchain.BuildError, ImportError):
        raise
    except Exception as error:  # numba raises whatever its passes run into
        raise TypeError(
            f"{parameter}: numba.cuda cannot compile operator {op.name} for {op.signature} on sm_{cc}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not op.source.unchanged(op.function):
        raise RuntimeError(
            f"{parameter}: something that operator {op.name} reads was changed while it was compiled; ask "
            "for the algorithm again"
        )
    return code


def _pack(parts: list[bytes]) -> bytes:
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return lengths + b"".join(parts)


def _unpack(packed: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", packed)
    lengths = struct.unpack_from(f"<{count}Q", packed, 4)
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(packed[at : at + length])
        at += length
    return parts
