// Searches for values in any order, down a tree of samples of the items.
//
// Part of search.cuh.
namespace cupar {
constexpr int sample_threads = 256;
constexpr int lanes          = 4;  // that read a node together
constexpr int part           = fanout / lanes;
constexpr int max_levels     = 12;
constexpr unsigned all_lanes = 0xffffffff;
static_assert(fanout % lanes == 0 && fanout < 256);

__device__ __forceinline__ u64 nodes_of(u64 size) {
  return (size + fanout - 1) / fanout;
}

// The nodes of the data begin where memory is aligned to them, if items can be, and so many before the data.
constexpr bool is_alignable = alignof(item_t) == sizeof(item_t);
__device__ __forceinline__ int items_missing(d_data_t data) {
  return is_alignable ? reinterpret_cast<cuda::std::uintptr_t>(data) / sizeof(item_t) % fanout : 0;
}

// A level of the tree, in whole nodes: the last is filled with what the level ends with. In storage there are
// copies of the first and the last node of the data, filled with the first and the last item, and then one
// level after another.
struct level {
  const item_t* items;
  unsigned size;
};

template <class T>
__device__ __forceinline__ T from_lane(const T& value, int lane) {
  using word_t        = largest_word<sizeof(T), 4>;
  constexpr int words = sizeof(T) / sizeof(word_t);
  word_t word[words];
  memcpy(word, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) {
    word[i] = __shfl_sync(all_lanes, static_cast<unsigned>(word[i]), lane);
  }
  T result;
  memcpy(&result, word, sizeof(T));
  return result;
}

// Counts, for a value of each lane, what goes before it in a node.
template <class Part, bool is_once>
__device__ __forceinline__ unsigned count_in_node(const item_t& wanted, const item_t* node,
                                                  const comp_t& comp) {
  const int lane  = threadIdx.x % lanes;
  const int first = threadIdx.x % 32 - lane;
  item_t items[lanes][part];  // parts of the nodes that the four lanes ask for
#pragma unroll
  for (int of = 0; of < lanes; ++of) {
    Part::template read<is_once>(from_lane(node, first + of) + lane * part, items[of]);
  }
  unsigned counts = 0;  // a byte for each of the four lanes
#pragma unroll
  for (int of = 0; of < lanes; ++of) {
    const item_t value = from_lane(wanted, first + of);
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
__device__ __forceinline__ item_t value_at(Values values, u64 at) {
  if constexpr (is_array<Values>) {
    item_t value[1];
    group<item_t, 1, alignof(item_t)>::template read<true>(values + at, value);
    return value[0];
  } else {
    return values[at];
  }
}

template <class Places>
__device__ __forceinline__ void write_place(Places out, u64 at, u64 place) {
  if constexpr (is_array<Places>) {
    __stcs(out + at, static_cast<index_t>(place));
  } else {
    out[at] = static_cast<index_t>(place);
  }
}
}  // namespace cupar

// Makes the tree: a thread for each item of the first level, which also writes those above that are the same.
extern "C" __global__ __launch_bounds__(sample_threads) void cupar_search_sample(d_data_t data, u64 num_items,
                                                                                 item_t* tree) {
  join_stream();
  const int missing = items_missing(data);
  u64 size          = nodes_of(num_items + missing);
  u64 at            = u64{blockIdx.x} * sample_threads + threadIdx.x;
  if (at >= size) {
    return;
  }
  const bool is_last  = at == size - 1;
  const item_t sample = data[cuda::std::min((at + 1) * fanout - missing, num_items) - 1];
  if (at == 0 || is_last) {
    item_t* node = tree + (at == 0 ? 0 : fanout);
    for (int i = 0; i < fanout; ++i) {
      node[i] = data[cuda::std::min(cuda::std::max<u64>(at * fanout + i, missing) - missing, num_items - 1)];
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

// Searches from the top of the tree down, with as many blocks as run at once.
extern "C" __global__ __launch_bounds__(tree_threads,
                                        tree_blocks) void cupar_search_tree(d_data_t data, u64 num_items,
                                                                            const item_t* tree,
                                                                            d_values_t values, u64 num_values,
                                                                            d_out_t out, comp_t comp) {
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
    unsigned node = cuda::std::min(found[0], top_level.size - 1);  // what goes after all goes into the last
    for (int k = height - 1; k > 0; --k) {
      const auto [items, size] = levels[k - 1];
      const unsigned count =
          count_in_node<group<item_t, part>, false>(wanted[0], items + u64{node} * fanout, comp);
      node = cuda::std::min(node * fanout + count, size - 1);
    }
    const item_t* items  = data - missing + u64{node} * fanout;
    items                = node == 0 ? tree : node == levels[0].size - 1 ? tree + fanout : items;
    const unsigned count = count_in_node<data_part, true>(wanted[0], items, comp);
    if (at < num_values) {
      const u64 place = cuda::std::max<u64>(u64{node} * fanout + count, missing) - missing;
      write_place(out, at, cuda::std::min(place, num_items));
    }
  }
}
