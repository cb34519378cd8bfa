"""What the tests of the cache share."""

import hashlib
import os
import threading
from contextlib import nullcontext
from pathlib import Path

import cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._device import driver
from cupar._kernels.image import Image, properties_in

NO_CODE = Image({}, b"\x7fELF").dumps()  # a build with nothing in it, of 4 bytes

LIGHT = f"""
import hashlib, os, sys, time, types, warnings
from contextlib import suppress
cupar = types.ModuleType("cupar")  # the package without what its __init__ imports
cupar.__path__ = [{str(Path(cupar.__file__).parent)!r}]
sys.modules["cupar"] = cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._cache import fetch
from cupar._store.entry import Entry

def log(text):
    with open("log", "a") as file:
        file.write(text + "\\n")

def until(name):
    while not os.path.exists(name):
        time.sleep(0.002)
"""
"""What a process runs first that uses the cache alone, and so is started in no time."""


def refuse(*_args, **_kwargs):
    raise AssertionError("this must not be called")


def failing(code):
    def fail(*_args, **_kwargs):
        raise OSError(code, os.strerror(code))

    return fail


def isolated(monkeypatch, tmp_path):
    """Give a test a cache directory, no store, and a process that has not warned yet; to be yielded from."""
    for name in list(os.environ):
        if name.startswith("CUPAR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setattr(_cache, "unusable", set())
    yield
    _cache.use_shared(None)
    _cache._stores.clear()


def in_threads(number, work):
    """Run `work` in threads that start together; return results and exceptions."""
    start = threading.Barrier(number)
    results = []

    def run():
        start.wait()
        try:
            results.append(work())
        except BaseException as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(results) == number
    return results


def context(ordinal=0, cc=90, number=None):
    """Return a context as if there was a GPU; each device has a primary one."""
    device = driver.Device(ordinal, cc)
    return driver.Context(ordinal + 1 if number is None else number, device, number is None)


def pretend(monkeypatch, found):
    """Pretend that there is a GPU, and that this context of it is current."""
    monkeypatch.setattr(driver, "current_context", lambda: found)
    monkeypatch.setattr(driver, "is_there", lambda context: True)
    monkeypatch.setattr(driver, "relaxed_capture_mode", nullcontext)


KEY, OTHER = hashlib.sha256(b"a").hexdigest(), hashlib.sha256(b"b").hexdigest()
PREAMBLE = LIGHT + f"KEY, OTHER = {KEY!r}, {OTHER!r}\n"
"""The same, with two keys."""


class DeviceArray:
    """An array at an address that nobody reads."""

    def __init__(self, address, size=1000, typestr="<i4"):
        self.__cuda_array_interface__ = {
            "typestr": typestr,
            "shape": (size,),
            "strides": None,
            "data": (address, False),
            "version": 3,
        }


def fresh_cache(monkeypatch, tmp_path):
    """Give a test a cache directory, no warnings given yet and counts at zero."""
    for name in ("CUPAR_CACHE", "CUPAR_CACHE_SIZE", "CUPAR_LOCK_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_warnings, "warned", set())
    _cache.reset_stats()


def stored_properties(algorithm):
    """Return the properties of a build, as its entry in the cache has them."""
    return properties_in(_cache.find(algorithm.build.key).entry.payload)
