"""Tuning: the policy of a family's kernels, and the policies that may be tried.

A policy is a named tuple of integers. Which one a specialisation has is its own affair: the family says what
it is by default, from the tables of `policies` or CUB's; and one that was measured on the user's card is an
option of the specialisation, and so a part of its key. So every query of a specialisation's policy gets
that with which its kernels are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .._base.data import dataclass

if TYPE_CHECKING:
    from .._ir.operator import Operator
    from .._ir.specialisation import Specialisation

P = TypeVar("P", bound=tuple[Any, ...])

Space = Mapping[str, Sequence[int]]


def _nothing(spec: Specialisation) -> Space:
    return {}


def _anything(spec: Specialisation, policy: Any) -> bool:
    return True


@dataclass(frozen=True)
class Tunable(Generic[P]):
    """What of a family can be tuned.

    Attributes
    ----------
    name : str
        Under which measured policies are kept, as in ``"scan"``.
    policy : type
        A named tuple of integers, by the names that the C++ is given.
    default : callable
        Takes the specialisation; returns the policy of cupar's tables, None where CUB's selector decides.
    scope : callable
        Takes the specialisation; returns the facts that others with the same policy have in common: types,
        the class of the operator, and whatever else makes a difference; each as text.
    space : callable
        Takes the specialisation; returns the values that each field may have, in order; empty if the kernels
        of this one have no policy.
    fits : callable
        Takes the specialisation and a policy of the space; returns whether kernels can be made with that.
    """

    name: str
    policy: type[P]
    default: Callable[[Specialisation], P | None]
    scope: Callable[[Specialisation], Mapping[str, str]]
    space: Callable[[Specialisation], Space] = _nothing
    fits: Callable[[Specialisation, P], bool] = _anything

    def of(self, spec: Specialisation) -> P | None:
        """Return the policy that a specialisation's kernels are made with, None for CUB's."""
        if spec.option("tier") == "quick":  # kernels whose policy is not tuned
            return None
        return self._found(spec)

    def _found(self, spec: Specialisation) -> P | None:
        text = spec.option("policy")
        return self.default(spec) if text is None else self.read(text)

    def given(self, spec: Specialisation) -> P:
        """Return the policy for the C++, whose integers are 0 where CUB's selector decides."""
        found = self._found(spec)
        return self.made(*[0] * len(self.fields)) if found is None else found

    def read(self, text: str) -> P:
        """Return the policy that `write` wrote; raise ValueError if the text is no policy."""
        try:
            values: dict[str, Any] = {
                name: int(value) for name, value in (each.split("=") for each in text.split())
            }
            return self.made(**values)
        except (TypeError, ValueError):
            fields = " ".join(f"{name}=…" for name in self.fields)
            raise ValueError(f"policy: expected {fields}, got {text!r}") from None

    def made(self, *values: int, **named: int) -> P:
        """Return a policy of some integers."""
        make: Callable[..., P] = self.policy
        return make(*values, **named)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of a policy's integers."""
        return self.policy._fields  # type: ignore[attr-defined, no-any-return]

    def policies(self, spec: Specialisation) -> Iterator[P]:
        """Yield all that may be tried for a specialisation."""
        space = self.space(spec)
        if space:
            for values in product(*(space[name] for name in self.fields)):
                policy = self.made(*values)
                if self.fits(spec, policy):
                    yield policy

    def may_be(self, spec: Specialisation, policy: P) -> bool:
        """Whether a policy may be tried."""
        space = self.space(spec)
        return (
            bool(space)
            and all(value in space[name] for name, value in zip(self.fields, policy, strict=True))
            and self.fits(spec, policy)
        )


def write(policy: tuple[Any, ...]) -> str:
    """Return a policy as text, as in ``warps=2 items=127 states=8``."""
    return " ".join(f"{name}={int(value)}" for name, value in policy._asdict().items())  # type: ignore[attr-defined]


def value_types(spec: Specialisation, *names: str) -> dict[str, str]:
    """Return a part of a scope: types of the arguments with these names, and whether they are arrays."""
    return {
        each.name: f"{'' if each.is_pointer else 'iterator of '}{type_text(each.value)}"
        for each in spec.arguments
        if not names or each.name in names
    }


def operator_types(spec: Specialisation) -> dict[str, str]:
    """Return a scope: the types of all arguments, and the class of the first operator."""
    return {**value_types(spec), "operator": operator_class(spec.operators[0][1])}


def combined_types(spec: Specialisation) -> dict[str, str]:
    """Return a scope: that of `operator_types`, and the type in which the operator combines."""
    op = spec.operators[0][1]
    return {**value_types(spec), "accumulator": type_text(op.output), "operator": operator_class(op)}


def type_text(dtype: Any) -> str:
    """Return a dtype as text; of a struct, the dtypes and places of its fields and not their names."""
    if dtype.names is None:
        return str(dtype)
    fields = (dtype.fields[name] for name in dtype.names)
    inner = ", ".join(f"{type_text(each[0])} at {each[1]}" for each in fields)
    return f"struct({inner}; {dtype.itemsize})"


def operator_class(op: Operator) -> str:
    """Return a fact: what of an operator makes a difference, beside its types."""
    return "function" if op.kind is None else "known kind"
