"""Device code from elsewhere: functions in C++ for operators and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any

from ._external.cpp import CppFunction, function

__all__ = ["CppFunction", "cpp"]


def cpp(
    source: str | PathLike[str],
    signature: Any,
    *,
    name: str | None = None,
    include: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
    options: str | Sequence[str] = (),
) -> CppFunction:
    """Make a device function from C++, for operators and kernels to call, or to be an operator itself.

    NVRTC compiles it once: the cache keeps it by the content of the source and of all that it includes,
    whatever the files are called and wherever they are.

    Parameters
    ----------
    source : str or path
        C++ that defines a ``__device__`` function, or the file of it. The headers of CUDA and CCCL are there
        to be included, and so do what is beside the file and absolute paths. A macro may not name the file
        that is included. The file is read when this is called.
    signature : str, numba signature or (result, list of arguments)
        As in ``"float32(float32, int64)"`` or, for dtypes and struct types, ``(np.float32, [np.float32,
        Pair])``. ``void`` (None among dtypes) is no result; ``float32[::1]`` is a C-contiguous array, of
        which the function gets a pointer to the first item, and ``float32*`` a pointer.
    name : str, optional
        Of the function, if the source defines several, or a template: ``"scale<3>"``.
    include : path or list of paths, optional
        Folders in which the source finds what it includes, before those of CUDA and CCCL.
    options : str or list of str, optional
        Of NVRTC: ``-D…``, ``-U…``, ``-std=…``, ``--use_fast_math`` and the like.

    Returns
    -------
    CppFunction
        Complex numbers and structs are in C++ any type of that size, such as ``float2``, or a struct with the
        same fields.

    Raises
    ------
    TypeError, ValueError
        If an argument is none of these, a file is missing, or it is not clear which function is meant.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> hypot = cupar.cpp("__device__ float hyp(float a, float b) { return sqrtf(a * a + b * b); }",
    ...                   "float32(float32, float32)")
    >>> hypot
    <cupar.cpp hyp: float32(float32, float32)>
    >>> norm = cupar.reduce_into(np.float32, np.float32, lambda a, b: hypot(a, b), np.float32(0), cc=90)
    >>> norm.build.algorithm
    'reduce_into'
    """
    return function(source, signature, name, include, options)
