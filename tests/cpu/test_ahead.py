"""Builds for the CPU that are recorded, made ahead and loaded before they are asked for."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from support.compilers import AS_IN_THE_RUN

import cupar
from cupar._ahead import batch, record
from cupar._cli.program import asked_by
from cupar._obtain import obtain

X = np.arange(1000, dtype="i4")
PROGRAM = f"""{AS_IN_THE_RUN}
import numpy as np, cupar
if len(sys.argv) > 1:
    cupar.preload(sys.argv[1])
x, out, total = np.arange(1000, dtype="i4"), np.zeros(1000, "i8"), np.zeros(1, "i8")
scale = np.array([3])
with cupar.device("cpu"):
    scaled = cupar.TransformIterator(x, lambda a: a * scale[0], "i8")
    scan = cupar.inclusive_scan(scaled, out, cupar.OpKind.PLUS)
    scan.run(scaled, out, 1000)
    assert (out == np.cumsum(3 * x)).all()
cupar.reduce_into(x, total, lambda a, b: a + b, 5, cc="cpu").run(x, total, 1000, 5)
assert total[0] == x.sum() + 5
print({{name: n for name, n in vars(cupar.cache.stats()).items() if n}}, "numba" in sys.modules)
"""
COMMAND = "-c", f"{AS_IN_THE_RUN}from cupar._cli.main import main\nsys.exit(main())"


def run(*command, **named):
    environment = {**os.environ, **named}
    environment.pop("CUPAR_DEVICE", None)
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_a_list_to_a_program_that_builds_nothing(tmp_path):
    program, asked = tmp_path / "program.py", tmp_path / "asked.jsonl"
    program.write_text(PROGRAM)
    first, other = str(tmp_path / "cache"), str(tmp_path / "other")
    run(program, CUPAR_RECORD=str(asked), CUPAR_CACHE_DIR=first)
    assert [json.loads(line)["cc"] for line in asked.read_text().splitlines()] == [0, 0]

    # Whatever --cc says, they are for the CPU: made once, then there.
    for result in ("built", "found"):
        made = json.loads(run(*COMMAND, "build", asked, "--cc", "90", "--json", CUPAR_CACHE_DIR=other))
        assert [(each["cc"], each["result"]) for each in made["builds"]] == [("cpu", result)] * 2
    assert "for the CPU" in run(*COMMAND, "build", asked, CUPAR_CACHE_DIR=other)

    said = run(program, asked, CUPAR_CACHE_DIR=other)
    assert said == "{'memory': 2, 'disk': 2} False\n"
    listed = run("-m", "cupar", "cache", "list", "--cc", "cpu", "--sort", "algorithm", CUPAR_CACHE_DIR=other)
    assert [line.split()[2] for line in listed.splitlines()[1:]] == ["inclusive_scan", "reduce_into"]


def test_lists_with_both(tmp_path, monkeypatch):
    path = tmp_path / "asked.jsonl"
    with cupar.record(path):
        cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc="cpu")
        monkeypatch.setattr(obtain.observer, "beneath", batch._Collector(90))  # GPUs' are not built
        cupar.reduce_into("i4", "i4", cupar.OpKind.PLUS, 0, cc=90)
    ours, theirs = record.read(path)
    assert (ours.cc, theirs.cc) == (0, 90)
    asked, failures = batch.ask_list([ours, theirs], [80])
    assert [each.cc for each in asked] == [0, 80] and not failures
    assert [each.spec.cc for each in batch.jobs(asked, [80, 100])] == [0, 80, 100]
    with cupar.device("cpu"):
        cupar.preload(path)  # of which the line for a GPU is left alone
    with pytest.raises(cupar.NoDeviceError):
        cupar.preload(path)


def test_scripts_that_are_built_ahead_call_what_is_for_the_cpu(tmp_path, empty_cache):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM + "cupar.reduce_into('i4', 'i4', cupar.OpKind.PLUS, 0)")
    asked, failures, outcomes = asked_by(script, [], [90])
    assert [each.cc for each in asked] == [0, 0, 90] and not failures
    assert [each.result for each in outcomes.values()] == ["built", "built"]
    again = asked_by(script, [], [90])[2]
    assert [each.result for each in again.values()] == ["found", "found"]
    assert [each.cc for each in cupar.cache.entries() if each.entry == "build"] == ["cpu", "cpu"]


def test_preloaded_algorithms_need_no_gpu():
    algorithm = cupar.reduce_into(X, "i4", cupar.OpKind.MAXIMUM, None, cc="cpu", wait=False)
    cupar.preload(algorithm)
    assert algorithm._built.code._function is not None


def test_in_bundles(tmp_path, empty_cache, monkeypatch):
    asked = X, "i4", cupar.OpKind.MAXIMUM, None
    key = cupar.reduce_into(*asked, cc="cpu").build.key
    bundle = tmp_path / "builds.cupar-bundle"
    cupar.cache.export(bundle)
    cupar.cache.clear()
    monkeypatch.setenv("CUPAR_BUNDLES", str(bundle))
    again = cupar.reduce_into(*asked, cc="cpu").build
    assert (again.origin, again.key, again.source) == ("disk", key, str(bundle))
