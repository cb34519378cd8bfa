// Finds the first item for which a predicate holds. As many blocks as run at once take the tiles in turns, in
// the order of the items; each tells what it has found, asks with each tile what others have, and stops where
// all of its later tiles lie behind that. Each tells once at most: if all threads did, those of a wave of
// tiles that fit would wait for each other.
//
// The last block writes the index. A single block needs no storage. What is found is kept as the distance to
// the end of the items, as 0 then says that nothing is.
//
// Source: ours; CUB's DeviceFind::FindIf reads in this order, too.
//
// Traits: d_in_t, d_out_t, d_out_v, cond_t; is_minus_one: whether -1 says that there is none, in place of
// the number of items; the policy: threads, and rows, the vectors that a thread takes at once.
#pragma once

#include "common/kernel.cuh"
#include "common/last_block.cuh"
#include "common/vectors.cuh"
#include "common/zero.cuh"

namespace cupar {
template <class Traits>
struct find_kernels {
  using d_in_t                  = typename Traits::d_in_t;
  using d_in_v                  = typename Traits::d_in_v;
  using d_out_t                 = typename Traits::d_out_t;
  using d_out_v                 = typename Traits::d_out_v;
  using cond_t                  = typename Traits::cond_t;
  static constexpr int threads  = Traits::threads;
  static constexpr int items    = vector_items<d_in_t>();
  static constexpr bool is_word = has_words<items, d_in_t>;

  // Bytes of a vector in registers: its words, or its items.
  static constexpr int vector_bytes =
      items * (is_word ? arrays_of<d_in_t>::item_bytes : static_cast<int>(sizeof(d_in_v)));
  static constexpr int most_rows = 128 / vector_bytes;
  static constexpr int rows      = Traits::rows < most_rows ? Traits::rows : (most_rows > 0 ? most_rows : 1);
  static constexpr int tile      = threads * rows * items;

  struct state_t {
    u64 to_end;  // from the first item that is found; 0: none
    u64 done;    // blocks
  };

  // Both return the place in a tile of a thread's first item that fits; without one, the tile's length. Items
  // are there before the first is tested, and are tested without branches. Of vectors, which one has an item
  // that fits is found first, and then which item, in memory: that is done once.
  static __device__ __forceinline__ int find_in_vectors(d_in_t in, cond_t& cond) {
    using held_t =
        cuda::std::conditional_t<is_array<d_in_t>, vector<d_in_v, items>, arrays_of_vector<d_in_t>>;
    held_t held[rows];
    const d_in_t own = in + static_cast<int>(threadIdx.x) * items;
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if constexpr (is_array<d_in_t>) {
        load<true>(held[r], own + r * threads * items);
      } else {
        load_words<items>(held[r], own + r * threads * items);
      }
    }
    int row = rows;
#pragma unroll
    for (int r = rows - 1; r >= 0; --r) {
      bool fits       = false;
      const auto test = [&](auto there) {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          fits |= static_cast<bool>(cond(there[i]));
        }
      };
      if constexpr (is_array<d_in_t>) {
        test(&held[r].item[0]);
      } else {
        test(of_words(held[r], own + r * threads * items));
      }
      row = fits ? r : row;
    }
    if (row == rows) {
      return tile;
    }
    int i = 0;
#pragma unroll 1
    while (i + 1 < items && !cond(own[row * threads * items + i])) {
      ++i;
    }
    return (row * threads + static_cast<int>(threadIdx.x)) * items + i;
  }

  static __device__ __forceinline__ int find_in_items(d_in_t in, cond_t& cond) {
    constexpr int at_once = items == 1 ? rows : (rows * items < 8 ? rows * items : 8);
    int place             = tile;
#pragma unroll
    for (int first = rows * items - at_once; first >= 0; first -= at_once) {
      vector<d_in_v, 1> loaded[at_once];
#pragma unroll
      for (int r = 0; r < at_once; ++r) {
        load<false>(loaded[r], in + ((first + r) * threads + static_cast<int>(threadIdx.x)));
      }
#pragma unroll
      for (int r = at_once - 1; r >= 0; --r) {
        place = cond(loaded[r].item[0]) ? (first + r) * threads + static_cast<int>(threadIdx.x) : place;
      }
    }
    return place;
  }

  // The same of a tile that begins before the first item, or ends after the last.
  static __device__ __forceinline__ int find_in_part(d_in_t in, i64 start, i64 num_items, cond_t& cond) {
#pragma unroll 1
    for (int i = threadIdx.x; i < tile; i += threads) {
      if (start + i >= 0 && start + i < num_items && cond(in[start + i])) {
        return i;
      }
    }
    return tile;
  }

  // Finds the first item that fits in a block's tiles, unless others have found one before; returns how far
  // it is from the end, to one thread at least, and 0 to others.
  template <bool in_vectors>
  static __device__ __forceinline__ u64 find(d_in_t in, i64 num_items, i64 beyond, const state_t* state,
                                             cond_t& cond) {
    __shared__ int block_place;
    const i64 stride = i64{gridDim.x} * tile;
    for (i64 start = i64{blockIdx.x} * tile - beyond; start < num_items; start += stride) {
      // The others' result is loaded before the tile, and arrives with it. Volatile, or it is read
      // once.
      u64 known = 0;
      if (state != nullptr && threadIdx.x == 0) {
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(known) : "l"(&state->to_end));
      }
      int place;
      if (start < 0 || start + tile > num_items) {
        place = find_in_part(in, start, num_items, cond);
      } else if constexpr (in_vectors) {
        place = find_in_vectors(in + start, cond);
      } else {
        place = find_in_items(in + start, cond);
      }
      const bool is_behind = num_items - static_cast<i64>(known) < start + stride && known > 0;
      if (__syncthreads_or(place < tile || is_behind)) {
        if (threadIdx.x == 0) {
          block_place = tile;
        }
        __syncthreads();
        if (place < tile) {
          atomicMin(&block_place, place);
        }
        __syncthreads();
        const u64 to_end = block_place < tile ? num_items - (start + block_place) : 0;
        return to_end > known ? to_end : 0;
      }
    }
    return 0;
  }

  static __device__ __forceinline__ void write(d_out_t out, i64 num_items, u64 to_end) {
    const i64 none = Traits::is_minus_one ? -1 : num_items;
    *out           = static_cast<d_out_v>(to_end > 0 ? num_items - static_cast<i64>(to_end) : none);
  }

  using cupar_find_init = zero<u64>;

  struct cupar_find : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, state_t* state, i64 num_items,
                                               cond_t cond) {
      join_stream();
      u64 to_end = 0;
      if constexpr (is_word) {
        const i64 beyond = beyond_vector<items>(in);
        if (cupar::is_aligned<items>(in + (items - beyond) % items)) {
          to_end = find<true>(in, num_items, beyond, state, cond);
        } else {
          to_end = find<false>(in, num_items, 0, state, cond);
        }
      } else {
        to_end = find<false>(in, num_items, 0, state, cond);
      }
      if (state == nullptr) {
        if (threadIdx.x == 0) {
          write(out, num_items, to_end);
        }
        return;
      }
      if (threadIdx.x == 0 && to_end > 0) {
        atomicMax(&state->to_end, to_end);
      }
      if (is_last_block([&] { return atomicAdd(&state->done, u64{1}) + 1 == gridDim.x; }) &&
          threadIdx.x == 0) {
        write(out, num_items, *const_cast<const volatile u64*>(&state->to_end));
      }
    }
  };

  static constexpr auto properties = properties_of(threads, tile);
};
}  // namespace cupar
