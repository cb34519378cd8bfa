"""Eager calls of the functions of `cupar.arrays`: without the dispatcher, where it has nothing to do.

That is so for plain tensors, of arguments that an operator's schema takes as they are. The dispatcher takes
6 µs for a call, and what it hands on takes 5 µs more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from .. import arrays
from .._base.generated import Unquoted, define
from .registration import direct, is_plain, numpy_dtype, on_device
from .schemas import FUNCTIONS, TENSORS, OperatorRow, functions_of, schema_of, signature
from .user_functions import digest_of, operator_of

NO_CALL = object()  # the result of an eager call that was not made

_PLAIN = "_is_plain({v})"
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

_EAGER = """
def eager({parameters}):
    if not ({conditions}):
        return _no_call
    if {requires_grad}:
        return {recorded}
    {checks}
    return _called({arguments})
"""


def _is_floats(value: Any) -> bool:
    return type(value) in (list, tuple) and {*map(type, value)} == {float}


def _condition(name: str, kind: str) -> str:
    if name == "axis":
        found = _DIMENSION if kind == "int" else f"({{v}} is None or {_DIMENSION})"
        return found.replace("{v}", "dim")
    found = _CONDITIONS[kind]
    if name == "repeats":
        found = f"(type({{v}}) is int or {found})"
    return found.replace("{v}", name)


def _recorded(name: str, cls: Any, functions: tuple[Any, ...], tensors: tuple[Any, ...], *given: Any) -> Any:
    """Call an operator of tensors of which one requires a gradient."""
    found = direct(operator_of(name, *functions), *tensors)(*given)
    return found if cls is None else cls(*found)


def eager_of(name: str, row: OperatorRow) -> Callable[..., Any]:
    """Return the function that makes eager calls, as users call it; it returns NO_CALL if it makes none.

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
        "_recorded": partial(_recorded, name, row.cls),
    }
    checks, arguments, parameters = [], [], []
    for each, parameter in shown.parameters.items():
        if parameter.default is not parameter.empty:
            names[f"_default_{each}"] = parameter.default
            parameter = parameter.replace(default=Unquoted(f"_default_{each}"))
        parameters.append(parameter.replace(annotation=parameter.empty))
        if each in FUNCTIONS:
            optional = f"if {each} is not None: " if shown.parameters[each].default is None else ""
            checks.append(f"{optional}_digest_of({each}, {each!r})")
        value = f'{each} and _numpy_dtype("dtype", {each})' if each == "dtype" else each
        place = "axis" if each == "dim" else each
        arguments.append(value if place in how.positional else f"{place}={value}")
    own = ["dim" if each == "axis" else each for each in how.names]
    tensors = [each for each in own if each in TENSORS]
    functions = "".join([f"{each}, " for each in functions_of(name)])
    is_given = {each: kind == "Tensor?" for each, kind in zip(own, how.kinds, strict=True)}
    made: Callable[..., Any] = define(
        f"eager-{name}",
        "eager",
        _EAGER,
        names,
        parameters=str(inspect.Signature(parameters))[1:-1],
        conditions=" and ".join(map(_condition, how.names, how.kinds)),
        requires_grad=" or ".join(
            f"{each} is not None and {each}.requires_grad" if is_given[each] else f"{each}.requires_grad"
            for each in tensors
            if each != "repeats"
        ),
        recorded="_no_call"
        if row.around is not None
        else f"_recorded(({functions}), ({''.join([f'{each}, ' for each in tensors])}), {', '.join(own)})",
        checks=checks,
        arguments=", ".join(arguments),
    )
    return made
