"""From a specialisation to an algorithm object: memory, then disk, then a template and a link."""

from __future__ import annotations

import ast
import functools
import operator
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _cache, _driver, _fork, _key, _log, _memo, _nodes, _toolchain, _warnings, structs
from ._algorithm import Algorithm, Build, Code
from ._key import Specialisation
from .operators import Op, resolve

if TYPE_CHECKING:
    from ._background import Queue

A = TypeVar("A", bound=Algorithm)
T = TypeVar("T")

_algorithms: _cache.Memory[Algorithm] = _cache.Memory(maxsize=1024)
_templates: _cache.Memory[bytes] = _cache.Memory(maxsize=32)
_results: _cache.Memory[np.dtype[Any]] = _cache.Memory(maxsize=1024)


def parse_cc(cc: Any) -> int:
    """Return a compute capability as an int such as 90.

    Parameters
    ----------
    cc : int, pair of int or str
        As in 90, (9, 0), "9.0", "90" or "sm_90".

    Raises
    ------
    TypeError, ValueError
        If it is none of these.
    """
    wrong = f"cc: expected a compute capability as in 90, (9, 0), '9.0' or 'sm_90', got {cc!r}"
    try:
        if isinstance(cc, str):
            text = cc.removeprefix("sm_")
            major, minor = map(int, text.split(".") if "." in text else (text[:-1], text[-1:]))
        elif isinstance(cc, (tuple, list)):
            major, minor = map(operator.index, cc)
        elif isinstance(cc, bool):
            raise TypeError(wrong)
        else:
            major, minor = divmod(operator.index(cc), 10)
    except TypeError:
        raise TypeError(wrong) from None
    except ValueError:
        raise ValueError(wrong) from None
    if not (5 <= major < 40 and 0 <= minor < 10):
        raise ValueError(wrong)
    return 10 * major + minor


@dataclass(frozen=True)
class Ahead:
    """What takes the place of building while `_ahead` finds out what a program asks for.

    Attributes
    ----------
    cc : int or None
        Compute capability for those who name none; None: that of the current device.
    ask : callable
        ``ask(cls, spec)`` returns an algorithm object.
    """

    cc: int | None
    ask: Callable[[type[Algorithm], Specialisation], Any]


ahead: Ahead | None = None


def target(cc: Any) -> tuple[int, _driver.Device | None]:
    """Return the compute capability to build for, and the device if that is the current one's.

    Raises
    ------
    NoDeviceError
        If `cc` is None and there is no GPU.
    """
    if cc is None and ahead is not None:
        cc = ahead.cc
    if cc is not None:
        return parse_cc(cc), None
    device = _driver.current_device()
    return device.cc, device


def obtain(cls: type[A], spec: Specialisation, device: _driver.Device | None, wait: bool = True) -> A:
    """Return the algorithm object for a specialisation, with its code loaded if a device is given.

    The same object is returned for the same specialisation, but for the first call's: that one tells in its
    `build` where the code came from. If it is not to be waited for, its code is built in the background, and
    loaded by who waits for it first.
    """
    if ahead is not None:
        return ahead.ask(cls, spec)  # type: ignore[no-any-return]
    if not wait:
        build = functools.partial(built, cls, spec, None)
        pending: A = cls.pending(spec, _background().submit(_key.kernels(spec), build))
        return pending
    return built(cls, spec, device)


def built(cls: type[A], spec: Specialisation, device: _driver.Device | None) -> A:
    """Return what `obtain` does, once it is built."""
    mine: list[A] = []
    states = tuple(op.state for _, op in spec.operators)
    kept = spec.without_user()

    def make() -> Algorithm:
        code, build = _produce(spec, kept, device)
        mine.append(cls(code, build, states))
        if device is not None:
            mine[0].load()
        return cls(code, replace(build, origin="memory", seconds={}), (None,) * len(states))

    found = _algorithms.get_or_make((cls, kept, device), make)
    if not mine and any(
        states
    ):  # the code is the same, and the arrays that the operator has captured are not
        mine.append(cls(found._code, found.build, states))
    algorithm: Any = mine[0] if mine else found  # in the cache, A is part of the key
    _cache.count(algorithm.build.origin)
    return algorithm  # type: ignore[no-any-return]


_queue: Queue | None = None
_starting = _fork.Lock()


def _background() -> Queue:
    """Return what builds in the background."""
    global _queue
    from ._background import Queue

    with _starting:
        if _queue is None:
            _queue = Queue()
        return _queue


def _after_fork() -> None:
    global _queue
    _queue = None  # its threads are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def preload(*what: Algorithm | str | os.PathLike[str]) -> None:
    """Load the code of algorithms onto the current device, so that no call of theirs waits for it.

    Factories with ``wait=False`` and this at the end build many algorithms at once, from disk or anew, before
    a program's work starts. So does a list that `cupar.record` wrote in an earlier run: then each factory
    call that is in it finds its build in memory.

    Parameters
    ----------
    *what : Algorithm or path
        Algorithm objects, and recorded lists. What a list has for other compute capabilities is taken for
        the current device's. To read a list is to run what is in it, as with a script.

    Raises
    ------
    TypeError
        If one of them is something else.
    RecordError, OSError
        If a path is not that of a recorded list (`RecordError` is a ``ValueError``), or cannot be read.
    NoDeviceError
        If there is no GPU.

    Warns
    -----
    CacheWarning
        Of each line of a list that cannot be built, as when an operator of its has changed: the program
        builds what it needs instead when it asks for it.

    Examples
    --------
    >>> import cupar
    >>> sums = [cupar.reduce_into(t, t, cupar.OpKind.PLUS, 0, cc=90, wait=False) for t in ("i4", "i8")]
    >>> cupar.preload(*sums)  # doctest: +SKIP

    The first run with ``CUPAR_RECORD=asked.jsonl`` in its environment, and each later one with

    >>> cupar.preload("asked.jsonl")  # doctest: +SKIP
    """
    for each in what:
        if not isinstance(each, (Algorithm, str, os.PathLike)):
            raise TypeError(
                f"what: expected algorithm objects and paths of recorded lists, got {type(each).__name__}"
            )
    paths = dict.fromkeys(os.fspath(each) for each in what if not isinstance(each, Algorithm))
    if ahead is not None:
        _begin(list(paths))
        return
    device = _driver.current_device()
    listed = _begin(list(paths)) if paths else []
    for each in what:
        if isinstance(each, Algorithm):
            _load(each, device)
    for place, algorithm in listed:
        if algorithm is not None:
            _attempt(place, _load, algorithm, device)


def _begin(paths: list[str]) -> list[tuple[str, Algorithm | None]]:
    """Begin to build what recorded lists have, in the background; return it, each with its place."""
    from . import _record

    requests = {each.content: each for path in paths for each in _record.read(path)}
    return [(each.place, _attempt(each.place, each.ask, wait=False)) for each in requests.values()]


def _attempt(place: str, do: Callable[..., T], *args: Any, **named: Any) -> T | None:
    """Do something for a line of a recorded list, or else warn: builds that are not there are made later."""
    try:
        return do(*args, **named)
    except Exception as error:  # whatever the builders raise, and the code in a list
        why = str(error).removeprefix(f"{place}: ")
        _warnings.warn_once(("preload", place), f"{place}: not preloaded, but built when asked for: {why}")
        return None


def _load(algorithm: Algorithm, device: _driver.Device) -> None:
    """Load an algorithm's code onto the current device, and let factories find it there."""
    algorithm.load()
    code, build = algorithm._code, replace(algorithm.build, origin="memory", seconds={})
    states = (None,) * len(code.spec.operators)
    cls = type(algorithm)
    _algorithms.get_or_make((cls, code.spec, device), lambda: cls(code, build, states))


def _produce(
    spec: Specialisation, kept: Specialisation, device: _driver.Device | None, *, again: bool = False
) -> tuple[Code, Build]:
    """Fetch or make a build; `kept` is what stays in memory of its specialisation."""
    seconds: dict[str, float] = {}
    parts = _key.build_parts(spec)
    key = _key.digest(parts)
    origin = "disk"

    def make() -> _cache.Entry:
        nonlocal origin
        blob, cubin_size, origin = _make(spec, seconds)
        operators = {name: op.name for name, op in (*spec.operators, *spec.functions.items())}
        sources = ((name, op.source) for name, op in spec.functions.items())
        reads = {name: found.reads() for name, found in sources if found is not None}
        return _entry(parts, blob, seconds, operators=operators, reads=reads, cubin_size=cubin_size)

    found = _cache.fetch(key, make)
    _log.fetched(origin, key, found, seconds)
    if found.origin == "disk":
        seconds["read"] = found.seconds
    code = Code(kept, found.entry.payload)
    if device is not None:
        start = time.perf_counter()
        try:
            code.native(device)
        except RuntimeError:
            if found.origin != "disk" or again:
                raise
            # It is what was stored, and yet the bindings or the driver will not have it.
            _cache.discard(key)
            return _produce(spec, kept, device, again=True)
        seconds["load"] = time.perf_counter() - start
    size = found.entry.meta.get("cubin_size", 0)
    return code, Build(spec.algorithm, key, spec.cc, origin, seconds, size, found.source)


def _entry(parts: dict[str, Any], payload: bytes, seconds: dict[str, float], **more: Any) -> _cache.Entry:
    meta = {
        "algorithm": parts["algorithm"],
        "cc": parts["cc"],
        "entry": parts["entry"],
        "seconds": {stage: round(value, 4) for stage, value in seconds.items()},
        "parts": parts,
        **more,
    }
    return _cache.Entry(meta, payload)


def _make(spec: Specialisation, seconds: dict[str, float]) -> tuple[bytes, int, str]:
    """Make a build; return it, its cubin's size, and whether it was ``"linked"`` or ``"built"``."""
    from . import _build, _cccl

    operators = _build.operators(spec, seconds)  # first, since it is the user's and so most likely to fail
    if spec.has_template:
        try:
            template, made = _template(spec, seconds)
            return *_build.link(spec, template, operators, seconds), "built" if made else "linked"
        except _cccl.UnknownFormatError:
            pass  # a CCCL that serialises in another way: without the two levels, but not without a build
    return *_build.whole(spec, operators, seconds), "built"


def _template(spec: Specialisation, seconds: dict[str, float]) -> tuple[bytes, bool]:
    from . import _build

    parts = _key.template_parts(spec)
    key = _key.digest(parts)
    made = False

    def make() -> _cache.Entry:
        nonlocal made
        made = True
        stages: dict[str, float] = {}
        payload = _build.template(spec, stages)
        seconds.update(stages)
        return _entry(parts, payload, stages)

    def fetch() -> bytes:
        found = _cache.fetch(key, make)
        _log.template(key, found)
        return found.entry.payload

    return _templates.get_or_make(key, fetch), made


def result_dtype(op: Op, inputs: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """Return the dtype of what an operator returns; the cache remembers what numba made of it.

    Raises
    ------
    TypeError
        If it cannot be compiled for the inputs, or returns something that arrays cannot hold.
    """
    found = resolve(op, inputs, inputs[0])
    if found.kind is not None:
        return found.output
    if found.function is None:
        raise TypeError(f"value_type: the result of {found.name} is not known: give its dtype")
    parts = {
        "format": _key.FORMAT,
        "entry": "result",
        "function": _key.function_part(found),
        "inputs": [_nodes.type_part(dtype) for dtype in inputs],
        "versions": _toolchain.operator_versions(),
    }

    def make() -> _cache.Entry:
        from . import _build

        described: Any = np.lib.format.dtype_to_descr(_build.result_dtype(found, _RESULT_CC))
        return _cache.Entry({"entry": parts["entry"], "parts": parts}, repr(described).encode())

    def fetch() -> np.dtype[Any]:
        text = _cache.fetch(_key.digest(parts), make).entry.payload.decode()
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(text))
        return structs.normal("transform_op", dtype)

    return _results.get_or_make(found.without_user(), fetch)


_RESULT_CC = 75  # types are the same on all GPUs


def forget() -> None:
    """Forget what this process has in memory."""
    _algorithms.clear()
    _templates.clear()
    _results.clear()
    _memo.forget()
