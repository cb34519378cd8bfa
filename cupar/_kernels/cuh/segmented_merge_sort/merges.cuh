// Stable sorts by a comparison, in shared memory: threads sort a few keys each; then teams of them
// merge, pair by pair.
//
// Source: S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW 2012.
//
// Not CUB's `StableOddEvenSort`, which compares what is behind the end, too, so that it must be filled with
// the greatest key first; and not its `MergePath` and `SerialMerge`, with which 7 of 10 kernels take more
// registers (levels of 16-byte structs: 120 in place of 96) and all compile 0.11 s longer.
//
// `tracks_places`: whether it is asked where keys come from.
#pragma once

#include "common/lists.cuh"

namespace cupar {
template <class key, class sort_op, bool tracks_places>
struct segment_merges {
  using place_t = unsigned short;

  // Keys of a thread. Each of its comparisons is separate code, inlined.
  static constexpr int merge_items = sizeof(key) <= 8 ? 8 : sizeof(key) <= 16 ? 4 : sizeof(key) <= 32 ? 2 : 1;

  // A gap behind the keys of each thread, so that all are in different banks.
  static __device__ __forceinline__ constexpr int padded(int position) {
    return merge_items > 2 ? position + position / merge_items : position;
  }

  static constexpr int merge_bytes(int threads) {
    return padded(threads * merge_items) *
           static_cast<int>(sizeof(key) + (tracks_places ? sizeof(place_t) : 0));
  }

  static constexpr int most_merge_threads() {
    int threads = 512;
    while (merge_bytes(threads) > (45 << 10) && threads > 32) {
      threads /= 2;
    }
    return threads;
  }

  static constexpr int merge_threads = most_merge_threads(), merge_tile = merge_threads * merge_items;

  // Resident blocks of a multiprocessor, which limits registers.
  static constexpr int merge_blocks = sizeof(key) <= 8 ? 1024 / merge_threads : 1;

  // Shared memory of a block.
  struct merge_stage {
    alignas(alignof(key) > 16 ? alignof(key) : 16) unsigned char keys[padded(merge_tile) * sizeof(key)];
    place_t places[tracks_places ? padded(merge_tile) : 1];
  };

  // A team's part of it.
  struct stage_of {
    key* keys;
    place_t* places;

    __device__ __forceinline__ stage_of(merge_stage& all, int first)
        : keys(reinterpret_cast<key*>(all.keys) + padded(first)),
          places(all.places + (tracks_places ? padded(first) : 0)) {}
    __device__ __forceinline__ key& operator[](int position) const { return keys[padded(position)]; }
    __device__ __forceinline__ int place(int position) const { return places[padded(position)]; }
  };

  // A thread's items: consecutive keys, fewer at the end of a segment, and their positions.
  struct share {
    key keys[merge_items];
    place_t places[tracks_places ? merge_items : 1];
    int count;

    __device__ __forceinline__ void put(const stage_of& stage, int first) const {
#pragma unroll
      for (int i = 0; i < merge_items; ++i) {
        if (i < count) {
          stage[first + i] = keys[i];
          if constexpr (tracks_places) {
            stage.places[padded(first + i)] = places[i];
          }
        }
      }
    }

    // Odd-even transposition, which leaves equal keys as they are.
    __device__ __forceinline__ void sort(const sort_op& op) {
#pragma unroll
      for (int round = 0; round < merge_items; ++round) {
#pragma unroll
        for (int i = round % 2; i + 1 < merge_items; i += 2) {
          if (i + 1 < count && op(keys[i + 1], keys[i])) {
            const key other = keys[i];
            keys[i]         = keys[i + 1];
            keys[i + 1]     = other;
            if constexpr (tracks_places) {
              const place_t place = places[i];
              places[i]           = places[i + 1];
              places[i + 1]       = place;
            }
          }
        }
      }
    }

    // Merges two runs, from `a` to `middle` and from there to `end`: takes `count` keys, of which `before`
    // are before. Their places are positions in the stage.
    __device__ __forceinline__ void merge(const stage_of& stage, int a, int middle, int end, int before,
                                          const sort_op& op) {
      int low = before > end - middle ? before - (end - middle) : 0, high = before;
      high = high < middle - a ? high : middle - a;
      while (low < high) {
        const int half = (low + high) / 2;
        if (op(stage[middle + before - 1 - half], stage[a + half])) {
          high = half;
        } else {
          low = half + 1;
        }
      }
      int b = middle + before - low;
      a += low;
      key a_key = stage[a < middle ? a : end - 1], b_key = stage[b < end ? b : end - 1];
#pragma unroll
      for (int i = 0; i < merge_items; ++i) {
        if (i < count) {
          const bool is_b = b < end && (a >= middle || op(b_key, a_key));
          keys[i]         = is_b ? b_key : a_key;
          if constexpr (tracks_places) {
            places[i] = static_cast<place_t>(is_b ? b : a);
          }
          if (is_b) {
            ++b;
            if (b < end) {
              b_key = stage[b];
            }
          } else {
            ++a;
            if (a < middle) {
              a_key = stage[a];
            }
          }
        }
      }
    }
  };

  // Sorts a team's stage: `length` keys, at most `threads * merge_items`. Afterwards they are in
  // the stage again, with their places to begin with. All threads of a warp take part, with teams of one
  // size.
  static __device__ __forceinline__ void sort_stage(const stage_of& stage, int length, int threads, int team,
                                                    const sort_op& op) {
    const int first = threadIdx.x % threads * merge_items;
    share own;
    own.count = length - first < merge_items ? (length > first ? length - first : 0) : merge_items;
    wait_for_team(threads, team);
#pragma unroll
    for (int i = 0; i < merge_items; ++i) {
      if (i < own.count) {
        own.keys[i] = stage[first + i];
        if constexpr (tracks_places) {
          own.places[i] = static_cast<place_t>(first + i);
        }
      }
    }
    own.sort(op);
    for (int run = merge_items; run < threads * merge_items; run *= 2) {
      wait_for_team(threads, team);
      own.put(stage, first);
      wait_for_team(threads, team);
      if (own.count > 0) {
        const int pair   = first & ~(2 * run - 1);
        const int middle = pair + run < length ? pair + run : length;
        const int end    = pair + 2 * run < length ? pair + 2 * run : length;
        own.merge(stage, pair, middle, end, first - pair, op);
        if constexpr (tracks_places) {
#pragma unroll
          for (int i = 0; i < merge_items; ++i) {
            if (i < own.count) {
              own.places[i] = static_cast<place_t>(stage.place(own.places[i]));
            }
          }
        }
      }
    }
    wait_for_team(threads, team);
    own.put(stage, first);
    wait_for_team(threads, team);
  }

  // Merge path: returns how many of the first keys of two sorted runs come from the first run. For a whole
  // warp.
  static __device__ __forceinline__ i64 split(const key* a, i64 a_count, const key* b, i64 b_count,
                                              i64 before, const sort_op& op) {
    const int lane = threadIdx.x % 32;
    i64 low = before > b_count ? before - b_count : 0, high = before < a_count ? before : a_count;
    while (low < high) {
      const i64 step = (high - low + 31) / 32, at = low + lane * step + step - 1;
      // From some lane on it is so for all.
      const unsigned found = __ballot_sync(~0u, at >= high || op(b[before - 1 - at], a[at]));
      const int lanes      = found != 0 ? __ffs(static_cast<int>(found)) - 1 : 32;
      const i64 next       = low + lanes * step;
      high                 = next + step - 1 < high ? next + step - 1 : high;
      low                  = next < high ? next : high;
    }
    return low;
  }
};
}  // namespace cupar
