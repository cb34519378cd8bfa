"""Imports run one way: each file imports from its own floor's room or from floors below, and in no circle."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cupar
from cupar import _numba, _numba_cpu, _pytorch
from cupar._base.versions import NEEDED
from cupar._compile import toolchain

ROOT = Path(cupar.__file__).parent

# From top to bottom; docs/architecture.md draws them. What is side by side imports nothing of its neighbours.
FLOORS = [
    "__main__",
    "_cli",
    "_tune",
    "_ahead",
    "compute",
    "dask torch",
    "_dask _torch",
    "distributed",
    "_fleet",
    "jax",
    "_jax",
    "arrays",
    "_functions",
    "_program",
    "indexed nth_element segmented topk",  # which reduce or sort, too
    "cache reduce sort",  # and all other algorithms, and kernels of the user's
    "_host",
    "_jit",
    "_obtain",
    "_cpu",
    "_call",
    "_launch",
    "_arguments",
    "iterators",
    "_build _inspect",
    "_compile",
    "_kernels",
    "_ir",
    "_fingerprint",
    "_external",
    "_cache",
    "_store",
    "graph",
    "_device",
    "_numba _numba_cpu _pytorch",
    "operators structs",
    "_jobs",
    "_base",
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
ALGORITHMS = FLOOR["reduce"]  # where a file in cupar/ is that is not named above
LONGEST_CHAIN = 21

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.rglob("*.py")
    if path != ROOT / "__init__.py"  # which fetches what it names when it is first used
}


@cache
def imports(name, *, for_types=True):
    """Return what a file imports of cupar: late imports, too, and those for types alone if wanted."""
    path, found = FILES[name], set()
    package = path.relative_to(ROOT).parent.parts
    tree = ast.parse(path.read_text())
    if not for_types:
        tree.body = [
            each
            for each in tree.body
            if not (isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test))
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("cupar")):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            base += tuple((node.module or "").removeprefix("cupar").strip(".").split("."))
            base = ".".join(part for part in base if part)
            for alias in node.names:
                whole = f"{base}.{alias.name}".strip(".")
                found.add(whole if whole in FILES else base)
    return found - {name, ""}


def room(name):
    return name.partition(".")[0]


def floor(name):
    found = room(name)
    return FLOOR.get(found, ALGORITHMS)


def test_every_room_has_a_floor():
    rooms = {room(name) for name in FILES if "_" in name[:1]}
    assert rooms <= set(FLOOR) <= set(map(room, FILES))


def test_imports_run_downwards():
    upwards = [
        (name, other)
        for name in FILES
        for other in imports(name)
        if room(other) != room(name) and floor(other) <= floor(name)
    ]
    assert upwards == []


@cache
def chain(name, for_types):
    """Return the longest chain of imports that begins with a file."""
    below = [chain(other, for_types) for other in sorted(imports(name, for_types=for_types))]
    return [name, *max(below, key=len, default=[])]


def test_no_circle():
    list(TopologicalSorter({name: imports(name) for name in FILES}).static_order())


def test_no_long_chain():
    longest = max((chain(name, False) for name in FILES), key=len)
    assert len(longest) <= LONGEST_CHAIN, " -> ".join(longest)


def test_one_door_to_the_compiler():
    """`_numba` alone imports numba-cuda, and `_numba_cpu` numba."""
    found = []
    for name, path in FILES.items():
        may = name in ("_numba", "_numba_cpu")
        for node in () if may else ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if {module.partition(".")[0] for module in modules} & {"numba", "numba_cuda", "llvmlite"}:
                found.append(f"{name}: {ast.unparse(node)}")
    assert found == []


def test_one_door_to_what_is_private_in_pytorch():
    public = ("_check",)  # which PyTorch documents
    found = []
    for name, path in FILES.items():
        for node in () if name == "_pytorch" else ast.walk(ast.parse(path.read_text())):
            text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.ImportFrom)) else ""
            if re.match(r"(from )?torch\b.*[. ]_(?!_)", text) and not text.endswith(public):
                found.append(f"{name}: {text}")
    assert found == []


@pytest.mark.parametrize(
    ("door", "package"), [(_numba, "numba.cuda"), (_numba_cpu, "numba"), (_pytorch, "torch")]
)
def test_what_the_doors_lead_to(door, package):
    pytest.importorskip(package)
    places = {**door._PLACES, **getattr(door, "_OTHERS", {})}
    assert not [name for name in places if getattr(door, name, None) is None]
    with pytest.raises(AttributeError, match="gone"):
        door.gone


@pytest.mark.parametrize(
    ("door", "place", "project"),
    [
        (_numba, "numba.cuda.gone", "numba-cuda"),
        (_numba, "numba.cuda.types:gone", "numba-cuda"),
        (_numba_cpu, "numba.core.types:gone", "numba"),
        (_pytorch, "torch._C:gone", "torch"),
    ],
)
def test_a_version_without_a_name_is_told(door, place, project, monkeypatch):
    pytest.importorskip(place.rpartition(".")[0])
    monkeypatch.setitem(door._PLACES, "gone", place)
    if door is _pytorch:
        _pytorch._names.cache_clear()
    wanted = re.escape(project + NEEDED[project])
    with pytest.raises(cupar.VersionError, match=f"(?s)^cupar needs {wanted}, found .*gone.*'{wanted}'$"):
        door.gone
    monkeypatch.undo()
    if door is _pytorch:
        assert door.ir


# What code is made with, and cannot change it.
DECIDE_NOTHING = {
    "_base": "waits, logs, words and errors",
    "_cache": "keeps what was made",
    "_compile.demangled": "names in errors",
    "_compile.entries": "keeps what was made",
    "_compile.key": "is the key",
    "_compile.limits": "errors",
    "_compile.numba_errors": "errors",
    "_compile.precompiled": "the code is the same with and without",
    "_compile.symbols": "errors",
    "_compile.toolchain": "its options and versions are in keys by value",
    "_compile.workers": "where it is compiled",
    "_cpu.calls": "runs what was made",
    "_cpu.refusals": "errors",
    "_cpu.threads": "runs what was made",
    "_device": "reads users' arrays; asks the driver",
    "_external.files": "reads users' files, which are in keys by content",
    "_external.kinds": "tells what a value is, by its class",
    "_external.lexer": "the C++ that is changed by it is in keys by content",
    "_external.linkable": "users' code, in keys by content",
    "_external.sources": "the C++ that it changes is in keys by content",
    "_fingerprint.extensions": "refuses what others have registered",
    "_fingerprint.guards": "whether a fingerprint still holds",
    "_fingerprint.refusals": "errors",
    "_fingerprint.registries": "what others have registered",
    "_fingerprint.unsupported": "errors",
    "_fingerprint.varying": "reads numbers for code that was made",
    "_ir.cpp": "the C++ that it writes is in keys by value",
    "_ir.shim": "the C++ that it writes is in keys by content",
    "_ir.source": "the C++ that it writes is in keys by value",
    "_jobs": "where and when it is compiled",
    "_kernels": "the C++ of kernels is in keys by value",
    "_store": "keeps what was made",
    "operators": "what users give is in keys by value",
}


def test_what_decides_code_is_in_keys():
    """A module that others use who make code is in their list, or here with the reason why it need not be."""
    deciding = {*toolchain.KERNELS, *toolchain.OPERATORS, *toolchain.ON_CPU}
    assert deciding <= set(FILES)
    used = {other for name in deciding for other in imports(name)} | {n for n in FILES if room(n) == "_cpu"}
    unknown = {name for name in used - deciding if not {name, room(name)} & set(DECIDE_NOTHING)}
    assert unknown == {"_cpu"}, "is it to be in a list of `_compile/toolchain.py`?"
    assert {name for name in DECIDE_NOTHING if name not in FILES} <= set(map(room, FILES))
    assert not deciding & set(DECIDE_NOTHING)


def test_what_the_handler_of_jax_is_compiled_of_is_in_its_key():
    pytest.importorskip("jax")
    from cupar._jax import runtime

    assert imports("_jax.handler") <= {*runtime.OWN, *toolchain.ON_CPU}
    assert imports("_host.launches") <= {*runtime.OWN, "_numba_cpu"}
