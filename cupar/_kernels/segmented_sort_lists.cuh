// What is sorted, and lists of segments by size, as a kernel before all others writes them.
//
// Given: start_offsets_in_t, end_offsets_in_t; CUPAR_OFFSETS unless segments are rows; CUPAR_512 if words
// have 32 bits.
#pragma once

#include "segmented_sort_words.cuh"

namespace cupar {
struct arrays {
  const bits* keys_in;
  bits* keys_out;
  const value* values_in;
  value* values_out;
};

constexpr int team_items = sizeof(sort_word) == 4 ? 32 : 16;  // of a thread

#ifdef CUPAR_512
constexpr bool has_512 = true;
#else
constexpr bool has_512 = false;
#endif
static_assert(has_512 == (32 * team_items > 512), "groups of lanes are for less than a team sorts");

// Lists for groups of lanes; then those for teams; then that of long segments.
constexpr int group_sizes = has_512 ? 6 : 5;
constexpr int most_lists  = 6 + 6;  // as plans have, whatever the word

// Without offsets, there are none: all segments are of one size.
struct lists {
  u32* counts;
  u32* segments;
  u64 first[most_lists + 1];  // where each list begins

  __device__ __forceinline__ i64 count(int list, i64 num_segments) const {
    if (counts == nullptr) {
      return num_segments;
    }
    const u64 written = counts[list], most = first[list + 1] - first[list];
    return static_cast<i64>(written < most ? written : most);
  }
  __device__ __forceinline__ i64 segment(int list, i64 at) const {
    return counts == nullptr ? at : i64{segments[first[list] + at]};
  }
};

// Bytes that the threads of a block have their words in.
constexpr int team_bytes(int threads) {
  return threads * (team_items + 1) * static_cast<int>(sizeof(sort_word));
}

// Shared memory of a block, at most.
constexpr int most_shared(int cc) {
  return cc < 80 ? 64 << 10 : cc == 86 || cc == 89 || cc >= 120 ? 99 << 10 : 163 << 10;
}

constexpr int most_team_threads() {
  int threads = 512;
  while (team_bytes(threads) > most_shared(target)) {
    threads /= 2;
  }
  return threads;
}

constexpr int team_threads = most_team_threads();
}  // namespace cupar

using namespace cupar;

extern "C" __global__ void cupar_segmented_sort_init(u32* counts) {
  join_stream();
  counts[threadIdx.x] = 0;
}

#ifdef CUPAR_OFFSETS
// Writes the lists: of segments for groups of lanes, for teams, and of long ones.
extern "C" __global__ __launch_bounds__(256) void cupar_segmented_sort_list(
    start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments, const __grid_constant__ lists to) {
  constexpr int rounds = 4;
  __shared__ u32 counts[most_lists], firsts[most_lists];
  const int thread = threadIdx.x, lane = thread % 32;
  if (thread < most_lists) {
    counts[thread] = 0;
  }
  __syncthreads();
  join_stream();
  int own[rounds];
  u32 at[rounds];
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const i64 segment = (i64{blockIdx.x} * rounds + i) * blockDim.x + thread;
    own[i]            = -1;
    if (segment < num_segments) {
      const i64 length = static_cast<i64>(ends[segment]) - static_cast<i64>(starts[segment]);
      if (length > 0) {
        int list = (length > 16) + (length > 32) + (length > 64) + (length > 128) + (length > 256);
        list += has_512 && length > 512;
#pragma unroll
        for (int threads = 32; threads <= team_threads; threads *= 2) {
          list += length > threads * team_items;
        }
        own[i] = list;
      }
    }
    // One atomic for the lanes of a list.
    const unsigned like = __match_any_sync(~0u, own[i]);
    const int leader    = __ffs(like) - 1;
    u32 before          = 0;
    if (own[i] >= 0 && lane == leader) {
      before = atomicAdd(&counts[own[i]], static_cast<u32>(__popc(like)));
    }
    at[i] = __shfl_sync(~0u, before, leader) + __popc(like & ((1u << lane) - 1));
  }
  __syncthreads();
  if (thread < most_lists) {
    firsts[thread] = counts[thread] > 0 ? atomicAdd(&to.counts[thread], counts[thread]) : 0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    if (own[i] >= 0) {
      const u64 where = to.first[own[i]] + firsts[own[i]] + at[i];
      if (where < to.first[own[i] + 1]) {  // not if segments overlap
        to.segments[where] = static_cast<u32>((i64{blockIdx.x} * rounds + i) * blockDim.x + thread);
      }
    }
  }
}
#endif
