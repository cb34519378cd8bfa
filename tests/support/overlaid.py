"""A library's namespace with the functions of `cupar.arrays` in place of its own, for the Array API's tests.

CUPAR_OVERLAID says which library: NumPy, or one of those in `array_api_compat`, such as
``array_api_compat.cupy``.
"""

import importlib
import os

from cupar import arrays

library = importlib.import_module(os.environ.get("CUPAR_OVERLAID", "numpy"))
__array_api_version__ = "2024.12"
NAMES = [name for name in arrays.__all__ if name.islower() and hasattr(library, name)]

globals().update({name: getattr(library, name) for name in dir(library) if not name.startswith("_")})
__array_namespace_info__ = library.__array_namespace_info__
globals().update({name: getattr(arrays, name) for name in NAMES})
