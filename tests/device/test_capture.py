"""A capture that loads kernels and keeps nothing: of a driver that is none."""

from contextlib import contextmanager

import pytest

from cupar._device import driver, stream_capture

STREAM, GRAPH = 600, 7


class Library:
    """Gives out numbers as handles, and takes down what it is asked."""

    def __init__(self):
        self.asked, self.relaxed = [], 0

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            assert self.relaxed, name
            self.asked.append(name)
            if name == "cuStreamCreate":
                arguments[0]._obj.value = STREAM
            if name == "cuStreamEndCapture":
                arguments[1]._obj.value = GRAPH
            return 0

        return call


@pytest.fixture
def library(monkeypatch):
    library = Library()

    @contextmanager
    def relaxed():
        library.relaxed += 1
        yield
        library.relaxed -= 1

    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(driver, "relaxed_capture_mode", relaxed)
    return library


WHOLE = [
    "cuStreamCreate",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphDestroy",
    "cuStreamDestroy_v2",
]


def test_nothing_is_left(library):
    with stream_capture.discarding() as stream:
        assert stream == STREAM
        assert library.asked == WHOLE[:2]
    assert library.asked == WHOLE
    assert not library.relaxed


def test_what_fails_ends_the_capture(library):
    with pytest.raises(ZeroDivisionError), stream_capture.discarding():
        1 / 0
    assert library.asked == WHOLE


def test_a_capture_that_does_not_begin(library, monkeypatch):
    def interrupted(status, call):
        if call == "cuStreamBeginCapture":
            raise KeyboardInterrupt

    monkeypatch.setattr(driver, "check", interrupted)
    with pytest.raises(KeyboardInterrupt), stream_capture.discarding():
        pass
    assert library.asked[-1] == "cuStreamDestroy_v2"
