"""Arguments of factories and calls: initial values."""
