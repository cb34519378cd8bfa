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

    monkeypatch.setattr(obtain, "observer", SimpleNamespace(cc=90, ask=ask))
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


def test_every_header_of_cub_is_there():
    from cupar._compile import toolchain

    text = PAGE.read_text()
    section = text[text.index("## CUB") : text.index("## Thrust")].lower()
    headers = [path.stem for path in toolchain.include_folders()[0].glob("cub/device/device_*.cuh")]
    assert len(headers) > 15
    for each in headers:
        assert f"`{each.replace('_', '')}" in section, each


def test_names_of_cupar_are_there():
    for chain in re.findall(r"`((?:graph|cache)\.[a-z_]+)`", PAGE.read_text()):
        module, name = chain.split(".")
        assert hasattr(getattr(cupar, module), name)
