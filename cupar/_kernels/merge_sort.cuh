// Merge sort by CUB's agents: blocks sort tiles; then each pass merges pairs of sorted runs, between the
// output and temporary storage in turns. Each block of a pass writes one tile; where that comes from is found
// by a kernel before.
//
// Source: CUB's kernel_merge_sort.cuh; S. Odeh et al., "Merge Path - Parallel Merging Made Simple", IPDPSW
// 2012. What differs: an agent is told which array it reads and which it writes, where CUB's have code for
// both ways; and for items that are too large for CUB's tile, the tile is as large as shared memory allows,
// not 64 items.
//
// Given: d_in_keys_t, d_out_keys_v, d_in_items_t, d_out_items_v (void: keys alone); op_t; tile_threads and
// tile_items (0: CUB's).
#include <cub/agent/agent_merge_sort.cuh>
#include <cub/device/dispatch/tuning/tuning_merge_sort.cuh>
#include <cub/iterator/cache_modified_input_iterator.cuh>

namespace cupar {
namespace merge = cub::detail::merge_sort;

constexpr bool has_items = !cuda::std::is_void_v<d_out_items_v>;
using key                = d_out_keys_v;
using item               = cuda::std::conditional_t<has_items, d_out_items_v, cub::NullType>;
using items_in_t         = cuda::std::conditional_t<has_items, d_in_items_t, const cub::NullType*>;

// Whether a tile fits into static shared memory: with one item more, or gaps that keep columns in different
// banks.
constexpr bool fits(cub::MergeSortPolicy policy) {
  constexpr int size = cuda::std::max(sizeof(key), sizeof(item));
  const int items = policy.items_per_thread, tile = policy.threads_per_block * items;
  const int gaps = items > 4 && cuda::is_power_of_two(items) ? tile / 32 : 1;
  return (tile + gaps) * size <= static_cast<int>(cub::detail::max_smem_per_block);
}

// The policy of the table or of CUB, made smaller until it fits.
constexpr cub::MergeSortPolicy chosen_policy() {
  auto found = merge::policy_selector{sizeof(key)}(cuda::compute_capability{target});
  if (tile_threads > 0) {
    found.threads_per_block = tile_threads;
    found.items_per_thread  = tile_items;
  }
  while (!fits(found) && found.items_per_thread > 1) {
    --found.items_per_thread;
  }
  while (!fits(found) && found.threads_per_block > 32) {
    found.threads_per_block /= 2;
  }
  return found;
}

struct policy {
  static constexpr cub::MergeSortPolicy value = chosen_policy();
  static constexpr int tile                   = value.threads_per_block * value.items_per_thread;
  __device__ constexpr cub::MergeSortPolicy operator()() const { return value; }
};

using sort_agent = merge::AgentBlockSort<policy, d_in_keys_t, items_in_t, key*, item*, u64, op_t, key, item>;
using partition_agent = merge::AgentPartition<key*, u64, op_t, key>;
using merge_agent     = merge::AgentMerge<policy, key*, item*, u64, op_t, key, item>;

// The arrays that a sort goes between.
struct arrays {
  key* keys;
  item* items;
};

// Which of them a pass reads. The last pass writes the output, and tiles are sorted to where the first one
// reads.
__device__ __forceinline__ arrays source(arrays output, arrays spare, int pass, int passes) {
  return (passes - pass) % 2 == 0 ? output : spare;
}

template <class Iterator>
__device__ __forceinline__ auto loading(Iterator it) {
  return cub::detail::try_make_cache_modified_iterator<policy::value.load_modifier>(it);
}
}  // namespace cupar

using namespace cupar;

// `true` is how an agent reads and writes: from the arrays that stand first among its parameters to those
// behind.

extern "C" __global__ __launch_bounds__(policy::value.threads_per_block) void cupar_merge_sort_tiles(
    d_in_keys_t keys_in, items_in_t items_in, arrays output, arrays spare, u64 num_items, op_t op,
    int passes) {
  __shared__ typename sort_agent::TempStorage temporary;
  wait_for_stream();
  const arrays to = source(output, spare, 0, passes);
  sort_agent(true, temporary, loading(keys_in), loading(items_in), num_items, to.keys, to.items, to.keys,
             to.items, op)
      .Process();
}

extern "C" __global__ void cupar_merge_sort_partition(arrays output, arrays spare, u64* partitions,
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

extern "C" __global__ __launch_bounds__(policy::value.threads_per_block) void cupar_merge_sort_merge(
    arrays output, arrays spare, u64* partitions, u64 num_items, op_t op, int passes, int first, int after) {
  __shared__ typename merge_agent::TempStorage temporary;
  wait_for_stream();
  const int pass    = first + after;
  const arrays from = source(output, spare, pass, passes), to = source(output, spare, pass + 1, passes);
  const auto keys  = loading(from.keys);
  const auto items = loading(from.items);
  merge_agent(true, temporary, keys, items, keys, items, num_items, to.keys, to.items, to.keys, to.items, op,
              partitions, u64(2) << pass)
      .Process();
}

CUPAR_FACTS(policy::value.threads_per_block, policy::value.items_per_thread, sizeof(key),
            has_items ? sizeof(item) : 0)
