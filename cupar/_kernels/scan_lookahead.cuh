// Scans of arrays on GPUs with bulk copies (compute capability 9.0 and later): one block on each multiprocessor, whose
// warps share the work.
//
// One warp takes the tiles one after another, whichever is next, and has them copied into shared memory. Groups of
// warps take them in turns: a group combines the items of its tile, publishes that, waits for what all tiles before
// combine to, scans the items, and has them copied back. One warp looks ahead: it combines what is published by all
// blocks, and hands each tile of its own block what comes before it. So no block waits for what another one has
// scanned, but for what it has read; and the grouping of items depends on nothing but their number.
//
// What a thread has of a tile are vectors of 16 bytes, an odd number so that no two lanes meet in a bank; how many, the
// plan says. The loops over them are short, and compile in a tenth of the time of ones that are unrolled.
//
// Source: CUB's lookahead scan, kernel_scan_lookahead.cuh ("warpspeed"), for the roles of warps and for looking ahead;
// D. Merrill and M. Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA NVR-2016-002.
#include "pipeline.cuh"
#include "scan.cuh"

namespace cupar {
constexpr int lanes         = 32;
constexpr int group_threads = group_warps * lanes;
constexpr int threads       = groups * group_threads + 2 * lanes;  // the others load, and look ahead
constexpr int most_stages   = 32;
constexpr int tile_threads  = 1024;  // at most
constexpr int clear_threads = 256;
constexpr int states_at     = 256;  // in the temporary storage, behind the counter of tiles
constexpr int batch         = lanes * lane_states;  // tiles that are looked at together

// Items that a thread has next to each other in vectors.
template <class T>
constexpr int of_vector = 16 % sizeof(T) == 0 ? 16 / sizeof(T) : 1;
constexpr int vector    = of_vector<d_in_v> > of_vector<d_out_v> ? of_vector<d_in_v> : of_vector<d_out_v>;

// What items combine to; nothing at first.
struct running {
  accum_t value;
  bool is_any = false;

  __device__ __forceinline__ void add(const accum_t& next, op_t& op) {
    if (is_any) {
      value = static_cast<accum_t>(op(value, next));
    } else {
      value  = next;
      is_any = true;
    }
  }
  __device__ __forceinline__ void add(const running& next, op_t& op) {
    if (next.is_any) add(next.value, op);
  }
};

template <class Init>
__device__ __forceinline__ running initial(const Init& init) {
  running sum;
  if constexpr (has_init) {
    if constexpr (init_is_value) {
      sum.value = init;
    } else {
      sum.value = *init;
    }
    sum.is_any = true;
  }
  return sum;
}

// How tiles lie on the arrays. Positions are counted from one of the input whose address is a multiple of 16, so that
// all tiles begin at one; those before the first item are `shift`.
struct layout {
  const unsigned char *in;
  unsigned char* out;  // what they point to is at position 0
  u64 end;             // of the positions
  int shift, tile_items, tiles;

  __device__ __forceinline__ layout(const d_in_v* d_in, d_out_v* d_out, u64 num_items, int items) {
    const int skipped = reinterpret_cast<u64>(d_in) % 16;
    shift             = of_vector<d_in_v> > 1 && skipped % sizeof(d_in_v) == 0 ? skipped / sizeof(d_in_v) : 0;
    in                = reinterpret_cast<const unsigned char*>(d_in) - shift * sizeof(d_in_v);
    out               = reinterpret_cast<unsigned char*>(d_out) - shift * sizeof(d_out_v);
    end               = num_items + shift;
    tile_items        = items;
    tiles             = static_cast<int>((end + tile_items - 1) / tile_items);
  }
  // In shared memory arrays begin where their addresses have the same remainder.
  __device__ __forceinline__ int in_lead() const { return reinterpret_cast<u64>(in) % 16; }
  __device__ __forceinline__ int out_lead() const { return reinterpret_cast<u64>(out) % 16; }
  __device__ __forceinline__ int first(int tile) const { return tile == 0 ? shift : 0; }
  __device__ __forceinline__ int last(int tile) const {
    return static_cast<int>(min(end - static_cast<u64>(tile) * tile_items, static_cast<u64>(tile_items)));
  }
  template <class T>
  __device__ __forceinline__ u64 offset(int tile) const {
    return static_cast<u64>(tile) * tile_items * sizeof(T);
  }
  // Bytes in shared memory of a tile.
  template <class T>
  __device__ __forceinline__ int bytes() const {
    return tile_items * static_cast<int>(sizeof(T)) + 16;
  }
};

// Bytes at each end of an array that bulk copies leave to threads, of addresses with the same remainder.
struct ends {
  int head, middle, tail;

  __device__ __forceinline__ ends(const void* begin, int bytes) {
    head   = min(static_cast<int>(-reinterpret_cast<u64>(begin) % 16), bytes);
    middle = (bytes - head) & ~15;
    tail   = bytes - head - middle;
  }
  // Copies them, by a warp.
  template <class T>
  __device__ __forceinline__ void copy(unsigned char* to, const unsigned char* from, int lane) const {
    using word = cuda::std::conditional_t<
      alignof(T) == 1, unsigned char,
      cuda::std::conditional_t<alignof(T) == 2, unsigned short, cuda::std::conditional_t<alignof(T) == 4, unsigned, u64>>>;
    const int at = lane * static_cast<int>(sizeof(word)), far = head + middle + at;
    if (at < head) *reinterpret_cast<word*>(to + at) = *reinterpret_cast<const word*>(from + at);
    if (at < tail) *reinterpret_cast<word*>(to + far) = *reinterpret_cast<const word*>(from + far);
  }
};

// Has a tile copied into shared memory, by a warp; the barrier's phase ends when it is there.
__device__ __forceinline__ void load_tile(const layout& all, int tile, unsigned char* stage, barrier& loaded, int lane) {
  const int at = all.first(tile) * static_cast<int>(sizeof(d_in_v));
  const int bytes = all.last(tile) * static_cast<int>(sizeof(d_in_v)) - at;
  const unsigned char* from = all.in + all.offset<d_in_v>(tile) + at;
  unsigned char* to         = stage + all.in_lead() + at;
  const ends parts(from, bytes);
  if (parts.head + parts.tail != 0) {
    parts.copy<d_in_v>(to, from, lane);
    publish_to_bulk();  // which will write there for another tile
    __syncwarp();
  }
  if (lane == 0) {
    loaded.arrive_expecting(parts.middle);
    if (parts.middle != 0) bulk_load(to + parts.head, from + parts.head, parts.middle, loaded);
  }
}

// Has a tile copied back, by a warp, whose first lane waits for it.
__device__ __forceinline__ void store_tile(const layout& all, int tile, const unsigned char* stage, int lane) {
  const int at = all.first(tile) * static_cast<int>(sizeof(d_out_v));
  const int bytes = all.last(tile) * static_cast<int>(sizeof(d_out_v)) - at;
  unsigned char* to         = all.out + all.offset<d_out_v>(tile) + at;
  const unsigned char* from = stage + all.out_lead() + at;
  const ends parts(to, bytes);
  if (lane == 0 && parts.middle != 0) bulk_store(to + parts.head, from + parts.head, parts.middle);
  parts.copy<d_out_v>(to, from, lane);
}

// Reads or writes a vector's items in shared memory.
template <class T>
__device__ __forceinline__ void read_vector(T (&items)[vector], const T* from, bool in_words) {
  if constexpr (vector * sizeof(T) % 16 == 0) {
    if (in_words) {
      uint4 read[vector * sizeof(T) / 16];
      for (int i = 0; i < vector * sizeof(T) / 16; ++i) read[i] = reinterpret_cast<const uint4*>(from)[i];
      memcpy(items, read, sizeof(read));
      return;
    }
  }
  for (int i = 0; i < vector; ++i) items[i] = from[i];
}
template <class T>
__device__ __forceinline__ void write_vector(const T (&items)[vector], T* to, bool in_words) {
  if constexpr (vector * sizeof(T) % 16 == 0) {
    if (in_words) {
      uint4 written[vector * sizeof(T) / 16];
      memcpy(written, items, sizeof(written));
      for (int i = 0; i < vector * sizeof(T) / 16; ++i) reinterpret_cast<uint4*>(to)[i] = written[i];
      return;
    }
  }
  for (int i = 0; i < vector; ++i) to[i] = items[i];
}

// What a thread has of a tile in shared memory.
struct share {
  const d_in_v* in;
  d_out_v* out;
  int count;
  bool in_words, out_words;

  __device__ __forceinline__ share(const layout& all, int tile, const unsigned char* in_stage, unsigned char* out_stage,
                                   int thread, int vectors) {
    const int items = vectors * vector, begin = max(thread * items, all.first(tile));
    in        = reinterpret_cast<const d_in_v*>(in_stage + all.in_lead()) + begin;
    out       = reinterpret_cast<d_out_v*>(out_stage + all.out_lead()) + begin;
    count     = min(thread * items + items, all.last(tile)) - begin;
    in_words  = all.in_lead() == 0 && begin == thread * items;
    out_words = all.out_lead() == 0 && begin == thread * items;
  }

  // Combines the items with what is there already; if it scans, it writes what they combine to on the way.
  template <bool scans, int at_once = 1>
  __device__ __forceinline__ void pass(running& sum, op_t& op) const {
    int i = 0;
    if constexpr (at_once > 1) {
#pragma unroll 1
      for (; i + at_once * vector <= count; i += at_once * vector) some<scans, at_once>(i, sum, op);
    }
#pragma unroll 1
    for (; i + vector <= count; i += vector) some<scans, 1>(i, sum, op);
#pragma unroll 1
    for (; i < count; ++i) {
      const d_out_v result = next(in[i], sum, op);
      if constexpr (scans) out[i] = result;
    }
  }

private:
  template <bool scans, int vectors>
  __device__ __forceinline__ void some(int i, running& sum, op_t& op) const {
    d_in_v items[vectors][vector];
    for (int v = 0; v < vectors; ++v) read_vector(items[v], in + i + v * vector, in_words);
    for (int v = 0; v < vectors; ++v) {
      d_out_v results[vector];
      for (int j = 0; j < vector; ++j) results[j] = next(items[v][j], sum, op);
      if constexpr (scans) write_vector(results, out + i + v * vector, out_words);
    }
  }
  static __device__ __forceinline__ d_out_v next(const d_in_v& item, running& sum, op_t& op) {
    const accum_t before = sum.value;
    sum.add(static_cast<accum_t>(item), op);
    return static_cast<d_out_v>(is_inclusive ? sum.value : before);
  }
};

// Scans what each thread's items combine to over threads of whole warps: `sum` becomes what the threads before combine
// to. Returns what all combine to. `sums` is the threads' own, and so is the barrier.
template <class Sync>
__device__ __forceinline__ running scan_threads(running& sum, accum_t* sums, int thread, int valid_threads, op_t& op,
                                                Sync sync) {
  const int lane = thread % lanes, warp = thread / lanes;
  for (int below = 1; below < lanes; below *= 2) {
    running before;
    before.value  = shuffle_up(sum.value, below);
    before.is_any = lane >= below && sum.is_any;  // then that lane has some, too
    if (before.is_any) sum.value = static_cast<accum_t>(op(before.value, sum.value));
  }
  if (thread + 1 == valid_threads || (lane == lanes - 1 && sum.is_any)) sums[warp] = sum.value;
  const accum_t before = shuffle_up(sum.value, 1);
  sync();
  running total;
  sum = running{};
#pragma unroll 1
  for (int w = 0; w * lanes < valid_threads; ++w) {
    if (w == warp) sum = total;
    total.add(sums[w], op);
  }
  if (lane != 0 && thread < valid_threads) sum.add(before, op);
  return total;
}

// The states of tiles that are looked at together, by a warp: each lane has some next to each other, which lie so that
// what the lanes read at once does, too.
__device__ __forceinline__ u64 state_of(int tile) {
  const int of_batch = tile % batch;
  return static_cast<u64>(tile - of_batch) + of_batch % lane_states * lanes + of_batch / lane_states;
}

__device__ __forceinline__ u64 bytes_of_states(int tiles) {
  return static_cast<u64>((tiles + batch - 1) / batch) * batch * sizeof(published<accum_t>);
}

// Waits for the states of some tiles from the first of a batch on, and combines them: in lane 0.
__device__ __forceinline__ accum_t combine_states(const published<accum_t>* states, int tile, int count, int lane,
                                                  op_t& op) {
  const int mine = max(0, min(count - lane * lane_states, lane_states));
  const published<accum_t>* from = states + tile + lane;
  typename published<accum_t>::copy found[lane_states];
  bool is_missing;
  do {
    is_missing = false;
    for (int i = 0; i < lane_states; ++i) {
      if (i < mine) found[i] = from[i * lanes].read();
    }
    for (int i = 0; i < lane_states; ++i) is_missing |= i < mine && !found[i].is_there();
  } while (__any_sync(~0u, is_missing));
  accum_t sum = found[0].value();
  for (int i = 1; i < lane_states; ++i) {
    if (i < mine) sum = static_cast<accum_t>(op(sum, found[i].value()));
  }
  const int valid = (count + lane_states - 1) / lane_states;
  for (int above = 1; above < lanes; above *= 2) {
    const accum_t next = shuffle_down(sum, above);
    if (lane + above < valid) sum = static_cast<accum_t>(op(sum, next));
  }
  return sum;
}


struct shared_memory {
  barrier taken[most_stages];     // the tile's number is there,
  barrier loaded[most_stages];    // its items,
  barrier preceded[most_stages];  // what comes before it;
  barrier released[most_stages];  // it has been read
  int tile[most_stages];
  accum_t before[most_stages];
  accum_t sums[groups][group_warps];
};

// Which of some stages is next, and the parity of its phase. There are at least as many stages as groups: so whoever
// waits for a phase knows that the one before it is over.
struct ring {
  int stage, parity = 0, stages;

  __device__ __forceinline__ ring(int first, int stages) : stage(0), stages(stages) { advance(first); }
  __device__ __forceinline__ void advance(int by) {
    for (stage += by; stage >= stages; stage -= stages) parity ^= 1;
  }
};

extern __shared__ uint4 buffers[];  // the stages, then what each group writes

__device__ __forceinline__ unsigned char* buffer(int number, int bytes) {
  return reinterpret_cast<unsigned char*>(buffers) + number * bytes;
}

// The warp that takes tiles and has them loaded. It does not take more than its share before some are read, as other
// blocks would go without. At the end it takes none for all who wait.
__device__ __forceinline__ void load(shared_memory& shared, const layout& all, unsigned* counter, int stages, int lane) {
  int ahead = min((all.tiles + static_cast<int>(gridDim.x) - 1) / static_cast<int>(gridDim.x), stages);
  ring at(0, stages), read(0, stages);
  for (int ended = 0; ended < groups; at.advance(1)) {
    if (ended > 0) {
      shared.released[at.stage].wait(at.parity ^ 1);
    } else if (ahead > 0) {
      --ahead;
    } else {
      shared.released[read.stage].wait(read.parity);
      read.advance(1);
    }
    int tile = 0;
    if (lane == 0) {
      tile                  = static_cast<int>(atomicAdd(counter, 1));
      shared.tile[at.stage] = tile;
      shared.taken[at.stage].arrive();
    }
    tile = __shfl_sync(~0u, tile, 0);
    if (tile < all.tiles) {
      load_tile(all, tile, buffer(at.stage, all.bytes<d_in_v>()), shared.loaded[at.stage], lane);
    } else {
      if (lane == 0) shared.loaded[at.stage].arrive();
      ++ended;
    }
  }
}

// The warp that looks ahead.
__device__ __forceinline__ void look_ahead(shared_memory& shared, const layout& all,
                                           const published<accum_t>* states, int stages, op_t& op, init_t init,
                                           int lane) {
  running before = initial(init);
  int seen       = 0;  // tiles that are in it: whole batches
  for (ring next(0, stages);; next.advance(1)) {
    shared.taken[next.stage].wait(next.parity);
    const int tile = shared.tile[next.stage];
    if (tile >= all.tiles) return;
    running sum = before;
    for (int at = seen; at < tile; at += batch) {
      const accum_t found = combine_states(states, at, min(tile - at, batch), lane, op);
      if (lane == 0) sum.add(found, op);
      if (at + batch <= tile) {
        before = sum;
        seen += batch;
      }
    }
    if (lane == 0) {
      shared.before[next.stage] = sum.value;
      shared.preceded[next.stage].arrive();
    }
  }
}

// A group of warps, which scans every so manieth tile of the block.
__device__ __forceinline__ void scan_tiles(shared_memory& shared, const layout& all, published<accum_t>* states,
                                           int vectors, int stages, op_t& op, int group, int thread) {
  const int lane = thread % lanes;
  auto sync_group = [&] { sync(1 + group, group_threads); };
  unsigned char* out_stage = buffer(stages, all.bytes<d_in_v>()) + group * all.bytes<d_out_v>();
  for (ring at(group, stages);; at.advance(groups)) {
    shared.loaded[at.stage].wait(at.parity);
    const int tile = shared.tile[at.stage];
    if (tile >= all.tiles) break;
    const share mine(all, tile, buffer(at.stage, all.bytes<d_in_v>()), out_stage, thread, vectors);
    running sum;
    mine.pass<false, unroll>(sum, op);
    const int valid_threads = (all.last(tile) + vectors * vector - 1) / (vectors * vector);
    const running total     = scan_threads(sum, shared.sums[group], thread, valid_threads, op, sync_group);
    if (thread == 0) {
      states[state_of(tile)].publish(total.value);
      wait_for_bulk_stores();  // of the tile before
    }
    shared.preceded[at.stage].wait(at.parity);
    sync_group();
    running before;
    before.is_any = has_init || tile != 0;
    before.value  = shared.before[at.stage];
    before.add(sum, op);
    mine.pass<true, unroll>(before, op);
    publish_to_bulk();
    __syncwarp();
    if (lane == 0) shared.released[at.stage].arrive();
    sync_group();
    if (thread < lanes) store_tile(all, tile, out_stage, lane);
  }
  if (thread == 0) wait_for_bulk_stores();
}
}  // namespace cupar

using namespace cupar;

// Clears the counter of tiles and, behind it, their states.
extern "C" __global__ __launch_bounds__(clear_threads)
void cupar_scan_clear(uint4* memory, int tiles) {
  launch_dependents();
  const u64 i = static_cast<u64>(blockIdx.x) * clear_threads + threadIdx.x;
  if (i * sizeof(uint4) < states_at + bytes_of_states(tiles)) memory[i] = uint4{0, 0, 0, 0};
}

// What fits into a block: without states, and without a second kernel.
extern "C" __global__ __launch_bounds__(tile_threads, 1)
void cupar_scan_tile(d_in_t d_in, d_out_t d_out, int num_items, op_t op, init_t init) {
  __shared__ barrier loaded;
  __shared__ accum_t sums[tile_threads / lanes];
  const int thread = threadIdx.x, lane = thread % lanes;
  if (thread == 0) {
    loaded.init(1);
    publish_barriers();
  }
  __syncthreads();
  const int row = blockDim.x * vector, vectors = (num_items + vector - 1 + row - 1) / row | 1;
  const layout all(d_in, d_out, num_items, row * vectors);
  unsigned char *in_stage = buffer(0, 0), *out_stage = in_stage + all.bytes<d_in_v>();
  if (thread < lanes) load_tile(all, 0, in_stage, loaded, lane);
  loaded.wait(0);
  const share mine(all, 0, in_stage, out_stage, thread, vectors);
  running sum, before = initial(init);
  mine.pass<false>(sum, op);
  const int valid_threads = (all.last(0) + vectors * vector - 1) / (vectors * vector);
  scan_threads(sum, sums, thread, valid_threads, op, [] { __syncthreads(); });
  before.add(sum, op);
  mine.pass<true>(before, op);
  publish_to_bulk();
  __syncthreads();
  if (thread < lanes) store_tile(all, 0, out_stage, lane);
  if (thread == 0) wait_for_bulk_stores();
}

extern "C" __global__ __launch_bounds__(threads, 1)
void cupar_scan_tiles(d_in_t d_in, d_out_t d_out, unsigned char* memory, u64 num_items,
                      int vectors, op_t op, init_t init) {
  __shared__ shared_memory shared;
  const layout all(d_in, d_out, num_items, group_threads * vectors * vector);
  const int stages = min((shared_bytes() - groups * all.bytes<d_out_v>()) / all.bytes<d_in_v>(), most_stages);
  if (const int i = threadIdx.x; i < stages) {
    shared.taken[i].init(1);
    shared.loaded[i].init(1);
    shared.preceded[i].init(1);
    shared.released[i].init(group_warps);
  }
  publish_barriers();
  __syncthreads();
  wait_for_dependencies();
  const int lane = threadIdx.x % lanes, group = threadIdx.x / group_threads;
  const auto counter = reinterpret_cast<unsigned*>(memory);
  const auto states  = reinterpret_cast<published<accum_t>*>(memory + states_at);
  if (group < groups) {
    scan_tiles(shared, all, states, vectors, stages, op, group, threadIdx.x % group_threads);
  } else if (threadIdx.x < threads - lanes) {
    load(shared, all, counter, stages, lane);
  } else {
    look_ahead(shared, all, states, stages, op, init, lane);
  }
}

CUPAR_FACTS(threads, vector, sizeof(published<accum_t>), 0, sizeof(d_in_v), sizeof(d_out_v), groups, group_threads,
            most_vectors, batch, sizeof(shared_memory))
