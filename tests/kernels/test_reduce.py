"""Reductions: plans by size, which read each item once, and templates."""

from collections import Counter

import numpy as np
import pytest
from support.disassembly import instructions
from support.plans import planned

import cupar
from cupar._kernels.reduce import REDUCE

SMS, OCCUPANCY = 132, 8
FLOAT32 = dict(
    threads=256, items=4, rows=4, small_rows=4, large_threads=1024, large_items=16384, accum_size=4
)
BYTES = dict(threads=256, items=16, rows=2, small_rows=2, large_threads=1024, large_items=65536, accum_size=8)
STRUCTS = dict(threads=256, items=1, rows=4, small_rows=4, large_threads=256, large_items=1024, accum_size=40)
# Items with their indices, of which a thread has fewer at once but in whole tiles.
INDEXED = dict(FLOAT32, small_rows=2, large_items=8192, accum_size=16)
CC = 90


def planner(facts, sms=SMS):
    return planned(REDUCE, {**facts, "sms": sms, "shared_memory": 232448}, lambda *_: OCCUPANCY)


@pytest.mark.parametrize("facts", [FLOAT32, BYTES, STRUCTS, INDEXED])
def test_one_block_while_that_is_quicker(facts):
    plan, one = planner(facts), facts["threads"] * facts["small_rows"] * facts["items"]
    large = facts["large_items"]
    assert {plan(n).shape for n in (0, 1, one - 1, one)} == {"block"}
    if large > one:
        assert {plan(n).shape for n in (one + 1, large)} == {"large block"}
    assert {plan(n).shape for n in (large + 1, 2**20, 2**33)} == {"grid"}
    assert {plan(n).nbytes for n in (0, one, large)} == {0}


def test_few_items_are_cut_smaller():
    plan = planner(FLOAT32)
    assert [plan(n).numbers[1:] for n in (16385, 2**16, 2**18, 2**20)] == [
        (256, 17),
        (256, 64),
        (256, 256),
        (1024, 256),
    ]


def test_tiles_are_whole_or_have_few_rows():
    plan = planner(INDEXED)
    assert [plan(n).numbers[1:] for n in (8193, 2**18, 3 * 2**18, 2**20)] == [
        (256, 9),
        (256, 256),
        (512, 384),
        (1024, 256),
    ]


def read(n, before, tile, grid, threads, facts):
    """Return which items each thread of each block reads, as the kernel has it, and how many have any."""
    items = facts["items"]
    before = min(n, before)
    vectors = (n - before) // items
    singles = n - vectors * items
    whole = facts["threads"], facts["threads"] * facts["rows"]
    blocks = []
    for block in range(grid):
        has = [[] for _ in range(threads)]
        first = block * tile

        def add(thread, i, first):
            start = before + (first + i) * items
            has[thread].extend(range(start, start + items))

        if facts["rows"] > facts["small_rows"] and (threads, tile) == whole:
            while vectors - first >= tile:
                for i in range(tile):
                    add(i % threads, i, first)
                first += grid * tile
        for first in range(first, vectors, grid * tile):
            count = min(vectors - first, tile)
            for thread in range(threads):
                for at in range(thread, count, facts["small_rows"] * threads):
                    for row in range(facts["small_rows"]):
                        i = at + row * threads
                        if i < count:
                            add(thread, i, first)
        first_single = (grid - 1 - block) * threads
        for thread in range(threads):
            for i in range(first_single + thread, singles, grid * threads):
                has[thread].append(i if i < before else i + vectors * items)
        share = max(vectors - block * tile, singles - first_single)
        blocks.append((has, min(share, threads)))
    return blocks


@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize("rows", [2, 4])
def test_each_item_is_read_once_and_no_block_is_idle(items, before, rows):
    facts = dict(threads=4, items=items, rows=rows, small_rows=2, large_threads=8)
    facts |= dict(large_items=16 * items, accum_size=4)
    plan = planner(facts, sms=1)
    tile = 4 * rows * items
    sizes = {0, 1, 2, 3, *range(tile - 2, tile + 3), *range(16 * items - 1, 16 * items + 60), 40 * tile + 7}
    for n in sorted(sizes):
        found = plan(n)
        _, vectors, grid = found.numbers
        threads = 8 if found.shape == "large block" else 4
        seen = Counter()
        for has, valid in read(n, before if items > 1 else 0, vectors, grid, threads, facts):
            assert [bool(each) for each in has] == [thread < valid for thread in range(threads)]
            assert valid > 0 or n == 0
            seen.update(item for each in has for item in each)
        assert seen == Counter(range(n)), n


def test_atomics_add_what_they_can_and_where(specified):
    free = cupar.Determinism.NOT_GUARANTEED

    def shapes(dtype, **named):
        spec = specified(cupar.reduce_into, dtype, dtype, cupar.OpKind.PLUS, np.zeros(1, dtype), **named)
        return REDUCE.shapes(spec)["grid"]

    kernels = [launch.kernel for launch in shapes("f4").launches]
    assert kernels == ["cupar_reduce", "cupar_reduce_partials"]
    adding = shapes("f4", determinism=free)
    assert [launch.kernel for launch in adding.launches] == ["cupar_reduce", "cupar_reduce"]
    assert [launch.grid for launch in adding.launches] == [1, "grid"]
    assert shapes("i1", determinism=free) == shapes("i1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "d_in, d_out, init",
    [
        ("f2", "f2", "f4"),
        ("f2", cupar.ReverseIterator("f2"), "f4"),
        ("f4", cupar.TransformOutputIterator("f2", lambda a: a), "f4"),
        ("f2", "c16", "c8"),
        ("u1", "?", "i8"),
        ("c8", "c8", "c16"),
        (cupar.CountingIterator(np.int8(1)), "f2", "f8"),
        ("f4", cupar.DiscardIterator(), "f4"),
    ],
)
def test_outputs_have_dtypes_of_their_own(d_in, d_out, init):
    built = cupar.reduce_into(d_in, d_out, cupar.OpKind.PLUS, np.zeros(1, init), cc=CC)
    assert built.build.cubin_size


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("cc", [80, 100])
def test_a_function_of_structs(cc):
    pair = np.dtype([("a", "f4"), ("n", "i4"), ("b", "f4")], align=True)
    built = cupar.reduce_into(pair, pair, lambda a, b: (a.a + b.a, max(a.n, b.n), a.b), None, cc=cc)
    assert built.build.cubin_size < 60_000


# --- In order: the kernel's steps with texts, whose concatenation does not commute ------------------------


def shares(n, beyond, tile, grid, threads, items):
    """Return the items of each warp's share, and how many warps of each block have one, as in the kernel."""
    row_items, unit, warps = 32 * items, tile // threads, threads // 32
    all_rows = -(-(n + beyond) // row_items) if n else 0
    units = -(-all_rows // unit)
    each, more = divmod(units, grid * warps)
    found = []
    for block in range(grid):
        of_warps = []
        for warp in range(block * warps, (block + 1) * warps):
            first = (warp * each + min(warp, more)) * unit
            last = min(first + (each + (warp < more)) * unit, all_rows)
            of_warps.append(range(max(0, first * row_items - beyond), min(n, last * row_items - beyond)))
        found.append((of_warps, warps if each else min(more - block * warps, warps)))
    return found


@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("beyond", [0, 1, 3])
def test_shares_follow_one_another_and_no_block_is_idle(items, beyond):
    facts = dict(threads=64, items=items, rows=2, small_rows=2, large_threads=128)
    facts |= dict(large_items=512 * items, accum_size=4)
    plan, tile = planner(facts, sms=1), 128 * items
    sizes = {0, 1, 2, 3, *range(tile - 4, tile + 5), *range(512 * items - 4, 512 * items + 600, 7)}
    for n in sorted(sizes | {*range(40 * tile - 5, 40 * tile + 5), 79 * tile + 1, 500 * tile + 33}):
        found = plan(n)
        _, vectors, grid = found.numbers
        threads = 128 if found.shape == "large block" else 64
        after = 0
        for of_warps, valid in shares(n, beyond if items > 1 else 0, vectors, grid, threads, items):
            assert valid > 0 or n == 0
            for each in of_warps[:valid]:
                assert each.start == after < each.stop
                after = each.stop
            assert all(each.stop <= each.start for each in of_warps[valid:])
        assert after == n


AFFINE = np.dtype([("a", "i4"), ("b", "i4")], align=True)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["i4", "i1", AFFINE, "c16"])
def test_reductions_in_order_do_not_spill_in_their_loops(dtype, tmp_path):
    """Divisions of 64 bits are calls, around which a few registers are kept."""
    from support.disassembly import spills_or_calls

    def last(a, b):
        return b

    built = cupar.reduce_into(dtype, dtype, last, None, commutative=False, cc=CC)
    found = Counter(spills_or_calls(built, tmp_path))
    assert found["CALL"] <= 4 and found["STL"] + found["LDL"] <= 16


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_iterators_of_complex_numbers_that_begin_in_the_middle_of_a_word_are_read_in_parts(tmp_path):
    doubled = cupar.TransformIterator("c16", lambda a: a + a)
    found = cupar.reduce_into(doubled, "c16", cupar.OpKind.PLUS, np.zeros(1, "c16"), cc=90)
    loads = instructions(found, tmp_path)
    assert loads.count("LDG.E.64") >= loads.count("LDG.E.128")  # not of single ones alone
