// The item of a rank in the order of each segment, and the item behind it, without a sort.
//
// - Short segments are for a warp, which looks in its registers for the key that as many items are up to, bit
//   by bit.
// - Longer ones are for a block: it counts the items of each digit, from the highest digit on, and goes on
// with
//   those that have the digit of the item that it looks for. Once there is room for these in shared memory,
//   they are put there.
// - Many blocks share the longest: a kernel for each digit. Candidates are copied once they are few, and the
//   kernels behind read the copy. The last block of a segment finds its digit.
//
// Keys are compared as unsigned integers. All NaNs are one, which comes last, and -0.0 is as 0.0; so an item
// that is found is one of these two.
//
// Source: CUB's DeviceTopK for the digits; J. Zhang et al., "Parallel Top-K Algorithms on GPU: A
// Comprehensive Study and New Methods", SC '23, for when candidates are copied.
//
// Traits: d_in_v, start_offsets_in_t, end_offsets_in_t, ranks_t; has_next: whether the item behind is asked
// for; propagates: whether the results of a segment with a NaN are NaN; policy_threads,
// policy_candidate_bytes, policy_loads.
#pragma once

#include <cub/block/block_scan.cuh>

#include "common/kernel.cuh"
#include "common/last_block.cuh"
#include "common/lists.cuh"
#include "common/offsets.cuh"
#include "common/zero.cuh"
#include "top_k/teams.cuh"

namespace cupar {
// One rank for all segments.
struct same_rank {
  i64 rank;
  __device__ __forceinline__ i64 operator[](i64) const { return rank; }
};

template <class Traits>
struct nth_element_kernels : top_teams<sort_words<typename Traits::d_in_v, i64, false>> {
  using base               = top_teams<sort_words<typename Traits::d_in_v, i64, false>>;
  using start_offsets_in_t = typename Traits::start_offsets_in_t;
  using end_offsets_in_t   = typename Traits::end_offsets_in_t;
  using ranks_t            = typename Traits::ranks_t;
  using base::key_bits;
  using base::last_ranked;
  using typename base::bits;
  using typename base::key;
  using typename base::order;
  using typename base::ranked;

  static constexpr bool has_next = Traits::has_next, propagates = Traits::propagates;

  static constexpr int block_threads = Traits::policy_threads;
  static constexpr int team_threads  = 128;  // of blocks that have a segment each, or whose warps have one
  static constexpr int warp_items = sizeof(bits) > 4 ? 16 : 32, few_items = 4;  // of a lane
  static constexpr int together     = widest / sizeof(bits);                    // items of a vector
  static constexpr int few_together = least(few_items, together);
  static constexpr int many_loads   = Traits::policy_loads;                 // vectors of a thread at once
  static constexpr int few_loads    = many_loads > 1 ? many_loads / 2 : 1;  // where it finds candidates, too
  static constexpr int capacity     = Traits::policy_candidate_bytes / sizeof(bits);  // in shared memory
  static constexpr int tile         = 2 * capacity;
  static constexpr int digit_bits = 11, bins = 1 << digit_bits, bins_each = bins / block_threads;
  static constexpr int passes       = (key_bits + digit_bits - 1) / digit_bits;
  static constexpr int list_of_rows = 3, list_of_long = 4;
  static constexpr u32 no_entry = ~0u;

  // --- Keys ---

  static constexpr bool is_float  = !cuda::std::is_integral_v<key>;
  static constexpr int mantissa   = sizeof(key) == 8                    ? 52
                                    : sizeof(key) == 4                  ? 23
                                    : cuda::std::is_same_v<key, __half> ? 10
                                                                        : 7;
  static constexpr ranked top     = ranked{1} << (key_bits - 1);
  static constexpr ranked highest = top | ((top - 1) >> mantissa << mantissa);  // infinity, as it is ordered
  static constexpr ranked lowest  = last_ranked - highest;                      // and minus infinity

  // NaNs are below minus infinity, or above infinity.
  static __device__ __forceinline__ ranked with_one_nan(ranked given) {
    if constexpr (is_float) {
      return given - lowest > highest - lowest ? last_ranked : given;
    }
    return given;
  }
  static __device__ __forceinline__ ranked ranked_of(bits given) {
    return with_one_nan(base::to_ranked(given));
  }
  // The last digit of the first pass is that of NaNs alone, unless it lacks a bit of the exponent.
  static constexpr bool looks_for_nans = is_float && propagates && sizeof(key) == 8;
  static constexpr bool counts_nans    = is_float && propagates && !looks_for_nans;
  static __device__ __forceinline__ bool is_nan(ranked given) { return is_float && given == last_ranked; }
  static __device__ __forceinline__ bits key_of(ranked given) { return order::Out(static_cast<bits>(given)); }

  // Of both results, so that kernels have one parameter.
  struct results {
    bits* item;
    bits* next;  // null if it is not asked for

    __device__ __forceinline__ void write(i64 segment, ranked found, ranked behind) const {
      item[segment] = key_of(found);
      if constexpr (has_next) {
        next[segment] = key_of(behind);
      }
    }
  };

  // --- Short segments ---

  static __device__ __forceinline__ ranked least_of_lanes(ranked own) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      const ranked other = __shfl_xor_sync(~0u, own, distance);
      own                = other < own ? other : own;
    }
    return own;
  }

  // The same of a team; a block's needs shared memory, a place for each warp.
  template <int size>
  static __device__ __forceinline__ ranked least_of_team(ranked own, ranked* of_warps) {
    own = least_of_lanes(own);
    if constexpr (size > 32) {
      const int lane = threadIdx.x % 32;
      __syncthreads();
      if (lane == 0) {
        of_warps[threadIdx.x / 32] = own;
      }
      __syncthreads();
      own = least_of_lanes(lane < size / 32 ? of_warps[lane] : last_ranked);
    }
    return own;
  }

  // Segments of a list, for a team each.
  template <int size, int items, int together, int list>
  struct of_teams : kernel<team_threads> {
    static __device__ __forceinline__ void run(const bits* in, results to, ranks_t ranks,
                                               start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& from) {
      __shared__ u32 sums[2 * team<size>::warps];
      __shared__ ranked least[team<size>::warps];
      team<size> its{sums, 0};
      const int thread = its.thread();
      join_stream();
      const i64 count = from.count(list, num_segments);
      for (i64 at = (i64{blockIdx.x} * team_threads + threadIdx.x) / size; at < count;
           at += i64{gridDim.x} * (team_threads / size)) {
        const i64 segment = from.segment(list, at), begin = static_cast<i64>(starts[segment]);
        const i64 all  = length_of(begin, static_cast<i64>(ends[segment]));
        const i64 rank = static_cast<i64>(ranks[segment]);
        if (rank < 0 || rank >= all) {
          continue;
        }
        const int length = static_cast<int>(all);
        ranked own[items];
        base::template load_items<size, items, together>(own, in + begin, length, thread);
        // Out-of-range items come last, as NaNs do, which are behind no rank.
        bool has_nan = false;
#pragma unroll
        for (int i = 0; i < items; ++i) {
          own[i] = with_one_nan(own[i]);
          if constexpr (is_float && propagates) {
            const auto place = base::template place_of_item<size, together>(thread, i);
            has_nan |= is_nan(own[i]) && static_cast<int>(place) < length;
          }
        }
        const auto wanted  = static_cast<u32>(rank) + 1;
        const ranked up_to = base::bisect(its, own, wanted, key_bits);
        // The greatest of those up to it, by its complement.
        ranked before = last_ranked, behind = last_ranked;
        u32 number = 0;
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const ranked complement = last_ranked - own[i];
          if (own[i] <= up_to) {
            before = complement < before ? complement : before;
            ++number;
          } else {
            behind = own[i] < behind ? own[i] : behind;
          }
        }
        ranked found = last_ranked - least_of_team<size>(before, least);
        if constexpr (has_next) {
          behind =
              its.sum(number) > wanted || rank + 1 == length ? found : least_of_team<size>(behind, least);
        }
        if constexpr (is_float && propagates) {
          if (size > 32 ? __syncthreads_or(has_nan) : __any_sync(~0u, has_nan)) {
            found = behind = last_ranked;
          }
        }
        if (thread == 0) {
          to.write(segment, found, behind);
        }
      }
    }
  };
  struct cupar_nth_element_few : of_teams<32, few_items, few_together, 0> {};
  struct cupar_nth_element_warp : of_teams<32, warp_items, together, 1> {};
  struct cupar_nth_element_team : of_teams<team_threads, warp_items, together, 2> {};

  // Writes the lists: of segments for warps, for blocks, and of long ones.
  struct cupar_nth_element_list : kernel<256> {
    static __device__ __forceinline__ void run(start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& to, i64 longest) {
      write_lists(starts, ends, num_segments, to, [longest](i64 length) {
        return (length > 32 * few_items) + (length > 32 * warp_items) + (length > team_threads * warp_items) +
               (length > longest);
      });
    }
  };

  // --- Digits ---

  static constexpr int width_of(int pass) {
    return key_bits - pass * digit_bits < digit_bits ? key_bits - pass * digit_bits : digit_bits;
  }
  static __device__ __forceinline__ int shift_of(int pass) {
    const int above = key_bits - pass * digit_bits;
    return above < digit_bits ? 0 : above - digit_bits;
  }

  // Which items of a pass are candidates, and their digits. In the first pass nothing is left of keys but
  // what is known of the bound: 0.
  struct digits {
    int shift, width;
    ranked known;  // all digits before

    __device__ __forceinline__ digits(int pass, u64 bound)
        : shift(shift_of(pass)),
          width(key_bits - pass * digit_bits - shift),
          known(static_cast<ranked>(bound >> shift >> width)) {}

    __device__ __forceinline__ bool has(ranked given) const { return given >> shift >> width == known; }
    __device__ __forceinline__ u32 of(ranked given) const {
      return static_cast<u32>(given >> shift) & ((1u << width) - 1);
    }
  };

  using block_scan = cub::BlockScan<u64, block_threads>;

  // What a block knows of the item that it looks for.
  struct search {
    typename block_scan::TempStorage scan;
    u64 bound, rank;  // its digits that are known; its rank, from 1 on, among those that have them
    u64 count;        // items that have them
    bool has_last;    // whether there are items of the last digit
    u32 next_digit;   // the least digit behind its own that there is
    u32 packed;       // candidates in shared memory
    ranked least;     // of those behind it
  };

  // Finds the digit that the item of a rank has, of the counts of `take(bin)`, which clears them.
  template <class Take>
  static __device__ __forceinline__ void find_digit(search& its, int shift, Take take) {
    u64 counts[bins_each], sum = 0, before;
#pragma unroll
    for (int i = 0; i < bins_each; ++i) {
      counts[i] = take(threadIdx.x * bins_each + i);
      sum += counts[i];
    }
    const u64 rank = its.rank;
    if (threadIdx.x == 0) {
      its.next_digit = bins;
    }
    if (threadIdx.x == block_threads - 1) {
      its.has_last = counts[bins_each - 1] > 0;
    }
    block_scan(its.scan).ExclusiveSum(sum, before);  // with a barrier, before the rank is replaced
#pragma unroll
    for (int i = 0; i < bins_each; ++i) {
      const u32 digit = threadIdx.x * bins_each + i;
      if (before < rank && rank <= before + counts[i]) {
        its.bound |= u64{digit} << shift;
        its.rank  = rank - before;
        its.count = counts[i];
      }
      if (has_next && before >= rank && counts[i] > 0) {
        atomicMin(&its.next_digit, digit);
      }
      before += counts[i];
    }
    __syncthreads();
  }

  // Calls `use(item, is_there)` for all items; all threads do, in each call. A thread loads so many vectors
  // at once.
  template <int loads, class Index, class Use>
  static __device__ __forceinline__ void for_each(const bits* from, Index begin, Index end, Use use) {
    const auto beyond = static_cast<int>(reinterpret_cast<u64>(from + begin) / sizeof(bits) % together);
    const Index ahead = (together - beyond) % together, length = end - begin;
    const Index head = ahead < length ? ahead : length, vectors = (length - head) / together;
    const Index tail = length - head - vectors * together;
    // What is no whole vector is for one thread each.
    if (head + tail > 0) {
      const Index i       = threadIdx.x < head ? threadIdx.x : threadIdx.x + vectors * together;
      const bool is_there = threadIdx.x < head + tail;
      use(ranked_of(is_there ? from[begin + i] : bits{}), is_there);
    }
    const bits* const first = from + begin + head;
    const auto batch        = [&](auto count, Index v, bool is_there) {
      vector<bits, together> loaded[count()];
#pragma unroll
      for (int k = 0; k < count(); ++k) {
        if (is_there) {
          load<true>(loaded[k], first + (v + k * block_threads) * together);
        }
      }
#pragma unroll
      for (int k = 0; k < count(); ++k) {
#pragma unroll
        for (int i = 0; i < together; ++i) {
          use(ranked_of(loaded[k].item[i]), is_there);
        }
      }
    };
    Index v = 0;
#pragma unroll 1
    for (; v + loads * block_threads <= vectors; v += loads * block_threads) {
      batch(cuda::std::integral_constant<int, loads>{}, v + threadIdx.x, true);
    }
#pragma unroll 1
    for (; v < vectors; v += block_threads) {
      batch(cuda::std::integral_constant<int, 1>{}, v + threadIdx.x, v + threadIdx.x < vectors);
    }
  }

  // Puts a warp's candidates behind those in shared memory: the cursor counts all, even without room.
  static __device__ __forceinline__ void pack(bool is_one, ranked item, bits* stage, u32* cursor) {
    const u32 votes = __ballot_sync(~0u, is_one);
    if (votes != 0) {
      const int lane = threadIdx.x % 32;
      u32 place      = 0;
      if (lane == 0) {
        place = atomicAdd(cursor, static_cast<u32>(__popc(votes)));
      }
      place = __shfl_sync(~0u, place, 0) + __popc(votes & ((1u << lane) - 1));
      if (is_one && place < capacity) {
        stage[place] = key_of(item);
      }
    }
  }

  static __device__ __forceinline__ void lower(ranked* least, ranked own) {
    if constexpr (sizeof(ranked) == 8) {
      atomicMin(reinterpret_cast<u64*>(least), u64{own});
    } else {
      atomicMin(reinterpret_cast<u32*>(least), static_cast<u32>(own));
    }
  }

  // Lowers `least` to the least item behind another.
  template <class Index>
  static __device__ __forceinline__ void find_behind(const bits* from, Index begin, Index end, ranked found,
                                                     ranked* least) {
    ranked own = last_ranked;
    for_each<many_loads>(from, begin, end, [&](ranked item, bool is_there) {
      if (is_there && item > found && item < own) {
        own = item;
      }
    });
    own = least_of_lanes(own);
    if (threadIdx.x % 32 == 0) {
      lower(least, own);
    }
  }

  // --- Segments for a block ---

  struct cupar_nth_element_rows : kernel<block_threads, 3> {
    static __device__ __forceinline__ void run(const bits* in, results to, ranks_t ranks,
                                               start_offsets_in_t starts, end_offsets_in_t ends,
                                               i64 num_segments, const lists& from) {
      __shared__ search its;
      __shared__ u32 counts[bins];
      __shared__ bits stage[capacity];
      for (int i = threadIdx.x; i < bins; i += block_threads) {
        counts[i] = 0;
      }
      join_stream();
      const i64 count = from.count(list_of_rows, num_segments);
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const i64 segment = from.segment(list_of_rows, at), begin = static_cast<i64>(starts[segment]);
        const i64 length = length_of(begin, static_cast<i64>(ends[segment])),
                  rank   = static_cast<i64>(ranks[segment]);
        if (rank < 0 || rank >= length) {
          continue;
        }
        __syncthreads();  // of the segment before, all is read
        if (threadIdx.x == 0) {
          its.rank   = static_cast<u64>(rank) + 1;
          its.packed = 0;
          its.bound  = 0;
          its.least  = last_ranked;
        }
        bool has_nan = false, is_packed = false, packs = false;
        u32 left = static_cast<u32>(length);  // items to go through; no row has 2^31
        for (int pass = 0; pass < passes; ++pass) {
          __syncthreads();
          const digits digit(pass, its.bound);
          const bits* const source = is_packed ? stage : in + begin;
          const auto count_digit   = [&](ranked item) { atomicAdd(&counts[digit.of(item)], 1u); };
          if (packs) {
            for_each<few_loads>(source, 0u, left, [&](ranked item, bool is_there) {
              const bool is_one = is_there && digit.has(item);
              if (is_one) {
                count_digit(item);
              }
              pack(is_one, item, stage, &its.packed);
            });
          } else {
            for_each<many_loads>(source, 0u, left, [&](ranked item, bool is_there) {
              if (is_there && digit.has(item)) {
                count_digit(item);
              }
              if constexpr (looks_for_nans) {
                has_nan |= is_there && is_nan(item);
              }
            });
          }
          if constexpr (looks_for_nans) {
            has_nan = __syncthreads_or(has_nan);
            if (has_nan) {
              break;
            }
          } else {
            __syncthreads();
          }
          find_digit(its, digit.shift, [&](int bin) {
            const u32 found = counts[bin];
            counts[bin]     = 0;
            return u64{found};
          });
          if constexpr (counts_nans) {
            has_nan |= pass == 0 && its.has_last;
            if (has_nan) {
              break;
            }
          }
          if (packs) {
            is_packed = true;
            left      = its.packed;
          }
          packs = !is_packed && its.count <= capacity;
        }
        if (has_nan) {
          for (int i = threadIdx.x; i < bins; i += block_threads) {
            counts[i] = 0;
          }
          if (threadIdx.x == 0) {
            to.write(segment, last_ranked, last_ranked);
          }
          continue;
        }
        const ranked found = static_cast<ranked>(its.bound);
        ranked behind      = found;
        if constexpr (has_next) {
          if (its.rank == its.count && rank + 1 < length) {
            if (its.next_digit < bins) {
              const ranked low = (ranked{1} << width_of(passes - 1)) - 1;
              behind           = (found & ~low) | its.next_digit;
            } else {
              find_behind(in + begin, 0u, static_cast<u32>(length), found, &its.least);
              __syncthreads();
              behind = its.least;
            }
          }
        }
        if (threadIdx.x == 0) {
          to.write(segment, found, behind);
        }
      }
    }
  };

  // --- Long segments ---

  struct nth_segment {
    i64 begin, length, segment;
    u32 first, tiles;
    u32 left;    // tiles that a kernel has not gone through yet
    u32 state;   // of candidates: where they are
    u64 wanted;  // the rank, from 1 on: of all
    u64 rank, bound, count;
    u64 packed;  // candidates that were copied
    u64 least;   // of the items behind
    u32 has_nan, needs_next;
  };
  enum : u32 { in_input, are_copied, in_copy };

  struct tile_queue {
    u32* counts;  // of tiles, and of segments
    nth_segment* segments;
    u32* segment_of;  // each tile
    u64* bins;
    bits* copies;  // of candidates: a part of a segment's, from that part of its first item on
    u32 most_segments, most_tiles;

    __device__ __forceinline__ u32 tiles() const { return *counts < most_tiles ? *counts : most_tiles; }
  };
  static constexpr int copied_part = 8;

  // Cuts long segments into tiles, and zeroes their bins.
  struct cupar_nth_element_tiles : kernel<1024> {
    static __device__ __forceinline__ void run(ranks_t ranks, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, const lists& from,
                                               const tile_queue& to) {
      __shared__ u32 shared_first;
      __shared__ bool shared_is_one;
      join_stream();
      i64 count = from.count(list_of_long, num_segments);
      count     = count < to.most_segments ? count : to.most_segments;
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const i64 segment = from.segment(list_of_long, at);
        const i64 begin   = static_cast<i64>(starts[segment]);
        const i64 length  = length_of(begin, static_cast<i64>(ends[segment])),
                  rank    = static_cast<i64>(ranks[segment]);
        const auto tiles  = static_cast<u32>((length + tile - 1) / tile);
        if (threadIdx.x == 0) {
          shared_first = atomicAdd(to.counts, tiles);
          // Not if segments overlap.
          shared_is_one    = u64{shared_first} + tiles <= to.most_tiles && rank >= 0 && rank < length;
          const u64 wanted = static_cast<u64>(rank) + 1;
          to.segments[at]  = {begin,
                              shared_is_one ? length : 0,
                              segment,
                              shared_first,
                              tiles,
                              tiles,
                              in_input,
                              wanted,
                              wanted,
                              0,
                              0,
                              0,
                              last_ranked,
                              0,
                              0};
        }
        __syncthreads();
        const u64 first = shared_first, end = first + tiles;
        for (u64 i = first + threadIdx.x; i < end && i < to.most_tiles; i += blockDim.x) {
          to.segment_of[i] = shared_is_one ? static_cast<u32>(at) : no_entry;
        }
        for (int i = threadIdx.x; i < bins; i += blockDim.x) {
          to.bins[at * bins + i] = 0;
        }
        __syncthreads();
      }
    }
  };

  // Calls `use(its, first, stop)` for the tiles of each segment that a block has: those that follow one
  // another.
  template <class Use>
  static __device__ __forceinline__ void for_each_segment(const tile_queue& q, Use use) {
    const u32 total = q.tiles(), each = (total + gridDim.x - 1) / gridDim.x;
    u32 t         = u64{blockIdx.x} * each < total ? blockIdx.x * each : total;
    const u32 end = total - t < each ? total : t + each;
    while (t < end) {
      const u32 segment = q.segment_of[t];
      if (segment == no_entry) {
        ++t;
        continue;
      }
      nth_segment& its = q.segments[segment];
      const u32 behind = its.first + its.tiles, stop = end < behind ? end : behind;
      use(its, segment, t - its.first, stop - its.first);
      t = stop;
    }
  }

  // Where a part of a segment's tiles ends among so many items, about: a division would be a call.
  static __device__ __forceinline__ i64 share_of(u64 items, u32 tiles, u32 all) {
    const double part = __fdividef(static_cast<float>(tiles), static_cast<float>(all));
    const u64 found   = static_cast<u64>(static_cast<double>(items) * part);
    return static_cast<i64>(tiles == all || found > items ? items : found / together * together);
  }

  static __device__ __forceinline__ bool is_last_of(nth_segment& its, u32 tiles) {
    return is_last_block([&] { return atomicSub(&its.left, tiles) == tiles; });
  }

  struct cupar_nth_element_digit : kernel<block_threads, 3> {
    static __device__ __forceinline__ void run(const bits* in, results to, const tile_queue& q, int pass) {
      __shared__ search own;
      __shared__ u32 counts[bins];
      __shared__ bits stage[capacity];
      __shared__ u64 place;
      for (int i = threadIdx.x; i < bins; i += block_threads) {
        counts[i] = 0;
      }
      if (threadIdx.x == 0) {
        own.packed = 0;
      }
      join_stream();
      __syncthreads();
      for_each_segment(q, [&](nth_segment& its, u32 segment, u32 first, u32 stop) {
        const digits digit(pass, its.bound);
        const u32 state          = its.state;
        const u64 items          = state == in_copy ? its.packed : its.length;
        bits* const copy         = q.copies + (its.begin + copied_part - 1) / copied_part;
        const bits* const source = state == in_copy ? copy : in + its.begin;
        const i64 begin = share_of(items, first, its.tiles), end = share_of(items, stop, its.tiles);
        bool has_nan = false;
        if (state == are_copied) {
          for (i64 at = begin; at < end; at += capacity) {
            for_each<few_loads>(source + at, 0u,
                                end - at < capacity ? static_cast<u32>(end - at) : u32{capacity},
                                [&](ranked item, bool is_there) {
                                  const bool is_one = is_there && digit.has(item);
                                  if (is_one) {
                                    atomicAdd(&counts[digit.of(item)], 1u);
                                  }
                                  pack(is_one, item, stage, &own.packed);
                                });
            __syncthreads();
            const u32 found = own.packed;
            if (threadIdx.x == 0 && found > 0) {
              place = atomicAdd(&its.packed, u64{found});
            }
            __syncthreads();
            for (u32 i = threadIdx.x; i < found; i += block_threads) {
              copy[place + i] = stage[i];
            }
            if (threadIdx.x == 0) {
              own.packed = 0;
            }
            __syncthreads();
          }
        } else {
          for_each<many_loads>(source, begin, end, [&](ranked item, bool is_there) {
            if (is_there && digit.has(item)) {
              atomicAdd(&counts[digit.of(item)], 1u);
            }
            if constexpr (looks_for_nans) {
              has_nan |= is_there && is_nan(item);
            }
          });
        }
        if constexpr (looks_for_nans) {
          if (__syncthreads_or(has_nan) && threadIdx.x == 0) {
            atomicOr(&its.has_nan, 1u);
          }
        } else {
          __syncthreads();
        }
        u64* const all = q.bins + u64{segment} * bins;
        for (int i = threadIdx.x; i < bins; i += block_threads) {
          if (counts[i] > 0) {
            atomicAdd(&all[i], u64{counts[i]});
            counts[i] = 0;
          }
        }
        if (is_last_of(its, stop - first)) {
          finish(its, own, all, to, digit.shift, pass);
        }
      });
    }

   private:
    // What the last block of a segment does in a pass.
    static __device__ __forceinline__ void finish(nth_segment& its, search& own, u64* all, const results& to,
                                                  int shift, int pass) {
      if (threadIdx.x == 0) {
        own.rank  = its.rank;
        own.bound = its.bound;
      }
      __syncthreads();
      find_digit(own, shift, [&](int bin) {
        const u64 found = __ldcg(all + bin);  // other blocks have written it: not from this one's L1
        all[bin]        = 0;
        return found;
      });
      if (threadIdx.x != 0) {
        return;
      }
      its.rank  = own.rank;
      its.bound = own.bound;
      its.count = own.count;
      its.left  = its.tiles;
      if (counts_nans && pass == 0 && own.has_last) {
        its.has_nan = 1;
      }
      if (its.state == are_copied) {
        its.state = in_copy;
      } else if (its.state == in_input && own.count <= its.length / copied_part) {
        its.state = are_copied;
      }
      if (pass < passes - 1) {
        return;
      }
      const ranked found = static_cast<ranked>(own.bound);
      ranked behind      = found;
      const bool has_nan = is_float && propagates && *static_cast<volatile u32*>(&its.has_nan) != 0;
      if (has_next && !has_nan && own.rank == own.count && its.wanted < static_cast<u64>(its.length)) {
        if (own.next_digit < bins) {
          const ranked low = (ranked{1} << width_of(passes - 1)) - 1;
          behind           = (found & ~low) | own.next_digit;
        } else {
          its.needs_next = 1;
        }
      }
      to.write(its.segment, has_nan ? last_ranked : found, has_nan ? last_ranked : behind);
    }
  };

  // Finds the item behind, where all that have the same digits but the last are before it.
  struct cupar_nth_element_behind : kernel<block_threads> {
    static __device__ __forceinline__ void run(const bits* in, results to, const tile_queue& q) {
      __shared__ ranked least;
      join_stream();
      for_each_segment(q, [&](nth_segment& its, u32, u32 first, u32 stop) {
        if (!its.needs_next) {
          return;
        }
        const ranked found = static_cast<ranked>(its.bound);
        if (threadIdx.x == 0) {
          least = last_ranked;
        }
        __syncthreads();
        find_behind(in + its.begin, share_of(its.length, first, its.tiles),
                    share_of(its.length, stop, its.tiles), found, &least);
        __syncthreads();
        if (threadIdx.x == 0) {
          atomicMin(&its.least, u64{least});
        }
        if (is_last_of(its, stop - first) && threadIdx.x == 0) {
          to.next[its.segment] = key_of(static_cast<ranked>(__ldcg(&its.least)));
        }
        __syncthreads();
      });
    }
  };

  struct cupar_nth_element_init : zero<u32> {};

  static constexpr auto properties =
      properties_of(block_threads, tile, 32 * warp_items, sizeof(nth_segment), sizeof(bits));
};
}  // namespace cupar
