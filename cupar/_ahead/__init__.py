"""Recorded requests of one run, built or loaded ahead of another."""
