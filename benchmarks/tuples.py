"""GPU time of scans and reductions of tuples of arrays: cupar, Triton, PyTorch, and a copy of the same bytes.

    python benchmarks/tuples.py [--exponent 26] [--only recurrence,backward,argmax,…]
                                [--repeats 9] [--seconds 90] [--jobs N] [--json FILE]

It needs a GPU and CuPy; without Triton or PyTorch, their columns are empty. All items are float32 but where
others are named, and the operators of pairs and recurrences are functions in Python.

* recurrence and rows are h[t] = a[t] h[t-1] + b[t]: a scan of `ZipIterator(a, b)` into a
  `TransformOutputIterator`, of one row of 2^24 and 2^26, and of rows of 4,096 and 2^18. Triton's is a program
  for each row, with `tl.associative_scan`, in the best of three sizes of blocks;
* backward and backward-rows are their gradients with respect to a and b, which one scan reads a, h and the
  gradient with respect to h for;
* pairs are scans of structs of 8 and 16 bytes, by an operator of the same kind; sums are scans of single
  arrays by plus, whose peer is `torch.cumsum`;
* argmax is a reduction of `ZipIterator(x, CountingIterator)`, of all and of rows; minmax one of pairs of an
  item and itself; dot is a sum of products of `ZipIterator(x, y)`. PyTorch's are `torch.argmax`,
  `torch.aminmax` and `torch.dot`.

All take turns, as _turns.py says; tables give medians. What cupar writes is compared with what CuPy and
PyTorch find before it is timed; recurrences with a loop over the first 2,000 items of 64 rows, and
beyond them each item with the one before it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import _common
import _turns as turns
import numpy as np
from _turns import Gpu, Launch, Table
from throughput import attempted, optional

sys.path.insert(0, str(_common.ROOT))

WHATS = (
    *("recurrence", "rows", "backward", "backward-rows", "pairs", "sums"),
    *("argmax", "argmax-rows", "minmax", "dot"),
)
F4 = np.dtype("f4")
INDEXED = np.dtype([("field_0", "f4"), ("field_1", "i8")], align=True)
PAIRS = {8: "f4", 16: "f8"}

TRITON = """
import triton
import triton.language as tl


@triton.jit
def combine(a, b, c, d):
    return a * c, c * b + d


@triton.jit
def rows(a, b, h, length, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * length
    carry = tl.zeros([1], tl.float32)
    for first in range(0, length, BLOCK):
        i = first + tl.arange(0, BLOCK)
        x = tl.load(a + start + i, mask=i < length, other=1.0)
        y = tl.load(b + start + i, mask=i < length, other=0.0)
        p, q = tl.associative_scan((x, y), 0, combine)
        q += p * carry
        tl.store(h + start + i, q, mask=i < length)
        carry = tl.sum(tl.where(tl.arange(0, BLOCK) == BLOCK - 1, q, 0.0), 0, keep_dims=True)
"""


def combine(a: Any, b: Any) -> Any:
    """Apply one step of a recurrence after another."""
    return a[0] * b[0], b[0] * a[1] + b[1]


def second(pair: Any) -> Any:
    """Return what a recurrence has come to."""
    return pair[1]


def larger(a: Any, b: Any) -> Any:
    """Return the larger item with its index, of equal ones the first."""
    return a if a[0] > b[0] or (a[0] == b[0] and a[1] < b[1]) else b


def twice(item: Any) -> Any:
    """Return a pair of an item and itself."""
    return item, item


def outermost(a: Any, b: Any) -> Any:
    """Return the least of what pairs begin with, and the greatest of what they end with."""
    return b[0] if b[0] < a[0] else a[0], b[1] if b[1] > a[1] else a[1]


def product(pair: Any) -> Any:
    """Return the product of a pair."""
    return pair[0] * pair[1]


def struct_of(size: int) -> np.dtype[Any]:
    """Return the dtype of pairs of so many bytes."""
    return np.dtype([("field_0", PAIRS[size]), ("field_1", PAIRS[size])], align=True)


def of_cupar(what: str, size: int, cc: int) -> Any:
    """Ask cupar for an algorithm: of pairs of so many bytes, or of rows of so many items."""
    import cupar
    from cupar._functions.axes import AxisLayout
    from cupar._functions.recurrences import gradient_scan

    pair, plus = struct_of(8), cupar.OpKind.PLUS
    both, one = cupar.ZipIterator(F4, F4), cupar.TransformOutputIterator(F4, second, pair)
    indexed, lowest = (
        cupar.ZipIterator(F4, cupar.CountingIterator(np.int64(0))),
        np.array([(-np.inf, 0)], INDEXED),
    )
    if what == "recurrence":
        return cupar.inclusive_scan(both, one, combine, None, cc=cc)
    if what == "rows":
        return cupar.inclusive_segmented_scan(both, one, op=combine, cc=cc)
    if what.startswith("backward"):
        layout = AxisLayout(4, 4, 1) if what == "backward-rows" else AxisLayout(1, 16, 1)
        items, written, op = gradient_scan(F4, F4, F4, F4, F4, layout, False)
        if what == "backward-rows":
            return cupar.inclusive_segmented_scan(items, written, op=op, cc=cc)
        return cupar.inclusive_scan(items, written, op, None, cc=cc)
    if what == "minmax":
        return cupar.reduce_into(cupar.TransformIterator(F4, twice, pair), pair, outermost, None, cc=cc)
    if what == "pairs":
        return cupar.inclusive_scan(struct_of(size), struct_of(size), combine, None, cc=cc)
    if what == "sums":
        return cupar.inclusive_scan(F4, F4, plus, None, cc=cc)
    if what == "argmax":
        return cupar.reduce_into(indexed, INDEXED, larger, None, cc=cc)
    if what == "argmax-rows":
        return cupar.segmented_reduce(indexed, INDEXED, op=larger, h_init=lowest, cc=cc)
    products = cupar.TransformIterator(both, product)
    return cupar.reduce_into(products, F4, plus, None, cc=cc)


def _build(what: str, size: int, cc: int) -> None:
    """Build in a helper process, for the cache."""
    try:
        of_cupar(what, size, cc)
    except Exception as error:  # whatever a compiler raises; it is tried once more where it is wanted
        print(f"cupar, {what}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)


class Shape(NamedTuple):
    """What is done, and to how much."""

    what: str
    rows: int
    length: int
    size: int = 4  # bytes of an item, of pairs


def shapes(whats: Sequence[str], exponent: int) -> Iterator[Shape]:
    """Yield what is measured, in order."""
    n, less = 1 << exponent, 1 << max(exponent - 2, 12)
    found = [
        Shape("recurrence", 1, less),
        Shape("recurrence", 1, n),
        Shape("rows", less >> 12, 1 << 12),
        Shape("rows", max(less >> 18, 1), min(1 << 18, less)),
        Shape("backward", 1, less),
        Shape("backward-rows", less >> 12, 1 << 12),
        Shape("backward-rows", max(less >> 18, 1), min(1 << 18, less)),
        *(Shape("pairs", 1, n, size) for size in PAIRS),
        Shape("sums", 1, less),
        Shape("sums", 1, n),
        Shape("argmax", 1, n),
        Shape("argmax-rows", n >> 12, 1 << 12),
        Shape("minmax", 1, n),
        Shape("dot", 1, n),
    ]
    yield from (each for each in found if each.what in whats)


class Tuples(Gpu):
    """A case: its arrays, who takes part, and what is right.

    Parameters
    ----------
    cupy, torch, triton : modules
        All but CuPy may be None; Triton's is that of its kernel.
    shape : Shape
    algorithm : algorithm of cupar or exception
    """

    def __init__(self, cupy: Any, torch: Any, triton: Any, shape: Shape, algorithm: Any) -> None:
        super().__init__(cupy, torch)
        self.shape, self._algorithm, self._triton = shape, algorithm, triton
        n = shape.rows * shape.length
        random = cupy.random.RandomState(7)
        if shape.what == "pairs":
            self.x = cupy.zeros(n * 2, PAIRS[shape.size])
            self.x[::2], self.x[1::2] = 1, random.randint(-4, 5, n)
            self.out = cupy.empty_like(self.x)
        else:
            self.x = random.rand(n, dtype=F4) * F4.type(0.2) + F4.type(0.8)
            if shape.what in ("sums", "dot"):
                self.x = (random.randint(0, 8, n) == 0).astype(F4)  # whose sums are exact
            self.y = random.randint(-4, 5, n).astype(F4)
            self.out = cupy.zeros(max(shape.rows * 16, 4) if "argmax" in shape.what else n, F4)
            if shape.what.startswith("backward"):
                self.h, self.other = random.rand(n, dtype=F4), cupy.zeros(n, F4)
        self.n = n

    @property
    def gpu(self) -> Gpu:
        """What all sides need."""
        return self

    @property
    def nbytes(self) -> int:
        """What must at least be read and written."""
        each = {"recurrence": 12, "rows": 12, "pairs": 2 * self.shape.size, "sums": 8, "dot": 8}
        each |= {"backward": 20, "backward-rows": 20}
        return self.n * each.get(self.shape.what, 4)

    @property
    def sides(self) -> Sequence[str]:
        """Who takes part."""
        return ("cupar", "triton", "torch", "copy")

    @property
    def checked(self) -> Sequence[str]:
        """Those whose results are compared with what is right."""
        return ("cupar",)

    def prepare(self, side: str) -> Launch:
        """Return a call of a side; LookupError or ImportError if there is no such thing."""
        if side == "copy":
            return self.copy(self.nbytes)
        if side == "cupar":
            return self._of_cupar()
        return self._of_triton() if side == "triton" else self._of_torch()

    def _of_cupar(self) -> Launch:
        import cupar

        if isinstance(self._algorithm, Exception):
            raise self._algorithm
        (what, rows, length, size), n = self.shape, self.n
        if what.startswith("backward"):
            return self._of_gradients()
        named: dict[str, Any] = {"num_items": n, "h_init": None}
        if what in ("recurrence", "rows"):
            named |= {"d_in": cupar.ZipIterator(self.x, self.y)}
            named |= {"d_out": cupar.TransformOutputIterator(self.out, second, struct_of(8))}
        elif what == "pairs":
            named |= {"d_in": self.x.view(struct_of(size)), "d_out": self.out.view(struct_of(size))}
        elif what == "sums":
            named |= {"d_in": self.x, "d_out": self.out}
        elif what == "minmax":
            pairs = cupar.TransformIterator(self.x, twice, struct_of(8))
            named |= {"d_in": pairs, "d_out": self.out[:2].view(struct_of(8))}
        elif what == "dot":
            named |= {"d_in": cupar.TransformIterator(cupar.ZipIterator(self.x, self.y), product)}
            named |= {"d_out": self.out[:1]}
        else:
            self.found = self.cupy.empty(rows * INDEXED.itemsize, "u1").view(INDEXED)
            counting = cupar.CountingIterator(np.int64(0))
            named |= {"d_in": cupar.ZipIterator(self.x, counting), "d_out": self.found}
        if "rows" in what:
            del named["num_items"]
            named |= {"num_segments": rows, "segment_size": length}
            if what == "argmax-rows":
                named["h_init"] = np.array([(-np.inf, 0)], INDEXED)
        return self.stored(self._algorithm, named)

    def _of_gradients(self) -> Launch:
        """Return a call of the scan, and of the kernel that sets the first items of rows."""
        import cupar
        from cupar._functions.axes import AxisLayout
        from cupar._functions.recurrences import first_items, gradient_scan

        layout = AxisLayout(self.shape.rows, self.shape.length, 1)
        items, written, _ = gradient_scan(self.x, self.h, self.y, self.other, self.out, layout, False)
        named = {"d_in": items, "d_out": written}
        if self.shape.what == "backward":
            return self.stored(self._algorithm, {**named, "num_items": self.n, "h_init": None})
        size = {"num_segments": layout.rows, "segment_size": layout.length}
        scan = self.stored(self._algorithm, {**named, "h_init": None, **size})
        zero = cupar.ConstantIterator(F4.type(0))
        target = cupar.PermutationIterator(self.other, first_items(layout, False))
        mend = cupar.unary_transform(zero, target, cupar.OpKind.IDENTITY)

        def launch() -> None:
            scan()
            mend(zero, target, layout.rows)

        return launch

    def _of_triton(self) -> Launch:
        if self._triton is None or self.shape.what != "rows":
            raise LookupError("there is no such kernel")
        x, y, h = (self.tensor(each) for each in (self.x, self.y, self.cupy.empty_like(self.x)))
        best: tuple[float, Launch] | None = None
        for block, warps in ((1024, 4), (4096, 8), (4096, 16)):
            launch = partial(
                self._triton.rows[(self.shape.rows,)],
                x,
                y,
                h,
                self.shape.length,
                BLOCK=block,
                num_warps=warps,
            )
            launch()
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(5):
                launch()
            self.torch.cuda.synchronize()
            taken = time.perf_counter() - start
            if best is None or taken < best[0]:
                best = taken, launch
        assert best is not None
        return best[1]

    def _of_torch(self) -> Launch:
        if self.torch is None:
            raise ImportError("PyTorch is not installed")
        torch, x = self.torch, self.tensor(self.x)
        if self.shape.what == "sums":
            return partial(torch.cumsum, x, 0, out=self.tensor(self.out))
        if self.shape.what == "argmax":
            return partial(torch.argmax, x)
        if self.shape.what == "argmax-rows":
            return partial(torch.argmax, x.view(self.shape.rows, self.shape.length), 1)
        if self.shape.what == "minmax":
            return partial(torch.aminmax, x)
        if self.shape.what == "dot":
            return partial(torch.dot, x, self.tensor(self.y))
        raise LookupError("PyTorch has no such function")

    def check(self, launch: Launch) -> bool:
        """Call cupar, and compare what it wrote with what is right."""
        cupy, (what, rows, length, _) = self.cupy, self.shape
        self.out.fill(np.nan)
        launch()
        if what in ("recurrence", "rows"):
            table = [
                each.reshape(rows, length)[:64, :2000].get().astype("f8")
                for each in (self.x, self.y, self.out)
            ]
            right, carry = np.empty_like(table[1]), np.zeros(len(table[1]))
            for t in range(right.shape[1]):
                carry = carry * table[0][:, t] + table[1][:, t]
                right[:, t] = carry
            # And further on, each item from the one before.
            x, y, h = (each.reshape(rows, length) for each in (self.x, self.y, self.out))
            steps = cupy.abs(h[:, :-1] * x[:, 1:] + y[:, 1:] - h[:, 1:]).max() if length > 1 else 0
            return bool(np.allclose(table[2], right, atol=1e-4)) and float(steps) < 1e-3
        if what.startswith("backward"):
            a, h, grad, of_a, of_b = (
                each.reshape(rows, length) for each in (self.x, self.h, self.y, self.other, self.out)
            )
            steps = cupy.abs(grad[:, :-1] + a[:, 1:] * of_b[:, 1:] - of_b[:, :-1]).max()
            products = cupy.abs(of_b[:, 1:] * h[:, :-1] - of_a[:, 1:]).max()
            ends = bool((of_b[:, -1] == grad[:, -1]).all()) and bool((of_a[:, 0] == 0).all())
            return ends and max(float(steps), float(products)) < 1e-3
        if what == "minmax":
            return [float(each) for each in self.out[:2]] == [float(self.x.min()), float(self.x.max())]
        if what == "pairs":
            return bool((self.out[1::2] == cupy.cumsum(self.x[1::2])).all()) and bool(
                (self.out[::2] == 1).all()
            )
        if what == "sums":
            right = cupy.cumsum(self.x, dtype="f8")
            return bool((cupy.abs(self.out - right) <= 1e-6 * right + 1).all())
        if what == "dot":
            right = float((self.x.astype("f8") * self.y).sum())
            return abs(float(self.out[0]) - right) <= 1e-3 * self.n**0.5 + 1e-6 * abs(right)
        at = cupy.argmax(self.x.reshape(rows, length), axis=1)
        return bool((self.found["field_1"] == at + cupy.arange(rows) * length).all())


TABLE = Table(
    "tuples",
    {"": 13, " ": 18},
    {"copy": ("copy", 3), "triton": ("Triton", 2), "torch": ("torch", 2)},
    goal_width=12,
)
GOALS = {
    **dict.fromkeys(("pairs", "sums"), 0.8),
    **{"backward": 0.7, "backward-rows": 0.7},
    **dict.fromkeys(("recurrence", "rows", "argmax", "argmax-rows", "minmax", "dot"), 0.85),
}


def triton_kernel(folder: str) -> Any:
    """Return the module of Triton's kernel, None without Triton."""
    if optional("triton") is None:
        return None
    (Path(folder) / "_tuples_triton.py").write_text(TRITON)
    sys.path.insert(0, folder)
    return importlib.import_module("_tuples_triton")


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = turns.parser(__doc__, "tuples", WHATS, seconds=90, jobs=6).parse_args()
    options.exponent = min(options.exponent, 28)
    device, facts = _common.needed_gpu()
    asked = list(shapes(options.only, options.exponent))
    keys = [*dict.fromkeys((each.what, each.size) for each in asked)]
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_build, cc=device["cc"]), *zip(*keys, strict=True)))
    cupy, torch = importlib.import_module("cupy"), optional("torch")
    algorithms = {key: attempted(partial(of_cupar, *key, device["cc"])) for key in keys}
    print(f"\nbuilt after {time.perf_counter() - start:.0f} s\n")

    with tempfile.TemporaryDirectory() as folder:
        triton = triton_kernel(folder)

        def measured(*shape: Any) -> dict[str, Any]:
            its = Shape(*shape)
            case = Tuples(cupy, torch, triton, its, algorithms[its.what, its.size])
            label = f"{its.rows} x {its.length}" + f", {its.size} B" * (its.what == "pairs")
            named = {"items": case.n, "what": its.what, "label": label}
            goal = "copy", GOALS[its.what]
            return TABLE.measured(case, (its.what, label), options.repeats, goal, **named)

        TABLE.fill(asked, measured, options, start, facts)


if __name__ == "__main__":
    main()
