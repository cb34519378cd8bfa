// What all kernels of cupar share: integers, and iterators made of cupar's nodes.
#pragma once

#include <cuda/std/cstdint>
#include <cuda/std/iterator>
#include <cuda/std/type_traits>

namespace cupar {
using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;

// The compute capability that is compiled for, as in 90; 0 where a host's compiler reads this.
#ifdef __CUDA_ARCH__
constexpr int target = __CUDA_ARCH__ / 10;
#else
constexpr int target = 0;
#endif

// Divisions of integers, of which C++ leaves some undefined, with the results that they have on the CPU: by 0
// both are 0, and the least number by -1 is itself, with the remainder 0.
struct divides {
  template <class T>
  __device__ __forceinline__ constexpr T operator()(T a, T b) const {
    if constexpr (cuda::std::is_signed_v<T>) {
      if (b == T(-1)) return static_cast<T>(0ull - static_cast<u64>(a));
    }
    return b == T(0) ? T(0) : static_cast<T>(a / b);
  }
};
struct modulus {
  template <class T>
  __device__ __forceinline__ constexpr T operator()(T a, T b) const {
    if constexpr (cuda::std::is_signed_v<T>) {
      if (b == T(-1)) return T(0);
    }
    return b == T(0) ? T(0) : static_cast<T>(a % b);
  }
};

// An input iterator: `Node` is a struct with `advance(n)` and `read(void*)`, whose bytes a call hands over.
template <class Node, class T>
struct input_iterator {
  using iterator_category = cuda::std::random_access_iterator_tag;
  using value_type        = T;
  using difference_type   = i64;
  using pointer           = const T*;
  using reference         = T;

  Node node;

  __device__ __forceinline__ T operator*() const {
    T item;
    node.read(&item);
    return item;
  }
  __device__ __forceinline__ T operator[](i64 n) const { return *(*this + n); }
  __device__ __forceinline__ input_iterator& operator+=(i64 n) {
    node.advance(n);
    return *this;
  }
  __device__ __forceinline__ input_iterator& operator-=(i64 n) { return *this += -n; }
  __device__ __forceinline__ input_iterator& operator++() { return *this += 1; }
  __device__ __forceinline__ input_iterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  __device__ __forceinline__ friend input_iterator operator+(input_iterator it, i64 n) { return it += n; }
  __device__ __forceinline__ friend input_iterator operator+(i64 n, input_iterator it) { return it += n; }
  __device__ __forceinline__ friend input_iterator operator-(input_iterator it, i64 n) { return it -= n; }
};

// An output iterator: values assigned to its items go to the node's `write(const void*)`.
template <class Node, class T>
struct output_iterator {
  struct item {
    Node node;
    __device__ __forceinline__ const item& operator=(T value) const {
      node.write(&value);
      return *this;
    }
  };
  using iterator_category = cuda::std::random_access_iterator_tag;
  using value_type        = T;
  using difference_type   = i64;
  using pointer           = T*;
  using reference         = item;

  Node node;

  __device__ __forceinline__ item operator*() const { return {node}; }
  __device__ __forceinline__ item operator[](i64 n) const { return *(*this + n); }
  __device__ __forceinline__ output_iterator& operator+=(i64 n) {
    node.advance(n);
    return *this;
  }
  __device__ __forceinline__ output_iterator& operator-=(i64 n) { return *this += -n; }
  __device__ __forceinline__ output_iterator& operator++() { return *this += 1; }
  __device__ __forceinline__ output_iterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  __device__ __forceinline__ friend output_iterator operator+(output_iterator it, i64 n) { return it += n; }
  __device__ __forceinline__ friend output_iterator operator+(i64 n, output_iterator it) { return it += n; }
  __device__ __forceinline__ friend output_iterator operator-(output_iterator it, i64 n) { return it -= n; }
};

template <class T>
inline constexpr bool is_array = cuda::std::is_pointer_v<T>;
}  // namespace cupar
