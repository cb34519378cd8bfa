// Segmented sorts by a comparison of the user's: stable merge sorts of each segment.
//
// - Segments up to a tile are sorted by a team, in shared memory: of as few threads as the segment needs.
//   With offsets, a kernel before writes a list of segments for each size of team.
// - Longer ones are cut into tiles, each of which a block sorts; then levels merge pairs of runs, tile by
//   tile. A segment goes between the output and spare memory in turns, and begins where its own number of
//   levels has it end in the output. One kernel does all levels, as many as the longest segment needs: its
//   blocks take tickets for tiles, level after level, and a tile waits until the two runs are there that it
//   is merged from. Whoever has an earlier ticket writes these, and waits for none that is later.
//
// Values are read where the places of their keys say: once, and in each level once more.
//
// Traits: d_in_keys_t, d_out_keys_v, d_in_values_t, d_out_values_v (void: keys alone), start_offsets_in_t,
// end_offsets_in_t, op_t.
#pragma once

#include <cuda/std/__algorithm/clamp.h>

#include "common/kernel.cuh"
#include "common/lists.cuh"
#include "common/offsets.cuh"
#include "common/zero.cuh"
#include "segmented_merge_sort/merges.cuh"

namespace cupar {
template <class Traits>
struct segmented_merge_sort_kernels {
  using d_in_keys_t        = typename Traits::d_in_keys_t;
  using d_out_keys_v       = typename Traits::d_out_keys_v;
  using d_in_values_t      = typename Traits::d_in_values_t;
  using d_out_values_v     = typename Traits::d_out_values_v;
  using start_offsets_in_t = typename Traits::start_offsets_in_t;
  using end_offsets_in_t   = typename Traits::end_offsets_in_t;
  using op_t               = typename Traits::op_t;

  static constexpr bool has_values = !cuda::std::is_void_v<d_out_values_v>;
  using key                        = d_out_keys_v;
  using value                      = cuda::std::conditional_t<has_values, d_out_values_v, char>;
  using values_in_t                = cuda::std::conditional_t<has_values, d_in_values_t, const char*>;
  using sort_op                    = op_t;

  using merges                     = segment_merges<key, sort_op, has_values>;
  static constexpr int merge_items = merges::merge_items, merge_threads = merges::merge_threads;
  static constexpr int merge_tile = merges::merge_tile, merge_blocks = merges::merge_blocks;
  using merge_stage = typename merges::merge_stage;
  using stage_of    = typename merges::stage_of;
  using share       = typename merges::share;

  struct arrays {
    key* keys;
    value* values;
  };

  struct long_segment {
    i64 begin, length;
    u32 first_tile, tiles;

    // How many levels it needs.
    __device__ __forceinline__ int levels() const {
      return tiles > 1 ? 32 - __clz(static_cast<int>(tiles - 1)) : 0;
    }
  };

  struct queue {
    u32* counts;  // of all tiles, of the levels that the longest segment needs, and of tickets
    long_segment* segments;
    u32* segment_of;  // each tile
    u32* merged;      // by a run's first tile: of its tiles, how many levels have merged
    u32 most_segments, most_tiles;

    __device__ __forceinline__ u32 tiles() const {
      const u32 all = counts[0];
      return all < most_tiles ? all : most_tiles;
    }
  };

  static constexpr u32 no_segment = ~0u;

  // The buffer that has a segment's items before merge level `level`.
  static __device__ __forceinline__ const arrays& place_at(const arrays& output, const arrays& spare,
                                                           int level, int levels) {
    return (levels - level) % 2 == 0 ? output : spare;
  }

  // Lists are those of teams of 1 thread, 2, 4, and so on up to a block; the last is of long segments.
  static constexpr int team_sizes = 1 + log2_of(merge_threads);
  static_assert(team_sizes < most_lists);

  struct cupar_segmented_merge_sort_init : zero<u32> {};

  struct cupar_segmented_merge_sort_list : kernel<list_threads> {
    static __device__ __forceinline__ void run(start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& to) {
      write_lists(starts, ends, num_segments, to, [](i64 length) {
        int list = 0;
#pragma unroll
        for (int size = 0; size < team_sizes; ++size) {
          list += length > merge_items << size;
        }
        return list;
      });
    }
  };

  // Cuts long segments into tiles.
  struct cupar_segmented_merge_sort_tiles : kernel<256> {
    static __device__ __forceinline__ void run(start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& from, queue to) {
      __shared__ u32 shared_first;
      join_stream();
      i64 count = from.count(team_sizes, num_segments);
      count     = count < to.most_segments ? count : to.most_segments;
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const i64 segment = from.segment(team_sizes, at);
        const i64 begin   = static_cast<i64>(starts[segment]);
        const i64 length  = length_of(begin, static_cast<i64>(ends[segment]));
        const auto tiles  = static_cast<u32>((length + merge_tile - 1) / merge_tile);
        if (threadIdx.x == 0) {
          const u32 first        = atomicAdd(&to.counts[0], tiles);
          const long_segment its = {begin, length, first, tiles};
          to.segments[at]        = its;
          shared_first           = first;
          if (u64{first} + tiles <= to.most_tiles) {
            atomicMax(&to.counts[1], static_cast<u32>(its.levels()));
          }
        }
        __syncthreads();
        const u32 first   = shared_first;
        const u64 end     = u64{first} + tiles;
        const bool is_one = end <= to.most_tiles;  // not if segments overlap
        for (u64 tile = first + threadIdx.x; tile < end && tile < to.most_tiles; tile += blockDim.x) {
          to.segment_of[tile] = is_one ? static_cast<u32>(at) : no_segment;
          to.merged[tile]     = 0;
        }
        __syncthreads();
      }
    }
  };

  // Sorts the tiles of long segments, if there is a queue; and segments by teams, from the largest to the
  // smallest: of 1 << size threads.
  struct cupar_segmented_merge_sort_teams : kernel<merge_threads, merge_blocks> {
    static __device__ __forceinline__ void run(d_in_keys_t keys_in, values_in_t values_in, arrays output,
                                               arrays spare, start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& from, queue q, sort_op op,
                                               int least, int largest) {
      __shared__ merge_stage shared;
      join_stream();
      for (int list = q.counts != nullptr ? team_sizes : largest; list >= least;
           list     = list < team_sizes ? list - 1 : largest) {
        const bool is_long = list == team_sizes;
        const int threads  = is_long ? merge_threads : 1 << list;
        const int team = threadIdx.x / threads, thread = threadIdx.x % threads,
                  teams = merge_threads / threads;
        const stage_of stage(shared, team * threads * merge_items);
        const i64 count = is_long ? i64{q.tiles()} : from.count(list, num_segments);
        for (i64 first = i64{blockIdx.x} * teams; first < count; first += i64{gridDim.x} * teams) {
          const i64 at = first + team;
          i64 begin    = 0;
          int length   = 0;
          arrays to    = output;
          if (at < count && is_long) {
            const u32 segment = q.segment_of[at];
            if (segment != no_segment) {
              const long_segment its = q.segments[segment];
              const i64 before       = i64{static_cast<u32>(at) - its.first_tile} * merge_tile;
              begin                  = its.begin + before;
              length = static_cast<int>(its.length - before < merge_tile ? its.length - before : merge_tile);
              to     = place_at(output, spare, 0, its.levels());
            }
          } else if (at < count) {
            const i64 segment = from.segment(list, at);
            begin             = static_cast<i64>(starts[segment]);
            length            = static_cast<int>(length_of(begin, static_cast<i64>(ends[segment])));
          }
          for (int i = thread; i < length; i += threads) {
            stage[i] = keys_in[begin + i];
          }
          merges::sort_stage(stage, length, threads, team, op);
          for (int i = thread; i < length; i += threads) {
            to.keys[begin + i] = stage[i];
            if constexpr (has_values) {
              to.values[begin + i] = values_in[begin + stage.place(i)];
            }
          }
          wait_for_team(threads, team);
        }
        __syncthreads();
      }
    }
  };

  // Waits until a segment's run is there that a level merges: one that begins with a tile of the segment.
  static __device__ __forceinline__ void wait_for_run(const queue& q, const long_segment& its, u32 first,
                                                      int level) {
    if (first < its.tiles) {
      const u32 left = its.tiles - first;
      u32 tiles      = 0;  // that the levels before have merged, where the run begins
      for (int before = 0; before < level; ++before) {
        tiles += left < 2u << before ? left : 2u << before;
      }
      const volatile u32* const merged = q.merged + its.first_tile + first;
      while (*merged < tiles) {
      }
    }
  }

  // Merges a tile at a level: pairs of runs of 2^level tiles. All threads of
  // a block take part.
  static __device__ __forceinline__ void merge_tile_at(int level, u32 tile, const arrays& output,
                                                       const arrays& spare, const queue& q,
                                                       merge_stage& shared, i64* splits, const sort_op& op) {
    const int thread = threadIdx.x;
    const stage_of stage(shared, 0);
    const long_segment its = q.segments[q.segment_of[tile]];
    const arrays from      = place_at(output, spare, level, its.levels()),
                 to        = place_at(output, spare, level + 1, its.levels());
    const u32 run_tiles = 1u << level, first_tile = (tile - its.first_tile) & ~(2 * run_tiles - 1);
    const i64 run = i64{merge_tile} << level, at = i64{tile - its.first_tile} * merge_tile;
    const i64 pair = at & ~(2 * run - 1), middle = pair + run < its.length ? pair + run : its.length;
    const i64 end   = pair + 2 * run < its.length ? pair + 2 * run : its.length,
              until = at + merge_tile < end ? at + merge_tile : end;
    if (thread < 2) {
      wait_for_run(q, its, first_tile + thread * run_tiles, level);
      __threadfence();
    }
    __syncthreads();
    const key* const keys = from.keys + its.begin;
    for (int w = thread / 32; w < 2; w += merge_threads / 32) {
      const i64 found = merges::split(keys + pair, middle - pair, keys + middle, end - middle,
                                      (w == 0 ? at : until) - pair, op);
      if (thread % 32 == 0) {
        splits[w] = found;
      }
    }
    __syncthreads();
    // The first run's share is from `a` on, the second's from `b` on.
    const i64 a = pair + splits[0], b = middle + (at - pair) - splits[0];
    // By an operator that is no order, as of NaN, runs may be split anywhere.
    const int items   = static_cast<int>(until - at),
              of_a    = static_cast<int>(cuda::std::clamp(splits[1] - splits[0], i64{0}, i64{items}));
    const auto source = [&](int place) { return place < of_a ? a + place : b + (place - of_a); };
    for (int i = thread; i < items; i += merge_threads) {
      stage[i] = keys[source(i)];
    }
    __syncthreads();
    const int first = thread * merge_items;
    share mine;
    mine.count = items - first < merge_items ? (items > first ? items - first : 0) : merge_items;
    if (mine.count > 0) {
      mine.merge(stage, 0, of_a, items, first, op);
    }
    __syncthreads();
    mine.put(stage, first);
    __syncthreads();
    for (int i = thread; i < items; i += merge_threads) {
      to.keys[its.begin + at + i] = stage[i];
      if constexpr (has_values) {
        to.values[its.begin + at + i] = from.values[its.begin + source(stage.place(i))];
      }
    }
    __syncthreads();
    if (thread == 0) {
      __threadfence();
      atomicAdd(&q.merged[its.first_tile + first_tile], 1u);
    }
  }

  // Merges the tiles of long segments.
  struct cupar_segmented_merge_sort_levels : kernel<merge_threads, merge_blocks> {
    static __device__ __forceinline__ void run(arrays output, arrays spare, queue q, sort_op op) {
      __shared__ merge_stage shared;
      __shared__ u32 chosen[merge_threads];
      __shared__ int num_chosen;
      __shared__ u32 ticket;
      __shared__ i64 splits[2];
      const int thread = threadIdx.x;
      join_stream();
      const u32 levels = q.counts[1];
      const i64 total = q.tiles(), blocks = gridDim.x;
      while (true) {
        __syncthreads();
        if (thread == 0) {
          ticket = atomicAdd(&q.counts[2], 1u);
        }
        __syncthreads();
        const u32 level = ticket / gridDim.x, place = ticket % gridDim.x;
        if (level >= levels) {
          return;
        }
        for (i64 next = place; next < total; next += blocks * merge_threads) {
          // The tiles among a ticket's next ones that have runs to merge.
          __syncthreads();
          if (thread == 0) {
            num_chosen = 0;
          }
          __syncthreads();
          const i64 own = next + thread * blocks;
          if (own < total) {
            const u32 segment = q.segment_of[own];
            if (segment != no_segment && q.segments[segment].levels() > static_cast<int>(level)) {
              chosen[atomicAdd(&num_chosen, 1)] = static_cast<u32>(own);
            }
          }
          __syncthreads();
          const int count = num_chosen;
          for (int k = 0; k < count; ++k) {
            merge_tile_at(static_cast<int>(level), chosen[k], output, spare, q, shared, splits, op);
          }
        }
      }
    }
  };

  static constexpr auto properties = properties_of(merge_threads, merge_items, sizeof(long_segment),
                                                   sizeof(key), has_values ? sizeof(value) : 0);
};
}  // namespace cupar
