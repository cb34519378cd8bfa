// Values of any type that one thread publishes to others.
#pragma once

#include "common/whole.cuh"
#include "common/words.cuh"

namespace cupar {
// A value in global memory that one thread publishes and others wait for. It is kept in parts that are
// written and read at once, each with a flag; so it needs no order of memory accesses. All flags must be 0
// before.
template <class T>
struct published {
  static constexpr bool is_narrow = words<T>::count == 1;
  static constexpr int parts      = is_narrow ? 1 : (words<T>::count + 2) / 3;
  using part                      = cuda::std::conditional_t<is_narrow, uint2, uint4>;

  part at[parts];

  __device__ __forceinline__ void publish(const T& value) {
    const words<T> given(value);
    for (int i = 0; i < parts; ++i) {
      if constexpr (is_narrow) {
        store_whole(&at[i], uint2{given.word[0], 1});
      } else {
        store_whole(&at[i], uint4{word(given, 3 * i), word(given, 3 * i + 1), word(given, 3 * i + 2), 1});
      }
    }
  }

  // What can be read of one at some time: whether it was published, and what. `arrive` comes before both:
  // loads of several copies are under way together if all of them are read before the first arrives.
  struct copy {
    part at[parts];

    __device__ __forceinline__ void arrive() const {
      for (const part& each : at) use_whole(each);
    }

    __device__ __forceinline__ bool is_there() const {
      bool all = true;
      for (const part& each : at) all &= flag(each) != 0;
      return all;
    }
    __device__ __forceinline__ T value() const {
      words<T> found;
      for (int i = 0; i < parts; ++i) {
        found.word[is_narrow ? i : 3 * i] = at[i].x;
        if constexpr (!is_narrow) {
          if (3 * i + 1 < words<T>::count) found.word[3 * i + 1] = at[i].y;
          if (3 * i + 2 < words<T>::count) found.word[3 * i + 2] = at[i].z;
        }
      }
      return found.value();
    }
  };
  __device__ __forceinline__ copy read() const {
    copy found;
    for (int i = 0; i < parts; ++i) found.at[i] = issue_load(&at[i]);
    return found;
  }

 private:
  static __device__ __forceinline__ unsigned flag(uint2 x) { return x.y; }
  static __device__ __forceinline__ unsigned flag(uint4 x) { return x.w; }
  static __device__ __forceinline__ unsigned word(const words<T>& given, int i) {
    return i < words<T>::count ? given.word[i] : 0;
  }
};
}  // namespace cupar
