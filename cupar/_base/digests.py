"""SHA-256 for a process that must start quickly: Python's own, unless OpenSSL's is loaded already.

`hashlib` loads OpenSSL, which costs 3 ms: the time in which Python's own digests 1 MB. A hit digests a tenth
of that.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

__all__ = ["sha256"]

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
