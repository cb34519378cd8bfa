"""Scans by functions of the user's in PyTorch, and their derivatives, which are traced."""

import gc
import itertools
import math
import operator
import types

import numpy as np
import pytest
from support.interrupts import each_interrupt

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import cupar  # noqa: E402
from cupar import torch as ct  # noqa: E402
from cupar._torch import tracing, user_functions  # noqa: E402

F64 = torch.float64


def logaddexp(a, b):
    largest = max(a, b)
    return largest + math.log1p(math.exp(min(a, b) - largest))


def larger(a, b):
    return a if a > b else b


def loop(x, function, dim, reverse=False):
    found, steps = [], range(x.shape[dim])
    for t in reversed(steps) if reverse else steps:
        item = x.select(dim, t)
        found.append(item if not found else function(found[-1], item))
    return torch.stack(found[::-1] if reverse else found, dim)


def drawn(*shape, seed=0, grad=True):
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


@pytest.mark.parametrize(("dim", "reverse"), [(1, False), (0, True)])
@pytest.mark.parametrize(
    ("function", "expected"),
    [(logaddexp, torch.logaddexp), (larger, torch.maximum), (cupar.OpKind.MULTIPLIES, torch.mul)],
    ids=["logaddexp", "larger", "product"],
)
def test_as_a_loop_does(function, expected, dim, reverse):
    x, weights = drawn(3, 5), drawn(3, 5, seed=1, grad=False)
    y, z = ct.scan(x, function, dim=dim, reverse=reverse), loop(x, expected, dim, reverse)
    torch.testing.assert_close(y, z)
    found, other = (
        torch.autograd.grad((each * weights).sum(), x, create_graph=function is not larger) for each in (y, z)
    )
    torch.testing.assert_close(found, other)

    def scanned(x):
        return ct.scan(x, function, dim=dim, reverse=reverse)

    assert torch.autograd.gradcheck(scanned, x, check_forward_ad=True)
    if function is not larger:
        assert torch.autograd.gradgradcheck(scanned, x, check_fwd_over_rev=True)
    found = torch.func.vmap(scanned, in_dims=1)(x.detach()[:, None].expand(3, 2, 5))
    torch.testing.assert_close(found, torch.stack([z.detach()] * 2))


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0, 3), (1, 1), (4, 1, 3)])
def test_shapes(shape):
    x = drawn(*shape)
    for dim in range(len(shape)):
        y = ct.scan(x, operator.add, dim=dim)
        torch.testing.assert_close(y, torch.cumsum(x, dim))
        weights = drawn(*shape, seed=1, grad=False)
        found, other = (torch.autograd.grad((each * weights).sum(), x) for each in (y, torch.cumsum(x, dim)))
        torch.testing.assert_close(found, other)


def test_two_bytes_and_integers():
    x = drawn(300, grad=False).half().requires_grad_()
    y = ct.scan(x, operator.add, dim=0)
    torch.testing.assert_close(y, torch.cumsum(x.float(), 0).half())
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.arange(300, 0, -1).half())
    integers = torch.arange(6).reshape(2, 3)
    assert torch.equal(
        ct.scan(integers, operator.add, dim=-1, reverse=True), integers.flip(1).cumsum(1).flip(1)
    )


def test_opcheck_and_compiled():
    x = drawn(2, 4)
    torch.library.opcheck(user_functions.operator_of("scan", logaddexp), (x, 1, False))

    def function(x):
        return ct.scan(x.sin(), logaddexp, dim=1).cos()

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (4, 5):
        x = drawn(2, length)
        expected = function(x)
        torch.testing.assert_close(compiled(x), expected)
        found, other = (torch.autograd.grad(each.sum(), x) for each in (compiled(x), expected))
        torch.testing.assert_close(found, other)


def clipped(a):
    return math.pow(max(a, 0.25), 1.5)


def test_exported(tmp_path):
    """Functions are Python's, though export replaces `max` and `math.pow` as it traces."""

    class Layer(torch.nn.Module):
        def forward(self, x):
            return ct.transform(clipped, ct.scan(x, max, dim=1)) + ct.reduce(x, min, dim=1)[:, None]

    x = drawn(2, 4).detach()
    torch.export.save(torch.export.export(Layer(), (x,)), tmp_path / "layer.pt2")
    found = torch.export.load(tmp_path / "layer.pt2").module()(x)
    expected = torch.cummax(x, 1).values.clamp_min(0.25).pow(1.5) + x.amin(1, keepdim=True)
    torch.testing.assert_close(found, expected)


SCALE = 2.0
config = types.ModuleType("config")


def scaled(b):
    return b * SCALE * config.rate


def decayed(a, b):
    return a * scaled(1.0) + b


def test_functions_that_compiled_code_makes(monkeypatch):
    """Globals that they read, and functions that they call, are guarded, if these are a module's."""

    def function(x):
        return ct.transform(lambda a: scaled(a) + SCALE, x)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    x = drawn(4, grad=False)
    for scale, rate in ((2.0, 1.0), (3.0, 1.0), (3.0, 0.5)):
        monkeypatch.setitem(globals(), "SCALE", scale)
        monkeypatch.setattr(config, "rate", rate, raising=False)
        torch.testing.assert_close(compiled(x), x * scale * rate + scale)
    monkeypatch.setitem(globals(), "scaled", lambda a: -a)
    torch.testing.assert_close(compiled(x), 3.0 - x)
    names = {"ct": ct, "SCALE": 2.0}
    exec("def function(x):\n    return ct.transform(lambda a: a * SCALE, x)", names)
    with pytest.raises(Exception, match="fn: .*<lambda> is made within compiled code") as caught:
        torch.compile(names["function"], fullgraph=True, backend="eager")(x)
    assert len(str(caught.value).splitlines()) <= 20


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_leaves_no_operator_that_is_registered_in_part(monkeypatch):
    """At each place where the main thread can be interrupted, as another operator is registered."""
    numbers = itertools.count()
    x = torch.empty(0, requires_grad=True)  # for which nothing is built

    def scanned():
        return ct.scan(x, operator.add, dim=0)

    def another():
        digest = f"interrupted{next(numbers)}"
        monkeypatch.setattr(user_functions, "digest_of", lambda fn, name: digest)

    def check():
        assert torch.autograd.grad(scanned().sum(), x)[0].shape == (0,)
        assert torch.func.vmap(lambda x: ct.scan(x, operator.add, dim=0))(torch.empty(2, 0)).shape == (2, 0)
        another()

    another()
    check()
    gc.collect()  # what other tests have left: one in a destructor of theirs is lost
    gc.disable()
    try:
        for within in ("_torch", "_jobs", "threading.py", "library.py"):
            check()
            assert each_interrupt(scanned, check, within) >= (within in ("_torch", "_jobs"))
    finally:
        gc.enable()


def test_what_a_function_reads_is_what_it_is_now(monkeypatch):
    """A global that is bound again is another function, and compiled again, too."""
    compiled = torch.compile(lambda x: ct.scan(x, decayed, dim=0), fullgraph=True, backend="aot_eager")
    x = drawn(4)
    for scale, rate in ((2.0, 1.0), (3.0, 1.0), (3.0, 0.5)):
        monkeypatch.setitem(globals(), "SCALE", scale)
        monkeypatch.setattr(config, "rate", rate, raising=False)
        expected = loop(x, lambda a, b, s=scale * rate: a * s + b, 0)
        for found in (ct.scan(x, decayed, dim=0), compiled(x)):
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(
                torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x, retain_graph=True)
            )


def test_pairs_of_a_recurrence():
    a, b = drawn(2, 4), drawn(2, 4, seed=1)
    for function in (
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]),
        lambda a, b: (b[0] * a[0], b[1] + a[1] * b[0]),
    ):
        products, h = ct.scan((a, b), function, dim=1)
        torch.testing.assert_close(products, torch.cumprod(a, 1))
        torch.testing.assert_close(h, ct.linear_recurrence(a, b))
        found = torch.autograd.grad((products * b).sum(), a)
        torch.testing.assert_close(found, torch.autograd.grad((torch.cumprod(a, 1) * b).sum(), a))
    for wrong, number in (((a, b, a), 3), ((a, b), 2)):
        with pytest.raises(TypeError, match=f"got a tuple of {number}: cupar.arrays.scan takes any, without"):
            ct.scan(wrong, lambda a, b: (a[0] + b[0], a[1] + b[1]), dim=1)


def remainder(a, b):
    return (a + b) % 7


def test_derivatives_that_are_given():
    """What cannot be traced is scanned, and asks for its derivative."""
    x = drawn(5)
    with pytest.raises(TypeError, match=r"fn: it makes a Python number .* pass derivative=, a function"):
        ct.scan(x, remainder, dim=0)
    y = ct.scan(x.detach(), remainder, dim=0)
    torch.testing.assert_close(y, torch.cumsum(x.detach(), 0) % 7)
    found = ct.scan(x, remainder, dim=0, derivative=lambda a, b: (1.0, 1.0))
    found.sum().backward()
    torch.testing.assert_close(x.grad, torch.arange(5.0, 0, -1, dtype=F64))
    opaque = ct.scan(x, remainder, dim=0, derivative=lambda a, b: (math.floor(1.5 + a * 0), 1.0))
    (grad,) = torch.autograd.grad(opaque.sum(), x, retain_graph=True)
    torch.testing.assert_close(grad, x.grad)
    with pytest.raises(RuntimeError, match="derivative: its own derivative is asked for"):
        torch.autograd.grad(opaque.sum(), x, create_graph=True)
    with pytest.raises(TypeError, match="derivative: expected a function that returns 2 partial"):
        ct.scan(x, remainder, dim=0, derivative=lambda a, b: 1.0)


def branches(a, b):
    if a > 0 and b > 0:
        return a * b + np.tanh(a)
    return -b / (1 + a**2) if a < b else np.where(a > -1, a, b**3)


@pytest.mark.parametrize(
    "function",
    [
        branches,
        logaddexp,
        lambda a, b: abs(a) * math.sqrt(2 + math.sin(b)) - 3.0 * b,
        lambda a, b: max(a, b, 0.5) ** b - math.expm1(math.cos(a)) * math.log(2 + b * b),
        np.maximum,
        operator.truediv,
    ],
)
def test_traced_derivatives(function):
    """They are differences of the function, wherever that branches."""
    left, right = (tracing.TracedNumber(("argument", each)) for each in "lr")
    value = tracing.trace(function, left, right)
    traced = [value, *(tracing.derivative(value, each) for each in "lr")]
    names = {name: getattr(math, name) for name in tracing.DERIVATIVES}
    made = tracing.function_of(traced, "lr", names, "({x} if {c} else {y})")
    step = 1e-6
    for a, b in np.random.default_rng(0).uniform(-2, 2, (50, 2)):
        found, of_left, of_right = made(a, b)
        assert found == pytest.approx(function(a, b))
        assert of_left == pytest.approx(
            (function(a + step, b) - function(a - step, b)) / step / 2, rel=1e-4, abs=1e-6
        )
        assert of_right == pytest.approx(
            (function(a, b + step) - function(a, b - step)) / step / 2, rel=1e-4, abs=1e-6
        )


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda a, b: float(a), "makes a Python number"),
        (np.arctan2, "calls np.arctan2"),
        (lambda a, b: a + "x", "takes a str for a number"),
        (lambda a, b: math.gamma(a), "makes a Python number"),
        (lambda a, b: sum(i for i in range(99) if a > i), "more than 64 paths"),
    ],
)
def test_what_cannot_be_traced(function, said):
    with pytest.raises(tracing.UntraceableError, match=said):
        tracing.trace(function, *(tracing.TracedNumber(("argument", each)) for each in "lr"))


def test_errors():
    with pytest.raises(TypeError, match="x: expected a tensor, got list"):
        ct.scan([1.0], operator.add, dim=0)
    with pytest.raises(TypeError, match="dim: expected an integer, got str"):
        ct.scan(torch.ones(3), larger, dim="t")
    with pytest.raises(TypeError, match="fn: expected a function, .* got 'max'"):
        ct.scan(torch.ones(3), "max", dim=0)
    with pytest.raises(TypeError, match="^fn: expected a Python function, got torch.maximum"):
        ct.scan(torch.ones(3), torch.maximum, dim=0)
    with pytest.raises(IndexError, match="dim: expected from -1 to 0"):
        ct.scan(drawn(3), operator.add, dim=1)
    with pytest.raises(TypeError, match="fn: operator .* takes 3 positional arguments, this algorithm gives"):
        ct.scan(torch.ones(3), lambda a, b, c: a, dim=0)
    with pytest.raises(
        TypeError, match="fn: expected a function that returns a number, got one that returns"
    ):
        ct.scan(torch.ones(3), lambda a, b: (a, b), dim=0)
    x = torch.ones(3)
    with pytest.raises(TypeError, match="fn: expected a function of numbers alone, got one that reads"):
        ct.scan(x, lambda a, b: a + b * x[0], dim=0)
    with pytest.raises(TypeError, match="derivative: expected a function, an OpKind or a ufunc, got 1"):
        ct.scan(x, operator.add, dim=0, derivative=1)


WEIGHTS = (2.0, 1.0)
SHIFT = np.float32(1.0)


def weighted(c):
    def function(a, b, d=1.0):
        return a * c + scaled(b) * WEIGHTS[0] * d

    def change(value):
        nonlocal c
        c = value

    return function, change


def test_whatever_a_compiled_function_reads_is_guarded(monkeypatch):
    monkeypatch.setattr(config, "rate", 1.0, raising=False)
    function, change = weighted(1.0)
    compiled = torch.compile(lambda x: ct.scan(x, function, dim=0), fullgraph=True, backend="eager")
    x = drawn(4, grad=False)
    compiled(x)
    for changed in (
        lambda: monkeypatch.setitem(globals(), "WEIGHTS", (3.0, 1.0)),
        lambda: monkeypatch.setitem(globals(), "scaled", lambda x: x * 5.0),
        lambda: change(2.0),
        lambda: setattr(function, "__defaults__", (4.0,)),
    ):
        changed()
        torch.testing.assert_close(compiled(x), ct.scan(x, function, dim=0))
    if not torch.__version__.startswith("2.9."):  # which takes no functions that are made there
        scale = 3.0
        made_there = torch.compile(
            lambda x: ct.scan(x, lambda a, b, c=2.0: a + b * c * scale, dim=0),
            **{"fullgraph": True, "backend": "eager"},
        )
        torch.testing.assert_close(made_there(x)[1], x[0] + x[1] * 6)

    def shifted(a, b):
        return a + b * SHIFT

    refused = torch.compile(lambda x: ct.scan(x, shifted, dim=0), backend="eager")
    with pytest.raises(Exception, match="fn: it reads SHIFT, a float32, which torch.compile has no guard"):
        refused(x)


def test_a_derivative_that_changes_is_not_taken_for_the_one_before(monkeypatch):
    def slopes(a, b):
        return math.floor(SCALE + a * 0), 1.0

    x = drawn(3)
    y = ct.scan(x, remainder, dim=0, derivative=slopes)
    monkeypatch.setitem(globals(), "SCALE", SCALE + 2)
    with pytest.raises(RuntimeError, match="derivative: what it reads has changed since"):
        y.sum().backward()


def test_no_dimensions_and_infinite_products():
    x = torch.tensor(3.0, dtype=F64, requires_grad=True)
    y = ct.scan(x, operator.add, dim=-1)
    assert y.shape == () and torch.autograd.grad(y, x)[0] == 1
    a, b = torch.tensor([2.0, math.inf, 3.0], dtype=F64), torch.ones(3, dtype=F64)
    products, _ = ct.scan((a, b), lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), dim=0)
    assert products.tolist() == [2, math.inf, math.inf]
    with pytest.raises(ValueError, match=r"x: expected tensors of one shape, got \(3,\) and \(1, 3\)"):
        ct.scan((a, b[None]), lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), dim=0)
