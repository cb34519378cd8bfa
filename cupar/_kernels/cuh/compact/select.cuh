// Selection: the items for which a predicate holds, in their order.
//
// Traits: d_in_t, d_out_t, d_num_selected_out_t, cond_t, and what compact.cuh is.
#pragma once

#include "compact/compact.cuh"

namespace cupar {
template <class Traits>
struct select_kernels : compaction<Traits> {
  using d_in_t               = typename Traits::d_in_t;
  using d_out_t              = typename Traits::d_out_t;
  using d_num_selected_out_t = typename Traits::d_num_selected_out_t;
  using d_num_selected_out_v = typename Traits::d_num_selected_out_v;
  using cond_t               = typename Traits::cond_t;

  using base = compaction<Traits>;
  using base::threads;
  using base::tile_items;
  using item_t = typename base::item_t;

  using column_t = column<d_in_t, item_t, threads, tile_items>;

  struct cupar_select : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, d_num_selected_out_t num_selected,
                                               i64 num_items, cond_t cond, u64* storage) {
      base::template compact<1>(
          column_t{in, num_items}, no_column{0, 0}, num_items, storage,
          [&](const item_t&, const item_t& item) { return static_cast<bool>(cond(item)); },
          [&](i64, int, const auto& before, unsigned count, const item_t* items, auto) {
            base::write_items(out + static_cast<i64>(before.count[0]), static_cast<int>(count), items);
          },
          [&](const auto& counts) { num_selected[0] = static_cast<d_num_selected_out_v>(counts.count[0]); });
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, base::template memory_bytes<column_t, no_column>);
};
}  // namespace cupar
