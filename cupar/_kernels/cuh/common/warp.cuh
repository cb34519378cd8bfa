// Communication between lanes of a warp: values of any type, and sums.
#pragma once

#include "common/words.cuh"

namespace cupar {
// A value of any type as words, each of which is exchanged by `exchange(word)`. In place of CCCL's
// `warp_shuffle`, with which scans and reductions spill; and in two ways, as each costs registers with the
// other's sizes.
template <class T, class Exchange>
__device__ __forceinline__ T exchange_words(const T& value, Exchange exchange) {
  if constexpr (sizeof(T) > 16) {
    words<T> given(value);
    for (unsigned& word : given.word) word = exchange(word);
    return given.value();
  } else {
    unsigned word[words<T>::count];
    word[words<T>::count - 1] = 0;
    memcpy(word, &value, sizeof(T));
#pragma unroll
    for (unsigned& each : word) each = exchange(each);
    T result;
    memcpy(&result, word, sizeof(T));
    return result;
  }
}

// The value of the lane `lanes` below, or above; lanes without one get their own.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& value, int lanes) {
  return exchange_words(value, [=](unsigned word) { return __shfl_up_sync(~0u, word, lanes); });
}
template <class T>
__device__ __forceinline__ T shuffle_down(const T& value, int lanes) {
  return exchange_words(value, [=](unsigned word) { return __shfl_down_sync(~0u, word, lanes); });
}

// The value of the lane whose number differs in some bits.
template <class T>
__device__ __forceinline__ T shuffle_xor(const T& value, int bits) {
  return exchange_words(value, [=](unsigned word) { return __shfl_xor_sync(~0u, word, bits); });
}

// The value of one lane.
template <class T>
__device__ __forceinline__ T shuffle(const T& value, int lane) {
  return exchange_words(value, [=](unsigned word) { return __shfl_sync(~0u, word, lane); });
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

// The sum of the lanes up to each. CUB's `WarpScan` needs 8 instructions fewer, and its headers 0.7 s.
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
