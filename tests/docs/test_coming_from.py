"""The page on where users come from: its tables leave no name out, and what they show is right."""

import ast
import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import cupar
from cupar import _build
from cupar._obtain import obtain

PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
CODE = re.compile(r"`([^`]+)`")


def rows():
    """Yield line, and the three cells of each row of a table."""
    for number, line in enumerate(PAGE.read_text().split("\n"), start=1):
        if line.startswith("| ") and not line.startswith("| ---"):
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            yield number, [*cells, ""][:3] if len(cells) < 3 else cells


ROWS = [(number, code) for number, cells in rows() for code in CODE.findall(cells[1])]


@pytest.fixture(scope="module")
def names():
    """What the first block of the page defines."""
    found = {}
    exec(re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[1], found)
    return found


@pytest.fixture
def operators_alone(monkeypatch):
    """Compile what is asked for but for kernels, which takes seconds each."""
    built = []

    def ask(spec, answer):
        built.append(_build.operators(spec, {}))
        return SimpleNamespace(is_built=False)

    monkeypatch.setattr(obtain, "observer", SimpleNamespace(cc=90, observe=ask))
    return built


@pytest.mark.parametrize(("line", "code"), ROWS, ids=[str(line) for line, _ in ROWS])
def test_what_to_write_can_be_written(line, code, names, operators_alone):
    assert len(code) <= 78
    eval(compile(code, f"{PAGE.name}:{line}", "eval"), dict(names))
    factory = re.match(r"[a-z_]+(?=\()", code)
    if factory and factory[0] != "gpu_struct":
        assert len(operators_alone) == 1


def test_code_is_short():
    lines = [
        line
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for line in block.split("\n")
    ]
    assert max(map(len, lines)) <= 78


def test_every_name_of_cuda_compute_is_there():
    spec = importlib.util.find_spec("cuda")
    files = [Path(folder, "compute", "__init__.py") for folder in spec.submodule_search_locations]
    source = next(file for file in files if file.is_file()).read_text()
    lists = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    ]
    public = {name for each in lists for name in ast.literal_eval(each) if name[0] != "_"}
    assert len(public) > 40
    text = PAGE.read_text()
    section = text[text.index("## cuda.compute") : text.index("## CuPy")]
    first = {name for line, cells in rows() for name in CODE.findall(cells[0]) if cells[0] in section}
    assert public <= first


def section(name, behind):
    text = PAGE.read_text()
    return text[text.index(f"\n## {name}\n") : text.index(f"\n## {behind}\n")]


def first_cells(name, behind):
    """Return the code in the first cells of a section's tables."""
    own = section(name, behind)
    return [CODE.findall(cells[0]) for _, cells in rows() if f"\n| {cells[0]} | {cells[1]} |" in own]


def headers(pattern):
    from cupar._compile import toolchain

    found = sorted(toolchain.include_folders()[0].glob(pattern))
    assert found, pattern
    return {path.stem: re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL) for path in found}


def test_every_name_of_cub_is_there():
    known = set()
    for codes in first_cells("CUB", "Thrust"):
        scope = ""
        for code in codes:
            scope = code.rpartition("::")[0] or scope
            known.add(f"{scope}::{code.rpartition('::')[2]}")
    wanted = set()
    for text in headers("cub/device/device_*.cuh").values():
        cls = re.search(r"^struct (Device\w+)", text, re.MULTILINE)[1]
        names = set(re.findall(r"\bstatic\s[^;{}()=]*?\s([A-Z]\w+)\s*\(", text))
        wanted |= {f"{cls}::{name}" for name in names if not re.fullmatch(r"GetName|\w+NoNVTX", name)}
    assert len(wanted) > 60
    assert wanted - known == set()


def test_every_name_of_thrust_is_there():
    known = {code for codes in first_cells("Thrust", "numba") for code in codes}
    algorithms = set()
    for name, text in headers("thrust/*.h").items():
        own = set(re.findall(r"\b(\w+)\(\s*const thrust::detail::execution_policy_base", text))
        algorithms |= own
        assert own or name in known or name in ("zip_function", "swap"), name
    assert len(algorithms) > 60
    assert algorithms - known == set()
    assert set(headers("thrust/iterator/*.h")) - known == set()


def test_what_is_not_there_has_a_reason():
    for name, behind in (("CUB", "Thrust"), ("Thrust", "numba"), ("Arrays in, arrays out", "PyTorch")):
        own = section(name, behind)
        for line, cells in rows():
            if f"\n| {cells[0]} | {cells[1]} |" in own and cells[0] not in ("CUB", "Thrust", "PyTorch"):
                assert CODE.findall(cells[1]) or cells[1].startswith("no, because "), line


def test_every_function_of_arrays_has_its_counterparts():
    import inspect

    own = section("Arrays in, arrays out", "PyTorch")
    functions = {name for name in cupar.arrays.__all__ if inspect.isfunction(getattr(cupar.arrays, name))}
    assert functions - set(re.findall(r"`arrays\.(\w+)`", own)) == set()


def test_counterparts_are_those_of_the_libraries():
    import numpy as np

    own = section("Arrays in, arrays out", "PyTorch")
    of_cupy = set(re.findall(r"`cupy\.(\w+)`", own)) - {"ElementwiseKernel", "ReductionKernel"}
    assert [name for name in of_cupy if not hasattr(np, name)] == []
    torch = pytest.importorskip("torch")
    assert [name for name in re.findall(r"`torch\.(\w+)`", own) if not hasattr(torch, name)] == []


def test_names_of_cupar_are_there():
    for chain in re.findall(r"`((?:graph|cache)\.[a-z_]+)`", PAGE.read_text()):
        module, name = chain.split(".")
        assert hasattr(getattr(cupar, module), name)
