"""What errors say of their causes: where a function is defined, and the long error behind a short one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def is_debugging() -> bool:
    """Whether ``CUPAR_DEBUG=1`` asks for all that compilers say."""
    return os.environ.get("CUPAR_DEBUG", "") not in ("", "0")


def cause(error: BaseException) -> BaseException | None:
    """Return what a short error is to be raised from: the long one when debugging, else nothing."""
    return error if is_debugging() else None


def place(function: Any) -> str:
    """Return where a function is defined, as in ``" (file.py:12)"``; empty for one that is not Python's."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    if code is None or is_ours(code.co_filename):
        return ""
    return f" ({code.co_filename}:{code.co_firstlineno})"


def is_ours(file: str) -> bool:
    """Whether a file is a compiler's or cupar's own."""
    modules = map(sys.modules.get, ("cupar", "numba", "numba.cuda"))
    folders = (str(Path(module.__file__).parent) for module in modules if module and module.__file__)
    return file == "<string>" or any(file.startswith(f"{folder}{os.sep}") for folder in folders)
