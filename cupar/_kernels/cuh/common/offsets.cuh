// Offsets of segments that are not in arrays.
#pragma once

#include "common/types.cuh"

namespace cupar {
// The items of a segment: none if it ends before it begins. The two are compared first, as no 64 bits have
// the difference of offsets that are far enough apart; and subtracted without a sign, or compilers compare
// the difference with 0.
constexpr __device__ __forceinline__ i64 length_of(i64 begin, i64 end) {
  return end > begin ? static_cast<i64>(static_cast<u64>(end) - static_cast<u64>(begin)) : 0;
}

// The items from one offset to another, for comparisons with what fits: of any two, which may be those of
// segments without items, such as -2^63.
constexpr __device__ __forceinline__ u64 distance_of(i64 low, i64 high) {
  return high > low ? static_cast<u64>(high) - static_cast<u64>(low) : 0;
}

// Of segments that are all of one length.
struct row_starts {
  i64 length;
  __device__ __forceinline__ i64 operator[](i64 row) const { return row * length; }
};
struct row_ends {
  i64 length;
  __device__ __forceinline__ i64 operator[](i64 row) const { return (row + 1) * length; }
};

// Of an output whose segments are where those of the input are.
struct no_offsets {
  int unused;
  __device__ __forceinline__ i64 operator[](i64) const { return 0; }
};
}  // namespace cupar
