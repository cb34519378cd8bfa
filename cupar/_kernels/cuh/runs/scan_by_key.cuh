// Scans by key: each run of equal keys is scanned separately.
//
// Traits: d_in_keys_t, d_in_values_t, d_out_values_t, op_t, equality_op_t, is_inclusive, and what runs.cuh
// has.
#pragma once

#include "runs/runs.cuh"

namespace cupar {
template <class Traits>
struct scan_by_key_kernels : run_tiles<Traits> {
  using d_in_keys_t                  = typename Traits::d_in_keys_t;
  using d_in_values_t                = typename Traits::d_in_values_t;
  using d_in_values_v                = typename Traits::d_in_values_v;
  using d_out_values_t               = typename Traits::d_out_values_t;
  using d_out_values_v               = typename Traits::d_out_values_v;
  using op_t                         = typename Traits::op_t;
  using equality_op_t                = typename Traits::equality_op_t;
  static constexpr bool is_inclusive = Traits::is_inclusive;

  using base = run_tiles<Traits>;
  using base::buffers;
  using base::items;
  using base::threads;
  using base::tile_items;
  using key_t        = typename base::key_t;
  using local_t      = typename base::local_t;
  using accum_t      = typename base::accum_t;
  using staged_t     = typename base::staged_t;
  using part_t       = typename base::part_t;
  using whole_t      = typename base::whole_t;
  using init_t       = typename base::init_t;
  using thread_items = typename base::thread_items;

  using keys_t   = column<d_in_keys_t, key_t, threads, tile_items, 1>;
  using values_t = column<d_in_values_t, d_in_values_v, threads, tile_items>;

  // Puts the scan of a thread's items in their places, those of a run that begins in the tile as they will
  // be. An exclusive scan begins with the initial value, which an inclusive one of the items has combined
  // with their first: so each item takes what the one before it has there, or the initial value.
  template <class Op>
  static __device__ __forceinline__ void stage_scanned(char* buffer, thread_items& mine, const part_t& prefix,
                                                       bool has_prefix, int place, const Op& op,
                                                       const accum_t& init) {
    staged_t* const values = base::template staged_values<keys_t>(buffer) + place;
    local_t before         = prefix.value;
#pragma unroll
    for (int i = 0; i < items; ++i) {
      if (i < mine.count) {
        if (has_prefix && !mine.is_closed(i)) {
          mine.sum[i] = combine(prefix.value, mine.sum[i], op);
        }
        if constexpr (is_inclusive) {
          values[i] = mine.sum[i];
        } else {
          values[i] = mine.is_begin(i) ? init : before;
          before    = mine.sum[i];
        }
      }
    }
  }

  struct cupar_scan_by_key : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_keys_t in_keys, d_in_values_t in_values,
                                               d_out_values_t out_values, i64 num_items, op_t op,
                                               equality_op_t is_equal, init_t given_init, u64* storage) {
      join_stream();
      const accum_t init = initial<accum_t>(given_init);
      base::template take_runs<false>(
          keys_t{in_keys, num_items}, values_t{in_values, num_items}, num_items, storage, is_equal, op, init,
          [&](char* buffer, thread_items& mine, const part_t& prefix, bool has_prefix, int place) {
            stage_scanned(buffer, mine, prefix, has_prefix, place, op, init);
          },
          [&](i64 first, int count, char* buffer, const whole_t& before, unsigned, int first_begin) {
            const staged_t* const values = base::template staged_values<keys_t>(buffer);
            const d_out_values_t out     = out_values + first;
            const int open               = min(count, first_begin);  // items of the open run
            int i                        = threadIdx.x;
#pragma unroll 2
            for (; i < open; i += threads) {
              accum_t value = before.value;
              if (is_inclusive || i > 0) {
                value = combine(before.value, values[i], op);
              }
              out[i] = static_cast<d_out_values_v>(value);
            }
#pragma unroll 4
            for (; i < count; i += threads) {
              out[i] = static_cast<d_out_values_v>(values[i]);
            }
          },
          [](const whole_t&) {});
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, buffers* base::template buffer_bytes<keys_t, values_t>,
                    sizeof(typename run_states<accum_t>::state_t));
};
}  // namespace cupar
