// Scans of values of which a thread's registers hold no more than two: a block for each tile, whose threads
// read their items one by one, twice, and which looks back on the tiles before it. CUB's agent has some ten
// places that scan or reduce the values of a warp, each written out for all its steps; here are two, in
// loops, as linking takes most of a build's time. A single tile needs no states, and so no other kernel.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA
// NVR-2016-002.
//
// Traits: what `scan_quick.cuh` has.
#pragma once

#include "common/combining.cuh"
#include "common/initial.cuh"
#include "common/kernel.cuh"
#include "common/published.cuh"

namespace cupar {
template <class Traits>
struct scan_large_kernels {
  using d_in_t                            = typename Traits::d_in_t;
  using d_out_t                           = typename Traits::d_out_t;
  using d_out_v                           = typename Traits::d_out_v;
  using op_t                              = typename Traits::op_t;
  using accum_t                           = typename Traits::accum_t;
  static constexpr bool is_inclusive      = Traits::is_inclusive;
  static constexpr bool init_is_value     = Traits::init_is_value;
  static constexpr bool init_is_on_device = Traits::init_is_on_device;

  static constexpr bool has_init = init_is_value || init_is_on_device;
  using init_t                   = init_parameter<accum_t, init_is_value, init_is_on_device>;

  static constexpr int threads = sizeof(accum_t) <= 4096 ? 128 : 32, warps = threads / 32;
  static constexpr int items = sizeof(accum_t) <= 512 ? 8 : sizeof(accum_t) <= 4096 ? 4 : 1;  // of a thread
  static constexpr int tile_items    = threads * items;
  static constexpr int clear_threads = 128;

  // What a tile publishes: what its items come to, and then, what all up to its last one do.
  struct state {
    published<accum_t> of_tile, up_to_tile;
  };

  // How many lanes, or warps, have some of these items, each as many.
  static __device__ __forceinline__ int lanes_of(int left, int each) {
    const int found = left <= 0 ? 0 : (left - 1) / each + 1;
    return found < 32 ? found : 32;
  }

  // What all tiles before one come to; a warp's lanes call it together.
  static __device__ __forceinline__ accum_t look_back(const state* states, i64 tile, const op_t& op) {
    const int lane = threadIdx.x % 32;
    accum_t sum;
    bool has_sum = false;
#pragma unroll 1
    for (i64 nearest = tile - 1;; nearest -= 32) {
      const state* const its = states + (nearest - lane);
      bool is_tiles = false, is_all = false;  // which of the two `value` is
      accum_t value;
      unsigned ends, needed;
      while (true) {
#pragma unroll 1
        for (int which = 0; which < 2; ++which) {
          if (nearest >= lane && !is_all && !(which == 1 && is_tiles)) {
            const auto found = (which == 0 ? its->up_to_tile : its->of_tile).read();
            found.arrive();
            if (found.is_there()) {
              value                            = found.value();
              (which == 0 ? is_all : is_tiles) = true;
            }
          }
        }
        ends   = __ballot_sync(~0u, is_all);
        needed = ends ? ends ^ (ends - 1) : ~0u;  // the lanes up to the first of those
        if (!(__ballot_sync(~0u, !is_all && !is_tiles) & needed)) {
          break;
        }
      }
      const int count = __popc(needed), mirrored = count - 1 - lane;
      const accum_t ordered = shuffle(value, mirrored < 0 ? 0 : mirrored);
      const accum_t all     = shuffle(scan_first_lanes(ordered, count, op), count - 1);
      sum                   = has_sum ? combine(all, sum, op) : all;
      has_sum               = true;
      if (ends) {
        return sum;
      }
    }
  }

  // Clears the states of tiles.
  struct cupar_scan_clear : kernel<clear_threads> {
    static __device__ __forceinline__ void run(void* memory, int tiles) {
      join_stream();
      constexpr int words = sizeof(state) / 16;
      const i64 end       = i64{tiles} * words;
      const i64 first     = i64{blockIdx.x} * clear_threads * words;
      for (i64 w = first + threadIdx.x; w < first + clear_threads * words && w < end; w += clear_threads) {
        static_cast<uint4*>(memory)[w] = uint4{0, 0, 0, 0};
      }
    }
  };

  struct cupar_scan_tiles : kernel<threads, 1> {
    static __device__ __forceinline__ void run(d_in_t d_in, d_out_t d_out, void* memory, int tiles,
                                               u64 num_items, op_t op, init_t init) {
      __shared__ accum_t up_to_warp[warps];
      __shared__ accum_t before_tile;
      wait_for_stream();
      const i64 tile  = blockIdx.x;
      const u64 first = u64{blockIdx.x} * tile_items;
      const int lane  = threadIdx.x % 32;
      const int warp  = threadIdx.x / 32;
      const int there = num_items - first < tile_items ? static_cast<int>(num_items - first) : tile_items;
      const int own   = static_cast<int>(threadIdx.x) * items;  // where the thread's items begin
      const int count = there <= own ? 0 : there - own < items ? there - own : items;
      const int lanes = lanes_of(there - warp * 32 * items, items);
      const bool has_before = has_init || tile > 0;

      accum_t up_to_lane;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const accum_t item = static_cast<accum_t>(d_in[first + (own + i)]);
        up_to_lane         = i > 0 ? combine(up_to_lane, item, op) : item;
      }
      if (lanes > 0) {
        up_to_lane = scan_first_lanes(up_to_lane, lanes, op);
        if (lane == lanes - 1) {
          up_to_warp[warp] = up_to_lane;
        }
      }
      __syncthreads();

      if (warp == 0) {
        const int active    = lanes_of(there, 32 * items);
        accum_t all         = scan_first_lanes(up_to_warp[lane < active ? lane : 0], active, op);
        const bool has_last = lane == active - 1;
        __syncwarp();
        if (lane < active) {
          up_to_warp[lane] = all;
        }
        state* const states = static_cast<state*>(memory);
        if (tile > 0 && has_last) {
          states[tile].of_tile.publish(all);
        }
        if (has_before) {
          accum_t before;
          if (tile > 0) {
            before = look_back(states, tile, op);
          } else {
            before = initial<accum_t>(init);
          }
          if (has_last) {
            before_tile = before;
            all         = combine(before, all, op);
          }
        }
        if (tiles > 1 && has_last) {
          states[tile].up_to_tile.publish(all);
        }
      }
      __syncthreads();
      launch_dependents();

      // What is before the thread's items: in the warp, in the tile, and in all tiles.
      accum_t before  = shuffle_up(up_to_lane, 1);
      bool has_others = lane > 0;
#pragma unroll 1
      for (int which = 0; which < 2; ++which) {
        if (which == 0 ? warp > 0 : has_before) {
          const accum_t& earlier = which == 0 ? up_to_warp[warp - 1] : before_tile;
          before                 = has_others ? combine(earlier, before, op) : earlier;
          has_others             = true;
        }
      }
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const accum_t item       = static_cast<accum_t>(d_in[first + (own + i)]);
        const accum_t with       = i > 0 || has_others ? combine(before, item, op) : item;
        d_out[first + (own + i)] = static_cast<d_out_v>(is_inclusive ? with : before);
        before                   = with;
      }
    }
  };

  static constexpr auto properties = properties_of(threads, items, sizeof(state), 0);
};
}  // namespace cupar
