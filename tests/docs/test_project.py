"""What a package and the repository say of the project: addresses, versions, and pinned actions."""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import cupar

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
URLS = dict(re.findall(r'^(\w+) = "(https://[^"]+)"$', PROJECT.partition("[project.urls]")[2], re.MULTILINE))
REPOSITORY = URLS["Repository"]


def test_one_address_stands_for_the_repository():
    assert {"Documentation", "Changelog", "Issues", "Security"} < set(URLS)
    assert all(url.startswith(REPOSITORY) for url in URLS.values())


@pytest.fixture
def absolute(monkeypatch):
    interface = SimpleNamespace(MetadataHookInterface=object)  # hatchling is there when a package is built only
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", interface)
    return runpy.run_path(str(ROOT / "hatch_build.py"))["absolute"]


def test_links_of_a_package_s_readme_are_absolute(absolute):
    readme = (ROOT / "README.md").read_text()
    text = absolute(readme, REPOSITORY, "1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert len(targets) == len(re.findall(r"\]\(", readme)) > 20
    for target in targets:
        path = re.fullmatch(rf"{re.escape(REPOSITORY)}/(?:blob|raw)/v1\.2\.3/([^#]+)(?:#.*)?", target)
        assert (path and (ROOT / path[1]).exists()) or not target.startswith(REPOSITORY), target
        assert re.match("https://|#", target), target
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)
    assert "/raw/" in picture


def test_users_are_told_how_to_install_first_and_developers_two_commands():
    readme = (ROOT / "README.md").read_text()
    shown = re.findall(r"^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert shown[0] == "pip install 'cupar[cu13]'\n"
    extras = set(re.findall(r"^(\w+) = \[", PROJECT.partition("[project.optional-dependencies]")[2], re.MULTILINE))
    for command, program in zip(shown[1:3], ("examples/quickstart.py", "-m pytest -n 2"), strict=True):
        create, install, run = command.replace("\\\n", "").split("&&")
        assert create.strip() == "python3 -m venv .venv"
        named = re.fullmatch(r"\.venv/bin/pip install -e '\.\[([\w,]+)\]'", install.strip())[1]
        assert set(named.split(",")) <= extras
        assert run.strip() == f".venv/bin/python {program}"
