"""Random calls of `cupar.torch`: against `cupar.arrays` and NumPy, with gradients, and of fake tensors."""

import math
import random

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import cupar
from cupar import arrays
from cupar import torch as ct

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.uint8, torch.int32, torch.bool, torch.int8, torch.int16, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
NO_GRADIENT = (
    "it has no gradient; give it .detach",
    "where: the gradient of reduce is known of all items alone",
)


def larger(a, b):
    return a if a > b else b


def positive(a):
    return a > 0


class Draw:
    """What is drawn: tensors of any layout and dtype, dimensions, and now and then what is refused."""

    def __init__(self, seed, dtypes):
        self.random, self.dtypes = random.Random(seed), dtypes
        self.is_extreme = False  # whether there are numbers with which sums overflow

    def one(self, *choices):
        return self.random.choice(choices)

    def perhaps(self, make):
        return make() if self.random.random() < 0.3 else None

    def shape(self, least=0, most=3):
        return tuple(self.one(1, 2, 3, 5, 5, 0) for _ in range(self.random.randint(least, most)))

    def items(self, shape, dtype):
        """Return a tensor with small numbers of a dtype; in some are extremes, infinities and NaN, too."""
        values = [0, 1, 2, 3, 5]
        is_extreme = dtype is not torch.bool and self.random.random() < 0.2
        self.is_extreme |= is_extreme
        if dtype.is_floating_point or dtype.is_complex:
            values += [-1, 0.5, -2.5, -0.0]
            if is_extreme:
                most = torch.finfo(dtype).max
                values += self.one([math.nan], [math.inf], [-math.inf, math.inf], [most], [most, -most])
        elif dtype is not torch.bool:
            if is_extreme:
                values += [torch.iinfo(dtype).max, torch.iinfo(dtype).min]
            elif dtype.is_signed:
                values += [-1, -2]
        chosen = [self.random.choice(values) for _ in range(math.prod(shape))]
        if dtype.is_complex:
            chosen = [complex(each, self.random.choice(values[:5])) for each in chosen]
        return torch.tensor(chosen, dtype=dtype).reshape(shape)

    def laid_out(self, shape, dtype):
        """Return a tensor that is contiguous, transposed, strided, expanded, or begins in the middle."""
        style = self.one("plain", "plain", "transposed", "strided", "expanded", "offset")
        if style == "transposed":
            return self.items(shape[::-1], dtype).permute([*range(len(shape))][::-1])
        if style == "strided":
            x = self.items([2 * n + 1 for n in shape], dtype)
            return x[tuple(slice(1, None, 2) for _ in shape)]
        if style == "expanded":
            return self.items([self.one(1, n) for n in shape], dtype).expand(shape)
        if style == "offset":
            size = math.prod(shape)
            return self.items((size + 1,), dtype)[1:].reshape(shape)
        return self.items(shape, dtype)

    def x(self, least=0, most=3, dtypes=None, shape=None):
        dtype = self.one(*(self.dtypes if dtypes is None else dtypes))
        return self.laid_out(self.shape(least, most) if shape is None else shape, dtype)

    def dim(self, x, none=False):
        """Return a dimension, None, or one that does not exist."""
        if self.random.random() < 0.1:
            return self.one(x.ndim, -x.ndim - 1, 7)
        every = [*range(-x.ndim, x.ndim), *([None] if none else [])] or [0, -1]
        return self.one(*every)

    def dims(self, x):
        if x.ndim > 1 and self.random.random() < 0.3:
            return self.one([0, 1], (-1, 0), [-1])
        return self.dim(x, True)

    def flags(self, x):
        shape = x.shape if self.random.random() < 0.8 else self.one(x.shape[1:], (1,) * x.ndim, (7,))
        dtype = self.one(torch.bool, torch.bool, torch.uint8, torch.int64)
        return self.items(shape, dtype)

    def indices(self, shape, length):
        wrong = self.random.random() < 0.1 or not length
        low, high = (-9, 9) if wrong else (-length, length)
        chosen = [self.random.randrange(low, high) for _ in range(math.prod(shape))]
        return torch.tensor(chosen, dtype=self.one(torch.int64, torch.int32)).reshape(shape)


# --- Checks -----------------------------------------------------------------------------------------------

REFUSALS = (TypeError, ValueError, IndexError)
# Those of NumPy's names that take the same arguments, and what they are called there.
NAMES_OF_NUMPY = [
    *("sum", "prod", "min", "max", "any", "all", "count_nonzero", "argmin", "argmax", "take", "diff", "isin"),
    *("repeat", "quantile", "median", "searchsorted", "nonzero", "sort"),
]
SUMS = "sum", "prod", "cumulative_sum", "cumulative_prod", "quantile", "median", "diff", "segment_reduce"
# Their derivatives times the items are their results: Euler's theorem on homogeneous functions.
HOMOGENEOUS = {"sum", "min", "max", "minmax", "sort", "top_k", "take", "repeat", "quantile", "median"}
HOMOGENEOUS |= {"cumulative_sum", "segment_reduce", "reduce", "diff"}


def attempt(call):
    """Return the results of a call and None, or None and why it is refused."""
    try:
        found = call()
    except REFUSALS as error:
        assert len(str(error).splitlines()) <= 20
        return None, error
    except RuntimeError as error:
        if not any(each in str(error) for each in NO_GRADIENT):
            raise
        return None, error
    return tuple(found) if isinstance(found, (tuple, list)) else (found,), None


def close(one, other, is_rounded):
    """Whether tensors are equal, or are so within rounding."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    one, other = (
        each.to(torch.complex128 if each.dtype.is_complex else torch.float64) for each in (one, other)
    )
    allowed = 2e-2 if is_rounded else 0
    return torch.allclose(one, other, rtol=allowed, atol=allowed, equal_nan=True)


def check(name, draw):
    """Make a random call of a function in all ways, and compare."""
    given, named = CASES[name](draw)
    Call(name, given, named, draw.is_extreme).check()


class Call:
    """A call of a function with some arguments."""

    def __init__(self, name, given, named, is_extreme):
        self.name, self.given, self.named, self.is_extreme = name, given, named, is_extreme
        self.function, x = getattr(ct, name), given[0]
        self.has_gradient = x.is_floating_point() or x.is_complex()

    def __repr__(self):
        shown = [*map(str, self.given), *(f"{k}={v}" for k, v in self.named.items())]
        return f"ct.{self.name}({', '.join(shown)})"

    def check(self):
        results, refused = attempt(lambda: self.function(*self.given, **self.named))
        if refused is None:
            assert all(each.is_contiguous() and not each.requires_grad for each in results), self
            self.compare_with_arrays(results)
            self.compare_with_numpy(results)
        self.compare_fakes(results, refused, False)
        if self.has_gradient:
            self.compare_with_gradients(results, refused)
            self.compare_fakes(results, refused, True)

    def on_numpy(self, module, renamed=("dim", "axis")):
        """Return the results of the function of another module for NumPy's arrays."""

        def of_numpy(value):
            value = value.detach().clone().numpy() if isinstance(value, torch.Tensor) else value
            return getattr(np, str(value)[6:]) if isinstance(value, torch.dtype) else value

        axes = {renamed[1] if k == renamed[0] else k: of_numpy(v) for k, v in self.named.items()}
        if isinstance(axes.get("axis"), list):
            axes["axis"] = tuple(axes["axis"])
        found = getattr(module, self.name)(*map(of_numpy, self.given), **axes)
        return [torch.as_tensor(each) for each in (found if isinstance(found, tuple) else (found,))]

    def is_of_numpy(self):
        tensors = [each for each in (*self.given, *self.named.values()) if isinstance(each, torch.Tensor)]
        return self.given[0].ndim > 0 and all(each.dtype is not torch.bfloat16 for each in tensors)

    def compare_with_arrays(self, results):
        if self.is_of_numpy():
            expected = self.on_numpy(arrays)
            assert all(map(close, results, expected, [self.name in SUMS] * len(results))), (self, expected)

    def compare_with_numpy(self, results):
        is_known = self.name in NAMES_OF_NUMPY and not {"descending", "stable"} & {*self.named}
        if not is_known or not self.is_of_numpy() or (self.name in SUMS and self.is_extreme):
            return
        with np.errstate(all="ignore"):
            try:
                expected = self.on_numpy(np)
            except (*REFUSALS, AttributeError):  # what NumPy does not take, or names otherwise
                return
        for one, other in zip(results, expected, strict=True):
            other = other.to(one.dtype) if one.dtype.is_floating_point else other
            assert close(one, other, self.name in SUMS), (self, one, other)

    def compare_with_gradients(self, results, refused):
        """The same values, and the same refusals; and gradients by Euler's theorem."""
        x = self.given[0].detach().requires_grad_()
        found, why = attempt(lambda: self.function(x, *self.given[1:], **self.named))
        if isinstance(why, RuntimeError):  # the function has no gradient
            return
        assert (why is None) == (refused is None), (self, refused, why)
        if refused is not None:
            assert type(why) is type(refused), (self, refused, why)
            return
        for one, other in zip(results, found, strict=True):
            assert close(one, other.detach(), self.name in SUMS), (self, one, other)
        some = [each for each in found if each.requires_grad]
        if not some:
            return
        total = sum((each.double() if not each.is_complex() else each.cdouble()).sum() for each in some)
        (slope,) = torch.autograd.grad(total.real, x)
        assert slope.shape == x.shape and slope.dtype == x.dtype, self
        is_homogeneous = self.name in HOMOGENEOUS and not {"init", "prepend", "append"} & {*self.named}
        if is_homogeneous and not self.is_extreme and not x.is_complex() and total.isfinite():
            product = (slope.double() * x.detach().double()).sum()
            assert torch.allclose(product, total.detach(), rtol=3e-2, atol=3e-2), (self, slope, total)

    def compare_fakes(self, results, refused, with_gradient):
        """Shapes, dtypes and strides that a compiler is told; what it accepts may be refused in a call."""
        with FakeTensorMode(shape_env=ShapeEnv()) as mode:

            def fake(value):
                if not isinstance(value, torch.Tensor):
                    return value
                asks = with_gradient and value is self.given[0]
                return mode.from_tensor(value, static_shapes=True).detach().requires_grad_(asks)

            given, named = [*map(fake, self.given)], {k: fake(v) for k, v in self.named.items()}
            found, why = attempt(lambda: self.function(*given, **named))
        if isinstance(why, RuntimeError):
            return
        if refused is not None:
            assert why is None or type(why) is type(refused), (self, refused, why)
            return
        assert why is None, (self, why)
        for one, other in zip(results, found, strict=True):
            shape = [n if type(n) is int else None for n in other.shape]  # others depend on data
            assert (one.ndim, one.dtype) == (other.ndim, other.dtype), (self, one, other)
            assert all(n in (None, m) for n, m in zip(shape, one.shape, strict=True)), (self, one, other)
            if not with_gradient and None not in shape and one.numel():
                assert one.stride() == other.stride(), (self, one, other)


# --- Calls ------------------------------------------------------------------------------------------------

# Each takes a draw, and returns the arguments of a function, by position and by name.


def _reduced(where=False, dtype=False, several=True):
    def made(draw):
        x = draw.x()
        named = {"keepdims": draw.one(False, True)}
        if draw.one(0, 1, 1):
            named["dim"] = draw.dims(x) if several else draw.dim(x, True)
        if where and (flags := draw.perhaps(lambda: draw.flags(x))) is not None:
            named["where"] = flags
        if dtype and draw.perhaps(lambda: True):
            named["dtype"] = draw.one(torch.float64, torch.float32)
        return (x,), named

    return made


def _with(op, made, **more):
    def function(draw):
        (x,), named = made(draw)
        for name, choices in more.items():
            if draw.perhaps(lambda: True):
                named[name] = draw.one(*choices)
        return (x, op), named

    return function


def _along(*names, none=True, **more):
    """Return the calls of functions of a tensor along a dimension, with flags and what else there is."""

    def made(draw):
        x = draw.x()
        named = {name: draw.one(False, True) for name in names if draw.one(0, 1)}
        named |= {name: draw.one(*choices) for name, choices in more.items() if draw.one(0, 1)}
        if draw.one(0, 1, 1):
            named["dim"] = draw.dim(x, none)
        return (x,), named

    return made


def _cumulated(draw):
    (x,), named = _along("include_initial", dtype=[torch.float64, torch.float32])(draw)
    return (x,), named


def _top_k(draw):
    (x,), named = _along("largest")(draw)
    return (x, draw.one(0, 1, 1, 2, 3, -1)), named


def _searched(draw):
    x1 = draw.x(1, 1)
    x1 = torch.where(x1 == x1, x1, 0).real.sort().values if not x1.dtype.is_complex else x1
    named = {"side": draw.one("left", "right")} if draw.one(0, 1) else {}
    if draw.perhaps(lambda: True):
        named["sorter"] = torch.arange(x1.shape[0])
    return (x1, draw.x()), named


def _segments(draw):
    x = draw.x(1)
    ids = draw.indices(draw.one(x.shape, x.shape[:1]), 4)
    named = {"init": draw.one(0, 1, 2.5)} if draw.perhaps(lambda: True) else {}
    return (x, ids, draw.one(cupar.OpKind.PLUS, larger), draw.one(0, 3, 3, 3, -1)), named


def _taken(draw):
    x = draw.x()
    named = {"dim": draw.dim(x, True)} if draw.one(0, 1, 1) else {}
    dim = named.get("dim")
    length = x.numel() if dim is None else x.shape[dim] if -x.ndim <= dim < x.ndim else 3
    return (x, draw.indices(draw.shape(0, 2), length)), named


def _differences(draw):
    x = draw.x()
    named = {"n": draw.one(0, 1, 2, 7, -1)} if draw.one(0, 1) else {}
    if draw.one(0, 1):
        named["dim"] = draw.dim(x)
    dim = named.get("dim", -1)
    for name in ("prepend", "append"):
        if draw.perhaps(lambda: True):
            shape = [*x.shape]
            if -x.ndim <= dim < x.ndim:
                shape[dim] = draw.one(0, 1, 2)
            shape = draw.one(shape, shape, ())
            named[name] = draw.x(shape=shape, dtypes=[x.dtype, draw.one(*draw.dtypes)])
    return (x,), named


def _two(*names):
    def made(draw):
        named = {name: draw.one(False, True) for name in names if draw.one(0, 1)}
        return (draw.x(), draw.x()), named

    return made


def _merged(draw):
    a, b = draw.x(1, 1), draw.x(draw.one(0, 1, 1), 1)
    return tuple(ct.sort(each.detach(), dim=None) for each in (a, b)), {}


def _quantiles(draw):
    (x,), named = _reduced()(draw)
    if draw.one(0, 1):
        named["method"] = draw.one("linear", "lower", "higher", "nearest", "midpoint", "no such")
    return (x, draw.one(0.5, 0.25, [0.3, 0.9], [0.0, 1.0, 0.5], 1, -0.5, 2.0, [])), named


def _binned(draw):
    x = draw.x(1, 1, dtypes=[torch.int64, torch.uint8])
    x = x.clamp(0, 6)
    named = {}
    if draw.perhaps(lambda: True):
        named["weights"] = draw.x(shape=x.shape)
    if draw.perhaps(lambda: True):
        named["minlength"] = draw.one(0, 3, 9)
    if draw.perhaps(lambda: True):
        named["size"] = draw.one(3, 9)
    return (x,), named


def _histogram(draw):
    x, named = draw.x(), {}
    if draw.one(0, 1):
        named["bins"] = draw.one(1, 3, 0)
    if draw.one(0, 1):
        named["range"] = draw.one([0.0, 3.0], [2.0, 2.0], [3.0, 0.0], (0, 1))
    if draw.perhaps(lambda: True):
        named["weights"] = draw.x(shape=x.shape)
    if draw.perhaps(lambda: True):
        named["density"] = True
    return (x,), named


def _runs(draw):
    keys = draw.x(1, 1)
    op = draw.one(cupar.OpKind.PLUS, larger)
    return (keys, draw.x(shape=keys.shape if draw.one(0, 1, 1) else (2,)), op), {}


def _repeats(draw):
    x = draw.x()
    named = {"dim": draw.dim(x, True)} if draw.one(0, 1, 1) else {}
    dim = named.get("dim")
    length = x.numel() if dim is None else x.shape[dim] if -x.ndim <= dim < x.ndim else 3
    times = draw.one(
        2, 0, 1, -1, torch.tensor([draw.one(0, 1, 2, 3) for _ in range(length)], dtype=torch.int64)
    )
    return (x, times), named


def _alone(draw):
    return (draw.x(),), {}


def _flagged(draw):
    x = draw.x()
    return (x, draw.flags(x)), {}


CASES = {
    **dict.fromkeys(("sum", "prod"), _reduced(where=True, dtype=True)),
    **dict.fromkeys(("min", "max"), _reduced(where=True)),
    **dict.fromkeys(("minmax", "any", "all", "count_nonzero", "median"), _reduced()),
    "reduce": _with(larger, _reduced(where=True, dtype=True), init=[0, 1, 2.5]),
    **dict.fromkeys(("argmin", "argmax"), _reduced(several=False)),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), _cumulated),
    **dict.fromkeys(("sort", "argsort"), _along("descending", "stable")),
    "top_k": _top_k,
    "searchsorted": _searched,
    "segment_reduce": _segments,
    "take": _taken,
    "diff": _differences,
    "isin": _two("invert"),
    "merge": _merged,
    **dict.fromkeys(
        ("unique_values", "unique_counts", "nonzero", "run_length_encode", "unique_inverse", "unique_all"),
        _alone,
    ),
    **dict.fromkeys(("copy_if", "remove_if", "find_first", "partition_by"), _with(positive, _alone)),
    **dict.fromkeys(("all_of", "any_of", "none_of", "count_if"), _with(positive, _reduced())),
    "compress": _flagged,
    "repeat": _repeats,
    "quantile": _quantiles,
    "bincount": _binned,
    "histogram": _histogram,
    "reduce_by_key": _runs,
    **dict.fromkeys(("intersect1d", "setdiff1d", "setxor1d"), _two("assume_unique")),
    "union1d": _two(),
}
