// Segments of a warp that are copied to shared memory as a whole: loads of memory do not depend on how long
// each is, and all are on their way at once.
//
// Given: what segmented_reduce.cuh is.
#pragma once

#include "segmented_reduce_shares.cuh"

namespace cupar {
// The largest groups whose segments are staged. Of rows, it is those of a few items, which are no vectors:
// others' lanes load as many vectors from memory.
constexpr int staged_lanes = !is_array<d_in_t> ? 0 : is_rows ? 1 : 16;

constexpr int batch_bytes  = is_rows ? 2048 : 4096;  // that the segments of a warp should have
constexpr int staged_bytes = is_rows ? 4096 : 5120;  // of shared memory for what they span
constexpr int staged_items = is_array<d_in_t> ? staged_bytes / static_cast<int>(sizeof(d_in_v)) : 0;
constexpr int staged_most  = 64;  // items of a segment for each lane that combines it
constexpr int stage_bytes  = staged_bytes + widest;

// Begins to copy a vector to shared memory.
__device__ __forceinline__ void begin_copy(void* to, const void* from) {
  if constexpr (target >= 80 && !is_rows) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
  } else {
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
  }
}

__device__ __forceinline__ void wait_for_copies() {
  if constexpr (target >= 80 && !is_rows) {
    asm volatile("cp.async.wait_all;" ::: "memory");
  }
  __syncwarp();
}

// Combines a lane's share of a segment in shared memory: items that are in no vector, then vectors. Groups
// begin at different ones: if all segments have 8, 16 or 32 words, in different banks.
__device__ __forceinline__ void combine_staged_share(partial& sum, const d_in_v* from, int length, int lane,
                                                     int log_lanes, const op_t& op) {
  constexpr int width = is_rows ? 1 : items < 4 ? items : 4;
  const int lanes = 1 << log_lanes, own = lane & (lanes - 1), group = lane >> log_lanes;
  int before = 0;
  if constexpr (width > 1) {
    constexpr auto bytes = static_cast<unsigned>(width * sizeof(d_in_v));
    const auto beyond    = static_cast<unsigned>(__cvta_generic_to_shared(from)) % bytes;
    before               = static_cast<int>((bytes - beyond) % bytes / sizeof(d_in_v));
    before               = before < length ? before : length;
  }
  const int vectors = (length - before) / width, singles = length - vectors * width;
  if constexpr (width > 1) {
    for (int i = own; i < singles; i += lanes) {
      sum.add(static_cast<accum_t>(from[i < before ? i : i + vectors * width]), op);
    }
  }
  const int count = (vectors - own + lanes - 1) >> log_lanes;
  int at          = own + ((group << log_lanes) * count / 32 << log_lanes);
#pragma unroll is_rows ? 4 : 2
  for (int k = 0; k < count; ++k) {
    vector<d_in_v, width> loaded;
    load<true>(loaded, from + before + at * width);
    sum.add(reduce_thread<width>(loaded.item, op), op);
    at += lanes;
    at -= at < vectors ? 0 : count << log_lanes;
  }
}

// Combines the segments of a warp's groups of lanes in shared memory, if they lie beside each other and none
// is too long. `its` is a lane's segment, and `first` the first lane's number.
template <class It>
__device__ __forceinline__ bool combine_staged(It in, d_out_t out, const segment& its, i64 first, int count,
                                               int log_lanes, const op_t& op, accum_t init) {
  if constexpr (is_array<It>) {
    extern __shared__ uint4 stages[];
    const int lane = threadIdx.x % 32, group = lane >> log_lanes;
    const i64 low = shuffle(its.begin, 0), high = shuffle(its.begin + its.length, (count - 1) << log_lanes);
    const bool is_inside = its.length == 0 || (its.begin >= low && its.begin + its.length <= high &&
                                               its.length <= staged_most << log_lanes);
    if (high - low > staged_items || !__all_sync(~0u, is_inside)) {
      return false;
    }
    const int size   = high > low ? static_cast<int>(high - low) : 0;
    const It from    = in + low;
    const int beyond = static_cast<int>(reinterpret_cast<u64>(from) % widest);
    // What is a vector in memory is one in shared memory.
    auto* const own_stage = reinterpret_cast<unsigned char*>(stages) + threadIdx.x / 32 * stage_bytes;
    d_in_v* const stage   = reinterpret_cast<d_in_v*>(own_stage + beyond);
    int head = 0, vectors = 0;
    if constexpr (is_word<sizeof(d_in_v)>) {
      head    = (widest - beyond) % widest / static_cast<int>(sizeof(d_in_v));
      head    = head < size ? head : size;
      vectors = beyond % sizeof(d_in_v) == 0 ? (size - head) / items : 0;
    }
#pragma unroll 4
    for (int v = lane; v < vectors; v += 32) {
      begin_copy(stage + head + v * items, from + head + v * items);
    }
    for (int i = lane; i < size - vectors * items; i += 32) {
      const int at = i < head ? i : i + vectors * items;
      stage[at]    = from[at];
    }
    wait_for_copies();
    partial sum;
    if (group < count) {
      combine_staged_share(sum, stage + (its.begin - low), static_cast<int>(its.length), lane, log_lanes, op);
    }
    if (log_lanes > 0) {
      __syncwarp();
      combine_lanes(sum, 1 << log_lanes, op);
    }
    if (group < count && lane == group << log_lanes) {
      finish(out, first + group, sum, op, init);
    }
    return true;
  }
  return false;
}
}  // namespace cupar
