"""CCCL's device-wide parallel algorithms from Python, each specialisation built once."""
