// How many items come before a tile: the counts of tiles, which the blocks of a grid hand to each other. Each
// block adds up those of the tiles before its own, back to one for which that sum is known already.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back",
// NVR-2016-002.
#pragma once

#include "common/warp.cuh"

namespace cupar {
// States of tiles as they are read and written: CUB's `load_relaxed` and `store_relaxed`, without its
// headers.
__device__ __forceinline__ u64 load_relaxed(const u64* from) {
  u64 word;
  asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ ulonglong2 load_relaxed(const ulonglong2* from) {
  ulonglong2 both;
  asm volatile("ld.relaxed.gpu.v2.u64 {%0, %1}, [%2];" : "=l"(both.x), "=l"(both.y) : "l"(from) : "memory");
  return both;
}
__device__ __forceinline__ void store_relaxed(u64* to, u64 word) {
  asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ void store_relaxed(ulonglong2* to, ulonglong2 both) {
  asm volatile("st.relaxed.gpu.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(both.x), "l"(both.y) : "memory");
}

// States of tiles: one count or two of each, in words whose two highest bits say what the others are. They
// are zero at first. A word is read and written as a whole, two are not: of a tile whose words do not say the
// same, nothing is known yet.
template <int counts>
struct tile_states {
  static constexpr u64 of_tile = u64{1} << 62, up_to_tile = u64{2} << 62, count_bits = of_tile - 1;
  static constexpr int windows = 4;  // of 32 tiles, whose states are on their way at the same time

  struct sums {
    u64 count[counts];
  };

  u64* words;

  __device__ __forceinline__ void publish(i64 tile, u64 kind, const sums& of) const {
    if constexpr (counts == 1) {
      store_relaxed(words + tile, kind | of.count[0]);
    } else {
      const ulonglong2 both{kind | of.count[0], kind | of.count[1]};
      store_relaxed(reinterpret_cast<ulonglong2*>(words) + tile, both);
    }
  }

  // Returns the sums over all tiles before one, to each thread of a warp.
  __device__ __forceinline__ sums before(i64 tile) const {
    const int lane = threadIdx.x % 32;
    sums sum{};
    for (i64 nearest = tile - 1;; nearest -= 32 * windows) {
      sums state[windows];
#pragma unroll
      for (int w = 0; w < windows; ++w) {
        state[w] = load(nearest - 32 * w - lane);
      }
#pragma unroll
      for (int w = 0; w < windows; ++w) {
        unsigned ends, needed;
        while (true) {
          ends   = __ballot_sync(~0u, kind(state[w]) == up_to_tile);
          needed = ends ? ends ^ (ends - 1) : ~0u;  // the lanes up to the first of those
          if (!(__ballot_sync(~0u, kind(state[w]) == 0) & needed)) {
            break;
          }
          state[w] = load(nearest - 32 * w - lane);
        }
        const bool is_added = kind(state[w]) == of_tile && needed >> lane & 1;
#pragma unroll
        for (int c = 0; c < counts; ++c) {
          const u64 count = state[w].count[c] & count_bits;
          sum.count[c] +=
              sum_of_lanes(is_added ? static_cast<unsigned>(count) : 0);  // of a tile, it is small
          if (ends) {
            sum.count[c] += __shfl_sync(~0u, count, __ffs(ends) - 1);
          }
        }
        if (ends) {
          return sum;
        }
      }
    }
  }

 private:
  // Before the first tile there is nothing.
  __device__ __forceinline__ sums load(i64 tile) const {
    if constexpr (counts == 1) {
      return {tile < 0 ? up_to_tile : load_relaxed(words + tile)};
    } else {
      if (tile < 0) {
        return {up_to_tile, up_to_tile};
      }
      const ulonglong2 both = load_relaxed(reinterpret_cast<const ulonglong2*>(words) + tile);
      return {both.x, both.y};
    }
  }

  __device__ __forceinline__ static u64 kind(const sums& state) {
    const u64 one = state.count[0] & ~count_bits, other = state.count[counts - 1] & ~count_bits;
    return one == other ? one : 0;
  }
};
}  // namespace cupar
