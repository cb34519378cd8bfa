"""Kernels written in Python: `jit` takes what ``numba.cuda.jit`` takes, and builds each kernel once.

>>> import cupar
>>> from cupar import cuda
>>> @cupar.jit
... def scale(x, out, factor):
...     i = cuda.grid(1)
...     if i < x.size:
...         out[i] = factor * x[i]
>>> scale.compile("void(float32[::1], float32[::1], float64)", cc=90).build.algorithm
'kernel'
>>> scale[128, 256](d_in, d_out, 2.0)                                       # doctest: +SKIP
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, overload

from ._arguments.order import ordered
from ._base.causes import NumbaType, brief
from ._base.data import Recent
from ._base.errors import ArgumentTypeError, ArgumentValueError
from ._jit.configuration import Configuration, integer
from ._jit.dispatcher import Dispatcher
from ._jit.options import checked
from ._jit.overloads import Types
from ._jit.signatures import is_signature, text_of, type_of
from ._jit.site import Launcher, LaunchSite

if TYPE_CHECKING:
    from ._base.annotations import ComputeCapability, Stream
    from ._jit.bound import BoundKernel

__all__ = ["DeviceFunction", "Kernel", "jit"]

_MOST_SITES = 512  # configurations that a kernel remembers
_FEW = 2  # signatures, which are shown


@overload
def jit(
    function: Callable[..., Any],
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    device: Literal[True],
    **options: Any,
) -> DeviceFunction: ...
@overload
def jit(
    function: Callable[..., Any],
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    device: Literal[False] = False,
    **options: Any,
) -> Kernel: ...
@overload
def jit(
    function: str | Sequence[Any] | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    device: Literal[True],
    **options: Any,
) -> Callable[[Callable[..., Any]], DeviceFunction]: ...
@overload
def jit(
    function: str | Sequence[Any] | None = None,
    *,
    cc: ComputeCapability = None,
    wait: bool = True,
    device: Literal[False] = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def jit(function: Any = None, *, cc: Any = None, wait: bool = True, **options: Any) -> Any:
    """Make a kernel of a Python function, as ``numba.cuda.jit`` does.

    Parameters
    ----------
    function : function or signatures, optional
        The decorated function; or the signature of the kernel, or a list of them, as in
        ``"void(float32[:], int64)"``: these are compiled at once if there is a GPU or `cc`, and no others.
    cc : int, pair of int or str, optional
        Compute capability to compile signatures for, as in 90, (9, 0), "9.0" or "sm_90"; by default the
        current device's. With it, no GPU is needed.
    wait : bool, optional
        False: compile signatures in the background.
    fastmath : bool, optional
        Whether floats may be computed with less care.
    max_registers : int, optional
        Registers that a thread may use at most.
    launch_bounds : int or tuple of int, optional
        Threads of a block at most; blocks of a multiprocessor at least; blocks of a cluster at most.
    shared_memory_carveout : int or str, optional
        Percentage of the on-chip memory that is to be shared memory, or ``"default"``, ``"maxl1"``,
        ``"maxshared"``.
    link : path, linkable code or a list of these, optional
        Code from elsewhere, beside what the functions that the kernel calls bring: files (``.cu``, ``.ptx``,
        ``.ltoir``, ``.cubin``, ``.fatbin``, ``.o``, ``.a``), ``cuda.CUSource``, ``cuda.LTOIR`` and the like
        of numba.cuda, an ``ObjectCode`` of cuda.core. The key holds their content.
    lineinfo : bool, optional
        Whether profilers shall know the source lines. File names are part of the key then.
    opt : bool, optional
        False: compile without numba's optimisations.
    device : bool, optional
        True: return a device function, for kernels and operators to call. Functions without any decorator
        will do as well. If it has signatures, what it is called with is converted to one of them.
    inline, forceinline : optional
        Of device functions, as numba.cuda has it.
    cache, lto : bool, optional
        Kernels are always cached, and linked with their device functions.

    Returns
    -------
    Kernel
        Or a decorator that returns one.

    Raises
    ------
    TypeError, ValueError
        If an option is unknown or invalid, or a signature is invalid; and whatever compiling raises.

    Examples
    --------
    >>> import cupar
    >>> from cupar import cuda
    >>> @cupar.jit(fastmath=True)
    ... def scale(x, factor):
    ...     i = cuda.grid(1)
    ...     if i < x.size:
    ...         x[i] *= factor
    >>> scale.compile("void(float32[::1], float64)", cc=90).build.cc
    90
    >>> scale[128, 256](d_x, 2.0)                                               # doctest: +SKIP
    """
    if function is None or is_signature(function) or isinstance(function, list):
        declared = function

        def decorate(function: Any) -> Any:
            return _made(function, declared, cc, wait, options)

        return decorate
    return _made(function, None, cc, wait, options)


@brief
def _made(function: Any, declared: Any, cc: Any, wait: bool, options: Mapping[str, Any]) -> Any:
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        raise ArgumentTypeError("function", f"expected a Python function, got {type(function).__name__}")
    is_device, own = checked(options)
    if is_device:
        if declared is not None:
            every = declared if isinstance(declared, list) else [declared]
            own["signatures"] = tuple(map(text_of, every))
        return DeviceFunction(function, own)
    for name in ("inline", "forceinline"):
        own.pop(name, None)  # of device functions
    return Kernel(function, own, declared, cc, wait)


class DeviceFunction:
    """A function for kernels and operators to call, with options. Made by ``jit(device=True)``."""

    def __init__(self, function: FunctionType, options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.targetoptions: dict[str, Any] = {**options, "device": True}
        self.__defaults__: tuple[Any, ...] | None = function.__defaults__
        self._can_compile = True

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the function in Python."""
        return self.py_func(*arguments, **named)


class Kernel(Dispatcher):
    """A kernel in Python. Made by `jit`.

    ``kernel[grid, block](*arguments)`` launches it, and so does ``kernel[grid, block, stream, shared](…)``:
    blocks, and threads in each, are an int or up to three; `stream` is a handle, a stream of CuPy, PyTorch,
    Numba or cuda.core, or None, which each launch takes as calls of an `Algorithm` do: the current stream of
    the library of its arrays; `shared` is bytes of dynamic shared memory.

    Arguments are device arrays of CuPy, PyTorch, Numba, or with ``__cuda_array_interface__`` or DLPack, of
    any strides; numbers, NumPy's too; tuples, values of `gpu_struct` classes, members of enums, and Numba's
    records in device memory. It is compiled once for each tuple of their types and compute capability, and
    found in the cache after that.

    Functions that it calls, and what it reads from outside, are constants as of when it is compiled.

    Attributes
    ----------
    py_func : function
    targetoptions : dict
        The options that it was given.
    overloads : mapping
        What was compiled, by signature: see `Overload`.
    specializations : dict
        What `specialize` has made, by types.
    """

    def __init__(
        self, function: FunctionType, options: Mapping[str, Any], declared: Any, cc: Any, wait: bool
    ) -> None:
        super().__init__(function, options, declared, cc, wait)
        self._sites: Recent[Any, Launcher] = Recent(_MOST_SITES)
        self.specializations: dict[Types, Kernel] = {}

    @NumbaType
    def _numba_type_(self) -> Any:
        """Return its numba type, for compiled host code."""
        from ._host import kernels

        return kernels.type_of(self)

    def __repr__(self) -> str:
        signatures = [f"({', '.join(map(str, types))})" for types in self.overloads]
        some = [f"{len(signatures)} signatures"] if len(signatures) > _FEW else signatures
        compiled = ", compiled for " + " and ".join(some) if some else ""
        return f"<cupar kernel {self.__name__}({', '.join(self.names)}){compiled}>"

    def _repr_html_(self) -> str:
        from ._base import html

        title = f"kernel {self.__name__}({', '.join(self.names)})"
        columns, rows = self.overloads._table()
        return html.table(title if rows else f"{title}, not compiled yet", columns, rows)

    def __reduce__(self) -> Any:
        raise TypeError("a kernel is not pickled or copied: import it in the other process")

    def __call__(self, *arguments: Any, **named: Any) -> None:
        """Refuse: a kernel is launched with a grid.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(f"{self.__name__} is a kernel: launch it as {self.__name__}[grid, block](...)")

    # --- Launching ---------------------------------------------------------------------------------------

    def __getitem__(self, configuration: Any) -> Launcher:
        """Return the function that launches it with some arguments.

        Raises
        ------
        TypeError, ValueError
            If a grid or block is invalid, zero or over every device's limit, or the stream is invalid.
        """
        try:
            return self._sites[configuration]
        except (KeyError, TypeError):  # a list cannot be hashed
            if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
                raise TypeError(
                    f"{self.__name__}: expected [grid, block], [grid, block, stream] or "
                    f"[grid, block, stream, shared], got {configuration!r}"
                ) from None
            return self._site(configuration, configuration)

    def configure(
        self,
        grid: Any,
        block: Any,
        stream: Stream = None,
        shared: int = 0,
        *,
        cluster: Any = None,
        overlaps: bool = False,
    ) -> Launcher:
        """Return the function that launches it, as ``kernel[grid, block, stream, shared]`` does.

        Parameters
        ----------
        grid, block, stream, shared
            As there.
        cluster : int or up to three ints, optional
            Blocks of a cluster, from compute capability 9.0 on.
        overlaps : bool, optional
            Whether it begins before the kernel before it on the stream ends, for which it waits itself: a
            programmatic dependent launch, from compute capability 9.0 on.

        Raises
        ------
        TypeError, ValueError
            If one of them is invalid, zero or over every device's limit.
        """
        key = grid, block, stream, shared, cluster, overlaps
        try:
            return self._sites[key]
        except (KeyError, TypeError):
            return self._site(key, (grid, block, stream, shared), cluster, overlaps)

    def _site(
        self, key: Any, given: tuple[Any, ...], cluster: Any = None, overlaps: bool = False
    ) -> Launcher:
        grid, block = given[:2]
        stream, shared = given[2] if len(given) > 2 else None, given[3] if len(given) > 3 else 0
        config = Configuration(grid, block, shared, cluster, overlaps)

        def remember(launch: Launcher) -> None:
            with suppress(TypeError):  # it cannot be hashed
                self._sites[key] = launch

        site = LaunchSite(self, config, stream, remember)
        last = self._last
        if last is not None and last.is_loaded_here():
            last.loaded.check(config)
            launch = site.launcher(last)
        else:
            launch = site.first()
        remember(launch)
        return launch

    def once(self, grid: Any, block: Any, stream: Stream, shared: int = 0) -> Launcher:
        """Do what `configure` does, and do not remember it."""
        return LaunchSite(self, Configuration(grid, block, shared), stream, lambda launch: None).first()

    def forall(self, ntasks: int, tpb: int = 0, stream: Stream = None, sharedmem: int = 0) -> Launcher:
        """Return its launch with at least `ntasks` threads, in blocks that make the most of the card.

        Parameters
        ----------
        ntasks : int
            Threads; of 0, nothing is launched. The kernel must do nothing in threads beyond them.
        tpb : int, optional
            Threads in each block.
        stream : optional
            As for a launch.
        sharedmem : int, optional
            Bytes of dynamic shared memory.
        """
        count, tpb = integer("ntasks", ntasks), integer("tpb", tpb or 0)
        if count < 0:
            raise ArgumentValueError("ntasks", f"expected 0 or more, got {count}")

        def launch(*arguments: Any, **named: Any) -> None:
            if count == 0:
                return
            every = ordered(self.__name__, self.names, arguments, named)
            block = tpb or self.overload_for(every).best_block(sharedmem)
            self[-(-count // block), block, stream, sharedmem](*every)

        return launch

    def bind(
        self,
        grid: Any,
        block: Any,
        *arguments: Any,
        stream: Stream = None,
        shared: int = 0,
        cluster: Any = None,
    ) -> BoundKernel:
        """Bind a launch with all of its arguments: a call only enqueues.

        Parameters
        ----------
        grid, block : int or tuple of int
            Blocks, and threads in each.
        stream, shared, cluster : optional
            The stream, bytes of dynamic shared memory, and blocks of a cluster.
        *arguments
            The kernel's.

        Returns
        -------
        BoundKernel
            Calling it launches the kernel again; it keeps the arrays alive.
        """
        config = Configuration(grid, block, shared, cluster)
        from ._jit.bound import BoundKernel

        return BoundKernel(LaunchSite(self, config, stream, lambda launch: None), arguments)

    def specialize(self, *arguments: Any) -> Kernel:
        """Return a kernel for the types of these arguments alone, compiled for the current device.

        Parameters
        ----------
        *arguments
            The kernel's, or their types, in any way in which `compile` takes them.
        """
        types = tuple(type_of(name, each) for name, each in zip(self.names, arguments, strict=True))
        found = self.specializations.get(types)
        if found is None:
            found = Kernel(self.py_func, self.targetoptions, types, None, True)
            self.specializations[types] = found
        return found

    def recompile(self) -> None:
        """Compile all overloads anew, with the present values of globals and closures."""
        self._sites.clear()
        super().recompile()
