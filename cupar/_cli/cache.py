"""``cupar cache``: the commands that list, check, empty and carry the cache."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from .. import cache
from .._base.words import counted, date_text, size_text
from .._inspect import listing
from .._store.entry import is_key
from .command import FAULT, OK, Arguments, Result, UsageError, argument, ccs_of, command, group, naming
from .terminal import complain, iso_text, on_terminal, print_fields, print_table, say

_KEY = 12  # characters of a key on a terminal

group(
    "cache",
    "list, check, empty and carry the cache",
    """List, check and empty the cache, and carry it to other machines.

    Examples
    --------
    cupar cache list
    cupar cache export builds.cupar-bundle
    """,
)


def _shown(key: str) -> str:
    """Return as much of a key as a person needs, all of it for a program; a path as it is."""
    return key[:_KEY] if on_terminal() and is_key(key) else key


def _size(size: int) -> str:
    return size_text(size) if on_terminal() else str(size)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


# --- Entries --------------------------------------------------------------------------------------------

_ORDERS: dict[str, Callable[[cache.Info], Any]] = {
    "used": lambda info: (-(info.used or 0), info.key),
    "size": lambda info: (-info.size, info.key),
    "algorithm": lambda info: (info.algorithm, str(info.cc).rjust(4), info.entry, info.key),
}


def _targets_of(text: str) -> list[int | str]:
    """Return compute capabilities and the CPU as in ``90,cpu``."""
    found: list[int | str] = []
    for each in text.split(","):
        found += ["cpu"] if each.strip() == "cpu" else ccs_of(each)
    return found


@command("cache list", "list the entries")
@argument("--bundle", metavar="FILE", help="a bundle, or another cache's directory")
@argument("--algorithm", metavar="NAME", help="only this algorithm, as in reduce_into")
@argument("--cc", metavar="CC", type=_targets_of, help="only these compute capabilities, as in 80,90, or cpu")
@argument("--sort", choices=tuple(_ORDERS), default="used", help="default: used")
def list_(arguments: Arguments) -> Result:
    """List the entries of the user's directory, or of a bundle.

    Examples
    --------
    cupar cache list --cc 90 --sort size
    cupar cache list --bundle builds.cupar-bundle
    """
    where = listing.own().path if arguments.bundle is None else arguments.bundle
    found = [
        info
        for info in cache.entries(arguments.bundle)
        if arguments.algorithm in (None, info.algorithm) and (not arguments.cc or info.cc in arguments.cc)
    ]
    found.sort(key=_ORDERS[arguments.sort])
    entries = list(map(_described, found))
    return Result({"path": str(where), "entries": entries}, lambda: _show_list(entries, found))


def _described(info: cache.Info) -> dict[str, Any]:
    from .._inspect import differences

    types, operators = differences.types_and_operators(info.meta)
    return {
        "key": info.key,
        "kind": info.entry,
        "algorithm": info.algorithm or None,
        "cc": info.cc or None,
        "size": info.size,
        "used": iso_text(info.used),
        "types": types,
        "operators": operators,
    }


def _show_list(entries: list[dict[str, Any]], infos: list[cache.Info]) -> None:
    short, narrow = on_terminal(), shutil.get_terminal_size().columns < 80
    rows = []
    for entry, info in zip(entries, infos, strict=True):
        used = date_text(info.used)[: 10 if narrow else None] if short else entry["used"] or ""
        of = ", ".join([*entry["types"], *entry["operators"]])
        named = _shown(info.key), info.entry, info.algorithm, str(info.cc or "")
        rows.append((*named, _size(info.size), used, of))
    columns = ("key", "kind", "algorithm", "cc", "size", "used", "types and operators")
    end = -1 if short and narrow else None  # for which there is no room
    print_table(columns[:end], [row[:end] for row in rows], numbers=("cc", "size"))


@command("cache show", "show all metadata of an entry")
@argument("key", metavar="KEY", help="key of an entry, or a prefix of one")
@argument("--bundle", metavar="FILE", help="look in a bundle, or in another cache's directory")
def show(arguments: Arguments) -> Result:
    """Show all metadata of an entry: types, operators and what they read, versions, build times.

    Examples
    --------
    cupar cache show 3f7a90
    """
    with naming(key="KEY"):
        info = cache.info(arguments.key, arguments.bundle)
    meta = info.meta
    return Result({**_described(info), "meta": meta}, lambda: _show_entry(info, meta))


_APART = ("algorithm", "cc", "entry", "operators", "parts", "reads", "seconds")


def _show_entry(info: cache.Info, meta: dict[str, Any]) -> None:
    from .._inspect import differences

    fields = {
        "key": info.key,
        "kind": info.entry,
        "types and operators": differences.summary(meta),
        "size": f"{size_text(info.size)} ({info.size})",
        "used": date_text(info.used),
    }
    rest = [(name, _text(value)) for name, value in meta.items() if name not in _APART]
    title = differences.subject(meta) or "an entry that cannot be read"
    print_fields(title, [*fields.items(), *rest])
    tables = {"seconds": meta.get("seconds"), "what operators read": meta.get("reads")}
    parts = meta.get("parts")
    if isinstance(parts, dict):
        tables |= {f"{name}, in the key": part for name, part in parts.items()}
    for title, table in tables.items():
        if table and isinstance(table, (dict, list)):
            print_fields(title, _fields(table))


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield metadata as names and texts."""
    if isinstance(value, dict):
        for inner, each in value.items():
            yield from _fields(each, inner)
    elif isinstance(value, list) and all(isinstance(each, list) for each in value):
        for each in value:
            yield name, _text(each)
    else:
        yield name, _text(value)


def _text(value: Any) -> str:
    """Return metadata as text; a part of a key has its short form first, then its exact value."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        told, *rest = value
        exactly = " ".join(rest) if all(isinstance(each, str) for each in rest) else json.dumps(rest)
        return f"{told} {exactly}".strip()
    return value if isinstance(value, str) else json.dumps(value)


@command("cache stats", "count entries and sizes by algorithm, compute capability and kind")
def stats(arguments: Arguments) -> Result:
    """Count the entries of the user's directory.

    Examples
    --------
    cupar cache stats
    """
    directory = str(listing.own().path)
    found, usage = list(cache.entries()), cache.usage()
    used = [info.used for info in found if info.used is not None]
    oldest, newest = min(used, default=None), max(used, default=None)
    size = sum(info.size for info in found)
    sums = {
        "algorithm": _sums((info.algorithm or "none", info.size) for info in found),
        "cc": _sums((str(info.cc or "none"), info.size) for info in found),
        "kind": _sums((info.entry or "damaged", info.size) for info in found),
    }
    document = {
        "directory": directory,
        "entries": len(found),
        "size": size,
        "limit": usage.limit,
        "oldest": iso_text(oldest),
        "newest": iso_text(newest),
        **sums,
    }

    def show() -> None:
        fields = {
            "entries": str(len(found)),
            "size": f"{size_text(size)} of {size_text(usage.limit)}",
            "oldest": date_text(oldest),
            "newest": date_text(newest),
        }
        print_fields(directory, fields.items())
        for name, table in sums.items():
            say()
            rows = [(of, str(each["entries"]), _size(each["size"])) for of, each in table.items()]
            print_table((name, "entries", "size"), rows, numbers=("entries", "size"))

    return Result(document, show)


def _sums(sizes: Iterable[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """Return number and sum of the sizes under each name, the largest first."""
    found: dict[str, dict[str, int]] = {}
    for name, size in sizes:
        sums = found.setdefault(name, {"entries": 0, "size": 0})
        sums["entries"] += 1
        sums["size"] += size
    return dict(sorted(found.items(), key=lambda each: -each[1]["size"]))


@command("cache verify", "check every entry")
@argument("file", metavar="FILE", nargs="?", help="a bundle, or another cache's directory")
@argument("--repair", action="store_true", help="remove damaged entries")
def verify(arguments: Arguments) -> Result:
    """Read and check every entry of the user's directory or of a bundle.

    The exit status is 1 if an entry is damaged.

    Examples
    --------
    cupar cache verify --repair
    cupar cache verify builds.cupar-bundle
    """
    if arguments.file is not None and arguments.repair:
        raise UsageError("--repair: only the user's own directory is repaired; leave FILE out")
    where = listing.own().path if arguments.file is None else arguments.file
    report = cache.verify(arguments.file, repair=arguments.repair)
    faults = [{"key": key, "fault": why} for key, why in report.faults]
    repaired = bool(arguments.repair and faults)

    def show() -> None:
        if faults:
            print_table(("key", "fault"), [(_shown(key), why) for key, why in report.faults])
        removed = f", which {_were(len(faults))} removed" if repaired else ""
        say(f"{counted(report.checked, 'entry')} checked, {len(faults)} at fault{removed}")

    document = {"path": str(where), "checked": report.checked, "faults": faults, "repaired": repaired}
    return Result(document, show, FAULT if faults else OK)


# --- What may remain ------------------------------------------------------------------------------------


def _quantity(text: str, units: dict[str, int], expected: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in units:
        raise argparse.ArgumentTypeError(f"expected {expected}, got {text!r}")
    return int(float(match[1]) * units[match[2]])


def _bytes(text: str) -> int:
    units = {unit + tail: 1 << 10 * i for i, unit in enumerate("kmgt", 1) for tail in ("", "b", "ib")}
    return _quantity(text, {"": 1, "b": 1, **units}, "a number of bytes such as 500M or 2G")


def _seconds(text: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    return _quantity(text, units, "a time such as 12h or 30d (s, m, h, d, w)")


@command("cache prune", "remove the least recently used entries")
@argument(
    "--size", metavar="SIZE", type=_bytes, help="size that may remain, as in 500M; default: CUPAR_CACHE_SIZE"
)
@argument(
    "--unused", metavar="TIME", type=_seconds, help="also remove entries unused for longer, as in 12h or 30d"
)
def prune(arguments: Arguments) -> Result:
    """Remove the least recently used entries, and leftovers of processes that died.

    Without options, entries are removed only while the directory exceeds CUPAR_CACHE_SIZE. As every build
    sees to that, there are mostly none.

    Examples
    --------
    cupar cache prune --size 500M
    cupar cache prune --unused 30d
    """
    listing.own()  # or fail
    done = cache.prune(size=arguments.size, unused_for=arguments.unused)
    return _removed(done.removed, done.freed)


@command("cache clear", "remove every entry")
@argument("--yes", action="store_true", help="do not ask for confirmation")
def clear(arguments: Arguments) -> Result:
    """Remove every entry of the user's directory.

    Examples
    --------
    cupar cache clear --yes
    """
    directory, usage = listing.own().path, cache.usage()
    if not arguments.yes and not _agreed(f"Remove {counted(usage.entries, 'entry')} from {directory}?"):
        return Result({"removed": 0, "freed": 0}, lambda: None, FAULT)
    cache.clear(memory=False)
    left = cache.usage()
    return _removed(usage.entries - left.entries, usage.size - left.size)


def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("standard input is not a terminal; pass --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _removed(entries: int, size: int) -> Result:
    document = {"removed": entries, "freed": size}
    return Result(document, lambda: say(f"removed {counted(entries, 'entry')}, {size_text(size)}"))


# --- To and from other machines -------------------------------------------------------------------------


@command("cache export", "write a bundle for other machines")
@argument("file", metavar="FILE")
@argument("keys", metavar="KEY", nargs="*", help="key of an entry to export; default: all")
def export(arguments: Arguments) -> Result:
    """Write entries of the user's directory to a bundle.

    A bundle is one file, which other machines import or read in place (CUPAR_BUNDLES). Its entries are
    signed if CUPAR_SIGNING_KEY is set.

    Examples
    --------
    cupar cache export builds.cupar-bundle
    cupar cache export two.cupar-bundle 3f7a90 b1eb7f
    """
    listing.own()  # or fail
    with naming(keys="KEY"):
        return _carried("exported", cache.export(arguments.file, arguments.keys or None))


@command("cache import", "copy the entries of a bundle into the cache")
@argument("file", metavar="FILE")
def import_(arguments: Arguments) -> Result:
    """Copy the entries of a bundle, or of another cache's directory, into the user's directory.

    Examples
    --------
    cupar cache import builds.cupar-bundle
    """
    listing.own()  # or fail
    return _carried("imported", cache.import_(arguments.file))


def _carried(verb: str, done: cache.Transfer) -> Result:
    def show() -> None:
        rest = {"left out": done.skipped, "refused": done.refused, "not kept": done.not_kept}
        counts = "".join(f"; {count} {what}" for what, count in rest.items() if count)
        say(f"{verb} {counted(done.entries, 'entry')}, {size_text(done.size)}{counts}")

    limit = size_text(listing.own().limit_bytes)
    for number, why in (
        (done.not_kept, f"not kept: the limit is {limit} (CUPAR_CACHE_SIZE)"),
        (done.refused, "refused: damaged, or not to be trusted"),
    ):
        if number:
            complain(f"error: {counted(number, 'entry')} {_were(number)} {why}")
    return Result(asdict(done), show, FAULT if done.refused or done.not_kept else OK)
