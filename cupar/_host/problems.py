"""What an algorithm's problem is in compiled code: what its method `_problem` does in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._call.algorithm import Algorithm
from .._ir.specialisation import Specialisation

# The expression of the problem, expressions of counts that are no parameters, and lines that go before.
Problem = tuple[str, dict[str, str], list[str]]


def problem_of(cls: type[Algorithm], spec: Specialisation, given: Mapping[str, Any]) -> Problem:
    """Return the problem of a call with arguments of some types."""
    if cls._problem is None:
        first = next(count for count in cls._uses.values() if count in given)
        return f"_n_{first}", {}, []
    raise NotImplementedError(cls.__name__)
