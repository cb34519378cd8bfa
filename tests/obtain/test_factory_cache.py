"""What a factory remembers, and that it never answers with another algorithm than was asked for."""

import threading

import numpy as np
import pytest

import cupar
from cupar import _build
from cupar._obtain import factory_cache
from cupar.operators import OpKind

CC = 90
INT = np.zeros(1, np.int32)


def asked(factory, *args, **named):
    """Ask often enough to be remembered."""
    for _ in range(3):
        found = factory(*args, **named)
    return found


def remembered():
    return sum(map(len, factory_cache.tables))


def test_the_same_is_found_again(empty_cache):
    first = asked(cupar.reduce_into, "i4", "i4", OpKind.PLUS, INT, cc=CC)
    before = remembered()
    assert before > 0
    assert cupar.reduce_into("i4", "i4", OpKind.PLUS, INT + 1, cc=CC) is first
    assert remembered() == before
    cupar.cache.clear(disk=False)
    assert remembered() == 0
    assert cupar.reduce_into("i4", "i4", OpKind.PLUS, INT, cc=CC).build.origin == "disk"


@pytest.mark.parametrize(("one", "other"), [(90, 80), ((9, 0), (8, 0)), ("sm_90", "8.0")])
def test_compute_capabilities_are_told_apart(one, other):
    first = asked(cupar.reduce_into, "i4", "i4", OpKind.PLUS, 0, cc=one)
    assert asked(cupar.reduce_into, "i4", "i4", OpKind.PLUS, 0, cc=other).build.cc == 80
    assert first.build.cc == 90
    if isinstance(one, tuple):  # has no token, and leaves none of the others
        with pytest.raises(cupar.NoDeviceError):
            _without_gpu(cupar.reduce_into, "i4", "i4", OpKind.PLUS, 0)


def _without_gpu(factory, *args):
    from cupar._device import driver

    with pytest.MonkeyPatch.context() as patch:

        def none():
            raise driver.NoDeviceError("none")

        patch.setattr(driver, "library", none)
        return factory(*args)


@pytest.mark.slow
def test_values_of_arrays_count_where_they_decide_the_build():
    def histogram(levels, upper):
        return asked(cupar.histogram_even, "i4", "i4", np.array([levels]), np.array([0]), upper, 1000, cc=CC)

    few = histogram(11, np.array([100]))
    assert histogram(1001, np.array([2**40])).build.key == few.build.key
    assert histogram(11, np.array([99.5])).build.key != few.build.key
    up = asked(cupar.radix_sort, "u4", "u4", None, None, np.array(0), cc=CC)
    assert asked(cupar.radix_sort, "u4", "u4", None, None, np.array(1), cc=CC).build.key != up.build.key


@pytest.mark.usefixtures("constants")
def test_a_changed_global_is_another_question(empty_cache):
    namespace = {"SCALE": 2}
    exec("op = lambda a, b: a + b * SCALE", namespace)
    first = asked(cupar.reduce_into, "i4", "i4", namespace["op"], INT, cc=CC)
    namespace["SCALE"] = 3
    assert asked(cupar.reduce_into, "i4", "i4", namespace["op"], INT, cc=CC).build.key != first.build.key
    namespace["SCALE"] = 2
    assert asked(cupar.reduce_into, "i4", "i4", namespace["op"], INT, cc=CC).build.key == first.build.key


def test_a_global_that_changes_while_others_wait_for_a_build(empty_cache, monkeypatch):
    namespace = {"SCALE": 5}
    exec("op = lambda a, b: a * SCALE + b", namespace)
    linking, go, link, found = threading.Event(), threading.Event(), _build.link, []

    def slow(*arguments):
        linking.set()
        go.wait(60)
        return link(*arguments)

    monkeypatch.setattr(_build, "link", slow)

    def ask():
        found.append(cupar.reduce_into("i4", "i4", namespace["op"], INT, cc=CC))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    linking.wait(60)
    threads[1].start()
    threads[1].join(0.3)  # it waits for the first one's build
    namespace["SCALE"] = 7
    go.set()
    for thread in threads:
        thread.join()
    old = found[0].build.key
    assert asked(cupar.reduce_into, "i4", "i4", namespace["op"], INT, cc=CC).build.key != old


def test_what_has_no_fingerprint_is_not_remembered():
    def op(a, b):
        return a + b

    op.tag = object()
    for _ in range(3):  # a scan takes it for OpKind.PLUS, without a look at its attributes
        assert cupar.inclusive_scan("i4", "i4", op, cc=CC).build.cc == 90


def test_numbers_given_by_value_do_not_push_out_what_is_asked_for_often(empty_cache, monkeypatch):
    """As a bound in a search or a histogram that is another one each time."""
    found = asked(cupar.reduce_into, "i4", "i4", OpKind.PLUS, INT, cc=CC)
    table = next(each for each in factory_cache.tables if each)
    (answer,) = table.all().values()
    monkeypatch.setattr(cupar._obtain.obtain, "answer", None)  # whoever goes the long way fails
    for flood in range(3 * factory_cache._MOST):
        table["numbers", flood] = answer
        assert cupar.reduce_into("i4", "i4", OpKind.PLUS, INT, cc=CC) is found
    assert len(table.all()) <= 2 * factory_cache._MOST


def test_a_function_given_by_name_is_remembered(empty_cache, monkeypatch):
    namespace = {"SCALE": 2}
    exec("op = lambda a, b: a + b * SCALE", namespace)

    def ask():
        return cupar.reduce_into("i4", "i4", op=namespace["op"], h_init=INT, cc=CC)

    found = asked(ask)
    namespace["SCALE"] = 3
    assert asked(ask).build.key != found.build.key
    monkeypatch.setattr(cupar._obtain.obtain, "answer", None)
    assert ask().build.key != found.build.key


def test_initial_values_of_a_dtype_are_one_question(empty_cache, monkeypatch):
    given = [np.float32(1), np.float32(-0.0), np.float32(np.nan)]
    found = asked(cupar.reduce_into, "f4", "f4", OpKind.PLUS, given[0], cc=CC)
    other = asked(cupar.reduce_into, "f4", "f8", OpKind.PLUS, np.float64(1), cc=CC)
    assert other is not found
    monkeypatch.setattr(cupar._obtain.obtain, "answer", None)
    for each in given:
        assert cupar.reduce_into("f4", "f4", OpKind.PLUS, each, cc=CC) is found
    assert cupar.reduce_into("f4", "f8", OpKind.PLUS, np.float64(2), cc=CC) is other


def test_levels_are_remembered_by_value(empty_cache, monkeypatch):
    def ask(levels):
        return cupar.histogram_even("i4", "i4", np.array([levels]), np.array([0]), np.array([100]), 10, cc=CC)

    few, many = asked(ask, 11), asked(ask, 1001)
    monkeypatch.setattr(cupar._obtain.obtain, "answer", None)
    assert ask(11) is few
    assert ask(1001) is many
