// Long segments in chunks: a queue of them, and what the chunks of a segment hand to each other.
//
// Chunks are combined in the same order whatever the timing. Of 32 chunks of a segment, which are a group,
// each combines those before it in the group, all of which it waits for; and what the groups before come to
// is combined group by group, from left to right, beginning at the nearest one of which that is known.
//
// Source: ours; blocks that look back are those of D. Merrill and M. Garland, "Single-pass Parallel Prefix
// Scan with Decoupled Look-back", NVIDIA NVR-2016-002.
//
// Given: what scan_tile.cuh is; policy_chunk_warps.
#pragma once

#include "scan_tile.cuh"

namespace cupar {
constexpr int chunk_warps   = policy_chunk_warps;
constexpr int chunk_threads = 32 * chunk_warps;
constexpr i64 chunk_items   = i64{chunk_warps} * tile_items;  // of the smallest chunk

struct long_segment {
  i64 begin, to, length;
  unsigned first_chunk, chunks;
  int log_tiles;  // a chunk has so many times the smallest one's items
  int unused;
};

constexpr unsigned no_segment = ~0u;

struct chunk_state {
  unsigned segment;
  unsigned is_combined;  // whether it is known what the chunk comes to
  unsigned group;        // of a group's first chunk: what is known of the group
  unsigned unused;
};
enum : unsigned { nothing, of_group, up_to_group };  // is known

struct queue_heads {
  u64 filled;       // how many segments there are, in the upper 24 bits, and chunks
  unsigned ticket;  // the next chunk that a block takes
};

struct queue {
  queue_heads* heads;
  long_segment* segments;
  chunk_state* states;
  value_t *of_chunks, *of_groups,
      *up_to_groups;  // what they come to; that of a group is with its first chunk
  unsigned most_segments, most_chunks;
};

constexpr int count_bits = 40;

__device__ __forceinline__ int log_tiles_of(const queue& q, i64 high) {
  int log = 0;
  while ((high - 1) / (chunk_items << log) >= q.most_chunks) {
    ++log;
  }
  return log;
}

// Queues a segment; all lanes of a warp do that together. Returns whether there was room for it.
__device__ __forceinline__ bool enqueue(const queue& q, i64 begin, i64 to, i64 length, i64 high) {
  const int lane    = threadIdx.x % 32;
  const int log     = log_tiles_of(q, high);
  const auto chunks = static_cast<unsigned>((high - 1) / (chunk_items << log) + 1);
  u64 before        = 0;
  bool is_full      = false;
  if (lane == 0) {
    // A queue that is full is left alone, or its counts would overflow.
    const u64 now = *static_cast<volatile u64*>(&q.heads->filled);
    is_full = now >> count_bits >= q.most_segments || (now & ((u64{1} << count_bits) - 1)) >= q.most_chunks;
    before  = is_full ? 0 : atomicAdd(&q.heads->filled, u64{1} << count_bits | chunks);
  }
  if (__any_sync(~0u, is_full)) {
    return false;
  }
  before       = shuffle(before, 0);
  const u64 at = before >> count_bits, first = before & ((u64{1} << count_bits) - 1);
  const bool has_room = at < q.most_segments && first + chunks <= q.most_chunks;
  if (has_room && lane == 0) {
    q.segments[at] = {begin, to, length, static_cast<unsigned>(first), chunks, log, 0};
  }
  const u64 end = first + chunks < q.most_chunks ? first + chunks : q.most_chunks;
  for (u64 k = first + lane; k < end; k += 32) {
    q.states[k] = {has_room ? static_cast<unsigned>(at) : no_segment, nothing, nothing, 0};
  }
  return has_room;
}

__device__ __forceinline__ unsigned read(const unsigned* state) {
  return *static_cast<const volatile unsigned*>(state);
}

// Stores a value, and then that it is there.
__device__ __forceinline__ void publish(value_t* to, const value_t& value, unsigned* state, unsigned known) {
  *to = value;
  __threadfence();
  *static_cast<volatile unsigned*>(state) = known;
}

// Combines a group's chunks up to each; lane k has what chunk k comes to.
__device__ __forceinline__ value_t scan_group(const value_t& of_chunk, const op_t& op) {
  return scan_lanes(of_chunk, 0, op);
}

// Publishes what chunk k of a segment comes to, and returns what all those before it do, if there are any.
__device__ __forceinline__ value_t look_back(const queue& q, const long_segment& its, unsigned k,
                                             const value_t& own, const op_t& op) {
  const int lane = threadIdx.x % 32, place = static_cast<int>(k % 32);
  const unsigned group = its.first_chunk + (k - place), groups_before = k / 32;
  if (lane == 0) {
    publish(q.of_chunks + group + place, own, &q.states[group + place].is_combined, 1);
  }
  value_t of_chunk = own;
  if (lane < place) {
    while (read(&q.states[group + lane].is_combined) == 0) {
    }
    __threadfence();
    of_chunk = q.of_chunks[group + lane];
  }
  __syncwarp();
  const value_t up_to  = scan_group(of_chunk, op);
  const value_t here   = shuffle(up_to, place);
  const value_t before = shuffle(up_to, place > 0 ? place - 1 : 0);
  if (groups_before == 0) {
    if (place == 31 && lane == 0) {
      publish(q.up_to_groups + group, here, &q.states[group].group, up_to_group);
    }
    return before;
  }
  if (place == 31 && lane == 0) {
    publish(q.of_groups + group, here, &q.states[group].group, of_group);
  }
  // A lane has one of the groups before.
  const unsigned of_lane = group - 32 * (lane + 1);
  int nearest;
  while (true) {
    const unsigned known =
        static_cast<unsigned>(lane) < groups_before ? read(&q.states[of_lane].group) : nothing;
    const unsigned ends = __ballot_sync(~0u, known == up_to_group);
    const unsigned gaps = __ballot_sync(~0u, known == nothing);
    nearest             = __ffs(ends) - 1;
    if (ends != 0 && !(gaps & ((1u << nearest) - 1))) {
      break;
    }
  }
  __threadfence();
  value_t theirs = own;
  if (lane <= nearest) {
    theirs = lane == nearest ? q.up_to_groups[of_lane] : q.of_groups[of_lane];
  }
  __syncwarp();
  value_t all = shuffle(theirs, nearest);
  for (int g = nearest - 1; g >= 0; --g) {
    all = combine(all, shuffle(theirs, g), op);
  }
  if (place == 31 && lane == 0) {
    publish(q.up_to_groups + group, combine(all, here, op), &q.states[group].group, up_to_group);
  }
  return place > 0 ? combine(all, before, op) : all;
}
}  // namespace cupar
