// Searches for tiles of values: a block stages the items that a tile's places lie among, which are all of
// them or, if values are sorted, those between the places of its first value and of the next tile's.
//
// Part of search.cuh.
namespace cupar {
// A thread has `tile_values` values in rows of `width`, whose indices are 16 bytes. A row of all threads is
// contiguous.
constexpr int index_width = 16 / static_cast<int>(sizeof(index_t));
constexpr int width       = tile_values % index_width == 0 ? index_width : 1;
constexpr int rows        = tile_values / width;
constexpr int most_pieces = 16;  // that a range of items is staged in; a longer one is searched where it is

__device__ __forceinline__ int row_start(int row) {
  return (row * tile_threads + threadIdx.x) * width;
}

// Copies items into shared memory, with 16 bytes to spare, and returns where they are.
__device__ __forceinline__ const item_t* stage(const item_t* from, int size, unsigned char* storage) {
  item_t* to = reinterpret_cast<item_t*>(storage);
  int copied = 0;
  if constexpr (16 % sizeof(item_t) == 0) {
    const auto address    = reinterpret_cast<cuda::std::uintptr_t>(from);
    constexpr int in_word = 16 / sizeof(item_t);
    if (address % sizeof(item_t) == 0) {  // structs and complex numbers need not be
      to              = reinterpret_cast<item_t*>(storage + address % 16);
      const int head  = cuda::std::min<int>(size, (16 - address % 16) % 16 / sizeof(item_t));
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
__device__ __forceinline__ void search_tile(d_data_t data, u64 first, u64 last, Values values, u64 num_values,
                                            Places out, const comp_t& comp) {
  using value_group = group<item_t, width>;
  using index_group = group<index_t, width>;
  alignas(16) __shared__ unsigned char storage[staged_size * sizeof(item_t) + 16];

  const u64 base          = u64{blockIdx.x} * tile_size;
  const int size          = cuda::std::min<u64>(num_values - base, tile_size);
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
      wanted[i]    = at < size ? item_t{ours[at]} : data[0];  // no operator is given what is no item
    }
  }

  unsigned places[tile_values] = {};
  const unsigned range         = last > first ? last - first : 0;
  for (unsigned passed = 0; passed < range; passed += staged_size) {
    if (passed > 0) {
      __syncthreads();  // the piece before is done with
    }
    const unsigned in_piece = cuda::std::min<unsigned>(range - passed, staged_size);
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
}  // namespace cupar

// A block for each tile; `bounds` has where the ranges of the tiles begin and end, if they are not all items.
extern "C" __global__ __launch_bounds__(tile_threads,
                                        tile_blocks) void cupar_search_tiles(d_data_t data, u64 num_items,
                                                                             d_values_t values,
                                                                             u64 num_values, d_out_t out,
                                                                             const u64* bounds, comp_t comp) {
  join_stream();
  u64 first = 0, last = num_items;
  if (bounds != nullptr) {
    first = bounds[blockIdx.x];
    last  = bounds[blockIdx.x + 1];
  }
  search_tile(data, first, last, values, num_values, out, comp);
}

#ifdef CUPAR_BOUNDS
// Finds the place of each tile's first value, and of the last of all.
extern "C" __global__ __launch_bounds__(each_threads) void cupar_search_bounds(d_data_t data, u64 num_items,
                                                                               d_values_t values,
                                                                               u64 num_values, u64 tiles,
                                                                               u64* bounds, comp_t comp) {
  join_stream();
  const u64 tile = u64{blockIdx.x} * each_threads + threadIdx.x;
  if (tile <= tiles) {
    const item_t value = values[cuda::std::min(tile * tile_size, num_values - 1)];
    bounds[tile]       = search_in_quarters(data, num_items, value, comp);
  }
}
#endif
