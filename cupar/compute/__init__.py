"""The interface of ``cuda.compute`` 1.2.1, over cupar's own algorithms: change the import, and nothing else.

>>> import cupar.compute as compute
>>> compute.reduce_into(d_in=x, d_out=out, num_items=n, op=lambda a, b: a + b)   # doctest: +SKIP

All names, parameters and forms are those of ``cuda.compute``: one call that does all, named arguments alone;
``make_…`` objects, which take operators and iterators anew in each call; ``compute_capability=``, with one
or several; `serialize` and `deserialize`. Builds are kept in cupar's cache, and a one-call form costs
what asking a factory of `cupar` again, and ``run``, cost. Each name is fetched from its file when it is first
used. ``stream=None`` is the current stream of the arrays' library, as for `cupar.Algorithm`: that is the
default stream, as in ``cuda.compute``, unless a program has made another one current.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._base.lazy import fetched
from ._table import TABLE

_NAMES = {
    "_algorithms": " ".join(["DoubleBuffer SortOrder", *TABLE, *(f"make_{each}" for each in TABLE)]),
    "_made": "clear_all_caches clear_pch_cache pch_cache_dir",
    "_proxy": "ProxyArray ProxyValue",
    "_serialized": "deserialize serialize",
    "determinism": "Determinism",
    "iterators": (
        "CacheModifiedInputIterator ConstantIterator CountingIterator DiscardIterator PermutationIterator "
        "ReverseIterator ShuffleIterator TransformIterator TransformOutputIterator ZipIterator"
    ),
    "op": "OpKind",
    "struct": "gpu_struct",
}
_SUBMODULES = frozenset(("algorithms", "determinism", "iterators", "op", "struct", "types", "typing"))
_MODULES = fetched(__name__, __name__, _NAMES, _SUBMODULES, ": it has the public names of cuda.compute 1.2.1")

_BINDINGS_AVAILABLE = True  # where cuda.compute has False, without a driver, this builds all the same

__all__ = ["_BINDINGS_AVAILABLE", *sorted(_MODULES)]  # noqa: PLE0604

if TYPE_CHECKING:  # the same for type checkers
    from ._algorithms import *  # noqa: F403
    from ._made import *  # noqa: F403
    from ._proxy import *  # noqa: F403
    from ._serialized import *  # noqa: F403
    from .determinism import *  # noqa: F403
    from .iterators import *  # noqa: F403
    from .op import OpKind as OpKind
    from .struct import gpu_struct as gpu_struct
