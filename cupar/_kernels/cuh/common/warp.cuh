// What kernels whose warps share work need: barriers, bulk copies, and what lanes tell each other by.
#pragma once

#include "common/bulk.cuh"
#include "common/published.cuh"

namespace cupar {
// The value of the lane so many lanes below, or above; of those that have none, the lane's own.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& value, int lanes) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_up_sync(~0u, word, lanes);
  return given.value();
}
template <class T>
__device__ __forceinline__ T shuffle_down(const T& value, int lanes) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_down_sync(~0u, word, lanes);
  return given.value();
}

// The value of one lane.
template <class T>
__device__ __forceinline__ T shuffle(const T& value, int lane) {
  words<T> given(value);
  for (unsigned& word : given.word) word = __shfl_sync(~0u, word, lane);
  return given.value();
}
}  // namespace cupar
