"""What stands behind an algorithm object: code that is there, or that will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from .._base import device
from .._base.data import dataclass, field
from .._ir.specialisation import Specialisation
from .code import Code

if TYPE_CHECKING:
    from .._kernels.elf import Resources

_SHORT_KEY = 12  # characters, which `cupar.cache.info` takes


@dataclass(frozen=True)
class Made:
    """What shows a build: its GPU code, and what that is linked of, which is made again when it is asked for.

    Each raises what building does.
    """

    cubin: Callable[[], bytes]
    ltoir: Callable[[], Mapping[str, bytes]]  # by what it is of
    llvm: Callable[[], Mapping[str, str]]  # by function
    ptx: Callable[[], str]


@dataclass(frozen=True)
class Policy:
    """What kernels are tuned by, and where that came from; as a string, in short.

    Attributes
    ----------
    values : mapping of str to int
        As in ``{"threads": 256, "items": 17}``.
    source : {"cupar", "CUB", "tuned"}
        ``"cupar"``: from cupar's tables; ``"CUB"``: CUB's choice for the compute capability; ``"tuned"``:
        measured on the user's card by ``cupar tune``.
    """

    values: Mapping[str, int] = field(hash=False)
    source: str

    def __str__(self) -> str:
        return " ".join([*(f"{name}={value}" for name, value in self.values.items()), f"({self.source})"])


@dataclass(frozen=True)
class Build:
    """Where an algorithm's code came from, and what that cost.

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
        What its kernels are tuned by; None if they have nothing to be tuned, as a kernel of the user's.
    compilers : mapping of str to str
        Where a compiler is missing, and so a build of any compilers will do: their versions, by name. Empty
        where all are there, and a build of these alone is found.
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
    _made: Made | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        fields = self._fields()
        texts = [text if name in ("origin", "size") else f"{name} {text}" for name, text in fields]
        return f"<cupar build of {self.algorithm} for {device.text(self.cc)}, {', '.join(texts)}>"

    def _repr_html_(self) -> str:
        from .._base import html

        return html.fields(f"build of {self.algorithm} for {device.text(self.cc)}", self._fields())

    def _fields(self) -> list[tuple[str, str]]:
        """Return what a person wants to know of it, by name."""
        from .._base.words import seconds_text, size_text

        stages = ", ".join(f"{stage} {seconds_text(value)}" for stage, value in self.seconds.items())
        place = f" in {self.source}" * bool(self.source) if self.origin == "disk" else ""
        found = [("origin", f"{self.origin}{place}" + f" ({stages})" * bool(stages))]
        found.append(("size", size_text(self.cubin_size)))
        if self.tier != "fast":
            found.append(("tier", self.tier))
        if self.policy is not None:
            found.append(("policy", str(self.policy)))
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
        """Return the PTX of all that is linked, from which the GPU code is assembled; see `ltoir`."""
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
        """Return what each kernel takes: ``registers``, ``shared``, ``local`` and ``max_threads``, by name.

        Needs no GPU: the GPU code says it.
        """
        from .._kernels import elf

        return elf.resources_of(self._shown().cubin())

    def _shown(self) -> Made:
        if self._made is None:
            raise ValueError("this Build was copied from another process: ask one of this process")
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": None}


class Faster(Protocol):
    """Faster code for the same that is on its way, and takes the place of the code that is there."""

    def follow(self, algorithm: Any) -> None:
        """Let an algorithm object have the code as soon as it is there."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until it is there, or for some seconds; return whether it is. Raises what building it did."""


@dataclass(frozen=True)
class Built:
    """Code that is there."""

    code: Code
    build: Build
    refusal: str = ""
    faster: Faster | None = None

    @property
    def spec(self) -> Specialisation:
        """What it is the code of, without what keeps the user's functions alive."""
        return self.code.spec


class Pending(Protocol):
    """Code that is not there yet."""

    @property
    def refusal(self) -> str:
        """Why the algorithm cannot be loaded or called in this process; empty if it can."""

    @property
    def spec(self) -> Specialisation:
        """What will be built."""

    def is_done(self) -> bool:
        """Whether `result` returns at once."""

    def wait(self, timeout: float | None) -> bool:
        """Wait until the build has ended, or for some seconds; return whether it has ended."""

    def result(self) -> Built:
        """Wait for the code; raise what building it raised."""
