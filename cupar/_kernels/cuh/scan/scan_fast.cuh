// Scans of arrays on GPUs with bulk copies (compute capability 9.0 and later): a small problem as
// `scan_quick.cuh` has it, a large one by CUB's lookahead kernel. A block on each multiprocessor takes tile
// after tile; its warps have a role each: to load, to reduce, to look ahead at what the tiles before reduce
// to, to scan and store.
//
// Source: CUB's kernel_scan_lookahead.cuh ("warpspeed"), which CUB itself takes from compute capability 10.0
// on.
//
// Traits: what `scan_quick.cuh` has; ahead_warps, ahead_items, ahead_states, its policy; 0 warps: what CUB's
// selector says. Where that says to look back (as for 12.0 before CUDA 13.4, whose compilers get the other
// kernel wrong), the properties say so, and all problems are done as `scan_quick.cuh` has it.
#pragma once

#include <cub/device/dispatch/kernels/kernel_scan.cuh>

#include "scan/scan_quick.cuh"

namespace cupar {
// An initial value that is read where it is needed.
template <class T>
struct on_device {
  const T* address;
  __device__ __forceinline__ operator T() const { return *address; }
};

template <class Traits>
struct scan_fast_kernels : scan_quick_kernels<Traits> {
  using d_in_v                       = typename Traits::d_in_v;
  using d_out_v                      = typename Traits::d_out_v;
  using op_t                         = typename Traits::op_t;
  using accum_t                      = typename Traits::accum_t;
  static constexpr bool is_inclusive = Traits::is_inclusive;

  using base      = scan_quick_kernels<Traits>;
  using init_t    = typename base::init_t;
  using initial_t = typename base::initial_t;
  using states    = typename base::states;
  using selector =
      cub::detail::scan::policy_selector_from_types<const d_in_v*, d_out_v*, accum_t, u64, known_op<op_t>>;
  static constexpr auto policy = base::policy;

  static constexpr cub::ScanPolicy ahead_policy = selector{}(cuda::compute_capability{target});
  static constexpr bool looks_ahead             = ahead_policy.algorithm == cub::ScanAlgorithm::lookahead;

  using tile_state                   = cub::detail::warpspeed::tile_state_t<accum_t>;
  static constexpr int ahead_threads = cub::detail::scan::num_total_threads(ahead_policy.lookahead);

  static constexpr int shared_of(int stages) {
    return cub::detail::scan::smem_for_stages(ahead_policy.lookahead, stages, sizeof(d_in_v), alignof(d_in_v),
                                              alignof(d_out_v), sizeof(accum_t), alignof(accum_t));
  }

  static __device__ __forceinline__ cub::NullType given(no_init) { return {}; }
  static __device__ __forceinline__ accum_t given(const accum_t& init) { return init; }
  static __device__ __forceinline__ on_device<accum_t> given(const accum_t* init) { return {init}; }

  using ahead_params = cub::detail::scan::scanKernelParams<d_in_v, d_out_v, accum_t>;

  template <class Selector>
  static __device__ __forceinline__ void look_ahead(const ahead_params& params, op_t op, init_t init) {
    if constexpr (looks_ahead) {
      cub::detail::scan::device_scan_lookahead_body<Selector, is_inclusive, initial_t, false>(params, op,
                                                                                              given(init));
    }
  }

  // Clears the states of tiles, and the counter by which blocks take them.
  struct cupar_scan_clear_ahead : kernel<base::clear_threads> {
    static __device__ __forceinline__ void run(tile_state* states, int tiles, cuda::std::uint32_t* counter) {
      join_stream();
      cub::detail::scan::device_scan_init_lookahead_body(states, tiles, counter);
    }
  };

  struct cupar_scan_ahead : kernel<ahead_threads, 1> {
    static __device__ __forceinline__ void run(const d_in_v* d_in, d_out_v* d_out, tile_state* states,
                                               cuda::std::uint32_t* counter, u64 num_items, int stages,
                                               op_t op, init_t init) {
      look_ahead<selector>({d_in, d_out, states, counter, num_items, stages}, op, init);
    }
  };

  static constexpr auto properties = properties_of(
      policy.threads_per_block, policy.items_per_thread, states::description_bytes_per_tile,
      states::payload_bytes_per_tile, target, 1, sizeof(d_in_v), ahead_threads,
      looks_ahead ? ahead_policy.lookahead.tile_size() : 0, sizeof(tile_state), shared_of(1), shared_of(2),
      shared_of(3), shared_of(4), shared_of(5), shared_of(6), shared_of(7), shared_of(8));
};
}  // namespace cupar
