"""A build: from the cache, else from a template and a link, else whole."""

from __future__ import annotations

import time
from typing import Any

from .. import _cache
from .._base import log
from .._call.algorithm import Build, Built
from .._call.code import Code
from .._compile import entries, toolchain
from .._compile.key import build_parts, digest, notes, template_parts
from .._device import driver
from .._ir.specialisation import Specialisation

templates: _cache.Memory[list[bytes]] = _cache.Memory(maxsize=32)


def produce(spec: Specialisation, kept: Specialisation, device: driver.Device | None) -> Built:
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
        code, size = _code(kept, entry.payload), entry.meta["cubin_size"]
        if device is not None:
            code.check()
        return code, size

    def load(found: tuple[Code, int]) -> None:
        if device is not None:
            start = time.perf_counter()
            found[0].loaded(driver.current_context())
            seconds["load"] = time.perf_counter() - start

    found, (code, size) = entries.fetch(key, make, use, load)
    if log.logger(log.INFO):
        from .._inspect import log as lines

        lines.fetched(origin, key, found, seconds)
    if found.origin == "disk":
        seconds["read"] = found.seconds
    return Built(code, Build(spec.algorithm, key, spec.cc, origin, seconds, size, found.source))


def _code(spec: Specialisation, blob: bytes) -> Code:
    if spec.kind._family is None:
        from .._call.native import NativeCode

        return NativeCode(spec, blob)  # type: ignore[return-value]
    return Code(spec, blob)


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

    template, made, operators = _parts(spec, seconds)
    with step():
        if template is None:
            return *_build.whole(spec, operators, seconds), "built"
        return *_build.link(spec, template, operators, seconds), "built" if made else "linked"


def _parts(
    spec: Specialisation, seconds: dict[str, float]
) -> tuple[list[bytes] | None, bool, dict[str, list[bytes]]]:
    """Return what is linked: the template, if one can be used; whether it was made; and the operators."""
    from .. import _build
    from .._base import background
    from .._compile import cccl

    def compile_operators() -> dict[str, list[bytes]]:
        with toolchain.compilers(), background.step():
            return _build.operators(spec, seconds)

    if not spec.has_template or not spec.functions:
        operators = compile_operators()
        pending = None
    else:  # at the same time, since numba works in Python, and NVRTC needs no Python
        pending = background.begin(compile_operators)
    template, made = None, False
    if spec.has_template:
        try:
            template, made = _template(spec, seconds)
        except cccl.UnknownFormatError:
            pass  # a CCCL that serialises in another way: without the two levels, but not without a build
        except Exception:
            if pending is not None and (wrong := pending.exception()) is not None:
                raise wrong from None  # the user's own first
            raise
    return template, made, operators if pending is None else pending.result()


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

    def find() -> list[bytes]:
        found, template = entries.fetch(key, make, lambda entry: _build.unpack(entry.payload))
        if log.logger(log.DEBUG):
            from .._inspect import log as lines

            lines.template(key, found)
        return template

    return templates.get_or_make(key, find), made
