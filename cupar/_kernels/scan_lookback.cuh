// Scans of whatever can be read and written, by CUB's agent: a block for each tile, which looks back on the
// tiles before it. A single tile needs no states, and so no other kernel.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA
// NVR-2016-002; CUB's kernel_scan.cuh.
#include <cub/agent/agent_scan.cuh>
#include <cub/device/dispatch/tuning/tuning_scan.cuh>

#include "scan.cuh"

namespace cupar {
namespace scan = cub::detail::scan;

// CUB's own policy of looking back: its selector has another one, for arrays alone.
using input    = cub::CacheModifiedInputIterator<cub::LOAD_DEFAULT, d_in_v, u64>;
using selector = scan::policy_selector_from_types<input, d_out_t, accum_t, u64, op_t>;

constexpr cub::ScanLookbackPolicy policy = selector{}(cuda::compute_capability{target}).lookback;
constexpr int clear_threads              = 128;

using agent_policy = cub::detail::agent_scan_policy<
    0, 0, void, policy.load_algorithm, policy.load_modifier, policy.store_algorithm, policy.scan_algorithm,
    cub::detail::NoScaling<policy.threads_per_block, policy.items_per_thread>,
    cub::detail::delay_constructor_t<policy.lookback_delay.kind, policy.lookback_delay.delay,
                                     policy.lookback_delay.l2_write_latency>>;

using initial_t = cuda::std::conditional_t<has_init, accum_t, cub::NullType>;
using agent =
    scan::AgentScan<agent_policy, d_in_t, d_out_t, op_t, initial_t, u64, accum_t, is_inclusive, true>;
using states = cub::ScanTileState<accum_t>;

__device__ __forceinline__ states states_of(int tiles, void* memory) {
  states found;
  found.Init(tiles, memory, ~size_t{0});
  return found;
}

__device__ __forceinline__ cub::NullType initial(no_init) {
  return {};
}
__device__ __forceinline__ accum_t initial(const accum_t& init) {
  return init;
}
__device__ __forceinline__ accum_t initial(const accum_t* init) {
  return *init;
}
}  // namespace cupar

using namespace cupar;

// Clears the states of tiles.
extern "C" __global__ __launch_bounds__(clear_threads) void cupar_scan_clear(void* memory, int tiles) {
  join_stream();
  states_of(tiles, memory).InitializeStatus(tiles);
}

extern "C" __global__ __launch_bounds__(policy.threads_per_block,
                                        1) void cupar_scan_tiles(d_in_t d_in, d_out_t d_out, void* memory,
                                                                 int tiles, u64 num_items, op_t op,
                                                                 init_t init) {
  __shared__ typename agent::TempStorage storage;
  wait_for_stream();
  auto all = states_of(tiles, memory);
  agent(storage, d_in, d_out, op, initial(init)).ConsumeRange(num_items, all, 0);
}
