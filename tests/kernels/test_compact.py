"""Selections, partitions and unique by key: plans by size, and tiles."""

import numpy as np
import pytest
from support.disassembly import instructions
from support.plans import planned

import cupar
from cupar._kernels import compact, policies
from cupar._kernels.compact import PARTITION, SELECT, UNIQUE

CC = 90
SMS, OCCUPANCY, TILE = 132, 3, 4096
FAMILIES = [(SELECT, 1), (PARTITION, 2), (UNIQUE, 1)]


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def planner(family, occupancy=OCCUPANCY):
    found = dict(threads=256, tile_items=TILE, shared=65584, sms=SMS, shared_memory=232448)
    return planned(family, found, lambda *_: occupancy)


def positive(a):
    return a > 0


@pytest.mark.parametrize(("family", "counts"), FAMILIES)
def test_one_tile_is_one_block_s(family, counts):
    plan = planner(family)
    for n in (0, 1, TILE - 1, TILE):
        assert plan(n) == ("block", 0, (n,))
    assert plan(TILE + 1)[0] == "grid"


@pytest.mark.parametrize(("family", "counts"), FAMILIES)
@pytest.mark.parametrize("n", [5 * TILE, 300 * TILE + 1, 396 * TILE, 2**28 + 1, 2**31, 2**32 + 5, 2**34 - 1])
def test_more_tiles_have_states_and_blocks_that_run_at_once(family, counts, n):
    shape, nbytes, numbers = planner(family)(n)
    size, grid, init_grid = numbers
    tiles = -(-n // TILE)
    assert (shape, size) == ("grid", n) and 0 < grid <= min(tiles, SMS * OCCUPANCY)
    assert nbytes == 8 * 256 * init_grid  # all that is zeroed, and no more
    assert 0 <= nbytes - 8 * (16 + counts * tiles) < 8 * 256


def test_kernels_that_do_not_fit_are_launched_all_the_same():
    assert planner(SELECT, occupancy=0)(2**20)[2][1] == SMS


def test_storage_is_zeroed_before(specified):
    spec = specified(cupar.select, "f4", "f4", "i8", positive, cc=90)
    shapes = SELECT.shapes(spec)
    assert [each.kernel for each in shapes["grid"].launches] == ["cupar_compact_init", "cupar_select"]
    assert [each.kernel for each in shapes["block"].launches] == ["cupar_select"]


def _sizes():
    tuned = [sizes for cc, algorithm, *sizes in policies.COMPACT.rows]
    return {
        *map(tuple, tuned),
        *((size,) for size in range(1, 513)),
        (4, 4),
        (1, 16),
        (16, 1),
        (500, 12),
        (4, 480),
        (1, 160),
        (12, 500),
    }


@pytest.mark.parametrize("is_bulk", [True, False])
@pytest.mark.parametrize("algorithm", ["select", "partition", "unique"])
def test_tiles_fit(algorithm, is_bulk):
    for sizes in _sizes():
        found = compact.policy(algorithm, sizes, is_bulk, CC)
        threads, rows, width, buffers = found
        lane_items, tile = rows * width, threads * rows * width
        assert threads % 32 == 0 and 32 <= threads <= 1024, found
        assert 1 <= lane_items <= 32 and tile < 2**16 and buffers in (3, 4), found
        assert width == 1 or sizes[0] in (1, 2, 4, 8, 16), found
        assert lane_items == 1 or lane_items * sum(sizes) <= 192, (sizes, found)  # in registers
        shared = buffers * (tile * sum(sizes) + 32 + sizes[0] + 15)
        # On a card that was measured, two blocks fit. From compute capability 9.0 on, a block may have 99 kB
        # or more; before that, 64.
        is_measured = is_bulk and policies.COMPACT.find(CC, algorithm, *sizes) is not None
        assert shared < (116_000 if is_measured else 100_000 if is_bulk else 65_000), (sizes, found)


def test_what_decides_which_tiles_there_are(specified):
    def code(*arguments, cc=CC):
        return SELECT.traits(specified(cupar.select, *arguments, "i8", positive, cc=cc))

    counting = cupar.CountingIterator(np.int32(0))
    assert code("f4", "f4") == code("f4", "f8") != code("f8", "f8")
    assert code("i4", "i4") != code(counting, "i4") == code("i4", "i4", cc=80)


def test_items_that_nobody_wants_are_not_read(specified):
    def prelude(items, out_items):
        keys = "i4", items, "i4", out_items, "i8"
        return UNIQUE.traits(specified(cupar.unique_by_key, *keys, cupar.OpKind.EQUAL_TO))

    nothing = cupar.DiscardIterator()
    assert "has_items = true" in prelude("f4", "f4")
    for items, out_items in ((None, None), (nothing, nothing), ("f4", nothing)):
        assert "has_items = false" in prelude(items, out_items)


# --- Builds ----------------------------------------------------------------------------------------------

PAIR, TRIPLE = struct("i4", 2), struct("u1", 3)
WORDS = cupar.ZipIterator("i4", cupar.CountingIterator(np.int64(0)))


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("cc", [75, 100])  # 8.0 and 12.0 are among `test_cards`, 9.0 everywhere
def test_selections_for_every_gpu(cc):
    assert cupar.select("f4", "f4", "i8", positive, cc=cc).build.cubin_size < 60_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d_in", "d_out", "count"),
    [
        (TRIPLE, TRIPLE, "i4"),
        (struct("u8", 64), struct("u8", 64), "i4"),
        (WORDS, cupar.ZipIterator(cupar.DiscardIterator("i4"), "i8"), cupar.ReverseIterator("u4")),
        (PAIR, cupar.TransformOutputIterator("i8", lambda a: a[0] + a[1], PAIR), "u8"),
    ],
)
def test_selections_of_structs_and_iterators(d_in, d_out, count):
    first = (
        (lambda a: a[0] > 2) if isinstance(d_in, cupar.ZipIterator) or d_in is PAIR else (lambda a: a.x0 > 2)
    )
    assert cupar.select(d_in, d_out, count, first, cc=CC).build.cubin_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "d_in", "d_out"),
    [("?", "c16", "c16"), ("f4", WORDS, cupar.ZipIterator("i4", "i8")), ("i8", TRIPLE, TRIPLE)],
)
def test_selections_by_flags(flag, d_in, d_out):
    for cc in (75, CC):
        built = cupar.select(d_in, d_out, "i8", lambda flag: flag != 0, d_flags=flag, cc=cc)
        assert built.build.cubin_size


@pytest.mark.slow
def test_a_partition_into_iterators():
    built = cupar.three_way_partition(
        "i8",
        "i8",
        cupar.DiscardIterator(),
        cupar.ReverseIterator("f8"),
        "i4",
        positive,
        lambda a: a < -5,
        cc=CC,
    )
    assert built.build.cubin_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "items", "out_items"),
    [
        ("i4", None, None),
        ("f2", "c16", "c16"),
        (PAIR, cupar.CountingIterator(0), "i8"),
        ("i8", TRIPLE, TRIPLE),
    ],
)
def test_runs_of_keys(keys, items, out_items):
    same = lambda a, b: a == b
    if keys is PAIR:
        same = lambda a, b: a[0] == b[0]
    built = cupar.unique_by_key(keys, items, keys, out_items, "i8", same, cc=CC)
    assert built.build.cubin_size


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_complex_numbers_may_be_written_to_the_middle_of_a_word(tmp_path):
    found = cupar.select("c8", "c8", "i8", lambda a: a.real > 0, cc=90)
    # Of words, one item at most is written by itself on either side.
    assert instructions(found, tmp_path).count("STG.E") > 2 * 2
