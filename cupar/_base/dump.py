"""Generated code and builds, written to files: ``CUPAR_DUMP=python,ptx,sass:folder``. Fails no build."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .digests import sha256
from .warnings import warn_once

# Of builds, see `_inspect.dump`; Python that is written out; and launch code of compiled host code.
OF_BUILDS = ("llvm", "ltoir", "ptx", "sass", "cubin")
_KINDS = (*OF_BUILDS, "python", "host")


def requested() -> tuple[list[str], Path]:
    """Return which kinds the environment asks for, and the folder."""
    value = os.environ.get("CUPAR_DUMP", "")
    names, _, folder = value.partition(":")
    kinds = [name.strip() for name in names.split(",")] if folder else []
    if not kinds or not set(kinds) <= set(_KINDS):
        warn_once(
            ("CUPAR_DUMP", value),
            f"CUPAR_DUMP is {value!r} and should be kinds and a folder, as in ptx,sass:/tmp/dump; kinds are "
            f"{', '.join(_KINDS)}. Nothing is written.",
        )
        return [], Path()
    return kinds, Path(folder)


def write_text(kind: str, subject: str, suffix: str, text: str) -> None:
    """Write a text, if its kind is asked for, to a file that is called by its subject and content."""
    kinds, folder = requested()
    if kind in kinds:
        plain = "".join(each if each.isalnum() or each in "_-" else "-" for each in subject)
        name = f"{plain}.{sha256(text.encode()).hexdigest()[:8]}"
        attempt(f"the {kind} of {subject}", folder, name, suffix, lambda: text)


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
    except Exception as error:  # compilers and disks may raise anything
        warn_once(("CUPAR_DUMP", subject, type(error)), f"CUPAR_DUMP: {subject} is not written: {error}")
