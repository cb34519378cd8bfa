// Sorts of segments, each by itself, by size.
//
// - A key becomes a word that sorts as an unsigned integer. With values, a word also holds where in its
//   segment the key was: so words differ, every way of sorting them is stable, and a value is moved once.
// - Short segments are sorted by 4 to 32 lanes, in registers, by a bitonic network. Each lane has
//   successive positions in it, so that most of its steps are within lanes. The words to begin with may be in
//   any order: that they are loaded side by side costs nothing.
// - Others are sorted by a team: a warp, or 2, 4, 8 or 16 of them. Each warp sorts its share by the network;
//   then shares are merged, pair by pair, in shared memory.
// - Long ones are cut into tiles, and sorted digit by digit: the digits of all passes are counted in one
//   reading of the keys; then each pass ranks the keys of a tile, finds by look-back within the segment where
//   its digits go, and writes them. So many blocks share a segment.
//
// With offsets, a kernel before these writes a list of segments for each size; they are never read back.
// Segments do not overlap, so no list is longer than the items divided by the least length in it.
//
// Sources: K. E. Batcher, "Sorting Networks and Their Applications", AFIPS 1968; S. Odeh et al., "Merge Path
// - Parallel Merging Made Simple", IPDPSW 2012; A. Adinets and D. Merrill, "Onesweep: A Faster Least
// Significant Digit Radix Sort for GPUs", arXiv:2206.01784, whose ranking within a tile is CUB's.
//
// Given: d_in_keys_v, d_in_values_v (void: keys alone), start_offsets_in_t, end_offsets_in_t, is_descending;
// CUPAR_OFFSETS unless segments are rows; CUPAR_512 if words have 32 bits.
#include <cub/block/block_radix_rank.cuh>

#include "vectors.cuh"

namespace cupar {
using u32 = unsigned int;

constexpr bool has_values = !cuda::std::is_void_v<d_in_values_v>;
using key                 = d_in_keys_v;
using value               = cuda::std::conditional_t<has_values, d_in_values_v, char>;
using bits                = typename cub::Traits<key>::UnsignedBits;  // of a key, in memory
using order               = cub::RadixSortTwiddle<is_descending, key>;

// ---- Words

// A key of 64 bits, and where it was.
struct long_word {
  u64 high;
  u32 low;
};

__device__ __forceinline__ bool operator<(const long_word& a, const long_word& b) {
  return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low));  // without a branch
}

using sort_word = cuda::std::conditional_t<
    has_values && sizeof(bits) == 8, long_word,
    cuda::std::conditional_t<sizeof(bits) == 8 || (has_values && sizeof(bits) == 4), u64, u32>>;
constexpr bool is_long_word = sizeof(sort_word) > 8;
constexpr int place_bits    = has_values && !is_long_word ? 4 * sizeof(sort_word) : 0;

// Behind all others, where a segment has no more items.
template <class Word = sort_word>
__device__ __forceinline__ Word last_word() {
  if constexpr (is_long_word) {
    return {~u64{0}, ~0u};
  } else {
    return static_cast<Word>(~u64{0});
  }
}

// -0.0 is as 0.0, if values tell the two apart.
__device__ __forceinline__ bits compared(bits ordered) {
  return has_values ? cub::BaseDigitExtractor<key>::ProcessFloatMinusZero(ordered) : ordered;
}

template <class Word = sort_word>
__device__ __forceinline__ Word to_word(bits given, int place) {
  const bits ordered = order::In(given);
  if constexpr (has_values) {
    // The lowest bit tells which zero it was.
    const bits shown = compared(ordered);
    const u32 low    = u32(place) << 1 | u32(shown != ordered);
    if constexpr (is_long_word) {
      return {shown, low};
    } else {
      return static_cast<Word>(shown) << place_bits | low;
    }
  } else {
    return ordered;
  }
}

template <class Word>
__device__ __forceinline__ bits to_key(const Word& given) {
  if constexpr (is_long_word) {
    return order::Out(static_cast<bits>(given.high - (given.low & 1)));
  } else if constexpr (has_values) {
    return order::Out(static_cast<bits>((given >> place_bits) - (given & 1)));
  } else {
    return order::Out(static_cast<bits>(given));
  }
}

template <class Word>
__device__ __forceinline__ int place_of(const Word& given) {
  if constexpr (is_long_word) {
    return static_cast<int>(given.low >> 1);
  } else {
    constexpr auto places = (u64{1} << place_bits) - 1;
    return static_cast<int>((given & places) >> 1);
  }
}

template <class Word>
__device__ __forceinline__ Word shuffle_xor(const Word& given, int mask) {
  if constexpr (is_long_word) {
    return {__shfl_xor_sync(~0u, given.high, mask), __shfl_xor_sync(~0u, given.low, mask)};
  } else {
    return __shfl_xor_sync(~0u, given, mask);
  }
}

template <class Word>
__device__ __forceinline__ Word either(bool is_first, const Word& first, const Word& second) {
  if constexpr (is_long_word) {
    return {is_first ? first.high : second.high, is_first ? first.low : second.low};
  } else {
    return is_first ? first : second;
  }
}

// Puts the lesser of two words first.
template <class Word>
__device__ __forceinline__ void exchange(Word& a, Word& b) {
  if constexpr (cuda::std::is_same_v<Word, u64>) {
    // Each half by itself: of all 64 bits, ptxas makes a minimum and a maximum, and compares twice.
    u32 low, high, b_low, b_high;
    asm("{\n"
        "  .reg .pred is_less;\n"
        "  .reg .b32 a_low, a_high, b_low, b_high;\n"
        "  setp.lt.u64 is_less, %5, %4;\n"
        "  mov.b64 {a_low, a_high}, %4;\n"
        "  mov.b64 {b_low, b_high}, %5;\n"
        "  selp.b32 %0, b_low, a_low, is_less;\n"
        "  selp.b32 %1, b_high, a_high, is_less;\n"
        "  selp.b32 %2, a_low, b_low, is_less;\n"
        "  selp.b32 %3, a_high, b_high, is_less;\n"
        "}"
        : "=r"(low), "=r"(high), "=r"(b_low), "=r"(b_high)
        : "l"(a), "l"(b));
    a = u64{high} << 32 | low;
    b = u64{b_high} << 32 | b_low;
  } else {
    const bool is_less = b < a;
    const Word c       = either(is_less, b, a);
    b                  = either(is_less, a, b);
    a                  = c;
  }
}

// Returns the lesser of two words, or the greater.
__device__ __forceinline__ sort_word kept(const sort_word& own, const sort_word& other, bool is_greater) {
  return either((other < own) == is_greater, own, other);
}

// Sorts runs of a lane's words that are bitonic, of twice so many.
template <int items>
__device__ __forceinline__ void sort_own(sort_word (&words)[items], int distance) {
#pragma unroll
  for (; distance > 0; distance /= 2) {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      if ((i & distance) == 0) {
        exchange(words[i], words[i + distance]);
      }
    }
  }
}

// Sorts the words of groups of lanes: lane l of a group gets the words at l * items and behind.
template <int lanes, int items>
__device__ __forceinline__ void sort_lanes(sort_word (&words)[items]) {
  const int lane = threadIdx.x % lanes;
  // Of two sorted runs, the second is met from its end: then what is less is in the first.
#pragma unroll
  for (int size = 2; size <= items; size *= 2) {
#pragma unroll
    for (int i = 0; i < items; ++i) {
      if ((i & (size / 2)) == 0) {
        exchange(words[i], words[i ^ (size - 1)]);
      }
    }
    sort_own(words, size / 4);
  }
  // Large loops are not unrolled, for the instructions to stay in their cache.
  constexpr int unrolled = items <= 8 && !is_long_word ? 8 : 1;
#pragma unroll unrolled
  for (int among = 2; among <= lanes; among *= 2) {
    const bool is_upper = lane & (among / 2);
#pragma unroll
    for (int i = 0; i < items / 2; ++i) {
      const sort_word other = shuffle_xor(words[items - 1 - i], among - 1);
      const sort_word met   = shuffle_xor(words[i], among - 1);
      words[i]              = kept(words[i], other, is_upper);
      words[items - 1 - i]  = kept(words[items - 1 - i], met, is_upper);
    }
#pragma unroll unrolled
    for (int mask = among / 4; mask > 0; mask /= 2) {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        words[i] = kept(words[i], shuffle_xor(words[i], mask), lane & mask);
      }
    }
    sort_own(words, items / 2);
  }
}

// ---- What is sorted, and lists of segments by size

struct arrays {
  const bits* keys_in;
  bits* keys_out;
  const value* values_in;
  value* values_out;
};

constexpr int team_items = sizeof(sort_word) == 4 ? 32 : 16;  // of a thread

#ifdef CUPAR_512
constexpr bool has_512 = true;
#else
constexpr bool has_512 = false;
#endif
static_assert(has_512 == (32 * team_items > 512), "groups of lanes are for less than a team sorts");

// Lists for groups of lanes; then those for teams; then that of long segments.
constexpr int group_sizes = has_512 ? 6 : 5;
constexpr int most_lists  = 6 + 6;  // as plans have, whatever the word

// Without offsets, there are none: all segments are of one size.
struct lists {
  u32* counts;
  u32* segments;
  u64 first[most_lists + 1];  // where each list begins

  __device__ __forceinline__ i64 count(int list, i64 num_segments) const {
    if (counts == nullptr) {
      return num_segments;
    }
    const u64 written = counts[list], most = first[list + 1] - first[list];
    return static_cast<i64>(written < most ? written : most);
  }
  __device__ __forceinline__ i64 segment(int list, i64 at) const {
    return counts == nullptr ? at : i64{segments[first[list] + at]};
  }
};

// ---- Groups of lanes

constexpr int group_threads = is_long_word ? 128 : 256;

template <int lanes, int items>
__device__ __forceinline__ void sort_groups(const arrays& given, start_offsets_in_t starts,
                                            end_offsets_in_t ends, i64 num_segments, const lists& from,
                                            int list) {
  constexpr int groups = group_threads / lanes, most = lanes * items;
  // Of a vector, and vectors of a lane.
  constexpr int together = cuda::std::min<int>(items, widest / sizeof(bits)), vectors = items / together;
  constexpr bool stores_vectors = !has_values && items * sizeof(bits) <= 2 * widest;
  // A gap behind the words of each lane, so that all are in different banks.
  __shared__ sort_word stages[group_threads * (items + 1)];
  sort_word* const stage = stages + threadIdx.x / lanes * lanes * (items + 1);
  const int lane         = threadIdx.x % lanes;
  const i64 count        = from.count(list, num_segments);
  for (i64 first = i64{blockIdx.x} * groups; first < count; first += i64{gridDim.x} * groups) {
    const i64 at = first + threadIdx.x / lanes;
    i64 begin    = 0;
    int length   = 0;
    if (at < count) {
      const i64 segment = from.segment(list, at);
      begin             = static_cast<i64>(starts[segment]);
      length            = static_cast<int>(static_cast<i64>(ends[segment]) - begin);
    }
    const bits* const in = given.keys_in + begin;
    bits* const out      = given.keys_out + begin;
    const bool is_full   = length == most && is_aligned<together>(in);
    sort_word words[items];
    if (__all_sync(~0u, is_full)) {
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        const int place = (v * lanes + lane) * together;
        vector<bits, together> loaded;
        load<true>(loaded, in + place);
#pragma unroll
        for (int i = 0; i < together; ++i) {
          words[v * together + i] = to_word(loaded.item[i], place + i);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < items; ++i) {
        const int place = i * lanes + lane;
        words[i]        = place < length ? to_word(in[place], place) : last_word();
      }
    }
    sort_lanes<lanes, items>(words);
    if constexpr (stores_vectors) {
      if (__all_sync(~0u, is_full && is_aligned<together>(out))) {
#pragma unroll
        for (int v = 0; v < vectors; ++v) {
          vector<bits, together> stored;
#pragma unroll
          for (int i = 0; i < together; ++i) {
            stored.item[i] = to_key(words[v * together + i]);
          }
          store<true>(out + lane * items + v * together, stored);
        }
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < items; ++i) {
      stage[lane * (items + 1) + i] = words[i];
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < items; ++i) {
      const int position = i * lanes + lane;
      if (position < length) {
        const sort_word found = stage[position + position / items];
        out[position]         = to_key(found);
        if constexpr (has_values) {
          given.values_out[begin + position] = given.values_in[begin + place_of(found)];
        }
      }
    }
    __syncwarp();
  }
}

// ---- Teams

// Bytes that the threads of a block have their words in.
constexpr int team_bytes(int threads) {
  return threads * (team_items + 1) * static_cast<int>(sizeof(sort_word));
}

// Shared memory of a block, at most.
constexpr int most_shared(int cc) {
  return cc < 80 ? 64 << 10 : cc == 86 || cc == 89 || cc >= 120 ? 99 << 10 : 163 << 10;
}

constexpr int most_team_threads() {
  int threads = 512;
  while (team_bytes(threads) > most_shared(target)) {
    threads /= 2;
  }
  return threads;
}

constexpr int team_threads    = most_team_threads();
constexpr int teams_on_a_unit = is_long_word ? 1 : 2;  // blocks of a multiprocessor: registers suffice for it

// Waits for a team: of so many threads, the first or another of its block. Barrier 0 is the block's.
__device__ __forceinline__ void wait_for_team(int threads, int team) {
  if (threads == 32) {
    __syncwarp();
  } else {
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + team), "r"(threads) : "memory");
  }
}

__device__ __forceinline__ int padded(int position) {
  return position + position / team_items;
}

// Merges pairs of sorted runs of so many words; each thread gets its share of the result.
__device__ __forceinline__ void merge_runs(sort_word (&words)[team_items], const sort_word* stage, int thread,
                                           int run) {
  const int first = thread * team_items, pair = first & ~(2 * run - 1), before = first - pair;
  // How many of the words before come from the first run.
  int low = before > run ? before - run : 0, high = before < run ? before : run;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (stage[padded(pair + run + before - 1 - middle)] < stage[padded(pair + middle)]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  int a = pair + low, b = pair + run + before - low;
  const int a_end = pair + run, b_end = a_end + run;
  sort_word a_word = a < a_end ? stage[padded(a)] : last_word();
  sort_word b_word = b < b_end ? stage[padded(b)] : last_word();
#pragma unroll
  for (int i = 0; i < team_items; ++i) {
    // A run that has ended has words behind all others; those that are like them are the same.
    const bool is_a = !(b_word < a_word);
    words[i]        = either(is_a, a_word, b_word);
    a += is_a;
    b += !is_a;
    const int next       = is_a ? a : b;
    const sort_word word = next < (is_a ? a_end : b_end) ? stage[padded(next)] : last_word();
    a_word               = either(is_a, word, a_word);
    b_word               = either(is_a, b_word, word);
  }
}

__device__ __forceinline__ void sort_in_team(const arrays& given, i64 begin, int length, sort_word* stage,
                                             int threads, int team) {
  const int thread = threadIdx.x % threads;
  sort_word words[team_items];
#pragma unroll
  for (int i = 0; i < team_items; ++i) {
    const int place = i * threads + thread;
    words[i]        = place < length ? to_word(given.keys_in[begin + place], place) : last_word();
  }
  sort_lanes<32, team_items>(words);
  sort_word* const own = stage + thread * (team_items + 1);
  for (int run = 32 * team_items;; run *= 2) {
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      own[i] = words[i];
    }
    wait_for_team(threads, team);
    if (run == threads * team_items) {
      break;
    }
    merge_runs(words, stage, thread, run);
    wait_for_team(threads, team);
  }
  if constexpr (has_values && sizeof(value) <= sizeof(sort_word)) {
    // The values take the words' place, so that they are read side by side.
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      words[i] = stage[padded(i * threads + thread)];
    }
    wait_for_team(threads, team);
    value* const values = reinterpret_cast<value*>(stage);
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int place = i * threads + thread;
      if (place < length) {
        values[place] = given.values_in[begin + place];
      }
    }
    wait_for_team(threads, team);
#pragma unroll
    for (int i = 0; i < team_items; ++i) {
      const int position = i * threads + thread;
      if (position < length) {
        given.keys_out[begin + position]   = to_key(words[i]);
        given.values_out[begin + position] = values[place_of(words[i])];
      }
    }
  } else {
#pragma unroll 4
    for (int i = 0; i < team_items; ++i) {
      const int position = i * threads + thread;
      if (position < length) {
        const sort_word found            = stage[padded(position)];
        given.keys_out[begin + position] = to_key(found);
        if constexpr (has_values) {
          given.values_out[begin + position] = given.values_in[begin + place_of(found)];
        }
      }
    }
  }
  wait_for_team(threads, team);
}

// ---- Long segments

constexpr int radix_bits = 8, digits = 1 << radix_bits, passes = sizeof(bits) * 8 / radix_bits;

constexpr bool stages_values = has_values && sizeof(value) <= 16;
constexpr int staged_size    = stages_values && sizeof(value) > sizeof(bits) ? sizeof(value) : sizeof(bits);
constexpr int digit_threads  = 512;
constexpr int digit_items    = staged_size <= 4 ? 16 : staged_size <= 8 ? 8 : 4;  // so that a tile has 32 KiB
constexpr int tile_items     = digit_threads * digit_items;
constexpr u32 no_segment     = ~0u;

struct long_segment {
  i64 begin, length;
  u32 first_tile, tiles;
  u32 left;  // tiles whose digits are not counted yet
  u32 unused;
};

struct queue {
  u32* counts;  // of all tiles; then for each pass, of those that were begun
  long_segment* segments;
  u32* segment_of;  // each tile
  u64* bins;        // for each segment, pass and digit: how many there are, and later what is before them
  u64* lookback;    // for each tile and digit
  u32 most_segments, most_tiles;
};

// What a tile lets others know of a digit in a pass: how many it has; or if that is known, how many there are
// up to its end in the segment.
constexpr int pass_shift = 60;
constexpr u64 is_total   = u64{1} << 59;

__device__ __forceinline__ u32 digit_of(bits ordered, int pass) {
  return static_cast<u32>(compared(ordered) >> (pass * radix_bits)) % digits;
}

struct digit_extractor {
  int pass;
  __device__ __forceinline__ u32 Digit(bits ordered) const { return digit_of(ordered, pass); }
};

// Replaces counts of digits by how many there are before each: a warp for each pass.
__device__ __forceinline__ void sum_bins(u64* bins) {
  constexpr int each = digits / 32;
  const int lane     = threadIdx.x % 32;
  if (threadIdx.x / 32 < passes) {
    u64* const own = bins + threadIdx.x / 32 * digits + lane * each;
    u64 counts[each], sum = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      counts[i] = __ldcg(own + i);  // other blocks have written it: not from this one's L1
      sum += counts[i];
    }
    u64 before = sum;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const u64 other = __shfl_up_sync(~0u, before, distance);
      before += lane >= distance ? other : 0;
    }
    before -= sum;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      own[i] = before;
      before += counts[i];
    }
  }
}

using rank_digits =
    cub::BlockRadixRankMatchEarlyCounts<digit_threads, radix_bits, false, cub::BLOCK_SCAN_WARP_SCANS,
                                        cub::WARP_MATCH_ATOMIC_OR, 1>;

// Takes how many of its digit a thread's tile has, as soon as that is known.
struct publish {
  static constexpr bool EMPTY = false;
  u64* lookback;
  u64 flags;
  int& count;
  __device__ __forceinline__ void operator()(int (&counts)[rank_digits::BINS_PER_THREAD]) {
    count = counts[0];
    if (threadIdx.x < digits) {
      *static_cast<volatile u64*>(lookback + threadIdx.x) = flags | static_cast<u64>(count);
    }
  }
};

// Returns how many of a thread's digit there are in the tiles of the segment before.
__device__ __forceinline__ u64 look_back(const u64* lookback, u32 tile, u32 first_tile, int pass) {
  constexpr u64 counts = is_total - 1;
  u64 before           = 0;
  for (u32 at = tile; at > first_tile;) {
    --at;
    const volatile u64* const theirs = lookback + u64{at} * digits + threadIdx.x;
    u64 found                        = *theirs;
    while (found >> pass_shift != static_cast<u64>(pass + 1)) {
      found = *theirs;
    }
    before += found & counts;
    if (found & is_total) {
      break;
    }
  }
  return before;
}
}  // namespace cupar

using namespace cupar;

extern "C" __global__ void cupar_segmented_sort_init(u32* counts) {
  join_stream();
  counts[threadIdx.x] = 0;
}

#ifdef CUPAR_OFFSETS
// Writes the lists: of segments for groups of lanes, for teams, and of long ones.
extern "C" __global__ __launch_bounds__(256) void cupar_segmented_sort_list(
    start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments, const __grid_constant__ lists to) {
  constexpr int rounds = 4;
  __shared__ u32 counts[most_lists], firsts[most_lists];
  const int thread = threadIdx.x, lane = thread % 32;
  if (thread < most_lists) {
    counts[thread] = 0;
  }
  __syncthreads();
  join_stream();
  int own[rounds];
  u32 at[rounds];
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const i64 segment = (i64{blockIdx.x} * rounds + i) * blockDim.x + thread;
    own[i]            = -1;
    if (segment < num_segments) {
      const i64 length = static_cast<i64>(ends[segment]) - static_cast<i64>(starts[segment]);
      if (length > 0) {
        int list = (length > 16) + (length > 32) + (length > 64) + (length > 128) + (length > 256);
        list += has_512 && length > 512;
#pragma unroll
        for (int threads = 32; threads <= team_threads; threads *= 2) {
          list += length > threads * team_items;
        }
        own[i] = list;
      }
    }
    // One atomic for the lanes of a list.
    const unsigned like = __match_any_sync(~0u, own[i]);
    const int leader    = __ffs(like) - 1;
    u32 before          = 0;
    if (own[i] >= 0 && lane == leader) {
      before = atomicAdd(&counts[own[i]], static_cast<u32>(__popc(like)));
    }
    at[i] = __shfl_sync(~0u, before, leader) + __popc(like & ((1u << lane) - 1));
  }
  __syncthreads();
  if (thread < most_lists) {
    firsts[thread] = counts[thread] > 0 ? atomicAdd(&to.counts[thread], counts[thread]) : 0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    if (own[i] >= 0) {
      const u64 where = to.first[own[i]] + firsts[own[i]] + at[i];
      if (where < to.first[own[i] + 1]) {  // not if segments overlap
        to.segments[where] = static_cast<u32>((i64{blockIdx.x} * rounds + i) * blockDim.x + thread);
      }
    }
  }
}
#endif

extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_16(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<4, 4>(given, starts, ends, num_segments, from, 0);
}

extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_32(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<4, 8>(given, starts, ends, num_segments, from, 1);
}

extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_64(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<8, 8>(given, starts, ends, num_segments, from, 2);
}

extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_128(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<8, 16>(given, starts, ends, num_segments, from, 3);
}

extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_256(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<16, 16>(given, starts, ends, num_segments, from, 4);
}

#ifdef CUPAR_512
extern "C" __global__ __launch_bounds__(group_threads) void cupar_segmented_sort_512(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from) {
  join_stream();
  sort_groups<32, 16>(given, starts, ends, num_segments, from, 5);
}
#endif

// For the lists of teams, from the largest team to the smallest: 32 << size threads.
extern "C" __global__ __launch_bounds__(team_threads, teams_on_a_unit) void cupar_segmented_sort_teams(
    arrays given, start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments,
    const __grid_constant__ lists from, int least, int largest) {
  extern __shared__ __align__(16) unsigned char shared[];
  join_stream();
  for (int size = largest; size >= least; --size) {
    const int threads = 32 << size, team = threadIdx.x / threads;
    const i64 teams        = blockDim.x / threads;
    sort_word* const stage = reinterpret_cast<sort_word*>(shared + team_bytes(threads) * team);
    const int list         = group_sizes + size;
    const i64 count        = from.count(list, num_segments);
    for (i64 at = blockIdx.x + i64{gridDim.x} * team; at < count; at += gridDim.x * teams) {
      const i64 segment = from.segment(list, at);
      const i64 begin   = static_cast<i64>(starts[segment]);
      const i64 length  = static_cast<i64>(ends[segment]) - begin;
      sort_in_team(given, begin, static_cast<int>(length), stage, threads, team);
    }
    __syncthreads();
  }
}

// Cuts long segments into tiles, and zeroes their bins.
extern "C" __global__ __launch_bounds__(256) void cupar_segmented_sort_tiles(
    start_offsets_in_t starts, end_offsets_in_t ends, i64 num_segments, const __grid_constant__ lists from,
    int list, queue to) {
  __shared__ u32 shared_first;
  join_stream();
  i64 count = from.count(list, num_segments);
  count     = count < to.most_segments ? count : to.most_segments;
  for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
    const i64 segment = from.segment(list, at);
    const i64 begin   = static_cast<i64>(starts[segment]);
    const i64 length  = static_cast<i64>(ends[segment]) - begin;
    const auto tiles  = static_cast<u32>((length + tile_items - 1) / tile_items);
    if (threadIdx.x == 0) {
      shared_first = atomicAdd(to.counts, tiles);
    }
    __syncthreads();
    const u32 first   = shared_first;
    const u64 end     = u64{first} + tiles;
    const bool is_one = end <= to.most_tiles;  // not if segments overlap
    if (threadIdx.x == 0) {
      to.segments[at] = {begin, length, first, tiles, tiles, 0};
    }
    for (u64 tile = first + threadIdx.x; tile < end && tile < to.most_tiles; tile += blockDim.x) {
      to.segment_of[tile] = is_one ? static_cast<u32>(at) : no_segment;
    }
    for (int i = threadIdx.x; i < passes * digits; i += blockDim.x) {
      to.bins[at * (passes * digits) + i] = 0;
    }
    __syncthreads();
  }
}

// Counts the digits of all passes; whoever counts the last of a segment sums them up. A block takes tiles
// that follow one another.
extern "C" __global__ __launch_bounds__(digit_threads) void cupar_segmented_sort_count(const bits* keys,
                                                                                       queue q) {
  constexpr int loads = 4;
  __shared__ u32 bins[passes * digits];
  __shared__ bool is_last;
  for (int i = threadIdx.x; i < passes * digits; i += digit_threads) {
    bins[i] = 0;
  }
  join_stream();
  const u32 total = *q.counts < q.most_tiles ? *q.counts : q.most_tiles;
  const u32 each  = (total + gridDim.x - 1) / gridDim.x;
  u32 tile        = blockIdx.x * each < total ? blockIdx.x * each : total;
  const u32 end   = total - tile < each ? total : tile + each;
  for (u64 i = u64{tile} * digits + threadIdx.x; i < u64{end} * digits; i += digit_threads) {
    q.lookback[i] = 0;
  }
  __syncthreads();
  while (tile < end) {
    const u32 segment = q.segment_of[tile];
    if (segment == no_segment) {
      ++tile;
      continue;
    }
    long_segment* const its = q.segments + segment;
    const u32 first = its->first_tile, behind = first + its->tiles, stop = end < behind ? end : behind;
    const i64 until = i64{stop - first} * tile_items, to = until < its->length ? until : its->length;
    const bits* const from = keys + its->begin;
    for (i64 i = i64{tile - first} * tile_items + threadIdx.x; i < to; i += loads * digit_threads) {
      bits loaded[loads];
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        loaded[k] = i + k * digit_threads < to ? order::In(from[i + k * digit_threads]) : bits{};
      }
#pragma unroll
      for (int k = 0; k < loads; ++k) {
        if (i + k * digit_threads < to) {
#pragma unroll
          for (int pass = 0; pass < passes; ++pass) {
            atomicAdd(&bins[pass * digits + digit_of(loaded[k], pass)], 1u);
          }
        }
      }
    }
    __syncthreads();
    u64* const totals = q.bins + u64{segment} * (passes * digits);
    for (int i = threadIdx.x; i < passes * digits; i += digit_threads) {
      if (bins[i] > 0) {
        atomicAdd(&totals[i], u64{bins[i]});
        bins[i] = 0;
      }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      is_last = atomicSub(&its->left, stop - tile) == stop - tile;
    }
    __syncthreads();
    if (is_last) {
      __threadfence();
      sum_bins(totals);
    }
    tile = stop;
  }
}

// One pass over all tiles. They are begun in order, so that those before a tile are on their way.
extern "C" __global__ __launch_bounds__(digit_threads, 2) void cupar_segmented_sort_digit(arrays given,
                                                                                          queue q, int pass) {
  __shared__ union {
    typename rank_digits::TempStorage rank;
    bits keys[tile_items];
    alignas(16) unsigned char values[stages_values ? tile_items * sizeof(value) : 1];
  } stage;
  __shared__ u64 offsets[digits];
  __shared__ u32 shared_tile;
  const int thread = threadIdx.x, place = thread / 32 * 32 * digit_items + thread % 32;
  join_stream();
  const u32 total = *q.counts < q.most_tiles ? *q.counts : q.most_tiles;
  while (true) {
    if (thread == 0) {
      shared_tile = atomicAdd(q.counts + 1 + pass, 1u);
    }
    __syncthreads();
    const u32 tile = shared_tile;
    if (tile >= total) {
      break;
    }
    const u32 segment = q.segment_of[tile];
    if (segment == no_segment) {
      __syncthreads();
      continue;
    }
    const long_segment its = q.segments[segment];
    const i64 before = i64{tile - its.first_tile} * tile_items, begin = its.begin + before;
    const int count = its.length - before < tile_items ? static_cast<int>(its.length - before) : tile_items;
    bits keys[digit_items];
#pragma unroll
    for (int i = 0; i < digit_items; ++i) {
      const int at = place + i * 32;
      keys[i]      = at < count ? order::In(given.keys_in[begin + at]) : static_cast<bits>(~u64{0});
    }
    const u64 tag       = static_cast<u64>(pass + 1) << pass_shift;
    const bool is_first = tile == its.first_tile;
    int ranks[digit_items], smaller[rank_digits::BINS_PER_THREAD], own = 0;
    rank_digits(stage.rank)
        .RankKeys(keys, ranks, digit_extractor{pass}, smaller,
                  publish{q.lookback + u64{tile} * digits, is_first ? tag | is_total : tag, own});
    if (thread < digits) {
      u64 earlier = 0;
      if (!is_first) {
        earlier = look_back(q.lookback, tile, its.first_tile, pass);
        *static_cast<volatile u64*>(q.lookback + u64{tile} * digits + thread) =
            tag | is_total | (earlier + static_cast<u64>(own));
      }
      offsets[thread] = q.bins[(u64{segment} * passes + pass) * digits + thread] + earlier +
                        static_cast<u64>(its.begin) - static_cast<u64>(smaller[0]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < digit_items; ++i) {
      stage.keys[ranks[i]] = keys[i];
    }
    if constexpr (has_values && !stages_values) {
#pragma unroll
      for (int i = 0; i < digit_items; ++i) {
        if (place + i * 32 < count) {
          given.values_out[offsets[digit_of(keys[i], pass)] + ranks[i]] =
              given.values_in[begin + place + i * 32];
        }
      }
    }
    __syncthreads();
    u32 found[digit_items];
#pragma unroll
    for (int i = 0; i < digit_items; ++i) {
      const int at = i * digit_threads + thread;
      if (at < count) {
        const bits sorted                      = stage.keys[at];
        found[i]                               = digit_of(sorted, pass);
        given.keys_out[offsets[found[i]] + at] = order::Out(sorted);
      }
    }
    if constexpr (stages_values) {
      value* const values = reinterpret_cast<value*>(stage.values);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < digit_items; ++i) {
        if (place + i * 32 < count) {
          values[ranks[i]] = given.values_in[begin + place + i * 32];
        }
      }
      __syncthreads();
#pragma unroll
      for (int i = 0; i < digit_items; ++i) {
        const int at = i * digit_threads + thread;
        if (at < count) {
          given.values_out[offsets[found[i]] + at] = values[at];
        }
      }
    }
    __syncthreads();
  }
}

CUPAR_FACTS(group_threads, team_threads, team_items, team_bytes(1), digit_threads, tile_items, passes,
            sizeof(long_segment), sizeof(bits), has_values ? sizeof(value) : 0)
