"""Large items, for which a kernel needs more shared memory than there is, and what to do instead.

On sm_90, items of 512 bytes build everywhere, if slowly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import structs
from .._base.causes import cause
from .._base.errors import BuildError
from .._ir.specialisation import Specialisation


@contextmanager
def explained(spec: Specialisation) -> Iterator[None]:
    """Say in a sentence that items are too large, where that is why ptxas refuses a kernel."""
    try:
        yield
    except BuildError as error:
        odd = [each for each in spec.arguments if structs.has_parts(each.value)]
        sizes = {each.name: size for each in odd if (size := each.value.itemsize) not in (1, 2, 4, 8)}
        if not sizes or "too much shared" not in str(error):
            raise
        names = ", ".join(f"{name} (items of {size} bytes)" for name, size in sizes.items())
        raise BuildError(
            f"{names}: {spec.algorithm} does not build for these on sm_{spec.cc}; pad the struct, "
            "make it smaller, or give indices in their place, and read the items through a "
            "cupar.PermutationIterator (CUPAR_DEBUG=1 shows what the compiler says)"
        ) from cause(error)
