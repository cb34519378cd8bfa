// Reductions by index: the items of each bin combined, in whichever order the bins come. Blocks have tables
// of partial results in shared memory, which another kernel combines:
//
// - of few bins, a column of the table for each thread. No two threads write to one place, so there are no
//   atomic operations, whatever the operator, and no conflicts of banks.
// - of more, a column for each warp. Lanes whose items are in one bin find each other by a word beside it, in
//   which each sets its bit, and combine these first, so that one of them writes.
// - of more still, blocks have a range of the bins each, and the items are read once for each range.
//
// Which items meet in which order depends on the sizes alone: results are the same in every run. Where the
// order does not matter, atomic operations combine more bins than threads have columns for: in one column for
// a block, or, of bins for which there is no room, in the output. Where the order need not be kept, which is
// of floats, they do so for more bins than warps have columns for: those in shared memory are loops.
//
// Source: ours; the way from private tables to ranges is that of T. Henriksen, S. Hellfritzsch,
// P. Sadayappan, C. Oancea, "Compiling generalized histograms for GPU", SC 2020.
//
// Traits: d_in_t, d_indices_t, d_out_t, op_t, accum_t; is_atomic: whether atomic operations combine; the
// policy: threads, few_threads (of blocks with fewer columns), block_threads (of those with one), bytes (that
// a thread loads at once).
#pragma once

#include "common/combining.cuh"
#include "common/kernel.cuh"
#include "common/vectors.cuh"

namespace cupar {
extern __shared__ uint4 memory[];

// The identity of an operator that is known, which leaves every value as it is.
template <class Op, class V>
struct identity_of {
  template <class... Ops>
  static constexpr bool is_one_of = (cuda::std::is_same_v<Op, Ops> || ...);

  static constexpr bool is_sum     = is_one_of<cuda::std::plus<>>;
  static constexpr bool is_product = is_one_of<cuda::std::multiplies<>>;
  static constexpr bool is_bits = is_one_of<cuda::std::bit_and<>, cuda::std::bit_or<>, cuda::std::bit_xor<>>;
  static constexpr bool is_minimum = is_one_of<minimum>;
  static constexpr bool is_maximum = is_one_of<maximum>;
  static constexpr bool is_integer = cuda::std::is_integral_v<V> && !cuda::std::is_same_v<V, bool>;

  static constexpr bool is_float = cuda::std::is_floating_point_v<V> || (!is_integer && sizeof(V) == 2);

  // Which of two floats a minimum returns depends on their order if one is NaN, and may be the identity.
  static constexpr bool is_known = is_integer ? is_sum || is_product || is_bits || is_minimum || is_maximum
                                              : is_float && (is_sum || is_product);

  // The largest integer, of integers alone: CUDA 13.0 makes no constant of type __half of one.
  static __device__ __forceinline__ constexpr V most() {
    return static_cast<V>(~u64{0} >> (64 - 8 * sizeof(V) + cuda::std::is_signed_v<V>));
  }

  static __device__ __forceinline__ constexpr V value() {
    if constexpr (is_sum) {
      return is_integer ? V(0) : V(-0.0f);
    } else if constexpr (is_product) {
      return V(1);
    } else if constexpr (is_one_of<cuda::std::bit_and<>>) {
      return static_cast<V>(~V(0));
    } else if constexpr (is_minimum) {
      return most();
    } else if constexpr (is_maximum) {
      return static_cast<V>(~most());
    } else {
      return V(0);
    }
  }
};

// Combines a value with one in memory, in any order.
template <class Op, class V>
__device__ __forceinline__ void combine_in_memory(V* at, V value) {
  using identity = identity_of<Op, V>;
  using word_t   = cuda::std::conditional_t<sizeof(V) == 8, u64, unsigned>;
  using whole_t =
      cuda::std::conditional_t<sizeof(V) == 8, cuda::std::conditional_t<cuda::std::is_signed_v<V>, i64, u64>,
                               cuda::std::conditional_t<cuda::std::is_signed_v<V>, int, unsigned>>;
  if constexpr (identity::is_sum && identity::is_integer) {
    atomicAdd(reinterpret_cast<word_t*>(at), static_cast<word_t>(value));
  } else if constexpr (identity::is_sum) {
    atomicAdd(at, value);
  } else if constexpr (identity::is_minimum) {
    atomicMin(reinterpret_cast<whole_t*>(at), static_cast<whole_t>(value));
  } else if constexpr (identity::is_maximum) {
    atomicMax(reinterpret_cast<whole_t*>(at), static_cast<whole_t>(value));
  } else if constexpr (identity::template is_one_of<cuda::std::bit_and<>>) {
    atomicAnd(reinterpret_cast<word_t*>(at), static_cast<word_t>(value));
  } else if constexpr (identity::template is_one_of<cuda::std::bit_or<>>) {
    atomicOr(reinterpret_cast<word_t*>(at), static_cast<word_t>(value));
  } else {
    atomicXor(reinterpret_cast<word_t*>(at), static_cast<word_t>(value));
  }
}

template <class Traits>
struct reduce_by_index_kernels {
  using d_in_t                       = typename Traits::d_in_t;
  using d_in_v                       = typename Traits::d_in_v;
  using d_indices_t                  = typename Traits::d_indices_t;
  using d_indices_v                  = typename Traits::d_indices_v;
  using d_out_t                      = typename Traits::d_out_t;
  using d_out_v                      = typename Traits::d_out_v;
  using op_t                         = typename Traits::op_t;
  using accum_t                      = typename Traits::accum_t;
  static constexpr int threads       = Traits::policy_threads;
  static constexpr int few_threads   = Traits::policy_few_threads;
  static constexpr int block_threads = Traits::policy_block_threads;

  using value_t  = combined<op_t, accum_t>;
  using identity = identity_of<op_t, value_t>;

  // What a bin has so far, of some items or none.
  struct known_slot {
    value_t value = identity::value();
    __device__ __forceinline__ void add(const value_t& more, const op_t& op) {
      value = combine(value, more, op);
    }
    __device__ __forceinline__ void add(const known_slot& more, const op_t& op) { add(more.value, op); }
    __device__ __forceinline__ accum_t with(const accum_t& init, const op_t& op) const {
      return static_cast<accum_t>(op(static_cast<value_t>(init), value));
    }
  };
  struct flagged_slot : partial_of<value_t> {
    using partial_of<value_t>::add;
    __device__ __forceinline__ void add(const flagged_slot& more, const op_t& op) {
      if (more.is_there) {
        this->add(more.value, op);
      }
    }
    __device__ __forceinline__ accum_t with(const accum_t& init, const op_t& op) const {
      return this->is_there ? static_cast<accum_t>(op(static_cast<value_t>(init), this->value)) : init;
    }
  };
  using slot_t = cuda::std::conditional_t<identity::is_known, known_slot, flagged_slot>;

  // ---- Items and their rows ----

  static constexpr int items        = vector_items<d_in_t, d_indices_t>();
  static constexpr bool are_words   = items > 1 && has_words<items, d_in_t>&& has_words<items, d_indices_t>;
  static constexpr int vector_bytes = items * static_cast<int>(sizeof(d_in_v) + sizeof(d_indices_v));

  // Vectors that a thread loads at once, of some bytes and some items at most.
  static constexpr int loads_of(int most_bytes, int most_items) {
    const int of_bytes = most_bytes / vector_bytes, of_items = most_items / items;
    const int fewest = of_bytes < of_items ? of_bytes : of_items;
    return fewest < 1 ? 1 : fewest;
  }
  static constexpr int many = loads_of(Traits::policy_bytes, 32);
  static constexpr int some = loads_of(Traits::policy_bytes, 16);  // where there is more code for each
  static constexpr int few  = loads_of(64, 8);  // where blocks are large, or the output is what is waited for

  static constexpr unsigned no_row = ~0u;

  // The row of a bin in a table that begins with some bin. Of small indices, those below 0 are beyond 2^31.
  static __device__ __forceinline__ unsigned row_of(d_indices_v index, unsigned first, unsigned rows) {
    if constexpr (sizeof(d_indices_v) <= 4) {
      const unsigned row = static_cast<unsigned>(index) - first;
      return row < rows ? row : no_row;
    } else {
      const u64 row = static_cast<u64>(index) - first;
      return row < rows ? static_cast<unsigned>(row) : no_row;
    }
  }

  // Some items of a thread, and their indices.
  template <int loads>
  struct batch {
    vector<d_in_v, items> in[loads];
    vector<d_indices_v, items> index[loads];

    template <bool aligned>
    __device__ __forceinline__ void load(d_in_t from, d_indices_t of, i64 start) {
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        const i64 own = start + static_cast<int>((k * blockDim.x + threadIdx.x) * items);
        cupar::load<aligned>(in[k], from + own);
        cupar::load<aligned>(index[k], of + own);
      }
    }
  };

  // Which items a block takes, and which bins.
  struct share {
    i64 num_items;
    unsigned part, parts;  // every `parts`th tile
    unsigned first, rows;  // bins
  };

  // Calls `use(row, value)` with each item of a block's tiles; the row is `no_row` if the item is in none of
  // its bins. All threads of a warp are there in each call.
  template <bool aligned, int loads, class Use>
  static __device__ __forceinline__ void for_each_item(d_in_t in, d_indices_t indices, i64 beyond,
                                                       const share& own, Use use) {
    const int tile   = static_cast<int>(blockDim.x) * items * loads;
    const i64 stride = i64{own.parts} * tile;
    // Of a tile that begins before the first item, or ends after the last.
    const auto part = [&](i64 start) {
#pragma unroll 1
      for (int i = threadIdx.x; i < tile; i += blockDim.x) {
        unsigned row = no_row;
        accum_t value;
        if (start + i >= 0 && start + i < own.num_items) {
          row   = row_of(indices[start + i], own.first, own.rows);
          value = static_cast<accum_t>(static_cast<d_in_v>(in[start + i]));
        }
        __syncwarp();
        use(row, static_cast<value_t>(value));
      }
    };
    i64 start = i64{own.part} * tile - beyond;
    if (start < 0) {
      part(start);
      start += stride;
    }
    // Arrays that do not begin at the same place of a vector are read item by item.
    if constexpr (are_words && !aligned) {
      for (; start < own.num_items; start += stride) {
        part(start);
      }
      return;
    }
    batch<loads> now;
    if (start + tile <= own.num_items) {
      now.template load<aligned>(in, indices, start);
    }
#pragma unroll 1
    while (start + tile <= own.num_items) {
      // What comes next is on its way while these are used.
      batch<loads> next;
      start += stride;
      if (start + tile <= own.num_items) {
        next.template load<aligned>(in, indices, start);
      }
#pragma unroll
      for (int k = 0; k < loads; ++k) {
#pragma unroll
        for (int i = 0; i < items; ++i) {
          use(row_of(now.index[k].item[i], own.first, own.rows),
              static_cast<value_t>(static_cast<accum_t>(now.in[k].item[i])));
        }
      }
      now = next;
    }
    if (start < own.num_items) {
      part(start);
    }
  }

  template <int loads, class Use>
  static __device__ __forceinline__ void for_each_item(d_in_t in, d_indices_t indices, const share& own,
                                                       Use use) {
    if constexpr (are_words) {
      const i64 beyond = beyond_vector<items>(in);
      const i64 first  = (items - beyond) % items;
      if (is_aligned<items>(in + first) && is_aligned<items>(indices + first)) {
        for_each_item<true, loads>(in, indices, beyond, own, use);
        return;
      }
    }
    for_each_item<false, loads>(in, indices, 0, own, use);
  }

  // ---- Tables ----

  // Writes a bin's result, or what this block has of it.
  static __device__ __forceinline__ void leave(d_out_t out, slot_t* partials, const slot_t& slot,
                                               unsigned bin, const share& own, unsigned bins, const op_t& op,
                                               const accum_t& init) {
    if (own.parts == 1) {
      out[bin] = static_cast<d_out_v>(slot.with(init, op));
    } else {
      partials[u64{own.part} * bins + bin] = slot;
    }
  }

  static __device__ __forceinline__ share share_of(i64 num_items, unsigned bins, unsigned rows,
                                                   unsigned ranges) {
    const unsigned first = blockIdx.x % ranges * rows;
    return {num_items, blockIdx.x / ranges, gridDim.x / ranges, first,
            bins - first < rows ? bins - first : rows};
  }

  // A column for each thread: values, and, without an identity, bits that tell which of them are there.
  struct column {
    value_t* value;
    unsigned* bits;
    unsigned stride;

    __device__ __forceinline__ column(unsigned rows, unsigned thread)
        : value(reinterpret_cast<value_t*>(memory) + thread),
          bits(reinterpret_cast<unsigned*>(memory + (rows * blockDim.x * sizeof(value_t) + 15) / 16) +
               thread),
          stride(blockDim.x) {}

    __device__ __forceinline__ void clear(unsigned rows) {
      if constexpr (identity::is_known) {
#pragma unroll 4
        for (unsigned row = 0; row < rows; ++row) {
          value[row * stride] = identity::value();
        }
      } else {
        for (unsigned i = 0; i < (rows + 31) / 32; ++i) {
          bits[i * stride] = 0;
        }
      }
    }
    __device__ __forceinline__ void add(unsigned row, value_t more, const op_t& op) {
      value_t& own = value[row * stride];
      if constexpr (identity::is_known) {
        own = combine(own, more, op);
      } else {
        unsigned& word     = bits[row / 32 * stride];
        const unsigned bit = 1u << row % 32;
        if (word & bit) {
          own = combine(own, more, op);
        } else {
          own = more;
          word |= bit;
        }
      }
    }
    __device__ __forceinline__ void add_to(slot_t& slot, unsigned row, const op_t& op) const {
      if constexpr (identity::is_known) {
        slot.add(value[row * stride], op);
      } else if (bits[row / 32 * stride] >> row % 32 & 1) {
        slot.add(value[row * stride], op);
      }
    }
  };

  struct cupar_reduce_by_index_threads : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_indices_t indices, d_out_t out, slot_t* partials,
                                               i64 num_items, unsigned bins, op_t op, accum_t init) {
      const share own = share_of(num_items, bins, bins, 1);
      column mine(bins, threadIdx.x);
      mine.clear(bins);
      join_stream();
      for_each_item<many>(in, indices, own, [&](unsigned row, const value_t& value) {
        if (row != no_row) {
          mine.add(row, value, op);
        }
      });
      __syncthreads();
      for (unsigned row = threadIdx.x; row < bins; row += blockDim.x) {
        // Each begins with a column of its own, so that no two lanes meet in a bank.
        slot_t slot;
#pragma unroll 4
        for (unsigned i = 0; i < blockDim.x; ++i) {
          column(bins, (row + i) % blockDim.x).add_to(slot, row, op);
        }
        leave(out, partials, slot, row, own, bins, op, init);
      }
    }
  };

  // Combines the values of lanes whose items are in one row, in the order of lanes; the first of them gets
  // the result.
  static __device__ __forceinline__ void combine_lanes(unsigned peers, value_t& value, const op_t& op) {
    const unsigned lane = threadIdx.x % 32;
    unsigned rank       = __popc(peers & ((1u << lane) - 1));
    unsigned behind     = peers & (~1u << lane);  // of those that still have a value
#pragma unroll 1
    while (__any_sync(~0u, behind != 0)) {
      const value_t other = shuffle(value, behind != 0 ? __ffs(behind) - 1 : static_cast<int>(lane));
      if (behind != 0 && rank % 2 == 0) {
        value = combine(value, other, op);
      }
      behind &= ~__ballot_sync(~0u, rank % 2 == 1);
      rank /= 2;
    }
  }

  static __device__ __forceinline__ bool is_first(unsigned peers) {
    return (peers & ((1u << threadIdx.x % 32) - 1)) == 0;
  }

  // Of words of 4 and 8 bytes, so that one instruction loads an entry.
  static constexpr int slot_alignment = alignof(slot_t) > 4 ? alignof(slot_t) : 4;
  static constexpr int entry_alignment =
      sizeof(slot_t) <= 8 && sizeof(slot_t) == slot_alignment ? 2 * slot_alignment : slot_alignment;

  // A bin in a warp's column, and the lanes that have an item of it.
  struct alignas(entry_alignment) entry {
    slot_t slot;
    unsigned lanes;
  };

  // A column for each warp.
  struct cupar_reduce_by_index_warps : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_indices_t indices, d_out_t out, slot_t* partials,
                                               i64 num_items, unsigned bins, unsigned rows, unsigned ranges,
                                               op_t op, accum_t init) {
      entry* const table = reinterpret_cast<entry*>(memory);
      entry* const mine  = table + threadIdx.x / 32 * rows;
      const share own    = share_of(num_items, bins, rows, ranges);
      for (unsigned row = threadIdx.x % 32; row < own.rows; row += 32) {
        mine[row].slot  = slot_t{};
        mine[row].lanes = 0;
      }
      join_stream();
      __syncwarp();
      for_each_item<some>(in, indices, own, [&](unsigned row, value_t value) {
        const unsigned lane = 1u << threadIdx.x % 32;
        unsigned peers      = 0;
        entry found;
        if (row != no_row) {
          atomicOr(&mine[row].lanes, lane);
        }
        __syncwarp();
        if (row != no_row) {
          found = mine[row];
          peers = found.lanes;
        }
        __syncwarp();
        if (__any_sync(~0u, (peers & ~lane) != 0)) {
          combine_lanes(peers, value, op);
        }
        if (row != no_row && is_first(peers)) {
          found.slot.add(value, op);
          found.lanes = 0;
          mine[row]   = found;
        }
        __syncwarp();
      });
      __syncthreads();
      for (unsigned row = threadIdx.x; row < own.rows; row += blockDim.x) {
        slot_t slot = table[row].slot;
        for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) {
          slot.add(table[warp * rows + row].slot, op);
        }
        leave(out, partials, slot, own.first + row, own, bins, op, init);
      }
    }
  };

  // A column for all threads of a block.
  struct cupar_reduce_by_index_block : kernel<block_threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_indices_t indices, d_out_t out, slot_t* partials,
                                               i64 num_items, unsigned bins, op_t op, accum_t init) {
      slot_t* const table = reinterpret_cast<slot_t*>(memory);
      const share own     = share_of(num_items, bins, bins, 1);
      for (unsigned row = threadIdx.x; row < bins; row += block_threads) {
        table[row] = slot_t{};
      }
      join_stream();
      __syncthreads();
      if constexpr (Traits::is_atomic) {
        for_each_item<few>(in, indices, own, [&](unsigned row, const value_t& value) {
          if (row != no_row) {
            combine_in_memory<op_t>(&table[row].value, value);
          }
        });
      }
      __syncthreads();
      for (unsigned row = threadIdx.x; row < bins; row += block_threads) {
        leave(out, partials, table[row], row, own, bins, op, init);
      }
    }
  };

  // Combines what the parts have of 32 bins: each warp of some parts, one after another.
  struct cupar_reduce_by_index_partials : kernel<threads> {
    static __device__ __forceinline__ void run(const slot_t* partials, d_out_t out, unsigned bins,
                                               unsigned parts, op_t op, accum_t init) {
      slot_t* const of_warps = reinterpret_cast<slot_t*>(memory);
      const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      const unsigned bin = blockIdx.x * 32 + lane;
      join_stream();
      slot_t slot;
      if (bin < bins) {
#pragma unroll 4
        for (unsigned part = warp; part < parts; part += threads / 32) {
          slot.add(partials[u64{part} * bins + bin], op);
        }
      }
      of_warps[threadIdx.x] = slot;
      __syncthreads();
      if (warp == 0 && bin < bins) {
        for (int i = 1; i < threads / 32; ++i) {
          slot.add(of_warps[i * 32 + lane], op);
        }
        out[bin] = static_cast<d_out_v>(slot.with(init, op));
      }
    }
  };

  // ---- In the output ----

  struct cupar_reduce_by_index_init : kernel<threads> {
    static __device__ __forceinline__ void run(d_out_t out, unsigned bins, accum_t init) {
      join_stream();
      for (u64 i = u64{blockIdx.x} * threads + threadIdx.x; i < bins; i += u64{gridDim.x} * threads) {
        out[i] = static_cast<d_out_v>(init);
      }
    }
  };

  // Lanes whose items are in one bin combine these first, as operations on one address take turns.
  struct cupar_reduce_by_index_atomic : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_indices_t indices, d_out_t out, i64 num_items,
                                               unsigned bins, op_t op) {
      const share own = share_of(num_items, bins, bins, 1);
      join_stream();
      for_each_item<few>(in, indices, own, [&](unsigned row, value_t value) {
        const unsigned found = __match_any_sync(~0u, row), peers = row == no_row ? 0 : found;
        combine_lanes(peers, value, op);
        if (row != no_row && is_first(peers)) {
          if constexpr (Traits::is_atomic) {
            combine_in_memory<op_t>(out + row, value);
          }
        }
      });
    }
  };

  static constexpr int atomic_kind = Traits::is_atomic ? (identity::is_integer ? 2 : 1) : 0;

  static constexpr auto properties =
      properties_of(threads, few_threads, block_threads, items* some, sizeof(slot_t), sizeof(value_t),
                    sizeof(entry), identity::is_known, atomic_kind);
};
}  // namespace cupar
