"""Tuned policies: cache entries by kind of card, which change builds for such cards only."""

import json

import numpy as np
import pytest
from support.common import DeviceArray
from support.gpu import CARD, PROPERTIES, pretended

import cupar
from cupar import _cache
from cupar._base import warnings as _warnings
from cupar._compile.key import build_parts, digest, policy_parts
from cupar._device.card import Card
from cupar._kernels import policies, tuning
from cupar._kernels.family import Family
from cupar._kernels.transform import TRANSFORM
from cupar._obtain import factory_cache, obtain, tuned

HERE = Card(CARD, 90, PROPERTIES["sms"])
BETTER = policies.TransformPolicy(128, 64, 4)
A, B = DeviceArray(1 << 20, 1 << 30, "<f4"), DeviceArray(1 << 16, 1 << 30, "<f4")


@pytest.fixture
def gpu(monkeypatch, empty_cache):
    monkeypatch.setattr(_warnings, "warned", set())
    monkeypatch.delenv("CUPAR_TUNED", raising=False)
    yield pretended(monkeypatch, 90)
    tuned.forget()


class Asked(Exception):
    pass


class Observer:
    """An observer that raises the request, so that nothing is built."""

    cc = None
    is_ahead = False

    def observe(self, spec, answer):
        raise Asked(spec)


def asked_of(factory, *arguments, **named):
    """Return the specialisation that a factory is asked for."""
    usual, obtain.observer = obtain.observer, Observer()
    factory_cache.forget()
    try:
        with pytest.raises(Asked) as asked:
            factory(*arguments, cc=90, **named)
    finally:
        obtain.observer = usual
    return asked.value.args[0]


def ask(dtype="f4", **more):
    return cupar.unary_transform(dtype, dtype, cupar.OpKind.NEGATE, **more)


def keep(spec, policy=BETTER, card=HERE):
    key, entry = tuned.entry(spec, card, policy, [{"problem": "2^20 items", "before": 2e-6, "after": 1e-6}])
    assert tuned.keep(key, entry)
    cupar.cache.clear(disk=False)
    return key


def values(algorithm):
    return tuple(algorithm.build.policy.values.values())


def test_a_tuned_policy_is_what_runs(gpu):
    before = ask()
    assert (values(before), before.build.policy.source) == (policies.TRANSFORM.get(90), "cupar")
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    now = ask()
    assert (values(now), now.build.policy.source, now.build.origin) == (BETTER, "tuned", "built")
    assert str(now.build.policy) == "threads=128 bytes_in_flight=64 iterator_items=4 (tuned)"
    assert now.build.key != before.build.key
    now.run(A, B, 1000)
    cupar.cache.clear(disk=False)
    again = ask()
    assert (again.build.key, again.build.origin) == (now.build.key, "disk")
    assert ask().build.origin == "memory"


def test_the_key_tells_the_policy(gpu):
    spec = asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE)
    other = spec.with_policy(tuning.write(BETTER))
    assert build_parts(other)["options"]["option policy"] == "threads=128 bytes_in_flight=64 iterator_items=4"
    # The default's values are another build, too, if they were measured: that is what the key says.
    same = spec.with_policy(tuning.write(policies.TRANSFORM.get(90)))
    assert len({digest(build_parts(each)) for each in (spec, other, same)}) == 3
    assert other.as_asked() == spec
    assert other.with_policy("x").with_policy(tuning.write(BETTER)) == other


@pytest.mark.parametrize(
    "card", [Card("NVIDIA H100 80GB HBM3", 90, 132), Card(CARD, 90, 16), Card(CARD, 100, PROPERTIES["sms"])]
)
def test_never_on_another_kind_of_card(gpu, card):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE), card=card)
    assert ask().build.policy.source == "cupar"


def test_never_without_the_card(gpu):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    assert ask(cc=90).build.policy.source == "cupar"
    assert ask().build.policy.source == "tuned"


def test_never_for_another_problem(gpu):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    others = [
        ask("i4"),
        cupar.unary_transform("f4", "f8", cupar.OpKind.NEGATE),
        cupar.unary_transform(cupar.CountingIterator(np.float32(0)), "f4", cupar.OpKind.NEGATE),
        cupar.unary_transform("f4", "f4", lambda a: -a),
        cupar.reduce_into("f4", "f4", cupar.OpKind.PLUS, 0),
    ]
    assert [each.build.policy.source for each in others] == ["cupar"] * len(others)
    # What only the name of a known operator tells apart has the same policy.
    assert cupar.unary_transform("f4", "f4", cupar.OpKind.IDENTITY).build.policy.source == "tuned"


def test_never_for_other_kernels(gpu, monkeypatch):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    from cupar._kernels import headers

    monkeypatch.setattr(headers, "digest", lambda file: "of a later version")
    assert ask().build.policy.source == "cupar"


def test_it_can_be_switched_off(gpu, monkeypatch):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    monkeypatch.setenv("CUPAR_TUNED", "0")
    assert ask().build.policy.source == "cupar"


def test_in_the_background(gpu):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    assert ask(wait=False).build.policy.source == "tuned"


def test_a_list_names_no_policy_and_preload_finds_one(gpu, tmp_path):
    path = tmp_path / "asked.jsonl"
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    with cupar.record(path):
        recorded = ask()
    assert "policy" not in dict(cupar._ahead.record.read(path)[0].load().options)
    cupar.cache.clear(disk=False)
    cupar.preload(path)
    found = ask()
    assert (found.build.origin, found.build.policy.source) == ("memory", "tuned")
    assert found.build.key == recorded.build.key


def test_it_travels_in_a_bundle(gpu, tmp_path, monkeypatch):
    key = keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    made = ask()
    cupar.cache.export(tmp_path / "tuned.cupar-bundle")
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
    cupar.cache.clear(disk=False)
    assert ask().build.policy.source == "cupar"
    monkeypatch.setenv("CUPAR_BUNDLES", str(tmp_path / "tuned.cupar-bundle"))
    cupar.cache.clear(disk=False)
    found = ask()
    assert (found.build.key, found.build.origin) == (made.build.key, "disk")
    kinds = {info.entry: info for info in cupar.cache.entries()}
    assert kinds["policy"].key == key
    assert kinds["policy"].meta["card"] == f"{CARD} (sm_90, {PROPERTIES['sms']} SMs)"


class Store(dict):
    """A shared store that notes what it is asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def get(self, name, default=None):
        self.asked.append(name)
        return super().get(name, default)

    def __getitem__(self, name):
        self.asked.append(name)
        return super().__getitem__(name)


@pytest.fixture
def store():
    """A shared store that is used."""
    made = Store()
    cupar.use_shared(made)
    yield made
    cupar.use_shared(None)


def test_it_travels_in_a_shared_store(gpu, store, tmp_path, monkeypatch):
    key = keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    made = ask()
    monkeypatch.setenv("CUPAR_CACHE_DIR", str(tmp_path / "other"))
    cupar.cache.clear(disk=False)
    found = ask()
    assert (found.build.key, found.build.origin) == (made.build.key, "disk")
    assert any(key in name for name in store.asked)


def test_a_hit_asks_no_shared_store(gpu, store):
    ask()
    store.asked.clear()
    cupar.cache.clear(disk=False)
    assert ask().build.origin == "disk"
    assert store.asked == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"policy": {"threads": 128}}',
        b'{"policy": {"threads": 96, "bytes_in_flight": 64, "iterator_items": 4}}',
        b'{"policy": {"threads": "x", "bytes_in_flight": 64, "iterator_items": 4}}',
        b'{"policy": {"threads": 128, "bytes_in_flight": 64, "iterator_items": 4, "code": 1}}',
        b'{"policy": {"threads": 128.0, "bytes_in_flight": 64, "iterator_items": 4}}',
        b'{"policy": {"threads": NaN, "bytes_in_flight": 64, "iterator_items": 4}}',
        b'{"policy": {"threads": 1' + b"0" * 5000 + b', "bytes_in_flight": 64, "iterator_items": 4}}',
        b'{"policy": "\\ud800"}',
        b"\xff",
        b'{"policy":' * 100_000,
    ],
)
def test_what_is_no_policy_is_not_used(gpu, content):
    spec = asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE)
    parts = policy_parts(spec, HERE)
    _cache.disk().store(digest(parts), _cache.Entry({"entry": "policy"}, content))
    with pytest.warns(cupar.CacheWarning, match="tuned policy"):
        assert ask().build.policy.source == "cupar"


def test_one_that_cannot_be_built_is_left_alone(gpu, monkeypatch):
    keep(asked_of(cupar.unary_transform, "f4", "f4", cupar.OpKind.NEGATE))
    usual = obtain._built_in_tier

    def produced(spec, *more):
        if spec.option("policy"):
            raise cupar.BuildError("too many registers")
        return usual(spec, *more)

    monkeypatch.setattr(obtain, "_built_in_tier", produced)
    with pytest.warns(cupar.CacheWarning, match="without its tuned policy"):
        assert ask().build.policy.source == "cupar"


def test_which_source_decided(only):
    """Scans look ahead where a table says so; where it has nothing, CUB's selector decides."""
    only()
    plus = cupar.OpKind.PLUS
    here, old = (cupar.inclusive_scan("f4", "f4", plus, cc=cc).build.policy for cc in (90, 80))
    assert (here.source, here.values) == ("cupar", policies.SCAN.get(90, 4)._asdict())
    assert (old.source, {*old.values}) == ("CUB", {"threads", "items"})
    sort = cupar.radix_sort("i4", "i4", cc=90, order=cupar.SortOrder.ASCENDING).build.policy
    assert (sort.source, min(sort.values.values()) > 0) == ("CUB", True)


def test_a_scan_looks_ahead_where_only_that_was_measured(gpu, monkeypatch):
    monkeypatch.setattr(policies, "SCAN", policies.PolicyTable())
    monkeypatch.setenv("CUPAR_TIER", "fast")
    spec = asked_of(cupar.inclusive_scan, "f4", "f4", cupar.OpKind.PLUS)
    before = cupar.inclusive_scan("f4", "f4", cupar.OpKind.PLUS)
    assert before.build.policy.source == "CUB"
    assert b"cupar_scan_staged" not in before.cubin()
    keep(spec, policies.StagedScanPolicy(8, 32768, 5))
    now = cupar.inclusive_scan("f4", "f4", cupar.OpKind.PLUS)
    assert (values(now), now.build.policy.source) == ((8, 32768, 5), "tuned")
    assert b"cupar_scan_staged" in now.cubin()


# --- Declarations ----------------------------------------------------------------------------------------


TUPLE = cupar.ZipIterator("f4", "f8")


def specs():
    """One of each family that can be tuned."""
    plus, less, order = cupar.OpKind.PLUS, cupar.OpKind.LESS, cupar.SortOrder.ASCENDING
    return [
        asked_of(cupar.inclusive_scan, "f4", "f4", plus),
        asked_of(cupar.exclusive_scan, "c16", "c16", lambda a, b: a + b, np.zeros(1, "c16")),
        asked_of(cupar.reduce_into, "f4", "f4", plus, 0),
        asked_of(cupar.unary_transform, "i2", "i2", cupar.OpKind.NEGATE),
        asked_of(cupar.merge_sort, "f8", "i4", "f8", "i4", less),
        asked_of(cupar.merge, "f4", "i8", "f4", "i8", "f4", "i8"),
        asked_of(cupar.set_union, "f4", "i8", "f4", "i8", "f4", "i8", "i8"),
        asked_of(cupar.set_intersection, "u1", None, "u1", None, "u1", None, "i8"),
        asked_of(cupar.inclusive_column_scan, "f8", "f8", plus),
        asked_of(cupar.column_reduce, "f4", "f4", plus, 0),
        asked_of(cupar.inclusive_scan, TUPLE, TUPLE, lambda a, b: b),
        asked_of(cupar.reduce_into, "f4", "f4", plus, 0, commutative=False),
        asked_of(cupar.radix_sort, "i4", "i4", "i8", "i8", order=order),
        asked_of(cupar.lower_bound, "f4", "f4", "i8"),
        asked_of(cupar.histogram_even, "f4", "i4", 5, 0.0, 1.0, 100),
        asked_of(cupar.select, "i4", "i4", "i8", lambda a: a > 0),
        asked_of(cupar.segmented_reduce, "f4", "f4", "i8", "i8", plus, 0),
        asked_of(cupar.segmented_reduce, "i2", "i8", None, None, plus, 0),
        asked_of(cupar.inclusive_segmented_scan, "f8", "f8", "i8", "i8", plus),
        asked_of(cupar.reduce_by_key, "i4", "i4", "f4", "f4", "i8", plus),
        asked_of(cupar.inclusive_scan_by_key, "u1", "c16", "c16", lambda a, b: a * b),
        asked_of(cupar.run_length_encode, "c16", "c16", "i4", "i8"),
        asked_of(cupar.segmented_nth_element, "f4", "f4"),
        asked_of(cupar.top_k, "i8", "i8"),
        asked_of(cupar.segmented_top_k, "f4", "f4", "i4", "i4", "i8", "i8"),
        asked_of(cupar.unique_by_key, "i4", "f4", "i4", "f4", "i8", cupar.OpKind.EQUAL_TO),
    ]


def test_the_default_may_be_tried():
    """What is there by default is in the space, or CUB's: so that a search may begin there."""
    for spec in specs():
        tunable = spec.family.tunable
        default = tunable.of(spec)
        assert default is None or tunable.may_be(spec, default), (spec.algorithm, default)


def test_spaces_are_ordered_and_policies_are_told_apart():
    for spec in specs():
        family: Family = spec.family
        space = family.tunable.space(spec)
        assert {*space} == {*family.tunable.fields}
        assert all([*each] == sorted(set(each)) for each in space.values())
        found = [*family.tunable.policies(spec)]
        assert 4 <= len(found) == len(set(found)) <= 3000, spec.algorithm
        preludes = {family.traits(spec.with_policy(tuning.write(each))) for each in found}
        assert len(preludes) == len(found)
        assert all(family.tunable.read(tuning.write(each)) == each for each in found)


def test_text_that_is_no_policy():
    for text in ("", "threads=1", "threads=a bytes_in_flight=1 iterator_items=1", "threads"):
        with pytest.raises(ValueError, match="policy: expected threads=… bytes_in_flight=…"):
            TRANSFORM.tunable.read(text)


def test_scopes_are_text():
    for spec in specs():
        scope = spec.family.tunable.scope(spec)
        assert all(isinstance(value, str) for value in scope.values())
        assert json.loads(json.dumps(policy_parts(spec, HERE))) == policy_parts(spec, HERE)
