"""Programs read numbers of operators at each call: compared with operators that have these in their code."""

import os
import random
import threading
import types

import numpy as np
import pytest

import cupar
from cupar import arrays
from cupar._fingerprint import walk
from cupar._fingerprint.numbers import packed, type_of
from cupar._fingerprint.varying import Argument, place_of, reader

X = np.random.default_rng(5).integers(-40, 40, 200).astype("f4") / 4
SORTED = np.sort(X)
IDS = np.sort(np.random.default_rng(6).integers(0, 20, 200))
config = types.ModuleType("config")

ONE = ["v * {k} + {j}", "{j} if v > {k} else v", "min(v, {k}) - {j}", "v + {k}", "v / {k}"]
PREDICATES = ["v > {k}", "{j} < v <= {k}", "abs(v) < {k}", "v * {k} < {j}"]
TWO = ["a + b + {k}", "max(min(a, b), {k})", "a + b", "min(max(a, b), {j}) + 0 * {k}"]
EQUAL = ["abs(a - b) < {k}", "a + {k} == b + {k}"]
LESS = ["a * {k} < b * {k}", "abs(a - {j}) < abs(b - {j})"]

CALLS = {
    "transform": ("v", ONE, lambda f: arrays.transform(f, X)),
    "of two": ("a, b", TWO, lambda f: arrays.transform(f, X, X[::-1].copy())),
    "copy_if": ("v", PREDICATES, lambda f: arrays.copy_if(X, f)),
    "remove_if": ("v", PREDICATES, lambda f: arrays.remove_if(X, f)),
    "count_if": ("v", PREDICATES, lambda f: arrays.count_if(X, f)),
    "rows": ("v", PREDICATES, lambda f: arrays.any_of(X.reshape(20, 10), f, axis=1)),
    "find_first": ("v", PREDICATES, lambda f: arrays.find_first(X, f)),
    "partition_copy": ("v", PREDICATES, lambda f: arrays.partition_copy(X, f)),
    "replace_if": ("v", PREDICATES, lambda f: arrays.replace_if(X, f, 3)),
    "scan": ("a, b", TWO, lambda f: arrays.scan(X, f)),
    "scan of rows": ("a, b", TWO, lambda f: arrays.scan(X.reshape(20, 10), f, axis=0)),
    "reverse scan": ("a, b", TWO, lambda f: arrays.scan(X, f, reverse=True)),
    "reduce": ("a, b", TWO, lambda f: arrays.reduce(X, f)),
    "reduce of some": ("a, b", TWO, lambda f: arrays.reduce(X, f, where=X > 1, init=0)),
    "segment_reduce": ("a, b", TWO, lambda f: arrays.segment_reduce(X, IDS, f, 20, init=1)),
    "reduce_by_key": ("a, b", EQUAL, lambda f: arrays.reduce_by_key(SORTED, X, equal=f)),
    "run_length_encode": ("a, b", EQUAL, lambda f: arrays.run_length_encode(SORTED, equal=f)),
    "sort": ("a, b", LESS, lambda f: arrays.sort(X, less=f)),
    "is_sorted": ("a, b", LESS, lambda f: arrays.is_sorted(X, less=f)),
    "transform_reduce": ("v", ONE, lambda f: arrays.transform_reduce(X, f, max)),
    "transform_scan": ("v", ONE, lambda f: arrays.transform_scan(X, f, max)),
    "tabulate": ("v", ONE, lambda f: arrays.tabulate(30, f, like=X)),
    "adjacent_difference": ("a, b", TWO, lambda f: arrays.adjacent_difference(X, f)),
}
VALUES = [
    0.3,
    0.7,
    2.5,
    0.5,
    1.1,
    -0.75,
    3.0,
    1.0,
    2.0,
    0.0,
    3,
    5,
    7,
    True,
    np.float32(0.3),
    np.int32(4),
    1e-3,
    np.inf,
]
VALUES += [2**40, -1, 0.1]
PLACES = ("closure", "global", "attribute", "default", "helper", "helper's closure")


def written(parameters, text, k, j):
    """The operator with the numbers in its code."""
    shown = {
        name: f"np.{each!r}".replace("np.np.", "np.")
        if isinstance(each, np.generic)
        else repr(each).replace("inf", "np.inf")
        for name, each in (("k", k), ("j", j))
    }
    return eval(f"lambda {parameters}: {text.format(**shown)}", {"np": np})


class Reading:
    """An operator whose code stays the same, and what it reads changes."""

    def __init__(self, parameters, text, place):
        self.place, self.names = place, {"config": types.ModuleType("config"), "__name__": "operators"}
        plain = text.format(k="K", j="J")
        self.make = None
        if place == "closure":
            self.make = eval(f"lambda K, J: lambda {parameters}: {plain}", self.names)
        elif place == "default":
            self.make = eval(f"lambda K, J: lambda {parameters}, K=K, J=J: {plain}", self.names)
        elif place == "helper's closure":
            inner = f"lambda {parameters}: helper({parameters})"
            self.make = eval(
                f"lambda K, J: (lambda helper: {inner})(lambda {parameters}: {plain})",
                self.names,
            )
        elif place == "helper":
            exec(f"def helper({parameters}): return {plain}", self.names)
            self.op = eval(f"lambda {parameters}: helper({parameters})", self.names)
        else:
            plain = plain if place == "global" else text.format(k="config.K", j="config.J")
            self.op = eval(f"lambda {parameters}: {plain}", self.names)

    def with_numbers(self, k, j):
        if self.make is not None:
            return self.make(k, j)
        self.names.update(K=k, J=j)
        vars(self.names["config"]).update(K=k, J=j)
        return self.op


def same(one, other):
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def outcome(call, op):
    try:
        with np.errstate(all="ignore"):
            return call(op)
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    with cupar.device("cpu"):
        yield


SEED = int(os.environ.get("CUPAR_FUZZ_SEED", "20261129"))


@pytest.mark.parametrize("name", CALLS)
def test_against_numbers_in_the_code(name):
    """CUPAR_FUZZ_EXAMPLES of each."""
    parameters, texts, call = CALLS[name]
    r = random.Random(f"{SEED} {name}")
    examples = int(os.environ.get("CUPAR_FUZZ_EXAMPLES", "1"))
    for _ in range(examples):
        text, place = r.choice(texts), r.choice(PLACES)
        reading = Reading(parameters, text, place)
        pairs = [(r.choice(VALUES[:6]), r.choice(VALUES[:6])) for _ in range(3)]
        pairs += [(r.choice(VALUES), r.choice(VALUES)) for _ in range(2)]
        for k, j in pairs:
            expected = outcome(call, written(parameters, text, k, j))
            for _ in range(2):
                found = outcome(call, reading.with_numbers(k, j))
                if isinstance(expected, type) or isinstance(found, type):
                    assert found is expected, (text, place, k, j)
                else:
                    assert same(found, expected), (text, place, k, j)


def test_values_of_threads_are_their_own():
    wrong = []

    def work(seed):
        r = random.Random(seed)
        with cupar.device("cpu"):
            for _ in range(200):
                k = r.choice([r.random() + 2, r.randrange(3, 9) / 4 + 2])
                found = arrays.transform(lambda v: v * k, X)
                if not same(found, X.astype("f8") * k):
                    wrong.append(k)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong


def test_a_global_that_another_thread_changes_is_read_once():
    """Each call uses one value, though it reads while that changes."""
    namespace = {"K": 2.25, "__name__": "operators"}
    op = eval("lambda v: v * K", namespace)
    values = [2.25 + i for i in range(50)]
    allowed = {(X.astype("f8") * k).tobytes() for k in values}
    is_done = threading.Event()

    def change():
        while not is_done.is_set():
            for each in values:
                namespace["K"] = each

    thread = threading.Thread(target=change)
    thread.start()
    try:
        found = [arrays.transform(op, X).tobytes() for _ in range(500)]
    finally:
        is_done.set()
        thread.join()
    assert {*found} <= allowed


def test_a_number_that_is_a_constant_of_some_algorithm_is_guarded():
    def made(k):
        return lambda v: v * k + config.scale

    config.scale = 0.7
    op = made(0.3)
    found = walk.fingerprint(op)
    given = [
        (each, Argument(place_of(op, found, each), type_of(each.value), False)) for each in found.numbers
    ]
    places = [argument.place for _, argument in given]
    for varying in ([], places[:1], places[1:], places):
        read = reader(op, found, given, varying)
        own = [packed(each.value, type_of(each.value)) for each in found.numbers]
        assert read(op) == read(made(0.3)) == own
        assert (read(made(0.9)) is not None) is (places[0] in varying)
        assert read(made(0.5)) is read(made(3)) is read(made(None)) is None  # float32 has the first
        config.scale = 0.9
        assert (read(op) is not None) is (places[1] in varying)
        config.scale = 0.7


def test_an_attribute_that_is_read_as_a_constant_too_is_guarded():
    """By a function in a tuple, whose numbers stay constants."""
    config.scale = 0.7
    both = (lambda v: v + config.scale,)
    op = lambda v: both[0](v) * config.scale
    found = walk.fingerprint(op)
    given = [
        (each, Argument(place_of(op, found, each), type_of(each.value), False)) for each in found.numbers
    ]
    assert len(given) == 1
    read = reader(op, found, given, [given[0][1].place])
    assert read(op)
    config.scale = 0.9
    assert read(op) is None


def test_a_helper_that_is_replaced_is_noticed():
    namespace = {"K": 2.25, "helper": lambda v: v * 1, "__name__": "operators"}
    namespace["helper"] = eval("lambda v: v * K", namespace)
    op = eval("lambda v: helper(v)", namespace)
    for k in (2.25, 3.25, 4.25, 5.25):
        namespace["K"] = k
        assert same(arrays.transform(op, X), X.astype("f8") * k)
    namespace["helper"] = eval("lambda v: v + K", namespace)
    for k in (2.25, 3.25, 4.25):
        namespace["K"] = k
        assert same(arrays.transform(op, X), X.astype("f8") + k)


def test_a_number_that_goes_is_noticed():
    namespace = {"K": 2.25, "__name__": "operators"}
    op = eval("lambda v: v * K", namespace)
    for k in (2.25, 3.25, 4.25, 5.25):
        namespace["K"] = k
        arrays.transform(op, X)
    del namespace["K"]
    with pytest.raises(TypeError, match="K"):
        arrays.transform(op, X)
    namespace["K"] = (1, 2)
    with pytest.raises(TypeError):
        arrays.transform(op, X)
    namespace["K"] = 6.25
    assert same(arrays.transform(op, X), X.astype("f8") * 6.25)


def test_a_module_that_is_replaced_is_noticed():
    one, other = types.ModuleType("one"), types.ModuleType("other")
    one.scale = other.scale = 2.25
    namespace = {"config": one, "__name__": "operators"}
    op = eval("lambda v: v * config.scale", namespace)
    for k in (2.25, 3.25, 4.25, 5.25):
        one.scale = k
        assert same(arrays.transform(op, X), X.astype("f8") * k)
    namespace["config"] = other
    assert same(arrays.transform(op, X), X.astype("f8") * 2.25)
    other.scale = 7.25
    assert same(arrays.transform(op, X), X.astype("f8") * 7.25)


def test_two_operators_of_one_code():
    def made(k):
        return lambda v: v * k

    for k, j in ((0.3, 0.7), (1.1, 2.3), (2.5, 0.3), (0.3, 0.3), (0.5, 0.25), (0.7, 0.1)):
        found = arrays.transform_reduce(X, made(k), max)
        assert same(found, (X.astype("f8") * k).max().astype(found.dtype))
        assert same(arrays.transform(made(j), X), X.astype("f8") * j)


def test_while_a_call_is_traced_memos_are_not_asked():
    def made(k):
        return lambda v: v * k

    cupar.unary_transform("f4", "f4", made(2.5), cc="cpu")
    asked = [cupar.unary_transform("f4", "f4", made(2.5), cc="cpu") for _ in range(3)]
    assert asked[1] is asked[2]
    with walk.fingerprint_scope():
        assert cupar.unary_transform("f4", "f4", made(2.5), cc="cpu") is asked[2]
        assert walk.constants_of_trace(begin=True) == set() and walk.is_traced()
        now = cupar.unary_transform("f4", "f4", made(2.5), cc="cpu")
        assert now is not asked[2]
    assert cupar.unary_transform("f4", "f4", made(2.5), cc="cpu") is now
    assert not walk.is_traced()
