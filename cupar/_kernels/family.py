"""Families of kernels: a source, shapes of launches, and a plan for each problem.

A shape is a chain of launches that is the same for many problem sizes: kernels, and the fields of their
parameters. A plan is a function, ``plan(facts, problem, emit)``. For a problem it emits the shapes to
launch, one after another, each with the numbers for its grids and parameters; and it returns the bytes of
temporary storage. So the launches of a call are known before the call, without a GPU, and the code that
launches is independent of algorithms.

A plan's facts are made by a planner, once code is loaded: of the integers that a build holds, its properties
(`Family.properties`, and ``properties`` in C++), and of the device's. `Properties` has both.

CPython runs plans, and numba compiles them unchanged, for compiled host code. So plans, and functions that
they call, use only what has the same meaning for both:

- Integers of 64 bits and floats, tuples of fixed lengths, conditions and loops. Tuples are concatenated with
  ``+``; there are no lists, dictionaries or texts, no stars and no comprehensions.
- Facts and problems are tuples, named or not, of integers and of tuples of these. Facts hold everything that
  is known when code is loaded, occupancy included. Plans of algorithms that are called for many sizes
  unpack them: CPython takes longer for each attribute of a named tuple than to unpack ten.
- They call ``min``, ``max``, ``range``, and functions that are declared a `helper` or a `twin`. There are two
  versions of a twin: CPython's where it is declared, and numba's in `_host.native` or `_host.problems`.

The same holds for functions that make problems (`Algorithm._problem_maker`), and for what they call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from .._base.data import dataclass
from .._ir import cpp
from .tuning import Tunable

if TYPE_CHECKING:
    from .._ir.specialisation import Specialisation


Emit = Callable[[int, tuple[int, ...]], object]  # a shape, by its place among the family's names; its numbers
Plan = Callable[[Any, Any, Emit], int]  # takes facts and a problem, emits shapes, returns bytes of storage

F = TypeVar("F", bound=Callable[..., Any])
Facts = TypeVar("Facts")

# Functions that plans and makers of problems call: numba compiles helpers unchanged, and has its own
# versions of twins.
helpers: list[Callable[..., Any]] = []
twins: list[Callable[..., Any]] = []


def helper(function: F) -> F:
    """Declare a function that plans or makers of problems call, and that numba compiles unchanged."""
    helpers.append(function)
    return function


def twin(function: F) -> F:
    """Declare a function that plans or makers of problems call, and that has a numba version."""
    twins.append(function)
    return function


@dataclass(frozen=True)
class Number:
    """A kernel parameter that is a number of the plan, by its name, or a constant."""

    name: str | int
    code: str  # of the module struct: "i", "I", "q", "Q", "?", …


@dataclass(frozen=True)
class Storage:
    """An address in the temporary storage; the offset is a number of the plan, by its name, or a constant."""

    offset: str | int = 0


@dataclass(frozen=True)
class Value:
    """A value of the call: an array's address or an iterator's state, an operator's state, ``"init"``."""

    name: str


Field = Number | Storage | Value
Parameter = Field | tuple[Field, ...]  # a tuple is a struct, laid out as C does it


class InPlace(tuple[Field, ...]):
    """A struct that threads read where it is (``__grid_constant__``).

    It holds an array that is indexed at run time, which each thread would otherwise copy to local memory.
    """


def value_or_null(spec: Specialisation, name: str) -> Field:
    """Return the value of an argument, or a null pointer if the specialisation lacks it."""
    return Value(name) if spec.has(name) else u64(0)


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

    From compute capability 9.0 on, its blocks may be resident before the work ahead of it in the stream has
    ended (programmatic dependent launch): the kernel itself waits for that.
    """

    kernel: str  # its symbol, extern "C" in the source
    grid: str | int  # blocks: a number of the plan, or always the same
    block: str | int  # threads in each: one of the family's properties, or always the same
    parameters: tuple[Parameter, ...]
    # Bytes of dynamic shared memory: a number of the plan, a property, or always the same.
    shared: str | int = 0


@dataclass(frozen=True)
class Shape:
    """A chain of launches, each after the one before it."""

    numbers: tuple[str, ...]  # names of a plan's numbers
    launches: tuple[Launch, ...]
    executables: int = 8  # the most graphs of it that are made when code is loaded; 0: kernel by kernel


class Properties(dict[str, int]):
    """The integers from which planners make facts: the build's, by `Family.properties`, and the device's.

    Those of the device are ``"sms"``, its multiprocessors, and ``"shared_memory"``, the bytes of shared
    memory that a block may have at most. `occupancy` takes a kernel's symbol, threads and bytes of dynamic
    shared memory of a block, and returns the resident blocks of a multiprocessor.
    """

    def __init__(self, properties: Mapping[str, int], occupancy: Callable[[str, int, int], int]) -> None:
        super().__init__(properties)
        self.occupancy = occupancy

    def resident(self, kernel: str, threads: int, shared: int = 0) -> int:
        """Return how many blocks of a kernel run at once on the device; the arguments are `occupancy`'s."""
        return self["sms"] * self.occupancy(kernel, threads, shared)

    def facts(self, kind: Callable[..., Facts], **made: Any) -> Facts:
        """Return a named tuple of facts: those that the planner has made, and properties by their names."""
        names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
        return kind(**{name: self[name] for name in names if name not in made}, **made)

    def shared_limits(self, kernel: str, threads: int, blocks: int) -> tuple[int, ...]:
        """Return the most shared memory that a block may have where one is resident, two, …, `blocks`.

        In bytes, multiples of 16; -1: that number of blocks is never resident.
        """
        found, limit = [], self["shared_memory"] // 16
        at_most = self.occupancy(kernel, threads, 0)
        for number in range(1, blocks + 1):
            low, high = (0, limit) if number <= at_most else (-1, -1)
            if low < high and self.occupancy(kernel, threads, 16 * high) >= number:
                low = high
            while low < high:
                middle = (low + high + 1) // 2
                if self.occupancy(kernel, threads, 16 * middle) >= number:
                    low = middle
                else:
                    high = middle - 1
            found.append(16 * low)
            limit = low
        return tuple(found)


@dataclass(frozen=True)
class Family:
    """Kernels of one kind of algorithm.

    Attributes
    ----------
    source : str or callable
        The file of its kernels in ``cuh/``, or a function that returns it for a specialisation. A file
        ``x/y.cuh`` has the class template ``cupar::y_kernels``.
    properties : tuple of str
        Names for the integers of ``properties`` in the class template, in order: a build holds them.
    names : tuple of str
        Names of all shapes that there may be, in the order of the numbers by which plans emit them.
    shapes : callable
        Takes the specialisation; returns the shapes by name. A build has the kernels that they launch.
    planner : callable
        Takes the properties of a build and device; returns the plan, and the facts to call it with.
    traits : callable
        Takes the specialisation; returns members of the struct that the kernels are templates of, beside the
        types and operators that all families get.
    has_quick_tier : callable
        Takes the specialisation; tells whether its fastest kernels link slowly, and its option ``"tier"``
        chooses between them (``"fast"``, or None) and others that link quickly (``"quick"``).
    tunable : Tunable, optional
        The tuning of its kernels.
    """

    source: str | Callable[[Specialisation], str]
    properties: tuple[str, ...]
    names: tuple[str, ...]
    shapes: Callable[[Specialisation], Mapping[str, Shape]]
    planner: Callable[[Properties], tuple[Plan, Any]]
    traits: Callable[[Specialisation], str] = lambda spec: ""
    has_quick_tier: Callable[[Specialisation], bool] = lambda spec: False
    tunable: Tunable[Any] | None = None

    def source_of(self, spec: Specialisation) -> str:
        """Return the file of a specialisation's kernels."""
        return self.source if isinstance(self.source, str) else self.source(spec)


def members(*lines: str, **constants: int) -> str:
    """Return members of a traits struct: lines of C++, and constants by their names."""
    named = (
        f"static constexpr {type(value).__name__} {name} = {str(value).lower()};"
        for name, value in constants.items()
    )
    return "\n".join((*lines, *named))


def prefixed(prefix: str, policy: tuple[int, ...]) -> dict[str, int]:
    """Return the constants of a policy, under names that begin with `prefix`."""
    named: dict[str, int] = policy._asdict()  # type: ignore[attr-defined]
    return {f"{prefix}{name}": value for name, value in named.items()}


def void(*names: str) -> tuple[str, ...]:
    """Return members of a traits struct for the types of arguments that a specialisation lacks."""
    return tuple(f"using {name} = void;" for name in names)


def accumulator(spec: Specialisation) -> str:
    """Return the member of a traits struct for the type that the operator combines values in."""
    return f"using accum_t = {cpp.type_name(dict(spec.operators)['op'].output)};"


def kind_of_init(spec: Specialisation) -> dict[str, bool]:
    """Return the constants of a traits struct that tell where the initial value of a scan is."""
    init = spec.option("init")
    return {"init_is_value": init == "value", "init_is_on_device": init == "device"}


@helper
def aligned(nbytes: int) -> int:
    """Return a size or an offset in the temporary storage, rounded up to 256 bytes, as CUB does it."""
    return nbytes + 255 & -256


@helper
def resident_blocks(limits: tuple[int, ...], shared: int) -> int:
    """Return how many blocks with some shared memory are resident, given `Properties.shared_limits`."""
    count = 0
    for k in range(len(limits)):  # compiled host code has them by number
        if shared <= limits[k]:
            count += 1
    return count


@twin
def ceil_div(a: int, b: int) -> int:
    """Return a quotient, rounded up."""
    return -(-a // b)


@twin
def bits(number: int) -> int:
    """Return the bit length of a number that is 0 or more."""
    return number.bit_length()
