"""The command line."""

# Variables with instructions from a command to the program that it starts; see `program` and `started`.
STARTED = "_CUPAR_STARTED"  # as in "run said" or "ask 3 80,90"
STARTED_PATH = "_CUPAR_STARTED_PATH"  # the user's PYTHONPATH
