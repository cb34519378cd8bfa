// Long segments in chunks: a queue of them, and what the chunks of a segment hand to each other.
//
// Chunks are combined in the same order whatever the timing. Of 32 chunks of a segment, which are a group,
// each combines those before it in the group, all of which it waits for; and what the groups before come to
// is combined group by group, from left to right, beginning at the nearest one of which that is known.
//
// If the queue has no room for some segment, it is not used at all: each block takes whole segments then.
//
// Source: ours; blocks that look back are those of D. Merrill and M. Garland, "Single-pass Parallel Prefix
// Scan with Decoupled Look-back", NVIDIA NVR-2016-002.
//
// Given: what scan_tile.cuh is; policy_chunk_warps.
#pragma once

#include "published.cuh"
#include "scan_tile.cuh"

namespace cupar {
constexpr int chunk_warps   = policy_chunk_warps;
constexpr int chunk_threads = 32 * chunk_warps;
constexpr i64 chunk_items   = i64{chunk_warps} * tile_items;

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
  unsigned* segment_of;                         // a chunk
  known *of_chunks, *of_groups, *up_to_groups;  // what they come to; that of a group is with its first chunk
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
      q.of_chunks[beginning + k].clear();
      if (k % 32 == 0) {
        q.of_groups[beginning + k].clear();
        q.up_to_groups[beginning + k].clear();
      }
    }
  }
}

// Publishes what chunk k of a segment comes to, and returns what all those before it do, if there are any.
__device__ __forceinline__ value_t look_back(const queue& q, unsigned first_chunk, unsigned k,
                                             const value_t& own, const op_t& op) {
  const int lane = threadIdx.x % 32, place = static_cast<int>(k % 32);
  const unsigned group = first_chunk + (k - place), groups_before = k / 32;
  if (lane == 0) {
    q.of_chunks[group + place].publish(own);
  }
  // A lane waits for a chunk of the group, and for one of the groups before.
  const bool has_group   = static_cast<unsigned>(lane) < groups_before;
  const unsigned of_lane = group - 32 * (lane + 1);
  bool is_there = lane >= place, is_published = place != 31, is_group = false, is_up_to = false;
  value_t of_chunk = own, of_group = own, here;
  unsigned ends = 0;
  while (true) {
    if (!is_there) {
      const known::copy found = q.of_chunks[group + lane].read();
      is_there                = found.is_there();
      of_chunk                = found.value();
    }
    if (has_group && !is_up_to) {
      const known::copy all = q.up_to_groups[of_lane].read(), one = q.of_groups[of_lane].read();
      is_up_to = all.is_there();
      is_group = is_up_to || one.is_there();
      of_group = is_up_to ? all.value() : one.value();
    }
    const bool are_there = __all_sync(~0u, is_there);
    if (are_there && !is_published) {
      here = shuffle(scan_lanes(of_chunk, 0, op), 31);
      if (lane == 0) {
        (groups_before == 0 ? q.up_to_groups : q.of_groups)[group].publish(here);
      }
      is_published = true;
    }
    ends                = __ballot_sync(~0u, is_up_to);
    const unsigned gaps = __ballot_sync(~0u, !is_group);
    if (are_there && (groups_before == 0 || (ends != 0 && !(gaps & (ends ^ (ends - 1)))))) {
      break;
    }
  }
  const value_t up_to  = scan_lanes(of_chunk, 0, op);
  const value_t before = shuffle(up_to, place > 0 ? place - 1 : 0);
  if (groups_before == 0) {
    return before;
  }
  const int nearest = __ffs(ends) - 1;
  value_t all       = shuffle(of_group, nearest);
  for (int g = nearest - 1; g >= 0; --g) {
    all = combine(all, shuffle(of_group, g), op);
  }
  if (place == 31 && lane == 0) {
    q.up_to_groups[group].publish(combine(all, here, op));
  }
  return place > 0 ? combine(all, before, op) : all;
}

// What the chunks of a segment come to that one block takes all of, combined in the same order.
struct carried {
  value_t of_chunks[32], of_groups, before;

  // Adds chunk k; a warp does that.
  __device__ __forceinline__ void add(unsigned k, const value_t& sum, const op_t& op) {
    const int lane = threadIdx.x % 32, place = static_cast<int>(k % 32);
    if (lane == 0) {
      of_chunks[place] = sum;
    }
    __syncwarp();
    value_t all = shuffle(scan_lanes(of_chunks[lane < place ? lane : place], 0, op), place);
    if (k >= 32) {
      all = combine(of_groups, all, op);
    }
    __syncwarp();
    if (lane == 0) {
      before = all;
      if (place == 31) {
        of_groups = all;
      }
    }
    __syncwarp();
  }
};
}  // namespace cupar
