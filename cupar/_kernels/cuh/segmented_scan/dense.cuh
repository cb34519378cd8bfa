// Scans of segments of a few items, of which a warp has hundreds: as many as follow one another and fit are
// marked in shared memory, a byte for each item, and scanned as tiles. All offsets of 128 segments are on
// their way at once.
//
// Where 32 segments do not follow one another, or are too long together, lanes scan the shortest of them
// themselves, and the warp scans each of the others as a tile's only segment; those that fit into no marks
// are queued.
//
// Source: ours; see `tile.cuh`.
#pragma once

#include "segmented_scan/chunks.cuh"

namespace cupar {
template <class Traits>
struct scan_of_dense : scan_of_chunks<Traits> {
  using start_offsets_in_t          = typename Traits::start_offsets_in_t;
  using end_offsets_in_t            = typename Traits::end_offsets_in_t;
  using start_offsets_out_t         = typename Traits::start_offsets_out_t;
  static constexpr bool has_outputs = Traits::has_outputs;

  using base = scan_of_chunks<Traits>;
  using base::has_init;
  using base::is_inclusive;
  using base::items;
  using base::rows;
  using base::span_of;
  using base::tile_items;
  using typename base::accum_t;
  using typename base::d_in_t;
  using typename base::d_out_t;
  using typename base::d_out_v;
  using typename base::op_t;
  using typename base::span;
  using typename base::tile;
  using typename base::value_t;

  static constexpr int marked_items = 4 * tile_items;
  static constexpr int lane_most    = 16;  // items of a segment that a lane scans

  // Where segments begin in some successive tiles.
  struct alignas(16) head_marks {
    unsigned char at[(marked_items + 15) / 16 * 16];

    __device__ __forceinline__ void clear() {
      __syncwarp();
#pragma unroll
      for (int w = threadIdx.x % 32; w < static_cast<int>(sizeof(at) / 16); w += 32) {
        reinterpret_cast<uint4*>(at)[w] = uint4{0, 0, 0, 0};
      }
      __syncwarp();
    }

    // The bits of a vector's items.
    __device__ __forceinline__ unsigned bits(int position) const {
      unsigned found = 0;
      if constexpr (items % 4 == 0) {
#pragma unroll
        for (int w = 0; w < items / 4; ++w) {
          const unsigned four = reinterpret_cast<const unsigned*>(at + position)[w];
          found |= (four * 0x01020408u >> 24) << 4 * w;  // each byte's bit beside the others'
        }
      } else {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          found |= static_cast<unsigned>(at[position + i]) << i;
        }
      }
      return found;
    }
  };

  // Items whose segments are marked.
  struct marked {
    i64 begin, to;
    int length;
  };

  static __device__ __forceinline__ void scan_marked(d_in_t in, d_out_t out, const marked& its,
                                                     const head_marks& marks, const value_t& init,
                                                     const op_t& op) {
    const span of  = span_of(in + its.begin, out + its.to, its.length);
    const int high = static_cast<int>(of.high);
    value_t last;  // the exclusive prefix of a tile
#pragma unroll 1
    for (int first = 0; first < high; first += tile_items) {
      tile now;
      now.place(static_cast<int>(of.low), high, first);
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        now.heads[r] = marks.bits(first + tile::position(r));
      }
      now.load_items(of.in + first, of.is_wide);
      const value_t before = last;
      now.scan(last, first > 0, init, op);
      now.store_items(of.out + first, of.is_wider, before, init);
    }
  }

  // Takes as many of a warp's segments as follow one another and fit, in groups of 32, and marks where they
  // begin. Returns how many these are.
  static __device__ __forceinline__ int take(marked& its, head_marks& marks, d_in_t in, d_out_t out,
                                             start_offsets_in_t starts, end_offsets_in_t ends,
                                             start_offsets_out_t outputs, i64 index, int count) {
    constexpr int groups = 4;  // whose offsets are loaded at once
    const int lane       = threadIdx.x % 32;
    marks.clear();
    const auto from = static_cast<i64>(starts[index]);
    const i64 to    = has_outputs ? static_cast<i64>(outputs[index]) : from;
    const i64 low   = span_of(in + from, out + to, 0).low;
    i64 end         = from;  // of those that are taken
    int taken       = 0;
    bool is_over    = false;
    while (taken < count && !is_over) {
      i64 begin[groups], finish[groups];
      bool is_like[groups];  // whether it is in the output where it is in the input
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const int at = taken + 32 * g + lane;
        begin[g] = finish[g] = 0;
        is_like[g]           = true;
        if (at < count) {
          begin[g]  = static_cast<i64>(starts[index + at]);
          finish[g] = static_cast<i64>(ends[index + at]);
          if constexpr (has_outputs) {
            is_like[g] = static_cast<i64>(outputs[index + at]) - begin[g] == to - from;
          }
        }
      }
#pragma unroll
      for (int g = 0; g < groups; ++g) {
        const int left = count - taken < 32 ? count - taken : 32;
        if (!is_over && left > 0) {
          const i64 previous = shuffle_up(finish[g], 1), before = lane == 0 ? end : previous;
          const bool fits = begin[g] == before && finish[g] >= before && is_like[g] &&
                            low + finish[g] - from <= marked_items;
          is_over         = !__all_sync(~0u, lane >= left || fits);
          if (!is_over) {
            if (lane < left && finish[g] > before) {
              marks.at[low + before - from] = 1;
            }
            end = shuffle(finish[g], left - 1);
            taken += left;
          }
        }
      }
    }
    its = {from, to, static_cast<int>(end - from)};
    __syncwarp();
    return taken;
  }

  // A lane's segment, item by item.
  static __device__ __forceinline__ void scan_alone(d_in_t from, d_out_t to, int length, const value_t& init,
                                                    const op_t& op) {
    value_t value = init;
#pragma unroll 1
    for (int i = 0; i < length; ++i) {
      const value_t item = static_cast<accum_t>(from[i]), before = value;
      if (has_init || i > 0) {
        value = combine(value, item, op);
      } else {
        value = item;
      }
      to[i] = static_cast<d_out_v>(static_cast<accum_t>(is_inclusive ? value : before));
    }
  }
};
}  // namespace cupar
