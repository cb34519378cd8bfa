"""The Python source of what stands between CCCL's call and the user's operator, for numba to compile.

It is in the key of each build, so this imports nothing of the compilers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._ir.operator import Operator


def written(op: Operator) -> tuple[str, list[np.dtype[Any]]]:
    """Return the Python source of the function that CCCL calls: it loads, calls ``call``, and stores.

    Numbers come by pointers. Structs come as numba's records, which are pointers, too, and are to ``call``
    named tuples of the classes ``struct_<n>``, whose dtypes are returned beside the source. Captured arrays
    are made of the state by ``array_<n>``, and numbers are read from it by ``number_<n>``.
    """
    structs: list[np.dtype[Any]] = []
    first = [f"array_{i}(state)" for i in range(len(op.captures))]
    first += [f"number_{i}(state)" for i in range(len(op.numbers))]
    values = [_loaded(f"in{i}", dtype, structs) for i, dtype in enumerate(op.inputs)]
    call = f"call({', '.join([*first, *values])})"
    parameters = ["state"] * bool(first) + [f"in{i}" for i in range(len(values))] + ["out"]
    if op.output.names is None:
        # numba keeps a bool as an LLVM i1 but points to it as an i8, and cannot store one: go by bytes.
        body = [f"out[0] = bool({call})" if op.output.kind == "b" else f"out[0] = {call}"]
    else:
        body = [f"result = {call}", *_stores("out", "result", op.output)]
    return "\n    ".join([f"def operator({', '.join(parameters)}):", *body]) + "\n", structs


def _loaded(place: str, dtype: np.dtype[Any], structs: list[np.dtype[Any]]) -> str:
    if dtype.names is None:
        return f"bool({place}[0])" if dtype.kind == "b" else f"{place}[0]"
    return _struct(place, dtype, structs)


def _struct(record: str, dtype: np.dtype[Any], structs: list[np.dtype[Any]]) -> str:
    """Return the expression of a struct's value, and add the classes that it uses to `structs`."""
    if dtype.names is None:
        return record
    fields = [_struct(f"{record}['f{i}']", dtype[i], structs) for i in range(len(dtype.names))]
    structs.append(dtype)
    return f"struct_{len(structs) - 1}({', '.join(fields)})"


def _stores(record: str, value: str, dtype: np.dtype[Any]) -> Iterator[str]:
    for i in range(len(dtype.names or ())):
        place, part, kind = f"{record}['f{i}']", f"{value}[{i}]", dtype[i]
        if kind.names is not None:
            yield from _stores(place, part, kind)
        else:
            yield f"{place} = {f'bool({part})' if kind.kind == 'b' else part}"
