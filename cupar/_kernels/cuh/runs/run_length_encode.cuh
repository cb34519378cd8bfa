// Run-length encodings: reductions by key of values that are all 1.
//
// Traits: d_in_t, d_out_unique_t, d_out_counts_t, d_out_num_runs_t, equality_op_t, and what runs.cuh has.
#pragma once

#include <cuda/std/__functional/operations.h>

#include "runs/reduce_runs.cuh"

namespace cupar {
template <class Traits>
struct run_length_encode_kernels : run_reduction<Traits> {
  using d_in_t           = typename Traits::d_in_t;
  using d_out_unique_t   = typename Traits::d_out_unique_t;
  using d_out_counts_t   = typename Traits::d_out_counts_t;
  using d_out_counts_v   = typename Traits::d_out_counts_v;
  using d_out_num_runs_t = typename Traits::d_out_num_runs_t;
  using equality_op_t    = typename Traits::equality_op_t;

  using base = run_reduction<Traits>;
  using base::buffers;
  using base::threads;
  using base::tile_items;
  using key_t   = typename base::key_t;
  using accum_t = typename base::accum_t;
  using local_t = typename base::local_t;

  using keys_t = column<d_in_t, key_t, threads, tile_items, 1>;

  // Values that are all 1.
  struct ones {
    static constexpr bool is_bulk = false;
    static constexpr int bytes    = 0;

    __device__ __forceinline__ ones items(const char*) const { return {}; }
    __device__ __forceinline__ ones operator+(int) const { return {}; }
    __device__ __forceinline__ local_t operator[](int) const { return 1; }
    __device__ __forceinline__ unsigned bulk_bytes(i64, int) const { return 0; }
    __device__ __forceinline__ void begin(char*, i64, int, barrier&) const {}
    __device__ __forceinline__ bool complete(char*, i64, int) const { return false; }
  };

  struct cupar_run_length_encode : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_unique_t out_unique,
                                               d_out_counts_t out_counts, d_out_num_runs_t num_runs,
                                               i64 num_items, equality_op_t is_equal, u64* storage) {
      join_stream();
      base::template reduce_runs<d_out_counts_v>(keys_t{in, num_items}, ones{}, out_unique, out_counts,
                                                 num_runs, num_items, is_equal, cuda::std::plus<>{},
                                                 accum_t{}, storage);
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, buffers* base::template buffer_bytes<keys_t, ones>,
                    sizeof(typename run_states<accum_t>::state_t));
};
}  // namespace cupar
