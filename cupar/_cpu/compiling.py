"""Compilation with numba for the CPU under cupar's settings, and a check of the functions that code calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from .._base.errors import BuildError
from .._compile import numba_settings
from .._compile.python_to_ltoir import MOST_TRIES, RESTLESS
from .._fingerprint import extensions
from .._kernels.elf import Elf
from .._numba_cpu import config, global_compiler_lock
from .target import target
from .values import forget_functions

T = TypeVar("T")


@contextmanager
def compiling(subject: str) -> Iterator[Callable[[], bool]]:
    """Compile for the CPU in the block, while no other thread compiles; errors name the subject.

    Yields a function that returns whether settings and registrations are unchanged; if not, repeat the block.

    Raises
    ------
    Unfingerprintable
        At the end of the block, if the code uses registrations that are not numba's own.
    """
    refusing = extensions.refuse_foreign(target.target_context, subject)
    with global_compiler_lock, numba_settings.own(config) as holds, refusing:
        registered = extensions.foreign(on_cpu=True)

        def unchanged() -> bool:
            return holds() and extensions.foreign(on_cpu=True) == registered

        if registered.may_be_used:  # only a new compilation shows whether they are
            forget_functions()
        try:
            yield unchanged
        finally:
            if registered.may_be_used or not unchanged():
                forget_functions()


def settled(subject: str, work: Callable[[], T]) -> T:
    """Compile for the CPU; again, if others registered something with numba meanwhile or changed settings."""
    for _ in range(MOST_TRIES):
        with compiling(subject) as unchanged:
            made = work()
            if unchanged():
                return made
    raise BuildError(RESTLESS)


# --- What object code calls ------------------------------------------------------------------------------

_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim
    floor fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 logb modf nearbyint nextafter pow
    remainder rint round roundeven sin sincos sinh sqrt tan tanh tgamma trunc
"""
_NUMBAS = "cpow erf erfc fixed_fmod fptoui frexp gamma ldexp lgamma nextafter sdiv srem udiv urem"
_COMPUTES: Final = frozenset(
    ["memcmp", "memcpy", "memmove", "memset", *_MATH.split(), *(f"numba_{name}" for name in _NUMBAS.split())]
)


def stranger(names: Iterable[str]) -> str | None:
    """Return the first of the functions that object code calls which does more than compute, if there is one.

    Functions of Python's, of numba's runtime and the like are not there in the next process, or not without
    the interpreter's lock.
    """
    strangers = (each for each in names if not {each, each.removesuffix("f")} & _COMPUTES)
    return next(strangers, None)


def called(code: bytes) -> list[str]:
    """Return the functions and variables that an object file needs from outside."""
    return sorted({each.name for each in Elf(code).symbols() if not each.section and each.name})
