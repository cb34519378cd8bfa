"""Kernels that wait for their grid, in functions in C++ too."""

import pytest
from numba import cuda
from numba.cuda import cg
from support.common import stored_properties

import cupar

CC = 90
I = "int32[::1]"  # noqa: E741
SOURCE = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __device__ int sync_grid() { cg::this_grid().sync(); return 0; }
extern "C" __device__ int sync_block() { cg::this_thread_block().sync(); return 0; }
extern "C" __device__ int sync_cluster() { cg::this_cluster().sync(); return 0; }
extern "C" __device__ int sync_warp() { return cg::tiled_partition<32>(cg::this_thread_block()).shfl(3, 1); }
extern "C" __device__ int rank() { return cg::this_grid().thread_rank(); }
"""


def declared(name, **more):
    return cuda.declare_device(name, "int32()", link=cuda.CUSource(SOURCE), abi="c", **more)


def compiled(function):
    def kernel(x):
        x[0] = function()

    return cupar.jit(kernel).compile(I, cc=CC)


def waits(overload):
    return bool(stored_properties(overload)["cooperative"])


@pytest.mark.parametrize(
    "name, expected",
    [("sync_grid", True)] + [(name, False) for name in ("sync_block", "sync_cluster", "sync_warp", "rank")],
)
def test_what_external_functions_wait_for_is_seen(name, expected, empty_cache):
    assert waits(compiled(declared(name))) is expected


def test_so_it_is_in_functions_in_cpp(empty_cache):
    source = SOURCE.replace('extern "C" ', "")
    assert waits(compiled(cupar.cpp(source, "int32()", name="sync_grid")))
    assert not waits(compiled(cupar.cpp(source, "int32()", name="rank")))


def test_it_can_be_declared(empty_cache):
    first, second = compiled(declared("rank")), compiled(declared("rank", use_cooperative=True))
    assert waits(second) and not waits(first)
    assert first.build.key != second.build.key


def test_kernels_of_numbas_groups_show_their_ptx(empty_cache):
    def kernel(x):
        cg.this_grid().sync()

    overload = cupar.jit(kernel).compile(I, cc=CC)
    assert waits(overload)
    assert ".entry _ZN5cupar6kernelEv" in overload.inspect_asm()
