"""Fixtures of tests of programs."""

import pytest

from cupar._program import known


@pytest.fixture
def forgotten():
    """No program is known, and no key."""
    known._KNOWN.clear()
    known._RECENT.clear()
    known._READERS.clear()


@pytest.fixture
def traces(monkeypatch):
    """The calls that were traced."""
    found, traced = [], known.traced
    monkeypatch.setattr(known, "traced", lambda *given: found.append(given[0]) or traced(*given))
    return found
