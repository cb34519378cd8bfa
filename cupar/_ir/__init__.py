"""Operators and iterators as kernels see them."""
