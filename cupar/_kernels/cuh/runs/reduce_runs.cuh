// What reductions by key and run-length encodings are: each run of equal keys becomes the last of its keys,
// and what its values are combined to.
//
// Traits: what runs.cuh has, and d_out_num_runs_v.
#pragma once

#include "runs/runs.cuh"

namespace cupar {
template <class Traits>
struct run_reduction : run_tiles<Traits> {
  using d_out_num_runs_v = typename Traits::d_out_num_runs_v;

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
  using thread_items = typename base::thread_items;

  // Puts the runs side by side that a thread's items end by beginning another.
  template <class Keys, class Op>
  static __device__ __forceinline__ void stage_ended(char* buffer, const thread_items& mine,
                                                     const part_t& prefix, bool has_prefix, const Op& op) {
    key_t* const keys      = base::template staged_keys<Keys>(buffer);
    staged_t* const values = base::template staged_values<Keys>(buffer);
    local_t first          = mine.open;  // of the run that ends first
    if (has_prefix && mine.begins) {
      first = mine.is_begin(0) ? prefix.value : combine(prefix.value, mine.open, op);
    }
    unsigned rank = prefix.count;
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const int before = i > 0 ? i - 1 : 0;
      if (mine.is_begin(i)) {
        keys[rank]   = i > 0 ? mine.key[before] : mine.key_before;
        values[rank] = static_cast<staged_t>(i > 0 && mine.is_closed(before) ? mine.sum[before] : first);
        ++rank;
      }
    }
  }

  // Reduces the runs of all items; the rest is as in `take_runs`.
  template <class Aggregate, class Keys, class Values, class OutUnique, class OutAggregates, class OutCount,
            class Equal, class Op>
  static __device__ __forceinline__ void reduce_runs(Keys in_keys, Values in_values, OutUnique out_unique,
                                                     OutAggregates out_aggregates, OutCount out_count,
                                                     i64 num_items, const Equal& is_equal, const Op& op,
                                                     const accum_t& init, u64* storage) {
    const auto put = [&](i64 run, const key_t& key, const accum_t& value) {
      out_unique[run]     = key;
      out_aggregates[run] = static_cast<Aggregate>(value);
    };
    const auto stage = [&](char* buffer, const thread_items& mine, const part_t& prefix, bool has_prefix,
                           int) { stage_ended<Keys>(buffer, mine, prefix, has_prefix, op); };
    const auto write = [&](i64, int, char* buffer, const whole_t& before, unsigned ended, int first_begin) {
      const key_t* const keys      = base::template staged_keys<Keys>(buffer);
      const staged_t* const values = base::template staged_values<Keys>(buffer);
      const i64 first_run          = static_cast<i64>(before.count) - 1;  // the one that ends first
      unsigned i                   = threadIdx.x;
      if (i == 0) {
        if (ended > 0 && first_run >= 0) {  // the first run of all ends none
          put(first_run, keys[0],
              first_begin == 0 ? before.value : combine(before.value, static_cast<accum_t>(values[0]), op));
        }
        i = threads;
      }
#pragma unroll 4
      for (; i < ended; i += threads) {
        put(first_run + i, keys[i], static_cast<accum_t>(values[i]));
      }
    };
    const auto finish = [&](const whole_t& all) {
      if (all.count > 0) {  // the last run
        put(static_cast<i64>(all.count) - 1, in_keys.in[num_items - 1], all.value);
      }
      out_count[0] = static_cast<d_out_num_runs_v>(all.count);
    };
    base::template take_runs<true>(in_keys, in_values, num_items, storage, is_equal, op, init, stage, write,
                                   finish);
  }
};
}  // namespace cupar
