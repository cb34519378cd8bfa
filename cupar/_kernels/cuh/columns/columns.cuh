// Columns of arrays of (outer, length, inner): an item of a column is `inner` items after the one before it.
//
// Column c of all is the one of index c % inner in plane c / inner. Neighbours of a plane lie side by side,
// so lanes have a column each, and what a warp loads at once is one row of its columns.
#pragma once

#include "common/combining.cuh"
#include "common/kernel.cuh"

namespace cupar {
struct column_shape {
  i64 length, inner, columns;

  // Returns where a column begins. There are less than 2^33 of them, and less than 2^32 in a plane if there
  // are several planes: so half a column's number is divided, in 32 bits.
  __device__ __forceinline__ i64 first(i64 column) const {
    if (columns <= inner) {
      return column;
    }
    const auto width = static_cast<u32>(inner), half = static_cast<u32>(column >> 1);
    const u32 quotient  = half / width;
    const i64 remainder = 2 * i64{half - quotient * width} + (column & 1);
    const i64 plane     = 2 * i64{quotient} + (remainder >= inner);
    return column + plane * (length - 1) * inner;
  }

  // Returns how many rows there are from one on, `most` at most; 0 of a column that there is not.
  __device__ __forceinline__ int count(i64 row, int most, bool is_there = true) const {
    const i64 left = length - row;
    return !is_there || left <= 0 ? 0 : left < most ? static_cast<int>(left) : most;
  }
};

// Rows, of items of a size, in a thread's registers: there is one at least.
template <class T, class Accum>
constexpr int rows_of(int bytes) {
  const int each = sizeof(T) > sizeof(Accum) ? sizeof(T) : sizeof(Accum);
  const int rows = bytes / (each < 4 ? 4 : each);
  return rows > 0 ? rows : 1;
}

// The lanes of a warp: neighbours have neighbouring columns, and if these are fewer than lanes, each row of
// lanes ("strip") has rows of its own, after those of the strip below.
struct lanes {
  int log_width, column, strip, strips;

  __device__ __forceinline__ explicit lanes(int log_width)
      : log_width(log_width),
        column(threadIdx.x % 32 & ((1 << log_width) - 1)),
        strip(static_cast<int>(threadIdx.x % 32) >> log_width),
        strips(32 >> log_width) {}
  __device__ __forceinline__ int width() const { return 1 << log_width; }
};

// The same number, of which the compiler does not know that it is: it would keep multiples of it in registers
// for all rows, and be short of these.
__device__ __forceinline__ i64 unknown(i64 number) {
  asm volatile("" : "+l"(number));
  return number;
}

// Some rows of a column.
template <class T, int rows>
struct column_rows {
  T item[rows];

  // Loads the first ones.
  template <class It>
  __device__ __forceinline__ void load(It from, i64 inner, int count) {
    inner = unknown(inner);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (r < count) {
        item[r] = *from;
      }
      from += inner;
    }
  }

  // Combines the first ones, at least one, with their prefix.
  template <class V, class Op>
  __device__ __forceinline__ void add_to(partial_of<V>& sum, int count, const Op& op) const {
    sum.add(static_cast<V>(item[0]), op);
#pragma unroll
    for (int r = 1; r < rows; ++r) {
      if (r < count) {
        sum.value = combine(sum.value, static_cast<V>(item[r]), op);
      }
    }
  }
};
}  // namespace cupar
