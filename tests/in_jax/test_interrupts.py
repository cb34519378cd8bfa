"""Ctrl-C while XLA calls Python, and while the handler is registered."""

import signal
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("numba")

from support.interrupts import each_interrupt  # noqa: E402

import cupar  # noqa: E402
from cupar._cpu import bit_sorts  # noqa: E402
from cupar._jax import runtime  # noqa: E402
from cupar.jax import sort  # noqa: E402

X = np.random.default_rng(0).standard_normal((20, 30)).astype(np.float32)
SORTED = np.sort(X)
OWN = "/cupar/_"


def eager():
    np.testing.assert_array_equal(np.asarray(sort(X)), SORTED)


compiled = jax.jit(sort)


def jitted():
    try:
        np.testing.assert_array_equal(np.asarray(compiled(X)), SORTED)
    except ValueError:  # JAX's, until Python looks for what is to be raised in this thread, as in a loop
        for _ in range(9):
            pass


@pytest.mark.parametrize("work", [eager, jitted])
def test_no_interrupt_of_a_call_from_xla_is_lost(work, ctrl_c):
    work()
    assert each_interrupt(work, work, OWN) > 10


@pytest.fixture
def alarm():
    """Have SIGALRM raise TimeoutError."""

    def raises(*_):
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, raises)
    yield
    signal.signal(signal.SIGALRM, previous)


def test_a_handler_of_signals_raises_in_a_call(monkeypatch, alarm):
    jitted()
    monkeypatch.setattr(bit_sorts, "sort", lambda *given: signal.raise_signal(signal.SIGALRM))
    with pytest.raises(TimeoutError):
        jitted()


def test_a_handler_of_signals_raises_before_a_call_has_begun(monkeypatch, alarm):
    """What it raises comes right after the call, which is done."""
    calls = []

    def at_entry(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith("_jax/runtime.py"):
            sys.setprofile(None)
            signal.raise_signal(signal.SIGALRM)

    jitted()
    monkeypatch.setattr(bit_sorts, "sort", lambda *given, own=bit_sorts.sort: calls.append(own(*given)))
    try:
        sys.setprofile(at_entry)
        with pytest.raises(TimeoutError):
            jitted()
    finally:
        sys.setprofile(None)
    assert calls == [None]


def test_an_interrupted_registration_is_taken_up_again(monkeypatch, ctrl_c):
    function, _ = runtime._handler[0]

    def register():
        runtime._handler.clear()
        runtime.register()

    assert each_interrupt(register, jitted, OWN) > 1
    register()
    assert runtime._handler[0][0] is function
    jitted()


def test_other_versions_of_xla_are_refused(tmp_path, monkeypatch):
    header = tmp_path / "xla" / "ffi" / "api" / "c_api.h"
    header.parent.mkdir(parents=True)
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))

    def of(major, minor):
        header.write_text(f"#define XLA_FFI_API_MAJOR {major}\n#define XLA_FFI_API_MINOR {minor}\n")
        return runtime._version()

    assert [of(0, minor) >> 32 for minor in (1, 2, 3, 4)] == [1, 2, 3, 3]
    for version in ((1, 0), (0, 0)):
        with pytest.raises(cupar.VersionError, match=r"expected JAX with version 0\.1 to 0\.3 of XLA"):
            of(*version)
