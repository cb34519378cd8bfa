// Segments that a team sorts: a warp, or 2, 4, 8 or 16 of them. Each warp sorts its share by the network;
// then shares are merged, pair by pair, in shared memory.
//
// Source: S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW 2012.
#pragma once

#include "segmented_sort_lists.cuh"

namespace cupar {
__device__ __forceinline__ int padded(int position) {
  return position + position / team_items;
}

// Merges pairs of sorted runs of so many words; each thread gets its share of the result.
__device__ __forceinline__ void merge_runs(sort_word (&words)[team_items], const sort_word* stage, int thread,
                                           int run) {
  const int first = thread * team_items, pair = first & ~(2 * run - 1), before = first - pair;
  // How many of the words before come from the first run.
  int low = before > run ? before - run : 0, high = before < run ? before : run;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (stage[padded(pair + run + before - 1 - middle)] < stage[padded(pair + middle)]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  int a = pair + low, b = pair + run + before - low;
  const int a_end = pair + run, b_end = a_end + run;
  sort_word a_word = a < a_end ? stage[padded(a)] : last_word();
  sort_word b_word = b < b_end ? stage[padded(b)] : last_word();
#pragma unroll
  for (int i = 0; i < team_items; ++i) {
    // A run that has ended has words behind all others; those that are like them are the same.
    const bool is_a = !(b_word < a_word);
    words[i]        = either(is_a, a_word, b_word);
    a += is_a;
    b += !is_a;
    const int next       = is_a ? a : b;
    const sort_word word = next < (is_a ? a_end : b_end) ? stage[padded(next)] : last_word();
    a_word               = either(is_a, word, a_word);
    b_word               = either(is_a, b_word, word);
  }
}

__device__ __forceinline__ void sort_in_team(const arrays& given, i64 begin, int length, sort_word* stage,
                                             int threads, int team) {
  const int thread = threadIdx.x % threads;
  sort_word words[team_items];
#pragma unroll
  for (int i = 0; i < team_items; ++i) {
    const int place = i * threads + thread;
    words[i]        = place < length ? to_word(given.keys_in[begin + place], place) : last_word();
  }
  sort_lanes<32, team_items>(words);
  sort_word* const own = stage + thread * (team_items + 1);
  for (int run = 32 * team_items;; run *= 2) {
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      own[i] = words[i];
    }
    wait_for_team(threads, team);
    if (run == threads * team_items) {
      break;
    }
    merge_runs(words, stage, thread, run);
    wait_for_team(threads, team);
  }
  if constexpr (has_values && sizeof(value) <= sizeof(sort_word)) {
    // The values take the words' place, so that they are read side by side.
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      words[i] = stage[padded(i * threads + thread)];
    }
    wait_for_team(threads, team);
    value* const values = reinterpret_cast<value*>(stage);
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int place = i * threads + thread;
      if (place < length) {
        values[place] = given.values_in[begin + place];
      }
    }
    wait_for_team(threads, team);
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int position = i * threads + thread;
      if (position < length) {
        given.keys_out[begin + position]   = to_key(words[i]);
        given.values_out[begin + position] = values[place_of(words[i])];
      }
    }
  } else {
#pragma unroll 4
    for (int i = 0; i < team_items; ++i) {
      const int position = i * threads + thread;
      if (position < length) {
        const sort_word found            = stage[padded(position)];
        given.keys_out[begin + position] = to_key(found);
        if constexpr (has_values) {
          given.values_out[begin + position] = given.values_in[begin + place_of(found)];
        }
      }
    }
  }
  wait_for_team(threads, team);
}
}  // namespace cupar

// For the lists of teams, from the largest team to the smallest: 32 << size threads.
extern "C" __global__ __launch_bounds__(team_threads, team_blocks) void cupar_segmented_sort_teams(
    arrays given, starts_t starts, ends_t ends, i64 num_segments, const __grid_constant__ lists from,
    int least, int largest) {
  extern __shared__ __align__(16) unsigned char shared[];
  join_stream();
  for (int size = largest; size >= least; --size) {
    const int threads = 32 << size, team = threadIdx.x / threads;
    const i64 teams        = blockDim.x / threads;
    sort_word* const stage = reinterpret_cast<sort_word*>(shared + team_bytes(threads) * team);
    const int list         = group_sizes + size;
    const i64 count        = from.count(list, num_segments);
    for (i64 at = blockIdx.x + i64{gridDim.x} * team; at < count; at += gridDim.x * teams) {
      const i64 segment = from.segment(list, at);
      const i64 begin   = static_cast<i64>(starts[segment]);
      const i64 length  = static_cast<i64>(ends[segment]) - begin;
      sort_in_team(given, begin, static_cast<int>(length), stage, threads, team);
    }
    __syncthreads();
  }
}
