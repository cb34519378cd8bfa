"""What frameworks.py measures of PyTorch.

* forward and gradient: linear recurrences of three shapes, and their gradients with respect to both inputs,
  beside `torch.compile(associative_scan)`, Triton's `tl.associative_scan` (a program for each row, in the
  best of three sizes of blocks; forward alone) and a copy of the bytes that must be read and written (12 an
  item, 20 backwards);
* memory: the peak of forward and backward over inputs, output and gradients;
* call: host time of a call of 1,000 items, beside `torch.cumsum`, without and with gradient, and of both
  passes;
* compiled: host time of a call in a function under `torch.compile`, beside the same with `torch.cumsum`, by
  default and with CUDA graphs ("reduce-overhead"). The compiler makes one kernel of the latter; so also
  beside `torch.cumsum` as an operator in Python, which it calls between two kernels as it calls cupar's;
* layer: a training step of a selective state-space layer, beside a loop and associative_scan.
"""

from __future__ import annotations

import importlib
import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from frameworks import Case, host_time
from torch._higher_order_ops.associative_scan import associative_scan
from tuples import TRITON

from cupar.torch import linear_recurrence

PROGRAM_A_ROW = "triton, a program a row"

# What a peer logs as it fails is in its row.
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
warnings.filterwarnings("ignore", message="Error detected in")


def combine(left: Any, right: Any) -> Any:
    """Combine two pairs of a recurrence."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def shapes(exponent: int) -> list[tuple[int, int]]:
    """Return rows and their length: one, some, and as many as they are long."""
    half = exponent // 2
    return [
        (1, 1 << exponent),
        (1 << exponent // 4, 1 << exponent - exponent // 4),
        (1 << half, 1 << exponent - half),
    ]


def close(one: Any, other: Any) -> bool:
    """Whether tensors are close, in proportion to the largest item."""
    pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
    return all(bool((x - y).abs().max() <= 1e-3 * y.abs().max()) for x, y in pairs)


class Times:
    """Clocks: of the GPU behind a kernel that keeps it busy, or of the CPU; and of the host alone."""

    def __init__(self, on_gpu: bool) -> None:
        self.device = "cuda" if on_gpu else "cpu"
        self.synchronize: Callable[[], Any] = torch.cuda.synchronize if on_gpu else lambda: None
        self.host = host_time(self.synchronize, 100 if on_gpu else 20)
        self.device_time = self._gpu if on_gpu else host_time(self.synchronize, 1)

    def _gpu(self, call: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        call()  # so that what other sides left in caches and in the allocator is not timed
        torch.cuda._sleep(4_000_000)
        start.record()
        for _ in range(3):
            call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 3e3

    def peak(self, nbytes: int, call: Callable[[], Any]) -> float:
        """Return the peak of what a call allocates, and its three inputs, of what it must have."""
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = call()
        self.synchronize()
        del result
        return (torch.cuda.max_memory_allocated() - before + nbytes / 2) / nbytes


def associative(a: Any, b: Any) -> Any:
    """Return the recurrence by PyTorch's own."""
    return associative_scan(combine, (a, b), dim=-1, combine_mode="pointwise" if a.is_cuda else "generic")[1]


def compiled_associative() -> Any:
    """Return it compiled."""
    torch._dynamo.reset()
    return torch.compile(associative, fullgraph=True, dynamic=False)


def of_triton(a: Any, b: Any, times: Times) -> Callable[[], Any]:
    """Return a call of Triton's, of the quickest size of blocks."""
    importlib.import_module("triton")
    if not a.is_cuda:
        raise LookupError("Triton needs a GPU")
    folder = tempfile.mkdtemp()
    Path(folder, "cupar_frameworks_triton.py").write_text(TRITON)
    sys.path.insert(0, folder)
    rows, h = importlib.import_module("cupar_frameworks_triton").rows, torch.empty_like(b)

    def call(block: int, warps: int) -> Any:
        rows[(a.shape[0],)](a, b, h, a.shape[1], BLOCK=block, num_warps=warps)
        return h

    calls = [partial(call, *each) for each in ((1024, 4), (4096, 8), (4096, 16))]
    for each in calls:
        each()
    return min(calls, key=times.device_time)


def copy(nbytes: int, device: str) -> Callable[[], Any]:
    """Return a copy that reads and writes so many bytes, both together."""
    source = torch.empty(nbytes // 2, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def call() -> None:
        target.copy_(source)

    return call


def judged(a: Any, b: Any, weights: Any, found: Any) -> bool:
    """Whether the last gradients of the last row are those of a loop in float64."""
    length = min(1000, a.shape[1] - 1)
    h = linear_recurrence(a, b)[-1, -length - 1 : -1].double().tolist()
    rows = (each[-1, -length:].double().tolist() for each in (a, weights))
    slope, behind, gradients = 0.0, 0.0, []
    for coefficient, weight, before in zip(*map(reversed, (*rows, h)), strict=True):
        slope, behind = weight + behind * slope, coefficient
        gradients.append((slope * before, slope))
    right = torch.tensor(gradients[::-1], dtype=torch.float64).T
    last = torch.stack([each[-1, -length:].double().cpu() for each in found])
    return close(tuple(last), tuple(right))


def recurrences(exponent: int, times: Times) -> Iterator[Case]:
    """Yield recurrences and their gradients, and what memory these take."""
    for shape in shapes(exponent):
        label = " x ".join(map(str, shape))
        a = torch.rand(shape, device=times.device) * 0.2 + 0.8
        b, weights = (torch.randn(shape, device=times.device) for _ in range(2))
        items = a.numel()

        def forward(function: Any, a: Any = a, b: Any = b) -> Callable[[], Any]:
            return lambda: function(a, b)

        def both(function: Any, a: Any = a, b: Any = b, weights: Any = weights) -> Callable[[], Any]:
            a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
            return lambda: torch.autograd.grad(function(a, b), (a, b), weights)

        sides = {
            "cupar": lambda: forward(linear_recurrence),
            PROGRAM_A_ROW: partial(of_triton, a, b, times),
            "associative_scan": lambda: forward(compiled_associative()),
            "copy": partial(copy, 12 * items, times.device),
        }
        yield Case("forward", label, sides, times.device_time, 1e-6, (PROGRAM_A_ROW, 1.0), close)
        sides = {
            "cupar": lambda: both(linear_recurrence),
            "associative_scan": lambda: both(compiled_associative()),
            "copy": partial(copy, 32 * items, times.device),
        }
        judge = partial(judged, a, b, weights)
        goal = "associative_scan", 1.0
        yield Case("gradient", label, sides, times.device_time, 1e-6, goal, close, judge=judge)
        if times.device == "cuda":
            # a, b and the gradient with respect to h, which are there; h, and those with respect to a and b
            peak, least = partial(times.peak, 24 * items), "inputs, output, gradients"
            sides[least] = lambda a=a: lambda: [torch.empty_like(a) for _ in range(3)]
            sides.pop("copy")
            yield Case("memory", label, sides, peak, 1.0, (least, 1.1), close, [least], judge)


def calls(times: Times) -> Iterator[Case]:
    """Yield eager calls of 1,000 items."""
    a, b = (torch.rand(1000, device=times.device) for _ in range(2))
    grad, weights = a.clone().requires_grad_(), torch.rand(1000, device=times.device)
    same = {"close": lambda one, other: True}
    sides = {"cupar": lambda: partial(linear_recurrence, a, b), "cumsum": lambda: partial(torch.cumsum, a, 0)}
    yield Case("call", "without gradient", sides, times.host, 1e-6, ("cumsum", 1.5), **same)
    sides = {
        "cupar": lambda: partial(linear_recurrence, grad, b),
        "cumsum": lambda: partial(torch.cumsum, grad, 0),
    }
    yield Case("call", "with gradient", sides, times.host, 1e-6, ("cumsum", 2.0), **same)
    sides = {
        "cupar": lambda: lambda: torch.autograd.grad(linear_recurrence(grad, b), grad, weights),
        "cumsum": lambda: lambda: torch.autograd.grad(torch.cumsum(grad, 0), grad, weights),
    }
    yield Case("call", "both passes", sides, times.host, 1e-6, ("cumsum", 2.0), **same)


def compiled(times: Times) -> Iterator[Case]:
    """Yield calls in compiled functions."""

    def recurrence(a: Any, b: Any) -> Any:
        return linear_recurrence(torch.sigmoid(a), b * 2).sin()

    def cumsum(a: Any, b: Any) -> Any:
        return torch.cumsum(torch.sigmoid(a) + b * 2, -1).sin()

    def operator(a: Any, b: Any) -> Any:
        return torch.ops.cupar_frameworks.cumsum(torch.sigmoid(a), b * 2).sin()

    library = torch.library.Library("cupar_frameworks", "FRAGMENT")
    library.define("cumsum(Tensor a, Tensor b) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl("cumsum", lambda a, b: torch.cumsum(b, -1), key)
    torch.library.register_fake("cupar_frameworks::cumsum", lambda a, b: torch.empty_like(b), lib=library)

    for shape in ((8, 128), (1, 1000)):
        a, b = (torch.rand(shape, device=times.device) for _ in range(2))
        for mode, goal in (("default", 1.2), ("reduce-overhead", 1.0)):

            def made(function: Any, mode: str = mode, a: Any = a, b: Any = b) -> Callable[[], Any]:
                found = torch.compile(function, fullgraph=True, mode=mode, dynamic=False)
                for _ in range(3):  # captures
                    found(a, b)
                assert close(found(a, b).clone(), function(a, b))
                assert close(found(a, b + 1).clone(), function(a, b + 1))
                return lambda: found(a, b)

            sides = {
                "cupar": partial(made, recurrence),
                "cumsum": partial(made, cumsum),
                "cumsum, as an operator": partial(made, operator),
                "eager": lambda a=a, b=b: lambda: recurrence(a, b),
            }
            label = f"{mode}, {shape[0]} x {shape[1]}"
            yield Case("compiled", label, sides, times.host, 1e-6, ("cumsum", goal), lambda one, other: True)


def layers(exponent: int, times: Times) -> Iterator[Case]:
    """Yield a step of training of a state-space layer."""
    from importlib.util import module_from_spec, spec_from_file_location

    path = Path(__file__).parents[1] / "examples" / "state_space.py"
    spec = spec_from_file_location("state_space", path)
    assert spec is not None and spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    length = 1 << exponent // 2

    def stepped(scan: Any) -> Callable[[], Any]:
        torch.manual_seed(0)
        layer = example.SelectiveLayer(16, 16, scan).to(times.device)
        x = torch.randn(4, length, 16, device=times.device)
        optimiser = torch.optim.SGD(layer.parameters(), 0.0)

        def step() -> Any:
            optimiser.zero_grad()
            loss = (layer(x) - x.roll(1, 1)).square().mean()
            loss.backward()
            optimiser.step()
            return loss.detach()

        return step

    sides = {name: partial(stepped, scan) for name, scan in example.SCANS.items()}
    yield Case("layer", f"4 x {length} x 16 x 16", sides, times.device_time, 1e-6, ("loop", 1.0), close)


def cases(exponent: int, on_gpu: bool) -> Iterator[Case]:
    """Yield what is measured, in order."""
    times = Times(on_gpu)
    yield from calls(times)
    yield from compiled(times)
    yield from recurrences(exponent, times)
    yield from layers(exponent, times)
