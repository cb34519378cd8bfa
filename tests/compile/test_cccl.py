"""Headers of another CCCL, named by a variable; a process without UTF-8; private names of CCCL."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import cupar
from cupar._base.versions import package_folder
from cupar._compile import cccl

ROOT = Path(__file__).parents[2]
PRIVATE = runpy.run_path(str(ROOT / ".ci/private"))
HEADERS = package_folder("cuda.cccl.headers.include")

PROGRAM = """
import sys, cupar
from cupar._compile import toolchain
made = cupar.merge("i4", None, "i4", None, "i4", None, cupar.OpKind.LESS, cc=90)
print(made.build.origin, toolchain.template_versions()["cuda-cccl"])
"""


def _linked(folder):
    """Make a checkout of CCCL, of links to the headers."""
    for place, names in {"cub": ["cub"], "thrust": ["thrust"], "libcudacxx/include": ["cuda", "nv"]}.items():
        (folder / place).mkdir(parents=True)
        for name in names:
            (folder / place / name).symlink_to(HEADERS / name)
    return folder


def _run(cache, **more):
    environment = {**os.environ, "CUPAR_CACHE_DIR": os.fspath(cache), "PYTHONPATH": str(ROOT), **more}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, env=environment, cwd="/")
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode().split()


@pytest.mark.slow
def test_headers_of_a_checkout_are_used_and_in_keys(tmp_path):
    checkout = _linked(tmp_path / "cccl")
    (tmp_path / "cache").mkdir(mode=0o700)
    origin, version = _run(tmp_path / "cache", CUPAR_CCCL=str(checkout))
    assert (origin, version.partition("-")[0]) == ("built", "named")
    assert _run(tmp_path / "cache", CUPAR_CCCL=str(checkout))[0] == "disk"
    origin, other = _run(tmp_path / "cache")
    assert (origin, other) == ("built", cccl.package_version("cuda-cccl"))


def test_a_locale_without_utf_8_and_folders_with_accents(tmp_path):
    """Names of files are bytes: they need not be text in the locale's encoding."""
    folder = tmp_path / "Zürich"
    folder.mkdir()
    (folder / "cache").mkdir(mode=0o700)
    os.symlink(HEADERS, folder / "headers")
    without = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert _run(folder / "cache", CUPAR_CCCL=str(folder / "headers"), **without)[0] == "built"


def test_a_folder_without_headers(tmp_path, monkeypatch):
    monkeypatch.setenv("CUPAR_CCCL", str(tmp_path))
    cccl._named.cache_clear()
    with pytest.raises(ImportError, match=r"^CUPAR_CCCL: expected a checkout of CCCL.*got '/"):
        cccl.folders()
    cccl._named.cache_clear()


def test_what_is_private_in_cccl_is_listed():
    listed = (ROOT / ".ci/private.txt").read_text().splitlines()
    assert listed == PRIVATE["used"](), "write what `.ci/private --list` prints to .ci/private.txt"
    some = {"cub::detail::scan::AgentScan", "cub::detail::max_smem_per_block", "<cub/agent/agent_scan.cuh>"}
    assert some <= set(listed)


def test_the_probe_builds_every_family():
    sources = "".join(path.read_text() for path in (ROOT / "cupar/_kernels").glob("*.py"))
    there = {name.lower() for name in re.findall(r"^([A-Z_]+) = Family\(", sources, re.MULTILINE)}
    assert set(PRIVATE["families"]()) == there


@pytest.mark.slow
def test_the_probe_names_the_families_that_a_cccl_breaks(tmp_path):
    """This CCCL has no agent for merge sorts, which that for merges includes."""
    for name in ("cuda", "nv", "thrust"):
        (tmp_path / name).symlink_to(HEADERS / name)
    (tmp_path / "cub/agent").mkdir(parents=True)
    for each in (HEADERS / "cub").iterdir():
        if each.name != "agent":
            (tmp_path / "cub" / each.name).symlink_to(each)
    for each in (HEADERS / "cub/agent").iterdir():
        if each.name != "agent_merge_sort.cuh":
            (tmp_path / "cub/agent" / each.name).symlink_to(each)
    command = [sys.executable, str(ROOT / ".ci/private"), str(tmp_path), "merge_sort", "merge", "transform"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert re.search(r"^transform +builds$", done.stdout, re.MULTILINE), done.stdout + done.stderr
    broken = {line.split()[0]: line for line in done.stdout.splitlines() if " broken: " in line}
    assert (done.returncode, [*broken]) == (1, ["merge_sort", "merge"]), done.stdout + done.stderr
    assert "agent_merge_sort.cuh" in broken["merge_sort"]
    assert done.stdout.endswith("2 families broken; 0 names missing\n")


def test_versions_that_are_refused_elsewhere_may_be_named(monkeypatch):
    monkeypatch.setattr(cccl, "package_version", lambda name: "1.3.0")
    with pytest.raises(cupar.VersionError, match=r"found 1\.3\.0"):
        cccl.folders()
    monkeypatch.setenv("CUPAR_CCCL", str(HEADERS))
    cccl._named.cache_clear()
    assert cccl.folders() == (HEADERS,)
    monkeypatch.undo()
    cccl._named.cache_clear()
