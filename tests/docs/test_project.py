"""What a package and the repository say of the project: addresses, versions, and pinned actions."""

import re
import runpy
import shutil
import subprocess
import sys
import zipfile
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
    interface = SimpleNamespace(MetadataHookInterface=object)  # hatchling builds packages
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
    extras = set(
        re.findall(r"^(\w+) = \[", PROJECT.partition("[project.optional-dependencies]")[2], re.MULTILINE)
    )
    for command, program in zip(shown[1:3], ("examples/quickstart.py", "-m pytest -n 2"), strict=True):
        create, install, run = command.replace("\\\n", "").split("&&")
        assert create.strip() == "python3 -m venv .venv"
        named = re.fullmatch(r"\.venv/bin/pip install -e '\.\[([\w,]+)\]'", install.strip())[1]
        assert set(named.split(",")) <= extras
        assert run.strip() == f".venv/bin/python {program}"


def test_what_is_cited_is_this_version():
    cited = dict(
        re.findall(r"^(version|repository-code): (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    )
    assert cited == {"version": cupar.__version__, "repository-code": REPOSITORY}


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_actions_are_pinned_alike_in_all_workflows():
    pins = {}
    for path in WORKFLOWS:
        for action, pin in re.findall(r"uses: (\S+?)@(.*)$", path.read_text(), re.MULTILINE):
            assert re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", pin), f"{path.name}: {action}@{pin}"
            assert pins.setdefault(action, pin) == pin, action
    assert len(pins) >= 4


def test_what_ci_runs_is_there():
    scripts = {path.name for path in (ROOT / ".ci").iterdir()}
    for path in [*WORKFLOWS, ROOT / "CONTRIBUTING.md"]:
        for script in re.findall(r"\.ci/(\w+)", path.read_text()):
            assert script in scripts, f"{path.name}: .ci/{script}"


@pytest.fixture
def release(tmp_path):
    """A checkout of what .ci/release reads, with the wheel that was made of it."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "cupar").mkdir()
    (tmp_path / "dist").mkdir()
    shutil.copy(ROOT / ".ci/release", tmp_path / ".ci")
    (tmp_path / "cupar/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("version: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("## 1.2.3 (2030-01-02)\n")
    (tmp_path / "dist/cupar-1.2.3.tar.gz").touch()

    def wheel(address):
        with zipfile.ZipFile(tmp_path / "dist/cupar-1.2.3-py3-none-any.whl", "w") as file:
            file.writestr(
                "cupar-1.2.3.dist-info/METADATA", f"Name: cupar\nProject-URL: Repository, {address}\n"
            )

    def run(tag, address):
        return subprocess.run([tmp_path / ".ci/release", tag, address], capture_output=True, text=True)

    wheel("https://forge.test/them/cupar")
    return SimpleNamespace(run=run, wheel=wheel, path=tmp_path)


def test_a_release_is_what_its_tag_says(release):
    there = "https://forge.test/them/cupar"
    done = release.run("v1.2.3", there)
    assert (done.returncode, done.stderr) == (0, "")
    for tag, address, reason in (
        ("v1.2.4", there, "the tag is v1.2.4, and cupar.__version__ is 1.2.3"),
        ("v1.2.3", "https://forge.test/fork/cupar", r"names another repository than"),
    ):
        done = release.run(tag, address)
        assert done.returncode == 1
        assert re.search(reason, done.stderr)

    release.wheel(REPOSITORY)
    if "example.org" in REPOSITORY:
        assert "has addresses at example.org" in release.run("v1.2.3", REPOSITORY).stderr
    release.wheel(there)
    (release.path / "CHANGELOG.md").write_text("## 1.2.3 (unreleased)\n")
    assert "CHANGELOG.md has no date" in release.run("v1.2.3", there).stderr


def test_pythons_that_are_claimed_are_tested():
    claimed = re.findall(r"Python :: (3\.\d+)", PROJECT)
    first, last = re.search(r"Python\s+(3\.\d+) to (3\.\d+)", (ROOT / "README.md").read_text()).groups()
    assert claimed == [f"3.{minor}" for minor in range(int(first[2:]), int(last[2:]) + 1)]
    assert f"Python {first} to {last}" in (ROOT / "docs/install.md").read_text()
    in_ci = re.search(r"python: \[(.*)\]", (ROOT / ".github/workflows/test.yml").read_text())[1]
    rows = runpy.run_path(str(ROOT / ".ci/matrix"))["ROWS"]
    for each in claimed:
        assert f'"{each}"' in in_ci
        assert f"Python {each}, cu13" in rows


def test_gpus_are_asked_for_on_linux_alone():
    """There are no such packages for macOS, where the CPU backend runs."""
    needed = re.search(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)[1]
    extras = re.findall(r"^cu1[23] = \[(.*)\]", PROJECT, re.MULTILINE)
    assert len(extras) == 2
    for line in re.findall(r'"(.*?)"', "".join([needed, *extras])):
        name = re.match(r"[\w-]+", line)[0]
        assert line.endswith("; sys_platform == 'linux'") == (
            name.startswith("cuda-") or name == "numba-cuda"
        )
