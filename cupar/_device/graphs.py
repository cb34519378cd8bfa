"""Parts of graphs: nodes, their order, and a graph under construction."""

from __future__ import annotations

import graphlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from .._base.data import dataclass
from .._base.errors import ArgumentTypeError, ArgumentValueError
from . import arrays, streams

# --- Nodes -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """One step of a graph. Made by `call`, `kernel`, `copy`, `memset` and `host`, not by its constructor.

    No graph changes its nodes, so several graphs may be made of the same ones.

    Attributes
    ----------
    label : str
        The kind of node, as in ``"copy"``.
    name : str or None
        None: the graph gives it its label for a name, or ``"copy 2"`` where that is taken.
    after : tuple of (Node or str), or None
        What it comes after; None: the node that is given before it.
    """

    label: str
    name: str | None
    after: tuple[Node | str, ...] | None
    _add: Callable[[GraphBuilder, str], Any]  # to a definition, under a name; returns cuda.core's node
    _arguments: tuple[Any, ...] = ()  # its arrays, among others

    def __repr__(self) -> str:
        return f"<cupar.graph node {self.name or 'without name'!r}: {self.label}>"


Node.__module__ = "cupar.graph"  # where users find it

After = Node | str | Iterable[Node | str] | None


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Name the node in errors that the block raises."""
    try:
        yield
    except Exception as error:
        kind = next((each for each in (TypeError, ValueError) if isinstance(error, each)), RuntimeError)
        raise kind(f"node {name!r}: {error}") from error


def new_node(
    label: str,
    name: Any,
    after: Any,
    add: Callable[[GraphBuilder, str], Any],
    arguments: tuple[Any, ...] = (),
) -> Node:
    """Make a node; raise TypeError if its name or a predecessor is invalid."""
    with naming(name or label):
        if name is not None and (not isinstance(name, str) or not name):
            raise ArgumentTypeError("name", f"expected a str that is not empty, got {name!r}")
        if after is not None:
            after = (after,) if isinstance(after, (Node, str)) else tuple(after)
            wrong = [each for each in after if not isinstance(each, (Node, str))]
            if wrong:
                raise ArgumentTypeError("after", f"expected nodes or names of nodes, got {wrong[0]!r}")
    return Node(label, name, after, add, arguments)


def by_name(nodes: Iterable[Node]) -> dict[str, Node]:
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


def wiring(named: Mapping[str, Node]) -> dict[str, tuple[str, ...]]:
    """Return each node's predecessors, in an order to add them; raise ValueError for a cycle."""
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


# --- Arrays and values -----------------------------------------------------------------------------------


def view(name: str, array: Any, output: bool = False) -> arrays.ArrayView:
    """Read an array on the host or the device; raise TypeError or ValueError if it cannot be used."""
    if isinstance(array, np.ndarray):
        flags = array.flags
        order = flags.contiguous, flags.writeable, flags.c_contiguous
        found = arrays.ArrayView(array.ctypes.data, array.size, array.dtype, *order)
    else:
        found = arrays.view(name, array)
    if not found.c_order:
        raise ArgumentValueError(name, "expected a C-contiguous array, got a strided one")
    if output and not found.writable:
        raise ArgumentValueError(name, "expected an array to write to, got a read-only one")
    return found


def item_bytes(value: Any, dtype: np.dtype[Any]) -> bytes:
    """Return the bytes of a value as an item of `dtype`; raise TypeError or ValueError if it is not one."""
    try:
        item = np.array(value, dtype)
    except OverflowError as error:
        raise ArgumentValueError("value", str(error)) from None
    if item.shape != () or (dtype.kind in "biu" and item != value):
        raise ArgumentValueError("value", f"expected one value of {dtype}, got {value!r}")
    return item.tobytes()


def numba_array(argument: Any, site: GraphBuilder) -> Any:
    """Return a kernel's argument, other libraries' arrays as numba's own.

    Left to itself, numba gets them by DLPack for the stream of the launch, and they make that wait for their
    own stream: a stream that is captured cannot.
    """
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is None or hasattr(argument, "__cuda_ndarray__"):  # which numba's have
        return argument
    from .._numba import cuda

    site.lent.append(interface)
    return cuda.from_cuda_array_interface(interface, owner=argument, sync=False)


# --- Graphs ----------------------------------------------------------------------------------------------


class GraphBuilder:
    """A graph definition under construction, the temporary storage of its calls by node, and lent owners."""

    def __init__(self, stream: Any, spare: Mapping[str, Any]) -> None:
        from cuda.core.graph import GraphDefinition

        self.definition = GraphDefinition()
        self.storage: dict[str, Any] = {}
        self.lent: list[Any] = []  # owners of arrays' memory, other than the arrays
        self._stream = stream
        self._spare = spare

    def add(self, nodes: Mapping[str, Node], wires: Mapping[str, tuple[str, ...]]) -> None:
        added: dict[str, Any] = {}
        for name, before in wires.items():
            with naming(name):
                added[name] = nodes[name]._add(self, name)
                if before:
                    added[name].pred.update(*(added[other] for other in before))
        self._stream.sync()  # storage was allocated in its order, and is used in that of others

    def capture(self, enqueue: Callable[[Any], Any]) -> Any:
        """Add all that `enqueue` puts on a stream as a child graph."""
        builder = self._stream.create_graph_builder()
        try:
            # Relaxed: what other threads and libraries do meanwhile must not end this capture.
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


class GraphResources:
    """Resources of a graph, until it is closed or garbage."""

    def __init__(self, stream: Any, last_launch: Any, site: GraphBuilder, nodes: Mapping[str, Node]) -> None:
        self.stream = stream
        self.last_launch = last_launch  # an event
        self.use(site, nodes)
        self.executable = site.definition.instantiate()

    def use(self, site: GraphBuilder, nodes: Mapping[str, Node]) -> None:
        """Have what was built of some nodes."""
        self.definition, self.storage, self.lent = site.definition, site.storage, site.lent
        self.nodes = nodes
        self.ask_for_stream = streams.ask_of(*[each._arguments for each in nodes.values()])

    def let_go(self) -> None:
        try:
            self.last_launch.sync()  # until then, the GPU may use all of it
        finally:
            self.executable.close()
            self.__dict__.clear()
