"""Traces of launches: ``CUPAR_TRACE=1`` prints a line for each, and profilers get NVTX ranges.

The environment asks for both when launching code is generated: otherwise, that has no line of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from typing import Any, TypeVar

from . import log
from .words import OFF

__all__ = ["is_on", "launch", "ranged"]

F = TypeVar("F", bound=Callable[..., Any])


def is_on() -> bool:
    """Whether to print each launch."""
    return os.environ.get("CUPAR_TRACE", "").strip().lower() not in {"", *OFF}


def launch(kernel: str, grid: Any, block: Any, shared: int, stream: int, origin: str = "Python") -> None:
    """Print a launch on standard error; grid and block are integers, or one for each dimension."""
    sys.stderr.write(
        f"cupar: {kernel} grid={_dimensions(grid)} block={_dimensions(block)} shared={shared} "
        f"stream={stream:#x} from {origin}\n"
    )


def _dimensions(given: Any) -> str:
    return f"({','.join(map(str, given))})" if isinstance(given, Sequence) else str(given)


def ranged(enqueue: F, name: str) -> F:
    """Return a function that shows profilers a range of that name; unchanged without a profiler."""
    found = _profiler()
    if found is None:
        return enqueue
    push, pop = found

    @wraps(enqueue)
    def shown(*arguments: Any) -> Any:
        push(name)
        try:
            return enqueue(*arguments)
        finally:
            pop()

    return shown  # type: ignore[return-value]


@cache
def _profiler() -> tuple[Callable[[str], Any], Callable[[], Any]] | None:
    """Return the functions that begin and end an NVTX range; None without a profiler.

    Profilers that take ranges name their library to the processes that they start, as Nsight Systems does.
    """
    if not os.environ.get("NVTX_INJECTION64_PATH"):
        return None
    try:
        import nvtx

        return (lambda name: nvtx.push_range(name, domain="cupar")), (lambda: nvtx.pop_range(domain="cupar"))
    except ImportError:
        pass
    from ctypes import CDLL, c_char_p

    # Of NVIDIA's wheels, which PyTorch brings, by their places for CUDA 13 and 12; or of a toolkit.
    names = ("cu13/lib/libnvtx3interop.so.1", "cu13/lib/libnvtx3interop.so", "nvtx/lib/libnvToolsExt.so.1")
    places = [os.path.join(folder, "nvidia", name) for folder in sys.path for name in names]  # noqa: PTH118
    for place in [*filter(os.path.exists, places), "libnvtx3interop.so.1", "libnvToolsExt.so.1"]:
        try:
            library = CDLL(place)
            push, pop = library.nvtxRangePushA, library.nvtxRangePop
        except (OSError, AttributeError):
            continue
        push.argtypes = [c_char_p]
        return partial(_push, push), pop
    log.info("a profiler runs, and gets no NVTX ranges: pip install nvtx")
    return None


def _push(push: Callable[[bytes], int], name: str) -> None:
    push(f"cupar: {name}".encode())
