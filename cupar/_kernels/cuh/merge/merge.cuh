// Merges two sorted ranges by CUB's agent: each block writes one tile of the output. Which keys of the first
// range a tile begins with is found by a kernel before; a single tile takes all, and needs none.
//
// Source: CUB's dispatch_merge.cuh; S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW 2012.
// What differs: for items that are too large for CUB's tile, the tile is as large as shared memory allows,
// not 64 items.
//
// Traits: d_in_keys1_t, d_in_keys2_t, d_out_keys_t and d_in_keys1_v; the same of items (void: keys alone);
// op_t; the policy: tile_threads, tile_items; 0: what CUB's selector says.
#pragma once

#include <cuda/std/__algorithm/clamp.h>
#include <cub/agent/agent_merge.cuh>
#include <cub/device/dispatch/tuning/tuning_merge.cuh>

#include "common/kernel.cuh"

namespace cupar {
template <class Traits>
struct merge_kernels {
  using keys1_t    = typename Traits::d_in_keys1_t;
  using keys2_t    = typename Traits::d_in_keys2_t;
  using keys_out_t = typename Traits::d_out_keys_t;
  using op_t       = typename Traits::op_t;

  static constexpr bool has_items = !cuda::std::is_void_v<typename Traits::d_in_items1_t>;
  template <class Items>
  using items_or_null = cuda::std::conditional_t<has_items, Items, cub::NullType*>;
  using items1_t      = items_or_null<typename Traits::d_in_items1_t>;
  using items2_t      = items_or_null<typename Traits::d_in_items2_t>;
  using items_out_t   = items_or_null<typename Traits::d_out_items_t>;

  static constexpr cub::MergePolicy policy =
      cub::detail::merge::policy_selector_from_types<keys1_t, items1_t, keys2_t, items2_t, u64>{}(
          cuda::compute_capability{target});

  template <int threads, int items>
  using agent_of = cub::detail::merge::agent_t<threads, items, policy.load_modifier, policy.store_algorithm,
                                               policy.use_bulk_copy_for_keys, policy.use_bulk_copy_for_values,
                                               policy.unroll, keys1_t, items1_t, keys2_t, items2_t,
                                               keys_out_t, items_out_t, u64, op_t>;

  static constexpr int most_shared = cub::detail::max_smem_per_block - 2 * sizeof(u64);  // of a single tile

  // The tile, made smaller until it fits into static shared memory.
  template <int threads, int items>
  static constexpr auto fitting() {
    using found = agent_of<threads, items>;
    if constexpr (sizeof(typename found::TempStorage) <= most_shared || threads <= 32) {
      return cuda::std::type_identity<found>{};
    } else if constexpr (items > 1) {
      return fitting<threads, items - 1>();
    } else {
      return fitting<threads / 2, items>();
    }
  }
  static constexpr int tile_threads =
      Traits::tile_threads > 0 ? Traits::tile_threads : policy.threads_per_block;
  static constexpr int tile_items = Traits::tile_threads > 0 ? Traits::tile_items : policy.items_per_thread;

  using agent = typename decltype(fitting<tile_threads, tile_items>())::type;

  struct cupar_merge_partition : kernel<1024> {
    static __device__ __forceinline__ void run(keys1_t keys1, u64 count1, keys2_t keys2, u64 count2,
                                               u64* partitions, u64 num_partitions, op_t op) {
      join_stream();
      const u64 at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
      if (at < num_partitions) {
        const u64 before = cuda::std::min(at * agent::items_per_tile, count1 + count2);
        partitions[at]   = cub::MergePath(keys1, keys2, count1, count2, before, op);
      }
    }
  };

  struct cupar_merge_tiles : kernel<agent::threads_per_block> {
    static __device__ __forceinline__ void run(keys1_t keys1, items1_t items1, u64 count1, keys2_t keys2,
                                               items2_t items2, u64 count2, keys_out_t keys_out,
                                               items_out_t items_out, u64* partitions, op_t op) {
      __shared__ typename agent::TempStorage temporary;
      __shared__ u64 own[2];
      wait_for_stream();
      if (threadIdx.x == 0) {
        // Ranges that are not sorted may be cut anywhere: a tile takes no more of the first one than it has
        // room for, and no fewer keys than none.
        const u64 begin = partitions == nullptr ? 0 : partitions[blockIdx.x],
                  end   = partitions == nullptr ? count1 : partitions[blockIdx.x + 1];
        own[0]          = begin;
        own[1]          = cuda::std::clamp(end, begin, begin + agent::items_per_tile);
      }
      __syncthreads();
      agent{temporary.Alias(), keys1,     items1, count1,          keys2, items2, count2,
            keys_out,          items_out, op,     own - blockIdx.x}();
    }
  };

  static constexpr auto properties = properties_of(agent::threads_per_block, agent::items_per_tile);
};
}  // namespace cupar
