// Reductions by key.
//
// Traits: d_in_keys_t, d_out_unique_t, d_in_values_t, d_out_aggregates_t, d_out_num_runs_t, op_t,
// equality_op_t, and what runs.cuh has.
#pragma once

#include "runs/reduce_runs.cuh"

namespace cupar {
template <class Traits>
struct reduce_by_key_kernels : run_reduction<Traits> {
  using d_in_keys_t        = typename Traits::d_in_keys_t;
  using d_out_unique_t     = typename Traits::d_out_unique_t;
  using d_in_values_t      = typename Traits::d_in_values_t;
  using d_in_values_v      = typename Traits::d_in_values_v;
  using d_out_aggregates_t = typename Traits::d_out_aggregates_t;
  using d_out_aggregates_v = typename Traits::d_out_aggregates_v;
  using d_out_num_runs_t   = typename Traits::d_out_num_runs_t;
  using op_t               = typename Traits::op_t;
  using equality_op_t      = typename Traits::equality_op_t;

  using base = run_reduction<Traits>;
  using base::buffers;
  using base::threads;
  using base::tile_items;
  using key_t   = typename base::key_t;
  using accum_t = typename base::accum_t;
  using init_t  = typename base::init_t;

  using keys_t   = column<d_in_keys_t, key_t, threads, tile_items, 1>;
  using values_t = column<d_in_values_t, d_in_values_v, threads, tile_items>;

  struct cupar_reduce_by_key : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_keys_t in_keys, d_out_unique_t out_unique,
                                               d_in_values_t in_values, d_out_aggregates_t out_aggregates,
                                               d_out_num_runs_t num_runs, i64 num_items, op_t op,
                                               equality_op_t is_equal, init_t init, u64* storage) {
      join_stream();
      base::template reduce_runs<d_out_aggregates_v>(
          keys_t{in_keys, num_items}, values_t{in_values, num_items}, out_unique, out_aggregates, num_runs,
          num_items, is_equal, op, initial<accum_t>(init), storage);
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, buffers* base::template buffer_bytes<keys_t, values_t>,
                    sizeof(typename run_states<accum_t>::state_t));
};
}  // namespace cupar
