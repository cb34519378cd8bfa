"""Programs of `cupar.arrays`: traced once for all sizes; `functions/test_fuzz` makes random calls."""

import enum
import os

import numpy as np
import pytest
from support.common import in_threads
from support.interrupts import each_interrupt

import cupar
from cupar import arrays
from cupar._cpu.calls import CpuAlgorithm
from cupar._device import driver
from cupar._program import known

X = np.random.default_rng(5).random(6).astype("f4")


pytestmark = pytest.mark.usefixtures("forgotten")


@pytest.fixture
def made(monkeypatch):
    """The functions of calls that no program has made, in order, and None for others."""
    found, call = [], known.call

    def counted(function, *given):
        result = call(function, *given)
        found.append(function if result is None or type(result) is known.Miss else None)
        return result

    monkeypatch.setattr(known, "call", counted)
    return found


def programs():
    return [each for entry in known._KNOWN.all().values() for each in entry.programs]


def median(x):
    return arrays.median(x, axis=0)


def test_the_second_call_is_traced_and_the_third_made_by_a_program(made):
    for i in range(5):
        x = X + i
        assert median(x) == np.median(x)
    assert [each and each.__name__ for each in made] == ["of_median"] * 2 + [None] * 3


def test_each_call_has_its_own_result():
    found = [arrays.quantile(X + i, [0.25, 0.5]) for i in range(5)]
    for i, each in enumerate(found):
        np.testing.assert_allclose(each, np.quantile(X + i, [0.25, 0.5]), rtol=1e-6)
    kept = found[3].copy()
    found[4][:] = 0
    np.testing.assert_array_equal(found[3], kept)


@pytest.mark.parametrize(
    "other",
    [X[:4], X.reshape(2, 3), X.astype("f8"), np.repeat(X, 2)[::2], X[::-1], X[::2], X.reshape(2, 3).T],
    ids=["size", "shape", "dtype", "strided", "backwards", "fewer", "transposed"],
)
def test_another_array_is_another_call(other):
    for _ in range(3):
        arrays.quantile(X, [0.3, 0.6], axis=0)
    for x in (other, X, other, X):
        found = arrays.quantile(x, [0.3, 0.6], axis=0)
        assert found.dtype == x.dtype
        np.testing.assert_allclose(found, np.quantile(x, [0.3, 0.6], axis=0), rtol=1e-6)


def test_arguments_are_told_by_class_and_value():
    """0.0 is -0.0, 1 is True and 1.0, and a list may change."""
    x = np.array([1.0, 2.0])
    for value in (0.0, -0.0) * 3:
        assert np.signbit(arrays.shift(x, 1, value)[0]) == np.signbit(value)
    for value in (np.nan, -np.nan) * 3:
        assert np.signbit(arrays.shift(x, 1, value)[0]) == np.signbit(value)
    like = type("Like", (), {"dtype": np.dtype("f4")})
    for like.dtype in [np.dtype("f4"), np.dtype("f8")] * 3:
        assert arrays.sum(x.astype("f4"), dtype=like).dtype == like.dtype
    for value, dtype in [(1, "i8"), (1.0, "f8")] * 3:
        assert arrays.transform(cupar.OpKind.PLUS, np.zeros(2, "i1"), value).dtype == dtype
    q = [0.25, 0.5]
    for i in range(6):
        q[0] = 0.25 + i % 2 / 4
        np.testing.assert_allclose(arrays.quantile(X, q), np.quantile(X, q), rtol=1e-6)
    for each in (np.array(q), tuple(q), np.array(q[::-1])) * 3:
        np.testing.assert_allclose(arrays.quantile(X, each), np.quantile(X, each), rtol=1e-6)


scale = 1


def scaled(a):
    return a * scale


def test_what_operators_read_is_checked(made):
    global scale
    x = np.arange(4.0)
    for scale in (1, 2, 1, 3):
        for _ in range(4):
            assert arrays.transform(scaled, x).tolist() == (x * scale).tolist()
    for factor in (1, 2):
        for _ in range(3):
            assert arrays.transform(lambda a: a * factor, x).tolist() == (x * factor).tolist()
    assert None in made


def test_values_that_change_in_each_call_are_traced_a_few_times(traces):
    """Those that come again have programs of their own."""
    x = np.arange(4.0)

    def times(factor):
        pair = factor, 0
        assert arrays.transform(lambda a: a * pair[0], x).tolist() == (x * factor).tolist()

    for i in range(20):
        times(1 + i % 2)
    assert len(traces) == 2
    for i in range(12):
        times(3 + i)
    assert len(traces) == 2 + known._MOST_IN_VAIN
    times(1)


def test_numbers_that_operators_read_are_no_new_program(traces):
    x = np.arange(4.0)

    def times(factor):
        assert arrays.transform(lambda a: a * factor, x).tolist() == (x * factor).tolist()

    for i in range(3):
        times(0.1 + i)
    before = len(traces)
    for i in range(20):
        times(5.3 + i)
    assert len(traces) == before
    for i in range(20):
        times(5.5 + i)  # float32 has these
    assert len(traces) == before + 1
    times(0.7)
    times(3.5)
    assert len(traces) == before + 1


def test_an_operator_that_captures_arrays_is_called_anew():
    x, table = np.arange(3), np.array([1, 2, 3])
    with cupar.device("cpu"):
        for _ in range(5):
            assert arrays.transform(lambda a: table[a], x).tolist() == table.tolist()
            table[:] += 1


def test_what_is_written_to_lies_apart_from_what_is_read(made):
    """A call in place takes the general path; another shape is an error, by a program's guard, too."""
    for n in (6, 6, 6, 5, 4):
        x, out = X[:n].copy(), np.zeros(n, "f4")
        assert arrays.sort(x, out=out) is out and out.tolist() == sorted(X[:n].tolist())
        assert arrays.sort(x, out=x) is x and x.tolist() == sorted(X[:n].tolist())
        with pytest.raises(ValueError, match="^out: expected shape"):
            arrays.sort(x, out=np.zeros(n + 1, "f4"))
        with pytest.raises(ValueError, match="^out: expected an array in C's order"):
            arrays.sort(x, out=np.zeros(2 * n, "f4")[::2])
        out.flags.writeable = False
        with pytest.raises(ValueError, match="^out: expected an array to write to"):
            arrays.sort(x, out=out)
        memory = np.concatenate([X[:n], X[:1]])
        with pytest.raises(ValueError, match="^out: expected an array apart from inputs|^out: expected the"):
            arrays.sort(memory[:-1], out=memory[1:])
    assert made.count(None) == 3 and len(programs()) == 1


def pairs_summed(a, b):
    return a[0] + b[0], a[1] + b[1]


def test_each_array_of_a_tuple_that_is_written_to_may_be_read_only(made):
    for is_writeable in (True, True, True, False):
        out = X.copy(), X.copy()
        out[1].flags.writeable = is_writeable
        if is_writeable:
            assert arrays.scan((X, X), pairs_summed, out=out) == out
            continue
        with pytest.raises(ValueError, match="^out: expected an array to write to"):
            arrays.scan((X, X), pairs_summed, out=out)
        np.testing.assert_array_equal(out[1], X)
    assert made[2] is None and made[3] is not None


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_streams_and_outputs_are_of_the_program(library, made):
    x = X if library == "numpy" else pytest.importorskip("torch").tensor(X)
    for _ in range(4):
        out = x * 0
        assert arrays.transform(scaled, x, out=out, stream=0) is out
        assert out.tolist() == (x * scale).tolist()
    assert made.count(None) == 2


def test_lengths_that_are_read_are_sizes(made):
    x = np.random.default_rng(1).random(100).astype("f4")
    for i in range(2, 12):
        part = x[i : 9 * i]
        assert arrays.copy_if(part, lambda a: a > 0.5).tolist() == part[part > 0.5].tolist()
        assert (
            arrays.repeat(part, np.arange(len(part)) % 3).tolist()
            == np.repeat(part, np.arange(len(part)) % 3).tolist()
        )
    assert made.count(None) >= 15
    assert len(programs()) <= 4


def test_a_call_whose_numbers_are_read_has_parts_with_programs(made):
    for i in range(5):
        x = X * (i + 1) - i
        found = arrays.histogram(x, bins=4)
        hist, edges = np.histogram(x, 4)
        np.testing.assert_array_equal(found.hist, hist)
        np.testing.assert_allclose(found.edges, edges, rtol=1e-6)
    assert None in made


def test_what_was_put_on_the_device_is_no_result_of_two_calls():
    edges = [0.0, 0.25, 0.5, 1.0]
    for _ in range(5):
        found = arrays.histogram(X, bins=edges)
        np.testing.assert_array_equal(found.edges, edges)
        found.edges[:] = -1


def test_what_was_put_on_the_device_does_not_change_with_the_users_array():
    for i in range(6):
        edges = np.array([0.0, 0.25, 0.5, 1.0])
        found = arrays.histogram(X, bins=edges, weights=X)
        expected = np.histogram(X, edges, weights=X)
        np.testing.assert_allclose(found.hist, expected[0], rtol=1e-6)
        np.testing.assert_array_equal(found.edges, expected[1])
        assert not np.shares_memory(found.edges, edges)
        edges[:] = i


def test_an_output_that_is_not_aligned_is_refused_by_a_program_too():
    memory = np.zeros(4 * len(X) + 4, "u1")
    for begin in (0, 0, 0, 1, 4):
        out = memory[begin : begin + X.nbytes].view("f4")
        if begin % 4:
            with pytest.raises(ValueError, match="^out: expected an array aligned to 4 bytes"):
                arrays.sort(X, out=out)
        else:
            assert arrays.sort(X, out=out).tolist() == sorted(X.tolist())


def test_the_same_array_twice_is_another_call():
    y = X[::-1].copy()
    for one, other in [(X, X)] * 3 + [(X, y), (y, y), (y, X)] * 3:
        assert arrays.concatenate([one, other]).tolist() == np.concatenate([one, other]).tolist()
        assert arrays.inner_product(one, other) == pytest.approx(float(one @ other), rel=1e-5)


def test_arrays_that_share_memory_once_recorded_are_read_rightly():
    x, y = X.copy(), X + 1
    for one, other in [(x, y)] * 3 + [(x, x), (x[:3], x[3:]), (y, x)] * 2:
        assert arrays.concatenate([one, other]).tolist() == np.concatenate([one, other]).tolist()
    assert programs()


@pytest.mark.parametrize("dtype", ["i4, f4", "c8"])
def test_an_array_whose_items_are_read_by_larger_ones_is_aligned_to_these(dtype):
    """NumPy has no alignment for packed structs; complex64 is moved in words of 8 bytes."""
    x = np.ones(3, dtype)

    def moved(x):
        return arrays.transform(lambda s: s[1], x) if x.dtype.names else arrays.repeat(x, 2)

    for _ in range(3):
        moved(x)
    misaligned = np.zeros(x.nbytes + 8, "u1")
    for begin in range(8):
        y = misaligned[begin : begin + x.nbytes].view(dtype)
        y[:] = x
        assert np.array_equal(moved(y), moved(x))


@pytest.mark.parametrize("none", [np.empty(0, "f4"), np.empty((0, 3), "f4")], ids=["0", "0 x 3"])
def test_no_items(none):
    for _ in range(4):
        assert arrays.sort(none, axis=0).shape == none.shape
        with pytest.raises(ValueError, match="^x: expected at least one item"):
            arrays.median(none, axis=0)
        assert arrays.concatenate([none, none]).shape == (0, *none.shape[1:])


def test_errors_are_those_of_other_calls():
    for _ in range(4):
        with pytest.raises(ValueError, match="^q: expected numbers from 0 to 1, got 1.5"):
            arrays.quantile(X, 1.5)
        with pytest.raises(TypeError, match="^x: "):
            arrays.median(None)
    for _ in range(3):
        median(X)
    with (
        cupar.device("cuda"),
        pytest.raises(TypeError, match="^x: expected a device array, as the device"),
    ):
        median(X)
    assert median(X) == np.median(X)


@pytest.mark.parametrize("when", ["the first", "the second"])
def test_an_interrupt_leaves_nothing_half_done(when, monkeypatch):
    for _ in range(3):
        arrays.quantile(X, [0.3, 0.6])
    run, calls = CpuAlgorithm._do, []

    def interrupted(self, read):
        calls.append(read)
        if len(calls) == (1 if when == "the first" else 2):
            raise KeyboardInterrupt
        run(self, read)

    monkeypatch.setattr(CpuAlgorithm, "_do", interrupted)
    with pytest.raises(KeyboardInterrupt):
        arrays.quantile(X + 1, [0.3, 0.6])
    monkeypatch.undo()
    np.testing.assert_allclose(arrays.quantile(X + 2, [0.3, 0.6]), np.quantile(X + 2, [0.3, 0.6]), rtol=1e-6)


def test_an_interrupt_while_a_call_is_traced_or_made_by_its_program(ctrl_c):
    """The next one is right, and has a program."""

    def work():
        assert arrays.sort(X).tolist() == sorted(X.tolist())

    def check():
        work()
        work()
        assert programs()
        known._KNOWN.clear()
        known._RECENT.clear()
        work()

    check()
    assert each_interrupt(work, check) > 100
    for _ in range(3):
        work()
    assert each_interrupt(work, work) > 10


def test_threads_share_programs():
    def work():
        kept = []
        for i in range(20):
            x = X + i
            kept.append((median(x), np.median(x)))
        return all(one == other for one, other in kept)

    assert in_threads(4, work) == [True] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_forked_process_has_programs():
    for _ in range(3):
        median(X)
    child = os.fork()
    if child == 0:
        is_right = all(median(X + i) == np.median(X + i) for i in range(4))
        os._exit(0 if is_right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_tensors():
    torch = pytest.importorskip("torch")
    x = torch.tensor(X)
    for _ in range(4):
        assert float(median(x)) == np.median(X)
    z = torch.complex(x, -x)
    for _ in range(3):
        with pytest.raises(ValueError, match="^x: got a tensor with lazy conjugation or negation"):
            median(z.conj().imag)
    for each in (x.flip(0), torch.stack([x, x]).T[:, 0], x.clone()):
        assert float(median(each)) == np.median(X)
    x.requires_grad_()
    with pytest.raises(TypeError, match="^x: got a tensor that requires grad"):
        median(x)
    with torch.no_grad():
        assert float(median(x)) == np.median(X)


def test_a_strided_array_of_numpy_beside_a_tensor():
    """PyTorch would end the process where strides are negative, and refuse memory that is read-only."""
    torch = pytest.importorskip("torch")
    for other in (X[::-1], np.broadcast_to(X[:1], 6), X):
        for _ in range(3):
            found = arrays.concatenate([torch.tensor(X), other])
            assert type(found) is torch.Tensor and found.tolist() == [*X.tolist(), *other.tolist()]


def test_a_call_in_a_compiled_function_is_a_graph_break():
    """Dynamo would compile what traces a call, and its programs."""
    torch = pytest.importorskip("torch")
    compiled = torch.compile(lambda x: arrays.sum(2 * x) + 1, backend="eager")
    arrays.sum(torch.tensor(X))  # PyTorch is told, which may have been imported after cupar
    known._KNOWN.clear()
    known._RECENT.clear()
    for i in range(4):
        x = torch.tensor(X[: 6 - i % 2])
        torch.testing.assert_close(compiled(x), x.sum() * 2 + 1)
    assert programs()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="enter"):
        torch.compile(arrays.sort, backend="eager", fullgraph=True)(x)


def test_tensors_without_memory():
    """They have the class, dtype and shape of those of which the recording is."""
    torch = pytest.importorskip("torch")
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    x = torch.tensor(X)
    for _ in range(3):
        arrays.sort(x)
    with pytest.raises(TypeError, match="^x: "):
        arrays.sort(torch._efficientzerotensor(6))
    with (
        fake.FakeTensorMode(allow_non_fake_inputs=True),  # which makes the result
        pytest.raises(TypeError, match="^x: "),
    ):
        arrays.sort(x)
    assert arrays.sort(x).tolist() == sorted(X.tolist())


def _transform(name):
    """Return what has PyTorch trace or transform a call, given a function and a tensor."""
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def within(mode):
        def call(function, x):
            with mode:
                return function(x)

        return call

    return {
        "functionalize": lambda function, x: torch.func.functionalize(function)(x),
        "vmap": lambda function, x: torch.vmap(function)(x[None]),
        "grad": lambda function, x: torch.func.grad(function)(x),
        "jvp": lambda function, x: torch.func.jvp(function, (x,), (x,)),
        "make_fx": lambda function, x: make_fx(function)(x),
        "fake_make_fx": lambda function, x: make_fx(function, tracing_mode="fake")(x),
        "jit.trace": lambda function, x: torch.jit.trace(function, x, check_trace=False),
        "fake_tensors": within(FakeTensorMode(allow_non_fake_inputs=True)),
    }[name]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("is_input", [True, False], ids=["of the input", "of a constant"])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
@pytest.mark.parametrize(
    "name", ["functionalize", "vmap", "grad", "jvp", "make_fx", "fake_make_fx", "jit.trace", "fake_tensors"]
)
def test_tensors_that_pytorch_traces_are_refused(name, is_known, is_input):
    """Their memory is another's, or none; a call would be a constant of what is traced."""
    transform = _transform(name)
    import torch

    x, flat = torch.arange(6.0), torch.tensor(1.0)
    calls = [
        lambda given: arrays.sum(x if given is None else given),
        lambda given: arrays.concatenate([x if given is None else given] * 2),
        lambda given: arrays.sum(flat),
        lambda given: arrays.scan(x if given is None else given, lambda a, b: a + b, init=0.0),
    ]

    def refusing(call):
        def refused(given):
            with pytest.raises(TypeError, match="cupar.torch"):
                call(given if is_input else None)
            return given.sum() * 2

        return refused

    for call in calls:
        known._KNOWN.clear()
        known._RECENT.clear()
        for _ in range(4 * is_known):
            call(None)
        transform(refusing(call), x)
        assert torch.equal(call(x), call(x))
    assert float(arrays.sum(x)) == 15


def test_calls_of_a_function_may_have_any_number_of_inputs():
    operators = [lambda a: -a, lambda a, b: a - b, lambda a, b, c: a - b * c]
    for _ in range(4):
        for count, op in enumerate(operators, 1):
            assert np.array_equal(arrays.transform(op, *[X] * count), op(*[X] * count))


def test_complex_numbers_and_structs_are_in_keys_by_bytes(made):
    empty, pairs = X[:0].astype("c8"), np.array([(2, 1.5), (3, 2.5)], "i4, f4")
    structs = [np.array([(k, sign * 0.0)], pairs.dtype)[0] for k in (0, 4) for sign in (1, -1)]
    numbers = [complex(sign * 0.0, 0) for sign in (1, -1)]
    for _ in range(3):
        for each in numbers:
            found = arrays.scan(X.astype("c8"), lambda a, b: a, init=each)
            assert found.tobytes() == np.full(X.size, each, "c8").tobytes()
            assert arrays.reduce(empty, init=each).tobytes() == np.complex64(each).tobytes()
        for each in structs:
            found = arrays.reduce(pairs, lambda a, b: a, init=each)
            assert [one.tobytes() for one in found] == [one.tobytes() for one in each]
    assert made[-8:] == [None] * 8  # by programs


def test_a_dispatch_mode_of_the_users_changes_nothing():
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    x = torch.arange(6.0)
    for _ in range(3):
        with Mode():
            assert float(arrays.sum(x)) == 15
        assert float(arrays.sum(x)) == 15


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_errors_of_tensors_are_those_of_the_first_call(kind):
    torch = pytest.importorskip("torch")
    x = torch.tensor(X.reshape(2, 3))
    x = x.to_sparse_csr() if kind == "sparse" else torch.nested.nested_tensor([x])
    for _ in range(3):
        with pytest.raises(TypeError, match="^x: "):
            arrays.sort(x)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_arrays_in_host_memory_need_no_current_device(library, monkeypatch):
    """A context would be made in each thread that has none, and in a forked process that is an error."""
    monkeypatch.setattr(driver, "has_several_devices", True)
    monkeypatch.delattr(driver, "current_device")
    x = X if library == "numpy" else pytest.importorskip("torch").tensor(X)
    for _ in range(3):
        assert float(median(x)) == np.median(X)
    assert programs()


def test_an_argument_without_a_hash():
    """As shapes of symbols are, too, within PyTorch's compiler."""
    method = enum.Enum("Method", {"LINEAR": 1, "__hash__": None}).LINEAR
    for _ in range(3):
        with pytest.raises(ValueError, match="^method: "):
            arrays.quantile(X, 0.3, axis=0, method=method)


def test_a_scan_of_structs_is_a_tuple_of_arrays_each_time():
    x = np.array([(3, 1.5), (1, 2.5)], "i4, f4")
    for _ in range(3):
        first, second = arrays.scan(x, lambda a, b: a if a[0] > b[0] else b)
        assert (first.tolist(), second.tolist()) == ([3, 3], [1.5, 1.5])
