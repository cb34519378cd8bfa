"""Equivalent entries of other compiler versions, for machines without a compiler."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from .. import _cache
from .._base.versions import package_version
from .._store import settings
from .._store.entry import Entry
from .._store.settings import signing_key
from . import cpu_features, toolchain
from .toolchain import plain

T = TypeVar("T")


def find(key: str, *, remote: bool) -> _cache.FetchedEntry | None:
    """Return an entry equivalent to this key's, made by the newest compilers among those found.

    Entries on this machine come before those of the shared store.
    """
    start = time.perf_counter()
    layers = [each for each in (_cache.disk(), *_cache.bundles()) if each is not None]
    here = [(each, layer) for layer in layers for each in layer.alike(key)]
    for other, layer in _best((each, layer, layer.meta(each)) for each, layer in here):
        found = _cache.load(layer, other, start)
        if found is not None:
            return found
    store = _cache.shared() if remote else None
    if store is None:
        return None
    timeout = settings.shared_timeout()
    ask = partial(store.find, timeout=timeout, secret=signing_key())
    there = [(each, ask(each)) for each in store.alike(key, timeout=timeout)]
    for other, entry in _best((each, entry, entry.meta) for each, entry in there if entry is not None):
        own = _cache.disk()
        if own is not None:
            own.store(other, entry)
        return _cache.FetchedEntry(other, entry, "disk", time.perf_counter() - start, store.name)
    return None


def _best(found: Iterator[tuple[str, T, Mapping[str, Any] | None]]) -> list[tuple[str, T]]:
    """Return keys, and what goes with them, in the order in which they are tried."""
    known = ((key, it, preference(_versions(meta or {}))) for key, it, meta in found)
    usable = [each for each in known if each[2] is not None and each[0] not in _cache.unusable]
    usable.sort(key=lambda each: each[0])
    usable.sort(key=lambda each: each[2] or (), reverse=True)
    return [(key, it) for key, it, _ in usable]


def versions(entry: Entry) -> dict[str, str]:
    """Return the versions of the compilers that made an entry, by name."""
    found = _versions(entry.meta)
    return {name: str(found[name]) for name in toolchain.COMPILERS[:-2] if name in found}


def _versions(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return versions from metadata, which may be anything."""
    parts = meta.get("parts")
    found = parts.get("versions") if isinstance(parts, Mapping) else None
    return found if isinstance(found, Mapping) else {}


# Names of what to install, where keys have others.
_PROVIDED: Final = {
    "cuda-major": "cuda-bindings",
    "nvrtc": "NVRTC",
    "nvjitlink": "nvJitLink",
    "nvvm": "NVVM",
    "cuda-headers": "CUDA's headers",
}


def error(parts: Mapping[str, Any]) -> ImportError:
    """Return an error of one sentence: the build, the missing compilers, the package to install."""
    versions, cc = parts["versions"], parts.get("cc")
    lacking = [each for each in toolchain.missing(versions) if each not in toolchain.COMPILERS[-2:]]
    what = f"{parts['algorithm']} for {'the CPU' if cc == 'cpu' else f'sm_{cc}'}" if cc else "an operator"
    major = package_version("cuda-bindings").partition(".")[0]
    extra = f"[cu{major if major in ('12', '13') else 13}]" * ("nvrtc" in versions or "nvvm" in versions)
    return ImportError(
        f"{what} has to be compiled, as no cache, bundle or shared store here has it, and what compiles it "
        f"is missing ({', '.join(_PROVIDED.get(each, each) for each in lacking)}): pip install 'cupar{extra}'"
    )


def may_run(made_by: Any) -> bool:
    """Tell whether code for the CPU that these versions made is what would be made or found here."""
    here = toolchain.cpu_versions()
    if not toolchain.missing(here) or not isinstance(made_by, Mapping):
        return bool(made_by == here)
    others = here.keys() - set(toolchain.COMPILERS)
    return all(made_by.get(name) == here[name] for name in others) and preference(made_by) is not None


def preference(versions: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return by what builds that mean the same are compared, the best one greatest; None: not for this CPU.

    The newest compilers come first, and of builds for CPUs those that use most of the one here.
    """
    features = versions.get("features of the CPU")
    used = features[1] if isinstance(features, (list, tuple)) and len(features) == 2 else ""
    if features is not None and (not isinstance(used, str) or cpu_features.missing(used)):
        return None
    numbers = (str(plain(versions.get(name, ""))) for name in toolchain.COMPILERS[:-2])
    return *map(_numbers, numbers), len(used)


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers; hashes sort before all of them."""
    return tuple(map(int, version.split("."))) if re.fullmatch(r"[0-9]{1,9}([.][0-9]{1,9})*", version) else ()
