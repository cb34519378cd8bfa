"""Times of whole calls of `cupar.arrays` and `cupar.jax`, beside PyTorch's, CuPy's and JAX's own functions.

    python benchmarks/whole_calls.py [--library torch cupy jax] [--exponents 3 5 7] [--sizes same|other]
                                     [--only NAME...] [--rounds 7] [--seconds 300] [--cpu] [--json FILE]

A call's time is what its caller waits: checks, allocation of the result, launches, and reads of sizes by the
host. Both sides take turns in batches of up to 20 calls; a batch ends when the device has finished. The ratio
is the median, over pairs of neighbouring batches, of the library's time divided by cupar's: above 1, cupar is
quicker. "first" is the time of a row's first call, with its builds if the cache lacks them, for cupar and for
the library; rows and sizes use what earlier ones have built. With ``--sizes other``, no two calls in a row
have the same size; JAX takes no part, as each size is a new program under `jit`.

Results are compared: integers exactly, floats with the library's own, and bfloat16 with a reference in
float64. With ``--cpu``, or without a GPU, arrays are NumPy's, PyTorch's and JAX's on the CPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import math
import operator
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import _common
import numpy as np

sys.path.insert(0, str(_common.ROOT))  # this checkout's cupar, whatever else is installed

from cupar import OpKind
from cupar import arrays as ca

BATCH = 20  # calls, at most, between two waits for the device
BATCH_SECONDS = 0.015  # of a batch, for slow calls; at least two calls
ROW_SECONDS = 1.0  # of the batches of a row: slow rows have fewer rounds, at least three
SIZES = 200  # different sizes with --sizes other, before they come again
ROW_ITEMS = 1024  # items in each row of `Inputs.rows`
SLOWER = 0.9  # rows with a lower ratio are listed
LIBRARIES = {"numpy": "NumPy", "torch": "PyTorch", "cupy": "CuPy", "jax": "JAX"}

# --- Inputs ----------------------------------------------------------------------------------------------


def powers(exponents: Any) -> Any:
    """Return pairs of a power of two and its reciprocal: products that are exact in any order."""
    return np.ldexp(np.float32(1), np.stack([exponents, -exponents], 1).reshape(-1))


# Flat arrays by name, made from a generator, the nominal number of items, and how many to make. Any prefix of
# one is a valid input, too.
Make = Callable[[np.random.Generator, int, int], Any]
FLAT: dict[str, Make] = {
    "floats": lambda r, n, size: r.random(size, "f4"),
    "twice": lambda r, n, size: r.random(2 * size, "f4"),
    "powers": lambda r, n, size: powers(r.integers(-3, 4, size // 2 + 1))[:size],
    "centres": lambda r, n, size: ((r.integers(0, 100, size) + r.uniform(0.1, 0.9, size)) / 100).astype("f4"),
    "doubles": lambda r, n, size: r.random(size),
    "ids": lambda r, n, size: r.integers(0, 1000, size, "i4"),
    "keys": lambda r, n, size: r.integers(0, max(n // 10, 2), size),
    "octets": lambda r, n, size: r.integers(0, 256, size, "u1"),
    "mask": lambda r, n, size: r.random(size) < 0.3,
    "counts": lambda r, n, size: r.integers(0, 3, size),
    "ordered": lambda r, n, size: np.sort(r.random(size, "f4")),
    "out": lambda r, n, size: np.zeros(size, "f4"),
    "out_places": lambda r, n, size: np.zeros(size, "i8"),
    "places": lambda r, n, size: r.permutation(n) % (n - SIZES),  # within the shortest inputs, too
}


@dataclass(frozen=True)
class Library:
    """A library of arrays: what benchmarks need of it.

    Attributes
    ----------
    name : str
    put : callable
        Copy a NumPy array to the device.
    host : callable
        Copy an array to a NumPy array, bfloat16 as float32.
    wait : callable
        Wait until a result is there.
    rows : callable
        Make the rows that it takes part in.
    """

    name: str
    put: Callable[[Any], Any]
    host: Callable[[Any], Any]
    wait: Callable[[Any], Any]
    rows: Callable[[], dict[str, Row]]


class Inputs:
    """Arrays of `nominal` items, or about as many, for one call: all in `FLAT`, and those below.

    `Inputs.shorter` has views of the same arrays, without some of the last items.
    """

    def __init__(self, library: Library, nominal: int) -> None:
        rng, size = np.random.default_rng(nominal), max(nominal, ROW_ITEMS)
        self.nominal = self.n = nominal
        self._library = library
        self._whole = {name: library.put(make(rng, nominal, size)) for name, make in FLAT.items()}
        self._complete()

    def shorter(self, number: int) -> Inputs:
        """Return inputs with `number` items less."""
        made = object.__new__(type(self))
        vars(made).update(nominal=self.nominal, n=self.nominal - number)
        vars(made).update(_library=self._library, _whole=self._whole)
        made._complete()
        return made

    def _complete(self) -> None:
        """Make all arrays, so that no call does."""
        vars(self).update((name, whole[: self.n]) for name, whole in self._whole.items())
        for name, each in vars(Inputs).items():
            if isinstance(each, cached_property):
                getattr(self, name)

    def __getattr__(self, name: str) -> Any:  # for type checkers: arrays are attributes
        raise AttributeError(name)

    @cached_property
    def groups(self) -> int:
        """The number of different `keys`."""
        return max(self.nominal // 10, 2)

    @cached_property
    def few(self) -> Any:
        """A hundredth of the keys."""
        return self.keys[: max(self.n // 100, 1)]

    @cached_property
    def queries(self) -> Any:
        """A tenth as many floats, not in order."""
        return self.floats[: max(self.n // 10, 2)]

    @cached_property
    def strided(self) -> Any:
        """Every other item of an array."""
        return self._whole["twice"][: 2 * self.n : 2]

    @cached_property
    def out_scalar(self) -> Any:
        """An array without dimensions."""
        return self._library.put(np.zeros((), "f4"))

    @cached_property
    def rows(self) -> Any:
        """Rows of 1,024 floats, at least one."""
        return self._matrix(max(self.nominal // ROW_ITEMS, 1), ROW_ITEMS - self.nominal + self.n)

    @cached_property
    def square(self) -> Any:
        """As many rows as columns."""
        side, dropped = math.isqrt(self.nominal), self.nominal - self.n
        half = side // 2
        return self._matrix(side - dropped // half, side - dropped % half)

    @cached_property
    def bfloat16(self) -> Any:
        """The floats as bfloat16, which PyTorch has."""
        return self.floats.bfloat16() if self._library.name == "torch" else None

    @cached_property
    def bfloat16_rows(self) -> Any:
        """The rows as bfloat16, which PyTorch has."""
        return self.rows.bfloat16() if self._library.name == "torch" else None

    def double(self, name: str) -> Any:
        """Return one of these arrays as NumPy's float64."""
        return self._library.host(getattr(self, name)).astype("f8")

    def _matrix(self, rows: int, columns: int) -> Any:
        return self._whole["floats"][: rows * columns].reshape(rows, columns)


# --- Rows ------------------------------------------------------------------------------------------------

Call = Callable[[Inputs], Any]


@dataclass(frozen=True)
class Row:
    """A call of cupar's, and the one that a user of the library would write instead.

    Attributes
    ----------
    ours, theirs : callable
        They take `Inputs`.
    right : callable, optional
        Takes `Inputs`; the result in float64, which both are compared with. By default, theirs.
    compared : callable, optional
        Takes `Inputs` and a result; what of it is compared, for indices of equal items.
    tolerance : float
        Relative error of floats.
    """

    ours: Call
    theirs: Call
    right: Call | None = None
    compared: Callable[[Inputs, Any], Any] = lambda d, result: result
    tolerance: float = 1e-3


ROUNDED = 2.0**-7  # a tolerance of bfloat16: two units in the last place


def larger(a: Any, b: Any) -> Any:
    """Return the larger one."""
    return a if a > b else b


def torch_rows(torch: Any) -> dict[str, Row]:
    """Return rows of PyTorch's tensors."""

    def segment_sums(d: Inputs) -> Any:
        return torch.zeros(1000, device=d.floats.device).index_add_(0, d.ids, d.floats)

    def segment_maxima(d: Inputs) -> Any:
        return torch.zeros(d.groups, device=d.floats.device).scatter_reduce(0, d.keys, d.floats, "amax")

    def median(d: Inputs) -> Any:  # quantile is limited to 2^24 items; median returns the lower of two
        return torch.quantile(d.floats, 0.5) if d.n <= 1 << 24 else d.floats.median()

    def values_of(d: Inputs, places: Any) -> Any:
        return d.rows.gather(1, places.long()[:, None])

    # The numbers of each side's calls, of the two rows in which each call has another argument.
    shifts, its_shifts, thousandths, its_thousandths = (itertools.count(1) for _ in range(4))
    return {
        "sum": Row(lambda d: ca.sum(d.floats), lambda d: d.floats.sum()),
        "sum bfloat16": Row(
            lambda d: ca.sum(d.bfloat16),
            lambda d: d.bfloat16.sum(),
            right=lambda d: d.double("bfloat16").sum(),
            tolerance=ROUNDED,
        ),
        "sum rows bfloat16": Row(
            lambda d: ca.sum(d.bfloat16_rows, axis=1),
            lambda d: d.bfloat16_rows.sum(1),
            right=lambda d: d.double("bfloat16_rows").sum(1),
            tolerance=ROUNDED,
        ),
        "sum axis 0": Row(lambda d: ca.sum(d.square, axis=0), lambda d: d.square.sum(0)),
        "max rows": Row(lambda d: ca.max(d.rows, axis=1), lambda d: d.rows.amax(1)),
        "count of mask": Row(lambda d: ca.count_nonzero(d.mask), lambda d: torch.count_nonzero(d.mask)),
        "argmax": Row(
            lambda d: ca.argmax(d.floats),
            lambda d: d.floats.argmax(),
            compared=lambda d, place: d.floats[place],
        ),
        "argmax rows": Row(
            lambda d: ca.argmax(d.rows, axis=1), lambda d: d.rows.argmax(1), compared=values_of
        ),
        "minmax": Row(lambda d: ca.minmax(d.floats), lambda d: torch.aminmax(d.floats)),
        "any": Row(lambda d: ca.any(d.mask), lambda d: d.mask.any()),
        "cumsum": Row(lambda d: ca.cumulative_sum(d.floats), lambda d: d.floats.cumsum(0)),
        "cumsum bfloat16": Row(
            lambda d: ca.cumulative_sum(d.bfloat16),
            lambda d: d.bfloat16.cumsum(0),
            right=lambda d: d.double("bfloat16").cumsum(),
            tolerance=ROUNDED,
        ),
        "cumsum rows": Row(lambda d: ca.cumulative_sum(d.rows, axis=1), lambda d: d.rows.cumsum(1)),
        "cumsum axis 0": Row(lambda d: ca.cumulative_sum(d.square, axis=0), lambda d: d.square.cumsum(0)),
        "cumsum int64": Row(lambda d: ca.cumulative_sum(d.keys), lambda d: d.keys.cumsum(0)),
        "cumprod": Row(lambda d: ca.cumulative_prod(d.powers), lambda d: d.powers.cumprod(0)),
        "cummax": Row(lambda d: ca.scan(d.floats, larger), lambda d: d.floats.cummax(0)[0]),
        "sort float": Row(lambda d: ca.sort(d.floats), lambda d: d.floats.sort()[0]),
        "sort int64": Row(lambda d: ca.sort(d.keys), lambda d: d.keys.sort()[0]),
        "sort rows": Row(lambda d: ca.sort(d.rows, axis=1), lambda d: d.rows.sort(1)[0]),
        "sort axis 0": Row(lambda d: ca.sort(d.square, axis=0), lambda d: d.square.sort(0)[0]),
        "argsort float": Row(lambda d: ca.argsort(d.floats), lambda d: d.floats.sort(stable=True)[1]),
        "argsort int32, 1,000 values": Row(lambda d: ca.argsort(d.ids), lambda d: d.ids.sort(stable=True)[1]),
        "top 10": Row(lambda d: ca.top_k(d.floats, 10)[0], lambda d: d.floats.topk(10)[0]),
        "top 10 of rows": Row(lambda d: ca.top_k(d.rows, 10, axis=1)[0], lambda d: d.rows.topk(10, 1)[0]),
        "median": Row(lambda d: ca.median(d.floats), median),
        "unique": Row(lambda d: ca.unique_values(d.keys), lambda d: torch.unique(d.keys)),
        "unique counts": Row(
            lambda d: ca.unique_counts(d.ids), lambda d: torch.unique(d.ids, return_counts=True)
        ),
        "unique inverse": Row(
            lambda d: ca.unique_inverse(d.ids), lambda d: torch.unique(d.ids, return_inverse=True)
        ),
        "run lengths": Row(
            lambda d: ca.run_length_encode(d.ids),
            lambda d: torch.unique_consecutive(d.ids, return_counts=True),
        ),
        "select by mask": Row(lambda d: ca.compress(d.floats, d.mask), lambda d: d.floats[d.mask]),
        "nonzero": Row(lambda d: ca.nonzero(d.mask)[0], lambda d: d.mask.nonzero()[:, 0]),
        "searchsorted": Row(
            lambda d: ca.searchsorted(d.ordered, d.queries),
            lambda d: torch.searchsorted(d.ordered, d.queries),
        ),
        "isin": Row(lambda d: ca.isin(d.keys, d.few), lambda d: torch.isin(d.keys, d.few)),
        "bincount": Row(lambda d: ca.bincount(d.ids), lambda d: torch.bincount(d.ids)),
        "bincount, size given": Row(
            lambda d: ca.bincount(d.ids, size=1000), lambda d: torch.bincount(d.ids, minlength=1000)
        ),
        "bincount, weights": Row(
            lambda d: ca.bincount(d.ids, weights=d.doubles), lambda d: torch.bincount(d.ids, d.doubles)
        ),
        "histogram 100": Row(
            lambda d: ca.histogram(d.centres, bins=100, range=(0.0, 1.0))[0],
            lambda d: torch.histc(d.centres, 100, 0, 1),
        ),
        "segment sum 1,000": Row(
            lambda d: ca.segment_reduce(d.floats, d.ids, OpKind.PLUS, 1000), segment_sums
        ),
        "segment max n/10": Row(
            lambda d: ca.segment_reduce(d.floats, d.keys, OpKind.MAXIMUM, d.groups, init=0.0), segment_maxima
        ),
        "take": Row(lambda d: ca.take(d.floats, d.places), lambda d: d.floats[d.places]),
        "concatenate": Row(
            lambda d: ca.concatenate((d.floats, d.floats, d.floats, d.floats)),
            lambda d: torch.cat((d.floats, d.floats, d.floats, d.floats)),
        ),
        "repeat by counts": Row(
            lambda d: ca.repeat(d.floats, d.counts), lambda d: torch.repeat_interleave(d.floats, d.counts)
        ),
        "diff": Row(lambda d: ca.diff(d.floats), lambda d: d.floats.diff()),
        "roll": Row(lambda d: ca.roll(d.floats, 7), lambda d: d.floats.roll(7)),
        "shuffle": Row(
            lambda d: ca.shuffle(d.floats, seed=1),
            lambda d: d.floats[torch.randperm(d.n, device=d.floats.device)],
            compared=lambda d, result: result.sort()[0],
        ),
        "transform a * b + 1": Row(
            lambda d: ca.transform(lambda a, b: a * b + np.float32(1), d.floats, d.floats),
            lambda d: d.floats * d.floats + 1,
        ),
        "dot": Row(lambda d: ca.inner_product(d.floats, d.floats), lambda d: torch.dot(d.floats, d.floats)),
        # An array that takes the result, an input with gaps, and a number that is new in each call.
        "sum, out=": Row(
            lambda d: ca.sum(d.floats, out=d.out_scalar), lambda d: torch.sum(d.floats, 0, out=d.out_scalar)
        ),
        "cumsum, out=": Row(
            lambda d: ca.cumulative_sum(d.floats, out=d.out), lambda d: torch.cumsum(d.floats, 0, out=d.out)
        ),
        "sort, out=": Row(
            lambda d: ca.sort(d.floats, out=d.out),
            lambda d: torch.sort(d.floats, out=(d.out, d.out_places))[0],
        ),
        "sum, strided": Row(lambda d: ca.sum(d.strided), lambda d: d.strided.sum()),
        "cumsum, strided": Row(lambda d: ca.cumulative_sum(d.strided), lambda d: d.strided.cumsum(0)),
        "sort, strided": Row(lambda d: ca.sort(d.strided), lambda d: d.strided.sort()[0]),
        "roll, new number": Row(
            lambda d: ca.roll(d.floats, next(shifts)), lambda d: d.floats.roll(next(its_shifts))
        ),
        "quantile, new fraction": Row(
            lambda d: ca.quantile(d.floats, next(thousandths) % 1000 / 1000),
            lambda d: torch.quantile(d.floats, next(its_thousandths) % 1000 / 1000),
        ),
    }


def numpy_rows(xp: Any) -> dict[str, Row]:
    """Return rows of NumPy's arrays, or CuPy's, whose functions have the same names."""
    return {
        "sum": Row(lambda d: ca.sum(d.floats), lambda d: d.floats.sum()),
        "sum rows": Row(lambda d: ca.sum(d.rows, axis=1), lambda d: d.rows.sum(1)),
        "max": Row(lambda d: ca.max(d.floats), lambda d: d.floats.max()),
        "count of floats": Row(lambda d: ca.count_nonzero(d.floats), lambda d: xp.count_nonzero(d.floats)),
        "argmax": Row(
            lambda d: ca.argmax(d.floats),
            lambda d: d.floats.argmax(),
            compared=lambda d, place: d.floats[place],
        ),
        "cumsum": Row(lambda d: ca.cumulative_sum(d.floats), lambda d: xp.cumsum(d.floats)),
        "sort float": Row(lambda d: ca.sort(d.floats), lambda d: xp.sort(d.floats)),
        "sort int32": Row(lambda d: ca.sort(d.ids), lambda d: xp.sort(d.ids)),
        "top 10": Row(
            lambda d: ca.top_k(d.floats, 10)[0],
            lambda d: xp.partition(d.floats, d.n - 10)[d.n - 10 :],
            compared=lambda d, items: xp.sort(items),
        ),
        "sort double": Row(lambda d: ca.sort(d.doubles), lambda d: xp.sort(d.doubles)),
        "argsort": Row(
            lambda d: ca.argsort(d.keys),
            lambda d: xp.argsort(d.keys),
            compared=lambda d, places: d.keys[places],
        ),
        "unique": Row(lambda d: ca.unique_values(d.keys), lambda d: xp.unique(d.keys)),
        "unique counts": Row(
            lambda d: ca.unique_counts(d.ids), lambda d: xp.unique(d.ids, return_counts=True)
        ),
        "isin": Row(lambda d: ca.isin(d.keys, d.few), lambda d: xp.isin(d.keys, d.few)),
        "select by mask": Row(lambda d: ca.compress(d.floats, d.mask), lambda d: d.floats[d.mask]),
        "nonzero": Row(lambda d: ca.nonzero(d.mask)[0], lambda d: xp.nonzero(d.mask)[0]),
        "searchsorted": Row(
            lambda d: ca.searchsorted(d.ordered, d.queries), lambda d: xp.searchsorted(d.ordered, d.queries)
        ),
        "bincount": Row(lambda d: ca.bincount(d.ids), lambda d: xp.bincount(d.ids)),
        "bincount of bytes": Row(
            lambda d: ca.bincount(d.octets, size=256), lambda d: xp.bincount(d.octets, minlength=256)
        ),
        "histogram 100": Row(
            lambda d: ca.histogram(d.centres, bins=100, range=(0.0, 1.0))[0],
            lambda d: xp.histogram(d.centres, bins=100, range=(0.0, 1.0))[0],
        ),
        "median": Row(lambda d: ca.median(d.floats), lambda d: xp.median(d.floats)),
        "quantile": Row(lambda d: ca.quantile(d.floats, 0.3), lambda d: xp.quantile(d.floats, 0.3)),
        "roll": Row(lambda d: ca.roll(d.floats, 3), lambda d: xp.roll(d.floats, 3)),
        "repeat": Row(lambda d: ca.repeat(d.floats, 2), lambda d: xp.repeat(d.floats, 2)),
        "any": Row(lambda d: ca.any(d.mask), lambda d: d.mask.any()),
        "take": Row(lambda d: ca.take(d.floats, d.places), lambda d: xp.take(d.floats, d.places)),
        "concatenate": Row(
            lambda d: ca.concatenate((d.floats, d.floats, d.floats, d.floats)),
            lambda d: xp.concatenate((d.floats, d.floats, d.floats, d.floats)),
        ),
        "sum, out=": Row(
            lambda d: ca.sum(d.floats, out=d.out_scalar), lambda d: xp.sum(d.floats, out=d.out_scalar)
        ),
        "cumsum, out=": Row(
            lambda d: ca.cumulative_sum(d.floats, out=d.out), lambda d: xp.cumsum(d.floats, out=d.out)
        ),
        "sum, strided": Row(lambda d: ca.sum(d.strided), lambda d: d.strided.sum()),
        "cumsum, strided": Row(lambda d: ca.cumulative_sum(d.strided), lambda d: xp.cumsum(d.strided)),
        "sort, strided": Row(lambda d: ca.sort(d.strided), lambda d: xp.sort(d.strided)),
    }


def jax_rows(jax: Any) -> dict[str, Row]:
    """Return rows of JAX's arrays, in functions under `jit`."""
    from cupar import jax as cj

    jnp, lax = jax.numpy, jax.lax

    def row(name: str, ours: Callable[..., Any], theirs: Callable[..., Any], *more: str) -> Row:
        """Return a row of functions of one of the inputs, or more."""
        of = operator.attrgetter(name, *more) if more else lambda d: (getattr(d, name),)
        mine, its = jax.jit(ours), jax.jit(theirs)
        return Row(lambda d: mine(*of(d)), lambda d: its(*of(d)))

    def recurrence(a: Any, b: Any) -> Any:
        return lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b))[1]

    return {
        "cumsum": row("floats", lambda x: cj.associative_scan(jnp.add, x), jnp.cumsum),
        "cumsum rows": row(
            "rows", lambda x: cj.associative_scan(jnp.add, x, axis=1), lambda x: jnp.cumsum(x, 1)
        ),
        "cummax": row("floats", lambda x: cj.associative_scan(jnp.maximum, x), lax.cummax),
        "scan with logaddexp": row(
            "floats",
            lambda x: cj.associative_scan(jnp.logaddexp, x),
            lambda x: lax.associative_scan(jnp.logaddexp, x),
        ),
        "linear recurrence": row("floats", cj.linear_recurrence, recurrence, "centres"),
        "sort float": row("floats", cj.sort, jnp.sort),
        "sort int32": row("ids", cj.sort, jnp.sort),
        "sort rows": row("rows", cj.sort, jnp.sort),
        "top 10": row("floats", lambda x: cj.top_k(x, 10)[0], lambda x: lax.top_k(x, 10)[0]),
        "top 10 of rows": row("rows", lambda x: cj.top_k(x, 10)[0], lambda x: lax.top_k(x, 10)[0]),
        "segment sum 1,000": row(
            "floats",
            lambda x, ids: cj.segment_sum(x, ids, 1000),
            lambda x, ids: jax.ops.segment_sum(x, ids, 1000),
            "ids",
        ),
        "histogram 100": row(
            "centres",
            lambda x: cj.histogram(x, 100, (0.0, 1.0)),
            lambda x: jnp.histogram(x, 100, (0.0, 1.0))[0],
        ),
    }


def library(name: str, on_gpu: bool) -> Library:
    """Return a library; ImportError if it is not installed, or has no GPU where one is wanted."""
    module = importlib.import_module(name)
    if name == "torch":
        device = "cuda" if on_gpu else "cpu"
        if on_gpu and not module.cuda.is_available():
            raise ImportError("PyTorch finds no GPU")

        def put(array: Any) -> Any:
            return module.as_tensor(array, device=device)

        def host(tensor: Any) -> Any:
            return (tensor.float() if tensor.dtype == module.bfloat16 else tensor).cpu().numpy()

        def wait(_: Any) -> None:
            if on_gpu:
                module.cuda.synchronize()

        return Library(name, put, host, wait, lambda: torch_rows(module))
    if name == "jax":
        if on_gpu and module.default_backend() != "gpu":
            raise ImportError("JAX finds no GPU")
        put, ready = module.numpy.asarray, module.block_until_ready
        return Library(name, put, np.asarray, ready, lambda: jax_rows(module))
    if name == "cupy":
        finish = module.cuda.Device().synchronize
        return Library(name, module.asarray, module.asnumpy, lambda _: finish(), lambda: numpy_rows(module))
    return Library(name, np.asarray, np.asarray, lambda _: None, lambda: numpy_rows(np))


# --- Measurements ----------------------------------------------------------------------------------------


def arrays_of(result: Any, host: Callable[[Any], Any]) -> list[Any]:
    """Return copies of the arrays in a result, on the host and without their dimensions."""
    if isinstance(result, (tuple, list)):
        return [array for each in result for array in arrays_of(each, host)]
    is_python = isinstance(result, (bool, int, float, np.generic))
    return [np.array(result if is_python else host(result)).reshape(-1)]


def relative_error(found: Sequence[Any], right: Sequence[Any]) -> float:
    """Return the largest error of an item; infinity if arrays differ in size, or integers differ."""
    worst = 0.0 if len(found) == len(right) else math.inf
    for mine, its in zip(found, right, strict=False):
        if mine.size != its.size:
            return math.inf
        if mine.dtype.kind in "biu" and its.dtype.kind in "biu":
            worst = max(worst, 0.0 if np.array_equal(mine, its) else math.inf)
        elif its.size:
            a, b = mine.astype("f8"), its.astype("f8")
            scale = np.maximum(np.abs(b), max(1e-2 * np.abs(b).max(), np.finfo("f4").tiny))
            with np.errstate(invalid="ignore"):
                error = float((np.abs(a - b) / scale).max())
            worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


Case = dict[str, Any]  # of a row: what is written to the JSON file


class Turns:
    """The two sides of a row, which take turns."""

    def __init__(self, library: Library, row: Row, inputs: Inputs, has_other_sizes: bool) -> None:
        self._library, self._row, self._inputs = library, row, inputs
        self._shorter = itertools.cycle(range(1, SIZES)) if has_other_sizes else None
        self._calls = {"cupar": row.ours, library.name: row.theirs}

    def compare(self) -> tuple[dict[str, float], dict[str, float]]:
        """Make the first call of each side; return their seconds, and the errors of their results."""
        row, inputs = self._row, self._inputs
        first, found = {}, {}
        for name, call in self._calls.items():
            begin = time.perf_counter()
            result = call(inputs)
            self._library.wait(result)
            first[name] = time.perf_counter() - begin
            found[name] = arrays_of(row.compared(inputs, result), self._library.host)
        right = found[self._library.name] if row.right is None else arrays_of(row.right(inputs), np.asarray)
        errors = {name: relative_error(arrays, right) for name, arrays in found.items()}
        return first, {name: error for name, error in errors.items() if error > row.tolerance}

    def samples(self, rounds: int) -> dict[str, list[float]]:
        """Return seconds of a call in each batch: those at the same place ran one after the other."""
        calls = {name: self._calls_in_a_batch(call) for name, call in self._calls.items()}
        found: dict[str, list[float]] = {name: [] for name in calls}
        begin = time.perf_counter()
        for number in range(rounds):
            batch = [self._next() for _ in range(max(calls.values()))]
            for name in list(calls)[:: 1 if number % 2 else -1]:
                found[name].append(self._batch(self._calls[name], batch[: calls[name]]))
            if number >= 2 and time.perf_counter() - begin > ROW_SECONDS:
                break
        return found

    def _next(self) -> Inputs:
        return self._inputs if self._shorter is None else self._inputs.shorter(next(self._shorter))

    def _calls_in_a_batch(self, call: Call) -> int:
        """Warm up, and return how many calls make a batch."""
        begin = time.perf_counter()
        for _ in range(5):  # programs begin at the third
            seconds = self._batch(call, [self._next()])
            if time.perf_counter() - begin > ROW_SECONDS / 4:
                break
        if time.perf_counter() - begin > ROW_SECONDS / 4:  # code was built, which a thread stores
            time.sleep(ROW_SECONDS)
            seconds = min(seconds, *[self._batch(call, [self._next()]) for _ in range(3)])
        return min(BATCH, max(2, int(BATCH_SECONDS / seconds)))

    def _batch(self, call: Call, batch: Sequence[Inputs]) -> float:
        """Return seconds of a call."""
        self._library.wait(None)
        gc.disable()
        try:
            begin = time.perf_counter()
            for inputs in batch:
                result = call(inputs)
            self._library.wait(result)
            return (time.perf_counter() - begin) / len(batch)
        finally:
            gc.enable()


def measured(library: Library, name: str, row: Row, inputs: Inputs, options: argparse.Namespace) -> Case:
    """Return what there is to tell of a row, or why it failed."""
    case: Case = {"library": library.name, "exponent": round(math.log10(inputs.nominal)), "name": name}
    try:
        turns = Turns(library, row, inputs, options.sizes == "other")
        case["first"], case["errors"] = turns.compare()
        samples = turns.samples(options.rounds)
    except Exception as error:  # whatever a library raises, other rows are measured
        return {**case, "failure": f"{type(error).__name__}: {error}"[:300]}
    pairs = zip(samples[library.name], samples["cupar"], strict=True)
    case["seconds"] = {side: _common.summary(values) for side, values in samples.items()}
    case["ratio"] = statistics.median(its / mine for its, mine in pairs)
    return case


def cases(options: argparse.Namespace, on_gpu: bool) -> Iterator[tuple[Library, int, str, Row, Inputs]]:
    """Yield rows of all libraries and sizes that are asked for."""
    for name in options.library:
        try:
            found = library(name, on_gpu)
        except Exception as error:
            print(f"without {LIBRARIES[name]}: {type(error).__name__}: {error}")
            continue
        for exponent in options.exponents:
            inputs = Inputs(found, 10**exponent)
            for label, row in found.rows().items():
                if not options.only or label in options.only:
                    yield found, exponent, label, row, inputs


# --- Table and plot --------------------------------------------------------------------------------------

_WIDTHS = (28, 9, 9, 7, 9, 9)


def multiple(ratio: float) -> str:
    """Write a ratio with two digits at least."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def print_line(*cells: str) -> None:
    """Print a line of the table, of a row as soon as it is measured."""
    first, *others = (text.rjust(width) for text, width in zip(cells[1:], _WIDTHS[1:], strict=False))
    print(
        "  ".join([cells[0].ljust(_WIDTHS[0]), first, *others, *cells[len(_WIDTHS) :]]).rstrip(), flush=True
    )


def print_case(case: Case) -> None:
    """Print times, ratio and first calls of a row, and what is wrong with it."""
    if "failure" in case:
        print_line(case["name"], *["-"] * 5, case["failure"].replace("\n", " ")[:100])
        return
    sides = "cupar", case["library"]
    medians = [_common.seconds(case["seconds"][side]["median"]) for side in sides]
    firsts = [_common.seconds(case["first"][side]) for side in sides]
    wrong = [f"{LIBRARIES.get(side, side)} is off by {error:.1e}" for side, error in case["errors"].items()]
    print_line(case["name"], *medians, multiple(case["ratio"]), *firsts, ", ".join(wrong))


def summaries(found: Sequence[Case]) -> list[Case]:
    """Return the geometric mean of ratios for each library and size, and the ratios of slower rows."""
    groups: dict[tuple[str, int], list[Case]] = {}
    for case in found:
        if "ratio" in case:
            groups.setdefault((case["library"], case["exponent"]), []).append(case)
    return [
        {
            "library": library,
            "exponent": exponent,
            "rows": len(group),
            "geometric_mean": statistics.geometric_mean(case["ratio"] for case in group),
            "slower": {
                case["name"]: case["ratio"]
                for case in sorted(group, key=lambda case: case["ratio"])
                if case["ratio"] < SLOWER
            },
        }
        for (library, exponent), group in groups.items()
    ]


def print_summaries(found: Sequence[Case]) -> None:
    """Print geometric means, and the rows that are slower."""
    if not found:
        return
    table = [
        [
            f"{LIBRARIES[each['library']]}, 10^{each['exponent']}",
            str(each["rows"]),
            multiple(each["geometric_mean"]),
            str(len(each["slower"])),
        ]
        for each in found
    ]
    print()
    _common.print_table(["", "rows", "geometric mean", f"below {SLOWER:g}"], table)
    for each in found:
        if each["slower"]:
            names = (f"{name} {multiple(ratio)}" for name, ratio in each["slower"].items())
            print(f"{LIBRARIES[each['library']]}, 10^{each['exponent']}: {'; '.join(names)}")


def panels(result: Mapping[str, Any]) -> tuple[str, list[_common.Panel]]:
    """Return a title, and bars of each library and size in order of their ratios."""
    device = result["environment"]["gpu"]
    found = []
    for each in summaries(result["cases"]):
        name = LIBRARIES[each["library"]]
        cases = [
            case
            for case in result["cases"]
            if (case["library"], case["exponent"]) == (each["library"], each["exponent"]) and "ratio" in case
        ]
        bars = [
            _common.Bar(case["name"], [case["ratio"]], [bar_text(case)], int(case["ratio"] < 1))
            for case in sorted(cases, key=lambda case: -case["ratio"])
        ]
        title = (
            f"{name}, 10^{each['exponent']} items: {multiple(each['geometric_mean'])} in the geometric mean"
        )
        found.append(_common.Panel(bars, f"{name}'s time / cupar's", title, line=1.0, log=True))
    title = f"Whole calls, {device['name'] if device else 'CPU'}"
    return title, found


def bar_text(case: Case) -> str:
    """Return a ratio and its two times, in the unit of the longer one."""
    times = [case["seconds"][side]["median"] for side in (case["library"], "cupar")]
    unit, scale = ("ms", 1e-3) if max(times) >= 1e-3 else ("µs", 1e-6)
    its, mine = (f"{value / scale:.3g}" for value in times)
    return f"{multiple(case['ratio'])} ({its} / {mine} {unit})"


# --- Command line ----------------------------------------------------------------------------------------


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--library", nargs="+", choices=LIBRARIES, help="default: torch cupy jax; numpy torch jax on the CPU")
    add("--exponents", nargs="+", type=int, choices=range(3, 9), default=[3, 5, 7], help="10 to these items")
    add("--sizes", choices=("same", "other"), default="same", help="of the calls of a row; default same")
    add("--only", nargs="+", metavar="NAME", help="of rows; default all")
    add("--rounds", type=int, default=7, help="batches of each side; default 7")
    add("--seconds", type=float, default=300, help="after them, skip the rest; default 300")
    add("--cpu", action="store_true", help="also where there is a GPU")
    add("--json", type=Path, help="default: benchmarks/results/whole_calls-<gpu>.json")
    _common.add_plot_option(parser)
    return parser.parse_args(words)


def main() -> None:
    """Measure, print and write."""
    start = time.perf_counter()
    options = arguments()
    if options.plot:
        _common.plot_again(options.plot, panels)
        return
    device = None if options.cpu else _common.gpu()
    options.library = options.library or (["torch", "cupy", "jax"] if device else ["numpy", "torch", "jax"])
    if options.sizes == "other" and "jax" in options.library:
        options.library.remove("jax")
    os.environ.setdefault("CUPAR_TIER", "fast")  # nothing is linked while calls are timed
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX leaves memory for the others
    if device is None:
        os.environ["JAX_PLATFORMS"] = "cpu"
    facts = _common.environment(device)
    _common.print_environment(facts)
    found: list[Case] = []
    skipped: list[str] = []
    part = None
    for of, exponent, name, row, inputs in cases(options, device is not None):
        if time.perf_counter() - start > options.seconds:
            skipped.append(f"{LIBRARIES[of.name]} 10^{exponent} {name}")
            continue
        if part != (part := (of.name, exponent)):
            print(f"\n{LIBRARIES[of.name]}, 10^{exponent} items")
            print_line("", "cupar", LIBRARIES[of.name], "ratio", "first", "its first")
        found.append(measured(of, name, row, inputs, options))
        print_case(found[-1])
    if not found:
        raise SystemExit("\nNo row was measured: there is no such library here, or no row of that name.")
    summary = summaries(found)
    print_summaries(summary)
    if skipped:
        print(f"skipped after {options.seconds:g} s: {', '.join(skipped)}")
    content = {"benchmark": "whole_calls", "environment": facts, "sizes": options.sizes}
    path = options.json or _common.RESULTS / f"whole_calls-{_common.slug(device)}.json"
    _common.write_json(path, {**content, "summary": summary, "cases": found, "skipped": skipped})
    print(f"{time.perf_counter() - start:.0f} s in all")
    wrong = [
        f"{case['library']} 10^{case['exponent']} {case['name']}: {case.get('failure') or 'cupar is wrong'}"
        for case in found
        if "failure" in case or "cupar" in case["errors"]
    ]
    if wrong:
        raise SystemExit("\n".join(["", f"failed or wrong: {len(wrong)}", *wrong[:20]]))


if __name__ == "__main__":
    main()
