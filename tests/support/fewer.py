"""Which parameters of a test run, where all together say little more than a part of them."""

from collections import Counter

import pytest


def every(step):
    """Have a test run with every so many of its parameters only, where each costs builds or processes.

    All values of each parameter are among them, if `step` and the number of those that vary first have no
    common factor. ``pytest --all`` runs all.
    """
    return pytest.mark.every(step)


def deselect(config, items):
    """Leave out what `every` says."""
    if config.getoption("all"):
        return
    seen, kept, left = Counter(), [], []
    for item in items:
        mark = item.get_closest_marker("every")
        number = seen[item.parent, item.originalname]
        seen[item.parent, item.originalname] += mark is not None
        (left if mark is not None and number % mark.args[0] else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
