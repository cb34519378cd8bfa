// Radix sort by CUB's onesweep: the digits of all passes are counted in one reading of the keys; then each
// pass reads its keys once, ranks them in their tile, finds by look-back where the tile's digits go, and
// writes them. What fits into one tile is sorted by one block.
//
// Source: A. Adinets and D. Merrill, "Onesweep: A Faster Least Significant Digit Radix Sort for GPUs",
// arXiv:2206.01784; CUB's kernel_radix_sort.cuh. What differs: the block that counts last makes the sums, and
// each pass zeroes the look-back of the pass after it, so that there is a kernel a pass, and no memset.
// Offsets have 32 bits up to 2^30 items, which leaves registers for more items in a tile.
//
// Traits: d_in_keys_v, d_in_values_v (void: keys alone), is_descending; tuned_threads and tuned_items of the
// kernel of a digit (0: CUB's).
#pragma once

#include <cub/agent/agent_radix_sort_histogram.cuh>
#include <cub/agent/agent_radix_sort_onesweep.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/dispatch/tuning/tuning_radix_sort.cuh>

#include "common/kernel.cuh"
#include "common/last_block.cuh"

namespace cupar {
constexpr int radix_bits   = 8;
constexpr int radix_digits = 1 << radix_bits;

// CUB's policy. On older devices that has another algorithm for small keys; there it is that of sm_90.
template <class Key, class Value, class Offset>
constexpr cub::RadixSortPolicy radix_policy(int cc) {
  const auto policy =
      cub::detail::radix_sort::policy_selector_from_types<Key, Value, Offset>{}(cuda::compute_capability{cc});
  return policy.algorithm == cub::RadixSortAlgorithm::onesweep ? policy
                                                               : radix_policy<Key, Value, Offset>(90);
}

// That of the kernel of a digit, with the table's numbers in place of CUB's.
constexpr cub::RadixSortOnesweepPolicy tuned(cub::RadixSortOnesweepPolicy policy, int threads, int items) {
  if (threads > 0) {
    policy.threads_per_block = threads;
    policy.items_per_thread  = items;
  }
  return policy;
}

// A policy whose tile fits into static shared memory, beside offsets of digits: CUB's, but for large values.
template <class Key, class Value, class Policy>
constexpr Policy fitted(Policy policy) {
  constexpr int size       = cuda::std::max(sizeof(Key), sizeof(Value));
  constexpr int most       = (cub::detail::max_smem_per_block - (radix_digits + 2) * sizeof(u64)) / size;
  policy.threads_per_block = cuda::std::clamp(most / 32 * 32, 32, policy.threads_per_block);
  policy.items_per_thread  = cuda::std::clamp(most / policy.threads_per_block, 1, policy.items_per_thread);
  return policy;
}

template <class Traits>
struct radix_sort_kernels {
  using d_in_keys_v                   = typename Traits::d_in_keys_v;
  using d_in_values_v                 = typename Traits::d_in_values_v;
  static constexpr bool is_descending = Traits::is_descending;
  static constexpr int tuned_threads  = Traits::tuned_threads;
  static constexpr int tuned_items    = Traits::tuned_items;

  static constexpr bool has_values = !cuda::std::is_void_v<d_in_values_v>;
  using key                        = d_in_keys_v;
  using value                      = cuda::std::conditional_t<has_values, d_in_values_v, cub::NullType>;

  static constexpr int digits = radix_digits;

  // Of kernels with offsets of 32 or of 64 bits.
  template <class Offset>
  struct policies {
    static constexpr cub::RadixSortPolicy all            = radix_policy<key, value, Offset>(target);
    static constexpr cub::RadixSortHistogramPolicy count = all.histogram;
    static constexpr cub::RadixSortOnesweepPolicy digit =
        fitted<key, value>(tuned(all.onesweep, tuned_threads, tuned_items));
    static constexpr cub::RadixSortDownsweepPolicy tile = fitted<key, value>(all.single_tile);
    static_assert(count.radix_bits == radix_bits && digit.radix_bits == radix_bits);

    using count_agent_policy =
        cub::detail::agent_radix_sort_histogram_policy<count.threads_per_block, count.items_per_thread,
                                                       count.private_partitions, void, radix_bits>;
    using digit_agent_policy = cub::detail::agent_radix_sort_onesweep_policy<
        0, 0, void, digit.rank_private_partitions, digit.rank_algorithm, digit.scan_algorithm,
        digit.store_algorithm, radix_bits,
        cub::detail::NoScaling<digit.threads_per_block, digit.items_per_thread>>;
    using count_agent =
        cub::detail::radix_sort::AgentRadixSortHistogram<count_agent_policy, is_descending, key, Offset>;
    using digit_agent = cub::detail::radix_sort::AgentRadixSortOnesweep<digit_agent_policy, is_descending,
                                                                        key, value, Offset, int>;
  };

  // Zeroes the look-back of `tiles` tiles: at most 2^25, of 32 items each and more.
  static __device__ __forceinline__ void clear(int* lookback, u32 tiles) {
    auto* lines = reinterpret_cast<uint4*>(lookback);
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < tiles * (digits / 4);
         i += gridDim.x * blockDim.x) {
      lines[i] = uint4{};
    }
  }

  // Replaces counts of digits by where each digit begins, for all passes.
  template <class Offset, int threads>
  static __device__ __forceinline__ void sum_bins(Offset* bins, int passes) {
    constexpr int items = digits / threads;
    using scan          = cub::BlockScan<Offset, threads>;
    static_assert(items * threads == digits);
    __shared__ typename scan::TempStorage temporary;
    for (int pass = 0; pass < passes; ++pass) {
      Offset* own = bins + pass * digits + threadIdx.x * items;
      Offset sums[items];
      for (int i = 0; i < items; ++i) {
        sums[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
      }
      scan(temporary).ExclusiveSum(sums, sums);
      for (int i = 0; i < items; ++i) {
        own[i] = sums[i];
      }
      __syncthreads();
    }
  }

  // Counts the digits of all passes into the bins, and sums these up; and zeroes the first pass's look-back.
  template <class Offset>
  static __device__ __forceinline__ void count_digits(const key* keys, int* blocks_done, Offset* bins,
                                                      int* lookback, u32 lookback_tiles, Offset num_items,
                                                      int begin_bit, int end_bit) {
    using agent = typename policies<Offset>::count_agent;
    __shared__ typename agent::TempStorage temporary;
    wait_for_stream();
    clear(lookback, lookback_tiles);
    agent(temporary, bins, keys, num_items, begin_bit, end_bit).Process();
    if (is_last_block([&] { return atomicAdd(blocks_done, 1) == gridDim.x - 1; })) {
      const int passes = cuda::ceil_div(end_bit - begin_bit, radix_bits);
      sum_bins<Offset, policies<Offset>::count.threads_per_block>(bins, passes);
    }
  }

  using narrow = policies<u32>;
  using wide   = policies<u64>;

  struct cupar_radix_sort_tile : kernel<narrow::tile.threads_per_block, 1> {
    static __device__ __forceinline__ void run(key* keys_out, const key* keys_in, value* values_out,
                                               const value* values_in, int num_items, int begin_bit,
                                               int end_bit) {
      constexpr auto policy = narrow::tile;
      constexpr int threads = policy.threads_per_block, items = policy.items_per_thread;
      using load_keys   = cub::BlockLoad<key, threads, items, policy.load_algorithm>;
      using load_values = cub::BlockLoad<value, threads, items, policy.load_algorithm>;
      using sort =
          cub::BlockRadixSort<key, threads, items, value, policy.radix_bits,
                              policy.rank_algorithm == cub::RADIX_RANK_MEMOIZE, policy.scan_algorithm>;
      using traits = cub::detail::radix::traits_t<key>;
      __shared__ union {
        typename sort::TempStorage sort;
        typename load_keys::TempStorage keys;
        typename load_values::TempStorage values;
      } temporary;
      cub::detail::identity_decomposer_t decomposer;
      join_stream();
      // Behind the items there are keys that come last.
      auto bits =
          is_descending ? traits::min_raw_binary_key(decomposer) : traits::max_raw_binary_key(decomposer);
      key keys[items];
      value values[items];
      load_keys(temporary.keys).Load(keys_in, keys, num_items, reinterpret_cast<key&>(bits));
      __syncthreads();
      if constexpr (has_values) {
        load_values(temporary.values).Load(values_in, values, num_items);
        __syncthreads();
      }
      sort(temporary.sort)
          .SortBlockedToStriped(keys, values, begin_bit, end_bit, cuda::std::bool_constant<is_descending>{},
                                cuda::std::bool_constant<!has_values>{}, decomposer);
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
  };

  // Without a bit to sort by, the output is the input.
  struct cupar_radix_sort_copy : kernel<1024> {
    static __device__ __forceinline__ void run(key* keys_out, const key* keys_in, value* values_out,
                                               const value* values_in, u64 num_items) {
      join_stream();
      const u64 threads = u64(gridDim.x) * blockDim.x;
      for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < num_items; i += threads) {
        keys_out[i] = keys_in[i];
        if constexpr (has_values) {
          values_out[i] = values_in[i];
        }
      }
    }
  };

  // Zeroes the counters, and the bins behind them.
  struct cupar_radix_sort_init : kernel<1024> {
    static __device__ __forceinline__ void run(int* words, int count) {
      join_stream();
      for (int i = threadIdx.x; i < count; i += blockDim.x) {
        words[i] = 0;
      }
    }
  };

  struct cupar_radix_sort_count : kernel<narrow::count.threads_per_block> {
    static __device__ __forceinline__ void run(const key* keys, int* blocks_done, u32* bins, int* lookback,
                                               u32 lookback_tiles, u32 num_items, int begin_bit,
                                               int end_bit) {
      count_digits(keys, blocks_done, bins, lookback, lookback_tiles, num_items, begin_bit, end_bit);
    }
  };

  struct cupar_radix_sort_count_wide : kernel<wide::count.threads_per_block> {
    static __device__ __forceinline__ void run(const key* keys, int* blocks_done, u64* bins, int* lookback,
                                               u32 lookback_tiles, u64 num_items, int begin_bit,
                                               int end_bit) {
      count_digits(keys, blocks_done, bins, lookback, lookback_tiles, num_items, begin_bit, end_bit);
    }
  };

  // One pass. It zeroes the look-back of the next launch's tiles.
  struct cupar_radix_sort_digit : kernel<narrow::digit.threads_per_block> {
    static __device__ __forceinline__ void run(int* counter, u32* bins, int* lookback, int* next_lookback,
                                               u32 next_tiles, key* keys_out, const key* keys_in,
                                               value* values_out, const value* values_in, int num_items,
                                               int bit, int num_bits) {
      using agent = narrow::digit_agent;
      __shared__ typename agent::TempStorage temporary;
      wait_for_stream();
      clear(next_lookback, next_tiles);
      agent(temporary, lookback, counter, nullptr, bins, keys_out, keys_in, values_out, values_in, num_items,
            bit, num_bits)
          .Process();
    }
  };

  // One pass of a portion of the items, as look-back counts no more than 2^30. It leaves behind where the
  // next portion's items go.
  struct cupar_radix_sort_digit_wide : kernel<wide::digit.threads_per_block> {
    static __device__ __forceinline__ void run(int* counter, u64* bins, int* lookback, int* next_lookback,
                                               u32 next_tiles, key* keys_out, const key* keys_in,
                                               value* values_out, const value* values_in, int num_items,
                                               int bit, int num_bits, u64* next_bins, u64 first) {
      using agent = wide::digit_agent;
      __shared__ typename agent::TempStorage temporary;
      wait_for_stream();
      clear(next_lookback, next_tiles);
      agent(temporary, lookback, counter, next_bins, bins, keys_out, keys_in + first, values_out,
            values_in + first, num_items, bit, num_bits)
          .Process();
    }
  };

  static constexpr auto properties = properties_of(
      narrow::tile.threads_per_block, narrow::tile.items_per_thread, narrow::count.threads_per_block,
      narrow::count.items_per_thread, narrow::digit.threads_per_block, narrow::digit.items_per_thread,
      wide::count.threads_per_block, wide::count.items_per_thread, wide::digit.threads_per_block,
      wide::digit.items_per_thread, sizeof(key), has_values ? sizeof(value) : 0);
};
}  // namespace cupar
