"""The command line: what each command prints, as text and as JSON, its exit status, and mistakes."""

import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support import operations
from support.fewer import every

import cupar
from cupar import _cache
from cupar._ahead import batch, codec
from cupar._base import warnings as _warnings
from cupar._base.words import size_text
from cupar._cli import main as _cli
from cupar._cli import program
from cupar._cli import terminal as _terminal
from cupar._cli.main import main
from cupar._device import driver
from cupar._inspect import environment as _environment
from cupar._jobs import helpers, threads
from cupar._obtain import produce
from cupar._store import entry as _entry
from cupar._store.disk import Pruned

COMMANDS = [
    "info",
    "build",
    "explain",
    "run",
    "tune",
    "cache list",
    "cache show",
    "cache stats",
    "cache verify",
    "cache prune",
    "cache clear",
    "cache export",
    "cache import",
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Give each test a directory of its own, none of cupar's variables, and no warnings given yet."""
    for name in [name for name in os.environ if name.startswith("CUPAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setattr(_cache, "_used", [])
    _cache._layers.clear()
    cupar.cache.clear(disk=False)
    yield
    cupar.cache.clear(disk=False)


def key(number):
    return hashlib.sha256(str(number).encode()).hexdigest()


def entry(algorithm="reduce_into", cc=90, kind="build", size=100, **more):
    parts = {
        "algorithm": algorithm,
        "cc": cc,
        "entry": kind,
        "arguments": {"d_in": ["float32", "in", ["Pointer", ["<f4", 4, 4]]]},
        "options": {"option init": "value"},
        "versions": {"numba-cuda": "0.30.4"},
    }
    meta = {"algorithm": algorithm, "cc": cc, "entry": kind, "parts": parts, "seconds": {"link": 0.3}, **more}
    return _entry.Entry(meta, bytes(size))


def keep(number, **fields):
    """Store an entry."""
    _cache.disk().store(key(number), entry(**fields))
    return key(number)


def path_of(number):
    return _cache.disk().find(key(number))


@pytest.fixture
def three():
    """Three entries, last used in the order of their numbers."""
    keep(1, algorithm="inclusive_scan", cc=80, size=50, operators={"op": "f"})
    keep(2, cc=90, size=3000, reads={"op": [["global 'SCALE'", "float 3.0"]]}, cubin_size=2900)
    keep(3, cc=90, kind="template", size=500)
    for number in (1, 2, 3):
        os.utime(path_of(number), (number * 1e6, number * 1e6))


@pytest.fixture
def run(capfd):
    """Return what runs a command and returns exit status, output and errors, of processes it starts, too."""

    def run(*words):
        status = main([str(word) for word in words])
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        assert "\x1b" not in captured.out + captured.err
        return status, captured.out, captured.err

    return run


@pytest.fixture
def run_json(run):
    def run_json(*words, status=0):
        found, out, err = run(*words, "--json")
        assert found == status, err
        return json.loads(out)

    return run_json


def python(*words, **more):
    """Run ``python -m cupar`` in a process of its own."""
    return _run(["-m", "cupar"], words, **more)


def building(*words, **more):
    """Do so with helper processes that share what compilers make with the run."""
    code = f"""
import sys
from cupar._jobs import helpers
from cupar._cli.main import main
helpers._PROGRAM = {helpers._PROGRAM!r}
sys.exit(main())
"""
    return _run(["-c", code], words, **more)


def _run(program, words, **more):
    command = [sys.executable, *program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **more)


# --- The command line itself


@pytest.mark.parametrize("command", ["", "cache", *COMMANDS])
def test_each_help_has_an_example(run, command):
    status, out, _ = run(*command.split(), "--help")
    assert status == 0
    examples = out.partition("examples:\n")[2].splitlines()
    assert examples and all(line.startswith("  cupar") for line in examples)
    assert all(f"cupar {command}".strip() in line for line in examples)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_example_is_understood(run, command):
    _, out, _ = run(*command.split(), "--help")
    for example in out.partition("examples:\n")[2].splitlines():
        words, _ = _cli._split(example.split("|")[0].split()[1:])
        assert callable(_cli._parser().parse_args(words).run)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_json(run, command):
    _, out, _ = run(*command.split(), "--help")
    assert "--json" in out


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["cache", "list", "--sort", "colour"],
        ["cache", "list", "--cc", "many"],
        ["cache", "list", "--cc", "9000"],
        ["cache", "list", "--cc", ""],
        ["cache", "prune", "--size", "large"],
        ["cache", "prune", "--size", "-1"],
        ["cache", "prune", "--unused", "30"],
        ["cache", "prune", "--unused", "30 parsecs"],
        ["cache", "show"],
        ["cache", "verify", "some.bundle", "--repair"],
        ["build"],
        ["build", "x.py", "--jobs", "0"],
        ["build", "x.py", "--jobs", "many"],
        ["build", "x.py", "--cc", "90,x"],
        ["build", "list.jsonl", "--cc", "90", "--", "argument"],
        ["explain"],
    ],
)
def test_a_wrong_command_line_is_said_with_status_2(run, words):
    status, out, err = run(*words)
    assert status == 2
    assert out == ""
    assert re.search(r"^cupar[a-z ]*: error: ", err, re.MULTILINE)


@pytest.mark.parametrize("command", ["", "cache"])
def test_a_group_alone_is_its_help(run, command):
    assert run(*command.split()) == run(*command.split(), "--help")


def test_help_is_as_wide_as_the_terminal(run, monkeypatch):
    for columns in (40, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        for command in ("cache list", "explain", "info"):
            _, description, _ = run(*command.split(), "--help")[1].split("\n\n")[:3]
            assert columns - 15 < max(map(len, description.splitlines())) <= columns
    out = run("cache", "prune", "--help")[1]
    assert "Without options" in out and "CUPAR_CACHE_SIZE" in out


@pytest.mark.parametrize(
    ("command", "name"), [("explain zzz", "KEY"), ("cache show zzz", "KEY"), ("cache export x zzz", "KEY")]
)
def test_errors_name_the_arguments_of_the_command(run, tmp_path, monkeypatch, command, name):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*command.split())
    assert status == 1 and err.startswith(f"cupar: error: {name}: expected a key")


def test_the_version(run):
    assert run("--version") == (0, f"cupar {cupar.__version__}\n", "")


@pytest.fixture
def pruned(monkeypatch):
    """Return the arguments of the calls of `cupar.cache.prune`, which removes nothing."""
    calls = []
    monkeypatch.setattr(cupar.cache, "prune", lambda **given: calls.append(given) or Pruned(0, 0))
    return calls


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("10", 10), ("10b", 10), ("5k", 5 << 10), ("500M", 500 << 20), ("1.5GiB", 3 << 29)],
)
def test_sizes(text, size, run, pruned):
    run("cache", "prune", "--size", text)
    assert pruned == [{"size": size, "unused_for": None}]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("5m", 300), ("1.5h", 5400), ("2w", 1209600)])
def test_times(text, seconds, run, pruned):
    run("cache", "prune", "--unused", text)
    assert pruned == [{"size": None, "unused_for": seconds}]


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB")],
)
def test_sizes_for_people(size, text):
    assert size_text(size) == text
    assert size_text(5 << 50) == "5120.0 TiB"


# --- cupar info


class TestInfo:
    def test_it_says_what_is_there(self, run, three):
        status, out, err = run("info")
        assert (status, err) == (0, "")
        for expected in (cupar.__version__, np.__version__, "libnvrtc.so", "libnvvm.so"):
            assert expected in out
        assert re.search("^  entries +3$", out, re.MULTILINE)
        assert str(_cache.disk().path) in out

    def test_json(self, run_json, three):
        found = run_json("info")
        assert found["cupar"] == cupar.__version__
        assert found["packages"]["numpy"] == np.__version__
        assert found["compilers"].keys() >= {"NVRTC", "nvJitLink", "libNVVM"}
        assert all(os.path.exists(path) for path in found["compilers"].values())
        assert found["missing"] == []
        assert found["cache"]["directory"] == str(_cache.disk().path)
        assert found["cache"]["entries"] == 3
        assert found["cache"]["signing"] is False
        assert isinstance(found["gpus"], list)

    def test_no_gpu_is_no_fault(self, run, run_json, monkeypatch):
        monkeypatch.setattr(_environment, "gpus", list)
        monkeypatch.setattr(_environment, "nvidia_driver", lambda: None)
        status, out, _ = run("info")
        assert status == 0
        assert "none here" in out
        assert run_json("info")["gpus"] == []

    def test_gpus_are_shown(self, run, monkeypatch):
        gpu = {"ordinal": 0, "name": "NVIDIA H200", "cc": 90, "memory": 139 << 30}
        monkeypatch.setattr(_environment, "gpus", lambda: [gpu])
        monkeypatch.setattr(_environment, "nvidia_driver", lambda: {"cuda": "13.0", "driver": "580.159"})
        _, out, _ = run("info")
        assert "NVIDIA H200, sm_90, 139.0 GiB" in out
        assert "580.159" in out and "up to 13.0" in out

    def test_what_is_missing_is_said_with_what_to_install(self, run, run_json, monkeypatch):
        why = "cupar needs libnvrtc.so.13 to build: pip install cupar[cu13], or set CUDA_HOME"
        monkeypatch.setattr(_environment, "compilers", lambda: {"NVRTC": (None, why)})
        status, out, err = run("info")
        assert status == 1
        assert "NVRTC  missing" in out
        assert err == f"cupar: missing: {why}\n"
        assert run_json("info", status=1)["missing"] == [why]

    def test_a_compiler_that_fails_is_named(self, run, run_json, monkeypatch):
        def fail(*given, **named):
            raise cupar.BuildError("it cannot open\na file")

        monkeypatch.setattr(_environment.nvrtc, "compile_cpp", fail)
        status, _, err = run("info")
        assert (status, err) == (1, "cupar: cannot compile: NVRTC: it cannot open a file\n")
        assert run_json("info", status=1)["failing"] == ["NVRTC: it cannot open a file"]

    def test_versions_are_compared_with_what_cupar_needs(self, run, run_json, monkeypatch):
        needed = ["numpy<2.5,>=2.0", "numba-cuda<0.31,>=0.30.4", 'redis>=99; extra == "shared"', "gone>=1"]
        monkeypatch.setattr(_environment.metadata, "requires", lambda name: needed)
        assert run_json("info")["conflicts"] == []
        monkeypatch.setattr(_environment, "_version", {"numpy": "2.5.1", "numba-cuda": "0.30.4"}.get)
        monkeypatch.setattr(_environment, "packages", dict)
        status, _, err = run("info")
        assert (status, err) == (
            1,
            "cupar: another version is needed: numpy 2.5.1: cupar needs <2.5,>=2.0\n",
        )

    def test_secrets_are_not_shown(self, run, monkeypatch, tmp_path):
        monkeypatch.setenv("CUPAR_SIGNING_KEY", "hunter2")
        monkeypatch.setenv("CUPAR_SHARED", "redis://me:swordfish@127.0.0.1:1/0?password=xyzzy")
        for words in (["info"], ["info", "--json"]):
            status, out, err = run(*words)
            assert status == 0
            assert not re.search("hunter2|swordfish|xyzzy", out + err)
            assert "CUPAR_SIGNING_KEY" in out and "127.0.0.1" in out

    def test_every_variable_that_is_documented_is_known(self, monkeypatch):
        page = Path(_cli.__file__).parents[2] / "docs" / "environment.md"
        documented = set(re.findall(r"^\| `(CUPAR_\w+)`", page.read_text(), re.MULTILINE))
        assert "CUPAR_DEBUG" in documented
        assert documented == set(_environment._OWN)

    def test_only_known_variables_are_shown(self, run, run_json, monkeypatch):
        monkeypatch.setenv("CUPAR_SIGNING_KEYS", "topsecret")
        monkeypatch.setenv("CUPAR_LOCK_TIMEOUT", "7")
        for words in (["info"], ["info", "--json"]):
            _, out, err = run(*words)
            assert "topsecret" not in out + err
        found = run_json("info")["environment"]
        assert found["CUPAR_SIGNING_KEYS"] == "(not known to cupar)"
        assert found["CUPAR_LOCK_TIMEOUT"] == "7"

    def test_layers(self, run, run_json, monkeypatch, three, tmp_path):
        bundle, store = tmp_path / "a.bundle", tmp_path / "store"
        run("cache", "export", bundle)
        monkeypatch.setenv("CUPAR_BUNDLES", f"{bundle}:{tmp_path / 'cache'}")
        monkeypatch.setenv("CUPAR_SHARED", str(store))
        found = run_json("info")["cache"]
        assert found["bundles"] == [
            {"path": str(bundle), "entries": 3},
            {"path": str(tmp_path / "cache"), "entries": 3},
        ]
        assert found["shared"] == str(store)
        assert run("info")[1].count(", 3 entries") == 2

    def test_a_switched_off_cache(self, run_json, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        found = run_json("info")
        assert found["cache"]["directory"] is None
        assert found["environment"]["CUPAR_CACHE"] == "0"


# --- cupar cache list, show, stats


class TestList:
    def test_the_last_used_first(self, run, three):
        status, out, err = run("cache", "list")
        header, *lines = out.splitlines()
        assert (status, err) == (0, "")
        assert header.split() == [
            "key",
            "kind",
            "algorithm",
            "cc",
            "size",
            "used",
            "types",
            "and",
            "operators",
        ]
        assert [line.split()[0] for line in lines] == [key(3), key(2), key(1)]
        assert lines[0].split()[1:4] == ["template", "reduce_into", "90"]
        assert lines[0].split()[5] == "1970-02-04T17:20:00Z"
        assert [line.partition("Z  ")[2] for line in lines] == [
            *2 * ["d_in: float32"],
            "d_in: float32, op: f",
        ]

    @pytest.mark.parametrize(
        ("words", "numbers"),
        [
            (["--sort", "size"], [2, 3, 1]),
            (["--sort", "algorithm"], [1, 2, 3]),
            (["--algorithm", "reduce_into"], [3, 2]),
            (["--algorithm", "reduce"], []),
            (["--cc", "80"], [1]),
            (["--cc", "sm_80,9.0"], [3, 2, 1]),
        ],
    )
    def test_filters_and_orders(self, run_json, three, words, numbers):
        found = run_json("cache", "list", *words)
        assert [each["key"] for each in found["entries"]] == [key(number) for number in numbers]

    def test_json(self, run_json, three):
        found = run_json("cache", "list")
        assert found["path"] == str(_cache.disk().path)
        first = found["entries"][0]
        assert first == {
            "key": key(3),
            "kind": "template",
            "algorithm": "reduce_into",
            "cc": 90,
            "size": path_of(3).stat().st_size,
            "used": "1970-02-04T17:20:00Z",
            "types": ["d_in: float32"],
            "operators": [],
        }
        assert found["entries"][2]["operators"] == ["op: f"]

    def test_what_belongs_to_no_algorithm(self, run, run_json):
        _cache.disk().store(key(1), _entry.Entry({"entry": "result", "parts": {}}, b"x"))
        (found,) = run_json("cache", "list")["entries"]
        assert (found["algorithm"], found["cc"], found["kind"]) == (None, None, "result")
        assert run("cache", "list")[1].splitlines()[1].split()[1:4] == ["result", "-", "-"]

    def test_an_empty_cache(self, run, run_json):
        assert run("cache", "list")[1].splitlines() == [
            "key  kind  algorithm  cc  size  used  types and operators"
        ]
        assert run_json("cache", "list")["entries"] == []

    def test_a_bundle_and_a_directory(self, run, run_json, three, tmp_path):
        bundle = tmp_path / "a.bundle"
        assert run("cache", "export", bundle)[0] == 0
        for place in (bundle, tmp_path / "cache"):
            found = run_json("cache", "list", "--bundle", place)
            assert {each["key"] for each in found["entries"]} == {key(1), key(2), key(3)}
        assert run("cache", "list", "--bundle", bundle)[1].splitlines()[1].split()[5] == "-"

    @pytest.mark.parametrize("how", ["text", "json", "terminal"])
    def test_each_of_many_entries_takes_few_operations(self, tmp_path, monkeypatch, run, how):
        """Of which 20,000 take half a second: no table is laid out for them."""
        monkeypatch.setattr(_terminal, "on_terminal", lambda: how == "terminal")
        words = ["cache", "list", *["--json"] * (how == "json")]
        done = []
        for first, last in (
            (0, 600),
            (600, 600),
            (600, 700),
            (700, 900),
        ):  # tables of 500 rows and more are plain
            fill(tmp_path / "cache", range(first, last))
            done.append(operations.counted(lambda: run(*words)))
        _, begun, hundred, two_hundred = done  # the first imports what it needs
        assert (two_hundred - hundred) / 200 < 1.1 * (hundred - begun) / 100 < 300


def fill(root, numbers):
    """Make a cache directory, or add to it, entries of 3 KiB."""
    reads = {"op": [[f"global 'NAME_{i}'", f"float {i}.5"] for i in range(60)]}
    (root / "v1").mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    for i in numbers:
        name = key(i)
        kind = "template" if i % 4 == 0 else "build"
        data = _entry.encode(name, entry(cc=80 + 10 * (i % 3), kind=kind, size=300, reads=reads))
        folder = root / "v1" / name[:2]
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / f"{name}.cupar").write_bytes(data)


def on_terminal(words, columns=160):
    """Run a command in a process whose output is a terminal; return what it printed."""
    child, terminal = pty.fork()
    if child == 0:
        sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
        os.environ |= {"TERM": "xterm", "COLUMNS": str(columns)}
        try:
            main([*map(str, words)])
            sys.stdout.flush()
        finally:
            os._exit(0)
    out = b""
    try:
        while block := os.read(terminal, 1 << 16):
            out += block
    except OSError:  # what Linux says when the other end is closed
        pass
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return out.decode()


class TestShow:
    def test_all_that_is_known(self, run, three):
        status, out, _ = run("cache", "show", key(2)[:10])
        assert status == 0
        for expected in (
            key(2),
            "reduce_into for sm_90",
            "d_in: float32",
            "global 'SCALE'",
            "float 3.0",
            "numba-cuda",
            "0.30.4",
            "link",
            "2900",
        ):
            assert expected in out

    def test_json(self, run_json, three):
        found = run_json("cache", "show", key(1))
        assert found["key"] == key(1)
        assert found["meta"]["operators"] == {"op": "f"}

    def test_in_a_bundle(self, run, run_json, three, tmp_path):
        run("cache", "export", tmp_path / "a.bundle")
        assert run_json("cache", "show", key(1), "--bundle", tmp_path / "a.bundle")["used"] is None

    @pytest.mark.parametrize(
        "meta",
        [
            {"entry": "result", "parts": {"inputs": [["<i4", 4, 4]], "format": 2}},
            {"algorithm": 3, "cc": [], "entry": {}, "parts": 5, "reads": "x", "seconds": [1]},
            {"parts": {"arguments": {"a": [[]]}, "versions": [None], "x": [[], [1, [2]]]}},
        ],
    )
    def test_metadata_of_any_kind(self, run, meta):
        _cache.disk().store(key(1), _entry.Entry(meta, b"x"))
        status, out, _ = run("cache", "show", key(1))
        assert status == 0
        assert key(1) in out

    def test_a_key_that_nobody_has(self, run, three):
        status, out, err = run("cache", "show", "0" * 64)
        assert (status, out) == (1, "")
        assert err.startswith("cupar: error: ") and "cupar cache list" in err

    def test_a_beginning_that_several_have(self, run):
        for number in range(17):
            keep(number)
        first = [key(number)[0] for number in range(17)]
        several = next(each for each in first if first.count(each) > 1)
        status, _, err = run("cache", "show", several)
        assert status == 1
        assert "give more of the key" in err

    def test_what_is_no_key(self, run, three):
        assert run("cache", "show", "../../etc")[0] == 1


def test_stats(run, run_json, three):
    status, out, _ = run("cache", "stats")
    assert status == 0
    assert "entries  3" in out
    found = run_json("cache", "stats")
    sizes = {number: path_of(number).stat().st_size for number in (1, 2, 3)}
    assert (found["entries"], found["size"]) == (3, sum(sizes.values()))
    assert found["limit"] == 2 << 30
    assert found["algorithm"]["inclusive_scan"] == {"entries": 1, "size": sizes[1]}
    assert found["cc"]["90"] == {"entries": 2, "size": sizes[2] + sizes[3]}
    assert found["kind"].keys() == {"build", "template"}
    assert (found["oldest"], found["newest"]) == ("1970-01-12T13:46:40Z", "1970-02-04T17:20:00Z")


def test_stats_of_an_empty_cache(run, run_json):
    assert run("cache", "stats")[0] == 0
    assert run_json("cache", "stats")["oldest"] is None


# --- cupar cache verify, prune, clear, export, import; cupar explain


class TestVerify:
    def test_a_sound_cache(self, run, run_json, three):
        assert run("cache", "verify") == (0, "3 entries checked, 0 at fault\n", "")
        assert run_json("cache", "verify")["faults"] == []

    def test_a_damaged_entry_is_told_and_removed_if_that_is_asked(self, run, run_json, three):
        path_of(2).write_bytes(b"nothing")
        status, out, _ = run("cache", "verify")
        assert status == 1
        assert key(2) in out and "1 at fault" in out
        (fault,) = run_json("cache", "verify", status=1)["faults"]
        assert fault["key"] == key(2) and "damaged" in fault["fault"]
        status, out, _ = run("cache", "verify", "--repair")
        assert status == 1 and "removed" in out
        assert run("cache", "verify")[0] == 0
        assert {name for name, *_ in _cache.disk().entries()} == {key(1), key(3)}

    def test_a_bundle(self, run, run_json, three, tmp_path):
        bundle = tmp_path / "a.bundle"
        run("cache", "export", bundle)
        assert run_json("cache", "verify", bundle)["checked"] == 3
        content = bytearray(bundle.read_bytes())
        content[500] ^= 1
        bundle.write_bytes(content)
        (fault,) = run_json("cache", "verify", bundle, status=1)["faults"]
        assert "damaged" in fault["fault"]

    def test_what_is_no_bundle(self, run, tmp_path):
        (tmp_path / "text").write_text("nothing of the kind")
        assert run("cache", "verify", tmp_path / "text")[0] == 1


class TestPruneAndClear:
    def test_size(self, run_json, three):
        left = path_of(2).stat().st_size + path_of(3).stat().st_size
        assert run_json("cache", "prune", "--size", left)["removed"] == 1
        assert {name for name, *_ in _cache.disk().entries()} == {key(2), key(3)}

    def test_unused(self, run, three):
        os.utime(path_of(3))
        status, out, _ = run("cache", "prune", "--unused", "30d")
        assert (status, out.split(",")[0]) == (0, "removed 2 entries")
        assert {name for name, *_ in _cache.disk().entries()} == {key(3)}

    def test_clearing_without_a_terminal_needs_yes(self, run, three):
        status, _, err = run("cache", "clear")
        assert status == 2
        assert "--yes" in err
        assert _cache.disk().usage().entries == 3

    @pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("Yes\n", 0), ("\n", 3), ("no\n", 3), ("", 3)])
    def test_on_a_terminal_it_asks(self, run, three, monkeypatch, answer, left):
        class Terminal:
            def isatty(self):
                return True

            def readline(self):
                return answer

        monkeypatch.setattr(sys, "stdin", Terminal())
        status, _, err = run("cache", "clear")
        assert "Remove 3 entries" in err
        assert status == (1 if left else 0)
        assert _cache.disk().usage().entries == left

    def test_yes(self, run_json, three):
        size = _cache.disk().usage().size
        assert run_json("cache", "clear", "--yes") == {"removed": 3, "freed": size}
        assert _cache.disk().usage().entries == 0


class TestExportAndImport:
    def test_there_and_back(self, run, run_json, three, monkeypatch, tmp_path):
        bundle = tmp_path / "a.bundle"
        assert run_json("cache", "export", bundle)["entries"] == 3
        monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
        status, out, _ = run("cache", "import", bundle)
        assert (status, out.split(",")[0]) == (0, "imported 3 entries")
        assert _cache.disk().load(key(2)) == entry(
            size=3000, reads={"op": [["global 'SCALE'", "float 3.0"]]}, cubin_size=2900
        )
        assert run_json("cache", "import", bundle)["entries"] == 0

    def test_some_keys(self, run_json, three, tmp_path):
        bundle = tmp_path / "a.bundle"
        assert run_json("cache", "export", bundle, key(1)[:12], key(3))["entries"] == 2

    def test_a_place_that_cannot_be_written(self, run, three, tmp_path):
        status, _, err = run("cache", "export", tmp_path / "nowhere" / "a.bundle")
        assert status == 1
        assert err.startswith("cupar: error: ") and "No such file" in err

    def test_what_is_refused_fails(self, run, run_json, three, monkeypatch, tmp_path):
        bundle = tmp_path / "a.bundle"
        run("cache", "export", bundle)
        run("cache", "clear", "--yes")
        monkeypatch.setenv("CUPAR_SIGNING_KEY", "secret")
        status, out, err = run("cache", "import", bundle)
        assert (status, out) == (1, "imported 0 entries, 0 bytes; 3 refused\n")
        assert "is not signed" in err and "built again" not in err
        assert "cupar: error: 3 entries were refused" in err
        found = run_json("cache", "import", bundle, status=1)
        assert found == {"entries": 0, "size": 0, "skipped": 0, "refused": 3, "not_kept": 0}

    def test_what_is_not_kept_fails(self, run, three, monkeypatch, tmp_path):
        bundle = tmp_path / "a.bundle"
        run("cache", "export", bundle)
        monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
        monkeypatch.setenv("CUPAR_CACHE_SIZE", "3K")
        status, out, err = run("cache", "import", bundle)
        there = _cache.disk().usage().entries
        assert there < 3
        assert status == 1
        assert out.startswith(f"imported {there} entries, ") and f"; {3 - there} not kept" in out
        lost = "1 entry was" if there == 2 else f"{3 - there} entries were"
        assert f"{lost} not kept: the limit is 3.0 KiB (CUPAR_CACHE_SIZE)" in err

    def test_a_damaged_entry_is_not_exported(self, run, three, tmp_path):
        path_of(2).write_bytes(b"nothing")
        status, out, _ = run("cache", "export", tmp_path / "a.bundle")
        assert status == 1
        assert out.startswith("exported 2 entries, ") and "; 1 refused" in out

    @pytest.mark.parametrize("place", [".", "", "nowhere/a.bundle"])
    def test_a_name_that_no_file_can_have(self, run, three, tmp_path, monkeypatch, place):
        monkeypatch.chdir(tmp_path)
        status, out, err = run("cache", "export", place)
        assert (status, out) == (1, "")
        (line,) = err.splitlines()
        assert ".cupar-bundle" not in line and "PosixPath" not in line
        assert (place.split("/")[0] if place != "." else str(tmp_path)) in line


class TestExplain:
    def test_two(self, run, run_json, three):
        status, out, _ = run("explain", key(2)[:12], key(1)[:12])
        assert status == 0
        assert "cc" in out and "80" in out
        found = run_json("explain", key(2), key(1))
        assert (found["key"], found["nearest"]) == (key(2), key(1))
        assert {"part": "cc", "now": "90", "before": "80"} in found["differences"]

    def test_the_nearest(self, run_json):
        keep(1, cc=80)
        keep(2, cc=90)
        found = run_json("explain", key(2))
        assert (found["nearest"], len(found["differences"])) == (key(1), 1)

    def test_a_damaged_entry(self, run, three):
        path_of(2).write_bytes(b"nothing")
        for words in ([key(2)], [key(2), key(1)], [key(1), key(2)]):
            status, out, err = run("explain", *words)
            assert (status, out) == (1, "")
            assert "cannot be read; run 'cupar cache verify --repair'" in err

    def test_metadata_that_is_nested_too_deep(self, run):
        deep = []
        for _ in range(900):
            deep = [deep]
        for number, cc in ((1, 80), (2, 90)):
            parts = {"algorithm": "reduce_into", "entry": "build", "arguments": {"a": deep}, "cc": cc}
            _cache.disk().store(key(number), _entry.Entry({"entry": "build", "parts": parts}, b""))
        assert _cache.disk().meta(key(1)) is not None
        for words in (["explain", key(1)], ["explain", key(1), key(2)], ["cache", "show", key(1)]):
            status, out, err = run(*words)
            assert status in (0, 1) and out + err
        run("cache", "show", key(1), "--json")

    def test_none_near(self, run_json, three):
        assert run_json("explain", key(1))["nearest"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["cache", "list", "--bundle"],
        ["cache", "show", "abc", "--bundle"],
        ["cache", "verify"],
        ["cache", "import"],
        ["build"],
    ],
)
def test_a_path_where_nothing_is(run, tmp_path, words):
    status, out, err = run(*words, tmp_path / "nothing.here")
    assert (status, out) == (1, "")
    assert err.startswith("cupar: error: ") and "nothing.here" in err


@pytest.mark.parametrize(
    "words", [["cache", "list", "--bundle"], ["cache", "verify"], ["cache", "import"], ["cache", "export"]]
)
def test_a_home_that_there_is_not(run, three, words):
    status, out, err = run(*words, "~nobody-of-this-name/x")
    assert (status, out) == (1, "")
    assert err.startswith("cupar: error: ") and "~nobody-of-this-name" in err


@pytest.mark.parametrize("words", [["cache", "list", "--bundle"], ["cache", "verify"], ["cache", "import"]])
@pytest.mark.parametrize(
    ("place", "why"), [("", "got ''"), (".", "is no cache directory: there is no v1 in it")]
)
def test_a_directory_that_is_no_cache(run, three, tmp_path, monkeypatch, words, place, why):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(*words, place)
    assert (status, out) == (1, "")
    assert err.startswith("cupar: error: ") and why in err


@pytest.mark.parametrize("words", [["cache", "list", "--bundle"], ["cache", "import"], ["build"]])
def test_a_file_of_another_kind(run, tmp_path, words):
    (tmp_path / "text").write_text("nothing of the kind")
    status, out, err = run(*words, tmp_path / "text")
    assert (status, out) == (1, "")
    assert err.startswith("cupar: error: ") and "text" in err


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["stats"],
        ["verify"],
        ["prune"],
        ["clear", "--yes"],
        ["export", "x"],
        ["import", "x"],
        ["show", "ab"],
    ],
)
@pytest.mark.parametrize("fault", ["off", "not private"])
def test_a_cache_that_is_not_used(run, tmp_path, monkeypatch, words, fault):
    if fault == "off":
        monkeypatch.setenv("CUPAR_CACHE", "0")
    else:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(0o777)
    status, out, err = run("cache", *words)
    assert (status, out) == (1, "")
    assert "cupar: error: there is no cache directory" in err
    assert ("cupar: warning: " in err and "chmod 700" in err) == (fault == "not private")


# --- Terminals, pipes, signals


def test_a_terminal_gets_tables(three):
    out = on_terminal(["cache", "list"])
    assert "─" in out
    assert key(3)[:12] in out and key(3) not in out
    assert "entries" in on_terminal(["cache", "stats"])
    assert "SCALE" in on_terminal(["cache", "show", key(2)])


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("columns", [30, 60, 61, 80])
def test_a_narrow_terminal_does_not_cut_keys(columns):
    keep(1, algorithm="three_way_partition", kind="template", size=500_000)
    keep(2, algorithm="three_way_partition", size=20)
    path_of(2).write_bytes(b"damaged")
    shown = {}
    for words in ("cache list", f"cache show {key(1)}", "cache verify", f"explain {key(1)}"):
        shown[words] = COLOURS.sub("", on_terminal(words.split(), columns))
        assert "Traceback" not in shown[words]
    assert {key(1)[:12], key(2)[:12]} <= set(shown["cache list"].split())
    assert re.search(r"\btemplate\b.* 90 +48\d\.\d KiB ", shown["cache list"])
    assert key(1) in shown[f"cache show {key(1)}"].split()
    assert key(2)[:12] in shown["cache verify"].split()
    assert f"{key(1)[:12]}:" in shown[f"explain {key(1)}"].split()
    if columns >= 60:  # else the terminal folds the lines
        lines = shown["cache list"].splitlines()
        assert max(map(len, lines)) <= columns


def test_a_narrow_terminal_folds_text_between_words():
    keep(1, note="a sentence of many words that are all kept whole " * 3)
    out = COLOURS.sub("", on_terminal(["cache", "show", key(1)], 60))
    lines = [line for line in out.splitlines() if key(1) not in line]
    assert max(map(len, lines)) <= 60
    assert out.split().count("sentence") == 3


def test_one_of_a_kind_is_not_plural(run, tmp_path):
    keep(1)
    assert run("cache", "verify")[1] == "1 entry checked, 0 at fault\n"
    bundle = tmp_path / "one.bundle"
    assert run("cache", "export", bundle)[1].startswith("exported 1 entry, ")
    keep(2)
    assert run("cache", "verify")[1] == "2 entries checked, 0 at fault\n"
    assert run("cache", "clear", "--yes")[1].startswith("removed 2 entries, ")
    assert run("cache", "import", bundle)[1].startswith("imported 1 entry, ")
    path_of(1).write_bytes(b"x")
    out = run("cache", "verify", "--repair")[1]
    assert out.endswith("1 entry checked, 1 at fault, which was removed\n")
    assert run("cache", "prune")[1] == "removed 0 entries, 0 bytes\n"


def test_python_dash_m_is_the_same(three):
    done = python("cache", "list", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["entries"]) == 3
    assert python("cache", "show", "zz").returncode == 1
    assert python("cache", "nothing").returncode == 2


def test_the_console_script_is_declared():
    text = Path(_cli.__file__).parents[2].joinpath("pyproject.toml").read_text()
    assert 'cupar = "cupar._cli.main:main"' in text


def test_a_listing_loads_neither_numpy_nor_rich(three):
    code = (
        "import sys; from cupar._cli.main import main; main(['cache', 'list'])\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "rich", "numba", "multiprocessing", "ctypes"} & set(done.stderr.split())


def test_a_reader_that_has_enough_is_no_fault(tmp_path):
    fill(tmp_path / "cache", range(3000))
    command = f"{sys.executable} -m cupar cache list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stdout.startswith("key")
    assert done.stderr == ""


WRITE = ["cache list", "cache stats --json", "cache --help", "--version", "info", "cache clear --yes"]


def in_shell(words, streams, **more):
    command = f"unset PYTHONUNBUFFERED; {sys.executable} -m cupar {words} {streams}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, **more)
    assert "Traceback" not in done.stdout + done.stderr
    assert "Exception" not in done.stdout + done.stderr
    return done


@every(3)
@pytest.mark.parametrize("words", [*WRITE, "cache show zz", "cache --wrong"])
@pytest.mark.parametrize("closed", ["2>&-", "<&-", "<&- 2>&-", "2>/dev/full"])
def test_other_streams_that_are_closed_are_no_fault(three, words, closed):
    done = in_shell(words, closed)
    status = 0 if words in WRITE else 1 if "zz" in words else 2
    # Python itself says 120 when it cannot write what is left for standard error.
    assert done.returncode == status or ("full" in closed and status and done.returncode)


@every(2)
@pytest.mark.parametrize(
    ("output", "why"),
    [
        (">/dev/full", "No space left on device"),
        (">&-", "Bad file descriptor"),
        ("<&- >&-", "Bad file descriptor"),
    ],
)
@pytest.mark.parametrize("words", WRITE)
def test_an_output_that_cannot_be_written_is_said(three, words, output, why):
    done = in_shell(words, output)
    assert done.returncode == 1
    assert done.stderr == f"cupar: error: standard output: {why}\n"


@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_a_listing_that_is_larger_than_a_buffer_cannot_be_written_either(tmp_path, output):
    fill(tmp_path / "cache", range(1000))
    done = in_shell("cache list", output)
    assert done.returncode == 1
    assert re.fullmatch("cupar: error: standard output: .*\n", done.stderr)


@pytest.mark.parametrize("words", WRITE)
def test_a_reader_that_went_away_ends_a_command_as_the_signal_would(three, words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "cupar", *words.split()]
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        assert process.communicate(timeout=120)[1] == ""
    assert process.returncode == 141


def test_clearing_with_closed_input_needs_yes(three):
    command = f"{sys.executable} -m cupar cache clear <&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "--yes" in done.stderr


# --- cupar build

SCRIPT = """
import numpy as np, cupar

SCALE = 3

def scaled(a, b):
    return a * SCALE + b

cupar.reduce_into("i4", "i4", scaled, np.zeros(1, "i4"))
cupar.reduce_into("i4", "i4", scaled, np.zeros(1, "i4"))
cupar.reduce_into("i8", "i8", lambda a, b: a ^ b, np.zeros(1, "i8"), wait=False)
cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING, cc=75)
"""


QUICK = """
import os, signal, time
import cupar
from cupar._kernels.image import Image
from cupar._obtain import produce

def make(spec, seconds):
    if spec.cc == 75:
        raise cupar.BuildError("NVRTC: sm_75 is too old")
    if spec.cc == 87:
        os.kill(os.getpid(), signal.SIGKILL)
    return Image({}, b"\\x7fELF").dumps(), 4, "built"
"""
PATCH = "\nproduce.build_here = make\n"


def helpers_that(make):
    """Return the program of helper processes that make builds as some source says."""
    program, call = helpers._PROGRAM.split("_helpers.serve(pipe)")
    return f"{program}{make}{PATCH}_helpers.serve(pipe){call}"


# In a script: the same of the helpers that its process starts.
QUICK_HELPERS = f"""
from cupar._jobs import helpers
helpers._PROGRAM = {helpers_that(QUICK)!r}
"""


@pytest.fixture
def quick(monkeypatch):
    """Let each build take no time."""
    names = {}
    exec(QUICK, names)
    monkeypatch.setattr(produce, "build_here", names["make"])
    monkeypatch.setattr(threads, "cores", lambda: 1)  # or each test starts two helpers
    monkeypatch.setattr(helpers, "_PROGRAM", helpers_that(QUICK))


@pytest.fixture
def script(tmp_path):
    """Return what writes a script."""

    def write(text=SCRIPT, name="script.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.mark.usefixtures("quick")
class TestBuild:
    def test_a_script_for_each_compute_capability_each_build_once(self, run_json, script):
        found = run_json("build", script(), "--cc", "80,90,80", "--jobs", 2)
        assert found["counts"] == {"built": 6, "linked": 0, "found": 0, "failed": 0}
        asked = sorted((each["algorithm"], each["cc"], each["types"][0]) for each in found["builds"])
        assert asked == [
            ("radix_sort", 80, "d_in_keys: Pointer(uint32)"),
            ("radix_sort", 90, "d_in_keys: Pointer(uint32)"),
            ("reduce_into", 80, "d_in: Pointer(int32)"),
            ("reduce_into", 80, "d_in: Pointer(int64)"),
            ("reduce_into", 90, "d_in: Pointer(int32)"),
            ("reduce_into", 90, "d_in: Pointer(int64)"),
        ]
        kept = {name for name, *_ in _cache.disk().entries()}
        assert {each["key"] for each in found["builds"]} == kept
        assert run_json("build", script(), "--cc", "80,90")["counts"]["found"] == 6

    def test_it_prints_lines_and_a_table(self, run, script):
        status, out, err = run("build", script(), "--cc", "80,90")
        assert (status, err) == (0, "")
        assert re.search(r"^\[6/6\] built +[0-9.]+ s  \w+\(", out, re.MULTILINE)
        header, first, second, last = out.splitlines()[-4:]
        assert header.split() == ["cc", "built", "linked", "found", "failed", "seconds"]
        assert first.split()[:5] == ["80", "3", "0", "0", "0"]
        assert second.split()[0] == "90"
        assert re.fullmatch(r"6 builds in [0-9.]+ s", last)
        again = run("build", script(), "--cc", "80,90")[1].splitlines()[-1]
        assert re.fullmatch(r"0 builds in [0-9.]+ s, 6 found in the cache", again)

    def test_keys_are_those_that_the_factory_asks_for(self, run_json, script, quick):
        (found,) = run_json(
            "build", script("import cupar\ncupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0)"), "--cc", "90"
        )["builds"]
        algorithm = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0, cc=90)
        assert (algorithm.build.key, algorithm.build.origin) == (found["key"], "disk")

    def test_without_cc_those_that_the_script_names(self, run_json, script):
        text = "import cupar\nfor cc in (80, 90): cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0, cc=cc)"
        assert sorted(each["cc"] for each in run_json("build", script(text))["builds"]) == [80, 90]

    def test_a_script_has_its_own_arguments_path_and_name(self, run, script, tmp_path):
        (tmp_path / "beside.py").write_text("dtype = 'f8'")
        text = """
import sys, cupar, beside
if __name__ == "__main__":
    assert sys.path[0] == {folder!r}, sys.path
    assert sys.argv == [{path!r}, "--cc", "x"], sys.argv
    cupar.reduce_into(beside.dtype, beside.dtype, cupar.OpKind.PLUS, 0)
    sys.exit(0)
"""
        path = script(text.format(folder=str(tmp_path), path=str(tmp_path / "script.py")))
        before = sys.argv, sys.path[:]
        status, _, err = run("build", path, "--cc", "90", "--", "--cc", "x")
        assert (status, err) == (0, "")
        assert (sys.argv, sys.path) == before

    def test_what_a_script_prints_is_not_in_the_document(self, run, script):
        status, out, err = run("build", script("print('hello')\n" + SCRIPT), "--cc", "90", "--json")
        assert status == 0
        assert len(json.loads(out)["builds"]) == 3
        assert "hello" in err

    def test_a_failure_is_told_and_the_rest_is_built(self, run, run_json, script):
        status, out, err = run("build", script(), "--cc", "75,90", "--jobs", 1)
        assert status == 1
        assert err.count("NVRTC: sm_75 is too old") == 3
        assert "cupar: error: reduce_into(d_in: Pointer(int32)" in err
        assert [line.split()[:5] for line in out.splitlines()[-3:-1]] == [
            ["75", "0", "0", "0", "3"],
            ["90", "3", "0", "0", "0"],
        ]
        found = run_json("build", script(), "--cc", "75,90", status=1)
        assert found["counts"] == {"built": 0, "linked": 0, "found": 3, "failed": 3}

    def test_a_compiler_that_crashes_takes_one_build_with_it(self, run_json, script):
        found = run_json("build", script(), "--cc", "87,90", "--jobs", 1, status=1)
        assert found["counts"] == {"built": 3, "linked": 0, "found": 0, "failed": 3}
        assert all("SIGKILL" in each["error"] for each in found["builds"] if each["cc"] == 87)

    def test_what_is_built_and_not_kept_is_a_failure(self, run_json, script, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE_SIZE", "10")
        found = run_json("build", script(), "--cc", "90", status=1)
        assert found["counts"]["failed"] == 3
        assert all("did not keep it" in each["error"] for each in found["builds"])

    def test_what_the_cache_says_is_said_once(self, run, script, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE_SIZE", "10")
        _, _, err = run("build", script(), "--cc", "90", "--jobs", 2)
        assert err.count("cupar: warning: ") == len(re.findall("^cupar: warning: ", err, re.MULTILINE)) >= 1

    def test_a_cache_that_is_switched_off(self, run, script, monkeypatch):
        monkeypatch.setenv("CUPAR_CACHE", "0")
        status, _, err = run("build", script(), "--cc", "90")
        assert status == 1
        assert "there is no cache directory" in err

    def test_a_script_that_asks_for_nothing(self, run, script):
        status, _, err = run("build", script("x = 1"), "--cc", "90")
        assert status == 1
        assert "nothing was asked for" in err

    @pytest.mark.parametrize(
        ("text", "place", "why"),
        [
            ("1 / 0", ":3", "ZeroDivisionError: division by zero"),
            ("import nothing_of_this_name", ":3", "No module named"),
            ("def f(:", ":3", "SyntaxError"),
            ("import sys; sys.exit(3)", "", "ended with exit status 3"),
            ("import sys; sys.exit('bad luck')", "", "bad luck"),
            ("cupar.reduce_into('f4', 'f4', 5, 0)", ":3", "op: "),
            ("raise RuntimeError('No CUDA GPUs are available')", ":3", "CUPAR_RECORD"),
        ],
    )
    def test_a_script_that_fails(self, run, script, text, place, why):
        asks = text in ("1 / 0", "import sys; sys.exit(3)", "def f(:")
        first = "cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0)" * asks
        path = script(f"import cupar\n{first}\n{text}\n")
        status, out, err = run("build", path, "--cc", "90")
        assert status == 1
        assert f"cupar: error: {path}{place}: " in err and why in err
        # What it asked for before is built.
        assert ("[1/1] built" in out) == (asks and "def" not in text)

    @every(3)
    @pytest.mark.parametrize(
        "call",
        [
            "r(None, None, None, 1, 0)",
            "r.run(None, None, 1, 0)",
            "r.bind(None, None, 1, 0)",
            "from cupar import graph; graph.Graph(graph.call(r, None, None, 1, 0))",
        ],
    )
    def test_an_algorithm_that_is_called_is_refused_with_what_to_do(self, run, script, call):
        path = script(f"import cupar\nr = cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0)\n{call}\n")
        status, _, err = run("build", path, "--cc", "90")
        assert status == 1
        assert f"{path}:3: " in err
        assert "CUPAR_RECORD" in err and "dtypes" in err

    def test_without_a_gpu_somebody_must_name_a_compute_capability(self, run, script, monkeypatch):
        def no_device():
            raise cupar.NoDeviceError("There is no GPU here")

        monkeypatch.setattr(driver, "current_device", no_device)
        path = script("import cupar\ncupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0)\n")
        status, _, err = run("build", path)
        assert status == 1
        assert f"cupar: error: {path}:2: there is no GPU here" in err and "--cc" in err

    def test_what_a_script_may_ask_of_an_algorithm(self, run_json, script):
        text = """
import cupar
r = cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0, wait=False)
assert "is being built" in repr(r)
assert r.ready() and r.ready(timeout=1)
r.load()
cupar.preload(r)
assert r.build.cc == 90 and len(r.build.key) == 64
assert r.build.cubin_size == 4
"""
        found = run_json("build", script(QUICK_HELPERS + text), "--cc", "90,80")
        assert found["counts"] == {"built": 1, "linked": 0, "found": 1, "failed": 0}

    def test_a_build_that_fails_is_told_to_the_script_that_asks_for_it(self, run, script):
        text = (
            "import cupar\n"
            "try: cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0).build\n"
            "except cupar.BuildError as error: assert 'too old' in str(error)\n"
            "else: raise AssertionError\n"
        )
        status, _, err = run("build", script(QUICK_HELPERS + text), "--cc", "75")
        assert status == 1
        assert "AssertionError" not in err and err.count("too old") == 1

    def test_what_an_operator_reads_is_as_it_was_when_it_was_asked_for(self, run, script):
        text = SCRIPT + "\nSCALE = 4\ncupar.reduce_into('i4', 'i4', scaled, np.zeros(1, 'i4'))\n"
        status, out, _ = run("build", script(text), "--cc", "90")
        assert status == 0
        assert out.splitlines()[-2].split()[:5] == ["90", "4", "0", "0", "0"]

    def test_a_recorded_list(self, run_json, tmp_path):
        path = tmp_path / "asked.jsonl"
        with cupar.record(path):
            for cc in (80, 90):
                cupar.reduce_into("i4", "i4", lambda a, b: a | (b + 1), np.zeros(1, "i4"), cc=cc)
            cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING, cc=90)
        assert len(path.read_text().splitlines()) == 3
        found = run_json("build", path, "--cc", "90,100")
        assert found["counts"] == {"built": 2, "linked": 0, "found": 2, "failed": 0}
        found = run_json("build", path)
        assert sorted(each["cc"] for each in found["builds"]) == [80, 90, 90]
        assert found["counts"]["found"] == 3

    def test_lines_of_a_list_that_cannot_be_asked_for(self, run, run_json, tmp_path):
        path = tmp_path / "asked.jsonl"
        with cupar.record(path):
            cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING, cc=90)
        line = json.loads(path.read_text())
        line |= {"key": key(1), "python": "2.7", "skipped": "op: it is not portable"}
        del line["spec"]
        path.write_text(path.read_text() + json.dumps(line) + "\n")
        status, out, err = run("build", path, "--cc", "80")
        assert status == 1
        assert f"{path}:2: " in err and "it is not portable" in err
        assert "[1/1] built" in out
        assert len(run_json("build", path, "--cc", "80", status=1)["not_asked"]) == 1

    def test_one_job_for_each_template_comes_first(self, script):
        operators = "".join(f"cupar.reduce_into('i4', 'i4', lambda a, b: a * {i} + b, 0)\n" for i in range(3))
        asked, failures, _ = program.asked_by(script(f"import cupar\n{operators}"), [], [80])
        jobs = batch._in_order(batch.jobs(asked, [80, 90]))
        assert failures == []
        assert [job.spec.cc for job in jobs] == [80, 90, 80, 90, 80, 90]
        assert len({job.template for job in jobs}) == 2

    @pytest.mark.parametrize("text", ["thread.start()", "pool.submit(ask)"])
    def test_what_threads_of_a_script_ask_for_is_built_too(self, run_json, script, text):
        asking = f"""
import threading, time, cupar
from concurrent.futures import ThreadPoolExecutor

def ask():
    time.sleep(0.5)
    import beside_the_script
    cupar.reduce_into("f8", "f8", cupar.OpKind.PLUS, 0)

thread, pool = threading.Thread(target=ask), ThreadPoolExecutor(2)
{text}
cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0)
"""
        script("", "beside_the_script.py")
        before = threading.enumerate()
        found = run_json("build", script(asking), "--cc", "90")
        assert found["counts"]["built"] == 2
        assert threading.enumerate() == before

    def test_threads_of_others_are_not_waited_for(self, run_json, script):
        with ThreadPoolExecutor(1) as pool:
            event = threading.Event()
            waiting = pool.submit(event.wait)
            assert run_json("build", script(), "--cc", "90")["counts"]["built"] == 3
            event.set()
            assert waiting.result(10)
            assert pool.submit(int).result(10) == 0

    @pytest.mark.parametrize(
        ("fault", "why"),
        [
            ("import os; os._exit(3)", "ended with exit status 3 before"),
            ("import sys; sys.exit(1)", "ended with exit status 1 before"),
        ],
    )
    def test_where_no_helper_starts_this_process_builds(self, run, script, monkeypatch, fault, why):
        monkeypatch.setattr(helpers, "_PROGRAM", fault)
        status, out, err = run("build", script(), "--cc", "90", "--jobs", 2)
        assert (status, out.count("] built ")) == (0, 3)
        assert err.count("What no helper process can build is built in this one") == 1
        assert why in err

    def test_where_there_is_no_interpreter(self, run, script, tmp_path, monkeypatch):
        with cupar.record(tmp_path / "list"):
            cupar.radix_sort("u4", "u4", None, None, cupar.SortOrder.ASCENDING, cc=90)
        cupar.cache.clear()
        monkeypatch.setattr(sys, "executable", "")
        status, out, err = run("build", tmp_path / "list")
        assert (status, out.count("] built ")) == (0, 1) and "is no Python interpreter" in err
        status, _, err = run("build", script(), "--cc", "90")
        assert status == 1 and "there is no Python interpreter" in err

    def test_what_cannot_be_sent_is_built_in_this_process(self, run, script, monkeypatch):
        dumps = codec.dumps

        def refuse(spec):
            if spec.operators:
                raise TypeError("an operator is a secret")
            return dumps(spec)

        monkeypatch.setattr(codec, "dumps", refuse)
        status, out, err = run("build", script(), "--cc", "90")
        assert (status, out.count("] built ")) == (0, 3)
        assert err.count("an operator is a secret") == 1

    def test_bundles_and_stores_of_a_script_serve_its_builds(
        self, run, run_json, script, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(_cache, "_shared", None)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("CUPAR_CACHE_DIR", str(tmp_path / "elsewhere"))
            assert run_json("build", script(), "--cc", "90")["counts"]["built"] == 3
        text = f"import cupar\ncupar.use_bundle({str(tmp_path / 'elsewhere')!r})\n{SCRIPT}"
        assert run_json("build", script(text), "--cc", "90")["counts"]["found"] == 3
        cupar.cache.clear()
        text = (
            "import atexit, cupar\nstore = {}\ncupar.use_shared(store)\n"
            f"atexit.register(lambda: print(len(store), 'in it'))\n{QUICK}{PATCH}{SCRIPT}"
        )
        _cache._used.clear()
        status, out, err = run("build", script(text), "--cc", "90")
        assert (status, out.count("] built ")) == (0, 3)
        assert "the script called cupar.use_shared" in err
        assert "3 in it" in out

    def test_what_cannot_be_pickled_is_told(self, run, script):
        text = """
import cupar
from cupar._ahead import codec

def refuse(spec):
    raise TypeError("it is a secret")

codec.dumps = refuse
cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0)
"""
        path = script(text)
        status, _, err = run("build", path, "--cc", "90")
        assert status == 1
        assert f"cupar: error: {path}: reduce_into: op: OpKind.PLUS cannot be pickled: it is a secret" in err

    def test_what_a_script_sets_holds_for_its_builds(self, run_json, script, tmp_path):
        folder = tmp_path / "of the script"
        text = f"import os\nos.environ['CUPAR_CACHE_DIR'] = {str(folder)!r}\n{SCRIPT}"
        assert run_json("build", script(text), "--cc", "90")["counts"]["built"] == 3
        assert len(list(folder.glob("v1/??/*"))) == 3

    def test_what_was_asked_for_is_built_however_the_script_ends(self, run, script):
        asks = "import cupar\ncupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0)\n"
        ends = (
            "import os, signal\nif not os.fork():\n    cupar.reduce_into('f8', 'f8', cupar.OpKind.PLUS, 0)\n"
        )
        path = script(f"{asks}{ends}    os._exit(0)\nos.wait()\nos.kill(os.getpid(), signal.SIGSEGV)")
        status, out, err = run("build", path, "--cc", "90")
        assert (status, out.count("] built ")) == (1, 2)
        assert f"cupar: error: {path}: ended by Segmentation fault" in err

    def test_a_script_is_a_program(self, run, script):
        text = """
import atexit, concurrent.futures, pickle, sys, threading

init = concurrent.futures.ThreadPoolExecutor.__init__
assert init.__module__ == "concurrent.futures.thread" and init.__name__ == "__init__"

class Point:
    pass

def late():
    assert isinstance(pickle.loads(pickle.dumps(Point())), Point)
    import cupar
    cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0)

atexit.register(late)
"""
        status, out, err = run("build", script(text), "--cc", "90")
        assert (status, err, out.count("] built ")) == (0, "", 1)

    def test_helpers_do_not_run_the_script(self, run_json, script, tmp_path):
        ran = f"open({str(tmp_path / 'ran')!r}, 'a').write('.')\n"
        assert run_json("build", script(ran + SCRIPT), "--cc", "90")["counts"]["built"] == 3
        assert (tmp_path / "ran").read_text() == "."

    def test_a_script_that_records(self, run_json, script, tmp_path, monkeypatch):
        monkeypatch.setenv("CUPAR_RECORD", str(tmp_path / "one"))
        text = f"import cupar\nwith cupar.record({str(tmp_path / 'two')!r}):\n" + SCRIPT.replace("\n", "\n  ")
        found = run_json(
            "build", script(f"{text}\ncupar.radix_sort('u8', 'u8', None, None, 0)"), "--cc", "90"
        )
        assert found["counts"]["built"] == 4
        assert len((tmp_path / "one").read_text().splitlines()) == 1
        assert len((tmp_path / "two").read_text().splitlines()) == 3

    def test_a_list_that_a_script_preloads_is_built_too(self, run_json, script, tmp_path):
        path = tmp_path / "asked.jsonl"
        with cupar.record(path):
            cupar.reduce_into("i4", "i4", lambda a, b: a | (b + 1), np.zeros(1, "i4"), cc=80)
        found = run_json("build", script(f"import cupar\ncupar.preload({str(path)!r})"), "--cc", "90")
        assert [(each["cc"], each["result"]) for each in found["builds"]] == [(90, "built")]

    @every(3)
    @pytest.mark.parametrize(
        ("received", "to_all", "status"),
        [
            (signal.SIGINT, True, 130),  # as a terminal sends it
            (signal.SIGINT, False, 130),
            (signal.SIGTERM, True, -signal.SIGTERM),
            (signal.SIGTERM, False, -signal.SIGTERM),
        ],
    )
    @pytest.mark.parametrize("deaf", [False, True])
    def test_an_interrupt_ends_it_at_once_and_leaves_nothing(
        self, script, tmp_path, received, to_all, status, deaf
    ):
        # A compiler is deaf until it is done.
        make = f"""
import os, signal, time
from cupar._obtain import produce

def make(spec, seconds):
    if {deaf}:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    open({str(tmp_path / "begun")!r} + str(os.getpid()), "w").close()
    time.sleep(60)
"""
        mark = uuid.uuid4().hex
        code = f"""
import signal, sys
from cupar._cli import main as _cli
from cupar._cli import program
from cupar._cli import terminal as _terminal
from cupar._jobs import helpers

signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
helpers._PROGRAM = {helpers_that(make)!r}
sys.exit(_cli.main(["build", {str(script())!r}, "--cc", "90", "--jobs", "2"]))
"""
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "MARK": mark},
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while len(list(tmp_path.glob("begun*"))) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        locks = tmp_path / "cache" / "v1" / "locks"
        assert len(list(locks.iterdir())) == 2
        assert len(processes(mark)) == 3
        start = time.monotonic()
        (os.killpg if to_all else os.kill)(process.pid, received)
        _, err = process.communicate(timeout=30)
        assert process.returncode == status
        assert err.decode().splitlines() == (["cupar: interrupted"] if status == 130 else [])
        assert time.monotonic() - start < 15
        assert processes(mark) == []
        assert list(locks.iterdir()) == []

    def test_helpers_end_when_the_process_that_asked_is_killed(self, script, tmp_path):
        make = f"""
import time
from cupar._obtain import produce

def make(spec, seconds):
    open({str(tmp_path / "begun")!r}, "w").close()
    time.sleep(60)
"""
        mark = uuid.uuid4().hex
        code = f"""
import sys
from cupar._cli import main as _cli
from cupar._cli import program
from cupar._cli import terminal as _terminal
from cupar._jobs import helpers

helpers._PROGRAM = {helpers_that(make)!r}
sys.exit(_cli.main(["build", {str(script())!r}, "--cc", "90", "--jobs", "1"]))
"""
        process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MARK": mark})
        until = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.kill()
        process.wait()
        until = time.monotonic() + 15
        while (left := processes(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        assert left == []


def processes(mark):
    """Return the processes that have this in their environment, zombies not among them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "print(first.build.key)"])
def test_a_script_whose_threads_import_and_compile_does_not_hang(script, text):
    path = script(
        f"""
import threading, numpy as np

def ask():
    import numba.cuda
    import cupar
    cupar.reduce_into("f8", "f8", lambda a, b: a * b * 3, np.zeros(1, "f8"), cc=90)

threading.Thread(target=ask).start()
import cupar
first = cupar.unary_transform("i4", "i4", lambda a: a * 2, cc=90)
{text}
"""
    )
    done = building("build", path, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^90 ( +[0-9]+){3} +0 ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^\[2/2\] ", done.stdout, re.MULTILINE)


def test_an_export_that_is_terminated_leaves_nothing(three, tmp_path):
    code = f"""
import os, signal, time
from cupar._store import bundle as _bundle
from cupar._cli import main as _cli
from cupar._cli import program
from cupar._cli import terminal as _terminal

def fsync(file):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)

_bundle.os.fsync = fsync
_cli.main(["cache", "export", {str(tmp_path / "a.bundle")!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert os.listdir(tmp_path) == ["cache"]


def test_a_terminal_gets_a_bar(script):
    text = "import cupar\ncupar.unary_transform('i4', 'i4', cupar.OpKind.NEGATE)\n"
    out = on_terminal(["build", script(text), "--cc", "90"])
    assert "building" in out and "1/1" in out
    assert re.search(r"\b90 +1", out)


@pytest.mark.slow
def test_what_is_built_here_is_found_elsewhere(script, run, run_json, tmp_path):
    """The whole way: build for two GPUs that are not here, export, import, and build nothing there."""
    path = script(
        """
import sys, numpy as np, cupar

OFFSET = 5

def algorithms(cc=None):
    return [
        cupar.unary_transform("i4", "i4", lambda a: a + OFFSET, cc=cc),
        cupar.unary_transform("i4", "i4", lambda a: a * OFFSET, cc=cc),
        cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, np.zeros(1, "i4"), cc=cc),
    ]

if sys.argv[1:] == ["check"]:
    for cc in (80, 90):
        for algorithm in algorithms(cc):
            assert algorithm.cubin().startswith(b"\\x7fELF")
    print(cupar.cache.stats())
else:
    algorithms()
"""
    )
    built = building("build", path, "--cc", "80,90", "--jobs", 1, "--json")
    assert built.returncode == 0, built.stderr
    counts = json.loads(built.stdout)["counts"]
    assert (counts["built"], counts["linked"], counts["failed"]) == (4, 2, 0)
    entries = run_json("cache", "list")["entries"]
    assert sorted(each["kind"] for each in entries if each["kind"] != "search") == 6 * ["build"] + 4 * [
        "template"
    ]
    bundle = tmp_path / "builds.cupar-bundle"
    run("cache", "export", bundle)
    elsewhere = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "elsewhere")}
    imported = python("cache", "import", bundle, "--json", env=elsewhere)
    assert json.loads(imported.stdout)["entries"] == 10
    check = [sys.executable, str(path), "check"]
    done = subprocess.run(check, capture_output=True, text=True, env=elsewhere, check=True)
    assert done.stdout == "Stats(memory=0, disk=6, linked=0, built=0)\n"


def test_control_characters_of_foreign_metadata_do_not_reach_the_terminal(capsys):
    from cupar._cli import terminal as _terminal

    _terminal.say("a\x1b[31mb\x07\r\nc\u00e9")
    _terminal.complain("a\x9bb")
    shown = capsys.readouterr()
    assert shown.out == "a\\x1b[31mb\\x07\\r\nc\u00e9\n"
    assert shown.err == "cupar: a\\x9bb\n"
