"""The driver, memory, captured streams, arrays."""
