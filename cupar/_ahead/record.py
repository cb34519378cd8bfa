"""What a run asked of the factories, as a list that another run, or another machine, can ask for again.

A list is a text file with one JSON object a line. Each is one question: the factory, its arguments by name,
the compute capability and the key of the build that answered it. Of arrays there are the types, of initial
values the values, of iterators the structure. Operators in Python are carried by value where that can be done
(see `_carry`), else by module and name.

**A list is a program.** An operator in it is a pickle, and to ask for it again runs whatever that holds. Read
only lists that you would run as a script.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import inspect
import json
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from .. import _cache, structs
from .._base import fork
from .._base.warnings import warn_once
from .._call.algorithm import Algorithm
from .._compile.key import build_parts, digest
from .._device import arrays
from .._fingerprint import names, walk
from .._ir import nodes
from .._ir.iterator import Iterator
from .._ir.operator import Operator
from .._obtain import call_sites
from ..operators import OpKind, RawOp, resolve
from ..reduce import Determinism
from ..sort import DoubleBuffer, SortOrder

__all__ = ["RecordError", "Recording", "Request", "read", "record"]

FORMAT: Final = 1
_START: Final = b'{"cupar": '  # of every line
_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_NOT_RECORDED: Final = frozenset(("cc", "wait"))  # of a factory's parameters

AnyPath = str | os.PathLike[str]


class RecordError(ValueError):
    """A recorded list, or a line of one, is not what it should be. The message begins with its place."""


# ---------------------------------------------------------------------------------------------------------
# Recording
# ---------------------------------------------------------------------------------------------------------


def record(path: AnyPath | None) -> Recording:
    """Record what is asked of the factories, from now on and in all threads.

    ``cupar.preload(path)`` brings the builds of a list to the device before a program's work starts, and
    ``cupar build path`` makes them, for other compute capabilities too and without a GPU. The environment
    variable ``CUPAR_RECORD`` names a list for a program, and for the processes that it starts, without a
    change to it; processes may share one (by an absolute path, if they run in several directories).

    Parameters
    ----------
    path : path or None
        The list; what it has stays, and what it has not is added. None: record nothing from now on.

    Returns
    -------
    Recording
        At the end of a ``with`` block with it, things are as they were before.

    Raises
    ------
    TypeError
        If `path` is something else.

    Warns
    -----
    CacheWarning
        Once each, if the list cannot be written or an operator cannot be recorded. No call fails for that.

    Examples
    --------
    >>> import tempfile, numpy as np, cupar
    >>> path = tempfile.mkdtemp() + "/asked.jsonl"
    >>> with cupar.record(path):
    ...     _ = cupar.reduce_into("i4", "i4", lambda a, b: a + b, np.zeros(1, "i4"), cc=90)
    >>> open(path).read().count("reduce_into")
    1

    Notes
    -----
    A list is a program: it holds the operators, as pickles. Ask for nothing of a list that you would not run
    as a script.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path: expected a path or None, got {type(path).__name__}")
    before = call_sites.note
    if path is None:
        _note_with(None)
        return Recording(before, None)
    return Recording(before, begin(path))


def begin(path: AnyPath) -> _Recorder:
    """Record to a list from now on; return what notes each question there."""
    recorder = _Recorder(_cache.expanded(path))
    _note_with(recorder)
    return recorder


def _note_with(note: call_sites.Note | None) -> None:
    call_sites.note = note
    call_sites.forget()  # so that what was asked before is noted when it is asked again


class Recording:
    """What `record` has begun; a context manager that ends it."""

    def __init__(self, before: call_sites.Note | None, recorder: _Recorder | None) -> None:
        self._before, self._recorder = before, recorder

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        if call_sites.note is self._recorder:
            _note_with(self._before)


class _Recorder:
    """Writes questions to a list, each once.

    The list is opened for each, which costs little beside a build, and then a fork, or the removal of the
    file, needs no thought.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._lock = fork.Lock()
        self._append(b"")

    def __call__(
        self, factory: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any], algorithm: Algorithm
    ) -> None:
        """Record a question and its answer, unless that was done."""
        try:
            cc, key = _answer(algorithm)
            with self._lock:
                if key in self._seen:
                    return
                self._seen.add(key)
            line = {"cupar": FORMAT, **self._described(factory, args, named)}
        except Exception as error:  # recording fails no call
            name = factory.__name__
            warn_once(("record", name, str(error)), f"{self._path}: {name} is not recorded: {error}")
            return
        line |= {"cc": cc, "key": key, "python": _PYTHON, "version": _version()}
        self._append(json.dumps(line, allow_nan=False).encode() + b"\n")

    def _described(
        self, factory: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> dict[str, Any]:
        given = inspect.signature(factory).bind(*args, **named)
        given.apply_defaults()
        arguments = {}
        for name, value in given.arguments.items():
            if name in _NOT_RECORDED:
                continue
            try:
                arguments[name] = _encoded(value)
            except TypeError as error:
                why = f"{name}: {error}"
                topic = ("record", factory.__name__, why)
                warn_once(topic, f"{self._path}: {factory.__name__} is left out: {why}")
                return {"skipped": factory.__name__, "why": why}
        return {"factory": factory.__name__, "arguments": arguments}

    def _append(self, line: bytes) -> None:
        try:
            # Readable by its owner alone, as it may hold secrets; and written by others, it would be theirs.
            file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(file).st_size
                if line and size and os.pread(file, 1, size - 1) != b"\n":
                    line = b"\n" + line  # after what a process left that was killed
                if os.write(file, line) != len(line):  # one call, so that no two processes' lines mix
                    raise OSError("no space left for a whole line")
            finally:
                os.close(file)
        except OSError as error:
            why = error.strerror or str(error)
            warn_once(("record", self._path), f"{self._path}: what is asked is not recorded: {why}")


def _answer(algorithm: Algorithm) -> tuple[int, str]:
    """Return the compute capability and the key of a build, without waiting for it."""
    if "build" in vars(algorithm):
        return algorithm.build.cc, algorithm.build.key
    spec = algorithm._pending[0]
    return spec.cc, digest(build_parts(spec))


def _version() -> str:
    from .. import __version__

    return __version__


# ---------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """One question of a recorded list.

    Attributes
    ----------
    factory : str
        As in ``"reduce_into"``.
    arguments : mapping of str to JSON
        By parameter. They are decoded, and operators unpickled, only by `ask`.
    cc : int
        Compute capability that it was asked for, as in 90.
    key : str
        Of the build then and there.
    python, version : str
        Of Python and of cupar, then.
    path : str
    line : int
        Where it is.
    skipped : str
        Why it could not be recorded; empty if it was.
    """

    factory: str
    arguments: Mapping[str, Any] = field(hash=False)
    cc: int
    key: str
    python: str
    version: str
    path: str
    line: int
    skipped: str = ""

    @property
    def place(self) -> str:
        """Where it is, as in ``asked.jsonl:3``."""
        return f"{self.path}:{self.line}"

    @property
    def content(self) -> str:
        """A hash of what it asks for, which is the same for another compute capability."""
        what = [self.factory, self.arguments, self.skipped, self.python]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def ask(self, cc: Any = None, wait: bool = True) -> Algorithm:
        """Ask the factory again. This unpickles the operators, and so runs what is in the list.

        Parameters
        ----------
        cc : int, pair of int or str, optional
            As for the factories: by default the current device's, and not that of the list.
        wait : bool, optional
            As for the factories.

        Returns
        -------
        Algorithm
            For building: device arrays that its operators captured are not there to be read.

        Raises
        ------
        RecordError
            If an argument cannot be made again, or an operator is not what it was when it was recorded.
        TypeError, ValueError, BuildError, NoDeviceError
            Whatever the factory raises.
        """
        if self.skipped:
            raise RecordError(f"{self.place}: {self.factory} was left out when recorded: {self.skipped}")
        arguments = {name: self._decoded(name, value) for name, value in self.arguments.items()}
        # Not through what factories remember and record: nothing that the program asks for is asked for here.
        factory = inspect.unwrap(_factory_named(self.factory, self.place))
        algorithm: Algorithm = factory(**arguments, cc=cc, wait=wait)
        return algorithm

    def _decoded(self, name: str, value: Any) -> Any:
        try:
            if self.python != _PYTHON and _has_function(value):
                raise ValueError(f"an operator is in bytecode of Python {self.python}, expected {_PYTHON}")
            return _decoded(value)
        except Exception as error:  # a list may hold anything
            why = f"nothing in it for {error}" if isinstance(error, KeyError) else error
            raise RecordError(
                f"{self.place}: {name} of {self.factory}: {why}. It was recorded by cupar {self.version} "
                f"under Python {self.python}; record it again"
            ) from error


def read(path: AnyPath) -> list[Request]:
    """Read a recorded list. Nothing in it is run by that, but by `Request.ask`.

    Parameters
    ----------
    path : path

    Returns
    -------
    list of Request
        In order, each build once; also those that could not be recorded, with the reason.

    Raises
    ------
    RecordError
        If it is something else than a list, or written by another version of cupar in another form.
    OSError
        If it cannot be read.

    Warns
    -----
    CacheWarning
        If a line was cut short, as that of a process that was killed.
    """
    found: dict[str, Request] = {}
    for number, line in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        place = f"{os.fspath(path)}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if not line.startswith(_START) and not _START.startswith(line):
                raise RecordError(f"{place}: expected a line of cupar.record, got {_short(line)}") from None
            warn_once(("torn", place), f"{place}: the line is incomplete, and is ignored")
            continue
        request = _request(value, os.fspath(path), number)
        known = found.get(request.key)
        if known is None or (known.skipped and not request.skipped):
            found[request.key] = request
    return list(found.values())


_MEMBERS: Final[Mapping[str, type]] = {"cc": int, "key": str, "python": str, "version": str}


def _request(value: Any, path: str, number: int) -> Request:
    place = f"{path}:{number}"
    if not isinstance(value, dict) or "cupar" not in value:
        raise RecordError(f"{place}: expected a line of cupar.record, got {_short(value)}")
    if value["cupar"] != FORMAT:
        raise RecordError(
            f"{place}: expected format {FORMAT}, got {_short(value['cupar'])}; record again with this cupar"
        )
    skipped = "skipped" in value
    what = {"skipped": str, "why": str} if skipped else {"factory": str, "arguments": dict}
    for name, kind in {**what, **_MEMBERS}.items():
        if type(value.get(name)) is not kind:
            raise RecordError(
                f"{place}: {name}: expected {_JSON[kind]}, got {_short(value.get(name, 'nothing'))}"
            )
    more = {name: value[name] for name in _MEMBERS}
    if skipped:
        return Request(value["skipped"], {}, **more, path=path, line=number, skipped=value["why"])
    factory, arguments = _factory_named(value["factory"], place), value["arguments"]
    try:
        inspect.signature(factory).bind(**arguments)
        if wrong := _NOT_RECORDED.intersection(arguments):
            raise TypeError(f"got {', '.join(sorted(wrong))}, which is no part of a question")
    except TypeError as error:
        raise RecordError(f"{place}: arguments: expected those of {value['factory']}: {error}") from None
    return Request(value["factory"], arguments, **more, path=path, line=number)


_JSON: Final[Mapping[type, str]] = {int: "an integer", str: "a string", dict: "an object"}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _factory_named(name: str, place: str) -> Callable[..., Any]:
    """Return a factory, which is a public function that can be told for what and whether to wait."""
    import cupar

    found = getattr(cupar, name) if name in cupar.__all__ else None
    if not isinstance(found, FunctionType) or not inspect.signature(found).parameters.keys() >= _NOT_RECORDED:
        raise RecordError(f"{place}: factory: expected one of cupar's, such as reduce_into, got {name!r}")
    return found


# ---------------------------------------------------------------------------------------------------------
# Arguments as JSON
# ---------------------------------------------------------------------------------------------------------

# None, bools, integers, finite floats and strings are themselves. All else is an object of one member, whose
# name says what it is.

_ENUMS: Final[Mapping[str, type[enum.IntEnum]]] = {
    each.__name__: each for each in (OpKind, SortOrder, Determinism)
}


def _encoded(value: Any) -> Any:
    """Return an argument as what JSON can hold; raise TypeError if that cannot be done."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if np.isfinite(value) else {"float": str(value)}
    if type(value) is complex:
        return {"complex": [str(value.real), str(value.imag)]}
    if isinstance(value, enum.IntEnum):
        name = type(value).__name__
        return {"enum": f"{name}.{value.name}"} if type(value) is _ENUMS.get(name) else int(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return {"array" if isinstance(value, np.ndarray) else "scalar": _encoded_array(np.asarray(value))}
    if structs.is_struct(type(value)):
        return {"struct": _encoded_array(np.array(tuple(value), type(value).dtype))}
    if isinstance(value, RawOp):
        return {"raw operator": _encoded_raw(value)}
    if isinstance(value, DoubleBuffer):
        return {"double buffer": [_encoded(value.current()), _encoded(value.alternate())]}
    if isinstance(value, Iterator):
        return {"iterator": _encoded_node(value.node)}
    if (place := names.compilers_name(value)) is not None and pkgutil.resolve_name(place) is value:
        return {"name": place}
    if isinstance(value, (type, np.dtype)):
        return {"dtype": _encoded_dtype(arrays.dtype_of("it", value))}
    if isinstance(value, FunctionType) or walk.is_dispatcher(value):
        from . import codec

        return {"function": codec.carry(value)}
    if arrays.is_device_array(value):
        return {"device array": _encoded_dtype(arrays.dtype_of("it", value))}
    raise TypeError(f"{_described_type(value)} cannot be recorded")


def _described_type(value: Any) -> str:
    if isinstance(value, (BuiltinFunctionType, np.ufunc)):
        return f"{value.__name__}, which no import finds by its name,"
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _encoded_dtype(dtype: np.dtype[Any]) -> Any:
    if dtype.names is None:
        return dtype.str
    members = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]
    return {
        "names": list(dtype.names),
        "formats": [_encoded_dtype(kind) for kind, *_ in members],
        "offsets": [offset for _, offset, *_ in members],
        "itemsize": dtype.itemsize,
    }


def _decoded_dtype(value: Any) -> np.dtype[Any]:
    if isinstance(value, str):
        return np.dtype(value)
    layout: Any = {**value, "formats": [_decoded_dtype(kind) for kind in value["formats"]]}
    return structs.normal("dtype", np.dtype(layout))


def _encoded_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    dtype = array.dtype if array.dtype.names is None else structs.normal("it", array.dtype)
    if dtype.hasobject:
        raise TypeError(f"an array of {dtype} cannot be recorded")
    items = np.zeros(array.size, dtype)  # with zeros for padding
    items[:] = array.ravel().view(dtype)
    return {"dtype": _encoded_dtype(dtype), "shape": list(array.shape), "bytes": items.tobytes().hex()}


def _decoded_array(value: Any) -> np.ndarray[Any, Any]:
    dtype = _decoded_dtype(value["dtype"])
    items: np.ndarray[Any, Any] = np.frombuffer(bytes.fromhex(value["bytes"]), dtype)
    array: np.ndarray[Any, Any] = items.reshape(value["shape"]).copy()
    return array


def _decoded_struct(value: Any) -> Any:
    array = _decoded_array(value)
    return structs.gpu_struct(array.dtype)(*array[()])


def _encoded_raw(op: RawOp) -> dict[str, Any]:
    return {
        "name": op.name,
        "ltoirs": [base64.b64encode(code).decode() for code in (op.ltoir, *op.extra_ltoirs)],
        # What it holds, such as addresses, means nothing elsewhere, and is no part of a build.
        "state_size": len(op.state),
        "state_alignment": op.state_alignment,
    }


def _decoded_raw(value: Any) -> RawOp:
    ltoir, *more = [base64.b64decode(code, validate=True) for code in value["ltoirs"]]
    state, alignment = bytes(value["state_size"]), value["state_alignment"]
    return RawOp(value["name"], ltoir, state=state, state_alignment=alignment, extra_ltoirs=more)


# --- Iterators: the structure, which is all that a build depends on ----------------------------------------


def _encoded_node(node: nodes.IteratorNode) -> dict[str, Any]:
    members = {each.name: _encoded_member(getattr(node, each.name)) for each in fields(node)}
    return {"node": type(node).__name__, **members}


def _encoded_member(value: Any) -> Any:
    if isinstance(value, nodes.IteratorNode):
        return _encoded_node(value)
    if isinstance(value, tuple):
        return [_encoded_node(each) for each in value]
    if isinstance(value, np.dtype):
        return _encoded_dtype(value)
    if isinstance(value, Operator):
        types = [_encoded_dtype(dtype) for dtype in (*value.inputs, value.output)]
        return {"op": _encoded(_given(value)), "types": types}
    return value


def _given(op: Operator) -> Any:
    """Return what the user gave, or as good: an operator of an iterator is a function or a RawOp."""
    if op.source is not None:
        if walk.fingerprint(op.user) != op.source:
            raise TypeError(
                f"operator {op.name}, which was changed after its iterator was made, cannot be recorded"
            )
        return op.user
    ltoir, *more = op.ltoirs
    state = bytes(op.state_size)
    return RawOp(op.name, ltoir, state=state, state_alignment=op.state_alignment, extra_ltoirs=more)


def _decoded_node(value: Any) -> nodes.IteratorNode:
    kinds = {cls.__name__: cls for cls in _subclasses(nodes.IteratorNode)}
    if not isinstance(value, dict) or value.get("node") not in kinds:
        raise ValueError(f"expected an iterator, got {_short(value)}")
    cls = kinds[value["node"]]
    members = {name: _decoded_member(name, member) for name, member in value.items() if name != "node"}
    node: nodes.IteratorNode = cls(**members)
    return node


def _subclasses(cls: type[Any]) -> list[type[Any]]:
    children: list[type[Any]] = cls.__subclasses__()
    return [each for child in children for each in (child, *_subclasses(child))]


def _decoded_member(name: str, value: Any) -> Any:
    if name == "value":
        return _decoded_dtype(value)
    if isinstance(value, list):
        return tuple(map(_decoded_node, value))
    if isinstance(value, dict) and "op" in value:
        *inputs, output = map(_decoded_dtype, value["types"])
        return resolve(_decoded(value["op"]), inputs, output, "transform_op", as_function=True)
    return _decoded_node(value) if isinstance(value, dict) else value


# --- And back ----------------------------------------------------------------------------------------------


def _decoded_enum(value: Any) -> enum.IntEnum:
    kind, _, name = value.partition(".")
    return _ENUMS[kind][name]


def _decoded_function(value: Any) -> Any:
    from . import codec

    return codec.fetch(value)


def _decoded_device_array(value: Any) -> Any:
    from . import codec

    return codec.DeviceArray(_decoded_dtype(value))


def _decoded_iterator(value: Any) -> Iterator:
    return Iterator(_decoded_node(value), ())


_DECODERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "float": float,
    "complex": lambda value: complex(*map(float, value)),
    "enum": _decoded_enum,
    "array": _decoded_array,
    "scalar": lambda value: _decoded_array(value)[()],
    "struct": _decoded_struct,
    "raw operator": _decoded_raw,
    "double buffer": lambda value: DoubleBuffer(*map(_decoded, value)),
    "iterator": _decoded_iterator,
    "name": pkgutil.resolve_name,
    "dtype": _decoded_dtype,
    "function": _decoded_function,
    "device array": _decoded_device_array,
}


def _decoded(value: Any) -> Any:
    """Return the argument that `_encoded` wrote."""
    if not isinstance(value, (dict, list)):
        return value
    if not isinstance(value, dict) or len(value) != 1 or (kind := next(iter(value))) not in _DECODERS:
        raise ValueError(f"expected an argument as cupar.record writes it, got {_short(value)}")
    return _DECODERS[kind](value[kind])


def _has_function(value: Any) -> bool:
    """Whether there is a Python function somewhere in an argument."""
    if isinstance(value, dict):
        return "fingerprint" in value or any(map(_has_function, value.values()))
    return isinstance(value, list) and any(map(_has_function, value))
