"""``cupar info``."""

from __future__ import annotations

import sys
from typing import Any

from .. import __version__
from .._base.words import counted, size_text
from .command import FAULT, OK, Arguments, Result, command
from .terminal import complain, print_fields


@command("info", "show versions, compilers, GPUs, and the cache")
def info(arguments: Arguments) -> Result:
    """Show what cupar finds on this machine, and what is missing. Each compiler compiles one line.

    Examples
    --------
    cupar info
    cupar info --json | jq .gpus
    """
    from .._inspect import environment

    compilers = environment.compilers()
    packages = environment.packages()
    missing = list(dict.fromkeys(why for path, why in compilers.values() if path is None))
    missing += [f"pip install {name}" for name, version in packages.items() if version is None]
    failing = [f"{name}: {why}" for name, (path, why) in compilers.items() if path is not None and why]
    conflicts = environment.conflicts()
    found = {
        "cupar": __version__,
        "python": environment.python(),
        "executable": sys.executable,
        "packages": packages,
        "compilers": {name: path for name, (path, _) in compilers.items()},
        "driver": environment.nvidia_driver(),
        "gpus": environment.gpus(),
        "cache": environment.cache(),
        "environment": environment.variables(),
        "missing": missing,
        "failing": failing,
        "conflicts": conflicts,
    }
    return Result(found, lambda: _show(found), FAULT if missing or failing or conflicts else OK)


def _show(found: dict[str, Any]) -> None:
    versions = {"cupar": found["cupar"], "Python": found["python"], **found["packages"]}
    for title, table in (("versions", versions), ("compilers", found["compilers"])):
        print_fields(title, [(name, text or "missing") for name, text in table.items()])
    driver = found["driver"] or {}
    gpus = [("CUDA", f"up to {driver['cuda']}")] if "cuda" in driver else []
    gpus += [("driver", driver["driver"])] if "driver" in driver else []
    for gpu in found["gpus"]:
        text = f"{gpu['name']}, sm_{gpu['cc']}, {size_text(gpu['memory'])}"
        gpus.append((f"GPU {gpu['ordinal']}", text))
    if not found["gpus"]:
        gpus.append(("GPU", "none here; builds can be made for others, with cc= or 'cupar build'"))
    print_fields("GPUs", gpus)
    print_fields("cache", _cache_fields(found["cache"]))
    print_fields("environment", found["environment"].items() or [("none", "")])
    for each in found["missing"]:
        complain(f"missing: {each}")
    for each in found["failing"]:
        complain(f"cannot compile: {each}")
    for each in found["conflicts"]:
        complain(f"another version is needed: {each}")


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
