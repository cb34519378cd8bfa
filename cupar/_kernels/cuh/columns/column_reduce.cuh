// Reductions along columns, without transposing: a thread has consecutive rows of a column, and takes several
// at once. Where columns are few, the warps of a block are stacked along rows; where they are fewer still,
// so are blocks, whose results another kernel combines. All is combined in the order of rows.
//
// Source: ours.
//
// Traits: d_in_t, d_out_t, op_t, accum_t, has_init; the policy: threads, bytes.
#pragma once

#include "columns/columns.cuh"
#include "common/initial.cuh"

namespace cupar {
template <class Traits>
struct column_reduce_kernels {
  using d_in_t                   = typename Traits::d_in_t;
  using d_in_v                   = typename Traits::d_in_v;
  using d_out_t                  = typename Traits::d_out_t;
  using d_out_v                  = typename Traits::d_out_v;
  using op_t                     = typename Traits::op_t;
  using accum_t                  = typename Traits::accum_t;
  static constexpr bool has_init = Traits::has_init;

  using init_t = cuda::std::conditional_t<has_init, accum_t, no_init>;
  using sum_t  = partial_of<accum_t>;

  static constexpr int warps = Traits::policy_threads / 32;
  static constexpr int rows  = rows_of<d_in_v, accum_t>(Traits::policy_bytes);
  // Values that warps exchange lie in shared memory: of larger ones, each has columns of its own.
  static constexpr bool may_stack = sizeof(accum_t) * warps * 32 <= 32 * 1024;

  static __device__ __forceinline__ void finish(d_out_t to, const sum_t& sum, const op_t& op,
                                                const accum_t& init) {
    *to = static_cast<d_out_v>(sum.is_there ? combine(init, sum.value, op) : init);
  }
  static __device__ __forceinline__ void finish(d_out_t to, const sum_t& sum, const op_t&, no_init) {
    if (sum.is_there) {
      *to = static_cast<d_out_v>(sum.value);
    }
  }

  // Reduces a block's share of the rows of its columns. `stacked` is how many warps have one group of
  // columns, `strip_rows` how many rows a strip has, and `part` which of the stacks along rows this is. Tells
  // those threads that have a result: `leave(column, sum)`.
  template <class In, class Leave>
  static __device__ __forceinline__ void reduce(In in, const column_shape& shape, int log_width, int stacked,
                                                i64 first_group, i64 part, i64 strip_rows, const op_t& op,
                                                Leave leave) {
    using item_t = cupar::item_t<In>;
    const lanes lane(log_width);
    const int warp      = threadIdx.x / 32;
    const int in_stack  = warp % stacked;
    const i64 strips    = i64{stacked} * lane.strips;
    const i64 strip     = part * strips + in_stack * lane.strips + lane.strip;
    const i64 column    = ((first_group + warp / stacked) << log_width) + lane.column;
    const bool is_there = column < shape.columns;
    const i64 begin     = strip * strip_rows;
    const i64 end       = begin + strip_rows < shape.length ? begin + strip_rows : shape.length;

    sum_t sum;
    if (is_there) {
      auto from = in + (shape.first(column) + begin * shape.inner);
      for (i64 row = begin; row < end; row += rows, from += rows * shape.inner) {
        column_rows<item_t, rows> now;
        const int count = end - row < rows ? static_cast<int>(end - row) : rows;
        now.load(from, shape.inner, count);
        now.add_to(sum, count, op);
      }
    }
    for (int distance = lane.width(); distance < 32; distance *= 2) {
      const accum_t other = shuffle_down(sum.value, distance);
      const int above     = distance >> log_width;
      if (is_there && lane.strip + above < lane.strips && begin + above * strip_rows < shape.length) {
        sum.add(other, op);
      }
    }
    if constexpr (may_stack) {
      if (stacked > 1) {
        __shared__ accum_t of_warps[warps][32];
        if (lane.strip == 0 && sum.is_there) {
          of_warps[warp][lane.column] = sum.value;
        }
        __syncthreads();
        if (in_stack == 0 && lane.strip == 0 && is_there) {
          const i64 warp_rows = lane.strips * strip_rows;
          for (int i = 1; i < stacked && begin + i * warp_rows < shape.length; ++i) {
            sum.add(of_warps[warp + i][lane.column], op);
          }
        }
      }
    }
    if (in_stack == 0 && lane.strip == 0 && is_there) {
      leave(column, sum);
    }
  }

  struct cupar_column_reduce : kernel<Traits::policy_threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, accum_t* partials, column_shape shape,
                                               int log_width, int stacked, u32 blocks_of_part, i64 strip_rows,
                                               op_t op, init_t init) {
      join_stream();
      const u32 part  = blockIdx.x / blocks_of_part;
      const i64 group = i64{blockIdx.x - part * blocks_of_part} * (warps / stacked);
      reduce(in, shape, log_width, stacked, group, part, strip_rows, op, [&](i64 column, const sum_t& sum) {
        if (partials != nullptr) {
          partials[i64{part} * shape.columns + column] = sum.value;
        } else {
          finish(out + column, sum, op, init);
        }
      });
    }
  };

  // A block for each group of columns.
  struct cupar_column_reduce_partials : kernel<Traits::policy_threads> {
    static __device__ __forceinline__ void run(const accum_t* partials, d_out_t out, column_shape shape,
                                               int log_width, i64 strip_rows, op_t op, init_t init) {
      join_stream();
      if constexpr (may_stack) {
        reduce(partials, shape, log_width, warps, blockIdx.x, 0, strip_rows, op,
               [&](i64 column, const sum_t& sum) { finish(out + column, sum, op, init); });
      }
    }
  };

  static constexpr auto properties =
      properties_of(Traits::policy_threads, rows, may_stack, sizeof(accum_t), has_init);
};
}  // namespace cupar
