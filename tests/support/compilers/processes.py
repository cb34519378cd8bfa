"""Processes of a run: pytest's own, cupar's helpers, and those that tests start with `AS_IN_THE_RUN`.

Other processes that tests start compile for themselves, as for users.
"""

import os
from pathlib import Path
from types import SimpleNamespace

from cupar._jobs import helpers

from . import headers, shared

FOLDER = "COMPILED_ONCE"  # the variable that tells processes where they share what is compiled

AS_IN_THE_RUN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from support import compilers
del sys.path[0]
compilers.as_in_the_run(many=False)
"""

shared.real[helpers, "_PROGRAM"] = helpers._PROGRAM
_SERVES = "_helpers.serve(pipe)"


def once(folder, patch, many=True):
    """Have this process and its helpers compile what no other has, and keep headers for `many` templates."""
    patch.setenv(FOLDER, str(folder))
    shared.share(folder, patch)
    program = shared.real[helpers, "_PROGRAM"].replace(_SERVES, AS_IN_THE_RUN + _SERVES)
    patch.setattr(helpers, "_PROGRAM", program)
    headers.keep(many)


def as_in_the_run(many=True):
    """Do so in a process that a test has started; without a run, it compiles as for users."""
    if FOLDER in os.environ:
        patch = SimpleNamespace(setattr=setattr, setenv=os.environ.__setitem__)
        once(Path(os.environ[FOLDER]), patch, many)
