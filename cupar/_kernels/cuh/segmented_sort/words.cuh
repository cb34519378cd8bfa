// Words that keys are sorted as: unsigned integers, which hold where in its segment a key was if there are
// values; and networks of lanes that sort words in registers.
//
// Source: K. E. Batcher, "Sorting Networks and Their Applications", AFIPS 1968.
//
// `Value` is void where there are keys alone.
#pragma once

#include <cub/block/radix_rank_sort_operations.cuh>
#include <cub/util_type.cuh>

#include "common/types.cuh"

namespace cupar {
// A key of 64 bits, and where it was.
struct long_word {
  u64 high;
  u32 low;
};

__device__ __forceinline__ bool operator<(const long_word& a, const long_word& b) {
  return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low));  // without a branch
}

template <class Key, class Value, bool is_descending>
struct sort_words {
  static constexpr bool has_values = !cuda::std::is_void_v<Value>;
  using key                        = Key;
  using value                      = cuda::std::conditional_t<has_values, Value, char>;
  using bits                       = typename cub::Traits<key>::UnsignedBits;  // of a key, in memory
  using order                      = cub::RadixSortTwiddle<is_descending, key>;

  struct arrays {
    const bits* keys_in;
    bits* keys_out;
    const value* values_in;
    value* values_out;
  };

  using sort_word = cuda::std::conditional_t<
      has_values && sizeof(bits) == 8, long_word,
      cuda::std::conditional_t<sizeof(bits) == 8 || (has_values && sizeof(bits) == 4), u64, u32>>;
  static constexpr bool is_long_word = sizeof(sort_word) > 8;
  static constexpr int place_bits    = has_values && !is_long_word ? 4 * sizeof(sort_word) : 0;

  // Behind all others, where a segment has no more items.
  template <class Word = sort_word>
  static __device__ __forceinline__ Word last_word() {
    if constexpr (is_long_word) {
      return {~u64{0}, ~0u};
    } else {
      return static_cast<Word>(~u64{0});
    }
  }

  // -0.0 is as 0.0, if values tell the two apart.
  static __device__ __forceinline__ bits compared(bits ordered) {
    return has_values ? cub::BaseDigitExtractor<key>::ProcessFloatMinusZero(ordered) : ordered;
  }

  template <class Word = sort_word>
  static __device__ __forceinline__ Word to_word(bits given, int place) {
    const bits ordered = order::In(given);
    if constexpr (has_values) {
      // The lowest bit tells which zero it was.
      const bits shown = compared(ordered);
      const u32 low    = u32(place) << 1 | u32(shown != ordered);
      if constexpr (is_long_word) {
        return {shown, low};
      } else {
        return static_cast<Word>(shown) << place_bits | low;
      }
    } else {
      return ordered;
    }
  }

  template <class Word>
  static __device__ __forceinline__ bits to_key(const Word& given) {
    if constexpr (is_long_word) {
      return order::Out(static_cast<bits>(given.high - (given.low & 1)));
    } else if constexpr (has_values) {
      return order::Out(static_cast<bits>((given >> place_bits) - (given & 1)));
    } else {
      return order::Out(static_cast<bits>(given));
    }
  }

  template <class Word>
  static __device__ __forceinline__ int place_of(const Word& given) {
    if constexpr (is_long_word) {
      return static_cast<int>(given.low >> 1);
    } else {
      constexpr auto places = (u64{1} << place_bits) - 1;
      return static_cast<int>((given & places) >> 1);
    }
  }

  template <class Word>
  static __device__ __forceinline__ Word shuffle_xor(const Word& given, int mask) {
    if constexpr (is_long_word) {
      return {__shfl_xor_sync(~0u, given.high, mask), __shfl_xor_sync(~0u, given.low, mask)};
    } else {
      return __shfl_xor_sync(~0u, given, mask);
    }
  }

  template <class Word>
  static __device__ __forceinline__ Word either(bool is_first, const Word& first, const Word& second) {
    if constexpr (is_long_word) {
      return {is_first ? first.high : second.high, is_first ? first.low : second.low};
    } else {
      return is_first ? first : second;
    }
  }

  // Puts the lesser of two words first.
  template <class Word>
  static __device__ __forceinline__ void exchange(Word& a, Word& b) {
    if constexpr (cuda::std::is_same_v<Word, u64>) {
      // The halves separately: for all 64 bits, ptxas makes a minimum and a maximum, and compares twice.
      u32 low, high, b_low, b_high;
      asm("{\n"
          "  .reg .pred is_less;\n"
          "  .reg .b32 a_low, a_high, b_low, b_high;\n"
          "  setp.lt.u64 is_less, %5, %4;\n"
          "  mov.b64 {a_low, a_high}, %4;\n"
          "  mov.b64 {b_low, b_high}, %5;\n"
          "  selp.b32 %0, b_low, a_low, is_less;\n"
          "  selp.b32 %1, b_high, a_high, is_less;\n"
          "  selp.b32 %2, a_low, b_low, is_less;\n"
          "  selp.b32 %3, a_high, b_high, is_less;\n"
          "}"
          : "=r"(low), "=r"(high), "=r"(b_low), "=r"(b_high)
          : "l"(a), "l"(b));
      a = u64{high} << 32 | low;
      b = u64{b_high} << 32 | b_low;
    } else {
      const bool is_less = b < a;
      const Word c       = either(is_less, b, a);
      b                  = either(is_less, a, b);
      a                  = c;
    }
  }

  // Returns the lesser of two words, or the greater.
  static __device__ __forceinline__ sort_word kept(const sort_word& own, const sort_word& other,
                                                   bool is_greater) {
    return either((other < own) == is_greater, own, other);
  }

  // Sorts bitonic runs of a lane's words, of twice the distance.
  template <int items>
  static __device__ __forceinline__ void sort_own(sort_word (&words)[items], int distance) {
#pragma unroll
    for (; distance > 0; distance /= 2) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        if ((i & distance) == 0) {
          exchange(words[i], words[i + distance]);
        }
      }
    }
  }

  // Sorts the words of groups of lanes: lane l of a group gets the words at l * items and behind.
  template <int lanes, int items>
  static __device__ __forceinline__ void sort_lanes(sort_word (&words)[items]) {
    const int lane = threadIdx.x % lanes;
    // Of two sorted runs, the second is met from its end: then what is less is in the first.
#pragma unroll
    for (int size = 2; size <= items; size *= 2) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        if ((i & (size / 2)) == 0) {
          exchange(words[i], words[i ^ (size - 1)]);
        }
      }
      sort_own(words, size / 4);
    }
    // Large loops are not unrolled, for the instructions to stay in their cache.
    constexpr int unrolled = items <= 8 && !is_long_word ? 8 : 1;
#pragma unroll unrolled
    for (int among = 2; among <= lanes; among *= 2) {
      const bool is_upper = lane & (among / 2);
#pragma unroll
      for (int i = 0; i < items / 2; ++i) {
        const sort_word other = shuffle_xor(words[items - 1 - i], among - 1);
        const sort_word met   = shuffle_xor(words[i], among - 1);
        words[i]              = kept(words[i], other, is_upper);
        words[items - 1 - i]  = kept(words[items - 1 - i], met, is_upper);
      }
#pragma unroll unrolled
      for (int mask = among / 4; mask > 0; mask /= 2) {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          words[i] = kept(words[i], shuffle_xor(words[i], mask), lane & mask);
        }
      }
      sort_own(words, items / 2);
    }
  }
};
}  // namespace cupar
