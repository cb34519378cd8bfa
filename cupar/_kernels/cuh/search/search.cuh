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
// Traits: d_data_t (a pointer), d_values_t, d_out_t, comp_t, is_upper, values_sorted; the policy: few_values,
// tile_threads, tile_blocks, tile_values, staged_bytes, tree_threads, tree_blocks, fanout (0: no tree),
// top_bytes.
#pragma once

#include "common/kernel.cuh"
#include "common/vectors.cuh"
#include "common/warp.cuh"

namespace cupar {
// --- Items that lie together -------------------------------------------------------------------------------

// The largest word of at most `most` bytes of which `bytes` is a multiple.
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
    return reinterpret_cast<u64>(items) % sizeof(word_t) == 0;
  }
  // Items that are read once need not stay in caches. No read-only loads (`__ldg`): the kernel before writes
  // the tree, and may still run when this one begins. So the compiler is told what address this is.
  template <bool is_once>
  static __device__ __forceinline__ void read(const T* from, T (&to)[count]) {
    word_t read[words];
#pragma unroll
    for (int i = 0; i < words; ++i) {
      const word_t* at = reinterpret_cast<const word_t*>(from) + i;
      __builtin_assume(__isGlobal(at));
      read[i] = is_once ? __ldcs(at) : *at;
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
  __builtin_assume(__isGlobal(from));
#pragma unroll 1
  for (int start = threadIdx.x; start < words; start += at_once * threads) {
    Word read[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (start + i * threads < words) {
        read[i] = is_once ? __ldcs(from + start + i * threads) : from[start + i * threads];
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

template <class Traits>
struct search_kernels {
  using d_data_t                      = typename Traits::d_data_t;
  using d_data_v                      = typename Traits::d_data_v;
  using d_values_t                    = typename Traits::d_values_t;
  using d_out_t                       = typename Traits::d_out_t;
  using d_out_v                       = typename Traits::d_out_v;
  using comp_t                        = typename Traits::comp_t;
  static constexpr bool is_upper      = Traits::is_upper;
  static constexpr bool values_sorted = Traits::values_sorted;
  static constexpr int few_values     = Traits::few_values;
  static constexpr int tile_threads   = Traits::tile_threads;
  static constexpr int tile_blocks    = Traits::tile_blocks;
  static constexpr int tile_values    = Traits::tile_values;
  static constexpr int staged_bytes   = Traits::staged_bytes;
  static constexpr int tree_threads   = Traits::tree_threads;
  static constexpr int tree_blocks    = Traits::tree_blocks;
  static constexpr int fanout         = Traits::fanout;
  static constexpr int top_bytes      = Traits::top_bytes;

  using item_t  = d_data_v;
  using index_t = d_out_v;

  static constexpr int each_threads = 128;
  static constexpr int tile_size    = tile_threads * tile_values;
  static constexpr int staged_fit   = staged_bytes / static_cast<int>(sizeof(item_t));
  static constexpr int staged_size  = staged_fit > 0 ? staged_fit : 1;
  static constexpr int top_size     = top_bytes / static_cast<int>(sizeof(item_t));

  // --- Searches
  // ----------------------------------------------------------------------------------------------

  // Whether an item goes before the place of a value.
  static __device__ __forceinline__ bool is_before(const item_t item, const item_t& value,
                                                   const comp_t& comp) {
    if constexpr (is_upper) {
      return !comp(value, item);
    } else {
      return comp(item, value);
    }
  }

  // Moves the places of some values past what goes before them. Of the items, all before `items` were
  // searched already: a value that did not pass all of those, `passed`, passes none of these.
  template <class Index, int count>
  static __device__ __forceinline__ void search(const item_t* items, Index size,
                                                const item_t (&values)[count], Index (&places)[count],
                                                const comp_t& comp, Index passed = 0) {
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
  static __device__ __forceinline__ u64 search_in_quarters(const item_t* items, u64 size, const item_t& value,
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

  // A thread for each value.
  struct cupar_search_each : kernel<each_threads> {
    static __device__ __forceinline__ void run(d_data_t data, u64 num_items, d_values_t values,
                                               u64 num_values, d_out_t out, comp_t comp) {
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
  };

  // --- Tiles of values: a block stages the items that a tile's places lie among, which are all of them or,
  // if values are sorted, those between the places of its first value and of the next tile's. ---

  // A thread has `tile_values` values in rows of `width`, whose indices are 16 bytes. A row of all threads is
  // contiguous.
  static constexpr int index_width = 16 / static_cast<int>(sizeof(index_t));
  static constexpr int width       = tile_values % index_width == 0 ? index_width : 1;
  static constexpr int rows        = tile_values / width;
  static constexpr int most_pieces =
      16;  // that a range of items is staged in; a longer one is searched where it is

  static __device__ __forceinline__ int row_start(int row) {
    return (row * tile_threads + threadIdx.x) * width;
  }

  // Copies items into shared memory, with 16 bytes to spare, and returns where they are.
  static __device__ __forceinline__ const item_t* stage(const item_t* from, int size,
                                                        unsigned char* storage) {
    item_t* to = reinterpret_cast<item_t*>(storage);
    int copied = 0;
    if constexpr (16 % sizeof(item_t) == 0) {
      const auto address    = reinterpret_cast<u64>(from);
      constexpr int in_word = 16 / sizeof(item_t);
      if (address % sizeof(item_t) == 0) {  // structs and complex numbers need not be
        to              = reinterpret_cast<item_t*>(storage + address % 16);
        const int head  = least(size, static_cast<int>((16 - address % 16) % 16 / sizeof(item_t)));
        const int words = (size - head) / in_word;
        if (threadIdx.x < head) {
          to[threadIdx.x] = from[threadIdx.x];
        }
        copy_words<tile_threads, true>(reinterpret_cast<uint4*>(to + head),
                                       reinterpret_cast<const uint4*>(from + head), words);
        copied = head + words * in_word;
      }
    }
#pragma unroll 1
    for (int i = copied + threadIdx.x; i < size; i += tile_threads) {
      to[i] = from[i];
    }
    return to;
  }

  // Searches for a block's tile of values in a range of the items.
  template <class Values, class Places>
  static __device__ __forceinline__ void search_tile(d_data_t data, u64 first, u64 last, Values values,
                                                     u64 num_values, Places out, const comp_t& comp) {
    using value_group = group<item_t, width>;
    using index_group = group<index_t, width>;
    alignas(16) __shared__ unsigned char storage[staged_size * sizeof(item_t) + 16];

    const u64 base          = u64{blockIdx.x} * tile_size;
    const int size          = static_cast<int>(least(num_values - base, u64{tile_size}));
    const bool is_full      = size == tile_size;
    const Values ours       = values + base;
    const Places our_places = out + base;

    if constexpr (values_sorted) {
      if (last > first && last - first > most_pieces * staged_size) {
#pragma unroll 1
        for (int row = 0; row < rows; ++row) {
          item_t wanted[width];
          u64 places[width] = {};
#pragma unroll
          for (int i = 0; i < width; ++i) {
            const int at = row_start(row) + i;
            wanted[i]    = at < size ? item_t{ours[at]} : data[first];
          }
          search(data + first, last - first, wanted, places, comp);
#pragma unroll
          for (int i = 0; i < width; ++i) {
            const int at = row_start(row) + i;
            if (at < size) {
              our_places[at] = static_cast<index_t>(first + places[i]);
            }
          }
        }
        return;
      }
    }

    item_t wanted[tile_values];
    bool is_read = false;
    if constexpr (is_array<Values>) {
      if (is_full && value_group::is_aligned(ours)) {
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          value_group::template read<true>(ours + row_start(row),
                                           reinterpret_cast<item_t(&)[width]>(wanted[row * width]));
        }
        is_read = true;
      }
    }
    if (!is_read) {
#pragma unroll
      for (int i = 0; i < tile_values; ++i) {
        const int at = row_start(i / width) + i % width;
        wanted[i]    = at < size ? item_t{ours[at]} : data[0];  // operators only get items
      }
    }

    unsigned places[tile_values] = {};
    const unsigned range         = last > first ? last - first : 0;
    for (unsigned passed = 0; passed < range; passed += staged_size) {
      if (passed > 0) {
        __syncthreads();  // the piece before is done with
      }
      const unsigned in_piece = least(static_cast<unsigned>(range - passed), unsigned{staged_size});
      const item_t* items     = stage(data + first + passed, in_piece, storage);
      __syncthreads();
      if (passed == 0) {
        search(items, in_piece, wanted, places, comp);
      } else if constexpr (values_sorted) {
        search(items, in_piece, wanted, places, comp, passed);
      }
    }

    index_t found[tile_values];
#pragma unroll
    for (int i = 0; i < tile_values; ++i) {
      found[i] = static_cast<index_t>(first + places[i]);
    }
    if constexpr (is_array<Places>) {
      if (is_full && index_group::is_aligned(our_places)) {
#pragma unroll
        for (int row = 0; row < rows; ++row) {
          index_group::write(our_places + row_start(row),
                             reinterpret_cast<index_t(&)[width]>(found[row * width]));
        }
        return;
      }
    }
#pragma unroll
    for (int i = 0; i < tile_values; ++i) {
      const int at = row_start(i / width) + i % width;
      if (at < size) {
        our_places[at] = found[i];
      }
    }
  }

  // A block for each tile; `bounds` has where the ranges of the tiles begin and end, if they are not all
  // items.
  struct cupar_search_tiles : kernel<tile_threads, tile_blocks> {
    static __device__ __forceinline__ void run(d_data_t data, u64 num_items, d_values_t values,
                                               u64 num_values, d_out_t out, const u64* bounds, comp_t comp) {
      join_stream();
      u64 first = 0, last = num_items;
      if (bounds != nullptr) {
        first = bounds[blockIdx.x];
        last  = bounds[blockIdx.x + 1];
      }
      search_tile(data, first, last, values, num_values, out, comp);
    }
  };

  // Finds the place of each tile's first value, and of the last of all.
  struct cupar_search_bounds : kernel<each_threads> {
    static __device__ __forceinline__ void run(d_data_t data, u64 num_items, d_values_t values,
                                               u64 num_values, u64 tiles, u64* bounds, comp_t comp) {
      join_stream();
      const u64 tile = u64{blockIdx.x} * each_threads + threadIdx.x;
      if (tile <= tiles) {
        const item_t value = values[least(tile * tile_size, num_values - 1)];
        bounds[tile]       = search_in_quarters(data, num_items, value, comp);
      }
    }
  };

  // --- Values in any order, down a tree of samples of the items ---

  static constexpr int sample_threads = 256;
  static constexpr int lanes          = 4;  // that read a node together
  static constexpr int part           = fanout / lanes;
  static constexpr int max_levels     = 12;
  static constexpr unsigned all_lanes = 0xffffffff;
  static_assert(fanout % lanes == 0 && fanout < 256);

  static __device__ __forceinline__ u64 nodes_of(u64 size) { return (size + fanout - 1) / fanout; }

  // The nodes of the data begin where memory is aligned to them, if items can be, and so many before the
  // data.
  static constexpr bool is_alignable = alignof(item_t) == sizeof(item_t);
  static __device__ __forceinline__ int items_missing(d_data_t data) {
    return is_alignable ? reinterpret_cast<u64>(data) / sizeof(item_t) % fanout : 0;
  }

  // A level of the tree, in whole nodes: the last is filled with what the level ends with. In storage there
  // are copies of the first and the last node of the data, filled with the first and the last item, and then
  // one level after another.
  struct level {
    const item_t* items;
    unsigned size;
  };

  // Counts, for a value of each lane, what goes before it in a node.
  template <class Part, bool is_once>
  static __device__ __forceinline__ unsigned count_in_node(const item_t& wanted, const item_t* node,
                                                           const comp_t& comp) {
    const int lane  = threadIdx.x % lanes;
    const int first = threadIdx.x % 32 - lane;
    item_t items[lanes][part];  // parts of the nodes that the four lanes ask for
#pragma unroll
    for (int of = 0; of < lanes; ++of) {
      Part::template read<is_once>(shuffle(node, first + of) + lane * part, items[of]);
    }
    unsigned counts = 0;  // a byte for each of the four lanes
#pragma unroll
    for (int of = 0; of < lanes; ++of) {
      const item_t value = shuffle(wanted, first + of);
      unsigned count     = 0;
#pragma unroll
      for (int i = 0; i < part; ++i) {
        count += is_before(items[of][i], value, comp);
      }
      counts += count << (8 * of);
    }
#pragma unroll
    for (int other = 1; other < lanes; other *= 2) {
      counts += __shfl_xor_sync(all_lanes, counts, other);
    }
    return counts >> (8 * lane) & 255;
  }

  template <class Values>
  static __device__ __forceinline__ item_t value_at(Values values, u64 at) {
    if constexpr (is_array<Values>) {
      item_t value[1];
      group<item_t, 1, alignof(item_t)>::template read<true>(values + at, value);
      return value[0];
    } else {
      return values[at];
    }
  }

  template <class Places>
  static __device__ __forceinline__ void write_place(Places out, u64 at, u64 place) {
    if constexpr (is_array<Places>) {
      __stcs(out + at, static_cast<index_t>(place));
    } else {
      out[at] = static_cast<index_t>(place);
    }
  }

  // Makes the tree: a thread for each item of the first level, which also writes those above that are the
  // same.
  struct cupar_search_sample : kernel<sample_threads> {
    static __device__ __forceinline__ void run(d_data_t data, u64 num_items, item_t* tree) {
      join_stream();
      const int missing = items_missing(data);
      u64 size          = nodes_of(num_items + missing);
      u64 at            = u64{blockIdx.x} * sample_threads + threadIdx.x;
      if (at >= size) {
        return;
      }
      const bool is_last  = at == size - 1;
      const item_t sample = data[least((at + 1) * fanout - missing, num_items) - 1];
      if (at == 0 || is_last) {
        item_t* node = tree + (at == 0 ? 0 : fanout);
        for (int i = 0; i < fanout; ++i) {
          node[i] = data[least(max(static_cast<u64>(at * fanout + i), static_cast<u64>(missing)) - missing,
                               num_items - 1)];
        }
      }
      for (item_t* items = tree + 2 * fanout;; at /= fanout) {
        items[at] = sample;
        if (is_last) {
          for (u64 rest = at + 1; rest % fanout != 0; ++rest) {
            items[rest] = sample;
          }
        }
        if (size <= top_size || (!is_last && (at + 1) % fanout != 0)) {
          return;
        }
        size = nodes_of(size);
        items += size * fanout;
      }
    }
  };

  // Searches from the top of the tree down, with as many blocks as run at once.
  struct cupar_search_tree : kernel<tree_threads, tree_blocks> {
    static __device__ __forceinline__ void run(d_data_t data, u64 num_items, const item_t* tree,
                                               d_values_t values, u64 num_values, d_out_t out, comp_t comp) {
      using data_part = group<item_t, part, is_alignable ? 16 : alignof(item_t)>;
      using node_word = typename group<item_t, fanout>::word_t;
      alignas(16) __shared__ unsigned char storage[(top_size + fanout) * sizeof(item_t)];
      __shared__ level levels[max_levels];
      __shared__ int height;
      join_stream();
      const int missing = items_missing(data);
      if (threadIdx.x == 0) {
        const item_t* items = tree + 2 * fanout;
        u64 size            = num_items + missing;
        int k               = 0;
        do {
          size        = nodes_of(size);
          levels[k++] = {items, static_cast<unsigned>(size)};
          items += nodes_of(size) * fanout;
        } while (size > top_size);
        height = k;
      }
      __syncthreads();
      const level top_level = levels[height - 1];
      item_t* top           = reinterpret_cast<item_t*>(storage);
      copy_words<tree_threads, false>(reinterpret_cast<node_word*>(storage),
                                      reinterpret_cast<const node_word*>(top_level.items),
                                      nodes_of(top_level.size) * fanout * sizeof(item_t) / sizeof(node_word));
      __syncthreads();

      const u64 step = u64{gridDim.x} * tree_threads;
      for (u64 base = u64{blockIdx.x} * tree_threads; base < num_values; base += step) {  // for whole blocks
        const u64 at           = base + threadIdx.x;
        const item_t wanted[1] = {at < num_values ? value_at(values, at) : top[0]};
        unsigned found[1]      = {0};
        search(top, top_level.size, wanted, found, comp);
        unsigned node = least(found[0], top_level.size - 1);  // what goes after all goes into the last
        for (int k = height - 1; k > 0; --k) {
          const auto [items, size] = levels[k - 1];
          const unsigned count =
              count_in_node<group<item_t, part>, false>(wanted[0], items + u64{node} * fanout, comp);
          node = least(node * fanout + count, size - 1);
        }
        const item_t* items  = data - missing + u64{node} * fanout;
        items                = node == 0 ? tree : node == levels[0].size - 1 ? tree + fanout : items;
        const unsigned count = count_in_node<data_part, true>(wanted[0], items, comp);
        if (at < num_values) {
          const u64 place = max(u64{node} * fanout + count, static_cast<u64>(missing)) - missing;
          write_place(out, at, least(place, num_items));
        }
      }
    }
  };

  static constexpr auto properties = properties_of(sizeof(item_t), values_sorted, each_threads, tile_threads,
                                                   tile_size, staged_size, fanout, tree_threads, top_size);
};
}  // namespace cupar
