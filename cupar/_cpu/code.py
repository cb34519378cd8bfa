"""A build's code for the CPU: kept, and loaded, by llvmlite if that is there. A hit imports no numba."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from .._base import fork
from .._base.errors import BuildError
from .._base.versions import ABSENT, package_version
from .._compile.toolchain import compilers
from .._ir.operator import Operator
from .._ir.specialisation import Specialisation
from .._jobs.threads import off_main_thread
from .._kernels.elf import NOT_ELF, Elf
from .._kernels.image import DamagedError

SYMBOL = "cupar_run"
_MAGIC = b"cupar cpu "
_NUMBAS = ("numba_", "NRT_", "Py", "_Py")


def fault_code(op: Operator) -> int:
    """Return the status of a build's function after an operator has raised, a positive number of 32 bits."""
    return 2 + int(op.fingerprint[:7], 16)  # numba's own is 1


def packed(needs: Sequence[str], code: bytes) -> bytes:
    """Return a build as it is kept: the functions that its object code calls, and that."""
    return _MAGIC + " ".join(sorted(needs)).encode() + b"\n" + code


def _opened(blob: bytes) -> tuple[list[str], bytes]:
    head, _, code = blob.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise DamagedError("this is no build for the CPU")
    return head[len(_MAGIC) :].decode().split(), code


class CpuCode:
    """The code of a build for the CPU: what `Code` is to a GPU."""

    def __init__(self, spec: Specialisation, blob: bytes, has_code: bool = True) -> None:
        self.spec = spec
        self.blob = blob
        self._has_code = has_code
        self._engine: Any = None
        self._function: Callable[[int], int] | None = None
        self._lock = fork.Lock()

    def check(self) -> int:
        """Return the bytes of object code; raise DamagedError if it is no build's: LLVM would crash."""
        _, code = _opened(self.blob)
        if not self._has_code and not code:
            return 0
        try:
            has_function = any(each.name == SYMBOL and each.section for each in Elf(code).symbols())
        except NOT_ELF as error:
            raise DamagedError(f"its code is no object file: {error}") from None
        if not has_function:
            raise DamagedError(f"its code does not define {SYMBOL}")
        return len(code)

    def function(self) -> Callable[[int], int]:
        """Return the function that takes the address of parameters; it is loaded for that.

        It returns 0; or if something raised, for `fault`, a code, with the place and size of a description
        where the first two parameters were.
        """
        found = self._function
        if found is None:
            with self._lock:
                found = self._function
                if found is None:
                    found = self._function = off_main_thread(self._loaded)
        return found

    def _loaded(self) -> Callable[[int], int]:
        """Load the code without LLVM if possible: loading LLVM takes longer than the rest of a hit."""
        try:
            return self._loaded_without_llvm()
        except (ImportError, OSError):
            if package_version("llvmlite") == ABSENT:
                raise
        from .._numba_cpu import llvm

        needs, code = _opened(self.blob)
        process = ctypes.CDLL(None)

        def missing() -> list[str]:
            return [name for name in needs if not llvm.address_of_symbol(name) and not hasattr(process, name)]

        if any(name.startswith(_NUMBAS) for name in missing()):  # which numba makes known when it begins
            with compilers():
                from .._numba_cpu import cpu_target

                _ = cpu_target.target_context
        if names := ", ".join(missing()):  # LLVM would end the process
            raise BuildError(f"{self.spec.algorithm}: the CPU's code calls {names}, which is not there")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self._engine.get_function_address(SYMBOL))

    def _loaded_without_llvm(self) -> Callable[[int], int]:
        from . import loader

        needs, code = _opened(self.blob)
        why, wanted = "", "llvmlite"
        numbas = [name for name in needs if name.startswith(_NUMBAS) and loader.symbol(name) is None]
        if numbas:
            why, wanted = f"it calls {', '.join(numbas)} of numba", "numba"
        elif not loader.is_possible():
            why = "this is no Linux on x86-64"
        else:
            try:
                self._engine, address = loader.load(code, SYMBOL)
                return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
            except loader.UnsupportedError as error:
                why = str(error)
        raise ImportError(
            f"{self.spec.algorithm}: its code for the CPU cannot be loaded without {wanted}, as {why}: "
            f"pip install {wanted}"
        )

    def fault(self, code: int, place: int, size: int) -> RuntimeError:
        """Return the error that says what raised in a call."""
        functions = [op for op in self.spec.functions.values() if op.kind is None]
        by = next((op.described for op in functions if fault_code(op) == code), "the code for the CPU")
        said = "an exception"
        with contextlib.suppress(Exception):
            import pickle

            kind, arguments, _ = pickle.loads(ctypes.string_at(place, size))
            said = ": ".join([kind.__name__, *map(str, arguments)])
        return RuntimeError(f"{self.spec.algorithm}: {by} raised {said}")

    def cubin(self) -> bytes:
        """Raise ValueError: CPU code has none."""
        raise ValueError("this was built for the CPU, and has no GPU code; its build has llvm()")
