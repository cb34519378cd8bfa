"""The command line."""

import sys

# Variables with instructions from a command to the program that it starts; see `program` and `started`.
STARTED = "_CUPAR_STARTED"  # lines: `PYTHON`, the purpose, and its words
STARTED_PATH = "_CUPAR_STARTED_PATH"  # the user's PYTHONPATH

PYTHON = f"{sys.implementation.cache_tag} {sys.prefix}"  # which is to start cupar: start/sitecustomize.py
CHILDREN, ALONE = "children", "alone"  # whether new processes of the program are to start cupar, too
