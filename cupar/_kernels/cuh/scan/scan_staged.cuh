// Scans of arrays and of tuples of arrays: large ones by tiles that are staged in shared memory, others as
// `scan_quick.cuh` has them.
//
// Traits: what `scan_quick.cuh` and `staged_tiles.cuh` have.
#pragma once

#include "scan/scan_quick.cuh"
#include "scan/staged_tiles.cuh"

namespace cupar {
template <class Traits>
struct scan_staged_kernels : scan_quick_kernels<Traits> {
  using base   = scan_quick_kernels<Traits>;
  using tiles  = staged_scan<Traits, false>;
  using d_in_t = typename Traits::d_in_t;

  struct cupar_scan_clear_staged : kernel<256> {
    static __device__ __forceinline__ void run(uint4* memory, unsigned words) { tiles::clear(memory, words); }
  };

  struct cupar_scan_staged : kernel<tiles::threads, 1> {
    static __device__ __forceinline__ void run(d_in_t d_in, typename Traits::d_out_t d_out, void* memory,
                                               unsigned num_tiles, u64 num_items, typename Traits::op_t op,
                                               typename base::init_t init) {
      tiles::run(d_in, d_out, memory, num_tiles, num_items, 1, op, init);
    }
  };

  static constexpr auto properties = properties_of(
      base::policy.threads_per_block, base::policy.items_per_thread, base::states::description_bytes_per_tile,
      base::states::payload_bytes_per_tile, target, staged<d_in_t>::count, staged<d_in_t>::item_bytes,
      tiles::threads, tiles::fits ? tiles::tile_items : 0, sizeof(typename tiles::known), tiles::shared);
};
}  // namespace cupar
