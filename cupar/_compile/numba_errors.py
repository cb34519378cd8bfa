"""Why numba.cuda cannot compile an operator: its own words, cut to the one sentence that says why.

numba raises many classes of errors (its own, those of its copy in numba-cuda, and any that its passes meet),
and long: candidates that did not match, passes, and its own source. The message keeps the user's code, with
the source line. With ``CUPAR_DEBUG=1`` numba's error is shown, too, as the cause of cupar's.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Callable, Iterator
from traceback import walk_tb
from typing import Any

from .._base.causes import is_ours
from .._base.words import counted, split
from .._fingerprint.refusals import TOO_MANY_CALLS
from .._fingerprint.unsupported import NO_STRINGS


class NotCompiledError(TypeError):
    """Code that numba would compile to something wrong is refused: why, and the user's line."""

    def __init__(self, why: str, file: str = "", line: int = 0) -> None:
        super().__init__(why)
        self.place = file, line


def message(subject: str, error: BaseException, compiler: str = "numba.cuda", advice: str = "") -> str:
    """Return why an operator cannot be compiled, in four lines: with the user's line that numba refuses.

    `subject` is as in ``"numba.cuda cannot compile operator f (f.py:12) for (int32)"``, and `error` what
    numba raised, with its traceback; `compiler` is numba's for GPUs, or numba itself for the CPU. `advice`
    is the end of the sentence.
    """
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    if isinstance(error, NotCompiledError):
        why, (file, line) = text, error.place
    else:
        why, (file, line) = _why(error, text).replace("numba.cuda", compiler), _location(error, text)
    lines = [f"{subject}: {why}{advice}"]
    source = linecache.getline(file, line).strip()
    if source:
        lines += [f"  {file}:{line}", f"    {source}"]
    return "\n".join([*lines, "CUPAR_DEBUG=1 shows all that numba says"])


def _why(error: BaseException, text: str) -> str:
    """Return why numba refuses, in a sentence without its full stop, and mostly what to write instead."""
    for pattern, explain in _RULES:
        match = re.search(pattern, text, re.DOTALL)
        if match is None:
            continue
        if not isinstance(explain, str):
            return explain(match)
        given = {name: said if name in _NAMES else readable(said) for name, said in match.groupdict().items()}
        return explain.format_map(given)
    lines = (line.strip() for line in text.split("\n"))
    line = next((line for line in lines if line and not line.startswith(("Failed in ", "During: "))), "")
    kind = type(error)
    name = "" if line and kind.__module__.startswith("numba") else kind.__name__
    return ": ".join(filter(None, (name, readable(line)[:300].rstrip("."))))


def is_of_the_operator(error: ImportError) -> bool:
    """Whether numba raised it as it compiled the operator, and not because it cannot be imported."""
    if (error.name or "").partition(".")[0] in ("numba", "llvmlite", "numba_cuda", "cuda"):
        return False
    if next(_locations_of_traceback(error), None) is not None:
        return True
    names = (str(frame.f_globals.get("__name__", "")) for frame, _ in walk_tb(error.__traceback__))
    return any(name.startswith("numba.") and name.endswith((".compiler", ".typeinfer")) for name in names)


# ---------------------------------------------------------------------------------------------------------
# Where
# ---------------------------------------------------------------------------------------------------------

_PLACES = re.compile(
    r'(?:\bat|Raised from|from) (?P<at>[^\n"]+?) \((?P<n>\d+)\)|File "(?P<in>[^"\n]+)", line (?P<m>\d+)'
)


def _location(error: BaseException, text: str) -> tuple[str, int]:
    """Return file and line of the user's innermost line that numba had reached, or "", 0."""
    named = (
        (match["at"] or _absolute(match["in"]), int(match["n"] or match["m"]))
        for match in _PLACES.finditer(text)
    )
    for file, line in (*named, *_locations_of_traceback(error)):
        if not is_ours(file) and linecache.getline(file, line):
            return file, line
    return "", 0


def _absolute(file: str) -> str:
    # numba gives all relative to the working directory, a notebook's <ipython-input-1-…> among them.
    return file[file.index("<") :] if "<" in file else os.path.abspath(file)  # noqa: PTH100 - not resolved


def _locations_of_traceback(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Yield file and line of the user's instructions that numba's functions were at, innermost first."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in reversed(list(walk_tb(error.__traceback__))):
            if not str(frame.f_globals.get("__name__", "")).startswith("numba"):
                continue
            for value in list(frame.f_locals.values()):
                loc = value if type(value).__name__ == "Loc" else _loc(value)
                file, line = getattr(loc, "filename", None), getattr(loc, "line", None)
                if isinstance(file, str) and isinstance(line, int) and not is_ours(file):
                    yield file, line
        error = error.__cause__ or error.__context__


def _loc(value: Any) -> Any:
    try:
        return getattr(value, "loc", None)
    except Exception:  # numba's models raise any error for missing fields
        return None


# ---------------------------------------------------------------------------------------------------------
# Why
# ---------------------------------------------------------------------------------------------------------

# fmt: off
_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "contains": "in",
}
# fmt: on
_NO_LIST = "it makes a list, for which a kernel has no memory: use a tuple, or variables"
_NO_ARRAY = "it makes an array, for which a kernel has no memory: use a tuple, or variables"

# Names of types in numba's messages, and those that users know.
_TYPES = (
    (r"Literal\[str\]\((.*?)\)", r"'\1'"),
    (r"Literal\[\w+\]\((.*?)\)", r"\1"),
    (r"UniTuple\((\w+) x (\d+)\)", lambda match: "(" + ", ".join([match[1]] * int(match[2])) + ")"),
    (r"\bTuple\(", "("),
    (r"OptionalType\((.*?)\)", r"\1 or None"),
    (r"list\((\w+)\)(<iv=.*?>)?", r"list of \1"),
    (r"'<object type:\w+>'", "a string"),  # numba's type of str(a)
    (r"type\(\w+Dispatcher\(<function .*? at 0x\w+>\)\)", "a function"),
    (r"\bclass\((\w+)\)", r"the class \1"),
    (r"\b(?:Int)?Enum<\w+>\((\w+)\)", r"the enum \1"),
    (r"(?:Function|type)\(<\w+ '?(?:function )?([\w.]+)'?(?: at 0x\w+)?>\)", r"\1"),
    (r"<(?:[\w.]+\.)?(\w+) object at 0x\w+>", r"\1"),
    (r"\bnone\b", "None"),
    (r"\bunicode_type\b", "str"),
)


def readable(text: str) -> str:
    """Return numba's names of types as users know them."""
    for pattern, known in _TYPES:
        text = re.sub(pattern, known, text)
    return text


def _no_implementation(match: re.Match[str]) -> str:
    call = readable(match["call"].strip())
    name, _, arguments = call.partition("(")
    arguments = arguments.removesuffix(")")
    if "list of" in arguments or "reflected list" in arguments:
        return _NO_LIST
    if name == "getattr":
        return "a kernel does not find attributes by name: write them out, as in `a.real`"
    field = re.fullmatch(r"getitem\((?P<owner>.*), (?:'(?P<name>\w*)'|str)\)", call, re.DOTALL)
    if field is not None:
        return _no_key(field["owner"], field["name"])
    if name in ("str", "format", "repr", "print_item") or re.search(r"\bstr\b|'", arguments):
        return NO_STRINGS
    if "Only accept returning of array" in match.string:
        return f"numba.cuda has no {call} of numbers; {_NO_ARRAY}"
    given = split(arguments)
    if len(given) == 1 and given[0].startswith("the enum "):
        return f"numba.cuda has no {name} of a member of {given[0]}: take its `value`"
    struct = "; write it of the fields" if "Struct(" in arguments else ""
    if name in _SIGNS and len(given) == 2:
        return f"there is no `{_SIGNS[name]}` of {given[0]} and {given[1]}{struct}"
    if name == "getitem" and given:
        if given[0].startswith(("(", "Struct(")):
            return (
                f"{given[0]} cannot be indexed by a variable, as its items differ in type: write it with `if`"
            )
        return f"{given[0]} cannot be indexed: it is one item"
    if name == "setitem" and given:
        return _not_assigned(given)
    if any(each == "None" or each.endswith(" or None") for each in given):
        return f"a function that it calls returns {given[0]}: a `return` is missing there"
    return f"numba.cuda has no {call}{struct or '; write it with operators, or functions of math'}"


def _no_key(owner: str, name: str | None) -> str:
    """Return why something cannot be indexed by a string; `name` is None if that is not a constant."""
    if not owner.startswith("Struct("):
        return f"{owner} cannot be indexed by a string: it has no fields"
    if name is None or not name.isidentifier():
        return "a struct is not indexed by a string: write its fields as attributes, as in `a.id`"
    return f"a struct is not indexed by a string: write `a.{name}` in place of `a[{name!r}]`"


def _not_assigned(given: list[str]) -> str:
    """Return why something cannot be assigned to an item, by container, index and value."""
    owner, index, value = (*given, "", "")[:3]
    array = re.match(r"array\((.*), (\d+)d, \w+\)", owner)
    if array is None:
        if owner.startswith("("):
            return f"{owner} is a tuple, whose items are constant: make a new tuple"
        return f"{owner} has no items to assign: return a new value, or write to a device array"
    item, ndim = array[1], int(array[2])
    indices = split(index[1:-1]) if index.startswith("(") else [index]
    if len(indices) > ndim:
        return f"{owner} is indexed by {len(indices)} indices, and has {counted(ndim, 'dimension')}"
    for each in indices:
        if each.startswith(("float", "complex", "None")):
            return f"{owner} is indexed by {each}, expected an integer or a slice"
    return f"{value} cannot be stored in {owner}, whose items are {item}"


def _no_attribute(match: re.Match[str]) -> str:
    name, owner = match["name"], match["owner"].strip()
    module = re.match(r"Module\(<module '([\w.]+)'", owner)
    if module:
        return f"numba.cuda has no {module[1]}.{name}; write it with operators, or functions of math"
    if owner.startswith("list("):
        return _NO_LIST
    if owner.startswith("Struct("):
        return f"{readable(owner)} has no field {name!r}; its fields are those given above"
    return (
        f"{readable(owner)} has no attribute {name!r}; operators get numbers, and structs with named fields"
    )


def _untyped(match: re.Match[str]) -> str:
    name, kind = match["name"], match["kind"].rpartition(".")[2]
    if kind in ("function", "CPUDispatcher", "CUDADispatcher"):
        return f"{name} calls itself, or what calls it: write a loop"
    if kind == "UndefinedType":
        return f"{name} has no value yet: assign it before"
    if kind in ("dict", "list", "set", "frozenset"):
        return f"{name} is a {kind}, which a kernel cannot read: make it a tuple, or a NumPy array"
    if kind in ("type", "EnumType", "EnumMeta", "ABCMeta"):
        return f"{name} is a class, and a kernel has no objects: use a tuple, or a struct of cupar.gpu_struct"
    if kind in ("builtin_function_or_method", "ufunc", "method_descriptor"):
        if name == "function":  # as cupar calls an operator that is a built-in function itself
            return "numba.cuda does not know this built-in function; write a Python function"
        return f"numba.cuda does not know the built-in function {name}; write it with operators"
    return (
        f"{name} is of type {kind}, which a kernel cannot read; numbers, tuples, arrays and functions it can"
    )


def _unbindable(match: re.Match[str]) -> str:
    given, named = readable(match["args"]).removesuffix(",)").strip("(),"), match["kws"]
    kws = ", ".join(f"{name}={readable(kind)}" for name, kind in re.findall(r"'(\w+)': ([^,}]+)", named))
    call = ", ".join(filter(None, (given, kws)))
    return f"a function of {match['signature']} is called with ({call}): {match['why']}"


def _recursion(match: re.Match[str]) -> str:
    # The functions that were being called, the innermost first.
    names = re.findall(r"(?:CUDA|CPU)Dispatcher\(<function (?:\S*\.)?(\w+) at", match.string)
    if len(names) > 1 and names[0] == names[1]:
        return f"{names[0]} calls itself: write a loop"
    return "functions call each other in a circle: write a loop"


def _without_type(match: re.Match[str]) -> str:
    # Python 3.11 to 3.13 keep the value of `:=` on the stack, where numba loses sight of it.
    if ":=" in linecache.getline(_absolute(match["file"]), int(match["line"])):
        return "numba.cuda does not compile `:=` here; assign on a line of its own"
    return "numba.cuda cannot tell the type of a value; assign it to a variable on a line of its own"


def _of_list_or_array(match: re.Match[str]) -> str:
    return _NO_LIST if "list" in match.string or "build_list" in match.string else _NO_ARRAY


_NO_IMPLEMENTATION = r"No implementation of function .*?found for signature:\s*>>> (?P<call>[^\n]*)"
_UNTYPED = r"Untyped (?:global name|freevar|name) '(?P<name>\w+)':[^\n]*?"
# Patterns and their messages: templates of the pattern's groups, or functions of the match. Groups are types
# of numba's, but for these:
_NAMES = ("name", "module")
_RULES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"NameError: name '(?P<name>\w+)' is not defined", "name {name!r} is not defined"),
    (r"function _ol_array_allocate at", _NO_ARRAY),
    (r"\A" + _NO_IMPLEMENTATION, _no_implementation),
    (r"Unknown attribute '(?P<name>\w+)' of type (?P<owner>[^\n]*)", _no_attribute),
    (_UNTYPED + r"type of <class '(?P<kind>[\w.]+)'>", _untyped),
    (_NO_IMPLEMENTATION, _no_implementation),
    (
        r"Cannot bind 'args=(?P<args>.*?) kws=(?P<kws>\{.*?\})' to signature '(?P<signature>.*?)' due to "
        r"\"\w+: (?P<why>.*?)\"",
        _unbindable,
    ),
    (
        r"Cannot unify (?P<one>[^\n]*?) and (?P<other>[^\n]*?) for '(?P<name>\w+)[.\w]*'",
        "variable {name!r} is {one} on one way and {other} on another; make it one type",
    ),
    (
        r"Can't unify return type from the following types: (?P<types>[^\n]*)",
        "it returns {types}; let all `return` give one type",
    ),
    (r"NRT required but not enabled", _of_list_or_array),
    (r"Only accept returning of array", _NO_ARRAY),
    (
        r"Use of unsupported opcode \((?P<name>\w+)\)",
        "it does what Python calls {name}, and a kernel cannot",
    ),
    (
        r"Invalid use of (?P<what>[^\n]*?) with parameters \([^\n]*\)\s*No type info available",
        "{what} is called, and is no function",
    ),
    (
        r"(?:Cannot resolve setattr: \(|No definition for lowering )[^\n]*?\)?\.(?P<name>\w+) = ",
        "field {name!r} is assigned, and values in operators are constant: make a new struct",
    ),
    (r"OverloadSelector.*\bList\(", "it reads a list of numbers, which a kernel cannot: make it a tuple"),
    (r"OverloadSelector.*\bSet\(", "it reads a set of numbers, which a kernel cannot: make it a tuple"),
    (
        r"insert_unresolved_ref",
        "a function calls itself, or functions call each other in a circle: write a loop",
    ),
    (r"cannot type infer runaway recursion", _recursion),
    (r"maximum recursion depth exceeded", TOO_MANY_CALLS),
    (r"Type of variable '\$[^\n]*? location: (?P<file>[^\n]+) \((?P<line>\d+)\)", _without_type),
    (_UNTYPED + r"Int value is too large", "{name} is an integer of more than 64 bits: use a float"),
    (r"Int value is too large", "an integer has more than 64 bits: use a float"),
    (r"Can't return function object", "it returns a function, expected a number"),
    (
        r"Cannot cast (?P<one>IntEnum<[^\n]*?) to (?P<other>\w+): ",
        "a member of {one} is not converted to {other}: take its `value`",
    ),
    (r"Cannot cast (?P<one>[^\n]*?) to (?P<other>\w+): %", "it gives {one}, expected a {other}"),
    (r"(?:tuple )?index out of range", "an index is out of range: there are fewer items or fields"),
    (r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'", "module {module} has no {name!r}"),
)
