// Lists of segments by size, which a kernel writes for those behind it, and teams of threads that segments
// are for. Nothing is read back: whoever works off a list asks how long it has become.
#pragma once

#include "common/kernel.cuh"

namespace cupar {
constexpr int most_lists = 12;  // as plans have

// Without offsets there are no lists: all segments have one size.
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

constexpr int list_threads = 256;

// Writes the lists: of each segment that is not empty, `list_of` its length. A block has 1,024 segments.
template <class Starts, class Ends, class ListOf>
__device__ __forceinline__ void write_lists(const Starts& starts, const Ends& ends, i64 num_segments,
                                            const lists& to, ListOf list_of) {
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
        own[i] = list_of(length);
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

// Barrier of a team of `threads` threads; `team` is its number in the block. Barrier 0 is the block's.
__device__ __forceinline__ void wait_for_team(int threads, int team) {
  if (threads <= 32) {
    __syncwarp();
  } else {
    __barrier_sync_count(1 + team, threads);
  }
}
}  // namespace cupar
