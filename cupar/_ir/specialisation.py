"""A specialisation: an algorithm for given types, operators and device, as plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .._base.data import dataclass, replace
from .._base.device import CPU
from .nodes import Argument
from .operator import Operator
from .types import Parameter

if TYPE_CHECKING:
    from .._external.linkable import Linkable


_INTERNAL = ("tier", "policy")  # options of `quick` and `with_policy`, which no factory passes


class AlgorithmClass(Protocol):
    """The attributes of a class of algorithms that decide how its specialisations are built."""

    _family: Any  # its kernels, a `Family`; None: a base class, which is not built
    _loaded: Any  # the class of its code in a context: `Loaded`, or one like it
    _uses: Mapping[str, str | int]  # this and the following: see `Algorithm.__init_subclass__`
    _buffers: Mapping[str, str]
    _any_order: tuple[str, ...]
    _rows: str
    _disjoint_outputs: bool
    _problem_maker: Any  # see `Algorithm`
    run: Any


@dataclass(frozen=True)
class Specialisation:
    """An algorithm for given types, operators and device.

    Attributes
    ----------
    algorithm_class : type of Algorithm
        The class that the factory returns, also of one for the CPU.
    algorithm : str
        As in ``"reduce_into"``.
    arguments : tuple of Argument
        Of a user's kernel, its `types.Parameter`.
    operators : tuple of (str, Operator)
        By parameter. Of a user's kernel, its function.
    options : tuple of (str, value)
        Everything else that changes the code: kind of initial value, determinism, …
    cc : int
        Compute capability, as in 90; 0: it is for the CPU.
    links : tuple of Linkable
        Further code to link, beside that of the operators.
    """

    algorithm_class: type[AlgorithmClass]
    algorithm: str
    arguments: tuple[Argument, ...]
    operators: tuple[tuple[str, Operator], ...]
    options: tuple[tuple[str, Any], ...]
    cc: int
    links: tuple[Linkable, ...] = ()

    @property
    def family(self) -> Any:
        """The family of its kernels, a `Family`."""
        return self.algorithm_class._family

    @property
    def is_cpu(self) -> bool:
        """Whether it is for the CPU."""
        return self.cc == CPU

    @property
    def is_kernel(self) -> bool:
        """Whether it is a user's kernel, not an algorithm."""
        return self.algorithm == "kernel"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a user's kernel."""
        found: Any = self.arguments
        return found  # type: ignore[no-any-return]

    def has(self, name: str) -> bool:
        """Whether it has an argument of a name: it lacks those that are None."""
        return any(each.name == name for each in self.arguments)

    def option(self, name: str) -> Any:
        """Return an option, None if it is not set."""
        return dict(self.options).get(name)

    def quick(self) -> Specialisation:
        """Return the specialisation of the quick tier, for families that have two tiers."""
        return replace(self, options=(*self.options, ("tier", "quick")))

    def with_policy(self, policy: str) -> Specialisation:
        """Return the specialisation with a measured policy in place of the family's default."""
        kept = (each for each in self.options if each[0] != "policy")
        return replace(self, options=(*kept, ("policy", policy)))

    def as_asked(self) -> Specialisation:
        """Return the specialisation without its tier and policy, as the factory requested it."""
        return replace(self, options=tuple(each for each in self.options if each[0] not in _INTERNAL))

    @property
    def functions(self) -> dict[str, Operator]:
        """The operators that are device functions and not CCCL's own, including those of iterators."""
        found = {name: op for name, op in self.operators if op.kind is None}
        for argument in self.arguments:
            found.update(argument.operators)
        return found

    @property
    def states(self) -> tuple[Any, ...]:
        """The state functions of the operators; None for those without a state."""
        return tuple(op.state for _, op in self.operators)

    def value_names(self, uses: Collection[str]) -> list[str]:
        """Return the names of a call's values, in their order, given the arrays that it uses.

        Everything that reads or packs values takes the order from here.
        """
        names = [argument.name for argument in self.arguments if argument.name in uses]
        names += [name for name, op in self.operators if op.state_size]
        return names + ["init"] * (self.option("init") is not None)

    def without_user(self, *, with_code: bool = False) -> Specialisation:
        """Return an equal specialisation that does not keep the user's functions alive.

        It can be built only if `with_code` keeps the code to compile.
        """
        return replace(
            self,
            arguments=tuple(argument.without_user(with_code=with_code) for argument in self.arguments),
            operators=tuple((name, op.without_user(with_code=with_code)) for name, op in self.operators),
            links=self.links if with_code else tuple(each.without_data() for each in self.links),
        )
