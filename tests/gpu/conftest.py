"""Tests that need a GPU. Without one, nothing here is collected.

With CUPAR_GPU_REPORT=FILE, the run is written there as JSON: GPU, driver, versions, counts, and the SHA-256
of the code that was tested.
"""

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

import numpy as np
import pytest

import cupar

ROOT = Path(__file__).parents[2]

# Of these, each second test runs twice: as it is, and with each call replayed, with other values than its
# graph was made with.
REPLAYED = {
    "test_algorithms",
    "test_algorithms_more",
    "test_dtypes",
    "test_iterators",
    "test_properties",
    "test_stateful",
    "test_structs",
}

try:
    from cupar._call import replays
    from cupar._device import driver

    DEVICE = driver.current_device()
    import cupy as cp
except (cupar.NoDeviceError, ImportError):
    DEVICE = None
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def rng():
    return np.random.default_rng(20261121)


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.rpartition(".")[2] in REPLAYED:
        metafunc.parametrize("calls_before", [replays.CALLS_BEFORE, 0], ids=["", "replayed"], indirect=True)


def pytest_collection_modifyitems(config, items):
    replayed = [item for item in items if getattr(item, "callspec", None) and "replayed" in item.callspec.id]
    left_out = set(replayed[1::2])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def calls_before(request):
    """How often a call is made before it is replayed."""
    wanted, kept = getattr(request, "param", replays.CALLS_BEFORE), replays.CALLS_BEFORE
    if wanted == kept:
        yield
        return
    replays.CALLS_BEFORE = wanted
    cupar.cache.clear(disk=False)  # what is loaded knows another number
    yield
    replays.CALLS_BEFORE = kept
    cupar.cache.clear(disk=False)


@pytest.fixture(autouse=True)
def nothing_left_running():
    yield
    cp.cuda.Device().synchronize()


def source_hash() -> str:
    digest = hashlib.sha256()
    found = (path for folder in ("cupar", "tests/gpu") for path in (ROOT / folder).rglob("*"))
    files = [path for path in found if path.suffix in (".py", ".cu", ".cuh", ".h")]
    for path in sorted(files, key=lambda path: path.relative_to(ROOT).as_posix()):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def pytest_terminal_summary(terminalreporter):
    target = os.environ.get("CUPAR_GPU_REPORT")
    if not target or DEVICE is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    counts = {
        name: len(terminalreporter.stats.get(name, [])) for name in ("passed", "failed", "skipped", "error")
    }
    report = {
        "gpu": cp.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "cc": DEVICE.cc,
        "driver": driver_version(),
        "versions": versions(),
        **counts,
        "failures": [report.nodeid for report in terminalreporter.stats.get("failed", [])],
        "source": source_hash(),
    }
    Path(target).write_text(json.dumps(report, indent=2) + "\n")


def driver_version() -> str:
    text = Path("/proc/driver/nvidia/version")
    if text.exists():
        words = text.read_text().split()
        found = [word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()]
        if found:
            return found[0]
    version = cp.cuda.runtime.driverGetVersion()
    return f"CUDA {version // 1000}.{version % 1000 // 10}"


def versions() -> dict[str, str]:
    import platform

    names = [
        "cuda-cccl",
        "numba-cuda",
        "numba",
        "llvmlite",
        "numpy",
        "cuda-bindings",
        "cuda-core",
        "cupy-cuda13x",
        "torch",
        "nvidia-cuda-nvrtc",
        "nvidia-nvjitlink",
    ]
    found = {"python": platform.python_version(), "cupar": cupar.__version__}
    installed = {item.name.lower() for item in importlib.metadata.distributions()}
    return found | {name: importlib.metadata.version(name) for name in names if name in installed}
