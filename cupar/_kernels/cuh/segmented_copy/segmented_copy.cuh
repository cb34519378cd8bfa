// Copies segments to other places, whatever their lengths: as if they followed one another, warps take tiles
// of all items in turns. Where each segment ends then is summed up before: in groups by a block each, and
// then over all groups by one block.
//
// A warp searches for the segment that its tile begins in, 32 ends at a time, and then has 32 segments, one a
// lane. If these are long, it copies one after another, in words of 16 bytes if both arrays have them at
// once. If they are short, it copies rows of 32 items, whatever segments they are of.
//
// Source: ours; the search is that of S. Baxter, "Modern GPU: Load-Balancing Search", 2013. It does what
// CUB's DeviceCopy::Batched does.
//
// Traits: d_in_t, d_out_t, start_offsets_in_t, end_offsets_in_t, start_offsets_out_t (void: segments are
// written one after another), d_out_num_items_t (void: it is not told); the policy: threads,
// rows (of 32 items that a warp has on their way at once), tile_rows, run_rows, resident.
#pragma once

#include "common/kernel.cuh"
#include "common/offsets.cuh"
#include "common/vectors.cuh"
#include "common/warp.cuh"

namespace cupar {
template <class Traits>
struct segmented_copy_kernels {
  using d_in_t   = typename Traits::d_in_t;
  using d_in_v   = typename Traits::d_in_v;
  using d_out_t  = typename Traits::d_out_t;
  using d_out_v  = typename Traits::d_out_v;
  using starts_t = typename Traits::start_offsets_in_t;
  using ends_t   = typename Traits::end_offsets_in_t;
  template <class T>
  using type_or_none             = cuda::std::conditional_t<cuda::std::is_void_v<T>, const char*, T>;
  static constexpr bool has_outs = !cuda::std::is_void_v<typename Traits::start_offsets_out_t>;
  static constexpr bool is_told  = !cuda::std::is_void_v<typename Traits::d_out_num_items_t>;
  using outs_t                   = type_or_none<typename Traits::start_offsets_out_t>;
  using num_items_t              = type_or_none<typename Traits::d_out_num_items_t>;
  static constexpr int threads   = Traits::threads;
  static constexpr int rows      = Traits::rows;
  static constexpr int tile      = 32 * Traits::tile_rows;
  static constexpr int least_run = 32 * Traits::run_rows;  // of a segment whose items are copied apart
  static constexpr int group     = 1024;                   // segments that one block sums up
  static constexpr bool is_plain = is_array<d_in_t> && is_array<d_out_t> &&
                                   cuda::std::is_same_v<d_in_v, d_out_v> && is_word<sizeof(d_in_v)>;

  // The sum up to each thread of a block of `group` threads.
  static __device__ __forceinline__ i64 sum_up_to_thread(i64 own) {
    __shared__ i64 of_warps[group / 32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 up_to = sum_up_to_lane(own);
    if (lane == 31) {
      of_warps[warp] = up_to;
    }
    __syncthreads();
    const i64 before = sum_up_to_lane(of_warps[lane]);
    up_to += warp > 0 ? __shfl_sync(~0u, before, warp - 1) : 0;
    __syncthreads();
    return up_to;
  }

  // Writes where each segment of a group ends, counted from the group's first item; and how many items the
  // group has, behind where it begins. A single group begins with the first item of all.
  struct cupar_segmented_copy_ends : kernel<group> {
    static __device__ __forceinline__ void run(starts_t starts, ends_t ends, i64 num_segments, i64* own_ends,
                                               i64* begins) {
      join_stream();
      const i64 segment = i64{blockIdx.x} * group + threadIdx.x;
      i64 length        = 0;
      if (segment < num_segments) {
        length = length_of(static_cast<i64>(starts[segment]), static_cast<i64>(ends[segment]));
      }
      const i64 end = sum_up_to_thread(length);
      if (segment < num_segments) {
        own_ends[segment] = end;
      }
      if (threadIdx.x == group - 1) {
        begins[blockIdx.x + 1] = end;
      }
      if (segment == 0) {
        begins[0] = 0;
      }
    }
  };

  // Sums up the groups.
  struct cupar_segmented_copy_begins : kernel<group> {
    static __device__ __forceinline__ void run(i64* begins, i64 groups) {
      __shared__ i64 last;
      join_stream();
      i64 before = 0;
      for (i64 first = 1; first <= groups; first += group) {
        const i64 at    = first + threadIdx.x;
        const i64 up_to = before + sum_up_to_thread(at <= groups ? begins[at] : 0);
        if (at <= groups) {
          begins[at] = up_to;
        }
        if (threadIdx.x == group - 1) {
          last = up_to;
        }
        __syncthreads();
        before = last;
      }
    }
  };

  // Returns how many of some numbers that rise are passed: a warp looks at 32 of them at a time.
  template <class Passed>
  static __device__ __forceinline__ i64 count_passed(i64 count, Passed is_passed) {
    i64 low = 0, high = count;
    while (low < high) {
      const i64 step = (high - low + 31) / 32, at = low + (threadIdx.x % 32 + 1) * step - 1;
      const unsigned found = __ballot_sync(~0u, at < high && is_passed(at));
      low += __popc(found) * step;
      high = low + step - 1 < high ? low + step - 1 : high;
    }
    return low;
  }

  // Copies items of one segment, which a warp does.
  static __device__ __forceinline__ void copy_run(d_in_t from, d_out_t to, int count) {
    const int lane = threadIdx.x % 32;
    if constexpr (is_plain) {
      constexpr int width = widest / sizeof(d_in_v), word_rows = rows < 2 ? rows : 2;
      const u64 source = reinterpret_cast<u64>(from), target = reinterpret_cast<u64>(to);
      if ((source - target) % widest == 0 && target % sizeof(d_in_v) == 0) {
        const int missing = static_cast<int>((widest - target % widest) % widest / sizeof(d_in_v));
        const int head = missing < count ? missing : count, words = (count - head) / width,
                  tail = head + words * width;
        if (lane < head) {
          to[lane] = from[lane];
        }
        if (lane < count - tail) {
          to[tail + lane] = from[tail + lane];
        }
        const auto* const words_from = reinterpret_cast<const uint4*>(from + head);
        auto* const words_to         = reinterpret_cast<uint4*>(to + head);
        for (int first = lane; first < words; first += 32 * word_rows) {
          uint4 word[word_rows];
#pragma unroll
          for (int r = 0; r < word_rows; ++r) {
            if (first + 32 * r < words) {
              word[r] = __ldcs(words_from + first + 32 * r);
            }
          }
#pragma unroll
          for (int r = 0; r < word_rows; ++r) {
            if (first + 32 * r < words) {
              __stcs(words_to + first + 32 * r, word[r]);
            }
          }
        }
        return;
      }
    }
    constexpr int item_rows = rows;
    for (int first = lane; first < count; first += 32 * item_rows) {
      vector<d_in_v, 1> item[item_rows];
#pragma unroll
      for (int r = 0; r < item_rows; ++r) {
        if (first + 32 * r < count) {
          load<false>(item[r], from + (first + 32 * r));
        }
      }
#pragma unroll
      for (int r = 0; r < item_rows; ++r) {
        if (first + 32 * r < count) {
          to[first + 32 * r] = static_cast<d_out_v>(item[r].item[0]);
        }
      }
    }
  }

  // What is added to a position to find an item in the input, and where it goes.
  struct alignas(16) shift {
    i64 from, to;
  };

  // Copies the items of a tile, from the first to the last, of all items one after another. `own_shifts` is
  // room for a warp's segments.
  static __device__ __forceinline__ void copy_tile(d_in_t in, d_out_t out, starts_t starts, outs_t outs,
                                                   const i64* ends, const i64* begins, i64 num_segments,
                                                   i64 groups, i64 first, int count, shift* own_shifts) {
    const int lane      = threadIdx.x % 32;
    const auto end_of   = [&](i64 segment) { return begins[segment / group] + ends[segment]; };
    const i64 in_groups = count_passed(groups, [&](i64 at) { return begins[at + 1] <= first; }) * group;
    const i64 left      = num_segments - in_groups;
    i64 segment         = in_groups + count_passed(left < group ? left : group,
                                                   [&](i64 at) { return end_of(in_groups + at) <= first; });
    i64 before          = segment > 0 ? end_of(segment - 1) : 0;  // where the first one begins
    int at              = 0;
    while (at < count) {
      bool is_there = segment + lane < num_segments;
      const i64 end = is_there ? end_of(segment + lane) : first + count;
      i64 begin     = __shfl_up_sync(~0u, end, 1);
      begin         = lane == 0 ? before : begin;
      is_there &= begin < end && begin - first < count;  // and has items of the tile
      shift its;
      if (is_there) {
        its = {static_cast<i64>(starts[segment + lane]) - begin + first, first};
        if constexpr (has_outs) {
          its.to += static_cast<i64>(outs[segment + lane]) - begin;
        }
      }
      const int own        = end - first < count ? static_cast<int>(end - first) : count;
      const int stop       = __shfl_sync(~0u, own, 31);
      const unsigned there = __ballot_sync(~0u, is_there);
      if (stop - at >= least_run * __popc(there)) {
        for (unsigned left = there; left != 0; left &= left - 1) {
          const int which = __ffs(static_cast<int>(left)) - 1, behind = __shfl_sync(~0u, own, which);
          copy_run(in + (__shfl_sync(~0u, its.from, which) + at),
                   out + (__shfl_sync(~0u, its.to, which) + at), behind - at);
          at = behind;
        }
      }
      // Shifts of short segments lie side by side.
      __syncwarp();
      if (is_there) {
        own_shifts[__popc(there & ((1u << lane) - 1))] = its;
      }
      __syncwarp();
      for (; at < stop; at += 32 * rows) {
        vector<d_in_v, 1> item[rows];
        unsigned of[rows];  // whose items these are
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          // As many segments end before a lane's item as end before the row, and a bit for each that ends in
          // it: no two of those that have items end in one place.
          const int row = at + 32 * r, place = row + lane, distance = own - row;
          const unsigned passed = __ballot_sync(~0u, is_there && distance <= 0);
          const unsigned ends_in =
              sum_of_lanes(is_there && distance > 0 && distance < 32 ? 1u << distance : 0);
          of[r] = __popc(passed) + __popc(ends_in & ((2u << lane) - 1));
          if (place < stop) {
            load<false>(item[r], in + (own_shifts[of[r]].from + place));
          }
        }
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const int place = at + 32 * r + lane;
          if (place < stop) {
            out[own_shifts[of[r]].to + place] = static_cast<d_out_v>(item[r].item[0]);
          }
        }
      }
      at = stop;
      segment += 32;
      before = __shfl_sync(~0u, end, 31);
    }
  }

  struct cupar_segmented_copy : kernel<threads, Traits::resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, starts_t starts, outs_t outs,
                                               num_items_t num_items, i64 num_segments, const i64* ends,
                                               const i64* begins, i64 groups, i64 most) {
      __shared__ shift shifts[threads / 32][32];
      join_stream();
      const i64 of_all = begins[groups], warps = i64{gridDim.x} * (threads / 32);
      const i64 all = !has_outs && of_all > most ? most : of_all;
      if constexpr (is_told) {
        if (blockIdx.x == 0 && threadIdx.x == 0) {
          num_items[0] = static_cast<typename Traits::d_out_num_items_v>(of_all);
        }
      }
      for (i64 first = (i64{blockIdx.x} * (threads / 32) + threadIdx.x / 32) * tile; first < all;
           first += warps * tile) {
        const int count = all - first < tile ? static_cast<int>(all - first) : tile;
        copy_tile(in, out, starts, outs, ends, begins, num_segments, groups, first, count,
                  shifts[threadIdx.x / 32]);
      }
    }
  };

  static constexpr auto properties = properties_of(threads, tile, is_told);
};
}  // namespace cupar
