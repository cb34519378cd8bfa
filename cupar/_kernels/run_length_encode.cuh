// Run-length encodings: reductions by key of values that are all 1.
//
// Given: d_in_t, d_out_unique_t, d_out_counts_t, d_out_num_runs_t, equality_op_t, and what runs.cuh is.
#include <cuda/std/__functional/operations.h>

namespace cupar {
using aggregate_v = d_out_counts_v;
}

#include "reduce_runs.cuh"

namespace cupar {
using keys_t = column<d_in_t, key_t, 1>;

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
}  // namespace cupar

using namespace cupar;

extern "C" __global__ __launch_bounds__(threads, resident) void cupar_run_length_encode(
    d_in_t in, d_out_unique_t out_unique, d_out_counts_t out_counts, d_out_num_runs_t num_runs, i64 num_items,
    equality_op_t is_equal, u64* storage) {
  join_stream();
  reduce_runs(keys_t{in, num_items}, ones{}, out_unique, out_counts, num_runs, num_items, is_equal,
              cuda::std::plus<>{}, accum_t{}, storage);
}

CUPAR_FACTS(threads, tile_items, buffers* buffer_bytes<keys_t, ones>, sizeof(run_states<accum_t>::state_t))
