// Segmented sorts, with kernels by the sizes of segments.
//
// - A key becomes a word that sorts as an unsigned integer. With values, a word also holds where in its
//   segment the key was: so words differ, every way of sorting them is stable, and a value is moved once.
// - Short segments are sorted by 4 to 32 lanes, in registers, by a bitonic network. Each lane has
//   successive positions in it, so that most of its steps are within lanes. The words to begin with may be in
//   any order: that they are loaded side by side costs nothing.
// - Others are sorted by a team of warps, in shared memory.
// - Long ones are cut into tiles, for many blocks, and sorted digit by digit.
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
                Traits::digit_items> {
  using start_offsets_in_t           = typename Traits::start_offsets_in_t;
  using end_offsets_in_t             = typename Traits::end_offsets_in_t;
  static constexpr bool has_512      = Traits::has_512;
  static constexpr int group_threads = Traits::group_threads;
  static constexpr int team_items    = Traits::team_items;
  static constexpr int team_blocks   = Traits::team_blocks;
  static constexpr int digit_threads = Traits::digit_threads;
  static constexpr int rows_threads  = Traits::rows_threads;

  using base = long_sort<typename Traits::d_in_keys_v, typename Traits::d_in_values_v, Traits::is_descending,
                         typename Traits::start_offsets_in_t, typename Traits::end_offsets_in_t,
                         Traits::digit_threads, Traits::digit_items>;
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

  // Writes the lists: of segments for groups of lanes, for teams, and of long ones.
  struct cupar_segmented_sort_list : kernel<256> {
    static __device__ __forceinline__ void run(starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& to) {
      write_lists(starts, ends, num_segments, to, [](i64 length) {
        int list = (length > 16) + (length > 32) + (length > 64) + (length > 128) + (length > 256);
        list += has_512 && length > 512;
#pragma unroll
        for (int threads = 32; threads <= team_threads; threads *= 2) {
          list += length > threads * team_items;
        }
        return list;
      });
    }
  };

  // --- Short segments: 4 to 32 lanes have one, and sort it in registers, by a bitonic network ---

  template <int lanes, int items>
  static __device__ __forceinline__ void sort_groups(const arrays& given, starts_t starts, ends_t ends,
                                                     i64 num_segments, const lists& from, int list) {
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
      i64 begin    = 0;
      int length   = 0;
      if (at < count) {
        const i64 segment = from.segment(list, at);
        begin             = static_cast<i64>(starts[segment]);
        length            = static_cast<int>(static_cast<i64>(ends[segment]) - begin);
      }
      const bits* const in = given.keys_in + begin;
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
            given.values_out[begin + position] = given.values_in[begin + base::place_of(found)];
          }
        }
      }
      __syncwarp();
    }
  }

  // For a list of segments of at most `most` items.
  template <int most, int lanes, int list>
  struct groups : kernel<group_threads> {
    static __device__ __forceinline__ void run(arrays given, starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& from) {
      join_stream();
      sort_groups<lanes, most / lanes>(given, starts, ends, num_segments, from, list);
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

  // Merges pairs of sorted runs of so many words; each thread gets its share of the result.
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

  static __device__ __forceinline__ void sort_in_team(const arrays& given, i64 begin, int length,
                                                      sort_word* stage, int threads, int team) {
    const int thread = threadIdx.x % threads;
    sort_word words[team_items];
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int place = i * threads + thread;
      words[i] = place < length ? base::to_word(given.keys_in[begin + place], place) : base::last_word();
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
          values[place] = given.values_in[begin + place];
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
            given.values_out[begin + position] = given.values_in[begin + base::place_of(found)];
          }
        }
      }
    }
    wait_for_team(threads, team);
  }

  // For the lists of teams, from the largest team to the smallest: 32 << size threads.
  struct cupar_segmented_sort_teams : kernel<team_threads, team_blocks> {
    static __device__ __forceinline__ void run(arrays given, starts_t starts, ends_t ends, i64 num_segments,
                                               const lists& from, int least, int largest) {
      extern __shared__ __align__(16) unsigned char shared[];
      join_stream();
      for (int size = largest; size >= least; --size) {
        const int threads = 32 << size, team = threadIdx.x / threads;
        const i64 teams        = blockDim.x / threads;
        sort_word* const stage = reinterpret_cast<sort_word*>(shared + team_bytes(threads) * team);
        const int list         = group_sizes + size;
        const i64 count        = from.count(list, num_segments);
        for (i64 at = blockIdx.x + i64{gridDim.x} * team; at < count; at += gridDim.x * teams) {
          const i64 segment = from.segment(list, at);
          const i64 begin   = static_cast<i64>(starts[segment]);
          const i64 length  = static_cast<i64>(ends[segment]) - begin;
          sort_in_team(given, begin, static_cast<int>(length), stage, threads, team);
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
