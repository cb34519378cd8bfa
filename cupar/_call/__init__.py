"""Algorithm objects, the base class that they share with users' kernels, and bound calls."""
