"""External code for the linker: C++ is compiled once, and cached as an entry of its own."""

from __future__ import annotations

from collections.abc import Iterable

from .._base.bounded import of_builds
from .._base.causes import cause
from .._base.data import replace
from .._base.errors import BuildError
from .._compile import entries
from .._compile.key import digest, source_parts
from .._external.linkable import Linkable
from .._store.entry import Entry
from .._store.memory import SingleFlightCache

Code = bytes | Linkable

_compiled: SingleFlightCache[bytes] = of_builds(SingleFlightCache(maxsize=256))


def linked(parameter: str, codes: Iterable[Code], cc: int) -> list[Code]:
    """Return code with its C++ compiled to LTO-IR; errors begin with the name of its parameter.

    Raises
    ------
    BuildError
        If NVRTC refuses C++.
    """
    try:
        return [
            _made(each, cc) if isinstance(each, Linkable) and each.kind == "cu" else each for each in codes
        ]
    except BuildError as error:
        raise BuildError(f"{parameter}: {error}") from cause(error)


def _made(code: Linkable, cc: int) -> Linkable:
    parts = source_parts(code, cc)

    def make() -> Entry:
        from .._compile import external

        meta = {name: parts[name] for name in ("algorithm", "cc", "entry")}
        meta |= {"operators": {"function": code.name}, "parts": parts}
        return Entry(meta, external.compile_cpp(code, cc))

    ltoir = _compiled.get_or_make(
        digest(parts), lambda: entries.fetch(parts, make, lambda entry: entry.payload)[1]
    )
    return replace(code, kind="ltoir", data=ltoir, headers=())
