// Reductions of segments: a group of lanes, from 1 to 32, has a segment; or each lane has four, where most
// segments have a few items.
//
// - If the segments of a warp lie beside each other, and what they span is short, that is copied to shared
//   memory as a whole.
// - Else the lanes of a group combine vectors from memory. Segments much longer than those that groups of
//   this size are for are left to all lanes of the warp.
// - Long ones are cut into chunks, which go into a queue for a kernel that follows; whoever is the last to
//   finish a chunk of a segment combines what its chunks gave. If the queue is full, the warp takes the
//   chunks itself, one by one. Where most segments are long, a kernel does nothing but queue all.
//
// Nothing is read back, and what is combined with what depends on where segments lie and on their lengths
// alone, so it is the same in every run. The operator needs no identity.
//
// Source: ours; lanes by length are those of modern sparse matrix-vector products (J. Greathouse and M. Daga,
// "Efficient Sparse Matrix-Vector Multiplication on GPUs using the CSR Storage Format", SC 2014).
//
// Traits: d_in_t, d_out_t, start_offsets_in_t, end_offsets_in_t, op_t, accum_t, is_rows; is_ordered (lanes
// combine neighbours, row by row of vectors, and nothing is staged); policy_threads, policy_batch_bytes,
// policy_staged_bytes, policy_chunk_vectors.
#pragma once

#include "common/combining.cuh"
#include "common/kernel.cuh"
#include "common/offsets.cuh"
#include "common/vectors.cuh"
#include "common/zero.cuh"

namespace cupar {
template <class Traits>
struct segmented_reduce_kernels {
  using d_in_t                     = typename Traits::d_in_t;
  using d_in_v                     = typename Traits::d_in_v;
  using d_out_t                    = typename Traits::d_out_t;
  using d_out_v                    = typename Traits::d_out_v;
  using start_offsets_in_t         = typename Traits::start_offsets_in_t;
  using end_offsets_in_t           = typename Traits::end_offsets_in_t;
  using op_t                       = typename Traits::op_t;
  using accum_t                    = typename Traits::accum_t;
  static constexpr bool is_rows    = Traits::is_rows;
  static constexpr bool is_ordered = Traits::is_ordered;

  using value_t = combined<op_t, accum_t>;
  using partial = partial_of<value_t>;

  // --- Shares of segments: what lanes of a group combine of one, and how they combine that ---

  static constexpr int threads = Traits::policy_threads, warps = threads / 32;
  static constexpr int items = vector_items<d_in_t>();                    // of a vector
  static constexpr int rows = is_large<value_t> ? 1 : items > 8 ? 2 : 4;  // vectors that a lane takes at once

  // Threads, and so blocks, that a multiprocessor is to run at once.
  static constexpr bool is_of_words     = is_made_of_words<value_t, items, d_in_t>;
  static constexpr int resident_threads = sizeof(accum_t) <= 8 ? 1280 : is_of_words ? 1024 : threads;
  static constexpr int resident         = resident_threads / threads;

  struct segment {
    i64 begin, length;
  };

  // Combines what lanes of groups of `lanes` have; the result is each group's first lane's.
  static __device__ __forceinline__ void combine_lanes(partial& sum, int lanes, const op_t& op) {
    if (__all_sync(~0u, sum.is_there)) {
      // What lanes take from another group, no first lane takes from them.
      for (int distance = lanes / 2; distance > 0; distance /= 2) {
        sum.value = static_cast<value_t>(op(sum.value, shuffle_down(sum.value, distance)));
      }
      return;
    }
    const int lane = threadIdx.x & (lanes - 1);
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const value_t other = shuffle_down(sum.value, distance);
      const int is_other  = __shfl_down_sync(~0u, static_cast<int>(sum.is_there), distance);
      if (is_other && lane + distance < lanes) {
        sum.add(other, op);
      }
    }
  }

  // Combines the rows of vectors.
  template <int rows>
  static __device__ __forceinline__ value_t combine_rows(const vector<d_in_v, items>* loaded,
                                                         const op_t& op) {
    if constexpr (rows == 1) {
      return reduce_thread<value_t, accum_t, items>(loaded->item, op);
    } else {
      return op(combine_rows<rows / 2>(loaded, op), combine_rows<rows / 2>(loaded + rows / 2, op));
    }
  }

  // Adds rows of a lane's vectors, item by item, from one vector on, while there are as many; returns the
  // next.
  template <int rows, class It>
  static __device__ __forceinline__ int add_words(partial& sum, It body, int first, int vectors, int lanes,
                                                  const op_t& op) {
    if (first + (rows - 1) * lanes >= vectors) {
      return first;
    }
    rows_of_words<items, rows, It> words;
    const auto at = [&](int r) { return body + i64{first + r * lanes} * items; };
    words.load(at);
    while (true) {
      sum.add(words.template combine<value_t, accum_t>(at, op), op);
      first += rows * lanes;
      if (first + (rows - 1) * lanes >= vectors) {
        return first;
      }
      words.load(at);
    }
  }

  // Combines a lane's share of some items, fewer than 2^31: every so many vectors, and of what is before the
  // first and behind the last one. The first of those is on its way while vectors are combined. If groups
  // have as many items each, all lanes of a warp take the same way, so that no loads wait for those of
  // others.
  template <bool are_equal = false, class It>
  static __device__ __forceinline__ void combine_share(partial& sum, It from, int length, int lane, int lanes,
                                                       const op_t& op) {
    int before      = 0;
    bool is_aligned = true;
    if constexpr (arrays_of<It>::widest > 0) {
      before     = (items - beyond_vector<items>(from)) % items;
      before     = before < length ? before : length;
      is_aligned = cupar::is_aligned<items>(from + before);
    }
    const int vectors      = is_array<It> && !is_aligned ? 0 : (length - before) / items;
    const It body          = from + before;
    const auto load_vector = [&](auto& to, It at) {
      if (is_array<It> || is_aligned) {
        load<true>(to, at);
      } else {
        load<false>(to, at);
      }
    };
    const int singles = length - vectors * items;
    const auto single = [&](int i) {
      return static_cast<accum_t>(from[i < before ? i : i + vectors * items]);
    };
    constexpr bool has_singles = items > 1 || (is_word<array_bytes<It>> && sizeof(d_in_v) > alignof(d_in_v));
    value_t early;
    if (has_singles && lane < singles) {
      early = single(lane);
    }
    int first = lane;
    if constexpr (is_of_words) {
      if (is_aligned) {
        first = add_words<rows>(sum, body, first, vectors, lanes, op);
      }
    }
    constexpr int rows = is_of_words ? 2 : segmented_reduce_kernels::rows;
    if constexpr (are_equal && is_array<It>) {
      It next  = body + i64{first} * items;
      int left = vectors - first;  // and as many for the next lane, less one
      for (; left + lane >= rows * lanes; left -= rows * lanes, next += rows * lanes * items) {
        vector<d_in_v, items> loaded[rows];
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          load<true>(loaded[r], next + r * lanes * items);
        }
        sum.add(combine_rows<rows>(loaded, op), op);
      }
      if (left + lane > 0) {
        vector<d_in_v, items> loaded[rows];
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          if (r * lanes < left) {
            load<true>(loaded[r], next + r * lanes * items);
          }
        }
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          if (r * lanes < left) {
            sum.add(reduce_thread<value_t, accum_t, items>(loaded[r].item, op), op);
          }
        }
      }
      first = vectors;
    }
    for (; first < vectors; first += rows * lanes) {
      vector<d_in_v, items> loaded[rows];
      if (first + (rows - 1) * lanes < vectors) {
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          load_vector(loaded[r], body + i64{first + r * lanes} * items);
        }
        sum.add(combine_rows<rows>(loaded, op), op);
      } else {
#pragma unroll
        for (int r = 0; r < rows - 1; ++r) {
          if (first + r * lanes < vectors) {
            load_vector(loaded[r], body + i64{first + r * lanes} * items);
          }
        }
#pragma unroll
        for (int r = 0; r < rows - 1; ++r) {
          if (first + r * lanes < vectors) {
            sum.add(reduce_thread<value_t, accum_t, items>(loaded[r].item, op), op);
          }
        }
      }
    }
    if (has_singles && lane < singles) {
      sum.add(early, op);
      for (int i = lane + lanes; i < singles; i += lanes) {
        sum.add(single(i), op);
      }
    }
  }

  static constexpr int ordered_rows = 4;  // whose vectors are loaded at once

  // Loads a lane's vectors of some rows, `step` items from each other, and combines the items of each.
  template <int items, int rows, class It>
  static __device__ __forceinline__ void reduce_vectors(value_t (&of_rows)[rows], It from, i64 step,
                                                        bool is_aligned, const op_t& op) {
    if constexpr (is_made_of_words<value_t, items, It>) {
      arrays_of_vector<It> words[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        load_words<items>(words[r], from + r * step);
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        const It there = of_words(words[r], from + r * step);
        of_rows[r]     = static_cast<accum_t>(there[0]);
#pragma unroll
        for (int i = 1; i < items; ++i) {
          of_rows[r] = combine(of_rows[r], static_cast<value_t>(static_cast<accum_t>(there[i])), op);
        }
      }
    } else {
      vector<item_t<It>, items> loaded[rows];
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (is_aligned) {
          load<true>(loaded[r], from + r * step);
        } else {
          load<false>(loaded[r], from + r * step);
        }
      }
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        of_rows[r] = reduce_thread<value_t, accum_t, items>(loaded[r].item, op);
      }
    }
  }

  // Combines rows of groups of lanes in their order; the result is each group's first lane's.
  template <int rows>
  static __device__ __forceinline__ value_t combine_rows_in_order(value_t (&of_rows)[rows], int lanes,
                                                                  const op_t& op) {
    if (lanes == 32) {
      return reduce_rows(of_rows, op);
    }
    for (int distance = 1; distance < lanes; distance *= 2) {
#pragma unroll
      for (int r = 0; r < rows; ++r) {  // what lanes take from another group, no first lane takes from them
        of_rows[r] = combine(of_rows[r], shuffle_down(of_rows[r], distance), op);
      }
    }
    value_t all = of_rows[0];
#pragma unroll
    for (int r = 1; r < rows; ++r) {
      all = combine(all, of_rows[r], op);
    }
    return all;
  }

  // Combines items in their order, fewer than 2^31 for each group of lanes: row by row, of which each lane
  // has a vector. The first vector and the last may lack items. The result is each group's first lane's. All
  // lanes of a warp take part, with groups of one size.
  template <int items, class It>
  static __device__ __forceinline__ void combine_in_order(partial& sum, It from, int length, int lane,
                                                          int lanes, const op_t& op) {
    int beyond      = 0;
    bool is_aligned = true;
    if constexpr (arrays_of<It>::widest > 0) {
      beyond     = beyond_vector<items>(from);
      is_aligned = cupar::is_aligned<items>(from + (items - beyond) % items);
    }
    const i64 vectors   = length > 0 ? (i64{length} + beyond + items - 1) / items : 0;
    constexpr int rows  = ordered_rows;
    const bool may_have = is_aligned || !is_made_of_words<value_t, items, It>;
    for (i64 first = 0; __any_sync(~0u, first < vectors); first += lanes) {
      // Rows that all groups have as a whole are on their way together.
      while (__all_sync(~0u, may_have && (first + lane) * items >= beyond &&
                                 (first + lane + (rows - 1) * lanes + 1) * items - beyond <= length)) {
        value_t of_rows[rows];
        reduce_vectors<items>(of_rows, from + ((first + lane) * items - beyond), i64{lanes} * items,
                              is_aligned, op);
        const value_t value = combine_rows_in_order(of_rows, lanes, op);
        if (lane == 0) {
          sum.add(value, op);
        }
        __syncwarp();
        first += rows * lanes;
      }
      const i64 own = first + lane, begin = own * items - beyond;
      partial part;
      if (own < vectors) {
        if (begin >= 0 && begin + items <= length) {
          vector<item_t<It>, items> loaded;
          if (is_aligned) {
            load<true>(loaded, from + begin);
          } else {
            load<false>(loaded, from + begin);
          }
          part.add(reduce_thread<value_t, accum_t, items>(loaded.item, op), op);
        } else {
#pragma unroll 1
          for (i64 i = begin > 0 ? begin : 0; i < begin + items && i < length; ++i) {
            part.add(static_cast<accum_t>(from[i]), op);
          }
        }
      }
      __syncwarp();
      for (int distance = 1; distance < lanes; distance *= 2) {
        const value_t other = shuffle_down(part.value, distance);
        if (lane + distance < lanes && own + distance < vectors) {
          part.value = static_cast<value_t>(op(part.value, other));
        }
      }
      if (lane == 0 && own < vectors) {
        sum.add(part.value, op);
      }
      __syncwarp();
    }
  }

  // Combines items of groups of lanes, fewer than 2^31 for each; the result is each group's first lane's.
  template <bool are_equal = false>
  static __device__ __forceinline__ void combine_group(partial& sum, d_in_t from, int length, int lane,
                                                       int lanes, const op_t& op) {
    if constexpr (is_ordered) {
      combine_in_order<items>(sum, from, length, lane, lanes, op);
    } else {
      combine_share<are_equal>(sum, from, length, lane, lanes, op);
      __syncwarp();
      combine_lanes(sum, lanes, op);
    }
  }

  static __device__ __forceinline__ void finish(d_out_t out, i64 index, const partial& sum, const op_t& op,
                                                accum_t init) {
    out[index] = static_cast<d_out_v>(sum.is_there ? static_cast<accum_t>(op(init, sum.value)) : init);
  }

  // --- Segments of a warp that are copied to shared memory as a whole: loads of memory do not depend on how
  // long each is, and all are on their way at once ---

  // The largest groups whose segments are staged. Of rows, it is those of a few items, which are no vectors:
  // others' lanes load as many vectors from memory.
  static constexpr int staged_lanes = !is_array<d_in_t> || is_ordered ? 0 : is_rows ? 1 : 16;

  static constexpr int batch_bytes  = Traits::policy_batch_bytes;   // that the segments of a warp should have
  static constexpr int staged_bytes = Traits::policy_staged_bytes;  // of shared memory for what they span
  static constexpr int staged_items = is_array<d_in_t> ? staged_bytes / static_cast<int>(sizeof(d_in_v)) : 0;
  static constexpr int stage_bytes  = staged_bytes + widest;

  // Begins to copy a vector to shared memory. Of asynchronous copies, `cuda::ptx` has those in bulk alone.
  static constexpr bool is_async = target >= 80 && !is_rows;
  static __device__ __forceinline__ void begin_copy(void* to, const void* from) {
    if constexpr (is_async) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       static_cast<unsigned>(__cvta_generic_to_shared(to))),
                   "l"(__cvta_generic_to_global(from))
                   : "memory");
    } else {
      *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
    }
  }

  static __device__ __forceinline__ void wait_for_copies() {
    if constexpr (is_async) {
      asm volatile("cp.async.wait_all;" ::: "memory");
    }
    __syncwarp();
  }

  // Copies what segments of a warp span to its part of shared memory; returns where it is.
  static __device__ __forceinline__ const d_in_v* copy_span(d_in_t in, i64 low, i64 high,
                                                            int part_bytes = stage_bytes) {
    extern __shared__ uint4 stages[];
    const int lane    = threadIdx.x % 32;
    const int size    = high > low ? static_cast<int>(high - low) : 0;
    const d_in_t from = in + low;
    const int beyond  = static_cast<int>(reinterpret_cast<u64>(from) % widest);
    // Vectors in memory are vectors in shared memory.
    auto* const own_stage = reinterpret_cast<unsigned char*>(stages) + threadIdx.x / 32 * part_bytes;
    d_in_v* const stage   = reinterpret_cast<d_in_v*>(own_stage + beyond);
    int head = 0, vectors = 0;
    if constexpr (is_word<sizeof(d_in_v)>) {
      head    = (widest - beyond) % widest / static_cast<int>(sizeof(d_in_v));
      head    = head < size ? head : size;
      vectors = beyond % sizeof(d_in_v) == 0 ? (size - head) / items : 0;
    }
    // What is asynchronous need not be written out to be on its way at once.
    d_in_t next = from + (head + lane * items);
    d_in_v* to  = stage + (head + lane * items);
#pragma unroll is_async ? 1 : 4
    for (int v = lane; v < vectors; v += 32, next += 32 * items, to += 32 * items) {
      begin_copy(to, next);
    }
    constexpr int together = is_word<sizeof(d_in_v)> ? 1 : 4;
#pragma unroll together
    for (int i = lane; i < size - vectors * items; i += 32) {
      const int at = i < head ? i : i + vectors * items;
      stage[at]    = from[at];
    }
    wait_for_copies();
    return stage;
  }

  // Combines a lane's share of a segment in shared memory: items that are in no vector, then vectors. Groups
  // begin at different ones: if all segments have 8, 16 or 32 words, in different banks.
  static __device__ __forceinline__ void combine_staged_share(partial& sum, const d_in_v* from, int length,
                                                              int lane, int log_lanes, const op_t& op) {
    constexpr int width = is_rows ? 1 : items < 4 ? items : 4;
    const int lanes = 1 << log_lanes, own = lane & (lanes - 1), group = lane >> log_lanes;
    int before = 0;
    if constexpr (width > 1) {
      constexpr auto bytes = static_cast<unsigned>(width * sizeof(d_in_v));
      const auto beyond    = static_cast<unsigned>(__cvta_generic_to_shared(from)) % bytes;
      before               = static_cast<int>((bytes - beyond) % bytes / sizeof(d_in_v));
      before               = before < length ? before : length;
    }
    const int vectors = (length - before) / width, singles = length - vectors * width;
    if constexpr (width > 1) {
      for (int i = own; i < singles; i += lanes) {
        sum.add(static_cast<accum_t>(from[i < before ? i : i + vectors * width]), op);
      }
    }
    const int count = (vectors - own + lanes - 1) >> log_lanes;
    if (count > 0) {
      int at          = own + ((group << log_lanes) * count / 32 << log_lanes);
      const auto next = [&] {
        vector<d_in_v, width> loaded;
        if constexpr (sizeof(d_in_v) > alignof(d_in_v)) {
          // Such as complex numbers, which may begin where no word of their size does.
          if (__cvta_generic_to_shared(from) % sizeof(d_in_v) == 0) {
            load<true>(loaded, from + before + at * width);
          } else {
            load<false>(loaded, from + before + at * width);
          }
        } else {
          load<true>(loaded, from + before + at * width);
        }
        at += lanes;
        at -= at < vectors ? 0 : count << log_lanes;
        return reduce_thread<value_t, accum_t, width>(loaded.item, op);
      };
      value_t all = next();
#pragma unroll is_rows ? 4 : 2
      for (int k = 1; k < count; ++k) {
        all = static_cast<value_t>(op(all, next()));
      }
      sum.add(all, op);
    }
  }

  // Combines segments of a warp's groups of lanes, from one group up to another, in shared memory, if they
  // lie beside each other and are not too long together. `its` is a lane's segment, and `first` the first
  // lane's number.
  template <class It>
  static __device__ __forceinline__ bool combine_staged(It in, d_out_t out, const segment& its, i64 first,
                                                        int begin, int end, int log_lanes, const op_t& op,
                                                        accum_t init) {
    if constexpr (is_array<It> && !is_ordered) {
      log_lanes      = is_rows ? 0 : log_lanes;  // known when this is compiled
      const int lane = threadIdx.x % 32, group = lane >> log_lanes;
      const i64 low    = shuffle(its.begin, begin << log_lanes),
                high   = shuffle(its.begin + its.length, (end - 1) << log_lanes);
      const bool is_of = group >= begin && group < end;
      const bool is_inside =
          !is_of || its.length == 0 || (its.begin >= low && its.begin + its.length <= high);
      if (distance_of(low, high) > u64{staged_items} || !__all_sync(~0u, is_inside)) {
        return false;
      }
      const d_in_v* const stage = copy_span(in, low, high);
      partial sum;
      if (is_of) {
        combine_staged_share(sum, stage + (its.begin - low), static_cast<int>(its.length), lane, log_lanes,
                             op);
      }
      if (log_lanes > 0) {
        __syncwarp();
        combine_lanes(sum, 1 << log_lanes, op);
      }
      if (is_of && lane == group << log_lanes) {
        finish(out, first + group, sum, op, init);
      }
      return true;
    }
    return false;
  }

  // --- The queue of long segments, and their chunks. A segment of more than `chunk_items` is long. It has at
  // most `most_chunks`, which may be larger then. ---

  static constexpr i64 chunk_items = i64{Traits::policy_chunk_vectors} * items;  // a power of two
  static constexpr i64 most_chunks = 4096;

  struct long_segment {
    i64 index, begin, length;
    unsigned first_chunk, chunks, left, unused;
  };

  static constexpr unsigned no_segment = ~0u;

  // The queue of chunks: long segments, and for each chunk its segment and its aggregate.
  struct queue {
    u64* head;  // how many segments there are, in the upper half, and chunks
    long_segment* segments;
    unsigned* segment_of;
    accum_t* partials;
    unsigned most_segments, most_chunks;
  };

  // The chunks of a long segment: all but the last have the same number of items.
  struct chunks_of {
    int log_items;
    __device__ __forceinline__ explicit chunks_of(i64 length) : log_items(log2_of(chunk_items)) {
      while (length >> log_items >= most_chunks) {
        ++log_items;
      }
    }
    __device__ __forceinline__ i64 items() const { return i64{1} << log_items; }
    __device__ __forceinline__ i64 number(i64 length) const { return (length + items() - 1) >> log_items; }
  };

  static __device__ __forceinline__ partial combine_chunk(d_in_t from, i64 length, const op_t& op) {
    partial sum;
    combine_group(sum, from, static_cast<int>(length), threadIdx.x % 32, 32, op);
    return sum;
  }

  // Combines a segment with all lanes, chunk by chunk, as `cupar_segmented_reduce_chunks` does.
  static __device__ __forceinline__ void combine_chunks(d_in_t in, d_out_t out, const segment& given,
                                                        i64 index, const op_t& op, accum_t init) {
    const int lane  = threadIdx.x % 32;
    const i64 chunk = chunks_of(given.length).items();
    partial sum;
    int k = 0;
    for (i64 first = 0; first < given.length; first += chunk, ++k) {
      const i64 left   = given.length - first;
      const partial of = combine_chunk(in + given.begin + first, left < chunk ? left : chunk, op);
      // As it is where partial results are stored.
      const accum_t stored = static_cast<accum_t>(of.value);
      const value_t all    = shuffle(static_cast<value_t>(stored), 0);
      if (is_ordered || k % 32 == lane) {
        sum.add(all, op);
      }
    }
    __syncwarp();
    if constexpr (!is_ordered) {
      combine_lanes(sum, 32, op);
    }
    if (lane == 0) {
      finish(out, index, sum, op, init);
    }
  }

  // Whether the queue takes no more; then it is left alone, or its counts would overflow.
  static __device__ __forceinline__ bool is_full(const queue& q) {
    return *static_cast<volatile u64*>(q.head) >> 32 >= q.most_segments;
  }

  // Where in the queue a segment and its chunks are to be, if there is room for them.
  struct place {
    unsigned at, first_chunk, chunks;

    __device__ __forceinline__ bool fits(const queue& q) const {
      return at < q.most_segments && u64{first_chunk} + chunks <= q.most_chunks;
    }

    // Writes the segment to the queue. Reserved entries that stay unused must be marked.
    __device__ __forceinline__ void put(const queue& q, const segment& given, i64 index) const {
      if (fits(q)) {
        q.segments[at] = {index, given.begin, given.length, first_chunk, chunks, chunks, 0};
      }
    }

    // Writes the segment's number to its chunks, from `from` on in steps of `step`.
    __device__ __forceinline__ void tell(const queue& q, unsigned from, unsigned step) const {
      const unsigned whose = fits(q) ? at : no_segment;
      for (unsigned k = from; k < chunks && first_chunk + k < q.most_chunks; k += step) {
        q.segment_of[first_chunk + k] = whose;
      }
    }
  };

  // Queues a lane's segment; returns whether there was room for it.
  static __device__ __forceinline__ bool enqueue(const queue& q, const segment& given, i64 index) {
    if (q.head == nullptr || is_full(q)) {
      return false;
    }
    const auto chunks = static_cast<unsigned>(chunks_of(given.length).number(given.length));
    const u64 before  = atomicAdd(q.head, u64{1} << 32 | chunks);
    const place its{static_cast<unsigned>(before >> 32), static_cast<unsigned>(before), chunks};
    its.put(q, given, index);
    its.tell(q, 0, 1);
    return its.fits(q);
  }

  // Queues those segments of a warp's lanes that are not empty; returns of which lanes there was room for.
  static __device__ __forceinline__ unsigned enqueue_all(const queue& q, const segment& given, i64 index) {
    const unsigned all = __ballot_sync(~0u, given.length > 0);
    if (all == 0 || __any_sync(~0u, is_full(q))) {
      return 0;
    }
    const int lane     = threadIdx.x % 32;
    const auto chunks  = static_cast<unsigned>(chunks_of(given.length).number(given.length));
    const unsigned end = sum_up_to_lane(chunks);
    u64 before         = 0;
    if (lane == 31) {
      before = atomicAdd(q.head, static_cast<u64>(__popc(all)) << 32 | end);
    }
    before = __shfl_sync(~0u, before, 31);
    const place its{static_cast<unsigned>(before >> 32) + __popc(all & ((1u << lane) - 1)),
                    static_cast<unsigned>(before) + end - chunks, chunks};
    if (chunks > 0) {
      its.put(q, given, index);
    }
    for (unsigned each = all; each != 0; each &= each - 1) {
      const int whose = __ffs(each) - 1;
      place{__shfl_sync(~0u, its.at, whose), __shfl_sync(~0u, its.first_chunk, whose),
            __shfl_sync(~0u, its.chunks, whose)}
          .tell(q, lane, 32);
    }
    return __ballot_sync(~0u, chunks > 0 && its.fits(q));
  }

  // --- Kernels ---

  struct cupar_segmented_reduce_init : zero<u64> {};

  // Whether groups have as many items each. (With larger results it takes registers that others need.)
  static constexpr bool are_equal = is_rows && sizeof(accum_t) <= 4;

  struct cupar_segmented_reduce : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, int log_lanes,
                                               queue q, op_t op, accum_t init) {
      join_stream();
      const int lane = threadIdx.x % 32, lanes = 1 << log_lanes, own = lane & (lanes - 1);
      const i64 first = (i64{blockIdx.x} * warps + threadIdx.x / 32) << (5 - log_lanes);
      if (first >= num_segments) {
        return;
      }
      const i64 index = first + (lane >> log_lanes);
      segment its{0, 0};
      if (index < num_segments) {
        its.begin  = static_cast<i64>(starts[index]);
        its.length = length_of(its.begin, static_cast<i64>(ends[index]));
      }
      const i64 left_over = num_segments - first;
      const int count     = left_over < 32 >> log_lanes ? static_cast<int>(left_over) : 32 >> log_lanes;
      bool is_left        = index < num_segments;
      if constexpr (is_rows) {
        if (lanes <= staged_lanes && combine_staged(in, out, its, first, 0, count, log_lanes, op, init)) {
          return;
        }
      } else if (lanes <= staged_lanes) {
        // All of them; or halves, if these may fit.
        int begin = 0, end = count;
#pragma unroll 1
        for (int turn = 0; turn < 3; ++turn) {
          const bool is_done = combine_staged(in, out, its, first, begin, end, log_lanes, op, init);
          const int group    = lane >> log_lanes;
          is_left            = is_left && !(is_done && group >= begin && group < end);
          if (turn == 0) {
            if (is_done) {
              return;
            }
            const i64 low = shuffle(its.begin, 0);
            const i64 all = shuffle(its.begin + its.length, (count - 1) << log_lanes) - low;
            if (count == 1 || all < 0 || all > 2 * staged_items) {
              break;
            }
          }
          __syncwarp();  // the stage is read
          begin = turn == 0 ? 0 : count / 2;
          end   = turn == 0 ? count / 2 : count;
        }
        if (!__any_sync(~0u, is_left)) {
          return;
        }
        its.length = is_left ? its.length : 0;
      }

      // What is much longer than what others of the warp may have is for all of its lanes, one by one.
      const bool is_wide = lanes < 32 && its.length > (i64{4} * items * rows << log_lanes);
      const bool is_long = its.length > chunk_items;
      partial sum;
      combine_group<are_equal>(sum, in + its.begin, is_wide || is_long ? 0 : static_cast<int>(its.length),
                               own, lanes, op);
      if (own == 0 && is_left && !is_wide && !is_long) {
        finish(out, index, sum, op, init);
      }
      for (unsigned wide = __ballot_sync(~0u, own == 0 && (is_wide || is_long)); wide != 0;
           wide &= wide - 1) {
        const int from     = __ffs(wide) - 1;
        const segment that = {shuffle(its.begin, from), shuffle(its.length, from)};
        const i64 place    = first + (from >> log_lanes);
        const bool is_queued =
            that.length > chunk_items && __shfl_sync(~0u, lane == 0 && enqueue(q, that, place), 0);
        if (!is_queued) {
          combine_chunks(in, out, that, place, op, init);
        }
      }
    }
  };

  static constexpr bool has_few =
      is_array<d_in_t> && !is_ordered && sizeof(d_in_v) <= 16 && sizeof(value_t) <= 16;
  static constexpr int few_segments = 4;  // of a lane

  // Combines a lane's items one after another.
  template <class It>
  static __device__ __forceinline__ partial combine_items(It from, int length, const op_t& op) {
    partial sum;
    if (length > 0) {
      sum.add(static_cast<accum_t>(from[0]), op);
#pragma unroll 1
      for (int i = 1; i < length; ++i) {
        sum.value = combine(sum.value, static_cast<value_t>(static_cast<accum_t>(from[i])), op);
      }
    }
    return sum;
  }

  // Combines a segment in shared memory: each lane has every 32nd item.
  static __device__ __forceinline__ void combine_in_warp(const d_in_v* from, int length, d_out_t out,
                                                         i64 index, const op_t& op, accum_t init) {
    const int lane = threadIdx.x % 32;
    partial sum;
    for (int i = lane; i < length; i += 32) {
      sum.add(static_cast<accum_t>(from[i]), op);
    }
    __syncwarp();
    combine_lanes(sum, 32, op);
    if (lane == 0) {
      finish(out, index, sum, op, init);
    }
  }

  // Whether each segment ends where the next one begins, as both offsets are of one array.
  static __device__ __forceinline__ bool is_one_array(start_offsets_in_t starts, end_offsets_in_t ends) {
    if constexpr (is_array<start_offsets_in_t> &&
                  cuda::std::is_same_v<start_offsets_in_t, end_offsets_in_t>) {
      return ends == starts + 1;
    }
    return false;
  }

  // Segments of a warp, of which each lane has every 32nd: in items from the first one's begin on, so that 32
  // bits are enough if they are near each other.
  struct near_segments {
    i64 low;   // where the first one begins
    u64 span;  // from there to the last one's end
    int begin[few_segments], length[few_segments];

    // Reads the offsets, which are all on their way at once; returns whether all are within the span, and
    // that has not too many items.
    template <bool is_one_array>
    __device__ __forceinline__ bool read(start_offsets_in_t starts, end_offsets_in_t ends, int most) {
      const int lane = threadIdx.x % 32;
      i64 from[few_segments], to[few_segments];
#pragma unroll
      for (int k = 0; k < few_segments; ++k) {
        from[k] = static_cast<i64>(starts[32 * k + lane]);
        to[k]   = is_one_array ? 0 : static_cast<i64>(ends[32 * k + lane]);
      }
      low             = static_cast<i64>(starts[0]);
      const auto high = static_cast<i64>(ends[32 * few_segments - 1]);
      span            = distance_of(low, high);
      bool is_near    = span <= static_cast<u64>(most);

      const auto placed = [&](i64 offset) {
        const u64 distance = static_cast<u64>(offset) - static_cast<u64>(low);
        is_near &= distance <= span;
        return static_cast<int>(distance);
      };
#pragma unroll
      for (int k = 0; k < few_segments; ++k) {
        begin[k]  = placed(from[k]);
        length[k] = is_one_array ? 0 : placed(to[k]);
      }
#pragma unroll
      for (int k = 0; k < few_segments; ++k) {
        if constexpr (is_one_array) {
          const int next = k + 1 < few_segments ? begin[(k + 1) % few_segments] : static_cast<int>(span);
          length[k]      = __shfl_sync(~0u, lane == 0 ? next : begin[k], (lane + 1) % 32);
        }
        length[k] = length[k] > begin[k] ? length[k] - begin[k] : 0;
      }
      return __all_sync(~0u, is_near);
    }

    // Whether none of them has more than so many items.
    __device__ __forceinline__ bool are_short(int most) const {
      bool all = true;
#pragma unroll
      for (int k = 0; k < few_segments; ++k) {
        all &= length[k] <= most;
      }
      return __all_sync(~0u, all);
    }
  };

  // Segments of a few items, where a lane has several: all offsets of a warp are on their way at once, and so
  // is what it spans. If that is too much, or segments do not lie beside each other, each 32 are taken by
  // themselves; and where that does not help, lanes combine items in memory. A warp has the longer segments.
  struct cupar_segmented_reduce_few : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, int part_bytes,
                                               queue q, op_t op, accum_t init) {
      if constexpr (has_few && !is_rows) {
        join_stream();
        const int lane  = threadIdx.x % 32;
        const i64 first = (i64{blockIdx.x} * warps + threadIdx.x / 32) * (32 * few_segments);
        if (first >= num_segments) {
          return;
        }
        const i64 left        = num_segments - first;
        const int count       = left < 32 * few_segments ? static_cast<int>(left) : 32 * few_segments;
        const auto segment_of = [&](int k) {
          segment its{0, 0};
          if (32 * k + lane < count) {
            its.begin  = static_cast<i64>(starts[first + 32 * k + lane]);
            its.length = length_of(its.begin, static_cast<i64>(ends[first + 32 * k + lane]));
          }
          return its;
        };
        constexpr int most    = 16;  // items of a lane
        const int most_staged = (part_bytes - widest) / static_cast<int>(sizeof(d_in_v));
        near_segments near;
        // All lanes of a warp vote alike, which tells the compiler that they stay together.
        if (__all_sync(~0u, count == 32 * few_segments) &&
            (is_one_array(starts, ends)
                 ? near.template read<true>(starts + first, ends + first, most_staged)
                 : near.template read<false>(starts + first, ends + first, most_staged))) {
          const d_in_v* const stage =
              copy_span(in, near.low, near.low + static_cast<i64>(near.span), part_bytes);
          if (near.are_short(most)) {
            const d_out_t own = out + (first + lane);
#pragma unroll
            for (int k = 0; k < few_segments; ++k) {
              finish(own, 32 * k, combine_items(stage + near.begin[k], near.length[k], op), op, init);
            }
            return;
          }
#pragma unroll 1
          for (int k = 0; k < few_segments; ++k) {
            const segment own = segment_of(k);
            const auto at = static_cast<int>(own.begin - near.low), own_length = static_cast<int>(own.length);
            if (own_length <= most) {
              finish(out, first + 32 * k + lane, combine_items(stage + at, own_length, op), op, init);
            }
            __syncwarp();
            for (unsigned more = __ballot_sync(~0u, own_length > most); more != 0; more &= more - 1) {
              const int from = __ffs(more) - 1;
              combine_in_warp(stage + shuffle(at, from), shuffle(own_length, from), out,
                              first + 32 * k + from, op, init);
            }
          }
          return;
        }
#pragma unroll 1
        for (int k = 0; k < few_segments && 32 * k < count; ++k) {
          const segment own = segment_of(k);
          const int last    = count - 32 * k < 32 ? count - 32 * k - 1 : 31;
          const i64 index = first + 32 * k + lane, begin = shuffle(own.begin, 0),
                    end      = shuffle(own.begin + own.length, last);
          const bool is_near = own.length == 0 || (own.begin >= begin && own.begin + own.length <= end);
          if (__all_sync(~0u, is_near && distance_of(begin, end) <= static_cast<u64>(most_staged))) {
            const d_in_v* const stage = copy_span(in, begin, end, part_bytes);
            const partial sum = combine_items(stage + (own.begin - begin), static_cast<int>(own.length), op);
            if (lane <= last) {
              finish(out, index, sum, op, init);
            }
            __syncwarp();  // the stage is read
            continue;
          }
          if (lane <= last && own.length <= most) {
            finish(out, index, combine_items(in + own.begin, static_cast<int>(own.length), op), op, init);
          }
          __syncwarp();
          for (unsigned more = __ballot_sync(~0u, own.length > most); more != 0; more &= more - 1) {
            const int from     = __ffs(more) - 1;
            const segment that = {shuffle(own.begin, from), shuffle(own.length, from)};
            const i64 place    = shuffle(index, from);
            const bool is_queued =
                that.length > chunk_items && __shfl_sync(~0u, lane == 0 && enqueue(q, that, place), 0);
            if (!is_queued) {
              combine_chunks(in, out, that, place, op, init);
            }
          }
        }
      }
    }
  };

  // Rows of a few items: lanes have several, one after another, and all of a warp's are on their way at once.
  struct cupar_segmented_reduce_rows : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, i64 length, i64 num_rows,
                                               int rows_of_warp, int part_bytes, op_t op, accum_t init) {
      if constexpr (has_few && is_rows) {
        join_stream();
        const i64 first = (i64{blockIdx.x} * warps + threadIdx.x / 32) * rows_of_warp;
        if (first >= num_rows) {
          return;
        }
        const int lane = threadIdx.x % 32, size = static_cast<int>(length);
        const i64 left            = num_rows - first;
        const int count           = left < rows_of_warp ? static_cast<int>(left) : rows_of_warp;
        const d_in_v* const stage = copy_span(in, first * length, first * length + count * size, part_bytes);
        const d_out_t own         = out + first;
#pragma unroll 1
        for (int i = lane; i < count; i += 32) {
          partial sum;
          combine_staged_share(sum, stage + i * size, size, lane, 0, op);
          finish(own, i, sum, op, init);
        }
      }
    }
  };

  // Queues all segments, where most are long: a lane for each. A warp combines those there is no room for.
  struct cupar_segmented_reduce_queue : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, i64 num_segments, queue q, op_t op,
                                               accum_t init) {
      join_stream();
      const i64 index = i64{blockIdx.x} * threads + threadIdx.x;
      segment its{0, 0};
      if (index < num_segments) {
        its.begin  = static_cast<i64>(starts[index]);
        its.length = length_of(its.begin, static_cast<i64>(ends[index]));
        if (its.length == 0) {
          finish(out, index, partial{}, op, init);
        }
      }
      const unsigned queued = enqueue_all(q, its, index);
      for (unsigned left = __ballot_sync(~0u, its.length > 0) & ~queued; left != 0; left &= left - 1) {
        const int from     = __ffs(left) - 1;
        const segment that = {shuffle(its.begin, from), shuffle(its.length, from)};
        combine_chunks(in, out, that, shuffle(index, from), op, init);
      }
    }
  };

  // A warp for each chunk in the queue.
  struct cupar_segmented_reduce_chunks : kernel<threads> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, queue q, op_t op, accum_t init) {
      join_stream();
      const int lane      = threadIdx.x % 32;
      const auto queued   = static_cast<unsigned>(*q.head);
      const auto chunks   = queued < q.most_chunks ? queued : q.most_chunks;
      const unsigned step = gridDim.x * warps;
      for (unsigned at = blockIdx.x * warps + threadIdx.x / 32; at < chunks; at += step) {
        if (q.segment_of[at] == no_segment) {
          continue;
        }
        long_segment* const its = q.segments + q.segment_of[at];
        const i64 chunk = chunks_of(its->length).items(), before = (at - its->first_chunk) * chunk;
        const i64 left    = its->length - before;
        const partial sum = combine_chunk(in + its->begin + before, left < chunk ? left : chunk, op);
        bool is_last      = false;
        if (lane == 0) {
          q.partials[at] = static_cast<accum_t>(sum.value);
          __threadfence();
          is_last = atomicSub(&its->left, 1u) == 1;
          __threadfence();
        }
        __syncwarp();
        if (__any_sync(~0u, is_last)) {
          partial all;
          const unsigned count          = its->chunks;
          const accum_t* const partials = q.partials + its->first_chunk;
          if constexpr (is_ordered) {
            combine_in_order<1>(all, partials, static_cast<int>(count), lane, 32, op);
          } else {
            constexpr int together = is_large<accum_t> ? 1 : 8;
            unsigned k             = lane;
            for (; k + (together - 1) * 32 < count; k += together * 32) {
              accum_t loaded[together];
#pragma unroll
              for (int i = 0; i < together; ++i) {
                loaded[i] = partials[k + i * 32];
              }
#pragma unroll
              for (int i = 0; i < together; ++i) {
                all.add(loaded[i], op);
              }
            }
            for (; k < count; k += 32) {
              all.add(partials[k], op);
            }
            __syncwarp();
            combine_lanes(all, 32, op);
          }
          if (lane == 0) {
            finish(out, its->index, all, op, init);
          }
        }
      }
    }
  };

  static constexpr auto properties = properties_of(
      threads, sizeof(accum_t), sizeof(long_segment), chunk_items, is_array<d_in_t> ? sizeof(d_in_v) : 0,
      batch_bytes, staged_lanes, warps* stage_bytes, has_few, is_rows);
};
}  // namespace cupar
