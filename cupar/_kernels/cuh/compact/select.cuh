// Selection: the items for which a predicate holds, in their order; or those for whose flags it does. Items
// of an iterator that flags choose from are not read but for those that stay.
//
// Traits: d_in_t, d_out_t, d_num_selected_out_t, has_flags, with that d_flags_t, cond_t, and what compact.cuh
// is.
#pragma once

#include "compact/compact.cuh"

namespace cupar {
template <class Traits>
struct select_kernels : compaction<Traits> {
  using d_in_t               = typename Traits::d_in_t;
  using d_in_v               = typename Traits::d_in_v;
  using d_out_t              = typename Traits::d_out_t;
  using d_num_selected_out_t = typename Traits::d_num_selected_out_t;
  using d_num_selected_out_v = typename Traits::d_num_selected_out_v;
  using cond_t               = typename Traits::cond_t;

  using base = compaction<Traits>;
  using base::threads;
  using base::tile_items;
  using item_t = typename base::item_t;

  struct of_items {
    using column_t = column<d_in_t, item_t, threads, tile_items>;
    using others_t = no_column;

    struct by_items : kernel<threads, base::resident> {
      static __device__ __forceinline__ void run(d_in_t in, d_out_t out, d_num_selected_out_t num_selected,
                                                 i64 num_items, cond_t cond, u64* storage) {
        base::template compact<1>(
            column_t{in, num_items}, no_column{0, 0}, num_items, storage,
            [&](const item_t&, const item_t& item) { return static_cast<bool>(cond(item)); },
            [&](i64, int, const auto& before, unsigned count, const item_t* items, auto) {
              base::write_items(out + static_cast<i64>(before.count[0]), static_cast<int>(count), items);
            },
            [&](const auto& counts) {
              num_selected[0] = static_cast<d_num_selected_out_v>(counts.count[0]);
            });
      }
    };
    using kernel_t = by_items;
  };

  template <class Flags>
  struct of_flags {
    using column_t = column<Flags, item_t, threads, tile_items>;
    using others_t = cuda::std::conditional_t<is_array<d_in_t>, column<d_in_t, d_in_v, threads, tile_items>,
                                              places<tile_items>>;

    struct by_flags : kernel<threads, base::resident> {
      static __device__ __forceinline__ void run(d_in_t in, d_out_t out, d_num_selected_out_t num_selected,
                                                 Flags flags, i64 num_items, cond_t cond, u64* storage) {
        base::template compact<1>(
            column_t{flags, num_items}, others_t{in, num_items}, num_items, storage,
            [&](const item_t&, const item_t& flag) { return static_cast<bool>(cond(flag)); },
            [&](i64 first, int, const auto& before, unsigned count, const item_t*, auto items) {
              const i64 begin = before.count[0];
              if constexpr (are_places<others_t>) {
                base::write_from(out + begin, static_cast<int>(count), in + first, items);
              } else {
                base::write_items(out + begin, static_cast<int>(count), items);
              }
            },
            [&](const auto& counts) {
              num_selected[0] = static_cast<d_num_selected_out_v>(counts.count[0]);
            });
      }
    };
    using kernel_t = by_flags;
  };

  // Of traits that have no flags, only the other is asked for.
  template <class T, bool has_flags = T::has_flags>
  struct chosen : of_items {};
  template <class T>
  struct chosen<T, true> : of_flags<typename T::d_flags_t> {};

  struct cupar_select : chosen<Traits>::kernel_t {};

  static constexpr auto properties = properties_of(
      threads, tile_items,
      base::template memory_bytes<typename chosen<Traits>::column_t, typename chosen<Traits>::others_t>);
};
}  // namespace cupar
