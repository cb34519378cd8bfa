// Slices of chunks of long segments, each a worker's: combined, scanned where they are, and written.
#pragma once

#include "segmented_scan_slots.cuh"

namespace cupar {
// A worker's slice of a chunk.
struct slice {
  chunk_place its;
  int slot;
  int first, count, skipped;  // position of a lane's first item; how many there are, and how many are not its

  __device__ __forceinline__ slice(const chunk_place& place, int slot_, int warp)
      : its(place), slot(slot_), first(warp * slice_items + static_cast<int>(threadIdx.x % 32) * lane_items) {
    const int left = its.high - first;
    count          = left < 0 ? 0 : left < lane_items ? left : lane_items;
    skipped        = its.low > first ? its.low - first : 0;
  }
  // How many lanes have items.
  __device__ __forceinline__ int lanes(int warp) const {
    const int left = its.high - warp * slice_items;
    return left < 0 ? 0 : left < slice_items ? (left + lane_items - 1) / lane_items : 32;
  }

  // Where items are, in shared memory.
  __device__ __forceinline__ d_in_v* given(int position) const {
    return reinterpret_cast<d_in_v*>(data_of(slot) + shift_of(its.all.in + its.at)) + position;
  }
  __device__ __forceinline__ d_out_v* staged(int position) const {
    if constexpr (is_in_place) {
      return reinterpret_cast<d_out_v*>(data_of(slot) + shift_of(its.all.in + its.at)) + position;
    }
    return reinterpret_cast<d_out_v*>(shared_memory() + slots * slot_bytes) + position;
  }
  // Whether vectors are aligned there.
  __device__ __forceinline__ bool is_given_wide() const {
    return !is_bulk || alignof(d_in_v) == sizeof(d_in_v) || its.all.is_wide;
  }
  __device__ __forceinline__ bool is_staged_wide() const { return !is_in_place || is_given_wide(); }

  template <class T>
  __device__ __forceinline__ static void get(vector<T, items>& to, const T* from, bool is_wide) {
    if (is_wide) {
      load<true>(to, from);
    } else {
      load<false>(to, from);
    }
  }

  // Loads the slice, where bulk copies do not.
  __device__ __forceinline__ void load_items(int warp) const {
    constexpr int batch = is_array<d_in_t> ? lane_vectors : 1;
    const d_in_t from   = its.all.in + its.at;
#pragma unroll 1
    for (int begin = 0; begin < lane_vectors; begin += batch) {
      vector<d_in_v, items> loaded[batch];
      const int position = warp * slice_items + (begin * 32 + static_cast<int>(threadIdx.x % 32)) * items;
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const int at = position + b * 32 * items;
        if (its.all.is_wide && at >= its.low && at + items <= its.high) {
          load<true>(loaded[b], from + at);
        } else {
#pragma unroll
          for (int i = 0; i < items; ++i) {
            if (at + i >= its.low && at + i < its.high) {
              loaded[b].item[i] = from[at + i];
            }
          }
        }
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        store<true>(given(position + b * 32 * items), loaded[b]);
      }
    }
    __syncwarp();
  }

  // Goes through a lane's items from left to right. `value` is what comes before them, if anything does; then
  // it is what all up to the last come to.
  template <bool is_scan>
  __device__ __forceinline__ void go_through(value_t& value, bool has_value, const op_t& op) const {
    const int fresh = has_value ? -1 : skipped;
#pragma unroll 1
    for (int at = 0; at < count; at += items) {
      vector<d_in_v, items> read;
      vector<d_out_v, items> result;
      get(read, given(first + at), is_given_wide());
#pragma unroll
      for (int i = 0; i < items; ++i) {
        if (at + i >= skipped && at + i < count) {
          const value_t item = static_cast<accum_t>(read.item[i]);
          if constexpr (is_scan && !is_inclusive) {
            result.item[i] = static_cast<d_out_v>(static_cast<accum_t>(value));
          }
          if (at + i == fresh) {
            value = item;
          } else {
            value = combine(value, item, op);
          }
          if constexpr (is_scan && is_inclusive) {
            result.item[i] = static_cast<d_out_v>(static_cast<accum_t>(value));
          }
        }
      }
      if constexpr (is_scan) {
        if (is_staged_wide()) {
          store<true>(staged(first + at), result);
        } else {
          store<false>(staged(first + at), result);
        }
      }
    }
  }

  // Writes what is staged.
  __device__ __forceinline__ void store_items(int warp) const {
    const d_out_t to = its.all.out + its.at;
#pragma unroll 1
    for (int v = threadIdx.x % 32; v < 32 * lane_vectors; v += 32) {
      const int at = warp * slice_items + v * items;
      if (its.all.is_wider && at >= its.low && at + items <= its.high) {
        vector<d_out_v, items> stored;
        get(stored, staged(at), is_staged_wide());
        store<true>(to + at, stored);
      } else {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          if (at + i >= its.low && at + i < its.high) {
            to[at + i] = *staged(at + i);
          }
        }
      }
    }
  }
};

// A worker.
__device__ __forceinline__ void work_on_chunks(block_state& block, d_in_t in, d_out_t out, int warp,
                                               const op_t& op) {
  const int lane = threadIdx.x % 32;
  turn now, previous;
  bool has_previous = false;
  value_t before_previous;  // what the lanes before have, of the slice of the chunk before
  for (;; now.next()) {
    block.is_full[now.slot].wait(now.round);
    const bool is_there = block.chunks[now.slot].is_there;
    value_t before;
    if (is_there) {
      const slice of(block.chunks[now.slot].place(in, out), now.slot, warp);
      const int lanes = of.lanes(warp);
      if (lanes > 0) {
        if constexpr (!is_bulk) {
          of.load_items(warp);
        }
        value_t sum;
        of.go_through<false>(sum, false, op);
        sum    = scan_first_lanes(sum, lanes, op);
        before = shuffle_up(sum, 1);
        if (lane == lanes - 1) {
          of_slices(now.slot)[warp] = sum;
        }
      }
      if (lane == larger(lanes - 1, 0)) {
        block.are_combined[now.slot].arrive();
      }
    }
    if (has_previous) {
      const chunk& its = block.chunks[previous.slot];
      const slice of(its.place(in, out), previous.slot, warp);
      block.is_known[previous.slot].wait(previous.round);
      if (of.lanes(warp) > 0) {
        const bool has_chunk = has_init || its.k > 0, has_all = has_chunk || warp > 0;
        value_t all;
        if (warp > 0) {
          all = of_slices(previous.slot)[warp - 1];
          if (has_chunk) {
            all = combine(before_chunk(previous.slot), all, op);
          }
        } else if (has_chunk) {
          all = before_chunk(previous.slot);
        }
        if (lane > 0 && of.count > 0) {
          all = has_all ? combine(all, before_previous, op) : before_previous;
        }
        of.go_through<true>(all, has_all || lane > 0, op);
        __syncwarp();
        of.store_items(warp);
      }
      if constexpr (is_bulk) {
        publish_to_bulk();
      }
      block.is_empty[previous.slot].arrive_as_warp();
    }
    if (!is_there) {
      return;
    }
    before_previous = before;
    previous        = now;
    has_previous    = true;
  }
}
}  // namespace cupar
