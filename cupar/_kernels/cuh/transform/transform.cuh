// Transforms: out[i] = op(in[i]), or op(in1[i], in2[i]). A block takes a tile; a thread takes several vectors
// of items at once, so that enough bytes are on their way from memory. What is left of the last tile, and all
// items where an array is not aligned for vectors, goes one by one.
//
// Source: ours. That tiles get smaller where there are few items, so that all multiprocessors have some, is
// CUB's.
//
// Traits: op_t, d_out_t, inputs_t (inputs<d_in_t> or inputs<d_in1_t, d_in2_t>), and the policy: threads,
// bytes_in_flight, which a thread loads before it stores, and iterator_items, of a vector beside which an
// iterator takes items one by one.
#pragma once

#include "common/kernel.cuh"
#include "common/vectors.cuh"

namespace cupar {
// The inputs; a call passes the bytes of each.
template <class... Its>
struct inputs;

template <class It>
struct inputs<It> {
  static constexpr int bytes = array_bytes<It>;
  template <class Out>
  static constexpr bool are_arrays = is_array<It> && is_array<Out>;
  template <class Out>
  static constexpr int items = vector_items<It, Out>();
  It it;
  template <class F>
  __device__ __forceinline__ void pass_to(F f) const {
    f(it);
  }
};

template <class It1, class It2>
struct inputs<It1, It2> {
  static constexpr int bytes = array_bytes<It1> + array_bytes<It2>;
  template <class Out>
  static constexpr bool are_arrays = is_array<It1> && is_array<It2> && is_array<Out>;
  template <class Out>
  static constexpr int items = vector_items<It1, It2, Out>();
  It1 it1;
  It2 it2;
  template <class F>
  __device__ __forceinline__ void pass_to(F f) const {
    f(it1, it2);
  }
};

constexpr int within(int low, int value, int high) {
  return value < low ? low : value > high ? high : value;
}

// Vectors that a thread loads at once. The loads of iterators are unknown.
constexpr int rows_in_flight(int items, int bytes, int bytes_in_flight) {
  return bytes == 0 ? within(1, 8 / items, 4) : within(1, bytes_in_flight / (items * bytes), 8);
}

template <class T, int items, int rows>
struct buffer {
  vector<T, items> row[rows];
};

template <class Traits>
struct transform_kernels {
  using op_t                           = typename Traits::op_t;
  using d_out_t                        = typename Traits::d_out_t;
  using d_out_v                        = typename Traits::d_out_v;
  using inputs_t                       = typename Traits::inputs_t;
  static constexpr int threads         = Traits::threads;
  static constexpr int bytes_in_flight = Traits::bytes_in_flight;
  static constexpr int iterator_items  = Traits::iterator_items;

  static constexpr int most_items = inputs_t::template items<d_out_t>;
  static constexpr int items =
      inputs_t::template are_arrays<d_out_t> ? most_items : within(1, most_items, iterator_items);
  static constexpr int rows        = rows_in_flight(items, inputs_t::bytes, bytes_in_flight);
  static constexpr int single_rows = rows_in_flight(1, inputs_t::bytes, bytes_in_flight);

  // Transforms `count` vectors of items in one block.
  template <int items, int rows, bool aligned, class... Its>
  static __device__ __forceinline__ void transform(int count, const op_t& op, d_out_t out, Its... ins) {
#pragma unroll 1
    for (int first = threadIdx.x; first < count; first += rows * threads) {
      const auto go = [&](auto... loaded) {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const int i = first + r * threads;
          if (i < count) {
            (load<aligned>(loaded.row[r], ins + i * items), ...);
          }
        }
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const int i = first + r * threads;
          if (i < count) {
            vector<d_out_v, items> result;
#pragma unroll
            for (int j = 0; j < items; ++j) {
              result.item[j] = static_cast<d_out_v>(op(loaded.row[r].item[j]...));
            }
            store<aligned>(out + i * items, result);
          }
        }
      };
      go(buffer<item_t<Its>, items, rows>()...);
    }
  }

  struct cupar_transform : kernel<threads> {
    static __device__ __forceinline__ void run(inputs_t inputs, d_out_t out, i64 num_items, int tile,
                                               op_t op) {
      join_stream();
      const i64 begin = i64{blockIdx.x} * tile;
      const int count = static_cast<int>(num_items - begin < tile ? num_items - begin : tile);
      inputs.pass_to([&](auto... ins) {
        const bool aligned = is_aligned<items>(out) && (is_aligned<items>(ins) && ...);
        const int vectors  = aligned ? count / items : 0;
        transform<items, rows, true>(vectors, op, out + begin, ins + begin...);
        const i64 rest = begin + vectors * items;
        transform<1, single_rows, false>(count - vectors * items, op, out + rest, ins + rest...);
      });
    }
  };

  static constexpr auto properties = properties_of(threads, items, rows, inputs_t::bytes);
};
}  // namespace cupar
