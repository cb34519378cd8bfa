// Offsets of segments that are not in arrays.
#pragma once

#include "common/types.cuh"

namespace cupar {
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
