// Sets words in temporary storage to zero, for the kernels behind: one a thread.
#pragma once

#include "common/kernel.cuh"

namespace cupar {
template <class T>
struct zero : kernel<1024> {
  static __device__ __forceinline__ void run(T* words) {
    join_stream();
    words[u64{blockIdx.x} * blockDim.x + threadIdx.x] = 0;
  }
};
}  // namespace cupar
