"""An algorithm object, and one call of it."""
