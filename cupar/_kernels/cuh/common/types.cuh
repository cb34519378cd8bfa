// What all kernels of cupar share: integers, and iterators made of cupar's nodes.
//
// Of CCCL each file includes single headers: `cuda/std/type_traits` alone takes NVRTC 0.35 s, as long as all
// else that it does for the kernels of a reduction.
#pragma once

#include <cuda/std/__type_traits/conditional.h>
#include <cuda/std/__type_traits/integral_constant.h>
#include <cuda/std/__type_traits/is_floating_point.h>
#include <cuda/std/__type_traits/is_integral.h>
#include <cuda/std/__type_traits/is_pointer.h>
#include <cuda/std/__type_traits/is_same.h>
#include <cuda/std/__type_traits/is_signed.h>
#include <cuda/std/__type_traits/is_void.h>
#include <cuda/std/__type_traits/remove_cv.h>
#include <cuda/std/__type_traits/remove_pointer.h>
#include <cuda/std/__type_traits/remove_reference.h>

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

// The exponent of the highest power of two up to a number.
constexpr int log2_of(u64 number) {
  int log = 0;
  while (number >>= 1) ++log;
  return log;
}

// Functors of kinds that C++ and CCCL have in another way, or in headers that take long to read.
struct identity {
  template <class T>
  __device__ __forceinline__ constexpr T operator()(T a) const {
    return a;
  }
};

// The number, where one of two floats is not one.
struct minimum {
  template <class T>
  __device__ __forceinline__ constexpr T operator()(const T& a, const T& b) const {
    if constexpr (cuda::std::is_floating_point_v<T>) {
      return fmin(a, b);
    } else if constexpr (cuda::std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      return __hmin(a, b);
    }
  }
};
struct maximum {
  template <class T>
  __device__ __forceinline__ constexpr T operator()(const T& a, const T& b) const {
    if constexpr (cuda::std::is_floating_point_v<T>) {
      return fmax(a, b);
    } else if constexpr (cuda::std::is_integral_v<T>) {
      return a < b ? b : a;
    } else {
      return __hmax(a, b);
    }
  }
};

// The smaller of two numbers, where `min` of CUDA is not constant, or takes other instructions.
template <class T>
__device__ __forceinline__ constexpr const T& least(const T& a, const T& b) {
  return b < a ? b : a;
}

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

// What cupar's iterators say of themselves; CUB's agents ask for their values' type alone.
struct random_access {};

// An input iterator: `Node` is a struct with `advance(n)` and `read(void*)`, whose bytes a call hands over.
template <class Node, class T>
struct input_iterator {
  using iterator_category = random_access;
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
  using iterator_category = random_access;
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

// The type of an array's or iterator's items.
template <class It>
struct item_of {
  using type = typename It::value_type;
};
template <class T>
struct item_of<T*> {
  using type = cuda::std::remove_cv_t<T>;
};
template <class It>
using item_t = typename item_of<It>::type;
}  // namespace cupar
