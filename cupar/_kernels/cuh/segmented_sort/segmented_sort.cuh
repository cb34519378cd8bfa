// Segmented sorts, with kernels by the sizes of segments.
//
// - A key becomes a word that sorts as an unsigned integer. With values, a word also holds where in its
//   segment the key was: so words differ, every way of sorting them is stable, and a value is moved once.
// - Short segments are sorted by 4 to 32 lanes, in registers, by a bitonic network. Each lane has
//   successive positions in it, so that most of its steps are within lanes. The words to begin with may be in
//   any order: that they are loaded side by side costs nothing.
// - Others are sorted by a team of warps, in shared memory.
// - Long ones are cut into tiles, for many blocks, and sorted digit by digit; or by one digit, if what has
//   the same one is short enough to be sorted as a segment is.
//
// With offsets, a kernel before these writes a list of segments for each size; they are never read back.
// Segments do not overlap, so no list is longer than the items divided by the least length in it.
//
// Traits: d_in_keys_v, d_in_values_v (void: keys alone), start_offsets_in_t, end_offsets_in_t, is_descending;
// has_512, whether there are groups of lanes for 512 items; the policy: group_threads, team_items,
// team_blocks, digit_threads, digit_items, and rows_threads, which plans need.
//
// Merges are not CUB's `SerialMerge`: runs end with words behind all others, so that words alone decide which
// is next.
//
// Source: for merges, S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW 2012.
#pragma once

#include "common/kernel.cuh"
#include "common/lists.cuh"
#include "common/offsets.cuh"
#include "common/vectors.cuh"
#include "segmented_sort/long.cuh"

namespace cupar {
// Shared memory of a block, at most.
constexpr int most_shared(int cc) {
  if (cc < 75 && cc != 70) {
    return 48 << 10;
  }
  return cc < 80 ? 64 << 10 : cc == 86 || cc == 88 || cc == 89 || cc >= 120 ? 99 << 10 : 163 << 10;
}

template <class Traits>
struct segmented_sort_kernels
    : long_sort<typename Traits::d_in_keys_v, typename Traits::d_in_values_v, Traits::is_descending,
                typename Traits::start_offsets_in_t, typename Traits::end_offsets_in_t, Traits::digit_threads,
                Traits::digit_items, !cuda::std::is_same_v<typename Traits::start_offsets_in_t, row_starts>> {
  using start_offsets_in_t           = typename Traits::start_offsets_in_t;
  using end_offsets_in_t             = typename Traits::end_offsets_in_t;
  static constexpr bool has_512      = Traits::has_512;
  static constexpr int group_threads = Traits::group_threads;
  static constexpr int team_items    = Traits::team_items;
  static constexpr int team_blocks   = Traits::team_blocks;
  static constexpr int digit_threads = Traits::digit_threads;
  static constexpr int rows_threads  = Traits::rows_threads;

  using base =
      long_sort<typename Traits::d_in_keys_v, typename Traits::d_in_values_v, Traits::is_descending,
                typename Traits::start_offsets_in_t, typename Traits::end_offsets_in_t, Traits::digit_threads,
                Traits::digit_items, !cuda::std::is_same_v<typename Traits::start_offsets_in_t, row_starts>>;
  using base::digits;
  using base::has_parts;
  using base::has_values;
  using base::passes;
  using base::tile_items;
  using typename base::arrays;
  using typename base::bits;
  using typename base::long_segment;
  using typename base::sort_word;
  using typename base::value;

  using starts_t = start_offsets_in_t;
  using ends_t   = end_offsets_in_t;

  static constexpr bool is_rows = cuda::std::is_same_v<starts_t, row_starts>;

  // --- Lists of segments by size, as a kernel before all others writes them ---

  // Lists for groups of lanes; then those for teams; then that of long segments.
  static constexpr int group_sizes = has_512 ? 6 : 5;

  // Bytes that the threads of a block have their words in.
  static constexpr int team_bytes(int threads) {
    return threads * (team_items + 1) * static_cast<int>(sizeof(sort_word));
  }

  static constexpr int most_team_threads() {
    int threads = 512;
    while (team_bytes(threads) > most_shared(target)) {
      threads /= 2;
    }
    return threads;
  }

  static constexpr int team_threads = most_team_threads();

  static __device__ __forceinline__ int list_of(i64 length) {
    int list = (length > 16) + (length > 32) + (length > 64) + (length > 128) + (length > 256);
    list += has_512 && length > 512;
#pragma unroll
    for (int threads = 32; threads <= team_threads; threads *= 2) {
      list += length > threads * team_items;
    }
    return list;
  }

  // Copies a thread's single items.
  static __device__ __forceinline__ void copy_singles(const arrays& given, listed_segments& its) {
    bits loaded[list_rounds];
#pragma unroll
    for (int i = 0; i < list_rounds; ++i) {
      if (its.length[i] == 1) {
        loaded[i] = given.keys_in[its.begin[i]];
      }
    }
#pragma unroll
    for (int i = 0; i < list_rounds; ++i) {
      if (its.length[i] == 1) {
        given.keys_out[its.begin[i]] = loaded[i];
        if constexpr (has_values) {
          given.values_out[its.begin[i]] = given.values_in[its.begin[i]];
        }
        its.length[i] = 0;
      }
    }
  }

  // Writes the lists: of segments for groups of lanes, for teams, and of long ones. If there are many single
  // items, it copies them: to list and to find one takes longer.
  struct cupar_segmented_sort_list : kernel<list_threads> {
    static __device__ __forceinline__ void run(arrays given, starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& to, int copies_singles) {
      write_lists(starts, ends, num_segments, to, list_of, [&](listed_segments& its) {
        if (copies_singles != 0) {
          copy_singles(given, its);
        }
      });
    }
  };

  // --- Parts of long segments: if all are short enough, the first pass sorts a segment by its highest digit
  // that differs, and each digit's keys are listed as segments are. It leaves them where the second pass
  // would read them. Else all passes sort it, digit by digit ---

  struct parts {
    const long_segment* segments;
    const u64* bins;
    const bits* keys;
    const value* values;
  };

  // A segment of a list, or a part: those have numbers behind all segments'.
  struct listed {
    i64 begin, length;
    bool is_part;

    __device__ __forceinline__ const bits* keys(const arrays& given, const parts& of) const {
      return (has_parts && is_part ? of.keys : given.keys_in) + begin;
    }
    __device__ __forceinline__ const value* values(const arrays& given, const parts& of) const {
      return (has_parts && is_part ? of.values : given.values_in) + begin;
    }
  };

  static __device__ __forceinline__ listed find(starts_t starts, ends_t ends, i64 num_segments,
                                                const lists& from, int list, i64 at, const parts& of) {
    const i64 segment = from.segment(list, at);
    if constexpr (has_parts) {
      if (segment >= num_segments) {
        const u64 part = segment - num_segments, its = part / digits, digit = part % digits;
        const long_segment whole = of.segments[its];
        const u64* const bins    = of.bins + (its * passes + whole.parts - 1) * digits;
        const u64 before = bins[digit], behind = digit + 1 < digits ? bins[digit + 1] : whole.length;
        return {whole.begin + static_cast<i64>(before), static_cast<i64>(behind - before), true};
      }
    }
    const auto begin = static_cast<i64>(starts[segment]);
    return {begin, length_of(begin, static_cast<i64>(ends[segment])), false};
  }

  // A block for each long segment: chooses its digit, and lists its parts.
  struct cupar_segmented_sort_parts : kernel<digits> {
    static __device__ __forceinline__ void run(starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& to, int list, u32 most, typename base::queue q) {
      join_stream();
      const int digit = threadIdx.x, lane = digit % 32;
      i64 count = to.count(list, num_segments);
      count     = count < q.most_segments ? count : q.most_segments;
      for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        long_segment* const its = q.segments + at;
        const i64 all           = its->length;
        i64 length              = all;  // of a digit's keys
        int pass                = passes;
        while (pass > 0 && __syncthreads_or(length == all)) {
          --pass;
          const u64* const bins = q.bins + (at * passes + pass) * digits + digit;
          length = static_cast<i64>(digit + 1 < digits ? bins[1] : all) - static_cast<i64>(bins[0]);
        }
        if (at >= most || __syncthreads_or(length > team_threads * team_items)) {
          if (digit == 0) {
            atomicAdd(q.counts + 1 + passes, its->tiles);
          }
          continue;
        }
        if (digit == 0) {
          its->parts = pass + 1;
        }
        const u64 end = u64{its->first_tile} + its->tiles;
        for (u64 tile = u64{its->first_tile} + digit; tile < end && tile < q.most_tiles; tile += digits) {
          q.places[tile].parts = pass + 1;
        }
        const int own       = length > 0 ? list_of(length) : -1;
        const unsigned like = __match_any_sync(~0u, own);
        const int leader    = __ffs(like) - 1;
        u32 before          = 0;
        if (own >= 0 && lane == leader) {
          before = atomicAdd(&to.counts[own], static_cast<u32>(__popc(like)));
        }
        before = __shfl_sync(~0u, before, leader) + __popc(like & ((1u << lane) - 1));
        if (own >= 0 && to.first[own] + before < to.first[own + 1]) {
          to.segments[to.first[own] + before] = static_cast<u32>(num_segments + at * digits + digit);
        }
      }
    }
  };

  // --- Short segments: 4 to 32 lanes have one, and sort it in registers, by a bitonic network ---

  template <int lanes, int items>
  static __device__ __forceinline__ void sort_groups(const arrays& given, starts_t starts, ends_t ends,
                                                     i64 num_segments, const lists& from, int list,
                                                     const parts& of) {
    constexpr int groups = group_threads / lanes, most = lanes * items;
    // Of a vector, and vectors of a lane.
    constexpr int together = cuda::std::min<int>(items, widest / sizeof(bits)), vectors = items / together;
    constexpr bool stores_vectors = !has_values && items * sizeof(bits) <= 2 * widest;
    // A gap behind the words of each lane, so that all are in different banks.
    __shared__ sort_word stages[group_threads * (items + 1)];
    sort_word* const stage = stages + threadIdx.x / lanes * lanes * (items + 1);
    const int lane         = threadIdx.x % lanes;
    const i64 count        = from.count(list, num_segments);
    for (i64 first = i64{blockIdx.x} * groups; first < count; first += i64{gridDim.x} * groups) {
      const i64 at = first + threadIdx.x / lanes;
      listed its{0, 0, false};
      if (at < count) {
        its = find(starts, ends, num_segments, from, list, at, of);
      }
      const i64 begin      = its.begin;
      const int length     = static_cast<int>(its.length);
      const bits* const in = its.keys(given, of);
      bits* const out      = given.keys_out + begin;
      const bool is_full   = length == most && is_aligned<together>(in);
      sort_word words[items];
      if (__all_sync(~0u, is_full)) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          const int place = (v * lanes + lane) * together;
          vector<bits, together> loaded;
          load<true>(loaded, in + place);
#pragma unroll
          for (int i = 0; i < together; ++i) {
            words[v * together + i] = base::to_word(loaded.item[i], place + i);
          }
        }
      } else {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const int place = i * lanes + lane;
          words[i]        = place < length ? base::to_word(in[place], place) : base::last_word();
        }
      }
      base::template sort_lanes<lanes, items>(words);
      if constexpr (stores_vectors) {
        if (__all_sync(~0u, is_full && is_aligned<together>(out))) {
#pragma unroll
          for (int v = 0; v < vectors; ++v) {
            vector<bits, together> stored;
#pragma unroll
            for (int i = 0; i < together; ++i) {
              stored.item[i] = base::to_key(words[v * together + i]);
            }
            store<true>(out + lane * items + v * together, stored);
          }
          continue;
        }
      }
#pragma unroll
      for (int i = 0; i < items; ++i) {
        stage[lane * (items + 1) + i] = words[i];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const int position = i * lanes + lane;
        if (position < length) {
          const sort_word found = stage[position + position / items];
          out[position]         = base::to_key(found);
          if constexpr (has_values) {
            given.values_out[begin + position] = its.values(given, of)[base::place_of(found)];
          }
        }
      }
      __syncwarp();
    }
  }

  // For rows of at most `most` items, or the list of such segments.
  //
  // Those that have a list begin beside the kernel before, as far as there is room: with what is ahead of
  // that one, which it has waited for, lists are written. They end behind it, as all that follows relies on.
  template <int most, int lanes, int list>
  struct groups : kernel<group_threads> {
    static __device__ __forceinline__ void run(arrays given, starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& from, parts of) {
      if constexpr (is_rows) {
        join_stream();
      } else {
        launch_dependents();
      }
      sort_groups<lanes, most / lanes>(given, starts, ends, num_segments, from, list, of);
      if constexpr (!is_rows) {
        wait_for_stream();
      }
    }
  };
  struct cupar_segmented_sort_16 : groups<16, 4, 0> {};
  struct cupar_segmented_sort_32 : groups<32, 4, 1> {};
  struct cupar_segmented_sort_64 : groups<64, 8, 2> {};
  struct cupar_segmented_sort_128 : groups<128, 8, 3> {};
  struct cupar_segmented_sort_256 : groups<256, 16, 4> {};
  struct cupar_segmented_sort_512 : groups<512, 32, 5> {};

  // --- Segments that a team sorts: a warp, or 2, 4, 8 or 16 of them. Each warp sorts its share by the
  // network; then shares are merged, pair by pair, in shared memory ---

  static __device__ __forceinline__ int padded(int position) { return position + position / team_items; }

  // Merges pairs of sorted runs of a number of words; each thread gets its share of the result.
  static __device__ __forceinline__ void merge_runs(sort_word (&words)[team_items], const sort_word* stage,
                                                    int thread, int run) {
    const int first = thread * team_items, pair = first & ~(2 * run - 1), before = first - pair;
    // How many of the words before come from the first run.
    int low = before > run ? before - run : 0, high = before < run ? before : run;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (stage[padded(pair + run + before - 1 - middle)] < stage[padded(pair + middle)]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    int a = pair + low, b = pair + run + before - low;
    const int a_end = pair + run, b_end = a_end + run;
    sort_word a_word = a < a_end ? stage[padded(a)] : base::last_word();
    sort_word b_word = b < b_end ? stage[padded(b)] : base::last_word();
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      // A run that has ended has words behind all others; those that are like them are the same.
      const bool is_a = !(b_word < a_word);
      words[i]        = base::either(is_a, a_word, b_word);
      a += is_a;
      b += !is_a;
      const int next       = is_a ? a : b;
      const sort_word word = next < (is_a ? a_end : b_end) ? stage[padded(next)] : base::last_word();
      a_word               = base::either(is_a, word, a_word);
      b_word               = base::either(is_a, b_word, word);
    }
  }

  static __device__ __forceinline__ void sort_in_team(const arrays& given, const bits* in,
                                                      const value* values_in, i64 begin, int length,
                                                      sort_word* stage, int threads, int team) {
    const int thread = threadIdx.x % threads;
    sort_word words[team_items];
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int place = i * threads + thread;
      words[i]        = place < length ? base::to_word(in[place], place) : base::last_word();
    }
    base::template sort_lanes<32, team_items>(words);
    sort_word* const own = stage + thread * (team_items + 1);
    for (int run = 32 * team_items;; run *= 2) {
#pragma unroll
      for (int i = 0; i < team_items; ++i) {
        own[i] = words[i];
      }
      wait_for_team(threads, team);
      if (run == threads * team_items) {
        break;
      }
      merge_runs(words, stage, thread, run);
      wait_for_team(threads, team);
    }
    if constexpr (has_values && sizeof(value) <= sizeof(sort_word)) {
      // The values take the words' place, so that they are read side by side.
#pragma unroll
      for (int i = 0; i < team_items; ++i) {
        words[i] = stage[padded(i * threads + thread)];
      }
      wait_for_team(threads, team);
      value* const values = reinterpret_cast<value*>(stage);
#pragma unroll
      for (int i = 0; i < team_items; ++i) {
        const int place = i * threads + thread;
        if (place < length) {
          values[place] = values_in[place];
        }
      }
      wait_for_team(threads, team);
#pragma unroll
      for (int i = 0; i < team_items; ++i) {
        const int position = i * threads + thread;
        if (position < length) {
          given.keys_out[begin + position]   = base::to_key(words[i]);
          given.values_out[begin + position] = values[base::place_of(words[i])];
        }
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < team_items; ++i) {
        const int position = i * threads + thread;
        if (position < length) {
          const sort_word found            = stage[padded(position)];
          given.keys_out[begin + position] = base::to_key(found);
          if constexpr (has_values) {
            given.values_out[begin + position] = values_in[base::place_of(found)];
          }
        }
      }
    }
    wait_for_team(threads, team);
  }

  // For the lists of teams, from the largest team to the smallest: 32 << size threads.
  struct cupar_segmented_sort_teams : kernel<team_threads, team_blocks> {
    static __device__ __forceinline__ void run(arrays given, starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& from, int least, int largest, parts of) {
      extern __shared__ __align__(16) unsigned char shared[];
      join_stream();
      for (int size = largest; size >= least; --size) {
        const int threads = 32 << size, team = threadIdx.x / threads;
        const i64 teams        = blockDim.x / threads;
        sort_word* const stage = reinterpret_cast<sort_word*>(shared + team_bytes(threads) * team);
        const int list         = group_sizes + size;
        const i64 count        = from.count(list, num_segments);
        for (i64 at = blockIdx.x + i64{gridDim.x} * team; at < count; at += gridDim.x * teams) {
          const listed its = find(starts, ends, num_segments, from, list, at, of);
          sort_in_team(given, its.keys(given, of), its.values(given, of), its.begin,
                       static_cast<int>(its.length), stage, threads, team);
        }
        __syncthreads();
      }
    }
  };

  static constexpr auto properties =
      properties_of(group_threads, team_threads, team_items, team_bytes(1), digit_threads, tile_items, passes,
                    sizeof(long_segment), sizeof(bits), has_values ? sizeof(value) : 0, rows_threads);
};
}  // namespace cupar
