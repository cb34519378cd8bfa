"""What inductor makes of operators: its graphs are looked at, as for a GPU, and nothing is compiled."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._inductor import ir  # noqa: E402
from torch._inductor.graph import GraphLowering  # noqa: E402
from torch._inductor.virtualized import V  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.fx.experimental.symbolic_shapes import ShapeEnv  # noqa: E402

from cupar import torch as ct  # noqa: E402


@pytest.fixture(autouse=True)
def a_gpu_of_which_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(ir.Scan, "num_splits", lambda **_: (ir.ReductionHint.DEFAULT, 1))


def lowered(function, *shapes, device="cuda", dtype=torch.float32):
    """Return what inductor runs: "scan" and "pointwise" of its own, and the names of what it calls."""

    def traced(*tensors):  # of which make_fx counts the arguments
        return function(*tensors)

    mode = FakeTensorMode()
    with mode:
        given = [torch.empty(each, dtype=dtype, device=device) for each in shapes]
        graph = make_fx(traced, tracing_mode="fake")(*given)
    lowering = GraphLowering(graph, example_inputs=given, shape_env=ShapeEnv())
    with V.set_graph_handler(lowering), V.set_fake_mode(mode):
        lowering.run(*given)
    found = set()
    for each in lowering.operations:
        if isinstance(each, ir.FallbackKernel):
            found.add(each.python_kernel_name)
        elif isinstance(each, ir.ComputedBuffer):
            found.add(type(each.data).__name__.lower())
    return found


def layer(a, b, initial=None, dim=-1):
    return ct.linear_recurrence(torch.sigmoid(a), b * 2, dim=dim, initial=initial).sin()


def gradient(a, h, initial, grad):
    return torch.ops.cupar.linear_recurrence_backward(a, h, initial, grad, 1, False)


CALLED = "torch.ops.cupar.linear_recurrence_called"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_short_rows_are_fused(dtype):
    assert lowered(layer, (8, 128), (8, 128), dtype=dtype) == {"scan", "pointwise"}
    assert lowered(lambda a, b, h: layer(a, b, h, 0), (9, 4), (9, 4), (4,), dtype=dtype) == {
        "scan",
        "pointwise",
    }
    backward = lowered(gradient, (3, 9), (3, 9), (3,), (3, 9), dtype=dtype)
    assert backward == {"scan", "pointwise"}


def test_others_are_called():
    assert CALLED in lowered(layer, (8, 9000), (8, 9000))
    assert CALLED not in lowered(layer, (600, 9000), (600, 9000))
    assert CALLED in lowered(layer, (8, 128), (8, 128), device="cpu")
    assert CALLED in lowered(layer, (8, 0), (8, 0))
    assert lowered(ct.sort, (7,)) == {"torch.ops.cupar.sort_called"}
    assert torch.ops.cupar.sort_called(torch.tensor([2.0, 1.0])).tolist() == [1, 2]


def test_large_ones_with_nothing_around_them_are_called():
    large = (4096, 4096)
    assert lowered(ct.linear_recurrence, large, large) == {CALLED}
    assert lowered(ct.linear_recurrence, (9, 9), (9, 9)) == {"scan"}
    assert lowered(ct.linear_recurrence, (4096, 1000), (4096, 1000)) == {"scan"}
    assert "scan" in lowered(layer, large, large)
    backward = lowered(gradient, large, large, large[:1], large)
    assert backward == {"torch.ops.cupar.linear_recurrence_backward_called"}
