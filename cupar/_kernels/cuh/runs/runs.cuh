// Runs of equal keys, and what their values are combined to.
//
// Blocks stay, and take one tile after another, as in compact/compact.cuh. A tile of keys and values comes
// into one of three buffers in shared memory, by bulk copies where there are such and the inputs are arrays.
// Each thread reads a few neighbours, finds where runs begin, and scans its values run by run; its warp and
// its block go on with what threads end with. What the tile ends with is published, and what becomes of its
// items takes their place; those of the run that goes on from the tile before lack what comes before the
// tile. Meanwhile one warp looks back on the tile of the round before. Then that one is written. So the
// look-back of a tile has had a round to be answered in, and the copy of another tile is under way.
//
// The neighbours are an odd number, so that the threads of a warp, each reading its first, second, … item,
// meet in no bank of shared memory.
//
// A block that waits for another's tile must not keep that one from running: see compact/compact.cuh.
//
// Source: our own, with the look-back of states.cuh.
//
// Traits: threads, items of each, and resident, the blocks that a multiprocessor is to run at once; key_t;
// local_t, in which values are combined within a tile, accum_t, in which they are beyond, and staged_t, in
// which what becomes of items takes their place; init_is_value, init_is_on_device (neither: runs have no
// initial value).
#pragma once

#include "common/bulk.cuh"
#include "common/initial.cuh"
#include "common/kernel.cuh"
#include "common/tiles.cuh"
#include "common/zero.cuh"
#include "runs/states.cuh"

namespace cupar {
template <class Traits>
struct run_tiles {
  using key_t                             = typename Traits::key_t;
  using local_t                           = typename Traits::local_t;
  using accum_t                           = typename Traits::accum_t;
  using staged_t                          = typename Traits::staged_t;
  static constexpr int threads            = Traits::threads;
  static constexpr int items              = Traits::items;
  static constexpr int resident           = Traits::resident;
  static constexpr bool init_is_value     = Traits::init_is_value;
  static constexpr bool init_is_on_device = Traits::init_is_on_device;

  static constexpr int tile_items = threads * items;
  static constexpr int warps      = threads / 32;
  static constexpr int buffers    = 3;
  static constexpr int ticket_words =
      16;  // the counter of tiles has a separate line of 128 bytes, before their states

  static_assert(threads % 32 == 0 && warps <= 32 && items <= 32 && tile_items < 65536);

  using part_t  = runs<unsigned, local_t>;  // of items of a tile
  using whole_t = runs<u64, accum_t>;       // of tiles

  static constexpr bool has_init = init_is_value || init_is_on_device;
  using init_t                   = init_parameter<accum_t, init_is_value, init_is_on_device>;

  // Bytes of a buffer: the values are after the keys.
  template <class Keys, class Values>
  static constexpr int buffer_bytes =
      Keys::bytes + (Values::bytes > tile_items * int{sizeof(staged_t)} ? Values::bytes
                                                                        : tile_items * int{sizeof(staged_t)});

  template <class Keys>
  static __device__ __forceinline__ key_t* staged_keys(char* buffer) {
    return reinterpret_cast<key_t*>(buffer);
  }
  template <class Keys>
  static __device__ __forceinline__ staged_t* staged_values(char* buffer) {
    return reinterpret_cast<staged_t*>(buffer + Keys::bytes);
  }

  // A thread's items. What one has is combined from the first of its run that the thread has up to it.
  struct thread_items {
    int count;  // how many it has: less than `items` at the end
    key_t key_before, key[items];
    local_t sum[items];
    unsigned begins;  // a bit for each that begins a run
    local_t open;     // what those before the first beginning have

    __device__ __forceinline__ bool is_begin(int i) const { return begins >> i & 1; }
    // Whether one of the items up to one begins a run.
    __device__ __forceinline__ bool is_closed(int i) const { return begins & ((2u << i) - 1); }

    // Takes the items, and returns their aggregate.
    template <class Values, class Equal, class Op>
    __device__ __forceinline__ part_t take(const key_t* keys, Values values, bool are_first,
                                           const Equal& is_equal, const Op& op, const accum_t& init) {
      part_t end;
      begins = 0;
      if (count > 0 && !are_first) {
        key_before = keys[-1];
      }
#pragma unroll
      for (int i = 0; i < items; ++i) {
        if (i < count) {
          key[i] = keys[i];
          const bool is_begin =
              (i == 0 && are_first) || !is_equal(i == 0 ? key_before : key[i - (i > 0)], key[i]);
          local_t left;
          if constexpr (has_init) {
            left = init;
          }
          if (i > 0) {
            if (is_begin && begins == 0) {
              open = sum[i - (i > 0)];
            }
            if (!has_init || !is_begin) {
              left = sum[i - (i > 0)];
            }
          }
          begins |= unsigned{is_begin} << i;
          sum[i] = static_cast<local_t>(values[i]);
          if (is_begin ? has_init : i > 0) {
            sum[i] = combine(left, sum[i], op);
          }
          end.value = sum[i];
        }
      }
      end.count = __popc(begins);
      return end;
    }
  };

  // Combines each lane's part with those of the lanes before it; of lanes that have none, it makes none.
  template <int lanes, class Op>
  static __device__ __forceinline__ part_t scan_lanes(part_t part, bool has_part, const Op& op) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 1; offset < lanes; offset *= 2) {
      const part_t before = shuffle_up(part, offset);
      if (lane >= offset && has_part) {
        part = combine(before, part, op);
      }
    }
    return part;
  }

  // Takes the runs of all items. The counter and the states of tiles in `storage` are 0; a grid of one block
  // needs none. `counts_all`: whether it matters how many runs begin in all tiles before one, and not only
  // whether any does.
  //
  // stage(buffer, items, prefix, has_prefix, place): puts what becomes of a thread's items, the first of
  // which is the tile's item `place`, into the buffer. `prefix` is what the tile's items before have.
  // write(first, count, buffer, before, begins, first_begin): writes the tile of `count` items that begins
  // with item `first`. `before` is what all tiles before it have, `begins` how many runs begin in it, the
  // first with its item `first_begin`. finish(all): is told what all tiles have.
  template <bool counts_all, class Keys, class Values, class Equal, class Op, class Stage, class Write,
            class Finish>
  static __device__ __forceinline__ void take_runs(Keys keys, Values values, i64 num_items, u64* storage,
                                                   const Equal& is_equal, const Op& op, const accum_t& init,
                                                   Stage stage, Write write, Finish finish) {
    constexpr int bytes       = buffer_bytes<Keys, Values>;
    constexpr bool is_bulk    = Keys::is_bulk || Values::is_bulk;
    constexpr unsigned loader = warps > 1 ? 32 : 0;  // the thread that gets tiles; the first warp looks back
    using states_t            = run_states<accum_t>;

    extern __shared__ __align__(16) char memory[];
    __shared__ barrier arrived[buffers];
    __shared__ i64 tile_in[buffers];
    __shared__ part_t of_warp[warps];
    __shared__ int first_begin[2];  // of this round's tile and of that of the round before
    __shared__ whole_t before_previous;

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const i64 tiles     = (num_items + tile_items - 1) / tile_items;
    const bool is_alone = gridDim.x == 1;
    const states_t states{reinterpret_cast<typename states_t::state_t*>(storage + ticket_words)};

    const auto items_in = [&](i64 tile) {
      return static_cast<int>(min(i64{tile_items}, num_items - tile * tile_items));
    };
    // The tile of a round; after the last one, some number from `tiles` on.
    const auto tile_of_round = [&](unsigned round) -> i64 {
      if (is_alone) {
        return round;
      }
      if (tiles <= gridDim.x) {
        return round == 0 ? blockIdx.x : tiles;
      }
      return static_cast<i64>(atomicAdd(storage, u64{1}));
    };
    const auto get = [&](unsigned round, i64 tile) {
      const unsigned slot = round % buffers;
      tile_in[slot]       = tile;
      if constexpr (is_bulk) {
        if (tile < tiles) {
          char* const buffer = memory + slot * bytes;
          const i64 begin    = tile * tile_items;
          const int count    = items_in(tile);
          arrived[slot].arrive_expecting(keys.bulk_bytes(begin, count) + values.bulk_bytes(begin, count));
          keys.begin(buffer, begin, count, arrived[slot]);
          values.begin(buffer + Keys::bytes, begin, count, arrived[slot]);
        }
      }
    };

    if (thread == loader) {
      if constexpr (is_bulk) {
        for (barrier& each : arrived) {
          each.init(1);
        }
        publish_barriers();
      }
      get(0, tile_of_round(0));
    }
    if (tiles == 0 && thread == 0) {
      finish(whole_t{});
    }
    __syncthreads();

    const int place = thread * items;  // of this thread's first item
    i64 previous    = -1;              // the tile of the round before, and its aggregate
    part_t of_previous;
    whole_t so_far;  // what all tiles before that have, in the first warp of a block that is alone
    for (unsigned round = 0;; ++round) {
      const unsigned slot = round % buffers;
      char* const buffer  = memory + slot * bytes;
      const i64 tile      = tile_in[slot];
      const bool is_tile  = tile < tiles;
      const i64 next      = thread == loader && is_tile ? tile_of_round(round + 1) : tiles;

      int count = 0;
      thread_items mine;
      part_t up_to_lane;
      if (is_tile) {
        const i64 begin = tile * tile_items;
        count           = items_in(tile);
        const bool is_written =
            keys.complete(buffer, begin, count) | values.complete(buffer + Keys::bytes, begin, count);
        if constexpr (is_bulk) {
          arrived[slot].wait(round / buffers & 1);
        }
        if (is_written) {
          __syncthreads();
        }
        mine.count = max(0, min(items, count - place));
        up_to_lane = mine.take(keys.items(buffer) + place, values.items(buffer + Keys::bytes) + place,
                               tile == 0 && thread == 0, is_equal, op, init);
        up_to_lane = scan_lanes<32>(up_to_lane, mine.count > 0, op);
        if (mine.count > 0 && (lane == 31 || place + items >= count)) {
          of_warp[warp] = up_to_lane;
        }
      }
      __syncthreads();  // all have read their items, and the tile of two rounds before is written

      if (thread == loader) {
        get(round + 1, next);
      }
      part_t all, prefix;
      if (is_tile) {
        const int full = (count + 32 * items - 1) / (32 * items);  // warps that have items
        part_t up_to_warp;
        if (lane < full && lane < warps) {
          up_to_warp = of_warp[lane];
        }
        up_to_warp               = scan_lanes<warps>(up_to_warp, lane < full, op);
        all                      = shuffle(up_to_warp, full - 1);
        const part_t before_warp = shuffle(up_to_warp, max(0, warp - 1));
        prefix                   = shuffle_up(up_to_lane, 1);
        if (mine.count > 0 && warp > 0) {
          prefix = lane > 0 ? combine(before_warp, prefix, op) : before_warp;
        }
        if (thread == 0) {
          if (!is_alone) {
            const bool is_known = tile == 0 || (!counts_all && all.count > 0);
            states.publish(tile, is_known ? states.up_to_tile : states.of_tile,
                           whole_t{all.count, static_cast<accum_t>(all.value)});
          }
          prefix.count = 0;
        }
        if (mine.begins && prefix.count == 0) {
          first_begin[round & 1] = place + __ffs(mine.begins) - 1;
        } else if (all.count == 0 && thread == 0) {
          first_begin[round & 1] = tile_items;
        }
      }
      if (warp == 0 && previous >= 0) {
        whole_t before;
        before.count = 0;
        if (previous > 0) {
          before = is_alone ? so_far : states.before(previous, op);
        }
        so_far = {before.count + of_previous.count, static_cast<accum_t>(of_previous.value)};
        if (of_previous.count == 0) {
          so_far.value = combine(before.value, so_far.value, op);
        }
        if (lane == 0) {
          before_previous = before;
          if (!is_alone && previous > 0 && (counts_all || of_previous.count == 0)) {
            states.publish(previous, states.up_to_tile, so_far);
          }
          if (previous == tiles - 1) {
            finish(so_far);
          }
        }
      }
      if (is_tile) {
        stage(buffer, mine, prefix, thread > 0, place);
      }
      __syncthreads();  // this tile is staged, and the prefix of the previous one is known

      if (previous >= 0) {
        write(previous * tile_items, items_in(previous), memory + (round + buffers - 1) % buffers * bytes,
              before_previous, of_previous.count, first_begin[~round & 1]);
        if constexpr (is_bulk) {
          publish_to_bulk();  // that the buffer is free
        }
      }
      if (!is_tile) {
        return;
      }
      previous    = tile;
      of_previous = all;
    }
  }

  struct cupar_runs_init : zero<u64> {};
};
}  // namespace cupar
