"""What `cupar.jax` is made of: programs, their handler, and functions."""
