"""The command line, ``cupar`` and ``python -m cupar``: see the cache, build ahead, carry builds elsewhere.

Each command imports what it needs when it runs: a listing needs neither NumPy nor a compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__, cache
from .._base.warnings import CacheWarning
from .._base.words import counted
from .._inspect import listing
from .._store.entry import is_key
from .terminal import (
    Bar,
    Lines,
    OutputError,
    Progress,
    complain,
    date_text,
    is_narrow,
    iso_text,
    leave_output,
    on_terminal,
    open_closed_streams,
    output_left_alone,
    print_fields,
    print_json,
    print_table,
    say,
    size_text,
)

if TYPE_CHECKING:
    from .._ahead.batch import Failure, Job, Outcome

__all__ = ["main"]

_OK, _FAULT, _USAGE = 0, 1, 2
_INTERRUPTED, _BROKEN_PIPE = 130, 141  # what a shell reports of a program that SIGINT or SIGPIPE ended

_KEY = 12  # characters of a key on a terminal

Arguments = argparse.Namespace


class _UsageError(Exception):
    """The command line is not what it should be."""


class _FailedError(Exception):
    """What was asked for cannot be done."""


# --- Start and end -------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments; by default those of the process.

    Returns
    -------
    int
        The exit status: 0 if all is well, 1 if something was found wrong or failed, 2 if the command line is
        not understood, 130 if interrupted, 141 if the reader of its output went away.
    """
    open_closed_streams()
    try:
        status = _status(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # what reads the output, such as 'head', has seen enough
        leave_output()
        return _BROKEN_PIPE
    except OSError as error:
        leave_output()
        complain(f"error: standard output: {error.strerror or error}")
        return _FAULT
    except _Terminated:
        signal.raise_signal(signal.SIGTERM)  # so that who has started this process sees what ended it
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        complain("interrupted")
        return _INTERRUPTED


def _status(words: list[str]) -> int:
    words, script = _split(words)
    try:
        arguments = _parser().parse_args(words)
    except SystemExit as end:  # after help, the version, or what is wrong with the command line
        return int(end.code or 0)
    arguments.script_arguments = script
    with _warnings_as_lines(), _ending_cleanly():
        return _run(arguments)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends what it meets as an interrupt does."""


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Let SIGTERM end this process only after what was begun is cleaned up: processes, locks, files."""

    def end(*received: object) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.getsignal(signal.SIGTERM)
    if usual is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Take off what stands behind ``--``: the arguments of a script that is built."""
    if words[:1] != ["build"] or "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], words[end + 1 :]


def _run(arguments: Arguments) -> int:
    command: Callable[[Arguments], int] = arguments.command
    try:
        return command(arguments)
    except (BrokenPipeError, OutputError):
        raise
    except _UsageError as error:
        complain(f"error: {error}")
        return _USAGE
    except OSError as error:
        named = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        complain(f"error: {named}{error.strerror or error}")
    except (_FailedError, ValueError, ImportError) as error:
        complain(f"error: {error}")
    except RecursionError:
        complain("error: an entry's metadata is nested too deep")
    return _FAULT


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Write what the cache warns of as a line, without the place in cupar's code that it comes from."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
        if issubclass(category, CacheWarning):
            complain(f"warning: {message}")
        else:
            usual(message, category, *place, **named)

    usual = warnings.showwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always", CacheWarning)
        warnings.showwarning = show
        yield


# --- The command line ----------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser that does not hide that its help cannot be written."""

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="cupar",
        description="See cupar's cache, build ahead of time, and carry builds to other machines.",
        epilog="examples:\n  cupar info\n  cupar cache list\n  cupar build train.py --cc 80,90",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cupar {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    _command(
        commands,
        "info",
        _info,
        "versions, compilers, GPUs, and where the cache is",
        "Show what cupar finds on this machine, and what is missing.",
        "cupar info\n  cupar info --json | jq .gpus",
    )
    _build_command(commands)
    explain = _command(
        commands,
        "explain",
        _explain,
        "in what two entries differ",
        "Say which parts of an entry's key differ from those of another, or of the nearest: why a build was\n"
        "made although one like it was there.",
        "cupar explain 3f7a90 b1eb7f\n  cupar explain 3f7a90",
    )
    explain.add_argument("a", metavar="A", help="key of an entry, or the beginning of one")
    explain.add_argument("b", metavar="B", nargs="?", help="what to compare it with; else the nearest")

    folder = commands.add_parser(
        "cache",
        help="list, check, empty and carry the cache",
        description="See what is in the cache, check and empty it, and carry it to other machines.",
        epilog="examples:\n  cupar cache list\n  cupar cache export builds.cupar-bundle",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _cache_commands(folder.add_subparsers(title="commands", metavar="COMMAND", required=True))
    return parser


def _build_command(commands: Any) -> None:
    build = _command(
        commands,
        "build",
        _build,
        "build ahead of time, without a GPU",
        "Build all that a Python script asks for, or that a recorded list (CUPAR_RECORD) names, for each\n"
        "compute capability. A script is run, with factories that build nothing; it must not call what it\n"
        "gets. Both run code: build only what you would run.",
        "cupar build asked.jsonl --cc 80,90,100,120\n"
        "  cupar build train.py --cc 90 --jobs 8 -- --arguments of the script",
    )
    build.add_argument("source", metavar="SCRIPT_OR_LIST", help="a script (.py), or a recorded list")
    build.add_argument(
        "--cc",
        metavar="CC",
        help="compute capabilities, as in 80,90; by default those that the script or list names, else that "
        "of the GPU here",
    )
    build.add_argument(
        "--jobs", metavar="N", type=_positive, help="how many to build at a time; by default one a core"
    )


def _cache_commands(commands: Any) -> None:
    entries = _command(
        commands,
        "list",
        _list,
        "what is in the cache",
        "List the entries of the user's directory, or of a bundle.",
        "cupar cache list --cc 90 --sort size\n  cupar cache list --bundle builds.cupar-bundle",
    )
    entries.add_argument("--bundle", metavar="FILE", help="a bundle, or another cache's directory")
    entries.add_argument("--algorithm", metavar="NAME", help="only this one, as in reduce_into")
    entries.add_argument("--cc", metavar="CC", help="only these compute capabilities, as in 80,90")
    entries.add_argument("--sort", choices=tuple(_ORDERS), default="used", help="by default: used")

    show = _command(
        commands,
        "show",
        _show,
        "all that is known of an entry",
        "Show all that is known of an entry: types, operators and what they read, versions, seconds.",
        "cupar cache show 3f7a90",
    )
    show.add_argument("key", metavar="KEY", help="its key, or the beginning of it")
    show.add_argument("--bundle", metavar="FILE", help="look in a bundle, or in another cache's directory")

    _command(
        commands,
        "stats",
        _stats,
        "numbers and sizes by algorithm, compute capability and kind",
        "Count the entries of the user's directory.",
        "cupar cache stats",
    )

    verify = _command(
        commands,
        "verify",
        _verify,
        "check every entry",
        "Read every entry of the user's directory, or of a bundle, and check that it is what was stored.\n"
        "The exit status is 1 if one is not.",
        "cupar cache verify --repair\n  cupar cache verify builds.cupar-bundle",
    )
    verify.add_argument("file", metavar="FILE", nargs="?", help="a bundle, or another cache's directory")
    verify.add_argument("--repair", action="store_true", help="remove what is damaged")

    prune = _command(
        commands,
        "prune",
        _prune,
        "remove what was not used for longest",
        "Remove entries, those that were not used for longest first, and what processes that died left.",
        "cupar cache prune --size 500M\n  cupar cache prune --unused 30d",
    )
    prune.add_argument("--size", metavar="SIZE", type=_bytes, help="how much may remain, as in 500M")
    prune.add_argument("--unused", metavar="TIME", type=_seconds, help="for how long, as in 12h or 30d")

    clear = _command(
        commands,
        "clear",
        _clear,
        "remove every entry",
        "Remove every entry of the user's directory.",
        "cupar cache clear --yes",
    )
    clear.add_argument("--yes", action="store_true", help="do not ask")

    export = _command(
        commands,
        "export",
        _export,
        "write a bundle for other machines",
        "Write entries of the user's directory to a bundle: one file, that other machines import or read in\n"
        "place (CUPAR_BUNDLES). It is signed if CUPAR_SIGNING_KEY is set.",
        "cupar cache export builds.cupar-bundle\n  cupar cache export two.cupar-bundle 3f7a90 b1eb7f",
    )
    export.add_argument("file", metavar="FILE")
    export.add_argument("keys", metavar="KEY", nargs="*", help="of the entries to take; by default all")

    imported = _command(
        commands,
        "import",
        _import,
        "copy the entries of a bundle into the cache",
        "Copy the entries of a bundle, or of another cache's directory, into the user's directory.",
        "cupar cache import builds.cupar-bundle",
    )
    imported.add_argument("file", metavar="FILE")


def _command(
    commands: Any, name: str, run: Callable[[Arguments], int], short: str, long: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=long,
        epilog=f"examples:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(command=run)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def _quantity(text: str, units: dict[str, int], example: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)([a-z]*)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in units:
        raise argparse.ArgumentTypeError(f"expected {example}, got {text!r}")
    return int(float(match[1]) * units[match[2]])


def _bytes(text: str) -> int:
    units = {unit + tail: 1 << 10 * i for i, unit in enumerate("kmgt", 1) for tail in ("", "b", "ib")}
    return _quantity(text, {"": 1, "b": 1, **units}, "a number of bytes such as 500M or 2G")


def _seconds(text: str) -> int:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
    return _quantity(text, units, "a time such as 12h or 30d (s, m, h, d, w)")


def _ccs(text: str | None) -> list[int]:
    """Return compute capabilities, each once."""
    if text is None:
        return []
    from .._obtain.target import parse_cc

    try:
        return list(dict.fromkeys(parse_cc(each.strip()) for each in text.split(",")))
    except (TypeError, ValueError) as error:
        raise _UsageError(f"--{error}; several are separated by commas, as in 80,90") from None


def _shown(key: str) -> str:
    """Return as much of a key as a person needs, all of it for a program; a path as it is."""
    return key[:_KEY] if on_terminal() and is_key(key) else key


def _cc(cc: int) -> str:
    return str(cc) if cc else ""


# --- cupar info ----------------------------------------------------------------------------------------


def _info(arguments: Arguments) -> int:
    from .._inspect import environment

    gpus = environment.gpus()  # before the bindings, which load a stand-in for a driver that is not there
    driver = environment.nvidia_driver()
    compilers = environment.compilers()
    packages = environment.packages()
    missing = list(dict.fromkeys(why for path, why in compilers.values() if path is None))
    missing += [f"pip install {name}" for name, version in packages.items() if version is None]
    found: dict[str, Any] = {
        "cupar": __version__,
        "python": environment.python(),
        "executable": sys.executable,
        "packages": packages,
        "compilers": {name: path for name, (path, _) in compilers.items()},
        "driver": driver,
        "gpus": gpus,
        "cache": environment.cache(),
        "environment": environment.variables(),
        "missing": missing,
    }
    if arguments.json:
        print_json(found)
    else:
        _print_info(found)
    return _FAULT if missing else _OK


def _print_info(found: dict[str, Any]) -> None:
    print_fields(
        "versions",
        [
            ("cupar", found["cupar"]),
            ("Python", found["python"]),
            *((name, version or "missing") for name, version in found["packages"].items()),
        ],
    )
    print_fields("compilers", [(name, path or "missing") for name, path in found["compilers"].items()])
    driver = found["driver"] or {}
    gpus = [
        (f"GPU {gpu['ordinal']}", f"{gpu['name']}, sm_{gpu['cc']}, {size_text(gpu['memory'])}")
        for gpu in found["gpus"]
    ]
    none = [("GPU", "none here; builds can be made for others, with cc= or 'cupar build'")]
    versions = [("CUDA", f"up to {driver['cuda']}")] if "cuda" in driver else []
    versions += [("driver", driver["driver"])] if "driver" in driver else []
    print_fields("GPUs", [*versions, *(gpus or none)])
    print_fields("cache", _cache_fields(found["cache"]))
    print_fields("environment", found["environment"].items() or [("none", "")])
    for each in found["missing"]:
        complain(f"missing: {each}")


def _cache_fields(found: dict[str, Any]) -> list[tuple[str, str]]:
    bundles = [
        ("bundle", f"{each['path']}, {counted(each['entries'], 'entry')}") for each in found["bundles"]
    ]
    return [
        ("directory", found["directory"] or "none"),
        ("entries", str(found["entries"])),
        ("size", f"{size_text(found['size'])} of {size_text(found['limit'])}"),
        *(bundles or [("bundles", "none")]),
        ("shared store", found["shared"] or "none"),
        ("signing", "on" if found["signing"] else "off"),
    ]


# --- cupar cache list, show, stats ---------------------------------------------------------------------

_ORDERS: dict[str, Callable[[cache.Info], Any]] = {
    "used": lambda info: (-(info.used or 0), info.key),
    "size": lambda info: (-info.size, info.key),
    "algorithm": lambda info: (info.algorithm, info.cc, info.entry, info.key),
}


def _list(arguments: Arguments) -> int:
    ccs = _ccs(arguments.cc)
    where = _directory() if arguments.bundle is None else arguments.bundle
    found = [
        info
        for info in cache.entries(arguments.bundle)
        if arguments.algorithm in (None, info.algorithm) and (not ccs or info.cc in ccs)
    ]
    found.sort(key=_ORDERS[arguments.sort])
    if arguments.json:
        print_json({"path": str(where), "entries": [_described(info) for info in found]}, rows=len(found))
        return _OK
    short = on_terminal()
    rows = [
        (
            _shown(info.key),
            info.entry,
            info.algorithm,
            _cc(info.cc),
            size_text(info.size) if short else str(info.size),
            date_text(info.used)[: 10 if is_narrow() else None] if short else iso_text(info.used) or "",
        )
        for info in found
    ]
    print_table(("key", "kind", "algorithm", "cc", "size", "used"), rows, numbers=("cc", "size"))
    return _OK


def _directory() -> Path:
    """Return the user's directory; fail if there is none to be used."""
    return listing.own().path


def _described(info: cache.Info) -> dict[str, Any]:
    return {
        "key": info.key,
        "entry": info.entry,
        "algorithm": info.algorithm or None,
        "cc": info.cc or None,
        "size": info.size,
        "used": iso_text(info.used),
    }


def _show(arguments: Arguments) -> int:
    info = cache.info(arguments.key, arguments.bundle)
    meta = info.meta
    if arguments.json:
        print_json({**_described(info), "meta": meta})
        return _OK
    from .._inspect import differences as explaining

    print_fields(
        explaining.subject(meta) or "an entry that cannot be read",
        [
            ("key", info.key),
            ("kind", info.entry),
            ("types and operators", explaining.summary(meta)),
            ("size", f"{size_text(info.size)} ({info.size})"),
            ("last used", date_text(info.used)),
            *((name, _text(value)) for name, value in meta.items() if name not in _SHOWN),
        ],
    )
    for name, title in (("seconds", "seconds"), ("reads", "what operators read")):
        if meta.get(name):
            print_fields(title, _pairs(meta[name]))
    parts = meta.get("parts")
    rest = parts if isinstance(parts, dict) else {}
    for name, part in rest.items():
        if part and isinstance(part, (dict, list)):
            print_fields(f"{name}, in the key", _pairs(part))
    return _OK


_SHOWN = ("algorithm", "cc", "entry", "operators", "parts", "reads", "seconds")


def _pairs(value: Any) -> list[tuple[str, str]]:
    """Return a part of an entry's metadata as names and values."""
    if not isinstance(value, dict):
        return [("", _text(each)) for each in (value if isinstance(value, list) else [value])]
    pairs = []
    for name, each in value.items():
        items = each if isinstance(each, list) and all(isinstance(item, list) for item in each) else [each]
        pairs += [(name, _text(item)) for item in items]
    return pairs


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def _stats(arguments: Arguments) -> int:
    directory = _directory()
    found = list(cache.entries())
    used = [info.used for info in found if info.used is not None]
    groups = {
        "algorithm": _sums((info.algorithm or "none", info.size) for info in found),
        "cc": _sums((_cc(info.cc) or "none", info.size) for info in found),
        "kind": _sums((info.entry or "damaged", info.size) for info in found),
    }
    total, limit = sum(info.size for info in found), cache.usage().limit
    if arguments.json:
        document = {
            "directory": str(directory),
            "entries": len(found),
            "size": total,
            "limit": limit,
            "oldest": iso_text(min(used, default=None)),
            "newest": iso_text(max(used, default=None)),
            **{
                name: {each: {"entries": count, "size": size} for each, count, size in group}
                for name, group in groups.items()
            },
        }
        print_json(document)
        return _OK
    print_fields(
        str(directory),
        [
            ("entries", str(len(found))),
            ("size", f"{size_text(total)} of {size_text(limit)}"),
            ("oldest use", date_text(min(used, default=None))),
            ("newest use", date_text(max(used, default=None))),
        ],
    )
    for name, group in groups.items():
        say()
        print_table(
            (name, "entries", "size"),
            [
                (each, str(count), size_text(size) if on_terminal() else str(size))
                for each, count, size in group
            ],
            numbers=("entries", "size"),
        )
    return _OK


def _sums(sizes: Iterable[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return number and sum of the sizes under each name, the largest first."""
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for name, size in sizes:
        counts[name] += 1
        totals[name] += size
    return [(name, counts[name], total) for name, total in totals.most_common()]


# --- cupar cache verify, prune, clear, export, import; cupar explain -------------------------------------


def _verify(arguments: Arguments) -> int:
    if arguments.file is not None and arguments.repair:
        raise _UsageError("--repair: only the user's own directory is repaired; leave FILE out")
    where = _directory() if arguments.file is None else arguments.file
    report = cache.verify(arguments.file, repair=arguments.repair)
    faults = [{"key": key, "fault": why} for key, why in report.faults]
    if arguments.json:
        repaired = bool(arguments.repair and faults)
        print_json({"path": str(where), "checked": report.checked, "faults": faults, "repaired": repaired})
    else:
        if faults:
            print_table(("key", "fault"), [(_shown(key), why) for key, why in report.faults])
        removed = f", which {_were(len(faults))} removed" if arguments.repair and faults else ""
        say(f"{counted(report.checked, 'entry')} checked, {len(faults)} at fault{removed}")
    return _FAULT if faults else _OK


def _prune(arguments: Arguments) -> int:
    _directory()
    done = cache.prune(size=arguments.size, unused_for=arguments.unused)
    return _removed(arguments, done.removed, done.freed)


def _clear(arguments: Arguments) -> int:
    directory, usage = _directory(), cache.usage()
    if not arguments.yes and not _agreed(f"Remove {counted(usage.entries, 'entry')} from {directory}?"):
        return _FAULT
    cache.clear(memory=False)
    left = cache.usage()
    return _removed(arguments, usage.entries - left.entries, usage.size - left.size)


def _agreed(question: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise _UsageError("there is no terminal to ask at: say --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _removed(arguments: Arguments, entries: int, size: int) -> int:
    if arguments.json:
        print_json({"removed": entries, "freed": size})
    else:
        say(f"removed {counted(entries, 'entry')}, {size_text(size)}")
    return _OK


def _export(arguments: Arguments) -> int:
    _directory()
    done = cache.export(arguments.file, arguments.keys or None)
    return _carried(arguments, "exported", done)


def _import(arguments: Arguments) -> int:
    _directory()
    return _carried(arguments, "imported", cache.import_(arguments.file))


def _carried(arguments: Arguments, verb: str, done: cache.Transfer) -> int:
    if arguments.json:
        print_json(asdict(done))
    else:
        rest = {"left out": done.skipped, "refused": done.refused, "not kept": done.not_kept}
        counts = "".join(f"; {count} {what}" for what, count in rest.items() if count)
        say(f"{verb} {counted(done.entries, 'entry')}, {size_text(done.size)}{counts}")
    if done.not_kept:
        lost = f"{counted(done.not_kept, 'entry')} {_were(done.not_kept)}"
        complain(f"error: {lost} not kept: the limit is {_limit()} (CUPAR_CACHE_SIZE)")
    if done.refused:
        lost = f"{counted(done.refused, 'entry')} {_were(done.refused)}"
        complain(f"error: {lost} refused: damaged, or not to be trusted")
    return _FAULT if done.refused or done.not_kept else _OK


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _limit() -> str:
    return size_text(listing.own().limit_bytes)


def _explain(arguments: Arguments) -> int:
    found = cache.explain(arguments.a, arguments.b)
    if arguments.json:
        differences = [
            {"part": each.part, "now": each.now, "before": each.before} for each in found.differences
        ]
        print_json({"key": found.key, "nearest": found.nearest, "differences": differences})
    else:
        say(str(found))
    return _OK


# --- cupar build ---------------------------------------------------------------------------------------

_RESULTS = ("built", "linked", "there", "failed")


def _build(arguments: Arguments) -> int:
    start = time.perf_counter()
    _directory()
    with output_left_alone() if arguments.json else nullcontext():
        jobs, failures, outcomes, said = _done(arguments)
    for text in said:
        complain(f"warning: {text}")
    seconds = time.perf_counter() - start
    if arguments.json:
        print_json(_built_document(jobs, outcomes, failures, seconds))
    else:
        _print_built(jobs, outcomes, failures, seconds)
    return _FAULT if failures or any(each.result == "failed" for each in outcomes.values()) else _OK


def _done(
    arguments: Arguments,
) -> tuple[list[Job], list[Failure], dict[str, Outcome], dict[str, None]]:
    """Build; return what was asked for, what could not be, what came of each key, and what to warn of."""
    from .._ahead import batch
    from .._base.background import cores

    jobs, failures = _asked(arguments)
    if not jobs and not failures:
        raise _FailedError(f"{arguments.source}: nothing was asked for")
    processes = arguments.jobs or cores()
    said: dict[str, None] = {}
    outcomes: dict[str, Outcome] = {}
    progress = Progress() if arguments.json else Bar() if on_terminal() else Lines()
    with progress.showing(len(jobs)), closing(batch.build(jobs, processes, progress.idle)) as done:
        for job, outcome in done:
            outcomes[job.key] = outcome
            said.update(dict.fromkeys(outcome.warnings))
            progress.done(job, outcome)
    return jobs, failures, batch.kept(outcomes), said


def _asked(arguments: Arguments) -> tuple[list[Job], list[Failure]]:
    """Return the builds that a script or list asks for, and what could not be asked for."""
    from .._ahead import batch, record

    path, ccs = Path(arguments.source), _ccs(arguments.cc)
    if path.suffix == ".py":
        path.open("rb").close()  # to say now that it cannot be read
        asked, failures = batch.ask_script(path, arguments.script_arguments, ccs[0] if ccs else None)
    elif arguments.script_arguments:
        raise _UsageError("--: a recorded list takes no arguments; a script has a name that ends in .py")
    else:
        asked, failures = batch.ask_list(record.read(path), ccs)
    return batch.jobs(asked, ccs), failures


def _built_document(
    jobs: Sequence[Job], outcomes: dict[str, Outcome], failures: Sequence[Failure], seconds: float
) -> dict[str, Any]:
    builds = [
        {
            "key": job.key,
            "algorithm": job.spec.algorithm,
            "cc": job.spec.cc,
            "types": job.types,
            "operators": job.operators,
            "result": outcomes[job.key].result,
            "seconds": round(outcomes[job.key].seconds, 4),
            "cubin_size": outcomes[job.key].cubin_size,
            "error": outcomes[job.key].error or None,
        }
        for job in jobs
    ]
    counts: Counter[str] = Counter(each.result for each in outcomes.values())
    return {
        "builds": builds,
        "not_asked": [{"place": each.place, "error": each.error} for each in failures],
        "counts": {result: counts[result] for result in _RESULTS},
        "seconds": round(seconds, 4),
    }


def _print_built(
    jobs: Sequence[Job], outcomes: dict[str, Outcome], failures: Sequence[Failure], seconds: float
) -> None:
    rows = []
    for cc in dict.fromkeys(job.spec.cc for job in jobs):
        of_cc = [outcomes[job.key] for job in jobs if job.spec.cc == cc]
        counts: Counter[str] = Counter(each.result for each in of_cc)
        spent = f"{sum(each.seconds for each in of_cc):.1f}"
        rows.append((f"sm_{cc}", *(str(counts[result]) for result in _RESULTS), spent))
    names = ("for", "built", "linked", "already there", "failed", "seconds")
    print_table(names, rows, numbers=names[1:])
    say(f"{counted(len(jobs), 'build')} in {seconds:.1f} s")
    for job in jobs:
        if outcomes[job.key].result == "failed":
            complain(f"error: {job}: {outcomes[job.key].error}")
    for each in failures:
        complain(f"error: {each.place}: {each.error}")
