"""The compilers of a test run, which compile the same once, and no more of it than tests need.

- `shared`: what compilers made, in a folder that all processes of a run share.
- `contents`: what a function that numba compiles is, the same in each process.
- `headers`: headers precompiled at once for all families of kernels.
- `effort`: how much compilers optimise.
- `processes`: the same in processes that tests start.
"""

from .effort import is_optimised, optimise, optimise_for_gpu, unoptimised
from .processes import AS_IN_THE_RUN, as_in_the_run, once
from .shared import real

__all__ = [
    "AS_IN_THE_RUN",
    "as_in_the_run",
    "is_optimised",
    "once",
    "optimise",
    "optimise_for_gpu",
    "real",
    "unoptimised",
]
