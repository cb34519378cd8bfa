// Reduction. A thread takes several vectors of items at once, so that enough bytes are on their way from
// memory, combines them, and goes on to those of its block's next tile; what the threads of a block have is
// combined by shuffles. So does a grid of blocks, whose results another block combines, or one block alone,
// which may be a large one: it reads 64 kB quicker than two kernels do. What stands before the first vector
// of an array and after the last goes one by one.
//
// Source: ours. The grid, how tiles are dealt out to it, and adding up in any order are those of CUB's
// DeviceReduce.
//
// Traits: d_in_t, d_out_t, op_t, accum_t, has_init, is_stable (false: blocks add their results to d_out in
// any order), is_ordered (items are combined in their order, by warps that have a share each); the policy:
// threads, and rows, the vectors that a thread takes at once.
#pragma once

#include "common/combining.cuh"
#include "common/initial.cuh"
#include "common/kernel.cuh"
#include "common/vectors.cuh"

namespace cupar {
constexpr i64 least(i64 a, i64 b) {
  return a < b ? a : b;
}

template <class T>
__device__ __forceinline__ void add_atomically(T* to, T value) {
  if constexpr (cuda::std::is_same_v<T, i64>) {
    atomicAdd(reinterpret_cast<u64*>(to), static_cast<u64>(value));
  } else {
    atomicAdd(to, value);
  }
}

template <class Traits>
struct reduce_kernels {
  using d_in_t                     = typename Traits::d_in_t;
  using d_in_v                     = typename Traits::d_in_v;
  using d_out_t                    = typename Traits::d_out_t;
  using d_out_v                    = typename Traits::d_out_v;
  using op_t                       = typename Traits::op_t;
  using accum_t                    = typename Traits::accum_t;
  static constexpr bool has_init   = Traits::has_init;
  static constexpr bool is_stable  = Traits::is_stable;
  static constexpr bool is_ordered = Traits::is_ordered;
  static constexpr int threads     = Traits::threads;

  using value_t = combined<op_t, accum_t>;

  using init_t = cuda::std::conditional_t<has_init, accum_t, no_init>;

  static constexpr int items = vector_items<d_in_t>();
  // Of tuples of arrays' items a thread has fewer at once, but for whole tiles of those that are made of
  // words.
  static constexpr int tuple_rows = 128 / (items * static_cast<int>(sizeof(d_in_v)));
  static constexpr int most_rows =
      is_array<d_in_t> || items == 1 ? Traits::rows : (tuple_rows > 0 ? tuple_rows : 1);
  static constexpr int small_rows = Traits::rows < most_rows ? Traits::rows : most_rows;
  static constexpr int whole_rows = 32 / items > small_rows ? 32 / items : small_rows;
  static constexpr int rows       = is_ordered || !is_made_of_words<value_t, items, d_in_t> ? small_rows
                                    : Traits::rows < whole_rows                             ? Traits::rows
                                                                                            : whole_rows;

  static constexpr int large_threads = sizeof(accum_t) <= 16 ? 1024 : threads;  // or registers are short
  static constexpr int large_bytes   = 64 * 1024;

  // What one block takes: as much as it can have on its way, or more of an array.
  static constexpr int in_one_tile    = large_threads * items * small_rows;
  static constexpr int in_large_bytes = is_array<d_in_t> ? large_bytes / static_cast<int>(sizeof(d_in_v)) : 0;
  static constexpr int large_items    = in_one_tile > in_large_bytes ? in_one_tile : in_large_bytes;

  // Combines the values of a warp's first lanes; the first lane has the result.
  static __device__ __forceinline__ value_t reduce_warp(value_t value, int valid_lanes, const op_t& op) {
#pragma unroll unrolled < value_t>
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const value_t other = shuffle_down(value, lanes);
      if (static_cast<int>(threadIdx.x % 32) + lanes < valid_lanes) {
        value = op(value, other);
      }
    }
    return value;
  }

  // Combines the values of a block's first threads; the first thread has the result.
  static __device__ __forceinline__ value_t reduce_block(value_t value, int valid_threads, const op_t& op) {
    value = reduce_warp(value, valid_threads - static_cast<int>(threadIdx.x / 32) * 32, op);
    return reduce_warps(value, (valid_threads + 31) / 32, op);
  }

  // Combines the values of the first lanes of the first warps.
  static __device__ __forceinline__ value_t reduce_warps(value_t value, int warps, const op_t& op) {
    __shared__ value_t of_warps[large_threads / 32];
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
      of_warps[warp] = value;
    }
    __syncthreads();
    if (warp == 0) {
      if (static_cast<int>(threadIdx.x) < warps) {
        value = of_warps[threadIdx.x];
      }
      value = reduce_warp(value, warps, op);
    }
    return value;
  }

  // Adds a thread's vectors of a tile, from one on.
  template <bool aligned, int items, int rows, class It>
  static __device__ __forceinline__ void add_some(partial_of<value_t>& sum, It from, unsigned int at,
                                                  unsigned int count, const op_t& op) {
    vector<item_t<It>, items> loaded[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const unsigned int i = at + r * blockDim.x;
      if (i < count) {
        load<aligned>(loaded[r], from + i * items);
      }
    }
    if (at < count) {
      value_t part = reduce_thread<value_t, accum_t, items>(loaded[0].item, op);
#pragma unroll
      for (int r = 1; r < rows; ++r) {
        if (at + r * blockDim.x < count) {
          part = op(part, reduce_thread<value_t, accum_t, items>(loaded[r].item, op));
        }
      }
      sum.add(part, op);
    }
  }

  // Adds a block's whole tiles, item by item; returns the first vector of its next tile. While items are made
  // of the words of one tile, those of the next are not on their way.
  template <int items, int rows, class It>
  static __device__ __forceinline__ i64 add_whole_tiles(partial_of<value_t>& sum, It in, i64 first,
                                                        i64 vectors, const op_t& op) {
    constexpr int tile = rows * threads;
    if (vectors - first < tile) {
      return first;
    }
    rows_of_words<items, rows, It> words;
    It own        = in + (first + threadIdx.x) * items;
    const auto at = [&](int r) { return own + r * threads * items; };
    words.load(at);
    while (true) {
      sum.add(words.template combine<value_t, accum_t>(at, op), op);
      first += i64{gridDim.x} * tile;
      own += i64{gridDim.x} * (tile * items);
      if (vectors - first < tile) {
        return first;
      }
      words.load(at);
    }
  }

  // Combines a block's share of the items: every so many tiles of vectors, and, if it is one of the last
  // blocks, of the items that are in no vector. No block is without a share if there are as many as tiles of
  // items at most. The result is the first thread's; without items there is none.
  template <int items, int rows, class It>
  static __device__ __forceinline__ value_t reduce(It in, i64 num_items, int tile, const op_t& op) {
    i64 before      = 0;
    bool is_aligned = true;
    if constexpr (arrays_of<It>::widest > 0) {
      before     = least(num_items, (items - beyond_vector<items>(in)) % items);
      is_aligned = cupar::is_aligned<items>(in + before);
    }
    const i64 vectors = is_array<It> && !is_aligned ? 0 : (num_items - before) / items;
    const i64 singles = num_items - vectors * items;

    partial_of<value_t> sum;
    const i64 first_tile = i64{blockIdx.x} * tile;
    const auto add_tiles = [&](auto aligned) {
      i64 first = first_tile;
      if constexpr (is_made_of_words<value_t, items, It> && decltype(aligned)::value) {
        if (blockDim.x == threads && tile == rows * threads) {
          first = add_whole_tiles<items, rows>(sum, in + before, first, vectors, op);
        }
      }
      for (; first < vectors; first += i64{gridDim.x} * tile) {
        const auto count = static_cast<unsigned int>(least(vectors - first, tile));
        const It from    = in + before + first * items;
        if constexpr (rows == small_rows || is_array<It>) {
          add_some<decltype(aligned)::value, items, rows>(sum, from, threadIdx.x, count, op);
        } else {
#pragma unroll 1
          for (unsigned int at = threadIdx.x; at < count; at += small_rows * blockDim.x) {
            add_some<decltype(aligned)::value, items, small_rows>(sum, from, at, count, op);
          }
        }
      }
    };
    if (is_array<It> || is_aligned) {
      add_tiles(cuda::std::true_type{});
    } else if constexpr (!is_array<It> && (items > 1 || has_words<items, It>)) {
      add_tiles(cuda::std::false_type{});
    }
    const i64 first_single = i64{gridDim.x - 1 - blockIdx.x} * blockDim.x;
    if constexpr (items > 1 || (is_word<array_bytes<It>> && sizeof(item_t<It>) > alignof(item_t<It>))) {
#pragma unroll 1
      for (i64 i = first_single + threadIdx.x; i < singles; i += i64{gridDim.x} * blockDim.x) {
        sum.add(static_cast<accum_t>(in[i < before ? i : i + vectors * items]), op);
      }
    }
    const i64 share =
        vectors - first_tile > singles - first_single ? vectors - first_tile : singles - first_single;
    return reduce_block(sum.value, static_cast<int>(least(share, blockDim.x)), op);
  }

  // The largest power of two up to a number of rows.
  template <int rows>
  static constexpr int ordered_rows() {
    int power = 1;
    while (power * 2 <= rows) {
      power *= 2;
    }
    return power;
  }

  // Adds rows of a warp to what its first lane has.
  template <bool aligned, int items, int rows, class It>
  static __device__ __forceinline__ void add_rows(partial_of<value_t>& sum, It in, i64 num_items, i64 beyond,
                                                  i64 first, i64 last, const op_t& op) {
    constexpr int row_items = 32 * items;
    const int lane          = threadIdx.x % 32;
    for (i64 row = first; row < last;) {
      const i64 start = row * row_items - beyond;
      const i64 own   = start + lane * items;
      value_t value;
      if (start >= 0 && row + rows <= last && start + rows * row_items <= num_items) {
        vector<item_t<It>, items> loaded[rows];
        value_t of_rows[rows];
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          load<aligned>(loaded[r], in + (own + r * row_items));
        }
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          of_rows[r] = reduce_thread<value_t, accum_t, items>(loaded[r].item, op);
        }
        value = reduce_rows(of_rows, op);
        row += rows;
      } else {
        if (own >= 0 && own + items <= num_items) {
          vector<item_t<It>, items> loaded;
          load<aligned>(loaded, in + own);
          value = reduce_thread<value_t, accum_t, items>(loaded.item, op);
        } else {
          partial_of<value_t> part;
#pragma unroll 1
          for (i64 i = own > 0 ? own : 0; i < least(own + items, num_items); ++i) {
            part.add(static_cast<accum_t>(in[i]), op);
          }
          value = part.value;
        }
        const i64 lanes = (num_items - start + items - 1) / items;
        value           = reduce_warp(value, static_cast<int>(least(lanes, 32)), op);
        ++row;
      }
      if (lane == 0) {
        sum.add(value, op);
      }
    }
  }

  // Combines a block's share of the items in their order. Each warp has a share of its own, of whole rows of
  // vectors; the first vector of all and the last may lack items. No block is without a share if there are as
  // many as tiles of items at most.
  template <int items, int rows, class It>
  static __device__ __forceinline__ value_t reduce_in_order(It in, i64 num_items, int tile, const op_t& op) {
    i64 beyond      = 0;
    bool is_aligned = true;
    if constexpr (arrays_of<It>::widest > 0) {
      beyond     = beyond_vector<items>(in);
      is_aligned = cupar::is_aligned<items>(in + (items - beyond) % items);
    }
    constexpr int row_items = 32 * items;
    const int unit          = tile / static_cast<int>(blockDim.x);  // rows that are dealt together
    const i64 all_rows      = num_items > 0 ? (num_items + beyond + row_items - 1) / row_items : 0;
    const i64 units         = (all_rows + unit - 1) / unit;

    const int warps      = blockDim.x / 32;
    const i64 first_warp = i64{blockIdx.x} * warps, warp = first_warp + threadIdx.x / 32;
    const i64 each = units / (i64{gridDim.x} * warps), more = units % (i64{gridDim.x} * warps);
    const i64 first = (warp * each + least(warp, more)) * unit;
    const i64 last  = least(first + (each + (warp < more ? 1 : 0)) * unit, all_rows);

    partial_of<value_t> sum;
    if (is_aligned) {
      add_rows<true, items, rows>(sum, in, num_items, beyond, first, last, op);
    } else if constexpr (!is_array<It> || sizeof(item_t<It>) > alignof(item_t<It>)) {
      add_rows<false, items, rows>(sum, in, num_items, beyond, first, last, op);
    }
    const i64 with_share = each > 0 ? warps : least(more - first_warp, warps);
    return reduce_warps(sum.value, static_cast<int>(with_share), op);
  }

  template <int items, int rows, class It>
  static __device__ __forceinline__ value_t reduce_share(It in, i64 num_items, int tile, const op_t& op) {
    if constexpr (is_ordered) {
      return reduce_in_order<items, ordered_rows<rows>()>(in, num_items, tile, op);
    } else {
      return reduce<items, rows>(in, num_items, tile, op);
    }
  }

  // Stores the result of a reduction; without items that is the initial value, if there is one.
  static __device__ __forceinline__ void finish(d_out_t out, i64 num_items, value_t value, const op_t& op,
                                                accum_t init) {
    *out = static_cast<d_out_v>(num_items > 0 ? static_cast<accum_t>(op(init, value)) : init);
  }

  static __device__ __forceinline__ void finish(d_out_t out, i64 num_items, value_t value, const op_t&,
                                                no_init) {
    if (num_items > 0) {
      *out = static_cast<d_out_v>(static_cast<accum_t>(value));
    }
  }

  // Leaves the result of one block of several where those are combined, or are added up.
  template <bool is_stable, class Out>
  static __device__ __forceinline__ void leave(value_t value, accum_t* partials, Out out) {
    if constexpr (is_stable) {
      partials[blockIdx.x] = static_cast<accum_t>(value);
    } else {
      add_atomically(out, static_cast<accum_t>(value));
    }
  }

  struct cupar_reduce : kernel<large_threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, accum_t* partials, i64 num_items,
                                               int tile, op_t op, init_t init) {
      join_stream();
      const value_t value = reduce_share<items, rows>(in, num_items, tile, op);
      if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
          finish(out, num_items, value, op, init);
        } else {
          leave<is_stable>(value, partials, out);
        }
      }
    }
  };

  struct cupar_reduce_partials : kernel<threads> {
    static __device__ __forceinline__ void run(const accum_t* partials, d_out_t out, i64 num_partials,
                                               op_t op, init_t init) {
      join_stream();
      constexpr int rows  = is_large<accum_t> ? 1 : 4;
      const value_t value = reduce_share<1, rows>(partials, num_partials, rows * threads, op);
      if (threadIdx.x == 0) {
        finish(out, num_partials, value, op, init);
      }
    }
  };

  static constexpr auto properties =
      properties_of(threads, items, rows, small_rows, large_threads, large_items, sizeof(accum_t));
};
}  // namespace cupar
