"""Plans as compiled code has them: what a family's planner says in Python, for any problem."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupar._host.plans import Translation, UntranslatableError
from cupar._kernels import (
    compact,
    histogram,
    merge_sort,
    radix_sort,
    reduce,
    runs,
    scan,
    search,
    segmented_merge_sort,
    segmented_reduce,
    segmented_scan,
    segmented_sort,
    transform,
)
from cupar._kernels.family import Facts
from cupar._kernels.radix_sort import Bits
from cupar._kernels.segmented_sort import Sorted
from cupar._kernels.segments import Segments

numba = pytest.importorskip("numba")
native = pytest.importorskip("cupar._host.native")

SMS, MOST = 132, 2**40


@numba.extending.register_jitable
def occupancy(kernel, threads, shared):
    return max(1, min(2048 // threads, 233472 // (shared + 1024)))


def facts(family, **given):
    found = Facts(dict.fromkeys(family.facts, 0), occupancy)
    found.update(sms=SMS, shared_memory=232448, **given)
    return found


# By name: the family, facts of a build, and names of its shapes.
FAMILIES = {
    "reduce": (
        reduce.REDUCE,
        dict(threads=256, items=16, rows=8, large_threads=1024, large_items=32768, accum_size=4),
        ["block", "large block", "grid"],
    ),
    "scan": (scan.SCAN, dict(threads=128, items=15, state=8, payload=4), ["tile", "tiles"]),
    "scan that looks ahead": (
        scan.SCAN,
        dict(
            threads=128, items=15, state=8, payload=4, cc=90, item=4, ahead_threads=288, ahead_tile=8128,
            ahead_state=16, **{f"shared_{k}": 33000 * k for k in range(1, 9)},
        ),
        ["tile", "tiles", "ahead"],
    ),
    "scan that looks ahead on Blackwell": (
        scan.SCAN,
        dict(
            threads=128, items=15, state=8, payload=4, cc=100, item=4, ahead_threads=288, ahead_tile=8128,
            ahead_state=16, **{f"shared_{k}": 20000 * k for k in range(1, 9)},
        ),
        ["tile", "tiles", "ahead"],
    ),
    "transform": (transform.TRANSFORM, dict(threads=256, items=8, rows=16), ["tiles"]),
    "select": (compact.SELECT, dict(threads=256, tile_items=4096, shared=50000), ["block", "grid"]),
    "partition": (compact.PARTITION, dict(threads=256, tile_items=2048, shared=50000), ["block", "grid"]),
    "merge sort": (
        merge_sort.MERGE_SORT,
        dict(threads=256, items=17, key_size=4, item_size=8),
        ["tiles", *(f"{count} passes" for count in (1, 2, 4, 8, 16))],
    ),
    "search": (
        search.SEARCH,
        dict(
            item_size=4, each_threads=256, tile_threads=128, tile=2048, staged=4096, fanout=16,
            tree_threads=512, top=8192,
        ),
        ["each", "tiles", "tree"],
    ),
    "search of sorted values": (
        search.SEARCH,
        dict(item_size=4, values_sorted=1, each_threads=256, tile=2048, staged=4096, fanout=16),
        ["each", "tiles", "bounds"],
    ),
    "search of large items": (
        search.SEARCH,
        dict(item_size=64, each_threads=256, tile_threads=128, tile=128, staged=256, fanout=0),
        ["each", "tiles"],
    ),
    "radix sort": (
        radix_sort.RADIX_SORT,
        dict(
            tile_threads=256, tile_items=19, count_threads=128, count_items=16, threads=384, items=18,
            count_threads_wide=128, count_items_wide=8, threads_wide=384, items_wide=15, key_size=4,
            value_size=8,
        ),
        [
            *("tile", "tile in place", "copy", "all digits", "start", "start_wide"),
            *(f"{a} to {b}{kind}" for kind in ("", "_wide") for a, b in radix_sort._WAYS),
        ],
    ),
    "reduce by key": (
        runs.REDUCE_BY_KEY,
        dict(threads=256, tile_items=2816, shared=67968, state=16),
        ["block", "grid"],
    ),
    "scan by key": (
        runs.SCAN_BY_KEY,
        dict(threads=256, tile_items=768, shared=74000, state=80),
        ["block", "grid"],
    ),
    "segmented reduce": (
        segmented_reduce.SEGMENTED_REDUCE,
        dict(threads=256, accum_size=8, segment_size=40, chunk_items=16384, item_size=4),
        ["short", "any", "long"],
    ),
    "sort of segments": (
        segmented_sort.SEGMENTED_SORT,
        dict(
            group_threads=256, team_threads=512, team_items=32, team_bytes=200, digit_threads=384,
            tile_items=6912, passes=4, segment_size=80, key_size=4, value_size=8,
        ),
        [
            *("short", "any", "long", *(str(most) for most in segmented_sort._groups(1024))),
            *(f"teams {size}" for size in range(5)),
        ],
    ),
    "sort of small segments": (
        segmented_sort.SEGMENTED_SORT,
        dict(
            group_threads=128, team_threads=256, team_items=16, team_bytes=200, digit_threads=384,
            tile_items=6912, passes=1, segment_size=80, key_size=1,
        ),
        [
            *("short", "any", "long", *(str(most) for most in segmented_sort._groups(512))),
            *(f"teams {size}" for size in range(4)),
        ],
    ),
    "sort of segments by an operator": (
        segmented_merge_sort.SEGMENTED_MERGE_SORT,
        dict(threads=256, items=11, segment_size=40, key_size=4, value_size=8),
        ["short", "any", "long", "rows"],
    ),
    "floats in a histogram": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=4, is_spread=1, sample_size=4, has_float_levels=1),
        ["block", "shared", "cached"],
    ),
    "histogram of bytes": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=16, is_spread=1, sample_size=1, is_signed=1, narrow_bits=24),
        ["block", "shared"],
    ),
    "histogram of integers": (
        histogram.HISTOGRAM,
        dict(threads=512, vector_items=4, sample_size=8, is_signed=1, narrow_bits=31),
        ["block", "shared", "cached"],
    ),
    "segmented scan": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=608, items=4, tile_items=512, span=2, long_items=8192,
            chunk_items=10240, chunk_shared=215_040, segment_size=32, known_size=8,
        ),
        ["short", "any"],
    ),
    "segmented scan of rows": (
        segmented_scan.SEGMENTED_SCAN,
        dict(
            threads=256, chunk_threads=352, items=8, tile_items=256, span=2, long_items=4096,
            chunk_items=5120, chunk_shared=215_040, segment_size=32, known_size=16, is_rows=1,
        ),
        ["short", "any"],
    ),
}  # fmt: skip


def near(tile, tiles, more):
    return max(0, tile * tiles + more)


tiles = st.sampled_from([1 << 10, 1920, 4096, 4352])
counts = st.one_of(
    st.integers(0, MOST),
    st.integers(0, 1 << 14),
    st.builds(near, tiles, st.integers(0, 300), st.integers(-1, 1)),
)
small = st.integers(0, 1 << 20)
SIZES = [0, 1, 5000, 20000, 10**6, 1 << 25, MOST]
words = st.integers(-(2**62), 2**62)


def levels(bins, lower, width, num_samples):
    return histogram.Problem(bins, lower, lower + width, num_samples)


bits = st.tuples(st.integers(0, 32), st.integers(0, 32))
# Problems that are no counts, by the first word of the name: any, and some.
PROBLEMS = {
    "search": (st.tuples(counts, counts), [(n, m) for n in SIZES for m in SIZES]),
    "radix": (
        st.builds(lambda n, bits, again: Bits(n, min(bits), max(bits), again), counts, bits, st.booleans()),
        [
            Bits(n, *each, again)
            for n in SIZES
            for each in [(0, 32), (3, 17), (5, 5)]
            for again in (False, True)
        ],
    ),
    "histogram": (
        st.builds(levels, st.integers(1, 1 << 20), words, st.integers(1, 2**42), counts),
        [
            levels(bins, low, width, n)
            for bins in (1, 300, 10**5)
            for low in (0, -500, 2**40)
            for width in (1, 300, 2**40)
            for n in SIZES
        ],
    ),
    "floats": (
        st.builds(levels, st.integers(1, 1 << 20), st.floats(-1e30, 1e30), st.floats(1e20, 1e30), counts),
        [levels(bins, -1.5, 1e9, n) for bins in (1, 300, 10**5) for n in SIZES],
    ),
    "sort": (
        st.builds(Sorted, counts, counts, st.one_of(st.just(0), small)),
        [Sorted(n, m, size) for n in SIZES for m in SIZES for size in (0, 1, 20, 600, 9000, 10**5)],
    ),
    "segmented": (
        st.builds(Segments, counts, counts, small, counts),
        [Segments(n, m, most, 0) for n in SIZES for m in SIZES for most in (0, 10, 10**6)],
    ),
}

_DRIVER = """
def planned(state, problem, out):
    out[0] = nbytes(state, problem)
    return launch(state, 0, out, problem)
"""


@numba.extending.register_jitable
def _launch(state, address, out, shape, numbers):
    at = 2 + 32 * out[1]
    out[at], out[at + 1] = shape, len(numbers)
    at += 2
    for number in numba.literal_unroll(numbers):
        out[at] = number
        at += 1
    out[1] += 1
    return 0


def compiled(family, given, shapes):
    """Return the plan in Python, and what compiles and runs the same."""
    plan = family.planner(facts(family, **given))
    translation = Translation(plan, shapes, 0)
    words = np.array(translation.constants, np.int64)
    word = numba.extending.register_jitable(lambda state, place: state[place])
    asked = numba.extending.register_jitable(lambda state, kernel, *block: occupancy(kernel, *block))
    own = {**native.OF_PLANS, "_word": word, "_launch": _launch, "_occupancy": asked}
    names = translation.compiled(own, numba.extending.register_jitable)
    asked = {"nbytes": names[translation.nbytes], "launch": names[translation.launch]}
    exec(_DRIVER, asked)
    run = numba.njit(asked["planned"])

    def native_plan(problem):
        out = np.zeros(2 + 32 * 5000, np.int64)
        assert run(words, problem, out) == 0
        rows = [out[2 + 32 * k :] for k in range(out[1])]
        return int(out[0]), [(shapes[row[0]], as_words(row[2 : 2 + row[1]])) for row in rows]

    return plan, native_plan


def expected(plan, problem):
    shape, nbytes, *numbers = plan(problem)
    nbytes = (nbytes + 2**63) % 2**64 - 2**63  # calls refuse what is less than 0 then
    numbers = numbers[0] if numbers else ()
    if isinstance(shape, tuple):
        return nbytes, [*zip(shape, map(as_words, numbers), strict=True)]
    return nbytes, [(shape, as_words(numbers))] if shape else []


def as_words(numbers):
    return tuple(int(each) % 2**64 for each in numbers)


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request):
    return *PROBLEMS.get(request.param.split()[0], (counts, SIZES)), *compiled(*FAMILIES[request.param])


@settings(deadline=None, max_examples=400)
@given(data=st.data())
def test_compiled_plans_are_pythons(pair, data):
    problems, _, plan, native_plan = pair
    problem = data.draw(problems)
    assert native_plan(problem) == expected(plan, problem)


def test_every_shape_is_planned(pair):
    """So that what is compared above is not one case alone."""
    _, asked, plan, native_plan = pair
    found = [native_plan(each) for each in asked]
    assert found == [expected(plan, each) for each in asked]
    assert len({tuple(shape for shape, _ in each) for _, each in found}) > 1


# --- What cannot be translated


def of(plan, *shapes):
    return Translation(plan, shapes, 0)


def test_what_depends_on_facts_alone_is_a_constant():
    tile, ahead = 7, None

    def plan(n):
        if ahead is not None:
            return ahead(n)
        return ("few" if n < tile else "many"), 0, (n, tile)

    made = of(plan, "few", "many")
    assert made.constants == [7] and "ahead" not in made.text


def test_bounds_beyond_64_bits():
    most = 2**64 - 1

    def plan(n):
        return "one", 0, (min(n, most),)

    assert of(plan, "one").constants == [2**63 - 1]


@pytest.mark.parametrize(
    "line",
    [
        "return sorted(n)",
        "return 'one', 0, (print(n),)",
        "return 'one', 0, (plan.__name__.title(),)",
        "return n",
    ],
)
def test_what_else_there_is_is_refused(line, tmp_path, monkeypatch):
    (tmp_path / "a_plan.py").write_text(f"def plan(n):\n    {line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import a_plan

    monkeypatch.delitem(__import__("sys").modules, "a_plan")
    with pytest.raises(UntranslatableError, match="plan: .*, which compiled host code cannot have"):
        of(a_plan.plan, "one")
