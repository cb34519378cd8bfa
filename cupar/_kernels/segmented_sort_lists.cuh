// What is sorted, and lists of segments by size, as a kernel before all others writes them.
//
// Given: starts_t, ends_t; CUPAR_OFFSETS unless segments are rows; CUPAR_512 if there are groups of lanes for
// 512 items; team_items, of a thread.
#pragma once

#include "segment_lists.cuh"
#include "segmented_sort_words.cuh"

namespace cupar {
struct arrays {
  const bits* keys_in;
  bits* keys_out;
  const value* values_in;
  value* values_out;
};

#ifdef CUPAR_512
constexpr bool has_512 = true;
#else
constexpr bool has_512 = false;
#endif

// Lists for groups of lanes; then those for teams; then that of long segments.
constexpr int group_sizes = has_512 ? 6 : 5;

// Bytes that the threads of a block have their words in.
constexpr int team_bytes(int threads) {
  return threads * (team_items + 1) * static_cast<int>(sizeof(sort_word));
}

// Shared memory of a block, at most.
constexpr int most_shared(int cc) {
  if (cc < 75 && cc != 70) {
    return 48 << 10;
  }
  return cc < 80 ? 64 << 10 : cc == 86 || cc == 88 || cc == 89 || cc >= 120 ? 99 << 10 : 163 << 10;
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
    starts_t starts, ends_t ends, i64 num_segments, const __grid_constant__ lists to) {
  write_lists(starts, ends, num_segments, to, [](i64 length) {
    int list = (length > 16) + (length > 32) + (length > 64) + (length > 128) + (length > 256);
    list += has_512 && length > 512;
#pragma unroll
    for (int threads = 32; threads <= team_threads; threads *= 2) {
      list += length > threads * team_items;
    }
    return list;
  });
}
#endif
