// Scans of any arrays and iterators, by CUB's agent: a block for each tile, which looks back on the
// tiles before it. A single tile needs no states, and so no other kernel.
//
// Source: D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA
// NVR-2016-002; CUB's kernel_scan.cuh.
//
// Traits: d_in_t, d_out_t, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device (neither: there is
// none).
#pragma once

#include <cuda/__functional/maximum.h>
#include <cuda/__functional/minimum.h>
#include <cub/agent/agent_scan.cuh>
#include <cub/device/dispatch/tuning/tuning_scan.cuh>

#include "common/initial.cuh"
#include "common/kernel.cuh"

namespace cupar {
// An operator as CUB's selector knows it.
template <class Op>
using known_op = cuda::std::conditional_t<
    cuda::std::is_same_v<Op, minimum>, cuda::minimum<>,
    cuda::std::conditional_t<cuda::std::is_same_v<Op, maximum>, cuda::maximum<>, Op>>;

template <class Traits>
struct scan_quick_kernels {
  using d_in_t                            = typename Traits::d_in_t;
  using d_in_v                            = typename Traits::d_in_v;
  using d_out_t                           = typename Traits::d_out_t;
  using op_t                              = typename Traits::op_t;
  using accum_t                           = typename Traits::accum_t;
  static constexpr bool is_inclusive      = Traits::is_inclusive;
  static constexpr bool init_is_value     = Traits::init_is_value;
  static constexpr bool init_is_on_device = Traits::init_is_on_device;

  static constexpr bool has_init = init_is_value || init_is_on_device;
  using init_t                   = init_parameter<accum_t, init_is_value, init_is_on_device>;

  // CUB's own policy of looking back: its selector has another one, for arrays alone.
  using input = cub::CacheModifiedInputIterator<cub::LOAD_DEFAULT, d_in_v, u64>;
  using selector =
      cub::detail::scan::policy_selector_from_types<input, d_out_t, accum_t, u64, known_op<op_t>>;

  static constexpr cub::ScanLookbackPolicy policy = selector{}(cuda::compute_capability{target}).lookback;
  static constexpr int clear_threads              = 128;

  using agent_policy = cub::detail::agent_scan_policy<
      0, 0, void, policy.load_algorithm, policy.load_modifier, policy.store_algorithm, policy.scan_algorithm,
      cub::detail::NoScaling<policy.threads_per_block, policy.items_per_thread>,
      cub::detail::delay_constructor_t<policy.lookback_delay.kind, policy.lookback_delay.delay,
                                       policy.lookback_delay.l2_write_latency>>;

  using initial_t = cuda::std::conditional_t<has_init, accum_t, cub::NullType>;
  using agent     = cub::detail::scan::AgentScan<agent_policy, d_in_t, d_out_t, op_t, initial_t, u64, accum_t,
                                                 is_inclusive, true>;
  using states    = cub::ScanTileState<accum_t>;

  static __device__ __forceinline__ states states_of(int tiles, void* memory) {
    states found;
    found.Init(tiles, memory, ~size_t{0});
    return found;
  }

  // Clears the states of tiles.
  struct cupar_scan_clear : kernel<clear_threads> {
    static __device__ __forceinline__ void run(void* memory, int tiles) {
      join_stream();
      states_of(tiles, memory).InitializeStatus(tiles);
    }
  };

  struct cupar_scan_tiles : kernel<policy.threads_per_block, 1> {
    static __device__ __forceinline__ void run(d_in_t d_in, d_out_t d_out, void* memory, int tiles,
                                               u64 num_items, op_t op, init_t init) {
      __shared__ typename agent::TempStorage storage;
      wait_for_stream();
      auto all = states_of(tiles, memory);
      agent(storage, d_in, d_out, op, initial<initial_t>(init)).ConsumeRange(num_items, all, 0);
    }
  };

  static constexpr auto properties =
      properties_of(policy.threads_per_block, policy.items_per_thread, states::description_bytes_per_tile,
                    states::payload_bytes_per_tile);
};
}  // namespace cupar
