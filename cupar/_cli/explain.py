"""``cupar explain``."""

from __future__ import annotations

from dataclasses import asdict

from .. import cache
from .command import Arguments, Result, argument, command, naming
from .terminal import say


@command("explain", "say how two entries differ")
@argument("key", metavar="KEY", help="key of an entry, or a prefix of one")
@argument(
    "other", metavar="OTHER", nargs="?", help="key of the entry to compare it with; default: the nearest"
)
def explain(arguments: Arguments) -> Result:
    """Say which parts of an entry's key differ from those of another entry, or of the nearest one.

    This tells why something was built although a similar build was there.

    Examples
    --------
    cupar explain 3f7a90 b1eb7f
    cupar explain 3f7a90
    """
    with naming(algorithm="KEY", other="OTHER"):
        found = cache.explain(arguments.key, arguments.other)
    return Result(asdict(found), lambda: say(str(found)))
