"""Launch code that is made for compiled host code, written to files: ``CUPAR_DUMP=host:folder``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .._base import dump
from .._base.digests import sha256
from .._inspect.dump import name_of


def write(build: Any, suffix: str, show: Callable[[], str]) -> None:
    """Write what `show` returns, if ``CUPAR_DUMP`` asks for it; the file's name has a hash of the text."""
    if not os.environ.get("CUPAR_DUMP"):
        return
    kinds, folder = dump.requested()
    if "host" not in kinds:
        return
    text = show()
    name = f"{name_of(build)}.{sha256(text.encode()).hexdigest()[:8]}"
    dump.attempt(f"the launch code of {build.algorithm}", folder, name, f".host{suffix}", lambda: text)
