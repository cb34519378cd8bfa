"""Which policy a card gets: rows of its major version from below, or what CUB's selector says."""

import re
from dataclasses import replace

import numpy as np
import pytest
from support.common import stored_properties
from support.cubins import kernels
from support.disassembly import instructions, spills_or_calls
from support.plans import planned

import cupar
from cupar._kernels import policies
from cupar._kernels.policies import EVERY, MeasuredPolicies, PolicyTable, StagedScanPolicy
from cupar._kernels.scan import SCAN
from cupar._obtain import obtain

CARDS = (70, 75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121)
TABLES = {name: each for name, each in vars(policies).items() if isinstance(each, PolicyTable)}


# --- Tables ----------------------------------------------------------------------------------------------


def chosen(*rows, scope=(4,)):
    """Return by card which row of a table it gets: policies here say which capability they are of."""
    table = PolicyTable(
        MeasuredPolicies("A GPU", "2026-01-01", "a problem", {(cc, *of): cc for cc, *of in rows})
    )
    found = {cc: table.find(cc, *scope) for cc in CARDS}
    return {cc: row for cc, row in found.items() if row is not None}


def test_a_row_is_for_cards_of_its_major_version_from_it_on():
    assert chosen((80, 4), (90, 4)) == {80: 80, 86: 80, 87: 80, 88: 80, 89: 80, 90: 90}
    assert chosen((86, 4)) == {86: 86, 87: 86, 88: 86, 89: 86}
    assert chosen((80, 4), (89, 4)) == {80: 80, 86: 80, 87: 80, 88: 80, 89: 89}
    assert chosen((70, 4), (100, 4), (103, 4)) == {70: 70, 75: 70, 100: 100, 103: 103, 107: 103}
    assert chosen((120, 4)) == {120: 120, 121: 120}
    assert chosen() == chosen((121, 8)) == {}


def test_rows_of_other_problems_say_nothing():
    assert chosen((80, 4), (86, 8)) == {cc: 80 for cc in CARDS if cc // 10 == 8}
    assert chosen((80, 4, "c")) == {}
    assert chosen((80, 4), (80, 4, "c"), scope=(4, "c")) == {cc: 80 for cc in CARDS if cc // 10 == 8}


def test_a_row_for_every_card_is_for_those_without_their_own():
    found = chosen((EVERY, 4), (90, 4))
    assert found == {cc: 90 if cc == 90 else EVERY for cc in CARDS}


@pytest.mark.parametrize("name", TABLES)
def test_rows_say_what_they_were_measured_with(name):
    for key, row in TABLES[name].rows.items():
        assert key[0] == EVERY or key[0] in CARDS
        assert row.gpu and row.problem
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.date)


@pytest.mark.parametrize("cc", CARDS)
def test_kernels_of_cupars_own_have_a_policy_on_every_card(cc):
    """CUB has no selector for them."""
    for name in ("REDUCE", "SEARCH", "TRANSFORM", "HISTOGRAM", "SEGMENTED_SORT", "SEGMENTED_SCAN"):
        for key in TABLES[name].rows:
            assert TABLES[name].get(cc, *key[1:])


# --- Scans -----------------------------------------------------------------------------------------------


class Asked(Exception):
    pass


class Observer:
    is_ahead, cc = True, None

    def observe(self, spec, answer):
        raise Asked(spec)


def asked(d_in="f4", d_out=None, op=cupar.OpKind.PLUS):
    usual, obtain.observer = obtain.observer, Observer()
    try:
        with pytest.raises(Asked) as found:
            cupar.inclusive_scan(d_in, d_in if d_out is None else d_out, op, cc=90)
    finally:
        obtain.observer = usual
    return found.value.args[0]


def ways(spec):
    """Return how a scan looks ahead, by card: a policy, or CUB's selector. Others look back."""
    found = {}
    for cc in CARDS:
        of_card = replace(spec, cc=cc)
        if SCAN.source_of(of_card) == "scan/scan_staged.cuh":
            values = dict(re.findall(r"staged_(\w+) = (\d+)", SCAN.traits(of_card)))
            found[cc] = StagedScanPolicy(*(int(values[name]) for name in StagedScanPolicy._fields))
        elif SCAN.source_of(of_card) == "scan/scan_fast.cuh":
            found[cc] = "CUB"
    return found


CUBS = dict.fromkeys((100, 103, 107, 110, 120, 121), "CUB")
COUNTING = cupar.CountingIterator(np.int32(0))


def test_which_policy_a_scan_has_on_which_card():
    """Ours for 9.0, where it was measured; from 10.0 on, CUB's selector is asked, for arrays."""
    assert ways(asked("f4")) == {90: policies.SCAN.get(90, 4), **CUBS}
    assert ways(asked("?", op=cupar.OpKind.LOGICAL_OR)) == {90: policies.SCAN.get(90, 1), **CUBS}
    assert ways(asked("c16")) == {90: policies.SCAN.get(90, 16), **CUBS}
    tuned = asked("f4").with_policy("warps=4 nbytes=16384 slots=5")
    assert ways(tuned) == dict.fromkeys((90, *CUBS), StagedScanPolicy(4, 16384, 5))


def test_scans_of_tuples_of_arrays_have_the_policy_of_all_their_bytes():
    f4, f8, i4 = map(np.dtype, ("f4", "f8", "i4"))
    cases = (((f4, f4), 8), ((f4, f8), 16), ((f4, COUNTING), 4), ((f8, f8, f8), 16))
    for columns, size in cases:
        d_out = cupar.ZipIterator(*(i4 if each is COUNTING else each for each in columns))
        spec = asked(cupar.ZipIterator(*columns), d_out, op=lambda a, b: b)
        assert ways(spec) == {90: policies.SCAN.get(90, size)}


def test_scans_that_read_no_array_from_item_to_item_look_back():
    assert ways(asked(COUNTING, "i4")) == {}
    assert ways(asked(cupar.PermutationIterator(np.dtype("i4"), np.dtype("i4")), "i4")) == {}
    assert ways(asked(cupar.CacheModifiedInputIterator(np.dtype("i4"), "stream"), "i4")) == {}


# Bytes of shared memory that a block may have.
OPTIN = {80: 163 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}


@pytest.mark.parametrize("cc", OPTIN)
def test_a_scan_built_for_each_kind_of_card(cc, tmp_path, only):
    only(*{90: ["cupar_scan_staged"], 100: ["cupar_scan_ahead"]}.get(cc, []))  # `test_cards` has others
    scan = cupar.inclusive_scan("f8", "f8", cupar.OpKind.PLUS, cc=cc)
    facts, n, sms = stored_properties(scan), 1 << 28, 84
    given = {**facts, "sms": sms, "shared_memory": OPTIN[cc]}
    shape, nbytes, numbers = planned(SCAN, given, lambda _, __, size: int(size <= OPTIN[cc]))(n)
    if cc < 90:
        assert (shape, "cupar_scan_ahead" in kernels(scan.cubin())) == ("tiles", False)
        return
    assert (cc == 90) == ("nbytes" in scan.build.policy.values)
    if cc != 120:
        assert {*spills_or_calls(scan, tmp_path)} <= {"CALL"}
        names = " ".join(instructions(scan, tmp_path))
        assert ("ATOMG" in names, "GETNEXTWORKID" in names) == (cc == 90, cc > 90)
    if cc == 90:  # blocks stay, and take tiles by an atomic counter
        _, tiles, words, clearing, grid = numbers
        assert (shape, tiles, grid) == ("staged", -(-n // facts["ahead_tile"]), sms)
        assert words * 16 == nbytes >= 16 + tiles * facts["ahead_state"] and clearing * 256 >= words
        assert facts["shared_1"] <= OPTIN[cc]
        return
    _, tiles, clearing, counter, grid, stages, shared = numbers
    assert (shape, tiles) == ("ahead", -(-n // facts["ahead_tile"]))
    # Stages of a block fill its shared memory, and CUB asks for one at least that fits on every card.
    assert facts["shared_1"] <= 48 << 10
    assert shared == facts[f"shared_{stages}"] <= OPTIN[cc] < facts[f"shared_{stages + 1}"]
    assert counter >= tiles * facts["ahead_state"] and nbytes >= counter + 4 and clearing * 128 >= tiles
    assert grid == tiles  # blocks that run take the places of those to come
