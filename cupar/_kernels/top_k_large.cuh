// The first k of long segments, for whatever k: the k-th key is found digit by digit, from the highest on.
// Then all keys up to it are counted and selected, in their order, and with where they were; and these are
// sorted as long segments are, stably.
#pragma once

#include "top_k_queue.cuh"

struct starts_t {
  const cupar::tiled_segment* segments;
  const unsigned int* counts;
  __device__ __forceinline__ long long operator[](long long i) const {
    return i < counts[1] ? segments[i].place : 0;
  }
};
struct ends_t {
  const cupar::tiled_segment* segments;
  const unsigned int* counts;
  long long k;
  __device__ __forceinline__ long long operator[](long long i) const {
    return i < counts[1] ? segments[i].place + cupar::wanted_of(segments[i], k) : 0;
  }
};

#include "segmented_sort_long.cuh"

namespace cupar {
constexpr int select_bits = 11, select_bins = 1 << select_bits;

// What is selected, of all segments.
struct selection {
  bits* keys;
  i64* positions;
  u64* before;  // for each tile: keys before the k-th key, and those that are like it
};

using block_scan = cub::BlockScan<u64, block_threads>;

// Finds the digit that the key of a rank has, and zeroes the bins.
__device__ __forceinline__ void find_digit(tiled_segment& its, u64* bins, int shift, bool is_first) {
  constexpr int each = select_bins / block_threads;
  __shared__ typename block_scan::TempStorage temporary;
  u64* const own = bins + threadIdx.x * each;
  u64 counts[each], sum = 0, before;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    counts[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
    own[i]    = 0;
    sum += counts[i];
  }
  const u64 rank = its.rank;
  block_scan(temporary).ExclusiveSum(sum, before);  // with a barrier, before the rank is replaced
  if (before < rank && rank <= before + sum) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (before < rank && rank <= before + counts[i]) {
        its.bound = (is_first ? 0 : its.bound) | static_cast<u64>(threadIdx.x * each + i) << shift;
        its.rank  = rank - before;
      }
      before += counts[i];
    }
    its.left = its.tiles;
  }
  __syncthreads();
}

// Whether a block is the last one to have done its part of a segment: so many tiles.
__device__ __forceinline__ bool is_last_of(tiled_segment& its, u32 tiles) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicSub(&its.left, tiles) == tiles;
  }
  __syncthreads();
  if (is_last) {
    __threadfence();
  }
  return is_last;
}
}  // namespace cupar

// Finds a digit of the k-th key: counts the keys that have its digits before that. A block takes tiles that
// follow one another.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_digit(const bits* keys, tile_queue q,
                                                                              u64* bins, int pass) {
  constexpr int loads = 8;
  __shared__ u32 counts[select_bins];
  const int above = key_bits - pass * select_bits, width = above < select_bits ? above : select_bits;
  const int shift  = above - width;
  const ranked low = (ranked{1} << width) - 1;
  for (int i = threadIdx.x; i < select_bins; i += block_threads) {
    counts[i] = 0;
  }
  join_stream();
  const u32 total = q.tiles(), each = (total + gridDim.x - 1) / gridDim.x;
  u32 t         = u64{blockIdx.x} * each < total ? blockIdx.x * each : total;
  const u32 end = total - t < each ? total : t + each;
  __syncthreads();
  while (t < end) {
    const u32 segment = q.segment_of[t];
    if (segment == no_entry) {
      ++t;
      continue;
    }
    tiled_segment& its = q.segments[segment];
    const u32 behind = its.first + its.tiles, stop = end < behind ? end : behind;
    const i64 until = i64{stop - its.first} * tile, to = until < its.length ? until : its.length;
    const ranked known     = pass == 0 ? 0 : static_cast<ranked>(its.bound >> shift >> width);
    const bits* const from = keys + its.begin;
    for (i64 i = i64{t - its.first} * tile + threadIdx.x; i < to; i += loads * block_threads) {
      bits loaded[loads];
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        loaded[k] = i + k * block_threads < to ? from[i + k * block_threads] : bits{};
      }
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const ranked digits_from = to_ranked(loaded[k]) >> shift;
        if (i + k * block_threads < to && (pass == 0 || digits_from >> width == known)) {
          atomicAdd(&counts[digits_from & low], 1u);
        }
      }
    }
    __syncthreads();
    u64* const all = bins + u64{segment} * select_bins;
    for (int i = threadIdx.x; i < select_bins; i += block_threads) {
      if (counts[i] > 0) {
        atomicAdd(&all[i], u64{counts[i]});
        counts[i] = 0;
      }
    }
    if (is_last_of(its, stop - t)) {
      find_digit(its, all, shift, pass == 0);
    }
    t = stop;
  }
}

// Counts what each tile has of keys before the k-th key, and of keys like it; and sums both up.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_count(const bits* keys, tile_queue q,
                                                                              u64* before) {
  __shared__ u32 sums[2 * team<block_threads>::warps];
  __shared__ typename block_scan::TempStorage temporary;
  team<block_threads> block{sums, 0};
  join_stream();
  const u32 total = q.tiles();
  for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
    const u32 segment = q.segment_of[t];
    if (segment == no_entry) {
      continue;
    }
    tiled_segment& its = q.segments[segment];
    const i64 at = i64{t - its.first} * tile, left = its.length - at;
    const auto last = static_cast<ranked>(its.bound);
    ranked own[block_items];
    const u32 valid = load_items<block_threads, block_items, together>(
        own, keys + its.begin + at, left < tile ? static_cast<int>(left) : tile, threadIdx.x);
    u32 both = 0;  // each at most a tile
#pragma unroll
    for (int i = 0; i < block_items; ++i) {
      both += (valid >> i & 1) ? (own[i] < last) << 16 | (own[i] == last) : 0;
    }
    both = block.sum(both);
    if (threadIdx.x == 0) {
      before[2 * u64{t}]     = both >> 16;
      before[2 * u64{t} + 1] = both & 0xffff;
    }
    if (is_last_of(its, 1)) {
      u64 less = 0, equal = 0;
      for (u32 first = 0; first < its.tiles; first += block_threads) {
        const u32 i      = first + threadIdx.x;
        u64* const place = before + 2 * (u64{its.first} + i);
        u64 less_before  = i < its.tiles ? __ldcg(place) : 0;
        u64 equal_before = i < its.tiles ? __ldcg(place + 1) : 0;
        u64 sum;
        block_scan(temporary).ExclusiveSum(less_before, less_before, sum);
        less_before += less;
        less += sum;
        __syncthreads();
        block_scan(temporary).ExclusiveSum(equal_before, equal_before, sum);
        equal_before += equal;
        equal += sum;
        __syncthreads();
        if (i < its.tiles) {
          place[0] = less_before;
          place[1] = equal_before;
        }
      }
    }
  }
}

// Selects the keys before the k-th key, and as many of those like it as there is room for. A warp has items
// that follow one another.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_select(const bits* keys, tile_queue q,
                                                                               selection to) {
  constexpr int rows = block_items / together, warps = block_threads / 32, share = 32 * block_items;
  __shared__ u32 totals[2][warps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  join_stream();
  const u32 total = q.tiles();
  int turn        = 0;
  for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
    const u32 segment = q.segment_of[t];
    if (segment == no_entry) {
      continue;
    }
    const tiled_segment& its = q.segments[segment];
    const i64 at             = i64{t - its.first} * tile + warp * share;
    const i64 left = its.length - at, begin = its.begin + at;
    const auto last = static_cast<ranked>(its.bound);
    ranked own[block_items];
    const u32 valid = load_items<32, block_items, together>(own, keys + begin,
                                                            left < 0       ? 0
                                                            : left < share ? static_cast<int>(left)
                                                                           : share,
                                                            lane);
    // How many come before, and how many are like the k-th key: in 16 bits each, as a tile has 2^13 items.
    u32 counts[block_items], before[rows], sum = 0;
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      u32 of_lane = 0;
#pragma unroll
      for (int i = row * together; i < (row + 1) * together; ++i) {
        counts[i] = (valid >> i & 1) ? (own[i] < last) << 16 | (own[i] == last) : 0;
        of_lane += counts[i];
      }
      u32 up = of_lane;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const u32 other = __shfl_up_sync(~0u, up, distance);
        up += lane >= distance ? other : 0;
      }
      before[row] = sum + up - of_lane;
      sum += __shfl_sync(~0u, up, 31);
    }
    turn ^= 1;
    if (lane == 0) {
      totals[turn][warp] = sum;
    }
    __syncthreads();
    const u32 of_warps = sum_of_lanes(lane < warp ? totals[turn][lane] : 0);
    const u64 less = to.before[2 * u64{t}], equal = to.before[2 * u64{t} + 1], wanted = its.rank;
#pragma unroll
    for (int row = 0; row < rows; ++row) {
      u32 both = of_warps + before[row];
#pragma unroll
      for (int i = row * together; i < (row + 1) * together; ++i) {
        const u64 equal_before = equal + (both & 0xffff);
        if (counts[i] != 0 && (own[i] < last || equal_before < wanted)) {
          const u64 place = its.place + less + (both >> 16) + (equal_before < wanted ? equal_before : wanted);
          to.keys[place]  = order::Out(static_cast<bits>(own[i]));
          to.positions[place] = begin + place_of_item<32, together>(lane, i);
        }
        both += counts[i];
      }
    }
  }
}

// Writes what is selected and sorted.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_write(top_arrays given,
                                                                              d_in_values_t values_in,
                                                                              d_out_values_t values_out,
                                                                              tile_queue q,
                                                                              const i64* positions) {
  join_stream();
  const u32 total = q.tiles();
  for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
    const u32 segment = q.segment_of[t];
    if (segment == no_entry) {
      continue;
    }
    const tiled_segment& its = q.segments[segment];
    const i64 first = i64{t - its.first} * tile, count = wanted_of(its, given.k);
    const i64 end = first + tile < count ? first + tile : count;
    for (i64 i = first + threadIdx.x; i < end; i += block_threads) {
      const i64 from = positions[its.place + i], to = its.segment * given.k + i;
      given.keys_out[to] = given.keys_in[from];
      if constexpr (has_payload) {
        values_out[to] = values_in[from];
      }
    }
  }
}
