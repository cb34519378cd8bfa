// Scans of long segments, which blocks that stay take chunk after chunk from a queue. Warps of a block have
// roles:
//
// - The loader gets chunks, and has them come into slots in shared memory, several ahead of their use: by
//   bulk copies, if the input is an array and there are such.
// - Workers have a slice of each chunk, and their lanes some neighbours of it. They combine them as soon as
//   they are there; one chunk later they scan them where they are, and write them.
// - The publisher combines the slices' aggregates, and publishes the chunk's.
// - The lookahead warp finds the exclusive prefix of a chunk for the workers. It keeps the inclusive prefix
//   of one chunk of the segment, and adds the aggregates of those up to its block's next chunk, which are
//   published without waiting for any other. So a chunk waits for one exchange between blocks alone;
//   meanwhile the chunk behind it is combined, and more are being loaded.
//
// A block that waits needs chunks that were taken from the queue before its own. Whoever took one combines it
// without waiting for any other, or after waiting for chunks that were taken still earlier.
//
// The neighbours that a lane has are an odd number of vectors, so that lanes meet in no bank.
//
// Source: ours. Looking ahead in place of back: CUB's kernel_scan_lookahead.cuh ("warpspeed").
//
// If the queue has no room for some segment, it is not used at all: each block takes whole segments then.
//
// Traits: what tile.cuh has; policy_chunk_warps, policy_chunk_resident, policy_chunk_bytes,
// policy_chunk_slots.
#pragma once

#include "common/bulk.cuh"
#include "common/lookahead.cuh"
#include "segmented_scan/tile.cuh"

namespace cupar {
constexpr int rounded(int bytes) {
  return (bytes + 127) / 128 * 128;
}

template <class Traits>
struct scan_of_chunks : scan_tile<Traits> {
  static constexpr int policy_chunk_warps    = Traits::policy_chunk_warps;
  static constexpr int policy_chunk_resident = Traits::policy_chunk_resident;
  static constexpr int policy_chunk_bytes    = Traits::policy_chunk_bytes;
  static constexpr int policy_chunk_slots    = Traits::policy_chunk_slots;

  using base = scan_tile<Traits>;
  using base::has_init;
  using base::is_inclusive;
  using base::items;
  using base::span_of;
  using typename base::accum_t;
  using typename base::d_in_t;
  using typename base::d_in_v;
  using typename base::d_out_t;
  using typename base::d_out_v;
  using typename base::op_t;
  using typename base::span;
  using typename base::value_t;

  // --- The queue of chunks, and the aggregates that the chunks of a segment publish ---

  struct long_segment {
    i64 begin, to, length;
    unsigned first_chunk, chunks;
  };

  struct queue_heads {
    u64 filled;        // how many segments there are, in the upper 24 bits, and chunks
    unsigned ticket;   // the next chunk that a block takes
    unsigned is_over;  // whether there was no room for some segment
  };
  static constexpr int count_bits = 40;

  static __device__ __forceinline__ u64 chunks_in(const queue_heads& heads) {
    return heads.filled & ((u64{1} << count_bits) - 1);
  }

  using known = published<value_t>;

  struct queue {
    queue_heads* heads;
    long_segment* segments;
    unsigned* segment_of;  // a chunk
    known* of_chunks;      // aggregates of chunks; none is known at first
    unsigned most_segments, most_chunks;
  };

  // Queues those segments of a warp's lanes that have chunks.
  static __device__ __forceinline__ void enqueue(const queue& q, const long_segment& given) {
    const int lane     = threadIdx.x % 32;
    const unsigned all = __ballot_sync(~0u, given.chunks > 0);
    if (all == 0) {
      return;
    }
    const u64 end = sum_up_to_lane(u64{given.chunks});
    u64 before    = 0;
    if (lane == 31) {
      // A queue that is full is left alone, or its counts would overflow.
      const u64 now = *static_cast<volatile u64*>(&q.heads->filled);
      const bool is_full =
          now >> count_bits >= q.most_segments || (now & ((u64{1} << count_bits) - 1)) >= q.most_chunks;
      before = is_full ? now : atomicAdd(&q.heads->filled, static_cast<u64>(__popc(all)) << count_bits | end);
    }
    before          = shuffle(before, 31);
    const u64 first = (before & ((u64{1} << count_bits) - 1)) + end - given.chunks;
    const u64 at    = (before >> count_bits) + __popc(all & ((1u << lane) - 1));
    const bool fits = at < q.most_segments && first + given.chunks <= q.most_chunks;
    if (__any_sync(~0u, given.chunks > 0 && !fits)) {
      q.heads->is_over = 1;
      return;
    }
    if (given.chunks > 0) {
      q.segments[at] = {given.begin, given.to, given.length, static_cast<unsigned>(first), given.chunks};
    }
    for (unsigned each = all; each != 0; each &= each - 1) {
      const int from       = __ffs(each) - 1;
      const auto whose     = shuffle(static_cast<unsigned>(at), from);
      const auto beginning = shuffle(static_cast<unsigned>(first), from);
      const auto chunks    = shuffle(given.chunks, from);
      for (unsigned k = lane; k < chunks; k += 32) {
        q.segment_of[beginning + k] = whose;
      }
    }
  }

  // --- Slots in shared memory for chunks, and the barriers between a block's warps for them ---

  // Bytes that a multiprocessor has for blocks, each of which needs some for barriers and the like.
  static constexpr int sm_shared      = (target == 90 || (target >= 100 && target < 120) ? 228
                                         : target == 80 || target == 87                  ? 164
                                         : target == 75                                  ? 64
                                         : target == 70                                  ? 96
                                         : target < 75                                   ? 48
                                                                                         : 100)
                                        << 10;
  static constexpr int chunk_resident = sizeof(value_t) <= 8 ? policy_chunk_resident : 1;
  static constexpr int block_shared   = sm_shared / chunk_resident - 4096;

  static constexpr int in_bytes = sizeof(d_in_v), out_bytes = sizeof(d_out_v);
  static constexpr int lane_bytes = items * larger(in_bytes, out_bytes);  // of a vector
  static constexpr int chunk_limit =
      policy_chunk_bytes < block_shared / 4 ? policy_chunk_bytes : block_shared / 4;
  static constexpr int workers_of() {
    int found = sizeof(value_t) <= 8 ? policy_chunk_warps : policy_chunk_warps / 2;
    while (found > 1 && found * 32 * lane_bytes > chunk_limit) {
      found /= 2;
    }
    return found;
  }
  static constexpr int workers       = workers_of();
  static constexpr int chunk_threads = 32 * (workers + 3);
  static constexpr int lane_vectors  = (larger(chunk_limit / (workers * 32 * lane_bytes), 1) - 1) | 1;
  static constexpr int lane_items = lane_vectors * items, slice_items = 32 * lane_items;
  static constexpr i64 chunk_items = i64{workers} * slice_items;

  // A slot: a chunk, as far after a multiple of 16 bytes as it is in memory; then what slices come to, each
  // with those before it, and what comes before the chunk.
  static constexpr int data_bytes = rounded(static_cast<int>(chunk_items) * in_bytes + 16);
  static constexpr int slot_bytes = data_bytes + rounded((workers + 1) * static_cast<int>(sizeof(value_t)));

  // Results overwrite the slot's input, or have a separate buffer for one chunk.
  static constexpr bool is_in_place = in_bytes == out_bytes && alignof(d_out_v) <= alignof(d_in_v);
  static constexpr int staged_bytes = is_in_place ? 0 : rounded(static_cast<int>(chunk_items) * out_bytes);

  static constexpr int fitting_slots = (block_shared - staged_bytes) / slot_bytes;
  static constexpr bool has_chunks =
      fitting_slots >= 3;  // or items are too large, and warps take long segments, too
  static constexpr int slots        = !has_chunks                          ? 3
                                      : fitting_slots < policy_chunk_slots ? fitting_slots
                                                                           : policy_chunk_slots;
  static constexpr int chunk_shared = has_chunks ? slots * slot_bytes + staged_bytes : 0;
  static constexpr bool is_bulk     = target >= 90 && is_array<d_in_t>;

  static_assert(workers <= 32 && policy_chunk_slots >= 3);

  // Arrivals of a warp whose lanes all have read or written what others wait for: each lane's own, where the
  // hardware counts them. One lane's after `__syncwarp` is as right and as quick; but compute-sanitizer's
  // racecheck does not see that it speaks for the others.
  static constexpr int of_warp = target >= 90 ? 32 : 1;

  // A barrier that counts the arrivals of warps that are done with a slot; one phase for each round of slots.
  template <int arrivals>
  struct signal {
    barrier at;

    __device__ __forceinline__ void init() {
      if constexpr (target >= 90) {
        at.init(arrivals);
      } else {
        at.state = 0;
      }
    }
    __device__ __forceinline__ void arrive() {
      if constexpr (target >= 90) {
        at.arrive();
      } else {
        __threadfence_block();
        atomicAdd(reinterpret_cast<u64*>(&at.state), u64{1});
      }
    }
    // Of a warp: all lanes call it. It is `of_warp` arrivals.
    __device__ __forceinline__ void arrive_as_warp() {
      if constexpr (of_warp == 1) {
        __syncwarp();
      }
      if (of_warp > 1 || threadIdx.x % 32 == 0) {
        arrive();
      }
    }
    __device__ __forceinline__ void wait(unsigned round) {
      if constexpr (target >= 90) {
        at.wait(static_cast<int>(round & 1));
      } else {
        while (*reinterpret_cast<volatile u64*>(&at.state) < (u64{round} + 1) * arrivals) {
        }
        __threadfence_block();
      }
    }
  };

  // Where a chunk is: positions from `at` on of what its segment spans.
  struct chunk_place {
    span all;
    i64 at;
    int low, high;  // positions from there: of the first item that is there, and behind the last

    // How many slices have items.
    __device__ __forceinline__ int active() const { return (high + slice_items - 1) / slice_items; }
  };

  struct chunk {
    long_segment its;
    unsigned k;
    bool is_there;

    __device__ __forceinline__ chunk_place place(d_in_t in, d_out_t out) const {
      const span all = span_of(in + its.begin, out + its.to, its.length);
      const i64 at = k * chunk_items, left = all.high - at;
      return {all, at, at == 0 ? static_cast<int>(all.low) : 0,
              static_cast<int>(left < chunk_items ? left : chunk_items)};
    }
  };

  // A slot's turn.
  struct turn {
    int slot       = 0;
    unsigned round = 0;

    __device__ __forceinline__ void next() {
      if (++slot == slots) {
        slot = 0;
        ++round;
      }
    }
  };

  // Shared memory of a block.
  struct block_state {
    signal<of_warp + is_bulk> is_full[slots];
    signal<workers> are_combined[slots];
    signal<2 * of_warp> is_known[slots];  // prefixes of slices
    signal<workers * of_warp> is_empty[slots];
    chunk chunks[slots];

    __device__ __forceinline__ void init() {
#pragma unroll 1
      for (int slot = 0; slot < slots; ++slot) {
        is_full[slot].init();
        are_combined[slot].init();
        is_known[slot].init();
        is_empty[slot].init();
      }
      if constexpr (target >= 90) {
        publish_barriers();
      }
    }
  };

  static __device__ __forceinline__ char* shared_memory() {
    extern __shared__ __align__(128) char memory[];
    return memory;
  }
  static __device__ __forceinline__ char* data_of(int slot) { return shared_memory() + slot * slot_bytes; }
  static __device__ __forceinline__ value_t* of_slices(int slot) {
    return reinterpret_cast<value_t*>(data_of(slot) + data_bytes);
  }
  static __device__ __forceinline__ value_t& before_chunk(int slot) { return of_slices(slot)[workers]; }

  // How many bytes after a multiple of 16 a chunk's first position is.
  template <class In>
  static __device__ __forceinline__ int shift_of(In first) {
    if constexpr (is_bulk) {
      return static_cast<int>(reinterpret_cast<u64>(first) % 16);
    }
    return 0;
  }

  // --- Slices of chunks, each a worker's: combined, scanned where they are, and written ---

  // A worker's slice of a chunk.
  struct slice {
    chunk_place its;
    int slot;
    int first, count,
        skipped;  // position of a lane's first item; how many there are, and how many are not its

    __device__ __forceinline__ slice(const chunk_place& place, int slot_, int warp)
        : its(place),
          slot(slot_),
          first(warp * slice_items + static_cast<int>(threadIdx.x % 32) * lane_items) {
      const int left = its.high - first;
      count          = left < 0 ? 0 : left < lane_items ? left : lane_items;
      skipped        = its.low > first ? its.low - first : 0;
    }
    // How many lanes have items.
    __device__ __forceinline__ int lanes(int warp) const {
      const int left = its.high - warp * slice_items;
      return left < 0 ? 0 : left < slice_items ? (left + lane_items - 1) / lane_items : 32;
    }

    // Where items are, in shared memory.
    __device__ __forceinline__ d_in_v* given(int position) const {
      return reinterpret_cast<d_in_v*>(data_of(slot) + shift_of(its.all.in + its.at)) + position;
    }
    __device__ __forceinline__ d_out_v* staged(int position) const {
      if constexpr (is_in_place) {
        return reinterpret_cast<d_out_v*>(data_of(slot) + shift_of(its.all.in + its.at)) + position;
      }
      return reinterpret_cast<d_out_v*>(shared_memory() + slots * slot_bytes) + position;
    }
    // Whether vectors are aligned there.
    __device__ __forceinline__ bool is_given_wide() const {
      return !is_bulk || alignof(d_in_v) == sizeof(d_in_v) || its.all.is_wide;
    }
    __device__ __forceinline__ bool is_staged_wide() const { return !is_in_place || is_given_wide(); }

    template <class T>
    __device__ __forceinline__ static void get(vector<T, items>& to, const T* from, bool is_wide) {
      if (is_wide) {
        load<true>(to, from);
      } else {
        load<false>(to, from);
      }
    }

    // Loads the slice, where bulk copies do not.
    __device__ __forceinline__ void load_items(int warp) const {
      constexpr int batch = is_array<d_in_t> ? lane_vectors : 1;
      const d_in_t from   = its.all.in + its.at;
#pragma unroll 1
      for (int begin = 0; begin < lane_vectors; begin += batch) {
        vector<d_in_v, items> loaded[batch];
        const int position = warp * slice_items + (begin * 32 + static_cast<int>(threadIdx.x % 32)) * items;
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          const int at = position + b * 32 * items;
          if (its.all.is_wide && at >= its.low && at + items <= its.high) {
            load<true>(loaded[b], from + at);
          } else {
#pragma unroll
            for (int i = 0; i < items; ++i) {
              if (at + i >= its.low && at + i < its.high) {
                loaded[b].item[i] = from[at + i];
              }
            }
          }
        }
#pragma unroll
        for (int b = 0; b < batch; ++b) {
          store<true>(given(position + b * 32 * items), loaded[b]);
        }
      }
      __syncwarp();
    }

    // Goes through a lane's items from left to right. `value` is what comes before them, if anything does;
    // then it is what all up to the last come to.
    template <bool is_scan>
    __device__ __forceinline__ void go_through(value_t& value, bool has_value, const op_t& op) const {
      const int fresh = has_value ? -1 : skipped;
#pragma unroll 1
      for (int at = 0; at < count; at += items) {
        vector<d_in_v, items> read;
        vector<d_out_v, items> result;
        get(read, given(first + at), is_given_wide());
#pragma unroll
        for (int i = 0; i < items; ++i) {
          if (at + i >= skipped && at + i < count) {
            const value_t item = static_cast<accum_t>(read.item[i]);
            if constexpr (is_scan && !is_inclusive) {
              result.item[i] = static_cast<d_out_v>(static_cast<accum_t>(value));
            }
            if (at + i == fresh) {
              value = item;
            } else {
              value = combine(value, item, op);
            }
            if constexpr (is_scan && is_inclusive) {
              result.item[i] = static_cast<d_out_v>(static_cast<accum_t>(value));
            }
          }
        }
        if constexpr (is_scan) {
          if (is_staged_wide()) {
            store<true>(staged(first + at), result);
          } else {
            store<false>(staged(first + at), result);
          }
        }
      }
    }

    // Writes the staged items.
    __device__ __forceinline__ void store_items(int warp) const {
      const d_out_t to = its.all.out + its.at;
#pragma unroll 1
      for (int v = threadIdx.x % 32; v < 32 * lane_vectors; v += 32) {
        const int at = warp * slice_items + v * items;
        if (its.all.is_wider && at >= its.low && at + items <= its.high) {
          vector<d_out_v, items> stored;
          get(stored, staged(at), is_staged_wide());
          store<true>(to + at, stored);
        } else {
#pragma unroll
          for (int i = 0; i < items; ++i) {
            if (at + i >= its.low && at + i < its.high) {
              to[at + i] = *staged(at + i);
            }
          }
        }
      }
    }
  };

  // A worker.
  static __device__ __forceinline__ void work_on_chunks(block_state& block, d_in_t in, d_out_t out, int warp,
                                                        const op_t& op) {
    const int lane = threadIdx.x % 32;
    turn now, previous;
    bool has_previous = false;
    value_t before_previous;  // the prefix of the lane in its slice of the previous chunk
    for (;; now.next()) {
      block.is_full[now.slot].wait(now.round);
      const bool is_there = block.chunks[now.slot].is_there;
      value_t before;
      if (is_there) {
        const slice of(block.chunks[now.slot].place(in, out), now.slot, warp);
        const int lanes = of.lanes(warp);
        if (lanes > 0) {
          if constexpr (!is_bulk) {
            of.load_items(warp);
          }
          value_t sum;
          of.go_through<false>(sum, false, op);
          sum    = scan_first_lanes(sum, lanes, op);
          before = shuffle_up(sum, 1);
          if (lane == lanes - 1) {
            of_slices(now.slot)[warp] = sum;
          }
        }
        if (lane == larger(lanes - 1, 0)) {
          block.are_combined[now.slot].arrive();
        }
      }
      if (has_previous) {
        const chunk& its = block.chunks[previous.slot];
        const slice of(its.place(in, out), previous.slot, warp);
        block.is_known[previous.slot].wait(previous.round);
        if (of.lanes(warp) > 0) {
          const bool has_chunk = has_init || its.k > 0, has_all = has_chunk || warp > 0;
          value_t all;
          if (warp > 0) {
            all = of_slices(previous.slot)[warp - 1];
            if (has_chunk) {
              all = combine(before_chunk(previous.slot), all, op);
            }
          } else if (has_chunk) {
            all = before_chunk(previous.slot);
          }
          if (lane > 0 && of.count > 0) {
            all = has_all ? combine(all, before_previous, op) : before_previous;
          }
          of.go_through<true>(all, has_all || lane > 0, op);
          __syncwarp();
          of.store_items(warp);
        }
        if constexpr (is_bulk) {
          publish_to_bulk();
        }
        block.is_empty[previous.slot].arrive_as_warp();
      }
      if (!is_there) {
        return;
      }
      before_previous = before;
      previous        = now;
      has_previous    = true;
    }
  }

  // --- Roles of warps ---

  // Has an array's chunk come into a slot: words of 16 bytes that its segment has as a whole by a bulk copy,
  // and what is at its ends by lanes.
  template <class In>
  static __device__ __forceinline__ void begin_copy(In first, const chunk_place& its, int slot,
                                                    barrier& arrives_at) {
    if constexpr (is_bulk) {
      const int lane  = threadIdx.x % 32;
      const u64 base  = reinterpret_cast<u64>(first);
      const u64 begin = base + its.low * in_bytes, end = base + its.high * in_bytes;
      const u64 lowest  = base + (its.all.low - its.at) * in_bytes,
                highest = base + (its.all.high - its.at) * in_bytes;
      u64 from = begin & ~u64{15}, to = (end + 15) & ~u64{15};
      from += from < lowest ? 16 : 0;
      to -= to > highest ? 16 : 0;
      if (from > to) {
        from = to = end;
      }
      char* const data = data_of(slot) - (base & ~u64{15});
      if (lane == 0) {
        const auto bytes = static_cast<unsigned>(to - from);
        arrives_at.arrive_expecting(bytes);
        if (bytes > 0) {
          bulk_load(data + from, reinterpret_cast<const void*>(from), bytes, arrives_at);
        }
      }
      for (u64 byte = begin + lane; byte < from; byte += 32) {
        data[byte] = *reinterpret_cast<const char*>(byte);
      }
      for (u64 byte = to + lane; byte < end; byte += 32) {
        data[byte] = *reinterpret_cast<const char*>(byte);
      }
    }
  }

  // The loader. `get` returns the next chunk, to all lanes.
  template <class Get>
  static __device__ __forceinline__ void load_chunks(block_state& block, d_in_t in, d_out_t out, Get get) {
    for (turn now;; now.next()) {
      const chunk its = get();
      if (now.round > 0) {
        block.is_empty[now.slot].wait(now.round - 1);
      }
      if (threadIdx.x % 32 == 0) {
        block.chunks[now.slot] = its;
      }
      if (its.is_there) {
        const chunk_place place = its.place(in, out);
        begin_copy(place.all.in + place.at, place, now.slot, block.is_full[now.slot].at);
      } else if constexpr (is_bulk) {
        if (threadIdx.x % 32 == 0) {
          block.is_full[now.slot].arrive();
        }
      }
      block.is_full[now.slot].arrive_as_warp();
      if (!its.is_there) {
        return;
      }
    }
  }

  // The publisher. If the queue is not used, all chunks of a segment are the block's, and it finds what comes
  // before them, too.
  static __device__ __forceinline__ void publish_chunks(block_state& block, d_in_t in, d_out_t out,
                                                        const queue& q, bool is_over, const value_t& init,
                                                        const op_t& op) {
    const int lane = threadIdx.x % 32;
    value_t up_to  = init;
    for (turn now;; now.next()) {
      block.is_full[now.slot].wait(now.round);
      const chunk its = block.chunks[now.slot];
      if (!its.is_there) {
        return;
      }
      const int active = its.place(in, out).active();
      block.are_combined[now.slot].wait(now.round);
      value_t* const slices = of_slices(now.slot);
      value_t sum;
      if (lane < active) {
        sum = slices[lane];
      }
      sum = scan_first_lanes(sum, active, op);
      if (!is_over && lane == active - 1 && its.k + 1 < its.its.chunks) {
        q.of_chunks[its.its.first_chunk + its.k].publish(sum);
      }
      __syncwarp();
      if (lane < active) {
        slices[lane] = sum;
      }
      if (is_over) {
        if (its.k == 0) {
          up_to = init;
        }
        if (lane == 0) {
          before_chunk(now.slot) = up_to;
        }
        const value_t all = shuffle(sum, active - 1);
        if (has_init || its.k > 0) {
          up_to = combine(up_to, all, op);
        } else {
          up_to = all;
        }
      }
      block.is_known[now.slot].arrive_as_warp();
    }
  }

  // The lookahead warp.
  static __device__ __forceinline__ void look_ahead(block_state& block, const queue& q, bool is_over,
                                                    const value_t& init, const op_t& op) {
    const int lane = threadIdx.x % 32;
    lookahead<value_t, op_t, has_init> ahead(init);
    unsigned segment = ~0u;  // by its first chunk
    for (turn now;; now.next()) {
      block.is_full[now.slot].wait(now.round);
      const chunk its = block.chunks[now.slot];
      if (!its.is_there) {
        return;
      }
      if (!is_over) {
        if (its.its.first_chunk != segment) {
          segment = its.its.first_chunk;
          ahead   = lookahead<value_t, op_t, has_init>(init);
        }
        const value_t before = ahead.before(q.of_chunks + segment, its.k, op);
        if (lane == 0) {
          before_chunk(now.slot) = before;
        }
      }
      block.is_known[now.slot].arrive_as_warp();
    }
  }
};
}  // namespace cupar
