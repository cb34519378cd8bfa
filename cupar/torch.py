"""Operators of PyTorch with gradients: recurrences, scans, transforms, and functions of `cupar.arrays`.

>>> import torch
>>> from cupar.torch import linear_recurrence
>>> linear_recurrence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]))
tensor([1.0000, 1.5000])

They are registered with PyTorch's dispatcher: `torch.compile`, `torch.export`, `torch.func` and autograd see
them as they see PyTorch's own. Tensors on the CPU are worked on there, whatever `cupar.device` says.
"""

from __future__ import annotations

import sys
from typing import Any

from ._torch import of_arrays
from ._torch.recurrence import linear_recurrence as linear_recurrence
from ._torch.scans import scan as scan
from ._torch.transforms import transform as transform

__all__ = sorted(["linear_recurrence", "scan", "transform", *of_arrays.NAMES])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in of_arrays.NAMES:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    found = globals()[name] = of_arrays.function_of(name)
    return found


def __dir__() -> list[str]:
    return list(__all__)
