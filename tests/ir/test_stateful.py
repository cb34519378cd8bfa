"""Operators with state: device arrays that functions capture, and RawOps with bytes of their own.

Without a GPU, `handed_over` has the states that a call would pass to the kernel. That code finds its arrays
there, and holds no address of those that it was compiled with, is seen in that it is the same for all.
"""

import functools
import gc
import struct
import sys
import textwrap
import types
import weakref

import numpy as np
import pytest
from support.common import NO_CODE
from support.disassembly import instructions

import cupar
from cupar import OpKind, RawOp, _build, gpu_struct
from cupar._compile import key as _key
from cupar._compile import nvjitlink, nvrtc, python_to_ltoir
from cupar._fingerprint import walk
from cupar._ir.resolve import resolve
from cupar._obtain import produce

CC = 90


class DeviceArray:
    """What another library says of an array in device memory."""

    def __init__(self, dtype="f4", shape=(8,), address=1 << 20, strides=None):
        dtype = np.dtype(dtype)
        self.interface = {
            "typestr": dtype.str,
            "shape": shape,
            "data": (address, False),
            "strides": strides,
            "version": 3,
        }
        if dtype.names:
            self.interface["descr"] = dtype.descr

    @property
    def __cuda_array_interface__(self):
        return self.interface


def state_of(*arrays):
    """Return the state of an operator that has captured these arrays, in this order."""
    parts = []
    for array in arrays:
        shape = array.interface["shape"]
        parts.append(struct.pack(f"<Q{len(shape)}q", array.interface["data"][0], *shape))
    return b"".join(parts)


def defined(source, **names):
    """Execute source in a module of its own, which has `names`, and return what it calls `op`."""
    namespace = {"__name__": "operators", **names}
    exec(textwrap.dedent(source), namespace)
    return namespace["op"]


def enclosed(source, **names):
    """Return what source calls `op`, with `names` in its closure."""
    body = textwrap.indent(textwrap.dedent(source), "    ")
    around = defined(f"def op({', '.join(names)}):\n{body}\n    return op")
    return around(**names)


def lookup(table):
    return lambda a: table[a]


@pytest.fixture
def nothing_is_compiled(empty_cache, monkeypatch):
    """Builds are stored and found as ever, but there is nothing in them."""
    monkeypatch.setattr(produce, "build_here", lambda spec, seconds: (NO_CODE, 4, "built"))


def key(spec):
    return _key.digest(_key.build_parts(spec))


# --- What they may do ------------------------------------------------------------------------------------


@functools.cache
def kernel(count):
    """A kernel that calls an operator with a state."""
    types_of_all = ", ".join(["void*"] * (count + 2))
    source = f"""
        extern "C" __device__ void cupar_op({types_of_all});
        struct State {{ unsigned long long words[16]; }};
        extern "C" __global__ void kernel(State state, char* in, char* out) {{
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          cupar_op(state.words, {"in + 8 * i, " * count} out + 16 * i);
        }}
    """
    return nvrtc.compile_cpp(source, CC)


def cubin(op, inputs=("i4",), output="f8"):
    """Compile an operator into a small kernel: a link of CUB's costs ten times as much."""
    found = resolve(op, [np.dtype(dtype) for dtype in inputs], np.dtype(output))
    assert found.state_size > 0
    return nvjitlink.link([kernel(len(inputs)), *_build._operator_code("op", found, CC)], CC)


ARRAYS = {
    "table": ("f4", (8,)),
    "other": ("f4", (9,)),
    "longs": ("i8", (5,)),
    "grid": ("i2", (3, 4)),
    "cube": ("f8", (2, 3, 4)),
    "mask": ("?", (7,)),
    "halves": ("f2", (6,)),
    "waves": ("c16", (6,)),
    "single": ("f4", ()),
}


def arrays_at(address):
    return {
        name: DeviceArray(dtype, shape, address + 4096 * i)
        for i, (name, (dtype, shape)) in enumerate(ARRAYS.items())
    }


def plain_names():
    from numba import cuda

    config = types.ModuleType("config")
    config.K = 3
    return {
        "K": 2.5,
        "twice": defined("def op(x): return x * 2"),
        "jitted": cuda.jit(device=True)(defined("def op(x): return x * 3")),
        "item": defined("def op(array, i): return array[i] + len(array)"),
        "config": config,
        "cuda": cuda,
    }


OPERATORS = {
    "lookup": "def op(a): return table[a]",
    "lambda": "op = lambda a: table[a]",
    "two dimensions": "def op(a): return grid[a, 1] + grid[1][a] + grid[a % 3, a % 4]",
    "three dimensions": "def op(a): return cube[a, 1, 2] + cube[1][a, 2]",
    "no dimension": "def op(a): return single[()] * a",
    "other dtypes": "def op(a): return table[a] + longs[a] + grid[0, a] + cube[a, a, a] + halves[a]",
    "same dtypes": "def op(a): return table[a] - other[a] + table[a + 1]",
    "bool": "def op(a): return 1.5 if mask[a] else 2.5",
    "bools": "def op(a): return mask[a] and not mask[a + 1] or a > 3",
    "float16": "def op(a): return halves[a] * halves[0]",
    "complex": "def op(a): return (waves[a] * waves[0]).imag",
    "length": "def op(a): return len(table) + table.shape[0] + table.size + grid.shape[1] + cube.ndim",
    "from the end": "def op(a): return table[-1] + table[len(table) - 1 - a]",
    "row": "def op(a): return grid[a][1] + len(grid[a])",
    "slice": "def op(a): return table[2:][a] + len(table[1:a])",
    "default": "def op(a, k=3): return table[a] * k",
    "helpers": "def op(a): return twice(table[a]) + jitted(longs[a]) * K + config.K",
    "passed on": "def op(a): return item(table, a) + item(other, a + 1)",
    "renamed": "def op(a):\n  t = table\n  return t[a] + t[0]",
    "chosen": "def op(a):\n  t = table if a > 2 else other\n  return t[a]",
    "in a function within": "def op(a):\n  inner = lambda i: table[i] + K\n  return inner(a)",
    "in a function within, too": "def op(a):\n  inner = lambda i: table[i] + K\n  return inner(a) + table[0]",
    "write": "def op(a):\n  table[a] = 2\n  grid[a, 1] += 3\n  return a",
    "atomic": "def op(a):\n  cuda.atomic.add(longs, 0, 1)\n  return a",
    "atomic with result": "def op(a): return a + cuda.atomic.max(cube, (a, 0, 1), 5.0)",
    "loop": """
        def op(a):
          total = 0.0
          for i in range(len(table)):
            if i % 2:
              total += table[i]
            else:
              total -= other[i] * K
          while a > 0:
            a -= 1
            if mask[a]:
              continue
            if grid[a, 0] > 3:
              break
            total += longs[a]
          return total
        """,
    "search": """
        def op(a):
          if a < 0:
            return table[0]
          for i in range(len(table) - 1):
            if table[i] <= a < table[i + 1]:
              return table[i]
          return other[a]
        """,
    "items": "def op(a):\n  total = 0.0\n  for x in table:\n    total += x\n  return total * a",
    "many globals": "def op(a):\n"
    + "".join(f"  N{i}\n" for i in range(300))
    + "  return table[a] + (N1 + N299)",
    "many variables": "def op(a):\n"
    + "".join(f"  v{i} = a\n" for i in range(230))
    + "  return table[a] + v0 + v229",
}
MANY = {f"N{i}": i for i in range(300)}


def names_read(source, names):
    return {name: value for name, value in names.items() if name in source}


WHERE = [(name, where) for where in ("global", "closure") for name in OPERATORS]
WHERE += [(name, "jitted") for name in [*OPERATORS][::4]]


def is_compiled(name, where):
    """Each is compiled with arrays from one of two places, as instructions differ; all are looked at."""
    if where == "jitted" or "many" in name or "within" in name:
        return True
    return (where == "global") == ([*OPERATORS].index(name) % 2 == 0)


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(("name", "where"), WHERE)
def test_what_operators_do_with_arrays(name, where):
    from numba import cuda

    source = OPERATORS[name]
    make = enclosed if where == "closure" else defined
    jit = cuda.jit(device=True) if where == "jitted" else lambda function: function
    if where == "closure" and name == "many globals":
        source = source.replace("(N", "(K + N")  # of which some are in the closure, and all others are not
    others = {**plain_names(), **MANY}

    def at(address):
        return jit(make(source, **names_read(source, {**arrays_at(address), **others})))

    if "function within" in name and where != "closure":  # numba would take it for a constant
        with pytest.raises(TypeError, match="'table' is a global that a function within the operator reads"):
            cubin(at(0x123450000000))
        return
    if is_compiled(name, where):
        assert cubin(at(0x6789A0000000)) == cubin(at(0x123450000000))
    found = walk.fingerprint(at(0x123450000000))
    captured = {each.name for each in found.captures}
    assert captured == {name for name in ARRAYS if name in source}
    assert {each.in_closure for each in found.captures} == {where == "closure"}


def test_globals_and_closure_variables_at_once():
    names = {**plain_names(), **arrays_at(1 << 21)}
    source = """
        def around(longs, table, K):
          def op(a, b): return table[a] * K + longs[b] * other[a] + grid[a, b] + twice(a)
          return op
        op = around
        """
    op = defined(source, **names)(names["longs"], names["table"], 7)
    assert len(cubin(op, ("i4", "i8"))) > 1000
    found = resolve(op, [np.dtype("i4"), np.dtype("i8")], np.dtype("f8"))
    assert {each.name: each.in_closure for each in found.captures} == {
        "table": True,
        "longs": True,
        "other": False,
        "grid": False,
    }
    assert found.state() == state_of(*(names[each.name] for each in found.captures))
    assert found.state_size == len(found.state()) == 8 * (2 + 2 + 2 + 3)


def test_arrays_of_structs():
    point = gpu_struct({"x": "f4", "n": "i8"})
    table = DeviceArray(point.dtype, (5,))
    for op, output in (
        (lambda a: table[a].x, "f4"),
        (lambda a: table[a]["n"] + table[0].n, "i8"),
        (lambda a: point(table[a].x, table[a].n + 1), point.dtype),
    ):
        assert len(cubin(op, ("i4",), output)) > 1000


def test_arrays_of_structs_with_fields_of_any_name():
    found = gpu_struct({"index": "i8", "count": "f4"})
    table = DeviceArray(found.dtype, (5,))
    assert len(cubin(lambda a: table[a].index, ("i4",), "i8")) > 1000
    assert len(cubin(lambda a: found(table[a].index, table[a].count), ("i4",), found.dtype)) > 1000


def test_structs_and_arrays():
    found = gpu_struct({"index": "i4", "count": "f4"})
    table = DeviceArray()
    op = lambda a: found(a.index + 1, a.count * table[a.index])
    assert len(cubin(op, (found.dtype,), found.dtype)) > 1000


def test_options_of_jitted_operators_count():
    from numba import cuda

    source = "import math\ndef op(a): return math.sin(a) / table[0]"
    plain, quick = (
        cubin(cuda.jit(device=True, fastmath=fast)(defined(source, table=DeviceArray())), ("f4",), "f4")
        for fast in (False, True)
    )
    assert plain != quick


def test_host_arrays_are_constants():
    table = np.arange(4, dtype="f4")
    found = resolve(lookup(table), [np.dtype("i4")], np.dtype("f4"))
    assert (found.captures, found.state_size, found.state) == ((), 0, None)
    other = resolve(lookup(table + 1), [np.dtype("i4")], np.dtype("f4"))
    assert other.fingerprint != found.fingerprint


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def op(a): return table", "cannot compile"),
        ("def op(a): return table[a, 1]", "cannot compile"),
        ("def op(a): return table(a)", "cannot compile"),
        (
            "def helper(a): return table[a]\ndef op(a): return helper(a)",
            "table.* global or a closure variable",
        ),
        ("def op(a, t=table): return t[a]", "global or a closure variable of the operator itself"),
        ("both = (table, table)\ndef op(a): return both[0][a]", "global or a closure variable of the op"),
    ],
)
def test_what_operators_may_not_do_with_arrays(source, message):
    with pytest.raises(TypeError, match=f"^op: .*{message}"):
        cubin(defined(source, table=DeviceArray()))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its closures have a numbering of their own")
def test_too_many_variables_are_refused():
    lines = "".join(f"  v{i} = a * {i}\n" for i in range(260))
    source = f"def op(a):\n{lines}  return table[a] + {' + '.join(f'v{i}' for i in range(260))}"
    with pytest.raises(TypeError, match="^op: .*may have 255 variables"):
        cubin(defined(source, table=DeviceArray()))


@pytest.mark.usefixtures("optimised")
def test_a_transform_is_inlined(tmp_path):
    table, grid, mask = DeviceArray(), DeviceArray("f4", (4, 4)), DeviceArray("?")
    op = lambda a: table[a] * grid[a, 1] if mask[a] else grid[1, 2]
    transform = cupar.unary_transform("i4", "f4", op, cc=CC)
    found = instructions(transform, tmp_path)
    assert len(found) > 100, "the disassembly was not understood"
    assert not {name.split(".")[0] for name in found} & {"CALL", "LDL", "STL"}


# --- What they hand over ---------------------------------------------------------------------------------


def handed_over(algorithm):
    """Return the states of operators that a call passes to the kernel."""
    return [state() for state in algorithm._states if state is not None]


def test_closures_share_a_build_and_not_their_arrays(empty_cache):
    tables = DeviceArray("f4", (8,), 1 << 20), DeviceArray("f4", (100,), 1 << 21)
    one, two = (cupar.unary_transform("i4", "f4", lookup(table), cc=CC) for table in tables)
    assert (one.build.origin, two.build.origin) == ("built", "memory")
    assert one.build.key == two.build.key
    assert one is not two
    again = cupar.unary_transform("i4", "f4", lookup(tables[0]), cc=CC)
    for algorithm, table in ((one, tables[0]), (two, tables[1]), (again, tables[0])):
        assert handed_over(algorithm) == [state_of(table)]
    assert cupar.cache.usage().entries == 2, "a template and a build"


def test_each_time_it_is_asked_for_the_arrays_are_those_of_now(nothing_is_compiled):
    tables = [DeviceArray("f4", (n,), n << 20) for n in (1, 2, 3)]
    op = defined("def op(a): return table[a]", table=None)
    algorithms = []
    for i in range(9):
        op.__globals__["table"] = tables[i % 3]
        algorithms.append(cupar.unary_transform("i4", "f4", lookup(tables[i % 3]), cc=CC))
        assert handed_over(cupar.unary_transform("i4", "f4", op, cc=CC))[0] == state_of(tables[i % 3])
    assert [handed_over(algorithm)[0] for algorithm in algorithms] == [*map(state_of, tables)] * 3


def test_an_array_in_the_place_of_a_constant(nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=np.arange(8, dtype="f4"))
    for _ in range(4):
        constant = cupar.unary_transform("i4", "f4", op, cc=CC)
    assert not any(handed_over(constant))
    op.__globals__["table"] = DeviceArray()
    for _ in range(4):
        algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
        assert handed_over(algorithm)[0] == state_of(DeviceArray())
        assert algorithm.build.key != constant.build.key


def test_other_types_are_other_builds(specified):
    keys = [
        key(specified(cupar.unary_transform, "i4", "f8", op))
        for op in (
            lookup(DeviceArray("f4")),
            lookup(DeviceArray("f8")),
            lookup(DeviceArray("f4", (2, 4))),
            lookup(DeviceArray("f4", (2, 2, 2))),
            lookup(np.arange(8, dtype="f4")),
        )
    ]
    assert len(set(keys)) == len(keys)
    same = lookup(DeviceArray("f4", (1000,), 1 << 40))
    assert key(specified(cupar.unary_transform, "i4", "f8", same)) == keys[0]


def test_the_size_of_the_state_is_part_of_the_kernels(specified):
    one, two, shape = (
        _key.digest(_key.template_parts(specified(cupar.unary_transform, "i4", "f8", op)))
        for op in (
            lookup(DeviceArray("f4")),
            lookup(DeviceArray("i8")),
            lookup(DeviceArray("f4", (2, 4))),
        )
    )
    assert one == two != shape


def test_a_global_is_looked_up_in_each_call(nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=DeviceArray())
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    for table in (
        DeviceArray("f4", (8,), 1 << 22),
        DeviceArray("f4", (0,), 0),
        DeviceArray("f4", (9,), 1 << 45),
    ):
        op.__globals__["table"] = table
        assert handed_over(algorithm)[0] == state_of(table)
    # Asked for again, it is that of the array that is there now.
    assert handed_over(cupar.unary_transform("i4", "f4", op, cc=CC))[0] == state_of(table)


def test_a_closure_variable_is_looked_up_in_each_call(nothing_is_compiled):
    def around(table):
        def op(a):
            return table[a]

        def rebind(other):
            nonlocal table
            table = other

        return op, rebind

    first, second = DeviceArray(), DeviceArray("f4", (3,), 1 << 30)
    op, rebind = around(first)
    other_op, _ = around(first)
    algorithm, other = (cupar.unary_transform("i4", "f4", each, cc=CC) for each in (op, other_op))
    rebind(second)
    assert handed_over(algorithm)[0] == state_of(second)
    assert handed_over(other)[0] == state_of(first)


@pytest.mark.parametrize(
    ("now", "error", "message"),
    [
        (DeviceArray("f8"), TypeError, "built for float32, got an array of float64"),
        (DeviceArray("i4"), TypeError, "built for float32, got an array of int32"),
        (DeviceArray("f4", (2, 4)), ValueError, "built for 1 dimensions, got 2"),
        (DeviceArray("f4", ()), ValueError, "built for 1 dimensions, got 0"),
        (DeviceArray("f4", (8,), strides=(8,)), ValueError, "expected a C-contiguous array"),
        (DeviceArray("f4", address=(1 << 20) + 2), ValueError, "aligned to 4 bytes"),
        (np.zeros(8, "f4"), TypeError, "expected a device array, got a NumPy array"),
        (None, TypeError, "expected a device array, got None"),
        (3.0, TypeError, "expected a device array, got float"),
    ],
)
def test_another_type_after_the_build_is_refused(now, error, message, nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=DeviceArray())
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    op.__globals__["table"] = now
    with pytest.raises(error, match=f"^op: captured array 'table': .*{message}"):
        handed_over(algorithm)[0]
    op = lookup(DeviceArray())
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    op.__closure__[0].cell_contents = now
    with pytest.raises(error, match=f"^op: captured array 'table': .*{message}"):
        handed_over(algorithm)[0]


def test_another_type_before_the_factory_is_another_build(nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=DeviceArray())
    one = cupar.unary_transform("i4", "f8", op, cc=CC)
    op.__globals__["table"] = DeviceArray("f8")
    two = cupar.unary_transform("i4", "f8", op, cc=CC)
    assert one.build.key != two.build.key
    assert handed_over(two)[0] == state_of(DeviceArray("f8"))


def test_an_array_that_is_gone_is_said_by_name(nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=DeviceArray())
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    del op.__globals__["table"]
    with pytest.raises((TypeError, NameError), match="^op: captured array 'table': "):
        handed_over(algorithm)[0]
    op = lookup(DeviceArray())
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    del op.__closure__[0].cell_contents
    with pytest.raises((TypeError, NameError), match="^op: captured array 'table': "):
        handed_over(algorithm)[0]


FACTORIES = {
    "reduce_into": lambda op: cupar.reduce_into("i4", "i4", op, 0, cc=CC),
    "exclusive_scan": lambda op: cupar.exclusive_scan("i4", "i4", op, 0, cc=CC),
    "inclusive_scan": lambda op: cupar.inclusive_scan("i4", "i4", op, cc=CC),
    "segmented_reduce": lambda op: cupar.segmented_reduce("i4", "i4", "i8", "i8", op, 0, cc=CC),
    "binary_transform": lambda op: cupar.binary_transform("i4", "i4", "i4", op, cc=CC),
    "merge_sort": lambda op: cupar.merge_sort("i4", None, "i4", None, op, cc=CC),
    "unique_by_key": lambda op: cupar.unique_by_key("i4", "i4", "i4", "i4", "i8", op, cc=CC),
    "reduce_by_key": lambda op: cupar.reduce_by_key("i4", "i4", "i4", "i4", "i8", op, cc=CC),
    "inclusive_scan_by_key": lambda op: cupar.inclusive_scan_by_key("i4", "i4", "i4", op, cc=CC),
    "run_length_encode": lambda op: cupar.run_length_encode("i4", "i4", "i4", "i8", op, cc=CC),
    "lower_bound": lambda op: cupar.lower_bound("i4", "i4", "i8", comp=op, cc=CC),
}
UNARY = {
    "unary_transform": lambda op: cupar.unary_transform("i4", "i4", op, cc=CC),
    "select": lambda op: cupar.select("i4", "i4", "i8", op, cc=CC),
    "three_way_partition": lambda op: cupar.three_way_partition(
        "i4", "i4", "i4", "i4", "i8", lambda a: a > 3, op, cc=CC
    ),
}
ITERATORS = {
    "TransformIterator": lambda op: cupar.reduce_into(
        cupar.TransformIterator("i4", op, "i4"), "i4", OpKind.PLUS, 0, cc=CC
    ),
    "TransformOutputIterator": lambda op: cupar.inclusive_scan(
        "i4", cupar.TransformOutputIterator("i4", op, "i4"), OpKind.PLUS, cc=CC
    ),
}


def operator_for(name, table):
    if name in FACTORIES:
        return lambda a, b: a + b + table[a]
    return lambda a: a + table[a]


@pytest.mark.parametrize("name", [*FACTORIES, *UNARY])
def test_every_factory_takes_them(name, nothing_is_compiled):
    first, second = DeviceArray("i4"), DeviceArray("i4", (3,), 1 << 30)
    make = {**FACTORIES, **UNARY}[name]
    for table in (first, second):
        algorithm = make(operator_for(name, table))
        assert handed_over(algorithm) == [state_of(table)]


@pytest.mark.parametrize("name", [*FACTORIES, *UNARY, *ITERATORS])
@pytest.mark.usefixtures("older_are_frozen")
def test_the_cache_keeps_no_array_alive(name, nothing_is_compiled):
    make = {**FACTORIES, **UNARY, **ITERATORS}[name]
    table = DeviceArray("i4")
    alive = weakref.ref(table)
    op = operator_for(name, table)
    algorithm = make(op)
    del table
    gc.collect()
    assert alive() is not None
    del op, algorithm
    gc.collect()
    assert alive() is None
    assert make(operator_for(name, DeviceArray("i4", (3,), 1 << 30))).build.origin == "memory"


@pytest.mark.usefixtures("older_are_frozen")
def test_the_cache_keeps_no_array_of_a_jitted_function_alive(nothing_is_compiled):
    from numba import cuda

    table = DeviceArray()
    alive = weakref.ref(table)
    algorithm = cupar.unary_transform("i4", "f4", cuda.jit(device=True)(lookup(table)), cc=CC)
    del table
    gc.collect()
    assert handed_over(algorithm)[0] == state_of(DeviceArray())
    del algorithm
    gc.collect()
    assert alive() is None


@pytest.mark.usefixtures("older_are_frozen")
def test_globals_are_not_kept_alive(nothing_is_compiled):
    op = defined("def op(a): return table[a]", table=DeviceArray())
    alive = weakref.ref(op.__globals__["table"])
    algorithm = cupar.unary_transform("i4", "f4", op, cc=CC)
    op.__globals__["table"] = DeviceArray()
    gc.collect()
    assert alive() is None
    assert handed_over(algorithm)[0] == state_of(DeviceArray())


@pytest.mark.slow
def test_another_process_compiles_nothing(empty_cache, monkeypatch):
    source = "def op(a): return table[a] * K"

    def build(address):
        table = DeviceArray("f4", (8,), address)
        op = defined(source, table=table, K=2.0)
        iterator = cupar.TransformIterator(DeviceArray("i4"), op)
        assert iterator.dtype == "f8"
        transform = cupar.unary_transform("i4", "f4", op, cc=CC)
        reduction = cupar.reduce_into(iterator, "f8", max, 0.0, cc=CC)
        return transform, reduction, iterator

    transform, reduction, _ = build(1 << 20)
    cupar.cache.clear(disk=False)
    walk._recent.clear()

    def fail(*arguments, **named):
        raise AssertionError("this compiles")

    for module, name in (
        (python_to_ltoir, "compile_operator"),
        (python_to_ltoir, "result_dtype"),
        (nvrtc, "compile_cpp"),
        (nvjitlink, "link"),
        (_build, "template"),
        (_build, "operators"),
        (_build, "link"),
    ):
        monkeypatch.setattr(module, name, fail)
    transform_again, reduction_again, iterator = build(1 << 30)
    assert (transform_again.build.origin, reduction_again.build.origin) == ("disk", "disk")
    assert (transform_again.build.key, reduction_again.build.key) == (
        transform.build.key,
        reduction.build.key,
    )
    state = state_of(DeviceArray("f4", (8,), 1 << 30))
    assert handed_over(transform_again)[0] == state
    assert iterator.pack("d_in", 0, False)[8:] == state
    with pytest.raises(AssertionError, match="this compiles"):
        cupar.unary_transform("i4", "f4", lookup(DeviceArray("f8")), cc=CC)


# --- In iterators ----------------------------------------------------------------------------------------


def test_the_state_of_an_iterator_is_that_of_its_parts():
    items, table = DeviceArray("i4", (100,), 1 << 20), DeviceArray("f4", (3, 5), 1 << 30)
    op = defined("def op(a): return table[a, 0]", table=table)
    iterator = cupar.TransformIterator(items, op, "f4")
    assert iterator.pack("d_in", 100, False) == state_of(items)[:8] + state_of(table)
    assert (iterator + 7).pack("d_in", 93, False) == struct.pack("<Q", (1 << 20) + 28) + state_of(table)
    op.__globals__["table"] = other = DeviceArray("f4", (2, 2), 1 << 31)
    assert iterator.pack("d_in", 100, False) == state_of(items)[:8] + state_of(other)
    assert iterator.node.size == len(iterator.pack("d_in", 1, False)) == 32
    op.__globals__["table"] = DeviceArray("f8", (2, 2))
    with pytest.raises(TypeError, match="captured array 'table'"):
        iterator.pack("d_in", 100, False)


def test_the_states_of_nested_iterators_are_in_order():
    items = DeviceArray("i4", (100,), 1 << 20)
    one, two = DeviceArray("i4", (3,), 1 << 30), DeviceArray("i4", (4,), 1 << 31)
    inner = cupar.TransformIterator(items, lookup(one), "i4")
    outer = cupar.TransformIterator(inner, lookup(two), "i4")
    assert outer.pack("x", 9, False) == state_of(items)[:8] + state_of(one) + state_of(two)
    both = cupar.ZipIterator(outer, inner)
    assert both.pack("x", 9, False) == outer.pack("x", 9, False) + inner.pack("x", 9, False)
    output = cupar.TransformOutputIterator(items, lookup(two), "i4")
    assert output.pack("x", 9, True) == state_of(items)[:8] + state_of(two)


@pytest.mark.slow
def test_iterators_over_other_arrays_share_a_build(empty_cache):
    def build(address):
        table = DeviceArray("f4", (8,), address)
        iterator = cupar.TransformIterator("i4", lookup(table), "f4")
        return cupar.reduce_into(iterator, "f4", OpKind.PLUS, 0.0, cc=CC)

    one, two = build(1 << 20), build(1 << 30)
    assert (one.build.origin, two.build.origin) == ("built", "memory")


# --- RawOps ----------------------------------------------------------------------------------------------

TABLE = """
struct State { const float* table; long long offset; };
extern "C" __device__ void look_up(void* state, void* a, void* result) {
  auto s = static_cast<const State*>(state);
  *static_cast<float*>(result) = s->table[*static_cast<int*>(a) + s->offset];
}
"""


def raw(state=bytes(16), alignment=8, code=b"code"):
    return RawOp("look_up", code, state=state, state_alignment=alignment)


def test_what_a_raw_state_holds_is_no_part_of_a_build(specified):
    one, two = (specified(cupar.unary_transform, "i4", "f4", raw(bytes([i] * 16))) for i in range(2))
    assert key(one) == key(two)
    assert one == two
    assert [spec.operators[0][1].state() for spec in (one, two)] == [bytes(16), bytes([1] * 16)]


@pytest.mark.parametrize(
    "other", [raw(bytes(24)), raw(bytes(16), 16), raw(b"", 8), raw(bytes(16), code=b"x")]
)
def test_the_layout_of_a_raw_state_is_part_of_a_build(other, specified):
    one, two = (specified(cupar.unary_transform, "i4", "f4", op) for op in (raw(), other))
    assert key(one) != key(two)
    assert (_key.template_parts(one) != _key.template_parts(two)) == (other.ltoir == b"code")


@pytest.mark.usefixtures("optimised")
def test_raw_states_build(empty_cache, tmp_path):
    code = nvrtc.compile_cpp(TABLE, CC)
    states = struct.pack("<Qq", 1 << 20, 3), struct.pack("<Qq", 1 << 30, -1)
    one, two = (cupar.unary_transform("i4", "f4", raw(state, code=code), cc=CC) for state in states)
    assert (one.build.origin, two.build.origin) == ("built", "memory")
    assert [handed_over(one)[0], handed_over(two)[0]] == [*states]
    found = instructions(one, tmp_path)
    assert len(found) > 100, "the disassembly was not understood"
    assert not {name.split(".")[0] for name in found} & {"CALL", "LDL", "STL"}


def test_raw_states_in_iterators():
    items = DeviceArray("i4", (100,), 1 << 20)
    for state, packed in ((bytes(range(16)), bytes(range(16))), (b"12345", b"12345\0\0\0")):
        iterator = cupar.TransformIterator(items, raw(state), "f4")
        assert iterator.pack("d_in", 1, False) == state_of(items)[:8] + packed
        assert iterator.node.size == 8 + len(packed)


@pytest.mark.parametrize("alignment", [0, 3, -8, 24, "8", None, 8.0])
def test_wrong_alignments(alignment):
    with pytest.raises(ValueError, match=r"^state_alignment: expected a power of two, got "):
        RawOp("op", b"code", state=bytes(8), state_alignment=alignment)


@pytest.mark.parametrize("state", ["12345678", None, 8, bytearray(8), [1, 2]])
def test_wrong_states(state):
    with pytest.raises(TypeError, match="^state: expected bytes, got "):
        RawOp("op", b"code", state=state)


def test_raw_states_are_part_of_what_is_equal():
    assert raw() == raw()
    assert raw() != raw(bytes(15) + b"1")
    assert raw().fingerprint == raw(bytes(24)).fingerprint
