"""Random calls on the CPU, and what plain loops over numbers give; see `tests/cpu/test_fuzz.py`."""
