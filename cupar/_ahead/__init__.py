"""What a run asked for, written down; built or loaded in another run."""
