"""Which items CCCL has no code for, found by building (CCCL 3.6, CUDA 13), and what to do instead.

Its host code chooses by the items' sizes how a kernel is tuned, and so do its kernels, which know structs and
complex numbers as opaque bytes. Where the two disagree, a static assertion fails:

- Unique by key: opaque items of 16 bytes with keys that are numbers, from sm_90 on; on sm_80 with some keys.

And large items need more shared memory than there is. On sm_90, up to 64 bytes build everywhere; 96 not as
items of unique_by_key, 256 not in partitions and segmented sorts, 512 not as keys of unique_by_key. All else
builds with 512 bytes, if slowly.

What never builds is refused before anything is compiled; of the rest, `explained` says it after.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import structs
from .._base.causes import cause
from .._base.errors import BuildError
from .._ir.nodes import Argument
from .._ir.specialisation import Specialisation

_INDICES = "{0} indices in their place, and read the items through a cupar.PermutationIterator"


def check_unique_items(keys: Argument, items: Argument, cc: int) -> None:
    """Raise TypeError for items that CCCL's unique by key has no code for."""
    if _is_opaque(items.value) and items.value.itemsize == 16 and not _is_opaque(keys.value) and cc >= 90:
        pad = "pad the struct to 24 bytes, or " if items.value.names else ""
        raise TypeError(_refused(items, "unique_by_key", f"{pad}{_INDICES.format('select')}"))


def _is_opaque(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "cV"


def _refused(argument: Argument, algorithm: str, instead: str) -> str:
    dtype = argument.value
    return (
        f"{argument.name}: CCCL's {algorithm} has no code for items of {dtype.itemsize} bytes, such as "
        f"{structs.text(dtype)}; {instead}"
    )


@contextmanager
def explained(spec: Specialisation) -> Iterator[None]:
    """Say in a sentence, and not in C++, that CCCL has no code for the items, where that is why it fails."""
    try:
        yield
    except BuildError as error:
        odd = {each.name: each.value for each in spec.arguments if _is_opaque(each.value)}
        sizes = {name: dtype.itemsize for name, dtype in odd.items() if dtype.itemsize not in (1, 2, 4, 8)}
        if not sizes or not any(sign in str(error) for sign in _SIGNS):
            raise
        names = ", ".join(f"{name} (items of {size} bytes)" for name, size in sizes.items())
        raise BuildError(
            f"{names}: CCCL's {spec.algorithm} does not build for these on sm_{spec.cc}; pad the struct, "
            f"make it smaller, or {_INDICES.format('give')} (CUPAR_DEBUG=1 shows what the compiler says)"
        ) from cause(error)


# What is said by CCCL when NVRTC refuses its kernels, and by ptxas.
_SIGNS = ("Failed compiling", "too much shared")
