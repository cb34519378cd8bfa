"""Links code into a cubin with nvJitLink, and says which part it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .._base.causes import cause
from .._base.errors import BuildError
from .._external.linkable import KINDS, Linkable
from . import demangled, nvrtc, symbols, toolchain

Code = bytes | Linkable  # LTO-IR, or code of any kind but C++


def link(
    parts: Sequence[Code],
    cc: int,
    names: Sequence[str] = (),
    callers: Mapping[str, Sequence[str]] | None = None,
    options: Sequence[str] | None = None,
) -> bytes:
    """Link code into a cubin for ``sm_<cc>``.

    For errors, `names` say what the parts are, and `callers` of functions who calls them. `options` are those
    of cupar's own kernels, unless others are given.
    """
    _check_architectures(parts, cc, names)
    _check_once(parts, cc, names)
    try:
        return _link(parts, cc, options)
    except BuildError as error:
        why = _refusal(str(error), parts, cc, names, callers or {}) if names else None
        if why is None:
            raise
        raise BuildError(f"nvJitLink for sm_{cc}: {why}") from cause(error)


def ptx(parts: Sequence[Code], cc: int, given: Sequence[str] | None = None) -> str:
    """Link the LTO-IR among the parts as `link` does, and return the PTX that GPU code is assembled from."""
    parts = [each for each in parts if not isinstance(each, Linkable) or each.kind == "ltoir"]
    return _link(parts, cc, given, to_ptx=True).decode(errors="replace").rstrip("\0")


def _link(parts: Sequence[Code], cc: int, given: Sequence[str] | None = None, to_ptx: bool = False) -> bytes:
    toolchain.load_library("nvJitLink")
    from cuda.bindings import nvjitlink

    options = [*(toolchain.link_options() if given is None else given), f"-arch=sm_{cc}", *["-ptx"] * to_ptx]
    made = "ptx" if to_ptx else "cubin"
    handle = nvjitlink.create(len(options), options)
    try:
        for number, part in enumerate(parts):
            kind, data = (part.kind, part.data) if isinstance(part, Linkable) else ("ltoir", part)
            of = getattr(nvjitlink.InputType, kind.replace("archive", "library").upper())
            nvjitlink.add_data(handle, of, data, len(data), f"part {number}")
        nvjitlink.complete(handle)
        code = bytearray(getattr(nvjitlink, f"get_linked_{made}_size")(handle))
        getattr(nvjitlink, f"get_linked_{made}")(handle, code)
        return bytes(code)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise BuildError(f"nvJitLink for sm_{cc}: {error}\n{toolchain.log_text(log)}") from cause(error)
    finally:
        nvjitlink.destroy(handle)


_DEFINED_TWICE = re.compile(
    r"^part (\d+): .*: Linking globals named '(.*)': symbol multiply defined", re.MULTILINE
)
_UNDEFINED = re.compile(r"Unresolved extern function '(.*?)'|Undefined reference to '(.*?)' in 'part (\d+)'")
_NEWER = "is for a newer architecture than sm_{cc}: make it for sm_{cc} or an earlier one"
# Parts of nvJitLink's messages about one input, which they may name, and their meaning.
_OF_A_PART = {
    "ERROR_INCORRECT_INPUT_TYPE": "is no {kind}{made}",
    **dict.fromkeys(("ERROR_ARCH_MISMATCH", "version specified by .target is higher"), _NEWER),
    **dict.fromkeys(("ERROR_NVVM_COMPILE", "ERROR_PTX_COMPILE"), "is broken: make it anew"),
    "bad input": "is broken, or for another compute capability: make it for sm_{cc}",
}
_NAMED = re.compile(r"bad input: ?part (\d+)|\(part (\d+)\)")
_OWN = "part "  # begins the names of parts that are no one's but cupar's
_MADE = {"LTO-IR": ": make it with nvcc -dlto, or NVRTC"}


def _refusal(
    said: str, parts: Sequence[Code], cc: int, names: Sequence[str], callers: Mapping[str, Sequence[str]]
) -> str | None:
    """Return which part nvJitLink refuses and why, None if it says something else."""
    twice = _DEFINED_TWICE.search(said)
    if twice is not None:
        # nvJitLink names the second part alone.
        second, symbol = int(twice[1]), twice[2]
        pairs = (_DEFINED_TWICE.search(_error([part, parts[second]], cc)) for part in parts[:second])
        first = next((i for i, again in enumerate(pairs) if again and again[2] == symbol), second)
        return _defined_twice(symbol, parts, names, first, second)
    undefined = _UNDEFINED.search(said)
    if undefined is not None:
        return _undefined(undefined[1] or undefined[2], undefined[3], names, callers)
    for sign, is_wrong in _OF_A_PART.items():
        if sign in said:
            number = _first_with(sign, said, parts, cc)
            if number is not None and names[number].startswith(_OWN):
                return None  # what nvJitLink says of cupar's own code is all that is known
            if number is not None:
                kind = _kind(parts[number])
                why = is_wrong.format(cc=cc, kind=kind, made=_MADE.get(kind, ""))
                return f"the {kind} of {names[number]} {why}"
    return None


def _undefined(
    symbol: str, part: str | None, names: Sequence[str], callers: Mapping[str, Sequence[str]]
) -> str:
    """Say which function is missing, and who calls it. Of LTO-IR, nvJitLink does not say that."""
    users = dict.fromkeys(name for name in names if not name.startswith(_OWN))
    advice = 'check its name (extern "C" in C++), or give its code as link='
    if part is not None:
        asked = [names[int(part)]]
    elif symbol in callers:
        asked = list(callers[symbol])
    elif demangled.is_of_cpp(symbol):
        asked = [name for name in users if "(cupar.cpp " in name]
        advice = 'define it in the source, or declare it extern "C" and give its code as link='
    else:
        raw = [name for name in users if "(RawOp " in name]
        asked = [name for name in raw if name.endswith(f"(RawOp {symbol!r})")] or list(users)
        if raw:
            advice = advice.replace("give its code as link=", "add its LTO-IR to extra_ltoirs")
    function = repr(demangled.shown(symbol))
    return f"nothing that is linked defines the function {function} that {' or '.join(asked)} calls: {advice}"


def _defined_twice(symbol: str, parts: Sequence[Code], names: Sequence[str], first: int, second: int) -> str:
    one, other = _kind(parts[first]), _kind(parts[second])
    again = "that" if other == one else f"the {other}"
    return (
        f"function {demangled.shown(symbol)!r} is defined by the {one} of {names[first]} and, in another "
        f"way, by {again} of {names[second]}: give one of the two functions another name"
    )


def _first_with(sign: str, said: str, parts: Sequence[Code], cc: int) -> int | None:
    """Return the number of the part that nvJitLink's message is about."""
    named = _NAMED.search(said)
    if named is not None and sign != "ERROR_NVVM_COMPILE":
        return int(named[1] or named[2])
    return next((i for i, part in enumerate(parts) if sign in _error([part], cc)), None)


def _kind(part: Code) -> str:
    kind = KINDS[part.kind] if isinstance(part, Linkable) else "LTO-IR"
    return kind.removeprefix("an ").removeprefix("a ")


def _check_once(parts: Sequence[Code], cc: int, names: Sequence[str]) -> None:
    """Raise BuildError if two parts, one of them PTX or a cubin, define a function of the same name.

    nvJitLink takes the first then, if it does not crash or leave out kernels.
    """
    found: dict[str, int] = {}
    for number, part in enumerate(parts):
        for symbol in symbols.defined(part) if isinstance(part, Linkable) else ():
            first = found.setdefault(symbol, number)
            if first != number:
                why = _defined_twice(symbol, parts, names, first, number)
                raise BuildError(f"nvJitLink for sm_{cc}: {why}")
    intermediate = [i for i, part in enumerate(parts) if isinstance(part, Linkable) and part.kind == "ltoir"]
    if found and intermediate:  # only nvJitLink can read symbols of LTO-IR
        twice = _DEFINED_TWICE.search(
            _error([_definitions(found, cc), *(parts[i] for i in intermediate)], cc)
        )
        if twice is not None and twice[2] in found:
            why = _defined_twice(twice[2], parts, names, found[twice[2]], intermediate[int(twice[1]) - 1])
            raise BuildError(f"nvJitLink for sm_{cc}: {why}")


def _check_architectures(parts: Sequence[Code], cc: int, names: Sequence[str]) -> None:
    """Raise BuildError for a cubin that does not run on ``sm_<cc>``.

    nvJitLink refuses it too, but keeps a lock then: the next cubin that another thread links never ends.
    """
    for number, part in enumerate(parts):
        of = symbols.architecture(part.data) if isinstance(part, Linkable) and part.kind == "cubin" else None
        if of is not None and (of // 10 != cc // 10 or of > cc):
            name = names[number] if number < len(names) else f"part {number}"
            why = _OF_A_PART["bad input"].format(cc=cc)
            raise BuildError(f"nvJitLink for sm_{cc}: the cubin of {name} {why}")


def _definitions(functions: Iterable[str], cc: int) -> bytes:
    """Return LTO-IR that defines functions of these names."""
    named = (each for each in functions if not re.match(r"__|.*\$", each))  # which C++ may have
    source = "\n".join(f'extern "C" __device__ void {each}() {{}}' for each in named)
    try:
        return nvrtc.compile_cpp(source, cc)
    except BuildError:  # C++ has one of the names
        return nvrtc.compile_cpp("", cc)


def _error(parts: Sequence[Code], cc: int) -> str:
    """Return what nvJitLink says against some of the parts alone, whose functions need not be there."""
    try:
        _link(parts, cc)
    except BuildError as error:
        return str(error)
    return ""
