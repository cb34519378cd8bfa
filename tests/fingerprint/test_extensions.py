"""Registrations with numba by others than numba: who is refused, and who is left in peace.

Each runs in a separate process, since registrations with numba are permanent: a fork of one that has compiled
with numba already, and some also in a new one, where nothing was imported before.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from functools import partial

import pytest
from support.compilers import AS_IN_THE_RUN

HEAD = """
import operator, sys
import numpy as np
import cupar
from cupar._fingerprint.refusals import Unfingerprintable

def minus(a, b):
    return a - b

def build(op=minus, dtype="f4", cc=90):
    return cupar.reduce_into(dtype, dtype, op, np.zeros(1, dtype), cc=cc).build.origin

def refused(op=minus, dtype="f4", match=""):
    try:
        found = build(op, dtype)
    except Unfingerprintable as error:
        assert match in str(error), error
        return True
    assert False, f"not refused: {found}"

def generate(context, builder, signature, arguments):
    a, b = (context.cast(builder, each, kind, signature.return_type)
            for each, kind in zip(arguments, signature.args))
    return builder.fadd(a, b)

"""


def process(cache, code, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "CUPAR_CACHE_DIR": str(cache)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Compiles with numba once, for the GPU and for the CPU, and does each piece of code in a child that it forks.
FORKING = f"""
import json, os, sys, tempfile, traceback
import numba.cuda, numpy, cupar
{AS_IN_THE_RUN}with tempfile.TemporaryDirectory() as os.environ["CUPAR_CACHE_DIR"]:
    cupar.reduce_into("i4", "i4", lambda a, b: a ^ b ^ 3, 0, cc=90).build
    cupar.unary_transform("i4", "i4", lambda a: a ^ 3, cc="cpu").build
cupar.cache.clear(disk=False)
for line in sys.stdin:
    cache, code = json.loads(line)
    child = os.fork()
    if child == 0:
        os.environ["CUPAR_CACHE_DIR"], status = cache, 1
        try:
            exec(compile(code, "<string>", "exec"), {{"__name__": "__main__"}})
            status = 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()
        os._exit(status)
    print(f"\\ndone {{os.waitpid(child, 0)[1]}}", flush=True)
"""


@pytest.fixture(scope="module")
def forked():
    """Return what runs code in a process of its own where numba has compiled."""
    command = [sys.executable, "-c", FORKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:

        def run(cache, code):
            print(json.dumps([str(cache), HEAD + textwrap.dedent(code)]), file=parent.stdin, flush=True)
            lines = []
            while not (lines and lines[-1].startswith("done ")):
                lines.append(parent.stdout.readline())
                assert lines[-1], "the process that forks has ended"
            assert lines[-1] == "done 0\n", "".join(lines)

        yield run
        parent.stdin.close()


@pytest.fixture(scope="module")
def caches(forked, tmp_path_factory):
    """Return two caches: with the kernels that these tests use, and with what `build` builds, too."""
    kernels, built = (tmp_path_factory.mktemp("caches") / name for name in ("kernels", "built"))
    forked(kernels, "assert build(lambda a, b: a * 3 * b) == 'built'")
    shutil.copytree(kernels, built)
    forked(built, "assert build() == 'linked'")
    return {"kernels": kernels, "built": built}


def in_a_copy(caches, which, folder, run):
    """Return what runs code with a cache of a test's own, in which there is what is in one of these."""
    shutil.copytree(caches[which], folder / "cache")
    return partial(run, folder / "cache")


@pytest.fixture
def new(caches, tmp_path):
    """Return what runs code in a new process, in whose cache are kernels."""
    return in_a_copy(caches, "kernels", tmp_path, process)


@pytest.fixture
def new_again(caches, tmp_path):
    """Return what runs code in a new process, in whose cache is what `build` builds."""
    return in_a_copy(caches, "built", tmp_path, process)


@pytest.fixture
def run(caches, forked, tmp_path):
    """Return what runs code where numba has compiled, and kernels are in the cache."""
    return in_a_copy(caches, "kernels", tmp_path, forked)


@pytest.fixture
def run_again(caches, forked, tmp_path):
    """Return what runs code where numba has compiled, and what `build` builds is in the cache."""
    return in_a_copy(caches, "built", tmp_path, forked)


# Each changes what `a - b` of float32 compiles to.
CONCERNING = {
    "overload": """
        from numba.cuda import types
        from numba.cuda.extending import overload
        @overload(operator.sub)
        def sub(a, b):
            if isinstance(a, types.Float):
                return lambda a, b: a + b
    """,
    "lower_builtin": """
        from numba.cuda import types
        from numba.cuda.extending import lower_builtin
        lower_builtin(operator.sub, types.float32, types.float32)(generate)
    """,
    "a registry that numba has": """
        from numba.cuda import cudaimpl, types
        cudaimpl.registry.lower(operator.sub, types.float32, types.float32)(generate)
    """,
    "a registry that few know": """
        import math
        from numba.cuda import mathimpl, types
        @mathimpl.registry.lower(operator.sub, types.float32, types.float32)
        def lower(context, builder, signature, arguments):
            return builder.fadd(*arguments)
    """,
    "a registry of one's own": """
        from numba.cuda import types
        from numba.cuda.core.imputils import Registry
        from numba.cuda.descriptor import cuda_target
        mine = Registry("mine")
        mine.lower(operator.sub, types.float32, types.float32)(generate)
        cuda_target.target_context.install_registry(mine)
    """,
    "typeof of an abstract class": """
        import numbers
        from numba.cuda import types
        from numba.cuda.typing.typeof import typeof_impl
        typeof_impl.register(numbers.Real)(lambda value, c: types.float64)
    """,
    "a data model": """
        from numba.cuda import types
        from numba.cuda.datamodel import models
        from numba.cuda.extending import register_model
        @register_model(types.Integer)
        class Mine(models.IntegerModel):
            pass
    """,
    "typeof": """
        from numba.cuda import types
        from numba.cuda.typing.typeof import typeof_impl
        @typeof_impl.register(float)
        def as_float(value, c):
            return types.float32
    """,
    "a rewrite": """
        import numba.cuda
        from numba.cuda.core.rewrites import Rewrite, register_rewrite
        @register_rewrite("before-inference")
        class Mine(Rewrite):
            pass
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONCERNING)
def test_what_concerns_an_operator_is_refused(run_again, name):
    """On disk, and in memory."""
    code = textwrap.dedent(CONCERNING[name])
    known = "import time\nassert (build(), build(), build()) == ('disk', 'memory', 'memory')"
    run_again(f"{known}\n{code}\ntime.sleep(0.02)\nrefused()\nrefused()")


@pytest.mark.parametrize("name", ["overload", "typeof", "a data model"])
def test_what_was_registered_before_anything_was_asked_for_is_refused(request, name):
    """Also in a process in which nothing was imported before, for one of them."""
    run = request.getfixturevalue("new_again" if name == "a data model" else "run_again")
    run(f"{textwrap.dedent(CONCERNING[name])}\nrefused()\ncupar.cache.clear()\nrefused()")


def test_nothing_is_built_first_that_is_refused(new):
    code = textwrap.dedent(CONCERNING["overload"])
    new(f"{code}\nimport numba.cuda\ncupar.cache.clear()\nrefused()")


AROUND = {
    "lower_cast": (
        """
        from numba.cuda import types
        from numba.cuda.extending import lower_cast
        @lower_cast(types.float32, types.float64)
        def cast(context, builder, given, wanted, value):
            return context.get_constant(types.float64, 1.0)
        """,
        "lambda a, b: (a * 0.5 + b)",
    ),
    "lower_constant": (
        """
        from numba.cuda import types
        from numba.cuda.core.imputils import lower_constant
        @lower_constant(types.float64)
        def constant(context, builder, kind, value):
            from numba.cuda.core.imputils import impl_ret_untracked
            return kind and context.get_value_type(kind)(value + 1)
        """,
        "lambda a, b: a * FACTOR + b",
    ),
    "overload_method": (
        """
        from numba.cuda import types
        from numba.cuda.extending import overload_method
        overload_method(types.Float, "twice")(lambda self: lambda self: self * 2)
        """,
        "lambda a, b: a.twice() + b",
    ),
    "overload_attribute": (
        """
        from numba.cuda import types
        from numba.cuda.extending import overload_attribute
        overload_attribute(types.Float, "half")(lambda self: lambda self: self / 2)
        """,
        "lambda a, b: a.half + b",
    ),
    "infer_getattr": (
        """
        from numba.cuda import types
        from numba.cuda.extending import infer_getattr, lower_getattr
        from numba.cuda.typing.templates import AttributeTemplate
        @infer_getattr
        class Half(AttributeTemplate):
            key = types.Float
            def resolve_half(self, kind):
                return kind
        @lower_getattr(types.Float, "half")
        def half(context, builder, kind, value):
            return value
        """,
        "lambda a, b: a.half + b",
    ),
    "type_callable": (
        """
        from numba.cuda import types
        from numba.cuda.extending import lower_builtin, type_callable
        type_callable(operator.matmul)(lambda context: lambda a, b: types.float32)
        lower_builtin(operator.matmul, types.float32, types.float32)(generate)
        """,
        "lambda a, b: a @ b",
    ),
    "infer_global": (
        """
        from numba.cuda import types
        from numba.cuda.extending import lower_builtin
        from numba.cuda.typing.templates import ConcreteTemplate, infer_global, signature
        @infer_global(operator.matmul)
        class Matmul(ConcreteTemplate):
            cases = [signature(types.float32, types.float32, types.float32)]
        lower_builtin(operator.matmul, types.float32, types.float32)(generate)
        """,
        "lambda a, b: a @ b",
    ),
    "overload of a builtin": (
        """
        from numba.cuda import types
        from numba.cuda.extending import overload
        @overload(abs)
        def mine(a):
            if isinstance(a, types.Float):
                return lambda a: a
        """,
        "lambda a, b: abs(a) + b",
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_registrations_beside_the_operators_own_names(run, name):
    code, op = AROUND[name]
    code = textwrap.dedent(code)
    run(f"FACTOR = 2.5\n{code}\nassert build() == 'linked'\nrefused({op}, match='registered with numba')")


OF_THEIR_OWN = """
from numba.cuda import types
from numba.cuda.extending import (
    lower_builtin, lower_cast, overload, overload_attribute, overload_method, register_model, typeof_impl
)
from numba.cuda.datamodel import models

class Vector:
    pass

class VectorType(types.Type):
    def __init__(self):
        super().__init__("Vector")

typeof_impl.register(Vector)(lambda value, c: VectorType())
register_model(VectorType)(models.OpaqueModel)
overload_attribute(VectorType, "x")(lambda self: lambda self: 1.0)
overload_method(VectorType, "rotate")(lambda self: lambda self: 1.0)
lower_cast(VectorType, types.float32)(lambda context, builder, given, wanted, value: None)
lower_builtin(operator.add, VectorType, VectorType)(lambda context, builder, signature, arguments: None)

@overload(operator.sub)
def sub(a, b):
    if isinstance(a, VectorType):
        return lambda a, b: a

@overload(abs)
def absolute(a):
    if isinstance(a, VectorType):
        return lambda a: a
"""


@pytest.mark.slow
def test_types_of_their_own_disturb_nobody(run):
    """As vector's register_numba does it. What was built without it is found, too."""
    run("assert (build(), build(lambda a, b: abs(a) - b)) == ('linked', 'linked')")
    code = f"""
{OF_THEIR_OWN}
Peak = cupar.gpu_struct({{"x": "f4", "n": "i4"}})
larger = lambda a, b: a if abs(a.x) > b.x else b
assert build() == "disk"
assert build(lambda a, b: abs(a) - b) == "disk"
assert cupar.reduce_into(Peak, Peak, larger, Peak(0, 0), cc=90).build.cubin_size
assert cupar.inclusive_scan("f4", "f4", lambda a, b: a + b, cc=90).build.cubin_size
"""
    run(code)


def test_what_is_registered_while_it_compiles_counts(run):
    """Also by another thread, and after it was asked for."""
    for registered in ("a rewrite", "overload"):
        run(f"""
from cupar._compile import python_to_ltoir as _numba
typed = _numba._typed
def typing(op):
    if "done" not in globals():
        globals()["done"] = True
        exec({textwrap.dedent(CONCERNING[registered])!r}, globals())
    return typed(op)
_numba._typed = typing
before = cupar.cache.usage().entries
refused(lambda a, b: a - b * 2)
assert cupar.cache.usage().entries == before
""")


@pytest.mark.slow
def test_functions_that_are_their_own_overloads_are_taken(run):
    run("""
import os
from support.compilers import effort
os.environ[effort.OPTIMISED] = "1"  # or the names of numba's functions differ that are inlined
from numba.cuda.extending import register_jitable
def twice(a): return a * 2
plain = cupar.reduce_into("f4", "f4", lambda a, b: twice(a) + b, 0.0, cc=90).cubin()
cupar.cache.clear()
twice = register_jitable(twice)
found = cupar.reduce_into("f4", "f4", lambda a, b: twice(a) + b, 0.0, cc=90)
assert found.build.origin != "memory" and found.cubin() == plain
""")


def test_a_function_with_another_body_is_refused(run):
    run("""
from numba.cuda.extending import overload
def twice(a): return a
op = lambda a, b: twice(a) + b
assert build(op) == "linked"
overload(twice)(lambda a: lambda a: a * 2)
refused(op, match="global 'twice'")
from cupar._fingerprint import extensions as _extensions
assert not _extensions.foreign().may_be_used  # which would have each operator compiled to find out
""")


def test_a_recognised_operator_is_not_taken_for_a_kind(run):
    run("""
from numba.cuda import types
from numba.cuda.extending import overload
@overload(operator.add)
def add(a, b):
    if isinstance(a, types.Float):
        return lambda a, b: a - b
try:
    cupar.inclusive_scan("f4", "f4", lambda a, b: a + b, cc=90)
except Unfingerprintable as error:
    assert "add" in str(error)
else:
    assert False
""")


def test_what_numba_compiled_of_its_own_before_hides_nothing(run):
    """numba's own `sum` adds, and is compiled once for a process."""
    run("""
import types as python_types
from numba import cuda
from numba.cuda import dispatcher, types
from numba.cuda.extending import overload
@overload(operator.add)
def add(a, b):
    if isinstance(a, types.Float):
        return lambda a, b: a - b
op = lambda a, b: sum((a, b))
dispatcher.get_current_device = lambda: python_types.SimpleNamespace(compute_capability=(9, 0))
cuda.compile(op, "float32(float32, float32)", device=True, abi="c", output="ltoir", cc=(9, 0))
refused(op, match="add")
""")


@pytest.mark.parametrize(
    "breaks",
    [
        "del templates.builtin_registry",
        "templates.builtin_registry.functions.append(object())",
        "from numba.cuda.typing import typeof; del typeof.typeof_impl._clear_cache",
        "from numba.cuda.datamodel import default_manager; del default_manager._handlers",
    ],
)
def test_numbas_internals_that_look_otherwise_are_refused(request, breaks):
    """One of them is looked at as registrations are watched from, before anything is compiled."""
    run = request.getfixturevalue("new" if "typeof" in breaks else "run")
    run(f"""
from numba.cuda.typing import templates
import numba.cuda
{breaks}
try:
    build()
except cupar.BuildError as error:
    assert "is not built as cupar expects" in str(error), error
else:
    assert False
""")


def test_nothing_of_numbas_own_is_foreign(run):
    run("""
import numba.cuda
from cupar._fingerprint import extensions as _extensions
numba.vectorize(["float64(float64)"])(lambda x: x * 2)  # which loads numba's own overloads of other modules
build(lambda a, b: abs(a) ** 2 + b)
found = _extensions.foreign()
assert not (found.objects or found.everywhere or found.templates or found.lowers or found.typeof), found
assert len(_extensions.registries()) > 20
""")


def test_a_hit_imports_no_numba(new_again):
    assert new_again("print(build(), any(name.startswith('numba') for name in sys.modules))").split() == [
        "disk",
        "False",
    ]


# --- Numba's compiler for the CPU --------------------------------------------------------------------------

ON_CPU = """
import math

ON_CPU = {
    "math.sqrt of (float64)": (lambda a: math.sqrt(a), "f8"),
    "operator.sub of (float64, float64)": (lambda a: a - 2.5, "f8"),
    "operator.neg of (float64)": (cupar.OpKind.NEGATE, "f8"),
    "a conversion of (int32, float64)": (lambda a: a + 1.5, "i4"),
    "": (lambda a: a * 3.0, "f8"),
}

def transform(name):
    op, dtype = ON_CPU[name]
    return cupar.unary_transform(dtype, "f8", op, cc="cpu").build.origin

def register():
    from numba import types
    from numba.extending import lower_builtin, lower_cast, overload

    for function in math.sqrt, operator.neg:
        lower_builtin(function, types.float64)(lambda context, builder, signature, given: given[0])
    lower_builtin(operator.sub, types.float64, types.float64)(generate)
    lower_cast(types.int32, types.float64)(lambda context, builder, a, b, value: context.get_constant(b, 3))

def check(origin):
    assert transform("") == origin
    for name in list(ON_CPU)[:-1]:
        try:
            found = transform(name)
        except Unfingerprintable as error:
            assert name in str(error) and "registered with numba by others" in str(error), error
            assert str(error).startswith(("op: operator <lambda>", "unary_transform: ")), error
        else:
            assert False, (name, found)
"""


def test_registrations_for_the_cpu(forked, tmp_path):
    for _ in range(2):  # built before, and found on disk before
        forked(tmp_path, ON_CPU + "for name in ON_CPU: transform(name)\nregister()\ncheck('memory')\n")
    forked(tmp_path, ON_CPU + "register()\ncheck('disk')\n")
    shutil.rmtree(tmp_path)
    forked(tmp_path, ON_CPU + "register()\ncheck('built')\n")


def test_types_and_models_for_the_cpu(forked, tmp_path):
    forked(
        tmp_path,
        ON_CPU
        + """
import numbers, numba
from cupar._fingerprint import extensions
numba.vectorize(["float64(float64)"])(lambda x: x * 2)  # which loads numba's own overloads of other modules
numba.njit(lambda a: np.sum(a))(np.arange(3))
found = extensions.foreign(on_cpu=True)
assert not (found.objects or found.everywhere or found.templates or found.lowers or found.typeof), found
assert transform("") == "built" and transform("") == "memory"

from numba.extending import models, register_model, typeof_impl

@register_model(numba.types.Float)
class Model(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, numba.core.datamodel.models.ir.DoubleType())

try:
    transform("")
except Unfingerprintable as error:
    assert "a data model" in str(error), error
else:
    assert False
""",
    )
