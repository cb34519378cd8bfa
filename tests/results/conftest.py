"""Tests of results against NumPy's: on a GPU, or on the CPU."""

from collections import Counter

import pytest
from support.results import IS_CPU, cp

from cupar._base import device


def pytest_collection_modifyitems(config, items):
    """Leave out what `support.results.every` says."""
    seen, kept, left = Counter(), [], []
    for item in items:
        mark = item.get_closest_marker("every_on_the_cpu") if IS_CPU else None
        number = seen[item.parent, item.originalname]
        seen[item.parent, item.originalname] += mark is not None
        (left if mark is not None and number % mark.args[0] else kept).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.fixture(autouse=True)
def where_they_run(monkeypatch):
    """Run on the CPU as with CUPAR_DEVICE=cpu, in threads of the test's, too."""
    if IS_CPU:
        monkeypatch.setattr(device, "_default", True)
    yield
    cp.cuda.Device().synchronize()
