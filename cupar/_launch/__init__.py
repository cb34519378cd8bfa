"""Launches of kernels: arguments are read and packed, and plans enqueued, as graphs or one by one."""
