"""The compilers, and what a build depends on: its key.

- `specialisation`: a request to build. `key`: all it depends on. `toolchain`: where compilers are, their
  versions and options.
- `python_to_ltoir`: numba compiles operators in Python. `wrapper` stands around them, `numba_types` has their
  types, `captured_arrays` makes captured arrays arguments, and `numba_errors` says why numba refuses.
- `nvrtc`: compiles the C++ of iterators and operators.
- `workers` compiles kernels in several processes, and `limits` says what does not build.
- `nvjitlink`: links kernels, iterators and operators.
- `inference`: what numba tells of an operator without a build.
"""
