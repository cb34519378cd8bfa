// Lists of segments by size, which a kernel writes for those behind it, and teams of threads that segments
// are for. Nothing is read back: whoever works off a list asks how long it has become.
#pragma once

#include "common/kernel.cuh"
#include "common/offsets.cuh"

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

constexpr int list_threads = 256, list_rounds = 4;

// A thread's segments, while lists are written; a length of 0 tells that there is none, or that it is done.
struct listed_segments {
  i64 begin[list_rounds], length[list_rounds];
};

// Writes the lists: of each segment that is not empty, `list_of` its length. A block has 1,024 segments.
// Before, `take` may do what there is to do for some of a thread's segments.
template <class Starts, class Ends, class ListOf, class Take>
__device__ __forceinline__ void write_lists(const Starts& starts, const Ends& ends, i64 num_segments,
                                            const lists& to, ListOf list_of, Take take) {
  constexpr int rounds = list_rounds;
  __shared__ u32 counts[most_lists], firsts[most_lists];
  const int thread = threadIdx.x, lane = thread % 32;
  if (thread < most_lists) {
    counts[thread] = 0;
  }
  __syncthreads();
  join_stream();
  listed_segments given;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const i64 segment = (i64{blockIdx.x} * rounds + i) * blockDim.x + thread;
    given.begin[i] = given.length[i] = 0;
    if (segment < num_segments) {
      given.begin[i]  = static_cast<i64>(starts[segment]);
      given.length[i] = length_of(given.begin[i], static_cast<i64>(ends[segment]));
    }
  }
  take(given);
  int own[rounds];
  u32 at[rounds];
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    own[i] = given.length[i] > 0 ? list_of(given.length[i]) : -1;
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

template <class Starts, class Ends, class ListOf>
__device__ __forceinline__ void write_lists(const Starts& starts, const Ends& ends, i64 num_segments,
                                            const lists& to, ListOf list_of) {
  write_lists(starts, ends, num_segments, to, list_of, [](listed_segments&) {});
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
