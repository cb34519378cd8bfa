// Vectors of items: what a thread loads or stores at once, if an array is aligned for that.
#pragma once

#include "common/types.cuh"

namespace cupar {
constexpr int widest = 16;  // bytes

template <class It>
using item_t = typename cuda::std::iterator_traits<It>::value_type;

template <class It>
constexpr int array_bytes = is_array<It> ? static_cast<int>(sizeof(item_t<It>)) : 0;  // of an item in memory

template <int bytes>
struct word {};
template <>
struct word<1> {
  using type = unsigned char;
};
template <>
struct word<2> {
  using type = unsigned short;
};
template <>
struct word<4> {
  using type = unsigned int;
};
template <>
struct word<8> {
  using type = uint2;
};
template <>
struct word<16> {
  using type = uint4;
};

template <int bytes>
constexpr bool is_word = bytes > 0 && bytes <= widest && (bytes & (bytes - 1)) == 0;

// Items of a vector: as many as make the widest word of the largest items.
template <class... Its>
constexpr int vector_items() {
  int largest = 0;
  ((largest = array_bytes<Its> > largest ? array_bytes<Its> : largest), ...);
  return largest > 0 && ((!is_array<Its> || is_word<array_bytes<Its>>) && ...) ? widest / largest : 1;
}

template <class T, int items>
struct alignas(widest) vector {
  T item[items];
  __device__ vector() {}
};

// Whether vectors may be loaded from there, or stored.
template <int items, class It>
__device__ __forceinline__ bool is_aligned(It it) {
  if constexpr (is_word<items * array_bytes<It>>) {
    return reinterpret_cast<u64>(it) % (items * sizeof(item_t<It>)) == 0;
  }
  return true;
}

template <bool aligned, class It, class T, int items>
__device__ __forceinline__ void load(vector<T, items>& to, It from) {
  if constexpr (aligned && is_word<items * array_bytes<It>>) {
    using word_t                        = typename word<items * sizeof(T)>::type;
    *reinterpret_cast<word_t*>(to.item) = *reinterpret_cast<const word_t*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      to.item[i] = from[i];
    }
  }
}

template <bool aligned, class It, class T, int items>
__device__ __forceinline__ void store(It to, const vector<T, items>& from) {
  if constexpr (aligned && is_word<items * array_bytes<It>>) {
    using word_t                   = typename word<items * sizeof(T)>::type;
    *reinterpret_cast<word_t*>(to) = *reinterpret_cast<const word_t*>(from.item);
  } else {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      to[i] = from.item[i];
    }
  }
}
}  // namespace cupar
