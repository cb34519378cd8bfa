// Reduction by CUB's agent: a grid that shares the tiles evenly, each block leaving a partial result, and one
// block that combines those. What fits into one tile, of a usual block or of a large one, takes one kernel.
//
// Source: D. Merrill, "CUB", https://nvidia.github.io/cccl/cub, kernel_reduce.cuh. The large block is ours: one
// kernel that reads 64 kB is quicker than two that read it in parallel.
//
// Given: d_in_t, d_out_t, op_t, accum_t, has_init, is_stable (false: blocks add their sums in any order).
#include <cub/agent/agent_reduce.cuh>
#include <cub/device/dispatch/kernels/kernel_reduce.cuh>
#include <cub/device/dispatch/tuning/tuning_reduce.cuh>

namespace cupar {
namespace reduce = cub::detail::reduce;
namespace cc     = cuda::execution::determinism;

// What an initial value is to the kernels; without one they take it, and leave it alone.
using init_t = cuda::std::conditional_t<has_init, accum_t, reduce::no_init_t>;

constexpr auto order = is_stable ? cc::__determinism_t::__run_to_run : cc::__determinism_t::__not_guaranteed;
constexpr cub::ReducePolicy policy =
  reduce::policy_selector_from_types<accum_t, u64, op_t, order>{}(cuda::compute_capability{target});
constexpr int large_threads = 1024;
constexpr int large_items   = cuda::std::max(1, 64 / static_cast<int>(sizeof(accum_t)));

template <int threads, int items, cub::BlockReduceAlgorithm algorithm>
using agent_policy =
  cub::detail::agent_reduce_policy<0, 0, accum_t, policy.multi_tile.vec_size, algorithm, policy.multi_tile.load_modifier,
                                   cub::detail::NoScaling<threads, items, accum_t>>;

// Operators get two values of the accumulator's type: those of CCCL's own are not defined for two others.
struct accumulated {
  template <class T>
  __device__ __forceinline__ accum_t operator()(const T& item) const { return static_cast<accum_t>(item); }
};

template <class Policy, class Input, class Offset>
using agent = reduce::AgentReduce<Policy, Input, Offset, op_t, accum_t, accumulated>;

using tile_policy  = agent_policy<policy.multi_tile.threads_per_block, policy.multi_tile.items_per_thread,
                                  policy.multi_tile.reduce_algorithm>;
using one_policy   = agent_policy<policy.single_tile.threads_per_block, policy.single_tile.items_per_thread,
                                  policy.single_tile.reduce_algorithm>;
using large_policy = agent_policy<large_threads, large_items, policy.single_tile.reduce_algorithm>;

// Reduces all items in one block.
template <class Policy, class Input, class Offset>
__device__ __forceinline__ void reduce_in_block(Input in, d_out_t out, Offset num_items, op_t op, init_t init) {
  using agent_t = agent<Policy, Input, Offset>;
  __shared__ typename agent_t::TempStorage storage;
  if (num_items == 0) {
    if (threadIdx.x == 0) {
      reduce::handle_empty_problem(out, init);
    }
    return;
  }
  const accum_t aggregate = agent_t(storage, in, op, {}).ConsumeRange(Offset{0}, num_items);
  if (threadIdx.x == 0) {
    reduce::finalize_and_store_aggregate(out, op, init, aggregate);
  }
}
}  // namespace cupar

using namespace cupar;

extern "C" __global__ __launch_bounds__(policy.single_tile.threads_per_block, 1)
void cupar_reduce_tile(d_in_t in, d_out_t out, int num_items, op_t op, init_t init) {
  reduce_in_block<one_policy>(in, out, num_items, op, init);
}

extern "C" __global__ __launch_bounds__(large_threads, 1)
void cupar_reduce_large_tile(d_in_t in, d_out_t out, int num_items, op_t op, init_t init) {
  reduce_in_block<large_policy>(in, out, num_items, op, init);
}

extern "C" __global__ __launch_bounds__(policy.multi_tile.threads_per_block)
void cupar_reduce_tiles(d_in_t in, accum_t* partials, u64 num_items, op_t op) {
  using agent_t = agent<tile_policy, d_in_t, u64>;
  cub::GridEvenShare<u64> share;
  share.DispatchInit(num_items, gridDim.x, policy.multi_tile.threads_per_block * policy.multi_tile.items_per_thread);
  __shared__ typename agent_t::TempStorage storage;
  const accum_t aggregate = agent_t(storage, in, op, {}).ConsumeTiles(share);
  if (threadIdx.x == 0) {
    cub::detail::uninitialized_copy_single(partials + blockIdx.x, aggregate);
  }
}

extern "C" __global__ __launch_bounds__(policy.single_tile.threads_per_block, 1)
void cupar_reduce_partials(accum_t* partials, d_out_t out, int num_partials, op_t op, init_t init) {
  reduce_in_block<one_policy>(partials, out, num_partials, op, init);
}

CUPAR_FACTS(policy.multi_tile.threads_per_block, policy.multi_tile.items_per_thread,
            policy.single_tile.threads_per_block, policy.single_tile.items_per_thread, large_threads, large_items,
            sizeof(accum_t))
