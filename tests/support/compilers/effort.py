"""How much compilers optimise: nothing, unless a test takes the fixture `optimised`.

Most tests are not about machine code, so LLVM and nvJitLink make it without optimising: a build for the CPU
takes a third of the time, and a link of kernels a half. Tests that read machine code, or run much of it, have
what users have, in a cache of its own. So have all tests where there is a GPU to run it.
"""

import functools
import os
from contextlib import contextmanager, suppress
from types import FunctionType, SimpleNamespace

import cupar
from cupar._compile import numba_settings
from cupar._device import driver

OPTIMISED = "COMPILED_OPTIMISED"  # the variable that tells processes to compile as for users


def is_optimised():
    """Whether what is built now, in this process or in one that it starts, is what users have."""
    return OPTIMISED in os.environ


def optimise_for_gpu(patch):
    """Have compilers make what users have if there is a GPU."""
    with suppress(cupar.NoDeviceError):
        driver.current_device()
        patch.setenv(OPTIMISED, "1")


def optimise(patch):
    """Have compilers make from now on what users have."""
    for_cpu()  # to which the process goes back
    _have_numba(patch)
    patch.setenv(OPTIMISED, "1")


@contextmanager
def unoptimised():
    """Have a part of a test that takes `optimised`, and a cache of its own, link as other tests do."""
    said = os.environ.pop(OPTIMISED)
    try:
        yield
    finally:
        os.environ[OPTIMISED] = said


def options_of_links(given):
    """Return options of nvJitLink for a cubin, of those for users."""
    return [*given] if is_optimised() else [*given, "-O0"]


@functools.cache
def for_cpu():
    """Have LLVM optimise nothing in this process, unless all that it builds is to be optimised.

    This imports numba, so it is done at the first build for the CPU.
    """
    if not is_optimised():
        _have_numba(SimpleNamespace(setattr=setattr), OPT=0)


def _have_numba(patch, **settings):
    """Have numba and LLVM compile for the CPU with some other settings than cupar's own."""
    from cupar._cpu import compiling, target

    own = numba_settings.own.__wrapped__
    others = {**vars(numba_settings), "OWN": {**numba_settings.OWN, **settings}}
    other = SimpleNamespace(own=contextmanager(FunctionType(own.__code__, others)))
    for module in (compiling, target):
        patch.setattr(module, "numba_settings", other)
    with other.own(target.config):  # LLVM's machine code, too
        patch.setattr(target.target.target_context, "_internal_codegen", target._Codegen(target.NAME))
