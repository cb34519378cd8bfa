"""How long errors are, and which frames they show."""

import ast
import re
import traceback
from pathlib import Path

import numpy as np
import pytest
from support.host import run

import cupar

PROCESS = Path(__file__).parent / "processes" / "errors.py"


@pytest.mark.parametrize("which", ["driver", "no driver"])
def test_no_error_has_more_than_20_lines(which, tmp_path, session_cache):
    # Where there is a driver, it says that it has no device.
    without = {} if which == "driver" else {"CUDA_VISIBLE_DEVICES": "-1"}
    done = run(tmp_path, PROCESS, session_cache, which, **without)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split("|") for line in done.stdout.splitlines()]
    assert len(found) > 25
    assert not [each for each in found if not 0 < int(each[0]) <= 20], done.stdout + done.stderr
    if which != "driver":
        assert sum(kind == "NoDeviceError" for _, kind, _ in found) >= 9


def test_asserts_tell_types_and_guard_nothing():
    """``python -O`` leaves them out: what computes wrong results otherwise raises an error of its own."""
    found = []
    for path in Path(cupar.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
                found += [(path.name, ast.unparse(each)) for each in tests]
    only_types = re.compile(r"[\w.]+ is not None|(not )?isinstance\([\w.]+, [\w., ()]+\)")
    assert [each for each in found if not only_types.fullmatch(each[1])] == []


class Broken:
    """An array whose interface fails in the user's code."""

    @property
    def __array_interface__(self):
        return self.made()

    def made(self):
        raise ValueError("the user's own")


def failed(monkeypatch, debug):
    monkeypatch.setenv("CUPAR_DEBUG", debug)
    with pytest.raises((TypeError, ValueError), match="user's own") as caught:
        cupar.reduce_into(Broken(), "f4", cupar.OpKind.PLUS, np.zeros(1, "f4"), cc="cpu")
    return [frame.name for frame in traceback.extract_tb(caught.tb)]


def test_frames_of_the_user_are_shown(monkeypatch):
    names = failed(monkeypatch, "0")
    assert names[0] == "failed" and len(failed(monkeypatch, "1")) > len(names)


def test_who_waits_twice_sees_no_frames_of_the_first():
    algorithm = cupar.reduce_into("f4", "f4", lambda a, b: a.foo(b), np.zeros(1, "f4"), cc=90, wait=False)
    lengths = []
    for _ in range(3):
        with pytest.raises(TypeError, match="no attribute 'foo'") as caught:
            algorithm.ready()
        lengths.append(len(traceback.extract_tb(caught.tb)))
    assert len({*lengths}) == 1, lengths
