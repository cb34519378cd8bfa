"""Algorithms on the CPU: compiled by numba with the same operators and iterators, for host arrays."""
