"""Operators of PyTorch on a GPU: the current stream, graphs, compiled functions, memory, several devices."""

import gc
import math

import pytest

torch = pytest.importorskip("torch")

import cupar  # noqa: E402
from cupar import torch as ct  # noqa: E402
from cupar._device import storage  # noqa: E402

ON = {"device": "cuda", "dtype": torch.float64}


def loop(a, b, initial=None, dim=-1, reverse=False):
    h, found = (torch.zeros_like(b.select(dim, 0)) if initial is None else initial), []
    steps = range(b.shape[dim])
    for t in reversed(steps) if reverse else steps:
        h = a.select(dim, t) * h + b.select(dim, t)
        found.append(h)
    return torch.stack(found[::-1] if reverse else found, dim)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
@pytest.mark.parametrize(
    ("shape", "dim"), [((70_000,), 0), ((37, 513), 1), ((300, 129), 0), ((3, 50, 65), 1)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences(shape, dim, reverse, dtype):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    a, b = (torch.randn(shape, device="cuda").to(dtype) * 0.5 for _ in range(2))
    a, b = a.requires_grad_(), b.requires_grad_()
    rows = [n for i, n in enumerate(shape) if i != dim]
    for initial in (None, torch.randn(rows, device="cuda").to(dtype)):
        h = ct.linear_recurrence(a, b, dim=dim, initial=initial, reverse=reverse)
        reference = [each.detach().to(wide).requires_grad_() for each in (a, b)]
        first = None if initial is None else initial.to(wide)
        n = min(shape[dim], 2000)  # a loop takes its time
        cut = (slice(None),) * dim + (slice(-n, None) if reverse else slice(n),)
        expected = loop(reference[0][cut], reference[1][cut], first, dim, reverse)
        close = {"rtol": 5e-2, "atol": 5e-2} if dtype.itemsize == 2 else {"rtol": 1e-3, "atol": 1e-3}
        torch.testing.assert_close(h[cut].to(wide), expected, **close)
        if n == shape[dim]:
            weights = torch.randn(shape, device="cuda").to(dtype)
            found = torch.autograd.grad(h, (a, b), weights)
            right = torch.autograd.grad(expected, reference, weights.to(wide))
            for one, other in zip(found, right, strict=True):
                torch.testing.assert_close(one.to(wide), other, **close)


def test_tensors_elsewhere():
    a = torch.rand(64, **ON)
    for wrong in ((a, a.cpu()), (a.cpu(), a)):
        with pytest.raises(RuntimeError, match="b: expected a tensor on .*, as `a` is, got one on "):
            ct.linear_recurrence(*wrong)
    with pytest.raises(RuntimeError, match="initial: expected a tensor on cuda:0, .* got one on cpu"):
        ct.linear_recurrence(a, a, initial=torch.zeros((), dtype=a.dtype))


def test_current_stream():
    a, b = (torch.rand(64, 4096, **ON) for _ in range(2))
    expected = ct.linear_recurrence(a * 2, b)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        h = ct.linear_recurrence(a * 2, b)
    assert not side.query()
    side.synchronize()
    assert torch.equal(h, expected)


def test_captured():
    a, b = (torch.rand(8, 128, **ON, requires_grad=True) for _ in range(2))
    for _ in range(2):  # builds
        torch.autograd.grad(ct.linear_recurrence(a, b, dim=0).sum(), (a, b))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        h = ct.linear_recurrence(a, b, dim=0)
        grads = torch.autograd.grad(h.sum(), (a, b))
    for _ in range(2):
        with torch.no_grad():
            a.uniform_()
        graph.replay()
        expected = loop(a, b, dim=0)
        torch.testing.assert_close(h, expected)
        torch.testing.assert_close(grads, torch.autograd.grad(expected.sum(), (a, b)))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode):
    pytest.importorskip("triton")

    def function(a, b):
        h = ct.linear_recurrence(torch.sigmoid(a), b * 2, dim=0)
        return ct.scan(h, lambda x, y: x if x > y else y, dim=1).sin()

    compiled = torch.compile(function, fullgraph=True, mode=mode)
    for _ in range(4):
        a, b = (torch.randn(16, 32, **ON, requires_grad=True) for _ in range(2))
        expected, found = function(a, b), compiled(a, b)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), (a, b)), torch.autograd.grad(expected.sum(), (a, b))
        )


def test_memory():
    """Nothing of the arrays' size is there beside inputs, the output and gradients."""
    gc.collect()
    others = torch.cuda.memory_allocated()  # what other tests of this process keep
    a, b, weights = (torch.rand(64, 1 << 16, device="cuda", requires_grad=i < 2) for i in range(3))

    def both():
        return torch.autograd.grad(ct.linear_recurrence(a, b), (a, b), weights)

    both()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    both()
    needed = 6 * a.numel() * 4
    assert torch.cuda.max_memory_allocated() - others <= 1.1 * needed + (1 << 22)


def test_temporary_storage(monkeypatch):
    """It is of PyTorch's allocator, in a graph all of it; of cupar's pool a stream keeps very little."""
    x = torch.randn(1 << 20, device="cuda")

    def work():
        h = ct.linear_recurrence(x * 0.5, x)
        return [h, ct.scan(h, lambda a, b: a if a > b else b, dim=0), ct.sort(x), *ct.top_k(x, 9)]

    expected = work()
    cupar.release_memory()  # nor of what a stream has kept

    allocate, most = storage.allocate, storage.LARGEST_BESIDE

    def limited(nbytes, stream):
        assert nbytes <= most
        return allocate(nbytes, stream)

    monkeypatch.setattr(storage, "allocate", limited)
    found = work()
    most = 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = work()
    graph.replay()
    for each in (found, captured):
        torch.testing.assert_close(each, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("shape", "dim", "reverse", "has_initial", "dtype"),
    [
        ((5, 1000), 1, True, True, torch.float32),
        ((3, 2049, 4), 1, False, True, torch.bfloat16),
        ((70, 6), 0, True, False, torch.float64),
        ((300, 4096), 1, False, True, torch.float32),
        ((1, 1), 1, False, True, torch.float32),
    ],
)
def test_fused(shape, dim, reverse, has_initial, dtype):
    """Recurrences of short rows are scanned in kernels of the compiler's; they are those of cupar's."""
    pytest.importorskip("triton")
    rows = [n for i, n in enumerate(shape) if i != dim]
    given = [torch.rand(shape, device="cuda", dtype=dtype), torch.randn(shape, device="cuda", dtype=dtype)]
    given += [torch.randn(rows, device="cuda", dtype=dtype)] * has_initial
    given = [each.requires_grad_() for each in given]
    weights = torch.randn(shape, device="cuda", dtype=dtype)

    def function(a, b, initial=None):
        return ct.linear_recurrence(a * 0.9, b, dim=dim, initial=initial, reverse=reverse) * weights

    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, dynamic=False)
    close = {torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float64: 1e-11}[dtype]
    for one, other in zip(
        *((y, *torch.autograd.grad(y.sum(), given)) for y in (compiled(*given), function(*given))),
        strict=True,
    ):
        assert (one - other).abs().max() <= close * other.abs().max()


def test_gradcheck():
    def logaddexp(x, y):
        largest = max(x, y)
        return largest + math.log1p(math.exp(min(x, y) - largest))

    a, b = (torch.rand(2, 5, **ON, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(ct.linear_recurrence, (a, b), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(ct.linear_recurrence, (a, b))
    assert torch.autograd.gradcheck(lambda x: ct.scan(x, logaddexp, dim=1), a, check_forward_ad=True)
    torch.library.opcheck(torch.ops.cupar.linear_recurrence.default, (a, b, None, 1, True))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_several_devices():
    for current in (0, 1):
        with torch.cuda.device(current):
            for index in (1, 0):
                a, b = (torch.rand(5, 100, device=f"cuda:{index}", requires_grad=True) for _ in range(2))
                h = ct.linear_recurrence(a, b)
                assert h.device == a.device
                torch.testing.assert_close(h, loop(a, b))
                h.sum().backward()
                assert a.grad.device == a.device
            assert torch.cuda.current_device() == current


def positive(a):
    return a > 0


def test_functions():
    """What they return on a GPU is what they return on the CPU."""
    x = torch.randn(70, 300, dtype=torch.float64).mul(8).round()
    words = x.ravel().to(torch.int64).abs()
    calls = {
        "quantile": lambda x, words: ct.quantile(x, [0.25, 0.5], dim=1),
        "median": lambda x, words: ct.median(x, dim=0),
        "repeat": lambda x, words: ct.repeat(x, words[:300] % 4, dim=1),
        "nonzero": lambda x, words: ct.nonzero(x > 3),
        "bincount": lambda x, words: ct.bincount(words, weights=x.ravel()),
        "histogram": lambda x, words: ct.histogram(x, bins=7),
        "reduce_by_key": lambda x, words: ct.reduce_by_key(words // 4, x.ravel()),
        "run_length_encode": lambda x, words: ct.run_length_encode(words),
        "partition_by": lambda x, words: ct.partition_by(x, positive),
        "find_first": lambda x, words: ct.find_first(x, positive),
        "unique_all": lambda x, words: ct.unique_all(words),
        "setdiff1d": lambda x, words: ct.setdiff1d(words, words[:9]),
        "setxor1d": lambda x, words: ct.setxor1d(words, words[:9]),
        "where": lambda x, words: ct.sum(x, dim=1, where=x > 0, dtype=torch.float32),
        "less": lambda x, words: ct.sort(x, dim=1, less=lambda a, b: abs(a) < abs(b)),
        "transform": lambda x, words: ct.transform(lambda a, b: math.exp(a / 9) * b if a > b else b, x, x[0]),
        "segments": lambda x, words: ct.segment_reduce(x.ravel(), words - 2, num_segments=9),
    }
    for name, call in calls.items():
        found, expected = call(x.cuda(), words.cuda()), call(x, words)
        pairs = [(found, expected)] if torch.is_tensor(found) else zip(found, expected, strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one.cpu(), other, rtol=1e-12, atol=1e-12, msg=name)
