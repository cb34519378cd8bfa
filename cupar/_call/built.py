"""What stands behind an algorithm object: code that is there, or that will be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from .._ir.specialisation import Specialisation
from .code import Code


@dataclass(frozen=True)
class Build:
    """Where an algorithm's code came from, and what that cost.

    Attributes
    ----------
    algorithm : str
        As in ``"reduce_into"``.
    key : str
        Of the build in the cache: a SHA-256 in hexadecimal.
    cc : int
        Compute capability it is for, as in 90.
    origin : {"memory", "disk", "linked", "built"}
        ``"linked"``: the kernels were in the cache and only the operator was new.
    seconds : mapping of str to float
        By stage. ``"read"`` and ``"load"`` of a build that was found; ``"template"``, ``"operator"``,
        ``"link"`` or ``"compile"`` of one that was made.
    cubin_size : int
        Bytes of GPU code: an ELF file, as `Algorithm.cubin` returns it.
    source : str
        Where a build that was kept was found, as the path or URL of a directory, bundle or store; empty if
        it was made.
    tier : {"quick", "fast"}
        ``"quick"``: kernels that link quickly, and run until the fastest ones are there; see
        `Algorithm.ready`.
    """

    algorithm: str
    key: str
    cc: int
    origin: str
    seconds: Mapping[str, float] = field(hash=False)
    cubin_size: int
    source: str = ""
    tier: str = "fast"


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
