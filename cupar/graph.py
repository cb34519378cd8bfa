"""CUDA graphs of cupar's calls, kernels, copies, memsets and functions of the host.

>>> from cupar import graph
>>> totals = graph.Graph(                                           # doctest: +SKIP
...     graph.copy(d_in, h_in),
...     graph.call(sum_into, d_in, d_out, len(d_in), h_init, name="sum"),
...     graph.copy(h_out, d_out),
... )
>>> for h_in[:] in batches:                                         # doctest: +SKIP
...     totals.launch(stream)
...     stream.synchronize()
...     print(h_out)

A node is one operation, and names the nodes before it; it belongs to no graph, and needs no GPU. `Graph`
makes one of cuda.core's graphs of them; it has the ``cuda.core.graph.GraphDefinition`` and the executable
``cuda.core.graph.Graph`` as attributes.

A node comes after the one that was given before it, or after those in its ``after=``: nodes, or names of
nodes, be they given later. ``after=()`` is for a node that waits for no other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ._device import arrays, driver, graphs
from ._device.graphs import After, Node

if TYPE_CHECKING:
    from ._base.annotations import Stream

__all__ = ["After", "Graph", "Node", "call", "copy", "host", "kernel", "memset"]


def __dir__() -> list[str]:
    return __all__


# --- Nodes -----------------------------------------------------------------------------------------------


def call(algorithm: Any, *arguments: Any, name: str | None = None, after: After = None, **named: Any) -> Node:
    """Describe a call of an algorithm.

    Parameters
    ----------
    algorithm : Algorithm
        What a factory such as `reduce_into` returned.
    *arguments, **named
        Those of its call, without temporary storage, which the graph has, and without stream. The graph
        keeps device arrays alive, those that operators capture excepted. Host data, such as
        ``h_init``, is read when the graph is built and updated.
    name : str, optional
        For messages, for the ``after`` of other nodes, and for `Graph.update`.
    after : Node, str or iterable of these, optional
        What this node comes after; by default the node that is given before it.

    Returns
    -------
    Node

    Raises
    ------
    TypeError
        If `algorithm` is not one. Errors of its arguments are found when a graph is built.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> from cupar import graph
    >>> double = cupar.unary_transform(np.float32, np.float32, lambda a: a + a, cc=90)
    >>> graph.call(double, np.float32, np.float32, 1000, name="twice")
    <cupar.graph node 'twice': unary_transform>
    """
    with graphs.naming(name or "call"):
        if not callable(algorithm) or not hasattr(algorithm, "build"):
            raise TypeError(f"expected an algorithm as reduce_into and others return it, got {algorithm!r}")

    def add(site: graphs.GraphBuilder, name: str) -> Any:
        phases = getattr(algorithm, "_in_two_phases", algorithm)
        if phases is algorithm and type(algorithm).run is type(algorithm).__call__:  # it needs no storage
            algorithm.load()  # and not during the capture
            return site.capture(lambda stream: algorithm(*arguments, **named, stream=stream))
        storage = site.temporary_storage(name, phases(None, *arguments, **named))
        return site.capture(lambda stream: phases(storage, *arguments, **named, stream=stream))

    return graphs.new_node(algorithm.build.algorithm, name, after, add, (*arguments, *named.values()))


def kernel(
    numba_kernel: Any,
    grid: Any,
    block: Any,
    *arguments: Any,
    shared: int = 0,
    name: str | None = None,
    after: After = None,
) -> Node:
    """Describe a launch of a kernel that `jit` or ``numba.cuda.jit`` made.

    Parameters
    ----------
    numba_kernel : Kernel or numba.cuda dispatcher
        The kernel itself, without ``[grid, block]``. If it has to be compiled, it is when the graph is built.
    grid, block : int or tuple of int
        Blocks, and threads in each.
    *arguments
        Device arrays, which the graph keeps alive (of a kernel of Numba's with ``__cuda_array_interface__``),
        and values, which are read when the graph is built and updated. No arrays on the host.
    shared : int, optional
        Bytes of dynamic shared memory.
    name : str, optional
        For messages, for the ``after`` of other nodes, and for `Graph.update`.
    after : Node, str or iterable of these, optional
        What this node comes after; by default the node that is given before it.

    Raises
    ------
    TypeError
        If `numba_kernel` is not one, or an argument is an array on the host.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.kernel(scale, 128, 256, d_in, 2.0, after="upload")        # doctest: +SKIP
    <cupar.graph node 'without name': scale>
    """
    with graphs.naming(name or "kernel"):
        is_own = hasattr(numba_kernel, "overload_for")
        if not is_own and not hasattr(numba_kernel, "typeof_pyval"):
            kind = type(numba_kernel).__name__
            raise TypeError(
                f"expected what @cupar.jit or @numba.cuda.jit made, without [grid, block], got a {kind}"
            )
        for i, argument in enumerate(arguments):
            # numba.cuda.In, Out and InOut have the array for their value.
            if isinstance(getattr(argument, "value", argument), (np.ndarray, np.void)):
                raise TypeError(f"argument {i} is on the host; pass a device array, and add a copy node")

    def add(site: graphs.GraphBuilder, name: str) -> Any:
        if is_own:
            numba_kernel.overload_for(arguments).load()  # and not during the capture
            return site.capture(lambda stream: numba_kernel.once(grid, block, stream, shared)(*arguments))
        on_device = [graphs.numba_array(argument, site) for argument in arguments]
        if getattr(numba_kernel, "_can_compile", True):  # else it was, for the signatures it was given
            numba_kernel.compile(tuple(numba_kernel.typeof_pyval(argument) for argument in on_device))
        return site.capture(lambda stream: numba_kernel[grid, block, stream, shared](*on_device))

    return graphs.new_node(getattr(numba_kernel, "__name__", "kernel"), name, after, add, arguments)


def copy(dst: Any, src: Any, *, name: str | None = None, after: After = None) -> Node:
    """Describe a copy: host to device, device to host or device to device, as the arrays have it.

    Parameters
    ----------
    dst, src : numpy.ndarray or device array
        Of the same dtype and number of items, C-contiguous, and not both on the host. The graph keeps both
        alive.
    name : str, optional
        For messages, for the ``after`` of other nodes, and for `Graph.update`.
    after : Node, str or iterable of these, optional
        What this node comes after; by default the node that is given before it.

    Raises
    ------
    TypeError, ValueError
        If they are not such arrays, or `dst` is read-only.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.copy(d_in, h_in, name="upload")        # doctest: +SKIP
    <cupar.graph node 'upload': copy>

    Notes
    -----
    A host array is read or written while the graph runs: between two launches it may be given new contents,
    once the first has finished (synchronise its stream), and the second launch copies those.

    Any NumPy array will do. Pageable memory, which is what NumPy allocates, the driver copies in pieces
    through a buffer of its own, and the thread that launches may have to wait for it. Page-locked memory
    (``cupyx.empty_pinned``, ``numba.cuda.pinned_array``) is copied directly, beside other work.
    """

    def ends() -> tuple[arrays.ArrayView, arrays.ArrayView]:
        if isinstance(dst, np.ndarray) and isinstance(src, np.ndarray):
            raise TypeError("dst and src are both on the host; this is for copies to and from the device")
        to, of = graphs.view("dst", dst, output=True), graphs.view("src", src)
        if to.dtype != of.dtype and not arrays.same_layout("dst", to.dtype, of.dtype):
            raise TypeError(f"dst has items of {to.dtype}, src of {of.dtype}; a copy converts nothing")
        if to.size != of.size:
            raise ValueError(f"dst has {to.size} items, src {of.size}; give slices of the same size")
        return to, of

    def add(site: graphs.GraphBuilder, name: str) -> Any:
        from cuda.core import Buffer

        to, of = ends()
        nbytes = to.size * to.dtype.itemsize
        if nbytes == 0:
            return site.definition.empty()
        site.lent += to.owner, of.owner
        target = Buffer.from_handle(to.address, nbytes, owner=dst)
        source = Buffer.from_handle(of.address, nbytes, owner=src)
        # Captured, as GraphDefinition.memcpy takes pageable memory for the device's.
        return site.capture(lambda stream: source.copy_to(target, stream=stream))

    with graphs.naming(name or "copy"):
        ends()
    return graphs.new_node("copy", name, after, add, (dst, src))


def memset(dst: Any, value: Any, *, name: str | None = None, after: After = None) -> Node:
    """Describe setting all items of a device array to one value.

    Parameters
    ----------
    dst : device array
        C-contiguous. The graph keeps it alive.
    value : number
        The GPU repeats 1, 2 or 4 bytes. So for dtypes of more bytes it must be a value whose bytes repeat,
        such as 0, or -1 for integers.
    name : str, optional
        For messages, for the ``after`` of other nodes, and for `Graph.update`.
    after : Node, str or iterable of these, optional
        What this node comes after; by default the node that is given before it.

    Raises
    ------
    TypeError, ValueError
        If `dst` is not such an array or read-only, or `value` is impossible.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.memset(d_counts, 0, after=())        # doctest: +SKIP
    <cupar.graph node 'without name': memset>
    """

    def fill() -> tuple[arrays.ArrayView, bytes, int]:
        if isinstance(dst, np.ndarray):
            raise TypeError("dst: expected a device array, got a NumPy array")
        to = graphs.view("dst", dst, output=True)
        item = graphs.item_bytes(value, to.dtype)
        for width in (4, 2, 1):
            times, rest = divmod(len(item), width)
            if rest == 0 and item == item[:width] * times:
                return to, item[:width], to.size * times
        raise ValueError(
            f"value: the bytes of {value!r} as {to.dtype} do not repeat after 1, 2 or 4; "
            "copy from an array that is full of it"
        )

    def add(site: graphs.GraphBuilder, name: str) -> Any:
        to, item, times = fill()
        site.lent.append(to.owner)
        return site.definition.memset(to.address, item, times) if times else site.definition.empty()

    with graphs.naming(name or "memset"):
        fill()
    return graphs.new_node("memset", name, after, add, (dst,))


def host(function: Callable[[], Any], *, name: str | None = None, after: After = None) -> Node:
    """Describe a call of a Python function while the graph runs.

    Parameters
    ----------
    function : callable
        Without arguments. It must not use CUDA, which would wait for it. What it raises is printed with the
        node's name, and the graph runs on.
    name : str, optional
        For messages, for the ``after`` of other nodes, and for `Graph.update`.
    after : Node, str or iterable of these, optional
        What this node comes after; by default the node that is given before it.

    Raises
    ------
    TypeError
        If `function` is not callable.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.host(lambda: print("done"), name="report", after=["download", "check"])
    <cupar.graph node 'report': host>

    Notes
    -----
    A function that refers to its own graph keeps it for ever, unless the graph is closed.
    """
    given: Any = function
    with graphs.naming(name or "host"):
        if not callable(given):
            raise TypeError(f"expected a function, got {type(given).__name__}")

    def add(site: graphs.GraphBuilder, name: str) -> Any:
        def run() -> None:
            with graphs.naming(name):
                function()

        return site.definition.callback(run)

    return graphs.new_node("host", name, after, add)


# --- Graphs ----------------------------------------------------------------------------------------------


class Graph:
    """A CUDA graph, built of nodes for the current device, that can be launched any number of times.

    What its nodes use lives as long as the graph: arrays on host and device, algorithms, kernels, functions,
    and temporary storage, which is allocated once. `close`, or leaving a ``with`` block, ends that.

    Parameters
    ----------
    *nodes : Node
        In their order, as far as they do not say themselves what they come after.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        If a node's wiring or arguments are wrong, or CUDA refuses it; the message begins with its name.
        Wiring is checked before CUDA is called.
    NoDeviceError
        If there is no GPU.

    Examples
    --------
    >>> from cupar import graph
    >>> first = graph.host(lambda: None, name="first")
    >>> graph.Graph(first, graph.host(lambda: None, name="second", after="third"))
    Traceback (most recent call last):
        ...
    ValueError: node 'second': after: 'third' is not in the graph, which has first, second

    Notes
    -----
    A graph is for one thread at a time. Its launches run one after another, on whatever streams. It is not
    for streams that are being captured. Calls and kernels are captured while the graph is made or updated:
    then, as in any capture, CUDA lets no thread wait for the whole device (``cudaDeviceSynchronize``).
    """

    def __init__(self, *nodes: Node) -> None:
        named = graphs.by_name(nodes)
        self._wires = graphs.wiring(named)
        ordinal = driver.current_device().ordinal
        from cuda.core import Device, Stream

        device = Device(ordinal)
        device.set_current()
        stream = device.create_stream()
        site = graphs.GraphBuilder(stream, {})
        site.add(named, self._wires)
        self._as_stream = Stream.from_handle
        self._held = graphs.GraphResources(stream, device.create_event(), site, named)
        self._close = weakref.finalize(self, self._held.let_go)
        self._close.atexit = False  # as the process ends, so does all of it

    def __repr__(self) -> str:
        return f"<cupar.graph.Graph: {', '.join(self._held.nodes) if self._close.alive else 'closed'}>"

    @property
    def definition(self) -> Any:
        """The ``cuda.core.graph.GraphDefinition``, for such as its ``debug_dot_print``."""
        return self._open().definition

    @property
    def executable(self) -> Any:
        """The ``cuda.core.graph.Graph``, for such as its ``upload``."""
        return self._open().executable

    def launch(self, stream: Stream = None) -> None:
        """Enqueue all nodes on a stream.

        Parameters
        ----------
        stream : optional
            A handle, or a stream of CuPy, PyTorch, Numba or cuda.core. None: the current stream of PyTorch or
            CuPy, if nodes have arrays of theirs, else the default stream.

        Raises
        ------
        TypeError
            If `stream` is not one.
        ValueError
            If it is None, there are arrays of PyTorch and of CuPy, and the current streams of these differ.
        RuntimeError
            If the graph is closed.
        """
        held = self._open()
        handle = held.ask_for_stream() if stream is None else driver.stream_handle(stream)
        target = self._as_stream(handle)
        held.executable.launch(target)
        target.record(held.last_launch)

    def update(self, *nodes: Node) -> bool:
        """Have later launches use other arrays, numbers of items, values or functions.

        It waits for launches that have not finished, as it releases what they use. If it raises, the graph
        is as it was.

        Parameters
        ----------
        *nodes : Node
            Each takes the place of the node that has its name, and the wiring; they have no ``after`` of
            their own. All others stay, and what they read from the host (``h_init``) is read anew.

        Returns
        -------
        bool
            Whether the executable graph was updated in place. CUDA can do that if the same kinds of work are
            wired in the same way. If not, as when an algorithm has another number of kernels for another
            number of items, there is a new executable graph.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As of `Graph`; ValueError also if there is no node to take the place of.
        """
        held = self._open()
        changed = dict(held.nodes)
        for name, node in graphs.by_name(nodes).items():
            if node.name not in held.nodes:
                raise ValueError(f"node {name!r}: the graph has none of this name, but {', '.join(changed)}")
            if node.after is not None:
                raise ValueError(f"node {name!r}: after: wiring cannot be updated")
            changed[name] = node
        site = graphs.GraphBuilder(held.stream, held.storage)
        site.add(changed, self._wires)
        held.last_launch.sync()
        in_place = True
        try:
            held.executable.update(site.definition)
        except Exception:  # cuda.core has no class for this
            executable = site.definition.instantiate()
            held.executable.close()
            held.executable, in_place = executable, False
        held.use(site, changed)
        return in_place

    def close(self) -> None:
        """Wait for launches that have not finished, destroy the graph, and let go of what its nodes use."""
        self._close()

    def _open(self) -> graphs.GraphResources:
        if not self._close.alive:
            raise RuntimeError("this graph is closed")
        return self._held

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
