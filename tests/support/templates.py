"""Kernels without what takes longest of a build: compiled and not linked, or linked with nothing in them."""

import re

from cupar._ahead.batch import collected
from cupar._compile import precompiled
from cupar._kernels import source

_BODY = re.compile(r"^  kernels::(\w+)::run\(.*\);$", re.MULTILINE)


def compiled(ask, cc=90, truths=lambda spec: ()):
    """Compile the kernels of what a function asks for, and do not link them; return the specialisation.

    NVRTC finds what C++ forbids, and which of the constant expressions that `truths` makes for the
    specialisation are false. What operators do, and what the assembler forbids, is for the linker.
    """
    (spec,) = collected(ask, cc)
    checks = (f"static_assert({each});\n" for each in truths(spec))
    assert precompiled.compile_kernels(source.source(spec.family, spec) + "".join(checks), spec.cc)
    return spec


def properties(family):
    """Return each of the properties of a family's builds as an expression."""
    return [f"kernels::properties.fact[{i}]" for i in range(len(family.properties))]


def empty_others(monkeypatch, kernels):
    """Have all kernels but these built with nothing in them.

    They have their names and parameters, and the build has its properties. Such a link takes 0.1 s.
    """
    real = source.source

    def emptied(family, spec):
        return _BODY.sub(lambda body: body[0] * (body[1] in kernels), real(family, spec))

    monkeypatch.setattr(source, "source", emptied)
