// Kernels: how a family declares them, and how each waits for the work ahead of it in its stream.
//
// A family is a class template of a traits struct, and each of its kernels a struct in it: `run` is what its
// threads do. The source of a build has an `extern "C"` entry for each kernel that is launched, of the same
// name, and with the parameters of `run`.
#pragma once

#include <cuda/std/__cccl/cuda_capabilities.h>

#include "common/types.cuh"

namespace cupar {
// The bounds of a kernel: threads of a block at most, and blocks that a multiprocessor is to run at once.
template <int max_threads_, int min_blocks_ = 0>
struct kernel {
  static constexpr int max_threads = max_threads_, min_blocks = min_blocks_;
};

template <int i, class First, class... Rest>
struct nth : nth<i - 1, Rest...> {};
template <class First, class... Rest>
struct nth<0, First, Rest...> {
  using type = cuda::std::remove_cv_t<cuda::std::remove_reference_t<First>>;
};
template <int i, class... Parameters>
typename nth<i, Parameters...>::type nth_of(void (*)(Parameters...));

// The type of a parameter of a kernel.
template <class Kernel, int i>
using parameter = decltype(nth_of<i>(&Kernel::run));

// Integers that a family's plans are made of; cupar reads them from the linked code.
template <int count>
struct fact_list {
  int fact[count];
};
template <class... Values>
constexpr fact_list<sizeof...(Values)> properties_of(Values... values) {
  return {{static_cast<int>(values)...}};
}

// From compute capability 9.0 on, each kernel may be resident before the work ahead of it in its stream has
// ended (programmatic dependent launch). So all of its threads wait for that first, before they read or write
// anything, and then let the next become resident in turn.
__device__ __forceinline__ void wait_for_stream() {
  _CCCL_PDL_GRID_DEPENDENCY_SYNC();
}

__device__ __forceinline__ void launch_dependents() {
  _CCCL_PDL_TRIGGER_NEXT_LAUNCH();
}

__device__ __forceinline__ void join_stream() {
  wait_for_stream();
  launch_dependents();
}
}  // namespace cupar
