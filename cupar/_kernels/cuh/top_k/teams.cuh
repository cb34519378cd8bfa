// A team, a warp or a block, selects the first items in order among those in its registers.
//
// - It looks for a key that as many items as asked for, or a few more, do not come after: bit by bit, and
//   counts each time. Mostly the least items of small groups are enough for that, which are far fewer.
// - The items up to that key go to shared memory, as words that hold where each was. So words differ, and in
//   whatever order they arrive, their sort has one result. It is a bitonic one.
//
// Source: K. E. Batcher, "Sorting Networks and Their Applications", AFIPS 1968.
#pragma once

#include "common/vectors.cuh"
#include "common/warp.cuh"
#include "segmented_sort/words.cuh"

namespace cupar {
template <int size>
struct team {
  static constexpr int warps = size / 32;

  u32* sums;  // of a block: two for each warp, in shared memory
  int turn;

  __device__ __forceinline__ int thread() const { return threadIdx.x % size; }
  __device__ __forceinline__ void wait() const {
    if constexpr (warps == 1) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  // Sums of two calls that follow one another are in different places: so one barrier is enough.
  __device__ __forceinline__ u32 sum(u32 own) {
    u32 all = sum_of_lanes(own);
    if constexpr (warps > 1) {
      const int lane = threadIdx.x % 32;
      turn ^= 1;
      if (lane == 0) {
        sums[turn * warps + threadIdx.x / 32] = all;
      }
      __syncthreads();
      all = sum_of_lanes(lane < warps ? sums[turn * warps + lane] : 0);
    }
    return all;
  }
};

// `Base` has what sort_words has.
template <class Base>
struct top_teams : Base {
  using base = Base;
  using base::is_long_word;
  using typename base::bits;
  using typename base::order;
  using typename base::sort_word;

  // A key as an unsigned integer, so that the least comes first; -0.0 is as 0.0.
  using ranked                            = cuda::std::conditional_t<sizeof(bits) <= 4, u32, u64>;
  static constexpr int key_bits           = 8 * sizeof(bits);
  static constexpr ranked last_ranked     = static_cast<bits>(~u64{0});
  static constexpr int minima_of_a_thread = 4;
  static constexpr int place_bits_of_tile = 13;

  // A key, and the place of an item.
  using top_word = cuda::std::conditional_t<is_long_word, long_word, u64>;

  static __device__ __forceinline__ ranked to_ranked(bits given) { return base::compared(order::In(given)); }

  template <class Word = top_word>
  static __device__ __forceinline__ Word to_top_word(ranked key, u32 place) {
    if constexpr (is_long_word) {
      return {key, place};
    } else {
      return u64{key} << 32 | place;
    }
  }

  template <class Word>
  static __device__ __forceinline__ ranked ranked_of(const Word& given) {
    if constexpr (is_long_word) {
      return given.high;
    } else {
      return static_cast<ranked>(given >> 32);
    }
  }

  template <class Word>
  static __device__ __forceinline__ u32 top_place(const Word& given) {
    if constexpr (is_long_word) {
      return given.low;
    } else {
      return static_cast<u32>(given);
    }
  }

  // Where the items of a thread are among those of its team.
  template <int size, int together>
  static __device__ __forceinline__ u32 place_of_item(int thread, int i) {
    return static_cast<u32>((i / together * size + thread) * together + i % together);
  }

  // Loads the items of a team; the first `length` are valid, and the others compare as the last key.
  template <int size, int items, int together>
  static __device__ __forceinline__ u32 load_items(ranked (&keys)[items], const bits* from, int length,
                                                   int thread) {
    vector<bits, together> loaded[items / together];
    const bool is_vector = is_aligned<together>(from);
#pragma unroll
    for (int v = 0; v < items / together; ++v) {
      const int place = (v * size + thread) * together;
      if (is_vector && place + together <= length) {
        load<true>(loaded[v], from + place);
      } else {
#pragma unroll
        for (int i = 0; i < together; ++i) {
          loaded[v].item[i] = place + i < length ? from[place + i] : bits{};
        }
      }
    }
    u32 valid = 0;
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const bool is_there = static_cast<int>(place_of_item<size, together>(thread, i)) < length;
      keys[i]             = is_there ? to_ranked(loaded[i / together].item[i % together]) : last_ranked;
      valid |= static_cast<u32>(is_there) << i;
    }
    return valid;
  }

  template <class T, int items>
  static __device__ __forceinline__ u32 up_to(const T (&values)[items], T last) {
    u32 count = 0;
#pragma unroll
    for (int i = 0; i < items; ++i) {
      count += values[i] <= last;
    }
    return count;
  }

  // Returns a value that at least so many of the team's are up to: if there is one that exactly so many are
  // up to, such a one, else the least. Values have so many bits, or are larger and do not count.
  template <int size, class T, int items>
  static __device__ __forceinline__ T bisect(team<size>& its, const T (&values)[items], u32 wanted,
                                             int num_bits) {
    T found = 0;
#pragma unroll 1
    for (int bit = num_bits - 1; bit >= 0; --bit) {
      const T below   = found | ((T{1} << bit) - 1);
      const u32 count = its.sum(up_to(values, below));
      if (count == wanted) {
        return below;
      }
      if (count < wanted) {
        found |= T{1} << bit;
      }
    }
    return found;
  }

  // Sorts words in shared memory: a power of two of them.
  template <int size>
  static __device__ __forceinline__ void sort_stage(const team<size>& its, top_word* stage, u32 count) {
#pragma unroll 1
    for (u32 run = 2; run <= count; run *= 2) {
#pragma unroll 1
      for (u32 distance = run / 2; distance > 0; distance /= 2) {
        // The first step of a run compares it with its mirror image: so all runs ascend.
        const bool is_first = distance == run / 2;
#pragma unroll 1
        for (u32 i = its.thread(); i < count / 2; i += size) {
          const u32 low  = i & (distance - 1);
          const u32 a    = (i - low) * 2 + low;
          const u32 b    = is_first ? (i - low) * 2 + run - 1 - low : a + distance;
          top_word first = stage[a], second = stage[b];
          if (second < first) {
            stage[a] = second;
            stage[b] = first;
          }
        }
        its.wait();
      }
    }
  }

  // Puts those items onto the stage that come first, sorted: `wanted` of them if there are as many, or some
  // more, but no more than there is room for, which is a power of two.
  // Leaves out items behind `last`, which as many come before in any case. Returns how many there are.
  template <int size, int together, int items>
  static __device__ __forceinline__ u32 sort_first(team<size>& its, const ranked (&keys)[items], u32 valid,
                                                   ranked last, u32 wanted, u32 capacity, top_word* stage,
                                                   u32* cursor) {
    constexpr int groups = items > minima_of_a_thread ? minima_of_a_thread : 0;
    const int thread = its.thread(), lane = thread % 32;
    if (its.warps > 1 && thread == 0) {
      *cursor = 0;
    }
    // Invalid items are as the last key.
    const auto count_to_last = [&] {
      return its.sum(last == last_ranked ? static_cast<u32>(__popc(valid)) : up_to(keys, last));
    };
    u32 last_place = ~0u, count = count_to_last();
    if constexpr (groups > 0) {
      if (count > capacity && 2 * wanted <= size * groups) {
        ranked minima[groups];
#pragma unroll
        for (int i = 0; i < items; ++i) {
          constexpr int each = items / groups;
          minima[i / each]   = i % each == 0 || keys[i] < minima[i / each] ? keys[i] : minima[i / each];
        }
        const ranked found = bisect(its, minima, wanted, key_bits);
        last               = found < last ? found : last;
        count              = count_to_last();
      }
    }
    if (count > capacity) {
      last  = bisect(its, keys, wanted, key_bits);
      count = count_to_last();
    }
    if (count > capacity) {  // many are equal: of those, the first
      u32 before = 0, places[items];
#pragma unroll
      for (int i = 0; i < items; ++i) {
        before += keys[i] < last;
        const bool is_equal = keys[i] == last && (valid >> i & 1);
        places[i]           = is_equal ? place_of_item<size, together>(thread, i) : ~0u;
      }
      static_assert(size * items <= 1 << place_bits_of_tile);
      last_place = bisect(its, places, wanted - its.sum(before), place_bits_of_tile);
      count      = wanted;
    }
    u32 taken = 0;
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const bool is_taken =
          keys[i] < last || (keys[i] == last && place_of_item<size, together>(thread, i) <= last_place);
      taken |= static_cast<u32>(is_taken) << i;
    }
    taken &= valid;
    u32 at = 0;
    if constexpr (team<size>::warps > 1) {
      const u32 of_warp = sum_of_lanes(__popc(taken));
      if (lane == 0 && of_warp > 0) {
        at = atomicAdd(cursor, of_warp);
      }
      at = __shfl_sync(~0u, at, 0);
    }
    if (__any_sync(~0u, taken != 0)) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const bool is_taken = taken >> i & 1;
        const u32 votes     = __ballot_sync(~0u, is_taken);
        if (is_taken) {
          const u32 own = at + __popc(votes & ((1u << lane) - 1));
          stage[own]    = to_top_word(keys[i], place_of_item<size, together>(thread, i));
        }
        at += __popc(votes);
      }
    }
    u32 sorted = 1;
    while (sorted < count) {
      sorted *= 2;
    }
    for (u32 i = count + thread; i < sorted; i += size) {
      stage[i] = base::template last_word<top_word>();
    }
    its.wait();
    sort_stage(its, stage, sorted);
    return count;
  }
};
}  // namespace cupar
