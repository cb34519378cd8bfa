// The items that come first, of each segment: sorted, and of equal keys those that stand first.
//
// - Segments of one tile are for a team, a warp or a block, that selects and sorts in one go.
// - Long segments are cut into tiles. Each tile's first k are candidates; so are those of several tiles'
//   candidates, level by level, until one block has all of a segment. What comes after k items of another
//   tile is no candidate: so most tiles compare their items with one key, and hardly any is written.
// - Of many long rows, a block has each. Most of its tiles have few items that come before the k-th of those
//   that it knows, and these join the candidates that it keeps.
// - If k is not much less than a tile, the k-th key is found digit by digit.
//   Then all keys up to it are counted and selected, in their order, and with where they were; and these are
//   sorted as long segments are, stably.
// - Of a single segment of many items, groups of them come first, in one reading of the keys. The k groups
//   whose first items come first, and of like ones those that stand first, have all that is asked for: an
//   item of another group has k items before it. They are found as the k-th key is, and take the place of
//   the segment.
//
// A candidate knows its position, and the candidates of a tile are sorted: so equal keys stay in order.
//
// Source: P. Shanbhag et al., "Efficient Top-K Query Processing on Massively Parallel Hardware", SIGMOD 2018,
// for the candidates of tiles; CUB's DeviceTopK for the digits; A. Gaihre et al., "Dr. Top-k:
// Delegate-Centric Top-k on GPUs", SC '21, for the groups.
//
// Traits: d_in_keys_v, d_in_values_t, d_out_values_t, has_payload, start_offsets_in_t, end_offsets_in_t,
// is_descending; digit_threads and digit_items, of the sort of selected items; policy_threads, policy_items.
#pragma once

#include <cub/block/block_scan.cuh>

#include "common/kernel.cuh"
#include "common/last_block.cuh"
#include "common/lists.cuh"
#include "common/offsets.cuh"
#include "common/vectors.cuh"
#include "common/warp.cuh"
#include "segmented_sort/long.cuh"
#include "top_k/teams.cuh"

namespace cupar {
struct tiled_segment {
  i64 begin, length, segment;
  i64 place;  // index of its first selected item among those of all segments
  u32 first, tiles;
  u32 left;  // tiles that a kernel has not counted yet
  u32 unused;
  u64 rank;   // of the k-th key, from 1 on: of all, or of those that begin with the digits that are known
  u64 bound;  // a key that k items are up to; or the digits of the k-th key that are known
};

__device__ __forceinline__ i64 wanted_of(const tiled_segment& its, i64 k) {
  return k < its.length ? k : its.length;
}

struct top_starts {
  const tiled_segment* segments;
  const u32* counts;
  __device__ __forceinline__ i64 operator[](i64 i) const { return i < counts[1] ? segments[i].place : 0; }
};
struct top_ends {
  const tiled_segment* segments;
  const u32* counts;
  i64 k;
  __device__ __forceinline__ i64 operator[](i64 i) const {
    return i < counts[1] ? segments[i].place + wanted_of(segments[i], k) : 0;
  }
};

// Where items of groups are among all, which lie together in their order. Without groups, items are where
// they are.
struct grouped {
  const i64* groups;
  u64 shift;  // log2 of a group's items

  __device__ __forceinline__ i64 operator[](i64 place) const {
    const i64 group = i64{1} << shift;
    return groups == nullptr ? place : groups[place >> shift] << shift | (place & (group - 1));
  }
};

template <class Traits>
struct top_k_kernels
    : top_teams<long_sort<typename Traits::d_in_keys_v, i64, Traits::is_descending, top_starts, top_ends,
                          Traits::digit_threads, Traits::digit_items>> {
  using d_in_values_t                = typename Traits::d_in_values_t;
  using d_out_values_t               = typename Traits::d_out_values_t;
  using start_offsets_in_t           = typename Traits::start_offsets_in_t;
  using end_offsets_in_t             = typename Traits::end_offsets_in_t;
  static constexpr bool has_payload  = Traits::has_payload;
  static constexpr int digit_threads = Traits::digit_threads;

  using base = top_teams<long_sort<typename Traits::d_in_keys_v, i64, Traits::is_descending, top_starts,
                                   top_ends, Traits::digit_threads, Traits::digit_items>>;
  using base::key_bits;
  using base::last_ranked;
  using base::tile_items;
  using typename base::bits;
  using typename base::long_segment;
  using typename base::order;
  using typename base::ranked;
  using typename base::top_word;

  // --- The problem, and the tiles of long segments ---

  static constexpr int block_threads = Traits::policy_threads;
  static constexpr int block_items   = Traits::policy_items;  // of a thread
  static constexpr int tile          = block_threads * block_items;
  static constexpr int warp_threads  = 128;              // of blocks whose warps have a segment each
  static constexpr int warp_items    = 2 * block_items;  // of a lane
  static constexpr int few_items     = 4;                // of a lane that has few
  static constexpr int together =
      cuda::std::min<int>(block_items, widest / sizeof(bits));  // items of a vector
  static constexpr int few_together = least(few_items, together);
  static constexpr u32 no_entry     = ~0u;

  struct top_arrays {
    const bits* keys_in;
    bits* keys_out;
    i64 k;
    grouped items;  // which those of `keys_in` are
  };

  // Tiles of long segments.
  struct tile_queue {
    u32* counts;  // of tiles, and of segments
    u64* selected;
    tiled_segment* segments;
    u32* segment_of;  // each tile
    u64 most_selected;
    u32 most_segments, most_tiles;

    __device__ __forceinline__ u32 tiles() const { return *counts < most_tiles ? *counts : most_tiles; }
  };

  static constexpr int list_of_long = 3;

  // Cuts long segments into tiles, and zeroes their bins: so many for each. What the k-th group begins with
  // is a key that k items are up to.
  struct cupar_top_k_tiles : kernel<1024> {
    static __device__ __forceinline__ void run(start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& from, tile_queue to, i64 k,
                                               u64* bins, int num_bins, const tiled_segment* groups) {
      __shared__ u32 shared_first;
      __shared__ bool shared_is_one;
      join_stream();
      i64 count = from.count(list_of_long, num_segments);
      count     = count < to.most_segments ? count : to.most_segments;
      if (blockIdx.x == 0 && threadIdx.x == 0) {
        to.counts[1] = static_cast<u32>(count);
      }
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const i64 segment = from.segment(list_of_long, at);
        const i64 begin   = static_cast<i64>(starts[segment]);
        const i64 length  = length_of(begin, static_cast<i64>(ends[segment]));
        const auto tiles  = static_cast<u32>((length + tile - 1) / tile);
        if (threadIdx.x == 0) {
          const u32 first  = atomicAdd(to.counts, tiles);
          const u64 wanted = static_cast<u64>(k < length ? k : length),
                    place  = atomicAdd(to.selected, wanted);
          shared_first     = first;
          // Not if segments overlap.
          shared_is_one   = u64{first} + tiles <= to.most_tiles && place + wanted <= to.most_selected;
          to.segments[at] = {begin,   shared_is_one ? length : 0,
                             segment, static_cast<i64>(place),
                             first,   tiles,
                             tiles,   0,
                             wanted,  groups == nullptr ? u64{last_ranked} : groups->bound};
        }
        __syncthreads();
        const u64 first = shared_first, end = first + tiles;
        for (u64 i = first + threadIdx.x; i < end && i < to.most_tiles; i += blockDim.x) {
          to.segment_of[i] = shared_is_one ? static_cast<u32>(at) : no_entry;
        }
        for (int i = threadIdx.x; i < num_bins; i += blockDim.x) {
          bins[at * num_bins + i] = 0;
        }
        __syncthreads();
      }
    }
  };

  // --- Short segments, and the candidates of tiles ---

  // Room for k candidates of each tile.
  struct candidates {
    u32* counts;
    bits* keys;
    i64* positions;
  };

  // Writes a segment's stage; `position_of` returns the index in the input of a staged item.
  template <int size, class Position>
  static __device__ __forceinline__ void write_first(const team<size>& its, const top_arrays& given,
                                                     d_in_values_t values_in, d_out_values_t values_out,
                                                     i64 segment, const top_word* stage, i64 count,
                                                     Position position_of) {
    count = count < given.k ? count : given.k;
    for (int i = its.thread(); i < count; i += size) {
      const i64 from = position_of(base::top_place(stage[i])), to = segment * given.k + i;
      given.keys_out[to] = given.keys_in[from];
      if constexpr (has_payload) {
        values_out[to] = values_in[given.items[from]];
      }
    }
  }

  // Segments of a list, for a team each.
  template <int size, int items, int together>
  static __device__ __forceinline__ void top_of_short(const top_arrays& given, const d_in_values_t& values_in,
                                                      d_out_values_t values_out,
                                                      const start_offsets_in_t& starts,
                                                      const end_offsets_in_t& ends, i64 num_segments,
                                                      const lists& from, int list, u32 capacity) {
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ u32 sums[2 * team<size>::warps], cursor;
    const int teams       = blockDim.x / size;
    top_word* const stage = reinterpret_cast<top_word*>(shared) + threadIdx.x / size * capacity;
    team<size> its{sums, 0};
    const i64 count = from.count(list, num_segments);
    for (i64 at = i64{blockIdx.x} * teams + threadIdx.x / size; at < count; at += i64{gridDim.x} * teams) {
      const i64 segment = from.segment(list, at), begin = static_cast<i64>(starts[segment]);
      const int length = static_cast<int>(length_of(begin, static_cast<i64>(ends[segment])));
      const u32 wanted = given.k < length ? static_cast<u32>(given.k) : length;
      ranked keys[items];
      const u32 valid =
          base::template load_items<size, items, together>(keys, given.keys_in + begin, length, its.thread());
      const u32 found = base::template sort_first<size, together>(its, keys, valid, last_ranked, wanted,
                                                                  capacity, stage, &cursor);
      write_first(its, given, values_in, values_out, segment, stage, found,
                  [begin](u32 place) { return begin + place; });
      its.wait();
    }
  }

  // Writes the lists: of segments for warps, for blocks, and of long ones.
  struct cupar_top_k_list : kernel<256> {
    static __device__ __forceinline__ void run(start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& to) {
      write_lists(starts, ends, num_segments, to, [](i64 length) {
        return (length > 32 * few_items) + (length > 32 * warp_items) + (length > tile);
      });
    }
  };

  // For a list of segments of at most `size` items.
  template <int block, int size, int items, int together, int list>
  struct top_of : kernel<block> {
    static __device__ __forceinline__ void run(top_arrays given, d_in_values_t values_in,
                                               d_out_values_t values_out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, const lists& from,
                                               u32 capacity) {
      join_stream();
      top_of_short<size, items, together>(given, values_in, values_out, starts, ends, num_segments, from,
                                          list, capacity);
    }
  };
  struct cupar_top_k_few : top_of<warp_threads, 32, few_items, few_together, 0> {};
  struct cupar_top_k_warp : top_of<warp_threads, 32, warp_items, together, 1> {};
  struct cupar_top_k_block : top_of<block_threads, block_threads, block_items, together, 2> {};

  // Each tile's candidates.
  struct cupar_top_k_candidates : kernel<block_threads> {
    static __device__ __forceinline__ void run(top_arrays given, tile_queue q, candidates to, u32 capacity) {
      extern __shared__ __align__(16) unsigned char shared[];
      __shared__ u32 sums[2 * team<block_threads>::warps], cursor;
      __shared__ ranked shared_bound;
      top_word* const stage = reinterpret_cast<top_word*>(shared);
      team<block_threads> its{sums, 0};
      const u32 k = static_cast<u32>(given.k);
      join_stream();
      const u32 total = q.tiles();
      for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
        const u32 segment = q.segment_of[t];
        if (segment == no_entry) {
          continue;
        }
        tiled_segment* const own = q.segments + segment;
        if (threadIdx.x == 0) {  // others lower it
          shared_bound = static_cast<ranked>(*static_cast<volatile u64*>(&own->bound));
        }
        const i64 before = i64{t - own->first} * tile, begin = own->begin + before,
                  left = own->length - before;
        ranked keys[block_items];
        const u32 valid = base::template load_items<block_threads, block_items, together>(
            keys, given.keys_in + begin, left < tile ? static_cast<int>(left) : tile, threadIdx.x);
        __syncthreads();
        const ranked bound = shared_bound;
        const u32 found    = base::template sort_first<block_threads, together>(its, keys, valid, bound, k,
                                                                                capacity, stage, &cursor);
        const u32 kept     = found < k ? found : k;
        for (u32 i = threadIdx.x; i < kept; i += block_threads) {
          to.keys[u64{t} * k + i]      = static_cast<bits>(base::ranked_of(stage[i]));
          to.positions[u64{t} * k + i] = begin + base::top_place(stage[i]);
        }
        if (threadIdx.x == 0) {
          to.counts[t] = kept;
          if (found >= k && base::ranked_of(stage[k - 1]) < bound) {
            atomicMin(&own->bound, u64{base::ranked_of(stage[k - 1])});
          }
        }
        __syncthreads();
      }
    }
  };

  // Long rows. The first k of the first tile are candidates; of the tiles behind, items that come before the
  // last of those join them, until there is no room: then the first k of all stay.
  struct cupar_top_k_rows : kernel<block_threads> {
    static __device__ __forceinline__ void run(top_arrays given, d_in_values_t values_in,
                                               d_out_values_t values_out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, const lists&,
                                               u32 capacity) {
      extern __shared__ __align__(16) unsigned char shared[];
      __shared__ u32 sums[2 * team<block_threads>::warps], cursor, joined[3];
      top_word* const stage = reinterpret_cast<top_word*>(shared);
      team<block_threads> its{sums, 0};
      const u32 k = static_cast<u32>(given.k);
      join_stream();
      for (i64 row = blockIdx.x; row < num_segments; row += gridDim.x) {
        const i64 begin = starts[row], length = ends[row] - begin;
        const bits* const from = given.keys_in + begin;
        if (threadIdx.x < 3) {
          joined[threadIdx.x] = 0;
        }
        u32 count = 0, turn = 0;
        ranked bound = last_ranked;
#pragma unroll 1
        for (i64 at = 0; at < length; at += tile) {
          const i64 left = length - at;
          ranked keys[block_items];
          const u32 valid = base::template load_items<block_threads, block_items, together>(
              keys, from + at, left < tile ? static_cast<int>(left) : tile, threadIdx.x);
          u32 added = capacity + 1;
          if (at > 0) {
            join_before(keys, bound, static_cast<u32>(at), stage + count, capacity - count, &joined[turn]);
            __syncthreads();
            added = joined[turn];
            if (threadIdx.x == 0) {
              joined[turn == 0 ? 2 : turn - 1] = 0;  // for the tile after the next
            }
            turn = turn == 2 ? 0 : turn + 1;
          }
          if (count + added <= capacity) {
            count += added;
            continue;
          }
          // There is no room, or nothing to compare with: what joined of this tile is found again.
          if (count > k) {
            sort_candidates(its, stage, count);
            count = k;
            bound = base::ranked_of(stage[k - 1]);
            __syncthreads();
          }
          top_word* const behind = stage + (count > 0 ? capacity / 2 : 0);
          const u32 found = base::template sort_first<block_threads, together>(its, keys, valid, bound, k,
                                                                               capacity / 2, behind, &cursor);
          const u32 kept  = found < k ? found : k;
          if (count == 0) {
            bound = base::ranked_of(stage[k - 1]);  // the first tile has at least k
          } else {
            for (u32 i = threadIdx.x; i < kept; i += block_threads) {
              stage[count + i] = base::to_top_word(base::ranked_of(behind[i]),
                                                   static_cast<u32>(at) + base::top_place(behind[i]));
            }
          }
          count += kept;
          __syncthreads();
        }
        sort_candidates(its, stage, count);
        write_first(its, given, values_in, values_out, row, stage, count,
                    [begin](u32 place) { return begin + place; });
        __syncthreads();
      }
    }

   private:
    // Puts a warp's items that come before a bound onto a stage, while there is room, and counts them all.
    static __device__ __forceinline__ void join_before(const ranked (&keys)[block_items], ranked bound,
                                                       u32 at, top_word* stage, u32 capacity, u32* cursor) {
      u32 own = 0;
#pragma unroll
      for (int i = 0; i < block_items; ++i) {
        own |= static_cast<u32>(keys[i] < bound) << i;
      }
      if (__any_sync(~0u, own != 0)) {
        const u32 up_to = sum_up_to_lane(static_cast<u32>(__popc(own)));
        u32 place       = 0;
        if (threadIdx.x % 32 == 31) {
          place = atomicAdd(cursor, up_to);
        }
        place = __shfl_sync(~0u, place, 31) + up_to - __popc(own);
#pragma unroll
        for (int i = 0; i < block_items; ++i) {
          if (own >> i & 1) {
            if (place < capacity) {
              stage[place] = base::to_top_word(
                  keys[i], at + base::template place_of_item<block_threads, together>(threadIdx.x, i));
            }
            ++place;
          }
        }
      }
    }

    static __device__ __forceinline__ void sort_candidates(const team<block_threads>& its, top_word* stage,
                                                           u32 count) {
      u32 sorted = 1;
      while (sorted < count) {
        sorted *= 2;
      }
      for (u32 i = count + threadIdx.x; i < sorted; i += block_threads) {
        stage[i] = base::template last_word<top_word>();
      }
      its.wait();
      base::sort_stage(its, stage, sorted);
    }
  };

  // A level: of each `stride` tiles, the candidates that `group` of them have become those of the first.
  // Where that is all of a segment, they are its result.
  struct cupar_top_k_level : kernel<block_threads> {
    static __device__ __forceinline__ void run(top_arrays given, d_in_values_t values_in,
                                               d_out_values_t values_out, tile_queue q, candidates all,
                                               u64 stride, u32 group, u32 capacity) {
      constexpr int most =
          block_items / 4;  // candidates that a thread writes: k is a quarter of a tile at most
      extern __shared__ __align__(16) unsigned char shared[];
      __shared__ u32 sums[2 * team<block_threads>::warps], cursor;
      top_word* const stage = reinterpret_cast<top_word*>(shared);
      team<block_threads> its{sums, 0};
      const u32 k    = static_cast<u32>(given.k);
      const u64 step = stride / group;  // from one to the next
      join_stream();
      const u32 total = q.tiles();
      for (u64 base = u64{blockIdx.x} * 32; base < total; base += u64{gridDim.x} * 32) {
        // Each warp finds out which of 32 tiles are the first.
        const u64 lanes = base + threadIdx.x % 32;
        bool is_first   = false;
        if (lanes < total && q.segment_of[lanes] != no_entry) {
          const tiled_segment& its_segment = q.segments[q.segment_of[lanes]];
          is_first = (lanes - its_segment.first) % stride == 0 && its_segment.tiles > step;
        }
        for (u32 firsts = __ballot_sync(~0u, is_first); firsts != 0; firsts &= firsts - 1) {
          const u64 t              = base + __ffs(firsts) - 1;
          const tiled_segment& own = q.segments[q.segment_of[t]];
          const u64 behind         = own.tiles - (t - own.first);
          ranked keys[block_items];
          u32 valid = 0;
#pragma unroll
          for (int i = 0; i < block_items; ++i) {
            const u32 place = base::template place_of_item<block_threads, 1>(threadIdx.x, i);
            const u32 from = place / k, at = place - from * k;
            const bool is_there = from < group && from * step < behind && at < all.counts[t + from * step];
            keys[i]             = is_there ? ranked{all.keys[(t + from * step) * k + at]} : last_ranked;
            valid |= static_cast<u32>(is_there) << i;
          }
          const u32 found = base::template sort_first<block_threads, 1>(
              its, keys, valid, static_cast<ranked>(own.bound), k, capacity, stage, &cursor);
          const auto position_of = [&](u32 place) {
            return all.positions[(t + place / k * step) * k + place % k];
          };
          if (own.tiles <= stride) {
            write_first(its, given, values_in, values_out, own.segment, stage, found, position_of);
          } else {
            // They overwrite the memory that they are read from, so all are read first.
            const u32 kept = found < k ? found : k;
            i64 positions[most];
#pragma unroll
            for (int i = 0; i < most; ++i) {
              const u32 at = i * block_threads + threadIdx.x;
              positions[i] = at < kept ? position_of(base::top_place(stage[at])) : 0;
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < most; ++i) {
              const u32 at = i * block_threads + threadIdx.x;
              if (at < kept) {
                all.keys[t * k + at]      = static_cast<bits>(base::ranked_of(stage[at]));
                all.positions[t * k + at] = positions[i];
              }
            }
            if (threadIdx.x == 0) {
              all.counts[t] = kept;
            }
          }
          __syncthreads();
        }
      }
    }
  };

  // --- For any k: the k-th key is found digit by digit, from the highest on ---

  static constexpr int select_bits = 11, select_bins = 1 << select_bits;

  // The selected items of all segments.
  struct selection {
    bits* keys;
    i64* positions;
    u64* before;  // for each tile: keys before the k-th key, and those that are like it
  };

  using block_scan = cub::BlockScan<u64, block_threads>;

  // Finds the digit that the key of a rank has, and zeroes the bins.
  static __device__ __forceinline__ void find_digit(tiled_segment& its, u64* bins, int shift, bool is_first) {
    constexpr int each = select_bins / block_threads;
    __shared__ typename block_scan::TempStorage temporary;
    u64* const own = bins + threadIdx.x * each;
    u64 counts[each], sum = 0, before;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      counts[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
      own[i]    = 0;
      sum += counts[i];
    }
    const u64 rank = its.rank;
    block_scan(temporary).ExclusiveSum(sum, before);  // with a barrier, before the rank is replaced
    if (before < rank && rank <= before + sum) {
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (before < rank && rank <= before + counts[i]) {
          its.bound = (is_first ? 0 : its.bound) | static_cast<u64>(threadIdx.x * each + i) << shift;
          its.rank  = rank - before;
        }
        before += counts[i];
      }
      its.left = its.tiles;
    }
    __syncthreads();
  }

  // Whether a block is the last to finish its part of a segment, a number of tiles.
  static __device__ __forceinline__ bool is_last_of(tiled_segment& its, u32 tiles) {
    return is_last_block([&] { return atomicSub(&its.left, tiles) == tiles; });
  }

  // Finds a digit of the k-th key: counts the keys that have its digits before that. A block takes tiles that
  // follow one another.
  struct cupar_top_k_digit : kernel<block_threads> {
    static __device__ __forceinline__ void run(const bits* keys, tile_queue q, u64* bins, int pass) {
      constexpr int loads = 8;
      __shared__ u32 counts[select_bins];
      const int above = key_bits - pass * select_bits, width = above < select_bits ? above : select_bits;
      const int shift  = above - width;
      const ranked low = (ranked{1} << width) - 1;
      for (int i = threadIdx.x; i < select_bins; i += block_threads) {
        counts[i] = 0;
      }
      join_stream();
      const u32 total = q.tiles(), each = (total + gridDim.x - 1) / gridDim.x;
      u32 t         = u64{blockIdx.x} * each < total ? blockIdx.x * each : total;
      const u32 end = total - t < each ? total : t + each;
      __syncthreads();
      while (t < end) {
        const u32 segment = q.segment_of[t];
        if (segment == no_entry) {
          ++t;
          continue;
        }
        tiled_segment& its = q.segments[segment];
        const u32 behind = its.first + its.tiles, stop = end < behind ? end : behind;
        const i64 until = i64{stop - its.first} * tile, to = until < its.length ? until : its.length;
        const ranked known     = pass == 0 ? 0 : static_cast<ranked>(its.bound >> shift >> width);
        const bits* const from = keys + its.begin;
        for (i64 i = i64{t - its.first} * tile + threadIdx.x; i < to; i += loads * block_threads) {
          bits loaded[loads];
#pragma unroll
          for (int k = 0; k < loads; ++k) {
            loaded[k] = i + k * block_threads < to ? from[i + k * block_threads] : bits{};
          }
#pragma unroll
          for (int k = 0; k < loads; ++k) {
            const ranked digits_from = base::to_ranked(loaded[k]) >> shift;
            if (i + k * block_threads < to && (pass == 0 || digits_from >> width == known)) {
              atomicAdd(&counts[digits_from & low], 1u);
            }
          }
        }
        __syncthreads();
        u64* const all = bins + u64{segment} * select_bins;
        for (int i = threadIdx.x; i < select_bins; i += block_threads) {
          if (counts[i] > 0) {
            atomicAdd(&all[i], u64{counts[i]});
            counts[i] = 0;
          }
        }
        if (is_last_of(its, stop - t)) {
          find_digit(its, all, shift, pass == 0);
        }
        t = stop;
      }
    }
  };

  // Counts what each tile has of keys before the k-th key, and of keys like it; and sums both up.
  struct cupar_top_k_count : kernel<block_threads> {
    static __device__ __forceinline__ void run(const bits* keys, tile_queue q, u64* before) {
      __shared__ u32 sums[2 * team<block_threads>::warps];
      __shared__ typename block_scan::TempStorage temporary;
      team<block_threads> block{sums, 0};
      join_stream();
      const u32 total = q.tiles();
      for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
        const u32 segment = q.segment_of[t];
        if (segment == no_entry) {
          continue;
        }
        tiled_segment& its = q.segments[segment];
        const i64 at = i64{t - its.first} * tile, left = its.length - at;
        const auto last = static_cast<ranked>(its.bound);
        ranked own[block_items];
        const u32 valid = base::template load_items<block_threads, block_items, together>(
            own, keys + its.begin + at, left < tile ? static_cast<int>(left) : tile, threadIdx.x);
        u32 both = 0;  // each at most a tile
#pragma unroll
        for (int i = 0; i < block_items; ++i) {
          both += (valid >> i & 1) ? (own[i] < last) << 16 | (own[i] == last) : 0;
        }
        both = block.sum(both);
        if (threadIdx.x == 0) {
          before[2 * u64{t}]     = both >> 16;
          before[2 * u64{t} + 1] = both & 0xffff;
        }
        if (is_last_of(its, 1)) {
          u64 less = 0, equal = 0;
          for (u32 first = 0; first < its.tiles; first += block_threads) {
            const u32 i      = first + threadIdx.x;
            u64* const place = before + 2 * (u64{its.first} + i);
            u64 less_before  = i < its.tiles ? __ldcg(place) : 0;
            u64 equal_before = i < its.tiles ? __ldcg(place + 1) : 0;
            u64 sum;
            block_scan(temporary).ExclusiveSum(less_before, less_before, sum);
            less_before += less;
            less += sum;
            __syncthreads();
            block_scan(temporary).ExclusiveSum(equal_before, equal_before, sum);
            equal_before += equal;
            equal += sum;
            __syncthreads();
            if (i < its.tiles) {
              place[0] = less_before;
              place[1] = equal_before;
            }
          }
        }
      }
    }
  };

  // Selects the keys before the k-th key, and as many of those like it as there is room for. A warp has items
  // that follow one another.
  struct cupar_top_k_select : kernel<block_threads> {
    static __device__ __forceinline__ void run(const bits* keys, tile_queue q, selection to) {
      constexpr int rows = block_items / together, warps = block_threads / 32, share = 32 * block_items;
      __shared__ u32 totals[2][warps];
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      join_stream();
      const u32 total = q.tiles();
      int turn        = 0;
      for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
        const u32 segment = q.segment_of[t];
        if (segment == no_entry) {
          continue;
        }
        const tiled_segment& its = q.segments[segment];
        const i64 at             = i64{t - its.first} * tile + warp * share;
        const i64 left = its.length - at, begin = its.begin + at;
        const auto last = static_cast<ranked>(its.bound);
        ranked own[block_items];
        const u32 valid =
            base::template load_items<32, block_items, together>(own, keys + begin,
                                                                 left < 0       ? 0
                                                                 : left < share ? static_cast<int>(left)
                                                                                : share,
                                                                 lane);
        // How many come before, and how many are like the k-th key: in 16 bits each, as a tile has 2^13
        // items.
        u32 counts[block_items], before[rows], sum = 0;
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          u32 of_lane = 0;
#pragma unroll
          for (int i = row * together; i < (row + 1) * together; ++i) {
            counts[i] = (valid >> i & 1) ? (own[i] < last) << 16 | (own[i] == last) : 0;
            of_lane += counts[i];
          }
          const u32 up = sum_up_to_lane(of_lane);
          before[row]  = sum + up - of_lane;
          sum += __shfl_sync(~0u, up, 31);
        }
        turn ^= 1;
        if (lane == 0) {
          totals[turn][warp] = sum;
        }
        __syncthreads();
        const u32 of_warps = sum_of_lanes(lane < warp ? totals[turn][lane] : 0);
        const u64 less = to.before[2 * u64{t}], equal = to.before[2 * u64{t} + 1], wanted = its.rank;
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          u32 both = of_warps + before[row];
#pragma unroll
          for (int i = row * together; i < (row + 1) * together; ++i) {
            const u64 equal_before = equal + (both & 0xffff);
            if (counts[i] != 0 && (own[i] < last || equal_before < wanted)) {
              const u64 place =
                  its.place + less + (both >> 16) + (equal_before < wanted ? equal_before : wanted);
              to.keys[place]      = order::Out(static_cast<bits>(own[i]));
              to.positions[place] = begin + base::template place_of_item<32, together>(lane, i);
            }
            both += counts[i];
          }
        }
      }
    }
  };

  // Writes the selected and sorted items.
  struct cupar_top_k_write : kernel<block_threads> {
    static __device__ __forceinline__ void run(top_arrays given, d_in_values_t values_in,
                                               d_out_values_t values_out, tile_queue q,
                                               const i64* positions) {
      join_stream();
      const u32 total = q.tiles();
      for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
        const u32 segment = q.segment_of[t];
        if (segment == no_entry) {
          continue;
        }
        const tiled_segment& its = q.segments[segment];
        const i64 first = i64{t - its.first} * tile, count = wanted_of(its, given.k);
        const i64 end = first + tile < count ? first + tile : count;
        for (i64 i = first + threadIdx.x; i < end; i += block_threads) {
          const i64 from = positions[its.place + i], to = its.segment * given.k + i;
          given.keys_out[to] = given.keys_in[from];
          if constexpr (has_payload) {
            values_out[to] = values_in[given.items[from]];
          }
        }
      }
    }
  };

  // --- Groups of the items of a single segment ---

  static constexpr int group_threads = 256;

  // Finds the first item in order of each group: `vectors` vectors of each of `lanes` lanes.
  template <int lanes, int vectors>
  struct first_of : kernel<group_threads> {
    static __device__ __forceinline__ void run(const bits* keys, bits* firsts, i64 num_items) {
      constexpr int loads = together > 8 ? 2 : 4, items = loads * together, share = 32 * items;
      constexpr int groups = loads / vectors, group = lanes * vectors * together;
      const int lane = threadIdx.x % 32;
      const i64 warp = (i64{blockIdx.x} * group_threads + threadIdx.x) / 32;

      const bool is_vector = is_aligned<together>(keys);
      join_stream();
      for (i64 at = warp * share; at < num_items; at += i64{gridDim.x} * (group_threads / 32) * share) {
        const i64 left = num_items - at;
        ranked own[items], first[groups];
        if (is_vector && left >= share) {
          vector<bits, together> loaded[loads];
#pragma unroll
          for (int v = 0; v < loads; ++v) {
            load<true>(loaded[v], keys + at + (v * 32 + lane) * together);
          }
#pragma unroll
          for (int i = 0; i < items; ++i) {
            own[i] = base::to_ranked(loaded[i / together].item[i % together]);
          }
        } else {
          base::template load_items<32, items, together>(own, keys + at,
                                                         left < share ? static_cast<int>(left) : share, lane);
        }
#pragma unroll
        for (int j = 0; j < groups; ++j) {
          first[j] = own[j * vectors * together];
#pragma unroll
          for (int i = 1; i < vectors * together; ++i) {
            const ranked other = own[j * vectors * together + i];
            first[j]           = other < first[j] ? other : first[j];
          }
#pragma unroll
          for (int distance = lanes / 2; distance > 0; distance /= 2) {
            const ranked other = __shfl_xor_sync(~0u, first[j], distance);
            first[j]           = other < first[j] ? other : first[j];
          }
        }
        // A lane has one of the groups that it knows.
        const int turn = lane % lanes;
        ranked kept    = first[0];
#pragma unroll
        for (int j = 1; j < groups; ++j) {
          kept = turn == j ? first[j] : kept;
        }
        const i64 number = at / group + turn * (32 / lanes) + lane / lanes;
        if (turn < groups && number * group < num_items) {
          firsts[number] = order::Out(static_cast<bits>(kept));
        }
      }
    }
  };
  struct cupar_top_k_first_of_few : first_of<4, 1> {};
  struct cupar_top_k_first_of_many : first_of<32, 2> {};

  // Puts the selected groups together. The last of all may lack items, and is padded with last keys.
  struct cupar_top_k_gather : kernel<group_threads> {
    static __device__ __forceinline__ void run(const bits* keys, bits* gathered, grouped from, i64 groups,
                                               i64 num_items) {
      constexpr int loads = 4;
      join_stream();
      const i64 total = groups << from.shift, step = i64{gridDim.x} * group_threads;
      for (i64 at = i64{blockIdx.x} * group_threads + threadIdx.x; at < total; at += loads * step) {
        bits own[loads];
#pragma unroll
        for (int i = 0; i < loads; ++i) {
          const i64 place = at + i * step, item = place < total ? from[place] : num_items;
          own[i] = item < num_items ? keys[item] : order::Out(static_cast<bits>(last_ranked));
        }
#pragma unroll
        for (int i = 0; i < loads; ++i) {
          if (at + i * step < total) {
            gathered[at + i * step] = own[i];
          }
        }
      }
    }
  };

  static constexpr auto properties = properties_of(
      block_threads, tile, 32 * warp_items, sizeof(tiled_segment), sizeof(bits), sizeof(top_word),
      digit_threads, tile_items, sizeof(long_segment), cuda::std::is_same_v<start_offsets_in_t, row_starts>);
};
}  // namespace cupar
