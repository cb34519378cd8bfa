// Binary searches: for each of many values, its place among sorted items.
//
// One search after another waits for memory at each step. What can be done about it depends on the problem:
// - Few values: a thread each, which reads three items at once and so does two steps in the time of one.
// - Few items: a block stages all of them in shared memory, and each thread searches for many values at once.
// - Values that are sorted, too: the places of a tile of them lie between those of its first value and of the
//   next tile's. What is between is staged, piece by piece.
// - Values in any order: a tree of samples, made in each call. Its first level has the last of each `fanout`
//   items, the next the last of each `fanout` of the first, and so on, until a level fits into shared memory.
//   A value reads one node of each level on its way down; four lanes read it together, each a part.
//
// Source: ours. The tree is that of J. Rao and K. A. Ross, "Cache conscious indexing for decision-support in
// main memory", VLDB 1999.
//
// Given: d_data_t (a pointer), d_values_t, d_out_t, comp_t, is_upper, values_sorted; the policy: few_values,
// tile_threads, tile_blocks, tile_values, staged_bytes, tree_threads, tree_blocks, fanout (0: no tree),
// top_bytes; and CUPAR_BOUNDS or CUPAR_TREE, if values are sorted or there is a tree, as no constant decides
// which kernels there are.
#include <cuda/std/__algorithm/max.h>
#include <cuda/std/__algorithm/min.h>

namespace cupar {
using item_t  = d_data_v;
using index_t = d_out_v;

constexpr int each_threads = 128;
constexpr int tile_size    = tile_threads * tile_values;
constexpr int staged_size  = cuda::std::max(1, staged_bytes / static_cast<int>(sizeof(item_t)));
constexpr int top_size     = top_bytes / static_cast<int>(sizeof(item_t));

// --- Items that lie together -------------------------------------------------------------------------------

// clang-format off
template <int bytes> struct word;
template <> struct word<1> { using type = unsigned char; };
template <> struct word<2> { using type = unsigned short; };
template <> struct word<4> { using type = unsigned; };
template <> struct word<8> { using type = uint2; };
template <> struct word<16> { using type = uint4; };
// clang-format on

// The largest word that some bytes are a multiple of, which has so many bytes at most.
constexpr int word_size(int bytes, int most) {
  int size = most;
  while (bytes % size != 0) {
    size /= 2;
  }
  return size;
}
template <int bytes, int most = 16>
using largest_word = typename word<word_size(bytes, most)>::type;

// Some items that lie together, moved in such words.
template <class T, int count, int most = 16>
struct group {
  using word_t               = largest_word<count * sizeof(T), most>;
  static constexpr int words = count * sizeof(T) / sizeof(word_t);

  static __device__ __forceinline__ bool is_aligned(const T* items) {
    return reinterpret_cast<cuda::std::uintptr_t>(items) % sizeof(word_t) == 0;
  }
  // What is read once need not be kept in caches; what is not must be the same as long as the kernel runs.
  template <bool is_once>
  static __device__ __forceinline__ void read(const T* from, T (&to)[count]) {
    word_t read[words];
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const word_t* at = reinterpret_cast<const word_t*>(from) + i;
      read[i]          = is_once ? __ldcs(at) : __ldg(at);
    }
    memcpy(to, read, sizeof(to));
  }
  static __device__ __forceinline__ void write(T* to, const T (&from)[count]) {
    word_t written[words];
    memcpy(written, from, sizeof(from));
#pragma unroll
    for (int i = 0; i < words; ++i) {
      reinterpret_cast<word_t*>(to)[i] = written[i];
    }
  }
};

// Copies words to shared memory, of which each thread reads several at once.
template <int threads, bool is_once, class Word>
__device__ __forceinline__ void copy_words(Word* to, const Word* from, int words) {
  constexpr int at_once = 4;
#pragma unroll 1
  for (int start = threadIdx.x; start < words; start += at_once * threads) {
    Word read[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (start + i * threads < words) {
        read[i] = is_once ? __ldcs(from + start + i * threads) : __ldg(from + start + i * threads);
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (start + i * threads < words) {
        to[start + i * threads] = read[i];
      }
    }
  }
}

// --- Searches ----------------------------------------------------------------------------------------------

// Whether an item goes before the place of a value.
__device__ __forceinline__ bool is_before(const item_t item, const item_t& value, const comp_t& comp) {
  if constexpr (is_upper) {
    return !comp(value, item);
  } else {
    return comp(item, value);
  }
}

// Moves the places of some values past what goes before them. Of the items, all before `items` were searched
// already: a value that did not pass all of those, `passed`, passes none of these.
template <class Index, int count>
__device__ __forceinline__ void search(const item_t* items, Index size, const item_t (&values)[count],
                                       Index (&places)[count], const comp_t& comp, Index passed = 0) {
#pragma unroll 1
  while (size > 0) {
    const Index step = (size + 1) / 2;
#pragma unroll
    for (int v = 0; v < count; ++v) {
      const Index start = places[v] < passed ? 0 : places[v] - passed;
      places[v] += is_before(items[start + step - 1], values[v], comp) ? step : 0;
    }
    size -= step;
  }
}

// Returns the place of one value, in fewer steps of more loads.
__device__ __forceinline__ u64 search_in_quarters(const item_t* items, u64 size, const item_t& value,
                                                  const comp_t& comp) {
  u64 place = 0;
  while (size > 3) {
    const u64 step = size / 4;
    int quarters   = 0;
#pragma unroll
    for (int i = 1; i < 4; ++i) {
      quarters += is_before(items[place + i * step - 1], value, comp);
    }
    place += quarters * step;
    size -= 3 * step;
  }
  int rest = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    rest += i < size && is_before(items[place + i], value, comp);
  }
  return place + rest;
}
}  // namespace cupar

using namespace cupar;

// A thread for each value.
extern "C" __global__ __launch_bounds__(each_threads) void cupar_search_each(d_data_t data, u64 num_items,
                                                                             d_values_t values,
                                                                             u64 num_values, d_out_t out,
                                                                             comp_t comp) {
  join_stream();
  const u64 at = u64{blockIdx.x} * each_threads + threadIdx.x;
  if (at >= num_values) {
    return;
  }
  const item_t wanted[1] = {values[at]};
  u64 place[1]           = {0};
  if (num_values <= few_values) {  // what counts is the time of one search
    place[0] = search_in_quarters(data, num_items, wanted[0], comp);
  } else {
    search(data, num_items, wanted, place, comp);
  }
  out[at] = static_cast<index_t>(place[0]);
}

#include "search_tiles.cuh"
#ifdef CUPAR_TREE
#include "search_tree.cuh"
#endif

CUPAR_FACTS(sizeof(item_t), values_sorted, each_threads, tile_threads, tile_size, staged_size, fanout,
            tree_threads, top_size)
