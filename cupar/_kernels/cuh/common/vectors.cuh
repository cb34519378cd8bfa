// Vectors of items, which a thread loads or stores at once if the array is aligned.
#pragma once

#include "common/arrays.cuh"

namespace cupar {
constexpr int widest = 16;  // bytes

// Bytes of an item in arrays; 0 if they are not loaded as vectors.
template <class It>
constexpr int array_bytes = arrays_of<It>::widest > 0 ? arrays_of<It>::item_bytes : 0;

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

// Items of a vector: as many as make the widest word of the largest items in arrays.
template <class... Its>
constexpr int vector_items() {
  int largest = 0;
  ((largest = arrays_of<Its>::widest > largest ? arrays_of<Its>::widest : largest), ...);
  const bool are_words = ((arrays_of<Its>::widest == 0 || is_word<arrays_of<Its>::widest>) && ...);
  return largest > 0 && are_words ? widest / largest : 1;
}

// Whether vectors of `items` items are made of words of each array.
template <int items, class It>
constexpr bool has_words = is_word<items * arrays_of<It>::widest>;

template <class T, int items>
struct alignas(widest) vector {
  T item[items];
  __device__ vector() {}
};

// Whether vectors may be loaded from there, or stored.
template <int items, class It>
__device__ __forceinline__ bool is_aligned(It it) {
  bool all = true;
  if constexpr (has_words<items, It>) {
    arrays_of<It>::each(it,
                        [&](auto* p, auto) { all &= reinterpret_cast<u64>(p) % (items * sizeof(*p)) == 0; });
  }
  return all;
}

// How many items after the start of a vector that is: of the first array, if there are several.
template <int items, class It>
__device__ __forceinline__ int beyond_vector(It it) {
  int beyond = -1;
  arrays_of<It>::each(it, [&](auto* p, auto) {
    if (beyond < 0) {
      beyond = static_cast<int>(reinterpret_cast<u64>(p) % (items * sizeof(*p)) / sizeof(*p));
    }
  });
  return beyond < 0 ? 0 : beyond;
}

// Some items of each array of an iterator, in registers.
template <class It>
struct arrays_of_vector {
  uint4 word[arrays_of<It>::count];

  // Gives the pointers of an iterator, and what they point to here, to `f(p, there)`; they point here then.
  template <class F>
  __device__ __forceinline__ void hold(It& it, F f) {
    int i = 0;
    arrays_of<It>::each(it, [&](auto*& p, auto) {
      const auto there = reinterpret_cast<cuda::std::remove_reference_t<decltype(p)>>(&word[i++]);
      f(p, there);
      p = there;
    });
  }
};

template <int items, class T>
__device__ __forceinline__ void copy_word(T* to, const T* from) {
  using word_t = typename word<items * sizeof(T)>::type;
  *reinterpret_cast<word_t*>(const_cast<cuda::std::remove_cv_t<T>*>(to)) =
      *reinterpret_cast<const word_t*>(from);
}

template <bool aligned, class It, class T, int items>
__device__ __forceinline__ void load(vector<T, items>& to, It from) {
  if constexpr (aligned && has_words<items, It> && is_array<It>) {
    copy_word<items>(to.item, from);
  } else if constexpr (aligned && has_words<items, It>) {
    arrays_of_vector<It> held;
    held.hold(from, [](auto* p, auto* there) { copy_word<items>(there, p); });
    load<false>(to, from);
  } else {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      to.item[i] = from[i];
    }
  }
}

// Whether items take more registers than the words that they are made of take: tuples such as an item with
// its index. Kernels then keep the words that they load, and make the items one by one.
template <class V, int items, class It>
constexpr bool is_made_of_words = !is_array<It> && has_words<items, It> && (sizeof(V) > array_bytes<It>);

// Loads the words of some items, which are made one by one later: what a tuple of arrays' items takes in
// registers, each of them takes for a short time.
template <int items, class It>
__device__ __forceinline__ void load_words(arrays_of_vector<It>& to, It from) {
  to.hold(from, [](auto* p, auto* there) { copy_word<items>(there, p); });
}
// The iterator at the first of those items, which reads them from the words.
template <class It>
__device__ __forceinline__ It of_words(arrays_of_vector<It>& words, It from) {
  words.hold(from, [](auto*, auto*) {});
  return from;
}

// The words of a thread's vectors of several rows. All of them are on their way at once, which compilers
// break up where loads and items are in one turn of a loop. `at(r)` is the first item of a row's vector.
template <int items, int rows, class It>
struct rows_of_words {
  arrays_of_vector<It> words[rows];

  template <class At>
  __device__ __forceinline__ void load(At at) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      load_words<items>(words[r], at(r));
    }
  }

  // Combines the items, one by one.
  template <class V, class Accum, class At, class Op>
  __device__ __forceinline__ V combine(At at, const Op& op) {
    V all;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const It there = of_words(words[r], at(r));
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const V item = static_cast<Accum>(there[i]);
        all          = r + i == 0 ? item : static_cast<V>(op(all, item));
      }
    }
    return all;
  }
};

template <bool aligned, class It, class T, int items>
__device__ __forceinline__ void store(It to, const vector<T, items>& from) {
  if constexpr (aligned && has_words<items, It> && is_array<It>) {
    copy_word<items>(to, from.item);
  } else if constexpr (aligned && has_words<items, It>) {
    arrays_of_vector<It> held;
    It here = to;
    held.hold(here, [](auto*, auto*) {});
    store<false>(here, from);
    held.hold(to, [](auto* p, auto* there) { copy_word<items>(p, there); });
  } else {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      to[i] = from.item[i];
    }
  }
}
}  // namespace cupar
