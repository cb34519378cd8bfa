"""`cupar.cache.clear` empties every table of this process that has builds, or what was made of builds."""

import ast
import importlib
import os
import re
from pathlib import Path

import numpy as np
import pytest

import cupar
from cupar._base import bounded as tables
from cupar._base.data import Recent

ROOT = Path(cupar.__file__).parent
A_TABLE = re.compile(
    r"\{\}|\[\]|set\(\)|(?:of_builds\()?(?:\w+\.)?(?:Recent|Bounded|SingleFlightCache|Weak\w+|Counter)\b.*\)"
)

# Tables without builds, and those that must stay, by room or by name.
OTHERS = {
    "_base": "of functions, versions and warnings",
    "_cache": "the layers on disk",
    "_cli": "commands",
    "_compile": "of compilers and their versions, and what numba was told",
    "_cpu": "of functions that templates are compiled of",
    "_dask._known": "operators that tasks were sent",
    "_dask": "ranks of a sort that meet",
    "_device": "of the driver, by context and device, and of classes of arrays",
    "_external": "of files",
    "_fingerprint": "what functions read",
    "_fleet": "operators, libraries, and work that others have not ended",
    "_functions._flags_of": "names of parameters",
    "_functions.there": "operators",
    "_functions._known": "the libraries of arrays, by class",
    "_functions._torch": "libraries of arrays",
    "_functions._cupy": "libraries of arrays",
    "_functions._numba": "libraries of arrays",
    "_functions._torch_dtype": "dtypes",
    "_host": "of numba's types: compiled host code has the addresses",
    "_inspect": "what was written, and where the disassembler is",
    "_ir._array": "of types",
    "_ir.array_parts": "of types",
    "_ir.varying_parts": "of types",
    "_ir._plain": "of types",
    "_ir._python": "texts of operators",
    "_ir._identities": "lives as long as the nodes",
    "_jax._codes": "programs have the addresses",
    "_jax._libraries": "programs have the addresses",
    "_jax._kept": "programs have the addresses",
    "_jax._handler": "XLA has the address",
    "_jax._code": "XLA has the address",
    "_jax._made": "functions of operators",
    "_jax._offsets": "of formats",
    "_jobs": "threads",
    "_kernels": "sources",
    "_launch._retired": "libraries that wait to be unloaded",
    "_launch": "of functions, and whether PyTorch's guards work",
    "_numba": "declarations",
    "_obtain.tables": "the tables of factories, each of which is registered",
    "_pytorch": "names",
    "_store": "of locks",
    "_torch._direct": "operators, which PyTorch keeps",
    "_torch._known": "operators, which PyTorch keeps",
    "_torch._made": "operators, which PyTorch keeps",
    "_torch.families": "functions that make operators",
    "_torch._waiting": "lowerings, which PyTorch is given",
    "compute.functions": "names",
    "structs": "dtypes and classes",
}


def found_tables():
    """Yield the modules and names of module-level tables, and of functions with a cache."""
    for path in sorted(ROOT.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if re.search(r"\b(lru_)?cache\b(\(|$)", " ".join(map(ast.unparse, node.decorator_list))):
                    yield module, node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if A_TABLE.fullmatch(ast.unparse(node.value)) and isinstance(target, ast.Name):
                    yield module, target.id


def test_every_table_is_registered_or_has_no_builds():
    for package in ("jax", "torch", "dask", "numba.cuda"):
        pytest.importorskip(package)
    unknown, told = [], set()
    for module, name in found_tables():
        room = module.removeprefix("cupar.").partition(".")[0]
        reasons = [each for each in (f"{room}.{name}", room) if each in OTHERS]
        if module.startswith("cupar._cli"):
            told.update(reasons)
            continue
        table = getattr(importlib.import_module(module), name, None)
        if any(each is table for each in tables.registered):
            continue
        told.update(reasons[:1])
        if not reasons:
            unknown.append(f"{module}.{name}")
    assert unknown == [], "of builds? then `of_builds`, or else OTHERS"
    assert {*OTHERS} - told == set(), "there is none any more"


def test_clear_empties_those_of_pytorch(empty_cache):
    torch = pytest.importorskip("torch")
    from cupar import torch as ct

    x = torch.full((3, 4), 0.5)
    for _ in range(2):
        expected = ct.linear_recurrence(x, x)
    scanned = ct.scan(x, lambda a, b: a + b, dim=1)
    assert [each for each in tables.registered if isinstance(each, Recent) and each.all()]
    cupar.cache.clear(disk=False)
    assert not [each for each in tables.registered if isinstance(each, Recent) and each.all()]
    assert torch.equal(ct.linear_recurrence(x, x), expected)
    assert torch.equal(ct.scan(x, lambda a, b: a + b, dim=1), scanned)


def test_clear_empties_those_of_jax(empty_cache):
    jax = pytest.importorskip("jax")
    from cupar import jax as cj
    from cupar._jax import primitive

    x = jax.numpy.arange(5.0)
    assert cj.sort(x, descending=True).tolist() == [4, 3, 2, 1, 0]
    assert primitive._jitted.cache_info().currsize
    cupar.cache.clear(disk=False)
    assert not primitive._jitted.cache_info().currsize
    assert cj.sort(x, descending=True).tolist() == [4, 3, 2, 1, 0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # JAX's, of forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's
def test_a_forked_child_begins_without_them():
    table = tables.of_builds(Recent(4))
    table["build"] = np.ones(3)
    try:
        child = os.fork()
        if not child:
            os._exit(len(table.all()))
        assert os.waitpid(child, 0)[1] == 0
        assert table["build"].sum() == 3
    finally:
        tables.registered.remove(table)
