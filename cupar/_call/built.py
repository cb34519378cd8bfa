"""The code of an algorithm object: built, or being built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .._base import device
from .._base.data import dataclass, field
from .._ir.specialisation import Specialisation
from .._launch.code import Code

if TYPE_CHECKING:
    from .._kernels.elf import Resources

_SHORT_KEY = 12  # characters, which `cupar.cache.info` takes


@dataclass(frozen=True)
class Artifacts:
    """The GPU code of a build, and its intermediate code, which is compiled again on request.

    Each function raises the errors of a build.
    """

    cubin: Callable[[], bytes]
    ltoir: Callable[[], Mapping[str, bytes]]  # by operator, and "kernels"
    llvm: Callable[[], Mapping[str, str]]  # by function
    ptx: Callable[[], str]


@dataclass(frozen=True)
class Policy:
    """The tuning parameters of kernels, and their source.

    Attributes
    ----------
    values : mapping of str to int
        As in ``{"threads": 256, "items": 17}``.
    source : {"cupar", "CUB", "tuned"}
        ``"cupar"``: from cupar's tables, or what its kernels have for all cards; ``"CUB"``: CUB's choice for
        the compute capability; ``"tuned"``: measured on the user's card by ``cupar tune``.
    """

    values: Mapping[str, int] = field(hash=False)
    source: str

    def __str__(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.values.items()), f"({self.source})"])


@dataclass(frozen=True)
class Build:
    """The origin of an algorithm's code, and the time it took.

    Attributes
    ----------
    algorithm : str
        As in ``"reduce_into"``.
    key : str
        Of the build in the cache: a SHA-256 in hexadecimal.
    cc : int or str
        Compute capability it is for, as in 90; ``"cpu"``.
    origin : {"memory", "disk", "linked", "built"}
        ``"linked"``: the kernels were in the cache and only the operator was new.
    seconds : mapping of str to float
        By stage. ``"read"`` and ``"load"`` of a build that was found; ``"template"``, ``"operator"``,
        ``"link"`` or ``"compile"`` of one that was made.
    cubin_size : int
        Bytes of GPU code: an ELF file, as `Algorithm.cubin` returns it. For the CPU: of the object code.
    source : str
        Where a build that was kept was found, as the path or URL of a directory, bundle or store; empty if
        it was made.
    tier : {"quick", "fast"}
        ``"quick"``: kernels that link quickly, and run until the fastest ones are there; see
        `Algorithm.ready`.
    policy : Policy or None
        The tuning parameters of its kernels; None if they have none, as a user's kernel.
    compilers : mapping of str to str
        If a compiler is missing here, so that builds of any compilers serve: the versions of those that made
        it, by name. Empty otherwise: then only builds of these compilers are found.
    arguments : mapping of str to tuple of str
        The numbers that operators read and that calls pass to the code, by operator, as in
        ``{"op": ("global 'SCALE'",)}``. All other values are in the code.
    """

    algorithm: str
    key: str
    cc: int | str
    origin: str
    seconds: Mapping[str, float] = field(hash=False)
    cubin_size: int
    source: str = ""
    tier: str = "fast"
    policy: Policy | None = None
    compilers: Mapping[str, str] = field(default_factory=dict, hash=False)
    arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    _made: Artifacts | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        fields = self._fields()
        texts = [text if name in ("origin", "size") else f"{name} {text}" for name, text in fields]
        return f"<cupar build of {self.algorithm} for {device.text(self.cc)}, {', '.join(texts)}>"

    def _repr_html_(self) -> str:
        from .._base import html

        return html.fields(f"build of {self.algorithm} for {device.text(self.cc)}", self._fields())

    def _fields(self) -> list[tuple[str, str]]:
        """Return the fields shown to users, by name."""
        from .._base.words import seconds_text, size_text

        stages = ", ".join(f"{stage} {seconds_text(value)}" for stage, value in self.seconds.items())
        place = f" in {self.source}" * bool(self.source) if self.origin == "disk" else ""
        found = [("origin", f"{self.origin}{place}" + f" ({stages})" * bool(stages))]
        found.append(("size", size_text(self.cubin_size)))
        if self.tier != "fast":
            found.append(("tier", self.tier))
        if self.policy is not None:
            found.append(("policy", str(self.policy)))
        if self.arguments:
            numbers = [f"{each} of {name}" for name, labels in self.arguments.items() for each in labels]
            found.append(("arguments", ", ".join(numbers)))
        if self.compilers:
            found.append(("compilers", ", ".join(f"{name} {each}" for name, each in self.compilers.items())))
        return [*found, ("key", self.key[:_SHORT_KEY])]

    def llvm(self) -> dict[str, str]:
        """Return the LLVM IR of each Python function, as numba makes it, by the parameter it was given as.

        It is compiled again for that. Operators in C++ and LTO-IR have none. Of a build for the CPU it is
        that of all the code, optimised, as ``"cupar_run"``; sorts and top-k that are NumPy's have none.
        """
        return dict(self._shown().llvm())

    def ltoir(self) -> dict[str, bytes]:
        """Return the LTO-IR that the build is linked of: ``"kernels"``, and that of operators by parameter.

        The kernels come from the cache or are compiled again, operators are compiled again.
        """
        return dict(self._shown().ltoir())

    def ptx(self) -> str:
        """Return the PTX of all linked code, from which the GPU code is assembled; see `ltoir`."""
        return self._shown().ptx()

    def sass(self) -> str:
        """Return the GPU code as text, as ``nvdisasm`` shows it.

        Raises
        ------
        ImportError
            If ``nvdisasm`` is not installed.
        """
        from .._inspect import disassembly

        return disassembly.sass(self._shown().cubin())

    def resources(self) -> dict[str, Resources]:
        """Return each kernel's ``registers``, ``shared``, ``local`` and ``max_threads``, by its name.

        Needs no GPU: the GPU code has these numbers.
        """
        from .._kernels import elf

        return elf.resources_of(self._shown().cubin())

    def _shown(self) -> Artifacts:
        if self._made is None:
            raise ValueError("this Build was copied from another process: ask one of this process")
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None}


class Faster(Protocol):
    """Faster code for the same specialisation, being built: it will replace the present code."""

    def follow(self, algorithm: Any) -> None:
        """Give an algorithm object the code as soon as it is built."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is built, or for some seconds; return whether it is. Raises the build's error."""


@dataclass(frozen=True)
class Built:
    """Code that is built."""

    code: Code
    build: Build
    refusal: str = ""
    faster: Faster | None = None

    @property
    def spec(self) -> Specialisation:
        """The specialisation, without references to the user's functions."""
        return self.code.spec


class Pending(Protocol):
    """Code that is being built."""

    @property
    def refusal(self) -> str:
        """Why the algorithm cannot be loaded or called in this process; empty if it can."""

    @property
    def spec(self) -> Specialisation:
        """The specialisation being built."""

    def is_done(self) -> bool:
        """Whether `result` returns at once."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until the build has ended, or for some seconds; return whether it has ended."""

    def result(self) -> Built:
        """Wait for the code; raise the build's error."""
