"""Functions of CUDA's libdevice, in place of those of C and LLVM that numba's code for ufuncs calls."""

from __future__ import annotations

import re
from typing import Final

# Each is one of LLVM's intrinsics, or a function of C or of numba's library: ``llvm.floor.f32``, ``expm1f``,
# ``numba_nextafter``. CUDA C++ reserves these names, so none is a function of the user's.
_FUNCTIONS: Final = """
    ceil copysign cos exp exp2 expm1 fabs floor ldexp log log10 log1p log2 nextafter pow rint sin sqrt trunc
"""
_CALLED: Final = re.compile(
    rf'\b(float|double) @"(?:llvm\.|numba_)?({"|".join(_FUNCTIONS.split())})f?(?:\.f32|\.f64)?"(?=\()'
)
_DECLARED: Final = re.compile(r'^declare [^@\n]*@"(__nv_\w+)"\(.*\n?', re.MULTILINE)


def calls(text: str) -> str:
    """Return LLVM's code with calls of libdevice's functions, each of which it declares once."""
    text = _CALLED.sub(lambda found: f'{found[1]} @"__nv_{found[2]}{"f" * (found[1] == "float")}"', text)
    declared: set[str] = set()

    def once(found: re.Match[str]) -> str:
        is_first = found[1] not in declared
        declared.add(found[1])
        return found[0] if is_first else ""

    return _DECLARED.sub(once, text)
