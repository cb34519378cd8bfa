"""What a function does: its digest, and a copy that stays as it is."""
