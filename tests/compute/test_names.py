"""Names and parameters are those of the `cuda.compute` that is installed, which is read and not imported."""

import ast
import importlib
import inspect
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from cupar import compute
from cupar.compute import _algorithms, _table

ROOT = Path(metadata.distribution("cuda-cccl").locate_file("cuda/compute"))
if not (ROOT / "__init__.py").exists():
    pytest.skip("cuda.compute is not installed", allow_module_level=True)

POSITIONAL, NAMED, REST, NAMED_REST = (
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


def trees(folder=""):
    return [ast.parse(path.read_text()) for path in sorted((ROOT / folder).rglob("*.py"))]


def public(file):
    """Return the longest `__all__` of a file: the other is that of a machine without a driver."""
    found = [
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    return max(found, key=len)


def theirs(function):
    """Return the parameters of a function's source: name, kind, default as text."""
    args = function.args
    assert not args.posonlyargs
    without = [None] * (len(args.args) - len(args.defaults))
    found = [
        (each.arg, POSITIONAL, default)
        for each, default in zip(args.args, without + args.defaults, strict=True)
    ]
    found += [("", REST, None)] if args.vararg else []
    found += [
        (each.arg, NAMED, default) for each, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    found += [("", NAMED_REST, None)] if args.kwarg else []
    return {
        (name, kind, default and ast.unparse(default))
        for name, kind, default in found
        if name != "self" and not name.startswith("_")
    }


def ours(function):
    return {
        (
            "" if each.kind in (REST, NAMED_REST) else each.name,
            each.kind,
            None if each.default is each.empty else repr(each.default),
        )
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    }


FUNCTIONS = {
    node.name: node
    for tree in [*trees("algorithms"), *trees("_serialization"), *trees("iterators")]
    for node in tree.body
    if isinstance(node, ast.FunctionDef)
}
CLASSES = {
    node.name: {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    for tree in trees()
    for node in tree.body
    if isinstance(node, ast.ClassDef)
}


def test_public_names():
    assert set(compute.__all__) == set(public("__init__.py"))
    for name in compute.__all__:
        assert getattr(compute, name) is not None
        assert name in dir(compute)
    with pytest.raises(AttributeError, match="no attribute 'reduce_onto'"):
        compute.reduce_onto


@pytest.mark.parametrize("name", ["algorithms", "determinism", "iterators", "op", "types", "typing"])
def test_names_of_submodules(name):
    file = f"{name}.py" if (ROOT / f"{name}.py").exists() else f"{name}/__init__.py"
    module = getattr(compute, name)
    assert module is importlib.import_module(f"cupar.compute.{name}")
    missing = [each for each in public(file) if not hasattr(module, each)]
    assert missing == []
    for each in set(public(file)) & set(compute.__all__):
        assert getattr(module, each) is getattr(compute, each)
    if name == "algorithms":
        with pytest.raises(AttributeError, match="no attribute 'reduce_onto'"):
            module.reduce_onto


@pytest.mark.parametrize("name", sorted(set(compute.algorithms.__all__) & set(FUNCTIONS)))
def test_functions_take_the_same(name):
    assert ours(getattr(compute, name)) == theirs(FUNCTIONS[name])


def test_all_functions_are_compared():
    assert set(compute.algorithms.__all__) - set(FUNCTIONS) == {"DoubleBuffer", "SortOrder"}


# Of cuda.compute's classes, by the algorithm whose objects they are.
OBJECTS = {
    "reduce_into": "_Reduce",
    "segmented_reduce": "_SegmentedReduce",
    "exclusive_scan": "_Scan",
    "inclusive_scan": "_Scan",
    "unary_transform": "_UnaryTransform",
    "binary_transform": "_BinaryTransform",
    "select": "_Select",
    "three_way_partition": "_ThreeWayPartition",
    "unique_by_key": "_UniqueByKey",
    "merge_sort": "_MergeSort",
    "radix_sort": "_RadixSort",
    "segmented_sort": "_SegmentedSort",
    "histogram_even": "_Histogram",
    "lower_bound": "_BinarySearch",
    "upper_bound": "_BinarySearch",
}


@pytest.mark.parametrize("name", _table.TABLE)
def test_objects_take_the_same(name):
    assert ours(_algorithms.class_of(name).__call__) == theirs(CLASSES[OBJECTS[name]]["__call__"])


@pytest.mark.parametrize("name", [*compute.iterators.__all__, "DoubleBuffer", "ProxyArray", "ProxyValue"])
def test_classes_take_the_same(name):
    if name == "IteratorBase":
        with pytest.raises(TypeError, match="of one's own are not supported"):
            compute.iterators.IteratorBase(b"", 1, None)
        return
    assert ours(getattr(compute, name).__init__) == theirs(CLASSES[name]["__init__"])


def test_structs_take_the_same():
    (function,) = [
        node
        for node in ast.parse((ROOT / "struct.py").read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == "gpu_struct"
    ]
    assert ours(compute.gpu_struct) == theirs(function)


def test_raw_operators_take_all_by_name():
    wanted = {name for name, *_ in theirs(CLASSES["RawOp"]["__init__"])}
    assert wanted == {name for name, *_ in ours(compute.op.RawOp)}


def test_enums_have_the_same_members():
    kinds = {
        node.name: {ast.unparse(each.targets[0]) for each in node.body if isinstance(each, ast.Assign)}
        for node in ast.parse((ROOT / "_bindings.pyi").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in ("OpKind", "SortOrder", "Determinism")
    }
    for name, members in kinds.items():
        # Two kinds say how a function is called, and are no operators.
        assert set(getattr(compute, name).__members__) == members - {"STATELESS", "STATEFUL"}


def test_types():
    types = compute.types
    assert types.from_numpy_dtype(np.int32) == types.int32 == types.from_numpy_dtype("i4")
    assert (types.float64.size, types.float64.alignment, types.boolean.dtype) == (8, 8, np.dtype(bool))
    pair = types.struct({"a": types.int8, "b": types.int64}, "Pair")
    assert (pair.size, pair.alignment, pair.dtype.names, pair.name) == (16, 8, ("a", "b"), "Pair")
    assert pair == types.from_numpy_dtype(pair.dtype) and hash(pair) == hash(
        types.from_numpy_dtype(pair.dtype)
    )
    assert pair != types.struct({"a": types.int8, "b": types.uint64})
    assert types.pointer(types.int8) == types.int8.pointer() != types.pointer(types.int16)
    assert types.to_ctypes_type(types.int16).__name__ == "c_short"
    if types.bfloat16.dtype is None:
        with pytest.raises(TypeError, match="ml_dtypes"):
            types.struct({"a": types.bfloat16})
