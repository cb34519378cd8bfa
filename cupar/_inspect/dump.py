"""What was made, written to files: ``CUPAR_DUMP=llvm,ptx,sass:folder``.

A file is called by the algorithm and the beginning of its key, so that the same build is the same file in
each run. Nothing that fails here fails a build.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._base import fork
from .._base.warnings import warn_once

_KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "llvm": (".ll", lambda build: build.llvm()),
    "ltoir": (".ltoir", lambda build: build.ltoir()),
    "ptx": (".ptx", lambda build: build.ptx()),
    "sass": (".sass", lambda build: build.sass()),
    "cubin": (".cubin", lambda build: build._shown().cubin()),
}
OF_HOST = "host"  # what compiled host code is made of
_written: set[tuple[str, str]] = set()  # keys, and where to


@fork.in_child
def _forget() -> None:
    _written.clear()


def asked() -> tuple[list[str], Path]:
    """Return which kinds the environment asks for, and the folder."""
    value = os.environ.get("CUPAR_DUMP", "")
    names, _, folder = value.partition(":")
    known = (*_KINDS, OF_HOST)
    kinds = [name.strip() for name in names.split(",")] if folder else []
    if not kinds or not set(kinds) <= set(known):
        warn_once(
            ("CUPAR_DUMP", value),
            f"CUPAR_DUMP is {value!r} and should be kinds and a folder, as in ptx,sass:/tmp/dump; kinds are "
            f"{', '.join(known)}. Nothing is written.",
        )
        return [], Path()
    return kinds, Path(folder)


def write(build: Any) -> None:
    """Write what is asked for of a build, once a process."""
    kinds, folder = asked()
    if not kinds or (build.key, str(folder)) in _written:
        return
    _written.add((build.key, str(folder)))
    for kind in kinds:
        if kind == OF_HOST:
            continue
        suffix, show = _KINDS[kind]
        attempt(f"the {kind} of {build.algorithm}", folder, name_of(build), suffix, lambda: show(build))  # noqa: B023


def name_of(build: Any) -> str:
    """Return what a build's files are called."""
    return f"{build.algorithm}-{build.key[:16]}"


def attempt(subject: str, folder: Path, name: str, suffix: str, show: Callable[[], Any]) -> None:
    """Write what `show` returns, text or bytes, or several of them by name; warn if that fails."""
    try:
        found = show()
        parts = found if isinstance(found, Mapping) else {"": found}
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in parts.items():
            named = [name, *[part.replace(" ", "-").replace("/", "-")] * bool(part)]
            place = folder / (".".join(named) + suffix)
            place.write_bytes(content.encode() if isinstance(content, str) else content)
    except Exception as error:  # whatever compilers and disks raise
        warn_once(("CUPAR_DUMP", subject, type(error)), f"CUPAR_DUMP: {subject} is not written: {error}")
