"""External device code, by content: functions that operators and kernels call and that are not in Python.

`linkable` has the kinds of code that the linker takes and reads them from files and objects, `sources`
collects what C++ includes, `declared` reads functions that were declared to numba.cuda, and `cpp` makes
functions in C++ callable. Nothing here compiles: that is `_compile.external`.
"""
