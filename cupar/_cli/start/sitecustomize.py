"""What python imports, by this name, as it starts: lets cupar begin in a program, and then is not there.

Its folder stands first in the ``PYTHONPATH`` of what `cupar._cli.program` starts, and of processes that these
start. An interpreter of another environment, where cupar may not work, is left as it is.
"""

import importlib
import os
import sys

_above = os.path.dirname


def _begin() -> None:
    folder = _above(os.path.abspath(__file__))  # noqa: PTH100 - importing pathlib costs a start 5 ms
    sys.path[:] = [each for each in sys.path if each != folder]
    sys.path_importer_cache.pop(folder, None)
    python = os.environ.get("_CUPAR_STARTED", "").partition("\n")[0]
    if python != f"{sys.implementation.cache_tag} {sys.prefix}":
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    # That which started the program, whether or not the program itself would find it.
    spec = PathFinder.find_spec("cupar", [_above(_above(_above(folder)))])
    assert spec is not None and spec.loader is not None
    sys.modules["cupar"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["cupar"])
    importlib.import_module("cupar._cli.started").begin()


_begin()
# Then python continues without this file: with the user's sitecustomize, or the error that it is missing.
del sys.modules[__name__]
importlib.import_module(__name__)
