"""A selective state-space layer, trained with three ways to compute its scan.

Each channel has some states, h[t] = a[t] h[t-1] + b[t], whose decay and input
depend on the data (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with
Selective State Spaces", 2023). The layer learns to say again what it saw some
steps ago; the losses are the same. It runs on a GPU if there is one.
"""

import time

import torch
from torch import nn

from cupar.torch import linear_recurrence


def by_loop(a, b):
    """Step by step: as many small kernels as there are steps."""
    h, found = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        found.append(h)
    return torch.stack(found, 1)


def by_associative_scan(a, b):
    """PyTorch's prototype, not compiled."""
    from torch._higher_order_ops.associative_scan import associative_scan

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    pairs = associative_scan(combine, (a, b), dim=1, combine_mode="generic")
    return pairs[1]


def by_cupar(a, b):
    """One kernel forwards, one backwards, along the axis in the middle."""
    return linear_recurrence(a, b, dim=1)


SCANS = {
    "cupar": by_cupar,
    "loop": by_loop,
    "associative_scan": by_associative_scan,
}


class SelectiveLayer(nn.Module):
    """A layer of channels with states; `scan` computes the recurrence."""

    def __init__(self, channels, states, scan):
        super().__init__()
        self.scan = scan
        self.rate = nn.Parameter(
            torch.log(torch.arange(1.0, states + 1)).repeat(channels, 1)
        )
        self.step = nn.Linear(channels, channels)
        self.ends = nn.Linear(channels, 2 * states)
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x):
        """Return what the states come to, of (batch, time, channel)."""
        step = nn.functional.softplus(self.step(x))[
            ..., None
        ]  # batch, time, channel, 1
        into, out = self.ends(x)[:, :, None].chunk(
            2, -1
        )  # batch, time, 1, state
        decay = torch.exp(-step * self.rate.exp())
        h = self.scan(decay, step * into * x[..., None])
        return (h * out).sum(-1) + self.skip * x


def trained(scan, steps=5, length=64, lag=2):
    """Return the losses of steps of training, and the seconds of one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    layer = SelectiveLayer(8, 4, scan).to(device)
    optimiser = torch.optim.Adam(layer.parameters(), 1e-2)
    x = torch.randn(4, length, 8, device=device)
    losses, times = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        optimiser.zero_grad()
        loss = (layer(x)[:, lag:] - x[:, :-lag]).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())  # which waits
        times.append(time.perf_counter() - begin)
    return losses, sorted(times)[len(times) // 2]


if __name__ == "__main__":
    expected, _ = trained(by_loop)
    for name, scan in SCANS.items():
        losses, seconds = trained(scan)
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=0.0)
        times = f"{name:17}{seconds * 1e3:8.2f} ms a step"
        print(f"{times}, loss {losses[0]:.4f} to {losses[-1]:.4f}")
