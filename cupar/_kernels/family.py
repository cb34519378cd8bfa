"""What a family of kernels declares: its source, how its kernels are launched, and a plan for each problem.

A plan is plain integers. For a problem size it says which of the family's shapes is launched, how many bytes
of temporary storage that needs, and the numbers that the shape's grids and parameters are made of. A shape is
a chain of launches that is the same for many problem sizes: kernels, and what goes where in their parameters.
Where the number of launches depends on the problem, several shapes follow one another. So what a call does is
known before it is made, without a GPU, and whoever launches needs to know no algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .._base.data import dataclass
from .tuning import Tunable

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation


PlanTuple = tuple[str, int, tuple[int, ...]]  # a plan, where one is made for each call: the fields of `Plan`


class Plan(NamedTuple):
    """What is launched for one problem size."""

    # One of the family's shapes; "" if nothing is launched. Or several, one after another.
    shape: str | tuple[str, ...]
    nbytes: int  # of temporary storage
    # In the order of the shape's names for them. Of several shapes, such a tuple for each.
    numbers: tuple[Any, ...] = ()


class Several:
    """Shapes of a plan that is several of them, one after another."""

    def __init__(self) -> None:
        self._each: list[tuple[str, tuple[Any, ...]]] = []

    def add(self, shape: str, numbers: tuple[Any, ...]) -> None:
        """Add a shape and its numbers."""
        self._each.append((shape, numbers))

    def plan(self, nbytes: int) -> Plan:
        """Return the plan."""
        shapes, numbers = zip(*self._each, strict=True)
        return Plan(shapes, nbytes, numbers)


@dataclass(frozen=True)
class Number:
    """A number of the plan in a kernel's parameters, or one that is always the same."""

    name: str | int
    code: str  # of the module struct: "i", "I", "q", "Q", "?", …


@dataclass(frozen=True)
class Storage:
    """An address in the temporary storage: so many bytes after its start, by a number of the plan."""

    offset: str | int = 0


@dataclass(frozen=True)
class Value:
    """What a call was given: an array's address or an iterator's state, an operator's state, ``"init"``."""

    name: str


Field = Number | Storage | Value
Parameter = Field | tuple[Field, ...]  # a tuple is a struct, laid out as C does it


class InPlace(tuple[Field, ...]):
    """A struct that threads read where it is (``__grid_constant__``).

    It holds an array that is indexed at run time, which each thread would otherwise copy to local memory.
    """


def i32(name: str | int) -> Number:
    """Return a number as an ``int``."""
    return Number(name, "i")


def u32(name: str | int) -> Number:
    """Return a number as an ``unsigned int``."""
    return Number(name, "I")


def i64(name: str | int) -> Number:
    """Return a number as a ``long long``."""
    return Number(name, "q")


def u64(name: str | int) -> Number:
    """Return a number as an ``unsigned long long``."""
    return Number(name, "Q")


@dataclass(frozen=True)
class Launch:
    """A launch of one kernel.

    From compute capability 9.0 on, its blocks may be there before what is ahead of it in the stream has
    ended (programmatic dependent launch): the kernel itself waits for that.
    """

    kernel: str  # its symbol, extern "C" in the source
    grid: str | int  # blocks: a number of the plan, or always the same
    block: str | int  # threads in each: one of the family's facts, or always the same
    parameters: tuple[Parameter, ...]
    shared: str | int = 0  # bytes of dynamic shared memory: a number of the plan, a fact, or always the same


@dataclass(frozen=True)
class Shape:
    """A chain of launches, each after the one before it."""

    numbers: tuple[str, ...]  # names of a plan's numbers
    launches: tuple[Launch, ...]
    executables: int = 8  # graphs of it that are made at most when code is loaded; 0: kernel by kernel


class Facts(dict[str, int]):
    """What plans depend on beside the problem: facts of the build, by its family's names, and of the device.

    Those of the device are ``"sms"``, its multiprocessors, and ``"shared_memory"``, the bytes of shared
    memory that a block may have at most. `occupancy` takes a kernel's symbol, threads and bytes of dynamic
    shared memory of a block, and returns how many blocks a multiprocessor runs at once.
    """

    def __init__(self, facts: Mapping[str, int], occupancy: Callable[[str, int, int], int]) -> None:
        super().__init__(facts)
        self.occupancy = occupancy


@dataclass(frozen=True)
class Family:
    """Kernels of one kind of algorithm.

    Attributes
    ----------
    source : str or callable
        The file of its kernels in ``cuh/``, or what takes the specialisation and returns it. A file
        ``x/y.cuh`` has the class template ``cupar::y_kernels``.
    facts : tuple of str
        Names for the integers of ``facts`` in the class template, in order.
    shapes : callable
        Takes the specialisation; returns the shapes by name. A build has the kernels that they launch.
    planner : callable
        Takes the facts; returns what gives the plan of a problem.
    traits : callable
        Takes the specialisation; returns members of the struct that the kernels are templates of, beside the
        types and operators that all families get.
    has_quick_tier : callable
        Takes the specialisation; tells whether its fastest kernels link slowly, and its option ``"tier"``
        chooses between them (``"fast"``, or None) and others that link quickly (``"quick"``).
    tunable : Tunable, optional
        What its kernels are tuned by.
    """

    source: str | Callable[[Specialisation], str]
    facts: tuple[str, ...]
    shapes: Callable[[Specialisation], Mapping[str, Shape]]
    planner: Callable[[Facts], Callable[[Any], Plan | PlanTuple]]
    traits: Callable[[Specialisation], str] = lambda spec: ""
    has_quick_tier: Callable[[Specialisation], bool] = lambda spec: False
    tunable: Tunable[Any] | None = None

    def source_of(self, spec: Specialisation) -> str:
        """Return the file of a specialisation's kernels."""
        return self.source if isinstance(self.source, str) else self.source(spec)


def aligned(*sizes: int, to: int = 256) -> tuple[int, ...]:
    """Lay out parts of the temporary storage: return where each begins, and how many bytes all of them take.

    Each is aligned to 256 bytes, as CUB does it.
    """
    at, offsets = 0, []
    for size in sizes:
        offsets.append(at)
        at += -(-size // to) * to
    return (*offsets, at)


def ceil_div(a: int, b: int) -> int:
    """Return a quotient, rounded up."""
    return -(-a // b)
