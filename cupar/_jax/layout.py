"""Where things are: in a call frame of XLA's, in a program, and in the state of the handler."""

from __future__ import annotations

from typing import Final

from .._base.digests import sha256

SYMBOL: Final = "cupar_run"

# Offsets in a call frame of ``xla/ffi/api/c_api.h``, and in the structs that it points to.
EXTENSION, API, CONTEXT = 8, 16, 24
NUM_ARGS, ARGS, RETS, ATTRS = 56, 72, 112, 160
VERSION = 32  # in the table of functions: major and minor, of 4 bytes each
ERROR_CREATE, STREAM_GET = 48, 80  # in that table
DATA = 24  # of a buffer
METADATA = 1  # the kind of an extension

# The words of the state, which the handler is given. `OWN_VERSION`: major and minor of JAX's headers.
TABLE, MASK, RESOLVE, FAIL, LAUNCH, CURRENT, OVERLAPS, OWN_VERSION = range(8)
SPREAD = 0x9E3779B97F4A7C15 - 2**64  # 2**64 over the golden ratio

# A program begins with which it is, whether it is for a GPU, and how many records it has.
HEAD = 3
# A launch: the function's number, grid, block, shared memory, whether it overlaps with the launch before, the
# numbers of parameters and of their words; then where each parameter is among these, and they.
GPU_RECORD = 11
# Calls: the function's number, how many, and how many words they have in common; these; each one's `Part`.
CPU_RECORD, PART = 3, 7
SELF = -1  # relocations by the address of the program itself


def identity(builds: str) -> int:
    """Return by which word the functions of programs are found; it is odd."""
    return int.from_bytes(sha256(builds.encode()).digest()[:8], "little", signed=True) | 1
