"""Dask arrays: steps that run on blocks, and graphs of them."""
