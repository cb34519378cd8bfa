"""Properties of a kernel's overloads, under the names that numba.cuda has for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .overload import Overload
from .overloads import ByTypes, Overloads, Types

_MISSING = {
    "inspect_types": "numba.cuda.jit shows how it types a function",
    "inspect_cfg": "numba.cuda.jit shows the control flow of LLVM IR; see inspect_llvm",
    "inspect_disasm_cfg": "see inspect_sass",
    "inspect_sass_cfg": "see inspect_sass",
    "get_annotation_info": "numba.cuda.jit shows how it types a function",
    "get_metadata": "see the build of an overload",
    "stats": "see the build of an overload, and cupar.cache.stats()",
    "extensions": "arguments are read by cupar",
    "bind": "a kernel is loaded when it is first launched",
}


_Getter = Callable[..., int | dict[Types, int]]


def _getter(attribute: str, what: str) -> _Getter:
    def get(self: Accessors, signature: Any = None) -> int | dict[Types, int]:
        found: Any = self._each(signature, lambda each: getattr(each, attribute), True)
        return found  # type: ignore[no-any-return]

    get.__name__ = f"get_{attribute}"
    get.__qualname__ = f"Kernel.{get.__name__}"
    get.__doc__ = f"""Return {what}, on the current device.

    Parameters
    ----------
    signature : optional
        Of one overload. Without it, the kernel's, if it was given one signature; else those of all overloads,
        by their types.
    """
    return get


class Accessors:
    """Questions about one of a kernel's overloads, or about all of them by their types."""

    names: Sequence[str]
    overloads: Overloads
    specialized: bool

    def __getattr__(self, name: str) -> Any:
        cls = type(self).__name__
        why = f": {_MISSING[name]}" if name in _MISSING else ""
        raise AttributeError(f"{cls!r} object has no attribute {name!r}{why}")

    def _each(self, signature: Any, read: Callable[[Overload], Any], of_one: bool = False) -> Any:
        if signature is not None:
            return read(self.overloads[signature])
        if of_one and self.specialized:
            return read(next(iter(self.overloads.values())))
        return ByTypes(self.overloads, read)

    get_regs_per_thread: _Getter = _getter("regs_per_thread", "the registers of a thread")
    get_const_mem_size: _Getter = _getter("const_mem_size", "the bytes of constant memory")
    get_shared_mem_per_block: _Getter = _getter(
        "shared_mem_per_block", "the bytes of a block's static shared memory"
    )
    get_local_mem_per_thread: _Getter = _getter(
        "local_mem_per_thread", "the bytes of a thread's local memory"
    )
    get_max_threads_per_block: _Getter = _getter(
        "max_threads_per_block", "the most threads that a block can have"
    )

    def inspect_llvm(self, signature: Any = None) -> str | dict[Types, str]:
        """Return the LLVM IR of an overload, or of all by their types. It is compiled again for that."""
        return self._each(signature, lambda each: each.inspect_llvm())  # type: ignore[no-any-return]

    def inspect_asm(self, signature: Any = None) -> str | dict[Types, str]:
        """Return the PTX of an overload with all that it calls, or of all by their types."""
        return self._each(signature, lambda each: each.inspect_asm())  # type: ignore[no-any-return]

    inspect_lto_ptx = inspect_asm

    def inspect_sass(self, signature: Any = None) -> str | dict[Types, str]:
        """Return the GPU code of an overload as text, or of all by their types; ``nvdisasm`` shows it."""
        return self._each(signature, lambda each: each.inspect_sass())  # type: ignore[no-any-return]
