// What all kernels of cupar share: values that C++ has no type for, and iterators made of cupar's nodes.
#pragma once

#include <cuda/std/cstdint>
#include <cuda/std/iterator>
#include <cuda/std/type_traits>

namespace cupar {
using i64 = long long;
using u64 = unsigned long long;

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

// An output iterator: what is assigned to its items goes to the node's `write(const void*)`.
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

// Integers that a family's plans are made of; cupar reads them from the linked code.
#define CUPAR_FACTS(...) extern "C" __device__ const int cupar_facts[] = {__VA_ARGS__};
