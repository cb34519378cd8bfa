"""Streams of any library, and the absence of a GPU."""

import ctypes

import pytest
from support.common import context

import cupar
from cupar._device import driver, storage


class Object:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Protocol:
    def __cuda_stream__(self):
        return (0, 77)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (77, 77),
        (Protocol(), 77),
        (Object(__cuda_stream__=(0, 77)), 77),
        (Object(ptr=77), 77),
        (Object(cuda_stream=77, ptr=None), 77),
        (Object(handle=77), 77),
        (Object(handle=ctypes.c_void_p(77)), 77),
        (Object(handle=ctypes.c_void_p()), 0),
    ],
)
def test_streams(stream, handle):
    assert driver.stream_handle(stream) == handle


def raising():
    raise ZeroDivisionError("broken")


@pytest.mark.parametrize(
    "stream",
    [
        "77",
        7.5,
        object(),
        -1,
        2**64,
        [],
        True,
        Object(ptr=-1),
        Object(ptr="77"),
        Object(ptr=7.5),
        Object(handle=[]),
        Object(__cuda_stream__=raising),
        Object(__cuda_stream__=lambda: None),
        Object(__cuda_stream__=lambda: 77),
        Object(__cuda_stream__=lambda: (0, "77")),
        Object(__cuda_stream__=(0,)),
        Object(__cuda_stream__=()),
        type("Raises", (), {"ptr": property(lambda self: 1 // 0)})(),
    ],
)
def test_not_a_stream(stream):
    with pytest.raises(TypeError, match="^stream: expected"):
        driver.stream_handle(stream)


class NoDriver:
    def __init__(self, status):
        self.cuInit = lambda flags: status


@pytest.fixture
def fresh(monkeypatch):
    driver.library.cache_clear()
    yield monkeypatch
    driver.library.cache_clear()


def test_no_driver(fresh):
    def none(name):
        raise OSError

    fresh.setattr(ctypes, "CDLL", none)
    with pytest.raises(cupar.NoDeviceError, match=r"no libcuda.*pass cc="):
        driver.current_device()


def test_driver_without_a_gpu(fresh):
    fresh.setattr(ctypes, "CDLL", lambda name: NoDriver(100))
    with pytest.raises(cupar.NoDeviceError, match=r"cuInit returned 100.*pass cc="):
        driver.current_device()


class ClearedByOthers(dict):
    """Counts that another thread clears whenever one is stored."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.clear()


def test_uses_of_streams_that_another_thread_clears(monkeypatch):
    monkeypatch.setattr(driver, "_parts", {})
    context().part(storage.ContextMemory).uses = ClearedByOthers()
    for _ in range(10):
        assert context().part(storage.ContextMemory).workspace(7, 7) is None
