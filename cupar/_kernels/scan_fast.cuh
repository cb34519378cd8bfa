// Scans of arrays on GPUs with bulk copies (compute capability 9.0 and later): a small problem as
// `scan_quick.cuh` has it, a large one by CUB's lookahead kernel. A block on each multiprocessor takes tile
// after tile; its warps have a role each: to load, to reduce, to look ahead at what the tiles before reduce
// to, to scan and store.
//
// Source: CUB's kernel_scan_lookahead.cuh ("warpspeed"), which CUB itself takes from compute capability 10.0
// on.
//
// Given: ahead_warps, ahead_items, ahead_states, its policy; 0 warps: what CUB's selector says. Where that
// says to look back (as for 12.0 before CUDA 13.4, whose compilers get the other kernel wrong), the facts say
// so, and all problems are done as `scan_quick.cuh` has it.
#include <cub/device/dispatch/kernels/kernel_scan.cuh>

#include "scan_lookback.cuh"

namespace cupar {
struct ahead_selector {
  __host__ __device__ constexpr auto operator()(cuda::compute_capability cc) const -> cub::ScanPolicy {
    if constexpr (ahead_warps == 0) {
      return scan::policy_selector_from_types<const d_in_v*, d_out_v*, accum_t, u64, op_t>{}(cc);
    } else {
      return {cub::ScanAlgorithm::lookahead, cub::ScanLookbackPolicy{},
              cub::ScanLookaheadPolicy{ahead_warps, ahead_items, ahead_states, 2, -1}};
    }
  }
};
constexpr cub::ScanPolicy ahead_policy = ahead_selector{}(cuda::compute_capability{target});
constexpr bool looks_ahead             = ahead_policy.algorithm == cub::ScanAlgorithm::lookahead;

using tile_state            = cub::detail::warpspeed::tile_state_t<accum_t>;
constexpr int ahead_threads = scan::num_total_threads(ahead_policy.lookahead);

constexpr int shared_of(int stages) {
  return scan::smem_for_stages(ahead_policy.lookahead, stages, sizeof(d_in_v), alignof(d_in_v),
                               alignof(d_out_v), sizeof(accum_t), alignof(accum_t));
}

// An initial value that is read where it is needed.
struct on_device {
  const accum_t* address;
  __device__ __forceinline__ operator accum_t() const { return *address; }
};
__device__ __forceinline__ cub::NullType given(no_init) {
  return {};
}
__device__ __forceinline__ accum_t given(const accum_t& init) {
  return init;
}
__device__ __forceinline__ on_device given(const accum_t* init) {
  return {init};
}

using ahead_params = scan::scanKernelParams<d_in_v, d_out_v, accum_t>;

template <class Selector>
__device__ __forceinline__ void look_ahead(const ahead_params& params, op_t op, init_t init) {
  if constexpr (looks_ahead) {
    scan::device_scan_lookahead_body<Selector, is_inclusive, initial_t, false>(params, op, given(init));
  }
}
}  // namespace cupar

// Clears the states of tiles, and the counter by which blocks take them.
extern "C" __global__ __launch_bounds__(clear_threads) void cupar_scan_clear_ahead(
    tile_state* states, int tiles, cuda::std::uint32_t* counter) {
  join_stream();
  scan::device_scan_init_lookahead_body(states, tiles, counter);
}

extern "C" __global__ __launch_bounds__(ahead_threads,
                                        1) void cupar_scan_ahead(const d_in_v* d_in, d_out_v* d_out,
                                                                 tile_state* states,
                                                                 cuda::std::uint32_t* counter, u64 num_items,
                                                                 int stages, op_t op, init_t init) {
  look_ahead<ahead_selector>({d_in, d_out, states, counter, num_items, stages}, op, init);
}

CUPAR_FACTS(policy.threads_per_block, policy.items_per_thread, states::description_bytes_per_tile,
            states::payload_bytes_per_tile, target, sizeof(d_in_v), ahead_threads,
            looks_ahead ? ahead_policy.lookahead.tile_size() : 0, sizeof(tile_state), shared_of(1),
            shared_of(2), shared_of(3), shared_of(4), shared_of(5), shared_of(6), shared_of(7), shared_of(8))
