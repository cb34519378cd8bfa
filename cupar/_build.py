"""Makes a build: template, operators, link. Knows no cache.

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

import numpy as np

from . import structs
from ._compile import cccl, diagnosis, limits, ltoir, toolchain, workers
from ._compile.key import Specialisation
from ._fingerprint import extensions
from ._fingerprint.refusals import Unfingerprintable
from ._ir import nodes
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
        For `link`: head, LTO-IR and tail of the serialised build, then the LTO-IR of iterators.

    Raises
    ------
    UnknownFormatError
        If CCCL's serialised form is another than this version of cupar knows; `whole` needs none of it.
    BuildError
        If a compiler refuses.
    """
    with timed(seconds, "template"), limits.explained(spec):
        parts = cccl.split(_compile(spec, {}, []))
        return _pack([parts.head, parts.kernels, parts.tail, *_iterator_code(spec)])


def operators(spec: Specialisation, seconds: Seconds) -> dict[str, list[bytes]]:
    """Compile the operators that are functions, in Python or C++.

    Returns
    -------
    dict of str to list of bytes
        LTO-IR by parameter, for `link` and `whole`. What several bring, such as one `RawOp` in two places,
        is there once: linked twice, its functions would be defined twice.

    Raises
    ------
    TypeError
        If numba cannot compile one for its types, or its result is not converted to the type needed.
    """
    with timed(seconds, "operator"):
        return _each_once({name: _operator_ltoir(name, op, spec.cc) for name, op in spec.functions.items()})


def _each_once(codes: Mapping[str, list[bytes]]) -> dict[str, list[bytes]]:
    seen: set[bytes] = set()
    kept: dict[str, list[bytes]] = {}
    for name, parts in codes.items():
        kept[name] = [part for part in dict.fromkeys(parts) if part not in seen]
        seen.update(parts)
    return kept


def link(
    spec: Specialisation, template: list[bytes], operators: Mapping[str, list[bytes]], seconds: Seconds
) -> tuple[bytes, int]:
    """Link operators with a template, in its parts.

    Returns
    -------
    bytes
        The serialised build, with a cubin, as `_cccl.load` takes it.
    int
        Bytes of the cubin.
    """
    with timed(seconds, "link"), limits.explained(spec):
        head, kernels, tail, *iterators = template
        cubin = _link(spec, [kernels, *iterators], operators)
        return cccl.Template(head, kernels, tail).with_cubin(cubin), len(cubin)


def whole(spec: Specialisation, operators: Mapping[str, list[bytes]], seconds: Seconds) -> tuple[bytes, int]:
    """Make a build in one piece, for specialisations with no template or none that can be used.

    Returns
    -------
    bytes, int
        As for `link`.
    """
    with timed(seconds, "compile"), limits.explained(spec):
        iterator_code = _iterator_code(spec)
        try:
            result = _compile(spec, operators, iterator_code)
        except toolchain.BuildError:
            if operators:  # CCCL does not say what is wrong with how they link; this does
                _link(spec, iterator_code, operators)
            raise
        return result.serialize(), len(result._get_cubin())


def _link(spec: Specialisation, parts: list[bytes], operators: Mapping[str, list[bytes]]) -> bytes:
    """Link cupar's own parts with operators, which errors call by their parameters."""
    functions = spec.functions
    whose = [f"{name} ({_called(functions[name])})" for name, codes in operators.items() for _ in codes]
    names = [*(f"part {number}" for number in range(len(parts))), *whose]
    return toolchain.link([*parts, *chain(*operators.values())], spec.cc, names)


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
    iterators = {}
    for argument in spec.arguments:
        if argument.is_pointer:
            # Some algorithms take a null pointer for 'no array', so an array that will be there has another.
            iterators[argument.name] = partial(cccl.pointer, argument.value, address=256)
        else:
            state = bytearray(argument.node.size)
            iterators[argument.name] = partial(cccl.iterator, argument.name, argument.value, state, carried)
            carried = []
    return workers.compile_native(spec.native, spec.native_arguments(iterators, operators), spec.cc)


def _iterator_code(spec: Specialisation) -> list[bytes]:
    source = nodes.source(spec.arguments)
    return [toolchain.compile_cpp(source, spec.cc)] if source else []


def _operator_ltoir(parameter: str, op: Operator, cc: int) -> list[bytes]:
    if op.cpp is not None:
        source = op.cpp.replace("SYMBOL", cccl.symbol(parameter))
        return [toolchain.compile_cpp(source, cc), *op.ltoirs]
    with _says_which(op, cc):
        return ltoir.compile_operator(op, cccl.symbol(parameter), cc)


def result_dtype(op: Operator, cc: int) -> np.dtype[Any]:
    """Return the dtype of what an operator that is a Python function returns, whatever its output is.

    Raises
    ------
    TypeError
        If numba cannot compile it for its inputs, or arrays cannot hold the result.
    """
    with _says_which(op, cc):
        return ltoir.result_dtype(op, cc)


_EXTENDED_CC = 75  # what others have registered with numba is used on all GPUs or on none
_unextended: dict[Operator, int] = {}  # operators that use none of it, and when that was so


def refuse_extended(op: Operator) -> None:
    """Refuse an operator whose code uses what others than numba have registered with it.

    Raises
    ------
    Unfingerprintable
        If it does. What else is wrong with it, its build will tell.
    """
    now, kept = extensions.epoch(), op.without_user()
    if _unextended.get(kept) == now:
        return
    try:
        ltoir.compile_operator(op, cccl.symbol("op"), _EXTENDED_CC)
    except Unfingerprintable as error:
        raise Unfingerprintable(f"op: {op.described}: {error}") from None
    except Exception:
        return
    if len(_unextended) > 1000:
        _unextended.clear()
    _unextended[kept] = now


@contextmanager
def _says_which(op: Operator, cc: int) -> Iterator[None]:
    """Say which operator it is that numba cannot compile, and why."""
    try:
        yield
    except (ResultError, toolchain.BuildError):
        raise
    except Unfingerprintable as error:
        raise Unfingerprintable(f"{op.parameter}: {op.described}: {error}") from None
    except Exception as error:  # numba raises whatever its passes run into
        if isinstance(error, ImportError) and not diagnosis.is_of_the_operator(error):
            raise  # numba itself is missing, or something that it needs
        types = ", ".join(map(structs.text, op.inputs))
        subject = f"{op.parameter}: numba.cuda cannot compile {op.described} for ({types}) on sm_{cc}"
        raise TypeError(diagnosis.message(subject, error)) from diagnosis.cause(error)


def _pack(parts: list[bytes]) -> bytes:
    lengths = struct.pack(f"<I{len(parts)}Q", len(parts), *map(len, parts))
    return lengths + b"".join(parts)


def unpack(packed: bytes) -> list[bytes]:
    """Return the parts of a template as `link` takes them; raise ValueError if it is none."""
    (count,) = struct.unpack_from("<I", packed)
    lengths = struct.unpack_from(f"<{count}Q", packed, 4)
    parts, at = [], 4 + 8 * count
    for length in lengths:
        parts.append(packed[at : at + length])
        at += length
    if count < 3 or at != len(packed):
        raise ValueError(f"no template: {count} parts, {at} bytes of {len(packed)}")
    return parts
