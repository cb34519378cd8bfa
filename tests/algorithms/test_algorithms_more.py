"""Partitions, histograms, searches and segmented sorts: builds, templates, code, and what they refuse."""

import inspect
import re

import numpy as np
import pytest
from support import compilers
from support.disassembly import instructions, kernels, spills_or_calls
from support.fewer import every
from support.sources import iterators_source

import cupar
from cupar import OpKind, SortOrder
from cupar._ahead.batch import collected
from cupar._compile import nvrtc
from cupar._obtain import arguments
from cupar.histogram import histogram_even
from cupar.partition import select, three_way_partition
from cupar.search import lower_bound, upper_bound
from cupar.segmented import segmented_sort
from cupar.structs import convertible

CC = 90
DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
UP, DOWN = SortOrder.ASCENDING, SortOrder.DESCENDING


def small(a):
    return a < 3


def large(a):
    return a > 7


def before(a, b):
    return a < b


def partition(first=small, second=large, dtype="f4", count="i4"):
    return three_way_partition(dtype, dtype, dtype, dtype, count, first, second, cc=CC)


def histogram(samples="f4", counts="i4", levels=11, lower=0, upper=10, n=1000):
    return histogram_even(samples, counts, levels, lower, upper, n, cc=CC)


def sort(keys="u4", values=None, order=UP, start="i4", end="i4"):
    return segmented_sort(keys, keys, values, values, start, end, order, cc=CC)


# --- Origins ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_partitions_share_a_template(empty_cache, tmp_path):
    first = partition()
    assert (first.build.algorithm, first.build.origin) == ("three_way_partition", "built")
    assert [name for name in kernels(first, tmp_path) if name == "cupar_partition"]
    assert spills_or_calls(first, tmp_path) == []
    assert partition().build.origin == "memory"
    with compilers.unoptimised():
        assert partition(small, small).build.origin == "linked"
        assert partition(large, small).build.origin == "linked"  # the two are not the same to each other
        assert partition(dtype="i4").build.origin == "built"
    cupar.cache.clear(disk=False)
    assert partition().build.origin == "disk"


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make", "other"),
    [
        ("select", lambda op=small: select("f4", "f4", "i4", op, cc=CC), large),
        ("lower_bound", lambda op=before: lower_bound("f4", "f4", "u8", op, cc=CC), lambda a, b: b > a),
        ("upper_bound", lambda op=before: upper_bound("f4", "f4", "u8", op, cc=CC), lambda a, b: b > a),
    ],
)
def test_what_is_made_of_other_algorithms_is_linked_too(name, make, other, empty_cache, tmp_path):
    first = make()
    assert (first.build.algorithm, first.build.origin) == (name, "built")
    assert spills_or_calls(first, tmp_path) == []
    with compilers.unoptimised():
        found = make(other)
        assert found.build.origin == "linked"
        assert found.build.key != first.build.key
        cupar.cache.clear(disk=False)
        assert make(other).build.origin == "disk"
        assert make(other).build.origin == "memory"


@pytest.mark.slow
def test_histograms_are_shared_by_what_they_depend_on(empty_cache, tmp_path):
    first = histogram()
    assert (first.build.algorithm, first.build.origin) == ("histogram_even", "built")
    assert [name for name in kernels(first, tmp_path) if name == "cupar_histogram_shared"]
    assert histogram(levels=257, lower=-1.5, upper=7).build.origin == "memory"
    assert histogram(lower=np.float32([0]), upper=np.array([9])).build.origin == "memory"
    assert histogram(levels=10**6, n=2**40).build.origin == "memory"
    of_ints = histogram("i4")
    assert histogram("i4", lower=-(2**40), upper=2**31).build.key == of_ints.build.key
    assert histogram("i4", upper=9.5).build.key != of_ints.build.key
    cupar.cache.clear(disk=False)
    assert histogram().build.origin == "disk"


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_segmented_sort_builds_once(empty_cache, tmp_path):
    first = sort()
    assert (first.build.algorithm, first.build.origin) == ("segmented_sort", "built")
    assert [name for name in kernels(first, tmp_path) if name == "cupar_segmented_sort_teams"]
    assert spills_or_calls(first, tmp_path) == []
    assert sort(order=0).build.origin == "memory"
    cupar.cache.clear(disk=False)
    assert sort().build.origin == "disk"


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_segmented_sorts_by_a_comparison_share_a_template(empty_cache, tmp_path):
    def sort(op, **given):
        return segmented_sort("i4", "i4", "f8", "f8", "i4", "i4", op=op, cc=CC, **given)

    first = sort(lambda a, b: a % 10 < b % 10)
    assert (first.build.algorithm, first.build.origin) == ("segmented_sort", "built")
    assert [name for name in kernels(first, tmp_path) if name == "cupar_segmented_merge_sort_levels"]
    assert spills_or_calls(first, tmp_path) == []
    with compilers.unoptimised():
        assert sort(lambda a, b: b % 10 < a % 10).build.origin == "linked"
        assert sort(lambda a, b: a > b).build.key == sort(cupar.OpKind.GREATER).build.key
    cupar.cache.clear(disk=False)
    assert sort(lambda a, b: a % 10 < b % 10).build.origin == "disk"


# --- Types -----------------------------------------------------------------------------------------------


def either(a):
    return a.real > 1


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["?", "u2", "i8", "c16"])  # of f4 above
def test_partitions_of_dtypes_of_every_size(dtype, tmp_path):
    op = either if dtype == "c16" else large
    if dtype in ("?", "c16"):
        assert spills_or_calls(select(dtype, dtype, "u8", op, cc=CC), tmp_path) == []
    # Three words: with 80 registers in place of 64, 2^27 int64 took 0.79 ms in place of 0.67 on an H200.
    found = spills_or_calls(partition(op, op, dtype), tmp_path)
    assert len(found) <= 6
    assert set(found) <= {"LDL", "STL"}


@pytest.mark.parametrize("dtype", ["i1", "f2", "u4", "f8", "c8", "c16"])
def test_searches_of_dtypes_of_every_size(dtype, tmp_path):
    op = (lambda a, b: a.real < b.real) if dtype in ("c8", "c16") else OpKind.LESS
    assert kernels(lower_bound(dtype, dtype, "u8", op, cc=CC), tmp_path)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("samples", ["?", "i2", "u4", "u8", "f2", "f8"])
def test_histograms_of_dtypes_of_every_kind(samples, tmp_path):
    found = histogram(samples, "i8")
    assert spills_or_calls(found, tmp_path) == []
    level = "<f8" if samples.startswith("f") else "<u8" if samples == "u8" else "<i8"
    (spec,) = collected(lambda: histogram(samples, "i8"), CC)
    assert spec.option("levels") == level and spec.arguments[0].is_pointer


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
@every(3)
@pytest.mark.parametrize("index", ["i4", "u4", "i8", "u8"])
def test_indices_are_written_in_their_own_type(index, tmp_path):
    found = instructions(lower_bound("u1", "u1", index, cc=CC), tmp_path)
    wide = [name for name in found if re.match(r"STG?\.E\.64", name)]
    assert bool(wide) == (index in ("i8", "u8"))


# --- Outputs of another dtype, and arrays that are not there ---------------------------------------------


def test_items_are_converted_as_they_are_written():
    """All pairs of dtypes are one program, as each would include the headers of all again."""
    every = []
    for source in DTYPES:
        items = arguments.argument("d_in", source)
        targets = [each for each in DTYPES if convertible(np.dtype(source), np.dtype(each))]
        names = [f"d_{source}_{each}".replace("?", "b1") for each in targets]
        outputs = [arguments.converting(*each, items) for each in zip(names, targets, strict=True)]
        assert all(output.value == source for output in outputs)
        assert [output.is_pointer for output in outputs] == [each == source for each in targets]
        every += outputs
        for each in sorted({*DTYPES} - {*targets}):
            with pytest.raises(TypeError, match="^d_out: expected .*, the dtype of d_in, or one that"):
                arguments.converting("d_out", each, items)
    assert len(every) > 100
    assert nvrtc.compile_cpp(iterators_source(every), CC)


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_outputs_of_another_dtype(tmp_path):
    selection = select("i8", "f2", "i4", small, cc=CC)
    assert spills_or_calls(selection, tmp_path) == []
    assert [name for name in instructions(selection, tmp_path) if name.startswith(("I2F", "F2F"))]
    parts = three_way_partition("f4", "f8", "f4", "c8", "i4", small, large, cc=CC)
    assert spills_or_calls(parts, tmp_path) == []


@pytest.mark.slow
def test_runs_of_another_dtype():
    runs = cupar.unique_by_key("i4", "f4", "i8", "f2", "i8", OpKind.EQUAL_TO, cc=CC)
    assert runs.build.cubin_size > 1000


@pytest.mark.usefixtures("optimised")
@pytest.mark.slow
def test_runs_without_items(tmp_path):
    runs = cupar.unique_by_key("i4", d_out_keys="i4", d_out_num_selected="i8", op=OpKind.EQUAL_TO, cc=CC)
    assert runs.build.origin == "built"
    positional = cupar.unique_by_key("i4", None, "i4", None, "i8", OpKind.EQUAL_TO, cc=CC)
    assert positional.build.key == runs.build.key
    nothing = cupar.DiscardIterator()
    discarded = cupar.unique_by_key("i4", nothing, "i4", cupar.DiscardIterator("f4"), "i8", large_gap, cc=CC)
    assert spills_or_calls(discarded, tmp_path) == []
    for arrays, missing in (
        (("i4", "f4", "i4", None), "d_out_items"),
        (("i4", None, "i4", "f4"), "d_in_items"),
    ):
        with pytest.raises(TypeError, match=f"^{missing}: expected a device array, since there is"):
            cupar.unique_by_key(*arrays, "i8", large_gap, cc=CC)


def large_gap(a, b):
    return abs(a - b) < 2


def test_optional_arrays_have_defaults(specified):
    less, up = OpKind.LESS, SortOrder.ASCENDING
    same = [
        (
            specified(cupar.merge_sort, "i4", d_out_keys="i4", op=less),
            specified(cupar.merge_sort, "i4", None, "i4", None, less),
        ),
        (
            specified(cupar.radix_sort, "i4", "i4", order=up),
            specified(cupar.radix_sort, "i4", "i4", None, None, up),
        ),
        (
            specified(cupar.radix_sort, cupar.DoubleBuffer("i4", "i4"), order=up),
            specified(cupar.radix_sort, "i4", "i4", None, None, up),
        ),
        (
            specified(segmented_sort, "u4", "u4", start_offsets_in="i4", end_offsets_in="i4", order=up),
            specified(segmented_sort, "u4", "u4", None, None, "i4", "i4", up),
        ),
        (
            specified(cupar.reduce_into, "i4", "i4", OpKind.PLUS),
            specified(cupar.reduce_into, "i4", "i4", OpKind.PLUS, None),
        ),
    ]
    for one, other in same:
        assert one == other
        parameters = list(inspect.signature(one.algorithm_class.run).parameters.values())
        without = [each.name for each in parameters if each.default is inspect.Parameter.empty]
        assert without in (["self", "d_in_keys"], ["self", "d_in", "d_out", "num_items"])


def test_none_is_what_is_left_out(specified):
    searched = "f4", "f4", "u8"
    assert specified(lower_bound, *searched, None) == specified(lower_bound, *searched)
    assert cupar.RawOp(name="add", ltoir=b"code", extra_ltoirs=None) == cupar.RawOp("add", b"code")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cupar.merge_sort("i4", op=OpKind.LESS, cc=CC), "^d_out_keys: expected a device array"),
        (lambda: cupar.merge_sort("i4", d_out_keys="i4", cc=CC), "^op: expected a function, .*got None"),
        (lambda: cupar.radix_sort("i4", order=UP, cc=CC), "^d_out_keys: expected a device array"),
        (
            lambda: segmented_sort("i4", "i4", end_offsets_in="i4", order=UP, cc=CC),
            "^start_offsets_in: expected offsets as end_offsets_in has them, got None",
        ),
        (
            lambda: cupar.unique_by_key("i4", op=OpKind.EQUAL_TO, cc=CC),
            "^d_out_keys: expected a device array",
        ),
        (
            lambda: cupar.unique_by_key("i4", d_out_keys="i4", cc=CC),
            "^d_out_num_selected: expected a device arr",
        ),
    ],
)
def test_what_has_no_default_is_asked_for(call, message):
    with pytest.raises(TypeError, match=message):
        call()


# --- Refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: partition(first=lambda a, b: a), TypeError, "^select_first_part_op: .*takes 2"),
        (lambda: partition(second=OpKind.PLUS), TypeError, "^select_second_part_op: .*PLUS takes 2"),
        (lambda: partition(second=lambda a: a.x), TypeError, "^select_second_part_op: "),
        (lambda: partition(count="f4"), TypeError, "^d_num_selected_out: expected integers.*float32"),
        (
            lambda: three_way_partition("f4", "f4", "i8", "f4", "i4", small, large, cc=CC),
            TypeError,
            "^d_second_part_out: expected float32.*int64",
        ),
        (lambda: select("f4", "i4", "i4", small, cc=CC), TypeError, "^d_out: expected float32.*int32"),
        (lambda: select("f4", "f4", "i2", small, cc=CC), TypeError, "^d_num_selected_out: .*int16"),
        (lambda: select("f4", "f4", "i4", "small", cc=CC), TypeError, "^cond: expected a function"),
        (lambda: histogram("c8"), TypeError, "^d_samples: complex64 has no order"),
        (lambda: histogram(counts="f4"), TypeError, "^d_histogram: expected integers.*float32"),
        (lambda: histogram(counts="u2"), TypeError, "^d_histogram: expected integers.*uint16"),
        (lambda: histogram(levels=1), ValueError, "^h_num_output_levels: expected from 2"),
        (lambda: histogram(levels=2.5), TypeError, "^h_num_output_levels: expected an integer"),
        (lambda: histogram(lower="0"), TypeError, "^h_lower_level: expected a real number"),
        (lambda: histogram(lower=np.zeros(2)), ValueError, "^h_lower_level: .*one element, got 2"),
        (lambda: histogram(upper=np.nan), ValueError, "^h_upper_level: expected a finite number"),
        (lambda: histogram(upper=0), ValueError, "^h_upper_level: expected more than h_lower_level"),
        (lambda: histogram("u8", lower=-1), ValueError, "^h_lower_level: uint64 cannot hold -1"),
        (
            lambda: histogram("i8", lower=-(2**63), upper=2**63 - 1),
            ValueError,
            "^h_upper_level: .*overflow 64 bits",
        ),
        (lambda: histogram(n=-1), ValueError, "^num_samples: expected 0 or more, got -1"),
        (lambda: lower_bound("f4", "f8", "u8", cc=CC), TypeError, "^d_values: expected float32.*float64"),
        (lambda: lower_bound("f4", "f4", "f4", cc=CC), TypeError, "^d_out: expected integers.*float32"),
        (lambda: upper_bound("c8", "c8", "u8", cc=CC), TypeError, "^comp: OpKind.LESS is not defined"),
        (lambda: upper_bound("f4", "f4", "u8", lambda a: a, cc=CC), TypeError, "^comp: .*takes 1"),
        (lambda: sort("c8"), TypeError, "^d_in_keys: complex64 has no order"),
        (lambda: sort(order="up"), TypeError, "^order: expected a SortOrder"),
        (lambda: sort(start="f4"), TypeError, "^start_offsets_in: expected integers"),
        (lambda: sort(end="?"), TypeError, "^end_offsets_in: expected integers"),
        (
            lambda: segmented_sort("u4", "u4", "u4", None, "i4", "i4", UP, cc=CC),
            TypeError,
            "^d_out_values: .*there is d_in_values",
        ),
        (
            lambda: segmented_sort("u4", "i4", None, None, "i4", "i4", UP, cc=CC),
            TypeError,
            "^d_out_keys: expected uint32.*int32",
        ),
        (lambda: segmented_sort("c8", "c8", order=UP, cc=CC), TypeError, "^d_in_keys: .*give op"),
        (
            lambda: segmented_sort("u4", "u4", order=UP, op=lambda a, b: a < b, cc=CC),
            TypeError,
            "^order: expected None, since there is op",
        ),
        (lambda: segmented_sort("u4", "u4", op=lambda a: a, cc=CC), TypeError, "^op: .*takes 1"),
        (
            lambda: segmented_sort(cupar.CountingIterator(np.int32(0)), "i4", order=UP, cc=CC),
            TypeError,
            "^d_in_keys: expected an array or a dtype",
        ),
        (
            lambda: segmented_sort("u4", "u4", "i4", cupar.DiscardIterator(), op=lambda a, b: a < b, cc=CC),
            TypeError,
            "^d_out_values: expected an array or a dtype",
        ),
        (
            lambda: segmented_sort(cupar.DoubleBuffer("u4", "u4"), "u4", None, None, "i4", "i4", UP, cc=CC),
            TypeError,
            "^d_out_keys: expected None",
        ),
    ],
)
def test_refusals(call, error, message):
    with pytest.raises(error, match=message):
        call()


def problem_of(algorithm):
    return algorithm._problem_maker(algorithm._spec)


def test_what_calls_ask_for_is_checked():
    of_floats, of_ints = problem_of(histogram()), problem_of(histogram("i4"))
    assert of_floats(300, 0, 1, 2**40) == (299, 0.0, 1.0, 2**40)
    with pytest.raises(
        ValueError, match=r"^h_num_output_levels: expected from 2 to 2\*\*31 - 1, got 2147483648"
    ):
        of_floats(2**31, 0, 1, 5)
    with pytest.raises(TypeError, match="^h_upper_level: .*levels of int64, got 0.5"):
        of_ints(11, 0, 0.5, 5)
    with pytest.raises(ValueError, match="^h_upper_level: int64 cannot hold"):
        of_ints(11, 0, 2**63, 5)
    with pytest.raises(ValueError, match=r"^d_out: int32 cannot hold indices up to num_items, 2147483648"):
        problem_of(lower_bound("u1", "u1", "i4", cc=CC))(2**31, 1)
    with pytest.raises(ValueError, match="^num_segments: expected at most"):
        problem_of(sort())(None, None, 5, 2**33)
