"""Where things are: in a call frame of XLA's, in a program, and in the state of the handler."""

from __future__ import annotations

from typing import Final

from .._base.digests import sha256

SYMBOL: Final = "cupar_run"

# Offsets in a call frame of ``xla/ffi/api/c_api.h``, and in the structs that it points to. They are those of
# these versions, a major one and minor ones: JAX 0.7 to 0.10.
MAJOR, MINORS = 0, range(1, 4)
EXTENSION, API, CONTEXT, STAGE = 8, 16, 24, 32
NUM_ARGS, ARGS, RETS, ATTRS = 56, 72, 112, 160
ERROR_CREATE, STREAM_GET = 48, 80  # in the table of functions
DATA = 24  # of a buffer
METADATA = 1  # the kind of an extension
INSTANTIATE = 0  # a stage
CANCELLED, INVALID, NOT_FOUND, INTERNAL = 1, 3, 5, 13  # XLA_FFI_Error_Code_…

# The words of the state, which the handler is given. `VERSION`: of the interface, major and minor.
TABLE, MASK, FIND, RESOLVE, FAIL, LAUNCH, CURRENT, VERSION, INTERRUPTED = range(9)
# Python's C functions, whose addresses follow in the state.
ENSURE, RELEASE, FROM_INT, AS_INT, CALL, OCCURRED, CLEAR, THREAD, RAISE, KEEP, DROP = range(9, 20)
PYTHON: Final = {
    **{ENSURE: "PyGILState_Ensure", RELEASE: "PyGILState_Release"},
    **{FROM_INT: "PyLong_FromLongLong", AS_INT: "PyLong_AsLongLong", CALL: "PyObject_CallOneArg"},
    **{OCCURRED: "PyErr_Occurred", CLEAR: "PyErr_Clear"},
    **{THREAD: "PyThread_get_thread_ident", RAISE: "PyThreadState_SetAsyncExc"},
    **{KEEP: "Py_IncRef", DROP: "Py_DecRef"},
}
STATE: Final = 9 + len(PYTHON)  # words
# Of the words that a function of Python's is given: whether it has begun what it cannot begin again.
BEGUN: Final = 4
SPREAD = 0x9E3779B97F4A7C15 - 2**64  # 2**64 over the golden ratio

# A program begins with which it is, whether it is for a GPU, and how many records it has.
HEAD = 3
# A record of calls: the function's number, how many, and how many words they have in common; these; and each
# one's `Part`. On a GPU, the common words are a shape (`_launch.words`), and there are no others.
RECORD, PART = 3, 9
# Relocations: by the address of the program itself; and by function 0, those before it by further functions.
SELF, FIRST_FUNCTION = -1, -2


def identity(builds: str) -> int:
    """Return by which word the functions of programs are found; it is odd."""
    return int.from_bytes(sha256(builds.encode()).digest()[:8], "little", signed=True) | 1
