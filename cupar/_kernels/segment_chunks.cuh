// A queue of the chunks that long segments are cut into, and what those of a segment tell each other: what
// each of them comes to.
//
// If the queue has no room for some segment, it is not used at all: each block takes whole segments then.
//
// Given: what scan_tile.cuh is; policy_chunk_…, as `segmented_scan_slots.cuh` has it.
#pragma once

#include "published.cuh"
#include "scan_tile.cuh"

namespace cupar {
struct long_segment {
  i64 begin, to, length;
  unsigned first_chunk, chunks;
};

struct queue_heads {
  u64 filled;        // how many segments there are, in the upper 24 bits, and chunks
  unsigned ticket;   // the next chunk that a block takes
  unsigned is_over;  // whether there was no room for some segment
};
constexpr int count_bits = 40;

__device__ __forceinline__ u64 chunks_in(const queue_heads& heads) {
  return heads.filled & ((u64{1} << count_bits) - 1);
}

using known = published<value_t>;

struct queue {
  queue_heads* heads;
  long_segment* segments;
  unsigned* segment_of;  // a chunk
  known* of_chunks;      // what they come to; at first, none is known
  unsigned most_segments, most_chunks;
};

// Queues those segments of a warp's lanes that have chunks.
__device__ __forceinline__ void enqueue(const queue& q, const long_segment& given) {
  const int lane     = threadIdx.x % 32;
  const unsigned all = __ballot_sync(~0u, given.chunks > 0);
  if (all == 0) {
    return;
  }
  u64 end = given.chunks;  // of those up to this lane
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const u64 before = shuffle_up(end, distance);
    end += lane >= distance ? before : 0;
  }
  u64 before = 0;
  if (lane == 31) {
    // A queue that is full is left alone, or its counts would overflow.
    const u64 now = *static_cast<volatile u64*>(&q.heads->filled);
    const bool is_full =
        now >> count_bits >= q.most_segments || (now & ((u64{1} << count_bits) - 1)) >= q.most_chunks;
    before = is_full ? now : atomicAdd(&q.heads->filled, static_cast<u64>(__popc(all)) << count_bits | end);
  }
  before              = shuffle(before, 31);
  const u64 first     = (before & ((u64{1} << count_bits) - 1)) + end - given.chunks;
  const u64 at        = (before >> count_bits) + __popc(all & ((1u << lane) - 1));
  const bool has_room = at < q.most_segments && first + given.chunks <= q.most_chunks;
  if (__any_sync(~0u, given.chunks > 0 && !has_room)) {
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
}  // namespace cupar
