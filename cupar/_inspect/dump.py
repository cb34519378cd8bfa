"""Intermediate code of builds, written to files: ``CUPAR_DUMP=llvm,ptx,sass:folder``.

A file is named after the algorithm and the beginning of its key, so a build is the same file in each run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._base import fork
from .._base.dump import OF_BUILDS, attempt, requested

_SHOWN: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "llvm": (".ll", lambda build: build.llvm()),
    "ltoir": (".ltoir", lambda build: build.ltoir()),
    "ptx": (".ptx", lambda build: build.ptx()),
    "sass": (".sass", lambda build: build.sass()),
    "cubin": (".cubin", lambda build: build._shown().cubin()),
}
_written: set[tuple[str, str]] = set()  # keys, and where to


@fork.in_child
def _forget() -> None:
    _written.clear()


def write(build: Any) -> None:
    """Write the requested forms of a build, once per process."""
    kinds, folder = requested()
    if not kinds or (build.key, str(folder)) in _written:
        return
    _written.add((build.key, str(folder)))
    for kind in OF_BUILDS:
        if kind in kinds:
            suffix, show = _SHOWN[kind]
            subject = f"the {kind} of {build.algorithm}"
            attempt(subject, folder, name_of(build), suffix, lambda: show(build))  # noqa: B023


def name_of(build: Any) -> str:
    """Return the name of a build's files."""
    return f"{build.algorithm}-{build.key[:16]}"
