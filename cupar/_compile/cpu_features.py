"""Name and features of this CPU, found without LLVM, to select builds, also of other machines."""

from __future__ import annotations

import functools
from itertools import takewhile
from typing import Final

# Linux's names for what LLVM calls otherwise, beside dots and underscores.
_LINUX: Final = {
    "64bit": "lm",
    "bmi": "bmi1",
    "crc": "crc32",
    "dotprod": "asimddp",
    "fp-armv8": "fp",
    "fp16fml": "asimdfhm",
    "fullfp16": "asimdhp",
    "lse": "atomics",
    "lzcnt": "abm",
    "neon": "asimd",
    "pclmul": "pclmulqdq",
    "rcpc": "lrcpc",
    "rdm": "asimdrdm",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
    "sve2-aes": "sveaes",
    "sve2-bitperm": "svebitperm",
    "sve2-sha3": "svesha3",
    "sve2-sm4": "svesm4",
    "x87": "fpu",
}
_IMPLIED: Final = {"crc32": "sse4_2", "crypto": "aes", "evex512": "avx512f"}
# For operating systems, or explicit use: no compiler selects them. Linux hides some that are not set up.
_UNUSED: Final = (
    *("amx-avx512", "amx-bf16", "amx-complex", "amx-fp16", "amx-fp8", "amx-int8", "amx-movrs", "amx-tf32"),
    *("amx-tile", "amx-transpose", "cldemote", "clflushopt", "clwb", "clzero", "enqcmd", "fsgsbase", "fxsr"),
    *("hreset", "invpcid", "kl", "lwp", "mmx", "movdir64b", "movdiri", "movrs", "mwaitx", "pconfig"),
    *("perfmon", "pku", "prefetchi", "prfchw", "ptwrite", "raoint", "rdpid", "rdpru", "rdrnd", "rdseed"),
    *("rtm", "sahf", "serialize", "sgx", "shstk", "tsxldtrk", "uintr", "usermsr", "vmx", "waitpkg"),
    *("wbnoinvd", "widekl", "xsave", "xsavec", "xsaveopt", "xsaves"),
)
# By these LLVM's words for an x86-64 are decided; on aarch64 it goes by all cores of a system.
_DECIDE: Final = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


@functools.cache
def _told() -> dict[str, str]:
    """Return what Linux says of the first core; nothing where it says nothing.

    No more is read: Linux measures the frequency of each core in the file.
    """
    try:
        with open("/proc/cpuinfo", errors="replace") as file:  # noqa: PTH123 - hits import no pathlib here
            fields = [line.partition(":") for line in takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in fields}


def decisive() -> list[str]:
    """Return the fields that decide LLVM's name of the CPU and its features; empty if any is missing."""
    found = [_told().get(name, "") for name in _DECIDE]
    return found if all(found) else []


@functools.cache
def _here() -> frozenset[str]:
    told = _told()
    return frozenset(_plain(told.get("flags") or told.get("Features", "")).split())


def _plain(name: str) -> str:
    return name.replace("_", "").replace(".", "").replace("-", "")


def missing(features: str) -> list[str]:
    """Return the features in a list, as in ``"+avx2,+fma"``, that this CPU lacks."""
    names = [each[1:] for each in features.split(",") if each.startswith("+")]
    return [name for name in names if name not in _UNUSED and not _is_here(name)]


def _is_here(name: str) -> bool:
    here = _here()
    others = _LINUX.get(name), _IMPLIED.get(name)
    return _plain(name) in here or any(each is not None and _plain(each) in here for each in others)
