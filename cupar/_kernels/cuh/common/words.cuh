// Values of any type as words of 32 bits, as which they are shuffled and published.
#pragma once

#include "common/types.cuh"

namespace cupar {
template <class T>
struct words {
  static constexpr int count = (sizeof(T) + 3) / 4;
  unsigned word[count];

  words() = default;
  __device__ __forceinline__ explicit words(const T& value) {
    word[count - 1] = 0;
    memcpy(word, &value, sizeof(T));
  }
  __device__ __forceinline__ T value() const {
    T result;
    memcpy(&result, word, sizeof(T));
    return result;
  }
};
}  // namespace cupar
