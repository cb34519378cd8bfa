"""What a function does: its digest, and a copy of it that stays as it is.

`walk` goes through a function and all that it reads: `bytecode` says which names that are, `values` encodes
and copies values (`frozen`), or refuses them (`refusals`; objects of the compilers' have `names`). The
result is a `fingerprint`, and `guards` tell whether it still holds. `extensions` finds what others registered
with numba (in `registries`) that changes what code means. `unsupported` says what kernels cannot do.
"""
