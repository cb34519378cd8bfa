"""`cupar.cache.clear` empties every table of the process that keeps builds, algorithms or users' objects.

Tables are found: all containers that modules, classes and functions of cupar's refer to.
"""

import gc
import sys
import weakref
from types import CodeType, FunctionType, ModuleType

import numpy as np
import pytest

import cupar
from cupar import arrays, distributed
from cupar._base import bounded
from cupar._base.bounded import Bounded
from cupar._call.algorithm import Launchable

CONTAINERS = (dict, list, set, Bounded, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)
USERS = "<users>"  # the file of their functions
# Kept for ever: PyTorch has no way to forget an operator, and graphs name them.
REGISTERED_IN_PYTORCH = {"cupar._torch.registration._direct", "cupar._torch.user_functions._made"}


def users(source):
    """Return a function of the user's."""
    return eval(compile(source, USERS, "eval"), {"np": np})


def tables():
    """Yield all tables of the process, with their names."""
    seen = set()
    todo = [
        (f"{name}.{attribute}", value)
        for name, module in [*sys.modules.items()]
        if name.partition(".")[0] == "cupar"
        for attribute, value in [*vars(module).items()]
        if not attribute.startswith("__")
    ]
    while todo:
        name, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if hasattr(value, "cache_clear"):
            yield name, value
            todo.append((name, value.__wrapped__))
        elif isinstance(value, CONTAINERS):
            yield name, value
        elif isinstance(value, type) and value.__module__.startswith("cupar."):
            todo += [(f"{name}.{each}", one) for each, one in vars(value).items() if each[:2] != "__"]
        elif isinstance(value, FunctionType) and "cupar" in value.__code__.co_filename:
            cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            todo += [(f"{name}.{each}", one) for each, cell in cells for one in gc.get_referents(cell)]
            todo += [(name, value.__wrapped__)] if hasattr(value, "__wrapped__") else []


def is_of_others(value):
    """Whether a value is a module's globals, or one of numba's contexts, which know all that it compiled."""
    if isinstance(value, dict):
        return "__spec__" in value
    names = [(each.__module__.partition(".")[0], each.__name__) for each in type(value).__mro__]
    return ("numba", "BaseContext") in names or ("numba_cuda", "BaseContext") in names


def kept_by(table, seen):
    """Return the way to a build, an algorithm or a user's code that a table keeps alive; None if none.

    Values whose ids are `seen` keep nothing.
    """
    todo = [(each, ()) for each in gc.get_referents(table)]
    for value, way in todo:
        if id(value) in seen or isinstance(value, (ModuleType, type)) or is_of_others(value):
            continue
        seen.add(id(value))
        way = (*way, getattr(value, "__qualname__", type(value).__qualname__))
        if isinstance(value, Launchable) or (isinstance(value, CodeType) and value.co_filename == USERS):
            return " -> ".join(way)
        if isinstance(value, FunctionType):  # but not by its globals
            found = value.__code__, value.__closure__, value.__defaults__, value.__kwdefaults__
        else:
            found = gc.get_referents(value)
        todo += [(each, way) for each in found]
    return None


def calls_of_arrays(x):
    arrays.scan(x, users("lambda a, b: a + b"))
    arrays.transform(users("lambda a: -a"), x)
    arrays.reduce(cupar.TransformIterator(x, users("lambda a: a * 2")), users("lambda a, b: max(a, b)"))
    arrays.find_first(x, users("lambda a: a > 1"))
    arrays.quantile(x, [0.1, 0.5])
    cupar.reduce_into(x, x, users("lambda a, b: a * b"), 1.0)


def calls_in_shards(x):
    distributed.arrays.scan(x, users("lambda a, b: a + b"))
    distributed.arrays.sum(x)


def calls_of_torch(x):
    torch, operators = pytest.importorskip("torch"), pytest.importorskip("cupar.torch")
    x = torch.tensor(x)
    operators.scan(x.requires_grad_(), users("lambda a, b: a + b"), dim=0).sum().backward()
    operators.transform(users("lambda a: -a"), x.detach())
    operators.sum(x)


def calls_of_jax(x):
    jnp, functions = pytest.importorskip("jax.numpy"), pytest.importorskip("cupar.jax")
    given = {"d_in": jnp.asarray(x), "op": users("lambda a, b: a + b"), "h_init": None, "num_items": x.size}
    functions.call(cupar.inclusive_scan, given, {"d_out": given["d_in"]})
    functions.associative_scan(users("lambda a, b: a + b"), given["d_in"])


def calls_of_dask(x):
    dask, functions = pytest.importorskip("dask.array"), pytest.importorskip("cupar.dask")
    functions.scan(dask.from_array(x, chunks=3), users("lambda a, b: a + b")).compute()


def calls_of_compute(x):
    compute = pytest.importorskip("cupar.compute")
    op = users("lambda a, b: a + b")
    compute.reduce_into(d_in=x, d_out=x.copy(), num_items=x.size, op=op, h_init=np.zeros(1, x.dtype))


def builds_for_a_gpu(x):
    cupar.inclusive_scan(x.dtype, x.dtype, users("lambda a, b: a + b"), None, cc=90)
    cupar.jit(users("lambda x: None")).compile("void(float32[::1])", cc=90)


@pytest.mark.parametrize(
    "call",
    [
        calls_of_arrays,
        calls_in_shards,
        calls_of_torch,
        calls_of_jax,
        calls_of_dask,
        calls_of_compute,
        builds_for_a_gpu,
    ],
)
def test_all_tables_are_emptied(call):
    with cupar.device("cuda" if call is builds_for_a_gpu else "cpu"):
        for _ in range(3):  # a program is made by the second one
            call(np.arange(8, dtype="f4"))
    seen = set()
    assert any(kept_by(table, seen) for _, table in tables()), "they are not found"
    cupar.cache.clear(disk=False)
    gc.collect()
    seen = set()
    kept = [
        (name, way)
        for name, table in tables()
        if name not in REGISTERED_IN_PYTORCH and (way := kept_by(table, seen)) is not None
    ]
    assert kept == []
    for each in bounded.registered:
        assert not (each.cache_info().currsize if hasattr(each, "cache_info") else len(each))
