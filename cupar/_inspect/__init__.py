"""Listings of entries, and reasons of cache misses."""
