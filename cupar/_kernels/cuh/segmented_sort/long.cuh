// Long segments: cut into tiles, and sorted digit by digit. The digits of all passes are counted in one
// reading of the keys; then each pass ranks the keys of a tile, finds by look-back within the segment where
// its digits go, and writes them. Several blocks share a segment.
//
// Source: A. Adinets and D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs",
// arXiv:2206.01784, whose ranking within a tile is CUB's.
#pragma once

#include <cub/block/block_radix_rank.cuh>

#include "common/kernel.cuh"
#include "common/last_block.cuh"
#include "common/lists.cuh"
#include "common/warp.cuh"
#include "common/zero.cuh"
#include "segmented_sort/words.cuh"

namespace cupar {
template <class Key, class Value, bool is_descending, class Starts, class Ends, int digit_threads,
          int digit_items, bool may_part = false>
struct long_sort : sort_words<Key, Value, is_descending> {
  using base = sort_words<Key, Value, is_descending>;
  using base::has_values;
  using typename base::arrays;
  using typename base::bits;
  using typename base::order;
  using typename base::value;

  static constexpr int radix_bits = 8, digits = 1 << radix_bits, passes = sizeof(bits) * 8 / radix_bits;

  // Whether segments may be sorted by one digit alone, into parts that others sort.
  static constexpr bool has_parts = may_part && passes > 1;

  static constexpr bool stages_values = has_values && sizeof(value) <= 16;
  static constexpr int tile_items     = digit_threads * digit_items;
  static constexpr u32 no_segment     = ~0u;

  struct long_segment {
    i64 begin, length;
    u32 first_tile, tiles;
    u32 left;   // tiles whose digits are not counted yet
    u32 parts;  // if the first pass alone sorts it, by which digit, from 1 on
  };

  // What a pass needs of a tile, in one load's time.
  struct tile_place {
    i64 begin;
    u32 segment, first_tile;  // first_tile: the segment's
    u32 count;
    u32 parts;  // as the segment has it
  };
  static_assert(sizeof(tile_place) == 24);  // as plans have it

  struct queue {
    u32* counts;  // of all tiles; then for each pass, of those that were begun; then of those in all passes
    long_segment* segments;
    tile_place* places;  // of tiles
    u64* bins;      // for each segment, pass and digit: how many there are, and later what is before them
    u64* lookback;  // for each tile and digit
    u32 most_segments, most_tiles;
  };

  // What a tile lets others know of a digit in a pass: how many it has; or if that is known, how many there
  // are up to its end in the segment.
  static constexpr int pass_shift = 60;
  static constexpr u64 is_total   = u64{1} << 59;

  static __device__ __forceinline__ u32 digit_of(bits ordered, int pass) {
    return static_cast<u32>(base::compared(ordered) >> (pass * radix_bits)) % digits;
  }

  struct digit_extractor {
    int pass;
    __device__ __forceinline__ u32 Digit(bits ordered) const { return digit_of(ordered, pass); }
  };

  // Replaces counts of digits by how many there are before each: a warp for each pass.
  static __device__ __forceinline__ void sum_bins(u64* bins) {
    constexpr int each = digits / 32;
    const int lane     = threadIdx.x % 32;
    if (threadIdx.x / 32 < passes) {
      u64* const own = bins + threadIdx.x / 32 * digits + lane * each;
      u64 counts[each], sum = 0;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        counts[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
        sum += counts[i];
      }
      u64 before = sum_up_to_lane(sum) - sum;
#pragma unroll
      for (int i = 0; i < each; ++i) {
        own[i] = before;
        before += counts[i];
      }
    }
  }

  using rank_digits =
      cub::BlockRadixRankMatchEarlyCounts<digit_threads, radix_bits, false, cub::BLOCK_SCAN_WARP_SCANS,
                                          cub::WARP_MATCH_ATOMIC_OR, 1>;

  // Takes how many of its digit a thread's tile has, as soon as that is known.
  struct publish {
    static constexpr bool EMPTY = false;
    u64* lookback;
    u64 flags;
    int& count;
    __device__ __forceinline__ void operator()(int (&counts)[rank_digits::BINS_PER_THREAD]) {
      count = counts[0];
      if (threadIdx.x < digits) {
        *static_cast<volatile u64*>(lookback + threadIdx.x) = flags | static_cast<u64>(count);
      }
    }
  };

  // Returns how many of a thread's digit there are in the tiles of the segment before.
  static __device__ __forceinline__ u64 look_back(const u64* lookback, u32 tile, u32 first_tile, int pass) {
    constexpr u64 counts = is_total - 1;
    u64 before           = 0;
    for (u32 at = tile; at > first_tile;) {
      --at;
      const volatile u64* const theirs = lookback + u64{at} * digits + threadIdx.x;
      u64 found                        = *theirs;
      while (found >> pass_shift != static_cast<u64>(pass + 1)) {
        found = *theirs;
      }
      before += found & counts;
      if (found & is_total) {
        break;
      }
    }
    return before;
  }

  struct cupar_segmented_sort_init : zero<u32> {};

  // Cuts long segments into tiles, and zeroes their bins.
  struct cupar_segmented_sort_tiles : kernel<256> {
    static __device__ __forceinline__ void run(Starts starts, Ends ends, i64 num_segments, const lists& from,
                                               int list, queue to) {
      __shared__ u32 shared_first;
      join_stream();
      i64 count = from.count(list, num_segments);
      count     = count < to.most_segments ? count : to.most_segments;
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const i64 segment = from.segment(list, at);
        const i64 begin   = static_cast<i64>(starts[segment]);
        const i64 length  = length_of(begin, static_cast<i64>(ends[segment]));
        const auto tiles  = static_cast<u32>((length + tile_items - 1) / tile_items);
        if (threadIdx.x == 0) {
          shared_first = atomicAdd(to.counts, tiles);
        }
        __syncthreads();
        const u32 first   = shared_first;
        const u64 end     = u64{first} + tiles;
        const bool is_one = end <= to.most_tiles;  // not if segments overlap
        if (threadIdx.x == 0) {
          to.segments[at] = {begin, length, first, tiles, tiles, 0};
        }
        for (u64 tile = first + threadIdx.x; tile < end && tile < to.most_tiles; tile += blockDim.x) {
          const i64 before = static_cast<i64>(tile - first) * tile_items, left = length - before;
          const auto items = static_cast<u32>(left < tile_items ? left : tile_items);
          to.places[tile]  = {begin + before, is_one ? static_cast<u32>(at) : no_segment, first, items, 0};
        }
        for (int i = threadIdx.x; i < passes * digits; i += blockDim.x) {
          to.bins[at * (passes * digits) + i] = 0;
        }
        __syncthreads();
      }
    }
  };

  // Counts the digits of all passes; whoever counts the last of a segment sums them up. A block takes tiles
  // that follow one another.
  struct cupar_segmented_sort_count : kernel<digit_threads> {
    static __device__ __forceinline__ void run(const bits* keys, queue q) {
      constexpr int loads = 4;
      __shared__ u32 bins[passes * digits];
      for (int i = threadIdx.x; i < passes * digits; i += digit_threads) {
        bins[i] = 0;
      }
      join_stream();
      const u32 total = *q.counts < q.most_tiles ? *q.counts : q.most_tiles;
      const u32 each  = (total + gridDim.x - 1) / gridDim.x;
      u32 tile        = blockIdx.x * each < total ? blockIdx.x * each : total;
      const u32 end   = total - tile < each ? total : tile + each;
      for (u64 i = u64{tile} * digits + threadIdx.x; i < u64{end} * digits; i += digit_threads) {
        q.lookback[i] = 0;
      }
      __syncthreads();
      while (tile < end) {
        const u32 segment = q.places[tile].segment;
        if (segment == no_segment) {
          ++tile;
          continue;
        }
        long_segment* const its = q.segments + segment;
        const u32 first = its->first_tile, behind = first + its->tiles, stop = end < behind ? end : behind;
        const i64 until = i64{stop - first} * tile_items, to = until < its->length ? until : its->length;
        const bits* const from = keys + its->begin;
        for (i64 i = i64{tile - first} * tile_items + threadIdx.x; i < to; i += loads * digit_threads) {
          bits loaded[loads];
#pragma unroll
          for (int k = 0; k < loads; ++k) {
            loaded[k] = i + k * digit_threads < to ? order::In(from[i + k * digit_threads]) : bits{};
          }
#pragma unroll
          for (int k = 0; k < loads; ++k) {
            if (i + k * digit_threads < to) {
#pragma unroll
              for (int pass = 0; pass < passes; ++pass) {
                atomicAdd(&bins[pass * digits + digit_of(loaded[k], pass)], 1u);
              }
            }
          }
        }
        __syncthreads();
        u64* const totals = q.bins + u64{segment} * (passes * digits);
        for (int i = threadIdx.x; i < passes * digits; i += digit_threads) {
          if (bins[i] > 0) {
            atomicAdd(&totals[i], u64{bins[i]});
            bins[i] = 0;
          }
        }
        if (is_last_block([&] { return atomicSub(&its->left, stop - tile) == stop - tile; })) {
          sum_bins(totals);
        }
        tile = stop;
      }
    }
  };

  // One pass over all tiles. They are begun in order, so that those before a tile are on their way.
  struct cupar_segmented_sort_digit : kernel<digit_threads, 2> {
    static __device__ __forceinline__ void run(arrays given, queue q, int pass) {
      __shared__ union {
        typename rank_digits::TempStorage rank;
        bits keys[tile_items];
        alignas(16) unsigned char values[stages_values ? tile_items * sizeof(value) : 1];
      } stage;
      __shared__ u64 offsets[digits];
      __shared__ u32 shared_tile;
      const int thread = threadIdx.x, place = thread / 32 * 32 * digit_items + thread % 32;
      join_stream();
      u32 total = *q.counts < q.most_tiles ? *q.counts : q.most_tiles;
      if (has_parts && pass > 0 && q.counts[1 + passes] == 0) {
        total = 0;
      }
      while (true) {
        if (thread == 0) {
          shared_tile = atomicAdd(q.counts + 1 + pass, 1u);
        }
        __syncthreads();
        const u32 tile = shared_tile;
        if (tile >= total) {
          break;
        }
        const tile_place its = q.places[tile];
        if (its.segment == no_segment) {
          __syncthreads();
          continue;
        }
        int which = pass;
        if constexpr (has_parts) {
          which = its.parts > 0 ? static_cast<int>(its.parts) - 1 : pass;
          if (its.parts > 0 && pass > 0) {
            __syncthreads();
            continue;
          }
        }
        const i64 begin = its.begin;
        const int count = static_cast<int>(its.count);
        bits keys[digit_items];
#pragma unroll
        for (int i = 0; i < digit_items; ++i) {
          const int at = place + i * 32;
          keys[i]      = at < count ? order::In(given.keys_in[begin + at]) : static_cast<bits>(~u64{0});
        }
        const u64 tag       = static_cast<u64>(pass + 1) << pass_shift;
        const bool is_first = tile == its.first_tile;
        int ranks[digit_items], smaller[rank_digits::BINS_PER_THREAD], own = 0;
        rank_digits(stage.rank)
            .RankKeys(keys, ranks, digit_extractor{which}, smaller,
                      publish{q.lookback + u64{tile} * digits, is_first ? tag | is_total : tag, own});
        if (thread < digits) {
          const u64 smaller_digits = q.bins[(u64{its.segment} * passes + which) * digits + thread];
          u64 earlier              = 0;
          if (!is_first) {
            earlier = look_back(q.lookback, tile, its.first_tile, pass);
            *static_cast<volatile u64*>(q.lookback + u64{tile} * digits + thread) =
                tag | is_total | (earlier + static_cast<u64>(own));
          }
          const i64 from  = begin - i64{tile - its.first_tile} * tile_items;  // where the segment begins
          offsets[thread] = smaller_digits + earlier + static_cast<u64>(from) - static_cast<u64>(smaller[0]);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < digit_items; ++i) {
          stage.keys[ranks[i]] = keys[i];
        }
        if constexpr (has_values && !stages_values) {
#pragma unroll
          for (int i = 0; i < digit_items; ++i) {
            if (place + i * 32 < count) {
              given.values_out[offsets[digit_of(keys[i], which)] + ranks[i]] =
                  given.values_in[begin + place + i * 32];
            }
          }
        }
        __syncthreads();
        u32 found[digit_items];
#pragma unroll
        for (int i = 0; i < digit_items; ++i) {
          const int at = i * digit_threads + thread;
          if (at < count) {
            const bits sorted                      = stage.keys[at];
            found[i]                               = digit_of(sorted, which);
            given.keys_out[offsets[found[i]] + at] = order::Out(sorted);
          }
        }
        if constexpr (stages_values) {
          value* const values = reinterpret_cast<value*>(stage.values);
          __syncthreads();
#pragma unroll
          for (int i = 0; i < digit_items; ++i) {
            if (place + i * 32 < count) {
              values[ranks[i]] = given.values_in[begin + place + i * 32];
            }
          }
          __syncthreads();
#pragma unroll
          for (int i = 0; i < digit_items; ++i) {
            const int at = i * digit_threads + thread;
            if (at < count) {
              given.values_out[offsets[found[i]] + at] = values[at];
            }
          }
        }
        __syncthreads();
      }
    }
  };
};
}  // namespace cupar
