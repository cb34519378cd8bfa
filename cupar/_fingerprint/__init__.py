"""Fingerprints: a digest of everything that decides a function's code, and a frozen copy of the function.

`walk` goes through a function and all that it reads: `bytecode` says which names that are, `values` encodes
and copies values (`frozen`), or refuses them (`refusals`; objects of the compilers' have `names`). The
result is a `fingerprint`, and `guards` check whether it still holds. `extensions` finds what others have
registered with numba (in `registries`) that changes the meaning of code. `unsupported` names what kernels
cannot do.
"""
