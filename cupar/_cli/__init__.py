"""The command line."""

# How a command tells a program that it starts what to do; see `program` and `started`.
STARTED = "CUPAR_STARTED"  # as in "run said" or "ask 3 80,90"
STARTED_PATH = "CUPAR_STARTED_PATH"  # the user's PYTHONPATH
