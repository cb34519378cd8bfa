"""The algorithms that throughput.py measures: how each library is asked for them, on what, and what is right.

Run as a script, it asks cupar for those that are named, or for all, so that they can be built ahead:
``cupar build benchmarks/_algorithms.py --cc 90 -- reduce_into float32 select float32``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this checkout's cupar

import cupar

BINS = 256
TOP = 2**16  # the upper level of histograms of samples of several bytes
HAYSTACK = 2**20  # items of the smaller array that is searched
MOST = 2**28  # items of any array

Dtype = np.dtype[Any]

# --- Operators -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    """An operator, as cupar takes it and as cuda.compute does.

    Attributes
    ----------
    cupar : OpKind or callable
    name : str
        Of an OpKind, or of the C++ function.
    parameters : str
        Those of the C++ function, of one letter each; empty for an OpKind.
    expression : str
        C++ of the parameters, which are values of type ``T``.
    result : str
        The C++ type of the result.
    """

    cupar: Any
    name: str
    parameters: str = ""
    expression: str = ""
    result: str = "T"

    def cpp(self, dtype: Dtype) -> str:
        """Return the C++ function under CCCL's calling convention."""
        pointers = ", ".join(f"void* pointer_{letter}" for letter in self.parameters)
        values = " ".join(f"const T {x} = *static_cast<const T*>(pointer_{x});" for x in self.parameters)
        return f"""{CPP_TYPES[dtype.name]}
extern "C" __device__ void bench_{self.name}({pointers}, void* result) {{
  {values}
  *static_cast<{self.result}*>(result) = {self.expression};
}}
"""


_COMPLEX = """struct T { real x, y; };
__device__ T operator+(T a, T b) { return {a.x + b.x, a.y + b.y}; }
__device__ T operator*(T a, T b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }"""
CPP_TYPES = {
    "float16": "#include <cuda_fp16.h>\nusing T = __half;",
    "float32": "using T = float;",
    "float64": "using T = double;",
    "int8": "using T = signed char;",
    "int16": "using T = short;",
    "int32": "using T = int;",
    "int64": "using T = long long;",
    "complex64": f"using real = float;\n{_COMPLEX}",
    "complex128": f"using real = double;\n{_COMPLEX}",
}


def _kind(name: str) -> Op:
    return Op(cupar.OpKind[name], name)


PLUS, LESS, EQUAL = _kind("PLUS"), _kind("LESS"), _kind("EQUAL_TO")
# CCCL's kinds do not apply to complex numbers in cuda.compute, which takes them for structs.
COMPLEX_PLUS = Op(cupar.OpKind.PLUS, "plus", "ab", "a + b")
# A sum that nobody takes for CCCL's own plus.
SUM = Op(lambda a, b: a + b if a > b else b + a, "sum", "ab", "a > b ? a + b : b + a")
SQUARE = Op(lambda a: a * a, "square", "a", "a * a")
POSITIVE = Op(lambda a: a > 0, "positive", "a", "a > T(0)", "bool")
# A third of floats between -1 and 1, but for what a float cannot hold.
LOW = Op(lambda a: a < -0.34375, "low", "a", "a < T(-0.34375)", "bool")
HIGH = Op(lambda a: a > 0.34375, "high", "a", "a > T(0.34375)", "bool")
LOW_INTEGER = Op(lambda a: a < -715827883, "low", "a", "a < -715827883", "bool")
HIGH_INTEGER = Op(lambda a: a > 715827882, "high", "a", "a > 715827882", "bool")

# --- Data ------------------------------------------------------------------------------------------------

_MIX = """
unsigned long long z = (seed + i + 1) * 0x9E3779B97F4A7C15ull;
z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
y = z ^ (z >> 31);
"""


@dataclass(frozen=True)
class Given:
    """What an algorithm works on at one size.

    Attributes
    ----------
    inputs : mapping of str to device array
        By cupar's names.
    expected : mapping of str to device array
        What the outputs must begin with, by cupar's names.
    counts : mapping of str to int
        What a call takes beside arrays.
    """

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]
    counts: Mapping[str, int]

    @property
    def nbytes(self) -> int:
        """How many bytes must at least be read and written."""
        return sum(array.nbytes for array in (*self.inputs.values(), *self.expected.values()))


class Data:
    """Makes arrays, the same in every run: the bits of an item are those of its index, mixed.

    Notes
    -----
    The generator is SplitMix64: G. L. Steele, D. Lea and C. H. Flood, "Fast Splittable Pseudorandom Number
    Generators", OOPSLA 2014.
    """

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self._mix = cupy.ElementwiseKernel("uint64 seed", "uint64 y", _MIX, "bench_mix")

    def bits(self, n: int, seed: int = 0) -> Any:
        """Return random uint64."""
        found = self.cupy.empty(n, np.uint64)
        self._mix(np.uint64(seed << 40), found)
        return found

    def keys(self, n: int, dtype: Dtype, seed: int = 0) -> Any:
        """Return integers of all values, or floats from -1 on and below 1."""
        bits = self.bits(n, seed)
        if dtype.kind in "iu":
            return (bits >> np.uint64(64 - 8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
        digits = np.finfo(dtype).nmant + 1
        steps = (bits >> np.uint64(64 - digits)).astype(dtype)
        return steps * dtype.type(2.0 ** (1 - digits)) - dtype.type(1)

    def walk(self, n: int, dtype: Dtype, seed: int = 0) -> tuple[Any, Any]:
        """Return addends, and their prefix sums.

        The sum of any items that are next to each other is between -127 and 127, so that int8 holds it, and
        of float16 between -7 and 7: CUB adds up each second of a thread's halves, and that must not round
        either.
        """
        if dtype.kind == "c":
            parts = [self.walk(n, np.dtype(f"f{dtype.itemsize // 2}"), seed + k) for k in range(2)]
            return tuple(real + dtype.type(1j) * imaginary for real, imaginary in zip(*parts, strict=True))
        most = 7 if dtype == np.float16 else 127
        sums = ((self.bits(n, seed) & np.uint64(most)).astype(np.int8) - np.int8(most // 2 + 1)).astype(dtype)
        addends = sums.copy()
        addends[1:] -= sums[:-1]
        return addends, sums

    def count(self, dtype: type, *numbers: int) -> Any:
        """Return numbers in device memory."""
        return self.cupy.array(numbers, dtype)


def _items(n: int) -> dict[str, int]:
    return {"num_items": n}


def _reduced(data: Data, dtype: Dtype, n: int) -> Given:
    addends, sums = data.walk(n, dtype)
    return Given({"d_in": addends}, {"d_out": sums[-1:]}, _items(n))


def _scanned(data: Data, dtype: Dtype, n: int) -> Given:
    addends, sums = data.walk(n, dtype)
    return Given({"d_in": addends}, {"d_out": sums}, _items(n))


def _scanned_exclusively(data: Data, dtype: Dtype, n: int) -> Given:
    addends, sums = data.walk(n, dtype)
    before = data.cupy.zeros_like(sums)
    before[1:] = sums[:-1]
    return Given({"d_in": addends}, {"d_out": before}, _items(n))


def _squared(data: Data, dtype: Dtype, n: int) -> Given:
    addends, _ = data.walk(n, dtype)
    return Given({"d_in": addends}, {"d_out": addends * addends}, _items(n))


def _added(data: Data, dtype: Dtype, n: int) -> Given:
    first, second = data.walk(n, dtype)
    return Given({"d_in1": first, "d_in2": second}, {"d_out": first + second}, _items(n))


def _selected(data: Data, dtype: Dtype, n: int) -> Given:
    keys = data.keys(n, dtype)
    chosen = keys[keys > 0]
    count = data.count(np.int64, chosen.size)
    return Given({"d_in": keys}, {"d_out": chosen, "d_num_selected_out": count}, _items(n))


def _partitioned(data: Data, dtype: Dtype, n: int) -> Given:
    keys = data.keys(n, dtype)
    bounds = (-0.34375, 0.34375) if dtype.kind == "f" else (-715827883, 715827882)
    low, high = keys < dtype.type(bounds[0]), keys > dtype.type(bounds[1])
    first, second, rest = keys[low], keys[high], keys[~(low | high)]
    expected = {
        "d_first_part_out": first,
        "d_second_part_out": second,
        "d_unselected_out": rest,
        "d_num_selected_out": data.count(np.int64, first.size, second.size),
    }
    return Given({"d_in": keys}, expected, _items(n))


def _runs(data: Data, dtype: Dtype, n: int) -> Given:
    number = data.cupy.arange(n, dtype=np.int64)
    # Two runs beside each other differ, of floats too: these hold numbers below 2^24.
    keys = ((number >> 2) * 0x9E3779B1 & 0xFFFFFF).astype(dtype)
    items = number.astype(dtype)
    expected = {
        "d_out_keys": keys[::4].copy(),
        "d_out_items": items[::4].copy(),
        "d_out_num_selected": data.count(np.int64, -(-n // 4)),
    }
    return Given({"d_in_keys": keys, "d_in_items": items}, expected, _items(n))


def _counted(samples: Any, bins: Any, data: Data, n: int) -> Given:
    """Count bytes `bins`, the bins of the samples, in the plainest way."""
    counts = data.cupy.stack([(bins == np.uint8(bin)).sum(dtype=np.int32) for bin in range(BINS)])
    return Given({"d_samples": samples}, {"d_histogram": counts}, {"num_samples": n})


def _histogram(data: Data, dtype: Dtype, n: int) -> Given:
    low = data.bits(n) & np.uint64(TOP - 1)
    return _counted(low.astype(dtype), (low >> np.uint64(8)).astype(np.uint8), data, n)


def _histogram_of_bytes(data: Data, dtype: Dtype, n: int) -> Given:
    samples = data.bits(-(-n // 8)).view(np.uint8)[:n]
    return _counted(samples, samples, data, n)


def _skewed(data: Data, dtype: Dtype, n: int) -> Given:
    # A bit stays set if two others are: 45 % of the samples are 0, and 32 % have one bit.
    bits = data.bits(-(-n // 8))
    bits &= (bits >> np.uint64(3)) & (bits << np.uint64(1))
    samples = bits.view(np.uint8)[:n]
    return _counted(samples, samples, data, n)


def _searched(data: Data, dtype: Dtype, n: int, *, items: int | None = None, ordered: bool = False) -> Given:
    items = n if items is None else items
    haystack, values = data.keys(items, dtype), data.keys(n, dtype, seed=1)
    haystack.sort()
    if ordered:
        values.sort()
    found = data.cupy.searchsorted(haystack, values).astype(np.uint64)
    counts = {"num_items": items, "num_values": n}
    return Given({"d_data": haystack, "d_values": values}, {"d_out": found}, counts)


def _ordered(data: Data, dtype: Dtype, n: int) -> Given:
    keys = data.keys(n, dtype)
    return Given({"d_in_keys": keys}, {"d_out_keys": data.cupy.sort(keys)}, _items(n))


def _ordered_pairs(name: str, data: Data, dtype: Dtype, n: int) -> Given:
    keys, items = data.keys(n, dtype), data.cupy.arange(n, dtype=dtype)
    order = data.cupy.argsort(keys)  # which is stable
    expected = {"d_out_keys": keys[order], f"d_out_{name}": items[order]}
    return Given({"d_in_keys": keys, f"d_in_{name}": items}, expected, _items(n))


# --- Rows ------------------------------------------------------------------------------------------------

# Takes CuPy or PyTorch, and the arrays by cupar's names; returns what must be as expected, in that order.
Called = Callable[[Any, SimpleNamespace], Any]


class T:
    """Stands for the dtype of a row."""


@dataclass(frozen=True)
class Row:
    """An algorithm in one way, for several dtypes.

    Attributes
    ----------
    algorithm : str
        cupar's factory.
    dtypes : tuple of str
    inputs, outputs : mapping of str to dtype, T or None
        Its arrays by cupar's names.
    data : callable
        Makes what it works on.
    operators : callable
        Takes the dtype; returns the operators by cupar's names.
    others : callable
        Takes the dtype; returns what factories and calls both take beside.
    options : mapping of str to Any
        What the factories alone take.
    only_cupar : mapping of str to Any
        What cupar's factory alone takes.
    cupy, torch : callable, optional
        How these do it.
    waits : tuple of str
        Who of them waits for the GPU within the call.
    """

    algorithm: str
    dtypes: tuple[str, ...]
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    data: Callable[[Data, Dtype, int], Given]
    operators: Callable[[Dtype], Mapping[str, Op]] = lambda dtype: {}
    others: Callable[[Dtype], Mapping[str, Any]] = lambda dtype: {}
    options: Mapping[str, Any] = field(default_factory=dict)
    only_cupar: Mapping[str, Any] = field(default_factory=dict)
    cupy: Called | None = None
    torch: Called | None = None
    waits: tuple[str, ...] = ()

    def types(self, dtype: Dtype, outputs_only: bool = False) -> dict[str, Dtype | None]:
        """Return the dtype of each array, None for one that is left out."""
        named = self.outputs if outputs_only else {**self.inputs, **self.outputs}
        return {
            name: dtype if given is T else None if given is None else np.dtype(given)
            for name, given in named.items()
        }


def _plus(dtype: Dtype) -> dict[str, Op]:
    return {"op": COMPLEX_PLUS if dtype.kind == "c" else PLUS}


def _zero(dtype: Dtype) -> dict[str, Any]:
    return {"h_init": np.zeros(1, dtype)}


def _levels(dtype: Dtype) -> dict[str, Any]:
    kind = np.dtype(np.int32) if dtype.itemsize == 1 else dtype
    upper = BINS if dtype.itemsize == 1 else TOP
    return {
        "h_num_output_levels": np.array([BINS + 1], np.int32),
        "h_lower_level": np.array([0], kind),
        "h_upper_level": np.array([upper], kind),
    }


def _thirds(dtype: Dtype) -> dict[str, Op]:
    low, high = (LOW, HIGH) if dtype.kind == "f" else (LOW_INTEGER, HIGH_INTEGER)
    return {"select_first_part_op": low, "select_second_part_op": high}


ALL = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "complex64", "complex128")
FOUR = ("float32", "float64", "int32", "int64")
SIX = ("float32", "float64", "float16", "int8", "int32", "complex64")
ONE = ("float32",)

_SEARCH: dict[str, Any] = {
    "algorithm": "lower_bound",
    "inputs": {"d_data": T, "d_values": T},
    "outputs": {"d_out": np.uint64},  # cuda.compute takes no other
    "operators": lambda dtype: {"comp": LESS},
    "cupy": lambda cupy, a: cupy.searchsorted(a.d_data, a.d_values),
    "torch": lambda torch, a: torch.searchsorted(a.d_data, a.d_values, out=a.d_out),
}
_MERGE_SORT: dict[str, Any] = {"algorithm": "merge_sort", "operators": lambda dtype: {"op": LESS}}
_RADIX_SORT: dict[str, Any] = {
    "algorithm": "radix_sort",
    "options": {"order": cupar.SortOrder.ASCENDING},
}
# PyTorch sorts indices along with the keys, which nobody else does.
_SORTED: dict[str, Any] = {
    "data": _ordered,
    "cupy": lambda cupy, a: cupy.sort(a.d_in_keys),
    "torch": lambda torch, a: torch.sort(a.d_in_keys)[0],
}


def _pairs(name: str) -> dict[str, Any]:
    def by_cupy(cupy: Any, a: SimpleNamespace) -> Any:
        order = cupy.argsort(a.d_in_keys)
        return a.d_in_keys[order], getattr(a, f"d_in_{name}")[order]

    def by_torch(torch: Any, a: SimpleNamespace) -> Any:
        keys, order = torch.sort(a.d_in_keys, stable=True)
        return keys, getattr(a, f"d_in_{name}")[order]

    return {
        "inputs": {"d_in_keys": T, f"d_in_{name}": T},
        "outputs": {"d_out_keys": T, f"d_out_{name}": T},
        "data": partial(_ordered_pairs, name),
        "cupy": by_cupy,
        "torch": by_torch,
    }


def _alone(name: str) -> dict[str, Any]:
    return {
        **_SORTED,
        "inputs": {"d_in_keys": T, f"d_in_{name}": None},
        "outputs": {"d_out_keys": T, f"d_out_{name}": None},
    }


_REDUCE: dict[str, Any] = {
    "algorithm": "reduce_into",
    "inputs": {"d_in": T},
    "outputs": {"d_out": T},
    "data": _reduced,
    "others": _zero,
}
_SCAN: dict[str, Any] = {"inputs": {"d_in": T}, "outputs": {"d_out": T}}
_HISTOGRAM: dict[str, Any] = {
    "algorithm": "histogram_even",
    "inputs": {"d_samples": T},
    "outputs": {"d_histogram": np.int32},
    "others": _levels,
}
_BYTES: dict[str, Any] = {
    "dtypes": ("uint8",),
    "cupy": lambda cupy, a: cupy.bincount(a.d_samples, minlength=BINS),
    "torch": lambda torch, a: torch.bincount(a.d_samples, minlength=BINS),
    "waits": ("cupy", "torch"),
}


def _first_of_runs(torch: Any, a: SimpleNamespace) -> Any:
    return torch.unique_consecutive(a.d_in_keys)  # it takes no items


ROWS: dict[str, Row] = {
    "reduce_into": Row(
        **_REDUCE,
        dtypes=ALL,
        operators=_plus,
        cupy=lambda cupy, a: cupy.sum(a.d_in, dtype=a.d_in.dtype, out=a.d_out.reshape(())),
        torch=lambda torch, a: torch.sum(a.d_in, 0, dtype=a.d_in.dtype, out=a.d_out.reshape(())),
    ),
    "reduce_into_lambda": Row(**_REDUCE, dtypes=("float32", "int32"), operators=lambda dtype: {"op": SUM}),
    "inclusive_scan": Row(
        "inclusive_scan",
        **_SCAN,
        dtypes=ALL,
        data=_scanned,
        operators=_plus,
        others=lambda dtype: {"h_init": None},
        cupy=lambda cupy, a: cupy.cumsum(a.d_in, dtype=a.d_in.dtype, out=a.d_out),
        torch=lambda torch, a: torch.cumsum(a.d_in, 0, dtype=a.d_in.dtype, out=a.d_out),
    ),
    "inclusive_scan_lambda": Row(
        "inclusive_scan",
        **_SCAN,
        dtypes=FOUR,
        data=_scanned,
        operators=lambda dtype: {"op": SUM},
        others=lambda dtype: {"h_init": None},
    ),
    "exclusive_scan": Row(
        "exclusive_scan", **_SCAN, dtypes=FOUR, data=_scanned_exclusively, operators=_plus, others=_zero
    ),
    "exclusive_scan_lambda": Row(
        "exclusive_scan",
        **_SCAN,
        dtypes=ONE,
        data=_scanned_exclusively,
        operators=lambda dtype: {"op": SUM},
        others=_zero,
    ),
    "unary_transform": Row(
        "unary_transform",
        SIX,
        {"d_in": T},
        {"d_out": T},
        _squared,
        lambda dtype: {"op": SQUARE},
        cupy=lambda cupy, a: cupy.square(a.d_in, out=a.d_out),
        torch=lambda torch, a: torch.square(a.d_in, out=a.d_out),
    ),
    "binary_transform": Row(
        "binary_transform",
        SIX,
        {"d_in1": T, "d_in2": T},
        {"d_out": T},
        _added,
        _plus,
        cupy=lambda cupy, a: cupy.add(a.d_in1, a.d_in2, out=a.d_out),
        torch=lambda torch, a: torch.add(a.d_in1, a.d_in2, out=a.d_out),
    ),
    "select": Row(
        "select",
        ("float32", "int8", "int32", "int64"),
        {"d_in": T},
        {"d_out": T, "d_num_selected_out": np.int64},
        _selected,
        lambda dtype: {"cond": POSITIVE},
        cupy=lambda cupy, a: a.d_in[a.d_in > 0],
        torch=lambda torch, a: torch.masked_select(a.d_in, a.d_in > 0),
        waits=("cupy", "torch"),
    ),
    "three_way_partition": Row(
        "three_way_partition",
        ("float32", "int32", "float64"),
        {"d_in": T},
        {
            **dict.fromkeys(("d_first_part_out", "d_second_part_out", "d_unselected_out"), T),
            "d_num_selected_out": np.int64,
        },
        _partitioned,
        _thirds,
    ),
    "unique_by_key": Row(
        "unique_by_key",
        ("int32", "float32", "int64"),
        {"d_in_keys": T, "d_in_items": T},
        {"d_out_keys": T, "d_out_items": T, "d_out_num_selected": np.int64},
        _runs,
        lambda dtype: {"op": EQUAL},
        torch=_first_of_runs,
        waits=("torch",),
    ),
    "histogram_even": Row(
        **_HISTOGRAM,
        dtypes=("int32", "float32"),
        data=_histogram,
        cupy=lambda cupy, a: cupy.histogram(a.d_samples, BINS, (0, TOP))[0],
        torch=lambda torch, a: torch.histc(a.d_samples, BINS, 0, TOP),
        waits=("cupy",),
    ),
    "histogram_even_uniform": Row(**_HISTOGRAM, **_BYTES, data=_histogram_of_bytes),
    "histogram_even_skewed": Row(**_HISTOGRAM, **_BYTES, data=_skewed),
    "lower_bound_sorted": Row(
        **_SEARCH,
        dtypes=("float32", "int64"),
        data=partial(_searched, ordered=True),
        only_cupar={"values_sorted": True},
    ),
    "lower_bound_small": Row(**_SEARCH, dtypes=ONE, data=partial(_searched, items=HAYSTACK)),
    "lower_bound": Row(**_SEARCH, dtypes=ONE, data=_searched),
    "merge_sort": Row(**_MERGE_SORT, **_alone("items"), dtypes=("float32", "int32", "int64")),
    "merge_sort_items": Row(**_MERGE_SORT, **_pairs("items"), dtypes=("int32",)),
    "radix_sort": Row(**_RADIX_SORT, **_alone("values"), dtypes=("int32", "float32", "int64", "int16")),
    "radix_sort_values": Row(**_RADIX_SORT, **_pairs("values"), dtypes=("int32", "int64")),
}


def is_wanted(name: str, only: Sequence[str] | None) -> bool:
    """Tell whether a row is asked for, by its name or by that of the one that it is a variant of."""
    return only is None or any(name == wanted or name.startswith(f"{wanted}_") for wanted in only)


def wanted(only: Sequence[str] | None, dtypes: Sequence[str] | None) -> list[tuple[str, str]]:
    """Return the names and dtypes of the rows that are asked for."""
    return [
        (name, dtype)
        for name, row in ROWS.items()
        for dtype in row.dtypes
        if is_wanted(name, only) and (dtypes is None or dtype in dtypes)
    ]


# --- Those who build -------------------------------------------------------------------------------------


def of_cupar(name: str, dtype: str, cc: int | None = None) -> Any:
    """Ask cupar for an algorithm; without `cc` as it is built ahead."""
    row, kind = ROWS[name], np.dtype(dtype)
    operators = {parameter: op.cupar for parameter, op in row.operators(kind).items()}
    given = {**row.types(kind), **operators, **row.others(kind), **row.options, **row.only_cupar}
    if row.algorithm == "histogram_even":
        given["num_samples"] = MOST
    return getattr(cupar, row.algorithm)(**given, **({} if cc is None else {"cc": cc}))


# By cupar's name, where cuda.compute has another.
_COMPUTE_NAMES = {
    "exclusive_scan": {"h_init": "init_value"},
    "inclusive_scan": {"h_init": "init_value"},
    "merge_sort": {"d_in_items": "d_in_values", "d_out_items": "d_out_values"},
}


def named_by_compute(row: Row, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by the names that cuda.compute has for them."""
    names = _COMPUTE_NAMES.get(row.algorithm, {})
    return {names.get(name, name): value for name, value in given.items()}


class Stand:
    """Stands for a device array: to build, its dtype alone matters, and that it is there."""

    def __init__(self, dtype: Dtype) -> None:
        self.dtype, self.shape, self.size, self.nbytes = dtype, (1,), 1, dtype.itemsize
        self.__cuda_array_interface__ = {
            "shape": (1,),
            "typestr": dtype.str,
            "strides": None,
            "data": (256, False),
            "version": 3,
        }


def of_compute(name: str, dtype: str, cc: int) -> Any:
    """Build an algorithm with cuda.compute."""
    import cuda.compute
    from cuda.compute.op import RawOp

    from cupar._compile import nvrtc

    row, kind = ROWS[name], np.dtype(dtype)
    arrays = {each: found and Stand(found) for each, found in row.types(kind).items()}
    operators: dict[str, Any] = {}
    for parameter, op in row.operators(kind).items():
        if op.parameters:
            operators[parameter] = RawOp(name=f"bench_{op.name}", ltoir=nvrtc.compile_cpp(op.cpp(kind), cc))
        else:
            operators[parameter] = cuda.compute.OpKind[op.name]
    options = {each: cuda.compute.SortOrder[value.name] for each, value in row.options.items()}
    if row.algorithm == "histogram_even":
        options["num_samples"] = MOST
    make = getattr(cuda.compute, f"make_{row.algorithm}")
    given = named_by_compute(row, {**arrays, **row.others(kind)})
    return make(**given, **operators, **options, compute_capability=cc)


def _asked(name: str, dtype: str) -> None:
    try:
        of_cupar(name, dtype)
    except (TypeError, ValueError) as error:  # so that the others are built
        print(f"{name} {dtype}: {type(error).__name__}: {error}", file=sys.stderr)


def main() -> None:
    """Ask cupar for pairs of name and dtype, or for all; say which it refuses."""
    words = sys.argv[1:]
    for name, dtype in zip(words[::2], words[1::2], strict=True) if words else wanted(None, None):
        _asked(name, dtype)


if __name__ == "__main__":
    main()
