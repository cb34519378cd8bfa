"""Which compute capabilities the compilers know."""

from __future__ import annotations

import functools

from . import toolchain

# What NVRTC of every minor version of a CUDA knows, so that it need not be loaded to be asked. Newer minor
# versions know more.
ALWAYS = {
    12: frozenset((50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)),
    13: frozenset((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)),
}


@functools.cache
def known() -> tuple[int, ...]:
    """Return the compute capabilities that NVRTC knows, as in 90, in order.

    numba.cuda takes the list for Python operators from NVRTC, too.
    """
    toolchain.load_library("nvrtc")
    from cuda.bindings import nvrtc

    status, found = nvrtc.nvrtcGetSupportedArchs()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise toolchain.BuildError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return tuple(sorted(found))


def check(cc: int) -> None:
    """Raise ValueError for a compute capability that the compilers do not know.

    Where they cannot be asked nothing is raised: a machine without them may still find builds in the cache.
    """
    try:
        major = toolchain.cuda_major()
        if cc in ALWAYS[major]:
            return
        supported = known()
    except (ImportError, OSError, toolchain.BuildError):
        return
    if cc not in supported:
        older = (
            "; CUDA 12 knows older ones: pip install cupar[cu12]" if cc < supported[0] and major > 12 else ""
        )
        raise ValueError(
            f"cc: the compilers of CUDA {major} do not know sm_{cc}; supported: "
            f"{', '.join(map(str, supported))}{older}"
        )
