// What lanes of a warp tell each other: values of any type, and sums.
#pragma once

#include "common/words.cuh"

namespace cupar {
// The value of the lane so many lanes below, or above; of those that have none, the lane's own.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& value, int lanes) {
  words<T> given(value);
#pragma unroll
  for (unsigned& word : given.word) word = __shfl_up_sync(~0u, word, lanes);
  return given.value();
}
template <class T>
__device__ __forceinline__ T shuffle_down(const T& value, int lanes) {
  words<T> given(value);
#pragma unroll
  for (unsigned& word : given.word) word = __shfl_down_sync(~0u, word, lanes);
  return given.value();
}

// The value of one lane.
template <class T>
__device__ __forceinline__ T shuffle(const T& value, int lane) {
  words<T> given(value);
#pragma unroll
  for (unsigned& word : given.word) word = __shfl_sync(~0u, word, lane);
  return given.value();
}

// The sum of all lanes.
__device__ __forceinline__ u32 sum_of_lanes(u32 own) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0u, own);
#else
  for (int mask = 16; mask > 0; mask /= 2) {
    own += __shfl_xor_sync(~0u, own, mask);
  }
  return own;
#endif
}

// The sum of the lanes up to each.
template <class T>
__device__ __forceinline__ T sum_up_to_lane(T own) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(~0u, own, distance);
    own += lane >= distance ? other : 0;
  }
  return own;
}
}  // namespace cupar
