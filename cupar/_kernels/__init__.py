"""Kernels: their C++ sources, tuning policies, and launch plans."""
