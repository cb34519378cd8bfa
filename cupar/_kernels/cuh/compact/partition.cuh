// Three-way partition: items for which a first predicate holds, those for which a second one does, and all
// others, each in their order.
//
// Traits: d_in_t, d_first_part_out_t, d_second_part_out_t, d_unselected_out_t, d_num_selected_out_t,
// select_first_part_op_t, select_second_part_op_t, and what compact.cuh is.
#pragma once

#include "compact/compact.cuh"

namespace cupar {
template <class Traits>
struct partition_kernels : compaction<Traits> {
  using d_in_t                  = typename Traits::d_in_t;
  using d_first_part_out_t      = typename Traits::d_first_part_out_t;
  using d_second_part_out_t     = typename Traits::d_second_part_out_t;
  using d_unselected_out_t      = typename Traits::d_unselected_out_t;
  using d_num_selected_out_t    = typename Traits::d_num_selected_out_t;
  using d_num_selected_out_v    = typename Traits::d_num_selected_out_v;
  using select_first_part_op_t  = typename Traits::select_first_part_op_t;
  using select_second_part_op_t = typename Traits::select_second_part_op_t;

  using base = compaction<Traits>;
  using base::threads;
  using base::tile_items;
  using item_t = typename base::item_t;

  using column_t = column<d_in_t, item_t, threads, tile_items>;

  struct cupar_partition : kernel<threads, base::resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_first_part_out_t first_out,
                                               d_second_part_out_t second_out,
                                               d_unselected_out_t unselected_out,
                                               d_num_selected_out_t num_selected, i64 num_items,
                                               select_first_part_op_t is_first,
                                               select_second_part_op_t is_second, u64* storage) {
      base::template compact<3>(
          column_t{in, num_items}, no_column{0, 0}, num_items, storage,
          [&](const item_t&, const item_t& item) { return is_first(item)    ? 1
                                                          : is_second(item) ? 2
                                                                            : 0; },
          [&](i64 begin, int count, const auto& before, unsigned counts, const item_t* items, auto) {
            const i64 firsts = before.count[0], seconds = before.count[1];
            const int first = base::lower(counts), second = base::upper(counts);
            base::write_items(first_out + firsts, first, items);
            base::write_items(second_out + seconds, second, items + first);
            base::write_items(unselected_out + (begin - firsts - seconds), count - first - second,
                              items + first + second);
          },
          [&](const auto& counts) {
            num_selected[0] = static_cast<d_num_selected_out_v>(counts.count[0]);
            num_selected[1] = static_cast<d_num_selected_out_v>(counts.count[1]);
          });
    }
  };

  static constexpr auto properties =
      properties_of(threads, tile_items, base::template memory_bytes<column_t, no_column>);
};
}  // namespace cupar
