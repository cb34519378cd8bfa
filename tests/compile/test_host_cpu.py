"""What LLVM says of the CPU: kept in the cache, so that hits on the CPU load no LLVM."""

import pytest
from llvmlite import binding as llvm

from cupar import _cache
from cupar._compile import cpu_features, toolchain
from cupar._store.entry import Entry

SAYS = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
KEPT = pytest.mark.skipif(not cpu_features.decisive(), reason="Linux does not tell what decides LLVM's words")


@pytest.fixture
def asked(monkeypatch):
    """The times that LLVM was asked, in a process that does not know what it said."""
    times = []

    def ask():
        times.append(1)
        return "\n".join(SAYS).encode()

    monkeypatch.setattr(toolchain, "_host_cpu", ask)
    return times


def host_cpu():
    """Ask as a new process does."""
    return toolchain.host_cpu.__wrapped__()


def test_it_is_what_llvm_says():
    assert host_cpu() == SAYS


@KEPT
def test_llvm_is_asked_once(empty_cache, asked):
    assert [host_cpu(), host_cpu()] == [SAYS, SAYS]
    assert len(asked) == 1


@KEPT
@pytest.mark.parametrize("changed", ["flags", "model", "stepping"])
def test_another_cpu_is_asked_for(changed, empty_cache, asked, monkeypatch):
    host_cpu()
    monkeypatch.setattr(cpu_features, "_told", lambda told=cpu_features._told(): {**told, changed: "other"})
    host_cpu()
    assert len(asked) == 2


@KEPT
def test_another_llvm_is_asked_for(empty_cache, asked, monkeypatch):
    host_cpu()
    monkeypatch.setattr(toolchain, "package_version", lambda name: "another")
    host_cpu()
    assert len(asked) == 2


def test_where_linux_does_not_tell_llvm_is_asked_each_time(empty_cache, asked, monkeypatch):
    monkeypatch.setattr(cpu_features, "_told", lambda: {"flags": "sse"})
    assert [host_cpu(), host_cpu()] == [SAYS, SAYS]
    assert len(asked) == 2


@KEPT
@pytest.mark.parametrize(
    "payload", [b"", b"znver4\n+avx2,", b"znver4 \n+avx2", b"\xff\n", b"/lib/libnvrtc.so"]
)
def test_anything_else_under_its_key_is_not_used(payload, empty_cache, asked):
    host_cpu()
    (key,) = [each.key for each in _cache.disk().entries()]
    _cache.disk().store(key, Entry(toolchain._SAID, payload))
    assert host_cpu() == SAYS
    assert len(asked) == 2
