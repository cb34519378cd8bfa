"""The types that a kernel was compiled for, and compiling it for others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from .._arguments.order import ordered
from .._base.causes import brief, place
from .._base.digests import sha256
from .._base.errors import ArgumentTypeError
from .._call.built import Build
from .._device import arrays, driver
from .._fingerprint import walk
from .._ir.operator import CapturedState, Operator
from .._ir.types import Parameter
from .._obtain import obtain as obtaining
from .._obtain.target import parse_cc
from .accessors import Accessors
from .overload import Overload
from .overloads import Overloads, Types, nearest
from .signatures import types_of
from .typeof import typeof


class Dispatcher(Accessors):
    """A Python function with its overloads: `Kernel` without launches.

    Attributes
    ----------
    names : sequence of str
        Of its parameters.
    specialized : bool
        Whether it was given one signature, and no other is compiled.
    """

    __name__: str

    def __init__(
        self, function: FunctionType, options: Mapping[str, Any], declared: Any, cc: Any, wait: bool
    ) -> None:
        functools.update_wrapper(self, function)  # type: ignore[arg-type]
        self.py_func = function
        self.targetoptions: dict[str, Any] = dict(options)
        self.names: Sequence[str] = _parameters(function)
        self.overloads: Overloads = Overloads(self.__name__, self.names)
        self.__defaults__: tuple[Any, ...] | None = function.__defaults__
        self._can_compile = declared is None  # whether other kernels and operators can call it
        self._cc = None if cc is None else parse_cc(cc)
        self._declared: list[Types] = []
        self.specialized: bool = declared is not None and not isinstance(declared, list)
        self._is_closed = False
        self._last: Overload | None = None
        if declared is not None:
            every = declared if isinstance(declared, list) else [declared]
            self._declared = [types_of(each, self.names) for each in every]
            if self._cc is not None or _is_device_there():
                for types in self._declared:
                    self._obtained(types, self._cc, wait)

    @property
    def converts(self) -> bool:
        """Whether arguments are converted, as it was given signatures."""
        return bool(self._declared)

    def types_for(self, arguments: tuple[Any, ...]) -> Types:
        """Return the types that it is compiled for if it is launched with these arguments."""
        if len(arguments) != len(self.names):
            ordered(self.__name__, self.names, arguments, {})
        types = tuple(typeof(name, each) for name, each in zip(self.names, arguments, strict=True))
        return self._declared_for(types) if self._declared else types

    @brief
    def overload_for(self, arguments: tuple[Any, ...]) -> Overload:
        """Return the code for arguments and the current device, compiled if need be."""
        return self.overload_of(self.types_for(arguments))

    def overload_of(self, types: Types) -> Overload:
        """Return the code for arguments of some types and the current device, compiled if need be."""
        arrays.refuse_cpu(self.__name__)
        if self._declared:
            types = self._declared_for(types)
        cc = driver.current_device().cc
        overload = self.overloads.find(types, cc) or self._obtained(types, None, True)
        self._last = overload
        return overload

    def _declared_for(self, types: Types) -> Types:
        if types in self._declared:
            return types
        found = nearest(types, self._declared)
        if found is None:
            given, *known = (f"({', '.join(map(str, each))})" for each in (types, *self._declared))
            raise TypeError(f"{self.__name__}: none of its signatures takes {given}: {'; '.join(known)}")
        return found

    @brief
    def compile(self, *signature: Any, cc: Any = None, wait: bool = True) -> Overload:
        """Compile it for types, unless that was done, and return the overload.

        Parameters
        ----------
        *signature
            A signature, as in ``"void(float32[:], int64)"``, or one of numba's; or for each parameter a type
            of numba's, a dtype for a number, a text such as ``"float32[:, ::1]"``, or an argument.
        cc : int, pair of int or str, optional
            Compute capability to compile for; by default the current device's. With it, no GPU is needed.
        wait : bool, optional
            False: compile in the background; `Overload.ready` waits for it.

        Raises
        ------
        TypeError
            If the signature is not valid for it, numba.cuda cannot compile it for the types, or it was given
            other signatures.
        BuildError, NoDeviceError
            If a compiler fails; if there is no GPU and no `cc`.
        """
        types = types_of(signature[0] if len(signature) == 1 else signature, self.names)
        if self._declared and types not in self._declared:
            types = self._declared_for(types)
        wanted = self._cc if cc is None else parse_cc(cc)
        if wanted is None and (observer := obtaining.observed()) is not None:
            wanted = observer.cc
        found = self.overloads.find(types, driver.current_device().cc if wanted is None else wanted)
        return found or self._obtained(types, wanted, wait)

    def _obtained(self, types: Types, cc: Any, wait: bool) -> Overload:
        if self._is_closed:
            given = ", ".join(map(str, types))
            raise TypeError(f"{self.__name__}: is not compiled for ({given}), and compiling is disabled")
        parameters: list[Any] = [Parameter(name, kind) for name, kind in zip(self.names, types, strict=True)]
        own = {"name": self.__name__, **self.targetoptions}  # the name is part of the code
        link, op = own.pop("link", None), self._operator()
        if own.get("lineinfo"):
            own["lines"] = _lines(op)
        overload = obtaining.obtain(Overload, "kernel", parameters, {"kernel": op}, cc, wait, link, **own)
        self.overloads.add(types, overload._spec.cc, overload)
        return overload

    def _operator(self) -> Operator:
        """Return the kernel's operator, as the function is now."""
        function = self.py_func
        try:
            found = walk.fingerprint(function)
        except walk.Unfingerprintable as error:
            raise walk.Unfingerprintable(str(error).replace("operator ", "kernel ", 1)) from None
        if found.refused and not any(each in found.refused for each in _ALLOWED):
            raise TypeError(f"kernel {self.__name__}{place(function)}: {found.refused}")
        captures = found.captures
        state = CapturedState(captures, function) if captures else None
        if captures:
            from .._base.data import replace
            from .._ir.parameters import parametrised

            found = replace(found, frozen=parametrised(found, 0))
        nothing: np.dtype[Any] = np.dtype("V")
        return Operator(
            self.__name__,
            (),
            nothing,
            None,
            found.digest.hex(),
            found,
            function,
            captures=captures,
            state=state,
        )

    def disable_compile(self, val: bool = True) -> None:
        """Disable compiling for other types; with False, enable it again."""
        self._is_closed = bool(val)

    def recompile(self) -> None:
        """Compile all overloads anew, with the present values of globals and closures."""
        known = [(each.types, each._spec.cc) for each in self.overloads.values()]
        self.overloads.clear()
        self._last = None
        is_closed, self._is_closed = self._is_closed, False
        try:
            for types, cc in known:
                self._obtained(types, cc, True)
        finally:
            self._is_closed = is_closed

    @property
    def signatures(self) -> list[Types]:
        """The types of parameters that it was compiled for."""
        return list(self.overloads)

    @property
    def build(self) -> Build:
        """Where its code came from.

        Raises
        ------
        ValueError
            If it is not compiled yet, or for several signatures: see `overloads`.
        """
        return self._only().build

    @property
    def attributes(self) -> dict[str, int]:
        """Resources of its threads and blocks, if it has one overload: see `Overload.attributes`."""
        return self._only().attributes

    def _only(self) -> Overload:
        found = list(self.overloads.values())
        if len(found) != 1:
            how_many = f"for {len(found)} signatures" if found else "for nothing yet"
            raise ValueError(f"{self.__name__}: is compiled {how_many}; see overloads")
        return found[0]

    def max_cooperative_grid_blocks(self, block: Any, shared: int = 0, signature: Any = None) -> int:
        """Return the number of resident blocks on the current device: the limit of a grid that synchronises.

        Parameters
        ----------
        block : int or up to three ints
        shared : int, optional
            Bytes of dynamic shared memory.
        signature : optional
            Of the overload that is meant, if there are several.
        """
        overload = self._only() if signature is None else self.overloads[signature]
        return overload.max_cooperative_grid_blocks(block, shared)


def _lines(op: Operator) -> str:
    """Return a hash of the source positions of a kernel's functions: equal ones may be in several files."""
    assert op.source is not None
    codes = [code for _, code in op.source.codes]
    lines = [(each.co_filename, each.co_firstlineno, each.co_linetable) for each in codes]
    return sha256(repr(lines).encode("utf-8", "surrogateescape")).hexdigest()[:20]


_ALLOWED = ("it raises an exception", "it asserts something")  # which end a thread, as with numba.cuda


def _is_device_there() -> bool:
    """Whether there is a GPU to compile for, or an observer names a compute capability."""
    if (observer := obtaining.observed()) is not None and observer.cc is not None:
        return True
    try:
        driver.library()
    except driver.NoDeviceError:
        return False
    return True


def _parameters(function: FunctionType) -> Sequence[str]:
    found = inspect.signature(function).parameters
    for each in found.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.KEYWORD_ONLY):
            raise ArgumentTypeError(
                "function", f"parameter {each} of kernel {function.__name__}: write parameters by position"
            )
    return tuple(found)
