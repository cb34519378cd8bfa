// Scans of long segments, which blocks that stay take chunk after chunk from a queue. Warps of a block have
// roles:
//
// - The loader gets chunks, and has them come into slots in shared memory, several ahead of their use: by
//   bulk copies, if the input is an array and there are such.
// - Workers have a slice of each chunk, and their lanes some neighbours of it. They combine them as soon as
//   they are there; one chunk later they scan them where they are, and write them.
// - The publisher combines what the slices come to, and tells other blocks what the chunk does.
// - The lookahead warp learns what comes before a chunk, and tells the workers. It keeps what all chunks of
//   the segment up to one come to, and adds those up to its block's next chunk: each tells what it comes to
//   itself, without waiting for any other. So one exchange between blocks is all that a chunk waits for, and
//   a chunk behind it is combined, and more are on their way, in the meantime.
//
// Chunks are combined in the same order whatever the timing: groups of 128 from left to right, or of
// 32 if values are large; those of a group as a tree.
//
// A block that waits needs chunks that were taken from the queue before its own. Whoever took one combines it
// without waiting for any other, or after waiting for chunks that were taken still earlier.
//
// The neighbours that a lane has are an odd number of vectors, so that lanes meet in no bank.
//
// Source: ours. Looking ahead in place of back: CUB's kernel_scan_lookahead.cuh ("warpspeed").
//
// Given: what segmented_scan_slots.cuh is.
#pragma once

#include "segmented_scan_slices.cuh"

namespace cupar {
// Has an array's chunk come into a slot: words of 16 bytes that its segment has as a whole by a bulk copy,
// and what is at its ends by lanes.
template <class In>
__device__ __forceinline__ void begin_copy(In first, const chunk_place& its, int slot, barrier& arrives_at) {
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
__device__ __forceinline__ void load_chunks(block_state& block, d_in_t in, d_out_t out, Get get) {
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
__device__ __forceinline__ void publish_chunks(block_state& block, d_in_t in, d_out_t out, const queue& q,
                                               bool is_over, const value_t& init, const op_t& op) {
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

// What chunks of a segment up to some group come to.
struct lookahead {
  static constexpr unsigned each  = sizeof(value_t) <= 16 ? 4 : 1;  // chunks of a lane
  static constexpr unsigned group = 32 * each;

  value_t up_to;
  unsigned seen;  // chunks
  bool has_any;   // whether `up_to` is anything

  __device__ __forceinline__ void begin(const value_t& init) {
    up_to   = init;
    seen    = 0;
    has_any = has_init;
  }

  __device__ __forceinline__ value_t with(const value_t& more, const op_t& op) const {
    return has_any ? combine(up_to, more, op) : more;
  }

  // What comes before chunk k, if anything does.
  __device__ __forceinline__ value_t before(const known* of_chunks, unsigned k, const op_t& op) {
    const unsigned lane = threadIdx.x % 32;
    while (seen < k) {
      const unsigned left = k - seen < group ? k - seen : group;
      const int own       = static_cast<int>(left) - static_cast<int>(lane * each);
      value_t value[each];
      unsigned lacking = own <= 0 ? 0 : own < static_cast<int>(each) ? (1u << own) - 1 : (1u << each) - 1;
      while (__any_sync(~0u, lacking != 0)) {
        known::copy found[each];
#pragma unroll
        for (unsigned i = 0; i < each; ++i) {
          if (lacking >> i & 1) {
            found[i] = of_chunks[seen + lane * each + i].read();
          }
        }
#pragma unroll
        for (unsigned i = 0; i < each; ++i) {
          if (lacking >> i & 1 && found[i].is_there()) {
            value[i] = found[i].value();
            lacking &= ~(1u << i);
          }
        }
      }
      value_t sum = value[0];
#pragma unroll
      for (unsigned i = 1; i < each; ++i) {
        if (static_cast<int>(i) < own) {
          sum = combine(sum, value[i], op);
        }
      }
      const int lanes = static_cast<int>((left + each - 1) / each);
      sum             = with(shuffle(scan_first_lanes(sum, lanes, op), lanes - 1), op);
      if (left < group) {
        return sum;
      }
      up_to   = sum;
      has_any = true;
      seen += group;
    }
    return up_to;
  }
};

// The lookahead warp.
__device__ __forceinline__ void look_ahead(block_state& block, const queue& q, bool is_over,
                                           const value_t& init, const op_t& op) {
  const int lane = threadIdx.x % 32;
  lookahead ahead;
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
        ahead.begin(init);
      }
      const value_t before = ahead.before(q.of_chunks + segment, its.k, op);
      if (lane == 0) {
        before_chunk(now.slot) = before;
      }
    }
    block.is_known[now.slot].arrive_as_warp();
  }
}
}  // namespace cupar
