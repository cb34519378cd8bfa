// What reductions combine items with.
#pragma once

#include <cuda/std/__functional/operations.h>

#include "common/types.cuh"
#include "common/warp.cuh"

namespace cupar {
// What is combined. Sums of small integers are made in words, and converted when they are stored.
template <class Op, class Accum>
constexpr bool is_small_sum = cuda::std::is_integral_v<Accum> && sizeof(Accum) < sizeof(int) &&
                              cuda::std::is_same_v<Op, cuda::std::plus<>>;
template <class Op, class Accum>
using combined = cuda::std::conditional_t<is_small_sum<Op, Accum>, unsigned, Accum>;

// Combines two neighbours.
template <class V, class Op>
__device__ __forceinline__ V combine(const V& a, const V& b, const Op& op) {
  return static_cast<V>(op(a, b));
}

// Of each lane up to some, what those up to it have.
template <class V, class Op>
__device__ __forceinline__ V scan_first_lanes(V value, int count, const Op& op) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int distance = 1; distance < count; distance *= 2) {
    const V other = shuffle_up(value, distance);
    if (lane >= distance && lane < count) {
      value = combine(other, value, op);
    }
  }
  return value;
}

// Combines items that a thread has, in pairs.
template <class V, class Accum, int items, class T, class Op>
__device__ __forceinline__ V reduce_thread(const T* item, const Op& op) {
  if constexpr (items == 1) {
    return static_cast<Accum>(*item);
  } else {
    return op(reduce_thread<V, Accum, items / 2>(item, op),
              reduce_thread<V, Accum, items / 2>(item + items / 2, op));
  }
}

// What a thread has so far.
template <class V>
struct partial_of {
  V value;
  bool is_there = false;

  template <class Op>
  __device__ __forceinline__ void add(V more, const Op& op) {
    value    = is_there ? static_cast<V>(op(value, more)) : more;
    is_there = true;
  }
};
}  // namespace cupar
