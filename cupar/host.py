"""Compiled host code: functions under ``numba.njit`` that run algorithms and launch kernels by themselves.

Such a function takes device arrays as views, streams as handles, and algorithm objects as they are, given as
arguments or read as globals. No Python object is touched while it runs: it may release the interpreter's lock
(``nogil=True``) and run in many threads. Without ``njit`` the same function does the same.

>>> import cupar, numba                                               # doctest: +SKIP
>>> @numba.njit(nogil=True)                                           # doctest: +SKIP
... def steps(u, v, total, n, stream):
...     for _ in range(n):
...         diffuse.run(u, v, u.size, stream)
...         u, v = v, u
...     sum_into.run(u, total, u.size, 0.0, stream)
>>> steps(cupar.view(u), cupar.view(v), cupar.view(total), 1000, 0)   # doctest: +SKIP
"""

from __future__ import annotations

from ._host.view import View, view

__all__ = ["View", "view"]
