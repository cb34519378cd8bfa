// Scans of segments. A warp has several short ones, or one, and takes what they are made of tile by tile: if
// they follow one another, as vectors, whatever lies in each; else item by item. Rows of one length follow
// one another always, and need no offsets.
//
// Long segments are cut into chunks, which go into a queue for a kernel that follows; see
// `chunks.cuh`. Segments of a few items have another kernel; see `dense.cuh`.
//
// Rows of tuples of arrays are for blocks, if their registers hold one; see `block_rows.cuh`. Longer ones are
// one scan of all items, staged in shared memory; see `staged_tiles.cuh`.
//
// Nothing is read back, and what is combined with what depends on the lengths and on how the arrays are
// aligned alone, so it is the same in every run. The operator need not be commutative, nor have an identity.
//
// Source: ours; see `tile.cuh`.
//
// Traits: d_in_t, d_out_t, start_offsets_in_t, end_offsets_in_t, start_offsets_out_t, op_t, accum_t; is_rows,
// has_outputs (whether there are other offsets in the output); is_inclusive, init_is_value,
// init_is_on_device; policy_words, policy_warps, policy_resident, policy_span, policy_long_tiles; and what
// chunks.cuh has.
#pragma once

#include "common/kernel.cuh"
#include "common/offsets.cuh"
#include "scan/staged_tiles.cuh"
#include "segmented_scan/block_rows.cuh"
#include "segmented_scan/dense.cuh"

namespace cupar {
// Where nothing is staged.
struct not_staged {
  static constexpr int threads = 32, tile_items = 0, known_size = 0, shared = 0;
  static constexpr bool fits = false;
};

struct no_block_rows {
  static constexpr int items = 0, vectors = 0, threads = 32, resident = 0;
};

template <class Traits>
struct segmented_scan_kernels : scan_of_dense<Traits> {
  using start_offsets_in_t               = typename Traits::start_offsets_in_t;
  using end_offsets_in_t                 = typename Traits::end_offsets_in_t;
  using start_offsets_out_t              = typename Traits::start_offsets_out_t;
  static constexpr bool is_rows          = Traits::is_rows;
  static constexpr bool has_outputs      = Traits::has_outputs;
  static constexpr int policy_warps      = Traits::policy_warps;
  static constexpr int policy_resident   = Traits::policy_resident;
  static constexpr int policy_span       = Traits::policy_span;
  static constexpr int policy_long_tiles = Traits::policy_long_tiles;

  using base = scan_of_dense<Traits>;
  using base::chunk_items;
  using base::chunk_resident;
  using base::chunk_shared;
  using base::chunk_threads;
  using base::chunks_in;
  using base::items;
  using base::row_items;
  using base::rows;
  using base::span_of;
  using base::tile_items;
  using base::workers;
  using typename base::accum_t;
  using typename base::block_state;
  using typename base::chunk;
  using typename base::d_in_t;
  using typename base::d_out_t;
  using typename base::d_out_v;
  using typename base::head_marks;
  using typename base::init_t;
  using typename base::known;
  using typename base::long_segment;
  using typename base::marked;
  using typename base::op_t;
  using typename base::queue;
  using typename base::queue_heads;
  using typename base::span;
  using typename base::tile;
  using typename base::value_t;

  static constexpr int warps = policy_warps, threads = 32 * warps;
  static constexpr bool is_small = sizeof(value_t) <= 8;
  static constexpr int resident =
      is_small ? policy_resident : 1;  // blocks that a multiprocessor is to run at once
  static constexpr unsigned items_marked = (1u << items) - 1;

  // Segments of a warp that do not follow one another, as if they did.
  struct pieces {
    i64 at[32];           // where each begins then
    i64 in[32], out[32];  // from there to where it begins in the input, and in the output

    // The one that a position is in.
    __device__ __forceinline__ int find(i64 position) const {
      int found = 0;
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        found += at[found + step] <= position ? step : 0;
      }
      return found;
    }
    __device__ __forceinline__ int next(int piece, i64 position) const {
      while (piece < 31 && at[piece + 1] <= position) {
        ++piece;
      }
      return piece;
    }
  };

  static __device__ __forceinline__ void load_pieces(tile& its, d_in_t in, const pieces& of, i64 first) {
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (its.has_row(r)) {
        int piece = 0;
#pragma unroll
        for (int i = 0; i < items; ++i) {
          const int place = tile::position(r) + i;
          const i64 at    = first + (place < its.high ? place : its.high - 1);
          piece           = i == 0 ? of.find(at) : of.next(piece, at);
          its.item[r][i]  = static_cast<accum_t>(in[at + of.in[piece]]);
        }
      }
    }
  }

  static __device__ __forceinline__ void store_pieces(const tile& its, d_out_t out, const pieces& of,
                                                      i64 first, const value_t& before, const value_t& init) {
    its.store_by(before, init, [&](int r, const vector<d_out_v, items>& stored) {
      int piece = 0;
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const int place = tile::position(r) + i;
        if (place < its.high) {
          const i64 at            = first + place;
          piece                   = i == 0 ? of.find(at) : of.next(piece, at);
          out[at + of.out[piece]] = stored.item[i];
        }
      }
    });
  }

  // Marks where the lanes' segments begin.
  static __device__ __forceinline__ void mark(tile& its, unsigned* marks, bool is_there, i64 begin) {
    constexpr int words = rows * items;
    const int lane      = threadIdx.x % 32;
    for (int w = lane; w < words; w += 32) {
      marks[w] = 0;
    }
    __syncwarp();
    if (is_there && begin >= 0 && begin < tile_items) {
      atomicOr(marks + begin / 32, 1u << begin % 32);
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      its.heads[r] = marks[tile::position(r) / 32] >> tile::position(r) % 32 & items_marked;
    }
    __syncwarp();
  }

  // Marks where rows begin; the tile begins so many items after one does, or before.
  static __device__ __forceinline__ void mark_rows(tile& its, unsigned size, int after) {
    const auto begin    = static_cast<unsigned>(after + tile::position(0) + items * static_cast<int>(size));
    const unsigned step = row_items % size;
    unsigned at         = begin % size;  // in a row
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      unsigned item = at;
      its.heads[r]  = 0;
#pragma unroll
      for (int i = 0; i < items; ++i) {
        its.heads[r] |= item == 0 ? 1u << i : 0;
        item = item + 1 == size ? 0 : item + 1;
      }
      at += step;
      at -= at >= size ? size : 0;
    }
  }

  // A segment for each lane; or rows of a size, which all lanes share.
  struct share {
    i64 begin, to, length;
    unsigned row_size;
    bool is_one;  // whether there is one row
  };

  // Rows that warps scan are no longer than chunks are.
  using place_t = cuda::std::conditional_t<is_rows, int, i64>;

  // Scans the values of a warp's lanes.
  static __device__ __forceinline__ void scan_share(d_in_t in, d_out_t out, const share& its, unsigned* marks,
                                                    pieces& apart, const value_t& init, const op_t& op) {
    bool is_one = true, together = true;
    i64 at = 0;
    span of;
    if constexpr (is_rows) {
      of     = span_of(in + its.begin, out + its.to, its.length);
      is_one = its.is_one;
    } else {
      const int lane        = threadIdx.x % 32;
      const unsigned filled = __ballot_sync(~0u, its.length > 0);
      if (filled == 0) {
        return;
      }
      is_one         = (filled & (filled - 1)) == 0;
      const int lead = __ffs(filled) - 1;
      i64 all        = its.length;
      if (!is_one) {
        all = sum_up_to_lane(all);
        at  = all - its.length;
      }
      all            = shuffle(all, is_one ? lead : 31);
      const i64 from = shuffle(its.begin - at, lead), to = shuffle(its.to - at, lead);
      together = is_one || __all_sync(~0u, its.length == 0 || (its.begin - at == from && its.to - at == to));
      of       = {in, out, 0, all, false, false};
      if (together) {
        of = span_of(in + from, out + to, all);
      } else {
        apart.at[lane]  = at;
        apart.in[lane]  = its.begin - at;
        apart.out[lane] = its.to - at;
        __syncwarp();
      }
    }

    value_t last;  // the exclusive prefix of a tile
    const auto low = static_cast<place_t>(of.low), high = static_cast<place_t>(of.high);
    for (place_t first = 0; first < high; first += tile_items) {
      tile now;
      now.place(low, high, first);
      if (is_one) {
        now.mark_first(first == 0);
      } else if constexpr (is_rows) {
        mark_rows(now, its.row_size, first - low);
      } else {
        mark(now, marks, its.length > 0, at + low - first);
      }
      if (together) {
        now.load_items(of.in + first, of.is_wide);
      } else {
        load_pieces(now, in, apart, first);
      }
      const value_t before = last;
      now.scan(last, first > 0, init, op);
      if (together) {
        now.store_items(of.out + first, of.is_wider, before, init);
      } else {
        store_pieces(now, out, apart, first, before, init);
      }
    }
  }

  static __device__ __forceinline__ share segment_at(start_offsets_in_t starts, end_offsets_in_t ends,
                                                     start_offsets_out_t outputs, i64 index) {
    const i64 begin = static_cast<i64>(starts[index]), size = length_of(begin, static_cast<i64>(ends[index]));
    return {begin, has_outputs ? static_cast<i64>(outputs[index]) : begin, size, 0, false};
  }

  // A segment that has chunks; none, if it is not long.
  static __device__ __forceinline__ long_segment in_chunks(d_in_t in, d_out_t out, const share& its,
                                                           i64 long_items) {
    long_segment of{its.begin, its.to, its.length, 0, 0};
    if (its.length > long_items) {
      const u64 high = span_of(in + its.begin, out + its.to, its.length).high;
      of.chunks      = static_cast<unsigned>((high - 1) / static_cast<u64>(chunk_items) + 1);
    }
    return of;
  }

  // The next chunk in the queue: a block takes a ticket for it while the one before is on its way.
  struct queued_chunks {
    const queue& q;
    unsigned chunks;
    unsigned ticket;  // the first lane has it

    __device__ __forceinline__ queued_chunks(const queue& from)
        : q(from), chunks(static_cast<unsigned>(chunks_in(*from.heads))) {
      take();
    }
    __device__ __forceinline__ void take() {
      if (threadIdx.x % 32 == 0) {
        ticket = atomicInc(&q.heads->ticket, 0x7fffffff);  // of atomicAdd, the result is waited for at once
      }
    }
    __device__ __forceinline__ chunk next() {
      const unsigned at = shuffle(ticket, 0);
      chunk next{{}, 0, at < chunks};
      if (next.is_there) {
        take();
        next.its = q.segments[q.segment_of[at]];
        next.k   = at - next.its.first_chunk;
      }
      return next;
    }
  };

  // The chunks of one block, if the queue is not used: all chunks of its groups of 32 segments.
  struct own_chunks {
    i64 first     = i64{32} * blockIdx.x;  // of 32 segments
    unsigned left = ~0u;                   // which of these are left
    chunk now     = {{}, 0, false};

    template <class LongSegmentAt>
    __device__ __forceinline__ chunk next(i64 num_segments, LongSegmentAt long_segment_at) {
      if (now.is_there && ++now.k < now.its.chunks) {
        return now;
      }
      now.is_there = false;
      while (first < num_segments) {
        const i64 index = first + threadIdx.x % 32;
        long_segment of{0, 0, 0, 0, 0};
        if (index < num_segments) {
          of = long_segment_at(index);
        }
        const unsigned found = __ballot_sync(~0u, of.chunks > 0) & left;
        if (found != 0) {
          left = found & (found - 1);
          now  = {shuffle(of, __ffs(found) - 1), 0, true};
          break;
        }
        first += i64{32} * gridDim.x;
        left = ~0u;
      }
      return now;
    }
  };

  // Empties the queue: 256 words of 16 bytes a block.
  struct cupar_segmented_scan_init : kernel<256> {
    static __device__ __forceinline__ void run(queue_heads* heads, uint4* of_chunks, unsigned words) {
      join_stream();
      const unsigned at = blockIdx.x * 256 + threadIdx.x;
      if (at < words) {
        of_chunks[at] = uint4{0, 0, 0, 0};
      }
      if (at == 0) {
        *heads = {0, 0, 0};
      }
    }
  };

  struct cupar_segmented_scan : kernel<threads, resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, start_offsets_out_t outputs,
                                               i64 num_segments, int batch, i64 long_items, queue q, op_t op,
                                               init_t given_init) {
      __shared__ unsigned marks[is_rows ? 1 : warps][rows * items];
      __shared__ pieces apart[is_rows ? 1 : warps];
      join_stream();
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      const i64 first = (i64{blockIdx.x} * warps + warp) * batch;
      if (first >= num_segments) {
        return;
      }
      const i64 left  = num_segments - first;
      const int count = left < batch ? static_cast<int>(left) : batch;
      share its{0, 0, 0, 0, false};
      if constexpr (is_rows) {
        // Rows follow one another, and all are long or none is.
        const i64 size = ends[0] - starts[0];
        if (q.heads == nullptr || size <= long_items) {
          its = {first * size, first * size, count * size, static_cast<unsigned>(size), count == 1};
          scan_share(in, out, its, nullptr, apart[0], initial<value_t>(given_init), op);
          return;
        }
      }
      if (lane < count) {
        its = segment_at(starts, ends, outputs, first + lane);
      }
      if (q.heads != nullptr) {
        const long_segment of = in_chunks(in, out, its, long_items);
        base::enqueue(q, of);
        its.length = of.chunks > 0 ? 0 : its.length;
      }
      if constexpr (!is_rows) {
        scan_share(in, out, its, marks[warp], apart[warp], initial<value_t>(given_init), op);
      }
    }
  };

  // Segments of a few items.
  struct cupar_segmented_scan_dense : kernel<threads, (is_small ? 3 : 1)> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, start_offsets_out_t outputs,
                                               i64 num_segments, int batch, i64 long_items, queue q, op_t op,
                                               init_t given_init) {
      __shared__ head_marks of_warps[warps];
      join_stream();
      const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
      const i64 index = (i64{blockIdx.x} * warps + warp) * batch;
      if (index >= num_segments) {
        return;
      }
      const i64 there   = num_segments - index;
      const int count   = there < batch ? static_cast<int>(there) : batch;
      head_marks& marks = of_warps[warp];
      const auto init   = initial<value_t>(given_init);
      unsigned pending  = 0;  // of the last 32 segments, those for the warp
      for (int done = 0; done < count || pending != 0;) {
        marked now{0, 0, 0};
        if (pending != 0) {
          const share its = segment_at(starts, ends, outputs, index + done - 33 + __ffs(pending));
          pending &= pending - 1;
          now = {its.begin, its.to, static_cast<int>(its.length)};
          marks.clear();
          if (lane == 0) {
            marks.at[span_of(in + now.begin, out + now.to, 0).low] = 1;
          }
          __syncwarp();
        } else {
          int taken = base::take(now, marks, in, out, starts, ends, outputs, index + done, count - done);
          if (taken == 0) {
            taken = 32;
            share its{0, 0, 0, 0, false};
            if (done + lane < count) {
              its = segment_at(starts, ends, outputs, index + done + lane);
            }
            const long_segment of = in_chunks(in, out, its, long_items);
            base::enqueue(q, of);
            if (its.length <= base::lane_most) {
              base::scan_alone(in + its.begin, out + its.to, static_cast<int>(its.length), init, op);
            }
            pending = __ballot_sync(~0u, its.length > base::lane_most && of.chunks == 0);
            now     = {0, 0, 0};
          }
          done += taken;
        }
        if (now.length > 0) {
          base::scan_marked(in, out, now, marks, init, op);
        }
      }
    }
  };

  // Scans long segments, chunk by chunk.
  struct cupar_segmented_scan_chunks : kernel<chunk_threads, chunk_resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, start_offsets_in_t starts,
                                               end_offsets_in_t ends, start_offsets_out_t outputs,
                                               i64 num_segments, i64 long_items, queue q, op_t op,
                                               init_t given_init) {
      __shared__ block_state block;
      join_stream();
      if (threadIdx.x == 0) {
        block.init();
      }
      __syncthreads();
      const bool is_over = q.heads->is_over != 0;
      const int warp     = threadIdx.x / 32;
      if (warp < workers) {
        base::work_on_chunks(block, in, out, warp, op);
      } else if (warp == workers) {
        own_chunks own;
        queued_chunks queued(q);
        base::load_chunks(block, in, out, [&] {
          return is_over ? own.next(num_segments,
                                    [&](i64 index) {
                                      const share its = segment_at(starts, ends, outputs, index);
                                      return in_chunks(in, out, its, long_items);
                                    })
                         : queued.next();
        });
      } else if (warp == workers + 1) {
        base::publish_chunks(block, in, out, q, is_over, initial<value_t>(given_init), op);
      } else {
        base::look_ahead(block, q, is_over, initial<value_t>(given_init), op);
      }
    }
  };

  using staged_rows =
      cuda::std::conditional_t<Traits::staged_warps != 0, staged_scan<Traits, true>, not_staged>;

  struct cupar_segmented_scan_clear_staged : kernel<256> {
    static __device__ __forceinline__ void run(uint4* memory, unsigned words) {
      staged_rows::clear(memory, words);
    }
  };

  struct cupar_segmented_scan_staged : kernel<staged_rows::threads, 1> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, void* memory, unsigned tiles,
                                               u64 num_items, unsigned row, op_t op, init_t init) {
      staged_rows::run(in, out, memory, tiles, num_items, row, op, init);
    }
  };

  using block_rows =
      cuda::std::conditional_t<Traits::row_vectors != 0, scan_of_block_rows<Traits>, no_block_rows>;

  struct cupar_segmented_scan_rows : kernel<block_rows::threads, block_rows::resident> {
    static __device__ __forceinline__ void run(d_in_t in, d_out_t out, int length, op_t op, init_t init) {
      block_rows::run(in, out, length, op, init);
    }
  };

  static constexpr auto properties = properties_of(
      threads, chunk_threads, items, tile_items, policy_span, policy_long_tiles* tile_items,
      static_cast<int>(chunk_items), chunk_shared, sizeof(long_segment), sizeof(known), is_rows,
      staged_rows::threads, staged_rows::fits ? staged_rows::tile_items : 0, staged_rows::known_size,
      staged_rows::shared, block_rows::items, block_rows::vectors, base::marked_items - items);
};
}  // namespace cupar
