"""Explanations of misses: the parts of a key that differ from the nearest entry, and where they are shown."""

import copy
import json
import logging
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.common import NO_CODE

import cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._compile import key as _key
from cupar._compile import toolchain
from cupar._inspect import differences
from cupar._inspect.differences import Difference, difference, nearest
from cupar._obtain import produce
from cupar._store import entry as _entry

PLUS, TIMES = cupar.OpKind.PLUS, cupar.OpKind.MULTIPLIES


@pytest.fixture
def without_compilers(empty_cache, monkeypatch):
    """A cache in which nothing is, and builds that are made of nothing."""
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.setattr(produce, "build_here", lambda spec, seconds: (NO_CODE, 4, "built"))
    return empty_cache


def function(source, name="op", **names):
    """Return a function of source code that reads these globals."""
    exec(source, names)
    return names[name]


def reduce(op=PLUS, d_in="f4", d_out="f4", h_init=0, cc=90):
    return cupar.reduce_into(d_in, d_out, op, h_init, cc=cc)


def said(algorithm, other=None):
    return [str(each) for each in cupar.cache.explain(algorithm, other).differences]


SCALED = "def op(a, b): return a + SCALE * b"
CALLING = "def helper(x): return x * {}\ndef op(a, b): return a + helper(b)"
NESTED = "def op(a, b):\n    inner = lambda x: x * {}\n    return inner(a) + b"
DEFAULT = "def op(a, b, c={}): return a + b * c"


def closed_over(value):
    return lambda a, b: a + b * value


CHANGES = {
    "another dtype": (
        partial(reduce, d_in="i4"),
        partial(reduce, d_in="i2", h_init=np.zeros(1, "i4")),
        ["d_in: int16, was int32"],
    ),
    "another dtype of the initial value": (
        partial(reduce, h_init=np.float32(0)),
        partial(reduce, h_init=np.float64(0)),
        ["types of op: (float64, float64) -> float64, was (float32, float32) -> float32"],
    ),
    "another cc": (partial(reduce, cc=80), partial(reduce, cc=90), ["cc: 90, was 80"]),
    "another kind": (
        partial(reduce, PLUS),
        partial(reduce, TIMES),
        ["op: OpKind.MULTIPLIES, was OpKind.PLUS"],
    ),
    "a function for a kind": (
        partial(reduce, PLUS),
        partial(reduce, function("def op(a, b): return a + b")),
        ["op: function op, was OpKind.PLUS"],
    ),
    "a constant": (
        partial(reduce, lambda a, b: a + 2.0 * b),
        partial(reduce, lambda a, b: a + 3.0 * b),
        ["constant 1 of op: float 3.0, was float 2.0"],
    ),
    "the type of a constant": (
        partial(reduce, lambda a, b: a * 2.0 + b * 2.0),
        partial(reduce, lambda a, b: a * 2.0 + b * 2.5),
        ["constant 2 of op: float 2.5, was float 2.0"],
    ),
    "a constant of an inner function": (
        partial(reduce, function(NESTED.format(2.0))),
        partial(reduce, function(NESTED.format(3.0))),
        ["constant 1 of op: float 3.0, was float 2.0"],
    ),
    "code, whose constants stand elsewhere": (
        partial(reduce, lambda a, b: a + 2.0 * b),
        partial(reduce, lambda a, b: 1.5 * a - 2.0 * b),
        ["code of op changed"],
    ),
    "a global": (
        partial(reduce, function(SCALED, SCALE=2.0)),
        partial(reduce, function(SCALED, SCALE=3.0)),
        ["op reads global 'SCALE': float 3.0, was float 2.0"],
    ),
    "the type of a global": (
        partial(reduce, function(SCALED, SCALE=2)),
        partial(reduce, function(SCALED, SCALE=np.float32(2))),
        ["op reads global 'SCALE': numpy.float32 2.0, was int 2"],
    ),
    "a closure variable": (
        partial(reduce, closed_over(2)),
        partial(reduce, closed_over((2, 1))),
        ["op reads closure variable 'value': tuple (2, 1), was int 2"],
    ),
    "a default": (
        partial(reduce, function(DEFAULT.format(2.0))),
        partial(reduce, function(DEFAULT.format(3.0))),
        ["defaults of op: tuple (3.0,), was tuple (2.0,)"],
    ),
    "a constant of a function that the operator calls": (
        partial(reduce, function(CALLING.format(2))),
        partial(reduce, function(CALLING.format(3))),
        ["constant 1 in 'helper' of op: int 3, was int 2"],
    ),
    "the code of a function that the operator calls": (
        partial(reduce, function(CALLING.format("x * 2"))),
        partial(reduce, function(CALLING.format("(x + 3)"))),
        ["code in 'helper' of op changed"],
    ),
    "the compilers' own functions": (
        partial(cupar.unary_transform, "f4", "f4", np.sin, cc=90),
        partial(cupar.unary_transform, "f4", "f4", np.cos, cc=90),
        ["op: cos, was sin"],
    ),
    "an initial value": (
        partial(cupar.inclusive_scan, "f4", "f4", PLUS, None, cc=90),
        partial(cupar.inclusive_scan, "f4", "f4", PLUS, 0, cc=90),
        ["option init: value, was none"],
    ),
    "an order": (
        partial(cupar.radix_sort, "f4", "f4", None, None, cupar.SortOrder.ASCENDING, cc=90),
        partial(cupar.radix_sort, "f4", "f4", None, None, cupar.SortOrder.DESCENDING, cc=90),
        ["option order: DESCENDING, was ASCENDING"],
    ),
    "an iterator": (
        partial(reduce, d_in="i4", d_out="i4"),
        partial(reduce, d_in=cupar.CountingIterator(np.int32(0)), d_out="i4"),
        ["d_in: Counting(int32), was int32"],
    ),
    "an iterator's operator": (
        partial(reduce, d_in=cupar.TransformIterator("f4", lambda a: a * 2.0, "f4")),
        partial(reduce, d_in=cupar.TransformIterator("f4", lambda a: a * 3.0, "f4")),
        ["constant 1 of operator 1 of d_in: float 3.0, was float 2.0"],
    ),
}


def test_numbers_that_are_arguments_are_said(without_compilers):
    before, now = (reduce(function(SCALED, SCALE=each)) for each in (2.5, 0.1))
    assert said(now, before) == ["op reads global 'SCALE': float64, an argument, was float 2.5"]
    before, now = (reduce(function(DEFAULT.format(each))) for each in (3.0, 0.5))
    assert said(now, before) == [
        "defaults of op: tuple (0.5,), was tuple (3.0,)",
        "op reads default of 'c': float64 from float32, an argument, was not there",
    ]


@pytest.mark.usefixtures("constants")
@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_said(change, without_compilers):
    before, now, sentences = CHANGES[change]
    before, now = before(), now()
    assert said(now, before) == sentences
    assert len(said(before, now)) == len(sentences)
    assert cupar.cache.explain(now).nearest == before.build.key


def test_types_are_said_with_those_of_the_operator(without_compilers):
    reduce(d_in="i4", d_out="i4", op=lambda a, b: a + 2 * b)
    now = reduce(d_in="f4", d_out="f4", op=lambda a, b: a + 2 * b)
    assert said(now) == [
        "d_in: float32, was int32",
        "d_out: float32, was int32",
        "types of op: (float32, float32) -> float32, was (int32, int32) -> int32",
    ]


def test_structs_are_said_by_their_fields(without_compilers):
    pair = cupar.gpu_struct({"a": np.float32, "b": np.int64})
    keys = partial(cupar.merge_sort, d_in_items=None, d_out_items=None, op=lambda a, b: a < b, cc=90)
    before = keys(d_in_keys="f4", d_out_keys="f4")
    now = keys(d_in_keys=pair, d_out_keys=pair, op=lambda a, b: a.a < b.a)
    assert "d_in_keys: struct(float32, int64), was float32" in said(now, before)


def test_another_version_of_a_compiler_is_said(without_compilers, monkeypatch):
    versions = toolchain.operator_versions()
    before = reduce(lambda a, b: a - b)
    cupar.cache.clear(disk=False)
    monkeypatch.setattr(toolchain, "operator_versions", lambda: {**versions, "numba-cuda": "99.9"})
    now = reduce(lambda a, b: a - b)
    assert said(now) == [f"numba-cuda: 99.9, was {versions['numba-cuda']}"]
    assert cupar.cache.explain(now).nearest == before.build.key


def test_arithmetic_of_integers_that_wraps_around_is_said(without_compilers, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(_key, "_WRAPPING", {})
        reduce(closed_over(2))
    cupar.cache.clear(disk=False)
    assert said(reduce(closed_over(2))) == ["integers out of range: wrap around, was not there"]


def test_an_explanation_is_a_few_lines(without_compilers):
    alone = reduce(cc=80)
    assert str(cupar.cache.explain(alone)) == (
        f"{alone.build.key[:12]}: no other entry of its algorithm and kind is kept"
    )
    now = reduce(cc=90)
    assert str(cupar.cache.explain(now.build.key[:20])) == (
        f"{now.build.key[:12]} differs from {alone.build.key[:12]} in\n  cc: 90, was 80"
    )


def test_what_cannot_be_explained_says_what_to_do(without_compilers):
    algorithm = reduce()
    for key, message in {
        "0" * 64: "no entry in the cache begins with .*cupar cache list",
        "nothex": "expected a key or the beginning of one",
        "": "expected a key or the beginning of one",
    }.items():
        with pytest.raises(ValueError, match=message):
            cupar.cache.explain(key)
        with pytest.raises(ValueError, match=message):
            cupar.cache.explain(algorithm, key)
    with pytest.raises(TypeError, match="algorithm: expected an algorithm object or a key, got int"):
        cupar.cache.explain(7)
    with pytest.raises(TypeError, match="other: expected an algorithm object or a key, got int"):
        cupar.cache.explain(algorithm, 7)


def test_an_entry_that_cannot_be_read_is_not_explained(without_compilers):
    keys = [reduce(cc=cc).build.key for cc in (80, 90)]
    damaged = _cache.disk().find(keys[0])
    damaged.write_bytes(b"nothing")
    for name, asked in {"algorithm": keys, "other": keys[::-1]}.items():
        with pytest.raises(ValueError, match=f"{name}: the entry {keys[0]} cannot be read; run 'cupar cache"):
            cupar.cache.explain(*asked)
    with pytest.raises(ValueError, match="verify --repair"):
        cupar.cache.explain(keys[0])
    assert cupar.cache.explain(keys[1]).nearest is None


def test_a_bundle_is_looked_through_too(without_compilers, tmp_path, monkeypatch):
    before = reduce(cc=80)
    cupar.cache.export(tmp_path / "bundle")
    cupar.cache.clear()
    monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "bundle"))
    now = reduce(cc=90)
    assert cupar.cache.explain(now) == differences.Explanation(
        now.build.key, before.build.key, (Difference("cc", "90", "80"),)
    )


# --- Which is the nearest


def meta_of(**changes):
    """Return metadata as a build of a function has it."""
    meta = {
        "algorithm": "reduce_into",
        "entry": "build",
        "operators": {"op": "op"},
        "reads": {"op": [["code", "aaaaaaaaaaaa"], ["global 'SCALE'", "float 2.0"]]},
        "parts": {
            "algorithm": "reduce_into",
            "entry": "build",
            "arguments": {
                "d_in": ["float32", "in", ["Pointer", ["<f4", 4, 4]]],
                "d_out": ["float32", "out", ["Pointer", ["<f4", 4, 4]]],
            },
            "cc": 90,
            "format": 3,
            "functions": {"op": ["", "0"]},
            "operators": {"op": "function"},
            "options": {"option init": "value"},
            "versions": {"nvrtc": "1", "nvjitlink": "1", "numba-cuda": "1", "nvvm": "1"},
        },
    }
    for name, value in changes.items():
        (meta if name in meta else meta["parts"])[name] = value
    return meta


OTHER_VERSIONS = {"versions": {"nvrtc": "2", "nvjitlink": "2", "numba-cuda": "2", "nvvm": "2"}}
OTHER_CC = {"cc": 80}
OTHER_VALUE = {
    "functions": {"op": ["", "1"]},
    "reads": {"op": [["code", "aaaaaaaaaaaa"], ["global 'SCALE'", "float 3.0"]]},
}
OTHER_CODE = {
    "functions": {"op": ["", "2"]},
    "reads": {"op": [["code", "bbbbbbbbbbbb"], ["global 'SCALE'", "float 2.0"]]},
}
OTHER_FUNCTION = {**OTHER_CODE, "operators": {"op": "<lambda>"}}
OTHER_TYPES = {
    "arguments": {
        "d_in": ["int32", "in", ["Pointer", ["<i4", 4, 4]]],
        "d_out": ["int32", "out", ["Pointer", ["<i4", 4, 4]]],
    }
}
BY_DISTANCE = [OTHER_VERSIONS, OTHER_CC, OTHER_VALUE, OTHER_CODE, OTHER_FUNCTION, OTHER_TYPES]


@pytest.mark.parametrize("place", range(len(BY_DISTANCE)))
def test_the_same_program_on_another_day_is_nearest(place):
    candidates = [(str(i), meta_of(**change)) for i, change in enumerate(BY_DISTANCE)][place:]
    assert nearest(meta_of(), reversed(candidates))[0] == str(place)


def test_only_the_same_algorithm_and_kind_is_near():
    others = [("1", meta_of(algorithm="inclusive_scan")), ("2", meta_of(entry="template")), ("3", {})]
    assert nearest(meta_of(), others) is None


def test_of_several_the_first_is_nearest():
    assert nearest(meta_of(), [("1", meta_of(cc=80)), ("2", meta_of(cc=100))])[0] == "1"


# --- Whatever metadata holds


@pytest.fixture
def many_parts(specified):
    """Return metadata with every part that builds have."""
    d_in = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda a: a * 2, "i4")
    spec = specified(cupar.reduce_into, d_in, "i4", lambda a, b: a - 2 * b, 0)
    parts = json.loads(json.dumps(_key.build_parts(spec)))
    return {"algorithm": "reduce_into", "entry": "build", "cc": 90, "parts": parts}


def leaves(value, path=()):
    """Yield the path to each string or number in a table."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if not isinstance(value, (dict, list)):
        yield path
    for name, each in inner:
        yield from leaves(each, (*path, name))


def test_no_part_can_change_without_a_word(many_parts):
    paths = list(leaves(many_parts["parts"]))
    assert len(paths) > 40
    for path in paths:
        changed = copy.deepcopy(many_parts)
        place = changed["parts"]
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = "changed"
        assert difference(changed, many_parts), path
        assert difference(many_parts, changed), path


def test_no_part_can_go_without_a_word(many_parts):
    for name in many_parts["parts"]:
        changed = copy.deepcopy(many_parts)
        del changed["parts"][name]
        assert difference(changed, many_parts), name
        assert difference(many_parts, changed), name


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner))
PARTS = ["algorithm", "arguments", "cc", "format", "functions", "generated", "operators", "options", "types"]
tables = st.dictionaries(st.sampled_from(["op", "d_in", "operator 1 of d_in"]), values)
parts = st.dictionaries(st.sampled_from([*PARTS, "versions", "new"]), values | tables)
metas = st.fixed_dictionaries(
    {},
    optional={
        "parts": parts | values,
        "reads": tables | values,
        "operators": tables | values,
        "algorithm": values,
    },
)


@pytest.mark.slow
@given(metas, metas)
@settings(deadline=None, max_examples=30)
def test_metadata_of_any_kind_is_compared(now, before):
    assert difference(now, now) == ()
    assert all(map(str, difference(now, before)))
    assert nearest(now, [("1", before), ("2", now)])[0] in "12"
    assert isinstance(differences.subject(now) + differences.summary(now), str)


NAMES = ["algorithm", "cc", "entry", "operators", "parts", "reads"]
objects = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), values, max_size=5)


@given(objects, objects)
@settings(deadline=None, max_examples=30)
def test_any_object_is_compared(now, before):
    now, before = (json.loads(json.dumps(each)) for each in (now, before))
    assert all(map(str, difference(now, before)))
    assert nearest(now, [("1", before), ("2", now)])[0] in "12"
    assert str(differences.explanation("0" * 64, now, []))
    assert isinstance(differences.subject(now) + differences.summary(now), str)


def test_metadata_that_is_nested_to_do_harm_is_passed_over():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    argument = {"arguments": {"d_in": ["Zip", "in", deep]}}
    for changes in (argument, {"operators": {"op": deep}}, {"reads": deep}, {"new": deep}):
        meta = meta_of(**changes)
        assert all(map(str, difference(meta, meta_of(cc=80))))
        assert isinstance(differences.summary(meta) + differences.subject({**meta, "cc": 90}), str)
    harmful = meta_of(arguments={"d_in": deep})
    (told,) = difference(harmful, meta_of())
    assert "nested too deep" in str(told)
    assert nearest(meta_of(), [("1", harmful)]) is None


# --- What entries say of their operators


def test_an_entry_is_kept_with_what_its_operators_read(without_compilers):
    d_in = cupar.TransformIterator("f4", function("half = lambda a: a * 0.5", "half"), "f4")
    algorithm = reduce(function(SCALED, SCALE=2.0), d_in=d_in)
    meta = cupar.cache.info(algorithm.build.key).meta
    assert meta["operators"] == {"op": "op", "operator 1 of d_in": "<lambda>"}
    assert [what for what, _ in meta["reads"]["op"]] == ["global 'SCALE'", "code"]
    assert dict(meta["reads"]["op"])["global 'SCALE'"] == "float 2.0"
    assert dict(meta["reads"]["operator 1 of d_in"])["constant 1"] == "float 0.5"


def test_what_an_operator_reads_is_shown_in_short(without_compilers):
    table = np.arange(10_000)
    algorithm = reduce(function("def op(a, b): return a + TABLE[0] * b", TABLE=table))
    reads = cupar.cache.info(algorithm.build.key).meta["reads"]["op"]
    assert all(len(value) < 100 for _, value in reads)
    assert dict(reads)["global 'TABLE'"].startswith("numpy.ndarray ")


# --- Lines


def lines(caplog, level=logging.INFO):
    return [
        record.getMessage() for record in caplog.records if record.name == "cupar" and record.levelno == level
    ]


def test_a_build_and_a_hit_are_a_line_each(without_compilers, caplog):
    caplog.set_level(logging.INFO, "cupar")
    op = function("minus = lambda a, b: a - b", "minus")
    key = reduce(op).build.key
    reduce(op)  # in memory, of which nothing is said
    (built,) = lines(caplog)
    assert built.startswith("built reduce_into for sm_90 in ")
    assert built.endswith(f"(d_in: float32, d_out: float32, op: <lambda>), key {key}")
    cupar.cache.clear(disk=False)
    assert reduce(op).build.source == str(without_compilers)
    found = lines(caplog)[1]
    assert found.startswith("found reduce_into for sm_90 in ")
    assert f" s in {without_compilers} (d_in: float32," in found
    assert len(caplog.records) == 2


def test_what_is_linked_is_called_so(without_compilers, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "cupar")
    monkeypatch.setattr(produce, "build_here", lambda spec, seconds: (NO_CODE, 4, "linked"))
    reduce()
    assert lines(caplog)[0].startswith("linked reduce_into for sm_90 in ")


def test_debug_says_why(without_compilers, caplog):
    before = reduce(lambda a, b: a + 2 * b)
    caplog.set_level(logging.DEBUG, "cupar")
    now = reduce(lambda a, b: a + 3 * b)
    why, parts = lines(caplog, logging.DEBUG)
    assert why == str(cupar.cache.explain(now, before))
    assert why.endswith("\n  constant 1 of op: int 3, was int 2")
    prefix = f"parts of {now.build.key}: "
    assert _key.digest(json.loads(parts.removeprefix(prefix))) == now.build.key


def test_debug_says_why_without_a_directory(without_compilers, caplog, monkeypatch):
    monkeypatch.setenv("CUPAR_CACHE", "0")
    caplog.set_level(logging.DEBUG, "cupar")
    reduce()
    assert "no other entry" in lines(caplog, logging.DEBUG)[0]


def test_kernels_for_any_operator_are_told_at_debug(empty_cache, caplog):
    caplog.set_level(logging.DEBUG, "cupar")
    entry = _cache.Entry(
        {"algorithm": "reduce_into", "cc": 90, "entry": "template", "parts": {"cc": 90}}, b""
    )
    from cupar._inspect import log

    log.template("0" * 64, _cache.FetchedEntry("0" * 64, entry, "disk", 0.001, "/somewhere"))
    assert lines(caplog, logging.DEBUG)[0].startswith("found kernels of reduce_into for sm_90 in 0.0010 s")


def test_nothing_is_explained_to_nobody(without_compilers, caplog, monkeypatch):
    monkeypatch.setattr(differences, "explanation", None)
    caplog.set_level(logging.INFO, "cupar")
    assert reduce().build.origin == "built"
    caplog.set_level(logging.WARNING, "cupar")
    monkeypatch.setattr(differences, "summary", None)
    assert reduce(cc=80).build.origin == "built"


def test_a_hit_does_not_import_logging(without_compilers):
    key = reduce(PLUS).build.key
    code = (
        "import sys, cupar\n"
        "build = cupar.reduce_into('f4', 'f4', cupar.OpKind.PLUS, 0, cc=90).build\n"
        "late = 'logging', 'cupar._inspect.differences'\n"
        "print(build.origin, build.key, *[name in sys.modules for name in late])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["disk", key, "False", "False"]


def test_an_entry_of_an_earlier_version_is_explained_as_far_as_it_goes(without_compilers):
    before = reduce(lambda a, b: a + 2 * b)
    disk = _cache.disk()
    entry = disk.load(before.build.key)
    meta = {name: value for name, value in entry.meta.items() if name != "reads"}
    disk.store(before.build.key, _entry.Entry(meta, entry.payload))
    assert said(reduce(lambda a, b: a + 3 * b)) == ["op changed"]


def test_of_an_entry_of_another_format_only_what_reads_alike_is_compared():
    earlier = meta_of(cc=80, **OTHER_VERSIONS)
    earlier["parts"] |= {
        "arguments": [["d_in", "in", ["Pointer", ["<i4", 4, 4]]]],
        "format": 2,
        "functions": {"op": ["1"]},
        "operators": {"op": ["function", ["<i4", 4, 4], ["<i4", 4, 4], ["<i4", 4, 4]]},
        "options": {"init": "value"},
        "numba": {"debug": False},
        "wrappers": {"op": ["0"]},
    }
    assert nearest(meta_of(), [("1", earlier)]) == ("1", earlier)
    told = [str(each) for each in difference(meta_of(), earlier)]
    assert told[:2] == ["cc: 90, was 80", "format: 3, was 2"]
    assert {each.part for each in difference(meta_of(), earlier)[2:]} == OTHER_VERSIONS["versions"].keys()
    assert isinstance(differences.summary(earlier), str)
