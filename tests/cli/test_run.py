"""``cupar run``: a program as it is, with cupar.compute in place of cuda.compute."""

import json
import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
import threading
import numpy as np
import cuda.compute
import cuda.compute as short
import cuda.compute.iterators
from cuda.compute import OpKind, ProxyArray, ProxyValue, make_reduce_into
from cuda.compute.op import RawOp
from cuda.compute.types import int32

assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
assert short is cuda.compute and cuda.compute.__spec__.name == cuda.compute.__name__ == "cupar.compute"
assert cuda.compute.iterators is sys.modules["cuda.compute.iterators"]
assert cuda.compute.iterators is sys.modules["cupar.compute.iterators"]
assert int32 is cuda.compute.types.int32 and RawOp is cuda.compute.op.RawOp
try:
    import cuda.compute._made
except ModuleNotFoundError as error:
    assert error.name == "cuda.compute._made" and "is private to cuda.compute" in str(error)

def ask():
    given = {"d_in": ProxyArray("f4"), "d_out": ProxyArray("f4"), "h_init": ProxyValue("f4")}
    return make_reduce_into(**given, op=OpKind.PLUS, compute_capability=90)

threading.Timer(0.2, ask).start()
print(json_like := sys.argv[1:])
"""


@pytest.fixture
def run(tmp_path):
    def run(*words, status=0, **named):
        environment = {
            **os.environ,
            "CUPAR_CACHE_DIR": str(tmp_path / "cache"),
            **named.pop("environment", {}),
        }
        command = [sys.executable, "-m", "cupar", "run", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, **named)
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def program(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_program_and_what_it_asked_for(run, program):
    path = program(PROGRAM)
    first = run(path, "--json", "-m", "x")
    assert first.stdout == "['--json', '-m', 'x']\n"
    assert first.stderr.startswith("cupar: 1 built and 0 linked in ") and "; 0 found; " in first.stderr
    second = run("--json", path)  # what is asked for when the main thread has ended is seen, too
    told = json.loads(second.stdout)
    assert (told["status"], told["built"], told["disk"]) == (0, 0, 1)
    assert told["saved_seconds"] > 0 == told["seconds"]
    assert run("--quiet", path).stderr == ""


def test_a_module(run, program, tmp_path):
    (tmp_path / "package").mkdir()
    program("import sys, package\nassert sys.argv[1:] == ['-q', '--', 'a']", "package/__main__.py")
    program("from cuda.compute import reduce_into", "package/__init__.py")
    done = run("-m", "package", "-q", "--", "a")
    assert done.stderr == "cupar: nothing was asked for\n"
    assert run("-mpackage", "-q", "--", "a").stderr == done.stderr


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        ("sys.exit()", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("sys.exit('no good')", 1, "no good\n"),
        ("raise SystemExit(None)", 0, ""),
    ],
)
def test_how_a_program_ends(run, program, end, status, said):
    done = run(program(f"import sys\n{end}"), status=status)
    assert done.stderr.startswith(f"{said}cupar: ")


def test_an_error_is_shown_as_python_does(run, program):
    path = program("def f():\n    raise ValueError('wrong')\n\nf()\n")
    done = run(path, status=1)
    alone = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert done.stderr.startswith(alone.stderr) and "ValueError: wrong" in alone.stderr


def test_a_signal_ends_it_as_ever(run, program):
    run(program("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"), status=-15)


def test_mistakes(run, program):
    assert "error: nowhere.py: No such file" in run("nowhere.py", status=1).stderr
    assert "error: no module named nowhere" in run("-m", "nowhere", status=1).stderr
    assert "name a script" in run(status=2).stderr
    assert "unrecognized arguments: --fast" in run("--fast", program(""), status=2).stderr


def test_what_was_imported_before_is_not_replaced():
    code = """
import sys, types
sys.modules["cuda.compute"] = types.ModuleType("cuda.compute")
from cupar.compute import _alias
try:
    _alias.replace()
except RuntimeError as error:
    assert "is imported already" in str(error)
else:
    raise AssertionError
del sys.modules["cuda.compute"]
_alias.replace()
_alias.replace()
assert sum(isinstance(each, _alias._Finder) for each in sys.meta_path) == 1
import cuda.pathfinder, cuda.compute
assert cuda.compute.__name__ == "cupar.compute" and cuda.pathfinder.__name__ == "cuda.pathfinder"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_recording_goes_on(run, program, tmp_path):
    listed = tmp_path / "asked.jsonl"
    run(program(PROGRAM), environment={"CUPAR_RECORD": str(listed)})
    assert listed.read_text().count('"reduce_into"') == 1
