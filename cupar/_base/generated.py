"""Generated Python: a filled template, executed, and dumped on request.

The code that each call runs, and that numba compiles for some types, is written for these types, without
loops and without tests whose results are known. ``CUPAR_DUMP=python:folder`` writes all of it to files.
"""

from __future__ import annotations

import os
from functools import lru_cache
from types import CodeType
from typing import Any


class Unquoted(str):
    """Text that is shown without quotes: a default of a generated function's parameter."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def fill(template: str, **values: Any) -> str:
    """Return a template with each ``{name}`` filled in: as `str.format` does, or by a list of lines.

    A list takes the place of a line that is its name alone, at the same indentation; an empty one removes it.
    """
    if not values:
        return template
    lines = []
    for line in template.strip("\n").split("\n"):
        name = line.strip()
        value = values.get(name[1:-1]) if name[:1] == "{" and name[-1:] == "}" else None
        if not isinstance(value, (list, tuple)):
            lines.append(line.format_map(values) if "{" in line else line)
        else:
            indent = line[: line.index("{")]
            lines += [indent + each for one in value for each in one.strip("\n").split("\n")]
    return "\n".join(lines)


def define(subject: str, wanted: str, template: str, names: dict[str, Any], **values: Any) -> Any:
    """Execute a filled template and return the wanted function, or a tuple of those named, by spaces.

    Parameters
    ----------
    subject : str
        The purpose of the code; dumped files are named after it.
    names : dict
        The functions' globals. The functions themselves are removed from it, or they would keep each other
        alive.
    """
    text = fill(template, **values)
    if os.environ.get("CUPAR_DUMP"):
        from . import dump

        dump.write_text("python", subject, ".py", text)
    exec(_compiled(text), names)
    found = tuple([names.pop(each) for each in wanted.split()])
    return found if len(found) > 1 else found[0]


@lru_cache(256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<cupar>", "exec")  # a name that `causes` hides from tracebacks
