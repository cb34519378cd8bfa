// Radix sort by CUB's onesweep: the digits of all passes are counted in one reading of the keys; then each pass
// reads its keys once, ranks them in their tile, finds by look-back where the tile's digits go, and writes them.
// What fits into one tile is sorted by one block.
//
// Source: A. Adinets and D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs",
// arXiv:2206.01784; CUB's kernel_radix_sort.cuh. What differs: the block that counts last makes the sums, and each
// pass zeroes the look-back of the pass after it, so that there is a kernel a pass, and no memset. Offsets have 32
// bits where the number of items does, which leaves registers for more items.
//
// Given: d_in_keys_v, d_in_values_v (void: keys alone), is_descending.
#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/dispatch/tuning/tuning_radix_sort.cuh>

namespace cupar {
namespace radix = cub::detail::radix_sort;

constexpr bool has_values = !cuda::std::is_void_v<d_in_values_v>;
using key                 = d_in_keys_v;
using value               = cuda::std::conditional_t<has_values, d_in_values_v, cub::NullType>;
using u32                 = unsigned int;

constexpr int radix_bits = 8;
constexpr int digits     = 1 << radix_bits;

// CUB's policy. On older devices that has another algorithm for small keys; there it is that of sm_90.
template <class Offset>
constexpr cub::RadixSortPolicy cub_policy(int cc) {
  const auto policy = radix::policy_selector_from_types<key, value, Offset>{}(cuda::compute_capability{cc});
  return policy.algorithm == cub::RadixSortAlgorithm::onesweep ? policy : cub_policy<Offset>(90);
}

// A policy whose tile fits into static shared memory, as CUB's does not for large values.
template <class Policy>
constexpr Policy fitted(Policy policy) {
  constexpr int size = cuda::std::max(sizeof(key), sizeof(value));
  // Beside the tile there are offsets of digits, and gaps that keep columns of it in different banks.
  constexpr int most = (cub::detail::max_smem_per_block - digits * sizeof(u64)) / size * 32 / 33;
  policy.threads_per_block = cuda::std::min(policy.threads_per_block, most / 32 * 32);
  policy.items_per_thread  = cuda::std::clamp(most / policy.threads_per_block, 1, policy.items_per_thread);
  return policy;
}

template <class Offset>
struct policies {
  static constexpr cub::RadixSortPolicy all             = cub_policy<Offset>(target);
  static constexpr cub::RadixSortHistogramPolicy counts = all.histogram;
  static constexpr cub::RadixSortOnesweepPolicy sweep   = fitted(all.onesweep);
  static constexpr cub::RadixSortDownsweepPolicy tile   = fitted(all.single_tile);
  static constexpr int sweep_tile = sweep.threads_per_block * sweep.items_per_thread;
  static_assert(counts.radix_bits == radix_bits && sweep.radix_bits == radix_bits);

  using counts_agent_policy =
    cub::detail::agent_radix_sort_histogram_policy<counts.threads_per_block, counts.items_per_thread,
                                                   counts.private_partitions, void, radix_bits>;
  using sweep_agent_policy = cub::detail::agent_radix_sort_onesweep_policy<
    0, 0, void, sweep.rank_private_partitions, sweep.rank_algorithm, sweep.scan_algorithm, sweep.store_algorithm,
    radix_bits, cub::detail::NoScaling<sweep.threads_per_block, sweep.items_per_thread>>;
  using counts_agent = radix::AgentRadixSortHistogram<counts_agent_policy, is_descending, key, Offset>;
  using sweep_agent =
    radix::AgentRadixSortOnesweep<sweep_agent_policy, is_descending, key, value, Offset, int>;
};

// The arrays of a sort. It goes from the input to the output, and between that and a third one: temporary storage,
// or the input itself if that may be overwritten.
struct arrays {
  const key* keys_in;
  key* keys_out;
  key* keys_spare;
  const value* values_in;
  value* values_out;
  value* values_spare;
};

// Which digits are sorted by, and whether the input may be overwritten.
struct order {
  int begin_bit;
  int end_bit;
  int is_overwritten;

  __device__ __forceinline__ int passes() const { return cuda::ceil_div(end_bit - begin_bit, radix_bits); }
  // Whether a pass writes to the output. The last one does, unless the input may be overwritten: then the first
  // one does, whatever the last one does.
  __device__ __forceinline__ bool is_to_output(int pass) const {
    return is_overwritten ? pass % 2 == 0 : (passes() - 1 - pass) % 2 == 0;
  }
};

// The temporary storage of the kernels.
template <class Offset>
struct storage {
  int* counters;  // how many blocks have counted; how many tiles each launch of a pass has begun with
  Offset* bins;   // for each portion and pass: where the items of a digit go
  int* lookback;  // what the tiles of a launch know of digits before them
  int* next_lookback;
};

// Launches: of each pass, one for each portion of the items. Look-back counts up to 2**28 in it.
struct portions {
  int count;
  int tiles;  // in each but the last
};

// Zeroes the look-back of a launch.
__device__ __forceinline__ void clear(int* lookback, portions each) {
  auto* lines     = reinterpret_cast<uint4*>(lookback);
  const u64 count = u64(each.tiles) * digits / 4, stride = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    lines[i] = uint4{};
  }
}

// Replaces counts of digits by where each digit begins, for all passes.
template <class Offset, int threads>
__device__ __forceinline__ void sum_bins(Offset* bins, int passes) {
  constexpr int items = digits / threads;
  using scan          = cub::BlockScan<Offset, threads>;
  static_assert(items * threads == digits);
  __shared__ typename scan::TempStorage temporary;
  for (int pass = 0; pass < passes; ++pass) {
    Offset* own = bins + pass * digits + threadIdx.x * items;
    Offset counts[items];
    for (int i = 0; i < items; ++i) {
      counts[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
    }
    scan(temporary).ExclusiveSum(counts, counts);
    for (int i = 0; i < items; ++i) {
      own[i] = counts[i];
    }
    __syncthreads();
  }
}

template <class Offset>
__device__ __forceinline__ void count_digits(const key* keys, storage<Offset> own, Offset num_items, order by,
                                             portions each) {
  using agent = typename policies<Offset>::counts_agent;
  __shared__ typename agent::TempStorage temporary;
  __shared__ bool is_last;
  clear(own.lookback, each);
  agent(temporary, own.bins, keys, num_items, by.begin_bit, by.end_bit).Process();
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(own.counters, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last) {
    __threadfence();
    sum_bins<Offset, policies<Offset>::counts.threads_per_block>(own.bins, by.passes());
  }
}

template <class Offset>
__device__ __forceinline__ void sort_digit(arrays of, storage<Offset> own, Offset num_items, order by,
                                           portions each, int pass, int portion) {
  using agent = typename policies<Offset>::sweep_agent;
  __shared__ typename agent::TempStorage temporary;
  _CCCL_PDL_GRID_DEPENDENCY_SYNC();
  const int passes = by.passes(), launch = pass * each.count + portion;
  const bool is_last_portion = portion == each.count - 1;
  int* const lookback        = launch % 2 == 0 ? own.lookback : own.next_lookback;
  if (pass < passes - 1 || !is_last_portion) {
    clear(launch % 2 == 0 ? own.next_lookback : own.lookback, each);
  }
  const Offset portion_items = Offset(each.tiles) * policies<Offset>::sweep_tile;
  const Offset first         = portion * portion_items;
  const int items            = static_cast<int>(cuda::std::min(num_items - first, portion_items));
  Offset* const bins         = own.bins + (portion * passes + pass) * digits;
  Offset* const next_bins    = is_last_portion ? nullptr : bins + passes * digits;
  key* const keys_spare      = by.is_overwritten ? const_cast<key*>(of.keys_in) : of.keys_spare;
  value* const values_spare  = by.is_overwritten ? const_cast<value*>(of.values_in) : of.values_spare;
  const bool is_to_output    = by.is_to_output(pass);
  const key* keys_in         = pass == 0 ? of.keys_in : is_to_output ? keys_spare : of.keys_out;
  const value* values_in     = pass == 0 ? of.values_in : is_to_output ? values_spare : of.values_out;
  const int bit              = by.begin_bit + pass * radix_bits;
  agent(temporary, lookback, own.counters + 1 + launch, next_bins, bins, is_to_output ? of.keys_out : keys_spare,
        keys_in + first, is_to_output ? of.values_out : values_spare, values_in + first, items, bit,
        cuda::std::min(by.end_bit - bit, radix_bits))
    .Process();
}
}  // namespace cupar

using namespace cupar;
using narrow = policies<u32>;
using wide   = policies<u64>;

extern "C" __global__ __launch_bounds__(narrow::tile.threads_per_block, 1)
void cupar_radix_sort_tile(arrays of, int num_items, order by) {
  constexpr auto policy = narrow::tile;
  constexpr int threads = policy.threads_per_block, items = policy.items_per_thread;
  using block_load_keys   = cub::BlockLoad<key, threads, items, policy.load_algorithm>;
  using block_load_values = cub::BlockLoad<value, threads, items, policy.load_algorithm>;
  using block_sort = cub::BlockRadixSort<key, threads, items, value, policy.radix_bits,
                                         policy.rank_algorithm == cub::RADIX_RANK_MEMOIZE, policy.scan_algorithm>;
  using traits = cub::detail::radix::traits_t<key>;
  __shared__ union {
    typename block_sort::TempStorage sort;
    typename block_load_keys::TempStorage keys;
    typename block_load_values::TempStorage values;
  } temporary;
  cub::detail::identity_decomposer_t decomposer;
  // Beyond the items there are keys that come last.
  auto bits = is_descending ? traits::min_raw_binary_key(decomposer) : traits::max_raw_binary_key(decomposer);
  key keys[items];
  value values[items];
  block_load_keys(temporary.keys).Load(of.keys_in, keys, num_items, reinterpret_cast<key&>(bits));
  __syncthreads();
  if constexpr (has_values) {
    block_load_values(temporary.values).Load(of.values_in, values, num_items);
    __syncthreads();
  }
  block_sort(temporary.sort)
    .SortBlockedToStriped(keys, values, by.begin_bit, by.end_bit, cuda::std::bool_constant<is_descending>{},
                          cuda::std::bool_constant<!has_values>{}, decomposer);
  // To where as many passes would have led.
  const bool is_in_place = by.is_overwritten && by.passes() % 2 == 0;
  key* const keys_out    = is_in_place ? const_cast<key*>(of.keys_in) : of.keys_out;
  value* const values_out = is_in_place ? const_cast<value*>(of.values_in) : of.values_out;
  for (int i = 0; i < items; ++i) {
    const int at = i * threads + threadIdx.x;
    if (at < num_items) {
      keys_out[at] = keys[i];
      if constexpr (has_values) {
        values_out[at] = values[i];
      }
    }
  }
}

// Without a bit to sort by, the output is the input.
extern "C" __global__ void cupar_radix_sort_copy(arrays of, u64 num_items) {
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < num_items; i += stride) {
    of.keys_out[i] = of.keys_in[i];
    if constexpr (has_values) {
      of.values_out[i] = of.values_in[i];
    }
  }
}

// Zeroes the counters and the bins behind them.
extern "C" __global__ void cupar_radix_sort_init(int* counters, int count) {
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    counters[i] = 0;
  }
}

extern "C" __global__ __launch_bounds__(narrow::counts.threads_per_block)
void cupar_radix_sort_count(const key* keys, storage<u32> own, u32 num_items, order by, portions each) {
  count_digits(keys, own, num_items, by, each);
}

extern "C" __global__ __launch_bounds__(narrow::sweep.threads_per_block)
void cupar_radix_sort_digit(arrays of, storage<u32> own, u32 num_items, order by, portions each, int pass,
                            int portion) {
  sort_digit(of, own, num_items, by, each, pass, portion);
}

extern "C" __global__ __launch_bounds__(wide::counts.threads_per_block)
void cupar_radix_sort_count_wide(const key* keys, storage<u64> own, u64 num_items, order by, portions each) {
  count_digits(keys, own, num_items, by, each);
}

extern "C" __global__ __launch_bounds__(wide::sweep.threads_per_block)
void cupar_radix_sort_digit_wide(arrays of, storage<u64> own, u64 num_items, order by, portions each, int pass,
                                 int portion) {
  sort_digit(of, own, num_items, by, each, pass, portion);
}

CUPAR_FACTS(narrow::tile.threads_per_block, narrow::tile.items_per_thread, narrow::counts.threads_per_block,
            narrow::counts.items_per_thread, narrow::sweep.threads_per_block, narrow::sweep.items_per_thread,
            wide::counts.threads_per_block, wide::counts.items_per_thread, wide::sweep.threads_per_block,
            wide::sweep.items_per_thread, sizeof(key), has_values ? sizeof(value) : 0)
