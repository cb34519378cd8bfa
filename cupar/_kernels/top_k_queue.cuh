// What is asked for, and tiles that long segments are cut into.
//
// Given: start_offsets_in_t, end_offsets_in_t.
#pragma once

#include <cub/block/block_scan.cuh>

using sorted_value = long long;  // what goes with the keys that are sorted: positions

#include "top_k_teams.cuh"

namespace cupar {
constexpr int block_threads = target < 80 ? 256 : 512;
constexpr int block_items   = sizeof(bits) > 4 ? 8 : 16;  // of a thread
constexpr int tile          = block_threads * block_items;
constexpr int warp_threads  = 128;              // of blocks whose warps have a segment each
constexpr int warp_items    = 2 * block_items;  // of a lane
constexpr int few_items     = 4;                // of a lane that has few
constexpr int together      = cuda::std::min<int>(block_items, widest / sizeof(bits));  // items of a vector
constexpr int few_together  = cuda::std::min<int>(few_items, together);
constexpr u32 no_entry      = ~0u;

struct top_arrays {
  const bits* keys_in;
  bits* keys_out;
  i64 k;
};

struct tiled_segment {
  i64 begin, length, segment;
  i64 place;  // of what is selected of it, among what is of all segments
  u32 first, tiles;
  u32 left;  // tiles that a kernel has not counted yet
  u32 unused;
  u64 rank;   // of the k-th key, from 1 on: of all, or of those that begin with the digits that are known
  u64 bound;  // a key that k items are up to; or the digits of the k-th key that are known
};

// Tiles of long segments.
struct tile_queue {
  u32* counts;  // of tiles, and of segments
  u64* selected;
  tiled_segment* segments;
  u32* segment_of;  // each tile
  u64 most_selected;
  u32 most_segments, most_tiles;

  __device__ __forceinline__ u32 tiles() const { return *counts < most_tiles ? *counts : most_tiles; }
};

constexpr int list_of_long = 3;

__device__ __forceinline__ i64 wanted_of(const tiled_segment& its, i64 k) {
  return k < its.length ? k : its.length;
}
}  // namespace cupar

using namespace cupar;

// Cuts long segments into tiles, and zeroes their bins: so many for each.
extern "C" __global__ __launch_bounds__(1024) void cupar_top_k_tiles(start_offsets_in_t starts,
                                                                     end_offsets_in_t ends, i64 num_segments,
                                                                     const __grid_constant__ lists from,
                                                                     tile_queue to, i64 k, u64* bins,
                                                                     int num_bins) {
  __shared__ u32 shared_first;
  __shared__ bool shared_is_one;
  join_stream();
  i64 count = from.count(list_of_long, num_segments);
  count     = count < to.most_segments ? count : to.most_segments;
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    to.counts[1] = static_cast<u32>(count);
  }
  for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
    const i64 segment = from.segment(list_of_long, at);
    const i64 begin   = static_cast<i64>(starts[segment]);
    const i64 length  = static_cast<i64>(ends[segment]) - begin;
    const auto tiles  = static_cast<u32>((length + tile - 1) / tile);
    if (threadIdx.x == 0) {
      const u32 first  = atomicAdd(to.counts, tiles);
      const u64 wanted = static_cast<u64>(k < length ? k : length), place = atomicAdd(to.selected, wanted);
      shared_first = first;
      // Not if segments overlap.
      shared_is_one   = u64{first} + tiles <= to.most_tiles && place + wanted <= to.most_selected;
      to.segments[at] = {begin,   shared_is_one ? length : 0,
                         segment, static_cast<i64>(place),
                         first,   tiles,
                         tiles,   0,
                         wanted,  last_ranked};
    }
    __syncthreads();
    const u64 first = shared_first, end = first + tiles;
    for (u64 i = first + threadIdx.x; i < end && i < to.most_tiles; i += blockDim.x) {
      to.segment_of[i] = shared_is_one ? static_cast<u32>(at) : no_entry;
    }
    for (int i = threadIdx.x; i < num_bins; i += blockDim.x) {
      bins[at * num_bins + i] = 0;
    }
    __syncthreads();
  }
}
