"""C++ from elsewhere, compiled for the linker."""

from __future__ import annotations

from contextlib import suppress

from .._base.causes import cause
from .._base.errors import BuildError
from .._external.linkable import Linkable
from .._external.shim import FLAT, SOURCE
from .._external.sources import NOWHERE
from . import nvrtc


def compile_cpp(code: Linkable, cc: int) -> bytes:
    """Compile C++ to LTO-IR; raise BuildError with what NVRTC says against it."""
    source = code.data.decode(errors="surrogateescape")
    if f"#ifndef {FLAT}" in source:
        with suppress(BuildError):
            return nvrtc.compile_source(code.data, cc, code.headers, code.options)
        flags = [f"-D{FLAT}"]
    else:
        flags = []
    try:
        return nvrtc.compile_source(code.data, cc, code.headers, (*code.options, *flags))
    except BuildError as error:
        text = str(error).replace(SOURCE, "source").replace(NOWHERE, "").rstrip(" \n\0")
        raise BuildError(f"{code.name}: {text}") from cause(error)
