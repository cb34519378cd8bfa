"""Arguments of users' kernels, read by generated lines: arrays of CuPy, PyTorch and Numba, and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import numpy as np

from .._device import arrays, driver, peers
from .._device.readers import CUPY, NUMBA, TORCH, ArraySyntax
from .._ir.types import Array, Scalar, Tuple, Type, varying
from .._launch.marshal import condition

# Classes of numbers that are read in line; for other dtypes, NumPy's alone.
_NUMBERS = {
    np.dtype(np.int64): (int, np.int64),
    np.dtype(np.float64): (float, np.float64),
    np.dtype(np.complex128): (complex, np.complex128),
    np.dtype(bool): (bool, np.bool_),
}


def is_plain_array(kind: Type) -> TypeGuard[Array]:
    """Whether arrays of a type can be read by attributes of their libraries."""
    return isinstance(kind, Array) and kind.mutable and kind.item.dtype.names is None


def targets(kind: Type, name: str) -> str:
    """Return the list of variables for the items that `typeof.values` returns of a value, in their order.

    They are ``v`` and the names of the type's slots: see `types.slots`.
    """
    return f"[{', '.join(f'v{each}' for each in varying(kind, name))}]"


class ArgumentReader:
    """Writes lines that read arguments of known types into variables, one for each slot that varies.

    Parameters
    ----------
    names : dict
        The generated function's globals, to which those of the lines are added.
    exact : bool
        Whether an array of the type's layout alone is taken; otherwise, for layout "A", any strides are.
    hand_on : str
        The statement that is run for an argument of another type.
    """

    def __init__(self, names: dict[str, Any], exact: bool, hand_on: str) -> None:
        self._names, self._exact, self._hand_on = names, exact, hand_on
        self.may_be_lent = False  # whether lines add to a variable `lent`
        names.update(_cupy=arrays.CUPY, _torch=arrays.TORCH, _numba=arrays.NUMBA, _seen=arrays.seen)
        names.update(_check_memory=peers.check_memory)

    def read(
        self, x: str, kind: Type, name: str, label: str, hands_on_tensors: bool = False
    ) -> Iterator[str]:
        """Yield the lines that read the variable `x` of a type.

        The variables of its slots are ``v``, `name` and the slot's own; errors call the argument `label`.
        """
        names, hand_on = self._names, self._hand_on
        if is_plain_array(kind):
            yield from self._array(x, kind, name, label, hands_on_tensors)
        elif isinstance(kind, Scalar) and kind.item.dtype.kind in "biufc":
            dtype = kind.item.dtype
            names[f"_c{name}"] = frozenset(_NUMBERS.get(dtype, (dtype.type,)))
            yield f"if type({x}) not in _c{name}: {hand_on}"
            parts = (("re", ".real"), ("im", ".imag")) if dtype.kind == "c" else (("v", ""),)
            for part, attribute in parts:
                yield f"v{name}{part} = {x}{attribute}"
        elif isinstance(kind, Tuple) and not kind.fields:
            yield f"if type({x}) is not tuple or len({x}) != {len(kind.items)}: {hand_on}"
            items = [f"_i{name}_{i}" for i in range(len(kind.items))]
            if items:
                yield f"[{', '.join(items)}] = {x}"
            for i, (item, each) in enumerate(zip(items, kind.items, strict=True)):
                yield from self.read(item, each, f"{name}_{i}", f"{label}[{i}]")
        else:
            yield from self._slowly(x, kind, name, label)

    def _slowly(self, x: str, kind: Type, name: str, label: str) -> Iterator[str]:
        self._names[f"_k{name}"] = kind
        self.may_be_lent = True
        yield "lent = lent or []"
        if isinstance(kind, Array):
            yield f"if (read := _array_values({label!r}, _k{name}, {x}, lent)) is None: {self._hand_on}"
            yield f"{targets(kind, name)} = read"
            return
        yield f"if _typeof({label!r}, {x}) != _k{name}: {self._hand_on}"
        yield f"{targets(kind, name)} = _values({label!r}, _k{name}, {x}, lent)"

    def tensors(self, arguments: Sequence[tuple[str, Any, str, str]]) -> Iterator[str]:
        """Yield the lines for arguments that are tensors, most often: they are checked in one call."""
        planes = "".join(f" and {x}.is_contiguous()" for x, kind, *_ in arguments if kind.ndim > 1)
        first = arguments[0][0]  # so that arrays of other libraries need not wait for a call
        yield f"if type({first}) is _tensor and _guard({', '.join(x for x, *_ in arguments)}){planes}:"
        masks: dict[int, list[str]] = {}
        for x, kind, name, label in arguments:
            yield f"    v{name}p = {x}.data_ptr()"
            masks.setdefault(kind.item.dtype.alignment - 1, []).append(f"v{name}p")
            yield from self._extents(TORCH, x, kind, name)
            if driver.has_several_devices:
                yield f"    _check_memory({label!r}, v{name}p)"
        wrong = " or ".join(f"({' | '.join(each)}) & {mask}" for mask, each in masks.items() if mask)
        if wrong:
            yield f"    if {wrong}: {self._hand_on}"
        yield "else:"
        for argument in arguments:
            yield from (f"    {line}" for line in self.read(*argument))

    def _array(self, x: str, kind: Array, name: str, label: str, hands_on_tensors: bool) -> Iterator[str]:
        """Yield the lines for an array, without those of libraries that were not seen yet."""
        dtype, any_layout = kind.item.dtype, kind.layout == "A" and not self._exact
        self._names[f"_d{name}"] = dtype
        known = [CUPY] * bool(arrays.CUPY)
        if (own := arrays.torch_dtype(dtype)) and dtype.kind != "c" and (kind.layout == "C" or any_layout):
            self._names[f"_t{name}"] = own
            known.append(TORCH)
        known += [NUMBA] * bool(arrays.NUMBA)
        for i, library in enumerate(known):
            word = "el" if i else ""
            if library is TORCH and hands_on_tensors:
                yield f"{word}if type({x}) in _torch: {self._hand_on}"
                continue
            c, f = library.c_order, library.f_order
            layout = {"C": c, "F": f"{f} and not {c}", "A": f"not ({c} or {f})"}[kind.layout]
            is_dtype = f"{{v}}.dtype is {'_t' if library is TORCH else '_d'}{name}"
            checks = [is_dtype, f"{{v}}.ndim == {kind.ndim}", *[layout] * (not any_layout)]
            yield f"{word}if {condition(library, x, dtype, f'v{name}p', *checks)}:"
            yield from self._extents(library, x, kind, name)
        yield "else:" if known else "if True:"
        yield from (f"    {line}" for line in self._slowly(x, kind, name, label))
        # The first array of a library makes its arrays readable in line.
        yield f"    if _seen() != {arrays.seen()}: {self._hand_on}"
        if driver.has_several_devices:
            yield f"_check_memory({label!r}, v{name}p)"

    def _extents(self, library: ArraySyntax, x: str, kind: Array, name: str) -> Iterator[str]:
        """Yield the lines for the size, shape and strides of an array."""
        if not kind.ndim:
            yield "    pass"
            return
        yield f"    v{name}n = {library.size.replace('{v}', x)}"
        if kind.ndim > 1:
            yield f"    {', '.join(f'v{name}s{i}' for i in range(kind.ndim))} = {x}.shape"
        if kind.layout == "A":
            each = [f"v{name}t{i}" for i in range(kind.ndim)]
            yield f"    {', '.join(each)}, = {library.strides.replace('{v}', x)}"
            if library is TORCH and kind.item.dtype.itemsize != 1:  # whose strides are in items
                yield "    " + "; ".join(f"{one} *= {kind.item.dtype.itemsize}" for one in each)
            return
        axes = range(kind.ndim)[::-1] if kind.layout == "C" else range(kind.ndim)
        before = str(kind.item.dtype.itemsize)
        for last, axis in pairwise(axes):
            yield f"    v{name}t{axis} = {before} * v{name}s{last}"
            before = f"v{name}t{axis}"
