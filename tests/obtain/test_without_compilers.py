"""Machines without compilers: stored builds run; for a missing one, the error names packages to install."""

import json
import os
import runpy
import subprocess
import sys
from itertools import permutations

import pytest
from support.common import isolated

import cupar
from cupar import _cache
from cupar._base.versions import ABSENT
from cupar._compile import alike, cpu_features, entries, toolchain
from cupar._store.bundle import write
from cupar._store.entry import encode, seal

# Builds on GPUs and the CPU, of each kind of thing that functions in Python are for.
PROGRAM = """
import sys
import numpy as np
import cupar
from cupar import compute, cuda

def add(a, b):
    return a + b

ZERO = np.zeros(1, "i4")
x, y = np.arange(100, dtype="i4"), np.zeros(1, "i4")

@cupar.jit
def kernel(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor

twice = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: i * 2)
made = [
    cupar.reduce_into("i4", "i4", add, ZERO, cc=90),
    cupar.reduce_into(twice, "i4", cupar.OpKind.PLUS, ZERO, cc=90),
    kernel.compile("void(float32[::1], float64)", cc=90),
]
for device in (90, "cpu"):
    given = {"d_in": compute.ProxyArray("i4"), "d_out": compute.ProxyArray("i4"), "op": add, "h_init": ZERO}
    object = compute.make_reduce_into(**given, compute_capability=device)
    made += [type("Made", (), {"build": each}) for each in object.builds.values()]
    blob = object.serialize()
with cupar.device("cpu"):
    reduction = cupar.reduce_into(x, y, add, ZERO)
    reduction.run(x, y, 100, ZERO)
    assert y == 4950
    z = np.zeros(100, "f4")
    roots = cupar.unary_transform(x, z, lambda a: np.sqrt(np.sin(a) + 2.5))  # from C's library, constants
    roots.run(x, z, 100)
    np.testing.assert_allclose(z, np.sqrt(np.sin(x) + 2.5), rtol=1e-6)
    looked_up = cupar.unary_transform(x, z, lambda a: (1.0, 2.0)[a])
    try:
        looked_up.run(x, z, 100)
    except RuntimeError as error:
        assert "IndexError" in str(error)
    else:
        raise AssertionError("nothing was raised")
    made += [reduction, roots, looked_up]
"""
BLOCKED = """
import ctypes, importlib.abc, json, runpy, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "numba_cuda", "llvmlite", "cuda", "nvidia"):
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
load = ctypes.CDLL.__init__

def load_none_of_these(self, name, *args, **named):
    if any(each in str(name) for each in ("nvrtc", "nvJitLink", "nvvm", "llvm")):
        raise OSError(f"blocked: {name}")
    load(self, name, *args, **named)

ctypes.CDLL.__init__ = load_none_of_these
"""
SHOW = """
names = runpy.run_path(sys.argv[1])
builds = [each.build for each in names["made"]]
from cupar import compute
compute.deserialize(open(sys.argv[2], "rb").read())
foreign = [each for each in sys.modules if each.startswith(("numba", "llvmlite", "cuda"))]
print(json.dumps([[[each.origin, each.key, len(each.compilers)] for each in builds], foreign]))
"""
LIST = """
import sys
from cupar._cli.main import main
sys.argv = ["cupar", "build", sys.argv[3]]
sys.exit(main())
"""


def test_what_is_in_a_bundle_runs(tmp_path, empty_cache, monkeypatch):
    (tmp_path / "program.py").write_text(PROGRAM)
    asked = tmp_path / "asked.jsonl"
    monkeypatch.setattr(sys, "argv", ["program"])
    names = runpy.run_path(str(tmp_path / "program.py"))
    (tmp_path / "blob").write_bytes(names["blob"])
    environment = {**os.environ, "CUPAR_RECORD": str(asked)}
    record = [sys.executable, str(tmp_path / "program.py")]
    subprocess.run(record, check=True, env=environment, capture_output=True, timeout=300)
    cupar.cache.export(tmp_path / "bundle")

    def blocked(code, directory="other", **more):
        paths = [str(tmp_path / name) for name in ("program.py", "blob", "asked.jsonl")]
        environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / directory), **more}
        command = [sys.executable, "-c", BLOCKED + code, *paths]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)

    bundles = {"CUPAR_BUNDLES": str(tmp_path / "bundle")}
    done = blocked(SHOW, **bundles)
    assert done.returncode == 0, done.stderr
    builds, foreign = json.loads(done.stdout)
    assert foreign == []
    assert [key for _, key, _ in builds] == [each.build.key for each in names["made"]]
    assert {origin for origin, _, _ in builds} <= {"disk", "memory"}
    assert all(compilers for _, _, compilers in builds), "it tells which compilers these were"

    done = blocked(LIST, **bundles)
    assert done.returncode == 0 and "found in the cache" in done.stdout, done.stderr
    done = blocked(SHOW)
    assert "pip install 'cupar[cu13]'" in done.stderr.splitlines()[-1]
    assert "ImportError: an operator has to be compiled, as no cache" in done.stderr


# --- Which one is found ---------------------------------------------------------------------------------

MEANING = {"entry": "build", "algorithm": "reduce_into", "cc": 90}
HERE = {**MEANING, "versions": {"nvrtc": ABSENT, "numba": ABSENT, "python": "3.11"}}


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    yield from isolated(monkeypatch, tmp_path)


def entry(nvrtc, numba="0.60.0", **more):
    """Return an entry that these versions made, with its key."""
    parts = {**MEANING, "versions": {"nvrtc": nvrtc, "numba": numba, "python": "3.11", **more}}
    return toolchain.digest(parts), _cache.Entry({"parts": parts}, f"{nvrtc} {numba}".encode())


def in_directory(items, tmp_path, monkeypatch):
    own = _cache.disk()
    for key, each in items:
        own.store(key, each)


def in_bundle(items, tmp_path, monkeypatch):
    write(tmp_path / "bundle", [(key, seal(encode(key, each), key, None)) for key, each in items])
    monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "bundle"))


def in_shared_store(items, tmp_path, monkeypatch):
    store = {f"v1/{key[:2]}/{key}": encode(key, each) for key, each in items}
    _cache.use_shared({**store, "v1/lease/" + "0" * 64: b"", "": b""})


@pytest.mark.parametrize("place", [in_directory, in_bundle, in_shared_store])
def test_the_newest_of_what_means_the_same_is_found(place, fresh, tmp_path, monkeypatch):
    kept = [entry("13.0.9"), entry("13.0.88", "0.61.0"), entry("13.0.88"), entry("12345-abcdef")]
    others = [entry("13.9.0", python="3.12")]
    others += [(key, _cache.Entry({}, b"")) for key in ("0" * 64, "f" * 64)]
    others.append((kept[0][0][:8] + "0" * 56, _cache.Entry({}, b"")))  # which begins like them
    place(kept + others, tmp_path, monkeypatch)
    expected = ["13.0.88 0.61.0", "13.0.88 0.60.0", "13.0.9 0.60.0", "12345-abcdef 0.60.0"]
    found = []
    while (each := entries.find(HERE)) is not None:
        found.append(each.entry.payload.decode())
        _cache.discard(each.key)  # what turned out to be unusable
    assert found == expected
    with pytest.raises(ImportError, match=r"reduce_into for sm_90 .*\(NVRTC, numba\): pip install 'cupar"):
        entries.fetch(HERE, pytest.fail, lambda entry: entry)


def test_an_unusable_one_is_passed_over(fresh):
    items = [entry("13.1.0"), entry("13.0.0")]
    in_directory(items, None, None)

    def use(entry):
        if entry.payload.startswith(b"13.1.0"):
            raise ValueError("it is damaged")
        return entry.payload

    with pytest.warns(cupar.CacheWarning, match=items[0][0]):
        found, made = entries.fetch(HERE, pytest.fail, use)
    assert (found.key, made) == (items[1][0], b"13.0.0 0.60.0")


@pytest.mark.parametrize("order", [*permutations(["13.0.1", "13.0.2"])])
def test_no_layer_is_preferred(order, fresh, tmp_path, monkeypatch):
    in_directory([entry(order[0])], None, None)
    in_bundle([entry(order[1])], tmp_path, monkeypatch)
    assert entries.find(HERE).entry.payload == b"13.0.2 0.60.0"


def test_where_compilers_are_only_their_builds_are_found(fresh):
    in_directory([entry("13.0.1")], None, None)
    assert entries.find(entry("13.0.1")[1].meta["parts"]) is not None
    assert entries.find(entry("13.0.2")[1].meta["parts"]) is None


@pytest.mark.parametrize(
    "meta", [{}, {"parts": 1}, {"parts": {"versions": [1]}}, {"parts": {"versions": {}}}]
)
def test_metadata_may_be_anything(meta, fresh):
    key, _ = entry("13.0.1")
    in_directory([(key, _cache.Entry(meta, b"payload"))], None, None)
    assert entries.find(HERE).entry.payload == b"payload"


# --- Code for the CPU -----------------------------------------------------------------------------------


def test_features_are_those_that_llvm_sees():
    _, told = toolchain.cpu_versions()["features of the CPU"]
    assert told and cpu_features.missing(told) == []
    assert cpu_features.missing("+nosuch,+also.no,-neither,+xsave") == ["nosuch", "also.no"]


def test_code_for_another_cpu_is_left_alone(fresh):
    here = {**MEANING, "versions": {"numba": ABSENT, "features of the CPU": [ABSENT, ""], "python": "3.11"}}
    items = []
    for told in ("", "+sse2,+nosuch", 3):
        parts = {
            **MEANING,
            "versions": {**here["versions"], "numba": "1.0", "features of the CPU": ["", told]},
        }
        items.append((toolchain.digest(parts), _cache.Entry({"parts": parts}, str(told).encode())))
    in_directory(items, None, None)
    assert entries.find(here).entry.payload == b""
    versions = toolchain.cpu_versions()
    assert alike.may_run(versions) and not alike.may_run({**versions, "numba": "0.1"})


# --- Versions of libraries ------------------------------------------------------------------------------


def test_libraries_have_versions_that_all_machines_share(tmp_path, monkeypatch):
    file = tmp_path / "lib64" / "libnvrtc.so.13.0.88"
    nvvm = tmp_path / "nvvm" / "lib64" / "libnvvm.so.4.0.0"
    wheel = tmp_path / "site" / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    for each in (file, nvvm, wheel):
        each.parent.mkdir(parents=True)
        each.write_bytes(b"\x7fELF")
    (tmp_path / "site" / "nvidia_cuda_nvrtc-13.0.48.dist-info").mkdir()
    link = file.with_name("libnvrtc.so.13")
    link.symlink_to(file.name)

    def version(name, path):
        monkeypatch.setattr(toolchain, "library_path", lambda _: path)
        return toolchain._library_version.__wrapped__(name)

    assert version("nvrtc", link) == "13.0.88"
    assert version("nvrtc", wheel) == "13.0.48"
    assert version("nvvm", nvvm).startswith("4-"), "a hash: the number is none of CUDA's"
    (tmp_path / "version.json").write_text('{"cuda_nvcc": {\n "name": "nvcc",\n "version" : "13.0.88"}}')
    assert version("nvvm", nvvm) == "13.0.88"
    for name in ("nvrtc", "nvJitLink", "nvvm"):
        monkeypatch.undo()
        assert "-" not in toolchain._library_version(name)
