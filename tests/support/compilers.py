"""The compilers of a test run: what one test had compiled, the next has not compiled again.

NVRTC and nvJitLink make the same bytes of the same input and options, which the tests that are about that
see to; and numba the same template of the same functions of cupar's. Between them and the tests is a folder,
shared by the run's workers; whatever cupar does around them is done each time. Processes that tests start
compile for themselves, unless they call `as_in_the_run`, as they do with `AS_IN_THE_RUN` before their code;
cupar's helper processes do.

LLVM does not optimise what is built for the CPU, except in tests of that, which have a cache of their own
(`optimised`): a build takes a third of the time, and it is its operators that most tests are about.
"""

import functools
import hashlib
import os
import pickle
import re
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType, SimpleNamespace

import numpy as np

from cupar._base.errors import BuildError
from cupar._compile import numba_settings, nvjitlink, nvrtc, precompiled, toolchain
from cupar._ir.cpp import END_OF_HEADERS
from cupar._jobs import helpers
from cupar._kernels import source
from cupar._obtain import produce

FOLDER = "COMPILED_ONCE"  # the variable that tells processes where that is
real = {
    (nvrtc, "_compiled"): nvrtc._compiled,
    (nvjitlink, "_link"): nvjitlink._link,
    (produce, "built_on_cpu"): produce.built_on_cpu,
    (helpers, "_PROGRAM"): helpers._PROGRAM,
}
_SERVES = "_helpers.serve(pipe)"


_for_cpu = []


def for_cpu():
    """Do what `once` does for the CPU, which imports numba: at the first build for it, or before."""
    _for_cpu[-1]()


def once(folder, patch, many=True):
    """Have the compilers of this process compile the same once, and keep headers for many templates."""
    folder.mkdir(exist_ok=True)
    patch.setenv(FOLDER, str(folder))

    def kept(key, make):
        path = folder / hashlib.sha256(repr(key).encode()).hexdigest()
        if path.exists():
            return path.read_bytes()
        made = make()
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        part.write_bytes(made)
        part.replace(path)
        return made

    def compiled(source, cc, given, headers=(), name="cupar.cu"):
        def make():
            return real[nvrtc, "_compiled"](source, cc, given, headers, name)

        def key(source=source):
            options = [each for each in given if "-pch=" not in each]
            return source, cc, options, toolchain.include_folders(), headers, name

        if name != "cupar.cu" and not _is_all([source, *(text for _, text in headers)], given):
            return make()
        code = make() if any(each.startswith("-create-pch") for each in given) else kept(key(), make)
        if _AllHeaders.asked.text is not None:  # for processes that keep no headers
            kept(key(_AllHeaders.asked.text), lambda: code)
        return code

    def link(parts, cc, given=None, to_ptx=False):
        def make():
            return real[nvjitlink, "_link"](parts, cc, given, to_ptx)

        codes = [each if isinstance(each, bytes) else (each.kind, each.data) for each in parts]
        options = toolchain.link_options() if given is None else given
        return kept((codes, cc, [*options], to_ptx), make)

    @functools.cache
    def for_cpu():
        from cupar._cpu import templates

        def compiled(run):
            def make():
                return pickle.dumps(real[templates, "_compiled"](run))

            content = _content(run)
            return pickle.loads(make() if content is None else kept(("template", content), make))

        # Two threads may be here at once: the later one has the other's before it.
        real.setdefault((templates, "_compiled"), templates._compiled)
        patch.setattr(templates, "_compiled", compiled)
        with_settings(patch, OPT=0)

    def built_on_cpu(spec):
        for_cpu()
        return real[produce, "built_on_cpu"](spec)

    _for_cpu.append(for_cpu)
    patch.setattr(nvrtc, "_compiled", compiled)
    patch.setattr(nvjitlink, "_link", link)
    patch.setattr(produce, "built_on_cpu", built_on_cpu)
    patch.setattr(helpers, "_PROGRAM", real[helpers, "_PROGRAM"].replace(_SERVES, AS_IN_THE_RUN + _SERVES))
    if many:
        precompiled.keep_headers()
    if precompiled._headers is not None:
        precompiled._headers = _AllHeaders()


def _is_all(texts, given):
    """Whether this is all that decides code; what users write may include files of theirs."""
    theirs = any(each.lstrip("-").startswith(("I", "i", "pre-i")) for each in given)
    return not theirs and all(each.startswith(b"<") for text in texts for each in _INCLUDE.findall(text))


_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*(.*)", re.MULTILINE)


class _AllHeaders(precompiled._Headers):
    """All headers that are not cupar's own, precompiled at once for families with CUB's, for each card.

    With them such a family's template takes half the time. It has unused constants beside its own, which the
    linker leaves out: the cubins are the same to the byte. But compiling and linking these takes 0.2 s, so a
    family that is compiled often, or whose headers are read in 0.2 s, has them precompiled by themselves.
    """

    most_files = 12  # of 120 MB each, which have no name in a folder
    often = 4

    class _Asked(threading.local):
        text = None

    asked = _Asked()  # by this thread: the source as it is without kept headers

    def __init__(self):
        super().__init__()
        self.from_which = 1
        self._by_family = Counter()

    def compile(self, text, cc):
        self.asked.text = text.encode()
        try:
            return self._code(text, cc)
        finally:
            self.asked.text = None

    def _code(self, text, cc):
        family = cc, text.partition(END_OF_HEADERS)[0]
        self._by_family[family] += 1
        if self._by_family[family] > self.often or not _has_cub(text):
            return super().compile(text, cc)
        key = cc, _outside()
        self._asked[key] += 1
        if cc == _USUAL_CC or self._asked[key] > 1:
            headers, mark, rest = text.partition(END_OF_HEADERS)
            own = "".join(f"{line}\n" for line in headers.splitlines() if '"' in line)
            try:
                return self._compiled(key, f"{key[1]}{mark}{own}{rest}")
            except BuildError:  # the source has an error, which is to be its own
                pass
        return nvrtc.compile_kernels(text, cc)

    def _compiled(self, key, text):
        file = self._files.get(key)
        if file is None:
            return self._keep(key, text)
        self._files[key] = self._files.pop(key)  # the last ones used are kept
        return nvrtc.compile_kernels(text, key[0], f"-use-pch=/proc/self/fd/{file}")


_USUAL_CC = 90  # of tests that need none in particular


def _has_cub(text):
    """Whether the C++ of kernels includes headers of CUB's."""
    return any(b"#include <cub/" in code for _, code in nvrtc.own_headers(text))


@functools.cache
def _outside():
    """Return the lines that include what the C++ of cupar's kernels includes from elsewhere."""
    files = (Path(source.__file__).parent / "cuh").rglob("*.cuh")
    found = {
        name for file in files for name in re.findall("^#include <(.*)>$", file.read_text(), re.MULTILINE)
    }
    return "".join(f"#include <{name}>\n" for name in [*source._HEADERS, *sorted(found)])


def _content(function):
    """Return what a function of cupar's own is, the same in each process; None if that is not known."""
    try:
        return _told(function, ())
    except LookupError:
        return None


def _told(value, within):
    from numba.core import types

    if id(value) in within:
        return "itself"
    within = *within, id(value)
    kind = type(value).__qualname__

    def each(values):
        return kind, *(_told(value, within) for value in values)

    if hasattr(value, "py_func"):  # numba compiles it
        return each([value.py_func, value.targetoptions])
    if hasattr(value, "_defn"):  # an intrinsic
        return each([value._defn])
    if isinstance(value, FunctionType):
        names = {} if "__spec__" in value.__globals__ else value.__globals__  # of generated code
        cells = (cell.cell_contents for cell in value.__closure__ or ())
        defaults = value.__defaults__ or (), value.__kwdefaults__ or {}
        read = (names.get(name) for name in value.__code__.co_names)
        return each([value.__code__, *defaults, *cells, *read])
    if isinstance(value, CodeType):
        return each([value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts])
    if isinstance(value, (tuple, list)):
        return each(value)
    if isinstance(value, dict):
        return each(value.items())
    if isinstance(value, (type, BuiltinFunctionType, ModuleType)):
        return each([getattr(value, "__module__", ""), value.__name__])
    if isinstance(value, (NoneType, bool, int, float, complex, str, bytes, np.generic, np.dtype, types.Type)):
        return kind, repr(value)
    raise LookupError(kind)


def with_settings(patch, **settings):
    """Have numba and LLVM compile for the CPU with some other settings than cupar's own."""
    from cupar._cpu import compiling, target

    own = numba_settings.own.__wrapped__
    others = {**vars(numba_settings), "OWN": {**numba_settings.OWN, **settings}}
    other = SimpleNamespace(own=contextmanager(FunctionType(own.__code__, others)))
    for module in (compiling, target):
        patch.setattr(module, "numba_settings", other)
    with other.own(target.config):  # LLVM's machine code, too
        patch.setattr(target.target.target_context, "_internal_codegen", target._Codegen(target.NAME))


def unoptimised(patch):
    """Have nvJitLink optimise nothing, which takes it a third of the time: nobody runs or reads the code.

    A key holds the options of a link, so what it makes has keys of its own.
    """
    patch.setattr(toolchain, "LINK_OPTIONS", (*toolchain.LINK_OPTIONS, "-O0"))


def as_in_the_run(many=True, is_run=True):
    """Have those of a process that a test has started do so, too.

    `many` is as in `once`; `is_run` says whether what is built for a GPU is run or read.
    """
    patch = SimpleNamespace(setattr=setattr, setenv=os.environ.__setitem__)
    if FOLDER in os.environ:
        once(Path(os.environ[FOLDER]), patch, many)
    if not is_run:
        unoptimised(patch)


AS_IN_THE_RUN = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from support import compilers
del sys.path[0]
compilers.as_in_the_run(many=False)
"""
