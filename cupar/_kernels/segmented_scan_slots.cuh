// Slots in shared memory for chunks of long segments, and what the warps of a block tell each other of them.
//
// Given: what segment_chunks.cuh is; policy_chunk_warps, policy_chunk_resident, policy_chunk_bytes,
// policy_chunk_slots.
#pragma once

#include "barriers.cuh"
#include "segment_chunks.cuh"

namespace cupar {
constexpr int larger(int a, int b) {
  return a > b ? a : b;
}
constexpr int rounded(int bytes) {
  return (bytes + 127) / 128 * 128;
}

// Bytes that a multiprocessor has for blocks, each of which needs some for barriers and the like.
constexpr int sm_shared      = (target == 90 || (target >= 100 && target < 120) ? 228
                                : target == 80 || target == 87                  ? 164
                                : target == 75                                  ? 64
                                : target == 70                                  ? 96
                                : target < 75                                   ? 48
                                                                                : 100)
                               << 10;
constexpr int chunk_resident = sizeof(value_t) <= 8 ? policy_chunk_resident : 1;
constexpr int block_shared   = sm_shared / chunk_resident - 4096;

constexpr int in_bytes = sizeof(d_in_v), out_bytes = sizeof(d_out_v);
constexpr int lane_bytes  = items * larger(in_bytes, out_bytes);  // of a vector
constexpr int chunk_limit = policy_chunk_bytes < block_shared / 4 ? policy_chunk_bytes : block_shared / 4;
constexpr int workers_of() {
  int found = sizeof(value_t) <= 8 ? policy_chunk_warps : policy_chunk_warps / 2;
  while (found > 1 && found * 32 * lane_bytes > chunk_limit) {
    found /= 2;
  }
  return found;
}
constexpr int workers       = workers_of();
constexpr int chunk_threads = 32 * (workers + 3);
constexpr int lane_vectors  = (larger(chunk_limit / (workers * 32 * lane_bytes), 1) - 1) | 1;
constexpr int lane_items = lane_vectors * items, slice_items = 32 * lane_items;
constexpr i64 chunk_items = i64{workers} * slice_items;

// A slot: a chunk, as far after a multiple of 16 bytes as it is in memory; then what slices come to, each
// with those before it, and what comes before the chunk.
constexpr int data_bytes = rounded(static_cast<int>(chunk_items) * in_bytes + 16);
constexpr int slot_bytes = data_bytes + rounded((workers + 1) * static_cast<int>(sizeof(value_t)));

// What is written takes the place of what was read, or has a place of its own, for one chunk.
constexpr bool is_in_place = in_bytes == out_bytes && alignof(d_out_v) <= alignof(d_in_v);
constexpr int staged_bytes = is_in_place ? 0 : rounded(static_cast<int>(chunk_items) * out_bytes);

constexpr int fitting_slots = (block_shared - staged_bytes) / slot_bytes;
constexpr bool has_chunks  = fitting_slots >= 3;  // or items are too large, and warps take long segments, too
constexpr int slots        = !has_chunks                          ? 3
                             : fitting_slots < policy_chunk_slots ? fitting_slots
                                                                  : policy_chunk_slots;
constexpr int chunk_shared = has_chunks ? slots * slot_bytes + staged_bytes : 0;
constexpr bool is_bulk     = target >= 90 && is_array<d_in_t>;

static_assert(workers <= 32 && policy_chunk_slots >= 3);

// Arrivals of a warp whose lanes all have read or written what others wait for: each lane's own, where the
// hardware counts them. One lane's after `__syncwarp` is as right and as quick; but compute-sanitizer's
// racecheck does not see that it speaks for the others.
constexpr int of_warp = target >= 90 ? 32 : 1;

// Tells warps of a block that so many others are done with a slot; once in each round of the slots.
template <int arrivals>
struct signal {
  barrier at;

  __device__ __forceinline__ void init() {
    if constexpr (target >= 90) {
      at.init(arrivals);
    } else {
      at.state = 0;
    }
  }
  __device__ __forceinline__ void arrive() {
    if constexpr (target >= 90) {
      at.arrive();
    } else {
      __threadfence_block();
      atomicAdd(&at.state, u64{1});
    }
  }
  // Of a warp: all lanes call it. It is `of_warp` arrivals.
  __device__ __forceinline__ void arrive_as_warp() {
    if constexpr (of_warp == 1) {
      __syncwarp();
    }
    if (of_warp > 1 || threadIdx.x % 32 == 0) {
      arrive();
    }
  }
  __device__ __forceinline__ void wait(unsigned round) {
    if constexpr (target >= 90) {
      at.wait(static_cast<int>(round & 1));
    } else {
      while (*static_cast<volatile u64*>(&at.state) < (u64{round} + 1) * arrivals) {
      }
      __threadfence_block();
    }
  }
};

// Where a chunk is: positions from `at` on of what its segment spans.
struct chunk_place {
  span all;
  i64 at;
  int low, high;  // positions from there: of the first item that is there, and behind the last

  // How many slices have items.
  __device__ __forceinline__ int active() const { return (high + slice_items - 1) / slice_items; }
};

struct chunk {
  long_segment its;
  unsigned k;
  bool is_there;

  __device__ __forceinline__ chunk_place place(d_in_t in, d_out_t out) const {
    const span all = span_of(in + its.begin, out + its.to, its.length);
    const i64 at = k * chunk_items, left = all.high - at;
    return {all, at, at == 0 ? static_cast<int>(all.low) : 0,
            static_cast<int>(left < chunk_items ? left : chunk_items)};
  }
};

// A slot's turn.
struct turn {
  int slot       = 0;
  unsigned round = 0;

  __device__ __forceinline__ void next() {
    if (++slot == slots) {
      slot = 0;
      ++round;
    }
  }
};

// What the warps of a block share.
struct block_state {
  signal<of_warp + is_bulk> is_full[slots];
  signal<workers> are_combined[slots];
  signal<2 * of_warp> is_known[slots];  // what comes before slices
  signal<workers * of_warp> is_empty[slots];
  chunk chunks[slots];

  __device__ __forceinline__ void init() {
#pragma unroll 1
    for (int slot = 0; slot < slots; ++slot) {
      is_full[slot].init();
      are_combined[slot].init();
      is_known[slot].init();
      is_empty[slot].init();
    }
    if constexpr (target >= 90) {
      publish_barriers();
    }
  }
};

__device__ __forceinline__ char* shared_memory() {
  extern __shared__ __align__(128) char memory[];
  return memory;
}
__device__ __forceinline__ char* data_of(int slot) {
  return shared_memory() + slot * slot_bytes;
}
__device__ __forceinline__ value_t* of_slices(int slot) {
  return reinterpret_cast<value_t*>(data_of(slot) + data_bytes);
}
__device__ __forceinline__ value_t& before_chunk(int slot) {
  return of_slices(slot)[workers];
}

// Of each lane up to some, what those up to it have.
__device__ __forceinline__ value_t scan_first_lanes(value_t value, int count, const op_t& op) {
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int distance = 1; distance < count; distance *= 2) {
    const value_t other = shuffle_up(value, distance);
    if (lane >= distance && lane < count) {
      value = combine(other, value, op);
    }
  }
  return value;
}

// How many bytes after a multiple of 16 a chunk's first position is.
template <class In>
__device__ __forceinline__ int shift_of(In first) {
  if constexpr (is_bulk) {
    return static_cast<int>(reinterpret_cast<u64>(first) % 16);
  }
  return 0;
}
}  // namespace cupar
