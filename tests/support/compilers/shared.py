"""What compilers made, in a folder that all processes of a run share.

NVRTC and nvJitLink make the same bytes of the same input and options, which the tests that are about that
see to; and numba the same template of the same functions of cupar's. Whatever cupar does around them is done
each time.
"""

import functools
import hashlib
import os
import pickle
import re
import threading

from cupar._compile import nvjitlink, nvrtc, toolchain
from cupar._obtain import produce

from . import contents, effort, headers

real = {
    (nvrtc, "_compiled"): nvrtc._compiled,
    (nvjitlink, "_link"): nvjitlink._link,
    (produce, "built_on_cpu"): produce.built_on_cpu,
}


def share(folder, patch):
    """Have the compilers of this process take from the folder what is there, and leave there what is not."""
    folder.mkdir(exist_ok=True)
    kept = functools.partial(_kept, folder)
    templates = functools.cache(lambda: _share_templates(kept, patch))

    def built_on_cpu(spec):
        templates()
        effort.for_cpu()
        return real[produce, "built_on_cpu"](spec)

    patch.setattr(nvrtc, "_compiled", functools.partial(_compiled, kept))
    patch.setattr(nvjitlink, "_link", functools.partial(_linked, kept))
    patch.setattr(produce, "built_on_cpu", built_on_cpu)


def _kept(folder, key, make):
    path = folder / hashlib.sha256(repr(key).encode()).hexdigest()
    if path.exists():
        return path.read_bytes()
    made = make()
    part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    part.write_bytes(made)
    part.replace(path)
    return made


def _compiled(kept, source, cc, given, included=(), name="cupar.cu"):
    def make():
        return real[nvrtc, "_compiled"](source, cc, given, included, name)

    def key(source=source):
        options = [each for each in given if "-pch=" not in each]
        return source, cc, options, toolchain.include_folders(), included, name

    if name != "cupar.cu" and not _is_all([source, *(text for _, text in included)], given):
        return make()
    code = make() if any(each.startswith("-create-pch") for each in given) else kept(key(), make)
    asked = headers.asked()
    if asked is not None:  # for processes that keep no headers
        kept(key(asked), lambda: code)
    return code


def _is_all(texts, given):
    """Whether this is all that decides code; what users write may include files of theirs."""
    theirs = any(each.lstrip("-").startswith(("I", "i", "pre-i")) for each in given)
    return not theirs and all(each.startswith(b"<") for text in texts for each in _INCLUDE.findall(text))


_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*(.*)", re.MULTILINE)


def _linked(kept, parts, cc, given=None, to_ptx=False):
    codes = [each if isinstance(each, bytes) else (each.kind, each.data) for each in parts]
    options = toolchain.link_options() if given is None else [*given]
    if not to_ptx:  # which is quick, and only read
        options = effort.options_of_links(options)
    return kept((codes, cc, options, to_ptx), lambda: real[nvjitlink, "_link"](parts, cc, options, to_ptx))


def _share_templates(kept, patch):
    """Do so for templates of algorithms on the CPU, which imports numba."""
    from cupar._cpu import templates

    def compiled(run):
        def make():
            return pickle.dumps(real[templates, "_compiled"](run))

        content = contents.content(run)
        return pickle.loads(make() if content is None else kept(("template", content), make))

    real.setdefault((templates, "_compiled"), templates._compiled)  # of several threads, the first one's
    patch.setattr(templates, "_compiled", compiled)
