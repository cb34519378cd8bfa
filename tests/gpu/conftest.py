"""Tests that need a GPU. Without one, nothing here is collected.

With CUPAR_GPU_REPORT=FILE, the run is written there as JSON: GPU, driver, versions, counts, and the SHA-256
of the code that was tested.
"""

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path

import pytest
from support import results

import cupar

ROOT = Path(__file__).parents[2]

try:
    from cupar._device import driver

    DEVICE = driver.current_device()
    import cupy as cp
except (cupar.NoDeviceError, ImportError):
    DEVICE = None
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def nothing_left_running():
    yield
    results.finish()


def source_hash() -> str:
    digest = hashlib.sha256()
    found = (
        path for folder in ("cupar", "tests/gpu", "tests/results") for path in (ROOT / folder).rglob("*")
    )
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
        "failures": sorted({report.nodeid for report in terminalreporter.stats.get("failed", [])}),
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
