// Scans on GPUs with bulk copies (compute capability 9.0 and later), of inputs and outputs that go through
// arrays from item to item: arrays, and tuples of arrays. Rows of one length are scanned as one: a value
// knows whether a row begins in what it is made of, and nothing before that counts.
//
// A block on each multiprocessor takes tile after tile, several ahead, and its warps have roles:
//
// - The loader takes a tile, and has its part of each array of the input copied to a slot in shared memory.
// - Reducing warps reduce a slice each of a tile once it has arrived, and keep each lane's exclusive prefix.
// - The publisher reduces the slices, and publishes the tile's aggregate.
// - The lookahead warp finds a tile's exclusive prefix. It keeps the inclusive prefix of one tile, and adds
//   what those up to the block's next tile published: none waits for the tiles before another's.
// - Scanning warps scan the slices, and have the arrays of the output written.
//
// Reducing runs ahead of scanning by as many tiles as there are slots: with one set of warps for both, tiles
// would be published as late as tiles before them become known (0.55 of a copy's speed in place of 0.84,
// pairs of float32, 2^24 items, on an H200). A block takes a tile only when what it took two tiles ago is
// published, or runs of tiles of one block would hold up all others.
//
// Source: ours. Looking ahead in place of back, and warps with roles: CUB's kernel_scan_lookahead.cuh
// ("warpspeed"), which takes single arrays.
//
// Traits: d_in_t, d_out_t, d_out_v, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device; the
// policy: staged_warps, of each of the two sets; staged_nbytes, of the input in a slot, and staged_slots,
// both at most.
#pragma once

#include "common/initial.cuh"
#include "common/kernel.cuh"
#include "common/lookahead.cuh"
#include "common/staged.cuh"

namespace cupar {
// A value in rows: of the items from the last beginning of a row on, if one begins there.
template <class V>
struct row_value {
  V value;
  unsigned has_begin;
};
template <class V, class Op>
struct row_op {
  Op op;
  __device__ __forceinline__ row_value<V> operator()(const row_value<V>& a, const row_value<V>& b) const {
    if (b.has_begin) {
      return b;
    }
    return {static_cast<V>(op(a.value, b.value)), a.has_begin};
  }
};

template <class Traits, bool of_rows>
struct staged_scan {
  using d_in_t  = typename Traits::d_in_t;
  using d_out_t = typename Traits::d_out_t;
  using d_out_v = typename Traits::d_out_v;
  using op_t    = typename Traits::op_t;
  using accum_t = typename Traits::accum_t;

  static constexpr bool is_inclusive = Traits::is_inclusive;

  static constexpr bool init_is_value     = Traits::init_is_value;
  static constexpr bool init_is_on_device = Traits::init_is_on_device;
  static constexpr bool has_init          = init_is_value || init_is_on_device;
  using init_t                            = init_parameter<accum_t, init_is_value, init_is_on_device>;

  using item_t   = combined<op_t, accum_t>;
  using value_t  = cuda::std::conditional_t<of_rows, row_value<item_t>, item_t>;
  using value_op = cuda::std::conditional_t<of_rows, row_op<item_t, op_t>, op_t>;
  using known    = published<value_t>;

  // Whether the scan's first tile has the initial value as its prefix.
  static constexpr bool begins_with_init = has_init && !of_rows;

  static constexpr int warps   = Traits::staged_warps;
  static constexpr int threads = 32 * (2 * warps + 3);

  // A lane's items: an odd number, so that lanes meet in no bank; some are loaded at once.
  static constexpr int batch = 8;
  static constexpr int lane_items_of(int bytes) {
    const int found = bytes / (32 * warps * staged<d_in_t>::item_bytes);
    return found < 3 ? 3 : (found - 1) | 1;
  }
  static constexpr int lane_items  = lane_items_of(Traits::staged_nbytes);
  static constexpr int slice_items = 32 * lane_items;
  static constexpr int tile_items  = warps * slice_items;

  // Barriers between the warps of a block for a slot.
  struct slot_state {
    barrier is_full, is_reduced, is_published, is_known, is_empty;
    unsigned tile;
    value_t of_slices[warps];  // what slices reduce to; then each with those before it
    value_t before_tile;
    value_t before_lanes[warps * 32];  // of a slice
  };

  static constexpr int in_bytes   = staged<d_in_t>::template bytes_of<tile_items>();
  static constexpr int out_bytes  = staged<d_out_t>::template bytes_of<tile_items>();
  static constexpr int slot_bytes = in_bytes + (static_cast<int>(sizeof(slot_state)) + 127) / 128 * 128;
  static constexpr int most_slots = (shared_limit - out_bytes - 128) / slot_bytes;
  static constexpr int slots      = most_slots < Traits::staged_slots ? most_slots : Traits::staged_slots;
  static constexpr bool fits      = slots >= 3;
  static constexpr int known_size = sizeof(known);
  static constexpr int shared     = out_bytes + slots * slot_bytes;

  static __device__ __forceinline__ char* shared_memory() {
    extern __shared__ __align__(128) char memory[];
    return memory;
  }
  static __device__ __forceinline__ char* data_of(int slot) {
    return shared_memory() + out_bytes + slot * slot_bytes;
  }
  static __device__ __forceinline__ slot_state& state_of(int slot) {
    return *reinterpret_cast<slot_state*>(data_of(slot) + in_bytes);
  }

  // A slot's turn.
  struct turn {
    int slot     = 0;
    int parity   = 0;      // of the slot's barriers, in this round
    bool is_late = false;  // not the first round

    __device__ __forceinline__ void next() {
      if (++slot == slots) {
        slot    = 0;
        is_late = true;
        parity ^= 1;
      }
    }
  };

  struct problem {
    d_in_t in;
    d_out_t out;
    known* of_tiles;
    unsigned* counter;
    unsigned tiles;
    u64 num_items;
    unsigned row;  // items of a row
    value_op op;
    item_t init;

    __device__ __forceinline__ u64 first_of(unsigned tile) const { return u64{tile} * tile_items; }
    __device__ __forceinline__ int count_of(unsigned tile) const {
      const u64 left = num_items - first_of(tile);
      return left < tile_items ? static_cast<int>(left) : tile_items;
    }
  };

  // A lane's part of a tile.
  struct part {
    int first, count;  // items of the tile before it, and of it

    __device__ __forceinline__ part(int items, int warp)
        : first(warp * slice_items + static_cast<int>(threadIdx.x % 32) * lane_items) {
      const int left = items - first;
      count          = left < 0 ? 0 : left < lane_items ? left : lane_items;
    }
  };
  // How many lanes of a slice have items.
  static __device__ __forceinline__ int lanes_of(int items, int warp) {
    const int left = items - warp * slice_items;
    return left <= 0 ? 0 : left < slice_items ? (left + lane_items - 1) / lane_items : 32;
  }

  static __device__ __forceinline__ void load_tiles(const problem& its) {
    const int lane = threadIdx.x % 32;
    turn now, earlier;  // two tiles earlier
    for (unsigned count = 0;; now.next(), ++count) {
      if (now.is_late) {
        state_of(now.slot).is_empty.wait(now.parity ^ 1);
      }
      if (count >= 2) {
        state_of(earlier.slot).is_published.wait(earlier.parity);
        earlier.next();
      }
      unsigned tile = 0;
      if (lane == 0) {
        tile                    = atomicAdd(its.counter, 1u);
        state_of(now.slot).tile = tile;
      }
      tile           = __shfl_sync(~0u, tile, 0);
      barrier& there = state_of(now.slot).is_full;
      if (tile >= its.tiles) {
        there.arrive();
        return;
      }
      staged<d_in_t>::template load<tile_items>(its.in, its.first_of(tile), its.count_of(tile), its.num_items,
                                                data_of(now.slot), there);
    }
  }

  // Gives a lane's items to `take(i, item)`, from left to right. Some at once are loaded before, but at the
  // end of the problem, where a lane may lack some.
  template <class Take>
  static __device__ __forceinline__ void for_items(const d_in_t& from, int count, Take take) {
    if (count < lane_items) {
#pragma unroll 1
      for (int at = 0; at < count; ++at) {
        take(at, static_cast<item_t>(static_cast<accum_t>(from[at])));
      }
      return;
    }
#pragma unroll 1
    for (int at = 0; at < lane_items; at += batch) {
      const auto is_there = [&](int i) { return i < lane_items % batch || at + batch <= lane_items; };
      item_t item[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (is_there(i)) {
          item[i] = static_cast<accum_t>(from[at + i]);
        }
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (is_there(i)) {
          take(at + i, item[i]);
        }
      }
    }
  }

  // Where items are in their rows; without rows, only the first item begins anything.
  struct position {
    unsigned at, row;

    __device__ __forceinline__ position(const problem& its, u64 first, int item)
        : at(of_rows ? (static_cast<unsigned>(first % its.row) + item) % its.row : 0), row(its.row) {}

    // Goes to the next item; returns whether a row begins with this one.
    __device__ __forceinline__ bool begins() {
      if constexpr (!of_rows) {
        return false;
      }
      const bool is_first = at == 0;
      at                  = at + 1 == row ? 0 : at + 1;
      return is_first;
    }
  };

  static __device__ __forceinline__ const item_t& item_of(const item_t& value) { return value; }
  static __device__ __forceinline__ const item_t& item_of(const row_value<item_t>& value) {
    return value.value;
  }

  // Combines the prefix, if there is one, with an item.
  static __device__ __forceinline__ void add(value_t& value, bool has_value, const item_t& item, bool begins,
                                             const problem& its) {
    if constexpr (of_rows) {
      if (begins) {
        value.value     = has_init ? combine(its.init, item, its.op.op) : item;
        value.has_begin = 1;
      } else {
        value.value     = has_value ? combine(value.value, item, its.op.op) : item;
        value.has_begin = has_value ? value.has_begin : 0;
      }
    } else {
      value = has_value ? combine(value, item, its.op) : item;
    }
  }

  static __device__ __forceinline__ void reduce_tiles(const problem& its, int warp) {
    const int lane = threadIdx.x % 32;
    for (turn now;; now.next()) {
      slot_state& state = state_of(now.slot);
      state.is_full.wait(now.parity);
      const unsigned tile = state.tile;
      if (tile >= its.tiles) {
        return;
      }
      const int items = its.count_of(tile), lanes = lanes_of(items, warp);
      if (lanes > 0) {
        const part own(items, warp);
        const d_in_t from =
            staged<d_in_t>::template at<tile_items>(its.in, its.first_of(tile), own.first, data_of(now.slot));
        value_t sum;
        position place(its, its.first_of(tile), own.first);
        for_items(from, own.count,
                  [&](int i, const item_t& item) { add(sum, i > 0, item, place.begins(), its); });
        __syncwarp();
        sum                                  = scan_first_lanes(sum, lanes, its.op);
        const value_t before                 = shuffle_up(sum, 1);
        state.before_lanes[warp * 32 + lane] = before;
        if (lane == lanes - 1) {
          state.of_slices[warp] = sum;
        }
      }
      state.is_reduced.arrive();
    }
  }

  static __device__ __forceinline__ void publish_tiles(const problem& its) {
    const int lane = threadIdx.x % 32;
    for (turn now;; now.next()) {
      slot_state& state = state_of(now.slot);
      state.is_full.wait(now.parity);
      const unsigned tile = state.tile;
      if (tile >= its.tiles) {
        return;
      }
      const int slices = (its.count_of(tile) + slice_items - 1) / slice_items;
      state.is_reduced.wait(now.parity);
      value_t sum;
      if (lane < slices) {
        sum = state.of_slices[lane];
      }
      sum = scan_first_lanes(sum, slices, its.op);
      if (lane == slices - 1 && tile + 1 < its.tiles) {
        its.of_tiles[tile].publish(sum);
      }
      if (lane < slices) {
        state.of_slices[lane] = sum;
      }
      state.is_published.arrive();
    }
  }

  static __device__ __forceinline__ void look_ahead(const problem& its) {
    value_t before_all{};
    if constexpr (begins_with_init) {
      before_all = its.init;
    }
    lookahead<value_t, value_op, begins_with_init> ahead(before_all);
    for (turn now;; now.next()) {
      slot_state& state = state_of(now.slot);
      state.is_full.wait(now.parity);
      const unsigned tile = state.tile;
      if (tile >= its.tiles) {
        return;
      }
      const value_t before = ahead.before(its.of_tiles, tile, its.op);
      if (threadIdx.x % 32 == 0) {
        state.before_tile = before;
      }
      state.is_known.arrive();
    }
  }

  static __device__ __forceinline__ void scan_tiles(const problem& its, int warp) {
    const int lane = threadIdx.x % 32;
    for (turn now;; now.next()) {
      slot_state& state = state_of(now.slot);
      state.is_full.wait(now.parity);
      const unsigned tile = state.tile;
      if (tile >= its.tiles) {
        if (lane == 0) {
          wait_for_bulk_stores();
        }
        return;
      }
      const int items = its.count_of(tile), lanes = lanes_of(items, warp);
      const u64 first = its.first_of(tile);
      state.is_published.wait(now.parity);
      state.is_known.wait(now.parity);
      if (lanes > 0) {
        const bool has_tile = begins_with_init || tile > 0;
        bool has_value      = has_tile;
        value_t value       = state.before_tile;
        if (warp > 0) {
          const value_t slices = state.of_slices[warp - 1];
          value                = has_value ? combine(value, slices, its.op) : slices;
          has_value            = true;
        }
        if (lane > 0) {
          const value_t before = state.before_lanes[warp * 32 + lane];
          value                = has_value ? combine(value, before, its.op) : before;
          has_value            = true;
        }
        if (lane == 0) {
          wait_for_bulk_stores();  // of the items staged before
        }
        __syncwarp();
        const part own(items, warp);
        const d_in_t from =
            staged<d_in_t>::template at<tile_items>(its.in, first, own.first, data_of(now.slot));
        const d_out_t to =
            staged<d_out_t>::template at<tile_items>(its.out, first, own.first, shared_memory());
        position place(its, first, own.first);
        for_items(from, own.count, [&](int i, const item_t& item) {
          const bool begins = place.begins();
          if constexpr (!is_inclusive) {
            to[i] = static_cast<d_out_v>(static_cast<accum_t>(begins ? its.init : item_of(value)));
          }
          add(value, i > 0 || has_value, item, begins, its);
          if constexpr (is_inclusive) {
            to[i] = static_cast<d_out_v>(static_cast<accum_t>(item_of(value)));
          }
        });
      }
      state.is_empty.arrive();
      if (lanes > 0) {
        publish_to_bulk();
        __syncwarp();
        const int begin = warp * slice_items, end = items - begin < slice_items ? items : begin + slice_items;
        staged<d_out_t>::template store<tile_items>(its.out, first, begin, end, shared_memory());
      }
    }
  }

  // The body of a block. The counter stands in the first 16 bytes of the memory, all of which is
  // zero, and what tiles publish behind it.
  static __device__ __forceinline__ void run(d_in_t in, d_out_t out, void* memory, unsigned tiles,
                                             u64 num_items, unsigned row, op_t op, init_t init) {
    if constexpr (fits) {
      if (threadIdx.x == 0) {
        for (int slot = 0; slot < slots; ++slot) {
          slot_state& state = state_of(slot);
          state.is_full.init(32);
          state.is_reduced.init(32 * warps);
          state.is_published.init(32);
          state.is_known.init(32);
          state.is_empty.init(32 * warps);
        }
        publish_barriers();
      }
      __syncthreads();
      wait_for_stream();
      const problem its{in,
                        out,
                        reinterpret_cast<known*>(static_cast<char*>(memory) + 16),
                        static_cast<unsigned*>(memory),
                        tiles,
                        num_items,
                        row,
                        {op},
                        initial<item_t>(init)};
      const int warp = threadIdx.x / 32;
      if (warp == 0) {
        load_tiles(its);
      } else if (warp == 1) {
        publish_tiles(its);
      } else if (warp == 2) {
        look_ahead(its);
      } else if (warp < 3 + warps) {
        reduce_tiles(its, warp - 3);
      } else {
        scan_tiles(its, warp - 3 - warps);
      }
    }
  }

  // Clears the memory.
  static __device__ __forceinline__ void clear(uint4* memory, unsigned words) {
    join_stream();
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < words) {
      memory[at] = uint4{0, 0, 0, 0};
    }
  }
};
}  // namespace cupar
