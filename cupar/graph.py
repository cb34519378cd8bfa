"""CUDA graphs of cupar's calls, numba.cuda kernels, copies, memsets and functions of the host.

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

A node says what is to be done and after which other nodes; it belongs to no graph, and needs no GPU. `Graph`
makes one of cuda.core's graphs of them: a ``cuda.core.graph.GraphDefinition`` and the executable
``cuda.core.graph.Graph``, which it has for attributes.

A node comes after the one that was given before it, or after those in its ``after=``: nodes, or names of
nodes, be they given later. ``after=()`` is for a node that waits for no other.
"""

from __future__ import annotations

import graphlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._device import arrays, driver

# --- Nodes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One step of a graph. Made by `call`, `kernel`, `copy`, `memset` and `host`, not by its constructor.

    No graph changes its nodes, so several graphs may be made of the same ones.

    Attributes
    ----------
    label : str
        What it does, as in ``"copy"``.
    name : str or None
        None: the graph gives it its label for a name, or ``"copy 2"`` where that is taken.
    after : tuple of (Node or str), or None
        What it comes after; None: the node that is given before it.
    """

    label: str
    name: str | None
    after: tuple[Node | str, ...] | None
    _add: Callable[[_Site, str], Any]  # to a definition, under a name; returns cuda.core's node

    def __repr__(self) -> str:
        return f"<cupar.graph node {self.name or 'without name'!r}: {self.label}>"


After = Node | str | Iterable[Node | str] | None


def call(algorithm: Any, *arguments: Any, name: str | None = None, after: After = None, **named: Any) -> Node:
    """Describe a call of an algorithm.

    Parameters
    ----------
    algorithm : Algorithm
        What a factory such as `reduce_into` returned.
    *arguments, **named
        Those of its call, without temporary storage, which the graph has, and without stream. The graph
        keeps device arrays alive, those that operators capture excepted. What is on the host, such as
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
        If `algorithm` is none. What is wrong with its arguments is found when a graph is built.

    Examples
    --------
    >>> import numpy as np, cupar
    >>> from cupar import graph
    >>> double = cupar.unary_transform(np.float32, np.float32, lambda a: a + a, cc=90)
    >>> graph.call(double, np.float32, np.float32, 1000, name="twice")
    <cupar.graph node 'twice': unary_transform>
    """
    with _naming(name or "call"):
        if not callable(algorithm) or not hasattr(algorithm, "build"):
            raise TypeError(f"expected an algorithm as reduce_into and others return it, got {algorithm!r}")

    def add(site: _Site, name: str) -> Any:
        if type(algorithm).run is type(algorithm).__call__:  # it needs no temporary storage
            algorithm.load()  # and not during the capture
            return site.capture(lambda stream: algorithm(*arguments, **named, stream=stream))
        storage = site.temporary_storage(name, algorithm(None, *arguments, **named))
        return site.capture(lambda stream: algorithm(storage, *arguments, **named, stream=stream))

    return _node(algorithm.build.algorithm, name, after, add)


def kernel(
    numba_kernel: Any,
    grid: Any,
    block: Any,
    *arguments: Any,
    shared: int = 0,
    name: str | None = None,
    after: After = None,
) -> Node:
    """Describe a launch of a kernel that ``numba.cuda.jit`` made.

    Parameters
    ----------
    numba_kernel : numba.cuda dispatcher
        The kernel itself, without ``[grid, block]``. If it has to be compiled, it is when the graph is built.
    grid, block : int or tuple of int
        Blocks, and threads in each.
    *arguments
        Device arrays with ``__cuda_array_interface__``, which the graph keeps alive, and values, which are
        read when the graph is built and updated. No arrays on the host.
    shared : int, optional
        Bytes of dynamic shared memory.
    name, after
        As for `call`.

    Returns
    -------
    Node

    Raises
    ------
    TypeError
        If `numba_kernel` is none, or an argument is an array on the host.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.kernel(scale, 128, 256, d_in, 2.0, after="upload")        # doctest: +SKIP
    <cupar.graph node 'without name': scale>
    """
    with _naming(name or "kernel"):
        if not hasattr(numba_kernel, "typeof_pyval"):
            kind = type(numba_kernel).__name__
            raise TypeError(f"expected what @numba.cuda.jit made, without [grid, block], got a {kind}")
        for i, argument in enumerate(arguments):
            # numba.cuda.In, Out and InOut have the array for their value.
            if isinstance(getattr(argument, "value", argument), (np.ndarray, np.void)):
                raise TypeError(f"argument {i} is on the host; pass a device array, and add a copy node")

    def add(site: _Site, name: str) -> Any:
        on_device = [_numba_array(argument) for argument in arguments]
        if getattr(numba_kernel, "_can_compile", True):  # else it was, for the signatures it was given
            numba_kernel.compile(tuple(numba_kernel.typeof_pyval(argument) for argument in on_device))
        return site.capture(lambda stream: numba_kernel[grid, block, stream, shared](*on_device))

    return _node(getattr(numba_kernel, "__name__", "kernel"), name, after, add)


def _numba_array(argument: Any) -> Any:
    """Return a kernel's argument, other libraries' arrays as numba's own.

    Left to itself, numba gets them by DLPack for the stream of the launch, and they make that wait for their
    own stream: a stream that is captured cannot.
    """
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None or hasattr(argument, "__cuda_ndarray__"):  # which numba's have
        return argument
    from numba import cuda

    return cuda.from_cuda_array_interface(interface, owner=argument, sync=False)


def copy(dst: Any, src: Any, *, name: str | None = None, after: After = None) -> Node:
    """Describe a copy: host to device, device to host or device to device, as the arrays have it.

    Parameters
    ----------
    dst, src : numpy.ndarray or device array
        Of the same dtype and number of items, C-contiguous, and not both on the host. The graph keeps both
        alive.
    name, after
        As for `call`.

    Returns
    -------
    Node

    Raises
    ------
    TypeError, ValueError
        If they are none of the above, or `dst` is read-only.

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

    def ends() -> tuple[arrays.View, arrays.View]:
        if isinstance(dst, np.ndarray) and isinstance(src, np.ndarray):
            raise TypeError("dst and src are both on the host; this is for copies to and from the device")
        to, of = _view("dst", dst, output=True), _view("src", src)
        if to.dtype != of.dtype and not arrays.same_layout("dst", to.dtype, of.dtype):
            raise TypeError(f"dst has items of {to.dtype}, src of {of.dtype}; a copy converts nothing")
        if to.size != of.size:
            raise ValueError(f"dst has {to.size} items, src {of.size}; give slices of the same size")
        return to, of

    def add(site: _Site, name: str) -> Any:
        from cuda.core import Buffer

        to, of = ends()
        nbytes = to.size * to.dtype.itemsize
        if nbytes == 0:
            return site.definition.empty()
        target = Buffer.from_handle(to.address, nbytes, owner=dst)
        source = Buffer.from_handle(of.address, nbytes, owner=src)
        # Captured, as GraphDefinition.memcpy takes pageable memory for the device's.
        return site.capture(lambda stream: source.copy_to(target, stream=stream))

    with _naming(name or "copy"):
        ends()
    return _node("copy", name, after, add)


def memset(dst: Any, value: Any, *, name: str | None = None, after: After = None) -> Node:
    """Describe setting all items of a device array to one value.

    Parameters
    ----------
    dst : device array
        C-contiguous. The graph keeps it alive.
    value : number
        The GPU repeats 1, 2 or 4 bytes. So for dtypes of more bytes it must be a value whose bytes repeat,
        such as 0, or -1 for integers.
    name, after
        As for `call`.

    Returns
    -------
    Node

    Raises
    ------
    TypeError, ValueError
        If `dst` is none of the above or read-only, or `value` is impossible.

    Examples
    --------
    >>> from cupar import graph
    >>> graph.memset(d_counts, 0, after=())        # doctest: +SKIP
    <cupar.graph node 'without name': memset>
    """

    def fill() -> tuple[int, bytes, int]:
        if isinstance(dst, np.ndarray):
            raise TypeError("dst: expected a device array, got a NumPy array")
        to = _view("dst", dst, output=True)
        item = _item(value, to.dtype)
        for width in (4, 2, 1):
            times, rest = divmod(len(item), width)
            if rest == 0 and item == item[:width] * times:
                return to.address, item[:width], to.size * times
        raise ValueError(
            f"value: the bytes of {value!r} as {to.dtype} do not repeat after 1, 2 or 4; "
            "copy from an array that is full of it"
        )

    def add(site: _Site, name: str) -> Any:
        address, item, times = fill()
        return site.definition.memset(address, item, times) if times else site.definition.empty()

    with _naming(name or "memset"):
        fill()
    return _node("memset", name, after, add)


def host(function: Callable[[], Any], *, name: str | None = None, after: After = None) -> Node:
    """Describe a call of a Python function while the graph runs.

    Parameters
    ----------
    function : callable
        Without arguments. It must not use CUDA, which would wait for it. What it raises is printed with the
        node's name, and the graph runs on.
    name, after
        As for `call`.

    Returns
    -------
    Node

    Raises
    ------
    TypeError
        If `function` is none.

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
    with _naming(name or "host"):
        if not callable(given):
            raise TypeError(f"expected a function, got {type(given).__name__}")

    def add(site: _Site, name: str) -> Any:
        def run() -> None:
            with _naming(name):
                function()

        return site.definition.callback(run)

    return _node("host", name, after, add)


def _view(name: str, array: Any, output: bool = False) -> arrays.View:
    """Read an array on the host or the device; raise TypeError or ValueError if it cannot be used."""
    if isinstance(array, np.ndarray):
        flags = array.flags
        order = flags.contiguous, flags.writeable, flags.c_contiguous
        found = arrays.View(array.ctypes.data, array.size, array.dtype, *order)
    else:
        found = arrays.view(name, array)
    if not found.c_order:
        raise ValueError(f"{name}: expected a C-contiguous array, got a strided one")
    if output and not found.writable:
        raise ValueError(f"{name}: expected an array to write to, got a read-only one")
    return found


def _item(value: Any, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of a value as an item of `dtype`; raise TypeError or ValueError if it is not one."""
    try:
        item = np.array(value, dtype)
    except OverflowError as error:
        raise ValueError(f"value: {error}") from None
    if item.shape != () or (dtype.kind in "biu" and item != value):
        raise ValueError(f"value: expected one value of {dtype}, got {value!r}")
    return item.tobytes()


# --- Wiring ----------------------------------------------------------------------------------------------


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the node in what the block raises."""
    try:
        yield
    except Exception as error:
        kind = next((each for each in (TypeError, ValueError) if isinstance(error, each)), RuntimeError)
        raise kind(f"node {name!r}: {error}") from error


def _node(label: str, name: Any, after: Any, add: Callable[[_Site, str], Any]) -> Node:
    """Make a node; raise TypeError if its name or what it comes after is none."""
    with _naming(name or label):
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"name: expected a str that is not empty, got {name!r}")
        if after is not None:
            after = (after,) if isinstance(after, (Node, str)) else tuple(after)
            wrong = [each for each in after if not isinstance(each, (Node, str))]
            if wrong:
                raise TypeError(f"after: expected nodes or names of nodes, got {wrong[0]!r}")
    return Node(label, name, after, add)


def _by_name(nodes: Iterable[Node]) -> dict[str, Node]:
    """Give each node the name it has in a graph; raise TypeError or ValueError."""
    nodes = tuple(nodes)
    for i, node in enumerate(nodes):
        if not isinstance(node, Node):
            raise TypeError(f"expected nodes, got {type(node).__name__} at {i}")
        for other in nodes[:i]:
            if node is other:
                raise ValueError(f"node {node.name or node.label!r}: it is given twice")
            if node.name is not None and node.name == other.name:
                raise ValueError(f"node {node.name!r}: another node has this name, too")
    taken = {node.name for node in nodes}
    named: dict[str, Node] = {}
    for node in nodes:
        name, number = node.name or node.label, 1
        while name in named or (node.name is None and name in taken):
            number += 1
            name = f"{node.label} {number}"
        named[name] = node
    return named


def _wiring(named: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """Return what each node comes after, in an order to add them; raise ValueError if there is none."""
    names: dict[Node | str, str] = {node: name for name, node in named.items()}
    names.update((name, name) for name in named)
    wires: dict[str, tuple[str, ...]] = {}
    before: tuple[str, ...] = ()
    for name, node in named.items():
        if node.after is not None:
            for other in node.after:
                if other not in names:
                    unknown = other if isinstance(other, str) else other.name or other.label
                    has = ", ".join(named)
                    raise ValueError(
                        f"node {name!r}: after: {unknown!r} is not in the graph, which has {has}"
                    )
            before = tuple(dict.fromkeys(names[other] for other in node.after))
        wires[name] = before
        before = (name,)
    try:
        return {name: wires[name] for name in graphlib.TopologicalSorter(wires).static_order()}
    except graphlib.CycleError as error:
        cycle = error.args[1]
        circle = " before ".join(map(repr, cycle))
        raise ValueError(f"node {cycle[0]!r}: after: nodes wait for one another, {circle}") from None


# --- Graphs ----------------------------------------------------------------------------------------------


class _Site:
    """A definition under construction, and the temporary storage of its calls, by node."""

    def __init__(self, stream: Any, spare: Mapping[str, Any]) -> None:
        from cuda.core.graph import GraphDefinition

        self.definition = GraphDefinition()
        self.storage: dict[str, Any] = {}
        self._stream = stream
        self._spare = spare

    def add(self, nodes: Mapping[str, Node], wires: Mapping[str, tuple[str, ...]]) -> None:
        added: dict[str, Any] = {}
        for name, before in wires.items():
            with _naming(name):
                added[name] = nodes[name]._add(self, name)
                if before:
                    added[name].pred.update(*(added[other] for other in before))
        self._stream.sync()  # storage was allocated in its order, and is used in that of others

    def capture(self, enqueue: Callable[[Any], Any]) -> Any:
        """Add what is enqueued on a stream as a child graph."""
        builder = self._stream.create_graph_builder()
        try:
            # Relaxed: what other threads and libraries do meanwhile is no concern of this capture.
            builder.begin_building("relaxed")
            enqueue(builder.stream)
            child = builder.end_building().graph_definition
        except BaseException:
            with suppress(Exception):  # of a capture that is invalid; what made it so is being raised
                builder.close()
            raise
        builder.close()
        return self.definition.embed(child)

    def temporary_storage(self, name: str, nbytes: int) -> Any:
        buffer = self._spare.get(name)
        if buffer is None or buffer.size < nbytes:
            buffer = self._stream.device.allocate(max(nbytes, 1), stream=self._stream)
        self.storage[name] = buffer
        return buffer


class _Held:
    """What a graph has, until it is closed or nobody has the graph."""

    def __init__(self, stream: Any, last_launch: Any, site: _Site, nodes: Mapping[str, Node]) -> None:
        self.stream = stream
        self.last_launch = last_launch  # an event
        self.definition, self.storage, self.nodes = site.definition, site.storage, nodes
        self.executable = site.definition.instantiate()

    def let_go(self) -> None:
        try:
            self.last_launch.sync()  # until then, the GPU may use all of it
        finally:
            self.executable.close()
            self.__dict__.clear()


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
        named = _by_name(nodes)
        self._wires = _wiring(named)
        ordinal = driver.current_device().ordinal
        from cuda.core import Device, Stream

        device = Device(ordinal)
        device.set_current()
        stream = device.create_stream()
        site = _Site(stream, {})
        site.add(named, self._wires)
        self._as_stream = Stream.from_handle
        self._held = _Held(stream, device.create_event(), site, named)
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

    def launch(self, stream: Any = None) -> None:
        """Enqueue all nodes on a stream.

        Parameters
        ----------
        stream : optional
            None (the default stream), a handle, or a stream of CuPy, PyTorch, Numba or cuda.core.

        Raises
        ------
        TypeError
            If `stream` is none.
        RuntimeError
            If the graph is closed.
        """
        held = self._open()
        target = self._as_stream(driver.stream_handle(stream))
        held.executable.launch(target)
        target.record(held.last_launch)

    def update(self, *nodes: Node) -> bool:
        """Have later launches use other arrays, numbers of items, values or functions.

        It waits for launches that have not finished, as it lets go of what they use. If it raises, the graph
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
        for name, node in _by_name(nodes).items():
            if node.name not in held.nodes:
                raise ValueError(f"node {name!r}: the graph has none of this name, but {', '.join(changed)}")
            if node.after is not None:
                raise ValueError(f"node {name!r}: after: wiring cannot be updated")
            changed[name] = node
        site = _Site(held.stream, held.storage)
        site.add(changed, self._wires)
        held.last_launch.sync()
        in_place = True
        try:
            held.executable.update(site.definition)
        except Exception:  # cuda.core has no class for this
            executable = site.definition.instantiate()
            held.executable.close()
            held.executable, in_place = executable, False
        held.definition, held.storage, held.nodes = site.definition, site.storage, changed
        return in_place

    def close(self) -> None:
        """Wait for launches that have not finished, destroy the graph, and let go of what its nodes use."""
        self._close()

    def _open(self) -> _Held:
        if not self._close.alive:
            raise RuntimeError("this graph is closed")
        return self._held

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
