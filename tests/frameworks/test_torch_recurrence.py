"""Linear recurrences in PyTorch: against plain loops, and their gradients against differences."""

import os
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from cupar import torch as ct  # noqa: E402

OP = torch.ops.cupar.linear_recurrence.default
F64, C128 = torch.float64, torch.complex128


def loop(a, b, initial=None, dim=-1, reverse=False):
    h, found = (torch.zeros_like(b.select(dim, 0)) if initial is None else initial), []
    steps = range(b.shape[dim])
    for t in reversed(steps) if reverse else steps:
        h = a.select(dim, t) * h + b.select(dim, t)
        found.append(h)
    return torch.stack(found[::-1] if reverse else found, dim)


def drawn(*shape, dtype=F64, grad=False, seed=0):
    made = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    return (made * 0.7).requires_grad_(grad)


@st.composite
def problems(draw):
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 7, 33]), min_size=1, max_size=4))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    order = draw(st.permutations(range(len(shape))))
    # Each of these is a build; columns and reversed rows with initial values are among the gradients below.
    reverse = draw(st.booleans())
    has_initial = dim % len(shape) == len(shape) - 1 and not reverse
    initial = draw(st.sampled_from([None, "number", "rows"])) if has_initial else None
    return shape, dim, order, draw(st.sampled_from([1, 2])), reverse, initial


@settings(max_examples=25, deadline=None)
@given(problems())
def test_as_a_loop_does(problem):
    shape, dim, order, step, reverse, kind = problem

    def strided(seed):
        made = drawn(*[shape[i] * step for i in order], seed=seed)
        found = made.permute([order.index(i) for i in range(len(shape))])
        return found[tuple(slice(None, None, step) for _ in shape)]

    a, b = strided(1).requires_grad_(), strided(2).requires_grad_()
    assert list(a.shape) == shape
    rows = [n for i, n in enumerate(shape) if i != dim % len(shape)]
    initial = {None: None, "number": 0.25, "rows": drawn(*rows, seed=3)}[kind]
    h = ct.linear_recurrence(a, b, dim=dim, initial=initial, reverse=reverse)
    assert h.shape == b.shape and h.is_contiguous()
    if not b.numel():
        torch.autograd.grad(h.sum(), (a, b))
        return
    first = torch.full(rows, 0.25, dtype=F64) if kind == "number" else initial
    expected = loop(a, b, first, dim, reverse)
    torch.testing.assert_close(h, expected)
    weights = drawn(*shape, seed=4)
    for one, other in zip(
        torch.autograd.grad((h * weights).sum(), (a, b)),
        torch.autograd.grad((expected * weights).sum(), (a, b)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("dim", "reverse", "has_initial", "dtype"),
    [(1, True, True, F64), (0, True, True, F64), (1, True, False, F64), (1, False, True, C128)],
)
def test_gradients(dim, reverse, has_initial, dtype):
    """Backwards and forwards, of gradients, and batched."""
    given = [drawn(2, 3, dtype=dtype, grad=True, seed=i) for i in range(2)]
    if has_initial:
        given.append(drawn(2 if dim else 3, dtype=dtype, grad=True, seed=3))

    def function(a, b, initial=None):
        return ct.linear_recurrence(a, b, dim=dim, initial=initial, reverse=reverse)

    assert torch.autograd.gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(function, given, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_some_gradients():
    a, b, initial = drawn(4), drawn(4), drawn(grad=True)
    h = ct.linear_recurrence(a, b, initial=initial)
    (found,) = torch.autograd.grad(h[2], initial)
    torch.testing.assert_close(found, a[0] * a[1] * a[2])
    b.requires_grad_()
    (found,) = torch.autograd.grad(ct.linear_recurrence(a, b)[1], b)
    torch.testing.assert_close(
        found, torch.stack([a[1], torch.ones((), dtype=F64), *torch.zeros(2, dtype=F64)])
    )


def test_transforms():
    """Transforms of functions, within each other, are those of a loop."""
    forward, reverse = torch.func.jacfwd, torch.func.jacrev
    a, b, initial = drawn(2, 3, seed=1), drawn(2, 3, seed=2), drawn(2, seed=3)
    for outer in (forward, reverse):
        for inner in (forward, reverse):
            found, expected = (
                outer(inner(lambda a, f=f: f(a, b, initial).square().sum()))(a)
                for f in (
                    lambda a, b, i: ct.linear_recurrence(a, b, initial=i),
                    loop,
                )
            )
            torch.testing.assert_close(found, expected)

    def of_one(f):
        return torch.func.grad(lambda a, b, i: f(a, b, i).square().sum(), argnums=(0, 1, 2))

    dims = (1, None, 0)  # of each, where `vmap` finds the batch
    found, expected = (
        torch.func.vmap(of_one(f), in_dims=dims)(drawn(4, 3, 5), drawn(4, 5), drawn(3, 4))
        for f in (
            lambda a, b, i: ct.linear_recurrence(a, b, dim=1, initial=i),
            lambda a, b, i: loop(a, b, i, 1),
        )
    )
    torch.testing.assert_close(found, expected)

    def tangent(a, b):
        return torch.func.jvp(lambda a: ct.linear_recurrence(a, b), (a,), (b,))[1]

    given = drawn(2, 3), drawn(2, 3)
    compiled = torch.compile(tangent, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), tangent(*given))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_two_bytes(dtype):
    """What is between is a float32, also under autocast; gradients have the dtypes of inputs."""
    if dtype is torch.bfloat16:
        pytest.importorskip("ml_dtypes")
    a, b = (drawn(300, dtype=torch.float32, seed=i).to(dtype).requires_grad_() for i in range(2))
    with torch.autocast("cpu", dtype=dtype):
        h = ct.linear_recurrence(a, b)
    assert h.dtype == dtype
    torch.testing.assert_close(h, loop(a.float(), b.float()).to(dtype))
    h.sum().backward()
    assert a.grad.dtype == b.grad.dtype == dtype
    wide = ct.linear_recurrence(a, b.float())
    assert wide.dtype == torch.float32


def test_lazy_tensors():
    """What PyTorch has put off is done first: conjugates, negatives, zeros, views."""
    x = drawn(2, 5, dtype=C128)
    for each in (x.conj(), x.conj().imag, torch.zeros(2, 5, dtype=F64).expand(2, 5), x.real.T):
        torch.testing.assert_close(ct.linear_recurrence(each, each), loop(each, each.resolve_conj()))
    with torch.inference_mode():
        h = ct.linear_recurrence(x, x)
    assert h.is_inference() and torch.equal(h, ct.linear_recurrence(x, x))


@pytest.mark.parametrize("has_initial", [False, True])
def test_opcheck(has_initial):
    a, b = drawn(3, 4, grad=True), drawn(3, 4, grad=True, seed=1)
    initial = drawn(3, grad=True) if has_initial else None
    torch.library.opcheck(OP, (a, b, initial, 1, not has_initial))
    backward = torch.ops.cupar.linear_recurrence_backward.default
    torch.library.opcheck(backward, (a, b, initial, b, 1, not has_initial))


def test_compiled():
    """One graph, which is that of other lengths, too."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    def function(a, b, initial):
        return ct.linear_recurrence(torch.sigmoid(a), b * 2, dim=1, initial=initial, reverse=True).sin()

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=backend)
    trained = torch.compile(function, fullgraph=True, backend="aot_eager")
    for length in (3, 5, 6):
        given = [drawn(2, length, grad=True), drawn(2, length, grad=True, seed=1), drawn(2, seed=2)]
        expected = function(*given)
        torch.testing.assert_close(compiled(*given), expected)
        found = torch.autograd.grad(trained(*given).sum(), given[:2])
        torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), given[:2]))
    assert len(graphs) == 1
    targets = {node.target for node in graphs[0].graph.nodes}
    assert ct.linear_recurrence in targets  # as a whole: nothing that it reads is guarded


def test_exported():
    class Layer(torch.nn.Module):
        def forward(self, a, b):
            return ct.linear_recurrence(a, b, dim=0)

    length = torch.export.Dim("length", min=2)
    made = torch.export.export(Layer(), (drawn(4, 2), drawn(4, 2)), dynamic_shapes=({0: length}, {0: length}))
    a, b = drawn(9, 2), drawn(9, 2, seed=1)
    torch.testing.assert_close(made.module()(a, b), loop(a, b, dim=0))

    class Decay(torch.nn.Module):
        """Of a parameter that is broadcast, which has one dimension less."""

        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(drawn(3))

        def forward(self, b, initial):
            return ct.linear_recurrence(self.a, b, initial=initial)

    made = torch.export.export(Decay(), (drawn(4, 2, 3), drawn(2)), dynamic_shapes=({0: length}, None))
    b, initial = drawn(3, 2, 3), drawn(2, seed=1)
    a = dict(made.named_parameters())["a"]
    torch.testing.assert_close(made.module()(b, initial), loop(a.expand(3, 2, 3), b, initial.expand(3, 2)))


def test_no_dimensions():
    """As PyTorch's own have it: a row of one item."""
    a, b = drawn(grad=True), drawn(seed=1)
    assert ct.linear_recurrence(a, b) == b and ct.linear_recurrence(a.detach(), b, dim=0) == b
    h = ct.linear_recurrence(a, b, initial=2.0)
    assert h.shape == () and h == a * 2 + b and torch.autograd.grad(h, a)[0] == 2


def test_errors():
    a = drawn(2, 3)
    with pytest.raises(TypeError, match="a: expected a tensor, got list"):
        ct.linear_recurrence([1.0], a)
    with pytest.raises(TypeError, match="b: expected a dense tensor, got one of layout torch.sparse_coo"):
        ct.linear_recurrence(a, a.to_sparse())
    with pytest.raises(IndexError, match="dim: expected from -2 to 1 for a 2-dimensional tensor, got 2"):
        ct.linear_recurrence(a, a, dim=2)
    with pytest.raises(IndexError, match="dim: expected from -1 to 0 for a 0-dimensional tensor, got 1"):
        ct.linear_recurrence(a[0, 0], a[0, 0], dim=1)
    with pytest.raises(TypeError, match="reverse: expected True or False, got 'no'"):
        ct.linear_recurrence(a, a, reverse="no")
    with pytest.raises(TypeError, match="reverse: expected True or False, got 'no'"):
        ct.scan(a, lambda a, b: a + b, dim=0, reverse="no")
    with pytest.raises(TypeError, match=r"b: expected numbers .* got torch.float8_e5m2"):
        ct.linear_recurrence(a.to(torch.float8_e5m2), a.to(torch.float8_e5m2))
    with pytest.raises(RuntimeError, match=r"initial: expected shape \(2,\), or one that broadcasts"):
        ct.linear_recurrence(a, a, initial=drawn(3))
    with pytest.raises(TypeError, match="initial: expected a tensor or a number, got str"):
        ct.linear_recurrence(a, a, initial="0")
    for wrong in (1j, torch.tensor(1j)):
        with pytest.raises(
            TypeError, match=r"initial: expected what torch.float64 holds, .* got torch.complex"
        ):
            ct.linear_recurrence(a, a, initial=wrong)
    with pytest.raises(TypeError, match=r"initial: expected what torch.int64 holds, .* got torch.float32"):
        ct.linear_recurrence(a.long(), a.long(), initial=0.5)
    with pytest.raises(TypeError, match="b: expected numbers, got torch.bool"):
        ct.linear_recurrence(a > 0, a > 0)
    elsewhere = torch.empty(2, 3, dtype=F64, device="meta")
    for wrong in ((a, elsewhere), (elsewhere, a)):
        with pytest.raises(RuntimeError, match="b: expected a tensor on .*, as `a` is, got one on "):
            ct.linear_recurrence(*wrong)
    with pytest.raises(RuntimeError, match="initial: expected a tensor on cpu, .* got one on meta"):
        ct.linear_recurrence(a, a, initial=elsewhere[:, 0])
    with pytest.raises(TypeError, match="dim: expected an integer, got NoneType"):
        ct.linear_recurrence(a, a, dim=None, initial=1.0)
    for wrong in (
        (a, a.float()),
        (a, a[:1]),
        (a, a, None, 2),
        (a, a, drawn(3)),
        (a, a.requires_grad_(), a[:, 0].float()),
    ):
        with pytest.raises(RuntimeError, match="expected (the shape and dtype|one item)"):
            OP(*wrong)
    with pytest.raises(RuntimeError, match="h: expected the shape and dtype of `grad`"):
        torch.ops.cupar.linear_recurrence_backward(a.detach(), a[:1].detach(), None, a.detach(), 1, False)
    h = ct.linear_recurrence(a.requires_grad_(), a)
    h.mul_(2)
    with pytest.raises(RuntimeError, match="inplace"):
        h.sum().backward()


def test_threads():
    given = [(drawn(3, 50 + i, grad=True, seed=i), drawn(3, 50 + i, seed=i + 9)) for i in range(4)]
    found = [None] * 4

    def work(i):
        for _ in range(10):
            h = ct.linear_recurrence(*given[i])
            found[i] = h, *torch.autograd.grad(h.sum(), given[i][0])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for (a, b), (h, grad) in zip(given, found, strict=True):
        expected = loop(a, b)
        torch.testing.assert_close(h, expected)
        torch.testing.assert_close(grad, *torch.autograd.grad(expected.sum(), a))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_fork():
    a, b = drawn(40), drawn(40, seed=1)
    expected = ct.linear_recurrence(a, b)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(ct.linear_recurrence(a, b), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
