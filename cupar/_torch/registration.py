"""Operators of PyTorch: their registration, and the steps around kernels that all share.

They are registered by `Library.define` and `impl`, at the dispatcher's keys and without a wrapper between: a
call costs a third of what one under `torch.library.custom_op` does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .. import structs
from .._base import device, fork
from .._base.errors import ArgumentTypeError
from .._device import storage
from .._pytorch import (
    AutoDispatchBelowAutograd,
    DispatchKey,
    DispatchKeySet,
    SingleLevelFunction,
    compiled_autograd_key,
    current_device,
    current_raw_stream,
    dispatch_keys,
    enable_single_level,
    get_tracing_state,
    is_torch_function_mode_enabled,
    len_torch_dispatch_stack,
    profiler_enabled,
    set_fwd_grad_enabled,
)
from .._pytorch import are_functorch_transforms_active as in_transform
from . import inductor

NAMESPACE = "cupar"
library = torch.library.Library(NAMESPACE, "FRAGMENT")
_lock = fork.Lock()
_known: dict[str, Any] = {}
_direct: dict[Any, tuple[Any, Any]] = {}  # by operator: its kernel, and the one that records gradients

_TAGS = [torch.Tag.pt2_compliant_tag]

# The dispatcher's keys for calls with tensors that hold their items as they are, on the CPU or on a GPU, as
# nothing records, transforms or compiles.
PLAIN_KEYS = frozenset(
    (
        DispatchKeySet(getattr(DispatchKey, place)) | DispatchKeySet(getattr(DispatchKey, f"Autograd{place}"))
    ).raw_repr()
    for place in ("CPU", "CUDA")
)

# The bits of all other keys than those of such a tensor itself.
_UNUSUAL = ~0
for _name in ("CPU", "CUDA", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView", "AutocastCPU", "AutocastCUDA"):
    _UNUSUAL &= ~DispatchKeySet(getattr(DispatchKey, _name)).raw_repr()


def operator(
    name: str,
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    recorded: Callable[..., Any],
    vmap: Callable[..., Any],
    fused: Callable[..., Any] | None = None,
) -> Any:
    """Return the operator of a name, registered when it is first asked for.

    Parameters
    ----------
    name, schema : str
        As in ``"cumsum"`` and ``"(Tensor x, int dim) -> Tensor"``.
    kernel : callable
        Computes it for tensors on the CPU and on GPUs.
    fake : callable
        Returns empty tensors of the shapes and dtypes of the results.
    recorded : callable
        Takes the arguments; returns a differentiable result, or None if nothing is to be recorded.
    vmap : callable
        As `torch.library.register_vmap` takes it.
    fused : callable, optional
        See `inductor.waits`.
    """
    found = _known.get(name)
    if found is not None:
        return found
    with _lock:
        if name not in _known:
            library.define(f"{name}{schema}", tags=_TAGS)
            called = f"{name}_called"  # its name stands in what PyTorch keeps of compiled code
            setattr(getattr(torch.ops, NAMESPACE), called, kernel)
            for key in ("CPU", "CUDA"):
                library.impl(name, kernel, key)
            full = f"{NAMESPACE}::{name}"
            torch.library.register_fake(full, _shaping(fake), lib=library)
            found = getattr(getattr(torch.ops, NAMESPACE), name).default
            inductor.waits(found, f"torch.ops.{NAMESPACE}.{called}", fused)
            library.impl(name, _recording(found, kernel, recorded), "Autograd", with_keyset=True)
            _direct[found] = kernel, partial(_recorded, kernel, recorded)
            torch.library.register_vmap(full, vmap, lib=library)
            _known[name] = found
        return _known[name]


def _recording(op: Any, kernel: Callable[..., Any], recorded: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel for tensors that may require grad; plain ones need not ask the dispatcher again."""

    def called(keys: Any, *arguments: Any) -> Any:
        found = recorded(*arguments)
        if found is not None:
            return found
        if keys.raw_repr() in PLAIN_KEYS:
            return kernel(*arguments)
        with AutoDispatchBelowAutograd():
            return op(*arguments)

    return called


def _recorded(kernel: Callable[..., Any], recorded: Callable[..., Any], *arguments: Any) -> Any:
    found = recorded(*arguments)
    return kernel(*arguments) if found is None else found


def direct(op: Any, *tensors: Any) -> Any:
    """Return the function to call for an operator of these tensors, which may be None.

    That is the operator itself only where the dispatcher has something to do, which takes 6 µs: else its
    kernel, or the one that records gradients. Arguments are all given, by position.
    """
    if is_compiling() or not is_eager():
        return op
    has_gradient = False
    for each in tensors:
        if each is not None:
            if not is_plain(each):
                return op
            has_gradient = has_gradient or each.requires_grad
    return _direct[op][has_gradient]


def _shaping(fake: Callable[..., Any]) -> Callable[..., Any]:
    def shaped(*arguments: Any) -> Any:
        inductor.hand_over()
        return fake(*arguments)

    return shaped


def is_eager() -> bool:
    """Whether operators run as they are called: nothing records, transforms or times calls."""
    return (
        not in_transform()
        and not len_torch_dispatch_stack()
        and not is_torch_function_mode_enabled()
        and forward_ad._current_level < 0
        and get_tracing_state() is None
        and not profiler_enabled()
    )


def is_plain(x: Any) -> bool:
    """Whether a tensor's memory holds its items, without a pending conjugation or negation."""
    return type(x) is torch.Tensor and not dispatch_keys(x).raw_repr() & _UNUSUAL


def without_gradient(x: Any) -> Any:
    """Return a tensor, or None, as kernels take it."""
    return x.detach() if x is not None and x.requires_grad else x


def records(*tensors: Any) -> bool:
    """Whether a gradient of these may be needed, so that tensors must be saved for it."""
    if in_transform() or forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for each in tensors:  # no generator, at whose end Ctrl-C would be lost
            if each is not None and each.requires_grad:
                return True
    return False


# --- Differentiable functions -----------------------------------------------------------------------------


class below:  # noqa: N801 - called as a function
    """A context for the forward of a differentiable function: operators are asked again, below it."""

    __slots__ = ("_inner",)

    def __enter__(self) -> None:
        self._inner = []
        if in_transform():
            # What PyTorch does for its own: the levels below record, too.
            self._inner = [torch.enable_grad(), set_fwd_grad_enabled(True)]
        self._inner.append(AutoDispatchBelowAutograd())
        for each in self._inner:
            each.__enter__()

    def __exit__(self, *error: object) -> None:
        for each in reversed(self._inner):
            each.__exit__(*error)


def differentiable(
    name: str,
    kernel: Callable[..., Any],
    op: Callable[..., Any],
    kept: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any],
) -> Callable[..., Any]:
    """Return what applies a differentiable function, for what an operator records.

    That takes a tuple, `how`, and the tensors. It is `torch.autograd.Function` without what that does in
    Python before each call: arguments are given by position, and the dispatcher has unwrapped them.

    Parameters
    ----------
    name : str
    kernel, op : callable
        Take the tensors, and what `how` holds: for plain tensors, and for others.
    kept : callable
        Takes the context, where `how` is, the result and the tensors, and returns which are kept.
    backward : callable
        Takes the context and the gradients of results, and returns those of the tensors.
    jvp : callable
        Takes the saved tensors, `how` and the tangents.
    """

    def forward(ctx: Any, is_direct: bool, how: Any, *tensors: Any) -> Any:
        ctx.is_direct, ctx.how = is_direct, how
        if is_direct:
            found = kernel(*map(without_gradient, tensors), *how)
            ctx.save_for_backward(*kept(ctx, found, *tensors))
            return found
        with below():
            found = op(*tensors, *how)
        some = kept(ctx, found, *tensors)
        ctx.save_for_backward(*some)
        ctx.save_for_forward(*some)
        return found

    def gradients(ctx: Any, *slopes: Any) -> Any:
        return None, None, *backward(ctx, *slopes)

    def tangent(ctx: Any, _: Any, __: Any, *tangents: Any) -> Any:
        saved = ctx.saved_tensors
        if not in_transform():
            return jvp(saved, ctx.how, *tangents)
        # Levels below have tangents of these, and of the work here; this level's are `tangents`.
        with set_fwd_grad_enabled(True):
            primals = [
                each if each is None else forward_ad.unpack_dual(each, level=0).primal for each in saved
            ]
            return jvp(primals, ctx.how, *tangents)

    parts = {
        "forward": forward,
        "backward": gradients,
        "jvp": tangent,
        "_compiled_autograd_key": compiled_autograd_key,
    }
    # The base of `Function` is for one level of transforms, as operators are: it asks for no `setup_context`.
    cls: Any = type(name, (SingleLevelFunction,), {key: staticmethod(each) for key, each in parts.items()})
    apply = cls.apply

    def applied(how: Any, *tensors: Any) -> Any:
        is_direct = is_eager()
        for each in tensors:
            is_direct = is_direct and (each is None or is_plain(each))
        if not in_transform():
            return apply(is_direct, how, *tensors)
        with enable_single_level():
            return apply(False, how, *tensors)

    return applied


# --- Tensors for kernels -----------------------------------------------------------------------------------

_DTYPES = {getattr(torch, name): np.dtype(name) for name in {*structs.NAMES.values()} - {"bfloat16"}}


def numpy_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return NumPy's dtype for PyTorch's; raise TypeError, which begins with `name`, if NumPy has none."""
    found = _DTYPES.get(dtype)
    if found is None and dtype is torch.bfloat16:
        found = _DTYPES[torch.bfloat16] = structs.bfloat16()
    if found is None:
        raise TypeError(f"{name}: expected numbers that NumPy or ml_dtypes has a dtype for, got {dtype}")
    return found


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return PyTorch's dtype for NumPy's."""
    if structs.is_bfloat16(dtype):
        return torch.bfloat16
    return next(own for own, each in _DTYPES.items() if each == dtype)


_has_several_devices = False if current_raw_stream is None else torch.cuda.device_count() > 1
_GPU = torch.device("cuda")  # the current one


def _allocated(nbytes: int) -> tuple[Any, int]:
    kept = torch.empty(nbytes, dtype=torch.uint8, device=_GPU)  # the current stream's
    return kept, kept.data_ptr()


def on_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a kernel whose first argument is a tensor.

    That one's device is the current one, and temporary storage comes from PyTorch's allocator, but for 64 KiB
    that each stream keeps.
    """
    if current_raw_stream is None:
        return function

    def on_its_device(x: Any, *others: Any, **named: Any) -> Any:
        if not x.is_cuda:
            return function(x, *others, **named)
        token = storage.allocator.set(_allocated)
        try:
            if not _has_several_devices or x.get_device() == current_device():
                return function(x, *others, **named)
            with torch.cuda.device(x.device):
                return function(x, *others, **named)
        finally:
            storage.allocator.reset(token)

    return on_its_device


def made_for(x: Any, make: Callable[[], Any]) -> Any:
    """Return what factories make for where a tensor is."""
    with named("fn"):
        return device.using(not x.is_cuda, make)


class named:  # noqa: N801 - called as a function
    """A context in which errors say that name of a function that factories have other names for."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ArgumentTypeError):
            error.rename(dict.fromkeys(("op", "transform_op"), self._name))


def same_device(**given: Any) -> None:
    """Raise RuntimeError unless all tensors are on the device of the first."""
    (first, device), *others = [(name, each.device) for name, each in given.items() if each is not None]
    for name, other in others:
        if other != device:
            raise RuntimeError(f"{name}: expected a tensor on {device}, as `{first}` is, got one on {other}")


def batched(info: Any, x: Any, batch_dim: int | None) -> Any:
    """Return a tensor that `vmap` hands to an operator with its batch as the first dimension."""
    if batch_dim is None:
        return x.expand(info.batch_size, *x.shape)
    return x.movedim(batch_dim, 0)


def dimension(name: str, dim: Any, ndim: int) -> int:
    """Return a dimension from 0 on; raise IndexError, as PyTorch does, if it does not exist."""
    if isinstance(dim, bool) or not isinstance(dim, (int, np.integer, torch.SymInt)):
        raise TypeError(f"{name}: expected an integer, got {type(dim).__name__}")
    length = max(ndim, 1)  # as PyTorch has it: a tensor without dimensions has dimension 0
    if not -length <= dim < length:
        raise IndexError(
            f"{name}: expected from {-length} to {length - 1} for a {ndim}-dimensional tensor, got {dim}"
        )
    return int(dim % length)


def dimensions(dim: Any, ndim: int) -> Any:
    """Return a dimension from 0 on, or a tuple of several; raise as `dimension` does, or ValueError."""
    if not isinstance(dim, (list, tuple)):
        return dimension("dim", dim, ndim)
    found = tuple([dimension("dim", each, ndim) for each in dim])
    if len(found) != len({*found}):
        raise ValueError(f"dim: expected different dimensions, got {[*dim]}")
    return found
