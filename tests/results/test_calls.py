"""The two phases, arrays with an interface alone, and what must be refused."""

import threading
from contextlib import suppress

import numpy as np
import pytest
from support.operators import EXPECTED, N, add
from support.results import IS_CPU, DLPack, Interface, address, cp, described

import cupar


class Bare(Interface):
    """An array that has the interface alone."""

    def __init__(self, array, **change):
        self.array, self.change = array, change

    def described(self):
        return {**described(self.array), **self.change}


def test_two_phases(summed):
    reduction, d_in, d_out, h_init = summed
    nbytes = reduction(None, d_in, d_out, N, h_init)
    assert d_out.get()[0] == 0, "asking for the storage must not run"
    reduction(cp.empty(nbytes, "u1"), d_in, d_out, N, h_init)
    assert d_out.get()[0] == EXPECTED
    reduction(cp.empty(nbytes // 8 + 1, "f8"), d_in, d_out, N - 1, h_init)
    assert d_out.get()[0] == EXPECTED - (N - 1)


def test_initial_value_of_each_call(summed):
    reduction, d_in, d_out, _ = summed
    for h_init in (np.array([5], "i4"), np.array(5, "i4"), 5, np.int32(5), np.int16(5), np.int64(5)):
        reduction.run(d_in, d_out, N, h_init)
        assert d_out.get()[0] == EXPECTED + 2
    for wrong in (5.0, None, np.array([5], "i8"), np.zeros(2, "i4"), 2**31, [5], "5", 1j):
        with pytest.raises((TypeError, ValueError), match="^h_init: "):
            reduction.run(d_in, d_out, N, wrong)


def test_zero_items(summed):
    reduction, d_in, d_out, h_init = summed
    reduction.run(cp.empty(0, "i4"), d_out, 0, h_init)
    assert d_out.get()[0] == 3
    scan = cupar.exclusive_scan(d_in, d_in, add, h_init)
    scan.run(cp.empty(0, "i4"), cp.empty(0, "i4"), 0, h_init)


def test_in_place_scan():
    d = cp.arange(N, dtype="i8")
    cupar.inclusive_scan(d, d, add).run(d, d, N)
    np.testing.assert_array_equal(d.get(), np.cumsum(np.arange(N)))


def test_slices_and_shapes(summed):
    reduction, d_in, d_out, h_init = summed
    reduction.run(d_in[17:], d_out, 100, h_init)
    assert d_out.get()[0] == 3 + sum(range(17, 117))
    reduction.run(d_in.reshape(100, 100), d_out, N, h_init)
    assert d_out.get()[0] == EXPECTED


def test_bare_interface(summed):
    reduction, d_in, d_out, h_init = summed
    d_out.fill(0)
    reduction.run(Bare(d_in), Bare(d_out), N, h_init)
    assert d_out.get()[0] == EXPECTED
    read_only = Bare(d_out, data=(address(d_out), True))
    with pytest.raises(ValueError, match=r"^d_out: .*read-only"):
        reduction.run(d_in, read_only, N, h_init)
    reduction.run(Bare(d_in, data=(address(d_in), True)), d_out, N, h_init)
    with pytest.raises(TypeError, match=r"^d_in: .*mask"):
        reduction.run(Bare(d_in, mask=d_in), d_out, N, h_init)


def test_dlpack(summed):
    reduction, d_in, d_out, h_init = summed
    assert cupar.reduce_into(DLPack(d_in), DLPack(d_out), add, h_init).build.key == reduction.build.key
    reduction.run(DLPack(d_in), DLPack(d_out), N, h_init)
    assert d_out.get()[0] == EXPECTED
    square = d_in[:100].reshape(10, 10)
    reduction.run(DLPack(cp.asfortranarray(square)), DLPack(d_out), 100, h_init)
    assert d_out.get()[0] == square.sum() + h_init[0]
    with pytest.raises(ValueError, match=r"^d_in: .*contiguous"):
        reduction.run(DLPack(d_in[::2]), DLPack(d_out), 10, h_init)


def of_other_libraries(host):
    """Yield arrays in Fortran's order."""
    if not IS_CPU:
        from numba import cuda

        yield cuda.to_device(np.asfortranarray(host))
    with suppress(ImportError):
        import torch

        yield torch.tensor(np.ascontiguousarray(host.T), device="cpu" if IS_CPU else "cuda").T


def test_another_order_than_cs():
    host = np.arange(12, dtype="i4").reshape(3, 4)
    d_in, d_out = cp.asfortranarray(cp.asarray(host)), cp.zeros((3, 4), "i4", order="F")
    for given in (d_in, Bare(d_in), *of_other_libraries(host)):
        for _ in range(3):
            d_out.fill(-1)
            transform = cupar.unary_transform(given, d_out, lambda a: a * 2)
            transform(given, d_out, 12)
        np.testing.assert_array_equal(d_out.get(), 2 * host)
        total, init = cp.zeros(1, "i4"), np.zeros(1, "i4")
        reduction = cupar.reduce_into(given, total, add, init)
        storage = cp.zeros((4, reduction(None, given, total, 12, init)), "u1", order="F")
        reduction(storage, given, total, 12, init)
        assert total.get()[0] == host.sum()
        with pytest.raises(ValueError, match=r"^d_in: needs at least 13 items"):
            transform(given, d_out, 13)
        in_c = cp.zeros((3, 4), "i4")
        scan = cupar.inclusive_scan(given, in_c, add)
        rows = cupar.segmented_reduce(given, in_c, op=add, h_init=0)
        for call in (
            lambda given=given: transform(given, in_c, 12),
            lambda given=given: scan.run(given, in_c, 12),
            lambda given=given: rows.run(given, in_c, 3, h_init=0, segment_size=4),
        ):
            with pytest.raises(ValueError, match=r"^d_in: got an array in Fortran's order"):
                call()
    with pytest.raises(ValueError, match=r"^d_in: .*contiguous"):
        cupar.unary_transform(d_in[:2], d_out, lambda a: a * 2)


def test_storage_at_any_address():
    n = 100_000
    host = np.random.default_rng(3).integers(0, 1000, n).astype("i4")
    d_in, d_out = cp.asarray(host), cp.zeros(n, "i4")
    scan = cupar.inclusive_scan("i4", "i4", add)
    sort = cupar.merge_sort("i4", None, "i4", None, cupar.OpKind.LESS)
    for algorithm, arguments, expected in (
        (scan, (d_in, d_out, n), np.cumsum(host)),
        (sort, (d_in, None, d_out, None, n), np.sort(host)),
    ):
        storage = cp.zeros(algorithm(None, *arguments) + 255, "u1")
        for offset in (1, 8, 255):
            d_out.fill(-1)
            algorithm(storage[offset:], *arguments)
            np.testing.assert_array_equal(d_out.get(), expected)


def test_refusals(summed):
    reduction, d_in, d_out, h_init = summed
    host = np.zeros(N, "i4")
    nbytes = reduction(None, d_in, d_out, N, h_init)
    storage = cp.empty(nbytes, "u1")
    cases = [
        ((storage, d_in.astype("f4"), d_out, N, h_init), TypeError, "^d_in: .*int32.*float32"),
        ((storage, d_in, d_out.astype("i8"), N, h_init), TypeError, "^d_out: .*int32.*int64"),
        ((storage, d_in[::2], d_out, 10, h_init), ValueError, "^d_in: .*contiguous"),
        ((storage, d_in, d_out, N + 1, h_init), ValueError, f"^d_in: .*{N + 1} items.*{N}"),
        ((storage, d_in, cp.empty(0, "i4"), N, h_init), ValueError, "^d_out: .*1 items.*0"),
        ((storage, d_in, d_out, -1, h_init), ValueError, "^num_items: "),
        ((storage, d_in, d_out, 1.5, h_init), TypeError, "^num_items: "),
        (
            (cp.empty(0, "u1"), d_in, d_out, N, h_init),
            ValueError,
            f"^temp_storage: needs {nbytes} bytes.*got 0",
        ),
        ((storage, [1, 2], d_out, N, h_init), TypeError, "^d_in: .*list"),
        ((storage, None, d_out, N, h_init), TypeError, "^d_in: .*got None"),
    ]
    large = cp.zeros(1 << 24, "i4"), d_out, 1 << 24, h_init
    of_gpus = [
        ((storage, host, d_out, N, h_init), TypeError, "^d_in: .*NumPy array"),
        ((storage, d_in, host, N, h_init), TypeError, "^d_out: .*NumPy array"),
        ((cp.empty(16, "u1"), *large), ValueError, "^temp_storage: needs"),
        ((host, d_in, d_out, N, h_init), TypeError, "^temp_storage: .*NumPy array"),
    ]
    for arguments, error, message in cases if IS_CPU else cases + of_gpus:
        with pytest.raises(error, match=message):
            reduction(*arguments)
    scan = cupar.inclusive_scan(d_in, d_in, add)
    with pytest.raises(ValueError, match=f"^d_out: needs at least {N} items"):
        scan.run(d_in, cp.empty(N - 1, "i4"), N)
    with pytest.raises(TypeError, match="^h_init: .*without"):
        scan.run(d_in, d_in, N, 1)
    reduction.run(d_in, d_out, N, h_init)
    assert d_out.get()[0] == EXPECTED


def test_one_object_from_many_threads():
    d_out = cp.zeros((16, 1), "i8")
    inputs = [cp.full(1000 + i, i, "i4") for i in range(16)]
    reduction = cupar.reduce_into(inputs[0], d_out[0], add, np.zeros(1, "i8"))
    wrong = []

    def work(i):
        stream = cp.cuda.Stream(non_blocking=True)
        for repeat in range(200):
            n = 500 + repeat
            reduction.run(inputs[i], d_out[i], n, np.array([repeat], "i8"), stream=stream)
            with stream:
                got = int(d_out[i].get(stream=stream)[0])
            if got != i * n + repeat:
                wrong.append((i, repeat, got))

    cp.cuda.Device().synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_array_is_written_twice_or_while_it_is_read(rng):
    items, first, second, third = (cp.asarray(rng.integers(0, 9, 1000), "i4") for _ in range(4))
    count, places = cp.zeros(2, "i8"), cp.arange(1000)
    parts = cupar.three_way_partition("i4", "i4", "i4", "i4", "i8", lambda a: a < 3, lambda a: a > 6)
    chosen = cupar.select("i4", "i4", "i8", lambda a: a < 3)
    runs = cupar.run_length_encode("i4", "i4", "i4", "i8")
    for call, name, other in (
        (lambda: parts.run(items, first, first, third, count, 1000), "d_second_part_out", "d_first_part_out"),
        (lambda: parts.run(items, first, second, items, count, 1000), "d_unselected_out", "d_in"),
        (lambda: parts(cp.zeros(1 << 20, "u1"), items, items, first, second, count, 9), "d_first", "d_in"),
        (lambda: chosen.run(items, items, count, 1000), "d_out", "d_in"),
        (lambda: runs.bind(items, first, first, count, 1000), "d_out_counts", "d_out_unique"),
    ):
        with pytest.raises(ValueError, match=f"^{name}.*: expected an array of its own, .* of {other};"):
            call()
    parts.run(items, first, second[:0], second, count, 0)  # an empty array is where another begins
    parts.run(items, first, second, third, count, 1000)
    assert int(count.get()[0]) == int((items.get() < 3).sum())

    def at(array):
        return cupar.PermutationIterator(array, places)

    scatter = cupar.unary_transform("i4", cupar.PermutationIterator("i4", "i8"), lambda a: a)
    with pytest.raises(ValueError, match="^d_out: PermutationIterator writes to the array of d_in in"):
        scatter.run(items, at(items), 1000)
    scatter.run(items, at(first), 1000)
    scatter.run(items, at(items[:]), 1000)  # who gives a slice knows that places do not meet
    update = cupar.unary_transform(*2 * [cupar.PermutationIterator("i4", "i8")], lambda a: a + 1)
    update.run(at(first), at(first), 1000)
    np.testing.assert_array_equal(first.get(), items.get() + 1)
    both = cupar.unary_transform(
        "i4", cupar.ZipIterator(*2 * [cupar.PermutationIterator("i4", "i8")]), lambda a: (a, a)
    )
    with pytest.raises(ValueError, match="^d_out: ZipIterator writes to one array twice"):
        both.run(items, cupar.ZipIterator(at(first), at(first)), 1000)
    both.run(items, cupar.ZipIterator(at(first), at(second)), 1000)
    np.testing.assert_array_equal(second.get(), items.get())
