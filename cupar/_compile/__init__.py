"""The compilers, and the key of a build: all it depends on.

- `key`: the parts of a key. `toolchain`: compilers' places, versions and options. `cccl`: CCCL's headers.
- `entries`: entries of the cache and objects made from them. `alike`: equal builds of other compilers.
- `python_to_ltoir`, `python_kernel`: numba compiles operators and kernels in Python. `wrapper` is the Python
  between CCCL's call and an operator, `numba_types` has the types of values, and `numba_errors` explains
  numba's refusals.
- `nvrtc`: compiles C++. `workers` runs it in several processes, `precompiled` keeps headers between kernels.
- `nvjitlink`: links kernels, iterators and operators. `limits` explains items that are too large.
- `inference`: an operator's result dtype, and whether it can be fingerprinted, without a build.
"""
