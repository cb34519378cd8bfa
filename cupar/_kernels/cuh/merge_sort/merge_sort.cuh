// Merge sort by CUB's agents: blocks sort tiles; then each pass merges pairs of sorted runs, between the
// output and temporary storage in turns. Each block of a pass writes one tile; where that comes from is found
// by a kernel before.
//
// Source: CUB's kernel_merge_sort.cuh; S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW
// 2012. What differs: an agent is told which array it reads and which it writes, where CUB's have code for
// both ways; and for items that are too large for CUB's tile, the tile is as large as shared memory allows,
// not 64 items.
//
// Traits: d_in_keys_t, d_out_keys_v, d_in_items_t, d_out_items_v (void: keys alone); op_t; tile_threads and
// tile_items (0: CUB's).
#pragma once

#include <cuda/std/__algorithm/clamp.h>
#include <cub/agent/agent_merge_sort.cuh>
#include <cub/device/dispatch/tuning/tuning_merge_sort.cuh>
#include <cub/iterator/cache_modified_input_iterator.cuh>

#include "common/kernel.cuh"

namespace cupar {
// Whether a tile fits into static shared memory: with one item more, or gaps that keep columns in different
// banks; and beside it where a tile of a merge begins and ends.
template <class Key, class Item>
constexpr bool fits(cub::MergeSortPolicy policy) {
  constexpr int size = cuda::std::max(sizeof(Key), sizeof(Item));
  const int items = policy.items_per_thread, tile = policy.threads_per_block * items;
  const int gaps = items > 4 && cuda::is_power_of_two(items) ? tile / 32 : 1;
  return (tile + gaps) * size + 16 <= static_cast<int>(cub::detail::max_smem_per_block);
}

// The policy of the table or of CUB, made smaller until it fits.
template <class Key, class Item>
constexpr cub::MergeSortPolicy merge_policy(int threads, int items) {
  auto found = cub::detail::merge_sort::policy_selector{sizeof(Key)}(cuda::compute_capability{target});
  if (threads > 0) {
    found.threads_per_block = threads;
    found.items_per_thread  = items;
  }
  while (!fits<Key, Item>(found) && found.items_per_thread > 1) {
    --found.items_per_thread;
  }
  while (!fits<Key, Item>(found) && found.threads_per_block > 32) {
    found.threads_per_block /= 2;
  }
  return found;
}

template <class Traits>
struct merge_sort_kernels {
  using d_in_keys_t                 = typename Traits::d_in_keys_t;
  using d_in_items_t                = typename Traits::d_in_items_t;
  using d_out_keys_v                = typename Traits::d_out_keys_v;
  using d_out_items_v               = typename Traits::d_out_items_v;
  using op_t                        = typename Traits::op_t;
  static constexpr int tile_threads = Traits::tile_threads;
  static constexpr int tile_items   = Traits::tile_items;

  static constexpr bool has_items = !cuda::std::is_void_v<d_out_items_v>;
  using key                       = d_out_keys_v;
  using item                      = cuda::std::conditional_t<has_items, d_out_items_v, cub::NullType>;
  using items_in_t                = cuda::std::conditional_t<has_items, d_in_items_t, const cub::NullType*>;

  struct policy {
    static constexpr cub::MergeSortPolicy value = merge_policy<key, item>(tile_threads, tile_items);
    static constexpr int tile                   = value.threads_per_block * value.items_per_thread;
    __device__ constexpr cub::MergeSortPolicy operator()() const { return value; }
  };

  using sort_agent = cub::detail::merge_sort::AgentBlockSort<policy, d_in_keys_t, items_in_t, key*, item*,
                                                             u64, op_t, key, item>;
  using partition_agent = cub::detail::merge_sort::AgentPartition<key*, u64, op_t, key>;
  using merge_agent     = cub::detail::merge_sort::AgentMerge<policy, key*, item*, u64, op_t, key, item>;

  // The arrays that a sort goes between.
  struct arrays {
    key* keys;
    item* items;
  };

  // Which of them a pass reads. The last pass writes the output, and tiles are sorted to where the first one
  // reads.
  static __device__ __forceinline__ arrays source(arrays output, arrays spare, int pass, int passes) {
    return (passes - pass) % 2 == 0 ? output : spare;
  }

  template <class Iterator>
  static __device__ __forceinline__ auto loading(Iterator it) {
    return cub::detail::try_make_cache_modified_iterator<policy::value.load_modifier>(it);
  }

  // `true` is how an agent reads and writes: from the arrays that stand first among its parameters to those
  // behind.

  struct cupar_merge_sort_tiles : kernel<policy::value.threads_per_block> {
    static __device__ __forceinline__ void run(d_in_keys_t keys_in, items_in_t items_in, arrays output,
                                               arrays spare, u64 num_items, op_t op, int passes) {
      __shared__ typename sort_agent::TempStorage temporary;
      wait_for_stream();
      const arrays to = source(output, spare, 0, passes);
      sort_agent(true, temporary, loading(keys_in), loading(items_in), num_items, to.keys, to.items, to.keys,
                 to.items, op)
          .Process();
    }
  };

  struct cupar_merge_sort_partition : kernel<1024> {
    static __device__ __forceinline__ void run(arrays output, arrays spare, u64* partitions,
                                               u64 num_partitions, u64 num_items, op_t op, int passes,
                                               int first, int after) {
      join_stream();
      const u64 at = u64(blockIdx.x) * blockDim.x + threadIdx.x;
      if (at < num_partitions) {
        const int pass  = first + after;
        key* const keys = source(output, spare, pass, passes).keys;
        partition_agent{true,       keys, keys,           num_items,    at,
                        partitions, op,   u64(2) << pass, policy::tile, num_partitions}
            .Process();
      }
    }
  };

  struct cupar_merge_sort_merge : kernel<policy::value.threads_per_block> {
    static __device__ __forceinline__ void run(arrays output, arrays spare, u64* partitions, u64 num_items,
                                               op_t op, int passes, int first, int after) {
      __shared__ typename merge_agent::TempStorage temporary;
      __shared__ u64 own[2];
      wait_for_stream();
      const int pass    = first + after;
      const arrays from = source(output, spare, pass, passes), to = source(output, spare, pass + 1, passes);
      const auto keys  = loading(from.keys);
      const auto items = loading(from.items);
      // By an operator that is no order, as of NaN, runs may be cut anywhere: a tile takes no more of the
      // first one than it has room for, and no fewer keys than none.
      if (threadIdx.x == 0) {
        const u64 begin = partitions[blockIdx.x];
        own[0]          = begin;
        own[1]          = cuda::std::clamp(partitions[blockIdx.x + 1], begin, begin + policy::tile);
      }
      __syncthreads();
      merge_agent(true, temporary, keys, items, keys, items, num_items, to.keys, to.items, to.keys, to.items,
                  op, own - blockIdx.x, u64(2) << pass)
          .Process();
    }
  };

  static constexpr auto properties =
      properties_of(policy::value.threads_per_block, policy::value.items_per_thread, sizeof(key),
                    has_items ? sizeof(item) : 0);
};
}  // namespace cupar
