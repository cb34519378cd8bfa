"""The compilers, and what a build depends on: its key."""
