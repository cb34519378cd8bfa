"""Algorithms of ranks that are threads, against NumPy's; and ranks that differ, fail and do not call."""

import inspect
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import failing_ranks, ranks

import cupar
from cupar import distributed
from cupar._fleet import comm, halves, sample_sort
from cupar.distributed import arrays

RANKS = 8


def on_all(groups, work):
    """Return what a function of a rank returns on all; raise what was wrong first, not what came of that."""

    def done(group):
        try:
            return work(group)
        except BaseException:
            group.comm.abort("a test has failed")
            raise

    with ThreadPoolExecutor(len(groups)) as pool:
        futures = [pool.submit(done, group) for group in groups]
    errors = [each.exception() for each in futures if each.exception() is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, distributed.GroupError)):
        raise error
    return [each.result() for each in futures]


def test_all_algorithms_on_shards_of_all_kinds():
    groups = distributed.threads(RANKS, 60)
    assert on_all(groups, ranks.check_all) == [16] * RANKS
    assert repr(groups[1]) == "<cupar group: rank 1 of 8, threads of one process>"


def test_one_rank_alone():
    group = distributed.group()
    assert (group.rank, group.size, group.transport) == (0, 1, "one rank")
    assert ranks.check_all(group, shapes=["even"]) == 4


@pytest.fixture(scope="module")
def checks():
    groups = distributed.threads(5, 60)
    return groups, on_all(groups, ranks.Checks)


@given(shape=st.sampled_from(ranks.SHAPES), n=st.integers(0, 600), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_shards(checks, shape, n, seed):
    groups, made = checks
    on_all(groups, lambda group: made[group.rank].problem(shape, n, np.random.default_rng(seed)))


def test_ranks_that_differ_are_told_the_same():
    told = on_all(distributed.threads(3, 60), ranks.differing)
    assert told[0][:3] == told[1][:3] == told[2][:3]
    assert told[0][0].startswith("ValueError: ranks differ in operator: ranks 0, 1: ")
    assert "; rank 2: " in told[0][0]
    assert "ranks differ in types of operator: ranks 0, 1: (int64, int64) -> int64; rank 2" in told[0][1]
    assert told[0][2] == "ValueError: ranks differ in order: ranks 0, 1: ASCENDING; rank 2: DESCENDING"
    assert told[0][3].startswith("GroupError: select: rank 2 raised ArgumentTypeError: d_num_selected_out: ")
    assert told[2][3].startswith("ArgumentTypeError: d_num_selected_out: ")


def test_numbers_that_operators_read_are_compared_by_value():
    """Whatever each rank has called before, so that they are arguments on some and constants on others."""

    def capped(k):
        return lambda a, b: min(max(a, b), k)

    def made(group, k):
        x, out = np.arange(10.0), np.zeros(1)
        total = distributed.reduce_into(x, out, capped(k), np.zeros(1), group=group)
        total.run(x, out, 10, np.zeros(1))
        return out[0]

    def work(group):
        with cupar.device("cpu"):
            for k in (2.5, 3.5) if group.rank else ():
                cupar.reduce_into("f8", "f8", capped(k), np.zeros(1))
            found = [made(group, k) for k in (4.25, 5.25, 6.25)]
            with pytest.raises(ValueError, match="^ranks differ in operator"):
                made(group, 7.25 if group.rank else 8.25)
        return found

    assert on_all(distributed.threads(3, 60), work) == [[4.25, 5.25, 6.25]] * 3


def test_ranks_that_call_different_objects():
    def told(group):
        x, out = np.arange(6), np.zeros(1, "i8")
        sums = [distributed.reduce_into(x, out, ranks.plus, 0, group=group) for _ in range(2)]
        sums[0].run(x, out, 6, 0)
        assert out[0] == 45
        return failing_ranks.told(group, lambda: sums[group.rank // 2].run(x, out, 6, 0))

    found = on_all(distributed.threads(3, 60), told)
    assert {*found} == {
        "GroupError: threads of one process: ranks are not in the same call: some have left it, or not called"
    }


def test_ranks_that_sort_by_different_objects():
    def told(group):
        x, out = np.arange(6), np.zeros(6, "i8")
        sorts = [distributed.radix_sort(x, out, group=group) for _ in range(2)]
        return failing_ranks.told(group, lambda: sorts[group.rank // 2].run(x, out, None, None, 6))

    assert {each.partition(": ")[2] for each in on_all(distributed.threads(3, 60), told)} == {
        "threads of one process: ranks are not in the same call: some have left it, or not called"
    }


def test_functions_that_differ_are_told_the_same():
    x = np.arange(6.0)

    def told(group):
        sort, init = (arrays.sort, None) if group.rank else (arrays.argsort, 5)
        calls = partial(sort, x), partial(arrays.reduce, x, ranks.plus, init=init)
        return [failing_ranks.told(group, partial(each, group=group)) for each in calls]

    for found in on_all(distributed.threads(3, 60), told):
        assert found == [
            "ValueError: ranks differ in algorithm: rank 0: argsort; ranks 1, 2: radix_sort",
            "ValueError: ranks differ in init: rank 0: value; ranks 1, 2: None",
        ]


def test_two_threads_of_a_rank_are_told_apart():
    groups = distributed.threads(2, 60)
    x, out = np.arange(6), np.zeros(1, "i8")

    def told(group):
        total = distributed.reduce_into(x, out, ranks.plus, group=group)
        if group.rank == 1:
            return failing_ranks.told(group, lambda: total.run(x, out, 6))
        with group.in_use, ThreadPoolExecutor(1) as another:
            return another.submit(failing_ranks.told, group, lambda: total.run(x, out, 6)).result()

    for found in on_all(groups, told):
        assert "one while another thread of this rank is in one" in found


class Gathers:
    """A transport that agrees by gathers, as of gloo and MPI are."""

    transport, exchange, total, is_aborted = "gathers", None, None, False

    def __init__(self, comm):
        self.rank, self.size, self.gather = comm.rank, comm.size, comm.gather

    def agree(self, data):
        return comm.agreed(data, self.size, lambda sent, found: self.gather(sent, found, None))

    def abort(self, why):
        self.is_aborted = True


def test_messages_of_any_length_and_other_calls():
    """Ranks that agree and ranks that gather a record tell each other apart, and have another group then."""
    said = [b"", b"a" * 300, b"b" * 232]

    def told(inner):
        group = distributed.group(Gathers(inner.comm))
        assert group.agree(said[group.rank]) == said
        assert group.agree(said[group.rank][:9]) == [each[:9] for each in said]
        record, records = np.zeros(9, "u1"), np.zeros((3, 9), "u1")
        gather = group.gathering(record, records) if group.rank else lambda stream: group.synchronize()
        found = failing_ranks.told(group, lambda: gather(None))
        assert distributed.group(group.comm).sizes(group.rank) == [0, 1, 2]
        return found, group.comm.is_aborted

    astray = f"GroupError: gathers: {comm.ASTRAY}"
    assert on_all(distributed.threads(3, 60), told) == [(astray, False)] * 3


def test_prefixes_of_scans_in_place():
    def work(group):
        x = np.arange(1, 6)
        scan = distributed.exclusive_scan(x, x[:], ranks.plus, 0, carry="returned", group=group)
        return int(scan.run(x, x[:], 5, 0).value[0]), x.tolist()

    assert on_all(distributed.threads(3, 60), work) == [(15 * rank, [0, 1, 3, 6, 10]) for rank in range(3)]


def test_ranks_that_differ_in_what_they_give_a_call():
    found = on_all(distributed.threads(3, 60), failing_ranks.given_otherwise)
    failing_ranks.check_given_otherwise(found, later=False)


def test_ranks_that_give_other_offsets_or_values():
    """As those of their own shards, where ones of the whole are expected."""

    def told(group):
        x, out, last = np.arange(6), np.zeros(6, "i8"), group.rank // 2
        starts, ends = np.array([0, 3]), np.array([3, 6 + last])
        sums = distributed.segmented_reduce(x, out, starts, ends, ranks.plus, 0, group=group)
        search = distributed.lower_bound(x, x, out, group=group)
        calls = (
            lambda: sums.run(x, out, 6, 2, starts, ends, 0),
            lambda: sums.run(x, out, 6, 1, starts, ends, 0),
            lambda: search.run(x, 6, x + last, 6, out),
        )
        return [failing_ranks.told(group, each) for each in calls]

    found = on_all(distributed.threads(3, 60), told)
    assert found[0] == found[1] == found[2]
    assert found[0][0].startswith("ValueError: ranks differ in end_offsets_in: ranks 0, 1: ")
    assert found[0][1] == "nothing"
    assert found[0][2].startswith("ValueError: ranks differ in d_values: ranks 0, 1: ")


def test_ranks_compare_their_calls_on_devices_when_they_agree():
    """Which are noted here without a device: what differs is told once, the first of it; or none is known."""

    def told(group):
        mine = group.rank // 2
        found = []
        for calls in (
            [(1, {"h_init": 7}), (2, {}), (1, {"h_init": 7 + mine}), (1, {"h_init": mine})],
            [(1, {"h_init": mine}), *[(2, {})] * 999],
            [(1, {}), (1 + mine, {})],
        ):
            for number, facts in calls:
                group.note(json.dumps([number, "scan", facts, False]).encode())
            found.append(failing_ranks.told(group, lambda: group.sizes(1)))
            found.append(failing_ranks.told(group, int))
        return found

    found = on_all(distributed.threads(3, 60), told)
    astray = "threads of one process: ranks are not in the same call: some have left it, or not called"
    assert found[0] == found[1] == found[2]
    assert found[0][:5] == [
        "ValueError: ranks differ in h_init of an earlier scan: ranks 0, 1: 7; rank 2: 8",
        "nothing",
        "ValueError: ranks differ in what they gave to an earlier call",
        "nothing",
        f"GroupError: {astray}",
    ]

    def ends(group):
        """Skip a call; or, in another group, send another number of values than others, who wait for them."""
        for _ in range(1 + group.rank // 2):
            group.note(b'[1, "scan", {}, false]')
        other = groups[group.rank]
        other.note(json.dumps([1, "search", {"num_values": group.rank}, True]).encode())
        return [failing_ranks.told(each, int) for each in (group, other, other)]

    groups = distributed.threads(3, 60)
    for skipped, differs, failed in on_all(distributed.threads(3, 60), ends):
        assert skipped == f"GroupError: {astray}"
        given = "num_values of an earlier search"
        assert differs == f"ValueError: ranks differ in {given}: rank 0: 0; rank 1: 1; rank 2: 2"
        assert f"this group has failed (ranks differ in {given}: " in failed


def test_a_rank_that_does_not_call():
    groups = distributed.threads(3, 0.5)
    x = np.arange(4)

    def work(group):
        total = distributed.reduce_into(x, x, ranks.plus, 0, group=group)
        if group.rank != 1:
            with pytest.raises(distributed.GroupError, match="rank 1 did not call within 0.5 seconds|failed"):
                total.run(x.copy(), np.zeros(1, "i8"), 4, 0)
            with pytest.raises(distributed.GroupError, match="this group has failed .*; make a new one"):
                group.synchronize()

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(work, group) for group in groups]:
            each.result()
    assert on_all(distributed.threads(2, 60), lambda group: group.sizes(group.rank)) == [[0, 1], [0, 1]]


def test_a_comm_of_ones_own():
    class Recorded:
        """A transport around another one."""

        def __init__(self, comm):
            self.comm, self.rank, self.size, self.transport = comm, comm.rank, comm.size, "recorded"
            self.calls = []

        def __getattr__(self, name):
            if name not in ("agree", "gather", "exchange", "total"):
                raise AttributeError(name)
            self.calls.append(name)
            return getattr(self.comm, name)

    def work(inner):
        comm = Recorded(inner.comm)
        group = distributed.group(comm)
        x, out = np.arange(inner.rank * 3), np.zeros(1, "i8")
        distributed.reduce_into(x, out, ranks.plus, 0, group=group).run(x, out, len(x), 0)
        return group.transport, int(out[0]), comm.calls[-1]

    assert on_all(distributed.threads(3, 60), work) == [("recorded", 18, "gather")] * 3


def test_keys_and_items_are_exchanged_once():
    def work(group):
        keys, places = np.arange(9 * group.rank)[::-1].astype("u1"), np.arange(9.0 * group.rank)
        out, moved = np.zeros_like(keys), np.zeros_like(places)
        sort = distributed.radix_sort(keys, out, places, moved, group=group)
        with mock.patch.object(group.comm, "exchange", wraps=group.comm.exchange) as exchange:
            sort.run(keys, out, places, moved, len(keys))
        return exchange.call_count, [*zip(out.tolist(), moved.tolist(), strict=True)]

    found = on_all(distributed.threads(4, 60), work)
    assert [count for count, _ in found] == [2] * 4
    pairs = [(key, 9 * rank - 1 - key) for key in range(27) for rank in range(4) if key < 9 * rank]
    assert [pair for _, part in found for pair in part] == pairs


@pytest.mark.parametrize("sizes", [(700, 300), (0, 500), (400, 1)])
def test_slices_are_merged_as_they_come(sizes):
    """Of two ranks' parts; equal keys stay in the order of ranks."""
    rng = np.random.default_rng(3)
    shards = [rng.integers(0, 30, each).astype("u1") for each in sizes]
    places = np.split(np.arange(sum(sizes)), [sizes[0]])

    def work(group):
        keys, given = shards[group.rank], places[group.rank]
        out, moved = np.zeros_like(keys), np.zeros_like(given)
        distributed.radix_sort(keys, out, given, moved, group=group).run(keys, out, given, moved, len(keys))
        backwards, both = np.zeros_like(keys), (keys, None)
        by_size = distributed.merge_sort(*both, backwards, None, lambda a, b: a > b, group=group)
        by_size.run(*both, backwards, None, len(keys))
        return out, moved, backwards

    with mock.patch.object(sample_sort, "_SLICE", 48), mock.patch.object(halves, "_SAMPLES", 8):
        out, moved, backwards = map(
            np.concatenate, zip(*on_all(distributed.threads(2, 60), work), strict=True)
        )
    keys = np.concatenate(shards)
    np.testing.assert_array_equal(moved, np.argsort(keys, kind="stable"))
    np.testing.assert_array_equal(out, np.sort(keys))
    np.testing.assert_array_equal(backwards, np.sort(keys)[::-1])


def test_calls_have_two_phases():
    x, out = np.arange(5), np.zeros(1, "i8")
    total = distributed.reduce_into(x, out, ranks.plus, 0)
    assert total(None, x, out, 5, 0) == 1 and out[0] == 0
    total(np.zeros(1, "u1"), x, out, 5, 0)
    assert out[0] == 10


def test_initial_values_are_those_that_the_object_was_built_with():
    x, out, ends = np.arange(5), np.zeros(5, "i8"), np.array([5])
    given = x, out, np.array([0]), ends
    total = distributed.reduce_into(x, out, ranks.plus, 0)
    scan = distributed.inclusive_scan(x, out, ranks.plus)
    sums = distributed.segmented_reduce(*given, ranks.plus, 0)
    by_segment = distributed.inclusive_segmented_scan(*given, ranks.plus)
    for call, error, told in (
        (lambda: total.run(x, out, 5), TypeError, "built with an initial value, got None"),
        (lambda: total.run(x, out, 5, 1.5), TypeError, "1.5 is not converted to int64"),
        (lambda: total.run(x, out, 5, np.array([1.5])), TypeError, "accumulates in int64, got an array of f"),
        (lambda: total.run(x, out, 5, np.arange(2)), ValueError, "one element, .* got an array of 2"),
        (lambda: scan.run(x, out, 5, 3), TypeError, "built without an initial value"),
        (lambda: sums.run(x, out, 5, 1, *given[2:]), TypeError, "built with an initial value, got None"),
        (lambda: by_segment.run(x, out, 5, 1, *given[2:], 3), TypeError, "built without an initial value"),
    ):
        with pytest.raises(error, match=f"h_init: .*{told}"):
            call()


def test_arrays_that_a_call_cannot_use():
    x, out, counts = np.arange(5), np.zeros(5, "i8"), np.zeros(3, "i8")
    select = distributed.select(x, out, counts, ranks.is_large)
    by_bits = distributed.radix_sort(x, out, x, out.copy())
    total = distributed.reduce_into(x, out, ranks.plus)
    for call, told in (
        (lambda: select.run(x, out, counts[:1], 5), "d_num_selected_out: needs at least 3 items, got an ar"),
        (lambda: select.run(x, out, counts.view("u8"), 5), "d_num_selected_out: expected 3 items of int64"),
        (lambda: distributed.select(x, out, counts.view("u8"), ranks.is_large), "d_num_selected_out: expec"),
        (lambda: by_bits.run(x, out[:3], x, out, 5), "d_out_keys: needs at least 5 items, got an array of 3"),
        (lambda: by_bits.run(x, out, x, out[:3], 5), "d_out_values: needs at least 5 items, got an array of"),
        (lambda: by_bits.run(x, out, x, out.copy(), -1), "num_items: expected 0 or more, got -1"),
        (lambda: total.run(x.astype("i4"), out, 5), "d_in: this algorithm was built for int64, got int32"),
    ):
        with pytest.raises((TypeError, ValueError), match=told):
            call()


NUMBERS = {
    **{"num_items": 4, "num_samples": 4, "num_segments": 2, "num_values": 3, "k": 2, "h_init": 0},
    **{"h_num_output_levels": 11, "h_lower_level": 0, "h_upper_level": 50},
}
OFFSETS = {"start_offsets_in": np.array([0, 2]), "end_offsets_in": np.array([2, 4])}
# Outputs of as many items as a call finds, which no one knows before.
FOUND = (
    *("d_out_unique", "d_out_counts", "d_out_aggregates", "d_first_part_out", "d_second_part_out"),
    *("d_unselected_out", "Select d_out", "UniqueByKey d_out_keys", "UniqueByKey d_out_items"),
)


def call_of(algorithm, memory):
    """Return arguments of a call with four items by name; outputs are in the middle of some memory."""
    given = {each: None for each in inspect.signature(algorithm.run).parameters if each != "stream"}
    dtypes = {each.name: each.value for each in algorithm._spec.arguments}
    for name in given:
        if name in NUMBERS:
            given[name] = NUMBERS[name] if name != "h_init" or getattr(algorithm, "_has_init", True) else None
        elif name in OFFSETS:
            given[name] = OFFSETS[name]
        elif name in dtypes:
            given[name] = np.arange(4).astype(dtypes[name])
            if "out" in name or name == "d_histogram":
                memory[name] = np.full(40, 77, dtypes[name])
                given[name] = memory[name][8:20]
    return given


def test_each_array_of_a_call_is_looked_at():
    made = [each for each in vars(ranks.Checks(distributed.group())).values() if hasattr(each, "_spec")]
    made = [each for each in made if each._spec.arguments[0].value.names is None]
    assert len(made) == 20
    for algorithm in made:
        kind, expected, found = type(algorithm).__name__, {}, {}
        given = call_of(algorithm, expected)
        algorithm.run(**given)
        if kind not in ("BinarySearch", "Histogram"):  # the former is called in one phase, the latter adds
            algorithm(np.zeros(1, "u1"), **call_of(algorithm, found))
            np.testing.assert_equal(found, expected)
        for name in [name for name, array in given.items() if isinstance(array, np.ndarray)]:
            with pytest.raises(TypeError, match=f"^{name}: expected a host array, got None"):
                algorithm.run(**{**given, name: None})
            if name not in FOUND and f"{kind} {name}" not in FOUND:
                memory = np.full(40, 77, given[name].dtype)
                with pytest.raises(ValueError, match=f"^{name}: needs at least [0-9]+ items, got an array"):
                    algorithm.run(**{**given, name: memory[8:8]})
                assert (memory == 77).all()
    x = np.arange(3, dtype="f4")
    of_floats = next(each for each in made if each._spec.arguments[0].value.kind == "f")
    with pytest.raises(TypeError, match="^d_out_values: this algorithm was built without it; expected None"):
        of_floats.run(x, x, None, x, 3)


def test_what_is_no_group():
    with pytest.raises(TypeError, match="group: expected a process group .* got int"):
        distributed.group(5)
    comm = SimpleNamespace(rank=3, size=3, agree=None, gather=None)
    with pytest.raises(TypeError, match="got SimpleNamespace, which has no transport, exchange, total, as a"):
        distributed.group(comm)
    comm.transport = comm.exchange = comm.total = ""
    with pytest.raises(ValueError, match="a rank from 0 to size - 1, got rank 3 and size 3"):
        distributed.group(comm)
    comm.rank, comm.agree = np.int64(2), lambda data: [data]
    with pytest.raises(distributed.GroupError, match=r"agree: expected a list of 3 messages, got \[b"):
        distributed.group(comm).synchronize()
    with pytest.raises(ValueError, match="timeout: expected more than 0 seconds, got 0"):
        distributed.group(timeout=0)
    with pytest.raises(ValueError, match="size: expected at least 1, got 0"):
        distributed.threads(0)
    with pytest.raises(TypeError, match="d_in: expected an array of this rank's shard"):
        distributed.reduce_into(cupar.CountingIterator(0), "i8", ranks.plus, 0)


class Anew:
    """New groups of threads, of which each rank takes the next."""

    def __init__(self, size):
        self._size, self._made, self._lock = size, [], threading.Lock()

    def of(self, rank):
        numbers = itertools.count()

        def next_of_rank():
            with self._lock:
                number = next(numbers)
                if number == len(self._made):
                    self._made.append(distributed.threads(self._size, 60))
                return self._made[number][rank]

        return next_of_rank


@pytest.mark.parametrize("name", failing_ranks.NAMES)
def test_an_error_in_any_step_is_told_to_all(name):
    anew = Anew(3)
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda rank: failing_ranks.check(anew.of(rank), [name], range(99)), range(3))
        failed = [*found]
    assert failed == failed[:1] * 3 and failed[0] > 0


def test_an_interrupt_is_told_to_all():
    groups = distributed.threads(2, 60)
    with mock.patch.object(groups[0].comm, "agree", side_effect=KeyboardInterrupt):
        assert failing_ranks.told(groups[0], groups[0].synchronize) == "KeyboardInterrupt: "
    for group in groups:
        assert "rank 0 raised KeyboardInterrupt" in failing_ranks.told(group, group.synchronize)


def test_wrong_arguments_of_a_factory_are_told_to_all():
    def told(group):
        x, out = np.arange(9), np.zeros(9, "i8")
        given = (x, out, ranks.plus) if group.rank != failing_ranks.VICTIM else (x, out)
        found = failing_ranks.told(group, lambda: distributed.inclusive_scan(*given, group=group))
        return found, failing_ranks.told(group, int)

    found = on_all(distributed.threads(3, 60), told)
    missing = "TypeError: inclusive_scan() missing 1 required positional argument: 'op'"
    assert found[failing_ranks.VICTIM] == (missing, "nothing")
    assert found[0] == found[2] == (f"GroupError: inclusive_scan: rank 1 raised {missing}", "nothing")


def two_phases(made, arguments):
    made(None, *arguments)
    made(np.zeros(1, "u1"), *arguments)


def test_wrong_arguments_of_one_rank_are_told_to_all():
    def told(group):
        x, out = np.arange(9), np.zeros(9, "i8")
        scan = distributed.inclusive_scan(x, out, ranks.plus, group=group)
        arguments = (x,) if group.rank == failing_ranks.VICTIM else (x, out, 9)
        return failing_ranks.told(group, lambda: call(scan, arguments))

    for call, name in ((lambda scan, given: scan.run(*given), "run"), (two_phases, "__call__")):
        found = on_all(distributed.threads(3, 60), told)
        assert found[failing_ranks.VICTIM].startswith(f"TypeError: Scan.{name}() missing 2 required")
        assert found[0] == found[2]
        assert f"rank 1 raised TypeError: Scan.{name}() missing 2 required" in found[0]


@pytest.mark.parametrize("call", ["factory", "run"])
def test_ranks_in_different_calls_all_raise(call):
    def told(group):
        x, out = np.arange(9), np.zeros(9, "i8")
        if call == "factory" and group.rank != failing_ranks.VICTIM:
            return failing_ranks.told(group, lambda: distributed.radix_sort(x, out, group=group))
        scan = distributed.inclusive_scan(x, out, ranks.plus, group=group) if call == "run" else None
        if scan is not None and group.rank != failing_ranks.VICTIM:
            return failing_ranks.told(group, lambda: scan.run(x, out, 9))
        return failing_ranks.told(group, int)

    for found in on_all(distributed.threads(3, 60), told):
        assert "ranks are not in the same call" in found


def test_a_forked_process_is_not_in_the_group():
    groups = distributed.threads(2)
    with mock.patch("os.getpid", lambda: -1):
        told = failing_ranks.told(groups[0], int)
    assert "GroupError: threads of one process: this process was forked" in told
    on_all(groups, lambda group: group.synchronize())
