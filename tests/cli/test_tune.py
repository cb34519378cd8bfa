"""`cupar tune` on a fake GPU: arguments, winners, output, and errors."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from support.common import NO_CODE
from support.gpu import CARD, PROPERTIES
from support.timed_gpu import timed_gpu

import cupar
from cupar._base import warnings as _warnings
from cupar._cli import tune as command
from cupar._cli.main import main
from cupar._kernels import policies
from cupar._obtain import produce
from cupar._tune import session

THE_CARD = f"{CARD} (sm_90, {PROPERTIES['sms']} SMs)"
TRANSFORM = ["tune", "unary_transform", "float32", "--items", "4096"]


@pytest.fixture
def gpu(monkeypatch, empty_cache):
    monkeypatch.setattr(_warnings, "warned", set())
    return timed_gpu(monkeypatch)


@pytest.fixture
def quick(gpu, monkeypatch):
    """Candidates are few, and all but one are slower than the default."""
    few = [
        policies.TransformPolicy(128, 32, 4),
        policies.TransformPolicy(512, 64, 4),
        policies.TransformPolicy(1024, 16, 4),
    ]
    monkeypatch.setattr(type(cupar.UnaryTransform._family.tunable), "policies", lambda self, spec: iter(few))
    from cupar._tune.measure import GPU

    usual = GPU._algorithm

    def algorithm(self, policy):
        gpu.seconds[len(gpu.loaded)] = 5e-4 if policy == few[1] else 2e-3
        return usual(self, policy)

    monkeypatch.setattr(GPU, "_algorithm", algorithm)
    return few


def ask_for_another_card(dtype):
    """Ask as on another card; what is built has nothing in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "build_here", lambda spec, seconds: (NO_CODE, 4, "built"))
        cupar.unary_transform(dtype, dtype, cupar.OpKind.NEGATE, cc=80)


def run(capfd, *words, status=0):
    assert main([*words]) == status
    return capfd.readouterr()


def test_the_best_is_kept_and_used(quick, gpu, capfd, tmp_path):
    before = cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE).build
    text = run(capfd, *TRANSFORM, "--json", "--plot", str(tmp_path / "tuned.png")).out
    document = json.loads(text)
    (found,) = document["results"]
    assert document["card"] == {"name": CARD, "cc": 90, "multiprocessors": PROPERTIES["sms"]}
    assert (found["algorithm"], len(found["tried"])) == ("unary_transform", 3)
    assert found["policy"] == quick[1]._asdict()
    assert found["default"] == policies.TRANSFORM.get(90)._asdict()
    assert (found["gain"], document["is_kept"]) == (2.0, True)
    assert found["measured"][0]["problem"] == "2^12 items"
    assert (tmp_path / "tuned.png").read_bytes().startswith(b"\x89PNG")
    cupar.cache.clear(disk=False)
    now = cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE).build
    assert (now.policy.source, dict(now.policy.values), now.origin) == ("tuned", found["policy"], "disk")
    assert now.key != before.key
    kinds = sorted(info.entry for info in cupar.cache.entries())
    # Of the candidates, the winner alone; the others of the default, and of what compares results.
    assert kinds.count("policy") == 1
    assert len([k for k in kinds if k == "build"]) == 4


def test_a_dry_run_keeps_nothing(quick, capfd):
    (found,) = json.loads(run(capfd, *TRANSFORM, "--dry-run", "--json").out)["results"]
    assert (found["policy"], found["key"]) == (quick[1]._asdict(), None)
    assert "policy" not in {info.entry for info in cupar.cache.entries()}
    assert cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE).build.policy.source == "cupar"
    heading, row = found["row"].splitlines()
    (measured,) = eval(row, {**vars(policies)})  # as a table has it
    assert heading == "# TRANSFORM" and [*measured.rows] == [(90,)]
    policy, gpu, date, problem = measured.rows[90,]
    assert (policy, "NVIDIA " + gpu, len(date)) == (quick[1], CARD, 10)
    assert problem == "unary_transform of float32; 2^12 items: 1.000 ms -> 500.0 us"


def test_what_it_shows(quick, capfd):
    text = run(capfd, *TRANSFORM).out
    assert text.splitlines()[0] == THE_CARD
    assert "threads=512 bytes_in_flight=64 iterator_items=4" in text
    assert "2^12 items" in text and "kept, " in text


def test_a_recorded_list(quick, capfd, tmp_path):
    path = str(tmp_path / "asked.jsonl")
    with cupar.record(path):
        cupar.unary_transform("f4", "f4", cupar.OpKind.NEGATE, cc=90)
        cupar.unary_transform("f4", "f4", cupar.OpKind.IDENTITY, cc=90)  # which has the same policy
        ask_for_another_card("i8")
        cupar.unary_transform(cupar.CountingIterator(np.int32(0)), "i4", cupar.OpKind.NEGATE, cc=90)
    document = json.loads(run(capfd, "tune", path, "--json", "--items", "4096").out)
    assert [(each["types"][0], bool(each["key"])) for each in document["results"]] == [
        ("d_in: Pointer(float32)", True),
        ("d_in: Counting(int32)", False),
    ]
    assert document["results"][1]["why"].startswith("d_in: it is an iterator")
    (left,) = document["not_tuned"]
    assert left["name"] == "1 of 4"
    assert "asked for on sm_80" in left["why"] and THE_CARD in left["why"]
    document = json.loads(run(capfd, "tune", path, "--json", "--items", "4096", "--cc", "90").out)
    assert len(document["results"]) == 3


def test_failing_policies_are_reported(quick, capfd, monkeypatch):
    from cupar._tune.measure import GPU, FailedPolicyError

    usual = GPU.turns

    def turns(self, policy, number, is_final):
        if policy == quick[1]:
            raise FailedPolicyError("gives wrong results: 3 items of d_out differ")
        return usual(self, policy, number, is_final)

    monkeypatch.setattr(GPU, "turns", turns)
    shown = run(capfd, *TRANSFORM)
    assert "warning: unary_transform: threads=512" in shown.err
    assert "gives wrong results: 3 items of d_out differ" in shown.err
    assert "nothing is quicker than the default" in shown.out
    assert "policy" not in {info.entry for info in cupar.cache.entries()}


def test_rows_are_those_that_would_come_first(gpu):
    from cupar._tune import requests

    keys = {}
    for name in ("unique_by_key", "histogram_even", "lower_bound", "merge_sort"):
        spec = requests.named(
            name, ["float64"] * (2 if requests.ALGORITHMS[name].types[0] == "keys" else 1), None, False, 90
        )
        with policies.lookups() as found:
            spec.family.tunable.default(spec)
        keys[name] = found[0]
    assert keys["unique_by_key"] == (policies.COMPACT, (90, "unique", 8, 8))
    assert keys["histogram_even"] == (policies.HISTOGRAM, (90, 8))
    assert keys["lower_bound"] == (policies.SEARCH, (90, 8))
    assert keys["merge_sort"] == (policies.MERGE_SORT, (90, 8, 8))


def test_all_algorithms_for_the_usual_dtypes(gpu, capfd, monkeypatch):
    given = []

    def tune(spec, bench, builder, seconds, notify):
        given.append((spec.algorithm, seconds))
        raise session.UnsuitableError("not now")

    monkeypatch.setattr(session, "tune", tune)
    document = json.loads(run(capfd, "tune", "--all", "--json").out)
    names = {name for name, _ in given}
    assert names >= {"reduce_into", "unique_by_key", "three_way_partition", "segmented_sort", "merge"}
    assert len(given) == len(document["results"]) > 3 * len(names)
    assert given[0][1] == pytest.approx(600 / len(given), rel=0.05)  # in ten minutes
    assert min(seconds for _, seconds in given) >= session._LEAST_SECONDS


def test_the_last_ones_are_left_where_time_is_short(gpu, capfd, monkeypatch):
    given = []

    def tune(spec, bench, builder, seconds, notify):
        given.append((spec.algorithm, str(spec.arguments[0].value), seconds))
        clock[0] += 4
        raise session.UnsuitableError("not now")

    clock = [0.0]
    monkeypatch.setattr(session, "tune", tune)
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    shown = run(capfd, "tune", "--all", "--dry-run", "--export", "--seconds", "250")
    assert shown.out == "" and " s: 0 rows" in shown.err
    document = json.loads(run(capfd, "tune", "--all", "--dry-run", "--json", "--seconds", "5").out)
    first = given[:-1]
    assert 55 < len(first) <= 62 and min(seconds for *_, seconds in first) >= session._LEAST_SECONDS
    # All algorithms have their first dtype.
    dtypes = [dtype for _, dtype, _ in first]
    assert [*dict.fromkeys(dtypes)] == ["float32", "int32"] and dtypes == sorted(dtypes)
    assert {name for name, dtype, _ in first if dtype == "float32"} == {name for name, *_ in given}
    results = document["results"]
    assert f"{len(results) - len(first)} of {len(results)} problems: no time was left for it" in shown.err
    assert "three_way_partition (3)" in shown.err
    assert [each["why"] for each in results[:2]] == ["not now", session.NO_TIME]


# --- Mistakes --------------------------------------------------------------------------------------------


def test_without_a_gpu(capfd, empty_cache):
    shown = run(capfd, "tune", "inclusive_scan", "float32", status=1)
    assert "WHAT: inclusive_scan cannot be tuned here, as there is no GPU" in shown.err
    shown = run(capfd, "tune", "--all", status=1)
    assert "error: --all cannot be tuned here, as there is no GPU" in shown.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["nothing", "float32"],
            "WHAT: expected a recorded list, a script (.py) or an algorithm (reduce_into",
        ),
        ([], "WHAT: expected either an algorithm, a list or a script, or --all, got neither"),
        (["--all", "reduce_into"], "or --all, got reduce_into and --all"),
        (["asked.jsonl"], "WHAT: there is no list asked.jsonl"),
        (["--all", "--op", "plus"], "--op: --all has its own"),
        (["nothing", "f4"], "WHAT: expected a recorded list, a script (.py) or an algorithm (reduce"),
        (["inclusive_scan"], "TYPE: expected the types of input and output for inclusive_scan, got none"),
        (["radix_sort", "i4", "i4", "i4"], "TYPE: expected the types of keys and items for radix_sort"),
        (["inclusive_scan", "float99"], "TYPE: expected a NumPy dtype, as in float32, got 'float99'"),
        (["radix_sort", "complex64"], "TYPE: radix_sort of complex64: d_in_keys: "),
        (["inclusive_scan", "f4", "--op", "sum"], "--op: expected one of plus, minus"),
        (["radix_sort", "i4", "--op", "less"], "--op: radix_sort has no operator"),
        (["radix_sort", "i4", "--offsets"], "--offsets: radix_sort has no segments"),
        (["radix_sort", "i4", "--cc", "80"], f"--cc: expected 90, as the GPU here is an {THE_CARD}"),
        (["radix_sort", "i4", "--plot", "x.txt"], "--plot: expected a file that ends in .png"),
        (["radix_sort", "i4", "--plot", "nowhere/x.png"], "--plot: there is no directory"),
        (["radix_sort", "i4", "--seconds", "0"], "expected a number of seconds from 1 on, got '0'"),
        (["radix_sort", "i4", "--seconds", "nan"], "expected a number of seconds from 1 on, got 'nan'"),
        (["radix_sort", "i4", "--items", "-1"], "expected a number from 1 on"),
        (["radix_sort", "i4", "--items", "0"], "expected a number from 1 on"),
        (["radix_sort", "i4", "--items", "2^99"], "expected a number from 1 on"),
    ],
)
def test_mistakes(gpu, capfd, words, message):
    assert message in run(capfd, "tune", *words, status=2).err


def test_a_list_for_other_cards_alone(gpu, capfd, tmp_path):
    path = str(tmp_path / "asked.jsonl")
    with cupar.record(path):
        ask_for_another_card("f4")
    shown = run(capfd, "tune", path, status=1)
    assert f"WHAT: {path}: nothing to tune: " in shown.err
    assert "say --cc 90" in shown.err


def test_matplotlib_is_not_there(gpu, capfd, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    shown = run(capfd, *TRANSFORM, "--plot", "x.png", status=1)
    assert "--plot: matplotlib is not installed; run 'pip install matplotlib'" in shown.err


def test_a_gpu_that_does_not_answer(quick, capfd, monkeypatch):
    from cupar._tune.measure import GPU, DeviceError

    def turns(*given):
        raise DeviceError("threads=128: an illegal address")

    monkeypatch.setattr(GPU, "turns", turns)
    shown = run(capfd, *TRANSFORM, status=1)
    assert "the GPU does not answer any more: threads=128: an illegal address" in shown.out


@pytest.mark.parametrize(
    ("text", "count"), [("1000", 1000), ("64M", 64 << 20), ("2^28", 1 << 28), ("1k", 1024)]
)
def test_counts(text, count):
    assert command._count(text) == count


def test_a_share_of_the_time_for_each(gpu, monkeypatch):
    from cupar._tune import requests

    specs = [requests.named("unary_transform", [each], None, False, 90) for each in ("f4", "f8")]
    given = []

    def tune(spec, bench, builder, seconds, notify):
        given.append(seconds)
        raise session.UnsuitableError("not now")

    monkeypatch.setattr(session, "tune", tune)
    found = session.run(specs, 100.0, None, None, True)
    assert given == [pytest.approx(50, abs=2), pytest.approx(100, abs=4)]
    assert [each.why for each in found] == ["not now"] * 2
