"""The code of a build of the bindings: serialised, and loaded in the contexts where it is called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base import fork
from .._compile import cccl
from .._compile.specialisation import Specialisation
from .._device import driver, storage
from .code import check_device

# Code that nobody needs any more. To unload it spoils what other threads capture, unless the thread that does
# so is relaxed about captures; so it is done where that is so anyway.
_retired: list[Any] = []


@fork.in_child
def _forget() -> None:
    if _retired:
        fork.leak(tuple(_retired))
        _retired.clear()


class NativeCode:
    """A build's code: serialised, and loaded in a context once it is needed there."""

    def __init__(self, spec: Specialisation, blob: bytes) -> None:
        self.spec = spec
        self._blob = blob
        self._deserialised: Any = None
        self._natives: dict[driver.Context, Any] = {}
        self._loaded: set[int] = set()  # contexts in which all its kernels are loaded
        self._lock = fork.Lock()
        fork.in_child(self.abandon)

    def check(self) -> None:
        """Do what loading begins with, and what needs no GPU.

        Raises
        ------
        DamagedError
            If this is no build's code: then no GPU and no driver will load it.
        """
        with self._lock:
            if self._deserialised is None:
                self._deserialised = cccl.deserialize(self.spec.kind._native, self._blob)

    def loaded(self, context: driver.Context) -> Any:
        """Return the bindings' object, loaded in a context, which must be the current one.

        Raises
        ------
        ValueError
            If it was built for another compute capability than the device has.
        DamagedError
            If this is no build's code.
        DriverError
            If the driver refuses it, as for want of memory.
        """
        with self._lock:
            if context not in self._natives:
                check_device(self.spec, context)
                self.check()
                with driver.relaxed_capture_mode():
                    _retired.clear()
                    storage.retry_after_trim(
                        lambda: cccl.load(self._deserialised),
                        f"loading the code of a {self.spec.algorithm} for sm_{self.spec.cc}",
                    )
                self._natives[context], self._deserialised = self._deserialised, None
            return self._natives[context]

    def once_in(self, context: driver.Context, load: Callable[[], None]) -> None:
        """Call `load`, unless that was done in this context; other threads wait until it is done."""
        with self._lock:
            if context.number not in self._loaded:
                load()
                self._loaded.add(context.number)

    def __del__(self) -> None:
        try:
            for context, native in self._natives.items():
                if not driver.is_there(context):  # nobody can tell whether it may be touched
                    fork.leak(native)
                    continue
                _retired.append(native)
        except Exception:
            pass

    def cubin(self) -> bytes:
        """Return the GPU code, an ELF file, for tools that inspect it."""
        return cccl.cubin(self.spec.kind._native, self._blob)

    def abandon(self) -> None:
        """Forget what is loaded: a forked process cannot use what its parent loaded, nor may it unload it."""
        if self._natives:
            fork.leak(self._natives)
        self._natives, self._loaded = {}, set()
