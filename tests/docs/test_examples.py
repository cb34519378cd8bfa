"""The examples run on the CPU, print what their pages say, and draw; on a GPU see tests/gpu."""

import re
import runpy
import sys
from pathlib import Path

import pytest

import cupar

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
DRAWN = {
    page.stem: picture[1]
    for page in (ROOT / "docs/examples").glob("*.md")
    if (picture := re.search(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text()))
}
FOR = {"dask_arrays": "dask.array", "state_space": "torch"}  # examples for a library, which may not be there


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_program(path, capsys, monkeypatch, tmp_path):
    if path.stem in FOR:
        pytest.importorskip(FOR[path.stem])
    monkeypatch.setitem(sys.modules, "cupy", None)  # without it, they run on the CPU
    arguments = [str(tmp_path / DRAWN[path.stem])] if path.stem in DRAWN else []
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    page = (ROOT / "docs/examples" / f"{path.stem}.md").read_text()
    if path.stem == "quickstart":  # which prints times
        assert printed.count("from the cache:") == 1
    elif path.stem == "state_space":  # so does this
        assert len(set(re.findall(r"loss [\d.]+ to [\d.]+", printed))) == 1
        assert printed.count(" ms a step") == 3
    else:
        assert re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) == [printed]
    for drawn in arguments:
        kept = ROOT / "docs/examples" / Path(drawn).name
        assert 0.5 < Path(drawn).stat().st_size / kept.stat().st_size < 2


def test_fields_are_drawn():
    assert {"heat", "histogram", "stencil"} <= set(DRAWN)


def test_the_first_example_runs_where_the_cpu_is_asked_for(capsys):
    with cupar.device("cpu"):
        runpy.run_path(str(ROOT / "examples/quickstart.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "There is no GPU here" not in printed
    assert "numbers: 4.731958" in printed
