"""The GPU's time of calls, of events as a profiler tells them."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def gpu_time(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu_time")


def test_events_are_parted_into_calls(gpu_time):
    events = [gpu_time.Event("kernel", 1000.0 * call + 5 * k, 3.0) for call in range(4) for k in range(3)]
    assert gpu_time.calls_of(events, 4) == [events[i : i + 3] for i in (0, 3, 6, 9)]
    assert gpu_time.calls_of(events[1:], 4) == [events[1:3], *[events[i : i + 3] for i in (3, 6, 9)]]
    with pytest.raises(RuntimeError, match="no kernel"):
        gpu_time.calls_of([], 4)
