"""Tests of results against NumPy's: on a GPU, or on the CPU."""

import pytest
from support.results import IS_CPU, finish

from cupar._base import device


@pytest.fixture(autouse=True)
def where_they_run(monkeypatch):
    """Run on the CPU as with CUPAR_DEVICE=cpu, in threads of the test's, too."""
    if IS_CPU:
        monkeypatch.setattr(device, "_default", True)
    yield
    finish()
