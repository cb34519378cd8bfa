"""The stream of calls that are given none: generated code asks for it by the classes of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .._arguments.order import signature
from .._base.generated import define
from .._device import streams
from .._ir import nodes
from .._ir.operator import CapturedState
from .._ir.specialisation import Specialisation

NAMES = {"_known_asks": streams.known, "_ask_of": streams.ask_of}  # globals of what `handle_of` returns

_CURRENT = """
def current(arguments, temp_storage=None):
    {parameters}, = arguments
    try:
        if temp_storage is None or type(temp_storage) is type({first}):
            return {handle}
    except AttributeError:  # of another structure than the build's: reading the arguments raises the error
        pass
    return _ask_of(*arguments, temp_storage)()
"""


def handle_of(arrays: Sequence[str], every: str) -> str:
    """Return the expression of the current stream's handle: a look into a table for arrays of one class.

    `arrays` are their expressions, and `every` the arguments that have them, for other cases.
    """
    first, *more = arrays
    alike = "".join(f" and type({each}) is _class" for each in more)
    return f"_ask() if (_ask := _known_asks.get(_class := type({first}))){alike} else _ask_of({every})()"


def call_stream(spec: Specialisation, states: Sequence[Any]) -> Callable[..., int]:
    """Return the function that returns the current stream's handle for the arguments of a call.

    Temporary storage may be given behind them.
    """
    held = tuple([each for each in states if isinstance(each, CapturedState)])
    arrays: list[str] = []
    for each in spec.arguments:
        if each.name not in spec.algorithm_class._uses:
            continue
        if any(op.state_size for op in each.operators.values()):  # which may be captured arrays
            arrays = []
            break
        slots = [k for k, slot in enumerate(each.given.layout) if slot.kind == "items"]
        is_array = type(each.given) is nodes.Pointer
        arrays += [each.name] if is_array else [f"{each.name}.leaves[{k}].given" for k in slots]
    if held or not arrays:
        return lambda arguments, temp_storage=None: streams.ask_of(*arguments, temp_storage, *held)()
    if spec.option("init") == "device":
        arrays.append("h_init")
    return _written(", ".join(signature(spec.algorithm_class.run).parameters), tuple(arrays))


@cache
def _written(parameters: str, arrays: tuple[str, ...]) -> Callable[..., int]:
    handle, names = handle_of(arrays, "*arguments, temp_storage"), {**NAMES}
    texts = {"parameters": parameters, "first": arrays[0], "handle": handle}
    return define("stream of a call", "current", _CURRENT, names, **texts)  # type: ignore[no-any-return]
