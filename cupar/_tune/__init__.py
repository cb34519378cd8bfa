"""Measuring policies on the user's own card, and keeping the best as entries of the cache."""
