"""The only access to what is private in PyTorch: every such name that cupar uses.

They are looked up together, when `cupar.torch` is imported, so that a PyTorch which lacks one is a
`VersionError` then. Whoever uses the others does without them where they are missing.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Final

# Where each name is: a module, or a module and a name in it.
_PLACES: Final = {
    "AutoDispatchBelowAutograd": "torch._C:_AutoDispatchBelowAutograd",
    "DispatchKey": "torch._C:DispatchKey",
    "DispatchKeySet": "torch._C:DispatchKeySet",
    "SingleLevelFunction": "torch.autograd.function:_SingleLevelFunction",
    "compiled_autograd_key": "torch.autograd:Function._compiled_autograd_key",
    "current_level": "torch.autograd.forward_ad:_current_level",  # it changes: to be read in `forward_ad`
    "dispatch_keys": "torch._C:_dispatch_keys",
    "enable_single_level": "torch._functorch.autograd_function:enable_single_level_autograd_function",
    "get_tracing_state": "torch._C:_get_tracing_state",
    "is_legacy_batchedtensor": "torch._C:_functorch.is_legacy_batchedtensor",
    "is_torch_function_mode_enabled": "torch._C:_is_torch_function_mode_enabled",
    "profiler_enabled": "torch._C:_autograd._profiler_enabled",
    "set_fwd_grad_enabled": "torch.autograd.forward_ad:_set_fwd_grad_enabled",
}
# Those of a PyTorch that is built with CUDA, None in others.
_OF_CUDA: Final = {
    "current_device": "torch._C:_cuda_getDevice",
    "current_raw_stream": "torch._C:_cuda_getCurrentRawStream",
}
# Those that calls with tensors need, without `cupar.torch`.
_OF_CALLS: Final = {
    "DispatchModeKey": "torch._C:_TorchDispatchModeKey",
    "are_functorch_transforms_active": "torch._C:_are_functorch_transforms_active",
    "dispatch_mode": "torch._C:_get_dispatch_mode",
    "is_jit_tracing": "torch._C:_is_tracing",
    "len_torch_dispatch_stack": "torch._C:_len_torch_dispatch_stack",
}
# Those of torch.compile, which takes long to import, and those that quicken calls.
_OTHERS: Final = {
    "TensorGuards": "torch._C._dynamo.guards:TensorGuards",
    "V": "torch._inductor.virtualized:V",
    "ir": "torch._inductor.ir",
    "lowering": "torch._inductor.lowering",
    "neg_view": "torch:_neg_view",
    "frames": "torch._C._dynamo.eval_frame",
    "ops": "torch._inductor.virtualized:ops",
}


def _found(place: str) -> Any:
    from ._base.versions import looked_up

    return looked_up(place, "torch")


@functools.cache
def _names() -> dict[str, Any]:
    return _of_cuda() | _of_calls() | {name: _found(place) for name, place in _PLACES.items()}


@functools.cache
def _of_cuda() -> dict[str, Any]:
    is_built = _found("torch.backends.cuda:is_built")()
    return {name: _found(place) if is_built else None for name, place in _OF_CUDA.items()}


@functools.cache
def _of_calls() -> dict[str, Any]:
    return {name: _found(place) for name, place in _OF_CALLS.items()}


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return _names()[name]
    if name in _OF_CUDA:
        return _of_cuda()[name]
    if name in _OF_CALLS:
        return _of_calls()[name]
    if name in _OTHERS:
        return _found(_OTHERS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def sees_tensors_alone() -> bool:
    """Whether PyTorch traces or transforms calls: tensors may have no memory, and memory is not followed.

    A dispatch mode of the user's is no matter, as tensors are what they seem to be.
    """
    found = _of_calls()
    if found["are_functorch_transforms_active"]() or found["is_jit_tracing"]():
        return True
    if not found["len_torch_dispatch_stack"]():
        return False
    kinds, mode_of = found["DispatchModeKey"], found["dispatch_mode"]
    return any(mode_of(each) is not None for each in (kinds.FAKE, kinds.FUNCTIONAL, kinds.PROXY))


_eager: list[Any] = []


def leave_eager(function: Any) -> None:
    """Have torch.compile call a function as it is, with all that it calls: a graph break."""
    function._torchdynamo_disable = True  # for code that calls it
    _eager.append(function)
    if "torch" in sys.modules:
        skip_frames()


def skip_frames() -> None:
    """Tell PyTorch, which is imported, that frames of such functions are not compiled."""
    try:
        frames = _found(_OTHERS["frames"])
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.SKIP)
        for each in _eager:
            frames.set_code_exec_strategy(each.__code__, skip)
    except (ImportError, AttributeError):  # PyTorch 2.6 has no such strategies
        pass
