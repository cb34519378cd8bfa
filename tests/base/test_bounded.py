"""Tables of a process: emptied by `cupar.cache.clear`, and in forked children."""

import os

import numpy as np
import pytest

import cupar
from cupar._base import bounded as tables
from cupar._base.data import Recent


def test_clear_empties_those_of_pytorch(empty_cache):
    torch = pytest.importorskip("torch")
    from cupar import torch as ct

    x = torch.full((3, 4), 0.5)
    for _ in range(2):
        expected = ct.linear_recurrence(x, x)
    scanned = ct.scan(x, lambda a, b: a + b, dim=1)
    assert [each for each in tables.registered if isinstance(each, Recent) and each.all()]
    cupar.cache.clear(disk=False)
    assert not [each for each in tables.registered if isinstance(each, Recent) and each.all()]
    assert torch.equal(ct.linear_recurrence(x, x), expected)
    assert torch.equal(ct.scan(x, lambda a, b: a + b, dim=1), scanned)


def test_clear_empties_those_of_jax(empty_cache):
    jax = pytest.importorskip("jax")
    from cupar import jax as cj
    from cupar._jax import primitive

    x = jax.numpy.arange(5.0)
    assert cj.sort(x, descending=True).tolist() == [4, 3, 2, 1, 0]
    assert primitive._jitted.cache_info().currsize
    cupar.cache.clear(disk=False)
    assert not primitive._jitted.cache_info().currsize
    assert cj.sort(x, descending=True).tolist() == [4, 3, 2, 1, 0]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # JAX's, of forks
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python's
def test_a_forked_child_begins_without_them():
    table = tables.of_builds(Recent(4))
    table["build"] = np.ones(3)
    try:
        child = os.fork()
        if not child:
            os._exit(len(table.all()))
        assert os.waitpid(child, 0)[1] == 0
        assert table["build"].sum() == 3
    finally:
        tables.registered.remove(table)
