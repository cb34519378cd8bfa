"""Direct calls of the functions of `cupar.arrays`: without the dispatcher, where it has nothing to do.

That is so for plain tensors without gradients, in eager code, of arguments that an operator's schema takes as
they are. The dispatcher takes 6 µs for a call, and what it hands on takes 5 µs more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import arrays
from .._base.generated import Unquoted, define
from .operators import is_plain, numpy_dtype, on_device
from .schemas import FUNCTIONS, OperatorRow, schema_of, signature
from .user_functions import digest_of


class _NoCall:
    """The result of a direct call that was not made."""


NO_CALL = _NoCall()

_PLAIN = "_is_plain({v}) and not {v}.requires_grad"
# Conditions for the types of the schema: an argument ``{v}`` is handed on as it is.
_CONDITIONS = {
    "Tensor": _PLAIN,
    "Tensor?": f"({{v}} is None or {_PLAIN})",
    "bool": "type({v}) is bool",
    "int": "type({v}) is int",
    "SymInt": "type({v}) is int",
    "SymInt?": "({v} is None or type({v}) is int)",
    "str": "type({v}) is str",
    "Scalar?": "({v} is None or type({v}) is int or type({v}) is float)",
    "ScalarType?": "({v} is None or type({v}) is _Dtype)",
    "float[]": "(type({v}) is float or _is_floats({v}))",
    "float[]?": "({v} is None or _is_floats({v}))",
}
_DIMENSION = "type({v}) is int and -x.ndim <= {v} < x.ndim"

_DIRECT = """
def direct({parameters}):
    if not ({conditions}):
        return _no_call
    {checks}
    return _called({arguments})
"""


def _is_floats(value: Any) -> bool:
    return type(value) in (list, tuple) and {*map(type, value)} == {float}


def direct_of(name: str, row: OperatorRow) -> Callable[..., Any]:
    """Return the function that makes direct calls, as users call it; it returns NO_CALL if it makes none.

    Its errors are TypeErrors and ValueErrors, which the operator raises, too.
    """
    how, shown = schema_of(name, row), signature(name, row)
    names: dict[str, Any] = {
        "_is_plain": is_plain,
        "_is_floats": _is_floats,
        "_Dtype": torch.dtype,
        "_no_call": NO_CALL,
        "_numpy_dtype": numpy_dtype,
        "_digest_of": digest_of,
        "_called": on_device(getattr(arrays, name)),
    }
    conditions = []
    for each, kind in zip(how.names, how.kinds, strict=True):
        if each == "axis":
            condition = _DIMENSION if kind == "int" else f"({{v}} is None or {_DIMENSION})"
        else:
            condition = _CONDITIONS[kind]
        conditions.append(condition.replace("{v}", "dim" if each == "axis" else each))
    checks, arguments, parameters = [], [], []
    for one in shown.parameters.values():
        each, parameter = one.name, one
        if one.default is not one.empty:
            names[f"_default_{each}"] = one.default
            parameter = one.replace(default=Unquoted(f"_default_{each}"))
        parameters.append(parameter)
        if each in FUNCTIONS:
            optional = f"if {each} is not None: " if one.default is None else ""
            checks.append(f"{optional}_digest_of({each}, {each!r})")
        value = f'{each} and _numpy_dtype("dtype", {each})' if each == "dtype" else each
        place = "axis" if each == "dim" else each
        arguments.append(value if place in how.positional else f"{place}={value}")
    made: Callable[..., Any] = define(
        f"direct-{name}",
        "direct",
        _DIRECT,
        names,
        parameters=str(shown.replace(parameters=parameters))[1:-1],
        conditions=" and ".join(conditions),
        checks=checks,
        arguments=", ".join(arguments),
    )
    return made
