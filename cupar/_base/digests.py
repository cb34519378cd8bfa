"""SHA-256 for a process that must start quickly: Python's own, unless OpenSSL's is loaded already.

`hashlib` loads OpenSSL, which costs 3 ms: the time in which Python's own digests 1 MB. A hit digests a tenth
of that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__all__ = ["canonical", "sha256"]

if TYPE_CHECKING or "_hashlib" in sys.modules:
    from hashlib import sha256
else:
    try:
        if sys.version_info >= (3, 12):
            from _sha2 import sha256
        else:
            from _sha256 import sha256
    except ImportError:  # of a Python without them
        from hashlib import sha256


def canonical(part: Any) -> str:
    """Return a text that is equal only for equal parts, in any order of names.

    As JSON's, but with Python's literals: importing `json` costs 2 ms, a thirtieth of a start.
    """
    kind = type(part)
    if kind is str or kind is int or kind is bool or part is None:
        return ascii(part)
    if kind is list or kind is tuple:
        return f"[{','.join(map(canonical, part))}]"
    if kind is not dict:
        raise TypeError(f"a part of a key is text, a number, a list or a table, got {part!r}")
    return f"{{{','.join([f'{name!a}:{canonical(part[name])}' for name in sorted(part)])}}}"
