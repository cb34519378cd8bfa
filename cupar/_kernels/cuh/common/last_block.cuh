// Whether a block is the last to have done its part of what several share.
#pragma once

namespace cupar {
// `is_over` counts this block's part, and returns whether nothing is left; one thread calls it. The last
// block sees what all of them wrote before.
template <class IsOver>
__device__ __forceinline__ bool is_last_block(IsOver is_over) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = is_over();
  }
  __syncthreads();
  if (is_last) {
    __threadfence();
  }
  return is_last;
}
}  // namespace cupar
