// Selection: the items for which a predicate holds, in their order.
//
// Given: d_in_t, d_out_t, d_num_selected_out_t, cond_t, and what compact.cuh is.
#include "compact.cuh"

using namespace cupar;

using column_t = column<d_in_t, item_t>;

extern "C" __global__ __launch_bounds__(threads)
void cupar_select(d_in_t in, d_out_t out, d_num_selected_out_t num_selected, i64 num_items, cond_t cond,
                  u64* storage) {
  compact<1>(
    column_t{in, num_items}, no_column{0, 0}, num_items, storage,
    [&](const item_t&, const item_t& item) { return static_cast<bool>(cond(item)); },
    [&](i64, int, const auto& before, unsigned count, const place_t* list, const item_t* items, auto) {
      write_items(out + static_cast<i64>(before.count[0]), static_cast<int>(count), list, items);
    },
    [&](const auto& counts) { num_selected[0] = static_cast<d_num_selected_out_v>(counts.count[0]); });
}

CUPAR_FACTS(threads, tile_items, memory_bytes<column_t, no_column>)
