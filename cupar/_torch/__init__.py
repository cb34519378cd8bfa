"""Operators of PyTorch: recurrences and scans with gradients, and the functions of `cupar.arrays`."""
