"""Where the values of a call are in its kernels' parameters, found out by capturing it with probe values.

Addresses, the initial value, states of iterators and operators differ from call to call. The call is captured
twice, with probe values: what differs between the two must be one of the values, an address with a fixed
addend, or padding. To check, it is captured with its own values as well, which must give what is foretold. A
call for which any of this does not hold is not replayed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from ctypes import byref, c_char, c_size_t, c_uint64, c_void_p
from functools import lru_cache
from typing import Any, NamedTuple

from .._device import driver, stream_capture

Values = tuple[Any, ...]  # each an address, as int, or memory that is copied, as bytes

# What host code decides by an address, it decides by its alignment: a replayed call's are aligned alike.
_ALIGNMENTS = 512 - 1
_FAR = 1 << 36  # bytes, which no address is from the one that it is worked out from

# Functions that are written out for a call have its objects as globals, so that calls alike share their code.
compiled = lru_cache(lambda source: compile(source, "<cupar call>", "exec"))


class NotReplayableError(Exception):
    """A call does something that a graph of it, with other values, might not do."""


class Relocation(NamedTuple):
    """Where one of the values is in a kernel's parameters."""

    offset: int  # of its first byte
    source: int  # which value it is
    addend: int = 0  # what is added to it, if it is an address
    length: int | None = None  # how many bytes it has, if it is not one


def probe_values(values: Values, which: int) -> Values:
    """Return other values of the same sizes, and addresses of the same alignments: the set 0 or 1."""
    # Far apart, no two as far from each other as two others, in other orders; and to align them to more bytes
    # than they are aligned to would change one set in another way than the other.
    begin, step, within = ((16, 1, 0x2AA << 9), (2000, -3, 0x555 << 9))[which]
    return tuple(
        _FAR * (step * i + begin) + within + (value & _ALIGNMENTS)
        if isinstance(value, int)
        else bytes((101 * (i + 1) + 59 * k) & 255 ^ 255 * which for k in range(len(value)))
        for i, value in enumerate(values)
    )


def relocations(
    one: bytes, two: bytes, firsts: Values, seconds: Values, unused: Collection[int] = ()
) -> list[Relocation]:
    """Find the values in a kernel's parameters: `one` with the first probe values, `two` with the second.

    Bytes that are `unused` are read by nobody, unless they are a value. If parameters depend on the values in
    any other way, that is a NotReplayableError.
    """
    found: list[Relocation] = []
    unexplained: set[int] = set()
    pairs = list(zip(firsts, seconds, strict=True))
    for word, (a, b) in enumerate(zip(memoryview(one).cast("Q"), memoryview(two).cast("Q"), strict=True)):
        if a != b:
            offset = 8 * word
            for source, (first, second) in enumerate(pairs):
                if isinstance(first, int) and a - first == b - second and abs(a - first) < _FAR // 2:
                    found.append(Relocation(offset, source, a - first))
                    break
            else:
                unexplained.update(i for i in range(offset, offset + 8) if one[i] != two[i])
    copied = [(i, pair) for i, pair in enumerate(pairs) if isinstance(pair[0], bytes) and pair[0]]
    # The longest first, for one may have a shorter one within it.
    for source, (first, second) in sorted(copied, key=lambda each: -len(each[1][0])):
        offset = one.find(first)
        while offset >= 0:
            taken = range(offset, offset + len(first))
            if two[offset : taken.stop] == second and unexplained.issuperset(taken):
                found.append(Relocation(offset, source, length=len(first)))
                unexplained.difference_update(taken)
            offset = one.find(first, offset + 1)
    unexplained.difference_update(unused)
    if unexplained:
        where = ", ".join(map(str, sorted(unexplained)))
        raise NotReplayableError(
            f"bytes {where} of a kernel's parameters, {in_words(one)} and {in_words(two)}"
        )
    return found


def in_words(memory: bytes) -> str:
    """Return memory as text, 8 bytes in a word."""
    return memory.hex(" ", -8)


def patcher(
    kernels: Sequence[Any], values: Values, set_parameters: Callable[[Any, Any], int]
) -> Callable[[Values, Values], bool]:
    """Return what replaces the values in the parameters of kernels that were captured with such values.

    It takes the values that there are (None for what is not known) and other ones; it returns False, and does
    nothing, if these are aligned in another way or missing. To give a kernel the parameters that are in its
    memory it calls `set_parameters`, with its node and details, which returns the driver's status.

    It is written out for the kernels, without a loop: a call with other arrays takes that much longer.
    """
    names: dict[str, Any] = {
        "_set": set_parameters,
        "_check": driver.check,
        "_name": "cuGraphExecKernelNodeSetParams",
    }
    lines = [f"if len(new) != {len(values)}: return False"]
    lines += [f"({''.join(f'{side}_{i}, ' for i in range(len(values)))}) = {side}" for side in ("old", "new")]
    for i, value in enumerate(values):
        if isinstance(value, int):
            names[f"_alignment_{i}"] = value & _ALIGNMENTS
            lines.append(f"if not new_{i} or new_{i} & {_ALIGNMENTS} != _alignment_{i}: return False")
    for k, kernel in enumerate(kernels):
        sources = sorted({each.source for each in kernel.relocations})
        if not sources:
            continue
        lines.append(f"if {' or '.join(f'old_{each} != new_{each}' for each in sources)}:")
        for i, (offset, source, addend, length) in enumerate(kernel.relocations):
            target = f"_target_{k}_{i}"
            if length is None:
                names[target] = c_uint64.from_buffer(kernel.memory, offset)
                names[f"_addend_{k}_{i}"] = addend
                lines.append(f"    {target}.value = new_{source} + _addend_{k}_{i}")
            else:
                names[target] = memoryview(kernel.memory).cast("B")[offset : offset + length]
                lines.append(f"    {target}[:] = new_{source}")
        names.update({f"_node_{k}": kernel.node, f"_details_{k}": kernel.details})
        lines += [f"    if status := _set(_node_{k}, _details_{k}):", "        _check(status, _name)"]
    exec(compiled("\n    ".join(["def set_values(old, new):", *lines, "return True"])), names)
    function: Callable[[Values, Values], bool] = names.pop("set_values")  # or it would be in a cycle
    return function


# --- Kernels ---------------------------------------------------------------------------------------------


_NO_SUCH_PARAMETER = 1  # CUDA_ERROR_INVALID_VALUE


class Kernel:
    """A kernel of a graph: its node, what it is launched with, and its parameters in memory of their own.

    `layouts` maps functions to where their parameters are; this kernel's are added.
    """

    def __init__(self, node: int, layouts: dict[int, list[tuple[int, int]]]) -> None:
        self.node = c_void_p(node)
        launch = stream_capture.KernelNode()
        self.details = byref(launch)
        self.relocations: list[Relocation] = []
        driver.call("cuGraphKernelNodeGetParams_v2", self.node, self.details)
        given, function = launch.parameters, launch.function or launch.kernel
        if not given:
            raise NotReplayableError("a kernel whose parameters are not given one by one")
        if function not in layouts:
            layouts[function] = _layout(function)
        layout = layouts[function]
        end = max((at + length for at, length in layout), default=0)
        self.memory = (c_char * (-(-end // 8) * 8))()
        self.single_bytes = [at for at, length in layout if length == 1]
        start = ctypes.addressof(self.memory)
        for i, (at, length) in enumerate(layout):
            ctypes.memmove(start + at, given[i], length)
        # All that it is launched with but the parameters' values.
        self.shape = (function, *launch.grid, *launch.block, launch.shared_memory)
        # ctypes keeps alive what is assigned to a pointer's place, but not what the pointers in it point to.
        launch.parameters = (c_void_p * len(layout))(*[start + at for at, _ in layout])


def _layout(function: int) -> list[tuple[int, int]]:
    """Return where each of a kernel's parameters begins, and how long it is."""
    ask, offset, size = driver.library().cuFuncGetParamInfo, c_size_t(), c_size_t()
    found: list[tuple[int, int]] = []
    while (status := ask(c_void_p(function), c_size_t(len(found)), byref(offset), byref(size))) == 0:
        found.append((offset.value, size.value))
    if status != _NO_SUCH_PARAMETER or not found:
        raise NotReplayableError("a kernel whose parameters the driver does not describe")
    return found


def chain_of(graph: c_void_p, layouts: dict[int, list[tuple[int, int]]]) -> list[Kernel]:
    """Return the kernels of a graph, first to last; it must be a chain of kernels and nothing else."""
    count, nodes = c_size_t(), stream_capture.nodes(graph)
    if not all(stream_capture.is_kernel(c_void_p(node)) for node in nodes):
        raise NotReplayableError("something that is not a kernel")
    driver.call("cuGraphGetEdges_v2", graph, None, None, None, byref(count))
    pointers, ports = c_void_p * count.value, c_uint64 * count.value
    sources, targets, data = pointers(), pointers(), ports()
    if sources:
        driver.call("cuGraphGetEdges_v2", graph, sources, targets, data, byref(count))
    after = dict(zip(sources, targets, strict=True))
    chain = list(set(nodes).difference(after.values()))[:1]
    while chain and chain[-1] in after:
        chain.append(after[chain[-1]])
    if not chain or len(chain) != len(nodes) or len(after) != len(sources):
        raise NotReplayableError(f"{len(nodes)} nodes and {len(sources)} edges")
    return [Kernel(node, layouts) for node in chain]


def find_values(
    again: Kernel, one: Kernel, two: Kernel, own: Kernel, firsts: Values, seconds: Values
) -> list[int]:
    """Find the values in a kernel's parameters, of `one`, and return which of the bytes are of any meaning.

    Two kinds of byte are not: nobody sets them, so they are what was in memory before, and nobody reads them.
    An object without members, as most operators are, is one byte; all else that CUB hands to kernels as one
    byte are flags, which are 0 or 1, and values of the call. And padding behind a member of 4 bytes: what
    differs there, in the upper half of a word whose lower half does not, for the same call captured again.
    """
    first, second, third, fourth = (kernel.memory.raw for kernel in (one, two, own, again))
    unused = {at for at in one.single_bytes if max(first[at], second[at], third[at]) > 1}
    for word in range(0, len(third), 8):
        if third[word : word + 4] == fourth[word : word + 4]:
            unused.update(i for i in range(word + 4, word + 8) if third[i] != fourth[i])
    one.relocations = relocations(first, second, firsts, seconds, unused)
    for offset, _, _, length in one.relocations:
        unused.difference_update(range(offset, offset + (length or 8)))
    return [i for i in range(len(third)) if i not in unused]
