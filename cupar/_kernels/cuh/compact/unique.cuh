// Unique by key: the first of each run of equal keys, and the item that goes with it. Items of an iterator
// are not read but for those that stay.
//
// Traits: d_in_keys_t, d_in_items_t, d_out_keys_t, d_out_items_t, d_out_num_selected_t, op_t, has_items
// (false: there are keys only), and what compact.cuh is.
#pragma once

#include "compact/compact.cuh"

namespace cupar {
template <class Traits>
struct unique_kernels : compaction<Traits> {
  using d_in_keys_t               = typename Traits::d_in_keys_t;
  using d_in_items_t              = typename Traits::d_in_items_t;
  using d_in_items_v              = typename Traits::d_in_items_v;
  using d_out_keys_t              = typename Traits::d_out_keys_t;
  using d_out_items_t             = typename Traits::d_out_items_t;
  using d_out_num_selected_t      = typename Traits::d_out_num_selected_t;
  using d_out_num_selected_v      = typename Traits::d_out_num_selected_v;
  using op_t                      = typename Traits::op_t;
  static constexpr bool has_items = Traits::has_items;

  using base = compaction<Traits>;
  using base::threads;
  using base::tile_items;
  using item_t = typename base::item_t;

  using keys_t  = column<d_in_keys_t, item_t, threads, tile_items, 1>;
  using items_t = cuda::std::conditional_t<
      !has_items, no_column,
      cuda::std::conditional_t<is_array<d_in_items_t>,
                               column<d_in_items_t, d_in_items_v, threads, tile_items>, places<tile_items>>>;

  struct cupar_unique : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_keys_t in_keys, d_in_items_t in_items,
                                               d_out_keys_t out_keys, d_out_items_t out_items,
                                               d_out_num_selected_t num_selected, i64 num_items,
                                               op_t is_equal, u64* storage) {
      base::template compact<1>(
          keys_t{in_keys, num_items}, items_t{in_items, num_items}, num_items, storage,
          [&](const item_t& before, const item_t& key) { return !is_equal(before, key); },
          [&](i64 first, int, const auto& before, unsigned count, const item_t* keys, auto items) {
            const i64 begin = before.count[0];
            base::write_items(out_keys + begin, static_cast<int>(count), keys);
            if constexpr (are_places<items_t>) {
              base::write_from(out_items + begin, static_cast<int>(count), in_items + first, items);
            } else if constexpr (has_items) {
              base::write_items(out_items + begin, static_cast<int>(count), items);
            }
          },
          [&](const auto& counts) { num_selected[0] = static_cast<d_out_num_selected_v>(counts.count[0]); });
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, base::template memory_bytes<keys_t, items_t>);
};
}  // namespace cupar
