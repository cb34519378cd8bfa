"""The pages of ``docs``: what they show runs, and what they name is there.

Python blocks run in order, those of a page in one namespace; ``pycon`` blocks are doctests. One behind the
comment ``<!-- needs a GPU -->`` is only compiled, and what it takes from cupar must be there; one behind
``<!-- needs torch -->`` too, where that package is not installed. Notebooks are run without Jupyter;
``.ci/docs`` builds the site, which runs them with it, and looks at what is in it.
"""

import argparse
import ast
import doctest
import html
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "SECURITY.md"]

BLOCK = re.compile(r"^(?:<!-- needs (a GPU|\w+) -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = ("sh", "dockerfile", "yaml")
WIDTH = 78  # columns of code that a page of the site shows without a scroll bar


def blocks(path, *languages):
    """Yield line, text and whether it runs without a GPU of each block of code."""
    text = path.read_text()
    for match in BLOCK.finditer(text):
        if match[2] in languages:
            runs = not match[1] or (match[1] != "a GPU" and find_spec(match[1]) is not None)
            yield text.count("\n", 0, match.start(3)) + 1, match[3], runs


def name(path):
    return str(path.relative_to(ROOT))


# --- Python


def run(path):
    """Run the blocks of a page."""
    module = types.ModuleType("__main__")  # which dataclasses and pickle look for
    sys.modules["__main__"] = module
    for line, text, runs in blocks(path, "python", "pycon"):
        if not runs:
            continue
        if text.startswith(">>> "):
            test = doctest.DocTestParser().get_doctest(text, {}, name(path), str(path), line - 1)
            test.globs = vars(module)
            failed, _ = doctest.DocTestRunner().run(test, clear_globs=False)
            assert failed == 0, f"{name(path)}:{line}"
        else:
            code = compile("\n" * (line - 1) + text, str(path), "exec", dont_inherit=True)
            exec(code, vars(module))


def cells(path):
    """Yield the code of each cell of a notebook, without what is IPython's own."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(line for line in cell["source"] if not line.startswith("%"))


def run_notebook(path):
    """Run the cells of a notebook, and show the last value of each as Jupyter does."""
    import cupar

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    with cupar.device("cpu"):
        for number, text in enumerate(cells(path)):
            tree = ast.parse(text)
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"{path}:{number}", "exec", dont_inherit=True), vars(module))
            if last is not None:
                value = eval(compile(ast.Expression(last.value), f"{path}:{number}", "eval"), vars(module))
                assert value is None or "<table>" in value._repr_html_()


@pytest.mark.slow
def test_python_blocks_run(session_cache, tmp_path):
    """All in one process, for what that takes to import."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CUPAR_")}
    environment |= {"CUPAR_CACHE_DIR": str(session_cache), "PYTHONWARNINGS": "error::UserWarning"}
    command = [sys.executable, __file__, *map(str, [*PAGES, *NOTEBOOKS])]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\nran ") >= 9 + len(NOTEBOOKS)


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_what_python_blocks_take_from_cupar_is_there(path):
    import cupar

    for line, text, _ in blocks(path, "python"):
        tree = ast.parse(text, name(path))
        compile(tree, name(path), "exec")
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                *owner, last = dotted(node)
                if owner in (["cupar"], ["cupar", "cache"], ["graph"], ["cupar", "graph"]):
                    module = getattr(cupar, owner[-1]) if owner[-1] != "cupar" else cupar
                    assert last in module.__all__ if hasattr(module, "__all__") else hasattr(module, last), (
                        f"{name(path)}:{line + node.lineno - 1}: {'.'.join(owner)}.{last}"
                    )


def dotted(node):
    """Return a chain of attributes as names, as in ``["cupar", "cache", "stats"]``."""
    if isinstance(node, ast.Attribute):
        return [*dotted(node.value), node.attr]
    return [node.id] if isinstance(node, ast.Name) else [""]


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_no_code_scrolls_sideways(path):
    for line, text, _ in blocks(path, "python", "pycon", "text", *SHELL):
        for offset, shown in enumerate(text.split("\n")):
            assert len(shown) <= WIDTH, f"{name(path)}:{line + offset}"


def test_every_example_has_a_page():
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    pages = {path.stem: path for path in (DOCS / "examples").glob("*.md") if path.stem != "index"}
    assert set(pages) == examples
    for stem, page in pages.items():
        assert f"```{{literalinclude}} ../../examples/{stem}.py\n" in page.read_text()
        source = (ROOT / "examples" / f"{stem}.py").read_text()
        assert max(map(len, source.split("\n"))) <= WIDTH, stem


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_notebooks_are_pages_and_have_no_outputs(path):
    page = DOCS / "examples" / path.name
    assert page.resolve() == path
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert max(map(len, "".join(cell["source"]).split("\n"))) <= WIDTH


@pytest.mark.parametrize("benchmark", ["cold_start", "call_overhead", "throughput"])
def test_plots_are_of_the_results(benchmark, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module(benchmark)
    plots = list((ROOT / "benchmarks" / "results").glob(f"{benchmark}-*.svg"))
    assert plots
    for plot in plots:
        shown = html.unescape(plot.read_text())
        _, panels = module.panels(json.loads(plot.with_suffix(".json").read_text()))
        for text in (text for panel in panels for text in panel.texts):
            assert f">{text}</text>" in shown, f"{plot.name}: {text}"


def test_pages_say_what_the_plot_of_starts_shows():
    """The time of a start with a build on disk, and of one that reduces nothing."""
    plot = (ROOT / "benchmarks/results/cold_start-h200.svg").read_text()
    floor, found = sorted(map(int, re.findall(r">(\d+) ms, ", plot)))[:2]
    assert f"{found - floor} ms later" in " ".join((DOCS / "index.md").read_text().split())
    for path in (ROOT / "README.md", DOCS / "measurements.md"):
        assert {f"{floor} ms", f"{found} ms"} <= set(re.findall(r"\d+ ms", path.read_text())), name(path)


def test_the_reference_has_every_public_name():
    import cupar

    text = "".join(path.read_text() for path in (DOCS / "api").glob("*.md"))
    directives = r"^\.\. (?:auto\w+|py:data):: (cupar[\w.]*)$"
    found = set(re.findall(directives, text, re.MULTILINE))
    owners = ("arrays", "cache", "dask", "distributed", "graph", "compute")
    for owner in ("cupar", *(f"cupar.{each}" for each in owners)):
        module = importlib.import_module(owner)
        public = {f"{owner}.{each}" for each in module.__all__ if each[0] != "_"}
        assert {each for each in found if each.rpartition(".")[0] == owner} <= {*public, *MODULES}
        # What has a name of cupar's, such as iterators, may be described there alone.
        if owner not in ("cupar", "cupar.distributed", "cupar.dask"):
            public -= {f"{owner}.{each}" for each in cupar.__all__}
        assert public <= found


_NAMES = ["arrays", "cache", "compute", "cuda", "dask", "distributed", "graph", "jax", "torch"]
MODULES = tuple(f"cupar.{each}" for each in _NAMES)


def test_every_module_that_is_not_the_api_is_said_to_be_none():
    text = (DOCS / "stability.md").read_text()
    files = {path.stem for path in (ROOT / "cupar").glob("*.py") if path.name[0] != "_"}
    private = text[text.index("The modules that define") : text.index("are not part of the API")]
    assert {f"cupar.{each}" for each in files - set(re.findall(r"`(\w+)`", private))} <= set(MODULES)
    folders = {path.name for path in (ROOT / "cupar").iterdir() if path.is_dir()}
    assert {each for each in folders if each[0] != "_"} == {"compute", "distributed"}


def test_the_table_of_formats_has_the_numbers_of_the_code():
    from cupar._ahead import record
    from cupar._compile import key
    from cupar._fingerprint import walk
    from cupar._store import bundle, entry
    from cupar.compute import _blob

    rows = re.findall(r"^\| (\w+) \| (\d+) \|", (DOCS / "stability.md").read_text(), re.MULTILINE)
    assert {name: int(number) for name, number in rows} == {
        "key": key.FORMAT,
        "entry": entry.FORMAT,
        "bundle": bundle._VERSION,
        "operator": int(walk._FORMAT.rpartition(b" ")[2]),
        "list": record.FORMAT,
        "blob": _blob.FORMAT,
    }


# --- The command line


def commands(path):
    """Yield the line and the words of each call of cupar that is shown."""
    for line, text, _ in blocks(path, *SHELL):
        for offset, shown in enumerate(text.replace("\\\n", "\0").split("\n")):
            shown = re.sub(r"\$\([^)]*\)", "X", re.sub(r"(^|\s)#.*", "", shown.replace("\0", " ")))
            for part in re.split(r"&&|\|\||[|;>]", shown):
                match = re.search(r"(?:^|[\s'])cupar ([a-z-].*)", part)
                if match:
                    yield line + offset, shlex.split(match[1].removesuffix("'"))


@pytest.fixture(scope="module")
def parser():
    from cupar._cli import main

    return main._parser()


def test_command_lines_parse(parser, capsys):
    from cupar._cli import main

    seen = 0
    for path in TEXTS:
        for line, words in commands(path):
            words, _ = main._split(words)
            try:
                parser.parse_args(words)
            except SystemExit:
                pytest.fail(f"{name(path)}:{line}: {words}: {capsys.readouterr().err}")
            seen += 1
    assert seen >= 30


def test_commands_in_the_text_are_there(parser):
    for path in TEXTS:
        for text in re.findall(r"`cupar ((?:[a-z]+ ?)+)[^`…]*`", path.read_text()):
            choices = subcommands(parser)
            for word in text.split():
                if not choices:
                    break
                assert word in choices, f"{name(path)}: cupar {text}"
                choices = subcommands(choices[word])


def subcommands(parser):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    return {}


def test_every_command_is_on_its_page(parser):
    text = (DOCS / "command-line.md").read_text()
    shown = re.findall(r"^## cupar (.*)\n\n```\{cupar-help\} (.*)$", text, re.MULTILINE)
    assert all(title == command for title, command in shown)
    of_cache = subcommands(subcommands(parser)["cache"])
    expected = [*subcommands(parser), *(f"cache {each}" for each in of_cache)]
    expected.remove("cache")
    assert sorted(command for _, command in shown) == sorted(expected)
    for command in expected:
        assert re.search(rf"^\| `cupar {command}[` ]", text, re.MULTILINE), command


# --- Names and links

VARIABLE = re.compile(r"\bCUPAR_[A-Z]+(?:_[A-Z]+)*\b")


def test_the_table_has_the_variables_of_the_code():
    code = "".join(path.read_text() for path in (ROOT / "cupar").rglob("*.py"))
    table = re.findall(r"^\| `(CUPAR_\w+)` \|", (DOCS / "environment.md").read_text(), re.MULTILINE)
    assert len(table) == len(set(table))
    macros = "".join(path.read_text() for path in (ROOT / "cupar").rglob("*.cuh"))
    assert set(table) == set(VARIABLE.findall(code)) - set(VARIABLE.findall(macros))


def test_variables_in_the_text_are_in_the_table():
    table = set(VARIABLE.findall((DOCS / "environment.md").read_text()))
    for path in TEXTS:
        assert set(VARIABLE.findall(path.read_text())) <= table, name(path)


LINK = re.compile(r"\]\(([^)\s]+)\)|\{doc\}`([^`]+)`")


@pytest.mark.parametrize("path", TEXTS, ids=name)
def test_links_resolve(path):
    for link, page in LINK.findall(path.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / (file or f"{page}.md" if not link.startswith("#") else path.name)).resolve()
        assert target.exists() or (page and target.with_suffix(".ipynb").exists()), (
            f"{name(path)}: {link or page}"
        )
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


def test_files_and_names_of_the_architecture_are_there():
    text = (DOCS / "architecture.md").read_text()
    files = set(re.findall(r"`((?:\w+/)*\w+\.py)`", text))
    assert {each for each in files if not any((ROOT / at / each).exists() for at in ("", "cupar"))} == set()
    code = "".join(path.read_text() for path in (ROOT / "cupar").rglob("*.py"))
    names = set(re.findall(r"`(?:\w+\.)?([A-Za-z_]\w+[A-Za-z])`", text)) - {"py"}
    assert len(files) > 40 and len(names) > 30
    assert names - set(re.findall(r"\w+", code)) == set()


def test_every_page_is_in_the_contents():
    listed = {DOCS / "index.md"}
    notebooks = {DOCS / "examples" / path.name for path in NOTEBOOKS}
    for path in PAGES:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", path.read_text(), re.DOTALL):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            listed |= {path.parent / f"{line}.md" for line in lines}
    listed = {path.with_suffix(".ipynb") if not path.exists() else path for path in listed}
    assert listed == {*PAGES, *notebooks}


if __name__ == "__main__":
    sys.path.append(str(ROOT / "tests"))
    from support import compilers

    compilers.as_in_the_run()
    for argument in sys.argv[1:]:
        if argument.endswith(".ipynb"):
            run_notebook(Path(argument))
            print(f"\nran {argument}")
        elif any(runs for *_, runs in blocks(Path(argument), "python", "pycon")):
            run(Path(argument))
            print(f"\nran {argument}")
