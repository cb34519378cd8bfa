"""Kernels of the user's: types of what they are given, what is built for them, and launches."""
