"""Lines of a launch's function that read its arguments, written for their types.

Arrays of CuPy, PyTorch and Numba and plain numbers are read in line, the rest by functions. What is not of
these types is handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from .. import structs
from .._device import arrays, driver
from .._ir.types import Array, Scalar, Tuple, Type, slots

_IN_LINE = {
    np.dtype(np.int64): (int, np.int64),
    np.dtype(np.float64): (float, np.float64),
    np.dtype(np.complex128): (complex, np.complex128),
    np.dtype(bool): (bool, np.bool_),
}


def is_plain_array(kind: Type) -> TypeGuard[Array]:
    """Whether arrays of a type can be read by attributes of their libraries."""
    return isinstance(kind, Array) and kind.mutable and kind.item.dtype.names is None


def targets(kind: Type, name: str) -> str:
    """Return the variables for what varies of a value, in the order of what `values` returns."""
    found = dict.fromkeys(slot.name for slot in slots(kind, name) if hasattr(slot, "name"))
    return f"[{', '.join(f'v{each}' for each in found)}]"


class Writer:
    """Writes lines that read an argument of one type into variables.

    If `exact`, an array must have the very layout; else strides are read whatever they are.
    """

    def __init__(self, names: dict[str, Any], exact: bool, hand_on: str) -> None:
        self._names, self._exact, self._hand_on = names, exact, hand_on
        self.may_be_lent = False  # whether lines were written that add to a variable `lent`

    def read(
        self, value: str, kind: Type, name: str, label: str, hands_on_tensors: bool = False
    ) -> Iterator[str]:
        """Yield the lines for a variable `value`; `label` is what it is called in errors."""
        names, hand_on = self._names, self._hand_on
        if is_plain_array(kind):
            yield from self._array(value, kind, name, label, hands_on_tensors)
        elif isinstance(kind, Scalar) and kind.item.dtype.kind in "biufc":
            dtype = kind.item.dtype
            names[f"_c{name}"] = frozenset(_IN_LINE.get(dtype, (dtype.type,)))
            yield f"if type({value}) not in _c{name}: {hand_on}"
            parts = (("re", ".real"), ("im", ".imag")) if dtype.kind == "c" else (("v", ""),)
            for part, attribute in parts:
                yield f"v{name}{part} = {value}{attribute}"
        elif isinstance(kind, Tuple) and not kind.fields:
            yield f"if type({value}) is not tuple or len({value}) != {len(kind.items)}: {hand_on}"
            items = [f"_i{name}_{i}" for i in range(len(kind.items))]
            if items:
                yield f"[{', '.join(items)}] = {value}"
            for i, (item, each) in enumerate(zip(items, kind.items, strict=True)):
                yield from self.read(item, each, f"{name}_{i}", f"{label}[{i}]")
        else:
            yield from self._slowly(value, kind, name, label)

    def _slowly(self, value: str, kind: Type, name: str, label: str) -> Iterator[str]:
        self._names[f"_k{name}"] = kind
        self.may_be_lent = True
        yield "lent = lent or []"
        if isinstance(kind, Array):
            yield f"if (read := _array_values({label!r}, _k{name}, {value}, lent)) is None: {self._hand_on}"
            yield f"{targets(kind, name)} = read"
            return
        yield f"if _typeof({label!r}, {value}) != _k{name}: {self._hand_on}"
        yield f"{targets(kind, name)} = _values({label!r}, _k{name}, {value}, lent)"

    def tensors(self, arguments: Sequence[tuple[str, Any, str, str]]) -> Iterator[str]:
        """Yield the lines that read arguments which are tensors, most often: they are checked in one call."""
        planes = "".join(f" and {x}.is_contiguous()" for x, kind, *_ in arguments if kind.ndim > 1)
        first = arguments[0][0]  # so that arrays of other libraries need not wait for a call
        yield f"if type({first}) is _tensor and _guard({', '.join(x for x, *_ in arguments)}){planes}:"
        masks: dict[int, list[str]] = {}
        for x, kind, name, label in arguments:
            yield f"    v{name}p = {x}.data_ptr()"
            masks.setdefault(kind.item.dtype.alignment - 1, []).append(f"v{name}p")
            yield from self._extents(kind, name, f"{x}.numel()", f"{x}.shape", "")
            if driver.has_several_devices:
                yield f"    _check_memory({label!r}, v{name}p)"
        wrong = " or ".join(f"({' | '.join(each)}) & {mask}" for mask, each in masks.items() if mask)
        if wrong:
            yield f"    if {wrong}: {self._hand_on}"
        yield "else:"
        for argument in arguments:
            yield from (f"    {line}" for line in self.read(*argument))

    def _array(
        self, x: str, kind: Array, name: str, label: str, hands_on_tensors: bool = False
    ) -> Iterator[str]:
        """Yield the lines for an array; those of libraries of which none was seen yet are left out."""
        dtype, n = kind.item.dtype, kind.ndim
        self._names[f"_d{name}"] = dtype
        any_layout = kind.layout == "A" and not self._exact

        def condition(library: str, dtype: str, c: str, f: str, more: str, address: str) -> str:
            layout = {"C": f"and {c}", "F": f"and {f} and not {c}", "A": f"and not ({c} or {f})"}[kind.layout]
            return (
                f"if type({x}) in {library} and {x}.dtype is {dtype} and {x}.ndim == {n} "
                f"{'' if any_layout else layout}{more} "
                f"and not (v{name}p := {x}.{address}) & {kind.item.dtype.alignment - 1}:"
            )

        branches: list[tuple[str, Iterator[str]]] = []
        extents = partial(self._extents, kind, name)
        if arrays.CUPY:
            c, f = f"{x}._c_contiguous", f"{x}._f_contiguous"
            known = condition("_cupy", f"_d{name}", c, f, "", "data.ptr")
            branches.append((known, extents(f"{x}.size", f"{x}.shape", f"{x}.strides")))
        if (own := arrays.torch_dtype(dtype)) and dtype.kind != "c" and (kind.layout == "C" or any_layout):
            self._names[f"_t{name}"] = own
            more = f" and {x}.is_cuda" + (f" and not {x}.is_neg()" if structs.kind_of(dtype) == "f" else "")
            known = condition("_torch", f"_t{name}", f"{x}.is_contiguous()", "", more, "data_ptr()")
            read = extents(f"{x}.numel()", f"{x}.shape", f"{x}.stride()", dtype.itemsize)
            if hands_on_tensors:
                known, read = f"if type({x}) in _torch:", iter([f"    {self._hand_on}"])
            branches.append((known, read))
        if arrays.NUMBA:
            c, f = (f'{x}._dummy.flags["{each}_CONTIGUOUS"]' for each in "CF")
            known = condition("_numba", f"_d{name}", c, f, "", "gpu_data.device_ctypes_pointer.value")
            branches.append((known, extents(f"{x}.size", f"{x}.shape", f"{x}.strides")))
        for i, (known, lines) in enumerate(branches):
            yield f"{'el' if i else ''}{known}"
            yield from lines
        yield "else:" if branches else "if True:"
        yield from (f"    {line}" for line in self._slowly(x, kind, name, label))
        # It may have been the first of a library that can be read in line.
        yield f"    if _seen() != {arrays.seen()}: {self._hand_on}"
        if driver.has_several_devices:
            yield f"_check_memory({label!r}, v{name}p)"

    def _extents(
        self, kind: Array, name: str, size: str, shape: str, strides: str, times: int = 1
    ) -> Iterator[str]:
        """Yield the lines for the size, shape and strides of an array; a stride has so many bytes."""
        if not kind.ndim:
            yield "    pass"
            return
        yield f"    v{name}n = {size}"
        if kind.ndim > 1:
            yield f"    {', '.join(f'v{name}s{i}' for i in range(kind.ndim))} = {shape}"
        if kind.layout == "A":
            each = [f"v{name}t{i}" for i in range(kind.ndim)]
            yield f"    {', '.join(each)}, = {strides}"
            if times != 1:
                yield "    " + "; ".join(f"{one} *= {times}" for one in each)
            return
        axes = range(kind.ndim)[::-1] if kind.layout == "C" else range(kind.ndim)
        before = str(kind.item.dtype.itemsize)
        for last, axis in pairwise(axes):
            yield f"    v{name}t{axis} = {before} * v{name}s{last}"
            before = f"v{name}t{axis}"
