"""Operators of PyTorch with gradients: linear recurrences and scans by functions in Python.

>>> import torch
>>> from cupar.torch import linear_recurrence
>>> linear_recurrence(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 1.0]))
tensor([1.0000, 1.5000])

They are registered with PyTorch's dispatcher: `torch.compile`, `torch.export`, `torch.func` and autograd see
them as they see PyTorch's own. Tensors on the CPU are worked on there, whatever `cupar.device` says.
"""

from ._torch.recurrence import linear_recurrence
from ._torch.scans import scan

__all__ = ["linear_recurrence", "scan"]
