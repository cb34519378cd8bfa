"""numba's settings while it compiles for cupar: cupar's own, so that none of the user's is in machine code.

``NUMBA_BOUNDSCHECK``, ``NUMBA_OPT`` and their like, ``.numba_config.yaml`` and assignments to `numba.config`
change the code that numba generates. Builds are made without them, so keys need not contain them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

# All of numba's settings that change machine code, or whether there is any. A test says why others do not.
OWN: Final[dict[str, Any]] = {
    "BOUNDSCHECK": 0,
    "CPU_FEATURES": None,  # those of this CPU, as they are in the key
    "CPU_NAME": None,
    "CUDA_DEBUGINFO_DEFAULT": 0,
    "CUDA_ENABLE_NRT": False,
    "CUDA_NRT_STATS": False,
    "CUDA_NVRTC_EXTRA_SEARCH_PATHS": "",
    "DEBUGINFO_DEFAULT": 0,
    "DEBUG_ARRAY_OPT_RUNTIME": 0,
    "DEBUG_JIT": 0,
    "DEBUG_NRT": 0,
    "DIFF_IR": 0,
    "DISABLE_JIT": 0,
    "ENABLE_PROFILING": 0,
    "EXTEND_VARIABLE_LIFETIMES": 0,
    "FORCE_CUDA_CC": None,
    "FULL_TRACEBACKS": 0,  # a check of bounds prints, too
    "LLVM_REFPRUNE_FLAGS": "all",
    "LLVM_REFPRUNE_PASS": 1,
    "LOOP_VECTORIZE": 1,
    "OPT": 3,
    "PARFOR_MAX_TUPLE_SIZE": 100,
    "SLP_VECTORIZE": 0,
    "USE_LLVMLITE_MEMORY_MANAGER": None,
}


@contextmanager
def own(config: Any) -> Iterator[Callable[[], bool]]:
    """Have numba compile with cupar's settings; the compiler lock must be held.

    Parameters
    ----------
    config : module
        numba's, or that of numba-cuda.

    Yields
    ------
    callable
        Tells whether they still hold: numba reads the environment anew where that has changed.
    """
    if hasattr(config, "reload_config"):
        config.reload_config()  # now, and not while it compiles
    settings = vars(config)
    mine = {name: value for name, value in OWN.items() if name in settings}
    if "OPT" in mine:
        mine["OPT"] = settings.get("_OptLevel", int)(mine["OPT"])
    before = {name: settings[name] for name in mine}
    settings.update(mine)
    try:
        yield lambda: all(settings[name] is value for name, value in mine.items())
    finally:
        settings.update({name: before[name] for name, value in mine.items() if settings[name] is value})
