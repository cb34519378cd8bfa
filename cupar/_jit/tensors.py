"""PyTorch tensors among a launch's arguments, checked in one call.

Reading a tensor's class, dtype, dimensions, device, layout and negation takes six calls, a large part of a
launch. The guards of PyTorch's compiled functions compare all of these at once, for all tensors. They are not
public: they are tried before they are used, and where they are missing or refuse, tensors are read each by
itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

Guard = Callable[..., bool]


def tensor() -> Any:
    """Return PyTorch's class of tensors, None if it is not imported."""
    return getattr(sys.modules.get("torch"), "Tensor", None)


def guarded(arguments: Sequence[Any], may_be: Sequence[int]) -> tuple[tuple[int, ...], Guard | None]:
    """Return the positions of the tensors that one check covers, and the check.

    It takes as many tensors, no two of them the same, and compares everything but their sizes. Those of one
    dimension must be contiguous; of others, strides are not compared either.
    """
    try:
        which = {id(arguments[i]): i for i in may_be if type(arguments[i]) is tensor()}
        tensors = [arguments[i] for i in which.values()]
        check = _guard(tensors) if tensors and _works() else None
        if check is not None and check(*tensors) is True:
            return tuple(which.values()), check
    except Exception:  # other releases may raise anything
        pass
    return (), None


def _guard(tensors: Sequence[Any]) -> Guard:
    from .._pytorch import TensorGuards

    sizes: list[list[int | None]] = [[None] * each.ndim for each in tensors]
    strides = [[1] if size == [None] else size for size in sizes]
    made = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return made.check  # type: ignore[no-any-return]


@cache
def _works() -> bool:
    """Try it on tensors in host memory."""
    from .._pytorch import neg_view

    torch: Any = sys.modules["torch"]

    def made(*shape: int, dtype: Any = torch.float32, device: str = "cpu") -> Any:
        return torch.empty(shape, dtype=dtype, device=device)

    first, plane = made(5), made(2, 3)
    check = _guard((first, plane))
    others = [
        made(5, dtype=torch.int32),
        made(5, 1),
        made(5, device="meta"),
        first[::2],
        neg_view(first),
        None,
    ]
    return (
        check(first, plane) is True
        and check(made(7), made(4, 1)) is True
        and not any(check(each, plane) for each in others)
    )
