"""Algorithms on runs: plans by size, tiles, loads of states, and refusals."""

import re

import numpy as np
import pytest
from support.disassembly import run, spills_or_calls
from support.fewer import every
from support.plans import planned

import cupar
from cupar._kernels import policies, runs
from cupar._kernels.runs import REDUCE_BY_KEY, RUN_LENGTH_ENCODE, SCAN_BY_KEY

CC = 90
SMS, OCCUPANCY, TILE = 132, 3, 2816
FAMILIES = [REDUCE_BY_KEY, SCAN_BY_KEY, RUN_LENGTH_ENCODE]
PLUS = cupar.OpKind.PLUS


def struct(kind, count):
    return np.dtype([(f"x{i}", kind) for i in range(count)], align=True)


def planner(family, occupancy=OCCUPANCY, state=16):
    found = dict(threads=256, tile_items=TILE, shared=68064, state=state, sms=SMS, shared_memory=232448)
    return planned(family, found, lambda *_: occupancy)


def same(a, b):
    return a == b


def alike(a, b):
    return a.x0 == b.x0


# --- Plans -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_one_tile_is_one_block_s(family):
    plan = planner(family)
    for n in (0, 1, TILE - 1, TILE):
        assert plan(n) == ("block", 0, (n,))
    assert plan(TILE + 1)[0] == "grid"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("state", [16, 48, 80])
@pytest.mark.parametrize("n", [5 * TILE, 300 * TILE + 1, 396 * TILE, 2**28 + 1, 2**31, 2**32 + 5, 2**34 - 1])
def test_more_tiles_have_states_and_blocks_that_run_at_once(family, state, n):
    shape, nbytes, numbers = planner(family, state=state)(n)
    size, grid, init_grid = numbers
    tiles = -(-n // TILE)
    assert (shape, size) == ("grid", n) and 0 < grid <= min(tiles, SMS * OCCUPANCY)
    assert nbytes == 8 * 256 * init_grid  # all that is zeroed, and no more
    assert 0 <= nbytes - (128 + state * tiles) < 8 * 256


def test_kernels_that_do_not_fit_are_launched_all_the_same():
    assert planner(SCAN_BY_KEY, occupancy=0)(2**20)[2][1] == SMS


def test_storage_is_zeroed_before(specified):
    spec = specified(cupar.run_length_encode, "f4", "f4", "i4", "i8")
    shapes = RUN_LENGTH_ENCODE.shapes(spec)
    assert [each.kernel for each in shapes["grid"].launches] == ["cupar_runs_init", "cupar_run_length_encode"]
    assert [each.kernel for each in shapes["block"].launches] == ["cupar_run_length_encode"]


# --- Tiles -----------------------------------------------------------------------------------------------


def _sizes(algorithm):
    yield from (sizes for _, name, *sizes in policies.RUNS.rows if name == algorithm)
    if algorithm == "encode":
        yield from ((size, 2) for size in range(1, 511))
    else:
        yield from ((size, 512 - size) for size in range(1, 512))
        yield from ((a, b) for a in range(1, 34) for b in range(1, 34))


@pytest.mark.parametrize("cc", [75, 90, 100, 120])
@pytest.mark.parametrize("algorithm", ["reduce", "scan", "encode"])
def test_tiles_fit(algorithm, cc):
    for sizes in _sizes(algorithm):
        found = runs.policy(algorithm, tuple(sizes), cc >= 90, cc)
        tile = found.threads * found.items
        assert found.threads % 32 == 0 and 32 <= found.threads <= 1024, found
        assert found.items % 2 == 1 and found.items <= 32 and tile < 2**16, found
        assert found.threads * found.resident <= 2048, found
        shared = 3 * (tile * sum(sizes) + 64 + sizes[0])
        # On GPUs for data centres, a block has 227 kB; on others 99 kB, and before compute capability 8.0 64.
        room = 232_448 if cc in (90, 100) else 101_376 if cc > 80 else 65_536
        assert shared < room, (sizes, found)


def test_what_decides_which_tiles_there_are(specified):
    def code(*arguments, cc=CC):
        return SCAN_BY_KEY.traits(specified(cupar.inclusive_scan_by_key, *arguments, PLUS, cc=cc))

    counting = cupar.CountingIterator(np.int32(0))
    assert code("i4", "f4", "f4") == code("u4", "f4", "f8") != code("i8", "f4", "f4")
    assert code("i4", "f4", "f4") != code(counting, "f4", "f4") == code("i4", "f4", "f4", cc=80)
    assert "is_inclusive = true" in code("i4", "f4", "f4")


@pytest.mark.parametrize(
    ("h_init", "flags"),
    [(None, "false false"), (0.5, "true false"), (np.zeros(1, "f8"), "true false")],
)
def test_initial_values(h_init, flags, specified):
    code = REDUCE_BY_KEY.traits(
        specified(cupar.reduce_by_key, "i4", "i4", "f4", "f4", "i8", PLUS, h_init=h_init)
    )
    value, device = flags.split()
    assert f"init_is_value = {value}" in code and f"init_is_on_device = {device}" in code
    assert ("accum_t = double" in code) == (isinstance(h_init, np.ndarray))


# --- Errors ----------------------------------------------------------------------------------------------

LARGE = struct("i8", 63)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cupar.reduce_by_key("i4", "i4", "f4", "f4", "f4", PLUS, cc=CC), "^d_out_num_runs: "),
        (lambda: cupar.reduce_by_key("i4", "i4", "f4", "f4", "i2", PLUS, cc=CC), "^d_out_num_runs: "),
        (lambda: cupar.reduce_by_key("f4", "i4", "f4", "f4", "i4", PLUS, cc=CC), "^d_out_unique: "),
        (lambda: cupar.reduce_by_key("i4", "i4", "f4", "f4", "i4", lambda a: a, cc=CC), "^op: .*takes 1"),
        (
            lambda: cupar.reduce_by_key(LARGE, LARGE, "f4", "f4", "i4", PLUS, cc=CC),
            "^equality_op: expected an operator",
        ),
        (
            lambda: cupar.reduce_by_key("i4", "i4", "f4", "f4", "i4", PLUS, lambda a: True, cc=CC),
            "^equality_op: .*takes 1",
        ),
        (lambda: cupar.exclusive_scan_by_key("i4", "f4", "f4", PLUS, None, cc=CC), "^h_init: .*exclusive"),
        (lambda: cupar.inclusive_scan_by_key(None, "f4", "f4", PLUS, cc=CC), "^d_in_keys: "),
        (lambda: cupar.inclusive_scan_by_key("i4", "c8", "f4", PLUS, cc=CC), "to float32 of d_out_values"),
        (lambda: cupar.run_length_encode("i4", "i4", "f4", "i4", cc=CC), "^d_out_counts: "),
        (lambda: cupar.run_length_encode("i4", "i4", "i4", "u2", cc=CC), "^d_out_num_runs: "),
        (
            lambda: cupar.run_length_encode(struct("i4", 2), struct("i4", 2), "i4", "i4", cc=CC),
            "^equality_op: expected an operator that tells",
        ),
        (
            lambda: cupar.run_length_encode("i4", "i4", "i4", "i4", lambda a, b: None, cc=CC),
            "^equality_op: .*returns None",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_items_that_are_too_large():
    with pytest.raises(cupar.BuildError, match=r"^d_in_keys \(items of 504 bytes\), d_in_values .*512 bytes"):
        cupar.reduce_by_key(LARGE, LARGE, LARGE, LARGE, "i4", lambda a, b: a, alike, cc=CC)


# --- Builds ----------------------------------------------------------------------------------------------

BUILDS = {
    "reduce": lambda op, equal, **cc: cupar.reduce_by_key("i4", "i4", "f4", "f4", "i8", op, equal, **cc),
    "inclusive": lambda op, equal, **cc: cupar.inclusive_scan_by_key("i4", "f4", "f4", op, None, equal, **cc),
    "exclusive": lambda op, equal, **cc: cupar.exclusive_scan_by_key("i4", "f4", "f4", op, 0, equal, **cc),
    "encode": lambda op, equal, **cc: cupar.run_length_encode("i4", "i4", "i4", "i8", equal, **cc),
}


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDS)
def test_kernels_do_not_spill(name, tmp_path):
    found = spills_or_calls(BUILDS[name](lambda a, b: a * 3 + b, same, cc=CC), tmp_path)
    # Encodings are quickest with so many items that some spill.
    assert all(each.startswith(("LDL", "STL")) for each in found) if name == "encode" else found == []


@pytest.mark.slow
def test_operators_are_linked_to_one_template(empty_cache):
    build = BUILDS["reduce"]
    first = build(lambda a, b: a * 3 + b, same, cc=CC)
    assert first.build.origin == "built"
    other = build(lambda a, b: b - a, lambda a, b: a // 2 == b // 2, cc=CC)
    assert other.build.origin == "linked"
    assert build(lambda a, b: b - a, None, cc=CC).build.origin == "linked"
    cupar.cache.clear(disk=False)
    assert build(lambda a, b: a * 3 + b, same, cc=CC).build.origin == "disk"


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "cc"), [*zip(BUILDS, [75, 80, 100, 120], strict=True)])
def test_templates_build(name, cc):
    assert BUILDS[name](lambda a, b: a + b, same, cc=cc).build.cubin_size < 90_000


@every(2)
@pytest.mark.slow
@pytest.mark.parametrize("values", ["f2", "i8", "c16", struct("i4", 5)])
def test_states_are_read_as_a_whole(values, only, tmp_path):
    """What a state says is of one time: so no load of one is taken apart."""
    only("cupar_scan_by_key")
    last = lambda a, b: b  # which structs have, too
    scan = cupar.inclusive_scan_by_key("i4", values, values, last, cc=CC)
    loads = re.findall(r"\bLDG?\.E\.(\w+\.)?STRONG\.GPU", run("nvdisasm", scan, tmp_path, "-c"))
    small = np.dtype(values).itemsize <= 8
    assert "128." in loads
    # Where a value takes parts with flags of their own, the word that counts runs is alone.
    assert set(loads) <= ({"128."} if small else {"128.", "64."})


@pytest.mark.slow
def test_structs_and_iterators():
    triple, count = struct("u1", 3), cupar.ReverseIterator("u4")
    counting, nothing = cupar.CountingIterator(np.int64(0)), cupar.DiscardIterator()
    doubled = cupar.TransformIterator("f4", lambda a: a * 2)
    written = cupar.TransformOutputIterator("f8", lambda a: a + 1.0, "f4")
    tens = lambda a, b: a // 10 == b // 10
    assert cupar.reduce_by_key(counting, nothing, doubled, written, count, PLUS, tens, cc=CC).build
    assert cupar.reduce_by_key(triple, triple, triple, triple, "i4", lambda a, b: a, alike, cc=CC).build
    pairs = cupar.ZipIterator("i4", counting)
    first = lambda a, b: a[0] == b[0]
    assert cupar.exclusive_scan_by_key(pairs, doubled, written, PLUS, 0, first, cc=CC).build
    assert cupar.run_length_encode(pairs, pairs.dtype, count, count, first, cc=CC).build
