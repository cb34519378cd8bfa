"""From a specialisation to an algorithm object: memory, then disk, then a template and a link."""

from __future__ import annotations

import ast
import functools
import operator
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .. import _cache, structs
from .._base import fork, log
from .._base.warnings import warn_once
from .._call.algorithm import Algorithm, Build
from .._call.call import Code
from .._compile import architectures, toolchain
from .._compile.key import Specialisation, build_parts, digest, notes, result_parts, template_parts
from .._device import driver
from ..operators import Op, resolve
from . import call_sites

if TYPE_CHECKING:
    from .._base.background import Queue

A = TypeVar("A", bound=Algorithm)
T = TypeVar("T")

_algorithms: _cache.Memory[Algorithm] = _cache.Memory(maxsize=1024)
_templates: _cache.Memory[list[bytes]] = _cache.Memory(maxsize=32)
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
        If it is none of these, or the compilers do not know it.
    """
    found = _parsed(cc)
    architectures.check(found)
    return found


def _parsed(cc: Any) -> int:
    wrong = f"cc: expected a compute capability as in 90, (9, 0), '9.0' or 'sm_90', got {cc!r}"
    try:
        if isinstance(cc, str):
            match = re.fullmatch(r"(?:sm_)?(\d{1,2})\.?(\d)", cc, re.ASCII)
            if match is None:
                raise ValueError(wrong)
            major, minor = map(int, match.groups())
        elif isinstance(cc, (bool, np.bool_)) or (
            isinstance(cc, (tuple, list)) and any(isinstance(each, (bool, np.bool_)) for each in cc)
        ):
            raise TypeError(wrong)
        elif isinstance(cc, (tuple, list)):
            major, minor = map(operator.index, cc)
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


def target(cc: Any) -> tuple[int, driver.Device | None]:
    """Return the compute capability to build for, and the device if that is the current one's.

    Raises
    ------
    TypeError, ValueError
        If it is none, or one that the compilers do not know.
    NoDeviceError
        If `cc` is None and there is no GPU.
    """
    if cc is None and ahead is not None:
        cc = ahead.cc
    if cc is not None:
        return parse_cc(cc), None
    device = driver.current_device()
    try:
        architectures.check(device.cc)
    except ValueError as error:
        raise ValueError(f"the current device {device.ordinal}: {str(error).removeprefix('cc: ')}") from None
    return device.cc, device


def obtain(cls: type[A], spec: Specialisation, device: driver.Device | None, wait: Any = True) -> A:
    """Return the algorithm object for a specialisation, with its code loaded if a device is given.

    The same object is returned for the same specialisation, but for the first call's: that one tells in its
    `build` where the code came from. If it is not to be waited for, its code is built in the background, and
    loaded by who waits for it first.
    """
    if wait is not True and wait is not False and not isinstance(wait, np.bool_):
        raise TypeError(f"wait: expected True or False, got {wait!r}")
    if ahead is not None:
        return ahead.ask(cls, spec)  # type: ignore[no-any-return]
    if not wait:
        build = functools.partial(built, cls, spec, None)
        pending: A = cls.pending(spec, _background().submit(_kernels(spec), build))
        return pending
    return built(cls, spec, device)


def built(cls: type[A], spec: Specialisation, device: driver.Device | None) -> A:
    """Return what `obtain` does, once it is built."""
    mine: list[A] = []
    states = tuple(op.state for _, op in spec.operators)
    kept = spec.without_user()

    def make() -> Algorithm:
        with _cache.one_deadline():
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
_starting = fork.Lock()


def _background() -> Queue:
    """Return what builds in the background."""
    global _queue
    from .._base.background import Queue

    with _starting:
        if _queue is None:
            _queue = Queue()
        return _queue


def _kernels(spec: Specialisation) -> str:
    """Return what builds have in common that link the same kernels; of others, what equal ones have."""
    try:
        return digest(template_parts(spec) if spec.has_template else build_parts(spec))
    except ImportError:  # a compiler is missing, as the build will say to who waits for it
        return ""


def _after_fork() -> None:
    global _queue
    _queue = None  # its threads are the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def keep(algorithm: Algorithm, device: driver.Device) -> None:
    """Let `obtain` find an algorithm's code in memory, for a device."""
    cls, code = type(algorithm), algorithm._code
    build, states = replace(algorithm.build, origin="memory", seconds={}), (None,) * len(code.spec.operators)
    _algorithms.get_or_make((cls, code.spec, device), lambda: cls(code, build, states))


def _produce(spec: Specialisation, kept: Specialisation, device: driver.Device | None) -> tuple[Code, Build]:
    """Fetch or make a build; `kept` is what stays in memory of its specialisation."""
    seconds: dict[str, float] = {}
    parts = build_parts(spec)
    key = digest(parts)
    origin = "disk"

    def make() -> _cache.Entry:
        nonlocal origin
        with toolchain.compilers():
            blob, cubin_size, origin = _compile(spec, seconds)
        return _entry(parts, blob, seconds, **notes(spec), cubin_size=cubin_size)

    def use(entry: _cache.Entry) -> tuple[Code, int]:
        code, size = Code(kept, entry.payload), entry.meta["cubin_size"]
        if device is not None:
            code.deserialise()
        return code, size

    def load(found: tuple[Code, int]) -> None:
        if device is not None:
            start = time.perf_counter()
            found[0].native(driver.current_context())
            seconds["load"] = time.perf_counter() - start

    found, (code, size) = _fetch(key, make, use, load)
    if log.logger(log.INFO):
        from .._inspect import log as lines

        lines.fetched(origin, key, found, seconds)
    if found.origin == "disk":
        seconds["read"] = found.seconds
    return code, Build(spec.algorithm, key, spec.cc, origin, seconds, size, found.source)


# What says nothing of an entry: libraries or memory that this process lacks, and whatever the GPU is in.
_NOT_THE_ENTRYS = (MemoryError, OSError, ImportError, driver.DriverError, driver.NoDeviceError)


def _fetch(
    key: str,
    make: Callable[[], _cache.Entry],
    use: Callable[[_cache.Entry], T],
    load: Callable[[T], None] = lambda made: None,
) -> tuple[_cache.Found, T]:
    """Fetch or make an entry, and return what `use` makes of it, once `load` has loaded that.

    One that was kept, and that nothing can be made of although it is what was stored, is made again: who
    stored it stored something else. It is replaced once the new one has loaded. One that cannot be loaded may
    be as good as any: it is a GPU's memory, context or driver that it cannot be loaded with.
    """
    found = _cache.fetch(key, make)
    try:
        made = use(found.entry)
    except Exception as error:
        if found.origin == "built" or isinstance(error, _NOT_THE_ENTRYS):
            raise
        warn_once(
            "useless",
            f"cupar's cache entry {key} in {found.source} is of no use and will be rebuilt: {error!r}",
        )
    else:
        load(made)
        return found, made

    def make_and_load() -> _cache.Entry:
        entry = make()
        load(use(entry))
        return entry

    _cache.discard(key)
    found = _cache.fetch(key, make_and_load)
    made = use(found.entry)
    load(made)
    return found, made


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


def _compile(spec: Specialisation, seconds: dict[str, float]) -> tuple[bytes, int, str]:
    """Make a build; return it, its cubin's size, and whether it was ``"linked"`` or ``"built"``."""
    from .. import _build
    from .._base.background import step
    from .._compile import cccl

    with step():
        operators = _build.operators(
            spec, seconds
        )  # first, since it is the user's and so most likely to fail
    if spec.has_template:
        try:
            template, made = _template(spec, seconds)
            with step():
                return *_build.link(spec, template, operators, seconds), "built" if made else "linked"
        except cccl.UnknownFormatError:
            pass  # a CCCL that serialises in another way: without the two levels, but not without a build
    with step():
        return *_build.whole(spec, operators, seconds), "built"


def _template(spec: Specialisation, seconds: dict[str, float]) -> tuple[list[bytes], bool]:
    from .. import _build
    from .._base.background import step

    parts = template_parts(spec)
    key = digest(parts)
    made = False

    def make() -> _cache.Entry:
        nonlocal made
        made = True
        stages: dict[str, float] = {}
        with step():
            payload = _build.template(spec, stages)
        seconds.update(stages)
        return _entry(parts, payload, stages)

    def fetch() -> list[bytes]:
        found, template = _fetch(key, make, lambda entry: _build.unpack(entry.payload))
        if log.logger(log.DEBUG):
            from .._inspect import log as lines

            lines.template(key, found)
        return template

    return _templates.get_or_make(key, fetch), made


def result_dtype(op: Op, inputs: tuple[np.dtype[Any], ...]) -> np.dtype[Any]:
    """Return the dtype of what an operator returns; the cache remembers what numba made of it.

    Raises
    ------
    TypeError
        If it cannot be compiled for the inputs, or returns something that arrays cannot hold.
    """
    found = resolve(op, inputs, inputs[0], "transform_op")
    if found.kind is not None:
        return found.output
    if found.source is None:
        raise TypeError(f"value_type: the result of {found.name} is not known: give its dtype")
    parts = result_parts(found)

    def make() -> _cache.Entry:
        from .. import _build

        described: Any = np.lib.format.dtype_to_descr(_build.result_dtype(found, _RESULT_CC))
        return _cache.Entry({"entry": parts["entry"], "parts": parts}, repr(described).encode())

    def use(entry: _cache.Entry) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.lib.format.descr_to_dtype(ast.literal_eval(entry.payload.decode()))
        return structs.normal("transform_op", dtype)

    return _results.get_or_make(found.without_user(), lambda: _fetch(digest(parts), make, use)[1])


_RESULT_CC = 75  # types are the same on all GPUs


def forget() -> None:
    """Forget what this process has in memory."""
    _algorithms.clear()
    _templates.clear()
    _results.clear()
    call_sites.forget()
