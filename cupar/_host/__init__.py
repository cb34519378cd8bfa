"""Compiled host code: views, algorithms and kernels in functions under ``numba.njit``."""
