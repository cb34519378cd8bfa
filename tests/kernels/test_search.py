"""Binary searches: plans by problem, and the kernels of builds."""

import re

import numpy as np
import pytest
from support.disassembly import instructions, kernels, spills_or_calls
from support.plans import Plan, planned

import cupar
from cupar import OpKind
from cupar._ahead.batch import collected
from cupar._compile import python_to_ltoir
from cupar._kernels import policies
from cupar._kernels.family import Number
from cupar._kernels.image import properties_of
from cupar._kernels.search import SEARCH

CC = 90
FLOATS = {  # facts of a search of float32 for any values
    "item_size": 4,
    "values_sorted": 0,
    "each_threads": 128,
    "tile_threads": 128,
    "tile": 2048,
    "staged": 4096,
    "fanout": 16,
    "tree_threads": 512,
    "top": 8192,
}
DEVICE = {"sms": 132, "shared_memory": 232448}
FEW, MANY = 1000, 1 << 20


def planner(**changes):
    return planned(SEARCH, {**FLOATS, **DEVICE, **changes}, lambda kernel, threads, shared: 3)


def before(a, b):
    return a < b


# --- Plans -----------------------------------------------------------------------------------------------


def test_properties_have_names():
    assert tuple(FLOATS) == SEARCH.properties


@pytest.mark.parametrize("values_sorted", [0, 1])
def test_nothing_is_launched_for_no_values(values_sorted):
    plan = planner(values_sorted=values_sorted)
    assert plan((0, 0)) == plan((2**33, 0)) == Plan("", 0)


@pytest.mark.parametrize("values_sorted", [0, 1])
def test_a_thread_for_each_of_few_values_and_of_those_without_items(values_sorted):
    plan = planner(values_sorted=values_sorted)
    for items, values in ((0, 1), (1, 1), (5000, FEW), (2**33, FEW), (0, MANY), (0, 2**33 + 1)):
        assert plan((items, values)) == Plan("each", 0, (items, values, -(-values // 128)))


@pytest.mark.parametrize("values_sorted", [0, 1])
def test_items_that_fit_into_shared_memory_are_staged(values_sorted):
    plan = planner(values_sorted=values_sorted)
    assert plan((1, MANY)) == Plan("tiles", 0, (1, MANY, 512))
    assert plan((4096, MANY + 1)) == Plan("tiles", 0, (4096, MANY + 1, 513))
    assert plan((4096, 2**33)) == Plan("tiles", 0, (4096, 2**33, 2**22))
    assert plan((4097, MANY)).shape != "tiles"


def test_sorted_values_need_the_bounds_of_each_tile():
    plan = planner(values_sorted=1)
    for items in (4097, 2**28, 2**33):
        assert plan((items, MANY)) == Plan("bounds", 8 * 513, (items, MANY, 512, 5))
    assert plan((5000, 2**33 + 1)) == Plan("bounds", 8 * (2**22 + 2), (5000, 2**33 + 1, 2**22 + 1, 2**15 + 1))


def levels(items, fanout=16, top=8192):
    """Return the sizes of the levels of a tree over so many items, one that fits being the last."""
    found = [-(-items // fanout)]
    while found[-1] > top:
        found.append(-(-found[-1] // fanout))
    return found


@pytest.mark.parametrize("items", [4097, 8192 * 16, 8192 * 16 + 1, 2**20, 2**28, 2**28 + 5, 2**32 + 1, 2**33])
@pytest.mark.parametrize(("size", "fanout", "top"), [(4, 16, 8192), (16, 8, 2048)])
def test_a_tree_has_room_for_its_levels_wherever_the_data_begin(items, size, fanout, top):
    plan = planner(item_size=size, fanout=fanout, top=top)
    shape, nbytes, numbers = plan((items, 2**28))
    assert (shape, numbers[:2]) == ("tree", (items, 2**28))
    for missing in (0, 1, fanout - 1):  # items before the data, so that nodes are aligned
        found = levels(items + missing, fanout, top)
        needed = 2 * fanout + sum(-(-each // fanout) * fanout for each in found)
        # At most a node more in each level, or a level more that fits.
        assert size * needed <= nbytes <= size * (needed + top // fanout + fanout * (len(found) + 2))
        assert found[0] <= numbers[2] * 256 < found[0] + 2 * 256
    assert nbytes <= items * size / 6.9


def test_trees_are_searched_by_as_many_blocks_as_run_at_once():
    plan = planner()
    assert plan((2**20, 2**28)).numbers[3] == 3 * 132
    assert plan((2**20, 2**17)).numbers[3] == 2**17 // 512
    assert plan((2**20, 2**17 + 1)).numbers[3] == 2**17 // 512 + 1


def test_no_tree_for_values_that_are_few_for_the_items_nor_for_large_items():
    assert planner()((2**28, 2**20)).shape == "tree"
    assert planner()((2**28, 2**19)).shape == "each"
    assert planner(item_size=1)((2**36, 2**30)).shape == "each"  # places of samples have 32 bits
    assert planner(item_size=32, fanout=0, top=0)((2**28, 2**28)).shape == "each"
    assert planner(item_size=32, fanout=0, top=0, staged=512)((512, 2**28)).shape == "tiles"


def test_policies_are_what_kernels_can_do():
    for size, policy in [(each, policies.SEARCH.get(CC, each % 32)) for each in (1, 2, 4, 8, 16, 32)]:
        assert policy.fanout % 4 == 0
        assert policy.fanout < 256
        assert policy.tile_threads % 32 == policy.tree_threads % 32 == 0
        static = max(policy.staged_bytes + 16, policy.top_bytes + policy.fanout * size + 300)
        assert static <= 48 * 1024
        # Once a node of each level is read, it is a DRAM's burst or two.
        assert policy.fanout * size <= 128


# --- Builds ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("items", "options", "wanted"),
    [
        ("f4", {}, {"each", "tiles", "tree"}),
        ("c16", {}, {"each", "tiles", "tree"}),
        ("f4", {"values_sorted": True}, {"each", "tiles", "bounds"}),
        ("f8, f8, f8", {}, {"each", "tiles"}),
    ],
)
def test_builds_hold_the_kernels_of_their_shapes(items, options, wanted, tmp_path):
    dtype = np.dtype(items)
    by_number = lambda a, b: a < b
    by_real = lambda a, b: a.real < b.real
    by_field = lambda a, b: a.f0 < b.f0
    op = by_field if dtype.names else by_real if dtype.kind == "c" else by_number
    given = (dtype, dtype, "i8", op)
    (spec,) = collected(lambda: cupar.upper_bound(*given, cc=CC, **options), CC)
    search, found = cupar.upper_bound(*given, cc=CC, **options), SEARCH.shapes(spec)
    assert set(found) == wanted
    assert set(kernels(search, tmp_path)) == {
        launch.kernel for each in found.values() for launch in each.launches
    }
    assert spills_or_calls(search, tmp_path) == []
    facts = dict(zip(SEARCH.properties, properties_of(search.cubin()), strict=True))
    assert facts["item_size"] == dtype.itemsize
    assert facts["values_sorted"] == bool(options)
    assert bool(facts["fanout"]) == (dtype.itemsize <= 16)
    for each in found.values():
        for launch in each.launches:
            numbers = [launch.grid, launch.block, *(p.name for p in launch.parameters if type(p) is Number)]
            assert {name for name in numbers if isinstance(name, str)} <= {*each.numbers, *facts}


@pytest.mark.parametrize(("cc", "values_sorted"), [(80, True), (100, False)])
def test_searches_build_for_other_gpus(cc, values_sorted):
    assert cupar.lower_bound("f4", "f4", "u8", values_sorted=values_sorted, cc=cc).build.cc == cc


def test_a_known_comparison_needs_no_function(monkeypatch, tmp_path):
    monkeypatch.setattr(python_to_ltoir, "compile_operator", None)
    search = cupar.lower_bound("f4", "f4", "u8", cc=CC)
    assert cupar.lower_bound("f4", "f4", "u8", np.less, cc=CC).build.key == search.build.key
    assert cupar.lower_bound("f4", "f4", "u8", OpKind.GREATER, cc=CC).build.key != search.build.key


@pytest.mark.slow
def test_a_new_comparison_costs_a_link(empty_cache):
    cupar.lower_bound("f4", "f4", "u8", before, cc=CC)
    found = cupar.lower_bound("f4", "f4", "u8", lambda a, b: b < a, cc=CC)
    assert found.build.origin == "linked"
    assert set(found.build.seconds) == {"operator", "link"}


def test_sorted_values_are_another_build_and_others_have_no_option():
    plain = cupar.lower_bound("f4", "f4", "u8", cc=CC)
    for no in (False, np.False_):
        assert cupar.lower_bound("f4", "f4", "u8", values_sorted=no, cc=CC).build.key == plain.build.key
    found = cupar.lower_bound("f4", "f4", "u8", values_sorted=np.True_, cc=CC)
    assert found.build.key != plain.build.key
    assert cupar.lower_bound("f4", "f4", "u8", values_sorted=True, cc=CC).build.key == found.build.key


@pytest.mark.parametrize("given", [None, 1, "yes", []])
def test_what_is_no_bool_says_nothing_of_values(given):
    with pytest.raises(TypeError, match=r"^values_sorted: expected True or False, got "):
        cupar.upper_bound("f4", "f4", "u8", values_sorted=given, cc=CC)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_indices_are_written_sixteen_bytes_at_a_time(tmp_path):
    found = instructions(cupar.lower_bound("f4", "f4", "u8", cc=CC), tmp_path)
    assert any(re.match(r"STG\.E\.128", name) for name in found)


@pytest.mark.usefixtures("optimised")
def test_values_and_places_may_be_iterators(tmp_path):
    values = cupar.TransformIterator(cupar.CountingIterator(np.int32(0)), lambda i: np.float32(i * 2))
    places = cupar.ReverseIterator(np.dtype("i8"))
    for options in ({}, {"values_sorted": True}):
        search = cupar.lower_bound("f4", values, places, cc=CC, **options)
        assert spills_or_calls(search, tmp_path) == []


@pytest.mark.usefixtures("optimised")
def test_trees_are_read_by_loads_that_see_what_the_kernel_before_wrote():
    build = cupar.lower_bound("f4", "f4", "i8", cc=90).build
    (code,) = (
        part for part in re.split(r"\n\.text\.", build.sass()) if part.startswith("cupar_search_tree:")
    )
    loads = re.findall(r"\bLDG?\.E\S*", code)
    assert "LDG.E.128" in loads  # of nodes, whose address space the compiler does not know
    assert not [each for each in loads if "CONSTANT" in each or each.startswith("LD.")]
