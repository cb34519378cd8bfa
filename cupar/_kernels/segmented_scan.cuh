// Scans of segments. A warp has several short ones, or one, and takes what they are made of tile by tile: if
// they follow one another, as vectors, whatever lies in each; else item by item. Rows of one length follow
// one another always, and need no offsets.
//
// Long segments are cut into chunks, which go into a queue for a kernel that follows. There, a block has a
// chunk in its registers while it learns what comes before it (`segment_chunks.cuh`). If the queue is full,
// the warp takes a segment by itself, and combines items in the order in which blocks would have.
//
// Nothing is read back, and what is combined with what depends on the lengths and on how the arrays are
// aligned alone, so it is the same in every run. The operator need not be commutative, nor have an identity.
//
// Source: ours; see `scan_tile.cuh` and `segment_chunks.cuh`.
//
// Given: d_in_t, d_out_t, start_offsets_in_t, end_offsets_in_t, start_offsets_out_t, op_t, accum_t; is_rows,
// has_outputs (whether there are other offsets in the output); is_inclusive, init_is_value,
// init_is_on_device; policy_words, policy_warps, policy_resident, policy_chunk_warps, policy_chunk_resident,
// policy_span.
#include "segment_chunks.cuh"

namespace cupar {
constexpr int warps = policy_warps, threads = 32 * warps;
constexpr bool is_small = sizeof(value_t) <= 8;
constexpr int resident  = is_small ? policy_resident : 1;  // blocks that a multiprocessor is to run at once
constexpr int chunk_resident    = is_small ? policy_chunk_resident : 1;
constexpr unsigned items_marked = (1u << items) - 1;

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

__device__ __forceinline__ void load_pieces(tile& its, d_in_t in, const pieces& of, i64 first) {
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

__device__ __forceinline__ void store_pieces(const tile& its, d_out_t out, const pieces& of, i64 first,
                                             const value_t& before, const value_t& init) {
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
__device__ __forceinline__ void mark(tile& its, unsigned* marks, bool is_there, i64 begin) {
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
__device__ __forceinline__ void mark_rows(tile& its, unsigned size, int after) {
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

// What is before a tile of a segment, if blocks had cut that into chunks.
struct as_chunks {
  value_t up_to_groups, of_chunk, before;
  bool has_groups = false, has_before = false;

  // Adds a chunk.
  __device__ __forceinline__ void add(i64 k, const value_t& sum, const op_t& op) {
    const int lane = threadIdx.x % 32, place = static_cast<int>(k % 32);
    if (lane >= place) {
      of_chunk = sum;
    }
    before = shuffle(scan_group(of_chunk, op), place);
    if (has_groups) {
      before = combine(up_to_groups, before, op);
    }
    has_before = true;
    if (place == 31) {
      up_to_groups = before;
      has_groups   = true;
    }
  }
};

// The segments of a warp's lanes; or rows of a size, which are the first lane's.
struct share {
  i64 begin, to, length;
  unsigned row_size;  // 0: one segment a lane
};

template <class Offsets>
__device__ __forceinline__ i64 row_length(const Offsets& of) {
  if constexpr (is_rows) {
    return of.length;
  } else {
    return 0;
  }
}

// Scans what the lanes of a warp have. If that is one segment, it may be combined as blocks would.
__device__ __forceinline__ void scan_share(d_in_t in, d_out_t out, const share& its, int log_tiles,
                                           unsigned* marks, pieces& apart, const value_t& init,
                                           const op_t& op) {
  const int lane        = threadIdx.x % 32;
  const unsigned filled = __ballot_sync(~0u, its.length > 0);
  if (filled == 0) {
    return;
  }
  const bool is_one = is_rows || (filled & (filled - 1)) == 0;
  const int lead    = __ffs(filled) - 1;
  i64 at = 0, all = its.length;
  if (!is_one) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const i64 other = shuffle_up(all, distance);
      all += lane >= distance ? other : 0;
    }
    at = all - its.length;
  }
  all            = shuffle(all, is_one ? lead : 31);
  const i64 from = shuffle(its.begin - at, lead), to = shuffle(its.to - at, lead);
  const bool together =
      is_one || __all_sync(~0u, its.length == 0 || (its.begin - at == from && its.to - at == to));
  span of = {in, out, 0, all, false, false};
  if (together) {
    of = span_of(in + from, out + to, all);
  } else {
    apart.at[lane]  = at;
    apart.in[lane]  = its.begin - at;
    apart.out[lane] = its.to - at;
    __syncwarp();
  }

  value_t local;  // what comes before a tile
  as_chunks chunks;
  bool has_local = false;
  for (i64 first = 0; first < of.high; first += tile_items) {
    tile now;
    now.place(of.low, of.high, first);
    if (is_one && (!is_rows || its.row_size == 0)) {
      now.mark_first(first == 0);
    } else if constexpr (is_rows) {
      mark_rows(now, its.row_size, static_cast<int>(first - of.low));
    } else {
      mark(now, marks, its.length > 0, at + of.low - first);
    }
    if (together) {
      now.load_items(of.in + first, of.is_wide);
    } else {
      load_pieces(now, in, apart, first);
    }
    const value_t sum = now.scan(init, op);
    value_t before    = local;
    if (!is_rows && chunks.has_before) {
      before = has_local ? combine(chunks.before, local, op) : chunks.before;
    }
    if (first > 0) {
      now.prepend_to_all(before, op);
    }
    if (together) {
      now.store_items(of.out + first, of.is_wider, before, init);
    } else {
      store_pieces(now, out, apart, first, before, init);
    }
    local     = has_local && !now.has_head() ? combine(local, sum, op) : sum;
    has_local = true;
    if (!is_rows && log_tiles >= 0) {  // rows have a queue that is large enough
      const i64 behind = first + tile_items, chunk = chunk_items << log_tiles;
      if (behind % chunk == 0) {
        chunks.add(behind / chunk - 1, local, op);
        has_local = false;
      }
    }
  }
}
}  // namespace cupar

using namespace cupar;

extern "C" __global__ __launch_bounds__(1) void cupar_segmented_scan_init(queue_heads* heads) {
  join_stream();
  *heads = {0, 0};
}

extern "C" __global__ __launch_bounds__(threads, resident) void cupar_segmented_scan(
    d_in_t in, d_out_t out, start_offsets_in_t starts, end_offsets_in_t ends, start_offsets_out_t outputs,
    i64 num_segments, int batch, i64 long_items, queue q, op_t op, init_t given_init) {
  __shared__ unsigned marks[warps][rows * items];
  __shared__ pieces apart[is_rows ? 1 : warps];
  join_stream();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 first = (i64{blockIdx.x} * warps + warp) * batch;
  if (first >= num_segments) {
    return;
  }
  const value_t init = initial(given_init);
  const i64 left     = num_segments - first;
  const int count    = left < batch ? static_cast<int>(left) : batch;
  share its{0, 0, 0, 0};
  if constexpr (is_rows) {
    const i64 size = row_length(starts);
    its            = {first * size, first * size, lane == 0 ? count * size : 0,
                      count > 1 ? static_cast<unsigned>(size) : 0};
  } else if (lane < count) {
    its.begin      = static_cast<i64>(starts[first + lane]);
    const i64 size = static_cast<i64>(ends[first + lane]) - its.begin;
    its.length     = size > 0 ? size : 0;
    its.to         = has_outputs ? static_cast<i64>(outputs[first + lane]) : its.begin;
  }
  // Long segments are for blocks. Those for which the queue has no room follow all others, one by one.
  const bool is_long = q.heads != nullptr && its.row_size == 0 && its.length > long_items;
  unsigned alone     = 0;
  for (unsigned which = __ballot_sync(~0u, is_long); which != 0; which &= which - 1) {
    const int from  = __ffs(which) - 1;
    const i64 begin = shuffle(its.begin, from), to = shuffle(its.to, from),
              length = shuffle(its.length, from);
    const i64 high   = span_of(in + begin, out + to, length).high;
    if (!enqueue(q, begin, to, length, high)) {
      alone |= 1u << from;
    }
  }
  share now     = its;
  now.length    = is_long ? 0 : its.length;
  int log_tiles = -1;
  while (true) {
    scan_share(in, out, now, log_tiles, marks[warp], apart[is_rows ? 0 : warp], init, op);
    if (alone == 0) {
      return;
    }
    const int next = __ffs(alone) - 1;
    alone &= alone - 1;
    now.length      = lane == next ? its.length : 0;
    const i64 begin = shuffle(its.begin, next), to = shuffle(its.to, next),
              length = shuffle(its.length, next);
    log_tiles        = log_tiles_of(q, span_of(in + begin, out + to, length).high);
    __syncwarp();
  }
}

// A block for each chunk in the queue. Chunks of more than a tile a warp are read twice.
extern "C" __global__ __launch_bounds__(chunk_threads, chunk_resident) void cupar_segmented_scan_chunks(
    d_in_t in, d_out_t out, queue q, op_t op, init_t given_init) {
  __shared__ value_t of_warps[chunk_warps];
  __shared__ value_t before_chunk;
  __shared__ unsigned ticket;
  join_stream();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const value_t init = initial(given_init);
  const u64 filled   = q.heads->filled & ((u64{1} << count_bits) - 1);
  const auto chunks  = static_cast<unsigned>(filled < q.most_chunks ? filled : q.most_chunks);
  while (true) {
    __syncthreads();
    if (threadIdx.x == 0) {
      ticket = atomicAdd(&q.heads->ticket, 1u);
    }
    __syncthreads();
    if (ticket >= chunks) {
      return;
    }
    const unsigned which = q.states[ticket].segment;
    if (which == no_segment) {
      continue;
    }
    const long_segment its = q.segments[which];
    const unsigned k       = ticket - its.first_chunk;
    const span of          = span_of(in + its.begin, out + its.to, its.length);
    const i64 tiles = i64{1} << its.log_tiles, steps = tiles == 1 ? 1 : 2 * tiles;
    value_t local, before;
    bool has_local = false;
    for (i64 step = 0; step < steps; ++step) {
      const i64 first  = ((i64{k} << its.log_tiles) + (step & (tiles - 1))) * chunk_items;
      const i64 left   = of.high - first;
      const int active = left <= 0            ? 0
                         : left < chunk_items ? static_cast<int>((left + tile_items - 1) / tile_items)
                                              : chunk_warps;
      const i64 own    = first + warp * tile_items;
      tile now;
      now.low = now.high = 0;
      if (warp < active) {
        now.place(of.low, of.high, own);
        now.mark_first(own == 0);
        now.load_items(of.in + own, of.is_wide);
        const value_t sum = now.scan(init, op);
        if (lane == 0) {
          of_warps[warp] = sum;
        }
      }
      __syncthreads();
      value_t ahead  = local;  // in the chunk, of the tile
      bool has_ahead = has_local;
      for (int w = 0; w < active; ++w) {
        local     = has_local ? combine(local, of_warps[w], op) : of_warps[w];
        has_local = true;
        if (w + 1 == warp) {
          ahead     = local;
          has_ahead = true;
        }
      }
      if (step == tiles - 1) {
        if (its.chunks > 1) {
          if (warp == 0) {
            const value_t found = look_back(q, its, k, local, op);
            if (lane == 0) {
              before_chunk = found;
            }
          }
          __syncthreads();
          before = before_chunk;
        }
        has_local = steps == 1;
      }
      if (step >= steps - tiles && warp < active) {
        value_t all = ahead;
        if (k > 0) {
          all = has_ahead ? combine(before, ahead, op) : before;
        }
        if (own > 0) {
          now.prepend_to_all(all, op);
        }
        now.store_items(of.out + own, of.is_wider, all, init);
      }
      __syncthreads();
    }
  }
}

CUPAR_FACTS(threads, chunk_threads, items, tile_items, policy_span, static_cast<int>(chunk_items),
            sizeof(value_t), sizeof(long_segment), sizeof(chunk_state), is_rows)
