"""Links LTO-IR into a cubin with nvJitLink, and says which part it refuses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._base.causes import cause
from .._base.errors import BuildError
from . import toolchain


def link(parts: Sequence[bytes], cc: int, names: Sequence[str] = ()) -> bytes:
    """Link LTO-IR into a cubin for ``sm_<cc>``; `names` say in errors what the parts are."""
    try:
        return _link(parts, cc)
    except BuildError as error:
        why = _refusal(str(error), parts, cc, names) if names else None
        if why is None:
            raise
        raise BuildError(f"nvJitLink for sm_{cc}: {why}") from cause(error)


def ptx(parts: Sequence[bytes], cc: int) -> str:
    """Link LTO-IR as `link` does, and return the PTX that a cubin is assembled from."""
    return _link(parts, cc, to_ptx=True).decode(errors="replace").rstrip("\0")


def _link(parts: Sequence[bytes], cc: int, to_ptx: bool = False) -> bytes:
    toolchain.load_library("nvJitLink")
    from cuda.bindings import nvjitlink

    options = [*toolchain.link_options(), f"-arch=sm_{cc}", *["-ptx"] * to_ptx]
    kind = "ptx" if to_ptx else "cubin"
    handle = nvjitlink.create(len(options), options)
    try:
        for number, part in enumerate(parts):
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part {number}")
        nvjitlink.complete(handle)
        code = bytearray(getattr(nvjitlink, f"get_linked_{kind}_size")(handle))
        getattr(nvjitlink, f"get_linked_{kind}")(handle, code)
        return bytes(code)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        said = log.decode(errors="replace").rstrip("\0\n")
        raise BuildError(f"nvJitLink for sm_{cc}: {error}\n{said}") from cause(error)
    finally:
        nvjitlink.destroy(handle)


_DEFINED_TWICE = re.compile(
    r"^part (\d+): .*: Linking globals named '(.*)': symbol multiply defined", re.MULTILINE
)
_UNDEFINED = re.compile(r"Unresolved extern function '(.*?)'")
# What nvJitLink says of a part, not always which one, and what that means.
_OF_A_PART = {
    "ERROR_INCORRECT_INPUT_TYPE": "is no LTO-IR: make it with nvcc -dlto, or NVRTC",
    "ERROR_ARCH_MISMATCH": "is for a newer architecture than sm_{cc}: make it for sm_{cc} or an earlier one",
    "ERROR_NVVM_COMPILE": "is broken: make it anew",
}


def _refusal(said: str, parts: Sequence[bytes], cc: int, names: Sequence[str]) -> str | None:
    """Return which part nvJitLink refuses and why, None if it says something else."""
    twice = _DEFINED_TWICE.search(said)
    if twice is not None:
        # nvJitLink names the second part alone.
        second, symbol = int(twice[1]), twice[2]
        pairs = (_DEFINED_TWICE.search(_error([part, parts[second]], cc)) for part in parts[:second])
        first = next((i for i, again in enumerate(pairs) if again and again[2] == symbol), second)
        return (
            f"function {symbol!r} is defined by the LTO-IR of {names[first]} and, in another way, by that of "
            f"{names[second]}: give one of the two functions another name"
        )
    undefined = _UNDEFINED.search(said)
    if undefined is not None:
        symbol = undefined[1]
        # nvJitLink does not say who calls it, and LTO-IR cannot be searched for names.
        users = dict.fromkeys(name for name in names if not name.startswith("part "))
        own = [name for name in users if name.endswith(f"(RawOp {symbol!r})")]
        return (
            f"no LTO-IR defines the function {symbol!r} that {' or '.join(own or users)} calls: check its "
            'name (extern "C" in C++), or add its LTO-IR to extra_ltoirs'
        )
    for sign, is_wrong in _OF_A_PART.items():
        if sign in said:
            number = next((i for i, part in enumerate(parts) if sign in _error([part], cc)), None)
            if number is not None:
                return f"the LTO-IR of {names[number]} {is_wrong.format(cc=cc)}"
    return None


def _error(parts: Sequence[bytes], cc: int) -> str:
    """Return what nvJitLink says against some of the parts alone, whose functions need not be there."""
    try:
        _link(parts, cc)
    except BuildError as error:
        return str(error)
    return ""
