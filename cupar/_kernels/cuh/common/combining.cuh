// What reductions combine items with.
#pragma once

#include <cuda/std/__functional/operations.h>

#include "common/types.cuh"
#include "common/warp.cuh"

namespace cupar {
// The type of combined values. Sums of small integers are accumulated in words, and converted when stored.
template <class Op, class Accum>
constexpr bool is_small_sum = cuda::std::is_integral_v<Accum> && sizeof(Accum) < sizeof(int) &&
                              cuda::std::is_same_v<Op, cuda::std::plus<>>;
template <class Op, class Accum>
using combined = cuda::std::conditional_t<is_small_sum<Op, Accum>, unsigned, Accum>;

// Values of which registers do not hold four. What is done with one is not written out several times, as the
// linker would take seconds for it.
template <class V>
constexpr bool is_large = sizeof(V) > 256;

// How often loops over lanes or rows of such values are written out.
template <class V>
constexpr int unrolled = is_large<V> ? 1 : 32;

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

// Leaves each lane one row of `rows` lanes: neighbours exchange halves of their rows.
template <int rows, int distance, class V, class Op>
__device__ __forceinline__ V exchange_rows(V (&row)[rows], const Op& op) {
  if constexpr (rows == 1) {
    return row[0];
  } else {
    const bool is_right = (threadIdx.x & distance) != 0;  // which has the rows behind
    V half[rows / 2];
#pragma unroll
    for (int k = 0; k < rows / 2; ++k) {
      V own = row[k], given = row[k + rows / 2];
      if (is_right) {
        own   = row[k + rows / 2];
        given = row[k];
      }
      V left = own, right = shuffle_xor(given, distance);
      if (is_right) {
        left  = right;
        right = own;
      }
      half[k] = combine(left, right, op);
    }
    return exchange_rows<rows / 2, distance * 2>(half, op);
  }
}

// Combines rows of all lanes in order: the first row's lanes, then the second's; the result is the first
// lane's. That takes a shuffle for each row and some more, in place of five for each.
template <int rows, class V, class Op>
__device__ __forceinline__ V reduce_rows(V (&row)[rows], const Op& op) {
  static_assert(rows <= 32 && (rows & (rows - 1)) == 0);
  V value = exchange_rows<rows, 1>(row, op);
#pragma unroll
  for (int distance = rows; distance < 32; distance *= 2) {
    value = combine(value, shuffle_down(value, distance), op);
  }
  if constexpr (rows > 1) {
    // A lane has the row whose number is the lane's with its bits reversed.
    value = shuffle(value, static_cast<int>(__brev(threadIdx.x * (32 / rows)) >> 27) % rows);
  }
#pragma unroll
  for (int distance = 1; distance < rows; distance *= 2) {
    value = combine(value, shuffle_down(value, distance), op);
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

// A thread's running result.
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
