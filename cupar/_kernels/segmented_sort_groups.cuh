// Short segments: 4 to 32 lanes have one, and sort it in registers, by a bitonic network.
#pragma once

#include "segmented_sort_lists.cuh"
#include "vectors.cuh"

namespace cupar {
template <int lanes, int items>
__device__ __forceinline__ void sort_groups(const arrays& given, starts_t starts, ends_t ends,
                                            i64 num_segments, const lists& from, int list) {
  constexpr int groups = group_threads / lanes, most = lanes * items;
  // Of a vector, and vectors of a lane.
  constexpr int together = cuda::std::min<int>(items, widest / sizeof(bits)), vectors = items / together;
  constexpr bool stores_vectors = !has_values && items * sizeof(bits) <= 2 * widest;
  // A gap behind the words of each lane, so that all are in different banks.
  __shared__ sort_word stages[group_threads * (items + 1)];
  sort_word* const stage = stages + threadIdx.x / lanes * lanes * (items + 1);
  const int lane         = threadIdx.x % lanes;
  const i64 count        = from.count(list, num_segments);
  for (i64 first = i64{blockIdx.x} * groups; first < count; first += i64{gridDim.x} * groups) {
    const i64 at = first + threadIdx.x / lanes;
    i64 begin    = 0;
    int length   = 0;
    if (at < count) {
      const i64 segment = from.segment(list, at);
      begin             = static_cast<i64>(starts[segment]);
      length            = static_cast<int>(static_cast<i64>(ends[segment]) - begin);
    }
    const bits* const in = given.keys_in + begin;
    bits* const out      = given.keys_out + begin;
    const bool is_full   = length == most && is_aligned<together>(in);
    sort_word words[items];
    if (__all_sync(~0u, is_full)) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        const int place = (v * lanes + lane) * together;
        vector<bits, together> loaded;
        load<true>(loaded, in + place);
#pragma unroll
        for (int i = 0; i < together; ++i) {
          words[v * together + i] = to_word(loaded.item[i], place + i);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const int place = i * lanes + lane;
        words[i]        = place < length ? to_word(in[place], place) : last_word();
      }
    }
    sort_lanes<lanes, items>(words);
    if constexpr (stores_vectors) {
      if (__all_sync(~0u, is_full && is_aligned<together>(out))) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          vector<bits, together> stored;
#pragma unroll
          for (int i = 0; i < together; ++i) {
            stored.item[i] = to_key(words[v * together + i]);
          }
          store<true>(out + lane * items + v * together, stored);
        }
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < items; ++i) {
      stage[lane * (items + 1) + i] = words[i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const int position = i * lanes + lane;
      if (position < length) {
        const sort_word found = stage[position + position / items];
        out[position]         = to_key(found);
        if constexpr (has_values) {
          given.values_out[begin + position] = given.values_in[begin + place_of(found)];
        }
      }
    }
    __syncwarp();
  }
}
}  // namespace cupar

// For a list, of segments of so many items at most.
#define CUPAR_GROUPS(most, lanes, list)                                                                   \
  extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_##most(                \
      arrays given, starts_t starts, ends_t ends, i64 num_segments, const __grid_constant__ lists from) { \
    join_stream();                                                                                        \
    sort_groups<lanes, most / lanes>(given, starts, ends, num_segments, from, list);                      \
  }

CUPAR_GROUPS(16, 4, 0)
CUPAR_GROUPS(32, 4, 1)
CUPAR_GROUPS(64, 8, 2)
CUPAR_GROUPS(128, 8, 3)
CUPAR_GROUPS(256, 16, 4)
#ifdef CUPAR_512
CUPAR_GROUPS(512, 32, 5)
#endif
