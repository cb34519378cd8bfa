"""Lines and ranges of launches, for those who ask for them; and nothing for all others."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from support.common import DeviceArray
from support.gpu import pretended

import cupar
from cupar._base import trace
from cupar._device import driver, storage

INIT = np.zeros(1, "i4")
D_IN, D_OUT = DeviceArray(0x7000, 10**6), DeviceArray(0x9000, 1)
STORAGE = DeviceArray(0x8000, 1 << 20)


@pytest.fixture
def make(monkeypatch):
    monkeypatch.delenv("CUPAR_TRACE", raising=False)
    monkeypatch.setattr(driver, "is_plain", lambda stream: True)
    trace._profiler.cache_clear()
    cupar.cache.clear(disk=False)
    pretended(monkeypatch)
    yield lambda: cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, INIT)
    trace._profiler.cache_clear()
    cupar.cache.clear(disk=False)


def test_each_launch_is_a_line(make, monkeypatch, capsys):
    monkeypatch.setenv("CUPAR_TRACE", "1")
    add = make()
    add(STORAGE, D_IN, D_OUT, 10**6, INIT)
    add.run(D_IN, D_OUT, 1, INIT, stream=77)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["cupar_reduce", "cupar_reduce_partials", "cupar_reduce"]
    assert lines[1].endswith("grid=1 block=256 shared=0 stream=0x0 from Python")
    assert " grid=1 " in lines[2] and lines[2].endswith("stream=0x4d from Python")
    assert " grid=1 " not in lines[0]


def test_bound_calls_are_lines_with_what_is_bound_now(make, monkeypatch, capsys):
    monkeypatch.setenv("CUPAR_TRACE", "1")
    monkeypatch.setattr(storage, "allocate", lambda nbytes, stream: 0x8000)
    bound = make().bind(D_IN, D_OUT, 10**6, INIT)
    assert capsys.readouterr().err == ""
    bound()
    first = capsys.readouterr().err
    assert first.count("\n") == 2
    bound.rebind(D_IN, D_OUT, 1, INIT)
    bound()
    bound()
    second = capsys.readouterr().err
    assert second.count("\n") == 2 and second.count("cupar_reduce grid=1") == 2


def test_nobody_asked(make, capsys):
    add = make()
    add(STORAGE, D_IN, D_OUT, 10**6, INIT)
    call, _ = add._take(0)
    call.prepare((1,))
    assert capsys.readouterr().err == ""
    assert call.enqueue.__qualname__ == "Executables.enqueuer.<locals>.enqueue"  # with nothing around it


@pytest.mark.parametrize("off", ["", "0", "off", "False", "no"])
def test_off(monkeypatch, off):
    monkeypatch.setenv("CUPAR_TRACE", off)
    assert not trace.is_on()


def test_a_profiler_gets_ranges(make, monkeypatch):
    seen = []
    fake = SimpleNamespace(
        push_range=lambda name, domain: seen.append((name, domain)),
        pop_range=lambda **given: seen.append(given["domain"]),
    )
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "/some/profiler.so")
    add = make()
    add.run(D_IN, D_OUT, 1, INIT)
    assert seen == [("reduce_into (block)", "cupar"), "cupar"]
    seen.clear()
    add.bind(D_IN, D_OUT, 1, INIT)()
    assert seen == [("reduce_into", "cupar"), "cupar"]
    seen.clear()
    with pytest.raises(TypeError):
        add.run(D_IN, D_OUT, "many", INIT)
    assert seen == []


def test_a_range_ends_with_an_error(monkeypatch):
    seen = []
    monkeypatch.setattr(trace, "_profiler", lambda: (seen.append, lambda: seen.append("end")))
    with pytest.raises(ZeroDivisionError):
        trace.ranged(lambda a: a / 0, "divided")(1)
    assert seen == ["divided", "end"]
