"""The functions of `cupar.arrays` as operators of PyTorch: results, shapes that are foretold, gradients."""

import functools
import inspect
import math
import operator

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import cupar  # noqa: E402
from cupar import arrays  # noqa: E402
from cupar import torch as ct  # noqa: E402
from cupar._torch import of_arrays  # noqa: E402
from cupar._torch.registration import numpy_dtype  # noqa: E402

F64 = torch.float64
X = torch.tensor([[3.0, -1.0, 4.0, 1.5], [-5.0, 9.0, 2.0, 6.0], [0.5, 3.5, -8.0, 7.0]], dtype=F64)
WORDS = torch.tensor([3, 1, 3, 0, 1])
SORTED = torch.tensor([0.0, 1.0, 2.5, 4.0], dtype=F64)


def larger(a, b):
    return a if abs(a) > abs(b) else b


def odd(a, b):
    return a % 2 == b % 2


def positive(a):
    return a > 0


# Name, arguments, and what is named; axes are `dim`.
CALLS = [
    ("sum", (X,), {}),
    ("sum", (X,), {"dim": 1, "keepdims": True}),
    ("sum", (X[:, None],), {"dim": [0, 2]}),
    ("sum", (WORDS.to(torch.uint8),), {}),
    ("sum", (X,), {"dim": 1, "where": (X > 1).to(torch.uint8)}),
    ("prod", (X,), {"dim": 0}),
    ("min", (X,), {"dim": 1}),
    ("max", (X,), {"dim": 0, "keepdims": True}),
    ("max", (X,), {}),
    ("minmax", (X,), {"dim": 1}),
    ("reduce", (X, larger), {"dim": 1, "init": -6.0}),
    ("any", (X > 8,), {"dim": 1}),
    ("all", (X > -9,), {}),
    ("count_nonzero", (WORDS,), {}),
    ("argmin", (X,), {"dim": 1}),
    ("argmax", (X,), {}),
    ("cumulative_sum", (X,), {"dim": 1, "include_initial": True}),
    ("cumulative_sum", (WORDS.to(torch.int8),), {}),
    ("cumulative_prod", (X,), {"dim": 0}),
    ("sort", (X,), {"descending": True}),
    ("sort", (X,), {"dim": None}),
    ("argsort", (X,), {"dim": 0}),
    ("top_k", (X, 2), {}),
    ("top_k", (X, 5), {"dim": None, "largest": False}),
    ("searchsorted", (SORTED, X), {"side": "right"}),
    ("segment_reduce", (X[:, 0], torch.tensor([1, 0, 1]), cupar.OpKind.PLUS, 3), {}),
    ("segment_reduce", (X[0], torch.tensor([2, 5, 0, -1]), larger, 3), {"init": 0.5}),
    ("segment_reduce", (X, torch.tensor([1, 0, 1]), cupar.OpKind.PLUS, 2), {"init": 0.5}),
    ("take", (X, torch.tensor([2, 0])), {"dim": 1}),
    ("take", (X, torch.tensor([[-1, 0], [-3, 2]])), {"dim": 0}),
    ("take", (X, torch.tensor([7, -1, 0])), {}),
    ("diff", (X,), {"n": 2, "prepend": X[:, :1] * 2, "append": X}),
    ("diff", (X,), {"n": 5}),
    ("diff", (X,), {"n": 0, "dim": 0, "prepend": X}),
    ("diff", (X,), {"dim": 0, "prepend": torch.tensor(2.0, dtype=F64)}),
    ("diff", (WORDS,), {"append": torch.tensor([0.5], dtype=torch.float32)}),
    ("isin", (WORDS, torch.tensor([1, 7])), {"invert": True}),
    ("merge", (SORTED, SORTED + 0.5), {}),
    ("merge", (torch.tensor([0, 2]), SORTED.to(torch.float32)), {}),
    ("unique_values", (WORDS,), {}),
    ("unique_counts", (WORDS,), {}),
    ("copy_if", (X, positive), {}),
    ("remove_if", (X, positive), {}),
    ("compress", (X[0], X[1] > 0), {}),
    ("all_of", (X, positive), {"dim": 1}),
    ("any_of", (X, positive), {"dim": [0, 1], "keepdims": True}),
    ("none_of", (X, positive), {}),
    ("count_if", (X, positive), {"dim": 0}),
    ("find_first", (X, positive), {}),
    ("partition_by", (X, positive), {}),
    ("nonzero", (WORDS,), {}),
    ("nonzero", ((X > 3).to(torch.int8),), {}),
    ("repeat", (X, torch.tensor([2, 0, 1])), {"dim": 0}),
    ("repeat", (X, torch.tensor([3])), {}),
    ("quantile", (X, [0.25, 0.9]), {"dim": 1}),
    ("quantile", (WORDS, [0.5]), {"method": "higher"}),
    ("median", (X,), {"dim": 1, "keepdims": True}),
    ("bincount", (WORDS,), {}),
    ("bincount", (WORDS,), {"weights": X.ravel()[:5], "size": 6}),
    ("histogram", (X,), {"bins": 3}),
    ("histogram", (WORDS,), {"bins": 2, "range": [0.0, 3.0], "density": True}),
    ("run_length_encode", (WORDS,), {}),
    ("reduce_by_key", (WORDS, X.ravel()[:5], larger), {"equal": odd, "init": 4.0}),
    ("unique_inverse", (WORDS,), {}),
    ("unique_all", (X,), {}),
    ("union1d", (WORDS, WORDS + 2), {}),
    ("union1d", (WORDS, SORTED.to(torch.float32)), {}),
    ("intersect1d", (WORDS, WORDS + 2), {}),
    ("setdiff1d", (WORDS, (WORDS + 2).to(torch.float32)), {"assume_unique": True}),
    ("setxor1d", (WORDS, WORDS + 2), {}),
    # Arguments that no call above gives.
    ("sum", (X,), {"dtype": torch.float32}),
    ("prod", (X,), {"keepdims": True, "where": X > 0, "dtype": torch.float32}),
    ("min", (X,), {"keepdims": True, "where": X > 0}),
    ("max", (X,), {"where": X > 0}),
    ("minmax", (X,), {"keepdims": True}),
    ("reduce", (X, larger), {"keepdims": True, "where": X > 0, "dtype": torch.float32}),
    *[(each, (X,), {"dim": [1], "keepdims": True}) for each in ("any", "all", "count_nonzero")],
    *[(each, (X,), {"dim": 0, "keepdims": True}) for each in ("argmin", "argmax")],
    *[(each, (X, positive), {"dim": 1, "keepdims": True}) for each in ("all_of", "none_of", "count_if")],
    ("cumulative_sum", (X,), {"dim": 1, "dtype": torch.float32}),
    ("cumulative_prod", (X,), {"dim": 1, "dtype": torch.float32, "include_initial": True}),
    ("sort", (X,), {"stable": False}),
    ("argsort", (X,), {"descending": True, "stable": False}),
    ("searchsorted", (SORTED, X), {"sorter": torch.arange(4)}),
    ("segment_reduce", (X[:, 0], torch.tensor([1, 0, 1]), cupar.OpKind.PLUS, 3), {"dtype": torch.float32}),
    ("quantile", (X, [0.5]), {"keepdims": True}),
    ("bincount", (WORDS,), {"minlength": 9}),
    ("histogram", (X,), {"weights": X}),
    ("reduce_by_key", (WORDS, X.ravel()[:5], cupar.OpKind.PLUS), {"dtype": torch.float32}),
    *[(each, (WORDS.unique(), WORDS[:1]), {"assume_unique": True}) for each in ("intersect1d", "setxor1d")],
]
WITH_GRADIENTS = [
    each
    for each in CALLS
    if of_arrays._ROWS[each[0]].gradient
    and each[1][0].is_floating_point()
    and not (each[0] == "segment_reduce" and larger in each[1])
    and not (each[0] == "reduce" and "where" in each[2])
    and "dtype" not in each[2]
]


def name(call):
    shown = [(k, getattr(v, "__name__", v)) for k, v in call[2].items() if not isinstance(v, torch.Tensor)]
    return f"{call[0]}-{', '.join(f'{k}={v}' for k, v in shown)}"


def tuples(found):
    return tuple(found) if isinstance(found, tuple) else (found,)


def test_every_argument_is_given():
    """Each is in one of the calls that are compared, but for comparisons."""
    for called in of_arrays.NAMES:
        known = inspect.signature(getattr(ct, called)).parameters
        positional = [each.name for each in known.values() if each.kind is not each.KEYWORD_ONLY]
        given = set()
        for each, arguments, named in CALLS:
            if each == called:
                given |= {*positional[: len(arguments)], *named}
        assert {*known} <= given | {"op", "less", "equal"}


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_what_arrays_do(call):
    """Results are those of `cupar.arrays`, and PyTorch is told of their shapes, dtypes and strides."""
    called, given, named = call
    axes = {("axis" if k == "dim" else k): tuple(v) if isinstance(v, list) else v for k, v in named.items()}
    if "dtype" in axes:
        axes["dtype"] = numpy_dtype("dtype", axes["dtype"])
    expected = getattr(arrays, called)(*given, **axes)
    found = getattr(ct, called)(*given, **named)
    assert type(found) is type(expected) or isinstance(found, torch.Tensor)
    for one, other in zip(tuples(found), tuples(expected), strict=True):
        assert torch.equal(one, other) and one.dtype == other.dtype
    fns = [each for each in given if callable(each) or isinstance(each, cupar.OpKind)]
    op = of_arrays.operator_of(called, *fns, *[named[each] for each in ("less", "equal") if each in named])
    rest = tuple(each for each in given if not any(each is fn for fn in fns))
    options = {k: v for k, v in named.items() if k not in ("less", "equal")}
    torch.library.opcheck(op, rest, options, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("call", WITH_GRADIENTS, ids=name)
def test_gradients(call):
    called, (x, *others), named = call

    def function(x):
        found = tuples(getattr(ct, called)(x, *others, **named))
        return tuple(each for each in found if each.is_floating_point())

    expected = function(x)
    x = x.clone().requires_grad_()
    torch.testing.assert_close(function(x), expected, rtol=1e-14, atol=0)
    assert torch.autograd.gradcheck(function, x, check_forward_ad=True)
    if called in ("sum", "top_k", "cumulative_prod", "segment_reduce"):
        assert torch.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("called", ["sum", "prod", "min", "max"])
def test_items_that_count(called):
    """With their gradients, also batch by batch."""
    where, ours = X > 1, getattr(ct, called)
    assert torch.equal(ours(X, dim=1, where=where), getattr(arrays, called)(X, axis=1, where=where))
    assert torch.autograd.gradcheck(lambda x: ours(x, dim=1, where=where), X.clone().requires_grad_())


@pytest.mark.parametrize(("shape", "dim"), [((0,), None), ((3, 0), 1), ((0, 3), 0), ((3, 0), 0)])
def test_products_of_no_items(shape, dim):
    x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    found = ct.prod(x, dim)
    assert torch.equal(found, ct.prod(x.detach(), dim)) and (found == 1).all()
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert slope.shape == shape


ONES = torch.tensor([True, False, True, True])
# What is refused with and without a gradient, and as it is compiled, in the same words.
REFUSED = [
    *[(each, (X,), {"dim": 5}, "dim: expected from -2 to 1") for each in ("sum", "max", "sort", "median")],
    ("sort", (X,), {"dim": -7}, "dim: expected from -2 to 1"),
    ("take", (X, torch.tensor([0])), {"dim": 5}, "dim: expected from -2 to 1"),
    ("repeat", (X, 2), {"dim": 5}, "dim: expected from -2 to 1"),
    ("cumulative_sum", (X,), {"dim": 2}, "dim: expected from -2 to 1"),
    ("cumulative_prod", (X,), {}, "dim: expected one of 2, as `x` has several, got None"),
    ("quantile", (X, 0.5), {"dim": [0, 0]}, "dim: expected different dimensions"),
    ("quantile", (X, -0.5), {}, "q: expected numbers from 0 to 1"),
    ("quantile", (X, [0.5, 2.0]), {}, "q: expected numbers from 0 to 1"),
    ("quantile", (X, 0.3), {"method": "no such"}, "method: expected one of 'linear'"),
    ("quantile", (X.to(torch.complex64), 0.3), {}, "x: quantile takes real numbers"),
    ("quantile", (X[:0], 0.3), {}, "x: expected at least one item"),
    ("median", (X[:0],), {"dim": 0}, "x: expected at least one item"),
    ("min", (X[:0],), {}, "x: min of no items has no result"),
    ("minmax", (X[:, :0],), {"dim": 1}, "x: minmax of no items has no result"),
    ("sum", (X,), {"where": ONES}, "where: expected an array of bool of the shape"),
    ("prod", (X,), {"where": X[:, :1] > 0, "dim": 0}, "where: expected an array of bool of the shape"),
    ("reduce", (X, larger), {"init": 2j, "dim": 0}, "init: expected one value of float64"),
    ("top_k", (X, 5), {}, "k: expected from 0 to 4"),
    ("diff", (X,), {"n": -1}, "n: expected 0 or more"),
    ("diff", (X,), {"prepend": X[:1]}, "prepend: expected the shape of `x`"),
    ("segment_reduce", (X[0], WORDS[:4], cupar.OpKind.PLUS, -1), {}, "num_segments: expected from 0 to"),
]


def refusal(call):
    with pytest.raises((TypeError, ValueError, IndexError)) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("call", REFUSED, ids=name)
def test_refusals(call):
    """One set of checks serves calls with and without a gradient, and those of fake tensors."""
    called, (x, *others), named, said = call
    ours = getattr(ct, called)
    assert refusal(lambda: ours(x, *others, **named)).startswith(said)
    assert refusal(lambda: ours(x.clone().requires_grad_(), *others, **named)).startswith(said)
    with FakeTensorMode() as mode:

        def fake(value):
            return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

        x, others = fake(x), [*map(fake, others)]
        named = {each: fake(value) for each, value in named.items()}
        assert refusal(lambda: ours(x, *others, **named)).startswith(said)
        assert refusal(lambda: ours(x.detach().requires_grad_(), *others, **named)).startswith(said)


@pytest.mark.parametrize(
    ("items", "function"),
    [
        (torch.tensor([-6e4, 6e4]).half(), lambda x: ct.quantile(x, 0.25)),
        (torch.tensor([-3e38, 3e38]), ct.median),
        (torch.tensor([-math.inf, 1.0, 2.0]), lambda x: ct.quantile(x, 0.3, method="midpoint")),
        (torch.tensor([0.0, math.inf]), lambda x: ct.quantile(x, [0.0, 0.75])),
        (torch.tensor([math.nan, 1.0]), ct.median),
    ],
)
def test_quantiles_of_extremes(items, function):
    """Their values are the same with a gradient, which is finite."""
    x = items.clone().requires_grad_()
    found = function(x)
    torch.testing.assert_close(found, function(items), rtol=0, atol=0, equal_nan=True)
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert slope.sum() == found.numel()


@pytest.mark.parametrize("called", ["min", "max", "prod", "median", "quantile"])
def test_gradients_along_several_dimensions(called):
    x = torch.stack([X, 3 * X + 0.25]).requires_grad_()
    ours = ct.quantile if called == "quantile" else getattr(ct, called)
    others = ([0.3, 0.9],) if called == "quantile" else ()
    for keepdims in (False, True):
        function = functools.partial(ours, dim=(2, 0), keepdims=keepdims)
        expected = function(x.detach(), *others)
        torch.testing.assert_close(function(x, *others).detach(), expected)
    assert torch.autograd.gradcheck(lambda x: function(x, *others), x)


def test_a_length_that_is_known_is_compiled():
    """Shapes of `take` of all items, and of differences, are those of calls."""
    at, point = torch.tensor([0, 7, 1]), torch.tensor(1.0, dtype=F64)

    def function(x):
        found = ct.take(x, at), ct.diff(x, n=9), ct.diff(x, prepend=point, dim=0)
        return [each * each.numel() for each in found]

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for one, other in zip(compiled(X), function(X), strict=True):
        assert torch.equal(one, other)


def test_items_that_count_in_batches():
    where = X > 1
    batched = torch.func.vmap(lambda x, where: ct.sum(x, dim=0, where=where))(X, where)
    assert torch.equal(batched, ct.sum(X, dim=1, where=where))
    assert torch.equal(ct.sum(X[0, 0], dim=0, where=where[0, 0]), X[0, 0])
    with pytest.raises(RuntimeError, match="where: the gradient of reduce is known of all items alone"):
        ct.reduce(X.clone().requires_grad_(), larger, dim=1, where=where)


@pytest.mark.parametrize(("q", "dim"), [([0.25, 0.75], 0), ([0.25, 0.75], None), (0.5, None), (0.5, -1)])
def test_quantiles_in_batches(q, dim):
    """As many as there are of the batch, too: rows and quantiles are not exchanged."""
    x = torch.stack([X[:2], X[1:]])
    found = torch.func.vmap(lambda x: ct.quantile(x, q, dim), in_dims=2)(x.movedim(0, 2))
    assert torch.equal(found, torch.stack([ct.quantile(each, q, dim) for each in x]))


def test_several_dimensions_in_batches():
    x = torch.stack([X, 2 * X])
    found = torch.func.vmap(lambda x: ct.sum(x, (-1, 0)), in_dims=1)(x.movedim(0, 1))
    assert torch.equal(found, x.sum((1, 2)))
    with pytest.raises(IndexError, match="dim: expected from -2 to 1"):
        torch.func.vmap(lambda x: ct.sum(x, 2))(x)


def test_dtypes():
    words = WORDS.to(torch.int8)
    for found in (ct.sum(words, dtype=torch.float32), ct.reduce(words, operator.add, dtype=torch.float32)):
        assert (found.item(), found.dtype) == (8, torch.float32)
    assert ct.reduce_by_key(WORDS, words, dtype=torch.bfloat16).values.dtype is torch.bfloat16
    torch.library.opcheck(torch.ops.cupar.sum.default, (X, [1], False, torch.float32, X > 0))
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(ct.prod(x, dtype=torch.float32, where=X > 6), x)
    assert torch.equal(found, torch.where(X > 6, 63 / X, 0))


def shorter(a, b):
    return abs(a) < abs(b)


def test_comparisons():
    x = X.clone().requires_grad_()
    found, places = ct.sort(x, dim=1, less=shorter), ct.argsort(x, dim=1, less=shorter)
    assert torch.equal(places, X.abs().argsort(1)) and torch.equal(found, X.gather(1, places))
    assert torch.equal(torch.autograd.grad(found[:, 0].sum(), x)[0].nonzero()[:, 1], places[:, 0])
    assert ct.merge(torch.tensor([5, 2]), torch.tensor([4, 3]), less=operator.gt).tolist() == [5, 4, 3, 2]
    assert ct.run_length_encode(WORDS, equal=lambda a, b: a // 2 == b // 2).values.tolist() == [1, 1, 1, 2]
    compiled = torch.compile(lambda x: ct.sort(x, less=shorter), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(X), found.detach())


def test_numbers_in_place_of_tensors():
    """A quantile of one number has no dimension of its own; items are repeated a number of times."""
    for q in (0.25, 1, [0.25], (0.5, 1.0)):
        assert torch.equal(ct.quantile(X, q, dim=0), arrays.quantile(X, q, axis=0))
    assert torch.equal(ct.repeat(WORDS, 2), WORDS.repeat_interleave(2))
    x = X.clone().requires_grad_()
    (found,) = torch.autograd.grad(ct.quantile(x, 0.5) + ct.repeat(x, 3, dim=1).sum(), x)
    assert torch.equal(found, 3 + torch.isin(X, torch.tensor([2.0, 3.0], dtype=F64)).to(F64) / 2)


def test_tensors_without_dimensions():
    """They are rows of one item, as PyTorch's own functions take them."""
    x = torch.tensor(2.5, dtype=F64, requires_grad=True)
    for dim in (0, -1):
        for called in ("sum", "max", "argmax", "sort", "argsort", "cumulative_sum", "median"):
            own = {"cumulative_sum": "cumsum", "argsort": "argsort"}.get(called, called)
            found, expected = getattr(ct, called)(x, dim=dim), getattr(torch, own)(x, dim=dim)
            expected = expected[0] if isinstance(expected, tuple) else expected
            assert torch.equal(found, expected) and found.shape == ()
    assert [each.shape for each in ct.top_k(x, 1)] == [(), ()]
    for q, shape in ((0.5, ()), ([0.5], (1,)), ([0.25, 0.5], (2,))):
        for keepdims in (False, True):
            found = ct.quantile(x, q, dim=0, keepdims=keepdims)
            expected = torch.quantile(x, torch.tensor(q, dtype=F64), dim=0, keepdim=keepdims)
            assert torch.equal(found, expected) and found.shape == shape
    assert ct.repeat(x, 1, dim=0).shape == (1,)
    assert torch.autograd.grad(ct.sort(x) + ct.reduce(x, larger, dim=0), x)[0] == 2
    with pytest.raises(IndexError, match="^dim: expected from -1 to 0"):
        ct.sum(x, dim=1)


def test_transforms():
    """A batch is one more dimension; what has no dimension goes batch by batch."""
    found = torch.func.vmap(lambda x: ct.top_k(x, 2).values)(X)
    assert torch.equal(found, torch.topk(X, 2).values)
    found = torch.func.vmap(ct.max, in_dims=1)(X)
    assert torch.equal(found, X.max(0).values)
    found = torch.func.vmap(torch.func.grad(lambda x: ct.sort(x)[0] + ct.sum(x)))(X)
    assert torch.equal(found, 1 + (X.min(1, keepdim=True).values == X).to(F64))


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # the default, but not in PyTorch 2.9
def test_compiled():
    """Lengths that depend on data are known by a symbol."""

    def function(x):
        ordered = ct.sort(x, dim=0)
        kept = ct.copy_if(ordered, positive)
        (places,) = ct.nonzero(kept)
        runs = ct.reduce_by_key(places // 2, ct.repeat(kept, 1))
        firsts = ct.quantile(x, 0.5, dim=1), ct.find_first(x, positive), runs.values.sum()
        return ct.sum(kept * 2) + ct.reduce(ordered, larger, dim=1).sum(), ct.top_k(x, 2).indices, *firsts

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=True)
    for x in (X, X[:, :3].contiguous() * 2):
        for one, other in zip(compiled(x), function(x), strict=True):
            torch.testing.assert_close(one, other)
    x = X.clone().requires_grad_()
    trained = torch.compile(
        lambda x: ct.max(x, dim=1) + ct.sum(x, dim=1) + ct.min(x), fullgraph=True, backend="aot_eager"
    )
    (found,) = torch.autograd.grad(trained(x).sum(), x)
    expected = 1 + (X.max(1, keepdim=True).values == X).to(F64) + 3 * (X.min() == X)
    assert torch.equal(found, expected)


def test_what_has_no_gradient():
    x = X.clone().requires_grad_()
    assert not ct.argmax(x).requires_grad
    for call in (lambda: ct.unique_values(x), lambda: ct.segment_reduce(x[0], WORDS[:4], operator.mul, 4)):
        with pytest.raises(RuntimeError, match="it has no gradient; give it .detach"):
            call()
    assert ct.unique_values(x.detach()).shape == (12,)


def test_names():
    assert set(of_arrays.NAMES) <= set(ct.__all__) and set(of_arrays.NAMES) <= set(arrays.__all__)
    with pytest.raises(AttributeError, match="no attribute 'gone'"):
        ct.gone
    with pytest.raises(TypeError, match="copy_if: expected a function as argument 2, got none"):
        ct.copy_if(X)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda: ct.sum(X, axis=1),
            TypeError,
            r"sum\(\) got an unexpected keyword argument 'axis': it takes \(x,",
        ),
        (lambda: ct.sort([1.0]), TypeError, "x: expected a tensor, got list"),
        (
            lambda: ct.sum(X.to_sparse()),
            TypeError,
            "x: sum takes dense tensors, got one that is torch.sparse_coo",
        ),
        (
            lambda: ct.sum(X, dim=1, where=X[0] > 0),
            ValueError,
            "where: expected an array of bool of the shape",
        ),
        (lambda: ct.reduce_by_key(WORDS, X[0], equal=1), TypeError, "equal: expected a function"),
        (lambda: ct.reduce(X, None), TypeError, "^op: expected a function, an OpKind or a ufunc, got None"),
        (lambda: ct.scan(X, None, dim=0), TypeError, "^fn: expected a function, an OpKind or a ufunc, got"),
        (lambda: ct.scan((X, X), None, dim=0), TypeError, "^fn: expected a function or an OpKind, got None"),
        (lambda: ct.transform(None, X), TypeError, "^fn: expected a function, an OpKind or a ufunc, got"),
    ],
)
def test_what_they_refuse(call, error, said):
    with pytest.raises(error, match=said) as caught:
        call()
    assert len(str(caught.value).splitlines()) < 20


def test_help():
    shown = {
        name: str(inspect.signature(getattr(ct, name))).replace("'", "") for name in ("top_k", "copy_if")
    }
    assert shown["top_k"] == "(x: Tensor, k: int, /, dim: int | None = -1, largest: bool = True) -> TopK"
    assert shown["copy_if"] == "(x: Tensor, predicate: Op, /) -> Tensor"
    for name in of_arrays.NAMES:
        assert getattr(ct, name).__doc__.startswith(getattr(arrays, name).__doc__.partition("\n")[0])


@pytest.mark.parametrize("dim", [2, -3, (0, 2)])
@pytest.mark.parametrize("name", ["sum", "sort", "argmax"])
def test_dimensions_that_are_not_there(name, dim):
    dim = dim if name == "sum" or isinstance(dim, int) else dim[1]
    with pytest.raises(IndexError, match="^dim: expected from -2 to 1 for a 2-dimensional tensor, got "):
        getattr(ct, name)(X, dim=dim)
