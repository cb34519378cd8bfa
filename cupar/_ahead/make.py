"""One build ahead of time, in this process or a helper."""

from __future__ import annotations

import pickle
import time
import warnings
from typing import Any, Literal, cast

from .._base.data import dataclass
from .._base.warnings import CacheWarning
from .._base.words import message
from .._compile import precompiled
from .._ir.specialisation import Specialisation
from .._jobs.helpers import Helper
from .._obtain import obtain
from . import codec


@dataclass(frozen=True)
class Outcome:
    """The outcome of a build."""

    # Linked: CCCL's kernels were in the cache. There: all of it was.
    result: Literal["built", "linked", "found", "failed"]
    seconds: float
    cubin_size: int = 0  # bytes of GPU code
    error: str = ""  # why it failed
    warnings: tuple[str, ...] = ()  # from the cache


def make(spec: Specialisation) -> Outcome:
    """Make a build, unless it is in the cache; errors are part of the outcome."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            built = obtain.answer(spec, None).build
            failed = ""
        except Exception as error:  # compilers may raise anything
            failed = message(error)
    seconds = time.perf_counter() - start
    texts = tuple(str(each.message) for each in said if issubclass(each.category, CacheWarning))
    if failed:
        return Outcome("failed", seconds, error=failed, warnings=texts)
    result = built.origin if built.origin in ("built", "linked") else "found"
    return Outcome(cast(Any, result), seconds, built.cubin_size, warnings=texts)


def made_by(helper: Helper, spec: Specialisation, of_many: bool) -> Outcome:
    """Have a helper make a build; `of_many`: its kernels' headers serve others.

    Raises
    ------
    Exception
        Whatever `Helper.call` raises, or pickling what an operator reads.
    """
    request = bytes([of_many]) + codec.dumps(spec)
    return cast(Outcome, pickle.loads(helper.call(f"{__name__}:make_in_helper", request)))


def make_in_helper(request: bytes) -> bytes:
    """Do what `make` does with a specialisation as bytes, and return the outcome as bytes."""
    precompiled.expect_many(bool(request[0]))
    try:
        outcome = make(codec.loads(request[1:]))
    except Exception as error:  # unpickling may raise anything
        outcome = Outcome("failed", 0.0, error=message(error))
    return pickle.dumps(outcome)
