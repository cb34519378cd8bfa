// The items that come first, of each segment: sorted, and of equal keys those that stand first.
//
// - Segments of one tile are for a team, a warp or a block, that selects and sorts in one go.
// - Long segments are cut into tiles. Each tile's first k are candidates; so are those of several tiles'
//   candidates, level by level, until one block has all of a segment. What comes after k items of another
//   tile is no candidate: so most tiles compare their items with one key, and hardly any is written.
// - If k is not much less than a tile, the k-th key is found digit by digit; see `top_k_large.cuh`.
//
// A candidate knows its position, and the candidates of a tile are sorted: so equal keys stay in order.
//
// Source: P. Shanbhag et al., "Efficient Top-K Query Processing on Massively Parallel Hardware", SIGMOD 2018,
// for the candidates of tiles; CUB's DeviceTopK for the digits.
//
// Given: d_in_keys_v, d_in_values_t, d_out_values_t, has_payload, start_offsets_in_t, end_offsets_in_t,
// is_descending; CUPAR_TOP_K_OFFSETS unless segments are rows.
#include "top_k_queue.cuh"

namespace cupar {
// Room for k candidates of each tile.
struct candidates {
  u32* counts;
  bits* keys;
  i64* positions;
};

// Writes what a segment has on the stage; `position_of` tells where in the input the item of a place is.
template <int size, class Position>
__device__ __forceinline__ void write_first(const team<size>& its, const top_arrays& given,
                                            d_in_values_t values_in, d_out_values_t values_out, i64 segment,
                                            const top_word* stage, i64 count, Position position_of) {
  count = count < given.k ? count : given.k;
  for (int i = its.thread(); i < count; i += size) {
    const i64 from = position_of(top_place(stage[i])), to = segment * given.k + i;
    given.keys_out[to] = given.keys_in[from];
    if constexpr (has_payload) {
      values_out[to] = values_in[from];
    }
  }
}

// Segments of a list, for a team each.
template <int size, int items, int together>
__device__ __forceinline__ void top_of_short(const top_arrays& given, const d_in_values_t& values_in,
                                             d_out_values_t values_out, const start_offsets_in_t& starts,
                                             const end_offsets_in_t& ends, i64 num_segments,
                                             const lists& from, int list, u32 room) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ u32 sums[2 * team<size>::warps], cursor;
  const int teams       = blockDim.x / size;
  top_word* const stage = reinterpret_cast<top_word*>(shared) + threadIdx.x / size * room;
  team<size> its{sums, 0};
  const i64 count = from.count(list, num_segments);
  for (i64 at = i64{blockIdx.x} * teams + threadIdx.x / size; at < count; at += i64{gridDim.x} * teams) {
    const i64 segment = from.segment(list, at), begin = static_cast<i64>(starts[segment]);
    const int length = static_cast<int>(static_cast<i64>(ends[segment]) - begin);
    const u32 wanted = given.k < length ? static_cast<u32>(given.k) : length;
    ranked keys[items];
    const u32 valid = load_items<size, items, together>(keys, given.keys_in + begin, length, its.thread());
    const u32 found = sort_first<size, together>(its, keys, valid, last_ranked, wanted, room, stage, &cursor);
    write_first(its, given, values_in, values_out, segment, stage, found,
                [begin](u32 place) { return begin + place; });
    its.wait();
  }
}

}  // namespace cupar

using namespace cupar;

#ifdef CUPAR_TOP_K_OFFSETS
// Writes the lists: of segments for warps, for blocks, and of long ones.
extern "C" __global__ __launch_bounds__(256) void cupar_top_k_list(start_offsets_in_t starts,
                                                                   end_offsets_in_t ends, i64 num_segments,
                                                                   const __grid_constant__ lists to) {
  write_lists(starts, ends, num_segments, to, [](i64 length) {
    return (length > 32 * few_items) + (length > 32 * warp_items) + (length > tile);
  });
}
#endif

// For a list, of segments of so many items at most.
#define CUPAR_TOP_OF_SHORT(name, block, size, items, together, list)                                    \
  extern "C" __global__ __launch_bounds__(block) void cupar_top_k_##name(                               \
      top_arrays given, d_in_values_t values_in, d_out_values_t values_out, start_offsets_in_t starts,  \
      end_offsets_in_t ends, i64 num_segments, const __grid_constant__ lists from, u32 room) {          \
    join_stream();                                                                                      \
    top_of_short<size, items, together>(given, values_in, values_out, starts, ends, num_segments, from, \
                                        list, room);                                                    \
  }

CUPAR_TOP_OF_SHORT(few, warp_threads, 32, few_items, few_together, 0)
CUPAR_TOP_OF_SHORT(warp, warp_threads, 32, warp_items, together, 1)
CUPAR_TOP_OF_SHORT(block, block_threads, block_threads, block_items, together, 2)

// Each tile's candidates.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_candidates(top_arrays given,
                                                                                   tile_queue q,
                                                                                   candidates to, u32 room) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ u32 sums[2 * team<block_threads>::warps], cursor;
  __shared__ ranked shared_bound;
  top_word* const stage = reinterpret_cast<top_word*>(shared);
  team<block_threads> its{sums, 0};
  const u32 k = static_cast<u32>(given.k);
  join_stream();
  const u32 total = q.tiles();
  for (u32 t = blockIdx.x; t < total; t += gridDim.x) {
    const u32 segment = q.segment_of[t];
    if (segment == no_entry) {
      continue;
    }
    tiled_segment* const own = q.segments + segment;
    if (threadIdx.x == 0) {  // others lower it
      shared_bound = static_cast<ranked>(*static_cast<volatile u64*>(&own->bound));
    }
    const i64 before = i64{t - own->first} * tile, begin = own->begin + before, left = own->length - before;
    ranked keys[block_items];
    const u32 valid = load_items<block_threads, block_items, together>(
        keys, given.keys_in + begin, left < tile ? static_cast<int>(left) : tile, threadIdx.x);
    __syncthreads();
    const ranked bound = shared_bound;
    const u32 found = sort_first<block_threads, together>(its, keys, valid, bound, k, room, stage, &cursor);
    const u32 kept  = found < k ? found : k;
    for (u32 i = threadIdx.x; i < kept; i += block_threads) {
      to.keys[u64{t} * k + i]      = static_cast<bits>(ranked_of(stage[i]));
      to.positions[u64{t} * k + i] = begin + top_place(stage[i]);
    }
    if (threadIdx.x == 0) {
      to.counts[t] = kept;
      if (found >= k && ranked_of(stage[k - 1]) < bound) {
        atomicMin(&own->bound, u64{ranked_of(stage[k - 1])});
      }
    }
    __syncthreads();
  }
}

// A level: of each `stride` tiles, the candidates that `group` of them have become those of the first. Where
// that is all of a segment, they are its result.
extern "C" __global__ __launch_bounds__(block_threads) void cupar_top_k_level(
    top_arrays given, d_in_values_t values_in, d_out_values_t values_out, tile_queue q, candidates all,
    u64 stride, u32 group, u32 room) {
  constexpr int most = block_items / 4;  // candidates that a thread writes: k is a quarter of a tile at most
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ u32 sums[2 * team<block_threads>::warps], cursor;
  top_word* const stage = reinterpret_cast<top_word*>(shared);
  team<block_threads> its{sums, 0};
  const u32 k    = static_cast<u32>(given.k);
  const u64 step = stride / group;  // from one to the next
  join_stream();
  const u32 total = q.tiles();
  for (u64 base = u64{blockIdx.x} * 32; base < total; base += u64{gridDim.x} * 32) {
    // Each warp finds out which of 32 tiles are the first.
    const u64 lanes = base + threadIdx.x % 32;
    bool is_first   = false;
    if (lanes < total && q.segment_of[lanes] != no_entry) {
      const tiled_segment& its_segment = q.segments[q.segment_of[lanes]];
      is_first = (lanes - its_segment.first) % stride == 0 && its_segment.tiles > step;
    }
    for (u32 firsts = __ballot_sync(~0u, is_first); firsts != 0; firsts &= firsts - 1) {
      const u64 t              = base + __ffs(firsts) - 1;
      const tiled_segment& own = q.segments[q.segment_of[t]];
      const u64 behind         = own.tiles - (t - own.first);
      ranked keys[block_items];
      u32 valid = 0;
#pragma unroll
      for (int i = 0; i < block_items; ++i) {
        const u32 place = place_of_item<block_threads, 1>(threadIdx.x, i);
        const u32 from = place / k, at = place - from * k;
        const bool is_there = from < group && from * step < behind && at < all.counts[t + from * step];
        keys[i]             = is_there ? ranked{all.keys[(t + from * step) * k + at]} : last_ranked;
        valid |= static_cast<u32>(is_there) << i;
      }
      const u32 found = sort_first<block_threads, 1>(its, keys, valid, static_cast<ranked>(own.bound), k,
                                                     room, stage, &cursor);
      const auto position_of = [&](u32 place) {
        return all.positions[(t + place / k * step) * k + place % k];
      };
      if (own.tiles <= stride) {
        write_first(its, given, values_in, values_out, own.segment, stage, found, position_of);
      } else {
        // They take the place of what they are read from: so all are read first.
        const u32 kept = found < k ? found : k;
        i64 positions[most];
#pragma unroll
        for (int i = 0; i < most; ++i) {
          const u32 at = i * block_threads + threadIdx.x;
          positions[i] = at < kept ? position_of(top_place(stage[at])) : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < most; ++i) {
          const u32 at = i * block_threads + threadIdx.x;
          if (at < kept) {
            all.keys[t * k + at]      = static_cast<bits>(ranked_of(stage[at]));
            all.positions[t * k + at] = positions[i];
          }
        }
        if (threadIdx.x == 0) {
          all.counts[t] = kept;
        }
      }
      __syncthreads();
    }
  }
}

#include "top_k_large.cuh"

CUPAR_FACTS(block_threads, tile, 32 * warp_items, sizeof(tiled_segment), sizeof(bits), sizeof(top_word),
            digit_threads, tile_items, sizeof(long_segment))
