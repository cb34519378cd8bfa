"""Kernels: their C++ sources, the policies they are tuned by, and plans of what is launched."""
