// The arrays that an iterator goes through from item to item.
//
// A pointer is one. The whole of an iterator's nodes tells its own: `each_array(f)` calls `f(p, step)` for
// each pointer `p` to where the next item is, and `step` is 1, or -1 where items go down in memory; `arrays`
// is how many there are, `array_bytes` how many bytes of them an item takes, and `widest_array` how many of
// the one with the largest items; 0 if vectors of them cannot be loaded: items go down, or are no words, or
// lie some places further. The `step` of these is `shifted_step`, as some of their items are not there.
//
// Who copies some items of each array elsewhere, and lets the pointers of a copy of the iterator point there,
// reads the iterator's items there. Nodes need to know nothing of that.
#pragma once

#include "common/types.cuh"

namespace cupar {
// Iterators without this: some of their items may be anywhere.
template <class It>
struct arrays_of {
  static constexpr int count = 0, item_bytes = 0, widest = 0;
  template <class F>
  static __device__ __forceinline__ void each(It&, F&&) {}
};
template <class T>
struct arrays_of<T*> {
  static constexpr int count = 1, item_bytes = sizeof(T), widest = sizeof(T);
  template <class F>
  static __device__ __forceinline__ void each(T*& it, F&& f) {
    f(it, cuda::std::integral_constant<int, 1>{});
  }
};

// Of an array of which each item stands for one some places before it: where those that are there are.
template <int step, class T>
struct shifted_step {
  static constexpr int value = step;
  __device__ __forceinline__ constexpr operator int() const { return step; }
  const T *begin, *end;
};
template <class Step>
constexpr bool is_shifted = false;
template <int step, class T>
constexpr bool is_shifted<shifted_step<step, T>> = true;

// Gives `f` the pointer of such an array, whose iterator's state that is.
template <int step, class T, class F>
__device__ __forceinline__ void each_shifted(void* state, F&& f) {
  struct array {
    T* p;
    i64 index, count, by;
  }& its         = *static_cast<array*>(state);
  T* const first = its.p - its.index;
  T* p           = its.p + its.by;
  f(p, shifted_step<step, T>{first, first + its.count});
  its.p = p - its.by;
}

namespace detail {
template <class Node>
constexpr auto arrays_in(int) -> decltype(Node::arrays) {
  return Node::arrays;
}
template <class Node>
constexpr int arrays_in(...) {
  return 0;
}

template <class It, class Node, int arrays = arrays_in<Node>(0)>
struct arrays_of_node {
  static constexpr int count = arrays, item_bytes = Node::array_bytes, widest = Node::widest_array;
  template <class F>
  static __device__ __forceinline__ void each(It& it, F&& f) {
    it.node.each_array(f);
  }
};
template <class It, class Node>
struct arrays_of_node<It, Node, 0> {
  static constexpr int count = 0, item_bytes = 0, widest = 0;
  template <class F>
  static __device__ __forceinline__ void each(It&, F&&) {}
};
}  // namespace detail

template <class Node, class T>
struct arrays_of<input_iterator<Node, T>> : detail::arrays_of_node<input_iterator<Node, T>, Node> {};
template <class Node, class T>
struct arrays_of<output_iterator<Node, T>> : detail::arrays_of_node<output_iterator<Node, T>, Node> {};
}  // namespace cupar
