// Reductions by key.
//
// Given: d_in_keys_t, d_out_unique_t, d_in_values_t, d_out_aggregates_t, d_out_num_runs_t, op_t,
// equality_op_t, and what runs.cuh is.
namespace cupar {
using aggregate_v = d_out_aggregates_v;
}

#include "reduce_runs.cuh"

namespace cupar {
using keys_t   = column<d_in_keys_t, key_t, 1>;
using values_t = column<d_in_values_t, d_in_values_v>;
}  // namespace cupar

using namespace cupar;

extern "C" __global__ __launch_bounds__(threads, resident) void cupar_reduce_by_key(
    d_in_keys_t in_keys, d_out_unique_t out_unique, d_in_values_t in_values,
    d_out_aggregates_t out_aggregates, d_out_num_runs_t num_runs, i64 num_items, op_t op,
    equality_op_t is_equal, init_t init, u64* storage) {
  join_stream();
  reduce_runs(keys_t{in_keys, num_items}, values_t{in_values, num_items}, out_unique, out_aggregates,
              num_runs, num_items, is_equal, op, initial(init), storage);
}

CUPAR_FACTS(threads, tile_items, buffers* buffer_bytes<keys_t, values_t>,
            sizeof(run_states<accum_t>::state_t))
