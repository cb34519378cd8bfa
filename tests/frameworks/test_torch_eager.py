"""Eager calls of `cupar.torch`: those without the dispatcher are what the dispatcher makes of them."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.profiler import profile  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import cupar  # noqa: E402
from cupar import torch as ct  # noqa: E402
from cupar._program import known as programs  # noqa: E402
from cupar._torch import of_arrays, registration  # noqa: E402

X = torch.tensor([[3.0, -1.0, 4.0, 1.5], [-5.0, 9.0, 2.0, 6.0], [0.5, 3.5, -8.0, 7.0]])
IDS = torch.tensor([2, 0, 2])


class Subclass(torch.Tensor):
    pass


def twice(a):
    return 2 * a


def added(a, b):
    return a + b


@pytest.fixture
def dispatched(monkeypatch):
    """The names of operators that the dispatcher is asked for."""
    found = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found.append(func.name())
            return func(*args, **(kwargs or {}))

    def called(call):
        found.clear()
        with Mode():
            call()
        return [each for each in found if each.startswith("cupar::")]

    return called


def everywhere(call, monkeypatch):
    """Make a call as it is, and by the dispatcher; return what each does."""
    results = []
    for is_eager in (registration.is_eager, lambda: False):
        monkeypatch.setattr(of_arrays, "is_eager", is_eager)
        monkeypatch.setattr(registration, "is_eager", is_eager)
        try:
            results.append(call())
        except Exception as error:
            results.append((type(error), str(error)))
    return results


@pytest.mark.parametrize(
    "call",
    [
        lambda: ct.sum(X, 3),
        lambda: ct.sum(X, dim=-1),
        lambda: ct.sum(X, dim=True),
        lambda: ct.sum(X, dim=[0, 1]),
        lambda: ct.sum(X, keepdims=1),
        lambda: ct.sum(X, dtype=float),
        lambda: ct.sum(X, dtype=torch.float64),
        lambda: ct.sum(X, 0, False, torch.float64, X > 0),
        lambda: ct.sum(X, 0, False, torch.float64, X > 0, 1),
        ct.sum,
        lambda: ct.sum(x=X),
        lambda: ct.sum(X, where=X[0] > 0),
        lambda: ct.sum(X, where=[True]),
        lambda: ct.sum(torch.tensor(3.0), dim=0),
        lambda: ct.sum(torch.empty(0)),
        lambda: ct.max(torch.empty(0)),
        lambda: ct.sum(torch.quantize_per_tensor(X, 0.5, 0, torch.qint8)),
        lambda: ct.sum(torch.complex(X, X).conj()),
        lambda: ct.sum(torch.complex(X, X).conj().imag),
        lambda: ct.sum(X.to_sparse()),
        lambda: ct.sum(X.t()),
        lambda: ct.top_k(X, 2.0),
        lambda: ct.top_k(X, 9),
        lambda: ct.top_k(X, 2, largest=False),
        lambda: ct.quantile(X, 0.25),
        lambda: ct.quantile(X, 1),
        lambda: ct.quantile(X, [0.5, 2.0]),
        lambda: ct.quantile(X, torch.tensor(0.5)),
        lambda: ct.repeat(X, 2, dim=1),
        lambda: ct.repeat(X, -1, dim=1),
        lambda: ct.repeat(X[0], torch.tensor([1, 0, 2, 1])),
        lambda: ct.nonzero(X),
        lambda: ct.histogram(X, bins=4, range=[-8.0, 8.0]),
        lambda: ct.histogram(X, bins=4, range=(-8, 8)),
        lambda: ct.reduce(X, added, init=2),
        lambda: ct.reduce(X, added, init=torch.tensor(2.5)),
        lambda: ct.reduce(X, added, dim=0, dtype=torch.float64),
        lambda: ct.reduce(X, X),
        lambda: ct.copy_if(X, lambda a: X[0, 0]),
        lambda: ct.copy_if(X, "x"),
        lambda: ct.segment_reduce(X, IDS, added, 3),
        lambda: ct.segment_reduce(X, IDS, added, -3),
        lambda: ct.sort(X, less=lambda a, b: a > b),
        lambda: ct.unique_counts(IDS),
        lambda: ct.searchsorted(X[0].sort()[0], X, side="up"),
        lambda: ct.diff(X, prepend=X[:, :1]),
        lambda: ct.diff(X, dim=None),
        lambda: ct.scan(X, added, dim=-1, reverse=True),
        lambda: ct.transform(twice, X, dtype=torch.float64),
        lambda: ct.transform(added, X, X[0]),
        lambda: ct.transform(lambda a: a + X[0], X),
    ],
)
def test_results_and_errors_are_those_of_the_dispatcher(call, monkeypatch):
    one, other = everywhere(call, monkeypatch)
    assert type(one) is type(other)
    if not isinstance(one, tuple):
        one, other = (one,), (other,)
    for a, b in zip(one, other, strict=True):
        if isinstance(a, torch.Tensor):
            assert torch.equal(a, b) and a.dtype is b.dtype and a.stride() == b.stride()
        else:
            assert a == b


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ct.sum(x, dim=1),
        ct.max,
        lambda x: ct.sort(x, descending=True),
        lambda x: ct.top_k(x, 2).values,
        lambda x: ct.cumulative_sum(x, dim=0),
        lambda x: ct.sum(x, where=X > 0),
        lambda x: ct.scan(x, added, dim=1),
        lambda x: ct.transform(lambda a: a * a, x),
        lambda x: ct.linear_recurrence(x, x),
    ],
)
def test_gradients_are_those_of_the_dispatcher(call, monkeypatch):
    def graded():
        x = X.clone().requires_grad_()
        found = call(x)
        (slope,) = torch.autograd.grad((found * found).sum(), x, create_graph=True)
        return found, slope, *torch.autograd.grad(slope.sum(), x, allow_unused=True)

    one, other = everywhere(graded, monkeypatch)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)
        assert a.requires_grad == b.requires_grad


@pytest.mark.parametrize(
    ("called", "call"),
    [
        ("sum", lambda: ct.sum(X)),
        ("max", lambda: ct.max(X, dim=0)),
        ("unique_values", lambda: ct.unique_values(IDS)),
        ("linear_recurrence", lambda: ct.linear_recurrence(X, X)),
    ],
)
def test_modes_see_the_operator(called, call, dispatched):
    for _ in range(3):
        call()  # also when programs make such calls
    assert dispatched(call) == [f"cupar::{called}"]
    with profile() as profiled:
        call()
    assert f"cupar::{called}" in {each.name for each in profiled.events()}
    with torch.device("cpu"):
        call()

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    seen = []
    with Mode():
        call()
    assert seen


def test_subclasses_are_handed_to_the_dispatcher():
    x = X.as_subclass(Subclass)
    for _ in range(3):
        assert type(ct.sum(x)) is Subclass
    assert type(ct.sum(torch.nn.Parameter(X))) is torch.Tensor


def test_transforms_are_handed_to_the_dispatcher():
    for _ in range(3):
        assert torch.equal(torch.vmap(ct.sum)(X), ct.sum(X, dim=1))
        _, tangent = torch.func.jvp(ct.sum, (X,), (torch.ones_like(X),))
        assert tangent == 12
        assert torch.equal(torch.func.grad(ct.sum)(X), torch.ones_like(X))


def test_without_gradients_those_that_require_one_are_as_others():
    x = X.clone().requires_grad_()
    for grad in (torch.no_grad, torch.inference_mode):
        with grad():
            found = [ct.sum(x), ct.scan(x, added, dim=0), ct.transform(twice, x)]
            assert not any(each.requires_grad for each in found)
            y = torch.ones(3)
            assert ct.sum(y) == 3
    assert torch.equal(found[2], 2 * X)


def test_what_an_operator_reads_is_asked_at_each_call():
    factor = 2.0

    def scaled(a):
        return a * factor

    for factor in (2.0, 3.0, 2.0, 5.0):
        assert torch.equal(ct.transform(scaled, X), X * factor)
        assert torch.equal(ct.copy_if(X, lambda a: a > factor), X[factor < X])


def recurrence(a, b):
    rows = [b[..., 0]]
    for i in range(1, b.shape[-1]):
        rows.append(a[..., i] * rows[-1] + b[..., i])
    return torch.stack(rows, -1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [(), (3,)])
def test_recurrences_and_their_gradients_are_programs_of_any_size(dtype, reverse, rows):
    programs._KNOWN.clear()
    for size in (5, 7, 6, 8, 1, 9):
        a, b = (torch.randn(*rows, size, dtype=dtype).requires_grad_() for _ in range(2))
        h = ct.linear_recurrence(a, b, reverse=reverse)
        expected = recurrence(a.flip(-1), b.flip(-1)).flip(-1) if reverse else recurrence(a, b)
        torch.testing.assert_close(h, expected)
        slopes = [torch.autograd.grad(each, (a, b), h.detach(), allow_unused=True) for each in (h, expected)]
        for one, other in zip(*slopes, strict=True):
            torch.testing.assert_close(one, torch.zeros_like(one) if other is None else other)
        conjugate = a.detach().conj()
        torch.testing.assert_close(
            ct.linear_recurrence(conjugate, b.detach()), recurrence(conjugate, b.detach())
        )
    made = [entry.programs for entry in programs._KNOWN.all().values()]
    assert made and 0 < max(map(len, made)) <= 2


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_are_programs_of_any_size(reverse):
    programs._KNOWN.clear()
    for size in (5, 7, 6, 8, 1, 0, 9):
        x = torch.randn(2, size, dtype=torch.float64)
        expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
        torch.testing.assert_close(ct.scan(x, added, dim=1, reverse=reverse), expected)
    made = [entry.programs for entry in programs._KNOWN.all().values()]
    assert made and 0 < max(map(len, made)) <= 2


def test_a_cache_that_is_cleared_in_the_middle():
    for _ in range(2):
        ct.sum(X)
        cupar.cache.clear(disk=False)
        assert torch.equal(ct.sum(X, dim=0), X.sum(0))
