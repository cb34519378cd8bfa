// Scans along columns, without transposing: a thread has a column, whose next rows it loads while it works on
// some. Where columns are few, the warps of a block are stacked along rows, as tiles of the columns that
// their lanes have: they exchange what their rows reduce to. Where such groups of columns are few, too,
// several blocks take the tiles of a group in turn: each publishes what its tile reduces to, and adds up,
// from left to right, those between its last tile and this one. So results do not depend on timing.
//
// A block draws its tiles from the group's counter. It waits only for tiles that were drawn before its own,
// by blocks that run, so it does not matter how many run at once.
//
// Source: ours.
//
// Traits: d_in_t, d_out_t, op_t, accum_t; is_inclusive; init_is_value, init_is_on_device (neither: there is
// none); the policy: threads, bytes, tall_bytes, split_warps, split_bytes, split_resident, many.
#pragma once

#include "columns/columns.cuh"
#include "common/initial.cuh"
#include "common/published.cuh"
#include "common/zero.cuh"

namespace cupar {
template <class Traits>
struct column_scan_kernels {
  using d_in_t                       = typename Traits::d_in_t;
  using d_in_v                       = typename Traits::d_in_v;
  using d_out_t                      = typename Traits::d_out_t;
  using d_out_v                      = typename Traits::d_out_v;
  using op_t                         = typename Traits::op_t;
  using accum_t                      = typename Traits::accum_t;
  static constexpr bool is_inclusive = Traits::is_inclusive;
  static constexpr bool has_init     = Traits::init_is_value || Traits::init_is_on_device;

  using init_t  = init_parameter<accum_t, Traits::init_is_value, Traits::init_is_on_device>;
  using sum_t   = partial_of<accum_t>;
  using known_t = published<accum_t>;

  static constexpr int size = sizeof(accum_t);

  // Values of blocks lie in shared memory: larger ones are left to threads that have a column each.
  static constexpr int rows        = rows_of<d_in_v, accum_t>(Traits::policy_bytes);
  static constexpr int tall_warps  = size <= 16 ? 32 : 0;
  static constexpr int tall_rows   = rows_of<d_in_v, accum_t>(Traits::policy_tall_bytes);
  static constexpr int split_warps = size <= 32 ? Traits::policy_split_warps : 0;
  static constexpr int split_rows  = rows_of<d_in_v, accum_t>(Traits::policy_split_bytes);
  static constexpr int each        = size <= 8 ? 4 : size <= 16 ? 2 : 1;  // tiles that a thread looks at

  static __device__ __forceinline__ sum_t initial(no_init) { return {}; }
  static __device__ __forceinline__ sum_t initial(const accum_t& init) { return {init, true}; }
  static __device__ __forceinline__ sum_t initial(const accum_t* init) { return {*init, true}; }

  // Scans the first of some rows, at least one, beginning with their prefix.
  template <int rows>
  static __device__ __forceinline__ void scan(sum_t& sum, const column_rows<d_in_v, rows>& given, d_out_t to,
                                              i64 inner, int count, const op_t& op) {
    inner            = unknown(inner);
    const auto store = [&] { *to = static_cast<d_out_v>(sum.value); };
    if constexpr (!is_inclusive) store();
    sum.add(static_cast<accum_t>(given.item[0]), op);
    if constexpr (is_inclusive) store();
#pragma unroll
    for (int r = 1; r < rows; ++r) {
      to += inner;
      if (r < count) {
        if constexpr (!is_inclusive) store();
        sum.value = combine(sum.value, static_cast<accum_t>(given.item[r]), op);
        if constexpr (is_inclusive) store();
      }
    }
  }

  struct cupar_column_scan_threads : kernel<Traits::policy_threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, column_shape shape, op_t op,
                                               init_t init) {
      join_stream();
      const i64 column = i64{blockIdx.x} * blockDim.x + threadIdx.x;
      if (column >= shape.columns) {
        return;
      }
      const i64 first = shape.first(column);
      sum_t sum       = initial(init);
      column_rows<d_in_v, rows> next;
      next.load(in + first, shape.inner, shape.count(0, rows));
      for (i64 row = 0; row < shape.length; row += rows) {
        const column_rows<d_in_v, rows> now = next;
        next.load(in + (first + (row + rows) * shape.inner), shape.inner, shape.count(row + rows, rows));
        scan<rows>(sum, now, out + (first + row * shape.inner), shape.inner, shape.count(row, rows), op);
      }
    }
  };

  // Waits for the states of a number of tiles of a column. All that is lacking is loaded at once.
  static __device__ __forceinline__ void wait_for(accum_t* value, const known_t* of_tiles, int width,
                                                  int count) {
    unsigned lacking = (1u << count) - 1;
    while (__any_sync(~0u, lacking != 0)) {
      typename known_t::copy found[each];
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (lacking >> i & 1) {
          found[i] = of_tiles[i * width].read();
        }
      }
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (lacking >> i & 1) {
          found[i].arrive();
        }
      }
#pragma unroll
      for (int i = 0; i < each; ++i) {
        if (lacking >> i & 1 && found[i].is_there()) {
          value[i * width] = found[i].value();
          lacking &= ~(1u << i);
        }
      }
    }
  }

  // Scans a group of columns, or if it is split those of its tiles that the counter gives this block.
  template <int warps, int rows, bool may_be_split>
  static __device__ __forceinline__ void scan_group(d_in_t in, d_out_t out, const column_shape& shape,
                                                    i64 group, int log_width, bool is_split,
                                                    known_t* of_tiles, unsigned* counter, const op_t& op,
                                                    init_t init) {
    __shared__ accum_t of_warps[2][warps][32];
    __shared__ accum_t of_gap[may_be_split ? warps * 32 * each : 1];
    __shared__ unsigned drawn[2];

    const lanes lane(may_be_split ? log_width : 5);
    const int warp         = threadIdx.x / 32;
    const int stride       = lane.strips * rows;  // rows of a warp in a tile
    const int own          = warp * stride + lane.strip * rows;
    const int tile_rows    = warps * stride;
    const i64 in_strips    = (shape.length + warps * rows - 1) / (warps * rows);
    const auto tiles       = static_cast<unsigned>((in_strips + lane.strips - 1) >> (5 - lane.log_width));
    const i64 column       = (group << lane.log_width) + lane.column;
    const bool is_there    = column < shape.columns;
    const i64 first        = is_there ? shape.first(column) : 0;
    known_t* const of_lane = may_be_split ? of_tiles + lane.column : nullptr;

    unsigned tile = 0;
    if (may_be_split && is_split) {
      if (threadIdx.x == 0) {
        drawn[0] = atomicAdd(counter, 1u);
      }
      __syncthreads();
      tile = drawn[0];
      __syncthreads();
    }
    unsigned seen = 0;  // tiles that `sum` is made of
    sum_t sum     = initial(init);
    column_rows<d_in_v, rows> next;
    const auto load = [&](unsigned of) {
      const i64 row = i64{of} * tile_rows + own;
      next.load(in + (first + row * shape.inner), shape.inner, shape.count(row, rows, is_there));
    };
    load(tile);
    for (int parity = 0; tile < tiles; parity ^= 1) {
      const i64 row   = i64{tile} * tile_rows + own;
      const int count = shape.count(row, rows, is_there);
      sum_t strip;
      if (count > 0) {
        next.add_to(strip, count, op);
      }
      for (int distance = lane.width(); distance < 32; distance *= 2) {
        const accum_t other = shuffle_up(strip.value, distance);
        if (count > 0 && static_cast<int>(threadIdx.x % 32) >= distance) {
          strip.value = combine(other, strip.value, op);
        }
      }
      // The last strip that has rows has what its warp's reduce to.
      if (count > 0 && (lane.strip == lane.strips - 1 || row + rows >= shape.length)) {
        of_warps[parity][warp][lane.column] = strip.value;
      }
      const accum_t below = shuffle_up(strip.value, lane.width() % 32);
      if (may_be_split && is_split && threadIdx.x == 0) {
        drawn[parity ^ 1] = atomicAdd(counter, 1u);
      }
      __syncthreads();
      const unsigned following = may_be_split && is_split ? drawn[parity ^ 1] : tile + 1;

      const i64 left   = shape.length - i64{tile} * tile_rows;
      const int filled = !is_there           ? 0
                         : left >= tile_rows ? warps
                                             : (static_cast<int>(left) + stride - 1) / stride;
      accum_t total, before;
      if (filled > 0) {
        total = of_warps[parity][0][lane.column];
      }
#pragma unroll 8
      for (int i = 1; i < warps; ++i) {
        if (i < filled) {
          if (i == warp) {
            before = total;
          }
          total = combine(total, of_warps[parity][i][lane.column], op);
        }
      }
      if (may_be_split && is_split && warp == warps - 1 && lane.strip == 0 && is_there && tile + 1 < tiles) {
        of_lane[static_cast<i64>(tile) * lane.width()].publish(total);
      }
      const column_rows<d_in_v, rows> now = next;
      if (following < tiles) {
        load(following);
      }
      if constexpr (may_be_split) {
        const int part = (warp * lane.strips + lane.strip) * each;
        while (seen < tile) {
          const int most  = warps * lane.strips * each;
          const int count = tile - seen < static_cast<unsigned>(most) ? static_cast<int>(tile - seen) : most;
          const int own   = count - part < 0 ? 0 : count - part < each ? count - part : each;
          wait_for(&of_gap[part * lane.width() + lane.column],
                   of_lane + static_cast<i64>(seen + part) * lane.width(), lane.width(), is_there ? own : 0);
          __syncthreads();
          if (is_there) {
#pragma unroll 4
            for (int i = 0; i < count; ++i) {
              sum.add(of_gap[i * lane.width() + lane.column], op);
            }
          }
          seen += count;
          __syncthreads();
        }
      }
      if (count > 0) {
        sum_t up_to = sum;
        if (warp > 0) {
          up_to.add(before, op);
        }
        if (lane.strip > 0) {
          up_to.add(below, op);
        }
        scan<rows>(up_to, now, out + (first + row * shape.inner), shape.inner, count, op);
      }
      if (is_there) {
        sum.add(total, op);
      }
      seen = tile + 1;
      tile = following;
    }
  }

  // A block for each group of 32 columns.
  struct cupar_column_scan_tall : kernel<tall_warps == 0 ? 32 : tall_warps * 32, 1> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, column_shape shape, op_t op,
                                               init_t init) {
      join_stream();
      if constexpr (tall_warps > 0) {
        scan_group<tall_warps, tall_rows, false>(in, out, shape, blockIdx.x, 5, false, nullptr, nullptr, op,
                                                 init);
      }
    }
  };

  // A smaller one, or several of these.
  struct cupar_column_scan_split
      : kernel<split_warps == 0 ? 32 : split_warps * 32, Traits::policy_split_resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, column_shape shape, int log_width,
                                               int groups, known_t* of_tiles, i64 known_of_group,
                                               unsigned* counters, op_t op, init_t init) {
      join_stream();
      if constexpr (split_warps > 0) {
        const int group = static_cast<int>(blockIdx.x) % groups;
        scan_group<split_warps, split_rows, true>(in, out, shape, group, log_width, of_tiles != nullptr,
                                                  of_tiles + group * known_of_group, counters + group, op,
                                                  init);
      }
    }
  };

  struct cupar_column_scan_init : zero<u64> {};

  // Kernels that are left out are never launched; a graph is made for them, too.
  static constexpr auto properties =
      properties_of(Traits::policy_threads, tall_warps > 0 ? 32 * tall_warps : 32,
                    tall_warps > 0 ? tall_rows : 0, split_warps > 0 ? 32 * split_warps : 32,
                    split_warps > 0 ? split_rows : 0, sizeof(known_t), Traits::policy_many);
};
}  // namespace cupar
