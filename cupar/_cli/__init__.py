"""The command line."""

# Variables by which a command tells a program that it starts what to do; see `program` and `started`.
STARTED = "_CUPAR_STARTED"  # as in "run said" or "ask 3 80,90"
STARTED_PATH = "_CUPAR_STARTED_PATH"  # the user's PYTHONPATH
