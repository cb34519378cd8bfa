// Rows of tuples of arrays that a block holds in registers: read once, by vectors, and scanned twice.
//
// A warp has vectors beside each other, a few of each lane. It reduces them, and knows what comes before
// each; the block's warps exchange what they reduce to; then all scan their items from there, and store them.
// So a row waits for nothing but its own items: no other row's, and no other block.
//
// Source: ours. Reducing before scanning ("reduce, then scan"): D. Merrill and A. Grimshaw, "Parallel Scan
// for Stream Architectures", University of Virginia CS2009-14.
//
// Traits: d_in_t, d_out_t, d_out_v, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device;
// row_vectors, of a lane, or 0: there is no such kernel.
#pragma once

#include "common/combining.cuh"
#include "common/initial.cuh"
#include "common/kernel.cuh"
#include "common/vectors.cuh"

namespace cupar {
template <class Traits>
struct scan_of_block_rows {
  using d_in_t  = typename Traits::d_in_t;
  using d_out_t = typename Traits::d_out_t;
  using d_out_v = typename Traits::d_out_v;
  using op_t    = typename Traits::op_t;
  using accum_t = typename Traits::accum_t;

  static constexpr bool is_inclusive = Traits::is_inclusive;
  static constexpr bool has_init     = Traits::init_is_value || Traits::init_is_on_device;
  using init_t  = init_parameter<accum_t, Traits::init_is_value, Traits::init_is_on_device>;
  using value_t = combined<op_t, accum_t>;

  static constexpr int items    = vector_items<d_in_t, d_out_t>();  // of a vector
  static constexpr int vectors  = Traits::row_vectors;              // of a lane
  static constexpr int threads  = 512;                              // of a block at most
  static constexpr int resident = sizeof(value_t) <= 8 ? 2 : 1;     // so large blocks of a multiprocessor

  // Reads a vector's words, if need be one by one.
  static __device__ __forceinline__ void load(arrays_of_vector<d_in_t>& to, d_in_t from, bool is_wide) {
    if (is_wide) {
      load_words<items>(to, from);
    } else {
      to.hold(from, [](auto* p, auto* there) {
        auto* const here =
            const_cast<cuda::std::remove_const_t<cuda::std::remove_pointer_t<decltype(there)>>*>(there);
#pragma unroll
        for (int i = 0; i < items; ++i) {
          here[i] = p[i];
        }
      });
    }
  }

  static __device__ __forceinline__ void run(d_in_t in, d_out_t out, int length, const op_t& op,
                                             init_t given) {
    __shared__ value_t of_warps[threads / 32];
    join_stream();
    const i64 begin    = i64{blockIdx.x} * length;
    const d_in_t from  = in + begin;
    const d_out_t to   = out + begin;
    const bool is_wide = is_aligned<items>(from), is_wider = is_aligned<items>(to);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first = warp * vectors * 32, left = length / items - first;  // vectors of the row
    const auto at = [&](int v) {
      const int place = v * 32 + lane;  // beyond the end, the last one stands in
      return static_cast<i64>(first + (place < left ? place : left - 1)) * items;
    };

    arrays_of_vector<d_in_t> words[vectors];
    value_t before[vectors], all;
    if (left > 0) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        load(words[v], from + at(v), is_wide);
      }
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        const d_in_t there = of_words(words[v], from + at(v));
        value_t sum        = static_cast<accum_t>(there[0]);
#pragma unroll
        for (int i = 1; i < items; ++i) {
          sum = combine(sum, static_cast<value_t>(static_cast<accum_t>(there[i])), op);
        }
#pragma unroll
        for (int distance = 1; distance < 32; distance *= 2) {
          const value_t other = shuffle_up(sum, distance);
          if (lane >= distance) {
            sum = combine(other, sum, op);
          }
        }
        const value_t of_lanes = shuffle_up(sum, 1), of_vectors = shuffle(sum, 31);
        before[v] = v == 0 ? of_lanes : lane == 0 ? all : combine(all, of_lanes, op);
        all       = v == 0 ? of_vectors : combine(all, of_vectors, op);
      }
      if (lane == 0) {
        of_warps[warp] = all;
      }
    }
    __syncthreads();
    if (left <= 0) {
      return;
    }

    const value_t init = initial<value_t>(given);
    value_t of_row     = init;
    for (int w = 0; w < warp; ++w) {
      of_row = has_init || w > 0 ? combine(of_row, of_warps[w], op) : of_warps[w];
    }
    const bool has_row = has_init || warp > 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
      const d_in_t there = of_words(words[v], from + at(v));
      value_t value      = of_row;
      if (v > 0 || lane > 0) {
        value = has_row ? combine(of_row, before[v], op) : before[v];
      }
      vector<d_out_v, items> stored;
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const value_t item     = static_cast<accum_t>(there[i]);
        const value_t earlier  = value;
        const bool has_earlier = v > 0 || i > 0 || lane > 0 || has_row;
        value                  = has_earlier ? combine(value, item, op) : item;
        stored.item[i]         = static_cast<d_out_v>(static_cast<accum_t>(is_inclusive ? value : earlier));
      }
      if (v * 32 + lane < left) {
        if (is_wider) {
          store<true>(to + at(v), stored);
        } else {
          store<false>(to + at(v), stored);
        }
      }
    }
  }
};
}  // namespace cupar
